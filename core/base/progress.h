// How far a long operation is. Workers add to the counters; a front end samples them (ten times a second is enough),
// so no call-back crosses threads.
#pragma once

#include <atomic>
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

    void begin(Phase phase, uint64_t bytesTotal) {
        phase_ = phase;
        done_ = 0;
        total_ = bytesTotal;
    }
    void add(uint64_t bytes) { done_.fetch_add(bytes, std::memory_order_relaxed); }
    void setTensor(std::string_view name) {
        std::lock_guard lock(mutex_);
        tensor_ = name;
    }

    Phase phase() const { return phase_; }
    uint64_t bytesDone() const { return done_; }
    uint64_t bytesTotal() const { return total_; }
    std::string tensor() const {
        std::lock_guard lock(mutex_);
        return tensor_;
    }

  private:
    std::atomic<Phase> phase_{Phase::open};
    std::atomic<uint64_t> done_{0};
    std::atomic<uint64_t> total_{0};
    mutable std::mutex mutex_;
    std::string tensor_;
};

}  // namespace shardscope
