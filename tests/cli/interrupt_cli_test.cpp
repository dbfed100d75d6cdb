// Conversions that are interrupted: killed, stopped, out of space, raced by another job, with a source that
// changes under them. The destination is absent or whole, always; the message says what to do.
#include <QDir>
#include <QElapsedTimer>
#include <QFile>
#include <QTemporaryDir>
#include <QTest>
#include <csignal>
#include <random>

#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include "cli/measured_process.h"

using namespace shardscope::test;
using nlohmann::json;

namespace {

constexpr int kTensors = 24;  // of 8 MiB

QStringList remains(const QString& directory) {
    return QDir(directory).entryList(QDir::AllEntries | QDir::Hidden | QDir::System | QDir::NoDotAndDotDot);
}

}  // namespace

class InterruptCliTest : public QObject {
    Q_OBJECT

    QTemporaryDir sources_;
    QString source_;
    json expected_;
    double seconds_ = 1;  // that a whole conversion takes here
    std::minstd_rand random_{20240229};

    std::vector<std::string> words(const QString& source, const QString& target,
                                   const std::vector<std::string>& more = {}) const {
        return convertWords(source.toStdString(), target.toStdString(), more);
    }
    double moment() { return std::uniform_real_distribution<double>(0, seconds_ * 1.1)(random_); }
    // Sends a signal, once it is due.
    static MeasuredOptions interruptedWhen(const std::function<bool(pid_t, double)>& due, int signal) {
        MeasuredOptions options;
        options.watch = [=](pid_t child, double elapsed) {
            if (!due(child, elapsed)) return true;
            kill(child, signal);
            return false;
        };
        return options;
    }
    static MeasuredOptions interrupted(double afterSeconds, int signal) {
        return interruptedWhen([=](pid_t, double elapsed) { return elapsed >= afterSeconds; }, signal);
    }
    static MeasuredOptions interruptedAfter(qint64 writtenBytes, int signal) {
        const auto due = [=](pid_t child, double) {
            QFile file(QString("/proc/%1/io").arg(child));
            const QByteArray text = file.open(QIODevice::ReadOnly) ? file.readAll() : QByteArray();
            const qsizetype at = text.indexOf("wchar: ") + 7;
            return text.mid(at, text.indexOf('\n', at) - at).toLongLong() >= writtenBytes;
        };
        return interruptedWhen(due, signal);
    }
    // What is at the destination is nothing, or everything.
    void checkAbsentOrWhole(const QString& target) {
        if (QFile::exists(target))
            QVERIFY2(digestsOf(target.toStdString()) == expected_, "a part was published");
    }

  private slots:
    void initTestCase() {
        QVERIFY(sources_.isValid());
        source_ = sources_.filePath("source.safetensors");
        QVERIFY(writeRandomSource(source_.toStdString(), kTensors, 2048, 1024, 1));
        expected_ = digestsOf(source_.toStdString());
        QVERIFY2(expected_.size() == kTensors, expected_.dump().c_str());
        QTemporaryDir directory;
        const Measured run = runMeasured(words(source_, directory.filePath("out")));
        QVERIFY2(run.exitCode == 0, run.describe().c_str());
        QVERIFY(digestsOf(directory.filePath("out").toStdString()) == expected_);
        seconds_ = run.wallSeconds;
        qInfo("a whole conversion takes %.2f s here", seconds_);
    }

    void killedAtAnyMoment() {
        QTemporaryDir directory;
        const QString target = directory.filePath("out");
        QElapsedTimer clock;
        clock.start();
        int kills = 0, taken = 0, wholes = 0;
        for (int round = 0; round < 24 && clock.elapsed() < 60'000; ++round) {
            const Measured run =
                runMeasured(words(source_, target, {"--resume"}), interrupted(moment(), SIGKILL));
            QVERIFY2(run.signal == SIGKILL || run.exitCode == 0, run.describe().c_str());
            kills += run.signal == SIGKILL;
            checkAbsentOrWhole(target);
            if (QTest::currentTestFailed()) return;
            if (run.exitCode == 0) taken += run.json().value("bytes_reused", uint64_t{0}) > 0;
            if (QFile::exists(target)) {
                ++wholes;
                QVERIFY(QDir(target).removeRecursively());
            }
        }
        const Measured last = runMeasured(words(source_, target, {"--resume"}));
        QVERIFY2(last.exitCode == 0, last.describe().c_str());
        QVERIFY(digestsOf(target.toStdString()) == expected_);
        QCOMPARE(remains(directory.path()), QStringList{"out"});
        QVERIFY(kills > 0);
        qInfo("%d kills, %d whole destinations, %d of them resumed", kills, wholes, taken);
    }

    // Without --resume a killed job's work is never thrown away unasked: it says what is there and how to go
    // on.
    void killedAndStartedAgain() {
        int refused = 0;
        for (int round = 0; round < 6; ++round) {
            QTemporaryDir directory;
            const QString target = directory.filePath("out");
            // Late, while the staged destination is being verified.
            const Measured run =
                runMeasured(words(source_, target), interrupted(seconds_ * (0.55 + 0.08 * round), SIGKILL));
            checkAbsentOrWhole(target);
            if (QTest::currentTestFailed()) return;
            if (run.signal != SIGKILL || QFile::exists(target)) continue;
            const Measured again = runMeasured(words(source_, target));
            if (again.exitCode == 4) {
                ++refused;
                QVERIFY2(again.json()["code"] == "exists", again.describe().c_str());
                QVERIFY2(again.json()["hint"].dump().find("--resume") != std::string::npos,
                         again.describe().c_str());
                QVERIFY(!QFile::exists(target));
                const Measured other = runMeasured(words(source_, target, {"--resume", "--split", "even"}));
                QVERIFY2(other.exitCode == 3 || other.exitCode == 0, other.describe().c_str());
                if (other.exitCode == 3) {
                    QVERIFY2(other.json()["code"] == "changed", other.describe().c_str());
                    const Measured resumed = runMeasured(words(source_, target, {"--resume"}));
                    QVERIFY2(resumed.exitCode == 0, resumed.describe().c_str());
                }
            } else {
                QVERIFY2(again.exitCode == 0, again.describe().c_str());
            }
            QVERIFY(digestsOf(target.toStdString()) == expected_);
            QCOMPARE(remains(directory.path()), QStringList{"out"});
        }
        qInfo("%d of 6 were asked to resume", refused);
    }

    void stoppedByTheUser_data() {
        QTest::addColumn<int>("signal");
        QTest::newRow("SIGINT") << SIGINT;
        QTest::newRow("SIGTERM") << SIGTERM;
    }
    void stoppedByTheUser() {
        QFETCH(int, signal);
        QTemporaryDir directory;
        const QString target = directory.filePath("out");
        bool stopped = false;
        // MiB of 192. Fewer where the process had written all before it was stopped.
        for (const int written : {64, 48, 32, 16, 16, 16}) {
            const Measured run =
                runMeasured(words(source_, target), interruptedAfter(qint64{written} << 20, signal));
            QVERIFY2(run.signal == 0, run.describe().c_str());
            if (run.exitCode == 0) {  // too late
                QVERIFY(QDir(target).removeRecursively());
                continue;
            }
            QVERIFY2(run.exitCode == 130, run.describe().c_str());
            QVERIFY2(run.json()["code"] == "cancelled", run.describe().c_str());
            QVERIFY(!QFile::exists(target));
            const bool kept = !remains(directory.path()).isEmpty();
            const json hint = run.json()["hint"];
            QCOMPARE(hint.is_string() && hint.get<std::string>().find("--resume") != std::string::npos, kept);
            if (!kept) continue;  // too early: nothing was worth keeping
            stopped = true;
            break;
        }
        QVERIFY2(stopped, "was never stopped with work to keep");
        const Measured resumed = runMeasured(words(source_, target, {"--resume"}));
        QVERIFY2(resumed.exitCode == 0, resumed.describe().c_str());
        QVERIFY(digestsOf(target.toStdString()) == expected_);
        QCOMPARE(remains(directory.path()), QStringList{"out"});
    }

    void sourceThatChanges_data() {
        QTest::addColumn<QString>("how");
        for (const char* how : {"cut", "replaced", "overwritten", "removed"})
            QTest::newRow(how) << QString(how);
    }
    void sourceThatChanges() {
        QFETCH(QString, how);
        QTemporaryDir other;
        const QString pristine = other.filePath("pristine.safetensors"),
                      replacement = other.filePath("other.safetensors");
        QVERIFY(QFile::copy(source_, pristine) &&
                writeRandomSource(replacement.toStdString(), kTensors, 2048, 1024, 2));
        const json otherDigests = digestsOf(replacement.toStdString());
        int noticed = 0;
        for (int round = 0; round < 6; ++round) {
            QTemporaryDir directory;
            const QString source = directory.filePath("moving.safetensors"),
                          target = directory.filePath("out");
            QVERIFY(QFile::copy(pristine, source));
            if (how == "replaced") QVERIFY(QFile::copy(replacement, directory.filePath("next")));
            MeasuredOptions options;
            const double after = seconds_ * (round + 0.5) / 9;
            options.watch = [&](pid_t, double elapsed) {
                if (elapsed < after) return true;
                const QByteArray path = QFile::encodeName(source);
                if (how == "cut") (void)!truncate(path.constData(), 100 << 20);
                if (how == "removed") unlink(path.constData());
                if (how == "replaced")
                    (void)!rename(QFile::encodeName(directory.filePath("next")).constData(),
                                  path.constData());
                if (how == "overwritten") {
                    QFile file(source);
                    if (file.open(QIODevice::ReadWrite) && file.seek(150 << 20))
                        file.write(QByteArray(4096, 'x'));
                }
                return false;
            };
            const Measured run = runMeasured(words(source, target), options);
            QVERIFY2(run.signal == 0, run.describe().c_str());
            if (run.exitCode == 0) {
                // It was too late to matter, or so early that another file was converted: one of the two,
                // never a mixture.
                const json digests = digestsOf(target.toStdString());
                if (how == "overwritten" && digests != expected_) {
                    QVERIFY(digests == digestsOf(source.toStdString()));
                } else {
                    QVERIFY2(digests == expected_ || digests == otherDigests, "a mixture was published");
                }
                continue;
            }
            ++noticed;
            QVERIFY2(run.exitCode == 3, run.describe().c_str());
            const std::string code = run.json().value("code", "");
            QVERIFY2(code == "changed" || code == "damaged" || code == "not-found", run.describe().c_str());
            QVERIFY2(run.json()["file"].is_string(), run.describe().c_str());
            QVERIFY(!QFile::exists(target));
            QStringList left = remains(directory.path());
            left.removeAll("moving.safetensors");
            left.removeAll("next");
            QVERIFY2(left.isEmpty(), qPrintable(left.join(' ')));
        }
        qInfo("%d of 6 noticed", noticed);
    }

    void destinationExists() {
        QTemporaryDir directory;
        const QString target = directory.filePath("out");
        QVERIFY(QDir().mkdir(target));
        QFile precious(target + "/precious");
        QVERIFY(precious.open(QIODevice::WriteOnly) && precious.write("kept") == 4);
        precious.close();
        const Measured run = runMeasured(words(source_, target));
        QCOMPARE(run.exitCode, 4);
        QVERIFY2(run.json()["code"] == "exists", run.describe().c_str());
        QVERIFY2(run.json()["hint"].get<std::string>().find("--overwrite") != std::string::npos,
                 run.describe().c_str());
        QCOMPARE(remains(directory.path()), QStringList{"out"});
        QCOMPARE(remains(target), QStringList{"precious"});

        // With --overwrite and killed, the old one stays until the new one is whole.
        for (int round = 0; round < 6; ++round) {
            (void)runMeasured(words(source_, target, {"--overwrite", "--resume"}),
                              interrupted(moment(), SIGKILL));
            if (remains(target) != QStringList{"precious"}) {
                QVERIFY(digestsOf(target.toStdString()) == expected_);
                break;
            }
        }
        const Measured last = runMeasured(words(source_, target, {"--overwrite", "--resume"}));
        QVERIFY2(last.exitCode == 0, last.describe().c_str());
        QVERIFY(digestsOf(target.toStdString()) == expected_);
        QCOMPARE(remains(directory.path()), QStringList{"out"});
    }

    void unexpectedFilesInStaging() {
        QTemporaryDir directory;
        QVERIFY(QDir(directory.path()).mkdir("elsewhere"));
        QFile precious(directory.filePath("elsewhere/precious"));
        QVERIFY(precious.open(QIODevice::WriteOnly) && precious.write("kept") == 4);
        precious.close();
        QVERIFY(QFile::link(directory.filePath("elsewhere"), directory.filePath(".out.shardscope-partial")));
        const Measured linked = runMeasured(words(source_, directory.filePath("out")));
        QVERIFY2(linked.exitCode == 3 || linked.exitCode == 4, linked.describe().c_str());
        QVERIFY2(linked.json()["message"].get<std::string>().find("symbolic link") != std::string::npos,
                 linked.describe().c_str());
        QCOMPARE(remains(directory.filePath("elsewhere")), QStringList{"precious"});

        QFile file(directory.filePath(".two.shardscope-partial"));
        QVERIFY(file.open(QIODevice::WriteOnly) && file.write("a file") == 6);
        file.close();
        const Measured blocked = runMeasured(words(source_, directory.filePath("two")));
        QVERIFY2(blocked.exitCode == 3 || blocked.exitCode == 4, blocked.describe().c_str());
        QVERIFY2(!blocked.json()["message"].get<std::string>().empty(), blocked.describe().c_str());
        QVERIFY(!QFile::exists(directory.filePath("two")));
    }

    void twoJobsForOneDestination() {
        QTemporaryDir directory;
        const QString target = directory.filePath("out");
        Measured second;
        MeasuredOptions options;
        options.watch = [&](pid_t, double) {
            if (remains(directory.path()).isEmpty()) return true;
            second = runMeasured(words(source_, target, {"--resume"}));
            return false;
        };
        const Measured first = runMeasured(words(source_, target), options);
        QVERIFY2(first.exitCode == 0, first.describe().c_str());
        QVERIFY2(second.exitCode == 4, second.describe().c_str());
        QVERIFY2(second.json()["code"] == "exists", second.describe().c_str());
        QVERIFY(digestsOf(target.toStdString()) == expected_);
        QCOMPARE(remains(directory.path()), QStringList{"out"});
    }

    void noPlaceToWrite() {
        const Measured nowhere = runMeasured(words(source_, "/proc/nonexistent/parent/out"));
        QVERIFY2(nowhere.exitCode == 4 || nowhere.exitCode == 3, nowhere.describe().c_str());
        QVERIFY2(nowhere.json()["file"].get<std::string>().find("/proc/nonexistent") != std::string::npos,
                 nowhere.describe().c_str());
        QVERIFY2(runMeasured(words(source_, sources_.filePath("source.safetensors/out"))).exitCode != 0,
                 "a file is not a directory");

        if (geteuid() == 0) QSKIP("root may write everywhere");
        QTemporaryDir directory;
        QVERIFY(QFile::setPermissions(directory.path(), QFileDevice::ReadOwner | QFileDevice::ExeOwner));
        const Measured closed = runMeasured(words(source_, directory.filePath("out")));
        QFile::setPermissions(directory.path(),
                              QFileDevice::ReadOwner | QFileDevice::WriteOwner | QFileDevice::ExeOwner);
        QCOMPARE(closed.exitCode, 4);
        QVERIFY2(closed.json()["code"] == "permission", closed.describe().c_str());
        QVERIFY(remains(directory.path()).isEmpty());
    }

    void limitOnFileSizes() {
        QTemporaryDir directory;
        MeasuredOptions options;
        options.watch = [](pid_t child, double) {
            const rlimit limit{1 << 20, 1 << 20};
            prlimit(child, RLIMIT_FSIZE, &limit, nullptr);
            return false;
        };
        const Measured run = runMeasured(words(source_, directory.filePath("out")), options);
        QVERIFY2(run.exitCode == 4, run.describe().c_str());
        QVERIFY2(run.json()["hint"].get<std::string>().find("ulimit") != std::string::npos,
                 run.describe().c_str());
        QVERIFY(remains(directory.path()).isEmpty());
    }

    void diskFull() {
        QTemporaryDir directory;
        const QByteArray place = QFile::encodeName(directory.path());
        if (mount("tmpfs", place.constData(), "tmpfs", 0, "size=8m") != 0)
            QSKIP("a small file system can only be mounted by root");
        const Measured run = runMeasured(words(source_, directory.filePath("out")));
        const QStringList left = remains(directory.path());
        umount(place.constData());
        QVERIFY2(run.exitCode == 4, run.describe().c_str());
        QVERIFY2(run.json()["code"] == "no-space", run.describe().c_str());
        QVERIFY2(run.json()["message"].get<std::string>().find("free") != std::string::npos,
                 run.describe().c_str());
        QVERIFY2(left.isEmpty(), qPrintable(left.join(' ')));
    }

    // The space goes while the job runs: it is reserved before, or the job ends cleanly.
    void diskFillsUp() {
        QTemporaryDir directory;
        const QByteArray place = QFile::encodeName(directory.path());
        if (mount("tmpfs", place.constData(), "tmpfs", 0, "size=240m") != 0)
            QSKIP("a small file system can only be mounted by root");
        MeasuredOptions options;
        options.watch = [&](pid_t, double elapsed) {
            if (elapsed < seconds_ * 0.1) return true;
            QFile filler(directory.filePath("filler"));
            if (filler.open(QIODevice::WriteOnly)) {
                const QByteArray block(1 << 20, 'x');
                while (filler.write(block) == block.size())
                    filler.flush();
            }
            return false;
        };
        const Measured run = runMeasured(words(source_, directory.filePath("out")), options);
        QFile::remove(directory.filePath("filler"));
        const bool whole = QFile::exists(directory.filePath("out")) &&
                           digestsOf(directory.filePath("out").toStdString()) == expected_;
        QStringList left = remains(directory.path());
        umount(place.constData());
        QVERIFY2(run.signal == 0, run.describe().c_str());
        if (run.exitCode == 0) {
            QVERIFY(whole);
        } else {
            QVERIFY2(run.exitCode == 4, run.describe().c_str());
            QVERIFY2(run.json()["code"] == "no-space", run.describe().c_str());
            QVERIFY2(!left.contains("out"), run.describe().c_str());
        }
    }
};

QTEST_GUILESS_MAIN(InterruptCliTest)
#include "interrupt_cli_test.moc"
