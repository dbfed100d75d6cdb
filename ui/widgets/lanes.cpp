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

constexpr int kLanes = 2;
constexpr int kLeft = 88, kRight = 12, kTop = 6, kGap = 14;

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

Lanes::Lanes(QWidget* parent) : QWidget(parent) {
    setFocusPolicy(Qt::StrongFocus);
    setMouseTracking(true);
    setAccessibleName(tr("Bytes read and written over time"));
    setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Expanding);
}

void Lanes::setRates(std::vector<JobRate> rates, double step) {
    rates_ = std::move(rates);
    step_ = step;
    if (at_ >= static_cast<int>(rates_.size())) at_ = -1;
    setAccessibleDescription(rates_.empty() ? tr("Nothing has been read or written yet.")
                                            : valueText(static_cast<int>(rates_.size()) - 1));
    update();
}

QRectF Lanes::plot(int lane) const {
    const double axis = fontMetrics().height() + 4;
    const double height = std::max(10.0, (this->height() - kTop - kGap - axis) / double(kLanes));
    return {double(kLeft), kTop + lane * (height + kGap), std::max(10.0, double(width() - kLeft - kRight)),
            height};
}

QString Lanes::valueText(int at) const {
    const JobRate& rate = rates_[static_cast<size_t>(at)];
    return tr("After %1: %2/s read, %3/s written")
        .arg(timeText(at * step_), sizeText(static_cast<uint64_t>(rate.read / step_)),
             sizeText(static_cast<uint64_t>(rate.written / step_)));
}

void Lanes::paintEvent(QPaintEvent*) {
    QPainter painter(this);
    painter.fillRect(rect(), surfaceColor());
    const QColor ink = palette().color(QPalette::Text);
    if (rates_.empty()) {
        painter.setPen(faintTextColor());
        painter.drawText(rect(), Qt::AlignCenter, tr("Nothing has been read or written yet."));
    }
    double most = 0;
    for (const JobRate& rate : rates_)
        most = std::max({most, rate.read / step_, rate.written / step_});
    // One scale for both, so that they can be compared.
    const double top = roundedUp(std::max(most, 1.0));
    for (int lane = 0; lane < kLanes && !rates_.empty(); ++lane) {
        const QRectF box = plot(lane);
        painter.setPen(gridColor());
        for (const double y : {box.top(), box.center().y(), box.bottom()})
            painter.drawLine(QPointF(box.left(), y), QPointF(box.right(), y));
        const double width = box.width() / static_cast<double>(rates_.size());
        QPainterPath area(box.bottomLeft());
        for (size_t i = 0; i < rates_.size(); ++i) {
            const double rate = (lane == 0 ? rates_[i].read : rates_[i].written) / step_;
            const double y = box.bottom() - rate / top * box.height();
            area.lineTo(box.left() + static_cast<double>(i) * width, y);
            area.lineTo(box.left() + static_cast<double>(i + 1) * width, y);
        }
        area.lineTo(box.bottomRight());
        area.closeSubpath();
        const QColor color = categoryColor(static_cast<uint32_t>(lane));
        QColor fill = color;
        fill.setAlpha(lane == 0 ? 90 : 200);
        painter.setRenderHint(QPainter::Antialiasing, false);
        painter.fillPath(area, fill);
        // Written bytes are hatched as well: colour alone does not tell the lanes apart in a copy without
        // labels.
        if (lane == 1) painter.fillPath(area, QBrush(surfaceColor(), Qt::BDiagPattern));
        painter.strokePath(area, QPen(outlineColor(), 1));
        const QFontMetrics metrics = painter.fontMetrics();
        painter.setPen(ink);
        painter.drawText(QRectF(4, box.center().y() - metrics.height() / 2.0, kLeft - 10, metrics.height()),
                         Qt::AlignLeft, lane == 0 ? tr("Read") : tr("Written"));
        painter.setPen(faintTextColor());
        const QString label = tr("%1/s").arg(sizeText(static_cast<uint64_t>(top)));
        painter.drawText(QRectF(0, box.top() - 2, kLeft - 6, metrics.height()), Qt::AlignRight, label);
        painter.drawText(QRectF(0, box.bottom() - metrics.height() + 2, kLeft - 6, metrics.height()),
                         Qt::AlignRight, QStringLiteral("0"));
    }
    if (!rates_.empty()) {
        const QRectF box = plot(kLanes - 1);
        const double total = static_cast<double>(rates_.size()) * step_;
        const QRectF axis(box.left(), box.bottom() + 3, box.width(), painter.fontMetrics().height());
        if (at_ >= 0) {
            painter.setPen(ink);
            painter.drawText(axis, Qt::AlignHCenter, valueText(at_));
        } else {
            painter.setPen(faintTextColor());
            painter.drawText(axis, Qt::AlignLeft, QStringLiteral("0 s"));
            painter.drawText(axis, Qt::AlignRight, timeText(total));
        }
    }
    if (at_ >= 0 && !rates_.empty()) {
        const double x = plot(0).left() + (at_ + 0.5) * plot(0).width() / static_cast<double>(rates_.size());
        painter.setPen(QPen(ink, 1, Qt::DashLine));
        painter.drawLine(QPointF(x, plot(0).top()), QPointF(x, plot(kLanes - 1).bottom()));
    }
    if (hasFocus()) {
        painter.setPen(QPen(accentColor(), 2));
        painter.setBrush(Qt::NoBrush);
        painter.drawRect(QRectF(rect()).adjusted(1, 1, -1, -1));
    }
}

void Lanes::point(int at) {
    at = rates_.empty() ? -1 : std::clamp(at, -1, static_cast<int>(rates_.size()) - 1);
    if (at == at_) return;
    at_ = at;
    if (at_ >= 0) setAccessibleDescription(valueText(at_));
    update();
}

void Lanes::mouseMoveEvent(QMouseEvent* event) {
    const QRectF box = plot(0);
    const double share = (event->position().x() - box.left()) / box.width();
    point(share < 0 || share > 1 ? -1 : static_cast<int>(share * static_cast<double>(rates_.size())));
}

void Lanes::keyPressEvent(QKeyEvent* event) {
    const int last = static_cast<int>(rates_.size()) - 1;
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
