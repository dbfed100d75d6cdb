#include "encoding/dtensor_pickler.h"

#include <map>

namespace shardscope {

namespace {

constexpr std::string_view kSpecModule = "torch.distributed.tensor._dtensor_spec";
constexpr std::string_view kLayoutModule = "torch.distributed._mesh_layout";

using PlacementKind = torch_save::DTensorSpec::Placement::Kind;

}  // namespace

void DTensorPickler::integers(DimSpan values) {
    out_.beginTuple(values.size());
    for (const int64_t value : values)
        out_.integer(value);
    out_.endTuple(values.size());
}

// cls.__new__(cls); what is put into it follows.
void DTensorPickler::object(std::string_view module, std::string_view name) {
    out_.memoGlobal(module, name);
    out_.emptyTuple();
    out_.newObject();
}

void DTensorPickler::tensor(DType dtype, DimSpan shape, DimSpan local, size_t key, uint64_t bytes,
                            const std::vector<Placement>& all) {
    const Dims strides = rowMajorStrides(shape);
    out_.memoGlobal("torch._tensor", "_rebuild_from_type_v2");
    out_.mark();
    out_.memoGlobal("torch._utils", "_rebuild_wrapper_subclass");
    out_.memoGlobal("torch.distributed.tensor", "DTensor");
    out_.mark();
    out_.memoGlobal("torch.distributed.tensor", "DTensor");
    out_.memoGlobal("torch", dtypeName(dtype));
    integers(shape);
    integers(strides);
    out_.integer(0);  // storage offset
    out_.memoGlobal("torch.serialization", "_get_layout");
    out_.memoText("torch.strided");
    out_.tuple1();
    out_.reduce();
    out_.memoGlobal("torch", "device");
    out_.memoText("cpu");
    out_.tuple1();
    out_.reduce();
    out_.boolean(false);  // requires_grad
    out_.tuple();
    // The state: (None, attributes).
    out_.none();
    out_.emptyDict();
    out_.mark();
    out_.memoText("_local_tensor");
    archive_.tensor(dtype, local, key, bytes);
    out_.memoText("_spec");
    object(kSpecModule, "DTensorSpec");
    out_.emptyDict();
    out_.mark();
    out_.memoText("mesh");
    mesh();
    out_.memoText("placements");
    placements(all);
    out_.memoText("tensor_meta");
    out_.memoGlobal(kSpecModule, "TensorMeta");
    out_.memoGlobal("torch", "Size");
    integers(shape);
    out_.tuple1();
    out_.reduce();
    integers(strides);
    out_.memoGlobal("torch", dtypeName(dtype));
    out_.tuple3();
    out_.newObject();
    out_.memoText("shard_order");
    shardOrder(all);
    out_.memoText("use_strided_shard_as_shard_order");
    out_.boolean(false);
    out_.memoText("_hash");
    out_.none();
    out_.setItems();
    out_.build();
    out_.setItems();
    out_.tuple2();
    out_.tuple();
    out_.reduce();
}

std::string DTensorPickler::numbersOfRanks(const Mesh& mesh) {
    PickleWriter writer;
    (void)writer.take();
    writer.beginTuple(mesh.ranks());
    for (uint32_t rank = 0; rank < mesh.ranks(); ++rank)
        writer.integer(rank);
    writer.endTuple(mesh.ranks());
    return writer.take();
}

void DTensorPickler::mesh() {
    if (meshMemo_) return out_.get(*meshMemo_);
    const auto ranks = static_cast<int64_t>(mesh_.ranks());
    Dims sizes, coordinate;
    for (const MeshAxis& axis : mesh_.axes)
        sizes.push_back(axis.size);
    for (const uint32_t at : mesh_.coordinates(rank_))
        coordinate.push_back(at);
    const Dims strides = rowMajorStrides(sizes);
    object("torch.distributed.device_mesh", "DeviceMesh");
    meshMemo_ = out_.put();
    out_.emptyDict();
    out_.mark();
    out_.memoText("_device_type");
    out_.memoText(device_);
    out_.memoText("_layout");
    object(kLayoutModule, "_MeshLayout");
    out_.emptyDict();
    out_.memoText("axes");
    out_.beginTuple(sizes.size());
    for (size_t axis = 0; axis < sizes.size(); ++axis) {
        object(kLayoutModule, "_FlatLayout");
        out_.emptyDict();
        out_.mark();
        out_.memoText("shape");
        integers({&sizes[axis], 1});
        out_.memoText("stride");
        integers({&strides[axis], 1});
        out_.setItems();
        out_.build();
    }
    out_.endTuple(sizes.size());
    out_.setItem();
    out_.build();
    out_.memoText("_rank_map");
    rankStorage_ = archive_.storageCount();
    archive_.tensor(DType::int32, {&ranks, 1}, *rankStorage_, static_cast<uint64_t>(ranks) * 4);
    out_.memoText("_mesh_dim_names");
    out_.beginTuple(mesh_.axes.size());
    for (const MeshAxis& axis : mesh_.axes)
        out_.memoText(axis.name);
    out_.endTuple(mesh_.axes.size());
    out_.memoText("_root_mesh");
    out_.none();
    out_.memoText("_preserve_rank_order");
    out_.boolean(false);
    out_.memoText("_flatten_rank_map");
    out_.written(numbers_);
    out_.memoText("_thread_id");
    out_.none();
    out_.memoText("_flatten_mapping");
    out_.emptyDict();
    out_.memoText("_rank");
    out_.integer(rank_);
    out_.memoText("_coordinate_on_dim");
    integers(coordinate);
    out_.memoText("_hash");
    out_.none();
    out_.setItems();
    out_.build();
}

void DTensorPickler::placements(const std::vector<Placement>& all) {
    out_.beginTuple(all.size());
    for (const Placement& placement : all) {
        const bool shard = placement.kind == PlacementKind::shard;
        object("torch.distributed.tensor.placement_types", shard ? "Shard" : "Replicate");
        // Both are classes of C++: without a state they are not made whole.
        out_.emptyDict();
        if (shard) {
            out_.memoText("dim");
            out_.integer(placement.dim);
            out_.setItem();
        }
        out_.build();
    }
    out_.endTuple(all.size());
}

// For each dimension that is cut, the axes that cut it.
void DTensorPickler::shardOrder(const std::vector<Placement>& all) {
    std::map<int64_t, Dims> order;
    for (size_t axis = 0; axis < all.size(); ++axis) {
        if (all[axis].kind == PlacementKind::shard)
            order[all[axis].dim].push_back(static_cast<int64_t>(axis));
    }
    out_.beginTuple(order.size());
    for (const auto& [dim, axes] : order) {
        out_.memoGlobal(kSpecModule, "ShardOrderEntry");
        out_.integer(dim);
        integers(axes);
        out_.tuple2();
        out_.newObject();
    }
    out_.endTuple(order.size());
}

std::string DTensorPickler::rankBytes() const {
    std::string bytes;
    for (uint32_t rank = 0; rank < mesh_.ranks(); ++rank) {
        for (int shift = 0; shift < 32; shift += 8)
            bytes.push_back(static_cast<char>(rank >> shift & 0xff));
    }
    return bytes;
}

}  // namespace shardscope
