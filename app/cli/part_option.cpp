#include "cli/part_option.h"

#include <csignal>
#include <vector>

#include <fmt/format.h>

#include "base/own_program.h"
#include "base/units.h"
#include "cli/application.h"
#include "cli/one_of.h"
#include "cli/output_file.h"
#include "cli/text.h"

namespace shardscope::cli {

void addPartWords(CLI::App& verb, PartRequest& words, const std::string& finishes, bool seals) {
    verb.add_option("--part", words.part,
                    "Do only this part of the work, from 0/N to N-1/N; auto takes it from Slurm, MPI, "
                    "torchrun, Kubernetes or SkyPilot; any scheduler runs the parts, in any order, on shared "
                    "storage")
        ->type_name("I/N")
        ->group(kWhoWorks);
    std::vector<std::string> when{"auto", "yes"};
    if (seals) when.emplace_back("seal");
    verb.add_option("--finish", words.finish,
                    finishes + "; with --part: auto, the last part does it" +
                        (seals ? "; seal, parts verify when they run again" : ""))
        ->expected(0, 1)
        ->default_str("yes")
        ->check(oneOf(when))
        ->type_name("WHEN")
        ->group(kWhoWorks);
}

void addOtherProgram(CLI::App& verb, Context& context) {
    verb.add_option("--remote-program", context.remoteProgram,
                    "shardscope on the other hosts (default: this one; ssh copies it there once)")
        ->type_name("PATH")
        ->group(kWhoWorks);
}

void addReadingWords(CLI::App& verb, Context& context, PartRequest& words, const std::string& finishes) {
    verb.add_option("--on", words.on,
                    "Workers that share the work: local:N, ssh:HOST,HOST, slurm:KEY=VALUE, joined by '+'")
        ->type_name("WHERE")
        ->group(kWhoWorks);
    addPartWords(verb, words, finishes, false);
    const auto take = [&words](const std::string& given) { words.records = recordsPath(given); };
    verb.add_option_function<std::string>(
            "--records", take,
            "Where parts leave what they found: a directory that all hosts see, the same one for all; "
            "made if missing, removed once all is finished; with --on local:N a temporary one where none is "
            "named")
        ->type_name("DIR")
        ->group(kWhoWorks);
    addOtherProgram(verb, context);
}

Result<Execution> readersOf(const Context& context, const PartRequest& words, const std::string& source) {
    SHARDSCOPE_ASSIGN(
        Execution by,
        shardscope::readersOf(context, words, {SHARDSCOPE_VERSION, ownProgram(), context.remoteProgram}));
    if (!words.records.empty()) SHARDSCOPE_TRY(checkOutputPlace(words.records, source));
    // The reader of the progress may go away.
    if (!words.on.empty()) std::signal(SIGPIPE, SIG_IGN);
    return by;
}

std::string allPartsDone(bool finishes, const std::string& completes) {
    return finishes ? "another one finishes" : "--finish " + completes;
}

void showPart(const Context& context, const PartReport& part, const std::string& did,
              const std::string& next) {
    const Style style{context.colored()};
    const std::string name = fmt::format("part {}/{}", part.part.index, part.part.count);
    if (part.wasDone) {
        fmt::print("{} {} was done by an earlier run: {}\n", style.green("done:"), name,
                   bytesText(part.bytes));
    } else {
        fmt::print("{} {}: {} in {}\n", style.green("done:"), name, did, durationText(part.seconds));
    }
    if (part.published) {
        fmt::print("  all parts are done, and the destination is in place\n");
    } else if (part.open.empty()) {
        fmt::print("  all parts are done; {}\n", next);
    } else {
        fmt::print("  {} of {} not done{}\n", countText(part.open.size()), counted(part.part.count, "part"),
                   part.setUpBy.empty() ? "" : " in the directory that " + part.setUpBy + " has set up");
        if (part.alone)
            fmt::print("  no other part has begun there: hosts that do not share it work in others\n");
    }
}

Status removeRecords(FinishedReading& reading) {
    SHARDSCOPE_TRY(flushAnswer());
    return reading.remove();
}

void sayPart(const Context& context, const PartReport& part, bool finishes, const std::string& completes) {
    if (context.json)
        printJson(partJson(part));
    else
        showPart(context, part, fmt::format("{} read", bytesText(part.bytesRead)),
                 allPartsDone(finishes, completes));
}

}  // namespace shardscope::cli
