// Recipes (--map FILE.json): what to do with names and dtypes, kept in a file. docs/cli.md describes the
// fields.
#pragma once

#include <string>

#include "base/result.h"
#include "plan/plan.h"

namespace shardscope {

// Adds the recipe's steps to `request`, before those that are already there. Errors: usage, with the
// offending field.
Status applyRecipe(const std::string& path, ConvertRequest& request);

}  // namespace shardscope
