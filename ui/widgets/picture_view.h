// A drawing of survey (survey/svg.h) as a painted view: what is drawn is the drawing that the page shows and
// that is exported. The arrow keys go from item to item.
#pragma once

#include <QSvgRenderer>
#include <functional>
#include <string>
#include <vector>

#include "survey/svg.h"
#include "ui/widgets/painted_view.h"

namespace shardscope::ui {

struct Picture {
    std::string svg;
    double width = 0, height = 0;
    std::vector<std::pair<DrawnRect, std::string>> items;  // what is there, in plain text
};

class PictureView : public PaintedView {
    Q_OBJECT
  public:
    // As wide and high as there is room; makes a picture for the theme. It owns what it reads.
    using Draw = std::function<Picture(double width, double height, bool dark)>;

    // `tall`: the view is as high as the picture, whatever the room; for scroll areas.
    PictureView(const QString& name, bool tall, QWidget* parent);
    // Null = nothing. `headline` says what the picture shows.
    void setPicture(Draw draw, const QString& headline);
    std::string svg() const { return picture_.svg; }

  protected:
    void paint(QPainter& painter, const QRect& exposed) override;
    QString textAt(const QPointF& position) const override;
    bool pressKey(int key) override;
    void resizeEvent(QResizeEvent* event) override;
    void changeEvent(QEvent* event) override;

  private:
    void layOut();
    int itemBeside(int dx, int dy) const;

    const bool tall_;
    Draw draw_;
    Picture picture_;
    QString headline_;
    QSvgRenderer svg_;
    int current_ = -1;
};

}  // namespace shardscope::ui
