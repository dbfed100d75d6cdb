#include "hosts/run_service.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <system_error>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "hosts/agent_messages.h"

namespace shardscope {
namespace {

using Json = nlohmann::json;

constexpr size_t kMostWords = 4096;
constexpr size_t kMostWordBytes = size_t{1} << 20;

}  // namespace

Frame runMessage(const RunOrder& order) {
    std::string body;
    for (const std::string& word : order.words)
        body += word + '\0';
    return message({{"say", "run"},
                    {"words", order.words.size()},
                    {"host", order.host},
                    {"color", order.color},
                    {"width", order.width},
                    {"progress", order.progress}},
                   std::move(body));
}

Result<RunOrder> runOrderFrom(const Frame& frame) {
    if (frame.text.size() > kMostText || frame.body.size() > kMostWordBytes) return damaged("too many words");
    SHARDSCOPE_ASSIGN(const Json json, parseMessage(frame));
    const auto words = numberOf(json, "words"), width = numberOf(json, "width");
    if (json["say"] != "run" || !words || *words > kMostWords || !width || *width > 100'000)
        return damaged("malformed run request");
    RunOrder order;
    for (size_t at = 0; at < frame.body.size();) {
        const size_t end = frame.body.find('\0', at);
        if (end == std::string::npos) return damaged("a word without an end");
        order.words.push_back(frame.body.substr(at, end - at));
        at = end + 1;
    }
    if (order.words.size() != *words) return damaged("another number of words than was said");
    order.host = textOf(json, "host", 1000);
    if (order.host.empty()) return damaged("an order to run something from nowhere");
    order.width = static_cast<unsigned>(*width);
    order.color = json.value("color", Json()) == true;
    order.progress = json.value("progress", Json()) == true;
    return order;
}

RunService::RunService(Channel& channel, StopSource& stop) : channel_(channel), stop_(stop) {}

RunService::~RunService() = default;

Status RunService::serve(const std::function<int()>& verb, const std::function<void()>& onEnd) {
    std::array<int, 2> out{-1, -1}, err{-1, -1};
    if (pipe2(out.data(), O_CLOEXEC) != 0 || pipe2(err.data(), O_CLOEXEC) != 0)
        return systemError(errno, "make a pipe", "");
    std::fflush(stdout);
    std::fflush(stderr);
    dup2(out[1], STDOUT_FILENO);
    dup2(err[1], STDERR_FILENO);
    ::close(out[1]);
    ::close(err[1]);

    std::thread listener, pumping, beating;
    const auto beat = [&] {
        MutexLock lock(mutex_);
        while (!done_) {
            lock.unlock();
            const bool sent = channel_.send(message({{"say", "beat"}})).ok();
            lock.lock();
            if (!sent) return;
            changed_.wait_for(lock, kBeat, [&]() SHARDSCOPE_REQUIRES(mutex_) { return done_; });
        }
    };
    Status started;
    try {
        pumping = std::thread([&] { pump(out[0], err[0]); });
        listener = std::thread([&] { listen(onEnd); });
        beating = std::thread(beat);
    } catch (const std::system_error& failure) {
        started = systemError(failure.code().value(), "start a thread", "");
    }

    const int code = started.ok() ? verb() : exitCode(started.error().code);
    std::fflush(stdout);
    std::fflush(stderr);
    const int nothing = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
    dup2(nothing, STDOUT_FILENO);
    dup2(nothing, STDERR_FILENO);
    ::close(nothing);
    if (pumping.joinable()) pumping.join();  // all of it is on its way
    ::close(out[0]);
    ::close(err[0]);
    {
        MutexLock lock(mutex_);
        done_ = true;
        changed_.notify_all();
    }
    if (beating.joinable()) beating.join();
    (void)channel_.send(message({{"say", "exit"}, {"code", code}}));
    channel_.close();
    if (listener.joinable()) listener.join();
    return started;
}

void RunService::listen(const std::function<void()>& onEnd) {
    for (;;) {
        auto frame = channel_.receive(Channel::Clock::now() + kOrphanTimeout);
        if (frame.ok() && *frame && (*frame)->text.size() <= kMostText) {
            const auto json = parseMessage(**frame);
            if (json.ok() && (*json)["say"] == "beat") continue;
            if (json.ok() && (*json)["say"] == "stop") {
                stop_.requestStop();
                continue;
            }
            const auto bytes = json.ok() ? numberOf(*json, "bytes") : std::nullopt;
            if (json.ok() && (*json)["say"] == "took" && bytes) {
                MutexLock lock(mutex_);
                untaken_ -= std::min(untaken_, *bytes);
                changed_.notify_all();
                continue;
            }
        }
        // The stream has ended or is silent, or nothing sensible comes any more.
        stop_.requestStop();
        MutexLock lock(mutex_);
        gone_ = true;
        changed_.notify_all();
        if (onEnd && !done_) onEnd();
        return;
    }
}

// Takes what the verb writes, until both pipes have ended; when nobody wants it any more it is dropped, so
// that the verb comes to its end.
void RunService::pump(int out, int err) {
    std::array<pollfd, 2> waits{{{out, POLLIN, 0}, {err, POLLIN, 0}}};
    for (const int pipe : {out, err})
        fcntl(pipe, F_SETFL, fcntl(pipe, F_GETFL) | O_NONBLOCK);
    std::string bytes;
    while (waits[0].fd >= 0 || waits[1].fd >= 0) {
        if (poll(waits.data(), waits.size(), -1) < 0 && errno != EINTR) return;
        for (pollfd& wait : waits) {
            if (wait.fd < 0 || !wait.revents) continue;
            bytes.resize(kBlock);
            size_t have = 0;
            ssize_t got = 0;
            while (have < bytes.size() &&
                   (got = ::read(wait.fd, bytes.data() + have, bytes.size() - have)) > 0)
                have += static_cast<size_t>(got);
            const bool ended = got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
            bytes.resize(have);
            if (have) forward(wait.fd == out ? "out" : "err", bytes);
            if (ended && have < kBlock) wait.fd = -1;
        }
    }
}

void RunService::forward(const char* say, std::string bytes) {
    {
        MutexLock lock(mutex_);
        changed_.wait(
            lock, [&]() SHARDSCOPE_REQUIRES(mutex_) { return gone_ || untaken_ + bytes.size() <= kWindow; });
        if (gone_) return;
        untaken_ += bytes.size();
    }
    const uint64_t size = bytes.size();
    bool packed = false;
    std::string body = pack(std::move(bytes), packed);
    // After half a message nothing can follow.
    if (!channel_.send(message({{"say", say}, {"size", size}, {"packed", packed}}, std::move(body))).ok())
        channel_.close();
}

void RunService::showProgress(const Progress& progress, const std::vector<WorkerState>& workers) {
    (void)channel_.send(message({{"say", "progress"},
                                 {"phase", static_cast<int>(progress.phase())},
                                 {"done", progress.bytesDone()},
                                 {"total", progress.bytesTotal()},
                                 {"tensor", progress.tensor()},
                                 {"busy", progress.busy()}}));
    if (workers.empty()) return;
    std::string text = workersText(workers);
    if (text == workers_ || text.size() > kBlock) return;
    workers_ = text;
    (void)channel_.send(message({{"say", "workers"}}, std::move(text)));
}

}  // namespace shardscope
