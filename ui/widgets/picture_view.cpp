#include "ui/widgets/picture_view.h"

#include <QPainter>
#include <QScrollArea>
#include <algorithm>
#include <cmath>

#include "ui/models/texts.h"
#include "ui/widgets/painting.h"
#include "ui/widgets/theme.h"

namespace shardscope::ui {

namespace {
constexpr int kPictureMargin = 4;
}  // namespace

PictureView::PictureView(const QString& name, bool tall, QWidget* parent)
    : PaintedView(name, {420, tall ? 100 : 200}, {240, 100}, parent), tall_(tall) {}

void PictureView::setPicture(Draw draw, const QString& headline) {
    draw_ = std::move(draw);
    headline_ = headline;
    current_ = -1;
    describe(headline_);
    layOut();
}

void PictureView::layOut() {
    picture_ =
        draw_ ? draw_(width() - 2 * kPictureMargin, height() - 2 * kPictureMargin, darkTheme()) : Picture();
    svg_.load(QByteArray::fromStdString(picture_.svg));
    if (tall_) setMinimumHeight(static_cast<int>(std::ceil(picture_.height)) + 2 * kPictureMargin);
    update();
}

QString PictureView::textAt(const QPointF& position) const {
    const QPointF at = position - QPointF(kPictureMargin, kPictureMargin);
    const auto item = std::ranges::find_if(
        picture_.items, [&](const auto& one) { return one.first.contains(at.x(), at.y()); });
    return item == picture_.items.end() ? headline_ : toQString(item->second);
}

void PictureView::paint(QPainter& painter, const QRect&) {
    if (picture_.svg.empty()) return;
    svg_.render(&painter, QRectF(kPictureMargin, kPictureMargin, picture_.width, picture_.height));
    if (!hasFocus() || current_ < 0 || static_cast<size_t>(current_) >= picture_.items.size()) return;
    const DrawnRect& at = picture_.items[static_cast<size_t>(current_)].first;
    paintSelectionFrame(painter,
                        QRectF(at.x, at.y, at.width, at.height).translated(kPictureMargin, kPictureMargin));
}

// The nearest item of the same line or column; the current one where there is none.
int PictureView::itemBeside(int dx, int dy) const {
    const DrawnRect& from = picture_.items[static_cast<size_t>(current_)].first;
    int best = current_;
    double least = HUGE_VAL;
    for (size_t i = 0; i < picture_.items.size(); ++i) {
        const DrawnRect& to = picture_.items[i].first;
        const double x = to.x - from.x, y = to.y - from.y, along = x * dx + y * dy;
        if (along < 1 || std::abs(x * dy) + std::abs(y * dx) > 1 || along >= least) continue;
        least = along;
        best = static_cast<int>(i);
    }
    return best;
}

bool PictureView::pressKey(int key) {
    const auto count = static_cast<int>(picture_.items.size());
    if (count == 0) return false;
    if (current_ >= count) current_ = -1;
    if (current_ >= 0 && (key == Qt::Key_Up || key == Qt::Key_Down))
        current_ = itemBeside(0, key == Qt::Key_Up ? -1 : 1);
    else if (const auto item = itemByKey(key, current_, count))
        current_ = *item;
    else if (const auto first = itemByKey(key, current_, count, Qt::Vertical))
        current_ = *first;
    else
        return false;
    const auto& [at, text] = picture_.items[static_cast<size_t>(current_)];
    describe(toQString(text));
    for (QWidget* above = parentWidget(); tall_ && above; above = above->parentWidget()) {
        auto* scroll = qobject_cast<QScrollArea*>(above);
        if (!scroll) continue;
        scroll->ensureVisible(static_cast<int>(at.x + at.width / 2), static_cast<int>(at.y + at.height / 2),
                              0, static_cast<int>(at.height / 2) + kPictureMargin);
        break;
    }
    update();
    return true;
}

void PictureView::resizeEvent(QResizeEvent* event) {
    PaintedView::resizeEvent(event);
    if (!tall_ || event->size().width() != event->oldSize().width()) layOut();
}

void PictureView::changeEvent(QEvent* event) {
    PaintedView::changeEvent(event);
    if (event->type() == QEvent::PaletteChange) layOut();
}

}  // namespace shardscope::ui
