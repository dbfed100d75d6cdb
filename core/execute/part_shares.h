// How the tiles of a conversion are dealt out to its parts: in the order of their bytes in the destination,
// in ranges of equal bytes, from nothing but the plan. Private to this room.
#pragma once

#include <functional>
#include <vector>

#include "execute/executor.h"
#include "execute/identity.h"
#include "execute/journal.h"

namespace shardscope {

// Tensors to write, in the order of their first byte in the destination (convert.cpp).
std::vector<TensorId> workOrder(const ConvertJob& job);

class PartShares {
  public:
    PartShares(const ConvertJob& job, uint32_t count);  // `job` outlives it

    // Each tile once, in order, with the part that does it.
    void forEach(
        const std::function<void(uint32_t part, TensorId tensor, int64_t tile, uint64_t bytes)>& visit) const;
    // What all parts must have in common.
    JournalHeader header(const std::vector<SourceFile>& files) const;
    // The parts of which a tile is not among these, in order.
    std::vector<uint32_t> openParts(const std::vector<JournalTile>& done) const;

  private:
    const ConvertJob& job_;
    const uint32_t count_;
    const std::vector<TensorId> tensors_;
    uint64_t total_ = 0;
    uint64_t tileBytes_ = 0;
};

}  // namespace shardscope
