#include "execute/units.h"

#include <algorithm>
#include <mutex>
#include <random>
#include <utility>

#include <fmt/format.h>

#include "execute/destination.h"
#include "execute/identity.h"
#include "execute/scan.h"
#include "execute/span_work.h"
#include "execute/staging.h"
#include "execute/verify.h"

namespace shardscope {
namespace {

// Keeps what was found, and writes nothing.
class DigestsOnly final : public TileSink {
  public:
    bool writes() const override { return false; }
    Status write(FileId, uint64_t, std::span<const std::byte>) override { return {}; }
    Status finished(JournalTile tile, uint64_t) override {
        std::lock_guard lock(mutex_);
        tiles_.push_back(std::move(tile));
        return {};
    }
    std::vector<JournalTile> take() {
        std::lock_guard lock(mutex_);
        return std::exchange(tiles_, {});
    }

  private:
    std::mutex mutex_;
    std::vector<JournalTile> tiles_;
};

// Passes on what is to be written.
class PassingSink final : public TileSink {
  public:
    using Write = decltype(UnitOptions::write);
    PassingSink(DigestsOnly& digests, Write write) : digests_(digests), write_(std::move(write)) {}
    bool writes() const override { return true; }
    Status write(FileId file, uint64_t offset, std::span<const std::byte> bytes) override {
        return write_(file, offset, bytes);
    }
    Status finished(JournalTile tile, uint64_t bytes) override {
        return digests_.finished(std::move(tile), bytes);
    }

  private:
    DigestsOnly& digests_;
    const Write write_;
};

class Joined final : public UnitWorker {
  public:
    Joined(const ConvertJob& job, const Resources& resources, const JobIdentity& identity,
           UnitOptions options)
        : resources_(resources),
          state_{.job = job,
                 .resources = resources_,
                 .tiles = {identity.tileBytes, identity.largestTileBytes},
                 .source = &source_,
                 .sink = &digests_} {
        if (options.compute) state_.compute = options.compute;
        if (options.write) passing_.emplace(digests_, std::move(options.write));
    }

    Status open(const JobIdentity& identity) {
        SHARDSCOPE_ASSIGN(staging_, Staging::join(state_.job, identity.token));
        sink_.emplace(*staging_, false);
        context_ = sourceContext(state_.job, resources_);
        return {};
    }

    Result<UnitResult> run(const Unit& unit) override {
        SHARDSCOPE_TRY(check(unit));
        if (unit.work == UnitWork::verify) return verify(unit);
        const uint64_t before = context_->bytesRead;
        const bool rereads = unit.work == UnitWork::reread;
        const bool digestsOnly = rereads || passing_;
        state_.sink = rereads    ? static_cast<TileSink*>(&digests_)
                      : passing_ ? static_cast<TileSink*>(&*passing_)
                                 : &*sink_;
        Status status = runSpans(resources_, unit.spans, [&](const TileSpan& span, WorkerMemory& kept) {
            return DestinationWork::prepare(state_, *context_, span.tensor, kept);
        });
        const std::vector<JournalTile> tiles = digestsOnly ? digests_.take() : staging_->takeFinished();
        if (!status.ok()) return std::move(status).error();
        return UnitResult{encodeTiles(tiles), context_->bytesRead - before};
    }

    Status write(FileId file, uint64_t offset, std::span<const std::byte> bytes) override {
        if (file >= state_.job.layout->files.size() || bytes.size() > state_.job.layout->files[file].size ||
            offset > state_.job.layout->files[file].size - bytes.size())
            return makeError(ErrorCode::usage, "the piece is outside of its file");
        const BusyTime busy(resources_.progress, Progress::Work::write);
        return staging_->write(file, offset, bytes, true);
    }

    Status sync() override {
        const BusyTime busy(resources_.progress, Progress::Work::write);
        return staging_->syncData();
    }

  private:
    Status check(const Unit& unit) const {
        for (const TileSpan& span : unit.spans) {
            if (span.tensor >= state_.target().tensorCount() || span.first < 0 || span.count <= 0)
                return makeError(ErrorCode::usage, "the unit names tiles that do not exist");
        }
        return {};
    }

    // The output is whole when the first of these comes.
    Result<UnitResult> verify(const Unit& unit) {
        if (!output_) {
            if (!state_.job.reopen)
                return makeError(ErrorCode::internal, "nobody says how to reopen the output");
            SHARDSCOPE_ASSIGN(output_, StagedOutput::open(state_.job, staging_->dataPath()));
            outputContext_ = std::make_unique<SourceContext>(output_->reader(), resources_, FillGaps::refuse,
                                                             state_.job.fileSystem);
        }
        const StagedOutput::Take take = [&](JournalTile tile) {
            return digests_.finished(std::move(tile), 0);
        };
        Status status = runSpans(resources_, unit.spans, [&](const TileSpan& span, WorkerMemory& kept) {
            return output_->tilesOf(span.tensor, state_.tiles.preferred, *outputContext_, kept, take);
        });
        const std::vector<JournalTile> tiles = digests_.take();
        if (!status.ok()) return std::move(status).error();
        return UnitResult{encodeTiles(tiles)};
    }

    Resources resources_;
    TileSource source_;
    DigestsOnly digests_;
    ConvertState state_;
    std::unique_ptr<Staging> staging_;
    std::optional<StagingSink> sink_;  // of converted tiles; others complete their chunks
    std::optional<PassingSink> passing_;
    std::unique_ptr<SourceContext> context_;
    std::unique_ptr<StagedOutput> output_;  // once it is verified
    std::unique_ptr<SourceContext> outputContext_;
};

}  // namespace

std::string newToken() {
    std::random_device random;
    return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

constexpr std::string_view kWorkNames[] = {"convert", "verify", "reread"};

std::string_view unitWorkName(UnitWork work) {
    return kWorkNames[static_cast<size_t>(work)];
}

std::optional<UnitWork> unitWorkFrom(std::string_view name) {
    const auto at = std::ranges::find(kWorkNames, name) - std::begin(kWorkNames);
    if (at == std::ssize(kWorkNames)) return std::nullopt;
    return static_cast<UnitWork>(at);
}

Result<std::unique_ptr<UnitWorker>> UnitWorker::join(const ConvertJob& job, const JobIdentity& identity,
                                                     const Resources& resources, UnitOptions options) {
    SHARDSCOPE_TRY(checkJob(job));
    if (!resources.memory) return makeError(ErrorCode::internal, "a worker without a memory limit");
    if (identity.tileBytes < kDigestCellBytes || identity.tileBytes % kDigestCellBytes != 0 ||
        identity.largestTileBytes < identity.tileBytes || identity.largestTileBytes > (uint64_t{64} << 20))
        return makeError(ErrorCode::usage, fmt::format("tiles of {} bytes", identity.tileBytes));
    if (!(planFingerprint(job) == identity.plan)) {
        return makeError(ErrorCode::changed, "the same words give another plan here than at the coordinator")
            .withHint("the same version of shardscope must run on both sides, and see the same source");
    }
    SHARDSCOPE_ASSIGN(const std::vector<SourceFile> files, sourceFiles(job));
    if (!(sharedFingerprint(files) == identity.source)) {
        return makeError(ErrorCode::changed,
                         "the files of the source are not those that the coordinator sees")
            .inFile(job.plan ? job.plan->sourcePath : std::string())
            .withHint("their names, sizes and times of change must be the same on both sides");
    }
    auto worker = std::make_unique<Joined>(job, resources, identity, std::move(options));
    SHARDSCOPE_TRY(worker->open(identity));
    return std::unique_ptr<UnitWorker>(std::move(worker));
}

}  // namespace shardscope
