#include "ui/widgets/minimap.h"

#include <QMouseEvent>
#include <QPainter>
#include <algorithm>

#include "ui/widgets/theme.h"

namespace shardscope::ui {

namespace {
constexpr int kWidth = 168, kHeight = 112, kMargin = 12;
}

Minimap::Minimap(PlacementMap* map) : QWidget(map->viewport()), map_(map) {
    setAccessibleName(tr("Overview of the placement map"));
    setToolTip(tr("Click or drag to move the map"));
    setFocusPolicy(Qt::NoFocus);
    setCursor(Qt::PointingHandCursor);
    resize(kWidth, kHeight);
    connect(map, &PlacementMap::matrixChanged, this, [this] {
        picture_ = {};
        follow();
    });
    connect(map, &PlacementMap::viewChanged, this, &Minimap::follow);
    follow();
}

void Minimap::setEnabledByUser(bool on) {
    wanted_ = on;
    follow();
}

void Minimap::follow() {
    const QRectF seen = map_->visibleShare();
    const QRect grid = map_->gridRect();
    const bool useful = wanted_ && map_->matrix() && (seen.width() < 0.999 || seen.height() < 0.999) &&
                        grid.width() > 3 * kWidth && grid.height() > 2 * kHeight;
    setVisible(useful);
    if (!useful) return;
    move(grid.right() - kWidth - kMargin, grid.bottom() - kHeight - kMargin);
    update();
}

void Minimap::render() {
    const double ratio = devicePixelRatioF();
    const QSize size = (QSizeF(this->size()) * ratio).toSize();
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

void Minimap::paintEvent(QPaintEvent*) {
    if (!map_->matrix()) return;
    if (picture_.isNull()) render();
    QPainter painter(this);
    painter.drawImage(0, 0, picture_);
    const QRectF seen = map_->visibleShare();
    QRectF view(seen.left() * width(), seen.top() * height(), seen.width() * width(),
                seen.height() * height());
    view.setSize(view.size().expandedTo(QSizeF(6, 6)));
    QColor veil = surfaceColor();
    veil.setAlpha(150);
    QRegion outside(rect());
    outside -= view.toAlignedRect();
    for (const QRect& part : outside)
        painter.fillRect(part, veil);
    painter.setPen(QPen(accentColor(), 2));
    painter.drawRect(view.adjusted(1, 1, -1, -1));
    painter.setPen(outlineColor());
    painter.drawRect(rect().adjusted(0, 0, -1, -1));
}

void Minimap::moveTo(const QPointF& position) {
    map_->centerOn(
        {std::clamp(position.x() / width(), 0.0, 1.0), std::clamp(position.y() / height(), 0.0, 1.0)});
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

SeverityStrip::SeverityStrip(PlacementMap* map, QWidget* parent) : QWidget(parent), map_(map) {
    setAccessibleName(tr("Rows with problems"));
    setToolTip(tr("Marks rows with problems; click to go there"));
    setFocusPolicy(Qt::NoFocus);
    setFixedWidth(14);
    connect(map, &PlacementMap::matrixChanged, this, qOverload<>(&QWidget::update));
    connect(map, &PlacementMap::viewChanged, this, qOverload<>(&QWidget::update));
}

QRect SeverityStrip::bar() const {
    // As tall as the rows beside it, scroll bars apart.
    return {2, map_->headerHeight(), width() - 4, map_->viewport()->height() - map_->headerHeight()};
}

void SeverityStrip::paintEvent(QPaintEvent*) {
    QPainter painter(this);
    const QRect bar = this->bar();
    painter.fillRect(bar, panelColor());
    if (!map_->matrix() || bar.height() <= 0) return;
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
    if (seen.height() < 0.999) {
        painter.setPen(QPen(accentColor(), 1));
        painter.setBrush(Qt::NoBrush);
        painter.drawRect(QRectF(bar.left() - 1.5, bar.top() + seen.top() * bar.height(), bar.width() + 2,
                                std::max(4.0, seen.height() * bar.height() - 1)));
    }
}

void SeverityStrip::mousePressEvent(QMouseEvent* event) {
    const QRect bar = this->bar();
    if (event->button() != Qt::LeftButton || bar.height() <= 0) return;
    const QRectF seen = map_->visibleShare();
    map_->centerOn(
        {seen.center().x(), std::clamp((event->position().y() - bar.top()) / bar.height(), 0.0, 1.0)});
}

void SeverityStrip::mouseMoveEvent(QMouseEvent* event) {
    if (event->buttons() & Qt::LeftButton) mousePressEvent(event);
}

}  // namespace shardscope::ui
