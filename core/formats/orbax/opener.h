// Opens an item, a step with several items, or a Flax file: fills the catalog. Sources: orbax.checkpoint
// (_src/serialization, _src/metadata) and flax.training.checkpoints; docs/formats/orbax.md.
#pragma once

#include <memory>

#include "formats/format.h"

namespace shardscope::orbax {

// Errors: damaged with file and offset, unsupported (naming the array), limit, cancelled, those of reading.
Result<std::unique_ptr<Reader>> openDirectory(const Source& source, const OpenOptions& options);
Result<std::unique_ptr<Reader>> openFlaxFile(const Source& source, const OpenOptions& options);
Result<std::unique_ptr<Reader>> openLevanter(const Source& source, const OpenOptions& options);

}  // namespace shardscope::orbax
