#include "execute/verify.h"

#include <algorithm>
#include <tuple>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "base/rule.h"
#include "execute/part_shares.h"
#include "execute/read_behind.h"
#include "execute/scan.h"
#include "execute/span_work.h"

namespace shardscope {
namespace {

using ChunkKey = std::tuple<std::vector<int64_t>, std::vector<int64_t>, int64_t, int64_t>;

// The first of the replicas of each.
std::map<ChunkKey, ChunkId> chunksOf(const Catalog& catalog, TensorId t) {
    std::map<ChunkKey, ChunkId> chunks;
    for (ChunkId c = catalog.firstChunk(t); c < catalog.endChunk(t); ++c) {
        const ChunkInfo chunk = catalog.chunk(t, c);
        if (chunk.elements() == 0) continue;
        chunks.emplace(ChunkKey(Dims(chunk.offsets.begin(), chunk.offsets.end()),
                                Dims(chunk.lengths.begin(), chunk.lengths.end()),
                                chunk.flat ? chunk.flat->start : -1, chunk.flat ? chunk.flat->stop : -1),
                       c);
    }
    return chunks;
}

bool sameKeys(const std::map<ChunkKey, ChunkId>& a, const std::map<ChunkKey, ChunkId>& b) {
    return std::ranges::equal(
        a, b, {}, [](const auto& chunk) { return chunk.first; },
        [](const auto& chunk) { return chunk.first; });
}

// Whether the output's chunk is stored as plain elements at the place of the layout's.
bool samePlace(const Extent& output, const Extent& layout, DimSpan lengths) {
    const bool plain = !output.swapBytes && !output.conjugate && !output.negate && !output.storedAs &&
                       !dynamic_cast<const StoredBytes*>(output.file.get()) &&
                       (output.strides.empty() || output.strides == rowMajorStrides(lengths));
    return plain && output.offset == layout.offset && output.file->path() == layout.file->path();
}

}  // namespace

Error wrongOutput(std::string message, std::string_view tensor) {
    return makeError(ErrorCode::verificationFailed, std::move(message))
        .ofTensor(tensor)
        .byRule(rule::outputVerification)
        .withHint("the output was not published; check the disk and memory of this machine");
}

Error readBackDiffers(std::string_view tensor) {
    return wrongOutput("verification: what was read back differs from what was written", tensor);
}

Result<std::unique_ptr<StagedOutput>> StagedOutput::open(const ConvertJob& job, const std::string& path) {
    auto reader = job.reopen(path);
    if (!reader.ok()) {
        Error error = std::move(reader).error();
        // Being stopped or refused says nothing about the output.
        constexpr ErrorCode kNothing[] = {ErrorCode::cancelled,  ErrorCode::io,     ErrorCode::remote,
                                          ErrorCode::permission, ErrorCode::exists, ErrorCode::impossible};
        if (std::ranges::find(kNothing, error.code) != std::end(kNothing)) return error;
        error.message = "verification: the output cannot be opened: " + error.message;
        error.code = ErrorCode::verificationFailed;
        error.location.rule = rule::outputVerification;
        return error;
    }
    std::unique_ptr<StagedOutput> output(new StagedOutput(job, std::move(reader).value()));
    SHARDSCOPE_TRY(output->match());
    return output;
}

Status StagedOutput::match() {
    const Catalog& target = job_.spec->target;
    const Catalog& written = reader_->catalog();
    ids_.assign(target.tensorCount(), kNone);
    for (TensorId t = 0; t < target.tensorCount(); ++t) {
        const std::string_view name = target.name(t);
        const TensorId found = written.find(name);
        if (found == kNone) {
            if (target.aliasOf(t) != kNone && target.aliasOf(t) != t) continue;
            return wrongOutput("verification: the output lacks the tensor", name);
        }
        if (written.dtype(found) != target.dtype(t)) {
            return wrongOutput(fmt::format("verification: the output has dtype {}, expected {}",
                                           dtypeName(written.dtype(found)), dtypeName(target.dtype(t))),
                               name);
        }
        if (!std::ranges::equal(written.shape(found), target.shape(t))) {
            return wrongOutput(fmt::format("verification: the output has shape {}, expected {}",
                                           formatDims(written.shape(found)), formatDims(target.shape(t))),
                               name);
        }
        if (!sameKeys(chunksOf(written, found), chunksOf(target, t))) {
            return wrongOutput("verification: the output is sharded differently than planned", name);
        }
        ids_[t] = found;
    }
    const std::unordered_set<TensorId> found(ids_.begin(), ids_.end());
    for (TensorId t = 0; t < ids_.size(); ++t) {
        if (ids_[t] == kNone) continue;
        const TensorId first = written.aliasOf(ids_[t]);
        if (first == kNone || first == ids_[t] || !found.contains(first)) tensors_.push_back(t);
    }
    return {};
}

TileGrid StagedOutput::grid(TensorId target, uint64_t tileBytes) const {
    const DType dtype = job_.spec->target.dtype(target);
    return tileGrid(reader_->catalog().elements(ids_[target]), dtype, dtype, tileBytes);
}

Result<std::unique_ptr<TensorTask>> StagedOutput::tilesOf(TensorId target, uint64_t tileBytes,
                                                          SourceContext& context, WorkerMemory& kept,
                                                          const Take& take) const {
    if (ids_[target] == kNone) return makeError(ErrorCode::usage, "the part names tiles that do not exist");
    const int64_t tileElements = grid(target, tileBytes).tileElements;
    const auto visit = [target, tileElements, take,
                        dtype = job_.spec->target.dtype(target)](const TileView& view) -> Status {
        JournalTile tile;
        tile.tensor = target;
        tile.tile = view.firstElement / tileElements;
        tile.cells = cellDigests(dtype, view.bytes, nullptr);
        return take(std::move(tile));
    };
    return scanWork(context, ids_[target], {tileBytes, tileBytes}, kept, visit);
}

Status StagedOutput::compare(const ConvertState& state, const std::vector<Digest128>& digests) const {
    for (size_t i = 0; i < tensors_.size(); ++i) {
        if (!(digests[i] == *state.digests[tensors_[i]]))
            return readBackDiffers(job_.spec->target.name(tensors_[i]));
    }
    // Names of one tensor in the output must be names of one tensor that was asked for.
    std::map<TensorId, TensorId> readAs;
    for (const TensorId t : tensors_)
        readAs.emplace(ids_[t], t);
    for (TensorId t = 0; t < ids_.size(); ++t) {
        if (ids_[t] == kNone || readAs.contains(ids_[t])) continue;
        const TensorId other = readAs.at(reader_->catalog().aliasOf(ids_[t]));
        if (!(*state.digests[other] == *state.digests[t])) return readBackDiffers(job_.spec->target.name(t));
    }
    return {};
}

// Of chunks with replicas nobody says which one was read.
Result<bool> StagedOutput::hasPlacesOf(const Reader& layout, TensorId target) const {
    const Catalog& wanted = layout.catalog();
    const Catalog& written = reader_->catalog();
    const TensorId id = ids_[target];
    const auto here = chunksOf(written, id), there = chunksOf(wanted, target);
    if (here.size() != written.endChunk(id) - written.firstChunk(id) ||
        there.size() != wanted.endChunk(target) - wanted.firstChunk(target))
        return false;
    for (const auto& [key, chunk] : here) {
        SHARDSCOPE_ASSIGN(const Extent output, reader_->locate(chunk));
        SHARDSCOPE_ASSIGN(const Extent planned, layout.locate(there.at(key)));
        if (!samePlace(output, planned, std::get<1>(key))) return false;
    }
    return true;
}

Status StagedOutput::verify(const ConvertState& state) const {
    SourceContext context(*reader_, state.resources, FillGaps::refuse, job_.fileSystem);
    const ReadBehind* const behind = state.readBehind;
    std::map<TensorId, Digest128> known;  // by id in the output
    std::vector<TensorId> read;
    for (const TensorId t : tensors_) {
        bool there = behind && behind->holds(t);
        if (there) {
            SHARDSCOPE_ASSIGN(there, hasPlacesOf(behind->layout(), t));
        }
        if (there)
            known.emplace(ids_[t], *state.digests[t]);
        else
            read.push_back(ids_[t]);
    }
    SHARDSCOPE_ASSIGN(const auto found, digestSource(context, read, {}, false));
    for (const TensorDigest& each : found)
        known.emplace(each.tensor, each.digest);
    std::vector<Digest128> digests;
    for (const TensorId t : tensors_)
        digests.push_back(known.at(ids_[t]));
    return compare(state, digests);
}

VerifiedTiles::VerifiedTiles(const StagedOutput& output, uint64_t tileBytes)
    : output_(output), tileBytes_(tileBytes) {
    const Catalog& written = output.reader().catalog();
    for (const TensorId t : output.tensors())
        cells_[t].resize(cellCount(written, output.idOf(t)));
}

Status VerifiedTiles::add(JournalTile tile) {
    const auto of = cells_.find(tile.tensor);
    if (of == cells_.end()) return damaged("a result is about a tensor that was not asked for");
    const TileGrid grid = output_.grid(tile.tensor, tileBytes_);
    if (tile.tile < 0 || tile.tile >= grid.tiles())
        return damaged("a result holds a tile that was not asked for");
    const int64_t per = digestCellElements(output_.reader().catalog().dtype(output_.idOf(tile.tensor)));
    const auto first = static_cast<size_t>(grid.begin(tile.tile) / per),
               last = static_cast<size_t>((grid.end(tile.tile) - 1) / per);
    if (tile.cells.size() != last - first + 1) return damaged("a result holds another number of cells");
    std::ranges::copy(tile.cells, of->second.begin() + static_cast<ptrdiff_t>(first));
    return {};
}

Status VerifiedTiles::add(const FinishedReading& found) {
    return found.forEach([&](uint32_t item, int64_t tile, std::string_view data) {
        JournalTile back;
        back.tensor = item;
        back.tile = tile;
        back.cells = cellsFrom(data);
        return add(std::move(back)).ok();
    });
}

PartReading verifyReading(const StagedOutput& output, const Staging& staging) {
    const Catalog& written = output.reader().catalog();
    PartReading reading;
    reading.reader = &output.reader();
    reading.records = staging.verifyPath();
    reading.words = "verify";
    reading.fileSystem = staging.fileSystem();
    for (const TensorId t : output.tensors()) {
        const TensorId id = output.idOf(t);
        reading.items.push_back({t, written.elements(id), written.dtype(id), written.dtype(id)});
    }
    for (FileId f = 0; f < written.files().size(); ++f)
        reading.files.push_back(f);
    reading.read = [&output, system = reading.fileSystem](std::span<const TileSpan> spans, uint64_t tileBytes,
                                                          const Resources& resources,
                                                          const KeepFound& keep) -> Result<uint64_t> {
        SourceContext context(output.reader(), resources, FillGaps::refuse, system);
        SHARDSCOPE_TRY(runSpans(resources, spans, [&](const TileSpan& span, WorkerMemory& kept) {
            const auto take = [&keep](const JournalTile& tile) {
                return keep(tile.tensor, tile.tile, cellBytes(tile.cells));
            };
            return output.tilesOf(span.tensor, tileBytes, context, kept, take);
        }));
        return context.bytesRead.load();
    };
    return reading;
}

namespace {

// Keeps what was found in a tile; writes nothing.
class KeepingSink final : public TileSink {
  public:
    explicit KeepingSink(const KeepFound& keep) : keep_(keep) {}
    bool writes() const override { return false; }
    Status write(FileId, uint64_t, std::span<const std::byte>) override { return {}; }
    Status finished(JournalTile tile, uint64_t) override {
        return keep_(tile.tensor, tile.tile, cellBytes(tile.cells));
    }

  private:
    const KeepFound& keep_;
};

}  // namespace

PartReading rereading(const ConvertState& state, const Staging& staging) {
    PartReading reading;
    reading.reader = state.job.source;
    reading.records = staging.rereadPath();
    reading.words = "reread";
    reading.fileSystem = staging.fileSystem();
    reading.items = conversionItems(state.job);
    reading.read = [&state](std::span<const TileSpan> spans, uint64_t tileBytes, const Resources& resources,
                            const KeepFound& keep) -> Result<uint64_t> {
        KeepingSink sink(keep);
        ConvertState again{.job = state.job,
                           .resources = resources,
                           .tiles = {tileBytes, tileBytes},
                           .source = state.source,
                           .compute = state.compute,
                           .sink = &sink};
        const auto context = sourceContext(state.job, resources);
        SHARDSCOPE_TRY(runSpans(resources, spans, [&](const TileSpan& span, WorkerMemory& kept) {
            return DestinationWork::prepare(again, *context, span.tensor, kept);
        }));
        return context->bytesRead.load();
    };
    return reading;
}

Status VerifiedTiles::compare(const ConvertState& state) const {
    const Catalog& written = output_.reader().catalog();
    std::vector<Digest128> digests;
    for (const TensorId t : output_.tensors()) {
        const TensorId id = output_.idOf(t);
        digests.push_back(tensorDigest(written.dtype(id), written.shape(id), cells_.at(t)));
    }
    return output_.compare(state, digests);
}

}  // namespace shardscope
