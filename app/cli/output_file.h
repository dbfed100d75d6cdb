// Files that verbs write besides their answer: reports.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "storage/parents.h"

namespace shardscope::cli {

enum class Replace : uint8_t {
    no,
    yes,
    earlierReport,  // what a run of the same job may have written: a JSON document of this program
};

// That its directory is there, and that it is not part of the checkpoint `source`. Errors: io, usage.
Status checkOutputPlace(const std::string& file, const std::string& source);

// What can be known before the work: that, and whether something is in the way. Errors: io, usage, exists.
Status checkOutputFile(const std::string& file, const std::string& source, Replace replace);

// The same before long work, so that what cannot be written is known early: makes the directories above it.
Status prepareOutputFile(const std::string& file, const std::string& source, Replace replace,
                         Parents& parents);

// Whole or not at all (engine/whole_file.h); devices and pipes are written to. Errors: exists, those of
// writing.
Status writeOutputFile(const std::string& file, std::string_view text, Replace replace);

}  // namespace shardscope::cli
