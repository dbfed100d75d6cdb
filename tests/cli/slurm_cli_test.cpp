// Conversions on nodes that Slurm lends: a Slurm of the test's own on this machine (tests/cluster/slurm),
// with three nodes. The same bytes as by one process, whatever happens to nodes, steps and allocations.
#include <QDir>
#include <QFile>
#include <QFileInfo>
#include <QProcess>
#include <QTemporaryDir>
#include <QTest>
#include <csignal>
#include <random>

#include "cli/after_fault.h"
#include "cli/measured_process.h"

using namespace shardscope::test;
using nlohmann::json;

namespace {

constexpr int kTensors = 30;
constexpr double kSourceBytes = kTensors * 1021.0 * 1031 * 4;

QString said(const QString& program, const QStringList& words, int* code = nullptr) {
    QProcess process;
    process.start(program, words);
    const bool ended = process.waitForFinished(240'000);
    if (!ended) {
        process.kill();
        process.waitForFinished();
    }
    if (code) *code = ended && process.exitStatus() == QProcess::NormalExit ? process.exitCode() : -1;
    return QString::fromUtf8(process.readAllStandardOutput()).trimmed();
}

// Kills one of the programs of this name that a coordinator has started.
void killOneOf(pid_t coordinator, const char* program, unsigned which) {
    const QStringList found =
        said("pgrep", {"-P", QString::number(coordinator), "-x", program}).split('\n', Qt::SkipEmptyParts);
    if (!found.isEmpty()) ::kill(found[static_cast<qsizetype>(which) % found.size()].toInt(), SIGKILL);
}

}  // namespace

class SlurmCliTest : public QObject {
    Q_OBJECT

    QTemporaryDir directory_;
    QString source_, slurm_;
    std::string mark_;  // in the environment of everything that this Slurm runs
    json expected_;
    bool there_ = false;

    std::vector<std::string> words(const QString& target, const std::vector<std::string>& more) const {
        return convertWords(source_.toStdString(), target.toStdString(), more);
    }
    // Nothing of a conversion is left: no job, no step, no worker.
    bool quiet() const {
        return said("squeue", {"--noheader"}).isEmpty() &&
               said("squeue", {"--noheader", "--steps"}).isEmpty() && agentsWith(mark_).empty();
    }
    static QStringList remains(const QTemporaryDir& directory) {
        return QDir(directory.path()).entryList(QDir::AllEntries | QDir::Hidden | QDir::NoDotAndDotDot);
    }
    // Calls `what` once a part of the work is done, or after so much of it.
    MeasuredOptions onTheWay(const std::function<void(pid_t)>& what, double part = 0.1) const {
        MeasuredOptions options;
        options.timeoutSeconds = 90;
        options.watch = [this, what, part, agents = std::vector<pid_t>()](pid_t child, double) mutable {
            if (agents.size() < 2) agents = agentsWith(mark_);  // which takes longer than much of the work
            if (static_cast<double>(bytesRead(agents)) < part * kSourceBytes) return true;
            what(child);
            return false;
        };
        return options;
    }
    static void wakeNodes() {
        for (const char* node : {"n1", "n2", "n3"})
            said("scontrol", {"update", QString("nodename=%1").arg(node), "state=resume"});
        QTRY_COMPARE_WITH_TIMEOUT(
            said("sinfo", {"--noheader", "--partition=work", "--states=idle", "--format=%D"}), QString("3"),
            20'000);
    }

#ifdef SHARDSCOPE_POOR_HOST
    // The program, with so many milliseconds for each writing: a job that is not done before something
    // happens to it.
    static QString slowProgram(const QTemporaryDir& directory, int milliseconds) {
        const QString path = directory.filePath("slow");
        QFile script(path);
        if (!script.open(QIODevice::WriteOnly)) qFatal("cannot write %s", qPrintable(path));
        script.write("#!/bin/sh\nexport LD_PRELOAD=" SHARDSCOPE_POOR_HOST " SHARDSCOPE_TEST_WRITE=" +
                     QByteArray::number(milliseconds) + "\nexec " SHARDSCOPE_PROGRAM " \"$@\"\n");
        script.close();
        script.setPermissions(QFile::ReadOwner | QFile::WriteOwner | QFile::ExeOwner);
        return path;
    }
#endif

  private slots:
    void initTestCase() {
        qputenv("XDG_STATE_HOME", directory_.filePath("state").toUtf8());
        keepSecret();
        for (const char* name : {"SLURM_JOB_ID", "SLURM_JOBID"})
            qunsetenv(name);
        slurm_ = directory_.filePath("slurm");
        int code = -1;
        const QString why = said(SHARDSCOPE_SLURM, {"start", slurm_}, &code);
        if (code == 77) QSKIP(qPrintable(why));
        QCOMPARE(code, 0);
        there_ = true;
        qputenv("SLURM_CONF", (slurm_ + "/slurm.conf").toUtf8());
        mark_ = "SLURM_CONF=" + slurm_.toStdString() + "/slurm.conf";
        source_ = directory_.filePath("source.safetensors");
        QVERIFY(writeRandomSource(source_.toStdString(), kTensors, 1021, 1031, 7));
        expected_ = digestsOf(source_.toStdString());
        QCOMPARE(expected_.size(), size_t{kTensors});
    }
    void cleanupTestCase() {
        if (there_) said(SHARDSCOPE_SLURM, {"stop", slurm_});
    }

    // Without a coordinator: Slurm starts the parts, and the last one finishes.
    void partsOfAStep() {
        const QTemporaryDir directory;
        const QString target = directory.filePath("out");
        int code = -1;
        QStringList command{"--nodes=2", "--ntasks=4", "--quiet", SHARDSCOPE_PROGRAM};
        for (const std::string& word : words(target, {"--part", "auto", "--finish", "auto"}))
            command << QString::fromStdString(word);
        said("srun", command, &code);
        QCOMPARE(code, 0);
        QVERIFY(digestsOf(target.toStdString()) == expected_);
        QCOMPARE(remains(directory), QStringList("out"));
    }

    // The tasks of a step are the ranks; in the script around steps there is one, whatever SLURM_NTASKS says.
    void ranks_data() {
        QTest::addColumn<bool>("step");
        QTest::newRow("of a step") << true;
        QTest::newRow("of the script of a batch job") << false;
    }
    void ranks() {
        QFETCH(bool, step);
        const QTemporaryDir directory;
        const QString target = directory.filePath("out");
        const std::string report = directory.filePath("report").toStdString();
        QStringList wrapped{step ? "srun " SHARDSCOPE_PROGRAM : SHARDSCOPE_PROGRAM};
        for (const std::string& word :
             words(target, {"--on", "ranks,direct", "--join-timeout", "20", "--report", report}))
            wrapped << '\'' + QString::fromStdString(word) + '\'';
        int code = -1;
        // The nodes are this machine, whose names nobody resolves.
        const QString answer = said("sbatch",
                                    {"--nodes=2", "--ntasks=3", "--wait", "--output=/dev/null",
                                     "--export=ALL,MASTER_ADDR=127.0.0.1", "--wrap=" + wrapped.join(' ')},
                                    &code);
        QVERIFY2(code == 0, qPrintable(answer));
        QVERIFY(digestsOf(target.toStdString()) == expected_);
        QFile file(QString::fromStdString(report));
        QVERIFY(file.open(QIODevice::ReadOnly));
        QCOMPARE(json::parse(file.readAll().toStdString())["group"]["ranks"].get<int>(), step ? 3 : 1);
    }

    void partsOfAnArray() {
        const QTemporaryDir directory;
        const QString target = directory.filePath("out");
        QStringList wrapped{SHARDSCOPE_PROGRAM};
        for (const std::string& word : words(target, {"--part", "auto", "--finish", "auto"}))
            wrapped << '\'' + QString::fromStdString(word) + '\'';
        int code = -1;
        // Indices that neither begin at 0 nor follow each other.
        const QString answer =
            said("sbatch", {"--array=3-9:2", "--wait", "--output=/dev/null", "--wrap=" + wrapped.join(' ')},
                 &code);
        QVERIFY2(code == 0, qPrintable(answer));
        QVERIFY(digestsOf(target.toStdString()) == expected_);
        QCOMPARE(remains(directory), QStringList("out"));
    }

    // A task is killed on the way, with all of its processes, and Slurm runs it again.
    void anArrayOfWhichATaskIsRequeued() {
        const QTemporaryDir directory;
        const QString target = directory.filePath("out");
        const QString script = directory.filePath("task");
        QFile file(script);
        QVERIFY(file.open(QIODevice::WriteOnly));
        QByteArray command = "\"" SHARDSCOPE_PROGRAM "\"";
        for (const std::string& word : words(target, {"--part", "auto"}))
            command += " '" + QByteArray::fromStdString(word) + '\'';
        // The others begin once it is killed, and its last record is torn, so that no attempt is the last one
        // but the second.
        file.write("#!/bin/bash\ncd '" + directory.path().toUtf8() +
                   "'\n"
                   "if [ \"$SLURM_ARRAY_TASK_ID\" = 1 ] && mkdir hit; then\n" +
                   command +
                   " &\n"
                   "    until compgen -G '.out.shardscope-partial/part-1.journal'; do sleep 0.01; done\n"
                   "    kill -9 $!\n"
                   "    wait $!\n"
                   "    truncate -s -5 .out.shardscope-partial/part-1.journal\n"
                   "    touch killed\n"
                   "    scontrol requeue $SLURM_JOB_ID\n"
                   "    sleep 60\n"  // Slurm ends it before
                   "fi\n"
                   "until [ -e killed ]; do sleep 0.01; done\n" +
                   command + " --finish auto\n");
        file.close();
        int code = -1;
        const QString array =
            said("sbatch", {"--array=0-3", "--requeue", "--parsable", "--output=/dev/null", script}, &code);
        QVERIFY2(code == 0, qPrintable(array));
        // A job that is requeued starts once its old credential has run out (cred_expire in
        // tests/cluster/slurm). Told to start before, Slurm may take the new credential for the revoked one
        // and end the job.
        QTRY_VERIFY_WITH_TIMEOUT(said("squeue", {"--noheader"}).isEmpty(), 200'000);
        QVERIFY(QFileInfo::exists(target));
        QVERIFY(QFileInfo::exists(directory.filePath("killed")));
        QVERIFY(digestsOf(target.toStdString()) == expected_);
        QCOMPARE(remains(directory), QStringList({"hit", "killed", "out", "task"}));
    }

    void matchesSingleProcess_data() {
        QTest::addColumn<QString>("on");
        QTest::newRow("two nodes") << "slurm:nodes=2";
        QTest::newRow("two workers on each")
            << "slurm:nodes=2,ntasks-per-node=2,partition=work,time=00:05:00,nodelist=n[2,3]";
        QTest::newRow("beside processes here") << "local:1+slurm:nodes=2,scratch=/tmp";
        QTest::newRow("two allocations") << "slurm+slurm:partition=short";
    }
    void matchesSingleProcess() {
        QFETCH(QString, on);
        const QTemporaryDir directory;
        const QString target = directory.filePath("out");
        const Measured run = runMeasured(words(target, {"--on", on.toStdString()}));
        QVERIFY2(run.exitCode == 0, run.describe().c_str());
        QVERIFY(run.json()["verified"].get<bool>());
        QVERIFY(digestsOf(target.toStdString()) == expected_);
        QCOMPARE(remains(directory), QStringList{"out"});
        QTRY_VERIFY(quiet());
    }

    void readings() {
        const QTemporaryDir directory;
        const std::string source = source_.toStdString(),
                          records = directory.filePath("records").toStdString();
        for (const std::vector<std::string>& what :
             {std::vector<std::string>{"digest", source, "--json"},
              std::vector<std::string>{"validate", source, "--json", "--level", "values"}}) {
            const Measured one = runMeasured(what);
            std::vector<std::string> several = what;
            several.insert(several.end(), {"--on", "slurm:nodes=2", "--records", records});
            const Measured run = runMeasured(several);
            QVERIFY2(run.out == one.out && run.exitCode == one.exitCode, run.describe().c_str());
            QCOMPARE(remains(directory), QStringList());
            QTRY_VERIFY(quiet());
        }
    }

    void inAnAllocation() {
        const QTemporaryDir directory;
        const QString target = directory.filePath("out");
        QCOMPARE(said("salloc", {"--no-shell", "--quiet", "--nodes=2", "--job-name=mine"}), QString());
        const QString job = said("squeue", {"--noheader", "--name=mine", "--format=%A"});
        const auto with = [&](const QString& on) {
            return runMeasured(words(target, {"--on", on.toStdString()}));
        };
        const Measured many = with("slurm:nodes=3,job=" + job);
        QCOMPARE(many.exitCode, 2);
        QVERIFY2(many.out.find("fewer nodes") != std::string::npos, many.describe().c_str());
        const Measured run = with("slurm:nodes=2,job=" + job);
        QVERIFY2(run.exitCode == 0, run.describe().c_str());
        QVERIFY(digestsOf(target.toStdString()) == expected_);
        QVERIFY(QDir(target).removeRecursively());

        // As a program of the allocation sees it.
        qputenv("SLURM_JOB_ID", job.toUtf8());
        const Measured shaped = with("slurm:nodes=2,partition=work"), inside = with("slurm:nodes=2");
        qunsetenv("SLURM_JOB_ID");
        QCOMPARE(shaped.exitCode, 2);
        QVERIFY2(shaped.out.find("is for a new allocation") != std::string::npos, shaped.describe().c_str());
        QVERIFY2(inside.exitCode == 0, inside.describe().c_str());
        QVERIFY(digestsOf(target.toStdString()) == expected_);
        QCOMPARE(said("squeue", {"--noheader", "--format=%A"}), job);  // it is not ours to end
        said("scancel", {job});
        QTRY_VERIFY(quiet());
        const Measured gone =
            runMeasured(words(directory.filePath("other"), {"--on", "slurm:job=" + job.toStdString()}));
        QVERIFY2(gone.exitCode == 4 && gone.out.find("has no nodes") != std::string::npos,
                 gone.describe().c_str());
    }

    void workersAndNodesThatFail_data() {
        QTest::addColumn<QString>("what");
        for (const char* what : {"killed", "stopped", "srun killed", "node down"})
            QTest::newRow(what) << what;
    }
    void workersAndNodesThatFail() {
        QFETCH(QString, what);
        const QTemporaryDir directory;
        const QString target = directory.filePath("out");
        bool hit = false;
        const Measured run =
            runMeasured(words(target, {"--on", "slurm:nodes=2"}), onTheWay([&](pid_t child) {
                            hit = true;
                            const std::vector<pid_t> agents = agentsWith(mark_);
                            if (what == "node down") {
                                said("scontrol", {"update", "nodename=n2", "state=down", "reason=test"});
                            } else if (what == "srun killed") {
                                killOneOf(child, "srun", 1);
                            } else if (!agents.empty()) {
                                ::kill(agents.back(), what == "killed" ? SIGKILL : SIGSTOP);
                            }
                        }));
        QVERIFY2(run.exitCode == 0, run.describe().c_str());
        QVERIFY(hit);
        QVERIFY2(run.wallSeconds < 40, run.describe().c_str());
        QVERIFY(digestsOf(target.toStdString()) == expected_);
        QTRY_VERIFY_WITH_TIMEOUT(quiet(), 15'000);
        wakeNodes();
    }

#ifdef SHARDSCOPE_POOR_HOST
    void anAllocationThatEnds() {
        const QTemporaryDir directory;
        const QString target = directory.filePath("out"), slow = slowProgram(directory, 200);
        const Measured run =
            runMeasured(words(target, {"--on", "slurm:nodes=2", "--remote-program", slow.toStdString()}),
                        onTheWay([&](pid_t) {
                            // Not done before Slurm's patience ends: it lets them run for
                            // two seconds.
                            const std::vector<pid_t> agents = agentsWith(mark_);
                            const auto stop = [&] {
                                for (const pid_t agent : agents)
                                    ::kill(agent, SIGSTOP);
                            };
                            stop();
                            said("scancel", {"--name=shardscope"});
                            QTest::qSleep(50);
                            stop();
                        }));
        QVERIFY2(run.exitCode == 4, run.describe().c_str());
        QVERIFY2(run.wallSeconds < 40, run.describe().c_str());
        const std::string message = run.json()["message"];
        QVERIFY2(message.find("CANCELLED") != std::string::npos, message.c_str());
        QVERIFY2(message.find("has been revoked") != std::string::npos, message.c_str());
        QVERIFY(!QFile::exists(target));
        QTRY_VERIFY_WITH_TIMEOUT(quiet(), 15'000);
        const Measured again = runMeasured(words(target, {"--on", "slurm:nodes=2", "--resume"}));
        QVERIFY2(again.exitCode == 0, again.describe().c_str());
        QVERIFY(digestsOf(target.toStdString()) == expected_);
        QTRY_VERIFY(quiet());
    }

    void aTimeLimitThatIsReached() {
        const QTemporaryDir directory;
        const QString target = directory.filePath("out"), slow = slowProgram(directory, 3000);
        // A minute is the least that can be asked for; it is cut short. Slurm looks every half minute.
        Measured run;
        std::string message;
        // Until Slurm looks, the workers of a busy machine may have been silent for too long.
        for (int tries = 0; tries < 3 && (tries == 0 || message.find("silent") != std::string::npos);
             ++tries) {
            QDir(directory.filePath(".out.shardscope-partial")).removeRecursively();
            QTRY_VERIFY_WITH_TIMEOUT(quiet(), 15'000);
            MeasuredOptions options = onTheWay([](pid_t) {
                const QString job = said("squeue", {"--noheader", "--name=shardscope", "--format=%A"});
                said("scontrol", {"update", "jobid=" + job, "EndTime=now"});
            });
            options.timeoutSeconds = 240;
            run = runMeasured(words(target, {"--on", "slurm:nodes=2,partition=short,time=00:01:00",
                                             "--remote-program", slow.toStdString()}),
                              options);
            QVERIFY2(run.exitCode == 4, run.describe().c_str());
            message = run.json()["message"];
        }
        // The state, or the reason where a node that is slow to answer leaves it COMPLETING.
        QVERIFY2(
            message.find("TIMEOUT") != std::string::npos || message.find("(TimeLimit)") != std::string::npos,
            message.c_str());
        QVERIFY(!QFile::exists(target));
        QTRY_VERIFY_WITH_TIMEOUT(quiet(), 15'000);
        wakeNodes();
        const std::string wrong = afterFault(run, target.toStdString(), expected_,
                                             words(target, {"--on", "slurm:nodes=2", "--resume"}));
        QVERIFY2(wrong.empty(), wrong.c_str());
        QTRY_VERIFY(quiet());
    }
#endif

    void aCoordinatorThatIsKilled() {
        const QTemporaryDir directory;
        const QString target = directory.filePath("out");
        const Measured run = runMeasured(words(target, {"--on", "slurm:nodes=2"}),
                                         onTheWay([](pid_t child) { ::kill(child, SIGKILL); }));
        QCOMPARE(run.signal, SIGKILL);
        QTRY_VERIFY_WITH_TIMEOUT(quiet(), 15'000);
        const Measured again = runMeasured(words(target, {"--on", "slurm:nodes=2", "--resume"}));
        QVERIFY2(again.exitCode == 0, again.describe().c_str());
        QVERIFY(digestsOf(target.toStdString()) == expected_);
        QTRY_VERIFY(quiet());
    }

    void whatSlurmRefuses_data() {
        QTest::addColumn<QString>("on");
        QTest::addColumn<int>("code");
        QTest::addColumn<QString>("says");
        QTest::newRow("partition") << "slurm:partition=nowhere" << 4
                                   << "invalid partition specified: nowhere";
        QTest::newRow("feature") << "slurm:constraint=quantum" << 4 << "Invalid feature specification";
        QTest::newRow("patience") << "slurm:nodes=9,immediate=1" << 4 << "available now";
        QTest::newRow("option") << "slurm:nodes=2,wrap=x" << 2 << "has no option 'wrap=x'";
    }
    void whatSlurmRefuses() {
        QFETCH(QString, on);
        QFETCH(int, code);
        QFETCH(QString, says);
        const QTemporaryDir directory;
        const Measured run = runMeasured(words(directory.filePath("out"), {"--on", on.toStdString()}));
        QCOMPARE(run.exitCode, code);
        QVERIFY2(QString::fromStdString(run.json()["message"]).contains(says), run.describe().c_str());
        QVERIFY(!QFile::exists(directory.filePath("out")));
        QTRY_VERIFY(quiet());
    }

    void aProgramThatIsNotThere() {
        const QTemporaryDir directory;
        const std::vector<std::string> on{"--on", "slurm:nodes=2"};
        std::vector<std::string> elsewhere = words(directory.filePath("out"), on);
        elsewhere.insert(elsewhere.end(), {"--remote-program", "/nowhere/shardscope"});
        const Measured run = runMeasured(elsewhere);
        QVERIFY2(run.exitCode == 4 && run.out.find("/nowhere") != std::string::npos, run.describe().c_str());
        QTRY_VERIFY(quiet());
        const QByteArray path = qgetenv("PATH");
        qputenv("PATH", directory.path().toUtf8());
        const Measured without = runMeasured(words(directory.filePath("out"), on));
        qputenv("PATH", path);
        QVERIFY2(without.exitCode == 3 && without.out.find("there is no program salloc") != std::string::npos,
                 without.describe().c_str());
    }

    void jobs() {
        const QTemporaryDir directory;
        const QString target = directory.filePath("out");
        std::vector<std::string> all{"jobs", "run", "--on", "slurm:nodes=2", "--json"};
        const std::vector<std::string> convert = words(target, {});
        all.insert(all.end(), convert.begin(), convert.end() - 1);

        // It waits while another has the nodes, says so, and is cancelled.
        said("salloc", {"--no-shell", "--quiet", "--nodes=3", "--exclusive", "--job-name=hog"});
        const Measured started = runMeasured(all);
        QVERIFY2(started.exitCode == 0, started.describe().c_str());
        const std::string id = started.json()["id"];
        json shown;
        QTRY_VERIFY_WITH_TIMEOUT((shown = runMeasured({"jobs", "show", id, "--json"}).json(),
                                  shown["slurm"].size() == 1 &&
                                      shown["slurm"][0]["state"].get<std::string>().starts_with("PENDING")),
                                 20'000);
        const Measured text = runMeasured({"jobs", "show", id});
        QVERIFY2(text.out.find("job " + shown["slurm"][0]["job"].get<std::string>() + ": PENDING") !=
                     std::string::npos,
                 text.describe().c_str());
        QCOMPARE(runMeasured({"jobs", "cancel", id}).exitCode, 0);
        QCOMPARE(runMeasured({"jobs", "attach", id}).exitCode, 130);
        QTRY_COMPARE(said("squeue", {"--noheader", "--format=%j"}), QString("hog"));

        said("scancel", {"--name=hog"});
        QCOMPARE(runMeasured({"jobs", "resume", id}).exitCode, 0);
        const Measured done = runMeasured({"jobs", "attach", id, "--json"});
        QVERIFY2(done.exitCode == 0, done.describe().c_str());
        QVERIFY(digestsOf(target.toStdString()) == expected_);
        QTRY_VERIFY(quiet());
        shown = runMeasured({"jobs", "show", id, "--json"}).json();
        QCOMPARE(shown["slurm"][0]["state"].get<std::string>(), std::string("COMPLETED"));
        QCOMPARE(runMeasured({"jobs", "list", "--json"}).json()["jobs"][0]["id"].get<std::string>(), id);
        const Measured log = runMeasured({"jobs", "log", id});
        QVERIFY2(log.out.find("Pending job allocation") != std::string::npos, log.describe().c_str());
    }

    void cancelledOnTheWay() {
        const QTemporaryDir directory;
        const QString target = directory.filePath("out");
        std::vector<std::string> all{"jobs", "run", "--on", "slurm:nodes=2", "--json"};
        const std::vector<std::string> convert = words(target, {});
        all.insert(all.end(), convert.begin(), convert.end() - 1);
        const std::string id = runMeasured(all).json()["id"];
        QTRY_VERIFY_WITH_TIMEOUT(!agentsWith(mark_).empty() || QFile::exists(target), 20'000);
        runMeasured({"jobs", "cancel", id});
        const Measured ended = runMeasured({"jobs", "attach", id, "--json"});
        QTRY_VERIFY_WITH_TIMEOUT(quiet(), 15'000);
        if (ended.exitCode == 0) return;  // it was faster
        QVERIFY2(ended.exitCode == 130, ended.describe().c_str());
        QVERIFY(!QFile::exists(target));
        QCOMPARE(runMeasured({"jobs", "resume", id}).exitCode, 0);
        const Measured done = runMeasured({"jobs", "attach", id, "--json"});
        QVERIFY2(done.exitCode == 0, done.describe().c_str());
        QVERIFY(digestsOf(target.toStdString()) == expected_);
        QTRY_VERIFY(quiet());
    }

    // SHARDSCOPE_FAULTS=N makes N of them (with QTEST_FUNCTION_TIMEOUT=3600000 for 200), SHARDSCOPE_SEED=S
    // draws others.
    void faultsAtRandom() {
        const int rounds = qEnvironmentVariableIntValue("SHARDSCOPE_FAULTS");
        const int seed = qEnvironmentVariableIntValue("SHARDSCOPE_SEED");
        std::minstd_rand random(static_cast<unsigned>(seed > 0 ? seed : 20261122));
        qInfo("SHARDSCOPE_SEED=%d", seed > 0 ? seed : 20261122);
        for (int round = 0; round < (rounds > 0 ? rounds : 6); ++round) {
            const QTemporaryDir directory;
            const QString target = directory.filePath("out");
            const double moment = std::uniform_real_distribution<double>(0, 1)(random);
            constexpr const char* kFaults[] = {"worker killed", "worker stopped",     "node down",
                                               "scancel",       "coordinator killed", "Ctrl-C",
                                               "srun killed",   "salloc killed"};
            const std::string what = kFaults[random() % std::size(kFaults)];
            const unsigned which = static_cast<unsigned>(random());
            const auto fault = [&](pid_t child) {
                const std::vector<pid_t> agents = agentsWith(mark_);
                if (what.starts_with("worker") && !agents.empty())
                    ::kill(agents[which % agents.size()], what == "worker killed" ? SIGKILL : SIGSTOP);
                if (what == "node down")
                    said("scontrol",
                         {"update", QString("nodename=n%1").arg(which % 2 + 1), "state=down", "reason=test"});
                if (what == "scancel") said("scancel", {"--name=shardscope"});
                if (what == "coordinator killed") ::kill(child, SIGKILL);
                if (what == "Ctrl-C") ::kill(child, SIGINT);
                if (what == "srun killed") killOneOf(child, "srun", which);
                if (what == "salloc killed") killOneOf(child, "salloc", which);
            };
            const Measured run =
                runMeasured(words(target, {"--on", "slurm:nodes=2"}), onTheWay(fault, moment));
            const std::string story = "round " + std::to_string(round) + ", " + what + " after " +
                                      std::to_string(moment) + " of the bytes: ";
            // With salloc gone nobody tells Slurm that the nodes are free but the conversion itself.
            QTRY_VERIFY2_WITH_TIMEOUT(
                quiet(), (story + "something is left behind; " + run.describe()).c_str(), 15'000);
            wakeNodes();
            const std::string wrong = afterFault(run, target.toStdString(), expected_,
                                                 words(target, {"--on", "slurm:nodes=2", "--resume"}));
            QVERIFY2(wrong.empty(), (story + wrong + "\n" + run.describe()).c_str());
            QTRY_VERIFY(quiet());
        }
    }
};

QTEST_GUILESS_MAIN(SlurmCliTest)
#include "slurm_cli_test.moc"
