// Whether the small files of a step hold what their names say.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/stop.h"
#include "expectation/contract.h"

namespace shardscope {

// Opens a file, a path in the step, as the format that takes it for one of its own. Errors: those of opening;
// `unsupported` where no format takes it.
using OpenAsFormat = std::function<Status(const std::string& path)>;

// Files that a resumed run reads and that no reader has opened (`known` are the others): empty ones aside
// (lacking.h), those of zero bytes, those that end too early and those that are not the JSON or the archive
// that they should be. Reads each of up to 64 MiB once, at most some thousands. Errors: cancelled.
Result<std::vector<Note>> contentNotes(const Directory& directory, const StepContents& step,
                                       const Contract& contract,
                                       const std::set<std::string, std::less<>>& known,
                                       const OpenAsFormat& open, const StopToken& stop);

// A step where its files are.
struct StepOnDisk {
    std::shared_ptr<const Directory> directory;
    StepContents contents;
};
// Data files whose end is zero bytes, while that of none of their kind in the earlier steps is: what a power
// loss leaves of bytes that were not on the disk yet. Reads some KiB of each. Errors: cancelled.
Result<std::vector<Note>> zeroTailNotes(const StepOnDisk& step, const Contract& contract,
                                        const std::vector<StepOnDisk>& earlier, const StopToken& stop);

}  // namespace shardscope
