// A step that is several files or directories side by side: model, optimizer and further state, as one
// checkpoint. Private to this room.
#pragma once

#include "engine/engine.h"

namespace shardscope {

// Chooses among files of one directory that are checkpoints each. It takes the only one, or the one with the
// weights if the others are state that belongs to it (companions.h). The answer is nullopt where more than
// one could be meant; in the directory of a step (`isStep`) only where none is named like weights.
std::optional<std::string> fileOfWeights(const std::vector<std::string>& files, bool isStep);
// Whether a file is state beside a model and never stands for a checkpoint while there is anything else.
bool isSmallState(std::string_view name);

// The checkpoint in a directory of `source`: itself, or the only one in it ("actor/dist_ckpt"), as a path
// relative to `source`. The answer is nullopt where there is none, or more than one.
std::optional<std::string> checkpointIn(const Source& source, const std::string& name);
// Whether it has a directory that is named like weights or optimizer state and holds a checkpoint.
bool holdsParts(const Source& source);

// Opens the directories of one save, such as "model" and "optim", Accelerate's pytorch_model_fsdp_N and
// optimizer_N, or "actor" and "critic", as one checkpoint. The first that holds weights keeps its names.
// Optimizer state beside it gets that role. Further models get the name of their directory as a prefix.
// nullopt where `source` does not hold two such parts. Errors: those of opening them.
struct OpenParts {
    const Format* format = nullptr;  // of the first
    std::unique_ptr<Reader> reader;
};
Result<std::optional<OpenParts>> openParts(const Source& source, const CheckpointOptions& options);

}  // namespace shardscope
