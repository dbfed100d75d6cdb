// The shortest way from a TargetLayout to files: what the executor does, without its speed.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "base/result.h"
#include "formats/format.h"
#include "storage/file_system.h"

namespace shardscope::test {

// Writes all files of `layout`. `chunkBytes` gives the raw row-major elements of a chunk; chunks of aliases
// are not asked for.
Status writeLayout(const Catalog& wanted, const TargetLayout& layout, Directory& directory,
                   const std::function<std::vector<std::byte>(TensorId, const ChunkInfo&)>& chunkBytes);

}  // namespace shardscope::test
