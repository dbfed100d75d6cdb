// Bytes per rank as columns, by rank or by size, with the median as a line. Where there are more ranks than
// pixels, a column stands for several and shows the most and the least of them. Ranks far off the median and
// damaged ones are marked with a glyph. Left and right move, Enter or a click selects.
#pragma once

#include <QString>
#include <vector>

#include "survey/facts.h"
#include "ui/widgets/painted_view.h"

namespace shardscope::ui {

struct RankBar {
    uint32_t rank = 0;
    uint64_t bytes = 0;
    Health health = Health::ok;
    QString label;       // "pp0 dp1 tp3"; may be empty
    QString state = {};  // "truncated"; empty = the word of its health
};

// Ranks whose bytes stand out: more than 5 % and five times the usual deviation off the median, or nothing at
// all. The farthest first.
std::vector<uint32_t> outlyingRanks(const std::vector<RankBar>& bars, uint64_t median);

class RankChart : public PaintedView {
    Q_OBJECT
  public:
    explicit RankChart(QWidget* parent = nullptr);

    void setBars(std::vector<RankBar> bars, uint64_t median);
    const std::vector<RankBar>& bars() const { return bars_; }
    const std::vector<uint32_t>& outliers() const { return outliers_; }
    void setSorted(bool bySize);
    void setSelected(const std::vector<uint32_t>& ranks);

    int columnCount() const { return static_cast<int>(columns_.size()); }
    QRectF columnRect(int column) const;  // full height of the plot
    // Ranks that a column stands for.
    std::vector<uint32_t> columnRanks(int column) const;
    int columnOf(uint32_t rank) const;
    int current() const { return current_; }

  signals:
    void selected(const std::vector<uint32_t>& ranks);

  protected:
    void paint(QPainter& painter, const QRect& exposed) override;
    QString emptyText() const override;
    QString textAt(const QPointF& position) const override;
    bool pressKey(int key) override;
    void resizeEvent(QResizeEvent* event) override;
    void mousePressEvent(QMouseEvent* event) override;

  private:
    struct Column {
        size_t first = 0, end = 0;  // in order_
        uint64_t least = 0, most = 0;
        Health health = Health::ok;
        uint32_t flagged = kNone;  // the one rank that is marked, where it is one
        bool outlier = false, selected = false;
    };
    void build();
    QRectF plot() const;
    double yOf(double bytes) const;
    int columnAt(const QPoint& at) const;
    QString columnText(int column) const;
    void choose(int column);
    void paintAxes(QPainter& painter) const;
    void paintMarks(QPainter& painter) const;

    std::vector<RankBar> bars_;
    std::vector<uint32_t> outliers_, selected_;
    std::vector<size_t> order_;  // bars from left to right
    std::vector<Column> columns_;
    uint64_t median_ = 0, most_ = 0;
    bool sorted_ = false;
    int current_ = -1;
};

}  // namespace shardscope::ui
