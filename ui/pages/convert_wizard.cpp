#include "ui/pages/convert_wizard.h"

#include <QFileInfo>
#include <QFrame>
#include <QHBoxLayout>
#include <QLabel>
#include <QListWidget>
#include <QPushButton>
#include <QStackedWidget>
#include <QVBoxLayout>

#include "ui/bridge/hosts.h"
#include "ui/models/texts.h"
#include "ui/pages/wizard_pages.h"
#include "ui/widgets/banner.h"
#include "ui/widgets/building.h"
#include "ui/widgets/exporting.h"
#include "ui/widgets/file_dialog.h"

namespace shardscope::ui {

ConvertWizard::ConvertWizard(Session& session, JobStore& jobs, QWidget* parent)
    : QDialog(parent, Qt::Window), jobs_(jobs), state_(new WizardState(session, this)) {
    setWindowTitle(tr("Convert %1").arg(titleOf(session.path())));
    setAccessibleName(tr("Convert a checkpoint"));
    setModal(false);
    resize(1000, 680);
    auto* layout = layoutOf<QVBoxLayout>(this, {0, 0, 0, 0}, 0);
    layout->addWidget(new Banner(this));
    auto* middle = new QHBoxLayout;
    middle->setSpacing(0);
    steps_ = withName(new QListWidget(this), tr("Steps"));
    steps_->setFrameShape(QFrame::NoFrame);
    steps_->setFixedWidth(fontMetrics().averageCharWidth() * 26);
    stack_ = new QStackedWidget(this);
    middle->addWidget(steps_);
    auto* line = new QFrame(this);
    line->setFrameShape(QFrame::VLine);
    line->setForegroundRole(QPalette::Mid);
    line->setFrameShadow(QFrame::Plain);
    middle->addWidget(line);
    middle->addWidget(stack_, 1);
    layout->addLayout(middle, 1);
    buildSteps();
    layout->addWidget(buildButtons());

    connect(steps_, &QListWidget::currentRowChanged, this, qOverload<int>(&ConvertWizard::showPage));
    connect(state_, &WizardState::outlookChanged, this, &ConvertWizard::sync);
    connect(state_, &WizardState::specChanged, this, &ConvertWizard::sync);
    connect(state_, &WizardState::specReplaced, this, &ConvertWizard::sync);
    connect(&jobs_, &JobStore::launched, this, [this](const QString& id) { launchEnded(id, {}); });
    connect(&jobs_, &JobStore::failed, this, &ConvertWizard::launchEnded);
    connect(&session, &Session::reportChanged, this, &ConvertWizard::sync);
    connect(&session, &Session::factsChanged, this, &ConvertWizard::sync);
    showPage(0);
}

ConvertWizard::~ConvertWizard() = default;

void ConvertWizard::reshardTo(const Mesh& mesh) {
    setSpec(state_->overMesh(mesh));
    showPage(WizardPageId::placement);
}

void ConvertWizard::buildSteps() {
    auto* intent = new IntentStep(*state_);
    connect(intent, &IntentStep::chosen, this, [this](const ConversionSpec& spec, WizardPageId page) {
        setSpec(spec);
        showPage(page);
    });
    pages_ = {intent,
              new SourceStep(*state_),
              new TargetStep(*state_),
              new PlacementStep(*state_),
              new NamesStep(*state_),
              new WhereStep(*state_),
              new RunStep(*state_),
              new PlanStep(*state_)};
    for (WizardPage* page : pages_) {
        stack_->addWidget(page);
        auto* item = new QListWidgetItem(page->title(), steps_);
        item->setSizeHint({0, fontMetrics().height() + 18});
    }
}

QWidget* ConvertWizard::buildButtons() {
    auto* bar = new QFrame(this);
    auto* outer = layoutOf<QVBoxLayout>(bar, {16, 8, 16, 12}, 8);
    status_ = wizardText({}, bar);
    status_->setObjectName(QStringLiteral("wizardStatus"));
    status_->setAccessibleName(tr("Whether the conversion can be started"));
    auto* said = new QHBoxLayout;
    said->addWidget(status_, 1);
    mend_ = withName(new QPushButton(bar), tr("Show the page where this is mended"), QStringLiteral("mend"));
    mend_->setAutoDefault(false);
    connect(mend_, &QPushButton::clicked, this, [this] { showPage(state_->obstacle().mend); });
    said->addWidget(mend_, 0, Qt::AlignTop | Qt::AlignRight);
    outer->addLayout(said);
    auto* row = new QHBoxLayout;
    const auto button = [&](const QString& text, const char* name, auto run) {
        auto* b = withName(new QPushButton(text, bar), QString(text).remove('&'), QString::fromLatin1(name));
        b->setAutoDefault(false);
        row->addWidget(b);
        connect(b, &QPushButton::clicked, this, run);
        return b;
    };
    button(tr("Copy as command"), "copyCommand", [this] {
        copyText(spec().commandLine());
        showBanner(this, BannerKind::info,
                   tr("Copied: %1").arg(toQString(spec().commandLine().toStdString())));
    });
    button(tr("Save as recipe…"), "saveRecipe", [this] { saveRecipe(); });
    button(tr("Load recipe…"), "loadRecipe", [this] { loadRecipe(); });
    row->addStretch();
    button(tr("Close"), "close", [this] { close(); });
    back_ = button(tr("&Back"), "back", [this] { showPage(currentPage() - 1); });
    next_ = button(tr("&Next"), "next", [this] { showPage(currentPage() + 1); });
    start_ = button(tr("&Start"), "start", [this] { start(); });
    outer->addLayout(row);
    return bar;
}

void ConvertWizard::setSpec(const ConversionSpec& spec) {
    state_->setSpec(spec);
    if (state_->spec().destination.isEmpty()) {
        ConversionSpec with = state_->spec();
        with.destination = state_->proposedDestination();
        state_->setSpec(with);
    }
}

ConversionSpec ConvertWizard::spec() const {
    return state_->spec();
}

int ConvertWizard::currentPage() const {
    return stack_->currentIndex();
}

void ConvertWizard::showPage(int page) {
    if (page < 0 || page >= static_cast<int>(pages_.size())) return;
    stack_->setCurrentIndex(page);
    steps_->setCurrentRow(page);
    sync();
}

void ConvertWizard::sync() {
    const int page = currentPage();
    const int last = static_cast<int>(pages_.size()) - 1;
    const Obstacle obstacle = state_->obstacle();
    for (int i = 0; i <= last; ++i) {
        WizardPage* p = pages_[static_cast<size_t>(i)];
        // What stands in the way is marked otherwise than what should be looked at.
        const bool blocks = static_cast<int>(obstacle.mend) == i, attention = p->attention();
        const QString mark = blocks ? QStringLiteral("  ✕") : attention ? QStringLiteral("  ▲") : QString();
        steps_->item(i)->setText(tr("   %1   %2%3").arg(QString::number(i + 1), p->title(), mark));
        steps_->item(i)->setToolTip(blocks      ? obstacle.text.toHtmlEscaped()
                                    : attention ? tr("This page needs your attention.")
                                                : QString());
    }
    back_->setEnabled(page > 0);
    // Only what is in view is started: the plan.
    next_->setVisible(page < last);
    start_->setVisible(page == last);
    start_->setEnabled(!obstacle.any() && starting_.isEmpty());
    start_->setToolTip(obstacle.text.toHtmlEscaped());
    const int mend = static_cast<int>(obstacle.mend);
    mend_->setVisible(mend >= 0 && mend != page);
    if (mend >= 0) mend_->setText(tr("&Go to “%1”").arg(pages_[static_cast<size_t>(mend)]->title()));
    status_->setVisible(page < last || !obstacle.any());  // the plan says it itself
    // Enter does what comes next.
    (page < last ? next_ : start_)->setDefault(true);
    if (obstacle.any()) {
        status_->setText(state_->working() ? tr("… %1").arg(obstacle.text) : tr("✕ %1").arg(obstacle.text));
    } else {
        const Plan& plan = *state_->outlook()->plan;
        status_->setText(tr("✓ Ready: %1, %2 in %3.")
                             .arg(countedText(plan.tensors, tr("1 tensor"), tr("%1 tensors")),
                                  sizeText(plan.bytesWritten),
                                  countedText(plan.files.size(), tr("1 file"), tr("%1 files"))) +
                         (plan.unloadable.empty() ? QString() : tr("  ▲ transformers will not load it.")));
    }
}

void ConvertWizard::start() {
    if (state_->obstacle().any() || !starting_.isEmpty()) return;
    const ConversionSpec& spec = state_->spec();
    // Several jobs of one source differ in where they go.
    const QString title =
        tr("%1 to %2").arg(QFileInfo(spec.source).fileName(), QFileInfo(spec.destination).fileName());
    const auto job = jobs_.start(spec, title);
    if (!job.ok()) {
        showBanner(this, BannerKind::error, errorText(job.error()));
        return;
    }
    starting_ = *job;
    sync();
}

// The wizard stays, with all that was chosen, until the job is under way.
void ConvertWizard::launchEnded(const QString& id, const QString& problem) {
    if (id != starting_) return;
    starting_.clear();
    sync();
    if (!problem.isEmpty()) {
        showBanner(this, BannerKind::error, problem);
        return;
    }
    close();
    emit started(id);
}

void ConvertWizard::saveRecipe() {
    askAndSave(this, tr("Save as recipe"), QFileInfo(spec().destination).absolutePath() + "/recipe.json",
               tr("Recipes (*.json)"), [this](const QString& path) {
                   const Status status = spec().saveRecipe(path);
                   return status.ok() ? QString() : errorSentence(status.error());
               });
}

void ConvertWizard::loadRecipe() {
    const FileQuestion question{tr("Load a recipe"), QFileDialog::ExistingFile, false,
                                tr("Recipes (*.json)")};
    askForFile(this, question, [this](const QString& path) {
        auto loaded = ConversionSpec::loadRecipe(path);
        if (!loaded.ok()) {
            showBanner(this, BannerKind::error, errorText(loaded.error()));
            return;
        }
        setSpec(*loaded);
        showBanner(this, BannerKind::info, tr("Loaded '%1'.").arg(path));
    });
}

}  // namespace shardscope::ui
