// Parses the file names of Paddle's distributed checkpoints, and finds the role of a tensor by its name.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/format.h"

namespace shardscope::paddle {

// "3_10.distcp" (or .safetensors): rank 3 of save 10.
struct DataName {
    uint32_t rank = 0;
    uint64_t id = 0;
};
std::optional<DataName> parseDataName(std::string_view path);
// "10.metadata": save 10.
std::optional<uint64_t> parseMetadataName(std::string_view name);

// The files of one save in a directory. `data` points into the source's entries.
struct SaveFiles {
    std::string metadata;  // name of the metadata file; empty when there is none
    std::string lock;      // "10.metadata.lock", left by an interrupted save
    std::vector<const DirectoryEntry*> data;
};
// The saves in a directory, by id. Metadata files and locks match by exact name: id 2 is not id 12.
std::map<uint64_t, SaveFiles> savesIn(const Source& source);

// The role by name. The endings of Paddle's optimizer accumulators mark optimizer state.
Role roleOf(std::string_view name);

}  // namespace shardscope::paddle
