// Recognizes and opens one file of paddle.save.
#pragma once

#include "formats/format.h"

namespace shardscope::paddle {

Probe probeSave(const Source& source);
Result<std::unique_ptr<Reader>> openSave(const Source& source, const OpenOptions& options);

}  // namespace shardscope::paddle
