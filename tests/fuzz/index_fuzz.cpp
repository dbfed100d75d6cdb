// Any bytes as an index file, and as its unpacked contents, which no digest protects: an error, or a catalog
// that can be walked.
#include "formats/index/index.h"
#include "fuzz_file.h"

using namespace shardscope;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    Source source;
    source.directory = std::make_shared<fuzz::BytesDirectory>(std::make_shared<fuzz::BytesFile>(data, size));
    source.fileSystem = systemFileSystem();
    source.entry = "fuzz.ssidx";
    (void)indexFormat().probe(source);
    const auto reader = indexFormat().open(source, {});
    if (reader.ok()) {
        for (ObjectId o = 0; o < (*reader)->catalog().objects().size() && o < 1000; ++o)
            (void)(*reader)->objectValue(o);
    }
    const auto contents = decodeIndexPayload({reinterpret_cast<const std::byte*>(data), size});
    if (!contents.ok()) return 0;
    const Catalog& catalog = contents->catalog;
    for (ChunkId c = 0; c < catalog.chunkCount() && c < 1000; ++c) {
        const ChunkInfo chunk = catalog.chunk(c);
        if (chunk.file != kNone && chunk.file >= catalog.files().size()) __builtin_trap();
    }
    if (contents->values.size() != catalog.objects().size()) __builtin_trap();
    return 0;
}
