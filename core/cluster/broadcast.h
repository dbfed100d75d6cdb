// The first process reads the source for all: it makes the tiles, and hands on to each rank of a group what
// that one writes.
#pragma once

#include <functional>

#include "base/stop.h"
#include "cluster/process_group.h"
#include "execute/part_worker.h"

namespace shardscope {

// Rank 0's end.
class BroadcastSender {
  public:
    // `writerOf(order, file)` is the rank that writes a piece; `onWrite` is told of each, from any thread.
    using WriterOf = std::function<int(size_t order, FileId file)>;
    BroadcastSender(ProcessGroup& group, WriterOf writerOf, const ConvertOptions& options,
                    std::function<void(int rank, uint64_t bytes)> onWrite);
    ~BroadcastSender();

    // For the worker that makes the tiles here.
    Status write(FileId file, uint64_t offset, std::span<const std::byte> bytes);
    // Has parts converted by `worker`, whose bytes go to write(). `done` is called for each once what belongs
    // to it is on disk everywhere. Errors: remote, when the group broke; those of reading and writing on any
    // rank. What was not done can be done in another way.
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

// The end of every other rank: writes what comes until rank 0 ends it. Errors: remote; an error of writing
// goes to rank 0.
Status receiveBroadcast(ProcessGroup& group, PartWorker& worker);

}  // namespace shardscope
