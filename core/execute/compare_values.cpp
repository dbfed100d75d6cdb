#include "execute/compare_values.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "execute/executor.h"
#include "execute/unaligned.h"
#include "execute/values.h"

namespace shardscope {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Values that are looked at together: as doubles, both sides stay in the first cache. A multiple of four, so
// that elements of six bits fill whole bytes.
constexpr size_t kBlockValues = 1024;
// Sums that are kept side by side, whatever the width of the machine's registers: each value is added to the
// same one everywhere.
constexpr size_t kSums = 8;

struct Block {
    alignas(64) double a[kBlockValues], b[kBlockValues];
};

// ------------------------------------------------------------------ values as doubles

template <class T>
[[gnu::always_inline]] inline void widen(const std::byte* from, size_t count, double* to) {
    for (size_t i = 0; i < count; ++i)
        to[i] = static_cast<double>(loadAt<T>(from, i));
}

[[gnu::always_inline]] inline void widenBfloat16(const std::byte* from, size_t count, double* to) {
    for (size_t i = 0; i < count; ++i)
        to[i] =
            static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(loadAt<uint16_t>(from, i)) << 16));
}

void widenCast(DType dtype, const std::byte* from, size_t count, double* to) {
    castElements(dtype, from, DType::float64, reinterpret_cast<std::byte*>(to), count);
}

// The dtype of the numbers that an element consists of.
DType partOf(DType dtype) {
    switch (dtype) {
        case DType::complex32:
            return DType::float16;
        case DType::bcomplex32:
            return DType::bfloat16;
        case DType::complex64:
            return DType::float32;
        case DType::complex128:
            return DType::float64;
        default:
            return dtype;
    }
}

// `dtype` is one of partOf().
[[gnu::always_inline]] inline void widenAny(DType dtype, const std::byte* from, size_t count, double* to) {
    switch (dtype) {
        case DType::bfloat16:
            return widenBfloat16(from, count, to);
        case DType::float16: {
            alignas(64) float values[kBlockValues];
            castElements(dtype, from, DType::float32, reinterpret_cast<std::byte*>(values), count);
            return widen<float>(reinterpret_cast<const std::byte*>(values), count, to);
        }
        case DType::float32:
            return widen<float>(from, count, to);
        case DType::float64:
            return widen<double>(from, count, to);
        case DType::boolean:
            for (size_t i = 0; i < count; ++i)
                to[i] = loadAt<uint8_t>(from, i) != 0 ? 1 : 0;
            return;
        case DType::int8:
        case DType::qint8:
            return widen<int8_t>(from, count, to);
        case DType::int16:
            return widen<int16_t>(from, count, to);
        case DType::int32:
        case DType::qint32:
            return widen<int32_t>(from, count, to);
        case DType::int64:
            return widen<int64_t>(from, count, to);
        default:
            break;
    }
    if (dtypeIsFloat(dtype) && castSupported(dtype, DType::float64)) return widenCast(dtype, from, count, to);
    switch (dtypeBytes(dtype)) {
        case 1:
            return widen<uint8_t>(from, count, to);
        case 2:
            return widen<uint16_t>(from, count, to);
        case 4:
            return widen<uint32_t>(from, count, to);
        default:
            return widen<uint64_t>(from, count, to);
    }
}

// ------------------------------------------------------------------ bits

// Counts in lanes as wide as the elements; so few of them that 8 bits suffice.
template <class T>
[[gnu::always_inline]] inline uint64_t countDifferent(const std::byte* a, const std::byte* b, size_t count) {
    constexpr size_t kStep = 128;
    uint64_t total = 0;
    size_t i = 0;
    for (; i + kStep <= count; i += kStep) {
        T different = 0;
        for (size_t k = 0; k < kStep; ++k)
            different =
                static_cast<T>(different + (loadAt<T>(a, i + k) != loadAt<T>(b, i + k) ? T{1} : T{0}));
        total += different;
    }
    for (; i < count; ++i)
        total += loadAt<T>(a, i) != loadAt<T>(b, i);
    return total;
}

// Bits of a float in the order of its values, neighbors one apart and both zeros the same.
template <class T>
[[gnu::always_inline]] inline std::make_signed_t<T> ordered(T bits) {
    using Signed = std::make_signed_t<T>;
    constexpr T kMagnitude = static_cast<T>(static_cast<T>(~T{0}) >> 1);
    const auto sign = static_cast<T>(static_cast<Signed>(bits) >> (8 * sizeof(T) - 1));
    return static_cast<Signed>(static_cast<T>(static_cast<T>((bits & kMagnitude) ^ sign) - sign));
}

template <class T>
[[gnu::always_inline]] inline uint64_t mostUlp(const std::byte* a, const std::byte* b, size_t count) {
    T most = 0;
    for (size_t i = 0; i < count; ++i) {
        const auto x = ordered(loadAt<T>(a, i)), y = ordered(loadAt<T>(b, i));
        const auto high = static_cast<T>(x > y ? x : y), low = static_cast<T>(x > y ? y : x);
        const auto apart = static_cast<T>(high - low);
        most = apart > most ? apart : most;
    }
    return most;
}

// Of a float without a sign, whose bits are in order as they are.
uint64_t mostUlpUnsigned(const std::byte* a, const std::byte* b, size_t count) {
    int most = 0;
    for (size_t i = 0; i < count; ++i)
        most = std::max(most, std::abs(int{loadAt<uint8_t>(a, i)} - int{loadAt<uint8_t>(b, i)}));
    return static_cast<uint64_t>(most);
}

template <class Act>
[[gnu::always_inline]] inline uint64_t withBits(unsigned bytes, Act act) {
    switch (bytes) {
        case 1:
            return act(uint8_t{});
        case 2:
            return act(uint16_t{});
        case 4:
            return act(uint32_t{});
        default:
            return act(uint64_t{});
    }
}

// ------------------------------------------------------------------ values

// What a block adds, where all of its values are finite; else some sum is not.
template <size_t kWidth>
[[gnu::always_inline]] inline void addFinite(const Block& block, size_t count, ValueFigures& sum) {
    typedef double Vector __attribute__((vector_size(kWidth)));
    constexpr size_t kVectors = kSums * sizeof(double) / kWidth, kEach = kWidth / sizeof(double);
    Vector most[kVectors]{}, relative[kVectors]{}, product[kVectors]{}, squareA[kVectors]{},
        squareB[kVectors]{}, square[kVectors]{};
    for (size_t i = 0; i < count; i += kSums) {
        for (size_t k = 0; k < kVectors; ++k) {
            Vector a, b;
            std::memcpy(&a, block.a + i + k * kEach, kWidth);
            std::memcpy(&b, block.b + i + k * kEach, kWidth);
            const Vector difference = a - b, opposite = b - a;
            const Vector distance = difference > opposite ? difference : opposite;
            const Vector sizeA = a > -a ? a : -a, sizeB = b > -b ? b : -b;
            const Vector size = sizeA > sizeB ? sizeA : sizeB;
            const Vector part = distance / size;  // of two zeros: NaN, which is not larger than anything
            most[k] = distance > most[k] ? distance : most[k];
            relative[k] = part > relative[k] ? part : relative[k];
            product[k] += a * b;
            squareA[k] += a * a;
            squareB[k] += b * b;
            square[k] += difference * difference;
        }
    }
    for (size_t k = 0; k < kVectors; ++k) {
        for (size_t i = 0; i < kEach; ++i) {
            sum.maxAbs = std::max(sum.maxAbs, most[k][i]);
            sum.maxRelative = std::max(sum.maxRelative, relative[k][i]);
            sum.product += product[k][i];
            sum.squareA += squareA[k][i];
            sum.squareB += squareB[k][i];
            sum.squareDifference += square[k][i];
        }
    }
}

// The same of two equal blocks.
template <size_t kWidth>
[[gnu::always_inline]] inline void addEqual(const double* values, size_t count, ValueFigures& sum) {
    typedef double Vector __attribute__((vector_size(kWidth)));
    constexpr size_t kVectors = kSums * sizeof(double) / kWidth, kEach = kWidth / sizeof(double);
    Vector square[kVectors]{};
    for (size_t i = 0; i < count; i += kSums) {
        for (size_t k = 0; k < kVectors; ++k) {
            Vector a;
            std::memcpy(&a, values + i + k * kEach, kWidth);
            square[k] += a * a;
        }
    }
    double total = 0;
    for (size_t k = 0; k < kVectors; ++k)
        for (size_t i = 0; i < kEach; ++i)
            total += square[k][i];
    sum.squareA += total;
    sum.squareB += total;
    sum.product += total;
}

// Any values, one by one.
void addEach(const double* a, const double* b, size_t count, ValueFigures& sum) {
    for (size_t i = 0; i < count; ++i) {
        const double x = a[i], y = b[i];
        const bool finiteA = std::isfinite(x), finiteB = std::isfinite(y);
        sum.nonFinite |= !finiteA || !finiteB;
        if (finiteA && finiteB) sum.product += x * y;
        if (finiteA) sum.squareA += x * x;
        if (finiteB) sum.squareB += y * y;
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
        sum.squareDifference += distance * distance;
    }
}

// Zeros after the last value change no figure.
[[gnu::always_inline]] inline size_t padded(double* values, size_t count) {
    const size_t whole = (count + kSums - 1) / kSums * kSums;
    for (size_t i = count; i < whole; ++i)
        values[i] = 0;
    return whole;
}

[[gnu::always_inline]] inline void addBits(DType part, const std::byte* a, const std::byte* b, size_t count,
                                           ValueFigures& sum) {
    if (!dtypeIsFloat(part) || !dtypeIsWholeBytes(part)) return;
    const uint64_t ulp = part == DType::float8E8M0FNU
                             ? mostUlpUnsigned(a, b, count)
                             : withBits(
                                   dtypeBytes(part), [&](auto bits) __attribute__((always_inline)) {
                                       return mostUlp<decltype(bits)>(a, b, count);
                                   });
    sum.maxUlp = std::max(sum.maxUlp, ulp);
}

[[gnu::always_inline]] inline uint64_t differentIn(DType dtype, const Block& block, size_t values,
                                                   const std::byte* a, const std::byte* b) {
    if (!dtypeIsWholeBytes(dtype))  // as doubles they still have different bits
        return countDifferent<uint64_t>(reinterpret_cast<const std::byte*>(block.a),
                                        reinterpret_cast<const std::byte*>(block.b), values);
    const unsigned bytes = dtypeBytes(dtype);
    if (bytes <= 8)
        return withBits(
            bytes, [&](auto bits) __attribute__((always_inline)) {
                return countDifferent<decltype(bits)>(a, b, partOf(dtype) == dtype ? values : values / 2);
            });
    uint64_t different = 0;
    for (size_t i = 0; i < values / 2; ++i)
        different += std::memcmp(a + i * bytes, b + i * bytes, bytes) != 0;
    return different;
}

template <size_t kWidth>
[[gnu::always_inline]] inline void addBlocks(DType dtype, std::span<const std::byte> a,
                                             std::span<const std::byte> b, ValueFigures& sum) {
    const DType part = partOf(dtype);
    const size_t blockBytes = bytesOfElements(part, kBlockValues);
    Block block;
    for (size_t at = 0; at < a.size(); at += blockBytes) {
        const size_t bytes = std::min(blockBytes, a.size() - at);
        const std::byte *x = a.data() + at, *y = b.data() + at;
        const size_t values = bytes * 8 / dtypeBits(part);
        widenAny(part, x, values, block.a);
        ValueFigures found;
        if (std::memcmp(x, y, bytes) == 0) {
            addEqual<kWidth>(block.a, padded(block.a, values), found);
            if (!std::isfinite(found.squareA)) {
                found = {};
                addEach(block.a, block.a, values, found);
            }
        } else {
            widenAny(part, y, values, block.b);
            padded(block.b, values);
            addFinite<kWidth>(block, padded(block.a, values), found);
            if (!std::isfinite(found.squareA) || !std::isfinite(found.squareB)) {
                found = {};
                addEach(block.a, block.b, values, found);
            }
            addBits(part, x, y, values, found);
            found.different = differentIn(dtype, block, values, x, y);
        }
        found.elements = part == dtype ? values : values / 2;
        sum.add(found);
    }
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) void addAvx2(DType dtype, std::span<const std::byte> a,
                                             std::span<const std::byte> b, ValueFigures& sum) {
    addBlocks<32>(dtype, a, b, sum);
}
__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))) void addAvx512(DType dtype,
                                                                             std::span<const std::byte> a,
                                                                             std::span<const std::byte> b,
                                                                             ValueFigures& sum) {
    addBlocks<64>(dtype, a, b, sum);
}
#endif

}  // namespace

void ValueFigures::add(const ValueFigures& other) {
    elements += other.elements;
    different += other.different;
    maxAbs = std::max(maxAbs, other.maxAbs);
    maxRelative = std::max(maxRelative, other.maxRelative);
    maxUlp = std::max(maxUlp, other.maxUlp);
    product += other.product;
    squareA += other.squareA;
    squareB += other.squareB;
    squareDifference += other.squareDifference;
    nonFinite |= other.nonFinite;
}

double ValueFigures::l2() const {
    return std::sqrt(squareDifference);
}

double ValueFigures::relativeL2() const {
    if (squareDifference == 0) return 0;
    return squareA == 0 ? kInfinity : std::sqrt(squareDifference / squareA);
}

double ValueFigures::cosine() const {
    if (nonFinite) return std::numeric_limits<double>::quiet_NaN();
    const double cosine = product / (std::sqrt(squareA) * std::sqrt(squareB));  // 0/0 is NaN
    return std::isfinite(cosine) ? std::clamp(cosine, -1.0, 1.0) : cosine;
}

void addFigures(DType dtype, std::span<const std::byte> a, std::span<const std::byte> b, ValueFigures& sum) {
#if defined(__x86_64__)
    static const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (avx512) return addAvx512(dtype, a, b, sum);
    static const bool avx2 = __builtin_cpu_supports("avx2");
    if (avx2) return addAvx2(dtype, a, b, sum);
#endif
    addBlocks<16>(dtype, a, b, sum);
}

}  // namespace shardscope
