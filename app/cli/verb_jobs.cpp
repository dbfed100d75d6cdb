#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include <fmt/format.h>
#include <unistd.h>

#include "answers/documents.h"
#include "cli/application.h"
#include "cli/convert.h"
#include "cli/help.h"
#include "cli/one_of.h"
#include "cli/progress.h"
#include "cli/ranks.h"
#include "cli/text.h"
#include "cluster/coordinator.h"
#include "cluster/slurm.h"
#include "jobs/jobs.h"

namespace shardscope::cli {
namespace {

// What went wrong and where; what to do is for `hint`.
std::string failure(const Json& result) {
    Error error = makeError(ErrorCode::internal, textIn(result, "message"));
    if (error.message.empty()) return {};
    error.location.file = textIn(result, "file");
    error.location.tensor = textIn(result, "tensor");
    return describe(error);
}

// One line: how far it is, or how it ended.
std::string stateLine(const JobRecord& job) {
    if (job.state == JobState::running && job.progress.is_object()) return job.at().text();
    if (job.state == JobState::failed || job.state == JobState::cancelled) {
        const std::string message = failure(job.result);
        return std::string(jobStateName(job.state)) + (message.empty() ? "" : ": " + printable(message));
    }
    if (job.state == JobState::lost) return "lost; 'shardscope jobs resume' continues it";
    return std::string(jobStateName(job.state));
}

struct JobsOptions {
    std::string id;
    std::string on, remoteProgram, recipe;
    bool wait = false, follow = false;
};

// Shows a job until it ends, with its exit code; Ctrl-C leaves it alone.
Result<int> attach(const Context& context, const JobDirectory& jobs, const std::string& id) {
    bool drawn = false;
    Pace pace;
    for (;;) {
        SHARDSCOPE_ASSIGN(const JobRecord job, jobs.find(id));
        if (context.stop.stopRequested() || !job.active()) {
            if (drawn) fmt::print(stderr, "\r\x1b[K");
            if (job.active()) {
                fmt::print(stderr, "the job continues; 'shardscope jobs cancel {}' ends it\n", job.id);
                return 130;
            }
            if (context.json) {
                printJson(jobDocument(job));
            } else {
                fmt::print("{} {}: {}\n", job.id, printable(job.title), stateLine(job));
                if (const std::string hint = textIn(job.result, "hint"); !hint.empty())
                    fmt::print("  hint: {}\n", printable(hint));
            }
            return job.exitCode >= 0 ? job.exitCode : exitCode(ErrorCode::remote);
        }
        if (context.progressBar()) {
            fmt::print(stderr, "\r\x1b[K{} {}", job.id, stateLine(job));
            std::fflush(stderr);
            drawn = true;
        } else if (context.progress == ProgressMode::json && job.progress.is_object()) {
            printLine(stderr, job.progress);
        } else if (context.progressLines() && pace.due()) {
            fmt::print(stderr, "{} {}\n", job.id, stateLine(job));
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
}

// What the words of a conversion ask for; they are checked as `convert` checks them.
Result<JobOrder> parseWords(std::vector<std::string> words) {
    if (words.empty() || (words[0] != "convert" && words[0] != "reshard" && words[0] != "average"))
        return makeError(
            ErrorCode::usage,
            "'convert', 'reshard' or 'average' with its words, or a recipe's file alone, is expected after "
            "the options");
    Context context;
    const auto app = makeApp(context);
    try {
        app->parse(std::vector<std::string>(words.rbegin(), words.rend()));
    } catch (const CLI::Success&) {
        return makeError(ErrorCode::usage, "a job cannot show help")
            .withHint("'shardscope convert --help' does");
    } catch (const CLI::ParseError& error) {
        return usageError(*app, words, error);
    }
    if (!context.conversion || context.conversion->dryRun)
        return makeError(ErrorCode::usage, "a job converts: leave out --dry-run, or say 'shardscope plan'");
    if (context.conversion->inParts())
        return makeError(ErrorCode::usage, "a job does the whole conversion, not a part of it")
            .withHint("parts are processes that a scheduler starts: 'shardscope convert ... --part I/N'");
    if (const std::string option = context.conversion->ranks.given(); !option.empty())
        return makeError(ErrorCode::usage, fmt::format("a job does not keep {}", option))
            .withHint("it starts its ranks itself, with the libtorch that SHARDSCOPE_TORCH_LIBRARY names");
    return JobOrder{context.conversion->request, context.conversion->report, context.remoteProgram};
}

Result<int> startJob(const Context& context, const JobsOptions& options,
                     const std::vector<std::string>& rest) {
    JobOrder order;
    // One word that is not a verb: a recipe in place of the words.
    std::error_code none;
    if (rest.size() == 1 && (rest[0].ends_with(".json") || std::filesystem::is_regular_file(rest[0], none))) {
        SHARDSCOPE_ASSIGN(order.request, requestFromRecipe(rest[0]));
        SHARDSCOPE_TRY(checkEnds(order.request, rest[0]));
    } else {
        SHARDSCOPE_ASSIGN(order, parseWords(rest));
    }
    if (!options.on.empty()) order.request.on = options.on;
    if (!options.remoteProgram.empty()) order.remoteProgram = options.remoteProgram;
    const JobDirectory jobs;
    SHARDSCOPE_ASSIGN(const std::string id, startAsJob(std::move(order)));
    if (options.wait) return attach(context, jobs, id);
    if (context.json)
        printJson(Json{{"schema", "shardscope.job/1"}, {"id", id}, {"state", "starting"}});
    else
        fmt::print("{}\n", id);
    return 0;
}

Result<int> list(const Context& context) {
    SHARDSCOPE_ASSIGN(const std::vector<JobRecord> found, JobDirectory().list());
    if (context.json) {
        printJson(jobsJson(found));
        return 0;
    }
    for (const JobRecord& job : found)
        fmt::print("{}  {:<9}  {}\n    {}\n", job.id, jobStateName(job.state), printable(job.title),
                   stateLine(job));
    return 0;
}

// The Slurm jobs whose nodes its workers are on, from what it said itself.
std::set<std::string> slurmJobs(const JobRecord& job) {
    std::set<std::string> numbers;
    for (const nlohmann::json& worker : job.workers) {
        const std::string number = textIn(worker, "slurm_job");
        if (!number.empty() && number.find_first_not_of("0123456789") == std::string::npos)
            numbers.insert(number);
    }
    return numbers;
}

Result<int> show(const Context& context, const std::string& id) {
    SHARDSCOPE_ASSIGN(const JobRecord job, JobDirectory().find(id));
    if (context.json) {
        Json json = jobDocument(job);
        json["slurm"] = Json::array();
        for (const std::string& number : slurmJobs(job))
            json["slurm"].push_back({{"job", number}, {"state", slurmState(number)}});
        printJson(json);
        return 0;
    }
    fmt::print("{}  {}\n", job.id, printable(job.title));
    fmt::print("  state     {}\n  host      {}\n  started   {} (attempt {})\n", stateLine(job),
               printable(job.host), printable(job.started), job.attempts);
    if (!job.workingDirectory.empty()) fmt::print("  in        {}\n", printable(job.workingDirectory));
    std::string line;
    for (const std::string& word : job.arguments)
        line += " " + printable(word);
    fmt::print("  command   {}{}\n", printable(std::filesystem::path(job.program).filename().string()), line);
    if (job.workers.is_array()) {
        for (const nlohmann::json& worker : job.workers)
            fmt::print("  worker    {:<16} {:<9} {:>10}  {}\n", printable(textIn(worker, "name")),
                       printable(textIn(worker, "state")),
                       bytesText(static_cast<uint64_t>(numberIn(worker, "bytes"))),
                       printable(textIn(worker, "why")));
    }
    for (const std::string& number : slurmJobs(job)) {
        const std::string state = slurmState(number);
        fmt::print("  slurm     job {}: {}\n", number, state.empty() ? "not known here any more" : state);
    }
    if (!job.active() && textIn(job.result, "hint").size() > 0)
        fmt::print("  hint      {}\n", printable(textIn(job.result, "hint")));
    return 0;
}

// The answer of what changes a job: how it is now, for programs.
Result<int> said(const Context& context, const JobDirectory& jobs, const std::string& id) {
    if (!context.json) return 0;
    SHARDSCOPE_ASSIGN(const JobRecord job, jobs.find(id));
    printJson(jobDocument(job));
    return 0;
}

Result<int> log(const Context& context, const std::string& id, bool follow) {
    const JobDirectory jobs;
    SHARDSCOPE_ASSIGN(JobRecord job, jobs.find(id));
    std::ifstream in(jobs.logPath(job), std::ios::binary);
    std::string line;
    const auto pass = [&] {
        while (std::getline(in, line))
            fmt::print("{}\n", context.json ? line : printable(line));
        in.clear();
    };
    pass();
    while (follow && job.active() && !context.stop.stopRequested()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        SHARDSCOPE_ASSIGN(job, jobs.find(id));
        pass();
    }
    return 0;
}

}  // namespace

void addJobs(CLI::App& app, Context& context) {
    CLI::App* jobs =
        app.add_subcommand("jobs", "Conversions that run elsewhere, or on after the terminal is closed");
    jobs->footer(
        "Examples:\n  shardscope jobs run --on local:4 convert /checkpoints/step-1000 model/ --to "
        "safetensors\n"
        "  shardscope jobs run --on ssh:node7,node8 --wait reshard /data/step-1000 /data/step-1000-tp8 "
        "--mesh tp=8 "
        "--shard '*:tp=0'\n  shardscope jobs run --on slurm:nodes=4,partition=cpu saved.json\n  shardscope "
        "jobs attach 20261121-14");
    jobs->require_subcommand(1);
    auto options = std::make_shared<JobsOptions>();
    const auto verb = [&](const char* name, const char* about, bool longRunning) {
        CLI::App* sub = jobs->add_subcommand(name, about);
        sub->add_flag("--json", context.json, "One JSON document on stdout, errors included");
        if (longRunning) addProgress(*sub, context, "Progress on stderr: auto, bar, json or none");
        return sub;
    };
    const auto withId = [&](CLI::App* sub) {
        sub->add_option("id", options->id, "The job: its id, or the beginning of it")
            ->required()
            ->type_name("ID");
        return sub;
    };
    const auto runs = [&](CLI::App* sub, std::function<Result<int>()> what) {
        sub->callback([&context, what = std::move(what)] { context.verb = what; });
    };

    CLI::App* run = verb("run", "Start a conversion as a job", true);
    run->add_option(
           "--on", options->on,
           "Who works: local:N processes, ssh:HOST,HOST, slurm:nodes=N,... (joined by '+'), ranks:N or "
           "local-gpus (default: as the words or the recipe say, else local:1)")
        ->type_name("WHERE");
    run->add_option("--remote-program", options->remoteProgram,
                    "shardscope on the other hosts (default: this one; ssh copies it there once)")
        ->type_name("PATH");
    run->add_flag("--wait", options->wait, "Wait until it ends, with its exit code");
    run->prefix_command();
    run->footer(
        "What follows the options are the words of 'convert' or 'reshard', or a recipe that the window has "
        "saved.");
    runs(run, [&context, options, run] { return startJob(context, *options, run->remaining()); });

    runs(verb("list", "All jobs, the newest first", false), [&context] { return list(context); });
    runs(withId(verb("show", "One job: state, command, workers", false)),
         [&context, options] { return show(context, options->id); });
    CLI::App* logs = withId(verb("log", "What the job has said", false));
    logs->add_flag("-f,--follow", options->follow, "Follow until it ends");
    runs(logs, [&context, options] { return log(context, options->id, options->follow); });
    runs(withId(verb("cancel", "End it in order; a second time: at once", false)),
         [&context, options]() -> Result<int> {
             const JobDirectory directory;
             SHARDSCOPE_ASSIGN(const JobRecord job, directory.find(options->id));
             SHARDSCOPE_TRY(directory.cancel(job));
             return said(context, directory, job.id);
         });
    runs(withId(verb("resume", "Continue a job that ended early", false)),
         [&context, options]() -> Result<int> {
             const JobDirectory directory;
             SHARDSCOPE_ASSIGN(const JobRecord job, directory.find(options->id));
             SHARDSCOPE_TRY(directory.resume(job));
             return said(context, directory, job.id);
         });
    runs(withId(verb("attach", "Show its progress until it ends, with its exit code", true)),
         [&context, options] { return attach(context, JobDirectory(), options->id); });
}

}  // namespace shardscope::cli
