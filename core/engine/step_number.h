// The step that a checkpoint says that it was saved at, as opposed to its name. Private to this room.
#pragma once

#include <optional>
#include <string>

#include "engine/engine.h"
#include "expectation/contract.h"

namespace shardscope {

constexpr char kTrainerState[] = "trainer_state.json";

struct StatedStep {
    int64_t step = 0;
    std::string where;  // the object, or the file: "trainer_state.json"
};
// Of an object called as frameworks call it ("global_step", "iteration"), else of the files of the step that
// say it; nullopt where nothing does. Reads such objects, and small files of `directory`, which
// may be null.
std::optional<StatedStep> statedStep(const Checkpoint& checkpoint, const Directory* directory,
                                     const StepContents& contents);

}  // namespace shardscope
