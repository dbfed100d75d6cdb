#include <cstdio>

#include <fmt/format.h>

#include "cli/application.h"
#include "cli/output_file.h"
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

Result<int> report(const Context& context, const ReportOptions& options) {
    if (!options.output.empty() && !context.away())
        SHARDSCOPE_TRY(checkOutputFile(options.output, options.what.path, options.replace()));
    SHARDSCOPE_ASSIGN(Validated done, openAndValidate(context, options.what));
    const std::vector<Suppression> accepted = acceptedBy(options.what, done.checkpoint.path);
    done.checkpoint.path = context.shown(done.checkpoint.path);
    const std::string text = options.form == ReportForm::html
                                 ? validationHtml(done.checkpoint, done.report, accepted)
                             : options.form == ReportForm::json
                                 ? harmlessJson(validationJson(done.report, accepted)) + "\n"
                                 : formOf(options.form, {{done.checkpoint.path, done.report, accepted}});
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
