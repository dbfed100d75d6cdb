#include "ui/widgets/card.h"

#include <QContextMenuEvent>
#include <QHBoxLayout>
#include <QHeaderView>
#include <QLabel>
#include <QMenu>
#include <QPainter>
#include <QResizeEvent>
#include <QStackedWidget>
#include <QTableView>
#include <QToolButton>
#include <algorithm>

#include "ui/widgets/theme.h"

namespace shardscope::ui {

namespace {

constexpr int kCardPadding = 10;
constexpr int kLeastCardWidth = 132;
constexpr int kMostCardWidth = 320;
constexpr int kCardGap = 8;
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

// ------------------------------------------------------------------ Card

Card::Card(const QString& title, QWidget* parent) : QFrame(parent) {
    auto* layout = new QVBoxLayout(this);
    layout->setContentsMargins(kCardPadding, 6, kCardPadding, 6);
    layout->setSpacing(1);
    titleLabel_ = plainLabel(this);
    titleLabel_->setText(title);
    valueLabel_ = new ElidedLabel(this);
    valueLabel_->setTextInteractionFlags(Qt::TextSelectableByMouse);
    QFont large = font();
    large.setPointSizeF(large.pointSizeF() * 1.35);
    large.setBold(true);
    valueLabel_->setFont(large);
    noteLabel_ = new ElidedLabel(this);
    for (QLabel* label : {titleLabel_, static_cast<QLabel*>(noteLabel_)})
        label->setForegroundRole(QPalette::PlaceholderText);
    for (QLabel* label : {titleLabel_, static_cast<QLabel*>(valueLabel_), static_cast<QLabel*>(noteLabel_)}) {
        label->setMinimumWidth(0);
        label->setSizePolicy(QSizePolicy::Ignored, QSizePolicy::Fixed);
        layout->addWidget(label);
    }
    layout->addStretch();
    setValue(QStringLiteral("…"));
}

void Card::setValue(const QString& value) {
    value_ = value;
    describe();
}

void Card::setNote(const QString& note) {
    noteLabel_->setWhole(note);
    describe();
}

void Card::setMarked(bool marked) {
    marked_ = marked;
    describe();
}

void Card::describe() {
    valueLabel_->setWhole(marked_ ? QStringLiteral("▲ ") + value_ : value_);
    const QString whole = note().isEmpty() ? value_ : value_ + "\n" + note();
    setToolTip(whole.toHtmlEscaped().replace('\n', QLatin1String("<br>")));
    setAccessibleName(tr("%1: %2").arg(titleLabel_->text(), value_));
    setAccessibleDescription(note());
    update();
}

QSize Card::sizeHint() const {
    const int text = std::max({valueLabel_->sizeHint().width(), noteLabel_->sizeHint().width(),
                               titleLabel_->fontMetrics().horizontalAdvance(titleLabel_->text())});
    const int height = valueLabel_->fontMetrics().height() + 2 * noteLabel_->fontMetrics().height() + 16;
    return {text + 2 * kCardPadding + 4, height};
}

void Card::paintEvent(QPaintEvent*) {
    paintBox(*this);
    if (!marked_) return;
    QPainter painter(this);
    painter.fillRect(QRect(0, 0, 4, height()), healthColor(Health::missing));
}

// ------------------------------------------------------------------ CardGrid

Card* CardGrid::add(const QString& title) {
    cards_.push_back(new Card(title, this));
    return cards_.back();
}

void CardGrid::arrange() {
    std::vector<Card*> shown;
    int widest = kLeastCardWidth, height = 0;
    for (Card* card : cards_) {
        if (card->isHidden()) continue;
        shown.push_back(card);
        widest = std::max(widest, std::min(kMostCardWidth, card->sizeHint().width()));
        height = std::max(height, card->sizeHint().height());
    }
    if (shown.empty()) return;
    const auto count = static_cast<int>(shown.size());
    const int most = std::clamp((width() + kCardGap) / (widest + kCardGap), 1, count);
    // Even rows: nine cards are five and four, not eight and one.
    const int rows = (count + most - 1) / most;
    const int columns = (count + rows - 1) / rows;
    for (int i = 0; i < count; ++i) {
        const int c = i % columns, r = i / columns;
        const int left = (width() + kCardGap) * c / columns,
                  right = (width() + kCardGap) * (c + 1) / columns - kCardGap;
        shown[static_cast<size_t>(i)]->setGeometry(left, r * (height + kCardGap), right - left, height);
    }
    setFixedHeight(rows * (height + kCardGap) - kCardGap);
}

QSize CardGrid::minimumSizeHint() const {
    return {kLeastCardWidth, 0};
}

void CardGrid::resizeEvent(QResizeEvent* event) {
    QWidget::resizeEvent(event);
    if (event->size().width() != event->oldSize().width()) arrange();
}

// ------------------------------------------------------------------ Panel

Panel::Panel(const QString& title, QWidget* parent) : QFrame(parent) {
    new BoxPainter(this);
    setAccessibleName(title);
    layout_ = new QVBoxLayout(this);
    layout_->setContentsMargins(10, 6, 10, 10);
    layout_->setSpacing(6);
    title_ = new QHBoxLayout;
    title_->setSpacing(8);
    auto* label = plainLabel(this);
    label->setText(title);
    QFont bold = font();
    bold.setBold(true);
    label->setFont(bold);
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
        widget->setContextMenuPolicy(Qt::CustomContextMenu);
        connect(widget, &QWidget::customContextMenuRequested, this, [this, widget](const QPoint& at) {
            auto* menu = new QMenu(this);
            menu->setAttribute(Qt::WA_DeleteOnClose);
            fillMenu(*menu);
            menu->popup(widget->mapToGlobal(at));
        });
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
        if (showsTable()) exports.picture = twin_;
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
    table->setTextElideMode(Qt::ElideMiddle);
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
