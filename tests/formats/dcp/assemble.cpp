#include "assemble.h"

#include <QCryptographicHash>
#include <algorithm>
#include <cstring>

namespace shardscope::test {

Result<std::vector<std::byte>> chunkElements(const Reader& reader, ChunkId id) {
    const Catalog& catalog = reader.catalog();
    const ChunkInfo chunk = catalog.chunk(id);
    const size_t width = dtypeBytes(catalog.dtype(chunk.tensor));
    SHARDSCOPE_ASSIGN(const Extent extent, reader.locate(id));
    std::vector<std::byte> stored(extent.length);
    if (!stored.empty()) SHARDSCOPE_TRY(extent.file->readAt(extent.offset, stored));
    const Dims rowMajor = rowMajorStrides(chunk.lengths);
    const Dims& strides = extent.strides.empty() ? rowMajor : extent.strides;
    std::vector<std::byte> out(static_cast<size_t>(chunk.elements()) * width);
    for (int64_t i = 0; i < chunk.elements(); ++i) {
        int64_t rest = i;
        int64_t from = 0;
        for (size_t d = 0; d < chunk.lengths.size(); ++d) {
            from += rest / rowMajor[d] * strides[d];
            rest %= rowMajor[d];
        }
        std::memcpy(&out[static_cast<size_t>(i) * width], &stored.at(static_cast<size_t>(from) * width),
                    width);
    }
    return out;
}

Result<std::vector<std::byte>> assemble(const Reader& reader, TensorId tensor) {
    const Catalog& catalog = reader.catalog();
    const size_t width = dtypeBytes(catalog.dtype(tensor));
    std::vector<std::byte> whole(catalog.bytes(tensor));
    for (ChunkId c = catalog.firstChunk(tensor); c < catalog.endChunk(tensor); ++c) {
        const ChunkInfo chunk = catalog.chunk(tensor, c);
        SHARDSCOPE_ASSIGN(const std::vector<std::byte> part, chunkElements(reader, c));
        for (int64_t i = 0; i < chunk.elements(); ++i) {
            const int64_t to = positionOf(i, catalog.shape(tensor), chunk.offsets, chunk.lengths);
            std::memcpy(&whole.at(static_cast<size_t>(to) * width), &part[static_cast<size_t>(i) * width],
                        width);
        }
    }
    return whole;
}

std::string sha256Hex(const std::vector<std::byte>& bytes) {
    const QByteArray data(reinterpret_cast<const char*>(bytes.data()), static_cast<qsizetype>(bytes.size()));
    return QCryptographicHash::hash(data, QCryptographicHash::Sha256).toHex().toStdString();
}

}  // namespace shardscope::test
