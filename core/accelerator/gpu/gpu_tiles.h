// Tiles cast, counted and hashed by a GPU: the same bits as by the processor. Needs a driver and NVRTC at run
// time, nothing to build.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "execute/tile_compute.h"

namespace shardscope {

struct DeviceSpec {
    int device = 0;  // among those that this process sees; counted round where there are fewer
    std::string driver = "libcuda.so.1";
    std::vector<std::string> compilers{"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};  // any of them
};

class GpuTiles : public TileCompute {
  public:
    // Errors: unsupported (no driver, GPU or compiler), io (the driver refuses).
    static Result<std::unique_ptr<GpuTiles>> open(const DeviceSpec& spec);
    virtual const std::string& device() const = 0;  // for people: "NVIDIA H100 80GB HBM3"
    virtual const std::string& uuid() const = 0;    // 32 digits
};

// The program for NVRTC that casts and counts (kernel shardscope_cast), and the one that hashes
// (shardscope_digest). The first is empty where there is nothing to do: the same dtype, whose values nobody
// counts.
std::string castProgram(DType from, DType to);
std::string digestProgram();
// How they are started: threads of a block, and blocks of the cast. In the digest a block has a cell: a warp
// that chains, and eight threads for each of its 32 blocks.
constexpr unsigned kCastThreads = 256, kDigestThreads = 32 + 8 * 32;
unsigned castBlocks(DType from, DType to, int64_t elements);

}  // namespace shardscope
