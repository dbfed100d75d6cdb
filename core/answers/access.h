// How an answer opens checkpoints and works on them, the same for verbs, page and Python.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/memory_budget.h"
#include "base/progress.h"
#include "base/stop.h"
#include "engine/diff.h"
#include "engine/engine.h"
#include "engine/run_directory.h"
#include "hosts/worker_state.h"

namespace shardscope {

struct Access : Opening, WorkLimits {
    // The state of the workers of a coordinated conversion; thread-safe. Null without workers.
    using Workers = std::function<std::vector<WorkerState>()>;

    StopSource stop;
    // Called when work begins; what it returns lives as long as the work. Null = nobody watches.
    std::function<std::shared_ptr<void>(const Progress&, Workers)> watch;
    // Told of each checkpoint that was opened by a path. May be null.
    std::function<void(const Checkpoint&)> opened;
    // What this host is called where the answer is read; empty = it is read here.
    std::string place;

    // The dtype in which open() and openAny() show quantized weights as the tensors that they stand for;
    // empty = as their parts.
    std::string dequantize;

    bool away() const { return !place.empty(); }
    // A path as the user gave it, without the signature of a web address.
    std::string shown(const std::string& path) const;
    CheckpointOptions openOptions() const;
    Result<Checkpoint> open(const std::string& path) const { return open(path, stop); }
    Result<Checkpoint> open(const std::string& path, const StopToken& by) const;
    // The checkpoint as `dequantize` asks for. Errors: those of dequantized() (engine/quantized.h).
    Result<Checkpoint> asAsked(Checkpoint checkpoint, const StopToken& by) const;
    Result<CheckpointOrRun> openAny(const std::string& path) const;
    std::shared_ptr<void> watched(const Progress& progress, Workers workers = nullptr) const;
};

// Thread pool, memory budget and watcher of one long operation.
class Work {
  public:
    // `workers` outlive it.
    Work(const Access& access, uint64_t heldBytes, Access::Workers workers = nullptr)
        : access_(access), held_(heldBytes), workers_(std::move(workers)) {}
    Status start();                                             // errors: limit
    const Resources& resources() const { return *resources_; }  // once it has started
    Progress& progress() { return progress_; }

  private:
    const Access& access_;
    uint64_t held_;
    Access::Workers workers_;
    Progress progress_;
    std::unique_ptr<JobResources> resources_;
    std::shared_ptr<void> watching_;
};

// `shardscope diff` of checkpoints that are open.
Result<DiffReport> diffOpen(const Access& access, const Checkpoint& a, const Checkpoint& b,
                            const DiffOptions& options);

}  // namespace shardscope
