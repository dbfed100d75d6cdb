#include <QTest>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "execute/executor.h"

using namespace shardscope;

namespace {

constexpr DType kFloats[] = {DType::float16,        DType::bfloat16,      DType::float32,
                             DType::float64,        DType::float8E4M3FN,  DType::float8E5M2,
                             DType::float8E4M3FNUZ, DType::float8E5M2FNUZ};

// A second opinion: all finite values of an 8- or 16-bit format, by the definition of its bits.
struct Definition {
    int exponentBits, mantissaBits, bias;
    bool infinity;
};
Definition definitionOf(DType d) {
    switch (d) {
        case DType::float16:
            return {5, 10, 15, true};
        case DType::bfloat16:
            return {8, 7, 127, true};
        case DType::float8E4M3FN:
            return {4, 3, 7, false};
        case DType::float8E5M2:
            return {5, 2, 15, true};
        case DType::float8E4M3FNUZ:
            return {4, 3, 8, false};
        default:
            return {5, 2, 16, false};
    }
}

// NaN where the bits are no number.
double valueOf(DType d, unsigned bits) {
    const Definition f = definitionOf(d);
    const unsigned width = 1 + f.exponentBits + f.mantissaBits;
    const bool negative = bits >> (width - 1);
    const unsigned magnitude = bits & ((1U << (width - 1)) - 1);
    const int exponent = static_cast<int>(magnitude >> f.mantissaBits);
    const double mantissa = magnitude & ((1U << f.mantissaBits) - 1);
    const bool fnuz = d == DType::float8E4M3FNUZ || d == DType::float8E5M2FNUZ;
    if (fnuz && bits == 0x80) return NAN;
    if (d == DType::float8E4M3FN && magnitude == 0x7f) return NAN;
    if (f.infinity && exponent == (1 << f.exponentBits) - 1)
        return mantissa == 0 ? (negative ? -INFINITY : INFINITY) : NAN;
    const double unit = std::exp2(-f.mantissaBits);
    const double value = exponent == 0 ? std::exp2(1 - f.bias) * mantissa * unit
                                       : std::exp2(exponent - f.bias) * (1 + mantissa * unit);
    return negative ? -value : value;
}

// Nearest value by search, ties to the even bit pattern, overflow as the next power of two would round.
double nearest(DType d, double x) {
    if (std::isnan(x)) return NAN;
    const Definition f = definitionOf(d);
    const unsigned half = 1U << (f.exponentBits + f.mantissaBits);
    unsigned top = half - 1;
    while (!std::isfinite(valueOf(d, top)))
        --top;
    const double a = std::abs(x);
    // Binary search for the largest value that is not above a.
    unsigned lo = 0, hi = top;
    while (lo < hi) {
        const unsigned middle = (lo + hi + 1) / 2;
        if (valueOf(d, middle) <= a)
            lo = middle;
        else
            hi = middle - 1;
    }
    const double below = valueOf(d, lo);
    double result;
    if (lo == top) {
        const double step = below - valueOf(d, top - 1);
        const double limit = below + step / 2;
        const bool over = a > limit || (a == limit && top % 2 == 1);
        result = !over ? below : f.infinity ? INFINITY : NAN;
    } else {
        const double above = valueOf(d, lo + 1);
        const double toBelow = a - below, toAbove = above - a;
        result = toBelow < toAbove || (toBelow == toAbove && lo % 2 == 0) ? below : above;
    }
    return std::signbit(x) ? -result : result;
}

double asDouble(DType d, const std::byte* bytes) {
    if (d == DType::float64) {
        double v;
        std::memcpy(&v, bytes, 8);
        return v;
    }
    if (d == DType::float32) {
        float v;
        std::memcpy(&v, bytes, 4);
        return v;
    }
    uint16_t bits = 0;
    std::memcpy(&bits, bytes, dtypeBytes(d));
    return valueOf(d, bits);
}

bool same(double a, double b) {
    return (std::isnan(a) && std::isnan(b)) || a == b;
}

std::vector<float> interesting() {
    std::vector<float> values = {0.0f,     -0.0f,    INFINITY, -INFINITY, NAN,      448.0f, 464.0f, 464.001f,
                                 65504.0f, 65519.9f, 65520.0f, 57344.0f,  61440.0f, 1e-45f, 240.0f, 248.0f};
    std::mt19937 random(1);
    for (int i = 0; i < 200'000; ++i)
        values.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
    // Ties and their neighbors for every narrow format.
    for (DType d : kFloats) {
        if (dtypeBits(d) > 16) continue;
        for (unsigned bits = 0; bits + 1 < 1U << (dtypeBits(d) - 1);
             bits += d == DType::float16 || d == DType::bfloat16 ? 7 : 1) {
            const double middle = (valueOf(d, bits) + valueOf(d, bits + 1)) / 2;
            const auto v = static_cast<float>(middle);
            for (float x : {v, std::nextafter(v, INFINITY), std::nextafter(v, -INFINITY)}) {
                values.push_back(x);
                values.push_back(-x);
            }
        }
    }
    return values;
}

}  // namespace

class TestCast : public QObject {
    Q_OBJECT

  private slots:
    void supported() {
        for (DType a : kFloats) {
            for (DType b : kFloats)
                QVERIFY(castSupported(a, b));
            QVERIFY(!castSupported(a, DType::int32));
            QVERIFY(!castSupported(DType::int64, a));
            QVERIFY(!castSupported(a, DType::complex64));
            QVERIFY(!castSupported(a, DType::float4E2M1FNx2));
        }
        QVERIFY(castSupported(DType::float6E2M3, DType::float32));
        QVERIFY(!castSupported(DType::float32, DType::float6E2M3));
    }

    void roundsToNearestEven() {
        const std::vector<float> values = interesting();
        const auto* from = reinterpret_cast<const std::byte*>(values.data());
        for (DType to : kFloats) {
            if (dtypeBits(to) > 16) continue;
            std::vector<std::byte> out(values.size() * dtypeBytes(to));
            castElements(DType::float32, from, to, out.data(), values.size());
            // A double that rounds the same way through its own path.
            std::vector<double> wide(values.begin(), values.end());
            std::vector<std::byte> outWide(out.size());
            castElements(DType::float64, reinterpret_cast<const std::byte*>(wide.data()), to, outWide.data(),
                         wide.size());
            for (size_t i = 0; i < values.size(); ++i) {
                const double want = nearest(to, values[i]);
                const double got = asDouble(to, out.data() + i * dtypeBytes(to));
                if (!same(got, want)) {
                    QFAIL(qPrintable(QString("%1 -> %2: got %3, want %4")
                                         .arg(values[i], 0, 'g', 17)
                                         .arg(QString::fromUtf8(dtypeName(to).data()))
                                         .arg(got, 0, 'g', 17)
                                         .arg(want, 0, 'g', 17)));
                }
                QVERIFY(same(asDouble(to, outWide.data() + i * dtypeBytes(to)), want));
            }
        }
    }

    void doublesDoNotRoundTwice() {
        // Just above a tie of float16, closer than a float32 can tell.
        const double value = 1.0 + std::exp2(-11) + std::exp2(-40);
        uint16_t out = 0;
        castElements(DType::float64, reinterpret_cast<const std::byte*>(&value), DType::float16,
                     reinterpret_cast<std::byte*>(&out), 1);
        QCOMPARE(out, uint16_t{0x3c01});
    }

    void wideningIsExact() {
        for (DType from : kFloats) {
            if (dtypeBits(from) > 16) continue;
            const size_t count = size_t{1} << dtypeBits(from);
            std::vector<std::byte> in(count * dtypeBytes(from));
            for (size_t i = 0; i < count; ++i)
                std::memcpy(in.data() + i * dtypeBytes(from), &i, dtypeBytes(from));
            std::vector<float> narrow(count);
            std::vector<double> wide(count);
            castElements(from, in.data(), DType::float32, reinterpret_cast<std::byte*>(narrow.data()), count);
            castElements(from, in.data(), DType::float64, reinterpret_cast<std::byte*>(wide.data()), count);
            std::vector<std::byte> back(in.size());
            castElements(DType::float32, reinterpret_cast<const std::byte*>(narrow.data()), from, back.data(),
                         count);
            for (size_t i = 0; i < count; ++i) {
                const double want = valueOf(from, static_cast<unsigned>(i));
                QVERIFY(same(narrow[i], want) && same(wide[i], want));
                if (!std::isnan(want))
                    QVERIFY(std::memcmp(back.data() + i * dtypeBytes(from), in.data() + i * dtypeBytes(from),
                                        dtypeBytes(from)) == 0);
            }
        }
    }

    void everyPairOfNarrowTypes() {
        for (DType from : kFloats) {
            for (DType to : kFloats) {
                if (dtypeBits(from) > 16 || dtypeBits(to) > 16 || from == to) continue;
                const size_t count = size_t{1} << dtypeBits(from);
                std::vector<std::byte> in(count * dtypeBytes(from)), out(count * dtypeBytes(to));
                for (size_t i = 0; i < count; ++i)
                    std::memcpy(in.data() + i * dtypeBytes(from), &i, dtypeBytes(from));
                castElements(from, in.data(), to, out.data(), count);
                for (size_t i = 0; i < count; ++i) {
                    QVERIFY(same(asDouble(to, out.data() + i * dtypeBytes(to)),
                                 nearest(to, valueOf(from, static_cast<unsigned>(i)))));
                }
            }
        }
    }

    void powersOfTwo() {
        const float values[] = {1.0f, 0.5f, 1.49f, 1.5f, 3.0f, 0.0f, NAN, INFINITY, std::ldexp(1.0f, 127)};
        const uint8_t want[] = {127, 126, 127, 128, 129, 0, 255, 255, 254};
        uint8_t out[std::size(values)];
        castElements(DType::float32, reinterpret_cast<const std::byte*>(values), DType::float8E8M0FNU,
                     reinterpret_cast<std::byte*>(out), std::size(values));
        for (size_t i = 0; i < std::size(values); ++i)
            QCOMPARE(out[i], want[i]);
        float back[2];
        castElements(DType::float8E8M0FNU, reinterpret_cast<const std::byte*>(want), DType::float32,
                     reinterpret_cast<std::byte*>(back), 2);
        QCOMPARE(back[0], 1.0f);
        QCOMPARE(back[1], 0.5f);
    }

    void sixBits() {
        // 1.0, -1.0, the largest and the smallest value of E2M3: 001000, 101000, 011111, 000001.
        const unsigned bits[] = {0b001000, 0b101000, 0b011111, 0b000001};
        const unsigned packed = bits[0] | bits[1] << 6 | bits[2] << 12 | bits[3] << 18;
        const std::byte bytes[] = {std::byte(packed & 255), std::byte(packed >> 8 & 255),
                                   std::byte(packed >> 16 & 255)};
        float out[4];
        castElements(DType::float6E2M3, bytes, DType::float32, reinterpret_cast<std::byte*>(out), 4);
        QCOMPARE(out[0], 1.0f);
        QCOMPARE(out[1], -1.0f);
        QCOMPARE(out[2], 7.5f);
        QCOMPARE(out[3], 0.125f);
    }
};

QTEST_APPLESS_MAIN(TestCast)
#include "test_cast.moc"
