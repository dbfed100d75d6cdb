#include "hosts/remote_run.h"

#include <deque>
#include <utility>

#include <fmt/format.h>

#include "base/mutex.h"
#include "hosts/agent_messages.h"

namespace shardscope {
namespace {

using Json = nlohmann::json;
using Clock = Channel::Clock;

constexpr std::chrono::seconds kStopping{5};  // that a cancelled verb may take
constexpr std::chrono::milliseconds kRemotePoll{100};

// What came and was not yet looked at. Read by a thread of its own, because the sinks may wait for people.
class Incoming {
  public:
    explicit Incoming(Channel& channel) : channel_(channel), thread_([this] { listen(); }) {}
    ~Incoming() {
        channel_.close();
        thread_.join();
    }

    // Nothing when nothing came for a while. Errors: why nothing will come any more.
    Result<std::optional<Frame>> next() {
        MutexLock lock(mutex_);
        changed_.wait_for(lock, kRemotePoll, [&]() SHARDSCOPE_REQUIRES(mutex_) {
            return !frames_.empty() || workers_ || ended_;
        });
        if (workers_) return std::optional(Frame{R"({"say":"workers"})", *std::exchange(workers_, {})});
        if (frames_.empty()) {
            if (ended_) return *ended_;
            return std::optional<Frame>();
        }
        std::optional<Frame> frame = std::move(frames_.front());
        frames_.pop_front();
        held_ -= frame->text.size() + frame->body.size();
        return frame;
    }

  private:
    void listen() {
        Silence silence;
        for (;;) {
            auto frame = channel_.receive(Clock::now() + kBeat / 2);
            Status status = !frame.ok() ? Status(frame.error())
                            : *frame    ? take(**frame)
                                        : silence.check(channel_.heard());
            if (status.ok()) continue;
            MutexLock lock(mutex_);
            // What came before the stream's end counts; what came before nonsense may be nonsense too.
            if (status.error().code == ErrorCode::damaged) frames_.clear();
            ended_ = std::move(status).error();
            changed_.notify_all();
            return;
        }
    }

    Status take(Frame& frame) {
        // Heartbeats and progress are small; the rest is within the window.
        if (frame.text.size() > kMostText || frame.body.size() > RunService::kBlock)
            return damaged("a message that is too long");
        // Also while nobody takes what the verb says.
        const auto json = parseMessage(frame);
        if (json.ok() && (*json)["say"] == "beat") {
            channel_.offer(message({{"say", "beat"}}));
            return {};
        }
        MutexLock lock(mutex_);
        if (json.ok() && (*json)["say"] == "workers") {
            workers_ = std::move(frame.body);  // only the latest counts
            changed_.notify_all();
            return {};
        }
        held_ += frame.text.size() + frame.body.size();
        if (held_ > 4 * RunService::kWindow) return damaged("more than was asked for");
        frames_.push_back(std::move(frame));
        changed_.notify_all();
        return {};
    }

    Channel& channel_;
    Mutex mutex_;
    Condition changed_;
    std::deque<Frame> frames_ SHARDSCOPE_GUARDED_BY(mutex_);
    uint64_t held_ SHARDSCOPE_GUARDED_BY(mutex_) = 0;
    std::optional<std::string> workers_ SHARDSCOPE_GUARDED_BY(mutex_);
    std::optional<Error> ended_ SHARDSCOPE_GUARDED_BY(mutex_);
    std::thread thread_;
};

void showIn(Progress& progress, const Json& json) {
    const auto phase = numberOf(json, "phase"), done = numberOf(json, "done"),
               total = numberOf(json, "total");
    if (!phase || *phase > static_cast<int>(Progress::Phase::commit) || !done || !total) return;
    const auto now = static_cast<Progress::Phase>(*phase);
    if (now != progress.phase() || *total != progress.bytesTotal() || *done < progress.bytesDone())
        progress.begin(now, *total);
    progress.add(*done - progress.bytesDone());
    progress.setTensor(textOf(json, "tensor", 4096));
    if (const auto busy = busyFrom(json)) progress.addBusy(since(*busy, progress.busy()));
}

Result<int> follow(Channel& channel, const RunSinks& sinks, const StopToken& stop) {
    Incoming incoming(channel);
    std::optional<Clock::time_point> stopped;
    for (;;) {
        if (stop.stopRequested() && !stopped) {
            (void)channel.send(message({{"say", "stop"}}));
            stopped = Clock::now();
        }
        if (stopped && Clock::now() - *stopped > kStopping)
            return makeError(ErrorCode::cancelled, "canceled");
        SHARDSCOPE_ASSIGN(auto frame, incoming.next());
        if (!frame) continue;
        SHARDSCOPE_ASSIGN(const Json json, parseMessage(*frame));
        const std::string say = textOf(json, "say", 40);
        if (say == "out" || say == "err") {
            const auto size = numberOf(json, "size");
            if (!size || *size > RunService::kBlock) return damaged("a message that is too long");
            SHARDSCOPE_ASSIGN(const std::string bytes,
                              unpack(std::move(frame->body), json.value("packed", Json()) == true, *size));
            SHARDSCOPE_TRY((say == "out" ? sinks.out : sinks.err)(bytes));
            (void)channel.send(message({{"say", "took"}, {"bytes", bytes.size()}}));
        } else if (say == "progress") {
            if (sinks.progress) showIn(*sinks.progress, json);
        } else if (say == "workers") {
            SHARDSCOPE_ASSIGN(std::vector<WorkerState> workers, workersFrom(frame->body));
            if (sinks.workers) sinks.workers(std::move(workers));
        } else if (say == "exit") {
            const auto code = numberOf(json, "code");
            if (!code || *code > 255) return damaged("malformed exit code");
            return static_cast<int>(*code);
        } else if (say == "failed") {
            return errorFrom(json.value("error", Json()));
        } else {
            return damaged("not a valid protocol message");
        }
    }
}

}  // namespace

Result<int> runThere(const RemoteHost::Connect& connect, const std::string& version, const RunOrder& order,
                     const RunSinks& sinks, const StopToken& stop) {
    SHARDSCOPE_ASSIGN(Launched launched, connect());
    Status status = meetAgent(*launched.channel, version);
    if (status.ok()) status = launched.channel->send(runMessage(order));
    Result<int> code =
        status.ok() ? follow(*launched.channel, sinks, stop) : Result<int>(std::move(status).error());
    if (code.ok()) return code;
    Error error = std::move(code).error();
    if (error.code == ErrorCode::damaged)
        error = makeError(ErrorCode::remote, "it answers with " + error.message);
    if (error.code != ErrorCode::remote) return error;
    if (launched.process) return endOf(order.host, std::move(error), *launched.process);
    error.message = order.host + ": " + error.message;
    return error;
}

}  // namespace shardscope
