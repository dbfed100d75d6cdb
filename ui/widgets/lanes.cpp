#include "ui/widgets/lanes.h"

#include <QKeyEvent>
#include <QMouseEvent>
#include <QPainter>
#include <QPainterPath>
#include <algorithm>
#include <cmath>

#include "ui/models/texts.h"
#include "ui/widgets/theme.h"

namespace shardscope::ui {

namespace {

constexpr int kLeft = 96, kRight = 12, kTop = 6, kGap = 12, kLow = 20;
constexpr size_t kMostInText = 8;  // lanes

// The next of 1, 1.5, 2, 3, 4, 5, 8, 10, ... binary units above `rate`, so that the axis ends at a round
// figure.
double roundedUp(double rate) {
    double unit = 1;
    while (rate / unit >= 1024)
        unit *= 1024;
    for (const double step : {1.0,  1.5,  2.0,  3.0,   4.0,   5.0,   8.0,   10.0,  15.0,  20.0,  30.0,
                              40.0, 50.0, 80.0, 100.0, 150.0, 200.0, 300.0, 400.0, 500.0, 800.0, 1024.0}) {
        if (rate <= step * unit) return step * unit;
    }
    return rate;
}

}  // namespace

Lanes::Lanes(const QString& name, QWidget* parent) : QWidget(parent) {
    setFocusPolicy(Qt::StrongFocus);
    setMouseTracking(true);
    setAccessibleName(name);
    setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Expanding);
}

void Lanes::setRates(const std::vector<JobRate>& rates, double step) {
    std::vector<Lane> lanes{{tr("Read"), {}}, {tr("Written"), {}}};
    for (const JobRate& rate : rates) {
        lanes[0].bytes.push_back(rate.read);
        lanes[1].bytes.push_back(rate.written);
    }
    setLanes(std::move(lanes), step);
}

void Lanes::setLanes(std::vector<Lane> lanes, double step) {
    if (lanes == lanes_ && step == step_) return;
    const bool others = lanes.size() != lanes_.size();
    lanes_ = std::move(lanes);
    step_ = step;
    stretches_ = 0;
    for (const Lane& lane : lanes_)
        stretches_ = std::max(stretches_, lane.bytes.size());
    if (at_ >= static_cast<int>(stretches_)) at_ = -1;
    setAccessibleDescription(stretches_ ? valueText(static_cast<int>(stretches_) - 1)
                                        : tr("Nothing has been read or written yet."));
    if (others) updateGeometry();
    update();
}

QSize Lanes::minimumSizeHint() const {
    const int lanes = std::max(2, static_cast<int>(lanes_.size()));
    return {240, kTop + lanes * (kLow + kGap) + fontMetrics().height() + 8};
}

QRectF Lanes::plot(int lane) const {
    const double axis = fontMetrics().height() + 4;
    const auto lanes = static_cast<double>(std::max<size_t>(1, lanes_.size()));
    const double height = std::max(10.0, (this->height() - kTop - axis) / lanes - kGap);
    return {double(kLeft), kTop + lane * (height + kGap), std::max(10.0, double(width() - kLeft - kRight)),
            height};
}

double Lanes::rate(size_t lane, size_t at) const {
    const std::vector<double>& bytes = lanes_[lane].bytes;
    return at < bytes.size() ? bytes[at] / step_ : 0.0;
}

QString Lanes::valueText(int at) const {
    QStringList parts;
    for (size_t lane = 0; lane < lanes_.size() && lane < kMostInText; ++lane)
        parts += tr("%1 %2/s").arg(lanes_[lane].name,
                                   sizeText(static_cast<uint64_t>(rate(lane, static_cast<size_t>(at)))));
    if (lanes_.size() > kMostInText) parts += QStringLiteral("…");
    return tr("After %1: %2").arg(timeText(at * step_), parts.join(QStringLiteral(", ")));
}

void Lanes::paintEvent(QPaintEvent*) {
    QPainter painter(this);
    painter.fillRect(rect(), surfaceColor());
    const QColor ink = palette().color(QPalette::Text);
    if (!stretches_) {
        painter.setPen(faintTextColor());
        painter.drawText(rect(), Qt::AlignCenter, tr("Nothing has been read or written yet."));
    }
    double most = 0;
    for (size_t lane = 0; lane < lanes_.size(); ++lane) {
        for (size_t i = 0; i < stretches_; ++i)
            most = std::max(most, rate(lane, i));
    }
    // One scale for all, so that they can be compared.
    const double top = roundedUp(std::max(most, 1.0));
    const QFontMetrics metrics = painter.fontMetrics();
    for (size_t lane = 0; lane < lanes_.size() && stretches_; ++lane) {
        const QRectF box = plot(static_cast<int>(lane));
        const bool scaled = box.height() >= 3 * metrics.height();
        painter.setPen(gridColor());
        for (const double y : {box.top(), box.center().y(), box.bottom()}) {
            if (scaled || y == box.bottom())
                painter.drawLine(QPointF(box.left(), y), QPointF(box.right(), y));
        }
        const double width = box.width() / static_cast<double>(stretches_);
        QPainterPath area(box.bottomLeft());
        for (size_t i = 0; i < stretches_; ++i) {
            const double y = box.bottom() - rate(lane, i) / top * box.height();
            area.lineTo(box.left() + static_cast<double>(i) * width, y);
            area.lineTo(box.left() + static_cast<double>(i + 1) * width, y);
        }
        area.lineTo(box.bottomRight());
        area.closeSubpath();
        const bool odd = lane % 2;
        QColor fill = categoryColor(static_cast<uint32_t>(lane));
        fill.setAlpha(lanes_[lane].ended ? 50 : odd ? 200 : 90);
        painter.setRenderHint(QPainter::Antialiasing, false);
        painter.fillPath(area, fill);
        // Every other one is hatched as well: colour alone does not tell the lanes apart in a copy without
        // labels.
        if (odd) painter.fillPath(area, QBrush(surfaceColor(), Qt::BDiagPattern));
        painter.strokePath(area, QPen(outlineColor(), 1));
        painter.setPen(lanes_[lane].ended ? faintTextColor() : ink);
        painter.drawText(QRectF(4, box.center().y() - metrics.height() / 2.0, kLeft - 10, metrics.height()),
                         Qt::AlignLeft, metrics.elidedText(lanes_[lane].name, Qt::ElideMiddle, kLeft - 10));
        if (!scaled) continue;
        painter.setPen(faintTextColor());
        const QString label = tr("%1/s").arg(sizeText(static_cast<uint64_t>(top)));
        painter.drawText(QRectF(0, box.top() - 2, kLeft - 6, metrics.height()), Qt::AlignRight, label);
        painter.drawText(QRectF(0, box.bottom() - metrics.height() + 2, kLeft - 6, metrics.height()),
                         Qt::AlignRight, QStringLiteral("0"));
    }
    if (stretches_) {
        const QRectF box = plot(static_cast<int>(lanes_.size()) - 1);
        const double total = static_cast<double>(stretches_) * step_;
        const QRectF axis(box.left(), box.bottom() + 3, box.width(), metrics.height());
        if (at_ >= 0) {
            painter.setPen(ink);
            painter.drawText(axis, Qt::AlignHCenter,
                             metrics.elidedText(valueText(at_), Qt::ElideRight, int(axis.width())));
        } else {
            painter.setPen(faintTextColor());
            painter.drawText(axis, Qt::AlignLeft, QStringLiteral("0 s"));
            painter.drawText(axis, Qt::AlignRight, timeText(total));
            // The scale of lanes too low for labels of their own.
            if (box.height() < 3 * metrics.height())
                painter.drawText(axis, Qt::AlignHCenter,
                                 tr("each lane is %1/s high").arg(sizeText(static_cast<uint64_t>(top))));
        }
    }
    if (at_ >= 0 && stretches_) {
        const double x = plot(0).left() + (at_ + 0.5) * plot(0).width() / static_cast<double>(stretches_);
        painter.setPen(QPen(ink, 1, Qt::DashLine));
        painter.drawLine(QPointF(x, plot(0).top()),
                         QPointF(x, plot(static_cast<int>(lanes_.size()) - 1).bottom()));
    }
    if (hasFocus()) {
        painter.setPen(QPen(accentColor(), 2));
        painter.setBrush(Qt::NoBrush);
        painter.drawRect(QRectF(rect()).adjusted(1, 1, -1, -1));
    }
}

void Lanes::point(int at) {
    at = stretches_ ? std::clamp(at, -1, static_cast<int>(stretches_) - 1) : -1;
    if (at == at_) return;
    at_ = at;
    if (at_ >= 0) setAccessibleDescription(valueText(at_));
    update();
}

void Lanes::mouseMoveEvent(QMouseEvent* event) {
    const QRectF box = plot(0);
    const double share = (event->position().x() - box.left()) / box.width();
    point(share < 0 || share > 1 ? -1 : static_cast<int>(share * static_cast<double>(stretches_)));
}

void Lanes::keyPressEvent(QKeyEvent* event) {
    const int last = static_cast<int>(stretches_) - 1;
    switch (event->key()) {
        case Qt::Key_Left:
            return point(at_ < 0 ? last : std::max(0, at_ - 1));
        case Qt::Key_Right:
            return point(at_ < 0 ? 0 : at_ + 1);
        case Qt::Key_Home:
            return point(0);
        case Qt::Key_End:
            return point(last);
        default:
            QWidget::keyPressEvent(event);
    }
}

void Lanes::leaveEvent(QEvent*) {
    if (!hasFocus()) point(-1);
}

void Lanes::focusOutEvent(QFocusEvent* event) {
    point(-1);
    QWidget::focusOutEvent(event);
}

}  // namespace shardscope::ui
