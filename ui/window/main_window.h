// The window of one checkpoint: tree, pages, details of what is selected. Below are findings, jobs and log,
// once they are asked for. All share one selection.
#pragma once

#include <QMainWindow>
#include <QPointer>
#include <functional>

#include "ui/models/session.h"
#include "ui/window/open_dialog.h"

class QLabel;
class QStackedWidget;
class QTabWidget;
class QToolButton;

namespace shardscope::ui {

class Banner;
class Breadcrumb;
class ConvertWizard;
class DetailsPanel;
class FindingsPanel;
class JobsPanel;
class Locator;
class LogPanel;
class StartPage;
class TaskProgress;
class TreePanel;
class Windows;
enum class ThemeChoice;

class MainWindow : public QMainWindow {
    Q_OBJECT
  public:
    explicit MainWindow(Windows& windows);
    ~MainWindow() override;

    Session& session() { return *session_; }
    FindingsPanel& findings() { return *findings_; }
    TreePanel& tree() { return *tree_; }
    Banner& banner() { return *banner_; }
    Locator& locator() { return *locator_; }
    JobsPanel& jobs() { return *jobs_; }
    StartPage& startPage() { return *start_; }
    QTabWidget& tabs() { return *tabs_; }

    void chooseDirectory();
    void chooseFile();
    void openSample();
    void openPath(const QString& path, const SourceOptions& options = {});
    OpenDialog* openWithOptions();  // shows the dialog
    OpenDialog* openPlace();        // likewise
    OpenDialog* openOnHost();
    void saveIndex();  // asks for the file
    void saveIndexAs(const QString& file);
    // Shows the wizard for this checkpoint, or for the chosen step of a run in its own window; null without
    // one here.
    ConvertWizard* convert();
    // Opens the last of these checkpoints in its window, and there the wizard to average it with the others.
    void average(const QStringList& steps);
    // Opens the first of two checkpoints in its window, and there the comparison with the second.
    void compare(const QStringList& steps);

    enum class Perspective { inspect, convert, compare };
    void setPerspective(Perspective perspective);
    void resetLayout();

  protected:
    void closeEvent(QCloseEvent* event) override;
    void dragEnterEvent(QDragEnterEvent* event) override;
    void dragLeaveEvent(QDragLeaveEvent* event) override;
    void dropEvent(QDropEvent* event) override;

  private:
    void makePages();
    void makeDocks();
    void makeActions();
    QAction* makeFileMenu();
    void makeEditMenu();
    void makeViewMenu();
    void makeGoMenu();
    QList<QAction*> makeCheckpointMenu();
    void makeToolBar(QAction* open, const QList<QAction*>& ofCheckpoint);
    void showShortcuts();
    void showAbout();
    void makeStatusBar();
    void follow();
    void stateChanged();
    void showBeingWritten();
    void showFinding(const QString& words);
    void showPane(QDockWidget* pane);
    void followSelection(const Selected& now);
    QToolButton* paneButton(QDockWidget* pane);
    void filesChanged();
    void connectionChanged();
    OpenDialog* showOpenDialog(OpenDialog::Where where);
    void offerOtherFormats();
    void validate(ValidateLevel level);
    void reportChanged();
    void keepVerdict();  // in the list of recent checkpoints
    void showStatus();
    void showTasks();
    void showDocks(bool show);
    void showJob(const QString& id);  // empty = none in particular
    void fillRecentMenu();
    void setTheme(ThemeChoice choice);
    void log(Severity severity, const QString& text);
    // Of a menu; without a text, a separator.
    struct Entry {
        QString text;
        QList<QKeySequence> keys;
        // open: only while a checkpoint is; step: on the page of a run, too, where a step is chosen
        enum When : uint8_t { always, open, step } when = always;
        std::function<void()> run;
    };
    QList<QAction*> add(QMenu* menu, const QList<Entry>& entries);
    void restoreLayout();

    Windows& windows_;
    std::shared_ptr<Session> session_;
    Banner* banner_;
    Breadcrumb* breadcrumb_;
    QStackedWidget* central_;
    StartPage* start_;
    QTabWidget* tabs_;
    TreePanel* tree_;
    DetailsPanel* details_;
    FindingsPanel* findings_;
    JobsPanel* jobs_;
    LogPanel* log_;
    Locator* locator_;
    QPointer<ConvertWizard> wizard_;
    // Opens a checkpoint in a window, and goes on there once it is open; never where it could not be opened.
    void openThen(const QString& path, std::function<void(MainWindow&)> then);
    void whenOpened(std::function<void()> then);
    QMetaObject::Connection opened_;  // while something waits for the checkpoint
    QDockWidget *treeDock_, *detailsDock_, *findingsDock_, *jobsDock_, *logDock_;
    QList<QDockWidget*> panes_;  // the last three: at the bottom, one at a time
    QToolButton *findingsButton_, *jobsButton_;
    QMenu *recentMenu_, *viewMenu_;
    QAction *back_, *forward_;
    QList<QAction*> actions_, checkpointActions_, stepActions_;
    QLabel *depth_, *task_;
    TaskProgress* taskProgress_;
    QToolButton* taskCancel_;
    Ticket shownTask_;  // which these three are about
    QByteArray defaultState_, hiddenState_;
    Ticket indexTicket_;
    bool docksShown_ = true, somethingSelected_ = false;
};

}  // namespace shardscope::ui
