#include "ui/window/shortcut_sheet.h"

#include <QAction>
#include <QDialogButtonBox>
#include <QHeaderView>
#include <QLineEdit>
#include <QTreeWidget>
#include <QVBoxLayout>

#include "ui/widgets/building.h"
#include "ui/widgets/card.h"

namespace shardscope::ui {

ShortcutSheet::ShortcutSheet(const QList<QAction*>& actions, QWidget* parent) : QDialog(parent) {
    setWindowTitle(tr("Keyboard shortcuts"));
    resize(560, 620);
    auto* layout = new QVBoxLayout(this);
    auto* list = new QTreeWidget(this);
    dressTree(*list, tr("Keyboard shortcuts"), true);
    list->setHeaderLabels({tr("What"), tr("Keys")});
    const auto group = [&](const QString& title) {
        auto* item = new QTreeWidgetItem(list, {title});
        QFont bold = item->font(0);
        bold.setBold(true);
        item->setFont(0, bold);
        item->setFirstColumnSpanned(true);
        item->setExpanded(true);
        return item;
    };
    auto* everywhere = group(tr("Everywhere"));
    for (const QAction* action : actions) {
        if (action->shortcuts().isEmpty()) continue;
        QString name = action->text();
        name.remove('&');
        new QTreeWidgetItem(
            everywhere, {name, QKeySequence::listToString(action->shortcuts(), QKeySequence::NativeText)});
    }
    auto* map = group(tr("Placement map"));
    for (const auto& [what, keys] : std::initializer_list<std::pair<QString, QString>>{
             {tr("Move the current cell"), tr("Arrows, Home, End, Page up, Page down")},
             {tr("Open the tensor"), tr("Enter")},
             {tr("Pin the row to the top, or unpin it"), tr("P")},
             {tr("Next, previous finding"), tr("N, Shift+N")},
             {tr("Zoom in, out"), tr("+, − or the wheel")},
             {tr("Show everything"), tr("F")},
             {tr("Move the view"), tr("Space and drag, or the middle button")},
             {tr("Mark a region and list its chunks"), tr("Drag, or Shift+arrows; Escape unmarks")},
             {tr("Take a rank, add a rank"), tr("R, Shift+R")},
             {tr("Scroll"), tr("Ctrl+arrows")}})
        new QTreeWidgetItem(map, {what, keys});
    auto* tensor = group(tr("Tensor, files and charts"));
    for (const auto& [what, keys] : std::initializer_list<std::pair<QString, QString>>{
             {tr("Move between chunks, files, modules"), tr("Arrows")},
             {tr("Zoom into a module, out again"), tr("Enter, Backspace")},
             {tr("Copy the selected rows"), tr("Ctrl+C")},
             {tr("Menu of the selected thing"), tr("Menu key")}})
        new QTreeWidgetItem(tensor, {what, keys});
    list->header()->setSectionResizeMode(0, QHeaderView::Stretch);
    list->header()->setSectionResizeMode(1, QHeaderView::ResizeToContents);
    list->header()->setStretchLastSection(false);
    auto* search = withName(new QLineEdit(this), tr("Find a key or an action"));
    search->setPlaceholderText(tr("Find a key or an action"));
    search->setClearButtonEnabled(true);
    connect(search, &QLineEdit::textChanged, list, [list](const QString& text) {
        for (int g = 0; g < list->topLevelItemCount(); ++g) {
            QTreeWidgetItem* of = list->topLevelItem(g);
            bool any = false;
            for (int i = 0; i < of->childCount(); ++i) {
                QTreeWidgetItem* item = of->child(i);
                const bool fits = item->text(0).contains(text, Qt::CaseInsensitive) ||
                                  item->text(1).contains(text, Qt::CaseInsensitive);
                item->setHidden(!fits);
                any |= fits;
            }
            of->setHidden(!any);
        }
    });
    layout->addWidget(search);
    layout->addWidget(list);
    search->setFocus();
    auto* buttons = new QDialogButtonBox(QDialogButtonBox::Close, this);
    connect(buttons, &QDialogButtonBox::rejected, this, &QDialog::reject);
    layout->addWidget(buttons);
}

}  // namespace shardscope::ui
