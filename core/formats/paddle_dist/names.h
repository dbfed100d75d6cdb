// File names of Paddle's distributed checkpoints, and what a tensor's name says of its role.
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
    bool safetensors = false;
};
std::optional<DataName> parseDataName(std::string_view path);
// "10.metadata": save 10.
std::optional<uint64_t> parseMetadataName(std::string_view name);

// What is in a directory of one save.
struct SaveFiles {
    std::string metadata;  // name of the metadata file; empty when there is none
    std::string lock;      // "10.metadata.lock", left by a save that died
    std::vector<const DirectoryEntry*> data;
};
// By id. Metadata files and locks are taken by exact name: id 2 is not id 12.
std::map<uint64_t, SaveFiles> savesIn(const Source& source);

// Optimizer state is told by the endings that Paddle's optimizers give their accumulators.
Role roleOf(std::string_view name);

}  // namespace shardscope::paddle
