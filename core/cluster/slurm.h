// Nodes that Slurm lends: one allocation for the whole run, and in it one step of srun for each worker. So
// what happens to one node or one worker ends nothing else. No word of it passes a shell.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "hosts/launch.h"
#include "hosts/process.h"

namespace shardscope {

// What stands behind "slurm:", in the words of salloc.
struct SlurmRequest {
    unsigned nodes = 1;
    unsigned tasksPerNode = 1;       // workers on each
    std::string job;                 // an allocation that is there already; empty = see obtain()
    std::string scratch;             // directory on the nodes for temporary files; empty = as they have it
    std::vector<std::string> words;  // "--partition=debug"; shape the allocation that is asked for
    size_t workers() const { return size_t{nodes} * tasksPerNode; }
};
// "nodes=2,partition=debug", without "slurm:". Commas inside of brackets divide nothing. Errors: usage,
// naming what there is.
Result<SlurmRequest> parseSlurm(std::string_view options);

class SlurmAllocation {
  public:
    // The allocation that the request names, else the one that this process runs in, else a new one. It waits
    // until Slurm grants that, or `stopping` says that nobody wants it any more. `waiting` is told what
    // salloc says meanwhile, and the job's number once it is known. Errors: usage, remote with Slurm's own
    // words, cancelled.
    using Waiting = std::function<void(const std::string& job, const std::string& message)>;
    static Result<std::unique_ptr<SlurmAllocation>> obtain(const SlurmRequest& request,
                                                           const std::function<bool()>& stopping,
                                                           const Waiting& waiting);
    // Gives back what obtain() asked for; all of its steps end with it.
    ~SlurmAllocation();

    const std::string& job() const { return job_; }
    const std::string& nodeOf(size_t worker) const { return nodes_[worker / request_.tasksPerNode]; }
    // Starts the program on the node of this worker of the request.
    Result<Launched> launch(size_t worker, const AgentProgram& agent,
                            const std::function<bool()>& stopping) const;
    // Why there are no workers any more, as a clause: the job's state, and what salloc wrote at its end.
    // Empty when the job still runs.
    std::string ending();

  private:
    explicit SlurmAllocation(SlurmRequest request) : request_(std::move(request)) {}
    Status ask(const std::function<bool()>& stopping, const Waiting& waiting);
    Status findNodes(const std::string& list);

    SlurmRequest request_;
    std::string job_;
    std::vector<std::string> nodes_;
    std::unique_ptr<Process> salloc_;  // holds the allocation; null when it is another's
    int hold_ = -1;                    // salloc ends with this pipe
};

// Of the workers of one run: the first worker of a request asks for its allocation, the others wait.
// Thread-safe.
class SlurmAllocations {
  public:
    // Errors: those of SlurmAllocation::obtain().
    Result<const SlurmAllocation*> of(const std::shared_ptr<const SlurmRequest>& request,
                                      const std::function<bool()>& stopping,
                                      const SlurmAllocation::Waiting& waiting);
    // Why Slurm ended allocations, as clauses, each with "; " before it: more than that the workers are gone.
    std::string endings();
    void giveBack();

  private:
    struct Asked {
        Mutex mutex;
        std::optional<Result<std::unique_ptr<SlurmAllocation>>> allocation SHARDSCOPE_GUARDED_BY(mutex);
    };
    Mutex mutex_;
    std::map<const SlurmRequest*, std::unique_ptr<Asked>> asked_ SHARDSCOPE_GUARDED_BY(mutex_);
};

// "RUNNING", "PENDING (Resources)", "CANCELLED": of squeue, or of sacct where the job is forgotten there;
// empty when neither knows it.
std::string slurmState(const std::string& job);

}  // namespace shardscope
