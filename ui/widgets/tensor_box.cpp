#include "ui/widgets/tensor_box.h"

#include <QMouseEvent>
#include <QPainter>
#include <algorithm>
#include <cmath>

#include "ui/models/texts.h"
#include "ui/widgets/painting.h"
#include "ui/widgets/theme.h"

namespace shardscope::ui {

namespace {

constexpr size_t kPainted = 3000;   // more shapes than that are painted once, as a picture
constexpr size_t kMostEdges = 128;  // more cuts than that have no numbers
constexpr double kThinnest = 28;    // the shorter side of a box is at least so long
constexpr double kBand = 64;        // the side of a box that has no dimension along it
constexpr double kOutlinedShape = 6;
constexpr int kDepth = 3;      // pixels from one copy to the next
constexpr int kMostDepth = 3;  // copies that are drawn behind the first

QColor fillOf(uint32_t rank) {
    return softened(rankColor(rank == kNone ? 0 : rank), 0.72);
}

}  // namespace

TensorBox::TensorBox(QWidget* parent) : PaintedView(tr("Box of the tensor"), {560, 320}, {220, 120}, parent) {
    describeCurrent();
}

void TensorBox::setScene(std::shared_ptr<const BoxScene> scene) {
    scene_ = std::move(scene);
    ghosts_.clear();
    acrossEdges_.clear();
    downEdges_.clear();
    overlapShapes_ = false;
    if (scene_) {
        for (const BoxShape& shape : scene_->shapes) {
            overlapShapes_ = overlapShapes_ || shape.kind == BoxShape::Kind::overlap;
            if (shape.kind != BoxShape::Kind::chunk) continue;
            for (const int64_t edge : {shape.left, shape.right})
                acrossEdges_.push_back(edge);
            for (const int64_t edge : {shape.top, shape.bottom})
                downEdges_.push_back(edge);
        }
        const auto unique = [](std::vector<int64_t>& edges, int64_t length) {
            edges.push_back(0);
            edges.push_back(length);
            std::sort(edges.begin(), edges.end());
            edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
            if (edges.size() > kMostEdges) edges = {0, length};
        };
        unique(acrossEdges_, scene_->width);
        unique(downEdges_, scene_->height);
    }
    selectedShape_ = scene_ && selected_ != kNone ? scene_->shapeOf(selected_) : SIZE_MAX;
    measure();
    describeCurrent();
}

void TensorBox::setGhosts(std::vector<BoxShape> ghosts, std::vector<QString> labels) {
    ghosts_ = std::move(ghosts);
    ghostLabels_ = std::move(labels);
    update();
}

void TensorBox::setLogProportion(bool on) {
    logProportion_ = on;
    measure();
}

void TensorBox::setSelectedChunk(ChunkId chunk) {
    selected_ = chunk;
    selectedShape_ = scene_ && chunk != kNone ? scene_->shapeOf(chunk) : SIZE_MAX;
    describeCurrent();
    update();
}

// ------------------------------------------------------------------ geometry

double TensorBox::aspect() const {
    if (logProportion_)
        return std::log2(static_cast<double>(scene_->width) + 1) /
               std::log2(static_cast<double>(scene_->height) + 1);
    return static_cast<double>(scene_->width) / static_cast<double>(scene_->height);
}

void TensorBox::measure() {
    picture_ = {};
    box_ = {};
    inProportion_ = true;
    update();
    if (!scene_) return;
    const QFontMetrics metrics = fontMetrics();
    const int left = scene_->view.down < 0
                         ? 16
                         : metrics.horizontalAdvance(QString::number(scene_->height)) + metrics.height() + 16;
    const int above = scene_->view.across < 0 ? 16 : 2 * metrics.height() + 12;
    const int right = 18 + metrics.horizontalAdvance(QString::number(scene_->width)) / 2;
    const QRectF room = QRectF(rect()).adjusted(left, above, -right, -14);
    if (room.width() < kThinnest || room.height() < kThinnest) return;
    const double ratio = aspect();
    QSizeF size(room.width(), room.width() / ratio);
    if (size.height() > room.height()) size = {room.height() * ratio, room.height()};
    if (scene_->view.down < 0 || scene_->view.across < 0) {
        // One dimension: its other side means nothing and is drawn as wide as a label needs.
        const double band =
            std::clamp((scene_->view.down < 0 ? room.height() : room.width()) / 4, kThinnest, kBand);
        size = scene_->view.down < 0 && scene_->view.across < 0 ? QSizeF(kBand, kBand)
               : scene_->view.down < 0                          ? QSizeF(room.width(), band)
                                                                : QSizeF(band, room.height());
    } else if (size.height() < kThinnest || size.width() < kThinnest) {
        inProportion_ = false;
        size = size.expandedTo(
            QSizeF(std::min(kThinnest * 2, room.width()), std::min(kThinnest * 2, room.height())));
    }
    box_ = QRectF(QPointF(room.left() + (room.width() - size.width()) / 2, room.top()), size.toSize());
}

bool TensorBox::inProportion() const {
    return inProportion_ && !logProportion_;
}

QRectF TensorBox::boxRect() const {
    return box_;
}

QRectF TensorBox::shapeRect(const BoxShape& shape) const {
    const auto edge = [](double from, double length, int64_t at, int64_t of) {
        return std::round(from + length * static_cast<double>(at) / static_cast<double>(of));
    };
    const double left = edge(box_.left(), box_.width(), shape.left, scene_->width);
    const double top = edge(box_.top(), box_.height(), shape.top, scene_->height);
    return {left, top, std::max(1.0, edge(box_.left(), box_.width(), shape.right, scene_->width) - left),
            std::max(1.0, edge(box_.top(), box_.height(), shape.bottom, scene_->height) - top)};
}

const BoxShape* TensorBox::shapeAt(const QPointF& position) const {
    if (!scene_ || box_.isEmpty()) return nullptr;
    for (size_t i = scene_->shapes.size(); i-- > 0;) {
        if (shapeRect(scene_->shapes[i]).contains(position)) return &scene_->shapes[i];
    }
    return nullptr;
}

void TensorBox::resizeEvent(QResizeEvent* event) {
    QWidget::resizeEvent(event);
    measure();
}

// ------------------------------------------------------------------ words

QString TensorBox::rankText(uint32_t rank) const {
    if (rank == kNone) return tr("no rank");
    const auto& mesh = scene_->facts ? scene_->facts->mesh : std::nullopt;
    const QString place = toQString(rankLabel(mesh, rank));
    const QString number = tr("rank %1").arg(rank);
    return place == number ? number : QStringLiteral("%1 (%2)").arg(number, place);
}

QString TensorBox::shapeText(const BoxShape& shape) const {
    const auto box = [&] {
        return shape.kind == BoxShape::Kind::gap || shape.kind == BoxShape::Kind::overlap
                   ? QStringLiteral("[%1:%2, %3:%4]")
                         .arg(shape.top)
                         .arg(shape.bottom)
                         .arg(shape.left)
                         .arg(shape.right)
                   : QString();
    };
    if (shape.kind == BoxShape::Kind::gap) return tr("No chunk holds %1.").arg(box());
    const Catalog& catalog = scene_->checkpoint->catalog();
    QStringList lines;
    if (shape.kind == BoxShape::Kind::overlap) lines += tr("Two chunks claim %1:").arg(box());
    if (shape.kind == BoxShape::Kind::chunk && shape.count > 1)
        lines += shape.replicas ? tr("%1 replicas of the same part:").arg(numberText(shape.count))
                                : tr("%1 chunks, one behind the other:").arg(numberText(shape.count));
    constexpr uint32_t kMostLines = 8;
    for (uint32_t i = 0; i < shape.count; ++i) {
        if (i == kMostLines) {
            lines += tr("and %1 more").arg(numberText(shape.count - i));
            break;
        }
        const ChunkInfo chunk = catalog.chunk(scene_->tensor, scene_->members[shape.first + i]);
        QString line = QStringLiteral("%1: %2, %3")
                           .arg(rankText(chunk.rank), toQString(chunkText(chunk)), sizeText(chunk.length));
        if (chunk.file != kNone)
            line += tr(", %1 at byte %2")
                        .arg(toQString(catalog.files()[chunk.file].path), numberText(chunk.offset));
        if (scene_->facts && scene_->facts->chunkHealth[chunk.id] != Health::ok)
            line += QStringLiteral(" – ") + toQString(chunkStateText(*scene_->facts, catalog, chunk.id));
        // How many, where a validation has read the values.
        if (const std::string note = scene_->facts ? scene_->facts->noteOf(chunk.id) : std::string();
            !note.empty())
            line += QStringLiteral(": ") + toQString(note);
        lines += line;
    }
    return lines.join('\n');
}

void TensorBox::describeCurrent() {
    QString text = tr("nothing to show");
    if (scene_) {
        if (selectedShape_ < scene_->shapes.size()) {
            text = shapeText(scene_->shapes[selectedShape_]);
        } else {
            size_t gaps = 0;
            for (const BoxShape& shape : scene_->shapes)
                gaps += shape.kind == BoxShape::Kind::gap;
            text = tr("%1, %2; arrow keys move from part to part")
                       .arg(countedText(scene_->shapes.size() - gaps, tr("1 part"), tr("%1 parts")),
                            countedText(gaps, tr("1 gap"), tr("%1 gaps")));
        }
    }
    describe(text);
}

QString TensorBox::textAt(const QPointF& position) const {
    const BoxShape* shape = shapeAt(position);
    return shape ? shapeText(*shape) : QString();
}

// ------------------------------------------------------------------ mouse and keys

void TensorBox::take(ChunkId chunk) {
    setSelectedChunk(chunk);
    if (chunk != kNone) emit chunkClicked(chunk);
}

void TensorBox::mousePressEvent(QMouseEvent* event) {
    const BoxShape* shape = shapeAt(event->position());
    if (!shape || shape->count == 0) return;
    const auto begin = scene_->members.begin() + shape->first;
    const auto end = begin + shape->count;
    const auto at = std::find(begin, end, selected_);
    // Another click on a pile goes down in it; the menu is for what is selected.
    if (at != end && event->button() == Qt::RightButton) return;
    take(at == end || at + 1 == end ? *begin : *(at + 1));
}

void TensorBox::mouseDoubleClickEvent(QMouseEvent* event) {
    const BoxShape* shape = shapeAt(event->position());
    if (shape && shape->count > 0 && selected_ != kNone) emit chunkActivated(selected_);
}

void TensorBox::goTo(int dx, int dy) {
    const auto& shapes = scene_->shapes;
    size_t chunks = 0;
    while (chunks < shapes.size() && shapes[chunks].kind == BoxShape::Kind::chunk)
        ++chunks;
    if (chunks == 0) return;
    if (selectedShape_ >= chunks) {
        take(scene_->members[shapes[0].first]);
        return;
    }
    const QPointF from = shapeRect(shapes[selectedShape_]).center();
    size_t best = chunks;
    double least = 1e300;
    for (size_t i = 0; i < chunks; ++i) {
        const QPointF way = shapeRect(shapes[i]).center() - from;
        const double along = way.x() * dx + way.y() * dy,
                     aside = std::abs(way.x() * dy) + std::abs(way.y() * dx);
        if (along <= 0.5 || i == selectedShape_) continue;
        const double cost = along + 3 * aside;
        if (cost < least) {
            least = cost;
            best = i;
        }
    }
    if (best < chunks) take(scene_->members[shapes[best].first]);
}

void TensorBox::cycle(int step) {
    if (selectedShape_ >= scene_->shapes.size()) return;
    const BoxShape& shape = scene_->shapes[selectedShape_];
    for (uint32_t i = 0; i < shape.count; ++i) {
        if (scene_->members[shape.first + i] != selected_) continue;
        const uint32_t next = (i + shape.count + static_cast<uint32_t>(step)) % shape.count;
        take(scene_->members[shape.first + next]);
        return;
    }
}

bool TensorBox::pressKey(int key) {
    if (!scene_ || scene_->members.empty()) return false;
    if (const auto step = stepByKey(key)) {
        goTo(step->x(), step->y());
        return true;
    }
    switch (key) {
        case Qt::Key_PageDown:
            cycle(1);
            break;
        case Qt::Key_PageUp:
            cycle(-1);
            break;
        case Qt::Key_Home:
            take(scene_->members.front());
            break;
        case Qt::Key_End:
            take(scene_->members.back());
            break;
        case Qt::Key_Return:
        case Qt::Key_Enter:
            if (selected_ != kNone) emit chunkActivated(selected_);
            break;
        default:
            return false;
    }
    return true;
}

void TensorBox::changeEvent(QEvent* event) {
    QWidget::changeEvent(event);
    if (event->type() == QEvent::PaletteChange || event->type() == QEvent::FontChange) measure();
}

// ------------------------------------------------------------------ painting

void TensorBox::paintLabel(QPainter& painter, const QRectF& rect, const BoxShape& shape) const {
    const QFontMetricsF metrics(font());
    QRectF inside = rect.adjusted(3, 1, -3, -1);
    if (inside.height() < metrics.height()) return;
    // What others claim, too, is drawn over it: the words stand in the largest part beside that.
    for (size_t i = 0; shape.health == Health::overlap && i < scene_->shapes.size(); ++i) {
        if (scene_->shapes[i].kind != BoxShape::Kind::overlap) continue;
        const QRectF over = shapeRect(scene_->shapes[i]);
        if (!over.intersects(inside)) continue;
        const QRectF beside[] = {{inside.topLeft(), QPointF(inside.right(), over.top())},
                                 {QPointF(inside.left(), over.bottom()), inside.bottomRight()},
                                 {inside.topLeft(), QPointF(over.left(), inside.bottom())},
                                 {QPointF(over.right(), inside.top()), inside.bottomRight()}};
        inside =
            *std::max_element(std::begin(beside), std::end(beside), [](const QRectF& a, const QRectF& b) {
                const auto area = [](const QRectF& r) {
                    return std::max(0.0, r.width()) * std::max(0.0, r.height());
                };
                return area(a) < area(b);
            });
    }
    if (inside.height() < metrics.height() || inside.width() < metrics.horizontalAdvance(QLatin1Char('0')))
        return;
    const auto& mesh = scene_->facts ? scene_->facts->mesh : std::nullopt;
    const QString number = shape.rank == kNone ? QString() : QString::number(shape.rank);
    const QString full = shape.rank == kNone ? QString() : tr("rank %1").arg(shape.rank);
    const QString place = shape.rank == kNone || !mesh ? QString() : toQString(rankLabel(mesh, shape.rank));
    painter.setPen(textOn(fillOf(shape.rank)));
    const auto fits = [&](const QString& text) { return metrics.horizontalAdvance(text) <= inside.width(); };
    const QString first = fits(full) ? full : fits(number) ? number : QString();
    if (first.isEmpty()) return;
    if (!ghosts_.empty())
        painter.drawText(inside.adjusted(2, 3, 0, 0), Qt::AlignTop | Qt::AlignLeft,
                         first);  // out of the way of the target's labels
    else if (inside.height() >= 2 * metrics.height() && fits(place) && place != full && !place.isEmpty())
        painter.drawText(inside, Qt::AlignCenter, first + '\n' + place);
    else
        painter.drawText(inside, Qt::AlignCenter, first);
}

void TensorBox::paintShape(QPainter& painter, const BoxShape& shape) const {
    const QRectF rect = shapeRect(shape);
    const bool outlined = rect.width() >= kOutlinedShape && rect.height() >= kOutlinedShape;
    if (shape.kind != BoxShape::Kind::chunk) {
        paintHealth(painter, rect, shape.health);
        return;
    }
    QRectF tile = rect;
    if (shape.count > 1 && rect.width() > 20 && rect.height() > 20) {
        painter.fillRect(rect, surfaceColor());
        const int behind = std::min<int>(kMostDepth, static_cast<int>(shape.count) - 1);
        tile.adjust(0, behind * kDepth, -behind * kDepth, 0);
        for (int i = behind; i > 0; --i) {
            const QRectF shadow = tile.translated(i * kDepth, -i * kDepth);
            painter.fillRect(shadow, softened(rankColor(shape.rank == kNone ? 0 : shape.rank), 0.45));
            painter.setPen(outlineColor());
            painter.setBrush(Qt::NoBrush);
            painter.drawRect(shadow.adjusted(0.5, 0.5, -0.5, -0.5));
        }
    }
    painter.fillRect(tile, fillOf(shape.rank));
    QRectF label = tile;
    const bool marked = shape.health != Health::overlap || !overlapShapes_;  // those are shapes of their own
    if (marked && shape.health > Health::unread) {
        // The state as a band along the upper edge, so that the rank's color stays.
        const double band = std::min(tile.height(), std::clamp(tile.height() / 5, 14.0, 30.0));
        paintHealth(painter, QRectF(tile.left(), tile.top(), tile.width(), band), shape.health);
        label.setTop(tile.top() + band);
    }
    if (outlined) {
        painter.setPen(outlineColor());
        painter.setBrush(Qt::NoBrush);
        painter.drawRect(tile.adjusted(0.5, 0.5, -0.5, -0.5));
    }
    paintLabel(painter, label, shape);
    if (shape.count > 1 && tile.width() >= 34 && tile.height() >= 30) {
        const QString badge = QStringLiteral("×%1").arg(shape.count);
        QRectF plate(0, 0, fontMetrics().horizontalAdvance(badge) + 8, fontMetrics().height());
        plate.moveTopRight(tile.topRight() + QPointF(-2, 2));
        painter.fillRect(plate, surfaceColor());
        painter.setPen(QPen(outlineColor(), 1, shape.replicas ? Qt::SolidLine : Qt::DotLine));
        painter.drawRect(plate);
        painter.setPen(palette().color(QPalette::Text));
        painter.drawText(plate, Qt::AlignCenter, badge);
    }
}

// Very many chunks: one picture, filled without a painter where they have no outline.
void TensorBox::paintPicture(QPainter& painter) {
    const double ratio = devicePixelRatioF();
    const QSize size = (box_.size() * ratio).toSize();
    if (picture_.size() != size) {
        picture_ = QImage(size, QImage::Format_RGB32);
        picture_.fill(surfaceColor());
        std::vector<size_t> outlined;
        for (size_t i = 0; i < scene_->shapes.size(); ++i) {
            const BoxShape& shape = scene_->shapes[i];
            const auto pixel = [](int64_t at, int64_t of, int length) {
                return static_cast<int>(static_cast<double>(at) / static_cast<double>(of) * length);
            };
            const int left = std::min(size.width() - 1, pixel(shape.left, scene_->width, size.width()));
            const int top = std::min(size.height() - 1, pixel(shape.top, scene_->height, size.height()));
            const int right = std::max(left + 1, pixel(shape.right, scene_->width, size.width()));
            const int bottom = std::max(top + 1, pixel(shape.bottom, scene_->height, size.height()));
            const bool sound = shape.kind == BoxShape::Kind::chunk && shape.health == Health::ok;
            if (std::min(right - left, bottom - top) >= kOutlinedShape * ratio ||
                shape.kind != BoxShape::Kind::chunk)
                outlined.push_back(i);
            const QRgb color = (sound ? fillOf(shape.rank) : healthColor(shape.health)).rgb();
            for (int y = top; y < bottom; ++y) {
                auto* line = reinterpret_cast<QRgb*>(picture_.scanLine(y));
                std::fill(line + left, line + right, color);
            }
        }
        picture_.setDevicePixelRatio(ratio);
        QPainter over(&picture_);
        over.translate(-box_.topLeft());
        over.setFont(font());
        for (const size_t i : outlined)
            paintShape(over, scene_->shapes[i]);
    }
    painter.drawImage(box_.topLeft(), picture_);
}

void TensorBox::paintAxes(QPainter& painter) const {
    const QFontMetricsF metrics(font());
    const double line = metrics.height();
    const auto number = [](int64_t at) { return QString::number(at); };
    if (scene_->view.across >= 0) {
        painter.setPen(palette().color(QPalette::Text));
        painter.drawText(QRectF(box_.left(), box_.top() - 2 * line - 8, std::max(box_.width(), 160.0), line),
                         Qt::AlignLeft, tr("dim %1: %2 →").arg(scene_->view.across).arg(scene_->width));
        painter.setPen(faintTextColor());
        double free = -1e9;
        for (const int64_t edge : acrossEdges_) {
            const double x =
                box_.left() + box_.width() * static_cast<double>(edge) / static_cast<double>(scene_->width);
            const double width = metrics.horizontalAdvance(number(edge));
            // The last number is always there, the others where there is room.
            const double last = box_.right() - metrics.horizontalAdvance(number(scene_->width)) / 2 - 6;
            if (x - width / 2 < free || (edge != scene_->width && x + width / 2 > last)) continue;
            painter.drawLine(QPointF(x, box_.top() - 4), QPointF(x, box_.top() - 1));
            painter.drawText(QRectF(x - width, box_.top() - 4 - line, 2 * width, line),
                             Qt::AlignHCenter | Qt::AlignBottom, number(edge));
            free = x + width / 2 + 6;
        }
    }
    if (scene_->view.down >= 0) {
        const double widest = metrics.horizontalAdvance(number(scene_->height));
        painter.save();
        painter.setPen(palette().color(QPalette::Text));
        painter.translate(box_.left() - widest - 10 - line, box_.top());
        painter.rotate(90);
        painter.drawText(QRectF(0, -line, std::max(box_.height(), 160.0), line),
                         Qt::AlignLeft | Qt::AlignVCenter,
                         tr("dim %1: %2 →").arg(scene_->view.down).arg(scene_->height));
        painter.restore();
        painter.setPen(faintTextColor());
        double free = -1e9;
        for (const int64_t edge : downEdges_) {
            const double y =
                box_.top() + box_.height() * static_cast<double>(edge) / static_cast<double>(scene_->height);
            if (y - line / 2 < free || (edge != scene_->height && y + line / 2 > box_.bottom() - line / 2))
                continue;
            painter.drawLine(QPointF(box_.left() - 4, y), QPointF(box_.left() - 1, y));
            painter.drawText(QRectF(box_.left() - 6 - widest - 4, y - line / 2, widest + 4, line),
                             Qt::AlignRight | Qt::AlignVCenter, number(edge));
            free = y + line / 2;
        }
    }
}

void TensorBox::paint(QPainter& painter, const QRect&) {
    if (scene_ && !box_.isEmpty()) {
        painter.fillRect(box_, unreadBrush());
        if (scene_->shapes.size() > kPainted) {
            paintPicture(painter);
        } else {
            for (const BoxShape& shape : scene_->shapes)
                paintShape(painter, shape);
        }
        painter.setPen(outlineColor());
        painter.setBrush(Qt::NoBrush);
        painter.drawRect(box_.adjusted(-0.5, -0.5, 0.5, 0.5));
        paintAxes(painter);
        for (size_t i = 0; i < ghosts_.size(); ++i) {
            const QRectF at = shapeRect(ghosts_[i]);
            painter.setBrush(Qt::NoBrush);
            painter.setPen(QPen(surfaceColor(), 3));
            painter.drawRect(at.adjusted(1, 1, -1, -1));
            painter.setPen(QPen(accentColor(), 2, Qt::DashLine));
            painter.drawRect(at.adjusted(1, 1, -1, -1));
            const QString label = i < ghostLabels_.size() ? ghostLabels_[i] : QString();
            QRectF plate(0, 0, fontMetrics().horizontalAdvance(label) + 8, fontMetrics().height());
            plate.moveBottomRight(at.bottomRight() - QPointF(3, 3));
            if (label.isEmpty() || plate.width() > at.width() - 4 || plate.height() > at.height() - 4)
                continue;
            painter.fillRect(plate, surfaceColor());
            painter.setPen(accentColor());
            painter.drawText(plate, Qt::AlignCenter, label);
        }
        // A flat range is several boxes: all of them are the selected chunk.
        for (const BoxShape& shape : scene_->shapes) {
            if (selected_ == kNone || selectedShape_ >= scene_->shapes.size()) break;
            const auto begin = scene_->members.begin() + shape.first;
            if (shape.kind == BoxShape::Kind::chunk &&
                std::find(begin, begin + shape.count, selected_) != begin + shape.count)
                paintSelectionFrame(painter, shapeRect(shape));
        }
    }
}

}  // namespace shardscope::ui
