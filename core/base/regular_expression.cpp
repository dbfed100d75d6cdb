#include "base/regular_expression.h"

#include <fmt/format.h>
#include <re2/re2.h>

#include "base/text.h"

namespace shardscope {

namespace {

std::string_view viewOf(const re2::StringPiece& piece) {
    return piece.data() ? std::string_view(piece.data(), piece.size()) : std::string_view();
}

std::vector<std::string_view> viewsOf(const std::vector<re2::StringPiece>& pieces) {
    std::vector<std::string_view> views;
    for (const re2::StringPiece& piece : pieces)
        views.push_back(viewOf(piece));
    return views;
}

}  // namespace

Result<RegularExpression> RegularExpression::parse(std::string_view pattern) {
    re2::RE2::Options options(re2::RE2::Latin1);  // names need not be UTF-8
    options.set_log_errors(false);
    auto compiled =
        std::make_shared<const re2::RE2>(re2::StringPiece(pattern.data(), pattern.size()), options);
    if (!compiled->ok()) {
        return makeError(ErrorCode::usage, fmt::format("'{}' is not a regular expression: {}",
                                                       printable(pattern, 200), printable(compiled->error())))
            .withHint("expressions have RE2's syntax: back-references and look-ahead are not supported");
    }
    return RegularExpression(std::move(compiled));
}

bool RegularExpression::matchesWhole(std::string_view text) const {
    return re2::RE2::FullMatchN({text.data(), text.size()}, *compiled_, nullptr, 0);
}

bool RegularExpression::matchesPart(std::string_view text) const {
    return re2::RE2::PartialMatchN({text.data(), text.size()}, *compiled_, nullptr, 0);
}

bool RegularExpression::matchWhole(std::string_view text, std::vector<std::string_view>& groups) const {
    std::vector<re2::StringPiece> found(static_cast<size_t>(compiled_->NumberOfCapturingGroups()) + 1);
    if (!compiled_->Match({text.data(), text.size()}, 0, text.size(), re2::RE2::ANCHOR_BOTH, found.data(),
                          static_cast<int>(found.size())))
        return false;
    groups = viewsOf(found);
    return true;
}

std::string RegularExpression::replaceAll(std::string_view text, std::string_view replacement) const {
    std::vector<re2::StringPiece> found(static_cast<size_t>(compiled_->NumberOfCapturingGroups()) + 1);
    const re2::StringPiece whole(text.data(), text.size());
    std::string out;
    size_t at = 0;      // where the search begins
    size_t copied = 0;  // up to here `out` has the text
    while (at <= text.size() && compiled_->Match(whole, at, text.size(), re2::RE2::UNANCHORED, found.data(),
                                                 static_cast<int>(found.size()))) {
        const auto begin = static_cast<size_t>(found[0].data() - text.data());
        const size_t end = begin + found[0].size();
        out += text.substr(copied, begin - copied);
        out += expand(replacement, viewsOf(found));
        copied = end;
        at = end > begin ? end : end + 1;  // past an empty match, whose next byte is copied as it is
    }
    return out += text.substr(copied);
}

std::string RegularExpression::expand(std::string_view replacement,
                                      const std::vector<std::string_view>& groups) {
    const auto digitAt = [&](size_t i) {
        return i < replacement.size() && replacement[i] >= '0' && replacement[i] <= '9' ? replacement[i] - '0'
                                                                                        : -1;
    };
    std::string out;
    for (size_t i = 0; i < replacement.size(); ++i) {
        const char next = i + 1 < replacement.size() ? replacement[i + 1] : '\0';
        if (replacement[i] != '$') {
            out += replacement[i];
        } else if (next == '$') {
            out += '$';
            ++i;
        } else if (next == '&') {
            if (!groups.empty()) out += groups[0];
            ++i;
        } else if (digitAt(i + 1) >= 0) {
            // Two digits where there are as many groups, as ECMAScript has it.
            size_t group = static_cast<size_t>(digitAt(i + 1));
            ++i;
            if (digitAt(i + 1) >= 0 && group * 10 + static_cast<size_t>(digitAt(i + 1)) < groups.size()) {
                group = group * 10 + static_cast<size_t>(digitAt(i + 1));
                ++i;
            }
            if (group < groups.size()) out += groups[group];
        } else {
            out += '$';
        }
    }
    return out;
}

}  // namespace shardscope
