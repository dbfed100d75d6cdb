// What the rules of `validate` mean, for people: one table for command line, window and reports.
#pragma once

#include <span>
#include <string_view>

#include "base/rule.h"
#include "validate/validate.h"

namespace shardscope {

struct RuleInfo {
    std::string_view id;       // rule::coverageGap; stable
    ValidateLevel level;       // the lowest level that can find it
    std::string_view title;    // "Elements that no chunk holds"
    std::string_view meaning;  // what it says about the checkpoint
    std::string_view remedy;   // what to do about it
};

std::span<const RuleInfo> validationRules();
const RuleInfo* findRule(std::string_view id);  // nullptr when there is no such rule

}  // namespace shardscope
