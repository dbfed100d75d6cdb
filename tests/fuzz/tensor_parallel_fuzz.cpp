// Any bytes as the file of each rank, and as the configuration. An error, or a catalog whose chunks lie
// inside their file.
#include "formats/tensor_parallel/tensor_parallel.h"
#include "fuzz_reader.h"

using namespace shardscope;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const auto directory =
        std::make_shared<fuzz::BytesDirectory>(std::make_shared<fuzz::BytesFile>(data, size));
    using Kind = DirectoryEntry::Kind;
    (void)fuzz::tryOpen(tensorParallelFormat(), directory,
                        {{"config.json", Kind::file, size},
                         {"model-rank-0-part-0.safetensors", Kind::file, size},
                         {"model-rank-1-part-0.safetensors", Kind::file, size}});
    (void)fuzz::tryOpen(
        tensorParallelFormat(), directory,
        {{"consolidated.00.pth", Kind::file, size}, {"consolidated.01.pth", Kind::file, size}});
    return 0;
}
