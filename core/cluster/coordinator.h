// Many processes do the units of one conversion: on this machine, on others through the user's own ssh, or on
// nodes that Slurm lends.
//
// Each worker holds some units as a lease that its heartbeats renew. A worker that is silent for three of
// them, or whose connection ends, is cut off; its units go to others. A unit that failed three times ends the
// job, and so does the loss of all workers; the journal keeps what was done.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "execute/units.h"

namespace shardscope {

struct SlurmRequest;  // cluster/slurm.h

struct WorkerSpec {
    std::string host{};                           // empty = this machine; with "user@" where that is wanted
    uint16_t port = 0;                            // 0 = as ssh is configured
    std::shared_ptr<const SlurmRequest> slurm{};  // not null: a node of this allocation
    size_t task = 0;                              // which of its workers
};
// "local:4", "ssh:HOST[,HOST...]", "slurm[:KEY=VALUE,...]"; several joined by '+'. The one parser of such
// text. Errors: usage.
Result<std::vector<WorkerSpec>> parsePlaces(std::string_view text);

struct CoordinatorOptions {
    std::vector<WorkerSpec> places;
    std::string request;        // what the workers are to prepare, packed; passed on as it is
    std::string directory;      // that relative paths of the request belong to
    std::string version;        // of this program; workers must have the same
    std::string program;        // to run as a worker here
    std::string remoteProgram;  // the same on other hosts; empty = the static one is copied there
};

// What a worker is doing, for people.
struct WorkerState {
    enum class Phase : uint8_t { starting, working, idle, lost, ended };
    std::string name;      // "local 1", "node7"
    std::string slurmJob;  // whose node it works on; empty = none, or not known yet
    Phase phase = Phase::starting;
    uint64_t bytes = 0;  // written; once the output is verified: of it
    size_t units = 0;    // done
    Progress::Busy busy{};
    std::string why;  // it was lost
};
std::string_view phaseName(WorkerState::Phase phase);

class WorkerScheduler final : public UnitScheduler {
  public:
    explicit WorkerScheduler(CoordinatorOptions options);
    ~WorkerScheduler() override;
    size_t workerCount() const override { return options_.places.size(); }
    Status run(const JobIdentity& identity, const std::vector<Unit>& units,
               const std::function<Status(size_t unit, UnitResult result)>& done, Progress* progress,
               const StopToken& stop) override;
    void end() override;
    std::vector<WorkerState> workers() const;  // thread-safe

  private:
    CoordinatorOptions options_;
    mutable Mutex mutex_;
    std::vector<WorkerState> states_ SHARDSCOPE_GUARDED_BY(mutex_);
    std::unique_ptr<class CoordinatorRun> run_;  // from the first run() on
    friend class CoordinatorRun;
};

}  // namespace shardscope
