// One tensor as shapes on a plane: two of its dimensions are drawn, the others are fixed to an index or
// looked through. Made off the GUI thread for tensors of many chunks.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/stop.h"
#include "engine/engine.h"
#include "plan/placement.h"
#include "survey/facts.h"

namespace shardscope {

struct BoxView {
    int down = -1, across = -1;  // dimensions drawn from top to bottom and from left to right; -1 = none
    Dims index;  // by dimension: what is looked at of those that are not drawn; -1 = all of it
    bool operator==(const BoxView&) const = default;
};
// The last two dimensions, all of the others.
BoxView defaultView(DimSpan shape);

struct BoxShape {
    enum class Kind : uint8_t { chunk, overlap, gap, ghost };
    Kind kind = Kind::chunk;
    Health health = Health::ok;
    bool replicas = false;                             // its chunks are copies of the same box
    int64_t left = 0, top = 0, right = 1, bottom = 1;  // elements
    uint32_t rank = kNone;                             // of the first chunk; of a ghost its target rank
    uint32_t first = 0, count = 0;                     // chunks that overlap here: BoxScene::members
};

struct BoxScene {
    std::shared_ptr<const Checkpoint> checkpoint;
    std::shared_ptr<const Facts> facts;  // may be null
    TensorId tensor = kNone;
    BoxView view;
    int64_t width = 1, height = 1;  // elements along the drawn dimensions
    std::vector<BoxShape> shapes;   // in the order they are painted: chunks, overlaps, gaps
    std::vector<ChunkId> members;
    uint32_t emptyChunks = 0, hiddenChunks = 0;  // without elements; outside of the fixed indices
    size_t shapeOf(ChunkId chunk) const;         // shapes.size() when it is not drawn
};

// Null when stopped.
std::shared_ptr<const BoxScene> makeBoxScene(std::shared_ptr<const Checkpoint> checkpoint,
                                             std::shared_ptr<const Facts> facts, TensorId tensor,
                                             const BoxView& view, const StopToken& stop = {});

// Where a target sharding would cut the tensor, as ghosts for the same view.
std::vector<BoxShape> ghostShapes(const std::vector<PlacedBox>& boxes, DimSpan shape, const BoxView& view);

}  // namespace shardscope
