// Any bytes as the file of each rank. An error, or a catalog whose chunks lie inside their file.
#include "formats/torch_ranks/torch_ranks.h"
#include "fuzz_file.h"

using namespace shardscope;

namespace {

void tryOpen(const std::shared_ptr<const ReadFile>& file, std::vector<DirectoryEntry> entries) {
    Source source;
    source.directory = std::make_shared<fuzz::BytesDirectory>(file);
    source.entries = std::move(entries);
    source.fileSystem = systemFileSystem();
    (void)torchRanksFormat().probe(source);
    const auto reader = torchRanksFormat().open(source, {});
    if (!reader.ok()) return;
    const Catalog& catalog = (*reader)->catalog();
    for (ChunkId c = 0; c < catalog.chunkCount() && c < 1000; ++c) {
        const auto extent = (*reader)->locate(c);
        if (!extent.ok()) continue;
        if (extent->offset > extent->file->size() || extent->length > extent->file->size() - extent->offset)
            __builtin_trap();
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const auto file = std::make_shared<fuzz::BytesFile>(data, size);
    using Kind = DirectoryEntry::Kind;
    tryOpen(file, {{"model_world_size_2_rank_0.pt", Kind::file, size},
                   {"model_world_size_2_rank_1.pt", Kind::file, size},
                   {"optim_world_size_2_rank_0.pt", Kind::file, size},
                   {"optim_world_size_2_rank_1.pt", Kind::file, size}});
    tryOpen(file, {{"rank0.pt", Kind::file, size}, {"rank1.pt", Kind::file, size}});
    return 0;
}
