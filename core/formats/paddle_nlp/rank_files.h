// The files of a hybrid-parallel checkpoint: which ranks wrote, what each file holds, what is missing, and
// what another save left behind.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "formats/format.h"
#include "formats/paddle_nlp/model_meta.h"
#include "formats/paddle_nlp/names.h"
#include "formats/tensor_assembly.h"

namespace shardscope::paddle_nlp {

inline const TensorFile kNotRead{};

struct RankFile {
    enum class State : uint8_t {
        read,
        missing,  // other files say that it should be there
        broken,   // it is there, and cannot be read: `why`
        stale     // of another save: not read
    };
    RankFileName name;
    std::string path;
    uint64_t size = 0;
    State state = State::read;
    Error why;
    FileId id = kNone;
    uint32_t contents = kNone;              // index of the assembly; kNone = not read
    const TensorFile* content = &kNotRead;  // that file

    uint32_t tp() const { return name.tp == kNotNamed ? 0 : name.tp; }
    uint32_t pp() const { return name.pp == kNotNamed ? 0 : name.pp; }
    uint32_t shard() const { return name.shard == kNotNamed ? 0 : name.shard; }
    uint32_t moe() const { return name.moe == kNotNamed ? 0 : name.moe; }
    bool readable() const { return state == State::read; }
};

struct HybridFiles {
    std::vector<RankFile> files;  // by pp, tp, moe, then weights before optimizer, then sharding rank
    ModelMeta meta;
    bool hasMeta = false;
    ModelConfig config;
    std::vector<std::string> beside;  // files that hold neither tensors nor metadata that is used here
    std::optional<Value> schedule;    // of scheduler.pdparams
    uint32_t tp = 1, pp = 1, sharding = 1, moe = 1;
    bool degreesStated = false;  // by model_meta.json
    bool wholeWeights = false;   // weights were merged over tensor-parallel ranks before saving
    std::vector<Note> notes;

    // Row-major over (moe, pp, sharding, tp), as Paddle's topology counts.
    uint32_t rankOf(uint32_t tpRank, uint32_t ppRank, uint32_t shardRank, uint32_t moeRank) const {
        return ((moeRank * pp + ppRank) * sharding + shardRank) * tp + tpRank;
    }
};

// Reads all metadata, and of the ranks' files all but the tensors. Files are added to the catalog. Errors:
// unsupported when there are no such files, limit, cancelled, and damaged metadata; a rank's file that cannot
// be read does not count.
Result<HybridFiles> readHybridFiles(const Source& source, const OpenOptions& options,
                                    TensorAssembly& assembly);

// A dict of the leaves of one that was read apart; `depth` parts of their paths are left out.
Value joinObjects(const std::vector<const StoredObject*>& leaves, size_t depth);

}  // namespace shardscope::paddle_nlp
