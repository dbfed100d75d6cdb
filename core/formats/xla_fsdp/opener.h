// Opens the rank files of torch_xla's FSDP as one checkpoint. Private to this format.
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

// "<prefix>rank-00000001-of-00000004.pth": the rank files of one prefix and one world size.
struct FileSet {
    std::string before, after;  // parts of the names around the rank
    size_t width = 1;           // digits of the rank
    uint32_t world = 0;
    std::map<uint32_t, std::string> files;  // names by rank
    std::string nameOf(uint32_t rank) const;
};
// The set with the most files; one without files where none match.
FileSet findFiles(const Source& source);

// Errors: unsupported (no rank files), those of the file system. Damaged files become notes.
Result<std::unique_ptr<Reader>> openRanks(const Source& source, const OpenOptions& options);

}  // namespace shardscope::xla_fsdp
