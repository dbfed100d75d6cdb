#include "ui/widgets/labels.h"

#include <QApplication>
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

void makeBold(QWidget* widget, double size) {
    QFont font = widget->font();
    font.setBold(true);
    font.setPointSizeF(font.pointSizeF() * size);
    widget->setFont(font);
}

void setTextColor(QWidget& widget, const QColor& color) {
    QPalette palette = widget.palette();
    palette.setColor(QPalette::WindowText, color);
    widget.setPalette(palette);
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

QString elidedName(const QString& name, const QFontMetrics& metrics, int width) {
    if (metrics.horizontalAdvance(name) <= width) return name;
    QStringList parts = name.split(QLatin1Char('.'));
    if (parts.size() < 2 || name.contains(QLatin1Char(' ')))
        return metrics.elidedText(name, Qt::ElideMiddle, width);
    const QString dots = QStringLiteral("…");
    qsizetype number = 0;  // the part that is the layer's
    while (number < parts.size() && !parts[number].isEmpty() && !parts[number][0].isDigit())
        ++number;
    if (number == parts.size()) number = 0;
    for (qsizetype first = 1; first <= number; ++first) {
        const QString text = dots + parts.mid(first).join(QLatin1Char('.'));
        if (metrics.horizontalAdvance(text) <= width) return text;
    }
    const QString head = (number > 0 ? dots : QString()) + parts[number] + QStringLiteral(".…");
    for (qsizetype from = number + 2; from < parts.size(); ++from) {
        const QString text = head + parts.mid(from).join(QLatin1Char('.'));
        if (metrics.horizontalAdvance(text) <= width) return text;
    }
    return metrics.elidedText(name, Qt::ElideLeft, width);
}

int roundStep(int least) {
    for (int ten = 1;; ten *= 10)
        for (const int step : {ten, 2 * ten, 5 * ten})
            if (step >= least) return step;
}

void NameDelegate::initStyleOption(QStyleOptionViewItem* option, const QModelIndex& index) const {
    QStyledItemDelegate::initStyleOption(option, index);
    const QStyle* style = option->widget ? option->widget->style() : QApplication::style();
    const int margin = 2 * (style->pixelMetric(QStyle::PM_FocusFrameHMargin, option, option->widget) + 1);
    const int icon = option->features.testFlag(QStyleOptionViewItem::HasDecoration)
                         ? option->decorationSize.width() + margin
                         : 0;
    const int width = option->rect.width() - margin - icon;
    if (width > 0) option->text = elidedName(option->text, option->fontMetrics, width);
}

}  // namespace shardscope::ui
