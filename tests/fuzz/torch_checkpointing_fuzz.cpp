// Any bytes as metadata.pkl, and as the files of ranks. An error, or a catalog whose chunks lie inside their
// file.
#include "formats/torch_checkpointing/torch_checkpointing.h"
#include "fuzz_file.h"

using namespace shardscope;

namespace {

void tryOpen(const std::shared_ptr<const ReadFile>& file, std::vector<DirectoryEntry> entries) {
    Source source;
    source.directory = std::make_shared<fuzz::BytesDirectory>(file);
    source.entries = std::move(entries);
    source.fileSystem = systemFileSystem();
    (void)torchCheckpointingFormat().probe(source);
    const auto reader = torchCheckpointingFormat().open(source, {});
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
    tryOpen(file, {{"metadata.pkl", Kind::file, size}, {"model_0.pt", Kind::file, size}});
    tryOpen(file, {{"cfg_0.json", Kind::file, size},
                   {"model_0.pt", Kind::file, size},
                   {"model_1.pt", Kind::file, size},
                   {"rng_0.bin", Kind::file, size}});
    return 0;
}
