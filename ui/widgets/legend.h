// One line that explains fills and states of a painted view; always visible beside it. Wraps where it is too
// long.
#pragma once

#include <QString>
#include <QWidget>
#include <functional>
#include <vector>

#include "survey/facts.h"

namespace shardscope::ui {

class Legend : public QWidget {
    Q_OBJECT
  public:
    struct Entry {
        QString text;
        std::function<void(QPainter&, const QRectF&)> paint;  // of the sample, some 22 x 14 px
    };
    explicit Legend(QWidget* parent = nullptr);

    void setEntries(std::vector<Entry> entries);
    // An entry that shows a state as paintHealth() does.
    static Entry state(Health health, const QString& text);

    bool hasHeightForWidth() const override { return true; }
    int heightForWidth(int width) const override;
    QSize sizeHint() const override;
    QSize minimumSizeHint() const override;

  protected:
    void paintEvent(QPaintEvent* event) override;

  private:
    // Places of the entries for a width; returns the height.
    int place(int width, std::vector<QRect>* places) const;

    std::vector<Entry> entries_;
};

}  // namespace shardscope::ui
