// A rectangle of one tensor's values, for window and page alike.
#pragma once

#include <cstdint>
#include <vector>

#include "execute/executor.h"

namespace shardscope {

// Two axes of a tensor, the others at one index each; thinned to at most `rows` x `columns` values.
struct SliceRequest {
    TensorId tensor = kNone;
    int rowAxis = -1, columnAxis = -1;  // -1 = the tensor has no such axis
    Dims index;                         // of the other axes
    int64_t rows = 64, columns = 64;
    int64_t top = 0, left = 0;                      // where the rectangle begins along both axes
    int64_t height = INT64_MAX, width = INT64_MAX;  // cut where the tensor ends
};
struct SliceValues {
    int64_t rows = 0, columns = 0;
    int64_t rowStep = 1, columnStep = 1;  // elements between two samples
    std::vector<double> values;           // row-major; NaN and infinities as they are
};

// Reads no more than the rows that are shown. Errors: unsupported (values smaller than a byte), usage (no
// such axes), those of reading.
Result<SliceValues> sliceValues(const Reader& reader, const SliceRequest& request,
                                const Resources& resources);

}  // namespace shardscope
