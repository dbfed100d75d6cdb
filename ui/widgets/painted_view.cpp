#include "ui/widgets/painted_view.h"

#include <QAccessible>
#include <QAccessibleWidget>
#include <QContextMenuEvent>
#include <QHelpEvent>
#include <QKeyEvent>
#include <QMetaMethod>
#include <QPaintEvent>
#include <QPainter>
#include <QToolTip>
#include <algorithm>

#include "ui/widgets/painting.h"
#include "ui/widgets/theme.h"

namespace shardscope::ui {

namespace {

QAccessibleInterface* paintedViewInterface(const QString&, QObject* object) {
    auto* view = qobject_cast<PaintedView*>(object);
    return view ? new QAccessibleWidget(view, QAccessible::Graphic) : nullptr;
}

}  // namespace

PaintedView::PaintedView(const QString& name, QSize hint, QSize least, QWidget* parent)
    : QWidget(parent), hint_(hint), least_(least) {
    [[maybe_unused]] static const bool installed = [] {
        QAccessible::installFactory(paintedViewInterface);
        return true;
    }();
    setFocusPolicy(Qt::StrongFocus);
    setAccessibleName(name);
    setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Expanding);
}

QString PaintedView::textAt(const QPointF&) const {
    return {};
}

bool PaintedView::pressKey(int) {
    return false;
}

std::optional<int> PaintedView::itemByKey(int key, int current, int count, Qt::Orientation direction) {
    const bool across = direction == Qt::Horizontal;
    if (count <= 0) return std::nullopt;
    if (key == Qt::Key_Home) return 0;
    if (key == Qt::Key_End) return count - 1;
    if (key == (across ? Qt::Key_Left : Qt::Key_Up))
        return current < 0 ? count - 1 : std::max(0, current - 1);
    if (key == (across ? Qt::Key_Right : Qt::Key_Down)) return std::min(count - 1, current + 1);
    return std::nullopt;
}

std::optional<QPoint> PaintedView::stepByKey(int key) {
    if (key == Qt::Key_Left) return QPoint(-1, 0);
    if (key == Qt::Key_Right) return QPoint(1, 0);
    if (key == Qt::Key_Up) return QPoint(0, -1);
    if (key == Qt::Key_Down) return QPoint(0, 1);
    return std::nullopt;
}

void PaintedView::describe(const QString& text) {
    if (text == accessibleDescription()) return;
    setAccessibleDescription(text);
    QAccessibleEvent event(this, QAccessible::DescriptionChanged);
    QAccessible::updateAccessibility(&event);
}

bool PaintedView::event(QEvent* event) {
    if (event->type() != QEvent::ToolTip) return QWidget::event(event);
    const auto* help = static_cast<QHelpEvent*>(event);
    QString text = textAt(help->pos());
    if (text.isEmpty()) text = toolTip();
    // Escaped, because a name could look like markup.
    if (!text.isEmpty())
        text = QStringLiteral("<qt>%1</qt>").arg(text.toHtmlEscaped().replace('\n', QLatin1String("<br>")));
    QToolTip::showText(help->globalPos(), text, this);
    return true;
}

void PaintedView::paintEvent(QPaintEvent* event) {
    QPainter painter(this);
    painter.fillRect(rect(), surfaceColor());
    if (const QString text = emptyText(); !text.isEmpty()) {
        painter.setPen(faintTextColor());
        painter.drawText(rect().adjusted(8, 4, -8, -4), Qt::AlignCenter | Qt::TextWordWrap, text);
    } else {
        paint(painter, event->rect());
        if (!hasFocusFrame()) return;
    }
    paintFocusFrame(painter, *this);
}

void PaintedView::keyPressEvent(QKeyEvent* event) {
    if (!pressKey(event->key())) QWidget::keyPressEvent(event);
}

void PaintedView::contextMenuEvent(QContextMenuEvent* event) {
    if (!isSignalConnected(QMetaMethod::fromSignal(&PaintedView::menuRequested)))
        return QWidget::contextMenuEvent(event);
    emit menuRequested(event->reason() == QContextMenuEvent::Keyboard ? mapToGlobal(menuPosition().toPoint())
                                                                      : event->globalPos());
}

void PaintedView::focusInEvent(QFocusEvent* event) {
    QWidget::focusInEvent(event);
    update();
}

void PaintedView::focusOutEvent(QFocusEvent* event) {
    QWidget::focusOutEvent(event);
    update();
}

}  // namespace shardscope::ui
