// Amounts over time, as small area charts above one another with one time axis and one scale: what a job read
// and wrote (its table twin is RateTableModel), or what each of its workers wrote.
#pragma once

#include <QWidget>
#include <vector>

#include "ui/models/job_reader.h"

namespace shardscope::ui {

struct Lane {
    QString name;
    std::vector<double> bytes;  // in each stretch of time
    bool ended = false;         // before its time: drawn faintly
    bool operator==(const Lane&) const = default;
};

class Lanes : public QWidget {
    Q_OBJECT
  public:
    explicit Lanes(const QString& name, QWidget* parent = nullptr);

    // Stretches of `step` seconds; a lane that has fewer than the others has nothing in the rest.
    void setLanes(std::vector<Lane> lanes, double step);
    void setRates(const std::vector<JobRate>& rates, double step);

    QSize sizeHint() const override { return {420, minimumSizeHint().height() + 40}; }
    QSize minimumSizeHint() const override;

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

    double rate(size_t lane, size_t at) const;

    std::vector<Lane> lanes_;
    size_t stretches_ = 0;
    double step_ = 1;
    int at_ = -1;
};

}  // namespace shardscope::ui
