#include "cli/remote.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include <fmt/format.h>
#include <unistd.h>

#include "answers/documents.h"
#include "base/own_program.h"
#include "cli/convert.h"
#include "cli/output_file.h"
#include "cli/progress.h"
#include "cli/ranks.h"
#include "cli/text.h"
#include "cluster/messages.h"
#include "engine/recipe.h"
#include "engine/whole_file.h"
#include "hosts/remote_run.h"

namespace shardscope::cli {
namespace {

constexpr size_t kMostFile = size_t{512} << 20;  // that a verb there may have written here
constexpr size_t kMostLine = size_t{64} << 10;

// Verbs that an agent runs.
constexpr std::array<std::string_view, 16> kVerbs{"info", "latest",   "ready",   "stats",  "ls",     "show",
                                                  "map",  "validate", "report",  "index",  "digest", "diff",
                                                  "plan", "convert",  "reshard", "average"};

// Arguments that name a checkpoint or another file of the host.
constexpr std::array<const char*, 12> kPaths{"path",        "a",        "b",        "source",
                                             "destination", "--expect", "--like",   "--map",
                                             "--objects",   "--assets", "--report", "--adapter"};

std::string sayable(std::string_view word) {
    return printable(word.substr(0, 300));
}

// One line: control characters escaped but for our own colors.
std::string harmless(std::string_view line) {
    std::string text;
    for (size_t at = 0; at < line.size();) {
        const size_t escape = std::min(line.find("\x1b[", at), line.size());
        text += printable(line.substr(at, escape - at));
        at = escape;
        if (at == line.size()) break;
        size_t end = at + 2;
        while (end < line.size() && end - at < 8 &&
               (line[end] == ';' || (line[end] >= '0' && line[end] <= '9')))
            ++end;
        const bool color = end < line.size() && line[end] == 'm';
        end = color ? end + 1 : at + 1;
        const std::string_view sequence = line.substr(at, end - at);
        text += color ? std::string(sequence) : printable(sequence);
        at = end;
    }
    return text;
}

const CLI::App* chosen(const CLI::App& app) {
    const auto verbs = app.get_subcommands();
    return verbs.empty() ? nullptr : verbs[0];
}

std::string valueOf(const CLI::App& verb, const char* name) {
    const CLI::Option* option = verb.get_option_no_throw(name);
    return option && option->count() ? option->results().back() : std::string();
}

bool isBuiltinRecipe(const std::string& name) {
    const auto& all = builtinRecipes();
    return std::any_of(all.begin(), all.end(), [&](const BuiltinRecipe& r) { return r.name == name; });
}

// The word's path on the host, when it is one: "ssh://host/x", "--expect=ssh://host/x".
size_t pathAt(std::string_view word) {
    if (isSshPath(word)) return 0;
    const size_t equals = word.find('=');
    if (word.starts_with("--") && equals != std::string_view::npos && isSshPath(word.substr(equals + 1)))
        return equals + 1;
    return std::string_view::npos;
}

Error needsHost(std::string_view option, const std::string& value, const std::string& place) {
    return makeError(ErrorCode::usage,
                     fmt::format("{} '{}' is a path of this machine, and the verb runs on the host", option,
                                 sayable(value)))
        .withHint(fmt::format("name a path there: {}/...", place));
}

// A conversion runs on the host that has both its ends. It sees buckets, the hub and web servers, too, with
// its own credentials.
Status checkConversion(const CLI::App& verb, const RemoteCall& call, bool several) {
    if (several || !isElsewhere(valueOf(verb, "source")) || !isElsewhere(valueOf(verb, "destination")))
        return makeError(ErrorCode::impossible,
                         "a conversion runs where its files are: source and destination must be on one host")
            .withHint(fmt::format("copy one side to where the other is; with a path that the hosts share: "
                                  "shardscope jobs run --on ssh:{} {} SRC DST",
                                  call.host.host, verb.get_name()));
    return {};
}

Status checkWorkers(const CLI::App& verb) {
    const std::string on = valueOf(verb, "--on");
    if (on.find("ssh:") == std::string::npos && on.find("slurm") == std::string::npos) return {};
    return makeError(ErrorCode::impossible,
                     "the work is planned on the host, and only processes of that host can do it")
        .withHint("--on local:N for several processes there");
}

// Where what a verb there writes goes: a terminal, or bytes as they are.
class Stream {
  public:
    explicit Stream(std::FILE* file) : file_(file), terminal_(isatty(fileno(file))) {}
    Status put(std::string_view bytes) {
        const std::string text = terminal_ ? harmless_.take(bytes) : std::string();
        const std::string_view shown = terminal_ ? std::string_view(text) : bytes;
        if (std::fwrite(shown.data(), 1, shown.size(), file_) == shown.size() && std::fflush(file_) == 0)
            return {};
        if (errno == EPIPE) {  // as any program that writes into a pipe which nobody reads
            std::signal(SIGPIPE, SIG_DFL);
            std::raise(SIGPIPE);
        }
        return systemError(errno, "write the answer", "standard output");
    }
    void flush() {
        const std::string text = harmless_.flush();
        std::fwrite(text.data(), 1, text.size(), file_);
        std::fflush(file_);
    }

  private:
    std::FILE* const file_;
    const bool terminal_;
    TerminalText harmless_;
};

// Puts what `index` made there into a file here, and opens it: it is as untrusted as any.
Result<int> takeIndex(const Context& context, const CLI::App& verb, const std::string& bytes) {
    const std::string path = valueOf(verb, "path");
    const std::string named = valueOf(verb, "--output");
    SHARDSCOPE_ASSIGN(const SshPath there, parseSshPath(path));
    const std::string file = named.empty() ? indexName(there.path) : named;
    const bool overwrite = verb.get_option("--overwrite")->count() > 0;
    SHARDSCOPE_TRY(putWholeFile(systemFileSystem(), file, bytes, overwrite));
    CheckpointOptions options;
    options.format = "index";
    SHARDSCOPE_ASSIGN(const Checkpoint index, openCheckpoint(file, options));
    return printIndexed(context, path, file, bytes.size(), index.catalog());
}

}  // namespace

std::string TerminalText::take(std::string_view bytes) {
    unfinished_ += bytes;
    std::string text;
    size_t begin = 0;
    for (size_t end = 0; (end = unfinished_.find('\n', begin)) != std::string::npos; begin = end + 1)
        text += harmless(std::string_view(unfinished_).substr(begin, end - begin)) + "\n";
    unfinished_.erase(0, begin);
    if (unfinished_.size() > kMostLine) text += flush();
    return text;
}

std::string TerminalText::flush() {
    return harmless(std::exchange(unfinished_, {}));
}

Result<std::optional<RemoteCall>> remoteCall(const CLI::App& app, const Context& context) {
    RemoteCall call;
    std::string place;
    size_t paths = 0;
    bool several = false;
    for (const std::string& word : context.words) {
        const size_t at = pathAt(word);
        if (at == std::string_view::npos) {
            call.words.push_back(word);
            continue;
        }
        SHARDSCOPE_ASSIGN(const SshPath path, parseSshPath(std::string_view(word).substr(at)));
        const std::string other = hostText(path.host);
        several = several || (!place.empty() && other != place);
        if (place.empty()) call.host = path.host;
        place = other;
        ++paths;
        call.words.push_back(word.substr(0, at) + path.path);
    }
    if (paths == 0) return std::optional<RemoteCall>();

    const CLI::App* verb = chosen(app);
    const std::string name = verb ? verb->get_name() : "";
    if (std::find(kVerbs.begin(), kVerbs.end(), name) == kVerbs.end()) {
        return makeError(ErrorCode::usage, fmt::format("'{}' does not take ssh:// paths", name))
            .withHint(fmt::format("run it there: ssh {} shardscope {} ...", call.host.host, name));
    }
    if (context.conversion) {
        SHARDSCOPE_ASSIGN(const auto ranks,
                          ranksOf(context.conversion->request, context.conversion->ranks.given()));
        if (ranks)
            return makeError(ErrorCode::usage, "ranks take no ssh:// paths")
                .withHint("start shardscope on that host");
    }
    const bool plans = context.conversion && context.conversion->dryRun;
    if (context.conversion && !plans) SHARDSCOPE_TRY(checkConversion(*verb, call, several));
    if (!plans) SHARDSCOPE_TRY(checkWorkers(*verb));
    if (several) {
        return makeError(ErrorCode::impossible, "the paths are on different hosts, and a verb runs on one")
            .withHint("'shardscope index' makes of each a small file; these can be compared here");
    }
    for (const char* option : kPaths) {
        const std::string value = valueOf(*verb, option);
        if (value.empty() || isElsewhere(value)) continue;
        if (std::string_view(option) == "--map" && isBuiltinRecipe(value)) continue;
        if (std::string_view(option) == "--assets" && (value == "auto" || value == "none")) continue;
        if (std::string_view(option) == "--like" && value == kLikeSource) continue;
        return needsHost(option[0] == '-' ? option : verb->get_option(option)->get_type_name(), value, place);
    }
    return std::optional(std::move(call));
}

Result<int> runRemote(const Context& context, const CLI::App& app, const RemoteCall& call) {
    const CLI::App& verb = *chosen(app);
    const std::string name = verb.get_name();
    const std::string reportFile =
        name == "report" || name == "map" ? valueOf(verb, "--output") : std::string();
    const Replace replace =
        !reportFile.empty() && verb.get_option("--overwrite")->count() > 0 ? Replace::yes : Replace::no;
    Parents parents;
    if (!reportFile.empty()) SHARDSCOPE_TRY(prepareOutputFile(reportFile, "", replace, parents));
    const bool toFile = name == "index" || !reportFile.empty();

    AgentProgram program;
    program.version = SHARDSCOPE_VERSION;
    program.program = ownProgram();
    program.remoteProgram = context.remoteProgram;
    RunOrder order;
    order.words = call.words;
    order.host = hostText(call.host);
    order.color = context.colored();
    order.width = terminalWidth();
    order.progress = context.progress != ProgressMode::none;

    std::signal(SIGPIPE, SIG_IGN);  // of the connection; see Stream for our own
    Stream out(stdout), err(stderr);
    std::string bytes;
    Progress progress;
    RunSinks sinks;
    sinks.progress = &progress;
    std::mutex mutex;
    std::vector<WorkerState> workers;  // as last heard
    sinks.workers = [&](std::vector<WorkerState> now) {
        std::lock_guard lock(mutex);
        workers = std::move(now);
    };
    sinks.out = [&](std::string_view text) -> Status {
        if (!toFile) return out.put(text);
        if (bytes.size() + text.size() > kMostFile)
            return makeError(ErrorCode::limit,
                             fmt::format("{} wants to write more than 512 MiB here", order.host));
        bytes += text;
        return {};
    };
    Result<int> code = [&]() -> Result<int> {
        ProgressPrinter printer(context, progress, [&] {
            std::lock_guard lock(mutex);
            return workers;
        });
        // What it says comes after what was done by then.
        sinks.err = [&](std::string_view text) {
            printer.now();
            return err.put(text);
        };
        const auto over = [&] { return context.stop.stopRequested(); };
        return runThere([&] { return launchAgent(call.host, program, over); }, SHARDSCOPE_VERSION, order,
                        sinks, context.stop);
    }();
    out.flush();
    err.flush();
    // Ctrl-C reaches ssh, too, while it is being started.
    if (!code.ok() && context.stop.stopRequested()) return makeError(ErrorCode::cancelled, "canceled");
    if (!code.ok()) return code;
    if (toFile && *code != 0) SHARDSCOPE_TRY(out.put(bytes));  // the error, in JSON
    if (!toFile || *code != 0) return code;
    if (name == "index") return takeIndex(context, verb, bytes);
    SHARDSCOPE_TRY(writeOutputFile(reportFile, bytes, replace));
    return code;
}

void exitWithinSeconds() {
    // What hangs on a dead disk is not waited for. What a conversion has done by then is in its journal.
    std::signal(SIGALRM, SIG_DFL);
    alarm(10);
}

Result<int> serveRemote(Channel& channel, const Frame& first) {
    SHARDSCOPE_ASSIGN(const RunOrder order, runOrderFrom(first));
    Context context;
    RunService service(channel, context.stop);
    context.place = order.host;
    context.words = order.words;
    if (order.progress)
        context.onProgress = [&](const Progress& progress, const std::vector<WorkerState>& workers) {
            service.showProgress(progress, workers);
        };
    setenv("COLUMNS", std::to_string(order.width).c_str(), 1);
    unsetenv("NO_COLOR");
    int code = 0;
    SHARDSCOPE_TRY(service.serve(
        [&] {
            code = runWords(context, [&](const CLI::App& app) -> Status {
                // These are the other side's to decide.
                context.color = order.color ? ColorMode::always : ColorMode::never;
                const CLI::App* verb = chosen(app);
                if (!verb || std::find(kVerbs.begin(), kVerbs.end(), verb->get_name()) == kVerbs.end())
                    return makeError(ErrorCode::usage, "an agent does not run this verb");
                return {};
            });
            return code;
        },
        exitWithinSeconds));
    return code;
}

}  // namespace shardscope::cli
