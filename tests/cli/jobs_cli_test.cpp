// Conversions by several processes, as a user starts them: the same bytes as by one, whatever happens to the
// workers.
#include <QDir>
#include <QElapsedTimer>
#include <QFile>
#include <QFileInfo>
#include <QTemporaryDir>
#include <QTest>
#include <csignal>
#include <random>

#include <unistd.h>

#include "cli/measured_process.h"

using namespace shardscope::test;
using nlohmann::json;

namespace {

constexpr int kTensors = 40;

// The workers of a coordinator, which are its children.
std::vector<pid_t> childrenOf(pid_t parent) {
    QFile file(QString("/proc/%1/task/%1/children").arg(parent));
    std::vector<pid_t> children;
    if (!file.open(QIODevice::ReadOnly)) return children;
    for (const QByteArray& word : file.readAll().split(' ')) {
        if (const pid_t child = word.trimmed().toInt(); child > 0) children.push_back(child);
    }
    return children;
}

bool gone(pid_t process) {
    QFile file(QString("/proc/%1/stat").arg(process));
    if (!file.open(QIODevice::ReadOnly)) return true;
    const QByteArray text = file.readAll();
    return text.mid(text.lastIndexOf(')') + 2, 1) == "Z";
}

}  // namespace

class JobsCliTest : public QObject {
    Q_OBJECT

    QTemporaryDir sources_;
    QString source_;
    json expected_;
    double seconds_ = 1;

    std::vector<std::string> words(const QString& target, std::vector<std::string> more = {}) const {
        std::vector<std::string> all{"convert",
                                     source_.toStdString(),
                                     target.toStdString(),
                                     "--to",
                                     "dcp",
                                     "--mesh",
                                     "tp=3",
                                     "--shard",
                                     "*:tp=1",
                                     "--json"};
        all.insert(all.end(), more.begin(), more.end());
        return all;
    }
    static QStringList remains(const QTemporaryDir& directory) {
        return QDir(directory.path()).entryList(QDir::AllEntries | QDir::Hidden | QDir::NoDotAndDotDot);
    }

  private slots:
    void initTestCase() {
        qputenv("XDG_STATE_HOME", sources_.filePath("state").toUtf8());
        source_ = sources_.filePath("source.safetensors");
        QVERIFY(
            writeRandomSource(source_.toStdString(), kTensors, 1021, 1031, 7));  // 4.2 MB each, cut unevenly
        expected_ = digestsOf(source_.toStdString());
        QCOMPARE(expected_.size(), size_t{kTensors});
    }

    void asByOne_data() {
        QTest::addColumn<QString>("on");
        QTest::addColumn<QStringList>("more");
        for (const char* on : {"local:1", "local:2", "local:4"})
            QTest::newRow(on) << on << QStringList();
        QTest::newRow("verified in full") << "local:2" << QStringList{"--verify", "full"};
        QTest::newRow("little memory") << "local:2" << QStringList{"--memory", "100MiB"};
    }
    void asByOne() {
        QFETCH(QString, on);
        QFETCH(QStringList, more);
        const QTemporaryDir directory;
        const QString target = directory.filePath("out");
        std::vector<std::string> all = words(target, {"--on", on.toStdString()});
        for (const QString& word : more)
            all.push_back(word.toStdString());
        QElapsedTimer timer;
        timer.start();
        const Measured run = runMeasured(all);
        seconds_ = static_cast<double>(timer.elapsed()) / 1000;
        QVERIFY2(run.exitCode == 0, run.describe().c_str());
        const json report = run.json();
        QVERIFY(report["schema"] == json("shardscope.report/1"));
        // --verify full reads the source once more.
        QVERIFY(report["bytes_read"].get<uint64_t>() ==
                report["plan"]["bytes_read"].get<uint64_t>() * (more.contains("full") ? 2 : 1));
        QVERIFY(report["verified"].get<bool>());
        QVERIFY(digestsOf(target.toStdString()) == expected_);
        QCOMPARE(remains(directory), QStringList{"out"});
    }

    void aKilledWorkerCostsNothing_data() {
        QTest::addColumn<int>("signal");
        QTest::newRow("SIGKILL") << SIGKILL;
        QTest::newRow("SIGSTOP") << SIGSTOP;
    }
    void aKilledWorkerCostsNothing() {
        QFETCH(int, signal);
        const QTemporaryDir directory;
        const QString target = directory.filePath("out");
        std::vector<pid_t> workers;
        MeasuredOptions options;
        options.watch = [&](pid_t child, double) {
            workers = childrenOf(child);
            if (workers.size() < 3) return true;
            // Once something has been written.
            if (!QFile::exists(directory.filePath(".out.shardscope-partial/token"))) return true;
            ::kill(workers[1], signal);
            return false;
        };
        const Measured run = runMeasured(words(target, {"--on", "local:3"}), options);
        // Killed before it had joined, it is named; afterwards the others do its part.
        QVERIFY2(run.exitCode == 0 || run.exitCode == 4, run.describe().c_str());
        if (run.exitCode == 0)
            QVERIFY(digestsOf(target.toStdString()) == expected_);
        else
            QVERIFY(!QFile::exists(target));
        for (const pid_t worker : workers)
            QTRY_VERIFY(gone(worker));
    }

    void faultsAtRandom() {
        const int rounds = qEnvironmentVariableIntValue("SHARDSCOPE_FAULTS");
        std::minstd_rand random(20261121);
        for (int round = 0; round < (rounds > 0 ? rounds : 12); ++round) {
            const QTemporaryDir directory;
            const QString target = directory.filePath("out");
            const double moment = std::uniform_real_distribution<double>(0, seconds_)(random);
            const int what = static_cast<int>(random() % 4);
            std::vector<pid_t> workers;
            MeasuredOptions options;
            options.timeoutSeconds = 120;
            options.watch = [&](pid_t child, double elapsed) {
                workers = childrenOf(child);
                if (elapsed < moment) return true;
                if (workers.empty()) return elapsed < seconds_;
                const pid_t worker = workers[random() % workers.size()];
                if (what == 0) ::kill(worker, SIGKILL);
                if (what == 1) ::kill(worker, SIGSTOP);
                if (what == 2) ::kill(child, SIGKILL);
                if (what == 3) ::kill(child, SIGINT);
                return false;
            };
            const Measured run = runMeasured(words(target, {"--on", "local:3"}), options);
            const std::string story = "round " + std::to_string(round) + ", fault " + std::to_string(what) +
                                      " after " + std::to_string(moment) + " s: " + run.describe();
            QVERIFY2(!run.timedOut, story.c_str());
            if (run.exitCode == 0 && run.signal == 0) {
                QVERIFY2(digestsOf(target.toStdString()) == expected_, story.c_str());
            } else {
                if (QFile::exists(target))
                    QVERIFY2(digestsOf(target.toStdString()) == expected_, story.c_str());
                else {
                    QVERIFY2(run.signal == SIGKILL || !run.json()["message"].get<std::string>().empty(),
                             story.c_str());
                    const Measured again = runMeasured(words(target, {"--on", "local:2", "--resume"}));
                    QVERIFY2(again.exitCode == 0, (story + again.describe()).c_str());
                    QVERIFY2(digestsOf(target.toStdString()) == expected_, story.c_str());
                }
            }
            for (const pid_t worker : workers)
                QTRY_VERIFY2(gone(worker), story.c_str());
        }
    }

    void goesOnWithAnothersWork() {
        // Begun by one process, finished by several, and the other way round.
        for (const bool first : {true, false}) {
            const QTemporaryDir directory;
            const QString target = directory.filePath("out");
            const std::vector<std::string> with{"--on", "local:2"}, without;
            MeasuredOptions options;
            options.watch = [&](pid_t child, double) {
                const QFileInfo journal(directory.filePath(".out.shardscope-partial/journal"));
                if (journal.size() < 200) return true;
                ::kill(child, SIGKILL);
                return false;
            };
            runMeasured(words(target, first ? without : with), options);
            if (QFile::exists(target)) continue;  // it was faster
            std::vector<std::string> rest = words(target, first ? with : without);
            rest.push_back("--resume");
            const Measured run = runMeasured(rest);
            QVERIFY2(run.exitCode == 0, run.describe().c_str());
            QVERIFY(digestsOf(target.toStdString()) == expected_);
        }
    }

    void jobsOutliveTheirStart() {
        const QTemporaryDir directory;
        const QString target = directory.filePath("out");
        std::vector<std::string> all{"jobs", "run", "--on", "local:2", "--json"};
        const std::vector<std::string> convert = words(target);
        all.insert(all.end(), convert.begin(), convert.end() - 1);
        const Measured started = runMeasured(all);
        QVERIFY2(started.exitCode == 0, started.describe().c_str());
        const std::string id = started.json()["id"];
        const Measured attached = runMeasured({"jobs", "attach", id, "--json"});
        QVERIFY2(attached.exitCode == 0, attached.describe().c_str());
        QVERIFY(attached.json()["state"] == json("done"));
        QVERIFY(digestsOf(target.toStdString()) == expected_);

        const Measured list = runMeasured({"jobs", "list", "--json"});
        QVERIFY(list.json()["schema"] == json("shardscope.jobs/1"));
        QVERIFY(list.json()["jobs"][0]["id"] == json(id));
        const Measured shown = runMeasured({"jobs", "show", id.substr(0, 17)});
        QVERIFY2(shown.exitCode == 0 && shown.out.find("local 1") != std::string::npos,
                 shown.describe().c_str());
        const Measured log = runMeasured({"jobs", "log", id});
        QVERIFY2(log.out.find("\"event\":\"done\"") != std::string::npos, log.describe().c_str());
        QCOMPARE(runMeasured({"jobs", "cancel", id}).exitCode, 3);
        QCOMPARE(runMeasured({"jobs", "show", "nothing"}).exitCode, 3);

        // The destination is there now: the job fails, and says so where it is asked.
        all.insert(all.begin() + 2, "--wait");
        const Measured again = runMeasured(all);
        QCOMPARE(again.exitCode, 4);
        QVERIFY(again.json()["state"] == json("failed"));
        QVERIFY(again.json()["result"]["code"] == json("exists"));
    }

    void cancelledAndResumed() {
        const QTemporaryDir directory;
        const QString target = directory.filePath("out");
        std::vector<std::string> all{"jobs", "run", "--on", "local:2", "--json"};
        const std::vector<std::string> convert = words(target);
        all.insert(all.end(), convert.begin(), convert.end() - 1);
        const std::string id = runMeasured(all).json()["id"];
        QTRY_VERIFY_WITH_TIMEOUT(
            runMeasured({"jobs", "show", id, "--json"}).json()["state"] != json("starting"), 20000);
        const Measured cancel = runMeasured({"jobs", "cancel", id});
        const Measured ended = runMeasured({"jobs", "attach", id, "--json"});
        if (ended.exitCode == 0) return;  // it was faster
        QVERIFY2(cancel.exitCode == 0, cancel.describe().c_str());
        QCOMPARE(ended.exitCode, 130);
        QVERIFY(ended.json()["state"] == json("cancelled"));
        QVERIFY(!QFile::exists(target));
        QCOMPARE(runMeasured({"jobs", "resume", id}).exitCode, 0);
        const Measured done = runMeasured({"jobs", "attach", id, "--json"});
        QVERIFY2(done.exitCode == 0, done.describe().c_str());
        QVERIFY(digestsOf(target.toStdString()) == expected_);
    }

    void wrongWords() {
        const QTemporaryDir directory;
        const QString target = directory.filePath("out");
        QCOMPARE(runMeasured({"jobs", "run", "--on", "local:2", "info", "x"}).exitCode, 2);
        QCOMPARE(runMeasured({"jobs", "run", "--on", "moon:2", "convert", "a", "b", "--to", "dcp"}).exitCode,
                 2);
        QCOMPARE(runMeasured({"jobs", "run", "--on", "local:2"}).exitCode, 2);
        QCOMPARE(runMeasured(words(target, {"--on", "ssh:-oProxyCommand=x"})).exitCode, 2);
        QCOMPARE(runMeasured({"agent"}).exitCode, 2);
    }
};

QTEST_GUILESS_MAIN(JobsCliTest)
#include "jobs_cli_test.moc"
