// The words of a command line, for those that pass it on.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace shardscope::cli {

// Without these flags, and without these options and their values ("--x VALUE" and "--x=VALUE").
std::vector<std::string> wordsWithout(const std::vector<std::string>& words,
                                      std::initializer_list<std::string_view> flags,
                                      std::initializer_list<std::string_view> options);

}  // namespace shardscope::cli
