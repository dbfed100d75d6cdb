#include "ui/widgets/lanes.h"

#include <QLocale>
#include <QMouseEvent>
#include <QPainter>
#include <QPainterPath>
#include <algorithm>
#include <cmath>

#include "ui/models/texts.h"
#include "ui/widgets/theme.h"

namespace shardscope::ui {

namespace {

constexpr int kLeft = 96, kRight = 12, kTop = 6, kLaneGap = 12, kLow = 20;
constexpr size_t kMostInText = 8;  // lanes

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

Lanes::Lanes(const QString& name, QWidget* parent) : PaintedView(name, {}, {}, parent) {
    setMouseTracking(true);
}

void Lanes::setRates(const std::vector<JobRate>& rates, double step, Unit unit) {
    const auto lane = [&](const QString& name, double (*amount)(const JobRate&)) {
        Lane out{name, {LanePart()}};
        for (const JobRate& rate : rates)
            out.parts.front().amounts.push_back(amount(rate));
        return out;
    };
    if (unit == Unit::bytes) {
        setLanes({lane(tr("Read"), [](const JobRate& rate) { return rate.read; }),
                  lane(tr("Written"), [](const JobRate& rate) { return rate.written; })},
                 step, unit);
    } else {
        setLanes({lane(tr("Reading"), [](const JobRate& rate) { return rate.busy.read; }),
                  lane(tr("Computing"), [](const JobRate& rate) { return rate.busy.compute; }),
                  lane(tr("Writing"), [](const JobRate& rate) { return rate.busy.write; })},
                 step, unit);
    }
}

Lane Lanes::workerLane(const JobWorker& worker, Unit unit) {
    Lane lane{worker.name, {}, worker.state == QLatin1String("lost")};
    if (unit == Unit::bytes)
        lane.parts.resize(1);
    else
        lane.parts = {{tr("reading"), {}}, {tr("computing"), {}}, {tr("writing"), {}}};
    for (const JobRate& rate : worker.rates) {
        if (unit == Unit::bytes) {
            lane.parts[0].amounts.push_back(rate.written);
            continue;
        }
        lane.parts[0].amounts.push_back(rate.busy.read);
        lane.parts[1].amounts.push_back(rate.busy.compute);
        lane.parts[2].amounts.push_back(rate.busy.write);
    }
    return lane;
}

void Lanes::setLanes(std::vector<Lane> lanes, double step, Unit unit) {
    if (lanes == lanes_ && step == step_ && unit == unit_) return;
    const QSize before = minimumSizeHint();
    lanes_ = std::move(lanes);
    step_ = step;
    unit_ = unit;
    stretches_ = 0;
    for (const Lane& lane : lanes_) {
        for (const LanePart& part : lane.parts)
            stretches_ = std::max(stretches_, part.amounts.size());
    }
    if (at_ >= static_cast<int>(stretches_)) at_ = -1;
    describe(stretches_ ? valueText(static_cast<int>(stretches_) - 1) : emptyText());
    if (minimumSizeHint() != before) updateGeometry();
    update();
}

QSize Lanes::minimumSizeHint() const {
    const int lanes = std::max(2, static_cast<int>(lanes_.size()));
    return {240, top() + lanes * (kLow + kLaneGap) + fontMetrics().height() + 8};
}

int Lanes::top() const {
    return stacked() ? kTop + fontMetrics().height() + 4 : kTop;
}

QRectF Lanes::plot(int lane) const {
    const double axis = fontMetrics().height() + 4;
    const auto lanes = static_cast<double>(std::max<size_t>(1, lanes_.size()));
    const double height = std::max(10.0, (this->height() - top() - axis) / lanes - kLaneGap);
    return {double(kLeft), top() + lane * (height + kLaneGap),
            std::max(10.0, double(width() - kLeft - kRight)), height};
}

double Lanes::rate(const LanePart& part, size_t at) const {
    return at < part.amounts.size() ? part.amounts[at] / step_ : 0.0;
}

double Lanes::rate(const Lane& lane, size_t at) const {
    double sum = 0;
    for (const LanePart& part : lane.parts)
        sum += rate(part, at);
    return sum;
}

QString Lanes::amountText(double rate) const {
    if (unit_ == Unit::bytes) return tr("%1/s").arg(sizeText(static_cast<uint64_t>(rate)));
    return rate == 1.0 ? tr("1 thread") : tr("%1 threads").arg(QLocale::c().toString(rate, 'g', 3));
}

QString Lanes::valueText(int at) const {
    QStringList lanes;
    for (size_t i = 0; i < lanes_.size() && i < kMostInText; ++i) {
        const Lane& lane = lanes_[i];
        QStringList parts;
        for (const LanePart& part : lane.parts) {
            const double amount = rate(part, static_cast<size_t>(at));
            parts += part.name.isEmpty() ? amountText(amount)
                                         : tr("%1 %2").arg(part.name, QString::number(amount, 'f', 1));
        }
        lanes += tr("%1 %2").arg(lane.name, parts.join(' '));
    }
    if (lanes_.size() > kMostInText) lanes += QStringLiteral("…");
    return tr("After %1: %2").arg(timeText(at * step_), lanes.join(QStringLiteral(", ")));
}

namespace {

QColor partColor(size_t of, bool ended) {
    QColor fill = categoryColor(static_cast<uint32_t>(of));
    fill.setAlpha(ended ? 50 : of % 2 ? 200 : 90);
    return fill;
}

// Every other one is hatched as well: color alone does not tell them apart in a copy without labels.
void paintArea(QPainter& painter, const QPainterPath& area, size_t of, bool ended) {
    painter.fillPath(area, partColor(of, ended));
    if (of % 2) painter.fillPath(area, QBrush(surfaceColor(), Qt::BDiagPattern));
    painter.strokePath(area, QPen(outlineColor(), 1));
}

}  // namespace

QString Lanes::emptyText() const {
    return stretches_ ? QString() : tr("Nothing has been read or written yet.");
}

void Lanes::paint(QPainter& painter, const QRect&) {
    double most = 1;
    for (const Lane& lane : lanes_) {
        for (size_t i = 0; i < stretches_; ++i)
            most = std::max(most, rate(lane, i));
    }
    // One scale for all, so that they can be compared.
    most = roundedUp(most);
    if (stacked()) paintKey(painter);
    for (size_t lane = 0; lane < lanes_.size(); ++lane)
        paintLane(painter, lane, most);
    paintAxis(painter, most);
}

// What the parts are.
void Lanes::paintKey(QPainter& painter) const {
    const QFontMetrics metrics = painter.fontMetrics();
    const double side = metrics.ascent();
    double x = kLeft;
    for (size_t i = 0; i < lanes_.front().parts.size(); ++i) {
        QPainterPath swatch;
        swatch.addRect(x, kTop + 2, side, side - 2);
        paintArea(painter, swatch, i, false);
        x += side + 6;
        painter.setPen(palette().color(QPalette::Text));
        const QString& name = lanes_.front().parts[i].name;
        painter.drawText(QPointF(x, kTop + metrics.ascent()), name);
        x += metrics.horizontalAdvance(name) + 18;
    }
}

void Lanes::paintLane(QPainter& painter, size_t at, double most) const {
    const Lane& lane = lanes_[at];
    const QRectF box = plot(static_cast<int>(at));
    const QFontMetrics metrics = painter.fontMetrics();
    const bool scaled = box.height() >= 3 * metrics.height();
    painter.setRenderHint(QPainter::Antialiasing, false);
    painter.setPen(gridColor());
    for (const double y : {box.top(), box.center().y(), box.bottom()}) {
        if (scaled || y == box.bottom()) painter.drawLine(QPointF(box.left(), y), QPointF(box.right(), y));
    }
    const double width = box.width() / static_cast<double>(stretches_);
    std::vector<double> below(stretches_, 0.0);
    for (size_t p = 0; p < lane.parts.size(); ++p) {
        // Along the top from left to right, then back along the top of what is below.
        QPainterPath area;
        const auto y = [&](double rate) { return box.bottom() - rate / most * box.height(); };
        area.moveTo(box.left(), y(below.front()));
        std::vector<double> above = below;
        for (size_t i = 0; i < stretches_; ++i) {
            above[i] += rate(lane.parts[p], i);
            area.lineTo(box.left() + static_cast<double>(i) * width, y(above[i]));
            area.lineTo(box.left() + static_cast<double>(i + 1) * width, y(above[i]));
        }
        for (size_t i = stretches_; i-- > 0;) {
            area.lineTo(box.left() + static_cast<double>(i + 1) * width, y(below[i]));
            area.lineTo(box.left() + static_cast<double>(i) * width, y(below[i]));
        }
        area.closeSubpath();
        paintArea(painter, area, lane.parts.size() > 1 ? p : at, lane.ended);
        below = std::move(above);
    }
    painter.setPen(lane.ended ? faintTextColor() : palette().color(QPalette::Text));
    painter.drawText(QRectF(4, box.center().y() - metrics.height() / 2.0, kLeft - 10, metrics.height()),
                     Qt::AlignLeft, metrics.elidedText(lane.name, Qt::ElideMiddle, kLeft - 10));
    if (!scaled) return;
    painter.setPen(faintTextColor());
    painter.drawText(QRectF(0, box.top() - 2, kLeft - 6, metrics.height()), Qt::AlignRight, amountText(most));
    painter.drawText(QRectF(0, box.bottom() - metrics.height() + 2, kLeft - 6, metrics.height()),
                     Qt::AlignRight, QStringLiteral("0"));
}

void Lanes::paintAxis(QPainter& painter, double most) const {
    const QRectF box = plot(static_cast<int>(lanes_.size()) - 1);
    const QFontMetrics metrics = painter.fontMetrics();
    const QColor ink = palette().color(QPalette::Text);
    const QRectF axis(box.left(), box.bottom() + 3, box.width(), metrics.height());
    if (at_ < 0) {
        painter.setPen(faintTextColor());
        painter.drawText(axis, Qt::AlignLeft, QStringLiteral("0 s"));
        painter.drawText(axis, Qt::AlignRight, timeText(static_cast<double>(stretches_) * step_));
        // The scale of lanes too low for labels of their own.
        if (box.height() < 3 * metrics.height())
            painter.drawText(axis, Qt::AlignHCenter, tr("each lane is %1 high").arg(amountText(most)));
        return;
    }
    painter.setPen(ink);
    painter.drawText(axis, Qt::AlignHCenter,
                     metrics.elidedText(valueText(at_), Qt::ElideRight, int(axis.width())));
    const double x = box.left() + (at_ + 0.5) * box.width() / static_cast<double>(stretches_);
    painter.setPen(QPen(ink, 1, Qt::DashLine));
    painter.drawLine(QPointF(x, plot(0).top()), QPointF(x, box.bottom()));
}

void Lanes::point(int at) {
    at = stretches_ ? std::clamp(at, -1, static_cast<int>(stretches_) - 1) : -1;
    if (at == at_) return;
    at_ = at;
    if (at_ >= 0) describe(valueText(at_));
    update();
}

void Lanes::mouseMoveEvent(QMouseEvent* event) {
    const QRectF box = plot(0);
    const double share = (event->position().x() - box.left()) / box.width();
    point(share < 0 || share > 1 ? -1 : static_cast<int>(share * static_cast<double>(stretches_)));
}

bool Lanes::pressKey(int key) {
    const auto at = itemByKey(key, at_, static_cast<int>(stretches_));
    if (at) point(*at);
    return at.has_value();
}

void Lanes::leaveEvent(QEvent*) {
    if (!hasFocus()) point(-1);
}

void Lanes::focusOutEvent(QFocusEvent* event) {
    point(-1);
    PaintedView::focusOutEvent(event);
}

}  // namespace shardscope::ui
