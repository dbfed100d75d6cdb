#include "ui/pages/placement_page.h"

#include <QComboBox>
#include <QHBoxLayout>
#include <QHeaderView>
#include <QLabel>
#include <QMenu>
#include <QPainter>
#include <QPushButton>
#include <QScopedValueRollback>
#include <QSplitter>
#include <QStackedWidget>
#include <QTableView>
#include <QToolButton>
#include <algorithm>
#include <array>
#include <numeric>

#include "ui/models/chunk_table_model.h"
#include "ui/models/texts.h"
#include "ui/pages/overview_rows.h"
#include "ui/widgets/building.h"
#include "ui/widgets/card.h"
#include "ui/widgets/exporting.h"
#include "ui/widgets/labels.h"
#include "ui/widgets/legend.h"
#include "ui/widgets/minimap.h"
#include "ui/widgets/placement_map.h"
#include "ui/widgets/theme.h"

namespace shardscope::ui {

namespace {

constexpr int kRoomForLabels = 860;  // pixels
constexpr size_t kAllOrders = 3;     // up to so many axes every order is offered

// Orders of axes worth offering, the mesh's own first.
std::vector<std::vector<int>> axisOrders(size_t axes) {
    std::vector<int> own(axes);
    std::iota(own.begin(), own.end(), 0);
    std::vector<std::vector<int>> orders;
    if (axes <= kAllOrders) {
        std::vector<int> order = own;
        do
            orders.push_back(order);
        while (std::next_permutation(order.begin(), order.end()));
        return orders;
    }
    orders.push_back(own);
    for (const bool toFront : {true, false}) {
        for (size_t i = 0; i < axes; ++i) {
            std::vector<int> order = own;
            const int axis = order[i];
            order.erase(order.begin() + static_cast<std::ptrdiff_t>(i));
            order.insert(toFront ? order.begin() : order.end(), axis);
            if (std::find(orders.begin(), orders.end(), order) == orders.end()) orders.push_back(order);
        }
    }
    return orders;
}

QToolButton* toolButton(const QString& text, const QString& name, const QString& tip, QWidget* parent) {
    auto* button = new QToolButton(parent);
    button->setText(text);
    button->setAccessibleName(name);
    button->setToolTip(tip);
    button->setFocusPolicy(Qt::TabFocus);
    return button;
}

}  // namespace

PlacementPage::PlacementPage(Session& session, QWidget* parent) : QWidget(parent), session_(session) {
    setAccessibleName(tr("Placement"));
    auto* layout = layoutOf<QVBoxLayout>(this, {8, 6, 8, 4}, 4);
    layout->addWidget(makeToolbar());

    stack_ = new QStackedWidget(this);
    auto* content = new QWidget(this);
    auto* contentLayout = layoutOf<QVBoxLayout>(content, {0, 0, 0, 0}, 4);
    legend_ = new Legend(content);
    contentLayout->addWidget(legend_);
    context_ = wrappedLabel(content);
    context_->setAccessibleName(tr("What context parallelism means here"));
    context_->hide();
    contentLayout->addWidget(context_);
    splitter_ = new QSplitter(Qt::Vertical, content);
    auto* mapPane = new QWidget(splitter_);
    auto* mapLayout = layoutOf<QHBoxLayout>(mapPane, {0, 0, 0, 0}, 0);
    map_ = new PlacementMap(mapPane);
    minimap_ = new Minimap(map_, mapPane);
    mapLayout->addWidget(map_, 1);
    mapLayout->addWidget(minimap_);
    splitter_->addWidget(mapPane);
    splitter_->addWidget(makeTable());
    splitter_->setStretchFactor(0, 3);
    splitter_->setStretchFactor(1, 1);
    splitter_->setChildrenCollapsible(false);
    contentLayout->addWidget(splitter_, 1);
    cellLabel_ = withName(new ElidedLabel(content, Qt::ElideMiddle), tr("Current cell"));
    contentLayout->addWidget(cellLabel_);
    stack_->addWidget(content);
    stack_->addWidget(makeEmptyState());
    layout->addWidget(stack_, 1);
    fillLegend();

    connect(map_, &PlacementMap::currentChanged, this, &PlacementPage::cellTaken);
    connect(map_, &PlacementMap::activated, this, &PlacementPage::openCell);
    connect(map_, &PlacementMap::columnPicked, this, &PlacementPage::pickColumn);
    connect(map_, &PlacementMap::menuRequested, this, &PlacementPage::showMenu);
    connect(map_, &PlacementMap::pinRequested, this, &PlacementPage::togglePin);
    connect(map_, &PlacementMap::regionChanged, this, [this](const QRect& cells) {
        if (!cells.isEmpty() && !asTable_->isChecked())
            asTable_->setChecked(true);
        else
            fillTable();
    });
    connect(&session, &Session::stateChanged, this, [this] {
        // What is shown of another checkpoint goes at once: its numbers mean nothing in this one.
        if (built_ != session_.checkpoint()) {
            buildTicket_.drop();
            showMatrix(nullptr);
            pinned_.clear();
            pinnedGroups_.clear();
            open_.clear();
            fillAxisOrders();
            invalidate();
        }
        showState();
    });
    connect(&session, &Session::visibleChanged, this, &PlacementPage::invalidate);
    connect(&session, &Session::factsChanged, this, [this] {
        fillAxisOrders();
        fillLegend();
        invalidate();
    });
    connect(&session.selection(), &Selection::changed, this,
            [this](const Selected& now, const Selected& before) {
                // Back and forward bring the view along; another filter makes another map first.
                const bool other = now.mapView != before.mapView;
                if (other) wantedView_ = now.mapView;
                // A map that is still being made is one of the former filter: it must not take the view.
                if (now.filter != before.filter) {
                    buildTicket_.drop();
                    later_.stop();
                }
                follow(now);
                if (other && now.filter == before.filter) takeView();
            });
    connect(map_, &PlacementMap::viewChanged, this, [this] {
        if (!wantedView_) session_.selection().keepMapView(map_->view());
    });
    later_.setSingleShot(true);
    later_.setInterval(0);
    connect(&later_, &QTimer::timeout, this, &PlacementPage::build);
    fillAxisOrders();
    showState();
}

PlacementPage::~PlacementPage() {
    buildTicket_.drop();
    tableTicket_.drop();
}

QWidget* PlacementPage::makeToolbar() {
    auto* bar = new QWidget(this);
    auto* row = layoutOf<QHBoxLayout>(bar, {0, 0, 0, 0}, 4);
    axesLabel_ = new QLabel(tr("&Order of ranks"), bar);
    axes_ = withName(new QComboBox(bar), tr("Order of ranks"));
    axes_->setToolTip(tr("Order of ranks: axes of the mesh that order the columns, outermost first"));
    axesLabel_->setBuddy(axes_);
    foldRows_ = toolButton(
        tr("Fold layers"), tr("Fold layers"),
        tr("Show tensors of layers that are placed alike as one row; the odd one out stands alone"), bar);
    foldColumns_ = toolButton(tr("Fold ranks"), tr("Fold ranks"),
                              tr("Show ranks that hold exactly the same as one column"), bar);
    groups_ = toolButton(tr("Groups"), tr("Groups"),
                         tr("Stand rows of one module below a row that sums them up; Enter or a click on its "
                            "name opens and closes it"),
                         bar);
    for (QToolButton* button : {foldRows_, foldColumns_, groups_}) {
        button->setCheckable(true);
        connect(button, &QToolButton::toggled, this, &PlacementPage::invalidate);
    }
    foldRows_->setChecked(true);
    groups_->setChecked(true);
    auto* out = toolButton(QStringLiteral("−"), tr("Zoom out"), tr("Zoom out (-)"), bar);
    auto* in = toolButton(QStringLiteral("+"), tr("Zoom in"), tr("Zoom in (+)"), bar);
    auto* fit = toolButton(tr("Fit"), tr("Fit all in view"), tr("Bring all into view (F)"), bar);
    auto* previous =
        toolButton(QStringLiteral("◂"), tr("Previous finding"), tr("Previous finding (Shift+N)"), bar);
    auto* next = toolButton(QStringLiteral("▸"), tr("Next finding"), tr("Next finding (N)"), bar);
    auto* overview = toolButton(tr("Minimap"), tr("The whole map beside its rows"),
                                tr("Show the whole map in the corner while zoomed in"), bar);
    overview->setCheckable(true);
    overview->setChecked(true);
    asTable_ = toolButton(tr("Table"), tr("Show as table"),
                          tr("List the chunks of the marked region, or of all rows and ranks"), bar);
    asTable_->setCheckable(true);
    row->addWidget(axesLabel_);
    row->addWidget(axes_);
    row->addSpacing(8);
    row->addWidget(foldRows_);
    row->addWidget(foldColumns_);
    row->addWidget(groups_);
    row->addSpacing(8);
    row->addWidget(out);
    row->addWidget(in);
    row->addWidget(fit);
    findingsLabel_ = new QLabel(tr("Findings"), bar);
    row->addWidget(findingsLabel_);
    row->addWidget(previous);
    row->addWidget(next);
    row->addStretch(1);
    row->addWidget(overview);
    row->addWidget(asTable_);
    axesLabel_->hide();  // until there is room for them
    findingsLabel_->hide();
    connect(axes_, &QComboBox::activated, this, &PlacementPage::invalidate);
    connect(out, &QToolButton::clicked, this, [this] { map_->zoomOut(); });
    connect(in, &QToolButton::clicked, this, [this] { map_->zoomIn(); });
    connect(fit, &QToolButton::clicked, this, [this] { map_->fit(); });
    const auto find = [this](bool forward) {
        if (!map_->nextFinding(forward)) cellLabel_->setWhole(tr("No problems on this map."));
    };
    connect(previous, &QToolButton::clicked, this, [find] { find(false); });
    connect(next, &QToolButton::clicked, this, [find] { find(true); });
    connect(overview, &QToolButton::toggled, this, [this](bool on) { minimap_->setWhole(on); });
    connect(asTable_, &QToolButton::toggled, this, &PlacementPage::showTable);
    return bar;
}

QWidget* PlacementPage::makeEmptyState() {
    auto* page = new QWidget(this);
    auto* column = new QVBoxLayout(page);
    emptyLabel_ = wrappedLabel(page);
    emptyLabel_->setAlignment(Qt::AlignCenter);
    clearFilter_ = new QPushButton(tr("Clear the filter"), page);
    connect(clearFilter_, &QPushButton::clicked, this, [this] { session_.selection().setFilter({}); });
    column->addStretch(1);
    column->addWidget(emptyLabel_);
    column->addSpacing(8);
    column->addWidget(clearFilter_, 0, Qt::AlignHCenter);
    column->addStretch(2);
    return page;
}

QWidget* PlacementPage::makeTable() {
    tablePane_ = new QWidget(this);
    auto* column = layoutOf<QVBoxLayout>(tablePane_, {0, 4, 0, 0}, 2);
    tableLabel_ = plainLabel(tablePane_);
    chunks_ = new ChunkTableModel(session_, this);
    table_ = new QTableView(tablePane_);
    table_->setModel(chunks_);
    table_->setAccessibleName(tr("Chunks of the placement map"));
    table_->setSelectionBehavior(QAbstractItemView::SelectRows);
    table_->setSortingEnabled(true);
    table_->sortByColumn(-1, Qt::AscendingOrder);
    table_->setAlternatingRowColors(true);
    table_->setWordWrap(false);
    table_->verticalHeader()->hide();
    table_->verticalHeader()->setDefaultSectionSize(table_->fontMetrics().height() + 6);
    table_->horizontalHeader()->setHighlightSections(false);
    const int widths[] = {260, 56, 110, 170, 84, 150, 150, 80};
    for (int c = 0; c < ChunkTableModel::columnCountValue; ++c)
        table_->setColumnWidth(c, widths[c]);
    table_->setContextMenuPolicy(Qt::CustomContextMenu);
    table_->setMinimumHeight(90);
    enableRowCopy(*table_);
    connect(table_, &QTableView::activated, this, [this](const QModelIndex& index) {
        tableRowChosen(index.row());
        session_.selection().setPage(Page::tensor);
    });
    connect(table_, &QTableView::clicked, this,
            [this](const QModelIndex& index) { tableRowChosen(index.row()); });
    connect(table_, &QWidget::customContextMenuRequested, this, [this](const QPoint& at) {
        auto* menu = new QMenu(table_);
        menu->setAttribute(Qt::WA_DeleteOnClose);
        for (QAction* action : table_->actions())
            menu->addAction(action);
        addExportActions(*menu, {QStringLiteral("placement"), nullptr, [this] { return chunks_; }}, this);
        menu->popup(table_->viewport()->mapToGlobal(at));
    });
    column->addWidget(tableLabel_);
    column->addWidget(table_, 1);
    tablePane_->hide();
    return tablePane_;
}

void PlacementPage::fillLegend() {
    const auto tile = [](QPainter& painter, const QRectF& rect, const QRectF& slice) {
        QColor back = healthColor(Health::ok);
        back.setAlpha(120);
        painter.fillRect(rect, back);
        painter.fillRect(
            QRectF(rect.left() + slice.left() * rect.width(), rect.top() + slice.top() * rect.height(),
                   slice.width() * rect.width(), slice.height() * rect.height()),
            holdColor(0.8));
        painter.setPen(outlineColor());
        painter.setBrush(Qt::NoBrush);
        painter.drawRect(rect.adjusted(0.5, 0.5, -0.5, -0.5));
    };
    std::vector<Legend::Entry> entries;
    entries.push_back({tr("shard of the rank, where it lies"), [tile](QPainter& painter, const QRectF& rect) {
                           tile(painter, rect, {0.25, 0, 0.25, 1});
                       }});
    entries.push_back({tr("dotted: a replica"), [tile](QPainter& painter, const QRectF& rect) {
                           tile(painter, rect.adjusted(1, 1, -1, -1), {0.25, 0, 0.25, 1});
                           painter.setPen(QPen(healthColor(Health::ok), 1));
                           painter.drawRect(rect.adjusted(1.5, 1.5, -1.5, -1.5));
                           QPen dots(outlineColor(), 1);
                           dots.setDashPattern({1, 2});
                           painter.setPen(dots);
                           painter.drawRect(rect.adjusted(1.5, 1.5, -1.5, -1.5));
                       }});
    entries.push_back({tr("dashed: a replica, not stored"), [](QPainter& painter, const QRectF& rect) {
                           QPen dashes(faintTextColor(), 1);
                           dashes.setDashPattern({3, 3});
                           painter.setPen(dashes);
                           painter.setBrush(Qt::NoBrush);
                           painter.drawRect(rect.adjusted(1.5, 1.5, -1.5, -1.5));
                       }});
    entries.push_back({tr("zoomed out: share held"), [](QPainter& painter, const QRectF& rect) {
                           for (int x = 0; x < static_cast<int>(rect.width()); ++x)
                               painter.fillRect(QRectF(rect.left() + x, rect.top(), 1, rect.height()),
                                                holdColor(x / rect.width()));
                       }});
    // Of the states those that this checkpoint has.
    std::array<bool, 7> present{};
    if (const auto facts = session_.facts()) {
        for (const Health health : facts->tensorHealth)
            present[static_cast<size_t>(health)] = true;
    }
    const auto state = [&](Health health, const QString& text) {
        if (present[static_cast<size_t>(health)]) entries.push_back(Legend::state(health, text));
    };
    state(Health::missing, tr("missing or truncated"));
    state(Health::gap, tr("no owner"));
    state(Health::overlap, tr("claimed twice"));
    state(Health::differs, tr("replicas differ"));
    state(Health::nonFinite, tr("NaN or infinite"));
    legend_->setEntries(std::move(entries));
}

void PlacementPage::fillAxisOrders() {
    const auto mesh = session_.facts() ? session_.facts()->mesh : std::nullopt;
    context_->setText(contextParallelText(mesh));
    context_->setVisible(!context_->text().isEmpty());
    const QString before = axes_->currentText();
    axes_->clear();
    if (mesh && !mesh->axes.empty()) {
        for (const std::vector<int>& order : axisOrders(mesh->axes.size())) {
            QStringList names;
            QVariantList value;
            for (const int axis : order) {
                names += toQString(mesh->axes[static_cast<size_t>(axis)].name);
                value += axis;
            }
            axes_->addItem(names.join(QStringLiteral(" › ")), value);
        }
        axes_->setCurrentIndex(std::max(0, axes_->findText(before)));
    } else {
        axes_->addItem(tr("by number"), QVariantList());
    }
    axes_->setEnabled(axes_->count() > 1);
}

// ------------------------------------------------------------------ the matrix

void PlacementPage::showEvent(QShowEvent* event) {
    QWidget::showEvent(event);
    if (outdated_) later_.start();
}

void PlacementPage::resizeEvent(QResizeEvent* event) {
    QWidget::resizeEvent(event);
    // Beside docks on a small screen the buttons need the room of their labels; tooltips say the same.
    for (QLabel* label : {axesLabel_, findingsLabel_})
        label->setVisible(width() >= kRoomForLabels);
}

void PlacementPage::invalidate() {
    outdated_ = true;
    if (isVisible()) later_.start();
}

void PlacementPage::build() {
    outdated_ = false;
    buildTicket_.drop();
    built_ = session_.checkpoint();
    showState();
    if (!session_.checkpoint() || !session_.filtered().tree() || session_.filtered().tensors().empty()) {
        showMatrix(nullptr);
        return;
    }
    MatrixOptions options;
    for (const QVariant& axis : axes_->currentData().toList())
        options.axes.push_back(axis.toInt());
    options.foldRows = foldRows_->isChecked();
    options.foldColumns = foldColumns_->isChecked();
    options.pinned = pinned_;
    options.groups = groups_->isChecked();
    options.open = open_;
    options.pinnedGroups = pinnedGroups_;
    using Answer = std::shared_ptr<const PlacementMatrix>;
    buildTicket_ = session_.tasks().run<Answer>(
        Work::query, tr("Computing the placement"),
        [checkpoint = session_.checkpoint(), tree = session_.filtered().tree(), facts = session_.facts(),
         options](const TaskContext& context) -> Result<Answer> {
            Answer matrix = PlacementMatrix::build(checkpoint, tree, facts, options, context.stop);
            if (!matrix) return makeError(ErrorCode::cancelled, "canceled");
            return matrix;
        },
        [this](Result<Answer> answer) {
            if (answer.ok()) showMatrix(std::move(answer).value());
        });
}

void PlacementPage::showMatrix(std::shared_ptr<const PlacementMatrix> matrix) {
    tableTicket_.drop();
    map_->setMatrix(std::move(matrix));
    // Who opened a group stays at its sum.
    const PlacementMap::Cell at = map_->current();
    const QScopedValueRollback applying(applying_, at.valid() && map_->matrix()->row(at.row).summary);
    follow(session_.selection().current());
    if (map_->matrix()) takeView();
    showState();
    describeCell();
    if (asTable_->isChecked()) fillTable();
}

void PlacementPage::takeView() {
    if (!wantedView_) return;
    map_->setView(*wantedView_);
    wantedView_.reset();
}

void PlacementPage::showState() {
    const bool any = session_.checkpoint() && !session_.filtered().tensors().empty();
    clearFilter_->setVisible(session_.checkpoint() && session_.filtered().active());
    if (!session_.checkpoint()) {
        emptyLabel_->setText(
            session_.state() == Session::State::opening
                ? tr("Opening…")
                : tr("No checkpoint is open. The map shows which rank holds which shard of which tensor."));
    } else if (!any) {
        emptyLabel_->setText(
            session_.filtered().active()
                ? tr("0 of %1 tensors pass the filter.").arg(numberText(session_.catalog().tensorCount()))
                : tr("This checkpoint holds no tensors."));
    }
    stack_->setCurrentIndex(any ? 0 : 1);
    if (any && !map_->matrix()) cellLabel_->setWhole(tr("Computing the placement…"));
}

// ------------------------------------------------------------------ selection

void PlacementPage::follow(const Selected& now) {
    if (!map_->matrix() || map_->matrix()->checkpoint() != session_.checkpoint()) return;
    const PlacementMatrix& matrix = *map_->matrix();
    map_->setSelectedRanks(now.ranks);
    if (applying_) return;
    TensorId tensor = now.tensor;
    if (tensor == kNone && !now.module.isEmpty()) {
        // A module stands for the first of its tensors.
        const ModuleTree& tree = *session_.filtered().tree();
        const ModuleTree::Node node = tree.find(now.module.toStdString());
        if (node != ModuleTree::kRoot && tree.tensorCount(node) > 0)
            tensor = tree.order()[tree.range(node).first];
    }
    const uint32_t row = tensor == kNone ? kNone : matrix.rowOf(tensor);
    if (row != kNone) {
        const PlacementMap::Cell current = map_->current();
        uint32_t column = now.ranks.empty() ? kNone : matrix.columnOf(now.ranks.front());
        if (column == kNone && current.valid()) column = current.column;
        if (column == kNone) {
            const RowDetail detail = matrix.detail(row);
            column = detail.cells.empty() ? 0 : detail.cells.front().column;
        }
        map_->setCurrent({row, column});
    }
    describeCell();
    if (now.chunk != kNone && tablePane_->isVisible()) {
        if (const int at = chunks_->rowOf(now.chunk); at >= 0) showRow(*table_, at);
    }
}

void PlacementPage::cellTaken(uint32_t row, uint32_t column) {
    const PlacementMatrix& matrix = *map_->matrix();
    const QScopedValueRollback applying(applying_, true);
    Selection& selection = session_.selection();
    // Folded rows stand for several tensors: the one that is selected may stay.
    TensorId tensor = matrix.row(row).tensor;
    // A sum shows the worst that it has there.
    if (matrix.row(row).summary && column < matrix.columnCount()) {
        const RowDetail sum = matrix.detail(row);
        if (const MatrixCell* cell = sum.at(column)) tensor = matrix.catalog().tensorOf(cell->chunk);
    } else if (matrix.rowOf(selection.current().tensor) == row)
        tensor = selection.current().tensor;
    if (column >= matrix.columnCount()) {
        selection.selectTensor(tensor);
    } else {
        ChunkId chunk = kNone;
        const uint32_t rank = matrix.column(column).rank;
        const Catalog& catalog = matrix.catalog();
        for (ChunkId c = catalog.firstChunk(tensor); c < catalog.endChunk(tensor) && chunk == kNone; ++c) {
            const uint32_t of = catalog.chunk(tensor, c).rank;
            if ((of == kNone ? 0 : of) == rank) chunk = c;
        }
        selection.selectCell(tensor, rank, chunk);
    }
    describeCell();
}

void PlacementPage::openCell(uint32_t row, uint32_t column) {
    if (const MatrixRow& of = map_->matrix()->row(row); of.summary) {
        const MatrixGroup& group = map_->matrix()->group(of.group);
        open_[group.key] = !group.open;
        invalidate();
        return;
    }
    cellTaken(row, column);
    session_.selection().setPage(Page::tensor);
}

void PlacementPage::pickColumn(uint32_t column, bool add) {
    std::vector<uint32_t> ranks = map_->matrix()->column(column).ranks;
    if (add) {
        const std::vector<uint32_t>& before = session_.selection().current().ranks;
        const bool there = std::find(before.begin(), before.end(), ranks.front()) != before.end();
        std::vector<uint32_t> all = before;
        for (const uint32_t rank : ranks) {
            std::erase(all, rank);
            if (!there) all.push_back(rank);
        }
        ranks = std::move(all);
    }
    const QScopedValueRollback applying(applying_, true);
    session_.selection().selectRanks(std::move(ranks));
}

void PlacementPage::describeCell() {
    QString text = map_->currentText();
    cellLabel_->setToolTip(text.isEmpty() ? QString()
                                          : QStringLiteral("<qt>%1</qt>").arg(text.toHtmlEscaped()));
    if (text.isEmpty() && map_->matrix()) {
        const PlacementMatrix& matrix = *map_->matrix();
        text = tr("Tensors: %1, rows: %2, ranks: %3, columns: %4. Click a cell, or use the arrow keys.")
                   .arg(numberText(session_.filtered().tensors().size()), numberText(matrix.rowCount()),
                        numberText(session_.catalog().rankCount()), numberText(matrix.columnCount()));
        if (!matrix.lanes().empty())
            text += countedText(matrix.lanes().size(), tr(" 1 lane of an expert."),
                                tr(" %1 lanes of experts, named at the left edge."));
        if (matrix.columnCount() == 1)
            text += tr(" All is on one rank; the Files page shows which file holds what.");
    }
    cellLabel_->setWhole(text);
}

// The sum of a pinned group stands at the top and in its place.
bool PlacementPage::isPinned(uint32_t row) const {
    const PlacementMatrix& matrix = *map_->matrix();
    if (row < matrix.pinnedCount()) return true;
    const MatrixRow& of = matrix.row(row);
    return of.summary && std::ranges::count(pinnedGroups_, matrix.group(of.group).key) > 0;
}

// Whichever tensor of the row was pinned, the row goes.
void PlacementPage::togglePin(uint32_t row) {
    if (!map_->matrix()) return;
    const PlacementMatrix& matrix = *map_->matrix();
    if (matrix.row(row).summary) {
        const std::string& key = matrix.group(matrix.row(row).group).key;
        if (std::erase(pinnedGroups_, key) == 0) pinnedGroups_.push_back(key);
    } else if (row < matrix.pinnedCount()) {
        for (const TensorId t : matrix.members(row))
            std::erase(pinned_, t);
    } else {
        pinned_.push_back(matrix.row(row).tensor);
    }
    invalidate();
}

// ------------------------------------------------------------------ table twin

void PlacementPage::showTable(bool on) {
    tablePane_->setVisible(on);
    if (on) {
        fillTable();
    } else {
        tableTicket_.drop();
        chunks_->clear();
        map_->clearRegion();
    }
}

void PlacementPage::fillTable() {
    tableTicket_.drop();
    if (!asTable_->isChecked() || !map_->matrix()) return;
    QRect cells = map_->region();
    const bool whole = cells.isEmpty();
    const auto matrix = map_->matrix();
    if (whole)
        cells = QRect(0, 0, static_cast<int>(matrix->columnCount()), static_cast<int>(matrix->rowCount()));
    tableLabel_->setText(tr("Listing chunks…"));
    tableTicket_ = session_.tasks().run<std::vector<ChunkId>>(
        Work::query, tr("Listing chunks"),
        [matrix, cells](const TaskContext& context) -> Result<std::vector<ChunkId>> {
            auto chunks = matrix->chunksIn(
                static_cast<uint32_t>(cells.top()), static_cast<uint32_t>(cells.bottom()) + 1,
                static_cast<uint32_t>(cells.left()), static_cast<uint32_t>(cells.right()) + 1, context.stop);
            SHARDSCOPE_TRY(context.stop.poll());
            return chunks;
        },
        [this, whole, cells](Result<std::vector<ChunkId>> answer) {
            if (!answer.ok()) return;
            const QString chunks = countedText(answer->size(), tr("1 chunk"), tr("%1 chunks"));
            const auto size = [](int length) { return numberText(static_cast<uint64_t>(length)); };
            tableLabel_->setText(whole ? tr("%1 of all rows and ranks").arg(chunks)
                                       : tr("%1 in the region of %2 × %3 cells")
                                             .arg(chunks, size(cells.height()), size(cells.width())));
            chunks_->setChunks(std::move(answer).value());
        });
}

void PlacementPage::tableRowChosen(int row) {
    const ChunkInfo chunk = session_.catalog().chunk(chunks_->chunk(row));
    session_.selection().selectChunk(chunk.tensor, chunk.id, chunk.rank, chunk.file);
}

// ------------------------------------------------------------------ menu

void PlacementPage::showMenu(const QPoint& position) {
    auto* menu = new QMenu(this);
    menu->setAttribute(Qt::WA_DeleteOnClose);
    const PlacementMap::Cell cell = map_->current();
    if (map_->matrix() && cell.valid()) {
        const Catalog& catalog = session_.catalog();
        const MatrixRow& row = map_->matrix()->row(cell.row);
        const RowDetail detail = map_->matrix()->detail(cell.row);
        const MatrixCell* held = detail.at(cell.column);
        const TensorId tensor = held && held->chunk != kNone ? catalog.tensorOf(held->chunk) : row.tensor;
        const QString name = QString::fromUtf8(catalog.name(tensor).data(),
                                               static_cast<qsizetype>(catalog.name(tensor).size()));
        menu->addAction(!row.summary                            ? tr("Open the tensor")
                        : map_->matrix()->group(row.group).open ? tr("Close the group")
                                                                : tr("Open the group"),
                        this, [this, cell] { openCell(cell.row, cell.column); });
        menu->addAction(isPinned(cell.row) ? tr("Unpin the row") : tr("Pin the row to the top"), this,
                        [this, cell] { togglePin(cell.row); });
        menu->addSeparator();
        menu->addAction(tr("Copy tensor name"), this, [name] { copyText(name); });
        menu->addAction(tr("Copy what the cell says"), this,
                        [text = map_->currentText()] { copyText(text); });
        if (held && held->chunk != kNone) {
            const ChunkInfo chunk = catalog.chunk(tensor, held->chunk);
            if (chunk.file != kNone) {
                const QString path = session_.filePath(catalog.files()[chunk.file].path);
                menu->addAction(tr("Copy file path"), this, [path] { copyText(path); });
                menu->addAction(tr("Copy byte range"), this, [chunk] {
                    copyText(QStringLiteral("%1-%2").arg(chunk.offset).arg(chunk.offset + chunk.length));
                });
                menu->addAction(tr("Show the file"), this, [this, file = chunk.file] {
                    session_.selection().selectFile(file);
                    session_.selection().setPage(Page::files);
                });
            }
        }
        menu->addSeparator();
    }
    menu->addAction(tr("Show as table"), this, [this] { asTable_->setChecked(true); });
    menu->addSeparator();
    Exports exports{QStringLiteral("placement"), map_->viewport(), nullptr};
    if (asTable_->isChecked()) exports.rows = [this] { return chunks_; };
    addExportActions(*menu, exports, this);
    menu->popup(position);
}

}  // namespace shardscope::ui
