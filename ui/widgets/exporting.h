// Copying and exporting, the same in every view: pictures as PNG and SVG, rows as CSV and JSON; and the menus
// that offer it.
#pragma once

#include <QString>
#include <QStringList>
#include <functional>
#include <string>

class QAbstractItemModel;
class QAbstractItemView;
class QMenu;
class QPainter;
class QWidget;

namespace shardscope::ui {

// What a view can give away. Empty members are left out of the menu.
struct Exports {
    QString name;                                     // stem of proposed file names
    QWidget* picture = nullptr;                       // grabbed for PNG, rendered for SVG
    std::function<const QAbstractItemModel*()> rows;  // for CSV and JSON
    std::function<std::string()> svg;                 // in place of what the picture renders
};

// Adds "Export" actions (PNG, SVG, CSV, JSON) that ask for a file and write it. Failures are shown in
// `parent`'s window as a banner (see banner.h).
void addExportActions(QMenu& menu, const Exports& exports, QWidget* parent);

// The writers behind them. An empty string means it worked; else the reason as a sentence.
QString writePng(QWidget& view, const QString& path);
QString writeSvg(QWidget& view, const QString& path);
QString writeCsv(const QAbstractItemModel& rows, const QString& path);
QString writeJson(const QAbstractItemModel& rows, const QString& path);
QString writeText(const QByteArray& text, const QString& path);

// Lets Ctrl+C copy the selected rows as tab-separated text, and adds a Copy action to the view.
void enableRowCopy(QAbstractItemView& view);

void copyText(const QString& text);
void addCopyAction(QMenu& menu, const QString& title, const QString& text);

// A menu that blocks nothing and goes when it is closed; not shown when `fill` adds nothing.
void popUp(QWidget* parent, const QPoint& global, const std::function<void(QMenu&)>& fill);
// One at each request of a view for its context menu; `at` is the place in the view.
void offerMenu(QWidget* view, const std::function<void(QMenu& menu, const QPoint& at)>& fill);

}  // namespace shardscope::ui
