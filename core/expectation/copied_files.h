// Files of one step with the same bytes, where each should hold other shards: one was copied over the other.
#pragma once

#include <vector>

#include "base/stop.h"
#include "formats/format.h"

namespace shardscope {

// Files whose paths differ in their numbers only, of which the catalog has other parts of a tensor in each,
// or other tensors, or which one rank wrote, or which are of tensor-parallel ranks. Experts may be copies of
// each other, and so may values that are all the same; they tell nothing. An error, which a conversion
// refuses, where two tensors tell it, or one matrix that is alone in this among three files or more; else a
// doubt. Files of which the reader has an error are left out.
// Reads the ends of files that have the same size, at most some thousands, and more of those that are alike.
// Errors: cancelled.
Result<std::vector<Note>> copiedFileNotes(const Reader& reader, const StopToken& stop);

}  // namespace shardscope
