// What a screen reader finds on each page, compared with what is kept in tests/data/ui/accessibility. A page
// that was changed on purpose is accepted by running this with SHARDSCOPE_ACCEPT=1.
#include "support/accessibility.h"

#include <QComboBox>
#include <QDir>
#include <QFile>
#include <QTreeView>

#include "support/gui_test.h"
#include "ui/pages/convert_wizard.h"
#include "ui/pages/run_page.h"
#include "ui/pages/start_page.h"
#include "ui/pages/tree_panel.h"
#include "ui/widgets/run_timeline.h"
#include "ui/window/main_window.h"
#include "ui/window/open_dialog.h"
#include "ui/window/windows.h"

using namespace shardscope;
using namespace shardscope::ui;

class AccessibilityTest : public QObject {
    Q_OBJECT

    std::unique_ptr<Windows> windows_;
    QPointer<MainWindow> window_;

    static void compare(QWidget& root, const QString& name) {
        settle();
        const auto now = [&] {
            QString text = accessibleControls(root).join('\n') + '\n';
            return text.replace(sampleCheckpoint(), QStringLiteral("SAMPLE"));
        };
        QFile kept(QStringLiteral(SHARDSCOPE_TEST_DATA "/ui/accessibility/%1.txt").arg(name));
        if (qEnvironmentVariableIsSet("SHARDSCOPE_ACCEPT")) {
            QVERIFY(kept.open(QIODevice::WriteOnly) && kept.write(now().toUtf8()) > 0);
            return;
        }
        QVERIFY2(kept.open(QIODevice::ReadOnly), qPrintable(kept.fileName()));
        const QString expected = QString::fromUtf8(kept.readAll());
        // What is worked out beside the GUI thread may come later on a busy machine.
        for (int i = 0; i < 100 && now() != expected; ++i)
            QTest::qWait(50);
        const QStringList nameless = namelessControls(root) + namelessByKeyboard(root);
        QVERIFY2(nameless.isEmpty(), qPrintable(name + ": " + nameless.join(", ")));
        const QString actual = now();
        if (actual == expected) return;
        const QStringList lines = actual.split('\n'), before = expected.split('\n');
        qsizetype line = 0;
        while (line < lines.size() && line < before.size() && lines[line] == before[line])
            ++line;
        QFAIL(qPrintable(QStringLiteral("%1, line %2: '%3' instead of '%4'; all of it now:\n%5")
                             .arg(name)
                             .arg(line + 1)
                             .arg(lines.value(line), before.value(line), actual)));
    }

    // Of the sample with its first tensor, whichever test comes first.
    void showPage(int page) {
        if (!window_->session().checkpoint()) {
            window_->openPath(sampleCheckpoint());
            QTRY_VERIFY_WITH_TIMEOUT(window_->session().hasFacts(), 120'000);
            window_->session().selection().selectTensor(0);
        }
        window_->session().selection().setPage(static_cast<Page>(page));
        settle();
        QCOMPARE(window_->tabs().currentIndex(), page);
    }

  private slots:
    void initTestCase() {
        windows_ = std::make_unique<Windows>();
        window_ = windows_->newWindow();
        window_->resize(1440, 900);
        window_->show();
        QVERIFY(QTest::qWaitForWindowExposed(window_));
    }
    void cleanupTestCase() { windows_.reset(); }

    void start() { compare(*window_, QStringLiteral("start")); }

    void pages_data() {
        QTest::addColumn<int>("page");
        QTest::addColumn<QString>("name");
        const char* const names[] = {"overview", "placement", "tensor", "files", "compare", "objects"};
        for (int i = 0; i < 6; ++i)
            QTest::newRow(names[i]) << i << QString::fromLatin1(names[i]);
    }
    void pages() {
        QFETCH(int, page);
        QFETCH(QString, name);
        showPage(page);
        compare(*window_, name);
    }

    void openDialog() { compare(*window_->openWithOptions(), QStringLiteral("open-dialog")); }

    void run() {
        QTemporaryDir dir;
        for (const char* name : {"/step-1", "/step-2"}) {
            QVERIFY(QDir().mkpath(dir.path() + name));
            for (const QString& file : QDir(sampleCheckpoint()).entryList(QDir::Files | QDir::Hidden))
                QVERIFY(QFile::copy(sampleCheckpoint() + '/' + file, dir.path() + name + '/' + file));
        }
        MainWindow* const window = windows_->newWindow();
        window->show();
        window->openPath(dir.path());
        RunPage& page = window->startPage().runPage();
        page.steps().setTimes(std::chrono::hours(1), std::chrono::seconds(0));
        QTRY_VERIFY_WITH_TIMEOUT(page.steps().newestWhole() == 0, 120'000);
        compare(page, QStringLiteral("run"));
        QCOMPARE(page.timeline().accessibleName(), QStringLiteral("Timeline of the run"));
        QVERIFY(page.timeline().accessibleDescription().contains("the newest whole step is step-2"));
        window->close();
    }

    // Nothing takes the focus with the mouse only (texts that can be selected do).
    void keyboardReachesEveryControl_data() { pages_data(); }
    void keyboardReachesEveryControl() {
        QFETCH(int, page);
        showPage(page);
        QWidget* current = window_->tabs().currentWidget();
        QSet<QWidget*> reached;
        QWidget* at = window_;
        for (int i = 0; i < 2000; ++i) {
            at = at->nextInFocusChain();
            if (at == window_) break;
            if (at->isVisible() && at->isEnabled() && (at->focusPolicy() & Qt::TabFocus)) reached.insert(at);
        }
        for (QWidget* widget : current->findChildren<QWidget*>()) {
            if (!widget->isVisible() || !widget->isEnabled() || widget->focusPolicy() == Qt::NoFocus)
                continue;
            // Parts of a control that is reached itself.
            if (widget->focusProxy() || widget->inherits("QTabBar") || widget->inherits("QScrollBar") ||
                widget->inherits("QLabel") || qobject_cast<QComboBox*>(widget->parentWidget()))
                continue;
            QVERIFY2(reached.contains(widget),
                     qPrintable(QStringLiteral("%1 '%2'").arg(widget->metaObject()->className(),
                                                              widget->accessibleName())));
        }
        int onPage = 0;
        for (const QWidget* widget : reached)
            onPage += current->isAncestorOf(widget);
        QVERIFY2(onPage > 0, "nothing on the page is reached");
    }
};

SHARDSCOPE_GUI_TEST_MAIN(AccessibilityTest)
#include "accessibility_test.moc"
