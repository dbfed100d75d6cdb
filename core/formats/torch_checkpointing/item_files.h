// Which files of a directory hold what of which item and rank. Private to this format.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/torch_checkpointing/metadata.h"

namespace shardscope::torch_checkpointing {

// "model_3.pt": item "model", rank 3. nullopt where the name does not end in a rank.
struct ItemName {
    std::string item;
    uint32_t rank = 0;
};
std::optional<ItemName> parseItemName(std::string_view name);

// Whether the files of items alone make this one of its checkpoints: names, and the name that torch.save
// gives an archive that is not written to a file of its own.
bool holdsItemFiles(const Source& source);

struct ItemFile {
    std::string name;
    Layout::Kind kind = Layout::Kind::torch;
    std::string item;
    std::vector<uint32_t> ranks;  // which it is of; more than one where they all wrote the same path
    bool ranked = true;           // the name says so, or the metadata
    uint64_t size = 0;
};
// Files other than those that the metadata names, which belong to items without a place in it. `known` is
// sorted.
std::vector<ItemFile> otherItemFiles(const Source& source, const std::vector<std::string>& known);

}  // namespace shardscope::torch_checkpointing
