#include "survey/matrix_parts.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string_view>
#include <unordered_map>

#include "survey/layer_name.h"

namespace shardscope {

namespace {

constexpr size_t kMostAlternatives = 512;
constexpr uint32_t kMostDeclaredRanks = 1 << 20;  // beyond that only ranks that hold something are columns

bool sameHealth(const Catalog& c, const Facts* facts, TensorId a, TensorId b) {
    if (!facts) return true;
    const auto of = [&](TensorId t) {
        return std::span(facts->chunkHealth).subspan(c.firstChunk(t), c.endChunk(t) - c.firstChunk(t));
    };
    return facts->tensorHealth[a] == facts->tensorHealth[b] && std::ranges::equal(of(a), of(b));
}

}  // namespace

uint64_t mix(uint64_t hash, uint64_t value) {
    hash ^= value + 0x9e3779b97f4a7c15 + (hash << 6) + (hash >> 2);
    hash *= 0xff51afd7ed558ccd;
    return hash ^ (hash >> 33);
}

// With the part of its tensor that the chunk holds.
uint64_t mixPlace(uint64_t hash, const ChunkInfo& chunk) {
    for (size_t d = 0; d < chunk.offsets.size(); ++d)
        hash =
            mix(mix(hash, static_cast<uint64_t>(chunk.offsets[d])), static_cast<uint64_t>(chunk.lengths[d]));
    if (chunk.flat)
        hash =
            mix(mix(hash, static_cast<uint64_t>(chunk.flat->start)), static_cast<uint64_t>(chunk.flat->stop));
    return hash;
}

std::optional<std::vector<uint32_t>> ranksOfColumns(const Catalog& c, const StopToken& stop) {
    std::vector<uint8_t> seen(c.rankCount() <= kMostDeclaredRanks ? c.rankCount() : 0, 1);
    std::vector<uint32_t> far;
    const auto note = [&](uint32_t rank) {
        if (rank == kNone) rank = 0;
        if (rank < kMostDeclaredRanks) {
            if (rank >= seen.size()) seen.resize(rank + 1, 0);
            seen[rank] = 1;
        } else {
            far.push_back(rank);
        }
    };
    for (TensorId t = 0; t < c.tensorCount(); ++t) {
        if (t % 1024 == 0 && stop.stopRequested()) return std::nullopt;
        for (ChunkId i = c.firstChunk(t); i < c.endChunk(t); ++i) {
            const uint32_t rank = c.chunk(t, i).rank;
            if (rank >= seen.size() || !seen[rank]) note(rank);
        }
    }
    for (const FileInfo& file : c.files()) {
        if (file.rank != kNone && file.referenced && !file.metadata) note(file.rank);
    }
    std::vector<uint32_t> ranks;
    for (uint32_t r = 0; r < seen.size(); ++r) {
        if (seen[r]) ranks.push_back(r);
    }
    std::sort(far.begin(), far.end());
    far.erase(std::unique(far.begin(), far.end()), far.end());
    ranks.insert(ranks.end(), far.begin(), far.end());
    return ranks;
}

std::vector<int> orderAxes(const std::vector<int>& asked, size_t count) {
    std::vector<int> order;
    const auto add = [&](int axis) {
        if (axis >= 0 && static_cast<size_t>(axis) < count && std::ranges::find(order, axis) == order.end())
            order.push_back(axis);
    };
    std::ranges::for_each(asked, add);
    for (size_t axis = 0; axis < count; ++axis)
        add(static_cast<int>(axis));
    return order;
}

void RankToPlace::hold(uint64_t hash) {
    held.first += hash;
    held.second += mix(hash, 0x5bd1e995);
}

std::pair<std::vector<MatrixColumn>, std::vector<uint32_t>> columnsOf(const std::vector<RankToPlace>& ranks,
                                                                      bool fold) {
    std::vector<uint32_t> order(ranks.size());
    std::iota(order.begin(), order.end(), 0U);
    std::ranges::stable_sort(
        order, [&](uint32_t a, uint32_t b) { return ranks[a].coordinates < ranks[b].coordinates; });
    std::vector<MatrixColumn> columns;
    std::vector<uint32_t> columnOf(ranks.size());
    std::map<std::pair<std::pair<uint64_t, uint64_t>, bool>, uint32_t> alike;
    for (const uint32_t at : order) {
        const RankToPlace& from = ranks[at];
        uint32_t column = static_cast<uint32_t>(columns.size());
        if (fold) column = alike.try_emplace({from.held, from.fileMissing}, column).first->second;
        if (column == columns.size()) {
            MatrixColumn& next = columns.emplace_back();
            next.rank = from.rank;
            next.fileMissing = from.fileMissing;
            for (const uint32_t coordinate : from.coordinates)
                next.places.emplace_back(coordinate, coordinate);
        }
        MatrixColumn& into = columns[column];
        into.ranks.push_back(from.rank);
        for (size_t axis = 0; axis < from.coordinates.size(); ++axis) {
            auto& [least, greatest] = into.places[axis];
            least = std::min(least, from.coordinates[axis]);
            greatest = std::max(greatest, from.coordinates[axis]);
        }
        columnOf[at] = column;
    }
    for (MatrixColumn& column : columns)
        std::sort(column.ranks.begin(), column.ranks.end());
    return {std::move(columns), std::move(columnOf)};
}

std::optional<std::vector<TensorGroup>> groupTensors(const Catalog& c, const Facts* facts,
                                                     const std::vector<TensorId>& order, bool fold,
                                                     const StopToken& stop) {
    std::vector<TensorGroup> groups;
    std::unordered_map<uint64_t, std::vector<uint32_t>> alike;
    size_t seen = 0;
    for (const TensorId t : order) {
        if (seen++ % 256 == 0 && stop.stopRequested()) return std::nullopt;
        const LayerName name = fold ? splitLayer(c.name(t)) : LayerName{};
        if (name.number < 0) {
            groups.push_back({{t}, -1, -1, 0});
            continue;
        }
        const std::hash<std::string_view> hashOf;
        const uint64_t form = mix(hashOf(name.before), hashOf(name.after));
        uint64_t key = mix(mix(form, c.cutHash(t)), static_cast<uint64_t>(c.dtype(t)));
        key = mix(key, static_cast<uint64_t>(facts ? facts->tensorHealth[t] : Health::ok));
        std::vector<uint32_t>& candidates = alike[key];
        const auto found = std::ranges::find_if(candidates, [&](uint32_t g) {
            const TensorId other = groups[g].tensors.front();
            const LayerName otherName = splitLayer(c.name(other));
            return otherName.before == name.before && otherName.after == name.after &&
                   c.dtype(other) == c.dtype(t) && c.sameCut(other, t) && sameHealth(c, facts, other, t);
        });
        if (found != candidates.end()) {
            TensorGroup& group = groups[*found];
            group.tensors.push_back(t);
            group.first = std::min(group.first, name.number);
            group.last = std::max(group.last, name.number);
            continue;
        }
        candidates.push_back(static_cast<uint32_t>(groups.size()));
        groups.push_back({{t}, name.number, name.number, form});
    }
    return groups;
}

std::vector<uint32_t> pinsOf(const std::vector<TensorGroup>& groups, const std::vector<TensorId>& pinned) {
    std::vector<uint32_t> pins(groups.size(), kNone);
    if (pinned.empty()) return pins;
    std::unordered_map<TensorId, uint32_t> numbers;
    for (const TensorId t : pinned)
        numbers.emplace(t, static_cast<uint32_t>(numbers.size()));
    for (size_t g = 0; g < groups.size(); ++g) {
        for (const TensorId t : groups[g].tensors) {
            if (const auto at = numbers.find(t); at != numbers.end()) pins[g] = std::min(pins[g], at->second);
        }
    }
    return pins;
}

std::vector<uint32_t> orderRows(const std::vector<TensorGroup>& groups, const std::vector<uint32_t>& pins) {
    std::unordered_map<uint64_t, std::vector<uint32_t>> sameForm;
    for (uint32_t g = 0; g < groups.size(); ++g) {
        if (groups[g].first >= 0) sameForm[groups[g].form].push_back(g);
    }
    std::vector<uint32_t> host(groups.size());
    std::iota(host.begin(), host.end(), 0U);
    for (const auto& [form, list] : sameForm) {
        if (list.size() > kMostAlternatives) continue;  // next to nothing repeats: the order says enough
        for (const uint32_t g : list) {
            uint32_t best = g;
            for (const uint32_t h : list) {
                if (groups[h].first < groups[g].first && groups[h].last > groups[g].last && h < g &&
                    groups[h].tensors.size() > groups[g].tensors.size() &&
                    (best == g || groups[h].tensors.size() > groups[best].tensors.size()))
                    best = h;
            }
            host[g] = best;
        }
    }
    std::vector<uint32_t> order(groups.size());
    std::iota(order.begin(), order.end(), 0U);
    std::ranges::stable_sort(order, [&](uint32_t a, uint32_t b) {
        return pins[a] != pins[b] ? pins[a] < pins[b] : host[a] < host[b];
    });
    return order;
}

std::pair<int, int> drawnDimensions(const std::vector<uint32_t>& cuts) {
    if (cuts.size() < 2) return {-1, static_cast<int>(cuts.size()) - 1};
    std::vector<int> dims(cuts.size());
    std::iota(dims.begin(), dims.end(), 0);
    std::ranges::stable_sort(
        dims, [&](int a, int b) { return cuts[static_cast<size_t>(a)] > cuts[static_cast<size_t>(b)]; });
    return std::minmax({dims[0], dims[1]});
}

void addSlice(RowDetail& detail, DimSpan shape, DimSpan offsets, DimSpan lengths) {
    constexpr uint32_t kMostSlices = 16;  // of one cell; the last then spans the others
    const auto span = [&](int dim) {
        if (dim < 0) return std::pair(0.F, 1.F);
        const auto d = static_cast<size_t>(dim);
        const auto edge = [&](int64_t at) {
            return shape[d] > 0 ? static_cast<float>(static_cast<double>(at) / static_cast<double>(shape[d]))
                                : 0.F;
        };
        return std::pair(edge(offsets[d]), edge(offsets[d] + lengths[d]));
    };
    const auto [left, right] = span(detail.across);
    const auto [top, bottom] = span(detail.down);
    MatrixCell& cell = detail.cells.back();
    if (cell.slices == kMostSlices) {
        RowDetail::Slice& last = detail.slices.back();
        last = {std::min(last.left, left), std::min(last.top, top), std::max(last.right, right),
                std::max(last.bottom, bottom)};
        return;
    }
    ++cell.slices;
    detail.slices.push_back({left, top, right, bottom});
}

void markCopies(const Catalog& c, TensorId t, const std::vector<std::pair<uint32_t, ChunkId>>& chunks,
                const std::vector<uint64_t>& held, std::vector<MatrixCell>& cells) {
    std::vector<size_t> begins;  // of each cell in `chunks`
    const auto same = [&](size_t a, size_t b) {
        if (cells[a].chunks != cells[b].chunks) return false;
        for (size_t i = 0; i < cells[a].chunks; ++i) {
            const ChunkInfo x = c.chunk(t, chunks[begins[a] + i].second);
            const ChunkInfo y = c.chunk(t, chunks[begins[b] + i].second);
            if (!std::ranges::equal(x.offsets, y.offsets) || !std::ranges::equal(x.lengths, y.lengths) ||
                x.flat != y.flat)
                return false;
        }
        return true;
    };
    std::unordered_multimap<uint64_t, size_t> seen;
    size_t begin = 0;
    for (size_t at = 0; at < cells.size(); begin += cells[at++].chunks) {
        begins.push_back(begin);
        if (cells[at].share <= 0) continue;
        const auto [from, to] = seen.equal_range(held[at]);
        const auto first = std::find_if(from, to, [&](const auto& entry) { return same(entry.second, at); });
        if (first != to)
            cells[at].copyOf = cells[first->second].column;
        else
            seen.emplace(held[at], at);
    }
}

}  // namespace shardscope
