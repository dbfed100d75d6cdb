#include "support/write_layout.h"

#include <zlib.h>

namespace shardscope::test {

Status writeLayout(const Catalog& wanted, const TargetLayout& layout, Directory& directory,
                   const std::function<std::vector<std::byte>(TensorId, const ChunkInfo&)>& chunkBytes) {
    std::vector<std::shared_ptr<WriteFile>> files;
    for (const TargetFile& file : layout.files) {
        SHARDSCOPE_ASSIGN(auto made, directory.createFile(file.path));
        SHARDSCOPE_TRY(made->allocate(file.size));
        files.push_back(std::move(made));
    }
    const LiteralSink sink = [&](FileId file, uint64_t offset, std::span<const std::byte> bytes) -> Status {
        if (file >= files.size() || offset + bytes.size() > layout.files[file].size)
            return makeError(ErrorCode::internal, "the layout writes beyond the size that it gave");
        return files[file]->writeAt(offset, bytes);
    };
    std::vector<uint32_t> crcs(wanted.chunkCount(), 0);
    for (TensorId t = 0; t < wanted.tensorCount(); ++t) {
        if (wanted.aliasOf(t) != kNone) continue;
        for (ChunkId c = wanted.firstChunk(t); c < wanted.endChunk(t); ++c) {
            const std::vector<std::byte> bytes = chunkBytes(t, wanted.chunk(t, c));
            crcs[c] = static_cast<uint32_t>(
                ::crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
            if (!bytes.empty())
                SHARDSCOPE_TRY(files[layout.chunkFile[c]]->writeAt(layout.chunkOffset[c], bytes));
            SHARDSCOPE_TRY(layout.chunkLiterals(c, crcs[c], sink));
        }
    }
    for (FileId file = 0; file < files.size(); ++file)
        SHARDSCOPE_TRY(layout.fileLiterals(file, crcs, sink));
    return {};
}

}  // namespace shardscope::test
