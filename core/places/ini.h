// A parser for the configuration files of AWS tools: sections, "name = value", comments, and values that are
// indented blocks ("s3 =" followed by "  addressing_style = path"). Pure functions.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace shardscope {

using IniSection = std::map<std::string, std::string, std::less<>>;  // "s3.addressing_style" for nested ones
using Ini = std::map<std::string, IniSection, std::less<>>;

// Skips lines of any other form, as the tools do.
Ini parseIni(std::string_view text);

}  // namespace shardscope
