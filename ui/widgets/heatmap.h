// A rectangle of a tensor's values as colours, with the element's place along both axes. Values that are not
// finite are hatched, not coloured. Arrow keys go from value to value.
#pragma once

#include <QImage>
#include <QWidget>

#include "ui/bridge/engine_service.h"

namespace shardscope::ui {

class Heatmap : public QWidget {
    Q_OBJECT
  public:
    explicit Heatmap(QWidget* parent = nullptr);

    void setValues(SliceValues values, int rowAxis, int columnAxis);  // -1 = no such axis
    void clear();
    const SliceValues& values() const { return values_; }
    // Colours by the logarithm of the magnitude instead of the value.
    void setLogScale(bool on);
    QPoint current() const { return current_; }  // (column, row) of the samples; (-1, -1) = none
    QString valueTextAt(const QPoint& sample) const;

    QSize sizeHint() const override { return {300, 240}; }
    QSize minimumSizeHint() const override { return {180, 140}; }

  signals:
    void menuRequested(const QPoint& globalPosition);

  protected:
    bool event(QEvent* event) override;
    void paintEvent(QPaintEvent* event) override;
    void mousePressEvent(QMouseEvent* event) override;
    void keyPressEvent(QKeyEvent* event) override;
    void contextMenuEvent(QContextMenuEvent* event) override;
    void focusInEvent(QFocusEvent* event) override;
    void focusOutEvent(QFocusEvent* event) override;

  private:
    QRectF plot() const;
    QRectF cellRect(const QPoint& sample) const;
    QPoint sampleAt(const QPointF& position) const;
    double value(const QPoint& sample) const;
    double scaled(double value) const;  // 0..1
    void measure();
    void setCurrent(const QPoint& sample);
    void describe();

    SliceValues values_;
    int rowAxis_ = -1, columnAxis_ = -1;
    bool log_ = false;
    double least_ = 0, greatest_ = 0;        // of the finite values
    double leastPower_ = 0, mostPower_ = 0;  // log10 of the magnitudes that are not zero
    size_t notFinite_ = 0;
    QPoint current_{-1, -1};
};

}  // namespace shardscope::ui
