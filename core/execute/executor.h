// Runs a conversion: reads each source byte once, writes each destination byte once, in tiles of the tensors'
// own row-major order, within a memory limit. Scans and digests on the way; publishes the destination whole
// or not at all.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/memory_budget.h"
#include "base/progress.h"
#include "base/result.h"
#include "base/stop.h"
#include "base/thread_pool.h"
#include "formats/format.h"
#include "plan/plan.h"
#include "storage/digest.h"
#include "storage/shared_staging.h"

namespace shardscope {

// What a scan of values counts. Float and complex dtypes only have NaN and Inf.
struct ValueCounts {
    uint64_t elements = 0;
    uint64_t nan = 0;
    uint64_t inf = 0;
    uint64_t zero = 0;
};

struct Resources {
    ThreadPool* pool = nullptr;
    MemoryBudget* memory = nullptr;
    Progress* progress = nullptr;  // may be null
    StopToken stop;
    std::string scratchDirectory;  // empty = beside the destination, or the system's temporary directory
};

// Threads and buffers of one job. The progress, which may be null, outlives it.
class JobResources : public Resources {
  public:
    // `threads`: 0 = chosen for this machine. `bytes`: of buffers.
    JobResources(unsigned threads, uint64_t bytes, Progress* reported, StopToken stopped)
        : Resources{&pool_, &memory_, reported, std::move(stopped), {}}, pool_(threads), memory_(bytes) {}
    JobResources(const JobResources&) = delete;
    JobResources& operator=(const JobResources&) = delete;

  private:
    ThreadPool pool_;
    MemoryBudget memory_;
};

// ------------------------------------------------------------------ reading tensors in their global order

struct TileView {
    TensorId tensor = kNone;
    int64_t firstElement = 0;  // of the tile, in the tensor's row-major order; a multiple of the digest cell
    int64_t elements = 0;
    std::span<const std::byte> bytes;  // row-major, little-endian, conjugation and negation applied
};

struct ScanOptions {
    FillGaps fillGaps = FillGaps::refuse;  // refuse: a tensor with gaps is an error
    uint64_t tileBytes = 0;                // 0 = chosen from the memory limit; rounded to whole digest cells
    bool ordered = false;                  // tiles of one tensor are handed out in order, one at a time
};

// Reads the tensors and calls visit(tile) from the pool's threads, several tensors or tiles at once. Each
// source byte is read once. Errors carry file, byte and tensor.
Status scanTensors(const Reader& reader, const std::vector<TensorId>& tensors, const ScanOptions& options,
                   const Resources& resources, const std::function<Status(const TileView&)>& visit);

// Tile digests of the tensors, by tensor.
struct TensorDigest {
    TensorId tensor = kNone;
    Digest128 digest;
    ValueCounts counts;
};
Result<std::vector<TensorDigest>> digestTensors(const Reader& reader, const std::vector<TensorId>& tensors,
                                                const ScanOptions& options, const Resources& resources);

// One tensor region as bytes in memory (row-major), for `show --values`, small extracts and objects. Errors:
// limit above `maxBytes`.
Result<std::vector<std::byte>> readRegion(const Reader& reader, TensorId tensor, const Box& region,
                                          uint64_t maxBytes, const Resources& resources);

// ------------------------------------------------------------------ converting

// Fixed rounding of all casts: to nearest, ties to even. Overflow becomes infinity where the target has one,
// else NaN (float8_e4m3fn) or the largest value (float4, float6); NaN stays NaN.
bool castSupported(DType from, DType to);
// Converts `count` elements; `to` holds count * dtypeBytes(toType).
void castElements(DType fromType, const std::byte* from, DType toType, std::byte* to, size_t count);

struct ConvertOptions {
    Verify verify = Verify::digest;
    FillGaps fillGaps = FillGaps::refuse;
    bool resume = false;
    bool overwrite = false;
    // What is damaged, or is not a plain array, is left out and listed, not an error. Elements that do not
    // fit their stored checksum are carried and listed.
    bool skipDamaged = false;
    bool scanValues = true;
    // How much work may be lost when the job is killed: the journal is brought up to date after either of
    // these.
    uint64_t journalBytes = uint64_t{1} << 30;
    double journalSeconds = 2;
};

// The values of several checkpoints that become those of one.
struct AverageInput {
    const Reader* source = nullptr;     // not owned
    std::vector<TensorSource> sources;  // one for each wanted tensor
    double weight = 1;
};
struct Average {
    // What becomes of a wanted tensor:
    //   mean  the sum of weight times value, in the order of the inputs, rounded once to the wanted dtype
    //   last  the values of the last input
    //   same  those of the last input, which all inputs must have
    enum class Rule : uint8_t { mean, last, same };
    std::vector<AverageInput> inputs;
    std::vector<Rule> rules;            // one for each wanted tensor
    DType accumulate = DType::float32;  // or float64, in which tensors of float64 are summed in any case
};

class PartScheduler;  // part_worker.h

struct ConvertJob {
    const Reader* source = nullptr;
    const TargetSpec* spec = nullptr;
    const TargetLayout* layout = nullptr;
    const Plan* plan = nullptr;
    std::shared_ptr<FileSystem> fileSystem;
    // Of a job in parts: not null where its processes have no staging directory in common.
    std::shared_ptr<SharedStaging> shared{};
    std::string destination;  // directory, or file when singleFile
    bool singleFile = false;
    std::string version{};  // of this program; all processes of a job must have the same
    // Reopens the staged output through the ordinary reader, for verification.
    std::function<Result<std::unique_ptr<Reader>>(const std::string& path)> reopen;
    ConvertOptions options;
    const Average* average = nullptr;  // not null: `source` and `spec` are those of its last input
    // What tensors of `source` are computed of besides its own files, and the rest that decides their values.
    const Reader* adapter = nullptr;
    std::string adapterWords{};
    PartScheduler* scheduler = nullptr;  // who else does its parts; null = this process alone
    // Called once all is verified, just before the destination appears; may be empty. After an error nothing
    // is published.
    std::function<Status()> beforePublication{};
};

// Whether what is to be read has stored checksums; looks into files of the source.
bool storesChecksums(const Reader& source, const TargetSpec& spec);

// What became of the checksums that the source stores (CRC-32 of torch's zip records). Each is checked where
// all bytes of its record are read in any case.
struct ChecksumReport {
    uint64_t checked = 0, unchecked = 0;  // records that were read, whole or in part
    // Other processes, or an earlier run, have read some, and their counts are not here: what they read whole
    // they have checked.
    bool shared = false;
    // With ConvertOptions::skipDamaged: what is wrong, lost pages among it.
    struct Wrong {
        std::string tensor, why, rule;
    };
    std::vector<Wrong> wrong;
    std::string text() const;  // a sentence for people, where not all were checked; else empty
};

struct ConvertReport {
    uint64_t bytesRead = 0;  // from source files, all reads
    uint64_t bytesWritten = 0;
    uint64_t bytesReused = 0;  // found complete in the journal of an interrupted job
    double seconds = 0;        // reading and writing; what is written is read back meanwhile
    double verifySeconds = 0;  // of what is verified after that
    bool verified = false;
    bool unguarded = false;  // the store of the destination has no conditional writes
    std::vector<std::pair<std::string, Digest128>> digests;   // of the destination's tensors
    std::vector<std::pair<std::string, ValueCounts>> counts;  // tensors with NaN or Inf
    ChecksumReport checksums;
};

// Errors: exists, noSpace, permission, changed (a source file changed), damaged (verification failed),
// cancelled, io. After any error the destination is as it was; the staging directory stays for --resume when
// anything in it is worth keeping.
Result<ConvertReport> runConversion(const ConvertJob& job, const Resources& resources);

// What a conversion would write, without writing it: a tensor of a plan as it comes out of the source.
// One wanted tensor, for small reads by one thread.
class PlannedTensor {
  public:
    virtual ~PlannedTensor() = default;
    // Elements [begin, end) of its row-major order, in the dtype of the source. Errors: those of reading.
    virtual Result<std::vector<std::byte>> read(int64_t begin, int64_t end) = 0;
};
// `source`, `spec` and what `resources` refers to must outlive it.
Result<std::unique_ptr<PlannedTensor>> openPlanned(const Reader& source, const TargetSpec& spec,
                                                   TensorId target, const Resources& resources);

}  // namespace shardscope
