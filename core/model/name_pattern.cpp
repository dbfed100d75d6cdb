#include "model/name_pattern.h"

#include <optional>
#include <regex>

#include <fmt/format.h>

namespace shardscope {

namespace {

// The executor of std::regex that goes back recurses with every character of the name, and ends a process
// that matches a long one. Its other executor keeps all ways at once: slower, the same answer for a whole
// name, and no recursion on the name. It knows no back-references.
constexpr size_t kLongestRecursion = 4096;

struct Expression {
    std::regex plain;
    std::optional<std::regex> flat;
};

}  // namespace

Result<NamePattern> NamePattern::parse(const std::string& text) {
    NamePattern pattern;
    if (!text.starts_with("re:")) {
        pattern.glob_ = text;
        return pattern;
    }
    const std::string expression = text.substr(3);
    try {
        auto made = std::make_shared<Expression>();
        made->plain = std::regex(expression, std::regex::ECMAScript | std::regex::optimize);
        try {
            made->flat = std::regex(expression, std::regex::ECMAScript | std::regex_constants::__polynomial);
        } catch (const std::regex_error&) {
            made->flat.reset();  // it has back-references
        }
        pattern.regex_ = std::move(made);
    } catch (const std::regex_error& e) {
        return makeError(ErrorCode::usage,
                         fmt::format("'{}' is not a regular expression: {}", expression, e.what()));
    }
    return pattern;
}

bool NamePattern::matches(std::string_view name) const {
    if (regex_) {
        const auto& expression = *static_cast<const Expression*>(regex_.get());
        if (name.size() <= kLongestRecursion)
            return std::regex_match(name.begin(), name.end(), expression.plain);
        return expression.flat && std::regex_match(name.begin(), name.end(), *expression.flat);
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
