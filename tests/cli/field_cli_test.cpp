// Situations that people reported: which step of a run is named, and what is said of a step.
#include <QTemporaryDir>
#include <QTest>

#include "cli/genuine_checks.h"

using namespace shardscope::test;
using nlohmann::json;

class FieldCliTest : public QObject {
    Q_OBJECT

    std::unique_ptr<QTemporaryDir> place_;
    static QString pathOf(const QString& name) {
        return QStringLiteral(SHARDSCOPE_TEST_DATA "/field/") + name;
    }
    static bool hasRule(const json& report, const char* rule) {
        return std::ranges::any_of(report["findings"], [&](const json& f) { return f["rule"] == rule; });
    }

  private slots:
    void init() {
        place_ = std::make_unique<QTemporaryDir>();
        qputenv("XDG_STATE_HOME", place_->path().toUtf8());
    }
    void cleanup() { qunsetenv("XDG_STATE_HOME"); }

    void theRightStepIsNamed_data() {
        QTest::addColumn<QString>("step");
        const auto row = [](const char* run, const char* step) { QTest::newRow(run) << QString(step); };
        row("trainer-half-saved-step/died-after-model", "checkpoint-20");
        row("trainer-half-saved-step/died-before-state", "checkpoint-10");
        row("trainer-half-saved-step/optimizer-empty", "checkpoint-10");
        row("trainer-half-saved-step/scheduler-empty", "checkpoint-10");
        row("trainer-half-saved-step/staging", "checkpoint-10");
        row("fsdp-directory-without-its-model/no-model", "checkpoint-10");
        row("fsdp-directory-without-its-model/no-optimizer", "checkpoint-10");
        row("model-bin-beside-optimizer-bin/accelerate-bin", "checkpoint_2");
        row("model-bin-beside-optimizer-bin/accelerate-fsdp-full", "checkpoint_2");
        row("model-bin-beside-optimizer-bin/trainer-bin", "checkpoint-20");
        row("model-bin-beside-optimizer-bin/trainer-fsdp-full", "checkpoint-20");
        row("verl-megatron-data-pt/ckpt/run", "global_step_5");
        row("paddleformers-flex-lost/ckpt/run", "checkpoint-100");
        row("colossal-opensora/ckpt/outputs", "epoch0-global_step100");
        row("bridge-run-root/ckpt", "iter_0000020");
        row("megatron-integrity-mixed/ckpt", "iter_0000010");
        row("lightning-kth-value/run", "epoch=0-step=20.ckpt");
        row("mask-inf/run", "checkpoint-10");
        row("orbax-no-json-item/run", "15");
        row("trainer-args-half/run", "checkpoint-15");
        row("../genuine/flax/flax-run/ckpt", "checkpoint_10");
    }
    void theRightStepIsNamed() {
        QFETCH(QString, step);
        const QString run = pathOf(QTest::currentDataTag());
        const Outcome named = runShardscope({"latest", run, "--good", "--level", "values", "--json"});
        QCOMPARE(QString::fromStdString(named.json().value("name", named.err)), step);
        // What was passed over is told with its reason.
        for (const json& skipped : named.json()["skipped"])
            QVERIFY(!skipped.value("why", "").empty());
    }

    void stepsOfSeveralPartsOpenAsOne() {
        const auto digests = [](const QString& path) {
            const Outcome digest = runShardscope({"digest", path, "--algorithm", "sha256", "--json"});
            return digest.exitCode == 0 ? digest.json()["tensors"] : json(digest.err);
        };
        const auto truth = [](const char* name) {
            QFile file(pathOf(name) + "/expected.json");
            return file.open(QIODevice::ReadOnly) ? json::parse(file.readAll().toStdString())["tensors"]
                                                  : json();
        };
        for (const auto& [name, step] :
             {std::pair{"paddleformers-flex-lost", "/ckpt/run/checkpoint-100"},
              {"colossal-opensora", "/ckpt/outputs/epoch0-global_step100"},
              {"verl-megatron-data-pt", "/ckpt/run/global_step_5"},
              {"model-bin-beside-optimizer-bin", "/accelerate-bin/checkpoint_1"}}) {
            const json found = digests(pathOf(name) + step);
            const json wanted = truth(name);
            if (name == std::string("paddleformers-flex-lost")) {
                // The truth is that of the step that was lost: the names are those of this one.
                for (const auto& [tensor, about] : wanted.items())
                    QVERIFY2(found.contains(tensor), tensor.c_str());
                continue;
            }
            for (const auto& [tensor, about] : wanted.items())
                QVERIFY2(found.value(tensor, "") == about.value("sha256", "none"), tensor.c_str());
        }
    }

    void whatIsLackingIsAnError_data() {
        QTest::addColumn<QString>("rule");
        const auto row = [](const char* step, const char* rule) { QTest::newRow(step) << QString(rule); };
        row("megatron-integrity-mixed/ckpt/iter_0000020", "integrity.crc");
        row("paddlenlp-nonmerge-lost/ckpt/checkpoint-100", "file.missing");
        row("dcp-moments-of-one-rank/ckpt", "state.differs");
    }
    void whatIsLackingIsAnError() {
        QFETCH(QString, rule);
        const Outcome report =
            runShardscope({"validate", pathOf(QTest::currentDataTag()), "--level", "values", "--json"});
        QCOMPARE(report.exitCode, 1);
        QVERIFY2(hasRule(report.json(), rule.toUtf8().constData()), report.out.c_str());
    }
    void aMaskIsNoDamage() {
        QCOMPARE(runShardscope({"validate", pathOf("causal-mask-buffer/ckpt"), "--level", "values"}).exitCode,
                 0);
    }

    void theCardSaysWhetherARunMayResume() {
        const QString run = pathOf("trainer-half-saved-step/died-after-model");
        const Outcome whole = runShardscope({"ready", run + "/checkpoint-20", "--json"});
        QCOMPARE(whole.exitCode, 0);
        const json card = whole.json();
        QCOMPARE(card.value("schema", ""), std::string("shardscope.ready/1"));
        QCOMPARE(card.value("words", ""), std::string("resume from here"));
        QStringList ids;
        for (const json& line : card["lines"]) {
            ids += QString::fromStdString(line.value("id", ""));
            QVERIFY2(line.value("mark", "") != "no", line.dump().c_str());
        }
        QCOMPARE(ids.join(' '),
                 QString("weights optimizer masters step scheduler random loader commit loads_in fits_on"));
        // The step whose save died.
        const Outcome torn = runShardscope({"ready", run + "/checkpoint-30", "--json"});
        QCOMPARE(torn.exitCode, 1);
        QVERIFY(torn.json().value("words", "").starts_with("do not resume: "));
        // Of the run: the one before it, and why not the newest.
        const Outcome chosen = runShardscope({"ready", run, "--json"});
        QCOMPARE(chosen.exitCode, 0);
        QVERIFY(chosen.json().value("path", "").ends_with("checkpoint-20"));
        QCOMPARE(chosen.json()["passed"][0].value("name", ""), std::string("checkpoint-30"));
        QVERIFY(runShardscope({"ready", run}).out.find("passed over: checkpoint-30") != std::string::npos);
        // Weights alone load, but nothing resumes from them.
        const Outcome weights = runShardscope({"ready", pathOf("causal-mask-buffer/ckpt"), "--json"});
        QCOMPARE(weights.exitCode, 1);
        QCOMPARE(weights.json().value("words", ""),
                 std::string("weights only: nothing to resume, fine to load"));
    }

    void severalRunsAreNamed() {
        for (const QString verb : {"info", "ready", "latest"}) {
            const Outcome said = runShardscope({verb, pathOf("trainer-half-saved-step")});
            QCOMPARE(said.exitCode, 2);
            QVERIFY2(said.err.find("holds 5 runs: died-after-model, ") != std::string::npos,
                     said.err.c_str());
        }
    }
    // A model for transformers is promised with what its conversion still needs.
    void theCardNamesTheModelsConfiguration() {
        const auto loads = [](const QString& step) {
            const json card = runShardscope({"ready", pathOf(step), "--json"}).json();
            for (const json& line : card["lines"])
                if (line.value("id", "") == "loads_in") return line.value("text", "");
            return std::string();
        };
        const std::string promise = "transformers after a conversion to Hugging Face",
                          needs = " with the model's config.json";
        QVERIFY(loads("optimizer-without-groups/ckpt").ends_with(promise + needs));
        QVERIFY(loads("verl-megatron-data-pt/ckpt/run/global_step_5").ends_with(promise));
    }

    void aLoneConfigurationIsExpected() {
        const QString config = place_->filePath("config.json");
        const auto expect = [&](const QByteArray& text) {
            QFile file(config);
            if (!file.open(QIODevice::WriteOnly) || file.write(text) != text.size()) qFatal("no file");
            file.close();
            return runShardscope(
                {"validate", pathOf("causal-mask-buffer/ckpt"), "--expect", config, "--json"});
        };
        QCOMPARE(expect(R"({"num_hidden_layers": 1})").exitCode, 0);
        const Outcome more = expect(R"({"num_hidden_layers": 2})");
        QCOMPARE(more.exitCode, 1);
        QVERIFY(hasRule(more.json(), "expect.missing"));
        QCOMPARE(expect("{}").exitCode, 2);
    }
};

QTEST_GUILESS_MAIN(FieldCliTest)
#include "field_cli_test.moc"
