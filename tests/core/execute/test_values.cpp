#include <QTest>
#include <cmath>

#include "execute/fake_checkpoint.h"
#include "execute/value_sums.h"
#include "execute/values.h"

using namespace shardscope;
using namespace shardscope::test;

namespace {

// What countValues must find, by way of float64.
ValueCounts countSlowly(DType dtype, std::span<const std::byte> bytes) {
    ValueCounts counts;
    counts.elements = bytes.size() / dtypeBytes(dtype);
    std::vector<double> values(counts.elements);
    castElements(dtype, bytes.data(), DType::float64, reinterpret_cast<std::byte*>(values.data()),
                 values.size());
    for (const double v : values) {
        counts.nan += std::isnan(v);
        counts.inf += std::isinf(v);
        counts.zero += v == 0;
    }
    return counts;
}

}  // namespace

class TestValues : public QObject {
    Q_OBJECT

  private slots:
    void countsOfFloats_data() {
        QTest::addColumn<int>("dtype");
        for (const DType dtype :
             {DType::float16, DType::bfloat16, DType::float32, DType::float64, DType::float8E5M2,
              DType::float8E4M3FN, DType::float8E4M3FNUZ, DType::float8E5M2FNUZ, DType::float8E8M0FNU}) {
            QTest::newRow(std::string(dtypeName(dtype)).c_str()) << static_cast<int>(dtype);
        }
    }

    // Bytes of ordinary values with nothing, one and many rare ones in them, at every distance from the end
    // of a block, of lengths and at addresses of every kind.
    void countsOfFloats() {
        QFETCH(int, dtype);
        const auto type = static_cast<DType>(dtype);
        const size_t size = dtypeBytes(type);
        Random random(static_cast<uint64_t>(dtype) + 1);
        const Bytes anything = randomBytes(random, 1 << 20);
        // Elements that are neither zero nor special.
        Bytes plain;
        std::vector<Bytes> rare = {Bytes(size), Bytes(size, std::byte{0xff})};
        for (size_t i = 0; i + size <= anything.size() && plain.size() < (64 << 10); i += size) {
            const std::span<const std::byte> element(anything.data() + i, size);
            const ValueCounts one = countSlowly(type, element);
            if (one.nan + one.inf + one.zero == 0) {
                plain.insert(plain.end(), element.begin(), element.end());
            } else if (rare.size() < 64) {
                rare.emplace_back(element.begin(), element.end());
            }
        }
        if (dtypeIsWholeBytes(type)) {
            // Infinities and the smallest magnitude, of both signs.
            for (const double value : {HUGE_VAL, -HUGE_VAL, -0.0}) {
                Bytes element(size);
                castElements(DType::float64, reinterpret_cast<const std::byte*>(&value), type, element.data(),
                             1);
                rare.push_back(element);
            }
        }
        for (int round = 0; round < 300; ++round) {
            const size_t shift = random() % 9;
            const size_t elements = random() % (round % 2 ? 20000 / size : 3 * 4096 / size + 2);
            Bytes bytes(shift + elements * size);
            std::copy_n(plain.begin(), elements * size, bytes.begin() + static_cast<ptrdiff_t>(shift));
            const size_t many = elements == 0 ? 0 : round % 3 == 2 ? random() % elements : round % 3;
            for (size_t i = 0; i < many; ++i) {
                const Bytes& element = rare[random() % rare.size()];
                std::copy(element.begin(), element.end(),
                          bytes.begin() + static_cast<ptrdiff_t>(shift + random() % elements * size));
            }
            const std::span<const std::byte> span = std::span(bytes).subspan(shift);
            const ValueCounts expected = countSlowly(type, span);
            ValueCounts counts;
            countValues(type, span, counts);
            QCOMPARE(counts.elements, expected.elements);
            QCOMPARE(counts.nan, expected.nan);
            QCOMPARE(counts.inf, expected.inf);
            QCOMPARE(counts.zero, expected.zero);
        }
    }

    // Ordinary, tiny and huge values, with special ones among them, of lengths and at addresses of every
    // kind.
    void sumsOfFloats_data() { countsOfFloats_data(); }
    void sumsOfFloats() {
        QFETCH(int, dtype);
        const auto type = static_cast<DType>(dtype);
        const size_t size = dtypeBytes(type);
        Random random(static_cast<uint64_t>(dtype) + 1);
        for (int round = 0; round < 120; ++round) {
            const size_t shift = random() % 9, elements = random() % (40000 / size);
            const double scales[] = {1, 0.02, 1e-13, 1e-22, 1e-30, 1e25};
            const double scale = scales[round % 6];
            std::vector<double> values(elements);
            for (double& value : values)
                value = scale * (static_cast<double>(random() % 2000) - 900) / 1000;
            for (int special = 0; round % 4 == 0 && special < 3 && elements > 0; ++special)
                values[random() % elements] = special == 0 ? NAN : HUGE_VAL;
            Bytes bytes(shift + elements * size);
            std::byte* const begin = bytes.data() + shift;
            castElements(DType::float64, reinterpret_cast<const std::byte*>(values.data()), type, begin,
                         elements);
            castElements(type, begin, DType::float64, reinterpret_cast<std::byte*>(values.data()), elements);
            ValueSums expected, sums;
            double magnitudes = 0;
            for (const double v : values) {
                if (!std::isfinite(v)) continue;
                magnitudes += std::abs(v);
                expected.add({1, v, v * v, std::abs(v)});
            }
            addSums(type, std::span(bytes).subspan(shift), sums);
            QCOMPARE(sums.counted, expected.counted);
            QCOMPARE(sums.largest, expected.largest);
            QVERIFY2(std::abs(sums.squares - expected.squares) <= 2e-6 * expected.squares,
                     qPrintable(QString("%1 %2").arg(sums.squares).arg(expected.squares)));
            QVERIFY2(std::abs(sums.sum - expected.sum) <= 2e-6 * magnitudes,
                     qPrintable(QString("%1 %2").arg(sums.sum).arg(expected.sum)));
        }
    }

    void othersHaveNoSums() {
        ValueSums sums;
        const Bytes bytes(8192, std::byte{3});
        for (const DType dtype :
             {DType::int8, DType::int64, DType::boolean, DType::complex64, DType::float4E2M1FNx2})
            addSums(dtype, bytes, sums);
        QCOMPARE(sums, ValueSums());
    }

    void zerosOfIntegers() {
        Random random(7);
        for (const DType dtype : {DType::int8, DType::uint16, DType::int32, DType::int64, DType::boolean}) {
            const size_t size = dtypeBytes(dtype);
            Bytes bytes = randomBytes(random, size * 9001);
            for (std::byte& b : bytes)
                b |= std::byte{1};
            for (size_t i = 0; i < 9001; i += 100)
                std::fill_n(bytes.begin() + static_cast<ptrdiff_t>(i * size), size, std::byte{0});
            ValueCounts counts;
            countValues(dtype, bytes, counts);
            QCOMPARE(counts.elements, uint64_t{9001});
            QCOMPARE(counts.zero, uint64_t{91});
            QCOMPARE(counts.nan + counts.inf, uint64_t{0});
        }
    }
};

QTEST_APPLESS_MAIN(TestValues)
#include "test_values.moc"
