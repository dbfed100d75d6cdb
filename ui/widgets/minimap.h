// The whole placement map beside its grid, with the part that is in view, and marks of the rows in which
// something is wrong. It follows its map and moves it.
#pragma once

#include <QImage>
#include <QWidget>

#include "ui/widgets/placement_map.h"

namespace shardscope::ui {

class Minimap : public QWidget {
    Q_OBJECT
  public:
    explicit Minimap(PlacementMap* map, QWidget* parent = nullptr);

    void setWhole(bool on);  // false: the marks alone

  protected:
    void paintEvent(QPaintEvent* event) override;
    void mousePressEvent(QMouseEvent* event) override;
    void mouseMoveEvent(QMouseEvent* event) override;
    void changeEvent(QEvent* event) override;

  private:
    QRect bar() const;
    void render(const QSize& points);
    void paintWhole(QPainter& painter, const QRect& at);
    void paintMarks(QPainter& painter, const QRect& bar) const;
    void moveTo(const QPointF& position);

    PlacementMap* map_;
    QImage picture_;
    bool whole_ = true;
};

}  // namespace shardscope::ui
