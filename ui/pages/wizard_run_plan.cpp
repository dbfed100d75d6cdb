#include <QCheckBox>
#include <QComboBox>
#include <QHeaderView>
#include <QLabel>
#include <QLineEdit>
#include <QMenu>
#include <QPushButton>
#include <QSpinBox>
#include <QTreeView>
#include <QVBoxLayout>

#include "storage/url.h"
#include "ui/models/plan_model.h"
#include "ui/models/texts.h"
#include "ui/pages/wizard_pages.h"
#include "ui/widgets/banner.h"
#include "ui/widgets/building.h"
#include "ui/widgets/card.h"
#include "ui/widgets/labels.h"

namespace shardscope::ui {

// ------------------------------------------------------------------ run options

RunStep::RunStep(WizardState& state)
    : WizardPage(state, tr("Run options"),
                 tr("How the job runs. The destination appears whole or not at all.")) {
    auto* form = new FormGrid;
    auto* verify = withName(new QComboBox(this), tr("Verification"), QStringLiteral("verify"));
    verify->addItem(tr("Read the destination again and compare digests"), static_cast<int>(Verify::digest));
    verify->addItem(tr("Read source and destination again and compare"), static_cast<int>(Verify::full));
    verify->addItem(tr("Checksums of a bucket: it has checked what arrived"),
                    static_cast<int>(Verify::checksums));
    verify->addItem(tr("None: only look whether the destination opens"), static_cast<int>(Verify::none));
    form->add(tr("&Verify:"), verify);
    auto* memoryRow = new QHBoxLayout;
    memory_ = withName(new QLineEdit(this), tr("Most memory of the process"), QStringLiteral("memory"));
    memory_->setMaximumWidth(fontMetrics().averageCharWidth() * 18);
    memoryNote_ = wizardText({}, this);
    memoryRow->addWidget(memory_);
    memoryRow->addWidget(memoryNote_, 1);
    form->add(tr("Most &memory:"), memoryRow, memory_);
    threads_ = withName(new QSpinBox(this), tr("Threads"));
    threads_->setRange(0, 1024);
    threads_->setSpecialValueText(tr("chosen for this machine"));
    threads_->setMaximumWidth(fontMetrics().averageCharWidth() * 32);
    form->add(tr("&Threads:"), threads_);
    auto* io = withName(new QComboBox(this), tr("Reads and writes"));
    io->addItem(tr("Chosen for each file"), static_cast<int>(IoMode::automatic));
    io->addItem(tr("Direct, past the page cache"), static_cast<int>(IoMode::direct));
    io->addItem(tr("Buffered"), static_cast<int>(IoMode::buffered));
    form->add(tr("&Reads and writes:"), io);
    auto* overwrite =
        new QCheckBox(tr("&Overwrite: replace an existing destination, once the new one is whole"), this);
    overwrite->setObjectName(QStringLiteral("overwrite"));
    auto* resume = new QCheckBox(tr("R&esume: continue an interrupted job"), this);
    auto* strict = new QCheckBox(tr("&Strict: refuse to leave anything out"), this);
    strict->setObjectName(QStringLiteral("strict"));
    existing_ = wizardText({}, this);
    form->add({}, overwrite);
    form->add({}, resume);
    form->add({}, existing_);
    form->add({}, strict);
    unguarded_ = new QCheckBox(
        tr("&Write to a store without conditional writes: two jobs there may not notice each other"), this);
    unguarded_->setObjectName(QStringLiteral("unguarded"));
    form->add({}, unguarded_);
    auto* objects =
        new PathEdit(PathEdit::Kind::saveFile, tr("File for objects"), tr("torch.save files (*.pt)"), this);
    objects->edit()->setPlaceholderText(
        tr("none: objects that the target cannot hold are left out and listed"));
    form->add(tr("Ob&jects file:"), objects);
    auto* assets =
        new PathEdit(PathEdit::Kind::openDirectory, tr("Directory of configuration and tokenizer"), {}, this);
    assets->edit()->setPlaceholderText(tr("those of the checkpoint; “none” for none"));
    form->add(tr("&Assets from:"), assets);
    layout_->addLayout(form);
    layout_->addStretch();

    bind(verify, &ConversionSpec::verify);
    bind(io, &ConversionSpec::io);
    bindSize(memory_, &ConversionSpec::memory, false);
    connect(threads_, &QSpinBox::valueChanged, this, [this](int value) {
        state_.edit([value](ConversionSpec& spec) { spec.threads = static_cast<unsigned>(value); });
    });
    bind(overwrite, &ConversionSpec::overwrite);
    bind(resume, &ConversionSpec::resume);
    bind(strict, &ConversionSpec::strict);
    bind(unguarded_, &ConversionSpec::unguarded);
    bind(objects, &ConversionSpec::objectsFile);
    bind(assets, &ConversionSpec::assets);
    follow();
}

bool RunStep::attention() const {
    const auto& outlook = state_.outlook();
    return outlook && ((outlook->place.exists && !state_.spec().overwrite) ||
                       (outlook->place.unfinished && !state_.spec().resume));
}

void RunStep::showSpec() {
    threads_->setValue(static_cast<int>(state_.spec().threads));
    unguarded_->setVisible(!schemeOf(state_.spec().destination.toStdString()).empty());
}

void RunStep::showOutlook() {
    memoryNote_->setText(state_.problem(memory_).isEmpty() ? QString() : tr("▲ Not a size such as 512MiB."));
    const auto& outlook = state_.outlook();
    QStringList lines;
    if (outlook && outlook->place.exists && !state_.spec().overwrite)
        lines += tr("▲ The destination exists already.");
    if (outlook && outlook->place.unfinished && !state_.spec().resume)
        lines += tr("▲ An interrupted job left its work beside the destination.");
    existing_->setText(lines.join('\n'));
    existing_->setVisible(!lines.isEmpty());
}

// ------------------------------------------------------------------ plan

PlanStep::PlanStep(WizardState& state)
    : WizardPage(state, tr("Plan"),
                 tr("What the job will read, write and leave out. Nothing has been written yet.")) {
    verdict_ = wizardText({}, this);
    verdict_->setObjectName(QStringLiteral("planVerdict"));
    makeBold(verdict_);
    layout_->addWidget(verdict_);
    layout_->addWidget(new DamageChoice(state_, QStringLiteral("plan"), this));
    modelRow_ = new QWidget(this);
    auto* row = layoutOf<QHBoxLayout>(modelRow_, {0, 0, 0, 0});
    auto* label = new QLabel(tr("&Model's config.json and tokenizer:"), modelRow_);
    auto* model = new PathEdit(PathEdit::Kind::openDirectory, tr("Directory of the model's config.json"), {},
                               modelRow_);
    model->edit()->setObjectName(QStringLiteral("planModel"));
    model->edit()->setPlaceholderText(tr("a directory, such as that of the model that was trained on"));
    label->setBuddy(model->edit());
    row->addWidget(label);
    row->addWidget(model, 1);
    layout_->addWidget(modelRow_);
    bind(model, &ConversionSpec::assets);
    connect(&state_, &WizardState::proposalChanged, this, &PlanStep::showSpec);
    summary_ = wizardText({}, this);
    summary_->setObjectName(QStringLiteral("planSummary"));
    layout_->addWidget(summary_);
    auto* parts = new QPushButton(tr("Copy command for parts"), this);
    parts->setObjectName(QStringLiteral("copyParts"));
    parts->setAutoDefault(false);
    parts->setToolTip(
        tr("For the processes that Slurm, MPI, Kubernetes or another scheduler starts, as many as you like: "
           "each does its part, the last one finishes."));
    connect(parts, &QPushButton::clicked, this, [this] {
        const QString line = state_.spec().partsCommandLine();
        copyText(line);
        showBanner(window(), BannerKind::info, tr("Copied: %1").arg(toQString(line.toStdString())));
    });
    plan_ = new PlanModel(this);
    tree_ = new QTreeView(this);
    tree_->setObjectName(QStringLiteral("planTree"));
    tree_->setModel(plan_);
    dressTree(*tree_, tr("The plan"), false);
    tree_->setColumnWidth(0, fontMetrics().averageCharWidth() * 60);
    offerMenu(tree_, [this](QMenu& menu, const QPoint&) {
        const QString name = tree_->currentIndex().data(PlanModel::NameRole).toString();
        if (!name.isEmpty()) addCopyAction(menu, tr("Copy name"), name);
        menu.addActions(tree_->actions());
    });
    layout_->addWidget(tree_, 1);
    layout_->addWidget(parts, 0, Qt::AlignLeft);
    follow();
}

bool PlanStep::attention() const {
    const auto& outlook = state_.outlook();
    return outlook && (outlook->error || !outlook->plan->runnable() || !outlook->plan->leftOut.empty() ||
                       !outlook->plan->unknown.empty() || !outlook->plan->unloadable.empty());
}

// A model of Hugging Face needs a configuration, which the source may not have.
void PlanStep::showSpec() {
    const Format* target = state_.target();
    const bool model = target && target->info().assets == ".";
    const bool found = state_.proposal() && !state_.proposal()->model.isEmpty();
    modelRow_->setVisible(model && (!found || !state_.spec().assets.isEmpty()));
}

void PlanStep::showVerdict() {
    if (const Obstacle obstacle = state_.obstacle(); obstacle.any())
        return verdict_->setText(tr("✕ This cannot be started: %1").arg(obstacle.text));
    QStringList lines{state_.outlook()->plan->unloadable.empty()
                          ? tr("✓ This can run.")
                          : tr("▲ This can run, but transformers will not load the result:")};
    for (const std::string& why : state_.outlook()->plan->unloadable)
        lines += tr("• %1").arg(toQString(why));
    verdict_->setText(lines.join('\n'));
}

void PlanStep::showOutlook() {
    const auto& outlook = state_.outlook();
    if (state_.working() || !outlook) return verdict_->setText(tr("Computing the plan…"));
    showVerdict();
    plan_->setPlan(outlook->plan, outlook->reads);
    if (!outlook->plan) {
        summary_->clear();
        return;
    }
    const Plan& plan = *outlook->plan;
    const QString files = countedText(plan.files.size(), tr("1 file"), tr("%1 files"));
    const QString time = plan.estimateSeconds < 1 ? tr("less than a second")
                                                  : tr("about %1").arg(timeText(plan.estimateSeconds));
    QStringList lines{
        tr("Reads %1 from %2").arg(sizeText(plan.bytesRead), toQString(plan.sourcePath)),
        tr("Writes %1 in %2 to %3").arg(sizeText(plan.bytesWritten), files, toQString(plan.targetPath)),
        tr("%1, %2, %3")
            .arg(countedText(plan.tensors, tr("1 tensor"), tr("%1 tensors")),
                 countedText(plan.chunks, tr("1 chunk"), tr("%1 chunks")),
                 countedText(plan.objects, tr("1 object"), tr("%1 objects"))),
        tr("Stays below %1 of memory; takes %2 on a plain NVMe disk").arg(sizeText(plan.peakMemory), time)};
    if (plan.replicas > 0)
        lines += tr("Replicas not compared: %1 (a validation of the values compares them)")
                     .arg(countedText(plan.replicas, tr("1 chunk"), tr("%1 chunks")));
    if (!state_.spec().map.isEmpty())
        lines += tr("Names by the recipe %1").arg(toQString(state_.spec().map.toStdString()));
    if (!plan.assets.empty()) {
        QStringList assets;
        for (const std::string& name : plan.assets)
            assets += toQString(name);
        lines += tr("Copies %1 from %2").arg(assets.join(QStringLiteral(", ")), toQString(plan.assetsFrom));
    }
    if (plan.mastersUnused > 0)
        lines += tr("Converts %1 as stored, not from fp32 masters")
                     .arg(countedText(plan.mastersUnused, tr("1 weight"), tr("%1 weights")));
    if (!plan.checksums.empty()) lines += toQString(plan.checksums);
    if (const std::string whole = plan.wholeWarning(); !whole.empty()) lines += toQString("▲ " + whole);
    summary_->setText(lines.join('\n'));
    for (const auto group : {PlanModel::Group::impossible, PlanModel::Group::leftOut,
                             PlanModel::Group::unknown, PlanModel::Group::changed}) {
        if (const QModelIndex index = plan_->groupIndex(group); index.isValid()) tree_->expand(index);
    }
    if (plan.files.size() <= 20) tree_->expand(plan_->groupIndex(PlanModel::Group::files));
}

}  // namespace shardscope::ui
