#include "cli/context.h"

#include <cstdio>
#include <cstdlib>

#include <fmt/format.h>
#include <unistd.h>

#include "cli/convert.h"
#include "cli/json.h"
#include "cli/one_of.h"
#include "cli/progress.h"
#include "cli/text.h"
#include "execute/executor.h"

namespace shardscope::cli {

bool Context::colored() const {
    if (color != ColorMode::automatic) return color == ColorMode::always;
    const char* noColor = std::getenv("NO_COLOR");
    if (noColor && *noColor) return false;
    return !json && isatty(STDOUT_FILENO);
}

bool Context::progressBar() const {
    return progress == ProgressMode::bar || (progress == ProgressMode::automatic && isatty(STDERR_FILENO));
}

std::vector<std::string> Context::sourceWords() const {
    std::vector<std::string> all;
    if (!format.empty()) all.push_back("--format=" + format);
    if (!variant.empty()) all.push_back("--variant=" + variant);
    for (const auto& [name, value] : own)
        all.push_back(fmt::format("{}={}", name, value));
    return all;
}

CheckpointOptions Context::openOptions() const {
    CheckpointOptions options;
    options.format = format;
    options.open.variant = variant;
    options.open.limits.valueMemory = memory / 2;
    options.open.own = own;
    options.io = io;
    options.open.stop = stop;
    return options;
}

Result<Checkpoint> Context::open(const std::string& path, std::shared_ptr<FileSystem> fileSystem) const {
    CheckpointOptions options = openOptions();
    options.fileSystem = std::move(fileSystem);
    auto checkpoint = openCheckpoint(path, options);
    if (checkpoint.ok()) sayChosen(*checkpoint);
    return checkpoint;
}

Result<CheckpointOrRun> Context::openAny(const std::string& path) const {
    auto opened = openCheckpointOrRun(path, openOptions());
    if (const auto* checkpoint = opened.ok() ? std::get_if<Checkpoint>(&*opened) : nullptr)
        sayChosen(*checkpoint);
    return opened;
}

void Context::sayChosen(const Checkpoint& checkpoint) const {
    if (!checkpoint.chosen.empty())
        fmt::print(stderr, "shardscope: opens {}: {}\n", printable(shown(checkpoint.path)),
                   printable(checkpoint.chosen));
}

std::string Context::shown(const std::string& path) const {
    return away() && path.starts_with('/') ? place + path : path;
}

void addCommon(CLI::App& verb, Context& context, bool longRunning) {
    verb.add_flag("--json", context.json, "One JSON document on stdout, errors included");
    verb.add_option("--format", context.format, "Take the source as this format instead of detecting it")
        ->type_name("NAME");
    // Verbs that write have an option of that name, which takes the source's variants too.
    if (!verb.get_option_no_throw("--variant")) {
        verb.add_option("--variant", context.variant,
                        "Which of several checkpoints in one directory (id=N, for Paddle's)")
            ->type_name("KEY=VALUE");
    }
    for (const FormatOption& option : formatOptions()) {
        // Of a conversion it is more than how the source is opened.
        if (verb.get_option_no_throw(option.name)) continue;
        const auto take = [&context, name = option.name](const std::vector<std::string>& values) {
            for (const std::string& value : values)
                context.own.emplace_back(name, value);
        };
        CLI::Option* added =
            verb.add_option_function<std::vector<std::string>>(option.name, take, option.help)
                ->type_name(option.value)
                ->allow_extra_args(false);
        if (!option.repeats) added->expected(1);
        if (!option.choices.empty()) added->check(oneOf(option.values()));
    }
    static const std::map<std::string, ColorMode> colors{
        {"auto", ColorMode::automatic}, {"always", ColorMode::always}, {"never", ColorMode::never}};
    verb.add_option("--color", context.color, "Colors: auto, always or never (NO_COLOR is respected)")
        ->transform(oneOf(colors))
        ->type_name("WHEN");
    verb.add_option_function<std::string>(
            "--memory",
            [&context](const std::string& text) {
                const auto bytes = parseBytes(text);
                if (!bytes)
                    throw CLI::ValidationError("--memory", "'" + text + "' is not a size such as 512MiB");
                context.memory = *bytes;
            },
            "Most memory that the whole process may take")
        ->type_name("SIZE")
        ->default_str("512MiB");
    static const std::map<std::string, ProgressMode> modes{{"auto", ProgressMode::automatic},
                                                           {"bar", ProgressMode::bar},
                                                           {"json", ProgressMode::json},
                                                           {"none", ProgressMode::none}};
    verb.add_option("--progress", context.progress,
                    "Progress on stderr: auto (a bar on a terminal), bar, json or none")
        ->transform(oneOf(modes))
        ->type_name("MODE");
    // Conversions have it among who works.
    if (!verb.get_option_no_throw("--remote-program")) {
        verb.add_option("--remote-program", context.remoteProgram,
                        "shardscope on the host of an ssh:// path (default: this one is copied there once)")
            ->type_name("PATH");
    }
    if (!longRunning) return;
    verb.add_option("--threads", context.threads, "Worker threads (0 = chosen for this machine)")
        ->check(CLI::Range(0, 1024).description(""))
        ->type_name("N");
    verb.add_option("--io", context.io, "Reads and writes: auto, direct (past the page cache) or buffered")
        ->transform(oneOf<IoMode>())
        ->type_name("MODE");
}

Work::Work(const Context& context, uint64_t heldBytes) : context_(context), held_(heldBytes) {}
Work::~Work() = default;

Status Work::start() {
    SHARDSCOPE_ASSIGN(const uint64_t buffers, bufferBudget(context_.memory, held_));
    resources_ = std::make_unique<JobResources>(context_.threads, buffers, &progress_, context_.stop);
    printer_ = std::make_unique<ProgressPrinter>(context_, progress_);
    return {};
}

int reportError(const Context& context, const Error& where) {
    Error error = where;
    error.location.file = context.shown(error.location.file);
    if (context.away() && context.conversion) {
        const std::string staging = stagingPath(context.conversion->request.destination);
        if (const size_t at = error.hint.find(staging); at != std::string::npos)
            error.hint.replace(at, staging.size(), context.shown(staging));
    }
    if (context.progress == ProgressMode::json) {
        printLine(stderr, nlohmann::ordered_json{{"event", "error"}, {"error", errorDocument(error)}});
    }
    if (context.json) {
        printJson(errorDocument(error));
    } else if (context.progress != ProgressMode::json) {
        // Nothing throws here where standard error is closed or full.
        const std::string line = fmt::format("shardscope: {}\n", printable(describe(error)));
        std::fwrite(line.data(), 1, line.size(), stderr);
    }
    return exitCode(error.code);
}

}  // namespace shardscope::cli
