#include "validate/value_bytes.h"

#include <algorithm>
#include <array>
#include <concepts>
#include <cstring>
#include <iterator>
#include <new>
#include <optional>
#include <string>

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

// Sign and magnitude, as IEEE types have them; NaN has no sign that counts.
template <std::unsigned_integral Word>
uint64_t negativeIn(std::span<const std::byte> bytes, Word infinity) {
    constexpr Word kSign = Word{1} << (8 * sizeof(Word) - 1);
    uint64_t count = 0;
    for (size_t at = 0; at + sizeof(Word) <= bytes.size(); at += sizeof(Word)) {
        Word bits;
        std::memcpy(&bits, bytes.data() + at, sizeof bits);
        count += bits > kSign && bits <= (kSign | infinity);
    }
    return count;
}

// torch/optim, Megatron-Core's distrib_optimizer.py, Paddle's adamw.py, optax.
constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kMoments{
    {{"exp_avg", "exp_avg_sq"}, {"moment1", "moment2"}, {"moment1_0", "moment2_0"}, {"mu", "nu"}}};

// Where the first component of a name that fits begins.
template <class Fits>
std::optional<size_t> componentOf(std::string_view name, Fits&& fits) {
    for (size_t at = 0; at < name.size();) {
        const size_t end = std::min(name.find_first_of(".:", at), name.size());
        if (fits(name.substr(at, end - at))) return at;
        at = end + 1;
    }
    return std::nullopt;
}

uint64_t countNegative(DType dtype, std::span<const std::byte> bytes) {
    switch (dtype) {
        case DType::float16:
            return negativeIn<uint16_t>(bytes, 0x7c00);
        case DType::bfloat16:
            return negativeIn<uint16_t>(bytes, 0x7f80);
        case DType::float32:
            return negativeIn<uint32_t>(bytes, 0x7f800000);
        case DType::float64:
            return negativeIn<uint64_t>(bytes, 0x7ff0000000000000);
        default:
            return 0;
    }
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

bool isMoment(const Catalog& catalog, TensorId t) {
    if (catalog.role(t) != Role::optimizer) return false;
    return componentOf(catalog.name(t),
                       [](std::string_view part) {
                           return std::ranges::any_of(kMoments, [&](const auto& pair) {
                               return part == pair.first || part == pair.second;
                           });
                       })
        .has_value();
}

TensorId firstMomentOf(const Catalog& catalog, TensorId second) {
    if (catalog.role(second) != Role::optimizer) return kNone;
    const std::string_view name = catalog.name(second);
    for (const auto& [first, of] : kMoments) {
        const auto at = componentOf(name, [&, of = of](std::string_view part) { return part == of; });
        if (!at) continue;
        const TensorId found = catalog.find(std::string(name.substr(0, *at)) + std::string(first) +
                                            std::string(name.substr(*at + of.size())));
        if (found != kNone) return found;
    }
    return kNone;
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
                                        const Look& look) {
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
            if (look.checksum)
                segment.crc = at + p == begin ? crc32Of(piece)
                                              : crc32Combine(segment.crc, crc32Of(piece), piece.size());
            if (look.row > 0) {
                const uint64_t from = at + p;
                const ZeroPages lost =
                    zeroPages(dtype, piece,
                              {extent.offset + from, look.row, (look.intoRow + from) % look.row, from > 0,
                               from + piece.size() < extent.length});
                if (segment.seen.lost.count == 0) segment.seen.lost.first = lost.first;
                segment.seen.lost.count += lost.count;
            }
            if (look.pieces) segment.pieces.push_back(cellDigest(piece));
            if (extent.swapBytes) applyTransform(dtype, true, false, false, piece);
            lookAtValues(dtype, piece, segment.seen, look);
        }
        if (resources_.progress) resources_.progress->add(read.size());
        at += read.size();
    }
    return segment;
}

void lookAtValues(DType dtype, std::span<const std::byte> block, ValuePattern& seen, const Look& look) {
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
    if (look.sums) addSums(dtype, block, here.sums);
    if (look.signs) here.negative = countNegative(dtype, block);
    here.counts.elements = block.size() * 8 / dtypeBits(dtype);
    seen.join(here);
}

}  // namespace shardscope
