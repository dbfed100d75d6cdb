// Many processes do the parts of one conversion or reading. They are on this machine, on others through the
// user's own ssh, on nodes that Slurm lends, or ranks that another program has started (rendezvous.h). Files
// that are not on a shared file system are read from, and written to, the process that has them (peers.h).
//
// A worker that is silent for ten heartbeats, or whose connection ends, is lost: its parts go to others,
// but for what its journal shows. A part that failed three times ends the job, and so does the loss of all
// workers; the journals keep what was done.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "cluster/process_group.h"
#include "execute/part_worker.h"
#include "hosts/launch.h"
#include "hosts/worker_state.h"

namespace shardscope {

struct SlurmRequest;  // cluster/slurm.h
class RankListener;   // cluster/rendezvous.h
class Peers;          // cluster/peers.h
class PeerDisks;      // cluster/peer_disks.h
class PeerTable;      // cluster/peer_files.h

struct WorkerSpec : HostSpec {
    std::shared_ptr<const SlurmRequest> slurm{};  // not null: a node of this allocation
    size_t task = 0;                              // which of its workers
    // The rank that this worker is; -1 = it is none. Rank 0 is started here. The others connect by themselves
    // where CoordinatorOptions::ranks listens, else they are started here, too.
    int rank = -1;
};

struct CoordinatorOptions : AgentProgram {
    std::vector<WorkerSpec> workers;
    std::string request;    // what the workers are to prepare, packed; passed on as it is
    std::string directory;  // that relative paths of the request belong to
    std::shared_ptr<RankListener> ranks{};
    std::chrono::seconds patience{120};  // how long to wait for ranks
    // The workers serve each other what they have of the source and, unless it is empty, of the destination.
    // Both are absolute paths.
    bool peers = false;
    std::string source{}, destination{};
    std::string hostHere = "127.0.0.1";   // where others reach the workers that are started here
    std::shared_ptr<FileSystem> files{};  // of this process; null = the machine's
    bool gpus = false;                    // each worker has a GPU cast, scan and hash
    // Not null: this process reads for all, and broadcasts through such a group (broadcast.h).
    MakeGroup group{};
    std::string backend{};
};

// A PartScheduler whose workers are processes.
class WorkerScheduler final : public PartScheduler {
  public:
    explicit WorkerScheduler(CoordinatorOptions options);
    // For a job whose relative paths belong to this process's directory. Errors: io.
    static Result<std::unique_ptr<WorkerScheduler>> forJobHere(CoordinatorOptions options);
    ~WorkerScheduler() override;

    // With CoordinatorOptions::peers, the first call: starts the workers, and returns them as peers. Errors:
    // as those of run().
    Result<std::shared_ptr<Peers>> connect(const StopToken& stop);
    // Tells the workers where files are. `table` null: each opens the source by itself. `disks` null: all
    // share the destination's file system.
    void share(std::shared_ptr<const PeerTable> table, std::shared_ptr<const PeerDisks> disks);
    // For PartScheduler::homes().
    using Homes = std::function<TileHomes()>;
    void setHomes(Homes homes) { homes_ = std::move(homes); }
    // With CoordinatorOptions::group: `reading` makes the worker that reads in this process, `writerOf` says
    // which rank writes.
    using Reading = std::function<Result<std::unique_ptr<PartWorker>>(const SharedJob&, PartWorkerOptions)>;
    using WriterOf = std::function<int(size_t order, FileId file)>;
    void setReading(Reading reading, WriterOf writerOf, const ConvertOptions& options);
    uint64_t bytesMoved() const { return bytesMoved_; }  // between processes, to convert

    size_t workerCount() const override { return options_.workers.size(); }
    TileHomes homes() const override { return homes_ ? homes_() : TileHomes(); }
    Status run(const SharedJob& shared, PartWork work, const std::vector<PartOrder>& orders,
               const std::function<Status(size_t order, const PartDone& result)>& done, Progress* progress,
               const StopToken& stop) override;
    void end() override;
    std::vector<WorkerState> workers() const;  // thread-safe

  private:
    CoordinatorOptions options_;
    mutable Mutex mutex_;
    std::vector<WorkerState> states_ SHARDSCOPE_GUARDED_BY(mutex_);
    Homes homes_;
    Reading reading_;
    WriterOf writerOf_;
    ConvertOptions convertOptions_;
    std::shared_ptr<Peers> peers_;
    std::shared_ptr<const PeerTable> table_;
    std::shared_ptr<const PeerDisks> disks_;
    std::atomic<uint64_t> bytesMoved_{0};
    std::unique_ptr<class CoordinatorRun> run_;  // from the first connect() or run() on
    friend class CoordinatorRun;
};

}  // namespace shardscope
