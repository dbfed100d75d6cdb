// The tree of modules and tensors, with the filter line above it and what a filter without a hit offers.
#pragma once

#include <QWidget>

#include "ui/models/tensor_tree_model.h"

class QLabel;
class QLineEdit;
class QMenu;
class QStackedWidget;
class QTreeView;

namespace shardscope::ui {

class TreePanel : public QWidget {
    Q_OBJECT
  public:
    explicit TreePanel(Session& session, QWidget* parent = nullptr);

    QLineEdit& filterLine() { return *filter_; }
    QTreeView& view() { return *view_; }
    TensorTreeModel& model() { return *model_; }

  private:
    void makeTree();
    void makeColumns();
    void makeNothing();
    void follow();
    void select(const QModelIndex& now);
    void showSelection();
    void showCount();
    void fillMenu(QMenu& menu, const QModelIndex& index);
    void openUntilItBranches();
    void rememberExpanded();
    void restoreExpanded();

    Session& session_;
    TensorTreeModel* model_;
    QLineEdit* filter_;
    QLabel* count_;
    QTreeView* view_;
    QStackedWidget* stack_;
    QLabel* none_;
    QStringList expanded_;
    bool objectsOpen_ = false;
    CheckpointPtr shown_;
    bool following_ = false;
};

}  // namespace shardscope::ui
