#include "encoding/dtensor.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/units.h"
#include "encoding/torch_tensor.h"
#include "model/mesh.h"

namespace shardscope::torch_save {

namespace {

constexpr size_t kMaxAxes = 16;
constexpr int64_t kMaxRanks = 1 << 20;    // of a mesh
constexpr int64_t kMaxWorld = 1'000'000;  // higher ranks do not count
constexpr int64_t kMostBoxes = 1 << 16;   // of a tensor on one rank

Error malformed(std::string what) {
    return damaged("a sharded tensor in the pickle is malformed: " + std::move(what));
}

bool isSequence(const ValueGraph& g, NodeId node) {
    return node != kNoNode && (g.kind(node) == ValueKind::tuple || g.kind(node) == ValueKind::list);
}

std::span<const NodeId> itemsOf(const ValueGraph& g, NodeId node) {
    return isSequence(g, node) ? g.items(node) : std::span<const NodeId>();
}

std::optional<int64_t> integerOf(const ValueGraph& g, NodeId node) {
    if (node == kNoNode || g.kind(node) != ValueKind::integer) return std::nullopt;
    return g.integer(node);
}

// An integer, or a sequence of integers; nullopt for anything else.
std::optional<Dims> integersOf(const ValueGraph& g, NodeId node) {
    if (const auto one = integerOf(g, node)) return Dims{*one};
    if (!isSequence(g, node)) return std::nullopt;
    Dims all;
    for (NodeId item : g.items(node)) {
        const auto value = integerOf(g, item);
        if (!value) return std::nullopt;
        all.push_back(*value);
    }
    return all;
}

// The first of several names that attributes had in different versions of torch.
NodeId attributeOf(const ValueGraph& g, NodeId object, std::initializer_list<std::string_view> names) {
    for (const std::string_view name : names) {
        if (const NodeId found = torch_save::attributeOf(g, object, name); found != kNoNode) return found;
    }
    return kNoNode;
}

// The sizes of the mesh's axes: torch 2.9 and later state a layout, older ones a tensor of ranks.
Result<Dims> meshShape(const ValueGraph& g, NodeId mesh) {
    if (const NodeId layout = attributeOf(g, mesh, {"_layout"}); layout != kNoNode) {
        Dims shape;
        if (const NodeId axes = attributeOf(g, layout, {"axes"}); axes != kNoNode) {
            for (NodeId axis : itemsOf(g, axes)) {
                const auto sizes = integersOf(g, attributeOf(g, axis, {"shape"}));
                if (!sizes) return malformed("an axis of its mesh has no size");
                int64_t size = 1;
                for (int64_t part : *sizes) {
                    if (part < 1 || part > kMaxRanks || size > kMaxRanks / part)
                        return malformed("an axis of its mesh is out of range");
                    size *= part;
                }
                shape.push_back(size);
            }
            return shape;
        }
        if (const auto sizes = integersOf(g, attributeOf(g, layout, {"shape"}))) return *sizes;
        return malformed("the layout of its mesh has no shape");
    }
    const NodeId ranks = attributeOf(g, mesh, {"mesh", "_mesh"});
    if (ranks == kNoNode) return malformed("its mesh states no shape");
    SHARDSCOPE_ASSIGN(const auto tensor, asTorchTensor(g, ranks));
    if (!tensor) return malformed("the ranks of its mesh are not a tensor");
    return tensor->shape;
}

using Runs = std::vector<Span1>;  // of one dimension, in the order in which the local tensor has them

bool isShard(const DTensorSpec::Placement& placement) {
    using Kind = DTensorSpec::Placement::Kind;
    return placement.kind == Kind::shard || placement.kind == Kind::stridedShard;
}

int64_t lengthOf(const Runs& runs) {
    return std::accumulate(runs.begin(), runs.end(), int64_t{0},
                           [](int64_t sum, const Span1& run) { return sum + run.length; });
}

// Appends elements [first, first + length) of what `runs` list; `at` and `passed` (the elements of the runs
// before) go on from call to call.
void appendPart(const Runs& runs, int64_t first, int64_t length, size_t& at, int64_t& passed, Runs& out) {
    while (length > 0) {
        while (passed + runs[at].length <= first)
            passed += runs[at++].length;
        const int64_t skipped = first - passed;
        const int64_t taken = std::min(length, runs[at].length - skipped);
        const int64_t offset = runs[at].offset + skipped;
        if (!out.empty() && out.back().offset + out.back().length == offset)
            out.back().length += taken;
        else
            out.push_back({offset, taken});
        first += taken;
        length -= taken;
    }
}

Span1 torchPiece(int64_t length, int64_t count, int64_t index) {
    return splitPiece(length, static_cast<uint32_t>(count), static_cast<uint32_t>(index), SplitRule::torch);
}

// Piece `index` of `count` of each of `groups` parts.
Result<Runs> cut(const Runs& runs, int64_t groups, int64_t count, int64_t index) {
    if (count == 1) return runs;
    const int64_t length = lengthOf(runs);
    groups = std::min(groups, std::max<int64_t>(length, 1));  // more are empty
    if (groups > kMostBoxes)
        return unsupported(
            fmt::format("its strided shard has {}, more than are read", counted(groups, "group")));
    Runs out;
    size_t at = 0;
    int64_t passed = 0;
    for (int64_t g = 0; g < groups; ++g) {
        const Span1 group = torchPiece(length, groups, g), piece = torchPiece(group.length, count, index);
        appendPart(runs, group.offset + piece.offset, piece.length, at, passed, out);
    }
    // An empty piece has a place, too.
    if (out.empty()) out.push_back({runs.front().offset + torchPiece(length, count, index).offset, 0});
    return out;
}

// The axes that shard one dimension.
class DimensionCuts {
  public:
    DimensionCuts(const DTensorSpec& spec, int64_t dim) : spec_(spec) {
        for (size_t axis = 0; axis < spec.mesh.size(); ++axis) {
            if (isShard(spec.placements[axis]) && spec.placements[axis].dim == dim) axes_.push_back(axis);
        }
    }

    Result<Runs> runs(int64_t length) const {
        Runs out{{0, length}};
        for (const Step& step : steps()) {
            SHARDSCOPE_ASSIGN(out,
                              cut(out, step.groups, spec_.mesh[step.axis], (*spec_.coordinate)[step.axis]));
        }
        return out;
    }

  private:
    struct Step {
        size_t axis = 0;
        int64_t groups = 1;
    };

    std::vector<Step> steps() const {
        if (auto order = spec_.literal ? std::nullopt : orderOfAxes()) return std::move(*order);
        std::vector<Step> asTheyStand;
        for (const size_t axis : axes_)
            asTheyStand.push_back({axis, spec_.placements[axis].groups});
        return asTheyStand;
    }

    // The order in which the axes cut, where strided shards say that: an axis that cuts after others to its
    // right has as many groups as these have parts. The groups of the last axis are those of a fused
    // projection, which it cuts before FSDP2 cuts what is left on the rank.
    std::optional<std::vector<Step>> orderOfAxes() const {
        std::vector<Step> order;
        for (size_t a = axes_.size(); a-- > 0;) {
            const int64_t groups = spec_.placements[axes_[a]].groups;
            size_t place = 0;
            int64_t parts = 1;
            while (parts != groups && place < order.size())
                parts *= spec_.mesh[order[place++].axis];
            if (parts != groups && !order.empty()) return std::nullopt;
            order.insert(order.begin() + static_cast<ptrdiff_t>(place),
                         {axes_[a], parts == groups ? 1 : groups});
        }
        return order;
    }

    const DTensorSpec& spec_;
    std::vector<size_t> axes_;
};

// Refuses what has no place, and counts dimensions from the first one.
Status normalize(DTensorSpec& spec, size_t dims) {
    using Kind = DTensorSpec::Placement::Kind;
    for (auto& placement : spec.placements) {
        if (placement.kind == Kind::partial)
            return unsupported("its parts are partial sums, which have to be added, not joined");
        if (placement.kind == Kind::other) return unsupported("its placement is not known");
        if (placement.kind == Kind::replicate) continue;
        const auto rank = static_cast<int64_t>(dims);
        if (placement.dim < -rank || placement.dim >= rank)
            return malformed(fmt::format("it is sharded along dimension {} of {}", placement.dim, rank));
        if (placement.dim < 0) placement.dim += rank;
        if (placement.groups < 1) return malformed("a strided shard has no groups");
    }
    return {};
}

// A stated order, as the runs of each dimension.
Status cutInOrder(const DTensorSpec& spec, std::vector<Runs>& runs) {
    for (const auto& [dim, axes] : *spec.order) {
        if (dim < 0 || dim >= static_cast<int64_t>(runs.size()))
            return malformed(fmt::format("it is sharded along dimension {} of {}", dim, runs.size()));
        for (int64_t a : axes) {
            const auto axis = static_cast<size_t>(a);
            Runs& cutNow = runs[static_cast<size_t>(dim)];
            SHARDSCOPE_ASSIGN(cutNow, cut(cutNow, 1, spec.mesh[axis], (*spec.coordinate)[axis]));
        }
    }
    return {};
}

// Every combination of a run of each dimension.
Result<LocalParts> combine(const std::vector<Runs>& runs) {
    LocalParts out;
    int64_t count = 1;
    for (const Runs& all : runs) {
        out.shape.push_back(lengthOf(all));
        if (!checkedMul(count, static_cast<int64_t>(all.size()), count) || count > kMostBoxes)
            return unsupported(
                fmt::format("its strided shards have more than {}", counted(kMostBoxes, "box")));
    }
    std::vector<size_t> at(runs.size(), 0);
    Dims local(runs.size(), 0);
    for (;; --count) {
        LocalBox& box = out.boxes.emplace_back();
        box.localOffsets = local;
        for (size_t d = 0; d < runs.size(); ++d) {
            box.globalOffsets.push_back(runs[d][at[d]].offset);
            box.lengths.push_back(runs[d][at[d]].length);
        }
        if (count == 1) return out;
        size_t d = runs.size() - 1;
        for (; at[d] + 1 == runs[d].size(); --d) {
            at[d] = 0;
            local[d] = 0;
        }
        local[d] += runs[d][at[d]++].length;
    }
}

}  // namespace

NodeId attributeOf(const ValueGraph& g, NodeId object, std::string_view name) {
    if (object == kNoNode || g.kind(object) != ValueKind::object) return kNoNode;
    const NodeId state = g.object(object).state;
    if (state == kNoNode) return kNoNode;
    if (g.kind(state) != ValueKind::tuple) return g.find(state, name);
    for (NodeId part : g.items(state)) {
        if (const NodeId found = g.find(part, name); found != kNoNode) return found;
    }
    return kNoNode;
}

std::string_view classOf(const ValueGraph& g, NodeId node) {
    if (node == kNoNode || g.kind(node) != ValueKind::object) return {};
    const NodeId callable = g.object(node).callable;
    return callable != kNoNode && g.kind(callable) == ValueKind::global ? g.globalName(callable)
                                                                        : std::string_view();
}

DTensorSpec::Placement asPlacement(const ValueGraph& g, NodeId node) {
    using Kind = DTensorSpec::Placement::Kind;
    const std::string_view name = classOf(g, node);
    if (name == "Replicate") return {Kind::replicate, 0};
    if (name.ends_with("Partial")) return {Kind::partial, 0};
    if (name != "Shard" && name != "_StridedShard") return {};
    std::optional<int64_t> dim = integerOf(g, attributeOf(g, node, "dim"));
    if (const auto args = g.argumentsOf(node); !dim && !args.empty()) dim = integerOf(g, args[0]);
    if (!dim) return {};
    if (name == "Shard") return {Kind::shard, *dim};
    auto groups = integerOf(g, attributeOf(g, node, "split_factor"));
    if (const auto args = g.argumentsOf(node); !groups && args.size() > 1) groups = integerOf(g, args[1]);
    if (!groups) return {};
    return {Kind::stridedShard, *dim, *groups};
}

Result<DTensorSpec> asDTensorSpec(const ValueGraph& g, NodeId node) {
    DTensorSpec spec;
    const NodeId mesh = attributeOf(g, node, "mesh");
    if (mesh == kNoNode) return malformed("a DTensor without a mesh");
    SHARDSCOPE_ASSIGN(spec.mesh, meshShape(g, mesh));
    int64_t size = 1;
    for (int64_t axis : spec.mesh) {
        if (axis < 1 || axis > kMaxRanks || size > kMaxRanks / axis)
            return malformed("its mesh is out of range");
        size *= axis;
    }
    for (NodeId placement : itemsOf(g, attributeOf(g, node, "placements")))
        spec.placements.push_back(asPlacement(g, placement));
    if (spec.mesh.empty() || spec.mesh.size() > kMaxAxes || spec.placements.size() != spec.mesh.size()) {
        return malformed(fmt::format("{} on a mesh of {}", counted(spec.placements.size(), "placement"),
                                     counted(spec.mesh.size(), "axis")));
    }
    for (NodeId name : itemsOf(g, attributeOf(g, mesh, {"_mesh_dim_names", "mesh_dim_names"}))) {
        if (g.kind(name) == ValueKind::text) spec.axes.emplace_back(g.text(name));
    }
    if (spec.axes.size() != spec.mesh.size()) spec.axes.clear();
    spec.coordinate = integersOf(g, attributeOf(g, mesh, "_coordinate_on_dim"));
    if (spec.coordinate) {
        if (spec.coordinate->size() != spec.mesh.size())
            return malformed("its coordinate is not one of its mesh");
        for (size_t i = 0; i < spec.mesh.size(); ++i) {
            if ((*spec.coordinate)[i] < 0 || (*spec.coordinate)[i] >= spec.mesh[i])
                return malformed("its coordinate is outside of its mesh");
        }
    }
    // A sub-mesh lists the ranks of its root (torch 2.9 and later) or its own.
    spec.rank = integerOf(g, attributeOf(g, mesh, "_rank"));
    if (const auto ranks = integersOf(g, attributeOf(g, mesh, {"_flatten_rank_map", "_flatten_mesh_list"}))) {
        for (int64_t rank : *ranks)
            spec.world = std::max(spec.world, rank < kMaxWorld ? rank + 1 : 0);
        spec.ascending = std::is_sorted(ranks->begin(), ranks->end());
        if (!spec.rank && spec.coordinate && ranks->size() == static_cast<size_t>(size)) {
            int64_t index = 0;
            for (size_t i = 0; i < spec.mesh.size(); ++i)
                index = index * spec.mesh[i] + (*spec.coordinate)[i];
            spec.rank = (*ranks)[static_cast<size_t>(index)];
        }
    }
    const NodeId asOrder = attributeOf(g, node, "use_strided_shard_as_shard_order");
    spec.literal = asOrder != kNoNode && g.kind(asOrder) == ValueKind::boolean && !g.boolean(asOrder);
    if (const NodeId order = attributeOf(g, node, "shard_order"); isSequence(g, order)) {
        spec.order.emplace();
        for (NodeId entry : g.items(order)) {
            const auto fields = g.kind(entry) == ValueKind::object ? g.argumentsOf(entry) : itemsOf(g, entry);
            const auto dim = fields.size() == 2 ? integerOf(g, fields[0]) : std::nullopt;
            const auto axes = dim ? integersOf(g, fields[1]) : std::nullopt;
            if (!axes) return malformed("the order of its shards cannot be read");
            for (int64_t axis : *axes) {
                if (axis < 0 || axis >= static_cast<int64_t>(spec.mesh.size()))
                    return malformed("the order of its shards names an axis that its mesh does not have");
            }
            spec.order->emplace_back(*dim, *axes);
        }
    }
    return spec;
}

Result<int64_t> worldOfShards(const ValueGraph& g, NodeId metadata) {
    int64_t world = 0;
    for (NodeId listed : itemsOf(g, attributeOf(g, metadata, "shards_metadata"))) {
        const NodeId offsets = attributeOf(g, listed, "shard_offsets");
        const NodeId sizes = attributeOf(g, listed, "shard_sizes");
        if (offsets == kNoNode || sizes == kNoNode) return malformed("a listed shard has no box");
        SHARDSCOPE_TRY(asDims(g, offsets, "the offsets of a shard"));
        SHARDSCOPE_TRY(asDims(g, sizes, "the size of a shard"));
        const int64_t rank = rankOfShard(g, listed).value_or(-1);
        if (rank < kMaxWorld) world = std::max(world, rank + 1);
    }
    return world;
}

std::optional<int64_t> rankOfShard(const ValueGraph& g, NodeId shard) {
    return integerOf(g, attributeOf(g, attributeOf(g, shard, "placement"), "_rank"));
}

Result<LocalParts> localParts(const DTensorSpec& stated, DimSpan shape) {
    using Kind = DTensorSpec::Placement::Kind;
    if (!stated.coordinate) return unsupported("the rank is not part of the tensor's mesh");
    DTensorSpec spec = stated;
    SHARDSCOPE_TRY(normalize(spec, shape.size()));
    const bool strided = std::ranges::any_of(
        spec.placements, [](const auto& placement) { return placement.kind == Kind::stridedShard; });
    std::vector<Runs> runs;
    for (size_t d = 0; d < shape.size(); ++d) {
        runs.push_back({{0, shape[d]}});
        if (spec.order && !strided) continue;
        SHARDSCOPE_ASSIGN(runs.back(), DimensionCuts(spec, static_cast<int64_t>(d)).runs(shape[d]));
    }
    if (spec.order && !strided) SHARDSCOPE_TRY(cutInOrder(spec, runs));
    return combine(runs);
}

}  // namespace shardscope::torch_save
