// The command line as a whole: all verbs, from arguments to exit code.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <CLI/CLI.hpp>

#include "cli/context.h"

namespace shardscope::cli {

// Parses, runs the verb and returns the exit code of docs/cli.md. `accelerator` is what the program links;
// null = none.
int run(int argc, char** argv, const Accelerator* accelerator);

// From now on Ctrl-C stops what this context does; a second one ends the program.
void stopOnInterrupt(Context& context);

// The same as run() for one set of words, context.words, with errors reported. `accept` may refuse what was
// parsed, and `instead` may take over from the verb.
int runWords(Context& context, const std::function<Status(const CLI::App&)>& accept,
             const std::function<Result<std::optional<int>>(const CLI::App&)>& instead = {});

// That all of the answer has arrived on standard output. Errors: io.
Status flushAnswer();

// What each exit code means, as --help, the manual and docs/cli.md say it.
struct ExitStatus {
    int code;
    const char* meaning;
};
const std::vector<ExitStatus>& exitStatuses();

// The option table, also for completions and man pages. Callbacks store what to run in `context`.
std::unique_ptr<CLI::App> makeApp(Context& context);

void addInfo(CLI::App& app, Context& context);
void addLs(CLI::App& app, Context& context);
void addShow(CLI::App& app, Context& context);
void addMap(CLI::App& app, Context& context);
void addValidate(CLI::App& app, Context& context);
void addLatest(CLI::App& app, Context& context);
void addReady(CLI::App& app, Context& context);
void addStats(CLI::App& app, Context& context);
void addWatch(CLI::App& app, Context& context);
void addReport(CLI::App& app, Context& context);
void addIndex(CLI::App& app, Context& context);
void addDigest(CLI::App& app, Context& context);
void addDiff(CLI::App& app, Context& context);
void addConvert(CLI::App& app, Context& context);  // plan, convert, reshard
void addAgent(CLI::App& app, Context& context);
void addJobs(CLI::App& app, Context& context);
void addCleanup(CLI::App& app, Context& context);
void addServe(CLI::App& app, Context& context);
void addExtract(CLI::App& app, Context& context);
void addFormats(CLI::App& app, Context& context);
void addRecipes(CLI::App& app, Context& context);
void addSchema(CLI::App& app, Context& context);
void addDoctor(CLI::App& app, Context& context);
void addCompletion(CLI::App& app, Context& context);
void addHelp(CLI::App& app, Context& context);

}  // namespace shardscope::cli
