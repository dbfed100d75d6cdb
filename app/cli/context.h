// What all verbs share: how they print, how they open and work, common options.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "answers/access.h"

namespace shardscope {
struct Accelerator;  // cluster/accelerator.h
}

namespace shardscope::cli {

enum class ProgressMode : uint8_t { automatic, bar, json, none };
enum class ColorMode : uint8_t { automatic, always, never };

// How an answer is printed.
struct Output {
    bool json = false;
    ProgressMode progress = ProgressMode::automatic;
    ColorMode color = ColorMode::automatic;
    // Where this command line runs for one on another machine (cli/remote.h): who is shown the progress.
    std::function<void(const Progress&, const std::vector<WorkerState>&)> onProgress;

    bool colored() const;        // of stdout
    bool progressBar() const;    // on stderr
    bool progressLines() const;  // a line now and then, where there is no terminal to draw on
};

// One command line. Where it runs for one on another machine nothing is written into files here.
struct Context : Output, Access {
    const Accelerator* accelerator = nullptr;  // that this program links; null = none
    std::string remoteProgram;                 // --remote-program
    std::vector<std::string> words;            // without the program's name
    // What a verb that converts is to do; null with the others. Set before `verb` runs.
    std::shared_ptr<const struct ConvertCommand> conversion;
    // What the chosen verb does; set by its callback. Returns the exit code or an error.
    std::function<Result<int>()> verb;

    Context();
};

void addProgress(CLI::App& verb, Context& context, const std::string& help);
// Adds --dequantize to a verb that reads values.
void addDequantize(CLI::App& verb, Context& context);
// Adds --json, --format, --color, --memory (and --progress, --threads, --io where work is long) to a verb.
void addCommon(CLI::App& verb, Context& context, bool longRunning);

// Prints an error where the mode wants it (JSON on stdout, a sentence on stderr) and returns its exit code.
int reportError(const Context& context, const Error& error);

}  // namespace shardscope::cli
