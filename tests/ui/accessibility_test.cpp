// What a screen reader finds on each page, compared with what is kept in tests/data/ui/accessibility. A page
// that was changed on purpose is accepted by running this with SHARDSCOPE_ACCEPT=1.
#include "support/accessibility.h"

#include <QAbstractButton>
#include <QComboBox>
#include <QDir>
#include <QFile>
#include <QLabel>
#include <QMenuBar>
#include <QTreeView>
#include <cmath>

#include "support/gui_test.h"
#include "ui/pages/convert_wizard.h"
#include "ui/pages/run_page.h"
#include "ui/pages/start_page.h"
#include "ui/pages/tree_panel.h"
#include "ui/widgets/painting.h"
#include "ui/widgets/run_timeline.h"
#include "ui/window/main_window.h"
#include "ui/window/open_dialog.h"
#include "ui/window/windows.h"

using namespace shardscope;
using namespace shardscope::ui;

namespace {

// WCAG 2.2, 1.4.3: from 1 to 21.
double contrast(const QColor& a, const QColor& b) {
    const auto light = [](const QColor& color) {
        const auto part = [](double c) {
            return c <= 0.04045 ? c / 12.92 : std::pow((c + 0.055) / 1.055, 2.4);
        };
        return 0.2126 * part(color.redF()) + 0.7152 * part(color.greenF()) + 0.0722 * part(color.blueF());
    };
    const double x = light(a), y = light(b);
    return (std::max(x, y) + 0.05) / (std::min(x, y) + 0.05);
}

QColor over(const QColor& below, const QColor& color, double share) {
    const auto part = [share](double a, double b) { return static_cast<float>(a + (b - a) * share); };
    return QColor::fromRgbF(part(below.redF(), color.redF()), part(below.greenF(), color.greenF()),
                            part(below.blueF(), color.blueF()));
}

}  // namespace

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

    // Texts stand out from what is behind them by 4.5:1, edges of controls from what is around them by 3:1.
    void contrastOfBothThemes() {
        for (const ThemeChoice theme : {ThemeChoice::light, ThemeChoice::dark}) {
            applyTheme(theme);
            const QPalette palette = QApplication::palette();
            const QColor window = palette.color(QPalette::Window), base = palette.color(QPalette::Base),
                         text = palette.color(QPalette::Text);
            const auto atLeast = [&](double least, const QColor& a, const QColor& b, const QString& what) {
                QVERIFY2(
                    contrast(a, b) >= least,
                    qPrintable(
                        QStringLiteral("%1, dark %2: %3").arg(what).arg(darkTheme()).arg(contrast(a, b))));
            };
            for (const QColor& behind :
                 {window, base, palette.color(QPalette::AlternateBase), panelColor()}) {
                for (const auto role :
                     {QPalette::WindowText, QPalette::Text, QPalette::Link, QPalette::PlaceholderText})
                    atLeast(4.5, palette.color(role), behind, QStringLiteral("role %1").arg(role));
                atLeast(4.5, faintTextColor(), behind, QStringLiteral("faint text"));
                for (const Verdict verdict : {Verdict::safe, Verdict::care, Verdict::unsafe})
                    atLeast(4.5, verdictColor(verdict), behind, QStringLiteral("verdict"));
                atLeast(3, edgeColor(), behind, QStringLiteral("edge"));
            }
            atLeast(4.5, palette.color(QPalette::HighlightedText), palette.color(QPalette::Highlight),
                    QStringLiteral("selection"));
            atLeast(4.5, palette.color(QPalette::ButtonText), palette.color(QPalette::Button),
                    QStringLiteral("button"));
            atLeast(4.5, palette.color(QPalette::ToolTipText), palette.color(QPalette::ToolTipBase),
                    QStringLiteral("tool tip"));
            // The strip of the verdict, and the bands of axes above the placement map and in the mesh.
            for (const Verdict verdict : {Verdict::safe, Verdict::care, Verdict::unsafe}) {
                for (const auto role : {QPalette::WindowText, QPalette::Link})
                    atLeast(4.5, palette.color(role), softened(verdictColor(verdict), 0.14),
                            QStringLiteral("strip"));
            }
            for (const AxisKind kind : {AxisKind::pipeline, AxisKind::data, AxisKind::tensor,
                                        AxisKind::expert, AxisKind::replica, AxisKind::other}) {
                atLeast(4.5, text, over(panelColor(), axisColor(kind), 0.39),
                        QStringLiteral("band of the map"));
                atLeast(4.5, text, over(base, axisColor(kind), 0.44), QStringLiteral("band of the mesh"));
            }
        }
        applyTheme(ThemeChoice::light);
    }

    // Alt and the letter of a label lead to its field, and no letter means two things at once.
    void mnemonicsOfAllPages_data() { pages_data(); }
    void mnemonicsOfAllPages() {
        QFETCH(int, page);
        showPage(page);
        QMap<QString, QStringList> meanings;
        const auto note = [&](const QString& text) {
            if (const QKeySequence key = QKeySequence::mnemonic(text); !key.isEmpty())
                meanings[key.toString()] += text;
        };
        for (const QAction* menu : window_->menuBar()->actions())
            note(menu->text());
        for (const auto* button : window_->findChildren<QAbstractButton*>()) {
            if (button->isVisible() && button->window() == window_) note(button->text());
        }
        QList<QLabel*> labels;
        for (auto* label : window_->findChildren<QLabel*>()) {
            if (label->isVisible() && label->window() == window_ && label->buddy() &&
                !QKeySequence::mnemonic(label->text()).isEmpty())
                labels += label;
        }
        for (const QLabel* label : labels)
            note(label->text());
        for (auto it = meanings.cbegin(); it != meanings.cend(); ++it)
            QVERIFY2(it->size() == 1, qPrintable(it.key() + ": " + it->join(", ")));
        window_->activateWindow();
        QVERIFY(QTest::qWaitForWindowActive(window_));
        for (const QLabel* label : labels) {
            if (!label->buddy()->isEnabled()) continue;
            const QKeySequence key = QKeySequence::mnemonic(label->text());
            QTest::keyClick(window_.data(), static_cast<Qt::Key>(key[0].key()), Qt::AltModifier);
            const QWidget* now = window_->focusWidget();
            QVERIFY2(now && (now == label->buddy() || label->buddy()->isAncestorOf(now)),
                     qPrintable(label->text()));
        }
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
