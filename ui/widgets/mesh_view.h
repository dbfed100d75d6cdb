// The picture of the mesh (survey/mesh_picture.h): stages as boxes, in each its ranks with bytes and states.
// The groups of the rank under the pointer, or of the current one, glow in the colors of their axes. Arrow
// keys move, a click or Enter selects the ranks of a cell.
#pragma once

#include <memory>

#include "survey/mesh_picture.h"
#include "ui/widgets/painted_view.h"

namespace shardscope::ui {

class MeshView : public PaintedView {
    Q_OBJECT
  public:
    explicit MeshView(QWidget* parent = nullptr);

    // The view is as high as the picture needs in its width.
    void setPicture(std::shared_ptr<const MeshPicture> picture);  // null = nothing to show
    const std::shared_ptr<const MeshPicture>& picture() const { return picture_; }
    const MeshDrawing& drawing() const { return drawing_; }
    QPointF centerOf(int cell) const;
    int current() const { return current_; }
    QSize sizeHint() const override { return {PaintedView::sizeHint().width(), minimumHeight()}; }
    void setSelected(const std::vector<uint32_t>& ranks);  // by the program: no signal

  signals:
    void selected(const std::vector<uint32_t>& ranks);

  protected:
    void paint(QPainter& painter, const QRect& exposed) override;
    QString emptyText() const override;
    QString textAt(const QPointF& position) const override;
    bool pressKey(int key) override;
    bool event(QEvent* event) override;
    void resizeEvent(QResizeEvent* event) override;
    void changeEvent(QEvent* event) override;
    void mousePressEvent(QMouseEvent* event) override;
    void mouseMoveEvent(QMouseEvent* event) override;

  private:
    void layOut();
    QRectF rectOf(const DrawnRect& r) const;  // in the view
    int cellAt(const QPointF& at) const;
    void choose(int cell);
    void hover(int cell);
    QString cellText(int cell) const;
    void paintBoxes(QPainter& painter) const;
    void paintCell(QPainter& painter, const MeshDrawing::Cell& cell) const;
    void paintKeys(QPainter& painter) const;
    void paintGroups(QPainter& painter) const;

    std::shared_ptr<const MeshPicture> picture_;
    double zoom_ = 1;
    MeshDrawing drawing_;
    std::vector<uint32_t> selected_;  // ascending
    int current_ = -1, hover_ = -1;
};

}  // namespace shardscope::ui
