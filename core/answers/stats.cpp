#include "answers/stats.h"

#include <algorithm>

#include "storage/url.h"

namespace shardscope {
namespace {

ValidateRequest valuesRequest() {
    ValidateRequest how;
    how.level = ValidateLevel::values;
    how.sums = true;
    return how;
}

std::string sentenceOf(const StepVerdict& verdict) {
    if (verdict.error) return describe(*verdict.error);
    return verdict.report.values.empty() ? "no tensor can be read to its end" : "";
}

// The run that a checkpoint is a step of.
std::optional<std::pair<Run, RunStep>> stepOf(const Access& access, const Checkpoint& checkpoint) {
    if (!schemeOf(checkpoint.path).empty()) return std::nullopt;
    const auto [parent, name] = splitPath(acceptedName(checkpoint.path));
    auto run = openRun(parent, access.openOptions());
    if (!run.ok() || !*run) return std::nullopt;
    const auto& steps = (*run)->directory.steps;
    const auto step = std::ranges::find(steps, name, &RunStep::name);
    if (step == steps.end()) return std::nullopt;
    RunStep found = *step;
    return std::pair(**std::move(run), std::move(found));
}

Json sumsJson(const ValueGroup& group) {
    const auto number = [](std::optional<double> value) { return value ? Json(*value) : Json(); };
    Json json;
    json["name"] = group.name;
    json["kind"] = valuesKindName(group.kind);
    json["tensors"] = group.tensors;
    json["elements"] = group.counts.elements;
    json["norm"] = number(group.norm());
    json["rms"] = number(group.rms());
    json["mean"] = number(group.mean());
    json["largest"] = group.sums.counted ? Json(group.sums.largest) : Json();
    json["zeros"] = group.counts.zero;
    json["nan"] = group.counts.nan;
    json["inf"] = group.counts.inf;
    return json;
}

}  // namespace

Result<Stats> statsOf(const Access& access, const CheckpointOrRun& opened, ValuesBy by, bool readAll) {
    Stats stats{{}, by, ValueHistory(by), {}};
    const auto take = [&](const Run& run, RunJudge& judge, const RunStep& step) -> Status {
        SHARDSCOPE_ASSIGN(const StepFiles files, listStep(run, step));
        auto values = judge.values(step, files);
        if (!values && readAll) {
            SHARDSCOPE_ASSIGN(StepVerdict verdict, judge.judge(step, files));
            if (const std::string why = sentenceOf(verdict); !why.empty())
                stats.left_out.emplace_back(step.name, why);
            else
                values = std::move(verdict.report.values);
        } else if (!values) {
            stats.left_out.emplace_back(step.name, "its values were not read yet");
        }
        if (values) stats.history.add(step.name, *values);
        return {};
    };
    if (const Run* const run = std::get_if<Run>(&opened)) {
        stats.path = run->source.display;
        RunJudge judge(access, *run, valuesRequest());
        for (auto step = run->directory.steps.rbegin(); step != run->directory.steps.rend(); ++step) {
            SHARDSCOPE_TRY(StopToken(access.stop).poll());
            SHARDSCOPE_TRY(take(*run, judge, *step));
        }
        return stats;
    }
    const auto& checkpoint = std::get<Checkpoint>(opened);
    stats.path = checkpoint.path;
    if (const auto step = stepOf(access, checkpoint)) {
        RunJudge judge(access, step->first, valuesRequest());
        SHARDSCOPE_TRY(take(step->first, judge, step->second));
        return stats;
    }
    return statsOf(access, checkpoint, by);
}

Result<Stats> statsOf(const Access& access, const Checkpoint& checkpoint, ValuesBy by) {
    Stats stats{checkpoint.path, by, ValueHistory(by), {}};
    SHARDSCOPE_ASSIGN(const ValidationReport report, validateOpen(access, checkpoint, valuesRequest()));
    stats.history.add(splitPath(acceptedName(checkpoint.path)).second, report.values);
    return stats;
}

Json statsJson(const Access& access, const Stats& stats) {
    Json json;
    json["schema"] = "shardscope.stats/1";
    json["path"] = access.shown(stats.path);
    json["by"] = valuesByName(stats.by);
    json["steps"] = Json::array();
    for (const ValueHistory::Step& step : stats.history.steps()) {
        Json groups = Json::array();
        for (const ValueGroup& group : step.groups)
            groups.push_back(sumsJson(group));
        json["steps"].push_back({{"name", step.name}, {"groups", std::move(groups)}});
    }
    json["marks"] = Json::array();
    for (const ValueMark& mark : stats.history.marks())
        json["marks"].push_back({{"step", mark.step},
                                 {"group", mark.group},
                                 {"what", valueMarkName(mark.what)},
                                 {"text", mark.text}});
    json["left_out"] = Json::array();
    for (const auto& [name, why] : stats.left_out)
        json["left_out"].push_back({{"step", name}, {"why", why}});
    return json;
}

}  // namespace shardscope
