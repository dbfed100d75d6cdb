// Texts of OLMo's files. Private to this format.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace shardscope::olmo {

// "world_size: 4" in a YAML text of plain fields; nullopt when absent.
std::optional<int64_t> yamlInteger(std::string_view text, std::string_view key);

// Without the infix that FSDP puts into names.
std::string withoutWrapper(std::string_view name);

}  // namespace shardscope::olmo
