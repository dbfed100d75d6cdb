// What the module shardscope_torch exports. Loading libtorch takes half a second of processor time, so only
// what needs it does; it is there already then. Private to this room.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "cluster/process_group.h"
#include "cluster/rendezvous.h"

namespace shardscope {

struct TorchFunctions {
    static constexpr const char* kFile = "libshardscope_torch.so";
    static constexpr const char* kNcclFile = "libshardscope_nccl.so";  // beside it
    static constexpr const char* kEntry = "shardscope_torch";          // const TorchFunctions* ()

    const char* version;
    // As makeTorchGroup(); `address` is where the others reach this rank.
    Result<std::unique_ptr<ProcessGroup>> (*makeGroup)(const GroupSpec& spec, const std::string& address,
                                                       const GroupForming& forming);
    // As those of Accelerator.
    Result<int> (*ncclDevices)();
    Result<std::string> (*shareThroughStore)(const RankInfo& info, const std::optional<std::string>& address,
                                             std::chrono::seconds patience);
};

}  // namespace shardscope
