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

uint64_t MemoryBudget::peak() const {
    std::lock_guard lock(mutex_);
    return peak_;
}

MemoryBudget::Lease MemoryBudget::acquire(uint64_t bytes) {
    std::unique_lock lock(mutex_);
    freed_.wait(lock, [&] { return used_ == 0 || used_ + bytes <= limit_; });
    used_ += bytes;
    peak_ = std::max(peak_, used_);
    return Lease(*this, bytes);
}

void MemoryBudget::release(uint64_t bytes) {
    {
        std::lock_guard lock(mutex_);
        used_ -= bytes;
    }
    freed_.notify_all();
}

}  // namespace shardscope
