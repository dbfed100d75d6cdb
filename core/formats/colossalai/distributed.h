// Opens the distributed layout: each rank stores its shards in its own files, with its own JSON metadata.
// Private to this format.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "formats/colossalai/rank_metadata.h"
#include "formats/colossalai/stale.h"
#include "formats/tensor_assembly.h"
#include "formats/tp_rule.h"

namespace shardscope::colossalai {

class DistributedOpener {
  public:
    DistributedOpener(const Source& source, const OpenOptions& options)
        : source_(source),
          options_(options),
          assembly_(source, options, "colossalai", "", "ColossalAI with distributed checkpoint IO") {}

    Result<std::unique_ptr<Reader>> open();

  private:
    // A rank's shard of a tensor.
    struct Piece {
        uint32_t rank = 0;   // index into ranks_
        uint32_t entry = 0;  // index in the rank's metadata
    };

    // --- metadata and files (distributed.cpp)
    Status readMetadata();
    void addMetadataFiles();
    void noteForeign();
    static std::string lastPart(std::string_view path);
    Status openWeights();
    // The local name of an entry's `file`. Uses only the last component of the path: with shard=False the
    // writer stores the full path on its own machine.
    std::string placeOf(const std::string& written, const RankFile& rank);
    std::string refuse(const std::string& written, const RankFile& rank);
    void noteMissingRanks();
    void addOtherFiles();
    Mesh mesh() const;
    bool aside(size_t rank) const { return check_.setAside && check_.foreign[rank]; }

    // --- tensors (distributed_tensors.cpp)
    void addTensors();
    int fusedDimOf(std::string_view name, const std::vector<Piece>& pieces);
    void addPiece(std::string_view name, const Piece& piece, int fusedDim);
    uint32_t tensorOf(std::string_view name, const Piece& piece);
    StoredPart partOf(std::string_view name, const Piece& piece, uint32_t tensor, Dims& lengths);
    void addUnlisted();
    void addUnlisted(const RankFile& rank, uint32_t file);
    void addObjects();
    const TensorFile& contents(uint32_t file) { return assembly_.files()[file]; }
    const PieceEntry& entryOf(const Piece& piece) const {
        return ranks_[piece.rank].metadata.entries[piece.entry];
    }
    TensorAssembly::Known fileOf(const Piece& piece) const { return refs_[piece.rank][entryOf(piece).file]; }

    const Source& source_;
    const OpenOptions& options_;
    TensorAssembly assembly_;
    std::vector<RankFile> ranks_;
    SaveCheck check_;
    std::set<std::string> asideFiles_;
    std::vector<std::vector<TensorAssembly::Known>> refs_;  // by rank file and RankMetadata::files
    safetensors::NameSet names_;
    FusedChoice fused_;
    std::set<std::string> placed_;
    bool notedPaths_ = false;
    uint32_t world_ = 1;
};

}  // namespace shardscope::colossalai
