#include <QCheckBox>
#include <QComboBox>
#include <QKeyEvent>
#include <QLabel>
#include <QLineEdit>
#include <QPainter>
#include <QVBoxLayout>
#include <algorithm>

#include "engine/engine.h"
#include "plan/request_text.h"
#include "ui/models/texts.h"
#include "ui/pages/wizard_pages.h"
#include "ui/widgets/building.h"
#include "ui/widgets/labels.h"
#include "ui/widgets/theme.h"

namespace shardscope::ui {

namespace {

size_t countHealth(const Session& session, Health health) {
    return session.hasFacts() ? static_cast<size_t>(std::ranges::count(session.facts()->tensorHealth, health))
                              : 0;
}

QString tensorsText(size_t count) {
    return countedText(count, DamageChoice::tr("1 tensor"), DamageChoice::tr("%1 tensors"));
}

}  // namespace

// ------------------------------------------------------------------ intents

IntentCard::IntentCard(const QString& title, QWidget* parent) : QPushButton(parent) {
    setAutoDefault(true);  // Enter chooses the one that has the focus
    QSizePolicy policy(QSizePolicy::Expanding, QSizePolicy::Minimum);
    policy.setHeightForWidth(true);
    setSizePolicy(policy);
    auto* layout = layoutOf<QVBoxLayout>(this, {12, 8, 12, 8}, 4);
    auto* heading = new QLabel(title, this);
    makeBold(heading);
    heading->setBuddy(this);  // its mnemonic presses the card
    description_ = plainLabel(this);
    description_->setWordWrap(true);
    for (QLabel* label : {heading, description_}) {
        label->setAttribute(Qt::WA_TransparentForMouseEvents);
        layout->addWidget(label);
    }
}

void IntentCard::setDescription(const QString& text) {
    if (text == description_->text()) return;
    description_->setText(text);
    setAccessibleDescription(text);
    updateGeometry();
}

QSize IntentCard::sizeHint() const {
    return layout()->totalSizeHint();
}

int IntentCard::heightForWidth(int width) const {
    return layout()->totalHeightForWidth(width);
}

void IntentCard::paintEvent(QPaintEvent*) {
    QPainter painter(this);
    painter.setRenderHint(QPainter::Antialiasing);
    const bool marked = hasFocus() || underMouse();
    painter.setPen(QPen(marked ? accentColor() : faintTextColor(), hasFocus() ? 2 : 1));
    painter.setBrush(isDown() ? palette().color(QPalette::Midlight) : panelColor());
    painter.drawRoundedRect(QRectF(rect()).adjusted(1, 1, -1, -1), 5, 5);
}

IntentStep::IntentStep(WizardState& state)
    : WizardPage(state, tr("Goal"),
                 tr("What the result is for. A choice fills in the pages; all of them can be changed.")) {
    inference_ = addCard(tr("For &inference, as a model of Hugging Face"), QStringLiteral("intentInference"));
    ranks_ = addCard(tr("For another number of &ranks"), QStringLiteral("intentRanks"));
    meshRow_ = new QWidget(this);
    auto* row = layoutOf<QHBoxLayout>(meshRow_, {36, 0, 0, 8});
    mesh_ = withName(new QLineEdit(meshRow_), tr("Mesh of the result"), QStringLiteral("intentMesh"));
    mesh_->setMaximumWidth(fontMetrics().averageCharWidth() * 40);
    rankCount_ = plainLabel(meshRow_);
    auto* label = new QLabel(tr("&Mesh:"), meshRow_);
    label->setBuddy(mesh_);
    row->addWidget(label);
    row->addWidget(mesh_);
    row->addWidget(rankCount_, 1);
    layout_->addWidget(meshRow_);
    framework_ = addCard(tr("For another &framework"), QStringLiteral("intentFramework"));
    some_ = addCard(tr("Only some &tensors, or another dtype"), QStringLiteral("intentSome"));
    framework_->setDescription(
        tr("Choose the format, then a recipe for the names where the frameworks call things differently."));
    some_->setDescription(tr("Select, rename and cast tensors in the format of the source."));
    damage_ = wizardText({}, this);
    damage_->setObjectName(QStringLiteral("intentDamage"));
    layout_->addWidget(damage_);
    layout_->addStretch();
    connect(inference_, &QPushButton::clicked, this, &IntentStep::chooseInference);
    connect(ranks_, &QPushButton::clicked, this, &IntentStep::chooseRanks);
    connect(framework_, &QPushButton::clicked, this,
            [this] { emit chosen(state_.spec(), WizardPageId::target); });
    connect(some_, &QPushButton::clicked, this, [this] { emit chosen(state_.spec(), WizardPageId::names); });
    connect(mesh_, &QLineEdit::textEdited, this, [this] {
        meshTyped_ = true;
        showRanks();
    });
    mesh_->installEventFilter(this);
    connect(&state_, &WizardState::proposalChanged, this, [this] {
        showSpec();
        if (!waits_ || !state_.proposal()) return;
        waits_ = false;
        if (isVisible()) chooseInference();  // not if the user has left this page
    });
    connect(&state_.session(), &Session::factsChanged, this, &IntentStep::showSpec);
    follow();
}

IntentCard* IntentStep::addCard(const QString& title, const QString& object) {
    auto* card = withName(new IntentCard(title, this), QString(title).remove('&'), object);
    layout_->addWidget(card);
    return card;
}

void IntentStep::showEvent(QShowEvent* event) {
    WizardPage::showEvent(event);
    inference_->setFocus();
}

// Enter in the mesh chooses its card, not what the window's default button does.
bool IntentStep::eventFilter(QObject* watched, QEvent* event) {
    const auto* key = event->type() == QEvent::KeyPress ? static_cast<QKeyEvent*>(event) : nullptr;
    if (watched != mesh_ || !key || (key->key() != Qt::Key_Return && key->key() != Qt::Key_Enter))
        return WizardPage::eventFilter(watched, event);
    ranks_->click();
    return true;
}

void IntentStep::showSpec() {
    showInference();
    showRanks();
    const size_t damaged = state_.session().hasFacts() ? state_.session().facts()->damagedTensors : 0;
    damage_->setText(
        tr("▲ Damaged in the source: %1. The page Plan offers what to do.").arg(tensorsText(damaged)));
    damage_->setVisible(damaged > 0);
}

void IntentStep::showInference() {
    QStringList lines{tr("Weights only, in whole safetensors, with the names that transformers has.")};
    const auto& proposal = state_.proposal();
    if (!proposal) {
        lines += tr("Matching the names with recipes…");
    } else {
        const RecipeChoice& choice = proposal->huggingFace;
        const QString why = toQString(choice.why);
        lines += (choice.known ? QStringLiteral("✓ %1.") : QStringLiteral("▲ %1."))
                     .arg(why.left(1).toUpper() + why.mid(1));
        lines += proposal->model.isEmpty() ? tr("▲ No config.json was found; the page Plan asks for it.")
                                           : tr("✓ Configuration and tokenizer of %1.").arg(proposal->model);
    }
    inference_->setDescription(lines.join('\n'));
}

void IntentStep::showRanks() {
    const auto from = state_.meshOfSource();
    meshRow_->setVisible(from.has_value());
    if (!from) {
        ranks_->setDescription(tr("The source is not sharded over a mesh: choose how to shard it."));
        return;
    }
    if (!meshTyped_) mesh_->setText(toQString(formatMesh(*from)));
    ranks_->setDescription(
        tr("Every tensor is sharded along the same dimensions as in the source, optimizer state "
           "included. Change the sizes of the mesh, then choose this."));
    const auto mesh = parseMesh(mesh_->text().trimmed().toStdString());
    rankCount_->setText(mesh.ok() ? tr("%1, from %2")
                                        .arg(countedText(mesh->ranks(), tr("= 1 rank"), tr("= %1 ranks")),
                                             numberText(from->ranks()))
                                  : tr("▲ not a mesh"));
}

void IntentStep::chooseInference() {
    waits_ = !state_.proposal();
    if (waits_) return;
    // Several recipes that fit are the user's to choose from.
    const bool several = !state_.proposal()->huggingFace.candidates.empty();
    emit chosen(state_.forInference(), several ? WizardPageId::names : WizardPageId::plan);
}

void IntentStep::chooseRanks() {
    const auto mesh = parseMesh(mesh_->text().trimmed().toStdString());
    if (!state_.meshOfSource()) {
        emit chosen(state_.spec(), WizardPageId::placement);
    } else if (mesh.ok()) {
        emit chosen(state_.overMesh(*mesh), WizardPageId::plan);
    } else {
        mesh_->setFocus();
        mesh_->selectAll();
    }
}

// ------------------------------------------------------------------ damage

DamageChoice::DamageChoice(WizardState& state, const QString& prefix, QWidget* parent)
    : QWidget(parent), state_(state) {
    auto* layout = layoutOf<QVBoxLayout>(this, {0, 4, 0, 4}, 4);
    skip_ = new QCheckBox(this);
    skip_->setObjectName(prefix + QStringLiteral("SkipDamaged"));
    skipNote_ = wizardHint(
        tr("The rest is converted; the plan lists what is left out. Who loads the result does not find it."),
        this);
    gapLabel_ = wizardText(tr("Elements that no file holds:"), this);
    fill_ =
        withName(new QComboBox(this), tr("Elements that no file holds"), prefix + QStringLiteral("FillGaps"));
    fill_->addItem(tr("Refuse: there is no result with gaps"), static_cast<int>(FillGaps::refuse));
    fill_->addItem(tr("Fill with NaN: every computation with these elements shows it"),
                   static_cast<int>(FillGaps::nan));
    fill_->addItem(tr("Fill with zero: no computation shows it"), static_cast<int>(FillGaps::zero));
    gapNote_ = wizardHint(tr("What is filled is recorded beside the result."), this);
    for (QWidget* part :
         {static_cast<QWidget*>(skip_), static_cast<QWidget*>(skipNote_), static_cast<QWidget*>(gapLabel_)})
        layout->addWidget(part);
    layout->addWidget(fill_, 0, Qt::AlignLeft);
    layout->addWidget(gapNote_);
    connect(skip_, &QCheckBox::toggled, this,
            [this](bool on) { state_.edit([on](ConversionSpec& spec) { spec.skipDamaged = on; }); });
    connect(fill_, &QComboBox::activated, this, [this] {
        state_.edit([this](ConversionSpec& spec) {
            spec.fillGaps = static_cast<FillGaps>(fill_->currentData().toInt());
        });
    });
    for (const auto changed : {&WizardState::specChanged, &WizardState::specReplaced})
        connect(&state_, changed, this, &DamageChoice::show);
    connect(&state_.session(), &Session::factsChanged, this, &DamageChoice::show);
    show();
}

void DamageChoice::show() {
    const Session& session = state_.session();
    const size_t damaged = session.hasFacts() ? session.facts()->damagedTensors : 0;
    const bool lack = countHealth(session, Health::missing) == damaged;
    const bool skips = damaged > 0 || state_.spec().skipDamaged;
    const bool gaps = countHealth(session, Health::gap) > 0 || countHealth(session, Health::missing) > 0 ||
                      state_.spec().fillGaps != FillGaps::refuse;
    skip_->setText((lack ? tr("&Leave out %1 with missing bytes") : tr("&Leave out %1 with damage"))
                       .arg(countedText(damaged, tr("the one tensor"), tr("the %1 tensors"))));
    skip_->setChecked(state_.spec().skipDamaged);
    fill_->setCurrentIndex(fill_->findData(static_cast<int>(state_.spec().fillGaps)));
    for (QWidget* part : {static_cast<QWidget*>(skip_), static_cast<QWidget*>(skipNote_)})
        part->setVisible(skips);
    for (QWidget* part :
         {static_cast<QWidget*>(gapLabel_), static_cast<QWidget*>(fill_), static_cast<QWidget*>(gapNote_)})
        part->setVisible(gaps);
    setVisible(skips || gaps);
}

}  // namespace shardscope::ui
