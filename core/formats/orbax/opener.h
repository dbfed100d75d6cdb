// Fills the catalog of an item, of a step with several, or of a file of Flax. Sources: orbax.checkpoint
// (_src/serialization, _src/metadata) and flax.training.checkpoints; docs/formats/orbax.md.
#pragma once

#include <memory>

#include "formats/format.h"

namespace shardscope::orbax {

// Whether names and first bytes say that the directory at `prefix` (empty, or with a slash at its end) is an
// item that holds arrays.
bool isArrayItem(const Directory& directory, const std::string& prefix,
                 const std::vector<DirectoryEntry>& entries);
// The name of the file of an item that is one JSON document; empty if it is not one.
std::string jsonOfItem(const std::string& item, const std::vector<DirectoryEntry>& entries);

// Errors: damaged with file and offset, unsupported (naming the array), limit, cancelled, those of reading.
Result<std::unique_ptr<Reader>> openDirectory(const Source& source, const OpenOptions& options);
Result<std::unique_ptr<Reader>> openFlaxFile(const Source& source, const OpenOptions& options);
Result<std::unique_ptr<Reader>> openLevanter(const Source& source, const OpenOptions& options);

}  // namespace shardscope::orbax
