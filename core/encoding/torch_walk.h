// From the object in a pickle to flat lists of tensors and objects, named as the catalog names them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "encoding/dtensor.h"
#include "encoding/pickle_globals.h"
#include "encoding/torch_tensor.h"
#include "model/catalog.h"
#include "model/value.h"

namespace shardscope::torch_save {

struct FoundTensor {
    std::string name;
    Path path;
    TorchTensor tensor;
    uint32_t special = kNone;  // index into Found::specials
    bool buffer = false;       // a module says so
    Dims shardOffsets;         // of a shard: where it is in its ShardedTensor
};

struct FoundObject {
    std::string name;
    Path path;
    NodeId node = kNoNode;
};

struct Found {
    std::vector<FoundTensor> tensors;
    std::vector<FoundObject> objects;
    std::vector<SpecialTensor> specials;
    std::vector<TensorPlacement> placements;  // one for each special tensor
    std::vector<Note> notes;
};

// `streamBytes`: length of the pickle. The walk may visit a multiple of it. So a small pickle that repeats
// its parts cannot name billions of entries. Errors: damaged (a malformed tensor), limit.
Result<Found> walk(const ValueGraph& graph, NodeId root, uint64_t streamBytes);

// Which process wrote a file, and the number of the accelerator that all of its tensors were on ("cuda:3"),
// those on the processor apart. The process is `rank`, as scripts keep it beside the state, or that in the
// arguments (megatron/training/arguments.py: args.rank is the process's number).
struct WrittenBy {
    std::optional<int64_t> process;
    std::optional<int> device;
};
WrittenBy writerOf(const ValueGraph& graph, const Found& found);

// ------------------------------------------------------------------ tensors that are not one dense array

// Whether the node stands for a tensor of any kind, or for a bare storage.
bool isTensorLike(const ValueGraph& graph, NodeId node);

struct SpecialPart {
    std::string name;  // "indices"
    TorchTensor tensor;
    Dims shardOffsets;  // of a shard of a ShardedTensor
};
struct Special {
    SpecialTensor about;  // without name and path
    std::vector<SpecialPart> parts;
    std::string warning;  // what is wrong with it, if anything is
    TensorPlacement placement;
};
// Takes apart what asTorchTensor() does not interpret. Errors: damaged.
Result<Special> asSpecial(const ValueGraph& graph, NodeId node);

}  // namespace shardscope::torch_save
