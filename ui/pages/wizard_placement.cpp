#include <QButtonGroup>
#include <QCheckBox>
#include <QComboBox>
#include <QFormLayout>
#include <QHeaderView>
#include <QLabel>
#include <QLineEdit>
#include <QPushButton>
#include <QRadioButton>
#include <QScrollArea>
#include <QTabWidget>
#include <QTreeWidget>
#include <QVBoxLayout>
#include <functional>

#include "engine/engine.h"
#include "plan/request_text.h"
#include "plan/shard_preset.h"
#include "ui/models/texts.h"
#include "ui/pages/wizard_pages.h"
#include "ui/widgets/building.h"
#include "ui/widgets/card.h"
#include "ui/widgets/labels.h"
#include "ui/widgets/picture_view.h"

namespace shardscope::ui {

namespace {

// One rank that stores everything: whole tensors, also where a format would otherwise keep its shards.
const QString kOneRank = QStringLiteral("dp=1");
constexpr size_t kMostRankRows = 10'000;
constexpr uint32_t kPresetSize = 2;

std::vector<QStringList> splitRules(const QStringList& rules) {
    std::vector<QStringList> cells;
    for (const QString& rule : rules) {
        const qsizetype colon = rule.lastIndexOf(':');
        cells.push_back(colon < 0 ? QStringList{rule, {}}
                                  : QStringList{rule.left(colon), rule.mid(colon + 1)});
    }
    return cells;
}

// A rule of the source's placement may name many tensors.
QString shortened(const QString& rule) {
    constexpr qsizetype kMost = 90, kEnd = 20;
    return rule.size() <= kMost ? rule : rule.left(kMost - kEnd) + QStringLiteral("…") + rule.right(kEnd);
}

QStringList joinRules(const std::vector<QStringList>& cells) {
    QStringList rules;
    for (const QStringList& row : cells)
        rules += row[0] + ':' + row[1];
    return rules;
}

}  // namespace

PlacementStep::PlacementStep(WizardState& state)
    : WizardPage(state, tr("Placement"), tr("Which rank of the target holds which part of each tensor.")) {
    modes_ = new QButtonGroup(this);
    auto* choices = new QHBoxLayout;
    choices->setSpacing(16);
    const auto choice = [&](Mode mode, const QString& text, const QString& why) {
        auto* button = new QRadioButton(text, this);
        button->setToolTip(why);
        button->setAccessibleDescription(why);
        modes_->addButton(button, static_cast<int>(mode));
        choices->addWidget(button);
    };
    choice(Mode::keep, tr("As in the source"),
           tr("Every chunk as the source has it; only within one format that holds shards."));
    choice(Mode::whole, tr("Every tensor whole"), tr("One rank stores everything."));
    choice(Mode::mesh, tr("Over a mesh of ranks"),
           tr("Rules say which dimension is sharded over which axis."));
    choice(Mode::like, tr("Like another checkpoint"),
           tr("The same names and the same placement as that one."));
    choices->addStretch();
    layout_->addLayout(choices);
    connect(modes_, &QButtonGroup::idClicked, this, [this](int id) { choose(static_cast<Mode>(id)); });

    presets_ = new QWidget(this);
    auto* presets = layoutOf<QHBoxLayout>(presets_, {0, 0, 0, 0});
    presets->addWidget(new QLabel(tr("Presets:"), presets_));
    const auto addPreset = [&](const QString& text, const std::function<void()>& apply) {
        auto* button = new QPushButton(text, presets_);
        button->setAutoDefault(false);
        button->setAccessibleName(tr("Preset: %1").arg(text));
        presets->addWidget(button);
        connect(button, &QPushButton::clicked, this, apply);
        return button;
    };
    asSource_ = addPreset(tr("Sharded as the source is"), [this] { presetOfSource(); });
    asSource_->setObjectName(QStringLiteral("asSource"));
    asSource_->setToolTip(
        tr("One rule for each way in which the source shards its tensors; then choose other sizes of the "
           "mesh."));
    for (const ShardPreset& preset : shardPresets()) {
        addPreset(toQString(preset.title), [this, &preset] {
            this->preset(preset);
        })->setToolTip(toQString(preset.about));
    }
    presets->addStretch();
    layout_->addWidget(presets_);

    meshPart_ = new QWidget(this);
    auto* meshLayout = layoutOf<QVBoxLayout>(meshPart_, {0, 0, 0, 0});
    buildMesh(meshLayout);
    layout_->addWidget(meshPart_, 3);

    likePart_ = new QWidget(this);
    auto* likeLayout = new QFormLayout(likePart_);
    likeLayout->setContentsMargins(0, 0, 0, 0);
    like_ = new PathEdit(PathEdit::Kind::openDirectory, tr("Checkpoint to take names and placement from"), {},
                         likePart_);
    like_->edit()->setObjectName(QStringLiteral("like"));
    likeLayout->addRow(tr("&Checkpoint:"), like_);
    layout_->addWidget(likePart_);
    bind(like_, &ConversionSpec::like);

    auto* scroll = new QScrollArea(this);
    scroll->setWidgetResizable(true);
    scroll->setFrameShape(QFrame::NoFrame);
    scroll->setAccessibleName(tr("Result of the rules"));
    legality_ = wizardText({}, scroll);
    legality_->setObjectName(QStringLiteral("legality"));
    legality_->setAlignment(Qt::AlignTop | Qt::AlignLeft);
    scroll->setWidget(legality_);
    flow_ = new PictureView(tr("Who reads what: files of the source by ranks of the target"), false, this);
    headline_ = wrappedLabel(this);
    headline_->setObjectName(QStringLiteral("flow"));
    rankTable_ = new QTreeWidget(this);
    rankTable_->setHeaderLabels({tr("Rank"), tr("Bytes now"), tr("Bytes in the target")});
    dressTree(*rankTable_, tr("Bytes by rank, before and after, as a table"), true);
    rankTable_->hide();
    asTable_ = new QCheckBox(tr("Show as table"), this);
    connect(asTable_, &QCheckBox::toggled, this, [this](bool on) {
        rankTable_->setVisible(on);
        flow_->setVisible(!on);
        fillRankTable();
    });
    auto* lower = new QHBoxLayout;
    lower->setSpacing(12);
    lower->addWidget(scroll, 1);
    auto* picture = new QVBoxLayout;
    picture->addWidget(headline_);
    picture->addWidget(flow_, 1);
    picture->addWidget(rankTable_, 1);
    picture->addWidget(asTable_);
    lower->addLayout(picture, 1);
    layout_->addLayout(lower, 2);
    connect(&state_, &WizardState::specReplaced, this, [this] { chosen_ = Mode::keep; });
    follow();
}

void PlacementStep::buildMesh(QVBoxLayout* into) {
    auto* row = new QHBoxLayout;
    auto* meshLabel = new QLabel(tr("&Mesh:"), meshPart_);
    mesh_ = withName(new QLineEdit(meshPart_), tr("Mesh of the target"), QStringLiteral("mesh"));
    mesh_->setPlaceholderText(tr("for example dp=2,tp=4 (the last axis varies fastest)"));
    meshLabel->setBuddy(mesh_);
    ranks_ = plainLabel(meshPart_);
    auto* split = withName(new QComboBox(meshPart_), tr("Rule for sizes that do not divide"));
    split->addItem(tr("Uneven sizes: as torch"), static_cast<int>(SplitRule::torch));
    split->addItem(tr("Uneven sizes: even"), static_cast<int>(SplitRule::even));
    split->addItem(tr("Uneven sizes: as Paddle"), static_cast<int>(SplitRule::paddle));
    split->setToolTip(
        tr("torch and Paddle give every shard the rounded-up size, even makes the first ones one longer."));
    row->addWidget(meshLabel);
    row->addWidget(mesh_, 1);
    row->addWidget(ranks_);
    row->addWidget(split);
    into->addLayout(row);

    shard_ = new RuleTable(tr("Shard rules"), {tr("Names"), tr("Shard (axis=dim,…)"), tr("Tensors")},
                           {QStringLiteral("*.weight"), QStringLiteral("tp=0,dp=0")}, true, meshPart_);
    shard_->table()->setObjectName(QStringLiteral("shardRules"));
    stage_ = new RuleTable(tr("Stage rules"), {tr("Names"), tr("Place (axis=place)"), tr("Tensors")},
                           {QStringLiteral("model.layers.1.*"), QStringLiteral("pp=1")}, true, meshPart_);
    for (RuleTable* table : {shard_, stage_})
        table->layout()->setContentsMargins(6, 6, 6, 6);
    auto* tabs = withName(new QTabWidget(meshPart_), tr("Rules of the placement"));
    tabs->addTab(shard_, tr("Shard rules (first match wins)"));
    tabs->addTab(stage_, tr("Pipeline stages"));
    into->addWidget(tabs, 1);

    connect(mesh_, &QLineEdit::textEdited, this, [this](const QString& text) {
        state_.edit([&](ConversionSpec& spec) { spec.mesh = text.trimmed(); });
    });
    bind(split, &ConversionSpec::split);
    connect(shard_, &RuleTable::edited, this, &PlacementStep::takeRules);
    connect(stage_, &RuleTable::edited, this, &PlacementStep::takeRules);
}

void PlacementStep::takeRules() {
    state_.edit([this](ConversionSpec& spec) {
        spec.shard = joinRules(shard_->rules());
        spec.stage = joinRules(stage_->rules());
    });
}

PlacementStep::Mode PlacementStep::mode() const {
    const ConversionSpec& spec = state_.spec();
    const bool rules = !spec.shard.isEmpty() || !spec.stage.isEmpty();
    if (!spec.like.isEmpty()) return Mode::like;
    if (spec.mesh == kOneRank && !rules && chosen_ != Mode::mesh) return Mode::whole;
    if (!spec.mesh.isEmpty() || rules) return Mode::mesh;
    // A mesh or another checkpoint that is still to be named.
    const Format* target = state_.target();
    if ((chosen_ == Mode::mesh || chosen_ == Mode::like) && target && target->info().shards) return chosen_;
    return state_.keepsPlacement() ? Mode::keep : Mode::whole;
}

void PlacementStep::choose(Mode mode) {
    chosen_ = mode;
    state_.edit([&](ConversionSpec& spec) {
        spec.like.clear();
        spec.mesh.clear();
        spec.shard.clear();
        spec.stage.clear();
        if (mode == Mode::whole && state_.keepsPlacement()) spec.mesh = kOneRank;
        if (mode == Mode::mesh) {
            const Session& session = state_.session();
            if (session.hasFacts() && session.facts()->mesh)
                spec.mesh = toQString(formatMesh(*session.facts()->mesh));
            else
                spec.mesh = QStringLiteral("tp=%1").arg(kPresetSize);
        }
        if (mode == Mode::like) spec.like = like_->path();
    });
    showSpec();
    showOutlook();
    if (mode == Mode::like) like_->setFocus();
    if (mode == Mode::mesh) mesh_->setFocus();
}

void PlacementStep::preset(const ShardPreset& preset) {
    const std::string axis(preset.axis);
    const QString named = toQString(axis) + '=';
    chosen_ = Mode::mesh;
    state_.edit([&](ConversionSpec& spec) {
        spec.like.clear();
        const auto mesh = parseMesh(spec.mesh.toStdString());
        if (!mesh.ok() || mesh->axisIndex(axis) < 0) {
            const QString more = named + QString::number(kPresetSize);
            spec.mesh = mesh.ok() && mesh->ranks() > 1 ? spec.mesh + ',' + more : more;
        }
        std::vector<ShardRule> rules = editableShardRules(spec.toRequest().shard);
        shardscope::addPreset(rules, preset, axis, true);
        spec.shard.clear();
        for (const ShardRule& rule : rules)
            spec.shard += toQString(formatShardRule(rule));
    });
    showSpec();
    showOutlook();
    // The size is what is left to say.
    const QString text = mesh_->text();
    const qsizetype begin = text.indexOf(named) + named.size(), comma = text.indexOf(',', begin);
    mesh_->setFocus();
    mesh_->setSelection(static_cast<int>(begin), static_cast<int>((comma < 0 ? text.size() : comma) - begin));
}

void PlacementStep::presetOfSource() {
    const auto from = meshOf(state_.session().catalog());
    if (!from) return;
    chosen_ = Mode::mesh;
    state_.edit([&](ConversionSpec& spec) {
        spec.like.clear();
        auto mesh = parseMesh(spec.mesh.toStdString());
        if (!mesh.ok() || mesh->ranks() < 2) {
            mesh = *from;
            spec.mesh = toQString(formatMesh(*from));
        }
        spec.shard = state_.rulesOfSource(*from, *mesh);
    });
    showSpec();
    showOutlook();
    // The sizes are what is left to say.
    mesh_->setFocus();
    mesh_->selectAll();
}

bool PlacementStep::attention() const {
    const auto& outlook = state_.outlook();
    if (!outlook) return false;
    if (!outlook->headNotes.isEmpty()) return true;
    for (const auto* list : {&outlook->effect.shards, &outlook->effect.stages}) {
        for (const RuleEffect& rule : *list) {
            if (!rule.notes.empty()) return true;
        }
    }
    return false;
}

void PlacementStep::showSpec() {
    const ConversionSpec& spec = state_.spec();
    const Format* target = state_.target();
    const bool shards = target && target->info().shards;
    modes_->button(static_cast<int>(Mode::keep))->setEnabled(state_.keepsPlacement());
    modes_->button(static_cast<int>(Mode::mesh))->setEnabled(shards);
    modes_->button(static_cast<int>(Mode::like))->setEnabled(shards);
    const Mode now = mode();
    modes_->button(static_cast<int>(now))->setChecked(true);
    presets_->setVisible(shards);
    asSource_->setEnabled(state_.session().checkpoint() && state_.session().catalog().rankCount() > 1);
    meshPart_->setVisible(now == Mode::mesh);
    likePart_->setVisible(now == Mode::like);
    if (mesh_->text().trimmed() != spec.mesh) mesh_->setText(spec.mesh);
    const auto mesh = parseMesh(spec.mesh.toStdString());
    ranks_->setText(mesh.ok() ? countedText(mesh->ranks(), tr("= 1 rank"), tr("= %1 ranks"))
                              : tr("▲ not a mesh"));
    ranks_->setToolTip(mesh.ok() ? QString() : toQString(mesh.error().message).toHtmlEscaped());
    shard_->setRules(splitRules(spec.shard));
    stage_->setRules(splitRules(spec.stage));
}

void PlacementStep::showOutlook() {
    const auto& outlook = state_.outlook();
    if (state_.working() || !outlook) {
        if (legality_->text().isEmpty()) legality_->setText(tr("Applying the rules…"));
        return;
    }
    if (outlook->error) {
        legality_->setText(tr("✕ No plan: %1").arg(errorSentence(*outlook->error)));
        flow_->setNone(tr("The plan failed."));
        headline_->clear();
        rankTable_->clear();
        return;
    }
    const PlacementEffect& effect = outlook->effect;
    QStringList lines;
    const auto rules = [&](const std::vector<RuleEffect>& list, RuleTable* table) {
        for (size_t r = 0; r < list.size(); ++r) {
            const RuleEffect& rule = list[r];
            table->setResult(static_cast<int>(r), numberText(rule.tensors));
            lines += tr("%1 shards %2.")
                         .arg(shortened(toQString(rule.rule)),
                              countedText(rule.tensors, tr("1 tensor"), tr("%1 tensors")));
            for (const std::string& note : rule.notes)
                lines += tr("   ▲ %1").arg(toQString(note));
        }
    };
    for (const QString& note : outlook->headNotes)
        lines += tr("▲ %1").arg(note);
    if (const std::string whole = outlook->plan ? outlook->plan->wholeWarning() : ""; !whole.empty())
        lines += tr("▲ %1.").arg(toQString(whole));
    rules(effect.shards, shard_);
    rules(effect.stages, stage_);
    const Mode now = mode();
    if (now == Mode::mesh) {
        if (effect.whole == 0) {
            lines += tr("Every tensor is taken by a shard rule.");
        } else {
            lines += countedText(
                effect.whole, tr("1 tensor is matched by no shard rule: it stays whole and is stored once."),
                tr("%1 tensors are matched by no shard rule: they stay whole and are stored once, on the "
                   "rank with the fewest bytes."));
        }
    } else if (now == Mode::keep) {
        lines += tr("Every tensor keeps its chunks on the ranks that have them now.");
    } else if (now == Mode::whole) {
        lines += tr("Every tensor is written whole, by one rank.");
    } else if (state_.spec().like.isEmpty()) {
        lines += tr("▲ Choose the checkpoint to take names and placement from.");
    } else {
        lines += tr("Every tensor is placed as in the other checkpoint; names that it lacks are left out.");
    }
    const Format* target = state_.target();
    if (target && !target->info().shards)
        lines += tr("%1 holds whole tensors only.").arg(toQString(target->info().title));
    legality_->setText(lines.join('\n'));
    const QString headline = toQString(outlook->asIf->headline());
    flow_->setPicture(std::bind_front(AsIf::draw, outlook->asIf), headline);
    headline_->setText(headline);
    fillRankTable();
}

// Only while it is looked at: there may be thousands of ranks.
void PlacementStep::fillRankTable() {
    rankTable_->clear();
    const auto& outlook = state_.outlook();
    if (!asTable_->isChecked() || !outlook || outlook->error) return;
    const PlacementEffect& effect = outlook->effect;
    const size_t ranks = std::min(kMostRankRows, std::max(effect.before.size(), effect.after.size()));
    QList<QTreeWidgetItem*> items;
    for (size_t r = 0; r < ranks; ++r) {
        items += new QTreeWidgetItem({QString::number(r),
                                      r < effect.before.size() ? sizeText(effect.before[r]) : QString(),
                                      r < effect.after.size() ? sizeText(effect.after[r]) : QString()});
    }
    rankTable_->addTopLevelItems(items);
}

}  // namespace shardscope::ui
