// What a Hugging Face config.json says about a model's size. Private to this room.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/result.h"
#include "base/stop.h"
#include "plan/plan.h"

namespace shardscope {

// The config.json of a directory, or the params.json in its place; null where it is missing, unreadable or no
// object. Only numbers are taken from it, and checked where they are used.
nlohmann::json readConfig(const std::string& directory);

// A whole number, or a truth as 0 or 1.
std::optional<int64_t> integerOf(const nlohmann::json& value);
// "a.b" is the entry of that name, or b inside a.
std::optional<int64_t> numberIn(const nlohmann::json& config, const std::string& key);

// Compares what a conversion would write with the model in `directory`: with the names and shapes of its
// weights where it has some, else with the layers, experts and vocabulary that its config.json states. What
// is not accounted for goes to `impossible`. Errors: usage (neither is there), those of opening.
Status checkExpected(const std::string& directory, const Catalog& target, const StopToken& stop,
                     std::vector<PlanLeftOut>& impossible);

}  // namespace shardscope
