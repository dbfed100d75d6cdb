// Any bytes as the file of each rank of torch_xla's FSDP. An error, or a catalog whose chunks lie inside
// their file.
#include "formats/xla_fsdp/xla_fsdp.h"
#include "fuzz_reader.h"

using namespace shardscope;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using Kind = DirectoryEntry::Kind;
    (void)fuzz::tryOpen(xlaFsdpFormat(),
                        std::make_shared<fuzz::BytesDirectory>(std::make_shared<fuzz::BytesFile>(data, size)),
                        {{"rank-0-of-2.pth", Kind::file, size}, {"rank-1-of-2.pth", Kind::file, size}});
    return 0;
}
