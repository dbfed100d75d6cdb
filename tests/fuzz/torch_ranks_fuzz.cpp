// Any bytes as the file of each rank. An error, or a catalog whose chunks lie inside their file.
#include "formats/torch_ranks/torch_ranks.h"
#include "fuzz_reader.h"

using namespace shardscope;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const auto directory =
        std::make_shared<fuzz::BytesDirectory>(std::make_shared<fuzz::BytesFile>(data, size));
    using Kind = DirectoryEntry::Kind;
    (void)fuzz::tryOpen(torchRanksFormat(), directory,
                        {{"model_world_size_2_rank_0.pt", Kind::file, size},
                         {"model_world_size_2_rank_1.pt", Kind::file, size},
                         {"optim_world_size_2_rank_0.pt", Kind::file, size},
                         {"optim_world_size_2_rank_1.pt", Kind::file, size}});
    (void)fuzz::tryOpen(torchRanksFormat(), directory,
                        {{"rank0.pt", Kind::file, size}, {"rank1.pt", Kind::file, size}});
    return 0;
}
