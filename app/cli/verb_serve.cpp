#include <chrono>
#include <csignal>
#include <cstdio>

#include <fmt/format.h>

#include "cli/application.h"
#include "cli/text.h"
#include "cli/validate_words.h"
#include "serve/page.h"

namespace shardscope::cli {
namespace {

struct ServeOptions {
    serve::PageOptions page;
    int port = 0;
    int idleMinutes = 30;
};

Result<int> servePage(const Context& context, const ServeOptions& options) {
    SHARDSCOPE_TRY(serve::PageServer::available());
    serve::PageOptions shown = options.page;
    shown.jobs = shown.jobs || shown.allowJobs;
    if (shown.path.empty() && !shown.jobs)
        return makeError(ErrorCode::usage, "there is nothing to show: name a checkpoint, or --jobs");
    std::signal(SIGPIPE, SIG_IGN);
    SHARDSCOPE_ASSIGN(const auto page, serve::Page::open(context, shown));
    SHARDSCOPE_ASSIGN(const auto server, serve::PageServer::listen(page->content(), options.port));
    if (context.json) {
        printJson({{"schema", "shardscope.serve/1"}, {"url", server->url()}, {"port", server->port()}});
    } else {
        fmt::print("{}\n", server->url());
    }
    std::fflush(stdout);
    if (!context.json) {
        fmt::print(stderr,
                   "The page is for this machine only; from another one:\n"
                   "  ssh -L {0}:127.0.0.1:{0} HOST\nand open the same address there. Ctrl-C ends it.\n",
                   server->port());
    }
    server->serve(context.stop, std::chrono::minutes(options.idleMinutes));
    return 0;
}

}  // namespace

void addServe(CLI::App& app, Context& context) {
    CLI::App* verb = app.add_subcommand(
        "serve", "A page for the browser: what the window shows of a checkpoint or a run, and jobs");
    verb->footer(
        "Examples:\n  shardscope serve /checkpoints/step-1000\n  shardscope serve /checkpoints/run "
        "--allow-jobs\n  shardscope serve --jobs\n\n"
        "It listens on 127.0.0.1 only. The printed address contains a token; requests without it are "
        "refused.");
    auto options = std::make_shared<ServeOptions>();
    verb->add_option("path", options->page.path, "Checkpoint, or the directory of a run")->type_name("PATH");
    verb->add_flag("--jobs", options->page.jobs, "Show the jobs of this machine's user, as they run");
    verb->add_flag("--allow-jobs", options->page.allowJobs,
                   "Let the page validate, accept findings, and plan, start, cancel and resume conversions");
    verb->add_option("--port", options->port, "Port of 127.0.0.1; 0 (default) takes a free one")
        ->check(CLI::Range(0, 65535).description(""))
        ->type_name("N");
    verb->add_option("--idle", options->idleMinutes,
                     "End when no page has asked for this many minutes; 0 = never")
        ->check(CLI::Range(0, 100000).description(""))
        ->default_str("30")
        ->type_name("MINUTES");
    addLevel(*verb, options->page.level,
             "How deep it validates: metadata, files (default) or values (reads every byte)");
    addCommon(*verb, context, true);
    verb->callback(
        [&context, options] { context.verb = [&context, options] { return servePage(context, *options); }; });
}

}  // namespace shardscope::cli
