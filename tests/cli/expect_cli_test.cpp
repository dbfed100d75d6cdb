// What guards a conversion through a recipe: --expect before a byte is written, diff --map afterwards.
#include <QFile>
#include <QTemporaryDir>
#include <QTest>

#include "cli/genuine_checks.h"
#include "cli/state_file.h"

using namespace shardscope;
using namespace shardscope::test;

Q_DECLARE_METATYPE(nlohmann::json)

class ExpectCliTest : public QObject {
    Q_OBJECT

    QTemporaryDir place_;
    QString dense_, experts_;  // Megatron checkpoints of 2 layers, the other with 2 experts
    QString at(const QString& name) const { return place_.filePath(name); }
    Outcome convert(const QString& source, const QString& recipe, const QString& to,
                    const QStringList& more = {}) const {
        return runShardscope(
            QStringList{"convert", source, at(to), "--to", "safetensors", "--map", recipe, "--json"} + more);
    }
    // A directory with this config.json alone.
    QString model(const QString& name, const nlohmann::json& config) const {
        writeFile(at(name).toStdString() + "/config.json", config.dump());
        return at(name);
    }

  private slots:
    void initTestCase() {
        dense_ = QString::fromStdString(genuineCase("megatron", "m0.16.1-gpt-tp2-llama").openPath());
        experts_ = QString::fromStdString(genuineCase("megatron", "m0.16.1-moe-ep2").openPath());
        const Outcome done = convert(dense_, "llama-hf-from-megatron", "hf");
        QVERIFY2(done.exitCode == 0, done.err.c_str());
    }

    void whatIsThereIsExpected() {
        const Outcome weights = convert(dense_, "llama-hf-from-megatron", "again", {"--expect", at("hf")});
        QVERIFY2(weights.exitCode == 0, (weights.out + weights.err).c_str());
        const QString config = model("dense", {{"num_hidden_layers", 2}, {"vocab_size", 32}});
        const Outcome counts = convert(dense_, "llama-hf-from-megatron", "counted", {"--expect", config});
        QVERIFY2(counts.exitCode == 0, (counts.out + counts.err).c_str());
        const QString sparse =
            model("sparse", {{"text_config", {{"num_hidden_layers", 2}, {"num_local_experts", 2}}}});
        const Outcome moe = convert(experts_, "mixtral-hf-from-megatron", "moe", {"--expect", sparse});
        QVERIFY2(moe.exitCode == 0, (moe.out + moe.err).c_str());
    }

    void whatIsNotAccountedForStopsThePlan_data() {
        QTest::addColumn<nlohmann::json>("config");
        QTest::addColumn<bool>("sparse");
        QTest::addColumn<QString>("says");
        QTest::newRow("layer") << nlohmann::json{{"num_hidden_layers", 4}} << false
                               << "no tensor of layer 2, 3";
        QTest::newRow("further layer") << nlohmann::json{{"num_hidden_layers", 1}} << false << "has 1 layer";
        QTest::newRow("vocabulary") << nlohmann::json{{"num_hidden_layers", 2}, {"vocab_size", 7}} << false
                                    << "a vocabulary of 7";
        QTest::newRow("expert") << nlohmann::json{{"num_hidden_layers", 2}, {"num_local_experts", 3}} << true
                                << "no tensor of expert 2";
        QTest::newRow("further expert")
            << nlohmann::json{{"num_hidden_layers", 2}, {"num_local_experts", 1}} << true << "has 1 expert";
        QTest::newRow("no layers") << nlohmann::json{{"vocab_size", 2}} << false
                                   << "does not say how many layers";
    }
    void whatIsNotAccountedForStopsThePlan() {
        QFETCH(nlohmann::json, config);
        QFETCH(bool, sparse);
        QFETCH(QString, says);
        const Outcome refused = convert(sparse ? experts_ : dense_,
                                        sparse ? "mixtral-hf-from-megatron" : "llama-hf-from-megatron",
                                        "refused", {"--dry-run", "--expect", model("other", config)});
        QVERIFY(refused.exitCode != 0);
        const std::string told = refused.out + refused.err;
        QVERIFY2(told.find(says.toStdString()) != std::string::npos, told.c_str());
        QVERIFY(!QFileInfo::exists(at("refused")));
    }

    // Names and shapes are those of the weights, where there are some.
    void weightsAreExpectedByName() {
        const Outcome refused =
            convert(experts_, "mixtral-hf-from-megatron", "refused", {"--expect", at("hf")});
        QVERIFY(refused.exitCode != 0);
        QVERIFY(!QFileInfo::exists(at("refused")));
        QVERIFY(QDir().mkpath(at("nothing")));
        const Outcome nothing =
            convert(dense_, "llama-hf-from-megatron", "refused", {"--expect", at("nothing")});
        QCOMPARE(nothing.exitCode, 2);
        QVERIFY2(nothing.out.find("neither weights nor a config.json") != std::string::npos,
                 nothing.out.c_str());
    }

    void comparedThroughTheRecipe() {
        const QStringList words{"diff",  dense_, at("hf"), "--values", "--map", "llama-hf-from-megatron",
                                "--json"};
        const Outcome same = runShardscope(words);
        QCOMPARE(same.exitCode, 0);
        COMPARE_JSON(same.json()["equal"], true);
        COMPARE_JSON(same.json()["placement"], nlohmann::json::array());

        // By the names of the other side's format.
        const Outcome automatic = runShardscope(
            {"diff", dense_, at("hf"), "--weights-only", "--values", "--map", "auto", "--json"});
        QVERIFY2(automatic.exitCode == 0, (automatic.out + automatic.err).c_str());
        QVERIFY(automatic.json()["recipe"].get<std::string>().starts_with("'llama-hf-from-megatron'"));

        // One value of the fused projections.
        const QString changed = at("changed");
        copyTree(at("hf"), changed);
        QFile file(changed + "/model.safetensors");
        QVERIFY(file.open(QIODevice::ReadWrite));
        QByteArray bytes = file.readAll();
        const auto header = nlohmann::json::parse(bytes.mid(8, headerBytes(bytes)).toStdString());
        const std::string name = "model.layers.1.self_attn.k_proj.weight";
        const auto begin = header[name]["data_offsets"][0].get<qint64>();
        QVERIFY(file.seek(8 + headerBytes(bytes) + begin + 5));
        const char flipped = static_cast<char>(bytes[8 + headerBytes(bytes) + begin + 5] ^ 1);
        QCOMPARE(file.write(&flipped, 1), 1);
        file.close();
        QStringList again = words;
        again[2] = changed;
        const Outcome differs = runShardscope(again);
        QCOMPARE(differs.exitCode, 1);
        const nlohmann::json values = differs.json()["values"];
        QCOMPARE(values.size(), 1U);
        COMPARE_JSON(values[0]["name"], name);
        COMPARE_JSON(values[0]["different"], 1);

        QCOMPARE(runShardscope({"diff", dense_, at("hf"), "--map", "no-such-recipe"}).exitCode, 3);
    }

  private:
    static qint64 headerBytes(const QByteArray& file) {
        uint64_t size = 0;
        std::memcpy(&size, file.constData(), sizeof size);
        return static_cast<qint64>(size);
    }
};
QTEST_MAIN(ExpectCliTest)
#include "expect_cli_test.moc"
