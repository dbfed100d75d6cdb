// Ranks that another program has started (torchrun, mpirun, srun): which one this process is, and how they
// find rank 0, whose workers the others become.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "base/mutex.h"
#include "cluster/launched_as.h"
#include "hosts/launch.h"
#include "hosts/socket.h"

namespace shardscope {

struct RankInfo {
    int rank = 0, size = 1;
    int localRank = 0;        // among those of this host
    std::string host;         // of rank 0; empty = this machine
    uint16_t port = 0;        // of rank 0
    bool storeThere = false;  // torchrun keeps a store at that port, in which rank 0 says where it listens
    uint16_t ports = 1;       // how many from `port` on rank 0 may listen at: the first that is free
    std::string group;        // what tells these ranks from others at the same port
    std::string launcher;     // "torchrun", "srun", ...; "alone"
    // Where that store cannot be used, ranks meet at one of the next ports.
    void leaveStore();
};

// From the environment, as launchedAs() says; without any variables the process is alone. `firstHost` finds
// the first host of a Slurm list, where MASTER_ADDR says none. Errors: usage (those of launchedAs(), no
// address of rank 0).
Result<RankInfo> rankInfo(const Variables& variable,
                          const std::function<Result<std::string>(const std::string& list)>& firstHost);
// Of this process; the first host by `scontrol show hostnames`.
Result<RankInfo> rankInfo();

// On rank 0: takes the connections of the other ranks.
class RankListener {
  public:
    // `port` is the first of RankInfo::ports. `words` are the options that all ranks must have been started
    // with.
    static Result<std::unique_ptr<RankListener>> open(const RankInfo& info, const std::string& host,
                                                      uint16_t port, std::string words);
    ~RankListener();
    uint16_t port() const { return listener_->port(); }

    struct Joined {
        Launched launched;  // a worker's channel, greeted
        std::string address;
        int localRank = 0;
    };
    // Waits for that rank to connect. Errors: usage (it was started with other options), remote (it did not
    // come by the deadline), cancelled.
    Result<Joined> accept(int rank, Channel::Clock::time_point deadline,
                          const std::function<bool()>& stopping);

  private:
    RankListener(std::unique_ptr<Listener> listener, const RankInfo& info, std::string words);
    void listen();
    void receive(Listener::Accepted accepted);
    std::string missingRanks() const SHARDSCOPE_REQUIRES(mutex_);

    const std::unique_ptr<Listener> listener_;
    const RankInfo info_;
    const std::string words_;
    Mutex mutex_;
    Condition changed_;
    std::map<int, Result<Joined>> joined_ SHARDSCOPE_GUARDED_BY(mutex_);
    std::set<int> came_ SHARDSCOPE_GUARDED_BY(mutex_);
    std::thread thread_;
};

// On every other rank: connects to rank 0, which gives orders on this channel. `address` is where the other
// ranks reach this one; empty = where its connection comes from. Errors: usage (started differently), remote
// (rank 0 did not come), cancelled.
Result<std::unique_ptr<Channel>> joinRankZero(const RankInfo& info, const std::string& host, uint16_t port,
                                              const std::string& words, const std::string& address,
                                              Channel::Clock::time_point deadline,
                                              const std::function<bool()>& stopping);

}  // namespace shardscope
