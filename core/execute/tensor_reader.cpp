#include "execute/tensor_reader.h"

#include <algorithm>
#include <new>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/option_words.h"
#include "base/rule.h"
#include "base/units.h"
#include "execute/gather.h"
#include "execute/restride.h"
#include "model/coverage.h"

namespace shardscope {

// ------------------------------------------------------------------ arithmetic of pieces

void ChunkIndex::build() {
    int64_t last = -1;
    for (Span& span : spans_)
        span.lastSoFar = last = std::max(last, span.last);
}

std::pair<size_t, size_t> ChunkIndex::touching(int64_t a, int64_t b) const {
    const auto begin =
        std::partition_point(spans_.begin(), spans_.end(), [&](const Span& s) { return s.lastSoFar < a; });
    const auto end = std::partition_point(begin, spans_.end(), [&](const Span& s) { return s.first < b; });
    return {static_cast<size_t>(begin - spans_.begin()), static_cast<size_t>(end - spans_.begin())};
}

ChunkShape ChunkShape::of(const ChunkInfo& info) {
    ChunkShape shape{info.offsets, info.lengths, 0, 0};
    if (info.flat) {
        shape.start = info.flat->start;
        shape.stop = info.flat->stop;
    } else {
        shape.stop = elementCount(info.lengths);
    }
    return shape;
}

ChunkShape::Piece ChunkShape::pieceIn(int64_t a, int64_t b, DimSpan shape) const {
    Piece piece;
    piece.lo = std::max(start, elementsBefore(a, shape, offsets, lengths));
    piece.hi = std::min(stop, elementsBefore(b, shape, offsets, lengths));
    if (piece.empty()) return piece;
    piece.position = positionOf(piece.lo, shape, offsets, lengths);
    // Positions grow along the order, so the ends tell whether there is a hole.
    piece.contiguous =
        positionOf(piece.hi - 1, shape, offsets, lengths) - piece.position == piece.hi - 1 - piece.lo;
    return piece;
}

void gatherPiece(const ChunkShape& chunk, const ChunkShape::Piece& piece, DimSpan shape, int64_t tileBegin,
                 size_t elementBytes, const std::byte* chunkBytes, std::byte* tile) {
    const BusyTime busy(Progress::Work::compute);
    const auto size = static_cast<int64_t>(elementBytes);
    forEachRows(piece.lo, piece.hi, shape, chunk.offsets, chunk.lengths,
                [&](int64_t index, int64_t position, int64_t run, int64_t rows, int64_t stride) {
                    copyRows(tile + (position - tileBegin) * size, stride * size,
                             chunkBytes + (index - piece.lo) * size, run * size,
                             static_cast<size_t>(run * size), rows);
                });
}

void scatterPiece(const ChunkShape& chunk, const ChunkShape::Piece& piece, DimSpan shape, int64_t tileBegin,
                  size_t elementBytes, const std::byte* tile, std::byte* chunkBytes) {
    const BusyTime busy(Progress::Work::compute);
    const auto size = static_cast<int64_t>(elementBytes);
    forEachRows(piece.lo, piece.hi, shape, chunk.offsets, chunk.lengths,
                [&](int64_t index, int64_t position, int64_t run, int64_t rows, int64_t stride) {
                    copyRows(chunkBytes + (index - piece.lo) * size, run * size,
                             tile + (position - tileBegin) * size, stride * size,
                             static_cast<size_t>(run * size), rows);
                });
}

// ------------------------------------------------------------------ preparing

Error TensorReader::named(Error error) const {
    return std::move(error).ofTensor(context_.reader.catalog().name(tensor_));
}

uint64_t TensorReader::spanBytes(const Chunk& chunk) const {
    const Extent& extent = chunk.extent;
    const ChunkShape& shape = chunk.shape;
    if (extent.strides.empty()) return bytesOfElements(chunk.stored, shape.elements());
    uint64_t last = 0;
    for (size_t i = 0; i < shape.lengths.size(); ++i) {
        uint64_t step = 0;
        if (!checkedMul(static_cast<uint64_t>(shape.lengths[i] - 1), static_cast<uint64_t>(extent.strides[i]),
                        step) ||
            !checkedAdd(last, step, last)) {
            return UINT64_MAX;
        }
    }
    uint64_t bytes = 0;
    if (!checkedMul<uint64_t>(last + 1, dtypeBytes(chunk.stored), bytes)) return UINT64_MAX;
    return bytes;
}

Status TensorReader::checkExtent(const Chunk& chunk) const {
    const Extent& extent = chunk.extent;
    const ChunkShape& shape = chunk.shape;
    if (!extent.file) return makeError(ErrorCode::internal, "a chunk has no file");
    const bool wrongStrides =
        !extent.strides.empty() &&
        (extent.strides.size() != shape.lengths.size() ||
         std::any_of(extent.strides.begin(), extent.strides.end(), [](int64_t s) { return s < 0; }));
    const uint64_t needed = wrongStrides ? UINT64_MAX : spanBytes(chunk);
    if (needed > extent.length) {
        return damaged(fmt::format("the chunk {} needs {}, its entry has {}",
                                   formatBox(shape.offsets, shape.lengths), counted(needed, "byte"),
                                   countText(extent.length)),
                       extent.offset)
            .inFile(extent.file->path())
            .byRule(rule::metaInconsistent);
    }
    if (!rangeFits(extent.offset, needed, extent.file->size())) {
        return damaged(
                   fmt::format("the file has {}, but the chunk {} ends at byte {}",
                               counted(extent.file->size(), "byte"), formatBox(shape.offsets, shape.lengths),
                               countText(extent.offset + needed)),
                   extent.offset)
            .inFile(extent.file->path())
            .byRule(rule::fileTruncated);
    }
    return {};
}

// Whether elements that no chunk holds may be filled in, where there are some.
Status TensorReader::checkGaps() {
    const CoverageResult coverage = checkCoverage(context_.reader.catalog(), tensor_, 0, 1);
    gaps_ = coverage.gapElements > 0;
    if (!gaps_) return {};
    const std::string where = coverage.gaps.empty() ? ""
                                                    : ", the first at " + formatBox(coverage.gaps[0].offsets,
                                                                                    coverage.gaps[0].lengths);
    if (context_.fill == FillGaps::refuse) {
        return damaged(fmt::format("no chunk holds {} of its {}{}", countText(coverage.gapElements),
                                   counted(static_cast<uint64_t>(elements_), "element"), where))
            .byRule(rule::coverageGap)
            .withHint(option("fill-gaps") + " nan or zero fills them");
    }
    if (fillPattern(dtype_, context_.fill) && dtypeIsWholeBytes(dtype_)) return {};
    return makeError(ErrorCode::impossible,
                     fmt::format("no chunk holds {}{}, and {} has no NaN to fill them with",
                                 counted(coverage.gapElements, "element"), where, dtypeName(dtype_)))
        .withHint(option("fill-gaps", "zero"));
}

Status TensorReader::locate(ChunkId id, Chunk& chunk) const {
    SHARDSCOPE_ASSIGN(chunk.extent, context_.reader.locate(id));
    chunk.packed = dynamic_cast<const StoredBytes*>(chunk.extent.file.get());
    chunk.stored = chunk.extent.storedAs.value_or(dtype_);
    if (chunk.stored != dtype_ &&
        (!castSupported(chunk.stored, dtype_) || !dtypeIsWholeBytes(chunk.stored))) {
        return unsupported(fmt::format("its elements are stored as {}, which is not cast to {}",
                                       dtypeName(chunk.stored), dtypeName(dtype_)));
    }
    return checkExtent(chunk);
}

// What is held in memory is decided for the tensor as a whole: one lease, taken at once.
Status TensorReader::holdSpans(WorkerMemory* kept) {
    const uint64_t limit = context_.resources.memory->limit();
    uint64_t held = 0;
    for (Chunk& chunk : chunks_)
        SHARDSCOPE_TRY(straighten(chunk, held, kept));
    if (held == 0) return {};
    // straighten() has marked the chunks to hold by an empty span; all together are at most a quarter of
    // the budget.
    if (kept) kept->drop();
    spanShare_ = context_.spans.acquire(std::min(held, limit / 4));
    lease_ = context_.resources.memory->acquire(std::min(held, limit / 4));
    for (Chunk& chunk : chunks_)
        if (chunk.span) SHARDSCOPE_TRY(holdSpan(chunk, spanBytes(chunk)));
    return {};
}

Result<std::unique_ptr<TensorReader>> TensorReader::prepare(SourceContext& context, TensorId tensor,
                                                            WorkerMemory* kept, Strided strided,
                                                            const Box* only) {
    const Catalog& catalog = context.reader.catalog();
    std::unique_ptr<TensorReader> source(new TensorReader(context));
    source->tensor_ = tensor;
    source->strided_ = strided;
    source->dtype_ = catalog.dtype(tensor);
    source->shape_ = catalog.shape(tensor);
    source->elements_ = catalog.elements(tensor);
    if (source->elements_ == 0) return source;
    Status open = source->open(only, kept);
    if (open.ok()) return source;
    return open.error().code == ErrorCode::cancelled ? open.error() : source->named(std::move(open).error());
}

Status TensorReader::open(const Box* only, WorkerMemory* kept) {
    const Catalog& catalog = context_.reader.catalog();
    struct Found {
        ChunkId id;
        ChunkShape shape;
        int64_t first;
    };
    std::vector<Found> found;
    bool whole = false;
    for (const ChunkId id : coveringChunks(catalog, tensor_)) {
        const ChunkShape box = ChunkShape::of(catalog.chunk(tensor_, id));
        if (!boxInside(box.offsets, box.lengths, shape_) || box.elements() <= 0) continue;
        if (only && !intersect(box.offsets, box.lengths, only->offsets, only->lengths)) continue;
        found.push_back({id, box, box.firstPosition(shape_)});
        whole = whole || box.elements() == elements_;
    }
    if (!whole || found.size() > 1) SHARDSCOPE_TRY(checkGaps());
    std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) {
        return std::pair(a.first, a.id) < std::pair(b.first, b.id);
    });

    chunks_.resize(found.size());
    const auto locateOne = [&](size_t i) {
        chunks_[i].shape = found[i].shape;
        return locate(found[i].id, chunks_[i]);
    };
    // Each may be a way to another host.
    ThreadPool* const pool = MostlyWaiting::any() ? &sharedPool() : context_.resources.pool;
    if (pool && found.size() >= (MostlyWaiting::any() ? 2U : 64U)) {
        SHARDSCOPE_TRY(pool->parallelFor(found.size(), context_.resources.stop, locateOne));
    } else {
        for (size_t i = 0; i < found.size(); ++i)
            SHARDSCOPE_TRY(locateOne(i));
    }
    for (const Found& f : found)
        index_.add(f.first, f.shape.lastPosition(shape_));
    index_.build();
    if (!dtypeIsWholeBytes(dtype_) &&
        (found.size() != 1 || !whole || !isRowMajor(chunks_[0].extent.strides, found[0].shape.lengths))) {
        return unsupported(
            fmt::format("{} elements share bytes, so a tensor of them cannot be put together from chunks",
                        dtypeName(dtype_)));
    }
    return holdSpans(kept);
}

Status TensorReader::straighten(Chunk& chunk, uint64_t& heldBytes, WorkerMemory* kept) {
    Dims& strides = chunk.extent.strides;
    if (strides.empty()) return {};
    if (isRowMajor(strides, chunk.shape.lengths)) {
        strides.clear();
        return {};
    }
    if (chunk.shape.start != 0 || chunk.shape.stop != elementCount(chunk.shape.lengths)) {
        return unsupported("a flat range of a tensor that is stored with strides");
    }
    const uint64_t limit = context_.resources.memory->limit();
    const uint64_t bytes = spanBytes(chunk);
    if (strided_ == Strided::held && bytes <= limit / 8 && heldBytes + bytes <= limit / 4) {
        heldBytes += bytes;
        chunk.span = std::make_shared<std::vector<std::byte>>();
        return {};
    }
    return toScratch(chunk, kept);
}

void TensorReader::count(const Chunk& chunk, uint64_t bytes) const {
    context_.bytesRead += chunk.packed ? chunk.packed->countStored(bytes) : bytes;
}

// Bytes as they are in the file, from this offset.
Status TensorReader::check(const Chunk& chunk, uint64_t offset, std::span<const std::byte> bytes) const {
    if (!context_.checks || chunk.packed || !chunk.extent.checksum) return {};
    const BusyTime busy(Progress::Work::compute);
    return context_.checks->saw(chunk.extent, offset, bytes, context_.reader.catalog().name(tensor_));
}

// Elements [lo, hi) of a chunk whose record has no checksum, as they are in the file.
Status TensorReader::checkPages(const Chunk& chunk, int64_t lo, int64_t hi,
                                std::span<const std::byte> bytes) const {
    const BusyTime busy(Progress::Work::compute);
    const int64_t row = chunk.shape.lengths.empty() ? 1 : chunk.shape.lengths.back();
    const BytesAt at{chunk.extent.offset + bytesOfElements(chunk.stored, lo - chunk.shape.start),
                     bytesOfElements(chunk.stored, row), bytesOfElements(chunk.stored, lo % row),
                     lo > chunk.shape.start, hi < chunk.shape.stop};
    return context_.checks->sawPages(chunk.extent, chunk.stored, bytes, at,
                                     context_.reader.catalog().name(tensor_));
}

Status TensorReader::holdSpan(Chunk& chunk, uint64_t bytes) {
    try {
        chunk.span->resize(bytes);
    } catch (const std::bad_alloc&) {
        return makeError(ErrorCode::limit,
                         fmt::format("no memory for the {} of a strided chunk", counted(bytes, "byte")));
    }
    count(chunk, bytes);
    SHARDSCOPE_TRY(chunk.extent.file->readBulk(chunk.extent.offset, *chunk.span));
    return check(chunk, chunk.extent.offset, *chunk.span);
}

Status TensorReader::toScratch(Chunk& chunk, WorkerMemory* kept) {
    SHARDSCOPE_ASSIGN(std::shared_ptr<WriteFile> scratch,
                      context_.scratchSystem->createScratch(context_.resources.scratchDirectory));
    const uint64_t share = context_.resources.memory->limit() / 4;
    if (kept) kept->drop();
    const MemoryBudget::Lease spanShare = context_.spans.acquire(share);
    const MemoryBudget::Lease lease = context_.resources.memory->acquire(share);
    uint64_t read = 0;
    const size_t size = dtypeBytes(chunk.stored);
    const auto stored = [&](int64_t first, std::span<std::byte> bytes) -> Status {
        const BusyTime busy(Progress::Work::read);
        read += bytes.size();
        const uint64_t offset = chunk.extent.offset + static_cast<uint64_t>(first) * size;
        SHARDSCOPE_TRY(chunk.extent.file->readBulk(offset, bytes));
        return check(chunk, offset, bytes);
    };
    const BusyTime busy(Progress::Work::compute);
    Status status = restrideToFile(stored, chunk.shape.lengths, chunk.extent.strides, size, share, *scratch,
                                   context_.resources.stop);
    count(chunk, read);
    SHARDSCOPE_TRY(std::move(status));
    SHARDSCOPE_ASSIGN(chunk.extent.file, context_.scratchSystem->reopen(scratch));
    chunk.packed = nullptr;
    chunk.extent.checksum.reset();
    chunk.extent.offset = 0;
    chunk.extent.strides.clear();
    return {};
}

// ------------------------------------------------------------------ reading

uint64_t TensorReader::goodTileBytes(uint64_t preferred, uint64_t largest) const {
    constexpr uint64_t kGoodRead = uint64_t{512} << 10;
    const auto total = static_cast<uint64_t>(bytesOfElements(dtype_, elements_));
    if (chunks_.size() < 2 || total <= preferred) return preferred;
    // Pieces in a tile from the middle of the tensor.
    const auto tile = static_cast<int64_t>(static_cast<uint64_t>(elements_) / (total / preferred + 1));
    const int64_t a = (elements_ - tile) / 2;
    const auto [first, last] = index_.touching(a, a + tile);
    uint64_t touched = 0;
    for (size_t i = first; i < last; ++i)
        touched += !chunks_[i].shape.pieceIn(a, a + tile, shape_).empty();
    return std::clamp(touched * kGoodRead, preferred, std::max(preferred, largest));
}

size_t TensorReader::readBufferBytes(int64_t a, int64_t b) const {
    int64_t most = 0;
    const auto [first, last] = index_.touching(a, b);
    for (size_t i = first; i < last; ++i) {
        const ChunkShape::Piece piece = chunks_[i].shape.pieceIn(a, b, shape_);
        if (!piece.empty() && !piece.contiguous) most = std::max(most, piece.hi - piece.lo);
    }
    return bytesOfElements(dtype_, most);
}

size_t TensorReader::preferredAlignment(int64_t a, int64_t b) const {
    const auto [first, last] = index_.touching(a, b);
    for (size_t i = first; i < last; ++i) {
        const ChunkShape::Piece piece = chunks_[i].shape.pieceIn(a, b, shape_);
        if (piece.empty()) continue;
        if (!piece.contiguous || piece.position != a || chunks_[i].stored != dtype_) return 0;
        return (chunks_[i].extent.offset + bytesOfElements(dtype_, piece.lo - chunks_[i].shape.start)) %
               kIoAlignment;
    }
    return 0;
}

Status TensorReader::readStored(const Chunk& chunk, int64_t lo, int64_t hi,
                                std::span<std::byte> bytes) const {
    const Extent& extent = chunk.extent;
    Status status;
    if (chunk.span) {
        const BusyTime busy(Progress::Work::compute);
        restrideRange(lo, hi, chunk.shape.lengths, extent.strides, dtypeBytes(chunk.stored),
                      chunk.span->data(), bytes.data());
    } else {
        count(chunk, bytes.size());
        const uint64_t offset = extent.offset + bytesOfElements(chunk.stored, lo - chunk.shape.start);
        const bool checks = context_.checks && !chunk.packed && extent.checksum;
        status = checks
                     ? context_.checks->read(extent, offset, bytes, context_.reader.catalog().name(tensor_))
                     : extent.file->readBulk(offset, bytes);
        if (status.ok() && context_.checks && !chunk.packed && !extent.checksum)
            status = checkPages(chunk, lo, hi, bytes);
    }
    if (!status.ok()) return named(std::move(status).error());
    if (extent.swapBytes || extent.conjugate || extent.negate) {
        const BusyTime busy(Progress::Work::compute);
        applyTransform(chunk.stored, extent.swapBytes, extent.conjugate, extent.negate, bytes);
    }
    return {};
}

// In blocks so small that they need no part of the job's budget.
Status TensorReader::readCast(const Chunk& chunk, int64_t lo, int64_t hi, std::span<std::byte> bytes) const {
    constexpr size_t kBlock = size_t{256} << 10;
    AlignedBuffer buffer(kBlock + kIoAlignment);
    const auto most = static_cast<int64_t>(kBlock / dtypeBytes(chunk.stored));
    while (lo < hi) {
        const int64_t count = std::min(hi - lo, most);
        const size_t phase =
            chunk.span ? 0
                       : (chunk.extent.offset + bytesOfElements(chunk.stored, lo - chunk.shape.start)) %
                             kIoAlignment;
        const std::span<std::byte> block = buffer.span(phase, bytesOfElements(chunk.stored, count));
        SHARDSCOPE_TRY(readStored(chunk, lo, lo + count, block));
        {
            const BusyTime busy(Progress::Work::compute);
            castElements(chunk.stored, block.data(), dtype_, bytes.data(), static_cast<size_t>(count));
        }
        bytes = bytes.subspan(bytesOfElements(dtype_, count));
        lo += count;
    }
    return {};
}

Status TensorReader::readChunk(size_t index, int64_t lo, int64_t hi, std::span<std::byte> bytes) const {
    const Chunk& chunk = chunks_[index];
    return chunk.stored == dtype_ ? readStored(chunk, lo, hi, bytes) : readCast(chunk, lo, hi, bytes);
}

Status TensorReader::readTile(int64_t a, int64_t b, std::span<std::byte> tile,
                              std::span<std::byte> buffer) const {
    if (gaps_) fillWith(*fillPattern(dtype_, context_.fill), tile);
    const size_t size = dtypeBytes(dtype_);
    const auto [first, last] = index_.touching(a, b);
    for (size_t i = first; i < last; ++i) {
        const Chunk& chunk = chunks_[i];
        const ChunkShape::Piece piece = chunk.shape.pieceIn(a, b, shape_);
        if (piece.empty()) continue;
        const size_t bytes = bytesOfElements(dtype_, piece.hi - piece.lo);
        if (piece.contiguous) {
            SHARDSCOPE_TRY(readChunk(i, piece.lo, piece.hi,
                                     tile.subspan(bytesOfElements(dtype_, piece.position - a), bytes)));
            continue;
        }
        const size_t phase =
            chunk.span || chunk.stored != dtype_
                ? 0
                : (chunk.extent.offset + bytesOfElements(dtype_, piece.lo - chunk.shape.start)) %
                      kIoAlignment;
        const std::span<std::byte> piecesBytes = buffer.subspan(phase, bytes);
        SHARDSCOPE_TRY(readChunk(i, piece.lo, piece.hi, piecesBytes));
        gatherPiece(chunk.shape, piece, shape_, a, size, piecesBytes.data(), tile.data());
    }
    return {};
}

}  // namespace shardscope
