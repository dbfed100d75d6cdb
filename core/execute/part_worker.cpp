#include "execute/part_worker.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include <fmt/format.h>

#include "execute/destination.h"
#include "execute/identity.h"
#include "execute/part_reading.h"
#include "execute/part_shares.h"
#include "execute/scan.h"
#include "execute/span_work.h"
#include "execute/staging.h"
#include "execute/verify.h"

namespace shardscope {
namespace {

constexpr uint64_t kLeastPartBytes = uint64_t{32} << 20;
constexpr uint64_t kPartsEach = 8;  // so that all workers end at about the same time

// Passes on what is to be written, and holds what was done until that is on disk.
class PassingSink final : public TileSink {
  public:
    using Write = decltype(PartWorkerOptions::write);
    explicit PassingSink(Write write) : write_(std::move(write)) {}
    bool writes() const override { return true; }
    Status write(FileId file, uint64_t offset, std::span<const std::byte> bytes) override {
        return write_(file, offset, bytes);
    }
    Status finished(JournalTile tile, uint64_t bytes) override {
        std::lock_guard lock(mutex_);
        held_.emplace_back(std::move(tile), bytes);
        return {};
    }
    std::vector<std::pair<JournalTile, uint64_t>> take() {
        std::lock_guard lock(mutex_);
        return std::exchange(held_, {});
    }

  private:
    const Write write_;
    std::mutex mutex_;
    std::vector<std::pair<JournalTile, uint64_t>> held_;
};

class Participant final : public PartWorker {
  public:
    Participant(const ConvertJob& job, const Resources& resources, const SharedJob& shared,
                PartWorkerOptions options, PartShares shares)
        : resources_(resources),
          shared_(shared),
          options_(std::move(options)),
          shares_(std::move(shares)),
          state_{.job = job,
                 .resources = resources_,
                 .tiles = {shares_.tileBytes(), shares_.tileBytes()},
                 .source = &source_,
                 .sink = nullptr} {
        if (options_.compute) state_.compute = options_.compute;
    }

    Status open(const JournalHeader& header) {
        SHARDSCOPE_ASSIGN(staging_, Staging::join(state_.job, header, spec(0), shared_.id));
        if (options_.write)
            passing_.emplace(options_.write);
        else
            writing_.emplace(*staging_, false);
        state_.sink = passing_ ? static_cast<TileSink*>(&*passing_) : &*writing_;
        context_ = sourceContext(state_.job, resources_);
        return {};
    }

    Result<PartDone> run(PartWork work, const PartOrder& order) override {
        SHARDSCOPE_TRY(checkPart(spec(order.part)));
        if (work != PartWork::convert) return read(work, order.part);
        if (order.retry) {
            SHARDSCOPE_ASSIGN(const std::vector<JournalTile> tiles, staging_->readParts());
            done_ = doneTiles(tiles, {});
        }
        const uint64_t before = context_->bytesRead;
        PartReport report;
        const std::vector<TileSpan> spans = shares_.openSpans(order.part, done_, report);
        SHARDSCOPE_TRY(runSpans(resources_, spans, [&](const TileSpan& span, WorkerMemory& kept) {
            return DestinationWork::prepare(state_, *context_, span.tensor, kept);
        }));
        return PartDone{context_->bytesRead - before};
    }

    Status write(FileId file, uint64_t offset, std::span<const std::byte> bytes) override {
        if (file >= state_.job.layout->files.size() || bytes.size() > state_.job.layout->files[file].size ||
            offset > state_.job.layout->files[file].size - bytes.size())
            return makeError(ErrorCode::usage, "the range is outside of its file");
        const BusyTime busy(resources_.progress, Progress::Work::write);
        return staging_->write(file, offset, bytes, true);
    }

    Status sync() override {
        const BusyTime busy(resources_.progress, Progress::Work::write);
        return staging_->syncData();
    }

    Status keep() override {
        const BusyTime busy(resources_.progress, Progress::Work::write);
        if (passing_) {
            for (auto& [tile, bytes] : passing_->take())
                SHARDSCOPE_TRY(staging_->finished(std::move(tile), bytes));
        }
        return staging_->syncAll();
    }

  private:
    PartSpec spec(uint32_t part) const {
        return {part, shared_.parts, shared_.version, shared_.run + options_.name};
    }

    Result<PartDone> read(PartWork work, uint32_t part) {
        PartReading reading;
        if (work == PartWork::verify) {
            if (!output_) {
                if (!state_.job.reopen)
                    return makeError(ErrorCode::internal, "nobody says how to reopen the output");
                SHARDSCOPE_ASSIGN(output_, StagedOutput::open(state_.job, staging_->dataPath()));
            }
            reading = verifyReading(*output_, *staging_);
        } else {
            reading = rereading(state_, *staging_);
        }
        reading.homes = homesFor(options_.homes, work);
        SHARDSCOPE_ASSIGN(const PartReport report, readPart(reading, spec(part), resources_));
        return PartDone{report.bytesRead};
    }

    const Resources resources_;
    const SharedJob shared_;
    const PartWorkerOptions options_;
    const PartShares shares_;
    TileSource source_;
    ConvertState state_;
    std::unique_ptr<Staging> staging_;
    std::optional<StagingSink> writing_;  // or
    std::optional<PassingSink> passing_;
    std::unique_ptr<SourceContext> context_;
    PartShares::Done done_;                 // by earlier attempts
    std::unique_ptr<StagedOutput> output_;  // once it is verified
};

// Parts of a job that only reads. Each is in the journal, on disk, when it ends.
class ReadingParticipant final : public PartWorker {
  public:
    ReadingParticipant(const PartReading& reading, const SharedJob& shared, const Resources& resources,
                       const std::string& name)
        : reading_(reading), shared_(shared), resources_(resources), journal_(shared.run + name) {}

    Result<PartDone> run(PartWork work, const PartOrder& order) override {
        if (work != PartWork::read) return makeError(ErrorCode::usage, "a reading has no such work");
        PartSpec part{order.part, shared_.parts, shared_.version, journal_};
        part.retry = order.retry;
        SHARDSCOPE_ASSIGN(const PartReport report, readPart(reading_, part, resources_));
        return PartDone{report.bytesRead};
    }
    Status write(FileId, uint64_t, std::span<const std::byte>) override {
        return makeError(ErrorCode::usage, "a reading writes nothing");
    }
    Status sync() override { return {}; }
    Status keep() override { return {}; }

  private:
    const PartReading& reading_;
    const SharedJob shared_;
    const Resources resources_;
    const std::string journal_;
};

// That this process would do the same as the coordinator.
Status checkSameJob(const SharedJob& shared, const Digest128& plan, const std::vector<SourceFile>& files,
                    const std::string& source) {
    SHARDSCOPE_TRY(checkPart({0, shared.parts, shared.version}));
    if (!(plan == shared.plan)) {
        return makeError(ErrorCode::changed, "the same words give another plan here than at the coordinator")
            .withHint("the same version of shardscope must run on both sides, and see the same source");
    }
    if (sharedFingerprint(files) == shared.source) return {};
    return makeError(ErrorCode::changed, "the files of the source are not those that the coordinator sees")
        .inFile(source)
        .withHint("their names, sizes and times of change must be the same on both sides");
}

constexpr std::string_view kWorkNames[] = {"convert", "verify", "reread", "read"};

}  // namespace

std::string_view partWorkName(PartWork work) {
    return kWorkNames[static_cast<size_t>(work)];
}

std::optional<PartWork> partWorkFrom(std::string_view name) {
    const auto at = std::ranges::find(kWorkNames, name) - std::begin(kWorkNames);
    if (at == std::ssize(kWorkNames)) return std::nullopt;
    return static_cast<PartWork>(at);
}

uint32_t partsFor(uint64_t bytes, size_t workers) {
    const uint64_t all = std::clamp<uint64_t>(workers, 1, kMostParts / kPartsEach);
    // As many for each; a worker has two at least, since what is nobody's wants one of its own, too.
    const uint64_t each = std::clamp<uint64_t>(bytes / kLeastPartBytes / all, 2, kPartsEach);
    return static_cast<uint32_t>(all * each);
}

Result<std::unique_ptr<PartWorker>> PartWorker::join(const ConvertJob& job, const SharedJob& shared,
                                                     const Resources& resources, PartWorkerOptions options) {
    SHARDSCOPE_TRY(checkJob(job));
    if (!resources.memory) return makeError(ErrorCode::internal, "a worker without a memory limit");
    SHARDSCOPE_ASSIGN(const std::vector<SourceFile> files, sourceFiles(job));
    SHARDSCOPE_TRY(
        checkSameJob(shared, planFingerprint(job), files, job.plan ? job.plan->sourcePath : std::string()));
    PartShares shares(conversionItems(job), shared.parts, homesFor(options.homes, PartWork::convert));
    const JournalHeader header = conversionHeader(job, files, shares.tileBytes());
    auto worker =
        std::make_unique<Participant>(job, resources, shared, std::move(options), std::move(shares));
    SHARDSCOPE_TRY(worker->open(header));
    return std::unique_ptr<PartWorker>(std::move(worker));
}

Result<std::unique_ptr<PartWorker>> PartWorker::join(const PartReading& reading, const SharedJob& shared,
                                                     const Resources& resources, const std::string& name) {
    SHARDSCOPE_ASSIGN(const std::vector<SourceFile> files, sourceFiles(*reading.reader, reading.files));
    const Catalog& catalog = reading.reader->catalog();
    SHARDSCOPE_TRY(checkSameJob(shared, readingFingerprint(catalog, reading.words), files, {}));
    SHARDSCOPE_TRY(checkRecords(reading, shared.id));
    return std::unique_ptr<PartWorker>(
        std::make_unique<ReadingParticipant>(reading, shared, resources, name));
}

Status OwnParts::run(const SharedJob& shared, PartWork work, const std::vector<PartOrder>& orders,
                     const std::function<Status(size_t order, const PartDone& result)>& done,
                     Progress* progress, const StopToken& stop) {
    Resources resources = resources_;
    resources.progress = progress;
    SHARDSCOPE_ASSIGN(const auto worker, PartWorker::join(job_, shared, resources, {.name = "alone"}));
    for (size_t i = 0; i < orders.size(); ++i) {
        SHARDSCOPE_TRY(stop.poll());
        SHARDSCOPE_ASSIGN(const PartDone result, worker->run(work, orders[i]));
        SHARDSCOPE_TRY(worker->keep());
        SHARDSCOPE_TRY(done(i, result));
    }
    return {};
}

}  // namespace shardscope
