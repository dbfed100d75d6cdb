#include "ui/pages/wizard_parts.h"

#include <QAbstractSpinBox>
#include <QAction>
#include <QComboBox>
#include <QFileInfo>
#include <QHBoxLayout>
#include <QHeaderView>
#include <QHelpEvent>
#include <QLabel>
#include <QLineEdit>
#include <QPainter>
#include <QPushButton>
#include <QToolTip>
#include <QVBoxLayout>
#include <algorithm>

#include "ui/models/texts.h"
#include "ui/widgets/building.h"
#include "ui/widgets/file_dialog.h"
#include "ui/widgets/labels.h"
#include "ui/widgets/theme.h"

namespace shardscope::ui {

QLabel* wizardText(const QString& text, QWidget* parent) {
    auto* label = textBlock(parent, text);
    label->setFocusPolicy(Qt::NoFocus);
    // Wide before it is high, also as a field of a form.
    QSizePolicy policy(QSizePolicy::Expanding, QSizePolicy::Preferred);
    policy.setHeightForWidth(true);
    label->setSizePolicy(policy);
    return label;
}

QLabel* wizardHint(const QString& text, QWidget* parent) {
    QLabel* label = wizardText(text, parent);
    label->setForegroundRole(QPalette::PlaceholderText);
    return label;
}

QLabel* wizardHeading(const QString& text, QWidget* parent) {
    auto* label = plainLabel(parent, text);
    makeBold(label);
    return label;
}

FormGrid::FormGrid() {
    setColumnStretch(1, 1);
    setHorizontalSpacing(10);
    setVerticalSpacing(8);
}

void FormGrid::addLabel(const QString& text, QWidget* buddy) {
    if (text.isEmpty()) return;
    auto* label = new QLabel(text);
    // A label's mnemonic passes over a buddy that itself takes no focus.
    while (buddy && buddy->focusProxy())
        buddy = buddy->focusProxy();
    label->setBuddy(buddy);
    addWidget(label, rowCount(), 0, Qt::AlignLeft | Qt::AlignVCenter);
}

void FormGrid::add(const QString& label, QWidget* field) {
    const int row = rowCount();
    addLabel(label, field);
    // Boxes stay as wide as what they offer; lines and texts take all there is.
    const bool narrow = qobject_cast<QComboBox*>(field) || qobject_cast<QAbstractSpinBox*>(field);
    addWidget(field, row, 1, narrow ? Qt::AlignLeft | Qt::AlignVCenter : Qt::Alignment());
}

void FormGrid::add(const QString& label, QLayout* field, QWidget* buddy) {
    const int row = rowCount();
    addLabel(label, buddy);
    addLayout(field, row, 1);
}

PathEdit::PathEdit(Kind kind, const QString& name, const QString& filter, QWidget* parent)
    : QWidget(parent), kind_(kind), name_(name), filter_(filter) {
    auto* layout = layoutOf<QHBoxLayout>(this, {0, 0, 0, 0});
    edit_ = withName(new QLineEdit(this), name);
    edit_->setClearButtonEnabled(true);
    layout->addWidget(edit_, 1);
    setFocusProxy(edit_);
    connect(edit_, &QLineEdit::textEdited, this, [this] { emit edited(path()); });
    if (kind == Kind::address) return;
    auto* button = withName(new QPushButton(tr("Browse…"), this), tr("Browse: %1").arg(name));
    button->setAutoDefault(false);
    layout->addWidget(button);
    connect(button, &QPushButton::clicked, this, &PathEdit::browse);
}

QString PathEdit::path() const {
    return edit_->text().trimmed();
}

void PathEdit::setPath(const QString& path) {
    if (path != this->path()) edit_->setText(path);
}

void PathEdit::browse() {
    FileQuestion question{name_};
    question.filter = filter_;
    question.start = path();
    question.save = kind_ == Kind::saveAny || kind_ == Kind::saveFile;
    if (kind_ == Kind::openDirectory) question.mode = QFileDialog::Directory;
    QFileDialog* dialog = askForFile(this, question, [this](const QString& chosen) {
        edit_->setText(chosen);
        emit edited(path());
    });
    // Whether the destination may be replaced is asked on a page of its own; it may be a directory.
    if (question.save) {
        dialog->setOption(QFileDialog::DontConfirmOverwrite);
        dialog->setDefaultSuffix({});
    }
}

RuleTable::RuleTable(const QString& name, const QStringList& columns, const QStringList& examples,
                     bool resultColumn, QWidget* parent)
    : QWidget(parent),
      inputs_(static_cast<int>(columns.size()) - (resultColumn ? 1 : 0)),
      resultColumn_(resultColumn),
      examples_(examples) {
    auto* layout = layoutOf<QHBoxLayout>(this, {0, 0, 0, 0});
    table_ = new QTableWidget(0, static_cast<int>(columns.size()), this);
    table_->setHorizontalHeaderLabels(columns);
    table_->horizontalHeader()->setSectionResizeMode(QHeaderView::Stretch);
    if (resultColumn)
        table_->horizontalHeader()->setSectionResizeMode(inputs_, QHeaderView::ResizeToContents);
    table_->verticalHeader()->setDefaultSectionSize(fontMetrics().height() + 10);
    table_->setAccessibleName(name);
    table_->setSelectionBehavior(QAbstractItemView::SelectRows);
    table_->setSelectionMode(QAbstractItemView::SingleSelection);
    table_->setTabKeyNavigation(false);
    table_->setEditTriggers(QAbstractItemView::DoubleClicked | QAbstractItemView::EditKeyPressed |
                            QAbstractItemView::AnyKeyPressed);
    layout->addWidget(table_, 1);
    auto* buttons = new QVBoxLayout;
    buttons->setSpacing(4);
    const auto button = [&](const QString& text, const QString& what) {
        auto* b = withName(new QPushButton(text, this), tr("%1: %2").arg(name, what));
        b->setToolTip(what);
        b->setAutoDefault(false);
        buttons->addWidget(b);
        return b;
    };
    QPushButton* addButton = button(tr("Add"), tr("Add a rule (Insert)"));
    remove_ = button(tr("Remove"), tr("Remove the rule (Delete)"));
    up_ = button(tr("Up"), tr("Move the rule up (Alt+Up)"));
    down_ = button(tr("Down"), tr("Move the rule down (Alt+Down)"));
    buttons->addStretch();
    layout->addLayout(buttons);
    connect(addButton, &QPushButton::clicked, this, &RuleTable::add);
    connect(remove_, &QPushButton::clicked, this, &RuleTable::removeCurrent);
    connect(up_, &QPushButton::clicked, this, [this] { move(-1); });
    connect(down_, &QPushButton::clicked, this, [this] { move(1); });
    const auto key = [&](const QKeySequence& keys, auto&& run) {
        auto* action = new QAction(table_);
        action->setShortcut(keys);
        action->setShortcutContext(Qt::WidgetShortcut);
        table_->addAction(action);
        connect(action, &QAction::triggered, this, run);
    };
    key(Qt::Key_Insert, [this] { add(); });
    key(Qt::Key_Delete, [this] { removeCurrent(); });
    key(Qt::ALT | Qt::Key_Up, [this] { move(-1); });
    key(Qt::ALT | Qt::Key_Down, [this] { move(1); });
    connect(table_, &QTableWidget::cellChanged, this, [this](int, int column) {
        if (column < inputs_) emit edited();
    });
    connect(table_, &QTableWidget::currentCellChanged, this, &RuleTable::syncButtons);
    syncButtons();
}

void RuleTable::appendRow(const QStringList& cells) {
    const int row = table_->rowCount();
    const QSignalBlocker blocker(table_);
    table_->insertRow(row);
    for (int c = 0; c < table_->columnCount(); ++c) {
        auto* item = new QTableWidgetItem(cells.value(c));
        if (c >= inputs_)
            item->setFlags(Qt::ItemIsEnabled | Qt::ItemIsSelectable);
        else if (c < examples_.size())
            item->setToolTip(tr("For example %1").arg(examples_[c]));
        table_->setItem(row, c, item);
    }
}

void RuleTable::hideOrder() {
    for (QPushButton* button : {up_, down_})
        button->hide();
}

std::vector<QStringList> RuleTable::rules() const {
    std::vector<QStringList> rules;
    for (int row = 0; row < table_->rowCount(); ++row) {
        QStringList cells;
        for (int c = 0; c < inputs_; ++c)
            cells += table_->item(row, c)->text().trimmed();
        if (!cells[0].isEmpty()) rules.push_back(cells);
    }
    return rules;
}

void RuleTable::setRules(const std::vector<QStringList>& rules) {
    if (rules == this->rules()) return;
    {
        const QSignalBlocker blocker(table_);
        table_->setRowCount(0);
    }
    for (const QStringList& cells : rules)
        appendRow(cells);
    syncButtons();
}

void RuleTable::setResult(int rule, const QString& text) {
    if (!resultColumn_) return;
    int at = -1;
    for (int row = 0; row < table_->rowCount(); ++row) {
        if (table_->item(row, 0)->text().trimmed().isEmpty() || ++at != rule) continue;
        if (table_->item(row, inputs_)->text() == text) return;
        const QSignalBlocker blocker(table_);
        table_->item(row, inputs_)->setText(text);
        table_->viewport()->update();
        return;
    }
}

void RuleTable::add() {
    appendRow({});
    const int row = table_->rowCount() - 1;
    table_->setCurrentCell(row, 0);
    table_->editItem(table_->item(row, 0));
    syncButtons();
}

void RuleTable::removeCurrent() {
    if (table_->currentRow() < 0) return;
    table_->removeRow(table_->currentRow());
    syncButtons();
    emit edited();
}

void RuleTable::move(int by) {
    const int row = table_->currentRow(), other = row + by;
    if (row < 0 || other < 0 || other >= table_->rowCount()) return;
    {
        const QSignalBlocker blocker(table_);
        for (int c = 0; c < table_->columnCount(); ++c) {
            QTableWidgetItem* a = table_->takeItem(row, c);
            QTableWidgetItem* b = table_->takeItem(other, c);
            table_->setItem(row, c, b);
            table_->setItem(other, c, a);
        }
    }
    table_->setCurrentCell(other, table_->currentColumn());
    syncButtons();
    emit edited();
}

void RuleTable::syncButtons() {
    const int row = table_->currentRow();
    remove_->setEnabled(row >= 0);
    up_->setEnabled(row > 0);
    down_->setEnabled(row >= 0 && row + 1 < table_->rowCount());
}

}  // namespace shardscope::ui
