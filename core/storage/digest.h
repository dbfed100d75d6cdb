// Digests of tensors that do not depend on format or sharding. They are taken over the tensor's own row-major
// order, on a grid that depends on the tensor alone.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/dtype.h"
#include "model/region.h"

namespace shardscope {

// Bytes in one cell of the digest grid (the last cell of a tensor may be shorter). A work tile is a whole
// number of cells. These are whole elements of every dtype but the 6-bit ones, whose cells are a little
// smaller: kDigestCellBytes * 8 / 6 elements, rounded down to a multiple of 4.
constexpr uint64_t kDigestCellBytes = uint64_t{1} << 20;

// Elements in a full cell.
int64_t digestCellElements(DType dtype);

struct Digest128 {
    uint64_t low = 0;
    uint64_t high = 0;
    bool operator==(const Digest128&) const = default;
    std::string hex() const;  // 32 digits, high first
};

// XXH3-128 of one cell's bytes.
Digest128 cellDigest(std::span<const std::byte> bytes);

// Tile digest of a tensor: XXH3-128 over dtype name, rank, shape (8-byte little-endian each) and the cells'
// digests in order.
Digest128 tensorDigest(DType dtype, DimSpan shape, std::span<const Digest128> cells);

// Streaming digests over bytes in order.
class StreamDigest {
  public:
    virtual ~StreamDigest() = default;
    virtual void update(std::span<const std::byte> bytes) = 0;
    virtual std::string hex() = 0;
};
std::unique_ptr<StreamDigest> makeSha256();
std::unique_ptr<StreamDigest> makeCrc32();

// CRC-32 as in zip: of bytes, of bytes that follow those of `crc`, and of two neighboring ranges joined.
uint32_t crc32Of(std::span<const std::byte> bytes);
uint32_t crc32Continue(uint32_t crc, std::span<const std::byte> bytes);
uint32_t crc32Combine(uint32_t first, uint32_t second, uint64_t secondLength);

}  // namespace shardscope
