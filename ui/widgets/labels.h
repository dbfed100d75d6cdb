// Labels whose text is never taken for markup, however a name in a checkpoint is spelled.
#pragma once

#include <QLabel>
#include <QString>

namespace shardscope::ui {

// One line.
QLabel* plainLabel(QWidget* parent, const QString& text = {});
// Wraps.
QLabel* wrappedLabel(QWidget* parent, const QString& text = {});
// Wraps, and can be selected and copied.
QLabel* textBlock(QWidget* parent, const QString& text = {});

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
