// Names of tensors that repeat from layer to layer.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace shardscope {

// A name around its first part that is a number: "model.layers.", 17, ".mlp.w1".
struct LayerName {
    std::string_view before, after;
    int64_t number = -1;  // negative = there is none
};
LayerName splitLayer(std::string_view name);
// "0–16,18", of numbers in any order.
std::string numbersText(std::vector<int64_t> numbers);

// The expert that a name speaks of: "model.layers.17.mlp.experts.", 3.
struct ExpertName {
    std::string_view group;
    int64_t number = -1;  // negative = none
};
ExpertName splitExpert(std::string_view name);

}  // namespace shardscope
