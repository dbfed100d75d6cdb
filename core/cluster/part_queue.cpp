#include "cluster/part_queue.h"

#include <algorithm>
#include <utility>

namespace shardscope {
namespace {

constexpr size_t kMostAttempts = 3;

}  // namespace

PartQueue::PartQueue(const std::vector<PartOrder>& orders, std::vector<bool> finished, size_t workers)
    : orders_(&orders), finished_(std::move(finished)), attempts_(orders.size()), waiting_(workers + 1) {
    for (size_t i = 0; i < orders.size(); ++i) {
        if (finished_[i]) continue;
        ++left_;
        const int home = orders[i].home;
        waiting_[home < 0 || static_cast<size_t>(home) >= workers ? 0 : static_cast<size_t>(home) + 1]
            .push_back(i);
    }
}

PartOrder PartQueue::order(size_t index) const {
    PartOrder order = (*orders_)[index];
    order.retry = order.retry || isSuspect(index);
    return order;
}

std::optional<size_t> PartQueue::next(size_t worker, size_t underWay, const std::set<size_t>& alive) {
    const auto failed =
        std::ranges::find_if(failed_, [&](size_t index) { return mayHave(worker, index, underWay, alive); });
    if (failed != failed_.end()) {
        const size_t index = *failed;
        failed_.erase(failed);
        return index;
    }
    if (waiting_.empty()) return std::nullopt;
    for (std::deque<size_t>* queue : {&waiting_[worker + 1], &waiting_[0]}) {
        if (queue->empty()) continue;
        const size_t index = queue->front();
        queue->pop_front();
        return index;
    }
    auto& most = *std::ranges::max_element(waiting_, {}, &std::deque<size_t>::size);
    if (most.empty()) return std::nullopt;
    const size_t index = most.back();
    most.pop_back();
    return index;
}

// To another worker than before, as long as there is one.
bool PartQueue::mayHave(size_t worker, size_t index, size_t underWay, const std::set<size_t>& alive) const {
    const Attempts& attempts = attempts_[index];
    return underWay == 0 &&
           (!attempts.workers.contains(worker) ||
            std::ranges::all_of(alive, [&](size_t other) { return attempts.workers.contains(other); }));
}

bool PartQueue::requeue(size_t index, size_t worker, const std::set<size_t>& alive) {
    Attempts& attempts = attempts_[index];
    ++attempts.count;
    attempts.workers.insert(worker);
    if (attempts.count >= kMostAttempts && (attempts.workers.size() >= 2 || alive.size() <= 1)) return false;
    failed_.push_back(index);
    return true;
}

void PartQueue::finish(size_t index) {
    finished_[index] = true;
    --left_;
}

}  // namespace shardscope
