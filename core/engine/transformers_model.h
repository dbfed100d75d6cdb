// What transformers' model of a configuration wants of a checkpoint, or cannot take. Private to this room.
//
// Sources: transformers 5.24, modeling_utils.py (from_pretrained), quantizers/auto.py; of each class of
// models model_table.h.
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

// Names that transformers takes or leaves: buffers that older releases saved, scales of weights that may be
// plain now, an output layer that may be tied, layers that predict further tokens, which it does not build.
bool mayDiffer(std::string_view name, const nlohmann::json& config);

// Sentences, in order of weight; empty where nothing is known to be wrong. Names are Hugging Face's. Of every
// model: an adapter that is not merged, several models (an average, a critic), quantized weights whose
// configuration says nothing of them, and plain ones whose configuration does. Of models that the table knows
// (model_table.h): each tensor and its shape. Of others: an output layer that is neither there nor tied, a
// layer that lacks what all others have, a module that lacks a part.
struct ModelGaps {
    bool known = false;  // the table says what such a model wants
    std::vector<std::string> why;
};
ModelGaps modelGaps(const nlohmann::json& config, const std::string& modelType, const Catalog& target);

}  // namespace shardscope
