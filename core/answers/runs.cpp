#include "answers/runs.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/rule.h"
#include "engine/report.h"
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

Json findingsJson(const ValidationReport& report, const std::vector<Suppression>& accepted,
                  const Json& step) {
    Json findings = Json::parse(validationJson(report, accepted))["findings"];
    for (Json& finding : findings)
        finding["step"] = step;
    return findings;
}

// Why a run cannot resume from a step that is not whole.
std::string whyNotWhole(const StepVerdict& verdict) {
    if (verdict.error) return describe(*verdict.error);
    const Finding* const reason = verdict.reason();
    return reason ? fmt::format("{}: {}", reason->rule, reason->message) : std::string();
}

Result<ReadyCard> cardOf(const Access& access, const Checkpoint& checkpoint, ValidateRequest how) {
    how.examples = kReadyExamples;
    SHARDSCOPE_ASSIGN(const ValidationReport report, validateOpen(access, checkpoint, how));
    return readyCard(checkpoint, report, acceptedBy(how, acceptedName(checkpoint.path)));
}

Result<Readiness> readinessOfRun(const Access& access, const Run& run, const ValidateRequest& how) {
    Readiness found;
    std::optional<ReadyCard> newest;
    for (const RunStep& step : run.directory.steps) {
        SHARDSCOPE_TRY(StopToken(access.stop).poll());
        const auto checkpoint = openCheckpoint(run.pathOf(step), access.openOptions());
        if (!checkpoint.ok()) {
            if (checkpoint.error().code == ErrorCode::cancelled) return checkpoint.error();
            found.passed.emplace_back(step.name, describe(checkpoint.error()));
            continue;
        }
        SHARDSCOPE_ASSIGN(found.card, cardOf(access, *checkpoint, how));
        if (found.card.resumes) return found;
        found.passed.emplace_back(step.name, found.card.words);
        if (!newest) newest = std::move(found.card);
    }
    if (!newest)
        return makeError(ErrorCode::notFound, "no step of this run opens")
            .inFile(run.source.display)
            .withHint(found.passed.empty() ? std::string()
                                           : found.passed[0].first + ": " + found.passed[0].second);
    found.card = *std::move(newest);
    return found;
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
        ValidateRequest how = how_;
        how.sums = how_.level == ValidateLevel::values;  // they are remembered
        return validateOpen(access_, checkpoint, how);
    };
    SHARDSCOPE_ASSIGN(StepVerdict verdict, judgeStep(run_, step, files, how_.level, access_.openOptions(),
                                                     validate, remembers ? &verdicts_ : nullptr, how_.sums));
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

Result<JudgedRun> judgeRun(const Access& access, const Run& run, const ValidateRequest& how,
                           const StepJudged& judged) {
    RunJudge judge(access, run, how);
    JudgedRun all;
    const auto take = [&](const RunStep* step, const StepVerdict& verdict) {
        all.verdict = std::max(all.verdict, verdict.error ? Verdict::unsafe : verdict.verdict());
        for (Json& finding : findingsJson(verdict.report, verdict.accepted, step ? Json(step->name) : Json()))
            all.findings.push_back(std::move(finding));
        if (judged) judged(step, verdict);
    };
    if (auto missing = missingStep(run)) {
        StepVerdict step;
        step.report.verdict = Verdict::unsafe;
        step.report.findings.push_back(*std::move(missing));
        take(nullptr, step);
    }
    for (const RunStep& step : run.directory.steps) {
        SHARDSCOPE_TRY(StopToken(access.stop).poll());
        StepLine& line = all.lines.emplace_back();
        SHARDSCOPE_ASSIGN(line.files, listStep(run, step));
        SHARDSCOPE_ASSIGN(line.verdict, judge.judge(step, line.files));
        line.format = line.verdict->format;
        // A run of one step stands for it.
        if (line.verdict->error && run.directory.steps.size() == 1 && all.findings.empty())
            return *std::move(line.verdict->error);
        take(&step, *line.verdict);
    }
    return all;
}

Json judgedJson(const Access& access, const Run& run, const JudgedRun& judged, ValidateLevel level) {
    Json json = runJson(access, run, judged.lines);
    json["verdict"] = verdictName(judged.verdict);
    json["level"] = levelName(level);
    json["findings"] = judged.findings;
    return json;
}

Result<Json> latestStep(const Access& access, const ValidateRequest& how, bool good,
                        const StepSkipped& skipped) {
    SHARDSCOPE_ASSIGN(const auto run, openRun(how.path, access.openOptions()));
    Json json;
    json["schema"] = "shardscope.latest/1";
    json["name"] = json["path"] = json["step"] = Json();
    Json passed = Json::array();
    std::optional<RunJudge> judge;
    if (run) judge.emplace(access, *run, how);
    for (const RunStep& step : run ? run->directory.steps : std::vector<RunStep>()) {
        SHARDSCOPE_TRY(StopToken(access.stop).poll());
        // What the run's own tracker names is its newest finished step.
        if (!good && run->directory.trackedExists && !run->directory.tracks(step)) continue;
        std::optional<StepVerdict> verdict;
        if (good) {
            SHARDSCOPE_ASSIGN(const StepFiles files, listStep(*run, step));
            SHARDSCOPE_ASSIGN(verdict, judge->judge(step, files));
            json["level"] = levelName(verdict->report.level);
        }
        if (verdict && !verdict->whole()) {
            const std::string why = whyNotWhole(*verdict);
            if (skipped) skipped(step.name, why);
            passed.push_back({{"name", step.name}, {"why", why}});
            continue;
        }
        json["name"] = step.name;
        json["path"] = access.shown(run->pathOf(step));
        if (step.step >= 0) json["step"] = step.step;
        if (verdict) json["verdict"] = verdictName(verdict->verdict());
        break;
    }
    json["skipped"] = std::move(passed);
    return json;
}

Result<Readiness> readinessOf(const Access& access, const CheckpointOrRun& opened,
                              const ValidateRequest& how) {
    if (const Run* const run = std::get_if<Run>(&opened)) return readinessOfRun(access, *run, how);
    SHARDSCOPE_ASSIGN(ReadyCard card, cardOf(access, std::get<Checkpoint>(opened), how));
    return Readiness{std::move(card), {}};
}

Json readinessJson(const Access& access, const Readiness& readiness) {
    Json json = Json::parse(readyJson(readiness.card));
    json["path"] = access.shown(readiness.card.path);
    json["passed"] = Json::array();
    for (const auto& [name, why] : readiness.passed)
        json["passed"].push_back({{"name", name}, {"why", why}});
    return json;
}

}  // namespace shardscope
