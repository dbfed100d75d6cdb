// The manners of the program: help, exit codes, JSON errors, what it says about things that are no
// checkpoints.
#include <QDir>
#include <QFile>
#include <QFileInfo>
#include <QProcess>
#include <QTemporaryDir>
#include <QTest>

#include <sys/stat.h>

#include "cli/run_shardscope.h"

using namespace shardscope::test;
using nlohmann::json;

class UsageCliTest : public QObject {
    Q_OBJECT

    static QString dcp(const char* name) {
        return QStringLiteral(SHARDSCOPE_TEST_DATA "/genuine/dcp/%1/ckpt").arg(name);
    }

  private slots:
    void everyVerbHelpsWithAnExample_data() {
        QTest::addColumn<QString>("verb");
        for (const char* verb :
             {"info",   "ls",         "show",    "map",     "validate", "digest",  "diff",
              "plan",   "convert",    "reshard", "extract", "formats",  "recipes", "schema",
              "doctor", "completion", "report",  "index",   "jobs",     "cleanup"}) {
            QTest::newRow(verb) << QString(verb);
        }
    }
    void everyVerbHelpsWithAnExample() {
        QFETCH(QString, verb);
        const Outcome help = runShardscope({verb, "--help"});
        QCOMPARE(help.exitCode, 0);
        QVERIFY(help.out.find("Example") != std::string::npos);
        QVERIFY(help.out.find("shardscope " + verb.toStdString()) != std::string::npos ||
                help.out.find("shardscope completion") != std::string::npos);
    }

    // A newcomer has no checkpoint: the program brings one, which has all that the verbs show.
    void sampleStandsForAPath() {
        QTemporaryDir state;
        qputenv("XDG_STATE_HOME", state.path().toLocal8Bit());
        const Outcome info = runShardscope({"info", "--sample", "--json"});
        QCOMPARE(info.exitCode, 0);
        const json said = json::parse(info.out);
        const QString path = QString::fromStdString(said["path"]);
        QVERIFY2(path.startsWith(state.path()), qPrintable(path));
        QCOMPARE(said["totals"]["ranks"].get<int>(), 4);
        QCOMPARE(runShardscope({"validate", "--level", "values", "--sample"}).exitCode, 0);
        QVERIFY(runShardscope({"ls", "--sample", "optim.*"}).out.find("exp_avg") != std::string::npos);
        QCOMPARE(runShardscope({"convert", "--sample", state.filePath("model"), "--to", "safetensors",
                                "--weights-only"})
                     .exitCode,
                 0);
        QCOMPARE(runShardscope({"diff", "--sample", state.filePath("model"), "--weights-only", "--values"})
                     .exitCode,
                 0);

        // What somebody did to it does not stay.
        QFile file(path + "/__1_0.distcp");
        QVERIFY(file.open(QIODevice::ReadWrite));
        file.seek(9000);
        file.write("damage");
        file.close();
        QVERIFY(QFile::remove(path + "/.metadata"));
        QCOMPARE(runShardscope({"diff", "--sample", state.filePath("model"), "--weights-only", "--values"})
                     .exitCode,
                 0);

        QVERIFY(runShardscope({"recipes", "--sample"}).err.find("no option --sample") != std::string::npos);
        qputenv("XDG_STATE_HOME", "/dev/null");
        const Outcome nowhere = runShardscope({"info", "--sample"});
        QVERIFY(nowhere.exitCode > 2 && nowhere.err.find("set XDG_STATE_HOME") != std::string::npos);
        qunsetenv("XDG_STATE_HOME");
    }

    // The window is beside the program, else in PATH, else it is said where to get it.
    void guiBecomesTheWindow() {
        QTemporaryDir place;
        const QString program = place.filePath("shardscope"), other = place.filePath("bin");
        QVERIFY(QFile::copy(SHARDSCOPE_PROGRAM, program) && QDir().mkpath(other));
        const auto say = [&] {
            QProcess process;
            QProcessEnvironment environment = QProcessEnvironment::systemEnvironment();
            environment.insert("PATH", other);
            process.setProcessEnvironment(environment);
            process.setProcessChannelMode(QProcess::MergedChannels);
            process.start(program, {"gui", "a", "--b"});
            return process.waitForFinished(60'000) ? process.readAll() : QByteArray("it did not end");
        };
        const auto makeWindow = [](const QString& path, const char* name) {
            QFile file(path);
            QVERIFY(file.open(QIODevice::WriteOnly));
            file.write(QByteArray("#!/bin/sh\necho ") + name + " \"$@\"\n");
            QVERIFY(file.setPermissions(QFile::ReadOwner | QFile::WriteOwner | QFile::ExeOwner));
        };
        QVERIFY(say().contains("install the .deb or the portable archive"));
        makeWindow(other + "/shardscope-gui", "of PATH");
        QCOMPARE(say(), QByteArray("of PATH a --b\n"));
        makeWindow(place.filePath("shardscope-gui"), "beside");
        QCOMPARE(say(), QByteArray("beside a --b\n"));
    }

    void anIndexStandsForItsCheckpoint() {
        QTemporaryDir directory;
        const QString source = dcp("t2.15.0-fsdp2-tp"), file = directory.filePath("a.ssidx");
        const Outcome made = runShardscope({"index", source, "-o", file, "--json"});
        QCOMPARE(made.exitCode, 0);
        COMPARE_JSON(made.json()["schema"], json("shardscope.index/1"));
        QVERIFY(made.json()["bytes"] == QFileInfo(file).size());
        for (const QStringList& how :
             {QStringList{"info"}, {"ls", "--chunks"}, {"map"}, {"validate", "--level", "metadata"}}) {
            QStringList there = how, here = how;
            there.insert(1, source);
            here.insert(1, file);
            if (how[0] == "map") {
                QCOMPARE(runShardscope(here).out, runShardscope(there).out);
                continue;
            }
            json direct = runShardscope(there << "--json").json(),
                 indexed = runShardscope(here << "--json").json();
            for (json* answer : {&direct, &indexed}) {
                answer->erase("path");
                answer->erase("data_elsewhere");
            }
            COMPARE_JSON(indexed, direct);
        }
        QCOMPARE(runShardscope({"diff", file, source}).exitCode, 0);
        QCOMPARE(runShardscope({"plan", file, directory.filePath("out"), "--to", "safetensors"}).exitCode, 0);
        for (const QStringList& needsData :
             {QStringList{"validate", file},
              {"digest", file},
              {"validate", file, "--level", "values"},
              {"convert", file, directory.filePath("out"), "--to", "safetensors"}}) {
            const Outcome refused = runShardscope(needsData);
            QCOMPARE(refused.exitCode, 3);
            QVERIFY2(refused.err.find("not here") != std::string::npos, refused.err.c_str());
        }
        QVERIFY(!QFileInfo::exists(directory.filePath("out")));
        QVERIFY(runShardscope({"index", source, "-o", file}).exitCode != 0);  // it is there
        QCOMPARE(runShardscope({"index", source, "-o", file, "--overwrite"}).exitCode, 0);
        QCOMPARE(runShardscope({"index", source, "-o", source + "/inside.ssidx"}).exitCode, 2);
    }

    void usageErrorsAreExitTwo() {
        QCOMPARE(runShardscope({}).exitCode, 2);
        QCOMPARE(runShardscope({"frobnicate"}).exitCode, 2);
        QCOMPARE(runShardscope({"info"}).exitCode, 2);
        QCOMPARE(runShardscope({"ls", "x", "--sort", "color"}).exitCode, 2);
        const Outcome error = runShardscope({"ls", "x", "--frobnicate", "--json"});
        QCOMPARE(error.exitCode, 2);
        COMPARE_JSON(error.json()["schema"], json("shardscope.error/1"));
        COMPARE_JSON(error.json()["code"], json("usage"));
        QCOMPARE(runShardscope({"convert", dcp("t2.15.0-no-dist"), "/tmp/never", "--to", "pickle"}).exitCode,
                 2);
        QCOMPARE(runShardscope(
                     {"convert", dcp("t2.15.0-no-dist"), "/tmp/never", "--to", "dcp", "--mesh", "tp=zero"})
                     .exitCode,
                 2);
        QCOMPARE(runShardscope(
                     {"convert", dcp("t2.15.0-no-dist"), "/tmp/never", "--to", "dcp", "--shard", "*:tp=0"})
                     .exitCode,
                 2);
        QCOMPARE(runShardscope({"convert", dcp("t2.15.0-no-dist"), "/tmp/never", "--to", "dcp", "--mesh",
                                "tp=2", "--shard", "*:dp=0"})
                     .exitCode,
                 2);
    }

    // The words that stand for rules of frameworks are rules of the plan, as one by one.
    void presetsShard() {
        const auto plan = [](QStringList rules, const char* mesh) {
            QStringList words{"plan",       SHARDSCOPE_TEST_DATA "/../../resources/sample/dcp-fsdp2-tp",
                              "/tmp/never", "--to",
                              "dcp",        "--mesh",
                              mesh,         "--json"};
            for (const QString& rule : rules)
                words << "--shard" << rule;
            return runShardscope(words);
        };
        const Outcome both = plan({"tensor-parallel", "fsdp:dp"}, "dp=2,tp=2");
        QVERIFY2(both.exitCode == 0, both.out.c_str());
        const int64_t chunks = both.json()["chunks"], whole = plan({"*:dp=0"}, "dp=2,tp=2").json()["chunks"];
        QVERIFY2(chunks > whole, both.out.c_str());
        const Outcome wrong = plan({"tensor-parallel"}, "dp=2");
        QCOMPARE(wrong.exitCode, 2);
        QVERIFY2(wrong.out.find("tp") != std::string::npos, wrong.out.c_str());
    }

    void notACheckpoint_data() {
        QTest::addColumn<QByteArray>("content");
        QTest::addColumn<QString>("says");
        QTest::newRow("git-lfs") << QByteArray(
                                        "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n")
                                 << "git-lfs";
        QTest::newRow("html") << QByteArray("<!DOCTYPE html><html></html>") << "HTML";
        QTest::newRow("empty") << QByteArray() << "empty";
        QTest::newRow("zeros") << QByteArray(4096, '\0') << "zero";
    }
    // The message of a wrong word names the right ones.
    void wrongWordsAreNamed_data() {
        QTest::addColumn<QStringList>("words");
        QTest::addColumn<QString>("says");
        QTest::newRow("verb") << QStringList{"frobnicate"} << "'frobnicate' is not a verb";
        QTest::newRow("level") << QStringList{"validate", "x", "--level", "all"}
                               << "all not in {files,metadata,values}";
        QTest::newRow("io") << QStringList{"digest", "x", "--io", "fast"}
                            << "fast not in {auto,buffered,direct}";
        QTest::newRow("verify") << QStringList{"convert", "x", "y", "--verify", "yes"}
                                << "yes not in {checksums,digest,full,none}";
        QTest::newRow("rank") << QStringList{"ls", "x", "--rank", "-1"} << "-1 not in range 0 to 4294967294";
        for (const char* format : {"safetensors", "colossalai", "paddle", "torch-ranks", "tensor-parallel"})
            QTest::addRow("variant of %s", format)
                << QStringList{"convert", dcp("t2.15.0-no-dist"), "/tmp/never", "--to", format, "--variant",
                               "nonsense"}
                << "'nonsense' is not a variant of";
    }
    void wrongWordsAreNamed() {
        QFETCH(QStringList, words);
        QFETCH(QString, says);
        const Outcome error = runShardscope(words);
        QCOMPARE(error.exitCode, 2);
        QVERIFY2(error.err.find(says.toStdString()) != std::string::npos, error.err.c_str());
    }

    void everyVerbThatOpensTakesProgress() {
        for (const char* verb : {"info", "ls", "map"})
            QCOMPARE(runShardscope({verb, dcp("t2.15.0-no-dist"), "--progress", "none"}).exitCode, 0);
    }

    // An answer that did not arrive is a failure, also when it was flushed on the way.
    void fullOutput() {
        for (const QStringList& words : {QStringList{"ls"}, {"ls", "--json"}, {"info", "--json"}}) {
            const QStringList all = QStringList{words[0], dcp("t2.15.0-no-dist")} + words.mid(1);
            QCOMPARE(runShardscopeInto("/dev/full", all).exitCode, 4);
        }
    }

    // Daemons and batch systems may close what nobody reads; only an answer that was to be heard is missed.
    void closedStreams() {
        QTemporaryDir directory;
        const QString source = dcp("t2.15.0-no-dist"), out = directory.filePath("out");
        const auto run = [&](const char* closed, const QStringList& words) {
            return QProcess::execute(
                "/bin/sh",
                QStringList{"-c", QStringLiteral("exec \"$0\" \"$@\" ") + closed, SHARDSCOPE_PROGRAM} +
                    words);
        };
        QCOMPARE(run("<&- >&- 2>&-", {"info", source}), 0);
        QCOMPARE(run("<&- >&- 2>&-", {"convert", source, out, "--to", "dcp"}), 0);
        QCOMPARE(runShardscope({"diff", source, out, "--values"}).exitCode, 0);
        QCOMPARE(run(">&- 2>&-", {"info", "/nowhere"}), 3);
        QCOMPARE(run("2>&-", {"info", source}), 0);
        QCOMPARE(run(">&-", {"info", source}), 4);
    }

    // Fewer threads do as well.
    void threadsThatCannotBeStarted() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
        QSKIP("a sanitizer needs the address space");
#endif
        QTemporaryDir directory;
        const QStringList words{"-c",
                                "ulimit -v 400000; exec \"$0\" \"$@\"",
                                SHARDSCOPE_PROGRAM,
                                "convert",
                                dcp("t2.15.0-no-dist"),
                                directory.filePath("out"),
                                "--to",
                                "dcp",
                                "--threads",
                                "256"};
        QCOMPARE(QProcess::execute("/bin/sh", words), 0);
        QVERIFY(QFileInfo::exists(directory.filePath("out")));
    }

    // Time is linear in the length of a name.
    void longNames() {
        QTemporaryDir directory;
        const QString file = directory.filePath("long.safetensors");
        const json header{
            {std::string(1'000'000, 'n'), {{"dtype", "U8"}, {"shape", {1}}, {"data_offsets", {0, 1}}}}};
        const std::string text = header.dump();
        const auto length = static_cast<uint64_t>(text.size());
        QFile out(file);
        QVERIFY(out.open(QIODevice::WriteOnly));
        out.write(reinterpret_cast<const char*>(&length), sizeof length);
        out.write(text.data(), static_cast<qint64>(length));
        out.write("x", 1);
        out.close();
        for (const char* verb : {"map", "ls", "info"})
            QCOMPARE(runShardscope({verb, file}, 30'000).exitCode, 0);
    }

    // Documents go to terminals, too: what nobody sees, or what turns text around, is escaped.
    void documentsHoldNothingInvisible() {
        QTemporaryDir directory;
        const QString file = directory.filePath("cut.safetensors");
        const std::string name = "a\xe2\x80\xae\x7f\xf3\xa0\x80\x81z";
        const json header{{name, {{"dtype", "U8"}, {"shape", {9}}, {"data_offsets", {0, 9}}}}};
        const std::string text = header.dump();
        const auto length = static_cast<uint64_t>(text.size());
        QFile out(file);
        QVERIFY(out.open(QIODevice::WriteOnly));
        out.write(reinterpret_cast<const char*>(&length), sizeof length);
        out.write(text.data(), static_cast<qint64>(length));
        out.close();
        for (const QStringList& words : {QStringList{"validate", file, "--json"},
                                         {"report", file, "--as", "json"},
                                         {"report", file, "--as", "junit"},
                                         {"report", file},
                                         {"ls", file, "--json"},
                                         {"validate", file}}) {
            const std::string said = runShardscope(words).out;
            QVERIFY2(said.find("\xe2\x80\xae") == std::string::npos && said.find('\x7f') == std::string::npos,
                     said.c_str());
        }
        COMPARE_JSON(runShardscope({"ls", file, "--json"}).json()["tensors"][0]["name"], json(name));
    }

    // An index is made to be sent around: rules and dtypes in it are whatever its maker wrote.
    void anIndexIsShownAsText() {
        const QString index = QStringLiteral(SHARDSCOPE_TEST_DATA "/index/hostile-names.ssidx");
        for (const QStringList& words : {QStringList{"info", index},
                                         {"validate", index, "--level", "metadata"},
                                         {"report", index},
                                         {"ls", index},
                                         {"map", index}}) {
            const Outcome outcome = runShardscope(words);
            QVERIFY2((outcome.out + outcome.err).find('\x1b') == std::string::npos, outcome.out.c_str());
        }
    }

    // Files beside the answer: never inside the checkpoint; what cannot be made is the output's fault.
    void outputsBesideTheAnswer() {
        QTemporaryDir directory;
        const QString source = directory.filePath("source"), destination = directory.filePath("out");
        QVERIFY(QProcess::execute("cp", {"-r", dcp("t2.15.0-no-dist"), source}) == 0);
        const std::string first = runShardscope({"ls", source, "--json"}).json()["tensors"][0]["name"];
        const QString tensor = QString::fromStdString(first);
        const QStringList before = QDir(source).entryList(QDir::Files | QDir::Hidden);
        const auto words = [&](const QString& where) {
            return std::vector<QStringList>{
                {"report", source, "--output", where},
                {"index", source, "-o", where},
                {"extract", source, tensor, where},
                {"convert", source, destination, "--to", "safetensors", "--report", where},
                {"convert", source, destination, "--to", "safetensors", "--objects", where + ".pt"}};
        };
        for (const QStringList& inside : words(source + "/x"))
            QCOMPARE(runShardscope(inside).exitCode, 2);
        for (const QStringList& nowhere : words("/proc/missing/x"))
            QCOMPARE(runShardscope(nowhere).exitCode, 4);
        QCOMPARE(QDir(source).entryList(QDir::Files | QDir::Hidden), before);
        QVERIFY(!QFileInfo::exists(destination));
        QCOMPARE(runShardscope({"report", source, "--output", "/dev/null"}).exitCode, 0);
    }

    // What a user names is a file: nothing is waited for, or read without end.
    void namedInputsAreFiles() {
        QTemporaryDir directory;
        const QString pipe = directory.filePath("pipe"), out = directory.filePath("out");
        QCOMPARE(::mkfifo(pipe.toUtf8().constData(), 0600), 0);
        const QString source = dcp("t2.15.0-no-dist");
        for (const QString& named : {pipe, QStringLiteral("/dev/zero"), directory.path()}) {
            QCOMPARE(runShardscope({"plan", source, out, "--to", "dcp", "--map", named}, 20'000).exitCode, 3);
            QCOMPARE(runShardscope({"average", source, source, out, "--weights", named}, 20'000).exitCode, 3);
        }
    }

    void notACheckpoint() {
        QFETCH(QByteArray, content);
        QFETCH(QString, says);
        QTemporaryDir directory;
        for (const char* name : {"model.bin", "model.safetensors", "model.pt"}) {
            QFile file(directory.filePath(name));
            QVERIFY(file.open(QIODevice::WriteOnly));
            file.write(content);
            file.close();
            const Outcome info = runShardscope({"info", file.fileName(), "--json"});
            QCOMPARE(info.exitCode, 3);
            COMPARE_JSON(info.json()["schema"], json("shardscope.error/1"));
            const Outcome text = runShardscope({"info", file.fileName()});
            QCOMPARE(text.exitCode, 3);
            QVERIFY2(QString::fromStdString(text.err).contains(says, Qt::CaseInsensitive), text.err.c_str());
            QVERIFY(text.out.empty());
        }
    }

    void missingPathIsExitThree() {
        const Outcome info = runShardscope({"info", "/nonexistent/checkpoint", "--json"});
        QCOMPARE(info.exitCode, 3);
        COMPARE_JSON(info.json()["code"], json("not-found"));
    }

    void infoFields() {
        const Outcome info = runShardscope({"info", dcp("t2.15.0-fsdp2-tp"), "--json"});
        QCOMPARE(info.exitCode, 0);
        const json j = info.json();
        COMPARE_JSON(j["schema"], json("shardscope.info/1"));
        COMPARE_JSON(j["format"], json("dcp"));
        COMPARE_JSON(j["totals"]["tensors"], json(18));
        COMPARE_JSON(j["totals"]["ranks"], json(4));
        QVERIFY(j["mesh"].is_object());
        QVERIFY(!j["mesh"]["evidence"].empty());
        for (const char* key : {"tensors", "parameters", "bytes", "chunks", "objects", "files", "ranks"})
            QVERIFY(j["totals"].contains(key));
    }

    void mapAndShowAndCompletion() {
        QVERIFY(runShardscope({"map", dcp("t2.15.0-fsdp2-tp")}).out.find("▂") != std::string::npos);
        QVERIFY(runShardscope({"map", dcp("t2.15.0-fsdp2-tp"), "--ascii"}).out.find("#") !=
                std::string::npos);
        const Outcome mesh = runShardscope({"map", dcp("t2.15.0-fsdp2-tp"), "--mesh"});
        QCOMPARE(mesh.out.substr(0, mesh.out.find('\n')), std::string("fsdp 2 × tp 2, inferred"));
        QVERIFY(mesh.out.find("\n  fsdp1 ") != std::string::npos);
        QCOMPARE(runShardscope({"map", dcp("t2.15.0-no-dist"), "--mesh"}).exitCode, 3);
        QCOMPARE(runShardscope({"map", dcp("t2.15.0-fsdp2-tp"), "-o", "x.svg"}).exitCode,
                 2);  // of --mesh and --as-if
        // As if on another mesh: what a reshard to it plans, and nothing is written.
        const QString sharded = dcp("t2.15.0-fsdp2-tp");
        const Outcome asIf = runShardscope({"map", sharded, "--as-if", "tp=4"});
        QVERIFY2(asIf.out.find("as if on tp 4, declared\n") != std::string::npos, asIf.out.c_str());
        QVERIFY(asIf.out.find("4 ranks read") != std::string::npos ||
                asIf.out.find("Each of 4") != std::string::npos);
        const json said = runShardscope({"map", sharded, "--as-if", "tp=4", "--json"}).json();
        const json plan =
            runShardscope({"plan", sharded, "/tmp/never", "--mesh", "tp=4", "--flow", "--json"}).json();
        COMPARE_JSON(said["flow"], plan["flow"]);
        COMPARE_JSON(said["before"], runShardscope({"map", sharded, "--mesh", "--json"}).json());
        uint64_t held = 0, read = 0;
        for (const json& rank : said["after"]["ranks"])
            held += rank["bytes"].get<uint64_t>();
        for (const json& cell : said["flow"]["cells"])
            read += cell[2].get<uint64_t>();
        QCOMPARE(held, read);
        for (const char* wrong : {"tp", "tp=0", "tp=2,tp=2"})
            QCOMPARE(runShardscope({"map", sharded, "--as-if", wrong}).exitCode, 2);
        QCOMPARE(runShardscope({"map", sharded, "--as-if", "tp=2", "--mesh"}).exitCode, 2);
        const Outcome show =
            runShardscope({"show", dcp("t2.15.0-fsdp2-tp"), "model.fc1.weight", "--values", "--json"});
        QCOMPARE(show.exitCode, 0);
        COMPARE_JSON(show.json()["values"]["elements"], json(48));
        QCOMPARE(runShardscope({"show", dcp("t2.15.0-fsdp2-tp"), "no.such"}).exitCode, 3);
        for (const char* shell : {"bash", "zsh", "fish"}) {
            const Outcome script = runShardscope({"completion", shell});
            QCOMPARE(script.exitCode, 0);
            QVERIFY(script.out.find("--weights-only") != std::string::npos ||
                    script.out.find("weights-only") != std::string::npos);
        }
        COMPARE_JSON(runShardscope({"formats", "--json"}).json()["schema"], json("shardscope.formats/1"));
        COMPARE_JSON(runShardscope({"doctor", "--json"}).json()["schema"], json("shardscope.doctor/1"));
    }
};

QTEST_GUILESS_MAIN(UsageCliTest)
#include "usage_cli_test.moc"
