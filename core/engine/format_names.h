// Formats by their names, as options and messages list them.
#pragma once

#include <string>
#include <vector>

#include "engine/engine.h"

namespace shardscope {

// Names and synonyms of the formats that are able to do this (reads, writes), sorted.
std::vector<std::string> formatNames(bool FormatInfo::*able);
std::string formatsHint();  // "formats: megatron, dcp, ..."
// That nothing is called this, with what may be meant.
Error notAFormat(const std::string& name);

}  // namespace shardscope
