#include "execute/destination.h"

#include <algorithm>

#include <fmt/format.h>

#include "execute/average.h"
#include "execute/read_behind.h"
#include "execute/view_reader.h"

namespace shardscope {
namespace {

bool isMean(const ConvertJob& job, TensorId target) {
    return job.average && job.average->rules[target] == Average::Rule::mean;
}

// Of each input. Nothing of one is held in memory while the others are prepared.
Result<std::vector<std::unique_ptr<ElementReader>>> openInputs(const ConvertJob& job, SourceContext& context,
                                                               TensorId target, WorkerMemory& kept) {
    std::vector<std::unique_ptr<ElementReader>> readers;
    for (size_t i = 0; i < context.inputs.size(); ++i) {
        SHARDSCOPE_ASSIGN(auto reader,
                          openElements(*context.inputs[i], job.average->inputs[i].sources[target],
                                       job.spec->target.dtype(target), kept, TensorReader::Strided::scratch));
        readers.push_back(std::move(reader));
    }
    return readers;
}

}  // namespace

Result<std::unique_ptr<ElementReader>> openElements(SourceContext& context, const TensorSource& from,
                                                    DType empty, WorkerMemory& kept,
                                                    TensorReader::Strided strided) {
    if (from.view) {
        SHARDSCOPE_ASSIGN(std::unique_ptr<ElementReader> view,
                          ViewReader::prepare(context, *from.view, empty, kept, strided));
        return view;
    }
    SHARDSCOPE_ASSIGN(std::unique_ptr<ElementReader> tensor,
                      TensorReader::prepare(context, from.source, &kept, strided));
    return tensor;
}

std::unique_ptr<SourceContext> sourceContext(const ConvertJob& job, const Resources& resources) {
    auto context =
        std::make_unique<SourceContext>(*job.source, resources, job.options.fillGaps, job.fileSystem);
    if (!job.destination.empty()) context->checks = std::make_shared<RecordChecks>(job.options.skipDamaged);
    if (!job.average) return context;
    for (const AverageInput& input : job.average->inputs)
        context->inputs.push_back(std::make_unique<SourceContext>(*input.source, *context));
    return context;
}

DType sourceDType(const ConvertJob& job, TensorId target) {
    const DType empty = job.spec->target.dtype(target);
    if (!isMean(job, target)) return job.spec->sources[target].dtypeIn(job.source->catalog(), empty);
    for (const AverageInput& input : job.average->inputs) {
        if (input.sources[target].dtypeIn(input.source->catalog(), empty) == DType::float64)
            return DType::float64;
    }
    return job.average->accumulate;
}

TileGrid sharedGrid(const ConvertJob& job, TensorId target, uint64_t tileBytes) {
    const Catalog& catalog = job.spec->target;
    return tileGrid(catalog.elements(target), sourceDType(job, target), catalog.dtype(target), tileBytes);
}

LiteralSink ConvertState::literals() {
    return [this](FileId file, uint64_t offset, std::span<const std::byte> bytes) -> Status {
        bytesWritten += bytes.size();
        const BusyTime busy(resources.progress, Progress::Work::write);
        return staging->write(file, offset, bytes, false);
    };
}

DestinationWork::DestinationWork(ConvertState& state, std::unique_ptr<ElementReader> source, TensorId target)
    : state_(state),
      source_(std::move(source)),
      wanted_(target),
      shape_(state.target().shape(target)),
      dtype_(state.target().dtype(target)),
      grid_(tileGrid(*source_, dtype_, state.tiles)),
      needsCrc_(state.sink->writes() && state.job.layout->needsCrc) {
    const int64_t perCell = digestCellElements(dtype_);
    cells_.resize(static_cast<size_t>(grid_.elements == 0 ? 0 : (grid_.elements - 1) / perCell + 1));
}

Result<std::unique_ptr<ElementReader>> TileSource::open(const ConvertState& state, SourceContext& context,
                                                        TensorId target, WorkerMemory& kept) {
    const ConvertJob& job = state.job;
    if (!job.average || job.average->rules[target] == Average::Rule::last)
        return openElements(context, job.spec->sources[target], sourceDType(job, target), kept,
                            TensorReader::Strided::held);
    SHARDSCOPE_ASSIGN(auto inputs, openInputs(job, context, target, kept));
    std::unique_ptr<ElementReader> reader;
    if (isMean(job, target)) {
        std::vector<double> weights;
        for (const AverageInput& input : job.average->inputs)
            weights.push_back(input.weight);
        reader =
            std::make_unique<AverageReader>(sourceDType(job, target), std::move(inputs), std::move(weights));
    } else {
        reader = std::make_unique<SameReader>(std::move(inputs));
    }
    return reader;
}

Result<std::unique_ptr<TensorTask>> DestinationWork::prepare(ConvertState& state, SourceContext& context,
                                                             TensorId target, WorkerMemory& kept) {
    const Catalog& catalog = state.target();
    const TensorSource& from = state.job.spec->sources[target];
    const Catalog& have = context.reader.catalog();
    const DType dtype = sourceDType(state.job, target);
    bool fits = from.view && std::ranges::equal(from.view->shape(), catalog.shape(target));
    for (const TensorId source : from.tensors()) {
        if (source >= have.tensorCount()) {
            fits = false;
            break;
        }
        if (!from.view) fits = std::ranges::equal(have.shape(source), catalog.shape(target));
    }
    if (!fits) {
        return makeError(ErrorCode::internal, "the plan gives a tensor another shape than its source has")
            .ofTensor(catalog.name(target));
    }
    if (dtype != catalog.dtype(target) && !castSupported(dtype, catalog.dtype(target))) {
        return makeError(ErrorCode::impossible, fmt::format("{} cannot be cast to {}", dtypeName(dtype),
                                                            dtypeName(catalog.dtype(target))))
            .ofTensor(catalog.name(target));
    }
    if (state.resources.progress) state.resources.progress->setTensor(catalog.name(target));
    const BusyTime busy(state.resources.progress, Progress::Work::read);
    SHARDSCOPE_ASSIGN(auto source, state.source->open(state, context, target, kept));
    std::unique_ptr<DestinationWork> work(new DestinationWork(state, std::move(source), target));
    if (!state.sink->writes()) return std::unique_ptr<TensorTask>(std::move(work));

    if (const auto found = state.reusable.find(target); found != state.reusable.end()) {
        for (const JournalTile& tile : found->second)
            work->reusable_[tile.tile] = &tile;
    }
    struct ChunkInput {
        ChunkId id;
        ChunkShape shape;
        int64_t first;
    };
    std::vector<ChunkInput> found;
    std::vector<ChunkId> empty;
    const DimSpan shape = catalog.shape(target);
    for (ChunkId id = catalog.firstChunk(target); id < catalog.endChunk(target); ++id) {
        const ChunkShape box = ChunkShape::of(catalog.chunk(target, id));
        if (box.elements() <= 0) {
            empty.push_back(id);
        } else if (!boxInside(box.offsets, box.lengths, shape)) {
            return makeError(ErrorCode::internal, "the plan has a chunk outside its tensor")
                .ofTensor(catalog.name(target));
        } else {
            found.push_back({id, box, box.firstPosition(shape)});
        }
    }
    if (!dtypeIsWholeBytes(work->dtype_) && found.size() > 1) {
        return unsupported(fmt::format("{} elements share bytes, so a tensor of them cannot be sharded",
                                       dtypeName(work->dtype_)))
            .ofTensor(catalog.name(target));
    }
    std::sort(found.begin(), found.end(), [](const ChunkInput& a, const ChunkInput& b) {
        return std::pair(a.first, a.id) < std::pair(b.first, b.id);
    });
    for (const ChunkInput& f : found) {
        Target& chunk = work->targets_.emplace_back();
        chunk.id = f.id;
        chunk.shape = f.shape;
        chunk.remaining = f.shape.elements();
        work->index_.add(f.first, f.shape.lastPosition(shape));
    }
    work->index_.build();
    work->findStrips();
    for (ChunkId id : state.sink->completesChunks() ? empty : std::vector<ChunkId>())
        SHARDSCOPE_TRY(state.job.layout->chunkLiterals(id, 0, state.literals()));
    return std::unique_ptr<TensorTask>(std::move(work));
}

// Chunks that are strips of columns, of one width but for the last, one after the other.
void DestinationWork::findStrips() {
    if (targets_.size() < 2 || !dtypeIsWholeBytes(dtype_)) return;
    const ChunkShape& first = targets_.front().shape;
    size_t cut = 0;
    while (cut < shape_.size() && first.lengths[cut] == shape_[cut])
        ++cut;
    if (cut == shape_.size() || elementCount(shape_.first(cut)) == 1) return;
    int64_t next = 0;
    for (const Target& target : targets_) {
        const ChunkShape& chunk = target.shape;
        const bool last = &target == &targets_.back();
        if (chunk.start != 0 || chunk.stop != elementCount(chunk.lengths) || chunk.offsets[cut] != next ||
            (last ? chunk.lengths[cut] > first.lengths[cut] : chunk.lengths[cut] != first.lengths[cut]))
            return;
        for (size_t d = 0; d < shape_.size(); ++d)
            if (d != cut && chunk.lengths[d] != shape_[d]) return;
        next += chunk.lengths[cut];
    }
    if (next != shape_[cut]) return;
    columns_ = elementCount(shape_.subspan(cut));
    strip_ = elementCount(first.lengths.subspan(cut));
}

std::vector<DestinationWork::TargetPiece> DestinationWork::piecesIn(int64_t a, int64_t b) {
    std::vector<TargetPiece> pieces;
    const auto [first, last] = index_.touching(a, b);
    for (size_t i = first; i < last; ++i) {
        Target& target = targets_[i];
        const ChunkShape::Piece piece = target.shape.pieceIn(a, b, shape_);
        if (!piece.empty()) pieces.push_back({&target, i, piece});
    }
    return pieces;
}

// A journalled tile counts when it has what this tile needs; the journal's checksums say that it is what was
// written.
bool DestinationWork::reuse(const JournalTile& done) {
    const int64_t a = grid_.begin(done.tile), b = grid_.end(done.tile);
    const int64_t perCell = digestCellElements(dtype_);
    const auto firstCell = static_cast<size_t>(a / perCell);
    if (done.cells.size() != static_cast<size_t>((b - a - 1) / perCell + 1) ||
        firstCell + done.cells.size() > cells_.size()) {
        return false;
    }
    if (needsCrc_ && done.crcs.size() != piecesIn(a, b).size()) return false;
    std::lock_guard lock(mutex_);
    std::copy(done.cells.begin(), done.cells.end(), cells_.begin() + static_cast<ptrdiff_t>(firstCell));
    addCounts(counts_, done.counts);
    return true;
}

// Where the elements of a tile are read to, and what becomes of them there.
Result<DestinationWork::TilePlan> DestinationWork::planTile(int64_t a, int64_t b,
                                                            const std::vector<TargetPiece>& pieces,
                                                            WorkerMemory& memory) {
    // The last buffer is placed so that a destination chunk that is contiguous in it can be written directly.
    int64_t apart = 0;
    std::optional<size_t> phase;
    for (const TargetPiece& p : pieces) {
        if (!p.piece.contiguous) {
            apart = std::max(apart, p.piece.hi - p.piece.lo);
        } else if (!phase) {
            const size_t inTile = bytesOfElements(dtype_, p.piece.position - a);
            phase = static_cast<size_t>((fileOffset(p) - inTile) % kIoAlignment);
        }
    }
    TilePlan plan;
    TileTask& task = plan.task;
    task = {source_->dtype(), dtype_, b - a, state_.job.options.scanValues, {}, {}, {}};
    if (apart > 0 && strip_ > 0) {
        task.cut = {columns_, strip_, a % columns_, std::vector<std::span<std::byte>>(targets_.size())};
        if (!state_.compute->cuts(task)) task.cut = {};
    }
    const bool casts = source_->dtype() != dtype_, cuts = plan.cuts();
    const size_t fromBytes = bytesOfElements(source_->dtype(), b - a), bytes = bytesOfElements(dtype_, b - a);
    const size_t readBytes = source_->readBufferBytes(a, b);
    const size_t writeBytes = cuts ? 0 : bytesOfElements(dtype_, apart);
    const size_t roomRead = fromBytes + kIoAlignment,
                 roomCast = cuts    ? bytes + 2 * kIoAlignment * pieces.size()
                            : casts ? bytes + kIoAlignment
                                    : 0;
    TileBuffers& room = plan.room;
    SHARDSCOPE_ASSIGN(room, state_.compute->room(roomRead, roomCast));
    if (!memory.ensure({room.held ? 0 : roomRead, room.held ? 0 : roomCast,
                        readBytes ? readBytes + kIoAlignment : 0,
                        writeBytes ? writeBytes + kIoAlignment : 0})) {
        return makeError(ErrorCode::limit, "no memory for a tile");
    }
    if (!room.held) room = {memory.tile.span(), memory.cast.span(), nullptr};
    const size_t readPhase = source_->preferredAlignment(a, b);
    plan.read = room.read.subspan(casts || cuts ? readPhase : phase.value_or(readPhase), fromBytes);
    task.read = plan.read;
    size_t at = 0;
    for (size_t i = 0; cuts && i < pieces.size(); ++i) {
        const TargetPiece& p = pieces[i];
        at = (at + kIoAlignment - 1) / kIoAlignment * kIoAlignment + fileOffset(p) % kIoAlignment;
        const size_t size = bytesOfElements(dtype_, p.piece.hi - p.piece.lo);
        task.cut.strips[p.index] = room.cast.subspan(at, size);
        at += size;
    }
    if (casts && !cuts) task.cast = room.cast.subspan(phase.value_or(0), bytes);
    return plan;
}

Status DestinationWork::runTile(int64_t tile, WorkerMemory& memory) {
    Progress* const progress = state_.resources.progress;
    const int64_t a = grid_.begin(tile), b = grid_.end(tile);
    const size_t bytes = bytesOfElements(dtype_, b - a);
    const std::vector<TargetPiece> pieces = piecesIn(a, b);
    if (const auto found = reusable_.find(tile); found != reusable_.end() && reuse(*found->second)) {
        if (!state_.reuseCounted) {
            state_.bytesReused += bytes;
            if (progress) progress->add(bytes);
        }
        for (size_t i = 0; i < pieces.size(); ++i)
            SHARDSCOPE_TRY(pieceDone(pieces[i], found->second->crcs, i));
        return {};
    }

    SHARDSCOPE_ASSIGN(const TilePlan plan, planTile(a, b, pieces, memory));
    {
        const BusyTime busy(progress, Progress::Work::read);
        if (Status status = source_->readTile(a, b, plan.read, memory.read.span()); !status.ok()) {
            Error error = std::move(status).error();
            if (error.location.tensor.empty()) error.location.tensor = state_.target().name(wanted_);
            return error;
        }
    }
    TileFacts facts;
    {
        const BusyTime busy(progress, Progress::Work::compute);
        if (Status status = state_.compute->run(plan.task, facts); !status.ok())
            return std::move(status).error().ofTensor(state_.target().name(wanted_));
    }

    JournalTile done;
    done.tensor = wanted_;
    done.tile = tile;
    done.cells = std::move(facts.cells);
    done.counts = facts.counts;
    const int64_t perCell = digestCellElements(dtype_);
    {
        std::lock_guard lock(mutex_);
        std::copy(done.cells.begin(), done.cells.end(), cells_.begin() + static_cast<ptrdiff_t>(a / perCell));
        addCounts(counts_, done.counts);
    }
    {
        const BusyTime busy(progress, Progress::Work::write);
        for (const TargetPiece& p : pieces) {
            SHARDSCOPE_TRY(writePiece(
                p, plan.cuts() ? plan.task.cut.strips[p.index] : pieceOf(p, a, plan.ready(), memory.write),
                done.crcs));
        }
    }
    const std::vector<uint32_t> crcs = done.crcs;
    SHARDSCOPE_TRY(state_.sink->finished(std::move(done), bytes));
    if (progress) progress->add(bytes);
    for (size_t i = 0; i < pieces.size(); ++i)
        SHARDSCOPE_TRY(pieceDone(pieces[i], crcs, i));
    return {};
}

uint64_t DestinationWork::fileOffset(const TargetPiece& p) const {
    return state_.job.layout->chunkOffset[p.target->id] +
           bytesOfElements(dtype_, p.piece.lo - p.target->shape.start);
}

// A piece's bytes as its chunk has them: where they are in the tile, or gathered in `buffer`.
std::span<const std::byte> DestinationWork::pieceOf(const TargetPiece& p, int64_t tileBegin,
                                                    std::span<const std::byte> tile,
                                                    AlignedBuffer& buffer) const {
    const size_t bytes = bytesOfElements(dtype_, p.piece.hi - p.piece.lo);
    if (p.piece.contiguous) return tile.subspan(bytesOfElements(dtype_, p.piece.position - tileBegin), bytes);
    const std::span<std::byte> gathered = buffer.span(fileOffset(p) % kIoAlignment, bytes);
    scatterPiece(p.target->shape, p.piece, shape_, tileBegin, dtypeBytes(dtype_), tile.data(),
                 gathered.data());
    return gathered;
}

Status DestinationWork::writePiece(const TargetPiece& p, std::span<const std::byte> out,
                                   std::vector<uint32_t>& crcs) {
    const uint64_t offset = fileOffset(p);
    if (needsCrc_) {
        const BusyTime busy(Progress::Work::compute);
        crcs.push_back(crc32Of(out));
    }
    state_.bytesWritten += out.size();
    Status status = state_.sink->write(state_.job.layout->chunkFile[p.target->id], offset, out);
    if (!status.ok()) return std::move(status).error().ofTensor(state_.target().name(wanted_));
    return {};
}

Status DestinationWork::pieceDone(const TargetPiece& p, const std::vector<uint32_t>& crcs, size_t index) {
    if (!state_.sink->completesChunks()) return {};
    const int64_t elements = p.piece.hi - p.piece.lo;
    if (needsCrc_) {
        std::lock_guard lock(mutex_);
        p.target->crcs.push_back({p.piece.lo, bytesOfElements(dtype_, elements), crcs[index]});
    }
    if (p.target->remaining.fetch_sub(elements) == elements) return chunkDone(*p.target);
    return {};
}

Status DestinationWork::chunkDone(Target& target) {
    uint32_t crc = 0;
    if (needsCrc_) {
        std::lock_guard lock(mutex_);
        std::sort(target.crcs.begin(), target.crcs.end(),
                  [](const CrcPiece& x, const CrcPiece& y) { return x.lo < y.lo; });
        for (const CrcPiece& piece : target.crcs)
            crc = crc32Combine(crc, piece.crc, piece.bytes);
        target.crcs = {};
        state_.chunkCrcs[target.id] = crc;
    }
    return state_.job.layout->chunkLiterals(target.id, crc, state_.literals());
}

Status DestinationWork::finish() {
    {
        std::lock_guard lock(mutex_);
        const Digest128 digest = tensorDigest(dtype_, state_.target().shape(wanted_), cells_);
        std::lock_guard stateLock(state_.mutex);
        state_.digests[wanted_] = digest;
        if (counts_.nan > 0 || counts_.inf > 0) state_.counts[wanted_] = counts_;
    }
    if (state_.readBehind) state_.readBehind->wrote(wanted_);
    return {};
}

}  // namespace shardscope
