// One tensor of a checkpoint as a file of its own, as `extract` and Python write it.
#pragma once

#include <string>

#include "answers/access.h"
#include "answers/json.h"

namespace shardscope {

struct ExtractRequest {
    std::string tensor;  // its FQN
    std::string file;    // .npy, .safetensors, or anything else for raw little-endian bytes
    bool overwrite = false;
};

struct Extracted {
    TensorId tensor = kNone;  // the written one: the named tensor or its master weight
    std::string note;         // what the file does not say, such as its true dtype; may be empty
};
// Errors: notFound, impossible (the file format cannot hold the dtype), usage (the file would be inside the
// checkpoint), exists, those of reading and writing.
Result<Extracted> extractTensor(const Access& access, const Checkpoint& checkpoint,
                                const ExtractRequest& request);
Json extractJson(const Catalog& catalog, const ExtractRequest& request,
                 const Extracted& done);  // shardscope.extract/1

}  // namespace shardscope
