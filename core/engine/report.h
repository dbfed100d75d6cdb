// A validation report as others read it: JSON (shardscope.validate/1), one HTML file that needs nothing else,
// JUnit XML for CI.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <utility>

#include "engine/engine.h"

namespace shardscope {

// A finding that somebody has looked at and accepted; known by its rule and cause.
struct Suppression {
    std::string rule, cause, reason;
};

// The verdict that is left when accepted findings do not count.
Verdict verdictWithout(const ValidationReport& report, const std::vector<Suppression>& suppressions);
const Suppression* suppressionOf(const Finding& finding, const std::vector<Suppression>& suppressions);

std::string validationJson(const ValidationReport& report);  // compact
// The same backwards. Errors: damaged.
Result<ValidationReport> validationFromJson(std::string_view text);
std::string validationJunit(const std::string& path, const ValidationReport& report,
                            const std::vector<Suppression>& suppressions = {});
// With what the checkpoint holds; every text from the checkpoint is escaped.
std::string validationHtml(const Checkpoint& checkpoint, const ValidationReport& report,
                           const std::vector<Suppression>& suppressions = {});

}  // namespace shardscope
