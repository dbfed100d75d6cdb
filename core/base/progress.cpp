#include "base/progress.h"

namespace shardscope {
namespace {

thread_local BusyTime* current = nullptr;

}  // namespace

BusyTime::BusyTime(Progress* progress, Progress::Work work)
    : outer_(current), progress_(progress), work_(work), begin_(std::chrono::steady_clock::now()) {
    current = this;
}

BusyTime::BusyTime(Progress::Work work) : BusyTime(current ? current->progress_ : nullptr, work) {}

BusyTime::~BusyTime() {
    current = outer_;
    const auto passed = static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - begin_)
            .count());
    if (outer_) outer_->others_ += passed;
    if (progress_ && passed > others_) progress_->addBusy(work_, passed - others_);
}

}  // namespace shardscope
