// What is stated about a model's sizes beside its weights: a Hugging Face config.json, Meta's params.json,
// Megatron-Bridge's run_config.yaml, ms-swift's args.json, Megatron's arguments. Private to this room.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/result.h"
#include "base/stop.h"
#include "plan/plan.h"
#include "storage/file_system.h"

namespace shardscope {

constexpr uint64_t kMostConfig = uint64_t{16} << 20;  // bytes
constexpr const char* kRunConfig = "run_config.yaml";
// The text of such a file, as an object; null where it is none, or nested beyond all reason. Of a
// run_config.yaml the integers and booleans of its section `model`, and those of `peft` under that name.
nlohmann::json parseConfig(std::string_view file, const std::string& text);

struct StatedConfig {
    nlohmann::json values;  // null = none
    std::string file;       // "config.json"
};
std::string modelTypeOf(const StatedConfig& config);  // "llama"; empty where it does not say

struct Checkpoint;
// What the first such file says: of the checkpoint's directory, of huggingface/ in it, else of `model`. That
// is a directory, which may be empty, "auto" or "none" (ConversionRequest::assets). Never null.
std::shared_ptr<const StatedConfig> statedConfig(const Checkpoint& checkpoint, const std::string& model);
// What the first such file of a directory says. Only numbers are taken from it, and checked where they are
// used.
StatedConfig readConfig(const Directory& directory);

// The integers and booleans of Megatron's arguments, an argparse.Namespace among a checkpoint's objects; null
// where there are none. `value` reads an object.
nlohmann::json argumentsIn(const Catalog& catalog, const std::function<Result<Value>(ObjectId)>& value);

// An integer, or a boolean as 0 or 1.
std::optional<int64_t> integerOf(const nlohmann::json& value);
// "a.b" is the entry of that name, or b inside a.
std::optional<int64_t> numberIn(const nlohmann::json& config, const std::string& key);

// Compares what a conversion would write with the model in `directory`. If that has weights, their names and
// shapes count, else the layers, experts and vocabulary that its config.json states. What is not accounted
// for goes to `impossible`. Errors: usage (neither is there), those of opening.
Status checkExpected(const std::string& directory, const Catalog& target, const StopToken& stop,
                     std::vector<PlanLeftOut>& impossible);

}  // namespace shardscope
