// Ranks as a grid of named axes, and how a tensor is spread over them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/region.h"

namespace shardscope {

struct MeshAxis {
    std::string name;  // "pp", "dp", "tp", "fsdp", "ep", ...
    uint32_t size = 1;
    bool operator==(const MeshAxis&) const = default;
};

// rank = row-major index of its coordinates; the last axis varies fastest.
struct Mesh {
    enum class Source : uint8_t { declared, inferred };
    std::vector<MeshAxis> axes;
    Source source = Source::declared;
    std::vector<std::string> evidence;  // sentences such as "tp=4: 96 tensors sharded in 4 along dim 1"

    uint32_t ranks() const;  // UINT32_MAX where there are more
    std::vector<uint32_t> coordinates(uint32_t rank) const;
    uint32_t rankAt(const std::vector<uint32_t>& coordinates) const;
    int axisIndex(std::string_view name) const;  // -1 when absent
    bool operator==(const Mesh& other) const { return axes == other.axes; }
};

// No run has had so many; views of more would not be drawn.
constexpr uint32_t kMostMeshRanks = 1'000'000;

// "dp=2,tp=4". Errors: usage.
Result<Mesh> parseMesh(std::string_view text);
std::string formatMesh(const Mesh& mesh);

// How a length is cut in n pieces when it does not divide.
//   torch:  every piece ceil(length / n) long, the last ones shorter or empty (torch.chunk, DTensor's Shard)
//   even:   the first (length mod n) pieces one longer (numpy.array_split)
//   paddle: as torch, but a piece that would start past the end is left out rather than empty
enum class SplitRule : uint8_t { torch, even, paddle };

struct Span1 {
    int64_t offset = 0;
    int64_t length = 0;
    bool operator==(const Span1&) const = default;
};
// Piece `index` of `count`. An empty piece has offset = length, as torch >= 2.7 writes it.
Span1 splitPiece(int64_t length, uint32_t count, uint32_t index, SplitRule rule);

}  // namespace shardscope
