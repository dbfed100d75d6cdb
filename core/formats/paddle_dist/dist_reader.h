// Recognizes and opens a Paddle distributed checkpoint.
#pragma once

#include "formats/format.h"

namespace shardscope::paddle {

Probe probeDist(const Source& source);
// `options.variant` "id=N" selects one of several saves in the directory. Default: the highest complete id.
Result<std::unique_ptr<Reader>> openDist(const Source& source, const OpenOptions& options);

}  // namespace shardscope::paddle
