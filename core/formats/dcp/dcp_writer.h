// How a DCP directory is laid out and its `.metadata` written; Megatron-Core's torch_dist is such a
// directory, too. Source of the facts: torch/distributed/checkpoint/{metadata,filesystem,default_planner}.py,
// as docs/formats/dcp.md lists them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "formats/format.h"

namespace shardscope::dcp {

// What DCP cannot hold of a target, and why.
std::vector<LeftOut> cannotHoldInDcp(const Catalog& target, const WriteOptions& options);
// Whether `.metadata` says where each name stands in the nested state dict (planner_data), or that names do
// not nest.
enum class NamePaths : uint8_t { written, none };
// One file for each rank; every chunk is an archive of its own. The last file is `.metadata`. `target`
// outlives the layout. Errors: limit, impossible.
Result<std::unique_ptr<TargetLayout>> layoutDcp(const Catalog& target, NamePaths paths = NamePaths::written);

// Where the blobs of a checkpoint that is written are: what `.metadata` says.
struct BlobExtent {
    uint32_t file = 0;
    uint64_t offset = 0;
    uint64_t length = 0;
};

// The `.metadata` pickle, handed out in pieces of about a MiB. Protocol 2, the classes and five tensor
// properties that every torch from 2.3 on reads.
struct MetadataPlan {
    const Catalog* catalog = nullptr;
    std::function<std::string(uint32_t file)> fileName;
    std::function<BlobExtent(TensorId tensor, const ChunkInfo& chunk)> chunkPlace;
    std::function<BlobExtent(ObjectId object)> objectPlace;
    uint32_t fileCount = 0;
    NamePaths paths = NamePaths::written;
};
Status writeMetadata(const MetadataPlan& plan, const std::function<Status(std::string_view)>& sink);

}  // namespace shardscope::dcp
