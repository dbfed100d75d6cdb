// A conversion that several processes share: what they must agree on, how its work is cut into units, and
// both ends of doing one. One process, the coordinator, runs runConversion() with a UnitScheduler; the others
// do units and write into the same staging directory, each at its own place. What a worker says is checked
// like any other input.
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
#include "execute/tile_compute.h"

namespace shardscope {

// Two processes with the same identity write the same bytes to the same places.
struct JobIdentity {
    Digest128 plan;    // of everything that decides which byte goes where
    Digest128 source;  // of names, sizes and times of the source's files, as far as two hosts see them alike
    uint64_t tileBytes = 0;         // that a tile should have
    uint64_t largestTileBytes = 0;  // for tensors that are cut in very many pieces
    std::string token;  // stands in the staging directory: who can read it there sees the same directory
};

enum class UnitWork : uint8_t {
    convert,  // tiles of the source, to where they belong in the staged output
    verify,   // tiles of the staged output, of which only the digests are taken
    reread,   // those of `convert` once more, of which only the digests are taken
};

// 128 random bits as text.
std::string newToken();

std::string_view unitWorkName(UnitWork work);
std::optional<UnitWork> unitWorkFrom(std::string_view name);

// Tiles [first, first + count) of one wanted tensor. A tile to be verified is one of its elements as they are
// in the output, which may be another than the one to be converted.
struct TileSpan {
    TensorId tensor = kNone;
    int64_t first = 0;
    int64_t count = 0;
};

// What is handed out at once: large enough that asking for it costs nothing, small enough to be done again.
struct Unit {
    UnitWork work = UnitWork::convert;
    std::vector<TileSpan> spans;
    uint64_t bytes = 0;  // of the destination
    int home = -1;       // the worker that has most of it at hand; -1 = all have as much
};

// Finished units wait for each other to be brought to disk together, but not long (ConvertOptions).
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

// What became of a unit; `tiles` is for the process that asked. Opaque, and checked where it is taken.
struct UnitResult {
    std::string tiles;
    uint64_t bytesRead = 0;
    uint64_t bytesMoved = 0;  // to and from other processes, to convert
};

// Others who do units; core/cluster has the one that talks to processes.
class UnitScheduler {
  public:
    virtual ~UnitScheduler() = default;
    virtual size_t workerCount() const = 0;
    // The worker that has most of a tile at hand, of these elements of a wanted tensor; -1 = all have as
    // much.
    virtual int homeOf(UnitWork /*work*/, TensorId /*target*/, int64_t /*begin*/, int64_t /*end*/) const {
        return -1;
    }
    // Has every unit done, all of which are the same kind of work. `done(unit, result)` is called once for
    // each, from any thread, one call at a time; its error says that the result is not acceptable. When run()
    // returns, nobody writes any more; the others stay for the next call, unless there was an error. Errors:
    // remote, cancelled, and those of a unit that failed too often.
    virtual Status run(const JobIdentity& identity, const std::vector<Unit>& units,
                       const std::function<Status(size_t unit, UnitResult result)>& done, Progress* progress,
                       const StopToken& stop) = 0;
    // There is nothing more to do.
    virtual void end() = 0;
};

struct UnitOptions {
    TileCompute* compute = nullptr;  // null = the processor
    // Takes what is to be written in place of the staging directory, from several threads.
    std::function<Status(FileId file, uint64_t offset, std::span<const std::byte> bytes)> write{};
};

// The other end: joins a conversion whose staging directory exists. Not thread-safe; uses all threads of
// `resources` for a unit.
class UnitWorker {
  public:
    virtual ~UnitWorker() = default;
    // `job` and `resources` outlive it. Errors: changed (plan or source differ from the coordinator's),
    // notFound or changed (another staging directory), io.
    static Result<std::unique_ptr<UnitWorker>> join(const ConvertJob& job, const JobIdentity& identity,
                                                    const Resources& resources, UnitOptions options = {});
    // Does the unit; what it wrote need not be on disk yet. Errors: usage for tiles that do not exist,
    // damaged for an output that is not as planned, and those of reading and writing.
    virtual Result<UnitResult> run(const Unit& unit) = 0;
    // Writes into the staging directory what another process has made of a tile.
    virtual Status write(FileId file, uint64_t offset, std::span<const std::byte> bytes) = 0;
    // Brings all that was written to disk.
    virtual Status sync() = 0;
};

}  // namespace shardscope
