// Work on some tiles of some tensors. Private to this room.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "execute/part_reading.h"
#include "execute/tile_work.h"

namespace shardscope {

// Makes the task of a span's tensor; as TileRun::prepare.
using PrepareSpan =
    std::function<Result<std::unique_ptr<TensorTask>>(const TileSpan& span, WorkerMemory& kept)>;
// Runs the tiles of the spans. Errors: usage for tiles that do not exist, and those of the tasks.
Status runSpans(const Resources& resources, std::span<const TileSpan> spans, const PrepareSpan& prepare);

}  // namespace shardscope
