#include "support/accessibility.h"

#include <QAccessible>
#include <QComboBox>
#include <QMetaEnum>
#include <QWidget>

namespace shardscope::ui {

namespace {

constexpr int kDeepest = 24;

bool isView(QAccessible::Role role) {
    return role == QAccessible::Tree || role == QAccessible::Table || role == QAccessible::List;
}

// Parts that Qt makes and names, or hides, by itself.
bool ownOfQt(const QAccessibleInterface& node) {
    const QObject* object = node.object();
    if (!object || !object->parent()) return false;
    if (object->objectName().startsWith("qt_") || object->inherits("QScrollBar")) return true;
    for (const char* owner :
         {"QDockWidget", "QTabBar", "QAbstractSpinBox", "QComboBox", "QLineEdit", "QToolBar"}) {
        if (object->parent()->inherits(owner)) return true;
    }
    return false;
}

bool isControl(QAccessible::Role role) {
    switch (role) {
        case QAccessible::Button:
        case QAccessible::ButtonMenu:
        case QAccessible::CheckBox:
        case QAccessible::RadioButton:
        case QAccessible::ComboBox:
        case QAccessible::EditableText:
        case QAccessible::SpinBox:
        case QAccessible::ProgressBar:
        case QAccessible::Slider:
        case QAccessible::PageTab:
        case QAccessible::Graphic:
        case QAccessible::Chart:
            return true;
        default:
            return isView(role);
    }
}

template <class Visit>
void walk(QAccessibleInterface* node, int depth, Visit&& visit) {
    if (!node || depth > kDeepest || node->state().invisible) return;
    const bool control = isControl(node->role()) && !ownOfQt(*node);
    if (control) visit(*node, depth);
    if (isView(node->role())) return;
    for (int i = 0; i < node->childCount(); ++i)
        walk(node->child(i), depth + (control ? 1 : 0), visit);
}

QString roleName(QAccessible::Role role) {
    const char* name = QMetaEnum::fromType<QAccessible::Role>().valueToKey(role);
    return name ? QString::fromLatin1(name) : QString::number(role);
}

}  // namespace

QStringList accessibleControls(QWidget& root) {
    QStringList lines;
    walk(QAccessible::queryAccessibleInterface(&root), 0, [&](QAccessibleInterface& node, int depth) {
        QString name = node.text(QAccessible::Name);
        // Here a combo box is called by what it shows; what it is for, its label says.
        const auto* box = qobject_cast<const QComboBox*>(node.object());
        if (box && !box->accessibleName().isEmpty()) name = box->accessibleName();
        lines += QString(depth * 2, ' ') + roleName(node.role()) + ' ' + name.replace('\n', ' ').trimmed();
    });
    return lines;
}

QStringList namelessControls(QWidget& root) {
    QStringList nameless;
    walk(QAccessible::queryAccessibleInterface(&root), 0, [&](QAccessibleInterface& node, int) {
        if (!node.text(QAccessible::Name).isEmpty() || !node.object() || !node.object()->parent()) return;
        nameless += QStringLiteral("%1 in %2")
                        .arg(node.object()->metaObject()->className(),
                             node.object()->parent()->metaObject()->className());
    });
    return nameless;
}

QStringList namelessByKeyboard(QWidget& root) {
    QStringList nameless;
    for (QWidget* widget : root.findChildren<QWidget*>()) {
        // The inside of a combo box is Qt's own, and so are the tabs of a named tab widget.
        if (!(widget->focusPolicy() & Qt::TabFocus) || qobject_cast<QComboBox*>(widget->parentWidget()) ||
            widget->inherits("QComboBoxListView") || widget->inherits("QTabBar"))
            continue;
        auto* accessible = QAccessible::queryAccessibleInterface(widget);
        if (!accessible || accessible->text(QAccessible::Name).isEmpty())
            nameless += QString::fromLatin1(widget->metaObject()->className());
    }
    return nameless;
}

}  // namespace shardscope::ui
