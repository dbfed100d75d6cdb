// What a job tells files of which each read is a request. Private to this room.
#pragma once

#include <memory>
#include <vector>

#include "base/memory_budget.h"
#include "execute/tensor_reader.h"

namespace shardscope {

// While it lives, the files of the source expect to be read once, where these tensors are. It holds a quarter
// of the job's budget for them, which leaves room for what tensors hold and for a tile. A job has one at a
// time. Files that are not read by requests are told nothing.
class ReadPlan {
  public:
    ReadPlan(const SourceContext& context, const std::vector<TensorId>& tensors);
    bool isActive() const { return !plans_.empty(); }

  private:
    MemoryBudget::Lease lease_;
    std::vector<std::shared_ptr<void>> plans_;  // of files
};

}  // namespace shardscope
