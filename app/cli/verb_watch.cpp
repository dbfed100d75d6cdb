#include <cerrno>
#include <chrono>
#include <map>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/application.h"
#include "cli/one_of.h"
#include "cli/output_file.h"
#include "cli/runs.h"
#include "engine/report_forms.h"
#include "storage/url.h"

namespace shardscope::cli {
namespace {

enum class WatchForm : uint8_t { text, json, junit };

struct WatchOptions {
    ValidateRequest what;
    WatchForm form = WatchForm::text;
    std::string output, command;
    unsigned settle = 30, interval = 5;  // seconds
};

// Ends early for a signal.
void waitFor(unsigned milliseconds) {
    ::poll(nullptr, 0, static_cast<int>(milliseconds));
}

// Runs the command in a shell; the step is in its environment, never in its words. Its output goes to stderr.
Status runCommand(const std::string& command, const std::vector<std::string>& more, const StopToken& stop) {
    std::vector<std::string> words{"env"};
    words.insert(words.end(), more.begin(), more.end());
    words.insert(words.end(), {"/bin/sh", "-c", command});
    std::vector<char*> argv;
    for (std::string& word : words)
        argv.push_back(word.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
    pid_t child = -1;
    const int failed = posix_spawnp(&child, "env", &actions, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    if (failed != 0) return systemError(failed, "start the command", "/bin/sh");
    for (;;) {
        int state = 0;
        const pid_t ended = waitpid(child, &state, WNOHANG);
        if (ended == child) {
            if (WIFEXITED(state) && WEXITSTATUS(state) == 0) return {};
            const std::string how = WIFEXITED(state) ? fmt::format("exit code {}", WEXITSTATUS(state))
                                                     : fmt::format("signal {}", WTERMSIG(state));
            return makeError(ErrorCode::io, fmt::format("the command of --exec ended with {}", how));
        }
        if (ended < 0 && errno != EINTR) return systemError(errno, "wait for the command", "/bin/sh");
        if (stop.stopRequested()) ::kill(child, SIGTERM);
        waitFor(50);
    }
}

class Watch {
  public:
    Watch(const Context& context, const WatchOptions& options)
        : context_(context), options_(options), saves_(std::chrono::seconds(options.settle)) {}

    Result<int> run() {
        const StopToken stop(context_.stop);
        while (!stop.stopRequested()) {
            if (const Status looked = look(stop); !looked.ok()) {
                if (looked.error().code == ErrorCode::cancelled) break;
                return looked.error();
            }
            for (unsigned waited = 0; waited < options_.interval * 1000 && !stop.stopRequested();
                 waited += 100)
                waitFor(100);
        }
        return found_ ? 1 : 0;
    }

  private:
    Status look(const StopToken& stop) {
        SHARDSCOPE_ASSIGN(const auto run, openRun(options_.what.path, context_.openOptions()));
        if (!run) return {};
        // Oldest first: in the order in which they were saved.
        for (auto step = run->directory.steps.rbegin(); step != run->directory.steps.rend(); ++step) {
            SHARDSCOPE_TRY(stop.poll());
            const auto files = listStep(*run, *step);
            if (!files.ok() || files->error) continue;  // removed meanwhile, or not readable for now
            const auto judged = judged_.find(step->name);
            if (judged != judged_.end() && judged->second.files.identity == files->identity) continue;
            if (saves_.isComplete(*run, *step, *files)) SHARDSCOPE_TRY(judge(*run, *step, *files, stop));
        }
        return {};
    }

    Status judge(const Run& run, const RunStep& step, const StepFiles& files, const StopToken& stop) {
        RunJudge judge(context_, run, options_.what);
        SHARDSCOPE_ASSIGN(const StepVerdict verdict, judge.judge(step, files));
        // A step that was removed while it was judged raises no alarm.
        if (const auto after = listStep(run, step); verdict.error && after.ok() && after->error) return {};
        judged_[step.name] = {files, verdict};
        found_ = found_ || verdict.verdict() == Verdict::unsafe;
        SHARDSCOPE_TRY(say(run, step, files, verdict));
        if (options_.command.empty()) return {};
        const Status ran =
            runCommand(options_.command,
                       {"SHARDSCOPE_STEP=" + step.name, "SHARDSCOPE_PATH=" + context_.shown(run.pathOf(step)),
                        fmt::format("SHARDSCOPE_VERDICT={}", verdictName(verdict.verdict()))},
                       stop);
        // The next step is watched all the same.
        if (!ran.ok()) fmt::print(stderr, "shardscope: {}\n", printable(describe(ran.error())));
        return {};
    }

    // Against the steps that were judged already.
    StepFacts factsFor(const Run& run, const RunStep& step) const {
        std::vector<SeenStep> seen;
        size_t at = 0;
        for (const RunStep& each : run.directory.steps) {
            const auto judged = judged_.find(each.name);
            if (judged == judged_.end()) continue;
            if (each.name == step.name) at = seen.size();
            seen.push_back({&judged->second.files, &judged->second.verdict});
        }
        return factsOf(seen).steps[at];
    }

    Status say(const Run& run, const RunStep& step, const StepFiles& files, const StepVerdict& verdict) {
        const StepFacts facts = factsFor(run, step);
        if (options_.form == WatchForm::text) {
            const Style style{context_.colored()};
            const std::string since =
                facts.secondsSincePrevious ? ", " + facts.sinceText() + " after the save before it" : "";
            fmt::print("{}: {} ({}{}{})\n", style.bold(printable(step.name)),
                       coloredVerdict(verdict.verdict(), style), bytesText(files.bytes), since,
                       facts.otherRanks() ? "; ranks: " + facts.ranksText() : "");
            if (verdict.error) fmt::print("    {}\n", printable(describe(*verdict.error)));
            printFindings(verdict.report, verdict.accepted, style, 4, Severity::warning);
            std::fflush(stdout);
            return {};
        }
        std::string text;
        if (options_.form == WatchForm::json) {
            Json json;
            json["schema"] = "shardscope.watch/1";
            json.update(stepJson(context_, run, step, files, verdict, verdict.format, facts));
            json["findings"] = Json::parse(validationJson(verdict.report, verdict.accepted))["findings"];
            text = dump(json) + "\n";
        } else {
            text = validationJunit(context_.shown(run.pathOf(step)), reportOf(verdict), verdict.accepted);
        }
        if (!options_.output.empty())
            return writeOutputFile(
                joinPath(options_.output, step.name + (options_.form == WatchForm::json ? ".json" : ".xml")),
                text, Replace::yes);
        std::fwrite(text.data(), 1, text.size(), stdout);
        std::fflush(stdout);
        return {};
    }

    const Context& context_;
    const WatchOptions& options_;
    SaveWatch saves_;
    struct Judged {
        StepFiles files;  // as they were then
        StepVerdict verdict;
    };
    std::map<std::string, Judged> judged_;  // by name of the step
    bool found_ = false;
};

Result<int> watch(const Context& context, const WatchOptions& options) {
    if (options.form == WatchForm::junit && options.output.empty())
        return makeError(ErrorCode::usage, "--as junit writes a file for each step")
            .withHint("name their directory with --output DIR");
    if (!options.output.empty()) {
        if (options.form == WatchForm::text)
            return makeError(ErrorCode::usage, "--output needs --as json or --as junit");
        SHARDSCOPE_TRY(checkOutputPlace(joinPath(options.output, "step"), options.what.path));
    }
    if (schemeOf(options.what.path).empty()) SHARDSCOPE_TRY(systemFileSystem()->stat(options.what.path));
    return Watch(context, options).run();
}

}  // namespace

void addWatch(CLI::App& app, Context& context) {
    CLI::App* verb =
        app.add_subcommand("watch", "Validate each step of a run once its save is complete, until stopped");
    verb->footer(
        "Example:\n  shardscope watch /runs/7 --level values --exec 'notify \"$SHARDSCOPE_STEP: "
        "$SHARDSCOPE_VERDICT\"'\n\n"
        "A save is complete when the run's tracker comes to name its step, or when nothing has been seen to "
        "change for --settle seconds.\n"
        "Ctrl-C ends it: exit code 0 when every step that was judged is whole, else 1.");
    auto options = std::make_shared<WatchOptions>();
    verb->add_option("path", options->what.path, "Directory of a run")->required()->type_name("RUN");
    addJudging(*verb, options->what, "metadata, files (default) or values");
    static const std::map<std::string, WatchForm> forms{
        {"text", WatchForm::text}, {"json", WatchForm::json}, {"junit", WatchForm::junit}};
    verb->add_option("--as", options->form, "text (default), json (one line for each step) or junit")
        ->transform(oneOf(forms))
        ->type_name("FORM");
    verb->add_option("-o,--output", options->output, "Directory for STEP.json or STEP.xml (default: stdout)")
        ->type_name("DIR");
    verb->add_option(
            "--exec", options->command,
            "Shell command after each step; $SHARDSCOPE_STEP, $SHARDSCOPE_PATH and $SHARDSCOPE_VERDICT "
            "say which")
        ->type_name("CMD");
    verb->add_option("--settle", options->settle,
                     "Seconds without a change after which a save is complete (30)")
        ->check(CLI::Range(0, 86400).description(""))
        ->type_name("N");
    verb->add_option("--interval", options->interval, "Seconds between looks (5)")
        ->check(CLI::Range(1, 86400).description(""))
        ->type_name("N");
    addCommon(*verb, context, true);
    verb->callback(
        [&context, options] { context.verb = [&context, options] { return watch(context, *options); }; });
}

}  // namespace shardscope::cli
