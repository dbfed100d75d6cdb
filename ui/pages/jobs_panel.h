// The jobs of this user, from windows and command lines, and all that is known of the selected one. Fills a
// dock.
#pragma once

#include <QWidget>
#include <functional>

#include "ui/models/job_table_model.h"

class QAbstractItemModel;
class QCheckBox;
class QComboBox;
class QLayout;
class QLabel;
class QMenu;
class QPlainTextEdit;
class QPushButton;
class QStackedWidget;
class QTableView;
class QTabWidget;
class QTreeView;
class QTreeWidget;

namespace shardscope::ui {

class Lanes;

class JobsPanel : public QWidget {
    Q_OBJECT
  public:
    explicit JobsPanel(JobStore& store, QWidget* parent = nullptr);

    // Also before the job is listed: it is selected as soon as it is.
    void selectJob(const QString& id);
    QString selectedJob() const;

  signals:
    void openRequested(const QString& path);

  private:
    void buildTable();
    QWidget* buildDetails();
    void buildRates();
    void buildWorkers();
    void buildLog();
    void exportFrom(Lanes* lanes, const QString& name, std::function<const QAbstractItemModel*()> table);
    QComboBox* buildMeasure(const QString& name);
    QLayout* buildButtons();
    void showList();
    void showJob();
    void showWorkers(const Job& job);
    void showLog(const Job& job);
    void showOutcome(const Job& job);
    void act(Status (JobStore::*action)(const QString& id));
    void fillMenu(QMenu& menu);
    void launchFailed(const QString& id, const QString& why);

    JobStore& store_;
    JobTableModel jobs_;
    TextTableModel rates_;
    QString wanted_, shown_;
    QStackedWidget* stack_;
    QLabel* skipped_;
    QTreeView* table_;
    QLabel* summary_;
    QLabel* problem_;
    QTreeWidget* workers_;
    QTabWidget* tabs_;
    Lanes *lanes_, *workerLanes_;
    QComboBox *measure_, *workerMeasure_;  // bytes or time
    QWidget* workerTab_;
    QTableView* rateTable_;
    QCheckBox* asTable_;
    QPlainTextEdit* log_;
    QCheckBox* raw_;
    QTreeWidget* outcome_;
    QPushButton *cancel_, *resume_, *retry_, *open_, *folder_, *copy_, *remove_;
};

}  // namespace shardscope::ui
