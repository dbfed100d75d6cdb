// The workers of a job, as --on names them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cluster/coordinator.h"
#include "cluster/peer_files.h"

namespace shardscope {

// Ranks, which serve each other their files.
struct Ranks {
    unsigned count = 0;  // started here; 0 = by a launcher, of which this process is one
    bool gpus = false;   // one for each GPU of this machine, over NCCL
    SourceMode mode = SourceMode::automatic;
};
struct WorkerList {
    std::vector<WorkerSpec> workers;  // that this program starts
    std::optional<Ranks> ranks;       // instead of workers
};
// "local:4", "ssh:HOST[,HOST...]", "slurm[:KEY=VALUE,...]", several of them joined by '+'; or
// "ranks[:4][,MODE]", "local-gpus[,MODE]". Errors: usage.
Result<WorkerList> parseWorkers(std::string_view text);

// The same of a job, which no launcher starts. Errors also: usage ("ranks").
Result<WorkerList> workersOfJob(std::string_view text);

// The number of GPUs that the driver of this machine shows.
unsigned gpusHere();

}  // namespace shardscope
