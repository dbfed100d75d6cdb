// What the window asks of the engine. An interface, so that tests can script late, slow and failing answers.
// All calls block and are made from a worker thread; they must be thread-safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cluster/coordinator.h"
#include "engine/diff.h"
#include "engine/engine.h"
#include "engine/run_verdicts.h"
#include "engine/slice_values.h"
#include "engine/statistics.h"
#include "plan/flow.h"
#include "ui/bridge/host_check.h"
#include "ui/bridge/hosts.h"
#include "ui/bridge/tasks.h"

namespace shardscope::ui {

using CheckpointPtr = std::shared_ptr<const Checkpoint>;

// What a conversion would do, with the catalog that it would make, for previews.
struct Preview {
    Plan plan;
    std::shared_ptr<const Catalog> target;
    Flow flow;                    // who reads what from whom
    std::vector<PlanFile> reads;  // files of the source that tensor data comes from, and how much of each
};

// The directory of a run as it is now, newest step first, with what earlier checks found.
struct RunRow {
    RunStep step;
    StepFiles files;
    std::string format;  // title; empty = not recognized
    std::optional<StepVerdict> verdict;
};
struct RunListing {
    Run run;
    std::vector<RunRow> rows;
};
using RunListingPtr = std::shared_ptr<const RunListing>;
using RunPtr = std::shared_ptr<const Run>;

class EngineService {
  public:
    virtual ~EngineService() = default;
    // For a path on another host: makes sure that a connection to the host stands; `anew` makes one although
    // there is one already. Paths of this machine need none. Errors: those of Hosts.
    virtual Status connect(const std::string& path, bool anew, const TaskContext& context) = 0;
    // Whether there was a connection to this path's host, and is no longer. Does not block.
    virtual bool connectionLost(const std::string& path) const = 0;
    // Goes to that host: connects, and looks for source and destination. Errors: those of Hosts.
    virtual Result<HostFacts> lookAt(const HostSpec& where, const CheckpointPtr& checkpoint,
                                     const HostQuestion& question, const TaskContext& context) = 0;
    virtual Result<CheckpointPtr> open(const std::string& path, const CheckpointOptions& options,
                                       const TaskContext& context) = 0;
    // As open(), or the run whose directory the path names.
    virtual Result<std::variant<CheckpointPtr, RunPtr>> openAny(const std::string& path,
                                                                const CheckpointOptions& options,
                                                                const TaskContext& context) = 0;
    // The steps of a run as they are now; null when the directory holds none. `openedHow` tells apart what
    // was opened with other options. Verdicts are those of this level or a deeper one.
    virtual Result<RunListingPtr> listRun(const std::string& path, const CheckpointOptions& options,
                                          const std::string& openedHow, ValidateLevel level,
                                          const TaskContext& context) = 0;
    virtual Result<StepVerdict> judgeStep(const RunListingPtr& run, size_t row,
                                          const CheckpointOptions& options, const std::string& openedHow,
                                          ValidateLevel level, const TaskContext& context) = 0;
    // Sums of the values of a step that were read before (RunVerdicts::values); empty where none are known.
    virtual Result<std::vector<TensorValues>> stepValues(const RunListingPtr& run, size_t row,
                                                         const std::string& openedHow) = 0;
    // Bytes of the index file that was written; it must not be there yet unless `overwrite`.
    virtual Result<uint64_t> saveIndex(const CheckpointPtr& checkpoint, const std::string& file,
                                       bool overwrite, const TaskContext& context) = 0;
    virtual Result<ValidationReport> validate(const CheckpointPtr& checkpoint, const ValidateOptions& options,
                                              const CheckpointPtr& expect, const TaskContext& context) = 0;
    virtual Result<DiffReport> diff(const CheckpointPtr& a, const CheckpointPtr& b,
                                    const DiffOptions& options, const TaskContext& context) = 0;
    virtual Result<Preview> preview(const CheckpointPtr& source, const std::string& destination,
                                    const ConversionRequest& request, const TaskContext& context) = 0;
    virtual Result<TensorStatistics> statistics(const CheckpointPtr& checkpoint, TensorId tensor, size_t bins,
                                                const TaskContext& context) = 0;
    virtual Result<SliceValues> slice(const CheckpointPtr& checkpoint, const SliceRequest& request,
                                      const TaskContext& context) = 0;
    virtual Result<Value> object(const CheckpointPtr& checkpoint, ObjectId object,
                                 const TaskContext& context) = 0;
};

// The engine of this process. `program` is put on other hosts; empty = commandLineProgram().
std::shared_ptr<EngineService> localEngine(const QString& program = {});

}  // namespace shardscope::ui
