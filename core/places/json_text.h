// What the answers of services say: members of their JSON, and why they failed. Private to this room.
#pragma once

#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "places/http.h"

namespace shardscope {

// The member `name` of an object; empty where it is not a string.
inline std::string textOf(const nlohmann::json& json, const char* name) {
    const auto it = json.is_object() ? json.find(name) : json.end();
    return it != json.end() && it->is_string() ? it->get<std::string>() : std::string();
}

// Why an answer is not good.
inline std::string failureOf(const HttpAnswer& answer) {
    return answer.failed.empty() ? fmt::format("status {}", answer.status) : answer.failed;
}

}  // namespace shardscope
