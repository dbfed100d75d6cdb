// A small reference for what an Extent means, apart from the executor: element by element.
#pragma once

#include <cstddef>
#include <vector>

#include "base/result.h"
#include "formats/format.h"

namespace shardscope::test {

// The chunk's elements in row-major order, little-endian, conjugated and negated as they should be. Boxes
// only.
Result<std::vector<std::byte>> readChunk(const Reader& reader, TensorId tensor, ChunkId chunk);

}  // namespace shardscope::test
