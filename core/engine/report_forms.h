// What was found, in the forms that CI systems read: JUnit XML; annotations of GitHub's workflows;
// SARIF 2.1.0 (OASIS; GitHub's code scanning); GitLab's code quality report. Findings of severity info are
// left out of all but SARIF; what somebody has accepted is not a failure in any.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/report.h"

namespace shardscope {

// A checkpoint, or a step of a run.
struct JudgedPath {
    std::string path;  // as it is shown
    ValidationReport report;
    std::vector<Suppression> accepted = {};
};

enum class ReportForm : uint8_t { text, json, html, junit, github, gitlab, sarif };
// Those that this header writes, with the names that options have for them.
std::span<const std::pair<const char*, ReportForm>> ciForms();
// In one of ciForms(), with a line feed at its end.
std::string validationForm(ReportForm form, std::span<const JudgedPath> judged);
std::string validationJunit(const std::string& path, const ValidationReport& report,
                            const std::vector<Suppression>& accepted = {});

// One HTML file for the steps of a run, in the order in which they were judged, as validationHtml() is for
// one checkpoint. `resume`: path of the newest whole step, empty = none.
std::string runHtml(const std::string& path, std::span<const JudgedPath> steps, ValidateLevel level,
                    const std::string& resume);

// Most examples of a finding that reports show.
inline constexpr size_t kMostExamplesShown = 50;
// Of a finding with a cause, what it is about: "rank 22, 678 tensors", as far as its examples are all. Empty
// = its message has said it.
std::string aboutText(const Finding& finding);
std::string exampleText(const FindingExample& example);  // "model.weight, [0:4], rank 3, a.distcp, byte 12"

}  // namespace shardscope
