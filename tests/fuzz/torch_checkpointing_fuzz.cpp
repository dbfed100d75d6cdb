// Any bytes as metadata.pkl, and as the files of ranks. An error, or a catalog whose chunks lie inside their
// file.
#include "formats/torch_checkpointing/torch_checkpointing.h"
#include "fuzz_reader.h"

using namespace shardscope;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const auto directory =
        std::make_shared<fuzz::BytesDirectory>(std::make_shared<fuzz::BytesFile>(data, size));
    using Kind = DirectoryEntry::Kind;
    (void)fuzz::tryOpen(torchCheckpointingFormat(), directory,
                        {{"metadata.pkl", Kind::file, size}, {"model_0.pt", Kind::file, size}});
    (void)fuzz::tryOpen(torchCheckpointingFormat(), directory,
                        {{"cfg_0.json", Kind::file, size},
                         {"model_0.pt", Kind::file, size},
                         {"model_1.pt", Kind::file, size},
                         {"rng_0.bin", Kind::file, size}});
    return 0;
}
