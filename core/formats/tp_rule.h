// The --tp-dim option: the user states which dimension tensor parallelism shards, for formats whose files do
// not say it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/names.h"
#include "base/result.h"
#include "formats/format.h"
#include "model/name_pattern.h"

namespace shardscope {

struct TpRule {
    static constexpr int kReplicated = -1;  // each rank holds the whole tensor
    // A rule: parameters whose names match `pattern` are sharded along `axis`.
    NamePattern pattern;
    std::string text;
    int axis = kReplicated;
};
inline constexpr const char* kTpDim = "--tp-dim";
FormatOption tpDimOption();
// "GLOB=1", "GLOB=none", as --tp-dim takes it. Errors: usage.
Result<TpRule> parseTpRule(const std::string& text);
// Those that the user gave, in order. Errors: usage.
Result<std::vector<TpRule>> tpRulesOf(const OpenOptions& options);

// Which fused projections, of which each rank holds a share of all parts, are read as one tensor: --variant
// fused-qkv=auto (those that the format knows by name) or fused-qkv=PATTERN,...
class FusedChoice {
  public:
    // `what` completes "the tensors that hold ...". Errors: usage for another variant.
    static Result<FusedChoice> parse(const std::string& variant, std::string_view what);
    bool isAutomatic() const { return automatic_; }
    bool names(std::string_view name) const { return anyMatches(patterns_, name); }

  private:
    bool automatic_ = false;
    std::vector<NamePattern> patterns_;
};

}  // namespace shardscope
