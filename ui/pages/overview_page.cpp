#include "ui/pages/overview_page.h"

#include <QHeaderView>
#include <QLabel>
#include <QMenu>
#include <QResizeEvent>
#include <QScrollArea>
#include <QScrollBar>
#include <QTableView>
#include <QTimer>
#include <QVBoxLayout>
#include <algorithm>

#include "ui/models/texts.h"
#include "ui/pages/as_if_panel.h"
#include "ui/pages/overview_rows.h"
#include "ui/pages/ready_panel.h"
#include "ui/pages/verdict_strip.h"
#include "ui/widgets/building.h"
#include "ui/widgets/card.h"
#include "ui/widgets/icicle.h"
#include "ui/widgets/labels.h"
#include "ui/widgets/mesh_view.h"
#include "ui/widgets/share_bar.h"
#include "ui/widgets/theme.h"

namespace shardscope::ui {

namespace {

constexpr int kPanelsSideBySide = 820;  // pixels of width from which two panels stand beside each other
constexpr int kLargeScreen = 2200;      // from which the mesh has more of it than the card, which is text
constexpr int kNotesHeight = 180;
constexpr int kPanelSpacing = 10;

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

}  // namespace

OverviewPage::OverviewPage(Session& session, QWidget* parent) : QWidget(parent), session_(session) {
    setAccessibleName(tr("Overview"));
    auto* outer = layoutOf<QVBoxLayout>(this, {0, 0, 0, 0});
    scroll_ = withName(new QScrollArea(this), tr("Overview"));
    scroll_->setWidgetResizable(true);
    scroll_->setFrameShape(QFrame::NoFrame);
    scroll_->setHorizontalScrollBarPolicy(Qt::ScrollBarAlwaysOff);
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
    upper_ = new QBoxLayout(QBoxLayout::LeftToRight);
    upper_->setSpacing(kPanelSpacing);
    layout->addLayout(upper_);
    makeMesh();
    makeDtypes();
    auto* side = new QVBoxLayout;
    side->setSpacing(kPanelSpacing);
    side->addWidget(ready_, 1);
    side->addWidget(dtypePanel_);
    upper_->addLayout(side, 3);
    upper_->addWidget(meshPanel_, 2);
    layout->addWidget(asIf_);
    makeIcicle();
    layout->addWidget(modulePanel_, 100);  // as much as it fills; the rest is below
    makeNotes();
    layout->addWidget(notePanel_);
    layout->addStretch(1);

    connect(&session_, &Session::stateChanged, this, &OverviewPage::refreshCheckpoint);
    connect(&session_, &Session::factsChanged, this, &OverviewPage::refreshFacts);
    connect(&session_.selection(), &Selection::changed, this, &OverviewPage::refreshSelection);
    onThemeChange(this, [this] { refreshDtypes(); });  // the shares carry colors of the theme
    refreshCheckpoint();
    if (session_.hasFacts()) refreshFacts();
}

// ------------------------------------------------------------------ making

void OverviewPage::makeDtypes() {
    dtypePanel_ = new Panel(tr("Bytes by dtype"), content_);
    dtypes_ = withName(new ShareBar(dtypePanel_), tr("Bytes by dtype"));
    dtypes_->setToolTip(tr("Click to filter the tree by dtype"));
    dtypeRows_ = new TextTableModel(dtypeColumns({}), this);
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
    moduleRows_ = new TextTableModel(moduleColumns({}, {}, {}), this);
    QTableView* table = makeTable(moduleRows_, tr("Bytes by module, as a table"), modulePanel_);
    modulePanel_->setView(icicle_, table);
    modulePanel_->setExports({QStringLiteral("modules"), icicle_, [this] { return moduleRows_; }});
    modulePanel_->setMenuBuilder([this](QMenu& menu) {
        const ModuleTree::Node node = icicle_->current();
        if (!session_.hasFacts() || node == ModuleTree::kRoot) return;
        addCopyAction(menu, tr("Copy name"), toQString(session_.facts()->tree.fullName(node)));
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

void OverviewPage::makeMesh() {
    meshPanel_ = new Panel(tr("Mesh of ranks"), content_);
    mesh_ = new MeshView(meshPanel_);
    rankRows_ = new TextTableModel(rankColumns({}), this);
    QTableView* table = makeTable(rankRows_, tr("Ranks, as a table"), meshPanel_);
    meshPanel_->setView(mesh_, table);
    meshTitle_ = plainLabel(meshPanel_);
    meshPanel_->addToTitle(meshTitle_);
    remarks_ = meshPanel_->addCaption();
    asIf_ = new AsIfPanel(session_, *meshPanel_, content_);
    connect(asIf_, &AsIfPanel::reshardRequested, this, &OverviewPage::reshardRequested);
    connect(asIf_, &AsIfPanel::answered, this, [this] {
        // Once the layout has room for it.
        QTimer::singleShot(0, this,
                           [this] { scroll_->verticalScrollBar()->setValue(asIf_->y() - kPanelSpacing); });
    });
    Exports exports{QStringLiteral("mesh"), mesh_, [this] { return rankRows_; }, {}};
    exports.svg = [this] {
        return mesh_->picture() ? svgOf(*mesh_->picture(), mesh_->width(), mesh_->height(), darkTheme())
                                : std::string();
    };
    meshPanel_->setExports(exports);
    meshPanel_->setMenuBuilder([this](QMenu& menu) { addCopyAction(menu, tr("Copy"), why_); });
    connect(mesh_, &MeshView::selected, this,
            [this](const std::vector<uint32_t>& ranks) { session_.selection().selectRanks(ranks); });
    connect(table, &QTableView::clicked, this, [this](const QModelIndex& index) {
        session_.selection().selectRanks({static_cast<uint32_t>(rankRows_->source(index.row()))});
    });
}

void OverviewPage::makeNotes() {
    notePanel_ = new Panel(tr("What the reader noticed"), content_);
    noteRows_ = new TextTableModel(noteColumns({}), this);
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
    upper_->setDirection(width() >= kPanelsSideBySide ? QBoxLayout::LeftToRight : QBoxLayout::TopToBottom);
    const bool large = width() >= kLargeScreen;
    upper_->setStretch(0, large ? 2 : 3);
    upper_->setStretch(1, large ? 3 : 2);
}

void OverviewPage::resizeEvent(QResizeEvent* event) {
    QWidget::resizeEvent(event);
    arrange();
}

// ------------------------------------------------------------------ filling

void OverviewPage::refreshCheckpoint() {
    if (shown_ == session_.checkpoint() && shown_) return;
    shown_ = session_.checkpoint();
    icicle_->setFacts(nullptr, nullptr);
    mesh_->setPicture(nullptr);
    remarks_->hide();
    moduleRows_->setContent(0, moduleColumns({}, {}, {}));
    rankRows_->setContent(0, rankColumns({}));
    content_->setEnabled(shown_ != nullptr);
    refreshFigures();
    refreshDtypes();
    refreshNotes();
    meshPanel_->setVisible(shown_ && session_.catalog().rankCount() > 1);
    modulePanel_->setVisible(shown_ != nullptr);
    arrange();
}

void OverviewPage::refreshFacts() {
    if (!shown_ || !session_.hasFacts()) return;
    refreshModules();
    refreshMesh();
    refreshSelection(session_.selection().current());
    arrange();
}

void OverviewPage::refreshSelection(const Selected& now) {
    mesh_->setSelected(now.ranks);
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
    dtypeRows_->setContent(order.size(), dtypeColumns(order));
}

void OverviewPage::refreshModules() {
    const int frame = modulePanel_->sizeHint().height() - icicle_->sizeHint().height();
    icicle_->setFacts(shown_, session_.facts());
    modulePanel_->setMaximumHeight(frame + icicle_->mostHeight());
    auto modules = modulesOf(*session_.facts());
    const size_t count = modules.size();
    moduleRows_->setContent(count, moduleColumns(shown_, session_.facts(), std::move(modules)));
}

void OverviewPage::refreshMesh() {
    const auto facts = session_.facts();
    const auto picture = MeshPicture::of(facts);
    meshPanel_->setVisible(picture != nullptr);
    mesh_->setPicture(picture);
    rankRows_->setContent(facts->ranks.size(), rankColumns(facts));
    if (!picture) return;
    QStringList why{toQString(picture->title())};
    if (facts->mesh) {
        for (const std::string& sentence : facts->mesh->evidence)
            why += QStringLiteral("• ") + toQString(sentence);
    }
    const QStringList said{toQString(picture->remarks()), contextParallelText(facts->mesh)};
    const QString remarks = said.join(' ').trimmed();
    meshTitle_->setText(why[0]);
    why_ = why.join('\n');
    mesh_->setToolTip(why_);
    mesh_->setAccessibleDescription(why_);
    remarks_->setText(remarks);
    remarks_->setVisible(!remarks.isEmpty());
}

void OverviewPage::refreshNotes() {
    noteRows_->setContent(shown_ ? shown_->catalog().notes().size() : 0, noteColumns(shown_));
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
