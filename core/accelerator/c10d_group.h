// Ranks that talk through libtorch's c10d: over Gloo (TCP), or NCCL between GPUs. The only room that knows
// libtorch; linked by shardscope-worker alone.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "accelerator/ranks.h"
#include "execute/process_group.h"

namespace shardscope {

enum class GroupBackend : uint8_t { gloo, nccl };
std::string_view groupBackendName(GroupBackend backend);

// Who casts, scans and hashes a rank's tiles.
enum class GroupCompute : uint8_t {
    automatic,  // its GPU where bytes go between GPUs, else the processor
    cpu,
    gpu,
};

struct GroupOptions {
    RankInfo place;
    GroupBackend backend = GroupBackend::gloo;
    GroupCompute compute = GroupCompute::automatic;
    std::string words;    // that every rank must be started with; a rank that was not is told apart
    std::string address;  // that this rank's peers reach it at; empty = as it reaches rank 0
    size_t lanes = 2;
    std::chrono::milliseconds beat{1000};  // a rank that is silent for three of them is lost
    std::chrono::seconds patience{120};    // for all ranks to come
    // Until the group stands both are called from another thread. `hopeless` is asked again and again why it
    // never will; `stuck` is told that, or that the time is over and something still waits that cannot be
    // told to end (a stopped rank 0 may leave it so), and is to end the program.
    std::function<std::optional<Error>()> startupError;
    std::function<void(const Error&)> stuck;
};

// Waits for all ranks. `ready` is called on rank 0 once the others can come, with the port that they find it
// at. Errors: remote (a rank did not come, or cannot be reached), impossible (no NCCL or GPU here).
Result<std::unique_ptr<ProcessGroup>> makeGroup(const GroupOptions& options,
                                                const std::function<Status(uint16_t port)>& ready = {});

// What is linked: "2.15.0".
std::string torchVersion();

}  // namespace shardscope
