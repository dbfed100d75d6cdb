// Conversions by ranks that serve each other their files (`--on ranks`): started here, or by torchrun, mpirun
// or srun. Rank 0 coordinates, the others are its workers.
#pragma once

#include <optional>
#include <string>

#include "cli/convert.h"
#include "cluster/accelerator.h"
#include "cluster/places.h"

namespace shardscope::cli {

// --on and what goes with ranks alone. The command outlives the verb.
void addRankWords(CLI::App& verb, ConvertCommand& command);

// The ranks that --on names. Errors: usage, also where something else that is given is for ranks alone.
Result<std::optional<Ranks>> ranksOf(const ConversionRequest& request, const RankWords& words = {});
Result<int> convertByRanks(const Context& context, const ConvertCommand& command, Ranks ranks);

Accelerator acceleratorOf(const Context& context);

}  // namespace shardscope::cli
