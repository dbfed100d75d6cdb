// What a directory and those below it hold, for formats that nest their files.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "storage/file_system.h"

namespace shardscope {

// The files below `root`, at most `levels` directories deep, in the order of their paths, which are relative
// to `root` and stand in the entries' names. Errors: those of listing; limit for more than a million entries.
Result<std::vector<DirectoryEntry>> filesBelow(const Directory& directory, const std::string& root,
                                               int levels);

}  // namespace shardscope
