// Lists a directory with its subdirectories, for formats that nest their files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "storage/file_system.h"

namespace shardscope {

// A directory that cannot be listed: a link that leaves the checkpoint's directory, or one of somebody else.
enum class Closed : uint8_t { error, skip };

// Lists the files below `root`, at most `levels` directories deep, sorted by path. Entry names are paths
// relative to `root`. Errors: those of listing `root` and, unless they are skipped, directories below; limit
// for more than a million entries.
Result<std::vector<DirectoryEntry>> filesBelow(const Directory& directory, const std::string& root,
                                               int levels, Closed closed = Closed::error);

}  // namespace shardscope
