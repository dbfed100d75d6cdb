#include "ui/widgets/placement_map.h"

#include <QAccessible>
#include <QApplication>
#include <QFontMetrics>
#include <QScrollBar>
#include <algorithm>
#include <cmath>

#include "ui/models/texts.h"
#include "ui/widgets/theme.h"

namespace shardscope::ui {

namespace {

constexpr double kLargestWidth = 160, kLargestHeight = 80;  // of a cell, in pixels
constexpr double kRoomyWidth = 96, kRoomyHeight = 44;  // of a cell when all are in view and there is room
constexpr double kTile = 12;                           // from here on cells are tiles
constexpr double kReadable = 18;                       // height of a row whose slices can be read
constexpr double kMostScreens = 4;                     // of rows that high, rather than all rows in view
constexpr double kStep = 1.3;                          // growth of a cell in one step of zoom
constexpr int kLongestLabel = 340;
constexpr int kMeasuredLabels = 256;

}  // namespace

PlacementMap::PlacementMap(QWidget* parent) : QAbstractScrollArea(parent) {
    static const bool accessible = [] {
        QAccessible::installFactory(placementMapAccess);
        return true;
    }();
    Q_UNUSED(accessible);
    setAccessibleName(tr("Placement map"));
    setFocusPolicy(Qt::StrongFocus);
    setFrameShape(QFrame::NoFrame);
    viewport()->setMouseTracking(true);
    viewport()->setAutoFillBackground(false);
    setMinimumSize(320, 160);
    describe();
}

PlacementMap::~PlacementMap() = default;

void PlacementMap::setMatrix(std::shared_ptr<const PlacementMatrix> matrix) {
    // The tensor and rank that were current stay so, wherever they are now.
    TensorId tensor = kNone;
    uint32_t rank = kNone;
    std::string group;
    bool inGap = false;
    const bool same = matrix && matrix_ && matrix->checkpoint() == matrix_->checkpoint();
    if (same && current_.valid()) {
        tensor = matrix_->row(current_.row).tensor;
        if (const MatrixRow& row = matrix_->row(current_.row); row.summary)
            group = matrix_->group(row.group).key;
        inGap = current_.column >= matrix_->columnCount();
        if (!inGap) rank = matrix_->column(current_.column).rank;
    }
    // Below a group that opens or closes rows come and go; what is above stays where it is.
    const bool regrouped = same && matrix->hasGroups() && matrix_->hasGroups() &&
                           matrix->tensorCount() == matrix_->tensorCount();
    const bool sameGrid =
        same && matrix->rowCount() == matrix_->rowCount() && matrix->columnCount() == matrix_->columnCount();
    matrix_ = std::move(matrix);
    details_.clear();
    current_ = hover_ = regionAnchor_ = {};
    if (!sameGrid) region_ = {};
    selectedColumns_.assign(matrix_ ? matrix_->columnCount() : 0, false);
    rasterOld_ = true;
    measureLabels();
    if (matrix_ && tensor != kNone) {
        uint32_t row = matrix_->rowOf(tensor);
        // The sum of an open group is not where its tensors are.
        for (uint32_t r = matrix_->pinnedCount(); !group.empty() && r < matrix_->rowCount(); ++r) {
            if (matrix_->row(r).summary && matrix_->group(matrix_->row(r).group).key == group) row = r;
        }
        const Cell cell{row, inGap ? matrix_->columnCount() : matrix_->columnOf(rank)};
        if (cell.row != kNone && cell.column != kNone) current_ = cell;
    }
    if (!sameGrid && !regrouped) {
        fitted_ = true;
        whole_ = false;
    }
    if (fitted_)
        takeFittedSize();
    else
        updateScrollBars();
    describe();
    emit matrixChanged();
    viewport()->update();
}

// ------------------------------------------------------------------ geometry

int PlacementMap::bandHeight() const {
    return fontMetrics().height() + 4;
}

int PlacementMap::headerHeight() const {
    if (!matrix_) return 0;
    return static_cast<int>(matrix_->axes().size() + 1) * bandHeight() + 2;
}

int PlacementMap::gapWidth() const {
    return matrix_ && matrix_->hasGaps() ? std::max(44, fontMetrics().horizontalAdvance(tr("no owner")) + 10)
                                         : 0;
}

uint32_t PlacementMap::columnsWithGaps() const {
    return matrix_ ? matrix_->columnCount() + (matrix_->hasGaps() ? 1 : 0) : 0;
}

QRect PlacementMap::gridRect() const {
    const QRect all = viewport()->rect();
    return all.adjusted(labelWidth_, headerHeight(), -gapWidth(), 0);
}

double PlacementMap::fitWidth() const {
    const double room = std::max(1, gridRect().width() - 1);
    return std::min(kRoomyWidth, room / std::max(1U, matrix_ ? matrix_->columnCount() : 1));
}

double PlacementMap::fitHeight() const {
    const double room = std::max(1, gridRect().height() - 1);
    return std::min(kRoomyHeight, room / std::max(1U, matrix_ ? matrix_->rowCount() : 1));
}

double PlacementMap::baseHeight() const {
    const double height = fitHeight();
    // Slices are worth some scrolling, until the user asks for the whole.
    const bool readable = !whole_ && matrix_ && fitWidth() >= kTile && height < kReadable &&
                          matrix_->rowCount() * kReadable <= kMostScreens * gridRect().height();
    return readable ? kReadable : height;
}

double PlacementMap::columnLeft(int column) const {
    return gridRect().left() - horizontalScrollBar()->value() + column * cellWidth_;
}

int PlacementMap::pinnedRows() const {
    if (!matrix_ || matrix_->pinnedCount() == 0) return 0;
    // What scrolls keeps at least half of the room.
    return static_cast<int>(
        std::min<double>(matrix_->pinnedCount(), std::floor(gridRect().height() / 2.0 / cellHeight_)));
}

QRect PlacementMap::pinnedRect() const {
    const QRect grid = gridRect();
    return {grid.left(), grid.top(), grid.width(), static_cast<int>(std::ceil(pinnedRows() * cellHeight_))};
}

double PlacementMap::rowTop(int row) const {
    const int scrolled = row < pinnedRows() ? 0 : verticalScrollBar()->value();
    return gridRect().top() - scrolled + row * cellHeight_;
}

double PlacementMap::rowAt(double y) const {
    const double inGrid = y - gridRect().top();
    return (inGrid < pinnedRows() * cellHeight_ ? inGrid : inGrid + verticalScrollBar()->value()) /
           cellHeight_;
}

PlacementMap::Span PlacementMap::visibleRowsBelowPins() const {
    Span rows = visibleRows();
    rows.begin = std::max(rows.begin, pinnedRows());
    return rows;
}

PlacementMap::Span PlacementMap::visibleRows() const {
    if (!matrix_) return {0, 0};
    const int first = static_cast<int>(verticalScrollBar()->value() / cellHeight_);
    const int last = static_cast<int>((verticalScrollBar()->value() + gridRect().height()) / cellHeight_) + 1;
    return {std::max(0, first), std::min(static_cast<int>(matrix_->rowCount()), last)};
}

PlacementMap::Span PlacementMap::visibleColumns() const {
    if (!matrix_) return {0, 0};
    const int first = static_cast<int>(horizontalScrollBar()->value() / cellWidth_);
    const int last = static_cast<int>((horizontalScrollBar()->value() + gridRect().width()) / cellWidth_) + 1;
    return {std::max(0, first), std::min(static_cast<int>(matrix_->columnCount()), last)};
}

QRectF PlacementMap::cellRect(Cell cell) const {
    if (!matrix_ || !cell.valid()) return {};
    const double top = rowTop(static_cast<int>(cell.row));
    if (cell.column >= matrix_->columnCount()) {
        const QRect grid = gridRect();
        return {static_cast<double>(grid.right()) + 1, top, static_cast<double>(gapWidth()), cellHeight_};
    }
    return {columnLeft(static_cast<int>(cell.column)), top, cellWidth_, cellHeight_};
}

PlacementMap::Cell PlacementMap::cellAt(const QPointF& position) const {
    if (!matrix_) return {};
    const QRectF grid = gridRect();
    const bool gap = matrix_->hasGaps() && position.x() > grid.right();
    if (position.y() < grid.top() || position.x() < grid.left()) return {};
    const double row = rowAt(position.y());
    const double column = (position.x() - columnLeft(0)) / cellWidth_;
    if (row < 0 || row >= matrix_->rowCount()) return {};
    if (gap) return {static_cast<uint32_t>(row), matrix_->columnCount()};
    if (column < 0 || column >= matrix_->columnCount()) return {};
    return {static_cast<uint32_t>(row), static_cast<uint32_t>(column)};
}

PlacementMap::Cell PlacementMap::cellNear(const QPointF& position) const {
    if (!matrix_ || matrix_->rowCount() == 0 || matrix_->columnCount() == 0) return {};
    const auto nearest = [](double at, uint32_t count) {
        return static_cast<uint32_t>(std::clamp(at, 0.0, static_cast<double>(count) - 1));
    };
    return {nearest(rowAt(position.y()), matrix_->rowCount()),
            nearest((position.x() - columnLeft(0)) / cellWidth_, matrix_->columnCount())};
}

// Of the name of a row: those below the sum of a group stand in from it, after which its triangle stands.
int PlacementMap::indentOf(uint32_t row) const {
    return matrix_->row(row).group == kNone ? 0 : fontMetrics().horizontalAdvance(QStringLiteral("▾ "));
}

void PlacementMap::measureLabels() {
    labelWidth_ = laneWidth_ = 0;
    if (!matrix_) return;
    const QFontMetrics metrics = fontMetrics();
    for (const MatrixLane& lane : matrix_->lanes())
        laneWidth_ = std::max(laneWidth_, metrics.horizontalAdvance(QStringLiteral("e%1").arg(lane.expert)));
    if (laneWidth_ > 0) laneWidth_ += 8;
    int widest = metrics.horizontalAdvance(tr("rank"));
    const uint32_t step = std::max(1U, matrix_->rowCount() / kMeasuredLabels);
    for (uint32_t r = 0; r < matrix_->rowCount(); r += step) {
        int width = metrics.horizontalAdvance(toQString(matrix_->rowText(r))) + indentOf(r);
        if (matrix_->row(r).count > 1)
            width += metrics.horizontalAdvance(QStringLiteral("  ×%1").arg(matrix_->row(r).count));
        widest = std::max(widest, width);
    }
    labelWidth_ = std::min(
        {widest + 44 + laneWidth_, kLongestLabel + laneWidth_, std::max(100, viewport()->width() * 2 / 5)});
}

QRectF PlacementMap::visibleShare() const {
    if (!matrix_ || matrix_->rowCount() == 0 || matrix_->columnCount() == 0) return {0, 0, 1, 1};
    const double width = matrix_->columnCount() * cellWidth_, height = matrix_->rowCount() * cellHeight_;
    const QRect grid = gridRect();
    return {horizontalScrollBar()->value() / width, verticalScrollBar()->value() / height,
            std::min(1.0, grid.width() / width), std::min(1.0, grid.height() / height)};
}

void PlacementMap::centerOn(const QPointF& share) {
    if (!matrix_) return;
    const QRect grid = gridRect();
    horizontalScrollBar()->setValue(
        static_cast<int>(share.x() * matrix_->columnCount() * cellWidth_ - grid.width() / 2.0));
    verticalScrollBar()->setValue(
        static_cast<int>(share.y() * matrix_->rowCount() * cellHeight_ - grid.height() / 2.0));
}

QRectF PlacementMap::view() const {
    if (fitted_ || !matrix_) return {};
    return {visibleShare().center(), QSizeF(cellWidth_, cellHeight_)};
}

void PlacementMap::setView(const QRectF& view) {
    if (!matrix_ || view == this->view()) return;
    if (view.isNull()) {
        fitted_ = true;
        takeFittedSize();
    } else {
        fitted_ = false;
        setCellSize(view.width(), view.height());
        centerOn(view.topLeft());
    }
    viewMoved();
}

void PlacementMap::updateScrollBars() {
    const QRect grid = gridRect();
    const auto set = [](QScrollBar* bar, double content, int room, double cell) {
        bar->setRange(0, std::max(0, static_cast<int>(std::ceil(content)) - room));
        bar->setPageStep(std::max(1, room));
        bar->setSingleStep(std::max(12, static_cast<int>(cell)));
    };
    set(horizontalScrollBar(), matrix_ ? matrix_->columnCount() * cellWidth_ : 0, grid.width(), cellWidth_);
    set(verticalScrollBar(), matrix_ ? matrix_->rowCount() * cellHeight_ : 0, grid.height(), cellHeight_);
    viewMoved();
}

void PlacementMap::viewMoved() {
    rasterOld_ = true;
    viewport()->update();
    emit viewChanged();
}

void PlacementMap::setCellSize(double width, double height) {
    cellWidth_ = std::clamp(width, 1e-6, kLargestWidth);
    cellHeight_ = std::clamp(height, 1e-6, kLargestHeight);
    updateScrollBars();
}

double PlacementMap::zoom() const {
    // Both sides grow from their fitting size to the largest along one scale, so that the way back is the way
    // in.
    const double tall = std::log(kLargestHeight / baseHeight()), wide = std::log(kLargestWidth / fitWidth());
    const double at =
        tall >= wide ? std::log(cellHeight_ / baseHeight()) / tall : std::log(cellWidth_ / fitWidth()) / wide;
    return std::clamp(at, 0.0, 1.0);
}

void PlacementMap::zoomBy(double steps, const QPointF& anchor) {
    if (!matrix_ || matrix_->rowCount() == 0) return;
    if (steps < 0 && fitted_) {
        fit();
        viewMoved();
        return;
    }
    const double tall = std::log(kLargestHeight / baseHeight()), wide = std::log(kLargestWidth / fitWidth());
    const double to = std::clamp(zoom() + steps * std::log(kStep) / std::max(tall, wide), 0.0, 1.0);
    const double column = (anchor.x() - columnLeft(0)) / cellWidth_,
                 row = (anchor.y() - gridRect().top() + verticalScrollBar()->value()) / cellHeight_;
    fitted_ = to == 0;
    setCellSize(fitWidth() * std::exp(wide * to), baseHeight() * std::exp(tall * to));
    const QRect grid = gridRect();
    horizontalScrollBar()->setValue(
        static_cast<int>(std::lround(column * cellWidth_ - (anchor.x() - grid.left()))));
    verticalScrollBar()->setValue(
        static_cast<int>(std::lround(row * cellHeight_ - (anchor.y() - grid.top()))));
    viewMoved();
}

void PlacementMap::zoomIn() {
    const QRectF at = cellRect(current_);
    zoomBy(2, current_.valid() && gridRect().contains(at.center().toPoint()) ? at.center()
                                                                             : gridRect().center());
}

void PlacementMap::zoomOut() {
    const QRectF at = cellRect(current_);
    zoomBy(-2, current_.valid() && gridRect().contains(at.center().toPoint()) ? at.center()
                                                                              : gridRect().center());
}

void PlacementMap::fit() {
    fitted_ = whole_ = true;
    takeFittedSize();
}

void PlacementMap::takeFittedSize() {
    setCellSize(fitWidth(), baseHeight());
}

bool PlacementMap::showsTiles() const {
    return cellWidth_ >= kTile && cellHeight_ >= kTile;
}

void PlacementMap::resizeEvent(QResizeEvent* event) {
    QAbstractScrollArea::resizeEvent(event);
    measureLabels();
    if (fitted_)
        takeFittedSize();
    else
        updateScrollBars();
}

void PlacementMap::scrollContentsBy(int, int) {
    viewMoved();
}

// ------------------------------------------------------------------ current cell, region, ranks

void PlacementMap::describe() {
    const QString text = current_.valid() && matrix_ ? currentText()
                         : matrix_
                             ? tr("%1 by %2; arrow keys move from cell to cell")
                                   .arg(countedText(matrix_->rowCount(), tr("1 row"), tr("%1 rows")),
                                        countedText(matrix_->columnCount(), tr("1 rank"), tr("%1 ranks")))
                             : tr("nothing to show");
    if (text == accessibleDescription()) return;
    setAccessibleDescription(text);
    QAccessibleEvent event(this, QAccessible::DescriptionChanged);
    QAccessible::updateAccessibility(&event);
    if (!current_.valid() || !hasFocus() || !QAccessible::isActive()) return;
    QAccessibleEvent focus(this, QAccessible::Focus);
    focus.setChild(static_cast<int>(current_.row * columnsWithGaps() + current_.column));
    QAccessible::updateAccessibility(&focus);
}

QString PlacementMap::currentText() const {
    return matrix_ && current_.valid() ? toQString(matrix_->cellText(current_.row, current_.column))
                                       : QString();
}

void PlacementMap::reveal(Cell cell) {
    if (!cell.valid() || !matrix_) return;
    const QRectF grid = gridRect();
    const QRectF at = cellRect(cell);
    // A cell out of view comes to the middle: what is around it matters as well.
    const double top = grid.top() + pinnedRows() * cellHeight_;
    const bool pinned = static_cast<int>(cell.row) < pinnedRows();
    if (!pinned && (at.top() < top || at.bottom() > grid.bottom() + 1)) {
        const double step = at.top() < top ? at.top() - top : at.bottom() - grid.bottom();
        const bool far = std::abs(step) > 2 * cellHeight_;
        verticalScrollBar()->setValue(
            verticalScrollBar()->value() +
            static_cast<int>(far ? at.center().y() - grid.center().y() : std::round(step)));
    }
    if (cell.column < matrix_->columnCount() && (at.left() < grid.left() || at.right() > grid.right() + 1)) {
        const double step = at.left() < grid.left() ? at.left() - grid.left() : at.right() - grid.right();
        const bool far = std::abs(step) > 2 * cellWidth_;
        horizontalScrollBar()->setValue(
            horizontalScrollBar()->value() +
            static_cast<int>(far ? at.center().x() - grid.center().x() : std::round(step)));
    }
}

void PlacementMap::setCurrent(Cell cell) {
    if (!matrix_ || cell.row >= matrix_->rowCount() || cell.column >= columnsWithGaps()) cell = {};
    if (cell == current_) return;
    current_ = cell;
    regionAnchor_ = {};
    reveal(cell);
    describe();
    viewport()->update();
}

void PlacementMap::take(Cell cell) {
    if (!cell.valid()) return;
    setCurrent(cell);
    reveal(cell);
    emit currentChanged(cell.row, cell.column);
}

void PlacementMap::setSelectedRanks(const std::vector<uint32_t>& ranks) {
    std::vector<bool> marked(matrix_ ? matrix_->columnCount() : 0, false);
    for (const uint32_t rank : ranks) {
        const uint32_t column = matrix_ ? matrix_->columnOf(rank) : kNone;
        if (column != kNone) marked[column] = true;
    }
    if (marked == selectedColumns_) return;
    selectedColumns_ = std::move(marked);
    viewport()->update();
}

void PlacementMap::markRegion(Cell from, Cell to) {
    if (!from.valid() || !to.valid()) return;
    const int left = static_cast<int>(std::min(from.column, to.column));
    const int right = static_cast<int>(std::max(from.column, to.column));
    const int top = static_cast<int>(std::min(from.row, to.row)),
              bottom = static_cast<int>(std::max(from.row, to.row));
    region_ = QRect(left, top, right - left + 1, bottom - top + 1);
    viewport()->update();
}

void PlacementMap::clearRegion() {
    if (region_.isEmpty()) return;
    region_ = {};
    regionAnchor_ = {};
    viewport()->update();
}

bool PlacementMap::nextFinding(bool forward) {
    if (!matrix_ || matrix_->rowCount() == 0) return false;
    Cell cell = current_;
    // Before the first cell, going forward; after the last one, going back.
    if (!cell.valid()) cell = forward ? Cell{matrix_->rowCount() - 1, columnsWithGaps()} : Cell{0, 0};
    if (!matrix_->nextFinding(cell.row, cell.column, forward)) return false;
    take(cell);
    return true;
}

// ------------------------------------------------------------------ focus and theme

void PlacementMap::focusInEvent(QFocusEvent* event) {
    QAbstractScrollArea::focusInEvent(event);
    viewport()->update();
}

void PlacementMap::focusOutEvent(QFocusEvent* event) {
    QAbstractScrollArea::focusOutEvent(event);
    spaceHeld_ = false;
    viewport()->unsetCursor();
    viewport()->update();
}

void PlacementMap::changeEvent(QEvent* event) {
    QAbstractScrollArea::changeEvent(event);
    if (event->type() == QEvent::PaletteChange || event->type() == QEvent::FontChange) {
        if (event->type() == QEvent::FontChange) measureLabels();
        rasterOld_ = true;
        tiles_.clear();
        viewport()->update();
    }
}

}  // namespace shardscope::ui
