// Worker threads that take tiles of tensors, and the memory that each of them holds. Private to this room.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/memory_budget.h"
#include "base/result.h"
#include "base/stop.h"
#include "execute/executor.h"
#include "storage/aligned_buffer.h"

namespace shardscope {

// Buffers of one worker, kept from tile to tile and counted in the job's budget. A worker holds at most one
// lease and gives it up before it waits for anything but another lease. So workers cannot wait for each other
// in a circle.
class WorkerMemory {
  public:
    explicit WorkerMemory(MemoryBudget& budget) : budget_(budget) {}

    struct Need {
        size_t tile = 0;   // as read
        size_t cast = 0;   // after the cast; 0 = none
        size_t read = 0;   // one piece of a source chunk
        size_t write = 0;  // one piece of a destination chunk
    };
    // Makes the buffers at least that large; contents are lost. Waits for the budget. False when there is no
    // memory.
    bool ensure(const Need& need);
    void drop();

    AlignedBuffer tile, cast, read, write;

  private:
    MemoryBudget& budget_;
    MemoryBudget::Lease lease_;
    uint64_t leased_ = 0;
};

// One tensor's work: tiles that may run at the same time.
class TensorTask {
  public:
    virtual ~TensorTask() = default;
    virtual int64_t tileCount() const = 0;
    virtual Status runTile(int64_t tile, WorkerMemory& memory) = 0;
    virtual Status finish() = 0;  // once, after the last tile
};

struct TileRun {
    size_t tensors = 0;
    unsigned threads = 1;
    bool ordered = false;      // one worker does all tiles of a tensor, in order
    bool keepsMemory = false;  // for the next run with this budget
    MemoryBudget* memory = nullptr;
    StopToken stop;
    // Tiles that a tensor will have, about; null where any number of tensors may be open at a time. With it
    // no more are prepared than the workers need, and the next one before they wait for it. So tiles run
    // nearly in the order of the tensors.
    std::function<uint64_t(size_t index)> tilesOf;
    // Called on any worker, with what it keeps for the next tile; to be dropped before any other lease is
    // asked for.
    std::function<Result<std::unique_ptr<TensorTask>>(size_t index, WorkerMemory& kept)> prepare;
};
// Returns the error of the first tensor among those that failed; tiles that have begun are finished first.
Status runTiles(const TileRun& run);

// Threads for a job: more than cores, since most of the time they wait for the disk.
unsigned workerCount(const Resources& resources);

}  // namespace shardscope
