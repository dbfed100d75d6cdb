// A directory that holds several checkpoints, none of which is meant more than the others: what there is to
// choose from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace shardscope {

struct OneOfSeveral {
    std::string path;    // relative to the directory; may have several parts
    std::string what;    // "PyTorch distributed checkpoint (DCP)", "run, 3 steps"
    uint64_t bytes = 0;  // of the files in it; 0 = not known
};

// Checkpoints and runs in a directory of this machine, by name; looks at names and first bytes only. Empty
// where there are none, and where it cannot be listed.
std::vector<OneOfSeveral> severalIn(const std::string& directory);

}  // namespace shardscope
