// Which step stands for the directory of a run, and what its steps say beside each other.
#include "engine/run_directory.h"

#include <QDateTime>
#include <QDir>
#include <QFile>
#include <QTemporaryDir>
#include <QTest>

#include "engine/engine.h"
#include "engine/run_facts.h"
#include "engine/run_verdicts.h"

using namespace shardscope;

class RunDirectoryTest : public QObject {
    Q_OBJECT

    std::unique_ptr<QTemporaryDir> place_;
    void directory(const QString& name) { QVERIFY(QDir().mkpath(place_->filePath(name))); }
    void file(const QString& name, const QByteArray& text) {
        QFile file(place_->filePath(name));
        QVERIFY(file.open(QIODevice::WriteOnly) && file.write(text) == text.size());
    }
    Source source() const { return sourceFor(place_->path().toStdString()).value(); }
    std::string choice() const {
        const auto chosen = chooseInRun(source());
        if (!chosen.ok()) return "error: " + chosen.error().message;
        return *chosen ? (*chosen)->path : "none";
    }

    // Steps as they were saved and judged, oldest first; factsOf() takes them newest first.
    struct Saved {
        int64_t second = 0;
        std::optional<Verdict> verdict = Verdict::safe;
        uint32_t ranks = 64;
        std::string mesh;
    };
    static RunFacts factsOf(const std::vector<Saved>& oldestFirst) {
        std::vector<StepFiles> files(oldestFirst.size());
        std::vector<StepVerdict> verdicts(oldestFirst.size());
        std::vector<SeenStep> seen;
        for (size_t i = oldestFirst.size(); i-- > 0;) {
            const Saved& saved = oldestFirst[i];
            files[i].modifiedNs = saved.second * 1'000'000'000;
            verdicts[i].report.verdict = saved.verdict.value_or(Verdict::safe);
            verdicts[i].ranks = saved.ranks;
            verdicts[i].mesh = saved.mesh;
            seen.push_back({&files[i], saved.verdict ? &verdicts[i] : nullptr});
        }
        return shardscope::factsOf(seen);
    }

  private slots:
    void init() { place_ = std::make_unique<QTemporaryDir>(); }

    void stepsAreFoundByName_data() {
        QTest::addColumn<QString>("name");
        QTest::addColumn<qlonglong>("step");
        QTest::newRow("Megatron") << "iter_0000100" << 100LL;
        QTest::newRow("DeepSpeed") << "global_step12" << 12LL;
        QTest::newRow("verl") << "global_step_7" << 7LL;
        QTest::newRow("Trainer") << "checkpoint-500" << 500LL;
        QTest::newRow("OLMo") << "step1000-unsharded" << 1000LL;
        QTest::newRow("Lightning") << "epoch=3-step=40.ckpt" << 40LL;
        QTest::newRow("torchtitan") << "step-20" << 20LL;
        QTest::newRow("number") << "30" << 30LL;
        QTest::newRow("Composer") << "ep1-ba30" << 30LL;
        QTest::newRow("another name") << "model_7b" << -1LL;
        for (const char* name : {"tmp-checkpoint-20", "checkpoint-20.tmp", "step_20.incomplete",
                                 "_temp_step_20", "checkpoint-20-tmp", "tmp_step_5",
                                 "20.orbax-checkpoint-tmp-17", ".checkpoint-20", "step_20.partial"})
            QTest::newRow(name) << name << -1LL;
        QTest::newRow("a word that only begins so") << "temperature-step-20" << 20LL;
        QTest::newRow("too large a number") << "step-99999999999999999999" << -1LL;
    }
    void stepsAreFoundByName() {
        QFETCH(QString, name);
        QFETCH(qlonglong, step);
        directory(name);
        const auto run = findRun(source());
        QCOMPARE(run ? qlonglong(run->steps[0].step) : -1LL, step);
    }

    // flax.training.checkpoints: a file for each step, under a prefix of the user's. One may be cut.
    void filesWithoutAnEndingAreSteps() {
        const QByteArray flax(
            "\x81\xa1"
            "a\x01");
        file("gan_5", flax);
        file("gan_20", flax);
        file("gan_30", "");
        file("gan_tmp", flax);
        const auto run = findRun(source()).value();
        QCOMPARE(run.steps.size(), size_t{3});
        QCOMPARE(run.steps[0].name, std::string("gan_30"));
        QCOMPARE(run.steps[2].step, int64_t{5});
        file("other_5", flax);
        QVERIFY(!findRun(source()));
    }
    void filesOfOtherKindsAreNoSteps() {
        for (const char* name : {"rank0", "rank1", "part-00000", "part-00001"})
            file(name, QByteArray("\x80\x02K\x01.", 5));
        QVERIFY(!findRun(source()));
    }

    void theTrackerDecides() {
        directory("iter_0000100");
        directory("iter_0000200");
        file("latest_checkpointed_iteration.txt", "100\n");
        QCOMPARE(choice(), std::string("iter_0000100"));
    }
    void trackersOfManyFrameworksAreRead_data() {
        QTest::addColumn<QString>("name");
        QTest::addColumn<QByteArray>("text");
        QTest::newRow("verl") << "latest_checkpointed_iteration.txt" << QByteArray("10");
        QTest::newRow("SkyRL") << "latest_ckpt_global_step.txt" << QByteArray("10\n");
        QTest::newRow("nanotron") << "latest.txt" << QByteArray("10");
        QTest::newRow("AutoModel") << "LATEST" << QByteArray("step-10");
        QTest::newRow("a path") << "newest" << QByteArray("/runs/7/step-10/\n");
    }
    void trackersOfManyFrameworksAreRead() {
        QFETCH(QString, name);
        QFETCH(QByteArray, text);
        directory("step-10");
        directory("step-20");
        file(name, text);
        QCOMPARE(choice(), std::string("step-10"));
    }
    void aTrackerOfZeroBytesNamesNothing() {
        directory("step-10");
        directory("step-20");
        file("latest_checkpointed_iteration.txt", QByteArray(2, '\0'));
        QVERIFY(findRun(source())->tracker.empty());
    }
    void aLinkIsATracker() {
        directory("step-10");
        directory("step-20");
        QVERIFY(QFile::link("step-10", place_->filePath("latest")));
        const auto run = findRun(source()).value();
        QCOMPARE(run.steps.size(), size_t{2});
        QCOMPARE(run.tracked, std::string("step-10"));
        QCOMPARE(choice(), std::string("step-10"));
    }
    void aStepMayBeALinkToAnotherPlace() {
        directory("run/step-10");
        directory("elsewhere/step-20");
        file("elsewhere/step-20/model.pt", "x");
        QVERIFY(QFile::link("../elsewhere/step-20", place_->filePath("run/step-20")));
        const Run run = openRun(place_->filePath("run").toStdString()).value().value();
        QCOMPARE(run.directory.steps[0].name, std::string("step-20"));
        QCOMPARE(listStep(run, run.directory.steps[0]).value().files, uint64_t{1});
    }
    void aStepThatVanishedSaysSo() {
        directory("step-10");
        const Run run = openRun(place_->path().toStdString()).value().value();
        QVERIFY(QDir(place_->path()).rmdir("step-10"));
        QVERIFY(listStep(run, run.directory.steps[0]).value().error);
    }
    void aRunIsFoundBelow() {
        directory("v0-20260101-101010/checkpoint-10");
        directory("v0-20260101-101010/checkpoint-20");
        directory("logs");
        const auto run = openRun(place_->path().toStdString()).value();
        QVERIFY(run && run->directory.steps.size() == 2);
        // Of two it is not known which is meant.
        directory("v1-20260102-101010/checkpoint-10");
        const auto several = openRun(place_->path().toStdString());
        QVERIFY(!several.ok() && several.error().code == ErrorCode::usage);
        QCOMPARE(several.error().message,
                 std::string("holds 2 runs: v0-20260101-101010, v1-20260102-101010"));
    }
    void whatChangedSettles() {
        directory("step-10");
        file("step-10/model.pt", "x");
        const Run run = openRun(place_->path().toStdString()).value().value();
        const RunStep& step = run.directory.steps[0];
        // Old times of files say nothing: only what was seen does.
        QFile old(place_->filePath("step-10/model.pt"));
        QVERIFY(old.open(QIODevice::ReadWrite) &&
                old.setFileTime(QDateTime::fromSecsSinceEpoch(1000), QFileDevice::FileModificationTime));
        SaveWatch never(std::chrono::hours(1)), at0(std::chrono::seconds(0));
        QVERIFY(!never.isComplete(run, step, listStep(run, step).value()));
        QVERIFY(at0.isComplete(run, step, listStep(run, step).value()));
        // A tracker ends the wait when it comes to name the step, not when it has named it all the time.
        Run tracked = run;
        tracked.directory.tracker = "latest";
        tracked.directory.tracked = "step-10";
        tracked.directory.trackedExists = true;
        QVERIFY(never.isComplete(tracked, step, listStep(run, step).value()));
        SaveWatch other(std::chrono::hours(1));
        QVERIFY(!other.isComplete(tracked, step, listStep(run, step).value()));
        QVERIFY(!other.isComplete(tracked, step, listStep(run, step).value()));
    }
    void aTagIsNamed() {
        directory("final");
        directory("global_step5");
        file("latest", "final");
        QCOMPARE(choice(), std::string("final"));
    }
    void theOnlyStepStandsForTheRun() {
        directory("checkpoint-10");
        directory("logs");
        QCOMPARE(choice(), std::string("checkpoint-10"));
    }
    void severalStepsAreListedNewestFirst() {
        directory("checkpoint-9");
        directory("checkpoint-10");
        QCOMPARE(choice(), std::string("error: holds 2 steps: checkpoint-10, checkpoint-9"));
    }
    void aMissingStepIsAnError() {
        directory("iter_0000100");
        file("latest_checkpointed_iteration.txt", "300");
        const auto chosen = chooseInRun(source());
        QVERIFY(!chosen.ok());
        QCOMPARE(chosen.error().location.rule, std::string("file.missing"));
    }
    void aTrackerLeadsNowhereElse() {
        directory("global_step5");
        file("latest", "../other");
        QVERIFY(choice().starts_with("error: 'latest' names the step '../other'"));
    }
    void theTimeBetweenSavesIsKnown() {
        RunFacts facts = factsOf({{1000}, {1600}, {1600}, {9000}});
        QVERIFY(!facts.steps[3].secondsSincePrevious);
        QCOMPARE(facts.steps[2].secondsSincePrevious.value(), 600.0);
        QCOMPARE(facts.steps[1].secondsSincePrevious.value(), 0.0);
        QCOMPARE(facts.steps[0].secondsSincePrevious.value(), 7400.0);
        QCOMPARE(facts.steps[0].sinceText(), std::string("2 h 3 min"));
        QCOMPARE(facts.steps[1].sinceText(), std::string("< 1 s"));
        // A run that went back to an older step: its higher numbers are older.
        facts = factsOf({{1000}, {5000}, {2000}});
        QCOMPARE(facts.steps[0].secondsSincePrevious.value(), 1000.0);
        QCOMPARE(facts.steps[1].secondsSincePrevious.value(), 3000.0);
        // One time that is not known leaves the run's order.
        facts = factsOf({{1000}, {0}, {2000}, {2500}});
        QVERIFY(!facts.steps[1].secondsSincePrevious && !facts.steps[2].secondsSincePrevious);
        QCOMPARE(facts.steps[0].secondsSincePrevious.value(), 500.0);
        QVERIFY(factsOf({}).steps.empty());
    }
    void aLossOfRanksShows() {
        using enum Verdict;
        RunFacts facts =
            factsOf({{1, safe, 64}, {2, safe, 64}, {3, std::nullopt, 0}, {4, care, 63}, {5, safe, 63}});
        QVERIFY(facts.steps[1].lostRanks());
        QCOMPARE(facts.steps[1].ranksBefore, 64U);
        QCOMPARE(facts.steps[1].ranksText(), std::string("63, before 64"));
        for (const size_t same : {0, 2, 3, 4})
            QVERIFY(!facts.steps[same].otherRanks() && !facts.steps[same].lostRanks());
        QCOMPARE(facts.steps[0].ranksText(), std::string("63"));
        QCOMPARE(facts.steps[2].ranksText(), std::string());
        // More ranks are no loss; neither is another mesh, nor a format that does not say.
        facts =
            factsOf({{1, safe, 64, "dp=16,tp=4"}, {2, safe, 64, "dp=8,tp=8"}, {3, safe, 0}, {4, safe, 128}});
        QCOMPARE(facts.steps[2].ranksText(), std::string("64 (dp=8,tp=8), before 64 (dp=16,tp=4)"));
        QVERIFY(facts.steps[2].otherRanks() && !facts.steps[2].lostRanks());
        QVERIFY(facts.steps[0].otherRanks() && !facts.steps[0].lostRanks());
    }
    void theNewestWholeStepHasNoErrors() {
        using enum Verdict;
        QCOMPARE(factsOf({{1}, {2, care}, {3, unsafe}, {4, std::nullopt}}).newestWhole, size_t{2});
        QCOMPARE(factsOf({{1, unsafe}, {2, std::nullopt}}).newestWhole, kNoStep);
        // By the run's order, as `latest` goes, not by time.
        QCOMPARE(factsOf({{9}, {5}}).newestWhole, size_t{0});
    }
    void ranksAreRemembered() {
        directory("step-1");
        const Run run = openRun(place_->path().toStdString()).value().value();
        const RunStep& step = run.directory.steps[0];
        const StepFiles files = listStep(run, step).value();
        const std::string state = place_->filePath("state").toStdString();
        StepVerdict verdict;
        verdict.format = "a format";
        verdict.ranks = 63;
        verdict.mesh = "dp=63";
        RunVerdicts(run, "", state).keep(run, step, files, verdict);
        const auto known = [&] {
            return RunVerdicts(run, "", state).find(step, files, verdict.report.level);
        };
        QVERIFY(known() && known()->remembered);
        QCOMPARE(known()->ranks, 63U);
        QCOMPARE(known()->mesh, std::string("dp=63"));
        // Of records that do not have them steps are judged anew.
        const QDir records(place_->filePath("state"));
        QFile record(records.filePath(records.entryList(QDir::Files).value(0)));
        QVERIFY(record.open(QIODevice::ReadWrite));
        QByteArray text = record.readAll();
        QVERIFY(record.resize(0) && record.seek(0));
        QVERIFY(record.write(text.replace("verdicts/3", "verdicts/2")) > 0);
        record.close();
        QVERIFY(!known());
    }
    void whatIsRememberedStaysShort() {
        for (const char* name : {"step-1", "step-2", "step-3"})
            directory(name);
        const Run run = openRun(place_->path().toStdString()).value().value();
        const std::string state = place_->filePath("state").toStdString();
        const auto lines = [&] {
            const QDir records(place_->filePath("state"));
            QFile record(records.filePath(records.entryList(QDir::Files).value(0)));
            return record.open(QIODevice::ReadOnly) ? record.readAll().count('\n') : -1;
        };
        StepVerdict verdict;
        RunVerdicts verdicts(run, "", state);
        // A run of many steps: each adds its line, and what is out of date is dropped now and then.
        for (uint32_t i = 1; i <= 50; ++i) {
            for (const RunStep& step : run.directory.steps) {
                verdict.ranks = i;
                verdicts.keep(run, step, listStep(run, step).value(), verdict);
            }
            QVERIFY(lines() >= 4 && lines() <= 8);
        }
        const auto ranks = [&](const Run& now, const RunStep& step) {
            const auto known =
                RunVerdicts(now, "", state).find(step, listStep(now, step).value(), verdict.report.level);
            return known ? known->ranks : 0;
        };
        for (const RunStep& step : run.directory.steps)
            QCOMPARE(ranks(run, step), 50U);
        // A full disk leaves half a line in the records. It is skipped.
        {
            const QDir records(place_->filePath("state"));
            QFile record(records.filePath(records.entryList(QDir::Files).value(0)));
            QVERIFY(record.open(QIODevice::Append) && record.write("{\"step\":\"step-1\"") > 0);
        }
        verdict.ranks = 51;
        RunVerdicts(run, "", state)
            .keep(run, run.directory.steps[0], listStep(run, run.directory.steps[0]).value(), verdict);
        QCOMPARE(ranks(run, run.directory.steps[1]), 50U);
        // Steps that are gone are forgotten.
        QVERIFY(QDir(place_->filePath("step-1")).removeRecursively());
        const Run left = openRun(place_->path().toStdString()).value().value();
        RunVerdicts(left, "", state)
            .keep(left, left.directory.steps[0], listStep(left, left.directory.steps[0]).value(), verdict);
        QCOMPARE(lines(), 3);
    }
    void otherDirectoriesAreNone() {
        directory("logs");
        QCOMPARE(choice(), std::string("none"));
    }
};

QTEST_GUILESS_MAIN(RunDirectoryTest)
#include "run_directory_test.moc"
