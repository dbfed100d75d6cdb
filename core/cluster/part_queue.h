// Which parts of one round of work are left, and who does them next. Not thread-safe.
#pragma once

#include <deque>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "execute/part_worker.h"

namespace shardscope {

class PartQueue {
  public:
    PartQueue() = default;
    // `orders` outlives the queue; those already `finished` are not given out.
    PartQueue(const std::vector<PartOrder>& orders, std::vector<bool> finished, size_t workers);

    size_t left() const { return left_; }
    // The next part for a worker. First comes one that failed, if this worker may have it. Then one of which
    // it has most data at hand, one that all have, and the last one of the worker with most left. `underWay`:
    // how many parts it has already.
    std::optional<size_t> next(size_t worker, size_t underWay, const std::set<size_t>& alive);
    // The order as a worker gets it.
    PartOrder order(size_t index) const;
    // Whether it failed before: then it is given out alone, so that no other part fails with it.
    bool isSuspect(size_t index) const { return attempts_[index].count > 0; }
    // Puts back a part that `worker` has not done. False once it has failed too often.
    bool requeue(size_t index, size_t worker, const std::set<size_t>& alive);
    size_t attempts(size_t index) const { return attempts_[index].count; }
    bool isFinished(size_t index) const { return finished_[index]; }
    void finish(size_t index);

  private:
    struct Attempts {
        size_t count = 0;
        std::set<size_t> workers;
    };
    bool mayHave(size_t worker, size_t index, size_t underWay, const std::set<size_t>& alive) const;

    const std::vector<PartOrder>* orders_ = nullptr;
    std::vector<bool> finished_;
    std::vector<Attempts> attempts_;
    std::vector<std::deque<size_t>> waiting_;  // what all have; then by the worker that has most of it
    std::deque<size_t> failed_;
    size_t left_ = 0;
};

}  // namespace shardscope
