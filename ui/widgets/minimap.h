// The whole placement map in a corner, with the part that is in view; and a strip beside it that shows in
// which rows something is wrong. Both follow their map and move it.
#pragma once

#include <QImage>
#include <QWidget>

#include "ui/widgets/placement_map.h"

namespace shardscope::ui {

// Lies over the map's lower right corner; shown only while a part of the map is out of view.
class Minimap : public QWidget {
    Q_OBJECT
  public:
    explicit Minimap(PlacementMap* map);

    void setEnabledByUser(bool on);

  protected:
    void paintEvent(QPaintEvent* event) override;
    void mousePressEvent(QMouseEvent* event) override;
    void mouseMoveEvent(QMouseEvent* event) override;
    void changeEvent(QEvent* event) override;

  private:
    void follow();
    void render();
    void moveTo(const QPointF& position);

    PlacementMap* map_;
    QImage picture_;
    bool wanted_ = true;
};

// Stands beside the vertical scroll bar; a click goes to that part of the map.
class SeverityStrip : public QWidget {
    Q_OBJECT
  public:
    explicit SeverityStrip(PlacementMap* map, QWidget* parent = nullptr);
    QSize sizeHint() const override { return {14, 100}; }

  protected:
    void paintEvent(QPaintEvent* event) override;
    void mousePressEvent(QMouseEvent* event) override;
    void mouseMoveEvent(QMouseEvent* event) override;

  private:
    QRect bar() const;
    PlacementMap* map_;
};

}  // namespace shardscope::ui
