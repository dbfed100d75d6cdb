// Who waits in front of the page's server. A connection gets a thread of the server only once a whole request
// line and all headers have come. They have at most kMostHead bytes and come within kHeadTime. Until then it
// costs a descriptor and these bytes; of too many connections the one that has waited longest is closed. So
// nobody who lacks the token keeps others out, or makes the server grow.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace shardscope::serve {

struct PageConnection {
    int socket = -1;
    std::string bytes;                              // received, and not yet taken
    int requests = 0;                               // that it has had
    std::chrono::steady_clock::time_point until{};  // for what is awaited
};

class PageGate {
  public:
    static constexpr size_t kMostHead = 16 << 10;
    static constexpr size_t kMostWaiting = 256;
    static constexpr int kMostRequests = 200;  // of one connection
    static constexpr std::chrono::seconds kHeadTime{5};

    // Does one request, of which all headers are there; whether the connection stays for another one. Called
    // from `threads` threads.
    using Serve = std::function<bool(PageConnection& connection)>;
    PageGate(Serve serve, size_t threads);
    ~PageGate();  // closes what waits, and waits for what is served
    PageGate(const PageGate&) = delete;
    PageGate& operator=(const PageGate&) = delete;

    void add(int socket);  // owned from now on; thread-safe

  private:
    using Waiting = std::list<PageConnection>;
    void add(PageConnection connection);
    void watch();
    void look(Waiting& waiting, const std::vector<short>& events);
    bool receive(PageConnection& connection);
    void takeFresh(Waiting& waiting);
    void work();
    void wake() const;

    const Serve serve_;
    int wake_ = -1;  // an eventfd
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<PageConnection> fresh_, ready_;
    bool ending_ = false;
    std::vector<std::thread> threads_;
};

// Ends the connection, and what the other side still sends.
void closeConnection(const PageConnection& connection);

}  // namespace shardscope::serve
