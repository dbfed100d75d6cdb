// Writing {id}.metadata.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "formats/format.h"

namespace shardscope::paddle {

struct MetadataPlan {
    const Catalog* catalog = nullptr;
    bool flex = true;  // fields and module of 3.3, else of 3.0
    std::function<std::string(ChunkId)> fileName;
};

// Calls `sink` with the pieces of the pickle, in order.
Status writeMetadata(const MetadataPlan& plan, const std::function<Status(std::string_view)>& sink);

// numpy's code for an array that holds elements of the dtype, "f4"; empty when Paddle has no such tensors.
std::string_view arrayCode(DType dtype);
// Paddle's name of it, "float32".
std::string_view paddleDTypeName(DType dtype);

}  // namespace shardscope::paddle
