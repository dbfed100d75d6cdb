// The resume card: may a run resume from this checkpoint, and with what? Ten lines, each with its evidence;
// the same in command line and Python.
#pragma once

#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/report.h"

namespace shardscope {

enum class ReadyMark : uint8_t {
    yes,   // there, as far as it was looked at
    no,    // missing, incomplete or damaged
    none,  // not part of this checkpoint, or nothing says
};
std::string_view readyMarkName(ReadyMark mark);  // "yes"

struct ReadyLine {
    std::string id;     // stable: "weights", "optimizer", "masters", "step", "scheduler", "random", "loader",
                        // "commit", "loads_in", "fits_on"
    std::string title;  // "optimizer state"
    ReadyMark mark = ReadyMark::none;
    std::string text;          // "of 291 of 291 parameters"
    std::string evidence;      // what says so: a file, a rule and its message; may be empty
    std::string tensor, file;  // that it is about, where it is about one
};

struct ReadyCard {
    std::string path;  // of the step
    Verdict verdict = Verdict::safe;
    ValidateLevel level = ValidateLevel::files;
    bool resumes = false;  // a run can resume from it, as far as it was looked at
    std::string words;  // "resume from here", "do not resume: ...", "weights only: nothing to resume, ...",
                        // "whole: no step ..."
    std::vector<ReadyLine> lines;  // always the ten, in the order of their ids above
};

// The card counts the tensors that a report names. A report with this many examples of each finding gives the
// same numbers in every front end.
constexpr size_t kReadyExamples = 1000;

// `report`: of this checkpoint, `accepted`: findings that do not count. Lists the step's directory and
// reads the object that holds the step's number.
ReadyCard readyCard(const Checkpoint& checkpoint, const ValidationReport& report,
                    const std::vector<Suppression>& accepted);

// ready/1, compact (docs/cli.md).
std::string readyJson(const ReadyCard& card);

}  // namespace shardscope
