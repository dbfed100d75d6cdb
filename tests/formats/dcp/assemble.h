// A reader of whole tensors that is slow and obviously right.
#pragma once

#include <string>
#include <vector>

#include "formats/format.h"

namespace shardscope::test {

// The elements of one chunk, row-major and little-endian, by following the extent's strides one element at a
// time.
Result<std::vector<std::byte>> chunkElements(const Reader& reader, ChunkId chunk);

// The whole tensor, its chunks put in place; elements that no chunk has are zero.
Result<std::vector<std::byte>> assemble(const Reader& reader, TensorId tensor);

std::string sha256Hex(const std::vector<std::byte>& bytes);

}  // namespace shardscope::test
