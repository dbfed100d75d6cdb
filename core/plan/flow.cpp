#include "plan/flow.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "model/coverage.h"
#include "plan/view.h"

namespace shardscope {

namespace {

// A box of a stored chunk; flat ranges are several.
struct Stored {
    Box box;
    FileId file = kNone;
};

uint32_t rankOf(const ChunkInfo& chunk) {
    return chunk.rank == kNone ? 0 : chunk.rank;
}

// Boxes of a tensor, for asking which of them meet a box: sorted along the dimension that is cut most.
class StoredTensor {
  public:
    StoredTensor(const Catalog& source, TensorId tensor) {
        const size_t dims = source.shape(tensor).size();
        std::vector<std::set<int64_t>> starts(dims);
        for (const ChunkId c : coveringChunks(source, tensor)) {  // as they are read
            const ChunkInfo chunk = source.chunk(tensor, c);
            if (chunk.file == kNone || chunk.elements() == 0) continue;
            for (Box& box : boxesOf(chunk)) {
                for (size_t d = 0; d < dims; ++d)
                    starts[d].insert(box.offsets[d]);
                boxes_.push_back({std::move(box), chunk.file});
            }
        }
        for (size_t d = 1; d < dims; ++d) {
            if (starts[d].size() > starts[sorted_].size()) sorted_ = d;
        }
        if (dims == 0) return;
        std::ranges::sort(boxes_, {}, [this](const Stored& s) { return s.box.offsets[sorted_]; });
        for (const Stored& s : boxes_)
            longest_ = std::max(longest_, s.box.lengths[sorted_]);
    }

    // Calls take(file, elements) for each that meets `box`.
    template <class Take>
    void meeting(const Box& box, Take&& take) const {
        auto at = boxes_.begin();
        if (!box.offsets.empty()) {
            const int64_t from = box.offsets[sorted_] - longest_;
            at = std::ranges::upper_bound(boxes_, from, {},
                                          [this](const Stored& s) { return s.box.offsets[sorted_]; });
        }
        for (; at != boxes_.end(); ++at) {
            if (!box.offsets.empty() &&
                at->box.offsets[sorted_] >= box.offsets[sorted_] + box.lengths[sorted_])
                break;
            const auto both = intersect(box.offsets, box.lengths, at->box.offsets, at->box.lengths);
            if (both) take(at->file, elementCount(both->lengths));
        }
    }
    const std::vector<Stored>& boxes() const { return boxes_; }

  private:
    std::vector<Stored> boxes_;
    size_t sorted_ = 0;
    int64_t longest_ = 0;
};

class FlowCount {
  public:
    explicit FlowCount(const Catalog& source) : source_(source) {}

    void add(FileId file, uint32_t rank, uint64_t bytes) {
        auto& [sum, pieces] = sums_[uint64_t{file} << 32 | rank];
        sum += bytes;
        ++pieces;
    }

    void addTensor(const Catalog& target, TensorId wanted, TensorId from) {
        const StoredTensor stored(source_, from);
        const int64_t bits = dtypeBits(source_.dtype(from));
        for (ChunkId c = target.firstChunk(wanted); c < target.endChunk(wanted); ++c) {
            const ChunkInfo chunk = target.chunk(wanted, c);
            for (const Box& box : boxesOf(chunk)) {
                stored.meeting(box, [&](FileId file, int64_t elements) {
                    add(file, rankOf(chunk), static_cast<uint64_t>(elements * bits + 7) / 8);
                });
            }
        }
    }

    void addView(const Catalog& target, TensorId wanted, const TensorSource& from) {
        const auto all = static_cast<double>(std::max<int64_t>(1, target.elements(wanted)));
        std::map<uint32_t, double> shares;  // by rank
        for (ChunkId c = target.firstChunk(wanted); c < target.endChunk(wanted); ++c) {
            const ChunkInfo chunk = target.chunk(wanted, c);
            shares[rankOf(chunk)] += static_cast<double>(chunk.elements()) / all;
        }
        for (const TensorId t : from.tensors()) {
            const StoredTensor stored(source_, t);
            for (const Stored& s : stored.boxes()) {
                const double bytes = static_cast<double>(elementCount(s.box.lengths)) *
                                     static_cast<double>(dtypeBits(source_.dtype(t))) / 8;
                for (const auto& [rank, share] : shares)
                    add(s.file, rank, static_cast<uint64_t>(bytes * share));
            }
        }
    }

    std::vector<Flow::Row> rows() const {
        std::vector<Flow::Row> rows;
        rows.reserve(sums_.size());
        for (const auto& [key, sum] : sums_)
            rows.push_back(
                {static_cast<FileId>(key >> 32), static_cast<uint32_t>(key), sum.first, sum.second});
        std::ranges::sort(rows, {}, [](const Flow::Row& row) { return std::pair(row.file, row.rank); });
        return rows;
    }

  private:
    const Catalog& source_;
    std::unordered_map<uint64_t, std::pair<uint64_t, uint64_t>> sums_;  // by file and rank
};

}  // namespace

std::vector<Box> boxesOf(const ChunkInfo& chunk) {
    if (chunk.flat) return flatRangeBoxes(chunk.offsets, chunk.lengths, *chunk.flat);
    return {Box{{chunk.offsets.begin(), chunk.offsets.end()}, {chunk.lengths.begin(), chunk.lengths.end()}}};
}

Result<Flow> flowOf(const Catalog& source, const TargetSpec& spec, const StopToken& stop) {
    Flow flow;
    FlowCount count(source);
    const Catalog& target = spec.target;
    for (TensorId w = 0; w < target.tensorCount(); ++w) {
        if (w % 64 == 0) SHARDSCOPE_TRY(stop.poll());
        if (target.aliasOf(w) != kNone) continue;
        const TensorSource& from = spec.sources[w];
        if (from.view) {
            flow.exact = flow.exact && target.rankCount() < 2;
            count.addView(target, w, from);
        } else if (from.source != kNone) {
            count.addTensor(target, w, from.source);
        }
    }
    flow.rows = count.rows();
    return flow;
}

}  // namespace shardscope
