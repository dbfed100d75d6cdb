#include "cli/part_option.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

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

void addReadingWords(CLI::App& verb, PartRequest& words, const std::string& finishes) {
    addPartWords(verb, words, finishes, false);
    const auto take = [&words](const std::string& given) {
        words.records = given.substr(0, std::max<size_t>(1, given.find_last_not_of('/') + 1));
    };
    verb.add_option_function<std::string>(
            "--records", take,
            "Where parts leave what they found: a directory that all hosts see, the same one for all; "
            "made if missing, removed once all is finished")
        ->type_name("DIR")
        ->group(kWhoWorks);
}

Status checkRecords(const Context& context, const PartRequest& words, const std::string& source) {
    if (!words.given()) {
        if (words.records.empty()) return {};
        return makeError(ErrorCode::usage, "--records is for --part and --finish");
    }
    if (context.away())
        return makeError(ErrorCode::usage, "parts are not for a checkpoint on another host")
            .withHint("run them there, or where its files are mounted");
    if (words.records.empty())
        return makeError(ErrorCode::usage, "--part and --finish need a place for the records of the parts")
            .withHint("--records DIR: a directory that all hosts see");
    return checkOutputPlace(words.records, source);
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
        fmt::print("  {} of {} parts are not done in the directory that {} has set up\n",
                   countText(part.open.size()), countText(part.part.count), part.setUpBy);
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
