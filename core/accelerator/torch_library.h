// A process group of libtorch's c10d: over Gloo (TCP), or NCCL between GPUs; and the GPU that makes a
// worker's tiles. The only room that knows libtorch; linked by shardscope-worker alone.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "cluster/process_group.h"
#include "cluster/rendezvous.h"
#include "execute/tile_compute.h"

namespace shardscope {

// As MakeGroup.
Result<std::unique_ptr<ProcessGroup>> makeTorchGroup(const GroupSpec& spec,
                                                     const std::function<void(uint16_t port)>& listening);

struct GpuCompute {
    std::unique_ptr<TileCompute> compute;
    std::string uuid;
};
// Errors: impossible (no driver, no such device, no compiler).
Result<GpuCompute> openGpu(int device);

// GPUs that NCCL can use here. Errors: impossible (the module or NCCL is missing).
Result<int> ncclDevices();

// Where torchrun keeps a store at the place of the ranks, rank 0 says there where it listens, and the others
// wait for that. Errors: remote.
Result<std::string> shareThroughStore(const RankInfo& place, const std::optional<std::string>& mine,
                                      std::chrono::seconds patience);

// What this was built with: "2.15.0".
std::string torchVersion();

}  // namespace shardscope
