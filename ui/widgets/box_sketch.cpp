#include "ui/widgets/box_sketch.h"

#include <QPainter>
#include <algorithm>
#include <cmath>

#include "ui/models/texts.h"
#include "ui/widgets/painting.h"
#include "ui/widgets/theme.h"

namespace shardscope::ui {

namespace {
constexpr size_t kMostPieces = 4096;  // more cannot be told apart
constexpr double kSlimmest = 0.15;    // proportion below which the box is drawn thicker than it is
}  // namespace

BoxSketch::BoxSketch(QWidget* parent)
    : PaintedView(tr("Shards of the tensor"), {220, 130}, {120, 90}, parent) {
    setFocusPolicy(Qt::NoFocus);
}

void BoxSketch::showMessage(const QString& message) {
    message_ = message;
    pieces_.clear();
    dimensions_.clear();
    update();
}

void BoxSketch::show(const Catalog& catalog, TensorId tensor, const QString& message) {
    showMessage(message);
    if (tensor != kNone) {
        const DimSpan shape = catalog.shape(tensor);
        const int last = static_cast<int>(shape.size()) - 1;
        const int row = last > 0 ? last - 1 : -1;
        const auto length = [&](int d) {
            return d < 0 ? 1.0 : static_cast<double>(std::max<int64_t>(1, shape[static_cast<size_t>(d)]));
        };
        across_ = length(last);
        down_ = length(row);
        dimensions_ = toQString(formatDims(shape));
        for (ChunkId c = catalog.firstChunk(tensor);
             c < catalog.endChunk(tensor) && pieces_.size() < kMostPieces; ++c) {
            const ChunkInfo chunk = catalog.chunk(tensor, c);
            const auto at = [&](int d) {
                return d < 0 ? 0.0 : static_cast<double>(chunk.offsets[static_cast<size_t>(d)]);
            };
            const auto extent = [&](int d) {
                return d < 0 ? 1.0 : static_cast<double>(chunk.lengths[static_cast<size_t>(d)]);
            };
            QRectF share(at(last) / across_, at(row) / down_, extent(last) / across_, extent(row) / down_);
            if (chunk.flat) {
                // A stretch of the row-major order: from its first row to its last.
                const double whole = std::max(1.0, static_cast<double>(elementCount(chunk.lengths)));
                share.setTop(static_cast<double>(chunk.flat->start) / whole);
                share.setBottom(static_cast<double>(chunk.flat->stop) / whole);
                share.setLeft(0);
                share.setRight(1);
                if (row < 0) share = QRectF(share.top(), 0, share.height(), 1);
            }
            pieces_.push_back({share, chunk.rank});
        }
    }
    update();
}

QRectF BoxSketch::box() const {
    QRectF area = QRectF(rect()).adjusted(6, 6, -6, -fontMetrics().height() - 8);
    const double proportion = std::clamp(down_ / across_, kSlimmest, 1 / kSlimmest);
    double width = area.width(), height = width * proportion;
    if (height > area.height()) {
        height = area.height();
        width = height / proportion;
    }
    return {area.left() + (area.width() - width) / 2, area.top() + (area.height() - height) / 2, width,
            height};
}

void BoxSketch::paint(QPainter& painter, const QRect&) {
    if (pieces_.empty()) return;
    const QRectF area = box();
    painter.fillRect(area, unreadBrush());
    for (const Piece& piece : pieces_) {
        const QRectF rect(area.left() + piece.share.left() * area.width(),
                          area.top() + piece.share.top() * area.height(), piece.share.width() * area.width(),
                          piece.share.height() * area.height());
        const QColor color =
            piece.rank == kNone ? softened(faintTextColor(), 0.4) : softened(rankColor(piece.rank), 0.75);
        paintTile(painter, rect, color);
        if (piece.rank != kNone) paintTileLabel(painter, rect, QString::number(piece.rank), color);
    }
    painter.setPen(QPen(outlineColor(), 1));
    painter.setBrush(Qt::NoBrush);
    painter.drawRect(area);
    painter.setPen(faintTextColor());
    painter.drawText(QRectF(rect()).adjusted(6, 0, -6, -3), Qt::AlignHCenter | Qt::AlignBottom, dimensions_);
}

QString BoxSketch::textAt(const QPointF& position) const {
    const QRectF area = box();
    const QPointF at((position.x() - area.left()) / area.width(),
                     (position.y() - area.top()) / area.height());
    QStringList ranks;
    for (const Piece& piece : pieces_) {
        if (piece.share.contains(at) && ranks.size() < 12)
            ranks += piece.rank == kNone ? tr("no rank") : tr("rank %1").arg(piece.rank);
    }
    return ranks.join(QStringLiteral(", "));
}
}  // namespace shardscope::ui
