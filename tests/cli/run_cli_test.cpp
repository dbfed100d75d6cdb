// Directories of runs: what `info`, `validate`, `latest` and `watch` say of their steps, and that a step
// which did not change is not read again.
#include <QDateTime>
#include <QDir>
#include <QProcess>
#include <QTemporaryDir>
#include <QTest>
#include <csignal>

#include "cli/genuine_checks.h"

using namespace shardscope::test;
using nlohmann::json;

namespace {

QString wholeCase() {
    return QString::fromStdString(genuineCase("dcp", "t2.15.0-damage-base").openPath());
}

json stepOf(const json& report, const std::string& name) {
    for (const json& step : report.value("steps", json::array())) {
        if (step["name"] == name) return step;
    }
    return {};
}

}  // namespace

class RunCliTest : public QObject {
    Q_OBJECT

    std::unique_ptr<QTemporaryDir> place_;
    QString run_;

    QString step(int number) const { return run_ + QStringLiteral("/step-%1").arg(number); }
    void write(const QString& name, const QByteArray& text) const {
        QFile file(run_ + '/' + name);
        QVERIFY(file.open(QIODevice::WriteOnly) && file.write(text) == text.size());
    }
    // Takes one data file out of a step.
    void damage(int number) const {
        const QStringList data = QDir(step(number)).entryList({"*.distcp"}, QDir::Files);
        QVERIFY(!data.isEmpty() && QFile::remove(step(number) + '/' + data[0]));
    }

    // Seconds since 1970.
    void savedAt(int number, qint64 seconds) const {
        for (const QFileInfo& info : QDir(step(number)).entryInfoList(QDir::Files | QDir::Hidden)) {
            QFile file(info.filePath());
            QVERIFY(file.open(QIODevice::ReadWrite));
            QVERIFY(
                file.setFileTime(QDateTime::fromSecsSinceEpoch(seconds), QFileDevice::FileModificationTime));
        }
    }

  private slots:
    void init() {
        place_ = std::make_unique<QTemporaryDir>();
        qputenv("XDG_STATE_HOME", place_->filePath("state").toUtf8());
        run_ = place_->filePath("run");
        for (const int number : {1, 2, 10})
            copyTree(wholeCase(), step(number));
    }
    void cleanup() { qunsetenv("XDG_STATE_HOME"); }

    void infoListsTheSteps() {
        const json listed = runShardscope({"info", run_, "--json"}).json();
        QCOMPARE(listed.value("schema", ""), std::string("shardscope.run/1"));
        QCOMPARE(listed["steps"].size(), size_t{3});
        QCOMPARE(listed["steps"][0].value("name", ""), std::string("step-10"));
        QVERIFY(listed["steps"][0]["verdict"].is_null());
        QVERIFY(listed["steps"][0]["bytes"].get<uint64_t>() > 0);
        QVERIFY(listed["steps"][0]["saved"].is_string());
        QCOMPARE(listed["steps"][0].value("format", ""), std::string("PyTorch distributed checkpoint (DCP)"));
        // At a level each is judged, and what is known is shown from then on.
        const json judged = runShardscope({"info", run_, "--level", "files", "--json"}).json();
        QCOMPARE(stepOf(judged, "step-2").value("verdict", ""), std::string("safe"));
        const json known = runShardscope({"info", run_, "--json"}).json();
        QCOMPARE(stepOf(known, "step-2").value("verdict", ""), std::string("safe"));
        QCOMPARE(stepOf(known, "step-2").value("level", ""), std::string("files"));
        const Outcome text = runShardscope({"info", run_});
        QVERIFY(text.out.find("3 steps") != std::string::npos);
        QVERIFY(text.out.find("safe (files)") != std::string::npos);
    }

    // Saved after 10 minutes and then after 2 hours, the last one by fewer ranks.
    void stepsAreSeenTogether() {
        QVERIFY(QDir(step(10)).removeRecursively());
        copyTree(QString::fromStdString(genuineCase("dcp", "t2.15.0-no-dist").openPath()), step(10));
        savedAt(1, 1'000'000);
        savedAt(2, 1'000'600);
        savedAt(10, 1'007'800);
        const json listed = runShardscope({"info", run_, "--json"}).json();
        QVERIFY(listed["newest_whole"].is_null());
        QVERIFY(stepOf(listed, "step-1")["seconds_since_previous"].is_null());
        QVERIFY(stepOf(listed, "step-2")["seconds_since_previous"] == 600);
        QVERIFY(stepOf(listed, "step-10")["seconds_since_previous"] == 7200);
        QVERIFY(stepOf(listed, "step-10")["ranks"].is_null());
        QVERIFY(runShardscope({"info", run_}).out.find("ranks") == std::string::npos);
        const json report = runShardscope({"validate", run_, "--json"}).json();
        QVERIFY(stepOf(report, "step-2")["ranks"] == 4 && stepOf(report, "step-2")["ranks_before"].is_null());
        QVERIFY(stepOf(report, "step-10")["ranks"] == 1 && stepOf(report, "step-10")["ranks_before"] == 4);
        // It is what `latest --good` says, and remembered.
        const auto newest = [&] { return runShardscope({"info", run_, "--json"}).json()["newest_whole"]; };
        QVERIFY(report["newest_whole"] == "step-10" && newest() == "step-10");
        QVERIFY(stepOf(runShardscope({"info", run_, "--json"}).json(), "step-10")["ranks_before"] == 4);
        damage(10);
        const Outcome text = runShardscope({"info", run_, "--level", "files"});
        QVERIFY2(text.out.find("step-2 +") != std::string::npos, text.out.c_str());
        QVERIFY(text.out.find("resume from " + step(2).toStdString()) != std::string::npos);
        QVERIFY(text.out.find("1, before 4") != std::string::npos);
        QVERIFY(text.out.find("2 h 0 min") != std::string::npos);
        QVERIFY(newest() == "step-2");
        QVERIFY(newest() == runShardscope({"latest", run_, "--good", "--json"}).json()["name"]);
        const Outcome validated = runShardscope({"validate", run_});
        QVERIFY(validated.out.find("step-2: the newest whole step; resume from") != std::string::npos);
        QVERIFY(validated.out.find("1, before 4") != std::string::npos);
    }

    void aLevelIsForRuns() { QCOMPARE(runShardscope({"info", step(1), "--level", "files"}).exitCode, 2); }

    void allStepsAreValidated() {
        damage(2);
        const Outcome outcome = runShardscope({"validate", run_, "--json"});
        QCOMPARE(outcome.exitCode, 1);
        const json report = outcome.json();
        QCOMPARE(report.value("verdict", ""), std::string("unsafe"));
        QCOMPARE(stepOf(report, "step-10").value("verdict", ""), std::string("safe"));
        QCOMPARE(stepOf(report, "step-2").value("verdict", ""), std::string("unsafe"));
        bool named = false;
        for (const json& finding : report["findings"])
            named = named || (finding["rule"] == "file.missing" && finding["step"] == "step-2");
        QVERIFY(named);
        const Outcome text = runShardscope({"validate", run_});
        QVERIFY(text.out.find("2 of 3 steps safe") != std::string::npos);
    }

    void whatDidNotChangeIsNotReadAgain() {
        const auto unchanged = [&](const QStringList& more = {}) {
            const json report = runShardscope(QStringList{"validate", run_, "--json"} + more).json();
            std::string all;
            for (const json& each : report["steps"])
                all += each["unchanged"].get<bool>() ? '=' : '!';
            return all;
        };
        QCOMPARE(unchanged(), std::string("!!!"));
        QCOMPARE(unchanged(), std::string("==="));
        QCOMPARE(unchanged({"--level", "metadata"}), std::string("==="));  // files says as much
        QCOMPARE(unchanged({"--level", "values"}), std::string("!!!"));
        damage(10);
        QCOMPARE(unchanged(), std::string("!=="));
        // A record that cannot be read is none.
        const QDir records(place_->filePath("state/shardscope/verdicts"));
        const QStringList files = records.entryList({"*.jsonl"}, QDir::Files);
        QCOMPARE(files.size(), 1);
        QFile record(records.filePath(files[0]));
        QVERIFY(record.open(QIODevice::WriteOnly) && record.write("{\n\xff\x00") > 0);
        record.close();
        QCOMPARE(unchanged(), std::string("!!!"));
        // Findings are remembered with their examples.
        const json again = runShardscope({"validate", run_, "--json"}).json();
        QVERIFY(again["findings"][0]["examples"].size() > 0);
    }

    void valuesAreFollowedOverTheSteps() {
        const json all = runShardscope({"stats", run_, "--json"}).json();
        QCOMPARE(all["steps"].size(), size_t{3});
        QCOMPARE(all["steps"][0].value("name", ""), std::string("step-1"));
        QCOMPARE(all["steps"][2].value("name", ""), std::string("step-10"));
        QVERIFY(all["steps"][2]["groups"] == all["steps"][0]["groups"]);
        QCOMPARE(all["marks"].size() + all["left_out"].size(), size_t{0});
        // The values were read once, for figures and verdict alike.
        const json judged = runShardscope({"validate", run_, "--level", "values", "--json"}).json();
        for (const json& each : judged["steps"])
            QVERIFY(each["unchanged"].get<bool>());
        // A step of the run has its figures from there; alone it has the same.
        QVERIFY(runShardscope({"stats", step(10), "--json"}).json()["steps"][0] == all["steps"][2]);
        copyTree(step(10), place_->filePath("alone"));
        const json alone = runShardscope({"stats", place_->filePath("alone"), "--json"}).json();
        QVERIFY(alone["steps"][0]["groups"] == all["steps"][0]["groups"]);
        // Groups of each kind have the elements of all.
        const auto elements = [&](const char* by) {
            const json by_ = runShardscope({"stats", run_, "--by", by, "--json"}).json();
            uint64_t sum = 0;
            for (const json& group : by_["steps"][0]["groups"])
                sum += group["elements"].get<uint64_t>();
            return sum;
        };
        QCOMPARE(elements("tensor"), elements("module"));
        QCOMPARE(elements("layer"), elements("module"));
        QVERIFY(runShardscope({"stats", run_}).out.starts_with("norm of"));
        QVERIFY(runShardscope({"stats", run_, "--csv"})
                    .out.starts_with("step,name,kind,norm,rms,mean,largest,tensors,"));
        QCOMPARE(runShardscope({"stats", run_, "--csv", "--json"}).exitCode, 2);
        // Figures that cannot be read are none, and are made anew.
        const QDir kept(place_->filePath("state/shardscope/verdicts"));
        for (const QString& name : kept.entryList({"*.values"}, QDir::Files)) {
            QFile file(kept.filePath(name));
            QVERIFY(file.open(QIODevice::ReadWrite) && file.seek(file.size() / 2) &&
                    file.write("\"[\n,") > 0);
        }
        QVERIFY(runShardscope({"stats", run_, "--json"}).json() == all);
        // A step that changes is read anew; what cannot be read to its end has no figures.
        damage(10);
        const json after = runShardscope({"stats", run_, "--json"}).json();
        QVERIFY(after["steps"][0] == all["steps"][0]);
        QVERIFY(after["steps"][2] != all["steps"][2]);
        damage(2);
        QVERIFY(QFile::remove(step(2) + "/.metadata"));
        const json less = runShardscope({"stats", run_, "--json"}).json();
        QCOMPARE(less["left_out"][0].value("step", ""), std::string("step-2"));
    }

    // What somebody has accepted of a step does not count for it, wherever it is judged.
    void acceptedFindingsDoNotCount() {
        damage(10);
        const json found = runShardscope({"validate", step(10), "--json"}).json();
        QCOMPARE(found.value("verdict", ""), std::string("unsafe"));
        QCOMPARE(runShardscope({"latest", run_, "--good"}).out, (step(2) + '\n').toStdString());
        for (const json& finding : found["findings"])
            runShardscope({"validate", step(10), "--because", "known", "--accept",
                           QString::fromStdString(finding["rule"].get<std::string>())});
        // A gate counts what is missing all the same, unless it is told otherwise.
        QCOMPARE(runShardscope({"validate", run_}).exitCode, 1);
        QCOMPARE(runShardscope({"latest", run_, "--good"}).out, (step(2) + '\n').toStdString());
        const Outcome accepted = runShardscope({"validate", run_, "--accepted", "--json"});
        QCOMPARE(accepted.exitCode, 0);
        QCOMPARE(stepOf(accepted.json(), "step-10").value("verdict", ""), std::string("safe"));
        QCOMPARE(accepted.json()["findings"][0]["accepted"].value("reason", ""), std::string("known"));
        QCOMPARE(runShardscope({"latest", run_, "--good", "--accepted"}).out,
                 (step(10) + '\n').toStdString());
        QCOMPARE(stepOf(runShardscope({"info", run_, "--accepted", "--json"}).json(), "step-10")
                     .value("verdict", ""),
                 std::string("safe"));
        QCOMPARE(runShardscope({"validate", run_, "--no-accepted"}).exitCode, 1);
        QCOMPARE(runShardscope({"latest", run_, "--good", "--no-accepted"}).out,
                 (step(2) + '\n').toStdString());
        QCOMPARE(stepOf(runShardscope({"info", run_, "--no-accepted", "--json"}).json(), "step-10")
                     .value("verdict", ""),
                 std::string("unsafe"));
        QCOMPARE(runShardscope({"validate", run_, "--accept", "file.missing", "--because", "x"}).exitCode, 2);
        const Outcome junit = runShardscope({"report", step(10), "--as", "junit", "--accepted"});
        QVERIFY(junit.out.find("<failure") == std::string::npos &&
                junit.out.find("(known)") != std::string::npos);
        QVERIFY(runShardscope({"report", step(10), "--as", "junit", "--no-accepted"}).out.find("<failure") !=
                std::string::npos);
    }

    // As a page, too: every step with what was found, and which one to resume from.
    void aReportOfARunHasAllSteps() {
        damage(10);
        const Outcome page = runShardscope({"report", run_});
        QCOMPARE(page.exitCode, 0);
        for (const int number : {2, 10})
            QVERIFY(page.out.find("<h2><code>" + step(number).toStdString()) != std::string::npos);
        QVERIFY(page.out.find("resume from <code>" + step(2).toStdString() + "</code>") != std::string::npos);
        QVERIFY(page.out.find("<code>file.truncated</code>") != std::string::npos ||
                page.out.find("<code>file.missing</code>") != std::string::npos);
        QVERIFY(page.out.find("<h2>Dtypes</h2>") == std::string::npos);
        const Outcome one = runShardscope({"report", step(2)});
        QVERIFY(one.out.find("<h2>Dtypes</h2>") != std::string::npos &&
                one.out.find("<h2>Findings</h2>") != std::string::npos &&
                one.out.find("{{") == std::string::npos && page.out.find("{{") == std::string::npos);
    }

    void aTrackerThatNamesAMissingStepIsAFinding() {
        write("latest_checkpointed_iteration.txt", "77");
        const Outcome outcome = runShardscope({"validate", run_, "--json"});
        QCOMPARE(outcome.exitCode, 1);
        const json finding = outcome.json()["findings"][0];
        QVERIFY(finding["rule"] == "file.missing" && finding["step"].is_null());
        QVERIFY(runShardscope({"info", run_}).out.find("names the step '77'") != std::string::npos);
    }

    void theNewestStepIsPrinted() {
        const auto latest = [&](const QStringList& more = {}) {
            return runShardscope(QStringList{"latest", run_} + more);
        };
        QCOMPARE(latest().out, step(10).toStdString() + '\n');
        damage(10);
        QCOMPARE(latest().out, step(10).toStdString() + '\n');
        const Outcome good = latest({"--good"});
        QCOMPARE(good.exitCode, 0);
        QCOMPARE(good.out, step(2).toStdString() + '\n');
        QVERIFY(good.err.find("step-10 is not whole") != std::string::npos);
        const json told = latest({"--good", "--json"}).json();
        QVERIFY(told["name"] == "step-2" && told["step"] == 2 && told["skipped"][0]["name"] == "step-10");
        damage(1);
        damage(2);
        const Outcome none = latest({"--good"});
        QCOMPARE(none.exitCode, 1);
        QVERIFY(none.out.empty());
        QCOMPARE(runShardscope({"latest", step(1)}).exitCode, 1);
        QVERIFY(latest({"--good", "--json"}).json()["path"].is_null());
    }

    // Names of steps are untrusted: nothing in them drives a terminal, or misleads who
    // reads.
    void namesAreShownAsText() {
        const QString hostile =
            run_ + QStringLiteral("/step-11") + QString::fromUtf8("\x1b]0;x\a\xe2\x80\xae\x7f");
        QVERIFY(QDir().rename(step(10), hostile));
        write("latest", QFileInfo(hostile).fileName().toUtf8());
        const QString name = QString::fromStdString(
            runShardscope({"ls", step(2), "--json"}).json()["tensors"][0]["name"].get<std::string>());
        for (const QStringList& words : {QStringList{"info", run_},
                                         {"ls", run_},
                                         {"map", run_},
                                         {"digest", run_},
                                         {"show", run_, name},
                                         {"validate", run_},
                                         {"index", run_, "-o", place_->filePath("i.ssidx")},
                                         {"diff", run_, step(2)},
                                         {"latest", run_, "--json"},
                                         {"info", run_, "--json"},
                                         {"validate", run_, "--json"}}) {
            const Outcome outcome = runShardscope(words);
            QVERIFY2(outcome.exitCode == 0 || outcome.exitCode == 1, outcome.err.c_str());
            const std::string all = outcome.out + outcome.err;
            for (const char* raw : {"\x1b", "\a", "\xe2\x80\xae", "\x7f"})
                QVERIFY2(all.find(raw) == std::string::npos, (words[0].toStdString() + ": " + all).c_str());
        }
        // Programs get it as it is.
        QCOMPARE(runShardscope({"latest", run_}).out, hostile.toStdString() + '\n');
        QCOMPARE(runShardscope({"latest", run_, "--json"}).json()["path"].get<std::string>(),
                 hostile.toStdString());
    }

    void savesAreWatched() {
        const QString log = place_->filePath("log");
        QProcess watch;
        watch.start(SHARDSCOPE_PROGRAM,
                    {"watch", run_, "--settle", "0", "--interval", "1", "--as", "json", "--exec",
                     "echo \"$SHARDSCOPE_STEP $SHARDSCOPE_VERDICT\" >> '" + log + "'"});
        QVERIFY(watch.waitForStarted());
        const auto logged = [&] {
            QFile file(log);
            return file.open(QIODevice::ReadOnly) ? QString::fromUtf8(file.readAll()) : QString();
        };
        QTRY_COMPARE_WITH_TIMEOUT(logged(), QString("step-1 safe\nstep-2 safe\nstep-10 safe\n"), 60'000);
        // It appears in one step, as after the rename of a finished save.
        copyTree(wholeCase(), place_->filePath("fresh"));
        QVERIFY(QFile::remove(place_->filePath("fresh/") +
                              QDir(place_->filePath("fresh")).entryList({"*.distcp"}, QDir::Files)[0]));
        QVERIFY(QDir().rename(place_->filePath("fresh"), step(20)));
        QTRY_VERIFY_WITH_TIMEOUT(logged().endsWith("step-20 unsafe\n"), 60'000);
        ::kill(static_cast<pid_t>(watch.processId()), SIGINT);
        QVERIFY(watch.waitForFinished(60'000));
        QCOMPARE(watch.exitCode(), 1);
        const QList<QByteArray> lines = watch.readAllStandardOutput().trimmed().split('\n');
        QCOMPARE(lines.size(), 4);
        const json last = json::parse(lines[3].toStdString());
        QVERIFY(last["schema"] == "shardscope.watch/1" && last["name"] == "step-20");
        QVERIFY(last["findings"].size() > 0);
    }

    void watchWritesAFileForEachStep() {
        QVERIFY(QDir().mkpath(place_->filePath("reports")));
        QCOMPARE(runShardscope({"watch", run_, "--as", "junit"}).exitCode, 2);
        QCOMPARE(runShardscope({"watch", run_, "--as", "json", "--output", step(1)}).exitCode, 2);
        QProcess watch;
        watch.start(SHARDSCOPE_PROGRAM, {"watch", run_, "--settle", "0", "--as", "junit", "--output",
                                         place_->filePath("reports")});
        QVERIFY(watch.waitForStarted());
        QTRY_VERIFY_WITH_TIMEOUT(QFile::exists(place_->filePath("reports/step-10.xml")), 60'000);
        ::kill(static_cast<pid_t>(watch.processId()), SIGTERM);
        QVERIFY(watch.waitForFinished(60'000));
        QCOMPARE(watch.exitCode(), 0);
    }

    void checkpointsOfOneFileAreSteps() {
        const QString place = place_->filePath("lightning");
        QString file;
        for (const GenuineCase& c : genuineCases("torch_save")) {
            const QString path = QString::fromStdString(c.openPath());
            if (!c.damaged() && file.isEmpty() && QFileInfo(path).isFile()) file = path;
        }
        QVERIFY(QDir().mkpath(place));
        for (const char* name : {"epoch=0-step=10.ckpt", "epoch=1-step=20.ckpt"})
            QVERIFY(QFile::copy(file, place + '/' + name));
        const json listed = runShardscope({"info", place, "--json"}).json();
        QCOMPARE(listed["steps"].size(), size_t{2});
        QVERIFY(listed["steps"][0]["step"] == 20 && listed["steps"][0]["files"] == 1);
        QCOMPARE(runShardscope({"ls", place}).exitCode, 2);
        QVERIFY(QFile::copy(file, place + "/last.ckpt"));
        const Outcome last = runShardscope({"ls", place});
        QCOMPARE(last.exitCode, 0);
        QVERIFY(last.err.find("last.ckpt") != std::string::npos);
    }
};

QTEST_GUILESS_MAIN(RunCliTest)
#include "run_cli_test.moc"
