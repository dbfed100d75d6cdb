#include "cli/words.h"

#include <algorithm>

namespace shardscope::cli {

std::vector<std::string> wordsWithout(const std::vector<std::string>& words,
                                      std::initializer_list<std::string_view> flags,
                                      std::initializer_list<std::string_view> options) {
    std::vector<std::string> kept;
    for (size_t i = 0; i < words.size(); ++i) {
        const std::string_view word = words[i];
        if (word == "--") {  // no options any more
            kept.insert(kept.end(), words.begin() + static_cast<ptrdiff_t>(i), words.end());
            break;
        }
        if (std::find(flags.begin(), flags.end(), word) != flags.end()) continue;
        bool left = false;
        for (const std::string_view option : options) {
            if (word == option) ++i;
            left = left || word == option ||
                   (word.starts_with(option) && word.substr(option.size()).starts_with('='));
        }
        if (!left) kept.emplace_back(word);
    }
    return kept;
}

}  // namespace shardscope::cli
