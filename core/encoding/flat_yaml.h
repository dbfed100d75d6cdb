// The fields at the root of a YAML text that a program has dumped, one in a line.
#pragma once

#include <algorithm>
#include <string_view>

namespace shardscope {

// Calls visit(key, value) for each "key: value"; the value is as it stands there, without spaces around it.
template <class Visit>
void forYamlFields(std::string_view text, Visit&& visit) {
    while (!text.empty()) {
        const std::string_view line = text.substr(0, text.find('\n'));
        text.remove_prefix(std::min(line.size() + 1, text.size()));
        const size_t colon = line.find(':');
        if (colon == line.npos || line[0] == ' ') continue;
        constexpr std::string_view kSpaces = " \t\r";
        const size_t first = std::min(line.find_first_not_of(kSpaces, colon + 1), line.size());
        visit(line.substr(0, colon),
              line.substr(first, std::max(line.find_last_not_of(kSpaces) + 1, first) - first));
    }
}

}  // namespace shardscope
