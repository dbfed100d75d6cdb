#include "cli/application.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <new>
#include <set>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "base/own_program.h"
#include "cli/help.h"
#include "cli/remote.h"
#include "cli/text.h"
#include "engine/sample.h"
#include "storage/named_path.h"

namespace shardscope::cli {
namespace {

StopSource* interruptible = nullptr;

// The first Ctrl-C asks for an orderly end, the second ends at once (the journal survives either).
void onInterrupt(int) {
    if (!interruptible || interruptible->stopRequested()) _exit(130);
    interruptible->requestStop();
}

// A closed standard stream must not become the number of a file that is opened. Where nobody could hear an
// answer (daemons, batch systems) it goes nowhere; where only standard output is closed it is an error.
void holdStandardStreams() {
    const auto isClosed = [](int fd) { return fcntl(fd, F_GETFD) < 0 && errno == EBADF; };
    const bool unheard = isClosed(STDOUT_FILENO) && isClosed(STDERR_FILENO);
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
        if (!isClosed(fd)) continue;
        const bool writes = fd == STDERR_FILENO || (fd == STDOUT_FILENO && unheard);
        (void)!open("/dev/null", writes ? O_WRONLY : O_RDONLY);  // the lowest number that is free: this one
    }
}

Error unexpected(const std::system_error& failure) {
    if (failure.code() == std::errc::resource_unavailable_try_again)
        return makeError(ErrorCode::io, "the system starts no more threads")
            .withHint(
                "raise the limit of processes (ulimit -u, or the container's) or of memory (ulimit -v)");
    return makeError(ErrorCode::io, failure.what());
}

// `shardscope gui ...` becomes the window, which may be installed apart. It is not a verb: the window has
// options and a manual of its own. Returns only where there is none.
Error startWindow(char** argv) {
    std::string name = "shardscope-gui";
    argv[1] = name.data();
    execv(besideOwnProgram(name).c_str(), argv + 1);
    execvp(name.c_str(), argv + 1);
    return makeError(ErrorCode::unsupported, "the window is not installed here")
        .withHint(
            "install the .deb or the portable archive of Shardscope, which have shardscope-gui; "
            "'shardscope serve PATH' shows a page for the browser");
}

// What takes the sample in place of a checkpoint.
constexpr const char* kSample = "--sample";
constexpr std::string_view kSampled[] = {"info",    "ls",      "show",    "map",  "validate", "ready",
                                         "stats",   "report",  "digest",  "diff", "index",    "plan",
                                         "convert", "reshard", "extract", "serve"};

// The words with the path of the sample in place of --sample. Errors: those of sampleCheckpoint().
Status nameSample(std::vector<std::string>& words) {
    if (words.empty() || !std::ranges::count(kSampled, words[0])) return {};
    for (std::string& word : words) {
        if (word != kSample) continue;
        SHARDSCOPE_ASSIGN(word, sampleCheckpoint());
    }
    return {};
}

// Options whose values are paths take "~" and file:// as such.
void expandPaths(CLI::App& verb) {
    static const std::set<std::string, std::less<>> kPathTypes{
        "PATH",    "SRC", "DST", "SRC SRC... DST", "A",          "B",      "FILE",
        "FILE.pt", "DIR", "RUN", "OTHER",          "CHECKPOINT", "RECIPE", "WEIGHTS"};
    for (CLI::Option* option : verb.get_options())
        if (kPathTypes.contains(option->get_type_name()))
            option->transform([](const std::string& text) { return namedPath(text); });
    for (CLI::App* nested : verb.get_subcommands([](const CLI::App*) { return true; }))
        expandPaths(*nested);
}

}  // namespace

const std::vector<ExitStatus>& exitStatuses() {
    static const std::vector<ExitStatus> statuses{
        {0, "fine"},
        {1, "findings, differences or a failed verification"},
        {2, "usage"},
        {3, "the input is unreadable, damaged or unsupported"},
        {4, "input/output, space, permission or remote failure"},
        {5, "the request is impossible; the plan says why"},
        {130, "canceled"},
    };
    return statuses;
}

std::unique_ptr<CLI::App> makeApp(Context& context) {
    auto app = std::make_unique<CLI::App>(
        "Inspect, validate, convert and reshard distributed checkpoints, in place and without loading "
        "them.",
        "shardscope");
    app->formatter(helpFormatter());
    app->set_help_flag("-h,--help", "This help");
    app->set_help_all_flag("--help-all", "All options, in full");
    app->set_version_flag("-V,--version", std::string("shardscope ") + SHARDSCOPE_VERSION);
    app->require_subcommand(1);
    app->fallthrough(false);
    std::string footer =
        "Examples:\n  shardscope info --sample\n  shardscope validate /checkpoints/step-1000\n\nExit codes:";
    for (const ExitStatus& status : exitStatuses())
        footer += fmt::format("\n  {:<3}  {}", status.code, status.meaning);
    app->footer(footer);
    addInfo(*app, context);
    addLs(*app, context);
    addShow(*app, context);
    addMap(*app, context);
    addValidate(*app, context);
    addLatest(*app, context);
    addReady(*app, context);
    addStats(*app, context);
    addWatch(*app, context);
    addReport(*app, context);
    addIndex(*app, context);
    addDigest(*app, context);
    addDiff(*app, context);
    addConvert(*app, context);
    addExtract(*app, context);
    addJobs(*app, context);
    addCleanup(*app, context);
    addServe(*app, context);
    addAgent(*app, context);
    addFormats(*app, context);
    addRecipes(*app, context);
    addSchema(*app, context);
    addDoctor(*app, context);
    addCompletion(*app, context);
    addHelp(*app, context);
    for (CLI::App* verb : app->get_subcommands([](const CLI::App*) { return true; })) {
        expandPaths(*verb);
        if (std::ranges::count(kSampled, verb->get_name()))
            verb->add_flag_callback(
                kSample, [] {}, "The sample checkpoint of this program, in place of a path");
    }
    return app;
}

void stopOnInterrupt(Context& context) {
    interruptible = &context.stop;
    struct sigaction action {};
    action.sa_handler = onInterrupt;
    sigaction(SIGINT, &action, nullptr);
    sigaction(SIGTERM, &action, nullptr);
    std::signal(SIGXFSZ, SIG_IGN);  // a write beyond ulimit -f is an error like any other
}

int run(int argc, char** argv, const Accelerator* accelerator) {
    holdStandardStreams();
    Context context;
    context.accelerator = accelerator;
    if (argc > 1 && std::string_view(argv[1]) == "gui") return reportError(context, startWindow(argv));
    stopOnInterrupt(context);
    std::signal(SIGPIPE, SIG_DFL);

    context.words.assign(argv + 1, argv + argc);
    if (const Status named = nameSample(context.words); !named.ok())
        return reportError(context, named.error());
    return runWords(context, {}, [&](const CLI::App& app) -> Result<std::optional<int>> {
        SHARDSCOPE_ASSIGN(const auto call, remoteCall(app, context));
        if (!call) return std::optional<int>();
        SHARDSCOPE_ASSIGN(const int code, runRemote(context, app, *call));
        return std::optional(code);
    });
}

Status flushAnswer() {
    if (std::fflush(stdout) != 0) return systemError(errno, "write the answer", "standard output");
    // What was flushed on the way may have failed before.
    if (std::ferror(stdout))
        return makeError(ErrorCode::io, "cannot write the whole answer").inFile("standard output");
    return {};
}

int runWords(Context& context, const std::function<Status(const CLI::App&)>& accept,
             const std::function<Result<std::optional<int>>(const CLI::App&)>& instead) {
    const std::vector<std::string>& words = context.words;
    const auto app = makeApp(context);
    try {
        app->parse(std::vector<std::string>(words.rbegin(), words.rend()));
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() == 0) return app->exit(error);  // --help, --version
        // Errors of usage, in JSON too when it was asked for.
        for (const std::string& word : words)
            context.json = context.json || word == "--json";
        return reportError(context, usageError(*app, words, error));
    }

    try {
        if (accept) {
            if (const Status status = accept(*app); !status.ok()) return reportError(context, status.error());
        }
        std::optional<int> taken;
        if (instead) {
            auto code = instead(*app);
            if (!code.ok()) return reportError(context, code.error());
            taken = *code;
        }
        Result<int> result = taken ? Result<int>(*taken) : context.verb();
        if (!result.ok()) return reportError(context, result.error());
        if (const Status arrived = flushAnswer(); !arrived.ok()) return reportError(context, arrived.error());
        return *result;
    } catch (const std::bad_alloc&) {
        return reportError(context, makeError(ErrorCode::limit, "out of memory"));
    } catch (const std::system_error& failure) {
        return reportError(context, unexpected(failure));
    } catch (const std::exception& e) {
        return reportError(context,
                           makeError(ErrorCode::internal, fmt::format("unexpected failure: {}", e.what())));
    }
}

}  // namespace shardscope::cli
