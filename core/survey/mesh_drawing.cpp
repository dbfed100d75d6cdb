// Where the parts of a mesh picture are drawn, and the drawing as SVG.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/units.h"
#include "survey/mesh_picture.h"

namespace shardscope {

namespace {

constexpr double kPad = 6;                   // inside of boxes
constexpr double kBoxGap = 8, kPaneGap = 8;  // between boxes, between the panes of one
constexpr double kWidestCell = 60, kHighestCell = 34;
constexpr double kLeastCell = 3;    // pixels; below, ranks share a cell
constexpr double kApart = 6;        // cells of this size have gaps between them
constexpr double kLandscape = 1.7;  // width to height of a cell that reads best
constexpr double kNarrowBand = 6;
constexpr double kLevels = 12;  // from this height on a cell is filled up to a level, below it all in a tone
constexpr uint32_t kMostPanes = 64;

uint32_t upTo(uint32_t count, uint32_t each) {
    return (count + each - 1) / each;
}

// One way to lay the boxes out.
struct Arrangement {
    uint32_t boxesAcross = 1, boxesDown = 1;
    uint32_t panes = 1;                     // of a grid that is too long for one
    uint32_t foldAcross = 1, foldDown = 1;  // ranks that share a cell
    double cellWidth = 0, cellHeight = 0;
    double side() const { return std::min(cellWidth, cellHeight * kLandscape); }
};

class Layout {
  public:
    Layout(const MeshPicture& picture, double width, double height, const DrawnType& type)
        : picture_(picture), width_(width), height_(height), type_(type) {
        for (size_t i = 0; i < picture.axes().size(); ++i) {
            const MeshPicture::Axis& axis = picture.axes()[i];
            if (axis.size < 2) continue;
            if (axis.part == MeshPicture::Part::box) box_ = static_cast<int>(i);
            if (axis.part == MeshPicture::Part::across) across_ = static_cast<int>(i);
            if (axis.part == MeshPicture::Part::down) down_.push_back(i);
        }
        for (const size_t i : down_)
            rows_ *= picture.axes()[i].size;
        if (across_ >= 0) columns_ = picture.axes()[static_cast<size_t>(across_)].size;
        for (uint32_t s = 0; s < picture.stages().size(); ++s)
            titled_ = titled_ || !picture.stageTitle(s).empty();
    }

    MeshDrawing draw() {
        makeKeys();
        choose();
        const auto stages = static_cast<uint32_t>(picture_.stages().size());
        double boxWidth = 0, boxHeight = 0;
        measureBox(boxWidth, boxHeight);
        for (uint32_t s = 0; s < stages; ++s) {
            const double x = s % best_.boxesAcross * (boxWidth + kBoxGap);
            const double y = s / best_.boxesAcross * (boxHeight + kBoxGap);
            addBox(s, {x, y, boxWidth, boxHeight});
        }
        const double used = best_.boxesDown * (boxHeight + kBoxGap);
        for (MeshDrawing::Key& key : drawing_.keys) {
            key.sample.y += used;
            key.label.y += used;
        }
        drawing_.width = std::max(keysWidth_, best_.boxesAcross * (boxWidth + kBoxGap) - kBoxGap);
        drawing_.height = used + keysHeight_;
        return std::move(drawing_);
    }

  private:
    bool wraps() const { return down_.empty(); }  // lines of ranks rather than a grid
    uint32_t columnsOfPane(const Arrangement& a) const {
        const uint32_t all = upTo(columns_, a.foldAcross);
        return wraps() ? upTo(all, a.panes) : all;
    }
    uint32_t rowsOfPane(const Arrangement& a) const {
        return wraps() ? 1 : upTo(upTo(rows_, a.foldDown), a.panes);
    }
    uint32_t panesAcross(const Arrangement& a) const { return wraps() ? 1 : a.panes; }
    uint32_t panesDown(const Arrangement& a) const { return wraps() ? a.panes : 1; }

    // A band of an axis stands left of the rows, wide enough for its numbers where they fit in height.
    double bandWidth(const Arrangement& a, size_t down) const {
        const MeshPicture::Axis& of = picture_.axes()[down_[down]];
        double height = a.cellHeight / a.foldDown;
        for (size_t i = down + 1; i < down_.size(); ++i)
            height *= picture_.axes()[down_[i]].size;
        if (height < type_.line - 1) return kNarrowBand;
        const std::string widest = std::to_string(of.size - 1);
        return std::max(lettersOf(of.name, type_), lettersOf(widest, type_)) + 6;
    }
    double bandsWidth(const Arrangement& a) const {
        double width = 0;
        for (size_t i = 0; i < down_.size(); ++i)
            width += bandWidth(a, i);
        return width;
    }
    // None where the number of a rank is its place.
    double bandsHeight(const Arrangement& a) const {
        const bool plain = (wraps() && !picture_.hasStages()) || a.foldAcross > 1;
        return !plain && across_ >= 0 ? type_.line + 1 : 0;
    }
    double titleHeight() const { return titled_ ? type_.line + 3 : 0; }

    Arrangement arranged(uint32_t boxes, uint32_t panes, uint32_t foldAcross, uint32_t foldDown) const {
        Arrangement a;
        a.boxesAcross = boxes;
        a.boxesDown = upTo(static_cast<uint32_t>(picture_.stages().size()), boxes);
        a.panes = panes;
        a.foldAcross = foldAcross;
        a.foldDown = foldDown;
        const double boxWidth = (width_ - (boxes - 1) * kBoxGap) / boxes - 2 * kPad - 1;
        const double boxHeight =
            (height_ - keysHeight_ - a.boxesDown * kBoxGap) / a.boxesDown - 2 * kPad - titleHeight();
        const double paneHeight = boxHeight / panesDown(a) - bandsHeight(a);
        a.cellHeight = std::min(kHighestCell, paneHeight / rowsOfPane(a));
        const double paneWidth =
            (boxWidth - (panesAcross(a) - 1) * kPaneGap) / panesAcross(a) - bandsWidth(a);
        a.cellWidth = std::min(kWidestCell, paneWidth / columnsOfPane(a));
        return a;
    }

    // The arrangement with the largest cells; folded only where single ranks could not be seen.
    void choose() {
        const auto stages = static_cast<uint32_t>(picture_.stages().size());
        for (uint32_t fold = 1;; fold *= 2) {
            const uint32_t across = fold == 1 ? 1 : columns_, down = wraps() ? 1 : std::max(1U, fold / 2);
            const uint32_t acrossFold = wraps() ? std::min(fold, columns_) : across;
            best_ = arranged(stages, 1, acrossFold, down);
            for (uint32_t boxes = stages; boxes >= 1; --boxes) {
                if (boxes > 1 && upTo(stages, boxes - 1) == upTo(stages, boxes)) continue;
                for (uint32_t panes = 1; panes <= kMostPanes; panes *= 2) {
                    const uint32_t length = wraps() ? upTo(columns_, acrossFold) : upTo(rows_, down);
                    if (panes > length) break;
                    const Arrangement a = arranged(boxes, panes, acrossFold, down);
                    const bool titles = hasTitles(a), had = hasTitles(best_);
                    if (titles != had ? titles : a.side() > best_.side() * 1.05) best_ = a;
                }
            }
            if (best_.side() >= kLeastCell || fold >= 2 * picture_.rankCount()) break;
        }
        best_.cellWidth = std::max(1.0, best_.cellWidth);
        best_.cellHeight = std::max(1.0, best_.cellHeight);
        if (best_.side() >= kApart) {
            best_.cellWidth = std::floor(best_.cellWidth);
            best_.cellHeight = std::floor(best_.cellHeight);
        }
    }

    // Whether boxes are wide enough for "pp15".
    bool hasTitles(const Arrangement& a) const {
        if (!picture_.hasStages()) return true;
        const double room = (width_ - (a.boxesAcross - 1) * kBoxGap) / a.boxesAcross;
        return room >=
               lettersOf(stageName(static_cast<uint32_t>(picture_.stages().size()) - 1), type_) + 2 * kPad;
    }
    std::string stageName(uint32_t stage) const {
        return picture_.axes()[static_cast<size_t>(box_)].name + std::to_string(stage);
    }

    void measureBox(double& width, double& height) const {
        const Arrangement& a = best_;
        width = panesAcross(a) * (bandsWidth(a) + columnsOfPane(a) * a.cellWidth) +
                (panesAcross(a) - 1) * kPaneGap + 2 * kPad;
        height = panesDown(a) * (bandsHeight(a) + rowsOfPane(a) * a.cellHeight) + 2 * kPad + titleHeight();
        // A title takes the room that is there.
        double title = 0;
        for (uint32_t s = 0; s < picture_.stages().size(); ++s)
            title = std::max(title, lettersOf(picture_.stageTitle(s), type_) + 2 * kPad + 8);
        const double room = (width_ - (a.boxesAcross - 1) * kBoxGap) / a.boxesAcross - 1;
        width = std::max(width, std::min(title, room));
    }

    uint32_t rankAt(uint32_t stage, uint32_t row, uint32_t column) const {
        uint32_t rank = 0;
        if (box_ >= 0) rank += stage * picture_.axes()[static_cast<size_t>(box_)].stride;
        if (across_ >= 0) rank += column * picture_.axes()[static_cast<size_t>(across_)].stride;
        for (size_t i = down_.size(); i-- > 0;) {
            const MeshPicture::Axis& axis = picture_.axes()[down_[i]];
            rank += row % axis.size * axis.stride;
            row /= axis.size;
        }
        return rank;
    }
    uint32_t placeInRows(uint32_t row, size_t downAxis) const {
        for (size_t i = down_.size(); i-- > downAxis + 1;)
            row /= picture_.axes()[down_[i]].size;
        return row % picture_.axes()[down_[downAxis]].size;
    }

    void addBox(uint32_t stage, const DrawnRect& rect) {
        const Arrangement& a = best_;
        MeshDrawing::Box box;
        box.rect = rect;
        box.title = {rect.x + kPad, rect.y + 3, rect.width - 2 * kPad, type_.line};
        box.text = picture_.stageTitle(stage);
        if (lettersOf(box.text, type_) > box.title.width) box.text = picture_.stageTitle(stage, true);
        if (lettersOf(box.text, type_) > box.title.width)
            box.text = box_ >= 0 ? stageName(stage) : endOf(box.text, box.title.width, type_);
        box.health = picture_.stages()[stage].health;
        drawing_.boxes.push_back(box);
        const double paneWidth = bandsWidth(a) + columnsOfPane(a) * a.cellWidth + kPaneGap;
        const double paneHeight = bandsHeight(a) + rowsOfPane(a) * a.cellHeight;
        const uint32_t columns = columnsOfPane(a), rows = rowsOfPane(a);
        for (uint32_t pane = 0; pane < a.panes; ++pane) {
            const double x = rect.x + kPad + (wraps() ? 0 : pane * paneWidth);
            const double y = rect.y + kPad + titleHeight() + (wraps() ? pane * paneHeight : 0);
            const uint32_t firstColumn = wraps() ? pane * columns : 0, firstRow = wraps() ? 0 : pane * rows;
            const uint32_t endColumn = std::min(upTo(columns_, a.foldAcross), firstColumn + columns);
            const uint32_t endRow = std::min(upTo(rows_, a.foldDown), firstRow + rows);
            if (firstColumn >= endColumn || firstRow >= endRow) continue;
            addBands(x, y, firstRow, endRow, firstColumn, endColumn);
            for (uint32_t r = firstRow; r < endRow; ++r) {
                for (uint32_t c = firstColumn; c < endColumn; ++c)
                    addCell(stage, r, c,
                            {x + bandsWidth(a) + (c - firstColumn) * a.cellWidth,
                             y + bandsHeight(a) + (r - firstRow) * a.cellHeight, a.cellWidth, a.cellHeight});
            }
        }
    }

    void addBands(double x, double y, uint32_t firstRow, uint32_t endRow, uint32_t firstColumn,
                  uint32_t endColumn) {
        const Arrangement& a = best_;
        const double left = x + bandsWidth(a), top = y + bandsHeight(a);
        const auto fits = [&](const std::string& text, double width) {
            return lettersOf(text, type_) + 2 <= width;
        };
        for (uint32_t c = firstColumn; bandsHeight(a) > 0 && c < endColumn; ++c) {
            const MeshPicture::Axis& axis = picture_.axes()[static_cast<size_t>(across_)];
            const std::string number = std::to_string(c), whole = axis.name + number;
            std::string text = fits(whole, a.cellWidth) ? whole : fits(number, a.cellWidth) ? number : "";
            if (!picture_.known()) text.clear();  // the cells say it
            drawing_.bands.push_back(
                {{left + (c - firstColumn) * a.cellWidth, y, a.cellWidth, type_.line - 1},
                 axis.kind,
                 c % 2 == 1,
                 std::move(text)});
        }
        double at = x;
        for (size_t i = 0; i < down_.size(); ++i) {
            const MeshPicture::Axis& axis = picture_.axes()[down_[i]];
            const double width = bandWidth(a, i);
            if (width > kNarrowBand && bandsHeight(a) > 0)
                drawing_.bands.push_back({{at, y, width - 1, type_.line - 1}, axis.kind, true, axis.name});
            for (uint32_t r = firstRow; r < endRow;) {
                const uint32_t place = placeInRows(r * a.foldDown, i);
                uint32_t end = r + 1;
                while (end < endRow && placeInRows(end * a.foldDown, i) == place)
                    ++end;
                const double height = (end - r) * a.cellHeight;
                drawing_.bands.push_back({{at, top + (r - firstRow) * a.cellHeight, width - 1, height},
                                          axis.kind,
                                          place % 2 == 1,
                                          width > kNarrowBand && height >= type_.line - 1
                                              ? std::to_string(place)
                                              : std::string()});
                r = end;
            }
            at += width;
        }
    }

    void addCell(uint32_t stage, uint32_t row, uint32_t column, DrawnRect rect) {
        const Arrangement& a = best_;
        const double gap = a.side() >= kApart ? 1 : 0;
        rect.width -= gap;
        rect.height -= gap;
        MeshDrawing::Cell cell;
        cell.rect = rect;
        cell.empty = cell.replica = true;
        uint64_t most = 0;
        for (uint32_t r = row * a.foldDown; r < std::min(rows_, (row + 1) * a.foldDown); ++r) {
            for (uint32_t c = column * a.foldAcross; c < std::min(columns_, (column + 1) * a.foldAcross);
                 ++c) {
                const uint32_t number = rankAt(stage, r, c);
                const RankFacts& rank = picture_.rank(number);
                cell.ranks.push_back(number);
                most = std::max(most, rank.bytes);
                cell.health = std::max(cell.health, rank.health);
                cell.empty = cell.empty && rank.chunks == 0;
                cell.replica = cell.replica && rank.sameAs != kNone;
            }
        }
        std::ranges::sort(cell.ranks);
        cell.share =
            picture_.mostBytes() ? static_cast<double>(most) / static_cast<double>(picture_.mostBytes()) : 0;
        const auto fits = [&](const std::string& text) { return lettersOf(text, type_) + 6 <= rect.width; };
        if (cell.ranks.size() == 1 && rect.height >= type_.line - 2) {
            cell.text = std::to_string(cell.ranks[0]);
            if (!fits(cell.text)) cell.text.clear();
            const std::string& experts = picture_.rank(cell.ranks[0]).experts;
            const std::string second = experts.empty() ? std::string() : "e" + experts;
            if (rect.height >= 2 * type_.line - 1 && fits(second)) cell.second = second;
        }
        drawing_.cells.push_back(std::move(cell));
    }

    // Wrapped into lines; places are moved below the boxes when their height is known.
    void makeKeys() {
        const double sample = 14, gap = 16;
        double x = 0, y = 0;
        const auto key = [&](MeshDrawing::Key one) {
            const double width = sample + 5 + lettersOf(one.text, type_) * 1.06;
            if (x > 0 && x + width > width_) {
                x = 0;
                y += type_.line + 1;
            }
            one.sample = {x, y + (type_.line - 12) / 2, sample, 12};
            one.label = {x + sample + 5, y, width - sample - 5, type_.line};
            x += width + gap;
            keysWidth_ = std::max(keysWidth_, x - gap);
            drawing_.keys.push_back(std::move(one));
        };
        using What = MeshDrawing::Key::What;
        for (const MeshPicture::Axis& axis : picture_.axes()) {
            if (picture_.known() && axis.size > 1)
                key({What::axis, axis.kind, Health::ok, {}, {}, fmt::format("{} {}", axis.name, axis.size)});
        }
        uint32_t seen = 0;
        bool replica = false, empty = false;
        for (uint32_t r = 0; r < picture_.rankCount(); ++r) {
            const RankFacts& rank = picture_.rank(r);
            seen |= 1U << static_cast<int>(rank.health);
            replica = replica || rank.sameAs != kNone;
            empty = empty || rank.chunks == 0;
        }
        key({What::bytes,
             {},
             Health::ok,
             {},
             {},
             fmt::format("bytes, full: {}", bytesText(picture_.mostBytes()))});
        if (replica) key({What::replica, {}, Health::ok, {}, {}, "replica of an earlier rank"});
        if (empty) key({What::empty, {}, Health::ok, {}, {}, "stores nothing"});
        for (int h = static_cast<int>(Health::nonFinite); h <= static_cast<int>(Health::gap); ++h) {
            const auto health = static_cast<Health>(h);
            if (seen >> h & 1)
                key({What::state,
                     {},
                     health,
                     {},
                     {},
                     health == Health::missing ? "missing or truncated" : healthName(health)});
        }
        keysHeight_ = y + type_.line + 2;
    }

    const MeshPicture& picture_;
    const double width_, height_;
    const DrawnType type_;
    int box_ = -1, across_ = -1;
    std::vector<size_t> down_;
    uint32_t rows_ = 1, columns_ = 1;
    bool titled_ = false;
    double keysHeight_ = 0, keysWidth_ = 0;
    Arrangement best_;
    MeshDrawing drawing_;
};

// ------------------------------------------------------------------ SVG

// The triangle in the upper right corner; of small cells all of it.
std::string cornerText(const DrawnRect& r, Health health, bool dark) {
    if (health <= Health::unread) return {};
    const double side = std::min({r.width, r.height, 11.0});
    const std::string color = svg::color(healthRgb(health, dark));
    if (side < 6) return svg::rect(r, fmt::format("class=\"state\" fill=\"{}\"", color));
    return fmt::format("<path class=\"state\" d=\"M{:.1f} {:.1f}h{:.1f}v{:.1f}z\" fill=\"{}\"/>",
                       r.x + r.width - side, r.y, side, side, color);
}

std::string cellText(const MeshDrawing::Cell& cell, const MeshPicture& picture, const svg::Shades& shades) {
    const std::string title = cell.ranks.size() == 1 ? picture.rankText(cell.ranks[0])
                                                     : fmt::format("Ranks {}", spansText(cell.ranks, 8));
    std::string spans = spansText(cell.ranks, SIZE_MAX);
    std::string data;
    for (size_t i = 0; i < spans.size(); ++i) {
        if (spans.compare(i, 3, "–") == 0) {
            data += '-';
            i += 2;
        } else if (spans[i] != ',') {
            data += spans[i];
        }
    }
    std::string out =
        fmt::format("<g class=\"cell\" data-ranks=\"{}\"><title>{}</title>", data, svg::escaped(title));
    const bool apart = std::min(cell.rect.width, cell.rect.height) >= kApart - 1;
    const std::string outline = !apart ? "stroke=\"none\""
                                       : fmt::format("stroke=\"{}\"{}", shades.line,
                                                     cell.empty     ? " stroke-dasharray=\"3 2\""
                                                     : cell.replica ? " stroke-dasharray=\"1 2\""
                                                                    : "");
    out += svg::rect(cell.rect, fmt::format("class=\"back\" fill=\"{}\" {}", shades.surface, outline));
    if (cell.share > 0) {
        out += svg::rect(cell.level(), fmt::format("class=\"bytes\" fill=\"{}\" fill-opacity=\"{:.2f}\"",
                                                   svg::color(bytesRgb(shades.dark)), cell.tone()));
    }
    out += cornerText(cell.rect, cell.health, shades.dark);
    const double middle = cell.second.empty() ? svg::kBaseline : -3;
    if (!cell.text.empty()) out += svg::centered(cell.rect, middle, "rank", shades.text, cell.text);
    if (!cell.second.empty())
        out += svg::centered(cell.rect, svg::kBaseline + 6, "experts", shades.quiet, cell.second);
    return out + "</g>\n";
}

std::string keyText(const MeshDrawing::Key& key, const svg::Shades& shades) {
    using What = MeshDrawing::Key::What;
    std::string out;
    const std::string border = fmt::format("stroke=\"{}\"", shades.line);
    switch (key.what) {
        case What::axis:
            out = svg::rect(key.sample, fmt::format("class=\"axis {}\" fill=\"{}\"", axisKindName(key.kind),
                                                    svg::color(axisRgb(key.kind, shades.dark))));
            break;
        case What::bytes:
            out =
                svg::rect(key.sample, fmt::format("class=\"back\" fill=\"{}\" {}", shades.surface, border)) +
                svg::rect({key.sample.x, key.sample.y + 5, key.sample.width, key.sample.height - 5},
                          fmt::format("class=\"bytes\" fill=\"{}\"", svg::color(bytesRgb(shades.dark))));
            break;
        case What::state:
            out =
                svg::rect(key.sample, fmt::format("class=\"back\" fill=\"{}\" {}", shades.surface, border)) +
                cornerText(key.sample, key.health, shades.dark);
            break;
        case What::replica:
        case What::empty:
            out = svg::rect(key.sample,
                            fmt::format("class=\"back\" fill=\"{}\" {} stroke-dasharray=\"{}\"",
                                        shades.surface, border, key.what == What::empty ? "3 2" : "1 2"));
            break;
    }
    return out +
           svg::text(key.label.x, key.label.y + key.label.height / 2 + svg::kBaseline, "start", "key",
                     shades.quiet, key.text) +
           "\n";
}

}  // namespace

DrawnRect MeshDrawing::Cell::level() const {
    DrawnRect part = rect;
    if (rect.height < kLevels) return part;
    part.height *= share;
    part.y += rect.height - part.height;
    return part;
}

double MeshDrawing::Cell::tone() const {
    const double full = replica ? 0.5 : 1;
    return rect.height < kLevels ? full * (0.2 + 0.8 * share) : full;
}

int MeshDrawing::cellOf(uint32_t rank) const {
    const auto found = std::ranges::find_if(
        cells, [&](const Cell& cell) { return std::ranges::binary_search(cell.ranks, rank); });
    return found == cells.end() ? -1 : static_cast<int>(found - cells.begin());
}

int MeshDrawing::cellAt(double x, double y) const {
    const auto found =
        std::ranges::find_if(cells, [&](const Cell& cell) { return cell.rect.contains(x, y); });
    return found == cells.end() ? -1 : static_cast<int>(found - cells.begin());
}

int MeshDrawing::neighbor(int from, int dx, int dy) const {
    if (from < 0) return cells.empty() ? -1 : 0;
    const DrawnRect& at = cells[static_cast<size_t>(from)].rect;
    int best = from;
    double least = INFINITY;
    for (size_t i = 0; i < cells.size(); ++i) {
        const double x = cells[i].rect.x - at.x, y = cells[i].rect.y - at.y;
        const double along = x * dx + y * dy, aside = std::abs(x * dy) + std::abs(y * dx);
        if (along < 0.5 || aside > 0.5) continue;  // the same line only
        if (along < least) {
            least = along;
            best = static_cast<int>(i);
        }
    }
    return best;
}

MeshDrawing drawMesh(const MeshPicture& picture, double width, double height, const DrawnType& type) {
    return Layout(picture, width, height, type).draw();
}

MeshSheet sheetOf(const MeshPicture& picture, const std::string& heading, double width, double height,
                  bool dark) {
    constexpr double kMargin = 8, kHead = 20;
    const svg::Shades shades = svg::shadesOf(dark);
    MeshSheet sheet;
    sheet.x = kMargin;
    sheet.y = kMargin + kHead;
    sheet.drawing = drawMesh(picture, width - 2 * kMargin, height - 2 * kMargin - kHead, DrawnType());
    const MeshDrawing& drawing = sheet.drawing;
    svg::Part& part = sheet.part;
    part.cls = "mesh";
    part.title = "Mesh of ranks: " + heading;
    part.width = std::max(drawing.width, lettersOf(heading, DrawnType()) * 1.1) + 2 * kMargin;
    part.height = drawing.height + 2 * kMargin + kHead;
    std::string& out = part.text;
    out += svg::text(kMargin, kMargin + 11, "start", "head", shades.text, heading) + "\n";
    out += fmt::format("<g transform=\"translate({} {})\">\n", kMargin, kMargin + kHead);
    for (const MeshDrawing::Box& box : drawing.boxes) {
        out += svg::rect(box.rect, fmt::format("class=\"box\" rx=\"3\" fill=\"{}\" stroke=\"{}\"",
                                               shades.panel, shades.line));
        if (picture.hasStages())
            out += svg::rect({box.rect.x, box.rect.y, box.rect.width, 2},
                             fmt::format("class=\"axis pipeline\" fill=\"{}\"",
                                         svg::color(axisRgb(AxisKind::pipeline, dark))));
        out += svg::text(box.title.x, box.title.y + box.title.height / 2 + svg::kBaseline, "start", "title",
                         shades.text, box.text) +
               "\n";
    }
    for (const MeshDrawing::Band& band : drawing.bands) {
        out += svg::rect(band.rect, fmt::format("class=\"axis {}\" fill=\"{}\" fill-opacity=\"{}\"",
                                                axisKindName(band.kind), svg::color(axisRgb(band.kind, dark)),
                                                band.odd ? "0.44" : "0.25"));
        if (!band.text.empty())
            out += svg::centered(band.rect, svg::kBaseline, "place", shades.text, band.text);
        out += "\n";
    }
    for (const MeshDrawing::Cell& cell : drawing.cells)
        out += cellText(cell, picture, shades);
    for (const MeshDrawing::Key& key : drawing.keys)
        out += keyText(key, shades);
    out += "</g>\n";
    return sheet;
}

std::string svgOf(const MeshPicture& picture, double width, double height, bool dark) {
    return svg::alone(sheetOf(picture, picture.title(), width, height, dark).part, svg::shadesOf(dark));
}

}  // namespace shardscope
