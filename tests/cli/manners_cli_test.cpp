// What users of other command lines expect: ranks that add up, directories that are made, "~", slips that are
// understood, help in two lengths, colors, logs, completions, the forms of CI systems.
#include <QDir>
#include <QFile>
#include <QFileInfo>
#include <QProcess>
#include <QRegularExpression>
#include <QTemporaryDir>
#include <QTemporaryFile>
#include <QTest>
#include <set>

#include <fcntl.h>
#include <unistd.h>

#include "cli/progress.h"
#include "cli/run_shardscope.h"

using namespace shardscope::test;
using nlohmann::json;

namespace {

bool holds(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

QStringList linesOf(const std::string& text) {
    return QString::fromStdString(text).split('\n', Qt::SkipEmptyParts);
}

int wordsIn(const std::string& text) {
    return int(QString::fromStdString(text).split(QRegularExpression("\\s+"), Qt::SkipEmptyParts).size());
}

// A variable of the environment that is as it was afterwards.
class Variable {
  public:
    Variable(const char* name, const QByteArray& value) : name_(name), before_(qgetenv(name)) {
        qputenv(name, value);
    }
    ~Variable() { before_.isNull() ? qunsetenv(name_) : qputenv(name_, before_); }
    Variable(const Variable&) = delete;
    Variable& operator=(const Variable&) = delete;

  private:
    const char* const name_;
    const QByteArray before_;
};

// What is written to stderr meanwhile.
class Caught {
  public:
    Caught() : before_(dup(STDERR_FILENO)) {
        QVERIFY(file_.open());
        dup2(file_.handle(), STDERR_FILENO);
    }
    ~Caught() {
        dup2(before_, STDERR_FILENO);
        close(before_);
    }
    std::string text() {
        QFile file(file_.fileName());
        return file.open(QIODevice::ReadOnly) ? file.readAll().toStdString() : std::string();
    }

  private:
    const int before_;
    QTemporaryFile file_;
};

// One float32 and one int64 tensor of two elements.
void writeMixed(const QString& path) {
    const json header{{"weight", {{"dtype", "F32"}, {"shape", {2}}, {"data_offsets", {0, 8}}}},
                      {"ids", {{"dtype", "I64"}, {"shape", {2}}, {"data_offsets", {8, 24}}}}};
    const std::string text = header.dump();
    const auto length = static_cast<uint64_t>(text.size());
    QFile file(path);
    QVERIFY(file.open(QIODevice::WriteOnly));
    file.write(reinterpret_cast<const char*>(&length), sizeof length);
    file.write(text.data(), static_cast<qint64>(length));
    file.write(QByteArray(24, '\0'));
}

}  // namespace

class MannersCliTest : public QObject {
    Q_OBJECT

    static QString dcp(const char* name) {
        return QStringLiteral(SHARDSCOPE_TEST_DATA "/genuine/dcp/%1/ckpt").arg(name);
    }
    const QString sharded_ = dcp("t2.15.0-fsdp2-tp");

  private slots:
    // ------------------------------------------------------------------ ranks

    void ranksAddUp_data() {
        QTest::addColumn<QString>("path");
        for (const char* name : {"t2.15.0-fsdp2-tp", "t2.15.0-fsdp2-adam", "t2.15.0-hsdp", "t2.15.0-pipeline",
                                 "t2.15.0-no-dist", "t2.15.0-idle-rank"})
            QTest::newRow(name) << dcp(name);
    }
    void ranksAddUp() {
        QFETCH(QString, path);
        const json info = runShardscope({"info", path, "--ranks", "--json"}).json();
        const uint64_t ranks = std::max<uint64_t>(1, info["totals"]["ranks"].get<uint64_t>());
        QCOMPARE(info["ranks"].size(), size_t(ranks));
        uint64_t all = 0;
        for (const json& rank : info["ranks"]) {
            const uint64_t bytes = rank["bytes"];
            all += bytes;
            QCOMPARE(rank["parameter_bytes"].get<uint64_t>() + rank["buffer_bytes"].get<uint64_t>() +
                         rank["optimizer_bytes"].get<uint64_t>() + rank["other_bytes"].get<uint64_t>(),
                     bytes);
            // The tensors of a rank, listed, have the same bytes.
            const json ls =
                runShardscope({"ls", path, "--json", "--rank", QString::number(rank["rank"].get<int>())})
                    .json();
            COMPARE_JSON(ls["rank"]["bytes"], rank["bytes"]);
            COMPARE_JSON(ls["rank"]["chunks"], rank["chunks"]);
            COMPARE_JSON(ls["rank"]["tensors"], rank["tensors"]);
            uint64_t listed = 0;
            for (const json& tensor : ls["tensors"])
                listed += tensor["rank_bytes"].get<uint64_t>();
            QVERIFY(listed >= bytes);  // names of one tensor are listed each
        }
        QVERIFY(all >= info["totals"]["bytes"].get<uint64_t>());
        const QStringList csv = linesOf(runShardscope({"info", path, "--ranks", "--csv"}).out);
        QCOMPARE(csv.size(), qsizetype(ranks) + 1);
        uint64_t inCsv = 0;
        for (const QString& line : csv.mid(1))
            inCsv += line.split(',')[3].toULongLong();
        QCOMPARE(inCsv, all);
    }

    void aRankThatIsNotThere() {
        const Outcome outcome = runShardscope({"ls", sharded_, "--rank", "17", "--json"});
        QCOMPARE(outcome.exitCode, 2);
        COMPARE_JSON(outcome.json()["hint"], json("ranks are 0 to 3"));
        const Outcome there = runShardscope({"ls", sharded_, "--rank", "3"});
        QCOMPARE(there.exitCode, 0);
        QVERIFY2(linesOf(there.out).last().startsWith("rank 3 holds "), there.out.c_str());
        QCOMPARE(runShardscope({"info", sharded_, "--csv"}).exitCode, 2);
    }

    // ------------------------------------------------------------------ directories above what is written

    void parentsAreMade_data() {
        QTest::addColumn<QStringList>("words");
        const QString source = dcp("t2.15.0-no-dist");
        const std::string first = runShardscope({"ls", source, "--json"}).json()["tensors"][0]["name"];
        const QString tensor = QString::fromStdString(first);
        QTest::newRow("convert") << QStringList{"convert", source, "@/out", "--to", "safetensors"};
        QTest::newRow("workers") << QStringList{"convert",     source, "@/out",  "--to",
                                                "safetensors", "--on", "local:2"};
        QTest::newRow("reshard") << QStringList{"reshard", sharded_, "@/out", "--mesh", "tp=2"};
        QTest::newRow("average") << QStringList{"average", source, source, "@/out"};
        QTest::newRow("part") << QStringList{"convert", source, "@/out",    "--to", "dcp",
                                             "--part",  "0/1",  "--finish", "auto"};
        QTest::newRow("extract") << QStringList{"extract", source, tensor, "@/x.npy"};
        QTest::newRow("index") << QStringList{"index", source, "-o", "@/x.ssidx"};
        QTest::newRow("report") << QStringList{"report", source, "-o", "@/x.html"};
    }
    void parentsAreMade() {
        QFETCH(QStringList, words);
        QTemporaryDir directory;
        const QString deep = directory.filePath("a/b/c");
        words.replaceInStrings("@", deep);
        const Outcome outcome = runShardscope(words);
        QVERIFY2(outcome.exitCode == 0, outcome.err.c_str());
        QCOMPARE(QDir(deep).entryList(QDir::AllEntries | QDir::Hidden | QDir::NoDotAndDotDot).size(), 1);
        // In a file nothing can be made.
        words.replaceInStrings(deep, sharded_ + "/.metadata/x");
        QVERIFY(runShardscope(words).exitCode != 0);
    }

    void parentsOfAFailureAreRemoved() {
        QTemporaryDir directory;
        const QString source = dcp("t2.15.0-no-dist"), out = directory.filePath("a/b/out");
        const QStringList words{"convert", source, out, "--to", "safetensors"};
        QVERIFY(QProcess::execute("/bin/sh", QStringList{"-c", "ulimit -f 0; exec \"$0\" \"$@\" 2>/dev/null",
                                                         SHARDSCOPE_PROGRAM} +
                                                 words) != 0);
        QVERIFY(QDir(directory.path()).isEmpty());
        // What was there before, or holds something, stays.
        QVERIFY(QDir(directory.path()).mkpath("a"));
        QVERIFY(QProcess::execute("/bin/sh", QStringList{"-c", "ulimit -f 0; exec \"$0\" \"$@\" 2>/dev/null",
                                                         SHARDSCOPE_PROGRAM} +
                                                 words) != 0);
        QVERIFY(QFileInfo::exists(directory.filePath("a")));
        QVERIFY(!QFileInfo::exists(directory.filePath("a/b")));
        // A request that is refused makes nothing.
        QVERIFY(runShardscope({"convert", source, directory.filePath("c/out"), "--to", "pickle"}).exitCode !=
                0);
        QCOMPARE(runShardscope({"plan", source, directory.filePath("c/out"), "--to", "dcp"}).exitCode, 0);
        QVERIFY(!QFileInfo::exists(directory.filePath("c")));
    }

    // ------------------------------------------------------------------ paths as people write them

    void homesAndFileUrls() {
        QTemporaryDir directory;
        const QString home = directory.filePath("my home");
        QVERIFY(QDir().mkpath(home));
        QVERIFY(QFile::link(dcp("t2.15.0-no-dist"), home + "/ckpt"));
        const Variable variable("HOME", home.toUtf8());
        const std::string there = runShardscope({"info", home + "/ckpt", "--json"}).out;
        QString url = home + "/ckpt";
        url.replace(' ', "%20");
        for (const QString& path : {QStringLiteral("~/ckpt"), "file://" + url, "file://localhost" + url}) {
            const Outcome outcome = runShardscope({"info", path, "--json"});
            QVERIFY2(outcome.exitCode == 0, outcome.out.c_str());
            QCOMPARE(outcome.out, there);
        }
        const Outcome made = runShardscope({"convert", "~/ckpt", "~/new/out", "--to", "safetensors",
                                            "--report=~/new/report.json", "--expect", "~/ckpt"});
        QVERIFY2(made.exitCode == 0, made.err.c_str());
        QVERIFY(QFileInfo::exists(home + "/new/out"));
        QVERIFY(QFileInfo::exists(home + "/new/report.json"));
        // Of no user: a name like any other.
        QCOMPARE(runShardscope({"info", "~no-such-user/x"}).exitCode, 3);
    }

    void otherSchemes_data() {
        QTest::addColumn<QString>("path");
        QTest::addColumn<QString>("says");
        QTest::newRow("unknown") << "abc://bucket/x"
                                 << "s3://, gs://, hf://";
        QTest::newRow("azure") << "az://container/x"
                               << "s3://, gs://, hf://";
        QTest::newRow("another host") << "file://no-such-host/x"
                                      << "ssh://";
        QTest::newRow("zero") << "file:///x%00y"
                              << "file:///";
        QTest::newRow("half") << "file:///x%2"
                              << "file:///";
    }
    void otherSchemes() {
        QFETCH(QString, path);
        QFETCH(QString, says);
        QTemporaryDir directory;
        const QString source = dcp("t2.15.0-no-dist");
        for (const QStringList& words : {QStringList{"info", path},
                                         {"validate", path},
                                         {"convert", path, directory.filePath("out"), "--to", "dcp"},
                                         {"convert", source, path, "--to", "dcp"},
                                         {"index", source, "-o", path}}) {
            const Outcome outcome = runShardscope(words + QStringList{"--json"});
            QVERIFY2(outcome.exitCode == 3, (words.join(' ').toStdString() + outcome.out).c_str());
            COMPARE_JSON(outcome.json()["code"], json("unsupported"));
            const std::string hint = outcome.json()["hint"];
            QVERIFY2(holds(hint, says.toStdString()), hint.c_str());
        }
    }

    // ------------------------------------------------------------------ slips

    void slipsAreUnderstood_data() {
        QTest::addColumn<QStringList>("words");
        QTest::addColumn<QString>("meant");
        const QString source = dcp("t2.15.0-no-dist");
        const auto row = [](const char* name, const QStringList& words, const char* meant) {
            QTest::newRow(name) << words << meant;
        };
        row("verb", {"inf", source}, "did you mean 'info'?");
        row("option in place of a verb", {"--versoin"},
            "no option --versoin comes before a verb (did you mean "
            "'--version'?");
        row("option before its verb", {"--color", "never", "info", source},
            "no option --color comes before a verb");
        row("verb of help", {"help", "convrt"}, "did you mean 'convert'?");
        row("nested verb", {"jobs", "lst"}, "did you mean 'list'?");
        row("option", {"info", source, "--jsn"}, "did you mean '--json'?");
        row("option with a value", {"validate", source, "--levle=values"}, "did you mean '--level'?");
        row("option of a job", {"jobs", "run", "convert", source, "/x", "--mehs", "tp=2"},
            "did you mean '--mesh'?");
        row("option of others", {"info", source, "--weights-only"},
            "it is an option of diff, plan, convert, reshard");
        row("value", {"validate", source, "--level", "value"}, "did you mean 'values'?");
        row("choice", {"convert", source, "/x", "--to", "dcp", "--verify", "ful"}, "did you mean 'full'?");
        row("sort", {"ls", source, "--sort", "byte"}, "did you mean 'bytes'?");
        row("target", {"plan", source, "/x", "--to", "safetensor"}, "did you mean 'safetensors'?");
        row("format", {"info", source, "--format", "dpc"}, "did you mean 'dcp'?");
        row("recipe", {"plan", source, "/x", "--map", "lama-hf-from-megatron"},
            "did you mean 'llama-hf-from-megatron'?");
        row("tensor", {"show", sharded_, "model.fc1.wieght"}, "did you mean 'model.fc1.weight'?");
        row("extracted", {"extract", sharded_, "model.fc1.wieght", "/x.npy"},
            "did you mean 'model.fc1.weight'?");
        row("path", {"info", source + "x"}, "there is no such file or directory (did you mean '");
        row("rule", {"validate", source, "--accept", "file.mising", "--because", "x"},
            "did you mean 'file.missing'?");
    }
    void slipsAreUnderstood() {
        QFETCH(QStringList, words);
        QFETCH(QString, meant);
        const Outcome outcome = runShardscope(words);
        QVERIFY2(outcome.exitCode == 2 || outcome.exitCode == 3, outcome.err.c_str());
        QVERIFY2(holds(outcome.err, meant.toStdString()), outcome.err.c_str());
    }

    // ------------------------------------------------------------------ help

    void helpInTwoLengths() {
        const Outcome help = runShardscope({"help", "convert"}),
                      all = runShardscope({"convert", "--help-all"});
        QCOMPARE(help.exitCode, 0);
        QCOMPARE(help.out, runShardscope({"convert", "--help"}).out);
        QCOMPARE(all.out, runShardscope({"help", "convert", "--all"}).out);
        for (const char* option : {"--tp-dim", "--buckets"}) {
            QVERIFY2(!holds(help.out, option), option);
            QVERIFY2(holds(all.out, option), option);
        }
        QVERIFY(holds(help.out, "--help-all"));
        QCOMPARE(runShardscope({"help"}).out, runShardscope({"--help"}).out);
        QCOMPARE(runShardscope({"-V"}).out, runShardscope({"--version"}).out);
        QVERIFY(holds(runShardscope({"--help-all"}).out, "--tp-dim"));
        // A screen or two for somebody new; nothing is lost in the long one.
        for (const char* verb :
             {"info", "ls", "show", "map", "validate", "latest", "ready", "stats", "watch", "report", "index",
              "digest", "diff", "average", "reshard", "extract", "serve", "plan", "convert"}) {
            const Outcome one = runShardscope({"help", verb});
            QVERIFY2(wordsIn(one.out) <= 350, one.out.c_str());
        }
        for (const char* option : {"--memory", "--threads", "--color", "--strict", "--split"}) {
            QVERIFY2(!holds(help.out, std::string("\n  ") + option), option);
            QVERIFY2(holds(all.out, std::string("\n  ") + option), option);
        }
        // What is hidden works.
        QCOMPARE(runShardscope({"info", sharded_, "--tp-dim", "*=1"}).exitCode, 0);
    }

    void helpFitsTheTerminal_data() {
        QTest::addColumn<int>("columns");
        QTest::addColumn<int>("width");
        QTest::newRow("none") << 0 << 100;
        QTest::newRow("narrow") << 40 << 80;
        QTest::newRow("eighty") << 80 << 80;
        QTest::newRow("wide") << 200 << 120;
    }
    void helpFitsTheTerminal() {
        QFETCH(int, columns);
        QFETCH(int, width);
        const Variable variable("COLUMNS", columns ? QByteArray::number(columns) : QByteArray());
        int longest = 0;
        for (const QStringList& words :
             {QStringList{"--help"}, {"convert", "--help-all"}, {"validate", "--help"}}) {
            for (const QString& line : linesOf(runShardscope(words).out)) {
                if (line.startsWith("  ") && line.contains(" shardscope "))
                    continue;  // an example is one line
                QVERIFY2(line.size() <= width, qPrintable(line));
                longest = std::max(longest, int(line.size()));
            }
        }
        QVERIFY(longest > width - 15);
    }

    // ------------------------------------------------------------------ colors

    void colors_data() {
        QTest::addColumn<QByteArrayList>("variables");
        QTest::addColumn<QStringList>("more");
        QTest::addColumn<bool>("colored");
        const QStringList none;
        QTest::newRow("off a terminal") << QByteArrayList{} << none << false;
        QTest::newRow("forced") << QByteArrayList{"FORCE_COLOR=1"} << none << true;
        QTest::newRow("not forced") << QByteArrayList{"FORCE_COLOR=0"} << none << false;
        QTest::newRow("forced in the other way") << QByteArrayList{"CLICOLOR_FORCE=1"} << none << true;
        QTest::newRow("not wanted") << QByteArrayList{"FORCE_COLOR=1", "NO_COLOR=1"} << none << false;
        QTest::newRow("an empty word") << QByteArrayList{"FORCE_COLOR=1", "NO_COLOR="} << none << true;
        QTest::newRow("dumb, forced") << QByteArrayList{"TERM=dumb", "FORCE_COLOR=1"} << none << true;
        QTest::newRow("option") << QByteArrayList{"NO_COLOR=1"} << QStringList{"--color", "always"} << true;
        QTest::newRow("other option")
            << QByteArrayList{"FORCE_COLOR=1"} << QStringList{"--color", "never"} << false;
        QTest::newRow("document") << QByteArrayList{"FORCE_COLOR=1"} << QStringList{"--json"} << false;
    }
    void colors() {
        QFETCH(QByteArrayList, variables);
        QFETCH(QStringList, more);
        QFETCH(bool, colored);
        QStringList words{"-u", "NO_COLOR", "-u", "FORCE_COLOR", "-u", "CLICOLOR_FORCE"};
        for (const QByteArray& variable : variables)
            words += QString::fromUtf8(variable);
        QProcess process;
        process.start("env", words + QStringList{SHARDSCOPE_PROGRAM, "info", sharded_} + more);
        QVERIFY(process.waitForFinished(60'000));
        QCOMPARE(process.exitCode(), 0);
        QCOMPARE(process.readAllStandardOutput().contains("\x1b["), colored);
    }

    // ------------------------------------------------------------------ logs

    void aLogGetsLines() {
        using namespace shardscope;
        Progress progress;
        progress.begin(Progress::Phase::write, 1000);
        progress.add(250);
        const cli::Output output;
        std::string said;
        {
            Caught caught;
            cli::ProgressPrinter printer(output, progress, nullptr, cli::Pace(std::chrono::milliseconds(0)));
            QTRY_VERIFY((said = caught.text(), holds(said, "\n")));
        }
        const QStringList lines = linesOf(said);
        static const QRegularExpression form("^write +25 %  250 B of 1000 B  .*/s  .* left$");
        QVERIFY2(form.match(lines[0]).hasMatch(), said.c_str());
        QVERIFY(!holds(said, "\x1b") && !holds(said, "\r"));
        // Not before its time, and not where nothing is wanted.
        for (const auto mode : {cli::ProgressMode::automatic, cli::ProgressMode::none}) {
            Caught caught;
            cli::Output other;
            other.progress = mode;
            {
                const cli::Pace pace(mode == cli::ProgressMode::none ? std::chrono::milliseconds(0)
                                                                     : std::chrono::hours(1));
                cli::ProgressPrinter printer(other, progress, nullptr, pace);
                QTest::qWait(300);
            }
            QCOMPARE(caught.text(), std::string());
        }
    }

    void oneLineForEachReason() {
        QTemporaryDir directory;
        const Outcome outcome = runShardscope(
            {"convert", dcp("t2.15.0-fsdp2-adam"), directory.filePath("out"), "--to", "safetensors"});
        QCOMPARE(outcome.exitCode, 0);
        const json plan = runShardscope({"plan", dcp("t2.15.0-fsdp2-adam"), directory.filePath("out2"),
                                         "--to", "safetensors", "--json"})
                              .json();
        std::set<std::string> reasons;
        for (const json& entry : plan["left_out"])
            reasons.insert(entry["why"]);
        QVERIFY(plan["left_out"].size() > reasons.size());
        size_t lines = 0;
        for (const QString& line : linesOf(outcome.err))
            lines += line.startsWith("left out: ");
        QCOMPARE(lines, reasons.size());
        QVERIFY2(holds(outcome.err, " more: "), outcome.err.c_str());
    }

    // ------------------------------------------------------------------ completions

    void bashCompletesValues_data() {
        QTest::addColumn<QString>("words");
        QTest::addColumn<QStringList>("all");
        QTest::newRow("verb") << "conv" << QStringList{"convert"};
        QTest::newRow("level") << "validate x --level " << QStringList{"files", "metadata", "values"};
        QTest::newRow("verify") << "convert a b --verify f" << QStringList{"full"};
        QTest::newRow("equals") << "convert a b --verify = f" << QStringList{"full"};
        QTest::newRow("to") << "convert a b --to safe" << QStringList{"safetensors"};
        QTest::newRow("progress") << "info x --progress " << QStringList{"auto", "bar", "json", "none"};
        QTest::newRow("recipe") << "convert a b --map gpt2-"
                                << QStringList{"gpt2-hf-from-megatron", "gpt2-megatron-from-hf"};
        QTest::newRow("help") << "help vali" << QStringList{"validate"};
        QTest::newRow("nested") << "jobs att" << QStringList{"attach"};
        QTest::newRow("form") << "validate x --output-format s" << QStringList{"sarif"};
        QTest::newRow("rule") << "validate x --accept file.mi" << QStringList{"file.missing"};
    }
    void bashCompletesValues() {
        QFETCH(QString, words);
        QFETCH(QStringList, all);
        QTemporaryDir empty;
        QProcess process;
        process.setWorkingDirectory(empty.path());
        process.start("bash", QStringList{"-c",
                                          "source <(\"$0\" completion bash); COMP_WORDS=(shardscope \"$@\"); "
                                          "COMP_CWORD=$#; _shardscope; printf '%s\\n' \"${COMPREPLY[@]}\"",
                                          SHARDSCOPE_PROGRAM} +
                                  words.split(' '));
        if (!process.waitForStarted()) QSKIP("bash is not installed");
        QVERIFY(process.waitForFinished(60'000));
        QStringList found =
            QString::fromUtf8(process.readAllStandardOutput()).split('\n', Qt::SkipEmptyParts);
        found.sort();
        QCOMPARE(found, all);
    }

    // ------------------------------------------------------------------ CI

    void formsOfCi() {
        const QString damaged = dcp("t2.15.0-damaged-truncated-file");
        const auto as = [&](const char* form) {
            return runShardscope({"validate", damaged, "--no-accepted", "--output-format", form});
        };
        const json found = runShardscope({"validate", damaged, "--no-accepted", "--json"}).json();
        size_t counted = 0;
        for (const json& finding : found["findings"])
            counted += finding["severity"] != "info";
        QVERIFY(counted > 0);

        const Outcome github = as("github");
        QCOMPARE(github.exitCode, 1);
        QCOMPARE(size_t(linesOf(github.out).size()), counted);
        static const QRegularExpression command("^::(error|warning) file=[^,]+,title=[a-z.]+::.+$");
        for (const QString& line : linesOf(github.out))
            QVERIFY2(command.match(line).hasMatch(), qPrintable(line));
        QVERIFY2(holds(github.out, ".distcp,title=file.truncated::"), github.out.c_str());

        const Outcome sarif = as("sarif");
        QCOMPARE(sarif.exitCode, 1);
        const json run = sarif.json()["runs"][0];
        COMPARE_JSON(sarif.json()["version"], json("2.1.0"));
        COMPARE_JSON(run["tool"]["driver"]["name"], json("shardscope"));
        QCOMPARE(run["results"].size(), found["findings"].size());
        for (const json& result : run["results"]) {
            const json& rule = run["tool"]["driver"]["rules"][result["ruleIndex"].get<size_t>()];
            COMPARE_JSON(rule["id"], result["ruleId"]);
            QVERIFY(!rule["help"]["text"].get<std::string>().empty());
            const std::string uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"];
            QVERIFY2(holds(uri, "t2.15.0-damaged-truncated-file/ckpt"), uri.c_str());
        }

        const json gitlab = as("gitlab").json();
        QCOMPARE(gitlab.size(), counted);
        std::set<std::string> prints;
        for (const json& issue : gitlab) {
            prints.insert(issue["fingerprint"]);
            QVERIFY(issue["location"]["lines"]["begin"] == 1);
        }
        QCOMPARE(prints.size(), counted);

        QCOMPARE(as("junit").out, runShardscope({"report", damaged, "--no-accepted", "--as", "junit"}).out);
        COMPARE_JSON(as("json").json(), found);
        QCOMPARE(as("text").out, runShardscope({"validate", damaged, "--no-accepted"}).out);
        QCOMPARE(runShardscope({"report", damaged, "--no-accepted", "--as", "sarif"}).out, sarif.out);
        QCOMPARE(runShardscope({"validate", dcp("t2.15.0-no-dist"), "--output-format", "github"}).out,
                 std::string());
    }

    // Each step of a run stands in the same document.
    void formsOfRuns() {
        QTemporaryDir directory;
        const QString run = directory.filePath("run");
        QVERIFY(QDir().mkpath(run));
        QVERIFY(QProcess::execute("cp", {"-r", dcp("t2.15.0-no-dist"), run + "/step-1"}) == 0);
        QVERIFY(QProcess::execute("cp", {"-r", dcp("t2.15.0-damaged-truncated-file"), run + "/step-2"}) == 0);
        const Outcome github = runShardscope({"validate", run, "--output-format", "github"});
        QCOMPARE(github.exitCode, 1);
        QVERIFY2(holds(github.out, "step-2/") && !holds(github.out, "step-1/"), github.out.c_str());
        const Outcome junit = runShardscope({"validate", run, "--output-format", "junit"});
        QCOMPARE(QString::fromStdString(junit.out).count("<testsuite "), 2);
        QCOMPARE(runShardscope({"validate", run, "--output-format", "sarif"}).json()["runs"].size(),
                 size_t(1));
        const Outcome report = runShardscope({"report", run, "--as", "junit"});
        QCOMPARE(report.exitCode, 0);
        QCOMPARE(report.out, junit.out);
        COMPARE_JSON(runShardscope({"report", run, "--as", "json"}).json()["schema"],
                     json("shardscope.run/1"));
    }

    // ------------------------------------------------------------------ --dtype

    void dtypeOfManyIsOfFloats() {
        QTemporaryDir directory;
        const QString source = directory.filePath("mixed.safetensors");
        writeMixed(source);
        int n = 0;
        for (const char* rule : {"*=bf16", "re:.*=bf16"}) {
            const QString out = directory.filePath(QString::number(n++) + ".safetensors");
            const Outcome outcome = runShardscope({"convert", source, out, "--dtype", rule});
            QVERIFY2(outcome.exitCode == 0, outcome.err.c_str());
            QVERIFY2(holds(outcome.err,
                           "--dtype changes floating-point tensors only and leaves 1 other tensor: ids"),
                     outcome.err.c_str());
            const json tensors = runShardscope({"ls", out, "--json"}).json()["tensors"];
            for (const json& tensor : tensors)
                COMPARE_JSON(tensor["dtype"], json(tensor["name"] == "ids" ? "int64" : "bfloat16"));
            const json plan =
                runShardscope({"plan", source, out + "x", "--to", "safetensors", "--dtype", rule, "--json"})
                    .json();
            QCOMPARE(plan["notes"].size(), size_t(1));
        }
        // What is asked for by name is done or refused.
        QCOMPARE(
            runShardscope({"plan", source, directory.filePath("x"), "--to", "dcp", "--dtype", "ids=bf16"})
                .exitCode,
            5);
    }
};

QTEST_GUILESS_MAIN(MannersCliTest)
#include "manners_cli_test.moc"
