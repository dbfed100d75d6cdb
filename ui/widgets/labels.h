// Labels whose text is never taken for markup, however a name in a checkpoint is spelled.
#pragma once

#include <QLabel>
#include <QString>
#include <QStyledItemDelegate>

namespace shardscope::ui {

// One line.
QLabel* plainLabel(QWidget* parent, const QString& text = {});
// Wraps.
QLabel* wrappedLabel(QWidget* parent, const QString& text = {});
// Wraps, and can be selected and copied.
QLabel* textBlock(QWidget* parent, const QString& text = {});

void makeBold(QWidget* widget, double size = 1);  // of the usual size
void setTextColor(QWidget& widget, const QColor& color);

// A name of a tensor that is too wide loses its first parts, then those behind its layer's number. What tells
// names apart stays, the number included. No part is abbreviated. Other texts lose their middle.
QString elidedName(const QString& name, const QFontMetrics& metrics, int width);

// 1, 2, 5, 10, 20, ...: the first of these that is not below `least`. For numbers beside an axis.
int roundStep(int least);

// Draws texts of a list or table so.
class NameDelegate : public QStyledItemDelegate {
  public:
    using QStyledItemDelegate::QStyledItemDelegate;

  protected:
    void initStyleOption(QStyleOptionViewItem* option, const QModelIndex& index) const override;
};

// One line that is elided where it has too little room.
class ElidedLabel : public QLabel {
  public:
    explicit ElidedLabel(QWidget* parent, Qt::TextElideMode mode = Qt::ElideRight);

    void setWhole(const QString& text);
    const QString& whole() const { return whole_; }  // text() is what is seen of it
    QSize sizeHint() const override;
    QSize minimumSizeHint() const override;

  protected:
    void resizeEvent(QResizeEvent* event) override;
    void changeEvent(QEvent* event) override;

  private:
    void elide();

    const Qt::TextElideMode mode_;
    QString whole_;
};

}  // namespace shardscope::ui
