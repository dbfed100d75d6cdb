// Recognizes the files of torch before 1.6: pickles one after the other, of which the first is a magic
// number. Source: torch/serialization.py, _legacy_save(). Private to this room.
#pragma once

#include <string_view>

namespace shardscope::torch_save {

// Whether the bytes begin like a legacy (pre-1.6) torch.save file.
bool isLegacyStart(std::string_view firstBytes);

}  // namespace shardscope::torch_save
