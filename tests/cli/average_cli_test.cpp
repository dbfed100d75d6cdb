// shardscope average: one checkpoint of several. That each element is right, `test_convert` shows; here is
// who does it, in which formats, and what is refused.
#include <QDir>
#include <QFile>
#include <QTemporaryDir>
#include <QTest>
#include <cmath>

#include "cli/genuine_checks.h"
#include "cli/state_file.h"

using namespace shardscope;
using namespace shardscope::test;

namespace {

// Digests by name, whatever the format and sharding.
nlohmann::json tilesOf(const QString& path) {
    const Outcome digest = runShardscope({"digest", path, "--json"});
    if (digest.exitCode != 0) qFatal("%s", digest.err.c_str());
    return digest.json()["tensors"];
}

}  // namespace

class AverageCliTest : public QObject {
    Q_OBJECT

    QTemporaryDir place_;
    QString at(const QString& name) const { return place_.filePath(name); }
    Outcome average(const QStringList& sources, const QString& to, const QStringList& more = {}) const {
        QStringList words{"average"};
        for (const QString& source : sources)
            words << at(source);
        return runShardscope(words << at(to) << "--json" << more);
    }
    std::string file(const char* name) const { return at(name).toStdString(); }

  private slots:
    // Three checkpoints, each in a format and sharding of its own.
    void initTestCase() {
        for (int i = 0; i < 3; ++i) {
            const auto step = static_cast<float>(i);
            writeState(at(QStringLiteral("%1.safetensors").arg(i)).toStdString(),
                       {{"w", {{4, 3}, std::vector<float>(12, 1 + step)}},
                        {"b", {{3}, {step, -step, 0.5F * step}}},
                        {"step", {{1}, {100 * step}}}});
        }
        const auto convert = [&](const QStringList& words) {
            const Outcome done = runShardscope(QStringList{"convert"} + words);
            QVERIFY2(done.exitCode == 0, done.err.c_str());
        };
        convert({at("0.safetensors"), at("0.dcp"), "--to", "dcp", "--mesh", "tp=2", "--shard", "w:tp=0"});
        convert({at("1.safetensors"), at("1.pt"), "--to", "torch"});
        QVERIFY(QFile::copy(at("2.safetensors"), at("2.last.safetensors")));
    }

    void formatsAndShardingsDoNotMatter() {
        const Outcome plain = average({"0.safetensors", "1.safetensors", "2.safetensors"}, "plain");
        QVERIFY2(plain.exitCode == 0, plain.err.c_str());
        const Outcome mixed = average({"0.dcp", "1.pt", "2.last.safetensors"}, "mixed",
                                      {"--to", "dcp", "--mesh", "tp=3", "--shard", "*:tp=0"});
        QVERIFY2(mixed.exitCode == 0, mixed.err.c_str());
        COMPARE_JSON(tilesOf(at("mixed")), tilesOf(at("plain")));
        const State averaged = readState(file("plain"));
        QCOMPARE(averaged.at("w").values, std::vector<float>(12, 2));
        QCOMPARE(averaged.at("b").values, (std::vector<float>{1, -1, 0.5F}));
        QCOMPARE(averaged.at("step").values, std::vector<float>{200});  // that of the last
        const nlohmann::json told = plain.json()["plan"]["average"];
        QCOMPARE(told["inputs"].size(), 3U);
        COMPARE_JSON(told["accumulate"], "fp32");
        QCOMPARE(told["not_averaged"].size(), 1U);
        COMPARE_JSON(told["not_averaged"][0]["name"], "step");
    }

    void weightsAreThoseThatWereAsked_data() {
        QTest::addColumn<QStringList>("words");
        QTest::addColumn<QList<double>>("weights");
        QFile file(at("weights.txt"));
        QVERIFY(file.open(QIODevice::WriteOnly));
        file.write("[1, 2,\n 5]\n");
        file.close();
        const double root = std::sqrt(1.0 / 3), two = std::sqrt(2.0 / 3);
        QTest::newRow("uniform") << QStringList{"--weights", "uniform"}
                                 << QList<double>{1 / 3., 1 / 3., 1 / 3.};
        QTest::newRow("numbers") << QStringList{"--weights", "1,2,5"} << QList<double>{0.125, 0.25, 0.625};
        QTest::newRow("file") << QStringList{"--weights", at("weights.txt")}
                              << QList<double>{0.125, 0.25, 0.625};
        QTest::newRow("raw") << QStringList{"--weights", "-1,0.5,2", "--raw-weights"}
                             << QList<double>{-1, 0.5, 2};
        QTest::newRow("linear") << QStringList{"--weights", "linear"}
                                << QList<double>{1 / 3., 1 / 3., 1 / 3.};
        QTest::newRow("minus-sqrt") << QStringList{"--weights", "minus-sqrt"}
                                    << QList<double>{root, two - root, 1 - two};
        QTest::newRow("cosine") << QStringList{"--weights", "cosine"} << QList<double>{0.25, 0.5, 0.25};
    }
    void weightsAreThoseThatWereAsked() {
        QFETCH(QStringList, words);
        QFETCH(QList<double>, weights);
        const Outcome plan = average({"0.dcp", "1.pt", "2.safetensors"}, "none", words << "--dry-run");
        QVERIFY2(plan.exitCode == 0, plan.err.c_str());
        const nlohmann::json inputs = plan.json()["average"]["inputs"];
        for (int i = 0; i < 3; ++i)
            QVERIFY(std::abs(inputs[static_cast<size_t>(i)]["weight"].get<double>() - weights[i]) < 1e-12);
        QVERIFY(!QFileInfo::exists(at("none")));
    }

    void resultDoesNotDependOnWorkers() {
        const QStringList sources{"0.dcp", "1.pt", "2.safetensors"}, words{"--weights", "3,1,1"};
        QCOMPARE(average(sources, "alone", words).exitCode, 0);
        const Outcome workers = average(sources, "workers", words + QStringList{"--on", "local:2"});
        QVERIFY2(workers.exitCode == 0, workers.err.c_str());
        COMPARE_JSON(tilesOf(at("workers")), tilesOf(at("alone")));
        for (const char* part : {"1/2", "0/2"}) {
            const Outcome done =
                average(sources, "parts", words + QStringList{"--part", part, "--finish", "auto"});
            QVERIFY2(done.exitCode == 0, done.err.c_str());
        }
        COMPARE_JSON(tilesOf(at("parts")), tilesOf(at("alone")));
        const Outcome job =
            runShardscope(QStringList{"jobs", "run", "--wait", "average"} +
                          QStringList{at("0.dcp"), at("1.pt"), at("2.safetensors"), at("job")} + words);
        QVERIFY2(job.exitCode == 0, job.err.c_str());
        COMPARE_JSON(tilesOf(at("job")), tilesOf(at("alone")));
    }

    // Parts that were given other weights would mix two averages.
    void partsOfOtherWeightsAreRefused() {
        const QStringList sources{"0.dcp", "1.pt", "2.safetensors"};
        QCOMPARE(average(sources, "two", {"--part", "0/2"}).exitCode, 0);
        const Outcome other = average(sources, "two", {"--part", "1/2", "--weights", "1,2,3"});
        QVERIFY(other.exitCode != 0);
        QVERIFY2(other.out.find("another plan") != std::string::npos, other.out.c_str());
    }

    void whatDoesNotFitIsRefused_data() {
        QTest::addColumn<QStringList>("sources");
        QTest::addColumn<QStringList>("words");
        QTest::addColumn<QString>("says");
        writeState(file("short.safetensors"), {{"w", {{4, 3}, std::vector<float>(12)}}});
        writeState(file("wide.safetensors"),
                   {{"w", {{3, 4}, std::vector<float>(12)}}, {"b", {{3}, {0, 0, 0}}}, {"step", {{1}, {0}}}});
        QTest::newRow("missing") << QStringList{"short.safetensors", "0.dcp"} << QStringList{}
                                 << "short.safetensors' does not have it";
        QTest::newRow("more") << QStringList{"0.dcp", "short.safetensors"} << QStringList{}
                              << "--exclude leaves it out";
        QTest::newRow("shape") << QStringList{"wide.safetensors", "0.dcp"} << QStringList{} << "[3, 4]";
        QTest::newRow("weights") << QStringList{"0.dcp", "1.pt"} << QStringList{"--weights", "1,2,3"}
                                 << "3 weights for 2 checkpoints";
        QTest::newRow("no sum") << QStringList{"0.dcp", "1.pt"} << QStringList{"--weights", "1,-1"}
                                << "--raw-weights";
        QTest::newRow("no file") << QStringList{"0.dcp", "1.pt"} << QStringList{"--weights", "sqrt"}
                                 << "minus-sqrt";
        QTest::newRow("others") << QStringList{"0.dcp", "1.pt"} << QStringList{"--others", "same"}
                                << "differs from the last one";
    }
    void whatDoesNotFitIsRefused() {
        QFETCH(QStringList, sources);
        QFETCH(QStringList, words);
        QFETCH(QString, says);
        const Outcome refused = average(sources, "refused", words);
        QVERIFY(refused.exitCode != 0);
        const std::string told = refused.err + refused.out;
        QVERIFY2(told.find(says.toStdString()) != std::string::npos, told.c_str());
        QVERIFY(!QFileInfo::exists(at("refused")));
    }

    // Copies of one checkpoint with halves as weights: nothing is rounded.
    void optimizerStateOnlyWhenAsked() {
        const QString source = QString::fromStdString(genuineCase("dcp", "t2.15.0-fsdp2-adam").openPath());
        const Outcome weights = runShardscope({"average", source, source, at("weights"), "--json"});
        QVERIFY2(weights.exitCode == 0, weights.err.c_str());
        QVERIFY(!weights.json()["plan"]["excluded"].empty());
        const Outcome all = runShardscope({"average", source, source, at("all"), "--optimizer", "--json"});
        QVERIFY2(all.exitCode == 0, all.err.c_str());
        COMPARE_JSON(tilesOf(at("all")), tilesOf(source));
    }
};

QTEST_MAIN(AverageCliTest)
#include "average_cli_test.moc"
