// Writes rank files with DTensors: finds each rank's shard of each tensor, and lays out one torch.save
// archive for each file.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "encoding/dtensor_pickler.h"
#include "encoding/torch_archive.h"
#include "formats/format.h"

namespace shardscope {

using Placements = std::vector<torch_save::DTensorSpec::Placement>;

// Finds the placements of a target's tensors on its mesh. A target without a mesh gets the single axis
// "fsdp".
class RankWriter {
  public:
    // `target` must outlive this. `device`: the mesh's device type, "cuda" or "cpu".
    RankWriter(const Catalog& target, std::string device);

    // Finds the placements. Errors: impossible for chunks that no Shard and Replicate placements produce.
    Status plan();

    const Mesh& mesh() const { return mesh_; }
    // Empty for a plain tensor, not a DTensor: each rank holds it whole.
    const Placements& placements(TensorId t) const { return known_[placements_[t]]; }
    ChunkId chunkOf(TensorId t, uint32_t rank) const;  // kNone where the rank has none
    Dims localShape(TensorId t, uint32_t rank) const;

    struct File {
        File(const std::string& name, const Mesh& mesh, std::string_view numbers, uint32_t on,
             const std::string& device)
            : archive(name), dtensors(archive, mesh, numbers, on, device), rank(on) {}
        TorchArchiveWriter archive;
        DTensorPickler dtensors;
        const uint32_t rank;
        std::vector<ChunkId> chunks;                // by storage; kNone = no chunk of the catalog
        std::unordered_map<TensorId, size_t> keys;  // storage of each tensor; aliases share one
    };
    // Starts a file. A file is built twice: for its size, and for its bytes. The caller writes the object to
    // archive.pickle(), then calls archive.finish().
    std::unique_ptr<File> start(const std::string& name, uint32_t rank) const;
    void tensor(File& file, TensorId t) const;
    // Adds the finished file to the layout.
    static void place(const File& file, const std::string& path, TargetLayout& layout);
    // Call after all files: aliases get the offsets of the tensor that they name.
    void tie(TargetLayout& layout) const;
    static Status literals(const File& file, FileId id, std::span<const uint32_t> chunkCrcs,
                           const LiteralSink& sink);

  private:
    Result<torch_save::LocalBox> localBox(const Placements& placements, uint32_t rank, DimSpan shape) const;
    bool fits(TensorId t, const Placements& placements) const;
    Result<Placements> placementsOf(TensorId t) const;

    const Catalog& target_;
    const std::string device_;
    Mesh mesh_;
    std::string numbers_;          // the mesh's ranks, encoded for DTensorPickler
    std::vector<ChunkId> byRank_;  // chunk of each tensor on each rank
    std::vector<Placements> known_;
    std::vector<uint32_t> placements_;  // by TensorId: index into known_
};

}  // namespace shardscope
