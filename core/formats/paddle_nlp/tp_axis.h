// Along which dimension tensor-parallel ranks cut a parameter. The files do not say, so it is concluded from
// what can be seen, with the reason; what stays open is for the user to state, never guessed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/paddle_nlp/model_meta.h"
#include "formats/tp_rule.h"
#include "model/name_pattern.h"

namespace shardscope::paddle_nlp {

// One rule of resources/paddlenlp/tensor_parallel.json.
struct FamilyRule {
    enum class Cut : uint8_t { none, first, last, head };
    Cut cut = Cut::none;
    int parts = 1;       // projections of which each rank holds its share, one behind the other
    bool heads = false;  // projections that alternate head by head
    std::string family;
    std::vector<NamePattern> patterns, exceptions;
};
const std::vector<FamilyRule>& familyRules();
// The first that matches; null when none does.
const FamilyRule* familyRuleOf(std::string_view name);

struct TpQuestion {
    std::string name;
    Dims local;                       // shape on each tensor-parallel rank
    std::optional<Dims> whole;        // shape of the whole, where a whole copy is stored
    std::optional<bool> distributed;  // as model_meta.json says
    // Of a sample of the parameter on all ranks.
    enum class Content : uint8_t { unknown, differs, same, sameConstant };
    Content content = Content::unknown;
};

struct TpAnswer {
    static constexpr int kReplicated = -1, kUnknown = -2;
    int axis = kUnknown;
    std::string why;  // completes "cut along dim 1 ..."; the same words for the same reason
    const FamilyRule* rule = nullptr;
};

// `degree` > 1. Errors: usage for a stated dimension that a tensor does not have; impossible for tensors of
// which the dimension cannot be known, naming them and the option.
Result<std::vector<TpAnswer>> concludeTpAxes(const std::vector<TpQuestion>& questions, uint32_t degree,
                                             const ModelConfig& config, const std::vector<TpRule>& stated);

}  // namespace shardscope::paddle_nlp
