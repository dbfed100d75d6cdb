#include <algorithm>
#include <tuple>

#include <fmt/format.h>
#include <xxhash.h>

#include "execute/destination.h"
#include "execute/executor.h"
#include "execute/scan.h"
#include "execute/staging.h"

namespace shardscope {
namespace {

// ------------------------------------------------------------------ what identifies a job

class Hasher {
  public:
    Hasher() : state_(XXH3_createState()) { XXH3_128bits_reset(state_); }
    Hasher(const Hasher&) = delete;
    Hasher& operator=(const Hasher&) = delete;
    ~Hasher() { XXH3_freeState(state_); }

    void number(uint64_t value) { XXH3_128bits_update(state_, &value, sizeof value); }
    void text(std::string_view value) {
        number(value.size());
        XXH3_128bits_update(state_, value.data(), value.size());
    }
    void dims(DimSpan values) {
        number(values.size());
        XXH3_128bits_update(state_, values.data(), values.size_bytes());
    }
    Digest128 result() const {
        const XXH128_hash_t hash = XXH3_128bits_digest(state_);
        return {hash.low64, hash.high64};
    }

  private:
    XXH3_state_t* state_;
};

Digest128 planFingerprint(const ConvertJob& job) {
    const Catalog& wanted = job.wish->wanted;
    const TargetLayout& layout = *job.layout;
    Hasher hash;
    hash.text("shardscope conversion 1");
    hash.text(job.plan ? job.plan->targetFormat : "");
    hash.text(job.plan ? job.plan->targetVariant : "");
    hash.number(static_cast<uint64_t>(job.options.fillGaps));
    hash.number(job.options.scanValues);
    hash.number(layout.needsCrc);
    hash.number(layout.files.size());
    for (const TargetFile& file : layout.files) {
        hash.text(file.path);
        hash.number(file.size);
    }
    for (TensorId t = 0; t < wanted.tensorCount(); ++t) {
        hash.text(wanted.name(t));
        hash.number(static_cast<uint64_t>(wanted.dtype(t)));
        hash.number(wanted.aliasOf(t));
        const TensorSource& source = job.wish->sources[t];
        hash.number(source.source);
        if (source.view) {
            hash.dims(source.view->dims());
            for (const ViewPiece& piece : source.view->pieces()) {
                hash.number(piece.source);
                hash.number(static_cast<uint64_t>(piece.start));
                hash.dims(piece.box.offsets);
                hash.dims(piece.box.lengths);
                hash.dims(piece.strides);
            }
        }
        hash.dims(wanted.shape(t));
        for (ChunkId c = wanted.firstChunk(t); c < wanted.endChunk(t); ++c) {
            const ChunkInfo chunk = wanted.chunk(t, c);
            hash.dims(chunk.offsets);
            hash.dims(chunk.lengths);
            hash.number(chunk.flat ? static_cast<uint64_t>(chunk.flat->start) : UINT64_MAX);
            hash.number(chunk.flat ? static_cast<uint64_t>(chunk.flat->stop) : UINT64_MAX);
            hash.number(layout.chunkFile[c]);
            hash.number(layout.chunkOffset[c]);
        }
    }
    return hash.result();
}

struct SourceFile {
    FileId id;
    Fingerprint print;
};

// The files that hold chunks of the tensors that are read, as they are now.
Result<std::vector<SourceFile>> sourceFiles(const ConvertJob& job) {
    const Catalog& have = job.source->catalog();
    std::vector<bool> used(have.files().size(), false);
    for (const TensorSource& source : job.wish->sources) {
        for (const TensorId t : source.tensors()) {
            if (t >= have.tensorCount()) continue;
            for (ChunkId c = have.firstChunk(t); c < have.endChunk(t); ++c) {
                const FileId file = have.chunk(t, c).file;
                if (file < used.size()) used[file] = true;
            }
        }
    }
    std::vector<SourceFile> files;
    for (FileId f = 0; f < used.size(); ++f) {
        if (!used[f]) continue;
        const auto file = job.source->openFile(f);
        // A file that is missing matters when a tensor needs it; locate() says so then.
        if (!file.ok()) {
            files.push_back({f, {}});
            continue;
        }
        SHARDSCOPE_ASSIGN(const Fingerprint print, (*file)->fingerprint());
        files.push_back({f, print});
    }
    return files;
}

Digest128 sourceFingerprint(const Catalog& have, const std::vector<SourceFile>& files) {
    Hasher hash;
    for (const SourceFile& file : files) {
        hash.text(have.files()[file.id].path);
        hash.number(file.print.device);
        hash.number(file.print.inode);
        hash.number(file.print.size);
        hash.number(static_cast<uint64_t>(file.print.modifiedNs));
        hash.number(static_cast<uint64_t>(file.print.changedNs));
    }
    return hash.result();
}

Status checkUnchanged(const ConvertJob& job, const std::vector<SourceFile>& before) {
    SHARDSCOPE_ASSIGN(const std::vector<SourceFile> now, sourceFiles(job));
    for (size_t i = 0; i < before.size(); ++i) {
        if (i < now.size() && now[i].id == before[i].id && now[i].print == before[i].print) continue;
        return makeError(ErrorCode::changed, "the source file changed while it was converted")
            .inFile(job.source->catalog().files()[before[i].id].path)
            .withHint("wait until nobody writes the source, then start again");
    }
    return {};
}

// ------------------------------------------------------------------ order of work

// Names of one tensor that the layout gives the same bytes: written once.
bool sharesBytes(const ConvertJob& job, TensorId t) {
    const Catalog& wanted = job.wish->wanted;
    const TensorId first = wanted.aliasOf(t);
    if (first == kNone || first == t) return false;
    const ChunkId a = wanted.firstChunk(first), b = wanted.firstChunk(t);
    const ChunkId count = wanted.endChunk(t) - b;
    if (wanted.endChunk(first) - a != count || wanted.dtype(first) != wanted.dtype(t)) return false;
    for (ChunkId i = 0; i < count; ++i) {
        if (job.layout->chunkFile[a + i] != job.layout->chunkFile[b + i] ||
            job.layout->chunkOffset[a + i] != job.layout->chunkOffset[b + i]) {
            return false;
        }
    }
    return true;
}

// Tensors to write, in the order of their first byte in the destination.
std::vector<TensorId> workOrder(const ConvertJob& job) {
    const Catalog& wanted = job.wish->wanted;
    std::vector<TensorId> tensors;
    for (TensorId t = 0; t < wanted.tensorCount(); ++t) {
        if (!sharesBytes(job, t)) tensors.push_back(t);
    }
    const auto place = [&](TensorId t) {
        const ChunkId c = wanted.firstChunk(t);
        if (c == wanted.endChunk(t)) return std::pair<FileId, uint64_t>(kNone, 0);
        return std::pair(job.layout->chunkFile[c], job.layout->chunkOffset[c]);
    };
    std::stable_sort(tensors.begin(), tensors.end(),
                     [&](TensorId a, TensorId b) { return place(a) < place(b); });
    return tensors;
}

Status checkJob(const ConvertJob& job) {
    if (!job.source || !job.wish || !job.layout || !job.fileSystem) {
        return makeError(ErrorCode::internal, "the conversion is not fully described");
    }
    if (!job.wish->impossible.empty()) {
        const PlanLeftOut& first = job.wish->impossible.front();
        return makeError(ErrorCode::impossible,
                         fmt::format("'{}' cannot be converted: {}", first.name, first.why));
    }
    const Catalog& wanted = job.wish->wanted;
    if (job.wish->sources.size() != wanted.tensorCount() ||
        job.layout->chunkFile.size() != wanted.chunkCount() ||
        job.layout->chunkOffset.size() != wanted.chunkCount()) {
        return makeError(ErrorCode::internal, "plan and layout do not fit together");
    }
    return {};
}

// ------------------------------------------------------------------ verification

using ChunkKey = std::tuple<std::vector<int64_t>, std::vector<int64_t>, int64_t, int64_t>;

std::vector<ChunkKey> chunkKeys(const Catalog& catalog, TensorId t) {
    std::vector<ChunkKey> keys;
    for (ChunkId c = catalog.firstChunk(t); c < catalog.endChunk(t); ++c) {
        const ChunkInfo chunk = catalog.chunk(t, c);
        if (chunk.elements() == 0) continue;
        keys.emplace_back(Dims(chunk.offsets.begin(), chunk.offsets.end()),
                          Dims(chunk.lengths.begin(), chunk.lengths.end()),
                          chunk.flat ? chunk.flat->start : -1, chunk.flat ? chunk.flat->stop : -1);
    }
    std::sort(keys.begin(), keys.end());
    keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
    return keys;
}

Error wrongOutput(std::string message, std::string_view tensor) {
    return damaged(std::move(message))
        .ofTensor(tensor)
        .withHint("the output was not published; check the disk and memory of this machine");
}

// For each wanted tensor its id in what was written; kNone for an alias that the format records in another
// way.
Result<std::vector<TensorId>> matchCatalogs(const Catalog& wanted, const Catalog& written) {
    std::vector<TensorId> ids(wanted.tensorCount(), kNone);
    for (TensorId t = 0; t < wanted.tensorCount(); ++t) {
        const std::string_view name = wanted.name(t);
        const TensorId found = written.find(name);
        if (found == kNone) {
            if (wanted.aliasOf(t) != kNone && wanted.aliasOf(t) != t) continue;
            return wrongOutput("verification: the output lacks the tensor", name);
        }
        if (written.dtype(found) != wanted.dtype(t)) {
            return wrongOutput(fmt::format("verification: the output has dtype {}, expected {}",
                                           dtypeName(written.dtype(found)), dtypeName(wanted.dtype(t))),
                               name);
        }
        if (!std::ranges::equal(written.shape(found), wanted.shape(t))) {
            return wrongOutput(fmt::format("verification: the output has shape {}, expected {}",
                                           formatDims(written.shape(found)), formatDims(wanted.shape(t))),
                               name);
        }
        if (chunkKeys(written, found) != chunkKeys(wanted, t)) {
            return wrongOutput("verification: the output is cut differently than planned", name);
        }
        ids[t] = found;
    }
    return ids;
}

Status verifyDigests(const ConvertState& state, const Reader& output, const std::vector<TensorId>& ids) {
    const Catalog& wanted = state.wanted();
    std::vector<TensorId> tensors;
    uint64_t bytes = 0;
    for (TensorId id : ids) {
        if (id == kNone) continue;
        tensors.push_back(id);
        bytes += output.catalog().bytes(id);
    }
    if (state.resources.progress) state.resources.progress->begin(Progress::Phase::verify, bytes);
    SourceContext context(output, state.resources, FillGaps::refuse, state.job.fileSystem);
    SHARDSCOPE_ASSIGN(const auto digests, digestSource(context, tensors, {}, false));
    size_t next = 0;
    for (TensorId t = 0; t < ids.size(); ++t) {
        if (ids[t] == kNone) continue;
        if (!(digests[next++].digest == *state.digests[t])) {
            return wrongOutput("verification: what was read back differs from what was written",
                               wanted.name(t));
        }
    }
    return {};
}

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

// Reads the source once more and compares with what was taken on the way.
Status verifySource(const ConvertState& done, SourceContext& context, const std::vector<TensorId>& tensors) {
    ConvertState again{done.job, done.resources, nullptr, done.tiles, {}, {}, {}, {}, {}, {}, {}};
    again.digests.resize(done.digests.size());
    if (done.resources.progress) {
        uint64_t bytes = 0;
        for (TensorId t : tensors)
            bytes += done.wanted().bytes(t);
        done.resources.progress->begin(Progress::Phase::verify, bytes);
    }
    SHARDSCOPE_TRY(runWork(again, context, tensors));
    for (TensorId t : tensors) {
        if (again.digests[t] == done.digests[t]) continue;
        return wrongOutput("verification: the source reads differently the second time",
                           done.wanted().name(t));
    }
    return {};
}

// ------------------------------------------------------------------ the whole job

Status writeAll(ConvertState& state, SourceContext& context, const std::vector<TensorId>& tensors) {
    const Catalog& wanted = state.wanted();
    SHARDSCOPE_TRY(runWork(state, context, tensors));
    for (TensorId t = 0; t < wanted.tensorCount(); ++t) {
        if (state.digests[t]) continue;
        const TensorId first = wanted.aliasOf(t);
        state.digests[t] = state.digests[first];
        const ChunkId a = wanted.firstChunk(first), b = wanted.firstChunk(t);
        for (ChunkId i = 0; b + i < wanted.endChunk(t); ++i)
            state.chunkCrcs[b + i] = state.chunkCrcs[a + i];
    }
    const LiteralSink sink = state.literals();
    for (FileId f = 0; f < state.job.layout->files.size(); ++f) {
        SHARDSCOPE_TRY(state.resources.stop.poll());
        SHARDSCOPE_TRY(state.job.layout->fileLiterals(f, state.chunkCrcs, sink));
    }
    return {};
}

Status runStages(ConvertState& state, SourceContext& context, const std::vector<SourceFile>& files,
                 ConvertReport& report) {
    const ConvertJob& job = state.job;
    Progress* progress = state.resources.progress;
    const std::vector<TensorId> tensors = workOrder(job);
    uint64_t total = 0;
    for (TensorId t : tensors)
        total += state.wanted().bytes(t);
    if (progress) progress->begin(Progress::Phase::write, total);
    const double begin = steadySeconds();
    SHARDSCOPE_TRY(writeAll(state, context, tensors));
    SHARDSCOPE_TRY(state.staging->syncAll());
    SHARDSCOPE_TRY(checkUnchanged(job, files));
    report.seconds = steadySeconds() - begin;

    const double verifyBegin = steadySeconds();
    if (job.reopen) {
        auto output = job.reopen(state.staging->dataPath());
        if (!output.ok()) {
            Error error = std::move(output).error();
            // Being stopped or refused says nothing about the output.
            if (error.code == ErrorCode::cancelled || error.code == ErrorCode::io) return error;
            error.message = "verification: the output cannot be opened: " + error.message;
            error.code = ErrorCode::damaged;
            return error;
        }
        SHARDSCOPE_ASSIGN(const std::vector<TensorId> ids,
                          matchCatalogs(state.wanted(), (*output)->catalog()));
        if (job.options.verify != Verify::none) {
            SHARDSCOPE_TRY(verifyDigests(state, **output, ids));
            report.verified = true;
        }
    }
    if (job.options.verify == Verify::full) SHARDSCOPE_TRY(verifySource(state, context, tensors));
    report.verifySeconds = steadySeconds() - verifyBegin;

    SHARDSCOPE_TRY(state.resources.stop.poll());
    if (progress) progress->begin(Progress::Phase::commit, 0);
    return state.staging->publish();
}

}  // namespace

Result<ConvertReport> runConversion(const ConvertJob& job, const Resources& given) {
    SHARDSCOPE_TRY(checkJob(job));
    Resources resources = given;
    MemoryBudget ownBudget(uint64_t{512} << 20);
    if (!resources.memory) resources.memory = &ownBudget;
    SHARDSCOPE_ASSIGN(const std::vector<SourceFile> files, sourceFiles(job));
    JournalHeader header;
    header.plan = planFingerprint(job);
    header.source = sourceFingerprint(job.source->catalog(), files);
    header.tiles = tileSizes(resources);
    SHARDSCOPE_ASSIGN(const auto staging, Staging::open(job, header));
    if (resources.scratchDirectory.empty()) resources.scratchDirectory = splitPath(job.destination).first;

    ConvertState state{job, resources, staging.get(), staging->tiles(), {}, {}, {}, {}, {}, {}, {}};
    state.chunkCrcs.resize(job.wish->wanted.chunkCount());
    state.digests.resize(job.wish->wanted.tensorCount());
    for (JournalTile& tile : staging->takeReusable())
        state.reusable[tile.tensor].push_back(std::move(tile));
    SourceContext context(*job.source, resources, job.options.fillGaps, job.fileSystem);
    ConvertReport report;
    if (Status status = runStages(state, context, files, report); !status.ok()) {
        return staging->giveUp(std::move(status).error());
    }
    report.bytesRead = context.bytesRead;
    report.bytesWritten = state.bytesWritten;
    report.bytesReused = state.bytesReused;
    for (TensorId t = 0; t < job.wish->wanted.tensorCount(); ++t) {
        report.digests.emplace_back(job.wish->wanted.name(t), *state.digests[t]);
    }
    for (const auto& [t, counts] : state.counts)
        report.counts.emplace_back(job.wish->wanted.name(t), counts);
    return report;
}

}  // namespace shardscope
