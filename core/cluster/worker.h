// The worker's end: takes a job, and does parts of it until the coordinator ends it or is gone.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "base/progress.h"
#include "cluster/messages.h"
#include "cluster/peer_files.h"
#include "cluster/peers.h"
#include "cluster/process_group.h"
#include "execute/part_reading.h"
#include "execute/part_worker.h"
#include "hosts/channel.h"

namespace shardscope {

// What a worker can do that not every worker can.
struct WorkerAbilities {
    TileCompute* compute = nullptr;  // makes tiles; null = the processor
    std::string gpu{};               // UUID of the GPU that `compute` is; empty = it is none
    MakeGroup group{};               // null = none can be joined
};

class WorkerSession {
  public:
    // `files` are this process's own; null = the machine's.
    WorkerSession(std::unique_ptr<Channel> channel, std::string version,
                  std::shared_ptr<FileSystem> files = nullptr);
    ~WorkerSession();

    // Takes the job, beginning with the message that the agent was started with. Heartbeats begin. Errors:
    // damaged, remote.
    Status begin(const Frame& first);
    const std::string& request() const { return request_; }  // as CoordinatorOptions::request
    std::optional<int> gpu() const { return gpu_; }          // the device that is to make tiles
    // peers() is null where all files are on shared file systems. Elsewhere table() says who has which file
    // of the source (null = all have it). diskByPeer() says where files of the destination are. It is a
    // PeerDisks; empty: on one file system.
    const std::shared_ptr<Peers>& peers() const { return peers_; }
    const std::shared_ptr<const PeerTable>& table() const { return table_; }
    const std::vector<int>& diskByPeer() const { return disks_; }
    const std::shared_ptr<FileSystem>& files() const { return files_; }
    const std::string& directory() const { return directory_; }
    unsigned neighbors() const { return neighbors_; }  // workers on this machine, this one included
    StopToken stop() const { return stop_; }           // raised when the coordinator ends the job or is gone

    // Joins the requested job and does parts of it. Returns when the coordinator ends the job. Errors:
    // remote, cancelled, and those of PartWorker::join(), which the coordinator is told too.
    Status serve(const ConvertJob& job, const Resources& resources, const WorkerAbilities& abilities = {});
    // The same of a reading.
    Status serve(const PartReading& reading, const Resources& resources);
    // Tells the coordinator why there is no job to serve.
    void refuse(const Error& error);

  private:
    // What is to be done next: a part, or to join a group.
    struct Order {
        PartTask task{};
        std::optional<GroupSpec> group{};
    };

    std::shared_ptr<FileSystem> own() const;
    Status startServing(const Frame& frame, const nlohmann::json& fields);
    Status takeStart(const Frame& frame, const nlohmann::json& fields);
    Result<Order> orderFrom(const nlohmann::json& fields) const;
    void beats();
    void listen();
    using Join = std::function<Result<std::unique_ptr<PartWorker>>(const Resources&, std::string name)>;
    Status serve(Resources resources, const WorkerAbilities& abilities, const ConvertOptions& options,
                 const Join& join);
    Status runParts(PartWorker& worker, const ConvertOptions& options, const MakeGroup& group);
    Status joinGroup(PartWorker& worker, const GroupSpec& spec, const MakeGroup& make);

    std::unique_ptr<Channel> channel_;
    const std::string version_;
    const std::shared_ptr<FileSystem> files_;
    std::string directory_, request_;
    std::optional<int> gpu_;
    int device_ = 0;
    std::shared_ptr<Peers> peers_;
    std::shared_ptr<const PeerTable> table_;
    std::vector<int> disks_;
    std::unique_ptr<PeerServer> server_;
    unsigned neighbors_ = 1;
    std::chrono::seconds silence_{0};  // of the coordinator that ends it; zero = none
    SharedJob shared_;
    uint64_t number_ = 0;  // among the workers
    StopSource stop_;
    Progress progress_;
    std::atomic<bool> ending_{false};
    std::thread beats_, listener_;

    Mutex mutex_;
    Condition changed_;
    std::deque<Order> orders_ SHARDSCOPE_GUARDED_BY(mutex_);
    ProcessGroup* group_ SHARDSCOPE_GUARDED_BY(mutex_) = nullptr;  // that it is in
    bool ungrouped_ SHARDSCOPE_GUARDED_BY(mutex_) = false;         // and is to leave
    bool ended_ SHARDSCOPE_GUARDED_BY(mutex_) = false;
};

}  // namespace shardscope
