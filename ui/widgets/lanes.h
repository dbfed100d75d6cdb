// What was read and written over time, as two small area charts above one another with one time axis. Its
// table twin is RateTableModel.
#pragma once

#include <QWidget>
#include <vector>

#include "ui/models/job_reader.h"

namespace shardscope::ui {

class Lanes : public QWidget {
    Q_OBJECT
  public:
    explicit Lanes(QWidget* parent = nullptr);

    // Bytes in each stretch of `step` seconds.
    void setRates(std::vector<JobRate> rates, double step);

    QSize sizeHint() const override { return {420, 150}; }
    QSize minimumSizeHint() const override { return {240, 110}; }

  protected:
    void paintEvent(QPaintEvent* event) override;
    void mouseMoveEvent(QMouseEvent* event) override;
    void keyPressEvent(QKeyEvent* event) override;
    void leaveEvent(QEvent* event) override;
    void focusOutEvent(QFocusEvent* event) override;

  private:
    QRectF plot(int lane) const;
    void point(int at);  // shows the values there; negative = none
    QString valueText(int at) const;

    std::vector<JobRate> rates_;
    double step_ = 1;
    int at_ = -1;
};

}  // namespace shardscope::ui
