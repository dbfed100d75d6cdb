// What people come for, done as a new user would: each task takes at most five clicks from the open
// checkpoint. The pictures on the way are the frames of the animation in the README (packaging/screenshots).
#include <QLabel>
#include <QLineEdit>
#include <QListWidget>
#include <QProcess>
#include <QTableView>
#include <QTemporaryDir>
#include <QTextBrowser>
#include <QTreeView>

#include "support/window_fixture.h"
#include "ui/pages/convert_wizard.h"
#include "ui/pages/findings_panel.h"
#include "ui/pages/placement_page.h"
#include "ui/pages/run_page.h"
#include "ui/pages/verdict_strip.h"
#include "ui/widgets/placement_map.h"

using namespace shardscope;
using namespace shardscope::ui;

class WalkthroughTest : public QObject, WindowFixture {
    Q_OBJECT

    static constexpr int kMostClicks = 5;
    int clicks_ = 0, frames_ = 0;
    QString task_;

    void clickAt(QWidget* widget, const QPoint& at) {
        QTest::mouseClick(widget, Qt::LeftButton, {}, at);
        ++clicks_;
    }
    void clickOn(QWidget* widget) {
        QVERIFY(widget && widget->isVisible() && widget->isEnabled());
        clickAt(widget, widget->rect().center());
    }
    void clickItem(QAbstractItemView& view, const QModelIndex& index) {
        QVERIFY(index.isValid());
        clickAt(view.viewport(), view.visualRect(index).center());
    }
    void frame(QWidget& widget) { picture(widget, QStringLiteral("walk-%1-%2").arg(task_).arg(++frames_)); }
    static bool anyWindowShows(const QString& text) {
        const auto windows = QApplication::topLevelWidgets();
        return std::any_of(windows.begin(), windows.end(),
                           [&](const QWidget* window) { return shownText(*window).contains(text); });
    }
    void begin(const QString& task) {
        task_ = task;
        clicks_ = frames_ = 0;
        start();
    }

  private slots:
    void cleanup() { end(); }

    void whyARunCannotBeResumed() {
        begin(QStringLiteral("resume"));
        open(qEnvironmentVariable("SHARDSCOPE_INDEX_COPY", SHARDSCOPE_TEST_DATA "/index/llama3-8b.ssidx"),
             {1280, 800});
        frame(*window_);
        // The answer and its cause stand there without a click.
        const auto* strip = window_->findChild<VerdictStrip*>();
        QCOMPARE(strip->headline(), QStringLiteral("Do not resume"));
        QVERIFY2(strip->causes().contains("__17_0.distcp is truncated"), qPrintable(strip->causes()));
        // So does the rank; one click on the cause leads to the file.
        QVERIFY2(strip->causes().contains("rank 17"), qPrintable(strip->causes()));
        auto* causes = strip->findChild<QLabel*>("causes");
        QVERIFY(causes && causes->isVisible());
        clickAt(causes, {8, causes->fontMetrics().height() / 2});
        QCOMPARE(clicks_, 1);
        const Selected& there = session().selection().current();
        QVERIFY(there.file != kNone);
        QCOMPARE(QString::fromStdString(session().catalog().files()[there.file].path),
                 QStringLiteral("__17_0.distcp"));
        QCOMPARE(there.page, Page::files);
        QVERIFY2(shownText(*window_).contains("__17_0.distcp"), "the file is named where the click led");
        session().selection().back();
        clicks_ = 0;
        auto* findings = window_->findings().findChild<QTreeView*>();
        clickItem(*findings, findings->model()->index(0, 0));
        const QString why = window_->findings().findChild<QTextBrowser*>()->toPlainText();
        QVERIFY2(why.contains("__17_0.distcp"), qPrintable(why));
        frame(*window_);
        // Where it is on the map, and which tensors it costs.
        QTest::keyClick(window_, Qt::Key_F8);
        session().selection().setPage(Page::placement);
        const PlacementMap& map = window_->findChild<PlacementPage*>()->map();
        QTRY_VERIFY_WITH_TIMEOUT(map.matrix() && map.matrix()->facts() == session().facts(), 60'000);
        frame(*window_);
        session().selection().setPage(Page::tensor);
        frame(*window_);
        QVERIFY2(clicks_ <= kMostClicks, qPrintable(QString::number(clicks_)));
        qInfo("%d clicks", clicks_);
    }

    void convertToFourTensorParallelRanks() {
        begin(QStringLiteral("convert"));
        open(qEnvironmentVariable("SHARDSCOPE_SAMPLE_COPY", sampleCheckpoint()), {1280, 800});
        clickOn(shownButton(*window_->findChild<VerdictStrip*>(), QStringLiteral("Convert…")));
        auto* wizard = window_->findChild<ConvertWizard*>();
        QVERIFY(wizard && QTest::qWaitForWindowExposed(wizard));
        QTemporaryDir directory;
        const QString destination = directory.filePath(QStringLiteral("tp4"));
        ConversionSpec spec = wizard->spec();
        spec.destination = destination;  // the proposal is beside the source
        wizard->setSpec(spec);
        auto* steps = wizard->findChild<QListWidget*>();
        clickItem(*steps, steps->model()->index(kWizardPagePlacement, 0));
        clickOn(shownButton(*wizard, QStringLiteral("Tensor parallel")));
        // The size is selected and has the keyboard.
        QTest::keyClicks(
            QApplication::focusWidget() ? QApplication::focusWidget() : wizard->findChild<QLineEdit*>("mesh"),
            QStringLiteral("4"));
        QCOMPARE(wizard->spec().mesh, QStringLiteral("tp=4"));
        QCOMPARE(wizard->spec().shard.size(), 2);
        frame(*wizard);
        clickItem(*steps, steps->model()->index(kWizardPagePlan, 0));
        QTRY_VERIFY2_WITH_TIMEOUT(wizard->findChild<QPushButton*>("start")->isEnabled(),
                                  qPrintable(wizard->findChild<QLabel*>("wizardStatus")->text()), 60'000);
        frame(*wizard);
        clickOn(wizard->findChild<QPushButton*>("start"));
        QVERIFY2(clicks_ <= kMostClicks, qPrintable(QString::number(clicks_)));
        qInfo("%d clicks", clicks_);
        QTRY_VERIFY_WITH_TIMEOUT(QFileInfo::exists(destination + "/.metadata"), 60'000);
        QTRY_VERIFY_WITH_TIMEOUT(
            !windows_->jobs().jobs().empty() && !windows_->jobs().jobs().front()->active(), 60'000);
    }

    void compareTwoSteps() {
        begin(QStringLiteral("compare"));
        QTemporaryDir run;
        for (const char* step : {"step-100", "step-200"})
            QCOMPARE(QProcess::execute("cp", {"-r", sampleCheckpoint(), run.filePath(step)}), 0);
        open(run.path(), {1280, 800});
        auto* page = window_->findChild<RunPage*>();
        QTRY_COMPARE_WITH_TIMEOUT(page->table().model()->rowCount(), 2, 60'000);
        clickItem(page->table(), page->table().model()->index(0, 0));
        const QRect other = page->table().visualRect(page->table().model()->index(1, 0));
        QTest::mouseClick(page->table().viewport(), Qt::LeftButton, Qt::ControlModifier, other.center());
        ++clicks_;
        clickOn(shownButton(*page, QStringLiteral("Compare")));
        QTRY_VERIFY_WITH_TIMEOUT(anyWindowShows(QStringLiteral("Equal as far as metadata tells")), 60'000);
        QVERIFY2(clicks_ <= kMostClicks, qPrintable(QString::number(clicks_)));
        qInfo("%d clicks", clicks_);
    }
};

SHARDSCOPE_GUI_TEST_MAIN(WalkthroughTest)
#include "walkthrough_test.moc"
