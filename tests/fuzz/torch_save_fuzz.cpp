// Any bytes: an error, or a catalog whose chunks lie inside the file.
#include "formats/torch_save/torch_save.h"
#include "fuzz_file.h"

using namespace shardscope;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    Source source;
    source.directory = std::make_shared<fuzz::BytesDirectory>(std::make_shared<fuzz::BytesFile>(data, size));
    source.entry = "fuzz";
    source.fileSystem = systemFileSystem();
    (void)torchSaveFormat().probe(source);
    const auto reader = torchSaveFormat().open(source, {});
    if (!reader.ok()) return 0;
    const Catalog& catalog = (*reader)->catalog();
    for (ChunkId c = 0; c < catalog.chunkCount() && c < 1000; ++c) {
        const auto extent = (*reader)->locate(c);
        if (!extent.ok()) continue;
        if (extent->offset > extent->file->size() || extent->length > extent->file->size() - extent->offset)
            __builtin_trap();
    }
    for (ObjectId o = 0; o < catalog.objects().size() && o < 1000; ++o) {
        const auto value = (*reader)->objectValue(o);
        if (value.ok()) (void)valueToJson(*value, 1000);
    }
    (void)torchSaveFormat().cannotHold(catalog, {});
    (void)torchSaveFormat().layout(catalog, {});
    return 0;
}
