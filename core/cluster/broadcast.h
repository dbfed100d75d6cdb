// Rank 0 reads the source for all ranks of a process group: it makes the tiles, and sends to each rank what
// that rank writes.
#pragma once

#include <functional>

#include "base/stop.h"
#include "cluster/process_group.h"
#include "execute/part_worker.h"

namespace shardscope {

// Rank 0's end.
class BroadcastSender {
  public:
    // `writerOf(order, file)` is the rank that writes the bytes of a part in a file; `onWrite` is called for
    // each write, from any thread.
    using WriterOf = std::function<int(size_t order, FileId file)>;
    BroadcastSender(ProcessGroup& group, WriterOf writerOf, const ConvertOptions& options,
                    std::function<void(int rank, uint64_t bytes)> onWrite);
    ~BroadcastSender();

    // PartWorkerOptions::write for the worker that makes the tiles here.
    Status write(FileId file, uint64_t offset, std::span<const std::byte> bytes);
    // Has `worker` convert the parts; its bytes go to write(). `done` is called for each part once its output
    // is on disk on every rank. Errors: remote, when the group broke; those of reading and writing on any
    // rank. Parts that are not done can then be given out to workers.
    Status run(PartWorker& worker, const std::vector<PartOrder>& orders,
               const std::function<Status(size_t order, const PartDone& result)>& done, Progress* progress,
               const StopToken& stop);

  private:
    struct Round;
    Status flush(Round& round);
    Status bringToDisk(Round& round);

    ProcessGroup& group_;
    const WriterOf writerOf_;
    const std::function<void(int rank, uint64_t bytes)> onWrite_;
    CommitCadence cadence_;
    std::unique_ptr<Round> round_;
};

// What every other rank runs: writes what it receives until rank 0 ends the broadcast. Errors: remote; an
// error of writing is sent to rank 0.
Status receiveBroadcast(ProcessGroup& group, PartWorker& worker);

}  // namespace shardscope
