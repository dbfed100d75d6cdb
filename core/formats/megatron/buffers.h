// Where the parameters of a model lie in the contiguous buffers of a distributed optimizer. No checkpoint
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

}  // namespace shardscope::megatron
