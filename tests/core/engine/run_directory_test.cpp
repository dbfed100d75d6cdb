// Which step stands for the directory of a run.
#include "engine/run_directory.h"

#include <QDir>
#include <QFile>
#include <QTemporaryDir>
#include <QTest>

#include "engine/engine.h"

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
        QTest::newRow("another name") << "model_7b" << -1LL;
        QTest::newRow("too large a number") << "step-99999999999999999999" << -1LL;
    }
    void stepsAreFoundByName() {
        QFETCH(QString, name);
        QFETCH(qlonglong, step);
        directory(name);
        const auto run = findRun(source());
        QCOMPARE(run ? qlonglong(run->steps[0].step) : -1LL, step);
    }

    void theTrackerDecides() {
        directory("iter_0000100");
        directory("iter_0000200");
        file("latest_checkpointed_iteration.txt", "100\n");
        QCOMPARE(choice(), std::string("iter_0000100"));
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
    void otherDirectoriesAreNone() {
        directory("logs");
        QCOMPARE(choice(), std::string("none"));
    }
};

QTEST_GUILESS_MAIN(RunDirectoryTest)
#include "run_directory_test.moc"
