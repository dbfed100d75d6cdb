#include "ui/widgets/histogram.h"

#include <QMouseEvent>
#include <QPainter>
#include <algorithm>
#include <cmath>

#include "ui/models/texts.h"
#include "ui/widgets/painting.h"
#include "ui/widgets/theme.h"

namespace shardscope::ui {

QString valueText(double value) {
    if (std::isnan(value)) return QStringLiteral("NaN");
    if (std::isinf(value)) return value > 0 ? QStringLiteral("∞") : QStringLiteral("−∞");
    return QString::number(value, 'g', 5);
}

Histogram::Histogram(QWidget* parent)
    : PaintedView(tr("Histogram of the values"), {360, 200}, {180, 110}, parent) {
    setSizePolicy(QSizePolicy::Preferred, QSizePolicy::Preferred);
    describeCurrent();
}

void Histogram::setBins(std::vector<uint64_t> bins, double least, double greatest) {
    bins_ = std::move(bins);
    least_ = least;
    greatest_ = greatest;
    most_ = sum_ = 0;
    for (const uint64_t count : bins_) {
        most_ = std::max(most_, count);
        sum_ += count;
    }
    current_ = -1;
    describeCurrent();
    update();
}

void Histogram::setLogCounts(bool on) {
    log_ = on;
    update();
}

QRectF Histogram::plot() const {
    const QFontMetrics metrics = fontMetrics();
    const int left = metrics.horizontalAdvance(numberText(most_)) + 12;
    return QRectF(rect()).adjusted(left, metrics.height() / 2.0 + 4, -14, -metrics.height() - 10);
}

int Histogram::binAt(const QPointF& position) const {
    const QRectF area = plot();
    if (bins_.empty() || !area.contains(position)) return -1;
    const auto bin =
        static_cast<int>((position.x() - area.left()) / area.width() * static_cast<double>(bins_.size()));
    return std::clamp(bin, 0, static_cast<int>(bins_.size()) - 1);
}

double Histogram::height(uint64_t count) const {
    if (most_ == 0) return 0;
    if (log_) return std::log1p(static_cast<double>(count)) / std::log1p(static_cast<double>(most_));
    return static_cast<double>(count) / static_cast<double>(most_);
}

std::pair<double, double> Histogram::binRange(int bin) const {
    const double width = (greatest_ - least_) / static_cast<double>(bins_.size());
    return {least_ + bin * width, least_ + (bin + 1) * width};
}

QString Histogram::binText(int bin) const {
    const auto [from, to] = binRange(bin);
    const uint64_t count = bins_[static_cast<size_t>(bin)];
    return tr("%1 to %2: %3 (%4)")
        .arg(valueText(from), valueText(to), numberText(count),
             ratioText(sum_ ? static_cast<double>(count) / static_cast<double>(sum_) : 0));
}

void Histogram::describeCurrent() {
    QString text = tr("no values read");
    if (current_ >= 0)
        text = binText(current_);
    else if (!bins_.empty())
        text = tr("%1 values from %2 to %3 in %4 bars")
                   .arg(numberText(sum_), valueText(least_), valueText(greatest_))
                   .arg(bins_.size());
    describe(text);
}

void Histogram::setCurrent(int bin) {
    current_ = bin;
    describeCurrent();
    update();
}

void Histogram::mousePressEvent(QMouseEvent* event) {
    if (event->button() == Qt::LeftButton) setCurrent(binAt(event->position()));
}

QString Histogram::textAt(const QPointF& position) const {
    const int bin = binAt(position);
    return bin >= 0 ? binText(bin) : QString();
}

bool Histogram::pressKey(int key) {
    const auto bin = itemByKey(key, current_, static_cast<int>(bins_.size()));
    if (bin) setCurrent(*bin);
    return bin.has_value();
}

void Histogram::paint(QPainter& painter, const QRect&) {
    const QRectF area = plot();
    const double line = fontMetrics().height();
    if (!bins_.empty() && area.width() > 20 && area.height() > 20) {
        const double width = area.width() / static_cast<double>(bins_.size());
        for (size_t i = 0; i < bins_.size(); ++i) {
            if (bins_[i] == 0) continue;
            const double tall = std::max(1.0, area.height() * height(bins_[i]));
            const double left = std::round(area.left() + static_cast<double>(i) * width);
            const double right = std::round(area.left() + static_cast<double>(i + 1) * width);
            const QRectF bar(left, area.bottom() - tall, std::max(1.0, right - left - (width >= 4 ? 1 : 0)),
                             tall);
            painter.fillRect(
                bar, static_cast<int>(i) == current_ ? accentColor() : softened(categoryColor(0), 0.75));
        }
        if (current_ >= 0) {
            const QRectF column(area.left() + current_ * width, area.top(), width, area.height());
            painter.setPen(QPen(accentColor(), 1, Qt::DashLine));
            painter.drawLine(QPointF(column.center().x(), column.top()),
                             QPointF(column.center().x(), column.bottom()));
            painter.setPen(palette().color(QPalette::Text));
            painter.drawText(area.adjusted(0, -line / 2, 0, 0), Qt::AlignTop | Qt::AlignHCenter,
                             binText(current_));
        }
        painter.setPen(outlineColor());
        painter.drawLine(area.bottomLeft(), area.bottomRight());
        painter.setPen(faintTextColor());
        const QRectF below(area.left() - 40, area.bottom() + 4, area.width() + 54, line);
        painter.drawText(below.adjusted(40, 0, 0, 0), Qt::AlignLeft, valueText(least_));
        painter.drawText(below.adjusted(0, 0, -14, 0), Qt::AlignRight, valueText(greatest_));
        // Zero, where it is well inside.
        const double zero = (0 - least_) / (greatest_ - least_);
        if (zero > 0.15 && zero < 0.85) {
            const double x = area.left() + zero * area.width();
            painter.drawLine(QPointF(x, area.bottom()), QPointF(x, area.bottom() + 4));
            painter.drawText(QRectF(x - 20, below.top(), 40, line), Qt::AlignHCenter, QStringLiteral("0"));
        }
        painter.drawText(QRectF(0, area.top() - line / 2, area.left() - 6, line),
                         Qt::AlignRight | Qt::AlignVCenter, numberText(most_));
        painter.drawText(QRectF(0, area.bottom() - line / 2, area.left() - 6, line),
                         Qt::AlignRight | Qt::AlignVCenter, QStringLiteral("0"));
        if (log_ && area.height() > 4 * line) {
            const auto middle =
                static_cast<uint64_t>(std::expm1(0.5 * std::log1p(static_cast<double>(most_))));
            painter.drawText(QRectF(0, area.center().y() - line / 2, area.left() - 6, line),
                             Qt::AlignRight | Qt::AlignVCenter, numberText(middle));
        }
    }
}

}  // namespace shardscope::ui
