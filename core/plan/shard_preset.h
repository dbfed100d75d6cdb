// Rules that shard as frameworks do, under one word each: for --shard, recipes, window and page.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plan/plan.h"

namespace shardscope {

struct ShardPreset {
    std::string_view word;   // "tensor-parallel"
    std::string_view title;  // "Tensor parallel"
    std::string_view axis;   // that it shards over, unless another one is named
    std::string_view about;  // a sentence
};
// tensor-parallel: the layers of a transformer (model/tp_layers.h), optimizer state as its parameter. fsdp:
// every tensor along dimension 0.
std::span<const ShardPreset> shardPresets();

// Adds a preset's rules. Both presets, in either order, come to the same: what both axes shard, one rule says
// of both. So `fsdp` also shards over its axis what the rules that are there shard, and stands last.
// `first`: in front of the other rules, for the first match wins.
void addPreset(std::vector<ShardRule>& rules, const ShardPreset& preset, const std::string& axis,
               bool first = false);

// "GLOB:tp=0,dp=0", or a preset: "tensor-parallel", "fsdp:AXIS". Errors: usage.
Status addShardRule(std::vector<ShardRule>& rules, std::string_view text);
// Rules to be shown and edited, presets as theirs. A malformed text stays as a pattern without dimensions,
// which is written as it was.
std::vector<ShardRule> editableShardRules(std::span<const std::string> texts);

}  // namespace shardscope
