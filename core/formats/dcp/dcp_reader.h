#pragma once

#include <memory>

#include "formats/format.h"

namespace shardscope::dcp {

Probe probeDcp(const Source& source);
Result<std::unique_ptr<Reader>> openDcp(const Source& source, const OpenOptions& options);

}  // namespace shardscope::dcp
