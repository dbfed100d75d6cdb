// Conversions by several processes, as a user starts them: the same bytes as by one, whatever happens to the
// workers.
#include <QDir>
#include <QElapsedTimer>
#include <QFile>
#include <QFileInfo>
#include <QTemporaryDir>
#include <QTest>
#include <atomic>
#include <cmath>
#include <csignal>
#include <map>
#include <random>
#include <thread>

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/after_fault.h"
#include "cli/measured_process.h"

using namespace shardscope::test;
using nlohmann::json;

namespace {

constexpr int kTensors = 40;
constexpr double kSourceBytes = kTensors * 1021.0 * 1031 * 4;

// Of processes; then those of a host and of the connection to it, which kBadConnection makes.
constexpr const char* kFaults[] = {"worker killed",
                                   "worker stopped",
                                   "coordinator killed",
                                   "Ctrl-C",
                                   "a worker's disk full",
                                   "disk full",
                                   "answers garbled",
                                   "orders garbled",
                                   "answers cut",
                                   "orders cut",
                                   "link dead",
                                   "banners",
                                   "an older agent",
#ifdef SHARDSCOPE_POOR_HOST
                                   "a clock that jumps",
                                   "the disk of a host full",
#endif
                                   "a source of its own",
                                   "a destination of its own"};
constexpr size_t kOfProcesses = 6;

// Runs what ssh would run; the connection is what SHARDSCOPE_TEST_FAULT says, after that many bytes. dd
// passes each byte on at once; the script itself holds no end of a pipe.
constexpr const char* kBadConnection = R"(#!/bin/sh
for command; do :; done
some() { exec dd bs=1 count="$SHARDSCOPE_TEST_BYTES" status=none; }
dead() { dd bs=1 count="$SHARDSCOPE_TEST_BYTES" status=none; exec sleep 20; }
hidden() { exec unshare -rm sh -c 'mount -t tmpfs none "$0" && exec sh -c "$1"' "$1" "$command"; }
garbled() { dd bs=1 count="$SHARDSCOPE_TEST_BYTES" status=none; printf 'garbage, and more of it'; exec cat; }
exec 3<&0 4>&1 < /dev/null > /dev/null
case $SHARDSCOPE_TEST_FAULT in
"answers garbled") sh -c "$command" <&3 3<&- 4>&- | garbled >&4 3<&- 4>&- & ;;
"orders garbled") garbled <&3 3<&- 4>&- | sh -c "$command" >&4 3<&- 4>&- & ;;
"answers cut") sh -c "$command" <&3 3<&- 4>&- | some >&4 3<&- 4>&- & ;;
"link dead") sh -c "$command" <&3 3<&- 4>&- | dead >&4 3<&- 4>&- & ;;
"banners")
    head -c "$SHARDSCOPE_TEST_BYTES" /dev/zero | tr '\0' '\007' | tee /dev/stderr >&4
    exec sh -c "$command" <&3 >&4 3<&- 4>&- ;;
"an older agent")
    printf '\365\311\261\056\0\0\0\0\0\0\0{"say":"hello","version":"0.0.9","protocol":1}' >&4
    exec cat <&3 4>&- ;;
"a clock that jumps")
    export LD_PRELOAD="$SHARDSCOPE_TEST_PRELOAD" SHARDSCOPE_TEST_CLOCK="$SHARDSCOPE_TEST_BYTES"
    exec sh -c "$command" <&3 >&4 3<&- 4>&- ;;
"the disk of a host full")
    export LD_PRELOAD="$SHARDSCOPE_TEST_PRELOAD" SHARDSCOPE_TEST_DISK="${SHARDSCOPE_TEST_BYTES}000"
    exec sh -c "$command" <&3 >&4 3<&- 4>&- ;;
"a source of its own") hidden "$SHARDSCOPE_TEST_SOURCE" <&3 >&4 3<&- 4>&- ;;
"a destination of its own") hidden "$SHARDSCOPE_TEST_TARGET" <&3 >&4 3<&- 4>&- ;;
"orders cut") some <&3 3<&- 4>&- | sh -c "$command" >&4 3<&- 4>&- & ;;
*) exec sh -c "$command" <&3 >&4 3<&- 4>&- ;;
esac
exec 3<&- 4>&-
wait
)";

bool writeScript(const QString& path, const char* text) {
    QFile script(path);
    if (!script.open(QIODevice::WriteOnly)) return false;
    script.write(text);
    script.close();
    return script.setPermissions(QFile::ReadOwner | QFile::WriteOwner | QFile::ExeOwner);
}

}  // namespace

class JobsCliTest : public QObject {
    Q_OBJECT

    QTemporaryDir sources_;
    QString source_;
    json expected_;
    std::string mark_;  // in the environment of everything that this test starts
    double seconds_ = 1;

    std::vector<std::string> words(const QString& target, const std::vector<std::string>& more = {}) const {
        return convertWords(source_.toStdString(), target.toStdString(), more);
    }
    static QStringList remains(const QTemporaryDir& directory) {
        return QDir(directory.path()).entryList(QDir::AllEntries | QDir::Hidden | QDir::NoDotAndDotDot);
    }

    // Runs the words, and kills the coordinator once something is in the journal of `out`.
    static void killOnTheWay(const QTemporaryDir& directory, const std::vector<std::string>& all) {
        MeasuredOptions options;
        options.watch = [&](pid_t child, double) {
            const QFileInfo journal(directory.filePath(".out.shardscope-partial/journal"));
            if (journal.size() < 200) return true;
            ::kill(child, SIGKILL);
            return false;
        };
        runMeasured(all, options);
    }

  private slots:
    void initTestCase() {
        qputenv("XDG_STATE_HOME", sources_.filePath("state").toUtf8());
        mark_ = "XDG_STATE_HOME=" + sources_.filePath("state").toStdString();
        keepSecret();
        source_ = sources_.filePath("source.safetensors");
        QVERIFY(
            writeRandomSource(source_.toStdString(), kTensors, 1021, 1031, 7));  // 4.2 MB each, cut unevenly
        expected_ = digestsOf(source_.toStdString());
        QCOMPARE(expected_.size(), size_t{kTensors});
    }

    void matchesSingleProcess_data() {
        QTest::addColumn<QString>("on");
        QTest::addColumn<QStringList>("more");
        for (const char* on : {"local:1", "local:2", "local:4"})
            QTest::newRow(on) << on << QStringList();
        QTest::newRow("verified in full") << "local:2" << QStringList{"--verify", "full"};
        QTest::newRow("little memory") << "local:2" << QStringList{"--memory", "100MiB"};
    }
    void matchesSingleProcess() {
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
        // One that was stopped before it said hello is waited for for a minute.
        options.timeoutSeconds = 180;
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

    // SHARDSCOPE_FAULTS=N makes N of them (with QTEST_FUNCTION_TIMEOUT=3600000 for 200), SHARDSCOPE_SEED=S
    // draws others.
    void faultsAtRandom() {
        const int rounds = qEnvironmentVariableIntValue("SHARDSCOPE_FAULTS");
        const int wanted = qEnvironmentVariableIntValue("SHARDSCOPE_SEED");
        const unsigned seed = wanted > 0 ? static_cast<unsigned>(wanted) : 20261121;
        qInfo("SHARDSCOPE_SEED=%u", seed);
        std::minstd_rand random(seed);
        // A host whose connection can be made to go wrong after some bytes, in ssh's place.
        const QTemporaryDir hosts;
        const QString ssh = hosts.filePath("ssh");
        QVERIFY(writeScript(ssh, kBadConnection));
        qputenv("SHARDSCOPE_SSH", ssh.toUtf8());
#ifdef SHARDSCOPE_POOR_HOST
        qputenv("SHARDSCOPE_TEST_PRELOAD", SHARDSCOPE_POOR_HOST);
#endif
        std::map<std::string, int> met;
        for (int round = 0; round < (rounds > 0 ? rounds : 20); ++round) {
            const QTemporaryDir directory;
            const QString target = directory.filePath("out");
            // Mostly while there is work, sometimes before.
            const bool early = random() % 5 == 0;
            const double moment = std::uniform_real_distribution<double>(0, 1)(random);
            const size_t drawn = random() % std::size(kFaults);
            const std::string fault = kFaults[drawn];
            const auto which = static_cast<size_t>(random());
            // Most of what comes from a worker is short; what goes to it is even less.
            const auto bytes =
                static_cast<size_t>(std::exp(std::uniform_real_distribution<double>(0, 10)(random)));
            const bool connection = drawn >= kOfProcesses;
            qputenv("SHARDSCOPE_TEST_SOURCE", QFileInfo(source_).path().toUtf8());
            qputenv("SHARDSCOPE_TEST_TARGET", directory.path().toUtf8());
            qputenv("SHARDSCOPE_TEST_FAULT", connection ? QByteArray::fromStdString(fault) : QByteArray());
            qputenv("SHARDSCOPE_TEST_BYTES", QByteArray::number(static_cast<qulonglong>(bytes)));
            MeasuredOptions options;
            options.timeoutSeconds = 60;
            options.watch = [&](pid_t child, double elapsed) {
                if (connection) return false;
                // Not yet one that is about to be a worker: who stops a child before it has become another
                // program stops its parent too.
                const std::vector<pid_t> workers = agentsWith(mark_);
                if (workers.empty()) return true;
                // They read the source, then what they have written.
                if (early ? elapsed < moment * seconds_
                          : static_cast<double>(bytesRead(workers)) < moment * 2 * kSourceBytes)
                    return true;
                const pid_t worker = workers[which % workers.size()];
                // A limit that what is written soon exceeds, in place of a disk that fills up.
                const rlimit full{65536, 65536};
                if (fault == "worker killed") ::kill(worker, SIGKILL);
                if (fault == "worker stopped") ::kill(worker, SIGSTOP);
                if (fault == "coordinator killed") ::kill(child, SIGKILL);
                if (fault == "Ctrl-C") ::kill(child, SIGINT);
                if (fault == "a worker's disk full") prlimit(worker, RLIMIT_FSIZE, &full, nullptr);
                if (fault == "disk full") {
                    for (const pid_t each : workers)
                        prlimit(each, RLIMIT_FSIZE, &full, nullptr);
                    prlimit(child, RLIMIT_FSIZE, &full, nullptr);
                }
                return false;
            };
            const std::vector<std::string> on{"--on", connection ? "local:2+ssh:bad" : "local:3",
                                              "--remote-program", SHARDSCOPE_PROGRAM};
            const Measured run = runMeasured(words(target, on), options);
            const std::string story =
                "round " + std::to_string(round) + ", " + fault + " after " +
                (connection ? std::to_string(bytes) + " bytes: "
                            : std::to_string(moment) + (early ? " of the time: " : " of the bytes: "));
            // What hangs is cut off after ten heartbeats, a host that does not greet after half a minute;
            // nothing of it is left, whatever became of the rest.
            QVERIFY2(run.wallSeconds < seconds_ + 60, (story + run.describe()).c_str());
            QTRY_VERIFY2_WITH_TIMEOUT(agentsWith(mark_).empty(), (story + "a worker is left behind").c_str(),
                                      10'000);
            qunsetenv("SHARDSCOPE_TEST_FAULT");
            const std::string wrong = afterFault(run, target.toStdString(), expected_,
                                                 words(target, {"--on", "local:2", "--resume"}));
            QVERIFY2(wrong.empty(), (story + wrong + "\n" + run.describe()).c_str());
            qDebug("%s%.1f s", story.c_str(), run.wallSeconds);
            ++met[fault + (run.exitCode == 0 ? ": done" : ": an error")];
        }
        for (const auto& [what, count] : met)
            qInfo("%3d x %s", count, what.c_str());
    }

    void goesOnWithAnothersWork() {
        // Begun by one process, finished by several, and the other way round.
        for (const bool first : {true, false}) {
            const QTemporaryDir directory;
            const QString target = directory.filePath("out");
            const std::vector<std::string> with{"--on", "local:2"}, without;
            killOnTheWay(directory, words(target, first ? without : with));
            if (QFile::exists(target)) continue;  // it was faster
            std::vector<std::string> rest = words(target, first ? with : without);
            rest.push_back("--resume");
            const Measured run = runMeasured(rest);
            QVERIFY2(run.exitCode == 0, run.describe().c_str());
            QVERIFY(digestsOf(target.toStdString()) == expected_);
        }
    }

    // What does not read back as it was written is a finding, not an input that is damaged.
    void damageOnTheDiskIsFound() {
        for (const char* on : {"", "local:2"}) {
            const QTemporaryDir directory;
            const QString target = directory.filePath("out");
            killOnTheWay(directory, words(target));
            if (QFile::exists(target)) continue;  // it was faster
            QDir data(directory.filePath(".out.shardscope-partial/data"));
            for (const QString& name : data.entryList(QDir::Files | QDir::Hidden)) {
                QFile file(data.filePath(name));
                QVERIFY(file.open(QIODevice::ReadWrite));
                for (qint64 at = 100'000; at < file.size(); at += 400'000) {
                    char byte = 0;
                    QVERIFY(file.seek(at) && file.getChar(&byte) && file.seek(at) &&
                            file.putChar(static_cast<char>(byte ^ 1)));
                }
            }
            std::vector<std::string> rest = words(target, {"--resume"});
            if (*on) rest.insert(rest.end(), {"--on", on});
            const Measured run = runMeasured(rest);
            QVERIFY2(run.exitCode == 1, run.describe().c_str());
            QVERIFY(run.json()["rule"] == json("output.verification"));
            QVERIFY(!QFile::exists(target));
        }
    }

    void namesThatAreNoText() {
        const QTemporaryDir directory;
        const std::string source = directory.filePath("s").toStdString() + "\xff.safetensors";
        QVERIFY(writeRandomSource(source, 2, 10, 10, 3));
        const std::string target = directory.filePath("o").toStdString() + "\xfe";
        const Measured run = runMeasured({"convert", source, target, "--to", "dcp", "--on", "local:2"});
        QVERIFY2(run.exitCode == 0, run.describe().c_str());
        QVERIFY(digestsOf(target) == digestsOf(source));
        // The record of a job is JSON.
        const Measured job =
            runMeasured({"jobs", "run", "--json", "convert", source, target + "2", "--to", "dcp"});
        QCOMPARE(job.exitCode, 2);
        QVERIFY(job.json()["message"].get<std::string>().find("UTF-8") != std::string::npos);
    }

    // A job belongs to the directory in which it was given, wherever it is continued.
    void resumedWhereItWasGiven() {
        const QTemporaryDir given, other;
        const QString before = QDir::currentPath();
        for (const QTemporaryDir* each : {&given, &other})
            QVERIFY(writeRandomSource(each->filePath("m.safetensors").toStdString(), 2, 10,
                                      each == &given ? 10 : 11, 3));
        // A file where a directory is to be.
        const auto block = [&] { return QFile(given.filePath("sub")).open(QIODevice::WriteOnly); };
        const auto unblock = [&] { return QFile::remove(given.filePath("sub")); };
        QVERIFY(block());
        QVERIFY(QDir::setCurrent(given.path()));
        const Measured failed = runMeasured(
            {"jobs", "run", "--wait", "--json", "convert", "m.safetensors", "sub/out", "--to", "dcp"});
        QVERIFY(QDir::setCurrent(other.path()));
        QVERIFY2(failed.exitCode == 4, failed.describe().c_str());
        QVERIFY(failed.json()["directory"] == json(given.path().toStdString()));
        const std::string id = failed.json()["id"];
        // Where it went wrong stands where it is asked for.
        const Measured list = runMeasured({"jobs", "list"});
        QVERIFY2(list.out.find("failed: sub") != std::string::npos, list.describe().c_str());
        QVERIFY(unblock());
        const Measured resumed = runMeasured({"jobs", "resume", id, "--json"});
        QVERIFY2(resumed.exitCode == 0 && resumed.json()["id"] == json(id), resumed.describe().c_str());
        const Measured done = runMeasured({"jobs", "attach", id, "--json"});
        QVERIFY2(done.exitCode == 0, done.describe().c_str());
        QVERIFY(digestsOf(given.filePath("sub/out").toStdString()) ==
                digestsOf(given.filePath("m.safetensors").toStdString()));
        QCOMPARE(remains(other), QStringList{"m.safetensors"});
        // What is done stays so.
        QCOMPARE(runMeasured({"jobs", "resume", id}).exitCode, 4);
        QVERIFY(runMeasured({"jobs", "show", id, "--json"}).json()["state"] == json("done"));

        // Of several that resume it at the same time, one does.
        QVERIFY(QDir(given.filePath("sub/out")).removeRecursively());
        QVERIFY(QDir(given.path()).rmdir("sub") && block());
        QVERIFY(QDir::setCurrent(given.path()));
        const std::string again = runMeasured({"jobs", "run", "--wait", "--json", "convert", "m.safetensors",
                                               "sub/out", "--to", "dcp"})
                                      .json()["id"];
        QVERIFY(QDir::setCurrent(before));
        QVERIFY(unblock());
        std::atomic<int> started = 0;
        std::vector<std::thread> all;
        for (int i = 0; i < 3; ++i)
            all.emplace_back([&] { started += runMeasured({"jobs", "resume", again}).exitCode == 0; });
        for (std::thread& thread : all)
            thread.join();
        QCOMPARE(started, 1);
        QCOMPARE(runMeasured({"jobs", "attach", again}).exitCode, 0);
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
        // A beginning is enough, where no other job begins so: those of the same second differ late.
        const Measured shown = runMeasured({"jobs", "show", id.substr(0, id.size() - 1)});
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

    void recipesAreJobs() {
        const QTemporaryDir directory;
        const QString target = directory.filePath("out"), recipe = directory.filePath("saved.json");
        const auto write = [&](const json& value) {
            QFile file(recipe);
            QVERIFY(file.open(QIODevice::WriteOnly | QIODevice::Truncate));
            file.write(QByteArray::fromStdString(value.dump()));
        };
        const auto run = [&](std::vector<std::string> more = {}) {
            std::vector<std::string> all{"jobs", "run", "--wait", "--json"};
            all.insert(all.end(), more.begin(), more.end());
            all.push_back(recipe.toStdString());
            return runMeasured(all);
        };
        json saved{{"schema", "shardscope.recipe/1"},
                   {"drop", {"layer.1.*"}},
                   {"rename", {{{"from", "^layer"}, {"to", "block"}}}},
                   {"job",
                    {{"source", source_.toStdString()},
                     {"destination", target.toStdString()},
                     {"source_options", {"--format", "safetensors"}},
                     {"format", "dcp"},
                     {"mesh", "tp=3"},
                     {"shard", {"*:tp=1"}},
                     {"verify", "full"},
                     {"on", "local:2"},
                     {"threads", 1},
                     {"strict", true}}}};
        write(saved);
        const Measured done = run();
        QVERIFY2(done.exitCode == 0, done.describe().c_str());
        QVERIFY2(done.json()["workers"].size() == 2, done.describe().c_str());
        json expected;
        for (const auto& [name, digest] : expected_.items()) {
            if (!name.starts_with("layer.1.")) expected["block" + name.substr(5)] = digest;
        }
        QVERIFY(digestsOf(target.toStdString()) == expected);

        // --on beside it wins; what is missing or wrong is named.
        saved["job"]["overwrite"] = true;
        write(saved);
        QVERIFY(run({"--on", "local:1"}).json()["workers"].size() == 1);
        const auto refused = [&](const char* says) {
            write(saved);
            const Measured wrong = run();
            QCOMPARE(wrong.exitCode, 2);
            QVERIFY2(wrong.json()["message"].get<std::string>().find(says) != std::string::npos,
                     wrong.describe().c_str());
        };
        saved["job"].erase("destination");
        refused("holds no 'job.destination'");
        saved["job"].erase("source");
        refused("holds no 'job.source' and 'job.destination'");
        saved["job"]["source"] = saved["job"]["destination"] = "x";
        saved["job"]["color"] = "red";
        refused("'job.color'");
        saved["job"].erase("color");
        saved["job"]["threads"] = "many";
        refused("'job.threads' is not a number");
        saved["job"].erase("threads");
        saved["job"]["source_options"] = {"--report", "x"};
        refused("'--report' is not an option of opening");
        saved["job"].erase("source_options");
        saved["job"]["on"] = "moon:1";
        refused("is not a place to work");
        saved["job"].erase("on");
        saved["job"]["map"] = "other.json";
        refused("'job.map' names another");
        saved = {{"schema", "shardscope.recipe/2"}, {"job", {{"source", "a"}, {"destination", "b"}}}};
        refused("schema");
    }

    void stoppedBeforeItHasBegun_data() {
        QTest::addColumn<QStringList>("words");
        QTest::newRow("a checkpoint elsewhere") << QStringList{"info", "ssh://h/x"};
        QTest::newRow("workers elsewhere") << QStringList{
            "convert", source_, "out", "--to", "dcp", "--on", "local:1+ssh:h", "--remote-program", "p"};
    }
    void stoppedBeforeItHasBegun() {
        QFETCH(QStringList, words);
        const QTemporaryDir directory;
        // A host that takes its time.
        const QString ssh = directory.filePath("ssh"), asked = directory.filePath("asked");
        QVERIFY(writeScript(ssh, ("#!/bin/sh\n: > '" + asked + "'\nexec sleep 40\n").toUtf8().constData()));
        const QByteArray before = qgetenv("SHARDSCOPE_SSH");
        qputenv("SHARDSCOPE_SSH", ssh.toUtf8());
        MeasuredOptions options;
        options.workingDirectory = directory.path().toStdString();
        options.watch = [&](pid_t child, double) {
            if (!QFile::exists(asked)) return true;
            ::kill(child, SIGINT);
            return false;
        };
        std::vector<std::string> all;
        for (const QString& word : words)
            all.push_back(word.toStdString());
        const Measured run = runMeasured(all, options);
        before.isNull() ? qunsetenv("SHARDSCOPE_SSH") : qputenv("SHARDSCOPE_SSH", before);
        QVERIFY2(run.exitCode == 130 && run.wallSeconds < 10, run.describe().c_str());
        QVERIFY(!QFile::exists(directory.filePath("out")));
    }

    void damagedRecords() {
        const QTemporaryDir directory;
        const std::string target = directory.filePath("out").toStdString();
        QVERIFY(QDir(directory.path()).mkdir("out"));
        const Measured run = runMeasured(
            {"jobs", "run", "--wait", "--json", "convert", source_.toStdString(), target, "--to", "dcp"});
        QCOMPARE(run.exitCode, 4);
        const std::string id = run.json()["id"];
        const QDir record(sources_.filePath("state/shardscope/jobs/" + QString::fromStdString(id)));
        // As on a disk that is full.
        QFile result(record.filePath("result.json"));
        QVERIFY(result.resize(0));
        const json shown = runMeasured({"jobs", "show", id, "--json"}).json();
        QVERIFY2(shown["state"] == json("failed") && shown["result"]["code"] == json("io"),
                 shown.dump().c_str());

        // As after a power failure: nothing says how it ended.
        QFile exit(record.filePath("exit"));
        for (const char* left : {"", "    \n", "\x01\x02"}) {
            QVERIFY(exit.open(QIODevice::WriteOnly | QIODevice::Truncate));
            exit.write(left);
            exit.close();
            QVERIFY(runMeasured({"jobs", "show", id, "--json"}).json()["state"] == json("lost"));
        }
        QVERIFY(exit.open(QIODevice::WriteOnly | QIODevice::Truncate) && exit.write("4   \n") > 0);
        exit.close();

        QFile description(record.filePath("job.json"));
        QVERIFY(description.open(QIODevice::ReadOnly));
        json kept = json::parse(description.readAll().toStdString());
        description.close();
        const auto write = [&](const json& value) {
            QVERIFY(description.open(QIODevice::WriteOnly | QIODevice::Truncate));
            description.write(QByteArray::fromStdString(value.dump()));
            description.close();
        };
        QVERIFY(!kept.contains("arguments"));
        QVERIFY(kept["request"]["job"]["destination"] == json(target));
        for (const json& strange : {json(5), json{{"job", {{"threads", "many"}}}}, json::array()}) {
            json wrong = kept;
            wrong["request"] = strange;
            write(wrong);
            const Measured refused = runMeasured({"jobs", "show", id});
            QVERIFY2(refused.exitCode == 3 && refused.err.find("holds no request") != std::string::npos,
                     refused.describe().c_str());
        }
        // As version 0.1 has recorded it.
        const json arguments{"convert", "--on", "local:1", "--to", "dcp", "--", source_.toStdString(),
                             target};
        kept.erase("request");
        kept["arguments"] = arguments;
        write(kept);
        const json old = runMeasured({"jobs", "show", id, "--json"}).json();
        QVERIFY2(old["arguments"] == arguments, old.dump().c_str());
        QVERIFY(QDir(directory.path()).rmdir("out"));
        QCOMPARE(runMeasured({"jobs", "resume", id}).exitCode, 0);
        QCOMPARE(runMeasured({"jobs", "attach", id}).exitCode, 0);
        QVERIFY(digestsOf(target) == expected_);

        // A job of an older version, whose program is gone: its arguments are refused, its request resumes.
        const std::string program = kept["program"],
                          worker = program.substr(0, program.rfind('/')) + "/shardscope-worker";
        QFile::remove(exit.fileName());
        QVERIFY(QDir(QString::fromStdString(target)).removeRecursively());
        kept["program"] = worker;
        kept["arguments"] = {"--ranks", "2", "convert", source_.toStdString(), target, "--to", "dcp"};
        write(kept);
        const Measured gone = runMeasured({"jobs", "resume", id});
        QVERIFY2(gone.exitCode == 3 && gone.err.find("is one of shardscope-worker") != std::string::npos,
                 gone.describe().c_str());
        kept.erase("arguments");
        kept["request"] = {{"schema", "shardscope.recipe/1"},
                           {"job",
                            {{"source", source_.toStdString()},
                             {"destination", target},
                             {"format", "dcp"},
                             {"on", "ranks:2"}}}};
        write(kept);
        QCOMPARE(runMeasured({"jobs", "resume", id}).exitCode, 0);
        QCOMPARE(runMeasured({"jobs", "attach", id}).exitCode, 0);
        QVERIFY(digestsOf(target) == expected_);

        QVERIFY(description.resize(100));
        const Measured damaged = runMeasured({"jobs", "show", id});
        QVERIFY2(damaged.exitCode == 3 && damaged.err.find("job.json") != std::string::npos,
                 damaged.describe().c_str());
        QVERIFY(description.remove());
        QCOMPARE(mkfifo(description.fileName().toUtf8().constData(), 0600), 0);
        QCOMPARE(runMeasured({"jobs", "list"}).exitCode, 0);
        QCOMPARE(runMeasured({"jobs", "cancel", id}).exitCode, 3);
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
        QCOMPARE(runMeasured(words(target, {"--on", "ranks:0"})).exitCode, 2);
        // Ranks need no libtorch, unless one reads for all.
        const std::string byRanks = directory.filePath("ranks").toStdString();
        QCOMPARE(runMeasured(words(QString::fromStdString(byRanks), {"--on", "ranks:2"})).exitCode, 0);
        QVERIFY(digestsOf(byRanks) == expected_);
        QCOMPARE(runMeasured(words(target, {"--on", "bogus", "--dry-run"})).exitCode, 2);
        QCOMPARE(runMeasured({"jobs", "run", "convert", "--help"}).exitCode, 2);
        QCOMPARE(runMeasured({"jobs", "run", directory.path().toStdString()}).exitCode, 2);

        // Other ways to say the same.
        const std::string source = source_.toStdString(), other = directory.filePath("other").toStdString();
        for (const std::vector<std::string>& said :
             {std::vector<std::string>{source, other, "--to", "dcp", "--on=local:2"},
              std::vector<std::string>{"--to", "dcp", "--", source, other}}) {
            std::vector<std::string> all{"jobs", "run", "--wait", "convert"};
            all.insert(all.end(), said.begin(), said.end());
            const Measured run = runMeasured(all);
            QVERIFY2(run.exitCode == 0, run.describe().c_str());
            QVERIFY(QDir(QString::fromStdString(other)).removeRecursively());
        }
    }
};

QTEST_GUILESS_MAIN(JobsCliTest)
#include "jobs_cli_test.moc"
