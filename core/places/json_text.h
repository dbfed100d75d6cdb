// Text in what a service answers. Private to this room.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace shardscope {

// Empty where there is no such text.
inline std::string textOf(const nlohmann::json& json, const char* name) {
    const auto it = json.is_object() ? json.find(name) : json.end();
    return it != json.end() && it->is_string() ? it->get<std::string>() : std::string();
}

}  // namespace shardscope
