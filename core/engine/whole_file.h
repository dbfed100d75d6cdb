// Small files that appear whole or not at all, and where none may appear.
#pragma once

#include <string>
#include <string_view>

#include "storage/file_system.h"

namespace shardscope {

// Puts the bytes at `file`, by way of a file of another name beside it; with `replace` in place of the one
// that is there. Errors: exists (something is there and `replace` is not set), those of writing.
Status putWholeFile(FileSystem& fileSystem, const std::string& file, std::string_view bytes, bool replace);

// Nothing is ever written into a checkpoint. Errors: usage when `file` is inside `checkpoint`, or is it.
Status checkOutside(const std::string& file, const std::string& checkpoint);

}  // namespace shardscope
