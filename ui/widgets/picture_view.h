// A drawing of survey (survey/svg.h) as a painted view: what is drawn is the drawing that the page shows and
// that is exported. The arrow keys go from item to item; what belongs to the current one, or to the one under
// the pointer, is marked with it.
#pragma once

#include <QSvgRenderer>
#include <functional>
#include <string>

#include "survey/svg.h"
#include "ui/widgets/painted_view.h"

namespace shardscope::ui {

class PictureView : public PaintedView {
    Q_OBJECT
  public:
    // As wide and high as there is room; makes a picture for the theme. It owns what it reads.
    using Draw = std::function<DrawnPicture(double width, double height, bool dark)>;

    // `tall`: the view is as high as the picture, whatever the room; for scroll areas.
    PictureView(const QString& name, bool tall, QWidget* parent);
    // Null = nothing. `headline` says what the picture shows.
    void setPicture(Draw draw, const QString& headline);
    void setNone(const QString& why);  // what stands there instead
    std::string svg() const { return picture_.svg; }

  protected:
    void paint(QPainter& painter, const QRect& exposed) override;
    QString emptyText() const override;
    QString textAt(const QPointF& position) const override;
    bool pressKey(int key) override;
    bool event(QEvent* event) override;
    void mouseMoveEvent(QMouseEvent* event) override;
    void resizeEvent(QResizeEvent* event) override;
    void changeEvent(QEvent* event) override;

  private:
    void layOut();
    int itemAt(const QPointF& position) const;
    void light(int item);
    int itemBeside(int dx, int dy) const;

    const bool tall_;
    Draw draw_;
    DrawnPicture picture_;
    QString headline_, empty_;
    QSvgRenderer svg_;
    int current_ = -1, lit_ = -1;
    std::vector<DrawnRect> linked_;  // with lit_
};

}  // namespace shardscope::ui
