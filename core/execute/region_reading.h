// Reading parts of tensors into memory that the caller owns: slices of notebooks, shards of ranks that
// resume.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "execute/executor.h"

namespace shardscope {

// The elements starts[d] + i * steps[d], 0 <= i < counts[d], of a tensor; element i goes to
// `to` + dot(i, toStrides) elements. Steps are at least 1, strides never negative.
struct RegionRead {
    TensorId tensor = kNone;
    Dims starts, counts, steps;
    std::byte* to = nullptr;  // the caller's; little-endian, true values
    Dims toStrides;           // in elements
};

// Reads all of them with the threads of resources.pool, and little more of the files than they need. Gaps of
// at most 8 KiB between what is needed are read too. Several readings may be of one tensor; their memories
// must not overlap. With FillGaps::zero, elements that no chunk holds are left as they are. Returns the bytes
// that were read from files. Errors: usage (outside of the tensor), damaged (rule coverage.gap: the tensor
// has gaps, in the region or elsewhere), unsupported (part of a tensor whose elements share bytes),
// cancelled, those of locate() and of reading.
Result<uint64_t> readRegions(const Reader& reader, const std::vector<RegionRead>& reads, FillGaps fill,
                             const Resources& resources);

// The same of the tensors of `spec`, which a recipe makes of the source, in the dtypes of `spec`. Those that
// it only renames are read as above; of the others all rows (along the first dimension) that a reading
// touches are read.
Result<uint64_t> readPlannedRegions(const Reader& source, const TargetSpec& spec,
                                    const std::vector<RegionRead>& reads, const Resources& resources);

}  // namespace shardscope
