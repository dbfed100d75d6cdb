#include "ui/widgets/labels.h"

#include <QLabel>

namespace shardscope::ui {

QLabel* plainLabel(QWidget* parent, const QString& text) {
    auto* label = new QLabel(parent);
    label->setTextFormat(Qt::PlainText);
    label->setText(text);
    return label;
}

QLabel* wrappedLabel(QWidget* parent, const QString& text) {
    QLabel* label = plainLabel(parent, text);
    label->setWordWrap(true);
    return label;
}

QLabel* textBlock(QWidget* parent, const QString& text) {
    QLabel* label = wrappedLabel(parent, text);
    label->setTextInteractionFlags(Qt::TextSelectableByMouse | Qt::TextSelectableByKeyboard);
    return label;
}

}  // namespace shardscope::ui
