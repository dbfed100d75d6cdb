#include "hosts/socket.h"

#include <array>
#include <cerrno>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace shardscope {
namespace {

constexpr std::chrono::milliseconds kAttemptInterval{100};

using Addresses = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

Result<Addresses> addressesOf(const std::string& host, uint16_t port, int flags, int type) {
    addrinfo hints{};
    hints.ai_socktype = type;
    hints.ai_flags = flags;
    addrinfo* found = nullptr;
    const int error =
        getaddrinfo(host.empty() ? nullptr : host.c_str(), std::to_string(port).c_str(), &hints, &found);
    if (error != 0)
        return makeError(ErrorCode::remote,
                         fmt::format("the address of '{}' is not known here: {}", host, gai_strerror(error)));
    return Addresses(found, freeaddrinfo);
}

std::string numericHost(const sockaddr_storage& address, socklen_t length) {
    std::array<char, NI_MAXHOST> text{};
    if (getnameinfo(reinterpret_cast<const sockaddr*>(&address), length, text.data(), text.size(), nullptr, 0,
                    NI_NUMERICHOST) != 0)
        return {};
    return text.data();
}

// Both ends are read and written by one channel, which closes what it is given twice.
std::unique_ptr<Channel> channelOver(int fd) {
    const int yes = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    return std::make_unique<Channel>(fd, fd);
}

// Connected, or -1 with errno.
int connectOnce(const addrinfo& address, Channel::Clock::time_point deadline) {
    const int fd = socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    int failed = 0;
    if (::connect(fd, address.ai_addr, address.ai_addrlen) != 0) {
        failed = errno;
        if (failed == EINPROGRESS) {
            const auto left =
                std::chrono::ceil<std::chrono::milliseconds>(deadline - Channel::Clock::now()).count();
            pollfd ready{fd, POLLOUT, 0};
            socklen_t length = sizeof failed;
            failed = ETIMEDOUT;
            if (poll(&ready, 1, static_cast<int>(std::clamp<int64_t>(left, 0, 5000))) == 1)
                getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &length);
        }
    }
    if (failed == 0) return fd;
    ::close(fd);
    errno = failed;
    return -1;
}

}  // namespace

Listener::Listener(int fd, uint16_t port) : fd_(fd), port_(port) {
    std::array<int, 2> wake{-1, -1};
    if (pipe2(wake.data(), O_CLOEXEC | O_NONBLOCK) == 0) {
        wakeRead_ = wake[0];
        wakeWrite_ = wake[1];
    }
}

Listener::~Listener() {
    ::close(fd_);
    if (wakeRead_ >= 0) ::close(wakeRead_);
    if (wakeWrite_ >= 0) ::close(wakeWrite_);
}

Result<std::unique_ptr<Listener>> Listener::open(const std::string& host, uint16_t port) {
    SHARDSCOPE_ASSIGN(const Addresses found, addressesOf(host, port, AI_PASSIVE, SOCK_STREAM));
    int failed = EADDRNOTAVAIL;
    for (const addrinfo* each = found.get(); each; each = each->ai_next) {
        const int fd = socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        const int yes = 1;
        sockaddr_storage own{};
        socklen_t length = sizeof own;
        if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
            bind(fd, each->ai_addr, each->ai_addrlen) == 0 && listen(fd, 1024) == 0 &&
            getsockname(fd, reinterpret_cast<sockaddr*>(&own), &length) == 0) {
            const in_port_t bound = own.ss_family == AF_INET6
                                        ? reinterpret_cast<sockaddr_in6*>(&own)->sin6_port
                                        : reinterpret_cast<sockaddr_in*>(&own)->sin_port;
            return std::unique_ptr<Listener>(new Listener(fd, ntohs(bound)));
        }
        failed = errno;
        if (fd >= 0) ::close(fd);
    }
    const std::string where = host.empty() ? "any address" : host;
    Error error = systemError(failed, fmt::format("listen at {} port {}", where, port), "");
    error.code = ErrorCode::remote;
    return error;
}

Result<std::optional<Listener::Accepted>> Listener::accept(Channel::Clock::time_point deadline) {
    for (;;) {
        sockaddr_storage other{};
        socklen_t length = sizeof other;
        const int fd = accept4(fd_, reinterpret_cast<sockaddr*>(&other), &length, SOCK_CLOEXEC);
        if (fd >= 0) return std::optional(Accepted{channelOver(fd), numericHost(other, length)});
        // One that went away before it was taken is nobody's business; nor are descriptors that are short.
        if (errno == EBADF || errno == EINVAL || errno == ENOTSOCK)
            return systemError(errno, "accept a connection", "");
        const auto left =
            std::chrono::ceil<std::chrono::milliseconds>(deadline - Channel::Clock::now()).count();
        if (left <= 0) return std::optional<Accepted>();
        std::array<pollfd, 2> waits{{{fd_, POLLIN, 0}, {wakeRead_, POLLIN, 0}}};
        (void)poll(waits.data(), waits.size(), static_cast<int>(std::clamp<int64_t>(left, 1, 60'000)));
        if (waits[1].revents) return makeError(ErrorCode::cancelled, "nobody is listened to any more");
    }
}

void Listener::close() {
    const char byte = 0;
    [[maybe_unused]] const ssize_t sent = ::write(wakeWrite_, &byte, 1);
}

Result<std::unique_ptr<Channel>> connectTo(const std::string& host, uint16_t port,
                                           Channel::Clock::time_point deadline,
                                           const std::function<bool()>& stopping) {
    for (;;) {
        auto found = addressesOf(host, port, 0, SOCK_STREAM);
        int failed = 0;
        for (const addrinfo* each = found.ok() ? found->get() : nullptr; each; each = each->ai_next) {
            const int fd = connectOnce(*each, deadline);
            if (fd >= 0) return channelOver(fd);
            failed = errno;
        }
        if (stopping && stopping()) return makeError(ErrorCode::cancelled, "canceled");
        if (Channel::Clock::now() >= deadline) {
            if (!found.ok()) return std::move(found).error();
            Error error = systemError(failed, fmt::format("connect to {} port {}", host, port), "");
            error.code = ErrorCode::remote;
            return error;
        }
        std::this_thread::sleep_for(kAttemptInterval);
    }
}

Result<std::string> addressTowards(const std::string& host, uint16_t port) {
    SHARDSCOPE_ASSIGN(const Addresses found, addressesOf(host, port, 0, SOCK_DGRAM));
    for (const addrinfo* each = found.get(); each; each = each->ai_next) {
        const int probe = socket(each->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        if (probe < 0) continue;
        sockaddr_storage own{};
        socklen_t length = sizeof own;
        std::string address;
        // Sends nothing: a route is chosen.
        if (::connect(probe, each->ai_addr, each->ai_addrlen) == 0 &&
            getsockname(probe, reinterpret_cast<sockaddr*>(&own), &length) == 0)
            address = numericHost(own, length);
        ::close(probe);
        if (!address.empty()) return address;
    }
    return makeError(ErrorCode::remote, fmt::format("no route from here to '{}'", host));
}

}  // namespace shardscope
