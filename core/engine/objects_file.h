// --objects: what a target cannot hold is kept beside it, as a torch.save file of its own. Private to this
// room.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "engine/engine.h"

namespace shardscope {

// Of the objects that stay out, with their values: those that the file can hold, and why it cannot hold the
// others, by name.
struct CompanionObjects {
    std::vector<ObjectInfo> kept;
    std::unordered_map<std::string, std::string> refused;
};
// Errors: those of reading the objects.
Result<CompanionObjects> companionObjects(const Checkpoint& source, const std::vector<PlanLeftOut>& leftOut);

// Checks before the conversion begins what would stop writeObjectsFile() at its end. A file that exists
// passes where unfinished work for the same destination exists: an earlier run may have written it. Errors:
// exists, io, usage.
Status checkObjectsFile(const ConversionRequest& request, const PreparedConversion& prepared);
// Accepts an existing file that holds just these objects. Errors: exists, those of reading and writing.
Status writeObjectsFile(const PreparedConversion& prepared, const ConversionRequest& request);

}  // namespace shardscope
