// A checkpoint as it looks through a recipe, without converting it.
#pragma once

#include <string>
#include <vector>

#include "engine/engine.h"

namespace shardscope {

struct Mapping {
    std::string map;  // a recipe: a file, one that is built in, or kAutomaticRecipe; empty = none
    std::vector<std::string> set;  // "NAME=VALUE" for its parameters
    std::vector<RenameRule> rename;
    MasterWeights masterWeights = MasterWeights::ignore;
    TensorChoice choice{};
    std::string format{};  // whose names kAutomaticRecipe looks for; empty = the checkpoint's own
    // As ConversionRequest::assets: the directory whose config.json counts where the checkpoint has none.
    std::string model{};
};

// The tensors and objects that the recipe makes, with the source of each; read with openPlanned() and
// readPlannedRegions(). `said` may be null, else it is told which recipe was chosen by the names, as a
// sentence. Errors: usage, impossible (the recipe does not fit the checkpoint).
Result<TargetSpec> mappedBy(const Checkpoint& checkpoint, const Mapping& mapping, const StopToken& stop = {},
                            std::string* said = nullptr);

}  // namespace shardscope
