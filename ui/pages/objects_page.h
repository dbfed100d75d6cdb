// The non-tensor entries: a table of them, and the value of the chosen one as a tree that can be searched,
// copied and exported.
#pragma once

#include <QWidget>

#include "ui/models/object_table_model.h"
#include "ui/models/value_tree_model.h"

class QLabel;
class QLineEdit;
class QMenu;
class QStackedWidget;
class QTableView;
class QTreeView;

namespace shardscope::ui {

class Panel;

class ObjectsPage : public QWidget {
    Q_OBJECT
  public:
    explicit ObjectsPage(Session& session, QWidget* parent = nullptr);
    ~ObjectsPage() override;

    QTableView& table() { return *table_; }
    QTreeView& values() { return *tree_; }
    QLineEdit& valueSearch() { return *search_; }
    // The next or previous entry of the value that the search text is found in; wraps around.
    void findNext(bool forward);

  protected:
    void showEvent(QShowEvent* event) override;

  private:
    void makeObjects();
    void makeValues();
    void fitObjects();
    void refresh();
    void read();
    void showValue(const Value& value);
    void say(const QString& text);
    void fillValueMenu(QMenu& menu);
    void exportJson();
    void openBelow(const QModelIndex& top, int most);
    void showFound();

    Session& session_;
    CheckpointPtr of_;
    CheckpointPtr fitted_;  // whose names the columns are as wide as
    ObjectId object_ = kNone;
    ObjectTableModel* objects_;
    ValueTreeModel* model_;
    Panel *objectPanel_, *valuePanel_;
    QLineEdit *filter_, *search_;
    QLabel *found_, *message_, *title_;
    QTableView* table_;
    QTreeView* tree_;
    QStackedWidget* stack_;
    Ticket readTicket_, findTicket_;
    std::vector<ValueTreeModel::RowPath> hits_;
    QString searched_;
    int at_ = -1;
    bool following_ = false;
    bool waiting_ = false;  // for being shown before something is read
};

}  // namespace shardscope::ui
