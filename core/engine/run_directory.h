// A directory of a training run, which holds the checkpoints of several steps in directories of their own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"

namespace shardscope {

struct RunStep {
    std::string name;   // "iter_0000100", "global_step_5", "checkpoint-500", "epoch=0-step=10.ckpt"
    int64_t step = -1;  // -1 = a name without a number, which the tracker names
    bool file = false;  // a checkpoint that is one file; else a directory
};

struct RunDirectory {
    std::vector<RunStep>
        steps;  // newest first; one that the tracker names and that has no number before them
    // The file that names the step to resume from (Megatron's and verl's latest_checkpointed_iteration.txt,
    // DeepSpeed's latest), or an entry that is this step (Lightning's last.ckpt). Empty = none.
    std::string tracker;
    std::string tracked;  // what it names; the name of a directory where there is one for it
    bool trackedExists = false;
    bool tracks(const RunStep& step) const { return trackedExists && step.name == tracked; }
};

// Whether a directory of this name is a step of a run: "checkpoint-500", "iter_0000100", "2000".
bool isStepName(std::string_view name);
// Its number; nullopt of other names.
std::optional<int64_t> stepNumber(std::string_view name);

// The steps of a directory by the names in it; nullopt when it holds none. Reads the tracker
// only.
std::optional<RunDirectory> findRun(const Source& source);

// A directory that was named where a checkpoint is meant, and what it holds.
struct Run {
    Source source;
    RunDirectory directory;
    std::string pathOf(const RunStep& step) const;
    std::string missingStep() const;  // a sentence, where the tracker names a step that is not there
};
// nullopt where `path` is a file or holds no steps. Errors: those of sourceFor(); usage where it holds
// several runs.
Result<std::optional<Run>> openRun(const std::string& path, const CheckpointOptions& options = {});

// As openCheckpoint(), for callers that show a run as it is. That is a directory that is not a checkpoint
// itself, or that has several steps and a tracker.
using CheckpointOrRun = std::variant<Checkpoint, Run>;
Result<CheckpointOrRun> openCheckpointOrRun(const std::string& path, const CheckpointOptions& options = {});

// What stands for a directory that is not a checkpoint itself. It is the step that the tracker names, the
// only step, or the only directory in it that is a checkpoint.
struct RunChoice {
    std::string path;   // relative to the directory; may have several parts
    std::string why;    // "named by latest_checkpointed_iteration.txt"
    bool step = false;  // it is a step of a run, or a run; else a part of a step
    bool run = false;   // it is a run
};
// nullopt when nothing in it is a checkpoint. Errors: usage when several could be meant (the message lists
// them); notFound (file.missing) when the tracker names a step that is not there.
Result<std::optional<RunChoice>> chooseInRun(const Source& source);

}  // namespace shardscope
