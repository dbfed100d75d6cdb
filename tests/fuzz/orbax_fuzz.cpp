// Any bytes as every file of an item of Orbax, of a checkpoint of Levanter, and as a tree of Flax. An error,
// or a catalog whose chunks lie inside their file.
#include "formats/orbax/orbax.h"
#include "fuzz_reader.h"

using namespace shardscope;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const auto directory =
        std::make_shared<fuzz::BytesDirectory>(std::make_shared<fuzz::BytesFile>(data, size));
    using Kind = DirectoryEntry::Kind;
    (void)fuzz::tryOpen(orbaxFormat(), directory,
                        {{"_METADATA", Kind::file, size},
                         {"_sharding", Kind::file, size},
                         {"_strings.json", Kind::file, size},
                         {"_CHECKPOINT_METADATA", Kind::file, size}});
    (void)fuzz::tryOpen(orbaxFormat(), directory,
                        {{"checkpoint", Kind::file, size}, {"_sharding", Kind::file, size}});
    (void)fuzz::tryOpen(orbaxFormat(), directory, {{"manifest.ocdbt", Kind::file, size}});
    (void)fuzz::tryOpen(levanterFormat(), directory,
                        {{"manifest.json", Kind::file, size},
                         {"manifest.ocdbt", Kind::file, size},
                         {"metadata.json", Kind::file, size}});
    Source source;
    source.directory = directory;
    source.entries = {{"checkpoint_1", Kind::file, size}};
    source.entry = "checkpoint_1";
    source.fileSystem = systemFileSystem();
    (void)fuzz::tryOpen(orbaxFormat(), source);
    return 0;
}
