// Which files of a directory belong together as those of ranks, by their names. Private to this format.
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
    std::optional<uint32_t> world;  // that the name states
    Kind kind = Kind::model;
    std::string prefix;   // of the names in it: "", "optim.", "extra_state."
    bool known = false;   // verl's and Accelerate's names; those of scripts say less
    bool ranked = false;  // the name says that its number is a rank
    size_t width = 1;     // digits that the rank is filled up to
};
// nullopt for a name without the number of a rank.
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
// What is in the directory, with the files in directories of ranks below it ("rank_0/model.pt"), of which
// at most `most` are listed. Those count where the directory has no files of ranks itself.
std::vector<DirectoryEntry> entriesOfRanks(const Source& source, size_t most);
// The sets of a directory: models first, then optimizers, then the rest. `entries` outlive them.
std::vector<FileSet> findFileSets(const std::vector<DirectoryEntry>& entries);

}  // namespace shardscope::torch_ranks
