#include "cli/context.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include <fmt/format.h>
#include <unistd.h>

#include "base/option_words.h"
#include "cli/convert.h"
#include "cli/help.h"
#include "cli/one_of.h"
#include "cli/progress.h"
#include "cli/text.h"
#include "engine/request.h"

namespace shardscope::cli {
namespace {

// Variables that many programs know: no-color.org, force-color.org, bixense.com/clicolors.
std::string_view variable(const char* name) {
    const char* value = std::getenv(name);
    return value ? value : "";
}
bool isSet(const char* name) {
    return !variable(name).empty();
}
bool isOff(const char* name) {
    return variable(name) == "0";
}
bool isOn(const char* name) {
    return isSet(name) && !isOff(name);
}
// A terminal that knows neither colors nor how to write a line anew.
bool isDumb() {
    return variable("TERM") == "dumb";
}

}  // namespace

bool Output::colored() const {
    if (color != ColorMode::automatic) return color == ColorMode::always;
    if (json || isSet("NO_COLOR")) return false;
    if (isOn("FORCE_COLOR") || isOn("CLICOLOR_FORCE")) return true;
    return isatty(STDOUT_FILENO) && !isDumb() && !isOff("CLICOLOR");
}

bool Output::progressBar() const {
    return progress == ProgressMode::bar ||
           (progress == ProgressMode::automatic && isatty(STDERR_FILENO) && !isDumb());
}

bool Output::progressLines() const {
    return progress == ProgressMode::automatic && !progressBar();
}

Context::Context() {
    watch = [this](const Progress& work, Workers workers) {
        return std::make_shared<ProgressPrinter>(*this, work, std::move(workers));
    };
    opened = [this](const Checkpoint& checkpoint) {
        if (!checkpoint.chosen.empty())
            fmt::print(stderr, "shardscope: opens {}: {}\n", printable(shown(checkpoint.path)),
                       printable(checkpoint.chosen));
    };
}

void addProgress(CLI::App& verb, Context& context, const std::string& help) {
    static const std::map<std::string, ProgressMode> modes{{"auto", ProgressMode::automatic},
                                                           {"bar", ProgressMode::bar},
                                                           {"json", ProgressMode::json},
                                                           {"none", ProgressMode::none}};
    verb.add_option("--progress", context.progress, help)->transform(oneOf(modes))->type_name("MODE");
}

void addDequantize(CLI::App& verb, Context& context) {
    const auto field = std::ranges::find(convertFields(), "dequantize", &ConvertField::option);
    verb.add_option(commandOption("dequantize"), context.dequantize, field->help)->type_name(field->type);
}

void addCommon(CLI::App& verb, Context& context, bool longRunning) {
    verb.add_flag("--json", context.json, "One JSON document on stdout, errors included");
    verb.add_option("--format", context.format, "Take the source as this format instead of detecting it")
        ->type_name("NAME");
    // Verbs that write have an option of that name, which takes the source's variants too.
    if (!verb.get_option_no_throw("--variant")) {
        verb.add_option("--variant", context.variant,
                        "Which of several checkpoints in one directory (id=N, for Paddle's)")
            ->type_name("KEY=VALUE")
            ->group(kOtherFormats);
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
                ->group(kOtherFormats)
                ->allow_extra_args(false);
        if (!option.repeats) added->expected(1);
        if (!option.choices.empty()) added->check(oneOf(option.values()));
    }
    static const std::map<std::string, ColorMode> colors{
        {"auto", ColorMode::automatic}, {"always", ColorMode::always}, {"never", ColorMode::never}};
    verb.add_option("--color", context.color,
                    "Colors: auto, always or never; NO_COLOR, FORCE_COLOR, CLICOLOR_FORCE and TERM=dumb "
                    "count for auto")
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
    addProgress(
        verb, context,
        "Progress on stderr: auto (a bar on a terminal, else a line every 30 seconds), bar, json or none");
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
