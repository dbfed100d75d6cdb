// Projections that were fused into one parameter and cut rank by rank: --variant fused-qkv=auto, or
// =PATTERN,...
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
    bool wants(std::string_view name) const;  // its parts are to be laid out one by one
    bool names(std::string_view name) const;  // the user named it

  private:
    bool automatic_ = false;
    std::vector<NamePattern> patterns_;
};

// The chunk itself, or one for each projection.
std::vector<PlannedChunk> splitFused(const PlannedChunk& planned, const Layout& layout);

}  // namespace shardscope::paddle_nlp
