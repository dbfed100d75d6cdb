// Decodes metadata.pkl: in which file of which rank each leaf of each item is. Private to this format.
// Source: torch_checkpointing 0.1.1, distributed_metadata.py, dtensor_metadata.py, default_metadata.py,
// checkpoint_layout.py. docs/formats/torch_checkpointing.md.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "encoding/dtensor.h"
#include "formats/format.h"

namespace shardscope::torch_checkpointing {

inline constexpr char kMetadataFile[] = "metadata.pkl";

using RankList = std::vector<uint32_t>;  // sorted

// The ranks of a device mesh: (rank, row-major index in the mesh), sorted by rank.
struct MeshRanks {
    std::vector<std::pair<uint32_t, uint32_t>> places;
    bool ascending = true;
};

// Ranks that hold a leaf with the same dtype, shape and distribution.
struct Group {
    std::shared_ptr<const RankList> ranks;
    DType dtype = DType::float32;
    Dims shape;  // whole tensor
    // The placements, without a rank's coordinate; nullopt = see `boxes`.
    std::optional<torch_save::DTensorSpec> spec;
    std::shared_ptr<const MeshRanks> mesh;
    std::vector<torch_save::LocalBox> boxes;  // of default_tensor_v1
    std::string problem;                      // why the other fields are not set

    bool holds(uint32_t rank) const;
    bool replicated() const;  // every rank holds the whole tensor
    // The boxes of a rank, and the shape of its local tensor if `spec` gives it. No boxes if the rank is
    // outside of the mesh.
    Result<torch_save::LocalParts> partsOf(uint32_t rank) const;
};

struct Leaf {
    Path path;  // in the item; numbers become list indices, since integer keys look the same
    std::shared_ptr<const std::vector<Group>> groups;
};

struct Layout {
    enum class Kind : uint8_t { torch, safetensors, json, raw };
    std::string path;
    Kind kind = Kind::torch;
};

struct Item {
    std::string name;
    std::vector<Leaf> leaves;
    std::map<uint32_t, Layout> layouts;  // by rank; only ranks that state one
};
// "<item>_<rank>.pt"
std::string defaultFileName(std::string_view item, uint32_t rank);

struct Metadata {
    std::vector<Item> items;
    uint32_t world = 1;
    std::string version;
    std::vector<Note> notes;
};

// Whether `head` holds the first bytes of a metadata.pkl.
bool isMetadataStart(std::string_view head);
// Errors: damaged; limit; unsafe for a pickle that names Python objects (security.global) and for a path that
// leaves the directory (security.path).
Result<Metadata> decodeMetadata(std::string_view bytes, const Limits& limits);

}  // namespace shardscope::torch_checkpointing
