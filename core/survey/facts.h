// What window and page work out once from a catalog. It is the state of every chunk and tensor, what ranks
// and files hold, how layers are spread over ranks. Immutable; shared by all views of one checkpoint.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/stop.h"
#include "model/catalog.h"
#include "model/mesh.h"
#include "survey/module_tree.h"
#include "validate/validate.h"

namespace shardscope {

// In rising severity, so that the worst of many is their maximum.
enum class Health : uint8_t {
    ok,
    unread,     // its checks could not run
    nonFinite,  // holds NaN or infinities
    differs,    // copies of one chunk that hold different bytes
    overlap,    // elements that two different chunks claim
    missing,    // bytes that are not there: file missing, truncated, or of another kind
    gap,        // elements that no chunk holds
};
const char* healthName(Health health);  // "ok", "unread", "nan/inf", "differs", "overlap", ...

struct RankFacts {
    uint64_t bytes = 0;  // of tensor data
    uint32_t chunks = 0;
    uint32_t tensors = 0;
    uint32_t files = 0;          // that it wrote
    Health health = Health::ok;  // worst of its chunks and files
    bool cut = false;            // lacks bytes, all of them behind the ends of files that are there
    uint32_t sameAs = kNone;     // the first rank that holds exactly the same; kNone = none before it
    std::string experts;         // those that it holds a part of: "0–7"; empty = none
};

struct FileFacts {
    uint64_t used = 0;  // bytes that chunks and objects claim, each byte once
    uint64_t end = 0;   // where the last of them ends
    uint32_t chunks = 0;
    uint32_t tensors = 0;
    Health health = Health::ok;
    uint64_t dead(uint64_t size) const { return size > used ? size - used : 0; }
};

// One repeated block of a model ("model.layers.3").
struct LayerFacts {
    std::string name;
    std::string group;  // "model.layers"
    int64_t number = 0;
    std::vector<uint32_t>
        stages;  // coordinates along the pipeline axis, ascending; empty without such an axis
};

// Parameters outside of the layers: "embed_tokens".
struct LooseModule {
    std::string name;              // last part
    std::vector<uint32_t> stages;  // that hold a part of it, ascending
};

struct Facts {
    ModuleTree tree;  // of all tensors
    std::vector<Health> chunkHealth, tensorHealth;
    std::vector<std::vector<Box>>
        gaps;                         // by tensor; empty unless one has gaps (then at most 10,000 boxes each)
    std::vector<RankFacts> ranks;     // by rank; chunks without a rank count for rank 0
    std::vector<FileFacts> files;     // by FileId
    std::vector<uint32_t> fileFirst;  // chunks of file f: fileChunks[fileFirst[f] .. fileFirst[f + 1])
    std::vector<ChunkId> fileChunks;  // by offset within a file
    std::optional<Mesh> mesh;         // declared or inferred
    std::vector<LayerFacts> layers;
    std::vector<LooseModule> looseModules;  // none without pipeline stages
    int stageAxis = -1;                     // of the mesh; -1 = no pipeline stages
    // What a validation says of values, by chunk: "12 of 4,096 elements are NaN (0.3 %)".
    std::map<ChunkId, std::string> chunkNotes;
    uint64_t medianRankBytes = 0;
    size_t damagedTensors = 0;  // worse than nonFinite

    std::span<const ChunkId> chunksOf(FileId file) const {
        return std::span(fileChunks).subspan(fileFirst[file], fileFirst[file + 1] - fileFirst[file]);
    }
    Health worst() const;
    // What is noted of a tensor's chunks, one a line, the first few.
    std::string notesOf(const Catalog& catalog, TensorId tensor) const;
    std::string noteOf(ChunkId chunk) const;  // empty = none
};

// One note for each tensor that the reader speaks of and could not take over, because of an unknown dtype
// say.
std::vector<const Note*> notTakenOver(const Catalog& catalog);

// Null when stopped. The catalog must outlive the result.
std::shared_ptr<const Facts> computeFacts(const Catalog& catalog, const StopToken& stop = {});

// A copy in which the tensors and files that the findings name have the health that they report (NaN, wrong
// sizes found by reading, ...). What was found before stays.
std::shared_ptr<const Facts> withFindings(const Facts& facts, const Catalog& catalog,
                                          const ValidationReport& report);

// The same states in words, with the share of a tensor that is there and why bytes are not: "missing" (the
// file is), "truncated" (the file ends early), "31 of 32 shards".
std::string chunkStateText(const Facts& facts, const Catalog& catalog, ChunkId chunk);
std::string tensorStateText(const Facts& facts, const Catalog& catalog, TensorId tensor);
// How much of a tensor's chunks is missing or truncated, 0..1.
double lostShare(const Facts& facts, const Catalog& catalog, TensorId tensor);
std::string rankStateText(const RankFacts& rank);

// "pp0 dp1 tp3", or "rank 7" without a mesh of that size.
std::string rankLabel(const std::optional<Mesh>& mesh, uint32_t rank);

// Numbers in words: "0–7, 12, 14–15"; ascending, the first `most` runs of them.
std::string spansText(const std::vector<uint32_t>& numbers, size_t most = 4);

// How a tensor is cut, in words: "dim 1 in 8", "dim 0 in 4, dim 1 in 2", "flat in 16", "whole", "irregular".
std::string cutText(const Catalog& catalog, TensorId tensor);

// One chunk's box and flat range: "[0:512, 0:1024]", "[0:512] flat 0..100".
std::string chunkText(const ChunkInfo& chunk);

// Bytes of a chunk's elements; the stored entry (ChunkInfo::length) may be wrapped or compressed.
uint64_t elementBytes(const Catalog& catalog, const ChunkInfo& chunk);

}  // namespace shardscope
