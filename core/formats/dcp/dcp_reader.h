// Opens a DCP directory. Private to this format.
#pragma once

#include <memory>

#include "formats/format.h"

namespace shardscope::dcp {

// Certain: `.metadata` or `__R.metadata` with .distcp files, or with the first bytes of such a pickle.
Probe probeDcp(const Source& source);
// Errors: damaged with file and byte, unsupported (layouts of torch 1.12 and 1.13), limit, notFound.
Result<std::unique_ptr<Reader>> openDcp(const Source& source, const OpenOptions& options);

}  // namespace shardscope::dcp
