#include <fmt/format.h>
#include <unistd.h>

#include "cli/application.h"
#include "cli/runs.h"

namespace shardscope::cli {
namespace {

struct LatestOptions {
    std::string path;
    bool good = false;
    ValidateRequest how;
};

Result<int> latest(const Context& context, const LatestOptions& options) {
    SHARDSCOPE_ASSIGN(const auto run, openRun(options.path, context.openOptions()));
    Json json;
    json["schema"] = "shardscope.latest/1";
    json["name"] = json["path"] = json["step"] = Json();
    Json skipped = Json::array();
    bool found = false;
    if (run) {
        RunJudge judge(context, *run, options.how);
        for (const RunStep& step : run->directory.steps) {
            SHARDSCOPE_TRY(StopToken(context.stop).poll());
            // What the run's own tracker names is its newest finished step.
            if (!options.good && run->directory.trackedExists && !run->directory.tracks(step)) continue;
            std::optional<StepVerdict> verdict;
            if (options.good) {
                SHARDSCOPE_ASSIGN(const StepFiles files, listStep(*run, step));
                SHARDSCOPE_ASSIGN(verdict, judge.judge(step, files));
                json["level"] = levelName(verdict->report.level);
            }
            if (verdict && !verdict->whole()) {
                std::string why = verdict->error ? describe(*verdict->error) : std::string();
                if (const Finding* reason = why.empty() ? verdict->reason() : nullptr)
                    why = fmt::format("{}: {}", reason->rule, reason->message);
                if (!context.json)
                    fmt::print(stderr, "shardscope: {} is not whole: {}\n", printable(step.name),
                               printable(why));
                skipped.push_back({{"name", step.name}, {"why", why}});
                continue;
            }
            json["name"] = step.name;
            json["path"] = context.shown(run->pathOf(step));
            if (step.step >= 0) json["step"] = step.step;
            if (verdict) json["verdict"] = verdictName(verdict->verdict());
            found = true;
            break;
        }
    }
    json["skipped"] = std::move(skipped);
    if (context.json) {
        printJson(json);
    } else if (found) {
        // Exact for programs; a terminal gets nothing that it would obey.
        const std::string path = json["path"].get<std::string>();
        fmt::print("{}\n", isatty(STDOUT_FILENO) ? printable(path) : path);
    } else {
        fmt::print(stderr, "shardscope: {} holds no {}step of a run\n",
                   printable(context.shown(options.path)), options.good ? "whole " : "");
    }
    return found ? 0 : 1;
}

}  // namespace

void addLatest(CLI::App& app, Context& context) {
    CLI::App* verb =
        app.add_subcommand("latest", "The newest step of a run; with --good, the newest whole one");
    verb->footer(
        "Example:\n  RESUME=$(shardscope latest /runs/7 --good)\n\n"
        "Exit code 1 when there is no such step.");
    auto options = std::make_shared<LatestOptions>();
    verb->add_option("path", options->path, "Directory of a run, or ssh://host/path")
        ->required()
        ->type_name("RUN");
    verb->add_flag("--good", options->good, "Only a step without errors at --level");
    addJudging(*verb, options->how, "How deep --good looks: metadata, files (default) or values");
    addCommon(*verb, context, true);
    verb->callback(
        [&context, options] { context.verb = [&context, options] { return latest(context, *options); }; });
}

}  // namespace shardscope::cli
