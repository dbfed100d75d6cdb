#include "ui/pages/tree_panel.h"

#include <QHeaderView>
#include <QLabel>
#include <QLineEdit>
#include <QMenu>
#include <QPushButton>
#include <QStackedWidget>
#include <QTreeView>
#include <QVBoxLayout>
#include <functional>

#include "ui/models/texts.h"
#include "ui/widgets/building.h"
#include "ui/widgets/card.h"
#include "ui/widgets/exporting.h"
#include "ui/widgets/health_delegate.h"

namespace shardscope::ui {

namespace {

constexpr int kMostRemembered = 500;

}  // namespace

TreePanel::TreePanel(Session& session, QWidget* parent) : QWidget(parent), session_(session) {
    auto* layout = layoutOf<QVBoxLayout>(this, {6, 6, 6, 6}, 6);
    filter_ = withName(new QLineEdit(this), tr("Filter"), QStringLiteral("filter"));
    filter_->setPlaceholderText(tr("Filter: words, dtype:bf16, rank:0-7, status:bad, size>1GiB…"));
    filter_->setClearButtonEnabled(true);
    filter_->setToolTip(
        tr("Words must all occur in the name. Tokens:\n"
           "name:GLOB  name:~REGEX  dtype:bf16,fp32  rank:0-7  file:GLOB\n"
           "status:ok|unread|nan|differs|overlap|missing|gap|bad  size>1GiB  size<4KB  role:optimizer\n"
           "-TOKEN means the opposite."));
    layout->addWidget(filter_);
    count_ = withName(new QLabel(this), tr("Result of the filter"));
    count_->setWordWrap(true);
    layout->addWidget(count_);

    stack_ = new QStackedWidget(this);
    makeTree();
    makeNothing();
    layout->addWidget(stack_, 1);
    follow();
    showCount();
}

void TreePanel::makeTree() {
    view_ = new QTreeView(stack_);
    view_->setObjectName(QStringLiteral("tensors"));
    dressTree(*view_, tr("Modules and tensors"), false);
    model_ = new TensorTreeModel(session_, this);
    view_->setModel(model_);
    view_->setIndentation(10);
    view_->setItemDelegateForColumn(TensorTreeModel::health,
                                    new HealthDelegate(TensorTreeModel::HealthRole, view_));
    makeColumns();
    stack_->addWidget(view_);
}

void TreePanel::makeColumns() {
    QHeaderView* header = view_->header();
    header->setStretchLastSection(false);
    header->setSectionResizeMode(TensorTreeModel::name, QHeaderView::Stretch);
    header->setMinimumSectionSize(48);
    header->resizeSection(TensorTreeModel::dtype, 70);
    header->resizeSection(TensorTreeModel::shape, 100);
    header->resizeSection(TensorTreeModel::bytes, 80);
    header->resizeSection(TensorTreeModel::cut, 110);
    // Room for the mark; its words are in the tooltip and in Details, and here once the column is widened.
    header->resizeSection(TensorTreeModel::health, 52);
    header->setContextMenuPolicy(Qt::ActionsContextMenu);
    for (int column = 1; column < TensorTreeModel::columnCountValue; ++column) {
        auto* action =
            new QAction(model_->headerData(column, Qt::Horizontal, Qt::DisplayRole).toString(), header);
        action->setCheckable(true);
        // The details pane says the rest; the tree stays narrow.
        const bool shown = column == TensorTreeModel::bytes || column == TensorTreeModel::health;
        action->setChecked(shown);
        view_->setColumnHidden(column, !shown);
        connect(action, &QAction::toggled, view_,
                [this, column](bool on) { view_->setColumnHidden(column, !on); });
        header->addAction(action);
    }
}

// In place of a tree without rows.
void TreePanel::makeNothing() {
    auto* nothing = new QWidget(stack_);
    auto* layout = new QVBoxLayout(nothing);
    none_ = new QLabel(nothing);
    none_->setWordWrap(true);
    none_->setAlignment(Qt::AlignCenter);
    auto* clear = new QPushButton(tr("Clear the filter"), nothing);
    connect(clear, &QPushButton::clicked, filter_, &QLineEdit::clear);
    layout->addStretch(1);
    layout->addWidget(none_);
    layout->addWidget(clear, 0, Qt::AlignHCenter);
    layout->addStretch(2);
    stack_->addWidget(nothing);
}

void TreePanel::follow() {
    connect(filter_, &QLineEdit::textChanged, this, [this](const QString& text) {
        if (!following_) session_.selection().setFilter(text);
    });
    connect(filter_, &QLineEdit::returnPressed, this, [this] { view_->setFocus(); });
    connect(view_->selectionModel(), &QItemSelectionModel::currentChanged, this, &TreePanel::select);
    connect(view_, &QTreeView::activated, this, [this](const QModelIndex& index) {
        if (model_->tensor(index) != kNone) session_.selection().setPage(Page::tensor);
        if (model_->object(index) != kNone || model_->holdsObjects(index))
            session_.selection().setPage(Page::objects);
    });
    offerMenu(view_, [this](QMenu& menu, const QPoint& at) { fillMenu(menu, view_->indexAt(at)); });
    connect(model_, &QAbstractItemModel::modelAboutToBeReset, this, &TreePanel::rememberExpanded);
    connect(model_, &QAbstractItemModel::modelReset, this, [this] {
        restoreExpanded();
        showCount();
        showSelection();
    });
    connect(&session_.selection(), &Selection::changed, this, &TreePanel::showSelection);
    connect(&session_, &Session::visibleChanged, this, &TreePanel::showCount);
    connect(&session_, &Session::factsChanged, this, [this] {
        showCount();
        // Rows at every depth show another state now.
        view_->viewport()->update();
    });
}

void TreePanel::select(const QModelIndex& now) {
    if (following_ || !now.isValid()) return;
    const TensorId t = model_->tensor(now);
    if (const ObjectId o = model_->object(now); o != kNone)
        session_.selection().selectObject(o);
    else if (t != kNone)
        session_.selection().selectTensor(t);
    else if (model_->notTaken(now))
        session_.selection().selectModule({});
    else
        session_.selection().selectModule(model_->fullName(now));
}

void TreePanel::rememberExpanded() {
    if (!shown_ || session_.checkpoint() != shown_) {
        expanded_.clear();
        objectsOpen_ = false;
        return;
    }
    QStringList expanded;
    objectsOpen_ = false;
    const std::function<void(const QModelIndex&)> walk = [&](const QModelIndex& parent) {
        for (int row = 0; row < model_->rowCount(parent) && expanded.size() < kMostRemembered; ++row) {
            const QModelIndex index = model_->index(row, 0, parent);
            if (!view_->isExpanded(index)) continue;
            if (model_->holdsObjects(index)) {
                objectsOpen_ = true;
                continue;
            }
            expanded += model_->fullName(index);
            walk(index);
        }
    };
    walk({});
    // A filtered tree is opened by itself; what the whole tree had open is what counts.
    if (!expanded.isEmpty()) expanded_ = expanded;
}

void TreePanel::restoreExpanded() {
    shown_ = session_.checkpoint();
    if (!shown_) return;
    if (session_.filtered().active() && session_.filtered().tensors().size() <= 200) {
        view_->expandAll();
        return;
    }
    if (const QModelIndex last = model_->index(model_->rowCount() - 1, 0);
        objectsOpen_ && model_->holdsObjects(last))
        view_->setExpanded(last, true);
    if (expanded_.isEmpty()) {
        openUntilItBranches();
        return;
    }
    for (const QString& name : expanded_) {
        const QModelIndex index = model_->indexOfModule(name);
        if (index.isValid() && model_->hasChildren(index)) view_->setExpanded(index, true);
    }
}

// Opens "model", "model.layers", ... as long as there is but one way to go.
void TreePanel::openUntilItBranches() {
    QModelIndex parent;
    for (int depth = 0; depth < 6; ++depth) {
        int rows = model_->rowCount(parent);
        if (rows > 0 && model_->holdsObjects(model_->index(rows - 1, 0, parent))) --rows;
        if (rows == 0 || rows > 3) return;
        QModelIndex next;
        for (int row = 0; row < rows; ++row) {
            const QModelIndex index = model_->index(row, 0, parent);
            if (!model_->hasChildren(index)) continue;
            view_->setExpanded(index, true);
            if (!next.isValid()) next = index;
        }
        parent = next;
        if (!parent.isValid()) return;
    }
}

void TreePanel::showCount() {
    const FilteredTensors& filtered = session_.filtered();
    const size_t all = session_.checkpoint() ? session_.catalog().tensorCount() : 0;
    const bool none =
        session_.checkpoint() && filtered.active() && filtered.tensors().empty() && model_->rowCount() == 0;
    const QModelIndex last = model_->index(model_->rowCount() - 1, 0);
    const auto objects = static_cast<uint64_t>(model_->holdsObjects(last) ? model_->rowCount(last) : 0);
    stack_->setCurrentIndex(none ? 1 : 0);
    none_->setText(
        tr("0 of %1 tensors match “%2”.").arg(numberText(all), session_.selection().current().filter));
    if (!filtered.error().isEmpty())
        count_->setText(filtered.error());
    else if (filtered.active())
        count_->setText(
            tr("%1 of %2 tensors").arg(numberText(filtered.tensors().size()), numberText(all)) +
            (objects ? tr(", %1").arg(countedText(objects, tr("1 object"), tr("%1 objects"))) : QString()));
    count_->setVisible(!filtered.error().isEmpty() || filtered.active());
}

void TreePanel::showSelection() {
    const Selected& now = session_.selection().current();
    following_ = true;
    if (filter_->text() != now.filter) filter_->setText(now.filter);
    const QModelIndex wanted = now.tensor != kNone     ? model_->indexOf(now.tensor)
                               : !now.module.isEmpty() ? model_->indexOfModule(now.module)
                               : now.object != kNone   ? model_->indexOfObject(now.object)
                                                       : QModelIndex();
    if (wanted.isValid() && (view_->currentIndex().row() != wanted.row() ||
                             view_->currentIndex().internalId() != wanted.internalId())) {
        view_->setCurrentIndex(wanted);
        view_->scrollTo(wanted);
    } else if (!wanted.isValid() && !model_->holdsObjects(view_->currentIndex()) &&
               !model_->notTaken(view_->currentIndex())) {
        view_->setCurrentIndex({});
    }
    following_ = false;
}

void TreePanel::fillMenu(QMenu& menu, const QModelIndex& index) {
    if (index.isValid()) {
        const QString name = model_->fullName(index);
        const TensorId t = model_->tensor(index);
        if (t != kNone) {
            menu.addAction(tr("Show the tensor"), this, [this, t] {
                session_.selection().selectTensor(t);
                session_.selection().setPage(Page::tensor);
            });
        } else if (model_->object(index) != kNone || model_->holdsObjects(index)) {
            menu.addAction(tr("Show the value"), this, [this, o = model_->object(index)] {
                if (o != kNone) session_.selection().selectObject(o);
                session_.selection().setPage(Page::objects);
            });
        } else if (model_->notTaken(index)) {
            menu.addAction(tr("Show what was noticed"), this,
                           [this] { session_.selection().setPage(Page::overview); });
        } else {
            menu.addAction(tr("Show only this module"), this,
                           [this, name] { session_.selection().setFilter("name:" + name + ".*"); });
        }
        if (model_->object(index) == kNone && !model_->holdsObjects(index) && !model_->notTaken(index))
            menu.addAction(tr("Show in the placement map"), this,
                           [this] { session_.selection().setPage(Page::placement); });
        menu.addSeparator();
        if (!name.isEmpty()) addCopyAction(menu, tr("Copy name"), name);
        if (t != kNone) {
            addCopyAction(menu, tr("Copy Python that loads it"),
                          pythonSnippet(session_.path(), session_.directory(), session_.catalog(), t));
            addCopyAction(menu, tr("Copy command that shows it"), session_.command("show", {name}));
        }
        menu.addSeparator();
    }
    addExportActions(menu, {QStringLiteral("tensors"), nullptr, [this] { return model_; }}, this);
}

}  // namespace shardscope::ui
