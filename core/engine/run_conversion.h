// Conversions from request to report. The work is done by this process alone, by workers that it coordinates,
// or by this process as a worker or a rank of others'.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "cluster/coordinator.h"
#include "engine/request.h"
#include "execute/parts.h"
#include "execute/process_group.h"

namespace shardscope {

class WorkerSession;  // cluster/worker.h

struct Alone {};
// This process coordinates workers at these places; they run these programs (cluster/coordinator.h).
struct Coordinator {
    std::vector<WorkerSpec> places;
    std::string version, program, remoteProgram;
};
// This process does parts for the one at the session's other end.
struct Worker {
    WorkerSession* session;
};
// This process is one of the ranks of a group, all of which run the same request; rank 0 speaks for them.
struct Rank {
    ProcessGroup* ranks;
    GroupMode mode = GroupMode::automatic;
    bool ownDisks = false;  // the ranks share no file system for the destination
    std::string backend;    // how bytes go between them, for reports
};
// Sessions and groups outlive the conversion.
// Parts: this process does one part of a conversion that a scheduler runs as several, completes it once all
// are done, or both (execute/parts.h).
using Execution = std::variant<Alone, Coordinator, Worker, Rank, Parts>;

// What ranks do together.
struct GroupReport {
    int ranks = 0;
    GroupMode mode{};              // never automatic
    std::string backend, compute;  // "gloo"; "cpu"
    GroupForecast expected;        // before it begins
    uint64_t bytesMoved = 0;
    // What one disk holds of a destination that is spread over several; empty where all share one.
    struct DiskShare {
        int rank = 0;  // the lowest that writes there
        std::string name;
        uint64_t files = 0, bytes = 0;
    };
    std::vector<DiskShare> disks;
};

class Conversion {
  public:
    // Opens the source and plans; starts no process and writes nothing. Ranks call it together. Errors: those
    // of openingOf(), openCheckpoint() and prepareConversion().
    static Result<std::unique_ptr<Conversion>> prepare(const ConversionRequest& request,
                                                       const Execution& execution, const StopToken& stop);
    ~Conversion();

    const PreparedConversion& prepared() const { return *prepared_; }
    // False in workers and in ranks but the first: another process says what is planned and done.
    bool speaks() const;
    const std::optional<GroupReport>& group() const { return group_; }  // where ranks do it
    const std::optional<PartReport>& part() const { return part_; }     // of a part, once it is done
    bool finished() const { return finished_; }                         // the destination is whole
    std::vector<WorkerState> workers() const;  // of a coordinator; thread-safe while it runs

    // Once. The report is empty unless this process speaks. Errors: impossible when the plan is not runnable,
    // or --strict and something is left out; those of the executor, of workers and ranks.
    Result<ConvertReport> run(Progress* progress);

  private:
    Conversion(const ConversionRequest& request, Execution execution, StopToken stop);
    Status open();
    Result<ConvertReport> runTogether(const Rank& rank, Progress* progress);
    Result<ConvertReport> runParts(const Parts& parts, const Resources& resources);

    const ConversionRequest request_;
    const Execution execution_;
    const StopToken stop_;
    std::unique_ptr<WorkerScheduler> scheduler_;  // of a coordinator
    std::shared_ptr<class GroupFiles> files_;     // of all ranks
    std::optional<PreparedConversion> prepared_;
    std::optional<GroupReport> group_;
    std::optional<PartReport> part_;
    bool finished_ = false;
};

// Both, for those who show nothing in between.
Result<ConvertReport> runConversion(const ConversionRequest& request, const Execution& execution,
                                    Progress* progress, const StopToken& stop);

}  // namespace shardscope
