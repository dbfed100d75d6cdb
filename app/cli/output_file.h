// Files that verbs write besides their answer: reports.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace shardscope::cli {

// What can be known before the work: its directory is there, and it is not part of the checkpoint `source`.
// Errors: io, usage.
Status checkOutputFile(const std::string& file, const std::string& source);

// Replaces what the file holds; devices and pipes are written to. Errors: those of writing.
Status writeOutputFile(const std::string& file, std::string_view text);

}  // namespace shardscope::cli
