// The steps of a run, as `info`, `validate`, `latest` and `watch` judge and show them.
#pragma once

#include <optional>

#include "cli/json.h"
#include "cli/validate_words.h"
#include "engine/run_facts.h"

namespace shardscope::cli {

// Judges steps of one run in the way that the options of a verb say.
class RunJudge {
  public:
    RunJudge(const Context& context, const Run& run, ValidateWords words);
    Result<StepVerdict> judge(const RunStep& step, const StepFiles& files);
    // What is known of it already, at this level or deeper.
    std::optional<StepVerdict> known(const RunStep& step, const StepFiles& files, ValidateLevel level,
                                     const SuppressionStore& accepted) const;

  private:
    const Context& context_;
    const Run& run_;
    const ValidateWords words_;
    RunVerdicts verdicts_;
};

// "schema": "shardscope.run/1", or with `verdict` its entry in "steps". `format` where nothing is judged.
Json stepJson(const Context& context, const Run& run, const RunStep& step, const StepFiles& files,
              const std::optional<StepVerdict>& verdict, const std::string& format, const StepFacts& facts);

// The steps of a run as they are listed, in its order. With `judge` each is judged that is not known at the
// level of `words`; without, what is known at this level or deeper is shown.
struct StepLine {
    StepFiles files;
    std::optional<StepVerdict> verdict;
    std::string format;  // title; empty = not recognized
};
Result<std::vector<StepLine>> stepsOf(const Context& context, const Run& run, const ValidateWords& words,
                                      bool judge);
Json runJson(const Context& context, const Run& run, const std::vector<StepLine>& lines);  // shardscope.run/1

// What `info` says of a run.
Result<int> showRun(const Context& context, const Run& run, const ValidateWords& words, bool judge);
// What `validate` says of a run: 1 when a step has a finding of this severity or does not open.
Result<int> validateRun(const Context& context, const Run& run, const ValidateWords& words, Severity failOn);

}  // namespace shardscope::cli
