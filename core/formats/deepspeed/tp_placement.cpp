#include "formats/deepspeed/tp_placement.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/units.h"
#include "model/tp_layers.h"

namespace shardscope::deepspeed {

namespace {

constexpr int kAveraged = -2;
constexpr int64_t kMostRuns = 1 << 16;  // of one shard

bool anyMatches(const std::vector<RegularExpression>& patterns, std::string_view name) {
    return std::ranges::any_of(patterns, [&](const RegularExpression& p) { return p.matchesWhole(name); });
}

// Layers whose input is cut, by their usual names.
bool isRowParallel(std::string_view name) {
    if (!isAmong(takeLastPart(name), {"weight", "bias"})) return false;
    const std::string_view module = takeLastPart(name);
    return tpCut(module, kAnyNaming) == TpCut::columns || isAmong(module, {"c_proj", "fc_out"});
}

bool isNorm(std::string_view name) {
    return name.find("norm") != name.npos || name.find("ln_") != name.npos || name.find("ln.") != name.npos;
}

// Why parts of these sizes cannot be cut one by one; empty where they can.
std::string misfitOf(const std::vector<int64_t>& widths, int64_t whole, int64_t degree) {
    int64_t sum = 0;
    for (int64_t width : widths) {
        if (width < 0 || width % degree != 0 || !checkedAdd(sum, width, sum))
            return fmt::format("one of its parts has {}, which {} cannot share", counted(width, "row"),
                               counted(degree, "rank"));
    }
    if (sum == whole) return {};
    return fmt::format("its parts have {} in all, the ranks hold {}", counted(sum, "row"), countText(whole));
}

}  // namespace

Result<TpPlacement> TpPlacement::read(const Entries& states, const OpenOptions& options) {
    TpPlacement out;
    SHARDSCOPE_ASSIGN(out.stated_, tpRulesOf(options));
    const auto patterns = [&](const char* name, std::vector<RegularExpression>& into) {
        const std::string full = fmt::format("universal_checkpoint_info.{}", name);
        out.hasPatterns_ = out.hasPatterns_ || static_cast<bool>(states[full]);
        out.addPatterns(textsIn(states[full]), into);
    };
    patterns("tp_replicated_parameter_patterns", out.replicated_);
    patterns("parameter_to_average_patterns", out.averaged_);
    patterns("parameter_with_row_parallelism_patterns", out.rows_);
    patterns("parameter_with_2_sub_params_cat_dim_0", out.halves_);
    patterns("vocabulary_parameter_patterns", out.vocabulary_);
    out.addSubShapes(states["universal_checkpoint_info.parameter_with_sub_params"]);
    return out;
}

TpPlacement::Pattern TpPlacement::patternOf(std::string_view name) const {
    return {anyMatches(rows_, name) ? 1 : 0, anyMatches(halves_, name) ? 2 : 1,
            !anyMatches(replicated_, name) && !anyMatches(averaged_, name), anyMatches(vocabulary_, name)};
}

// Python's re.match: at the start of the name, not to its end.
void TpPlacement::addPatterns(const std::vector<std::string>& texts,
                              std::vector<RegularExpression>& patterns) {
    for (const std::string& text : texts) {
        auto pattern = RegularExpression::parse(fmt::format("(?:{})(?s:.*)", text));
        if (pattern.ok()) {
            patterns.push_back(std::move(pattern).value());
        } else {
            refused_.push_back(text);
        }
    }
}

// SubparamShape(patterns, shape, partition_dim): the dimension that is cut is a tuple of the sizes of the
// parts, each of which is cut by itself.
void TpPlacement::addSubShapes(ValueView list) {
    for (const ValueView about : list.items()) {
        const ValueView names = about["patterns"];
        const std::vector<ValueView> sizes = about["shape"].items();
        const auto dim = about["partition_dim"].integer();
        if (!names.isList() || !dim || *dim < 0 || *dim >= std::ssize(sizes)) continue;
        SubShape sub;
        sub.axis = static_cast<int>(*dim);
        for (const ValueView part : sizes[static_cast<size_t>(*dim)].items())
            sub.widths.push_back(part.integer().value_or(-1));
        addPatterns(textsIn(names), sub.patterns);
        hasPatterns_ = true;
        subShapes_.push_back(std::move(sub));
    }
}

void TpPlacement::learnWidth(const std::vector<TpShards>& all) {
    std::map<int64_t, size_t> widths;
    for (const TpShards& shards : all) {
        if (!shards.shapes[0] || shards.shapes[0]->size() != 1 || shards.buffer) continue;
        if (shards.same.value_or(isNorm(shards.name))) ++widths[shards.shapes[0]->front()];
    }
    const auto most = std::ranges::max_element(widths, {}, [](const auto& w) { return w.second; });
    width_ = most == widths.end() ? 0 : most->first;
}

int TpPlacement::axisOf(const TpShards& shards) const {
    const Dims* local = nullptr;
    for (const auto& shape : shards.shapes) {
        if (!shape) continue;
        if (!local) local = &*shape;
        // Shards of different sizes show where they were cut.
        if (shape->size() != local->size()) return TpRule::kReplicated;
        for (size_t d = 0; d < shape->size(); ++d) {
            if ((*shape)[d] != (*local)[d]) return static_cast<int>(d);
        }
    }
    for (const TpRule& rule : stated_) {
        if (rule.pattern.matches(shards.name))
            return std::min(rule.axis, static_cast<int>(local->size()) - 1);
    }
    if (local->empty() || shards.buffer) return TpRule::kReplicated;
    const int last = static_cast<int>(local->size()) - 1;
    if (hasPatterns_) {
        if (anyMatches(replicated_, shards.name)) return TpRule::kReplicated;
        if (anyMatches(averaged_, shards.name)) return kAveraged;
        for (const SubShape& sub : subShapes_) {
            if (anyMatches(sub.patterns, shards.name)) return std::min(sub.axis, last);
        }
        return anyMatches(rows_, shards.name) ? std::min(1, last) : 0;
    }
    if (shards.same == true) return TpRule::kReplicated;
    if (last == 0) {
        const bool whole = !shards.same && (isNorm(shards.name) || isRowParallel(shards.name));
        return whole ? TpRule::kReplicated : 0;
    }
    if (!shards.same && isNorm(shards.name)) return TpRule::kReplicated;
    if (last == 1 && width_ > 0 && ((*local)[0] == width_) != ((*local)[1] == width_))
        return (*local)[0] == width_ ? 1 : 0;
    return isRowParallel(shards.name) ? 1 : 0;
}

// The parts of the whole dimension that are cut one by one.
std::vector<int64_t> TpPlacement::widthsOf(std::string_view name, int axis, int64_t whole) const {
    std::vector<int64_t> widths = {whole};
    if (axis == 0 && anyMatches(halves_, name)) widths = {whole / 2, whole - whole / 2};
    for (const SubShape& sub : subShapes_) {
        if (sub.axis == axis && !sub.widths.empty() && anyMatches(sub.patterns, name)) widths = sub.widths;
    }
    return widths;
}

Placement TpPlacement::place(const TpShards& shards) const {
    const size_t degree = shards.shapes.size();
    const auto known =
        std::ranges::find_if(shards.shapes, [](const auto& shape) { return shape.has_value(); });
    Placement out;
    out.shards.assign(degree, {0, {}});
    out.whole = **known;
    const int axis = degree > 1 ? axisOf(shards) : TpRule::kReplicated;
    if (axis < 0) {
        for (size_t t = 0; t < degree; ++t) {
            if (shards.shapes[t] == *known && (axis != kAveraged || t == 0)) out.shards[t] = {};
        }
        return out;
    }
    const auto d = static_cast<size_t>(axis);
    // Of a rank whose file is missing: as the others.
    const auto lengthOf = [&](size_t t) { return shards.shapes[t].value_or(**known)[d]; };
    int64_t whole = 0;
    for (size_t t = 0; t < degree; ++t)
        whole = std::min(whole + lengthOf(t), kMaxDim);
    out.whole[d] = whole;
    const std::vector<int64_t> widths = widthsOf(shards.name, axis, whole);
    if (widths.size() > 1) {
        out.refused = misfitOf(widths, whole, static_cast<int64_t>(degree));
        const int64_t outer = elementCount(std::span(out.whole).first(d));
        if (out.refused.empty() && outer > kMostRuns / static_cast<int64_t>(widths.size()))
            out.refused = fmt::format("{} for each of {} are more than are read",
                                      counted(widths.size(), "part"), counted(outer, "row"));
        if (!out.refused.empty()) return out;
    }
    int64_t before = 0;
    for (size_t t = 0; t < degree; ++t) {
        // Those of a fused one have been found to divide.
        const int64_t length =
            widths.size() > 1 ? whole / static_cast<int64_t>(degree) : std::min(lengthOf(t), whole - before);
        out.shards[t] = RankCut::share(axis, widths, before, length);
        before += length;
    }
    return out;
}

}  // namespace shardscope::deepspeed
