#include "ui/pages/objects_page.h"

#include <QHeaderView>
#include <QKeyEvent>
#include <QLabel>
#include <QLineEdit>
#include <QMenu>
#include <QPushButton>
#include <QShortcut>
#include <QSplitter>
#include <QStackedWidget>
#include <QTableView>
#include <QToolButton>
#include <QTreeView>
#include <QVBoxLayout>
#include <algorithm>

#include "ui/models/texts.h"
#include "ui/widgets/banner.h"
#include "ui/widgets/building.h"
#include "ui/widgets/card.h"
#include "ui/widgets/exporting.h"
#include "ui/widgets/file_dialog.h"
#include "ui/widgets/labels.h"

namespace shardscope::ui {

namespace {
constexpr int kObjectSpacing = 8;
constexpr int kWidestName = 250;  // pixels
constexpr size_t kMostFound = 1000;
constexpr size_t kMostCopied = 1 << 20;  // bytes of text
constexpr int kMostOpenedBelow = 5000;
constexpr int kMostOpened = 60;  // entries of a small value that are opened at once
}  // namespace

ObjectsPage::ObjectsPage(Session& session, QWidget* parent)
    : QWidget(parent),
      session_(session),
      objects_(new ObjectTableModel(session, this)),
      model_(new ValueTreeModel(this)) {
    setAccessibleName(tr("Objects"));
    auto* layout =
        layoutOf<QVBoxLayout>(this, {kObjectSpacing, kObjectSpacing, kObjectSpacing, kObjectSpacing});
    makeObjects();
    makeValues();
    auto* splitter = new QSplitter(Qt::Horizontal, this);
    splitter->addWidget(objectPanel_);
    splitter->addWidget(valuePanel_);
    splitter->setStretchFactor(0, 2);
    splitter->setStretchFactor(1, 3);
    splitter->setChildrenCollapsible(false);
    splitter->setSizes({500, 600});
    layout->addWidget(splitter, 1);
    connect(&session_, &Session::stateChanged, this, &ObjectsPage::refresh);
    connect(&session_.selection(), &Selection::changed, this, &ObjectsPage::refresh);
    if (objects_->rowCount() > 0) {
        fitObjects();
    }
    refresh();
}

ObjectsPage::~ObjectsPage() {
    readTicket_.drop();
    findTicket_.drop();
}

void ObjectsPage::makeObjects() {
    objectPanel_ = new Panel(tr("Objects"), this);
    table_ = ui::makeTable(objects_, tr("Objects"), objectPanel_);
    table_->setSortingEnabled(false);
    table_->setSelectionMode(QAbstractItemView::SingleSelection);
    table_->setItemDelegate(new NameDelegate(table_));
    table_->horizontalHeader()->setStretchLastSection(false);
    table_->horizontalHeader()->setSectionResizeMode(ObjectTableModel::valueColumn, QHeaderView::Stretch);
    filter_ = withName(new QLineEdit(objectPanel_), tr("Filter objects by name"));
    filter_->setPlaceholderText(tr("Filter by name"));
    filter_->setClearButtonEnabled(true);
    objectPanel_->addToTitle(filter_);
    objectPanel_->setView(table_);
    objectPanel_->setExports({QStringLiteral("objects"), nullptr, [this] { return objects_; }});
    objectPanel_->setMenuBuilder([this](QMenu& menu) {
        if (object_ == kNone) return;
        const QString name = toQString(session_.catalog().objects()[object_].name);
        addCopyAction(menu, tr("Copy name"), name);
        addCopyAction(menu, tr("Copy command that lists objects"), session_.command("ls", {"--objects"}));
    });
    connect(objects_, &QAbstractItemModel::modelReset, this, [this] {
        if (fitted_ == session_.checkpoint() || objects_->rowCount() == 0) return;
        fitObjects();
    });
    connect(filter_, &QLineEdit::textChanged, this, [this](const QString& text) {
        objects_->setFilter(text);
        refresh();
    });
    connect(table_->selectionModel(), &QItemSelectionModel::currentRowChanged, this,
            [this](const QModelIndex& now) {
                if (now.isValid() && !following_)
                    session_.selection().selectObject(objects_->object(now.row()));
            });
}

// Long names leave room for what is said of them.
void ObjectsPage::fitObjects() {
    fitted_ = session_.checkpoint();
    fitColumns(*table_);
    table_->setColumnWidth(ObjectTableModel::nameColumn,
                           std::min(table_->columnWidth(ObjectTableModel::nameColumn), kWidestName));
}

void ObjectsPage::makeValues() {
    valuePanel_ = new Panel(tr("Value"), this);
    auto* inner = new QWidget(valuePanel_);
    auto* column = layoutOf<QVBoxLayout>(inner, {0, 0, 0, 0}, 6);
    title_ = textBlock(inner);
    title_->setAccessibleName(tr("Chosen object"));
    auto* line = new QHBoxLayout;
    search_ = withName(new QLineEdit(inner), tr("Search in the value"));
    search_->setPlaceholderText(tr("Search names and values"));
    search_->setClearButtonEnabled(true);
    search_->setToolTip(tr("Enter goes to the next match, Shift+Enter to the previous one"));
    found_ = withName(new QLabel(inner), tr("What the search found"));
    const auto button = [&](const QString& text, const QString& name, bool forward) {
        auto* b = new QToolButton(inner);
        b->setText(text);
        b->setAccessibleName(name);
        b->setToolTip(name);
        connect(b, &QToolButton::clicked, this, [this, forward] { findNext(forward); });
        return b;
    };
    line->addWidget(search_, 1);
    line->addWidget(button(QStringLiteral("↑"), tr("Previous match"), false));
    line->addWidget(button(QStringLiteral("↓"), tr("Next place"), true));
    line->addWidget(found_);
    tree_ = new QTreeView(inner);
    tree_->setObjectName(QStringLiteral("value"));
    tree_->setModel(model_);
    dressTree(*tree_, tr("Value of the object"), false);
    tree_->setTextElideMode(Qt::ElideRight);
    tree_->header()->resizeSection(ValueTreeModel::nameColumn, 180);
    tree_->header()->resizeSection(ValueTreeModel::typeColumn, 110);
    tree_->header()->setStretchLastSection(true);
    offerMenu(tree_, [this](QMenu& menu, const QPoint&) { fillValueMenu(menu); });
    message_ = wrappedLabel(inner);
    message_->setAlignment(Qt::AlignCenter);
    message_->setAccessibleName(tr("Why no value is shown"));
    stack_ = new QStackedWidget(inner);
    stack_->addWidget(message_);
    stack_->addWidget(tree_);
    column->addWidget(title_);
    column->addLayout(line);
    column->addWidget(stack_, 1);
    valuePanel_->setView(inner);
    valuePanel_->setMenuBuilder([this](QMenu& menu) { fillValueMenu(menu); });
    connect(search_, &QLineEdit::returnPressed, this, [this] { findNext(true); });
    auto* previous = new QShortcut(QKeySequence(Qt::SHIFT | Qt::Key_Return), search_);
    previous->setContext(Qt::WidgetShortcut);
    connect(previous, &QShortcut::activated, this, [this] { findNext(false); });
    connect(search_, &QLineEdit::textChanged, this, [this] {
        findTicket_.drop();
        hits_.clear();
        searched_.clear();
        at_ = -1;
        found_->clear();
    });
}

void ObjectsPage::showEvent(QShowEvent* event) {
    QWidget::showEvent(event);
    if (waiting_) read();
}

void ObjectsPage::refresh() {
    const bool open = session_.checkpoint() != nullptr;
    const size_t count = open ? session_.catalog().objects().size() : 0;
    objectPanel_->setEmptyText(!open        ? tr("Nothing is open.")
                               : count == 0 ? tr("This checkpoint holds tensors only.")
                               : objects_->rowCount() == 0
                                   ? tr("0 of %1 objects have such a name.").arg(numberText(count))
                                   : QString());
    const ObjectId wanted = open ? session_.selection().current().object : kNone;
    const bool other = of_ != session_.checkpoint() || wanted != object_;
    of_ = session_.checkpoint();
    object_ = wanted;
    following_ = true;
    const int row = wanted == kNone ? -1 : objects_->rowOf(wanted);
    if (row >= 0 && table_->currentIndex().row() != row)
        showRow(*table_, row);
    else if (row < 0)
        table_->clearSelection();
    following_ = false;
    if (!other) return;
    readTicket_.drop();
    search_->clear();
    model_->clear();
    title_->setText(wanted == kNone ? QString() : toQString(session_.catalog().objects()[wanted].name));
    title_->setVisible(wanted != kNone);
    if (wanted == kNone) {
        say(count ? tr("Choose an object to see its value.") : QString());
        return;
    }
    // Values of their own files are read when somebody looks.
    waiting_ = true;
    if (isVisible()) read();
}

void ObjectsPage::read() {
    waiting_ = false;
    if (object_ == kNone) return;
    const ObjectInfo& info = session_.catalog().objects()[object_];
    if (info.value) return showValue(info.value);
    say(tr("Reading…"));
    readTicket_ = session_.tasks().run<Value>(
        Work::metadata, tr("Reading %1").arg(toQString(info.name)),
        [engine = session_.enginePtr(), checkpoint = session_.checkpoint(), object = object_](
            const TaskContext& context) { return engine->object(checkpoint, object, context); },
        [this, object = object_](Result<Value> answer) {
            if (!answer.ok()) {
                const QString hint = errorHint(answer.error());
                say(errorSentence(answer.error()) + (hint.isEmpty() ? QString() : '\n' + hint));
                return;
            }
            objects_->setValue(object, *answer);
            showValue(*answer);
        });
}

void ObjectsPage::say(const QString& text) {
    message_->setText(text);
    stack_->setCurrentWidget(message_);
    search_->setEnabled(false);
}

void ObjectsPage::showValue(const Value& value) {
    if (!value) return say(tr("The object has no value."));
    const QString name = toQString(session_.catalog().objects()[object_].name);
    model_->setValue(name.section('.', -1), value);
    const QModelIndex top = model_->index(0, 0);
    tree_->expand(top);
    if (model_->rowCount(top) <= kMostOpened) {
        for (int row = 0; row < model_->rowCount(top); ++row) {
            const QModelIndex child = model_->index(row, 0, top);
            if (model_->rowCount(child) <= kMostOpened / 4) tree_->expand(child);
        }
    }
    tree_->setCurrentIndex(top);
    stack_->setCurrentWidget(tree_);
    search_->setEnabled(true);
}

void ObjectsPage::findNext(bool forward) {
    const QString text = search_->text();
    if (text.isEmpty() || !model_->shown()) return;
    if (text == searched_) {
        const int count = static_cast<int>(hits_.size());
        if (count) at_ = (at_ + (forward ? 1 : count - 1)) % count;
        return showFound();
    }
    findTicket_.drop();
    found_->setText(tr("searching…"));
    findTicket_ = session_.tasks().run<std::vector<ValueTreeModel::RowPath>>(
        Work::query, tr("Searching the value"),
        [value = model_->shown(), text](const TaskContext& context) {
            return ValueTreeModel::find(value, text, kMostFound, context.stop);
        },
        [this, text, forward](Result<std::vector<ValueTreeModel::RowPath>> answer) {
            if (!answer.ok()) return;
            searched_ = text;
            hits_ = std::move(answer).value();
            at_ = forward || hits_.empty() ? 0 : static_cast<int>(hits_.size()) - 1;
            showFound();
        });
}

void ObjectsPage::showFound() {
    if (hits_.empty()) {
        found_->setText(tr("not found"));
        return;
    }
    found_->setText(tr("%1 of %2%3")
                        .arg(numberText(static_cast<uint64_t>(at_) + 1), numberText(hits_.size()),
                             hits_.size() == kMostFound ? QStringLiteral("+") : QString()));
    const QModelIndex index = model_->indexOf(hits_[static_cast<size_t>(at_)]);
    tree_->setCurrentIndex(index);
    tree_->scrollTo(index);
}

void ObjectsPage::fillValueMenu(QMenu& menu) {
    const QModelIndex now = tree_->currentIndex();
    const Value value = model_->part(now);
    if (!value) return;
    menu.addAction(tr("Copy value"), this, [value] { copyText(toQString(valueRepr(value, kMostCopied))); });
    menu.addAction(tr("Copy as JSON"), this,
                   [value] { copyText(QString::fromStdString(valueToJson(value))); });
    addCopyAction(menu, tr("Copy path of the entry"), model_->path(now).join('.'));
    menu.addSeparator();
    if (model_->hasChildren(now.siblingAtColumn(0)))
        menu.addAction(tr("Open everything below"), this,
                       [this, now] { openBelow(now.siblingAtColumn(0), kMostOpenedBelow); });
    menu.addAction(tr("Export the value as JSON…"), this, &ObjectsPage::exportJson);
}

// Breadth first, until so many entries are open.
void ObjectsPage::openBelow(const QModelIndex& top, int most) {
    QModelIndexList next{top};
    for (qsizetype i = 0; i < next.size() && most > 0; ++i) {
        const QModelIndex parent = next[i];
        tree_->expand(parent);
        const int rows = model_->rowCount(parent);
        most -= rows;
        for (int row = 0; row < rows && most > 0; ++row) {
            const QModelIndex child = model_->index(row, 0, parent);
            if (model_->hasChildren(child)) next += child;
        }
    }
}

void ObjectsPage::exportJson() {
    askAndSave(this, tr("Export the value"), QStringLiteral("value.json"), {},
               [value = model_->shown()](const QString& path) {
                   return writeText(QByteArray::fromStdString(valueToJson(value) + "\n"), path);
               });
}

}  // namespace shardscope::ui
