// Any bytes as every file of a checkpoint of Megatron's, and as the description of a zarr array. An error, or
// a catalog whose chunks lie inside their file.
#include "encoding/zarr_array.h"
#include "formats/megatron/megatron.h"
#include "fuzz_reader.h"

using namespace shardscope;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const auto file = std::make_shared<fuzz::BytesFile>(data, size);
    const auto directory = std::make_shared<fuzz::BytesDirectory>(file);
    using Kind = DirectoryEntry::Kind;
    (void)fuzz::tryOpen(megatronFormat(), directory,
                        {{".metadata", Kind::file, size},
                         {"__0_0.distcp", Kind::file, size},
                         {"common.pt", Kind::file, size}});
    (void)fuzz::tryOpen(megatronFormat(), directory,
                        {{"mp_rank_00", Kind::directory}, {"mp_rank_01", Kind::directory}});
    (void)fuzz::tryOpen(megatronFormat(), directory,
                        {{"mp_rank_00_000", Kind::directory}, {"mp_rank_00_001", Kind::directory}});

    const auto array = parseZarray({reinterpret_cast<const char*>(data), size});
    if (!array.ok()) return 0;
    Dims last = array->grid();
    for (int64_t& number : last) {
        if (number-- == 0) return 0;  // it has no chunks
    }
    if (array->chunkPlace(array->chunkName(last)) != last) __builtin_trap();
    return 0;
}
