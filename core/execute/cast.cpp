// Casts (executor.h): any pair of dtypes by float_bits.h, tables for narrow sources, and loops that the
// compiler vectorizes for the usual pairs.
#include <array>
#include <bit>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "execute/executor.h"
#include "execute/float_bits.h"
#include "execute/unaligned.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace shardscope {
namespace {

// ------------------------------------------------------------------ one value at a time

FloatShape shapeOf(DType dtype) {
    switch (dtype) {
        case DType::float16:
            return kFloat16;
        case DType::bfloat16:
            return kBFloat16;
        case DType::float32:
            return kFloat32;
        case DType::float64:
            return kFloat64;
        case DType::float8E4M3FN:
            return kFloat8E4M3FN;
        case DType::float8E5M2:
            return kFloat8E5M2;
        case DType::float8E4M3FNUZ:
            return kFloat8E4M3FNUZ;
        case DType::float8E5M2FNUZ:
            return kFloat8E5M2FNUZ;
        case DType::float6E2M3:
            return kFloat6E2M3;
        case DType::float6E3M2:
            return kFloat6E3M2;
        default:
            return {0, 0, 0, Special::finite};
    }
}

uint64_t encodeE8M0(uint64_t value) {
    return narrowE8M0(std::bit_cast<uint32_t>(static_cast<float>(std::bit_cast<double>(value))));
}

// Values on their way are the bits of a double.
uint64_t decodeAs(DType dtype, uint64_t bits) {
    return dtype == DType::float8E8M0FNU ? widenE8M0<AsFloat64>(static_cast<unsigned>(bits))
                                         : widenFloat<AsFloat64>(shapeOf(dtype), bits);
}

uint64_t encodeAs(DType dtype, uint64_t value) {
    return dtype == DType::float8E8M0FNU ? encodeE8M0(value) : narrowFloat<AsFloat64>(shapeOf(dtype), value);
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

// ------------------------------------------------------------------ fast ways; the compiler vectorizes these
// loops

void bfloat16ToFloat32(const std::byte* from, std::byte* to, size_t count) {
    for (size_t i = 0; i < count; ++i) {
        storeAt(to, i, floatFromBfloat16(loadAt<uint16_t>(from, i)));
    }
}

void float32ToBfloat16(const std::byte* from, std::byte* to, size_t count) {
    for (size_t i = 0; i < count; ++i) {
        storeAt(to, i, static_cast<uint16_t>(bfloat16FromFloat(loadAt<uint32_t>(from, i))));
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

// Toward zero, with the last bit set where that is not exact.
void float64ToOdd(const std::byte* from, uint32_t* to, size_t count) {
    for (size_t i = 0; i < count; ++i) {
        const auto exact = loadAt<double>(from, i);
        const auto nearest = static_cast<float>(exact);
        const auto back = static_cast<double>(nearest);
        const uint32_t away = std::abs(back) > std::abs(exact) ? 1 : 0;
        to[i] = (std::bit_cast<uint32_t>(nearest) - away) | (back != exact ? 1 : 0);
    }
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
    if (fromType == DType::float64 && toBytes <= 2 && toType != DType::float8E8M0FNU) {
        // A float that is odd where it is not exact rounds further to what the double itself would.
        std::array<uint32_t, 1024> odd;
        for (size_t at = 0; at < count; at += odd.size()) {
            const size_t n = std::min(odd.size(), count - at);
            float64ToOdd(from + at * sizeof(double), odd.data(), n);
            castElements(DType::float32, reinterpret_cast<const std::byte*>(odd.data()), toType,
                         to + at * toBytes, n);
        }
        return;
    }
    const FloatShape shape = shapeOf(toType);
    const bool scale = toType == DType::float8E8M0FNU;
    for (size_t i = 0; i < count; ++i) {
        const auto value = std::bit_cast<uint64_t>(fromBits == 32 ? double{loadAt<float>(from, i)}
                                                                  : loadAt<double>(from, i));
        storeBits(to, i, toBytes, scale ? encodeE8M0(value) : narrowFloat<AsFloat64>(shape, value));
    }
}

}  // namespace shardscope
