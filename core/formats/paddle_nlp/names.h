// Parses the names of rank files and of optimizer state in PaddleNLP's hybrid-parallel checkpoints. Sources:
// paddlenlp/trainer/training_args.py (_format_name), transformers/model_utils.py (_add_variant),
// paddle/optimizer/optimizer.py (_add_accumulator), paddlenlp/trainer/utils/reshard/common.py (pack_keys).
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/path.h"

namespace shardscope::paddle_nlp {

// Coordinates of a rank; ranks of several pipeline stages first.
struct RankPlace {
    uint32_t pp = 0, tp = 0, moe = 0, shard = 0;
    auto operator<=>(const RankPlace&) const = default;
    // Without the sharding rank.
    bool sameGroup(const RankPlace& other) const {
        return pp == other.pp && tp == other.tp && moe == other.moe;
    }
};

// "optimizer.tp01_pp00_shard03.pdopt". A coordinate that the name lacks is kNotNamed.
constexpr uint32_t kNotNamed = UINT32_MAX;
struct RankFileName {
    bool optimizer = false;  // false = weights
    std::string base;        // "optimizer", "model_state", "lora_model_state", ...
    uint32_t tp = kNotNamed, pp = kNotNamed, shard = kNotNamed, moe = kNotNamed;
    bool placed() const {
        return tp != kNotNamed || pp != kNotNamed || shard != kNotNamed || moe != kNotNamed;
    }
    RankPlace place() const {  // 0 for what the name lacks
        const auto at = [](uint32_t named) { return named == kNotNamed ? 0 : named; };
        return {at(pp), at(tp), at(moe), at(shard)};
    }
};
std::optional<RankFileName> parseRankFileName(std::string_view name);
std::string formatRankFileName(const RankFileName& name);

// "tp01_pp00" -> {1, 0}; "" -> {0, 0}. Such names are keys of model_meta.json and in
// shard_meta.tp01_pp00.json.
std::optional<std::pair<uint32_t, uint32_t>> parseGroupName(std::string_view name);
std::string formatGroupName(uint32_t tp, uint32_t pp);

// Parameter and state of an optimizer entry. "linear_0.w_0_fp32_master_0_moment1_0" is state "moment1" of
// "linear_0.w_0". "master_weights.linear_0.w_0" (or "...slice@linear_0.w_0") is its "master_weight".
struct StateName {
    std::string parameter;  // static name
    std::string state;
    bool sliced = false;  // the name marks a slice of sharding stage 3
};

// The known static names. Finds the one that a key begins with.
class StaticNames {
  public:
    void add(std::string_view name);
    void finish();  // call once, after the last add()
    bool contains(std::string_view name) const;
    // The longest known name that `key` begins with, followed by "_"; empty if there is none. "w_1" does not
    // match "w_10_moment1_0".
    std::string_view prefixOf(std::string_view key) const;

  private:
    std::vector<std::string> names_;
};

// `path`: the keys that lead to the entry. Without a known name the ending decides; nullopt if Paddle's
// optimizers do not use that ending.
std::optional<StateName> parseStateName(const Path& path, const StaticNames& known);

// Splits a key of a unified checkpoint, "model.norm.weight/moment1_0", into parameter and state. nullopt
// without "/".
std::optional<StateName> parseUnifiedKey(std::string_view key);

// "optimizer-00001-of-00002.safetensors", "optimizer.tp00_pp00_shard00.safetensors", "model.safetensors".
struct UnifiedFileName {
    enum class Kind : uint8_t { weights, optimizer, masters };
    Kind kind = Kind::weights;
    uint32_t number = 0, total = 0;  // from 1; 0 = the name has no number
    RankFileName at;                 // placed() for rank files
};
std::optional<UnifiedFileName> parseUnifiedFileName(std::string_view name);

// Splits "linear_12.w_0" into "linear" and 12, to sort the names of one kind.
std::optional<std::pair<std::string_view, uint64_t>> numberedLayer(std::string_view staticName);

}  // namespace shardscope::paddle_nlp
