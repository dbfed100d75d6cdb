#include "ui/window/main_window.h"

#include <QAction>
#include <QActionGroup>
#include <QApplication>
#include <QCloseEvent>
#include <QDockWidget>
#include <QLabel>
#include <QMenuBar>
#include <QMessageBox>
#include <QPushButton>
#include <QSettings>
#include <QStackedWidget>
#include <QStatusBar>
#include <QTabWidget>
#include <QToolBar>
#include <QToolButton>
#include <QTreeView>
#include <QVBoxLayout>
#include <functional>

#include "ui/bridge/hosts.h"
#include "ui/models/texts.h"
#include "ui/pages/compare_page.h"
#include "ui/pages/convert_wizard.h"
#include "ui/pages/details_panel.h"
#include "ui/pages/files_page.h"
#include "ui/pages/findings_panel.h"
#include "ui/pages/jobs_panel.h"
#include "ui/pages/log_panel.h"
#include "ui/pages/objects_page.h"
#include "ui/pages/overview_page.h"
#include "ui/pages/placement_page.h"
#include "ui/pages/run_page.h"
#include "ui/pages/start_page.h"
#include "ui/pages/tensor_page.h"
#include "ui/pages/tree_panel.h"
#include "ui/widgets/banner.h"
#include "ui/widgets/building.h"
#include "ui/widgets/exporting.h"
#include "ui/widgets/symbols.h"
#include "ui/widgets/task_progress.h"
#include "ui/widgets/theme.h"
#include "ui/window/breadcrumb.h"
#include "ui/window/locator.h"
#include "ui/window/shortcut_sheet.h"
#include "ui/window/windows.h"

namespace shardscope::ui {

namespace {

// Raised when docks are added or renamed, so that an old layout is not forced on them.
constexpr int kLayoutVersion = 2;
constexpr QSize kFirstSize{1440, 900};
constexpr int kPaneHeight = 260;
constexpr double kShowTaskAfter = 1;  // seconds
const QString kGeometryKey = QStringLiteral("window/geometry");
const QString kDetailsKey = QStringLiteral("window/details");
const QString kStateKey = QStringLiteral("window/state");
const QString kThemeKey = QStringLiteral("window/theme");

QDockWidget* dock(QMainWindow* window, const QString& name, const QString& title, QWidget* contents,
                  Qt::DockWidgetArea area) {
    auto* dock = new QDockWidget(title, window);
    dock->setObjectName(name);
    dock->setWidget(contents);
    window->addDockWidget(area, dock);
    return dock;
}

}  // namespace

MainWindow::MainWindow(Windows& windows)
    : windows_(windows), session_(std::make_shared<Session>(windows.engine())) {
    // The slot, and with it the session, goes when all children are gone, which refer to it.
    connect(this, &QObject::destroyed, [session = session_] {});
    setAttribute(Qt::WA_DeleteOnClose);
    setAcceptDrops(true);
    setDockOptions(AnimatedDocks | AllowTabbedDocks | AllowNestedDocks);
    setCorner(Qt::BottomLeftCorner, Qt::LeftDockWidgetArea);
    setCorner(Qt::BottomRightCorner, Qt::BottomDockWidgetArea);
    resize(kFirstSize.boundedTo(screen()->availableSize()));
    session_->validation().setSuppressions(&windows_.suppressions());
    makePages();
    makeDocks();
    locator_ = new Locator(
        *session_, [this] { return actions_; }, this);
    makeActions();
    makeStatusBar();
    follow();
    defaultState_ = saveState(kLayoutVersion);
    restoreLayout();
    stateChanged();
}

MainWindow::~MainWindow() {
    disconnect(session_.get(), nullptr, this, nullptr);
    disconnect(&session_->tasks(), nullptr, this, nullptr);
}

// ------------------------------------------------------------------ parts

void MainWindow::makePages() {
    auto* center = new QWidget(this);
    auto* layout = layoutOf<QVBoxLayout>(center, {0, 0, 0, 0}, 0);
    banner_ = new Banner(center);
    layout->addWidget(banner_);
    central_ = new QStackedWidget(center);
    layout->addWidget(central_, 1);
    start_ = new StartPage(*session_, windows_.recents(), windows_.jobs(), central_);
    central_->addWidget(start_);
    tabs_ = new QTabWidget(central_);
    tabs_->setDocumentMode(true);
    tabs_->setAccessibleName(tr("Pages"));
    auto* overview = new OverviewPage(*session_, tabs_);
    tabs_->addTab(overview, tr("Overview"));
    tabs_->addTab(new PlacementPage(*session_, tabs_), tr("Placement"));
    tabs_->addTab(new TensorPage(*session_, tabs_), tr("Tensor"));
    tabs_->addTab(new FilesPage(*session_, tabs_), tr("Files"));
    tabs_->addTab(new ComparePage(*session_, tabs_), tr("Compare"));
    tabs_->addTab(new ObjectsPage(*session_, tabs_), tr("Objects"));
    central_->addWidget(tabs_);
    start_->setMinimumSize(400, 200);
    tabs_->setMinimumSize(400, 200);
    setCentralWidget(center);
    connect(overview, &OverviewPage::validateRequested, this, &MainWindow::validate);
    connect(overview, &OverviewPage::convertRequested, this, &MainWindow::convert);
    connect(overview, &OverviewPage::reshardRequested, this, [this](const QString& mesh) {
        const auto to = parseMesh(mesh.toStdString());
        if (ConvertWizard* wizard = to.ok() ? convert() : nullptr) wizard->reshardTo(*to);
    });
    connect(overview, &OverviewPage::findingRequested, this, &MainWindow::showFinding);
    connect(overview, &OverviewPage::causeRequested, this, [this](const QString& words) {
        if (!findings_->goTo(words)) showFinding(words);
    });
    connect(tabs_, &QTabWidget::currentChanged, this,
            [this](int index) { session_->selection().setPage(static_cast<Page>(index)); });
    connect(start_, &StartPage::jobRequested, this, &MainWindow::showJob);
    connect(start_, &StartPage::openDirectoryRequested, this, &MainWindow::chooseDirectory);
    connect(start_, &StartPage::openFileRequested, this, &MainWindow::chooseFile);
    connect(start_, &StartPage::openSampleRequested, this, &MainWindow::openSample);
    connect(start_, &StartPage::openRequested, this, [this](const QString& path) {
        // Steps are opened as their run was.
        openPath(path, session_->run() ? session_->options() : SourceOptions());
    });
    connect(start_, &StartPage::compareRequested, this, &MainWindow::compare);
    connect(start_, &StartPage::averageRequested, this, &MainWindow::average);
    connect(start_, &StartPage::openWithOptionsRequested, this, &MainWindow::openWithOptions);
    connect(start_, &StartPage::openPlaceRequested, this, &MainWindow::openPlace);
    connect(start_, &StartPage::openOnHostRequested, this, &MainWindow::openOnHost);
    // As it was opened the last time.
    connect(start_, &StartPage::openRecentRequested, this,
            [this](const QString& path) { openPath(path, windows_.recents().optionsOf(path)); });
}

void MainWindow::makeDocks() {
    tree_ = new TreePanel(*session_, this);
    details_ = new DetailsPanel(*session_, this);
    findings_ = new FindingsPanel(*session_, windows_.suppressions(), this);
    jobs_ = new JobsPanel(windows_.jobs(), this);
    log_ = new LogPanel(this);
    treeDock_ = dock(this, "tree", tr("Tensors"), tree_, Qt::LeftDockWidgetArea);
    detailsDock_ = dock(this, "details", tr("Details"), details_, Qt::RightDockWidgetArea);
    findingsDock_ = dock(this, "findings", tr("Findings"), findings_, Qt::BottomDockWidgetArea);
    jobsDock_ = dock(this, "jobs", tr("Jobs"), jobs_, Qt::BottomDockWidgetArea);
    logDock_ = dock(this, "log", tr("Log"), log_, Qt::BottomDockWidgetArea);
    panes_ = {findingsDock_, jobsDock_, logDock_};
    for (QDockWidget* pane : panes_) {
        pane->setTitleBarWidget(new QWidget(pane));  // its button in the status bar names it
        pane->setFeatures(QDockWidget::DockWidgetClosable);
        pane->hide();
        connect(pane->toggleViewAction(), &QAction::triggered, this, [this, pane](bool shown) {
            if (shown) showPane(pane);
        });
    }
    detailsDock_->hide();
    resizeDocks({treeDock_, detailsDock_}, {320, 260}, Qt::Horizontal);
    // A small screen decides what is seen, not the contents.
    tree_->setMinimumSize(160, 100);
    details_->setMinimumSize(160, 100);
    for (QWidget* panel : std::initializer_list<QWidget*>{findings_, jobs_, log_})
        panel->setMinimumSize(240, 110);
    connect(jobs_, &JobsPanel::openRequested, this, [this](const QString& path) { windows_.open(path); });
}

QList<QAction*> MainWindow::add(QMenu* menu, const QList<Entry>& entries) {
    QList<QAction*> added;
    for (const Entry& entry : entries) {
        if (entry.text.isEmpty()) {
            menu->addSeparator();
            continue;
        }
        QAction* action = menu->addAction(entry.text, this, entry.run);
        action->setShortcuts(entry.keys);
        if (entry.when == Entry::open) checkpointActions_ += action;
        if (entry.when == Entry::step) stepActions_ += action;
        added += action;
    }
    actions_ += added;
    return added;
}

void MainWindow::makeActions() {
    QAction* open = makeFileMenu();
    makeEditMenu();
    makeViewMenu();
    makeGoMenu();
    const QList<QAction*> ofCheckpoint = makeCheckpointMenu();
    add(menuBar()->addMenu(tr("&Jobs")),
        {{tr("&Show jobs"), {QKeySequence("Ctrl+J")}, Entry::always, [this] { showJob({}); }}});
    add(menuBar()->addMenu(tr("&Help")),
        {{tr("&Keyboard shortcuts"),
          {QKeySequence("?"), QKeySequence("F1")},
          Entry::always,
          [this] { showShortcuts(); }},
         {tr("&About Shardscope"), {}, Entry::always, [this] { showAbout(); }}});
    makeToolBar(open, ofCheckpoint);
}

// The action that opens a directory.
QAction* MainWindow::makeFileMenu() {
    QMenu* menu = menuBar()->addMenu(tr("&File"));
    const QList<QAction*> opening =
        add(menu,
            {{tr("&Open directory…"), {QKeySequence::Open}, Entry::always, [this] { chooseDirectory(); }},
             {tr("Open &file…"), {QKeySequence("Ctrl+Shift+O")}, Entry::always, [this] { chooseFile(); }},
             {tr("Open &with options…"),
              {QKeySequence("Ctrl+Alt+O")},
              Entry::always,
              [this] { openWithOptions(); }},
             {tr("Open &place…"), {QKeySequence("Ctrl+Shift+L")}, Entry::always, [this] { openPlace(); }},
             {tr("Open on &host…"), {QKeySequence("Ctrl+Shift+H")}, Entry::always, [this] { openOnHost(); }},
             {tr("Open &sample checkpoint"), {}, Entry::always, [this] { openSample(); }}});
    recentMenu_ = menu->addMenu(tr("Open &recent"));
    connect(recentMenu_, &QMenu::aboutToShow, this, &MainWindow::fillRecentMenu);
    fillRecentMenu();
    add(menu,
        {{},
         {tr("&Reload"), {QKeySequence::Refresh}, Entry::open, [this] { session_->reload(); }},
         {tr("Save &index…"), {QKeySequence("Ctrl+Shift+I")}, Entry::open, [this] { saveIndex(); }},
         {tr("&New window"), {QKeySequence::New}, Entry::always, [this] { windows_.newWindow()->show(); }},
         {},
         {tr("&Close"), {QKeySequence::Close}, Entry::always, [this] { close(); }},
         {tr("&Quit"), {QKeySequence("Ctrl+Q")}, Entry::always, [] { QApplication::closeAllWindows(); }}});
    return opening.front();
}

void MainWindow::makeEditMenu() {
    const auto filter = [this] {
        treeDock_->show();
        tree_->filterLine().setFocus();
        tree_->filterLine().selectAll();
    };
    const auto copyName = [this] {
        const Selected& now = session_->selection().current();
        copyText(now.tensor != kNone     ? toQString(session_->catalog().name(now.tensor))
                 : !now.module.isEmpty() ? now.module
                 : now.object != kNone   ? toQString(session_->catalog().objects()[now.object].name)
                                         : session_->path());
    };
    const auto copyCommand = [this] {
        const Selected& now = session_->selection().current();
        copyText(now.tensor != kNone
                     ? session_->command("show", {toQString(session_->catalog().name(now.tensor))})
                 : now.object != kNone ? session_->command("ls", {"--objects"})
                                       : session_->command("info"));
    };
    add(menuBar()->addMenu(tr("&Edit")),
        {{tr("&Filter tensors"), {QKeySequence::Find}, Entry::open, filter},
         {tr("&Clear the filter"),
          {QKeySequence("Ctrl+Shift+F")},
          Entry::open,
          [this] { session_->selection().setFilter({}); }},
         {},
         {tr("Copy &name"), {QKeySequence("Ctrl+Shift+N")}, Entry::open, copyName},
         {tr("Copy &path of the checkpoint"), {}, Entry::open, [this] { copyText(session_->path()); }},
         {tr("Copy &command that shows this"), {}, Entry::open, copyCommand}});
}

void MainWindow::makeViewMenu() {
    viewMenu_ = menuBar()->addMenu(tr("&View"));
    for (int i = 0; i < tabs_->count(); ++i)
        add(viewMenu_,
            {{tabs_->tabText(i), {QKeySequence(QStringLiteral("Alt+%1").arg(i + 1))}, Entry::open, [this, i] {
                  session_->selection().setPage(static_cast<Page>(i));
              }}});
    viewMenu_->addSeparator();
    int key = 1;
    for (QDockWidget* d : {treeDock_, detailsDock_, findingsDock_, jobsDock_, logDock_}) {
        QAction* toggle = d->toggleViewAction();
        toggle->setShortcut(QKeySequence(QStringLiteral("Ctrl+Alt+%1").arg(key++)));
        viewMenu_->addAction(toggle);
        actions_ += toggle;
    }
    const auto perspective = [this](Perspective what) { return [this, what] { setPerspective(what); }; };
    const auto theme = [this](ThemeChoice choice) { return [this, choice] { setTheme(choice); }; };
    add(viewMenu_, {{},
                    {tr("Perspective: inspect"), {}, Entry::always, perspective(Perspective::inspect)},
                    {tr("Perspective: convert"), {}, Entry::always, perspective(Perspective::convert)},
                    {tr("Perspective: compare"), {}, Entry::always, perspective(Perspective::compare)},
                    {tr("Reset the layout"), {}, Entry::always, [this] { resetLayout(); }},
                    {}});
    // In the order of ThemeChoice.
    const QList<QAction*> themes =
        add(viewMenu_, {{tr("Theme: as the system"), {}, Entry::always, theme(ThemeChoice::system)},
                        {tr("Theme: light"), {}, Entry::always, theme(ThemeChoice::light)},
                        {tr("Theme: dark"), {}, Entry::always, theme(ThemeChoice::dark)}});
    auto* group = new QActionGroup(this);
    const int chosen = QSettings().value(kThemeKey, 0).toInt();
    for (QAction* action : themes) {
        action->setCheckable(true);
        action->setChecked(themes.indexOf(action) == chosen);
        group->addAction(action);
    }
}

void MainWindow::makeGoMenu() {
    const auto locate = [this](const char* start) {
        return [this, start] { locator_->open(QLatin1String(start)); };
    };
    const QList<QAction*> all =
        add(menuBar()->addMenu(tr("&Go")),
            {{tr("&Back"),
              {QKeySequence(QKeySequence::Back)},
              Entry::always,
              [this] { session_->selection().back(); }},
             {tr("&Forward"),
              {QKeySequence(QKeySequence::Forward)},
              Entry::always,
              [this] { session_->selection().forward(); }},
             {},
             {tr("&Locate…"), {QKeySequence("Ctrl+K"), QKeySequence("Ctrl+P")}, Entry::always, locate("")},
             {tr("&Actions…"), {QKeySequence("Ctrl+Shift+P")}, Entry::always, locate(">")},
             {},
             {tr("&Next finding"), {QKeySequence("F8")}, Entry::open, [this] { findings_->goToNext(true); }},
             {tr("&Previous finding"), {QKeySequence("Shift+F8")}, Entry::open, [this] {
                  findings_->goToNext(false);
              }}});
    back_ = all[0];
    forward_ = all[1];
}

// The three validations, by level, and the conversion.
QList<QAction*> MainWindow::makeCheckpointMenu() {
    const auto level = [this](ValidateLevel deep) { return [this, deep] { validate(deep); }; };
    return add(
        menuBar()->addMenu(tr("&Checkpoint")),
        {{tr("Validate &metadata"), {}, Entry::step, level(ValidateLevel::metadata)},
         {tr("&Validate files and headers"),
          {QKeySequence("Ctrl+Shift+V")},
          Entry::step,
          level(ValidateLevel::files)},
         {tr("Validate &every value"),
          {QKeySequence("Ctrl+Alt+V")},
          Entry::step,
          level(ValidateLevel::values)},
         {},
         {tr("&Convert or reshard…"), {QKeySequence("Ctrl+Shift+C")}, Entry::step, [this] { convert(); }},
         {tr("Com&pare with another…"), {QKeySequence("Ctrl+Shift+D")}, Entry::open, [this] {
              session_->selection().setPage(Page::compare);
          }}});
}

void MainWindow::showShortcuts() {
    auto* sheet = new ShortcutSheet(actions_, this);
    sheet->setAttribute(Qt::WA_DeleteOnClose);
    sheet->show();
}

void MainWindow::showAbout() {
    auto* about =
        new QMessageBox(QMessageBox::NoIcon, tr("About Shardscope"),
                        tr("Shardscope %1\n\nInspects, validates, converts and reshards distributed "
                           "checkpoints where they are stored, without loading them and without running "
                           "anything in them.\n\nApache License 2.0. Uses Qt %2 under the LGPL 3.")
                            .arg(QApplication::applicationVersion(), QString::fromLatin1(qVersion())),
                        QMessageBox::Close, this);
    about->setAttribute(Qt::WA_DeleteOnClose);
    about->setModal(false);
    about->show();
}

void MainWindow::makeToolBar(QAction* open, const QList<QAction*>& ofCheckpoint) {
    auto* bar = new QToolBar(tr("Navigation"), this);
    bar->setObjectName(QStringLiteral("navigation"));
    bar->setMovable(false);
    bar->setIconSize(QSize(18, 18));
    bar->setToolButtonStyle(Qt::ToolButtonTextBesideIcon);
    const auto button = [&](QAction* action, Symbol symbol, const QString& text) {
        action->setIcon(symbolIcon(symbol));
        action->setIconText(text);
        // In menus text alone lines up better.
        action->setIconVisibleInMenu(false);
        bar->addAction(action);
        return qobject_cast<QToolButton*>(bar->widgetForAction(action));
    };
    for (QToolButton* arrow :
         {button(back_, Symbol::back, tr("Back")), button(forward_, Symbol::forward, tr("Forward"))})
        arrow->setToolButtonStyle(Qt::ToolButtonIconOnly);
    button(open, Symbol::open, tr("Open"));
    QToolButton* levels = button(ofCheckpoint[1], Symbol::validate, tr("Validate"));
    levels->setPopupMode(QToolButton::MenuButtonPopup);
    auto* levelMenu = new QMenu(levels);
    levelMenu->addActions(ofCheckpoint.first(3));
    levels->setMenu(levelMenu);
    button(ofCheckpoint[3], Symbol::convert, tr("Convert"));
    bar->addSeparator();
    breadcrumb_ = new Breadcrumb(*session_, bar);
    breadcrumb_->setSizePolicy(QSizePolicy::Ignored, QSizePolicy::Preferred);
    bar->addWidget(breadcrumb_);
    auto* locate = withName(new QPushButton(symbolIcon(Symbol::search), tr("Find anything  Ctrl+K"), bar),
                            tr("Locate a tensor, rank, file or action"));
    locate->setFocusPolicy(Qt::TabFocus);
    connect(locate, &QPushButton::clicked, this, [this] { locator_->open(); });
    bar->addWidget(locate);
    addToolBar(bar);
}

void MainWindow::fillRecentMenu() {
    recentMenu_->clear();
    int key = 1;
    for (const Recent& recent : windows_.recents().list()) {
        QString text = toQString(recent.path.toStdString());
        QAction* action = recentMenu_->addAction(
            text.replace('&', "&&"), this,
            [this, path = recent.path, options = recent.options] { openPath(path, options); });
        if (key <= 9) action->setShortcut(QKeySequence(QStringLiteral("Ctrl+%1").arg(key++)));
    }
    recentMenu_->setEnabled(!recentMenu_->isEmpty());
    recentMenu_->addSeparator();
    recentMenu_->addAction(tr("Clear the list"), &windows_.recents(), &Recents::clear);
}

void MainWindow::makeStatusBar() {
    depth_ = new QLabel(this);
    depth_->setContentsMargins(8, 0, 0, 0);
    depth_->setAccessibleName(tr("How deep the checkpoint was checked"));
    task_ = withName(new QLabel(this), tr("Work under way"));
    taskProgress_ = new TaskProgress(tr("Progress"), this);
    taskCancel_ = new QToolButton(this);
    taskCancel_->setText(tr("Cancel"));
    taskCancel_->setAccessibleName(tr("Cancel the work under way"));
    connect(taskCancel_, &QToolButton::clicked, this, [this] { shownTask_.cancel(); });
    statusBar()->addWidget(depth_, 1);
    for (QWidget* part : std::initializer_list<QWidget*>{task_, taskProgress_, taskCancel_}) {
        statusBar()->addPermanentWidget(part);
        part->hide();
    }
    findingsButton_ = paneButton(findingsDock_);
    jobsButton_ = paneButton(jobsDock_);
    paneButton(logDock_);
    // With the room for it at once, not only from the next layout on.
    const auto say = [this](QToolButton* button, const QString& text) {
        button->setText(text);
        statusBar()->layout()->activate();
    };
    connect(findings_, &FindingsPanel::titleChanged, findingsButton_,
            [this, say](const QString& text) { say(findingsButton_, text); });
    const auto countJobs = [this, say] {
        const size_t active = windows_.jobs().activeCount();
        say(jobsButton_, active ? tr("Jobs: %1 running").arg(numberText(active)) : tr("Jobs"));
    };
    connect(&windows_.jobs(), &JobStore::listChanged, jobsButton_, countJobs);
    connect(&windows_.jobs(), &JobStore::changed, jobsButton_, countJobs);
    countJobs();
}

// Opens and closes it, like a tab.
QToolButton* MainWindow::paneButton(QDockWidget* pane) {
    auto* button = new QToolButton(this);
    button->setText(pane->windowTitle());
    button->setCheckable(true);
    button->setAutoRaise(true);
    button->setFocusPolicy(Qt::TabFocus);
    button->setToolTip(
        tr("Show or hide (%1)").arg(pane->toggleViewAction()->shortcut().toString(QKeySequence::NativeText)));
    connect(button, &QToolButton::clicked, pane->toggleViewAction(), &QAction::trigger);
    connect(pane->toggleViewAction(), &QAction::toggled, button, &QToolButton::setChecked);
    statusBar()->addPermanentWidget(button);
    return button;
}

void MainWindow::follow() {
    connect(session_.get(), &Session::stateChanged, this, &MainWindow::stateChanged);
    connect(session_.get(), &Session::reportChanged, this, &MainWindow::reportChanged);
    connect(session_.get(), &Session::verdictChanged, this, &MainWindow::keepVerdict);
    connect(session_.get(), &Session::progressed, this, &MainWindow::showTasks);
    connect(&session_->tasks(), &Tasks::changed, this, &MainWindow::showTasks);
    connect(session_.get(), &Session::progressed, this, [this] {
        if (session_->state() == Session::State::opening) showStatus();
    });
    connect(session_.get(), &Session::openingRefused, this, [this](const Error& error) {
        const QString text =
            tr("Could not open it with these options. The current view is unchanged. ") + errorText(error);
        log(Severity::error, text);
        banner_->show(BannerKind::error, text, {{tr("Open with options…"), [this] { openWithOptions(); }}},
                      QStringLiteral("refused"));
    });
    connect(session_.get(), &Session::scanNotKept, this,
            [this](const Error& error) { log(Severity::warning, errorSentence(error)); });
    connect(session_.get(), &Session::filesChanged, this, &MainWindow::filesChanged);
    // The answer stands there without having been asked for; with files that are written still, once they
    // stand still.
    for (const auto changed : {&Session::stateChanged, &Session::filesChanged})
        connect(session_.get(), changed, session_.get(), &Session::validateByItself);
    connect(session_.get(), &Session::connectionChanged, this, &MainWindow::connectionChanged);
    connect(session_.get(), &Session::otherFormatsFound, this, [this] {
        if (!banner_->isVisible()) offerOtherFormats();
    });
    connect(&session_->selection(), &Selection::changed, this, [this](const Selected& now, const Selected&) {
        if (tabs_->currentIndex() != static_cast<int>(now.page))
            tabs_->setCurrentIndex(static_cast<int>(now.page));
        followSelection(now);
    });
    connect(&session_->selection(), &Selection::historyChanged, this, [this] {
        back_->setEnabled(session_->selection().canGoBack());
        forward_->setEnabled(session_->selection().canGoForward());
    });
    connect(&windows_.recents(), &Recents::changed, this, &MainWindow::fillRecentMenu);
}

// ------------------------------------------------------------------ what happens

void MainWindow::stateChanged() {
    const bool open = session_->checkpoint() != nullptr;
    central_->setCurrentIndex(open ? 1 : 0);
    showDocks(open);
    for (QAction* action : checkpointActions_)
        action->setEnabled(open);
    for (QAction* action : stepActions_)
        action->setEnabled(open || session_->run());
    back_->setEnabled(session_->selection().canGoBack());
    forward_->setEnabled(session_->selection().canGoForward());
    treeDock_->setEnabled(open);
    const QString path = session_->path();
    setWindowTitle(path.isEmpty() ? tr("Shardscope") : tr("%1 – Shardscope").arg(titleOf(path)));
    setWindowFilePath(hostOf(path).isEmpty() ? path : QString());
    switch (session_->state()) {
        case Session::State::open: {
            banner_->clear();
            const Catalog& catalog = session_->catalog();
            const QString title = session_->checkpoint()->format
                                      ? toQString(session_->checkpoint()->format->info().title)
                                      : toQString(catalog.format());
            windows_.recents().opened(path, title, session_->options(), catalog.totalBytes());
            log(Severity::info,
                tr("Opened %1: %2 in %3, %4.")
                    .arg(path, countedText(catalog.tensorCount(), tr("1 tensor"), tr("%1 tensors")),
                         countedText(catalog.chunkCount(), tr("1 chunk"), tr("%1 chunks")), title));
            // What a reader had to leave out or to guess is said at once.
            for (const Note& note : catalog.notes())
                log(note.severity, messageText(note.message));
            if (const QString elsewhere = session_->dataElsewhere(); !elsewhere.isEmpty())
                banner_->show(BannerKind::info,
                              tr("This is %1. What the metadata says is shown; values, deeper checks and "
                                 "conversions need the checkpoint itself.")
                                  .arg(elsewhere),
                              {}, QStringLiteral("index"));
            else if (!session_->beingWritten().isEmpty())
                showBeingWritten();
            break;
        }
        case Session::State::run:
            banner_->clear();
            windows_.recents().opened(path, tr("run"), session_->options());
            log(Severity::info, tr("Opened the run %1: %2.")
                                    .arg(path, countedText(session_->run()->directory.steps.size(),
                                                           tr("1 step"), tr("%1 steps"))));
            break;
        case Session::State::failed:
            log(Severity::error, errorSentence(*session_->error()));
            break;
        default:
            break;
    }
    showStatus();
}

void MainWindow::showBeingWritten() {
    const QString why = session_->beingWritten();
    log(Severity::warning, tr("Still being written: %1").arg(why));
    banner_->show(BannerKind::warning,
                  tr("This checkpoint is still being written, or its save died. %1 Nothing is validated "
                     "meanwhile.")
                      .arg(why),
                  {{tr("Look again"), [this] { session_->lookAgain(); }},
                   {tr("Mark as finished"), [this] { session_->takeAsFinished(); }}},
                  QStringLiteral("writing"));
}

void MainWindow::filesChanged() {
    banner_->clear(QStringLiteral("writing"));
    if (!session_->beingWritten().isEmpty()) {
        showBeingWritten();
    } else if (!session_->changedFiles().isEmpty()) {
        log(Severity::warning, session_->changedFiles());
        banner_->show(BannerKind::warning, tr("The checkpoint changed. %1").arg(session_->changedFiles()),
                      {{tr("Reload"), [this] { session_->reload(); }}}, QStringLiteral("changed"));
    }
}

void MainWindow::connectionChanged() {
    const QString key = QStringLiteral("connection"), host = hostOf(session_->path());
    HostConnection& connection = session_->connection();
    if (connection.reconnecting()) {
        banner_->show(BannerKind::info, tr("Connecting to %1…").arg(host),
                      {{tr("Cancel"), [&connection] { connection.cancel(); }}}, key);
        return;
    }
    if (!connection.lost()) {
        banner_->clear(key);
        log(Severity::info, tr("Reconnected to %1.").arg(host));
        return;
    }
    const QString lost = tr("The connection to %1 was lost.").arg(host);
    const auto& error = connection.error();
    const QString text =
        error ? lost + ' ' + errorText(*error)
              : lost + ' ' +
                    tr("Loaded data stays visible; Shardscope reconnects when you open anything else.");
    log(error ? Severity::error : Severity::warning, text.trimmed());
    banner_->show(error ? BannerKind::error : BannerKind::warning, text.trimmed(),
                  {{tr("Reconnect"), [&connection] { connection.reconnect(); }}}, key);
}

void MainWindow::validate(ValidateLevel level) {
    if (session_->run())
        return openThen(start_->runPage().chosenPath(),
                        [level](MainWindow& window) { window.validate(level); });
    showPane(findingsDock_);
    findings_->setLevel(level);
    findings_->validate();
}

void MainWindow::showFinding(const QString& words) {
    showPane(findingsDock_);
    findings_->showFinding(words);
}

// Instead of the one that is shown.
void MainWindow::showPane(QDockWidget* pane) {
    for (QDockWidget* other : panes_) {
        if (other != pane) other->hide();
    }
    pane->show();
    if (pane->height() < kPaneHeight) resizeDocks({pane}, {kPaneHeight}, Qt::Vertical);
}

// Details come with the first thing that is selected, unless somebody has closed them, and go with the last.
void MainWindow::followSelection(const Selected& now) {
    const bool something = now.tensor != kNone || now.object != kNone || now.file != kNone ||
                           !now.module.isEmpty() || !now.ranks.empty();
    if (something == somethingSelected_) return;
    somethingSelected_ = something;
    detailsDock_->setVisible(something && QSettings().value(kDetailsKey, true).toBool());
}

void MainWindow::keepVerdict() {
    const auto verdict = session_->validation().verdict();
    // What was read in part says nothing about the rest.
    if (verdict && (!session_->validation().report()->stopped || *verdict == Verdict::unsafe))
        windows_.recents().validated(session_->path(), toQString(verdictName(*verdict)));
}

void MainWindow::reportChanged() {
    const Validation& validation = session_->validation();
    if (!validation.running() && validation.report() && session_->checkpoint()) {
        const Verdict verdict = *validation.verdict();
        keepVerdict();
        log(verdict == Verdict::safe   ? Severity::info
            : verdict == Verdict::care ? Severity::warning
                                       : Severity::error,
            tr("Validated %1: %2, %3.")
                .arg(session_->path(), verdictText(verdict).mid(2),
                     countedText(validation.report()->findings.size(), tr("1 finding"), tr("%1 findings"))));
    } else if (!validation.running() && validation.error()) {
        banner_->show(BannerKind::error, errorSentence(*validation.error()),
                      {{tr("Try again"), [this] { findings_->validate(); }}}, QStringLiteral("validation"));
        log(Severity::error, errorSentence(*validation.error()));
    }
    showStatus();
}

void MainWindow::showStatus() {
    if (!session_->checkpoint()) {
        depth_->setText(session_->state() == Session::State::opening
                            ? tr("opening: %1").arg(session_->openingStage().toLower())
                        : session_->run() ? countedText(session_->run()->directory.steps.size(),
                                                        tr("a run of 1 step"), tr("a run of %1 steps"))
                                          : tr("nothing is open"));
        return;
    }
    depth_->setText(session_->validation().depth());
}

void MainWindow::showTasks() {
    const std::vector<Ticket> running = session_->tasks().running();  // oldest first
    shownTask_ = running.empty() ? Ticket() : running.front();
    const TaskStatus status = shownTask_.status();
    const bool show = status.seconds >= kShowTaskAfter;
    task_->setVisible(show);
    taskProgress_->setVisible(show);
    taskCancel_->setVisible(show);
    if (!show) return;
    QString text = status.title;
    if (running.size() > 1) text += tr(" (+%1 more)").arg(numberText(running.size() - 1));
    task_->setText(text);
    taskCancel_->setToolTip(tr("Cancel: %1").arg(status.title));
    taskProgress_->setStatus(status);
}

void MainWindow::log(Severity severity, const QString& text) {
    log_->append(severity, text);
}

// An empty window is all start page; its docks come back as they were with the first checkpoint.
void MainWindow::showDocks(bool show) {
    if (show == docksShown_) return;
    docksShown_ = show;
    if (show) {
        restoreState(hiddenState_, kLayoutVersion);
        if (!somethingSelected_) detailsDock_->hide();
        return;
    }
    hiddenState_ = saveState(kLayoutVersion);
    for (QDockWidget* d : {treeDock_, detailsDock_, findingsDock_, jobsDock_, logDock_})
        d->hide();
}

void MainWindow::showJob(const QString& id) {
    showPane(jobsDock_);
    if (!id.isEmpty()) jobs_->selectJob(id);
}

ConvertWizard* MainWindow::convert() {
    if (session_->run())
        openThen(start_->runPage().chosenPath(), [](MainWindow& window) { window.convert(); });
    if (!session_->checkpoint()) return nullptr;
    if (!wizard_) {
        wizard_ = new ConvertWizard(*session_, windows_.jobs(), this);
        wizard_->setAttribute(Qt::WA_DeleteOnClose);
        connect(wizard_, &ConvertWizard::started, this, &MainWindow::showJob);
    }
    wizard_->show();
    wizard_->raise();
    wizard_->activateWindow();
    return wizard_;
}

// ------------------------------------------------------------------ layout

void MainWindow::setTheme(ThemeChoice choice) {
    QSettings().setValue(kThemeKey, static_cast<int>(choice));
    applyTheme(choice);
}

void MainWindow::restoreLayout() {
    const QSettings settings;
    restoreGeometry(settings.value(kGeometryKey).toByteArray());
    restoreState(settings.value(kStateKey).toByteArray(), kLayoutVersion);
}

void MainWindow::resetLayout() {
    restoreState(defaultState_, kLayoutVersion);
    QSettings().remove(kDetailsKey);
    detailsDock_->setVisible(somethingSelected_);
}

void MainWindow::setPerspective(Perspective perspective) {
    resetLayout();
    switch (perspective) {
        case Perspective::inspect:
            session_->selection().setPage(Page::overview);
            break;
        case Perspective::convert:
            detailsDock_->hide();
            showPane(jobsDock_);
            convert();
            break;
        case Perspective::compare:
            detailsDock_->hide();
            session_->selection().setPage(Page::compare);
            break;
    }
}

void MainWindow::closeEvent(QCloseEvent* event) {
    QSettings settings;
    settings.setValue(kGeometryKey, saveGeometry());
    if (somethingSelected_) settings.setValue(kDetailsKey, !detailsDock_->isHidden());
    settings.setValue(kStateKey, docksShown_ ? saveState(kLayoutVersion) : hiddenState_);
    QMainWindow::closeEvent(event);
}

}  // namespace shardscope::ui
