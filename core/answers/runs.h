// The steps of a run, as `info`, `validate`, `latest`, `watch` and the page judge them.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "answers/json.h"
#include "answers/validation.h"
#include "engine/ready.h"
#include "engine/run_facts.h"

namespace shardscope {

// Judges steps of one run in the way that the options of a verb say.
class RunJudge {
  public:
    RunJudge(const Access& access, const Run& run, ValidateRequest how);
    // With the sums of its values where the request asks for them.
    Result<StepVerdict> judge(const RunStep& step, const StepFiles& files);
    // Sums of its values that are known already.
    std::optional<std::vector<TensorValues>> values(const RunStep& step, const StepFiles& files) const {
        return verdicts_.values(step, files);
    }
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

// All steps of a run, judged. Errors: of a run of one step that does not open what opening it says.
struct JudgedRun {
    std::vector<StepLine> lines;
    Verdict verdict = Verdict::safe;  // the worst
    Json findings = Json::array();    // as in shardscope.validate/1, each with its "step"
};
// `judged` hears of each step once it is judged, and before them of one that the tracker names and that is
// not there (null). May be null.
using StepJudged = std::function<void(const RunStep*, const StepVerdict&)>;
Result<JudgedRun> judgeRun(const Access& access, const Run& run, const ValidateRequest& how,
                           const StepJudged& judged = nullptr);
// shardscope.run/1 with verdict, level and findings.
Json judgedJson(const Access& access, const Run& run, const JudgedRun& judged, ValidateLevel level);

// The newest step of the run `how.path`, with `good` the newest whole one: shardscope.latest/1. Its "name" is
// null where there is none. `skipped` hears of newer steps that are not whole. May be null.
using StepSkipped = std::function<void(const std::string& name, const std::string& why)>;
Result<Json> latestStep(const Access& access, const ValidateRequest& how, bool good,
                        const StepSkipped& skipped = nullptr);

// The resume card of a checkpoint, or of the newest step of a run that can be resumed from. Where none can,
// of the newest that opens. Errors: notFound where none does.
struct Readiness {
    ReadyCard card;
    std::vector<std::pair<std::string, std::string>> passed;  // newer steps, and why they are passed over
};
Result<Readiness> readinessOf(const Access& access, const CheckpointOrRun& opened,
                              const ValidateRequest& how);
Json readinessJson(const Access& access, const Readiness& readiness);  // shardscope.ready/1

}  // namespace shardscope
