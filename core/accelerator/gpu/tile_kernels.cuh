// What a GPU does with a tile: casts, counts NaN, infinities and zeros, takes the digests of its cells.
// CUDA C++ that NVRTC compiles at run time (gpu_driver.h); tests compile it for the processor too, with
// threadIdx and its like of their own, and compare it bit for bit with core/execute and with xxHash. So it
// includes only what knows no library.
#pragma once

#include "accelerator/gpu/cut.h"
#include "execute/float_bits.h"

namespace shardscope::gpu {

using u8 = unsigned char;
using u16 = unsigned short;

// Aligned on a GPU, where the compiler then takes all of it in one access.
template <class T>
T load(const u8* from) {
#ifdef __CUDACC_RTC__
    return *reinterpret_cast<const T*>(from);
#else
    if (reinterpret_cast<u64>(from) % alignof(T) != 0) __builtin_trap();  // as a GPU does
    T value;
    __builtin_memcpy(&value, from, sizeof(T));
    return value;
#endif
}

template <class T>
void store(u8* to, const T& value) {
#ifdef __CUDACC_RTC__
    *reinterpret_cast<T*>(to) = value;
#else
    if (reinterpret_cast<u64>(to) % alignof(T) != 0) __builtin_trap();
    __builtin_memcpy(to, &value, sizeof(T));
#endif
}

// ------------------------------------------------------------------ element types

// Found in a tile, by one thread.
struct Tally {
    u32 nan = 0, inf = 0, zero = 0;
};

template <class T, FloatShape kShape>
struct Real {
    using Stored = T;
    static constexpr bool kWide = sizeof(T) == 8;
    static constexpr T kSign = static_cast<T>(T{1} << (sizeof(T) * 8 - 1));
    static constexpr T kInfinity = static_cast<T>(((T{1} << kShape.exponentBits) - 1) << kShape.mantissaBits);

    template <class As>
    static typename As::Bits widen(Stored bits) {
        return widenFloat<As>(kShape, bits);
    }
    template <class As>
    static Stored narrow(typename As::Bits bits) {
        return static_cast<Stored>(narrowFloat<As>(kShape, bits));
    }
    static void count(Stored bits, Tally& tally) {
        const T magnitude = static_cast<T>(bits & ~kSign);
        if constexpr (kShape.special == Special::ieee) {
            tally.nan += magnitude > kInfinity;
            tally.inf += magnitude == kInfinity;
        } else if constexpr (kShape.special == Special::fn) {
            tally.nan += magnitude == static_cast<T>(~kSign);
        } else {
            tally.nan += bits == kSign;
        }
        tally.zero += kShape.special == Special::fnuz ? bits == 0 : magnitude == 0;
    }
};
using Float16 = Real<u16, kFloat16>;
using BFloat16 = Real<u16, kBFloat16>;
using Float32 = Real<u32, kFloat32>;
using Float64 = Real<u64, kFloat64>;
using Float8E4M3FN = Real<u8, kFloat8E4M3FN>;
using Float8E5M2 = Real<u8, kFloat8E5M2>;
using Float8E4M3FNUZ = Real<u8, kFloat8E4M3FNUZ>;
using Float8E5M2FNUZ = Real<u8, kFloat8E5M2FNUZ>;

struct Float8E8M0 {
    using Stored = u8;
    static constexpr bool kWide = false;
    template <class As>
    static typename As::Bits widen(Stored bits) {
        return widenE8M0<As>(bits);
    }
    template <class As>
    static Stored narrow(typename As::Bits bits) {
        if constexpr (sizeof(bits) == 8) {
            return static_cast<u8>(narrowE8M0(static_cast<u32>(narrowFloat<As>(kFloat32, bits))));
        } else {
            return static_cast<u8>(narrowE8M0(bits));
        }
    }
    // The smallest value is 2^-127: there is no zero.
    static void count(Stored bits, Tally& tally) { tally.nan += bits == 0xff; }
};

// Four in three bytes, the first in the lowest bits; only read.
template <FloatShape kShape>
struct SixBits {
    static constexpr bool kWide = false;
    template <class As>
    static typename As::Bits widen(u32 bits) {
        return widenFloat<As>(kShape, bits);
    }
    static u32 at(const u8* from, u64 index) {
        const u64 bit = index * 6;
        const u32 offset = static_cast<u32>(bit % 8);
        const u32 low = from[bit / 8];
        const u32 high = offset > 2 ? from[bit / 8 + 1] : 0;
        return (low | high << 8) >> offset & 0x3f;
    }
};
using Float6E2M3 = SixBits<kFloat6E2M3>;
using Float6E3M2 = SixBits<kFloat6E3M2>;

// Types that are only copied and counted. One of the others counts itself.
template <class T, T kMagnitude = static_cast<T>(~T{0})>
struct Whole {
    using Stored = T;
    static void count(Stored bits, Tally& tally) { tally.zero += (bits & kMagnitude) == 0; }
};
using Whole8 = Whole<u8>;
using Whole16 = Whole<u16>;
using Whole32 = Whole<u32>;
using Whole64 = Whole<u64>;
using Float4x2 = Whole<u8, 0x77>;

// Counts once: NaN when either part is, else infinite when either part is, zero when both are.
template <class Part>
struct Complex {
    struct alignas(2 * sizeof(typename Part::Stored)) Stored {
        typename Part::Stored re, im;
    };
    static void count(const Stored& value, Tally& tally) {
        Tally parts;
        Part::count(value.re, parts);
        Part::count(value.im, parts);
        tally.nan += parts.nan > 0;
        tally.inf += parts.nan == 0 && parts.inf > 0;
        tally.zero += parts.zero == 2;
    }
};
using Complex32 = Complex<Float16>;
using BComplex32 = Complex<BFloat16>;
using Complex64 = Complex<Float32>;
using Complex128 = Complex<Float64>;

// ------------------------------------------------------------------ casts

template <class A, class B>
constexpr bool kSame = false;
template <class A>
constexpr bool kSame<A, A> = true;

template <class From, class To, class Bits>
typename To::Stored castOne(Bits bits) {
    if constexpr (kSame<From, To>) {
        return bits;
    } else if constexpr (kSame<From, BFloat16> && kSame<To, Float32>) {
        return floatFromBfloat16(bits);
    } else if constexpr (kSame<From, Float32> && kSame<To, BFloat16>) {
        return static_cast<u16>(bfloat16FromFloat(bits));
    } else if constexpr (From::kWide || To::kWide) {
        return To::template narrow<AsFloat64>(From::template widen<AsFloat64>(bits));
    } else {
        return To::template narrow<AsFloat32>(From::template widen<AsFloat32>(bits));
    }
}

// What one thread takes at a time: 16 bytes of the wider side.
template <class T, int kCount>
struct alignas(sizeof(T) * kCount) Pack {
    T each[kCount];
};

// Casts `elements` elements to `to`, and to `strips` as they are cut; either may be null. Adds to counts[3]:
// NaN, infinite, zero; null = not counted. All begins at a multiple of 16 bytes.
template <class From, class To>
void castTile(const u8* __restrict__ from, u8* __restrict__ to, u8* __restrict__ strips, u64 elements,
              const Cut& cut, u64* __restrict__ counts) {
    __shared__ u64 found[3];
    if (threadIdx.x < 3) found[threadIdx.x] = 0;
    __syncthreads();

    Tally tally;
    const u64 threads = u64{gridDim.x} * blockDim.x;
    const u64 first = u64{blockIdx.x} * blockDim.x + threadIdx.x;
    using Out = typename To::Stored;
    u64 done = 0;
    if constexpr (requires { typename From::Stored; }) {
        using In = typename From::Stored;
        constexpr int kCount = 16 / (sizeof(In) > sizeof(Out) ? sizeof(In) : sizeof(Out));
        for (u64 i = first * kCount; i + kCount <= elements; i += threads * kCount) {
            const auto in = load<Pack<In, kCount>>(from + i * sizeof(In));
            Pack<Out, kCount> out;
            for (int k = 0; k < kCount; ++k) {
                out.each[k] = castOne<From, To>(in.each[k]);
                if (counts) To::count(out.each[k], tally);
            }
            if (to) store(to + i * sizeof(Out), out);
            if (strips) store(strips + cut.place(static_cast<u32>(i)) * sizeof(Out), out);
        }
        done = elements / kCount * kCount;
    }
    for (u64 i = done + first; i < elements; i += threads) {
        Out out;
        if constexpr (requires { typename From::Stored; }) {
            out = castOne<From, To>(load<typename From::Stored>(from + i * sizeof(typename From::Stored)));
        } else {
            out = castOne<From, To>(From::at(from, i));
        }
        if (counts) To::count(out, tally);
        if (to) store(to + i * sizeof(Out), out);
        if (strips) store(strips + cut.place(static_cast<u32>(i)) * sizeof(Out), out);
    }
    if (!counts) return;
    if (tally.nan) atomicAdd(&found[0], u64{tally.nan});
    if (tally.inf) atomicAdd(&found[1], u64{tally.inf});
    if (tally.zero) atomicAdd(&found[2], u64{tally.zero});
    __syncthreads();
    if (threadIdx.x < 3 && found[threadIdx.x]) atomicAdd(&counts[threadIdx.x], found[threadIdx.x]);
}

// ------------------------------------------------------------------ XXH3, 128 bits, seed 0

// The library's own secret, in words.
constexpr u64 kSecret[24] = {0xbe4ba423396cfeb8, 0x1cad21f72c81017c, 0xdb979083e96dd4de, 0x1f67b3b7a4a44072,
                             0x78e5c0cc4ee679cb, 0x2172ffcc7dd05a82, 0x8e2443f7744608b8, 0x4c263a81e69035e0,
                             0xcb00c391bb52283c, 0xa32e531b8b65d088, 0x4ef90da297486471, 0xd8acdea946ef1938,
                             0x3f349ce33f76faa8, 0x1d4f0bc7c7bbdcf9, 0x3159b4cd4be0518a, 0x647378d9c97e9fc8,
                             0xc3ebd33483acc5ea, 0xeb6313faffa081c5, 0x49daf0b751dd0d17, 0x9e68d429265516d3,
                             0xfca1477d58be162b, 0xce31d07ad1b8f88f, 0x280416958f3acb45, 0x7e404bbbcafbd7af};

constexpr u64 kPrime32_1 = 0x9E3779B1, kPrime32_2 = 0x85EBCA77, kPrime32_3 = 0xC2B2AE3D;
constexpr u64 kPrime64_1 = 0x9E3779B185EBCA87, kPrime64_2 = 0xC2B2AE3D27D4EB4F,
              kPrime64_3 = 0x165667B19E3779F9, kPrime64_4 = 0x85EBCA77C2B2AE63,
              kPrime64_5 = 0x27D4EB2F165667C5;
constexpr u64 kStart[8] = {kPrime32_3, kPrime64_1, kPrime64_2, kPrime64_3,
                           kPrime64_4, kPrime32_2, kPrime64_5, kPrime32_1};

struct Digest {
    u64 low, high;
};

constexpr int kStripe = 64;           // bytes, of eight lanes
constexpr int kBlock = 16 * kStripe;  // after which the lanes are scrambled
constexpr u64 kShort = 240;           // longest cell that goes another way

// Eight bytes of the secret from any place.
inline u64 secret(u32 at) {
    const u32 word = at / 8, bits = at % 8 * 8;
    return bits == 0 ? kSecret[word] : kSecret[word] >> bits | kSecret[word + 1] << (64 - bits);
}

inline u64 bytesAt(const u8* from, int count) {
    u64 value = 0;
    for (int i = 0; i < count; ++i)
        value |= u64{from[i]} << (8 * i);
    return value;
}
inline u64 word(const u8* from) {
    return bytesAt(from, 8);
}

inline u64 swap(u64 v, int bytes) {
    u64 swapped = 0;
    for (int i = 0; i < bytes; ++i)
        swapped = swapped << 8 | (v >> (8 * i) & 0xff);
    return swapped;
}

inline Digest multiply(u64 a, u64 b) {
    const u64 low = (a & 0xffffffff) * (b & 0xffffffff), middle = (a >> 32) * (b & 0xffffffff),
              other = (a & 0xffffffff) * (b >> 32), high = (a >> 32) * (b >> 32);
    const u64 cross = (low >> 32) + (middle & 0xffffffff) + other;
    return {cross << 32 | (low & 0xffffffff), (middle >> 32) + (cross >> 32) + high};
}
inline u64 folded(u64 a, u64 b) {
    const Digest product = multiply(a, b);
    return product.low ^ product.high;
}

inline u64 avalanche(u64 h) {
    h = (h ^ h >> 37) * 0x165667919E3779F9;
    return h ^ h >> 32;
}
inline u64 avalanche64(u64 h) {
    h = (h ^ h >> 33) * kPrime64_2;
    h = (h ^ h >> 29) * kPrime64_3;
    return h ^ h >> 32;
}

inline u64 mix16(const u8* from, u32 at) {
    return folded(word(from) ^ secret(at), word(from + 8) ^ secret(at + 8));
}
inline void mix32(Digest& acc, const u8* first, const u8* second, u32 at) {
    acc.low = (acc.low + mix16(first, at)) ^ (word(second) + word(second + 8));
    acc.high = (acc.high + mix16(second, at + 16)) ^ (word(first) + word(first + 8));
}

// Of at most kShort bytes.
inline Digest digestShort(const u8* from, u64 length) {
    if (length == 0) return {avalanche64(secret(64) ^ secret(72)), avalanche64(secret(80) ^ secret(88))};
    if (length <= 3) {
        const u64 low = u64{from[0]} << 16 | u64{from[length >> 1]} << 24 | from[length - 1] | length << 8;
        const u64 turned = swap(low, 4);
        const u64 high = (turned << 13 | turned >> 19) & 0xffffffff;
        return {avalanche64(low ^ ((secret(0) ^ secret(4)) & 0xffffffff)),
                avalanche64(high ^ ((secret(8) ^ secret(12)) & 0xffffffff))};
    }
    if (length <= 8) {
        const u64 keyed =
            (bytesAt(from, 4) + (bytesAt(from + length - 4, 4) << 32)) ^ secret(16) ^ secret(24);
        Digest product = multiply(keyed, kPrime64_1 + (length << 2));
        product.high += product.low << 1;
        product.low ^= product.high >> 3;
        product.low = (product.low ^ product.low >> 35) * 0x9FB21C651E98DF25;
        product.low ^= product.low >> 28;
        product.high = avalanche(product.high);
        return product;
    }
    if (length <= 16) {
        const u64 low = word(from);
        u64 high = word(from + length - 8);
        Digest first = multiply(low ^ high ^ secret(32) ^ secret(40), kPrime64_1);
        first.low += (length - 1) << 54;
        high ^= secret(48) ^ secret(56);
        first.high += high + (high & 0xffffffff) * (kPrime32_2 - 1);
        first.low ^= swap(first.high, 8);
        const Digest second = multiply(first.low, kPrime64_2);
        return {avalanche(second.low), avalanche(second.high + first.high * kPrime64_2)};
    }
    Digest acc{length * kPrime64_1, 0};
    if (length <= 128) {
        for (u32 i = static_cast<u32>((length - 1) / 32) + 1; i-- > 0;)
            mix32(acc, from + 16 * i, from + length - 16 * (i + 1), 32 * i);
    } else {
        for (u32 i = 0; i < 4; ++i)
            mix32(acc, from + 32 * i, from + 32 * i + 16, 32 * i);
        acc = {avalanche(acc.low), avalanche(acc.high)};
        for (u32 i = 4; i < length / 32; ++i)
            mix32(acc, from + 32 * i, from + 32 * i + 16, 3 + 32 * (i - 4));
        mix32(acc, from + length - 16, from + length - 32, 136 - 17 - 16);
    }
    const u64 high = acc.low * kPrime64_1 + acc.high * kPrime64_4 + length * kPrime64_2;
    return {avalanche(acc.low + acc.high), 0 - avalanche(high)};
}

// What a stripe adds to a lane: of its own word and of its neighbour's.
inline u64 laneOf(u64 own, u64 neighbour, u64 key) {
    const u64 keyed = own ^ key;
    return neighbour + (keyed & 0xffffffff) * (keyed >> 32);
}

// What `stripes` stripes of one block add to a lane. This does not depend on what the lane held before, so
// all blocks of a cell can be summed up at the same time.
inline u64 blockSum(const u8* block, u32 stripes, u32 lane) {
    // Only cells of six-bit values may begin anywhere.
    const bool aligned = reinterpret_cast<u64>(block) % 8 == 0;
    u64 sum = 0;
    for (u32 s = 0; s < stripes; ++s) {
        const u8 *own = block + s * kStripe + 8 * lane, *other = block + s * kStripe + 8 * (lane ^ 1);
        sum += aligned ? laneOf(load<u64>(own), load<u64>(other), kSecret[s + lane])
                       : laneOf(word(own), word(other), kSecret[s + lane]);
    }
    return sum;
}

inline u64 scramble(u64 acc, u32 lane) {
    return (acc ^ acc >> 47 ^ kSecret[16 + lane]) * kPrime32_1;
}

inline u64 merged(const u64* lanes, u32 at, u64 start) {
    for (u32 i = 0; i < 4; ++i)
        start += folded(lanes[2 * i] ^ secret(at + 16 * i), lanes[2 * i + 1] ^ secret(at + 16 * i + 8));
    return avalanche(start);
}

// The first warp puts what the others have summed up in a chain, one block after the other, while they are at
// the next blocks.
constexpr u32 kChain = 32;
constexpr u32 kMostBlocks = 32;  // that are summed up at a time, by eight threads each

// One cell for each block of threads; blockDim.x = kChain + 8 * (blocks at a time, at most kMostBlocks).
// Cells of `cellBytes` bytes lie one after the other, the last one is what is left.
inline void digestCells(const u8* __restrict__ bytes, u64 total, u64 cellBytes,
                        Digest* __restrict__ digests) {
    __shared__ u64 sums[2][kMostBlocks * 8];
    __shared__ u64 lanes[8];
    const u64 begin = u64{blockIdx.x} * cellBytes;
    const u8* cell = bytes + begin;
    const u64 length = total - begin < cellBytes ? total - begin : cellBytes;
    if (length <= kShort) {
        if (threadIdx.x == 0) digests[blockIdx.x] = digestShort(cell, length);
        return;
    }
    const u32 blocks = static_cast<u32>((length - 1) / kBlock);
    const u32 atATime = (blockDim.x - kChain) / 8;
    const bool chains = threadIdx.x < 8, summing = threadIdx.x >= kChain;
    const u32 mine = summing ? (threadIdx.x - kChain) / 8 : 0, lane = threadIdx.x % 8;
    u64 acc = kStart[lane];
    // Round r is summed up while round r - 1 is chained.
    for (u32 r = 0; r * atATime < blocks + atATime; ++r) {
        if (summing && r * atATime + mine < blocks) {
            const u8* block = cell + u64{r * atATime + mine} * kBlock;
            sums[r % 2][mine * 8 + lane] = blockSum(block, 16, lane);
        }
        if (chains && r > 0) {
            const u32 from = (r - 1) * atATime;
            const u32 count = blocks - from < atATime ? blocks - from : atATime;
            for (u32 b = 0; b < count; ++b)
                acc = scramble(acc + sums[(r - 1) % 2][b * 8 + lane], lane);
        }
        __syncthreads();
    }
    if (chains) {
        const u8* rest = cell + u64{blocks} * kBlock;
        acc += blockSum(rest, static_cast<u32>((length - 1 - u64{blocks} * kBlock) / kStripe), lane);
        // The last stripe ends with the cell, wherever that is.
        const u8* last = cell + length - kStripe;
        acc +=
            laneOf(word(last + 8 * lane), word(last + 8 * (lane ^ 1)), secret(192 - kStripe - 7 + 8 * lane));
        lanes[lane] = acc;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        digests[blockIdx.x] = {merged(lanes, 11, length * kPrime64_1),
                               merged(lanes, 192 - kStripe - 11, ~(length * kPrime64_2))};
    }
}

}  // namespace shardscope::gpu
