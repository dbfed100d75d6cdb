#include "cli/runs.h"

#include <algorithm>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "base/rule.h"
#include "engine/report.h"

namespace shardscope::cli {
namespace {

std::time_t savedAt(const StepFiles& files) {
    return static_cast<std::time_t>(files.modifiedNs / 1'000'000'000);
}

Json runJson(const Context& context, const Run& run) {
    Json json;
    json["schema"] = "shardscope.run/1";
    json["path"] = context.shown(run.source.display);
    json["tracker"] = Json();
    if (!run.directory.tracker.empty()) {
        json["tracker"] = Json{{"file", run.directory.tracker},
                               {"names", run.directory.tracked},
                               {"exists", run.directory.trackedExists}};
    }
    return json;
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
    return shardscope::factsOf(seen);
}

// What to resume from, of the steps that were judged.
void printNewestWhole(const Context& context, const Run& run, const RunFacts& facts, const char* before) {
    if (facts.newestWhole == kNoStep) return;
    const RunStep& step = run.directory.steps[facts.newestWhole];
    fmt::print("{}the newest whole step; resume from {}\n", before,
               printable(context.shown(run.pathOf(step))));
}

// Time between saves and ranks, as a table of their own under what was found.
void printChanges(const Run& run, const RunFacts& facts, const Style& style) {
    Table table(
        {{"step", Table::Align::left}, {"since", Table::Align::right}, {"ranks", Table::Align::left}});
    for (size_t i = 0; i < facts.steps.size(); ++i) {
        const StepFacts& step = facts.steps[i];
        if (step.secondsSincePrevious || step.ranks > 0)
            table.add({printable(run.directory.steps[i].name), step.sinceText(), step.ranksText()});
    }
    if (table.empty()) return;
    fmt::print("\n");
    table.print(stdout, style);
}

Json findingsJson(const ValidationReport& report, const std::vector<Suppression>& accepted,
                  const Json& step) {
    Json findings = Json::parse(validationJson(report, accepted))["findings"];
    for (Json& finding : findings)
        finding["step"] = step;
    return findings;
}

}  // namespace

RunJudge::RunJudge(const Context& context, const Run& run, ValidateWords words)
    : context_(context),
      run_(run),
      words_(std::move(words)),
      verdicts_(run, fmt::format("{}", fmt::join(context.sourceWords(), "\n"))) {}

std::optional<StepVerdict> RunJudge::known(const RunStep& step, const StepFiles& files, ValidateLevel level,
                                           const SuppressionStore& accepted) const {
    auto verdict = verdicts_.find(step, files, level);
    if (verdict) verdict->accepted = honored(words_, acceptedOf(accepted, run_, step));
    return verdict;
}

Result<StepVerdict> RunJudge::judge(const RunStep& step, const StepFiles& files) {
    // What is compared with another checkpoint, or listed in full, is looked at anew.
    const bool remembers = words_.expect.empty() && words_.examples <= ValidateWords().examples;
    const auto validate = [&](const Checkpoint& checkpoint) {
        return validateOpen(context_, checkpoint, words_);
    };
    SHARDSCOPE_ASSIGN(StepVerdict verdict, judgeStep(run_, step, files, words_.level, context_.openOptions(),
                                                     validate, remembers ? &verdicts_ : nullptr));
    verdict.accepted = honored(words_, std::move(verdict.accepted));
    return verdict;
}

Json stepJson(const Context& context, const Run& run, const RunStep& step, const StepFiles& files,
              const std::optional<StepVerdict>& verdict, const std::string& format, const StepFacts& facts) {
    Json json;
    json["name"] = step.name;
    json["step"] = step.step < 0 ? Json() : Json(step.step);
    json["path"] = context.shown(run.pathOf(step));
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
    json["level"] = verdict ? Json(levelName(verdict->report.level)) : Json();
    if (verdict) json["unchanged"] = verdict->remembered;
    if (verdict && verdict->error) json["error"] = errorDocument(*verdict->error);
    return json;
}

Result<std::vector<StepLine>> stepsOf(const Context& context, const Run& run, const ValidateWords& words,
                                      bool judge) {
    RunJudge judging(context, run, words);
    const SuppressionStore accepted;
    std::vector<StepLine> lines;
    for (const RunStep& step : run.directory.steps) {
        SHARDSCOPE_TRY(StopToken(context.stop).poll());
        StepLine line;
        SHARDSCOPE_ASSIGN(line.files, listStep(run, step));
        line.verdict = judging.known(step, line.files, words.level, accepted);
        if (!line.verdict && judge) {
            SHARDSCOPE_ASSIGN(line.verdict, judging.judge(step, line.files));
        }
        line.format = line.verdict && !line.verdict->error ? line.verdict->format : formatOfStep(run, step);
        lines.push_back(std::move(line));
    }
    return lines;
}

Json runJson(const Context& context, const Run& run, const std::vector<StepLine>& lines) {
    const RunFacts facts = factsOf(lines);
    Json json = runJson(context, run);
    json["newest_whole"] =
        facts.newestWhole == kNoStep ? Json() : Json(run.directory.steps[facts.newestWhole].name);
    json["steps"] = Json::array();
    for (size_t i = 0; i < lines.size(); ++i)
        json["steps"].push_back(stepJson(context, run, run.directory.steps[i], lines[i].files,
                                         lines[i].verdict, lines[i].format, facts.steps[i]));
    return json;
}

Result<int> showRun(const Context& context, const Run& run, const ValidateWords& words, bool judge) {
    SHARDSCOPE_ASSIGN(const std::vector<StepLine> lines, stepsOf(context, run, words, judge));
    if (context.json) {
        printJson(runJson(context, run, lines));
        return 0;
    }
    const Style style{context.colored()};
    const RunFacts facts = factsOf(lines);
    const bool ranks = std::ranges::any_of(facts.steps, [](const StepFacts& step) { return step.ranks > 0; });
    using Column = std::pair<std::string, Table::Align>;
    std::vector<Column> columns{{"step", Table::Align::left},   {"saved", Table::Align::left},
                                {"since", Table::Align::right}, {"size", Table::Align::right},
                                {"files", Table::Align::right}, {"format", Table::Align::left},
                                {"verdict", Table::Align::left}};
    if (ranks) columns.insert(columns.begin() + 5, Column{"ranks", Table::Align::left});
    Table table(std::move(columns));
    for (size_t i = 0; i < lines.size(); ++i) {
        const RunStep& step = run.directory.steps[i];
        const auto& [files, verdict, format] = lines[i];
        std::string word = "not checked";
        if (verdict && verdict->error) {
            word = style.red("does not open");
        } else if (verdict) {
            word = fmt::format("{} ({})", coloredVerdict(verdict->verdict(), style),
                               levelName(verdict->report.level));
        }
        const std::string saved =
            files.modifiedNs ? fmt::format("{:%Y-%m-%d %H:%M}", fmt::localtime(savedAt(files))) : "unknown";
        std::string marks;
        if (run.directory.tracks(step)) marks += " *";
        if (i == facts.newestWhole) marks += " +";
        std::vector<std::string> row{printable(step.name) + marks,
                                     saved,
                                     facts.steps[i].sinceText(),
                                     bytesText(files.bytes),
                                     countText(files.files),
                                     format.empty() ? "unknown" : format,
                                     word};
        if (ranks) row.insert(row.begin() + 5, facts.steps[i].ranksText());
        table.add(std::move(row));
    }
    fmt::print("{}: a run with {} step{}\n\n", style.bold(printable(context.shown(run.source.display))),
               run.directory.steps.size(), run.directory.steps.size() == 1 ? "" : "s");
    table.print(stdout, style);
    if (const auto missing = missingStep(run)) {
        fmt::print("\n{} {}: {}\n", style.red("error"), missing->rule, printable(missing->message));
    } else if (!run.directory.tracker.empty()) {
        fmt::print("\n* {}\n", run.directory.tracker == run.directory.tracked
                                   ? std::string("the last step of the run")
                                   : fmt::format("named by {}", printable(run.directory.tracker)));
    }
    printNewestWhole(context, run, facts, run.directory.tracker.empty() ? "\n+ " : "+ ");
    return 0;
}

Result<int> validateRun(const Context& context, const Run& run, const ValidateWords& words, Severity failOn) {
    RunJudge judge(context, run, words);
    const Style style{context.colored()};
    bool fails = false;
    Verdict worst = Verdict::safe;
    size_t good = 0;
    Json findings = Json::array();
    const auto seen = [&](const StepVerdict& verdict) {
        fails = fails || anyAsSevere(verdict.report, verdict.accepted, failOn);
        worst = std::max(worst, verdict.verdict());
    };
    if (auto missing = missingStep(run)) {
        StepVerdict step;
        step.report.verdict = Verdict::unsafe;
        step.report.findings.push_back(*std::move(missing));
        seen(step);
        findings = findingsJson(step.report, {}, Json());
        if (!context.json) printFinding(step.report.findings[0], style);
    }
    std::vector<StepLine> lines;
    for (const RunStep& step : run.directory.steps) {
        SHARDSCOPE_TRY(StopToken(context.stop).poll());
        StepLine& line = lines.emplace_back();
        SHARDSCOPE_ASSIGN(line.files, listStep(run, step));
        SHARDSCOPE_ASSIGN(line.verdict, judge.judge(step, line.files));
        StepVerdict& verdict = *line.verdict;
        line.format = verdict.format;
        if (verdict.error) {
            // A run of one step stands for it.
            if (run.directory.steps.size() == 1 && findings.empty()) return *std::move(verdict.error);
            fails = true;
            worst = Verdict::unsafe;
        } else {
            seen(verdict);
        }
        good += verdict.verdict() == Verdict::safe;
        if (context.json) {
            for (Json& finding : findingsJson(verdict.report, verdict.accepted, step.name))
                findings.push_back(std::move(finding));
            continue;
        }
        fmt::print("{}: {}{}\n", style.bold(printable(step.name)), coloredVerdict(verdict.verdict(), style),
                   verdict.remembered ? style.dim(" (unchanged since it was checked)") : "");
        if (verdict.error) fmt::print("    {}\n", printable(describe(*verdict.error)));
        printFindings(verdict.report, verdict.accepted, style, 4, Severity::warning);
        std::fflush(stdout);
    }
    if (context.json) {
        Json json = runJson(context, run, lines);
        json["verdict"] = verdictName(worst);
        json["level"] = levelName(words.level);
        json["findings"] = std::move(findings);
        printJson(json);
    } else {
        const RunFacts facts = factsOf(lines);
        printChanges(run, facts, style);
        fmt::print("\n{}: {} ({} of {} steps are safe; level {})\n", style.bold("verdict"),
                   coloredVerdict(worst, style), good, run.directory.steps.size(), levelName(words.level));
        if (facts.newestWhole != kNoStep)
            printNewestWhole(
                context, run, facts,
                fmt::format("{}: ", printable(run.directory.steps[facts.newestWhole].name)).c_str());
    }
    return fails ? 1 : 0;
}

}  // namespace shardscope::cli
