// What a window shows while no checkpoint is open: the start page with a drop zone, running jobs, recents and
// formats. Or an opening under way, the steps of a run, or why it failed and what can be done.
#pragma once

#include <QWidget>

#include "ui/models/job_store.h"
#include "ui/models/recents.h"
#include "ui/models/session.h"

class QLabel;
class QListWidget;
class QProgressBar;
class QPushButton;
class QStackedWidget;
class QVBoxLayout;

namespace shardscope::ui {

class RunPage;

class StartPage : public QWidget {
    Q_OBJECT
  public:
    // All must outlive the page.
    StartPage(Session& session, Recents& recents, JobStore& jobs, QWidget* parent = nullptr);

    QListWidget& recentList() { return *recentList_; }
    RunPage& runPage() { return *run_; }
    void setDropHighlight(bool on);

  signals:
    void openDirectoryRequested();
    void openFileRequested();
    void openSampleRequested();
    void openRequested(const QString& path);
    void compareRequested(const QStringList& paths);
    void averageRequested(const QStringList& paths);
    void openRecentRequested(const QString& path);
    void openWithOptionsRequested();
    void openPlaceRequested();  // in a bucket, on the hub or on a web server
    void openOnHostRequested();
    void jobRequested(const QString& id);

  protected:
    void showEvent(QShowEvent* event) override;

  private:
    QWidget* makeStart();
    QWidget* makeOpening();
    QWidget* makeFailed();
    void update();
    void fillRecents();
    void fillJobs();
    void showFailure();
    void showSeveral(const std::vector<OneOfSeveral>& choices);

    Session& session_;
    Recents& recents_;
    JobStore& jobs_;
    QStackedWidget* stack_;
    RunPage* run_;
    QWidget* drop_;
    QListWidget *recentList_, *jobList_, *severalList_;  // the last: of a directory that holds several
    QLabel *recentTitle_, *jobTitle_;
    QLabel *opening_, *stage_;
    QLabel* failureTitle_;
    QLabel* failureText_;
    QLabel* failureHint_;
    QLabel* found_;
    QPushButton* again_;
    QVBoxLayout* choices_;
};

}  // namespace shardscope::ui
