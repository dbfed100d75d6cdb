// Mouse, wheel and keys of the placement map.
#include <QApplication>
#include <QContextMenuEvent>
#include <QHelpEvent>
#include <QKeyEvent>
#include <QMouseEvent>
#include <QScrollBar>
#include <QToolTip>
#include <QWheelEvent>
#include <algorithm>
#include <cmath>
#include <utility>

#include "ui/models/texts.h"
#include "ui/widgets/placement_map.h"

namespace shardscope::ui {

// ------------------------------------------------------------------ mouse

QString PlacementMap::tooltipAt(const QPoint& position) const {
    if (!matrix_) return {};
    if (const Cell cell = cellAt(position); cell.valid())
        return toQString(matrix_->cellText(cell.row, cell.column));
    const QRect grid = gridRect();
    if (position.y() < grid.top() && position.x() >= grid.left()) {
        if (position.x() > grid.right())
            return gapWidth() > 0 ? tr("Rows with elements that no rank holds") : QString();
        const int column = static_cast<int>((position.x() - columnLeft(0)) / cellWidth_);
        if (column < 0 || column >= static_cast<int>(matrix_->columnCount())) return {};
        QString text = toQString(matrix_->columnLabel(static_cast<uint32_t>(column)));
        if (matrix_->column(static_cast<uint32_t>(column)).fileMissing)
            text += tr(", a file of it is missing");
        return text;
    }
    const int row = static_cast<int>(rowAt(position.y()));
    if (position.y() >= grid.top() && row >= 0 && row < static_cast<int>(matrix_->rowCount())) {
        const MatrixRow& of = matrix_->row(static_cast<uint32_t>(row));
        if (const Span lanes = visibleLanes({row, row + 1});
            position.x() < laneWidth_ && lanes.begin < lanes.end)
            return toQString(matrix_->laneText(static_cast<uint32_t>(lanes.begin)));
        QString text = toQString(matrix_->rowLabel(static_cast<uint32_t>(row)));
        if (of.summary) return text;
        if (of.count > 1) text += tr(", %1 tensors placed alike").arg(numberText(of.count));
        text += QStringLiteral("\n") + toQString(dtypeName(matrix_->catalog().dtype(of.tensor))) +
                QStringLiteral(" ") + toQString(formatDims(matrix_->catalog().shape(of.tensor))) +
                QStringLiteral(", ") + toQString(cutText(matrix_->catalog(), of.tensor));
        return text;
    }
    return {};
}

bool PlacementMap::viewportEvent(QEvent* event) {
    if (event->type() == QEvent::ToolTip) {
        const auto* help = static_cast<QHelpEvent*>(event);
        const QString text = tooltipAt(help->pos());
        // Escaped, because a name could look like markup.
        if (text.isEmpty())
            QToolTip::hideText();
        else
            QToolTip::showText(
                help->globalPos(),
                QStringLiteral("<qt>") + text.toHtmlEscaped().replace('\n', "<br>") + QStringLiteral("</qt>"),
                viewport());
        return true;
    }
    if (event->type() == QEvent::Leave && hover_.valid()) {
        hover_ = {};
        viewport()->update();
    }
    return QAbstractScrollArea::viewportEvent(event);
}

void PlacementMap::wheelEvent(QWheelEvent* event) {
    const QPoint turn = event->angleDelta();
    if (event->modifiers() & Qt::ShiftModifier) {
        horizontalScrollBar()->setValue(horizontalScrollBar()->value() -
                                        (turn.y() != 0 ? turn.y() : turn.x()));
    } else if (event->modifiers() & Qt::ControlModifier) {
        verticalScrollBar()->setValue(verticalScrollBar()->value() - turn.y());
    } else {
        if (turn.x() != 0 && turn.y() == 0)
            horizontalScrollBar()->setValue(horizontalScrollBar()->value() - turn.x());
        else
            zoomBy(turn.y() / 120.0, event->position());
    }
    event->accept();
}

void PlacementMap::mousePressEvent(QMouseEvent* event) {
    if (!matrix_) return;
    pressedAt_ = event->pos();
    scrolledAt_ = {horizontalScrollBar()->value(), verticalScrollBar()->value()};
    if (event->button() == Qt::MiddleButton || (event->button() == Qt::LeftButton && spaceHeld_)) {
        drag_ = Drag::pan;
        viewport()->setCursor(Qt::ClosedHandCursor);
        return;
    }
    const QRect grid = gridRect();
    if (event->button() == Qt::RightButton) {
        if (const Cell cell = cellAt(event->position()); cell.valid()) take(cell);
        return;
    }
    if (event->button() != Qt::LeftButton) return;
    if (event->pos().y() < grid.top() && grid.left() <= event->pos().x() &&
        event->pos().x() <= grid.right()) {
        const double column = (event->position().x() - columnLeft(0)) / cellWidth_;
        if (column >= 0 && column < matrix_->columnCount())
            emit columnPicked(static_cast<uint32_t>(column), event->modifiers() & Qt::ControlModifier);
    } else if (event->pos().x() < grid.left() && event->pos().y() >= grid.top()) {
        const Cell near = cellNear(event->position());
        if (near.valid() && rowTop(static_cast<int>(near.row)) <= event->position().y() &&
            event->position().y() < rowTop(static_cast<int>(near.row) + 1)) {
            const RowDetail& row = detail(near.row);
            const uint32_t column = current_.valid()    ? current_.column
                                    : row.cells.empty() ? 0
                                                        : row.cells.front().column;
            take({near.row, column});
            if (matrix_->row(near.row).summary) emit activated(near.row, column);
        }
    } else if (grid.contains(event->pos()) || cellAt(event->position()).valid()) {
        drag_ = Drag::waiting;
    }
}

void PlacementMap::mouseMoveEvent(QMouseEvent* event) {
    if (drag_ == Drag::pan) {
        const QPoint moved = event->pos() - pressedAt_;
        horizontalScrollBar()->setValue(scrolledAt_.x() - moved.x());
        verticalScrollBar()->setValue(scrolledAt_.y() - moved.y());
        return;
    }
    if (drag_ == Drag::waiting &&
        (event->pos() - pressedAt_).manhattanLength() >= QApplication::startDragDistance() &&
        cellAt(pressedAt_).column < (matrix_ ? matrix_->columnCount() : 0))
        drag_ = Drag::region;
    if (drag_ == Drag::region) {
        const QPoint start =
            pressedAt_ + scrolledAt_ - QPoint(horizontalScrollBar()->value(), verticalScrollBar()->value());
        markRegion(cellNear(start), cellNear(event->position()));
        return;
    }
    const Cell cell = cellAt(event->position());
    if (cell != hover_) {
        hover_ = cell;
        viewport()->update();
    }
}

void PlacementMap::mouseReleaseEvent(QMouseEvent* event) {
    const Drag was = std::exchange(drag_, Drag::none);
    if (was == Drag::pan) {
        viewport()->unsetCursor();
    } else if (was == Drag::region) {
        emit regionChanged(region_);
    } else if (was == Drag::waiting) {
        const bool marked = !region_.isEmpty();
        clearRegion();
        take(cellAt(event->position()));
        if (marked) emit regionChanged({});
    }
}

void PlacementMap::mouseDoubleClickEvent(QMouseEvent* event) {
    const Cell cell = cellAt(event->position());
    if (event->button() != Qt::LeftButton || !cell.valid()) return;
    take(cell);
    emit activated(cell.row, cell.column);
}

void PlacementMap::contextMenuEvent(QContextMenuEvent* event) {
    if (event->reason() == QContextMenuEvent::Keyboard) {
        const QRectF at = current_.valid() ? cellRect(current_) : QRectF(gridRect());
        emit menuRequested(viewport()->mapToGlobal(at.center().toPoint()));
    } else {
        emit menuRequested(event->globalPos());
    }
}

// ------------------------------------------------------------------ keys

// With `extend`, what is moved is the far corner of a region.
void PlacementMap::moveCurrent(int64_t rows, int64_t columns, bool extend) {
    Cell cell = current_.valid() ? current_ : cellNear(gridRect().topLeft());
    if (!current_.valid()) rows = columns = 0;
    const Cell from = regionAnchor_.valid() ? regionAnchor_ : cell;
    cell.row = static_cast<uint32_t>(std::clamp<int64_t>(cell.row + rows, 0, matrix_->rowCount() - 1));
    const int64_t last = extend ? matrix_->columnCount() - 1 : columnsWithGaps() - 1;
    cell.column = static_cast<uint32_t>(std::clamp<int64_t>(cell.column + columns, 0, last));
    take(cell);
    if (!extend) return;
    regionAnchor_ = from;
    markRegion(from, cell);
    emit regionChanged(region_);
}

bool PlacementMap::moveByKey(int key, bool shift, bool control) {
    const auto scroll = [](QScrollBar* bar, int steps) {
        bar->setValue(bar->value() + steps * bar->singleStep());
    };
    constexpr int64_t kAll = UINT32_MAX;
    const int page = std::max(1, static_cast<int>(gridRect().height() / cellHeight_) - 1);
    switch (key) {
        case Qt::Key_Left:
        case Qt::Key_Right: {
            const int step = key == Qt::Key_Left ? -1 : 1;
            control ? scroll(horizontalScrollBar(), step) : moveCurrent(0, step, shift);
            return true;
        }
        case Qt::Key_Up:
        case Qt::Key_Down: {
            const int step = key == Qt::Key_Up ? -1 : 1;
            control ? scroll(verticalScrollBar(), step) : moveCurrent(step, 0, shift);
            return true;
        }
        case Qt::Key_PageUp:
        case Qt::Key_PageDown:
            moveCurrent(key == Qt::Key_PageUp ? -page : page, 0, shift);
            return true;
        case Qt::Key_Home:
        case Qt::Key_End: {
            const int64_t step = key == Qt::Key_Home ? -kAll : kAll;
            control ? moveCurrent(step, 0, shift) : moveCurrent(0, step, shift);
            return true;
        }
        default:
            return false;
    }
}

// Whether the key means something now.
bool PlacementMap::actByKey(int key, bool shift, bool control) {
    switch (key) {
        case Qt::Key_Return:
        case Qt::Key_Enter:
            if (current_.valid()) emit activated(current_.row, current_.column);
            return true;
        case Qt::Key_N:
            if (control) return false;
            nextFinding(!shift);
            return true;
        case Qt::Key_Plus:
        case Qt::Key_Equal:
            zoomIn();
            return true;
        case Qt::Key_Minus:
            zoomOut();
            return true;
        case Qt::Key_F:
            if (control) return false;
            fit();
            return true;
        case Qt::Key_R:
            if (control || !current_.valid() || current_.column >= matrix_->columnCount()) return false;
            emit columnPicked(current_.column, shift);
            return true;
        case Qt::Key_P:
            if (control || !current_.valid()) return false;
            emit pinRequested(current_.row);
            return true;
        case Qt::Key_Escape:
            if (region_.isEmpty()) return false;
            clearRegion();
            emit regionChanged({});
            return true;
        default:
            return false;
    }
}

void PlacementMap::keyPressEvent(QKeyEvent* event) {
    const bool any = matrix_ && matrix_->rowCount() > 0 && matrix_->columnCount() > 0;
    const bool shift = event->modifiers() & Qt::ShiftModifier,
               control = event->modifiers() & Qt::ControlModifier;
    if (any && (moveByKey(event->key(), shift, control) || actByKey(event->key(), shift, control))) return;
    if (!any || event->key() != Qt::Key_Space) {
        QAbstractScrollArea::keyPressEvent(event);
    } else if (!event->isAutoRepeat()) {
        spaceHeld_ = true;
        viewport()->setCursor(Qt::OpenHandCursor);
    }
}

void PlacementMap::keyReleaseEvent(QKeyEvent* event) {
    if (event->key() == Qt::Key_Space && !event->isAutoRepeat()) {
        spaceHeld_ = false;
        viewport()->unsetCursor();
        return;
    }
    QAbstractScrollArea::keyReleaseEvent(event);
}

}  // namespace shardscope::ui
