// Base of the layouts of rank files with DTensors: finds each rank's shard of each tensor, and lays out one
// torch.save archive for each file.
#pragma once

#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "encoding/dtensor_pickler.h"
#include "encoding/torch_archive.h"
#include "formats/file_layout.h"

namespace shardscope {

using Placements = std::vector<torch_save::DTensorSpec::Placement>;

class RankFileLayout : public FileLayout {
  public:
    Status fileLiterals(FileId id, std::span<const uint32_t> chunkCrcs, const LiteralSink& sink) const final;

  protected:
    // A target without a mesh gets the single axis "fsdp". `device`: the mesh's device type, "cuda" or "cpu".
    RankFileLayout(const Catalog& target, const WriteOptions& options, std::string device);

    // Call first. Errors: impossible for chunks that no Shard and Replicate placements produce.
    Status findPlacements();

    const Mesh& mesh() const { return mesh_; }
    uint32_t ranks() const { return mesh_.ranks(); }
    // Empty for a plain tensor, not a DTensor: each rank holds it whole.
    const Placements& placements(TensorId t) const { return known_[placements_[t]]; }

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
    // Writes the object of a file to its archive's pickle, tensors by tensor(). Called twice: for the file's
    // size, and for its bytes.
    using Write = std::function<Status(File& file)>;
    // Errors: cancelled, those of `write`.
    Status addFile(const std::string& path, const std::string& archive, uint32_t rank, Write write);
    void addText(const std::string& path, std::string text);  // of metadata
    void tensor(File& file, TensorId t) const;
    // Call after all files: aliases get the offsets of the tensor that they name.
    void tie();

  private:
    // What a file is made of.
    struct Source {
        std::string archive;
        uint32_t rank = 0;
        Write write;  // empty: the file is `text`
        std::string text;
    };
    Result<std::unique_ptr<File>> build(const Source& source) const;
    ChunkId chunkOf(TensorId t, uint32_t rank) const;  // kNone where the rank has none
    Dims localShape(TensorId t, uint32_t rank) const;
    Result<torch_save::LocalBox> localBox(const Placements& placements, uint32_t rank, DimSpan shape) const;
    bool fits(TensorId t, const Placements& placements) const;
    Result<Placements> placementsOf(TensorId t) const;

    const StopToken stop_;
    const std::string device_;
    Mesh mesh_;
    std::string numbers_;          // the mesh's ranks, encoded for DTensorPickler
    std::vector<ChunkId> byRank_;  // chunk of each tensor on each rank
    std::vector<Placements> known_;
    std::vector<uint32_t> placements_;  // by TensorId: index into known_
    std::vector<Source> sources_;       // by file
};

}  // namespace shardscope
