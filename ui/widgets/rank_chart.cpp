#include "ui/widgets/rank_chart.h"

#include <QPainter>
#include <algorithm>
#include <cmath>
#include <numeric>

#include "ui/models/texts.h"
#include "ui/widgets/painting.h"
#include "ui/widgets/theme.h"

namespace shardscope::ui {

namespace {

constexpr double kLeastColumn = 3;  // pixels
constexpr double kWidestRank = 110;
constexpr double kLabelledColumn = 64;  // from which a column says its bytes
constexpr double kNumberedColumn = 24;  // from which every column has its number
constexpr double kTickDistance = 56;
constexpr double kLeastOutlined = 8;  // narrower columns would be outline and nothing else
constexpr double kOutlierShare = 0.05;
constexpr double kOutlierDeviations = 5;
constexpr double kMarkHeight = 18;  // above the columns, for glyphs
constexpr double kGlyphSize = 12;

}  // namespace

std::vector<uint32_t> outlyingRanks(const std::vector<RankBar>& bars, uint64_t median) {
    if (bars.size() < 3) return {};
    std::vector<double> off;
    off.reserve(bars.size());
    for (const RankBar& bar : bars)
        off.push_back(std::abs(static_cast<double>(bar.bytes) - static_cast<double>(median)));
    std::vector<double> sorted = off;
    const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
    std::nth_element(sorted.begin(), middle, sorted.end());
    const double most = std::max(kOutlierDeviations * *middle, kOutlierShare * static_cast<double>(median));
    std::vector<size_t> found;
    for (size_t i = 0; i < bars.size(); ++i) {
        if (off[i] > most || (bars[i].bytes == 0 && median > 0)) found.push_back(i);
    }
    std::stable_sort(found.begin(), found.end(), [&](size_t a, size_t b) { return off[a] > off[b]; });
    std::vector<uint32_t> ranks;
    for (const size_t i : found)
        ranks.push_back(bars[i].rank);
    return ranks;
}

RankChart::RankChart(QWidget* parent) : PaintedView(tr("Bytes per rank"), {500, 220}, {260, 170}, parent) {}

void RankChart::setBars(std::vector<RankBar> bars, uint64_t median) {
    bars_ = std::move(bars);
    median_ = median;
    outliers_ = outlyingRanks(bars_, median_);
    most_ = 0;
    for (const RankBar& bar : bars_)
        most_ = std::max(most_, bar.bytes);
    current_ = -1;
    build();
}

void RankChart::setSorted(bool bySize) {
    sorted_ = bySize;
    current_ = -1;
    build();
}

void RankChart::setSelected(const std::vector<uint32_t>& ranks) {
    selected_ = ranks;
    build();
}

void RankChart::build() {
    order_.resize(bars_.size());
    std::iota(order_.begin(), order_.end(), size_t{0});
    if (sorted_) {
        std::stable_sort(order_.begin(), order_.end(),
                         [&](size_t a, size_t b) { return bars_[a].bytes > bars_[b].bytes; });
    }
    std::vector<uint32_t> outliers = outliers_, selected = selected_;
    std::sort(outliers.begin(), outliers.end());
    std::sort(selected.begin(), selected.end());
    columns_.clear();
    if (!order_.empty()) {
        const auto fit = static_cast<size_t>(std::max(1.0, plot().width() / kLeastColumn));
        const size_t each = (order_.size() + fit - 1) / fit;
        for (size_t first = 0; first < order_.size(); first += each) {
            Column column;
            column.first = first;
            column.end = std::min(order_.size(), first + each);
            column.least = UINT64_MAX;
            int flagged = 0;
            for (size_t i = first; i < column.end; ++i) {
                const RankBar& bar = bars_[order_[i]];
                column.least = std::min(column.least, bar.bytes);
                column.most = std::max(column.most, bar.bytes);
                column.health = std::max(column.health, bar.health);
                const bool outlier = std::binary_search(outliers.begin(), outliers.end(), bar.rank);
                column.outlier |= outlier;
                if (outlier || bar.health > Health::unread) {
                    column.flagged = flagged++ == 0 ? bar.rank : kNone;
                }
                column.selected |= std::binary_search(selected.begin(), selected.end(), bar.rank);
            }
            columns_.push_back(column);
        }
    }
    current_ = std::min(current_, columnCount() - 1);
    update();
}

QRectF RankChart::plot() const {
    const int axis = fontMetrics().horizontalAdvance(QStringLiteral("1,000.0 MiB")) + 8;
    const double bottom = fontMetrics().height() + 8;
    return QRectF(rect()).adjusted(axis, kMarkHeight + 4, -10, -bottom);
}

double RankChart::yOf(double bytes) const {
    const QRectF area = plot();
    const double most = static_cast<double>(std::max<uint64_t>(1, most_));
    return area.bottom() - area.height() * bytes / most;
}

QRectF RankChart::columnRect(int column) const {
    const QRectF area = plot();
    const double width = std::min(kWidestRank, area.width() / std::max(1, columnCount()));
    return {area.left() + column * width, area.top(), width, area.height()};
}

std::vector<uint32_t> RankChart::columnRanks(int column) const {
    std::vector<uint32_t> ranks;
    if (column < 0 || column >= columnCount()) return ranks;
    const Column& c = columns_[static_cast<size_t>(column)];
    for (size_t i = c.first; i < c.end; ++i)
        ranks.push_back(bars_[order_[i]].rank);
    return ranks;
}

int RankChart::columnOf(uint32_t rank) const {
    for (int c = 0; c < columnCount(); ++c) {
        const std::vector<uint32_t> ranks = columnRanks(c);
        if (std::find(ranks.begin(), ranks.end(), rank) != ranks.end()) return c;
    }
    return -1;
}

int RankChart::columnAt(const QPoint& at) const {
    if (columns_.empty()) return -1;
    const QRectF first = columnRect(0);
    const auto column = static_cast<int>(std::floor((at.x() - first.left()) / first.width()));
    return column >= 0 && column < columnCount() && at.y() <= plot().bottom() ? column : -1;
}

QString RankChart::columnText(int column) const {
    const Column& c = columns_[static_cast<size_t>(column)];
    const auto against = [&](uint64_t bytes) {
        if (median_ == 0 || bytes == median_) return QString();
        const double off = static_cast<double>(bytes) / static_cast<double>(median_) - 1;
        return off > 0 ? tr(", %1 above the median").arg(ratioText(off))
                       : tr(", %1 below the median").arg(ratioText(-off));
    };
    if (c.end - c.first == 1) {
        const RankBar& bar = bars_[order_[c.first]];
        QString text = bar.label.isEmpty() ? tr("Rank %1").arg(bar.rank)
                                           : tr("Rank %1 (%2)").arg(QString::number(bar.rank), bar.label);
        text += tr("\n%1%2").arg(sizeText(bar.bytes), against(bar.bytes));
        if (bar.health != Health::ok)
            text += tr("\nWorst state: %1")
                        .arg(bar.state.isEmpty() ? toQString(healthName(bar.health)) : bar.state);
        return text;
    }
    QString text =
        sorted_ ? tr("%1 ranks").arg(c.end - c.first)
                : tr("Ranks %1 to %2").arg(bars_[order_[c.first]].rank).arg(bars_[order_[c.end - 1]].rank);
    text += tr("\nMost %1, least %2").arg(sizeText(c.most), sizeText(c.least));
    if (c.health != Health::ok) text += tr("\nWorst state: %1").arg(healthName(c.health));
    return text;
}

void RankChart::paintAxes(QPainter& painter) const {
    const QRectF area = plot();
    const double most = static_cast<double>(most_);
    painter.setPen(QPen(gridColor(), 1));
    const double step = bytesAxisStep(most);
    for (double at = 0; at <= most; at += step) {
        const double y = std::round(yOf(at)) + 0.5;
        painter.setPen(QPen(gridColor(), 1));
        painter.drawLine(QPointF(area.left(), y), QPointF(area.right(), y));
        painter.setPen(faintTextColor());
        // The lowest one keeps clear of what stands below it.
        const double up = at == 0 ? 15 : 10;
        painter.drawText(QRectF(0, y - up, area.left() - 6, 20), Qt::AlignRight | Qt::AlignVCenter,
                         at == 0 ? QStringLiteral("0") : sizeText(static_cast<uint64_t>(at)));
    }
    painter.setPen(faintTextColor());
    const double line = area.bottom() + 4;
    if (sorted_) {
        painter.drawText(QRectF(area.left(), line, area.width(), 20), Qt::AlignLeft | Qt::AlignTop,
                         tr("ranks, the largest first"));
        return;
    }
    // Rank numbers as far as they fit, with the word once.
    const QString word = tr("rank");
    painter.drawText(QRectF(0, line, area.left() - 6, 20), Qt::AlignRight | Qt::AlignTop, word);
    double free = area.left() - 6;
    const QFontMetricsF metrics(painter.font());
    const auto each = static_cast<uint32_t>(columns_[0].end - columns_[0].first);
    // Ranks of jobs come in powers of two, and so do the ticks.
    const double wide = columnRect(0).width();
    uint32_t stride = 1;
    while (stride < each || (wide < kNumberedColumn && wide * stride / each < kTickDistance))
        stride *= 2;
    for (uint32_t rank = 0; rank < bars_.size(); rank += stride) {
        const QString text = QString::number(bars_[rank].rank);
        const double width = metrics.horizontalAdvance(text);
        const double x = columnRect(static_cast<int>(rank / each)).center().x() - width / 2;
        if (x < free || x + width > this->width()) continue;
        painter.drawText(QPointF(x, line + metrics.ascent()), text);
        free = x + width + 8;
    }
}

void RankChart::paintMarks(QPainter& painter) const {
    const QRectF area = plot();
    double free = 0;
    for (int c = 0; c < columnCount(); ++c) {
        const Column& column = columns_[static_cast<size_t>(c)];
        if (!column.outlier && column.health <= Health::unread) continue;
        const QRectF place = columnRect(c);
        const double y =
            std::max(area.top() - kMarkHeight, yOf(static_cast<double>(column.most)) - kMarkHeight);
        QRectF mark(place.center().x() - kGlyphSize / 2, y + 2, kGlyphSize, kGlyphSize);
        if (column.health > Health::unread) {
            paintHealth(painter, mark, column.health);
        } else {
            painter.setPen(QPen(outlineColor(), 1));
            painter.setBrush(healthColor(Health::overlap));
            painter.setRenderHint(QPainter::Antialiasing);
            painter.drawPolygon(
                QPolygonF({mark.topLeft(), mark.topRight(), QPointF(mark.center().x(), mark.bottom())}));
            painter.setRenderHint(QPainter::Antialiasing, false);
        }
        const QString name = column.flagged == kNone ? QString() : QString::number(column.flagged);
        const double width = painter.fontMetrics().horizontalAdvance(name) + 6;
        // Right of the mark, or left of it at the edge.
        const bool right = mark.right() + width < this->width();
        const double x = right ? mark.right() + 3 : mark.left() - width;
        if (name.isEmpty() || x < free) continue;
        painter.setPen(palette().color(QPalette::WindowText));
        painter.drawText(QRectF(x, mark.top() - 4, width, mark.height() + 8), Qt::AlignVCenter, name);
        free = std::max(x + width, mark.right()) + 8;
    }
}

QString RankChart::emptyText() const {
    if (bars_.empty()) return tr("Adding up the bytes of ranks…");
    return most_ == 0 ? tr("No rank holds any bytes.") : QString();
}

QString RankChart::textAt(const QPointF& position) const {
    const int column = columnAt(position.toPoint());
    return column >= 0 ? columnText(column) : QString();
}

void RankChart::paint(QPainter& painter, const QRect&) {
    paintAxes(painter);
    const QRectF area = plot();
    const QColor color = categoryColor(4);
    const bool several = columns_.size() < bars_.size();
    for (int c = 0; c < columnCount(); ++c) {
        const Column& column = columns_[static_cast<size_t>(c)];
        QRectF bar = columnRect(c);
        if (bar.width() > 8)
            bar.adjust(1, 0, -1, 0);
        else if (bar.width() > kLeastColumn + 1)
            bar.adjust(0, 0, -1, 0);
        const QRectF most(bar.left(), yOf(static_cast<double>(column.most)), bar.width(),
                          area.bottom() - yOf(static_cast<double>(column.most)));
        const QColor fill = column.selected ? accentColor() : color;
        if (several && column.least < column.most) {
            painter.fillRect(most, softened(fill, 0.45));
            const double y = yOf(static_cast<double>(column.least));
            painter.fillRect(QRectF(bar.left(), y, bar.width(), area.bottom() - y), fill);
        } else if (bar.width() < kLeastOutlined) {
            painter.fillRect(most, fill);
        } else {
            paintTile(painter, most, fill);
            if (bar.width() >= kLabelledColumn && most.height() > 24)
                paintTileLabel(painter, QRectF(most.left(), most.bottom() - 22, most.width(), 20),
                               sizeText(column.most), fill);
        }
    }
    const double y = std::round(yOf(static_cast<double>(median_))) + 0.5;
    painter.setPen(QPen(palette().color(QPalette::WindowText), 1, Qt::DashLine));
    painter.drawLine(QPointF(area.left(), y), QPointF(area.right(), y));
    const QString text = tr("median %1").arg(sizeText(median_));
    const double width = painter.fontMetrics().horizontalAdvance(text) + 10;
    const double columnsEnd = columnRect(columnCount() - 1).right();
    // Beside the columns where there is room, else on a plate over them.
    QRectF plate(columnsEnd + 4, y - 19, width, 18);
    if (plate.right() > area.right()) plate.moveTo(area.left() + 4, y + 20 < area.bottom() ? y + 2 : y - 19);
    painter.fillRect(plate, surfaceColor());
    painter.setPen(palette().color(QPalette::WindowText));
    painter.drawText(plate, Qt::AlignCenter, text);
    paintMarks(painter);
    if (current_ >= 0 && hasFocus())
        paintSelectionFrame(painter, columnRect(current_).adjusted(-2, -2, 2, 2));
}

void RankChart::resizeEvent(QResizeEvent* event) {
    QWidget::resizeEvent(event);
    build();
}

void RankChart::mousePressEvent(QMouseEvent* event) {
    const int column = event->button() == Qt::LeftButton ? columnAt(event->pos()) : -1;
    if (column < 0) return QWidget::mousePressEvent(event);
    choose(column);
}

bool RankChart::pressKey(int key) {
    const bool again = key == Qt::Key_Return || key == Qt::Key_Enter || key == Qt::Key_Space;
    const std::optional<int> column = again ? current_ : itemByKey(key, current_, columnCount());
    if (column) choose(*column);
    return column.has_value();
}

void RankChart::choose(int column) {
    current_ = column;
    update();
    if (column < 0 || column >= columnCount()) return;
    describe(columnText(column));
    emit selected(columnRanks(column));
}
}  // namespace shardscope::ui
