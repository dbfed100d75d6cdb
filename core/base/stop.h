// Cancellation: a flag that one side raises and the other polls; being cancelled is an ordinary error.
#pragma once

#include <atomic>

#include "base/result.h"

namespace shardscope {

// Raising it is safe in a signal handler. Must outlive its tokens.
class StopSource {
  public:
    void requestStop() { flag_.store(true, std::memory_order_relaxed); }
    bool stopRequested() const { return flag_.load(std::memory_order_relaxed); }

  private:
    friend class StopToken;
    std::atomic<bool> flag_{false};
};

// Copyable view of a StopSource; a default one never stops.
class StopToken {
  public:
    StopToken() = default;
    StopToken(const StopSource& source) : flag_(&source.flag_) {}

    bool stopRequested() const { return flag_ && flag_->load(std::memory_order_relaxed); }
    Status poll() const {
        if (stopRequested()) return makeError(ErrorCode::cancelled, "canceled");
        return {};
    }

  private:
    const std::atomic<bool>* flag_ = nullptr;
};

// Sets the stop token of the work that this thread does. Waits behind interfaces without a token, such as a
// read of a file on a network, poll it. The innermost scope counts.
class StopScope {
  public:
    explicit StopScope(StopToken stop) : outer_(current()) { current() = stop; }
    ~StopScope() { current() = outer_; }
    StopScope(const StopScope&) = delete;
    StopScope& operator=(const StopScope&) = delete;

    static StopToken& current() {
        static thread_local StopToken stop;
        return stop;
    }

  private:
    const StopToken outer_;
};

}  // namespace shardscope
