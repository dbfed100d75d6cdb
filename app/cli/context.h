// What all verbs share: output streams and their manners, common options, cancellation.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/memory_budget.h"
#include "base/progress.h"
#include "base/stop.h"
#include "engine/engine.h"
#include "engine/run_directory.h"

namespace shardscope {
struct Accelerator;  // cluster/accelerator.h
struct WorkerState;  // cluster/coordinator.h
}  // namespace shardscope

namespace shardscope::cli {

enum class ProgressMode : uint8_t { automatic, bar, json, none };
enum class ColorMode : uint8_t { automatic, always, never };

struct Context {
    bool json = false;
    ProgressMode progress = ProgressMode::automatic;
    ColorMode color = ColorMode::automatic;
    std::string format;   // --format
    std::string variant;  // --variant KEY=VALUE: which of several checkpoints in the source
    std::vector<std::pair<std::string, std::string>> own;  // options of formats: --tp-dim GLOB=DIM
    IoMode io = IoMode::automatic;
    unsigned threads = 0;
    uint64_t memory = kStandardMemory;
    StopSource stop;
    const Accelerator* accelerator = nullptr;  // that this program links; null = none

    std::vector<std::string> words;  // of this command line, without the program's name
    // What a verb that converts is to do; null with the others. Set before `verb` runs.
    std::shared_ptr<const struct ConvertCommand> conversion;
    std::shared_ptr<const DiffOptions> difference;  // what `diff` is to compare; filled when it was parsed

    // Set where this command line runs for one on another machine (cli/remote.h): what this host is called
    // there, and who is shown the progress. Then nothing is written into files here.
    std::string place;
    std::function<void(const Progress&, const std::vector<WorkerState>&)> onProgress;
    bool away() const { return !place.empty(); }
    // A path as the user gave it.
    std::string shown(const std::string& path) const;
    std::string remoteProgram;  // --remote-program

    // What the chosen verb does; set by its callback. Returns the exit code or an error.
    std::function<Result<int>()> verb;

    bool colored() const;                          // of stdout
    bool progressBar() const;                      // on stderr
    std::vector<std::string> sourceWords() const;  // how a source is opened (engine/request.h: openingOf)
    CheckpointOptions openOptions() const;
    Result<Checkpoint> open(const std::string& path, std::shared_ptr<FileSystem> fileSystem = nullptr) const;
    Result<CheckpointOrRun> openAny(const std::string& path) const;
    void sayChosen(const Checkpoint& checkpoint) const;  // on stderr, where a run stood for it
};

// Adds --json, --format, --color, --memory (and --progress, --threads, --io where work is long) to a verb.
void addCommon(CLI::App& verb, Context& context, bool longRunning);

// A pool, a budget and a progress display for one long operation.
class Work {
  public:
    Work(const Context& context, uint64_t heldBytes);
    ~Work();
    Status start();                                             // errors: limit
    const Resources& resources() const { return *resources_; }  // once it has started
    Progress& progress() { return progress_; }

  private:
    const Context& context_;
    uint64_t held_;
    Progress progress_;
    std::unique_ptr<JobResources> resources_;
    std::unique_ptr<class ProgressPrinter> printer_;
};

// Prints an error where the mode wants it (JSON on stdout, a sentence on stderr) and returns its exit code.
int reportError(const Context& context, const Error& error);

}  // namespace shardscope::cli
