#include "validate/value_bytes.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <new>

#include "base/checked.h"
#include "execute/value_sums.h"
#include "execute/values.h"
#include "model/coverage.h"
#include "storage/digest.h"

namespace shardscope {
namespace {

// One read from a device; a multiple of every element size.
constexpr uint64_t kBlock = uint64_t{4} << 20;

// Whether two chunks of one tensor are one stored chunk that several ranks hold.
bool storedOnce(const ChunkInfo& a, const ChunkInfo& b) {
    return a.file == b.file && a.offset == b.offset && a.length == b.length && a.flat == b.flat &&
           std::ranges::equal(a.offsets, b.offsets) && std::ranges::equal(a.lengths, b.lengths);
}

}  // namespace

std::vector<std::pair<ChunkId, ChunkId>> replicaPairs(const Catalog& catalog) {
    std::vector<std::pair<ChunkId, ChunkId>> pairs;
    for (TensorId t = 0; t < catalog.tensorCount(); ++t) {
        if (catalog.endChunk(t) - catalog.firstChunk(t) < 2) continue;
        const auto found = checkCoverage(catalog, t, 0, 1).replicas;
        std::ranges::copy_if(found, std::back_inserter(pairs), [&](const auto& pair) {
            return !storedOnce(catalog.chunk(t, pair.first), catalog.chunk(t, pair.second));
        });
    }
    return pairs;
}

bool holdsValues(const Catalog& catalog, ChunkId c) {
    const ChunkInfo chunk = catalog.chunk(c);
    return chunk.file != kNone && chunk.elements() != 0 && catalog.aliasOf(chunk.tensor) == kNone &&
           (c == catalog.firstChunk(chunk.tensor) || !storedOnce(catalog.chunk(chunk.tensor, c - 1), chunk));
}

bool ChunkBytes::storageFits() const {
    return extent.checksum &&
           rangeFits(extent.checksum->offset, extent.checksum->length, extent.file->size());
}

ChunkBytes bytesOfChunk(const Catalog& catalog, const ChunkInfo& chunk, Extent extent) {
    ChunkBytes bytes;
    // What is looked at is what is stored.
    bytes.dtype = extent.storedAs.value_or(catalog.dtype(chunk.tensor));
    const auto length = dtypeByteCount(bytes.dtype, static_cast<uint64_t>(chunk.elements()));
    bytes.plain = length && *length <= extent.length &&
                  (extent.strides.empty() || *length == extent.length) &&
                  rangeFits(extent.offset, *length, extent.file->size());
    if (bytes.plain) bytes.length = *length;
    bytes.ownChecksum = extent.checksum && bytes.plain && extent.checksum->offset == extent.offset &&
                        extent.checksum->length == bytes.length;
    bytes.extent = std::move(extent);
    return bytes;
}

// Holds a buffer until it ends.
class SegmentReader::BufferLease {
  public:
    explicit BufferLease(SegmentReader& all) : all_(all), bytes_(all.take()) {}
    BufferLease(const BufferLease&) = delete;
    BufferLease& operator=(const BufferLease&) = delete;
    ~BufferLease() { all_.give(std::move(bytes_)); }

    // Null when the memory limit leaves no room.
    AlignedBuffer* allocated() {
        try {
            bytes_.reset(kBlock);
        } catch (const std::bad_alloc&) {
            return nullptr;
        }
        return &bytes_;
    }

  private:
    SegmentReader& all_;
    AlignedBuffer bytes_;
};

SegmentReader::SegmentReader(const Resources& resources)
    : resources_(resources),
      left_(std::clamp<uint64_t>(resources.memory->limit() / kBlock, 1, resources.pool->size() + 1)),
      lease_(resources.memory->acquire(left_ * kBlock)) {}

AlignedBuffer SegmentReader::take() {
    std::unique_lock lock(mutex_);
    returned_.wait(lock, [&] { return left_ > 0; });
    --left_;
    if (spare_.empty()) return {};
    AlignedBuffer bytes = std::move(spare_.back());
    spare_.pop_back();
    return bytes;
}

void SegmentReader::give(AlignedBuffer bytes) {
    {
        std::lock_guard lock(mutex_);
        ++left_;
        spare_.push_back(std::move(bytes));
    }
    returned_.notify_one();
}

Result<SeenSegment> SegmentReader::read(const Extent& extent, uint64_t begin, uint64_t end, DType dtype,
                                        bool checksum, bool pieces, bool sums) {
    SeenSegment segment;
    BufferLease held(*this);
    AlignedBuffer* const buffer = held.allocated();
    if (!buffer) return makeError(ErrorCode::limit, "no memory for a block");
    for (uint64_t at = begin; at < end;) {
        SHARDSCOPE_TRY(resources_.stop.poll());
        const std::span<std::byte> block = buffer->span(0, static_cast<size_t>(std::min(kBlock, end - at)));
        std::span<std::byte> read = block.first(std::min<size_t>(kPiece, block.size()));
        if (extent.file->readCached(extent.offset + at, read) < read.size()) {
            read = block;
            SHARDSCOPE_TRY(extent.file->readBulk(extent.offset + at, read));
        }
        for (size_t p = 0; p < read.size(); p += kPiece) {
            const auto piece = read.subspan(p, std::min<size_t>(kPiece, read.size() - p));
            if (checksum)
                segment.crc = at + p == begin ? crc32Of(piece)
                                              : crc32Combine(segment.crc, crc32Of(piece), piece.size());
            if (pieces) segment.pieces.push_back(cellDigest(piece));
            if (extent.swapBytes) applyTransform(dtype, true, false, false, piece);
            lookAtValues(dtype, piece, segment.seen, sums);
        }
        if (resources_.progress) resources_.progress->add(read.size());
        at += read.size();
    }
    return segment;
}

void lookAtValues(DType dtype, std::span<const std::byte> block, ValuePattern& seen, bool sums) {
    ValuePattern here;
    here.any = !block.empty();
    const size_t size =
        dtypeIsWholeBytes(dtype) ? dtypeBytes(dtype) : 3;  // 6-bit elements repeat every three bytes
    if (block.size() >= size) {
        std::memcpy(here.first.data(), block.data(), std::min(size, here.first.size()));
        here.uniform = std::memcmp(block.data(), block.data() + size, block.size() - size) == 0;
    } else {
        here.uniform = false;
    }
    countValues(dtype, block, here.counts);
    if (sums) addSums(dtype, block, here.sums);
    here.counts.elements = block.size() * 8 / dtypeBits(dtype);
    seen.join(here);
}

}  // namespace shardscope
