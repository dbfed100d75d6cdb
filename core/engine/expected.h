// What should be there: the expectation of a checkpoint (core/expectation), with the directory and the run
// around it.
#pragma once

#include "engine/engine.h"

namespace shardscope {

// What the checkpoint lacks of what its framework, its model, its own tensors and its run say, as notes with
// rules of `validate`. Paths of files are relative to Checkpoint::root. Level `metadata` looks at names and
// sizes, deeper ones also into the small files that no reader opens. Where a step lacks files that earlier
// steps of its run have, the earlier ones are judged, too. Errors: cancelled, limit.
Result<std::vector<Note>> expectedNotes(const Checkpoint& checkpoint, ValidateLevel level,
                                        const Resources& resources);

// What it lacks of the model that a config.json states: the file, or the directory that holds it without
// weights. nullopt where `path` is neither. Errors: usage where the file does not say how large the model is.
Result<std::optional<std::vector<Note>>> expectedModelNotes(const Checkpoint& checkpoint,
                                                            const std::string& path);

}  // namespace shardscope
