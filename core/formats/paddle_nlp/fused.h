// Splits fused projections of which each rank holds a share: --variant fused-qkv=auto or
// fused-qkv=PATTERN,...
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/paddle_nlp/pieces.h"
#include "model/name_pattern.h"

namespace shardscope::paddle_nlp {

class FusedChoice {
  public:
    // Errors: usage.
    static Result<FusedChoice> parse(const std::string& variant);
    bool wants(std::string_view name) const;  // whether to split this parameter
    bool names(std::string_view name) const;  // whether a pattern of the user matches

  private:
    bool automatic_ = false;
    std::vector<NamePattern> patterns_;
};

// Returns one chunk for each projection, or the chunk itself.
std::vector<PlannedChunk> splitFused(const PlannedChunk& planned, const Layout& layout);

}  // namespace shardscope::paddle_nlp
