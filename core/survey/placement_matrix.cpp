#include "survey/placement_matrix.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <string_view>
#include <unordered_map>

#include "model/coverage.h"
#include "survey/layer_name.h"

namespace shardscope {

namespace {

constexpr size_t kPyramidBudget = size_t{16} << 20;
constexpr size_t kMostAlternatives = 512;
constexpr uint32_t kMostDeclaredRanks = 1 << 20;  // beyond that only ranks that hold something are columns

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

}  // namespace

// ------------------------------------------------------------------ bytes of cells

uint8_t PlacementMatrix::cellByte(Health health, double share) {
    constexpr uint8_t severe[] = {0, 170, 180, 190, 200, 220, 240};
    if (health != Health::ok) return severe[static_cast<int>(health)];
    const double scale = share > 0 ? std::clamp(1 + std::log2(share) / 14, 0.0, 1.0) : 0;
    return static_cast<uint8_t>(1 + std::lround(158 * scale));
}

Health PlacementMatrix::healthOfByte(uint8_t value) {
    if (value < 165) return Health::ok;
    if (value < 175) return Health::unread;
    if (value < 185) return Health::nonFinite;
    if (value < 195) return Health::differs;
    if (value < 210) return Health::overlap;
    return value < 230 ? Health::missing : Health::gap;
}

double PlacementMatrix::shareOfByte(uint8_t value) {
    return value <= 1 ? 0 : std::min(1.0, (value - 1) / 158.0);
}

// ------------------------------------------------------------------ building

std::shared_ptr<const PlacementMatrix> PlacementMatrix::build(std::shared_ptr<const Checkpoint> checkpoint,
                                                              std::shared_ptr<const ModuleTree> tree,
                                                              std::shared_ptr<const Facts> facts,
                                                              const MatrixOptions& options,
                                                              const StopToken& stop) {
    std::shared_ptr<PlacementMatrix> matrix(new PlacementMatrix);
    matrix->checkpoint_ = std::move(checkpoint);
    matrix->tree_ = std::move(tree);
    matrix->facts_ = std::move(facts);
    if (!matrix->makeColumns(options, stop) || !matrix->makeRows(options, stop) || !matrix->fillPyramid(stop))
        return nullptr;
    return matrix;
}

bool PlacementMatrix::makeColumns(const MatrixOptions& options, const StopToken& stop) {
    const Catalog& c = catalog();
    // Ranks that are declared, that hold something, or whose file the metadata names.
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
        if (t % 1024 == 0 && stop.stopRequested()) return false;
        for (ChunkId i = c.firstChunk(t); i < c.endChunk(t); ++i) {
            const uint32_t rank = c.chunk(t, i).rank;
            if (rank >= seen.size() || !seen[rank]) note(rank);
        }
    }
    for (const FileInfo& file : c.files()) {
        if (file.rank != kNone && file.referenced && !file.metadata) note(file.rank);
    }
    for (uint32_t r = 0; r < seen.size(); ++r) {
        if (seen[r]) ranks_.push_back(r);
    }
    std::sort(far.begin(), far.end());
    far.erase(std::unique(far.begin(), far.end()), far.end());
    ranks_.insert(ranks_.end(), far.begin(), far.end());
    denseRanks_ = ranks_.empty() || ranks_.back() == ranks_.size() - 1;

    const std::optional<Mesh> mesh = facts_ ? facts_->mesh : c.mesh();
    const bool placed = mesh && !mesh->axes.empty() && !ranks_.empty() && ranks_.back() < mesh->ranks();
    if (placed) {
        for (const int axis : options.axes) {
            if (axis >= 0 && static_cast<size_t>(axis) < mesh->axes.size() &&
                std::find(axisOrder_.begin(), axisOrder_.end(), axis) == axisOrder_.end())
                axisOrder_.push_back(axis);
        }
        for (size_t axis = 0; axis < mesh->axes.size(); ++axis) {
            if (std::find(axisOrder_.begin(), axisOrder_.end(), static_cast<int>(axis)) == axisOrder_.end())
                axisOrder_.push_back(static_cast<int>(axis));
        }
        for (const int axis : axisOrder_)
            axes_.push_back(mesh->axes[static_cast<size_t>(axis)]);
    }

    // What each rank holds, as one number: the sum over its chunks, so that their order does not matter.
    std::vector<std::pair<uint64_t, uint64_t>> held(ranks_.size(), {0, 0});
    columnOfRank_.resize(ranks_.size());
    std::iota(columnOfRank_.begin(), columnOfRank_.end(), 0U);
    if (options.foldColumns) {
        for (TensorId t = 0; t < c.tensorCount(); ++t) {
            if (t % 256 == 0 && stop.stopRequested()) return false;
            for (ChunkId i = c.firstChunk(t); i < c.endChunk(t); ++i) {
                const ChunkInfo chunk = c.chunk(t, i);
                uint64_t hash = mix(t + 1, static_cast<uint64_t>(chunkHealth(i)));
                hash = mixPlace(hash, chunk);
                auto& sum = held[columnOfChunk(chunk)];
                sum.first += hash;
                sum.second += mix(hash, 0x5bd1e995);
            }
        }
    }
    std::vector<bool> missing(ranks_.size(), false);
    for (const FileInfo& file : c.files()) {
        if (file.rank == kNone || file.metadata || !file.referenced || file.state == FileInfo::State::present)
            continue;
        if (const uint32_t at = columnOf(file.rank); at != kNone) missing[at] = true;
    }

    struct Placed {
        std::vector<uint32_t> place;
        uint32_t at = 0;  // in ranks_
    };
    std::vector<Placed> order(ranks_.size());
    for (uint32_t i = 0; i < order.size(); ++i) {
        order[i].at = i;
        if (!placed) continue;
        const std::vector<uint32_t> coordinates = mesh->coordinates(ranks_[i]);
        for (const int axis : axisOrder_)
            order[i].place.push_back(coordinates[static_cast<size_t>(axis)]);
    }
    std::stable_sort(order.begin(), order.end(),
                     [](const Placed& a, const Placed& b) { return a.place < b.place; });
    std::map<std::tuple<uint64_t, uint64_t, bool>, uint32_t> alike;
    std::vector<uint32_t> columnOfRank(ranks_.size());
    for (const Placed& p : order) {
        uint32_t column = static_cast<uint32_t>(columns_.size());
        if (options.foldColumns)
            column =
                alike.try_emplace({held[p.at].first, held[p.at].second, missing[p.at]}, column).first->second;
        if (column == columns_.size()) {
            MatrixColumn next;
            next.rank = ranks_[p.at];
            next.fileMissing = missing[p.at];
            for (const uint32_t at : p.place)
                next.places.emplace_back(at, at);
            columns_.push_back(std::move(next));
        }
        MatrixColumn& into = columns_[column];
        into.ranks.push_back(ranks_[p.at]);
        for (size_t axis = 0; axis < p.place.size(); ++axis) {
            into.places[axis].first = std::min(into.places[axis].first, p.place[axis]);
            into.places[axis].second = std::max(into.places[axis].second, p.place[axis]);
        }
        columnOfRank[p.at] = column;
    }
    for (MatrixColumn& column : columns_)
        std::sort(column.ranks.begin(), column.ranks.end());
    columnOfRank_ = std::move(columnOfRank);
    return true;
}

bool PlacementMatrix::makeRows(const MatrixOptions& options, const StopToken& stop) {
    const Catalog& c = catalog();
    const bool fold = options.foldRows;
    struct Group {
        std::vector<TensorId> tensors;
        int64_t first = -1, last = -1;  // least and greatest layer
    };
    std::vector<Group> groups;
    std::unordered_map<uint64_t, std::vector<uint32_t>> alike;
    std::unordered_map<uint64_t, std::vector<uint32_t>> sameTemplate;
    const auto sameHealth = [&](TensorId a, TensorId b) {
        if (!facts_) return true;
        const auto of = [&](TensorId t) {
            return std::span(facts_->chunkHealth).subspan(c.firstChunk(t), c.endChunk(t) - c.firstChunk(t));
        };
        return facts_->tensorHealth[a] == facts_->tensorHealth[b] && std::ranges::equal(of(a), of(b));
    };
    size_t seen = 0;
    for (const TensorId t : tree_->order()) {
        if (seen++ % 256 == 0 && stop.stopRequested()) return false;
        const LayerName name = fold ? splitLayer(c.name(t)) : LayerName{};
        if (name.number < 0) {
            groups.push_back({{t}, -1, -1});
            continue;
        }
        const std::hash<std::string_view> hashOf;
        const uint64_t form = mix(hashOf(name.before), hashOf(name.after));
        uint64_t key = mix(mix(form, c.cutHash(t)), static_cast<uint64_t>(c.dtype(t)));
        key = mix(key, static_cast<uint64_t>(tensorHealth(t)));
        std::vector<uint32_t>& candidates = alike[key];
        const auto found = std::find_if(candidates.begin(), candidates.end(), [&](uint32_t g) {
            const TensorId other = groups[g].tensors.front();
            const LayerName otherName = splitLayer(c.name(other));
            return otherName.before == name.before && otherName.after == name.after &&
                   c.dtype(other) == c.dtype(t) && c.sameCut(other, t) && sameHealth(other, t);
        });
        if (found != candidates.end()) {
            Group& group = groups[*found];
            group.tensors.push_back(t);
            group.first = std::min(group.first, name.number);
            group.last = std::max(group.last, name.number);
            continue;
        }
        candidates.push_back(static_cast<uint32_t>(groups.size()));
        sameTemplate[form].push_back(static_cast<uint32_t>(groups.size()));
        groups.push_back({{t}, name.number, name.number});
    }
    // The odd one out of a run of layers comes right after the run that it interrupts.
    std::vector<uint32_t> host(groups.size());
    std::iota(host.begin(), host.end(), 0U);
    for (const auto& [form, list] : sameTemplate) {
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
    // A row is pinned when one of its tensors is.
    std::vector<uint32_t> pin(groups.size(), kNone);
    if (!options.pinned.empty()) {
        std::unordered_map<TensorId, uint32_t> places;
        for (const TensorId t : options.pinned)
            places.emplace(t, static_cast<uint32_t>(places.size()));
        for (size_t g = 0; g < groups.size(); ++g) {
            for (const TensorId t : groups[g].tensors) {
                if (const auto at = places.find(t); at != places.end()) pin[g] = std::min(pin[g], at->second);
            }
            pinned_ += pin[g] != kNone;
        }
    }
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
        return pin[a] != pin[b] ? pin[a] < pin[b] : host[a] < host[b];
    });

    rowOf_.assign(c.tensorCount(), kNone);
    rows_.reserve(groups.size());
    members_.reserve(tree_->order().size());
    for (const uint32_t g : order) {
        MatrixRow row;
        row.tensor = groups[g].tensors.front();
        row.memberBegin = static_cast<uint32_t>(members_.size());
        row.count = static_cast<uint32_t>(groups[g].tensors.size());
        row.health = tensorHealth(row.tensor);
        hasGaps_ = hasGaps_ || row.health == Health::gap;
        for (const TensorId t : groups[g].tensors) {
            rowOf_[t] = static_cast<uint32_t>(rows_.size());
            members_.push_back(t);
        }
        rows_.push_back(row);
    }
    makeLanes();
    return true;
}

void PlacementMatrix::makeLanes() {
    std::string_view group;
    for (uint32_t r = 0; r < rowCount(); ++r) {
        const ExpertName name = splitExpert(catalog().name(rows_[r].tensor));
        if (name.number < 0) {
            group = {};
            continue;
        }
        const bool sameGroup = name.group == group;
        group = name.group;
        if (sameGroup && lanes_.back().expert == name.number)
            lanes_.back().rowEnd = r + 1;
        else
            lanes_.push_back({name.number, r, r + 1, !sameGroup});
    }
}

bool PlacementMatrix::fillPyramid(const StopToken& stop) {
    pyramid_ = MaxPyramid(rowCount(), columnCount(), kPyramidBudget);
    gapPyramid_ = MaxPyramid(rowCount(), 1, kPyramidBudget);
    const Catalog& c = catalog();
    for (uint32_t r = 0; r < rowCount(); ++r) {
        if (r % 256 == 0 && stop.stopRequested()) return false;
        const double elements = static_cast<double>(std::max<int64_t>(1, c.elements(rows_[r].tensor)));
        // Chunks of a tensor are mostly of one size.
        int64_t size = -1;
        uint8_t sound = 0;
        forEachChunk(r, [&](uint32_t column, const ChunkInfo& chunk) {
            if (chunk.elements() != size) {
                size = chunk.elements();
                sound = cellByte(Health::ok, static_cast<double>(size) / elements);
            }
            const Health health = chunkHealth(chunk.id);
            columns_[column].health = std::max(columns_[column].health, health);
            pyramid_.raise(r, column, health == Health::ok ? sound : cellByte(health, 0));
        });
        if (rows_[r].health == Health::gap) gapPyramid_.raise(r, 0, cellByte(Health::gap, 0));
    }
    pyramid_.finish();
    gapPyramid_.finish();
    return true;
}

// ------------------------------------------------------------------ asking

size_t PlacementMatrix::bytes() const {
    return lanes_.capacity() * sizeof(MatrixLane) + pyramid_.bytes() + gapPyramid_.bytes() +
           rows_.capacity() * sizeof(MatrixRow) +
           (members_.capacity() + rowOf_.capacity() + ranks_.capacity() + columnOfRank_.capacity()) * 4 +
           columns_.size() * (sizeof(MatrixColumn) + 4 + axes_.size() * 8);
}

std::vector<TensorId> PlacementMatrix::members(uint32_t r) const {
    const auto begin = members_.begin() + rows_[r].memberBegin;
    return {begin, begin + rows_[r].count};
}

uint32_t PlacementMatrix::rowOf(TensorId tensor) const {
    return tensor < rowOf_.size() ? rowOf_[tensor] : kNone;
}

uint32_t PlacementMatrix::columnOf(uint32_t rank) const {
    if (denseRanks_) return rank < columnOfRank_.size() ? columnOfRank_[rank] : kNone;
    const auto at = std::lower_bound(ranks_.begin(), ranks_.end(), rank);
    return at == ranks_.end() || *at != rank ? kNone
                                             : columnOfRank_[static_cast<size_t>(at - ranks_.begin())];
}

const MatrixCell* RowDetail::at(uint32_t column) const {
    const auto found = std::lower_bound(cells.begin(), cells.end(), column,
                                        [](const MatrixCell& cell, uint32_t c) { return cell.column < c; });
    return found == cells.end() || found->column != column ? nullptr : &*found;
}

RowDetail PlacementMatrix::detail(uint32_t r) const {
    constexpr uint32_t kMostSlices = 16;  // of one cell; the last then spans the others
    const Catalog& c = catalog();
    const TensorId t = rows_[r].tensor;
    const DimSpan shape = c.shape(t);
    RowDetail detail;
    std::vector<std::pair<uint32_t, ChunkId>> chunks;
    // Drawn are the two dimensions that the chunks cut most often; the later one from left to right.
    std::vector<uint32_t> cuts(shape.size(), 0);
    forEachChunk(r, [&](uint32_t column, const ChunkInfo& chunk) {
        chunks.emplace_back(column, chunk.id);
        for (size_t d = 0; d < shape.size(); ++d)
            cuts[d] += chunk.lengths[d] < shape[d] || chunk.flat;
    });
    std::sort(chunks.begin(), chunks.end());
    std::vector<int> dims(shape.size());
    std::iota(dims.begin(), dims.end(), 0);
    std::stable_sort(dims.begin(), dims.end(), [&](int a, int b) {
        return cuts[static_cast<size_t>(a)] > cuts[static_cast<size_t>(b)];
    });
    if (shape.size() == 1) {
        detail.across = 0;
    } else if (shape.size() > 1) {
        detail.down = std::min(dims[0], dims[1]);
        detail.across = std::max(dims[0], dims[1]);
    }
    const auto edge = [&](int dim, int64_t at) {
        const int64_t length = dim < 0 ? 0 : shape[static_cast<size_t>(dim)];
        return length > 0 ? static_cast<float>(static_cast<double>(at) / static_cast<double>(length)) : 0.F;
    };
    const double elements = static_cast<double>(std::max<int64_t>(1, c.elements(t)));
    const auto addSlice = [&](DimSpan offsets, DimSpan lengths) {
        const auto span = [&](int dim) {
            if (dim < 0) return std::pair(0.F, 1.F);
            const auto d = static_cast<size_t>(dim);
            return std::pair(edge(dim, offsets[d]), edge(dim, offsets[d] + lengths[d]));
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
    };
    // Of each cell where its chunks begin in `chunks`, and cells by what they hold, to find copies.
    std::vector<size_t> begins;
    std::unordered_multimap<uint64_t, size_t> held;
    uint64_t hash = 0;
    const auto sameChunks = [&](size_t a, size_t b) {
        const size_t count = detail.cells[a].chunks;
        if (detail.cells[b].chunks != count) return false;
        for (size_t i = 0; i < count; ++i) {
            const ChunkInfo x = c.chunk(t, chunks[begins[a] + i].second);
            const ChunkInfo y = c.chunk(t, chunks[begins[b] + i].second);
            if (!std::ranges::equal(x.offsets, y.offsets) || !std::ranges::equal(x.lengths, y.lengths) ||
                x.flat != y.flat)
                return false;
        }
        return true;
    };
    const auto endCell = [&] {
        if (detail.cells.empty() || detail.cells.back().share <= 0) return;
        const size_t at = detail.cells.size() - 1;
        const auto [from, to] = held.equal_range(hash);
        const auto same =
            std::find_if(from, to, [&](const auto& entry) { return sameChunks(entry.second, at); });
        if (same != to)
            detail.cells[at].copyOf = detail.cells[same->second].column;
        else
            held.emplace(hash, at);
    };
    for (size_t i = 0; i < chunks.size(); ++i) {
        const auto [column, id] = chunks[i];
        const ChunkInfo chunk = c.chunk(t, id);
        if (detail.cells.empty() || detail.cells.back().column != column) {
            endCell();
            hash = 0;
            begins.push_back(i);
            MatrixCell cell;
            cell.column = column;
            cell.chunk = id;
            cell.firstSlice = static_cast<uint32_t>(detail.slices.size());
            detail.cells.push_back(cell);
        }
        MatrixCell& cell = detail.cells.back();
        ++cell.chunks;
        cell.bytes += elementBytes(c, chunk);
        cell.share += static_cast<double>(chunk.elements()) / elements;
        cell.health = std::max(cell.health, chunkHealth(id));
        hash = mixPlace(hash, chunk);
        if (chunk.flat) {
            for (const Box& box : flatRangeBoxes(chunk.offsets, chunk.lengths, *chunk.flat))
                addSlice(box.offsets, box.lengths);
        } else {
            addSlice(chunk.offsets, chunk.lengths);
        }
    }
    endCell();
    return detail;
}

// Where an axis of the mesh cuts a dimension by itself, its cuts are the long ticks; with several, the one
// with the fewest parts (dp4 within tp2: tp's).
void PlacementMatrix::addTicks(uint32_t r, RowDetail& detail) const {
    const Catalog& c = catalog();
    const DimSpan shape = c.shape(rows_[r].tensor);
    const auto ticksOf = [&](int dim, std::vector<float>& outer, std::vector<float>& all) {
        if (dim < 0 || shape[static_cast<size_t>(dim)] == 0) return;
        const auto d = static_cast<size_t>(dim);
        constexpr size_t kMostTicks = 64;
        std::vector<int64_t> edges;
        std::vector<std::vector<std::pair<int64_t, int64_t>>> spans(
            axes_.size());  // by coordinate: [from, to)
        forEachChunk(r, [&](uint32_t column, const ChunkInfo& chunk) {
            if (chunk.flat || chunk.lengths[d] == 0) return;
            const int64_t from = chunk.offsets[d], to = from + chunk.lengths[d];
            if (from > 0) edges.push_back(from);
            for (size_t axis = 0; axis < axes_.size(); ++axis) {
                const uint32_t at = columns_[column].places[axis].first;
                if (spans[axis].size() <= at) spans[axis].resize(at + 1, {INT64_MAX, INT64_MIN});
                auto& span = spans[axis][at];
                span = {std::min(span.first, from), std::max(span.second, to)};
            }
        });
        std::sort(edges.begin(), edges.end());
        edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
        const auto share = [&](int64_t at) {
            return static_cast<float>(static_cast<double>(at) / static_cast<double>(shape[d]));
        };
        if (edges.size() <= kMostTicks) {
            for (const int64_t edge : edges)
                all.push_back(share(edge));
        }
        std::vector<int64_t> best;
        for (auto& list : spans) {
            std::erase_if(list, [](const auto& span) { return span.first > span.second; });
            std::sort(list.begin(), list.end());
            std::vector<int64_t> cut;
            bool apart = true;
            for (size_t i = 1; i < list.size() && apart; ++i) {
                apart = list[i - 1].second <= list[i].first;
                cut.push_back(list[i].first);
            }
            if (apart && !cut.empty() && (best.empty() || cut.size() < best.size())) best = cut;
        }
        if (best.size() <= kMostTicks && best.size() < edges.size()) {
            for (const int64_t edge : best)
                outer.push_back(share(edge));
        }
    };
    detail.hasTicks = true;
    ticksOf(detail.across, detail.acrossOuter, detail.acrossAll);
    ticksOf(detail.down, detail.downOuter, detail.downAll);
}

bool PlacementMatrix::nextFinding(uint32_t& row, uint32_t& column, bool forward) const {
    const uint32_t rows = rowCount();
    if (rows == 0) return false;
    const auto columnsOf = [&](uint32_t r) {
        std::vector<uint32_t> found;
        if (rows_[r].health == Health::ok) return found;
        for (const MatrixCell& cell : detail(r).cells) {
            if (cell.health != Health::ok) found.push_back(cell.column);
        }
        if (rows_[r].health == Health::gap) found.push_back(columnCount());
        return found;
    };
    // One row more than there are: the last look is at the part of the first row that was skipped.
    for (uint32_t step = 0; step <= rows; ++step) {
        const uint32_t r = forward ? (row + step) % rows : (row + rows - step % rows) % rows;
        const std::vector<uint32_t> found = columnsOf(r);
        if (found.empty()) continue;
        const auto after = std::upper_bound(found.begin(), found.end(), column);
        const auto from = std::lower_bound(found.begin(), found.end(), column);
        uint32_t to = kNone;
        if (step > 0)
            to = forward ? found.front() : found.back();
        else if (forward && after != found.end())
            to = *after;
        else if (!forward && from != found.begin())
            to = *(from - 1);
        if (to == kNone) continue;
        row = r;
        column = to;
        return true;
    }
    return false;
}

std::vector<ChunkId> PlacementMatrix::chunksIn(uint32_t rowBegin, uint32_t rowEnd, uint32_t columnBegin,
                                               uint32_t columnEnd, const StopToken& stop) const {
    std::vector<ChunkId> found;
    const Catalog& c = catalog();
    for (uint32_t r = rowBegin; r < std::min(rowEnd, rowCount()); ++r) {
        for (uint32_t m = 0; m < rows_[r].count; ++m) {
            if (m % 256 == 0 && stop.stopRequested()) return found;
            const TensorId t = members_[rows_[r].memberBegin + m];
            for (ChunkId i = c.firstChunk(t); i < c.endChunk(t); ++i) {
                const uint32_t column = columnOfChunk(c.chunk(t, i));
                if (column >= columnBegin && column < columnEnd) found.push_back(i);
            }
        }
    }
    std::sort(found.begin(), found.end());
    return found;
}

}  // namespace shardscope
