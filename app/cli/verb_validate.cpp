#include <fmt/format.h>

#include "base/units.h"
#include "cli/application.h"
#include "cli/one_of.h"
#include "cli/part_option.h"
#include "cli/runs.h"
#include "cli/text.h"
#include "cli/validate_words.h"
#include "validate/rules.h"

namespace shardscope::cli {
namespace {

struct ValidateOptions {
    ValidateRequest what;
    Severity failOn = Severity::error;
    PartRequest parts;
    std::string accept, because, withdraw;  // rules
    ReportForm form = ReportForm::text;
};

void printReport(const Context& context, const ValidationReport& report,
                 const std::vector<Suppression>& accepted) {
    if (context.json) {
        fmt::print("{}\n", harmlessJson(validationJson(report, accepted)));
        return;
    }
    const Style style{context.colored()};
    printFindings(report, accepted, style);
    if (!report.findings.empty()) fmt::print("\n");
    const Judgement judgement = judgementOf(report, accepted);
    fmt::print("{}: {}", style.bold("verdict"), coloredVerdict(judgement.verdict, style));
    if (judgement.accepted)
        fmt::print(" ({} accepted; without that: {})", countText(judgement.accepted),
                   coloredVerdict(report.verdict, style));
    fmt::print("\n");
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

// Accepts what was found of a rule, or no longer does.
Status changeAccepted(const ValidateOptions& options, const ValidationReport& report,
                      const std::string& path) {
    const std::string& rule = options.accept.empty() ? options.withdraw : options.accept;
    if (rule.empty()) return {};
    SuppressionStore store;
    bool any = false;
    for (const Finding& finding : report.findings) {
        if (finding.rule != rule) continue;
        any = true;
        SHARDSCOPE_TRY(options.accept.empty() ? store.remove(path, rule, finding.cause)
                                              : store.add(path, {rule, finding.cause, options.because}));
    }
    if (any) return {};
    std::vector<std::string> known;
    for (const RuleInfo& each : validationRules())
        known.emplace_back(each.id);
    const bool isRule = findRule(rule) != nullptr;
    return makeError(ErrorCode::usage, isRule ? fmt::format("no finding has the rule '{}'", rule)
                                              : fmt::format("'{}' is not a rule", rule))
        .inFile(path)
        .withHint(isRule ? std::string() : didYouMean(rule, known));
}

Result<int> validate(const Context& context, const ValidateOptions& options) {
    if (options.accept.empty() != options.because.empty())
        return makeError(ErrorCode::usage, "--accept RULE and --because TEXT belong together");
    SHARDSCOPE_ASSIGN(const Execution by, readersOf(context, options.parts, options.what.path));
    SHARDSCOPE_ASSIGN(const auto opened, context.openAny(options.what.path));
    if (const Run* run = std::get_if<Run>(&opened)) {
        if (!options.accept.empty() || !options.withdraw.empty())
            return makeError(ErrorCode::usage, "findings of a step are accepted, not those of a run")
                .inFile(options.what.path)
                .withHint("name the directory of a step");
        if (std::holds_alternative<Alone>(by))
            return validateRun(context, *run, options.what, options.failOn, options.form);
        return makeError(ErrorCode::usage, "this is the directory of a run; parts are of one checkpoint")
            .inFile(options.what.path)
            .withHint("name the directory of a step");
    }
    const auto& checkpoint = std::get<Checkpoint>(opened);
    SHARDSCOPE_ASSIGN(const ValidatedInParts done,
                      validateBy(context, checkpoint, options.what, by, options.parts.records));
    if (done.read.part && !done.read.found) {
        sayPart(context, *done.read.part, std::get<Parts>(by).finish, "says what they found");
        return 0;
    }
    const std::string path = acceptedName(checkpoint.path);
    SHARDSCOPE_TRY(changeAccepted(options, done.report, path));
    const std::vector<Suppression> accepted = acceptedBy(options.what, path);
    const bool fails = anyAsSevere(done.report, accepted, options.failOn);
    if (options.form == ReportForm::text || options.form == ReportForm::json)
        printReport(context, done.report, accepted);
    else
        fmt::print("{}", formOf(options.form, {{context.shown(checkpoint.path), done.report, accepted}}));
    if (done.read.found) SHARDSCOPE_TRY(removeRecords(*done.read.found));
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
        "Exit code 1 when there is a finding of the --fail-on severity or worse that nobody has accepted; "
        "with --no-accepted all count.");
    auto options = std::make_shared<ValidateOptions>();
    addValidateWords(*verb, options->what);
    static const std::map<std::string, Severity> severities{
        {"error", Severity::error}, {"warning", Severity::warning}, {"info", Severity::info}};
    verb->add_option("--fail-on", options->failOn,
                     "Least severity that makes the exit code 1: error (default) or warning")
        ->transform(oneOf(severities))
        ->type_name("SEVERITY");
    addForm(*verb, "--output-format", options->form,
            "text (default), json (as --json), or what a CI system reads: github (annotations), gitlab (code "
            "quality), sarif or junit",
            {{"text", ReportForm::text}, {"json", ReportForm::json}});
    verb->add_option("--accept", options->accept,
                     "Accept what is found of this rule, as in the window; it no longer counts")
        ->type_name("RULE");
    verb->add_option("--because", options->because, "Why, for --accept")->type_name("TEXT");
    verb->add_option("--withdraw", options->withdraw, "No longer accept what is found of this rule")
        ->type_name("RULE")
        ->excludes("--accept");
    addReadingWords(*verb, context, options->parts, "Judge what all parts have read");
    addCommon(*verb, context, true);
    verb->callback([&context, options] {
        context.json = context.json || options->form == ReportForm::json;
        context.verb = [&context, options] { return validate(context, *options); };
    });
}

}  // namespace shardscope::cli
