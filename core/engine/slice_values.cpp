#include "engine/slice_values.h"

#include <algorithm>

#include "engine/element.h"

namespace shardscope {
namespace {

constexpr uint64_t kWholeRowBytes = uint64_t{4} << 20;  // of the part of a row that is shown

// What is shown of one axis.
struct Shown {
    int64_t begin = 0, length = 1, step = 1, count = 1;
};

Shown shownOf(DimSpan shape, int axis, int64_t begin, int64_t length, int64_t most) {
    Shown shown;
    if (axis < 0) return shown;
    const int64_t size = shape[static_cast<size_t>(axis)];
    shown.begin = std::clamp<int64_t>(begin, 0, size);
    shown.length = std::clamp<int64_t>(length, 0, size - shown.begin);
    most = std::max<int64_t>(1, most);
    shown.step = std::max<int64_t>(1, shown.length / most + (shown.length % most != 0));
    shown.count = shown.length / shown.step + (shown.length % shown.step != 0);
    return shown;
}

}  // namespace

Result<SliceValues> sliceValues(const Reader& reader, const SliceRequest& request,
                                const Resources& resources) {
    const Catalog& catalog = reader.catalog();
    const DimSpan shape = catalog.shape(request.tensor);
    const DType dtype = catalog.dtype(request.tensor);
    if (dtypeBits(dtype) % 8)
        return unsupported("values smaller than a byte are not shown").ofTensor(catalog.name(request.tensor));
    const int axes = static_cast<int>(shape.size());
    if (request.rowAxis >= axes || request.columnAxis >= axes ||
        (request.rowAxis >= 0 && request.rowAxis == request.columnAxis))
        return makeError(ErrorCode::usage, "the tensor has no such axes")
            .ofTensor(catalog.name(request.tensor));
    const size_t item = dtypeBits(dtype) / 8;
    const Shown down = shownOf(shape, request.rowAxis, request.top, request.height, request.rows);
    const Shown across = shownOf(shape, request.columnAxis, request.left, request.width, request.columns);
    SliceValues values;
    values.rows = down.count;
    values.columns = across.count;
    values.rowStep = down.step;
    values.columnStep = across.step;
    values.values.reserve(static_cast<size_t>(values.rows * values.columns));

    Box box{Dims(shape.size(), 0), Dims(shape.size(), 1)};
    for (size_t d = 0; d < shape.size(); ++d) {
        // One axis without a length leaves nothing to show.
        if (shape[d] == 0) return SliceValues{};
        if (d < request.index.size()) box.offsets[d] = std::clamp<int64_t>(request.index[d], 0, shape[d] - 1);
    }
    const bool wholeRows = static_cast<uint64_t>(across.length) * item <= kWholeRowBytes;
    for (int64_t r = 0; r < values.rows; ++r) {
        SHARDSCOPE_TRY(resources.stop.poll());
        if (request.rowAxis >= 0)
            box.offsets[static_cast<size_t>(request.rowAxis)] = down.begin + r * down.step;
        if (wholeRows) {
            if (request.columnAxis >= 0) {
                box.offsets[static_cast<size_t>(request.columnAxis)] = across.begin;
                box.lengths[static_cast<size_t>(request.columnAxis)] = across.length;
            }
            SHARDSCOPE_ASSIGN(const auto bytes,
                              readRegion(reader, request.tensor, box, kWholeRowBytes + item, resources));
            for (int64_t c = 0; c < values.columns; ++c)
                values.values.push_back(
                    elementValue(dtype, bytes.data() + static_cast<size_t>(c * across.step) * item));
            continue;
        }
        for (int64_t c = 0; c < values.columns; ++c) {
            box.offsets[static_cast<size_t>(request.columnAxis)] = across.begin + c * across.step;
            SHARDSCOPE_ASSIGN(const auto bytes, readRegion(reader, request.tensor, box, 64, resources));
            values.values.push_back(elementValue(dtype, bytes.data()));
        }
    }
    return values;
}

}  // namespace shardscope
