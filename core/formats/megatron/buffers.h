// Where the parameters of a model are in the contiguous buffers of a distributed optimizer. No checkpoint
// says it: it follows from the order of the parameters. Private to this format.
//
// Source: megatron/core/distributed/param_and_grad_buffer.py (_ParamAndGradBuffer) of megatron-core 0.12 to
// 0.16: parameters in reverse order, each at a multiple of 64 elements. A bucket ends with its last
// parameter, or at the place of the next one where that, a tied embedding, needs a bucket of its own.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "formats/format.h"

namespace shardscope::megatron {

struct BufferPlace {
    size_t bucket = 0;
    int64_t first = 0;  // element of the bucket
};
// One place for each parameter, given by their numbers of elements in the order of the model; `buckets` are
// the elements of each bucket without the padding at its end. nullopt where they do not fit exactly.
std::optional<std::vector<BufferPlace>> placeInBuckets(std::span<const int64_t> parameters,
                                                       std::span<const int64_t> buckets);

// The elements of the buckets that parameters fill where one is closed once it has at least `bucketElements`
// (nullopt: never); `alone` says which parameters have a bucket of their own, and may be empty.
std::vector<int64_t> bucketsOf(std::span<const int64_t> parameters, const std::vector<bool>& alone,
                               std::optional<int64_t> bucketElements);

// Whether a parameter is where it was placed is seen at its first elements: the master is what the weight
// was rounded from. Nothing is proved where there is nothing to compare.
inline constexpr int64_t kMostCompared = 64;           // elements of a parameter
inline constexpr size_t kMostParametersCompared = 24;  // of a buffer
bool isComparable(DType weight, DType master);
// `first` counts elements of the extent. Empty for values that are not contiguous. Errors: io.
Result<std::vector<float>> firstValues(const Extent& extent, int64_t first, int64_t count, DType dtype);
bool looksLikeMaster(std::span<const float> masters, std::span<const float> weights);

}  // namespace shardscope::megatron
