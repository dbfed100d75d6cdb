// Patterns for tensor names, as users write them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/regular_expression.h"
#include "base/result.h"

namespace shardscope {

// Matches full tensor names: `*` any characters, `?` one, or "re:" and a regular expression that must match
// the whole name. Time is linear in the name (times the length of a glob).
class NamePattern {
  public:
    // Errors: usage for a malformed regular expression.
    static Result<NamePattern> parse(const std::string& text);
    bool matches(std::string_view name) const;

  private:
    std::string glob_;
    std::optional<RegularExpression> expression_;
};

bool anyMatches(const std::vector<NamePattern>& patterns, std::string_view name);

}  // namespace shardscope
