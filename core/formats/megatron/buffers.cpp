#include "formats/megatron/buffers.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

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

bool isComparable(DType weight, DType master) {
    return master == DType::float32 && (weight == DType::bfloat16 || weight == DType::float32);
}

Result<std::vector<float>> firstValues(const Extent& extent, int64_t first, int64_t count, DType dtype) {
    std::vector<float> values;
    const size_t width = dtypeBytes(dtype);
    const uint64_t offset = static_cast<uint64_t>(first) * width,
                   length = static_cast<uint64_t>(count) * width;
    if (!extent.file || !extent.strides.empty() || extent.swapBytes ||
        !rangeFits(offset, length, extent.length))
        return values;
    std::vector<std::byte> bytes(static_cast<size_t>(length));
    SHARDSCOPE_TRY(extent.file->readAt(extent.offset + offset, bytes));
    for (size_t i = 0; i < bytes.size(); i += width) {
        if (dtype == DType::bfloat16) {
            uint16_t half = 0;
            std::memcpy(&half, bytes.data() + i, sizeof half);
            values.push_back(std::bit_cast<float>(uint32_t{half} << 16));
        } else {
            float value = 0;
            std::memcpy(&value, bytes.data() + i, sizeof value);
            values.push_back(value);
        }
    }
    return values;
}

bool looksLikeMaster(std::span<const float> masters, std::span<const float> weights) {
    const size_t count = std::min(masters.size(), weights.size());
    double difference = 0, all = 0;
    for (size_t i = 0; i < count; ++i) {
        difference += std::abs(double{masters[i]} - double{weights[i]});
        all += std::abs(double{weights[i]});
    }
    // Far more than rounding to 16 bits changes, far less than another parameter differs.
    return !(difference > all / 4 + 1e-2 * static_cast<double>(count));
}

}  // namespace shardscope::megatron
