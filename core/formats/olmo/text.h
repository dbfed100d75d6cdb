// Helpers for YAML text and names in OLMo's files. Private to this format.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace shardscope::olmo {

// The integer of a field such as "world_size: 4" in flat YAML; nullopt if absent.
std::optional<int64_t> yamlInteger(std::string_view text, std::string_view key);

// Removes the infix that FSDP adds to names.
std::string withoutWrapper(std::string_view name);

}  // namespace shardscope::olmo
