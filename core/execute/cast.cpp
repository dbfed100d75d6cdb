#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "execute/executor.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace shardscope {
namespace {

// ------------------------------------------------------------------ one value at a time

enum class Special : uint8_t {
    ieee,    // all-ones exponent: infinity or NaN
    fn,      // no infinity; NaN is all ones
    fnuz,    // no infinity, no negative zero; NaN is the sign bit alone
    finite,  // neither
};

// A binary format with a sign bit, up to 16 bits wide here, or float32 / float64.
struct Shape {
    int exponentBits;
    int mantissaBits;
    int bias;
    Special special;
};

// float8_e8m0fnu has neither sign nor mantissa and goes its own way.
constexpr Shape shapeOf(DType dtype) {
    switch (dtype) {
        case DType::float16:
            return {5, 10, 15, Special::ieee};
        case DType::bfloat16:
            return {8, 7, 127, Special::ieee};
        case DType::float32:
            return {8, 23, 127, Special::ieee};
        case DType::float64:
            return {11, 52, 1023, Special::ieee};
        case DType::float8E4M3FN:
            return {4, 3, 7, Special::fn};
        case DType::float8E5M2:
            return {5, 2, 15, Special::ieee};
        case DType::float8E4M3FNUZ:
            return {4, 3, 8, Special::fnuz};
        case DType::float8E5M2FNUZ:
            return {5, 2, 16, Special::fnuz};
        case DType::float6E2M3:
            return {2, 3, 1, Special::finite};
        case DType::float6E3M2:
            return {3, 2, 3, Special::finite};
        default:
            return {0, 0, 0, Special::finite};
    }
}

double decodeE8M0(uint64_t bits) {
    return bits == 0xff ? std::bit_cast<double>(uint64_t{0x7ff8000000000000})
                        : std::ldexp(1.0, static_cast<int>(bits) - 127);
}

// Exact: every value of every format is a double. A NaN keeps the upper bits of its payload and becomes
// quiet.
double decode(Shape f, uint64_t bits) {
    const int width = 1 + f.exponentBits + f.mantissaBits;
    const uint64_t sign = bits >> (width - 1) & 1;
    const uint64_t exponent = bits >> f.mantissaBits & ((uint64_t{1} << f.exponentBits) - 1);
    const uint64_t mantissa = bits & ((uint64_t{1} << f.mantissaBits) - 1);
    const uint64_t top = (uint64_t{1} << f.exponentBits) - 1;
    const auto special = [&](uint64_t payload) {
        return std::bit_cast<double>(sign << 63 | uint64_t{0x7ff} << 52 | payload);
    };
    constexpr uint64_t kQuiet = uint64_t{1} << 51;
    if (f.special == Special::ieee && exponent == top) {
        return special(mantissa == 0 ? 0 : mantissa << (52 - f.mantissaBits) | kQuiet);
    }
    if (f.special == Special::fn && exponent == top && mantissa == (uint64_t{1} << f.mantissaBits) - 1)
        return special(kQuiet);
    if (f.special == Special::fnuz && sign == 1 && exponent == 0 && mantissa == 0) {
        return std::bit_cast<double>(uint64_t{0x7ff8} << 48);
    }
    const double magnitude = exponent == 0
                                 ? std::ldexp(static_cast<double>(mantissa), 1 - f.bias - f.mantissaBits)
                                 : std::ldexp(static_cast<double>(mantissa | uint64_t{1} << f.mantissaBits),
                                              static_cast<int>(exponent) - f.bias - f.mantissaBits);
    return sign ? -magnitude : magnitude;
}

// As torch does it: the nearest power of two of the magnitude, halves up.
uint64_t encodeE8M0(double value) {
    const auto bits = std::bit_cast<uint32_t>(static_cast<float>(value));
    const uint32_t exponent = bits >> 23 & 0xff;
    if (exponent == 0xff) return 0xff;
    const bool half = bits & 0x400000;
    const bool more = bits & 0x3fffff;
    return exponent + (half && (exponent > 0 || more) ? 1 : 0);
}

// To nearest, ties to even, in integers: no intermediate rounding.
uint64_t encode(Shape f, double value) {
    const uint64_t bits = std::bit_cast<uint64_t>(value);
    const int width = 1 + f.exponentBits + f.mantissaBits;
    const uint64_t sign = (bits >> 63) << (width - 1);
    const uint64_t exponentField = bits >> 52 & 0x7ff;
    const uint64_t fraction = bits & ((uint64_t{1} << 52) - 1);
    const uint64_t top = (uint64_t{1} << f.exponentBits) - 1;
    const uint64_t infinity = top << f.mantissaBits;
    const uint64_t allOnes = infinity | ((uint64_t{1} << f.mantissaBits) - 1);
    const uint64_t fnuzNan = uint64_t{1} << (width - 1);

    if (exponentField == 0x7ff && fraction != 0) {
        if (f.special == Special::fnuz) return fnuzNan;
        if (f.special == Special::fn || width == 8) return sign | allOnes;
        return sign | infinity | uint64_t{1} << (f.mantissaBits - 1) | fraction >> (52 - f.mantissaBits);
    }
    const auto overflow = [&]() -> uint64_t {
        switch (f.special) {
            case Special::ieee:
                return sign | infinity;
            case Special::fn:
                return sign | allOnes;
            case Special::fnuz:
                return fnuzNan;
            case Special::finite:
                break;
        }
        return sign | allOnes;
    };
    if (exponentField == 0x7ff) return overflow();

    uint64_t result = 0;
    if (exponentField != 0 || fraction != 0) {
        int exponent = exponentField == 0 ? -1022 : static_cast<int>(exponentField) - 1023;
        uint64_t mantissa = exponentField == 0 ? fraction : fraction | uint64_t{1} << 52;
        // A double's own subnormals only matter to a double.
        if (exponentField == 0 && f.exponentBits < 11) return f.special == Special::fnuz ? 0 : sign;
        const int biased = exponent + f.bias;
        int shift = 52 - f.mantissaBits + (biased < 1 ? 1 - biased : 0);
        if (shift > 60) shift = 60;
        if (shift > 0) {
            const uint64_t rest = mantissa & ((uint64_t{1} << shift) - 1);
            const uint64_t half = uint64_t{1} << (shift - 1);
            mantissa >>= shift;
            if (rest > half || (rest == half && (mantissa & 1))) ++mantissa;
        }
        // The carry of a rounded-up mantissa runs into the exponent, as it should.
        result = biased < 1 ? mantissa : (static_cast<uint64_t>(biased - 1) << f.mantissaBits) + mantissa;
        const uint64_t limit = f.special == Special::ieee ? infinity
                               : f.special == Special::fn ? allOnes
                                                          : allOnes + 1;
        if (result >= limit) return overflow();
    }
    if (result == 0 && f.special == Special::fnuz) return 0;
    return sign | result;
}

double decodeAs(DType dtype, uint64_t bits) {
    return dtype == DType::float8E8M0FNU ? decodeE8M0(bits) : decode(shapeOf(dtype), bits);
}

uint64_t encodeAs(DType dtype, double value) {
    return dtype == DType::float8E8M0FNU ? encodeE8M0(value) : encode(shapeOf(dtype), value);
}

template <class T>
T loadAt(const std::byte* from, size_t index) {
    T value;
    std::memcpy(&value, from + index * sizeof(T), sizeof(T));
    return value;
}

template <class T>
void storeAt(std::byte* to, size_t index, T value) {
    std::memcpy(to + index * sizeof(T), &value, sizeof(T));
}

void storeBits(std::byte* to, size_t index, unsigned bytes, uint64_t bits) {
    switch (bytes) {
        case 1:
            return storeAt(to, index, static_cast<uint8_t>(bits));
        case 2:
            return storeAt(to, index, static_cast<uint16_t>(bits));
        case 4:
            return storeAt(to, index, static_cast<uint32_t>(bits));
        default:
            return storeAt(to, index, bits);
    }
}

// ------------------------------------------------------------------ tables for narrow sources

// All values of a source of at most 16 bits, converted.
const std::vector<uint64_t>& tableFor(DType from, DType to) {
    struct Slot {
        std::once_flag once;
        std::vector<uint64_t> values;
    };
    static std::array<Slot, size_t{kDTypeCount} * kDTypeCount> slots;
    Slot& slot = slots[static_cast<size_t>(from) * kDTypeCount + static_cast<size_t>(to)];
    std::call_once(slot.once, [&] {
        slot.values.resize(size_t{1} << dtypeBits(from));
        for (size_t bits = 0; bits < slot.values.size(); ++bits)
            slot.values[bits] = encodeAs(to, decodeAs(from, bits));
    });
    return slot.values;
}

// Values of 6 bits, four in three bytes, the first in the lowest bits.
uint64_t sixBits(const std::byte* from, size_t index) {
    const size_t bit = index * 6;
    const auto low = static_cast<unsigned>(from[bit / 8]);
    const unsigned offset = bit % 8;
    const unsigned high = offset > 2 ? static_cast<unsigned>(from[bit / 8 + 1]) : 0;
    return (low | high << 8) >> offset & 0x3f;
}

// ------------------------------------------------------------------ fast ways; the compiler vectorises these
// loops

void bfloat16ToFloat32(const std::byte* from, std::byte* to, size_t count) {
    for (size_t i = 0; i < count; ++i) {
        uint32_t bits = static_cast<uint32_t>(loadAt<uint16_t>(from, i)) << 16;
        // Signalling NaNs become quiet, as everywhere.
        if ((bits & 0x7fffffff) > 0x7f800000) bits |= 0x400000;
        storeAt(to, i, bits);
    }
}

void float32ToBfloat16(const std::byte* from, std::byte* to, size_t count) {
    for (size_t i = 0; i < count; ++i) {
        const auto bits = loadAt<uint32_t>(from, i);
        const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
        const uint32_t nan = bits >> 16 | 0x40;
        storeAt(to, i, static_cast<uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? nan : rounded));
    }
}

void float64ToFloat32(const std::byte* from, std::byte* to, size_t count) {
    for (size_t i = 0; i < count; ++i)
        storeAt(to, i, static_cast<float>(loadAt<double>(from, i)));
}

void float32ToFloat64(const std::byte* from, std::byte* to, size_t count) {
    for (size_t i = 0; i < count; ++i)
        storeAt(to, i, static_cast<double>(loadAt<float>(from, i)));
}

#if defined(__x86_64__)
__attribute__((target("avx,f16c"))) void float16ToFloat32(const std::byte* from, std::byte* to,
                                                          size_t count) {
    size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i * 2));
        _mm256_storeu_ps(reinterpret_cast<float*>(to + i * 4), _mm256_cvtph_ps(half));
    }
    for (; i < count; ++i) {
        const __m128i half = _mm_cvtsi32_si128(loadAt<uint16_t>(from, i));
        storeAt(to, i, _mm_cvtss_f32(_mm_cvtph_ps(half)));
    }
}

__attribute__((target("avx,f16c"))) void float32ToFloat16(const std::byte* from, std::byte* to,
                                                          size_t count) {
    size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        const __m256 wide = _mm256_loadu_ps(reinterpret_cast<const float*>(from + i * 4));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i * 2),
                         _mm256_cvtps_ph(wide, _MM_FROUND_TO_NEAREST_INT));
    }
    for (; i < count; ++i) {
        const __m128i half = _mm_cvtps_ph(_mm_set_ss(loadAt<float>(from, i)), _MM_FROUND_TO_NEAREST_INT);
        storeAt(to, i, static_cast<uint16_t>(_mm_cvtsi128_si32(half)));
    }
}

bool hasF16c() {
    // Not every compiler knows "f16c" here. The system's part of the answer, saved registers, is in "avx".
    static const bool has = [] {
        unsigned a = 0, b = 0, c = 0, d = 0;
        return __builtin_cpu_supports("avx") && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) != 0;
    }();
    return has;
}
#endif

}  // namespace

bool castSupported(DType from, DType to) {
    const auto narrowBlock = [](DType d) { return d == DType::float4E2M1FNx2; };
    if (!dtypeIsFloat(from) || !dtypeIsFloat(to) || narrowBlock(from) || narrowBlock(to)) return false;
    // The 6-bit formats have no NaN to give; they are read, and copied as they are.
    return from == to || dtypeIsWholeBytes(to);
}

void castElements(DType fromType, const std::byte* from, DType toType, std::byte* to, size_t count) {
    if (fromType == toType) {
        std::memcpy(to, from, count * dtypeBits(fromType) / 8);
        return;
    }
    const auto is = [&](DType a, DType b) { return fromType == a && toType == b; };
    if (is(DType::bfloat16, DType::float32)) return bfloat16ToFloat32(from, to, count);
    if (is(DType::float32, DType::bfloat16)) return float32ToBfloat16(from, to, count);
    if (is(DType::float64, DType::float32)) return float64ToFloat32(from, to, count);
    if (is(DType::float32, DType::float64)) return float32ToFloat64(from, to, count);
#if defined(__x86_64__)
    if (hasF16c() && is(DType::float16, DType::float32)) return float16ToFloat32(from, to, count);
    if (hasF16c() && is(DType::float32, DType::float16)) return float32ToFloat16(from, to, count);
#endif
    const unsigned toBytes = dtypeBytes(toType);
    const unsigned fromBits = dtypeBits(fromType);
    if (fromBits <= 16) {
        const std::vector<uint64_t>& table = tableFor(fromType, toType);
        for (size_t i = 0; i < count; ++i) {
            const uint64_t bits = fromBits == 6   ? sixBits(from, i)
                                  : fromBits == 8 ? loadAt<uint8_t>(from, i)
                                                  : loadAt<uint16_t>(from, i);
            storeBits(to, i, toBytes, table[bits]);
        }
        return;
    }
    if (fromType == DType::float32 && toBytes == 1) {
        // The upper half with a sticky last bit has all that a rounding to so few bits can depend on.
        const std::vector<uint64_t>& table = tableFor(DType::bfloat16, toType);
        for (size_t i = 0; i < count; ++i) {
            const auto bits = loadAt<uint32_t>(from, i);
            storeAt(to, i, static_cast<uint8_t>(table[bits >> 16 | ((bits & 0xffff) != 0 ? 1 : 0)]));
        }
        return;
    }
    if (toType == DType::float8E8M0FNU) {
        for (size_t i = 0; i < count; ++i) {
            const double value = fromBits == 32 ? loadAt<float>(from, i) : loadAt<double>(from, i);
            storeAt(to, i, static_cast<uint8_t>(encodeE8M0(value)));
        }
        return;
    }
    const Shape shape = shapeOf(toType);
    for (size_t i = 0; i < count; ++i) {
        const double value = fromBits == 32 ? loadAt<float>(from, i) : loadAt<double>(from, i);
        storeBits(to, i, toBytes, encode(shape, value));
    }
}

}  // namespace shardscope
