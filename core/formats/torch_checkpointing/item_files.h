// Finds by name which files of a directory belong to which item and rank. Private to this format.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/torch_checkpointing/metadata.h"

namespace shardscope::torch_checkpointing {

// "model_3.pt": item "model", rank 3. nullopt if the name does not end in a rank.
struct ItemName {
    std::string item;
    uint32_t rank = 0;
};
std::optional<ItemName> parseItemName(std::string_view name);

// Whether the directory is a torch_checkpointing checkpoint without metadata.pkl. Looks at file names, and at
// the name that torch.save gives an archive written to a buffer.
bool holdsItemFiles(const Source& source);

struct ItemFile {
    std::string name;
    Layout::Kind kind = Layout::Kind::torch;
    std::string item;
    std::vector<uint32_t> ranks;  // the file's ranks; several if they all wrote the same path
    bool ranked = true;           // the name or the metadata states a rank
    uint64_t size = 0;
};
// Item files that the metadata does not name. `known`: the names in the metadata, sorted.
std::vector<ItemFile> otherItemFiles(const Source& source, const std::vector<std::string>& known);

}  // namespace shardscope::torch_checkpointing
