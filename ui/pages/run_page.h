// The steps of a run, as a timeline and as a table: when each was saved, by how many ranks, its format and
// size. It shows whether each is whole, and the one to resume from.
#pragma once

#include <QWidget>
#include <set>
#include <string>

#include "ui/models/run_steps.h"

class QComboBox;
class QHBoxLayout;
class QLabel;
class QPushButton;
class QTableView;

namespace shardscope::ui {

class Panel;
class RunTimeline;
class PictureView;
class TextTableModel;

class RunPage : public QWidget {
    Q_OBJECT
  public:
    explicit RunPage(Session& session, QWidget* parent = nullptr);

    RunSteps& steps() { return steps_; }
    QTableView& table() { return *table_; }
    QString chosenPath() const;  // of the current step; empty = none
    RunTimeline& timeline() { return *timeline_; }
    PictureView& charts() { return *charts_; }

  signals:
    void resumes(const QString& step);  // the newest whole one
    void openRequested(const QString& path);
    // The older step, then the newer one.
    void compareRequested(const QStringList& paths);
    // Two or more steps, in the order of training.
    void averageRequested(const QStringList& paths);

  private:
    void refresh();
    void openCurrent();
    void makeTable();
    QHBoxLayout* makeButtons();
    Panel* makeCharts();
    void showCharts();
    void showSteps();
    void showChosen();
    void showSelected();  // what can be done with the selected steps
    void select(const std::set<std::string>& names);
    int currentRow() const;             // of the steps; -1 = none
    QStringList selectedSteps() const;  // their paths, in the order of training

    Session& session_;
    RunSteps steps_;
    TextTableModel* model_;
    Panel* panel_;
    RunTimeline* timeline_;
    Panel* norms_;
    PictureView* charts_;
    std::shared_ptr<const ValueCharts> shownCharts_;
    QTableView* table_;
    std::string chosen_;              // name of the step
    std::set<std::string> selected_;  // likewise
    QLabel *title_, *summary_, *advice_, *details_, *marks_;
    QComboBox* level_;
    QPushButton *copyNewest_, *open_, *compare_, *average_, *check_;
};

}  // namespace shardscope::ui
