// Labels whose text is never taken for markup, however a name in a checkpoint is spelled.
#pragma once

#include <QString>

class QLabel;
class QWidget;

namespace shardscope::ui {

// One line.
QLabel* plainLabel(QWidget* parent, const QString& text = {});
// Wraps.
QLabel* wrappedLabel(QWidget* parent, const QString& text = {});
// Wraps, and can be selected and copied.
QLabel* textBlock(QWidget* parent, const QString& text = {});

}  // namespace shardscope::ui
