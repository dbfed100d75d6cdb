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

// Of the files that a resumed run reads and that no reader has opened (`known` are those that one has), the
// damaged ones. They hold nothing but zero bytes, end too early, or are not the JSON or archive that their
// names say. Empty files are in lacking.h. Reads each file of up to 64 MiB once, at most some thousands of
// files. Errors: cancelled.
Result<std::vector<Note>> contentNotes(const Directory& directory, const StepContents& step,
                                       const Contract& contract,
                                       const std::set<std::string, std::less<>>& known,
                                       const OpenAsFormat& open, const StopToken& stop);

// Whether two files have the same bytes. Of files of more than 16 MiB samples are read. False where one
// cannot be read.
bool sameContent(const ReadFile& a, const ReadFile& b);
// The last bytes of a file, where archives have checksums of their content. Empty where it cannot be read.
std::string endOf(const ReadFile& file);

// A step where its files are.
struct StepOnDisk {
    std::shared_ptr<const Directory> directory;
    StepContents contents;
};
// Data files that end in zero bytes, while none of their kind in the earlier steps does. A power loss leaves
// zeros for bytes that were not on the disk yet. Reads some KiB of each. Errors: cancelled.
Result<std::vector<Note>> zeroTailNotes(const StepOnDisk& step, const Contract& contract,
                                        const std::vector<StepOnDisk>& earlier, const StopToken& stop);

}  // namespace shardscope
