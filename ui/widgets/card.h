// What pages are made of: a titled panel around a view, with its menu and its twin as a table.
#pragma once

#include <QFrame>
#include <QString>
#include <functional>
#include <vector>

#include "ui/widgets/exporting.h"

class QAbstractItemModel;
class QLabel;
class QMenu;
class QStackedWidget;
class QTableView;
class QTreeView;
class QToolButton;
class QVBoxLayout;

namespace shardscope::ui {

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
// The same for a tree; a flat one has no branches.
void dressTree(QTreeView& tree, const QString& accessibleName, bool flat);

// Selects a row and brings it into view, also of a table that is about to be shown.
void showRow(QTableView& table, int row);
// Widths of columns after the first rows, within sensible bounds.
void fitColumns(QTableView& table);

}  // namespace shardscope::ui
