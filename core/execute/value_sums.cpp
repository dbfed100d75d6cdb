#include "execute/value_sums.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace shardscope {
namespace {

constexpr size_t kSumBlock = 4096;  // bytes that are summed in float32
constexpr size_t kLanes = 64;       // the same on every machine, so that sums are
// Squares of smaller sums lose digits to the smallest float32; the values are made larger first.
constexpr float kLeastSquares = 1e-25F;
constexpr int kScaleBits = 64;

struct BlockSums {
    float sum = 0, squares = 0;
    uint32_t largest = 0;  // bits of the greatest magnitude, as stored
};

// In one order for every width of registers.
[[gnu::always_inline]] inline float lanesTogether(const float* lanes) {
    float by16[16], by4[4];
    for (size_t i = 0; i < 16; ++i)
        by16[i] = (lanes[i] + lanes[i + 16]) + (lanes[i + 32] + lanes[i + 48]);
    for (size_t i = 0; i < 4; ++i)
        by4[i] = (by16[i] + by16[i + 4]) + (by16[i + 8] + by16[i + 12]);
    return (by4[0] + by4[1]) + (by4[2] + by4[3]);
}

// kWidth = bytes of a vector register. Values of 16 bits are summed two of a lane's 32 bits apart.
template <DType kType, bool kScaled, size_t kWidth>
[[gnu::always_inline]] inline BlockSums sumBlock(const std::byte* bytes) {
    constexpr bool kHalf = kType != DType::float32;
    constexpr size_t kVectors = kLanes * sizeof(float) / kWidth;
    typedef float Floats __attribute__((vector_size(kWidth)));
    typedef uint32_t Words __attribute__((vector_size(kWidth)));
    typedef uint16_t Shorts __attribute__((vector_size(kWidth)));
    // The exponent of float16 stands 112 too low once its bits are where those of float32 are.
    constexpr int kShift = (kScaled ? kScaleBits : 0) + (kType == DType::float16 ? 112 : 0);
    constexpr float kFactor =
        std::bit_cast<float>(static_cast<uint32_t>(kShift > 127 ? 0 : 127 + kShift) << 23);
    Floats sum[kVectors]{}, squares[kVectors]{};
    Words most[kVectors]{};
    Shorts mostHalf[kVectors]{};
    const auto add = [&](const Words& stored, size_t k) {
        Words bits = stored;
        if constexpr (kType == DType::float16) bits = (bits & 0x80000000U) | ((bits & 0x7fff0000U) >> 3);
        Floats value;
        std::memcpy(&value, &bits, kWidth);
        if constexpr (kShift != 0) value *= kFactor;
        sum[k] += value;
        squares[k] += value * value;
    };
    for (size_t at = 0; at < kSumBlock; at += kWidth * kVectors) {
        for (size_t k = 0; k < kVectors; ++k) {
            Words bits;
            std::memcpy(&bits, bytes + at + k * kWidth, kWidth);
            if constexpr (kHalf) {
                Shorts magnitude;
                std::memcpy(&magnitude, &bits, kWidth);
                magnitude &= 0x7fff;
                mostHalf[k] = magnitude > mostHalf[k] ? magnitude : mostHalf[k];
                add(bits << 16, k);
                add(bits & 0xffff0000U, k);
            } else {
                const Words magnitude = bits & 0x7fffffffU;
                most[k] = magnitude > most[k] ? magnitude : most[k];
                add(bits, k);
            }
        }
    }
    BlockSums found;
    float lanes[kLanes];
    std::memcpy(lanes, sum, sizeof lanes);
    found.sum = lanesTogether(lanes);
    std::memcpy(lanes, squares, sizeof lanes);
    found.squares = lanesTogether(lanes);
    const auto greatest = [&found](const auto& all, auto word) {
        decltype(word) words[sizeof all / sizeof word];
        std::memcpy(words, &all, sizeof all);
        for (const auto one : words)
            found.largest = std::max<uint32_t>(found.largest, one);
    };
    if constexpr (kHalf) {
        for (size_t k = 1; k < kVectors; ++k)
            mostHalf[0] = mostHalf[k] > mostHalf[0] ? mostHalf[k] : mostHalf[0];
        greatest(mostHalf[0], uint16_t{});
    } else {
        for (size_t k = 1; k < kVectors; ++k)
            most[0] = most[k] > most[0] ? most[k] : most[0];
        greatest(most[0], uint32_t{});
    }
    return found;
}

// By way of float64, value by value.
void sumSlowly(DType dtype, const std::byte* bytes, size_t count, ValueSums& sums) {
    constexpr size_t kValues = 512;
    double values[kValues];
    for (size_t i = 0; i < count; i += kValues) {
        const size_t n = std::min(kValues, count - i);
        castElements(dtype, bytes + i * dtypeBytes(dtype), DType::float64,
                     reinterpret_cast<std::byte*>(values), n);
        for (size_t k = 0; k < n; ++k) {
            if (!std::isfinite(values[k])) continue;
            ++sums.counted;
            sums.sum += values[k];
            sums.squares += values[k] * values[k];
            sums.largest = std::max(sums.largest, std::abs(values[k]));
        }
    }
}

template <DType kType, size_t kWidth>
[[gnu::always_inline]] inline void sumAll(std::span<const std::byte> bytes, ValueSums& sums) {
    constexpr uint32_t kInfinity = kType == DType::float32    ? 0x7f800000
                                   : kType == DType::bfloat16 ? 0x7f80
                                                              : 0x7c00;
    const size_t size = kType == DType::float32 ? 4 : 2;
    const bool tiny = kType != DType::float16;  // only those have values whose squares vanish
    uint32_t largest = 0;
    size_t at = 0;
    for (; at + kSumBlock <= bytes.size(); at += kSumBlock) {
        BlockSums block = sumBlock<kType, false, kWidth>(bytes.data() + at);
        double scale = 1;
        if (tiny && block.squares < kLeastSquares && block.largest < kInfinity && block.largest > 0) {
            block = sumBlock<kType, kType != DType::float16, kWidth>(bytes.data() + at);
            scale = std::ldexp(1.0, -kScaleBits);
        }
        const bool holds = block.largest < kInfinity && std::isfinite(block.sum) &&
                           std::isfinite(block.squares) &&
                           (block.squares >= kLeastSquares || block.largest == 0 || !tiny);
        if (!holds) {
            sumSlowly(kType, bytes.data() + at, kSumBlock / size, sums);
            continue;
        }
        sums.counted += kSumBlock / size;
        sums.sum += block.sum * scale;
        sums.squares += block.squares * scale * scale;
        largest = std::max(largest, block.largest);
    }
    double most = 0;
    castElements(kType, reinterpret_cast<const std::byte*>(&largest), DType::float64,
                 reinterpret_cast<std::byte*>(&most), 1);
    sums.largest = std::max(sums.largest, most);
    sumSlowly(kType, bytes.data() + at, (bytes.size() - at) / size, sums);
}

#if defined(__x86_64__)
template <DType kType>
__attribute__((target("avx2"))) void sumAvx2(std::span<const std::byte> bytes, ValueSums& sums) {
    sumAll<kType, 32>(bytes, sums);
}

template <DType kType>
__attribute__((target("avx512f,avx512bw"))) void sumAvx512(std::span<const std::byte> bytes,
                                                           ValueSums& sums) {
    sumAll<kType, 64>(bytes, sums);
}
#endif

template <DType kType>
void sumFast(std::span<const std::byte> bytes, ValueSums& sums) {
#if defined(__x86_64__)
    static const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
    if (avx512) return sumAvx512<kType>(bytes, sums);
    static const bool avx2 = __builtin_cpu_supports("avx2");
    if (avx2) return sumAvx2<kType>(bytes, sums);
#endif
    sumAll<kType, 16>(bytes, sums);
}

}  // namespace

void addSums(DType dtype, std::span<const std::byte> bytes, ValueSums& sums) {
    ValueSums here;
    if (dtype == DType::float32)
        sumFast<DType::float32>(bytes, here);
    else if (dtype == DType::bfloat16)
        sumFast<DType::bfloat16>(bytes, here);
    else if (dtype == DType::float16)
        sumFast<DType::float16>(bytes, here);
    else if (dtypeIsFloat(dtype) && dtypeIsWholeBytes(dtype) && castSupported(dtype, DType::float64))
        sumSlowly(dtype, bytes.data(), bytes.size() / dtypeBytes(dtype), here);
    sums.add(here);
}

}  // namespace shardscope
