#include "ui/widgets/exporting.h"

#include <QAbstractItemView>
#include <QAction>
#include <QApplication>
#include <QClipboard>
#include <QDir>
#include <QJsonArray>
#include <QJsonDocument>
#include <QJsonObject>
#include <QMenu>
#include <QPainter>
#include <QSaveFile>
#include <QStandardPaths>
#include <QSvgGenerator>
#include <algorithm>

#include "ui/models/texts.h"
#include "ui/widgets/file_dialog.h"

namespace shardscope::ui {

namespace {

QString failure(const QString& path, const QString& reason) {
    return QObject::tr("'%1' was not written: %2.").arg(path, reason);
}

QString save(const QString& path, const std::function<bool(QSaveFile&)>& write) {
    QSaveFile file(path);
    if (!file.open(QIODevice::WriteOnly)) return failure(path, file.errorString());
    if (!write(file) || !file.commit()) return failure(path, file.errorString());
    return {};
}

void ask(QWidget* parent, const QString& stem, const QString& suffix, const QString& filter,
         const std::function<QString(const QString&)>& write) {
    const QDir documents(QStandardPaths::writableLocation(QStandardPaths::DocumentsLocation));
    askAndSave(parent, QObject::tr("Export"), documents.absoluteFilePath(stem + '.' + suffix), filter, write);
}

}  // namespace

QString writePng(QWidget& view, const QString& path) {
    const QImage image = view.grab().toImage();
    return save(path, [&](QSaveFile& file) { return image.save(&file, "PNG"); });
}

QString writeText(const QByteArray& text, const QString& path) {
    return save(path, [&](QSaveFile& file) { return file.write(text) == text.size(); });
}

QString writeSvg(QWidget& view, const QString& path) {
    return save(path, [&](QSaveFile& file) {
        QSvgGenerator generator;
        generator.setOutputDevice(&file);
        generator.setSize(view.size());
        generator.setViewBox(view.rect());
        generator.setTitle(view.accessibleName());
        QPainter painter;
        if (!painter.begin(&generator)) return false;
        view.render(&painter, QPoint(), QRegion(), QWidget::DrawWindowBackground | QWidget::DrawChildren);
        return painter.end();
    });
}

QString writeCsv(const QAbstractItemModel& rows, const QString& path) {
    return save(path, [&](QSaveFile& file) {
        QStringList line;
        for (int c = 0; c < rows.columnCount(); ++c)
            line += csvField(rows.headerData(c, Qt::Horizontal).toString());
        file.write(line.join(',').toUtf8() + "\r\n");
        const std::function<bool(const QModelIndex&)> walk = [&](const QModelIndex& parent) {
            for (int r = 0; r < rows.rowCount(parent); ++r) {
                line.clear();
                for (int c = 0; c < rows.columnCount(parent); ++c)
                    line += csvField(rows.index(r, c, parent).data().toString());
                if (file.write(line.join(',').toUtf8() + "\r\n") < 0) return false;
                if (rows.hasChildren(rows.index(r, 0, parent)) && !walk(rows.index(r, 0, parent)))
                    return false;
            }
            return true;
        };
        return walk({});
    });
}

QString writeJson(const QAbstractItemModel& rows, const QString& path) {
    return save(path, [&](QSaveFile& file) {
        QStringList keys;
        for (int c = 0; c < rows.columnCount(); ++c)
            keys += rows.headerData(c, Qt::Horizontal).toString().toLower().replace(' ', '_');
        bool first = true;
        file.write("[");
        const std::function<bool(const QModelIndex&)> walk = [&](const QModelIndex& parent) {
            for (int r = 0; r < rows.rowCount(parent); ++r) {
                QJsonObject object;
                for (int c = 0; c < rows.columnCount(parent); ++c)
                    object.insert(keys[c], rows.index(r, c, parent).data().toString());
                const QByteArray text = QJsonDocument(object).toJson(QJsonDocument::Compact);
                if (file.write((first ? "\n" : ",\n") + text) < 0) return false;
                first = false;
                if (rows.hasChildren(rows.index(r, 0, parent)) && !walk(rows.index(r, 0, parent)))
                    return false;
            }
            return true;
        };
        return walk({}) && file.write("\n]\n") > 0;
    });
}

void addExportActions(QMenu& menu, const Exports& exports, QWidget* parent) {
    if (exports.picture) {
        QWidget* picture = exports.picture;
        menu.addAction(QObject::tr("Export as PNG…"), parent, [=] {
            ask(parent, exports.name, "png", QObject::tr("PNG picture (*.png)"),
                [picture](const QString& path) { return writePng(*picture, path); });
        });
        menu.addAction(QObject::tr("Export as SVG…"), parent, [=] {
            ask(parent, exports.name, "svg", QObject::tr("SVG drawing (*.svg)"),
                [picture, svg = exports.svg](const QString& path) {
                    return svg ? writeText(QByteArray::fromStdString(svg()), path) : writeSvg(*picture, path);
                });
        });
    }
    if (exports.rows) {
        menu.addAction(QObject::tr("Export as CSV…"), parent, [=] {
            ask(parent, exports.name, "csv", QObject::tr("CSV table (*.csv)"), [=](const QString& path) {
                const QAbstractItemModel* model = exports.rows();
                return model ? writeCsv(*model, path) : QString();
            });
        });
        menu.addAction(QObject::tr("Export as JSON…"), parent, [=] {
            ask(parent, exports.name, "json", QObject::tr("JSON (*.json)"), [=](const QString& path) {
                const QAbstractItemModel* model = exports.rows();
                return model ? writeJson(*model, path) : QString();
            });
        });
    }
}

void copyText(const QString& text) {
    QApplication::clipboard()->setText(text);
}

void addCopyAction(QMenu& menu, const QString& title, const QString& text) {
    menu.addAction(title, [text] { copyText(text); });
}

void popUp(QWidget* parent, const QPoint& global, const std::function<void(QMenu&)>& fill) {
    auto* menu = new QMenu(parent);
    menu->setAttribute(Qt::WA_DeleteOnClose);
    fill(*menu);
    if (menu->isEmpty())
        delete menu;
    else
        menu->popup(global);
}

void offerMenu(QWidget* view, const std::function<void(QMenu& menu, const QPoint& at)>& fill) {
    view->setContextMenuPolicy(Qt::CustomContextMenu);
    QObject::connect(view, &QWidget::customContextMenuRequested, view, [view, fill](const QPoint& at) {
        const auto* scrolled = qobject_cast<QAbstractScrollArea*>(view);
        popUp(view, (scrolled ? scrolled->viewport() : view)->mapToGlobal(at),
              [&](QMenu& menu) { fill(menu, at); });
    });
}

void enableRowCopy(QAbstractItemView& view) {
    auto* copy = new QAction(QObject::tr("Copy"), &view);
    copy->setShortcut(QKeySequence::Copy);
    copy->setShortcutContext(Qt::WidgetShortcut);
    QObject::connect(copy, &QAction::triggered, &view, [&view] {
        if (!view.selectionModel()) return;
        QModelIndexList rows = view.selectionModel()->selectedRows();
        if (rows.isEmpty() && view.currentIndex().isValid()) rows.append(view.currentIndex());
        std::sort(rows.begin(), rows.end());
        QStringList lines;
        for (const QModelIndex& row : rows) {
            QStringList cells;
            for (int c = 0; c < view.model()->columnCount(row.parent()); ++c)
                cells += row.siblingAtColumn(c).data().toString();
            lines += cells.join('\t');
        }
        if (!lines.isEmpty()) copyText(lines.join('\n'));
    });
    view.addAction(copy);
}

}  // namespace shardscope::ui
