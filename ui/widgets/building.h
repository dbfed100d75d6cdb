// What pages and panels say in one line when they build themselves.
#pragma once

#include <QBoxLayout>
#include <QString>
#include <QWidget>

namespace shardscope::ui {

// The widget, with what screen readers call it, and what tests and style sheets find it by.
template <class Widget>
Widget* withName(Widget* widget, const QString& accessible, const QString& object = {}) {
    widget->setAccessibleName(accessible);
    if (!object.isEmpty()) widget->setObjectName(object);
    return widget;
}

// A layout of a widget, or one to be added to another; with a negative spacing, that of the style.
template <class Layout>
Layout* layoutOf(QWidget* parent, const QMargins& margins, int spacing = -1) {
    auto* layout = new Layout;
    if (parent) parent->setLayout(layout);
    layout->setContentsMargins(margins);
    if (spacing >= 0) layout->setSpacing(spacing);
    return layout;
}

}  // namespace shardscope::ui
