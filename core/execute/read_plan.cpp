#include "execute/read_plan.h"

#include <algorithm>
#include <map>

#include "base/thread_pool.h"
#include "model/coverage.h"
#include "storage/planned_reads.h"

namespace shardscope {
namespace {

constexpr uint64_t kLeastShare = uint64_t{32} << 20;  // bytes; fewer hold too few requests to be of use

using RangesByFile = std::map<FileId, std::vector<PlannedRange>>;

RangesByFile rangesOf(const Catalog& catalog, const std::vector<TensorId>& tensors) {
    RangesByFile ranges;
    for (const TensorId t : tensors) {
        if (t >= catalog.tensorCount()) continue;
        for (const ChunkId id : coveringChunks(catalog, t)) {
            const ChunkInfo chunk = catalog.chunk(t, id);
            if (chunk.file >= catalog.files().size() || chunk.length == 0 ||
                chunk.length > UINT64_MAX - chunk.offset)
                continue;
            const auto bytes = dtypeByteCount(catalog.dtype(t), static_cast<uint64_t>(chunk.elements()));
            ranges[chunk.file].push_back({chunk.offset, chunk.offset + chunk.length,
                                          std::min(chunk.length, bytes.value_or(chunk.length))});
        }
    }
    return ranges;
}

// In order, and without overlaps; such are of damaged files, or of names of one tensor.
void tidy(std::vector<PlannedRange>& ranges) {
    std::ranges::sort(ranges, {}, &PlannedRange::begin);
    size_t kept = 0;
    for (const PlannedRange& range : ranges) {
        if (kept > 0 && range.begin < ranges[kept - 1].end) continue;
        ranges[kept++] = range;
    }
    ranges.resize(kept);
}

}  // namespace

ReadPlan::ReadPlan(const SourceContext& context, const std::vector<TensorId>& tensors) {
    const uint64_t share = context.resources.memory->limit() / 4;
    if (!MostlyWaiting::any() || share < kLeastShare) return;
    for (auto& [file, ranges] : rangesOf(context.reader.catalog(), tensors)) {
        const auto opened = context.reader.openFile(file);
        const auto* planned = opened.ok() ? dynamic_cast<const PlannedReads*>(opened->get()) : nullptr;
        if (!planned) continue;
        tidy(ranges);
        plans_.push_back(planned->plan(std::move(ranges), share));
    }
    if (!plans_.empty()) lease_ = context.resources.memory->acquire(share);
}

}  // namespace shardscope
