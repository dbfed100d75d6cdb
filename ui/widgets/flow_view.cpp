#include "ui/widgets/flow_view.h"

#include <QPainter>
#include <algorithm>

#include "ui/models/texts.h"
#include "ui/widgets/painting.h"
#include "ui/widgets/theme.h"

namespace shardscope::ui {

namespace {

constexpr QPointF kFlowCorner(4, 4);

QRectF placed(const DrawnRect& r) {
    return QRectF(r.x, r.y, r.width, r.height).translated(kFlowCorner);
}

}  // namespace

FlowView::FlowView(QWidget* parent)
    : PaintedView(tr("Who reads what: files of the source by ranks of the target"), {420, 240}, {220, 140},
                  parent) {}

void FlowView::setFlow(std::shared_ptr<const FlowPicture> flow) {
    flow_ = std::move(flow);
    empty_ = tr("Nothing is read.");
    rank_ = file_ = -1;
    describe(flow_ ? toQString(flow_->headline()) : QString());
    layOut();
}

void FlowView::setNone(const QString& why) {
    setFlow(nullptr);
    empty_ = why;
    describe(why);
    update();
}

void FlowView::layOut() {
    const double wide = width() - 2 * kFlowCorner.x(), high = height() - 2 * kFlowCorner.y();
    drawing_ = {};
    if (flow_) {
        drawing_ = flow_->draw(wide, high, DrawnType());
        svg_.load(QByteArray::fromStdString(flow_->svgOf(wide, high, darkTheme())));
    }
    update();
}

QString FlowView::emptyText() const {
    return drawing_.cells.empty() ? empty_ : QString();
}

QString FlowView::textAt(const QPointF& position) const {
    if (!flow_) return {};
    const QPointF at = position - kFlowCorner;
    if (const int cell = drawing_.cellAt(at.x(), at.y()); cell >= 0)
        return toQString(flow_->cellText(drawing_.cells[static_cast<size_t>(cell)]));
    for (const auto& [rect, file] : drawing_.rows) {
        if (rect.contains(at.x(), at.y())) return toQString(flow_->fileText(file));
    }
    for (const auto& [rect, rank] : drawing_.columns) {
        if (rect.contains(at.x(), at.y())) return toQString(flow_->rankText(rank));
    }
    return toQString(flow_->headline());
}

void FlowView::paint(QPainter& painter, const QRect&) {
    svg_.render(&painter, QRectF(kFlowCorner, QSizeF(drawing_.width, drawing_.height)));
    if (!hasFocus()) return;
    const QRectF grid = placed(drawing_.grid);
    if (rank_ >= 0) {
        const QRectF band = placed(drawing_.columns[static_cast<size_t>(rank_)].first);
        paintSelectionFrame(painter, QRectF(band.left(), grid.top(), band.width(), grid.height()));
    } else if (file_ >= 0) {
        const QRectF band = placed(drawing_.rows[static_cast<size_t>(file_)].first);
        paintSelectionFrame(painter, QRectF(grid.left(), band.top(), grid.width(), band.height()));
    }
}

bool FlowView::pressKey(int key) {
    if (!flow_) return false;
    if (const auto rank = key == Qt::Key_Up || key == Qt::Key_Down
                              ? std::nullopt
                              : itemByKey(key, rank_, static_cast<int>(drawing_.columns.size()))) {
        rank_ = *rank;
        file_ = -1;
        describe(toQString(flow_->rankText(drawing_.columns[static_cast<size_t>(rank_)].second)));
    } else if (const auto file =
                   itemByKey(key, file_, static_cast<int>(drawing_.rows.size()), Qt::Vertical)) {
        file_ = *file;
        rank_ = -1;
        describe(toQString(flow_->fileText(drawing_.rows[static_cast<size_t>(file_)].second)));
    } else {
        return false;
    }
    update();
    return true;
}

void FlowView::resizeEvent(QResizeEvent* event) {
    PaintedView::resizeEvent(event);
    layOut();
}

void FlowView::changeEvent(QEvent* event) {
    PaintedView::changeEvent(event);
    if (event->type() == QEvent::PaletteChange) layOut();
}

}  // namespace shardscope::ui
