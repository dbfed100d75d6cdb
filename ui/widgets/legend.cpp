#include "ui/widgets/legend.h"

#include <QPainter>
#include <algorithm>

#include "ui/widgets/theme.h"

namespace shardscope::ui {

namespace {
constexpr int kSampleWidth = 22, kSampleGap = 6, kBetween = 16, kLegendMargin = 2;
}

Legend::Legend(QWidget* parent) : QWidget(parent) {
    setAccessibleName(tr("Legend"));
    QSizePolicy policy(QSizePolicy::Preferred, QSizePolicy::Fixed);
    policy.setHeightForWidth(true);
    setSizePolicy(policy);
}

void Legend::setEntries(std::vector<Entry> entries) {
    entries_ = std::move(entries);
    QStringList texts;
    for (const Entry& entry : entries_)
        texts += entry.text;
    setAccessibleDescription(texts.join(QStringLiteral(", ")));
    updateGeometry();
    update();
}

Legend::Entry Legend::state(Health health, const QString& text) {
    return {text, [health](QPainter& painter, const QRectF& rect) { paintHealth(painter, rect, health); }};
}

int Legend::place(int width, std::vector<QRect>* places) const {
    const int height = std::max(fontMetrics().height(), 14) + 2 * kLegendMargin;
    int x = 0, y = 0;
    for (const Entry& entry : entries_) {
        const int needed = kSampleWidth + kSampleGap + fontMetrics().horizontalAdvance(entry.text);
        if (x > 0 && x + needed > width) {
            x = 0;
            y += height;
        }
        if (places) places->emplace_back(x, y, needed, height);
        x += needed + kBetween;
    }
    return y + height;
}

int Legend::heightForWidth(int width) const {
    return place(width, nullptr);
}

QSize Legend::sizeHint() const {
    int width = 0;
    for (const Entry& entry : entries_)
        width += kSampleWidth + kSampleGap + kBetween + fontMetrics().horizontalAdvance(entry.text);
    return {width, heightForWidth(width)};
}

QSize Legend::minimumSizeHint() const {
    return {160, heightForWidth(std::max(160, width()))};
}

void Legend::paintEvent(QPaintEvent*) {
    QPainter painter(this);
    std::vector<QRect> places;
    place(width(), &places);
    for (size_t i = 0; i < entries_.size(); ++i) {
        QRectF sample(places[i].left(), 0, kSampleWidth, 14);
        sample.moveTop(places[i].top() + (places[i].height() - 14) / 2.0);
        entries_[i].paint(painter, sample);
        painter.setPen(palette().color(QPalette::WindowText));
        painter.drawText(places[i].adjusted(kSampleWidth + kSampleGap, 0, 0, 0),
                         Qt::AlignVCenter | Qt::AlignLeft, entries_[i].text);
    }
}

}  // namespace shardscope::ui
