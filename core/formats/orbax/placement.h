// Parses `_sharding`: which device of a mesh holds which shard of each array. A device's rank is its
// row-major index in the mesh.
//
// Source: google/orbax 3ff7b24a, orbax/checkpoint/_src/metadata/sharding.py; jax.sharding.NamedSharding.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "model/mesh.h"
#include "model/region.h"

namespace shardscope::orbax {

// Axes and device ids of a mesh.
struct DeviceMesh {
    std::vector<MeshAxis> axes;
    std::vector<int64_t> ids;  // row-major; empty if not stated (Orbax 0.5)
    bool operator==(const DeviceMesh&) const = default;
    Mesh asMesh() const;
};

// Which ranks hold each shard of an array. Arrays with the same sharding and number of dimensions share it.
struct ShardHolders {
    Dims parts;                                // number of shards along each dimension
    std::vector<std::vector<uint32_t>> ranks;  // by shard, row-major

    // The ranks that hold all of a box; null if the box spans several shards.
    const std::vector<uint32_t>* of(DimSpan shape, DimSpan offsets, DimSpan lengths) const;
};

class Placement {
  public:
    // Errors: damaged (rule meta.inconsistent).
    static Result<Placement> parse(std::string_view json);

    // The mesh with the most devices; of several, the one with the most arrays.
    const std::optional<DeviceMesh>& mesh() const { return mesh_; }
    // The holders of an array, as ranks of mesh `shown`. Null if the file does not place the array, or uses
    // other devices.
    const ShardHolders* holders(std::string_view name, DimSpan shape, const DeviceMesh& shown);

  private:
    struct Sharding {
        std::optional<DeviceMesh> mesh;           // nullopt: on one device
        std::vector<std::vector<uint32_t>> spec;  // mesh axes that shard each dimension, slowest first
        int64_t device = -1;
        // Cache by number of dimensions; null = no holders.
        std::map<size_t, std::unique_ptr<ShardHolders>> byRank;
    };
    static Result<Sharding> parseOne(const std::string& json);
    static std::unique_ptr<ShardHolders> holdersOf(const Sharding& sharding, size_t rank,
                                                   const DeviceMesh& shown);

    std::optional<DeviceMesh> mesh_;
    std::vector<Sharding> shardings_;                   // distinct
    std::unordered_map<std::string, uint32_t> byName_;  // index into shardings_
};

}  // namespace shardscope::orbax
