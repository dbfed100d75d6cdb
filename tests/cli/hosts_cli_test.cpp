// Conversions and verbs on hosts in a poor state: without libraries, with a clock that is wrong, a full disk,
// a shell that talks, another version, or paths that are not what they are here. The hosts are this machine;
// in ssh's place stands a script that makes it such a host (tests/cluster has real ones).
#include <QDir>
#include <QFile>
#include <QFileInfo>
#include <QProcess>
#include <QTemporaryDir>
#include <QTest>

#include "cli/after_fault.h"
#include "cli/measured_process.h"

using namespace shardscope::test;
using nlohmann::json;

namespace {

constexpr int kTensors = 16;

QByteArray contents(const QString& path) {
    QFile file(path);
    return file.open(QIODevice::ReadOnly) ? file.readAll() : QByteArray();
}

bool mayHaveOwnMounts() {
    QProcess process;
    process.start("unshare", {"-rm", "true"});
    return process.waitForFinished(10'000) && process.exitCode() == 0;
}

// A shell's words that say what an agent says first, and nothing afterwards.
QByteArray agentThatSays(const json& hello) {
    const std::string text = hello.dump();
    QByteArray words = "printf '\\365\\311\\261\\" + QByteArray::number(static_cast<int>(text.size()), 8) +
                       "\\000\\000\\000\\000\\000\\000\\000'; printf %s '" + QByteArray::fromStdString(text) +
                       "'; exec cat > /dev/null\n";
    return words;
}

}  // namespace

class HostsCliTest : public QObject {
    Q_OBJECT

    QTemporaryDir directory_;
    QString source_, static_;
    json expected_;
    std::string mark_;

    // A script in ssh's place: `$host` and `$command` are what ssh is given; `before` runs first.
    void useSsh(const QByteArray& before) {
        QFile script(directory_.filePath("ssh"));
        QVERIFY(script.open(QIODevice::WriteOnly | QIODevice::Truncate));
        script.write("#!/bin/bash\nhost=${@: -2:1} command=${@: -1}\nexport HOME='" +
                     directory_.filePath("home").toUtf8() + "'\n" + before + "\nexec sh -c \"$command\"\n");
        script.close();
        script.setPermissions(QFile::ReadOwner | QFile::WriteOwner | QFile::ExeOwner);
        qputenv("SHARDSCOPE_SSH", script.fileName().toUtf8());
    }
    std::vector<std::string> words(const QString& target, const std::vector<std::string>& more) const {
        return convertWords(source_.toStdString(), target.toStdString(), more);
    }
    static bool tells(const Measured& run, const char* error) {
        const json said = run.json();
        return said.is_object() && said.contains("message") &&
               said["message"].get<std::string>().find(error) != std::string::npos;
    }

  private slots:
    void initTestCase() {
        qputenv("XDG_STATE_HOME", directory_.filePath("state").toUtf8());
        mark_ = "XDG_STATE_HOME=" + directory_.filePath("state").toStdString();
        keepSecret();
        QVERIFY(QDir(directory_.path()).mkpath("home") && QDir(directory_.path()).mkpath("source"));
        source_ = directory_.filePath("source/source.safetensors");
        QVERIFY(writeRandomSource(source_.toStdString(), kTensors, 1021, 1031, 5));  // 4.2 MB each
        expected_ = digestsOf(source_.toStdString());
        QCOMPARE(expected_.size(), size_t{kTensors});
        static_ = QFileInfo(SHARDSCOPE_PROGRAM).dir().filePath("../libexec/shardscope/shardscope-static");
    }

    void whatIsCopiedNeedsNoLibrary() {
        if (!QFile::exists(static_)) QSKIP("no shardscope-static was built (cmake says why)");
        QProcess ldd;
        ldd.setProcessChannelMode(QProcess::MergedChannels);
        ldd.start("ldd", {static_});
        QVERIFY(ldd.waitForFinished(10'000));
        const QByteArray said = ldd.readAll();
        QVERIFY2(said.contains("statically linked") || said.contains("not a dynamic"), said.constData());

        MeasuredOptions options;
        options.program = static_.toStdString();
        const Measured own = runMeasured({"--version"}), other = runMeasured({"--version"}, options);
        QVERIFY2(other.exitCode == 0 && other.out == own.out, other.describe().c_str());
    }

    void aHostWithoutLibraries() {
        if (!QFile::exists(static_)) QSKIP("no shardscope-static was built (cmake says why)");
        if (!mayHaveOwnMounts()) QSKIP("a process may not have mounts of its own here (unshare -rm)");
        useSsh("exec '" SHARDSCOPE_BARE_HOST "' '" + directory_.filePath("bare").toUtf8() + "' '" +
               directory_.path().toUtf8() + "' \"$command\"");
        const QString target = directory_.filePath("bare-out");
        MeasuredOptions options;
        options.workingDirectory = directory_.path().toStdString();  // which is there, too
        const Measured run = runMeasured(words(target, {"--on", "ssh:bare,bare"}), options);
        QVERIFY2(run.exitCode == 0, run.describe().c_str());
        QVERIFY(digestsOf(target.toStdString()) == expected_);
        const Measured here = runMeasured({"validate", target.toStdString(), "--level", "values", "--json"});
        const Measured there =
            runMeasured({"validate", "ssh://bare" + target.toStdString(), "--level", "values", "--json"});
        QVERIFY2(there.exitCode == here.exitCode && here.exitCode == 0, there.describe().c_str());
        // It was copied there once, and it is the static one.
        const QDir copies(directory_.filePath("bare-home/.cache/shardscope"));
        const QStringList found = copies.entryList(QDir::Dirs | QDir::NoDotAndDotDot);
        QCOMPARE(found.size(), 1);
        QVERIFY(contents(copies.filePath(found[0] + "/shardscope")) == contents(static_));
        // One that a crash of the host has left short is copied again.
        QVERIFY(QFile::resize(copies.filePath(found[0] + "/shardscope"), 1000));
        const Measured mended = runMeasured({"info", "ssh://bare" + target.toStdString()});
        QVERIFY2(mended.exitCode == 0, mended.describe().c_str());
        QVERIFY(contents(copies.filePath(found[0] + "/shardscope")) == contents(static_));
        // What is linked to libraries does not run there, which shows that there are none.
        const QString dynamic = directory_.filePath("dynamic");
        QVERIFY(QFile::copy(SHARDSCOPE_PROGRAM, dynamic));
        const Measured other = runMeasured({"info", "ssh://bare" + target.toStdString(), "--remote-program",
                                            dynamic.toStdString(), "--json"});
        QCOMPARE(other.exitCode, 4);
        QVERIFY2(tells(other, "error while loading shared libraries"), other.describe().c_str());
        QVERIFY2(secretTold(run).empty(), secretTold(run).c_str());
    }

    void noexecHome() {
        if (!mayHaveOwnMounts()) QSKIP("a process may not have mounts of its own here (unshare -rm)");
        // A new one each time, so that it is never there; `test -x` is false on it anyway.
        useSsh(
            "exec unshare -rm sh -c 'mount -t tmpfs -o noexec none \"$HOME\" && exec sh -c \"$0\"' "
            "\"$command\"");
        const Measured run = runMeasured({"info", "ssh://node7" + source_.toStdString(), "--json"});
        QCOMPARE(run.exitCode, 4);
        QVERIFY2(tells(run, "node7: what was copied to ~/.cache/shardscope/"), run.describe().c_str());
        QVERIFY2(run.json()["hint"].get<std::string>().find("noexec") != std::string::npos,
                 run.describe().c_str());
    }

    void conversions_data() {
        QTest::addColumn<QByteArray>("host");  // what makes it so, in a shell
        QTest::addColumn<QString>("says");     // the error; empty = the conversion is done
        QTest::addColumn<bool>("mounts");
        const QByteArray second = "[ $host = good ] && exec sh -c \"$command\"\n";
        const auto row = [](const char* name, const QByteArray& host, const char* says, bool mounts = false) {
            QTest::newRow(name) << host << QString(says) << mounts;
        };
#ifdef SHARDSCOPE_POOR_HOST
        const QByteArray poor = "export LD_PRELOAD=" SHARDSCOPE_POOR_HOST "\n";
        row("clocks that are hours off", poor + "export SHARDSCOPE_TEST_CLOCK=7200", "");
        row("one clock that is years off", second + poor + "export SHARDSCOPE_TEST_CLOCK=100000000", "");
        row("one disk full", second + poor + "export SHARDSCOPE_TEST_DISK=3000000", "");
        row("one disk full at once", second + poor + "export SHARDSCOPE_TEST_DISK=1", "");
        row("all disks full", poor + "export SHARDSCOPE_TEST_DISK=3000000", "No space left on device");
#endif
        row("a shell that talks",
            "echo 'Welcome to node7'; head -c 30000 /dev/urandom | base64 | head -c 40000\n"
            "(for i in $(seq 200); do head -c 5000 /dev/zero | tr '\\0' '\\007' >&2; sleep 0.01; done) < "
            "/dev/null "
            "> /dev/null &",
            "");
        row("a shell that talks for ever", second + "yes 'Welcome to node7'; exit 1",
            "what answers is not shardscope");
        row("an older agent",
            second + agentThatSays({{"say", "hello"}, {"version", "0.0.9"}, {"protocol", 1}}),
            "shardscope there is version 0.0.9 and talks in another way than this one, " SHARDSCOPE_VERSION);
        row("an agent of another version",
            second + agentThatSays({{"say", "hello"}, {"version", "0.0.9"}, {"protocol", 10}}),
            "shardscope there is version 0.0.9 and this one " SHARDSCOPE_VERSION
            ", which cannot share a conversion");
        const auto hiding = [&](const QByteArray& mount) {
            return second + "exec unshare -rm sh -c '" + mount + " && exec sh -c \"$0\"' \"$command\"";
        };
        const QByteArray source = directory_.filePath("source").toUtf8(),
                         out = directory_.filePath("out").toUtf8();
        row("a source that it does not see", hiding("mount -t tmpfs none " + source), "cannot take part",
            true);
        row("another source of the same name",
            hiding("cp " + source +
                   "/source.safetensors $HOME/other && printf x | dd of=$HOME/other bs=1 "
                   "seek=5000000 conv=notrunc status=none && mount --bind $HOME/other " +
                   source + "/source.safetensors"),
            "cannot take part", true);
        row("a destination of its own", hiding("mount -t tmpfs none " + out), "cannot take part", true);
        row("a destination that it may not write",
            hiding("mount --bind " + out + " " + out + " && mount -o remount,bind,ro " + out), "", true);
    }
    void conversions() {
        QFETCH(QByteArray, host);
        QFETCH(QString, says);
        QFETCH(bool, mounts);
        if (mounts && !mayHaveOwnMounts())
            QSKIP("a process may not have mounts of its own here (unshare -rm)");
        QDir(directory_.filePath("out")).removeRecursively();
        QVERIFY(QDir(directory_.path()).mkdir("out"));
        useSsh(host);
        const QString target = directory_.filePath("out/model");
        const Measured run =
            runMeasured(words(target, {"--on", "ssh:good,poor", "--remote-program", SHARDSCOPE_PROGRAM}));
        QCOMPARE(run.exitCode == 0, says.isEmpty());
        if (!says.isEmpty()) {
            QVERIFY2(tells(run, says.toUtf8().constData()), run.describe().c_str());
            QVERIFY(!QFile::exists(target));
        }
        QTRY_VERIFY_WITH_TIMEOUT(agentsWith(mark_).empty(), 10'000);
        const std::string wrong =
            afterFault(run, target.toStdString(), expected_, words(target, {"--on", "local:2", "--resume"}));
        QVERIFY2(wrong.empty(), (wrong + "\n" + run.describe()).c_str());
    }

#ifdef SHARDSCOPE_POOR_HOST
    void ourOwnClock() {
        useSsh("unset LD_PRELOAD");
        qputenv("LD_PRELOAD", SHARDSCOPE_POOR_HOST);
        qputenv("SHARDSCOPE_TEST_CLOCK", "7200");
        const QString target = directory_.filePath("clock");
        const Measured run =
            runMeasured(words(target, {"--on", "local:1+ssh:a", "--remote-program", SHARDSCOPE_PROGRAM}));
        const Measured info = runMeasured({"info", "ssh://a" + source_.toStdString()});
        qunsetenv("LD_PRELOAD");
        QVERIFY2(run.exitCode == 0, run.describe().c_str());
        QVERIFY2(info.exitCode == 0, info.describe().c_str());
        QVERIFY(digestsOf(target.toStdString()) == expected_);
    }
#endif

    void verbs_data() {
        QTest::addColumn<QByteArray>("host");
        QTest::addColumn<QString>("says");
        QTest::newRow("a shell that talks") << QByteArray(
                                                   "echo 'Welcome to node7'; echo 'Last login' >&2; (yes | "
                                                   "head -c 3000000 >&2) < /dev/null > "
                                                   "/dev/null &")
                                            << QString();
        QTest::newRow("an older agent")
            << agentThatSays({{"say", "hello"}, {"version", "0.0.9"}, {"protocol", 1}})
            << "shardscope there is version 0.0.9 and talks in another way than this "
               "one, " SHARDSCOPE_VERSION;
    }
    void verbs() {
        QFETCH(QByteArray, host);
        QFETCH(QString, says);
        useSsh(host);
        const Measured here = runMeasured({"info", source_.toStdString()});
        const Measured there = runMeasured({"info", "ssh://node7" + source_.toStdString()});
        if (says.isEmpty()) {
            QVERIFY2(there.exitCode == 0, there.describe().c_str());
            QCOMPARE(QString::fromStdString(there.out).remove("ssh://node7"),
                     QString::fromStdString(here.out));
            QCOMPARE(there.err, here.err);
        } else {
            QCOMPARE(there.exitCode, 4);
            QVERIFY2(QString::fromStdString(there.err).contains(says), there.describe().c_str());
            QVERIFY2(QString::fromStdString(there.err).contains("install this version there"),
                     there.describe().c_str());
        }
        QTRY_VERIFY_WITH_TIMEOUT(agentsWith(mark_).empty(), 10'000);
    }
};

QTEST_GUILESS_MAIN(HostsCliTest)
#include "hosts_cli_test.moc"
