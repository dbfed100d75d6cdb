// The steps of a run: when each was saved, its format and size, and whether it is whole.
#pragma once

#include <QWidget>

#include "ui/models/run_steps.h"

class QComboBox;
class QLabel;
class QPushButton;
class QTableView;

namespace shardscope::ui {

class Panel;
class TextTableModel;

class RunPage : public QWidget {
    Q_OBJECT
  public:
    explicit RunPage(Session& session, QWidget* parent = nullptr);

    RunSteps& steps() { return steps_; }
    QTableView& table() { return *table_; }

  signals:
    void openRequested(const QString& path);
    // Two or more steps, in the order of training.
    void averageRequested(const QStringList& paths);

  private:
    void refresh();
    void openCurrent();
    void showChosen();
    int currentRow() const;             // of the steps; -1 = none
    QStringList selectedSteps() const;  // their paths, in the order of training

    Session& session_;
    RunSteps steps_;
    TextTableModel* model_;
    Panel* panel_;
    QTableView* table_;
    std::string chosen_;  // name of the step
    QLabel *title_, *summary_, *details_;
    QComboBox* level_;
    QPushButton *open_, *average_, *check_;
};

}  // namespace shardscope::ui
