// Options whose value is one of some words.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/similar.h"
#include "engine/request.h"

namespace shardscope::cli {

// The words stand in the validator's name, for completions (choicesOfOption).
constexpr const char* kOneOf = "one of";

// The option takes one of these words. (CLI11's own transformer names the enumerators' numbers in its
// errors.)
template <class T>
CLI::Validator oneOf(const std::map<std::string, T>& words) {
    std::string name = kOneOf;
    for (const auto& [word, value] : words)
        name += "\n" + word;
    return CLI::Validator(
        [words](std::string& input) -> std::string {
            if (const auto it = words.find(input); it != words.end()) {
                input = CLI::detail::value_string(it->second);
                return {};
            }
            std::string all;
            std::vector<std::string> known;
            for (const auto& [word, value] : words) {
                all += (all.empty() ? "" : ",") + word;
                known.push_back(word);
            }
            const std::string meant = didYouMean(input, known);
            return input + " not in {" + all + "}" + (meant.empty() ? "" : "; " + meant);
        },
        "", name);
}

inline CLI::Validator oneOf(const std::vector<std::string>& words) {
    std::map<std::string, std::string> same;
    for (const std::string& word : words)
        same.emplace(word, word);
    return oneOf(same);
}

// The same of a choice that a conversion has.
template <class T>
CLI::Validator oneOf() {
    std::map<std::string, T> words;
    for (const auto& [name, choice] : choicesOf(T{}))
        words.emplace(name, choice);
    return oneOf(words);
}

// All values that an option takes; empty = any.
std::vector<std::string> choicesOfOption(CLI::Option& option);

}  // namespace shardscope::cli
