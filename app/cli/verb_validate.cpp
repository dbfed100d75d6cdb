#include <fmt/format.h>

#include "cli/application.h"
#include "cli/json.h"
#include "cli/one_of.h"
#include "cli/part_option.h"
#include "cli/runs.h"
#include "cli/text.h"
#include "cli/validate_words.h"
#include "engine/report.h"

namespace shardscope::cli {
namespace {

struct ValidateOptions {
    ValidateWords what;
    Severity failOn = Severity::error;
    PartWords parts;
};

void printReport(const Context& context, const ValidationReport& report) {
    if (context.json) {
        fmt::print("{}\n", validationJson(report));
        return;
    }
    const Style style{context.colored()};
    for (const Finding& finding : report.findings)
        printFinding(finding, style);
    if (!report.findings.empty()) fmt::print("\n");
    fmt::print("{}: {}\n", style.bold("verdict"), coloredVerdict(report.verdict, style));
    const auto list = [&](const char* title, const std::vector<std::string>& items) {
        if (items.empty()) return;
        std::string line;
        for (const std::string& item : items)
            line += (line.empty() ? "" : ", ") + item;
        fmt::print("{}: {}\n", title, line);
    };
    list("checked", report.checked);
    std::vector<std::string> notChecked;
    for (const NotChecked& each : report.notChecked)
        notChecked.push_back(each.text());
    list("not checked", notChecked);
}

Result<int> validate(const Context& context, const ValidateOptions& options) {
    SHARDSCOPE_TRY(checkRecords(context, options.parts, options.what.path));
    SHARDSCOPE_ASSIGN(const auto opened, context.openAny(options.what.path));
    ValidatedInParts done;
    if (const Run* run = std::get_if<Run>(&opened)) {
        if (!options.parts.given()) return validateRun(context, *run, options.what, options.failOn);
        return makeError(ErrorCode::usage, "this is the directory of a run; parts are of one checkpoint")
            .inFile(options.what.path)
            .withHint("name the directory of a step");
    }
    const auto& checkpoint = std::get<Checkpoint>(opened);
    if (options.parts.given()) {
        SHARDSCOPE_ASSIGN(const Parts parts, partsOf(options.parts));
        SHARDSCOPE_ASSIGN(done,
                          validateInParts(context, checkpoint, options.what, parts, options.parts.records));
        if (!done.read.found) {
            sayPart(context, *done.read.part, parts.finish, "says what they found");
            return 0;
        }
    } else {
        SHARDSCOPE_ASSIGN(done.report, validateOpen(context, checkpoint, options.what));
    }
    bool fails = false;
    for (const Finding& finding : done.report.findings)
        fails = fails || finding.severity >= options.failOn;
    printReport(context, done.report);
    if (done.read.found) SHARDSCOPE_TRY(done.read.found->remove());
    return fails ? 1 : 0;
}

}  // namespace

void addValidate(CLI::App& app, Context& context) {
    CLI::App* verb = app.add_subcommand(
        "validate", "Is it whole and sane? Coverage, files, values, stored checksums; a verdict");
    verb->footer(
        "Examples:\n  shardscope validate /checkpoints/step-1000\n  shardscope validate "
        "/checkpoints/step-1000 --level values --fail-on warning\n  shardscope validate /checkpoints\n\n"
        "Of the directory of a run all steps are judged, newest first; what did not change since is not read "
        "again.\n"
        "Exit code 1 when there is a finding of the --fail-on severity or worse.");
    auto options = std::make_shared<ValidateOptions>();
    addValidateWords(*verb, options->what);
    static const std::map<std::string, Severity> severities{
        {"error", Severity::error}, {"warning", Severity::warning}, {"info", Severity::info}};
    verb->add_option("--fail-on", options->failOn,
                     "Least severity that makes the exit code 1: error (default) or warning")
        ->transform(oneOf(severities))
        ->type_name("SEVERITY");
    addReadingWords(*verb, options->parts, "Judge what all parts have read");
    addCommon(*verb, context, true);
    verb->callback(
        [&context, options] { context.verb = [&context, options] { return validate(context, *options); }; });
}

}  // namespace shardscope::cli
