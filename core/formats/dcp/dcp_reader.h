// Opens a DCP directory. Private to this format.
#pragma once

#include <memory>

#include "formats/format.h"

namespace shardscope::dcp {

// certain: `.metadata` or per-rank `.<rank>.metadata` files are there.
Probe probeDcp(const Source& source);
// Errors: damaged with file and byte, unsupported (layouts of torch 1.12 and 1.13), limit, notFound.
Result<std::unique_ptr<Reader>> openDcp(const Source& source, const OpenOptions& options);

}  // namespace shardscope::dcp
