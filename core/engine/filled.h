// What --fill-gaps put in place of elements that the source did not hold, written down beside them. Their
// values alone do not tell a filled element from a genuine one.
#pragma once

#include <memory>
#include <string>

#include "engine/added_files.h"
#include "engine/engine.h"

namespace shardscope {

// The checkpoint, in which chunks of missing and truncated files hold nothing: their elements are gaps. It
// shares the reader of `source`, whose ids it keeps.
Checkpoint withoutLostChunks(const Checkpoint& source);

// Which elements of the wanted tensors no chunk of the source covers, when they are to be filled. And which
// an earlier conversion filled in: `before` is the source's own record.
FilledElements filledBy(const Catalog& source, const TargetSpec& spec, FillGaps fill,
                        const FilledElements& before);

// The record as one more file of the destination, kFilledName.
AddedFile recordOf(const FilledElements& filled);

// For a destination that is a single file, once it is in place: writes the record beside it, as
// "NAME.filled.json". Where nothing was filled, it removes that of an earlier file.
Status putRecordBeside(const std::string& destination, const FilledElements& filled);

// The record of a checkpoint; without tensors when it has none. Errors: damaged, limit, io.
Result<FilledElements> readFilled(const Checkpoint& checkpoint);

}  // namespace shardscope
