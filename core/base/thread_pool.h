// A fixed set of threads that loops are spread over. One per job (`Resources::pool`), which the caller of the
// engine owns.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/result.h"
#include "base/stop.h"

namespace shardscope {

// Cores that this process may use: those of its affinity mask, fewer where a cgroup limits its share of time.
// At least 1.
unsigned availableCores();

class ThreadPool {
  public:
    // 0 = as many as availableCores(). Fewer, even none, where the system starts no more.
    explicit ThreadPool(unsigned threads = 0);
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    unsigned size() const { return static_cast<unsigned>(threads_.size()); }

    // Runs body(i) for every i in [0, count) on the pool's threads and waits. Indices are handed out in
    // order. After an error, or when `stop` is raised, no new index starts. Of the errors of those that had
    // begun, the one of the lowest index is returned. The caller's thread works too, so nested calls cannot
    // deadlock.
    Status parallelFor(size_t count, const StopToken& stop, const std::function<Status(size_t)>& body);

  private:
    void work();

    std::mutex mutex_;
    std::condition_variable wake_;
    std::deque<std::function<void()>> queue_;
    bool ending_ = false;
    std::vector<std::thread> threads_;
};

// Held by code that makes this process's work wait most of the time, such as files on a network. While one
// exists, it pays to have more tasks in flight than there are cores.
class MostlyWaiting {
  public:
    static constexpr unsigned kThreads = 16;

    MostlyWaiting();
    ~MostlyWaiting();
    MostlyWaiting(const MostlyWaiting&) = delete;
    MostlyWaiting& operator=(const MostlyWaiting&) = delete;

    static bool any();
};

// The pool of the process for work that belongs to no job, such as opening a checkpoint. With the calling
// thread it has availableCores() threads, or kThreads where work mostly waits.
ThreadPool& sharedPool();

}  // namespace shardscope
