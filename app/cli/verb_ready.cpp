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

// A newer step that a run cannot resume from, and why.
struct Passed {
    std::string name, why;
};

void printCard(const Context& context, const ReadyCard& card, const std::vector<Passed>& passed) {
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
    for (const Passed& one : passed)
        fmt::print("\npassed over: {}: {}\n", printable(one.name), printable(one.why));
}

int answer(const Context& context, const ReadyCard& card, const std::vector<Passed>& passed) {
    if (!context.json) {
        printCard(context, card, passed);
    } else {
        Json json = Json::parse(readyJson(card));
        json["path"] = context.shown(card.path);
        json["passed"] = Json::array();
        for (const Passed& one : passed)
            json["passed"].push_back({{"name", one.name}, {"why", one.why}});
        printJson(json);
    }
    return card.resumes ? 0 : 1;
}

Result<ReadyCard> cardOf(const Context& context, const ReadyOptions& options, const Checkpoint& checkpoint) {
    ValidateRequest how = options.how;
    how.examples = kReadyExamples;
    SHARDSCOPE_ASSIGN(const ValidationReport report, validateOpen(context, checkpoint, how));
    return readyCard(checkpoint, report, acceptedBy(options.how, acceptedName(checkpoint.path)));
}

// Of a run: the newest step that can be resumed from; where none can, the newest that opens.
Result<int> readyRun(const Context& context, const Run& run, const ReadyOptions& options) {
    std::vector<Passed> passed;
    std::optional<ReadyCard> newest;
    for (const RunStep& step : run.directory.steps) {
        SHARDSCOPE_TRY(StopToken(context.stop).poll());
        const auto checkpoint = openCheckpoint(run.pathOf(step), context.openOptions());
        if (!checkpoint.ok()) {
            if (checkpoint.error().code == ErrorCode::cancelled) return checkpoint.error();
            passed.push_back({step.name, describe(checkpoint.error())});
            continue;
        }
        SHARDSCOPE_ASSIGN(ReadyCard card, cardOf(context, options, *checkpoint));
        if (card.resumes) return answer(context, card, passed);
        passed.push_back({step.name, card.words});
        if (!newest) newest = std::move(card);
    }
    if (newest) return answer(context, *newest, passed);
    return makeError(ErrorCode::notFound, "no step of this run opens")
        .inFile(run.source.display)
        .withHint(passed.empty() ? std::string() : passed[0].name + ": " + passed[0].why);
}

Result<int> ready(const Context& context, const ReadyOptions& options) {
    SHARDSCOPE_ASSIGN(const auto opened, context.openAny(options.how.path));
    if (const Run* run = std::get_if<Run>(&opened)) return readyRun(context, *run, options);
    SHARDSCOPE_ASSIGN(const ReadyCard card, cardOf(context, options, std::get<Checkpoint>(opened)));
    return answer(context, card, {});
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
