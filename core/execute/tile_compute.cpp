#include "execute/tile_compute.h"

#include <algorithm>

#include "execute/values.h"

namespace shardscope {
namespace {

class ProcessorCompute final : public TileCompute {
  public:
    std::string_view name() const override { return "cpu"; }
    Result<TileBuffers> room(size_t, size_t) override { return TileBuffers{}; }
    // The writer of the pieces gathers them.
    bool cuts(const TileTask&) const override { return false; }

    // Cell by cell, so that each is cast, counted and hashed while it is in the cache.
    Status run(const TileTask& task, TileFacts& facts) override {
        const bool casts = task.from != task.to;
        const int64_t perCell = digestCellElements(task.to);
        for (int64_t at = 0; at < task.elements; at += perCell) {
            const int64_t n = std::min(perCell, task.elements - at);
            const size_t begin = bytesOfElements(task.to, at), bytes = bytesOfElements(task.to, n);
            std::span<const std::byte> cell;
            if (casts) {
                const std::span<std::byte> into = task.cast.subspan(begin, bytes);
                castElements(task.from, task.read.data() + bytesOfElements(task.from, at), task.to,
                             into.data(), static_cast<size_t>(n));
                cell = into;
            } else {
                cell = task.read.subspan(begin, bytes);
            }
            if (task.scan) countValues(task.to, cell, facts.counts);
            facts.cells.push_back(cellDigest(cell));
        }
        return {};
    }
};

}  // namespace

TileCompute& processorCompute() {
    static ProcessorCompute processor;
    return processor;
}

}  // namespace shardscope
