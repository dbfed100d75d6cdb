// The sample checkpoint that is part of the program: resources/sample/dcp-fsdp2-tp, a model and its optimizer
// on four ranks. So a newcomer sees the product without a checkpoint.
#pragma once

#include <string>

#include "base/result.h"

namespace shardscope {

// Its directory, $XDG_STATE_HOME/shardscope/sample/dcp-fsdp2-tp. What of it is not there, or is other than it
// was made, is written; some 100 KiB. Errors: those of putWholeFile() (engine/whole_file.h).
Result<std::string> sampleCheckpoint();

}  // namespace shardscope
