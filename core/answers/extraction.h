// One tensor of a checkpoint as a file of its own, as `extract` and Python write it.
#pragma once

#include <string>

#include "answers/access.h"
#include "answers/json.h"

namespace shardscope {

struct ExtractRequest {
    std::string tensor;  // its full name
    std::string file;    // .npy, .safetensors, or anything else for raw little-endian bytes
    bool overwrite = false;
};

struct Extracted {
    TensorId tensor = kNone;  // that was written: the one that was named, or its master
    std::string note;         // what the file cannot say; may be empty
};
// Errors: notFound, impossible (a dtype that the file has no place for), usage (a file of the checkpoint),
// exists, those of reading and writing.
Result<Extracted> extractTensor(const Access& access, const Checkpoint& checkpoint,
                                const ExtractRequest& request);
Json extractJson(const Catalog& catalog, const ExtractRequest& request,
                 const Extracted& done);  // shardscope.extract/1

}  // namespace shardscope
