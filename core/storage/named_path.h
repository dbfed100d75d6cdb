// Paths as people write them. Pure but for the names of users and of this host.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace shardscope {

// "~" and "~user" at the start of a path, and file:// URLs, as paths of this machine. All else, what names no
// user and what checkScheme() refuses among it, is returned as it is.
std::string namedPath(std::string_view text);

// Errors: unsupported, for "name://" with a name that no part of this program reads, and for files of other
// hosts.
Status checkScheme(std::string_view path);

}  // namespace shardscope
