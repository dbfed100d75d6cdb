// The executor (executor.h): one conversion from its tiles to the published destination, by this process
// alone or in parts that a scheduler gives to others.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/option_words.h"
#include "execute/destination.h"
#include "execute/executor.h"
#include "execute/identity.h"
#include "execute/part_shares.h"
#include "execute/part_worker.h"
#include "execute/parts.h"
#include "execute/read_behind.h"
#include "execute/read_plan.h"
#include "execute/scan.h"
#include "execute/staging.h"
#include "execute/verify.h"

namespace shardscope {
namespace {

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

// Of one source; those of an average are read side by side.
std::vector<TensorId> sourcesOf(const ConvertJob& job, const std::vector<TensorId>& tensors) {
    std::set<TensorId> sources;
    for (const TensorId t : job.average ? std::vector<TensorId>() : tensors)
        for (const TensorId source : job.spec->sources[t].tensors())
            sources.insert(source);
    return {sources.begin(), sources.end()};
}

Status runWork(ConvertState& state, SourceContext& context, const std::vector<TensorId>& tensors) {
    const ReadPlan plan(context, sourcesOf(state.job, tensors));
    TileRun run;
    run.tensors = tensors.size();
    run.threads = workerCount(state.resources);
    run.memory = state.resources.memory;
    run.stop = state.resources.stop;
    if (plan.isActive())
        run.tilesOf = [&](size_t i) { return state.target().bytes(tensors[i]) / state.tiles.preferred + 1; };
    run.prepare = [&](size_t i, WorkerMemory& kept) -> Result<std::unique_ptr<TensorTask>> {
        if (state.readBehind) SHARDSCOPE_TRY(state.readBehind->status());
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

// What this process gives out to workers.
class PartsGivenOut {
  public:
    PartsGivenOut(ConvertState& state, SourceContext& context, PartScheduler& scheduler, SharedJob shared)
        : state_(state), context_(context), scheduler_(scheduler), shared_(std::move(shared)) {}

    // Has the tiles done that no journal has. What is left for this process is everything that is not tensor
    // data.
    Status convert() {
        const PartShares shares(conversionItems(state_.job), shared_.parts, homes(PartWork::convert));
        const auto done = [&] {
            PartShares::Done found;
            for (const auto& [t, tiles] : state_.reusable)
                for (const JournalTile& tile : tiles)
                    found.tiles.emplace(t, tile.tile);
            return found;
        };
        const std::vector<PartOrder> orders = shares.orders(done());
        countReused(orders);
        SHARDSCOPE_TRY(giveOut(PartWork::convert, orders));
        state_.reusable.clear();
        SHARDSCOPE_ASSIGN(std::vector<JournalTile> tiles, state_.staging->readParts());
        for (JournalTile& tile : tiles)
            state_.reusable[tile.tensor].push_back(std::move(tile));
        const size_t open = shares.orders(done()).size();
        return open == 0 ? Status() : journalsLag(open, stagingPath(state_.job.destination));
    }

    // Has the output read back, and the source read once more, by all.
    Status verify(const StagedOutput& output) {
        PartReading reading = verifyReading(output, *state_.staging);
        return read(PartWork::verify, reading);
    }
    Status reread() {
        PartReading reading = rereading(state_, *state_.staging);
        SHARDSCOPE_TRY(read(PartWork::reread, reading));
        SHARDSCOPE_ASSIGN(const auto found, FinishedReading::open(reading, shared_.version));
        std::map<std::pair<TensorId, int64_t>, const JournalTile*> known;
        for (const auto& [t, tiles] : state_.reusable)
            for (const JournalTile& tile : tiles)
                known.emplace(std::pair(t, tile.tile), &tile);
        TensorId changed = kNone;
        SHARDSCOPE_TRY(found->forEach([&](uint32_t item, int64_t tile, std::string_view data) {
            const auto before = known.find({item, tile});
            if (before == known.end()) return false;
            if (before->second->cells != cellsFrom(data)) changed = item;
            return true;
        }));
        return changed == kNone ? Status() : readsDifferently(state_.target(), changed);
    }

  private:
    ShareHomes homes(PartWork work) const { return homesFor(scheduler_.homes(), work); }

    void countReused(const std::vector<PartOrder>& orders) {
        const uint64_t total = bytesOf(state_.target(), workOrder(state_.job));
        uint64_t open = 0;
        for (const PartOrder& order : orders)
            open += order.bytes;
        state_.bytesReused = total - open;
        state_.bytesWritten = open;
        state_.reuseCounted = true;
        if (state_.resources.progress) state_.resources.progress->add(total - open);
    }

    Status read(PartWork work, PartReading& reading) {
        reading.homes = homes(work);
        return giveOut(work, PartShares(reading.items, shared_.parts, reading.homes).orders({}));
    }

    Status giveOut(PartWork work, const std::vector<PartOrder>& orders) {
        if (orders.empty()) return {};
        const auto done = [&](size_t, const PartDone& result) -> Status {
            if (work != PartWork::verify) context_.bytesRead += result.bytesRead;
            return {};
        };
        return scheduler_.run(shared_, work, orders, done, state_.resources.progress, state_.resources.stop);
    }

    ConvertState& state_;
    SourceContext& context_;
    PartScheduler& scheduler_;
    const SharedJob shared_;
};

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
Status verify(ConvertState& state, PartsGivenOut* together, ConvertReport& report) {
    const ConvertJob& job = state.job;
    SHARDSCOPE_ASSIGN(const auto output, StagedOutput::open(job, state.staging->dataPath()));
    if (job.options.verify == Verify::none) return {};
    if (job.options.verify == Verify::checksums) {
        report.verified = job.fileSystem->provesWrites();
        return report.verified ? Status()
                               : makeError(ErrorCode::unsupported,
                                           "the storage of the destination checks no checksums, so that "
                                           "nothing proves what was written")
                                     .inFile(job.destination)
                                     .withHint(option("verify", "digest") + " reads it again");
    }
    if (Progress* const progress = state.resources.progress)
        progress->begin(Progress::Phase::verify, bytesOf(state.target(), output->tensors()));
    if (together) SHARDSCOPE_TRY(together->verify(*output));
    if (state.readBehind) SHARDSCOPE_TRY(state.readBehind->finish());
    if (state.staging->isSealed()) {
        SHARDSCOPE_TRY(takeReadBack(state, *output));
    } else {
        SHARDSCOPE_TRY(output->verify(state));
    }
    report.verified = true;
    return {};
}

// `seal`: only until nothing is left but verification and publication.
Status runStages(ConvertState& state, SourceContext& context, const std::vector<SourceFile>& files, bool seal,
                 PartScheduler* scheduler, ConvertReport& report) {
    const ConvertJob& job = state.job;
    Progress* progress = state.resources.progress;
    const std::vector<TensorId> tensors = workOrder(job);
    const uint64_t total = bytesOf(state.target(), tensors);
    if (progress) progress->begin(Progress::Phase::write, total);
    const double begin = steadySeconds();
    std::optional<PartsGivenOut> together;
    if (scheduler) {
        SHARDSCOPE_ASSIGN(SharedJob shared, state.staging->share(scheduler->workerCount()));
        together.emplace(state, context, *scheduler, std::move(shared));
        SHARDSCOPE_TRY(together->convert());
    }
    SHARDSCOPE_TRY(writeAll(state, context, tensors));
    if (context.checks)
        SHARDSCOPE_TRY(context.checks->complete(state.resources.stop, state.bytesReused > 0 && !together));
    {
        const BusyTime busy(progress, Progress::Work::write);
        SHARDSCOPE_TRY(state.staging->syncAll());
    }
    SHARDSCOPE_TRY(checkUnchanged(files));
    report.seconds = steadySeconds() - begin;

    if (seal || together) SHARDSCOPE_TRY(state.staging->seal());
    if (seal) return {};
    const double verifyBegin = steadySeconds();
    if (job.reopen) SHARDSCOPE_TRY(verify(state, together ? &*together : nullptr, report));
    if (job.options.verify == Verify::full) {
        if (progress) progress->begin(Progress::Phase::verify, total);
        SHARDSCOPE_TRY(together ? together->reread() : verifySource(state, context, tensors));
    }
    report.verifySeconds = steadySeconds() - verifyBegin;

    SHARDSCOPE_TRY(state.resources.stop.poll());
    if (progress) progress->begin(Progress::Phase::commit, 0);
    if (job.beforePublication) SHARDSCOPE_TRY(job.beforePublication());
    // The disks of others may be where it is published.
    SHARDSCOPE_TRY(state.staging->publish());
    if (scheduler) scheduler->end();
    return {};
}

// `shared`: others have read, too.
ChecksumReport checksumsOf(const ConvertJob& job, const SourceContext& context, bool shared) {
    ChecksumReport report = context.checks ? context.checks->report() : ChecksumReport();
    report.shared = shared && storesChecksums(*job.source, *job.spec);
    return report;
}

// With a staging directory, to the end. `gathered`: others have done tiles, or do them for the scheduler.
Result<ConvertReport> runStaged(const ConvertJob& job, Resources resources,
                                const std::vector<SourceFile>& files, Staging& staging, bool gathered,
                                bool seal = false, PartScheduler* scheduler = nullptr) {
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
    // Of what several processes write, each reads its share once all of it is there.
    std::unique_ptr<ReadBehind> behind = gathered ? nullptr : ReadBehind::start(state, workOrder(job).size());
    state.readBehind = behind.get();
    ConvertReport report;
    Status status = runStages(state, context, files, seal, scheduler, report);
    behind.reset();
    if (!status.ok()) {
        // Nobody writes any more: where parts failed the others have ended.
        Error error = staging.giveUp(std::move(status).error());
        if (scheduler) scheduler->end();
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

namespace {

// Where no part has begun yet, so many are given out; else as many as the first one said.
Result<uint32_t> partsOf(const ConvertJob& job, size_t workers) {
    const auto begun = job.options.resume ? Staging::partCount(job) : noParts("");
    if (begun.ok() || begun.error().code != ErrorCode::notFound) return begun;
    return partsFor(bytesOf(job.spec->target, workOrder(job)), workers);
}

Result<ConvertReport> runTogether(const ConvertJob& job, const Resources& resources,
                                  const std::vector<SourceFile>& files, PartScheduler& scheduler) {
    SHARDSCOPE_ASSIGN(const uint32_t count, partsOf(job, scheduler.workerCount()));
    const uint64_t tileBytes = PartShares(conversionItems(job), count).tileBytes();
    SHARDSCOPE_ASSIGN(const auto staging, Staging::openTogether(job, conversionHeader(job, files, tileBytes),
                                                                {0, count, job.version}));
    return runStaged(job, resources, files, *staging, true, false, &scheduler);
}

}  // namespace

Result<ConvertReport> runConversion(const ConvertJob& job, const Resources& given) {
    SHARDSCOPE_TRY(checkJob(job));
    const BoundedResources resources(given);
    SHARDSCOPE_ASSIGN(const std::vector<SourceFile> files, sourceFiles(job));
    // A job that one process began alone is continued by one process: only it can cut the same tiles.
    bool alone = !job.scheduler;
    if (job.options.resume) {
        SHARDSCOPE_ASSIGN(const bool begunAlone, Staging::isOfOneProcess(job));
        alone = begunAlone || (alone && !Staging::partCount(job).ok());
    }
    if (!alone) {
        OwnParts own(job, resources);
        return runTogether(job, resources, files, job.scheduler ? *job.scheduler : own);
    }
    JournalHeader header;
    header.plan = planFingerprint(job);
    header.source = sourceFingerprint(files);
    header.tiles = tileSizes(resources);
    SHARDSCOPE_ASSIGN(const auto staging, Staging::open(job, header));
    auto report = runStaged(job, resources, files, *staging, false);
    if (job.scheduler) job.scheduler->end();
    return report;
}

namespace {

Result<ConvertReport> completeParts(const ConvertJob& job, const std::string& version, const Resources& given,
                                    bool seal) {
    SHARDSCOPE_TRY(checkJob(job));
    const BoundedResources resources(given);
    SHARDSCOPE_ASSIGN(const std::vector<SourceFile> files, sourceFiles(job));
    if (job.shared) SHARDSCOPE_TRY(job.shared->gather());
    SHARDSCOPE_ASSIGN(const uint32_t count, Staging::partCount(job));
    const PartShares shares(conversionItems(job), count);
    SHARDSCOPE_ASSIGN(
        const auto staging,
        Staging::openFinish(job, conversionHeader(job, files, shares.tileBytes()), {0, count, version}));
    const std::vector<uint32_t> open =
        shares.openParts(doneTiles(staging->reusable(), staging->begunParts()));
    if (!open.empty()) return partsAreOpen(open, count, stagingPath(job.destination), staging->setUpBy());
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

Result<std::unique_ptr<PlannedTensor>> openPlanned(const Reader& source, const TargetSpec& spec,
                                                   TensorId target, const Resources& resources) {
    auto opened = std::make_unique<OpenedTensor>(source, spec, target, resources);
    SHARDSCOPE_TRY(opened->open());
    return std::unique_ptr<PlannedTensor>(std::move(opened));
}

}  // namespace shardscope
