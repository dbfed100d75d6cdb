// The words with which verbs say how they judge, and what they print of it.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "answers/validation.h"
#include "cli/text.h"
#include "engine/report_forms.h"

namespace shardscope::cli {

// --level. It is kept by reference.
void addLevel(CLI::App& verb, ValidateLevel& level, const std::string& description);
// --level and --no-accepted. `words` is kept by reference: it must live as long as the verb.
void addJudging(CLI::App& verb, ValidateRequest& words, const std::string& level);
// The same with a path, --expect and --examples.
void addValidateWords(CLI::App& verb, ValidateRequest& words);

// An option for the form of a report: those of CI systems and `more`. `form` is kept by reference.
void addForm(CLI::App& verb, const std::string& name, ReportForm& form, const std::string& description,
             std::map<std::string, ReportForm> more);
// validationForm() with what misleads a reader or drives a terminal escaped where that changes nothing.
std::string formOf(ReportForm form, const std::vector<JudgedPath>& judged);

void printFinding(const Finding& finding, const Style& style, size_t indent = 0);
// Those that count, then those that somebody has accepted, with the reason.
void printFindings(const ValidationReport& report, const std::vector<Suppression>& accepted,
                   const Style& style, size_t indent = 0, Severity least = Severity::info);
std::string coloredVerdict(Verdict verdict, const Style& style);

}  // namespace shardscope::cli
