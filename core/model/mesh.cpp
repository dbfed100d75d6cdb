#include "model/mesh.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/numbers.h"
#include "base/units.h"

namespace shardscope {

uint32_t Mesh::ranks() const {
    // Sizes come from files: a product that does not fit is the highest number, not a small one.
    uint32_t n = 1;
    for (const MeshAxis& axis : axes) {
        if (!checkedMul(n, axis.size, n)) return UINT32_MAX;
    }
    return n;
}

std::vector<uint32_t> Mesh::coordinates(uint32_t rank) const {
    std::vector<uint32_t> out(axes.size());
    for (size_t i = axes.size(); i-- > 0;) {
        out[i] = rank % axes[i].size;
        rank /= axes[i].size;
    }
    return out;
}

uint32_t Mesh::rankAt(const std::vector<uint32_t>& coordinates) const {
    uint32_t rank = 0;
    for (size_t i = 0; i < axes.size(); ++i)
        rank = rank * axes[i].size + coordinates[i];
    return rank;
}

int Mesh::axisIndex(std::string_view name) const {
    for (size_t i = 0; i < axes.size(); ++i) {
        if (axes[i].name == name) return static_cast<int>(i);
    }
    return -1;
}

Result<Mesh> parseMesh(std::string_view text) {
    Mesh mesh;
    std::string_view rest = text;
    while (!rest.empty()) {
        const size_t comma = rest.find(',');
        const std::string_view part = rest.substr(0, comma);
        rest = comma == std::string_view::npos ? std::string_view{} : rest.substr(comma + 1);
        const size_t equals = part.find('=');
        if (equals == std::string_view::npos || equals == 0) {
            return makeError(ErrorCode::usage, fmt::format("'{}' is not AXIS=SIZE", part))
                .withHint("write a mesh as 'dp=2,tp=4'");
        }
        MeshAxis axis;
        axis.name = part.substr(0, equals);
        const std::string_view number = part.substr(equals + 1);
        axis.size = parseNumber<decltype(axis.size)>(number).value_or(0);
        if (axis.size == 0) {
            return makeError(ErrorCode::usage, fmt::format("'{}' is not a positive number of ranks", number))
                .withHint("write a mesh as 'dp=2,tp=4'");
        }
        if (mesh.axisIndex(axis.name) >= 0) {
            return makeError(ErrorCode::usage, fmt::format("the mesh names axis '{}' twice", axis.name));
        }
        mesh.axes.push_back(std::move(axis));
        if (mesh.ranks() > kMostMeshRanks)
            return makeError(ErrorCode::usage,
                             fmt::format("the mesh has more than {}", counted(kMostMeshRanks, "rank")));
    }
    if (mesh.axes.empty())
        return makeError(ErrorCode::usage, "the mesh is empty").withHint("write a mesh as 'dp=2,tp=4'");
    return mesh;
}

std::string formatMesh(const Mesh& mesh) {
    std::string text;
    for (const MeshAxis& axis : mesh.axes)
        text += fmt::format("{}{}={}", text.empty() ? "" : ",", axis.name, axis.size);
    return text;
}

Span1 splitPiece(int64_t length, uint32_t count, uint32_t index, SplitRule rule) {
    if (rule == SplitRule::even) {
        const int64_t base = length / count;
        const int64_t longer = length % count;
        const int64_t offset = index * base + std::min<int64_t>(index, longer);
        return {offset, base + (index < longer ? 1 : 0)};
    }
    const int64_t piece = (length + count - 1) / count;
    const int64_t offset = std::min<int64_t>(piece * index, length);
    return {offset, std::min(piece, length - offset)};
}

}  // namespace shardscope
