// Compares the values of tensors of two checkpoints, each read once, whatever their formats and shardings.
#pragma once

#include <utility>
#include <vector>

#include "execute/compare_values.h"
#include "execute/executor.h"

namespace shardscope {

// One of the two: a checkpoint as it is, or what a plan makes of it. Both pointers outlive the comparison.
struct ComparedSide {
    const Reader* reader = nullptr;
    const TargetSpec* spec = nullptr;  // null = as it is

    const Catalog& catalog() const { return spec ? spec->target : reader->catalog(); }
};

// The figures of each pair, in their order. Both tensors of a pair have the same shape and dtype. The figures
// do not depend on threads, memory or sharding. Errors: those of reading.
Result<std::vector<ValueFigures>> compareTensors(const ComparedSide& a, const ComparedSide& b,
                                                 const std::vector<std::pair<TensorId, TensorId>>& pairs,
                                                 const Resources& resources);

}  // namespace shardscope
