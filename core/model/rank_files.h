// Whether the files of ranks stand under the names that their writers gave them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace shardscope {

// A file that one rank wrote, and what its contents say of that rank.
struct RankOrigin {
    std::string path;
    uint32_t rank = 0;              // by its name
    std::optional<int64_t> stated;  // the number of the process that wrote it
    std::optional<int> device;      // the number of the accelerator that all of its tensors were on
};
struct MisnamedFile {
    std::string path, why;
};

// Files of ranks that were exchanged or renamed. It is known where
// - files whose paths differ in one number were written by processes whose numbers do not grow with it. All
//   files of such paths must state different numbers: converters state one for all.
// - of two ranks the files of one kind say that the devices are the other way round than those of another
//   kind do. Which kind was exchanged is not known.
// At most one entry for each file, 100 in all.
std::vector<MisnamedFile> misnamedFiles(std::span<const RankOrigin> files);

}  // namespace shardscope
