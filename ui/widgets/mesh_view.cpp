#include "ui/widgets/mesh_view.h"

#include <QMouseEvent>
#include <QPainter>
#include <QPainterPath>
#include <algorithm>

#include "ui/models/texts.h"
#include "ui/widgets/painting.h"
#include "ui/widgets/theme.h"

namespace shardscope::ui {

namespace {

constexpr double kMeshMargin = 4;
constexpr double kMostHeight = 300;  // pixels, of the view
constexpr double kUsualWidth = 700;  // of the view; on a larger screen the picture grows with it
constexpr double kMostZoom = 3.5;
constexpr double kSmallCell = 6;   // below, cells have no outline and their state fills them
constexpr double kCorner = 12;     // of a state
constexpr double kGlyphCell = 18;  // cells of this size have the glyph of their state

QColor washed(QColor color, double alpha) {
    color.setAlphaF(static_cast<float>(alpha));
    return color;
}

}  // namespace

MeshView::MeshView(QWidget* parent) : PaintedView(tr("Mesh of ranks"), {420, 260}, {240, 170}, parent) {
    setMouseTracking(true);
}

void MeshView::setPicture(std::shared_ptr<const MeshPicture> picture) {
    picture_ = std::move(picture);
    current_ = hover_ = -1;
    layOut();
}

QRectF MeshView::rectOf(const DrawnRect& r) const {
    return {r.x * zoom_ + kMeshMargin, r.y * zoom_ + kMeshMargin, r.width * zoom_, r.height * zoom_};
}

void MeshView::layOut() {
    const QFontMetricsF metrics(font());
    zoom_ = std::clamp(width() / kUsualWidth, 1.0, kMostZoom);
    const DrawnType type{metrics.averageCharWidth() * 1.06 / zoom_, metrics.height() / zoom_};
    drawing_ = picture_ ? drawMesh(*picture_, (width() - 2 * kMeshMargin) / zoom_,
                                   kMostHeight - 2 * kMeshMargin, type)
                        : MeshDrawing();
    if (picture_) setFixedHeight(static_cast<int>(drawing_.height * zoom_ + 2 * kMeshMargin) + 1);
    if (current_ >= static_cast<int>(drawing_.cells.size())) current_ = -1;
    hover_ = -1;
    update();
}

void MeshView::setSelected(const std::vector<uint32_t>& ranks) {
    selected_ = ranks;
    update();
}

QPointF MeshView::centerOf(int cell) const {
    return rectOf(drawing_.cells[static_cast<size_t>(cell)].rect).center();
}

int MeshView::cellAt(const QPointF& at) const {
    return drawing_.cellAt((at.x() - kMeshMargin) / zoom_, (at.y() - kMeshMargin) / zoom_);
}

QString MeshView::cellText(int index) const {
    const MeshDrawing::Cell& cell = drawing_.cells[static_cast<size_t>(index)];
    if (cell.ranks.size() == 1) return toQString(picture_->rankText(cell.ranks[0]));
    QString text = tr("Ranks %1").arg(toQString(spansText(cell.ranks)));
    if (cell.health != Health::ok) text += tr("\nWorst state: %1").arg(healthName(cell.health));
    return text;
}

QString MeshView::emptyText() const {
    return picture_ ? QString() : tr("One rank wrote all of it; there is no mesh.");
}

QString MeshView::textAt(const QPointF& position) const {
    const int cell = cellAt(position);
    return cell >= 0 ? cellText(cell) : QString();
}

void MeshView::paint(QPainter& painter, const QRect& exposed) {
    paintBoxes(painter);
    for (const MeshDrawing::Cell& cell : drawing_.cells) {
        if (rectOf(cell.rect).intersects(exposed)) paintCell(painter, cell);
    }
    paintKeys(painter);
    paintGroups(painter);
}

void MeshView::paintBoxes(QPainter& painter) const {
    for (const MeshDrawing::Box& box : drawing_.boxes) {
        const QRectF rect = rectOf(box.rect);
        painter.fillRect(rect, panelColor());
        painter.setPen(gridColor());
        painter.setBrush(Qt::NoBrush);
        painter.drawRect(rect.adjusted(0.5, 0.5, -0.5, -0.5));
        if (picture_->hasStages())
            painter.fillRect(QRectF(rect.left(), rect.top(), rect.width(), 2), axisColor(AxisKind::pipeline));
        painter.setPen(palette().color(QPalette::WindowText));
        const QRectF title = rectOf(box.title);
        painter.drawText(title, Qt::AlignLeft | Qt::AlignVCenter,
                         painter.fontMetrics().elidedText(toQString(box.text), Qt::ElideRight,
                                                          static_cast<int>(title.width())));
    }
    for (const MeshDrawing::Band& band : drawing_.bands) {
        painter.fillRect(rectOf(band.rect), washed(axisColor(band.kind), band.odd ? 0.44 : 0.25));
        if (band.text.empty()) continue;
        painter.setPen(palette().color(QPalette::WindowText));
        painter.drawText(rectOf(band.rect), Qt::AlignCenter, toQString(band.text));
    }
}

void MeshView::paintCell(QPainter& painter, const MeshDrawing::Cell& cell) const {
    const QRectF rect = rectOf(cell.rect);
    const double side = std::min(rect.width(), rect.height());
    painter.fillRect(rect, surfaceColor());
    if (cell.share > 0) painter.fillRect(rectOf(cell.level()), washed(bytesColor(), cell.tone()));
    if (cell.health > Health::unread) {
        const double corner = std::min(side, kCorner);
        if (side < kSmallCell) {
            painter.fillRect(rect, healthColor(cell.health));
        } else if (side >= kGlyphCell) {
            paintHealth(painter, QRectF(rect.right() - kCorner - 1, rect.top() + 1, kCorner, kCorner),
                        cell.health);
        } else {
            painter.save();
            painter.setRenderHint(QPainter::Antialiasing);
            QPainterPath path(rect.topRight());
            path.lineTo(rect.right() - corner, rect.top());
            path.lineTo(rect.right(), rect.top() + corner);
            painter.fillPath(path, healthColor(cell.health));
            painter.restore();
        }
    }
    if (side >= kSmallCell) {
        QPen pen(cell.replica || cell.empty ? faintTextColor() : gridColor());
        if (cell.empty)
            pen.setDashPattern({3, 2});
        else if (cell.replica)
            pen.setDashPattern({1, 2});
        painter.setPen(pen);
        painter.setBrush(Qt::NoBrush);
        painter.drawRect(rect.adjusted(0.5, 0.5, -0.5, -0.5));
    }
    if (cell.text.empty()) return;
    painter.setPen(palette().color(QPalette::WindowText));
    const QRectF upper =
        cell.second.empty() ? rect : QRectF(rect.left(), rect.top(), rect.width(), rect.height() / 2);
    painter.drawText(upper, Qt::AlignCenter, toQString(cell.text));
    if (cell.second.empty()) return;
    painter.setPen(faintTextColor());
    painter.drawText(upper.translated(0, rect.height() / 2), Qt::AlignCenter, toQString(cell.second));
}

void MeshView::paintKeys(QPainter& painter) const {
    using What = MeshDrawing::Key::What;
    for (const MeshDrawing::Key& key : drawing_.keys) {
        if (key.what == What::axis) {
            painter.fillRect(rectOf(key.sample), axisColor(key.kind));
        } else {
            MeshDrawing::Cell sample;
            sample.rect = key.sample;
            sample.share = key.what == What::empty ? 0 : key.what == What::bytes ? 0.6 : 1;
            sample.health = key.health;
            sample.replica = key.what == What::replica;
            sample.empty = key.what == What::empty;
            paintCell(painter, sample);
        }
        painter.setPen(faintTextColor());
        painter.drawText(rectOf(key.label), Qt::AlignLeft | Qt::AlignVCenter | Qt::TextDontClip,
                         toQString(key.text));
    }
}

// The rank's groups, then the rank itself and what is selected.
void MeshView::paintGroups(QPainter& painter) const {
    const int lit = hover_ >= 0 ? hover_ : hasFocus() ? current_ : -1;
    painter.setBrush(Qt::NoBrush);
    if (lit >= 0 && picture_->known()) {
        const uint32_t rank = drawing_.cells[static_cast<size_t>(lit)].ranks[0];
        for (size_t axis = 0; axis < picture_->axes().size(); ++axis) {
            if (picture_->axes()[axis].size < 2) continue;
            const QColor color = axisColor(picture_->axes()[axis].kind);
            const std::vector<uint32_t> group = picture_->group(rank, axis);
            for (const MeshDrawing::Cell& cell : drawing_.cells) {
                const bool in = std::ranges::any_of(
                    cell.ranks, [&](uint32_t r) { return std::ranges::binary_search(group, r); });
                if (!in || &cell == &drawing_.cells[static_cast<size_t>(lit)]) continue;
                const QRectF rect = rectOf(cell.rect);
                painter.fillRect(rect, washed(color, 0.3));
                if (std::min(rect.width(), rect.height()) < kSmallCell) continue;
                painter.setPen(QPen(color, 2));
                painter.drawRect(rect.adjusted(1, 1, -1, -1));
            }
        }
    }
    if (lit >= 0) {
        painter.setPen(QPen(palette().color(QPalette::WindowText), 2));
        painter.drawRect(rectOf(drawing_.cells[static_cast<size_t>(lit)].rect).adjusted(1, 1, -1, -1));
    }
    for (const MeshDrawing::Cell& cell : drawing_.cells) {
        const bool chosen = std::ranges::any_of(
            cell.ranks, [&](uint32_t r) { return std::ranges::binary_search(selected_, r); });
        if (chosen) paintSelectionFrame(painter, rectOf(cell.rect));
    }
    if (hasFocus() && current_ >= 0)
        paintSelectionFrame(painter, rectOf(drawing_.cells[static_cast<size_t>(current_)].rect));
}

void MeshView::hover(int cell) {
    if (cell == hover_) return;
    hover_ = cell;
    update();
}

void MeshView::choose(int cell) {
    current_ = cell;
    update();
    if (cell < 0) return;
    describe(cellText(cell));
    emit selected(drawing_.cells[static_cast<size_t>(cell)].ranks);
}

bool MeshView::pressKey(int key) {
    const int count = static_cast<int>(drawing_.cells.size());
    if (count == 0) return false;
    const int dx = key == Qt::Key_Right ? 1 : key == Qt::Key_Left ? -1 : 0;
    const int dy = key == Qt::Key_Down ? 1 : key == Qt::Key_Up ? -1 : 0;
    if (dx || dy)
        choose(drawing_.neighbor(current_, dx, dy));
    else if (key == Qt::Key_Home)
        choose(0);
    else if (key == Qt::Key_End)
        choose(count - 1);
    else if (key == Qt::Key_Return || key == Qt::Key_Enter || key == Qt::Key_Space)
        choose(current_);
    else
        return false;
    return true;
}

bool MeshView::event(QEvent* event) {
    if (event->type() == QEvent::Leave) hover(-1);
    return PaintedView::event(event);
}

void MeshView::resizeEvent(QResizeEvent* event) {
    PaintedView::resizeEvent(event);
    if (event->size().width() != event->oldSize().width()) layOut();
}

void MeshView::changeEvent(QEvent* event) {
    PaintedView::changeEvent(event);
    if (event->type() == QEvent::FontChange) layOut();
}

void MeshView::mousePressEvent(QMouseEvent* event) {
    const int cell = event->button() == Qt::LeftButton ? cellAt(event->position()) : -1;
    if (cell < 0) return QWidget::mousePressEvent(event);
    choose(cell);
}

void MeshView::mouseMoveEvent(QMouseEvent* event) {
    hover(cellAt(event->position()));
}

}  // namespace shardscope::ui
