#include "ui/pages/compare_page.h"

#include <QDragEnterEvent>
#include <QHBoxLayout>
#include <QHeaderView>
#include <QLabel>
#include <QLineEdit>
#include <QMenu>
#include <QMimeData>
#include <QPushButton>
#include <QSplitter>
#include <QStackedWidget>
#include <QTableView>
#include <QTimer>
#include <QToolButton>
#include <QUrl>

#include "plan/request_text.h"
#include "ui/models/texts.h"
#include "ui/pages/compare_setup.h"
#include "ui/widgets/box_sketch.h"
#include "ui/widgets/building.h"
#include "ui/widgets/card.h"
#include "ui/widgets/labels.h"
#include "ui/widgets/picture_view.h"
#include "ui/widgets/task_progress.h"
#include "ui/widgets/theme.h"

namespace shardscope::ui {

namespace {

constexpr int kSpacing = 8;
constexpr int kFilterDelay = 80;        // milliseconds after the last key
constexpr int kProgressInterval = 100;  // milliseconds

}  // namespace

ComparePage::ComparePage(Session& session, QWidget* parent)
    : QWidget(parent), session_(session), model_(new CompareModel(session.tasks(), this)) {
    setAccessibleName(tr("Compare"));
    setAcceptDrops(true);
    auto* layout = layoutOf<QVBoxLayout>(this, {kSpacing, kSpacing, kSpacing, kSpacing}, kSpacing);
    setup_ = new CompareSetup(this);
    layout->addWidget(setup_);
    progress_ = new TaskProgress(tr("Progress of the comparison"), this);
    layout->addWidget(progress_);

    stack_ = new QStackedWidget(this);
    message_ = textBlock(stack_);
    message_->setAlignment(Qt::AlignCenter);
    message_->setForegroundRole(QPalette::PlaceholderText);
    message_->setMargin(24);
    results_ = new QWidget(stack_);
    auto* results = layoutOf<QVBoxLayout>(results_, {0, 0, 0, 0}, kSpacing);
    summary_ = textBlock(results_);
    makeBold(summary_);
    summary_->setAccessibleName(tr("Result of the comparison"));
    copyCommand_ = withName(new QPushButton(tr("Copy as command"), results_), tr("Copy as command"));
    values_ = withName(new QPushButton(tr("Compare values"), results_), tr("Compare values"));
    auto* head = new QHBoxLayout;
    head->addWidget(summary_, 1);
    head->addWidget(values_, 0, Qt::AlignTop);
    head->addWidget(copyCommand_, 0, Qt::AlignTop);
    results->addLayout(head);
    auto* toggles = new QHBoxLayout;
    toggles->setSpacing(4);
    makeToggles(*toggles);
    results->addLayout(toggles);
    refreshToggles();
    makeTable();
    makeDetail();
    makeChange();
    auto* split = new QSplitter(Qt::Vertical, results_);
    split->addWidget(changePanel_);
    split->addWidget(panel_);
    split->addWidget(detail_);
    split->setStretchFactor(0, 2);
    split->setStretchFactor(1, 3);
    split->setStretchFactor(2, 1);
    split->setChildrenCollapsible(false);
    results->addWidget(split, 1);
    stack_->addWidget(message_);
    stack_->addWidget(results_);
    layout->addWidget(stack_, 1);

    filterTimer_ = new QTimer(this);
    filterTimer_->setSingleShot(true);
    filterTimer_->setInterval(kFilterDelay);
    progressTimer_ = new QTimer(this);
    progressTimer_->setInterval(kProgressInterval);
    connect(filterTimer_, &QTimer::timeout, this, [this] { model_->setFilter(filter_->text()); });
    connect(progressTimer_, &QTimer::timeout, this, &ComparePage::refreshProgress);
    connect(setup_, &CompareSetup::compareRequested, this, &ComparePage::compare);
    connect(setup_, &CompareSetup::cancelRequested, this, &ComparePage::cancel);
    connect(values_, &QPushButton::clicked, this, &ComparePage::compareValues);
    connect(copyCommand_, &QPushButton::clicked, this, [this] { copyText(command()); });
    connect(model_, &CompareModel::arranged, this, &ComparePage::refreshEmpty);
    connect(&session_, &Session::stateChanged, this, &ComparePage::refreshCheckpoint);
    refreshCheckpoint();
}

ComparePage::~ComparePage() {
    ticket_.drop();
}

// ------------------------------------------------------------------ making

void ComparePage::makeToggles(QHBoxLayout& line) {
    for (int i = 0; i < kDiffClassCount; ++i) {
        auto* toggle = new QToolButton(results_);
        toggle->setCheckable(true);
        toggle->setChecked(true);
        toggle->setToolButtonStyle(Qt::ToolButtonTextOnly);
        toggle->setToolTip(tr("Show or hide differences of this class"));
        connect(toggle, &QToolButton::toggled, this,
                [this, i](bool shown) { model_->setShown(static_cast<DiffClass>(i), shown); });
        toggles_[static_cast<size_t>(i)] = toggle;
        line.addWidget(toggle);
    }
    auto* fold = withName(new QToolButton(results_), tr("Fold layers"));
    fold->setText(tr("Fold layers"));
    fold->setToolTip(tr("Show rows that differ in the number of their layer alone as one"));
    fold->setCheckable(true);
    connect(fold, &QToolButton::toggled, model_, &CompareModel::setFolded);
    fold->setChecked(true);
    line.addWidget(fold);
    line.addStretch(1);
    filter_ = new QLineEdit(results_);
    filter_->setPlaceholderText(tr("Filter by name"));
    filter_->setAccessibleName(tr("Filter differences by name"));
    filter_->setClearButtonEnabled(true);
    filter_->setMinimumWidth(140);
    filter_->setMaximumWidth(320);
    line.addWidget(filter_, 1);
    connect(filter_, &QLineEdit::textChanged, this, [this] { filterTimer_->start(); });
}

void ComparePage::makeTable() {
    panel_ = new Panel(tr("Differences"), results_);
    table_ = ui::makeTable(model_, tr("Differences"), panel_);
    panel_->setView(table_);
    panel_->setExports({QStringLiteral("differences"), table_, [this] { return model_; }});
    panel_->setMenuBuilder([this](QMenu& menu) { fillMenu(menu); });
    connect(table_->selectionModel(), &QItemSelectionModel::currentRowChanged, this,
            [this](const QModelIndex& now) {
                showRow(now);
                selectRow(now);
            });
}

void ComparePage::makeDetail() {
    detail_ = withName(new QWidget(results_), tr("Placement on both sides"));
    auto* columns = layoutOf<QHBoxLayout>(detail_, {0, 0, 0, 0}, kSpacing);
    const auto side = [&](const QString& title, QLabel*& text, BoxSketch*& sketch) {
        auto* panel = new Panel(title, detail_);
        sketch = withName(new BoxSketch(panel), tr("Placement in %1").arg(title));
        panel->setView(sketch);
        text = panel->addCaption();
        panel->setExports({QStringLiteral("placement"), sketch, {}});
        panel->setMenuBuilder(
            [text](QMenu& menu) { addCopyAction(menu, ComparePage::tr("Copy"), text->text()); });
        columns->addWidget(panel, 1);
    };
    side(tr("A, this one"), detailA_, sketchA_);
    side(tr("B, the other"), detailB_, sketchB_);
}

void ComparePage::makeChange() {
    changePanel_ = new Panel(tr("What moves between ranks"), results_);
    change_ = new PictureView(tr("What moves between ranks: modules by ranks"), false, changePanel_);
    changePanel_->setView(change_);
    changePanel_->setExports({QStringLiteral("moves"), change_, {}, [this] { return change_->svg(); }});
}

// Nothing where every byte stays on its rank.
void ComparePage::showChange() {
    const auto change = comparison()->change;
    const bool moves = change && change->sum().arrives + change->sum().leaves > 0 &&
                       std::max(change->ranksA(), change->ranksB()) > 1;
    changePanel_->setVisible(moves);
    const auto draw = [change](double width, double height, bool dark) {
        const PlacementChange::Drawing drawing = change->draw(width, height);
        DrawnPicture picture{change->svgOf(width, height, dark), drawing.width, drawing.height, {}, {}};
        for (const PlacementChange::Cell& cell : drawing.cells)
            picture.items.push_back({cell.rect, change->cellText(cell)});
        return picture;
    };
    const QString headline = moves ? toQString(change->headline()) : QString();
    change_->setPicture(moves ? PictureView::Draw(draw) : nullptr, headline);
    if (moves) summary_->setText(summary_->text() + QLatin1Char('\n') + headline);
}

void ComparePage::fillMenu(QMenu& menu) {
    const QModelIndex index = table_->currentIndex();
    if (index.isValid()) {
        addCopyAction(menu, tr("Copy name"), model_->text(model_->row(index.row()), CompareModel::name));
    }
    addCopyAction(menu, tr("Copy as command"), command());
}

// ------------------------------------------------------------------ running

void ComparePage::setOtherPath(const QString& path) {
    setup_->setOtherPath(path);
}

QString ComparePage::summary() const {
    return summary_->text();
}

QString ComparePage::command() const {
    QStringList words{QStringLiteral("shardscope"), QStringLiteral("diff"), session_.path(),
                      comparison() ? QString::fromStdString(comparison()->b->path) : setup_->otherPath()};
    if (comparison()) {
        for (const RenameRule& rule : comparison()->options.rename)
            words << QStringLiteral("--rename") << QString::fromStdString(formatRenameRule(rule));
        if (!comparison()->options.map.empty())
            words << QStringLiteral("--map") << QString::fromStdString(comparison()->options.map);
        for (const std::string& value : comparison()->options.set)
            words << QStringLiteral("--set") << QString::fromStdString(value);
        if (comparison()->options.weightsOnly) words << QStringLiteral("--weights-only");
        if (comparison()->report.valuesCompared()) words << QStringLiteral("--values");
    }
    words += session_.options().words();
    return shellLine(words);
}

void ComparePage::compare() {
    const QString path = setup_->otherPath();
    if (!session_.checkpoint() || path.isEmpty()) return;
    start(nullptr, path, false);
}

void ComparePage::compareValues() {
    if (!comparison()) return;
    start(comparison()->b, QString::fromStdString(comparison()->b->path), true);
}

// With `other` null it is opened first.
void ComparePage::start(CheckpointPtr other, const QString& path, bool values) {
    ticket_.drop();
    DiffOptions options;
    if (values) {
        options = comparison()->options;
    } else {
        auto asked = setup_->options();
        if (!asked.ok()) return showMessage(errorSentence(asked.error()));
        options = std::move(asked).value();
    }
    options.values = values;
    ticket_ = session_.tasks().run<ComparisonPtr>(
        values ? Work::bulk : Work::metadata,
        values ? tr("Comparing values with %1").arg(path) : tr("Comparing with %1").arg(path),
        [engine = session_.enginePtr(), a = session_.checkpoint(), other, options,
         path = path.toStdString()](const TaskContext& context) -> Result<ComparisonPtr> {
            CheckpointPtr b = other;
            if (!b) {
                SHARDSCOPE_ASSIGN(b, engine->open(path, {}, context));
            }
            SHARDSCOPE_TRY(context.stop.poll());
            SHARDSCOPE_ASSIGN(DiffReport report, engine->diff(a, b, options, context));
            return Comparison::make(a, b, std::move(report), options, context.stop);
        },
        [this, path](Result<ComparisonPtr> answer) { finish(std::move(answer), path); });
    setup_->setBusy(true);
    values_->setEnabled(false);
    if (!values) {
        model_->setComparison(nullptr);
        showMessage(tr("Comparing with %1…").arg(path));
    }
    progressTimer_->start();
    refreshProgress();
}

void ComparePage::cancel() {
    ticket_.cancel();
}

void ComparePage::finish(Result<ComparisonPtr> answer, const QString& path) {
    progressTimer_->stop();
    progress_->hide();
    setup_->setBusy(false);
    values_->setEnabled(true);
    if (!answer.ok()) {
        const bool cancelled = answer.error().code == ErrorCode::cancelled;
        const QString whole = cancelled ? tr("The comparison was canceled.") : errorText(answer.error());
        // What was found before stays; only the values are not known then.
        if (comparison())
            summary_->setText(comparison()->summary() + QLatin1Char(' ') + whole);
        else
            showMessage(cancelled ? whole : tr("The two could not be compared.") + QLatin1Char('\n') + whole);
        return;
    }
    setup_->remember(path);
    model_->setComparison(std::move(answer).value());
    summary_->setText(comparison()->summary());
    showChange();
    const bool compared = comparison()->report.valuesCompared();
    values_->setText(compared ? tr("Values compared")
                              : tr("Compare values (reads %1)").arg(sizeText(comparison()->valueBytes)));
    values_->setEnabled(!compared && comparison()->matched > 0);
    values_->setAccessibleName(values_->text());
    for (int c = CompareModel::different; c < CompareModel::columnCountValue; ++c)
        table_->setColumnHidden(c, comparison()->report.values.empty());
    refreshToggles();
    fitColumns(*table_);
    if (comparison()->report.values.empty()) table_->horizontalHeader()->setStretchLastSection(true);
    stack_->setCurrentWidget(results_);
    showRow({});
    refreshEmpty();
}

void ComparePage::refreshProgress() {
    progress_->setVisible(ticket_.running());
    progress_->setStatus(ticket_.status());
}

// ------------------------------------------------------------------ showing

void ComparePage::showMessage(const QString& text) {
    message_->setText(text);
    stack_->setCurrentWidget(message_);
}

void ComparePage::refreshCheckpoint() {
    setup_->setReady(session_.checkpoint() != nullptr);
    if (shown_ == session_.checkpoint() && shown_) return;
    shown_ = session_.checkpoint();
    ticket_.drop();
    progressTimer_->stop();
    progress_->hide();
    setup_->setBusy(false);
    setup_->setThisPath(shown_ ? session_.path() : QString());
    model_->setComparison(nullptr);
    showMessage(
        shown_
            ? tr("Nothing is compared yet.\nChoose another checkpoint above, of any format and any number of "
                 "ranks, or drop its directory here.")
            : tr("Open a checkpoint to compare it with another."));
}

void ComparePage::refreshToggles() {
    for (int i = 0; i < kDiffClassCount; ++i) {
        const size_t count = comparison() ? comparison()->counts[static_cast<size_t>(i)] : 0;
        const auto cls = static_cast<DiffClass>(i);
        const bool unknown =
            cls == DiffClass::values && comparison() && !comparison()->report.valuesCompared();
        QToolButton* toggle = toggles_[static_cast<size_t>(i)];
        toggle->setText(unknown ? tr("%1 (?)").arg(diffClassName(cls))
                                : tr("%1 (%2)").arg(diffClassName(cls), numberText(count)));
        toggle->setAccessibleName(tr("Show differences: %1").arg(toggle->text()));
        toggle->setEnabled(count > 0);
    }
}

void ComparePage::refreshEmpty() {
    if (!comparison()) return;
    QString text;
    if (model_->busy())
        text = tr("Sorting…");
    else if (model_->rowCount() == 0)
        text =
            tr("None of the %1 differences passes the filters.").arg(numberText(comparison()->rows.size()));
    // The headline has said that there is nothing to list.
    for (QWidget* part : {static_cast<QWidget*>(panel_), detail_})
        part->setVisible(!comparison()->rows.empty());
    panel_->setEmptyText(text);
}

void ComparePage::showRow(const QModelIndex& index) {
    if (!index.isValid() || !comparison()) {
        sketchA_->showMessage(tr("Select a difference to see both sides."));
        sketchB_->showMessage(tr("Select a difference to see both sides."));
        detailA_->clear();
        detailB_->clear();
        return;
    }
    const Comparison::Row& row = model_->row(index.row());
    const QString absent = tr("This side has no such tensor.");
    sketchA_->show(comparison()->catalogA(), row.a, absent);
    sketchB_->show(comparison()->b->catalog(), row.b, absent);
    const auto text = [](const Catalog& catalog, TensorId t) {
        return t == kNone ? QString()
                          : toQString(catalog.name(t)) + QStringLiteral(": ") +
                                toQString(dtypeName(catalog.dtype(t))) + QStringLiteral(", ") +
                                toQString(cutText(catalog, t));
    };
    detailA_->setText(text(comparison()->catalogA(), row.a));
    detailB_->setText(text(comparison()->b->catalog(), row.b));
}

void ComparePage::selectRow(const QModelIndex& index) {
    // Tensors that a recipe makes are not those of the checkpoint.
    if (!index.isValid() || !comparison() || comparison()->report.mapped ||
        comparison()->a != session_.checkpoint())
        return;
    const TensorId tensor = model_->row(index.row()).a;
    if (tensor != kNone) session_.selection().selectTensor(tensor);
}

// ------------------------------------------------------------------ dropping

void ComparePage::dragEnterEvent(QDragEnterEvent* event) {
    const QList<QUrl> urls = event->mimeData()->urls();
    if (session_.checkpoint() && urls.size() == 1 && urls.first().isLocalFile())
        event->acceptProposedAction();
}

void ComparePage::dropEvent(QDropEvent* event) {
    const QList<QUrl> urls = event->mimeData()->urls();
    if (urls.size() != 1 || !urls.first().isLocalFile()) return;
    event->acceptProposedAction();
    setOtherPath(urls.first().toLocalFile());
    compare();
}

}  // namespace shardscope::ui
