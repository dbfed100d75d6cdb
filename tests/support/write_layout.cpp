#include "support/write_layout.h"

#include <iterator>
#include <map>

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
    // Each byte is written once: what is written is read back before the rest follows.
    std::vector<std::map<uint64_t, uint64_t>> written(files.size());  // begin -> end, by file
    const LiteralSink sink = [&](FileId file, uint64_t offset, std::span<const std::byte> bytes) -> Status {
        if (file >= files.size() || offset + bytes.size() > layout.files[file].size)
            return makeError(ErrorCode::internal, "the layout writes beyond the size that it gave");
        if (bytes.empty()) return {};
        const uint64_t end = offset + bytes.size();
        const auto next = written[file].lower_bound(offset);
        const bool twice = (next != written[file].end() && next->first < end) ||
                           (next != written[file].begin() && std::prev(next)->second > offset);
        if (twice) return makeError(ErrorCode::internal, "the layout writes bytes twice").at(offset);
        written[file].emplace(offset, end);
        return files[file]->writeAt(offset, bytes);
    };
    std::vector<uint32_t> crcs(wanted.chunkCount(), 0);
    for (TensorId t = 0; t < wanted.tensorCount(); ++t) {
        if (wanted.aliasOf(t) != kNone) continue;
        for (ChunkId c = wanted.firstChunk(t); c < wanted.endChunk(t); ++c) {
            const std::vector<std::byte> bytes = chunkBytes(t, wanted.chunk(t, c));
            crcs[c] = static_cast<uint32_t>(
                ::crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
            SHARDSCOPE_TRY(sink(layout.chunkFile[c], layout.chunkOffset[c], bytes));
            SHARDSCOPE_TRY(layout.chunkLiterals(c, crcs[c], sink));
        }
    }
    for (FileId file = 0; file < files.size(); ++file)
        SHARDSCOPE_TRY(layout.fileLiterals(file, crcs, sink));
    return {};
}

}  // namespace shardscope::test
