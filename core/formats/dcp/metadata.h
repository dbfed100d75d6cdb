// Decodes a DCP `.metadata` pickle to columns. Classes are recognized by name; nothing is imported, called or
// built as a Python object.
//
// Source of the facts: torch/distributed/checkpoint/metadata.py and filesystem.py of PyTorch 2.0 to 2.15, and
// CPython's pickletools; docs/formats/dcp.md lists them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/stop.h"
#include "encoding/text_table.h"
#include "formats/format.h"
#include "model/dtype.h"
#include "model/region.h"

namespace shardscope::dcp {

// A range of values in Metadata::dims. Equal shapes often share one range.
struct DimsRef {
    uint32_t at = 0;
    uint8_t rank = 0;
};

struct MetaTensor {
    TextId unknownDtype = kNone;  // name of an unknown dtype; kNone = see `dtype`
    DType dtype = DType::float32;
    DimsRef shape;
    uint32_t firstChunk = 0;  // in Metadata::chunks
    uint32_t endChunk = 0;
};

struct MetaChunk {
    uint32_t offsets = 0;  // offsets and lengths: index in Metadata::dims
    uint32_t lengths = 0;
    uint8_t rank = 0;  // number of dimensions of both
};

// One row of state_dict_metadata.
struct MetaEntry {
    TextId name = 0;
    uint32_t tensor = kNone;  // index in Metadata::tensors; kNone = an object, stored as bytes
};

// One row of storage_data.
struct MetaStored {
    uint64_t offset = 0;
    uint64_t length = 0;
    TextId name = 0;
    TextId path = 0;
    uint32_t place = kNone;   // the key's offsets in Metadata::dims; kNone: the key has none
    uint8_t rank = 0;         // number of dimensions of `place`
    uint16_t transforms = 0;  // index into Metadata::transforms; 0 = none
};
static_assert(sizeof(MetaStored) == 32);

// One row of planner_data that is not simply [name].
struct MetaPath {
    TextId name = 0;
    uint64_t at = 0;  // range of Metadata::pathBytes, encoded as model/path.h does
    uint32_t length = 0;
};

// A tensor that Megatron-Core 0.6 to 0.15 stored as flat ranges, which DCP chunks cannot express. A tensor of
// shape [X, Y] whose ranks hold boxes of shape [x, y] is stored with shape [X/x, Y/y, x*y]. A chunk at [i, j,
// start] with lengths [1, 1, n] holds elements [start, start + n) of the box at [i*x, j*y]. `shape` is [X,
// Y], from Metadata.mcore_data[name]["nd_reformulated_orig_global_shape"]. Source:
// megatron/core/dist_checkpointing/strategies/{torch,resharding}.py of megatron-core 0.12.3.
struct MetaReformulated {
    TextId name = 0;
    DimsRef shape;
};

struct ForeignGlobal {
    std::string name;     // "module.name"
    bool called = false;  // a REDUCE asks for a call of it
    uint64_t offset = 0;
};

struct Metadata {
    TextTable texts;
    std::vector<int64_t> dims;
    std::vector<MetaEntry> entries;
    std::vector<MetaTensor> tensors;
    std::vector<MetaChunk> chunks;
    std::vector<MetaStored> stored;
    std::vector<MetaPath> paths;
    std::string pathBytes;
    std::vector<MetaReformulated> reformulated;
    std::vector<std::vector<std::string>> transforms;
    std::vector<ForeignGlobal> foreign;

    // Properties that tell the writer's generation.
    int protocol = 0;
    bool oldProperties = false;  // TensorProperties of torch.distributed._shard
    bool sixProperties = false;  // strides among the tensor properties
    bool hasStorageMeta = false;
    bool storageMetaModules = false;
    std::string version;  // Metadata.version where it is a text

    DimSpan dimsOf(uint32_t at, uint8_t rank) const { return DimSpan(dims).subspan(at, rank); }
    DimSpan dimsOf(DimsRef ref) const { return dimsOf(ref.at, ref.rank); }
};

// Errors: damaged with the byte offset; unsupported (the layouts of torch 1.12 and 1.13, protocols above 5);
// limit.
Result<Metadata> decodeMetadata(const ReadFile& file, const Limits& limits, const StopToken& stop);

// The row of storage_data of each chunk and each object.
struct StorageJoin {
    std::vector<uint32_t> chunkRow;   // per MetaChunk; kNone = no row
    uint64_t missing = 0;             // chunks of tensors without a row
    std::vector<uint32_t> objectRow;  // per MetaEntry; kNone = a tensor, or no row
    std::vector<uint32_t> orphans;    // rows of no chunk or object, at most kMaxOrphans
    uint64_t orphanCount = 0;
    static constexpr size_t kMaxOrphans = 100;
};
StorageJoin joinStorage(const Metadata& metadata);

}  // namespace shardscope::dcp
