#include "ui/widgets/painting.h"

#include <QPainter>
#include <QWidget>
#include <algorithm>
#include <cmath>

#include "ui/widgets/theme.h"

namespace shardscope::ui {

namespace {

constexpr double kSmallestOutlined = 6;  // pixels
constexpr int kLeastLetters = 2;         // of a text that fits
constexpr int kLeastElided = 5;          // of one that does not, its ellipsis included

// WCAG's relative luminance.
double luminance(const QColor& color) {
    const auto linear = [](double c) {
        return c <= 0.04045 ? c / 12.92 : std::pow((c + 0.055) / 1.055, 2.4);
    };
    return 0.2126 * linear(color.redF()) + 0.7152 * linear(color.greenF()) + 0.0722 * linear(color.blueF());
}

}  // namespace

QColor textOn(const QColor& back) {
    return luminance(back) > 0.179 ? QColor(Qt::black) : QColor(Qt::white);
}

void paintTile(QPainter& painter, const QRectF& rect, const QColor& color) {
    painter.fillRect(rect, color);
    if (rect.width() < kSmallestOutlined || rect.height() < kSmallestOutlined) return;
    painter.setPen(QPen(outlineColor(), 1));
    painter.setBrush(Qt::NoBrush);
    painter.drawRect(rect.adjusted(0.5, 0.5, -0.5, -0.5));
}

void paintTileLabel(QPainter& painter, const QRectF& rect, const QString& text, const QColor& back) {
    const QFontMetricsF metrics(painter.font());
    const QRectF inner = rect.adjusted(2, 0, -2, 0);
    if (inner.height() < metrics.ascent() + 2) return;
    if (inner.width() < metrics.averageCharWidth() * kLeastLetters) return;
    const QString shown = metrics.elidedText(text, Qt::ElideRight, inner.width());
    if (shown != text && shown.size() < kLeastElided) return;
    painter.setPen(textOn(back));
    painter.drawText(inner, Qt::AlignCenter | Qt::TextSingleLine, shown);
}

void paintSelectionFrame(QPainter& painter, const QRectF& rect) {
    painter.save();
    painter.setBrush(Qt::NoBrush);
    painter.setPen(QPen(surfaceColor(), 4));
    painter.drawRect(rect.adjusted(1, 1, -1, -1));
    painter.setPen(QPen(accentColor(), 2));
    painter.drawRect(rect.adjusted(1, 1, -1, -1));
    painter.restore();
}

void paintFocusFrame(QPainter& painter, const QWidget& view) {
    if (!view.hasFocus()) return;
    painter.save();
    painter.setBrush(Qt::NoBrush);
    painter.setPen(QPen(accentColor(), 2));
    painter.drawRect(QRectF(view.rect()).adjusted(1, 1, -1, -1));
    painter.restore();
}

double bytesAxisStep(double most) {
    const double unit = std::pow(1024, std::floor(std::log(std::max(1.0, most)) / std::log(1024)));
    for (double step = unit / 1024; step < most * 2; step *= 2) {
        if (most / step <= 4) return step;
    }
    return std::max(1.0, most);
}

QColor softened(const QColor& color, double strength) {
    const QColor base = surfaceColor();
    const auto mix = [&](double a, double b) { return a * strength + b * (1 - strength); };
    return QColor::fromRgbF(static_cast<float>(mix(color.redF(), base.redF())),
                            static_cast<float>(mix(color.greenF(), base.greenF())),
                            static_cast<float>(mix(color.blueF(), base.blueF())));
}

}  // namespace shardscope::ui
