#include "plan/steps.h"

#include <algorithm>
#include <limits>
#include <map>
#include <regex>
#include <unordered_map>

#include <fmt/format.h>

#include "base/checked.h"

namespace shardscope {
namespace {

// The standard library's expressions recurse along the text, so overlong names never match.
constexpr size_t kLongestName = 4096;

bool allDigits(std::string_view text) {
    return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
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

std::optional<Match> matchName(const std::regex& pattern, const std::vector<std::string>& to,
                               std::string_view name, bool state) {
    if (name.size() > kLongestName) return std::nullopt;
    for (const StateName& reading : readings(name, state)) {
        std::match_results<std::string_view::const_iterator> found;
        if (!std::regex_match(reading.core.begin(), reading.core.end(), found, pattern)) continue;
        Match match;
        match.prefix = reading.prefix;
        match.suffix = reading.suffix;
        for (const std::string& text : to)
            match.names.push_back(match.prefix + found.format(text) + match.suffix);
        for (size_t i = 1; i < found.size(); ++i)
            match.groups.push_back(found[i].str());
        return match;
    }
    return std::nullopt;
}

// ------------------------------------------------------------------ what the steps do to one tensor

Result<int64_t> valueOf(const StepNumber& number) {
    if (!number.missing.empty()) return makeError(ErrorCode::usage, number.missing);
    return number.value;
}

Result<int64_t> positive(const std::optional<StepNumber>& number, std::string_view what) {
    if (!number) return makeError(ErrorCode::usage, fmt::format("it does not say '{}'", what));
    SHARDSCOPE_ASSIGN(const int64_t value, valueOf(*number));
    if (value <= 0 || value > kMaxDim)
        return makeError(ErrorCode::usage, fmt::format("{} = {} is not a count", what, value));
    return value;
}

Result<size_t> dimOf(const TensorView& view, int dim) {
    const auto rank = static_cast<int>(view.shape().size());
    const int d = dim < 0 ? dim + rank : dim;
    if (d < 0 || d >= rank) return makeError(ErrorCode::usage, fmt::format("it has no dimension {}", dim));
    return static_cast<size_t>(d);
}

// Dimension d in the given factors.
Result<TensorView> factored(const TensorView& view, size_t d, DimSpan factors) {
    Dims shape(view.shape().begin(), view.shape().begin() + static_cast<ptrdiff_t>(d));
    shape.insert(shape.end(), factors.begin(), factors.end());
    shape.insert(shape.end(), view.shape().begin() + static_cast<ptrdiff_t>(d) + 1, view.shape().end());
    return view.reshaped(shape);
}

// Dimensions d .. d + count - 1 as one.
Result<TensorView> joined(const TensorView& view, size_t d, size_t count) {
    Dims shape(view.shape().begin(), view.shape().begin() + static_cast<ptrdiff_t>(d));
    shape.push_back(elementCount(DimSpan(view.shape()).subspan(d, count)));
    shape.insert(shape.end(), view.shape().begin() + static_cast<ptrdiff_t>(d + count), view.shape().end());
    return view.reshaped(shape);
}

Result<TensorView> swapped(const TensorView& view, size_t d) {
    std::vector<int> order(view.shape().size());
    for (size_t i = 0; i < order.size(); ++i)
        order[i] = static_cast<int>(i);
    std::swap(order[d], order[d + 1]);
    return view.permuted(order);
}

Result<TensorView> transposed(const RecipeStep& step, const TensorView& view) {
    std::vector<int> order = step.order;
    if (order.empty()) {
        for (size_t i = view.shape().size(); i-- > 0;)
            order.push_back(static_cast<int>(i));
    }
    return view.permuted(order);
}

Result<TensorView> reshapedTo(const RecipeStep& step, const TensorView& view) {
    Dims shape;
    std::optional<size_t> open;
    int64_t known = 1;
    for (const StepNumber& number : step.sizes) {
        SHARDSCOPE_ASSIGN(int64_t size, valueOf(number));
        if (size == -1 && !open) {
            open = shape.size();
            size = 1;
        }
        if (size < 0 || size > kMaxDim || !checkedMul(known, size, known))
            return makeError(ErrorCode::usage, fmt::format("{} is not a size", size));
        shape.push_back(size);
    }
    const int64_t elements = elementCount(view.shape());
    if (open && known > 0 && elements % known == 0) shape[*open] = elements / known;
    return view.reshaped(shape);
}

Result<TensorView> rotated(const RecipeStep& step, const TensorView& view) {
    SHARDSCOPE_ASSIGN(const size_t d, dimOf(view, step.dim));
    const int64_t length = view.shape()[d];
    int64_t headDim = 0;
    if (step.headDim) {
        SHARDSCOPE_ASSIGN(headDim, positive(step.headDim, "head_dim"));
    } else {
        SHARDSCOPE_ASSIGN(const int64_t heads, positive(step.heads, "heads"));
        if (length % heads != 0)
            return makeError(ErrorCode::usage, fmt::format("{} rows are not {} heads", length, heads));
        headDim = length / heads;
    }
    if (headDim % 2 != 0 || headDim == 0 || length % headDim != 0) {
        return makeError(ErrorCode::usage,
                         fmt::format("{} rows are not heads of {} rows, in pairs", length, headDim));
    }
    const int64_t pairs = headDim / 2;
    const Dims factors = step.toHalf ? Dims{length / headDim, pairs, 2} : Dims{length / headDim, 2, pairs};
    SHARDSCOPE_ASSIGN(const TensorView cut, factored(view, d, factors));
    SHARDSCOPE_ASSIGN(const TensorView turned, swapped(cut, d + 1));
    return joined(turned, d, 3);
}

// [a1 b1 | a2 b2] -> [a1 a2 b1 b2], for ranks 1, 2 and parts a, b.
Result<TensorView> ranksJoined(const RecipeStep& step, const TensorView& view) {
    SHARDSCOPE_ASSIGN(const size_t d, dimOf(view, step.dim));
    SHARDSCOPE_ASSIGN(const int64_t ranks, positive(step.ranks, "ranks"));
    const int64_t length = view.shape()[d];
    Dims parts;
    int64_t total = 0;
    for (const StepNumber& number : step.sizes) {
        SHARDSCOPE_ASSIGN(const int64_t size, positive(number, "a part"));
        parts.push_back(size);
        total += size;
    }
    // One number says how many parts of the same size there are.
    if (parts.size() == 1) {
        const int64_t count = parts[0];
        if (count > 1024 || length % count != 0)
            return makeError(ErrorCode::usage, fmt::format("{} rows are not {} parts", length, count));
        parts.assign(static_cast<size_t>(count), length / count);
        total = length;
    }
    if (total != length) {
        return makeError(ErrorCode::usage, fmt::format("its {} rows are not parts of {} rows", length,
                                                       fmt::join(parts, " + ")));
    }
    for (const int64_t part : parts) {
        if (part % ranks != 0) {
            return makeError(ErrorCode::usage,
                             fmt::format("a part of {} rows cannot have been cut for {} ranks", part, ranks));
        }
    }
    SHARDSCOPE_ASSIGN(const TensorView cut, factored(view, d, Dims{ranks, length / ranks}));
    std::vector<TensorView> found;
    int64_t at = 0;
    for (const int64_t part : parts) {
        SHARDSCOPE_ASSIGN(const TensorView slice,
                          cut.narrowed(static_cast<int>(d) + 1, at, part / ranks));
        SHARDSCOPE_ASSIGN(TensorView whole, joined(slice, d, 2));
        found.push_back(std::move(whole));
        at += part / ranks;
    }
    return TensorView::concatenated(found, static_cast<int>(d));
}

struct QkvSizes {
    int64_t heads = 0, kvHeads = 0;
};

Result<QkvSizes> qkvSizes(const RecipeStep& step) {
    QkvSizes sizes;
    SHARDSCOPE_ASSIGN(sizes.heads, positive(step.heads, "heads"));
    sizes.kvHeads = sizes.heads;
    if (step.kvHeads) {
        SHARDSCOPE_ASSIGN(sizes.kvHeads, positive(step.kvHeads, "kv_heads"));
    }
    if (sizes.heads % sizes.kvHeads != 0) {
        return makeError(ErrorCode::usage, fmt::format("{} query heads cannot share {} key-value heads",
                                                       sizes.heads, sizes.kvHeads));
    }
    return sizes;
}

Result<std::vector<TensorView>> unfused(const RecipeStep& step, const TensorView& view) {
    SHARDSCOPE_ASSIGN(const size_t d, dimOf(view, step.dim));
    SHARDSCOPE_ASSIGN(const QkvSizes sizes, qkvSizes(step));
    const int64_t length = view.shape()[d], slots = sizes.heads + 2 * sizes.kvHeads;
    if (length % slots != 0) {
        return makeError(ErrorCode::usage, fmt::format("{} rows are not {} query heads and twice {} key-value "
                                                       "heads of one size",
                                                       length, sizes.heads, sizes.kvHeads));
    }
    const int64_t headDim = length / slots, group = sizes.heads / sizes.kvHeads;
    const bool grouped = step.layout == RecipeStep::Layout::grouped;
    SHARDSCOPE_ASSIGN(const TensorView cut,
                      factored(view, d, grouped ? Dims{sizes.kvHeads, group + 2, headDim} : Dims{1, slots, headDim}));
    const Dims counts = grouped ? Dims{group, 1, 1} : Dims{sizes.heads, sizes.kvHeads, sizes.kvHeads};
    std::vector<TensorView> parts;
    int64_t at = 0;
    for (const int64_t count : counts) {
        SHARDSCOPE_ASSIGN(const TensorView slice, cut.narrowed(static_cast<int>(d) + 1, at, count));
        SHARDSCOPE_ASSIGN(TensorView part, joined(slice, d, 3));
        parts.push_back(std::move(part));
        at += count;
    }
    return parts;
}

Result<TensorView> fused(const RecipeStep& step, std::span<const TensorView> parts) {
    SHARDSCOPE_ASSIGN(const size_t d, dimOf(parts[0], step.dim));
    SHARDSCOPE_ASSIGN(const QkvSizes sizes, qkvSizes(step));
    if (parts[0].shape()[d] % sizes.heads != 0) {
        return makeError(ErrorCode::usage, fmt::format("{} rows are not {} heads of one size",
                                                       parts[0].shape()[d], sizes.heads));
    }
    const int64_t headDim = parts[0].shape()[d] / sizes.heads, group = sizes.heads / sizes.kvHeads;
    const bool grouped = step.layout == RecipeStep::Layout::grouped;
    const int64_t outer = grouped ? sizes.kvHeads : 1;
    const Dims counts = grouped ? Dims{group, 1, 1} : Dims{sizes.heads, sizes.kvHeads, sizes.kvHeads};
    std::vector<TensorView> cut;
    for (size_t i = 0; i < parts.size(); ++i) {
        const int64_t rows = outer * counts[i] * headDim;
        if (parts[i].shape().size() <= d || parts[i].shape()[d] != rows) {
            return makeError(ErrorCode::usage, fmt::format("part {} is {}, not {} along dimension {}", i + 1,
                                                           formatDims(parts[i].shape()), rows, d));
        }
        SHARDSCOPE_ASSIGN(TensorView part, factored(parts[i], d, Dims{outer, counts[i], headDim}));
        cut.push_back(std::move(part));
    }
    SHARDSCOPE_ASSIGN(const TensorView whole, TensorView::concatenated(cut, static_cast<int>(d) + 1));
    return joined(whole, d, 3);
}

Result<std::vector<TensorView>> splitInto(const RecipeStep& step, const TensorView& view) {
    SHARDSCOPE_ASSIGN(const size_t d, dimOf(view, step.dim));
    const int64_t length = view.shape()[d];
    const auto count = static_cast<int64_t>(step.to.size());
    Dims sizes;
    int64_t total = 0;
    for (const StepNumber& number : step.sizes) {
        SHARDSCOPE_ASSIGN(const int64_t size, positive(number, "a size"));
        sizes.push_back(size);
        total += size;
    }
    if (sizes.empty()) {
        if (length % count != 0)
            return makeError(ErrorCode::usage,
                             fmt::format("dimension {} has {}, which is not {} equal parts", d, length, count));
        sizes.assign(step.to.size(), length / count);
        total = length;
    }
    if (total != length) {
        return makeError(ErrorCode::usage, fmt::format("dimension {} has {}, the sizes {} make {}", d, length,
                                                       fmt::join(sizes, " + "), total));
    }
    std::vector<TensorView> parts;
    int64_t at = 0;
    for (const int64_t size : sizes) {
        SHARDSCOPE_ASSIGN(TensorView part, view.narrowed(static_cast<int>(d), at, size));
        parts.push_back(std::move(part));
        at += size;
    }
    return parts;
}

// All results of a step for tensors that belong together.
Result<std::vector<TensorView>> made(const RecipeStep& step, std::span<const TensorView> parts) {
    using Kind = RecipeStep::Kind;
    const auto one = [](Result<TensorView> view) -> Result<std::vector<TensorView>> {
        if (!view.ok()) return std::move(view).error();
        return std::vector<TensorView>{std::move(view).value()};
    };
    switch (step.kind) {
        case Kind::transpose:
            return one(transposed(step, parts[0]));
        case Kind::reshape:
            return one(reshapedTo(step, parts[0]));
        case Kind::rope:
            return one(rotated(step, parts[0]));
        case Kind::split:
            return splitInto(step, parts[0]);
        case Kind::concatenate: {
            SHARDSCOPE_ASSIGN(const size_t d, dimOf(parts[0], step.dim));
            return one(TensorView::concatenated(parts, static_cast<int>(d)));
        }
        case Kind::fusedQkv:
            if (step.layout == RecipeStep::Layout::ranks) return one(ranksJoined(step, parts[0]));
            return step.from.size() > 1 ? one(fused(step, parts)) : unfused(step, parts[0]);
        case Kind::rename:
            break;
    }
    return makeError(ErrorCode::internal, "a step that makes nothing");
}

// ------------------------------------------------------------------ one step on all names

class StepRun {
  public:
    StepRun(const Catalog& source, const RecipeStep& step, StepState& state)
        : source_(source), step_(step), state_(state) {}

    Status run() {
        for (const std::string& text : step_.from) {
            try {
                patterns_.emplace_back(text, std::regex::ECMAScript | std::regex::optimize);
            } catch (const std::regex_error& e) {
                return fail(fmt::format("'{}' is not a regular expression: {}", text, e.what()));
            }
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
            if (name.size() > kLongestName) return;
            std::string out = std::regex_replace(name, patterns_[0], step_.to[0]);
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
            groups_, group(
                         state_.tensors.size(),
                         [&](size_t i) -> const std::string& { return state_.tensors[i].name; },
                         [&](size_t i) { return source_.role(state_.tensors[i].origin) == Role::optimizer; }));
        for (const Group& found : groups_) {
            for (size_t p = 0; p < found.members.size(); ++p) {
                if (found.members[p] != kMissing) continue;
                const auto present =
                    std::find_if(found.members.begin(), found.members.end(), [](size_t m) { return m != kMissing; });
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
                return fail(fmt::format("the optimizer state is kept by number ('{}'), so it cannot follow its "
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
            if (!found.match.suffix.empty() &&
                std::all_of(found.members.begin(), found.members.end(), [&](size_t m) { return single(m); })) {
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
                    return fail(part, fmt::format("it is {}, but '{}' is {}", dtypeName(source_.dtype(part.origin)),
                                                  base.name, dtypeName(source_.dtype(base.origin))));
                }
                if (!dtypeIsWholeBytes(source_.dtype(part.origin))) {
                    return fail(part, fmt::format("{} elements share bytes, so they keep their order",
                                                  dtypeName(source_.dtype(part.origin))));
                }
                parts.push_back(viewOf(part));
            }
            auto views = made(step_, parts);
            if (!views.ok()) return fail(base, views.error().message);
            if (views->size() != names.size())
                return fail(base, fmt::format("it gives {} tensors, {} names are given", views->size(), names.size()));
            if (step_.kind == RecipeStep::Kind::fusedQkv && step_.layout == RecipeStep::Layout::ranks)
                state_.putRight.insert(base.origin);
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
        SHARDSCOPE_ASSIGN(const std::vector<Group> groups,
                          group(
                              state_.objects.size(),
                              [&](size_t i) -> const std::string& { return state_.objects[i].name; },
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
            if (tensor.name.empty()) return fail(fmt::format("'{}' would lose its name", source_.name(tensor.origin)));
            const auto [it, fresh] = names.emplace(tensor.name, &tensor);
            if (!fresh) {
                return fail(fmt::format("'{}' (of '{}') and '{}' would both be called '{}'",
                                        source_.name(it->second->origin), formatDims(shapeOf(*it->second)),
                                        source_.name(tensor.origin), tensor.name));
            }
        }
        return {};
    }

    const Catalog& source_;
    const RecipeStep& step_;
    StepState& state_;
    std::vector<std::regex> patterns_;
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
