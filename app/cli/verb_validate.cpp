#include <fmt/format.h>

#include "cli/application.h"
#include "cli/json.h"
#include "cli/one_of.h"
#include "cli/runs.h"
#include "cli/text.h"
#include "cli/validate_words.h"
#include "engine/report.h"

namespace shardscope::cli {
namespace {

struct ValidateOptions {
    ValidateWords what;
    Severity failOn = Severity::error;
};

Result<int> validate(const Context& context, const ValidateOptions& options) {
    SHARDSCOPE_ASSIGN(const auto opened, context.openAny(options.what.path));
    if (const Run* run = std::get_if<Run>(&opened))
        return validateRun(context, *run, options.what, options.failOn);
    SHARDSCOPE_ASSIGN(const ValidationReport report,
                      validateOpen(context, std::get<Checkpoint>(opened), options.what));
    bool fails = false;
    for (const Finding& finding : report.findings)
        fails = fails || finding.severity >= options.failOn;

    if (context.json) {
        fmt::print("{}\n", validationJson(report));
        return fails ? 1 : 0;
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
    list("not checked", report.notChecked);
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
    addCommon(*verb, context, true);
    verb->callback(
        [&context, options] { context.verb = [&context, options] { return validate(context, *options); }; });
}

}  // namespace shardscope::cli
