// The bytes that a reading of values looks at: of which chunk, in segments. Private to this room.
#pragma once

#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

#include "storage/aligned_buffer.h"
#include "validate/validate.h"
#include "validate/value_scan.h"

namespace shardscope {

// Bytes that are examined at once, and read at once from the page cache, so that they are still in the
// second-level cache. Digests of replicas are taken over pieces. A segment begins with a piece, so that what
// is found does not depend on how segments are cut.
constexpr uint64_t kPiece = uint64_t{512} << 10;

// Chunks of one tensor that hold the same elements, each stored by itself.
std::vector<std::pair<ChunkId, ChunkId>> replicaPairs(const Catalog& catalog);

// Whether a chunk has elements to read. A stored chunk that the catalog lists once for each rank that holds
// it is read once.
bool holdsValues(const Catalog& catalog, ChunkId chunk);

// Whether a tensor is Adam's first or second moment, whose signs are counted; and the first moment that
// stands beside a second one, kNone where there is none. Told by the names that frameworks use.
bool isMoment(const Catalog& catalog, TensorId tensor);
TensorId firstMomentOf(const Catalog& catalog, TensorId second);

// How the bytes of one chunk are read.
struct ChunkBytes {
    Extent extent;
    DType dtype = DType::uint8;  // as stored
    uint64_t length = 0;
    bool plain = false;  // one range of bytes; else the tensor is read in its own order
    // True: the stored checksum covers this chunk. False: it covers a storage that several tensors share.
    bool ownChecksum = false;
    bool storageFits() const;  // that storage is inside its file
};
ChunkBytes bytesOfChunk(const Catalog& catalog, const ChunkInfo& chunk, Extent extent);

// What is wanted of bytes besides the counts of their values.
struct Look {
    bool checksum = false, pieces = false, sums = false;
    bool signs = false;    // how many are below zero
    uint64_t row = 0;      // bytes of a row: pages that are lost are looked for; 0 = they are not
    uint64_t intoRow = 0;  // where the extent begins
};

// Reads segments, from any number of threads, with as many buffers as the memory limit has room for.
class SegmentReader {
  public:
    explicit SegmentReader(const Resources& resources);

    // Bytes [begin, end) behind the extent's start. Errors: cancelled, limit, those of reading.
    Result<SeenSegment> read(const Extent& extent, uint64_t begin, uint64_t end, DType dtype,
                             const Look& look);

  private:
    class BufferLease;
    AlignedBuffer take();
    void give(AlignedBuffer bytes);

    const Resources& resources_;
    std::mutex mutex_;
    std::condition_variable returned_;
    uint64_t left_;
    std::vector<AlignedBuffer> spare_;
    const MemoryBudget::Lease lease_;
};

// Adds the values of a range to a pattern, with sums and signs if they are asked for.
void lookAtValues(DType dtype, std::span<const std::byte> block, ValuePattern& seen, const Look& look);

}  // namespace shardscope
