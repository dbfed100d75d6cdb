#include "plan/steps.h"

#include <algorithm>
#include <limits>
#include <map>
#include <unordered_map>

#include <fmt/format.h>

#include "base/regular_expression.h"
#include "plan/step_views.h"

namespace shardscope {
namespace {

bool allDigits(std::string_view text) {
    return !text.empty() &&
           std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// A name as optimizer state may be called: "<prefix><name of a parameter><suffix>".
struct StateName {
    std::string_view prefix, core, suffix;
};

// The ways to read a name, the name itself first.
std::vector<StateName> readings(std::string_view name, bool state) {
    std::vector<StateName> out{{{}, name, {}}};
    if (!state) return out;
    const size_t dot = name.rfind('.');
    if (dot == std::string_view::npos || dot == 0) return out;
    const std::string_view suffix = name.substr(dot);
    const std::string_view core = name.substr(0, dot);
    out.push_back({{}, core, suffix});
    for (const std::string_view part : {std::string_view("state."), std::string_view("param_groups.")}) {
        for (size_t at = core.find(part); at != std::string_view::npos; at = core.find(part, at + 1)) {
            if (at > 0 && core[at - 1] != '.') continue;
            const size_t begin = at + part.size();
            out.push_back({core.substr(0, begin), core.substr(begin), suffix});
            break;
        }
    }
    return out;
}

struct Match {
    std::string prefix, suffix;
    std::vector<std::string> names;   // of RecipeStep::to
    std::vector<std::string> groups;  // for what belongs together
    auto key() const { return std::tie(prefix, suffix, groups); }
};

std::optional<Match> matchName(const RegularExpression& pattern, const std::vector<std::string>& to,
                               std::string_view name, bool state) {
    std::vector<std::string_view> found;
    for (const StateName& reading : readings(name, state)) {
        if (!pattern.matchWhole(reading.core, found)) continue;
        Match match;
        match.prefix = reading.prefix;
        match.suffix = reading.suffix;
        for (const std::string& text : to)
            match.names.push_back(match.prefix + RegularExpression::expand(text, found) + match.suffix);
        match.groups.assign(found.begin() + 1, found.end());
        return match;
    }
    return std::nullopt;
}

// ------------------------------------------------------------------ one step on all names

class StepRun {
  public:
    StepRun(const Catalog& source, const RecipeStep& step, StepState& state)
        : source_(source), step_(step), state_(state) {}

    Status run() {
        for (const std::string& text : step_.from) {
            auto pattern = RegularExpression::parse(text);
            if (!pattern.ok()) return fail(pattern.error().message).withHint(pattern.error().hint);
            patterns_.push_back(std::move(pattern).value());
        }
        if (step_.kind == RecipeStep::Kind::rename) {
            renameAll();
        } else {
            SHARDSCOPE_TRY(findGroups());
            SHARDSCOPE_TRY(checkState());
            SHARDSCOPE_TRY(makeAll());
        }
        if (!touched_ && !step_.optional)
            return fail(fmt::format("no tensor matches '{}' (\"optional\": true allows that)",
                                    fmt::join(step_.from, "', '")));
        return checkNames();
    }

  private:
    Error fail(const std::string& message) const {
        return makeError(ErrorCode::usage,
                         fmt::format("step {} ({}): {}", step_.number, stepName(step_.kind), message));
    }
    Error fail(const StepTensor& tensor, const std::string& message) const {
        return fail(fmt::format("'{}' {}: {}", tensor.name, formatDims(shapeOf(tensor)), message))
            .ofTensor(tensor.name);
    }
    DimSpan shapeOf(const StepTensor& tensor) const {
        return tensor.view ? DimSpan(tensor.view->shape()) : source_.shape(tensor.origin);
    }
    TensorView viewOf(const StepTensor& tensor) const {
        return tensor.view ? *tensor.view : TensorView::whole(tensor.origin, source_.shape(tensor.origin));
    }

    void renameAll() {
        const auto apply = [&](std::string& name) {
            std::string out = patterns_[0].replaceAll(name, step_.to[0]);
            touched_ = touched_ || out != name;
            name = std::move(out);
        };
        for (StepTensor& tensor : state_.tensors)
            apply(tensor.name);
        for (StepObject& object : state_.objects)
            apply(object.name);
    }

    struct Group {
        std::vector<size_t> members;  // one for each pattern; npos = none yet
        Match match;                  // names are those of the first pattern
    };
    static constexpr size_t kMissing = std::numeric_limits<size_t>::max();

    // Which of `count` names belong together; a name that two patterns match is an error.
    template <class NameOf, class IsState>
    Result<std::vector<Group>> group(size_t count, const NameOf& nameOf, const IsState& isState) {
        std::vector<Group> groups;
        std::map<std::tuple<std::string, std::string, std::vector<std::string>>, size_t> byKey;
        for (size_t i = 0; i < count; ++i) {
            const std::string& name = nameOf(i);
            size_t matches = 0;
            for (size_t p = 0; p < patterns_.size(); ++p) {
                auto match = matchName(patterns_[p], step_.to, name, step_.withState && isState(i));
                if (!match) continue;
                if (++matches > 1) return fail(fmt::format("'{}' would be used twice", name));
                const auto [it, fresh] = byKey.emplace(match->key(), groups.size());
                if (fresh) groups.push_back({std::vector<size_t>(patterns_.size(), kMissing), *match});
                Group& found = groups[it->second];
                if (found.members[p] != kMissing) {
                    if (patterns_.size() > 1) {
                        return fail(fmt::format("'{}' and '{}' would both be part {} of the same tensor",
                                                nameOf(found.members[p]), name, p + 1));
                    }
                    // Alone, each match stands for itself.
                    groups.push_back({{i}, std::move(*match)});
                    continue;
                }
                found.members[p] = i;
                if (p == 0) found.match = std::move(*match);
            }
        }
        return groups;
    }

    Status findGroups() {
        SHARDSCOPE_ASSIGN(
            groups_,
            group(
                state_.tensors.size(), [&](size_t i) -> const std::string& { return state_.tensors[i].name; },
                [&](size_t i) { return source_.role(state_.tensors[i].origin) == Role::optimizer; }));
        for (const Group& found : groups_) {
            for (size_t p = 0; p < found.members.size(); ++p) {
                if (found.members[p] != kMissing) continue;
                const auto present = std::find_if(found.members.begin(), found.members.end(),
                                                  [](size_t m) { return m != kMissing; });
                const StepTensor& other = state_.tensors[*present];
                return fail(other, fmt::format("nothing beside it matches '{}'", step_.from[p]));
            }
        }
        touched_ = !groups_.empty();
        return {};
    }

    // Optimizer state that is kept by number cannot follow its parameter.
    Status checkState() const {
        if (!step_.withState || groups_.empty()) return {};
        for (const StepTensor& tensor : state_.tensors) {
            if (source_.role(tensor.origin) != Role::optimizer) continue;
            for (const StateName& reading : readings(tensor.name, true)) {
                if (reading.suffix.empty() || !allDigits(reading.core)) continue;
                return fail(
                    fmt::format("the optimizer state is kept by number ('{}'), so it cannot follow its "
                                "parameter; leave it behind with --weights-only",
                                tensor.name));
            }
        }
        return {};
    }

    bool single(size_t i) const { return elementCount(shapeOf(state_.tensors[i])) == 1; }

    Status makeAll() {
        std::unordered_map<size_t, std::vector<StepTensor>> results;  // by the first member
        std::vector<bool> used(state_.tensors.size(), false);
        const std::string said = fmt::format("{} (step {})", stepName(step_.kind), step_.number);
        for (const Group& found : groups_) {
            const size_t first = found.members[0];
            for (const size_t member : found.members)
                used[member] = true;
            StepTensor base = state_.tensors[first];
            std::vector<StepTensor>& out = results[first];
            const std::vector<std::string> names =
                step_.to.empty() ? std::vector<std::string>{base.name} : found.match.names;
            // A single number beside a parameter is not cut or turned.
            if (!found.match.suffix.empty() && std::all_of(found.members.begin(), found.members.end(),
                                                           [&](size_t m) { return single(m); })) {
                for (const std::string& name : names) {
                    out.push_back(base);
                    out.back().name = name;
                    out.back().copy = base.copy || out.size() > 1;
                }
                for (size_t p = 1; p < found.members.size(); ++p)
                    dropOther(state_.tensors[found.members[p]].name, base.name, names[0]);
                continue;
            }
            std::vector<TensorView> parts;
            for (const size_t member : found.members) {
                const StepTensor& part = state_.tensors[member];
                if (source_.dtype(part.origin) != source_.dtype(base.origin)) {
                    return fail(part,
                                fmt::format("it is {}, but '{}' is {}", dtypeName(source_.dtype(part.origin)),
                                            base.name, dtypeName(source_.dtype(base.origin))));
                }
                if (!dtypeIsWholeBytes(source_.dtype(part.origin))) {
                    return fail(part, fmt::format("{} elements share bytes, so they keep their order",
                                                  dtypeName(source_.dtype(part.origin))));
                }
                parts.push_back(viewOf(part));
            }
            auto views = stepViews(step_, parts);
            if (!views.ok()) return fail(base, views.error().message);
            if (views->size() != names.size())
                return fail(base, fmt::format("it gives {} tensors, {} names are given", views->size(),
                                              names.size()));
            if (step_.kind == RecipeStep::Kind::fusedQkv && step_.layout == RecipeStep::Layout::ranks)
                state_.reordered.insert(base.origin);
            for (size_t i = 0; i < names.size(); ++i) {
                StepTensor tensor = base;
                tensor.name = names[i];
                tensor.view = std::make_shared<const TensorView>(std::move((*views)[i]));
                tensor.made += (tensor.made.empty() ? "" : ", ") + said;
                out.push_back(std::move(tensor));
            }
        }
        std::vector<StepTensor> next;
        for (size_t i = 0; i < state_.tensors.size(); ++i) {
            if (const auto it = results.find(i); it != results.end()) {
                std::move(it->second.begin(), it->second.end(), std::back_inserter(next));
            } else if (!used[i]) {
                next.push_back(std::move(state_.tensors[i]));
            }
        }
        state_.tensors = std::move(next);
        return step_.withState && !step_.to.empty() ? makeObjects() : Status();
    }

    // Numbers of optimizer state may be objects instead of tensors.
    Status makeObjects() {
        SHARDSCOPE_ASSIGN(
            const std::vector<Group> groups,
            group(
                state_.objects.size(), [&](size_t i) -> const std::string& { return state_.objects[i].name; },
                [](size_t) { return true; }));
        std::vector<StepObject> more;
        std::vector<bool> gone(state_.objects.size(), false);
        for (const Group& found : groups) {
            if (found.match.suffix.empty() || found.members[0] == kMissing) continue;
            const StepObject first = state_.objects[found.members[0]];
            for (const size_t member : found.members) {
                if (member == kMissing) continue;
                gone[member] = true;
                if (member != found.members[0])
                    dropOther(state_.objects[member].name, first.name, found.match.names[0]);
            }
            for (const std::string& name : found.match.names)
                more.push_back({name, first.origin});
        }
        std::vector<StepObject> next;
        for (size_t i = 0; i < state_.objects.size(); ++i) {
            if (!gone[i]) next.push_back(std::move(state_.objects[i]));
        }
        std::move(more.begin(), more.end(), std::back_inserter(next));
        state_.objects = std::move(next);
        return {};
    }

    void dropOther(const std::string& name, const std::string& kept, const std::string& of) {
        state_.dropped.emplace_back(name, fmt::format("'{}' has one value, that of '{}'", of, kept));
    }

    Status checkNames() const {
        std::unordered_map<std::string_view, const StepTensor*> names;
        for (const StepTensor& tensor : state_.tensors) {
            if (tensor.name.empty())
                return fail(fmt::format("'{}' would lose its name", source_.name(tensor.origin)));
            const auto [it, fresh] = names.emplace(tensor.name, &tensor);
            if (!fresh) {
                return fail(fmt::format("'{}' {} and '{}' would both be called '{}'",
                                        source_.name(it->second->origin), formatDims(shapeOf(*it->second)),
                                        source_.name(tensor.origin), tensor.name));
            }
        }
        return {};
    }

    const Catalog& source_;
    const RecipeStep& step_;
    StepState& state_;
    std::vector<RegularExpression> patterns_;
    std::vector<Group> groups_;
    bool touched_ = false;
};

}  // namespace

std::string_view stepName(RecipeStep::Kind kind) {
    switch (kind) {
        case RecipeStep::Kind::rename:
            return "rename";
        case RecipeStep::Kind::transpose:
            return "transpose";
        case RecipeStep::Kind::reshape:
            return "reshape";
        case RecipeStep::Kind::split:
            return "split";
        case RecipeStep::Kind::concatenate:
            return "concatenate";
        case RecipeStep::Kind::rope:
            return "rope";
        case RecipeStep::Kind::fusedQkv:
            return "fused-qkv";
    }
    return "";
}

Status applySteps(const Catalog& source, const std::vector<RecipeStep>& steps, StepState& state) {
    for (const RecipeStep& step : steps)
        SHARDSCOPE_TRY(StepRun(source, step, state).run());
    return {};
}

}  // namespace shardscope
