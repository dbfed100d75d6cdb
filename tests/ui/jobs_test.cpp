// Jobs as the window starts, follows, stops and resumes them.
#include <QAbstractItemModelTester>
#include <QDirIterator>
#include <QElapsedTimer>
#include <QFileInfo>
#include <QJsonArray>
#include <QJsonDocument>
#include <QJsonObject>
#include <QLabel>
#include <QSignalSpy>
#include <QThread>
#include <cmath>
#include <csignal>

#include "base/units.h"
#include "support/jobs_fixture.h"
#include "support/recorded_job.h"
#include "ui/models/job_table_model.h"
#include "ui/pages/jobs_panel.h"

using namespace shardscope;
using namespace shardscope::ui;
using shardscope::test::RecordedJob;

class JobsTest : public QObject, protected JobsFixture {
    Q_OBJECT

  private slots:
    void commandLineOfEverything() {
        ConversionSpec spec = simple(fresh() + "/it's new");
        spec.format = QStringLiteral("dcp");
        spec.select = {QStringLiteral("*")};
        spec.exclude = {QStringLiteral("-odd name*"), QStringLiteral("re:.*\\$(nothing)")};
        spec.weightsOnly = true;
        spec.rename = {QStringLiteral("^model\\.="), QStringLiteral("$(x) 'q'=y")};
        spec.cast = {QStringLiteral("*.weight=bf16")};
        spec.mesh = QStringLiteral("dp=2,tp=2");
        spec.shard = {QStringLiteral("*.weight:tp=0,dp=0"), QStringLiteral("*:dp=-1")};
        spec.stage = {QStringLiteral("*.bias:dp=1")};
        spec.split = SplitRule::even;
        spec.maxFileSize = 5'000'000;
        spec.fillGaps = FillGaps::zero;
        spec.verify = Verify::full;
        spec.where = QStringLiteral("local:2");
        spec.threads = 2;
        spec.memory = uint64_t{300} << 20;
        spec.io = IoMode::buffered;
        spec.overwrite = true;
        spec.objectsFile = fresh() + "/objects.pt";
        const ProgramRun run = runShardscope(spec.arguments() + QStringList{"--dry-run", "--json"});
        QVERIFY2(run.code == 0, run.out + run.err);
        const QJsonObject plan = QJsonDocument::fromJson(run.out).object();
        QCOMPARE(plan["schema"].toString(), QStringLiteral("shardscope.plan/1"));
        QCOMPARE(plan["target"].toObject()["path"].toString(), spec.destination);

        // The engine of this process, asked for the same, plans the same.
        const auto settings = spec.toCheckedRequest();
        QVERIFY(settings.ok());
        auto session = openSession(spec.source);
        const auto preview =
            session->engine().preview(session->checkpoint(), spec.destination.toStdString(), *settings, {});
        QVERIFY(preview.ok());
        QCOMPARE(double(preview->plan.bytesWritten), plan["bytes_written"].toDouble());
        QCOMPARE(double(preview->plan.chunks), plan["chunks"].toDouble());
        QCOMPARE(double(preview->plan.peakMemory), plan["peak_memory"].toDouble());

        // The line for a shell says the same words.
        QProcess shell;
        shell.start(QStringLiteral("/bin/sh"),
                    {"-c", "shardscope() { printf '%s\\n' \"$@\"; }\n" + spec.commandLine()});
        QVERIFY(shell.waitForFinished());
        ConversionSpec words = spec;
        words.where.clear();
        QCOMPARE(QString::fromUtf8(shell.readAllStandardOutput()).trimmed().split('\n'),
                 (QStringList{"jobs", "run", "--on", "local:2"} + words.arguments()));
    }

    void defaultsSayNothing() {
        const ConversionSpec spec = simple(QStringLiteral("/x/y"));
        QCOMPARE(spec.arguments(),
                 (QStringList{"convert", sampleCheckpoint(), "/x/y", "--to", "safetensors"}));
        QCOMPARE(exactSizeText(5'000'000'000), QStringLiteral("5GB"));
        QCOMPARE(exactSizeText(uint64_t{512} << 20), QStringLiteral("512MiB"));
        QCOMPARE(exactSizeText(4097), QStringLiteral("4097"));
        for (const uint64_t size :
             {uint64_t{1}, uint64_t{1000}, uint64_t{1024}, uint64_t{123'456'789}, uint64_t{3} << 30})
            QCOMPARE(*parseBytes(exactSizeText(size).toStdString()), size);
    }

    void malformedRulesAreErrors() {
        ConversionSpec spec = simple(QStringLiteral("/x/y"));
        spec.cast = {QStringLiteral("*=nodtype")};
        QVERIFY(!spec.toCheckedRequest().ok());
        QVERIFY(!requestJson(spec.toRequest()).ok());
        spec.cast.clear();
        spec.mesh = QStringLiteral("tp=");
        QCOMPARE(spec.toCheckedRequest().error().code, ErrorCode::usage);
    }

    void recipes() {
        ConversionSpec spec = simple(fresh() + "/out");
        spec.exclude = {QStringLiteral("*.bias")};
        spec.rename = {QStringLiteral("^model\\.=")};
        spec.cast = {QStringLiteral("*.weight=bf16")};
        spec.mesh = QStringLiteral("tp=2");
        spec.format = QStringLiteral("dcp");
        spec.shard = {QStringLiteral("*:tp=0")};
        spec.memory = uint64_t{1} << 30;
        spec.strict = true;
        const auto json = requestJson(spec.toRequest());
        QVERIFY(json.ok());
        const auto read = requestFromJson(*json);
        QVERIFY2(read.ok(), read.ok() ? "" : describe(read.error()).c_str());
        const ConversionSpec again = ConversionSpec::fromRequest(*read);
        QCOMPARE(again.arguments(), spec.arguments());
        QVERIFY(again == spec);

        // The command line takes the steps out of the same file, and nothing else.
        const QString file = fresh() + "/recipe.json";
        QVERIFY(spec.saveRecipe(file).ok());
        ConversionSpec viaMap = simple(spec.destination);
        viaMap.map = file;
        const ProgramRun run = runShardscope(viaMap.arguments() + QStringList{"--dry-run", "--json"});
        QVERIFY2(run.code == 0, run.out + run.err);
        const QJsonObject plan = QJsonDocument::fromJson(run.out).object();
        QVERIFY(!plan["renamed"].toArray().isEmpty());
        QVERIFY(!plan["excluded"].toArray().isEmpty());
        QCOMPARE(plan["target"].toObject()["format"].toString(), QStringLiteral("safetensors"));

        // What a recipe file says is taken into the one that is saved.
        viaMap.exclude = {QStringLiteral("*.extra")};
        const QString merged = fresh() + "/merged.json";
        QVERIFY(viaMap.saveRecipe(merged).ok());
        const auto whole = ConversionSpec::loadRecipe(merged);
        QVERIFY(whole.ok());
        QVERIFY(whole->map.isEmpty());
        QCOMPARE(whole->exclude, (QStringList{"*.bias", "*.extra"}));
        QCOMPARE(whole->rename, spec.rename);
    }

    // Steps that only a file can hold stay in the file that is loaded, and go along into one that is saved.
    void recipesWithSteps() {
        const QString path = fresh() + "/steps.json";
        const QByteArray text = R"({"schema":"shardscope.recipe/1","drop":["*.extra"],"parameters":{"n":2},
            "steps":[{"step":"transpose","tensors":"model[.]w"}],"job":{"format":"dcp","set":["n=3"]}})";
        write(path, text);
        const auto loaded = ConversionSpec::loadRecipe(path);
        QVERIFY2(loaded.ok(), loaded.ok() ? "" : describe(loaded.error()).c_str());
        QCOMPARE(loaded->map, QFileInfo(path).absoluteFilePath());
        QCOMPARE(loaded->format, QStringLiteral("dcp"));
        QVERIFY(loaded->exclude.isEmpty());
        const QStringList words = loaded->arguments();
        QCOMPARE(words.count("--map"), 1);
        QVERIFY(words.contains("n=3") && !words.contains("*.extra"));
        QCOMPARE(loaded->toCheckedRequest()->map, loaded->map.toStdString());

        const QString saved = fresh() + "/saved.json";
        QVERIFY(loaded->saveRecipe(saved).ok());
        QFile file(saved);
        QVERIFY(file.open(QIODevice::ReadOnly));
        const QJsonObject again = QJsonDocument::fromJson(file.readAll()).object(),
                          before = QJsonDocument::fromJson(text).object();
        for (const char* key : {"steps", "parameters", "drop"})
            QCOMPARE(again[QLatin1String(key)], before[QLatin1String(key)]);

        // One that is built in is taken by its name.
        ConversionSpec spec = simple(fresh() + "/out");
        spec.map = QStringLiteral("fused-qkv");
        QVERIFY(spec.saveRecipe(saved).ok());
        QVERIFY(ConversionSpec::loadRecipe(saved)->map.endsWith("saved.json"));
    }

    void recipesThatAreNone() {
        const QString path = fresh() + "/r.json";
        const auto refused = [&](const QByteArray& text, const QString& word) {
            write(path, text);
            const auto spec = ConversionSpec::loadRecipe(path);
            QVERIFY(!spec.ok());
            QVERIFY2(QString::fromStdString(spec.error().message).contains(word),
                     spec.error().message.c_str());
            QCOMPARE(QString::fromStdString(spec.error().location.file), path);
        };
        refused("{", QStringLiteral("not JSON"));
        refused("[]", QStringLiteral("not a JSON object"));
        refused(R"({"schema":"shardscope.recipe/2"})", QStringLiteral("schema"));
        refused(R"({"selekt":["*"]})", QStringLiteral("selekt"));
        refused(R"({"select":"*"})", QStringLiteral("select"));
        refused(R"({"cast":[{"tensors":"*","dtype":"nothing"}]})", QStringLiteral("GLOB=DTYPE"));
        refused(R"({"job":{"threads":-1}})", QStringLiteral("job.threads"));
        refused(R"({"job":{"verify":"perhaps"}})", QStringLiteral("job.verify"));
        refused(R"({"job":{"color":"red"}})", QStringLiteral("job.color"));
        // The command line refuses a `job` that is not an object, and no other.
        write(path, R"({"job":1})");
        QCOMPARE(runShardscope({"plan", sampleCheckpoint(), fresh() + "/o", "--map", path}).code, 2);
        write(path, R"({"rename":[{"from":"a=b","to":"c"}],"job":{"future":1}})");
        QCOMPARE(runShardscope({"plan", sampleCheckpoint(), fresh() + "/o", "--map", path}).code, 0);
        write(path, R"({"rename":[{"from":"a=b","to":"c"}]})");
        QCOMPARE(ConversionSpec::loadRecipe(path)->rename, (QStringList{"a\\x3Db=c"}));
    }

    void wholeJob() {
        JobStore store(nullptr, fresh());
        store.setProgram(kProgram);
        JobTableModel model(store);
        const QAbstractItemModelTester tester(&model, QAbstractItemModelTester::FailureReportingMode::QtTest);
        const ConversionSpec spec = simple(fresh() + "/out");
        const QString id = startAndWait(store, spec, JobState::done);
        QVERIFY(!id.isEmpty());
        const Job* job = store.find(id);
        QVERIFY(job->report && job->report->verified);
        QVERIFY(job->report->bytesWritten > 0);
        QVERIFY(job->report->tensors > 0);
        QVERIFY(!job->report->leftOut.empty());
        QCOMPARE(job->record.exitCode, 0);
        QCOMPARE(job->arguments(), spec.arguments());
        QVERIFY(!job->log.empty());
        QCOMPARE(model.rowCount(), 1);
        QCOMPARE(model.index(0, JobTableModel::state).data().toString(), QStringLiteral("Done"));
        QCOMPARE(model.index(0, 0).data(JobTableModel::ShareRole).toDouble(), 1.0);
        QVERIFY(QFileInfo::exists(spec.destination));

        QVERIFY(store.remove(id).ok());
        QTRY_COMPARE_WITH_TIMEOUT(model.rowCount(), 0, kPatience);
        QVERIFY(!QFileInfo::exists(store.directory() + '/' + id));
        QVERIFY(QFileInfo::exists(spec.destination));
        QVERIFY(!store.remove(id).ok());
    }

    // The window says the same of a job as the command line and the page (page_cli_test).
    void progressOfJobs() {
        const QString directory = fresh();
        QVERIFY(RecordedJob::write(directory));
        JobStore store(nullptr, directory);
        JobTableModel model(store);
        const QString id = QString::fromLatin1(RecordedJob::id);
        QTRY_VERIFY_WITH_TIMEOUT(store.find(id) && store.find(id)->progress.rate > 0, kPatience);
        const Job* job = store.find(id);
        QCOMPARE(job->share(), RecordedJob::share);
        QCOMPARE(job->progress.rate, RecordedJob::rate);
        QCOMPARE(job->progress.secondsLeft, RecordedJob::secondsLeft);
        QCOMPARE(job->progress.text(), std::string(RecordedJob::text));
        const QStringList words = QString::fromLatin1(RecordedJob::text).split(", ");
        const auto column = [&](int c) { return model.index(0, c).data().toString(); };
        QCOMPARE(column(JobTableModel::progress), words[0]);
        QCOMPARE(jobPhaseText(*job).toLower(), words[1]);
        QCOMPARE(column(JobTableModel::rate), words[2]);
        QCOMPARE(column(JobTableModel::left) + " left", words[3]);
    }

    // Each pass over the bytes is a part of the whole, and what it goes back to is not counted twice.
    void passesOfJobs() {
        const auto at = [](const char* event, std::vector<std::string> words = {}) {
            return jobProgress(nlohmann::json::parse(event), words);
        };
        const char* const verifying = R"({"phase":"verify","bytes_done":50,"bytes_total":100,"rate":10})";
        QCOMPARE(at(verifying).share, 0.75);
        QCOMPARE(at(verifying).secondsLeft, 5.0);
        const std::vector<std::string> full{"convert", "a", "b", "--verify", "full"};
        QCOMPARE(at(verifying, full).share, 0.5);
        const char* const again =
            R"({"phase":"verify","pass":3,"bytes_done":50,"bytes_total":100,"rate":10})";
        QVERIFY(std::abs(at(again, full).share - 5.0 / 6) < 1e-12);
        QCOMPARE(at(again, full).secondsLeft, 5.0);
        const char* const writing =
            R"({"phase":"write","pass":1,"bytes_done":50,"bytes_total":100,"rate":10})";
        QCOMPARE(at(writing, {"--verify=none"}).share, 0.5);
        QCOMPARE(at(R"({"phase":"commit","bytes_done":0,"bytes_total":0})").share, 1.0);
        // What a log may hold that nobody wrote in this way.
        for (const char* odd : {"[]", "{}", R"({"phase":"write","bytes_done":-1,"bytes_total":"x"})",
                                R"({"phase":7,"pass":1e300,"bytes_total":1e300})"})
            QVERIFY(at(odd).share < 0);
        QCOMPARE(at(R"({"phase":"write","pass":1e300,"bytes_done":9e99,"bytes_total":1,"rate":1})").share,
                 1.0);
    }

    void killedAndResumed() {
        JobStore store(nullptr, fresh());
        store.setProgram(patientProgram());
        const ConversionSpec spec = simple(fresh() + "/out");
        const QString id = startAndWait(store, spec, JobState::running);
        QTRY_VERIFY_WITH_TIMEOUT(store.find(id)->progress.bytesDone > 0, kPatience);
        const Job* job = store.find(id);
        QCOMPARE(job->tensor, QStringLiteral("a.weight"));
        QCOMPARE(job->progress.bytesTotal, uint64_t{4194304});
        QCOMPARE(job->progress.secondsLeft, 3.5);  // to write the rest and to verify all
        QVERIFY(!store.resume(id).ok());           // it runs
        QVERIFY(!store.remove(id).ok());
        const pid_t group = getpgid(static_cast<pid_t>(job->record.pid));
        QVERIFY(group > 1 && group != getpgrp());
        ::kill(-group, SIGKILL);
        QTRY_COMPARE_WITH_TIMEOUT(store.find(id)->record.state, JobState::lost, kPatience);
        QVERIFY(store.find(id)->resumable());
        QVERIFY(store.resume(id).ok());
        QTRY_COMPARE_WITH_TIMEOUT(store.find(id)->record.state, JobState::done, kPatience);
        QCOMPARE(store.find(id)->record.attempts, 2);
        QVERIFY(QFileInfo::exists(spec.destination));
    }

    // The real program, killed in the middle of real work.
    void realWorkKilledAndResumed() {
        constexpr qint64 kBytes = qint64{512} << 20;
        const QString source = fresh() + "/zeros.safetensors";
        QByteArray header = R"({"w":{"dtype":"F32","shape":[)" + QByteArray::number(kBytes / 4096) +
                            R"(,1024],"data_offsets":[0,)" + QByteArray::number(kBytes) + "]}}";
        header.resize((header.size() + 7) / 8 * 8, ' ');
        QByteArray length(8, '\0');
        for (int i = 0; i < 8; ++i)
            length[i] = static_cast<char>((header.size() >> (8 * i)) & 0xff);
        write(source, length + header);
        QVERIFY(QFile::resize(source, 8 + header.size() + kBytes));  // sparse: zeros that take no room
        ConversionSpec spec;
        spec.source = source;
        spec.destination = fresh() + "/dcp";
        spec.format = QStringLiteral("dcp");
        spec.mesh = QStringLiteral("dp=4");
        spec.shard = {QStringLiteral("*:dp=0")};
        spec.threads = 1;
        spec.memory = uint64_t{128} << 20;
        JobStore store(nullptr, fresh());
        store.setProgram(kProgram);
        JobsPanel panel(store);
        panel.resize(1280, 360);
        panel.show();
        const auto id = store.start(spec, QStringLiteral("zeros to dcp"));
        QVERIFY(id.ok());
        panel.selectJob(*id);
        // Stopped as soon as data is being written, however fast the machine is, and killed once that is
        // seen.
        const QDir staging(QFileInfo(spec.destination).path() + "/.dcp.shardscope-partial");
        const auto written = [&] {
            QDirIterator files(staging.path(), {"*.distcp"}, QDir::Files, QDirIterator::Subdirectories);
            return files.hasNext();
        };
        QElapsedTimer clock;
        for (clock.start(); !written() && clock.elapsed() < kPatience;) {
            QCoreApplication::processEvents();
            QThread::usleep(200);
        }
        QVERIFY(written());
        const auto pid = JobDirectory(store.directory().toStdString()).read(id->toStdString());
        QVERIFY(pid.ok() && pid->pid > 0);
        ::kill(-getpgid(static_cast<pid_t>(pid->pid)), SIGSTOP);
        QTRY_VERIFY_WITH_TIMEOUT(store.find(*id) && store.find(*id)->active(), kPatience);
        ::kill(-getpgid(static_cast<pid_t>(pid->pid)), SIGKILL);
        QTRY_COMPARE_WITH_TIMEOUT(store.find(*id)->record.state, JobState::lost, kPatience);
        QVERIFY(!QFileInfo::exists(spec.destination));
        QVERIFY(store.resume(*id).ok());
        QVERIFY(store.find(*id)->active());
        QVERIFY(!store.resume(*id).ok());  // not twice
        QTRY_VERIFY_WITH_TIMEOUT(!store.find(*id)->active(), 4 * kPatience);
        const Job* job = store.find(*id);
        QVERIFY2(job->is(JobState::done), qPrintable(job->error ? job->error->message : QString()));
        QVERIFY(job->report->verified);
        QVERIFY(!job->rates.empty());
        QCoreApplication::processEvents();
        shoot(panel, QStringLiteral("jobs-resumed"));
        auto result = openSession(spec.destination);
        QCOMPARE(result->state(), Session::State::open);
        QCOMPARE(result->catalog().totalBytes(), uint64_t{kBytes});
    }

    void onlyTheProgramKilled() {
        JobStore store(nullptr, fresh());
        const QString program = fresh() + "/dies";
        write(program, "#!/bin/sh\nkill -9 $$\n");
        QFile::setPermissions(program, QFile::ReadOwner | QFile::ExeOwner);
        store.setProgram(program);
        const QString id = startAndWait(store, simple(fresh() + "/out"), JobState::lost);
        QVERIFY(store.find(id)->log.back().text.contains(QStringLiteral("signal 9")));
    }

    void cancelled() {
        JobStore store(nullptr, fresh());
        store.setProgram(patientProgram());
        const QString id = startAndWait(store, simple(fresh() + "/out"), JobState::running);
        QTRY_VERIFY_WITH_TIMEOUT(store.find(id)->progress.bytesDone > 0, kPatience);
        QVERIFY(store.cancel(id).ok());
        QVERIFY(store.cancelling(id));
        QTRY_COMPARE_WITH_TIMEOUT(store.find(id)->record.state, JobState::cancelled, kPatience);
        QVERIFY(!store.cancelling(id));
        QCOMPARE(store.find(id)->record.exitCode, 130);
        QVERIFY(!store.cancel(id).ok());
    }

    void survivesItsWindow() {
        const QString directory = fresh(), program = patientProgram();
        QString id;
        {
            JobStore store(nullptr, directory);
            store.setProgram(program);
            id = startAndWait(store, simple(fresh() + "/out"), JobState::running);
        }
        JobStore first(nullptr, directory), second(nullptr, directory);
        QTRY_VERIFY_WITH_TIMEOUT(first.find(id) && first.find(id)->record.state == JobState::running,
                                 kPatience);
        QTRY_VERIFY_WITH_TIMEOUT(second.find(id), kPatience);
        // It leads a session of its own: a window that is killed with its terminal does not take it along.
        QVERIFY(getsid(static_cast<pid_t>(first.find(id)->record.pid)) != getsid(0));
        QVERIFY(first.cancel(id).ok());
        QTRY_COMPARE_WITH_TIMEOUT(second.find(id)->record.state, JobState::cancelled, kPatience);
    }

    void reusedProcessIdIsNotTheJob() {
        const QString directory = fresh();
        QDir().mkpath(directory + "/old");
        const QJsonObject json{{"schema", "shardscope.job/1"},
                               {"title", "old"},
                               {"source", "/a"},
                               {"destination", "/b"},
                               {"program", kProgram},
                               {"arguments", QJsonArray{"convert", "/a", "/b"}},
                               {"host", thisHost()},
                               {"boot", thisBoot()},
                               {"created", "2024-01-02T03:04:05.000Z"},
                               {"started", "2024-01-02T03:04:05.000Z"},
                               {"attempts", 1}};
        write(directory + "/old/job.json", QJsonDocument(json).toJson());
        // This process, but begun at another time.
        QByteArray stat = QByteArray::number(getpid()) + " (a) (b)) S";
        for (int i = 4; i <= 52; ++i)
            stat += ' ' + QByteArray::number(i == 22 ? 1 : 0);
        write(directory + "/old/process", stat);
        JobStore store(nullptr, directory);
        QTRY_VERIFY_WITH_TIMEOUT(store.find(QStringLiteral("old")), kPatience);
        QCOMPARE(store.find(QStringLiteral("old"))->record.state, JobState::lost);
    }

    void failingJobAndMissingProgram() {
        const QString broken = copyCheckpoint(sampleCheckpoint());
        QVERIFY(QFile::remove(broken + "/__1_0.distcp"));
        JobStore store(nullptr, fresh());
        store.setProgram(kProgram);
        ConversionSpec spec = simple(fresh() + "/out");
        spec.source = broken;
        const QString id = startAndWait(store, spec, JobState::failed);
        QVERIFY(store.find(id)->error);
        QVERIFY(!store.find(id)->error->message.isEmpty());
        QVERIFY(store.find(id)->error->hint.contains(QStringLiteral("validate")));
        QVERIFY(store.find(id)->error->file.contains(QStringLiteral("__1_0.distcp")));

        store.setProgram(QStringLiteral("/nowhere/shardscope"));
        const auto none = store.start(spec, QStringLiteral("x"));
        QVERIFY(!none.ok());
        QCOMPARE(none.error().code, ErrorCode::notFound);

        // A program that goes away between two attempts.
        const QString script = fresh() + "/script";
        write(script, "#!/nowhere/interpreter\n");
        QFile::setPermissions(script, QFile::ReadOwner | QFile::ExeOwner);
        store.setProgram(script);
        const QString other = startAndWait(store, spec, JobState::failed);
        QVERIFY(store.find(other)->error->message.contains(QStringLiteral("could not be started")));
    }

    // Files of a job are written off the GUI thread; when that fails the window is told.
    void launchThatFailsIsSaid() {
        JobStore store(nullptr, QStringLiteral("/proc/no-such-place/jobs"));
        store.setProgram(kProgram);
        QSignalSpy failed(&store, &JobStore::failed), launched(&store, &JobStore::launched);
        const auto id = store.start(simple(fresh() + "/out"), QStringLiteral("x"));
        QVERIFY(id.ok());
        QTRY_COMPARE_WITH_TIMEOUT(failed.size(), 1, kPatience);
        QCOMPARE(failed[0][0].toString(), *id);
        QVERIFY(failed[0][1].toString().contains(QStringLiteral("make a directory for the job")));
        QVERIFY(launched.isEmpty());
        QVERIFY(!store.find(*id));
    }

    void brokenDirectoriesAreSkipped() {
        const QString directory = fresh();
        for (const char* name : {"empty", "garbage", "half"})
            QDir().mkpath(directory + '/' + QLatin1String(name));
        write(directory + "/garbage/job.json", "\x80\x02not json");
        write(directory + "/half/job.json", R"({"schema":"shardscope.job/1","arguments":[]})");
        JobStore store(nullptr, directory);
        QTRY_VERIFY_WITH_TIMEOUT(store.ready(), kPatience);
        QVERIFY(store.jobs().empty());
        QCOMPARE(store.skipped().size(), 2);  // the empty one may be a job that is just being made
        JobsPanel panel(store);
        panel.resize(900, 300);
        bool said = false;
        for (const QLabel* label : panel.findChildren<QLabel*>())
            said = said || label->text().contains(QStringLiteral("garbage"));
        QVERIFY(said);
    }
};

SHARDSCOPE_GUI_TEST_MAIN(JobsTest)
#include "jobs_test.moc"
