// Files of ranks that hold DTensors, written: what each rank has of each tensor, and one torch.save archive
// for each file.
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

// Knows how the chunks of a wanted catalog are spread over its mesh; without one the ranks are one axis,
// "fsdp".
class RankWriter {
  public:
    // `device`: "cuda" or "cpu", that the mesh is of.
    RankWriter(const Catalog& target, std::string device);

    // Finds the placements. Errors: impossible for pieces that are not those of shards and replicas.
    Status plan();

    const Mesh& mesh() const { return mesh_; }
    // Empty for a plain tensor, which each rank holds whole.
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
        std::vector<ChunkId> chunks;                // of each storage; kNone = none of the catalog
        std::unordered_map<TensorId, size_t> keys;  // storages of tensors, which may have several names
    };
    // A file is made twice: for its size, and to be written. The object goes to archive.pickle(), then
    // archive.finish().
    std::unique_ptr<File> start(const std::string& name, uint32_t rank) const;
    void tensor(File& file, TensorId t) const;
    // Adds the finished file to the layout.
    static void place(const File& file, const std::string& path, TargetLayout& layout);
    // After all files: other names of a tensor have the bytes of the first one.
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
    std::string numbers_;          // of its ranks, for DTensorPickler
    std::vector<ChunkId> byRank_;  // those of each tensor by rank
    std::vector<Placements> known_;
    std::vector<uint32_t> placements_;  // of each tensor, in known_
};

}  // namespace shardscope
