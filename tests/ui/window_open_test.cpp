// What the window opens, how a reading stops and goes on, and what it remembers.
#include <QComboBox>
#include <QDockWidget>
#include <QDropEvent>
#include <QMimeData>
#include <QScreen>
#include <QTableView>
#include <QToolButton>

#include "support/accessibility.h"
#include "support/http_server.h"
#include "support/window_fixture.h"
#include "ui/models/report_export.h"
#include "ui/models/texts.h"
#include "ui/pages/convert_wizard.h"
#include "ui/pages/findings_panel.h"
#include "ui/pages/ready_panel.h"
#include "ui/pages/run_page.h"
#include "ui/pages/start_page.h"
#include "ui/pages/wizard_parts.h"
#include "ui/widgets/banner.h"
#include "ui/window/open_dialog.h"

using namespace shardscope;
using namespace shardscope::ui;
using shardscope::test::FakeBucket;

namespace {

// Stops a reading of all values when so many chunks are read; 0 = never.
class PartialEngine : public ScriptedEngine {
  public:
    std::atomic<uint64_t> limit{0};

    Result<ValidationReport> validate(const CheckpointPtr& checkpoint, const ValidateOptions& options,
                                      const CheckpointPtr& expect, const TaskContext& context) override {
        if (!options.scan || limit == 0)
            return ScriptedEngine::validate(checkpoint, options, expect, context);
        const auto stop = std::make_shared<StopSource>();
        auto part = std::make_shared<Checkpoint>(*checkpoint);
        part->reader = std::make_shared<StoppingReader>(checkpoint->reader, *options.scan, limit, stop);
        TaskContext stopped = context;
        stopped.stop = *stop;
        auto report = ScriptedEngine::validate(part, options, expect, stopped);
        return report;
    }

  private:
    class StoppingReader final : public Reader {
      public:
        StoppingReader(std::shared_ptr<const Reader> inner, const ValueScan& scan, uint64_t limit,
                       std::shared_ptr<StopSource> stop)
            : inner_(std::move(inner)), scan_(scan), limit_(limit), stop_(std::move(stop)) {}
        const Catalog& catalog() const override { return inner_->catalog(); }
        Result<Extent> locate(ChunkId chunk) const override {
            if (scan_.chunksRead() >= limit_) stop_->requestStop();
            return inner_->locate(chunk);
        }
        Result<Value> objectValue(ObjectId object) const override { return inner_->objectValue(object); }
        Result<std::vector<Note>> fileNotes() const override { return inner_->fileNotes(); }
        Result<std::shared_ptr<const ReadFile>> openFile(FileId file) const override {
            return inner_->openFile(file);
        }

      private:
        std::shared_ptr<const Reader> inner_;
        const ValueScan& scan_;
        uint64_t limit_;
        std::shared_ptr<StopSource> stop_;
    };
};

}  // namespace

class WindowOpenTest : public QObject, protected WindowFixture {
    Q_OBJECT

    QString damagedSample(const QString& broken = {}) {
        const QString copy = copyCheckpoint(sampleCheckpoint());
        const QDir dir(copy);
        const QStringList data = dir.entryList({"*.distcp"}, QDir::Files);
        if (broken.isEmpty())
            QFile::resize(copy + '/' + data.last(), QFileInfo(copy + '/' + data.last()).size() / 2);
        return copy;
    }

    QToolButton* toolButton(const QString& text) {
        for (auto* button : window_->findChildren<QToolButton*>()) {
            if (button->text() == text) return button;
        }
        return nullptr;
    }

  private slots:
    void init() { start(); }

    void cleanup() { end(); }

    // Opening a damaged checkpoint shows what is there; the findings lead to the broken tensor.
    void damagedSample_findTheBrokenTensor() {
        open(damagedSample());
        QCOMPARE(window_->session().state(), Session::State::open);
        QVERIFY(window_->session().facts()->damagedTensors > 0);
        actionOf(*window_, "Validate files and headers")->trigger();
        QTRY_VERIFY_WITH_TIMEOUT(
            window_->session().validation().report() && !window_->session().validation().running(), 120'000);
        QCOMPARE(window_->session().validation().report()->verdict, Verdict::unsafe);
        FindingsPanel& findings = window_->findings();
        QVERIFY(findings.model().errors() > 0);
        QVERIFY(toolButton("Findings  ✕ 1"));
        // The first F8 goes to the first finding, which is about a file.
        QTest::keyClick(window_, Qt::Key_F8);
        const TensorId t = window_->session().selection().current().tensor;
        QVERIFY(t != kNone);
        QVERIFY(window_->session().facts()->tensorHealth[t] >= Health::missing);
        QCOMPARE(findings.view().currentIndex().row(), 0);
        QCOMPARE(window_->tabs().currentIndex(), static_cast<int>(Page::files));
        for (int i = 0; i < 4; ++i) {
            window_->tabs().setCurrentIndex(i);
            settle();
            shoot(*window_, QStringLiteral("damaged-%1").arg(i));
        }
        QCOMPARE(windows_->recents().list()[0].verdict, QStringLiteral("unsafe"));
        // As a table for other programs: a line for each example.
        QTemporaryDir out;
        QCOMPARE(writeReport(window_->session(), windows_->suppressions(), ReportForm::csv,
                             out.filePath("findings.csv")),
                 QString());
        QFile csv(out.filePath("findings.csv"));
        QVERIFY(csv.open(QIODevice::ReadOnly));
        const QList<QByteArray> lines = csv.readAll().trimmed().split('\n');
        QVERIFY(lines[0].startsWith("rule,severity,count,message,cause,accepted,tensor,rank,file,"));
        qsizetype examples = 0;
        for (const Finding& finding : window_->session().validation().report()->findings)
            examples += std::max<qsizetype>(1, static_cast<qsizetype>(finding.examples.size()));
        QCOMPARE(lines.size() - 1, examples);
        QVERIFY(lines[1].startsWith(
            QByteArray::fromStdString(window_->session().validation().report()->findings[0].rule + ",")));
        // The filter finds the same ones.
        window_->session().selection().setFilter("status:bad");
        QTRY_COMPARE(window_->session().filtered().tensors().size(),
                     window_->session().facts()->damagedTensors);
    }

    void jobsFromARunTakeTheChosenStep_data() {
        QTest::addColumn<QString>("action");
        QTest::newRow("validate") << "Validate every value";
        QTest::newRow("convert") << "Convert or reshard…";
    }
    // From the page of a run, not the newest step but the one that is chosen.
    void jobsFromARunTakeTheChosenStep() {
        QFETCH(QString, action);
        const QString first = copyCheckpoint(sampleCheckpoint()), second = copyCheckpoint(sampleCheckpoint());
        const QString run = QFileInfo(first).path();
        QVERIFY(QDir().rename(first, run + "/step-10"));
        QVERIFY(QDir().rename(second, run + "/step-20"));
        open(run);
        QCOMPARE(session().state(), Session::State::run);
        RunPage& page = window_->startPage().runPage();
        QTRY_COMPARE(page.table().model()->rowCount(), 2);
        for (int row = 0; row < 2 && !page.chosenPath().endsWith("step-10"); ++row)
            page.table().selectRow(row);
        const QString step = page.chosenPath();
        QCOMPARE(step, run + "/step-10");
        actionOf(*window_, action)->trigger();
        MainWindow* opened = nullptr;
        const auto isOpen = [&] {
            for (QWidget* widget : QApplication::topLevelWidgets()) {
                auto* one = qobject_cast<MainWindow*>(widget);
                if (one && one->session().checkpoint()) opened = one;
            }
            return opened != nullptr;
        };
        QTRY_VERIFY_WITH_TIMEOUT(isOpen(), 60'000);
        QCOMPARE(opened->session().path(), step);
        if (action.startsWith("Validate")) {
            const Validation& validation = opened->session().validation();
            QTRY_VERIFY_WITH_TIMEOUT(validation.report() && !validation.running() &&
                                         validation.report()->level == ValidateLevel::values,
                                     120'000);
            QVERIFY(opened->findings().isVisible());
        } else {
            QTRY_VERIFY(opened->findChild<ConvertWizard*>());
            const auto* wizard = opened->findChild<ConvertWizard*>();
            QVERIFY(wizard->isVisible());
            QCOMPARE(wizard->spec().source, step);
        }
    }

    void failuresToOpen_data() {
        QTest::addColumn<QString>("kind");
        QTest::addColumn<QString>("says");
        QTest::newRow("nothing there") << "absent"
                                       << "There is nothing at this path";
        QTest::newRow("no checkpoint") << "other"
                                       << "Unrecognized checkpoint";
        QTest::newRow("metadata cut short") << "cut"
                                            << "damaged";
        QTest::newRow("metadata empty") << "empty"
                                        << "damaged";
        QTest::newRow("an html page") << "html"
                                      << "HTML";
    }
    void failuresToOpen() {
        QFETCH(QString, kind);
        QFETCH(QString, says);
        QTemporaryDir dir;
        QString path = dir.path() + "/c";
        const auto write = [&](const QString& name, const QByteArray& bytes) {
            QFile file(path + '/' + name);
            QVERIFY(file.open(QIODevice::WriteOnly));
            file.write(bytes);
        };
        if (kind != "absent") QVERIFY(QDir().mkpath(path));
        if (kind == "other") {
            write("notes.txt", "hello");
            write("model.pt", "hello");
        } else if (kind == "cut" || kind == "empty") {
            QFile good(sampleCheckpoint() + "/.metadata");
            QVERIFY(good.open(QIODevice::ReadOnly));
            write(".metadata", kind == "cut" ? good.read(good.size() / 2) : QByteArray());
        } else if (kind == "html") {
            write("model.safetensors", "<!DOCTYPE html><html></html>");
            path += "/model.safetensors";
        }
        open(path);
        QCOMPARE(window_->session().state(), Session::State::failed);
        const QString text = shownText(window_->startPage());
        QVERIFY2(text.contains(says, Qt::CaseInsensitive), qPrintable(text));
        if (kind == "other") {
            QVERIFY2(text.contains("1 .pt file"), qPrintable(text));
            QVERIFY(window_->startPage().findChild<QPushButton*>());
        }
        if (kind == "cut") QVERIFY2(text.contains("byte"), qPrintable(text));
        shoot(*window_, "failed-" + kind);
    }

    void slowOpenCanBeCancelled() {
        auto engine = std::make_shared<ScriptedEngine>();
        engine->before = [](const std::string&, const TaskContext& context) -> Status {
            while (!context.stop.stopRequested())
                QThread::msleep(2);
            return makeError(ErrorCode::cancelled, "canceled");
        };
        windows_ = std::make_unique<Windows>(engine);
        window_ = windows_->open(sampleCheckpoint());
        QVERIFY(QTest::qWaitForWindowExposed(window_));
        QPushButton* cancel = nullptr;
        for (QPushButton* button : window_->startPage().findChildren<QPushButton*>()) {
            if (button->text() == "Cancel") cancel = button;
        }
        QVERIFY(cancel && cancel->isVisible());
        shoot(*window_, "opening");
        QTest::mouseClick(cancel, Qt::LeftButton);
        QTRY_COMPARE(window_->session().state(), Session::State::empty);
    }

    void secondCheckpointSecondWindow() {
        open(sampleCheckpoint());
        MainWindow* first = window_;
        QVERIFY(windows_->open(sampleCheckpoint()) == first);
        MainWindow* second = windows_->open(copyCheckpoint(sampleCheckpoint()));
        QVERIFY(second != first);
        QTRY_VERIFY(second->session().hasFacts());
        second->close();
        QTRY_VERIFY(first->session().hasFacts());
    }

    void layoutIsRestored() {
        const auto details = [this] { return window_->findChild<QDockWidget*>("details"); };
        open(sampleCheckpoint());
        QVERIFY(!details()->isVisible());
        window_->session().selection().selectTensor(0);
        QVERIFY(details()->isVisible());
        details()->hide();
        window_->close();
        windows_ = std::make_unique<Windows>();
        open(sampleCheckpoint());
        window_->session().selection().selectTensor(0);
        QVERIFY(!details()->isVisible());
        actionOf(*window_, "Reset the layout")->trigger();
        QTRY_VERIFY(details()->isVisible());
        window_->session().selection().clear();
        QVERIFY(!details()->isVisible());
    }

    // Findings, jobs and log share the bottom; none of them takes room before it is asked for.
    void panesOpenOneAtATime() {
        open(sampleCheckpoint());
        const auto shown = [this] {
            QStringList names;
            for (const char* name : {"findings", "jobs", "log"}) {
                if (window_->findChild<QDockWidget*>(name)->isVisible()) names += name;
            }
            return names.join(' ');
        };
        QCOMPARE(shown(), QString());
        QTest::mouseClick(toolButton("Log"), Qt::LeftButton);
        QCOMPARE(shown(), QStringLiteral("log"));
        QVERIFY(toolButton("Log")->isChecked());
        actionOf(*window_, "Show jobs")->trigger();
        QCOMPARE(shown(), QStringLiteral("jobs"));
        QVERIFY(!toolButton("Log")->isChecked());
        QTest::mouseClick(toolButton("Jobs"), Qt::LeftButton);
        QCOMPARE(shown(), QString());
    }

    // The first window is not larger than the screen.
    void fitsTheScreen() {
        window_ = windows_->newWindow();
        const QSize room = window_->screen()->availableSize();
        QVERIFY(window_->width() <= room.width() && window_->height() <= room.height());
    }

    // Whether to resume stands there without a click; a line leads to what was found.
    void answersByItself() {
        open(genuineCheckpoint("dcp/t2.15.0-damaged-missing-file"));
        QCOMPARE(window_->session().validation().report()->level, ValidateLevel::files);
        auto* card = window_->findChild<ReadyPanel*>();
        QVERIFY(card->isVisible());
        picture(*window_, "window-card");
        window_->findChild<QDockWidget*>("findings")->hide();
        emit card->findingRequested(toQString(window_->session().validation().card()->lines[0].evidence));
        QVERIFY(window_->findings().view().isVisible());
        const Finding* finding =
            window_->findings().model().finding(window_->findings().view().currentIndex());
        QVERIFY(finding && finding->rule == "file.missing");
        // It is checked once: what somebody ends stays ended, until it is opened anew.
        window_->session().validation().start(ValidateLevel::metadata);
        QTRY_VERIFY(!window_->session().validation().running());
        window_->session().checkForChanges();
        settle();
        QCOMPARE(window_->session().validation().report()->level, ValidateLevel::metadata);
        window_->session().reload();
        QTRY_VERIFY(window_->session().validation().report() &&
                    window_->session().validation().report()->level == ValidateLevel::files);
    }

    void closingWhileValidating() {
        auto engine = std::make_shared<ScriptedEngine>();
        const Gate never;
        std::atomic<int> asked{0}, stopped{0};
        engine->before = [&](const std::string& call, const TaskContext& context) -> Status {
            if (call != "validate") return {};
            ++asked;
            const Status status = never.wait(context);
            stopped += !status.ok();
            return status;
        };
        windows_ = std::make_unique<Windows>(engine);
        window_ = windows_->open(sampleCheckpoint());
        QTRY_COMPARE(asked.load(), 1);
        QVERIFY(window_->session().validation().running());
        window_->close();
        QTRY_VERIFY(window_.isNull());
        settle();
        QCOMPARE(stopped.load(), 1);
    }

    // What a checkpoint's metadata says, in one file, opens in its place and says what it cannot do.
    void indexStandsForTheCheckpoint() {
        open(sampleCheckpoint());
        QTemporaryDir out;
        const QString file = out.filePath("sample.ssidx");
        window_->saveIndexAs(file);
        QTRY_VERIFY_WITH_TIMEOUT(window_->banner().text().contains("Saved the index"), 120'000);
        QVERIFY(QFileInfo(file).size() > 0);
        window_->saveIndexAs(sampleCheckpoint() + "/inside.ssidx");
        QTRY_VERIFY(window_->banner().text().contains("never written into"));
        QVERIFY(!QFileInfo::exists(sampleCheckpoint() + "/inside.ssidx"));
        const size_t tensors = window_->session().catalog().tensorCount();
        const size_t objects = window_->session().catalog().objects().size();

        open(file);
        QVERIFY(window_->session().checkpoint());
        QCOMPARE(window_->session().catalog().tensorCount(), tensors);
        QCOMPARE(window_->session().catalog().objects().size(), objects);
        QVERIFY(window_->session().dataElsewhere().contains(sampleCheckpoint()));
        QVERIFY(window_->banner().isVisible());
        QVERIFY(window_->banner().text().contains("an index of"));
        QVERIFY(window_->session().validation().depth().contains("index"));
        settle();
        shoot(*window_, "index-open");
        window_->findings().validate();
        QTRY_VERIFY(window_->session().validation().report() && !window_->session().validation().running());
        QCOMPARE(window_->session().validation().report()->level, ValidateLevel::metadata);
        window_->findings().setLevel(ValidateLevel::values);
        QVERIFY(shownText(window_->findings()).contains("needs the data"));
        window_->session().selection().selectTensor(0);
        window_->session().selection().setPage(Page::tensor);
        ConvertWizard* wizard = window_->convert();
        QVERIFY(wizard);
        QTRY_VERIFY(shownText(*wizard).contains("The data is not here"));
        wizard->close();
    }

    // A format that was chosen goes into commands, jobs and the list of recent checkpoints.
    void openWithOptions() {
        open(sampleCheckpoint());
        OpenDialog* dialog = window_->openWithOptions();
        QVERIFY(QTest::qWaitForWindowExposed(dialog));
        QCOMPARE(dialog->path(), sampleCheckpoint());
        auto* format = dialog->findChild<QComboBox*>();
        format->setCurrentIndex(format->findData("dcp"));
        QLineEdit* further = nullptr;
        for (QLineEdit* line : dialog->findChildren<QLineEdit*>()) {
            if (line->accessibleName() == "Further options") further = line;
        }
        QVERIFY(further);
        QPushButton* button = nullptr;
        for (QPushButton* b : dialog->findChildren<QPushButton*>()) {
            if (b->isDefault()) button = b;
        }
        QVERIFY(button && button->isEnabled());
        further->setFocus();
        QTest::keyClicks(further, "--no-such-option 1");
        QVERIFY(!button->isEnabled());
        QVERIFY(shownText(*dialog).contains("no-such-option"));
        picture(*dialog, "open-dialog");
        further->clear();
        QTest::keyClick(further, Qt::Key_Return);
        QTRY_COMPARE(window_->session().options().format, QStringLiteral("dcp"));
        QTRY_VERIFY(window_->session().hasFacts());
        QVERIFY(window_->session().command("info").endsWith(" --format dcp"));
        QTRY_COMPARE(windows_->recents().optionsOf(sampleCheckpoint()).format, QStringLiteral("dcp"));
        QCOMPARE(Recents().optionsOf(sampleCheckpoint()).format, QStringLiteral("dcp"));
        ConvertWizard* wizard = window_->convert();
        QVERIFY(wizard->spec().commandLine().contains("--format dcp"));
        wizard->close();
        // A format that the place is not of.
        SourceOptions wrong;
        wrong.format = QStringLiteral("safetensors");
        window_->openPath(sampleCheckpoint(), wrong);
        QTRY_VERIFY(window_->banner().isVisible() && window_->banner().kind() == BannerKind::error);
        QCOMPARE(window_->session().state(), Session::State::open);
        QCOMPARE(window_->session().options().format, QStringLiteral("dcp"));
    }

    // Reading all values continues where it was stopped.
    // A place in a bucket is dropped, remembered, opened again from the list, and typed.
    void aPlaceInABucket() {
        FakeBucket bucket("b1");
        bucket.use();
        bucket.putTree(sampleCheckpoint().toStdString(), "run/step 1");
        const QString there = QStringLiteral("s3://b1/run/step 1");
        window_ = windows_->newWindow();
        window_->resize(1280, 720);
        window_->show();
        const auto drop = [&](QMimeData& mime) {
            QDragEnterEvent enter(QPoint(10, 10), Qt::CopyAction, &mime, Qt::LeftButton, Qt::NoModifier);
            QCoreApplication::sendEvent(window_, &enter);
            QDropEvent dropped(QPointF(10, 10), Qt::CopyAction, &mime, Qt::LeftButton, Qt::NoModifier);
            QCoreApplication::sendEvent(window_, &dropped);
            return dropped.isAccepted();
        };
        QMimeData url, text, other;
        url.setUrls({QUrl(there)});
        text.setText(there + '\n');
        other.setText("ftp://host/x");
        for (QMimeData* mime : {&url, &text}) {
            QVERIFY(drop(*mime));
            QTRY_VERIFY(window_->session().hasFacts());
            QCOMPARE(window_->session().path(), there);
            QCOMPARE(windows_->recents().list().size(), size_t{1});
            QCOMPARE(windows_->recents().list()[0].path, there);
            window_->session().close();
            QTRY_VERIFY(window_->startPage().isVisible());
        }
        window_->startPage().recentList().setFocus();
        window_->startPage().recentList().setCurrentRow(0);
        QTest::keyClick(&window_->startPage().recentList(), Qt::Key_Return);
        QTRY_VERIFY(window_->session().hasFacts());
        OpenDialog* dialog = window_->openWithOptions();
        QCOMPARE(dialog->path(), there);
        dialog->close();
        QTRY_VERIFY(!window_->findChild<OpenDialog*>());
        window_->session().close();
        QTRY_VERIFY(window_->startPage().isVisible());
        click(window_->startPage(), "Open place…");
        dialog = window_->findChild<OpenDialog*>(QString(), Qt::FindDirectChildrenOnly);
        QVERIFY(dialog && dialog->isVisible() && dialog->path().isEmpty());
        picture(*dialog, "open-place");
        QTest::keyClicks(dialog->findChild<PathEdit*>()->edit(), there);
        QCOMPARE(dialog->path(), there);
        QTest::mouseClick(shownButton(*dialog, "Open"), Qt::LeftButton);
        QTRY_VERIFY(window_->session().hasFacts());
        QCOMPARE(window_->session().path(), there);
        drop(other);
        QVERIFY(shownText(banner()).contains("hf://"));
    }

    // What follows '?' in a web address is sent, and neither shown nor kept.
    void aSignedAddress() {
        QFile file(QStringLiteral(SHARDSCOPE_TEST_DATA "/genuine/safetensors/shapes/ckpt/model.safetensors"));
        QVERIFY(file.open(QIODevice::ReadOnly));
        const std::string bytes = file.readAll().toStdString();
        using test::Answered, test::Asked;
        test::HttpServer server([&](const Asked& asked) -> Answered {
            if (asked.path != "/d/m.safetensors" || asked.argument("sig") != "hidden") return {404};
            return test::rangeOf(bytes, asked);
        });
        const QString plain = QString::fromStdString(server.url() + "/d/m.safetensors");
        window_ = windows_->newWindow();
        window_->show();
        window_->openPath(plain + "?sig=hidden");
        QTRY_VERIFY(window_->session().hasFacts());
        QCOMPARE(window_->session().path(), plain);
        window_->session().reload();
        QTRY_VERIFY(window_->session().state() == Session::State::open && window_->session().hasFacts());
        QCOMPARE(windows_->recents().list()[0].path, plain);
        QVERIFY(!shownText(*window_).contains("hidden") && !window_->windowTitle().contains("hidden"));
    }

    void stoppedReadingGoesOn() {
        auto engine = std::make_shared<ScriptedEngine>();
        std::atomic<bool> stopped{true};
        engine->afterValidate = [&](ValidationReport& report) { report.stopped = stopped; };
        windows_ = std::make_unique<Windows>(engine);
        open(sampleCheckpoint());
        actionOf(*window_, "Validate every value")->trigger();
        QTRY_VERIFY(window_->session().validation().canContinue());
        QPushButton* continueReading = nullptr;
        for (QPushButton* b : window_->findings().findChildren<QPushButton*>()) {
            if (b->text() == "Continue") continueReading = b;
        }
        QVERIFY(continueReading && continueReading->isVisible());
        settle();
        shoot(*window_, "values-stopped");
        stopped = false;
        const auto scan = window_->session().validation().scan();
        QTest::mouseClick(continueReading, Qt::LeftButton);
        QTRY_VERIFY(window_->session().validation().report() && !window_->session().validation().running());
        QTRY_VERIFY(!window_->session().validation().canContinue());
        QCOMPARE(window_->session().validation().scan(), scan);
        QVERIFY(!continueReading->isVisible());
        QVERIFY(window_->session().validation().depth().contains("every value"));
    }

    // ... also by another window, later, unless a file has changed.
    void readingGoesOnAfterRestart() {
        const QString path = copyCheckpoint(sampleCheckpoint());
        auto engine = std::make_shared<PartialEngine>();
        const auto restart = [&] {
            windows_.reset();
            Tasks::waitForAll();
            QCoreApplication::sendPostedEvents(nullptr, QEvent::DeferredDelete);
            windows_ = std::make_unique<Windows>(engine);
            open(path);
        };
        const auto readSome = [&](uint64_t limit) {
            engine->limit = limit;
            window_->findings().setLevel(ValidateLevel::values);
            window_->findings().validate();
            QTRY_VERIFY(!window_->session().validation().running());
            QVERIFY(window_->session().validation().report() &&
                    window_->session().validation().report()->stopped);
        };
        restart();
        QVERIFY(!window_->session().validation().canContinue());
        readSome(5);
        const uint64_t read = window_->session().validation().scan()->chunksRead();
        QVERIFY(read >= 5 && read < window_->session().validation().scan()->chunks());
        restart();
        QVERIFY(window_->session().validation().canContinue());
        QCOMPARE(window_->session().validation().report()->level, ValidateLevel::files);
        QCOMPARE(window_->session().validation().scan()->chunksRead(), read);
        QVERIFY(shownText(window_->findings()).contains("Continue"));
        picture(*window_, "values-restart");
        // A lesser check does not throw it away.
        window_->session().validation().start(ValidateLevel::metadata);
        QTRY_VERIFY(window_->session().validation().report() && !window_->session().validation().running());
        QVERIFY(window_->session().validation().canContinue());
        engine->limit = read + 4;
        window_->session().validation().continueReading();
        QTRY_VERIFY(!window_->session().validation().running());
        const uint64_t more = window_->session().validation().scan()->chunksRead();
        QVERIFY(more > read);
        restart();
        QCOMPARE(window_->session().validation().scan()->chunksRead(), more);
        engine->limit = 0;
        window_->session().validation().continueReading();
        QTRY_VERIFY(window_->session().validation().report() && !window_->session().validation().running());
        QVERIFY(!window_->session().validation().report()->stopped);
        QCOMPARE(window_->session().validation().report()->verdict, Verdict::safe);
        restart();
        QVERIFY(!window_->session().validation().canContinue());
        // What was read of files that have changed since counts for nothing.
        readSome(5);
        const QStringList data = QDir(path).entryList({"*.distcp"}, QDir::Files);
        QFile file(path + '/' + data.first());
        QVERIFY(file.open(QIODevice::ReadWrite));
        file.setFileTime(QDateTime::currentDateTime().addSecs(-60), QFileDevice::FileModificationTime);
        file.close();
        restart();
        QVERIFY(!window_->session().validation().canContinue());
    }

    // Where two formats fit, the window asks once, without getting in the way.
    void severalFormatsFit() {
        const QString path = copyCheckpoint(sampleCheckpoint());
        const QString other = genuineCheckpoint(QStringLiteral("safetensors/hf-sharded"));
        for (const QFileInfo& file : QDir(other).entryInfoList(QDir::Files))
            QFile::copy(file.filePath(), path + '/' + file.fileName());
        open(path);
        QTRY_COMPARE(window_->session().otherFormats().size(), size_t{1});
        QTRY_VERIFY(window_->banner().isVisible());
        QVERIFY(window_->banner().text().contains("Several formats fit"));
        picture(*window_, "several-formats");
        const Format* first = window_->session().checkpoint()->format;
        const QString name = toQString(window_->session().otherFormats()[0].format->info().name);
        QPushButton* button = nullptr;
        for (QPushButton* b : window_->banner().findChildren<QPushButton*>()) {
            if (b->text() == "Open as " + name) button = b;
        }
        QVERIFY(button);
        QTest::mouseClick(button, Qt::LeftButton);
        QTRY_VERIFY(window_->session().state() == Session::State::open &&
                    window_->session().checkpoint()->format != first);
        QVERIFY(!window_->banner().isVisible());
        // Another time it is opened so at once.
        windows_.reset();
        windows_ = std::make_unique<Windows>();
        open(path);
        QVERIFY(window_->session().checkpoint()->format != first);
        QVERIFY(!window_->banner().isVisible());
        // Asked only where there is a choice.
        for (const char* one : {"dcp/t2.15.0-fsdp2-tp", "safetensors/hf-sharded", "paddle_hybrid/mp2_pp2",
                                "colossalai/tp2_pp2_st", "olmo/unsharded_bf16_ids"}) {
            auto session = openSession(genuineCheckpoint(QString::fromLatin1(one)));
            QTRY_VERIFY(session->tasks().running().empty());
            QStringList others;
            for (const FormatMatch& match : session->otherFormats())
                others += toQString(match.format->info().name);
            QVERIFY2(others.isEmpty(), qPrintable(QString::fromLatin1(one) + ": " + others.join(' ')));
        }
    }

    void openingSaysHowFarItIs() {
        auto engine = std::make_shared<ScriptedEngine>();
        std::atomic<bool> wait{true};
        engine->before = [&](const std::string& call, const TaskContext& context) -> Status {
            while (call == "open" && wait && !context.stop.stopRequested())
                QThread::msleep(5);
            return call == "open" ? context.stop.poll() : Status();
        };
        windows_ = std::make_unique<Windows>(engine);
        window_ = windows_->open(sampleCheckpoint());
        QVERIFY(QTest::qWaitForWindowExposed(window_));
        QTRY_VERIFY(shownText(window_->startPage()).contains("Listing the directory"));
        picture(*window_, "opening");
        wait = false;
        QTRY_VERIFY(window_->session().hasFacts());
    }
};

SHARDSCOPE_GUI_TEST_MAIN(WindowOpenTest)
#include "window_open_test.moc"
