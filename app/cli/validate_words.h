// What `validate` and `report` share: which checkpoint, how deep, against what; and the doing of it.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "cli/application.h"
#include "cli/text.h"
#include "engine/suppressions.h"
#include "execute/part_reading.h"

namespace shardscope::cli {

struct ValidateWords {
    std::string path;
    ValidateLevel level = ValidateLevel::files;
    std::string expect;
    size_t examples = 100;    // most that are listed for a finding
    bool noAccepted = false;  // judge as if no finding had been accepted
    bool accepted = false;    // structural findings that were accepted do not count either
};

// --level. It is kept by reference.
void addLevel(CLI::App& verb, ValidateLevel& level, const std::string& description);
// --level and --no-accepted. `words` is kept by reference: it must live as long as the verb.
void addJudging(CLI::App& verb, ValidateWords& words, const std::string& level);
// The same with a path, --expect and --examples.
void addValidateWords(CLI::App& verb, ValidateWords& words);

// Those of the accepted findings that do not count.
std::vector<Suppression> honored(const ValidateWords& words, std::vector<Suppression> accepted);
// The findings of a checkpoint that do not count.
std::vector<Suppression> acceptedBy(const ValidateWords& words, const std::string& path);

struct Validated {
    Checkpoint checkpoint;
    ValidationReport report;
};
Result<Validated> openAndValidate(const Context& context, const ValidateWords& words);
// The same of one that is open.
Result<ValidationReport> validateOpen(const Context& context, const Checkpoint& checkpoint,
                                      const ValidateWords& words);
// The same in parts, with level `values`: the report where this process completes it.
struct ValidatedInParts {
    ReadInParts read;
    ValidationReport report;
};
Result<ValidatedInParts> validateInParts(const Context& context, const Checkpoint& checkpoint,
                                         const ValidateWords& words, const Parts& parts,
                                         const std::string& records);

void printFinding(const Finding& finding, const Style& style, size_t indent = 0);
// Those that count, then those that somebody has accepted, with the reason.
void printFindings(const ValidationReport& report, const std::vector<Suppression>& accepted,
                   const Style& style, size_t indent = 0, Severity least = Severity::info);
std::string coloredVerdict(Verdict verdict, const Style& style);

}  // namespace shardscope::cli
