#include "cluster/worker.h"

#include <algorithm>
#include <tuple>

#include "cluster/messages.h"

namespace shardscope {
namespace {

using Json = nlohmann::json;
using Clock = Channel::Clock;

// Finished units wait for each other to be brought to disk together, as long as there is work.
constexpr std::chrono::seconds kSyncAfter{2};
constexpr uint64_t kSyncBytes = uint64_t{1} << 30;

}  // namespace

WorkerSession::WorkerSession(std::unique_ptr<Channel> channel) : channel_(std::move(channel)) {}

WorkerSession::~WorkerSession() {
    ending_ = true;
    channel_->close();
    if (beats_.joinable()) beats_.join();
    if (listener_.joinable()) listener_.join();
}

Status WorkerSession::begin(const Frame& first) {
    SHARDSCOPE_ASSIGN(const Json start, parseMessage(first));
    if (start["say"] != "start") return damaged("the coordinator gives no job");
    SHARDSCOPE_ASSIGN(std::tie(directory_, request_), startFrom(first.body));
    silence_ = std::chrono::seconds(std::min<uint64_t>(numberOf(start, "silence").value_or(0), 3600));
    neighbours_ =
        static_cast<unsigned>(std::clamp<uint64_t>(numberOf(start, "neighbours").value_or(1), 1, 1024));
    SHARDSCOPE_ASSIGN(identity_, identityFrom(start.value("identity", Json())));
    beats_ = std::thread([this] { beats(); });
    listener_ = std::thread([this] { listen(); });
    return {};
}

void WorkerSession::beats() {
    auto next = Clock::now();
    while (!ending_) {
        if (Clock::now() >= next) {
            next += kBeat;
            if (!channel_
                     ->send(message(
                         {{"say", "beat"}, {"bytes", progress_.bytesDone()}, {"busy", progress_.busy()}}))
                     .ok()) {
                stop_.requestStop();
                return;
            }
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
}

void WorkerSession::listen() {
    const auto end = [&] {
        stop_.requestStop();
        MutexLock lock(mutex_);
        ended_ = true;
        changed_.notify_all();
    };
    UnitWork before = UnitWork::convert;
    for (;;) {
        auto frame = channel_->receive(Clock::now() + (silence_.count() ? silence_ : kOrphanTimeout));
        if (!frame.ok()) return end();
        if (!*frame && silence_.count()) return end();
        if (!*frame) continue;
        auto said = parseMessage(**frame);
        if (said.ok() && (*said)["say"] == "beat") continue;
        if (!said.ok() || (*said)["say"] != "unit") return end();
        auto unit = unitFrom(*said);
        if (!unit.ok()) return end();
        // Nothing is left of the other work by then.
        if (const UnitWork work = unit->second.work; work != std::exchange(before, work))
            progress_.begin(Progress::Phase::verify, 0);
        MutexLock lock(mutex_);
        units_.push_back(std::move(unit).value());
        changed_.notify_all();
    }
}

void WorkerSession::refuse(const Error& error) {
    (void)channel_->send(message({{"say", "failed"}, {"error", errorJson(error)}}));
}

Status WorkerSession::serve(const ConvertJob& job, Resources resources) {
    resources.progress = &progress_;
    resources.stop = stop_;
    auto worker = UnitWorker::join(job, identity_, resources);
    if (!worker.ok()) {
        refuse(worker.error());
        return std::move(worker).error();
    }
    SHARDSCOPE_TRY(channel_->send(message({{"say", "ready"}})));
    return runUnits(**worker);
}

Status WorkerSession::runUnits(UnitWorker& worker) {
    struct Done {
        uint64_t id;
        UnitResult result;
    };
    std::vector<Done> finished;  // not yet on disk
    uint64_t bytes = 0;
    auto synced = Clock::now();
    const auto report = [&]() -> Status {
        SHARDSCOPE_TRY(worker.sync());
        for (Done& done : finished)
            SHARDSCOPE_TRY(channel_->send(message({{"say", "done"},
                                                   {"id", done.id},
                                                   {"read", done.result.bytesRead},
                                                   {"busy", progress_.busy()}},
                                                  std::move(done.result.tiles))));
        finished.clear();
        bytes = 0;
        synced = Clock::now();
        return {};
    };
    for (;;) {
        std::optional<std::pair<uint64_t, Unit>> unit;
        {
            MutexLock lock(mutex_);
            if (units_.empty() && !ended_ && finished.empty())
                changed_.wait(lock, [&]() SHARDSCOPE_REQUIRES(mutex_) { return !units_.empty() || ended_; });
            if (ended_) return {};
            if (!units_.empty()) {
                unit = std::move(units_.front());
                units_.pop_front();
            }
        }
        if (!unit) {  // nothing more to do for now
            SHARDSCOPE_TRY(report());
            continue;
        }
        auto result = worker.run(unit->second);
        if (!result.ok()) {
            if (result.error().code == ErrorCode::cancelled) return {};
            SHARDSCOPE_TRY(channel_->send(
                message({{"say", "failed"}, {"id", unit->first}, {"error", errorJson(result.error())}})));
            continue;
        }
        bytes += unit->second.bytes;
        finished.push_back({unit->first, std::move(result).value()});
        if (bytes >= kSyncBytes || Clock::now() - synced >= kSyncAfter) SHARDSCOPE_TRY(report());
    }
}

}  // namespace shardscope
