// Frames over a pair of pipes: how a coordinator and its workers talk, through ssh, through srun or on one
// machine.
//
// Each side first sends three bytes that no shell prints (0xF5 0xC9 0xB1) and skips what comes before the
// other's. A frame is { u32 length of the text, u32 length of the body, text, body }, little-endian; text is
// JSON, body is bytes; together at most kMaxFrame. What comes is untrusted.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace shardscope {

struct Frame {
    std::string text;
    std::string body;
};

class Channel {
  public:
    static constexpr uint64_t kMaxFrame = uint64_t{16} << 20;
    static constexpr size_t kMaxNoise = size_t{64} << 10;
    using Clock = std::chrono::steady_clock;

    // Takes the descriptors over: they are closed with it, and made non-blocking.
    Channel(int in, int out);
    ~Channel();
    Channel(const Channel&) = delete;
    Channel& operator=(const Channel&) = delete;

    // Sends the mark and waits for the other's; `over`, asked several times a second, ends that. Errors:
    // remote, with the printable part of what came instead; cancelled.
    Status greet(Clock::time_point deadline, const std::function<bool()>& over = {});

    // Thread-safe. Errors: limit; remote when the other end is gone or takes nothing for `kPatience`.
    Status send(const Frame& frame);
    // What is worth nothing later: it is left out when it would have to wait. Thread-safe.
    void offer(const Frame& frame);
    // One thread at a time. nullopt when nothing whole has come by the deadline. Errors: remote (the other
    // end is gone), damaged (lengths that cannot be).
    Result<std::optional<Frame>> receive(Clock::time_point deadline);

    // Memory of large bodies, which is used again: fresh pages cost more than what is copied into them.
    // take() leaves what was in it. Thread-safe.
    std::string take(size_t size);
    void recycle(std::string body);

    // When bytes last came, and how many have come and gone in all. Thread-safe.
    Clock::time_point heard() const { return heard_.load(); }
    uint64_t bytesReceived() const { return received_.load(); }
    uint64_t bytesSent() const { return sent_.load(); }

    // Wakes whoever waits here, with the error that the other end is gone. Thread-safe.
    void close();

    static constexpr std::chrono::seconds kPatience{30};

  private:
    Status fill(Clock::time_point deadline, bool& more);
    Status put(const Frame& frame);
    Status begin();

    int in_, out_;
    int wakeRead_ = -1, wakeWrite_ = -1;
    std::mutex sending_;
    std::string have_;             // received and not yet taken
    std::optional<Frame> coming_;  // of which `body` is as long as it will be, and filled up to `filled_`
    size_t filled_ = 0;
    std::atomic<Clock::time_point> heard_{Clock::now()};
    std::atomic<uint64_t> received_{0}, sent_{0};
    std::mutex sparesMutex_;
    std::vector<std::string> spares_;
};

}  // namespace shardscope
