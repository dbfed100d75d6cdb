#include "ui/pages/log_panel.h"

#include <QHBoxLayout>
#include <QHeaderView>
#include <QLabel>
#include <QMenu>
#include <QPushButton>
#include <QScrollBar>
#include <QTreeView>
#include <QVBoxLayout>

#include "ui/models/texts.h"
#include "ui/widgets/building.h"
#include "ui/widgets/card.h"

namespace shardscope::ui {

LogModel::LogModel(QObject* parent) : Columns({{tr("Time")}, {tr("Severity")}, {tr("Message")}}, parent) {}

void LogModel::append(Severity severity, const QString& text) {
    if (rowCount() == kMostLines) {
        beginRemoveRows({}, 0, 0);
        lines_.pop_front();
        endRemoveRows();
    }
    beginInsertRows({}, rowCount(), rowCount());
    lines_.push_back({QDateTime::currentDateTime(), severity, text});
    endInsertRows();
}

void LogModel::clear() {
    beginResetModel();
    lines_.clear();
    endResetModel();
}

int LogModel::rowCount(const QModelIndex& parent) const {
    return parent.isValid() ? 0 : static_cast<int>(lines_.size());
}
QVariant LogModel::data(const QModelIndex& index, int role) const {
    if (role != Qt::DisplayRole || !checkIndex(index, CheckIndexOption::IndexIsValid)) return {};
    const Line& line = lines_[static_cast<size_t>(index.row())];
    switch (index.column()) {
        case time:
            return line.time.toString(QStringLiteral("HH:mm:ss"));
        case level:
            return line.severity == Severity::error     ? tr("✕ Error")
                   : line.severity == Severity::warning ? tr("▲ Warning")
                                                        : tr("• Info");
        case message:
            return line.text;
        default:
            return {};
    }
}

LogPanel::LogPanel(QWidget* parent) : QWidget(parent) {
    auto* layout = layoutOf<QVBoxLayout>(this, {8, 8, 8, 8}, 6);
    view_ = new QTreeView(this);
    view_->setModel(&model_);
    view_->setSelectionMode(QAbstractItemView::ExtendedSelection);
    dressTree(*view_, tr("Messages of this window"), true);
    view_->header()->setStretchLastSection(true);
    view_->setColumnWidth(LogModel::time, 90);
    view_->setColumnWidth(LogModel::level, 110);
    offerMenu(view_, [this](QMenu& menu, const QPoint&) {
        menu.addActions(view_->actions());
        menu.addSeparator();
        addExportActions(menu, {tr("messages"), nullptr, [this] { return &model_; }}, this);
    });

    empty_ = new QLabel(
        tr("Nothing to report yet. What this window does and what goes wrong is written here."), this);
    empty_->setAlignment(Qt::AlignCenter);
    empty_->setWordWrap(true);

    auto* buttons = new QHBoxLayout;
    auto* copy = withName(new QPushButton(tr("Copy all"), this), tr("Copy all messages"));
    auto* clear = withName(new QPushButton(tr("Clear"), this), tr("Clear the messages"));
    buttons->addStretch();
    buttons->addWidget(copy);
    buttons->addWidget(clear);
    connect(copy, &QPushButton::clicked, this, &LogPanel::copyAll);
    connect(clear, &QPushButton::clicked, this, &LogPanel::clear);
    layout->addWidget(view_, 1);
    layout->addWidget(empty_, 1);
    layout->addLayout(buttons);

    const auto sync = [this, copy, clear] {
        const bool any = model_.rowCount() > 0;
        view_->setVisible(any);
        empty_->setVisible(!any);
        copy->setEnabled(any);
        clear->setEnabled(any);
    };
    connect(&model_, &QAbstractItemModel::rowsInserted, this, sync);
    connect(&model_, &QAbstractItemModel::modelReset, this, sync);
    sync();
}

void LogPanel::append(Severity severity, const QString& text) {
    // The view stays where the user has scrolled up.
    const QScrollBar* bar = view_->verticalScrollBar();
    const bool follow = bar->value() == bar->maximum();
    model_.append(severity, text);
    if (follow) view_->scrollToBottom();
}

void LogPanel::copyAll() const {
    QString all;
    for (int row = 0; row < model_.rowCount(); ++row) {
        QStringList cells;
        for (int column = 0; column < LogModel::columnCountValue; ++column)
            cells += model_.index(row, column).data().toString();
        all += cells.join('\t') + '\n';
    }
    copyText(all);
}

}  // namespace shardscope::ui
