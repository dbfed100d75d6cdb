// Groups the rank files of a directory into sets, by name. Private to this format.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/format.h"

namespace shardscope::torch_ranks {

enum class Kind : uint8_t { model, optimizer, extra };

// What the names of the files of one set have in common.
struct RankPattern {
    std::string pattern;            // the name with "{rank}" in place of the rank
    std::optional<uint32_t> world;  // world size in the name
    Kind kind = Kind::model;
    std::string prefix;   // prefix of its entries' names: "", "optim.", "extra_state."
    bool known = false;   // a name of verl or Accelerate, not of a script
    bool ranked = false;  // the name says that its number is a rank
    size_t width = 1;     // digits of the rank, zero-padded
};
struct RankName : RankPattern {
    uint32_t rank = 0;
};
// nullopt for a name without a rank's number.
std::optional<RankName> parseRankName(std::string_view name);

// The files of one pattern.
struct FileSet : RankPattern {
    std::map<uint32_t, const DirectoryEntry*> files;  // by rank

    std::string nameOf(uint32_t rank) const;
};
// The directory's entries. If it has no rank files itself, adds the files of at most `most` subdirectories of
// ranks ("rank_0/model.pt").
std::vector<DirectoryEntry> entriesOfRanks(const Source& source, size_t most);
// The sets of a directory: models, then optimizers, then others. `entries` must outlive the sets.
std::vector<FileSet> findFileSets(const std::vector<DirectoryEntry>& entries);

}  // namespace shardscope::torch_ranks
