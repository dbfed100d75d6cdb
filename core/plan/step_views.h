// What a step makes of the tensors that belong together. Private to this room.
#pragma once

#include <span>
#include <vector>

#include "plan/steps.h"

namespace shardscope {

// One view for each name that the step gives. Errors: usage, a sentence about the first tensor without its
// name.
Result<std::vector<TensorView>> stepViews(const RecipeStep& step, std::span<const TensorView> parts);

}  // namespace shardscope
