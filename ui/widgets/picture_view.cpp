#include "ui/widgets/picture_view.h"

#include <QMouseEvent>
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
    : PaintedView(name, {420, tall ? 100 : 200}, {240, 100}, parent), tall_(tall) {
    setMouseTracking(true);
}

void PictureView::setPicture(Draw draw, const QString& headline) {
    draw_ = std::move(draw);
    headline_ = headline;
    empty_.clear();
    current_ = -1;
    describe(headline_);
    layOut();
}

void PictureView::setNone(const QString& why) {
    setPicture(nullptr, why);
    empty_ = why;
}

QString PictureView::emptyText() const {
    return empty_;
}

void PictureView::layOut() {
    picture_ = draw_ ? draw_(width() - 2 * kPictureMargin, height() - 2 * kPictureMargin, darkTheme())
                     : DrawnPicture();
    if (current_ >= static_cast<int>(picture_.items.size())) current_ = -1;
    lit_ = -1;
    linked_.clear();
    svg_.load(QByteArray::fromStdString(picture_.svg));
    if (tall_) setMinimumHeight(static_cast<int>(std::ceil(picture_.height)) + 2 * kPictureMargin);
    update();
}

// What is drawn later lies on top.
int PictureView::itemAt(const QPointF& position) const {
    const QPointF at = position - QPointF(kPictureMargin, kPictureMargin);
    for (size_t i = picture_.items.size(); i-- > 0;) {
        if (picture_.items[i].rect.contains(at.x(), at.y())) return static_cast<int>(i);
    }
    return -1;
}

QString PictureView::textAt(const QPointF& position) const {
    const int item = itemAt(position);
    return item < 0 ? headline_ : toQString(picture_.items[static_cast<size_t>(item)].text);
}

void PictureView::light(int item) {
    if (item == lit_) return;
    lit_ = item;
    linked_ =
        item >= 0 && picture_.linked ? picture_.linked(static_cast<size_t>(item)) : std::vector<DrawnRect>();
    update();
}

void PictureView::paint(QPainter& painter, const QRect&) {
    if (picture_.svg.empty()) return;
    svg_.render(&painter, QRectF(kPictureMargin, kPictureMargin, picture_.width, picture_.height));
    const auto placed = [](const DrawnRect& at) {
        return QRectF(at.x, at.y, at.width, at.height).translated(kPictureMargin, kPictureMargin);
    };
    for (const DrawnRect& at : linked_)
        paintSelectionFrame(painter, placed(at));
    if (hasFocus() && current_ >= 0)
        paintSelectionFrame(painter, placed(picture_.items[static_cast<size_t>(current_)].rect));
}

void PictureView::mouseMoveEvent(QMouseEvent* event) {
    const int item = itemAt(event->position());
    light(item >= 0 ? item : current_);
}

bool PictureView::event(QEvent* event) {
    if (event->type() == QEvent::Leave) light(current_);
    return PaintedView::event(event);
}

// The nearest item of the same line or column; the current one where there is none.
int PictureView::itemBeside(int dx, int dy) const {
    const DrawnRect& from = picture_.items[static_cast<size_t>(current_)].rect;
    int best = current_;
    double least = HUGE_VAL;
    for (size_t i = 0; i < picture_.items.size(); ++i) {
        const DrawnRect& to = picture_.items[i].rect;
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
    if (current_ >= 0 && (key == Qt::Key_Up || key == Qt::Key_Down))
        current_ = itemBeside(0, key == Qt::Key_Up ? -1 : 1);
    else if (const auto item = itemByKey(key, current_, count))
        current_ = *item;
    else if (const auto first = itemByKey(key, current_, count, Qt::Vertical))
        current_ = *first;
    else
        return false;
    const auto& [at, text, kind] = picture_.items[static_cast<size_t>(current_)];
    describe(toQString(text));
    light(current_);
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
