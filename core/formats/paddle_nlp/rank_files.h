// Reads the files of a hybrid-parallel checkpoint: their ranks and contents. Finds missing and stale files.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "formats/format.h"
#include "formats/paddle_nlp/model_meta.h"
#include "formats/paddle_nlp/names.h"
#include "formats/tensor_assembly.h"
#include "model/model_sizes.h"

namespace shardscope::paddle_nlp {

inline const TensorFile kNotRead{};

struct RankFile {
    enum class State : uint8_t {
        read,
        missing,  // other files show that it belongs here
        broken,   // present but unreadable: see `why`
        stale     // from another save; not read
    };
    RankFileName name;
    std::string path;
    uint64_t size = 0;
    State state = State::read;
    Error why;
    FileId id = kNone;
    uint32_t contents = kNone;              // index in the assembly; kNone = not read
    const TensorFile* content = &kNotRead;  // never null

    RankPlace at() const { return name.place(); }
    bool readable() const { return state == State::read; }
    bool lost() const { return state == State::missing || state == State::broken; }
};

struct HybridFiles {
    std::vector<RankFile> files;  // by pp, tp, moe, then weights before optimizer, then sharding rank
    ModelMeta meta;
    bool hasMeta = false;
    ModelSizes config;
    std::vector<std::string> beside;  // files without tensors or used metadata
    std::optional<Value> schedule;    // value of scheduler.pdparams
    uint32_t tp = 1, pp = 1, sharding = 1, moe = 1;
    bool degreesStated = false;  // model_meta.json states the degrees
    bool wholeWeights = false;   // weights were consolidated over tensor-parallel ranks before saving

    // Row-major over (moe, pp, sharding, tp), as Paddle's topology counts.
    uint32_t rankOf(const RankPlace& at) const {
        return ((at.moe * pp + at.pp) * sharding + at.shard) * tp + at.tp;
    }
};

// Reads all metadata and, of rank files, everything but tensor data. Adds the files and notes to the catalog.
// Errors: unsupported if there are no such files, limit, cancelled, damaged metadata. An unreadable rank file
// is not an error.
Result<HybridFiles> readHybridFiles(const Source& source, const OpenOptions& options,
                                    TensorAssembly& assembly);

}  // namespace shardscope::paddle_nlp
