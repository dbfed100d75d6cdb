// Lists a directory with its subdirectories, for formats that nest their files.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "storage/file_system.h"

namespace shardscope {

// Lists the files below `root`, at most `levels` directories deep, sorted by path. Entry names are paths
// relative to `root`. Errors: those of listing; limit for more than a million entries.
Result<std::vector<DirectoryEntry>> filesBelow(const Directory& directory, const std::string& root,
                                               int levels);

}  // namespace shardscope
