// What transformers' model of a configuration wants of a checkpoint, or cannot take. Private to this room.
//
// Sources: transformers 5.24,
// models/{llama,mistral,qwen2,qwen3,gemma,gemma2,gemma3,olmo2,granite}/modeling_*.py and configuration_*.py
// (modules, biases, tied output layers), modeling_utils.py (from_pretrained), quantizers/auto.py.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "model/catalog.h"

namespace shardscope {

// Whether one of these stands in a name.
bool containsPart(std::string_view name, std::initializer_list<std::string_view> parts);

// "LlamaForCausalLM", of a config.json; empty where it does not say.
std::string classNamed(const nlohmann::json& config);

// Sentences, in order of weight; empty where nothing is known to be wrong. Names are Hugging Face's. Of every
// model: an adapter that is not merged, several models (an average, a critic), an output layer that is
// neither there nor tied, a layer that lacks what all others have. Also quantized weights whose configuration
// says nothing of them, and plain ones whose configuration does. Of dense models that are known by
// `model_type`: each tensor and its shape.
std::vector<std::string> modelGaps(const nlohmann::json& config, const std::string& modelType,
                                   const Catalog& target);

}  // namespace shardscope
