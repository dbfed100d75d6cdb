// What pages are made of: a figure with its name, cards in columns, and a titled panel around a view with its
// menu and its twin as a table.
#pragma once

#include <QFrame>
#include <QString>
#include <functional>
#include <vector>

#include "ui/widgets/exporting.h"
#include "ui/widgets/labels.h"

class QAbstractItemModel;
class QLabel;
class QMenu;
class QStackedWidget;
class QTableView;
class QToolButton;
class QVBoxLayout;

namespace shardscope::ui {

// One figure: "Bytes  2.1 TiB  in 1,000 files".
class Card : public QFrame {
    Q_OBJECT
  public:
    explicit Card(const QString& title, QWidget* parent = nullptr);

    void setValue(const QString& value);
    void setNote(const QString& note);
    // A figure that something is wrong with is marked with a glyph and a colored edge.
    void setMarked(bool marked);
    QString value() const { return value_; }
    const QString& note() const { return noteLabel_->whole(); }

    // The least width at which value and note are not cut.
    QSize sizeHint() const override;

  protected:
    void paintEvent(QPaintEvent* event) override;

  private:
    void describe();

    QLabel* titleLabel_;
    ElidedLabel *valueLabel_, *noteLabel_;
    QString value_;
    bool marked_ = false;
};

// Cards in columns of equal width, as many as fit.
class CardGrid : public QWidget {
    Q_OBJECT
  public:
    using QWidget::QWidget;
    // Takes the card as a child.
    Card* add(const QString& title);
    // Places the cards anew, after some were shown or hidden.
    void arrange();

    QSize minimumSizeHint() const override;

  protected:
    void resizeEvent(QResizeEvent* event) override;

  private:
    std::vector<Card*> cards_;
};

// A titled box around a view. Its menu (also the context menu of the view) holds copying, export and "Show as
// table".
class Panel : public QFrame {
    Q_OBJECT
  public:
    explicit Panel(const QString& title, QWidget* parent = nullptr);

    // The view, and the table that says the same; both become children. `twin` may be null.
    void setView(QWidget* view, QTableView* twin = nullptr);
    // A sentence over the view that says why nothing is to be seen; empty = none.
    void setEmptyText(const QString& text);
    // A widget in the title line, right of the title.
    void addToTitle(QWidget* widget);
    // Adds a line under the view.
    QLabel* addCaption();
    void setExports(const Exports& exports) { exports_ = exports; }
    // Adds what else the menu offers, each time it opens.
    void setMenuBuilder(std::function<void(QMenu&)> build) { build_ = std::move(build); }
    void showTable(bool table);
    bool showsTable() const;
    QTableView* table() const { return twin_; }

  private:
    void fillMenu(QMenu& menu);

    QVBoxLayout* layout_;
    class QHBoxLayout* title_;
    QToolButton* menuButton_;
    QStackedWidget* stack_;
    QLabel* empty_;
    QTableView* twin_ = nullptr;
    Exports exports_;
    std::function<void(QMenu&)> build_;
};

// A table as this program shows them: whole rows, sortable, no grid, copy with Ctrl+C.
QTableView* makeTable(QAbstractItemModel* model, const QString& accessibleName, QWidget* parent);
// Widths of columns after the first rows, within sensible bounds.
void fitColumns(QTableView& table);

}  // namespace shardscope::ui
