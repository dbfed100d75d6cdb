// Catalogs that lie nowhere, as large as a test wants them.
#pragma once

#include <memory>

#include "model/catalog.h"

namespace shardscope::ui {

struct SyntheticOptions {
    uint32_t pp = 4, dp = 2, tp = 4;   // rank = (pp * dp + d) * tp + t
    uint32_t layers = 16;              // spread over the stages
    uint32_t tensorsPerLayer = 8;      // weights [4096, 4096] and norms [4096] in turn
    bool optimizer = false;            // two more tensors for each weight
    uint32_t missingFileRank = kNone;  // that rank's file is not there
    uint32_t gapLayer = kNone;         // a weight of that layer lacks a shard
};
// A model cut over pp (layers), tp (dim 1 of weights) and dp (dim 0).
std::shared_ptr<const Catalog> syntheticModel(const SyntheticOptions& options = {});
// About `tensors` x `chunks` chunks over `chunks` ranks, each tensor cut along dim 0.
std::shared_ptr<const Catalog> syntheticGrid(uint32_t tensors, uint32_t chunks);

// What the window is measured with: 9,216 tensors over 1,000 ranks in 10 stages, 1,003,520 chunks.
std::shared_ptr<const Catalog> syntheticLarge();

}  // namespace shardscope::ui
