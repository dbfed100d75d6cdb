// Finds the dimension along which tensor-parallel ranks shard a parameter. The files do not state it: it
// follows from shapes, contents and names, with a reason. Nothing is guessed; the user states what stays
// open.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/tp_rule.h"
#include "model/model_sizes.h"
#include "model/name_pattern.h"

namespace shardscope::paddle_nlp {

// One rule of resources/paddlenlp/tensor_parallel.json.
struct FamilyRule {
    enum class Cut : uint8_t { none, first, last, head };
    Cut cut = Cut::none;
    int parts = 1;       // fused projections, one after the other; each rank holds a share of each
    bool heads = false;  // the projections alternate head by head
    std::string family;
    std::vector<NamePattern> patterns, exceptions;
};
const std::vector<FamilyRule>& familyRules();
// The first rule that matches; null if none does.
const FamilyRule* familyRuleOf(std::string_view name);

struct TpQuestion {
    std::string name;
    Dims local;                       // shape of each tensor-parallel rank's shard
    std::optional<Dims> whole;        // whole shape, if a whole tensor is stored
    std::optional<bool> distributed;  // as model_meta.json says
    // How samples of the parameter compare between ranks.
    enum class Content : uint8_t { unknown, differs, same, sameConstant };
    Content content = Content::unknown;
};

struct TpAnswer {
    static constexpr int kReplicated = -1, kUnknown = -2;
    int axis = kUnknown;
    std::string why;  // completes "sharded along dim 1 ..."; equal text for equal reasons
    const FamilyRule* rule = nullptr;
};

// Returns one answer for each question. `degree` > 1. Errors: usage for a stated dimension that a tensor does
// not have; impossible for tensors whose dimension is unknown; the message names them and the option.
Result<std::vector<TpAnswer>> concludeTpAxes(const std::vector<TpQuestion>& questions, uint32_t degree,
                                             const ModelSizes& config, const std::vector<TpRule>& stated);

}  // namespace shardscope::paddle_nlp
