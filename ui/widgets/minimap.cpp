#include "ui/widgets/minimap.h"

#include <QMouseEvent>
#include <QPainter>
#include <algorithm>

#include "ui/widgets/theme.h"

namespace shardscope::ui {

namespace {
constexpr int kPictureWide = 44, kMarksWide = 10, kGap = 2;
}

Minimap::Minimap(PlacementMap* map, QWidget* parent) : QWidget(parent), map_(map) {
    setAccessibleName(tr("Whole map, and rows with problems"));
    setToolTip(tr("The whole map, and beside it marks of rows with problems; click or drag to go there"));
    setFocusPolicy(Qt::NoFocus);
    setCursor(Qt::PointingHandCursor);
    setWhole(true);
    connect(map, &PlacementMap::matrixChanged, this, [this] {
        picture_ = {};
        update();
    });
    connect(map, &PlacementMap::viewChanged, this, qOverload<>(&QWidget::update));
}

void Minimap::setWhole(bool on) {
    whole_ = on;
    setFixedWidth((on ? kPictureWide + kGap : 0) + kMarksWide + 2 * kGap);
    update();
}

// As tall as the rows beside it, scroll bars apart.
QRect Minimap::bar() const {
    return {kGap, map_->headerHeight(), width() - 2 * kGap,
            map_->viewport()->height() - map_->headerHeight()};
}

void Minimap::render(const QSize& points) {
    const double ratio = devicePixelRatioF();
    const QSize size = (QSizeF(points) * ratio).toSize();
    const PlacementMatrix& matrix = *map_->matrix();
    std::vector<uint8_t> pixels(static_cast<size_t>(size.width()) * static_cast<size_t>(size.height()));
    matrix.pyramid().sample(0, static_cast<double>(matrix.columnCount()) / size.width(), size.width(), 0,
                            static_cast<double>(matrix.rowCount()) / size.height(), size.height(),
                            pixels.data());
    picture_ = QImage(size, QImage::Format_RGB32);
    const std::vector<QRgb>& colors = placementColors();
    for (int y = 0; y < size.height(); ++y) {
        auto* line = reinterpret_cast<QRgb*>(picture_.scanLine(y));
        for (int x = 0; x < size.width(); ++x)
            line[x] = colors[pixels[static_cast<size_t>(y * size.width() + x)]];
    }
    picture_.setDevicePixelRatio(ratio);
}

void Minimap::paintWhole(QPainter& painter, const QRect& at) {
    if (picture_.isNull() || picture_.deviceIndependentSize().toSize() != at.size()) render(at.size());
    painter.drawImage(at.topLeft(), picture_);
    const QRectF seen = map_->visibleShare();
    QRectF view(at.left() + seen.left() * at.width(), at.top() + seen.top() * at.height(),
                seen.width() * at.width(), seen.height() * at.height());
    view.setSize(view.size().expandedTo(QSizeF(6, 6)));
    QColor veil = surfaceColor();
    veil.setAlpha(150);
    QRegion outside(at);
    outside -= view.toAlignedRect();
    for (const QRect& part : outside)
        painter.fillRect(part, veil);
    painter.setPen(outlineColor());
    painter.drawRect(at.adjusted(0, 0, -1, -1));
    painter.setPen(QPen(accentColor(), 2));
    painter.drawRect(view.adjusted(1, 1, -1, -1));
}

void Minimap::paintMarks(QPainter& painter, const QRect& bar) const {
    painter.fillRect(bar, panelColor());
    const PlacementMatrix& matrix = *map_->matrix();
    for (int y = 0; y < bar.height();) {
        const auto rowAt = [&](int at) {
            return static_cast<uint32_t>(uint64_t{matrix.rowCount()} * static_cast<uint64_t>(at) /
                                         static_cast<uint64_t>(bar.height()));
        };
        // One mark for each stretch of pixels in the same state.
        const auto stateAt = [&](int at) {
            const uint32_t from = rowAt(at), to = std::max(from + 1, rowAt(at + 1));
            Health worst = Health::ok;
            for (uint32_t r = from; r < std::min(to, matrix.rowCount()); ++r)
                worst = std::max(worst, matrix.row(r).health);
            return worst;
        };
        const Health state = stateAt(y);
        const int begin = y++;
        while (y < bar.height() && stateAt(y) == state)
            ++y;
        if (state == Health::ok) continue;
        const int height = std::max(4, y - begin);
        paintHealth(
            painter,
            QRectF(bar.left(), bar.top() + std::min(begin, bar.height() - height), bar.width(), height),
            state);
    }
    const QRectF seen = map_->visibleShare();
    if (whole_ || seen.height() > 0.999) return;
    painter.setPen(QPen(accentColor(), 1));
    painter.setBrush(Qt::NoBrush);
    painter.drawRect(QRectF(bar.left() - 1.5, bar.top() + seen.top() * bar.height(), bar.width() + 2,
                            std::max(4.0, seen.height() * bar.height() - 1)));
}

void Minimap::paintEvent(QPaintEvent*) {
    const QRect bar = this->bar();
    if (!map_->matrix() || bar.height() <= 0) return;
    QPainter painter(this);
    if (whole_) paintWhole(painter, {bar.left(), bar.top(), kPictureWide, bar.height()});
    paintMarks(painter, {bar.right() + 1 - kMarksWide, bar.top(), kMarksWide, bar.height()});
}

// On the picture to what is there, on the marks to those rows.
void Minimap::moveTo(const QPointF& position) {
    const QRect bar = this->bar();
    if (bar.height() <= 0) return;
    const bool onPicture = whole_ && position.x() < bar.left() + kPictureWide;
    map_->centerOn({onPicture ? std::clamp((position.x() - bar.left()) / kPictureWide, 0.0, 1.0)
                              : map_->visibleShare().center().x(),
                    std::clamp((position.y() - bar.top()) / bar.height(), 0.0, 1.0)});
}

void Minimap::mousePressEvent(QMouseEvent* event) {
    if (event->button() == Qt::LeftButton) moveTo(event->position());
}

void Minimap::mouseMoveEvent(QMouseEvent* event) {
    if (event->buttons() & Qt::LeftButton) moveTo(event->position());
}

void Minimap::changeEvent(QEvent* event) {
    if (event->type() == QEvent::PaletteChange) picture_ = {};
    QWidget::changeEvent(event);
}

}  // namespace shardscope::ui
