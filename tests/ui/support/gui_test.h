// What tests of the window share: a main that makes every run look alike, and ways to wait and to look.
#pragma once

#include <QDir>
#include <QTemporaryDir>
#include <QTest>

#include "support/scripted_engine.h"
#include "support/synthetic_catalog.h"
#include "ui/models/session.h"
#include "ui/widgets/theme.h"

namespace shardscope::ui {

// Style, palette, font and standard paths of a test run; settings and state go to a temporary directory.
void prepareGuiTest(int& argc, char** argv);

// A session with `path` open and its facts worked out; fails the test when that takes more than 20 s.
std::unique_ptr<Session> openSession(const QString& path,
                                     std::shared_ptr<EngineService> engine = localEngine());
// A session over a catalog that lies nowhere.
std::unique_ptr<Session> openSynthetic(std::shared_ptr<const Catalog> catalog);

QString sampleCheckpoint();                    // the one that is shipped
QString genuineCheckpoint(const QString& id);  // "dcp/<case>", as in tests/data/genuine
// A copy of a checkpoint that may be damaged, in a temporary directory that lives as long as the program.
QString copyCheckpoint(const QString& path);

// A page as large as a window's middle, shown.
template <class Page>
std::unique_ptr<Page> pageOf(Session& session, QSize size = {1280, 720}) {
    auto page = std::make_unique<Page>(session);
    page->resize(size);
    page->show();
    [&] { QVERIFY(QTest::qWaitForWindowExposed(page.get())); }();
    return page;
}

// Waits until the work that was begun is done and shown. Not for a test that holds some of it back.
void settle();
// Processor time of this thread so far, in milliseconds: for ceilings that hold on a busy machine.
double threadMilliseconds();

// Grabs a widget; with SHARDSCOPE_SCREENSHOTS=DIR in the environment the picture is kept there as NAME.png.
QImage shoot(QWidget& widget, const QString& name);
// The same once it does not change any more.
QImage picture(QWidget& widget, const QString& name);

// New directories, gone with the test.
class FreshDirectories {
  protected:
    QString fresh() {
        const QString path = directory_.filePath(QString::number(++count_));
        QDir().mkpath(path);
        return path;
    }

    QTemporaryDir directory_;

  private:
    int count_ = 0;
};

}  // namespace shardscope::ui

#define SHARDSCOPE_GUI_TEST_MAIN(Class)                   \
    int main(int argc, char** argv) {                     \
        shardscope::ui::prepareGuiTest(argc, argv);       \
        QApplication application(argc, argv);             \
        shardscope::ui::applyTheme(ThemeChoice::light);   \
        Class test;                                       \
        const int code = QTest::qExec(&test, argc, argv); \
        shardscope::ui::Tasks::waitForAll();              \
        return code;                                      \
    }
