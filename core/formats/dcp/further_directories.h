// One DCP that is in several directories: hosts without a disk in common keep the .distcp files of their own
// ranks, and .metadata is with those of rank 0.
#pragma once

#include <string_view>

#include "formats/format.h"

namespace shardscope::dcp {

constexpr std::string_view kFurtherDirectories = "--also";  // option of opening

// The source with the files of the directories that --also names: those of ranks, and the metadata. All else
// is that of the source's own directory. Errors: unsafe (two directories have one file: they are not of one
// save), unsupported (a place of another kind than the source's), those of opening a directory.
Result<Source> withFurtherDirectories(const Source& source, const OpenOptions& options);

}  // namespace shardscope::dcp
