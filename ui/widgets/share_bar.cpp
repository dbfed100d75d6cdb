#include "ui/widgets/share_bar.h"

#include <QPainter>
#include <algorithm>

#include "ui/models/texts.h"
#include "ui/widgets/painting.h"
#include "ui/widgets/theme.h"

namespace shardscope::ui {

namespace {
constexpr int kBarMargin = 3;
constexpr int kBarHeight = 26;
constexpr int kSwatch = 12;
constexpr double kLeastPiece = 3;  // pixels; a share is never too small to be seen
}  // namespace

ShareBar::ShareBar(QWidget* parent) : PaintedView({}, {}, {}, parent) {
    QSizePolicy policy(QSizePolicy::Expanding, QSizePolicy::Preferred);
    policy.setHeightForWidth(true);
    setSizePolicy(policy);
}

void ShareBar::setShares(std::vector<Share> shares) {
    shares_ = std::move(shares);
    total_ = 0;
    for (const Share& share : shares_)
        total_ += share.amount;
    current_ = -1;
    QStringList texts;
    for (size_t i = 0; i < shares_.size(); ++i)
        texts += entryText(i);
    describe(texts.join("; "));
    updateGeometry();
    update();
}

QString ShareBar::entryText(size_t i) const {
    const Share& share = shares_[i];
    return QStringLiteral("%1  %2  (%3)")
        .arg(share.label, share.text, ratioText(total_ > 0 ? share.amount / total_ : 0));
}

QRectF ShareBar::shareRect(int index) const {
    const double width = this->width() - 2 * kBarMargin;
    const double spare = std::max(0.0, width - kLeastPiece * static_cast<double>(shares_.size()));
    double x = kBarMargin;
    for (int i = 0; i < static_cast<int>(shares_.size()); ++i) {
        const double share = total_ > 0 ? shares_[static_cast<size_t>(i)].amount / total_ : 0;
        const double piece = kLeastPiece + spare * share;
        if (i == index) return {x, kBarMargin, piece, kBarHeight};
        x += piece;
    }
    return {};
}

int ShareBar::placeLegend(int width, std::vector<QRect>* places) const {
    const int line = std::max(fontMetrics().height(), kSwatch) + 4;
    int x = kBarMargin, y = kBarMargin + kBarHeight + 8;
    for (size_t i = 0; i < shares_.size(); ++i) {
        const int entry = kSwatch + 6 + fontMetrics().horizontalAdvance(entryText(i)) + 18;
        if (x > kBarMargin && x + entry > width) {
            x = kBarMargin;
            y += line;
        }
        if (places) places->push_back({x, y, std::min(entry, width - x), line});
        x += entry;
    }
    return y + line + kBarMargin;
}

int ShareBar::heightForWidth(int width) const {
    return placeLegend(width, nullptr);
}
QSize ShareBar::sizeHint() const {
    return {400, heightForWidth(std::max(width(), 300))};
}
QSize ShareBar::minimumSizeHint() const {
    return {200, kBarHeight + 2 * kBarMargin + fontMetrics().height() + 12};
}

QString ShareBar::textAt(const QPointF& position) const {
    const int share = shareAt(position.toPoint());
    // The widget's own tooltip says what a click does.
    return share >= 0 ? entryText(static_cast<size_t>(share)) + '\n' + toolTip() : QString();
}

void ShareBar::paint(QPainter& painter, const QRect&) {
    std::vector<QRect> places;
    placeLegend(width(), &places);
    for (int i = 0; i < static_cast<int>(shares_.size()); ++i) {
        const Share& share = shares_[static_cast<size_t>(i)];
        const QRectF rect = shareRect(i);
        paintTile(painter, rect, share.color);
        if (fontMetrics().horizontalAdvance(share.label) + 10 < rect.width())
            paintTileLabel(painter, rect, share.label, share.color);
        const QRect& place = places[static_cast<size_t>(i)];
        paintTile(painter, QRectF(place.x(), place.center().y() - kSwatch / 2.0, kSwatch, kSwatch),
                  share.color);
        painter.setPen(palette().color(QPalette::WindowText));
        const QRect text = place.adjusted(kSwatch + 6, 0, 0, 0);
        painter.drawText(
            text, Qt::AlignVCenter | Qt::TextSingleLine,
            fontMetrics().elidedText(entryText(static_cast<size_t>(i)), Qt::ElideRight, text.width()));
    }
    if (hasFocus() && current_ >= 0) paintSelectionFrame(painter, shareRect(current_));
}

int ShareBar::shareAt(const QPoint& at) const {
    std::vector<QRect> places;
    placeLegend(width(), &places);
    for (int i = 0; i < static_cast<int>(shares_.size()); ++i) {
        if (shareRect(i).contains(at) || places[static_cast<size_t>(i)].contains(at)) return i;
    }
    return -1;
}

bool ShareBar::pressKey(int key) {
    if (key == Qt::Key_Return || key == Qt::Key_Enter || key == Qt::Key_Space) {
        if (current_ >= 0) emit activated(current_);
        return true;
    }
    const auto share = itemByKey(key, current_, static_cast<int>(shares_.size()));
    if (share) current_ = *share;
    update();
    return share.has_value();
}

void ShareBar::mousePressEvent(QMouseEvent* event) {
    const int hit = shareAt(event->pos());
    if (event->button() != Qt::LeftButton || hit < 0) return QWidget::mousePressEvent(event);
    current_ = hit;
    update();
    emit activated(hit);
}

}  // namespace shardscope::ui
