// Pages from templates that are part of the program. Private to this room.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace shardscope {

// For HTML and XML alike, and for people: as printable(), but for line ends and tabs.
std::string escapedMarkup(std::string_view text);

// Puts values into a template. {{name}} stands for a field, escaped, and {{.}} for what a section is about.
// {{#name}}...{{/name}} is there for each item of a list, or once unless the field is missing, false, zero or
// empty. {{^name}}...{{/name}} is there when the other is not. A section holds none of its own name.
std::string fillTemplate(std::string_view text, const nlohmann::json& values);

}  // namespace shardscope
