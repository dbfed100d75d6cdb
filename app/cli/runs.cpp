#include "cli/runs.h"

#include <algorithm>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "base/rule.h"
#include "base/units.h"
#include "cli/text.h"
#include "cli/validate_words.h"
#include "engine/report.h"

namespace shardscope::cli {
namespace {

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

}  // namespace

Result<int> showRun(const Context& context, const Run& run, const ValidateRequest& words, bool judge) {
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
    fmt::print("{}: a run with {}\n\n", style.bold(printable(context.shown(run.source.display))),
               counted(run.directory.steps.size(), "step"));
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

ValidationReport reportOf(const StepVerdict& verdict) {
    ValidationReport report = verdict.report;
    if (!verdict.error) return report;
    Finding finding;
    finding.rule = verdict.error->location.rule.empty() ? std::string(rule::metaInconsistent)
                                                        : verdict.error->location.rule;
    finding.count = 1;
    finding.message = describe(*verdict.error);
    report.verdict = Verdict::unsafe;
    report.findings.push_back(std::move(finding));
    return report;
}

JudgedPath judgedPath(const Context& context, const Run& run, const RunStep* step,
                      const StepVerdict& verdict) {
    return {context.shown(step ? run.pathOf(*step) : run.source.display), reportOf(verdict),
            verdict.accepted};
}

Result<int> validateRun(const Context& context, const Run& run, const ValidateRequest& words, Severity failOn,
                        ReportForm form) {
    const Style style{context.colored()};
    bool fails = false;
    size_t good = 0;
    const bool forPeople = form == ReportForm::text || form == ReportForm::json;
    std::vector<JudgedPath> all;
    const auto seen = [&](const RunStep* step, const StepVerdict& verdict) {
        fails = fails || verdict.error || anyAsSevere(verdict.report, verdict.accepted, failOn);
        good += step && verdict.verdict() == Verdict::safe;
        if (!forPeople) all.push_back(judgedPath(context, run, step, verdict));
        if (context.json || !forPeople) return;
        if (!step) return printFinding(verdict.report.findings[0], style);
        fmt::print("{}: {}{}\n", style.bold(printable(step->name)), coloredVerdict(verdict.verdict(), style),
                   verdict.remembered ? style.dim(" (unchanged since it was checked)") : "");
        if (verdict.error) fmt::print("    {}\n", printable(describe(*verdict.error)));
        printFindings(verdict.report, verdict.accepted, style, 4, Severity::warning);
        std::fflush(stdout);
    };
    SHARDSCOPE_ASSIGN(const JudgedRun judged, judgeRun(context, run, words, seen));
    if (!forPeople) {
        fmt::print("{}", formOf(form, all));
    } else if (context.json) {
        printJson(judgedJson(context, run, judged, words.level));
    } else {
        const RunFacts facts = factsOf(judged.lines);
        printChanges(run, facts, style);
        fmt::print("\n{}: {} ({} of {} safe; level {})\n", style.bold("verdict"),
                   coloredVerdict(judged.verdict, style), countText(good),
                   counted(run.directory.steps.size(), "step"), levelName(words.level));
        if (facts.newestWhole != kNoStep)
            printNewestWhole(
                context, run, facts,
                fmt::format("{}: ", printable(run.directory.steps[facts.newestWhole].name)).c_str());
    }
    return fails ? 1 : 0;
}

}  // namespace shardscope::cli
