// Frames over a pair of pipes: how a coordinator and its workers talk, through ssh, through srun or on one
// machine.
//
// Each side first sends three bytes that no shell prints (0xF5 0xC9 0xB1) and skips what comes before the
// other's. A frame is { u32 length of the text, u32 length of the body, text, body }, little-endian. text is
// JSON, body is bytes; together at most kMaxFrame. What comes is untrusted.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <sys/uio.h>

#include "base/result.h"

namespace shardscope {

struct Frame {
    std::string text;
    std::string body;
};

// Bytes of a file on their way to a socket, by reference to the page cache and without a copy (splice). Not
// thread-safe.
class HeldPages {
  public:
    HeldPages() = default;
    ~HeldPages() { drop(); }
    HeldPages(const HeldPages&) = delete;
    HeldPages& operator=(const HeldPages&) = delete;

    // False where that is not possible; the caller then reads the bytes, which gives the reason.
    bool take(int file, uint64_t offset, size_t length);
    size_t size() const { return held_ + tail_.size(); }

  private:
    friend class Channel;
    void drop();

    int out_ = -1, in_ = -1;  // of a pipe
    size_t held_ = 0;         // in it
    std::string tail_;        // what it had no room for: at most a page
    bool never_ = false;
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

    // Sends the mark and waits for the other's; `stopping` is polled several times a second; true ends the
    // wait. Errors: remote, with the printable part of what came instead; cancelled.
    Status greet(Clock::time_point deadline, const std::function<bool()>& stopping = {});
    // What came in place of the mark, once greet() has failed.
    const std::string& noise() const { return have_; }

    // Thread-safe. Errors: limit; remote when the other end is gone or takes nothing for `kPatience`.
    Status send(const Frame& frame) { return send(frame.text, frame.body); }
    Status send(std::string_view text, std::string_view body);
    // The body is the held pages, which are released. Only where passesPages().
    Status send(std::string_view text, HeldPages& body);
    bool passesPages() const { return socket_; }
    // Sends a frame that is worthless later: drops it when it would have to wait. Thread-safe.
    void offer(const Frame& frame);
    // Chooses the buffer for a body of `size` bytes by the text before it; empty = in the frame. Nothing is
    // written to the buffer once the frame was received or receive() has failed.
    using BodyBuffer = std::function<std::span<char>(const std::string& text, size_t size)>;
    // One thread at a time. nullopt when nothing whole has come by the deadline. Errors: remote (the other
    // end is gone), damaged (lengths that cannot be).
    Result<std::optional<Frame>> receive(Clock::time_point deadline, const BodyBuffer& buffer = {});

    // Reuses the memory of large bodies: fresh pages cost more than the copy into them. What take() returns
    // still has its former bytes. Thread-safe.
    std::string take(size_t size);
    void recycle(std::string body);

    // When bytes last came, and how many have come and gone in all. Thread-safe.
    Clock::time_point heard() const { return heard_.load(); }
    uint64_t bytesReceived() const { return received_.load(); }
    uint64_t bytesSent() const { return sent_.load(); }

    // Wakes the threads that wait here, with the error that the other end is gone. Thread-safe.
    void close();
    // Ends the receive() that waits, or else the next one, as at its deadline. Thread-safe.
    void interrupt();

    static constexpr std::chrono::seconds kPatience{30};

  private:
    Status fill(Clock::time_point deadline, bool& more);
    Status put(std::string_view text, std::string_view body);
    Status putParts(std::span<iovec> parts, bool more);
    Status putPages(HeldPages& pages);
    Status awaitRoom(Clock::time_point deadline);
    Status begin(const BodyBuffer& buffer);

    int in_, out_;
    bool socket_ = false;
    std::atomic<bool> closed_{false};
    int wakeRead_ = -1, wakeWrite_ = -1;
    int interrupt_ = -1;
    bool interrupted_ = false;  // of the thread that receives
    std::mutex sending_;
    std::string have_;             // received and not yet taken
    std::optional<Frame> coming_;  // whose body is to fill `into_`, and does up to `filled_`
    std::span<char> into_;
    size_t filled_ = 0;
    std::atomic<Clock::time_point> heard_{Clock::now()};
    std::atomic<uint64_t> received_{0}, sent_{0};
    std::mutex sparesMutex_;
    std::vector<std::string> spares_;
};

}  // namespace shardscope
