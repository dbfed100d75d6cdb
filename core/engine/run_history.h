// What the earlier steps of a checkpoint's run say about it. Private to this room.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "expectation/contents.h"
#include "expectation/stale_files.h"

namespace shardscope {

struct HistoryQuestion {
    const Checkpoint& checkpoint;
    std::string path;  // of its step, absolute: a directory, or a file where the steps are files
    StepOnDisk step;   // empty contents for a file
    std::set<std::string, std::less<>> own;  // files of the step that the reader knows
    HeldByFile held;                         // of those with tensors, which
    const Contract& contract;
    ValidateLevel level = ValidateLevel::files;
    const Resources& resources;
    // What a step lacks without regard to its run.
    std::function<Result<std::vector<Note>>(const Checkpoint& earlier, ValidateLevel level)> alone;
};

// Files, tensors and shapes that the last whole steps have and this one lacks; a save that was mixed with
// another. Nothing outside of a run. Opens an earlier step only where its files differ from those of this
// one. Errors: cancelled, limit.
Result<std::vector<Note>> runHistoryNotes(const HistoryQuestion& question);

}  // namespace shardscope
