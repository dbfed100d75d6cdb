// What the window shows of jobs: the panel, their workers, the log.
#include "ui/pages/jobs_panel.h"

#include <QAbstractItemModelTester>
#include <QApplication>
#include <QComboBox>
#include <QJsonArray>
#include <QJsonDocument>
#include <QJsonObject>
#include <QLabel>
#include <QSignalSpy>
#include <QTabWidget>
#include <QTreeView>
#include <QTreeWidget>
#include <cmath>

#include "support/jobs_fixture.h"
#include "ui/pages/log_panel.h"
#include "ui/widgets/lanes.h"

using namespace shardscope;
using namespace shardscope::ui;

class JobsPanelTest : public QObject, protected JobsFixture {
    Q_OBJECT

  private slots:
    void progressIsReadOnce() {
        const QString directory = fresh() + "/job";
        QDir().mkpath(directory);
        const QString now = QDateTime::currentDateTimeUtc().toString(Qt::ISODateWithMs);
        write(directory + "/job.json", QJsonDocument(QJsonObject{{"schema", "shardscope.job/1"},
                                                                 {"title", "t"},
                                                                 {"source", "/a"},
                                                                 {"destination", "/b"},
                                                                 {"program", "p"},
                                                                 {"arguments", QJsonArray{"convert"}},
                                                                 {"host", thisHost()},
                                                                 {"boot", thisBoot()},
                                                                 {"created", now},
                                                                 {"started", now},
                                                                 {"attempts", 1}})
                                           .toJson());
        QFile progress(directory + "/progress.ndjson");
        QVERIFY(progress.open(QIODevice::WriteOnly | QIODevice::Unbuffered));
        JobReader reader(directory);
        QVERIFY(reader.poll().ok());
        const uint64_t before = reader.version();
        const QByteArray event =
            R"({"event":"progress","phase":"write","bytes_done":1000,"bytes_total":4000,"rate":500.0,"eta_s":6.0,"tensor":"x"})";
        progress.write(event.left(50));
        QVERIFY(reader.poll().ok());
        QVERIFY(reader.job().progress.phase.empty());
        progress.write(
            event.mid(50) +
            "\nnot json, but a "
            "message\n{\"event\":\"finding\",\"finding\":{\"tensor\":\"w\",\"nan\":3,\"inf\":0}}\n");
        QVERIFY(reader.poll().ok());
        QVERIFY(reader.version() > before);
        QCOMPARE(reader.job().progress.bytesDone, uint64_t{1000});
        QCOMPARE(reader.job().share(), 0.125);
        QCOMPARE(reader.job().log.size(), size_t{3});
        QCOMPARE(reader.job().log[1].text, QStringLiteral("not json, but a message"));
        QVERIFY(reader.job().log[2].text.contains(QStringLiteral("3 NaN")));
        const uint64_t read = reader.version();
        QVERIFY(reader.poll().ok());
        QCOMPARE(reader.version(), read);

        // What threads did comes as sums since the beginning of an attempt.
        const QByteArray time =
            R"({"event":"progress","phase":"write","bytes_done":1000,"bytes_total":4000,"rate":500.0,"eta_s":6.0,"tensor":"x","busy_s":{"read":%1,"compute":%2,"write":0.25}})"
            "\n";
        const auto said = [&](const char* reading, const char* computing) {
            return QByteArray(time).replace("%1", reading).replace("%2", computing);
        };
        progress.write(said("1.0", "0.5") + said("2.0", "0.75") + "{\"event\":\"attempt\",\"number\":2}\n" +
                       said("0.5", "0.5"));
        QVERIFY(reader.poll().ok());
        QCOMPARE(reader.job().busy(), (JobBusy{2.5, 1.25, 0.5}));
        progress.write(
            R"({"event":"workers","workers":[{"name":"a","state":"working","bytes":10,"units":0,"why":"","busy_s":{"read":1.0,"compute":0.5,"write":0.25}}]})"
            "\n"
            R"({"event":"workers","workers":[{"name":"a","state":"lost","bytes":10,"units":0,"why":"","busy_s":{"read":1.5,"compute":0.5,"write":0.25}}]})"
            "\n");
        QVERIFY(reader.poll().ok());
        QCOMPARE(reader.job().workers.size(), size_t{1});
        QCOMPARE(reader.job().workers[0].spent, (JobBusy{1.5, 0.5, 0.25}));
        JobRate all;
        for (const JobRate& rate : reader.job().workers[0].rates)
            all += rate;
        QCOMPARE(all.busy, (JobBusy{1.5, 0.5, 0.25}));
        QCOMPARE(all.written, 10.0);
        QVERIFY(reader.job().log.back().text.contains(QStringLiteral("'a' was lost")));

        // A day's worth of events folds into a few hundred steps that keep the total.
        QByteArray lines;
        for (int i = 2; i < 40'000; ++i) {
            lines += R"({"event":"progress","phase":"write","bytes_done":)" + QByteArray::number(i * 1000) +
                     R"(,"bytes_total":40000000,"rate":500.0,"eta_s":1.0,"tensor":"x","busy_s":{"read":)" +
                     QByteArray::number(i) + R"(,"compute":0.5,"write":0.25}})" + "\n";
        }
        progress.write(lines);
        QVERIFY(reader.poll().ok());
        QVERIFY(reader.job().rates.size() <= 600);
        double written = 0;
        for (const JobRate& rate : reader.job().rates)
            written += rate.written;
        QVERIFY(written >= 39'999'000.0);
        QCOMPARE(reader.job().busy().read, 40'001.0);
        QVERIFY(reader.job().rateStep * double(reader.job().rates.size()) >= 79'998.0);
    }

    void severalWorkers() {
        JobStore store(nullptr, fresh());
        store.setProgram(kProgram);
        JobsPanel panel(store);
        panel.resize(1280, 360);
        panel.show();
        ConversionSpec spec = simple(fresh() + "/out");
        spec.where = QStringLiteral("local:2");
        const Job* verified = store.find(startAndWait(store, spec, JobState::done));
        QVERIFY(verified->report && verified->report->verified);
        QCOMPARE(verified->workers.size(), size_t{2});
        // So short a job may be seen for the first time while it is verified, which is not a writing.
        spec.destination = fresh() + "/out";
        spec.verify = Verify::none;
        const QString id = startAndWait(store, spec, JobState::done);
        const Job* job = store.find(id);
        QVERIFY(job->report && !job->report->verified);
        QCOMPARE(job->workers.size(), size_t{2});
        QCOMPARE(job->workers[0].name, QStringLiteral("local 1"));
        QCOMPARE(job->workers[0].state, QStringLiteral("ended"));
        panel.selectJob(id);
        auto* workers = panel.findChild<QTreeWidget*>(QStringLiteral("jobWorkers"));
        QVERIFY(workers);
        QTRY_COMPARE(workers->topLevelItemCount(), 2);
        auto* tabs = panel.findChild<QTabWidget*>();
        tabs->setCurrentWidget(workers->parentWidget());
        QVERIFY(workers->isVisible());
        // One lane for each, which together hold what was written.
        uint64_t written = 0;
        double inLanes = 0;
        JobBusy spent;
        for (const JobWorker& worker : job->workers) {
            written += worker.bytes;
            for (const JobRate& rate : worker.rates)
                inLanes += rate.written;
            spent += worker.spent;  // one of them may have had nothing to do
        }
        QVERIFY(spent.read > 0 && spent.compute > 0);
        QVERIFY(written > 0);
        QCOMPARE(inLanes, double(written));
        const Lanes* lanes = nullptr;
        for (const Lanes* each : panel.findChildren<Lanes*>()) {
            if (each->isVisible()) lanes = each;
        }
        QVERIFY(lanes && lanes->accessibleDescription().contains(QStringLiteral("local 2")));
        QVERIFY(workers->topLevelItem(1)->text(1).contains(QStringLiteral("Ended")));
        // Bytes, or what the threads did; so of the job as a whole.
        QVERIFY(lanes->accessibleDescription().contains(QStringLiteral("computing")));
        QComboBox* measure = nullptr;
        for (QComboBox* each : panel.findChildren<QComboBox*>()) {
            if (each->isVisible()) measure = each;
        }
        QVERIFY(measure);
        QTest::keyClick(measure, Qt::Key_Up);
        QVERIFY(lanes->accessibleDescription().contains(QStringLiteral("B/s")));
        QTest::keyClick(measure, Qt::Key_Down);
        QVERIFY(job->busy().compute > 0);
    }

    // A job of some length, as it looks while it runs and after one worker was lost.
    void picturesOfWorkers() {
        const QString jobs = fresh();
        const QString now = QDateTime::currentDateTimeUtc().toString(Qt::ISODateWithMs);
        QDir().mkpath(jobs + "/20261121-1");
        const QStringList words{"convert", "/data/step-1000",        "/data/model", "--to", "safetensors",
                                "--on",    "local:1+ssh:node7,node8"};
        write(jobs + "/20261121-1/job.json",
              QJsonDocument(QJsonObject{{"schema", "shardscope.job/1"},
                                        {"title", "step-1000 to safetensors"},
                                        {"source", words[1]},
                                        {"destination", words[2]},
                                        {"program", "shardscope"},
                                        {"arguments", QJsonArray::fromStringList(words)},
                                        {"host", "login1"},
                                        {"boot", "another"},
                                        {"created", now},
                                        {"started", now},
                                        {"attempts", 1}})
                  .toJson());
        QByteArray lines = "{\"event\":\"attempt\",\"number\":1}\n";
        constexpr double kTotal = 40e9;
        double written[3] = {}, read[3] = {}, compute[3] = {}, write3[3] = {};
        for (int i = 1; i <= 120; ++i) {
            double done = 0;
            QJsonArray workers;
            const char* const names[] = {"local 1", "node7", "node8"};
            for (int w = 0; w < 3; ++w) {
                const bool lost = w == 2 && i > 72;
                if (!lost) {
                    written[w] += 0.6e8 * (1 + 0.3 * w) * (1 + 0.1 * (i * (w + 2) % 5));
                    read[w] += 0.25 * (1.2 - 0.2 * w) + 0.025 * (i * (w + 3) % 4);
                    compute[w] += 0.25 * 0.5 + 0.02 * (i * (w + 1) % 3);
                    write3[w] += 0.25 * (0.7 + 0.25 * w) + 0.03 * (i * (w + 2) % 5);
                }
                done += written[w];
                workers += QJsonObject{
                    {"name", names[w]},
                    {"state", lost ? "lost" : "working"},
                    {"bytes", std::round(written[w])},
                    {"units", i / 4},
                    {"busy_s", QJsonObject{{"read", read[w]}, {"compute", compute[w]}, {"write", write3[w]}}},
                    {"why", lost ? "it has been silent for 10 seconds" : ""}};
            }
            const QJsonObject busy{{"read", read[0] + read[1] + read[2]},
                                   {"compute", compute[0] + compute[1] + compute[2]},
                                   {"write", write3[0] + write3[1] + write3[2]}};
            const double rate = done / (i * 0.25 + 0.1);
            // The name of an event comes first.
            const auto event = [](const char* name, const QJsonObject& rest) {
                return QByteArray("{\"event\":\"") + name + "\"," +
                       QJsonDocument(rest).toJson(QJsonDocument::Compact).mid(1) + "\n";
            };
            lines += event("progress", {{"phase", "write"},
                                        {"bytes_done", std::round(done)},
                                        {"bytes_total", kTotal},
                                        {"rate", rate},
                                        {"eta_s", (kTotal - done) / rate},
                                        {"tensor", "model.layers.17.mlp.w1.weight"},
                                        {"busy_s", busy}});
            lines += event("workers", {{"workers", workers}});
        }
        write(jobs + "/20261121-1/progress.ndjson", lines);
        JobStore store(nullptr, jobs);
        JobsPanel panel(store);
        panel.resize(1280, 420);
        panel.show();
        QTRY_VERIFY(store.find("20261121-1") && !store.find("20261121-1")->workers.empty());
        panel.selectJob("20261121-1");
        QTRY_COMPARE(panel.selectedJob(), QStringLiteral("20261121-1"));
        QVERIFY(store.find("20261121-1")->record.elsewhere);
        picture(panel, QStringLiteral("jobs-rates"));
        // As low as in a laptop's window.
        panel.resize(1340, 260);
        picture(panel, QStringLiteral("jobs-low"));
        QCOMPARE(panel.height(), 260);
        const QList<Lanes*> all = panel.findChildren<Lanes*>();
        const auto shown = std::ranges::find_if(all, &QWidget::isVisible);
        QVERIFY(shown != all.end());
        QVERIFY2((*shown)->height() >= 100, qPrintable(QString::number((*shown)->height())));
        QCOMPARE((*shown)->visibleRegion().boundingRect(), (*shown)->rect());
        panel.resize(1280, 420);
        for (QComboBox* measure : panel.findChildren<QComboBox*>()) {
            if (measure->isVisible()) QTest::keyClick(measure, Qt::Key_Down);
        }
        picture(panel, QStringLiteral("jobs-time"));
        auto* workers = panel.findChild<QTreeWidget*>(QStringLiteral("jobWorkers"));
        panel.findChild<QTabWidget*>()->setCurrentWidget(workers->parentWidget());
        picture(panel, QStringLiteral("jobs-workers"));
        applyTheme(ThemeChoice::dark);
        picture(panel, QStringLiteral("jobs-workers-dark"));
        applyTheme(ThemeChoice::light);
    }

    void panel() {
        JobStore store(nullptr, fresh());
        JobsPanel panel(store);
        panel.resize(1280, 360);
        panel.show();
        shoot(panel, QStringLiteral("jobs-empty"));
        store.setProgram(patientProgram());
        const QString running = startAndWait(store, simple(fresh() + "/running"), JobState::running);
        QTRY_VERIFY_WITH_TIMEOUT(store.find(running)->progress.bytesDone > 0, kPatience);
        panel.selectJob(running);
        QTRY_COMPARE(panel.selectedJob(), running);
        QPushButton* cancel = buttonWith(panel, QStringLiteral("Cancel"));
        QTRY_VERIFY(cancel->isEnabled());
        QVERIFY(!buttonWith(panel, QStringLiteral("Resume"))->isEnabled());
        shoot(panel, QStringLiteral("jobs-running"));
        QTest::mouseClick(cancel, Qt::LeftButton);
        QTRY_COMPARE_WITH_TIMEOUT(store.find(running)->record.state, JobState::cancelled, kPatience);
        QPushButton* resume = buttonWith(panel, QStringLiteral("Resume"));
        QTRY_VERIFY(resume->isEnabled());
        shoot(panel, QStringLiteral("jobs-cancelled"));
        QTest::keyClick(resume, Qt::Key_Space);
        QTRY_COMPARE_WITH_TIMEOUT(store.find(running)->record.state, JobState::done, kPatience);

        const QSignalSpy opened(&panel, &JobsPanel::openRequested);
        QPushButton* open = buttonWith(panel, QStringLiteral("Open result"));
        QTRY_VERIFY(open->isEnabled());
        QTest::mouseClick(open, Qt::LeftButton);
        QCOMPARE(opened.size(), 1);
        QCOMPARE(opened[0][0].toString(), store.find(running)->destination());
        QTest::mouseClick(buttonWith(panel, QStringLiteral("Copy as command")), Qt::LeftButton);
        QVERIFY(QApplication::clipboard()->text().startsWith(QStringLiteral("shardscope convert ")));

        const QString broken = copyCheckpoint(sampleCheckpoint());
        QVERIFY(QFile::remove(broken + "/__1_0.distcp"));
        store.setProgram(kProgram);
        ConversionSpec spec = simple(fresh() + "/failed");
        spec.source = broken;
        const QString failed = startAndWait(store, spec, JobState::failed);
        panel.selectJob(failed);
        QTRY_COMPARE(panel.selectedJob(), failed);
        bool message = false;
        for (const QLabel* label : panel.findChildren<QLabel*>())
            message = message || (label->isVisible() && label->text().contains(QStringLiteral("Next step")));
        QVERIFY(message);
        QCoreApplication::processEvents();
        shoot(panel, QStringLiteral("jobs-failed"));
        auto* table = panel.findChild<QTreeView*>(QStringLiteral("jobTable"));
        QVERIFY(table);
        table->setFocus();
        QCOMPARE(table->model()->rowCount(), 2);
        QTest::keyClick(table, Qt::Key_Down);
        QCOMPARE(panel.selectedJob(), running);
        QCoreApplication::processEvents();
        shoot(panel, QStringLiteral("jobs-done"));
        applyTheme(ThemeChoice::dark);
        QCoreApplication::processEvents();
        shoot(panel, QStringLiteral("jobs-done-dark"));
        applyTheme(ThemeChoice::light);
        QTest::mouseClick(buttonWith(panel, QStringLiteral("Remove")), Qt::LeftButton);
        QTRY_COMPARE_WITH_TIMEOUT(store.jobs().size(), size_t{1}, kPatience);
    }

    // The window shows what `shardscope jobs run` started, as it runs, and can end it.
    void jobsOfTheCommandLine() {
        JobStore store;
        JobsPanel panel(store);
        panel.resize(1200, 360);
        panel.show();
        QTRY_VERIFY(store.ready());
        const size_t before = store.jobs().size();
        const ProgramRun run = runShardscope({"jobs", "run", "--on", "local:2", "convert", sampleCheckpoint(),
                                              fresh() + "/out", "--to", "torch"});
        QVERIFY2(run.code == 0, run.err);
        const QString id = QString::fromUtf8(run.out).trimmed();
        QTRY_VERIFY_WITH_TIMEOUT(store.find(id), kPatience);
        QCOMPARE(store.jobs().size(), before + 1);
        panel.selectJob(id);
        QTRY_COMPARE(panel.selectedJob(), id);
        QTRY_VERIFY_WITH_TIMEOUT(store.find(id)->record.state == JobState::done, kPatience);
        QCOMPARE(store.find(id)->workers.size(), size_t{2});
        QVERIFY(store.find(id)->report && store.find(id)->report->verified);
        QVERIFY(store.remove(id).ok());
        QTRY_VERIFY(!store.find(id));
        QVERIFY(!QString::fromUtf8(runShardscope({"jobs", "list"}).out).contains(id));
    }

    // The same from the beginning of a job that takes a while.
    void jobsOfTheCommandLineAreLive() {
        JobStore store;
        const QString id = QString::fromStdString(JobDirectory::newId());
        JobRecord started;
        started.id = id.toStdString();
        started.title = "patient";
        started.program = patientProgram().toStdString();
        started.order.emplace();
        started.order->request.source = "/a";
        started.order->request.destination = "/b";
        started.order->request.on = "local:2";
        QVERIFY(JobDirectory().start(started).ok());
        QTRY_VERIFY_WITH_TIMEOUT(store.find(id) && store.find(id)->record.state == JobState::running,
                                 kPatience);
        QTRY_COMPARE(store.find(id)->progress.bytesDone, uint64_t{1} << 20);
        QVERIFY(store.cancel(id).ok());
        QTRY_VERIFY_WITH_TIMEOUT(store.find(id)->record.state == JobState::cancelled, kPatience);
        // The program of the process that resumes it runs.
        JobRecord record = JobDirectory().find(started.id).value();
        record.program = "/bin/true";
        QVERIFY(JobDirectory().again(record, true).ok());
        QTRY_COMPARE_WITH_TIMEOUT(JobDirectory().find(started.id)->state, JobState::done, kPatience);
        QCOMPARE(JobDirectory().find(started.id)->program, std::string("/bin/true"));
        QCOMPARE(JobDirectory().find(started.id)->attempts, 2);
        QCOMPARE(JobDirectory().again(record, true).error().code, ErrorCode::exists);
        QVERIFY(store.remove(id).ok());
    }

    void lanes() {
        Lanes lanes(QStringLiteral("Bytes"));
        lanes.resize(480, 160);
        shoot(lanes, QStringLiteral("lanes-empty"));
        std::vector<JobRate> rates;
        for (int i = 0; i < 120; ++i)
            rates.push_back({6e8 + 1e8 * (i % 7),
                             i < 70 ? 5e8 + 5e7 * (i % 5) : 0,
                             {0.6 + 0.1 * (i % 3), 0.3, i < 70 ? 0.4 : 0}});
        lanes.setRates(rates, 0.5);
        lanes.show();
        lanes.setFocus();
        QTest::keyClick(&lanes, Qt::Key_Home);
        QVERIFY(lanes.accessibleDescription().startsWith(QStringLiteral("After 0")));
        QTest::keyClick(&lanes, Qt::Key_Right);
        shoot(lanes, QStringLiteral("lanes"));
        TextTableModel model(rateColumns({}, 0.5));
        const QAbstractItemModelTester tester(&model, QAbstractItemModelTester::FailureReportingMode::QtTest);
        model.setContent(rates.size(), rateColumns(rates, 0.5));
        QCOMPARE(model.rowCount(), 120);
        QVERIFY(model.index(3, 1).data().toString().endsWith(QStringLiteral("/s")));
        QCOMPARE(model.columnCount(), 6);
        QCOMPARE(model.index(0, 4).data().toString(), QStringLiteral("0.6"));
        lanes.setRates(rates, 0.5, Lanes::Unit::threads);
        QVERIFY(lanes.accessibleDescription().contains(QStringLiteral("Computing 0.6 threads")));
        shoot(lanes, QStringLiteral("lanes-threads"));
        std::vector<Lane> workers;
        for (const char* name : {"local 1", "a-host-with-a-long-name.example", "local 3"}) {
            workers.push_back(
                Lanes::workerLane({QString::fromLatin1(name), QStringLiteral("working"), 0, {}, {}, rates},
                                  Lanes::Unit::threads));
        }
        workers.back().ended = true;
        lanes.resize(480, 220);
        lanes.setLanes(workers, 0.5, Lanes::Unit::threads);
        shoot(lanes, QStringLiteral("lanes-workers"));
        for (JobRate& rate : rates)
            rate.busy = {};
        model.setContent(rates.size(), rateColumns(rates, 0.5));
        QCOMPARE(model.columnCount(), 3);
    }

    void logModel() {
        LogModel model;
        const QAbstractItemModelTester tester(&model, QAbstractItemModelTester::FailureReportingMode::QtTest);
        for (int i = 0; i < 20; ++i)
            model.append(i % 2 ? Severity::warning : Severity::info, QString::number(i));
        QCOMPARE(model.index(19, LogModel::message).data().toString(), QStringLiteral("19"));
        model.clear();
        QCOMPARE(model.rowCount(), 0);
    }

    void log() {
        LogPanel panel;
        panel.resize(700, 220);
        shoot(panel, QStringLiteral("log-empty"));
        panel.append(Severity::info, QStringLiteral("Opened '/checkpoints/step-1000' in 0.2 s."));
        panel.append(Severity::error, QStringLiteral("<b>__3_0.distcp</b> is missing."));
        shoot(panel, QStringLiteral("log"));
        QTest::mouseClick(buttonWith(panel, QStringLiteral("Copy all")), Qt::LeftButton);
        QVERIFY(QApplication::clipboard()->text().contains(QStringLiteral("<b>__3_0.distcp</b>")));
        for (int i = 0; i < LogModel::kMostLines + 5; ++i)
            panel.append(Severity::info, QString::number(i));
        QCOMPARE(panel.model().rowCount(), LogModel::kMostLines);
        QTest::mouseClick(buttonWith(panel, QStringLiteral("Clear")), Qt::LeftButton);
        QCOMPARE(panel.model().rowCount(), 0);
    }
};

SHARDSCOPE_GUI_TEST_MAIN(JobsPanelTest)
#include "jobs_panel_test.moc"
