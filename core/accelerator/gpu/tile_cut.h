// The cut of a tile, part by part, as the GPU is told. Private to this room.
#pragma once

#include <vector>

#include "accelerator/gpu/cut.h"
#include "execute/tile_compute.h"

namespace shardscope {

struct PartCut {
    struct Strip {
        size_t index;
        size_t from, to, bytes;  // in the GPU's memory for the part, in the strip's own
    };
    gpu::Cut cut{};
    std::vector<Strip> strips;  // those that the part has something of
};

// Whether the GPU can cut the tile: whole units of what a thread takes, and not too many strips.
bool cutFits(const TileTask& task);
PartCut partCut(const TileTask& task, int64_t first, int64_t elements);

}  // namespace shardscope
