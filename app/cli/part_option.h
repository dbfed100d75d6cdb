// The words that name a part of a job, and what is said of one that is done.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "answers/reading.h"
#include "cli/context.h"

namespace shardscope::cli {

inline constexpr const char* kWhoWorks = "Who works";  // a group of options

// The options are kept by reference. `finishes` says what --finish does; `seals`: it can be seal.
void addPartWords(CLI::App& verb, PartRequest& words, const std::string& finishes, bool seals);
// --remote-program, for those who work on other hosts.
void addOtherProgram(CLI::App& verb, Context& context);
// The same for a job without a destination, and --on.
void addReadingWords(CLI::App& verb, Context& context, PartRequest& words, const std::string& finishes);
// Who reads, with records in a place of their own outside of the checkpoint. Errors: usage, io.
Result<Execution> readersOf(const Context& context, const PartRequest& words, const std::string& source);

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
