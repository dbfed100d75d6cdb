#include "base/names.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/numbers.h"

namespace shardscope {

bool isAmong(std::string_view text, std::initializer_list<std::string_view> all) {
    return std::ranges::find(all, text) != all.end();
}

bool isDigits(std::string_view text) {
    return !text.empty() && text.find_first_not_of("0123456789") == text.npos;
}

std::string_view takeLastPart(std::string_view& name) {
    const size_t dot = name.rfind('.');
    const std::string_view last = name.substr(dot == name.npos ? 0 : dot + 1);
    name = dot == name.npos ? std::string_view() : name.substr(0, dot);
    return last;
}

std::optional<NumberInName> NumberInName::behind(std::string_view name, std::string_view word, int64_t most) {
    const size_t found = name.find(word);
    return found == name.npos ? std::nullopt : at(name, found + word.size(), most);
}

std::optional<NumberInName> NumberInName::at(std::string_view name, size_t begin, int64_t most) {
    std::string_view rest = name.substr(begin);
    const auto number = takeNumber<int64_t>(rest, most);
    if (!number) return std::nullopt;
    return NumberInName{begin, name.size() - rest.size(), *number};
}

std::string NumberInName::with(std::string_view name, int64_t other) const {
    return fmt::format("{}{}{}", before(name), other, name.substr(end));
}

NumberedName::NumberedName(std::string_view name) {
    for (size_t at = 0; at < name.size();) {
        uint64_t number = 0;
        size_t end = at;
        for (; end < name.size() && name[end] >= '0' && name[end] <= '9'; ++end)
            number = number * 10 + static_cast<uint64_t>(name[end] - '0');
        if (end > at) numbers.push_back(number);
        text += end > at ? '#' : name[at];
        at = std::max(end, at + 1);
    }
}

std::string withoutNumbers(std::string_view name) {
    return NumberedName(name).text;
}

}  // namespace shardscope
