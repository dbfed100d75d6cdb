// The sizes of a model that its config.json or params.json states.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "model/value_view.h"

namespace shardscope {

// 0 = not stated.
struct ModelSizes {
    int64_t hidden = 0, intermediate = 0, vocabulary = 0, positions = 0;
    int64_t expert = 0;  // the intermediate size of one expert
    int64_t heads = 0, keyHeads = 0, headSize = 0;
    // Tensor-, pipeline- and expert-parallel degrees, stated by TensorRT-LLM.
    int64_t ranks = 0, stages = 0, expertRanks = 0;
    int64_t experts = 0;
    std::vector<int64_t> widths;  // of feed-forward layers, those of experts among them
};
// nullopt where the configuration is not a mapping.
std::optional<ModelSizes> modelSizesOf(ValueView config);

}  // namespace shardscope
