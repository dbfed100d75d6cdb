#include "execute/parts.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "execute/destination.h"
#include "execute/identity.h"
#include "execute/part_shares.h"
#include "execute/scan.h"
#include "execute/span_work.h"
#include "execute/staging.h"

namespace shardscope {

namespace {

// A share should be that many tiles, so that shares differ by some per cent only.
constexpr uint64_t kTilesOfShare = 32;
constexpr uint64_t kLargestTile = uint64_t{16} << 20;

}  // namespace

PartShares::PartShares(const ConvertJob& job, uint32_t count)
    : job_(job), count_(count), tensors_(workOrder(job)) {
    for (const TensorId t : tensors_)
        total_ += job.spec->target.bytes(t);
    const uint64_t wanted = total_ / (kTilesOfShare * count) / kDigestCellBytes * kDigestCellBytes;
    tileBytes_ = std::clamp(wanted, kDigestCellBytes, kLargestTile);
}

void PartShares::forEach(
    const std::function<void(uint32_t part, TensorId tensor, int64_t tile, uint64_t bytes)>& visit) const {
    uint64_t before = 0;
    for (const TensorId t : tensors_) {
        const TileGrid grid = sharedGrid(job_, t, tileBytes_);
        const DType dtype = job_.spec->target.dtype(t);
        for (int64_t tile = 0; tile < grid.tiles(); ++tile) {
            const uint64_t bytes = bytesOfElements(dtype, grid.end(tile) - grid.begin(tile));
            // By the middle of the tile; in floating point, since the product can overflow.
            const double at = (static_cast<double>(before) + static_cast<double>(bytes) / 2) /
                              static_cast<double>(std::max<uint64_t>(1, total_));
            visit(std::min(count_ - 1, static_cast<uint32_t>(at * count_)), t, tile, bytes);
            before += bytes;
        }
    }
}

JournalHeader PartShares::header(const std::vector<SourceFile>& files) const {
    JournalHeader header;
    header.plan = planFingerprint(job_);
    header.source = sharedFingerprint(job_.source->catalog(), files);
    header.tiles = {tileBytes_, tileBytes_};
    return header;
}

std::vector<uint32_t> PartShares::openParts(const std::vector<JournalTile>& done) const {
    std::set<std::pair<TensorId, int64_t>> known;
    for (const JournalTile& tile : done)
        known.emplace(tile.tensor, tile.tile);
    std::set<uint32_t> open;
    forEach([&](uint32_t part, TensorId t, int64_t tile, uint64_t) {
        if (!known.contains({t, tile})) open.insert(part);
    });
    return {open.begin(), open.end()};
}

Result<PartReport> runPart(const ConvertJob& job, const PartSpec& part, const Resources& given) {
    SHARDSCOPE_TRY(checkJob(job));
    if (part.count == 0 || part.count > kMostParts || part.index >= part.count)
        return makeError(ErrorCode::usage,
                         fmt::format("part {} of {} does not exist", part.index, part.count));
    Resources resources = given;
    MemoryBudget ownBudget(uint64_t{512} << 20);
    if (!resources.memory) resources.memory = &ownBudget;
    if (resources.scratchDirectory.empty()) resources.scratchDirectory = splitPath(job.destination).first;
    const double begin = steadySeconds();
    SHARDSCOPE_ASSIGN(const std::vector<SourceFile> files, sourceFiles(job));
    const PartShares shares(job, part.count);
    SHARDSCOPE_ASSIGN(const auto staging, Staging::openPart(job, shares.header(files), part, resources.stop));

    PartReport report;
    report.part = part;
    std::set<std::pair<TensorId, int64_t>> done;
    for (const JournalTile& tile : staging->takeReusable())
        done.emplace(tile.tensor, tile.tile);
    std::vector<TileSpan> spans;
    shares.forEach([&](uint32_t owner, TensorId t, int64_t tile, uint64_t bytes) {
        if (owner != part.index) return;
        ++report.tiles;
        report.bytes += bytes;
        if (done.contains({t, tile})) {
            report.bytesReused += bytes;
        } else if (!spans.empty() && spans.back().tensor == t &&
                   spans.back().first + spans.back().count == tile) {
            ++spans.back().count;
        } else {
            spans.push_back({t, tile, 1});
        }
    });
    report.wasDone = spans.empty();
    if (Progress* progress = resources.progress) {
        progress->begin(Progress::Phase::write, report.bytes);
        progress->add(report.bytesReused);
    }

    TileSource source;
    StagingSink sink(*staging, false);
    ConvertState state{
        .job = job, .resources = resources, .tiles = staging->tiles(), .source = &source, .sink = &sink};
    SourceContext context(*job.source, resources, job.options.fillGaps, job.fileSystem);
    Status status = runSpans(resources, spans, [&](const TileSpan& span, WorkerMemory& kept) {
        return DestinationWork::prepare(state, context, span.tensor, kept);
    });
    if (status.ok()) status = checkUnchanged(job, files);
    if (status.ok()) status = staging->syncAll();
    if (!status.ok()) return staging->giveUp(std::move(status).error());
    report.bytesRead = context.bytesRead;
    SHARDSCOPE_ASSIGN(const std::vector<JournalTile> all, staging->readParts());
    report.open = shares.openParts(all);
    // Once all are done another one may publish, and take the journals away while they are read.
    if (!report.open.empty() && !staging->isInParts()) report.open.clear();
    report.seconds = steadySeconds() - begin;
    return report;
}

}  // namespace shardscope
