#include "ui/widgets/card.h"

#include <QHBoxLayout>
#include <QHeaderView>
#include <QLabel>
#include <QMenu>
#include <QPainter>
#include <QResizeEvent>
#include <QStackedWidget>
#include <QTableView>
#include <QTimer>
#include <QToolButton>
#include <QTreeView>
#include <algorithm>

#include "ui/widgets/labels.h"
#include "ui/widgets/theme.h"

namespace shardscope::ui {

namespace {

constexpr int kRowsMeasured = 40;
constexpr int kWidestColumn = 420;
constexpr int kLeastTable = 84;

void paintBox(QWidget& box) {
    QPainter painter(&box);
    painter.setRenderHint(QPainter::Antialiasing);
    painter.setPen(QPen(gridColor(), 1));
    painter.setBrush(panelColor());
    painter.drawRoundedRect(QRectF(box.rect()).adjusted(0.5, 0.5, -0.5, -0.5), 4, 4);
}

// Paints as a box; QFrame alone knows nothing of the theme's colors.
class BoxPainter : public QObject {
  public:
    explicit BoxPainter(QWidget* of) : QObject(of) { of->installEventFilter(this); }
    bool eventFilter(QObject* object, QEvent* event) override {
        if (event->type() == QEvent::Paint) paintBox(*static_cast<QWidget*>(object));
        return QObject::eventFilter(object, event);
    }
};

}  // namespace

Panel::Panel(const QString& title, QWidget* parent) : QFrame(parent) {
    new BoxPainter(this);
    setAccessibleName(title);
    layout_ = new QVBoxLayout(this);
    layout_->setContentsMargins(10, 6, 10, 10);
    layout_->setSpacing(6);
    title_ = new QHBoxLayout;
    title_->setSpacing(8);
    auto* label = plainLabel(this, title);
    makeBold(label);
    title_->addWidget(label);
    title_->addStretch();
    menuButton_ = new QToolButton(this);
    menuButton_->setText(QStringLiteral("⋯"));
    menuButton_->setAutoRaise(true);
    menuButton_->setToolTip(tr("Copy, export, show as table"));
    menuButton_->setAccessibleName(tr("Menu of '%1'").arg(title));
    auto* menu = new QMenu(menuButton_);
    connect(menu, &QMenu::aboutToShow, this, [this, menu] {
        menu->clear();
        fillMenu(*menu);
    });
    // Opened by hand: a button that owns its menu paints an arrow over its text.
    connect(menuButton_, &QToolButton::clicked, this,
            [this, menu] { menu->popup(menuButton_->mapToGlobal(menuButton_->rect().bottomLeft())); });
    title_->addWidget(menuButton_);
    layout_->addLayout(title_);
    empty_ = plainLabel(this);
    empty_->setWordWrap(true);
    empty_->setForegroundRole(QPalette::PlaceholderText);
    empty_->hide();
    layout_->addWidget(empty_);
    stack_ = new QStackedWidget(this);
    layout_->addWidget(stack_, 1);
}

void Panel::setEmptyText(const QString& text) {
    empty_->setText(text);
    empty_->setVisible(!text.isEmpty());
}

void Panel::setView(QWidget* view, QTableView* twin) {
    stack_->addWidget(view);
    twin_ = twin;
    if (twin) {
        // The view decides how high the panel is; the table makes do with that.
        twin->setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Ignored);
        twin->setMinimumHeight(kLeastTable);
        stack_->addWidget(twin);
    }
    for (QWidget* widget : {view, static_cast<QWidget*>(twin)}) {
        if (!widget) continue;
        offerMenu(widget, [this](QMenu& menu, const QPoint&) { fillMenu(menu); });
    }
}

void Panel::addToTitle(QWidget* widget) {
    title_->insertWidget(title_->count() - 1, widget);
}

QLabel* Panel::addCaption() {
    auto* label = plainLabel(this);
    label->setWordWrap(true);
    label->setTextInteractionFlags(Qt::TextSelectableByMouse);
    layout_->addWidget(label);
    return label;
}

void Panel::fillMenu(QMenu& menu) {
    if (build_) build_(menu);
    if (twin_) {
        if (!menu.isEmpty()) menu.addSeparator();
        QAction* table = menu.addAction(tr("Show as table"), this, [this] { showTable(!showsTable()); });
        table->setCheckable(true);
        table->setChecked(showsTable());
    }
    if (exports_.picture || exports_.rows) {
        if (!menu.isEmpty()) menu.addSeparator();
        Exports exports = exports_;
        if (showsTable()) {
            exports.picture = twin_;
            exports.svg = nullptr;
        }
        addExportActions(menu, exports, this);
    }
}

void Panel::showTable(bool table) {
    if (!twin_) return;
    stack_->setCurrentIndex(table ? 1 : 0);
    if (table) fitColumns(*twin_);
    stack_->currentWidget()->setFocus();
}

bool Panel::showsTable() const {
    return stack_->currentIndex() == 1;
}

// ------------------------------------------------------------------ tables

QTableView* makeTable(QAbstractItemModel* model, const QString& accessibleName, QWidget* parent) {
    auto* table = new QTableView(parent);
    table->setModel(model);
    table->setAccessibleName(accessibleName);
    table->setSelectionBehavior(QAbstractItemView::SelectRows);
    table->setSelectionMode(QAbstractItemView::ExtendedSelection);
    table->setShowGrid(false);
    table->setAlternatingRowColors(true);
    table->setWordWrap(false);
    table->setItemDelegate(new NameDelegate(table));
    table->setTabKeyNavigation(false);
    table->setHorizontalScrollMode(QAbstractItemView::ScrollPerPixel);
    table->verticalHeader()->hide();
    table->verticalHeader()->setSectionResizeMode(QHeaderView::Fixed);
    table->verticalHeader()->setDefaultSectionSize(table->fontMetrics().height() + 6);
    table->horizontalHeader()->setDefaultAlignment(Qt::AlignLeft | Qt::AlignVCenter);
    table->horizontalHeader()->setHighlightSections(false);
    table->setSortingEnabled(true);
    table->horizontalHeader()->setSortIndicator(-1, Qt::AscendingOrder);
    enableRowCopy(*table);
    return table;
}

void dressTree(QTreeView& tree, const QString& accessibleName, bool flat) {
    tree.setAccessibleName(accessibleName);
    tree.setRootIsDecorated(!flat);
    tree.setUniformRowHeights(true);
    tree.setAlternatingRowColors(true);
    enableRowCopy(tree);
}

void showRow(QTableView& table, int row) {
    table.selectRow(row);
    QTimer::singleShot(0, &table, [&table] {
        const QRect at = table.visualRect(table.currentIndex()), seen = table.viewport()->rect();
        if (at.top() < seen.top() || at.bottom() > seen.bottom())
            table.scrollTo(table.currentIndex(), QAbstractItemView::PositionAtCenter);
    });
}

void fitColumns(QTableView& table) {
    const QAbstractItemModel* model = table.model();
    const QFontMetrics metrics = table.fontMetrics();
    const int rows = std::min(kRowsMeasured, model->rowCount());
    const int last = model->columnCount() - 1;
    // Figures stay beside what they belong to; words may have the rest of the line.
    const auto alignment =
        Qt::Alignment(model->headerData(last, Qt::Horizontal, Qt::TextAlignmentRole).toInt());
    table.horizontalHeader()->setStretchLastSection(!(alignment & Qt::AlignRight));
    for (int c = 0; c < model->columnCount(); ++c) {
        int width = metrics.horizontalAdvance(model->headerData(c, Qt::Horizontal).toString()) + 26;
        for (int r = 0; r < rows; ++r)
            width = std::max(width, table.sizeHintForIndex(model->index(r, c)).width() + 10);
        table.setColumnWidth(c, std::min(width, kWidestColumn));
    }
}

}  // namespace shardscope::ui
