// Tensors that are sharded over ranks, as one rank's pickle states them: DTensors and ShardedTensors.
// Source: torch/distributed/tensor/_dtensor_spec.py, placement_types.py, _utils.py (compute_local_shape_and_
// global_offset), torch/distributed/device_mesh.py, torch/distributed/_shard/sharded_tensor; torch 2.0 to
// 2.15. docs/formats/torch_ranks.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "model/region.h"
#include "model/value.h"

namespace shardscope::torch_save {

// The mesh that a DTensor is on, and how it is distributed over it.
struct DTensorSpec {
    struct Placement {
        enum class Kind : uint8_t { replicate, shard, stridedShard, partial, other };
        Kind kind = Kind::other;
        int64_t dim = 0;  // of the tensor; for shards
        // Of a strided shard: the dimension is cut into as many groups (as torch.chunk does) before the axis
        // cuts each of them.
        int64_t groups = 1;
    };
    std::vector<Placement> placements;  // one for each axis of the mesh
    Dims mesh;                          // sizes of its axes
    std::vector<std::string> axes;      // their names; empty = none are stated
    std::optional<Dims> coordinate;     // of this rank; nullopt = the rank is not in the mesh
    std::optional<int64_t> rank;        // this rank, where that is stated
    // Of the ranks that the mesh or its root lists: one more than the highest, and whether they are in order.
    // Each tensor of a file lists them, so they are not kept.
    int64_t world = 0;
    bool ascending = true;
    // For each dimension that is sharded, the axes that shard it, the first one first. nullopt = not stated.
    // It says nothing of strided shards.
    std::optional<std::vector<std::pair<int64_t, Dims>>> order;
    // Strided shards are meant as they stand. Otherwise their groups are the parts that other axes cut, if
    // the sizes allow it (FSDP2 over tensor parallelism). Both give the same boxes where all splits are even.
    bool literal = false;
};

// A box of a tensor, and its offsets in the local tensor of a rank.
struct LocalBox {
    Dims globalOffsets, localOffsets, lengths;
};
// What a rank holds of a tensor.
struct LocalParts {
    Dims shape;                   // of its local tensor
    std::vector<LocalBox> boxes;  // that it is made of, in row-major order; at least one, which may be empty
};

// Where the parts of a tensor are.
struct TensorPlacement {
    std::optional<DTensorSpec> dtensor;  // of a DTensor that can be interpreted
    // Of a ShardedTensor: the rank that wrote it and how many there were, as its process group states them.
    // Else the rank of its shard, and one more than the highest rank that its metadata lists.
    std::optional<int64_t> rank;
    int64_t world = 0;
};

// Reads a DTensorSpec object. Errors: damaged (missing or contradicting fields).
Result<DTensorSpec> asDTensorSpec(const ValueGraph& graph, NodeId spec);
// How a Placement object distributes a tensor; `other` for what is not known.
DTensorSpec::Placement asPlacement(const ValueGraph& graph, NodeId node);
// One more than the highest rank that the metadata of a ShardedTensor lists. Errors: damaged.
Result<int64_t> worldOfShards(const ValueGraph& graph, NodeId metadata);
// The rank that the metadata of one shard states.
std::optional<int64_t> rankOfShard(const ValueGraph& graph, NodeId shard);
// The class of an object; empty for anything else.
std::string_view classOf(const ValueGraph& graph, NodeId node);

// An attribute of an object that is pickled with a state: a dictionary, or a tuple with one. kNoNode when
// there is none.
NodeId attributeOf(const ValueGraph& graph, NodeId object, std::string_view name);

// The parts of a tensor of this shape that are on the rank of the spec. It is one box, or several where a
// strided shard takes a piece of each part of a fused projection. Errors: unsupported for partial sums, for a
// rank outside the mesh and for more than 65,536 boxes; damaged.
Result<LocalParts> localParts(const DTensorSpec& spec, DimSpan shape);

}  // namespace shardscope::torch_save
