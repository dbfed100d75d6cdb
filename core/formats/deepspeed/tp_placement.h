// Finds how tensor-parallel ranks shard a parameter: from stored Megatron-DeepSpeed patterns, from --tp-dim,
// or from shapes, values and names. Private to this format.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/regular_expression.h"
#include "formats/deepspeed/states.h"
#include "formats/rank_cut.h"
#include "formats/tp_rule.h"

namespace shardscope::deepspeed {

struct Placement {
    Dims whole;
    std::vector<RankCut> shards;  // by tensor-parallel rank; hold nothing if `refused`
    std::string refused;          // why a fused parameter cannot be placed
};

struct TpShards {
    std::string_view name;
    std::vector<std::optional<Dims>> shapes;  // by tensor-parallel rank; nullopt = not known
    bool buffer = false;
    std::optional<bool> same;  // whether all ranks hold the same values
};

class TpPlacement {
  public:
    // Errors: usage for a --tp-dim that cannot be read.
    static Result<TpPlacement> read(const Entries& states, const OpenOptions& options);

    // Learns the model's width, which tells a sharded dimension from a whole one.
    void learnWidth(const std::vector<TpShards>& all);
    Placement place(const TpShards& shards) const;
    // How the patterns cut a parameter, for ranks that load it: along `dim`, each of `parts` by itself.
    struct Pattern {
        int64_t dim = 0, parts = 1;
        bool cuts = true;
        bool isVocabulary = false;  // padded to what the target has
    };
    Pattern patternOf(std::string_view name) const;
    bool hasPatterns() const { return hasPatterns_; }
    // Stored patterns that cannot be used.
    const std::vector<std::string>& refused() const { return refused_; }

  private:
    struct SubShape {
        std::vector<RegularExpression> patterns;
        int axis = 0;
        std::vector<int64_t> widths;
    };
    int axisOf(const TpShards& shards) const;
    std::vector<int64_t> widthsOf(std::string_view name, int axis, int64_t whole) const;
    void addPatterns(const std::vector<std::string>& texts, std::vector<RegularExpression>& patterns);
    void addSubShapes(ValueView list);

    bool hasPatterns_ = false;
    std::vector<RegularExpression> replicated_, averaged_, rows_, halves_, vocabulary_;
    std::vector<SubShape> subShapes_;
    std::vector<TpRule> stated_;
    std::vector<std::string> refused_;
    int64_t width_ = 0;
};

}  // namespace shardscope::deepspeed
