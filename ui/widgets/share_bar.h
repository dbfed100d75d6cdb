// Shares of a whole as one bar with a legend under it. Left and right move between the shares, Enter or a
// click activates one.
#pragma once

#include <QColor>
#include <QString>
#include <vector>

#include "ui/widgets/painted_view.h"

namespace shardscope::ui {

class ShareBar : public PaintedView {
    Q_OBJECT
  public:
    struct Share {
        QString label;
        double amount = 0;  // in any unit
        QString text;       // the amount as it is shown
        QColor color;
    };
    explicit ShareBar(QWidget* parent = nullptr);

    void setShares(std::vector<Share> shares);
    const std::vector<Share>& shares() const { return shares_; }
    QRectF shareRect(int index) const;  // of the bar's piece
    int current() const { return current_; }

    bool hasHeightForWidth() const override { return true; }
    int heightForWidth(int width) const override;
    QSize sizeHint() const override;
    QSize minimumSizeHint() const override;

  signals:
    void activated(int index);

  protected:
    void paint(QPainter& painter, const QRect& exposed) override;
    QString textAt(const QPointF& position) const override;
    bool pressKey(int key) override;
    bool hasFocusFrame() const override { return current_ < 0; }
    void mousePressEvent(QMouseEvent* event) override;

  private:
    QString entryText(size_t index) const;
    // Where the legend's entries stand; returns the height of all.
    int placeLegend(int width, std::vector<QRect>* places) const;
    int shareAt(const QPoint& at) const;  // -1 when nothing is there

    std::vector<Share> shares_;
    double total_ = 0;
    int current_ = -1;
};

}  // namespace shardscope::ui
