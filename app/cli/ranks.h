// Conversions by ranks that serve each other their files (`--on ranks`): started here, or by torchrun, mpirun
// or srun. Rank 0 coordinates, the others are its workers.
#pragma once

#include "cli/convert.h"
#include "cluster/accelerator.h"

namespace shardscope::cli {

// --on and what goes with ranks alone. The command outlives the verb.
void addRankWords(CLI::App& verb, ConvertCommand& command);

Result<int> convertByRanks(const Context& context, const ConvertCommand& command, Ranks ranks);

Accelerator acceleratorOf(const Context& context);

}  // namespace shardscope::cli
