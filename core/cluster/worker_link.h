// The coordinator's end of one worker: starts it, or takes it as it comes, and talks to it (messages.h). One
// thread uses it; interrupt() is for others.
#pragma once

#include <functional>
#include <string>

#include <nlohmann/json.hpp>

#include "base/mutex.h"
#include "cluster/coordinator.h"
#include "cluster/peers.h"
#include "hosts/agent_messages.h"
#include "hosts/launch.h"

namespace shardscope {

class SlurmAllocation;  // cluster/slurm.h

class WorkerLink {
  public:
    using Clock = Channel::Clock;
    // `stopping` returns true once the worker is not needed any more.
    WorkerLink(const CoordinatorOptions& options, size_t index, std::string name,
               std::function<bool()> stopping);
    ~WorkerLink();

    const std::string& name() const { return name_; }
    const std::string& machine() const { return machine_; }  // its host, as the worker names it
    // How other workers reach it.
    Peer peer() const;

    // Starts the worker. `allocation` is where Slurm's run; null for others. Errors: cancelled, and those of
    // launchAgent() and RankListener::accept().
    Status launch(const SlurmAllocation* allocation, Clock::time_point comesBy);
    // Learns who it is, and has it serve its files where workers do. Errors: remote, damaged; why it cannot
    // take part, which refused() tells from these.
    Status meet(const std::string& token);
    // Sends it the job, and waits until it is ready. `fields` and `body` complete the message (messages.h).
    // Returns the UUID of its GPU, empty without one. Errors: as meet().
    Result<std::string> start(nlohmann::json fields, std::string body);

    bool refused() const { return refused_; }

    // One message, its body left out; null when none has come by then or interrupt() was called. Beats of
    // workers on other hosts are answered. Errors: remote (it is gone, or silent), damaged.
    Result<nlohmann::json> next(Clock::time_point deadline);
    Status send(const nlohmann::json& json, std::string body = {});
    void interrupt();  // thread-safe

    // Ends it, in order when it listens; after this it writes no more. `idle`: it has nothing under way.
    void end(bool idle);
    // An error of the connection, with how its process ended where it did.
    std::string reasonOf(const Error& error);

  private:
    Result<nlohmann::json> answerTo(std::string_view what);
    uint64_t silence() const;

    const CoordinatorOptions& options_;
    const size_t index_;
    std::string name_, machine_, address_;
    const std::function<bool()> stopping_;
    Launched launched_;
    Mutex mutex_;
    Channel* channel_ SHARDSCOPE_GUARDED_BY(mutex_) = nullptr;
    bool refused_ = false;
    uint16_t port_ = 0;
    int device_ = 0;  // the GPU that would be its own
    Clock::time_point heard_{};
    Silence silence_{};
};

}  // namespace shardscope
