// Shared code of formats with one file for each rank: finds the boxes of DTensors and their mesh, notes
// missing files, and joins the objects of all ranks.
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

    // The rank of the shards in a file: `stated` if given, else `named`. Where they differ, adds one note for
    // the file.
    uint32_t rankOf(uint32_t file, uint32_t named, std::optional<int64_t> stated);

    // The pieces of stored tensor `tensor`, a DTensor, by the placement in the file's pickle; a fused
    // projection has several. None if the rank holds nothing of the DTensor. None, with a note, if the
    // placement cannot be used.
    std::vector<TensorAssembly::Piece> partsOf(uint32_t file, uint32_t tensor, uint32_t named,
                                               const Path& path);
    // Turns each box of a stored tensor into a piece of the rank.
    std::vector<TensorAssembly::Piece> piecesOf(uint32_t file, uint32_t tensor, uint32_t rank,
                                                std::vector<torch_save::LocalBox> boxes);

    // Keeps the largest mesh of all tensors.
    void noteMesh(const torch_save::DTensorSpec& spec);
    const std::optional<torch_save::DTensorSpec>& largestMesh() const { return mesh_; }
    // The largest mesh, if it holds all ranks in ascending order; else nullopt.
    std::optional<Mesh> mesh(std::string_view evidence) const;

    // Remembers the missing file of a rank. `needed` false: no tensor depends on it.
    void addMissing(std::string name, uint32_t rank, bool needed);
    // Notes them. Call after all pieces: of replicas a part may be missing without loss.
    void noteMissing();

  private:
    struct Missing {
        std::string name;
        uint32_t rank = 0;
        bool needed = true;
    };

    TensorAssembly& assembly_;
    uint32_t world_ = 1;
    std::vector<Missing> missing_;
    size_t missingTotal_ = 0;
    std::set<uint32_t> misplaced_;   // files that hold another rank's parts
    std::set<std::string> refused_;  // encoded paths
    size_t boxes_ = 0;               // total of tensors that have several boxes on a rank
    std::optional<torch_save::DTensorSpec> mesh_;
};

// An object as one rank holds it.
struct RankObject {
    Path path;    // used where all ranks hold the same value
    Path ofRank;  // used where the values differ
    uint32_t file = kNone;
    uint32_t rank = 0;
    const Value* value = nullptr;
    enum class When : uint8_t {
        differing,    // each under its rank if the values differ
        always,       // each under its rank
        firstIsMain,  // if the values differ, the first one has `path`
    };
    When perRank = When::differing;
};
void addRankObjects(TensorAssembly& assembly, std::span<const RankObject> objects);

}  // namespace shardscope
