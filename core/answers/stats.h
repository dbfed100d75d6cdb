// What the values of a checkpoint, or of the steps of a run, are like (survey/value_history.h).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "answers/json.h"
#include "answers/runs.h"
#include "survey/value_history.h"

namespace shardscope {

struct Stats {
    std::string path;  // as opened
    ValuesBy by = ValuesBy::module;
    ValueHistory history;                                       // a checkpoint is one step
    std::vector<std::pair<std::string, std::string>> left_out;  // steps, and why they have no values
};
// Reads all values of steps whose values are not known; of a run, and of a step of one, they are remembered
// with the verdicts. `readAll` false: only what is known. Errors: those of opening and reading a checkpoint;
// what is wrong with one step of a run is in the answer.
Result<Stats> statsOf(const Access& access, const CheckpointOrRun& opened, ValuesBy by, bool readAll = true);
// Of the checkpoint as it was opened; nothing is remembered.
Result<Stats> statsOf(const Access& access, const Checkpoint& checkpoint, ValuesBy by);
Json statsJson(const Access& access, const Stats& stats);  // shardscope.stats/1

}  // namespace shardscope
