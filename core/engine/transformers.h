// Whether transformers loads what a conversion writes. Private to this room.
#pragma once

#include <string>
#include <vector>

#include "engine/engine.h"

namespace shardscope {

// A directory of safetensors: a model's, as far as its format goes.
bool isForTransformers(const PreparedConversion& prepared);
// Why from_pretrained() will not load it, sentences; none where nothing speaks against it, or where nobody
// means to. Reads the configuration that is copied.
std::vector<std::string> whyUnloadable(const PreparedConversion& prepared);

}  // namespace shardscope
