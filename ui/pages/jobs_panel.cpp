#include "ui/pages/jobs_panel.h"

#include <QApplication>
#include <QCheckBox>
#include <QComboBox>
#include <QHBoxLayout>
#include <QHeaderView>
#include <QLabel>
#include <QMenu>
#include <QPlainTextEdit>
#include <QPushButton>
#include <QScrollArea>
#include <QScrollBar>
#include <QSplitter>
#include <QStackedWidget>
#include <QStyledItemDelegate>
#include <QTabWidget>
#include <QTableView>
#include <QTreeView>
#include <QTreeWidget>
#include <QVBoxLayout>
#include <algorithm>
#include <map>

#include "ui/bridge/hosts.h"
#include "ui/models/session.h"
#include "ui/models/texts.h"
#include "ui/widgets/banner.h"
#include "ui/widgets/building.h"
#include "ui/widgets/card.h"
#include "ui/widgets/file_dialog.h"
#include "ui/widgets/labels.h"
#include "ui/widgets/lanes.h"
#include "ui/widgets/theme.h"

namespace shardscope::ui {

namespace {

constexpr int kLowest = 40;  // a view in the pane of a small window

class ProgressDelegate : public QStyledItemDelegate {
  public:
    using QStyledItemDelegate::QStyledItemDelegate;

    // A row is as high as its tallest cell.
    QSize sizeHint(const QStyleOptionViewItem& option, const QModelIndex& index) const override {
        const QSize size = QStyledItemDelegate::sizeHint(option, index);
        return {size.width(), std::max(size.height(), option.fontMetrics.height() + 10)};
    }
    void paint(QPainter* painter, const QStyleOptionViewItem& option,
               const QModelIndex& index) const override {
        const double share = index.data(JobTableModel::ShareRole).toDouble();
        const QString text = index.data().toString();
        if (text.isEmpty() || share < 0) return QStyledItemDelegate::paint(painter, option, index);
        QStyleOptionViewItem item = option;
        initStyleOption(&item, index);
        item.text.clear();
        const QWidget* widget = option.widget;
        QStyle* style = widget ? widget->style() : QApplication::style();
        style->drawControl(QStyle::CE_ItemViewItem, &item, painter, widget);
        QStyleOptionProgressBar bar;
        bar.rect = option.rect.adjusted(4, 3, -4, -3);
        bar.palette = option.palette;
        bar.fontMetrics = option.fontMetrics;
        bar.state = option.state | QStyle::State_Horizontal;
        bar.minimum = 0;
        bar.maximum = 1000;
        bar.progress = static_cast<int>(share * 1000);
        bar.text = text;
        bar.textVisible = true;
        bar.textAlignment = Qt::AlignCenter;
        style->drawControl(QStyle::CE_ProgressBar, &bar, painter, widget);
    }
};

QPushButton* button(const QString& text, const QString& name, QLayout* into) {
    auto* b = withName(new QPushButton(text), name);
    b->setToolTip(name);
    b->setAutoDefault(false);
    into->addWidget(b);
    return b;
}

QTreeWidgetItem* row(QTreeWidgetItem* parent, const QString& name, const QString& value) {
    auto* item = new QTreeWidgetItem(parent, {name, value});
    item->setToolTip(1, value.toHtmlEscaped());
    return item;
}

QTreeWidgetItem* group(QTreeWidget* tree, const QString& name, const QString& value) {
    auto* item = new QTreeWidgetItem(tree, {name, value});
    QFont bold = tree->font();
    bold.setBold(true);
    item->setFont(0, bold);
    return item;
}

// Jobs of earlier versions do not say what their threads did.
Lanes::Unit unitOf(QComboBox& chosen, const Job& job) {
    const bool known = job.busy().any();
    chosen.setVisible(known);
    return known ? static_cast<Lanes::Unit>(chosen.currentData().toInt()) : Lanes::Unit::bytes;
}

void list(QTreeWidget* tree, const QString& name, const std::vector<JobEntry>& entries) {
    if (entries.empty()) return;
    QTreeWidgetItem* parent = group(tree, name, numberText(entries.size()));
    for (const JobEntry& entry : entries)
        row(parent, entry.name, entry.why);
}

}  // namespace

JobsPanel::JobsPanel(JobStore& store, QWidget* parent)
    : QWidget(parent), store_(store), jobs_(store), rates_(rateColumns({}, 1)) {
    auto* layout = layoutOf<QVBoxLayout>(this, {0, 0, 0, 0});
    stack_ = new QStackedWidget(this);
    layout->addWidget(stack_);

    auto* empty = new QLabel(
        tr("No jobs yet.\n\nOpen a checkpoint and choose Checkpoint > Convert… to change its format or "
           "sharding.\nThe job then shows here, and continues when this window is closed.\nSo do jobs that "
           "“shardscope jobs run” started."),
        this);
    empty->setAlignment(Qt::AlignCenter);
    empty->setWordWrap(true);
    empty->setAccessibleName(tr("No jobs yet"));
    stack_->addWidget(empty);

    auto* full = new QWidget(this);
    auto* fullLayout = layoutOf<QVBoxLayout>(full, {8, 8, 8, 8}, 6);
    auto* split = new QSplitter(Qt::Horizontal, full);
    split->setChildrenCollapsible(false);
    fullLayout->addWidget(split, 1);
    fullLayout->addLayout(buildButtons());
    stack_->addWidget(full);
    auto* left = new QWidget(split);
    auto* leftLayout = layoutOf<QVBoxLayout>(left, {0, 0, 0, 0});
    buildTable();
    skipped_ = wrappedLabel(left);
    leftLayout->addWidget(table_, 1);
    leftLayout->addWidget(skipped_);
    split->addWidget(left);
    split->addWidget(buildDetails());
    split->setStretchFactor(0, 3);
    split->setStretchFactor(1, 4);
    split->setSizes({780, 470});

    connect(&store_, &JobStore::listChanged, this, &JobsPanel::showList);
    connect(&store_, &JobStore::failed, this, &JobsPanel::launchFailed);
    connect(&store_, &JobStore::changed, this, [this](const QString& id) {
        if (id == selectedJob()) showJob();
    });
    connect(table_->selectionModel(), &QItemSelectionModel::currentRowChanged, this, &JobsPanel::showJob);
    for (QComboBox* measure : {measure_, workerMeasure_})
        connect(measure, &QComboBox::currentIndexChanged, this, &JobsPanel::showJob);
    showList();
}

void JobsPanel::buildTable() {
    table_ = new QTreeView(this);
    table_->setObjectName(QStringLiteral("jobTable"));
    table_->setModel(&jobs_);
    dressTree(*table_, tr("Jobs"), true);
    table_->setAllColumnsShowFocus(true);
    table_->setItemDelegateForColumn(JobTableModel::progress, new ProgressDelegate(table_));
    table_->header()->setStretchLastSection(false);
    table_->header()->setSectionResizeMode(JobTableModel::title, QHeaderView::Stretch);
    table_->header()->setMinimumSectionSize(fontMetrics().averageCharWidth() * 6);
    const int em = fontMetrics().averageCharWidth();
    const int widths[] = {18, 12, 9, 22, 12, 10, 11, 11};
    for (int c = 0; c < JobTableModel::columnCountValue; ++c)
        table_->setColumnWidth(c, widths[c] * em);
    offerMenu(table_, [this](QMenu& menu, const QPoint&) { fillMenu(menu); });
}

// What lanes show of a job that says both.
QComboBox* JobsPanel::buildMeasure(const QString& name) {
    auto* box = withName(new QComboBox(this), name);
    box->setSizeAdjustPolicy(QComboBox::AdjustToMinimumContentsLengthWithIcon);
    box->setMinimumContentsLength(14);
    box->addItem(tr("Bytes a second"), static_cast<int>(Lanes::Unit::bytes));
    box->addItem(tr("Threads reading, computing, writing"), static_cast<int>(Lanes::Unit::threads));
    box->setToolTip(tr("Computing is casting, changing the order, scanning and taking digests."));
    return box;
}

void JobsPanel::exportFrom(Lanes* lanes, const QString& name,
                           std::function<const QAbstractItemModel*()> table) {
    const Exports exports{name, lanes, std::move(table)};
    offerMenu(lanes, [this, exports](QMenu& menu, const QPoint&) { addExportActions(menu, exports, this); });
}

QWidget* JobsPanel::buildDetails() {
    auto* details = new QWidget(this);
    auto* layout = layoutOf<QVBoxLayout>(details, {4, 0, 0, 0}, 6);
    const auto label = [&](const QString& name) {
        auto* l = textBlock(details);
        l->setAccessibleName(name);
        layout->addWidget(l);
        return l;
    };
    summary_ = label(tr("What the job does"));
    problem_ = label(tr("What went wrong"));

    tabs_ = withName(new QTabWidget(details), tr("About the job"));
    buildRates();
    buildWorkers();
    buildLog();

    outcome_ = new QTreeWidget(tabs_);
    outcome_->setHeaderLabels({tr("Result"), tr("Value or reason")});
    dressTree(*outcome_, tr("Result of the job"), false);
    outcome_->setColumnWidth(0, 230);
    tabs_->addTab(outcome_, tr("Result"));
    layout->addWidget(tabs_, 1);
    for (QWidget* view : std::initializer_list<QWidget*>{workers_, log_, outcome_})
        view->setMinimumHeight(kLowest);
    return details;
}

void JobsPanel::buildRates() {
    auto* rates = new QWidget(tabs_);
    auto* layout = layoutOf<QVBoxLayout>(rates, {6, 6, 6, 6});
    lanes_ = new Lanes(tr("The work of the job over time"), rates);
    measure_ = buildMeasure(tr("What the lanes of the job show"));
    rateTable_ = new QTableView(rates);
    rateTable_->setModel(&rates_);
    rateTable_->setAccessibleName(tr("The work of the job over time, as a table"));
    rateTable_->verticalHeader()->hide();
    rateTable_->horizontalHeader()->setSectionResizeMode(QHeaderView::Stretch);
    enableRowCopy(*rateTable_);
    rateTable_->hide();
    asTable_ = new QCheckBox(tr("Show as table"), rates);
    connect(asTable_, &QCheckBox::toggled, this, [this](bool on) {
        rateTable_->setVisible(on);
        lanes_->setVisible(!on);
        measure_->setEnabled(!on);  // the table has both
    });
    exportFrom(lanes_, tr("rates"), [this] { return &rates_; });
    layout->addWidget(lanes_, 1);
    layout->addWidget(rateTable_, 1);
    tabs_->addTab(rates, tr("Rates"));
    // Beside the tabs, where they take no height from the picture.
    auto* shown = new QWidget(tabs_);
    auto* row = layoutOf<QHBoxLayout>(shown, {});
    row->addWidget(measure_);
    row->addWidget(asTable_);
    tabs_->setCornerWidget(shown);
    connect(tabs_, &QTabWidget::currentChanged, shown,
            [this, shown, rates] { shown->setVisible(tabs_->currentWidget() == rates); });
}

void JobsPanel::buildWorkers() {
    workers_ = new QTreeWidget(tabs_);
    workers_->setObjectName(QStringLiteral("jobWorkers"));
    workers_->setHeaderLabels(
        {tr("Worker"), tr("State"), tr("Done"), tr("Read, compute, write"), tr("What happened")});
    workers_->headerItem()->setToolTip(2, tr("Written; then, to verify, read back"));
    workers_->headerItem()->setToolTip(3, tr("Thread-seconds reading / computing / writing"));
    dressTree(*workers_, tr("Processes that do the job"), true);
    const int em = fontMetrics().averageCharWidth();
    for (const auto& [column, chars] : {std::pair(0, 14), {1, 13}, {2, 11}, {3, 22}})
        workers_->setColumnWidth(column, chars * em);
    // Above the table, what each of them did over time.
    workerLanes_ = new Lanes(tr("The work of each worker over time"), tabs_);
    exportFrom(workerLanes_, tr("workers"), [this] { return workers_->model(); });
    workerMeasure_ = buildMeasure(tr("What the lanes of the workers show"));
    workerMeasure_->setItemText(0, tr("Bytes written a second"));
    workerMeasure_->setCurrentIndex(1);
    auto* scroll = new QScrollArea(tabs_);
    scroll->setWidget(workerLanes_);
    scroll->setWidgetResizable(true);
    scroll->setFrameShape(QFrame::NoFrame);
    scroll->setHorizontalScrollBarPolicy(Qt::ScrollBarAlwaysOff);
    scroll->setFocusPolicy(Qt::NoFocus);
    scroll->setMinimumHeight(kLowest);
    auto* split = new QSplitter(Qt::Vertical, tabs_);
    split->setChildrenCollapsible(false);
    auto* over = new QWidget(split);
    auto* overLayout = layoutOf<QVBoxLayout>(over, {0, 0, 0, 0});
    overLayout->addWidget(scroll, 1);
    overLayout->addWidget(workerMeasure_, 0, Qt::AlignLeft);
    split->addWidget(over);
    split->addWidget(workers_);
    split->setSizes({140, 100});
    split->setStretchFactor(0, 1);
    workerTab_ = split;
    tabs_->addTab(workerTab_, tr("Workers"));
    tabs_->setTabVisible(tabs_->indexOf(workerTab_), false);
}

void JobsPanel::buildLog() {
    auto* log = new QWidget(tabs_);
    auto* layout = layoutOf<QVBoxLayout>(log, {6, 6, 6, 6});
    log_ = new QPlainTextEdit(log);
    log_->setReadOnly(true);
    log_->setAccessibleName(tr("Messages of the job"));
    raw_ = new QCheckBox(tr("Show the raw text"), log);
    connect(raw_, &QCheckBox::toggled, this, [this] {
        if (const Job* job = store_.find(selectedJob())) showLog(*job);
    });
    layout->addWidget(log_, 1);
    layout->addWidget(raw_);
    tabs_->addTab(log, tr("Messages"));
}

QLayout* JobsPanel::buildButtons() {
    auto* buttons = new QHBoxLayout;
    cancel_ = button(tr("Cancel"), tr("Cancel the job"), buttons);
    resume_ = button(
        tr("Resume"),
        tr("Continue the job where it stopped; from the beginning, where its staging directory is gone"),
        buttons);
    retry_ = button(tr("Retry"), tr("Start the job from the beginning"), buttons);
    buttons->addStretch();
    open_ = button(tr("Open result"), tr("Open what the job wrote"), buttons);
    folder_ = button(tr("Show folder"), tr("Show the folder of the result"), buttons);
    copy_ = button(tr("Copy as command"), tr("Copy the job as a command line"), buttons);
    remove_ = button(tr("Remove"), tr("Remove the job from this list; its output stays"), buttons);
    for (const auto& [pressed, action] : {std::pair(cancel_, &JobStore::cancel),
                                          {resume_, &JobStore::resume},
                                          {retry_, &JobStore::retry},
                                          {remove_, &JobStore::remove}})
        connect(pressed, &QPushButton::clicked, this, [this, action = action] { act(action); });
    connect(open_, &QPushButton::clicked, this, [this] {
        if (const Job* job = store_.find(selectedJob())) emit openRequested(job->destination());
    });
    connect(folder_, &QPushButton::clicked, this, [this] {
        if (const Job* job = store_.find(selectedJob())) showFolderOf(this, job->destination());
    });
    connect(copy_, &QPushButton::clicked, this, [this] {
        if (const Job* job = store_.find(selectedJob()))
            copyText(shellLine(QStringList{QStringLiteral("shardscope")} + job->arguments()));
    });
    return buttons;
}

// Another attempt of a job could not be launched; a new job is its wizard's business.
void JobsPanel::launchFailed(const QString& id, const QString& why) {
    if (!store_.find(id)) return;
    showBanner(this, BannerKind::error, why);
    if (id != selectedJob()) return;
    problem_->setText(why);
    problem_->show();
}

void JobsPanel::fillMenu(QMenu& menu) {
    for (QPushButton* b : {cancel_, resume_, retry_, open_, folder_, copy_, remove_}) {
        QAction* action = menu.addAction(b->text(), b, &QPushButton::click);
        action->setEnabled(b->isEnabled());
    }
    menu.addSeparator();
    if (const Job* job = store_.find(selectedJob())) {
        addCopyAction(menu, tr("Copy path of the source"), job->source());
        addCopyAction(menu, tr("Copy path of the destination"), job->destination());
    }
    addExportActions(menu, {tr("jobs"), nullptr, [this] { return &jobs_; }}, this);
}

void JobsPanel::act(Status (JobStore::*action)(const QString& id)) {
    const QString id = selectedJob();
    if (id.isEmpty()) return;
    if (const Status status = (store_.*action)(id); !status.ok()) {
        showBanner(this, BannerKind::error, errorText(status.error()));
        problem_->setText(errorSentence(status.error()));
        problem_->show();
        return;
    }
    showJob();
}

QString JobsPanel::selectedJob() const {
    const QModelIndex current = table_->currentIndex();
    return current.isValid() ? jobs_.id(current.row()) : QString();
}

void JobsPanel::selectJob(const QString& id) {
    wanted_ = id;
    showList();
    if (!wanted_.isEmpty()) store_.refresh();
}

void JobsPanel::showList() {
    const int rows = jobs_.rowCount();
    stack_->setCurrentIndex(rows > 0 || !store_.skipped().isEmpty() ? 1 : 0);
    skipped_->setText(store_.skipped().join('\n'));
    skipped_->setVisible(!store_.skipped().isEmpty());
    if (const int row = jobs_.rowOf(wanted_); row >= 0) {
        table_->setCurrentIndex(jobs_.index(row, 0));
        wanted_.clear();
    } else if (!table_->currentIndex().isValid() && rows > 0) {
        table_->setCurrentIndex(jobs_.index(0, 0));
    }
    showJob();
}

void JobsPanel::showWorkers(const Job& job) {
    tabs_->setTabVisible(tabs_->indexOf(workerTab_), !job.workers.empty());
    const Lanes::Unit unit = unitOf(*workerMeasure_, job);
    std::vector<Lane> lanes;
    for (const JobWorker& worker : job.workers) {
        if (!worker.rates.empty() || lanes.size() < 8) lanes.push_back(Lanes::workerLane(worker, unit));
    }
    workerLanes_->setLanes(std::move(lanes), job.rateStep, unit);
    const std::map<QString, QString> words{{QStringLiteral("starting"), tr("… Starting")},
                                           {QStringLiteral("working"), tr("▶ Working")},
                                           {QStringLiteral("idle"), tr("– Waiting")},
                                           {QStringLiteral("lost"), tr("✕ Lost")},
                                           {QStringLiteral("ended"), tr("✓ Ended")}};
    while (workers_->topLevelItemCount() > static_cast<int>(job.workers.size()))
        delete workers_->takeTopLevelItem(workers_->topLevelItemCount() - 1);
    for (size_t i = 0; i < job.workers.size(); ++i) {
        const JobWorker& worker = job.workers[i];
        QTreeWidgetItem* row = workers_->topLevelItem(static_cast<int>(i));
        if (!row) {
            row = new QTreeWidgetItem(workers_);
            for (const int column : {2, 3})
                row->setTextAlignment(column, Qt::AlignRight | Qt::AlignVCenter);
        }
        const auto word = words.find(worker.state);
        row->setText(0, worker.name);
        row->setText(1, word == words.end() ? worker.state : word->second);
        row->setText(2, sizeText(worker.bytes));
        row->setText(3, worker.spent.any()
                            ? QStringList{timeText(worker.spent.read), timeText(worker.spent.compute),
                                          timeText(worker.spent.write)}
                                  .join(QStringLiteral(", "))
                            : QString());
        row->setText(4, worker.why);
        row->setToolTip(4, worker.why);
    }
}

void JobsPanel::showJob() {
    const Job* job = store_.find(selectedJob());
    tabs_->setEnabled(job);
    for (QPushButton* b : {cancel_, resume_, retry_, open_, folder_, copy_, remove_})
        b->setEnabled(job);
    if (!job) {
        summary_->setText(tr("Choose a job on the left."));
        problem_->hide();
        outcome_->clear();
        log_->clear();
        lanes_->setRates({}, 1);
        rates_.setRows(0);
        shown_.clear();
        return;
    }
    const bool cancelling = store_.cancelling(job->id);
    QString line = tr("%1  →  %2").arg(toQString(job->record.source), toQString(job->record.destination));
    if (job->record.attempts > 1) line += '\n' + tr("Attempt %1.").arg(job->record.attempts);
    if (job->record.elsewhere && job->active())
        line += '\n' + tr("It was started on %1; it can only be followed and canceled there.")
                           .arg(toQString(job->record.host));
    if (job->active() && !job->tensor.isEmpty())
        line += '\n' + tr("%1: %2").arg(jobPhaseText(*job), job->tensor);
    summary_->setText(line);

    QString problem;
    if (job->error && job->is(JobState::failed)) {
        problem = QStringLiteral("✕ ") + job->error->message;
        if (!job->error->tensor.isEmpty()) problem += '\n' + tr("Tensor: %1").arg(job->error->tensor);
        if (!job->error->file.isEmpty()) problem += '\n' + tr("File: %1").arg(job->error->file);
        if (!job->error->hint.isEmpty()) problem += '\n' + tr("Next step: %1").arg(job->error->hint);
    } else if (job->is(JobState::cancelled)) {
        problem = tr("▲ Canceled.");
        if (job->error && !job->error->hint.isEmpty()) problem += ' ' + job->error->hint;
    } else if (job->is(JobState::lost)) {
        problem = tr("▲ The process ended without a result. Resume continues its work.");
    } else if (cancelling) {
        problem = tr("Stopping: finishing writes in flight so that the job can be resumed.");
    }
    problem_->setText(problem);
    problem_->setVisible(!problem.isEmpty());

    lanes_->setRates(job->rates, job->rateStep, unitOf(*measure_, *job));
    rates_.setContent(job->rates.size(), rateColumns(job->rates, job->rateStep));
    showWorkers(*job);
    showLog(*job);
    showOutcome(*job);

    cancel_->setEnabled(job->active() && !job->record.elsewhere && job->record.pid > 0);
    cancel_->setText(cancelling ? tr("Stop at once") : tr("Cancel"));
    resume_->setEnabled(job->resumable());
    retry_->setEnabled(!job->active());
    open_->setEnabled(job->is(JobState::done));
    folder_->setEnabled(hostOf(job->destination()).isEmpty());
    remove_->setEnabled(!job->active() || job->record.elsewhere);
    if (shown_ != job->id) {
        shown_ = job->id;
        if (job->is(JobState::done)) tabs_->setCurrentWidget(outcome_);
        if (job->is(JobState::failed)) tabs_->setCurrentIndex(1);
    }
}

void JobsPanel::showLog(const Job& job) {
    QString text;
    for (const JobMessage& message : job.log) {
        if (raw_->isChecked()) {
            if (!message.raw.isEmpty()) text += message.raw + '\n';
            continue;
        }
        text += (message.kind == JobMessage::Kind::error     ? QStringLiteral("✕ ")
                 : message.kind == JobMessage::Kind::warning ? QStringLiteral("▲ ")
                                                             : QStringLiteral("• ")) +
                message.text + '\n';
    }
    if (text == log_->toPlainText()) return;
    const QScrollBar* bar = log_->verticalScrollBar();
    const int at = bar->value();
    const bool follow = at == bar->maximum();
    log_->setPlainText(text);
    log_->verticalScrollBar()->setValue(follow ? log_->verticalScrollBar()->maximum() : at);
}

void JobsPanel::showOutcome(const Job& job) {
    outcome_->clear();
    if (!job.report) {
        group(outcome_, job.active() ? tr("The job still runs.") : tr("There is no result."), {});
        return;
    }
    const JobReport& report = *job.report;
    const QString verification = report.verified
                                     ? (report.verify == QLatin1String("full")
                                            ? tr("source and destination were read again and are equal")
                                            : tr("read back, all digests match"))
                                     : tr("values were not verified, as asked");
    group(outcome_, report.verified ? tr("✓ Verified") : tr("▲ Not verified"), verification);
    row(outcome_->invisibleRootItem(), tr("Tensors"), numberText(report.tensors));
    row(outcome_->invisibleRootItem(), tr("Read"), sizeText(report.bytesRead));
    row(outcome_->invisibleRootItem(), tr("Written"), sizeText(report.bytesWritten));
    if (report.bytesReused)
        row(outcome_->invisibleRootItem(), tr("Reused from earlier attempts"), sizeText(report.bytesReused));
    row(outcome_->invisibleRootItem(), tr("Time"), timeText(report.seconds + report.verifySeconds));
    row(outcome_->invisibleRootItem(), tr("Peak memory"), sizeText(report.peakMemory));
    list(outcome_, tr("▲ Tensors with NaN or Inf"), report.findings);
    list(outcome_, tr("Left out"), report.leftOut);
    list(outcome_, tr("Weights that the recipe does not know"), report.unknown);
    list(outcome_, tr("Carried in another form"), report.changed);
    outcome_->expandAll();
}

}  // namespace shardscope::ui
