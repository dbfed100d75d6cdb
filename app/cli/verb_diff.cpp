#include <fmt/format.h>

#include "cli/application.h"
#include "cli/text.h"
#include "plan/request_text.h"

namespace shardscope::cli {

namespace {

struct DiffCommand {
    std::string a, b;
    DiffOptions diff;
};

Result<int> diff(const Context& context, const DiffCommand& options) {
    SHARDSCOPE_ASSIGN(const Checkpoint a, context.open(options.a));
    SHARDSCOPE_ASSIGN(const Checkpoint b, context.open(options.b));
    SHARDSCOPE_ASSIGN(const DiffReport report, diffOpen(context, a, b, options.diff));
    if (context.json) {
        printJson(diffJson(report));
        return report.equal() ? 0 : 1;
    }
    const Style style{context.colored()};
    for (const std::string& name : report.onlyA)
        fmt::print("{} {}\n", style.red("only in A:"), printable(name));
    for (const std::string& name : report.onlyB)
        fmt::print("{} {}\n", style.green("only in B:"), printable(name));
    for (const DiffEntry& e : report.shape)
        fmt::print("{} {}: {} -> {}\n", style.yellow("shape:"), printable(e.name), e.a, e.b);
    for (const DiffEntry& e : report.dtype)
        fmt::print("{} {}: {} -> {}\n", style.yellow("dtype:"), printable(e.name), e.a, e.b);
    for (const DiffEntry& e : report.placement)
        fmt::print("{} {}: {} -> {}\n", style.dim("placement:"), printable(e.name), e.a, e.b);
    for (const ValueDiff& v : report.values) {
        fmt::print("{} {}: {} elements differ, at most {:g} absolute, {:g} relative, {} ulp; cosine {:.9g}\n",
                   style.yellow("values:"), printable(v.name), countText(v.different), v.maxAbs,
                   v.maxRelative, v.maxUlp, v.cosine);
    }
    if (!report.equal()) return 1;
    fmt::print("equal: same names, shapes{} dtypes{}\n", report.valuesCompared ? "," : " and",
               report.valuesCompared ? " and values" : " (values not compared; --values does)");
    return 0;
}

}  // namespace

void addDiff(CLI::App& app, Context& context) {
    CLI::App* verb = app.add_subcommand(
        "diff", "What differs between two checkpoints, whatever their formats and shardings");
    verb->footer(
        "Examples:\n  shardscope diff before/ after.safetensors --values --rename '^model\\.='\n"
        "  shardscope diff iter_0001000/ model-hf/ --values --map llama-hf-from-megatron\n\nExit code 1 "
        "when they differ; a different placement alone is not a difference.");
    auto options = std::make_shared<DiffCommand>();
    verb->add_option("a", options->a, "First checkpoint")->required()->type_name("A");
    verb->add_option("b", options->b, "Second checkpoint")->required()->type_name("B");
    verb->add_flag("--values", options->diff.values,
                   "Compare values too: bit for bit, then by size of the difference");
    verb->add_option_function<std::vector<std::string>>(
            "--rename",
            [options](const std::vector<std::string>& rules) {
                for (const auto& rule : rules) {
                    auto parsed = parseRenameRule(rule);
                    if (!parsed.ok()) throw CLI::ValidationError("--rename", parsed.error().message);
                    options->diff.rename.push_back(std::move(parsed).value());
                }
            },
            "Regular expression and replacement for names of A (repeatable)")
        ->type_name("FROM=TO")
        ->allow_extra_args(false);
    verb->add_option("--map", options->diff.map,
                     "Compare what A becomes through a recipe: a file, or one of 'shardscope recipes'")
        ->type_name("RECIPE");
    verb->add_option("--set", options->diff.set, "Value of a parameter of the recipe (repeatable)")
        ->type_name("NAME=VALUE")
        ->allow_extra_args(false);
    addCommon(*verb, context, true);
    verb->callback(
        [&context, options] { context.verb = [&context, options] { return diff(context, *options); }; });
}

}  // namespace shardscope::cli
