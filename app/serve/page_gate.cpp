#include "serve/page_gate.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

namespace shardscope::serve {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kEndOfHead = "\r\n\r\n";
constexpr std::string_view kTooLong =
    "HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";

bool isWhole(const PageConnection& connection) {
    return connection.bytes.find(kEndOfHead) != std::string::npos;
}

}  // namespace

void closeConnection(const PageConnection& connection) {
    ::shutdown(connection.socket, SHUT_RDWR);
    ::close(connection.socket);
}

PageGate::PageGate(Serve serve, size_t threads)
    : serve_(std::move(serve)), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    threads_.emplace_back([this] { watch(); });
    for (size_t i = 0; i < threads; ++i)
        threads_.emplace_back([this] { work(); });
}

PageGate::~PageGate() {
    {
        std::lock_guard lock(mutex_);
        ending_ = true;
    }
    changed_.notify_all();
    wake();
    for (std::thread& thread : threads_)
        thread.join();
    for (const PageConnection& connection : fresh_)
        closeConnection(connection);
    for (const PageConnection& connection : ready_)
        closeConnection(connection);
    ::close(wake_);
}

void PageGate::wake() const {
    const uint64_t one = 1;
    (void)!::write(wake_, &one, sizeof one);
}

void PageGate::add(int socket) {
    add(PageConnection{.socket = socket});
}

void PageGate::add(PageConnection connection) {
    connection.until = Clock::now() + kHeadTime;
    {
        std::lock_guard lock(mutex_);
        fresh_.push_back(std::move(connection));
    }
    wake();
}

// Takes what has come; false when nothing more will.
bool PageGate::receive(PageConnection& connection) {
    std::array<char, 4096> piece;
    const ssize_t n = ::recv(connection.socket, piece.data(), piece.size(), MSG_DONTWAIT);
    if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    if (n == 0) return false;
    connection.bytes.append(piece.data(), static_cast<size_t>(n));
    if (connection.bytes.size() <= kMostHead || isWhole(connection)) return true;
    (void)::send(connection.socket, kTooLong.data(), kTooLong.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    return false;
}

void PageGate::takeFresh(Waiting& waiting) {
    std::lock_guard lock(mutex_);
    for (PageConnection& connection : fresh_)
        waiting.push_back(std::move(connection));
    fresh_.clear();
    for (; waiting.size() > kMostWaiting; waiting.pop_front())
        closeConnection(waiting.front());
}

// `events` are those of the connections that were watched: the first ones.
void PageGate::look(Waiting& waiting, const std::vector<short>& events) {
    const auto now = Clock::now();
    auto at = waiting.begin();
    for (size_t i = 0; at != waiting.end(); ++i) {
        bool stays = i >= events.size() || events[i] == 0 || receive(*at);
        if (stays && isWhole(*at)) {
            std::lock_guard lock(mutex_);
            ready_.push_back(std::move(*at));
            changed_.notify_one();
            at = waiting.erase(at);
            continue;
        }
        stays = stays && now < at->until;
        if (!stays) closeConnection(*at);
        at = stays ? std::next(at) : waiting.erase(at);
    }
}

void PageGate::watch() {
    Waiting waiting;
    for (;;) {
        {
            std::lock_guard lock(mutex_);
            if (ending_) break;
        }
        std::vector<pollfd> watched{{wake_, POLLIN, 0}};
        for (const PageConnection& connection : waiting)
            watched.push_back({connection.socket, POLLIN, 0});
        (void)::poll(watched.data(), watched.size(), 500);
        uint64_t woken = 0;
        (void)!::read(wake_, &woken, sizeof woken);
        std::vector<short> events;
        for (size_t i = 1; i < watched.size(); ++i)
            events.push_back(watched[i].revents);
        look(waiting, events);
        takeFresh(waiting);
    }
    for (const PageConnection& connection : waiting)
        closeConnection(connection);
}

void PageGate::work() {
    for (;;) {
        PageConnection connection;
        {
            std::unique_lock lock(mutex_);
            changed_.wait(lock, [this] { return ending_ || !ready_.empty(); });
            if (ending_) return;
            connection = std::move(ready_.front());
            ready_.pop_front();
        }
        if (serve_(connection) && ++connection.requests < kMostRequests)
            add(std::move(connection));
        else
            closeConnection(connection);
    }
}

}  // namespace shardscope::serve
