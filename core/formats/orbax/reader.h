// The reader of all that this format opens.
#pragma once

#include <memory>
#include <vector>

#include "encoding/zarr_array.h"
#include "formats/format.h"
#include "formats/orbax/store.h"

namespace shardscope::orbax {

struct Contents {
    // By tensor; nothing for one whose chunks are the raw bytes that the catalog states.
    std::vector<std::optional<ZarrArray>> arrays;
    std::vector<uint64_t> inTree;  // by chunk: kInFile, kFilled, or where its bytes begin in `values`
    Values values;
};

std::unique_ptr<Reader> makeReader(const Source& source, const OpenOptions& options, Catalog catalog,
                                   Contents contents);

}  // namespace shardscope::orbax
