// The placement map: tensors (rows) by ranks (columns). Zoomed out it is a picture of the matrix's pyramid,
// one color a pixel. From some 12 pixels a cell on it shows tiles with the slice of the tensor that a rank
// holds. Hatches and glyphs show what is wrong. A column at the right edge, always in view, shows rows with
// elements that no rank holds.
//
// Pinned rows stay at the top however far one scrolls. The row of a group sums up those that follow it while
// it is open; a click on its name opens and closes it (activated).
//
// Mouse: the wheel zooms at the cursor (Shift: scrolls sideways, Ctrl: up and down). The middle button or
// Space and drag pans. Drag marks a region, click takes a cell, double click opens it. Keys: see
// keyPressEvent().
#pragma once

#include <QAbstractScrollArea>
#include <QImage>
#include <QPixmap>
#include <map>
#include <memory>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "survey/placement_matrix.h"

class QAccessibleInterface;

namespace shardscope::ui {

class PlacementMap : public QAbstractScrollArea {
    Q_OBJECT
  public:
    struct Cell {
        uint32_t row = kNone, column = kNone;  // column = columnCount(): elements without an owner
        bool valid() const { return row != kNone; }
        bool operator==(const Cell&) const = default;
    };

    explicit PlacementMap(QWidget* parent = nullptr);
    ~PlacementMap() override;

    void setMatrix(std::shared_ptr<const PlacementMatrix> matrix);  // null = nothing to show
    const std::shared_ptr<const PlacementMatrix>& matrix() const { return matrix_; }

    Cell current() const { return current_; }
    // By the program: no signal. Brings the cell into view.
    void setCurrent(Cell cell);
    QString currentText() const;  // the current cell as a sentence
    // Columns of these ranks are marked.
    void setSelectedRanks(const std::vector<uint32_t>& ranks);
    // Marked cells as (column, row, columns, rows); empty = none.
    QRect region() const { return region_; }
    void clearRegion();

    // Zoom is 0 as a map is shown first and 1 for the largest tiles.
    double zoom() const;
    void zoomBy(double steps, const QPointF& anchor);  // a step is one notch of the wheel
    void zoomIn();
    void zoomOut();
    void fit();  // all in view; a map that is shown anew may have rows high enough for slices instead
    bool showsTiles() const;
    QSizeF cellSize() const { return {cellWidth_, cellHeight_}; }
    bool nextFinding(bool forward);  // false: nothing is wrong

    // Geometry, in coordinates of the viewport.
    QRect gridRect() const;
    QRectF cellRect(Cell cell) const;
    Cell cellAt(const QPointF& position) const;  // invalid outside of cells
    // The part in view as shares of the whole, and moving it.
    QRectF visibleShare() const;
    void centerOn(const QPointF& share);
    // Zoom and place as Selected::mapView has them, to come back to.
    QRectF view() const;
    void setView(const QRectF& view);
    int headerHeight() const;

  signals:
    void matrixChanged();
    void viewChanged();                                  // scrolled, zoomed or resized
    void currentChanged(uint32_t row, uint32_t column);  // by the user
    void activated(uint32_t row, uint32_t column);  // Enter or double click; on the name of a group a click
    void regionChanged(const QRect& cells);         // by the user; empty = cleared
    void columnPicked(uint32_t column, bool addToOthers);  // click on a header
    void pinRequested(uint32_t row);                       // or unpinned
    void menuRequested(const QPoint& globalPosition);      // for the current cell

  protected:
    bool viewportEvent(QEvent* event) override;
    void paintEvent(QPaintEvent* event) override;
    void resizeEvent(QResizeEvent* event) override;
    void scrollContentsBy(int dx, int dy) override;
    void wheelEvent(QWheelEvent* event) override;
    void mousePressEvent(QMouseEvent* event) override;
    void mouseMoveEvent(QMouseEvent* event) override;
    void mouseReleaseEvent(QMouseEvent* event) override;
    void mouseDoubleClickEvent(QMouseEvent* event) override;
    void contextMenuEvent(QContextMenuEvent* event) override;
    // Arrows move, with Shift they mark a region, with Ctrl they scroll. Home and End go to the first and
    // last column, with Ctrl to the first and last row. PgUp, PgDown, Menu. Enter opens. N and Shift+N go to
    // the next and previous finding. + - F zoom. R takes the rank, Shift+R adds it to others. P pins the row
    // or lets it go. Escape unmarks.
    void keyPressEvent(QKeyEvent* event) override;
    void keyReleaseEvent(QKeyEvent* event) override;
    void focusInEvent(QFocusEvent* event) override;
    void focusOutEvent(QFocusEvent* event) override;
    void changeEvent(QEvent* event) override;

  private:
    enum class Drag { none, waiting, region, pan };
    struct Span {
        int begin, end;  // cells
    };
    void moveCurrent(int64_t rows, int64_t columns, bool extend);
    bool moveByKey(int key, bool shift, bool control);
    bool actByKey(int key, bool shift, bool control);
    uint32_t columnsWithGaps() const;
    double fitWidth() const;
    double fitHeight() const;
    double baseHeight() const;  // of rows before they are zoomed
    int labelWidth() const { return labelWidth_; }
    int gapWidth() const;  // of the column of elements without an owner; 0 = not shown
    int bandHeight() const;
    Span visibleRows() const;
    Span visibleColumns() const;
    double rowTop(int row) const;
    // Pinned rows that fit, and their part of the grid, which does not scroll.
    int pinnedRows() const;
    QRect pinnedRect() const;
    double rowAt(double y) const;  // a row's number with a fraction; may be outside
    Span visibleRowsBelowPins() const;
    double columnLeft(int column) const;
    Cell cellNear(const QPointF& position) const;  // the nearest one
    void measureLabels();
    int indentOf(uint32_t row) const;
    void setCellSize(double width, double height);
    void takeFittedSize();
    void updateScrollBars();
    void viewMoved();
    void reveal(Cell cell);
    void take(Cell cell);  // by the user
    void markRegion(Cell from, Cell to);
    QString tooltipAt(const QPoint& position) const;
    void describe();

    const RowDetail& detail(uint32_t row);
    const QPixmap& tileOf(Health health, bool copy, const QSize& size);
    void paintRaster(QPainter& painter);
    void paintPinned(QPainter& painter);
    void paintTiles(QPainter& painter, Span rows);
    void paintTile(QPainter& painter, const QRectF& rect, const RowDetail& row, const MatrixCell& cell);
    Span visibleLanes(Span rows) const;
    void paintLanes(QPainter& painter);
    void paintLanes(QPainter& painter, Span rows, const QRect& clip);
    void paintLaneEdges(QPainter& painter, Span rows);
    void paintTicks(QPainter& painter, const QRectF& rect, const RowDetail& row);
    void paintMarks(QPainter& painter);
    void paintGapColumn(QPainter& painter);
    void paintLabels(QPainter& painter);
    void paintLabels(QPainter& painter, Span rows, const QRect& clip);
    void paintGapRows(QPainter& painter, Span rows);
    void paintHeader(QPainter& painter);
    void paintRankRow(QPainter& painter, const QRectF& line);

    std::shared_ptr<const PlacementMatrix> matrix_;
    double cellWidth_ = 1, cellHeight_ = 1;
    bool fitted_ = true;  // the size of cells follows that of the window
    bool whole_ = false;  // the user asked for all rows in view
    int labelWidth_ = 0;
    int laneWidth_ = 0;  // of the band that names experts; 0 = there are none
    Cell current_, hover_, regionAnchor_;
    QRect region_;
    std::vector<bool> selectedColumns_;
    std::unordered_map<uint32_t, RowDetail> details_;           // of rows in view
    std::map<std::tuple<int, bool, int, int>, QPixmap> tiles_;  // by state, copy, width, height
    QImage raster_;
    bool rasterOld_ = true;
    Drag drag_ = Drag::none;
    bool spaceHeld_ = false;
    QPoint pressedAt_, scrolledAt_;
};

// Makes the map a table for assistive technology; a factory for QAccessible.
QAccessibleInterface* placementMapAccess(const QString& className, QObject* object);

// Colors of PlacementMatrix's cell bytes in the present theme.
const std::vector<QRgb>& placementColors();

}  // namespace shardscope::ui
