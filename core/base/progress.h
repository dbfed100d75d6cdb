// How far a long operation is. Workers add to the counters; a front end samples them (ten times a second is
// enough), so no call-back crosses threads.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

namespace shardscope {

class Progress {
  public:
    // Honest stages: bytes are "written" when handed to the system, "commit" covers fsync and rename.
    enum class Phase : uint8_t { open, read, write, verify, commit };

    static std::string_view phaseName(Phase phase) {
        constexpr std::string_view names[] = {"open", "read", "write", "verify", "commit"};
        return names[static_cast<int>(phase)];
    }

    // What threads do with their time; waiting for memory or for work does not count.
    enum class Work : uint8_t { read, compute, write };
    // Nanoseconds by Work, summed over threads; never falls, whatever the phase.
    using Busy = std::array<uint64_t, 3>;

    void begin(Phase phase, uint64_t bytesTotal) {
        phase_ = phase;
        done_ = 0;
        total_ = bytesTotal;
    }
    void add(uint64_t bytes) { done_.fetch_add(bytes, std::memory_order_relaxed); }
    void addBusy(Work work, uint64_t nanoseconds) {
        busy_[static_cast<size_t>(work)].fetch_add(nanoseconds, std::memory_order_relaxed);
    }
    void addBusy(const Busy& more) {
        for (size_t i = 0; i < more.size(); ++i)
            busy_[i].fetch_add(more[i], std::memory_order_relaxed);
    }
    void setTensor(std::string_view name) {
        std::lock_guard lock(mutex_);
        tensor_ = name;
    }

    Phase phase() const { return phase_; }
    uint64_t bytesDone() const { return done_; }
    uint64_t bytesTotal() const { return total_; }
    Busy busy() const { return {busy_[0], busy_[1], busy_[2]}; }
    std::string tensor() const {
        std::lock_guard lock(mutex_);
        return tensor_;
    }

  private:
    std::atomic<Phase> phase_{Phase::open};
    std::atomic<uint64_t> done_{0};
    std::atomic<uint64_t> total_{0};
    std::array<std::atomic<uint64_t>, 3> busy_{};
    mutable std::mutex mutex_;
    std::string tensor_;
};

// Counts this thread's time as one kind of work while it lives. Time under a nested BusyTime counts for the
// nested one alone. It reads the clock twice: use it for a tile or a piece of one, not for elements.
class BusyTime {
  public:
    BusyTime(Progress* progress, Progress::Work work);  // null: nothing is counted
    explicit BusyTime(Progress::Work work);             // for the progress of the enclosing one, if any
    ~BusyTime();
    BusyTime(const BusyTime&) = delete;
    BusyTime& operator=(const BusyTime&) = delete;

  private:
    BusyTime* const outer_;
    Progress* const progress_;
    const Progress::Work work_;
    const std::chrono::steady_clock::time_point begin_;
    uint64_t others_ = 0;  // nanoseconds of nested ones
};

}  // namespace shardscope
