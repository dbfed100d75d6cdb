// The distributed layout: each rank's pieces in files of its own, described by a JSON file of its own.
// Private to this format.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "formats/colossalai/opener.h"
#include "formats/colossalai/rank_metadata.h"
#include "formats/colossalai/stale.h"
#include "model/name_pattern.h"

namespace shardscope::colossalai {

// Where the `file` of an entry is. Only the last part of a path counts, and only inside the directory: with
// shard=False the path of the machine that saved stands there.
struct FileRef {
    FileId id = kNone;
    uint32_t contents = kNone;  // in TensorFiles; kNone = missing, refused or broken
};

class DistributedOpener : private Opener {
  public:
    DistributedOpener(const Source& source, const OpenOptions& options)
        : Opener(source, options, "", "ColossalAI with distributed checkpoint IO") {}

    Result<std::unique_ptr<Reader>> open();

  private:
    struct Piece {
        uint32_t rank = 0;   // index into ranks_
        uint32_t entry = 0;  // in its metadata
    };

    // --- metadata and files (distributed.cpp)
    Status readVariant();
    Status readMetadata();
    void addMetadataFiles();
    void noteForeign();
    static std::string lastPart(std::string_view path);
    Status openWeights();
    Result<FileRef> openWeight(const std::string& written, const RankFile& rank);
    void noteMissingRanks();
    void noteUnreferenced();
    void finishMesh();
    bool aside(size_t rank) const { return check_.setAside && check_.foreign[rank]; }

    // --- tensors (distributed_tensors.cpp)
    Status addTensors();
    Status addTensor(size_t n, const std::vector<Piece>& pieces);
    int fusedDimOf(std::string_view name, const std::vector<Piece>& pieces);
    Status addPiece(const TensorInfo& info, const Piece& piece, int fusedDim);
    void cutPadding(const TensorInfo& info, const PieceEntry& entry, const StoredTensor& stored,
                    Dims& lengths, StoredPart& part);
    bool addFused(CatalogBuilder::Chunk chunk, const PieceEntry& entry, size_t d, const StoredPart& part,
                  const Dims& shape);
    Status addUnlisted();
    void addObjects();
    const PieceEntry& entryOf(const Piece& piece) const {
        return ranks_[piece.rank].metadata.entries[piece.entry];
    }
    const FileRef& refOf(const Piece& piece) const { return refs_[piece.rank][entryOf(piece).file]; }

    std::vector<RankFile> ranks_;
    std::vector<uint64_t> metaSizes_;
    SaveCheck check_;
    std::set<std::string> asideFiles_;
    std::vector<std::vector<FileRef>> refs_;  // by rank file and RankMetadata::files
    std::map<std::string, FileRef> byPath_;
    safetensors::NameSet names_;
    std::vector<TensorId> tensorOf_;
    bool fusedGiven_ = false;
    std::vector<NamePattern> fusedPatterns_;
    bool notedPaths_ = false, sawTorch_ = false, sawSafetensors_ = false;
    uint32_t world_ = 1;
    std::string variant_;
};

}  // namespace shardscope::colossalai
