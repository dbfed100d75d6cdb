#include "execute/parts.h"

#include <algorithm>
#include <utility>

#include "execute/destination.h"
#include "execute/identity.h"
#include "execute/part_shares.h"
#include "execute/scan.h"
#include "execute/span_work.h"
#include "execute/staging.h"
#include "execute/verify.h"

namespace shardscope {

std::vector<ShareItem> conversionItems(const ConvertJob& job) {
    const Catalog& target = job.spec->target;
    std::vector<ShareItem> items;
    for (const TensorId t : workOrder(job))
        items.push_back({t, target.elements(t), sourceDType(job, t), target.dtype(t)});
    return items;
}

JournalHeader conversionHeader(const ConvertJob& job, const std::vector<SourceFile>& files,
                               uint64_t tileBytes) {
    return {planFingerprint(job), sharedFingerprint(files), {tileBytes, tileBytes}};
}

PartShares::Done doneTiles(const std::vector<JournalTile>& tiles, std::set<uint32_t> begun) {
    PartShares::Done done;
    done.begun = std::move(begun);
    for (const JournalTile& tile : tiles)
        done.tiles.emplace(tile.tensor, tile.tile);
    return done;
}

namespace {

// Of a sealed staging directory, whose journal of this part is locked.
Result<PartReport> readBackPart(const ConvertJob& job, const Staging& staging, const Resources& resources) {
    SHARDSCOPE_ASSIGN(const auto output, StagedOutput::open(job, staging.dataPath()));
    SHARDSCOPE_ASSIGN(PartReport report,
                      readPart(verifyReading(*output, staging), staging.part(), resources));
    report.readBack = true;
    return report;
}

// Which parts are open, of those that each process has done somewhere else. Where this one is among them,
// too, another process has finished the job.
Status lookElsewhere(const ConvertJob& job, PartReport& report) {
    SHARDSCOPE_ASSIGN(const std::set<std::string> done, job.shared->done());
    report.open = PartJournals::openOf(report.part.count, done);
    report.wasDone = !std::ranges::binary_search(report.open, report.part.index);
    if (!report.wasDone) report.open.clear();
    return {};
}

Result<PartReport> runOpenPart(const ConvertJob& job, const PartSpec& part, const Resources& given) {
    BoundedResources resources(given);
    if (resources.scratchDirectory.empty()) resources.scratchDirectory = splitPath(job.destination).first;
    const double begin = steadySeconds();
    SHARDSCOPE_ASSIGN(const std::vector<SourceFile> files, sourceFiles(job));
    const PartShares shares(conversionItems(job), part.count);
    const JournalHeader header = conversionHeader(job, files, shares.tileBytes());
    PartReport report;
    report.part = part;
    SHARDSCOPE_ASSIGN(const auto staging, Staging::openPart(job, header, part, resources.stop));
    if (staging->isSealed() && job.options.verify != Verify::none && job.reopen)
        return readBackPart(job, *staging, resources);

    if (job.shared) {
        SHARDSCOPE_TRY(lookElsewhere(job, report));
        if (report.wasDone) {
            (void)shares.openSpans(part.index, {}, report);
            report.wasDone = true;
            report.bytesReused = report.bytes;
            (void)job.fileSystem->removeTree(stagingPath(job.destination));
            return report;
        }
    }
    const std::vector<TileSpan> spans =
        shares.openSpans(part.index, doneTiles(staging->takeReusable(), staging->begunParts()), report);
    if (Progress* progress = resources.progress) {
        progress->begin(Progress::Phase::write, report.bytes);
        progress->add(report.bytesReused);
    }

    TileSource source;
    // What a bucket takes at once are whole ranges of a file, with the bytes around the tensors.
    StagingSink sink(*staging, job.shared != nullptr);
    ConvertState state{.job = job,
                       .resources = resources,
                       .tiles = staging->tiles(),
                       .source = &source,
                       .sink = &sink,
                       .staging = job.shared ? staging.get() : nullptr};
    const auto context = sourceContext(job, resources);
    Status status = runSpans(resources, spans, [&](const TileSpan& span, WorkerMemory& kept) {
        return DestinationWork::prepare(state, *context, span.tensor, kept);
    });
    if (status.ok() && context->checks)
        status = context->checks->complete(resources.stop, report.bytesReused > 0);
    if (status.ok()) status = checkUnchanged(files);
    if (status.ok()) status = staging->syncAll();
    if (!status.ok()) return staging->giveUp(std::move(status).error());
    report.bytesRead = context->bytesRead;
    if (job.shared) {
        if (status = staging->tellDone(); !status.ok()) return staging->giveUp(std::move(status).error());
        SHARDSCOPE_TRY(lookElsewhere(job, report));
        report.wasDone = false;
        report.seconds = steadySeconds() - begin;
        return report;
    }
    SHARDSCOPE_ASSIGN(const std::vector<JournalTile> all, staging->readParts());
    report.open = shares.openParts(doneTiles(all, staging->begunParts()));
    if (part.atOnce && !report.open.empty()) SHARDSCOPE_TRY(staging->awaitAllParts(resources.stop));
    // Once all are done another one may publish, and take the journals away while they are read.
    if (!report.open.empty() && !staging->isInParts()) report.open.clear();
    report.setUpBy = staging->setUpBy();
    report.alone = part.count > 1 && staging->begunParts().size() == 1;
    report.seconds = steadySeconds() - begin;
    return report;
}

}  // namespace

std::optional<PartReport> publishedPart(const ConvertJob& job, const PartSpec& part) {
    if (!job.fileSystem->stat(job.destination).ok()) return std::nullopt;
    const auto files = sourceFiles(job);
    const PartShares shares(conversionItems(job), part.count);
    if (!files.ok() || !Staging::isPublished(job, conversionHeader(job, *files, shares.tileBytes())))
        return std::nullopt;
    PartReport report;
    report.part = part;
    (void)shares.openSpans(part.index, {}, report);
    report.bytesReused = report.bytes;
    report.wasDone = report.published = true;
    return report;
}

Result<PartReport> runPart(const ConvertJob& job, const PartSpec& part, const Resources& resources) {
    SHARDSCOPE_TRY(checkJob(job));
    SHARDSCOPE_TRY(checkPart(part));
    auto report = runOpenPart(job, part, resources);
    // It may be another run of a part that is done, and another process may publish at any moment.
    if (!report.ok()) {
        if (auto published = publishedPart(job, part)) return *std::move(published);
    }
    return report;
}

}  // namespace shardscope
