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

bool runs(pid_t process) {
    QFile file(QString("/proc/%1/stat").arg(process));
    if (!file.open(QIODevice::ReadOnly)) return false;
    const QByteArray text = file.readAll();
    return text.mid(text.lastIndexOf(')') + 2, 1) != "Z";
}

}  // namespace

class WorkerCliTest : public QObject {
    Q_OBJECT

    QTemporaryDir sources_;
    QString source_;
    json expected_;

    std::vector<std::string> words(const QString& target, const std::vector<std::string>& before = {}) const {
        std::vector<std::string> all = before;
        for (const char* word : {"convert", "SRC", "DST", "--to", "dcp", "--mesh", "dp=2,tp=2", "--shard",
                                 "*:dp=0,tp=1", "--json"})
            all.emplace_back(word);
        *std::find(all.begin(), all.end(), "SRC") = source_.toStdString();
        *std::find(all.begin(), all.end(), "DST") = target.toStdString();
        return all;
    }
    static Measured run(const std::vector<std::string>& words, MeasuredOptions options = {}) {
        if (options.program.empty()) options.program = SHARDSCOPE_WORKER_PROGRAM;
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
        const Measured done =
            run(words(target, {"--ranks", std::to_string(ranks), "--mode", mode.toStdString()}));
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
        std::vector<std::string> all =
            words(directory.filePath("out"), {"--ranks", "3", "--mode", "broadcast"});
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

    void byTorchrun() {
        const std::string torchrun = SHARDSCOPE_TORCHRUN;
        if (!QFileInfo::exists(QString::fromStdString(torchrun)))
            QSKIP("no torchrun (packaging/peers installs torch)");
        const QTemporaryDir directory;
        const QString target = directory.filePath("out");
        MeasuredOptions options;
        options.program = torchrun;
        options.timeoutSeconds = 180;
        const Measured done =
            run(words(target, {"--no-python", "--nproc-per-node", "3", "--rdzv-backend", "c10d",
                               "--rdzv-endpoint", "127.0.0.1:0", "--local-addr", "127.0.0.1",
                               SHARDSCOPE_WORKER_PROGRAM, "--mode", "broadcast"}),
                options);
        QVERIFY2(done.exitCode == 0, done.describe().c_str());
        QVERIFY(digestsOf(target.toStdString()) == expected_);
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
        const Measured done = run(words(target, {"--allow-run-as-root", "--oversubscribe", "-np", "3",
                                                 SHARDSCOPE_WORKER_PROGRAM, "--mode", "exchange"}),
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
        const QString target = own ? place + "/out" : directory.filePath("out");
        MeasuredOptions options;
        options.program = SHARDSCOPE_NODE_LOCAL_RANKS;
        options.timeoutSeconds = 120;
        std::vector<std::string> words{place.toStdString(), "4", SHARDSCOPE_WORKER_PROGRAM};
        if (own) words.push_back("--own-disks");
        words.insert(words.end(), {"convert", source, target.toStdString()});
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
        // A tile is as large as a tensor here, so each rank lacks three quarters of its tiles; and as much of
        // them is another's to write.
        QVERIFY2(moved > needed * (own ? 1.3 : 0.7) && moved < needed * (own ? 1.6 : 0.8),
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
            QCOMPARE(left, (QStringList{"in", "out"}));
            QCOMPARE(QDir(disk + "/out").entryList(QDir::Files | QDir::Hidden).size(), r == 0 ? 2 : 1);
            QVERIFY(QFile::rename(disk + "/out/" + name, directory.filePath("whole/" + name)));
        }
        QVERIFY(QFile::rename(place + ".0/out/.metadata", directory.filePath("whole/.metadata")));
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
        std::vector<std::string> group{"--ranks", "3"};
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
        first.insert(first.end(), {"--mode", "broadcast", "--join-timeout", "5"});
        const Measured done = run(words(target, first), options);
        QVERIFY2(!done.timedOut, done.describe().c_str());
        if (done.exitCode == 0) {
            QVERIFY(digestsOf(target.toStdString()) == expected_);
        } else {
            QVERIFY2(done.exitCode == 4, done.describe().c_str());
            QVERIFY2(done.json()["code"] == json("remote"), done.describe().c_str());
            QVERIFY(!QFileInfo::exists(target));
            // Three heartbeats of a second, and what the end of the program takes.
            QVERIFY2(done.wallSeconds - when < 12, done.describe().c_str());
            if (after > 0.5)
                QVERIFY2(done.json()["message"].get<std::string>().find("rank ") != std::string::npos,
                         done.describe().c_str());
            QVERIFY2(done.err.find("[c10d]") == std::string::npos, done.describe().c_str());
            // What was done is continued.
            std::vector<std::string> again = words(target, group);
            again.emplace_back("--resume");
            const Measured second = run(again);
            QVERIFY2(second.exitCode == 0, second.describe().c_str());
            QVERIFY(digestsOf(target.toStdString()) == expected_);
        }
        for (const pid_t rank : ranks)
            QTRY_VERIFY_WITH_TIMEOUT(!runs(rank), 120'000);
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
        const Measured done = run(words(directory.filePath("out"), {"--ranks", "3"}), options);
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
        for (const char* option : {"--own-disks", "--mode=broadcast", "--backend=nccl"})
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
                                     SHARDSCOPE_WORKER_PROGRAM};
        const std::vector<std::string> convert{"convert", source_.toStdString(),
                                               directory.filePath("out").toStdString(), "--to", "dcp"};
        all.insert(all.end(), convert.begin(), convert.end());
        all.insert(all.end(), {":", "-np", "1", SHARDSCOPE_WORKER_PROGRAM, option.toStdString()});
        all.insert(all.end(), convert.begin(), convert.end());
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
        const Measured done = run(words(directory.filePath("out"), {"--join-timeout", "1"}));
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
        const Measured done = run(words(target, {"--ranks", "3", "--mode", "broadcast"}), options);
        QVERIFY(!done.timedOut);
        if (done.exitCode == 0) return;
        // It may have been through by then.
        if (QFileInfo::exists(target)) QVERIFY(digestsOf(target.toStdString()) == expected_);
        for (const pid_t rank : ranks)
            QTRY_VERIFY_WITH_TIMEOUT(!runs(rank), 120'000);
    }

    void wrongWords_data() {
        QTest::addColumn<QStringList>("line");
        QTest::addColumn<int>("code");
        QTest::addColumn<QString>("says");
        QTest::newRow("no conversion")
            << QStringList{"--ranks", "2", "info", source_} << 2 << "everything else is for shardscope";
        QTest::newRow("no source")
            << QStringList{"--ranks", "2", "convert", "/no/such", sources_.filePath("x"), "--to", "dcp"} << 3
            << "no rank has it";
        QTest::newRow("destination is there")
            << QStringList{"--ranks", "2", "convert", source_, source_, "--to", "safetensors"} << -1 << "";
        QTest::newRow("unknown option")
            << QStringList{"--ranks", "2", "convert", source_, sources_.filePath("x"), "--wrong"} << 2
            << "--wrong";
        QTest::newRow("no number of ranks")
            << QStringList{"--ranks", "0", "convert", source_, sources_.filePath("x")} << 2 << "--ranks";
        QTest::newRow("no such mode")
            << QStringList{"--mode", "sideways", "convert", source_, sources_.filePath("x")} << 2
            << "sideways";
        QTest::newRow("workers of ranks")
            << QStringList{"--ranks", "2", "convert", source_, sources_.filePath("x"), "--on", "local:2"} << 2
            << "--on cannot be used with ranks";
        QTest::newRow("path of another host")
            << QStringList{"--ranks", "2", "convert", "ssh://a/b", sources_.filePath("x"), "--to", "dcp"} << 2
            << "ranks take no ssh:// paths";
        QTest::newRow("own disks between GPUs")
            << QStringList{"--backend", "nccl", "--own-disks", "convert", source_, sources_.filePath("x"),
                           "--to",      "dcp"}
            << 2 << "goes over Gloo alone";
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
        const Measured done = run(words(sources_.filePath("x"), {"--ranks", "x"}));
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
        const Measured done = run(words(directory.filePath("out"), {"--ranks", "2", "--backend", "nccl"}));
        QVERIFY2(done.exitCode == 5, done.describe().c_str());
        QVERIFY2(done.out.find("has no GPU that can be used") != std::string::npos, done.describe().c_str());
        const Measured none = run(words(directory.filePath("out"), {"--gpus"}));
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
            std::vector<std::string> line{"--ranks",
                                          std::to_string(ranks),
                                          "--mode",
                                          mode.toStdString(),
                                          "--compute",
                                          gpu ? "gpu" : "cpu",
                                          "convert",
                                          source.toStdString(),
                                          directory.filePath(gpu ? "gpu" : "cpu").toStdString(),
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
        const std::vector<std::string> line{"--ranks",
                                            "2",
                                            "--compute",
                                            "gpu",
                                            "convert",
                                            source.toStdString(),
                                            target.toStdString(),
                                            "--to",
                                            "dcp",
                                            "--dtype",
                                            "*.weight=float16"};
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
        const Measured shared = run(words(directory.filePath("out"), {"--ranks", "2", "--compute", "gpu"}));
        QVERIFY2(shared.exitCode == 2, shared.describe().c_str());
        QVERIFY2(
            shared.err.find("have the same GPU (000102030405060708090a0b0c0d0e0f)") != std::string::npos ||
                shared.out.find("have the same GPU") != std::string::npos,
            shared.describe().c_str());
        pretendGpus("none");
        const Measured none = run(words(directory.filePath("out"), {"--ranks", "2", "--compute", "gpu"}));
        pretendGpus({});
        QVERIFY2(none.exitCode == 5, none.describe().c_str());
        QVERIFY2(none.out.find("no CUDA-capable device is detected") != std::string::npos,
                 none.describe().c_str());
        if (QFileInfo::exists("/dev/nvidia0")) QSKIP("this machine has a GPU");
        const Measured bare = run(words(directory.filePath("out"), {"--ranks", "2", "--compute", "gpu"}));
        QVERIFY2(bare.exitCode == 5, bare.describe().c_str());
        QVERIFY2(bare.out.find(" cannot take part") != std::string::npos &&
                     bare.out.find("there is no driver for NVIDIA's GPUs here") != std::string::npos,
                 bare.describe().c_str());
    }

    void placeFromTheEnvironment_data() {
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
    void placeFromTheEnvironment() {
        QFETCH(QString, variables);
        QFETCH(QString, expected);
        std::map<std::string, std::string> environment;
        for (const QString& pair : variables.split(' ', Qt::SkipEmptyParts))
            environment[pair.section('=', 0, 0).toStdString()] = pair.section('=', 1).toStdString();
        const auto place = shardscope::rankPlace(
            [&](const char* name) -> std::optional<std::string> {
                const auto it = environment.find(name);
                return it == environment.end() ? std::nullopt : std::optional(it->second);
            },
            [](const std::string& list) -> shardscope::Result<std::string> { return "first-of-" + list; });
        if (expected.startsWith("error: ")) {
            QVERIFY(!place.ok());
            QVERIFY2(place.error().message.find(expected.mid(7).toStdString()) != std::string::npos,
                     place.error().message.c_str());
            return;
        }
        QVERIFY2(place.ok(), place.ok() ? "" : place.error().message.c_str());
        const QString port = place->port ? QString::number(place->port) : QString();
        QCOMPARE(QString("%1 %2/%3 %4 %5:%6 %7")
                     .arg(QString::fromStdString(place->launcher))
                     .arg(place->rank)
                     .arg(place->size)
                     .arg(place->localRank)
                     .arg(QString::fromStdString(place->host), port, QString::fromStdString(place->group)),
                 expected);
    }
};

QTEST_GUILESS_MAIN(WorkerCliTest)
#include "worker_cli_test.moc"
