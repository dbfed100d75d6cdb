// What a program can do beyond what all can, where it links core/accelerator and hands this in. Null members
// = it cannot.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "cluster/process_group.h"
#include "cluster/rendezvous.h"
#include "execute/tile_compute.h"

namespace shardscope {

struct GpuCompute {
    std::unique_ptr<TileCompute> compute;
    std::string uuid;
};

struct Accelerator {
    // As MakeGroup, over libtorch's Gloo (TCP), or NCCL between GPUs. Errors also: impossible (no libtorch).
    Result<std::unique_ptr<ProcessGroup>> (*makeGroup)(
        const GroupSpec& spec, const std::function<void(uint16_t port)>& listening) = nullptr;
    // Errors: impossible (no driver, no such device, no compiler).
    Result<GpuCompute> (*openGpu)(int device) = nullptr;
    // GPUs that NCCL can use here. Errors: impossible (the module or NCCL is missing).
    Result<int> (*ncclDevices)() = nullptr;
    // Where torchrun keeps a store at the place of the ranks, rank 0 says there where it listens, and the
    // others wait for that. Errors: remote.
    Result<std::string> (*shareThroughStore)(const RankInfo& place, const std::optional<std::string>& mine,
                                             std::chrono::seconds patience) = nullptr;
    // What groups need, without loading it: libtorch, or NCCL's module. Errors: impossible, with what to do.
    Result<std::string> (*findTorch)() = nullptr;
    Result<std::string> (*findNccl)() = nullptr;
};
}  // namespace shardscope
