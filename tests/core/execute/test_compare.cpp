// Figures of comparisons against the same worked out one element at a time.
#include <QTest>
#include <cmath>
#include <limits>

#include "execute/compare.h"
#include "execute/fake_checkpoint.h"
#include "execute/values.h"

using namespace shardscope;
using namespace shardscope::test;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <class T>
double number(const std::byte* bytes) {
    T value;
    std::memcpy(&value, bytes, sizeof value);
    return static_cast<double>(value);
}

// A number of this dtype; types without a numeric meaning give their bits.
double slowValue(DType dtype, const std::byte* bytes) {
    switch (dtype) {
        case DType::boolean:
            return number<uint8_t>(bytes) != 0 ? 1 : 0;
        case DType::int8:
        case DType::qint8:
            return number<int8_t>(bytes);
        case DType::int16:
            return number<int16_t>(bytes);
        case DType::int32:
        case DType::qint32:
            return number<int32_t>(bytes);
        case DType::int64:
            return number<int64_t>(bytes);
        default:
            break;
    }
    if (castSupported(dtype, DType::float64)) {
        double value = 0;
        castElements(dtype, bytes, DType::float64, reinterpret_cast<std::byte*>(&value), 1);
        return value;
    }
    switch (dtypeBytes(dtype)) {
        case 1:
            return number<uint8_t>(bytes);
        case 2:
            return number<uint16_t>(bytes);
        case 4:
            return number<uint32_t>(bytes);
        default:
            return number<uint64_t>(bytes);
    }
}

uint64_t slowUlp(DType dtype, const std::byte* a, const std::byte* b) {
    if (!dtypeIsFloat(dtype)) return 0;
    const unsigned bits = dtypeBits(dtype);
    const auto ordered = [&](const std::byte* bytes) {
        uint64_t pattern = 0;
        std::memcpy(&pattern, bytes, bits / 8);
        const uint64_t sign = uint64_t{1} << (bits - 1);
        if (dtype == DType::float8E8M0FNU) return pattern;  // it has no sign
        return pattern & sign ? sign - (pattern & ~sign) : sign + pattern;
    };
    const uint64_t p = ordered(a), q = ordered(b);
    return p > q ? p - q : q - p;
}

void addSlowly(DType dtype, const std::byte* a, const std::byte* b, ValueFigures& sum) {
    const double x = slowValue(dtype, a), y = slowValue(dtype, b);
    double distance = 0, relative = 0;
    if (std::isnan(x) || std::isnan(y)) {
        distance = relative = std::isnan(x) && std::isnan(y) ? 0 : kInfinity;
    } else if (x != y) {
        distance = std::abs(x - y);
        const double size = std::max(std::abs(x), std::abs(y));
        relative = std::isinf(size) ? kInfinity : distance / size;
    }
    sum.maxAbs = std::max(sum.maxAbs, distance);
    sum.maxRelative = std::max(sum.maxRelative, relative);
    sum.maxUlp = std::max(sum.maxUlp, slowUlp(dtype, a, b));
    sum.squareDifference += distance * distance;
    if (std::isfinite(x)) sum.squareA += x * x;
    if (std::isfinite(y)) sum.squareB += y * y;
    if (std::isfinite(x) && std::isfinite(y))
        sum.product += x * y;
    else
        sum.nonFinite = true;
}

ValueFigures slowly(DType dtype, const Bytes& a, const Bytes& b) {
    ValueFigures sum;
    const size_t size = dtypeBytes(dtype);
    const DType part = dtype == DType::complex32    ? DType::float16
                       : dtype == DType::bcomplex32 ? DType::bfloat16
                       : dtype == DType::complex64  ? DType::float32
                       : dtype == DType::complex128 ? DType::float64
                                                    : dtype;
    for (size_t i = 0; i < a.size(); i += size) {
        ++sum.elements;
        if (std::memcmp(&a[i], &b[i], size) != 0) ++sum.different;
        for (size_t k = 0; k < size; k += dtypeBytes(part))
            addSlowly(part, &a[i + k], &b[i + k], sum);
    }
    return sum;
}

bool near(double a, double b) {
    return a == b || (std::isnan(a) && std::isnan(b)) ||
           std::abs(a - b) <= 1e-9 * std::max(std::abs(a), std::abs(b));
}

// Extremes are exact; sums are those of another order.
bool sameFigures(const ValueFigures& a, const ValueFigures& b) {
    return a.elements == b.elements && a.different == b.different && a.maxAbs == b.maxAbs &&
           a.maxRelative == b.maxRelative && a.maxUlp == b.maxUlp && a.nonFinite == b.nonFinite &&
           near(a.squareDifference, b.squareDifference) && near(a.squareA, b.squareA) &&
           near(a.squareB, b.squareB);
}

// Bytes of `from` with some of its elements changed.
Bytes changed(Random& random, const Bytes& from, size_t share) {
    Bytes bytes = from;
    for (std::byte& byte : bytes)
        if (random() % share == 0) byte ^= static_cast<std::byte>(1 + random() % 255);
    return bytes;
}

struct Side {
    std::shared_ptr<MemoryFileSystem> system = std::make_shared<MemoryFileSystem>();
    FakeSource source;
    std::unique_ptr<FakeReader> reader;

    Side(Random& random, std::vector<FakeTensor> tensors) {
        for (FakeTensor& tensor : tensors)
            source.add(random, std::move(tensor));
        source.write(random, *system);
        reader = source.open(*system);
    }
};

struct Room {
    explicit Room(unsigned threads, uint64_t bytes) : pool(threads), memory(bytes) {}
    ThreadPool pool;
    MemoryBudget memory;
    Resources resources() {
        Resources r;
        r.pool = &pool;
        r.memory = &memory;
        return r;
    }
};

}  // namespace

class TestCompare : public QObject {
    Q_OBJECT

  private slots:
    void figures_data() {
        QTest::addColumn<int>("dtype");
        for (int i = 0; i < kDTypeCount; ++i) {
            const auto dtype = static_cast<DType>(i);
            if (dtypeIsWholeBytes(dtype)) QTest::newRow(std::string(dtypeName(dtype)).c_str()) << i;
        }
    }
    void figures() {
        QFETCH(int, dtype);
        const auto type = static_cast<DType>(dtype);
        Random random(7);
        // All bit patterns come up, NaN and infinities among them; then those that differ in a few places, or
        // not at all; blocks without anything special; at any address, of any length.
        for (const size_t count :
             {size_t{0}, size_t{1}, size_t{7}, size_t{1000}, size_t{1024}, size_t{5003}}) {
            const size_t bytes = count * dtypeBytes(type);
            const Bytes a = randomBytes(random, bytes);
            for (const Bytes& b :
                 {randomBytes(random, bytes), changed(random, a, 2), changed(random, a, 5000), a}) {
                for (const size_t shift : {size_t{0}, size_t{1}}) {
                    Bytes x(shift), y(shift);
                    x.insert(x.end(), a.begin(), a.end());
                    y.insert(y.end(), b.begin(), b.end());
                    ValueFigures found;
                    addFigures(type, std::span(x).subspan(shift), std::span(y).subspan(shift), found);
                    QVERIFY2(sameFigures(found, slowly(type, a, b)), std::to_string(count).c_str());
                }
            }
        }
    }

    void finiteFloats_data() {
        QTest::addColumn<int>("dtype");
        for (const DType dtype : {DType::float16, DType::bfloat16, DType::float32, DType::float64})
            QTest::newRow(std::string(dtypeName(dtype)).c_str()) << static_cast<int>(dtype);
    }
    void finiteFloats() {
        QFETCH(int, dtype);
        const auto type = static_cast<DType>(dtype);
        Random random(11);
        std::normal_distribution<double> normal(0, 0.02);
        std::vector<double> values(40'000), others(values.size());
        for (size_t i = 0; i < values.size(); ++i) {
            values[i] = i % 97 == 0 ? 0 : normal(random);
            others[i] = i % 89 == 0 ? -values[i] : values[i] * (1 + normal(random));
        }
        const auto bytesOf = [&](const std::vector<double>& from) {
            Bytes to(from.size() * dtypeBytes(type));
            castElements(DType::float64, reinterpret_cast<const std::byte*>(from.data()), type, to.data(),
                         from.size());
            return to;
        };
        const Bytes a = bytesOf(values), b = bytesOf(others);
        ValueFigures found;
        addFigures(type, a, b, found);
        const ValueFigures expected = slowly(type, a, b);
        QVERIFY(sameFigures(found, expected));
        QVERIFY(!found.nonFinite && found.l2() > 0 && found.relativeL2() < 1);
        QVERIFY(std::abs(found.cosine() - expected.product / std::sqrt(expected.squareA * expected.squareB)) <
                1e-12);
    }

    void sixBits() {
        // 0, 0.125, 1 and 7.5 of E2M3 in three bytes; then 1 becomes -1.
        const auto packed = [](unsigned a, unsigned b, unsigned c, unsigned d) {
            const unsigned all = a | b << 6 | c << 12 | d << 18;
            return Bytes{static_cast<std::byte>(all), static_cast<std::byte>(all >> 8),
                         static_cast<std::byte>(all >> 16)};
        };
        ValueFigures found;
        addFigures(DType::float6E2M3, packed(0, 1, 8, 31), packed(0, 1, 40, 31), found);
        QCOMPARE(found.elements, uint64_t{4});
        QCOMPARE(found.different, uint64_t{1});
        QCOMPARE(found.maxAbs, 2.0);
    }

    void meaningOfSpecialValues() {
        const auto figures = [](float a, float b) {
            ValueFigures found;
            addFigures(DType::float32, std::as_bytes(std::span(&a, 1)), std::as_bytes(std::span(&b, 1)),
                       found);
            return found;
        };
        const float nan = std::numeric_limits<float>::quiet_NaN(),
                    inf = std::numeric_limits<float>::infinity();
        for (const auto& [a, b] : {std::pair(nan, 1.0F), {1.0F, nan}, {inf, 1.0F}, {inf, -inf}, {nan, inf}}) {
            const ValueFigures found = figures(a, b);
            QCOMPARE(found.maxAbs, kInfinity);
            QCOMPARE(found.maxRelative, kInfinity);
            QCOMPARE(found.l2(), kInfinity);
            QVERIFY(std::isnan(found.cosine()));
        }
        QCOMPARE(figures(nan, -nan).maxAbs, 0.0);
        QCOMPARE(figures(nan, -nan).different, uint64_t{1});
        QCOMPARE(figures(0.0F, -0.0F).different, uint64_t{1});
        QCOMPARE(figures(0.0F, -0.0F).maxUlp, uint64_t{0});
        QCOMPARE(figures(0.0F, -0.0F).relativeL2(), 0.0);
        QCOMPARE(figures(0.0F, 1.0F).relativeL2(), kInfinity);
        QVERIFY(std::isnan(figures(0.0F, 1.0F).cosine()));
        QCOMPARE(figures(1.0F, std::nextafter(1.0F, 2.0F)).maxUlp, uint64_t{1});
        QCOMPARE(figures(2.0F, 1.0F).maxRelative, 0.5);
        QCOMPARE(figures(2.0F, 1.0F).relativeL2(), 0.5);
    }

    // Whatever the sharding, the threads and the memory, to the last bit.
    void figuresDoNotDependOnSharding() {
        Random random(3);
        std::vector<FakeTensor> a, b;
        std::vector<std::pair<TensorId, TensorId>> pairs;
        for (const DType dtype : {DType::bfloat16, DType::float32, DType::int64, DType::complex64}) {
            const FakeTensor tensor = randomTensor(random, "t" + std::to_string(a.size()), 1'500'000, dtype);
            FakeTensor other = tensor;
            other.data = changed(random, tensor.data, 20'000);
            pairs.emplace_back(a.size(), a.size());
            a.push_back(tensor);
            b.push_back(other);
        }
        a.push_back({"empty", DType::float32, {3, 0}, {}, kNone});
        b.push_back(a.back());
        pairs.emplace_back(4, 4);
        std::vector<ValueFigures> first;
        for (unsigned i = 0; i < 6; ++i) {
            const Side left(random, a), right(random, b);
            Room room(1 + i % 4, i % 2 ? uint64_t{16} << 20 : uint64_t{512} << 20);
            const auto found =
                compareTensors({left.reader.get()}, {right.reader.get()}, pairs, room.resources());
            QVERIFY2(found.ok(), found.ok() ? "" : describe(found.error()).c_str());
            QCOMPARE(found->size(), pairs.size());
            for (size_t t = 0; t < found->size(); ++t) {
                const ValueFigures& figures = (*found)[t];
                QVERIFY(sameFigures(figures, slowly(a[t].dtype, a[t].data, b[t].data)));
                if (i == 0) continue;
                QCOMPARE(figures.squareDifference, first[t].squareDifference);
                QCOMPARE(figures.product, first[t].product);
            }
            if (i == 0) first = *found;
        }
    }

    void missingBytesAreAnError() {
        Random random(5);
        const std::vector<FakeTensor> tensors{randomTensor(random, "t", 4000, DType::float32)};
        const Side left(random, tensors), right(random, tensors);
        for (const std::string& file : right.source.files)
            right.system->put("/src/" + file, {});
        const auto reader = right.source.open(*right.system);
        Room room(2, uint64_t{64} << 20);
        QVERIFY(!compareTensors({left.reader.get()}, {reader.get()}, {{0, 0}}, room.resources()).ok());
    }
};

QTEST_APPLESS_MAIN(TestCompare)
#include "test_compare.moc"
