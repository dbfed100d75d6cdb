// The limit on buffer memory that all work of one job shares.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace shardscope {

// The default budget of a process, in bytes.
constexpr uint64_t kStandardMemory = uint64_t{512} << 20;

class MemoryBudget {
  public:
    explicit MemoryBudget(uint64_t bytes) : limit_(bytes) {}
    ~MemoryBudget();
    MemoryBudget(const MemoryBudget&) = delete;
    MemoryBudget& operator=(const MemoryBudget&) = delete;

    uint64_t limit() const { return limit_; }
    uint64_t peak() const;

    // A share of the budget; gives it back when destroyed.
    class Lease {
      public:
        Lease() = default;
        Lease(MemoryBudget& budget, uint64_t bytes) : budget_(&budget), bytes_(bytes) {}
        Lease(Lease&& other) noexcept : budget_(other.budget_), bytes_(other.bytes_) {
            other.budget_ = nullptr;
        }
        Lease& operator=(Lease&& other) noexcept;
        ~Lease();

      private:
        MemoryBudget* budget_ = nullptr;
        uint64_t bytes_ = 0;
    };

    // Waits until `bytes` are free. A request above the whole limit waits until nothing else is leased, then
    // passes. So work that cannot be cut smaller continues, alone.
    Lease acquire(uint64_t bytes);

    // Keeps a buffer that holds a lease and is not in use, for the next takeKept(). Kept buffers are freed
    // before acquire() would wait. Fresh memory costs the system more than most work that is done in it.
    void keep(std::shared_ptr<void> spare);
    std::shared_ptr<void> takeKept();  // null when nothing is kept

  private:
    void release(uint64_t bytes);

    const uint64_t limit_;
    mutable std::mutex mutex_;
    std::condition_variable freed_;
    uint64_t used_ = 0;
    uint64_t peak_ = 0;
    std::vector<std::shared_ptr<void>> kept_;
};

}  // namespace shardscope
