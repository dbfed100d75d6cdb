#include "answers/runs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/rule.h"
#include "engine/request.h"

namespace shardscope {
namespace {

Json runJson(const Access& access, const Run& run) {
    Json json;
    json["schema"] = "shardscope.run/1";
    json["path"] = access.shown(run.source.display);
    json["tracker"] = Json();
    if (!run.directory.tracker.empty()) {
        json["tracker"] = Json{{"file", run.directory.tracker},
                               {"names", run.directory.tracked},
                               {"exists", run.directory.trackedExists}};
    }
    return json;
}

}  // namespace

std::time_t savedAt(const StepFiles& files) {
    return static_cast<std::time_t>(files.modifiedNs / 1'000'000'000);
}

std::optional<Finding> missingStep(const Run& run) {
    Finding finding;
    finding.rule = rule::fileMissing;
    finding.count = 1;
    finding.message = run.missingStep();
    if (finding.message.empty()) return std::nullopt;
    FindingExample example;
    example.file = run.directory.tracker;
    finding.examples.push_back(example);
    return finding;
}

RunFacts factsOf(const std::vector<StepLine>& lines) {
    std::vector<SeenStep> seen;
    for (const StepLine& line : lines)
        seen.push_back({&line.files, line.verdict ? &*line.verdict : nullptr});
    return factsOf(seen);
}

RunJudge::RunJudge(const Access& access, const Run& run, ValidateRequest how)
    : access_(access),
      run_(run),
      how_(std::move(how)),
      verdicts_(run, fmt::format("{}", fmt::join(openingWords(access), "\n"))) {}

std::optional<StepVerdict> RunJudge::known(const RunStep& step, const StepFiles& files, ValidateLevel level,
                                           const SuppressionStore& accepted) const {
    auto verdict = verdicts_.find(step, files, level);
    if (verdict) verdict->accepted = honored(how_, acceptedOf(accepted, run_, step));
    return verdict;
}

Result<StepVerdict> RunJudge::judge(const RunStep& step, const StepFiles& files) {
    // What is compared with another checkpoint, or listed in full, is looked at anew.
    const bool remembers = how_.expect.empty() && how_.examples <= ValidateRequest().examples;
    const auto validate = [&](const Checkpoint& checkpoint) {
        return validateOpen(access_, checkpoint, how_);
    };
    SHARDSCOPE_ASSIGN(StepVerdict verdict, judgeStep(run_, step, files, how_.level, access_.openOptions(),
                                                     validate, remembers ? &verdicts_ : nullptr));
    verdict.accepted = honored(how_, std::move(verdict.accepted));
    return verdict;
}

Json stepJson(const Access& access, const Run& run, const RunStep& step, const StepFiles& files,
              const std::optional<StepVerdict>& verdict, const std::string& format, const StepFacts& facts) {
    Json json;
    json["name"] = step.name;
    json["step"] = step.step < 0 ? Json() : Json(step.step);
    json["path"] = access.shown(run.pathOf(step));
    json["saved"] = files.modifiedNs ? Json(isoTime(savedAt(files))) : Json();
    json["seconds_since_previous"] = facts.secondsSincePrevious ? Json(*facts.secondsSincePrevious) : Json();
    json["files"] = files.files;
    json["bytes"] = files.bytes;
    json["format"] = format.empty() ? Json() : Json(format);
    json["ranks"] = facts.ranks ? Json(facts.ranks) : Json();
    json["mesh"] = facts.mesh.empty() ? Json() : Json(facts.mesh);
    json["ranks_before"] = facts.otherRanks() ? Json(facts.ranksBefore) : Json();
    json["mesh_before"] = facts.meshBefore.empty() ? Json() : Json(facts.meshBefore);
    json["verdict"] = verdict ? Json(verdictName(verdict->verdict())) : Json();
    const Finding* const reason = verdict ? verdict->reason() : nullptr;
    json["reason"] = reason ? Json(reason->cause.empty() ? reason->message : reason->cause) : Json();
    json["level"] = verdict ? Json(levelName(verdict->report.level)) : Json();
    if (verdict) json["unchanged"] = verdict->remembered;
    if (verdict && verdict->error) json["error"] = errorDocument(*verdict->error);
    return json;
}

Result<std::vector<StepLine>> stepsOf(const Access& access, const Run& run, const ValidateRequest& how,
                                      bool judge) {
    RunJudge judging(access, run, how);
    const SuppressionStore accepted;
    std::vector<StepLine> lines;
    for (const RunStep& step : run.directory.steps) {
        SHARDSCOPE_TRY(StopToken(access.stop).poll());
        StepLine line;
        SHARDSCOPE_ASSIGN(line.files, listStep(run, step));
        line.verdict = judging.known(step, line.files, how.level, accepted);
        if (!line.verdict && judge) {
            SHARDSCOPE_ASSIGN(line.verdict, judging.judge(step, line.files));
        }
        line.format = line.verdict && !line.verdict->error ? line.verdict->format : formatOfStep(run, step);
        lines.push_back(std::move(line));
    }
    return lines;
}

Json runJson(const Access& access, const Run& run, const std::vector<StepLine>& lines) {
    const RunFacts facts = factsOf(lines);
    Json json = runJson(access, run);
    json["newest_whole"] =
        facts.newestWhole == kNoStep ? Json() : Json(run.directory.steps[facts.newestWhole].name);
    json["steps"] = Json::array();
    for (size_t i = 0; i < lines.size(); ++i)
        json["steps"].push_back(stepJson(access, run, run.directory.steps[i], lines[i].files,
                                         lines[i].verdict, lines[i].format, facts.steps[i]));
    return json;
}

}  // namespace shardscope
