#include "model/name_pattern.h"

#include <algorithm>

namespace shardscope {

Result<NamePattern> NamePattern::parse(const std::string& text) {
    NamePattern pattern;
    if (text.starts_with("re:")) {
        SHARDSCOPE_ASSIGN(pattern.expression_, RegularExpression::parse(text.substr(3)));
    } else {
        pattern.glob_ = text;
    }
    return pattern;
}

bool NamePattern::matches(std::string_view name) const {
    if (expression_) return expression_->matchesWhole(name);
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

bool anyMatches(const std::vector<NamePattern>& patterns, std::string_view name) {
    return std::any_of(patterns.begin(), patterns.end(),
                       [&](const NamePattern& p) { return p.matches(name); });
}

}  // namespace shardscope
