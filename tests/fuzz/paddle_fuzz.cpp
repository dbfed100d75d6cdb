// Any bytes as a file of paddle.save, and as the metadata of a distributed checkpoint: an error, or a catalog
// whose chunks lie inside their files.
#include "formats/paddle_dist/metadata.h"
#include "formats/paddle_dist/paddle_dist.h"
#include "fuzz_reader.h"

using namespace shardscope;

namespace {

void visit(const Source& source) {
    const auto reader = fuzz::tryOpen(paddleFormat(), source);
    if (!reader) return;
    const Catalog& catalog = reader->catalog();
    for (ObjectId o = 0; o < catalog.objects().size() && o < 1000; ++o) {
        const auto value = reader->objectValue(o);
        if (value.ok()) (void)valueToJson(*value, 1000);
    }
    (void)reader->fileNotes();
    (void)paddleFormat().cannotHold(catalog, {});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    Source source;
    source.directory = std::make_shared<fuzz::BytesDirectory>(std::make_shared<fuzz::BytesFile>(data, size));
    source.fileSystem = systemFileSystem();
    source.entry = "fuzz.pdparams";
    visit(source);
    // Every file of the checkpoint has the same bytes.
    source.entry = "0.metadata";
    source.entries = {{"0.metadata", DirectoryEntry::Kind::file, size},
                      {"0_0.distcp", DirectoryEntry::Kind::file, size}};
    visit(source);
    return 0;
}
