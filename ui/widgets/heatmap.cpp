#include "ui/widgets/heatmap.h"

#include <QMouseEvent>
#include <QPainter>
#include <algorithm>
#include <cmath>

#include "ui/widgets/histogram.h"
#include "ui/widgets/painting.h"
#include "ui/widgets/theme.h"

namespace shardscope::ui {

namespace {
constexpr int kScaleWidth = 12;
}

Heatmap::Heatmap(QWidget* parent) : PaintedView(tr("Values of a slice"), {300, 240}, {180, 140}, parent) {
    setSizePolicy(QSizePolicy::Preferred, QSizePolicy::Preferred);
    describeCurrent();
}

void Heatmap::setValues(SliceValues values, int rowAxis, int columnAxis) {
    values_ = std::move(values);
    rowAxis_ = rowAxis;
    columnAxis_ = columnAxis;
    current_ = {-1, -1};
    measure();
    describeCurrent();
    update();
}

void Heatmap::clear() {
    setValues({}, -1, -1);
}

void Heatmap::setLogScale(bool on) {
    log_ = on;
    update();
}

void Heatmap::measure() {
    least_ = INFINITY;
    greatest_ = -INFINITY;
    leastPower_ = INFINITY;
    mostPower_ = -INFINITY;
    notFinite_ = 0;
    for (const double v : values_.values) {
        if (!std::isfinite(v)) {
            ++notFinite_;
            continue;
        }
        least_ = std::min(least_, v);
        greatest_ = std::max(greatest_, v);
        if (v == 0) continue;
        leastPower_ = std::min(leastPower_, std::log10(std::abs(v)));
        mostPower_ = std::max(mostPower_, std::log10(std::abs(v)));
    }
}

double Heatmap::value(const QPoint& sample) const {
    return values_.values[static_cast<size_t>(sample.y() * values_.columns + sample.x())];
}

double Heatmap::scaled(double v) const {
    if (log_) {
        if (v == 0 || !(mostPower_ > leastPower_)) return v == 0 ? 0 : 1;
        // Zero keeps the darkest color for itself.
        return 0.06 + 0.94 * (std::log10(std::abs(v)) - leastPower_) / (mostPower_ - leastPower_);
    }
    return greatest_ > least_ ? (v - least_) / (greatest_ - least_) : 0.5;
}

QRectF Heatmap::plot() const {
    const QFontMetrics metrics = fontMetrics();
    const int left =
        metrics.horizontalAdvance(QString::number(values_.rows * values_.rowStep)) + metrics.height() + 14;
    const int right = metrics.horizontalAdvance(QStringLiteral("-1.2345e-10")) + kScaleWidth + 22;
    const QRectF room = QRectF(rect()).adjusted(left, 2 * metrics.height() + 8, -right, -8);
    if (values_.rows == 0 || values_.columns == 0 || room.width() < 10 || room.height() < 10) return {};
    // Square samples, unless one side would get too thin; a single row is a band.
    const auto rows = static_cast<double>(values_.rows), columns = static_cast<double>(values_.columns);
    double side = std::min(room.width() / columns, room.height() / rows);
    QSizeF size(side * columns, side * rows);
    if (size.width() < room.width() / 3) size.setWidth(std::min(room.width() / 3, columns * 60));
    if (size.height() < room.height() / 4) size.setHeight(std::min(room.height() / 4, rows * 60));
    return {room.topLeft(), size};
}

QRectF Heatmap::cellRect(const QPoint& sample) const {
    const QRectF area = plot();
    const auto edge = [](double from, double length, int at, int64_t of) {
        return std::round(from + length * at / static_cast<double>(of));
    };
    const QPointF from(edge(area.left(), area.width(), sample.x(), values_.columns),
                       edge(area.top(), area.height(), sample.y(), values_.rows));
    const QPointF to(edge(area.left(), area.width(), sample.x() + 1, values_.columns),
                     edge(area.top(), area.height(), sample.y() + 1, values_.rows));
    return {from, to};
}

QPoint Heatmap::sampleAt(const QPointF& position) const {
    const QRectF area = plot();
    if (area.isEmpty() || !area.contains(position)) return {-1, -1};
    const auto at = [](double share, int64_t count) {
        return std::clamp(static_cast<int>(share * static_cast<double>(count)), 0,
                          static_cast<int>(count) - 1);
    };
    return {at((position.x() - area.left()) / area.width(), values_.columns),
            at((position.y() - area.top()) / area.height(), values_.rows)};
}

QString Heatmap::valueTextAt(const QPoint& sample) const {
    QStringList place;
    if (rowAxis_ >= 0) place += tr("dim %1: %2").arg(rowAxis_).arg(sample.y() * values_.rowStep);
    if (columnAxis_ >= 0) place += tr("dim %1: %2").arg(columnAxis_).arg(sample.x() * values_.columnStep);
    const QString text = QString::number(value(sample), 'g', 9);
    return place.isEmpty() ? text : QStringLiteral("%1 = %2").arg(place.join(QStringLiteral(", ")), text);
}

void Heatmap::describeCurrent() {
    QString text = tr("no values read");
    if (current_.x() >= 0)
        text = valueTextAt(current_);
    else if (!values_.values.empty())
        text = tr("%1 by %2 values, %3 of them not finite")
                   .arg(values_.rows)
                   .arg(values_.columns)
                   .arg(notFinite_);
    describe(text);
}

void Heatmap::setCurrent(const QPoint& sample) {
    current_ = sample;
    describeCurrent();
    update();
}

void Heatmap::mousePressEvent(QMouseEvent* event) {
    if (event->button() == Qt::LeftButton) setCurrent(sampleAt(event->position()));
}

bool Heatmap::pressKey(int key) {
    const auto step = stepByKey(key);
    if (values_.values.empty() || !step) return false;
    const QPoint to = current_.x() < 0 ? QPoint(0, 0) : current_ + *step;
    setCurrent({std::clamp(to.x(), 0, static_cast<int>(values_.columns) - 1),
                std::clamp(to.y(), 0, static_cast<int>(values_.rows) - 1)});
    return true;
}

QString Heatmap::textAt(const QPointF& position) const {
    const QPoint sample = sampleAt(position);
    return sample.x() >= 0 ? valueTextAt(sample) : QString();
}

void Heatmap::paint(QPainter& painter, const QRect&) {
    const QRectF area = plot();
    const QFontMetricsF metrics(font());
    const double line = metrics.height();
    if (!area.isEmpty()) {
        for (int r = 0; r < values_.rows; ++r) {
            for (int c = 0; c < values_.columns; ++c) {
                const QRectF cell = cellRect({c, r});
                const double v = value({c, r});
                if (std::isfinite(v))
                    painter.fillRect(cell, sequentialColor(scaled(v)));
                else if (cell.width() >= 6 && cell.height() >= 6)
                    paintHealth(painter, cell, Health::nonFinite);
                else
                    painter.fillRect(cell, QBrush(healthColor(Health::nonFinite), Qt::SolidPattern));
            }
        }
        painter.setBrush(Qt::NoBrush);
        painter.setPen(outlineColor());
        painter.drawRect(area.adjusted(-0.5, -0.5, 0.5, 0.5));
        if (columnAxis_ >= 0) {
            painter.setPen(palette().color(QPalette::Text));
            painter.drawText(QRectF(area.left(), area.top() - 2 * line - 5, 400, line), Qt::AlignLeft,
                             tr("dim %1 →").arg(columnAxis_));
        }
        if (rowAxis_ >= 0) {
            painter.save();
            painter.setPen(palette().color(QPalette::Text));
            painter.translate(4, area.top());
            painter.rotate(90);
            painter.drawText(QRectF(0, -line, 400, line), Qt::AlignLeft, tr("dim %1 →").arg(rowAxis_));
            painter.restore();
        }
        // Element numbers, at even distances and not closer than they can be read.
        painter.setPen(faintTextColor());
        const auto stepOf = [](double pixels, int64_t samples, double room) {
            const double each = pixels / static_cast<double>(samples);
            return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(room / each)));
        };
        if (columnAxis_ >= 0) {
            const double widest =
                metrics.horizontalAdvance(QString::number(values_.columns * values_.columnStep));
            const int64_t step =
                stepOf(area.width(), values_.columns, std::max(widest + 8, area.width() / 6));
            for (int64_t c = 0; c < values_.columns; c += step) {
                const double x = cellRect({static_cast<int>(c), 0}).center().x();
                painter.drawText(QRectF(x - widest, area.top() - line - 4, 2 * widest, line),
                                 Qt::AlignHCenter, QString::number(c * values_.columnStep));
                painter.drawLine(QPointF(x, area.top() - 4), QPointF(x, area.top() - 1));
            }
        }
        if (rowAxis_ >= 0) {
            const int64_t step = stepOf(area.height(), values_.rows, std::max(line, area.height() / 6));
            for (int64_t r = 0; r < values_.rows; r += step) {
                const double y = cellRect({0, static_cast<int>(r)}).center().y();
                painter.drawText(QRectF(0, y - line / 2, area.left() - 6, line),
                                 Qt::AlignRight | Qt::AlignVCenter, QString::number(r * values_.rowStep));
                painter.drawLine(QPointF(area.left() - 4, y), QPointF(area.left() - 1, y));
            }
        }
        // The scale of the colors.
        const double tall =
            std::clamp(area.height(), 4 * line, static_cast<double>(height()) - area.top() - 8);
        const QRectF scale(area.right() + 10, area.top(), kScaleWidth, tall);
        for (int y = 0; y < static_cast<int>(scale.height()); ++y)
            painter.fillRect(QRectF(scale.left(), scale.top() + y, scale.width(), 1),
                             sequentialColor(1 - y / scale.height()));
        painter.setPen(outlineColor());
        painter.drawRect(scale);
        painter.setPen(faintTextColor());
        const bool any = greatest_ >= least_;
        const QString top = !any   ? QStringLiteral("–")
                            : log_ ? valueText(std::pow(10, mostPower_))
                                   : valueText(greatest_);
        const QString bottom = !any ? QString() : log_ ? QStringLiteral("0") : valueText(least_);
        painter.drawText(QRectF(scale.right() + 4, scale.top() - 2, 200, line), Qt::AlignLeft, top);
        painter.drawText(QRectF(scale.right() + 4, scale.bottom() - line + 2, 200, line), Qt::AlignLeft,
                         bottom);
        if (log_ && scale.height() > 4 * line)
            painter.drawText(QRectF(scale.right() + 4, scale.center().y() - line / 2, 200, line),
                             Qt::AlignLeft, tr("|value|, log"));
        if (current_.x() >= 0) {
            QRectF at = cellRect(current_);
            if (at.width() < 8 || at.height() < 8) {
                const QPointF center = at.center();
                at.setSize(at.size().expandedTo(QSizeF(8, 8)));
                at.moveCenter(center);
            }
            paintSelectionFrame(painter, at);
            painter.setPen(palette().color(QPalette::Text));
            painter.drawText(
                QRectF(area.left() + 60, area.top() - 2 * line - 5, width() - area.left() - 64, line),
                Qt::AlignLeft, valueTextAt(current_));
        }
    }
}

}  // namespace shardscope::ui
