#include "ui/widgets/byte_strip.h"

#include <QPainter>
#include <QWheelEvent>
#include <algorithm>
#include <cmath>

#include "ui/models/texts.h"
#include "ui/widgets/painting.h"
#include "ui/widgets/theme.h"

namespace shardscope::ui {

namespace {

constexpr double kStripMargin = 4;
constexpr double kStripHeight = 44;
constexpr double kOverviewHeight = 10;
constexpr double kStripGap = 6;
constexpr double kZoomStep = 1.25;
constexpr double kLeastView = 64;  // bytes over the whole width
constexpr double kDragThreshold = 4;

}  // namespace

ByteStrip::ByteStrip(QWidget* parent) : PaintedView(tr("Bytes of the file"), {}, {}, parent) {
    setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Fixed);
}

void ByteStrip::setPieces(std::vector<BytePiece> pieces, uint64_t end, std::function<QString(int)> text,
                          std::function<QString(int)> label) {
    pieces_ = std::move(pieces);
    text_ = std::move(text);
    label_ = std::move(label);
    total_ = end;
    current_ = -1;
    look(0, whole());
}

double ByteStrip::whole() const {
    return static_cast<double>(std::max<uint64_t>(1, total_));
}

// At as many bytes, from there on as far as the file goes.
void ByteStrip::look(double begin, double length) {
    length = std::clamp(length, std::min(whole(), kLeastView), whole());
    begin_ = std::clamp(begin, 0.0, whole() - length);
    end_ = begin_ + length;
    update();
    emit viewChanged();
}

void ByteStrip::setMessage(const QString& text) {
    message_ = text;
    setAccessibleDescription(text);
    update();
}

void ByteStrip::setSelectedChunk(ChunkId chunk) {
    // A chunk that is cut off has two pieces; the one that was chosen stays.
    if (current_ >= 0 && chunk != kNone && pieces_[static_cast<size_t>(current_)].chunk == chunk) return;
    const auto it = std::find_if(pieces_.begin(), pieces_.end(),
                                 [&](const BytePiece& p) { return chunk != kNone && p.chunk == chunk; });
    const int piece = it == pieces_.end() ? -1 : static_cast<int>(it - pieces_.begin());
    if (piece == current_) return;
    current_ = piece;
    update();
}

QRectF ByteStrip::strip() const {
    return {kStripMargin, kStripMargin, width() - 2 * kStripMargin, kStripHeight};
}
QRectF ByteStrip::overview() const {
    return {kStripMargin, kStripMargin + kStripHeight + kStripGap + fontMetrics().height() + 4,
            width() - 2 * kStripMargin, kOverviewHeight};
}
double ByteStrip::xOf(double byte) const {
    const QRectF area = strip();
    return area.left() + (byte - begin_) / (end_ - begin_) * area.width();
}
double ByteStrip::byteAt(double x) const {
    const QRectF area = strip();
    return begin_ + (x - area.left()) / area.width() * (end_ - begin_);
}

QRectF ByteStrip::pieceRect(int index) const {
    if (index < 0 || index >= static_cast<int>(pieces_.size())) return {};
    const BytePiece& piece = pieces_[static_cast<size_t>(index)];
    const double x0 = std::max(strip().left(), xOf(static_cast<double>(piece.offset)));
    const double x1 = std::min(strip().right(), xOf(static_cast<double>(piece.offset + piece.length)));
    return {x0, strip().top(), std::max(0.0, x1 - x0), strip().height()};
}

int ByteStrip::pieceAt(const QPointF& at) const {
    if (pieces_.empty() || !strip().contains(at)) return -1;
    const double byte = byteAt(at.x());
    auto it = std::upper_bound(pieces_.begin(), pieces_.end(), byte, [](double b, const BytePiece& p) {
        return b < static_cast<double>(p.offset);
    });
    if (it == pieces_.begin()) return -1;
    --it;
    return byte < static_cast<double>(it->offset + it->length) ? static_cast<int>(it - pieces_.begin()) : -1;
}

void ByteStrip::showRange(uint64_t begin, uint64_t end) {
    look(static_cast<double>(begin), static_cast<double>(end) - static_cast<double>(begin));
}

void ByteStrip::zoom(double factor, double at) {
    const double length = std::clamp((end_ - begin_) / factor, std::min(whole(), kLeastView), whole());
    look(at - (at - begin_) / (end_ - begin_) * length, length);
}

void ByteStrip::paintPiece(QPainter& painter, const QRectF& rect, const BytePiece& piece, int index) const {
    switch (piece.kind) {
        case BytePiece::Kind::chunk:
        case BytePiece::Kind::object:
        case BytePiece::Kind::metadata: {
            const QColor color =
                piece.kind == BytePiece::Kind::chunk ? piece.color : softened(faintTextColor(), 0.5);
            paintTile(painter, rect, color);
            if (index >= 0 && label_) paintTileLabel(painter, rect, label_(index), color);
            break;
        }
        case BytePiece::Kind::dead:
            painter.fillRect(rect, surfaceColor());
            painter.fillRect(rect, QBrush(faintTextColor(), Qt::BDiagPattern));
            if (rect.width() >= 6) {
                painter.setPen(QPen(outlineColor(), 1));
                painter.drawRect(rect.adjusted(0.5, 0.5, -0.5, -0.5));
            }
            break;
        case BytePiece::Kind::missing:
            paintHealth(painter, rect, Health::missing);
            break;
    }
}

// A stretch of the file; pieces thinner than a pixel are painted together, the most serious of them on top.
void ByteStrip::paintPieces(QPainter& painter, const QRectF& area, double begin, double end,
                            bool labels) const {
    const double scale = area.width() / (end - begin);
    auto it = std::lower_bound(pieces_.begin(), pieces_.end(), begin, [](const BytePiece& p, double b) {
        return static_cast<double>(p.offset + p.length) <= b;
    });
    BytePiece::Kind pixelKind = BytePiece::Kind::chunk;
    int pixel = -1;
    for (; it != pieces_.end() && static_cast<double>(it->offset) < end; ++it) {
        const double x0 =
            std::max(area.left(), area.left() + (static_cast<double>(it->offset) - begin) * scale);
        const double x1 = std::min(
            area.right(), area.left() + (static_cast<double>(it->offset + it->length) - begin) * scale);
        if (x1 - x0 < 1) {
            const int at = static_cast<int>(x0);
            if (at == pixel && it->kind <= pixelKind) continue;
            pixel = at;
            pixelKind = it->kind;
            const QColor color = it->kind == BytePiece::Kind::missing ? healthColor(Health::missing)
                                 : it->kind == BytePiece::Kind::chunk ? it->color
                                                                      : faintTextColor();
            painter.fillRect(QRectF(at, area.top(), 1, area.height()), color);
            continue;
        }
        paintPiece(painter, QRectF(x0, area.top(), x1 - x0, area.height()), *it,
                   labels ? static_cast<int>(it - pieces_.begin()) : -1);
    }
}

void ByteStrip::paintAxis(QPainter& painter) const {
    const QRectF area = strip();
    const QRectF line(area.left(), area.bottom() + 2, area.width(), fontMetrics().height() + 4);
    painter.setPen(faintTextColor());
    const QString left = tr("byte %1").arg(numberText(static_cast<uint64_t>(begin_)));
    const QString right = numberText(static_cast<uint64_t>(end_));
    painter.drawText(line, Qt::AlignLeft | Qt::AlignVCenter, left);
    painter.drawText(line, Qt::AlignRight | Qt::AlignVCenter, right);
    const QString middle = tr("%1 in sight").arg(sizeText(static_cast<uint64_t>(end_ - begin_)));
    if (fontMetrics().horizontalAdvance(left + middle + right) + 40 < line.width())
        painter.drawText(line, Qt::AlignCenter, middle);
}

QString ByteStrip::textAt(const QPointF& position) const {
    const int piece = pieceAt(position);
    return piece >= 0 && text_ ? text_(piece) : QString();
}

void ByteStrip::paint(QPainter& painter, const QRect&) {
    if (pieces_.empty()) return;
    paintPieces(painter, strip(), begin_, end_, true);
    paintAxis(painter);
    const QRectF all = overview();
    paintPieces(painter, all, 0, whole(), false);
    const QRectF view(all.left() + begin_ / whole() * all.width(), all.top() - 2,
                      std::max(4.0, (end_ - begin_) / whole() * all.width()), all.height() + 4);
    painter.setPen(QPen(palette().color(QPalette::WindowText), 1.5));
    painter.setBrush(Qt::NoBrush);
    painter.drawRect(view);
    if (current_ >= 0) {
        QRectF mark = pieceRect(current_);
        const BytePiece& piece = pieces_[static_cast<size_t>(current_)];
        const bool inSight =
            static_cast<double>(piece.offset)<end_&& static_cast<double>(piece.offset + piece.length)> begin_;
        if (inSight) {
            if (mark.width() < 6) mark = QRectF(mark.center().x() - 3, mark.top(), 6, mark.height());
            paintSelectionFrame(painter, mark);
        }
    }
}

void ByteStrip::choose(int piece) {
    if (piece < 0 || piece >= static_cast<int>(pieces_.size())) return;
    current_ = piece;
    const BytePiece& p = pieces_[static_cast<size_t>(piece)];
    const auto from = static_cast<double>(p.offset), to = static_cast<double>(p.offset + p.length);
    if (from < begin_ || to > end_) {
        // Moves the view just as far as needed; a piece that is larger than the view shows its beginning.
        const double length = end_ - begin_;
        const double begin = from < begin_ || to - from > length ? from : to - length;
        showRange(static_cast<uint64_t>(begin), static_cast<uint64_t>(begin + length));
    }
    if (text_) describe(text_(piece));
    update();
    emit selected(piece);
}

void ByteStrip::mousePressEvent(QMouseEvent* event) {
    if (event->button() != Qt::LeftButton || pieces_.empty()) return QWidget::mousePressEvent(event);
    dragFrom_ = event->position().x();
    dragBegin_ = begin_;
    dragged_ = false;
    if (event->position().y() >= overview().top() - kStripGap) {
        const double length = end_ - begin_;
        look((dragFrom_ - overview().left()) / overview().width() * whole() - length / 2, length);
        dragFrom_ = -1;
        dragged_ = true;
    }
}

void ByteStrip::mouseMoveEvent(QMouseEvent* event) {
    if (dragFrom_ < 0 || !(event->buttons() & Qt::LeftButton)) return;
    const double moved = event->position().x() - dragFrom_;
    if (!dragged_ && std::abs(moved) < kDragThreshold) return;
    dragged_ = true;
    look(dragBegin_ - moved / strip().width() * (end_ - begin_), end_ - begin_);
}

void ByteStrip::mouseReleaseEvent(QMouseEvent* event) {
    if (event->button() == Qt::LeftButton && !dragged_) choose(pieceAt(event->position()));
    dragFrom_ = -1;
    dragged_ = false;
}

void ByteStrip::mouseDoubleClickEvent(QMouseEvent* event) {
    const int piece = pieceAt(event->position());
    if (piece < 0) return;
    const BytePiece& p = pieces_[static_cast<size_t>(piece)];
    showRange(p.offset, p.offset + p.length);
}

void ByteStrip::wheelEvent(QWheelEvent* event) {
    if (pieces_.empty()) return QWidget::wheelEvent(event);
    const double steps = event->angleDelta().y() / 120.0;
    zoom(std::pow(kZoomStep, steps), byteAt(event->position().x()));
    event->accept();
}

bool ByteStrip::pressKey(int key) {
    if (const auto piece = itemByKey(key, current_, static_cast<int>(pieces_.size()))) {
        choose(*piece);
        return true;
    }
    switch (key) {
        case Qt::Key_Plus:
        case Qt::Key_Equal:
            zoom(kZoomStep, (begin_ + end_) / 2);
            return true;
        case Qt::Key_Minus:
            zoom(1 / kZoomStep, (begin_ + end_) / 2);
            return true;
        case Qt::Key_0:
            showAll();
            return true;
        case Qt::Key_Return:
        case Qt::Key_Enter:
            if (current_ >= 0) {
                const BytePiece& p = pieces_[static_cast<size_t>(current_)];
                showRange(p.offset, p.offset + p.length);
            }
            return true;
        default:
            return false;
    }
}

QSize ByteStrip::sizeHint() const {
    return {600, static_cast<int>(overview().bottom() + kStripMargin + 2)};
}
QSize ByteStrip::minimumSizeHint() const {
    return {240, sizeHint().height()};
}

}  // namespace shardscope::ui
