// TCP connections between the processes of one conversion, where neither ssh nor a pipe joins them. They
// are not encrypted; both ends must know the token of the conversion (peers.h).
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "hosts/channel.h"

namespace shardscope {

class Listener {
  public:
    // `host` is an address of this machine, empty for all of them; port 0 takes one that is free. Errors:
    // remote.
    static Result<std::unique_ptr<Listener>> open(const std::string& host, uint16_t port);
    ~Listener();
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;

    uint16_t port() const { return port_; }
    struct Accepted {
        std::unique_ptr<Channel> channel;  // not yet greeted
        std::string address;               // numeric, of the other end
    };
    // Nothing when nobody came by the deadline. One thread at a time. Errors: cancelled after close(), io.
    Result<std::optional<Accepted>> accept(Channel::Clock::time_point deadline);
    void close();  // thread-safe

  private:
    Listener(int fd, uint16_t port);

    const int fd_;
    const uint16_t port_;
    int wakeRead_ = -1, wakeWrite_ = -1;
};

// A channel that is not yet greeted. Tries again until the deadline while nobody listens there; `stopping` is
// polled several times a second, and true gives up. Errors: remote, cancelled.
Result<std::unique_ptr<Channel>> connectTo(const std::string& host, uint16_t port,
                                           Channel::Clock::time_point deadline,
                                           const std::function<bool()>& stopping = {});

// The address by which this machine reaches a host, and so is reached from there. Errors: remote.
Result<std::string> addressTowards(const std::string& host, uint16_t port);

}  // namespace shardscope
