#include "plan/steps.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <unordered_map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/numbers.h"
#include "base/option_words.h"
#include "base/regular_expression.h"
#include "base/units.h"
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
    // Megatron: the name of the state stands first.
    if (const std::string_view prefix = out.back().prefix; !prefix.empty()) {
        const std::string_view rest = name.substr(prefix.size());
        const size_t end = rest.find('.');
        if (end != std::string_view::npos && end + 1 < rest.size())
            out.push_back({name.substr(0, prefix.size() + end + 1), rest.substr(end + 1), {}});
    }
    return out;
}

struct Match {
    std::string prefix, suffix, core;
    std::vector<std::string> groups;  // for what belongs together
    std::string index;                // of stack
    size_t indexAt = 0;               // where it stands in the whole name
    auto key() const { return std::tie(prefix, suffix, groups); }

    // A name of RecipeStep::to.
    std::string expand(std::string_view to) const {
        std::vector<std::string_view> found{core};
        found.insert(found.end(), groups.begin(), groups.end());
        return prefix + RegularExpression::expand(to, found) + suffix;
    }
};

// `indexGroup` is set apart, so that names that differ in it alone belong together; 0 = none.
std::optional<Match> matchName(const RegularExpression& pattern, std::string_view name, bool state,
                               size_t indexGroup) {
    std::vector<std::string_view> found;
    for (const StateName& reading : readings(name, state)) {
        if (!pattern.matchesWhole(reading.core) || !pattern.matchWhole(reading.core, found)) continue;
        Match match;
        match.prefix = reading.prefix;
        match.suffix = reading.suffix;
        match.core = reading.core;
        if (indexGroup > 0 && indexGroup < found.size()) {
            match.index = found[indexGroup];
            match.indexAt = static_cast<size_t>(found[indexGroup].data() - name.data());
            found[indexGroup] = {};
        }
        match.groups.assign(found.begin() + 1, found.end());
        return match;
    }
    return std::nullopt;
}

// The names of what a tensor is unstacked into have their index in place of this.
constexpr std::string_view kIndexPlace = "{i}";

std::string withIndex(std::string text, int64_t index) {
    const std::string number = std::to_string(index);
    for (size_t at = text.find(kIndexPlace); at != std::string::npos; at = text.find(kIndexPlace, at)) {
        text.replace(at, kIndexPlace.size(), number);
        at += number.size();
    }
    return text;
}

std::string changeText(const ValueChange& change) {
    const std::string_view verb = change.kind == ValueChange::Kind::multiply ? "multiplied by"
                                  : change.kind == ValueChange::Kind::divide ? "divided by"
                                                                             : "increased by";
    return fmt::format(
        "every element is {} {:.9g}{}", verb, change.operand,
        change.exact() ? ", which changes its exponent alone" : " and rounded: the values change");
}

// Whether every bit of the number is kept in the dtype, or it is a float that rounds.
bool fits(double fill, DType dtype) {
    if (fill == 0 || dtypeIsFloat(dtype)) return true;
    const auto bits = static_cast<int>(dtypeBits(dtype));
    const bool isUnsigned =
        dtype == DType::uint8 || dtype == DType::uint16 || dtype == DType::uint32 || dtype == DType::uint64;
    const bool isSigned =
        dtype == DType::int8 || dtype == DType::int16 || dtype == DType::int32 || dtype == DType::int64;
    if (fill != std::trunc(fill)) return false;
    if (isUnsigned) return fill > 0 && fill < std::ldexp(1.0, bits);
    return isSigned && fill >= -std::ldexp(1.0, bits - 1) && fill < std::ldexp(1.0, bits - 1);
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
        if (step_.kind == RecipeStep::Kind::rename && !step_.beside.empty()) {
            SHARDSCOPE_TRY(renameBeside());
        } else if (step_.kind == RecipeStep::Kind::copy) {
            SHARDSCOPE_TRY(copyBeside());
        } else if (step_.kind == RecipeStep::Kind::rename) {
            renameAll();
        } else {
            SHARDSCOPE_TRY(findGroups());
            SHARDSCOPE_TRY(checkState());
            SHARDSCOPE_TRY(makeAll());
        }
        if (!touched_ && !step_.optional)
            return fail(fmt::format("no tensor matches '{}' (\"optional\": true allows that)",
                                    fmt::join(step_.from, "', '")));
        return touched_ ? checkNames() : Status();
    }
    bool touched() const { return touched_; }

  private:
    Error fail(const std::string& message) const {
        return makeError(ErrorCode::usage, fmt::format("{}: {}", stepTitle(step_), message));
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

    void know(StepTensor& tensor) const { tensor.known = tensor.known || !step_.arranges; }

    void renameAll() {
        // Most names do not match; asking first costs no memory.
        const auto apply = [&](std::string& name) {
            if (!patterns_[0].matchesPart(name)) return false;
            std::string out = patterns_[0].replaceAll(name, step_.to[0]);
            touched_ = touched_ || out != name;
            name = std::move(out);
            return true;
        };
        for (StepTensor& tensor : state_.tensors) {
            if (apply(tensor.name)) know(tensor);
        }
        for (StepObject& object : state_.objects)
            apply(object.name);
    }

    Status renameBeside() {
        const auto parsed = RegularExpression::parse(step_.beside);
        if (!parsed.ok()) return fail(parsed.error().message).withHint(parsed.error().hint);
        const RegularExpression& beside = *parsed;
        const auto isState = [&](const StepTensor& tensor) {
            return source_.role(tensor.origin) == Role::optimizer;
        };
        std::set<std::tuple<std::string, std::string, std::vector<std::string>>> present;
        size_t groups = 0;
        for (const StepTensor& tensor : state_.tensors) {
            const auto match = matchName(beside, tensor.name, isState(tensor), 0);
            if (!match) continue;
            groups = match->groups.size();
            present.insert(match->key());
        }
        for (StepTensor& tensor : state_.tensors) {
            const auto match = matchName(patterns_[0], tensor.name, isState(tensor), 0);
            if (!match || match->groups.size() < groups) continue;
            const std::vector<std::string> first(match->groups.begin(),
                                                 match->groups.begin() + static_cast<ptrdiff_t>(groups));
            if (!present.contains({match->prefix, match->suffix, first})) continue;
            tensor.name = match->expand(step_.to[0]);
            know(tensor);
            touched_ = true;
        }
        return {};
    }

    // Of weights alone: what is trained is trained once, and has its state there.
    Status copyBeside() {
        SHARDSCOPE_ASSIGN(const RegularExpression beside, RegularExpression::parse(step_.beside));
        std::map<std::vector<std::string>, size_t> originals;
        size_t groups = 0;
        for (size_t i = 0; i < state_.tensors.size(); ++i) {
            const auto match = matchName(patterns_[0], state_.tensors[i].name, false, 0);
            if (!match) continue;
            groups = match->groups.size();
            originals.emplace(match->groups, i);
        }
        for (size_t i = 0, count = state_.tensors.size(); i < count; ++i) {
            const auto match = matchName(beside, state_.tensors[i].name, false, 0);
            if (!match || match->groups.size() < groups) continue;
            const auto found = originals.find(
                {match->groups.begin(), match->groups.begin() + static_cast<ptrdiff_t>(groups)});
            if (found == originals.end()) continue;
            StepTensor copy = state_.tensors[found->second];
            copy.name = match->expand(step_.to[0]);
            copy.copy = true;
            know(copy);
            state_.tensors.push_back(std::move(copy));
            touched_ = true;
        }
        return {};
    }

    struct Group {
        std::vector<size_t> members;       // one for each pattern, or index of stack; kMissing = none yet
        Match match;                       // names are those of the first pattern
        std::map<size_t, size_t> indexed;  // of stack: members by index
    };
    static constexpr int64_t kMostIndices = int64_t{1} << 16;
    static constexpr size_t kMostTensors = size_t{1} << 22;
    static constexpr size_t kMissing = std::numeric_limits<size_t>::max();

    // The place of a name in its group: the number of the pattern, or what stack counts; kMissing where a
    // stride passes it over.
    Result<size_t> placeOf(const Match& match, size_t pattern, const std::string& name) const {
        if (step_.kind != RecipeStep::Kind::stack) return pattern;
        SHARDSCOPE_ASSIGN(const int64_t first, valueOf(step_.start, 0));
        SHARDSCOPE_ASSIGN(const int64_t stride, strideOf());
        const auto index = parseNumber<int64_t>(match.index);
        if (index && step_.stride) {
            SHARDSCOPE_ASSIGN(const int64_t count, valueOf(step_.length, kMostIndices));
            if (*index < first || (*index - first) % stride != 0 || (*index - first) / stride >= count)
                return kMissing;
        }
        if (!index || *index < first || (*index - first) / stride > kMostIndices)
            return fail(fmt::format("'{}' of '{}' is not an index from {} on", match.index, name, first));
        return static_cast<size_t>((*index - first) / stride);
    }

    Result<int64_t> strideOf() const {
        SHARDSCOPE_ASSIGN(const int64_t stride, valueOf(step_.stride, 1));
        if (stride < 1 || stride > kMostIndices) return fail(fmt::format("{} is not a stride", stride));
        return stride;
    }

    Result<int64_t> valueOf(const std::optional<StepNumber>& number, int64_t standard) const {
        if (!number) return standard;
        if (!number->missing.empty()) return fail(number->missing);
        return number->value;
    }

    // Which of `count` names belong together; a name that two patterns match is an error.
    template <class NameOf, class IsState>
    Result<std::vector<Group>> group(size_t count, const NameOf& nameOf, const IsState& isState) {
        std::vector<Group> groups;
        std::map<std::tuple<std::string, std::string, std::vector<std::string>>, size_t> byKey;
        for (size_t i = 0; i < count; ++i) {
            const std::string& name = nameOf(i);
            size_t matches = 0;
            for (size_t p = 0; p < patterns_.size(); ++p) {
                auto match = matchName(patterns_[p], name, step_.withState && isState(i), step_.indexGroup);
                if (!match) continue;
                if (++matches > 1) return fail(fmt::format("'{}' would be used twice", name));
                SHARDSCOPE_ASSIGN(const size_t place, placeOf(*match, p, name));
                if (place == kMissing) continue;
                const auto [it, fresh] = byKey.emplace(match->key(), groups.size());
                if (fresh) groups.push_back({std::vector<size_t>(patterns_.size(), kMissing), *match});
                Group& found = groups[it->second];
                if (step_.kind == RecipeStep::Kind::stack) {
                    if (!found.indexed.empty() && place < found.indexed.begin()->first)
                        found.match = std::move(*match);
                    const auto [other, first] = found.indexed.emplace(place, i);
                    if (!first) {
                        return fail(fmt::format("'{}' and '{}' would both be part {} of the same tensor",
                                                nameOf(other->second), name, place + 1));
                    }
                    continue;
                }
                if (found.members[place] != kMissing) {
                    if (patterns_.size() > 1) {
                        return fail(fmt::format("'{}' and '{}' would both be part {} of the same tensor",
                                                nameOf(found.members[place]), name, place + 1));
                    }
                    // Alone, each match stands for itself.
                    groups.push_back({{i}, std::move(*match)});
                    continue;
                }
                found.members[place] = i;
                if (place == 0) found.match = std::move(*match);
            }
        }
        // Up to the first index that is missing: what files name may be far apart.
        for (Group& found : groups) {
            if (found.indexed.empty()) continue;
            found.members.clear();
            for (const auto& [place, i] : found.indexed) {
                const bool gap = place != found.members.size();
                if (gap) found.members.push_back(kMissing);
                found.members.push_back(i);
                if (gap) break;
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
        for (Group& found : groups_) {
            if (step_.length && step_.kind == RecipeStep::Kind::stack) {
                SHARDSCOPE_ASSIGN(const int64_t count, valueOf(step_.length, 0));
                if (count < static_cast<int64_t>(found.members.size())) {
                    return fail(fmt::format("'{}' is one of {} or more tensors, not of {}",
                                            state_.tensors[found.members.back()].name, found.members.size(),
                                            count));
                }
                if (count > static_cast<int64_t>(found.members.size())) found.members.push_back(kMissing);
            }
            for (size_t p = 0; p < found.members.size(); ++p) {
                if (found.members[p] != kMissing) continue;
                const auto present = std::find_if(found.members.begin(), found.members.end(),
                                                  [](size_t m) { return m != kMissing; });
                const StepTensor& other = state_.tensors[*present];
                if (step_.kind == RecipeStep::Kind::stack) {
                    SHARDSCOPE_ASSIGN(const int64_t first, valueOf(step_.start, 0));
                    SHARDSCOPE_ASSIGN(const int64_t stride, strideOf());
                    std::string missing = other.name;
                    missing.replace(found.match.indexAt, found.match.index.size(),
                                    std::to_string(first + static_cast<int64_t>(p) * stride));
                    return fail(other, fmt::format("'{}' is missing beside it", missing));
                }
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
                                "parameter; leave it behind with {}",
                                tensor.name, option("weights-only")));
            }
        }
        return {};
    }

    bool single(size_t i) const { return elementCount(shapeOf(state_.tensors[i])) == 1; }
    // Numbers of the optimizer beside a parameter: steps, powers of betas.
    bool isStateNumber(const Group& found) const {
        return (!found.match.suffix.empty() ||
                source_.role(state_.tensors[found.members[0]].origin) == Role::optimizer) &&
               std::all_of(found.members.begin(), found.members.end(), [&](size_t m) { return single(m); });
    }

    // The names that a group gets. `count` is of what unstack makes.
    Result<std::vector<std::string>> namesOf(const Group& found, const std::string& own, size_t count) const {
        std::vector<std::string> names;
        if (step_.kind == RecipeStep::Kind::unstack) {
            SHARDSCOPE_ASSIGN(const int64_t first, valueOf(step_.start, 0));
            SHARDSCOPE_ASSIGN(const int64_t stride, strideOf());
            for (size_t i = 0; i < count; ++i) {
                names.push_back(
                    found.match.expand(withIndex(step_.to[0], first + static_cast<int64_t>(i) * stride)));
            }
            return names;
        }
        for (const std::string& text : step_.to)
            names.push_back(found.match.expand(text));
        if (names.empty()) names.push_back(own);
        return names;
    }

    // Into how many tensors the parameter is unstacked that a number of the optimizer belongs to.
    Result<size_t> indicesBeside(const Group& number, const std::string& name) const {
        if (step_.kind != RecipeStep::Kind::unstack) return size_t{1};
        std::set<int64_t> counts;
        for (const Group& found : groups_) {
            const DimSpan shape = shapeOf(state_.tensors[found.members[0]]);
            const int dim = step_.dim < 0 ? step_.dim + static_cast<int>(shape.size()) : step_.dim;
            if (isStateNumber(found) || dim < 0 || static_cast<size_t>(dim) >= shape.size()) continue;
            if (found.match.groups == number.match.groups)
                return static_cast<size_t>(shape[static_cast<size_t>(dim)]);
            counts.insert(shape[static_cast<size_t>(dim)]);
        }
        if (counts.size() != 1) return fail(fmt::format("'{}' belongs to a tensor that is not there", name));
        return static_cast<size_t>(*counts.begin());
    }

    // Slice and pad leave what has the wanted size, and what they may leave without a value.
    bool staysAsItIs(const StepTensor& tensor) {
        const bool cuts = step_.kind == RecipeStep::Kind::slice || step_.kind == RecipeStep::Kind::pad;
        if (!cuts || !step_.length) return false;
        if (step_.ifKnown && !step_.length->missing.empty()) {
            state_.notes.emplace_back(tensor.name,
                                      fmt::format("{}: {}", stepTitle(step_), step_.length->missing));
            return true;
        }
        const DimSpan shape = shapeOf(tensor);
        const int dim = step_.dim < 0 ? step_.dim + static_cast<int>(shape.size()) : step_.dim;
        return dim >= 0 && static_cast<size_t>(dim) < shape.size() && step_.length->missing.empty() &&
               shape[static_cast<size_t>(dim)] == step_.length->value &&
               (!step_.start || step_.start->value == 0);
    }

    Status makeAll() {
        std::unordered_map<size_t, std::vector<StepTensor>> results;  // by the first member
        std::vector<bool> used(state_.tensors.size(), false);
        const std::string said = fmt::format("{} (step {}{})", stepName(step_.kind), step_.number,
                                             step_.recipe.empty() ? std::string() : " of " + step_.recipe);
        size_t changed = 0;
        ValueChange change;
        for (const Group& found : groups_) {
            const size_t first = found.members[0];
            for (const size_t member : found.members)
                used[member] = true;
            StepTensor base = state_.tensors[first];
            know(base);
            std::vector<StepTensor>& out = results[first];
            // A single number beside a parameter is not cut or turned.
            if (isStateNumber(found)) {
                SHARDSCOPE_ASSIGN(const size_t count, indicesBeside(found, base.name));
                SHARDSCOPE_ASSIGN(const std::vector<std::string> names, namesOf(found, base.name, count));
                for (const std::string& name : names) {
                    out.push_back(base);
                    out.back().name = name;
                    out.back().copy = base.copy || out.size() > 1;
                }
                for (size_t p = 1; p < found.members.size(); ++p)
                    dropOther(state_.tensors[found.members[p]].name, base.name, names[0]);
                continue;
            }
            if (staysAsItIs(base)) {
                SHARDSCOPE_ASSIGN(const std::vector<std::string> names, namesOf(found, base.name, 1));
                out.push_back(std::move(base));
                out.back().name = names[0];
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
            if (step_.kind == RecipeStep::Kind::compute && !dtypeIsFloat(source_.dtype(base.origin)))
                return fail(base,
                            fmt::format("it is {}, not a float", dtypeName(source_.dtype(base.origin))));
            auto views = stepViews(step_, parts);
            if (!views.ok()) return fail(base, views.error().message);
            if (const auto& changes = views->front().changes();
                step_.kind == RecipeStep::Kind::compute && !changes.empty()) {
                change = changes.back();
                ++changed;
            }
            if (step_.kind == RecipeStep::Kind::pad && !step_.row &&
                !fits(step_.fill, source_.dtype(base.origin))) {
                return fail(base, fmt::format("{} is not a number of dtype {}", step_.fill,
                                              dtypeName(source_.dtype(base.origin))));
            }
            SHARDSCOPE_ASSIGN(const std::vector<std::string> names, namesOf(found, base.name, views->size()));
            made_ += names.size();
            if (made_ > kMostTensors)
                return fail(base, fmt::format("more than {} would be made", counted(kMostTensors, "tensor")));
            if (views->size() != names.size())
                return fail(base, fmt::format("it gives {} for {}", counted(views->size(), "tensor"),
                                              counted(names.size(), "name")));
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
        if (changed > 0)
            state_.notes.emplace_back(stepTitle(step_),
                                      fmt::format("{}: {}", counted(changed, "tensor"), changeText(change)));
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
            SHARDSCOPE_ASSIGN(const size_t count, indicesBeside(found, first.name));
            SHARDSCOPE_ASSIGN(const std::vector<std::string> names, namesOf(found, first.name, count));
            for (const size_t member : found.members) {
                if (member == kMissing) continue;
                gone[member] = true;
                if (member != found.members[0]) dropOther(state_.objects[member].name, first.name, names[0]);
            }
            for (const std::string& name : names)
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
    size_t made_ = 0;
};

}  // namespace

std::string_view stepName(RecipeStep::Kind kind) {
    switch (kind) {
        case RecipeStep::Kind::rename:
            return "rename";
        case RecipeStep::Kind::copy:
            return "copy";
        case RecipeStep::Kind::transpose:
            return "transpose";
        case RecipeStep::Kind::reshape:
            return "reshape";
        case RecipeStep::Kind::split:
            return "split";
        case RecipeStep::Kind::concatenate:
            return "concatenate";
        case RecipeStep::Kind::unstack:
            return "unstack";
        case RecipeStep::Kind::stack:
            return "stack";
        case RecipeStep::Kind::select:
            return "select";
        case RecipeStep::Kind::slice:
            return "slice";
        case RecipeStep::Kind::pad:
            return "pad";
        case RecipeStep::Kind::rope:
            return "rope";
        case RecipeStep::Kind::fusedQkv:
            return "fused-qkv";
        case RecipeStep::Kind::compute:
            return "compute";
    }
    return "";
}

std::string stepTitle(const RecipeStep& step) {
    return fmt::format("step {}{} ({})", step.number, step.recipe.empty() ? "" : " of " + step.recipe,
                       stepName(step.kind));
}

Status applyStep(const Catalog& source, const RecipeStep& step, StepState& state, bool& matched) {
    StepRun run(source, step, state);
    SHARDSCOPE_TRY(run.run());
    matched = run.touched();
    return {};
}

Status applySteps(const Catalog& source, const std::vector<RecipeStep>& steps, StepState& state) {
    bool matched = false;
    for (const RecipeStep& step : steps)
        SHARDSCOPE_TRY(applyStep(source, step, state, matched));
    return {};
}

}  // namespace shardscope
