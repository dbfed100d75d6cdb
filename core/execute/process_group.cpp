#include "execute/process_group.h"

#include <algorithm>
#include <numeric>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/mutex.h"
#include "execute/binary_json.h"
#include "execute/destination.h"
#include "execute/group_disks.h"
#include "execute/group_files.h"
#include "execute/group_talk.h"
#include "execute/identity.h"
#include "execute/staging.h"
#include "execute/verify.h"

namespace shardscope {
namespace {

using Json = nlohmann::json;

// Finished units wait for each other to be brought to disk together.
constexpr double kSyncSeconds = 2;
constexpr uint64_t kSyncBytes = uint64_t{1} << 30;
constexpr uint64_t kSentAtOnce = uint64_t{8} << 20;

}  // namespace

std::string_view groupModeName(GroupMode mode) {
    switch (mode) {
        case GroupMode::automatic:
            return "auto";
        case GroupMode::direct:
            return "direct";
        case GroupMode::broadcast:
            return "broadcast";
        case GroupMode::exchange:
            return "exchange";
    }
    return "";
}

Result<GroupForecast> forecast(ProcessGroup& group, GroupMode mode, const Plan& plan) {
    constexpr uint64_t kTried = uint64_t{2} << 20;  // from each rank to each other
    GroupForecast found;
    const auto ranks = static_cast<uint64_t>(group.size());
    found.seconds = plan.estimateSeconds;
    if (ranks == 1) return found;
    std::vector<std::byte> send(kTried * ranks), receive(kTried * ranks);
    const std::vector<uint64_t> sizes(ranks, kTried);
    double took = 0;
    for (int i = 0; i < 2; ++i) {  // the first opens connections
        SHARDSCOPE_TRY(agree(group, 0, {}));
        const double begin = steadySeconds();
        SHARDSCOPE_TRY(group.allToAll(0, send, sizes, receive, sizes));
        took = steadySeconds() - begin;
    }
    found.linkRate = static_cast<double>(kTried * ranks * (ranks - 1)) / std::max(took, 1e-6);
    if (mode != GroupMode::direct) found.bytesMoved = plan.bytesRead / ranks * (ranks - 1);
    found.seconds = std::max(found.seconds, static_cast<double>(found.bytesMoved) / found.linkRate);
    return found;
}

// ------------------------------------------------------------------ the work of one rank on one lane

namespace {

// A tile, and the rank that reads, casts and scans it.
struct GroupTile {
    TensorId tensor = kNone;
    int64_t tile = 0;
    int home = 0;
};

class GroupLane final : public TileSource, public TileSink {
  public:
    // `writers` is the rank that writes each file; empty where each rank writes what it makes. With an
    // `output`, which `files` reads, tiles of that are verified.
    GroupLane(const GroupConversion& conversion, Staging& staging, const JobIdentity& identity, size_t lane,
              const std::vector<int>& writers, UnitWork work, GroupFiles& files, const StagedOutput* output)
        : group_(*conversion.ranks),
          kind_(work),
          files_(files),
          staging_(staging),
          output_(output),
          lane_(lane),
          writers_(writers),
          resources_(conversion.resources),
          state_{.job = *conversion.job,
                 .resources = resources_,
                 .tiles = {identity.tileBytes, identity.largestTileBytes},
                 .source = this,
                 .sink = this},
          context_(output ? output->reader() : *conversion.job->source, resources_,
                   output ? FillGaps::refuse : conversion.job->options.fillGaps, conversion.job->fileSystem),
          memory_(*resources_.memory) {
        resources_.progress = &own_;
        if (group_.compute()) state_.compute = group_.compute();
    }

    // Does this rank's part of the tiles; called by all ranks in step. What it returns counts on rank 0.
    Result<UnitResult> run(const std::vector<GroupTile>& tiles) {
        std::vector<std::vector<const GroupTile*>> queues(static_cast<size_t>(group_.size()));
        size_t rounds = 0;
        for (const GroupTile& tile : tiles) {
            auto& queue = queues[static_cast<size_t>(tile.home)];
            queue.push_back(&tile);
            rounds = std::max(rounds, queue.size());
        }
        const auto& mine = queues[static_cast<size_t>(group_.rank())];
        Status status;
        uint64_t waiting = 0;  // bytes of all tiles that may have pieces for others
        for (size_t round = 0; round < rounds; ++round) {
            Status step = doTile(status.ok() && round < mine.size() ? mine[round] : nullptr);
            for (const auto& queue : queues)
                waiting += round < queue.size() ? bytesOf(*queue[round]) : 0;
            // Pieces of small tiles leave together.
            if (!writers_.empty() && (waiting >= kSentAtOnce || round + 1 == rounds)) {
                waiting = 0;
                SHARDSCOPE_ASSIGN(Status delivered, deliver());
                if (step.ok()) step = std::move(delivered);
            }
            files_.forget(lane_);
            if (status.ok()) status = std::move(step);
        }
        work_.reset();
        tensor_ = kNone;
        return conclude(std::move(status));
    }

    // What all ranks spent on the last unit, on rank 0.
    const Progress::Busy& busy() const { return busy_; }
    uint64_t sent() const { return sent_; }  // by all ranks up to the last unit, on rank 0

    Status read(const std::function<Status()>& read) override {
        hasRead_ = true;
        Status status = files_.read(lane_, GroupFiles::Way::survey, [&] {
            context_.survey = files_.surveys(lane_);
            return read();
        });
        context_.survey = false;
        return status;
    }

    bool writes() const override { return kind_ != UnitWork::reread; }

    Status write(FileId file, uint64_t offset, std::span<const std::byte> bytes) override {
        const int rank = writers_.empty() ? group_.rank() : writers_[file];
        if (rank == group_.rank()) return staging_.write(file, offset, bytes, true);
        std::vector<std::byte>& to = outgoing_[static_cast<size_t>(rank)];
        const Piece head{file, offset, bytes.size()};
        const auto headBytes = std::as_bytes(std::span(&head, 1));
        to.insert(to.end(), headBytes.begin(), headBytes.end());
        to.insert(to.end(), bytes.begin(), bytes.end());
        return {};
    }

    Status finished(JournalTile tile, uint64_t) override {
        done_.push_back(std::move(tile));
        return {};
    }

  private:
    // Before the bytes of each piece that another rank is to write.
    struct Piece {
        uint64_t file, offset, length;
    };

    uint64_t bytesOf(const GroupTile& tile) const {
        const TileGrid grid = sharedGrid(state_.job, tile.tensor, state_.tiles.preferred);
        return bytesOfElements(state_.target().dtype(tile.tensor),
                               std::max<int64_t>(0, grid.end(tile.tile) - grid.begin(tile.tile)));
    }

    Result<std::unique_ptr<TensorTask>> workOn(TensorId tensor) {
        if (!output_) return DestinationWork::prepare(state_, context_, tensor, memory_);
        return output_->tilesOf(
            tensor, state_.tiles.preferred, context_, memory_,
            [this](JournalTile tile) { return finished(std::move(tile), 0); }, this);
    }

    // The steps of a round up to where bytes leave for others; a rank without a tile takes part in them.
    Status doTile(const GroupTile* tile) {
        Status status = resources_.stop.poll();
        std::function<Status()> prepare;
        if (tile && status.ok() && tile->tensor != tensor_) {
            work_.reset();
            prepare = [&]() -> Status {
                work_.reset();
                SHARDSCOPE_ASSIGN(work_, workOn(tile->tensor));
                return {};
            };
        }
        Status prepared = files_.read(lane_, GroupFiles::Way::retry, prepare);
        if (status.ok()) status = std::move(prepared);
        if (tile) tensor_ = status.ok() ? tile->tensor : kNone;
        if (tile && status.ok() && tile->tile >= work_->tileCount())
            status = makeError(ErrorCode::usage, "the unit names tiles that do not exist");
        hasRead_ = false;
        if (tile && status.ok()) status = work_->runTile(tile->tile, memory_);
        if (!hasRead_) {
            Status others = files_.read(lane_, GroupFiles::Way::survey, {});
            if (status.ok()) status = std::move(others);
        }
        return status;
    }

    // Sends pieces to the ranks that write them. The inner status is this rank's own; the outer the group's.
    Result<Status> deliver() {
        std::vector<uint64_t> sizes;
        send_.clear();
        for (std::vector<std::byte>& each : outgoing_) {
            sizes.push_back(each.size());
            send_.insert(send_.end(), each.begin(), each.end());
            each.clear();
        }
        SHARDSCOPE_ASSIGN(const std::vector<uint64_t> coming,
                          swapSizes(group_, lane_, sizes, kMostGroupText));
        const uint64_t total = std::reduce(coming.begin(), coming.end());
        if (total > receive_.size()) receive_.resize(total);
        const std::span<std::byte> received(receive_.data(), total);
        SHARDSCOPE_TRY(group_.allToAll(lane_, send_, sizes, received, coming));
        return writeReceived(received);
    }

    Status writeReceived(std::span<const std::byte> bytes) {
        while (!bytes.empty()) {
            Piece piece{};
            if (bytes.size() < sizeof piece) return makeError(ErrorCode::remote, "truncated piece header");
            std::memcpy(&piece, bytes.data(), sizeof piece);
            bytes = bytes.subspan(sizeof piece);
            if (piece.length > bytes.size() || piece.file >= writers_.size())
                return makeError(ErrorCode::remote, "truncated piece header");
            const BusyTime busy(&own_, Progress::Work::write);
            SHARDSCOPE_TRY(staging_.write(static_cast<FileId>(piece.file), piece.offset,
                                          bytes.first(piece.length), true));
            bytes = bytes.subspan(piece.length);
        }
        return {};
    }

    // All ranks' tiles come to rank 0, with the first error.
    Result<UnitResult> conclude(Status status) {
        const std::string tiles = encodeTiles(std::exchange(done_, {}));
        SHARDSCOPE_ASSIGN(const std::vector<Json> said,
                          gatherSaid(group_, lane_,
                                     {{"tiles", toBinaryJson(tiles)},
                                      {"read", files_.takeServed(lane_)},
                                      {"busy", takeOwnBusy()},
                                      {"sent", group_.bytesSent() - sentBefore_}},
                                     status));
        if (group_.rank() != 0) return UnitResult{};
        std::vector<JournalTile> all;
        UnitResult result;
        uint64_t sent = 0;
        busy_ = {};
        for (const Json& each : said) {
            if (!each.contains("tiles") || !each["tiles"].is_binary() || !each["read"].is_number_unsigned() ||
                !each.contains("busy") || each["busy"].size() != busy_.size())
                return malformedMessage();
            const auto& bytes = each["tiles"].get_binary();
            SHARDSCOPE_ASSIGN(
                std::vector<JournalTile> theirs,
                decodeTiles(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size())));
            std::ranges::move(theirs, std::back_inserter(all));
            result.bytesRead += each["read"].get<uint64_t>();
            sent += each.value("sent", uint64_t{0});
            const Json& busy = each["busy"];
            for (size_t i = 0; i < busy_.size(); ++i)
                busy_[i] += busy.at(i).get<uint64_t>();
        }
        sent_ = sent;
        result.tiles = encodeTiles(all);
        return result;
    }

    // Of this rank, since the last unit.
    Progress::Busy takeOwnBusy() {
        const Progress::Busy now = own_.busy();
        Progress::Busy fresh = now;
        for (size_t i = 0; i < fresh.size(); ++i)
            fresh[i] -= told_[i];
        told_ = now;
        return fresh;
    }

    ProcessGroup& group_;
    const UnitWork kind_;
    GroupFiles& files_;
    Staging& staging_;
    const StagedOutput* const output_;
    const size_t lane_;
    const std::vector<int>& writers_;
    Progress own_;  // of this rank and lane; only what it says of time is looked at
    Progress::Busy told_{}, busy_{};
    Resources resources_;
    ConvertState state_;
    SourceContext context_;
    WorkerMemory memory_;
    std::unique_ptr<TensorTask> work_;
    TensorId tensor_ = kNone;  // of work_
    bool hasRead_ = false;
    const uint64_t sentBefore_ = group_.bytesSent();
    uint64_t sent_ = 0;
    std::vector<std::vector<std::byte>> outgoing_{static_cast<size_t>(group_.size())};
    std::vector<std::byte> send_, receive_;
    std::vector<JournalTile> done_;
};

// ------------------------------------------------------------------ what all ranks share

Json identityJson(const JobIdentity& identity) {
    return {{"plan", {identity.plan.low, identity.plan.high}},
            {"tile", identity.tileBytes},
            {"largest", identity.largestTileBytes},
            {"token", identity.token}};
}

Json tilesJson(const std::vector<GroupTile>& tiles) {
    Json json = Json::array();
    for (const GroupTile& tile : tiles)
        json.push_back({tile.tensor, tile.tile, tile.home});
    return json;
}

Result<std::vector<GroupTile>> tilesFrom(const Json& json, const Catalog& target, int ranks) {
    std::vector<GroupTile> tiles;
    for (const Json& each : json) {
        GroupTile tile{each.at(0).get<TensorId>(), each.at(1).get<int64_t>(), each.at(2).get<int>()};
        if (tile.tensor >= target.tensorCount() || tile.tile < 0 || tile.home < 0 || tile.home >= ranks)
            return makeError(ErrorCode::remote, "rank 0 names tiles that do not exist");
        tiles.push_back(tile);
    }
    return tiles;
}

}  // namespace

// As evenly as the order of files allows, neighbours together: as ranks lie on nodes.
std::vector<int> fileRanks(const GroupConversion& conversion) {
    const TargetLayout& layout = *conversion.job->layout;
    std::vector<bool> used(layout.files.size(), false);
    for (const FileId file : layout.chunkFile)
        used[file] = true;
    const auto count = static_cast<size_t>(std::count(used.begin(), used.end(), true));
    std::vector<int> ranks(layout.files.size(), 0);
    if (conversion.job->singleFile) return ranks;
    size_t index = 0;
    for (size_t f = 0; f < used.size(); ++f) {
        if (used[f])
            ranks[f] = static_cast<int>(index++ * static_cast<size_t>(conversion.ranks->size()) / count);
    }
    return ranks;
}

namespace {

// A conversion that this rank has joined.
class Joined {
  public:
    // For units of that kind. Called by all ranks.
    static Result<std::unique_ptr<Joined>> join(const GroupConversion& conversion,
                                                const JobIdentity& identity, const std::vector<int>& places,
                                                UnitWork work) {
        auto joined = std::make_unique<Joined>();
        SHARDSCOPE_TRY(agree(*conversion.ranks, 0, joined->open(conversion, identity, places)));
        if (work != UnitWork::convert) joined->writers_.clear();
        if (work == UnitWork::verify) SHARDSCOPE_TRY(joined->openOutput(conversion));
        for (size_t i = 0; i < conversion.tileLanes(); ++i)
            joined->lanes_.push_back(std::make_unique<GroupLane>(
                conversion, *joined->staging_, identity, i, joined->writers_, work,
                joined->outputFiles_ ? *joined->outputFiles_ : *conversion.files, joined->output_.get()));
        return joined;
    }

    Staging& staging() { return *staging_; }
    GroupLane& lane(size_t lane) { return *lanes_[lane]; }
    // Where tiles are verified; null where they are converted.
    const StagedOutput* output() const { return output_.get(); }
    const GroupFiles* outputFiles() const { return outputFiles_.get(); }

  private:
    Status open(const GroupConversion& conversion, const JobIdentity& identity,
                const std::vector<int>& places) {
        const ConvertJob& job = *conversion.job;
        SHARDSCOPE_TRY(checkJob(job));
        if (!(planFingerprint(job) == identity.plan))
            return makeError(ErrorCode::changed, "the same words give another plan here than at rank 0")
                .withHint("all ranks must run the same version of shardscope with the same words");
        if (conversion.ownDisks || conversion.files->mode() == GroupMode::broadcast)
            writers_ = fileRanks(conversion);
        std::function<bool(FileId)> here;
        if (conversion.ownDisks) {
            const auto place = [&](int rank) { return places[static_cast<size_t>(rank)]; };
            const int mine = place(conversion.ranks->rank());
            for (int& writer : writers_) {
                // What is on this rank's disk it writes itself.
                if (place(writer) == mine) writer = conversion.ranks->rank();
            }
            here = [&](FileId file) { return writers_[file] == conversion.ranks->rank(); };
        }
        SHARDSCOPE_ASSIGN(staging_, Staging::join(job, identity.token, here));
        return {};
    }

    // As it is stored: on one file system, where each rank reads its tiles, or each part where it was
    // written.
    Status openOutput(const GroupConversion& conversion) {
        const std::string path = staging_->dataPath();
        SHARDSCOPE_ASSIGN(outputFiles_,
                          GroupFiles::make(*conversion.ranks, conversion.job->fileSystem, path,
                                           conversion.ownDisks ? GroupMode::exchange : GroupMode::direct));
        return outputFiles_->openTogether([&]() -> Status {
            SHARDSCOPE_ASSIGN(output_, StagedOutput::open(*conversion.job, path, outputFiles_));
            return {};
        });
    }

    std::unique_ptr<Staging> staging_;
    std::shared_ptr<GroupFiles> outputFiles_;
    std::unique_ptr<StagedOutput> output_;
    std::vector<int> writers_;
    std::vector<std::unique_ptr<GroupLane>> lanes_;
};

// Whether what this rank has of the source is as it was; what else is there is nobody's business.
Status checkSource(const GroupConversion& conversion) {
    std::set<std::string> names;
    for (const FileId file : usedFiles(*conversion.job))
        names.insert(conversion.job->source->catalog().files()[file].path);
    return conversion.files->checkUnchanged(names);
}

// The rank that holds most of the tile of a tensor in that catalog; one after the other where several hold as
// much, as they do of no tensor (kNone).
int nearestRank(int ranks, const Catalog& have, const GroupFiles& files, TensorId source,
                const TileGrid& grid, int64_t tile, uint64_t turns) {
    std::vector<int64_t> elements(static_cast<size_t>(ranks), 0);
    if (source < have.tensorCount()) {
        const DimSpan shape = have.shape(source);
        for (ChunkId c = have.firstChunk(source); c < have.endChunk(source); ++c) {
            const ChunkInfo info = have.chunk(source, c);
            const ChunkShape chunk = ChunkShape::of(info);
            if (chunk.elements() <= 0 || !boxInside(chunk.offsets, chunk.lengths, shape)) continue;
            const ChunkShape::Piece piece = chunk.pieceIn(grid.begin(tile), grid.end(tile), shape);
            const int owner = info.file == kNone ? 0 : files.ownerOf(have.files()[info.file].path);
            if (!piece.empty()) elements[static_cast<size_t>(owner)] += piece.hi - piece.lo;
        }
    }
    const int64_t most = *std::max_element(elements.begin(), elements.end());
    auto turn =
        static_cast<int64_t>((turns + static_cast<uint64_t>(tile)) %
                             static_cast<uint64_t>(std::count(elements.begin(), elements.end(), most)));
    for (int r = 0; r < ranks; ++r) {
        if (elements[static_cast<size_t>(r)] == most && turn-- == 0) return r;
    }
    return 0;
}

// ------------------------------------------------------------------ rank 0

class CoordinatorRun {
  public:
    CoordinatorRun(const GroupConversion& conversion, Joined& joined, const JobIdentity& identity,
                   const std::vector<Unit>& units, const std::function<Status(size_t, UnitResult)>& done,
                   Progress* progress, const StopToken& stop)
        : conversion_(conversion),
          joined_(joined),
          identity_(identity),
          units_(units),
          done_(done),
          progress_(progress),
          stop_(stop) {}

    Status go() {
        std::vector<std::thread> threads;
        for (size_t i = 1; i < conversion_.tileLanes(); ++i)
            threads.emplace_back([this, i] { work(i); });
        work(0);
        for (std::thread& thread : threads)
            thread.join();
        MutexLock lock(mutex_);
        if (error_) return std::move(*error_);
        return {};
    }

  private:
    struct PendingTile {
        size_t unit;
        UnitResult result;
    };

    void work(size_t lane) {
        Status status;
        for (;;) {
            size_t unit;
            {
                MutexLock lock(mutex_);
                if (!error_ && stop_.stopRequested()) error_ = makeError(ErrorCode::cancelled, "cancelled");
                if (error_ || next_ == units_.size()) break;
                unit = next_++;
            }
            status = taken([&] { return doUnit(lane, unit); });
            if (status.ok()) status = bringToDisk(lane, false);
            if (!status.ok()) break;
        }
        // What was done is kept, also when another unit failed.
        if (status.ok()) status = bringToDisk(lane, true);
        if (!conversion_.ranks->broken()) {
            std::string end = packed({{"say", "end"}});
            Status told = broadcastText(*conversion_.ranks, lane, end, 0);
            if (status.ok()) status = std::move(told);
        }
        MutexLock lock(mutex_);
        if (!status.ok() && !error_) error_ = std::move(status).error();
    }

    TileGrid gridOf(TensorId t) const {
        return joined_.output() ? joined_.output()->grid(t, identity_.tileBytes)
                                : sharedGrid(*conversion_.job, t, identity_.tileBytes);
    }

    // The rank that reads a tile, the `index`th of its unit.
    int homeOf(TensorId t, const TileGrid& grid, int64_t tile, size_t index) const {
        const int ranks = conversion_.ranks->size();
        const GroupFiles& files = joined_.output() ? *joined_.outputFiles() : *conversion_.files;
        switch (files.mode()) {
            case GroupMode::broadcast:
                return 0;
            case GroupMode::exchange: {
                if (const StagedOutput* const output = joined_.output())
                    return nearestRank(ranks, output->reader().catalog(), files, output->idOf(t), grid, tile,
                                       t);
                const TensorSource& from = conversion_.job->spec->sources[t];
                return nearestRank(ranks, conversion_.job->source->catalog(), files,
                                   from.view ? kNone : from.source, grid, tile, t);
            }
            default:
                return static_cast<int>(index % static_cast<size_t>(ranks));
        }
    }

    Status doUnit(size_t lane, size_t u) {
        std::vector<GroupTile> tiles;
        for (const TileSpan& span : units_[u].spans) {
            const TileGrid grid = gridOf(span.tensor);
            for (int64_t i = span.first; i < span.first + span.count; ++i)
                tiles.push_back({span.tensor, i, homeOf(span.tensor, grid, i, tiles.size())});
        }
        std::string order = packed({{"say", "unit"}, {"tiles", tilesJson(tiles)}});
        SHARDSCOPE_TRY(broadcastText(*conversion_.ranks, lane, order, 0));
        SHARDSCOPE_ASSIGN(UnitResult result, joined_.lane(lane).run(tiles));
        if (progress_) {
            progress_->add(units_[u].bytes);
            progress_->addBusy(joined_.lane(lane).busy());
        }
        MutexLock lock(mutex_);
        heldBytes_ += units_[u].bytes;
        held_.push_back({u, std::move(result)});
        return {};
    }

    // Books finished units once every rank has what it wrote for them on disk.
    Status bringToDisk(size_t lane, bool always) {
        std::vector<PendingTile> held;
        {
            MutexLock lock(mutex_);
            if (held_.empty() ||
                (!always && heldBytes_ < kSyncBytes && steadySeconds() - lastSync_ < kSyncSeconds))
                return {};
            held = std::exchange(held_, {});
            heldBytes_ = 0;
            lastSync_ = steadySeconds();
        }
        std::string order = packed({{"say", "sync"}});
        SHARDSCOPE_TRY(broadcastText(*conversion_.ranks, lane, order, 0));
        SHARDSCOPE_TRY(agree(*conversion_.ranks, lane, joined_.staging().syncData()));
        MutexLock lock(booking_);
        for (PendingTile& each : held)
            SHARDSCOPE_TRY(done_(each.unit, std::move(each.result)));
        return {};
    }

    const GroupConversion& conversion_;
    Joined& joined_;
    const JobIdentity& identity_;
    const std::vector<Unit>& units_;
    const std::function<Status(size_t, UnitResult)>& done_;
    Progress* const progress_;
    const StopToken stop_;
    Mutex booking_;  // calls of done_
    Mutex mutex_;
    size_t next_ SHARDSCOPE_GUARDED_BY(mutex_) = 0;
    std::vector<PendingTile> held_ SHARDSCOPE_GUARDED_BY(mutex_);
    uint64_t heldBytes_ SHARDSCOPE_GUARDED_BY(mutex_) = 0;
    double lastSync_ SHARDSCOPE_GUARDED_BY(mutex_) = steadySeconds();
    std::optional<Error> error_ SHARDSCOPE_GUARDED_BY(mutex_);
};

}  // namespace

GroupScheduler::GroupScheduler(GroupConversion conversion) : conversion_(std::move(conversion)) {
    if (!conversion_.ownDisks) return;
    const ConvertJob& job = *conversion_.job;
    std::map<std::string, int> ranks;
    const std::vector<int> all = fileRanks(conversion_);
    for (size_t f = 0; f < all.size(); ++f)
        ranks[job.singleFile ? splitPath(job.destination).second : job.layout->files[f].path] = all[f];
    disks_ = std::make_shared<GroupDisks>(*conversion_.ranks, conversion_.tileLanes(), job.fileSystem,
                                          job.destination, std::move(ranks));
}

GroupScheduler::~GroupScheduler() {
    if (disks_) disks_->end();
    end();
}

void GroupScheduler::end() {
    if (std::exchange(ended_, true) || conversion_.ranks->broken()) return;
    std::string order = packed({{"say", "end"}});
    (void)broadcastText(*conversion_.ranks, 0, order, 0);
}

std::shared_ptr<FileSystem> GroupScheduler::fileSystem() {
    return disks_;
}

std::vector<int> GroupScheduler::places() const {
    return disks_ ? disks_->places() : std::vector<int>();
}

Status GroupScheduler::run(const JobIdentity& identity, const std::vector<Unit>& units,
                           const std::function<Status(size_t unit, UnitResult result)>& done,
                           Progress* progress, const StopToken& stop) {
    if (units.empty()) return {};
    const UnitWork work = units.front().work;
    ended_ = true;  // unless all goes well
    std::string order = packed({{"say", "begin"},
                                {"work", unitWorkName(work)},
                                {"identity", identityJson(identity)},
                                {"places", places()}});
    SHARDSCOPE_TRY(broadcastText(*conversion_.ranks, 0, order, 0));
    SHARDSCOPE_ASSIGN(const auto joined, Joined::join(conversion_, identity, places(), work));
    Status status = CoordinatorRun(conversion_, *joined, identity, units, done, progress, stop).go();
    for (size_t lane = 0; lane < conversion_.tileLanes() && work == UnitWork::convert; ++lane)
        bytesMoved_ = std::max(bytesMoved_, joined->lane(lane).sent());
    if (conversion_.ranks->broken()) return status;
    if (status.ok()) status = checkSource(conversion_);
    status = agree(*conversion_.ranks, 0, status);
    ended_ = !status.ok();
    return status;
}

// ------------------------------------------------------------------ the other ranks

namespace {

Status serveLane(const GroupConversion& conversion, Joined& joined, size_t lane) {
    for (;;) {
        std::string text;
        SHARDSCOPE_TRY(broadcastText(*conversion.ranks, lane, text, 0));
        SHARDSCOPE_ASSIGN(const Json order, unpacked(text));
        const std::string say = order.value("say", "");
        Status status;
        if (say == "end") return {};
        if (say == "sync") {
            status = agree(*conversion.ranks, lane, joined.staging().syncData());
        } else if (say == "unit") {
            SHARDSCOPE_ASSIGN(
                const std::vector<GroupTile> tiles,
                tilesFrom(order.at("tiles"), conversion.job->spec->target, conversion.ranks->size()));
            auto result = joined.lane(lane).run(tiles);
            if (!result.ok()) status = std::move(result).error();
        } else {
            return makeError(ErrorCode::remote, "unknown command from rank 0");
        }
        // Rank 0 has heard of any error, and ends the lane; unless nobody hears anybody any more.
        if (conversion.ranks->broken()) return status;
    }
}

// What rank 0 begins, until all of it is done.
Status serveRun(const GroupConversion& conversion, const Json& order) {
    UnitWork work = UnitWork::convert;
    JobIdentity identity;
    std::vector<int> places;
    SHARDSCOPE_TRY(taken([&]() -> Status {
        const Json& from = order.at("identity");
        identity.plan = {from.at("plan").at(0).get<uint64_t>(), from.at("plan").at(1).get<uint64_t>()};
        identity.tileBytes = from.at("tile").get<uint64_t>();
        identity.largestTileBytes = from.at("largest").get<uint64_t>();
        identity.token = from.at("token").get<std::string>();
        places = order.at("places").get<std::vector<int>>();
        const auto kind = unitWorkFrom(order.at("work").get<std::string>());
        if (!kind) return malformedMessage();
        work = *kind;
        if (conversion.ownDisks && places.size() != static_cast<size_t>(conversion.ranks->size()))
            return malformedMessage();
        return {};
    }));
    SHARDSCOPE_ASSIGN(const auto joined, Joined::join(conversion, identity, places, work));
    std::vector<Status> ends(conversion.tileLanes());
    std::vector<std::thread> threads;
    for (size_t i = 1; i < ends.size(); ++i)
        threads.emplace_back([&, i] { ends[i] = taken([&] { return serveLane(conversion, *joined, i); }); });
    ends[0] = taken([&] { return serveLane(conversion, *joined, 0); });
    for (std::thread& thread : threads)
        thread.join();
    for (Status& end : ends)
        SHARDSCOPE_TRY(std::move(end));
    return agree(*conversion.ranks, 0, checkSource(conversion));
}

Status serveRuns(const GroupConversion& conversion) {
    for (;;) {
        std::string text;
        SHARDSCOPE_TRY(broadcastText(*conversion.ranks, 0, text, 0));
        SHARDSCOPE_ASSIGN(const Json order, unpacked(text));
        if (!order.is_object()) return malformedMessage();
        const auto say = order.find("say");
        if (say == order.end() || *say != "begin") return {};
        SHARDSCOPE_TRY(taken([&] { return serveRun(conversion, order); }));
    }
}

}  // namespace

Status serveGroup(const GroupConversion& conversion) {
    Status disks;
    std::thread serving;
    if (conversion.ownDisks) {
        serving = std::thread([&] {
            disks = serveDisks(*conversion.ranks, conversion.tileLanes(), conversion.job->fileSystem,
                               conversion.job->destination);
        });
    }
    Status units = serveRuns(conversion);
    if (serving.joinable()) serving.join();
    SHARDSCOPE_TRY(std::move(units));
    return disks;
}

}  // namespace shardscope
