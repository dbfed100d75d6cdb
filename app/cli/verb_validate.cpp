#include <fmt/format.h>

#include "cli/application.h"
#include "cli/json.h"
#include "cli/one_of.h"
#include "cli/text.h"
#include "cli/validate_words.h"
#include "engine/report.h"

namespace shardscope::cli {
namespace {

struct Options {
    ValidateWords what;
    Severity failOn = Severity::error;
};

void printFinding(const Finding& finding, const Style& style) {
    const std::string severity(severityName(finding.severity));
    const std::string word = finding.severity == Severity::error     ? style.red(severity)
                             : finding.severity == Severity::warning ? style.yellow(severity)
                                                                     : style.dim(severity);
    fmt::print("{} {}: {}\n", word, style.bold(finding.rule), printable(finding.message));
    if (!finding.cause.empty()) fmt::print("    cause: {}\n", printable(finding.cause));
    constexpr size_t kShown = 5;
    for (size_t i = 0; i < finding.examples.size() && i < kShown; ++i) {
        const FindingExample& e = finding.examples[i];
        std::string line = "    ";
        if (!e.tensor.empty()) line += printable(e.tensor) + " ";
        if (e.box) line += formatBox(e.box->offsets, e.box->lengths) + " ";
        if (e.rank != kNone) line += fmt::format("rank {} ", e.rank);
        if (!e.file.empty()) line += fmt::format("in {} ", printable(e.file));
        if (e.offset) line += fmt::format("at byte {} ", *e.offset);
        if (!e.detail.empty()) line += fmt::format("({}) ", printable(e.detail));
        line.pop_back();
        fmt::print("{}\n", line);
    }
    if (finding.count > kShown && finding.examples.size() > kShown)
        fmt::print("    ... {} in all (with --json: up to --examples of them)\n", finding.count);
}

Result<int> validate(const Context& context, const Options& options) {
    SHARDSCOPE_ASSIGN(const Validated done, openAndValidate(context, options.what));
    const ValidationReport& report = done.report;
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
    std::string verdict(verdictName(report.verdict));
    verdict = report.verdict == Verdict::safe   ? style.green(verdict)
              : report.verdict == Verdict::care ? style.yellow(verdict)
                                                : style.red(verdict);
    fmt::print("{}: {}\n", style.bold("verdict"), verdict);
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
        "/checkpoints/step-1000 --level values --fail-on warning\n\n"
        "Exit code 1 when there is a finding of the --fail-on severity or worse.");
    auto options = std::make_shared<Options>();
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
