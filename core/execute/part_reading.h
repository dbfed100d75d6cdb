// A reading in parts that any scheduler can run. Each process reads its share of the data, and leaves what it
// found in a directory that all see. The last step takes all of it. As parts.h, without a destination: parts
// run in any order, at once or one after the other, on any hosts, and again after a failure.
//
//   RECORDS/lock, RECORDS/parts, RECORDS/part-3.journal    see part_journals.h
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "execute/executor.h"
#include "execute/parts.h"

namespace shardscope {

class PartScheduler;  // execute/part_worker.h

// One thing that is read: `elements` of `from` that become `to`, cut into tiles on the grid of scan.h.
struct ShareItem {
    uint32_t id = 0;
    int64_t elements = 0;
    DType from = DType::uint8, to = DType::uint8;
    bool whole = false;  // one tile, since what is found in it cannot be put together
};

// Tiles [first, first + count) of one item.
struct TileSpan {
    uint32_t tensor = kNone;
    int64_t first = 0;
    int64_t count = 0;
};

// Which worker has most of a tile at hand: elements [begin, end) of an item. Shares are dealt out by it, so
// it must be the same function in all processes of a job.
struct ShareHomes {
    int workers = 0;  // 0 = all have everything
    // Below `workers`; -1 = all have as much.
    std::function<int(uint32_t item, int64_t begin, int64_t end)> of{};
};

// Stores what was found in a tile; `data` is the reading's own. Thread-safe.
using KeepFound = std::function<Status(uint32_t item, int64_t tile, std::string data)>;

struct PartReading {
    const Reader* reader = nullptr;
    std::string records;           // a directory that all hosts see; made when it is not there
    bool temporary = false;        // the records go with the FinishedReading, however it ends
    std::string words;             // everything that decides what is found
    std::vector<FileId> files;     // that are read
    std::vector<ShareItem> items;  // by id; the same for all parts
    ShareHomes homes{};
    std::shared_ptr<FileSystem> fileSystem{};  // of the records; null = this machine's own
    // Reads tiles of `tileBytes`, and keeps what is found in each; says how many bytes were read.
    std::function<Result<uint64_t>(std::span<const TileSpan> spans, uint64_t tileBytes,
                                   const Resources& resources, const KeepFound& keep)>
        read;
};

// Reads one part. Errors: exists (another process does this part; the directory holds other files), changed
// (other words, another version or another source than those of the parts that are there), and those of
// reading. What was found stays, and the next run continues from it.
Result<PartReport> readPart(const PartReading& reading, const PartSpec& part, const Resources& resources);

// That the records are those of the coordinator whose job has this id. Errors: remote.
Status checkRecords(const PartReading& reading, const std::string& id);

// What all parts found, while no other process finishes.
class FinishedReading {
  public:
    // Errors: notFound (no part is there, or some are not done: they are named), exists (another process
    // finishes), changed, io.
    static Result<std::unique_ptr<FinishedReading>> open(const PartReading& reading,
                                                         const std::string& version);
    // The same, once those to whom `scheduler` gives out parts have done what is left. Errors also: those of
    // PartScheduler::run(). The records stay then, and the next run continues from them.
    static Result<std::unique_ptr<FinishedReading>> together(const PartReading& reading,
                                                             const std::string& version,
                                                             PartScheduler& scheduler,
                                                             const Resources& resources);
    ~FinishedReading();

    uint64_t tileBytes() const;
    // Hands out what was found in each tile, in no order. `take` returns false for what cannot be. Errors:
    // changed, damaged, io.
    Status forEach(const std::function<bool(uint32_t item, int64_t tile, std::string_view data)>& take) const;
    // Of no more use: removes the records, and the directory when nothing else is in it.
    Status remove();

  private:
    struct State;
    explicit FinishedReading(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
};

struct ReadInParts {
    std::optional<PartReport> part;
    std::unique_ptr<FinishedReading>
        found;  // null where the reading is not complete, or another one takes it
};
// Errors: those of readPart() and FinishedReading.
Result<ReadInParts> readInParts(const PartReading& reading, const Parts& parts, const Resources& resources);

// Digests of tensors, as a reading: of their tiles, or of whole tensors with an algorithm of one stream.
enum class DigestKind : uint8_t { tile, sha256, crc32 };
PartReading digestReading(const Reader& reader, const std::vector<TensorId>& tensors, DigestKind kind);
// The digests by tensor, as text. Errors: damaged.
using DigestTexts = std::vector<std::pair<TensorId, std::string>>;
Result<DigestTexts> finishDigests(const Reader& reader, const std::vector<TensorId>& tensors, DigestKind kind,
                                  const FinishedReading& found);
// The same by this process alone.
Result<DigestTexts> digestTexts(const Reader& reader, const std::vector<TensorId>& tensors, DigestKind kind,
                                const Resources& resources);

}  // namespace shardscope
