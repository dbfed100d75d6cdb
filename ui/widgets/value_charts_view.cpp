#include "ui/widgets/value_charts_view.h"

#include <QPainter>
#include <QScrollArea>

#include "ui/models/texts.h"
#include "ui/widgets/painting.h"
#include "ui/widgets/theme.h"

namespace shardscope::ui {

namespace {
constexpr int kChartsMargin = 4;
}  // namespace

ValueChartsView::ValueChartsView(QWidget* parent)
    : PaintedView(tr("Norms over the steps of the run"), {480, 100}, {240, 100}, parent) {
    QSizePolicy policy(QSizePolicy::Expanding, QSizePolicy::MinimumExpanding);
    policy.setHeightForWidth(true);
    setSizePolicy(policy);
}

void ValueChartsView::setCharts(std::shared_ptr<const ValueCharts> charts) {
    charts_ = std::move(charts);
    current_ = -1;
    describe(charts_ ? toQString(charts_->headline()) : QString());
    layOut();
    updateGeometry();
}

std::string ValueChartsView::svg() const {
    return charts_ ? charts_->svgOf(width() - 2 * kChartsMargin, darkTheme()) : std::string();
}

int ValueChartsView::heightForWidth(int width) const {
    return charts_ ? static_cast<int>(charts_->draw(width - 2 * kChartsMargin).height) + 2 * kChartsMargin
                   : 0;
}

void ValueChartsView::layOut() {
    drawing_ = {};
    if (charts_) {
        drawing_ = charts_->draw(width() - 2 * kChartsMargin);
        svg_.load(QByteArray::fromStdString(svg()));
        setMinimumHeight(heightForWidth(width()));
    }
    update();
}

QString ValueChartsView::textAt(const QPointF& position) const {
    const int chart = drawing_.chartAt(position.x() - kChartsMargin, position.y() - kChartsMargin);
    return chart < 0 ? QString() : toQString(charts_->text(charts_->charts()[static_cast<size_t>(chart)]));
}

void ValueChartsView::paint(QPainter& painter, const QRect&) {
    if (!charts_) return;
    svg_.render(&painter, QRectF(kChartsMargin, kChartsMargin, drawing_.width, drawing_.height));
    if (!hasFocus() || current_ < 0) return;
    const DrawnRect& at = drawing_.charts[static_cast<size_t>(current_)];
    paintSelectionFrame(painter,
                        QRectF(at.x, at.y, at.width, at.height).translated(kChartsMargin, kChartsMargin));
}

bool ValueChartsView::pressKey(int key) {
    const int count = static_cast<int>(drawing_.charts.size());
    auto chart = itemByKey(key, current_, count);
    if (!chart) chart = itemByKey(key, current_, count, Qt::Vertical);
    if (!chart) return false;
    current_ = *chart;
    describe(toQString(charts_->text(charts_->charts()[static_cast<size_t>(current_)])));
    const DrawnRect& at = drawing_.charts[static_cast<size_t>(current_)];
    for (QWidget* above = parentWidget(); above; above = above->parentWidget())
        if (auto* scroll = qobject_cast<QScrollArea*>(above)) {
            scroll->ensureVisible(static_cast<int>(at.x + at.width / 2),
                                  static_cast<int>(at.y + at.height / 2), 0,
                                  static_cast<int>(at.height / 2) + kChartsMargin);
            break;
        }
    update();
    return true;
}

void ValueChartsView::resizeEvent(QResizeEvent* event) {
    PaintedView::resizeEvent(event);
    layOut();
}

void ValueChartsView::changeEvent(QEvent* event) {
    PaintedView::changeEvent(event);
    if (event->type() == QEvent::PaletteChange) layOut();
}

}  // namespace shardscope::ui
