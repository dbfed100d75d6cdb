// Any bytes: an error, or a catalog whose chunks lie inside the file.
#include "formats/torch_save/torch_save.h"
#include "fuzz_reader.h"

using namespace shardscope;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    Source source;
    source.directory = std::make_shared<fuzz::BytesDirectory>(std::make_shared<fuzz::BytesFile>(data, size));
    source.entry = "fuzz";
    source.fileSystem = systemFileSystem();
    const auto reader = fuzz::tryOpen(torchSaveFormat(), source);
    if (!reader) return 0;
    const Catalog& catalog = reader->catalog();
    for (ObjectId o = 0; o < catalog.objects().size() && o < 1000; ++o) {
        const auto value = reader->objectValue(o);
        if (value.ok()) (void)valueToJson(*value, 1000);
    }
    (void)torchSaveFormat().cannotHold(catalog, {});
    (void)torchSaveFormat().layout(catalog, {});
    return 0;
}
