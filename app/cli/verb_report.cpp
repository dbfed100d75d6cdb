#include <cerrno>
#include <cstdio>

#include <fmt/format.h>

#include "cli/application.h"
#include "cli/text.h"
#include "engine/report.h"

namespace shardscope::cli {
namespace {

enum class Form : uint8_t { html, json, junit };

struct Options {
    std::string path, output, expect;
    Form form = Form::html;
    ValidateLevel level = ValidateLevel::files;
};

Result<int> report(const Context& context, const Options& options) {
    SHARDSCOPE_ASSIGN(const Checkpoint checkpoint, context.open(options.path));
    std::optional<Checkpoint> expected;
    ValidateOptions how;
    how.level = options.level;
    uint64_t held = checkpoint.catalog().memoryBytes();
    if (!options.expect.empty()) {
        SHARDSCOPE_ASSIGN(expected, openCheckpoint(options.expect, {}));
        how.expect = &expected->catalog();
        held += expected->catalog().memoryBytes();
    }
    ValidationReport found;
    {
        Work work(context, held);
        SHARDSCOPE_TRY(work.start());
        SHARDSCOPE_ASSIGN(found, validateCheckpoint(*checkpoint.reader, how, work.resources()));
    }
    const std::string text = options.form == Form::html   ? validationHtml(checkpoint, found)
                             : options.form == Form::json ? validationJson(found) + "\n"
                                                          : validationJunit(options.path, found);
    if (options.output.empty()) {
        std::fwrite(text.data(), 1, text.size(), stdout);
        return 0;
    }
    std::FILE* out = std::fopen(options.output.c_str(), "wb");
    if (!out) return systemError(errno, "write the report", options.output);
    const bool written = std::fwrite(text.data(), 1, text.size(), out) == text.size();
    const int reason = errno;
    if (std::fclose(out) != 0 || !written)
        return systemError(written ? errno : reason, "write the report", options.output);
    return 0;
}

}  // namespace

void addReport(CLI::App& app, Context& context) {
    CLI::App* verb =
        app.add_subcommand("report", "Validate and write a report: one HTML file, JSON or JUnit XML");
    verb->footer(
        "Example:\n  shardscope report /checkpoints/step-1000 --output step-1000.html\n\n"
        "The exit code is 0 whatever was found; 'shardscope validate' is the gate.");
    auto options = std::make_shared<Options>();
    verb->add_option("path", options->path, "Checkpoint: a directory or a file")
        ->required()
        ->type_name("PATH");
    verb->add_option("-o,--output", options->output, "File to write (default: stdout)")->type_name("FILE");
    static const std::map<std::string, Form> forms{
        {"html", Form::html}, {"json", Form::json}, {"junit", Form::junit}};
    verb->add_option("--as", options->form, "html (default), json or junit")
        ->transform(CLI::CheckedTransformer(forms).description(""))
        ->type_name("FORM");
    static const std::map<std::string, ValidateLevel> levels{{"metadata", ValidateLevel::metadata},
                                                             {"files", ValidateLevel::files},
                                                             {"values", ValidateLevel::values}};
    verb->add_option("--level", options->level, "How deep to look: metadata, files (default) or values")
        ->transform(CLI::CheckedTransformer(levels).description(""))
        ->type_name("LEVEL");
    verb->add_option("--expect", options->expect, "Names, shapes and dtypes must be those of this checkpoint")
        ->type_name("OTHER");
    addCommon(*verb, context, true);
    verb->callback(
        [&context, options] { context.verb = [&context, options] { return report(context, *options); }; });
}

}  // namespace shardscope::cli
