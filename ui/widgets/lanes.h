// Amounts over time, as small area charts above one another with one time axis and one scale. They show what
// a job or each of its workers read and wrote, or what threads spent their time on. The table twin of both is
// rateColumns().
#pragma once

#include <vector>

#include "ui/models/job_reader.h"
#include "ui/widgets/painted_view.h"

namespace shardscope::ui {

struct LanePart {
    QString name;                 // "reading"; empty where a lane has one part
    std::vector<double> amounts;  // in each stretch of time
    bool operator==(const LanePart&) const = default;
};
struct Lane {
    QString name;
    std::vector<LanePart> parts;  // stacked, the same ones in all lanes
    bool ended = false;           // before its time: drawn faintly
    bool operator==(const Lane&) const = default;
};

class Lanes : public PaintedView {
    Q_OBJECT
  public:
    enum class Unit : uint8_t { bytes, threads };  // a second; at work, of which the amounts are seconds

    explicit Lanes(const QString& name, QWidget* parent = nullptr);

    // Stretches of `step` seconds; a lane that has fewer than the others has nothing in the rest.
    void setLanes(std::vector<Lane> lanes, double step, Unit unit = Unit::bytes);
    // Lanes of one job: bytes read and written, or threads that read, compute and write.
    void setRates(const std::vector<JobRate>& rates, double step, Unit unit = Unit::bytes);
    // One lane of a worker: bytes written, or what its threads did, stacked.
    static Lane workerLane(const JobWorker& worker, Unit unit);

    QSize sizeHint() const override { return {420, minimumSizeHint().height() + 40}; }
    QSize minimumSizeHint() const override;

  protected:
    void paint(QPainter& painter, const QRect& exposed) override;
    QString emptyText() const override;
    bool pressKey(int key) override;
    void focusOutEvent(QFocusEvent* event) override;
    void mouseMoveEvent(QMouseEvent* event) override;
    void leaveEvent(QEvent* event) override;

  private:
    bool stacked() const { return !lanes_.empty() && lanes_.front().parts.size() > 1; }
    int top() const;  // of the first lane
    QRectF plot(int lane) const;
    void paintKey(QPainter& painter) const;
    void paintLane(QPainter& painter, size_t lane, double most) const;
    void paintAxis(QPainter& painter, double most) const;
    void point(int at);  // shows the values there; negative = none
    QString valueText(int at) const;
    QString amountText(double rate) const;

    double rate(const LanePart& part, size_t at) const;
    double rate(const Lane& lane, size_t at) const;  // of all its parts

    std::vector<Lane> lanes_;
    size_t stretches_ = 0;
    double step_ = 1;
    Unit unit_ = Unit::bytes;
    int at_ = -1;
};

}  // namespace shardscope::ui
