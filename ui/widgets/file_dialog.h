// Asks for a file or a directory. The dialog does not block; it belongs to `parent` and goes with it.
#pragma once

#include <QFileDialog>
#include <QString>
#include <functional>

class QWidget;

namespace shardscope::ui {

struct FileQuestion {
    QString title;
    QFileDialog::FileMode mode = QFileDialog::ExistingFile;
    bool save = false;  // a file to be written
    QString filter{};   // "Recipes (*.json)"; empty = all files
    QString start{};    // a proposal: a name, or a path to begin at
};
// `chosen` is called with the path when one is confirmed.
QFileDialog* askForFile(QWidget* parent, const FileQuestion& question,
                        const std::function<void(const QString& path)>& chosen);

// Shows the directory that holds a file in the program of the desktop for that.
void showFolderOf(QWidget* parent, const QString& path);

// Asks where to save. `write` returns an empty text, or what went wrong as a sentence; both end in a banner
// of the window of `parent`.
void askAndSave(QWidget* parent, const QString& title, const QString& start, const QString& filter,
                const std::function<QString(const QString& path)>& write);

}  // namespace shardscope::ui
