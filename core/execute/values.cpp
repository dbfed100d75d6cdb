#include "execute/values.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <fmt/format.h>

#include "base/units.h"
#include "execute/unaligned.h"

namespace shardscope {
namespace {

struct RawCounts {
    uint64_t special = 0;  // all exponent bits set: NaN or infinity
    uint64_t zero = 0;
};

// Counts in lanes as wide as the elements, so that the compiler needs no widening; a block is short enough
// for 8-bit lanes.
template <class T, T kMagnitude, T kExponent>
[[gnu::always_inline]] inline RawCounts countBlocks(const std::byte* bytes, size_t count) {
    RawCounts total;
    constexpr size_t kBlock = sizeof(T) == 1 ? 128 : 2048;
    size_t i = 0;
    for (; i + kBlock <= count; i += kBlock) {
        T special = 0;
        T zero = 0;
        for (size_t k = 0; k < kBlock; ++k) {
            const auto value = loadAt<T>(bytes, i + k);
            if constexpr (kExponent != 0)
                special = static_cast<T>(special + ((value & kExponent) == kExponent ? 1 : 0));
            zero = static_cast<T>(zero + ((value & kMagnitude) == 0 ? 1 : 0));
        }
        total.special += special;
        total.zero += zero;
    }
    for (; i < count; ++i) {
        const auto value = loadAt<T>(bytes, i);
        if constexpr (kExponent != 0) total.special += (value & kExponent) == kExponent;
        total.zero += (value & kMagnitude) == 0;
    }
    return total;
}

// Bytes that are first only asked whether there is anything to count. Weights hardly ever hold a zero, a NaN
// or an infinity, and the question costs a third of the counting.
constexpr size_t kGlance = 4096;

// True when none of kGlance bytes' elements is a zero or has all exponent bits set: the smallest and the
// largest of them, with the sign shifted out, are in between. kWidth = bytes of a vector register.
template <class T, T kExponent, size_t kWidth>
[[gnu::always_inline]] inline bool nothingToCount(const std::byte* bytes) {
    constexpr size_t kUnroll = 4;
    typedef T Vector __attribute__((vector_size(kWidth)));
    constexpr T kLimit = static_cast<T>(kExponent << 1);
    Vector least[kUnroll], most[kUnroll];
    for (size_t k = 0; k < kUnroll; ++k) {
        least[k] = Vector{} + static_cast<T>(~T{0});
        most[k] = Vector{};
    }
    for (size_t at = 0; at < kGlance; at += kWidth * kUnroll) {
        for (size_t k = 0; k < kUnroll; ++k) {
            Vector value;
            std::memcpy(&value, bytes + at + k * kWidth, kWidth);
            value += value;
            least[k] = value < least[k] ? value : least[k];
            most[k] = value > most[k] ? value : most[k];
        }
    }
    for (size_t k = 1; k < kUnroll; ++k) {
        least[0] = least[k] < least[0] ? least[k] : least[0];
        most[0] = most[k] > most[0] ? most[k] : most[0];
    }
    // The rest in the narrowest registers, where every compiler knows how to compare.
    typedef T Narrow __attribute__((vector_size(16)));
    Narrow low[kWidth / 16], high[kWidth / 16];
    std::memcpy(low, &least[0], kWidth);
    std::memcpy(high, &most[0], kWidth);
    for (size_t k = 1; k < kWidth / 16; ++k) {
        low[0] = low[k] < low[0] ? low[k] : low[0];
        high[0] = high[k] > high[0] ? high[k] : high[0];
    }
    const auto found = (low[0] == Narrow{}) | (high[0] >= Narrow{} + kLimit);
    uint64_t halves[2];
    std::memcpy(halves, &found, sizeof halves);
    return (halves[0] | halves[1]) == 0;
}

template <class T, T kMagnitude, T kExponent, size_t kWidth>
[[gnu::always_inline]] inline RawCounts countGlancing(const std::byte* bytes, size_t count) {
    // Only where processors have a minimum for the width, and where there is something rare to look for.
    if constexpr (kExponent == 0 || sizeof(T) == 8 || kMagnitude == static_cast<T>(~T{0})) {
        return countBlocks<T, kMagnitude, kExponent>(bytes, count);
    } else {
        constexpr size_t kStep = kGlance / sizeof(T);
        RawCounts total;
        const auto add = [&total](RawCounts part) {
            total.special += part.special;
            total.zero += part.zero;
        };
        size_t i = 0;
        for (; i + kStep <= count; i += kStep) {
            const std::byte* block = bytes + i * sizeof(T);
            if (!nothingToCount<T, kExponent, kWidth>(block)) {
                add(countBlocks<T, kMagnitude, kExponent>(block, kStep));
            }
        }
        add(countBlocks<T, kMagnitude, kExponent>(bytes + i * sizeof(T), count - i));
        return total;
    }
}

#if defined(__x86_64__)
template <class T, T kMagnitude, T kExponent>
__attribute__((target("avx2"))) RawCounts countAvx2(const std::byte* bytes, size_t count) {
    return countGlancing<T, kMagnitude, kExponent, 32>(bytes, count);
}

template <class T, T kMagnitude, T kExponent>
__attribute__((target("avx512f,avx512bw"))) RawCounts countAvx512(const std::byte* bytes, size_t count) {
    return countGlancing<T, kMagnitude, kExponent, 64>(bytes, count);
}
#endif

template <class T, T kMagnitude, T kExponent>
RawCounts countFast(const std::byte* bytes, size_t count) {
#if defined(__x86_64__)
    static const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
    if (avx512) return countAvx512<T, kMagnitude, kExponent>(bytes, count);
    static const bool avx2 = __builtin_cpu_supports("avx2");
    if (avx2) return countAvx2<T, kMagnitude, kExponent>(bytes, count);
#endif
    return countGlancing<T, kMagnitude, kExponent, 16>(bytes, count);
}

// Formats with infinity: NaN and infinity are told apart only when something special was seen at all.
template <class T, T kMagnitude, T kExponent>
void countIeee(std::span<const std::byte> bytes, ValueCounts& counts) {
    const size_t count = bytes.size() / sizeof(T);
    const RawCounts raw = countFast<T, kMagnitude, kExponent>(bytes.data(), count);
    counts.zero += raw.zero;
    counts.elements += count;
    if (raw.special == 0) return;
    uint64_t infinite = 0;
    for (size_t i = 0; i < count; ++i) {
        infinite += (loadAt<T>(bytes.data(), i) & kMagnitude) == kExponent;
    }
    counts.inf += infinite;
    counts.nan += raw.special - infinite;
}

// A complex element counts once: NaN when either part is, else infinite when either part is, zero when both
// are.
template <class T, T kMagnitude, T kExponent>
void countComplex(std::span<const std::byte> bytes, ValueCounts& counts) {
    const size_t count = bytes.size() / (2 * sizeof(T));
    for (size_t i = 0; i < count; ++i) {
        T parts[2];
        std::memcpy(parts, bytes.data() + i * sizeof parts, sizeof parts);
        const T a = parts[0] & kMagnitude, b = parts[1] & kMagnitude;
        const bool nan = a > kExponent || b > kExponent;
        counts.nan += nan;
        counts.inf += !nan && (a == kExponent || b == kExponent);
        counts.zero += a == 0 && b == 0;
    }
    counts.elements += count;
}

template <class T>
void countInteger(std::span<const std::byte> bytes, ValueCounts& counts) {
    const size_t count = bytes.size() / sizeof(T);
    counts.zero += countFast<T, static_cast<T>(~T{0}), T{0}>(bytes.data(), count).zero;
    counts.elements += count;
}

template <class T, class Change>
void changeEach(std::span<std::byte> bytes, size_t first, size_t step, Change change) {
    const size_t count = bytes.size() / sizeof(T);
    for (size_t i = first; i < count; i += step) {
        storeAt<T>(bytes.data(), i, change(loadAt<T>(bytes.data(), i)));
    }
}

template <class Act>
void withWidth(unsigned bytes, Act act) {
    switch (bytes) {
        case 1:
            return act(uint8_t{});
        case 2:
            return act(uint16_t{});
        case 4:
            return act(uint32_t{});
        case 8:
            return act(uint64_t{});
        default:
            return;
    }
}

uint16_t swapped(uint16_t v) {
    return __builtin_bswap16(v);
}
uint32_t swapped(uint32_t v) {
    return __builtin_bswap32(v);
}
uint64_t swapped(uint64_t v) {
    return __builtin_bswap64(v);
}
uint8_t swapped(uint8_t v) {
    return v;
}

}  // namespace

void countValues(DType dtype, std::span<const std::byte> bytes, ValueCounts& counts) {
    switch (dtype) {
        case DType::float16:
            return countIeee<uint16_t, 0x7fff, 0x7c00>(bytes, counts);
        case DType::bfloat16:
            return countIeee<uint16_t, 0x7fff, 0x7f80>(bytes, counts);
        case DType::float32:
            return countIeee<uint32_t, 0x7fffffff, 0x7f800000>(bytes, counts);
        case DType::float64:
            return countIeee<uint64_t, 0x7fffffffffffffff, 0x7ff0000000000000>(bytes, counts);
        case DType::float8E5M2:
            return countIeee<uint8_t, 0x7f, 0x7c>(bytes, counts);
        case DType::complex32:
            return countComplex<uint16_t, 0x7fff, 0x7c00>(bytes, counts);
        case DType::bcomplex32:
            return countComplex<uint16_t, 0x7fff, 0x7f80>(bytes, counts);
        case DType::complex64:
            return countComplex<uint32_t, 0x7fffffff, 0x7f800000>(bytes, counts);
        case DType::complex128:
            return countComplex<uint64_t, 0x7fffffffffffffff, 0x7ff0000000000000>(bytes, counts);
        case DType::float8E4M3FN: {
            const RawCounts raw = countFast<uint8_t, 0x7f, 0x7f>(bytes.data(), bytes.size());
            counts.nan += raw.special;
            counts.zero += raw.zero;
            counts.elements += bytes.size();
            return;
        }
        case DType::float8E4M3FNUZ:
        case DType::float8E5M2FNUZ: {
            // The one NaN is where a negative zero would be.
            const uint64_t both = countFast<uint8_t, 0x7f, 0>(bytes.data(), bytes.size()).zero;
            const uint64_t zero = countFast<uint8_t, 0xff, 0>(bytes.data(), bytes.size()).zero;
            counts.nan += both - zero;
            counts.zero += zero;
            counts.elements += bytes.size();
            return;
        }
        case DType::float8E8M0FNU:
            // The smallest value is 2^-127: there is no zero.
            counts.nan += countFast<uint8_t, 0xff, 0xff>(bytes.data(), bytes.size()).special;
            counts.elements += bytes.size();
            return;
        case DType::float4E2M1FNx2:
            counts.zero += countFast<uint8_t, 0x77, 0>(bytes.data(), bytes.size()).zero;
            counts.elements += bytes.size();
            return;
        case DType::float6E2M3:
        case DType::float6E3M2:
            counts.elements += bytes.size() * 8 / 6;
            return;
        default:
            break;
    }
    switch (dtypeBytes(dtype)) {
        case 1:
            return countInteger<uint8_t>(bytes, counts);
        case 2:
            return countInteger<uint16_t>(bytes, counts);
        case 4:
            return countInteger<uint32_t>(bytes, counts);
        default:
            return countInteger<uint64_t>(bytes, counts);
    }
}

std::string lostPagesText(const ZeroPages& pages) {
    return fmt::format("{} of 4,096 bytes from byte {} of the file", counted(pages.count, "page"),
                       countText(pages.first));
}

ZeroPages zeroPages(DType dtype, std::span<const std::byte> bytes, const BytesAt& at) {
    constexpr uint64_t kPage = 4096;
    ZeroPages found;
    if (!dtypeIsFloat(dtype) || !dtypeIsWholeBytes(dtype)) return found;
    const size_t size = dtypeBytes(dtype), end = bytes.size() / size * size;
    const auto isZero = [&](size_t from, size_t count) {
        return bytes[from] == std::byte{} && std::memcmp(&bytes[from], &bytes[from] + 1, count - 1) == 0;
    };
    const auto splitsRow = [&](size_t byte) { return at.row > 0 && (at.intoRow + byte) % at.row != 0; };
    uint64_t zeros = 0;  // elements in runs that pages explain
    for (size_t page = (kPage - at.offset % kPage) % kPage; page + kPage <= end; page += kPage) {
        uint64_t glance = 0;
        std::memcpy(&glance, &bytes[page + kPage / 2], sizeof glance);
        if (glance != 0 || !isZero(page, kPage)) continue;
        size_t last = page + kPage;
        while (last + kPage <= end && isZero(last, kPage))
            last += kPage;
        // The run of zero elements. Those at its ends may be in two pages.
        size_t from = (page + size - 1) / size * size, to = last / size * size;
        while (from >= size && isZero(from - size, size))
            from -= size;
        while (to + size <= end && isZero(to, size))
            to += size;
        const auto isAt = [&](size_t byte, size_t edge) {
            return byte + size > edge && byte < edge + size && splitsRow(byte);
        };
        const bool begins = isAt(from, page), ends = isAt(to, last);
        const bool inside = from > 0 && to < end;
        if ((begins && ends && inside) || (begins && from > 0 && to == end && at.moreBehind) ||
            (ends && to < end && from == 0 && at.more)) {
            if (found.count == 0) found.first = at.offset + page;
            found.count += (last - page) / kPage;
            zeros += (to - from) / size;
        }
        page = last - kPage;
    }
    if (found.count == 0) return found;
    // Where zeros are many, some end with pages.
    ValueCounts counts;
    countValues(dtype, bytes.first(end), counts);
    constexpr uint64_t kFew = 16;
    return (counts.zero - zeros) * kFew > end / size - zeros ? ZeroPages{} : found;
}

void applyTransform(DType dtype, bool swap, bool conjugate, bool negate, std::span<std::byte> bytes) {
    const unsigned unit = dtypeSwapUnit(dtype);
    const bool isComplex = dtypeIsComplex(dtype);
    if (swap && unit > 1) {
        withWidth(unit, [&](auto width) {
            using T = decltype(width);
            changeEach<T>(bytes, 0, 1, [](T v) { return swapped(v); });
        });
    }
    if (conjugate && isComplex) {
        withWidth(unit, [&](auto width) {
            using T = decltype(width);
            changeEach<T>(bytes, 1, 2, [](T v) { return static_cast<T>(v ^ T{1} << (8 * sizeof(T) - 1)); });
        });
    }
    if (negate) {
        const bool flipsSign = isComplex || dtypeIsFloat(dtype);
        withWidth(unit, [&](auto width) {
            using T = decltype(width);
            if (flipsSign) {
                changeEach<T>(bytes, 0, 1,
                              [](T v) { return static_cast<T>(v ^ T{1} << (8 * sizeof(T) - 1)); });
            } else {
                changeEach<T>(bytes, 0, 1, [](T v) { return static_cast<T>(T{0} - v); });
            }
        });
    }
}

std::optional<FillPattern> fillPattern(DType dtype, FillGaps fill) {
    FillPattern pattern;
    pattern.size = dtypeBytes(dtype);
    if (fill == FillGaps::zero) return pattern;
    uint64_t bits = 0;
    switch (dtype) {
        case DType::float16:
        case DType::complex32:
            bits = 0x7e00;
            break;
        case DType::bfloat16:
        case DType::bcomplex32:
            bits = 0x7fc0;
            break;
        case DType::float32:
        case DType::complex64:
            bits = 0x7fc00000;
            break;
        case DType::float64:
        case DType::complex128:
            bits = 0x7ff8000000000000;
            break;
        case DType::float8E4M3FN:
        case DType::float8E5M2:
            bits = 0x7f;
            break;
        case DType::float8E4M3FNUZ:
        case DType::float8E5M2FNUZ:
            bits = 0x80;
            break;
        case DType::float8E8M0FNU:
            bits = 0xff;
            break;
        default:
            return std::nullopt;
    }
    // A complex number is NaN + 0j, as torch.full makes it.
    std::memcpy(pattern.bytes, &bits, std::min<size_t>(sizeof bits, dtypeSwapUnit(dtype)));
    return pattern;
}

void fillWith(const FillPattern& pattern, std::span<std::byte> bytes) {
    if (std::all_of(pattern.bytes, pattern.bytes + pattern.size,
                    [](std::byte b) { return b == std::byte{0}; })) {
        std::memset(bytes.data(), 0, bytes.size());
        return;
    }
    for (size_t i = 0; i + pattern.size <= bytes.size(); i += pattern.size) {
        std::memcpy(bytes.data() + i, pattern.bytes, pattern.size);
    }
}

}  // namespace shardscope
