// What the values of one tensor look like.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "execute/executor.h"

namespace shardscope {

struct TensorStatistics {
    uint64_t elements = 0, finite = 0, nan = 0, inf = 0, zero = 0;
    double min = 0, max = 0, mean = 0, deviation = 0;  // of the finite values (magnitudes for complex types)
    std::vector<uint64_t> histogram;                   // equal bins over [min, max]
};

// Reads the tensor twice: range and moments, then the histogram. Deterministic: independent of sharding and
// threads.
Result<TensorStatistics> tensorStatistics(const Reader& reader, TensorId tensor, size_t bins,
                                          const Resources& resources);

}  // namespace shardscope
