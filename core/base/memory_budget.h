// The limit on buffer memory that all work of one job shares.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace shardscope {

// What a process takes where nobody says: bytes.
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

    // Waits until `bytes` are free. A request above the whole limit waits until nothing else is leased and
    // then passes, so that work that cannot be cut smaller still continues, alone.
    Lease acquire(uint64_t bytes);

    // Something that holds a lease and that nobody uses now: it stays for the next one, until somebody would
    // have to wait. Fresh memory costs the system more than what most work does in it.
    void keep(std::shared_ptr<void> spare);
    std::shared_ptr<void> takeKept();  // null = there is none

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
