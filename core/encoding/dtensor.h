// Tensors that are sharded over ranks, as one rank's pickle states them: DTensors and ShardedTensors.
// Source: torch/distributed/tensor/_dtensor_spec.py, placement_types.py, _utils.py (compute_local_shape_and_
// global_offset), torch/distributed/device_mesh.py, torch/distributed/_shard/sharded_tensor; torch 2.0 to
// 2.15. docs/formats/torch_ranks.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
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
    };
    std::vector<Placement> placements;  // one for each axis of the mesh
    Dims mesh;                          // sizes of its axes
    std::vector<std::string> axes;      // their names; empty = none are stated
    std::optional<Dims> coordinate;     // of this rank; nullopt = the rank is not in the mesh
    std::optional<int64_t> rank;        // this rank, where that is stated
    std::vector<int64_t> ranks;         // of the root mesh in row-major order; empty = not stated
    // For each dimension that is sharded, the axes that shard it, the first one first. nullopt = not stated:
    // plain shards from left to right, then the strided ones.
    std::optional<std::vector<std::pair<int64_t, Dims>>> order;
};

// A shard that the metadata of a ShardedTensor lists.
struct ListedShard {
    Box box;
    std::optional<int64_t> rank;
};

// Where the parts of a tensor are. One of both is there, or neither for what is not sharded.
struct TensorPlacement {
    std::optional<DTensorSpec> dtensor;
    std::vector<ListedShard> shards;
};

// Reads a DTensorSpec object. Errors: damaged (missing or contradicting fields).
Result<DTensorSpec> asDTensorSpec(const ValueGraph& graph, NodeId spec);
// Reads the metadata of a ShardedTensor. Errors: damaged.
Result<std::vector<ListedShard>> asListedShards(const ValueGraph& graph, NodeId metadata);

// An attribute of an object that is pickled with a state: a dictionary, or a tuple with one. kNoNode when
// there is none.
NodeId attributeOf(const ValueGraph& graph, NodeId object, std::string_view name);

// The part of a tensor of this shape that is on the rank of the spec. Empty boxes are possible. Errors:
// unsupported for partial sums and for a rank outside the mesh; damaged.
Result<Box> localBox(const DTensorSpec& spec, DimSpan shape);

}  // namespace shardscope::torch_save
