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

struct RankName {
    std::string pattern;  // the name with "{rank}" in place of the rank
    uint32_t rank = 0;
    std::optional<uint32_t> world;  // world size in the name
    Kind kind = Kind::model;
    std::string prefix;   // prefix of its entries' names: "", "optim.", "extra_state."
    bool known = false;   // a name of verl or Accelerate, not of a script
    bool ranked = false;  // the name says that its number is a rank
    size_t width = 1;     // digits of the rank, zero-padded
};
// nullopt for a name without a rank's number.
std::optional<RankName> parseRankName(std::string_view name);

// The files of one pattern.
struct FileSet {
    std::string pattern, prefix;
    Kind kind = Kind::model;
    std::optional<uint32_t> world;
    bool known = false, ranked = false;
    size_t width = 1;
    std::map<uint32_t, const DirectoryEntry*> files;  // by rank

    std::string nameOf(uint32_t rank) const;
};
// The directory's entries. If it has no rank files itself, adds the files of at most `most` subdirectories of
// ranks ("rank_0/model.pt").
std::vector<DirectoryEntry> entriesOfRanks(const Source& source, size_t most);
// The sets of a directory: models, then optimizers, then others. `entries` must outlive the sets.
std::vector<FileSet> findFileSets(const std::vector<DirectoryEntry>& entries);

}  // namespace shardscope::torch_ranks
