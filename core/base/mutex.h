// A mutex whose users clang checks. Members say with SHARDSCOPE_GUARDED_BY(mutex_) what they need, functions
// with SHARDSCOPE_REQUIRES(mutex_) what their callers hold. -Wthread-safety, on in builds with clang, refuses
// code that does otherwise. Other compilers see a std::mutex.
// https://clang.llvm.org/docs/ThreadSafetyAnalysis.html
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#ifdef __clang__
#define SHARDSCOPE_THREAD_ATTRIBUTE(x) __attribute__((x))
#else
#define SHARDSCOPE_THREAD_ATTRIBUTE(x)
#endif
#define SHARDSCOPE_GUARDED_BY(mutex) SHARDSCOPE_THREAD_ATTRIBUTE(guarded_by(mutex))
#define SHARDSCOPE_REQUIRES(...) SHARDSCOPE_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define SHARDSCOPE_EXCLUDES(...) SHARDSCOPE_THREAD_ATTRIBUTE(locks_excluded(__VA_ARGS__))
#define SHARDSCOPE_ACQUIRED_BEFORE(...) SHARDSCOPE_THREAD_ATTRIBUTE(acquired_before(__VA_ARGS__))

namespace shardscope {

class SHARDSCOPE_THREAD_ATTRIBUTE(capability("mutex")) Mutex {
  public:
    void lock() SHARDSCOPE_THREAD_ATTRIBUTE(acquire_capability()) { mutex_.lock(); }
    void unlock() SHARDSCOPE_THREAD_ATTRIBUTE(release_capability()) { mutex_.unlock(); }

  private:
    friend class MutexLock;
    std::mutex mutex_;
};

// Holds a mutex for a scope, but for what is between unlock() and lock().
class SHARDSCOPE_THREAD_ATTRIBUTE(scoped_lockable) MutexLock {
  public:
    explicit MutexLock(Mutex& mutex) SHARDSCOPE_THREAD_ATTRIBUTE(acquire_capability(mutex))
        : lock_(mutex.mutex_) {}
    ~MutexLock() SHARDSCOPE_THREAD_ATTRIBUTE(release_capability()) {}
    MutexLock(const MutexLock&) = delete;
    MutexLock& operator=(const MutexLock&) = delete;

    void lock() SHARDSCOPE_THREAD_ATTRIBUTE(acquire_capability()) { lock_.lock(); }
    void unlock() SHARDSCOPE_THREAD_ATTRIBUTE(release_capability()) { lock_.unlock(); }

  private:
    friend class Condition;
    std::unique_lock<std::mutex> lock_;
};

// A condition variable of a Mutex. The analysis does not follow a lock into a lambda: a predicate that reads
// guarded members says so itself, `[this]() SHARDSCOPE_REQUIRES(mutex_) { return ended_; }`.
class Condition {
  public:
    void wait(MutexLock& lock) { condition_.wait(lock.lock_); }
    template <class Predicate>
    void wait(MutexLock& lock, Predicate predicate) {
        condition_.wait(lock.lock_, std::move(predicate));
    }
    template <class Rep, class Period>
    std::cv_status wait_for(MutexLock& lock, std::chrono::duration<Rep, Period> time) {
        return condition_.wait_for(lock.lock_, time);
    }
    template <class Rep, class Period, class Predicate>
    bool wait_for(MutexLock& lock, std::chrono::duration<Rep, Period> time, Predicate predicate) {
        return condition_.wait_for(lock.lock_, time, std::move(predicate));
    }
    template <class Clock, class Duration>
    std::cv_status wait_until(MutexLock& lock, std::chrono::time_point<Clock, Duration> time) {
        return condition_.wait_until(lock.lock_, time);
    }
    template <class Clock, class Duration, class Predicate>
    bool wait_until(MutexLock& lock, std::chrono::time_point<Clock, Duration> time, Predicate predicate) {
        return condition_.wait_until(lock.lock_, time, std::move(predicate));
    }
    void notify_one() { condition_.notify_one(); }
    void notify_all() { condition_.notify_all(); }

  private:
    std::condition_variable condition_;
};

}  // namespace shardscope
