// The names of nanotron's files, which state the ranks that a file belongs to. Private to this format.
//
// Source: nanotron/serialize/{utils,optimizer,random}.py.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace shardscope::nanotron {

inline constexpr char kMetadata[] = "checkpoint_metadata.json", kModelConfig[] = "model_config.json";
inline constexpr char kModel[] = "model", kOptimizer[] = "optimizer", kScheduler[] = "lr_scheduler",
                      kRandom[] = "random";

// In the order of nanotron's ranks; the last varies fastest.
enum Axis : uint8_t { expert, pipeline, data, tensor };
inline constexpr size_t kAxes = 4;
inline constexpr std::array<const char*, kAxes> kAxisNames{"exp", "pp", "dp", "tp"};

struct RankOf {
    std::array<std::optional<uint32_t>, kAxes> rank;  // empty for an axis that the name does not state
    std::array<uint32_t, kAxes> size{1, 1, 1, 1};
};

struct RankName {
    std::string base;  // the name before the ranks: "model_weight"; empty for random states
    RankOf of;
    std::vector<Axis> order;    // of the axes in the name
    std::string_view rankWord;  // "-rank", or empty where the name lacks it
    std::string ending;
    std::string text() const;
    // Calls `visit` with the names of all ranks along all axes but `fixed`. False, without a call, where
    // there are more than a million names.
    bool forEachRank(std::optional<Axis> fixed, const std::function<void(const RankName&)>& visit) const;
};
// Parses "model_weight_pp-rank-0-of-1_tp-rank-0-of-2.safetensors",
// "optimizer_pp-0-of-1_tp-0-of-2_exp-0-of-1.pt" and names without ranks. Empty where `name` has another
// ending. An invalid rank, such as 2 of 2, stays in RankName::base.
std::optional<RankName> parseRankName(std::string_view name, std::string_view ending);
// Parses the file name of a parameter; `base` is "model_" and the last component of the FQN. Empty for other
// files.
std::optional<RankName> parseModelFile(std::string_view name);

}  // namespace shardscope::nanotron
