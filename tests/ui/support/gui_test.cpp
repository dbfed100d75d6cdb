#include "support/gui_test.h"

#include <QApplication>
#include <QDir>
#include <QFile>
#include <QFileInfo>
#include <QStandardPaths>
#include <csignal>
#include <ctime>

namespace shardscope::ui {

namespace {

QTemporaryDir& home() {
    static QTemporaryDir directory;
    return directory;
}

class FixedEngine final : public ScriptedEngine {};

}  // namespace

void prepareGuiTest(int&, char**) {
    std::signal(SIGPIPE, SIG_IGN);  // as the program does
    const QByteArray base = home().path().toLocal8Bit();
    for (const char* name :
         {"XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"})
        qputenv(name, base + "/" + QByteArray(name).toLower());
    QDir().mkpath(home().path() + "/xdg_runtime_dir");
    QFile::setPermissions(home().path() + "/xdg_runtime_dir",
                          QFile::ReadOwner | QFile::WriteOwner | QFile::ExeOwner);
    if (qEnvironmentVariableIsEmpty("QT_QPA_PLATFORM")) qputenv("QT_QPA_PLATFORM", "offscreen");
    // packaging/screenshots --scale 2 looks at what a display of many pixels shows.
    qputenv("QT_SCALE_FACTOR", qEnvironmentVariable("SHARDSCOPE_SCALE", QStringLiteral("1")).toLatin1());
    QCoreApplication::setOrganizationName(QStringLiteral("shardscope"));
    QCoreApplication::setApplicationName(QStringLiteral("shardscope"));
}

std::unique_ptr<Session> openSession(const QString& path, std::shared_ptr<EngineService> engine) {
    auto session = std::make_unique<Session>(std::move(engine));
    session->open(path);
    [&] {
        QTRY_VERIFY_WITH_TIMEOUT(session->state() == Session::State::failed ||
                                     session->state() == Session::State::run || session->hasFacts(),
                                 120'000);
    }();
    return session;
}

std::unique_ptr<Session> openSynthetic(std::shared_ptr<const Catalog> catalog) {
    auto engine = std::make_shared<FixedEngine>();
    engine->catalog = std::move(catalog);
    return openSession(QStringLiteral("synthetic"), engine);
}

QString sampleCheckpoint() {
    // A copy elsewhere, so that pictures do not show where the source is stored.
    return qEnvironmentVariable("SHARDSCOPE_SAMPLE_COPY", QStringLiteral(SHARDSCOPE_SAMPLE));
}

QString genuineCheckpoint(const QString& id) {
    return QStringLiteral(SHARDSCOPE_TEST_DATA "/genuine/%1/ckpt").arg(id);
}

QString copyCheckpoint(const QString& path) {
    static int count = 0;
    const QString target =
        home().path() + QStringLiteral("/copy%1/").arg(++count) + QFileInfo(path).fileName();
    QDir().mkpath(target);
    const QDir source(path);
    for (const QFileInfo& file : source.entryInfoList(QDir::Files | QDir::Hidden))
        QFile::copy(file.filePath(), target + '/' + file.fileName());
    return target;
}

void settle() {
    // An answer may begin more work.
    for (int round = 0; round < 5; ++round) {
        Tasks::waitForAll();
        QCoreApplication::processEvents();
    }
}

double threadMilliseconds() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return 1e3 * static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e6;
}

QImage shoot(QWidget& widget, const QString& name) {
    const QImage image = widget.grab().toImage();
    const QString directory = qEnvironmentVariable("SHARDSCOPE_SCREENSHOTS");
    if (!directory.isEmpty()) {
        QDir().mkpath(directory);
        image.save(directory + '/' + name + ".png");
    }
    return image;
}

QImage picture(QWidget& widget, const QString& name) {
    // Layouts and palettes follow one another through the event loop; what moves by itself is taken as it is.
    QImage before = widget.grab().toImage();
    for (int round = 0; round < 10; ++round) {
        QCoreApplication::processEvents();
        QImage now = widget.grab().toImage();
        if (now == before) break;
        before = std::move(now);
    }
    return shoot(widget, name);
}

}  // namespace shardscope::ui
