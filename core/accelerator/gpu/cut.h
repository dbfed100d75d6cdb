// How a GPU cuts a tile: what tile_kernels.cuh is told, and who tells it. Includes nothing, as that does.
#pragma once

namespace shardscope::gpu {

using u32 = unsigned int;
using u64 = unsigned long long;

// Strips of columns, each to be stored on its own. All numbers are in elements, and multiples of what a
// thread takes at a time.
constexpr u32 kMostStrips = 64;
struct Cut {
    u32 columns, strip, last;  // of the matrix, of each strip but the last, of the last
    u32 strips;
    u32 begin;  // column of the tile's first element
    u32 unused;
    u64 base[kMostStrips];  // where a strip's first element of the tile's first row would be
    constexpr u64 place(u32 index) const {
        const u32 at = begin + index, row = at / columns, column = at % columns, s = column / strip;
        const u32 width = s + 1 == strips ? last : strip;
        return base[s] + u64{row} * width + (column - s * strip);
    }
};

}  // namespace shardscope::gpu
