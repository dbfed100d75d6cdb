#include "ui/pages/run_page.h"

#include <QComboBox>
#include <QHBoxLayout>
#include <QHeaderView>
#include <QLabel>
#include <QMenu>
#include <QPushButton>
#include <QScrollArea>
#include <QScrollBar>
#include <QTableView>
#include <QVBoxLayout>
#include <algorithm>

#include "ui/models/text_table_model.h"
#include "ui/models/texts.h"
#include "ui/widgets/building.h"
#include "ui/widgets/card.h"
#include "ui/widgets/exporting.h"
#include "ui/widgets/labels.h"
#include "ui/widgets/picture_view.h"
#include "ui/widgets/run_timeline.h"

namespace shardscope::ui {

namespace {
constexpr int kRanksColumn = 5;  // its column
}

RunPage::RunPage(Session& session, QWidget* parent) : QWidget(parent), session_(session), steps_(session) {
    setAccessibleName(tr("Run"));
    auto* layout = new QVBoxLayout(this);
    title_ = plainLabel(this);
    makeBold(title_, 1.3);
    summary_ = wrappedLabel(this);
    summary_->setAccessibleName(tr("Summary of the run"));
    advice_ = wrappedLabel(this);
    makeBold(advice_);
    advice_->setAccessibleName(tr("The step to resume from"));
    copyNewest_ = new QPushButton(tr("Copy its &path"), this);
    auto* advice = new QHBoxLayout;
    advice->addWidget(advice_, 1);
    advice->addWidget(copyNewest_);
    auto* timeline = new Panel(tr("Timeline"), this);
    timeline_ = new RunTimeline(timeline);
    timeline->setView(timeline_);
    timeline->setExports({QStringLiteral("timeline"), timeline_, {}});
    norms_ = makeCharts();
    makeTable();
    details_ = textBlock(this);
    details_->setAccessibleName(tr("Findings of the chosen step"));
    layout->addWidget(title_);
    layout->addWidget(summary_);
    layout->addLayout(advice);
    layout->addWidget(timeline);
    layout->addWidget(norms_);
    layout->addWidget(panel_, 1);
    layout->addWidget(details_);
    layout->addLayout(makeButtons());

    connect(copyNewest_, &QPushButton::clicked, this, [this] {
        if (steps_.newestWhole() != kNoStep) copyText(steps_.path(steps_.newestWhole()));
    });
    connect(table_, &QTableView::activated, this, &RunPage::openCurrent);
    connect(table_->selectionModel(), &QItemSelectionModel::currentRowChanged, this, [this] {
        const int row = currentRow();
        chosen_ = row < 0 ? std::string() : steps_.rows()[static_cast<size_t>(row)].step.name;
        timeline_->setCurrent(row);
        refresh();
    });
    connect(table_->selectionModel(), &QItemSelectionModel::selectionChanged, this, &RunPage::showSelected);
    connect(timeline_, &RunTimeline::chosen, this,
            [this](int row) { table_->setCurrentIndex(model_->index(model_->rowOf(row), 0)); });
    connect(timeline_, &RunTimeline::activated, this, &RunPage::openCurrent);
    connect(&steps_, &RunSteps::changed, this, [this] {
        // What is selected stays, and what is looked at.
        const auto selected = selected_;
        const int scrolled = chosen_.empty() ? 0 : table_->verticalScrollBar()->value();
        showSteps();
        showChosen();
        select(selected);
        table_->verticalScrollBar()->setValue(scrolled);
        showSelected();
        refresh();
    });
    showSelected();
    refresh();
}

Panel* RunPage::makeCharts() {
    constexpr int kChartsShown = 100;  // pixels: a row of charts, the others are scrolled to
    auto* panel = new Panel(tr("Norms over steps"), this);
    auto* scroll = new QScrollArea(panel);
    charts_ = new PictureView(tr("Norms over the steps of the run"), true, scroll);
    scroll->setWidget(charts_);
    scroll->setWidgetResizable(true);
    scroll->setFrameShape(QFrame::NoFrame);
    scroll->setFocusPolicy(Qt::NoFocus);
    scroll->setFixedHeight(kChartsShown);
    panel->setView(scroll);
    panel->setExports({QStringLiteral("norms"), charts_, {}, [this] { return charts_->svg(); }});
    panel->setSizePolicy(QSizePolicy::Preferred, QSizePolicy::Fixed);
    marks_ = wrappedLabel(panel);
    panel->layout()->addWidget(marks_);
    return panel;
}

void RunPage::showCharts() {
    constexpr size_t kMarksShown = 2;
    const auto& charts = steps_.charts();
    norms_->setVisible(charts != nullptr);
    if (charts == shownCharts_) return;
    shownCharts_ = charts;
    const auto draw = [charts](double width, double, bool dark) {
        const ValueCharts::Drawing drawing = charts->draw(width);
        DrawnPicture picture{charts->svgOf(width, dark), drawing.width, drawing.height, {}, {}};
        for (size_t i = 0; i < drawing.charts.size(); ++i)
            picture.items.push_back({drawing.charts[i], charts->text(charts->charts()[i])});
        return picture;
    };
    charts_->setPicture(charts ? PictureView::Draw(draw) : nullptr,
                        charts ? toQString(charts->headline()) : QString());
    QStringList lines;
    if (charts) {
        for (size_t i = 0; i < std::min(kMarksShown, charts->marks().size()); ++i)
            lines += QStringLiteral("▲ ") + toQString(charts->marks()[i].text);
        if (charts->marks().size() > kMarksShown)
            lines += countedText(charts->marks().size() - kMarksShown, tr("and 1 more mark, at its chart"),
                                 tr("and %1 more marks, at their charts"));
    }
    marks_->setText(lines.join('\n'));
    marks_->setVisible(!lines.isEmpty());
}

void RunPage::makeTable() {
    const auto step = [this](size_t i) -> const RunRow& { return steps_.rows()[i]; };
    const auto verdict = [this](size_t i) {
        return i == steps_.newestWhole() ? tr("%1 · newest whole step").arg(steps_.stateText(i))
                                         : steps_.stateText(i);
    };
    model_ = new TextTableModel(
        {{{tr("Step")},
          [=](size_t i) { return toQString(step(i).step.name); },
          [=](size_t i) { return static_cast<uint64_t>(std::max<int64_t>(-1, step(i).step.step) + 1); }},
         {{tr("Saved")},
          [this](size_t i) { return steps_.savedText(i); },
          [=](size_t i) { return static_cast<uint64_t>(step(i).files.modifiedNs); }},
         {{tr("Since the last save"), true},
          [this](size_t i) { return toQString(steps_.facts(i).sinceText()); },
          [this](size_t i) {
              return static_cast<uint64_t>(steps_.facts(i).secondsSincePrevious.value_or(-1) + 1);
          }},
         sizeColumn(tr("Size"), [=](size_t i) { return step(i).files.bytes; }),
         countColumn(tr("Files"), [=](size_t i) { return step(i).files.files; }),
         {{tr("Ranks"), true},
          [this](size_t i) { return toQString(steps_.facts(i).ranksText()); },
          [this](size_t i) { return steps_.facts(i).ranks; }},
         {{tr("Format")},
          [=](size_t i) { return step(i).format.empty() ? tr("unknown") : toQString(step(i).format); }},
         {{tr("Verdict")}, verdict}},
        this);
    panel_ = new Panel(tr("Steps"), this);
    table_ = ui::makeTable(model_, tr("Steps of the run"), panel_);
    table_->setSelectionMode(QAbstractItemView::ExtendedSelection);
    panel_->setView(table_);
    panel_->setExports({QStringLiteral("steps"), table_, [this] { return model_; }});
    panel_->setMenuBuilder([this](QMenu& menu) {
        const int row = currentRow();
        if (row < 0) return;
        const QString path = steps_.path(static_cast<size_t>(row));
        menu.addAction(tr("Open"), this, &RunPage::openCurrent);
        const QStringList steps = selectedSteps();
        if (steps.size() == 2)
            menu.addAction(tr("Compare"), this, [this, steps] { emit compareRequested(steps); });
        if (steps.size() > 1)
            menu.addAction(tr("Average…"), this, [this, steps] { emit averageRequested(steps); });
        menu.addAction(tr("Copy path"), this, [path] { copyText(path); });
    });
}

QHBoxLayout* RunPage::makeButtons() {
    open_ = new QPushButton(tr("&Open the step"), this);
    open_->setDefault(true);
    compare_ = new QPushButton(tr("Com&pare"), this);
    compare_->setToolTip(tr("Compare the two selected steps; select a second one with Ctrl"));
    average_ = new QPushButton(tr("&Average…"), this);
    average_->setToolTip(tr("Average the values of the selected steps; select several with Ctrl or Shift"));
    level_ = withName(new QComboBox(this), tr("How deep steps are checked"));
    level_->addItem(tr("Check metadata"), static_cast<int>(ValidateLevel::metadata));
    level_->addItem(tr("Check files"), static_cast<int>(ValidateLevel::files));
    level_->addItem(tr("Check every value"), static_cast<int>(ValidateLevel::values));
    level_->setCurrentIndex(level_->findData(static_cast<int>(steps_.level())));
    check_ = new QPushButton(this);
    check_->setToolTip(tr("While the run is watched, new and changed steps are checked once they are saved"));
    auto* back = new QPushButton(tr("Back to the start"), this);
    auto* buttons = new QHBoxLayout;
    for (QWidget* each : std::initializer_list<QWidget*>{open_, compare_, average_, level_, check_})
        buttons->addWidget(each);
    buttons->addStretch(1);
    buttons->addWidget(back);
    connect(open_, &QPushButton::clicked, this, &RunPage::openCurrent);
    connect(compare_, &QPushButton::clicked, this, [this] { emit compareRequested(selectedSteps()); });
    connect(average_, &QPushButton::clicked, this, [this] { emit averageRequested(selectedSteps()); });
    connect(check_, &QPushButton::clicked, this, [this] { steps_.setChecking(!steps_.checking()); });
    connect(level_, &QComboBox::activated, this, [this] {
        steps_.setLevel(static_cast<ValidateLevel>(level_->currentData().toInt()));
        steps_.setChecking(true);
    });
    connect(back, &QPushButton::clicked, &session_, &Session::close);
    return buttons;
}

void RunPage::showSteps() {
    std::vector<RunMark> marks;
    for (size_t i = 0; i < steps_.rows().size(); ++i) {
        const RunRow& row = steps_.rows()[i];
        const StepFacts& facts = steps_.facts(i);
        RunMark mark;
        mark.name = toQString(row.step.name);
        mark.savedMs = row.files.modifiedNs / 1'000'000;
        mark.step = row.step.step;
        mark.bytes = row.files.bytes;
        if (row.verdict) mark.verdict = row.verdict->verdict();
        mark.saving = steps_.state(i) == RunSteps::State::saving;
        mark.newestWhole = i == steps_.newestWhole();
        mark.ranks = facts.ranks;
        mark.ranksBefore = facts.ranksBefore;
        marks.push_back(std::move(mark));
    }
    timeline_->setMarks(std::move(marks),
                        [this](int row) { return steps_.description(static_cast<size_t>(row)); });
    const QSignalBlocker quiet(table_->selectionModel());
    model_->setRows(steps_.rows().size());
}

// A new listing keeps the step, wherever its row is now; the first one chooses the newest.
void RunPage::showChosen() {
    if (steps_.rows().empty()) {
        chosen_.clear();
        return;
    }
    size_t at = 0;
    for (size_t i = 0; i < steps_.rows().size(); ++i) {
        if (steps_.rows()[i].step.name == chosen_) at = i;
    }
    if (chosen_.empty()) {
        fitColumns(*table_);
        // Room for what is known when steps are checked.
        const int ranks = table_->fontMetrics().horizontalAdvance(QStringLiteral("1023, before 1024 "));
        table_->setColumnWidth(kRanksColumn, std::max(ranks, table_->columnWidth(kRanksColumn)));
    }
    chosen_ = steps_.rows()[at].step.name;
    table_->setCurrentIndex(model_->index(model_->rowOf(static_cast<int>(at)), 0));
    timeline_->setCurrent(static_cast<int>(at));
}

void RunPage::select(const std::set<std::string>& names) {
    QItemSelection rows;
    for (size_t i = 0; i < steps_.rows().size(); ++i) {
        if (!names.contains(steps_.rows()[i].step.name)) continue;
        const QModelIndex index = model_->index(model_->rowOf(static_cast<int>(i)), 0);
        rows.select(index, index);
    }
    table_->selectionModel()->select(rows, QItemSelectionModel::Select | QItemSelectionModel::Rows);
}

void RunPage::showSelected() {
    std::vector<int> rows;
    selected_.clear();
    for (const QModelIndex& index : table_->selectionModel()->selectedRows()) {
        rows.push_back(model_->source(index.row()));
        selected_.insert(steps_.rows()[static_cast<size_t>(rows.back())].step.name);
    }
    compare_->setEnabled(rows.size() == 2);
    average_->setEnabled(rows.size() > 1);
    timeline_->setSelected(rows.size() > 1 ? std::move(rows) : std::vector<int>());
}

int RunPage::currentRow() const {
    const QModelIndex index = table_->currentIndex();
    if (!index.isValid()) return -1;
    const int row = model_->source(index.row());
    return static_cast<size_t>(row) < steps_.rows().size() ? row : -1;
}

QStringList RunPage::selectedSteps() const {
    std::vector<size_t> rows;
    for (const QModelIndex& index : table_->selectionModel()->selectedRows()) {
        const int row = model_->source(index.row());
        if (static_cast<size_t>(row) < steps_.rows().size()) rows.push_back(static_cast<size_t>(row));
    }
    std::ranges::sort(rows, {}, [&](size_t row) { return steps_.rows()[row].step.step; });
    QStringList paths;
    for (const size_t row : rows)
        paths += steps_.path(row);
    return paths;
}

QString RunPage::chosenPath() const {
    const int row = currentRow();
    return row < 0 ? QString() : steps_.path(static_cast<size_t>(row));
}

void RunPage::openCurrent() {
    if (const QString path = chosenPath(); !path.isEmpty()) emit openRequested(path);
}

void RunPage::refresh() {
    title_->setText(tr("Run %1").arg(toQString(session_.path().toStdString())));
    summary_->setText(steps_.summary());
    check_->setText(steps_.checking() ? tr("&Stop watching") : tr("&Check all steps"));
    const int row = currentRow();
    open_->setEnabled(row >= 0);
    showCharts();
    advice_->setText(steps_.advice());
    advice_->setVisible(!advice_->text().isEmpty());
    const bool resumes = steps_.newestWhole() != kNoStep;
    if (resumes) emit this->resumes(toQString(steps_.rows()[steps_.newestWhole()].step.name));
    copyNewest_->setVisible(resumes);
    copyNewest_->setToolTip(resumes ? steps_.path(steps_.newestWhole()).toHtmlEscaped() : QString());
    const QString details = row < 0 ? QString() : steps_.details(static_cast<size_t>(row));
    details_->setText(details);
    details_->setVisible(!details.isEmpty());
}

}  // namespace shardscope::ui
