#include "cli/part_option.h"

#include <algorithm>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "base/numbers.h"
#include "base/units.h"
#include "cli/application.h"
#include "cli/one_of.h"
#include "cli/output_file.h"
#include "cli/text.h"

namespace shardscope::cli {

Result<PartSpec> parsePart(std::string_view text) {
    const size_t slash = text.find('/');
    const auto index = parseNumber<uint32_t>(text.substr(0, slash));
    const auto count = slash == text.npos ? std::nullopt : parseNumber<uint32_t>(text.substr(slash + 1));
    if (!index || !count || *count == 0 || *count > kMostParts || *index >= *count)
        return makeError(ErrorCode::usage, fmt::format("'{}' is not a part", text))
            .withHint(
                fmt::format("parts count from 0: 0/4 to 3/4 are four; at most {}, or auto", kMostParts));
    return PartSpec{*index, *count, {}};
}

Result<PartSpec> partFromEnvironment(const Variables& variables) {
    if (const auto own = variables("SHARDSCOPE_PART")) return parsePart(*own);
    auto found = launchedAs(variables, LaunchOf::parts);
    if (!found.ok()) return std::move(found).error().withHint("say which part this is: --part I/N");
    if (*found) return PartSpec{(*found)->index, (*found)->count, {}};
    return makeError(ErrorCode::usage, "no scheduler says which part this is")
        .withHint("give --part I/N, or set SHARDSCOPE_PART=I/N");
}

void addPartWords(CLI::App& verb, PartWords& words, const std::string& finishes, bool seals) {
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

void addReadingWords(CLI::App& verb, PartWords& words, const std::string& finishes) {
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

Result<Parts> partsOf(const PartWords& words) {
    Parts parts;
    parts.version = SHARDSCOPE_VERSION;
    parts.seal = words.finish == "seal";
    parts.finish = !words.finish.empty() && !parts.seal;
    if (words.part.empty()) {
        if (words.finish != "yes")
            return makeError(ErrorCode::usage,
                             fmt::format("--finish {} is for parts: the last one does it", words.finish))
                .withHint("--finish alone completes a job whose parts are done");
        return parts;
    }
    if (words.finish == "yes")
        return makeError(ErrorCode::usage, "--finish after a part needs all others to be done")
            .withHint("use --finish auto, with which the last part finishes");
    if (words.part == "auto") {
        SHARDSCOPE_ASSIGN(parts.part, partFromEnvironment(environmentVariable));
    } else {
        SHARDSCOPE_ASSIGN(parts.part, parsePart(words.part));
    }
    parts.part->version = SHARDSCOPE_VERSION;
    return parts;
}

Status checkRecords(const Context& context, const PartWords& words, const std::string& source) {
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

Json partJson(const PartReport& part) {
    return {{"schema", "shardscope.part/1"},
            {"part", part.part.index},
            {"parts", part.part.count},
            {"was_done", part.wasDone},
            {"read_back", part.readBack},
            {"published", part.published},
            {"bytes", part.bytes},
            {"bytes_read", part.bytesRead},
            {"bytes_reused", part.bytesReused},
            {"seconds", part.seconds},
            {"open", part.open}};
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
        fmt::print("  {} of {} parts are not done\n", countText(part.open.size()),
                   countText(part.part.count));
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
