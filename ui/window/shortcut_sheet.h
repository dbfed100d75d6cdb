// All keys on one page ("?"), made from the actions themselves and the keys of the views.
#pragma once

#include <QDialog>

class QAction;

namespace shardscope::ui {

class ShortcutSheet : public QDialog {
    Q_OBJECT
  public:
    explicit ShortcutSheet(const QList<QAction*>& actions, QWidget* parent = nullptr);
};

}  // namespace shardscope::ui
