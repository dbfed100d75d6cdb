// Makes the reader of every kind of checkpoint that this format opens.
#pragma once

#include <memory>
#include <vector>

#include "encoding/zarr_array.h"
#include "formats/format.h"
#include "formats/orbax/store.h"

namespace shardscope::orbax {

struct Contents {
    // By tensor; nullopt if its chunks are raw bytes at the catalog's offsets.
    std::vector<std::optional<ZarrArray>> arrays;
    std::vector<uint64_t> inTree;  // by chunk: kInFile, kFilled, or its offset in `values`
    Values values;
};

std::unique_ptr<Reader> makeReader(const Source& source, const OpenOptions& options, Catalog catalog,
                                   Contents contents);

}  // namespace shardscope::orbax
