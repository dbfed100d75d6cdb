#include "ui/widgets/treemap.h"

#include <QPainter>
#include <algorithm>
#include <cmath>

#include "ui/models/texts.h"
#include "ui/widgets/painting.h"
#include "ui/widgets/theme.h"

namespace shardscope::ui {

namespace {

constexpr double kTreemapMargin = 3;
constexpr double kLeastArea = 64;         // square pixels of a tile of its own
constexpr double kSmallestShare = 0.004;  // of the area, for a group or a file to be seen
constexpr double kRestArea = 2600;        // square pixels that a tile of several takes for its label, ...
constexpr double kMostRestShare = 0.08;   // ... but never more of its group
constexpr double kHeaderHeight = 18;

// Squarified treemaps (Bruls, Huizing, van Wijk): rows along the shorter side, closed when another item would
// make the worst proportion worse.
template <class Place>
void squarifyAreas(const std::vector<double>& areas, QRectF rect, Place&& place) {
    const auto worst = [](double sum, double least, double most, double side) {
        const double s2 = sum * sum, w2 = side * side;
        return std::max(w2 * most / s2, s2 / (w2 * least));
    };
    for (size_t i = 0; i < areas.size();) {
        const double side = std::max(1e-9, std::min(rect.width(), rect.height()));
        double sum = areas[i], least = areas[i], most = areas[i];
        size_t end = i + 1;
        while (end < areas.size()) {
            const double a = areas[end];
            if (worst(sum + a, std::min(least, a), std::max(most, a), side) > worst(sum, least, most, side))
                break;
            sum += a;
            least = std::min(least, a);
            most = std::max(most, a);
            ++end;
        }
        const bool upright = rect.width() >= rect.height();  // the row stands at the left
        const double thick = std::min(sum / side, upright ? rect.width() : rect.height());
        double at = upright ? rect.top() : rect.left();
        for (size_t k = i; k < end; ++k) {
            const double length = sum > 0 ? areas[k] / sum * side : 0;
            place(k,
                  upright ? QRectF(rect.left(), at, thick, length) : QRectF(at, rect.top(), length, thick));
            at += length;
        }
        if (upright)
            rect.setLeft(rect.left() + thick);
        else
            rect.setTop(rect.top() + thick);
        i = end;
    }
}

}  // namespace

Treemap::Treemap(QWidget* parent) : PaintedView(tr("Files by size"), {400, 300}, {160, 100}, parent) {}

void Treemap::setItems(std::vector<Item> items, std::function<QString(uint32_t)> text) {
    items_ = std::move(items);
    text_ = std::move(text);
    std::sort(items_.begin(), items_.end(), [](const Item& a, const Item& b) {
        if (a.group != b.group) return a.group < b.group;
        return a.size != b.size ? a.size > b.size : a.id < b.id;
    });
    layOut();
    update();
}

void Treemap::setSelected(uint32_t id) {
    if (id == selected_) return;
    selected_ = id;
    update();
}

size_t Treemap::aggregated() const {
    size_t count = 0;
    for (const Tile& tile : tiles_)
        count += tile.more;
    return count;
}

void Treemap::layOut() {
    tiles_.clear();
    headers_.clear();
    const QRectF whole =
        QRectF(rect()).adjusted(kTreemapMargin, kTreemapMargin, -kTreemapMargin, -kTreemapMargin);
    if (items_.empty() || whole.width() < 8 || whole.height() < 8) return;
    struct Group {
        size_t first, end;
        double size;
    };
    std::vector<Group> groups;
    double total = 0;
    for (size_t i = 0; i < items_.size();) {
        Group group{i, i, 0};
        while (group.end < items_.size() && items_[group.end].group == items_[i].group)
            group.size += static_cast<double>(items_[group.end++].size);
        i = group.end;
        total += group.size;
        groups.push_back(group);
    }
    if (groups.size() == 1) return placeGroup(0, items_.size(), whole);
    double shown = 0;
    for (Group& group : groups) {
        group.size = std::max(group.size, total * kSmallestShare);
        shown += group.size;
    }
    std::stable_sort(groups.begin(), groups.end(),
                     [](const Group& a, const Group& b) { return a.size > b.size; });
    std::vector<double> areas;
    for (const Group& group : groups)
        areas.push_back(group.size / std::max(1.0, shown) * whole.width() * whole.height());
    squarifyAreas(areas, whole, [&](size_t i, QRectF rect) {
        const Group& group = groups[i];
        if (rect.height() > 3 * kHeaderHeight && rect.width() > 60) {
            const QString& name = items_[group.first].group;
            headers_.push_back({QRectF(rect.left(), rect.top(), rect.width(), kHeaderHeight),
                                name.isEmpty() ? tr("top level") : name + "/"});
            rect.setTop(rect.top() + kHeaderHeight);
        }
        placeGroup(group.first, group.end, rect.adjusted(0, 0, -2, -2));
    });
}

void Treemap::placeGroup(size_t first, size_t end, QRectF rect) {
    double total = 0;
    for (size_t i = first; i < end; ++i)
        total += static_cast<double>(items_[i].size);
    const double area = rect.width() * rect.height();
    // Items without bytes, and those too small for a tile of their own, share one.
    size_t own = first;
    while (own < end && total > 0 && static_cast<double>(items_[own].size) / total * area >= kLeastArea)
        ++own;
    std::vector<Tile> tiles;
    for (size_t i = first; i < own; ++i)
        tiles.push_back({{}, i, 0, items_[i].health, items_[i].size});
    if (own < end) {
        Tile rest;
        rest.first = own;
        rest.more = end - own;
        for (size_t i = own; i < end; ++i) {
            rest.health = std::max(rest.health, items_[i].health);
            rest.size += items_[i].size;
        }
        // One item alone is shown as itself, however small.
        if (rest.more == 1) rest.more = 0;
        tiles.push_back(rest);
    }
    squarify(tiles, rect);
}

void Treemap::squarify(const std::vector<Tile>& tiles, QRectF rect) {
    double total = 0;
    for (const Tile& tile : tiles)
        total += static_cast<double>(tile.size);
    const double area = std::max(1.0, rect.width() * rect.height());
    const double rest = std::min(kRestArea / area, kMostRestShare);
    std::vector<double> areas;
    double sum = 0;
    for (const Tile& tile : tiles) {
        const double least = std::max(1.0, total) * (tile.more > 0 ? rest : kSmallestShare);
        areas.push_back(std::max(static_cast<double>(tile.size), least));
        sum += areas.back();
    }
    for (double& a : areas)
        a *= area / sum;
    squarifyAreas(areas, rect, [&](size_t i, const QRectF& place) {
        tiles_.push_back(tiles[i]);
        tiles_.back().rect = place;
    });
}

const Treemap::Tile* Treemap::tileAt(const QPointF& at) const {
    for (const Tile& tile : tiles_) {
        if (tile.rect.contains(at)) return &tile;
    }
    return nullptr;
}

const Treemap::Tile* Treemap::tileOf(uint32_t id) const {
    for (const Tile& tile : tiles_) {
        const size_t end = tile.first + std::max<size_t>(1, tile.more);
        for (size_t i = tile.first; i < end; ++i) {
            if (items_[i].id == id) return &tile;
        }
    }
    return nullptr;
}

QRectF Treemap::itemRect(uint32_t id) const {
    const Tile* tile = tileOf(id);
    return tile && tile->more == 0 ? tile->rect : QRectF();
}

QString Treemap::tileText(const Tile& tile) const {
    if (tile.more > 0)
        return tr("%1\n%2 together")
            .arg(countedText(tile.more, tr("1 more file"), tr("%1 more files")), sizeText(tile.size));
    return text_ ? text_(items_[tile.first].id) : items_[tile.first].label;
}

QString Treemap::emptyText() const {
    return tiles_.empty() ? tr("There are no files here.") : QString();
}

QString Treemap::textAt(const QPointF& position) const {
    const Tile* tile = tileAt(position);
    return tile ? tileText(*tile) : QString();
}

void Treemap::paint(QPainter& painter, const QRect&) {
    for (const Header& header : headers_) {
        painter.setPen(palette().color(QPalette::WindowText));
        const QRectF text = header.rect.adjusted(2, 0, -4, 0);
        painter.drawText(
            text, Qt::AlignVCenter | Qt::TextSingleLine,
            painter.fontMetrics().elidedText(header.text, Qt::ElideMiddle, static_cast<int>(text.width())));
    }
    for (const Tile& tile : tiles_) {
        const QRectF rect = tile.rect.adjusted(0.5, 0.5, -0.5, -0.5);
        const Item& item = items_[tile.first];
        const QColor color = tile.more > 0 ? softened(faintTextColor(), 0.3) : item.color;
        if (tile.health == Health::missing && tile.more == 0) {
            paintHealth(painter, rect, tile.health);
            const QRectF plate(rect.left() + 3, rect.top() + 3, rect.width() - 6,
                               std::min(rect.height() - 6, painter.fontMetrics().height() + 2.0));
            if (plate.width() > 50 && plate.height() >= painter.fontMetrics().height()) {
                painter.fillRect(plate, surfaceColor());
                paintTileLabel(painter, plate, item.label, surfaceColor());
            }
            continue;
        }
        paintTile(painter, rect, color);
        QRectF label = rect;
        if (tile.health > Health::unread && rect.width() > 12 && rect.height() > 12) {
            const QRectF mark(rect.left() + 2, rect.top() + 2, 14, 14);
            paintHealth(painter, mark, tile.health);
            if (rect.height() < 40) label.setLeft(mark.right());
        }
        QString name =
            tile.more > 0 ? countedText(tile.more, tr("1 more file"), tr("%1 more files")) : item.label;
        if (tile.more > 0 && painter.fontMetrics().horizontalAdvance(name) > label.width() - 4)
            name = QLatin1Char('+') + numberText(tile.more);
        const double line = painter.fontMetrics().height();
        const bool sized = painter.fontMetrics().horizontalAdvance(sizeText(tile.size)) < label.width() - 4;
        if (sized && label.height() > 2.4 * line) {
            const QRectF upper(label.left(), label.center().y() - line, label.width(), line);
            paintTileLabel(painter, upper, name, color);
            paintTileLabel(painter, upper.translated(0, line), sizeText(tile.size), color);
        } else {
            paintTileLabel(painter, label, name, color);
        }
    }
    if (const Tile* tile = selected_ == kNone ? nullptr : tileOf(selected_))
        paintSelectionFrame(painter, tile->rect);
}

void Treemap::resizeEvent(QResizeEvent* event) {
    QWidget::resizeEvent(event);
    layOut();
}

void Treemap::choose(const Tile* tile) {
    if (!tile) return;
    selected_ = items_[tile->first].id;
    describe(tileText(*tile));
    update();
    emit chosen(selected_);
}

void Treemap::mousePressEvent(QMouseEvent* event) {
    if (event->button() != Qt::LeftButton) return QWidget::mousePressEvent(event);
    choose(tileAt(event->position()));
}

bool Treemap::pressKey(int key) {
    const auto arrow = stepByKey(key);
    if (!arrow) return false;
    const QPointF step = *arrow;
    const Tile* from = selected_ == kNone ? nullptr : tileOf(selected_);
    if (!from) {
        choose(tiles_.empty() ? nullptr : &tiles_.front());
        return true;
    }
    // The nearest tile in that direction; sideways distance counts double.
    const Tile* best = nullptr;
    double least = INFINITY;
    for (const Tile& tile : tiles_) {
        const QPointF way = tile.rect.center() - from->rect.center();
        const double along = QPointF::dotProduct(way, step);
        const double aside = std::abs(way.x() * step.y()) + std::abs(way.y() * step.x());
        if (&tile == from || along < 1) continue;
        const double distance = along + 2 * aside;
        if (distance < least) {
            least = distance;
            best = &tile;
        }
    }
    choose(best);
    return true;
}
}  // namespace shardscope::ui
