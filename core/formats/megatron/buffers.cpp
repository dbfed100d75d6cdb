#include "formats/megatron/buffers.h"

#include "base/checked.h"

namespace shardscope::megatron {

namespace {

constexpr int64_t kAlignment = 64;

bool alignUp(int64_t value, int64_t& out) {
    if (!checkedAdd(value, kAlignment - 1, out)) return false;
    out = out / kAlignment * kAlignment;
    return true;
}

// Where the next parameter starts in a bucket that is filled up to `end`, and where it ends; false for sizes
// that no buffer has.
bool placeNext(int64_t elements, int64_t end, int64_t& first, int64_t& stop) {
    return elements > 0 && alignUp(end, first) && checkedAdd(first, elements, stop);
}

}  // namespace

std::optional<std::vector<BufferPlace>> placeInBuckets(std::span<const int64_t> parameters,
                                                       std::span<const int64_t> buckets) {
    std::vector<BufferPlace> places(parameters.size());
    size_t bucket = 0;
    int64_t end = 0;
    for (size_t p = parameters.size(); p-- > 0;) {
        int64_t first = 0, stop = 0;
        if (bucket == buckets.size() || !placeNext(parameters[p], end, first, stop) || stop > buckets[bucket])
            return std::nullopt;
        places[p] = {bucket, first};
        end = stop;
        int64_t next = 0;
        if (end == buckets[bucket] || (alignUp(end, next) && next == buckets[bucket])) {
            ++bucket;
            end = 0;
        }
    }
    if (bucket != buckets.size() || end != 0) return std::nullopt;
    return places;
}

std::vector<int64_t> bucketsOf(std::span<const int64_t> parameters, const std::vector<bool>& alone,
                               std::optional<int64_t> bucketElements) {
    std::vector<int64_t> buckets;
    int64_t end = 0;
    for (size_t p = parameters.size(); p-- > 0;) {
        const bool own = !alone.empty() && alone[p];
        int64_t first = 0, stop = 0;
        if (!placeNext(parameters[p], end, first, stop)) return {};
        if (own && end > 0) {
            buckets.push_back(first);
            if (!placeNext(parameters[p], 0, first, stop)) return {};
        }
        end = stop;
        if (p == 0 || own || (bucketElements && end >= *bucketElements)) {
            buckets.push_back(end);
            end = 0;
        }
    }
    return buckets;
}

}  // namespace shardscope::megatron
