// The worker's end: takes a job, and does units of it until the coordinator ends it or is gone.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "base/progress.h"
#include "cluster/channel.h"
#include "execute/units.h"

namespace shardscope {

class WorkerSession {
  public:
    explicit WorkerSession(std::unique_ptr<Channel> channel);
    ~WorkerSession();

    // Takes the job from the message that the agent was started with. Heartbeats begin. Errors: damaged.
    Status begin(const Frame& first);
    const std::string& request() const { return request_; }  // as CoordinatorOptions::request
    const std::string& directory() const { return directory_; }
    unsigned neighbours() const { return neighbours_; }  // workers on this machine, this one included
    StopToken stop() const { return stop_; }  // raised when the coordinator ends the job or is gone

    // Joins the conversion that was requested and does what it is told. Returns when the coordinator
    // ends it. Errors: remote, cancelled, and those of UnitWorker::join(), which the coordinator is told too.
    Status serve(const ConvertJob& job, Resources resources);
    // Tells the coordinator why there is no conversion to serve.
    void refuse(const Error& error);

  private:
    void beats();
    void listen();
    Status runUnits(UnitWorker& worker);

    std::unique_ptr<Channel> channel_;
    std::string directory_, request_;
    unsigned neighbours_ = 1;
    std::chrono::seconds silence_{0};  // of the coordinator that ends it; zero = none
    JobIdentity identity_;
    StopSource stop_;
    Progress progress_;
    std::atomic<bool> ending_{false};
    std::thread beats_, listener_;

    Mutex mutex_;
    Condition changed_;
    std::deque<std::pair<uint64_t, Unit>> units_ SHARDSCOPE_GUARDED_BY(mutex_);
    bool ended_ SHARDSCOPE_GUARDED_BY(mutex_) = false;
};

}  // namespace shardscope
