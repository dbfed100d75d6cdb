// Whether the transformers library loads what a conversion writes. Private to this room.
#pragma once

#include <string>
#include <vector>

#include "engine/engine.h"

namespace shardscope {

// Whether the destination has the format of a transformers model: a directory of safetensors files.
bool isForTransformers(const PreparedConversion& prepared);
// Why from_pretrained() will not load the destination, one sentence for each reason; empty if nothing speaks
// against loading. Reads the config.json that is copied.
std::vector<std::string> whyUnloadable(const PreparedConversion& prepared);

}  // namespace shardscope
