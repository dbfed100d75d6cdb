// A validation report as others read it: JSON (shardscope.validate/1) and one HTML file that needs nothing
// else. What CI systems read is in report_forms.h.
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
    std::string by = {}, at = {};  // who accepted it, and when: "2026-11-02T04:10:00Z"; empty = not known
    bool operator==(const Suppression&) const = default;
};

// The verdict that is left when accepted findings do not count.
Verdict verdictWithout(const ValidationReport& report, const std::vector<Suppression>& suppressions);
const Suppression* suppressionOf(const Finding& finding, const std::vector<Suppression>& suppressions);

const char* verdictSentence(Verdict verdict);  // "Whole"

// The result of a validation, the same in window, page and command line.
struct Judgement {
    Verdict verdict = Verdict::safe;  // accepted findings do not count
    bool stopped = false;             // only a part of the values was read
    size_t errors = 0, warnings = 0, accepted = 0;
    bool partly() const { return stopped && verdict == Verdict::safe; }  // says nothing about the rest
    std::string found() const;                                           // "2 errors, 1 finding accepted"
    std::string words() const;  // "Do not resume: 2 errors, 1 finding accepted"
};
Judgement judgementOf(const ValidationReport& report, const std::vector<Suppression>& suppressions);
// Whether a finding that nobody has accepted is this severe.
bool anyAsSevere(const ValidationReport& report, const std::vector<Suppression>& suppressions,
                 Severity severity);

// Compact JSON. Each finding says whether it is accepted; `verdict` does not count accepted ones.
// `mostExamples`: of each finding.
std::string validationJson(const ValidationReport& report, const std::vector<Suppression>& suppressions = {},
                           size_t mostExamples = SIZE_MAX);
// Reads validationJson(). Errors: damaged.
Result<ValidationReport> validationFromJson(std::string_view text);
// With a summary of the checkpoint; every text from the checkpoint is escaped.
std::string validationHtml(const Checkpoint& checkpoint, const ValidationReport& report,
                           const std::vector<Suppression>& suppressions = {});

}  // namespace shardscope
