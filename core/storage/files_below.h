// Looks into directories and their subdirectories, for formats that nest their files.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
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

// Whether the first directories below `below`, at most `steps` deep, lead to one with an entry that `fits`.
bool leadsTo(const Directory& directory, std::string below, int steps,
             const std::function<bool(const DirectoryEntry&)>& fits);

// The last name of a path; the path without it, which is empty where there is one name alone.
std::string_view lastNameOf(std::string_view path);
std::string_view directoryOf(std::string_view path);

}  // namespace shardscope
