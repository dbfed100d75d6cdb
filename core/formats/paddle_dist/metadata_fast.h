// The way of metadata as Paddle itself writes it, without a graph of values: rows are filled as the pickle
// goes by. Private to this format.
#pragma once

#include <optional>
#include <string_view>

#include "formats/paddle_dist/metadata.h"

namespace shardscope::paddle {

// Nullopt for anything but the plain form, errors and a stop included: then the general decoder has the last
// word. What it does return is what that decoder would.
std::optional<Metadata> decodeMetadataFast(const ReadFile& file, const Limits& limits, const StopToken& stop);

bool isMetadataModule(std::string_view module);

// Which fields were seen in the pickle, whatever their values.
struct SeenFields {
    bool dtype = false, global = false, replica = false, mapping = false, tensors = false;
};
Generation generationOf(const SeenFields& seen, bool flexModule);

}  // namespace shardscope::paddle
