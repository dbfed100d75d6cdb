#include "formats/tensor_parallel/cuts.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/units.h"
#include "encoding/json_value.h"
#include "model/tp_layers.h"

namespace shardscope::tensor_parallel {

namespace {

constexpr int64_t kMostHeads = 1 << 20;

Error notKnown(std::string why) {
    return unsupported("how tensor-parallel ranks shard it is not known: " + std::move(why));
}

// All ranks' shards one behind the other.
Result<Cut> plainCut(const Shards& shards, int axis, uint32_t rank) {
    Cut cut{{axis, {}}, 0};
    const auto d = static_cast<size_t>(axis);
    for (uint32_t r = 0; r < shards.shapes.size(); ++r) {
        if (r == rank) cut.parts.push_back({0, shards.shapes[r][d], cut.whole});
        if (!checkedAdd(cut.whole, shards.shapes[r][d], cut.whole)) return notKnown("its size overflows");
    }
    return cut;
}

// As these programs cut: files of unequal parts are of several saves.
Result<Cut> evenCut(const Shards& shards, int axis, uint32_t rank) {
    const bool even =
        std::ranges::all_of(shards.shapes, [&](const Dims& s) { return s == shards.shapes[0]; });
    if (!even) return notKnown("the ranks' parts have different sizes");
    return plainCut(shards, axis, rank);
}

// Equal parts of each shard, each of which the ranks cut by itself: a gate and an up projection, experts.
Result<Cut> partsOf(const Shards& shards, int axis, int64_t count, uint32_t rank) {
    const auto d = static_cast<size_t>(axis);
    const int64_t local = shards.shapes[rank][d], world = static_cast<int64_t>(shards.shapes.size());
    const bool even = std::ranges::all_of(shards.shapes, [&](const Dims& s) { return s[d] == local; });
    int64_t whole = 0;
    if (!even || local % count != 0 || !checkedMul(local, world, whole))
        return notKnown(fmt::format("it is to hold {}, and its rows are not {} equal parts",
                                    count == 2 ? "a gate and an up projection" : "experts", count));
    const std::vector<int64_t> parts(static_cast<size_t>(count), whole / count);
    return Cut{RankCut::share(axis, parts, local * rank, local), whole};
}

}  // namespace

Cuts::Known Cuts::known(std::string_view name, size_t dimensions) {
    if (name.ends_with(".experts.w13_weight") && dimensions == 3) return {Kind::halves, 1};
    if (name.ends_with(".experts.w2_weight") && dimensions == 3) return {Kind::columns, 2};
    // Llama 4: experts one below the other, or their two projections in one.
    if (name.ends_with(".moe_w_in_eD_F") || name.ends_with(".moe_w_swiglu_eD_F") ||
        name.ends_with(".mlp.fc2_weight"))
        return {Kind::columns, 1};
    if (name.ends_with(".moe_w_out_eF_D")) return {Kind::experts};
    if (name.ends_with(".mlp.fc1_weight")) return {Kind::halves};
    const std::string_view leaf = takeLastPart(name), module = takeLastPart(name);
    if (module.find("norm") != module.npos || isAmong(module, {"ln_f", "ln_1", "ln_2", "router"}) ||
        isAmong(leaf, {"inv_freq", "freqs", "freqs_cis"}) || dimensions == 0)
        return {Kind::replicated};
    if (!isAmong(leaf, {"weight", "bias"}) && !(leaf == "scale" && dimensions == 2)) return {};
    const auto cut = tpCut(module, kRankFileNaming);
    if (!cut) return {};
    if (*cut == TpCut::vocabulary) return {Kind::vocabulary};
    if (dimensions > 2) return {};
    switch (*cut) {
        case TpCut::halves:
            return {Kind::halves};
        case TpCut::heads:
            return {Kind::heads};
        case TpCut::columns:
            return dimensions < 2 ? Known{Kind::replicated} : Known{Kind::columns, 1};
        case TpCut::rows:
        case TpCut::vocabulary:
            break;
    }
    return {Kind::rows};
}

// Where `gate` is half of a gated projection (routers are `router`), and the experts are one tensor.
Cuts::Known Cuts::knownOfTensorRt(std::string_view name, size_t dimensions) const {
    if (dimensions == 3) {
        if (name.ends_with(".mlp.fc.weight")) return {Kind::halves, 1};
        if (name.ends_with(".mlp.proj.weight")) return {Kind::columns, 2};
    }
    if (dimensions <= 2 && (name.ends_with(".mlp.gate.weight") || name.ends_with(".mlp.gate.bias")))
        return {Kind::rows};
    return known(name, dimensions);
}

// [q, k, v] of each rank. Where there are fewer heads of keys than ranks, several ranks have the same one.
Result<Cut> Cuts::headsOf(int64_t ranks, uint32_t rank) const {
    const int64_t heads = sizes_.heads, keys = sizes_.keyHeads, size = sizes_.headSize;
    if (heads < 1 || keys < 1 || size < 1 || heads > kMostHeads || keys > kMostHeads || size > kMostHeads)
        return notKnown("it holds query, key and value, and nothing states how ranks share their heads");
    if (heads % ranks != 0 || (keys % ranks != 0 && ranks % keys != 0))
        return notKnown(fmt::format("{} of queries and {} of keys do not divide among {}",
                                    counted(heads, "head"), keys, counted(ranks, "rank")));
    const int64_t keysHere = std::max<int64_t>(1, keys / ranks), q = heads / ranks * size,
                  k = keysHere * size;
    const int64_t firstKey = keys >= ranks ? rank * keysHere : rank / (ranks / keys);
    Cut cut{{0, {{0, q, rank * q}}}, (heads + 2 * keys) * size};
    for (int64_t v = 0; v < 2; ++v)
        cut.parts.push_back({q + v * k, k, (heads + v * keys + firstKey) * size});
    return cut;
}

Result<RankCut> Cuts::ofWhole(std::string_view name, DimSpan shape, uint32_t ranks, uint32_t rank,
                              bool columns) const {
    const Known how = known(name, shape.size());
    if (how.kind == Kind::unknown) return notKnown("its name is not one of those that are known");
    if (how.kind == Kind::replicated || ranks == 1) return RankCut{};
    const bool wide = columns && name == "tok_embeddings.weight";
    const size_t axis = wide ? 1 : static_cast<size_t>(how.axis);
    if (axis >= shape.size()) return notKnown("it has other dimensions than its name says");
    const int64_t whole = shape[axis], fused = how.kind == Kind::halves ? 2 : 1;
    if (how.kind == Kind::heads) {
        SHARDSCOPE_ASSIGN(Cut cut, headsOf(ranks, rank));
        if (cut.whole != whole)
            return notKnown("its rows are not those of the heads that config.json states");
        return RankCut{cut.axis, std::move(cut.parts)};
    }
    if (whole % (fused * ranks) != 0)
        return makeError(ErrorCode::impossible,
                         fmt::format("dimension {} of {} does not divide among {}", axis,
                                     counted(whole, "element"), counted(ranks, "tensor-parallel rank")));
    const std::vector<int64_t> parts(static_cast<size_t>(fused), whole / fused);
    return RankCut::share(static_cast<int>(axis), parts, whole / ranks * rank, whole / ranks);
}

Result<Cut> Cuts::headsIn(const Shards& shards, uint32_t rank) const {
    SHARDSCOPE_ASSIGN(Cut cut, headsOf(static_cast<int64_t>(shards.shapes.size()), rank));
    const int64_t rows = cut.parts.back().from + cut.parts.back().length;
    if (!std::ranges::all_of(shards.shapes, [&](const Dims& s) { return s[0] == rows; }))
        return notKnown("its rows are not those of the heads that config.json states");
    return cut;
}

// Whether more ranks with the same parts would make one of the sizes that the configuration states.
bool Cuts::lacksWidth(const Shards& shards, uint32_t halves) const {
    // Shared experts and images have widths of their own.
    if (shards.name.find("shared") != std::string_view::npos ||
        shards.name.find("vis") != std::string_view::npos)
        return false;
    const auto cut = of(shards, 0);
    if (!cut.ok() || cut->axis < 0 || cut->experts > 0) return false;
    const auto world = static_cast<int64_t>(shards.shapes.size());
    const int64_t whole = cut->whole / halves, part = whole / world;
    const auto stated = [&](int64_t size) { return size == whole; };
    return part > 0 && std::ranges::none_of(sizes_.widths, stated) &&
           std::ranges::any_of(sizes_.widths, [&](int64_t w) { return w > whole && w % part == 0; });
}

bool Cuts::lacksParts(const Shards& shards) const {
    std::string_view rest = shards.name;
    takeLastPart(rest);
    const std::string_view module = takeLastPart(rest);
    if (isAmong(module, {"w1", "w2", "gate_proj", "down_proj"})) return lacksWidth(shards, 1);
    if (module == "gate_up_proj") return lacksWidth(shards, 2);
    const bool embedding = isAmong(module, {"embed_tokens", "tok_embeddings", "vocab_embedding", "embed"});
    if (!embedding || shards.shapes[0].size() != 2 || shards.shapes[0][1] < 1) return false;
    // Llama 2's is cut along its columns.
    const int64_t columns = shards.shapes[0][1];
    if (module == "tok_embeddings" && sizes_.hidden % columns == 0 &&
        sizes_.hidden / columns > static_cast<int64_t>(shards.shapes.size()))
        return true;
    if (sizes_.vocabulary == 0) return false;
    const auto cut = of(shards, 0);
    return cut.ok() && (cut->axis == 0 ? cut->whole : shards.shapes[0][0]) < sizes_.vocabulary;
}

Result<Cut> Cuts::of(const Shards& shards, uint32_t rank) const {
    const Dims& local = shards.shapes[rank];
    for (const TpRule& rule : stated_) {
        if (!rule.pattern.matches(shards.name)) continue;
        if (rule.axis < 0 || static_cast<size_t>(rule.axis) >= local.size()) return Cut{};
        return plainCut(shards, rule.axis, rank);
    }
    if (shards.shapes.size() == 1) return Cut{};
    if (!trusted_) {
        if (shards.same == true) return Cut{};
        return notKnown(
            "nothing says that the files are of tensor-parallel ranks (a config.json with 'mapping')");
    }
    const Known how =
        sizes_.ranks > 0 ? knownOfTensorRt(shards.name, local.size()) : known(shards.name, local.size());
    if (how.kind != Kind::unknown && static_cast<size_t>(how.axis) >= local.size() && !local.empty())
        return notKnown("it has other dimensions than its name says");
    const bool experts = local.size() == 3 && (how.kind == Kind::halves || how.kind == Kind::columns);
    const int64_t groups = experts ? expertGroups(shards) : 1;
    if (groups == 1) return cutAs(how, shards, rank);
    const auto world = static_cast<int64_t>(shards.shapes.size());
    if (groups == world) return plainCut(shards, 0, rank);
    // Rank r has the experts of group r % groups, and of them the part that is its own among those ranks.
    const bool even = std::ranges::all_of(shards.shapes, [&](const Dims& s) { return s[0] == local[0]; });
    int64_t all = 0;
    if (world % groups != 0 || !even || !checkedMul(local[0], groups, all))
        return notKnown(fmt::format("{} do not divide among {} of experts",
                                    counted(static_cast<uint64_t>(world), "rank"),
                                    counted(static_cast<uint64_t>(groups), "group")));
    Shards mine{shards.name, {}, {}};
    const auto group = rank % static_cast<uint32_t>(groups);
    for (size_t r = group; r < shards.shapes.size(); r += static_cast<size_t>(groups))
        mine.shapes.push_back(shards.shapes[r]);
    SHARDSCOPE_ASSIGN(Cut cut, cutAs(how, mine, rank / static_cast<uint32_t>(groups)));
    cut.experts = all;
    cut.firstExpert = local[0] * group;
    return cut;
}

int64_t Cuts::expertGroups(const Shards& shards) const {
    if (sizes_.ranks > 0) return std::max<int64_t>(1, sizes_.expertRanks);
    int64_t all = 0;
    for (const Dims& shape : shards.shapes)
        if (!checkedAdd(all, shape[0], all)) return 1;
    const bool split = shards.shapes[0][0] < sizes_.experts && all == sizes_.experts;
    return split ? static_cast<int64_t>(shards.shapes.size()) : 1;
}

Result<Cut> Cuts::cutAs(Known how, const Shards& shards, uint32_t rank) const {
    const Dims& local = shards.shapes[rank];
    const auto world = static_cast<int64_t>(shards.shapes.size());
    switch (how.kind) {
        case Kind::replicated:
            return Cut{};
        case Kind::rows:
        case Kind::columns:
            return evenCut(shards, how.axis, rank);
        case Kind::halves:
            return partsOf(shards, how.axis, 2, rank);
        case Kind::experts:
            if (sizes_.experts == 0) return notKnown("it holds experts, and nothing states how many");
            return partsOf(shards, 0, sizes_.experts, rank);
        case Kind::heads:
            return headsIn(shards, rank);
        case Kind::vocabulary: {
            // Llama 2 cuts the other dimension of the embedding.
            const bool wide = local.size() == 2 && sizes_.hidden > 0;
            if (wide && local[1] != sizes_.hidden && local[1] == sizes_.hidden / world)
                return evenCut(shards, 1, rank);
            if (sizes_.vocabulary > 0 ? local[0] >= sizes_.vocabulary : shards.same == true) return Cut{};
            return evenCut(shards, 0, rank);
        }
        case Kind::unknown:
            break;
    }
    if (shards.same == true) return Cut{};
    return notKnown("its name is not one of those that are known");
}

}  // namespace shardscope::tensor_parallel
