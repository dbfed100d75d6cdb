// What a program can do that links core/accelerator and hands this in; elsewhere each function gives
// `impossible`.
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
    template <class T, class... Args>
    static Result<T> cannot(Args...) {
        return makeError(ErrorCode::impossible, "this program can use neither libtorch nor GPUs")
            .withHint("an installed shardscope can; without them ranks work over TCP, by the processor");
    }
    // As MakeGroup, over libtorch's Gloo (TCP), or NCCL between GPUs. Errors also: impossible (no libtorch).
    Result<std::unique_ptr<ProcessGroup>> (*makeGroup)(const GroupSpec& spec,
                                                       const GroupForming& forming) = cannot;
    // Errors: impossible (no driver, no such device, no compiler).
    Result<GpuCompute> (*openGpu)(int device) = cannot;
    // The number of GPUs that NCCL can use here. Errors: impossible (the module or NCCL is missing).
    Result<int> (*ncclDevices)() = cannot;
    // Where torchrun keeps a store for the ranks: rank 0 writes its `address` there, and the others, which
    // pass none, wait for it. Errors: remote.
    Result<std::string> (*shareThroughStore)(const RankInfo& info, const std::optional<std::string>& address,
                                             std::chrono::seconds patience) = cannot;
    // The path of libtorch, and of the module for NCCL, without loading it. Errors: impossible.
    Result<std::string> (*findTorch)() = cannot;
    Result<std::string> (*findNccl)() = cannot;
};

}  // namespace shardscope
