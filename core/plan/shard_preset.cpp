#include "plan/shard_preset.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "model/tp_layers.h"
#include "plan/request_text.h"

namespace shardscope {

namespace {

constexpr ShardPreset kShardPresets[] = {
    {"tensor-parallel", "Tensor parallel", "tp",
     "As Megatron-LM, torchtitan and vLLM do: column-parallel layers along dim 0, row-parallel ones along "
     "dim 1, norms whole, optimizer state as its parameter."},
    {"fsdp", "FSDP", "dp", "As FSDP2 does: every tensor along dim 0."},
};
constexpr std::string_view kAllNames = "*";

// What follows the parameter's name is an optimizer's moment.
std::string layersPattern(bool columns) {
    std::vector<std::string_view> modules;
    for (const TpLayer& layer : tpLayers()) {
        if (layer.naming & kAnyNaming && (layer.cut == TpCut::columns) == columns)
            modules.push_back(layer.module);
    }
    return fmt::format(R"(re:(.*\.)?({})\.{}(\..*)?)", fmt::join(modules, "|"),
                       columns ? "weight" : "(weight|bias)");
}

bool shardsOver(const ShardRule& rule, const std::string& axis) {
    return std::ranges::any_of(rule.axisDims, [&](const auto& dim) { return dim.first == axis; });
}

// All names along dimension 0, as fsdp has it.
bool isOfAll(const ShardRule& rule) {
    return rule.pattern == kAllNames && rule.axisDims.size() == 1 && rule.axisDims[0].second == 0;
}

void addForAll(std::vector<ShardRule>& rules, const std::string& axis) {
    bool there = false;
    for (ShardRule& rule : rules) {
        if (!shardsOver(rule, axis)) rule.axisDims.emplace_back(axis, 0);
        there = there || rule.pattern == kAllNames;
    }
    if (!there) rules.push_back({std::string(kAllNames), {{axis, 0}}});
}

// What "tensor-parallel" or "fsdp:AXIS" names, and the mesh axis; null for other texts.
const ShardPreset* presetNamed(std::string_view text, std::string& axis) {
    const size_t colon = text.find(':');
    const auto* preset = std::ranges::find(kShardPresets, text.substr(0, colon), &ShardPreset::word);
    if (preset == std::end(kShardPresets)) return nullptr;
    const std::string_view named = colon == text.npos ? preset->axis : text.substr(colon + 1);
    if (named.empty() || named.find_first_of("=,:") != named.npos) return nullptr;
    axis = named;
    return preset;
}

}  // namespace

std::span<const ShardPreset> shardPresets() {
    return kShardPresets;
}

void addPreset(std::vector<ShardRule>& rules, const ShardPreset& preset, const std::string& axis,
               bool first) {
    if (&preset != &kShardPresets[0]) return addForAll(rules, axis);
    const auto all = std::ranges::find_if(rules, isOfAll);
    std::vector<ShardRule> made;
    for (const bool columns : {false, true}) {
        ShardRule rule{layersPattern(columns), {{axis, columns ? 1 : 0}}};
        if (all != rules.end() && !shardsOver(rule, all->axisDims[0].first))
            rule.axisDims.push_back(all->axisDims[0]);
        const bool there = std::ranges::any_of(rules, [&](const ShardRule& other) {
            return other.pattern == rule.pattern && other.axisDims == rule.axisDims;
        });
        if (!there) made.push_back(std::move(rule));
    }
    rules.insert(first ? rules.begin() : all, made.begin(), made.end());
}

Status addShardRule(std::vector<ShardRule>& rules, std::string_view text) {
    std::string axis;
    if (const ShardPreset* preset = presetNamed(text, axis)) {
        addPreset(rules, *preset, axis);
        return {};
    }
    SHARDSCOPE_ASSIGN(ShardRule rule, parseShardRule(text));
    rules.push_back(std::move(rule));
    return {};
}

std::vector<ShardRule> editableShardRules(std::span<const std::string> texts) {
    std::vector<ShardRule> rules;
    for (const std::string& text : texts) {
        if (!addShardRule(rules, text).ok()) rules.push_back({text, {}});
    }
    return rules;
}

}  // namespace shardscope
