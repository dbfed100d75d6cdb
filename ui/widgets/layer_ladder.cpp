#include "ui/widgets/layer_ladder.h"

#include <QPainter>
#include <algorithm>
#include <cmath>

#include "ui/models/texts.h"
#include "ui/widgets/painting.h"
#include "ui/widgets/theme.h"

namespace shardscope::ui {

namespace {

constexpr double kLadderMargin = 3;
constexpr double kWidestLabel = 260;
constexpr double kWidestLayer = 72;
constexpr double kWidestRemark = 170;
constexpr size_t kColumnsNamed = 6;  // in texts

QString columnList(const std::vector<uint32_t>& columns) {
    QStringList names;
    for (size_t i = 0; i < columns.size() && i < kColumnsNamed; ++i)
        names += QString::number(columns[i]);
    if (columns.size() > kColumnsNamed) names += QStringLiteral("…");
    return names.join(QStringLiteral(", "));
}

}  // namespace

LayerLadder::LayerLadder(QWidget* parent) : PaintedView(tr("Layers and stages"), {}, {}, parent) {
    setSizePolicy(QSizePolicy::Expanding, QSizePolicy::MinimumExpanding);
}

void LayerLadder::setLayers(std::vector<Layer> layers, uint32_t columns, const QString& columnWord,
                            bool exclusive) {
    layers_ = std::move(layers);
    columns_ = columns;
    columnWord_ = columnWord;
    exclusive_ = exclusive;
    current_ = -1;
    build();
}

void LayerLadder::setFolded(bool folded) {
    folded_ = folded;
    current_ = -1;
    build();
}

void LayerLadder::setSelected(const QString& moduleName) {
    selected_ = moduleName;
    update();
}

void LayerLadder::build() {
    rows_.clear();
    const auto alike = [&](const Layer& a, const Layer& b) {
        return a.group == b.group && a.columns == b.columns && a.health == b.health && a.state == b.state &&
               b.number == a.number + 1;
    };
    for (size_t i = 0; i < layers_.size();) {
        size_t end = i + 1;
        while (folded_ && end < layers_.size() && alike(layers_[end - 1], layers_[end]))
            ++end;
        const Layer& layer = layers_[i];
        Row row;
        row.first = i;
        row.end = end;
        row.label =
            end - i == 1
                ? layer.name
                : QStringLiteral("%1 %2–%3").arg(layer.group).arg(layer.number).arg(layers_[end - 1].number);
        if (layer.columns.empty()) {
            row.remark = tr("on no %1").arg(columnWord_);
            row.odd = true;
        } else if (exclusive_ && layer.columns.size() > 1) {
            row.remark =
                tr("in %1 %2s: %3").arg(layer.columns.size()).arg(columnWord_, columnList(layer.columns));
            row.odd = true;
        } else if (layer.health > Health::unread) {
            row.remark = layer.state.isEmpty() ? QString::fromLatin1(healthName(layer.health)) : layer.state;
        }
        rows_.push_back(std::move(row));
        i = end;
    }
    updateGeometry();
    update();
}

double LayerLadder::rowHeight() const {
    return fontMetrics().height() + 6;
}
double LayerLadder::headerHeight() const {
    return rows_.empty() ? 0 : fontMetrics().height() + 8;
}

double LayerLadder::labelWidth() const {
    double widest = 60;
    for (const Row& row : rows_)
        widest = std::max(widest, double(fontMetrics().horizontalAdvance(row.label)));
    return std::min({widest + 12, kWidestLabel, width() * 0.45});
}

double LayerLadder::remarkWidth() const {
    double widest = 0;
    for (const Row& row : rows_)
        widest = std::max(widest, double(fontMetrics().horizontalAdvance(row.remark)));
    return widest > 0 ? std::min(widest + 30, kWidestRemark) : 0;
}

QRectF LayerLadder::rowRect(int row) const {
    return {kLadderMargin, kLadderMargin + headerHeight() + row * rowHeight(), width() - 2 * kLadderMargin,
            rowHeight()};
}

int LayerLadder::rowAt(const QPoint& at) const {
    const double y = at.y() - kLadderMargin - headerHeight();
    const auto row = static_cast<int>(std::floor(y / rowHeight()));
    return y >= 0 && row < static_cast<int>(rows_.size()) ? row : -1;
}

QString LayerLadder::rowText(int index) const {
    const Row& row = rows_[static_cast<size_t>(index)];
    const Layer& layer = layers_[row.first];
    uint64_t bytes = 0;
    for (size_t i = row.first; i < row.end; ++i)
        bytes += layers_[i].bytes;
    QString text = row.label + "\n" + sizeText(bytes);
    if (!layer.columns.empty())
        text +=
            layer.columns.size() == 1
                ? tr("\n%1 %2").arg(columnWord_).arg(layer.columns[0])
                : tr("\n%1 %2s: %3").arg(layer.columns.size()).arg(columnWord_, columnList(layer.columns));
    if (!row.remark.isEmpty()) text += "\n" + row.remark;
    return text;
}

void LayerLadder::paintHeader(QPainter& painter) const {
    const double left = kLadderMargin + labelWidth(), right = width() - kLadderMargin - remarkWidth();
    const double each = std::min(kWidestLayer, (right - left) / columns_);
    painter.setPen(faintTextColor());
    const QRectF line(kLadderMargin, kLadderMargin, labelWidth() - 8, headerHeight());
    painter.drawText(line, Qt::AlignRight | Qt::AlignVCenter, columnWord_);
    double free = left;
    const QFontMetricsF metrics(painter.font());
    for (uint32_t c = 0; c < columns_; ++c) {
        const QString text = QString::number(c);
        const double width = metrics.horizontalAdvance(text);
        const double x = left + (c + 0.5) * each - width / 2;
        if (x < free - 1 || x + width > right + 1) continue;
        painter.drawText(QRectF(x, kLadderMargin, width + 1, headerHeight()), Qt::AlignVCenter, text);
        free = x + width + 8;
    }
}

void LayerLadder::paintRow(QPainter& painter, int index) const {
    const Row& row = rows_[static_cast<size_t>(index)];
    const Layer& layer = layers_[row.first];
    const QRectF line = rowRect(index);
    if (index % 2 == 1) painter.fillRect(line, palette().color(QPalette::AlternateBase));
    const double left = kLadderMargin + labelWidth(), right = width() - kLadderMargin - remarkWidth();
    const double each = std::min(kWidestLayer, (right - left) / columns_);
    painter.setPen(palette().color(QPalette::WindowText));
    const QRectF label(line.left() + 4, line.top(), labelWidth() - 8, line.height());
    painter.drawText(
        label, Qt::AlignVCenter | Qt::TextSingleLine,
        painter.fontMetrics().elidedText(row.label, Qt::ElideMiddle, static_cast<int>(label.width())));
    const QRectF lane(left, line.top() + 2, each * columns_, line.height() - 4);
    painter.setPen(QPen(gridColor(), 1));
    painter.drawLine(QPointF(lane.left(), lane.center().y()), QPointF(lane.right(), lane.center().y()));
    // Neighboring columns are one tile where a tile of their own would be too small to see.
    const auto& columns = layer.columns;
    for (size_t i = 0; i < columns.size();) {
        size_t end = i + 1;
        while (each < 8 && end < columns.size() && columns[end] == columns[end - 1] + 1)
            ++end;
        const double gap = each >= 8 ? 1 : 0;
        const QRectF tile(left + columns[i] * each + gap, lane.top(),
                          std::max(2.0, (columns[end - 1] + 1 - columns[i]) * each - 2 * gap), lane.height());
        const QColor color =
            row.odd ? healthColor(Health::overlap) : softened(categoryColor(columns[i] % 6), 0.75);
        paintTile(painter, tile, exclusive_ ? color : softened(categoryColor(4), 0.9));
        if (row.odd && tile.width() >= 6)
            painter.fillRect(tile.adjusted(1, 1, -1, -1), QBrush(QColor(0, 0, 0, 150), Qt::BDiagPattern));
        i = end;
    }
    if (row.remark.isEmpty()) return;
    const Health health = row.odd ? (layer.columns.empty() ? Health::gap : Health::overlap) : layer.health;
    const QRectF mark(right + 8, line.center().y() - 7, 14, 14);
    paintHealth(painter, mark, health);
    painter.setPen(palette().color(QPalette::WindowText));
    const QRectF remark(mark.right() + 5, line.top(), line.right() - mark.right() - 5, line.height());
    painter.drawText(
        remark, Qt::AlignVCenter | Qt::TextSingleLine,
        painter.fontMetrics().elidedText(row.remark, Qt::ElideRight, static_cast<int>(remark.width())));
}

QString LayerLadder::emptyText() const {
    return rows_.empty() || columns_ == 0 ? tr("No module is a numbered layer.") : QString();
}

QString LayerLadder::textAt(const QPointF& position) const {
    const int row = rowAt(position.toPoint());
    return row >= 0 ? rowText(row) : QString();
}

void LayerLadder::paint(QPainter& painter, const QRect& exposed) {
    paintHeader(painter);
    for (int row = 0; row < static_cast<int>(rows_.size()); ++row) {
        if (rowRect(row).intersects(exposed)) paintRow(painter, row);
    }
    for (int row = 0; row < static_cast<int>(rows_.size()); ++row) {
        const Row& r = rows_[static_cast<size_t>(row)];
        const bool chosen = std::any_of(layers_.begin() + static_cast<std::ptrdiff_t>(r.first),
                                        layers_.begin() + static_cast<std::ptrdiff_t>(r.end),
                                        [&](const Layer& layer) { return layer.name == selected_; });
        if (chosen || (hasFocus() && row == current_)) paintSelectionFrame(painter, rowRect(row));
    }
}

void LayerLadder::choose(int row) {
    current_ = row;
    update();
    if (row < 0) return;
    describe(rowText(row));
    emit selected(layers_[rows_[static_cast<size_t>(row)].first].name);
}

bool LayerLadder::pressKey(int key) {
    const int count = static_cast<int>(rows_.size());
    const bool again = key == Qt::Key_Return || key == Qt::Key_Enter;
    const std::optional<int> row =
        again ? std::min(current_, count - 1) : itemByKey(key, current_, count, Qt::Vertical);
    if (row) choose(*row);
    return row.has_value();
}

void LayerLadder::mousePressEvent(QMouseEvent* event) {
    const int row = event->button() == Qt::LeftButton ? rowAt(event->pos()) : -1;
    if (row < 0) return QWidget::mousePressEvent(event);
    choose(row);
}

QSize LayerLadder::sizeHint() const {
    return {400, static_cast<int>(2 * kLadderMargin + headerHeight() +
                                  static_cast<double>(rows_.size()) * rowHeight()) +
                     1};
}
QSize LayerLadder::minimumSizeHint() const {
    return {220, std::max(60, sizeHint().height())};
}

}  // namespace shardscope::ui
