#include <cstdio>

#include <fmt/format.h>

#include "cli/application.h"
#include "cli/output_file.h"
#include "cli/runs.h"
#include "cli/text.h"
#include "cli/validate_words.h"
#include "engine/report.h"

namespace shardscope::cli {
namespace {

struct ReportOptions {
    ValidateRequest what;
    std::string output;
    bool overwrite = false;
    Replace replace() const { return overwrite ? Replace::yes : Replace::no; }
    ReportForm form = ReportForm::html;
};

// Of a run one document for all its steps.
Result<std::string> runText(const Context& context, const Run& run, const ReportOptions& options) {
    std::vector<JudgedPath> steps;
    SHARDSCOPE_ASSIGN(
        const JudgedRun judged,
        judgeRun(context, run, options.what, [&](const RunStep* step, const StepVerdict& verdict) {
            steps.push_back(judgedPath(context, run, step, verdict));
        }));
    if (options.form == ReportForm::json)
        return dump(judgedJson(context, run, judged, options.what.level)) + "\n";
    if (options.form != ReportForm::html) return formOf(options.form, steps);
    const size_t whole = factsOf(judged.lines).newestWhole;
    return runHtml(context.shown(run.source.display), steps, options.what.level,
                   whole == kNoStep ? std::string() : context.shown(run.pathOf(run.directory.steps[whole])));
}

Result<std::string> reportText(const Context& context, const ReportOptions& options) {
    SHARDSCOPE_ASSIGN(auto opened, context.openAny(options.what.path));
    if (const Run* run = std::get_if<Run>(&opened)) return runText(context, *run, options);
    auto& checkpoint = std::get<Checkpoint>(opened);
    SHARDSCOPE_ASSIGN(const ValidationReport found, validateOpen(context, checkpoint, options.what));
    const std::vector<Suppression> accepted = acceptedBy(options.what, checkpoint.path);
    checkpoint.path = context.shown(checkpoint.path);
    if (options.form == ReportForm::html) return validationHtml(checkpoint, found, accepted);
    if (options.form == ReportForm::json) return harmlessJson(validationJson(found, accepted)) + "\n";
    return formOf(options.form, {{checkpoint.path, found, accepted}});
}

Result<int> report(const Context& context, const ReportOptions& options) {
    Parents parents;
    if (!options.output.empty() && !context.away())
        SHARDSCOPE_TRY(prepareOutputFile(options.output, options.what.path, options.replace(), parents));
    SHARDSCOPE_ASSIGN(const std::string text, reportText(context, options));
    if (options.output.empty() || context.away()) {
        std::fwrite(text.data(), 1, text.size(), stdout);
        return 0;
    }
    SHARDSCOPE_TRY(writeOutputFile(options.output, text, options.replace()));
    return 0;
}

}  // namespace

void addReport(CLI::App& app, Context& context) {
    CLI::App* verb = app.add_subcommand(
        "report", "Validate and write a report: one HTML file, JSON, or what a CI system reads");
    verb->footer(
        "Example:\n  shardscope report /checkpoints/step-1000 --output step-1000.html\n\n"
        "The exit code is 0 whatever was found; 'shardscope validate' is the gate.");
    auto options = std::make_shared<ReportOptions>();
    addValidateWords(*verb, options->what);
    verb->add_option("-o,--output", options->output, "File to write (default: stdout)")->type_name("FILE");
    verb->add_flag("--overwrite", options->overwrite, "Replace the file when it is already there");
    addForm(*verb, "--as", options->form, "html (default), json, junit, github, gitlab or sarif",
            {{"html", ReportForm::html}, {"json", ReportForm::json}});
    addCommon(*verb, context, true);
    verb->callback(
        [&context, options] { context.verb = [&context, options] { return report(context, *options); }; });
}

}  // namespace shardscope::cli
