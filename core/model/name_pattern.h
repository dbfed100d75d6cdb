// Patterns for tensor names, as users write them.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace shardscope {

// Matches full tensor names: `*` any characters, `?` one, or "re:" and a regular expression that must match
// the whole name.
class NamePattern {
  public:
    // Errors: usage for a malformed regular expression.
    static Result<NamePattern> parse(const std::string& text);
    bool matches(std::string_view name) const;

  private:
    std::string glob_;
    std::shared_ptr<const void> regex_;
};

}  // namespace shardscope
