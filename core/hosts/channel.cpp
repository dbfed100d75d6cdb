#include "hosts/channel.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"

namespace shardscope {
namespace {

constexpr std::string_view kMark = "\xF5\xC9\xB1";
constexpr std::chrono::milliseconds kChannelPoll{100};
constexpr size_t kSpareBytes = size_t{64} << 10;
constexpr size_t kMostSpares = 16;
constexpr size_t kLeastRead = size_t{4} << 10;  // where a frame begins: hardly more than its head and text
constexpr size_t kPipeBytes = size_t{1} << 20;  // as much as anybody may have

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

// ------------------------------------------------------------------ pages

bool HeldPages::take(int file, uint64_t offset, size_t length) {
    if (never_ || file < 0 || length == 0) return false;
    if (in_ < 0) {
        int ends[2] = {-1, -1};
        if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0) {
            out_ = ends[0];
            in_ = ends[1];
        }
        // A small one is not better than copying.
        never_ = in_ < 0 || fcntl(in_, F_SETPIPE_SZ, kPipeBytes) < static_cast<int>(kPipeBytes);
        if (never_) return false;
    }
    tail_.clear();
    auto at = static_cast<off64_t>(offset);
    while (held_ < length) {
        const ssize_t got = ::splice(file, &at, in_, nullptr, length - held_, SPLICE_F_NONBLOCK);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && errno == EAGAIN && length - held_ <= 2 * kLeastRead) {
            // It holds pages, of which a range that begins within one has one more.
            tail_.resize(length - held_);
            if (::pread(file, tail_.data(), tail_.size(), at) == static_cast<ssize_t>(tail_.size()))
                return true;
        }
        if (got <= 0) {
            never_ = got < 0 && errno == EINVAL;  // the file system has nothing of the kind
            drop();
            return false;
        }
        held_ += static_cast<size_t>(got);
    }
    return true;
}

void HeldPages::drop() {
    if (in_ >= 0) {
        ::close(in_);
        ::close(out_);
    }
    in_ = out_ = -1;
    held_ = 0;
    tail_.clear();
}

// ------------------------------------------------------------------ frames

Channel::Channel(int in, int out) : in_(in), out_(out) {
    makeNonBlocking(in_);
    makeNonBlocking(out_);
    struct stat kind {};
    socket_ = fstat(out_, &kind) == 0 && S_ISSOCK(kind.st_mode);
    int wake[2] = {-1, -1};
    if (pipe2(wake, O_CLOEXEC | O_NONBLOCK) == 0) {
        wakeRead_ = wake[0];
        wakeWrite_ = wake[1];
    }
    interrupt_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

Channel::~Channel() {
    ::close(in_);
    if (out_ != in_) ::close(out_);
    if (wakeRead_ >= 0) ::close(wakeRead_);
    if (wakeWrite_ >= 0) ::close(wakeWrite_);
    if (interrupt_ >= 0) ::close(interrupt_);
}

void Channel::close() {
    closed_ = true;
    const char byte = 0;
    // A full pipe wakes as well.
    [[maybe_unused]] const ssize_t sent = ::write(wakeWrite_, &byte, 1);
}

void Channel::interrupt() {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t sent = ::write(interrupt_, &one, sizeof one);
}

Status Channel::greet(Clock::time_point deadline, const std::function<bool()>& stopping) {
    {
        std::lock_guard lock(sending_);
        // Who has gone already may have said why; reading that ends with the same error.
        [[maybe_unused]] const ssize_t sent = ::write(out_, kMark.data(), kMark.size());
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
        if (stopping && stopping()) return makeError(ErrorCode::cancelled, "canceled");
        bool more = false;
        Status status = fill(stopping ? std::min(deadline, Clock::now() + kChannelPoll) : deadline, more);
        if (!status.ok()) {
            Error error = std::move(status).error();
            error.message += instead;
            return error;
        }
        if (!more && Clock::now() >= deadline)
            return makeError(ErrorCode::remote, "no answer in time" + instead);
    }
}

// Takes what can be read, and waits for it.
Status Channel::fill(Clock::time_point deadline, bool& more) {
    more = false;
    // The rest of a body comes to where it belongs.
    std::array<char, 65536> bytes;
    const bool direct = coming_ && filled_ < into_.size();
    const size_t wanted = have_.size() < 8 ? 0 : 8 + size_t{numberAt(have_, 0)} - have_.size();
    const std::span<char> into =
        direct ? into_.subspan(filled_)
               : std::span<char>(bytes).first(std::clamp(wanted, kLeastRead, bytes.size()));
    for (bool waited = false;; waited = true) {
        if (closed_) return gone();
        const ssize_t got = ::read(in_, into.data(), into.size());
        if (got > 0) {
            if (direct)
                filled_ += static_cast<size_t>(got);
            else
                have_.append(bytes.data(), static_cast<size_t>(got));
            received_ += static_cast<uint64_t>(got);
            heard_ = Clock::now();
            more = true;
            return {};
        }
        if (got == 0 || (errno != EAGAIN && errno != EINTR)) return gone();
        if (waited) return {};
        std::array<pollfd, 3> waits{{{in_, POLLIN, 0}, {wakeRead_, POLLIN, 0}, {interrupt_, POLLIN, 0}}};
        const int ready = poll(waits.data(), waits.size(), millisecondsUntil(deadline));
        if (ready < 0 && errno != EINTR && errno != EAGAIN)
            return systemError(errno, "wait for the other end", "");
        if (ready <= 0) return {};
        if (waits[1].revents) return gone();
        uint64_t count = 0;
        if (waits[2].revents && ::read(interrupt_, &count, sizeof count) > 0) interrupted_ = true;
        if (interrupted_ && !waits[0].revents) return {};
    }
}

namespace {

Status tooLong(size_t bytes) {
    if (bytes <= Channel::kMaxFrame) return {};
    return makeError(ErrorCode::limit, "a message is longer than 16 MiB");
}

}  // namespace

Status Channel::send(std::string_view text, std::string_view body) {
    SHARDSCOPE_TRY(tooLong(text.size() + body.size()));
    std::lock_guard lock(sending_);
    return put(text, body);
}

void Channel::offer(const Frame& frame) {
    const std::unique_lock lock(sending_, std::try_to_lock);
    pollfd room{out_, POLLOUT, 0};
    if (lock && poll(&room, 1, 0) == 1 && room.revents == POLLOUT) (void)put(frame.text, frame.body);
}

Status Channel::send(std::string_view text, HeldPages& body) {
    SHARDSCOPE_TRY(tooLong(text.size() + body.size()));
    std::lock_guard lock(sending_);
    std::array<uint32_t, 2> head{static_cast<uint32_t>(text.size()), static_cast<uint32_t>(body.size())};
    std::array<iovec, 2> parts{{{head.data(), sizeof head}, {const_cast<char*>(text.data()), text.size()}}};
    SHARDSCOPE_TRY(putParts(parts, true));
    SHARDSCOPE_TRY(putPages(body));
    const std::string tail = std::exchange(body.tail_, {});
    if (tail.empty()) return {};
    iovec last{const_cast<char*>(tail.data()), tail.size()};
    return putParts(std::span(&last, 1), false);
}

// Under sending_, as are the following.
Status Channel::put(std::string_view text, std::string_view body) {
    std::array<uint32_t, 2> head{static_cast<uint32_t>(text.size()), static_cast<uint32_t>(body.size())};
    std::array<iovec, 3> parts{{{head.data(), sizeof head},
                                {const_cast<char*>(text.data()), text.size()},
                                {const_cast<char*>(body.data()), body.size()}}};
    return putParts(parts, false);
}

Status Channel::awaitRoom(Clock::time_point deadline) {
    std::array<pollfd, 2> waits{{{out_, POLLOUT, 0}, {wakeRead_, POLLIN, 0}}};
    (void)poll(waits.data(), waits.size(), millisecondsUntil(deadline));
    if (waits[1].revents || (waits[0].revents & (POLLERR | POLLHUP))) return gone();
    if (Clock::now() >= deadline)
        return makeError(ErrorCode::remote, "the other end has taken nothing for 30 seconds");
    return {};
}

// `more`: what follows at once may travel with it.
Status Channel::putParts(std::span<iovec> left, bool more) {
    auto deadline = Clock::now() + kPatience;
    while (!left.empty()) {
        msghdr together{};
        together.msg_iov = left.data();
        together.msg_iovlen = left.size();
        const ssize_t sent = more ? ::sendmsg(out_, &together, MSG_MORE | MSG_NOSIGNAL)
                                  : ::writev(out_, left.data(), static_cast<int>(left.size()));
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
        SHARDSCOPE_TRY(awaitRoom(deadline));
    }
    return {};
}

Status Channel::putPages(HeldPages& pages) {
    auto deadline = Clock::now() + kPatience;
    while (pages.held_ > 0) {
        const ssize_t sent = ::splice(pages.out_, nullptr, out_, nullptr, pages.held_,
                                      SPLICE_F_NONBLOCK | (pages.tail_.empty() ? 0U : SPLICE_F_MORE));
        if (sent > 0) {
            sent_ += static_cast<uint64_t>(sent);
            pages.held_ -= static_cast<size_t>(sent);
            deadline = Clock::now() + kPatience;
            continue;
        }
        if (sent == 0 || (errno != EAGAIN && errno != EINTR)) return gone();
        SHARDSCOPE_TRY(awaitRoom(deadline));
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
Status Channel::begin(const BodyBuffer& buffer) {
    if (have_.size() < 8) return {};
    const uint64_t text = numberAt(have_, 0), body = numberAt(have_, 4);
    if (text + body > kMaxFrame)
        return damaged(fmt::format("a message of {} bytes, more than 16 MiB", text + body));
    if (have_.size() < 8 + text) return {};
    coming_.emplace(Frame{have_.substr(8, text), {}});
    into_ = buffer && body > 0 ? buffer(coming_->text, body) : std::span<char>();
    if (into_.size() != body) {
        coming_->body = take(body);
        into_ = coming_->body;
    }
    filled_ = std::min<size_t>(body, have_.size() - 8 - text);
    if (filled_ > 0) std::memcpy(into_.data(), have_.data() + 8 + text, filled_);
    have_.erase(0, 8 + text + filled_);
    return {};
}

Result<std::optional<Frame>> Channel::receive(Clock::time_point deadline, const BodyBuffer& buffer) {
    for (;;) {
        if (!coming_) SHARDSCOPE_TRY(begin(buffer));
        if (coming_ && filled_ == into_.size()) return std::exchange(coming_, std::nullopt);
        bool more = false;
        SHARDSCOPE_TRY(fill(deadline, more));
        if (!more && (std::exchange(interrupted_, false) || Clock::now() >= deadline))
            return std::optional<Frame>();
    }
}

}  // namespace shardscope
