// Parses the names of nanotron's files, which state the ranks that wrote them. Private to this format.
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

// In the order of nanotron's ranks: the last varies fastest.
enum Axis : uint8_t { expert, pipeline, data, tensor };
inline constexpr size_t kAxes = 4;
inline constexpr std::array<const char*, kAxes> kAxisNames{"exp", "pp", "dp", "tp"};

struct RankOf {
    std::array<std::optional<uint32_t>, kAxes> rank;  // nullopt for an axis that the name lacks
    std::array<uint32_t, kAxes> size{1, 1, 1, 1};
};

struct RankName {
    std::string base;  // before the ranks: "model_weight", "optimizer"; empty = random states
    RankOf of;
    std::vector<Axis> order;    // order of the axes in the name
    std::string_view rankWord;  // "-rank" if the name has it
    std::string ending;
    std::string text() const;
    // Calls `visit` with the names of all ranks along every axis except `fixed`. False if there are more than
    // a million.
    bool forEachRank(std::optional<Axis> fixed, const std::function<void(const RankName&)>& visit) const;
};
// "model_weight_pp-rank-0-of-1_tp-rank-0-of-2.safetensors", "optimizer_pp-0-of-1_tp-0-of-2_exp-0-of-1.pt",
// names without ranks; nullopt if a rank is not below its size.
std::optional<RankName> parseRankName(std::string_view name, std::string_view ending);
// As parseRankName(), for the file of a parameter; `base` is its last component only.
std::optional<RankName> parseModelFile(std::string_view name);

}  // namespace shardscope::nanotron
