// The global box of a tensor: its chunks at their offsets in the colors of their ranks, copies as depth. Gaps
// and overlaps are shapes of their own. On request the cuts of a target sharding go over them.
//
// Mouse: click takes a chunk, another click the next one that is there; double click opens its place in the
// table. Keys: arrows go to the neighbor, PgUp and PgDown through chunks that overlap, Home and
// End, Menu.
#pragma once

#include <QImage>
#include <memory>
#include <vector>

#include "survey/box_scene.h"
#include "ui/widgets/painted_view.h"

namespace shardscope::ui {

class TensorBox : public PaintedView {
    Q_OBJECT
  public:
    explicit TensorBox(QWidget* parent = nullptr);

    void setScene(std::shared_ptr<const BoxScene> scene);  // null = nothing to show
    const std::shared_ptr<const BoxScene>& scene() const { return scene_; }
    void setGhosts(std::vector<BoxShape> ghosts, std::vector<QString> labels);  // a label for each
    void setLogProportion(bool on);
    void setSelectedChunk(ChunkId chunk);  // by the program: no signal
    ChunkId selectedChunk() const { return selected_; }

    QRectF boxRect() const;  // of the tensor, in pixels
    QRectF shapeRect(const BoxShape& shape) const;
    // The topmost shape at a place; null = none.
    const BoxShape* shapeAt(const QPointF& position) const;
    QString shapeText(const BoxShape& shape) const;
    bool inProportion() const;  // false where true proportion would leave a thin line

  signals:
    void chunkClicked(ChunkId chunk);
    void chunkActivated(ChunkId chunk);

  protected:
    void paint(QPainter& painter, const QRect& exposed) override;
    QString textAt(const QPointF& position) const override;
    bool pressKey(int key) override;
    QPointF menuPosition() const override { return box_.center(); }
    void resizeEvent(QResizeEvent* event) override;
    void mousePressEvent(QMouseEvent* event) override;
    void mouseDoubleClickEvent(QMouseEvent* event) override;
    void changeEvent(QEvent* event) override;

  private:
    void measure();
    double aspect() const;  // width by height
    void take(ChunkId chunk);
    void goTo(int dx, int dy);
    void cycle(int step);
    void describeCurrent();
    QString rankText(uint32_t rank) const;
    void paintShape(QPainter& painter, const BoxShape& shape) const;
    void paintPicture(QPainter& painter);
    void paintLabel(QPainter& painter, const QRectF& rect, const BoxShape& shape) const;
    void paintAxes(QPainter& painter) const;

    std::shared_ptr<const BoxScene> scene_;
    std::vector<BoxShape> ghosts_;
    std::vector<QString> ghostLabels_;
    std::vector<int64_t> acrossEdges_, downEdges_;  // where the tensor is cut; empty when there are too many
    bool overlapShapes_ = false;                    // the scene has some
    bool logProportion_ = false;
    ChunkId selected_ = kNone;
    size_t selectedShape_ = SIZE_MAX;
    QRectF box_;
    bool inProportion_ = true;
    QImage picture_;  // of many shapes
};

}  // namespace shardscope::ui
