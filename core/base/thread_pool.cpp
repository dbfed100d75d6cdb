#include "base/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <system_error>

#include <sched.h>

#include "base/first_error.h"

namespace shardscope {

namespace {

// Cores that a cgroup's quota amounts to; nullopt without one. `directory` is a cgroup of version 2 or of
// version 1's cpu controller (Documentation/admin-guide/cgroup-v2.rst and scheduler/sched-bwc.rst of Linux).
std::optional<double> quotaOf(const std::string& directory) {
    double quota = 0, period = 0;
    if (std::ifstream both(directory + "/cpu.max"); both >> quota >> period) {
    } else {
        std::ifstream(directory + "/cpu.cfs_quota_us") >> quota;
        std::ifstream(directory + "/cpu.cfs_period_us") >> period;
    }
    if (quota <= 0 || period <= 0) return std::nullopt;
    return quota / period;
}

// The least quota of this process's cgroup and those above it.
std::optional<double> cgroupCores() {
    std::optional<double> least;
    std::ifstream groups("/proc/self/cgroup");
    for (std::string line; std::getline(groups, line);) {
        // "0::/path" of version 2, "7:cpu,cpuacct:/path" of version 1.
        const size_t first = line.find(':');
        const size_t second = first == line.npos ? line.npos : line.find(':', first + 1);
        if (second == line.npos) continue;
        const std::string controllers = line.substr(first + 1, second - first - 1);
        const bool cpu = ("," + controllers + ",").find(",cpu,") != line.npos;
        if (!controllers.empty() && !cpu) continue;
        const std::string mount = controllers.empty() ? "/sys/fs/cgroup" : "/sys/fs/cgroup/" + controllers;
        for (std::string path = line.substr(second + 1);; path.resize(path.rfind('/'))) {
            const auto quota = quotaOf(path == "/" ? mount : mount + path);
            if (quota && (!least || *quota < *least)) least = quota;
            if (path.find('/') == path.npos) break;
        }
    }
    return least;
}

}  // namespace

unsigned availableCores() {
    static const unsigned cores = [] {
        unsigned count = std::max(1U, std::thread::hardware_concurrency());
        cpu_set_t mask;
        if (sched_getaffinity(0, sizeof mask, &mask) == 0)
            count = std::clamp(static_cast<unsigned>(CPU_COUNT(&mask)), 1U, count);
        if (const auto quota = cgroupCores())
            count = std::clamp(static_cast<unsigned>(std::ceil(*quota)), 1U, count);
        return count;
    }();
    return cores;
}

ThreadPool::ThreadPool(unsigned threads) {
    if (threads == 0) threads = availableCores();
    threads_.reserve(threads);
    try {
        for (unsigned i = 0; i < threads; ++i)
            threads_.emplace_back([this] { work(); });
    } catch (const std::system_error&) {
        // A limit of processes or memory is reached. Fewer do as well, and who calls works in any case.
    }
}

ThreadPool::~ThreadPool() {
    {
        std::lock_guard lock(mutex_);
        ending_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_)
        thread.join();
}

namespace {
std::atomic<unsigned> waiting{0};
}  // namespace

MostlyWaiting::MostlyWaiting() {
    ++waiting;
}
MostlyWaiting::~MostlyWaiting() {
    --waiting;
}
bool MostlyWaiting::any() {
    return waiting > 0;
}

ThreadPool& sharedPool() {
    if (MostlyWaiting::any()) {
        static auto& large = *new ThreadPool(std::max(MostlyWaiting::kThreads, availableCores()) - 1);
        return large;
    }
    // Never ended: in a process that was forked its threads are gone, and nobody could wait for them. Loops
    // are then done by those who call.
    static auto& pool = *new ThreadPool(std::max(2U, availableCores()) - 1);
    return pool;
}

void ThreadPool::work() {
    for (;;) {
        std::function<void()> task;
        {
            std::unique_lock lock(mutex_);
            wake_.wait(lock, [this] { return ending_ || !queue_.empty(); });
            if (queue_.empty()) return;
            task = std::move(queue_.front());
            queue_.pop_front();
        }
        task();
    }
}

Status ThreadPool::parallelFor(size_t count, const StopToken& stop,
                               const std::function<Status(size_t)>& body) {
    struct Shared {
        std::atomic<size_t> next{0};
        std::atomic<bool> failed{false};
        std::mutex mutex;
        std::condition_variable finished;
        size_t running = 0;
        FirstError error;
    };
    if (count == 0) return {};
    auto shared = std::make_shared<Shared>();
    const std::function<Status(size_t)>* bodyPointer = &body;

    // `body` and `stop` live in the caller's frame; a helper registers in `running` before it touches them,
    // and the caller leaves only when no helper is registered and none can register any more (next >= count
    // or failed).
    auto drain = [count, bodyPointer, stop](Shared& s) {
        const StopScope scope(stop);
        for (;;) {
            if (s.failed.load(std::memory_order_acquire)) return;
            const size_t index = s.next.fetch_add(1);
            if (index >= count) return;
            Status status = stop.poll();
            if (status.ok()) status = (*bodyPointer)(index);
            if (!status.ok()) {
                std::lock_guard lock(s.mutex);
                s.error.add(index, std::move(status).error());
                s.failed.store(true, std::memory_order_release);
                return;
            }
        }
    };

    const size_t helpers = std::min<size_t>(threads_.size(), count - 1);
    {
        std::lock_guard lock(mutex_);
        for (size_t i = 0; i < helpers; ++i) {
            queue_.emplace_back([shared, drain, count] {
                {
                    std::lock_guard guard(shared->mutex);
                    if (shared->failed || shared->next.load() >= count) return;
                    ++shared->running;
                }
                drain(*shared);
                std::lock_guard guard(shared->mutex);
                if (--shared->running == 0) shared->finished.notify_all();
            });
        }
    }
    wake_.notify_all();
    drain(*shared);

    std::unique_lock lock(shared->mutex);
    shared->next.store(count);
    shared->finished.wait(lock, [&] { return shared->running == 0; });
    return shared->error.take();
}

}  // namespace shardscope
