#include "hosts/remote_session.h"

#include <fmt/format.h>

#include "base/units.h"
#include "hosts/agent_messages.h"

namespace shardscope {
namespace {

using Json = nlohmann::json;
using Clock = Channel::Clock;

// A message that comes in drops is as good as none; on the slowest line worth having a block takes seconds.
constexpr std::chrono::seconds kWholeMessage{60};

}  // namespace

RemoteSession::RemoteSession(std::string name, Launched launched)
    : name_(std::move(name)), launched_(std::move(launched)) {}

RemoteSession::~RemoteSession() {
    close();
    if (listener_.joinable()) listener_.join();
}

Status RemoteSession::begin(const std::string& version) {
    Status status = meetAgent(*launched_.channel, version);
    if (status.ok())
        status = launched_.channel->send(message({{"say", "files"}, {"token", launched_.token}}));
    if (!status.ok()) {
        Error error = std::move(status).error();
        if (launched_.process) return endOf(name_, std::move(error), *launched_.process);
        error.message = name_ + ": " + error.message;
        return error;
    }
    listener_ = std::thread([this] { listen(); });
    return {};
}

void RemoteSession::listen() {
    Channel& channel = *launched_.channel;
    auto whole = Clock::now();  // when a whole message last came
    Silence silence;
    bool delivered = false;  // the body of the frame that comes
    for (;;) {
        const auto buffer = [&](const std::string& text, size_t size) {
            const std::span<char> into = bufferOf(text, size);
            delivered = !into.empty();
            return into;
        };
        auto frame = channel.receive(Clock::now() + kBeat / 2, buffer);
        if (!frame.ok()) return end(std::move(frame).error(), true);
        if (*frame) {
            whole = Clock::now();
            if (Status status = take(std::move(**frame), std::exchange(delivered, false)); !status.ok())
                return end(std::move(status).error(), false);
            continue;
        }
        if (Status status = silence.check(channel.heard()); !status.ok())
            return end(std::move(status).error(), false);
        if (Clock::now() - whole >= kWholeMessage) {
            return end(makeError(ErrorCode::remote, fmt::format("no whole message has come for {} seconds",
                                                                kWholeMessage.count())),
                       false);
        }
    }
}

std::span<char> RemoteSession::bufferOf(const std::string& text, size_t size) {
    const auto json = text.size() > kMostText ? Result<Json>(Json()) : parseMessage(Frame{text, {}});
    const auto id = json.ok() ? numberOf(*json, "id") : std::nullopt;
    MutexLock lock(mutex_);
    const auto found = id ? pending_.find(*id) : pending_.end();
    if (found == pending_.end() || found->second.answer || found->second.into.size() != size ||
        textOf(*json, "say", 40) != found->second.say || json->value("packed", Json()) == true)
        return {};
    return {reinterpret_cast<char*>(found->second.into.data()), size};
}

Status RemoteSession::take(Frame frame, bool delivered) {
    if (frame.text.size() > kMostText)
        return damaged(
            fmt::format("a message of {}, more than was asked for", counted(frame.text.size(), "byte")));
    SHARDSCOPE_ASSIGN(Json json, parseMessage(frame));
    const std::string say = textOf(json, "say", 40);
    if (say == "beat") {
        if (!frame.body.empty()) return damaged("a heartbeat with a body");
        launched_.channel->offer(message({{"say", "beat"}}));
        return {};
    }
    const auto id = numberOf(json, "id");
    MutexLock lock(mutex_);
    const auto found = id ? pending_.find(*id) : pending_.end();
    if (found == pending_.end() || found->second.answer) return damaged("an answer that nobody asked for");
    Pending& pending = found->second;
    if (say == "error") {
        const auto error = json.find("error");
        pending.answer = errorFrom(error == json.end() ? Json() : *error);
    } else if (say != pending.say || frame.body.size() > pending.mostBody) {
        return damaged("an answer to something else than was asked");
    } else {
        pending.answer = Answer{std::move(json), std::move(frame.body), delivered};
    }
    changed_.notify_all();
    return {};
}

void RemoteSession::end(Error error, bool ended) {
    // Whatever was wrong with what came, what it means here is that the host cannot be asked.
    const std::string what =
        error.code == ErrorCode::damaged ? "it answers with " + error.message : error.message;
    Error full = makeError(ErrorCode::remote, fmt::format("{}: {}", name_, what));
    if (launched_.process && ended && error.code == ErrorCode::remote)
        full = endOf(name_, std::move(error), *launched_.process);
    if (full.hint.empty()) full.hint = "what is asked next connects again";
    {
        MutexLock lock(mutex_);
        if (closed_) full = makeError(ErrorCode::cancelled, name_ + ": the connection was closed");
        over_ = std::move(full);
        changed_.notify_all();
    }
    launched_.channel->close();  // ends a send that is under way, too
    if (launched_.process) launched_.process->kill();
}

Result<uint64_t> RemoteSession::post(const char* say, Json request, std::string_view body, uint64_t mostBody,
                                     std::span<std::byte> into) {
    uint64_t id = 0;
    {
        MutexLock lock(mutex_);
        if (over_) return *over_;
        id = ++last_;
        pending_.emplace(id, Pending{say, mostBody, into, {}});
    }
    request["say"] = say;
    request["id"] = id;
    // After half a message nothing can follow. wait() says why.
    if (!launched_.channel->send(message(request).text, body).ok()) launched_.channel->close();
    return id;
}

Result<RemoteSession::Answer> RemoteSession::wait(uint64_t id) {
    MutexLock lock(mutex_);
    const auto found = pending_.find(id);
    if (found == pending_.end()) return makeError(ErrorCode::internal, "waiting for what was not asked");
    changed_.wait(lock, [&]() SHARDSCOPE_REQUIRES(mutex_) { return found->second.answer || over_; });
    Result<Answer> answer = found->second.answer ? std::move(*found->second.answer) : Result<Answer>(*over_);
    pending_.erase(found);
    return answer;
}

Result<RemoteSession::Answer> RemoteSession::ask(const char* say, Json request, std::string_view body,
                                                 uint64_t mostBody) {
    SHARDSCOPE_ASSIGN(const uint64_t id, post(say, std::move(request), body, mostBody));
    return wait(id);
}

void RemoteSession::tell(const char* say, Json request) {
    request["say"] = say;
    if (!over()) (void)launched_.channel->send(message(request));
}

bool RemoteSession::over() const {
    MutexLock lock(mutex_);
    return over_.has_value();
}

void RemoteSession::close() {
    {
        MutexLock lock(mutex_);
        closed_ = true;
    }
    launched_.channel->close();
}

}  // namespace shardscope
