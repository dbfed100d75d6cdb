#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "encoding/torch_scaled.h"
#include "encoding/torch_walk.h"

namespace shardscope::torch_save {

namespace {

using Json = nlohmann::json;

// The function that makes an object, and its arguments.
struct Call {
    std::string_view module, name;
    std::span<const NodeId> args;
};
Call callOf(const ValueGraph& g, NodeId node) {
    if (g.kind(node) != ValueKind::object) return {};
    const ValueObject& object = g.object(node);
    if (object.callable == kNoNode || g.kind(object.callable) != ValueKind::global) return {};
    return {g.globalModule(object.callable), g.globalName(object.callable), g.argumentsOf(node)};
}

Error bad(std::string what) {
    return damaged("a tensor in the pickle is malformed: " + std::move(what));
}

// A part that must be a dense tensor.
Status addPart(const ValueGraph& g, NodeId node, std::string name, Special& special) {
    SHARDSCOPE_ASSIGN(auto tensor, asTorchTensor(g, node));
    if (!tensor) return bad(fmt::format("its {} is not a dense tensor", name));
    special.parts.push_back({std::move(name), std::move(*tensor), {}});
    return {};
}

// torch.serialization._get_layout("torch.sparse_coo") or the bare global: "sparse_coo".
std::string layoutName(const ValueGraph& g, NodeId node) {
    std::string_view name;
    if (const Call call = callOf(g, node);
        call.name == "_get_layout" && call.args.size() == 1 && g.kind(call.args[0]) == ValueKind::text) {
        name = g.text(call.args[0]);
    } else if (g.kind(node) == ValueKind::global) {
        name = g.globalName(node);
    }
    if (name.starts_with("torch.")) name.remove_prefix(6);
    return std::string(name);
}

std::string torchDtype(const ValueGraph& g, NodeId node) {
    return g.kind(node) == ValueKind::global ? std::string(g.globalName(node)) : std::string();
}

Result<Special> sparse(const ValueGraph& g, std::span<const NodeId> args) {
    if (args.size() != 2 || g.kind(args[1]) != ValueKind::tuple)
        return bad("a sparse tensor is made of other arguments than (layout, data)");
    Special special;
    special.about.kind = layoutName(g, args[0]);
    const std::span<const NodeId> data = g.items(args[1]);
    const bool coo = special.about.kind == "sparse_coo";
    const bool byColumn = special.about.kind == "sparse_csc" || special.about.kind == "sparse_bsc";
    if (!coo && !byColumn && special.about.kind != "sparse_csr" && special.about.kind != "sparse_bsr") {
        return bad("its sparse layout is not known");
    }
    if (coo ? data.size() < 3 || data.size() > 4 : data.size() != 4) {
        return bad(fmt::format("a {} tensor has {}", special.about.kind, counted(data.size(), "part")));
    }
    if (coo) {
        SHARDSCOPE_TRY(addPart(g, data[0], "indices", special));
        SHARDSCOPE_TRY(addPart(g, data[1], "values", special));
    } else {
        SHARDSCOPE_TRY(addPart(g, data[0], byColumn ? "ccol_indices" : "crow_indices", special));
        SHARDSCOPE_TRY(addPart(g, data[1], byColumn ? "row_indices" : "col_indices", special));
        SHARDSCOPE_TRY(addPart(g, data[2], "values", special));
    }
    SHARDSCOPE_ASSIGN(special.about.shape, asDims(g, data[coo ? 2 : 3], "the size"));
    special.about.dtype = dtypeName(special.parts.back().tensor.dtype);
    if (coo && data.size() == 4 && g.kind(data[3]) == ValueKind::boolean) {
        special.about.detail = Json{{"coalesced", g.boolean(data[3])}}.dump();
    }
    return special;
}

Result<Special> quantized(const ValueGraph& g, std::span<const NodeId> args) {
    if (args.size() != 7 || g.kind(args[4]) != ValueKind::tuple || g.items(args[4]).size() < 3) {
        return bad("_rebuild_qtensor has other arguments than it takes");
    }
    Special special;
    special.about.kind = "quantized";
    TorchTensor data;
    SHARDSCOPE_ASSIGN(data.storage, asTorchStorage(g, args[0]));
    if (!data.storage.dtype) return bad("a quantized tensor without a storage type");
    if (g.kind(args[1]) != ValueKind::integer || g.integer(args[1]) < 0)
        return bad("the storage offset is not a non-negative integer");
    data.storageOffset = g.integer(args[1]);
    SHARDSCOPE_ASSIGN(data.shape, asDims(g, args[2], "the size"));
    SHARDSCOPE_ASSIGN(data.strides, asDims(g, args[3], "the stride"));
    if (data.shape.size() != data.strides.size()) return bad("sizes and strides differ in number");
    for (size_t i = 0; i < data.shape.size(); ++i) {
        if (data.shape[i] < 0 || data.strides[i] < 0) return bad("a size or stride is negative");
    }
    special.about.shape = data.shape;
    special.about.dtype = dtypeName(*data.storage.dtype);
    std::string partName = "int_repr";
    switch (*data.storage.dtype) {
        case DType::qint8:
            data.dtype = DType::int8;
            break;
        case DType::qint32:
            data.dtype = DType::int32;
            break;
        case DType::quint4x2:
        case DType::quint2x4:
            // Several values in a byte: what can be shown is the storage as it is.
            data.dtype = DType::uint8;
            data.storageOffset = 0;
            data.shape = {static_cast<int64_t>(data.storage.elements)};
            data.strides = {1};
            partName = "packed";
            break;
        default:
            data.dtype = DType::uint8;
    }
    special.parts.push_back({std::move(partName), std::move(data), {}});

    const std::span<const NodeId> params = g.items(args[4]);
    Json detail;
    detail["qscheme"] = "torch." + torchDtype(g, params[0]);
    if (params.size() == 4) {
        SHARDSCOPE_TRY(addPart(g, params[1], "scales", special));
        SHARDSCOPE_TRY(addPart(g, params[2], "zero_points", special));
        if (g.kind(params[3]) == ValueKind::integer) detail["axis"] = g.integer(params[3]);
    } else {
        if (g.kind(params[1]) == ValueKind::real) detail["scale"] = g.real(params[1]);
        if (g.kind(params[2]) == ValueKind::integer) detail["zero_point"] = g.integer(params[2]);
    }
    special.about.detail = detail.dump(-1, ' ', true, Json::error_handler_t::replace);
    return special;
}

// "S(0)", "R", "P", as torch prints placements.
std::string placementText(const ValueGraph& g, NodeId node) {
    using Kind = DTensorSpec::Placement::Kind;
    const std::string_view name = classOf(g, node);
    const DTensorSpec::Placement placement = asPlacement(g, node);
    if (name.empty()) return "?";
    if (placement.kind == Kind::replicate) return "R";
    if (name == "Partial" || name == "_Partial") return "P";
    if (placement.kind != Kind::shard && placement.kind != Kind::stridedShard) return std::string(name);
    if (placement.kind == Kind::shard) return fmt::format("S({})", placement.dim);
    return fmt::format("_S({}, {})", placement.dim, placement.groups);
}

std::string placements(const ValueGraph& g, NodeId spec) {
    if (spec == kNoNode || g.kind(spec) != ValueKind::object || g.object(spec).state == kNoNode) return {};
    const NodeId all = g.find(g.object(spec).state, "placements");
    if (all == kNoNode || (g.kind(all) != ValueKind::tuple && g.kind(all) != ValueKind::list)) return {};
    Json list = Json::array();
    for (NodeId placement : g.items(all))
        list.push_back(placementText(g, placement));
    return Json{{"placements", list}}.dump(-1, ' ', true, Json::error_handler_t::replace);
}

// Size and dtype of _rebuild_wrapper_subclass(cls, dtype, size, ...).
Status wrapperShape(const ValueGraph& g, std::span<const NodeId> args, Special& special) {
    if (args.size() < 3) return bad("_rebuild_wrapper_subclass has too few arguments");
    special.about.dtype = torchDtype(g, args[1]);
    SHARDSCOPE_ASSIGN(special.about.shape, asDims(g, args[2], "the size"));
    return {};
}

// Shards name ranks of the group that holds the tensor, which is a part of all ranks under HYBRID_SHARD. Who
// wrote them stands beside the shards (torch/distributed/_shard/sharded_tensor/api.py, ProcessGroupState).
void takeProcessGroup(const ValueGraph& g, std::span<const NodeId> parts, TensorPlacement& placement) {
    for (const NodeId part : parts) {
        const NodeId rank = attributeOf(g, part, "global_rank"),
                     world = attributeOf(g, part, "global_world_size");
        if (rank == kNoNode || world == kNoNode || g.kind(rank) != ValueKind::integer ||
            g.kind(world) != ValueKind::integer)
            continue;
        if (g.integer(rank) < 0 || g.integer(rank) >= g.integer(world)) continue;
        placement.rank = g.integer(rank);
        placement.world = std::max(placement.world, g.integer(world));
    }
}

// The shards of a ShardedTensor: objects whose attributes hold a `tensor`, and `metadata` with its place. The
// state is (local shards, metadata, process group, sharding spec, rrefs); the metadata knows the whole size.
Status addShards(const ValueGraph& g, NodeId state, Special& special) {
    std::vector<NodeId> parts;
    if (g.kind(state) == ValueKind::tuple || g.kind(state) == ValueKind::list) {
        parts.assign(g.items(state).begin(), g.items(state).end());
    } else {
        for (const char* name : {"_local_shards", "_metadata"}) {
            if (const NodeId part = g.find(state, name); part != kNoNode) parts.push_back(part);
        }
    }
    for (NodeId part : parts) {
        if (attributeOf(g, part, "shards_metadata") != kNoNode) {
            SHARDSCOPE_ASSIGN(special.placement.world, worldOfShards(g, part));
        }
        if (const NodeId size = attributeOf(g, part, "size");
            size != kNoNode && special.about.shape.empty()) {
            SHARDSCOPE_ASSIGN(special.about.shape, asDims(g, size, "the size of a ShardedTensor"));
        }
        if (g.kind(part) != ValueKind::list) continue;
        for (NodeId shard : g.items(part)) {
            if (g.kind(shard) != ValueKind::object) continue;
            const NodeId tensor = attributeOf(g, shard, "tensor");
            if (tensor == kNoNode) continue;
            SHARDSCOPE_TRY(addPart(g, tensor, fmt::format("shard{}", special.parts.size()), special));
            special.about.dtype = dtypeName(special.parts.back().tensor.dtype);
            const NodeId about = attributeOf(g, shard, "metadata");
            special.placement.rank = rankOfShard(g, about);
            const NodeId offsets = attributeOf(g, about, "shard_offsets");
            if (offsets == kNoNode) continue;
            SHARDSCOPE_ASSIGN(special.parts.back().shardOffsets, asDims(g, offsets, "the place of a shard"));
        }
    }
    takeProcessGroup(g, parts, special.placement);
    return {};
}

Result<Special> fromType(const ValueGraph& g, std::span<const NodeId> args) {
    if (args.size() != 4 || g.kind(args[2]) != ValueKind::tuple)
        return bad("_rebuild_from_type_v2 has other arguments than it takes");
    Special special;
    const std::string_view function =
        g.kind(args[0]) == ValueKind::global ? g.globalName(args[0]) : std::string_view();
    const std::string_view type =
        g.kind(args[1]) == ValueKind::global ? g.globalName(args[1]) : std::string_view();
    const std::span<const NodeId> inner = g.items(args[2]);
    if (function == "_rebuild_wrapper_subclass") SHARDSCOPE_TRY(wrapperShape(g, inner, special));
    // A state may come as (dict or None, slots): the one with the attributes.
    NodeId state = args[3];
    if (g.kind(state) == ValueKind::tuple && type != "ShardedTensor") {
        for (NodeId part : g.items(args[3])) {
            if (g.isMapping(part) && (!g.isMapping(state) || !g.pairs(part).empty())) state = part;
        }
    }

    if (type == "DTensor") {
        special.about.kind = "dtensor";
        const NodeId local = g.find(state, "_local_tensor");
        if (local == kNoNode) return bad("a DTensor without its local tensor");
        SHARDSCOPE_TRY(addPart(g, local, "local", special));
        const NodeId spec = g.find(state, "_spec");
        special.about.detail = placements(g, spec);
        // What cannot be interpreted is shown as it is, without a place.
        if (auto read = asDTensorSpec(g, spec); read.ok())
            special.placement.dtensor = std::move(read).value();
        return special;
    }
    if (type == "ShardedTensor") {
        special.about.kind = "sharded_tensor";
        SHARDSCOPE_TRY(addShards(g, state, special));
        return special;
    }
    if (function == "_rebuild_njt") {
        special.about.kind = "nested";
        special.about.detail = Json{{"layout", "torch.jagged"}}.dump();
        const NodeId values = inner.empty() ? kNoNode : g.find(inner[0], "values");
        const NodeId fallback = inner.empty() ? kNoNode : g.find(inner[0], "_values");
        if (values == kNoNode && fallback == kNoNode) return bad("a jagged tensor without values");
        SHARDSCOPE_TRY(addPart(g, values == kNoNode ? fallback : values, "values", special));
        special.about.dtype = dtypeName(special.parts.back().tensor.dtype);
        return special;
    }
    special.about.kind = "subclass";
    special.about.detail =
        Json{{"class", std::string(type)}}.dump(-1, ' ', true, Json::error_handler_t::replace);
    const std::span<const NodeId> attributes = g.pairs(state);
    for (size_t i = 0; i + 1 < attributes.size(); i += 2) {
        if (g.kind(attributes[i]) != ValueKind::text || !isTensorLike(g, attributes[i + 1])) continue;
        auto tensor = asTorchTensor(g, attributes[i + 1]);
        if (tensor.ok() && *tensor)
            special.parts.push_back({std::string(g.text(attributes[i])), std::move(**tensor), {}});
    }
    return special;
}

// The class of Transformer Engine that makes the object: what it pickles is CLASS._make_in_reduce_ex(...).
std::string_view scaledClass(const ValueGraph& g, NodeId node) {
    if (g.kind(node) != ValueKind::object || g.object(node).callable == kNoNode) return {};
    const Call get = callOf(g, g.object(node).callable);
    if (get.name != "getattr" || get.args.size() != 2 || !g.isText(get.args[1], "_make_in_reduce_ex") ||
        g.kind(get.args[0]) != ValueKind::global ||
        !g.globalModule(get.args[0]).starts_with("transformer_engine"))
        return {};
    return g.globalName(get.args[0]);
}

// A member of an enumeration: of pybind11, whose state is its number, or of Python.
std::optional<int64_t> enumMember(const ValueGraph& g, NodeId node) {
    if (g.kind(node) != ValueKind::object) return std::nullopt;
    NodeId number = g.object(node).state;
    const std::span<const NodeId> args = g.argumentsOf(node);
    if (number == kNoNode && args.size() == 1) number = args[0];
    if (number == kNoNode || g.kind(number) != ValueKind::integer) return std::nullopt;
    return g.integer(number);
}

// Where its arguments are.
struct ScaledLayout {
    std::string_view name;
    size_t values, scales, type;
    int64_t blockRows, blockColumns;  // 0 = one scale for all
};
constexpr ScaledLayout kScaledLayouts[] = {{"Float8Tensor", 0, 2, 1, 0, 0},
                                           {"MXFP8Tensor", 0, 1, 4, 1, 32},
                                           {"Float8BlockwiseQTensor", 0, 1, 4, 128, 128}};

// Scales of blocks are padded for the kernels: those that count.
Status withoutPadding(const ScaledLayout& layout, const TorchTensor& values, TorchTensor& scales) {
    if (layout.blockRows == 0) {
        if (elementCount(scales.shape) == 1) return {};
    } else if (values.shape.size() == 2 && scales.shape.size() == 2) {
        const auto blocks = [](int64_t length, int64_t block) {
            return length / block + (length % block != 0 ? 1 : 0);
        };
        const Dims needed{blocks(values.shape[0], layout.blockRows),
                          blocks(values.shape[1], layout.blockColumns)};
        if (needed[0] <= scales.shape[0] && needed[1] <= scales.shape[1]) {
            scales.shape = needed;
            return {};
        }
    }
    return bad(fmt::format("its scales {} do not fit its values {}", formatDims(scales.shape),
                           formatDims(values.shape)));
}

}  // namespace

bool isScaled(const ValueGraph& g, NodeId node) {
    return !scaledClass(g, node).empty();
}

// Sources: transformer_engine, pytorch/tensor/float8_tensor.py, mxfp8_tensor.py, float8_blockwise_tensor.py
// (__reduce_ex__); common/include/transformer_engine/transformer_engine.h (NVTEDType: E4M3 is 6, since kInt16
// was added 7).
Result<ScaledTensor> asScaled(const ValueGraph& g, NodeId node) {
    const std::string_view name = scaledClass(g, node);
    std::span<const NodeId> args = g.argumentsOf(node);
    const auto layout = std::ranges::find(kScaledLayouts, name, &ScaledLayout::name);
    const auto unknown = [&](std::string_view what) {
        return unsupported(fmt::format("it is a {} of Transformer Engine {}", name, what));
    };
    if (layout == std::end(kScaledLayouts)) return unknown("that is not known");
    if (layout->blockRows > 1 && !args.empty() && !isTensorLike(g, args[0])) args = args.subspan(1);
    if (args.size() < 4 || args.size() <= layout->type) return unknown("with other arguments than it takes");
    // The last switch: whether scales are for squares (blockwise), or in the order of a kernel (MXFP8).
    for (const NodeId arg : args) {
        if (g.kind(arg) == ValueKind::boolean && g.boolean(arg) != (layout->blockRows > 1))
            return unknown("whose scales are in an order for its kernels");
    }
    // Weights are E4M3 in all recipes of Transformer Engine, so that both numbers of it are told apart.
    const auto type = enumMember(g, args[layout->type]);
    if (type != 6 && type != 7) return unknown("whose values are not E4M3");
    SHARDSCOPE_ASSIGN(auto values, asTorchTensor(g, args[layout->values]));
    SHARDSCOPE_ASSIGN(auto scales, asTorchTensor(g, args[layout->scales]));
    if (!values || !scales) return unknown("without its values in the order of rows");
    if (values->dtype != DType::uint8) return unknown("whose values are not stored as bytes");
    if (scales->dtype != (layout->blockRows == 1 ? DType::uint8 : DType::float32))
        return unknown("with scales of another dtype than it has");
    SHARDSCOPE_TRY(withoutPadding(*layout, *values, *scales));
    values->dtype = DType::float8E4M3FN;
    if (layout->blockRows == 1) scales->dtype = DType::float8E8M0FNU;
    return ScaledTensor{*std::move(values), *std::move(scales)};
}

bool isTensorLike(const ValueGraph& g, NodeId node) {
    if (g.kind(node) == ValueKind::persistent) {
        const NodeId id = g.items(node)[0];
        return g.kind(id) == ValueKind::tuple && !g.items(id).empty() && g.isText(g.items(id)[0], "storage");
    }
    if (isScaled(g, node)) return true;
    const Call call = callOf(g, node);
    if (call.module == "torch._utils" && call.name.starts_with("_rebuild_")) return true;
    if (call.module == "torch._tensor" && call.name.starts_with("_rebuild_from_type")) return true;
    if (g.kind(node) != ValueKind::object || g.object(node).made != ValueObject::Made::newObject)
        return false;
    if (call.name == "Parameter" && (call.module == "torch.nn.parameter" || call.module == "torch.nn"))
        return true;
    return (call.module == "torch" || call.module == "torch.cuda") && call.name.ends_with("Tensor");
}

Result<Special> asSpecial(const ValueGraph& g, NodeId node) {
    Special special;
    if (g.kind(node) == ValueKind::persistent) {
        TorchTensor bytes;
        SHARDSCOPE_ASSIGN(bytes.storage, asTorchStorage(g, node));
        bytes.dtype = bytes.storage.dtype.value_or(DType::uint8);
        bytes.shape = {static_cast<int64_t>(bytes.storage.viewElements.value_or(bytes.storage.elements))};
        bytes.strides = {1};
        bytes.storageOffset = static_cast<int64_t>(bytes.storage.viewOffset);
        special.about.kind = "storage";
        special.about.dtype = dtypeName(bytes.dtype);
        special.about.shape = bytes.shape;
        special.parts.push_back({"data", std::move(bytes), {}});
        return special;
    }
    const Call call = callOf(g, node);
    if (call.module == "torch._tensor") return fromType(g, call.args);
    // torch 1.13 and older have a function of their own for CSR, of the same arguments.
    if (call.name == "_rebuild_sparse_tensor" || call.name == "_rebuild_sparse_csr_tensor")
        return sparse(g, call.args);
    if (call.name == "_rebuild_qtensor") return quantized(g, call.args);
    if (call.name == "_rebuild_nested_tensor") {
        if (call.args.size() != 4) return bad("_rebuild_nested_tensor has other arguments than it takes");
        special.about.kind = "nested";
        special.about.detail = Json{{"layout", "torch.strided"}}.dump();
        SHARDSCOPE_TRY(addPart(g, call.args[0], "values", special));
        special.about.dtype = dtypeName(special.parts.back().tensor.dtype);
        return special;
    }
    if (call.name == "_rebuild_meta_tensor_no_storage") {
        if (call.args.size() != 4)
            return bad("_rebuild_meta_tensor_no_storage has other arguments than it takes");
        special.about.kind = "meta";
        special.about.dtype = torchDtype(g, call.args[0]);
        SHARDSCOPE_ASSIGN(special.about.shape, asDims(g, call.args[1], "the size"));
        return special;
    }
    special.about.kind = "subclass";
    special.warning = fmt::format("it is made by {}.{}, which is not known", call.module, call.name);
    if (call.name == "_rebuild_parameter" || call.name == "_rebuild_parameter_with_state") {
        // A Parameter around one of the others.
        if (!call.args.empty() && isTensorLike(g, call.args[0]) &&
            !callOf(g, call.args[0]).name.starts_with("_rebuild_parameter")) {
            return asSpecial(g, call.args[0]);
        }
        special.warning = "it is a Parameter around something that is not a tensor";
    }
    return special;
}

}  // namespace shardscope::torch_save
