// What of a parameter each rank of mp_rank_* directories holds: the files do not say it, names and sizes do.
//
// Source: megatron/core/transformer/moe/experts.py (GroupedMLP: weight1, weight2), ssm/mamba_mixer.py and
// ssm/gated_delta_net.py of megatron-core 0.16.
#include <algorithm>
#include <numeric>

#include "base/checked.h"
#include "base/option_words.h"
#include "base/rule.h"
#include "formats/megatron/legacy.h"

namespace shardscope::megatron {

namespace {

constexpr int64_t kMostExperts = 1 << 14;  // of a layer

bool isExpert(std::string_view name) {
    return name.find(".experts.") != name.npos;
}
bool isGroupedFirst(std::string_view name) {
    return name.ends_with(".experts.weight1");
}
bool isGroupedSecond(std::string_view name) {
    return name.ends_with(".experts.weight2");
}

// The name of a layer with a state, by what stands before this parameter of it.
std::optional<std::string_view> stateLayerOf(std::string_view name, std::string_view& leaf) {
    for (const std::string_view end :
         {"in_proj.weight", "in_proj.bias", "in_proj.layer_norm_weight", "in_proj.layer_norm_bias",
          "conv1d.weight", "conv1d.bias", "out_proj.weight", "out_proj.bias", "out_norm.weight",
          "norm.weight", "A_log", "D", "dt_bias"}) {
        if (!name.ends_with(end) || name.size() == end.size()) continue;
        const std::string_view before = name.substr(0, name.size() - end.size());
        if (!before.ends_with('.')) continue;
        leaf = end;
        return before;
    }
    return std::nullopt;
}

}  // namespace

const Dims* LegacyOpener::localShape(const std::string& name) {
    const auto found = byName_.find(name);
    return found == byName_.end() ? nullptr : &stored(parameters_[found->second].shards[0]).shape;
}

// The second layer takes half of what the first one gives; the args count where shapes do not tell.
bool LegacyOpener::isGated(const std::string& name) {
    const Dims* first = localShape(name);
    const Dims* second = localShape(secondLayerOf(name));
    if (first && second && first != second && !first->empty() && second->size() == 2) {
        if ((*first)[0] == 2 * (*second)[1]) return true;
        if ((*first)[0] == (*second)[1]) return false;
    }
    return args_.isTrue("swiglu");
}

// How a parameter of Mamba or of a gated delta net is cut. `belongs`: it is one of such a layer.
std::optional<LayerCut> LegacyOpener::stateLayerCutOf(const std::string& name, bool& belongs) {
    std::string_view leaf;
    const auto before = stateLayerOf(name, leaf);
    if (!before) return std::nullopt;
    const auto shapeOf = [&](const char* end) { return localShape(std::string(*before) + end); };
    const Dims* heads = shapeOf("A_log");
    belongs = heads != nullptr;
    const Dims* projection = shapeOf("in_proj.weight");
    const Dims* convolution = shapeOf("conv1d.weight");
    const Dims* out = shapeOf("out_proj.weight");
    if (!projection || !convolution || !out || !heads || projection->empty() || convolution->empty() ||
        out->size() != 2 || heads->size() != 1)
        return std::nullopt;
    return stateLayerCut(
        leaf, {(*projection)[0], (*convolution)[0], (*out)[1], (*heads)[0], shapeOf("D") != nullptr});
}

bool LegacyOpener::differAmongRanks(const Parameter& parameter) {
    const Shard& first = parameter.shards[0];
    return !std::ranges::all_of(parameter.shards, [&](const Shard& other) {
        return assembly_.files().equal(first.rank->model, first.tensor, other.rank->model, other.tensor) ==
               true;
    });
}

// Experts in one tensor: those of an expert-parallel rank stand behind those of the one before.
bool LegacyOpener::placeGrouped(Parameter& parameter, const Dims& local) {
    const bool first = isGroupedFirst(parameter.name);
    if ((!first && !isGroupedSecond(parameter.name)) || local.size() != 2) return false;
    if (sizes_.ep == 1 && parameter.degree == 1) return true;
    const size_t axis = first ? 1 : 0;
    const int64_t all = args_.integer("num_experts").value_or(0), each = all / sizes_.ep;
    std::string second = parameter.name;
    second.back() = '2';
    const Dims* other = localShape(second);
    const bool gated = first && other && local[1] == 2 * (*other)[0];
    const bool fits = each > 0 && all <= kMostExperts && all % sizes_.ep == 0 &&
                      local[axis] % (gated ? 2 * each : each) == 0 &&
                      (!first || (other && local[0] * each % all == 0));
    parameter.cut = Cut::rows;
    parameter.experts = std::max<int64_t>(each, 1);
    if (parameter.degree > 1 && !fits)
        parameter.refused = "its shape and num_experts in the args do not say how many experts it holds";
    parameter.grouped = parameter.refused.empty();
    if (gated) parameter.parts.assign(2, local[1] / 2);
    const int64_t shards = int64_t{parameter.degree} * (parameter.grouped ? sizes_.ep : 1);
    int64_t& length = parameter.whole[parameter.grouped ? axis : 0];
    if (!checkedMul(length, shards, length)) parameter.cut.reset();
    return true;
}

LayerCut LegacyOpener::cutByName(Parameter& parameter, const Dims& local) {
    if (local.empty()) return {};
    bool stateLayer = false;
    auto known = stateLayerCutOf(parameter.name, stateLayer);
    if (!stateLayer) {
        if (const auto cut = cutOf(parameter.name, local.size(), isGated(parameter.name)))
            known = LayerCut{*cut, {}};
    }
    if (!known) {
        if (parameter.degree == 1 || !differAmongRanks(parameter)) return {};
        parameter.refused =
            stateLayer ? "it is of a layer whose fused projections are not known" : "its name is not known";
        return {Cut::rows, {}};
    }
    if (known->cut == Cut::gateUp) known->parts = {local[0] / 2, local[0] - local[0] / 2};
    const auto& parts = known->parts;
    const bool halves = known->cut != Cut::gateUp || parts[0] == parts[1];
    if (!parts.empty() && (!halves || std::accumulate(parts.begin(), parts.end(), int64_t{0}) != local[0]))
        parameter.refused = "the parts of its projection do not make its rows";
    return *known;
}

// Shards on ranks of equal tensor-parallel number are copies of each other.
void LegacyOpener::choosePlacement(Parameter& parameter) {
    const Dims local = stored(parameter.shards[0]).shape;
    parameter.whole = local;
    parameter.cut = Cut::none;
    parameter.byExpertRanks = isExpert(parameter.name);
    parameter.degree = parameter.byExpertRanks ? etp_ : sizes_.tp;
    const auto rule = std::ranges::find_if(
        stated_, [&](const TpRule& r) { return r.pattern.matches(pathName(parameter.path)); });
    if (rule == stated_.end() && placeGrouped(parameter, local)) return;
    LayerCut cut;
    if (rule != stated_.end()) {
        // It speaks of all tensor-parallel ranks.
        parameter.byExpertRanks = false;
        parameter.degree = sizes_.tp;
        parameter.axis = rule->axis;
        if (rule->axis != TpRule::kReplicated && static_cast<size_t>(rule->axis) < local.size())
            cut.cut = Cut::columns;
    } else if (parameter.degree > 1) {
        cut = cutByName(parameter, local);
        parameter.axis = cut.cut == Cut::columns ? 1 : 0;
    }
    if (parameter.degree == 1 || cut.cut == Cut::none) return;
    parameter.cut = cut.cut;
    if (parameter.refused.empty()) parameter.parts = std::move(cut.parts);
    int64_t& length = parameter.whole[static_cast<size_t>(parameter.axis)];
    if (!checkedMul(length, int64_t{parameter.degree}, length)) parameter.cut.reset();
}

std::vector<CutBox> LegacyOpener::boxesOf(const Parameter& parameter, const Dims& local,
                                          const RankFiles& rank) const {
    if (parameter.grouped) return groupedBoxes(parameter, local, rank);
    if (parameter.cut == Cut::none) return RankCut{}.boxes(local);
    const int64_t held = local[static_cast<size_t>(parameter.axis)];
    std::vector<int64_t> parts = parameter.parts.empty() ? std::vector{held} : parameter.parts;
    for (int64_t& part : parts)
        part *= parameter.degree;
    const int64_t index = parameter.byExpertRanks ? rank.etp : rank.tp;
    return RankCut::share(parameter.axis, parts, held * index, held).boxes(local);
}

// weight1 is [hidden, experts * ffn] and weight2 [experts * ffn, hidden]; their elements are those of
// [experts, hidden, ffn] and [experts, ffn, hidden], so experts are flat ranges of both, and ranks cut `ffn`.
std::vector<CutBox> LegacyOpener::groupedBoxes(const Parameter& parameter, const Dims& local,
                                               const RankFiles& rank) const {
    const int64_t held = elementCount(local), degree = parameter.degree, experts = parameter.experts;
    const Dims zeros(2, 0);
    std::vector<CutBox> parts;
    const auto addFlat = [&](int64_t start, int64_t first, int64_t count) {
        parts.push_back({zeros, zeros, parameter.whole, FlatRange{start, start + count}, first});
    };
    if (degree == 1) {
        addFlat(held * rank.ep, 0, held);
    } else if (isGroupedSecond(parameter.name)) {
        const int64_t each = held / experts;
        for (int64_t e = 0; e < experts; ++e)
            addFlat(((rank.ep * experts + e) * degree + rank.etp) * each, e * each, each);
    } else {
        // Of [experts, hidden, ffn] every row is cut. A row of weight1 is as many of those rows as there are
        // experts, one behind the other, so a rank has a box for each of them; two with a gate.
        const int64_t all = experts * sizes_.ep, rows = experts * local[0] / all, width = local[1] / experts;
        const int64_t halves = parameter.parts.empty() ? 1 : 2, length = width / halves;
        for (int64_t k = 0; k < all * halves; ++k) {
            const int64_t row = k / halves, half = k % halves;
            parts.push_back({zeros,
                             {rank.ep * rows, (k * degree + rank.etp) * length},
                             {rows, length},
                             std::nullopt,
                             row * width + half * length,
                             {all * width, 1}});
        }
    }
    return parts;
}

// A tensor that is not what the ranks' shards make is known, and has no elements.
bool LegacyOpener::refused(const Parameter& parameter, const Path& path, DType dtype, Role role) {
    if (parameter.refused.empty()) return false;
    const std::string name = pathName(path);
    if (!refused_.insert(name).second) return true;
    assembly_.addTensor(path, dtype, parameter.whole, role);
    assembly_.note(rule::layoutFused, Severity::error,
                   "how tensor-parallel ranks shard it is not known: " + parameter.refused +
                       fmt::format(". It is not put together; {} states it, where each rank has one part",
                                   commandOption("tp-dim", "'GLOB=DIM'")),
                   contents(parameter.shards[0].rank->model).name, name);
    return true;
}

}  // namespace shardscope::megatron
