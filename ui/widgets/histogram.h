// How the values of a tensor are spread: a bar for each bin. Arrow keys go from bar to bar.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "ui/widgets/painted_view.h"

namespace shardscope::ui {

class Histogram : public PaintedView {
    Q_OBJECT
  public:
    explicit Histogram(QWidget* parent = nullptr);

    // Equal bins over [least, greatest]; no bins = nothing to show.
    void setBins(std::vector<uint64_t> bins, double least, double greatest);
    void setLogCounts(bool on);
    const std::vector<uint64_t>& bins() const { return bins_; }
    std::pair<double, double> binRange(int bin) const;
    int currentBin() const { return current_; }  // -1 = none
    QString binText(int bin) const;

  protected:
    void paint(QPainter& painter, const QRect& exposed) override;
    QString textAt(const QPointF& position) const override;
    bool pressKey(int key) override;
    void mousePressEvent(QMouseEvent* event) override;

  private:
    QRectF plot() const;
    int binAt(const QPointF& position) const;
    double height(uint64_t count) const;  // 0..1
    void setCurrent(int bin);
    void describeCurrent();

    std::vector<uint64_t> bins_;
    uint64_t most_ = 0, sum_ = 0;
    double least_ = 0, greatest_ = 0;
    bool log_ = false;
    int current_ = -1;
};

// A number as short as it can be read: "0.0123", "-1.5e-7".
QString valueText(double value);

}  // namespace shardscope::ui
