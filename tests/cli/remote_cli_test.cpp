// Verbs on checkpoints of another host. The host is this machine; in ssh's place stands a script that runs
// the command which ssh would run there (tests/cluster/run does the same over a real sshd).
#include <QDir>
#include <QFile>
#include <QProcess>
#include <QTemporaryDir>
#include <QTest>
#include <filesystem>

#include "cli/remote.h"
#include "cli/run_shardscope.h"
#include "support/genuine.h"
#include "support/http_server.h"

using namespace shardscope;
using shardscope::test::FakeBucket;
using shardscope::test::Outcome;
using shardscope::test::runShardscope;

namespace {

const QString kHost = "ssh://me@node7:2222";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
        text.replace(at, from.size(), to);
    return text;
}

QByteArray contents(const QString& path) {
    QFile file(path);
    return file.open(QIODevice::ReadOnly) ? file.readAll() : QByteArray("(no file)");
}

}  // namespace

class RemoteCliTest : public QObject {
    Q_OBJECT

    QTemporaryDir directory_;
    QString log_;

    // A script in ssh's place; `before` runs first, there.
    void useSsh(const QByteArray& before) {
        QFile script(directory_.filePath("ssh"));
        QVERIFY(script.open(QIODevice::WriteOnly | QIODevice::Truncate));
        script.write("#!/bin/sh\necho \"$@\" >> '" + log_.toUtf8() + "'\nfor last; do :; done\nHOME='" +
                     directory_.filePath("home").toUtf8() + "'\nexport HOME\n" + before +
                     "\nexec sh -c \"$last\"\n");
        script.close();
        script.setPermissions(QFile::ReadOwner | QFile::WriteOwner | QFile::ExeOwner);
        qputenv("SHARDSCOPE_SSH", script.fileName().toUtf8());
    }

    static QString genuine(const char* family, const char* name) {
        for (const auto& c : test::genuineCases(family)) {
            if (c.name == name) return QString::fromStdString(std::filesystem::canonical(c.openPath()));
        }
        return {};
    }

  private slots:
    void initTestCase() {
        log_ = directory_.filePath("log");
        QVERIFY(QDir(directory_.path()).mkdir("home"));
        useSsh("");
    }

    void remoteOutputMatchesLocal_data() {
        QTest::addColumn<QStringList>("words");
        QTest::addColumn<bool>("asText");
        const auto row = [](const char* name, const QStringList& words, bool asText = true) {
            QTest::newRow(name) << words << asText;
        };
        const QString good = genuine("dcp", "t2.15.0-fsdp2-tp"),
                      nan = genuine("dcp", "t2.15.0-damaged-nan-block"),
                      cut = genuine("dcp", "t2.15.0-damaged-metadata-truncated");
        row("info", {"info", "@" + good});
        row("ready", {"ready", "@" + good});
        row("stats", {"stats", "@" + good});
        row("ls", {"ls", "@" + good, "*.weight", "--chunks"});
        row("csv", {"ls", "@" + good, "--csv"});
        row("map", {"map", "@" + good});
        row("show", {"show", "@" + good, "model.fc1.weight", "--values"});
        row("no such tensor", {"show", "@" + good, "no.such"});
        row("validate", {"validate", "@" + good});
        row("findings", {"validate", "@" + nan, "--level", "values"});
        row("digest", {"digest", "@" + good, "--algorithm", "sha256"});
        row("by several processes there", {"validate", "@" + nan, "--level", "values", "--on", "local:2"});
        row("diff", {"diff", "@" + good, "@" + nan, "--values"});
        row("expect", {"validate", "@" + good, "--expect=@" + nan});
        row("report", {"report", "@" + good, "--as", "junit"}, false);
        row("plan", {"plan", "@" + good, "@/tmp/nowhere-yet", "--to", "safetensors"});
        row("dry run", {"convert", "@" + good, "@/tmp/nowhere-yet", "--dry-run", "--to", "torch"});
        row("absent", {"info", "@/nowhere"});
        row("damaged", {"info", "@" + cut});
        row("like", {"plan", "@" + good, "@/tmp/nowhere-yet", "--like", "@" + nan, "--to", "dcp"});
    }
    void remoteOutputMatchesLocal() {
        QFETCH(QStringList, words);
        QFETCH(bool, asText);
        QStringList here = words, there = words;
        here.replaceInStrings("@/", "/");
        there.replaceInStrings("@/", kHost + "/");
        for (const bool json : {false, true}) {
            if (json) {
                here << "--json";
                there << "--json";
            }
            if (!json && !asText) continue;
            const Outcome own = runShardscope(here), other = runShardscope(there);
            QCOMPARE(other.exitCode, own.exitCode);
            QCOMPARE(replaced(other.out, kHost.toStdString(), ""), own.out);
            QCOMPARE(replaced(other.err, kHost.toStdString(), ""), own.err);
        }
    }

    void pathsAreShownAsTheyWereGiven() {
        const QString path = kHost + genuine("dcp", "t2.15.0-fsdp2-tp");
        const Outcome info = runShardscope({"info", path, "--json"});
        QCOMPARE(info.json()["path"].get<std::string>(), path.toStdString());
        const Outcome absent = runShardscope({"info", kHost + "/nowhere", "--json"});
        QCOMPARE(absent.exitCode, 3);
        QCOMPARE(absent.json()["file"].get<std::string>(), kHost.toStdString() + "/nowhere");
        // ssh is the user's own, and asks nothing.
        const QByteArray log = contents(log_);
        QVERIFY(log.contains("-o BatchMode=yes"));
        QVERIFY(log.contains("-p 2222 -- me@node7 "));
    }

    void theProgramIsCopiedOnce() {
        const QDir copies(directory_.filePath("home/.cache/shardscope"));
        QCOMPARE(copies.entryList(QDir::Dirs | QDir::NoDotAndDotDot).size(), 1);
    }

    void filesAreWrittenHere() {
        const QString good = genuine("dcp", "t2.15.0-fsdp2-tp");
        const QString index = directory_.filePath("x.ssidx"), report = directory_.filePath("r.html");
        Outcome done = runShardscope({"index", kHost + good, "-o", index, "--json"});
        QCOMPARE(done.exitCode, 0);
        QCOMPARE(done.json()["path"].get<std::string>(), (kHost + good).toStdString());
        QCOMPARE(done.json()["bytes"].get<qint64>(), QFile(index).size());
        QCOMPARE(runShardscope({"diff", index, good}).exitCode, 0);
        QCOMPARE(runShardscope({"index", kHost + good, "-o", index}).exitCode, 4);
        QCOMPARE(runShardscope({"index", kHost + good, "-o", index, "--overwrite"}).exitCode, 0);
        QCOMPARE(runShardscope({"report", kHost + good, "--output=" + report}).exitCode, 0);
        QVERIFY(contents(report).contains("<html"));
        QVERIFY(contents(report).contains((kHost + good).toUtf8()));
        // Nothing is left of what failed.
        const QString none = directory_.filePath("none");
        QCOMPARE(runShardscope({"report", kHost + "/nowhere", "-o", none}).exitCode, 3);
        QCOMPARE(runShardscope({"index", kHost + "/nowhere", "-o", none}).exitCode, 3);
        QVERIFY(!QFile::exists(none));
    }

    // Source and destination are there, and so is the work: alone, by several processes, and once more.
    void conversionsRunThere() {
        const QString good = genuine("dcp", "t2.15.0-fsdp2-tp");
        const auto expected = runShardscope({"digest", good, "--json"}).json()["tensors"];
        QVERIFY(!expected.empty());
        for (const char* on : {"", "local:2"}) {
            const QString made =
                directory_.filePath(QStringLiteral("made") + QString::fromLatin1(on).left(5));
            QStringList words{"convert", kHost + good, kHost + made, "--to",          "safetensors",
                              "--json",  "--progress", "json",       "--weights-only"};
            if (*on) words << "--on" << QString::fromLatin1(on);
            const Outcome done = runShardscope(words);
            QVERIFY2(done.exitCode == 0, done.err.c_str());
            const auto report = done.json();
            QCOMPARE(report["schema"].get<std::string>(), std::string("shardscope.report/1"));
            QVERIFY(report["verified"].get<bool>());
            for (const char* event : {"\"event\":\"progress\"", "\"event\":\"done\""})
                QVERIFY2(done.err.find(event) != std::string::npos, done.err.c_str());
            const std::string end = done.err.substr(0, done.err.find_last_not_of('\n') + 1);
            QVERIFY2(end.substr(end.rfind('\n') + 1).starts_with("{\"event\":\"done\""), done.err.c_str());
            if (*on) {
                // So are those who did it.
                const size_t at = done.err.rfind("{\"event\":\"workers\"");
                QVERIFY2(at != std::string::npos, done.err.c_str());
                const auto last = nlohmann::json::parse(done.err.substr(at, done.err.find('\n', at) - at));
                QCOMPARE(last["workers"].size(), size_t{2});
                QCOMPARE(last["workers"][1]["name"].get<std::string>(), std::string("local 2"));
                QVERIFY2(last["workers"][0]["units"].get<int>() + last["workers"][1]["units"].get<int>() > 0,
                         last.dump().c_str());
            } else {
                // What its threads did comes along.
                const size_t at = done.err.rfind("{\"event\":\"progress\"");
                const auto last = nlohmann::json::parse(done.err.substr(at, done.err.find('\n', at) - at));
                QVERIFY2(last["busy_s"]["compute"].get<double>() > 0, last.dump().c_str());
            }
            const auto digests = runShardscope({"digest", made, "--json"}).json()["tensors"];
            QVERIFY(!digests.empty());
            for (const auto& [name, digest] : digests.items())
                QVERIFY2(expected.contains(name) && expected[name] == digest, name.c_str());
            // As it is here: what exists is not written over.
            QCOMPARE(runShardscope(words).json()["code"].get<std::string>(), std::string("exists"));
            QCOMPARE(runShardscope(words << "--overwrite").exitCode, 0);
        }
    }

    // A bucket, the hub or a web server is asked by the host, as whom that is there.
    void bucketsWithTheHostsCredentials() {
        FakeBucket bucket("b1");
        bucket.use("AKTEST", "SKTESTSECRET");
        const QString good = genuine("dcp", "t2.15.0-fsdp2-tp");
        bucket.putTree(good.toStdString(), "run");
        useSsh(
            "AWS_ACCESS_KEY_ID=AKTEST; AWS_SECRET_ACCESS_KEY=SKTESTSECRET\n"
            "export AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY");
        qputenv("AWS_ACCESS_KEY_ID", "AKHERE");
        QCOMPARE(runShardscope({"info", "s3://b1/run"}).exitCode, 4);
        const Outcome diff = runShardscope({"diff", kHost + good, "s3://b1/run", "--values"});
        QVERIFY2(diff.exitCode == 0, diff.err.c_str());
        const QString made = directory_.filePath("of-a-bucket");
        for (const auto& [from, to] : {std::pair(kHost + good, QString("s3://b1/out")),
                                       std::pair(QString("s3://b1/out"), kHost + made)}) {
            const Outcome done = runShardscope({"convert", from, to, "--to", "safetensors", "--json"});
            QVERIFY2(done.exitCode == 0, (done.out + done.err).c_str());
        }
        QVERIFY(runShardscope({"digest", made, "--json"}).json()["tensors"] ==
                runShardscope({"digest", good, "--json"}).json()["tensors"]);
        useSsh("");
    }

    void whatCannotRunThereIsRefused_data() {
        QTest::addColumn<QStringList>("words");
        QTest::addColumn<int>("code");
        QTest::addColumn<QString>("says");
        const auto row = [](const char* name, const QStringList& words, int code, const char* says) {
            QTest::newRow(name) << words << code << says;
        };
        row("convert to another host", {"convert", "ssh://a/x", "ssh://b/y", "--to", "dcp"}, 5,
            "jobs run --on ssh:a convert SRC DST");
        row("convert by other hosts",
            {"convert", "ssh://a/x", "ssh://a/y", "--to", "dcp", "--on", "local:2+ssh:b"}, 5, "--on local:N");
        row("validate by other hosts", {"validate", "ssh://a/x", "--level", "values", "--on", "ssh:b"}, 5,
            "--on local:N");
        row("a report here", {"convert", "ssh://a/x", "ssh://a/y", "--to", "dcp", "--report", "r.json"}, 2,
            "--report 'r.json'");
        row("convert from there", {"convert", "ssh://a/x", "y", "--to", "dcp"}, 5, "where its files are");
        row("extract", {"extract", "ssh://a/x", "t", "t.npy"}, 2, "ssh a shardscope extract");
        row("jobs", {"jobs", "run", "--on", "local:1", "convert", "ssh://a/x", "y"}, 2,
            "does not take ssh:// paths");
        row("two hosts", {"diff", "ssh://a/x", "ssh://b/x"}, 5, "different hosts");
        row("two ports", {"diff", "ssh://a:1/x", "ssh://a:2/x"}, 5, "different hosts");
        row("one here", {"diff", "ssh://a/x", "x"}, 2, "is a path of this machine");
        row("expected here", {"validate", "ssh://a/x", "--expect", "x"}, 2,
            "--expect 'x' is a path of this machine");
        row("recipe here", {"plan", "ssh://a/x", "ssh://a/y", "--map", "x.json"}, 2, "--map 'x.json'");
        row("an option", {"info", "ssh://-oProxyCommand=x/y"}, 2, "names no host");
        row("no path", {"info", "ssh://a"}, 2, "names no path");
    }
    void whatCannotRunThereIsRefused() {
        QFETCH(QStringList, words);
        QFETCH(int, code);
        QFETCH(QString, says);
        QFile::remove(log_);
        const Outcome refused = runShardscope(words);
        QCOMPARE(refused.exitCode, code);
        QVERIFY2(QString::fromStdString(refused.err).contains(says), refused.err.c_str());
        QVERIFY(!QFile::exists(log_));  // nobody was asked
    }

    void failuresOfTheConnection_data() {
        QTest::addColumn<QByteArray>("before");
        QTest::addColumn<QString>("says");
        QTest::newRow("no route") << QByteArray("echo 'ssh: connect to host node7: No route' >&2; exit 255")
                                  << "No route";
        QTest::newRow("another program") << QByteArray("echo hello; exec sleep 0.2") << "hello";
        QTest::newRow("gone at once") << QByteArray("exit 3") << "exit code 3";
        QTest::newRow("ends on the way")
            << QByteArray("printf '\\365\\311\\261'; head -c 3 > /dev/null; printf 'x'; exit 9")
            << "exit code 9";
        QTest::newRow("after a long greeting") << QByteArray(
                                                      "for i in $(seq 100); do echo 'Authorized use only' "
                                                      ">&2; done; echo 'No route' >&2; exit 255")
                                               << "No route";
        QTest::newRow("mad") << QByteArray(
                                    "printf '\\365\\311\\261'; head -c 65536 /dev/zero | tr '\\0' '\\377'")
                             << "more than 16 MiB";
    }
    void failuresOfTheConnection() {
        QFETCH(QByteArray, before);
        QFETCH(QString, says);
        useSsh(before);
        const Outcome failed = runShardscope({"info", kHost + "/x"});
        useSsh("");
        QCOMPARE(failed.exitCode, 4);
        QVERIFY2(QString::fromStdString(failed.err).contains("node7"), failed.err.c_str());
        QVERIFY2(QString::fromStdString(failed.err).contains(says), failed.err.c_str());
    }

    void progressIsShownHere() {
        const Outcome done = runShardscope(
            {"digest", kHost + genuine("dcp", "t2.15.0-fsdp2-tp"), "--progress", "json", "--json"});
        QCOMPARE(done.exitCode, 0);
        QVERIFY(QString::fromStdString(done.err).contains("\"event\":\"progress\""));
        const Outcome failed = runShardscope({"digest", kHost + "/nowhere", "--progress", "json"});
        QVERIFY(QString::fromStdString(failed.err).contains("\"event\":\"error\""));
    }

    void whatArrivesIsHarmlessOnATerminal() {
        cli::TerminalText text;
        QCOMPARE(text.take("one\ntw"), std::string("one\n"));
        QCOMPARE(text.take("o\x1b[31mred\x1b[0m\n"), std::string("two\x1b[31mred\x1b[0m\n"));
        QCOMPARE(text.take("\x1b[2J\x1b]0;title\x07\r\n"), std::string("\\x1b[2J\\x1b]0;title\\x07\\x0d\n"));
        QCOMPARE(text.take("\x1b[1;31m\x1b[38;5;1x\xff\xe2\x80\xae\n"),
                 std::string("\x1b[1;31m\\x1b[38;5;1x\\xff\\u202e\n"));
        QCOMPARE(text.take("\x1b["), std::string());
        QCOMPARE(text.flush(), std::string("\\x1b["));
        QCOMPARE(text.take("caf\xc3"), std::string());
        QCOMPARE(text.take("\xa9\n"), std::string("caf\xc3\xa9\n"));
        QVERIFY(text.take(std::string(1 << 20, 'x')).size() == 1 << 20);
        QVERIFY(text.flush().empty());
    }
};

QTEST_GUILESS_MAIN(RemoteCliTest)
#include "remote_cli_test.moc"
