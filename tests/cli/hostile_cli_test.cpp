// Bad input: every variant of tests/data/hostile through the program. Nothing may crash, hang, take memory
// without bound, run anything or write anything.
#include <QDir>
#include <QDirIterator>
#include <QFile>
#include <QProcess>
#include <QStandardPaths>
#include <QTemporaryDir>
#include <QTest>
#include <filesystem>
#include <set>

#include <sys/stat.h>

#include "cli/measured_process.h"

using namespace shardscope::test;
using nlohmann::json;

namespace {

std::string listed(const json& names) {
    std::string text;
    for (const json& name : names)
        text += (text.empty() ? "" : ", ") + name.get<std::string>();
    return text;
}

bool contains(const json& list, const json& value) {
    return std::find(list.begin(), list.end(), value) != list.end();
}

// Control characters in messages could rewrite the terminal; a message is one line.
bool isPrintable(const std::string& text) {
    return std::none_of(text.begin(), text.end(),
                        [](char c) { return (static_cast<unsigned char>(c) < 0x20) || c == 0x7f; });
}

// What is in a directory: names, sizes, times.
std::string stateOf(const QString& path) {
    std::string state;
    QDirIterator entries(path, QDir::AllEntries | QDir::Hidden | QDir::System | QDir::NoDotAndDotDot);
    size_t count = 0;
    while (entries.hasNext() && ++count < 1000) {
        entries.next();
        state += entries.fileName().toStdString() + " " + std::to_string(entries.fileInfo().size()) + "\n";
    }
    return state;
}

// On disk: a hole is not read.
qint64 bytesIn(const QString& path) {
    qint64 bytes = 0;
    std::error_code ignored;
    const auto add = [&](const std::filesystem::path& file) {
        struct stat status {};
        if (lstat(file.c_str(), &status) == 0) bytes += qint64{status.st_blocks} * 512;
    };
    add(QFile::encodeName(path).toStdString());
    for (std::filesystem::recursive_directory_iterator it(QFile::encodeName(path).toStdString(), ignored),
         end;
         it != end; it.increment(ignored))
        add(it->path());
    return bytes;
}

}  // namespace

class HostileCliTest : public QObject {
    Q_OBJECT

    QTemporaryDir corpus_, aside_;
    QString marker_;
    json manifest_, answers_;

    MeasuredOptions options() const {
        MeasuredOptions o;
        o.workingDirectory = aside_.filePath("work").toStdString();
        o.temporaryDirectory = aside_.filePath("tmp").toStdString();
        return o;
    }

  private slots:
    void initTestCase() {
        const QString python = QStandardPaths::findExecutable("python3");
        if (python.isEmpty()) QSKIP("python3 is not installed: the bad inputs cannot be made");
        QVERIFY(corpus_.isValid() && aside_.isValid());
        QVERIFY(QDir(aside_.path()).mkdir("work") && QDir(aside_.path()).mkdir("tmp"));
        marker_ = aside_.filePath("something-was-run");
        QProcess generator;
        generator.start(python, {"-B", SHARDSCOPE_TEST_DATA "/hostile/make_hostile.py", corpus_.path(),
                                 "--marker", marker_});
        QVERIFY(generator.waitForFinished(300'000));
        QVERIFY2(generator.exitCode() == 0, generator.readAllStandardError().constData());
        QFile file(corpus_.filePath("manifest.json"));
        QVERIFY(file.open(QIODevice::ReadOnly));
        manifest_ = json::parse(file.readAll().toStdString());
        QVERIFY(manifest_.size() > 300);
        QFile answers(SHARDSCOPE_TEST_DATA "/hostile/answers.json");
        QVERIFY(answers.open(QIODevice::ReadOnly));
        answers_ = json::parse(answers.readAll().toStdString());
        QCOMPARE(answers_.size(), manifest_.size());
    }

    void variant_data() {
        QTest::addColumn<int>("row");
        for (size_t i = 0; i < manifest_.size(); ++i) {
            // Under a sanitizer a file of many megabytes takes a minute, and runs nothing that a smaller one
            // does not.
            const QString path = QString::fromStdString(manifest_[i]["path"]).section('/', 0, 0);
            if (kSanitized && bytesIn(corpus_.filePath(path)) > qint64{2} << 20) continue;
            QTest::newRow(manifest_[i]["id"].get<std::string>().c_str()) << static_cast<int>(i);
        }
    }
    void variant() {
        QFETCH(int, row);
        const json& wanted = manifest_[static_cast<size_t>(row)];
        const std::string expect = wanted["expect"];
        const QString top = corpus_.filePath(QString::fromStdString(wanted["path"]).section('/', 0, 0));
        const std::string path = corpus_.filePath(QString::fromStdString(wanted["path"])).toStdString();
        const std::string level = wanted.value("level", "files");
        const std::string before = stateOf(top);

        // The general contract, for every call.
        std::string said;
        const auto call = [&](const std::vector<std::string>& words, std::vector<int> exitCodes) {
            const Measured run = runMeasured(words, options());
            const std::string story = words[0] + ": " + run.describe();
            said += run.out + run.err;
            if (!QTest::qVerify(run.started && !run.timedOut && run.signal == 0, "ended by itself",
                                story.c_str(), __FILE__, __LINE__))
                return run;
            if (!QTest::qVerify(std::count(exitCodes.begin(), exitCodes.end(), run.exitCode) == 1,
                                "exit code", story.c_str(), __FILE__, __LINE__))
                return run;
            const auto raw = [](char c) {
                return (static_cast<unsigned char>(c) < 0x20 && c != '\n') || c == 0x7f;
            };
            if (!QTest::qVerify(std::none_of(run.out.begin(), run.out.end(), raw) &&
                                    std::none_of(run.err.begin(), run.err.end(), raw),
                                "no control characters", story.c_str(), __FILE__, __LINE__))
                return run;
            if (!kSanitized) {
                if (!QTest::qVerify(run.seconds < wanted.value("seconds", 10.0), "time", story.c_str(),
                                    __FILE__, __LINE__))
                    return run;
                if (!QTest::qVerify(run.peakBytes <= wanted.value("rss_mib", uint64_t{300}) << 20, "memory",
                                    story.c_str(), __FILE__, __LINE__))
                    return run;
            }
            return run;
        };
        const auto failed = [] { return QTest::currentTestFailed(); };
        // An error document: complete, of an accepted code, in words that fit in one line.
        const auto checkError = [&](const json& error) {
            QVERIFY2(error.is_object() && error.value("schema", "") == "shardscope.error/1", said.c_str());
            const std::string message = error.value("message", "");
            QVERIFY2(!message.empty() && message.size() < 2000, said.c_str());
            QVERIFY2(error.contains("file") && error["file"].is_string(), ("no file: " + said).c_str());
            QVERIFY2(error["code"] != "internal", said.c_str());
            if (!wanted["code"].empty()) {
                QVERIFY2(contains(wanted["code"], error["code"]),
                         ("code should be one of " + listed(wanted["code"]) + ": " + said).c_str());
            }
        };

        const Measured info = call({"info", path, "--json"}, {0, 3});
        if (failed()) return;
        const bool opens = info.exitCode == 0;
        // A refusal is the same to every verb; under a sanitizer, where a start takes long, one is asked.
        const bool all = opens || !kSanitized;
        const Measured validate = all ? call({"validate", path, "--level", level, "--json"},
                                             opens ? std::vector<int>{0, 1, 3} : std::vector<int>{3})
                                      : info;
        if (failed()) return;
        const json findings = validate.exitCode == 3 ? json() : validate.json();
        if (!opens) {
            checkError(info.json());
            if (failed()) return;
            if (all) {
                const Measured spoken = call({"info", path}, {3});
                if (failed()) return;
                QVERIFY2(spoken.out.empty() && !spoken.err.empty(), spoken.describe().c_str());
                std::string line = spoken.err;
                if (line.back() == '\n') line.pop_back();
                QVERIFY2(isPrintable(line), ("not one clean line: " + line).c_str());
            }
        } else {
            QVERIFY2(info.json().value("schema", "") == "shardscope.info/1", info.describe().c_str());
            // Under a sanitizer a list of 300,000 takes minutes, and runs nothing that a shorter one does
            // not.
            if (!kSanitized || info.json()["totals"].value("chunks", 0) < 50'000) {
                const Measured ls = call({"ls", path, "--chunks", "--json"}, {0, 3});
                if (failed()) return;
                QVERIFY2(!ls.json().is_discarded(), "ls: no JSON");
            }
            if (validate.exitCode == 3) {
                checkError(validate.json());
            } else {
                QVERIFY2(findings.value("schema", "") == "shardscope.validate/1",
                         validate.describe().c_str());
                QVERIFY2((findings["verdict"] == "unsafe") == (validate.exitCode == 1),
                         validate.describe().c_str());
            }
        }
        if (failed()) return;

        // Exactly what it was found to be: a change of the answer has to be meant.
        std::string answer;
        if (!opens) {
            answer = "refused: " + info.json()["code"].get<std::string>();
        } else if (validate.exitCode == 3) {
            answer = "opens, then refused: " + validate.json()["code"].get<std::string>();
        } else {
            std::set<std::string> errors;
            for (const json& finding : findings["findings"]) {
                if (finding["severity"] == "error") errors.insert(finding["rule"]);
            }
            answer = errors.empty() ? "safe" : "unsafe:";
            for (const std::string& rule : errors)
                answer += " " + rule;
        }
        QCOMPARE(
            QString::fromStdString(answer),
            QString::fromStdString(answers_.value(wanted["id"].get<std::string>(), "not in answers.json")));

        // What this variant in particular must lead to.
        bool ruleFound = false;
        std::string worst = "info";
        if (findings.is_object()) {
            for (const json& finding : findings["findings"]) {
                if (finding["severity"] == "error") worst = "error";
                if (finding["severity"] == "warning" && worst == "info") worst = "warning";
                ruleFound = ruleFound || contains(wanted["rule"], finding["rule"]);
            }
        }
        if (expect == "error") {
            if (wanted.value("opens", false))
                QVERIFY2(opens, ("should open, and show what it found: " + said).c_str());
            QVERIFY2(!opens || validate.exitCode != 0, ("passes as sane: " + validate.describe()).c_str());
            if (opens && validate.exitCode == 1) {
                QVERIFY2(
                    ruleFound,
                    ("findings should be of " + listed(wanted["rule"]) + ": " + validate.describe()).c_str());
            }
        } else if (expect == "warn") {
            QVERIFY2(opens && validate.exitCode == 0 && worst == "warning", said.c_str());
            QVERIFY2(
                wanted["rule"].empty() || ruleFound,
                ("findings should be of " + listed(wanted["rule"]) + ": " + validate.describe()).c_str());
        } else if (expect == "ok") {
            QVERIFY2(opens && validate.exitCode == 0, said.c_str());
        }
        const std::string text = wanted.value("text", "");
        QVERIFY2(said.find(text) != std::string::npos, ("should say '" + text + "': " + said).c_str());

        QVERIFY2(!QFile::exists(marker_), "a call in a pickle was made");
        QCOMPARE(stateOf(top), before);
        QVERIFY(QDir(aside_.filePath("work"))
                    .isEmpty(QDir::AllEntries | QDir::Hidden | QDir::System | QDir::NoDotAndDotDot));
        QVERIFY(QDir(aside_.filePath("tmp"))
                    .isEmpty(QDir::AllEntries | QDir::Hidden | QDir::System | QDir::NoDotAndDotDot));
    }

    void cleanupTestCase() {
        QVERIFY2(!QFile::exists(marker_), "a call in a pickle was made");
        // Qt does not remove files whose names are not UTF-8.
        std::error_code ignored;
        std::filesystem::remove_all(QFile::encodeName(corpus_.path()).toStdString(), ignored);
    }
};

QTEST_GUILESS_MAIN(HostileCliTest)
#include "hostile_cli_test.moc"
