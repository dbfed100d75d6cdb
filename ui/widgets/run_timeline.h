// The steps of a run by the time of their saves, each a bar as high as its size with a mark for its verdict.
// Time between saves stands under the bars, where the ranks changed above them. Where times tell nothing
// steps stand by their numbers. Left and right move, Enter opens; marks that have no room leave theirs to
// those that matter more.
#pragma once

#include <QString>
#include <functional>
#include <optional>
#include <vector>

#include "ui/widgets/painted_view.h"
#include "validate/validate.h"

namespace shardscope::ui {

struct RunMark {
    QString name;
    int64_t savedMs = 0;  // since 1970; 0 = unknown
    int64_t step = -1;    // -1 = it has no number
    uint64_t bytes = 0;
    std::optional<Verdict> verdict;  // nullopt = not judged
    bool saving = false;
    bool newestWhole = false;
    uint32_t ranks = 0;
    uint32_t ranksBefore = 0;  // 0 = the same
};

class RunTimeline : public PaintedView {
    Q_OBJECT
  public:
    explicit RunTimeline(QWidget* parent = nullptr);

    // Newest first, as the run's steps are; an index of a mark is its row there. `text` says all that is
    // known of one, a line each, and must own what it reads.
    void setMarks(std::vector<RunMark> marks, std::function<QString(int mark)> text);
    const std::vector<RunMark>& marks() const { return marks_; }
    void setCurrent(int mark);  // -1 = none
    int current() const { return current_; }
    void setSelected(std::vector<int> marks);

    double xOf(int mark) const { return x_[static_cast<size_t>(mark)]; }
    // Those whose verdict is shown by a mark of its own, not by the bar alone.
    std::vector<int> headed() const;

  signals:
    void chosen(int mark);
    void activated(int mark);

  protected:
    void paint(QPainter& painter, const QRect& exposed) override;
    QString emptyText() const override;
    QString textAt(const QPointF& position) const override;
    bool pressKey(int key) override;
    void changeEvent(QEvent* event) override;
    void resizeEvent(QResizeEvent* event) override;
    void mousePressEvent(QMouseEvent* event) override;
    void mouseDoubleClickEvent(QMouseEvent* event) override;

  private:
    enum class Axis { time, step, order };
    void layOut();
    void choose(int mark);
    void describeCurrent();
    int markAt(double x, double within) const;  // the nearest; -1 = none
    const QRectF& plot() const { return plot_; }
    double laneHeight() const;
    double yOf(uint64_t bytes) const;
    double positionOf(const RunMark& mark, size_t index) const;
    QRectF barOf(int mark) const;
    QRectF headOf(int mark) const;
    void paintSizes(QPainter& painter) const;
    void paintTimes(QPainter& painter) const;
    void paintNumbers(QPainter& painter) const;
    void paintGaps(QPainter& painter) const;
    void paintBar(QPainter& painter, int mark) const;
    void paintHead(QPainter& painter, int mark) const;
    void paintRankChanges(QPainter& painter) const;
    void paintNewest(QPainter& painter) const;

    std::vector<RunMark> marks_;
    std::function<QString(int)> text_;
    std::vector<double> x_;   // by mark
    std::vector<int> order_;  // from left to right
    std::vector<int> selected_;
    QRectF plot_;
    Axis axis_ = Axis::time;
    double from_ = 0, to_ = 0;  // of the axis, in its unit
    double barWidth_ = 1;
    uint64_t most_ = 0;
    bool ranksChange_ = false;
    int current_ = -1;
};

}  // namespace shardscope::ui
