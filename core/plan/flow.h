// Who reads what from whom: bytes of tensor data by file of the source and rank of the target.
#pragma once

#include <vector>

#include "base/stop.h"
#include "plan/plan.h"

namespace shardscope {

// What a chunk holds of its tensor; a flat range is several boxes.
std::vector<Box> boxesOf(const ChunkInfo& chunk);

struct Flow {
    struct Row {
        FileId file = kNone;  // of the source
        uint32_t rank = 0;    // of the target; chunks without a rank count for rank 0
        uint64_t bytes = 0;   // as the source stores them, wrapping and compression aside
        uint64_t pieces = 0;  // parts of chunks that they come from
    };
    std::vector<Row> rows;  // by file, then by rank; only those that read something
    // False: where a recipe puts a tensor together of several, its ranks count with their shares of the
    // source's chunks.
    bool exact = true;
};

// Of chunks that hold the same elements the one counts that is read. Time and memory grow with the chunks and
// the pairs of them that have elements in common. Errors: cancelled.
Result<Flow> flowOf(const Catalog& source, const TargetSpec& spec, const StopToken& stop);

}  // namespace shardscope
