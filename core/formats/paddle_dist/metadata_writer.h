// Writes the {id}.metadata of a Paddle distributed checkpoint.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "formats/format.h"

namespace shardscope::paddle {

struct MetadataPlan {
    const Catalog* catalog = nullptr;
    bool flex = true;  // classes of Paddle 3.3; false: of 3.0
    std::function<std::string(ChunkId)> fileName;
};

// Passes the pickle to `sink` in parts, in order.
Status writeMetadata(const MetadataPlan& plan, const std::function<Status(std::string_view)>& sink);

// numpy's type code for an array of the dtype, "f4"; empty if Paddle has no such tensors.
std::string_view arrayCode(DType dtype);
// Paddle's name of the dtype, "float32".
std::string_view paddleDTypeName(DType dtype);

}  // namespace shardscope::paddle
