// Computes where a model's parameters are in the contiguous buffers of a distributed optimizer. No checkpoint
// states it; it follows from the order of the parameters. Private to this format.
//
// Source: megatron/core/distributed/param_and_grad_buffer.py (_ParamAndGradBuffer) of megatron-core 0.12 to
// 0.16: parameters in reverse order, each at a multiple of 64 elements. A bucket ends with its last
// parameter. Before a parameter with its own bucket (a tied embedding) it ends where that parameter begins.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "formats/format.h"

namespace shardscope::megatron {

struct BufferPlace {
    size_t bucket = 0;
    int64_t first = 0;  // first element in the bucket
};
// One place for each parameter. `parameters`: their element counts, in model order. `buckets`: the element
// count of each bucket without padding at its end. nullopt if they do not fit exactly.
std::optional<std::vector<BufferPlace>> placeInBuckets(std::span<const int64_t> parameters,
                                                       std::span<const int64_t> buckets);

// The element counts of the buckets that the parameters fill. A bucket is closed at `bucketElements` elements
// or more (nullopt: never). `alone`: parameters with a bucket of their own; may be empty.
std::vector<int64_t> bucketsOf(std::span<const int64_t> parameters, const std::vector<bool>& alone,
                               std::optional<int64_t> bucketElements);

// A placement is tested at a parameter's first elements: the weight must be the rounded master weight.
// Without values to compare nothing is proved.
inline constexpr int64_t kMostCompared = 64;           // elements per parameter
inline constexpr size_t kMostParametersCompared = 24;  // per buffer
bool isComparable(DType weight, DType master);
// Reads `count` elements from element `first` of the extent. Empty if the extent is not contiguous. Errors:
// io.
Result<std::vector<float>> firstValues(const Extent& extent, int64_t first, int64_t count, DType dtype);
bool looksLikeMaster(std::span<const float> masters, std::span<const float> weights);

}  // namespace shardscope::megatron
