// Which part of a job this process does: as --part says it, or the scheduler that started it; and what is
// said of a part that is done.
#pragma once

#include <string>
#include <string_view>

#include <CLI/CLI.hpp>

#include "base/result.h"
#include "cli/context.h"
#include "cli/json.h"
#include "cluster/launched_as.h"
#include "execute/part_reading.h"
#include "execute/parts.h"

namespace shardscope::cli {

// "3/8", counted from 0. Errors: usage.
Result<PartSpec> parsePart(std::string_view text);

// From SHARDSCOPE_PART, else as launchedAs() says. Errors: usage where nobody says it, or two disagree.
Result<PartSpec> partFromEnvironment(const Variables& variables);

inline constexpr const char* kWhoWorks = "Who works";  // a group of options

// --part, --finish and --records, as they are given.
struct PartWords {
    std::string part;  // "I/N" or "auto"
    std::string
        finish;  // "yes" (no part is done), "auto" (by the last part), "seal" (sealParts(), by the last part)
    std::string records;  // of a job without a destination; see execute/part_reading.h
    bool given() const { return !part.empty() || !finish.empty(); }
};
// The options are kept by reference. `finishes` says what --finish does; `seals`: it can be seal.
void addPartWords(CLI::App& verb, PartWords& words, const std::string& finishes, bool seals);
// The same for a job without a destination.
void addReadingWords(CLI::App& verb, PartWords& words, const std::string& finishes);
// What they mean. Errors: usage.
Result<Parts> partsOf(const PartWords& words);
// That records have a place of their own, outside of the checkpoint. Errors: usage, io.
Status checkRecords(const Context& context, const PartWords& words, const std::string& source);

// What one part has done, where it has not finished the job.
Json partJson(const PartReport& part);
// `did` is what it did with the bytes, `next` what comes once all parts are done.
void showPart(const Context& context, const PartReport& part, const std::string& did,
              const std::string& next);
std::string allPartsDone(bool finishes, const std::string& completes);
// Of a reading whose answer is printed: only once that has arrived, else all parts would have to read again.
// Errors: io.
Status removeRecords(FinishedReading& reading);
// Of a reading, in the way that is asked for; `completes` is what --finish does.
void sayPart(const Context& context, const PartReport& part, bool finishes, const std::string& completes);

}  // namespace shardscope::cli
