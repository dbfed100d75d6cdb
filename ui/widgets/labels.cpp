#include "ui/widgets/labels.h"

#include <QEvent>

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

// ------------------------------------------------------------------ ElidedLabel

ElidedLabel::ElidedLabel(QWidget* parent, Qt::TextElideMode mode) : QLabel(parent), mode_(mode) {
    setTextFormat(Qt::PlainText);
}

void ElidedLabel::setWhole(const QString& text) {
    whole_ = text;
    elide();
    updateGeometry();
}

QSize ElidedLabel::sizeHint() const {
    return {fontMetrics().horizontalAdvance(whole_) + 2, QLabel::sizeHint().height()};
}

QSize ElidedLabel::minimumSizeHint() const {
    return {0, QLabel::minimumSizeHint().height()};
}

void ElidedLabel::resizeEvent(QResizeEvent* event) {
    QLabel::resizeEvent(event);
    elide();
}

void ElidedLabel::changeEvent(QEvent* event) {
    QLabel::changeEvent(event);
    if (event->type() == QEvent::FontChange) elide();
}

void ElidedLabel::elide() {
    setText(fontMetrics().elidedText(whole_, mode_, width()));
}

}  // namespace shardscope::ui
