// What the values of a checkpoint are like, and how that changes over the steps of a run.
#include <algorithm>
#include <functional>
#include <map>

#include <fmt/format.h>

#include "answers/stats.h"
#include "cli/application.h"
#include "cli/one_of.h"
#include "cli/text.h"

namespace shardscope::cli {
namespace {

struct StatsOptions {
    std::string path;
    ValuesBy by = ValuesBy::module;
    bool csv = false;
};

std::string shownNumber(std::optional<double> value) {
    return value ? fmt::format("{:.4g}", *value) : "";
}

std::string shareText(const ValueGroup& group) {
    const double percent = 100 * group.zeroShare();
    return group.counts.zero == 0 ? "0" : percent < 0.05 ? "< 0.1 %" : fmt::format("{:.1f} %", percent);
}

using Align = Table::Align;

// What a group is and what its values are like; `text` writes a number.
std::vector<std::string> cellsOf(const ValueGroup& group,
                                 const std::function<std::string(std::optional<double>)>& text) {
    std::optional<double> largest;
    if (group.sums.counted) largest = group.sums.largest;
    return {group.name,         std::string(valuesKindName(group.kind)),
            text(group.norm()), text(group.rms()),
            text(group.mean()), text(largest)};
}

std::vector<std::pair<std::string, Align>> columnsOf() {
    std::vector<std::pair<std::string, Align>> columns{{"name", Align::left}, {"kind", Align::left}};
    for (const char* figure : {"norm", "rms", "mean", "largest", "tensors", "zeros", "nan", "inf"})
        columns.emplace_back(figure, Align::right);
    return columns;
}

Table tableOfStep(const ValueHistory::Step& step) {
    Table table(columnsOf());
    for (const ValueGroup& group : step.groups) {
        std::vector<std::string> row = cellsOf(group, shownNumber);
        row[0] = printable(row[0]);
        for (std::string cell : {countText(group.tensors), shareText(group), countText(group.counts.nan),
                                 countText(group.counts.inf)})
            row.push_back(std::move(cell));
        table.add(std::move(row));
    }
    return table;
}

// Norms: a row for each group, a column for each of the last steps.
Table tableOfRun(const std::vector<ValueHistory::Step>& steps) {
    constexpr size_t kMostColumns = 6;
    const size_t first = steps.size() - std::min(steps.size(), kMostColumns);
    std::vector<std::pair<std::string, Align>> columns{{"norm of", Align::left}, {"kind", Align::left}};
    std::vector<std::pair<std::string, ValuesKind>> order;
    std::map<std::pair<std::string, ValuesKind>, std::vector<std::string>> cells;
    for (size_t i = first; i < steps.size(); ++i) {
        columns.emplace_back(printable(steps[i].name), Align::right);
        for (const ValueGroup& group : steps[i].groups) {
            if (group.kind == ValuesKind::other) continue;
            const auto [at, fresh] = cells.try_emplace({group.name, group.kind}, steps.size() - first);
            if (fresh) order.push_back(at->first);
            at->second[i - first] =
                shownNumber(group.norm()) + (group.counts.nan + group.counts.inf ? " NaN" : "");
        }
    }
    Table table(std::move(columns));
    for (const auto& key : order) {
        std::vector<std::string> row{printable(key.first), std::string(valuesKindName(key.second))};
        row.insert(row.end(), cells[key].begin(), cells[key].end());
        table.add(std::move(row));
    }
    return table;
}

void printStatsCsv(const Stats& stats) {
    auto columns = columnsOf();
    columns.insert(columns.begin(), {"step", Align::left});
    columns.emplace_back("elements", Align::right);
    Table table(std::move(columns));
    const auto exact = [](std::optional<double> value) { return value ? fmt::format("{}", *value) : ""; };
    for (const ValueHistory::Step& step : stats.history.steps()) {
        for (const ValueGroup& group : step.groups) {
            std::vector<std::string> row = cellsOf(group, exact);
            row.insert(row.begin(), step.name);
            for (const uint64_t count : {uint64_t{group.tensors}, group.counts.zero, group.counts.nan,
                                         group.counts.inf, group.counts.elements})
                row.push_back(fmt::format("{}", count));
            table.add(std::move(row));
        }
    }
    table.printCsv(stdout);
}

Result<int> stats(const Context& context, const StatsOptions& options) {
    if (options.csv && context.json)
        return makeError(ErrorCode::usage, "--csv and --json exclude each other");
    SHARDSCOPE_ASSIGN(const auto opened, context.openAny(options.path));
    SHARDSCOPE_ASSIGN(const Stats stats, statsOf(context, opened, options.by));
    if (context.json) {
        printJson(statsJson(context, stats));
        return 0;
    }
    if (options.csv) {
        printStatsCsv(stats);
        return 0;
    }
    const Style style{context.colored()};
    const auto& steps = stats.history.steps();
    if (!steps.empty()) (steps.size() == 1 ? tableOfStep(steps[0]) : tableOfRun(steps)).print(stdout, style);
    for (const ValueMark& mark : stats.history.marks())
        fmt::print("{} {}\n", style.yellow("▲"), printable(mark.text));
    for (const auto& [name, why] : stats.left_out)
        fmt::print("{} {}: {}\n", style.dim("left out:"), printable(name), printable(why));
    return 0;
}

}  // namespace

void addStats(CLI::App& app, Context& context) {
    CLI::App* verb = app.add_subcommand(
        "stats", "What the values are like: norms, zeros, NaN by module; over the steps of a run");
    verb->footer(
        "Examples:\n  shardscope stats /runs/7\n  shardscope stats /runs/7/step-1000 --by layer --csv\n\n"
        "All values are read once; of the steps of a run the figures are remembered until one of their files "
        "changes.\n"
        "Marked are norms that change much from step to step (weights: 2 times, moments: 10 times), what "
        "comes to "
        "hold NaN, and experts that are dead.");
    auto options = std::make_shared<StatsOptions>();
    verb->add_option("path", options->path, "Checkpoint, directory of a run, or ssh://host/path")
        ->required()
        ->type_name("PATH");
    static const std::map<std::string, ValuesBy> groups{
        {"module", ValuesBy::module}, {"layer", ValuesBy::layer}, {"tensor", ValuesBy::tensor}};
    verb->add_option("--by", options->by, "What a row is: module (default; layers together), layer or tensor")
        ->transform(oneOf(groups))
        ->type_name("WHAT");
    verb->add_flag("--csv", options->csv, "Comma-separated, with a row for each step and group");
    addCommon(*verb, context, true);
    verb->callback(
        [&context, options] { context.verb = [&context, options] { return stats(context, *options); }; });
}

}  // namespace shardscope::cli
