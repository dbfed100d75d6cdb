#include "cluster/channel.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/text.h"

namespace shardscope {
namespace {

constexpr std::string_view kMark = "\xF5\xC9\xB1";
constexpr std::chrono::milliseconds kChannelPoll{100};
constexpr size_t kSpareBytes = size_t{64} << 10;
constexpr size_t kMostSpares = 16;

Error gone() {
    return makeError(ErrorCode::remote, "the other end has closed the connection");
}

int millisecondsUntil(Channel::Clock::time_point deadline) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Channel::Clock::now()).count();
    return static_cast<int>(std::clamp<int64_t>(left, 0, 60'000));
}

void makeNonBlocking(int fd) {
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
}

uint32_t numberAt(std::string_view bytes, size_t at) {
    uint32_t value = 0;
    std::memcpy(&value, bytes.data() + at, sizeof value);
    return value;
}

}  // namespace

Channel::Channel(int in, int out) : in_(in), out_(out) {
    makeNonBlocking(in_);
    makeNonBlocking(out_);
    int wake[2] = {-1, -1};
    if (pipe2(wake, O_CLOEXEC | O_NONBLOCK) == 0) {
        wakeRead_ = wake[0];
        wakeWrite_ = wake[1];
    }
}

Channel::~Channel() {
    ::close(in_);
    if (out_ != in_) ::close(out_);
    if (wakeRead_ >= 0) ::close(wakeRead_);
    if (wakeWrite_ >= 0) ::close(wakeWrite_);
}

void Channel::close() {
    const char byte = 0;
    // A full pipe wakes as well.
    [[maybe_unused]] const ssize_t sent = ::write(wakeWrite_, &byte, 1);
}

Status Channel::greet(Clock::time_point deadline, const std::function<bool()>& over) {
    {
        std::lock_guard lock(sending_);
        if (::write(out_, kMark.data(), kMark.size()) != static_cast<ssize_t>(kMark.size())) return gone();
    }
    for (;;) {
        if (const size_t at = have_.find(kMark); at != std::string::npos) {
            have_.erase(0, at + kMark.size());
            return {};
        }
        const std::string noise = oneLine(have_);
        const std::string instead = noise.empty() ? std::string() : fmt::format("; it said: {}", noise);
        if (have_.size() > kMaxNoise)
            return makeError(ErrorCode::remote, "what answers is not shardscope" + instead);
        if (over && over()) return makeError(ErrorCode::cancelled, "cancelled");
        bool more = false;
        Status status = fill(over ? std::min(deadline, Clock::now() + kChannelPoll) : deadline, more);
        if (!status.ok()) {
            Error error = std::move(status).error();
            error.message += instead;
            return error;
        }
        if (!more && Clock::now() >= deadline)
            return makeError(ErrorCode::remote, "no answer in time" + instead);
    }
}

// Waits until something can be read, and takes it.
Status Channel::fill(Clock::time_point deadline, bool& more) {
    more = false;
    std::array<pollfd, 2> waits{{{in_, POLLIN, 0}, {wakeRead_, POLLIN, 0}}};
    const int ready = poll(waits.data(), waits.size(), millisecondsUntil(deadline));
    if (ready <= 0) {
        if (ready < 0 && errno != EINTR && errno != EAGAIN)
            return systemError(errno, "wait for the other end", "");
        return {};
    }
    if (waits[1].revents) return gone();
    if (!waits[0].revents) return {};
    // The rest of a body comes to where it belongs.
    std::array<char, 65536> bytes;
    const bool direct = coming_ && filled_ < coming_->body.size();
    const std::span<char> into = direct ? std::span(coming_->body).subspan(filled_) : std::span<char>(bytes);
    const ssize_t got = ::read(in_, into.data(), into.size());
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return {};
    if (got <= 0) return gone();
    if (direct)
        filled_ += static_cast<size_t>(got);
    else
        have_.append(bytes.data(), static_cast<size_t>(got));
    received_ += static_cast<uint64_t>(got);
    heard_ = Clock::now();
    more = true;
    return {};
}

Status Channel::send(const Frame& frame) {
    if (frame.text.size() + frame.body.size() > kMaxFrame)
        return makeError(ErrorCode::limit, "a message is longer than 16 MiB");
    std::lock_guard lock(sending_);
    return put(frame);
}

void Channel::offer(const Frame& frame) {
    const std::unique_lock lock(sending_, std::try_to_lock);
    pollfd room{out_, POLLOUT, 0};
    if (lock && poll(&room, 1, 0) == 1 && room.revents == POLLOUT) (void)put(frame);
}

// Under sending_.
Status Channel::put(const Frame& frame) {
    std::array<uint32_t, 2> head{static_cast<uint32_t>(frame.text.size()),
                                 static_cast<uint32_t>(frame.body.size())};
    std::array<iovec, 3> parts{{{head.data(), sizeof head},
                                {const_cast<char*>(frame.text.data()), frame.text.size()},
                                {const_cast<char*>(frame.body.data()), frame.body.size()}}};
    auto deadline = Clock::now() + kPatience;
    for (std::span<iovec> left = parts; !left.empty();) {
        const ssize_t sent = ::writev(out_, left.data(), static_cast<int>(left.size()));
        if (sent >= 0) {
            sent_ += static_cast<uint64_t>(sent);
            deadline = Clock::now() + kPatience;
            auto taken = static_cast<size_t>(sent);
            while (!left.empty() && taken >= left.front().iov_len) {
                taken -= left.front().iov_len;
                left = left.subspan(1);
            }
            if (left.empty()) break;
            left.front().iov_base = static_cast<char*>(left.front().iov_base) + taken;
            left.front().iov_len -= taken;
            if (sent > 0) continue;
        } else if (errno != EAGAIN && errno != EINTR) {
            return gone();
        }
        std::array<pollfd, 2> waits{{{out_, POLLOUT, 0}, {wakeRead_, POLLIN, 0}}};
        (void)poll(waits.data(), waits.size(), millisecondsUntil(deadline));
        if (waits[1].revents || (waits[0].revents & (POLLERR | POLLHUP))) return gone();
        if (Clock::now() >= deadline)
            return makeError(ErrorCode::remote, "the other end has taken nothing for 30 seconds");
    }
    return {};
}

std::string Channel::take(size_t size) {
    std::string body;
    if (size >= kSpareBytes) {
        std::lock_guard lock(sparesMutex_);
        if (!spares_.empty()) {
            body = std::move(spares_.back());
            spares_.pop_back();
        }
    }
    body.resize(size);
    return body;
}

void Channel::recycle(std::string body) {
    if (body.size() < kSpareBytes) return;
    std::lock_guard lock(sparesMutex_);
    if (spares_.size() < kMostSpares) spares_.push_back(std::move(body));
}

// Takes the head and the text of the next frame, once they are here.
Status Channel::begin() {
    if (have_.size() < 8) return {};
    const uint64_t text = numberAt(have_, 0), body = numberAt(have_, 4);
    if (text + body > kMaxFrame)
        return damaged(fmt::format("a message of {} bytes, more than 16 MiB", text + body));
    if (have_.size() < 8 + text) return {};
    coming_.emplace(Frame{have_.substr(8, text), take(body)});
    filled_ = std::min<size_t>(body, have_.size() - 8 - text);
    std::memcpy(coming_->body.data(), have_.data() + 8 + text, filled_);
    have_.erase(0, 8 + text + filled_);
    return {};
}

Result<std::optional<Frame>> Channel::receive(Clock::time_point deadline) {
    for (;;) {
        if (!coming_) SHARDSCOPE_TRY(begin());
        if (coming_ && filled_ == coming_->body.size()) return std::exchange(coming_, std::nullopt);
        bool more = false;
        SHARDSCOPE_TRY(fill(deadline, more));
        if (!more && Clock::now() >= deadline) return std::optional<Frame>();
    }
}

}  // namespace shardscope
