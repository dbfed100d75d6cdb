// Conversions by ranks of real processes over libtorch's Gloo: the same bytes as by one process, started by
// ourselves, by torchrun and by mpirun; a rank that dies or hangs ends the job with a sentence.
#include <QDir>
#include <QElapsedTimer>
#include <QFile>
#include <QFileInfo>
#include <QRegularExpression>
#include <QStandardPaths>
#include <QTemporaryDir>
#include <QTest>
#include <csignal>
#include <map>
#include <optional>

#include <unistd.h>

#include "cli/after_fault.h"
#include "cli/measured_process.h"
#include "cluster/rendezvous.h"

using namespace shardscope::test;
using nlohmann::json;

namespace {

constexpr int kTensors = 12;

}  // namespace

class WorkerCliTest : public QObject {
    Q_OBJECT

    QTemporaryDir sources_;
    QString source_;
    json expected_;

    std::vector<std::string> words(const QString& target, const std::string& on,
                                   const std::vector<std::string>& more = {},
                                   const std::vector<std::string>& before = {}) const {
        std::vector<std::string> all = before;
        all.insert(all.end(), {"convert", source_.toStdString(), target.toStdString(), "--to", "dcp",
                               "--mesh", "dp=2,tp=2", "--shard", "*:dp=0,tp=1", "--json", "--on", on});
        all.insert(all.end(), more.begin(), more.end());
        return all;
    }
    static Measured run(const std::vector<std::string>& words, MeasuredOptions options = {}) {
        return runMeasured(words, options);
    }

    // For the programs that are started from now on; null = nothing is pretended.
    static void pretendGpus(const QByteArray& which) {
        if (which.isNull()) {
            for (const char* name : {"LD_LIBRARY_PATH", "SHARDSCOPE_NVRTC", "SHARDSCOPE_FAKE_GPU"})
                qunsetenv(name);
            return;
        }
        const QFileInfo library(SHARDSCOPE_FAKE_GPU_LIBRARY);
        qputenv("LD_LIBRARY_PATH", library.path().toUtf8());
        qputenv("SHARDSCOPE_NVRTC", library.filePath().toUtf8());
        qputenv("SHARDSCOPE_FAKE_GPU", which);
    }

    // For ranks that mpirun starts: what else runs here may have the port that they meet at by default.
    static void meetAtFreePort() {
        const auto listener = shardscope::RankListener::open({}, "127.0.0.1", 0, "");
        QVERIFY(listener.ok());
        qputenv("MASTER_PORT", QByteArray::number((*listener)->port()));
    }

  private slots:
    void cleanup() {
        pretendGpus({});
        qunsetenv("MASTER_PORT");
        qunsetenv("SHARDSCOPE_TORCH_LIBRARY");
    }
    void initTestCase() {
        source_ = sources_.filePath("source.safetensors");
        QVERIFY(writeRandomSource(source_.toStdString(), kTensors, 2043, 2039,
                                  11));  // 16.7 MB each, cut unevenly
        expected_ = digestsOf(source_.toStdString());
        QCOMPARE(expected_.size(), size_t{kTensors});
    }

    void matchesSingleProcess_data() {
        QTest::addColumn<QString>("mode");
        QTest::addColumn<int>("ranks");
        for (const char* mode : {"auto", "direct", "broadcast", "exchange"}) {
            for (const int ranks : {1, 2, 4})
                QTest::addRow("%s, %d", mode, ranks) << mode << ranks;
        }
    }
    void matchesSingleProcess() {
        QFETCH(QString, mode);
        QFETCH(int, ranks);
        const QTemporaryDir directory;
        const QString target = directory.filePath("out");
        const Measured done = run(words(target, QString("ranks:%1,%2").arg(ranks).arg(mode).toStdString()));
        QVERIFY2(done.exitCode == 0, done.describe().c_str());
        const json report = done.json();
        QVERIFY2(report["verified"] == json(true), done.describe().c_str());
        const auto needed = report["plan"]["bytes_read"].get<double>(),
                   read = report["bytes_read"].get<double>();
        QVERIFY2(read >= needed && read < needed * 1.01,
                 qPrintable(QString("%1 of %2").arg(read).arg(needed)));
        QVERIFY(kSanitized || done.peakBytes < uint64_t{512} << 20);
        QVERIFY(digestsOf(target.toStdString()) == expected_);
        QCOMPARE(report["group"]["ranks"].get<int>(), ranks);
        const auto moved = report["group"]["bytes_moved"].get<double>();
        if (mode == "broadcast") QVERIFY(moved <= needed * 1.01 && (ranks == 1 || moved > needed * 0.45));
        if (mode == "direct") QVERIFY(moved < needed * 0.01);
        QCOMPARE(QDir(directory.path()).entryList(QDir::AllEntries | QDir::Hidden | QDir::NoDotAndDotDot),
                 QStringList{"out"});
    }

    void planSaysHow() {
        const QTemporaryDir directory;
        std::vector<std::string> all = words(directory.filePath("out"), "ranks:3,broadcast");
        *std::find(all.begin(), all.end(), "convert") = "plan";
        const Measured planned = run(all);
        QVERIFY2(planned.exitCode == 0, planned.describe().c_str());
        const json group = planned.json()["group"];
        QVERIFY2(group["mode"] == json("broadcast") && group["ranks"] == json(3), planned.describe().c_str());
        QVERIFY(group["expected_seconds"].get<double>() > 0 && group["link_rate"].get<double>() > 1e6);
        QVERIFY(!QFileInfo::exists(directory.filePath("out")));
        all.erase(std::find(all.begin(), all.end(), "--json"));
        const Measured text = run(all);
        QVERIFY2(text.out.find("3 ranks over gloo, broadcast: at most ") != std::string::npos,
                 text.describe().c_str());
    }

    void byTorchrun_data() {
        QTest::addColumn<QString>("on");
        QTest::addColumn<bool>("torch");
        QTest::newRow("its store") << "ranks,broadcast" << true;
        QTest::newRow("without libtorch") << "ranks" << false;
    }
    void byTorchrun() {
        QFETCH(QString, on);
        QFETCH(bool, torch);
        const std::string torchrun = SHARDSCOPE_TORCHRUN;
        if (!QFileInfo::exists(QString::fromStdString(torchrun)))
            QSKIP("no torchrun (packaging/peers installs torch)");
        if (!torch) qputenv("SHARDSCOPE_TORCH_LIBRARY", "/no/such");
        const QTemporaryDir directory;
        const QString target = directory.filePath("out");
        MeasuredOptions options;
        options.program = torchrun;
        options.timeoutSeconds = 180;
        const Measured done =
            run(words(target, on.toStdString(), {},
                      {"--no-python", "--nproc-per-node", "3", "--rdzv-backend", "c10d", "--rdzv-endpoint",
                       "127.0.0.1:0", "--local-addr", "127.0.0.1", SHARDSCOPE_PROGRAM}),
                options);
        QVERIFY2(done.exitCode == 0, done.describe().c_str());
        QVERIFY(digestsOf(target.toStdString()) == expected_);
    }

    void ranksMeetBesideATakenPort() {
        using namespace shardscope;
        const auto soon = [] { return Channel::Clock::now() + std::chrono::seconds(60); };
        auto taken = Listener::open("127.0.0.1", 0);
        QVERIFY(taken.ok());
        const uint16_t port = (*taken)->port();
        std::thread other([&] {
            while ((*taken)->accept(soon()).ok()) {
            }
        });
        RankInfo place{.rank = 1, .size = 2, .port = port, .ports = 8};
        auto listener = RankListener::open(place, "127.0.0.1", port, "");
        std::thread follower([&] {
            const auto channel = joinRankZero(place, "127.0.0.1", port, "", "", soon(), {});
            if (channel.ok()) (void)(*channel)->greet(soon());
        });
        bool met = false;
        if (listener.ok()) {
            met = (*listener)->port() > port && (*listener)->accept(1, soon(), {}).ok();
        }
        (*taken)->close();
        follower.join();
        other.join();
        QVERIFY(met);
    }

    void byMpirun() {
        const QString mpirun = QStandardPaths::findExecutable("mpirun");
        if (mpirun.isEmpty()) QSKIP("no mpirun (package openmpi-bin)");
        meetAtFreePort();
        const QTemporaryDir directory;
        const QString target = directory.filePath("out");
        MeasuredOptions options;
        options.program = mpirun.toStdString();
        options.timeoutSeconds = 180;
        const Measured done =
            run(words(target, "ranks,exchange", {},
                      {"--allow-run-as-root", "--oversubscribe", "-np", "3", SHARDSCOPE_PROGRAM}),
                options);
        QVERIFY2(done.exitCode == 0, done.describe().c_str());
        QVERIFY(digestsOf(target.toStdString()) == expected_);
    }

    // Each rank has one file of the source on a disk of its own; rank 0 has the metadata too.
    void nodeLocalDisks_data() {
        QTest::addColumn<int>("dimension");
        QTest::addColumn<bool>("own");
        QTest::newRow("rows") << 0 << false;
        QTest::newRow("columns") << 1 << false;
        QTest::newRow("columns, to disks of their own") << 1 << true;
    }
    void nodeLocalDisks() {
        QFETCH(int, dimension);
        QFETCH(bool, own);
        const QTemporaryDir directory;
        const QString place = directory.filePath("disk");
        const Measured cut =
            runMeasured({"convert", source_.toStdString(), directory.filePath("cut").toStdString(), "--to",
                         "dcp", "--mesh", "tp=4", "--shard", "*:tp=" + std::to_string(dimension)});
        QVERIFY2(cut.exitCode == 0, cut.describe().c_str());
        for (int r = 0; r < 4; ++r) {
            QVERIFY(QDir().mkpath(place + "." + QString::number(r) + "/in"));
            const QString name = QString("__%1_0.distcp").arg(r);
            QVERIFY(
                QFile::rename(directory.filePath("cut/" + name), place + QString(".%1/in/").arg(r) + name));
        }
        QVERIFY(QFile::rename(directory.filePath("cut/.metadata"), place + ".0/in/.metadata"));
        const std::string source = place.toStdString() + "/in";
        // Of directories of their own, too, those above the destination are made.
        const QString target = own ? place + "/new/out" : directory.filePath("out");
        MeasuredOptions options;
        options.program = SHARDSCOPE_NODE_LOCAL_RANKS;
        options.timeoutSeconds = 120;
        std::vector<std::string> words{place.toStdString(),
                                       "4",
                                       SHARDSCOPE_PROGRAM,
                                       "convert",
                                       source,
                                       target.toStdString(),
                                       "--on",
                                       "ranks"};
        if (own) words.push_back("--own-disks");
        if (own)
            words.insert(words.end(), {"--to", "dcp", "--mesh", "tp=4", "--shard", "*:tp=0", "--json"});
        else
            words.insert(words.end(), {"--to", "safetensors", "--json"});
        const Measured done = run(words, options);
        if (done.exitCode == 77) QSKIP(done.out.c_str());
        QVERIFY2(done.exitCode == 0, done.describe().c_str());
        const json report = done.json();
        QVERIFY(report["group"]["mode"] == json("exchange"));
        const auto needed = report["plan"]["bytes_read"].get<double>(),
                   read = report["bytes_read"].get<double>();
        const auto moved = report["group"]["bytes_moved"].get<double>();
        QVERIFY2(read < needed * 1.02, done.describe().c_str());
        // Of rows a rank has whole tiles, and does these; of columns it lacks three quarters of each tile,
        // which it does where it is to write it. A slow rank's parts may be done by others.
        qInfo("moved %.3f", moved / needed);
        QVERIFY2(dimension == 0 ? moved < needed * 0.8
                                : moved > needed * 0.7 && moved < needed * (own ? 1.6 : 0.8),
                 done.describe().c_str());
        if (!own) {
            QVERIFY(digestsOf(target.toStdString()) == expected_);
            return;
        }
        QVERIFY2(report["verified"] == json(true), done.describe().c_str());
        QVERIFY(report["group"]["disks"].size() == 4);
        QVERIFY(QDir().mkdir(directory.filePath("whole")));
        for (int r = 0; r < 4; ++r) {
            const QString disk = place + "." + QString::number(r), name = QString("__%1_0.distcp").arg(r);
            const QStringList left =
                QDir(disk).entryList(QDir::AllEntries | QDir::Hidden | QDir::NoDotAndDotDot);
            QCOMPARE(left, (QStringList{"in", "new"}));
            QCOMPARE(QDir(disk + "/new/out").entryList(QDir::Files | QDir::Hidden).size(), r == 0 ? 2 : 1);
            QVERIFY(QFile::rename(disk + "/new/out/" + name, directory.filePath("whole/" + name)));
        }
        QVERIFY(QFile::rename(place + ".0/new/out/.metadata", directory.filePath("whole/.metadata")));
        QVERIFY(digestsOf(directory.filePath("whole").toStdString()) == expected_);
    }

    void lostRank_data() {
        QTest::addColumn<int>("signal");
        QTest::addColumn<double>("after");
        QTest::addColumn<bool>("own");  // disks
        bool own = false;
        for (const double after : {0.05, 0.6, 0.9, 1.2}) {
            QTest::addRow("killed after %.2f s", after) << SIGKILL << after << own;
            QTest::addRow("stopped after %.2f s", after) << SIGSTOP << after << !own;
            own = !own;
        }
    }
    // Whatever the moment: the destination whole and verified, or an error in time and nothing published.
    void lostRank() {
        QFETCH(int, signal);
        QFETCH(double, after);
        QFETCH(bool, own);
        const QTemporaryDir directory;
        const QString target = directory.filePath("out");
        std::vector<std::string> group;
        if (own) group.push_back("--own-disks");
        std::vector<pid_t> ranks;
        double when = 0;
        MeasuredOptions options;
        options.watch = [&](pid_t process, double elapsed) {
            if (ranks.size() < 2) ranks = childrenOf(process);
            if (elapsed < after || ranks.size() < 2) return true;
            kill(ranks[1], signal);
            when = elapsed;
            return false;
        };
        std::vector<std::string> first = group;
        first.insert(first.end(), {"--join-timeout", "5"});
        const Measured done = run(words(target, "ranks:3,broadcast", first), options);
        QVERIFY2(!done.timedOut, done.describe().c_str());
        if (done.exitCode == 0) {
            QVERIFY(digestsOf(target.toStdString()) == expected_);
        } else {
            QVERIFY2(done.exitCode == 4, done.describe().c_str());
            QVERIFY2(done.json()["code"] == json("remote"), done.describe().c_str());
            QVERIFY(!QFileInfo::exists(target));
            // Ten heartbeats of a second, and what the end of the program takes; 15 s for one that was
            // stopped before it said hello.
            QVERIFY2(done.wallSeconds - when < (after > 0.5 ? 25 : 40), done.describe().c_str());
            if (after > 0.5)
                QVERIFY2(done.json()["message"].get<std::string>().find("rank ") != std::string::npos,
                         done.describe().c_str());
            QVERIFY2(done.err.find("[c10d]") == std::string::npos, done.describe().c_str());
            // What was done is continued.
            std::vector<std::string> again = words(target, "ranks:3", group);
            again.emplace_back("--resume");
            const Measured second = run(again);
            QVERIFY2(second.exitCode == 0, second.describe().c_str());
            QVERIFY(digestsOf(target.toStdString()) == expected_);
        }
        for (const pid_t rank : ranks)
            QTRY_VERIFY_WITH_TIMEOUT(gone(rank), 120'000);
    }

    void lostBeforeTheWork_data() {
        QTest::addColumn<double>("after");
        for (const double after : {0.0, 0.01, 0.02, 0.03, 0.05, 0.08})
            QTest::addRow("killed %.2f s after it is there", after) << after;
    }
    // A rank of our own that dies before it has said what it has of the source ends the others at once:
    // nobody else knows whether something is missing. Afterwards its loss costs its units.
    void lostBeforeTheWork() {
        QFETCH(double, after);
        const QTemporaryDir directory;
        MeasuredOptions options;
        std::optional<double> seen;
        options.watch = [&](pid_t process, double elapsed) {
            const std::vector<pid_t> ranks = childrenOf(process);
            if (ranks.size() < 2) return true;
            if (!seen) seen = elapsed;
            if (elapsed - *seen < after) return true;
            kill(ranks[1], SIGKILL);
            return false;
        };
        const Measured done = run(words(directory.filePath("out"), "ranks:3"), options);
        QVERIFY2(done.wallSeconds < 15, done.describe().c_str());
        // How far it has come by then depends on how busy the machine is.
        if (done.exitCode == 0) {
            QVERIFY2(done.json()["verified"].get<bool>(), done.describe().c_str());
            return;
        }
        QVERIFY2(done.exitCode == 4, done.describe().c_str());
        const auto message = done.json()["message"].get<std::string>();
        // Which rank, and how it ended or that it no longer answers.
        static const QRegularExpression expected(
            R"(^rank [12]( on \S+)?( cannot take part: .*killed by signal 9 \(Killed\))"
            R"(| cannot be reached$|: the other end has closed the connection$))");
        QVERIFY2(expected.match(QString::fromStdString(message)).hasMatch(), message.c_str());
        QVERIFY(!QFile::exists(directory.filePath("out")));
    }

    // All say so at once, instead of waiting for each other.
    void startedDifferently_data() {
        QTest::addColumn<QString>("option");
        for (const char* option : {"--own-disks", "--on=ranks,broadcast", "--backend=nccl"})
            QTest::newRow(option) << option;
    }
    void startedDifferently() {
        QFETCH(QString, option);
        const QString mpirun = QStandardPaths::findExecutable("mpirun");
        if (mpirun.isEmpty()) QSKIP("no mpirun (package openmpi-bin)");
        meetAtFreePort();
        const QTemporaryDir directory;
        MeasuredOptions options;
        options.program = mpirun.toStdString();
        std::vector<std::string> all{"--allow-run-as-root", "--oversubscribe", "-np", "1",
                                     SHARDSCOPE_PROGRAM};
        const std::vector<std::string> convert{"convert", source_.toStdString(),
                                               directory.filePath("out").toStdString(), "--to", "dcp"};
        all.insert(all.end(), convert.begin(), convert.end());
        all.insert(all.end(), {"--on", "ranks", ":", "-np", "1", SHARDSCOPE_PROGRAM});
        all.insert(all.end(), convert.begin(), convert.end());
        all.push_back(option.toStdString());
        if (!option.startsWith("--on")) all.insert(all.end(), {"--on", "ranks"});
        const Measured run = runMeasured(all, options);
        QVERIFY2(run.exitCode == 2 && run.wallSeconds < 30, run.describe().c_str());
        QVERIFY2(run.err.find("with '" + option.replace('=', ' ').toStdString() + "'") != std::string::npos,
                 run.describe().c_str());
        QVERIFY(!QFile::exists(directory.filePath("out")));
    }

    void namesWhoDidNotCome() {
        const QTemporaryDir directory;
        qputenv("SHARDSCOPE_RANK", "0");
        qputenv("SHARDSCOPE_WORLD_SIZE", "3");
        qputenv("SHARDSCOPE_MASTER_ADDR", "127.0.0.1");
        qputenv("SHARDSCOPE_MASTER_PORT", QByteArray::number(20000 + getpid() % 10000));
        const Measured done = run(words(directory.filePath("out"), "ranks", {"--join-timeout", "1"}));
        for (const char* name :
             {"SHARDSCOPE_RANK", "SHARDSCOPE_WORLD_SIZE", "SHARDSCOPE_MASTER_ADDR", "SHARDSCOPE_MASTER_PORT"})
            qunsetenv(name);
        QVERIFY2(done.exitCode == 4, done.describe().c_str());
        QVERIFY2(done.out.find("no sign of ranks 1, 2") != std::string::npos, done.describe().c_str());
    }

    // The others notice that rank 0 is gone, and end.
    void lostFirstRank() {
        const QTemporaryDir directory;
        const QString target = directory.filePath("out");
        std::vector<pid_t> ranks;
        MeasuredOptions options;
        options.watch = [&](pid_t process, double elapsed) {
            if (ranks.size() < 3) ranks = childrenOf(process);
            if (elapsed < 1.0 || ranks.size() < 3) return true;
            kill(process, SIGKILL);
            return false;
        };
        const Measured done = run(words(target, "ranks:3,broadcast"), options);
        QVERIFY(!done.timedOut);
        if (done.exitCode == 0) return;
        // It may have been through by then.
        if (QFileInfo::exists(target)) QVERIFY(digestsOf(target.toStdString()) == expected_);
        for (const pid_t rank : ranks)
            QTRY_VERIFY_WITH_TIMEOUT(gone(rank), 120'000);
    }

    void wrongWords_data() {
        QTest::addColumn<QStringList>("line");
        QTest::addColumn<int>("code");
        QTest::addColumn<QString>("says");
        const auto row = [&](const char* name, const QStringList& line, int code, const QString& says) {
            QTest::newRow(name) << line << code << says;
        };
        const QString x = sources_.filePath("x");
        row("no conversion", {"info", source_, "--on", "ranks:2"}, 2, "--on");
        row("no source", {"convert", "/no/such", x, "--to", "dcp", "--on", "ranks:2"}, 3, "no rank has it");
        row("destination is there", {"convert", source_, source_, "--to", "safetensors", "--on", "ranks:2"},
            -1, "");
        row("unknown option", {"convert", source_, x, "--wrong", "--on", "ranks:2"}, 2, "--wrong");
        row("no number of ranks", {"convert", source_, x, "--on", "ranks:0"}, 2, "ranks: wants a number");
        row("no such mode", {"convert", source_, x, "--on", "ranks,sideways"}, 2, "sideways");
        row("workers of ranks", {"convert", source_, x, "--on", "ranks:2+local:2"}, 2, "they work alone");
        row("parts of ranks", {"convert", source_, x, "--on", "ranks:2", "--part", "0/2"}, 2, "--part");
        row("path of another host", {"convert", "ssh://a/b", x, "--to", "dcp", "--on", "ranks:2"}, 2,
            "ranks take no ssh:// paths");
        row("own disks between GPUs",
            {"convert", source_, x, "--to", "dcp", "--on", "ranks", "--backend", "nccl", "--own-disks"}, 2,
            "goes over Gloo alone");
        // What only ranks take is not left aside without them.
        for (const char* option : {"--backend=nccl", "--compute=gpu", "--own-disks", "--master=a:1",
                                   "--address=a", "--join-timeout=1", "--torch-library=/x"})
            row(qPrintable(QString("%1 without ranks").arg(option)),
                {"convert", source_, x, "--on", "local:2", option}, 2, QString(option).section('=', 0, 0));
        row("kept by a job", {"jobs", "run", "--on", "ranks:2", "convert", source_, x, "--master", "a:1"}, 2,
            "does not keep --master");
        row("a job by a launcher", {"jobs", "run", "--on", "ranks", "convert", source_, x}, 2,
            "starts its ranks itself");
        row("no libtorch there",
            {"convert", source_, x, "--to", "dcp", "--on", "ranks:2,broadcast", "--torch-library",
             "/no/such"},
            5, "--torch-library DIR");
    }
    void wrongWords() {
        QFETCH(QStringList, line);
        QFETCH(int, code);
        QFETCH(QString, says);
        std::vector<std::string> all;
        for (const QString& word : line)
            all.push_back(word.toStdString());
        const Measured done = run(all);
        QVERIFY2(code < 0 ? done.exitCode > 0 : done.exitCode == code, done.describe().c_str());
        QVERIFY2(done.err.find(says.toStdString()) != std::string::npos, done.describe().c_str());
        QVERIFY(done.wallSeconds < 20);
    }

    void wrongOptionInJson() {
        const Measured done = run(words(sources_.filePath("x"), "ranks:x"));
        QVERIFY2(done.exitCode == 2, done.describe().c_str());
        QVERIFY2(done.json()["code"] == json("usage"), done.describe().c_str());
    }

    void asAJob() {
        const QTemporaryDir directory;
        qputenv("XDG_STATE_HOME", directory.filePath("state").toUtf8());
        const QString target = directory.filePath("out");
        const Measured done =
            runMeasured({"jobs", "run", "--on", "ranks:2,broadcast", "--wait", "--json", "convert",
                         source_.toStdString(), target.toStdString(), "--to", "dcp"});
        QVERIFY2(done.exitCode == 0, done.describe().c_str());
        QVERIFY2(done.json()["state"] == json("done"), done.describe().c_str());
        QVERIFY(digestsOf(target.toStdString()) == expected_);
        for (const char* wrong : {"ranks:0", "ranks:x", "ranks:2,sideways", "ranks:", "local-gpus,x"}) {
            const Measured refused = runMeasured(
                {"jobs", "run", "--on", wrong, "convert", source_.toStdString(), target.toStdString()});
            QVERIFY2(refused.exitCode == 2, refused.describe().c_str());
        }
        qunsetenv("XDG_STATE_HOME");
    }

    void ncclWithoutGpu() {
#ifdef SHARDSCOPE_WITH_NCCL
        if (QFileInfo::exists("/dev/nvidia0")) QSKIP("this machine has a GPU");
        const QTemporaryDir directory;
        const Measured done = run(words(directory.filePath("out"), "ranks:2", {"--backend", "nccl"}));
        QVERIFY2(done.exitCode == 5, done.describe().c_str());
        QVERIFY2(done.out.find("has no GPU that can be used") != std::string::npos, done.describe().c_str());
        const Measured none = run(words(directory.filePath("out"), "local-gpus"));
        QVERIFY2(none.exitCode == 5 && none.out.find("shows no GPU") != std::string::npos,
                 none.describe().c_str());
#else
        QSKIP("no NCCL headers were found beside libtorch");
#endif
    }

    // The kernels of GPUs, which a driver that is none runs on the processor; all around them is the real
    // thing.
    void tilesOnGpus_data() {
        QTest::addColumn<QString>("mode");
        QTest::addColumn<int>("ranks");
        QTest::addColumn<QStringList>("more");
        const QStringList columns{"--to", "dcp", "--mesh", "tp=4", "--shard", "*:tp=1"},
            rows{"--to", "dcp", "--mesh", "tp=3", "--shard", "*:tp=0"}, file{"--to", "safetensors"},
            cast{"--dtype", "*.weight=bfloat16"}, wide{"--dtype", "*.weight=float64"};
        QTest::newRow("columns, cast") << "direct" << 1 << columns + cast;
        QTest::newRow("columns, two ranks") << "direct" << 2 << columns;
        QTest::newRow("columns for others, wider") << "broadcast" << 3 << columns + wide;
        QTest::newRow("rows, cast") << "exchange" << 2 << rows + cast;
        QTest::newRow("one file, cast") << "auto" << 2 << file + cast;
        QTest::newRow("torch.save, cast") << "auto" << 1 << QStringList{"--to", "torch"} + cast;
    }
    void tilesOnGpus() {
        QFETCH(QString, mode);
        QFETCH(int, ranks);
        QFETCH(QStringList, more);
        const QTemporaryDir directory;
        const QString source = directory.filePath("floats.safetensors");
        QVERIFY(writeRandomSource(source.toStdString(), 3, 1021, 2064, 5, "F32"));
        pretendGpus("8 GPUs");
        json reports[2];
        for (const bool gpu : {true, false}) {
            std::vector<std::string> line{"convert",
                                          source.toStdString(),
                                          directory.filePath(gpu ? "gpu" : "cpu").toStdString(),
                                          "--on",
                                          QString("ranks:%1,%2").arg(ranks).arg(mode).toStdString(),
                                          "--compute",
                                          gpu ? "gpu" : "cpu",
                                          "--json"};
            for (const QString& word : more)
                line.push_back(word.toStdString());
            const Measured done = run(line);
            QVERIFY2(done.exitCode == 0, done.describe().c_str());
            reports[gpu] = done.json();
            QCOMPARE(reports[gpu]["group"]["compute"].get<std::string>(), std::string(gpu ? "gpu" : "cpu"));
        }
        pretendGpus({});
        // Random bits: each tensor has NaN and infinite values, which the findings count.
        QCOMPARE(reports[0].at("findings").size(), size_t{3});
        for (const char* key : {"digests", "findings"})
            QCOMPARE(reports[1].at(key).dump(), reports[0].at(key).dump());
        QVERIFY(digestsOf(directory.filePath("gpu").toStdString()) ==
                digestsOf(directory.filePath("cpu").toStdString()));
    }

    void gpuFailsOnTheWay() {
        const QTemporaryDir directory;
        const QString source = directory.filePath("floats.safetensors"), target = directory.filePath("out");
        QVERIFY(writeRandomSource(source.toStdString(), 8, 1021, 2064, 5, "F32"));
        const std::vector<std::string> line{"convert",
                                            source.toStdString(),
                                            target.toStdString(),
                                            "--to",
                                            "dcp",
                                            "--dtype",
                                            "*.weight=float16",
                                            "--on",
                                            "ranks:2",
                                            "--compute",
                                            "gpu"};
        // What fails once is done again.
        pretendGpus("8 GPUs fail 150");
        const Measured done = run(line);
        pretendGpus({});
        QVERIFY2(done.exitCode == 0, done.describe().c_str());
        const QString other = directory.filePath("by the processor");
        std::vector<std::string> again = line;
        std::ranges::replace(again, target.toStdString(), other.toStdString());
        std::ranges::replace(again, std::string("gpu"), std::string("cpu"));
        const Measured alone = run(again);
        QVERIFY2(alone.exitCode == 0, alone.describe().c_str());
        QVERIFY(digestsOf(target.toStdString()) == digestsOf(other.toStdString()));
    }

    void gpuOfAnother() {
        const QTemporaryDir directory;
        pretendGpus("one GPU");
        const Measured shared = run(words(directory.filePath("out"), "ranks:2", {"--compute", "gpu"}));
        QVERIFY2(shared.exitCode == 2, shared.describe().c_str());
        QVERIFY2(
            shared.err.find("have the same GPU (000102030405060708090a0b0c0d0e0f)") != std::string::npos ||
                shared.out.find("have the same GPU") != std::string::npos,
            shared.describe().c_str());
        pretendGpus("none");
        const Measured none = run(words(directory.filePath("out"), "ranks:2", {"--compute", "gpu"}));
        pretendGpus({});
        QVERIFY2(none.exitCode == 5, none.describe().c_str());
        QVERIFY2(none.out.find("no CUDA-capable device is detected") != std::string::npos,
                 none.describe().c_str());
        if (QFileInfo::exists("/dev/nvidia0")) QSKIP("this machine has a GPU");
        const Measured bare = run(words(directory.filePath("out"), "ranks:2", {"--compute", "gpu"}));
        QVERIFY2(bare.exitCode == 5, bare.describe().c_str());
        QVERIFY2(bare.out.find(" cannot take part") != std::string::npos &&
                     bare.out.find("there is no driver for NVIDIA's GPUs here") != std::string::npos,
                 bare.describe().c_str());
    }

    void rankFromTheEnvironment_data() {
        QTest::addColumn<QString>("variables");
        QTest::addColumn<QString>("expected");
        QTest::newRow("nothing") << ""
                                 << "alone 0/1 0 : ";
        QTest::newRow("torchrun")
            << "RANK=3 WORLD_SIZE=8 LOCAL_RANK=1 MASTER_ADDR=node1 MASTER_PORT=29400 TORCHELASTIC_RUN_ID=x"
            << "torchrun 3/8 1 node1:29401 x";
        QTest::newRow("torchrun with its store")
            << "RANK=0 WORLD_SIZE=2 MASTER_ADDR=node1 MASTER_PORT=29400 TORCHELASTIC_USE_AGENT_STORE=True"
            << "torchrun 0/2 0 node1:29400 ";
        QTest::newRow("torchrun in srun") << "RANK=1 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=a MASTER_PORT=1 "
                                             "SLURM_PROCID=0 SLURM_NTASKS=1 SLURM_LOCALID=0"
                                          << "torchrun 1/2 0 a:2 ";
        QTest::newRow("mpirun on one host")
            << "OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=2 "
               "OMPI_COMM_WORLD_LOCAL_SIZE=4"
            << "mpirun 2/4 2 127.0.0.1:29500 ";
        QTest::newRow("mpirun on several")
            << "OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=2"
            << "error: nobody says where rank 0 is";
        QTest::newRow("srun")
            << "SLURM_PROCID=5 SLURM_NTASKS=6 SLURM_LOCALID=1 SLURM_JOB_ID=77 SLURM_STEP_ID=2 "
               "SLURM_JOB_NODELIST=n[1-3]"
            << "srun 5/6 1 first-of-n[1-3]:20077 77.2";
        QTest::newRow("a batch job's script")
            << "SLURM_PROCID=0 SLURM_NTASKS=6 SLURM_LOCALID=0 SLURM_JOB_ID=77"
            << "alone 0/1 0 : ";
        QTest::newRow("a task of an array")
            << "SLURM_ARRAY_TASK_ID=2 SLURM_ARRAY_TASK_MIN=0 SLURM_ARRAY_TASK_COUNT=4"
            << "alone 0/1 0 : ";
        QTest::newRow("MPICH or Intel MPI on one host")
            << "PMI_RANK=1 PMI_SIZE=4 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=4"
            << "mpiexec 1/4 1 127.0.0.1:29500 ";
        QTest::newRow("MPICH or Intel MPI on several")
            << "PMI_RANK=5 PMI_SIZE=8 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=4 MASTER_ADDR=n1 MASTER_PORT=9"
            << "mpiexec 5/8 1 n1:9 ";
        QTest::newRow("srun with PMI")
            << "PMI_RANK=5 PMI_SIZE=6 SLURM_PROCID=5 SLURM_STEP_NUM_TASKS=6 SLURM_LOCALID=1 SLURM_JOB_ID=77 "
               "SLURM_STEP_ID=2 SLURM_STEP_NODELIST=n[1-3]"
            << "srun 5/6 1 first-of-n[1-3]:20077 77.2";
        QTest::newRow("torchrun on each node of a step")
            << "RANK=9 WORLD_SIZE=16 LOCAL_RANK=1 LOCAL_WORLD_SIZE=8 MASTER_ADDR=a MASTER_PORT=1 "
               "SLURM_PROCID=1 "
               "SLURM_STEP_NUM_TASKS=2"
            << "torchrun 9/16 1 a:2 ";
        QTest::newRow("mpiexec whose agents a step has started")
            << "PMI_RANK=5 PMI_SIZE=8 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=4 MASTER_ADDR=n1 SLURM_PROCID=1 "
               "SLURM_STEP_NUM_TASKS=2 SLURM_JOB_ID=77"
            << "mpiexec 5/8 1 n1:29500 ";
        QTest::newRow("two that disagree")
            << "RANK=0 WORLD_SIZE=2 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=4 MASTER_ADDR=a"
            << "error: torchrun (RANK, WORLD_SIZE) says 0 of 2, srun (SLURM_PROCID, SLURM_STEP_NUM_TASKS) "
               "says 0 of 4";
        QTest::newRow("ours before all")
            << "SHARDSCOPE_RANK=1 SHARDSCOPE_WORLD_SIZE=2 SHARDSCOPE_MASTER_ADDR=h "
               "SHARDSCOPE_MASTER_PORT=9 RANK=0 WORLD_SIZE=1 MASTER_ADDR=z"
            << "shardscope 1/2 0 h:9 ";
        QTest::newRow("no number") << "RANK=x WORLD_SIZE=2"
                                   << "error: RANK is 'x'";
        QTest::newRow("outside") << "RANK=2 WORLD_SIZE=2"
                                 << "error: RANK is 2, but WORLD_SIZE is 2";
        QTest::newRow("port") << "RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=70000"
                              << "error: the port of rank 0 is '70000'";
    }
    void rankFromTheEnvironment() {
        QFETCH(QString, variables);
        QFETCH(QString, expected);
        std::map<std::string, std::string> environment;
        for (const QString& pair : variables.split(' ', Qt::SkipEmptyParts))
            environment[pair.section('=', 0, 0).toStdString()] = pair.section('=', 1).toStdString();
        const auto info = shardscope::rankInfo(
            [&](const char* name) -> std::optional<std::string> {
                const auto it = environment.find(name);
                return it == environment.end() ? std::nullopt : std::optional(it->second);
            },
            [](const std::string& list) -> shardscope::Result<std::string> { return "first-of-" + list; });
        if (expected.startsWith("error: ")) {
            QVERIFY(!info.ok());
            QVERIFY2(info.error().message.find(expected.mid(7).toStdString()) != std::string::npos,
                     info.error().message.c_str());
            return;
        }
        QVERIFY2(info.ok(), info.ok() ? "" : info.error().message.c_str());
        const QString port = info->port ? QString::number(info->port) : QString();
        QCOMPARE(QString("%1 %2/%3 %4 %5:%6 %7")
                     .arg(QString::fromStdString(info->launcher))
                     .arg(info->rank)
                     .arg(info->size)
                     .arg(info->localRank)
                     .arg(QString::fromStdString(info->host), port, QString::fromStdString(info->group)),
                 expected);
    }
};

QTEST_GUILESS_MAIN(WorkerCliTest)
#include "worker_cli_test.moc"
