#include "survey/placement_change.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>

#include "base/units.h"
#include "engine/engine.h"
#include "plan/flow.h"
#include "survey/facts.h"
#include "survey/hues.h"
#include "survey/layer_name.h"

namespace shardscope {

namespace {

constexpr double kLeastBand = 5, kWidestRank = 44, kHighestRow = 22, kWidestModule = 300, kChangeLegend = 22;

std::string foldedModule(std::string_view name) {
    std::string out;
    for (;;) {
        const LayerName part = splitLayer(name);
        out += part.before;
        if (part.number < 0) return out;
        out += '*';
        name = part.after;
    }
}

// Boxes of one tensor by rank; replicas of one box count once.
std::map<uint32_t, std::vector<Box>> boxesByRank(const Catalog& catalog, TensorId tensor) {
    std::map<uint32_t, std::vector<Box>> boxes;
    for (ChunkId c = catalog.firstChunk(tensor); c < catalog.endChunk(tensor); ++c) {
        const ChunkInfo chunk = catalog.chunk(tensor, c);
        if (chunk.elements() == 0) continue;
        std::vector<Box>& own = boxes[chunk.rank == kNone ? 0 : chunk.rank];
        for (Box& box : boxesOf(chunk))
            if (std::ranges::find(own, box) == own.end()) own.push_back(std::move(box));
    }
    return boxes;
}

int64_t elementsOf(const std::vector<Box>& boxes) {
    int64_t sum = 0;
    for (const Box& box : boxes)
        sum += elementCount(box.lengths);
    return sum;
}

int64_t common(const std::vector<Box>& a, const std::vector<Box>& b) {
    int64_t sum = 0;
    for (const Box& one : a)
        for (const Box& other : b)
            if (const auto both = intersect(one.offsets, one.lengths, other.offsets, other.lengths))
                sum += elementCount(both->lengths);
    return sum;
}

std::string placementName(const Catalog& catalog) {
    const auto mesh = meshOf(catalog);
    return mesh ? formatMesh(*mesh) : counted(catalog.rankCount(), "rank");
}

// How many share a band, so that each has some pixels.
uint32_t eachOf(size_t count, double room) {
    const double fit = std::max(1.0, std::floor(room / kLeastBand));
    return static_cast<uint32_t>(std::ceil(static_cast<double>(count) / fit));
}

std::string spanText(uint32_t first, uint32_t count) {
    return count == 1 ? fmt::format("rank {}", first)
                      : fmt::format("ranks {} {} {}", first, count == 2 ? "and" : "to", first + count - 1);
}

}  // namespace

void PlacementChange::Bytes::add(const Bytes& more) {
    stays += more.stays;
    arrives += more.arrives;
    leaves += more.leaves;
    differs = differs || more.differs;
}

Result<std::shared_ptr<const PlacementChange>> PlacementChange::of(const Catalog& a, const Catalog& b,
                                                                   const DiffReport& report,
                                                                   const StopToken& stop) {
    std::set<std::string_view> differing, leftOut;
    for (const ValueDiff& one : report.values)
        differing.insert(one.name);
    for (const auto* list : {&report.leftOutA, &report.leftOutB})
        for (const PlanLeftOut& one : *list)
            leftOut.insert(one.name);
    auto change = std::make_shared<PlacementChange>();
    change->meshA_ = placementName(a);
    change->meshB_ = placementName(b);
    change->ranksA_ = a.rankCount();
    change->ranksB_ = b.rankCount();
    const uint32_t ranks = std::max(a.rankCount(), b.rankCount());
    std::map<std::string, size_t> known;
    const auto rowFor = [&](std::string_view name) -> Row& {
        const auto [at, fresh] = known.try_emplace(foldedModule(name), change->rows_.size());
        if (fresh) change->rows_.push_back({at->first, 0, std::vector<Bytes>(ranks), {}});
        return change->rows_[at->second];
    };
    const auto bytesOf = [](const Catalog& catalog, TensorId t, int64_t elements) {
        return static_cast<uint64_t>((elements * dtypeBits(catalog.dtype(t)) + 7) / 8);
    };
    for (TensorId t = 0; t < a.tensorCount(); ++t) {
        if (t % 64 == 0) SHARDSCOPE_TRY(stop.poll());
        if (a.aliasOf(t) != kNone || leftOut.contains(a.name(t))) continue;
        const TensorId other = b.find(a.name(t));
        const bool same =
            other != kNone && a.dtype(t) == b.dtype(other) && std::ranges::equal(a.shape(t), b.shape(other));
        Row& row = rowFor(a.name(t));
        ++row.tensors;
        const bool differs = other != kNone && (!same || differing.contains(a.name(t)));
        const auto from = boxesByRank(a, t);
        const auto to = other == kNone ? decltype(from)() : boxesByRank(b, other);
        for (const auto& [rank, boxes] : from) {
            const auto there = to.find(rank);
            const int64_t stays =
                same && there != to.end() ? std::min(common(boxes, there->second), elementsOf(boxes)) : 0;
            row.ranks[rank].add({bytesOf(a, t, stays), 0, bytesOf(a, t, elementsOf(boxes) - stays), differs});
        }
        for (const auto& [rank, boxes] : to) {
            const auto here = from.find(rank);
            const int64_t stays =
                same && here != from.end() ? std::min(common(here->second, boxes), elementsOf(boxes)) : 0;
            row.ranks[rank].add({0, bytesOf(b, other, elementsOf(boxes) - stays), 0, differs});
        }
    }
    for (TensorId t = 0; t < b.tensorCount(); ++t) {
        if (t % 64 == 0) SHARDSCOPE_TRY(stop.poll());
        if (b.aliasOf(t) != kNone || a.find(b.name(t)) != kNone || leftOut.contains(b.name(t))) continue;
        Row& row = rowFor(b.name(t));
        ++row.tensors;
        for (const auto& [rank, boxes] : boxesByRank(b, t))
            row.ranks[rank].add({0, bytesOf(b, t, elementsOf(boxes)), 0, false});
    }
    for (Row& row : change->rows_) {
        for (const Bytes& bytes : row.ranks)
            row.sum.add(bytes);
        change->sum_.add(row.sum);
    }
    return std::shared_ptr<const PlacementChange>(std::move(change));
}

std::string PlacementChange::headline() const {
    std::string text = meshA_ == meshB_ ? fmt::format("{} on both sides", meshA_)
                                        : fmt::format("From {} to {}", meshA_, meshB_);
    const uint64_t after = sum_.stays + sum_.arrives;
    if (sum_.arrives == 0 && sum_.leaves == 0)
        text += fmt::format(": all {} stay on their ranks", bytesText(sum_.stays));
    else
        text += fmt::format(": {} of {} arrive on another rank, {} leave", bytesText(sum_.arrives),
                            bytesText(after), bytesText(sum_.leaves));
    std::vector<uint32_t> empty;  // held something before
    for (uint32_t rank = 0; rank < std::max(ranksA_, ranksB_); ++rank) {
        Bytes all;
        for (const Row& row : rows_)
            all.add(row.ranks[rank]);
        if (all.leaves > 0 && all.stays + all.arrives == 0) empty.push_back(rank);
    }
    if (!empty.empty() && empty.back() - empty.front() + 1 == empty.size())
        text += fmt::format("; left empty: {}", spanText(empty.front(), static_cast<uint32_t>(empty.size())));
    else if (!empty.empty())
        text += fmt::format("; left empty: {}", counted(empty.size(), "rank"));
    return text + ".";
}

std::string PlacementChange::cellText(const Cell& cell) const {
    std::string text = cell.rows == 1
                           ? rows_[cell.row].name
                           : fmt::format("{} from {} on", counted(cell.rows, "module"), rows_[cell.row].name);
    text += ", " + spanText(cell.rank, cell.ranks);
    const auto line = [&](uint64_t bytes, const char* what) {
        if (bytes > 0) text += fmt::format("\n{} {}", bytesText(bytes), what);
    };
    line(cell.bytes.stays, cell.ranks == 1 ? "stay" : "stay on their ranks");
    line(cell.bytes.arrives, "arrive");
    line(cell.bytes.leaves, "leave");
    if (cell.bytes.differs) text += "\nshape, dtype or values differ";
    return text;
}

int PlacementChange::Drawing::cellAt(double x, double y) const {
    const auto found =
        std::ranges::find_if(cells, [&](const Cell& cell) { return cell.rect.contains(x, y); });
    return found == cells.end() ? -1 : static_cast<int>(found - cells.begin());
}

PlacementChange::Drawing PlacementChange::draw(double width, double height) const {
    Drawing drawing;
    const uint32_t ranks = std::max(ranksA_, ranksB_);
    if (rows_.empty() || ranks == 0) return drawing;
    const DrawnType type;
    double left = 0;
    for (const Row& row : rows_)
        left = std::max(left, lettersOf(row.name, type) + 8);
    left = std::min({left, kWidestModule, width * 0.4});
    const double top = type.line + 2, across = width - left - 2, down = height - top - kChangeLegend;
    const uint32_t rowsEach = eachOf(rows_.size(), down), ranksEach = eachOf(ranks, across);
    const auto bands = static_cast<uint32_t>((rows_.size() + rowsEach - 1) / rowsEach);
    const uint32_t columns = (ranks + ranksEach - 1) / ranksEach;
    const double high = std::max(1.0, std::floor(std::min(kHighestRow, down / bands)));
    const double wide = std::max(1.0, std::floor(std::min(kWidestRank, across / columns)));
    drawing.grid = {left, top, wide * columns, high * bands};
    for (uint32_t c = 0; c < columns; ++c)
        drawing.columns.emplace_back(DrawnRect{left + c * wide, 0, wide, top}, c * ranksEach);
    for (uint32_t r = 0; r < bands; ++r) {
        drawing.rows.emplace_back(DrawnRect{0, top + r * high, left, high}, r * rowsEach);
        for (uint32_t c = 0; c < columns; ++c) {
            Cell cell{{left + c * wide, top + r * high, wide, high}, r * rowsEach, 0, c * ranksEach, 0, {}};
            cell.rows = std::min(rowsEach, static_cast<uint32_t>(rows_.size()) - cell.row);
            cell.ranks = std::min(ranksEach, ranks - cell.rank);
            for (uint32_t i = 0; i < cell.rows; ++i)
                for (uint32_t k = 0; k < cell.ranks; ++k)
                    cell.bytes.add(rows_[cell.row + i].ranks[cell.rank + k]);
            if (cell.bytes.all() > 0) drawing.cells.push_back(std::move(cell));
        }
    }
    drawing.width = std::max(left + drawing.grid.width + 2, std::min(width, 560.0));
    drawing.height = top + drawing.grid.height + kChangeLegend;
    return drawing;
}

std::string PlacementChange::svgOf(double width, double height, bool dark) const {
    const svg::Shades shades = svg::shadesOf(dark);
    const DrawnType type;
    const Drawing drawing = draw(width, height);
    const DrawnRect& grid = drawing.grid;
    std::string out =
        svg::head(std::max(1.0, drawing.width), std::max(1.0, drawing.height), "change", headline(), shades);
    out +=
        svg::rect(grid, fmt::format("class=\"back\" fill=\"{}\" stroke=\"{}\"", shades.panel, shades.line)) +
        "\n";
    double free = 0;
    for (const auto& [rect, first] : drawing.rows) {
        const double middle = rect.y + rect.height / 2;
        if (middle < free) continue;
        free = middle + type.line - 2;
        out += svg::text(grid.x - 5, middle + svg::kBaseline, "end", "name", shades.text,
                         endOf(rows_[first].name, grid.x - 8, type)) +
               "\n";
    }
    free = 0;
    for (const auto& [rect, first] : drawing.columns) {
        const std::string name = fmt::format("{}", first);
        const double middle = rect.x + rect.width / 2, half = lettersOf(name, type) / 2;
        if (middle - half < free) continue;
        free = middle + half + 6;
        out += svg::centered(rect, svg::kBaseline, "rank", shades.text, name) + "\n";
    }
    const std::string stays = svg::color(holdRgb(0, dark)), arrives = svg::color(holdRgb(1, dark)),
                      leaves = svg::color(axisRgb(AxisKind::other, dark)),
                      differs = svg::color(healthRgb(Health::overlap, dark));
    // What stays and arrives fills a cell from below, what leaves is an empty frame above.
    const auto mark = [&](const DrawnRect& at, const Bytes& bytes) {
        const double all = static_cast<double>(std::max<uint64_t>(1, bytes.all()));
        double bottom = at.y + at.height;
        std::string drawn;
        const auto part = [&](uint64_t amount, const std::string& attributes, double inset) {
            if (amount == 0) return;
            const double high = at.height * static_cast<double>(amount) / all;
            bottom -= high;
            drawn += svg::rect({at.x + inset, bottom + inset, std::max(0.5, at.width - 2 * inset),
                                std::max(0.5, high - 2 * inset)},
                               attributes);
        };
        part(bytes.stays, fmt::format("class=\"stays\" fill=\"{}\"", stays), 0);
        part(bytes.arrives, fmt::format("class=\"arrives\" fill=\"{}\"", arrives), 0);
        part(bytes.leaves, fmt::format("class=\"leaves\" fill=\"none\" stroke=\"{}\"", leaves), 0.5);
        if (bytes.differs)
            drawn += svg::rect(
                {at.x + 0.5, at.y + 0.5, std::max(1.0, at.width - 1), std::max(1.0, at.height - 1)},
                fmt::format("class=\"differs\" fill=\"none\" stroke-width=\"2\" stroke=\"{}\"", differs));
        return drawn;
    };
    for (const Cell& cell : drawing.cells) {
        DrawnRect inside = cell.rect;
        if (inside.width >= kLeastBand) inside.width -= 1;
        if (inside.height >= kLeastBand) inside.height -= 1;
        out += fmt::format("<g class=\"cell\"><title>{}</title>{}</g>\n", svg::escaped(cellText(cell)),
                           mark(inside, cell.bytes));
    }
    double x = 2;
    const double y = drawing.height - kChangeLegend + 6;
    const auto key = [&](const Bytes& bytes, const char* words) {
        out += mark({x, y, 12, 12}, bytes) +
               svg::text(x + 17, y + 6 + svg::kBaseline, "start", "key", shades.quiet, words);
        x += 17 + lettersOf(words, type) + 16;
    };
    key({1, 0, 0, false}, "stays on its rank");
    key({0, 1, 0, false}, "arrives");
    key({0, 0, 1, false}, "leaves");
    key({1, 0, 0, true}, "shape, dtype or values differ");
    return out + "\n</svg>\n";
}

}  // namespace shardscope
