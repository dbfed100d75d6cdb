#include <QAbstractItemModelTester>
#include <QApplication>
#include <QClipboard>
#include <QComboBox>
#include <QDir>
#include <QDirIterator>
#include <QElapsedTimer>
#include <QFile>
#include <QFileInfo>
#include <QJsonArray>
#include <QJsonDocument>
#include <QJsonObject>
#include <QLabel>
#include <QPlainTextEdit>
#include <QProcess>
#include <QPushButton>
#include <QSignalSpy>
#include <QTabWidget>
#include <QThread>
#include <QTreeView>
#include <QTreeWidget>
#include <cmath>
#include <csignal>

#include <unistd.h>

#include "base/units.h"
#include "support/gui_test.h"
#include "support/recorded_job.h"
#include "ui/models/job_store.h"
#include "ui/models/job_table_model.h"
#include "ui/pages/jobs_panel.h"
#include "ui/pages/log_panel.h"
#include "ui/widgets/lanes.h"

using namespace shardscope;
using namespace shardscope::ui;
using shardscope::test::RecordedJob;

namespace {

const QString kProgram = QStringLiteral(SHARDSCOPE_PROGRAM);
constexpr int kPatience = 30'000;  // milliseconds; processes share the machine with other tests

struct ProgramRun {
    int code = -1;
    QByteArray out, err;
};
ProgramRun runShardscope(const QStringList& arguments) {
    QProcess process;
    process.start(kProgram, arguments);
    if (!process.waitForFinished(60'000)) return {};
    return {process.exitCode(), process.readAllStandardOutput(), process.readAllStandardError()};
}

QString thisHost() {
    return QSysInfo::machineHostName();
}
QString thisBoot() {
    QFile file(QStringLiteral("/proc/sys/kernel/random/boot_id"));
    return file.open(QIODevice::ReadOnly) ? QString::fromLatin1(file.readAll().trimmed()) : QString();
}

void write(const QString& path, const QByteArray& text) {
    QFile file(path);
    QVERIFY(file.open(QIODevice::WriteOnly));
    file.write(text);
}

ConversionSpec simple(const QString& destination) {
    ConversionSpec spec;
    spec.source = sampleCheckpoint();
    spec.destination = destination;
    spec.format = QStringLiteral("safetensors");
    return spec;
}

QPushButton* buttonWith(QWidget& widget, const QString& text) {
    for (QPushButton* button : widget.findChildren<QPushButton*>()) {
        if (button->text() == text) return button;
    }
    return nullptr;
}

}  // namespace

class JobsTest : public QObject {
    Q_OBJECT

    QTemporaryDir directory_;
    int count_ = 0;

    QString fresh() {
        const QString path = directory_.filePath(QString::number(++count_));
        QDir().mkpath(path);
        return path;
    }
    // A program that continues until it is interrupted or killed, and that does the work when it is told to
    // resume.
    QString patientProgram() {
        const QString path = fresh() + "/patient";
        write(path,
              "#!/bin/sh\n"
              "for word in \"$@\"; do [ \"$word\" = --resume ] && exec '" +
                  kProgram.toLocal8Bit() +
                  "' \"$@\"; done\n"
                  "trap 'echo "
                  "\"{\\\"schema\\\":\\\"shardscope.error/"
                  "1\\\",\\\"code\\\":\\\"cancelled\\\",\\\"message\\\":\\\"cancelled\\\"}\"; exit 130' INT\n"
                  "echo "
                  "'{\"event\":\"progress\",\"phase\":\"write\",\"bytes_done\":1048576,\"bytes_total\":"
                  "4194304,\"rate\":2097152.0,\"eta_s\":1.5,\"tensor\":\"a.weight\"}' >&2\n"
                  "while :; do sleep 0.05; done\n");
        QFile::setPermissions(path, QFile::ReadOwner | QFile::WriteOwner | QFile::ExeOwner);
        return path;
    }
    static QString startAndWait(JobStore& store, const ConversionSpec& spec, JobState state) {
        const auto id = store.start(spec, QStringLiteral("sample to safetensors"));
        if (!id.ok()) {
            qWarning("%s", describe(id.error()).c_str());
            return {};
        }
        [&] { QTRY_VERIFY_WITH_TIMEOUT(store.find(*id) && store.find(*id)->state == state, kPatience); }();
        return *id;
    }

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
        QCOMPARE(job->exitCode, 0);
        QCOMPARE(job->arguments, spec.arguments());
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
        const pid_t group = getpgid(static_cast<pid_t>(job->pid));
        QVERIFY(group > 1 && group != getpgrp());
        ::kill(-group, SIGKILL);
        QTRY_COMPARE_WITH_TIMEOUT(store.find(id)->state, JobState::lost, kPatience);
        QVERIFY(store.find(id)->resumable());
        QVERIFY(store.resume(id).ok());
        QTRY_COMPARE_WITH_TIMEOUT(store.find(id)->state, JobState::done, kPatience);
        QCOMPARE(store.find(id)->attempts, 2);
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
        QTRY_COMPARE_WITH_TIMEOUT(store.find(*id)->state, JobState::lost, kPatience);
        QVERIFY(!QFileInfo::exists(spec.destination));
        QVERIFY(store.resume(*id).ok());
        QVERIFY(store.find(*id)->active());
        QVERIFY(!store.resume(*id).ok());  // not twice
        QTRY_VERIFY_WITH_TIMEOUT(!store.find(*id)->active(), 4 * kPatience);
        const Job* job = store.find(*id);
        QVERIFY2(job->state == JobState::done, qPrintable(job->error ? job->error->message : QString()));
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
        QTRY_COMPARE_WITH_TIMEOUT(store.find(id)->state, JobState::cancelled, kPatience);
        QVERIFY(!store.cancelling(id));
        QCOMPARE(store.find(id)->exitCode, 130);
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
        QTRY_VERIFY_WITH_TIMEOUT(first.find(id) && first.find(id)->state == JobState::running, kPatience);
        QTRY_VERIFY_WITH_TIMEOUT(second.find(id), kPatience);
        // It leads a session of its own: a window that is killed with its terminal does not take it along.
        QVERIFY(getsid(static_cast<pid_t>(first.find(id)->pid)) != getsid(0));
        QVERIFY(first.cancel(id).ok());
        QTRY_COMPARE_WITH_TIMEOUT(second.find(id)->state, JobState::cancelled, kPatience);
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
        QCOMPARE(store.find(QStringLiteral("old"))->state, JobState::lost);
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
                    {"why", lost ? "it has been silent for 3 seconds" : ""}};
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
        QVERIFY(store.find("20261121-1")->elsewhere);
        picture(panel, QStringLiteral("jobs-rates"));
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
        QTRY_COMPARE_WITH_TIMEOUT(store.find(running)->state, JobState::cancelled, kPatience);
        QPushButton* resume = buttonWith(panel, QStringLiteral("Resume"));
        QTRY_VERIFY(resume->isEnabled());
        shoot(panel, QStringLiteral("jobs-cancelled"));
        QTest::keyClick(resume, Qt::Key_Space);
        QTRY_COMPARE_WITH_TIMEOUT(store.find(running)->state, JobState::done, kPatience);

        const QSignalSpy opened(&panel, &JobsPanel::openRequested);
        QPushButton* open = buttonWith(panel, QStringLiteral("Open result"));
        QTRY_VERIFY(open->isEnabled());
        QTest::mouseClick(open, Qt::LeftButton);
        QCOMPARE(opened.size(), 1);
        QCOMPARE(opened[0][0].toString(), store.find(running)->destination);
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
        QTRY_VERIFY_WITH_TIMEOUT(store.find(id)->state == JobState::done, kPatience);
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
        QTRY_VERIFY_WITH_TIMEOUT(store.find(id) && store.find(id)->state == JobState::running, kPatience);
        QTRY_COMPARE(store.find(id)->progress.bytesDone, uint64_t{1} << 20);
        QVERIFY(store.cancel(id).ok());
        QTRY_VERIFY_WITH_TIMEOUT(store.find(id)->state == JobState::cancelled, kPatience);
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
        RateTableModel model;
        const QAbstractItemModelTester tester(&model, QAbstractItemModelTester::FailureReportingMode::QtTest);
        model.setRates(rates, 0.5);
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
        model.setRates(rates, 0.5);
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

SHARDSCOPE_GUI_TEST_MAIN(JobsTest)
#include "jobs_test.moc"
