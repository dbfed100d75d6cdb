#include "ui/pages/overview_page.h"

#include <QCheckBox>
#include <QHeaderView>
#include <QLabel>
#include <QMenu>
#include <QResizeEvent>
#include <QScrollArea>
#include <QTableView>
#include <QVBoxLayout>
#include <algorithm>

#include "ui/models/texts.h"
#include "ui/pages/overview_rows.h"
#include "ui/pages/ready_panel.h"
#include "ui/pages/verdict_strip.h"
#include "ui/widgets/building.h"
#include "ui/widgets/card.h"
#include "ui/widgets/icicle.h"
#include "ui/widgets/labels.h"
#include "ui/widgets/layer_ladder.h"
#include "ui/widgets/rank_chart.h"
#include "ui/widgets/share_bar.h"
#include "ui/widgets/theme.h"

namespace shardscope::ui {

namespace {

constexpr int kPanelsSideBySide = 820;  // pixels of width from which two panels stand beside each other
constexpr int kOutliersNamed = 4;
constexpr int kLadderHeight = 300;  // pixels; a longer ladder scrolls
constexpr int kNotesHeight = 180;
constexpr int kPanelSpacing = 10;
constexpr int kChartStretch = 3;

// The size of all tensors as an index claims it, where it is not what they have.
std::optional<uint64_t> claimedSize(const Catalog& catalog) {
    for (const Note& note : catalog.notes()) {
        if (note.claimedBytes) return note.claimedBytes;
    }
    return std::nullopt;
}

QString bigCount(uint64_t count) {
    const auto value = static_cast<double>(count);
    if (value >= 1e12) return QStringLiteral("%1 T").arg(value / 1e12, 0, 'f', 2);
    if (value >= 1e9) return QStringLiteral("%1 B").arg(value / 1e9, 0, 'f', 2);
    if (value >= 1e6) return QStringLiteral("%1 M").arg(value / 1e6, 0, 'f', 2);
    return numberText(count);
}

QBoxLayout* pairLayout(QVBoxLayout* in) {
    auto* pair = new QBoxLayout(QBoxLayout::LeftToRight);
    pair->setSpacing(kPanelSpacing);
    in->addLayout(pair);
    return pair;
}

}  // namespace

OverviewPage::OverviewPage(Session& session, QWidget* parent) : QWidget(parent), session_(session) {
    setAccessibleName(tr("Overview"));
    auto* outer = layoutOf<QVBoxLayout>(this, {0, 0, 0, 0});
    scroll_ = withName(new QScrollArea(this), tr("Overview of the checkpoint"));
    scroll_->setWidgetResizable(true);
    scroll_->setFrameShape(QFrame::NoFrame);
    scroll_->setHorizontalScrollBarPolicy(Qt::ScrollBarAlwaysOff);
    scroll_->setAccessibleName(tr("Overview"));
    outer->addWidget(scroll_);
    content_ = new QWidget(scroll_);
    auto* layout = layoutOf<QVBoxLayout>(
        content_, {kPanelSpacing, kPanelSpacing, kPanelSpacing, kPanelSpacing}, kPanelSpacing);
    scroll_->setWidget(content_);

    verdict_ = new VerdictStrip(session_, content_);
    connect(verdict_, &VerdictStrip::validateRequested, this, &OverviewPage::validateRequested);
    connect(verdict_, &VerdictStrip::convertRequested, this, &OverviewPage::convertRequested);
    connect(verdict_, &VerdictStrip::causeRequested, this, &OverviewPage::causeRequested);
    connect(verdict_, &VerdictStrip::findingsRequested, this, [this] { emit findingRequested({}); });
    layout->addWidget(verdict_);
    ready_ = new ReadyPanel(session_, content_);
    connect(ready_, &ReadyPanel::findingRequested, this, &OverviewPage::findingRequested);
    figures_ = textBlock(content_);
    figures_->setAccessibleName(tr("Figures"));
    layout->addWidget(figures_);
    upper_ = pairLayout(layout);
    upper_->addWidget(ready_, 3);
    makeMesh();
    makeDtypes();
    auto* side = new QVBoxLayout;
    side->setSpacing(kPanelSpacing);
    side->addWidget(meshPanel_, 1);
    side->addWidget(dtypePanel_);
    upper_->addLayout(side, 2);
    makeIcicle();
    layout->addWidget(modulePanel_);
    makeRanks();
    makeLadder();
    lower_ = pairLayout(layout);
    lower_->addWidget(rankPanel_, 3);
    lower_->addWidget(ladderPanel_, 2);
    makeNotes();
    layout->addWidget(notePanel_);
    layout->addStretch(1);

    connect(&session_, &Session::stateChanged, this, &OverviewPage::refreshCheckpoint);
    connect(&session_, &Session::factsChanged, this, &OverviewPage::refreshFacts);
    connect(&session_.selection(), &Selection::changed, this, &OverviewPage::refreshSelection);
    refreshCheckpoint();
    if (session_.hasFacts()) refreshFacts();
}

// ------------------------------------------------------------------ making

void OverviewPage::makeDtypes() {
    dtypePanel_ = new Panel(tr("Bytes by dtype"), content_);
    dtypes_ = withName(new ShareBar(dtypePanel_), tr("Bytes by dtype"));
    dtypes_->setToolTip(tr("Click to filter the tree by dtype"));
    dtypeRows_ = new TextTableModel({tr("Dtype"), tr("Bytes"), tr("Share"), tr("Tensors")}, this);
    dtypePanel_->setView(dtypes_, makeTable(dtypeRows_, tr("Bytes by dtype, as a table"), dtypePanel_));
    dtypePanel_->setExports({QStringLiteral("dtypes"), dtypes_, [this] { return dtypeRows_; }});
    connect(dtypes_, &ShareBar::activated, this, [this](int share) {
        session_.selection().setFilter(QStringLiteral("dtype:") +
                                       toQString(dtypeName(dtypeOf_[static_cast<size_t>(share)])));
    });
}

void OverviewPage::makeIcicle() {
    modulePanel_ = new Panel(tr("Bytes by module"), content_);
    icicle_ = new Icicle(modulePanel_);
    moduleRows_ = new TextTableModel({tr("Module"), tr("Bytes"), tr("Share"), tr("Tensors")}, this);
    QTableView* table = makeTable(moduleRows_, tr("Bytes by module, as a table"), modulePanel_);
    modulePanel_->setView(icicle_, table);
    modulePanel_->setExports({QStringLiteral("modules"), icicle_, [this] { return moduleRows_; }});
    modulePanel_->setMenuBuilder([this](QMenu& menu) {
        const ModuleTree::Node node = icicle_->current();
        if (!session_.hasFacts() || node == ModuleTree::kRoot) return;
        menu.addAction(tr("Copy name"), this,
                       [this, name = session_.facts()->tree.fullName(node)] { copyText(toQString(name)); });
        menu.addAction(tr("Zoom in"), this, [this, node] { icicle_->zoomTo(node); });
        QAction* out = menu.addAction(tr("Zoom out"), icicle_, &Icicle::zoomOut);
        out->setEnabled(icicle_->top() != ModuleTree::kRoot);
    });
    connect(icicle_, &Icicle::selected, this, [this](ModuleTree::Node node) {
        const ModuleTree& tree = session_.facts()->tree;
        if (tree.tensor(node) != kNone)
            session_.selection().selectTensor(tree.tensor(node));
        else
            session_.selection().selectModule(QString::fromStdString(std::string(tree.fullName(node))));
    });
    connect(table, &QTableView::clicked, this, [this](const QModelIndex& index) {
        session_.selection().selectModule(moduleRows_->index(index.row(), 0).data().toString());
    });
}

void OverviewPage::makeRanks() {
    rankPanel_ = new Panel(tr("Bytes per rank"), content_);
    rankChart_ = new RankChart(rankPanel_);
    rankRows_ = new TextTableModel({tr("Rank"), tr("Place"), tr("Bytes"), tr("Against median"), tr("Tensors"),
                                    tr("Chunks"), tr("State")},
                                   this);
    QTableView* table = makeTable(rankRows_, tr("Bytes per rank, as a table"), rankPanel_);
    sorted_ = withName(new QCheckBox(tr("Largest first"), rankPanel_), tr("Ranks with the most bytes first"));
    rankPanel_->addToTitle(sorted_);
    rankPanel_->setView(rankChart_, table);
    outliers_ = rankPanel_->addCaption();
    rankPanel_->setExports({QStringLiteral("ranks"), rankChart_, [this] { return rankRows_; }});
    connect(sorted_, &QCheckBox::toggled, rankChart_, &RankChart::setSorted);
    connect(rankChart_, &RankChart::selected, this,
            [this](const std::vector<uint32_t>& ranks) { session_.selection().selectRanks(ranks); });
    connect(table, &QTableView::clicked, this, [this](const QModelIndex& index) {
        session_.selection().selectRanks({static_cast<uint32_t>(rankRows_->source(index.row()))});
    });
}

void OverviewPage::makeMesh() {
    meshPanel_ = new Panel(tr("Mesh of ranks"), content_);
    mesh_ = textBlock(meshPanel_);
    mesh_->setAlignment(Qt::AlignTop | Qt::AlignLeft);
    mesh_->setAccessibleName(tr("Mesh of ranks and its evidence"));
    meshPanel_->setView(mesh_);
    meshPanel_->setMenuBuilder(
        [this](QMenu& menu) { menu.addAction(tr("Copy"), this, [this] { copyText(mesh_->text()); }); });
}

void OverviewPage::makeLadder() {
    ladderPanel_ = new Panel(tr("Placement of layers"), content_);
    auto* scroll = withName(new QScrollArea(ladderPanel_), tr("Layers"));
    scroll->setWidgetResizable(true);
    scroll->setFrameShape(QFrame::NoFrame);
    scroll->setHorizontalScrollBarPolicy(Qt::ScrollBarAlwaysOff);
    scroll->setFocusPolicy(Qt::NoFocus);
    scroll->setAccessibleName(tr("Layers"));
    ladder_ = new LayerLadder(scroll);
    scroll->setWidget(ladder_);
    folded_ = withName(new QCheckBox(tr("Fold equal layers"), ladderPanel_), tr("Fold equal layers"));
    folded_->setChecked(true);
    ladderPanel_->addToTitle(folded_);
    layerRows_ = new TextTableModel(
        {tr("Layer"), tr("Bytes"), tr("Tensors"), tr("Stages"), tr("Ranks"), tr("State")}, this);
    ladderPanel_->setView(scroll, makeTable(layerRows_, tr("Layers, as a table"), ladderPanel_));
    ladderPanel_->setExports({QStringLiteral("layers"), ladder_, [this] { return layerRows_; }});
    connect(folded_, &QCheckBox::toggled, ladder_, &LayerLadder::setFolded);
    connect(ladder_, &LayerLadder::selected, this,
            [this](const QString& name) { session_.selection().selectModule(name); });
}

void OverviewPage::makeNotes() {
    notePanel_ = new Panel(tr("What the reader noticed"), content_);
    noteRows_ = new TextTableModel({tr("Severity"), tr("Note"), tr("Where"), tr("Rule")}, this);
    QTableView* table = makeTable(noteRows_, tr("Notes of the reader"), notePanel_);
    notePanel_->setView(table);
    notePanel_->setExports({QStringLiteral("notes"), nullptr, [this] { return noteRows_; }});
    connect(table, &QTableView::activated, this, [this](const QModelIndex& index) {
        const Note& note = session_.catalog().notes()[static_cast<size_t>(noteRows_->source(index.row()))];
        if (const TensorId t = session_.catalog().find(note.tensor); t != kNone)
            session_.selection().selectTensor(t);
    });
}

void OverviewPage::arrange() {
    const QBoxLayout::Direction direction =
        width() >= kPanelsSideBySide ? QBoxLayout::LeftToRight : QBoxLayout::TopToBottom;
    for (QBoxLayout* pair : {upper_, lower_})
        pair->setDirection(direction);
    // What is left over goes to the charts; where there are none, to nothing.
    const bool charts = !rankPanel_->isHidden() || !ladderPanel_->isHidden();
    static_cast<QVBoxLayout*>(content_->layout())->setStretchFactor(lower_, charts ? kChartStretch : 0);
}

void OverviewPage::resizeEvent(QResizeEvent* event) {
    QWidget::resizeEvent(event);
    arrange();
}

// The shares carry colors of the theme.
void OverviewPage::changeEvent(QEvent* event) {
    QWidget::changeEvent(event);
    if (event->type() == QEvent::PaletteChange && dtypes_) refreshDtypes();
}

// ------------------------------------------------------------------ filling

void OverviewPage::refreshCheckpoint() {
    if (shown_ == session_.checkpoint() && shown_) return;
    shown_ = session_.checkpoint();
    icicle_->setFacts(nullptr, nullptr);
    rankChart_->setBars({}, 0);
    outliers_->hide();
    ladder_->setLayers({}, 0, {}, false);
    for (TextTableModel* rows : {dtypeRows_, moduleRows_, rankRows_, layerRows_, noteRows_})
        rows->setContent({});
    content_->setEnabled(shown_ != nullptr);
    refreshFigures();
    refreshDtypes();
    refreshNotes();
    mesh_->setText(tr("…"));
    rankPanel_->setVisible(shown_ && session_.catalog().rankCount() > 1);
    meshPanel_->setVisible(shown_ != nullptr);
    modulePanel_->setVisible(shown_ != nullptr);
    ladderPanel_->hide();
    arrange();
}

void OverviewPage::refreshFacts() {
    if (!shown_ || !session_.hasFacts()) return;
    refreshModules();
    refreshRanks();
    refreshMesh();
    refreshLadder();
    refreshSelection(session_.selection().current());
    arrange();
}

void OverviewPage::refreshSelection(const Selected& now) {
    rankChart_->setSelected(now.ranks);
    ladder_->setSelected(now.module);
    if (!session_.hasFacts()) return;
    const ModuleTree& tree = session_.facts()->tree;
    if (now.tensor != kNone)
        icicle_->setCurrent(tree.nodeOf(now.tensor));
    else
        icicle_->setCurrent(now.module.isEmpty() ? ModuleTree::kRoot : tree.find(now.module.toStdString()));
}

void OverviewPage::refreshFigures() {
    figures_->setVisible(shown_ != nullptr);
    if (!shown_) return;
    const Catalog& catalog = shown_->catalog();
    QStringList parts{toQString(catalog.format()) +
                      (catalog.variant().empty() ? QString() : ", " + toQString(catalog.variant()))};
    if (!catalog.writer().empty()) parts += toQString(catalog.writer());
    const uint64_t optimizer = catalog.elementsOf(Role::optimizer);
    parts += tr("%1 parameters").arg(bigCount(catalog.elementsOf(Role::parameter))) +
             (optimizer ? tr(" (+ %1 in the optimizer)").arg(bigCount(optimizer)) : QString());
    size_t aliases = 0;
    for (TensorId t = 0; t < catalog.tensorCount(); ++t)
        aliases += catalog.aliasOf(t) != kNone;
    const auto count = [&](uint64_t number, const QString& one, const QString& many) {
        if (number) parts += countedText(number, one, many);
    };
    count(catalog.tensorCount(), tr("1 tensor"), tr("%1 tensors"));
    count(aliases, tr("1 alias"), tr("%1 aliases"));
    count(catalog.chunkCount(), tr("1 chunk"), tr("%1 chunks"));
    parts += sizeText(catalog.totalBytes());
    if (const auto claim = claimedSize(catalog)) parts += tr("▲ its index claims %1").arg(sizeText(*claim));
    count(catalog.files().size(), tr("1 file"), tr("%1 files"));
    count(catalog.rankCount(), tr("1 rank"), tr("%1 ranks"));
    count(catalog.objects().size(), tr("1 object"), tr("%1 objects"));
    for (QString& part : parts)
        part.replace(' ', QChar::Nbsp);  // lines break between them
    figures_->setText(parts.join(QStringLiteral(" · ")));
}

void OverviewPage::refreshDtypes() {
    dtypeOf_.clear();
    const std::vector<DtypeShare> order = shown_ ? dtypeShares(shown_->catalog()) : std::vector<DtypeShare>();
    std::vector<ShareBar::Share> shares;
    for (const DtypeShare& share : order) {
        dtypeOf_.push_back(share.dtype);
        shares.push_back({toQString(dtypeName(share.dtype)), static_cast<double>(share.bytes),
                          sizeText(share.bytes), dtypeColor(share.dtype)});
    }
    dtypes_->setShares(std::move(shares));
    dtypePanel_->setVisible(!order.empty());
    dtypeRows_->setContent(dtypeRows(order));
}

void OverviewPage::refreshModules() {
    icicle_->setFacts(shown_, session_.facts());
    moduleRows_->setContent(moduleRows(shown_, session_.facts()));
}

void OverviewPage::refreshRanks() {
    const auto facts = session_.facts();
    const auto count = static_cast<uint32_t>(facts->ranks.size());
    rankPanel_->setVisible(count > 1);
    std::vector<RankBar> bars;
    bars.reserve(count);
    for (uint32_t r = 0; r < count; ++r) {
        bars.push_back({r, facts->ranks[r].bytes, facts->ranks[r].health,
                        facts->mesh ? toQString(rankLabel(facts->mesh, r)) : QString(),
                        toQString(rankStateText(facts->ranks[r]))});
    }
    rankChart_->setBars(std::move(bars), facts->medianRankBytes);
    const std::vector<uint32_t>& outliers = rankChart_->outliers();
    QStringList named;
    for (size_t i = 0; i < outliers.size() && i < kOutliersNamed; ++i) {
        const uint32_t r = outliers[i];
        named += tr("rank %1 holds %2 (%3)")
                     .arg(r)
                     .arg(sizeText(facts->ranks[r].bytes),
                          againstMedian(facts->ranks[r].bytes, facts->medianRankBytes));
    }
    QString text = outliers.empty()
                       ? tr("No rank stands out.")
                       : countedText(outliers.size(), tr("1 rank stands out: "), tr("%1 ranks stand out: ")) +
                             named.join(QStringLiteral(", ")) +
                             (outliers.size() > kOutliersNamed ? QStringLiteral(", …") : QStringLiteral("."));
    std::vector<uint32_t> damaged;
    for (uint32_t r = 0; r < count; ++r) {
        if (facts->ranks[r].health > Health::unread) damaged.push_back(r);
    }
    if (!damaged.empty()) {
        QStringList names;
        for (size_t i = 0; i < damaged.size() && i < kOutliersNamed; ++i)
            names +=
                tr("rank %1 (%2)").arg(damaged[i]).arg(toQString(rankStateText(facts->ranks[damaged[i]])));
        text += tr(" Damaged: %1%2")
                    .arg(names.join(QStringLiteral(", ")),
                         damaged.size() > kOutliersNamed
                             ? tr(" and %1 more.").arg(damaged.size() - kOutliersNamed)
                             : QStringLiteral("."));
    }
    outliers_->setText(text);
    outliers_->setVisible(count > 1);

    rankRows_->setContent(rankRows(facts));
}

void OverviewPage::refreshMesh() {
    const std::optional<Mesh>& mesh = session_.facts()->mesh;
    if (!mesh) {
        mesh_->setText(session_.catalog().rankCount() > 1
                           ? tr("No mesh is declared, and how tensors are sharded suggests none.")
                           : tr("One rank wrote all of it; there is no mesh."));
        return;
    }
    QStringList axes;
    for (const MeshAxis& axis : mesh->axes)
        axes += QStringLiteral("%1 = %2").arg(toQString(axis.name)).arg(axis.size);
    QString text = axes.join(QStringLiteral(" × ")) + "\n" +
                   (mesh->source == Mesh::Source::declared ? tr("Declared by the checkpoint.")
                                                           : tr("Inferred from how tensors are sharded:"));
    for (const std::string& sentence : mesh->evidence)
        text += QStringLiteral("\n• ") + toQString(sentence);
    if (const QString context = contextParallelText(mesh); !context.isEmpty())
        text += QStringLiteral("\n• ") + context;
    mesh_->setText(text);
}

void OverviewPage::refreshLadder() {
    const auto facts = session_.facts();
    const int stage = facts->mesh ? facts->mesh->axisIndex("pp") : -1;
    const bool stages = stage >= 0 && facts->mesh->ranks() >= session_.catalog().rankCount();
    const uint32_t columns =
        stages ? facts->mesh->axes[static_cast<size_t>(stage)].size : session_.catalog().rankCount();
    std::vector<LayerLadder::Layer> layers;
    for (const LayerFacts& layer : facts->layers) {
        layers.push_back({toQString(layer.name), toQString(layer.group), layer.number,
                          stages ? layer.stages : layer.ranks, layer.bytes, layer.health, layerState(layer)});
    }
    ladderPanel_->setVisible(!layers.empty() && columns > 1);
    ladder_->setLayers(std::move(layers), columns, stages ? tr("stage") : tr("rank"), stages);
    layerRows_->setContent(layerRows(facts, stages));
    const int height = ladder_->sizeHint().height();
    ladderPanel_->setMinimumHeight(std::min(height, kLadderHeight) + ladderPanel_->fontMetrics().height() +
                                   40);
}

void OverviewPage::refreshNotes() {
    noteRows_->setContent(shown_ ? noteRows(shown_) : TextTableModel::Content());
    const int rows = noteRows_->rowCount();
    notePanel_->setVisible(rows > 0);
    auto* table = notePanel_->findChild<QTableView*>();
    const int line = table->verticalHeader()->defaultSectionSize();
    table->setFixedHeight(
        std::min(kNotesHeight, table->horizontalHeader()->sizeHint().height() + rows * line + 8));
    fitColumns(*table);
    // The sentence takes what the others leave.
    table->horizontalHeader()->setStretchLastSection(false);
    table->horizontalHeader()->setSectionResizeMode(1, QHeaderView::Stretch);
}

}  // namespace shardscope::ui
