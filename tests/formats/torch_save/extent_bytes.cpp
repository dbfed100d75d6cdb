#include "extent_bytes.h"

#include <algorithm>
#include <cstring>

namespace shardscope::test {

namespace {

void flipSign(std::byte* element, DType dtype, bool imaginaryOnly) {
    const unsigned unit = dtypeSwapUnit(dtype);
    for (unsigned at = imaginaryOnly ? unit : 0; at < dtypeBytes(dtype); at += unit)
        element[at + unit - 1] ^= std::byte{0x80};
}

}  // namespace

Result<std::vector<std::byte>> readChunk(const Reader& reader, TensorId tensor, ChunkId id) {
    const Catalog& catalog = reader.catalog();
    const ChunkInfo chunk = catalog.chunk(tensor, id);
    const DType dtype = catalog.dtype(tensor);
    const size_t size = dtypeBytes(dtype);
    SHARDSCOPE_ASSIGN(const Extent extent, reader.locate(id));
    std::vector<std::byte> raw(extent.length);
    SHARDSCOPE_TRY(extent.file->readAt(extent.offset, raw));
    const auto count = static_cast<size_t>(elementCount(chunk.lengths));
    std::vector<std::byte> out(count * size);
    const Dims strides = extent.strides.empty() ? rowMajorStrides(chunk.lengths) : extent.strides;
    Dims index(chunk.lengths.size(), 0);
    for (size_t i = 0; i < count; ++i) {
        size_t at = 0;
        for (size_t d = 0; d < index.size(); ++d)
            at += static_cast<size_t>(index[d] * strides[d]);
        std::byte* element = out.data() + i * size;
        if ((at + 1) * size > raw.size()) return damaged("an element is outside its extent");
        std::memcpy(element, raw.data() + at * size, size);
        const unsigned unit = dtypeSwapUnit(dtype);
        for (unsigned u = 0; extent.swapBytes && u < size; u += unit)
            std::reverse(element + u, element + u + unit);
        if (extent.conjugate) flipSign(element, dtype, true);
        if (extent.negate) flipSign(element, dtype, false);
        for (size_t d = index.size(); d-- > 0;) {
            if (++index[d] < chunk.lengths[d]) break;
            index[d] = 0;
        }
    }
    return out;
}

}  // namespace shardscope::test
