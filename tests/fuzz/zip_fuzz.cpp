// Any bytes: an error, or entries that are read or refused, never outside the file.
#include "encoding/zip.h"
#include "fuzz_file.h"

using namespace shardscope;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const auto zip = openZip(std::make_shared<fuzz::BytesFile>(data, size), 0, size);
    if (!zip.ok()) return 0;
    for (const ZipEntry& entry : zip->entries) {
        (void)zipDataOffset(*zip, entry);
        (void)readZipEntry(*zip, entry, 1 << 20);
    }
    return 0;
}
