// Opens a tag's files as one checkpoint. Private to this format.
#pragma once

#include <memory>

#include "formats/deepspeed/file_names.h"

namespace shardscope::deepspeed {

Result<std::unique_ptr<Reader>> openTag(const Source& source, const OpenOptions& options, Tag tag);

}  // namespace shardscope::deepspeed
