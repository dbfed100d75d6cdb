// A conversion whose parts (parts.h) a coordinator gives to workers. The coordinator sets up the staging
// directory as the first of all parts would, calls runConversion() with a PartScheduler, verifies and
// publishes. Each worker records what it has done in a journal of its own in that directory, and the
// coordinator reads it there. A job is resumed from these journals alone, also if it was started in another
// way or its parts were dealt out differently.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "execute/executor.h"
#include "execute/parts.h"
#include "execute/tile_compute.h"

namespace shardscope {

struct PartReading;  // execute/part_reading.h

// What all processes of a job agree on; the coordinator sends it. Two processes with an equal one write equal
// bytes at equal offsets.
struct SharedJob {
    Digest128 plan;    // of everything that decides which byte goes where
    Digest128 source;  // of names, sizes and times of the source's files, as far as two hosts see them alike
    uint32_t parts = 1;
    std::string version;
    std::string id;   // also in the staging directory: a process that reads it there sees the same one
    std::string run;  // of the coordinator: begins the names of its workers' journals
};

enum class PartWork : uint8_t {
    convert,  // tiles of the source, to where they belong in the staged output
    verify,   // reads back the staged output, which is sealed
    reread,   // reads the source once more
    read,     // reads the source of a job that only reads (part_reading.h)
};
std::string_view partWorkName(PartWork work);
std::optional<PartWork> partWorkFrom(std::string_view name);

// Which worker has most of a tile at hand: elements [begin, end) of a tensor of the destination. Parts are
// dealt out by it, so it must be the same function in all processes of a job.
struct TileHomes {
    int workers = 0;  // 0 = all have everything
    // Below `workers`; -1 = all have as much.
    std::function<int(PartWork work, TensorId target, int64_t begin, int64_t end)> of{};
};

struct PartOrder {
    uint32_t part = 0;
    uint64_t bytes = 0;  // of the destination, that are still to be done
    int home = -1;       // as TileHomes
    bool retry = false;  // an earlier attempt may have done some of it
};

struct PartDone {
    uint64_t bytesRead = 0;
    uint64_t bytesMoved = 0;  // to and from other processes, to convert
};

// Finished parts wait for each other to be brought to disk together, but not long (ConvertOptions).
class CommitCadence {
  public:
    explicit CommitCadence(const ConvertOptions& options)
        : mostBytes_(options.journalBytes), mostTime_(options.journalSeconds) {}
    void add(uint64_t bytes) { bytes_ += bytes; }
    bool due() const { return bytes_ >= mostBytes_ || std::chrono::steady_clock::now() - last_ >= mostTime_; }
    void restart() {
        bytes_ = 0;
        last_ = std::chrono::steady_clock::now();
    }

  private:
    const uint64_t mostBytes_;
    const std::chrono::duration<double> mostTime_;
    uint64_t bytes_ = 0;
    std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

// Gives parts to workers; core/cluster has the one whose workers are processes.
class PartScheduler {
  public:
    virtual ~PartScheduler() = default;
    virtual size_t workerCount() const = 0;
    // Asked once the staging directory is there.
    virtual TileHomes homes() const { return {}; }
    // Has every part of `orders` done. `done(order, result)` is called once for each, with its index, when
    // its output is on disk; from any thread, one call at a time. When run() returns, no worker writes any
    // more; unless there was an error, the workers stay for the next call. Errors: remote, cancelled, and
    // those of a part that failed too often.
    virtual Status run(const SharedJob& shared, PartWork work, const std::vector<PartOrder>& orders,
                       const std::function<Status(size_t order, const PartDone& result)>& done,
                       Progress* progress, const StopToken& stop) = 0;
    // Ends the workers: there is nothing more to do.
    virtual void end() = 0;
};

struct PartWorkerOptions {
    std::string name;                // of its journal, among the workers of one run
    TileHomes homes{};               // as the coordinator's
    TileCompute* compute = nullptr;  // null = the processor
    // Not empty: takes what would be written to the staging directory, from several threads.
    std::function<Status(FileId file, uint64_t offset, std::span<const std::byte> bytes)> write{};
};

// The worker's end: takes part in a conversion whose staging directory exists. Not thread-safe; uses all
// threads of `resources` for a part.
class PartWorker {
  public:
    virtual ~PartWorker() = default;
    // `job` and `resources` outlive it. Errors: changed (plan or source differ from the coordinator's),
    // remote (another staging directory is seen here), io.
    static Result<std::unique_ptr<PartWorker>> join(const ConvertJob& job, const SharedJob& shared,
                                                    const Resources& resources, PartWorkerOptions options);
    // The same of a reading, whose records exist; `name` as PartWorkerOptions::name.
    static Result<std::unique_ptr<PartWorker>> join(const PartReading& reading, const SharedJob& shared,
                                                    const Resources& resources, const std::string& name);
    // Does a part; what it wrote need not be on disk yet. Errors: usage for a part that does not exist,
    // verificationFailed for an output that is not as planned, and those of reading and writing.
    virtual Result<PartDone> run(PartWork work, const PartOrder& order) = 0;
    // Writes into the staging directory what another process has made of a tile.
    virtual Status write(FileId file, uint64_t offset, std::span<const std::byte> bytes) = 0;
    // Brings all that was written here to disk.
    virtual Status sync() = 0;
    // Brings what parts wrote to disk, then what they have done to the journal. With
    // PartWorkerOptions::write, what went there must be on disk.
    virtual Status keep() = 0;
};

// The number of parts that a coordinator gives out.
uint32_t partsFor(uint64_t bytes, size_t workers);

// Does all parts in this process: to continue, without workers, a job that was begun in parts.
class OwnParts final : public PartScheduler {
  public:
    OwnParts(const ConvertJob& job, const Resources& resources) : job_(job), resources_(resources) {}
    size_t workerCount() const override { return 1; }
    Status run(const SharedJob& shared, PartWork work, const std::vector<PartOrder>& orders,
               const std::function<Status(size_t order, const PartDone& result)>& done, Progress* progress,
               const StopToken& stop) override;
    void end() override {}

  private:
    const ConvertJob& job_;
    const Resources& resources_;
};

}  // namespace shardscope
