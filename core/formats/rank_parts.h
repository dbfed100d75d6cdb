// What the formats with a file for each rank share: DTensors whose place their own file states, the mesh that
// they are on, and values that ranks have in common.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "formats/tensor_assembly.h"

namespace shardscope {

class RankParts {
  public:
    explicit RankParts(TensorAssembly& assembly) : assembly_(assembly) {}

    static constexpr uint32_t kMostWorld = 1'000'000;
    uint32_t world() const { return world_; }
    void raiseWorld(int64_t world) {
        if (world <= kMostWorld && world > world_) world_ = static_cast<uint32_t>(world);
    }

    // The rank that the parts in a file are of; says once for a file whose name says another one.
    uint32_t rankOf(uint32_t file, uint32_t named, std::optional<int64_t> stated);

    // The parts of a DTensor, stored tensor `tensor` of the file, by the placement in its own pickle: one, or
    // those of a fused projection. None where nothing of it is on that rank, or after a note where it cannot
    // be placed.
    std::vector<TensorAssembly::Piece> partsOf(uint32_t file, uint32_t tensor, uint32_t named,
                                               const Path& path);
    // Each box of a stored tensor as a piece of the rank.
    std::vector<TensorAssembly::Piece> piecesOf(uint32_t file, uint32_t tensor, uint32_t rank,
                                                std::vector<torch_save::LocalBox> boxes);

    // Takes the largest mesh that any tensor is on.
    void noteMesh(const torch_save::DTensorSpec& spec);
    const std::optional<torch_save::DTensorSpec>& largestMesh() const { return mesh_; }
    // Where it holds all ranks, in order.
    std::optional<Mesh> mesh(std::string_view evidence) const;

    // Says which files are missing: `total`, of which the first are given by name.
    static constexpr size_t kMostMissing = 1000;
    struct Missing {
        std::string name;
        uint32_t rank = 0;
        bool needed = true;  // else the tensors do not depend on it
    };
    void addMissing(std::span<const Missing> files, size_t total);

  private:
    TensorAssembly& assembly_;
    uint32_t world_ = 1;
    std::set<uint32_t> misplaced_;   // files that hold another rank's parts
    std::set<std::string> refused_;  // encoded paths
    size_t boxes_ = 0;               // of tensors that have several on a rank
    std::optional<torch_save::DTensorSpec> mesh_;
};

// The value of one name as one rank has it.
struct RankObject {
    Path path;    // where all ranks have the same
    Path ofRank;  // where they do not
    uint32_t file = kNone;
    uint32_t rank = 0;
    const Value* value = nullptr;
    enum class When : uint8_t {
        differing,    // each under its rank where they differ
        always,       // each under its rank
        firstIsMain,  // where they differ, the first one counts as that of all
    };
    When perRank = When::differing;
};
void addRankObjects(TensorAssembly& assembly, std::span<const RankObject> objects);

}  // namespace shardscope
