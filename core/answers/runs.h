// The steps of a run, as `info`, `validate`, `latest`, `watch` and the page judge them.
#pragma once

#include <optional>

#include "answers/json.h"
#include "answers/validation.h"
#include "engine/run_facts.h"

namespace shardscope {

// Judges steps of one run in the way that the options of a verb say.
class RunJudge {
  public:
    RunJudge(const Access& access, const Run& run, ValidateRequest how);
    Result<StepVerdict> judge(const RunStep& step, const StepFiles& files);
    // What is known of it already, at this level or deeper.
    std::optional<StepVerdict> known(const RunStep& step, const StepFiles& files, ValidateLevel level,
                                     const SuppressionStore& accepted) const;

  private:
    const Access& access_;
    const Run& run_;
    const ValidateRequest how_;
    RunVerdicts verdicts_;
};

// "schema": "shardscope.run/1", or with `verdict` its entry in "steps". `format` where nothing is judged.
Json stepJson(const Access& access, const Run& run, const RunStep& step, const StepFiles& files,
              const std::optional<StepVerdict>& verdict, const std::string& format, const StepFacts& facts);

// The steps of a run as they are listed, in its order. With `judge` each is judged that is not known at the
// level of `how`; without, what is known at this level or deeper is shown.
struct StepLine {
    StepFiles files;
    std::optional<StepVerdict> verdict;
    std::string format;  // title; empty = not recognized
};
Result<std::vector<StepLine>> stepsOf(const Access& access, const Run& run, const ValidateRequest& how,
                                      bool judge);
std::time_t savedAt(const StepFiles& files);
// Nothing when the tracker names a step that is there.
std::optional<Finding> missingStep(const Run& run);
RunFacts factsOf(const std::vector<StepLine>& lines);
Json runJson(const Access& access, const Run& run, const std::vector<StepLine>& lines);  // shardscope.run/1

}  // namespace shardscope
