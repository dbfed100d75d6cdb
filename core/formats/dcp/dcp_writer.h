// Lays out a DCP directory and writes its `.metadata`; also for Megatron-Core's torch_dist. Source of the
// facts: torch/distributed/checkpoint/{metadata,filesystem,default_planner}.py, as docs/formats/dcp.md lists
// them.
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
// Whether `.metadata` states the path of each name in the nested state dict (planner_data), or that names do
// not nest.
enum class NamePaths : uint8_t { written, none };
// One file for each rank; each chunk is its own torch.save archive. The last file is `.metadata`. `target`
// outlives the layout. Errors: limit, impossible.
Result<std::unique_ptr<TargetLayout>> layoutDcp(const Catalog& target, NamePaths paths = NamePaths::written);

// Where a chunk's or object's archive is in the destination, as `.metadata` states it.
struct BlobExtent {
    uint32_t file = 0;
    uint64_t offset = 0;
    uint64_t length = 0;
};

// What writeMetadata() needs. The pickle has protocol 2, and the classes and five tensor properties that
// torch 2.3 and later read.
struct MetadataPlan {
    const Catalog* catalog = nullptr;
    std::function<std::string(uint32_t file)> fileName;
    std::function<BlobExtent(TensorId tensor, const ChunkInfo& chunk)> chunkPlace;
    std::function<BlobExtent(ObjectId object)> objectPlace;
    uint32_t fileCount = 0;
    NamePaths paths = NamePaths::written;
};
// Passes the `.metadata` pickle to `sink` in parts of about 1 MiB.
Status writeMetadata(const MetadataPlan& plan, const std::function<Status(std::string_view)>& sink);

}  // namespace shardscope::dcp
