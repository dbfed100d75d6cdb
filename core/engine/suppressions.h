// Findings that the user has accepted, with the reason, for window, page and command line alike; kept beside
// the user's settings, never beside the checkpoint.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/report.h"

namespace shardscope {

// The name under which findings of a checkpoint are accepted: its absolute path, or its address.
std::string acceptedName(const std::string& path);

// Whether a rule is about what is there at all: files, coverage, ranks, metadata. A gate counts such a
// finding even where somebody has accepted it, unless it is told otherwise.
bool isStructural(std::string_view rule);

// Not thread-safe. A change reads the file anew first, so that what another program has accepted meanwhile
// stays. Of two that write in the same instant the later one wins.
class SuppressionStore {
  public:
    // `file` is made on the first change; empty = suppressions.json in
    // $XDG_CONFIG_HOME/shardscope/shardscope. One that cannot be read counts as empty and is kept under
    // another name before it is replaced.
    explicit SuppressionStore(std::string file = {});
    const std::string& file() const { return file_; }

    // Those that hold for one checkpoint: its own, and those for every checkpoint.
    std::vector<Suppression> of(std::string_view checkpoint) const;
    // Who and when are filled in where they are empty. Errors: those of writing; it holds for this store all
    // the same.
    Status add(const std::string& checkpoint, Suppression suppression);
    Status remove(const std::string& checkpoint, std::string_view rule, std::string_view cause);

  private:
    struct Entry {
        std::string checkpoint;  // empty = every one
        Suppression suppression;
    };
    void load();
    Status save();
    bool drop(std::string_view checkpoint, std::string_view rule, std::string_view cause);

    std::string file_;
    std::vector<Entry> entries_;
    bool unreadable_ = false;
};

}  // namespace shardscope
