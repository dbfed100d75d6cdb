// The text of resources/paddlenlp/tensor_parallel.json, which the build embeds.
#pragma once

#include <string_view>

namespace shardscope::paddle_nlp {

extern const std::string_view kFamilyRules;

}  // namespace shardscope::paddle_nlp
