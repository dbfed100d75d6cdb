// Options that a message advises, in the words of its reader: "--overwrite" on a command line,
// "overwrite=True" in Python, the name of the field in a window.
#pragma once

#include <string>
#include <string_view>

namespace shardscope {

// An option with its value, in the words of this process's user: ("fill-gaps", "zero"). `value` may be empty.
std::string option(std::string_view name, std::string_view value = {});
// The option as a command line spells it. Findings use this form: they are stored, and every front end reads
// them.
std::string commandOption(std::string_view name, std::string_view value = {});

// Sets how option() words options in this process. The default is commandOption().
using OptionWords = std::string (*)(std::string_view name, std::string_view value);
void wordOptions(OptionWords words);

}  // namespace shardscope
