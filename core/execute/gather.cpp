#include "execute/gather.h"

#include <algorithm>
#include <array>

namespace shardscope {
namespace {

template <size_t kBytes>
void copyFixed(std::byte* dst, ptrdiff_t dstStride, const std::byte* src, ptrdiff_t srcStride, int64_t rows) {
    for (int64_t i = 0; i < rows; ++i)
        std::memcpy(dst + i * dstStride, src + i * srcStride, kBytes);
}

// 8 to 64 bytes without a call: whole words and a last one that overlaps.
template <size_t kWord>
void copyShort(std::byte* dst, ptrdiff_t dstStride, const std::byte* src, ptrdiff_t srcStride, size_t bytes,
               int64_t rows) {
    for (int64_t i = 0; i < rows; ++i) {
        std::byte* to = dst + i * dstStride;
        const std::byte* from = src + i * srcStride;
        for (size_t at = 0; at + kWord < bytes; at += kWord)
            std::memcpy(to + at, from + at, kWord);
        std::memcpy(to + bytes - kWord, from + bytes - kWord, kWord);
    }
}

template <size_t kBytes>
void copyPlane(std::byte* dst, const int64_t (&dstStride)[2], const std::byte* src,
               const int64_t (&srcStride)[2], int64_t rows, int64_t columns) {
    constexpr int64_t kBlock = 32;
    constexpr auto kSize = static_cast<int64_t>(kBytes);
    for (int64_t r0 = 0; r0 < rows; r0 += kBlock) {
        const int64_t r1 = std::min(rows, r0 + kBlock);
        for (int64_t c0 = 0; c0 < columns; c0 += kBlock) {
            const int64_t c1 = std::min(columns, c0 + kBlock);
            for (int64_t r = r0; r < r1; ++r) {
                std::byte* to = dst + r * dstStride[0] * kSize;
                const std::byte* from = src + r * srcStride[0] * kSize;
                for (int64_t c = c0; c < c1; ++c) {
                    std::memcpy(to + c * dstStride[1] * kSize, from + c * srcStride[1] * kSize, kBytes);
                }
            }
        }
    }
}

}  // namespace

void copyRows(std::byte* dst, ptrdiff_t dstStride, const std::byte* src, ptrdiff_t srcStride, size_t bytes,
              int64_t rows) {
    switch (bytes) {
        case 1:
            return copyFixed<1>(dst, dstStride, src, srcStride, rows);
        case 2:
            return copyFixed<2>(dst, dstStride, src, srcStride, rows);
        case 4:
            return copyFixed<4>(dst, dstStride, src, srcStride, rows);
        case 8:
            return copyFixed<8>(dst, dstStride, src, srcStride, rows);
        case 16:
            return copyFixed<16>(dst, dstStride, src, srcStride, rows);
        case 32:
            return copyFixed<32>(dst, dstStride, src, srcStride, rows);
        case 64:
            return copyFixed<64>(dst, dstStride, src, srcStride, rows);
        default:
            break;
    }
    if (bytes > 16 && bytes <= 128) return copyShort<16>(dst, dstStride, src, srcStride, bytes, rows);
    if (bytes > 8 && bytes <= 16) return copyShort<8>(dst, dstStride, src, srcStride, bytes, rows);
    for (int64_t i = 0; i < rows; ++i)
        std::memcpy(dst + i * dstStride, src + i * srcStride, bytes);
}

void copyStrided(std::byte* dst, DimSpan dstStrides, const std::byte* src, DimSpan srcStrides,
                 DimSpan lengths, size_t elementBytes) {
    struct Dim {
        int64_t length, dst, src;
    };
    std::array<Dim, kMaxRank> dims{};
    size_t count = 0;
    for (size_t i = 0; i < lengths.size(); ++i) {
        if (lengths[i] == 0) return;
        if (lengths[i] == 1) continue;
        // Neighboring dimensions that both sides run through as one are one.
        if (count > 0 && dims[count - 1].dst == dstStrides[i] * lengths[i] &&
            dims[count - 1].src == srcStrides[i] * lengths[i]) {
            dims[count - 1] = {dims[count - 1].length * lengths[i], dstStrides[i], srcStrides[i]};
        } else {
            dims[count++] = {lengths[i], dstStrides[i], srcStrides[i]};
        }
    }
    const std::span<Dim> all(dims.data(), count);
    // The plane: the fastest dimension of the destination and the fastest of the source.
    std::stable_sort(all.begin(), all.end(), [](const Dim& a, const Dim& b) { return a.dst > b.dst; });
    Dim column{1, 0, 0}, row{1, 0, 0};
    if (count > 0) {
        column = all.back();
        --count;
    }
    if (count > 0) {
        size_t best = 0;
        for (size_t i = 1; i < count; ++i) {
            if (all[i].src <= all[best].src) best = i;
        }
        row = all[best];
        std::move(dims.begin() + static_cast<ptrdiff_t>(best) + 1,
                  dims.begin() + static_cast<ptrdiff_t>(count), dims.begin() + static_cast<ptrdiff_t>(best));
        --count;
    }
    const int64_t dstPlane[2] = {row.dst, column.dst};
    const int64_t srcPlane[2] = {row.src, column.src};
    const auto size = static_cast<int64_t>(elementBytes);
    std::array<int64_t, kMaxRank> index{};
    int64_t dstAt = 0, srcAt = 0;
    for (;;) {
        std::byte* to = dst + dstAt * size;
        const std::byte* from = src + srcAt * size;
        if (column.dst == 1 && column.src == 1) {
            copyRows(to, row.dst * size, from, row.src * size,
                     static_cast<size_t>(column.length) * elementBytes, row.length);
        } else {
            switch (elementBytes) {
                case 1:
                    copyPlane<1>(to, dstPlane, from, srcPlane, row.length, column.length);
                    break;
                case 2:
                    copyPlane<2>(to, dstPlane, from, srcPlane, row.length, column.length);
                    break;
                case 4:
                    copyPlane<4>(to, dstPlane, from, srcPlane, row.length, column.length);
                    break;
                case 8:
                    copyPlane<8>(to, dstPlane, from, srcPlane, row.length, column.length);
                    break;
                default:
                    copyPlane<16>(to, dstPlane, from, srcPlane, row.length, column.length);
                    break;
            }
        }
        size_t d = count;
        for (;;) {
            if (d == 0) return;
            --d;
            dstAt += dims[d].dst;
            srcAt += dims[d].src;
            if (++index[d] < dims[d].length) break;
            dstAt -= dims[d].dst * dims[d].length;
            srcAt -= dims[d].src * dims[d].length;
            index[d] = 0;
        }
    }
}

}  // namespace shardscope
