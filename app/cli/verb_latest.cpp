#include <fmt/format.h>
#include <unistd.h>

#include "cli/application.h"
#include "cli/runs.h"

namespace shardscope::cli {
namespace {

struct LatestOptions {
    bool good = false;
    ValidateRequest how;
};

Result<int> latest(const Context& context, const LatestOptions& options) {
    const auto skipped = [&](const std::string& name, const std::string& why) {
        if (!context.json)
            fmt::print(stderr, "shardscope: {} is not whole: {}\n", printable(name), printable(why));
    };
    SHARDSCOPE_ASSIGN(const Json json, latestStep(context, options.how, options.good, skipped));
    const bool found = !json["name"].is_null();
    if (context.json) {
        printJson(json);
    } else if (found) {
        // Exact for programs; a terminal gets nothing that it would obey.
        const std::string path = json["path"].get<std::string>();
        fmt::print("{}\n", isatty(STDOUT_FILENO) ? printable(path) : path);
    } else {
        fmt::print(stderr, "shardscope: {} holds no {}step of a run\n",
                   printable(context.shown(options.how.path)), options.good ? "whole " : "");
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
    verb->add_option("path", options->how.path, "Directory of a run, or ssh://host/path")
        ->required()
        ->type_name("RUN");
    verb->add_flag("--good", options->good, "Only a step without errors at --level");
    addJudging(*verb, options->how, "How deep --good looks: metadata, files (default) or values");
    addCommon(*verb, context, true);
    verb->callback(
        [&context, options] { context.verb = [&context, options] { return latest(context, *options); }; });
}

}  // namespace shardscope::cli
