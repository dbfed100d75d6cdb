// May a run resume from this step? A card of ten lines, of a step or of the newest whole step of a run.
#include <fmt/format.h>

#include "cli/application.h"
#include "cli/runs.h"
#include "engine/ready.h"

namespace shardscope::cli {
namespace {

struct ReadyOptions {
    ValidateRequest how;
};

void printCard(const Context& context, const Readiness& readiness) {
    const ReadyCard& card = readiness.card;
    const Style style{context.colored()};
    fmt::print("{}: {}\n\n", style.bold(printable(context.shown(card.path))),
               card.resumes ? style.green(printable(card.words)) : style.red(printable(card.words)));
    for (const ReadyLine& line : card.lines) {
        const std::string mark = line.mark == ReadyMark::yes  ? style.green("✓")
                                 : line.mark == ReadyMark::no ? style.red("✕")
                                                              : style.dim("–");
        fmt::print("{} {:<28} {}\n", mark, line.title, printable(line.text));
        if (line.mark == ReadyMark::no && !line.evidence.empty())
            fmt::print("  {:<28} {}\n", "", printable(line.evidence));
    }
    for (const auto& [name, why] : readiness.passed)
        fmt::print("\npassed over: {}: {}\n", printable(name), printable(why));
}

Result<int> ready(const Context& context, const ReadyOptions& options) {
    SHARDSCOPE_ASSIGN(const auto opened, context.openAny(options.how.path));
    SHARDSCOPE_ASSIGN(const Readiness readiness, readinessOf(context, opened, options.how));
    if (context.json)
        printJson(readinessJson(context, readiness));
    else
        printCard(context, readiness);
    return readiness.card.resumes ? 0 : 1;
}

}  // namespace

void addReady(CLI::App& app, Context& context) {
    CLI::App* verb = app.add_subcommand(
        "ready", "May a run resume from this? Ten lines, of a step or of the newest good step of a run");
    verb->footer(
        "Examples:\n  shardscope ready /runs/7/step-1000\n  shardscope ready /runs/7 && sbatch resume.sh\n\n"
        "Exit code 1 when a run cannot resume from it.");
    auto options = std::make_shared<ReadyOptions>();
    addValidateWords(*verb, options->how);
    addCommon(*verb, context, true);
    verb->callback(
        [&context, options] { context.verb = [&context, options] { return ready(context, *options); }; });
}

}  // namespace shardscope::cli
