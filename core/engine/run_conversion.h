// Conversions from request to report. The work is done by this process alone, by workers that it coordinates,
// or by this process as another one's worker.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "cluster/coordinator.h"
#include "cluster/peer_files.h"
#include "cluster/worker.h"
#include "engine/request.h"
#include "execute/parts.h"

namespace shardscope {

struct Alone {};
// This process coordinates workers.
struct Coordinator {
    CoordinatorOptions options;  // but for the request, and what belongs to it
    // Where `options.peers` is set:
    SourceMode mode = SourceMode::automatic;
    bool ownDisks = false;  // the workers share no file system for the destination
    // Makes tiles in this process where it reads for all; null = the processor.
    std::function<Result<std::shared_ptr<TileCompute>>()> openCompute{};
};
// This process does parts for the one at the session's other end.
struct Worker {
    WorkerSession* session;
    WorkerAbilities abilities{};
};
// Who does the work. The session of a Worker outlives the conversion. Parts: this process does one part of a
// conversion that a scheduler runs as several, completes it once all are done, or both (execute/parts.h).
using Execution = std::variant<Alone, Coordinator, Worker, Parts>;

// What workers that serve each other their files do together.
struct GroupReport {
    int ranks = 0;
    SourceMode mode{};             // never automatic
    std::string backend, compute;  // "tcp", "gloo", "nccl"; "cpu", "gpu"
    struct Forecast {
        uint64_t bytesMoved = 0;  // between them, at most
        double linkRate = 0;      // bytes a second that all of them together sent here, just before
        double seconds = 0;       // as the plan says, or for what goes between them where that takes longer
    } expected;
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
    // Opens the source and plans; writes nothing, and starts workers only where the source may be on their
    // disks. Errors: those of openCheckpoint() and prepareConversion(), and of
    // WorkerScheduler::connect(). `files` holds the source of a conversion that is done alone; null = by the
    // path's scheme.
    static Result<std::unique_ptr<Conversion>> prepare(const ConversionRequest& request,
                                                       const Execution& execution, const StopToken& stop,
                                                       std::shared_ptr<FileSystem> files = nullptr);
    ~Conversion();

    const PreparedConversion& prepared() const { return *prepared_; }
    // False in workers: another process says what is planned and done.
    bool speaks() const { return !std::holds_alternative<Worker>(execution_); }
    const std::optional<GroupReport>& group() const { return group_; }  // of workers that share files
    const std::optional<PartReport>& part() const { return part_; }     // of a part, once it is done
    bool finished() const { return finished_; }                         // the destination is whole
    std::vector<WorkerState> workers() const;  // of a coordinator; thread-safe while it runs

    // Once. The report is empty unless this process speaks. Errors: impossible when the plan is not runnable,
    // or --strict and something is left out; those of the executor and of workers.
    Result<ConvertReport> run(Progress* progress);

  private:
    Conversion(const ConversionRequest& request, Execution execution, StopToken stop);
    Status open();
    Status connect(const Coordinator& coordinator);
    Status checkDestinationKind() const;
    std::shared_ptr<FileSystem> disksOf(const WorkerSession& session) const;
    Result<ConvertReport> runTogether(const Coordinator& coordinator, const Resources& resources);
    bool readsForAll(const Coordinator& coordinator) const;
    Result<ConvertReport> runParts(const Parts& parts, const Resources& resources);

    ConversionRequest request_;
    const Execution execution_;
    const StopToken stop_;
    std::unique_ptr<WorkerScheduler> scheduler_;  // of a coordinator
    std::shared_ptr<Peers> peers_;                // its workers, where they share files
    std::shared_ptr<const PeerTable> table_;      // who has which file of the source; null = all have
    std::shared_ptr<FileSystem> files_;           // of the source, where it is not the system's
    std::optional<PreparedConversion> prepared_;
    std::optional<GroupReport> group_;
    std::optional<PartReport> part_;
    bool finished_ = false;
};

// prepare() and run(), for callers that show nothing in between.
Result<ConvertReport> runConversion(const ConversionRequest& request, const Execution& execution,
                                    Progress* progress, const StopToken& stop);

}  // namespace shardscope
