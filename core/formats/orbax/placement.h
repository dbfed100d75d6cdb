// `_sharding`: which device of which mesh holds what of each array. Devices are shown as ranks: a device's
// rank is its place in the mesh, in row-major order.
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

// How a mesh of devices is named and numbered.
struct DeviceMesh {
    std::vector<MeshAxis> axes;
    std::vector<int64_t>
        ids;  // in row-major order of the axes; empty where the file does not say (Orbax 0.5)
    bool operator==(const DeviceMesh&) const = default;
    Mesh asMesh() const;
};

// Which ranks hold each shard of arrays of one rank (number of dimensions).
struct ShardHolders {
    Dims parts;                                // in how many the array is cut along each dimension
    std::vector<std::vector<uint32_t>> ranks;  // by shard, row-major

    // The ranks that hold all of a box; null where none does: it is spread over several shards.
    const std::vector<uint32_t>* of(DimSpan shape, DimSpan offsets, DimSpan lengths) const;
};

class Placement {
  public:
    // Errors: damaged (rule meta.inconsistent).
    static Result<Placement> parse(std::string_view json);

    // The mesh with the most devices; of several, that of most arrays.
    const std::optional<DeviceMesh>& mesh() const { return mesh_; }
    // On the ranks of `shown`. Null where the file does not place the array, or on other devices.
    const ShardHolders* holders(std::string_view name, DimSpan shape, const DeviceMesh& shown);

  private:
    struct Sharding {
        std::optional<DeviceMesh> mesh;           // nothing: on one device
        std::vector<std::vector<uint32_t>> spec;  // the axes that cut each dimension, slowest first
        int64_t device = -1;
        std::map<size_t, std::unique_ptr<ShardHolders>> byRank;  // found before; null where there is none
    };
    static Result<Sharding> parseOne(const std::string& json);
    static std::unique_ptr<ShardHolders> holdersOf(const Sharding& sharding, size_t rank,
                                                   const DeviceMesh& shown);

    std::optional<DeviceMesh> mesh_;
    std::vector<Sharding> shardings_;                   // each once
    std::unordered_map<std::string, uint32_t> byName_;  // index into shardings_
};

}  // namespace shardscope::orbax
