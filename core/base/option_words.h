// Options that a message advises, in the words of its reader: "--overwrite" on a command line,
// "overwrite=True" in Python, the name of the field in a window.
#pragma once

#include <string>
#include <string_view>

namespace shardscope {

// An option with its value, in the words of this process's user: ("fill-gaps", "zero"). `value` may be empty.
std::string option(std::string_view name, std::string_view value = {});
// As a command line does: of findings, which are remembered and read by all.
std::string commandOption(std::string_view name, std::string_view value = {});

// How this process words them from now on; commandOption() unless it is said.
using OptionWords = std::string (*)(std::string_view name, std::string_view value);
void wordOptions(OptionWords words);

}  // namespace shardscope
