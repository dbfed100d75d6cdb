// The state of the processes that share a job, for those who watch it here or from another host.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/progress.h"

namespace shardscope {

// What a worker is doing, for people.
struct WorkerState {
    enum class Phase : uint8_t { starting, working, idle, lost, ended };
    std::string name;      // "local 1", "node7"
    std::string slurmJob;  // whose node it works on; empty = none, or not known yet
    Phase phase = Phase::starting;
    uint64_t bytes = 0;  // written; during verification: verified
    size_t units = 0;    // done
    Progress::Busy busy{};
    std::string why;  // of `lost`; of `starting`: what Slurm says
};
std::string_view phaseName(WorkerState::Phase phase);

}  // namespace shardscope
