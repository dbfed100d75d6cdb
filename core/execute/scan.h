// Scans that belong to a larger job: its counters, its progress phase. Private to this room.
#pragma once

#include <map>
#include <mutex>

#include "execute/executor.h"
#include "execute/tensor_reader.h"

namespace shardscope {

struct TileSizes {
    uint64_t preferred = 0;  // bytes, a whole number of digest cells
    uint64_t largest = 0;    // for tensors that are cut in very many pieces
};
// From the memory limit and the number of workers, unless `wanted` is given.
TileSizes tileSizes(const Resources& resources, uint64_t target = 0);

// Tiles of `tileBytes` (source or result, whichever is wider) of a tensor that becomes `to`.
TileGrid tileGrid(int64_t elements, DType from, DType to, uint64_t tileBytes);
// Tiles of a tensor that becomes `dtype`.
TileGrid tileGrid(const ElementReader& source, DType dtype, const TileSizes& sizes);

inline void addCounts(ValueCounts& to, const ValueCounts& from) {
    to.elements += from.elements;
    to.nan += from.nan;
    to.inf += from.inf;
    to.zero += from.zero;
}

// The number of digest cells of a tensor.
size_t cellCount(const Catalog& catalog, TensorId tensor);
// Bytes of those of the tensors that the catalog has.
uint64_t bytesOf(const Catalog& catalog, const std::vector<TensorId>& tensors);

// Digests of the cells in `bytes`, which begin with a cell; adds the counts of their values to `counts`
// unless it is null.
std::vector<Digest128> cellDigests(DType dtype, std::span<const std::byte> bytes, ValueCounts* counts);

// Cell digests as a record keeps them, and back; empty if the bytes are not a whole number of digests.
std::string cellBytes(const std::vector<Digest128>& cells);
std::vector<Digest128> cellsFrom(std::string_view bytes);

// Puts the digests of tensors together from their tiles. Thread-safe. It holds cells of those tensors only of
// which some tiles were added and finish() was not called.
class DigestCollector {
  public:
    // `counts`: counts values too.
    DigestCollector(const Catalog& catalog, bool counts) : catalog_(catalog), counts_(counts) {}
    void add(const TileView& tile);
    TensorDigest finish(TensorId tensor);  // after its last tile

  private:
    struct Open {
        std::vector<Digest128> cells;
        ValueCounts counts;
    };
    const Catalog& catalog_;
    const bool counts_;
    std::mutex mutex_;
    std::map<TensorId, Open> open_;
};

// A task that calls `visit` with each tile of one tensor, then `finished`.
Result<std::unique_ptr<TensorTask>> scanWork(SourceContext& context, TensorId tensor, const TileSizes& sizes,
                                             WorkerMemory& kept, std::function<Status(const TileView&)> visit,
                                             std::function<Status(TensorId)> finished = nullptr);

// As scanTensors; `finished(tensor)` follows the last tile of each.
Status scanSource(SourceContext& context, const std::vector<TensorId>& tensors, const ScanOptions& options,
                  const std::function<Status(const TileView&)>& visit,
                  const std::function<Status(TensorId)>& finished);

Result<std::vector<TensorDigest>> digestSource(SourceContext& context, const std::vector<TensorId>& tensors,
                                               const ScanOptions& options, bool countToo);

}  // namespace shardscope
