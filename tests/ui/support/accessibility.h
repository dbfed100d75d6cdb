// What assistive technology finds in a window.
#pragma once

#include <QStringList>

class QWidget;

namespace shardscope::ui {

// Controls and views that are shown, a line each: role and name, deeper ones further in. Texts, decoration
// and the insides of views and of Qt's own controls are left out.
QStringList accessibleControls(QWidget& root);
// Controls among them that have no name, as "class in class".
QStringList namelessControls(QWidget& root);
// Widgets that Tab reaches and that have no name; empty when all is well.
QStringList namelessByKeyboard(QWidget& root);

}  // namespace shardscope::ui
