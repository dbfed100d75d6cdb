#include "base/memory_budget.h"

#include <algorithm>
#include <utility>

namespace shardscope {

MemoryBudget::Lease& MemoryBudget::Lease::operator=(Lease&& other) noexcept {
    std::swap(budget_, other.budget_);
    std::swap(bytes_, other.bytes_);
    return *this;
}

MemoryBudget::Lease::~Lease() {
    if (budget_) budget_->release(bytes_);
}

MemoryBudget::~MemoryBudget() {
    // They give back their leases.
    std::exchange(kept_, {}).clear();
}

uint64_t MemoryBudget::peak() const {
    std::lock_guard lock(mutex_);
    return peak_;
}

MemoryBudget::Lease MemoryBudget::acquire(uint64_t bytes) {
    std::unique_lock lock(mutex_);
    while (used_ != 0 && used_ + bytes > limit_) {
        if (kept_.empty()) {
            freed_.wait(lock);
            continue;
        }
        auto spares = std::exchange(kept_, {});
        lock.unlock();
        spares.clear();
        lock.lock();
    }
    used_ += bytes;
    peak_ = std::max(peak_, used_);
    return Lease(*this, bytes);
}

void MemoryBudget::keep(std::shared_ptr<void> spare) {
    {
        std::lock_guard lock(mutex_);
        kept_.push_back(std::move(spare));
    }
    freed_.notify_all();
}

std::shared_ptr<void> MemoryBudget::takeKept() {
    std::lock_guard lock(mutex_);
    if (kept_.empty()) return nullptr;
    std::shared_ptr<void> spare = std::move(kept_.back());
    kept_.pop_back();
    return spare;
}

void MemoryBudget::release(uint64_t bytes) {
    {
        std::lock_guard lock(mutex_);
        used_ -= bytes;
    }
    freed_.notify_all();
}

}  // namespace shardscope
