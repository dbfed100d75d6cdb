// Finds and opens the files of torch_xla's FSDP. Private to this format.
//
// Source: torch_xla/distributed/fsdp/state_dict_utils.py (consolidate_sharded_state_dicts) and
// xla_fully_sharded_data_parallel.py (get_shard_metadata).
#pragma once

#include <map>
#include <memory>
#include <string>

#include "formats/format.h"

namespace shardscope::xla_fsdp {

inline constexpr std::string_view kMetadata = "shard_metadata";

// Files "<prefix>rank-00000001-of-00000004.pth" with the same prefix and world size, by rank.
struct FileSet {
    std::string before, after;  // name before and after the rank's number
    size_t width = 1;           // digits of that number
    uint32_t world = 0;
    std::map<uint32_t, std::string> files;
    std::string nameOf(uint32_t rank) const;
};
// The largest set; one without files if there is none.
FileSet findFiles(const Source& source);

// Errors: those of the file system; damaged files are notes.
Result<std::unique_ptr<Reader>> openRanks(const Source& source, const OpenOptions& options);

}  // namespace shardscope::xla_fsdp
