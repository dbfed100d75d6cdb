#include "encoding/dtensor.h"

#include <algorithm>

#include <fmt/format.h>

#include "encoding/torch_tensor.h"
#include "model/mesh.h"

namespace shardscope::torch_save {

namespace {

constexpr size_t kMaxAxes = 16;
constexpr int64_t kMaxRanks = 1 << 20;    // of a mesh
constexpr int64_t kMaxWorld = 1'000'000;  // higher ranks do not count

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

// Piece `index` of `count` of the interval that `box` has along `dim`.
Status cut(Box& box, int64_t dim, int64_t count, int64_t index) {
    if (dim < 0) dim += static_cast<int64_t>(box.lengths.size());
    if (dim < 0 || dim >= static_cast<int64_t>(box.lengths.size()))
        return malformed(fmt::format("it is sharded along dimension {} of {}", dim, box.lengths.size()));
    const auto d = static_cast<size_t>(dim);
    const Span1 piece = splitPiece(box.lengths[d], static_cast<uint32_t>(count), static_cast<uint32_t>(index),
                                   SplitRule::torch);
    box.offsets[d] += piece.offset;
    box.lengths[d] = piece.length;
    return {};
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
    return {name == "Shard" ? Kind::shard : Kind::stridedShard, *dim};
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
        return malformed(
            fmt::format("{} placements on a mesh of {} axes", spec.placements.size(), spec.mesh.size()));
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

Result<Box> localBox(const DTensorSpec& spec, DimSpan shape) {
    using Kind = DTensorSpec::Placement::Kind;
    if (!spec.coordinate) return unsupported("the rank is not part of the tensor's mesh");
    Box box{Dims(shape.size(), 0), Dims(shape.begin(), shape.end())};
    const auto cutBy = [&](size_t axis) {
        return cut(box, spec.placements[axis].dim, spec.mesh[axis], (*spec.coordinate)[axis]);
    };
    for (const auto& placement : spec.placements) {
        if (placement.kind == Kind::partial)
            return unsupported("its parts are partial sums, which have to be added, not joined");
        if (placement.kind == Kind::other) return unsupported("its placement is not known");
    }
    if (spec.order) {
        for (const auto& [dim, axes] : *spec.order) {
            for (int64_t axis : axes)
                SHARDSCOPE_TRY(cut(box, dim, spec.mesh[static_cast<size_t>(axis)],
                                   (*spec.coordinate)[static_cast<size_t>(axis)]));
        }
        return box;
    }
    for (const Kind kind : {Kind::shard, Kind::stridedShard}) {
        for (size_t axis = 0; axis < spec.mesh.size(); ++axis) {
            if (spec.placements[axis].kind == kind) SHARDSCOPE_TRY(cutBy(axis));
        }
    }
    return box;
}

}  // namespace shardscope::torch_save
