// What the views that paint themselves share: the surface, the text of an empty view, the focus frame,
// tooltips, menus, the description for screen readers. A view says what is where and what its keys do, and
// paints.
#pragma once

#include <QWidget>
#include <optional>

class QPainter;

namespace shardscope::ui {

class PaintedView : public QWidget {
    Q_OBJECT
  public:
    QSize sizeHint() const override { return hint_; }
    QSize minimumSizeHint() const override { return least_; }

  signals:
    // By the right button or the Menu key; without a receiver the parent gets the event.
    void menuRequested(const QPoint& globalPosition);

  protected:
    // Takes the keyboard, grows both ways. `name` is read out; `least` is the minimum size.
    PaintedView(const QString& name, QSize hint, QSize least, QWidget* parent);

    // On the surface, which is painted already. Not called while emptyText() is not empty.
    virtual void paint(QPainter& painter, const QRect& exposed) = 0;
    // Why there is nothing to see.
    virtual QString emptyText() const { return {}; }
    // What is at a position, in plain text of one or several lines: the tooltip. Empty = the view's own
    // tooltip.
    virtual QString textAt(const QPointF& position) const;
    // True when the view has used the key.
    virtual bool pressKey(int key);
    // Where the Menu key opens the menu.
    virtual QPointF menuPosition() const { return QRectF(rect()).center(); }
    // False where what is current has a frame of its own.
    virtual bool hasFocusFrame() const { return true; }

    // The item that Home, End and the two arrow keys of `direction` lead to from `current` (-1 = none);
    // nullopt for other keys, and without items.
    static std::optional<int> itemByKey(int key, int current, int count,
                                        Qt::Orientation direction = Qt::Horizontal);
    // Where an arrow key leads: (-1, 0) for Left; nullopt for other keys.
    static std::optional<QPoint> stepByKey(int key);
    // Sets the accessible description and tells screen readers when it has changed.
    void describe(const QString& text);

    bool event(QEvent* event) override;
    void paintEvent(QPaintEvent* event) override;
    void keyPressEvent(QKeyEvent* event) override;
    void contextMenuEvent(QContextMenuEvent* event) override;
    void focusInEvent(QFocusEvent* event) override;
    void focusOutEvent(QFocusEvent* event) override;

  private:
    const QSize hint_, least_;
};

}  // namespace shardscope::ui
