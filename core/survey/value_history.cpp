#include "survey/value_history.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "base/text.h"
#include "base/units.h"
#include "survey/layer_name.h"
#include "survey/svg.h"

namespace shardscope {

namespace {

constexpr size_t kExpertsNamed = 8;

std::string_view lastPart(std::string_view name) {
    return name.substr(name.find_last_of('.') + 1);
}

ValuesKind kindOf(const TensorValues& values) {
    if (values.role == Role::parameter) return ValuesKind::weight;
    if (values.role != Role::optimizer || values.counts.elements < 2 || values.sums.counted == 0)
        return ValuesKind::other;
    constexpr std::array kMasters = std::to_array<std::string_view>(
        {"fp32", "fp32_param", "param", "master_param", "master_weight", "master_weights", "master"});
    std::string_view rest = values.tensor;
    while (!rest.empty()) {
        const size_t end = std::min(rest.find('.'), rest.size());
        if (std::ranges::count(kMasters, rest.substr(0, end)) > 0) return ValuesKind::weight;
        rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    return ValuesKind::moment;
}

std::string groupName(std::string_view name, ValuesKind kind, ValuesBy by) {
    if (by == ValuesBy::tensor) return std::string(name);
    LayerName layer = splitLayer(name);
    // The first number may be that of an expert.
    if (layer.number >= 0 && splitExpert(name).group.size() == layer.before.size()) layer = {name, {}, -1};
    const bool numbered = layer.number >= 0;
    if (numbered && by == ValuesBy::layer) {
        const std::string_view state =
            kind == ValuesKind::moment ? lastPart(layer.after) : std::string_view();
        return fmt::format("{}{}{}{}", layer.before, layer.number, state.empty() ? "" : ".*.", state);
    }
    std::string module = numbered ? fmt::format("{}*{}", layer.before, layer.after)
                                  : std::string(layer.before) + std::string(layer.after);
    if (const size_t dot = module.rfind('.'); kind == ValuesKind::weight && dot != module.npos && dot > 0)
        module.resize(dot);
    return module;
}

// "1 NaN", "2 infinite values", "1 NaN and 2 infinite values"
std::string nonFiniteText(const ValueCounts& counts) {
    const std::string nan = counts.nan ? countText(counts.nan) + " NaN" : "";
    const std::string inf = counts.inf ? counted(counts.inf, "infinite value") : "";
    return nan + (nan.empty() || inf.empty() ? "" : " and ") + inf;
}

std::string numberWords(double value) {
    return fmt::format("{:.4g}", value);
}

}  // namespace

std::string_view valuesByName(ValuesBy by) {
    return by == ValuesBy::module ? "module" : by == ValuesBy::layer ? "layer" : "tensor";
}

Result<ValuesBy> valuesByNamed(std::string_view name) {
    for (const ValuesBy by : kValuesBy)
        if (valuesByName(by) == name) return by;
    return makeError(ErrorCode::usage, fmt::format("'{}' is neither module, layer nor tensor", name));
}

std::string_view valuesKindName(ValuesKind kind) {
    return kind == ValuesKind::weight ? "weight" : kind == ValuesKind::moment ? "moment" : "other";
}

std::string_view valueMarkName(ValueMark::What what) {
    return what == ValueMark::What::jump        ? "jump"
           : what == ValueMark::What::nonFinite ? "non-finite"
                                                : "dead-experts";
}

std::optional<double> ValueGroup::norm() const {
    return sums.counted == 0 ? std::nullopt : std::optional(std::sqrt(sums.squares));
}
std::optional<double> ValueGroup::rms() const {
    return sums.counted == 0 ? std::nullopt
                             : std::optional(std::sqrt(sums.squares / static_cast<double>(sums.counted)));
}
std::optional<double> ValueGroup::mean() const {
    return sums.counted == 0 ? std::nullopt : std::optional(sums.sum / static_cast<double>(sums.counted));
}
double ValueGroup::zeroShare() const {
    return counts.elements == 0 ? 0 : static_cast<double>(counts.zero) / static_cast<double>(counts.elements);
}

void ValueHistory::add(std::string step, std::span<const TensorValues> tensors) {
    Step here{std::move(step), {}};
    std::map<Key, size_t> known;
    for (const TensorValues& tensor : tensors) {
        const ValuesKind kind = kindOf(tensor);
        const auto [at, fresh] =
            known.try_emplace({groupName(tensor.tensor, kind, by_), kind}, here.groups.size());
        if (fresh) here.groups.push_back({at->first.first, kind, 0, {}, {}});
        ValueGroup& group = here.groups[at->second];
        ++group.tensors;
        group.counts.elements += tensor.counts.elements;
        group.counts.nan += tensor.counts.nan;
        group.counts.inf += tensor.counts.inf;
        group.counts.zero += tensor.counts.zero;
        group.sums.add(tensor.sums);
    }
    for (const ValueGroup& group : here.groups)
        markGroup(group, here.name);
    markExperts(tensors, here.name);
    steps_.push_back(std::move(here));
}

void ValueHistory::markGroup(const ValueGroup& group, const std::string& step) {
    if (group.kind == ValuesKind::other) return;
    const std::string shown = printable(group.name, kNameInMessage);
    const bool finite = group.counts.nan + group.counts.inf == 0;
    const double norm = group.norm().value_or(0);
    const auto [at, fresh] = before_.try_emplace({group.name, group.kind});
    Before& before = at->second;
    if (!finite && before.finite)
        marks_.push_back(
            {ValueMark::What::nonFinite, step, group.name,
             fmt::format("{} holds {} at {}{}.", shown, nonFiniteText(group.counts),
                         printable(step, kNameInMessage), fresh ? "" : ", none at the step before")});
    const double most = group.kind == ValuesKind::weight ? kWeightJump : kMomentJump;
    if (!fresh && before.norm > 0 && norm > 0) {
        const double times = norm > before.norm ? norm / before.norm : before.norm / norm;
        if (times >= most)
            marks_.push_back({ValueMark::What::jump, step, group.name,
                              fmt::format("The norm of {} {} from {} at {} to {} at {}.", shown,
                                          norm > before.norm ? "rises" : "falls", numberWords(before.norm),
                                          printable(before.step, kNameInMessage), numberWords(norm),
                                          printable(step, kNameInMessage))});
    }
    before = {norm, finite, step};
}

void ValueHistory::markExperts(std::span<const TensorValues> tensors, const std::string& step) {
    std::map<Key, std::map<int64_t, bool>> zero;  // by expert: all of its tensors are
    for (const TensorValues& tensor : tensors) {
        const ExpertName expert = splitExpert(tensor.tensor);
        const ValuesKind kind = kindOf(tensor);
        if (expert.number < 0 || kind == ValuesKind::other) continue;
        bool& all = zero[{std::string(expert.group), kind}].try_emplace(expert.number, true).first->second;
        all = all && tensor.counts.zero == tensor.counts.elements;
    }
    for (const auto& [key, experts] : zero) {
        std::set<int64_t> dead;
        for (const auto& [number, all] : experts)
            if (all) dead.insert(number);
        if (dead.size() == experts.size()) dead.clear();  // none of them was trained yet
        std::set<int64_t>& before = dead_[key];
        std::vector<int64_t> fresh;
        std::ranges::set_difference(dead, before, std::back_inserter(fresh));
        before = std::move(dead);
        if (fresh.empty()) continue;
        std::string numbers;
        for (size_t i = 0; i < std::min(fresh.size(), kExpertsNamed); ++i)
            numbers += fmt::format("{}{}", i == 0 ? "" : ", ", fresh[i]);
        if (fresh.size() > kExpertsNamed)
            numbers += fmt::format(" and {} more", countText(fresh.size() - kExpertsNamed));
        const std::string group = key.first.substr(0, key.first.size() - 1);
        marks_.push_back(
            {ValueMark::What::deadExperts, step, group,
             fmt::format("{} of {} dead at {}: {} (all {} are zero).", counted(fresh.size(), "expert"),
                         printable(group, kNameInMessage), printable(step, kNameInMessage), numbers,
                         key.second == ValuesKind::weight ? "weights" : "moments")});
    }
}

}  // namespace shardscope
