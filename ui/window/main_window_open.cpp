// Opening by menu, dialog and drop, what goes on once it is open, and saving the index; the rest of the
// window is in main_window.cpp.
#include <QDragEnterEvent>
#include <QFileInfo>
#include <QMimeData>
#include <QUrl>

#include "engine/sample.h"
#include "storage/url.h"
#include "ui/bridge/hosts.h"
#include "ui/models/recents.h"
#include "ui/models/texts.h"
#include "ui/pages/compare_page.h"
#include "ui/pages/convert_wizard.h"
#include "ui/pages/start_page.h"
#include "ui/widgets/banner.h"
#include "ui/widgets/file_dialog.h"
#include "ui/window/main_window.h"
#include "ui/window/open_dialog.h"
#include "ui/window/windows.h"

namespace shardscope::ui {

void MainWindow::openPath(const QString& path, const SourceOptions& options) {
    windows_.open(path, this, options);
}

// The last step is the source.
void MainWindow::average(const QStringList& steps) {
    openThen(steps.back(), [others = steps.first(steps.size() - 1)](MainWindow& window) {
        ConvertWizard* const wizard = window.convert();
        if (!wizard) return;
        ConversionSpec spec = wizard->spec();
        spec.average = others;
        spec.destination.clear();
        wizard->setSpec(spec);
    });
}

// The older step is A.
void MainWindow::compare(const QStringList& steps) {
    openThen(steps.front(), [other = steps.back()](MainWindow& window) {
        window.session().selection().setPage(Page::compare);
        auto* page = window.findChild<ComparePage*>();
        page->setOtherPath(other);
        page->compare();
    });
}

// Steps are opened as their run was.
void MainWindow::openThen(const QString& path, std::function<void(MainWindow&)> then) {
    if (path.isEmpty()) return;
    MainWindow* const window =
        windows_.open(path, this, session_->run() ? session_->options() : SourceOptions());
    if (window) window->whenOpened([window, then = std::move(then)] { then(*window); });
}

void MainWindow::whenOpened(std::function<void()> then) {
    disconnect(opened_);
    if (session_->state() == Session::State::opening) {
        opened_ = connect(session_.get(), &Session::stateChanged, this, [this, then] { whenOpened(then); });
        return;
    }
    if (session_->checkpoint()) then();
}

// Asks once: what is answered, or opened, is remembered for the path.
void MainWindow::offerOtherFormats() {
    const QString path = session_->path();
    if (session_->otherFormats().empty() || !Recents::chosenFormat(path).isEmpty()) return;
    const auto title = [](const Format* format) { return toQString(format->info().title); };
    const Format* now = session_->checkpoint()->format;
    QStringList others;
    std::vector<Banner::Action> actions{{tr("Keep %1").arg(toQString(now->info().name)), [this, path, now] {
                                             Recents::chooseFormat(path, toQString(now->info().name));
                                             banner_->clear(QStringLiteral("formats"));
                                         }}};
    for (const FormatMatch& other : session_->otherFormats()) {
        others += title(other.format);
        const QString name = toQString(other.format->info().name);
        actions.push_back({tr("Open as %1").arg(name), [this, path, name] {
                               Recents::chooseFormat(path, name);
                               SourceOptions options = session_->options();
                               options.format = name;
                               session_->open(path, options);
                           }});
    }
    banner_->show(BannerKind::info,
                  tr("Several formats fit. This was opened as %1; it can be read as %2, too.")
                      .arg(title(now), others.join(tr(" or "))),
                  std::move(actions), QStringLiteral("formats"));
}

namespace {

// In a bucket, on the hub or on a web server.
bool isPlace(const QString& path) {
    return !schemeOf(path.toStdString()).empty();
}

}  // namespace

OpenDialog* MainWindow::openWithOptions() {
    return showOpenDialog(hostOf(session_->path()).isEmpty() ? OpenDialog::Where::here
                                                             : OpenDialog::Where::otherHost);
}

OpenDialog* MainWindow::openPlace() {
    return showOpenDialog(OpenDialog::Where::place);
}

OpenDialog* MainWindow::openOnHost() {
    return showOpenDialog(OpenDialog::Where::otherHost);
}

OpenDialog* MainWindow::showOpenDialog(OpenDialog::Where where) {
    QStringList hosts;
    for (const Recent& recent : windows_.recents().list()) {
        if (const QString host = hostOf(recent.path); !host.isEmpty() && !hosts.contains(host)) hosts += host;
    }
    // What is open here is no start for the address of a place.
    const bool elsewhere = where == OpenDialog::Where::place && !isPlace(session_->path());
    auto* dialog = new OpenDialog(where, elsewhere ? QString() : session_->path(),
                                  elsewhere ? SourceOptions{} : session_->options(), hosts, this);
    connect(dialog, &OpenDialog::openRequested, this,
            [this](const QString& path, const SourceOptions& options) {
                const QString absolute = withoutSecrets(wholePath(path));
                // Here is the place to think again about what was once chosen.
                if (!Recents::chosenFormat(absolute).isEmpty())
                    Recents::chooseFormat(absolute, options.format);
                openPath(path, options);
            });
    dialog->show();
    return dialog;
}

void MainWindow::saveIndex() {
    askForFile(
        this,
        {tr("Save the index of this checkpoint"), QFileDialog::AnyFile, true,
         tr("Shardscope index (*.ssidx)"), QFileInfo(session_->path()).fileName() + QStringLiteral(".ssidx")},
        [this](const QString& path) { saveIndexAs(path); });
}

// For a file that exists the dialog has asked already.
void MainWindow::saveIndexAs(const QString& file) {
    if (!session_->checkpoint()) return;
    indexTicket_ = session_->tasks().run<uint64_t>(
        Work::metadata, tr("Saving the index"),
        [engine = session_->enginePtr(), checkpoint = session_->checkpoint(), path = file.toStdString()](
            const TaskContext& context) { return engine->saveIndex(checkpoint, path, true, context); },
        [this, file](Result<uint64_t> answer) {
            if (answer.ok()) {
                const QString text = tr("Saved the index as '%1' (%2).").arg(file, sizeText(*answer));
                log(Severity::info, text);
                banner_->show(BannerKind::info, text);
            } else if (answer.error().code != ErrorCode::cancelled) {
                log(Severity::error, errorSentence(answer.error()));
                banner_->show(BannerKind::error, errorText(answer.error()));
            }
        });
}

void MainWindow::chooseDirectory() {
    askForFile(this, {tr("Open a checkpoint directory"), QFileDialog::Directory},
               [this](const QString& path) { openPath(path); })
        ->setOption(QFileDialog::ShowDirsOnly, false);
}

void MainWindow::chooseFile() {
    askForFile(this, {tr("Open a checkpoint file")}, [this](const QString& path) {
        openPath(path);
    })->setFilter(QDir::AllEntries | QDir::Hidden | QDir::NoDotAndDotDot);
}

void MainWindow::openSample() {
    const auto path = sampleCheckpoint();
    if (path.ok())
        openPath(toQString(*path));
    else
        banner_->show(BannerKind::error, errorText(path.error()));
}

void MainWindow::dragEnterEvent(QDragEnterEvent* event) {
    if (!event->mimeData()->hasUrls() && !event->mimeData()->hasText()) return;
    event->acceptProposedAction();
    start_->setDropHighlight(true);
}

void MainWindow::dragLeaveEvent(QDragLeaveEvent*) {
    start_->setDropHighlight(false);
}

void MainWindow::dropEvent(QDropEvent* event) {
    start_->setDropHighlight(false);
    QStringList paths;
    for (const QUrl& url : event->mimeData()->urls()) {
        if (url.isLocalFile())
            paths += url.toLocalFile();
        else if (isPlace(url.toString(QUrl::FullyEncoded)))
            paths += url.toString(QUrl::PrettyDecoded);
    }
    if (paths.isEmpty() && event->mimeData()->hasText()) {
        const QString text = event->mimeData()->text().trimmed();
        if (QDir::isAbsolutePath(text) || !hostOf(text).isEmpty() || isPlace(text)) paths += text;
    }
    if (paths.isEmpty()) {
        banner_->show(BannerKind::warning,
                      tr("What was dropped is not a file or directory of this machine, and no ssh://, s3://, "
                         "gs://, hf:// or https:// path."));
        return;
    }
    event->acceptProposedAction();
    for (const QString& path : paths)
        openPath(path);
}

}  // namespace shardscope::ui
