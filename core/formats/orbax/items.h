// Tells the items of a step by the names in their directories, and the role of a tensor by its path. Private
// to this format. Sources: orbax.checkpoint (_src/serialization, _src/metadata), flax.training.checkpoints
// and t5x/checkpoints.py.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "formats/format.h"

namespace shardscope::orbax {

bool has(const std::vector<DirectoryEntry>& entries, std::string_view name,
         DirectoryEntry::Kind kind = DirectoryEntry::Kind::file);

// Whether the directory at `prefix` is an item with arrays, by names and first bytes. `prefix` is empty or
// ends in a slash.
bool isArrayItem(const Directory& directory, const std::string& prefix,
                 const std::vector<DirectoryEntry>& entries);
// The file name of an item that is one JSON document; empty for other items.
std::string jsonOfItem(const std::string& item, const std::vector<DirectoryEntry>& entries);

// `item`: its name. `t5x`: the tree is T5X's, whose "state" is that of the optimizer.
Role roleOf(const Path& path, std::string_view item, bool t5x);

// Opens an item or a step with several items; a Flax file; a checkpoint of Levanter: fills the catalog.
// Errors: damaged with file and offset, unsupported (naming the array), limit, cancelled, those of reading.
Result<std::unique_ptr<Reader>> openDirectory(const Source& source, const OpenOptions& options);
Result<std::unique_ptr<Reader>> openFlaxFile(const Source& source, const OpenOptions& options);
Result<std::unique_ptr<Reader>> openLevanter(const Source& source, const OpenOptions& options);

}  // namespace shardscope::orbax
