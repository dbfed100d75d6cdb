#include "survey/placement_matrix.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <string>
#include <string_view>
#include <tuple>

#include "model/coverage.h"
#include "survey/hues.h"
#include "survey/layer_name.h"
#include "survey/matrix_parts.h"

namespace shardscope {

namespace {

constexpr size_t kPyramidBudget = size_t{16} << 20;
constexpr size_t kMostPlaces = size_t{1} << 22;

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
    auto ranks = ranksOfColumns(c, stop);
    if (!ranks) return false;
    ranks_ = *std::move(ranks);
    denseRanks_ = ranks_.empty() || ranks_.back() == ranks_.size() - 1;
    columnOfRank_.resize(ranks_.size());
    std::iota(columnOfRank_.begin(), columnOfRank_.end(), 0U);
    std::vector<RankToPlace> sources(ranks_.size());
    const std::optional<Mesh> mesh = facts_ ? facts_->mesh : c.mesh();
    const bool placed = mesh && !mesh->axes.empty() && !ranks_.empty() && ranks_.back() < mesh->ranks();
    if (placed) axisOrder_ = orderAxes(options.axes, mesh->axes.size());
    for (const int axis : axisOrder_)
        axes_.push_back(mesh->axes[static_cast<size_t>(axis)]);
    for (size_t i = 0; i < sources.size(); ++i) {
        sources[i].rank = ranks_[i];
        if (!placed) continue;
        const std::vector<uint32_t> coordinates = mesh->coordinates(ranks_[i]);
        for (const int axis : axisOrder_)
            sources[i].coordinates.push_back(coordinates[static_cast<size_t>(axis)]);
    }
    for (TensorId t = 0; options.foldColumns && t < c.tensorCount(); ++t) {
        if (t % 256 == 0 && stop.stopRequested()) return false;
        for (ChunkId i = c.firstChunk(t); i < c.endChunk(t); ++i) {
            const ChunkInfo chunk = c.chunk(t, i);
            sources[columnOfChunk(chunk)].hold(
                mixPlace(mix(t + 1, static_cast<uint64_t>(chunkHealth(i))), chunk));
        }
    }
    for (const FileInfo& file : c.files()) {
        if (file.rank == kNone || file.metadata || !file.referenced || file.state == FileInfo::State::present)
            continue;
        if (const uint32_t at = columnOf(file.rank); at != kNone) sources[at].fileMissing = true;
    }
    std::tie(columns_, columnOfRank_) = columnsOf(sources, options.foldColumns);
    for (MatrixColumn& column : columns_) {
        if (column.fileMissing) column.health = Health::missing;
    }
    return true;
}

bool PlacementMatrix::makeRows(const MatrixOptions& options, const StopToken& stop) {
    const auto groups = groupTensors(catalog(), facts_.get(), tree_->order(), options.foldRows, stop);
    if (!groups) return false;
    const std::vector<uint32_t> pins = pinsOf(*groups, options.pinned);
    rowOf_.assign(catalog().tensorCount(), kNone);
    rows_.reserve(groups->size());
    members_.reserve(tree_->order().size());
    std::vector<std::vector<TensorId>> kinds;
    std::vector<bool> pinned;
    for (const uint32_t g : orderRows(*groups, pins)) {
        kinds.push_back((*groups)[g].tensors);
        pinned.push_back(pins[g] != kNone);
    }
    makeGroups(kinds, pinned, options);
    makeLanes();
    return true;
}

void PlacementMatrix::makeLanes() {
    std::string_view group;
    for (uint32_t r = 0; r < rowCount(); ++r) {
        const ExpertName name = splitExpert(catalog().name(rows_[r].tensor));
        if (name.number < 0 || rows_[r].summary) {
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
        if ((r % 256 == 0 || rows_[r].summary) && stop.stopRequested()) return false;
        if (rows_[r].health == Health::gap) gapPyramid_.raise(r, 0, cellByte(Health::gap, 0));
        if (rows_[r].summary) {
            for (const MatrixCell& cell : sumOf(rows_[r].group)) {
                columns_[cell.column].health = std::max(columns_[cell.column].health, cell.health);
                pyramid_.raise(r, cell.column, cellByte(cell.health, cell.share));
            }
            continue;
        }
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
    }
    pyramid_.finish();
    gapPyramid_.finish();
    return true;
}

// ------------------------------------------------------------------ asking

size_t PlacementMatrix::bytes() const {
    return lanes_.capacity() * sizeof(MatrixLane) + pyramid_.bytes() + gapPyramid_.bytes() +
           rows_.capacity() * sizeof(MatrixRow) + kinds_.capacity() * sizeof(Kind) +
           groups_.capacity() * sizeof(MatrixGroup) +
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
    const Catalog& c = catalog();
    const TensorId t = rows_[r].tensor;
    const DimSpan shape = c.shape(t);
    RowDetail detail;
    if (rows_[r].summary) {
        // A sum lies nowhere in a tensor: its cells are filled from below, as strong as they are from afar.
        detail.cells = sumOf(rows_[r].group);
        for (MatrixCell& cell : detail.cells) {
            const auto share = static_cast<float>(shareOfByte(cellByte(Health::ok, cell.share)));
            cell.firstSlice = static_cast<uint32_t>(detail.slices.size());
            cell.slices = 1;
            detail.slices.push_back({0, 1 - share, 1, 1});
        }
        return detail;
    }
    std::vector<std::pair<uint32_t, ChunkId>> chunks;
    std::vector<uint32_t> cuts(shape.size(), 0);
    forEachChunk(r, [&](uint32_t column, const ChunkInfo& chunk) {
        chunks.emplace_back(column, chunk.id);
        for (size_t d = 0; d < shape.size(); ++d)
            cuts[d] += chunk.lengths[d] < shape[d] || chunk.flat;
    });
    std::sort(chunks.begin(), chunks.end());
    std::tie(detail.down, detail.across) = drawnDimensions(cuts);
    const double elements = static_cast<double>(std::max<int64_t>(1, c.elements(t)));
    std::vector<uint64_t> held;  // by cell, what it holds as a number
    for (const auto& [column, id] : chunks) {
        const ChunkInfo chunk = c.chunk(t, id);
        if (detail.cells.empty() || detail.cells.back().column != column) {
            MatrixCell cell;
            cell.column = column;
            cell.chunk = id;
            cell.firstSlice = static_cast<uint32_t>(detail.slices.size());
            detail.cells.push_back(cell);
            held.push_back(0);
        }
        MatrixCell& cell = detail.cells.back();
        ++cell.chunks;
        cell.bytes += elementBytes(c, chunk);
        cell.share += static_cast<double>(chunk.elements()) / elements;
        cell.health = std::max(cell.health, chunkHealth(id));
        held.back() = mixPlace(held.back(), chunk);
        if (chunk.flat) {
            for (const Box& box : flatRangeBoxes(chunk.offsets, chunk.lengths, *chunk.flat))
                addSlice(detail, shape, box.offsets, box.lengths);
        } else {
            addSlice(detail, shape, chunk.offsets, chunk.lengths);
        }
    }
    markCopies(c, t, chunks, held, detail.cells);
    findGhosts(detail);
    return detail;
}

// Of each shard another place of the axis that replicates may store it, as DCP deals them out: then every
// place on the other axes is there, and once. The outermost such axis; axes_.size() = none.
size_t PlacementMatrix::spreadingAxis(const RowDetail& detail) const {
    const auto dealsOut = [&](size_t axis) {  // whole tensors
        const AxisKind kind = axisKind(axes_[axis].name);
        return kind == AxisKind::pipeline || kind == AxisKind::expert;
    };
    for (size_t axis = 0; axis < axes_.size(); ++axis) {
        if (dealsOut(axis)) continue;
        std::set<uint64_t> shards, stages;
        bool once = true;
        for (auto cell = detail.cells.begin(); once && cell != detail.cells.end(); ++cell) {
            uint64_t shard = 0, stage = 0;
            for (size_t other = 0; other < axes_.size(); ++other) {
                const uint64_t place = columns_[cell->column].places[other].first;
                if (dealsOut(other)) stage = stage * axes_[other].size + place;
                if (other != axis) shard = shard * axes_[other].size + place;
            }
            once = shards.insert(shard).second;
            stages.insert(stage);
        }
        size_t all = stages.size();
        for (size_t other = 0; once && other < axes_.size(); ++other) {
            if (other != axis && !dealsOut(other))
                all *= std::min<size_t>(axes_[other].size, shards.size() + 1);
            once = all <= shards.size();
        }
        if (once && all == shards.size()) return axis;
    }
    return axes_.size();
}

// Along an axis where all that is stored has one place, the others hold the same, unless the axis deals out
// whole tensors (stages, experts). Several places, but not all of them, are shards, some of which are empty.
void PlacementMatrix::findGhosts(RowDetail& detail) const {
    if (axes_.empty() || detail.cells.empty() || detail.cells.size() == columns_.size()) return;
    const auto placeOf = [&](uint32_t column, size_t axis) { return columns_[column].places[axis].first; };
    std::vector<size_t> fixed;  // axes along which a replica is where its original is
    for (size_t axis = 0; axis < axes_.size(); ++axis) {
        const AxisKind kind = axisKind(axes_[axis].name);
        const uint32_t place = placeOf(detail.cells.front().column, axis);
        if (kind == AxisKind::pipeline || kind == AxisKind::expert ||
            std::ranges::any_of(detail.cells,
                                [&](const MatrixCell& cell) { return placeOf(cell.column, axis) != place; }))
            fixed.push_back(axis);
    }
    if (fixed.size() == axes_.size()) std::erase(fixed, spreadingAxis(detail));
    if (fixed.size() == axes_.size()) return;
    size_t count = 1;
    for (const size_t axis : fixed) {
        if (axes_[axis].size > kMostPlaces / count) return;  // a mesh may be declared with any size
        count *= axes_[axis].size;
    }
    // By the places along those axes, as one number.
    const auto placesOf = [&](uint32_t column) {
        size_t number = 0;
        for (const size_t axis : fixed)
            number = number * axes_[axis].size + placeOf(column, axis);
        return number;
    };
    std::vector<uint32_t> originals(count, kNone);
    for (const MatrixCell& cell : detail.cells) {
        uint32_t& original = originals[placesOf(cell.column)];
        original = std::min(original, cell.column);
    }
    auto cell = detail.cells.begin();
    for (uint32_t column = 0; column < columns_.size(); ++column) {
        while (cell != detail.cells.end() && cell->column < column)
            ++cell;
        const bool held = cell != detail.cells.end() && cell->column == column;
        if (const uint32_t original = originals[placesOf(column)]; !held && original != kNone)
            detail.ghosts.push_back({column, original});
    }
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
        // Rows that follow their sum say it themselves.
        if (rows_[r].health == Health::ok || (rows_[r].summary && groups_[rows_[r].group].open)) return found;
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
    found.erase(std::unique(found.begin(), found.end()), found.end());  // a sum and its rows
    return found;
}

}  // namespace shardscope
