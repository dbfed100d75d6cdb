#include "ui/pages/tensor_page.h"

#include <QCheckBox>
#include <QComboBox>
#include <QGridLayout>
#include <QHBoxLayout>
#include <QHeaderView>
#include <QLabel>
#include <QLineEdit>
#include <QMenu>
#include <QPainter>
#include <QScopedValueRollback>
#include <QScrollArea>
#include <QSlider>
#include <QSpinBox>
#include <QSplitter>
#include <QStackedWidget>
#include <QTabBar>
#include <QTabWidget>
#include <QTableView>
#include <algorithm>
#include <set>

#include "plan/request_text.h"
#include "ui/models/chunk_table_model.h"
#include "ui/models/texts.h"
#include "ui/pages/values_pane.h"
#include "ui/widgets/building.h"
#include "ui/widgets/card.h"
#include "ui/widgets/exporting.h"
#include "ui/widgets/labels.h"
#include "ui/widgets/legend.h"
#include "ui/widgets/tensor_box.h"
#include "ui/widgets/theme.h"

namespace shardscope::ui {

namespace {

constexpr ChunkId kAtOnce = 4000;          // chunks whose scene is made without leaving the GUI thread
constexpr int kSliderRows = 2;             // that are in view without scrolling
constexpr int64_t kLargestGhost = 65'536;  // ranks of a target mesh that are drawn

// Of what is drawn, and of nothing else.
std::vector<Legend::Entry> legendEntries(const BoxScene* scene, bool target) {
    std::vector<Legend::Entry> entries;
    if (!scene) return entries;
    bool behind = false;
    std::set<Health> states;
    for (const BoxShape& shape : scene->shapes) {
        behind |= shape.count > 1;
        states.insert(shape.kind == BoxShape::Kind::gap       ? Health::gap
                      : shape.kind == BoxShape::Kind::overlap ? Health::overlap
                                                              : shape.health);
    }
    entries.push_back(
        {TensorPage::tr("chunk, in its rank's color"), [](QPainter& painter, const QRectF& rect) {
             painter.fillRect(rect, rankColor(0));
             painter.setPen(outlineColor());
             painter.drawRect(rect.adjusted(0.5, 0.5, -0.5, -0.5));
         }});
    if (behind)
        entries.push_back(
            {TensorPage::tr("×n: replicas, or chunks behind it"), [](QPainter& painter, const QRectF& rect) {
                 painter.setPen(outlineColor());
                 for (const int i : {2, 1, 0}) {
                     const QRectF tile(rect.left() + 3 * i, rect.top() + 4 - 2 * i, rect.width() - 7,
                                       rect.height() - 5);
                     painter.fillRect(tile, rankColor(0));
                     painter.drawRect(tile.adjusted(0.5, 0.5, -0.5, -0.5));
                 }
             }});
    const std::pair<Health, QString> marks[] = {{Health::gap, TensorPage::tr("no chunk holds it")},
                                                {Health::overlap, TensorPage::tr("claimed twice")},
                                                {Health::missing, TensorPage::tr("missing or truncated")},
                                                {Health::differs, TensorPage::tr("replicas differ")},
                                                {Health::nonFinite, TensorPage::tr("NaN or infinite")}};
    for (const auto& [health, text] : marks)
        if (states.contains(health)) entries.push_back(Legend::state(health, text));
    if (target)
        entries.push_back({TensorPage::tr("target sharding"), [](QPainter& painter, const QRectF& rect) {
                               painter.setPen(QPen(accentColor(), 2, Qt::DashLine));
                               painter.setBrush(Qt::NoBrush);
                               painter.drawRect(rect.adjusted(1, 1, -1, -1));
                           }});
    return entries;
}

}  // namespace

TensorPage::TensorPage(Session& session, QWidget* parent) : QWidget(parent), session_(session) {
    setAccessibleName(tr("Tensor"));
    auto* layout = layoutOf<QVBoxLayout>(this, {8, 6, 8, 6});
    stack_ = new QStackedWidget(this);
    auto* content = new QWidget(this);
    auto* column = layoutOf<QVBoxLayout>(content, {0, 0, 0, 0}, 4);
    column->addWidget(makeHead());
    splitter_ = new QSplitter(Qt::Vertical, content);
    splitter_->addWidget(makePicture());
    splitter_->addWidget(makeTabs());
    splitter_->setStretchFactor(0, 3);
    splitter_->setStretchFactor(1, 2);
    splitter_->setChildrenCollapsible(false);
    column->addWidget(splitter_, 1);
    stack_->addWidget(content);
    emptyLabel_ = wrappedLabel(this);
    emptyLabel_->setAlignment(Qt::AlignCenter);
    emptyLabel_->setMargin(40);
    stack_->addWidget(emptyLabel_);
    layout->addWidget(stack_);
    follow();
    showEmptyState();
}

// The tensor's box with what says how it is drawn.
QWidget* TensorPage::makePicture() {
    auto* upper = new QWidget(splitter_);
    auto* column = layoutOf<QVBoxLayout>(upper, {0, 0, 0, 4}, 4);
    column->addWidget(makeControls());
    sliderArea_ = withName(new QScrollArea(upper), tr("Indices of the other dimensions"));
    sliderArea_->setWidgetResizable(true);
    sliderArea_->setFrameShape(QFrame::NoFrame);
    column->addWidget(sliderArea_);
    box_ = new TensorBox(upper);
    column->addWidget(box_, 1);
    boxNote_ = wrappedLabel(upper);
    column->addWidget(boxNote_);
    legend_ = new Legend(upper);
    column->addWidget(legend_);
    return upper;
}

QWidget* TensorPage::makeTabs() {
    tabs_ = withName(new QTabWidget(splitter_), tr("Chunks and values"));
    tabs_->addTab(makeTable(), tr("Chunks"));
    values_ = new ValuesPane(session_, tabs_);
    auto* valuesArea = withName(new QScrollArea(tabs_), tr("Values of the tensor"));
    valuesArea->setWidget(values_);
    valuesArea->setWidgetResizable(true);
    valuesArea->setFrameShape(QFrame::NoFrame);
    tabs_->addTab(valuesArea, tr("Values"));
    connect(tabs_, &QTabWidget::currentChanged, this, &TensorPage::giveValuesRoom);
    return tabs_;
}

void TensorPage::follow() {
    connect(box_, &TensorBox::chunkClicked, this, &TensorPage::chunkTaken);
    connect(box_, &TensorBox::chunkActivated, this, [this](ChunkId chunk) {
        tabs_->setCurrentIndex(0);
        table_->setFocus();
        if (const int row = chunks_->rowOf(chunk); row >= 0) showRow(*table_, row);
    });
    connect(box_, &TensorBox::menuRequested, this,
            [this](const QPoint& at) { popUp(this, at, [this](QMenu& menu) { fillMenu(menu); }); });
    connect(&session_.selection(), &Selection::changed, this,
            [this](const Selected& now, const Selected& before) {
                if (now.tensor != before.tensor || now.module != before.module) {
                    invalidate();
                } else if (now.chunk != before.chunk && tensor_ == now.tensor) {
                    box_->setSelectedChunk(now.chunk);
                    if (const int row = now.chunk == kNone ? -1 : chunks_->rowOf(now.chunk);
                        row >= 0 && !applying_) {
                        const QScopedValueRollback applying(applying_, true);
                        showRow(*table_, row);
                    }
                }
            });
    connect(&session_, &Session::stateChanged, this, [this] {
        // What is shown of another checkpoint goes at once: its numbers mean nothing in this one.
        if (of_ != session_.checkpoint())
            refresh();
        else
            invalidate();
    });
    connect(&session_, &Session::factsChanged, this, &TensorPage::invalidate);
    later_.setSingleShot(true);
    later_.setInterval(0);
    connect(&later_, &QTimer::timeout, this, &TensorPage::refresh);
}

TensorPage::~TensorPage() {
    sceneTicket_.drop();
}

QWidget* TensorPage::makeHead() {
    auto* head = new QWidget(this);
    auto* column = layoutOf<QVBoxLayout>(head, {0, 0, 0, 0}, 1);
    name_ = textBlock(head);
    facts_ = textBlock(head);
    makeBold(name_, 1.15);
    name_->setAccessibleName(tr("Name of the tensor"));
    facts_->setAccessibleName(tr("About the tensor"));
    column->addWidget(name_);
    column->addWidget(facts_);
    return head;
}

QWidget* TensorPage::makeControls() {
    auto* bar = new QWidget(this);
    auto* row = layoutOf<QHBoxLayout>(bar, {0, 2, 0, 0}, 4);
    const auto add = [&](const QString& text, QWidget* widget, const QString& name, const QString& tip) {
        auto* label = new QLabel(text, bar);
        label->setBuddy(widget);
        label->setContentsMargins(0, 0, 2, 0);  // slanted letters reach beyond their width
        widget->setAccessibleName(name);
        widget->setToolTip(tip);
        row->addWidget(label);
        row->addWidget(widget);
    };
    across_ = new QComboBox(bar);
    down_ = new QComboBox(bar);
    for (QComboBox* combo : {across_, down_})
        combo->setSizeAdjustPolicy(QComboBox::AdjustToContents);
    ghostMesh_ = new QLineEdit(bar);
    ghostRule_ = new QLineEdit(bar);
    add(tr("Acr&oss"), across_, tr("Dimension across"), tr("Dimension drawn from left to right"));
    add(tr("&Down"), down_, tr("Dimension down"), tr("Dimension drawn from top to bottom"));
    log_ = new QCheckBox(tr("&Log proportion"), bar);
    log_->setToolTip(tr("Draw the sides by the logarithm of their lengths, for very long or flat tensors"));
    row->addSpacing(4);
    row->addWidget(log_);
    row->addStretch(1);
    ghostMesh_->setPlaceholderText(QStringLiteral("tp=8"));
    ghostRule_->setPlaceholderText(QStringLiteral("tp=0"));
    ghostMesh_->setMaximumWidth(130);
    ghostRule_->setMaximumWidth(110);
    add(tr("&Target"), ghostMesh_, tr("Target mesh"),
        tr("Mesh of a target sharding to draw over the box, such as dp=2,tp=4"));
    add(tr("&shard"), ghostRule_, tr("Target sharding"),
        tr("Axis of the target mesh and the dimension that it shards, such as tp=0; several with commas"));
    ghostNote_ = wrappedLabel(bar);
    auto* column = new QWidget(this);
    auto* both = layoutOf<QVBoxLayout>(column, {0, 0, 0, 0}, 2);
    both->addWidget(bar);
    both->addWidget(ghostNote_);
    ghostNote_->hide();
    connect(across_, &QComboBox::activated, this, [this] { axisChosen(false); });
    connect(down_, &QComboBox::activated, this, [this] { axisChosen(true); });
    connect(log_, &QCheckBox::toggled, this, [this](bool on) { box_->setLogProportion(on); });
    for (QLineEdit* edit : {ghostMesh_, ghostRule_}) {
        edit->setClearButtonEnabled(true);
        connect(edit, &QLineEdit::textChanged, this, &TensorPage::showGhosts);
    }
    return column;
}

// Pictures of values need more room than a table does.
void TensorPage::giveValuesRoom() {
    const QList<int> sizes = splitter_->sizes();
    const int whole = sizes[0] + sizes[1];
    const int wanted = values_->sizeHint().height() + tabs_->tabBar()->height() + 20;
    if (tabs_->currentIndex() != 1 || sizes[1] >= wanted) return;
    const int rest = std::max(splitter_->widget(0)->minimumSizeHint().height(), whole - wanted);
    splitter_->setSizes({rest, whole - rest});
}

QWidget* TensorPage::makeTable() {
    chunks_ = new ChunkTableModel(session_, this);
    table_ = ui::makeTable(chunks_, tr("Chunks of the tensor"), this);
    table_->setFrameShape(QFrame::NoFrame);
    table_->setColumnHidden(ChunkTableModel::tensor, true);
    table_->horizontalHeader()->setMinimumSectionSize(40);
    offerMenu(table_, [this](QMenu& menu, const QPoint&) { fillMenu(menu); });
    connect(table_->selectionModel(), &QItemSelectionModel::currentRowChanged, this,
            [this](const QModelIndex& now) {
                if (now.isValid() && !applying_) chunkTaken(chunks_->chunk(now.row()));
            });
    return table_;
}

// ------------------------------------------------------------------ which tensor

void TensorPage::showEvent(QShowEvent* event) {
    QWidget::showEvent(event);
    if (outdated_) later_.start();
}

void TensorPage::invalidate() {
    outdated_ = true;
    if (isVisible()) later_.start();
}

void TensorPage::refresh() {
    outdated_ = false;
    const TensorId tensor = session_.checkpoint() ? session_.selection().current().tensor : kNone;
    const bool another = tensor != tensor_ || of_ != session_.checkpoint();
    tensor_ = tensor;
    of_ = session_.checkpoint();
    const bool first = tensor != kNone && stack_->currentIndex() != 0;
    stack_->setCurrentIndex(tensor == kNone ? 1 : 0);
    if (first) QTimer::singleShot(0, this, &TensorPage::giveValuesRoom);  // once it is laid out
    if (tensor == kNone) {
        sceneTicket_.drop();
        box_->setScene(nullptr);
        chunks_->clear();
        values_->setTensor(kNone, {});
        showEmptyState();
        return;
    }
    showTitle();
    if (another) {
        view_ = defaultView(session_.catalog().shape(tensor));
        fillAxes();
        chunks_->setTensor(tensor);
        fitColumns(*table_);
        tabs_->setTabText(0, tr("Chunks (%1)").arg(numberText(static_cast<uint64_t>(chunks_->rowCount()))));
        const ChunkId chunk = session_.selection().current().chunk;
        const QScopedValueRollback applying(applying_, true);
        if (const int row = chunk == kNone ? -1 : chunks_->rowOf(chunk); row >= 0) showRow(*table_, row);
    }
    viewChanged();
}

void TensorPage::showEmptyState() {
    stack_->setCurrentIndex(1);
    if (!session_.checkpoint()) {
        emptyLabel_->setText(tr("No checkpoint is open."));
        return;
    }
    const QString module = session_.selection().current().module;
    if (module.isEmpty()) {
        emptyLabel_->setText(
            tr("No tensor is selected.\nChoose one in the tree or on the placement map to see its chunks, "
               "where they are, and its values."));
        return;
    }
    QString text = tr("'%1' is a module.").arg(toQString(module.toStdString()));
    if (const auto& tree = session_.filtered().tree()) {
        if (const ModuleTree::Node node = tree->find(module.toStdString()); node != ModuleTree::kRoot)
            text = tr("'%1' is a module of %2, %3.")
                       .arg(toQString(module.toStdString()),
                            countedText(tree->tensorCount(node), tr("1 tensor"), tr("%1 tensors")),
                            sizeText(tree->bytes(node)));
    }
    emptyLabel_->setText(text + tr("\nChoose one of its tensors in the tree or on the placement map."));
}

void TensorPage::showTitle() {
    const Catalog& catalog = session_.catalog();
    name_->setText(toQString(catalog.name(tensor_)));
    QStringList parts;
    parts += QStringLiteral("%1 %2").arg(toQString(dtypeName(catalog.dtype(tensor_))),
                                         toQString(formatDims(catalog.shape(tensor_))));
    parts += sizeText(catalog.bytes(tensor_));
    parts += toQString(cutText(catalog, tensor_));
    parts += toQString(roleName(catalog.role(tensor_)));
    if (const TensorId alias = catalog.aliasOf(tensor_); alias != kNone)
        parts += tr("the same tensor as '%1'").arg(toQString(catalog.name(alias)));
    if (const uint32_t special = catalog.special(tensor_); special != kNone) {
        const SpecialTensor& of = catalog.specials()[special];
        parts += tr("a part of the %1 tensor '%2', %3 %4")
                     .arg(toQString(of.kind), toQString(of.name), toQString(of.dtype),
                          toQString(formatDims(of.shape)));
    }
    if (session_.facts() && session_.facts()->tensorHealth[tensor_] != Health::ok)
        parts += tr("state: %1").arg(toQString(tensorStateText(*session_.facts(), catalog, tensor_)));
    facts_->setText(parts.join(QStringLiteral("  ·  ")));
}

// ------------------------------------------------------------------ view

void TensorPage::fillAxes() {
    const DimSpan shape = session_.catalog().shape(tensor_);
    for (QComboBox* combo : {across_, down_}) {
        combo->clear();
        for (size_t d = 0; d < shape.size(); ++d)
            combo->addItem(tr("dim %1").arg(d), static_cast<int>(d));
        combo->addItem(tr("none"), -1);
        combo->setEnabled(!shape.empty());
    }
    across_->setCurrentIndex(across_->findData(view_.across));
    down_->setCurrentIndex(down_->findData(view_.down));
    fillSliders();
}

void TensorPage::axisChosen(bool downChanged) {
    const int down = down_->currentData().toInt(), across = across_->currentData().toInt();
    // The same one twice: they change places.
    if (down == across && down >= 0) {
        if (downChanged)
            across_->setCurrentIndex(across_->findData(view_.down));
        else
            down_->setCurrentIndex(down_->findData(view_.across));
    }
    view_.down = down_->currentData().toInt();
    view_.across = across_->currentData().toInt();
    for (const int drawn : {view_.down, view_.across}) {
        if (drawn >= 0) view_.index[static_cast<size_t>(drawn)] = -1;
    }
    fillSliders();
    viewChanged();
}

void TensorPage::fillSliders() {
    const DimSpan shape = session_.catalog().shape(tensor_);
    sliders_ = new QWidget(sliderArea_);
    auto* grid = new QGridLayout(sliders_);
    grid->setContentsMargins(0, 0, 0, 0);
    grid->setVerticalSpacing(2);
    int rows = 0;
    for (size_t d = 0; d < shape.size(); ++d) {
        if (static_cast<int>(d) == view_.down || static_cast<int>(d) == view_.across || shape[d] < 2)
            continue;
        const int last = static_cast<int>(std::min<int64_t>(shape[d] - 1, INT_MAX));
        auto* label = new QLabel(tr("dim %1").arg(d), sliders_);
        auto* slider = new QSlider(Qt::Horizontal, sliders_);
        auto* number = new QSpinBox(sliders_);
        slider->setRange(-1, last);
        slider->setPageStep(std::max(1, last / 16));
        slider->setValue(static_cast<int>(view_.index[d]));
        slider->setAccessibleName(tr("Index along dim %1").arg(d));
        slider->setToolTip(tr("At the left end: all indices of this dimension, one behind the other"));
        number->setRange(-1, last);
        number->setSpecialValueText(tr("all %1").arg(shape[d]));
        number->setValue(static_cast<int>(view_.index[d]));
        number->setAccessibleName(tr("Index along dim %1, as a number").arg(d));
        number->setMinimumWidth(90);
        connect(slider, &QSlider::valueChanged, number, &QSpinBox::setValue);
        connect(number, &QSpinBox::valueChanged, slider, &QSlider::setValue);
        connect(number, &QSpinBox::valueChanged, this, [this, d](int value) {
            view_.index[d] = value;
            viewChanged();
        });
        grid->addWidget(label, rows, 0);
        grid->addWidget(slider, rows, 1);
        grid->addWidget(number, rows, 2);
        ++rows;
    }
    sliderArea_->setWidget(sliders_);
    sliderArea_->setVisible(rows > 0);
    const int row = QSpinBox().sizeHint().height() + 2;
    sliderArea_->setFixedHeight(std::min(rows, kSliderRows) * row);
}

void TensorPage::viewChanged() {
    sceneTicket_.drop();
    values_->setTensor(tensor_, view_);
    const Catalog& catalog = session_.catalog();
    if (catalog.endChunk(tensor_) - catalog.firstChunk(tensor_) <= kAtOnce) {
        showScene(makeBoxScene(session_.checkpoint(), session_.facts(), tensor_, view_));
        return;
    }
    using Answer = std::shared_ptr<const BoxScene>;
    boxNote_->setText(tr("Drawing…"));
    boxNote_->show();
    sceneTicket_ = session_.tasks().run<Answer>(
        Work::query, tr("Drawing a tensor"),
        [checkpoint = session_.checkpoint(), facts = session_.facts(), tensor = tensor_,
         view = view_](const TaskContext& context) -> Result<Answer> {
            Answer scene = makeBoxScene(checkpoint, facts, tensor, view, context.stop);
            if (!scene) return makeError(ErrorCode::cancelled, "canceled");
            return scene;
        },
        [this](Result<Answer> answer) {
            if (answer.ok()) showScene(std::move(answer).value());
        });
}

void TensorPage::showScene(std::shared_ptr<const BoxScene> scene) {
    QStringList notes;
    if (scene->shapes.empty() && scene->members.empty() && scene->hiddenChunks == 0)
        notes += scene->emptyChunks ? tr("This tensor has no elements.")
                                    : tr("No chunk of this tensor is stored.");
    if (scene->hiddenChunks > 0)
        notes += countedText(scene->hiddenChunks, tr("1 chunk is outside of the chosen indices."),
                             tr("%1 chunks are outside of the chosen indices."));
    if (scene->emptyChunks > 0 && !scene->shapes.empty())
        notes += countedText(scene->emptyChunks, tr("1 chunk is empty."), tr("%1 chunks are empty."));
    box_->setScene(std::move(scene));
    box_->setSelectedChunk(session_.selection().current().chunk);
    if (!box_->inProportion() && !log_->isChecked()) notes += tr("Not to scale: the short side is widened.");
    boxNote_->setText(notes.join(' '));
    boxNote_->setVisible(!notes.isEmpty());
    showGhosts();
}

// ------------------------------------------------------------------ target sharding

void TensorPage::showGhosts() {
    const QString meshText = ghostMesh_->text().trimmed(), ruleText = ghostRule_->text().trimmed();
    const auto note = [this](const QString& text) {
        ghostNote_->setText(text);
        ghostNote_->setVisible(!text.isEmpty());
    };
    box_->setGhosts({}, {});
    legend_->setEntries(legendEntries(box_->scene().get(), false));
    if (meshText.isEmpty() || tensor_ == kNone) {
        note(ruleText.isEmpty() || tensor_ == kNone ? QString()
                                                    : tr("Enter a target mesh as well, such as tp=8."));
        return;
    }
    const auto fail = [&](const Error& error) { note(tr("Target: %1").arg(toQString(error.message))); };
    auto mesh = parseMesh(meshText.toStdString());
    if (!mesh.ok()) return fail(mesh.error());
    if (mesh->ranks() > kLargestGhost)
        return note(tr("Target: a mesh of %1 ranks is not drawn.")
                        .arg(numberText(static_cast<uint64_t>(mesh->ranks()))));
    TargetRequest request;
    request.mesh = *mesh;
    if (!ruleText.isEmpty()) {
        auto rule = parseShardRule("*:" + ruleText.toStdString());
        if (!rule.ok()) return fail(rule.error());
        request.shard.push_back(std::move(rule).value());
    }
    const Catalog& catalog = session_.catalog();
    const DimSpan shape = catalog.shape(tensor_);
    for (const ShardRule& rule : request.shard) {
        for (const auto& [axis, dim] : rule.axisDims) {
            if (dim < -static_cast<int>(shape.size()) || dim >= static_cast<int>(shape.size()))
                return note(tr("Target: this tensor has no dimension %1.").arg(dim));
        }
    }
    auto placer = Placer::make(*mesh, request);
    if (!placer.ok()) return fail(placer.error());
    const std::vector<PlacedBox> boxes = placer->place(catalog.name(tensor_), catalog.dtype(tensor_), shape);
    std::vector<BoxShape> ghosts = ghostShapes(boxes, shape, view_);
    std::vector<QString> labels;
    for (const BoxShape& ghost : ghosts)
        labels.push_back(toQString(rankLabel(*mesh, ghost.rank)));
    note(ruleText.isEmpty()
             ? tr("Target: whole on one rank. Name an axis and the dimension that it shards, such as tp=0.")
             : countedText(boxes.size(), tr("Target: 1 shard"), tr("Target: %1 shards")));
    box_->setGhosts(std::move(ghosts), std::move(labels));
    legend_->setEntries(legendEntries(box_->scene().get(), true));
}

// ------------------------------------------------------------------ chunks

void TensorPage::chunkTaken(ChunkId id) {
    const ChunkInfo chunk = session_.catalog().chunk(tensor_, id);
    const QScopedValueRollback applying(applying_, true);
    session_.selection().selectChunk(tensor_, id, chunk.rank, chunk.file);
    box_->setSelectedChunk(id);
    if (const int row = chunks_->rowOf(id); row >= 0 && row != table_->currentIndex().row())
        showRow(*table_, row);
}

void TensorPage::fillMenu(QMenu& menu) {
    if (tensor_ == kNone) return;
    const Catalog& catalog = session_.catalog();
    const QString name = QString::fromStdString(std::string(catalog.name(tensor_)));
    addCopyAction(menu, tr("Copy tensor name"), name);
    addCopyAction(menu, tr("Copy as Python"),
                  pythonSnippet(session_.path(), session_.directory(), catalog, tensor_));
    const ChunkId selected = session_.selection().current().chunk;
    if (selected >= catalog.firstChunk(tensor_) && selected < catalog.endChunk(tensor_)) {
        const ChunkInfo chunk = catalog.chunk(tensor_, selected);
        menu.addSeparator();
        addCopyAction(menu, tr("Copy the chunk's place"), toQString(chunkText(chunk)));
        if (chunk.file != kNone) {
            addCopyAction(menu, tr("Copy file path"), session_.filePath(catalog.files()[chunk.file].path));
            addCopyAction(menu, tr("Copy byte range"),
                          QStringLiteral("%1-%2").arg(chunk.offset).arg(chunk.offset + chunk.length));
            menu.addAction(tr("Show the file"), this, [this, file = chunk.file] {
                session_.selection().selectFile(file);
                session_.selection().setPage(Page::files);
            });
        }
    }
    menu.addSeparator();
    menu.addAction(tr("Show on the placement map"), this,
                   [this] { session_.selection().setPage(Page::placement); });
    menu.addSeparator();
    addExportActions(menu, {name, box_, [this] { return chunks_; }}, this);
}

}  // namespace shardscope::ui
