// Regular expressions over untrusted names, in RE2's syntax: time linear in the text, no recursion, memory
// bounded. There are no back-references and no look-ahead. Text is matched byte by byte, so `.` is one byte
// of a multi-byte character. Immutable; all methods are thread-safe.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace re2 {
class RE2;
}

namespace shardscope {

class RegularExpression {
  public:
    // Errors: usage, with the reason and RE2's limits as a hint.
    static Result<RegularExpression> parse(std::string_view pattern);

    bool matchesWhole(std::string_view text) const;
    bool matchesPart(std::string_view text) const;
    // Matches all of `text`; then `groups` are the whole match and its groups, views of `text`. A group that
    // took no part is empty.
    bool matchWhole(std::string_view text, std::vector<std::string_view>& groups) const;

    // Replaces every match. In `replacement`, $1 to $99 are groups, $& is the match and $$ a dollar sign.
    std::string replaceAll(std::string_view text, std::string_view replacement) const;
    // `replacement` with the groups of matchWhole() put in.
    static std::string expand(std::string_view replacement, const std::vector<std::string_view>& groups);

  private:
    explicit RegularExpression(std::shared_ptr<const re2::RE2> compiled) : compiled_(std::move(compiled)) {}
    std::shared_ptr<const re2::RE2> compiled_;
};

}  // namespace shardscope
