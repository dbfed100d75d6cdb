// Quantized weights: shown with their parts, kept together, computed. tests/data/quantized is from
// tests/peers/quantized_peer.py, with the answers of the schemes' own libraries.
#include <QDir>
#include <QTemporaryDir>
#include <QTest>
#include <fstream>

#include "cli/run_shardscope.h"
#include "cli/written_model.h"

using namespace shardscope;
using namespace shardscope::test;

namespace {

const QString kCases = QStringLiteral(SHARDSCOPE_TEST_DATA "/quantized");

// Two layers of 4x4 values of 1, in blocks of 2x2 with the scales 1, 2, 3, 4.
Model twoLayers() {
    Model model;
    for (const std::string layer : {"layers.0.", "layers.1."}) {
        model[layer + "weight"] = {"F8_E4M3", {4, 4}, std::string(16, '\x38')};
        model[layer + "weight_scale_inv"] = {"F32", {2, 2}, floats({1, 2, 3, 4})};
        model[layer + "norm"] = {"F32", {2}, floats({5, 6})};
    }
    return model;
}
const nlohmann::json kConfig = {
    {"model_type", "x"},
    {"quantization_config", {{"quant_method", "fp8"}, {"weight_block_size", {2, 2}}}},
    {"hidden_size", 4}};

nlohmann::json findingOf(const nlohmann::json& report, const std::string& rule) {
    for (const auto& finding : report["findings"])
        if (finding["rule"] == rule) return finding;
    return {};
}

}  // namespace

class QuantizedCliTest : public QObject {
    Q_OBJECT

    QTemporaryDir place_;
    QString at(const QString& name) const { return place_.filePath(name); }
    Outcome convert(const QString& source, const QString& to, const QStringList& more) const {
        return runShardscope(QStringList{"convert", source, at(to), "--to", "safetensors", "--json"} + more);
    }
    nlohmann::json digests(const QString& path) const {
        return runShardscope({"digest", path, "--algorithm", "sha256", "--json"}).json()["tensors"];
    }

  private slots:
    void initTestCase() { writeModel(at("model"), twoLayers(), kConfig); }

    void libraryAnswers_data() {
        QTest::addColumn<QString>("name");
        const QStringList cases = QDir(kCases).entryList(QDir::Dirs | QDir::NoDotAndDotDot);
        QVERIFY(cases.size() >= 12);
        for (const QString& name : cases)
            QTest::newRow(qPrintable(name)) << name;
    }
    void libraryAnswers() {
        QFETCH(QString, name);
        const QString source = kCases + "/" + name;
        std::ifstream file((source + "/expected.json").toStdString());
        const nlohmann::json expected = nlohmann::json::parse(file);
        size_t weights = 0;
        const nlohmann::json info = runShardscope({"info", source, "--json"}).json();
        for (const auto& share : info["quantized"])
            weights += share["weights"].get<size_t>();
        QCOMPARE(weights, expected.size());
        const Outcome healthy = runShardscope({"validate", source, "--level", "metadata", "--json"});
        QVERIFY2(findingOf(healthy.json(), "quant.part").is_null(), healthy.out.c_str());
        for (const QString dtype : {"bf16", "fp16", "fp32"}) {
            const QString out = name + "-" + dtype;
            const Outcome done = convert(source, out, {"--dequantize", dtype});
            QVERIFY2(done.exitCode == 0, (done.out + done.err).c_str());
            const nlohmann::json made = digests(at(out));
            for (const auto& [weight, answer] : expected.items())
                COMPARE_JSON(made.value(weight, "missing"), answer[dtype.toStdString()]);
            std::ifstream written((at(out) + "/config.json").toStdString());
            COMPARE_JSON(nlohmann::json::parse(written),
                         (nlohmann::json{{"model_type", "x"}, {"hidden_size", 4}}));
        }
    }

    // The same parts in other containers, sharded over ranks, by several processes, with little memory.
    void otherContainers_data() {
        QTest::addColumn<QStringList>("container");
        QTest::addColumn<QStringList>("how");
        QTest::newRow("dcp") << QStringList{"--to", "dcp", "--mesh", "tp=2", "--shard", "*:tp=0"}
                             << QStringList{};
        QTest::newRow("torch") << QStringList{"--to", "torch"} << QStringList{};
        QTest::newRow("processes") << QStringList{"--to", "torch"} << QStringList{"--on", "local:2"};
        QTest::newRow("memory") << QStringList{"--to", "dcp"} << QStringList{"--memory", "100MiB"};
    }
    void otherContainers() {
        QFETCH(QStringList, container);
        QFETCH(QStringList, how);
        const QString row = QTest::currentDataTag();
        for (const QString name : {"mxfp4", "gptq", "bnb4", "fp8_blocks"}) {
            const QString between = at(row + name);
            const Outcome moved =
                runShardscope(QStringList{"convert", kCases + "/" + name, between} + container);
            QVERIFY2(moved.exitCode == 0, moved.err.c_str());
            // What a config.json would say is not there; blocks of 128x128 and GPTQ's first format need none.
            const Outcome done =
                convert(between, row + name + "-bf16", QStringList{"--dequantize", "bf16"} + how);
            QVERIFY2(done.exitCode == 0, (done.out + done.err).c_str());
            std::ifstream file((kCases + "/" + name + "/expected.json").toStdString());
            const nlohmann::json expected = nlohmann::json::parse(file);
            const nlohmann::json made = digests(at(row + name + "-bf16"));
            for (const auto& [weight, answer] : expected.items())
                COMPARE_JSON(made.value(weight, "missing"), answer["bf16"]);
        }
    }

    // Weights are looked at as what they stand for without being converted.
    void computedWhileRead() {
        const QString source = kCases + "/gptq";
        std::ifstream file((source + "/expected.json").toStdString());
        const nlohmann::json expected = nlohmann::json::parse(file);
        for (const QStringList& by : {QStringList{}, QStringList{"--on", "local:2"}}) {
            const Outcome read = runShardscope(
                QStringList{"digest", source, "--algorithm", "sha256", "--dequantize", "bf16", "--json"} +
                by);
            QVERIFY2(read.exitCode == 0, read.err.c_str());
            for (const auto& [weight, answer] : expected.items())
                COMPARE_JSON(read.json()["tensors"].value(weight, "missing"), answer["bf16"]);
        }
        const QString weight = QString::fromStdString(expected.begin().key());
        const Outcome shown =
            runShardscope({"show", source, weight, "--values", "--dequantize", "fp32", "--json"});
        QVERIFY2(shown.exitCode == 0, shown.err.c_str());
        COMPARE_JSON(shown.json()["tensor"]["dtype"], "float32");
        COMPARE_JSON(shown.json()["values"]["nan"], 0);

        const Outcome made = convert(source, "plain", {"--dequantize", "bf16"});
        QVERIFY2(made.exitCode == 0, made.err.c_str());
        // Either side may be the one that is quantized.
        for (const QStringList& sides : {QStringList{source, at("plain")}, {at("plain"), source}}) {
            const Outcome differ =
                runShardscope(QStringList{"diff"} + sides + QStringList{"--values", "--dequantize", "bf16"});
            QVERIFY2(differ.exitCode == 0, (differ.out + differ.err).c_str());
        }
        QCOMPARE(runShardscope({"diff", source, at("plain")}).exitCode, 1);
        const Outcome neither = runShardscope({"diff", at("plain"), at("plain"), "--dequantize", "bf16"});
        QCOMPARE(neither.exitCode, 3);
        QVERIFY2(neither.err.find("no quantized weights") != std::string::npos, neither.err.c_str());
        QCOMPARE(runShardscope({"digest", source, "--dequantize", "int8"}).exitCode, 2);
    }

    void partsAreNamed() {
        const nlohmann::json info = runShardscope({"info", at("model"), "--json"}).json();
        COMPARE_JSON(info["quantized"],
                     (nlohmann::json::array({{{"scheme", "fp8-inverse"},
                                              {"title", "fp8 with scales for blocks of 2x2"},
                                              {"weights", 2},
                                              {"tensors", 4},
                                              {"bytes", 64}}})));
        const std::string text = runShardscope({"info", at("model")}).out;
        QVERIFY2(text.find("2 weights") != text.npos, text.c_str());
        const nlohmann::json shown =
            runShardscope({"show", at("model"), "layers.1.weight_scale_inv", "--json"}).json();
        const nlohmann::json part = shown["tensor"]["quantized"];
        COMPARE_JSON(part["part"], "scale");
        COMPARE_JSON(part["weight"], "layers.1.weight");
        COMPARE_JSON(part["shape"], (nlohmann::json{4, 4}));
        COMPARE_JSON(part["parts"],
                     (nlohmann::json{{"values", "layers.1.weight"}, {"scale", "layers.1.weight_scale_inv"}}));
        const nlohmann::json listed = runShardscope({"ls", at("model"), "--json"}).json();
        for (const auto& tensor : listed["tensors"])
            QCOMPARE(tensor.contains("quantized"),
                     tensor["name"].get<std::string>().find("norm") == std::string::npos);
        QVERIFY(runShardscope({"ls", at("model")}).out.find("scale of fp8-inverse") != std::string::npos);
    }

    void halfAWeightIsRefused_data() {
        QTest::addColumn<QStringList>("how");
        QTest::addColumn<QString>("says");
        QTest::newRow("select") << QStringList{"--select", "*.weight"}
                                << "'layers.0.weight_scale_inv' would be left";
        QTest::newRow("exclude") << QStringList{"--exclude", "*1.weight"}
                                 << "'layers.1.weight' would be left";
        QTest::newRow("cast") << QStringList{"--dtype", "*.weight=bf16"} << "a cast to bfloat16";
        QTest::newRow("cast of the scale") << QStringList{"--dtype", "*_inv=bf16"} << "a cast to bfloat16";
    }
    void halfAWeightIsRefused() {
        QFETCH(QStringList, how);
        QFETCH(QString, says);
        const Outcome done = convert(at("model"), "half", how);
        QCOMPARE(done.exitCode, 5);
        QVERIFY2(done.out.find(says.toStdString()) != std::string::npos, done.out.c_str());
        QVERIFY2(done.out.find("--dequantize bf16") != std::string::npos, done.out.c_str());
        QVERIFY(!QFile::exists(at("half")));
    }

    void wholeWeightsAreCarried() {
        QCOMPARE(convert(at("model"), "same", {"--weights-only"}).exitCode, 0);
        COMPARE_JSON(digests(at("same")), digests(at("model")));
        QCOMPARE(convert(at("model"), "one", {"--select", "layers.0.*"}).exitCode, 0);
        QCOMPARE(digests(at("one")).size(), size_t{3});
        // A cast of the rest, and of what is computed.
        QCOMPARE(convert(at("model"), "norms", {"--dtype", "*norm=bf16"}).exitCode, 0);
        QCOMPARE(convert(at("model"), "all", {"--dequantize", "fp32", "--dtype", "*=bf16"}).exitCode, 0);
    }

    void otherNamesAreSaid() {
        const Outcome both = convert(at("model"), "both", {"--rename", "^layers=blocks"});
        QCOMPARE(both.exitCode, 0);
        COMPARE_JSON(both.json()["plan"]["notes"], nlohmann::json::array());
        const Outcome apart = convert(at("model"), "apart", {"--rename", "_scale_inv$=_scales"});
        QCOMPARE(apart.exitCode, 0);
        const nlohmann::json notes = apart.json()["plan"]["notes"];
        QCOMPARE(notes.size(), size_t{2});
        const std::string why = notes[0]["why"];
        QVERIFY2(why.find("'layers.0.weight_scales'") != why.npos, why.c_str());
    }

    void onePartIsExtracted() {
        QCOMPARE(runShardscope({"extract", at("model"), "layers.0.weight_scale_inv", at("part.safetensors")})
                     .exitCode,
                 0);
    }

    void missingPartsAreFound_data() {
        QTest::addColumn<QString>("gone");
        QTest::addColumn<QString>("says");
        QTest::newRow("scale") << "layers.1.weight_scale_inv"
                               << "'layers.1.weight_scale_inv' is missing";
        QTest::newRow("values") << "layers.0.weight"
                                << "'layers.0.weight' is missing";
        QTest::newRow("shape") << ""
                               << "'layers.0.weight_scale_inv' [3] does not fit 'layers.0.weight' [4, 4]";
    }
    void missingPartsAreFound() {
        QFETCH(QString, gone);
        QFETCH(QString, says);
        Model model = twoLayers();
        if (gone.isEmpty()) model["layers.0.weight_scale_inv"] = {"F32", {3}, floats({1, 2, 3})};
        model.erase(gone.toStdString());
        const QString directory = at(QString("broken-") + QTest::currentDataTag());
        writeModel(directory, model, kConfig);
        const Outcome found = runShardscope({"validate", directory, "--level", "metadata", "--json"});
        QCOMPARE(found.exitCode, 1);
        const nlohmann::json finding = findingOf(found.json(), "quant.part");
        COMPARE_JSON(finding["severity"], "error");
        QVERIFY2(finding.dump().find(says.toStdString()) != std::string::npos, found.out.c_str());
        // Neither as it is nor computed.
        for (const QStringList& how : {QStringList{}, QStringList{"--dequantize", "bf16"}}) {
            const Outcome done = convert(directory, "broken", how);
            QCOMPARE(done.exitCode, 5);
            QVERIFY2(done.out.find(says.toStdString()) != std::string::npos, done.out.c_str());
        }
        // Without it the other layer is whole.
        const QString broken = gone.contains('1') ? "layers.1.*" : "layers.0.*";
        QCOMPARE(convert(directory, QString("rest-") + QTest::currentDataTag(),
                         {"--dequantize", "bf16", "--exclude", broken})
                     .exitCode,
                 0);
    }

    void plainFloat8IsNotQuantized() {
        writeModel(at("plain"), {{"a.weight", {"F8_E4M3", {2, 2}, std::string(4, '\x38')}}}, {});
        COMPARE_JSON(runShardscope({"info", at("plain"), "--json"}).json()["quantized"],
                     nlohmann::json::array());
        QCOMPARE(convert(at("plain"), "cast", {"--dtype", "*=bf16"}).exitCode, 0);
    }

    void whatCannotBeComputedIsRefused() {
        const Outcome none = convert(at("plain"), "none", {"--dequantize", "bf16"});
        QCOMPARE(none.exitCode, 3);
        QVERIFY2(none.out.find("no quantized weights") != std::string::npos, none.out.c_str());
        const Outcome dtype = convert(at("model"), "none", {"--dequantize", "int8"});
        QCOMPARE(dtype.exitCode, 2);
        // Rows in the order of a GPU's kernels.
        writeModel(at("turing"),
                   {{"m.weight", {"I8", {2, 2}, std::string(4, '\1')}},
                    {"m.SCB", {"F32", {2}, floats({1, 2})}},
                    {"m.weight_format", {"U8", {}, std::string(1, '\2')}}},
                   {});
        const Outcome order = convert(at("turing"), "none", {"--dequantize", "bf16"});
        QCOMPARE(order.exitCode, 3);
        QVERIFY2(order.out.find("weight_format") != std::string::npos, order.out.c_str());
    }

    // Parts that point outside of each other, or claim what they do not have.
    void hostileParts_data() {
        QTest::addColumn<QString>("part");
        QTest::addColumn<QByteArray>("text");
        const QString state = "m.weight.quant_state.bitsandbytes__nf4";
        QTest::newRow("not JSON") << state << QByteArray("{");
        QTest::newRow("deep") << state << QByteArray(3000, '[');
        QTest::newRow("negative") << state << QByteArray(R"({"shape":[-2,4],"blocksize":64})");
        QTest::newRow("huge") << state
                              << QByteArray(R"({"shape":[281474976710656,281474976710656],"blocksize":64})");
        QTest::newRow("no blocks") << state << QByteArray(R"({"shape":[8,8],"blocksize":0})");
        QTest::newRow("more than there is") << state << QByteArray(R"({"shape":[64,64],"blocksize":64})");
        QTest::newRow("table") << "m.weight.quant_map" << QByteArray(8, '\0');
    }
    void hostileParts() {
        QFETCH(QString, part);
        QFETCH(QByteArray, text);
        const std::string state = R"({"quant_type":"nf4","blocksize":64,"dtype":"bfloat16","shape":[8,8]})";
        Model model{{"m.weight", {"U8", {32, 1}, std::string(32, '\x12')}},
                    {"m.weight.absmax", {"F32", {1}, floats({2})}},
                    {"m.weight.quant_map", {"F32", {16}, floats(std::vector<float>(16, 1))}},
                    {"m.weight.quant_state.bitsandbytes__nf4", {"U8", {int(state.size())}, state}}};
        const QString good = at(QString("good-") + QTest::currentDataTag());
        writeModel(good, model, {});
        QCOMPARE(convert(good, QString("fine-") + QTest::currentDataTag(), {"--dequantize", "fp32"}).exitCode,
                 0);
        const bool table = part.endsWith("map");
        model[part.toStdString()] = {
            table ? "F32" : "U8", {int(text.size()) / (table ? 4 : 1)}, text.toStdString()};
        const QString bad = at(QString("bad-") + QTest::currentDataTag());
        writeModel(bad, model, {});
        const Outcome done =
            convert(bad, QString("never-") + QTest::currentDataTag(), {"--dequantize", "fp32"});
        QVERIFY2(done.exitCode == 3 || done.exitCode == 5, (done.out + done.err).c_str());
        QVERIFY(!QFile::exists(at(QString("never-") + QTest::currentDataTag())));
    }
};

QTEST_MAIN(QuantizedCliTest)
#include "quantized_cli_test.moc"
