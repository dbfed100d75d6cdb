#include "model/name_pattern.h"

#include <regex>

#include <fmt/format.h>

namespace shardscope {

Result<NamePattern> NamePattern::parse(const std::string& text) {
    NamePattern pattern;
    if (!text.starts_with("re:")) {
        pattern.glob_ = text;
        return pattern;
    }
    try {
        pattern.regex_ =
            std::make_shared<const std::regex>(text.substr(3), std::regex::ECMAScript | std::regex::optimize);
    } catch (const std::regex_error& e) {
        return makeError(ErrorCode::usage,
                         fmt::format("'{}' is not a regular expression: {}", text.substr(3), e.what()));
    }
    return pattern;
}

bool NamePattern::matches(std::string_view name) const {
    if (regex_) {
        return std::regex_match(name.begin(), name.end(), *static_cast<const std::regex*>(regex_.get()));
    }
    // Glob with one backtrack point: linear in practice, quadratic at worst.
    size_t p = 0;
    size_t n = 0;
    size_t star = std::string::npos;
    size_t resume = 0;
    while (n < name.size()) {
        if (p < glob_.size() && glob_[p] == '*') {
            star = p++;
            resume = n;
        } else if (p < glob_.size() && (glob_[p] == '?' || glob_[p] == name[n])) {
            ++p;
            ++n;
        } else if (star != std::string::npos) {
            p = star + 1;
            n = ++resume;
        } else {
            return false;
        }
    }
    while (p < glob_.size() && glob_[p] == '*')
        ++p;
    return p == glob_.size();
}

}  // namespace shardscope
