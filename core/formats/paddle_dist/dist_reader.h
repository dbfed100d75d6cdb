// Opening a distributed checkpoint.
#pragma once

#include "formats/format.h"

namespace shardscope::paddle {

Probe probeDist(const Source& source);
// `options.variant` "id=N" chooses one of several saves in the directory; else the highest complete one is
// taken.
Result<std::unique_ptr<Reader>> openDist(const Source& source, const OpenOptions& options);

}  // namespace shardscope::paddle
