// A checkpoint as it looks through a recipe, without converting it.
#pragma once

#include <string>
#include <vector>

#include "engine/engine.h"

namespace shardscope {

struct Mapping {
    std::string map;               // a recipe: a file, or one that is built in; empty = none
    std::vector<std::string> set;  // "NAME=VALUE" for its parameters
    std::vector<RenameRule> rename;
    MasterWeights masterWeights = MasterWeights::ignore;
};

// The tensors and objects that the recipe makes, with the source of each; read with openPlanned() and
// readPlannedRegions(). Errors: usage, impossible (the recipe does not fit the checkpoint).
Result<TargetSpec> mappedBy(const Checkpoint& checkpoint, const Mapping& mapping, const StopToken& stop = {});

}  // namespace shardscope
