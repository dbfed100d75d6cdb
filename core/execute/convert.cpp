#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "execute/destination.h"
#include "execute/executor.h"
#include "execute/identity.h"
#include "execute/part_shares.h"
#include "execute/parts.h"
#include "execute/scan.h"
#include "execute/staging.h"
#include "execute/units.h"
#include "execute/verify.h"

namespace shardscope {
namespace {

constexpr uint64_t kSharedTileBytes = uint64_t{16} << 20;

// ------------------------------------------------------------------ order of work

// Names of one tensor that the layout gives the same bytes: written once.
bool sharesBytes(const ConvertJob& job, TensorId t) {
    const Catalog& target = job.spec->target;
    const TensorId first = target.aliasOf(t);
    if (first == kNone || first == t) return false;
    const ChunkId a = target.firstChunk(first), b = target.firstChunk(t);
    const ChunkId count = target.endChunk(t) - b;
    if (target.endChunk(first) - a != count || target.dtype(first) != target.dtype(t)) return false;
    for (ChunkId i = 0; i < count; ++i) {
        if (job.layout->chunkFile[a + i] != job.layout->chunkFile[b + i] ||
            job.layout->chunkOffset[a + i] != job.layout->chunkOffset[b + i]) {
            return false;
        }
    }
    return true;
}

}  // namespace

std::vector<TensorId> workOrder(const ConvertJob& job) {
    const Catalog& target = job.spec->target;
    std::vector<TensorId> tensors;
    for (TensorId t = 0; t < target.tensorCount(); ++t) {
        if (!sharesBytes(job, t)) tensors.push_back(t);
    }
    const auto place = [&](TensorId t) {
        const ChunkId c = target.firstChunk(t);
        if (c == target.endChunk(t)) return std::pair<FileId, uint64_t>(kNone, 0);
        return std::pair(job.layout->chunkFile[c], job.layout->chunkOffset[c]);
    };
    std::stable_sort(tensors.begin(), tensors.end(),
                     [&](TensorId a, TensorId b) { return place(a) < place(b); });
    return tensors;
}

namespace {

// ------------------------------------------------------------------ ends of tiles

// A tensor of which others have done every tile, so that nothing of it is read here.
class GatheredElements final : public ElementReader {
  public:
    GatheredElements(DType dtype, int64_t elements) {
        dtype_ = dtype;
        elements_ = elements;
    }
    uint64_t goodTileBytes(uint64_t preferred, uint64_t) const override { return preferred; }
    size_t readBufferBytes(int64_t, int64_t) const override { return 0; }
    size_t preferredAlignment(int64_t, int64_t) const override { return 0; }
    Status readTile(int64_t, int64_t, std::span<std::byte>, std::span<std::byte>) const override {
        return makeError(ErrorCode::internal, "a tile that others have done is missing");
    }
};

// Whether the tiles that others have done are all of them.
bool allGathered(const ConvertState& state, TensorId target) {
    if (state.tiles.preferred != state.tiles.largest) return false;
    const TileGrid grid = sharedGrid(state.job, target, state.tiles.preferred);
    const auto found = state.reusable.find(target);
    return grid.tiles() == 0 ||
           (found != state.reusable.end() && static_cast<int64_t>(found->second.size()) >= grid.tiles());
}

// After others have done tiles: a tensor of which all are done is not read.
class GatheredSource final : public TileSource {
  public:
    Result<std::unique_ptr<ElementReader>> open(const ConvertState& state, SourceContext& context,
                                                TensorId target, WorkerMemory& kept) override {
        if (!allGathered(state, target)) return TileSource::open(state, context, target, kept);
        return std::unique_ptr<ElementReader>(std::make_unique<GatheredElements>(
            sourceDType(state.job, target), state.target().elements(target)));
    }
};

// Nothing is written; the digests are those of the state.
class NoSink final : public TileSink {
  public:
    bool writes() const override { return false; }
    Status write(FileId, uint64_t, std::span<const std::byte>) override { return {}; }
    Status finished(JournalTile, uint64_t) override { return {}; }
};

// ------------------------------------------------------------------ the whole job, here

Status runWork(ConvertState& state, SourceContext& context, const std::vector<TensorId>& tensors) {
    TileRun run;
    run.tensors = tensors.size();
    run.threads = workerCount(state.resources);
    run.memory = state.resources.memory;
    run.stop = state.resources.stop;
    run.prepare = [&](size_t i, WorkerMemory& kept) {
        return DestinationWork::prepare(state, context, tensors[i], kept);
    };
    return runTiles(run);
}

Error readsDifferently(const Catalog& target, TensorId t) {
    return wrongOutput("verification: the source reads differently the second time", target.name(t));
}

// Reads the source once more and compares with what was taken on the way.
Status verifySource(const ConvertState& done, SourceContext& context, const std::vector<TensorId>& tensors) {
    TileSource source;
    NoSink sink;
    ConvertState again{
        .job = done.job, .resources = done.resources, .tiles = done.tiles, .source = &source, .sink = &sink};
    SHARDSCOPE_TRY(runWork(again, context, tensors));
    for (TensorId t : tensors) {
        if (again.digests[t] == done.digests[t]) continue;
        return readsDifferently(done.target(), t);
    }
    return {};
}

Status writeAll(ConvertState& state, SourceContext& context, const std::vector<TensorId>& tensors) {
    const Catalog& target = state.target();
    SHARDSCOPE_TRY(runWork(state, context, tensors));
    for (TensorId t = 0; t < target.tensorCount(); ++t) {
        if (state.digests[t]) continue;
        const TensorId first = target.aliasOf(t);
        state.digests[t] = state.digests[first];
        const ChunkId a = target.firstChunk(first), b = target.firstChunk(t);
        for (ChunkId i = 0; b + i < target.endChunk(t); ++i)
            state.chunkCrcs[b + i] = state.chunkCrcs[a + i];
    }
    if (state.staging->isSealed()) return {};  // which parts have read back as it is
    const LiteralSink sink = state.literals();
    for (FileId f = 0; f < state.job.layout->files.size(); ++f) {
        SHARDSCOPE_TRY(state.resources.stop.poll());
        SHARDSCOPE_TRY(state.job.layout->fileLiterals(f, state.chunkCrcs, sink));
    }
    return {};
}

// ------------------------------------------------------------------ with others

// Some units for each worker, so that all end at about the same time; none so large that losing it hurts.
constexpr uint64_t kUnitsEach = 8;
constexpr uint64_t kMostUnitBytes = uint64_t{128} << 20;
constexpr size_t kUnitSpans = 256;  // many small tensors in one unit, but not so many that losing it hurts

// Puts tiles together to units, in the order in which they come.
class UnitCutter {
  public:
    UnitCutter(UnitWork work, const ConvertState& state, uint64_t totalBytes)
        : work_(work),
          unitBytes_(
              std::clamp(totalBytes / (kUnitsEach * std::max<size_t>(1, state.job.scheduler->workerCount())),
                         state.tiles.preferred, std::max(state.tiles.preferred, kMostUnitBytes))) {}

    void add(TensorId t, int64_t tile, uint64_t bytes, int home) {
        Unit& unit = open_[home];
        if (unit.bytes > 0 && unit.bytes + bytes > unitBytes_) close(unit, home);
        if (!unit.spans.empty() && unit.spans.back().tensor == t &&
            unit.spans.back().first + unit.spans.back().count == tile) {
            ++unit.spans.back().count;
        } else {
            if (unit.spans.size() >= kUnitSpans) close(unit, home);
            unit.spans.push_back({t, tile, 1});
        }
        unit.bytes += bytes;
    }

    std::vector<Unit> finish() {
        for (auto& [home, unit] : open_)
            close(unit, home);
        return std::move(units_);
    }

  private:
    void close(Unit& unit, int home) {
        unit.work = work_;
        unit.home = home;
        if (!unit.spans.empty()) units_.push_back(std::exchange(unit, {}));
    }

    const UnitWork work_;
    const uint64_t unitBytes_;
    std::map<int, Unit> open_;  // by home
    std::vector<Unit> units_;
};

Result<TileGrid> gridOf(const ConvertState& state, SourceContext& context, TensorId t) {
    if (state.tiles.preferred == state.tiles.largest) return sharedGrid(state.job, t, state.tiles.preferred);
    // A job that one process began alone has tiles that only the data files tell.
    WorkerMemory kept(*context.resources.memory);
    SHARDSCOPE_ASSIGN(const auto reader, TileSource().open(state, context, t, kept));
    return tileGrid(*reader, state.target().dtype(t), state.tiles);
}

// What is still to be done, or all of it where it is done again, in pieces for others.
Result<std::vector<Unit>> cutUnits(const ConvertState& state, SourceContext& context,
                                   const std::vector<TensorId>& tensors, UnitWork work) {
    uint64_t total = 0;
    for (TensorId t : tensors)
        total += state.target().bytes(t);
    UnitCutter cutter(work, state, total);
    for (TensorId t : tensors) {
        SHARDSCOPE_TRY(state.resources.stop.poll());
        SHARDSCOPE_ASSIGN(const TileGrid grid, gridOf(state, context, t));
        std::set<int64_t> done;
        if (const auto found = state.reusable.find(t);
            work == UnitWork::convert && found != state.reusable.end()) {
            for (const JournalTile& tile : found->second)
                done.insert(tile.tile);
        }
        for (int64_t tile = 0; tile < grid.tiles(); ++tile) {
            if (!done.contains(tile))
                cutter.add(t, tile,
                           bytesOfElements(state.target().dtype(t), grid.end(tile) - grid.begin(tile)),
                           state.job.scheduler->homeOf(work, t, grid.begin(tile), grid.end(tile)));
        }
    }
    return cutter.finish();
}

// The tiles of a result, which must be exactly those of the unit.
Result<std::vector<JournalTile>> tilesOf(const Unit& unit, const UnitResult& result) {
    SHARDSCOPE_ASSIGN(std::vector<JournalTile> tiles, decodeTiles(result.tiles));
    std::set<std::pair<TensorId, int64_t>> target;
    for (const TileSpan& span : unit.spans) {
        for (int64_t i = 0; i < span.count; ++i)
            target.emplace(span.tensor, span.first + i);
    }
    for (const JournalTile& tile : tiles) {
        if (target.erase({tile.tensor, tile.tile}) != 1)
            return damaged("a result holds a tile that was not asked for");
    }
    if (!target.empty()) return damaged(fmt::format("a result lacks {} of its tiles", target.size()));
    return tiles;
}

// Has the tiles done by others. They are then as those of an interrupted job: what is left for this process
// is everything that is not tensor data.
Status gather(ConvertState& state, SourceContext& context, const JobIdentity& identity,
              const std::vector<TensorId>& tensors) {
    Progress* progress = state.resources.progress;
    for (const auto& [t, tiles] : state.reusable) {
        SHARDSCOPE_ASSIGN(const TileGrid grid, gridOf(state, context, t));
        for (const JournalTile& tile : tiles) {
            if (tile.tile < 0 || tile.tile >= grid.tiles()) continue;
            const uint64_t bytes =
                bytesOfElements(state.target().dtype(t), grid.end(tile.tile) - grid.begin(tile.tile));
            state.bytesReused += bytes;
            if (progress) progress->add(bytes);
        }
    }
    SHARDSCOPE_ASSIGN(const std::vector<Unit> units, cutUnits(state, context, tensors, UnitWork::convert));
    const auto done = [&](size_t u, UnitResult result) -> Status {
        SHARDSCOPE_ASSIGN(std::vector<JournalTile> tiles, tilesOf(units[u], result));
        context.bytesRead += result.bytesRead;
        state.bytesWritten += units[u].bytes;
        for (JournalTile& tile : tiles) {
            SHARDSCOPE_TRY(state.staging->finished(tile, units[u].bytes / tiles.size()));
            state.reusable[tile.tensor].push_back(std::move(tile));
        }
        return {};
    };
    state.reuseCounted = true;
    if (units.empty()) return {};
    return state.job.scheduler->run(identity, units, done, progress, state.resources.stop);
}

// Has the output read back by those who wrote it.
Status verifyTogether(ConvertState& state, const JobIdentity& identity, const StagedOutput& output) {
    uint64_t total = 0;
    for (const TensorId t : output.tensors())
        total += state.target().bytes(t);
    UnitCutter cutter(UnitWork::verify, state, total);
    for (const TensorId t : output.tensors()) {
        const TileGrid grid = output.grid(t, identity.tileBytes);
        for (int64_t tile = 0; tile < grid.tiles(); ++tile)
            cutter.add(t, tile, bytesOfElements(state.target().dtype(t), grid.end(tile) - grid.begin(tile)),
                       state.job.scheduler->homeOf(UnitWork::verify, t, grid.begin(tile), grid.end(tile)));
    }
    const std::vector<Unit> units = cutter.finish();
    VerifiedTiles verified(output, identity.tileBytes);
    const auto done = [&](size_t u, UnitResult result) -> Status {
        SHARDSCOPE_ASSIGN(std::vector<JournalTile> tiles, tilesOf(units[u], result));
        for (JournalTile& tile : tiles)
            SHARDSCOPE_TRY(verified.add(std::move(tile)));
        return {};
    };
    if (!units.empty())
        SHARDSCOPE_TRY(
            state.job.scheduler->run(identity, units, done, state.resources.progress, state.resources.stop));
    return verified.compare(state);
}

// Has the source read once more, and compares with what was taken on the way.
Status rereadTogether(ConvertState& state, SourceContext& context, const JobIdentity& identity,
                      const std::vector<TensorId>& tensors) {
    SHARDSCOPE_ASSIGN(const std::vector<Unit> units, cutUnits(state, context, tensors, UnitWork::reread));
    std::map<std::pair<TensorId, int64_t>, const JournalTile*> known;
    for (const auto& [t, tiles] : state.reusable) {
        for (const JournalTile& tile : tiles)
            known.emplace(std::pair(t, tile.tile), &tile);
    }
    TensorId changed = kNone;
    const auto done = [&](size_t u, UnitResult result) -> Status {
        SHARDSCOPE_ASSIGN(const std::vector<JournalTile> tiles, tilesOf(units[u], result));
        context.bytesRead += result.bytesRead;
        for (const JournalTile& tile : tiles) {
            const auto before = known.find({tile.tensor, tile.tile});
            if (before == known.end() || before->second->cells != tile.cells) changed = tile.tensor;
        }
        return {};
    };
    if (!units.empty())
        SHARDSCOPE_TRY(
            state.job.scheduler->run(identity, units, done, state.resources.progress, state.resources.stop));
    return changed == kNone ? Status() : readsDifferently(state.target(), changed);
}

// Takes what the parts of a sealed conversion have read back.
Status takeReadBack(const ConvertState& state, const StagedOutput& output) {
    SHARDSCOPE_ASSIGN(const auto found, FinishedReading::open(verifyReading(output, *state.staging),
                                                              state.staging->part().version));
    VerifiedTiles verified(output, found->tileBytes());
    SHARDSCOPE_TRY(verified.add(*found));
    return verified.compare(state);
}

}  // namespace

bool storesChecksums(const Reader& source, const TargetSpec& spec) {
    constexpr size_t kMostLooks = 8;
    const Catalog& catalog = source.catalog();
    size_t looks = 0;
    for (size_t w = 0; w < spec.sources.size() && looks < kMostLooks; ++w) {
        for (const TensorId t : spec.sources[w].tensors()) {
            if (t >= catalog.tensorCount() || catalog.firstChunk(t) == catalog.endChunk(t)) continue;
            const auto extent = source.locate(catalog.firstChunk(t));
            if (extent.ok() && extent->checksum) return true;
            ++looks;
            break;
        }
    }
    return false;
}

namespace {

// Errors: damaged, with what is wrong with the output; those of reading.
Status verify(ConvertState& state, const std::optional<JobIdentity>& identity, ConvertReport& report) {
    const ConvertJob& job = state.job;
    SHARDSCOPE_ASSIGN(const auto output, StagedOutput::open(job, state.staging->dataPath()));
    if (job.options.verify == Verify::none) return {};
    if (Progress* const progress = state.resources.progress) {
        uint64_t bytes = 0;
        for (const TensorId t : output->tensors())
            bytes += state.target().bytes(t);
        progress->begin(Progress::Phase::verify, bytes);
    }
    if (identity) {
        SHARDSCOPE_TRY(verifyTogether(state, *identity, *output));
    } else if (state.staging->isSealed()) {
        SHARDSCOPE_TRY(takeReadBack(state, *output));
    } else {
        SHARDSCOPE_TRY(output->verify(state));
    }
    report.verified = true;
    return {};
}

// `seal`: only until nothing is left but verification and publication.
Status runStages(ConvertState& state, SourceContext& context, const std::vector<SourceFile>& files, bool seal,
                 ConvertReport& report) {
    const ConvertJob& job = state.job;
    Progress* progress = state.resources.progress;
    const std::vector<TensorId> tensors = workOrder(job);
    uint64_t total = 0;
    for (TensorId t : tensors)
        total += state.target().bytes(t);
    if (progress) progress->begin(Progress::Phase::write, total);
    const double begin = steadySeconds();
    std::optional<JobIdentity> identity;  // with others
    if (job.scheduler) {
        identity.emplace();
        identity->plan = planFingerprint(job);
        identity->source = sharedFingerprint(files);
        identity->tileBytes = state.tiles.preferred;
        identity->largestTileBytes = state.tiles.largest;
        SHARDSCOPE_ASSIGN(identity->token, state.staging->share());
        SHARDSCOPE_TRY(gather(state, context, *identity, tensors));
    }
    SHARDSCOPE_TRY(writeAll(state, context, tensors));
    if (state.bytesReused > 0 && !identity && context.checks)
        SHARDSCOPE_TRY(context.checks->complete(state.resources.stop));
    {
        const BusyTime busy(progress, Progress::Work::write);
        SHARDSCOPE_TRY(state.staging->syncAll());
    }
    SHARDSCOPE_TRY(checkUnchanged(files));
    report.seconds = steadySeconds() - begin;

    if (seal) return state.staging->seal();
    const double verifyBegin = steadySeconds();
    if (job.reopen) SHARDSCOPE_TRY(verify(state, identity, report));
    if (job.options.verify == Verify::full) {
        if (progress) progress->begin(Progress::Phase::verify, total);
        SHARDSCOPE_TRY(identity ? rereadTogether(state, context, *identity, tensors)
                                : verifySource(state, context, tensors));
    }
    report.verifySeconds = steadySeconds() - verifyBegin;

    SHARDSCOPE_TRY(state.resources.stop.poll());
    if (progress) progress->begin(Progress::Phase::commit, 0);
    if (job.beforePublication) SHARDSCOPE_TRY(job.beforePublication());
    // The disks of others may be where it is published.
    SHARDSCOPE_TRY(state.staging->publish());
    if (job.scheduler) job.scheduler->end();
    return {};
}

// `shared`: others have read, too.
ChecksumReport checksumsOf(const ConvertJob& job, const SourceContext& context, bool shared) {
    ChecksumReport report = context.checks ? context.checks->report() : ChecksumReport();
    report.shared = shared && storesChecksums(*job.source, *job.spec);
    return report;
}

// With a staging directory, to the end. `gathered`: others have done tiles.
Result<ConvertReport> runStaged(const ConvertJob& job, Resources resources,
                                const std::vector<SourceFile>& files, Staging& staging, bool gathered,
                                bool seal = false) {
    if (resources.scratchDirectory.empty()) resources.scratchDirectory = splitPath(job.destination).first;
    TileSource own;
    GatheredSource others;
    StagingSink sink(staging, !staging.isSealed());
    ConvertState state{.job = job,
                       .resources = resources,
                       .tiles = staging.tiles(),
                       .source = gathered ? &others : &own,
                       .sink = &sink,
                       .staging = &staging};
    for (JournalTile& tile : staging.takeReusable())
        state.reusable[tile.tensor].push_back(std::move(tile));
    const auto shared = sourceContext(job, resources);
    SourceContext& context = *shared;
    ConvertReport report;
    if (Status status = runStages(state, context, files, seal, report); !status.ok()) {
        // Nobody writes any more: where units failed the others have ended.
        Error error = staging.giveUp(std::move(status).error());
        if (job.scheduler) job.scheduler->end();
        return error;
    }
    if (seal) return report;
    report.checksums = checksumsOf(job, context, gathered || state.bytesReused > 0);
    report.bytesRead = context.bytesRead;
    report.bytesWritten = state.bytesWritten;
    report.bytesReused = state.bytesReused;
    for (TensorId t = 0; t < job.spec->target.tensorCount(); ++t) {
        report.digests.emplace_back(job.spec->target.name(t), *state.digests[t]);
    }
    for (const auto& [t, counts] : state.counts)
        report.counts.emplace_back(job.spec->target.name(t), counts);
    return report;
}

}  // namespace

Result<ConvertReport> runConversion(const ConvertJob& job, const Resources& given) {
    SHARDSCOPE_TRY(checkJob(job));
    const BoundedResources resources(given);
    SHARDSCOPE_ASSIGN(const std::vector<SourceFile> files, sourceFiles(job));
    JournalHeader header;
    header.plan = planFingerprint(job);
    header.source = sourceFingerprint(files);
    // With others the tiles must not depend on what only a look at the data files tells.
    header.tiles = job.scheduler ? TileSizes{kSharedTileBytes, kSharedTileBytes} : tileSizes(resources);
    SHARDSCOPE_ASSIGN(const auto staging, Staging::open(job, header));
    return runStaged(job, resources, files, *staging, job.scheduler != nullptr);
}

namespace {

Result<ConvertReport> completeParts(const ConvertJob& job, const std::string& version, const Resources& given,
                                    bool seal) {
    SHARDSCOPE_TRY(checkJob(job));
    const BoundedResources resources(given);
    SHARDSCOPE_ASSIGN(const std::vector<SourceFile> files, sourceFiles(job));
    SHARDSCOPE_ASSIGN(const uint32_t count, Staging::partCount(job));
    const PartShares shares(conversionItems(job), count);
    SHARDSCOPE_ASSIGN(
        const auto staging,
        Staging::openFinish(job, conversionHeader(job, files, shares.tileBytes()), {0, count, version}));
    const std::vector<uint32_t> open =
        shares.openParts(doneTiles(staging->reusable(), staging->begunParts()));
    if (!open.empty()) return partsAreOpen(open, count, stagingPath(job.destination));
    if (seal && staging->isSealed()) return ConvertReport();
    return runStaged(job, resources, files, *staging, true, seal);
}

}  // namespace

Status sealParts(const ConvertJob& job, const std::string& version, const Resources& resources) {
    const auto sealed = completeParts(job, version, resources, true);
    return sealed.ok() ? Status() : Status(sealed.error());
}

Result<ConvertReport> finishParts(const ConvertJob& job, const std::string& version,
                                  const Resources& resources) {
    return completeParts(job, version, resources, false);
}

namespace {

// What a job that only reads works with.
struct PlannedSource {
    PlannedSource(const Reader& source, const TargetSpec& spec, const Resources& given)
        : resources(given), job(readingJob(source, spec)) {}
    PlannedSource(const PlannedSource&) = delete;
    PlannedSource& operator=(const PlannedSource&) = delete;

    BoundedResources resources;
    ConvertJob job;
    TileSource tiles;
    NoSink sink;
    ConvertState state{
        .job = job, .resources = resources, .tiles = tileSizes(resources), .source = &tiles, .sink = &sink};
    std::unique_ptr<SourceContext> context = sourceContext(job, resources);

  private:
    static ConvertJob readingJob(const Reader& source, const TargetSpec& spec) {
        ConvertJob job;
        job.source = &source;
        job.spec = &spec;
        job.fileSystem = systemFileSystem();
        job.options.scanValues = false;
        return job;
    }
};

class OpenedTensor : public PlannedTensor {
  public:
    OpenedTensor(const Reader& source, const TargetSpec& spec, TensorId target, const Resources& resources)
        : source_(source, spec, resources), target_(target) {}

    Status open() {
        SHARDSCOPE_ASSIGN(reader_, source_.tiles.open(source_.state, *source_.context, target_, kept_));
        return {};
    }
    Result<std::vector<std::byte>> read(int64_t begin, int64_t end) override {
        if (begin < 0 || end < begin || end > reader_->elements())
            return makeError(ErrorCode::usage, "elements outside of the tensor")
                .ofTensor(source_.job.spec->target.name(target_));
        const size_t wanted = reader_->readBufferBytes(begin, end) + kIoAlignment;
        std::vector<std::byte> bytes;
        try {
            bytes.resize(bytesOfElements(reader_->dtype(), end - begin));
            if (buffer_.span().size() < wanted) buffer_.reset(wanted);
        } catch (const std::bad_alloc&) {
            return makeError(ErrorCode::limit, "no memory to read elements");
        }
        if (begin < end) SHARDSCOPE_TRY(reader_->readTile(begin, end, bytes, buffer_.span()));
        return bytes;
    }

  private:
    PlannedSource source_;
    TensorId target_;
    WorkerMemory kept_{*source_.resources.memory};
    AlignedBuffer buffer_;
    std::unique_ptr<ElementReader> reader_;
};

}  // namespace

Result<std::vector<Digest128>> digestPlanned(const Reader& source, const TargetSpec& spec,
                                             const std::vector<TensorId>& tensors,
                                             const Resources& resources) {
    PlannedSource planned(source, spec, resources);
    SHARDSCOPE_TRY(runWork(planned.state, *planned.context, tensors));
    std::vector<Digest128> digests;
    for (const TensorId t : tensors)
        digests.push_back(*planned.state.digests[t]);
    return digests;
}

Result<std::unique_ptr<PlannedTensor>> openPlanned(const Reader& source, const TargetSpec& spec,
                                                   TensorId target, const Resources& resources) {
    auto opened = std::make_unique<OpenedTensor>(source, spec, target, resources);
    SHARDSCOPE_TRY(opened->open());
    return std::unique_ptr<PlannedTensor>(std::move(opened));
}

}  // namespace shardscope
