#include "ui/pages/findings_panel.h"

#include <QAction>
#include <QComboBox>
#include <QHBoxLayout>
#include <QHeaderView>
#include <QInputDialog>
#include <QLabel>
#include <QMenu>
#include <QPushButton>
#include <QSplitter>
#include <QTextBrowser>
#include <QToolButton>
#include <QTreeView>
#include <QVBoxLayout>
#include <algorithm>

#include "ui/models/report_export.h"
#include "ui/models/texts.h"
#include "ui/widgets/banner.h"
#include "ui/widgets/building.h"
#include "ui/widgets/card.h"
#include "ui/widgets/file_dialog.h"
#include "ui/widgets/task_progress.h"
#include "ui/widgets/theme.h"
#include "validate/rules.h"

namespace shardscope::ui {

namespace {

// The chunk of a tensor that an example is about; kNone where it is about all of it.
ChunkId chunkOf(const Catalog& catalog, TensorId t, FileId file, const FindingExample& example) {
    if (example.rank == kNone && file == kNone && !example.box) return kNone;
    for (ChunkId c = catalog.firstChunk(t); c < catalog.endChunk(t); ++c) {
        const ChunkInfo chunk = catalog.chunk(t, c);
        if (example.rank != kNone && chunk.rank != example.rank) continue;
        if (file != kNone && chunk.file != file) continue;
        if (!example.box || std::ranges::equal(example.box->offsets, chunk.offsets)) return c;
    }
    return kNone;
}

// With all that is listed under it, as lines of cells.
QString textOf(const Finding& finding) {
    QStringList lines{toQString(finding.rule) + '\t' + toQString(finding.message) + '\t' +
                      toQString(finding.cause)};
    for (const FindingExample& e : finding.examples) {
        QStringList cells{QString(), toQString(e.tensor)};
        if (e.rank != kNone) cells += FindingsPanel::tr("rank %1").arg(e.rank);
        cells += toQString(e.file);
        if (e.box) cells += toQString(formatBox(e.box->offsets, e.box->lengths));
        cells += toQString(e.detail);
        cells.removeAll(QString());
        lines += '\t' + cells.join('\t');
    }
    return lines.join('\n');
}

}  // namespace

FindingsPanel::FindingsPanel(Session& session, Suppressions& suppressions, QWidget* parent)
    : QWidget(parent), session_(session), validation_(session.validation()), suppressions_(suppressions) {
    model_ = new FindingsModel(session, suppressions, this);
    auto* layout = layoutOf<QVBoxLayout>(this, {6, 6, 6, 6}, 6);
    layout->addLayout(makeBar());
    auto* splitter = new QSplitter(Qt::Horizontal, this);
    splitter->addWidget(makeTable(splitter));
    splitter->addWidget(makeSide(splitter));
    splitter->setStretchFactor(0, 3);
    splitter->setStretchFactor(1, 1);
    splitter->setSizes({900, 300});
    layout->addWidget(splitter, 1);
    follow();
    // The style of the verdict holds the colors of the theme that it was made in.
    onThemeChange(this, [this] {
        verdict_->setStyleSheet(QString());
        update();
    });
    update();
}

QLayout* FindingsPanel::makeBar() {
    auto* levelLabel = new QLabel(tr("Check:"), this);
    level_ = withName(new QComboBox(this), tr("How deep to check"));
    for (const ValidateLevel level : {ValidateLevel::metadata, ValidateLevel::files, ValidateLevel::values})
        level_->addItem(levelText(level), static_cast<int>(level));
    level_->setCurrentIndex(1);
    levelLabel->setBuddy(level_);
    cost_ = withName(new QLabel(this), tr("Cost of the check"));
    run_ = withName(new QPushButton(tr("Validate"), this), tr("Validate"));
    cancel_ = withName(new QPushButton(tr("Cancel"), this), tr("Cancel the validation"));
    continue_ =
        withName(new QPushButton(tr("Continue"), this), tr("Continue reading values where it stopped"));
    finished_ = withName(new QPushButton(tr("Mark as finished"), this),
                         tr("Mark the checkpoint as finished, so that it can be validated"));
    finished_->setToolTip(tr("Nothing writes to it any more; allow validation"));
    progress_ = new TaskProgress(tr("Progress of the validation"), this);
    verdict_ = withName(new QLabel(this), tr("Verdict"));
    QWidget* more = makeMore();
    auto* bar = new QHBoxLayout;
    for (QWidget* widget : std::initializer_list<QWidget*>{levelLabel, level_, run_, continue_, finished_,
                                                           cancel_, progress_, cost_})
        bar->addWidget(widget);
    bar->addStretch(1);
    bar->addWidget(verdict_);
    bar->addWidget(more);
    return bar;
}

QWidget* FindingsPanel::makeMore() {
    auto* more = new QToolButton(this);
    more->setText(tr("More"));
    more->setAccessibleName(tr("More about findings"));
    more->setPopupMode(QToolButton::InstantPopup);
    auto* menu = new QMenu(more);
    menu->addAction(tr("Expect the same names as another checkpoint…"), this, &FindingsPanel::chooseExpected);
    auto* shown = menu->addAction(tr("Show accepted findings"));
    shown->setCheckable(true);
    connect(shown, &QAction::toggled, model_, &FindingsModel::setShowSuppressed);
    menu->addSeparator();
    for (const auto& [text, form] : {std::pair(tr("Export as HTML report…"), QStringLiteral("html")),
                                     {tr("Export as JSON…"), QStringLiteral("json")},
                                     {tr("Export as JUnit XML…"), QStringLiteral("xml")},
                                     {tr("Export as CSV…"), QStringLiteral("csv")}}) {
        QAction* action = menu->addAction(text, this, [this, form = form] { exportAs(form); });
        connect(menu, &QMenu::aboutToShow, action,
                [this, action] { action->setEnabled(validation_.report() != nullptr); });
    }
    more->setMenu(menu);
    return more;
}

QWidget* FindingsPanel::makeTable(QWidget* parent) {
    auto* left = new QWidget(parent);
    auto* stack = layoutOf<QVBoxLayout>(left, {0, 0, 0, 0});
    view_ = new QTreeView(left);
    view_->setObjectName(QStringLiteral("findings"));
    view_->setModel(model_);
    dressTree(*view_, tr("Findings"), false);
    view_->setSelectionMode(QAbstractItemView::ExtendedSelection);
    for (const auto& [column, width] : {std::pair(FindingsModel::severity, 95),
                                        {FindingsModel::rule, 125},
                                        {FindingsModel::what, 360},
                                        {FindingsModel::where, 170},
                                        {FindingsModel::count, 60}})
        view_->header()->resizeSection(column, width);
    view_->header()->setStretchLastSection(false);
    view_->header()->setSectionResizeMode(FindingsModel::what, QHeaderView::Stretch);
    empty_ = new QLabel(left);
    empty_->setWordWrap(true);
    empty_->setAlignment(Qt::AlignCenter);
    stack->addWidget(view_, 1);
    stack->addWidget(empty_, 1);
    return left;
}

// What the selected finding means, and what can be done with it.
QWidget* FindingsPanel::makeSide(QWidget* parent) {
    auto* side = new QWidget(parent);
    auto* layout = layoutOf<QVBoxLayout>(side, {0, 0, 0, 0}, 2);
    explanation_ = withName(new QTextBrowser(side), tr("Explanation"));
    explanation_->setOpenLinks(false);
    explanation_->setFrameShape(QFrame::NoFrame);
    layout->addWidget(explanation_, 1);
    auto* deeds = layoutOf<QHBoxLayout>(nullptr, {4, 0, 4, 0});
    layout->addLayout(deeds);

    go_ = new QAction(tr("Go to it"), this);
    go_->setShortcut(Qt::Key_Return);
    go_->setShortcutContext(Qt::WidgetShortcut);
    connect(go_, &QAction::triggered, this, [this] { go(view_->currentIndex()); });
    view_->addAction(go_);
    explain_ = new QAction(tr("Explain"), this);
    connect(explain_, &QAction::triggered, this, [this] {
        explanation_->parentWidget()->show();
        explanation_->setFocus();
    });
    suppress_ = new QAction(tr("Accept…"), this);
    connect(suppress_, &QAction::triggered, this, &FindingsPanel::suppress);
    copy_ = new QAction(tr("Copy"), this);
    copy_->setToolTip(tr("Copy the finding with all that is listed under it"));
    connect(copy_, &QAction::triggered, this, [this] {
        if (const Finding* finding = model_->finding(view_->currentIndex())) copyText(textOf(*finding));
    });
    for (QAction* action : {go_, copy_, suppress_}) {
        auto* button = new QToolButton(side);
        button->setDefaultAction(action);
        deeds->addWidget(button);
    }
    deeds->addStretch(1);
    return side;
}

void FindingsPanel::follow() {
    connect(view_, &QTreeView::doubleClicked, this, &FindingsPanel::go);
    offerMenu(view_, [this](QMenu& menu, const QPoint& at) { fillMenu(menu, view_->indexAt(at)); });
    connect(view_->selectionModel(), &QItemSelectionModel::currentChanged, this,
            &FindingsPanel::updateExplanation);
    connect(model_, &QAbstractItemModel::modelReset, this, [this] {
        visited_ = false;
        update();
    });
    connect(run_, &QPushButton::clicked, this, &FindingsPanel::validate);
    connect(cancel_, &QPushButton::clicked, &session_, &Session::cancel);
    connect(continue_, &QPushButton::clicked, &validation_, &Validation::continueReading);
    connect(finished_, &QPushButton::clicked, &session_, &Session::takeAsFinished);
    connect(level_, &QComboBox::currentIndexChanged, this, &FindingsPanel::update);
    for (const auto changed :
         {&Session::filesChanged, &Session::reportChanged, &Session::cardChanged, &Session::factsChanged})
        connect(&session_, changed, this, &FindingsPanel::update);
    connect(&session_, &Session::stateChanged, this, [this] {
        if (!session_.dataElsewhere().isEmpty()) setLevel(ValidateLevel::metadata);
        update();
    });
    connect(&session_, &Session::progressed, this, [this] {
        if (validation_.running()) progress_->setStatus(validation_.status());
    });
    connect(&suppressions_, &Suppressions::changed, this, [this] {
        if (!suppressions_.problem().isEmpty()) showBanner(this, BannerKind::error, suppressions_.problem());
    });
}

void FindingsPanel::validate() {
    // The check that opening begins by itself gives way to the one that is asked for.
    if (!session_.checkpoint() || (validation_.running() && asked_)) return;
    asked_ = true;
    validation_.start(static_cast<ValidateLevel>(level_->currentData().toInt()), expect_);
}

void FindingsPanel::setLevel(ValidateLevel level) {
    level_->setCurrentIndex(static_cast<int>(level));
}

void FindingsPanel::chooseExpected() {
    askForFile(this, {tr("Checkpoint with the names to expect"), QFileDialog::Directory},
               [this](const QString& path) {
                   expect_ = path;
                   validate();
               });
}

void FindingsPanel::update() {
    const bool open = session_.checkpoint() != nullptr;
    const bool busy = validation_.running();
    asked_ = asked_ && busy;
    const auto level = static_cast<ValidateLevel>(level_->currentData().toInt());
    const QString obstacle = validation_.obstacle(level);
    const QString writing = session_.beingWritten();
    run_->setEnabled(!busy && obstacle.isEmpty());
    run_->setToolTip(obstacle.toHtmlEscaped());
    run_->setVisible(!busy);
    continue_->setVisible(validation_.canContinue() && writing.isEmpty());
    finished_->setVisible(!busy && !writing.isEmpty());
    cancel_->setText(level == ValidateLevel::values && busy ? tr("Stop") : tr("Cancel"));
    level_->setEnabled(!busy);
    cancel_->setVisible(busy);
    progress_->setVisible(busy);
    cost_->setVisible(!busy);
    cost_->setText(obstacle.isEmpty() ? validation_.cost(level) : obstacle);
    if (busy) progress_->setStatus(validation_.status());

    verdict_->setVisible(validation_.report() != nullptr);
    if (validation_.report()) {
        const Verdict verdict = *validation_.verdict();
        const bool sofar = validation_.report()->stopped;
        // The answer of the card, without its reason.
        const CardAnswer answer = answerOf(*validation_.card());
        QString text = sofar && verdict == Verdict::safe
                           ? tr("Nothing found so far")
                           : answer.mark + ' ' + answer.words.section(':', 0, 0);
        if (sofar) text += tr(" (%1)").arg(validation_.depth());
        if (model_->suppressed()) text += tr(" (%1 accepted)").arg(numberText(model_->suppressed()));
        verdict_->setText(text);
        verdict_->setStyleSheet(
            QStringLiteral("font-weight: bold; padding: 2px 8px; border-left: 4px solid %1")
                .arg(verdictColor(answer.tone).name()));
        const QString notChecked = notCheckedText(*validation_.report());
        verdict_->setToolTip(notChecked.isEmpty() ? QString() : tr("Not checked: %1").arg(notChecked));
    }
    const bool rows = model_->rowCount() > 0;
    // The first one is explained without being asked for.
    if (rows && !view_->currentIndex().isValid()) view_->setCurrentIndex(model_->index(0, 0));
    view_->setVisible(rows);
    empty_->setVisible(!rows);
    explanation_->parentWidget()->setVisible(rows);
    if (!open)
        empty_->setText(tr("Open a checkpoint to validate it."));
    else if (busy)
        empty_->setText(tr("Validating…"));
    else if (validation_.error())
        empty_->setText(tr("The validation failed. %1").arg(errorSentence(*validation_.error())));
    else if (!validation_.report() && !writing.isEmpty())
        empty_->setText(tr("Still being written: %1 A validation would not be reliable now. Look again when "
                           "the save is done, or mark it as finished.")
                            .arg(writing));
    else if (validation_.canContinue() &&
             (!validation_.report() || validation_.report()->level != ValidateLevel::values))
        empty_->setText(tr("An earlier validation read %1 of all values. The files have not changed: "
                           "“Continue” reads the rest.")
                            .arg(ratioText(static_cast<double>(validation_.scan()->chunksRead()) /
                                           static_cast<double>(validation_.scan()->chunks()))));
    else if (!validation_.report())
        empty_->setText(tr("Nothing has been checked yet."));
    else if (model_->suppressed())
        empty_->setText(tr("All findings are accepted. “More” shows them."));
    else if (const QString notChecked = notCheckedText(*validation_.report()); notChecked.isEmpty())
        empty_->setText(tr("No problems found. All checks ran."));
    else
        empty_->setText(tr("No problems found. Not checked: %1.").arg(notChecked));
    updateExplanation();
    QString title = tr("Findings");
    if (model_->errors()) title += QStringLiteral("  ✕ %1").arg(model_->errors());
    if (model_->warnings()) title += QStringLiteral("  ▲ %1").arg(model_->warnings());
    emit titleChanged(title);
}

void FindingsPanel::updateExplanation() {
    const Finding* finding = model_->finding(view_->currentIndex());
    for (QAction* action : {go_, copy_, suppress_})
        action->setEnabled(finding != nullptr);
    suppress_->setText(finding && !model_->reason(view_->currentIndex()).isNull() ? tr("No longer accept")
                                                                                  : tr("Accept…"));
    if (!finding) {
        shownExplanation_.clear();
        explanation_->setPlainText(tr("Select a finding to see what it means."));
        return;
    }
    const auto html = [](std::string_view text) { return messageText(text).toHtmlEscaped(); };
    QString text = QStringLiteral("<p><b>%1</b></p>").arg(html(finding->message));
    if (const RuleInfo* rule = findRule(finding->rule)) {
        text = QStringLiteral("<p><b>%1</b><br><span>%2</span></p><p>%3</p><p>%4</p>")
                   .arg(html(rule->title), html(finding->message), html(rule->meaning), html(rule->remedy));
    }
    if (!finding->cause.empty())
        text += QStringLiteral("<p>%1</p>").arg(tr("Cause: %1").arg(html(finding->cause)));
    const QString reason = model_->reason(view_->currentIndex());
    if (!reason.isNull())
        text += QStringLiteral("<p>%1</p>").arg(tr("Accepted: %1").arg(reason.toHtmlEscaped()));
    // Anew only when it is another one: it keeps its place and what is selected in it.
    if (text == shownExplanation_) return;
    shownExplanation_ = text;
    explanation_->setHtml(text);
}

bool FindingsPanel::go(const QModelIndex& index) {
    const Finding* finding = model_->finding(index);
    if (!finding || !session_.checkpoint()) return false;
    visited_ = true;
    const FindingExample* example = model_->example(index);
    if (!example && !finding->examples.empty()) example = &finding->examples.front();
    if (!example) return false;
    const Catalog& catalog = session_.catalog();
    Selection& selection = session_.selection();
    const TensorId t = example->tensor.empty() ? kNone : catalog.find(example->tensor);
    const auto& files = catalog.files();
    const auto found = std::ranges::find(files, example->file, &FileInfo::path);
    const FileId file =
        example->file.empty() || found == files.end() ? kNone : static_cast<FileId>(found - files.begin());
    if (t == kNone && file == kNone) return false;
    const ChunkId chunk = t == kNone ? kNone : chunkOf(catalog, t, file, *example);
    if (chunk != kNone)
        selection.selectChunk(t, chunk, catalog.chunk(t, chunk).rank, catalog.chunk(t, chunk).file);
    else if (t != kNone)
        selection.selectTensor(t);
    else
        selection.selectFile(file);
    // The map shows both; a file has a page of its own.
    const Page page = selection.current().page;
    const bool ofFile = t == kNone || (file != kNone && finding->rule.starts_with("file."));
    if (page != Page::placement && (ofFile || page != Page::tensor))
        selection.setPage(ofFile ? Page::files : Page::placement);
    return true;
}

void FindingsPanel::goToNext(bool forward) {
    const int rows = model_->rowCount();
    if (rows == 0) return;
    QModelIndex at = view_->currentIndex();
    if (at.parent().isValid()) at = at.parent();
    // The first one is selected without having been gone to.
    const bool begins = !at.isValid() || !visited_;
    const int row = begins ? (forward ? 0 : rows - 1) : (at.row() + (forward ? 1 : rows - 1)) % rows;
    view_->setCurrentIndex(model_->index(row, 0));
    go(view_->currentIndex());
}

QModelIndex FindingsPanel::find(const QString& words) const {
    for (int row = 0; row < model_->rowCount(); ++row) {
        const QModelIndex at = model_->index(row, 0);
        const Finding& finding = *model_->finding(at);
        if (toQString(finding.rule + ": " + finding.message) == words) return at;
    }
    return {};
}

void FindingsPanel::showFinding(const QString& words) {
    const QModelIndex at = find(words);
    if (!at.isValid()) return;
    view_->setCurrentIndex(at);
    view_->setFocus();
}

bool FindingsPanel::goTo(const QString& words) {
    const QModelIndex at = find(words);
    view_->setCurrentIndex(at);
    return go(at);
}

void FindingsPanel::suppress() {
    const QModelIndex index = view_->currentIndex();
    const Finding* finding = model_->finding(index);
    if (!finding) return;
    if (!model_->reason(index).isNull()) {
        suppressions_.remove(session_.path(), Finding(*finding));
        return;
    }
    auto* dialog = new QInputDialog(this);
    dialog->setAttribute(Qt::WA_DeleteOnClose);
    dialog->setWindowTitle(tr("Accept a finding"));
    dialog->setLabelText(tr("Why is this OK? The reason appears in reports."));
    dialog->setInputMode(QInputDialog::TextInput);
    connect(dialog, &QInputDialog::textValueSelected, this,
            [this, copy = Finding(*finding)](const QString& reason) {
                if (!reason.trimmed().isEmpty()) suppressions_.add(session_.path(), copy, reason.trimmed());
            });
    dialog->open();
}

void FindingsPanel::fillMenu(QMenu& menu, const QModelIndex& index) {
    if (!model_->finding(index)) return;
    menu.addAction(go_);
    menu.addAction(explain_);
    menu.addAction(suppress_);
    menu.addSeparator();
    for (QAction* action : view_->actions()) {
        if (action != go_) menu.addAction(action);
    }
    if (const FindingExample* e = model_->example(index); e && !e->tensor.empty())
        addCopyAction(menu, tr("Copy tensor name"), toQString(e->tensor));
}

void FindingsPanel::exportAs(const QString& form) {
    askAndSave(this, tr("Export the report"), QStringLiteral("validation.%1").arg(form), {},
               [this, form](const QString& path) {
                   const ReportForm kind = form == "html"   ? ReportForm::html
                                           : form == "json" ? ReportForm::json
                                           : form == "csv"  ? ReportForm::csv
                                                            : ReportForm::junit;
                   return validation_.report() ? writeReport(session_, suppressions_, kind, path)
                                               : tr("There is no validation to write yet.");
               });
}

}  // namespace shardscope::ui
