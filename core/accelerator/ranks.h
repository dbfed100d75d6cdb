// Which rank of which group this process is: from options, or from what started it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/result.h"

namespace shardscope {

struct RankInfo {
    int rank = 0, size = 1;
    int localRank = 0;        // among those of this host
    std::string host;         // of rank 0; empty = this machine
    uint16_t port = 0;        // of rank 0; 0 = one that is free, where rank 0 starts the others
    bool storeThere = false;  // torchrun keeps a store at that port, so that rank 0 makes none
    std::string group;        // what tells this group from others at the same port
    std::string launcher;     // "torchrun", "mpirun", "srun", "options", "alone"
};

// From the environment: SHARDSCOPE_RANK and its like (our own launcher), then torchrun's, Open MPI's and
// Slurm's variables; whoever starts ranks inside another's step counts. Alone where there is nothing.
// `variable` reads one; `firstHost` the first host of a Slurm list, where MASTER_ADDR says none. Errors:
// usage (a variable that is not a number, a rank outside its group, no address of rank 0).
Result<RankInfo> rankPlace(const std::function<std::optional<std::string>(const char* name)>& variable,
                           const std::function<Result<std::string>(const std::string& list)>& firstHost);
// Of this process; the first host by `scontrol show hostnames`.
Result<RankInfo> rankPlace();

}  // namespace shardscope
