// How the placement map is painted; what it does is in placement_map.cpp.
#include <QPainter>
#include <QPainterPath>
#include <QScrollBar>
#include <algorithm>
#include <cmath>

#include "ui/models/texts.h"
#include "ui/widgets/labels.h"
#include "ui/widgets/placement_map.h"
#include "ui/widgets/theme.h"

namespace shardscope::ui {

namespace {

constexpr double kOutlined = 6;   // from here on cells have lines between them
constexpr double kTicks = 30;     // from here on tiles show where the tensor is cut
constexpr uint8_t kSevere = 165;  // bytes of states worse than ok
constexpr size_t kKeptDetails = 512;
constexpr double kSlice = 6;  // what a slice measures at least, so that its place can be read

// Where the share [from, to) of `length` pixels starting at `origin` is painted, in whole pixels. A slice
// thinner than `least` grows around its middle and stays inside.
std::pair<double, double> painted(double origin, double length, float from, float to, double least) {
    double begin = std::round(origin + length * static_cast<double>(from));
    double size = std::round(origin + length * static_cast<double>(to)) - begin;
    least = std::min(least, length);
    if (size < least) {
        begin = std::clamp(std::round(begin + (size - least) / 2), origin, origin + length - least);
        size = least;
    }
    return {begin, size};
}

QColor faded(QColor color, int alpha) {
    color.setAlpha(alpha);
    return color;
}

}  // namespace

const std::vector<QRgb>& placementColors() {
    static std::vector<QRgb> colors;
    static bool forDark = false;
    if (!colors.empty() && forDark == darkTheme()) return colors;
    forDark = darkTheme();
    colors.assign(256, surfaceColor().rgb());
    for (int value = 1; value < 256; ++value) {
        const auto byte = static_cast<uint8_t>(value);
        const Health health = PlacementMatrix::healthOfByte(byte);
        const QColor color =
            health == Health::ok ? holdColor(PlacementMatrix::shareOfByte(byte)) : healthColor(health);
        colors[static_cast<size_t>(value)] = color.rgb();
    }
    return colors;
}

const RowDetail& PlacementMap::detail(uint32_t row) {
    auto known = details_.find(row);
    if (known == details_.end()) {
        if (details_.size() >= kKeptDetails) details_.clear();
        known = details_.emplace(row, matrix_->detail(row)).first;
    }
    if (std::min(cellWidth_, cellHeight_) >= kTicks && !known->second.hasTicks)
        matrix_->addTicks(row, known->second);
    return known->second;
}

// Outlines and hatches are slow: a tile of each size and state is painted once.
const QPixmap& PlacementMap::tileOf(Health health, bool copy, const QSize& size) {
    const std::tuple key(static_cast<int>(health), copy, size.width(), size.height());
    if (const auto known = tiles_.find(key); known != tiles_.end()) return known->second;
    constexpr size_t kMostTiles = 64;
    if (tiles_.size() >= kMostTiles) tiles_.clear();
    const double ratio = viewport()->devicePixelRatioF();
    QPixmap tile((QSizeF(size) * ratio).toSize());
    tile.setDevicePixelRatio(ratio);
    tile.fill(surfaceColor());
    QPainter painter(&tile);
    painter.setFont(font());
    const QRectF rect(QPointF(), size);
    if (health == Health::ok) {
        painter.fillRect(rect, faded(healthColor(Health::ok), 120));
        QPen pen(copy ? palette().color(QPalette::Text) : faded(outlineColor(), 150));
        if (copy) pen.setDashPattern({1, 2});
        painter.setPen(pen);
        painter.drawRect(rect.adjusted(0.5, 0.5, -0.5, -0.5));
    } else {
        paintHealth(painter, rect, health);
    }
    painter.end();
    return tiles_.emplace(key, std::move(tile)).first->second;
}

void PlacementMap::paintEvent(QPaintEvent*) {
    QPainter painter(viewport());
    painter.setFont(font());
    painter.fillRect(viewport()->rect(), surfaceColor());
    if (matrix_ && matrix_->rowCount() > 0 && matrix_->columnCount() > 0) {
        painter.save();
        painter.setClipRect(gridRect());
        if (showsTiles())
            paintTiles(painter, visibleRowsBelowPins());
        else
            paintRaster(painter);
        paintLaneEdges(painter, visibleRowsBelowPins());
        if (pinnedRows() > 0) paintPinned(painter);
        paintMarks(painter);
        painter.restore();
        paintGapColumn(painter);
        paintLanes(painter);
        paintLabels(painter);
        paintHeader(painter);
        const QRect grid = gridRect();
        if (pinnedRows() > 0)
            painter.fillRect(QRect(0, pinnedRect().bottom(), viewport()->width(), 2), accentColor());
        painter.setPen(gridColor());
        painter.drawLine(grid.left() - 1, 0, grid.left() - 1, viewport()->height());
        painter.drawLine(0, grid.top() - 1, viewport()->width(), grid.top() - 1);
    }
    if (hasFocus()) {
        painter.setPen(QPen(accentColor(), 2));
        painter.setBrush(Qt::NoBrush);
        painter.drawRect(QRectF(viewport()->rect()).adjusted(1, 1, -1, -1));
    }
}

void PlacementMap::paintRaster(QPainter& painter) {
    const QRect grid = gridRect();
    const double ratio = viewport()->devicePixelRatioF();
    const QSize size = (QSizeF(grid.size()) * ratio).toSize();
    if (size.isEmpty()) return;
    if (rasterOld_ || raster_.size() != size) {
        if (raster_.size() != size) raster_ = QImage(size, QImage::Format_RGB32);
        std::vector<uint8_t> pixels(static_cast<size_t>(size.width()) * static_cast<size_t>(size.height()));
        matrix_->pyramid().sample(horizontalScrollBar()->value() / cellWidth_, 1 / (cellWidth_ * ratio),
                                  size.width(), verticalScrollBar()->value() / cellHeight_,
                                  1 / (cellHeight_ * ratio), size.height(), pixels.data());
        if (std::min(cellWidth_, cellHeight_) * ratio < 3)
            spreadWorst(pixels, size.width(), size.height(), kSevere);
        const std::vector<QRgb>& colors = placementColors();
        for (int y = 0; y < size.height(); ++y) {
            auto* line = reinterpret_cast<QRgb*>(raster_.scanLine(y));
            const uint8_t* from = pixels.data() + static_cast<size_t>(y) * static_cast<size_t>(size.width());
            for (int x = 0; x < size.width(); ++x)
                line[x] = colors[from[x]];
        }
        raster_.setDevicePixelRatio(ratio);
        rasterOld_ = false;
    }
    painter.drawImage(grid.topLeft(), raster_);
    // Lines where there is room for them.
    painter.setPen(surfaceColor());
    const Span rows = visibleRows(), columns = visibleColumns();
    if (cellWidth_ >= kOutlined) {
        for (int c = columns.begin; c <= columns.end; ++c)
            painter.drawLine(QPointF(std::floor(columnLeft(c)), grid.top()),
                             QPointF(std::floor(columnLeft(c)), grid.bottom()));
    }
    if (cellHeight_ >= kOutlined) {
        for (int r = rows.begin; r <= rows.end; ++r)
            painter.drawLine(QPointF(grid.left(), std::floor(rowTop(r))),
                             QPointF(grid.right(), std::floor(rowTop(r))));
    }
}

// Over what scrolls below it.
void PlacementMap::paintPinned(QPainter& painter) {
    const QRect band = pinnedRect();
    painter.save();
    painter.setClipRect(band, Qt::IntersectClip);
    painter.fillRect(band, surfaceColor());
    if (showsTiles()) {
        paintTiles(painter, {0, pinnedRows()});
    } else {
        const double ratio = viewport()->devicePixelRatioF();
        const QSize size = (QSizeF(band.size()) * ratio).toSize();
        if (!size.isEmpty()) {
            std::vector<uint8_t> pixels(static_cast<size_t>(size.width()) *
                                        static_cast<size_t>(size.height()));
            matrix_->pyramid().sample(horizontalScrollBar()->value() / cellWidth_, 1 / (cellWidth_ * ratio),
                                      size.width(), 0, 1 / (cellHeight_ * ratio), size.height(),
                                      pixels.data());
            QImage image(size, QImage::Format_RGB32);
            const std::vector<QRgb>& colors = placementColors();
            for (int y = 0; y < size.height(); ++y) {
                auto* line = reinterpret_cast<QRgb*>(image.scanLine(y));
                for (int x = 0; x < size.width(); ++x)
                    line[x] = colors[pixels[static_cast<size_t>(y) * static_cast<size_t>(size.width()) +
                                            static_cast<size_t>(x)]];
            }
            image.setDevicePixelRatio(ratio);
            painter.drawImage(band.topLeft(), image);
        }
    }
    painter.restore();
}

void PlacementMap::paintTiles(QPainter& painter, Span rows) {
    const Span columns = visibleColumns();
    for (int r = rows.begin; r < rows.end; ++r) {
        const RowDetail& row = detail(static_cast<uint32_t>(r));
        const auto rectOf = [&](uint32_t column) {
            // Whole pixels, so that outlines stay sharp.
            const QPointF from(std::floor(columnLeft(static_cast<int>(column))), std::floor(rowTop(r)));
            const QPointF to(std::floor(columnLeft(static_cast<int>(column) + 1)), std::floor(rowTop(r + 1)));
            return QRectF(from, to).adjusted(1, 1, -1, -1);
        };
        QPen ghost(faded(faintTextColor(), 120));
        ghost.setDashPattern({3, 3});
        painter.setPen(ghost);
        painter.setBrush(Qt::NoBrush);
        for (const RowDetail::Ghost& one : row.ghosts) {
            if (static_cast<int>(one.column) >= columns.begin && static_cast<int>(one.column) < columns.end)
                painter.drawRect(rectOf(one.column).adjusted(0.5, 0.5, -0.5, -0.5));
        }
        auto cell = std::lower_bound(row.cells.begin(), row.cells.end(), static_cast<uint32_t>(columns.begin),
                                     [](const MatrixCell& c, uint32_t column) { return c.column < column; });
        for (; cell != row.cells.end() && cell->column < static_cast<uint32_t>(columns.end); ++cell) {
            paintTile(painter, rectOf(cell->column), row, *cell);
        }
    }
}

void PlacementMap::paintTile(QPainter& painter, const QRectF& rect, const RowDetail& row,
                             const MatrixCell& cell) {
    const bool damaged = cell.health > Health::unread;
    painter.drawPixmap(rect.topLeft(), tileOf(cell.health, cell.copyOf != kNone, rect.size().toSize()));
    const QRectF inside = rect.adjusted(1, 1, -1, -1);
    for (uint32_t i = 0; i < cell.slices; ++i) {
        const RowDetail::Slice& slice = row.slices[cell.firstSlice + i];
        const bool empty = slice.left == slice.right || slice.top == slice.bottom;
        // Several slices of one cell must not grow into each other.
        const double least = empty ? 1 : std::max(1.0, kSlice / cell.slices);
        const auto [left, width] = painted(inside.left(), inside.width(), slice.left, slice.right, least);
        const auto [top, height] = painted(inside.top(), inside.height(), slice.top, slice.bottom, least);
        const QRectF part(left, top, width, height);
        const bool whole = slice.left <= 0 && slice.top <= 0 && slice.right >= 1 && slice.bottom >= 1;
        if (damaged && whole) continue;
        if (damaged) {
            painter.setBrush(Qt::NoBrush);
            if (std::min(part.width(), part.height()) >= kOutlined) {
                painter.setPen(QPen(surfaceColor(), 3));  // to stand out from the hatch
                painter.drawRect(part.adjusted(1.5, 1.5, -1.5, -1.5));
            }
            painter.setPen(QPen(palette().color(QPalette::Text), 1));
            painter.drawRect(part.adjusted(0.5, 0.5, -0.5, -0.5));
        } else if (empty) {
            painter.fillRect(part, faintTextColor());
        } else {
            painter.fillRect(part, holdColor(0.8));
        }
    }
    if (cell.health == Health::missing)
        painter.fillRect(QRectF(rect.left(), rect.top(), 3, rect.height()), healthColor(Health::missing));
    if (rect.width() >= kTicks && rect.height() >= kTicks) paintTicks(painter, inside, row);
    if (cell.chunks > 1 && rect.width() >= kTicks && rect.height() >= kTicks) {
        const QString count = QString::number(cell.chunks);
        QRectF plate(0, 0, fontMetrics().horizontalAdvance(count) + 6, fontMetrics().height());
        plate.moveBottomRight(rect.bottomRight() - QPointF(1, 1));
        painter.fillRect(plate, surfaceColor());
        painter.setPen(palette().color(QPalette::Text));
        painter.drawText(plate, Qt::AlignCenter, count);
    }
}

void PlacementMap::paintTicks(QPainter& painter, const QRectF& rect, const RowDetail& row) {
    painter.setPen(QPen(outlineColor(), 1));
    const auto across = [&](const std::vector<float>& at, double length) {
        if (rect.width() / static_cast<double>(at.size() + 1) < 4) return;
        for (const float share : at) {
            const double x = std::round(rect.left() + rect.width() * static_cast<double>(share)) + 0.5;
            painter.drawLine(QPointF(x, rect.bottom() - length), QPointF(x, rect.bottom()));
        }
    };
    const auto down = [&](const std::vector<float>& at, double length) {
        if (rect.height() / static_cast<double>(at.size() + 1) < 4) return;
        for (const float share : at) {
            const double y = std::round(rect.top() + rect.height() * static_cast<double>(share)) + 0.5;
            painter.drawLine(QPointF(rect.left(), y), QPointF(rect.left() + length, y));
        }
    };
    across(row.acrossAll, 3);
    across(row.acrossOuter, 7);
    down(row.downAll, 3);
    down(row.downOuter, 7);
}

void PlacementMap::paintMarks(QPainter& painter) {
    const QRect grid = gridRect();
    const Span columns = visibleColumns();
    for (int c = columns.begin; c < columns.end; ++c) {
        if (static_cast<size_t>(c) >= selectedColumns_.size() || !selectedColumns_[static_cast<size_t>(c)])
            continue;
        const QRectF at(columnLeft(c), grid.top(), std::max(1.0, cellWidth_), grid.height());
        painter.fillRect(at, faded(accentColor(), 28));
        painter.setPen(faded(accentColor(), 160));
        painter.drawLine(at.topLeft(), at.bottomLeft());
        painter.drawLine(at.topRight(), at.bottomRight());
    }
    if (!region_.isEmpty()) {
        const QRectF at(columnLeft(region_.left()), rowTop(region_.top()), region_.width() * cellWidth_,
                        region_.height() * cellHeight_);
        painter.fillRect(at, faded(accentColor(), 40));
        painter.setPen(QPen(accentColor(), 1, Qt::DashLine));
        painter.setBrush(Qt::NoBrush);
        painter.drawRect(at.adjusted(0.5, 0.5, -0.5, -0.5));
    }
    if (hover_.valid()) {
        painter.setPen(QPen(faded(outlineColor(), 130), 1));
        const QPointF at = cellRect(hover_).center();
        painter.drawLine(QPointF(grid.left(), at.y()), QPointF(grid.right() + gapWidth(), at.y()));
        if (hover_.column < matrix_->columnCount())
            painter.drawLine(QPointF(at.x(), grid.top()), QPointF(at.x(), grid.bottom()));
    }
    if (current_.valid() && current_.column < matrix_->columnCount()) {
        QRectF at = cellRect(current_);
        // One that scrolled under the pinned rows is not drawn over them.
        if (static_cast<int>(current_.row) >= pinnedRows())
            painter.setClipRect(grid.adjusted(0, pinnedRect().height(), 0, 0), Qt::IntersectClip);
        painter.setPen(QPen(faded(accentColor(), 130), 1));
        painter.drawLine(QPointF(grid.left(), at.center().y()), QPointF(grid.right(), at.center().y()));
        painter.drawLine(QPointF(at.center().x(), grid.top()), QPointF(at.center().x(), grid.bottom()));
        constexpr double kLeast = 9;  // a frame that can be found again
        if (at.width() < kLeast) at.adjust((at.width() - kLeast) / 2, 0, (kLeast - at.width()) / 2, 0);
        if (at.height() < kLeast) at.adjust(0, (at.height() - kLeast) / 2, 0, (kLeast - at.height()) / 2);
        painter.setBrush(Qt::NoBrush);
        painter.setPen(QPen(surfaceColor(), 4));
        painter.drawRect(at);
        painter.setPen(QPen(accentColor(), 2));
        painter.drawRect(at);
    }
}

// Elements that no rank holds have a column of their own, which does not scroll away.
void PlacementMap::paintGapColumn(QPainter& painter) {
    if (gapWidth() == 0) return;
    const QRect grid = gridRect();
    const QRect column(grid.right() + 1, grid.top(), gapWidth(), grid.height());
    painter.save();
    painter.setClipRect(column);
    painter.fillRect(column, panelColor());
    if (cellHeight_ >= 3) {
        paintGapRows(painter, visibleRowsBelowPins());
        if (pinnedRows() > 0) {
            painter.fillRect(QRect(column.left(), column.top(), column.width(), pinnedRect().height()),
                             panelColor());
            paintGapRows(painter, {0, pinnedRows()});
        }
    } else {
        std::vector<uint8_t> marks(static_cast<size_t>(column.height()));
        matrix_->gapPyramid().sample(0, 1, 1, verticalScrollBar()->value() / cellHeight_, 1 / cellHeight_,
                                     column.height(), marks.data());
        for (int y = 0; y < column.height();) {
            const int begin = y;
            while (y < column.height() && marks[static_cast<size_t>(y)])
                ++y;
            if (y > begin) {
                const double height = std::max(7, y - begin);
                paintHealth(painter,
                            QRectF(column.left() + 4, column.top() + (begin + y - height) / 2.0,
                                   column.width() - 8, height),
                            Health::gap);
            } else {
                ++y;
            }
        }
    }
    if (current_.valid() && current_.column >= matrix_->columnCount()) {
        QRectF at = cellRect(current_).adjusted(2, 0, -2, 0);
        if (at.height() < 9) at.adjust(0, (at.height() - 9) / 2, 0, (9 - at.height()) / 2);
        painter.setPen(QPen(accentColor(), 2));
        painter.setBrush(Qt::NoBrush);
        painter.drawRect(at);
    }
    painter.restore();
    painter.setPen(gridColor());
    painter.drawLine(column.left(), 0, column.left(), viewport()->height());
}

void PlacementMap::paintGapRows(QPainter& painter, Span rows) {
    const QRect grid = gridRect();
    for (int r = rows.begin; r < rows.end; ++r) {
        if (matrix_->row(static_cast<uint32_t>(r)).health != Health::gap) continue;
        const double top = std::floor(rowTop(r));
        paintHealth(
            painter,
            QRectF(grid.right() + 5, top + 1, gapWidth() - 8, std::floor(top + cellHeight_) - top - 2),
            Health::gap);
    }
}

void PlacementMap::paintLabels(QPainter& painter) {
    const QRect grid = gridRect();
    const int pins = pinnedRect().height();
    paintLabels(painter, visibleRowsBelowPins(),
                {0, grid.top() + pins, grid.left() - 1, grid.height() - pins});
    if (pins > 0) paintLabels(painter, {0, pinnedRows()}, {0, grid.top(), grid.left() - 1, pins});
}

void PlacementMap::paintLabels(QPainter& painter, Span rows, const QRect& clip) {
    const QRect grid = gridRect();
    painter.save();
    painter.setClipRect(clip);
    const QFontMetrics metrics = fontMetrics();
    const double line = metrics.height() + 1;
    // With less than a line for each row, every n-th row is named, with a tick at its place.
    const int every = std::max(1, static_cast<int>(std::ceil(line / cellHeight_)));
    const bool all = every == 1;
    double freeFrom = -1e9;  // names do not run into one another
    for (int r = rows.begin - rows.begin % every; r < rows.end; r += every) {
        const auto index = static_cast<uint32_t>(r);
        const MatrixRow& row = matrix_->row(index);
        const double center = rowTop(r) + cellHeight_ / 2;
        // A name that the header would cut moves down as long as it stays beside its row, or its tick tells.
        const double lowest = all ? rowTop(r) + cellHeight_ - line / 2 : clip.top();
        const double top = std::max(center - line / 2, std::min<double>(clip.top(), lowest));
        const double left = laneWidth_ + 6;
        const QRectF box(left, top, grid.left() - 8 - left, line);
        if (r < rows.begin || rowTop(r) + cellHeight_ <= clip.top() || top < freeFrom) continue;
        freeFrom = top + line - 2;
        const bool here = current_.valid() && current_.row == index;
        if (here)
            painter.fillRect(QRectF(laneWidth_, box.top(), grid.left() - laneWidth_, line),
                             faded(accentColor(), 40));
        double right = box.right();
        if (row.health != Health::ok && all) {
            const QRectF mark(right - 12, center - 6, 12, 12);
            paintHealth(painter, mark, row.health);
            right -= 16;
        }
        if (row.count > 1 && !row.summary) {
            const QString badge = QStringLiteral("×%1").arg(row.count);
            painter.setPen(faintTextColor());
            painter.drawText(QRectF(box.left(), box.top(), right - box.left(), line),
                             Qt::AlignRight | Qt::AlignVCenter, badge);
            right -= metrics.horizontalAdvance(badge) + 6;
        }
        painter.setPen(all ? palette().color(QPalette::Text) : faintTextColor());
        QString before = index < matrix_->pinnedCount() ? QStringLiteral("⚑ ") : QString();
        if (row.summary)
            before += matrix_->group(row.group).open ? QStringLiteral("▾ ") : QStringLiteral("▸ ");
        const int indent = row.summary ? 0 : indentOf(index);
        const QString name = before + elidedName(toQString(matrix_->rowText(index)), metrics,
                                                 static_cast<int>(right - box.left()) - indent -
                                                     metrics.horizontalAdvance(before));
        painter.save();
        if (row.summary) {
            QFont heading = font();
            heading.setBold(true);
            painter.setFont(heading);
        }
        painter.drawText(QRectF(box.left() + indent, box.top(), right - box.left() - indent, line),
                         Qt::AlignLeft | Qt::AlignVCenter, name);
        painter.restore();
        if (!all) painter.drawLine(QPointF(grid.left() - 6, center), QPointF(grid.left() - 2, center));
    }
    painter.restore();
}

// Lanes that have rows among these.
PlacementMap::Span PlacementMap::visibleLanes(Span rows) const {
    const std::vector<MatrixLane>& lanes = matrix_->lanes();
    const auto begin = std::partition_point(lanes.begin(), lanes.end(), [&](const MatrixLane& lane) {
        return static_cast<int>(lane.rowEnd) <= rows.begin;
    });
    const auto end = std::partition_point(begin, lanes.end(), [&](const MatrixLane& lane) {
        return static_cast<int>(lane.rowBegin) < rows.end;
    });
    return {static_cast<int>(begin - lanes.begin()), static_cast<int>(end - lanes.begin())};
}

// Where one expert ends and the next begins; stronger around all experts of a layer.
void PlacementMap::paintLaneEdges(QPainter& painter, Span rows) {
    const QRect grid = gridRect();
    const Span lanes = visibleLanes(rows);
    for (int i = lanes.begin; i < lanes.end; ++i) {
        const MatrixLane& lane = matrix_->lanes()[static_cast<size_t>(i)];
        if ((lane.rowEnd - lane.rowBegin) * cellHeight_ < kOutlined) continue;
        const auto edge = [&](uint32_t row, bool strong) {
            const double y = std::floor(rowTop(static_cast<int>(row))) + 0.5;
            painter.setPen(strong ? faded(outlineColor(), 200) : faded(outlineColor(), 90));
            painter.drawLine(QPointF(grid.left(), y), QPointF(grid.right(), y));
        };
        edge(lane.rowBegin, lane.groupBegin);
        const auto next = static_cast<size_t>(i) + 1;
        if (next == matrix_->lanes().size() || matrix_->lanes()[next].rowBegin != lane.rowEnd)
            edge(lane.rowEnd, true);
    }
}

void PlacementMap::paintLanes(QPainter& painter) {
    if (laneWidth_ == 0) return;
    const QRect grid = gridRect();
    const int pins = pinnedRect().height();
    paintLanes(painter, visibleRowsBelowPins(), {0, grid.top() + pins, laneWidth_, grid.height() - pins});
    if (pins > 0) paintLanes(painter, {0, pinnedRows()}, {0, grid.top(), laneWidth_, pins});
}

// A band for each expert, as the axes of the mesh have them above the columns.
void PlacementMap::paintLanes(QPainter& painter, Span rows, const QRect& clip) {
    painter.save();
    painter.setClipRect(clip);
    const double line = fontMetrics().height();
    double freeFrom = -1e9;
    const Span lanes = visibleLanes(rows);
    for (int i = lanes.begin; i < lanes.end; ++i) {
        const MatrixLane& lane = matrix_->lanes()[static_cast<size_t>(i)];
        const double top = rowTop(static_cast<int>(lane.rowBegin));
        const QRectF whole(0, top, laneWidth_, rowTop(static_cast<int>(lane.rowEnd)) - top);
        // Too thin to be told apart, they are one band.
        const bool thin = whole.height() < kOutlined;
        const double rim = thin ? 0 : 0.5;
        const int tone = thin ? 40 : lane.expert % 2 ? 52 : 26;
        painter.fillRect(whole.adjusted(1, rim, -1, -rim), faded(outlineColor(), tone));
        // The name stays in view while a part of its band is.
        const QRectF seen = whole.intersected(QRectF(clip));
        QRectF text(0, seen.center().y() - line / 2, laneWidth_, line);
        if (text.top() < freeFrom || seen.height() < std::min(line, whole.height())) continue;
        freeFrom = text.bottom();
        painter.setPen(palette().color(QPalette::Text));
        painter.drawText(text, Qt::AlignCenter, QStringLiteral("e%1").arg(lane.expert));
    }
    painter.restore();
}

void PlacementMap::paintHeader(QPainter& painter) {
    const QRect grid = gridRect();
    const int band = bandHeight();
    painter.fillRect(QRect(0, 0, viewport()->width(), grid.top() - 1), panelColor());
    const Span columns = visibleColumns();
    const size_t axes = matrix_->axes().size();
    for (size_t axis = 0; axis < axes; ++axis) {
        const double top = static_cast<double>(axis) * band + 1;
        painter.setPen(faintTextColor());
        painter.drawText(QRectF(6, top, grid.left() - 14, band), Qt::AlignRight | Qt::AlignVCenter,
                         QString::fromStdString(matrix_->axes()[axis].name));
        painter.save();
        painter.setClipRect(grid.left(), 0, grid.width(), grid.top());
        // Neighbors with the same place on this axis and the ones outside of it make up one band.
        const auto same = [&](int a, int b) {
            const auto& x = matrix_->column(static_cast<uint32_t>(a)).places;
            const auto& y = matrix_->column(static_cast<uint32_t>(b)).places;
            return std::equal(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(axis) + 1, y.begin());
        };
        for (int c = columns.begin; c < columns.end;) {
            int begin = c, end = c + 1;
            while (begin > 0 && same(begin - 1, c))
                --begin;
            while (end < static_cast<int>(matrix_->columnCount()) && same(end, c))
                ++end;
            const QRectF whole(columnLeft(begin), top, (end - begin) * cellWidth_, band);
            // The label stays in view while a part of its band is.
            const QRectF seen = whole.intersected(QRectF(grid.left(), top, grid.width(), band));
            const uint32_t place = matrix_->column(static_cast<uint32_t>(c)).places[axis].first;
            const QRectF plate =
                whole.adjusted(whole.width() >= 4 ? 0.5 : 0, 1, whole.width() >= 4 ? -0.5 : 0, -1);
            painter.fillRect(plate,
                             faded(axisColor(axisKind(matrix_->axes()[axis].name)), place % 2 ? 100 : 56));
            const QString text = toQString(matrix_->placeText(axis, static_cast<uint32_t>(c)));
            if (fontMetrics().horizontalAdvance(text) + 4 <= seen.width()) {
                painter.setPen(palette().color(QPalette::Text));
                painter.drawText(seen, Qt::AlignCenter, text);
            }
            c = end;
        }
        painter.restore();
    }
    paintRankRow(painter, QRectF(grid.left(), static_cast<double>(axes) * band + 1, grid.width(), band));
    if (gapWidth() > 0) {
        painter.setPen(palette().color(QPalette::Text));
        painter.drawText(QRectF(grid.right() + 1, static_cast<double>(axes) * band + 1, gapWidth(), band),
                         Qt::AlignCenter, tr("no owner"));
    }
}

void PlacementMap::paintRankRow(QPainter& painter, const QRectF& line) {
    const QRect grid = gridRect();
    const QFontMetrics metrics = fontMetrics();
    painter.setPen(faintTextColor());
    painter.drawText(QRectF(6, line.top(), grid.left() - 14, line.height()),
                     Qt::AlignRight | Qt::AlignVCenter, tr("rank"));
    painter.save();
    painter.setClipRect(grid.left(), 0, grid.width(), grid.top());
    const Span columns = visibleColumns();
    const auto textOf = [&](int c) {
        const MatrixColumn& column = matrix_->column(static_cast<uint32_t>(c));
        QString text = QString::number(column.rank);
        if (column.ranks.size() > 1) text += QStringLiteral(" ×%1").arg(column.ranks.size());
        return text;
    };
    int widest = 0;
    for (const int c : {columns.begin, (columns.begin + columns.end) / 2, columns.end - 1})
        widest = std::max(
            widest, metrics.horizontalAdvance(textOf(std::clamp(c, columns.begin, columns.end - 1))) + 8);
    const int every = roundStep(static_cast<int>(std::ceil(widest / cellWidth_)));
    for (int c = columns.begin; c < columns.end; ++c) {
        const MatrixColumn& column = matrix_->column(static_cast<uint32_t>(c));
        const QRectF box(columnLeft(c), line.top(), cellWidth_, line.height());
        if (static_cast<size_t>(c) < selectedColumns_.size() && selectedColumns_[static_cast<size_t>(c)])
            painter.fillRect(box, faded(accentColor(), 80));
        if (column.health <= Health::unread) continue;
        // Below the number, which stays.
        const QRectF wide =
            box.width() >= 3 ? box : QRectF(box.center().x() - 1.5, box.top(), 3, box.height());
        painter.fillRect(QRectF(wide.left(), wide.bottom() - 4, wide.width(), 4), healthColor(column.health));
    }
    for (int c = columns.begin - columns.begin % every; c < columns.end; c += every) {
        const MatrixColumn& column = matrix_->column(static_cast<uint32_t>(c));
        const QRectF box(columnLeft(c), line.top(), cellWidth_ * every, line.height());
        QString text = textOf(c);
        const QString glyph = QLatin1Char(' ') + healthGlyph(column.health);
        if (column.health > Health::unread && every == 1 &&
            metrics.horizontalAdvance(text + glyph) + 4 <= box.width())
            text += glyph;
        painter.setPen(every == 1 ? palette().color(QPalette::Text) : faintTextColor());
        // Half a number is another number.
        if (every == 1 || box.left() + 3 + metrics.horizontalAdvance(text) <= line.right())
            painter.drawText(box.adjusted(every == 1 ? 0 : 3, 0, 0, 0),
                             every == 1 ? Qt::AlignCenter : Qt::AlignVCenter | Qt::AlignLeft, text);
        if (every > 1)
            painter.drawLine(QPointF(box.left() + 0.5, box.bottom() - 5),
                             QPointF(box.left() + 0.5, box.bottom()));
    }
    painter.restore();
}

}  // namespace shardscope::ui
