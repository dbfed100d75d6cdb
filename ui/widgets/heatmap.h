// A rectangle of a tensor's values as colors, with the element's place along both axes. Values that are not
// finite are hatched, not colored. Arrow keys go from value to value.
#pragma once

#include <QImage>

#include "ui/bridge/engine_service.h"
#include "ui/widgets/painted_view.h"

namespace shardscope::ui {

class Heatmap : public PaintedView {
    Q_OBJECT
  public:
    explicit Heatmap(QWidget* parent = nullptr);

    void setValues(SliceValues values, int rowAxis, int columnAxis);  // -1 = no such axis
    void clear();
    const SliceValues& values() const { return values_; }
    // Colors by the logarithm of the magnitude instead of the value.
    void setLogScale(bool on);
    QPoint current() const { return current_; }  // (column, row) of the samples; (-1, -1) = none
    QString valueTextAt(const QPoint& sample) const;

  protected:
    void paint(QPainter& painter, const QRect& exposed) override;
    QString textAt(const QPointF& position) const override;
    bool pressKey(int key) override;
    void mousePressEvent(QMouseEvent* event) override;

  private:
    QRectF plot() const;
    QRectF cellRect(const QPoint& sample) const;
    QPoint sampleAt(const QPointF& position) const;
    double value(const QPoint& sample) const;
    double scaled(double value) const;  // 0..1
    void measure();
    void setCurrent(const QPoint& sample);
    void describeCurrent();

    SliceValues values_;
    int rowAxis_ = -1, columnAxis_ = -1;
    bool log_ = false;
    double least_ = 0, greatest_ = 0;        // of the finite values
    double leastPower_ = 0, mostPower_ = 0;  // log10 of the magnitudes that are not zero
    size_t notFinite_ = 0;
    QPoint current_{-1, -1};
};

}  // namespace shardscope::ui
