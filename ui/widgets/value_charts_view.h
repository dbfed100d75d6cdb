// Norms over the steps of a run (survey/value_charts.h), as a painted view that is as high as its charts
// need: what is drawn is the drawing that the page shows and that is exported. The arrow keys go from chart
// to chart.
#pragma once

#include <QSvgRenderer>
#include <memory>

#include "survey/value_charts.h"
#include "ui/widgets/painted_view.h"

namespace shardscope::ui {

class ValueChartsView : public PaintedView {
    Q_OBJECT
  public:
    explicit ValueChartsView(QWidget* parent = nullptr);
    void setCharts(std::shared_ptr<const ValueCharts> charts);
    const std::shared_ptr<const ValueCharts>& charts() const { return charts_; }
    std::string svg() const;  // for an export
    bool hasHeightForWidth() const override { return true; }
    int heightForWidth(int width) const override;

  protected:
    void paint(QPainter& painter, const QRect& exposed) override;
    QString textAt(const QPointF& position) const override;
    bool pressKey(int key) override;
    void resizeEvent(QResizeEvent* event) override;
    void changeEvent(QEvent* event) override;

  private:
    void layOut();

    std::shared_ptr<const ValueCharts> charts_;
    ValueCharts::Drawing drawing_;
    QSvgRenderer svg_;
    int current_ = -1;
};

}  // namespace shardscope::ui
