// shardscope-gui [PATH]...: the window.
#include <QApplication>
#include <QCommandLineParser>
#include <QElapsedTimer>
#include <QFontDatabase>
#include <QIcon>
#include <QSettings>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string_view>

#include "base/option_words.h"
#include "engine/request.h"
#include "engine/sample.h"
#include "ui/bridge/tasks.h"
#include "ui/widgets/theme.h"
#include "ui/window/main_window.h"
#include "ui/window/windows.h"

namespace {

#ifndef NDEBUG
constexpr qint64 kLongestHandler = 50;  // milliseconds
#endif

class Application : public QApplication {
  public:
    using QApplication::QApplication;

#ifndef NDEBUG
    // A handler that holds the GUI thread is reported with its place.
    bool notify(QObject* receiver, QEvent* event) override {
        if (depth_ > 0) return QApplication::notify(receiver, event);
        const QString name =
            QString::fromLatin1(receiver->metaObject()->className()) + ' ' + receiver->objectName();
        const int type = event->type();
        QElapsedTimer timer;
        timer.start();
        ++depth_;
        const bool handled = QApplication::notify(receiver, event);
        --depth_;
        if (timer.elapsed() > kLongestHandler)
            qWarning("the GUI thread was held for %lld ms by event %d of %s",
                     static_cast<long long>(timer.elapsed()), type, qPrintable(name));
        return handled;
    }

  private:
    int depth_ = 0;
#endif
};

// Words that are answered without a window, and so without a display.
bool asksForWords(int argc, char** argv) {
    return std::any_of(argv + 1, argv + argc, [](std::string_view word) {
        return word == "--help" || word == "-h" || word == "--help-all" || word == "--version" ||
               word == "-v";
    });
}

// What Qt would end with an abort for.
bool lacksDisplay(int argc, char** argv) {
    return qEnvironmentVariableIsEmpty("DISPLAY") && qEnvironmentVariableIsEmpty("WAYLAND_DISPLAY") &&
           qEnvironmentVariableIsEmpty("QT_QPA_PLATFORM") &&
           std::none_of(argv + 1, argv + argc, [](std::string_view word) { return word == "-platform"; });
}

}  // namespace

int main(int argc, char** argv) {
    using namespace shardscope::ui;
    // A connection whose other end is gone is an error of the write.
    std::signal(SIGPIPE, SIG_IGN);
    shardscope::wordOptions(shardscope::titledOption);
    std::unique_ptr<QCoreApplication> application;
    if (asksForWords(argc, argv)) {
        application = std::make_unique<QCoreApplication>(argc, argv);
    } else if (lacksDisplay(argc, argv)) {
        std::fputs(
            "shardscope-gui: there is no display here (neither DISPLAY nor WAYLAND_DISPLAY is set); "
            "'shardscope serve PATH' shows the same in a browser\n",
            stderr);
        return 1;
    } else {
        application = std::make_unique<Application>(argc, argv);
    }
    QCoreApplication::setOrganizationName(QStringLiteral("shardscope"));
    QCoreApplication::setApplicationName(QStringLiteral("shardscope"));
    QCoreApplication::setApplicationVersion(QStringLiteral(SHARDSCOPE_VERSION));

    QCommandLineParser parser;
    parser.setApplicationDescription(
        QCoreApplication::translate("main", "Shows, validates and converts distributed checkpoints."));
    parser.addHelpOption();
    parser.addVersionOption();
    const QCommandLineOption sample(QStringLiteral("sample"),
                                    QCoreApplication::translate("main", "Opens the sample checkpoint."));
    parser.addOption(sample);
    QList<QCommandLineOption> opening{
        {QStringLiteral("format"),
         QCoreApplication::translate("main", "Takes checkpoints as this format instead of detecting it."),
         QStringLiteral("name")},
        {QStringLiteral("variant"),
         QCoreApplication::translate("main", "Which of several checkpoints, or how it is read."),
         QStringLiteral("key=value")}};
    for (const shardscope::FormatOption& option : shardscope::formatOptions())
        opening += {QString::fromStdString(option.name).mid(2), QString::fromStdString(option.help),
                    QString::fromStdString(option.value).toLower()};
    parser.addOptions(opening);
    parser.addPositionalArgument(
        QStringLiteral("path"),
        QCoreApplication::translate(
            "main", "Checkpoints to open: directories or files, also of another host (ssh://host/path)."),
        QStringLiteral("[path...]"));
    parser.process(*application);

    QGuiApplication::setApplicationDisplayName(QStringLiteral("Shardscope"));
    QIcon icon;
    for (const char* file : {":/icons/shardscope-48.png", ":/icons/shardscope-256.png"})
        icon.addFile(QString::fromLatin1(file));
    QGuiApplication::setWindowIcon(icon);
    QGuiApplication::setDesktopFileName(QStringLiteral("io.github.shardscope.shardscope"));

    applyTheme(static_cast<ThemeChoice>(QSettings().value(QStringLiteral("window/theme"), 0).toInt()));
    int code = 0;
    {
        Windows windows;
        QStringList paths = parser.positionalArguments();
        if (parser.isSet(sample)) {
            const auto path = shardscope::sampleCheckpoint();
            if (path.ok())
                paths.prepend(QString::fromStdString(*path));
            else
                std::fprintf(stderr, "shardscope-gui: %s\n", shardscope::describe(path.error()).c_str());
        }
        if (paths.isEmpty()) windows.newWindow()->show();
        QStringList words;
        for (const QCommandLineOption& option : opening) {
            for (const QString& value : parser.values(option))
                words << "--" + option.names().front() << value;
        }
        const SourceOptions options = SourceOptions::fromWords(words);
        for (const QString& path : paths)
            windows.open(path, nullptr, options);
        code = QApplication::exec();
    }
    // A thread that waits for a file system that does not answer must not keep the program.
    constexpr int kLongestEnd = 10'000;  // milliseconds
    if (!Tasks::waitForAll(kLongestEnd)) std::_Exit(code);
    return code;
}
