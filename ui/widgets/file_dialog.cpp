#include "ui/widgets/file_dialog.h"

#include <QDesktopServices>
#include <QFileInfo>
#include <QUrl>

#include "ui/widgets/banner.h"

namespace shardscope::ui {

QFileDialog* askForFile(QWidget* parent, const FileQuestion& question,
                        const std::function<void(const QString& path)>& chosen) {
    auto* dialog = new QFileDialog(parent, question.title);
    dialog->setAttribute(Qt::WA_DeleteOnClose);
    if (question.save) {
        dialog->setAcceptMode(QFileDialog::AcceptSave);
        dialog->setDefaultSuffix(QFileInfo(question.start).suffix());
    } else {
        dialog->setFileMode(question.mode);
    }
    if (!question.filter.isEmpty()) dialog->setNameFilter(question.filter);
    if (!question.start.isEmpty()) {
        const QFileInfo start(question.start);
        if (start.isAbsolute()) dialog->setDirectory(start.absolutePath());
        dialog->selectFile(start.fileName());
    }
    QObject::connect(dialog, &QFileDialog::fileSelected, parent, chosen);
    dialog->open();
    return dialog;
}

void showFolderOf(QWidget* parent, const QString& path) {
    const QString folder = QFileInfo(path).absolutePath();
    if (!QDesktopServices::openUrl(QUrl::fromLocalFile(folder)))
        showBanner(parent, BannerKind::warning,
                   QFileDialog::tr("No program was found to show '%1'.").arg(folder));
}

void askAndSave(QWidget* parent, const QString& title, const QString& start, const QString& filter,
                const std::function<QString(const QString& path)>& write) {
    askForFile(parent, {title, QFileDialog::AnyFile, true, filter, start},
               [parent, write](const QString& path) {
                   const QString problem = write(path);
                   if (problem.isEmpty())
                       showBanner(parent, BannerKind::info, QFileDialog::tr("Saved as '%1'.").arg(path));
                   else
                       showBanner(parent, BannerKind::error, problem);
               });
}

}  // namespace shardscope::ui
