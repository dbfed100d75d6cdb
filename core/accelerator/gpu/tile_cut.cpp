#include "accelerator/gpu/tile_cut.h"

#include <algorithm>

#include "execute/values.h"

namespace shardscope {

bool cutFits(const TileTask& task) {
    const TileCut& cut = task.cut;
    if (cut.strips.empty() || cut.strips.size() > gpu::kMostStrips || !dtypeIsWholeBytes(task.to))
        return false;
    // A thread takes 16 bytes of the wider side; of six-bit values, one at a time.
    const int64_t unit =
        dtypeIsWholeBytes(task.from) ? 16 / std::max(dtypeBytes(task.from), dtypeBytes(task.to)) : 1;
    for (const int64_t number : {cut.columns, cut.strip, cut.begin, task.elements})
        if (number % unit != 0) return false;
    return cut.columns + task.elements < (int64_t{1} << 32);
}

PartCut partCut(const TileTask& task, int64_t first, int64_t elements) {
    const TileCut& cut = task.cut;
    const auto strips = static_cast<int64_t>(cut.strips.size());
    PartCut part;
    part.cut.columns = static_cast<gpu::u32>(cut.columns);
    part.cut.strip = static_cast<gpu::u32>(cut.strip);
    part.cut.last = static_cast<gpu::u32>(cut.width(strips - 1));
    part.cut.strips = static_cast<gpu::u32>(strips);
    const int64_t begin = (cut.begin + first) % cut.columns;
    part.cut.begin = static_cast<gpu::u32>(begin);
    int64_t at = 0;
    for (int64_t s = 0; s < strips; ++s) {
        // What is before the part's first element in its row is not there.
        const int64_t before = std::clamp<int64_t>(begin - s * cut.strip, 0, cut.width(s));
        part.cut.base[s] = static_cast<gpu::u64>(at - before);
        const int64_t from = cut.elementsOf(s, first), to = cut.elementsOf(s, first + elements);
        if (to > from)
            part.strips.push_back({static_cast<size_t>(s), bytesOfElements(task.to, at),
                                   bytesOfElements(task.to, from), bytesOfElements(task.to, to - from)});
        at += to - from;
    }
    return part;
}

}  // namespace shardscope
