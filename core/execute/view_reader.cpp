#include "execute/view_reader.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>

#include <fmt/format.h>

#include "base/checked.h"
#include "execute/gather.h"
#include "execute/restride.h"

namespace shardscope {
namespace {

// A piece is read tile by tile when its reads are at least that long on average.
constexpr uint64_t kGoodRead = uint64_t{16} << 10;
// As much of a piece as is looked at to find out.
constexpr uint64_t kSample = uint64_t{1} << 20;

size_t roundedUp(size_t bytes) {
    return (bytes + kIoAlignment - 1) / kIoAlignment * kIoAlignment;
}

// Elements that are read in one go for a part of a piece.
struct Block {
    int64_t from;                             // in the source
    int64_t span;                             // elements from the first to the last that is needed
    int64_t count;                            // of them needed
    int64_t to;                               // of the first, in the wanted tensor's order
    bool straight;                            // in the same order in the source as in the wanted tensor
    DimSpan lengths, sourceStrides, strides;  // of the needed ones
};

// Cuts elements [lo, hi) of a piece's box into boxes, and those into blocks that are alike; visit(block) says
// whether the next one of the same box is wanted. Dimensions are taken into a block as long as at most a
// fifth of what is read is not needed.
template <class Visit>
void forEachBlock(const ViewPiece& piece, DimSpan dims, DimSpan strides, int64_t lo, int64_t hi,
                  Visit&& visit) {
    forEachPart(lo, hi, piece.box.lengths, [&](int64_t start, DimSpan offsets, DimSpan sizes) {
        struct Dim {
            int64_t length, from, to;
        };
        std::array<Dim, kMaxRank> moving{};
        size_t count = 0;
        int64_t from = piece.start;
        for (size_t d = 0; d < sizes.size(); ++d) {
            from += offsets[d] * piece.strides[d];
            if (sizes[d] > 1) moving[count++] = {sizes[d], piece.strides[d], strides[d]};
        }
        const int64_t to = positionOf(start, dims, piece.box.offsets, piece.box.lengths);
        std::stable_sort(moving.begin(), moving.begin() + static_cast<ptrdiff_t>(count),
                         [](const Dim& a, const Dim& b) { return a.from < b.from; });
        Block block{from, 1, 1, to, true, {}, {}, {}};
        size_t inner = 0;
        for (; inner < count; ++inner) {
            const Dim& dim = moving[inner];
            const int64_t span = block.span + (dim.length - 1) * dim.from;
            if (span > block.count * dim.length * 5 / 4) break;
            block.span = span;
            block.count *= dim.length;
            block.straight = block.straight && dim.from == dim.to;
        }
        block.straight = block.straight && block.span == block.count;
        std::array<int64_t, kMaxRank> lengths{}, sourceStrides{}, wantedStrides{}, index{};
        for (size_t i = 0; i < inner; ++i) {
            lengths[i] = moving[i].length;
            sourceStrides[i] = moving[i].from;
            wantedStrides[i] = moving[i].to;
        }
        block.lengths = DimSpan(lengths.data(), inner);
        block.sourceStrides = DimSpan(sourceStrides.data(), inner);
        block.strides = DimSpan(wantedStrides.data(), inner);
        for (;;) {
            if (!visit(static_cast<const Block&>(block))) return;
            size_t d = inner;
            for (; d < count; ++d) {
                block.from += moving[d].from;
                block.to += moving[d].to;
                if (++index[d] < moving[d].length) break;
                block.from -= moving[d].from * moving[d].length;
                block.to -= moving[d].to * moving[d].length;
                index[d] = 0;
            }
            if (d == count) return;
        }
    });
}

// Whether the reads of a tile in the middle of the piece are long.
bool readsWell(const ViewPiece& piece, DimSpan dims, DimSpan strides, size_t elementBytes) {
    const int64_t elements = elementCount(piece.box.lengths);
    const int64_t sample = std::min(elements, static_cast<int64_t>(kSample / elementBytes));
    const int64_t lo = (elements - sample) / 2;
    uint64_t blocks = 0, bytes = 0;
    forEachBlock(piece, dims, strides, lo, lo + sample, [&](const Block& block) {
        ++blocks;
        bytes += static_cast<uint64_t>(block.count) * elementBytes;
        // A sample of single elements tells enough after some of them.
        return blocks < 4096;
    });
    return blocks <= 1 || bytes / blocks >= kGoodRead;
}

ViewReading::Span spanOf(const ViewPiece& piece) {
    int64_t last = piece.start;
    for (size_t d = 0; d < piece.strides.size(); ++d)
        last += (piece.box.lengths[d] - 1) * piece.strides[d];
    return {piece.start, last};
}

}  // namespace

ViewReading viewReading(const TensorView& view, size_t elementBytes, uint64_t memory) {
    ViewReading reading;
    const Dims strides = rowMajorStrides(view.dims());
    std::map<TensorId, ViewReading::Span> spans;
    for (const ViewPiece& piece : view.pieces()) {
        if (piece.source == kNone) {
            reading.ways.push_back(ViewReading::Way::constant);
            continue;
        }
        const bool direct = readsWell(piece, view.dims(), strides, elementBytes);
        reading.ways.push_back(direct ? ViewReading::Way::direct : ViewReading::Way::held);
        const uint64_t bytes = static_cast<uint64_t>(elementCount(piece.box.lengths)) * elementBytes;
        if (direct) {
            reading.sourceBytes += bytes;
            continue;
        }
        const ViewReading::Span span = spanOf(piece);
        const auto [it, fresh] = spans.emplace(piece.source, span);
        if (!fresh)
            it->second = {std::min(it->second.first, span.first), std::max(it->second.last, span.last)};
    }
    uint64_t held = 0;
    for (const auto& [source, span] : spans) {
        const uint64_t bytes = static_cast<uint64_t>(span.last - span.first + 1) * elementBytes;
        if (bytes > memory / 8 || held + bytes > memory / 4) continue;
        held += bytes;
        reading.sourceBytes += bytes;
        reading.held.emplace(source, span);
    }
    for (size_t i = 0; i < reading.ways.size(); ++i) {
        const ViewPiece& piece = view.pieces()[i];
        if (reading.ways[i] != ViewReading::Way::held || reading.held.contains(piece.source)) continue;
        reading.ways[i] = ViewReading::Way::scratch;
        const uint64_t bytes = static_cast<uint64_t>(elementCount(piece.box.lengths)) * elementBytes;
        reading.sourceBytes += bytes;
        reading.scratchBytes += bytes;
    }
    return reading;
}

// ------------------------------------------------------------------ preparing

Result<std::unique_ptr<ViewReader>> ViewReader::prepare(SourceContext& context, const TensorView& view,
                                                        DType dtype, WorkerMemory& kept,
                                                        TensorReader::Strided strided) {
    const Catalog& catalog = context.reader.catalog();
    std::unique_ptr<ViewReader> reader(new ViewReader(view));
    reader->dtype_ = dtype;
    reader->elements_ = elementCount(view.shape());
    reader->strides_ = rowMajorStrides(view.dims());
    if (view.pieces().empty()) return reader;
    const std::vector<TensorId> sources = view.sources();
    if (!sources.empty()) reader->dtype_ = catalog.dtype(sources.front());
    if (!dtypeIsWholeBytes(reader->dtype_)) {
        return unsupported(fmt::format("{} elements share bytes, so they cannot be put in another order",
                                       dtypeName(reader->dtype_)));
    }
    const bool isDouble = reader->dtype_ == DType::float64;
    if (!view.changes().empty() && !castSupported(reader->dtype_, isDouble ? DType::float64 : DType::float32))
        return unsupported(fmt::format("{} elements cannot be computed with", dtypeName(reader->dtype_)));
    // Nothing is held in memory while the sources are prepared: one lease is taken at the end.
    for (const TensorId source : sources) {
        if (catalog.dtype(source) != reader->dtype_)
            return makeError(ErrorCode::internal, "the plan joins tensors of different dtypes");
        SHARDSCOPE_ASSIGN(reader->sources_[source],
                          TensorReader::prepare(context, source, &kept, TensorReader::Strided::scratch));
    }
    const ViewReading reading =
        viewReading(view, dtypeBytes(reader->dtype_),
                    strided == TensorReader::Strided::held ? context.resources.memory->limit() : 0);
    for (size_t i = 0; i < view.pieces().size(); ++i) {
        const ViewPiece& from = view.pieces()[i];
        Piece piece;
        piece.view = &from;
        piece.shape = {from.box.offsets, from.box.lengths, 0, elementCount(from.box.lengths)};
        piece.way = reading.ways[i];
        bool inside = boxInside(from.box.offsets, from.box.lengths, view.dims()) && piece.shape.stop > 0;
        if (piece.way == ViewReading::Way::constant) {
            SHARDSCOPE_TRY(reader->setConstant(piece));
        } else {
            piece.source = reader->sources_.at(from.source).get();
            const ViewReading::Span span = spanOf(from);
            inside = inside && span.first >= 0 && span.last < piece.source->elements();
        }
        if (!inside) return makeError(ErrorCode::internal, "the plan takes elements from outside a tensor");
        reader->pieces_.push_back(std::move(piece));
    }
    const DimSpan dims = view.dims();
    std::stable_sort(reader->pieces_.begin(), reader->pieces_.end(), [&](const Piece& a, const Piece& b) {
        return a.shape.firstPosition(dims) < b.shape.firstPosition(dims);
    });
    for (Piece& piece : reader->pieces_) {
        reader->index_.add(piece.shape.firstPosition(dims), piece.shape.lastPosition(dims));
        if (piece.way == ViewReading::Way::scratch) SHARDSCOPE_TRY(reader->toScratch(context, piece, kept));
    }
    reader->index_.build();
    SHARDSCOPE_TRY(reader->hold(context, reading, kept));
    return reader;
}

Status ViewReader::setConstant(Piece& piece) const {
    piece.element.size = dtypeBytes(dtype_);
    if (piece.view->fill == 0) return {};  // zero bytes are zero
    if (!dtypeIsFloat(dtype_) && !dtypeIsComplex(dtype_) && piece.element.size <= sizeof(int64_t)) {
        // The plan has checked that it is an integer of this dtype; the low bytes are those of two's
        // complement.
        const double fill = piece.view->fill;
        const uint64_t bits =
            fill < 0 ? static_cast<uint64_t>(static_cast<int64_t>(fill)) : static_cast<uint64_t>(fill);
        std::memcpy(piece.element.bytes, &bits, piece.element.size);
        return {};
    }
    if (!castSupported(DType::float64, dtype_))
        return unsupported(fmt::format("{} elements cannot be filled with a number", dtypeName(dtype_)));
    castElements(DType::float64, reinterpret_cast<const std::byte*>(&piece.view->fill), dtype_,
                 piece.element.bytes, 1);
    return {};
}

Status ViewReader::toScratch(SourceContext& context, Piece& piece, WorkerMemory& kept) {
    SHARDSCOPE_ASSIGN(std::shared_ptr<WriteFile> scratch,
                      context.scratchSystem->createScratch(context.resources.scratchDirectory));
    const uint64_t share = context.resources.memory->limit() / 4;
    kept.drop();
    const MemoryBudget::Lease spanShare = context.spans.acquire(share);
    const MemoryBudget::Lease lease = context.resources.memory->acquire(share);
    const auto size = static_cast<int64_t>(dtypeBytes(dtype_));
    AlignedBuffer buffer;
    const auto stored = [&](int64_t first, std::span<std::byte> bytes) -> Status {
        const BusyTime reading(Progress::Work::read);
        const int64_t a = piece.view->start + first, b = a + static_cast<int64_t>(bytes.size()) / size;
        try {
            buffer.reset(piece.source->readBufferBytes(a, b) + kIoAlignment);
        } catch (const std::bad_alloc&) {
            return makeError(ErrorCode::limit, "no memory to put a tensor in another order");
        }
        return piece.source->readTile(a, b, bytes, buffer.span());
    };
    const BusyTime busy(Progress::Work::compute);
    // A quarter for what the source's own pieces take while they are read.
    SHARDSCOPE_TRY(restrideToFile(stored, piece.view->box.lengths, piece.view->strides, dtypeBytes(dtype_),
                                  share / 4 * 3, *scratch, context.resources.stop));
    SHARDSCOPE_ASSIGN(piece.scratch, context.scratchSystem->reopen(scratch));
    return {};
}

Status ViewReader::hold(SourceContext& context, const ViewReading& reading, WorkerMemory& kept) {
    if (reading.held.empty()) return {};
    const size_t size = dtypeBytes(dtype_);
    uint64_t total = 0;
    for (const auto& [source, span] : reading.held)
        total += static_cast<uint64_t>(span.last - span.first + 1) * size;
    kept.drop();
    spanShare_ = context.spans.acquire(total);
    lease_ = context.resources.memory->acquire(total);
    for (const auto& [source, span] : reading.held) {
        const TensorReader& from = *sources_.at(source);
        Held& held = held_[source];
        held.first = span.first;
        const int64_t end = span.last + 1;
        AlignedBuffer buffer;
        try {
            held.bytes.resize(static_cast<size_t>(end - span.first) * size);
        } catch (const std::bad_alloc&) {
            return makeError(ErrorCode::limit, "no memory to put a tensor in another order");
        }
        // In ranges, so that what the source's own pieces take stays small.
        const int64_t step = std::max<int64_t>(1, static_cast<int64_t>((uint64_t{8} << 20) / size));
        for (int64_t a = span.first; a < end; a += step) {
            SHARDSCOPE_TRY(context.resources.stop.poll());
            const int64_t b = std::min(end, a + step);
            try {
                buffer.reset(from.readBufferBytes(a, b) + kIoAlignment);
            } catch (const std::bad_alloc&) {
                return makeError(ErrorCode::limit, "no memory to put a tensor in another order");
            }
            SHARDSCOPE_TRY(from.readTile(
                a, b,
                std::span(held.bytes)
                    .subspan(static_cast<size_t>(a - span.first) * size, static_cast<size_t>(b - a) * size),
                buffer.span()));
        }
    }
    return {};
}

// ------------------------------------------------------------------ reading

uint64_t ViewReader::goodTileBytes(uint64_t preferred, uint64_t largest) const {
    // A tile takes up to three times its size here, so it stays well below the largest.
    const uint64_t most = std::max(preferred, largest / 4);
    uint64_t good = preferred;
    for (const auto& [id, source] : sources_)
        good = std::max(good, std::min(source->goodTileBytes(preferred, largest), most));
    return good;
}

size_t ViewReader::preferredAlignment(int64_t, int64_t) const {
    return 0;
}

// First the block, from an aligned place on, then what the source needs to read it.
size_t ViewReader::readBufferBytes(int64_t a, int64_t b) const {
    size_t apart = 0, inner = 0;
    const auto [first, last] = index_.touching(a, b);
    for (size_t i = first; i < last; ++i) {
        const Piece& piece = pieces_[i];
        const ChunkShape::Piece part = piece.shape.pieceIn(a, b, view_.dims());
        const bool inMemory = piece.way == ViewReading::Way::held || piece.way == ViewReading::Way::constant;
        if (part.empty() || inMemory) continue;
        if (piece.way == ViewReading::Way::scratch) {
            if (!part.contiguous) apart = std::max(apart, bytesOfElements(dtype_, part.hi - part.lo));
            continue;
        }
        const bool pieces = piece.source->chunkCount() != 1 ||
                            piece.source->chunkShape(0).elements() != piece.source->elements();
        forEachBlock(*piece.view, view_.dims(), strides_, part.lo, part.hi, [&](const Block& block) {
            const size_t bytes = bytesOfElements(dtype_, block.span);
            if (!block.straight) apart = std::max(apart, bytes);
            if (pieces) inner = std::max(inner, bytes);
            return false;  // all blocks of a part are alike
        });
    }
    return roundedUp(apart) + kIoAlignment + roundedUp(inner);
}

Status ViewReader::readTile(int64_t a, int64_t b, std::span<std::byte> tile,
                            std::span<std::byte> buffer) const {
    SHARDSCOPE_TRY(fetchTile(a, b, tile, buffer));
    if (view_.changes().empty()) return {};
    const BusyTime busy(Progress::Work::compute);
    const auto values = tile.first(static_cast<size_t>(b - a) * dtypeBytes(dtype_));
    dtype_ == DType::float64 ? changeValues<double>(values) : changeValues<float>(values);
    return {};
}

// In ranges that stay in the processor's first cache.
template <class Number>
void ViewReader::changeValues(std::span<std::byte> tile) const {
    constexpr DType kWide = std::is_same_v<Number, double> ? DType::float64 : DType::float32;
    const size_t size = dtypeBytes(dtype_);
    std::array<Number, 1024> wide;
    const auto each = [](std::span<Number> numbers, auto apply) {
        for (Number& number : numbers)
            number = apply(number);
    };
    for (size_t at = 0; at < tile.size();) {
        const size_t count = std::min(wide.size(), (tile.size() - at) / size);
        const std::span<Number> numbers(wide.data(), count);
        // Rounded after each change, as the frameworks do whose changes these are.
        for (const ValueChange& change : view_.changes()) {
            castElements(dtype_, tile.data() + at, kWide, reinterpret_cast<std::byte*>(wide.data()), count);
            const auto operand = static_cast<Number>(change.operand);
            if (change.kind == ValueChange::Kind::multiply) {
                each(numbers, [=](Number x) { return x * operand; });
            } else if (change.kind == ValueChange::Kind::divide) {
                each(numbers, [=](Number x) { return x / operand; });
            } else {
                each(numbers, [=](Number x) { return x + operand; });
            }
            castElements(kWide, reinterpret_cast<const std::byte*>(wide.data()), dtype_, tile.data() + at,
                         count);
        }
        at += count * size;
    }
}

Status ViewReader::fetchTile(int64_t a, int64_t b, std::span<std::byte> tile,
                             std::span<std::byte> buffer) const {
    const auto [first, last] = index_.touching(a, b);
    for (size_t i = first; i < last; ++i) {
        const Piece& piece = pieces_[i];
        const ChunkShape::Piece part = piece.shape.pieceIn(a, b, view_.dims());
        if (part.empty()) continue;
        switch (piece.way) {
            case ViewReading::Way::direct:
                SHARDSCOPE_TRY(readDirect(piece, part, a, tile, buffer));
                break;
            case ViewReading::Way::held:
                copyHeld(piece, part, a, tile);
                break;
            case ViewReading::Way::constant:
                fillConstant(piece, part, a, tile);
                break;
            case ViewReading::Way::scratch:
                SHARDSCOPE_TRY(readScratch(piece, part, a, tile, buffer));
                break;
        }
    }
    return {};
}

Status ViewReader::readDirect(const Piece& piece, const ChunkShape::Piece& part, int64_t a,
                              std::span<std::byte> tile, std::span<std::byte> buffer) const {
    const auto size = static_cast<int64_t>(dtypeBytes(dtype_));
    Status status;
    forEachBlock(*piece.view, view_.dims(), strides_, part.lo, part.hi, [&](const Block& block) {
        if (!status.ok()) return false;
        const auto bytes = static_cast<size_t>(block.span * size);
        const int64_t end = block.from + block.span;
        const auto to = static_cast<size_t>((block.to - a) * size);
        if (block.straight) {
            status = piece.source->readTile(block.from, end, tile.subspan(to, bytes), buffer);
            return status.ok();
        }
        // Where the bytes may land so that they can be read directly.
        const size_t phase = piece.source->preferredAlignment(block.from, end);
        const size_t behind = roundedUp(phase + bytes);
        const std::span<std::byte> bytesOfBlock = buffer.subspan(phase, bytes);
        status = piece.source->readTile(block.from, end, bytesOfBlock, buffer.subspan(behind));
        if (!status.ok()) return false;
        const BusyTime busy(Progress::Work::compute);
        copyStrided(tile.data() + to, block.strides, bytesOfBlock.data(), block.sourceStrides, block.lengths,
                    dtypeBytes(dtype_));
        return true;
    });
    return status;
}

void ViewReader::copyHeld(const Piece& piece, const ChunkShape::Piece& part, int64_t a,
                          std::span<std::byte> tile) const {
    const BusyTime busy(Progress::Work::compute);
    const auto size = static_cast<int64_t>(dtypeBytes(dtype_));
    const Held& held = held_.at(piece.view->source);
    const ViewPiece& view = *piece.view;
    forEachPart(part.lo, part.hi, view.box.lengths, [&](int64_t start, DimSpan offsets, DimSpan sizes) {
        int64_t from = view.start - held.first;
        for (size_t d = 0; d < sizes.size(); ++d)
            from += offsets[d] * view.strides[d];
        const int64_t to = positionOf(start, view_.dims(), view.box.offsets, view.box.lengths) - a;
        copyStrided(tile.data() + to * size, strides_, held.bytes.data() + from * size, view.strides, sizes,
                    dtypeBytes(dtype_));
    });
}

void ViewReader::fillConstant(const Piece& piece, const ChunkShape::Piece& part, int64_t a,
                              std::span<std::byte> tile) const {
    const auto size = static_cast<int64_t>(piece.element.size);
    forEachRows(part.lo, part.hi, view_.dims(), piece.shape.offsets, piece.shape.lengths,
                [&](int64_t, int64_t position, int64_t length, int64_t rows, int64_t stride) {
                    for (int64_t row = 0; row < rows; ++row) {
                        fillWith(piece.element,
                                 tile.subspan(static_cast<size_t>((position + row * stride - a) * size),
                                              static_cast<size_t>(length * size)));
                    }
                });
}

Status ViewReader::readScratch(const Piece& piece, const ChunkShape::Piece& part, int64_t a,
                               std::span<std::byte> tile, std::span<std::byte> buffer) const {
    const size_t bytes = bytesOfElements(dtype_, part.hi - part.lo);
    const uint64_t at = bytesOfElements(dtype_, part.lo);
    if (part.contiguous)
        return piece.scratch->readBulk(at, tile.subspan(bytesOfElements(dtype_, part.position - a), bytes));
    const std::span<std::byte> stored = buffer.subspan(at % kIoAlignment, bytes);
    SHARDSCOPE_TRY(piece.scratch->readBulk(at, stored));
    gatherPiece(piece.shape, part, view_.dims(), a, dtypeBytes(dtype_), stored.data(), tile.data());
    return {};
}

}  // namespace shardscope
