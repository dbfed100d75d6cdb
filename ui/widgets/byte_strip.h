// The bytes of one file from its first to its last: chunks in colors, objects, what nothing refers to
// (hatched). What should be there but is not is vermillion, hatched. The wheel zooms at the pointer, dragging
// or the bar under the strip moves, left and right step through the pieces.
#pragma once

#include <QColor>
#include <QString>
#include <cstdint>
#include <functional>
#include <vector>

#include "model/catalog.h"
#include "ui/widgets/painted_view.h"

namespace shardscope::ui {

struct BytePiece {
    enum class Kind : uint8_t { chunk, object, metadata, dead, missing };
    uint64_t offset = 0, length = 0;
    Kind kind = Kind::dead;
    ChunkId chunk = kNone;
    ObjectId object = kNone;
    QColor color;  // of chunks
};

class ByteStrip : public PaintedView {
    Q_OBJECT
  public:
    explicit ByteStrip(QWidget* parent = nullptr);

    // Ascending by offset. `text` gives the tooltip of a piece, `label` what stands in it when there is room.
    void setPieces(std::vector<BytePiece> pieces, uint64_t end, std::function<QString(int)> text,
                   std::function<QString(int)> label);
    const std::vector<BytePiece>& pieces() const { return pieces_; }
    void setSelectedChunk(ChunkId chunk);
    int current() const { return current_; }  // -1 = none
    void setMessage(const QString& text);     // shown when there are no pieces

    // The bytes in sight.
    uint64_t viewBegin() const { return static_cast<uint64_t>(begin_); }
    uint64_t viewEnd() const { return static_cast<uint64_t>(end_); }
    void showRange(uint64_t begin, uint64_t end);
    void showAll() { showRange(0, total_); }
    QRectF pieceRect(int piece) const;

    QSize sizeHint() const override;
    QSize minimumSizeHint() const override;

  signals:
    void selected(int piece);
    void viewChanged();

  protected:
    void paint(QPainter& painter, const QRect& exposed) override;
    QString emptyText() const override { return pieces_.empty() ? message_ : QString(); }
    QString textAt(const QPointF& position) const override;
    bool pressKey(int key) override;
    void mousePressEvent(QMouseEvent* event) override;
    void mouseMoveEvent(QMouseEvent* event) override;
    void mouseReleaseEvent(QMouseEvent* event) override;
    void mouseDoubleClickEvent(QMouseEvent* event) override;
    void wheelEvent(QWheelEvent* event) override;

  private:
    QRectF strip() const;
    QRectF overview() const;
    double xOf(double byte) const;
    double byteAt(double x) const;
    double whole() const;  // bytes of the file
    void look(double begin, double length);
    int pieceAt(const QPointF& at) const;
    void zoom(double factor, double at);
    void choose(int piece);
    void paintPiece(QPainter& painter, const QRectF& rect, const BytePiece& piece, int index) const;
    void paintPieces(QPainter& painter, const QRectF& area, double begin, double end, bool labels) const;
    void paintAxis(QPainter& painter) const;

    std::vector<BytePiece> pieces_;
    std::function<QString(int)> text_, label_;
    QString message_;
    uint64_t total_ = 0;
    double begin_ = 0, end_ = 1;
    int current_ = -1;
    double dragFrom_ = -1, dragBegin_ = 0;
    bool dragged_ = false;
};

}  // namespace shardscope::ui
