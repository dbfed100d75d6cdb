// LoRA adapters merged into the weights of a checkpoint. That the values are those of PEFT shows
// tests/peers/adapter_peer.py; here all numbers are exact.
#include <QTemporaryDir>
#include <QTest>
#include <cmath>
#include <fstream>
#include <set>

#include "cli/run_shardscope.h"
#include "cli/written_model.h"

using namespace shardscope;
using namespace shardscope::test;
using Json = nlohmann::json;

namespace {

using Matrix = std::vector<float>;

// Small integers, other ones for each seed.
Matrix numbers(int count, int seed) {
    Matrix values;
    for (int i = 0; i < count; ++i)
        values.push_back(static_cast<float>((i * 7 + seed * 5 + i * i) % 11 - 5));
    return values;
}

// w[rows, columns] + scaling * (b[rows, rank] @ a[rank, columns])
Matrix product(Matrix w, const Matrix& b, const Matrix& a, int columns, int rank, float scaling) {
    for (size_t i = 0; i < w.size(); ++i) {
        const auto row = static_cast<int>(i) / columns, column = static_cast<int>(i) % columns;
        float sum = 0;
        for (int k = 0; k < rank; ++k)
            sum += b[static_cast<size_t>(row * rank + k)] * a[static_cast<size_t>(k * columns + column)];
        w[i] += scaling * sum;
    }
    return w;
}

Matrix turned(const Matrix& m, int rows, int columns) {
    Matrix to(m.size());
    for (int i = 0; i < rows * columns; ++i)
        to[static_cast<size_t>(i % columns * rows + i / columns)] = m[static_cast<size_t>(i)];
    return to;
}

Stored f32(std::vector<int> shape, const Matrix& values) {
    return {"F32", std::move(shape), floats(values)};
}

constexpr int kRows = 12, kColumns = 70, kWords = 9, kRank = 3;
const std::string kQ = "model.layers.0.q_proj", kUp = "model.layers.0.up_proj", kWordsName = "model.embed";
const std::string kPeft = "base_model.model.";

Model baseModel() {
    return {{kQ + ".weight", f32({kRows, kColumns}, numbers(kRows * kColumns, 1))},
            {kUp + ".weight", f32({kColumns, kRows}, numbers(kRows * kColumns, 2))},
            {kWordsName + ".weight", f32({kWords, kColumns}, numbers(kWords * kColumns, 3))},
            {"lm_head.weight", f32({kWords, kColumns}, numbers(kWords * kColumns, 4))},
            {"model.norm.weight", f32({kColumns}, numbers(kColumns, 5))}};
}
Model adapterModel() {
    return {{kPeft + kQ + ".lora_A.weight", f32({kRank, kColumns}, numbers(kRank * kColumns, 6))},
            {kPeft + kQ + ".lora_B.weight", f32({kRows, kRank}, numbers(kRows * kRank, 7))},
            {kPeft + kUp + ".lora_A.weight", f32({2, kRows}, numbers(2 * kRows, 8))},
            {kPeft + kUp + ".lora_B.weight", f32({kColumns, 2}, numbers(kColumns * 2, 9))},
            {kPeft + kWordsName + ".lora_embedding_A", f32({kRank, kWords}, numbers(kRank * kWords, 10))},
            {kPeft + kWordsName + ".lora_embedding_B", f32({kColumns, kRank}, numbers(kColumns * kRank, 11))},
            {kPeft + "lm_head.weight", f32({kWords, kColumns}, numbers(kWords * kColumns, 12))}};
}
const QDir kQuantized(QStringLiteral(SHARDSCOPE_TEST_DATA "/quantized"));
const QString kWeightsByColumns = QStringLiteral("*_proj.weight:tp=1");
// Scaled by 2, and by 4 for up_proj.
const Json kHow = {{"peft_type", "LORA"},
                   {"r", kRank},
                   {"lora_alpha", 2 * kRank},
                   {"rank_pattern", {{"up_proj", 2}}},
                   {"alpha_pattern", {{R"(layers\.\d+\.up_proj)", 8}}}};

Model mergedModel() {
    Model merged = baseModel();
    merged[kQ + ".weight"] =
        f32({kRows, kColumns}, product(numbers(kRows * kColumns, 1), numbers(kRows * kRank, 7),
                                       numbers(kRank * kColumns, 6), kColumns, kRank, 2));
    merged[kUp + ".weight"] = f32(
        {kColumns, kRows},
        product(numbers(kRows * kColumns, 2), numbers(kColumns * 2, 9), numbers(2 * kRows, 8), kRows, 2, 4));
    merged[kWordsName + ".weight"] =
        f32({kWords, kColumns},
            product(numbers(kWords * kColumns, 3), turned(numbers(kRank * kWords, 10), kRank, kWords),
                    turned(numbers(kColumns * kRank, 11), kColumns, kRank), kColumns, kRank, 2));
    merged["lm_head.weight"] = f32({kWords, kColumns}, numbers(kWords * kColumns, 12));
    return merged;
}

constexpr int kExperts = 3, kInner = 5;
const std::string kMlp = "model.layers.0.mlp.experts";

// Of each expert, rows of the weight in order: B [out, rank * experts] and A [experts * rank, in].
Matrix expertsProduct(const Matrix& w, const Matrix& a, const Matrix& b, int rows, int columns,
                      float scaling) {
    Matrix merged;
    for (int e = 0; e < kExperts; ++e) {
        Matrix left, right(a.begin() + e * kRank * columns, a.begin() + (e + 1) * kRank * columns);
        for (int row = 0; row < rows; ++row) {
            for (int k = 0; k < kRank; ++k)
                left.push_back(b[static_cast<size_t>((row * kRank + k) * kExperts + e)]);
        }
        const Matrix own(w.begin() + e * rows * columns, w.begin() + (e + 1) * rows * columns);
        const Matrix sum = product(own, left, right, columns, kRank, scaling);
        merged.insert(merged.end(), sum.begin(), sum.end());
    }
    return merged;
}

// The weights of all experts in one tensor each, [experts, out, in], before and after the merge.
struct ExpertWeights {
    Matrix gateUp = numbers(kExperts * 2 * kInner * kRows, 20), down = numbers(kExperts * kRows * kInner, 21);

    Model together() const {
        return {{kMlp + ".gate_up_proj", f32({kExperts, 2 * kInner, kRows}, gateUp)},
                {kMlp + ".down_proj", f32({kExperts, kRows, kInner}, down)}};
    }
    // As files of Mixtral have them.
    Model apart() const {
        Model model;
        const std::string stem = "model.layers.0.block_sparse_moe.experts.";
        for (int e = 0; e < kExperts; ++e) {
            const auto gate = gateUp.begin() + e * 2 * kInner * kRows, up = gate + kInner * kRows;
            const std::string expert = stem + std::to_string(e);
            model[expert + ".w1.weight"] = f32({kInner, kRows}, Matrix(gate, up));
            model[expert + ".w3.weight"] = f32({kInner, kRows}, Matrix(up, up + kInner * kRows));
            const auto own = down.begin() + e * kRows * kInner;
            model[expert + ".w2.weight"] = f32({kRows, kInner}, Matrix(own, own + kRows * kInner));
        }
        return model;
    }
    ExpertWeights merged() const {
        return {expertsProduct(gateUp, numbers(kExperts * kRank * kRows, 22),
                               numbers(2 * kInner * kRank * kExperts, 23), 2 * kInner, kRows, 2),
                expertsProduct(down, numbers(kExperts * kRank * kInner, 24),
                               numbers(kRows * kRank * kExperts, 25), kRows, kInner, 2)};
    }
    // PEFT names the module, and the first parameter that it wrapped is the innermost.
    static Model adapter(const std::string& name) {
        const std::string stem = kPeft + kMlp, inner = stem + ".base_layer";
        return {
            {inner + ".lora_A" + name, f32({kExperts * kRank, kRows}, numbers(kExperts * kRank * kRows, 22))},
            {inner + ".lora_B" + name,
             f32({2 * kInner, kRank * kExperts}, numbers(2 * kInner * kRank * kExperts, 23))},
            {stem + ".lora_A" + name,
             f32({kExperts * kRank, kInner}, numbers(kExperts * kRank * kInner, 24))},
            {stem + ".lora_B" + name, f32({kRows, kRank * kExperts}, numbers(kRows * kRank * kExperts, 25))}};
    }
};
const Json kHowExperts = {{"peft_type", "LORA"},
                          {"r", kRank},
                          {"lora_alpha", 2 * kRank},
                          {"target_parameters", {"mlp.experts.gate_up_proj", "experts.down_proj"}}};

}  // namespace

class AdapterCliTest : public QObject {
    Q_OBJECT

    QTemporaryDir place_;
    QString at(const QString& name) const { return place_.filePath(name); }
    void writeAdapter(const QString& name, const Model& model, const Json& how) const {
        writeModel(at(name), model, nullptr, "adapter_model");
        if (!how.is_null()) writeText(at(name) + "/adapter_config.json", how.dump());
    }
    Json digests(const QString& path) const {
        return runShardscope({"digest", path, "--algorithm", "sha256", "--json"}).json()["tensors"];
    }
    Outcome convert(const QString& from, const QString& to, const QStringList& more) const {
        return runShardscope(QStringList{"convert", at(from), at(to), "--json"} + more);
    }

  private slots:
    void initTestCase() {
        writeModel(at("base"), baseModel(), nullptr);
        writeModel(at("merged"), mergedModel(), nullptr);
        writeAdapter("adapter", adapterModel(), kHow);
    }

    void weightsAreMerged() {
        const Outcome done =
            convert("base", "out", {"--to", "safetensors", "--adapter", at("adapter"), "--strict"});
        QVERIFY2(done.exitCode == 0, (done.out + done.err).c_str());
        COMPARE_JSON(digests(at("out")), digests(at("merged")));
        std::map<std::string, std::string> made;
        const Json report = done.json();
        for (const Json& entry : report["plan"]["made"])
            made[entry["name"]] = entry["from"];
        QCOMPARE(made.size(), size_t{4});
        QVERIFY(made[kUp + ".weight"].find("W + 4 * B @ A") != std::string::npos);
        QVERIFY(made["lm_head.weight"].find("from the adapter") != std::string::npos);
    }

    // PEFT saves an embedding together with its adapter, and loads that.
    void layersThatTheAdapterBrings() {
        Model base = baseModel(), adapter = adapterModel();
        adapter[kPeft + kWordsName + ".base_layer.weight"] = base[kWordsName + ".weight"];
        base[kWordsName + ".weight"] = base["lm_head.weight"];
        writeModel(at("before"), base, nullptr);
        writeAdapter("brings", adapter, kHow);
        QCOMPARE(convert("before", "brought", {"--adapter", at("brings")}).exitCode, 0);
        COMPARE_JSON(digests(at("brought")), digests(at("merged")));
    }

    // One tensor for embedding and output layer: an adapter that trained one of them by itself makes two.
    void tiedTensors() {
        Model base = baseModel(), adapter = adapterModel();
        const std::string embedding = "model.embed_tokens";
        base[embedding + ".weight"] = base[kWordsName + ".weight"];
        for (const std::string& name : {kWordsName + ".weight", std::string("lm_head.weight")})
            base.erase(name);
        for (const char* end : {".lora_embedding_A", ".lora_embedding_B"})
            adapter.erase(kPeft + kWordsName + end);
        const Stored trained = adapter[kPeft + "lm_head.weight"];
        writeModel(at("tied"), base, {{"tie_word_embeddings", true}});
        const auto merged = [&](const QString& name, const Model& with) {
            writeAdapter(name, with, kHow);
            return convert("tied", name + "-out", {"--to", "safetensors", "--adapter", at(name)});
        };
        const Outcome head = merged("only-head", adapter);
        const std::string said = head.out + head.err;
        QVERIFY2(said.find("trained one of them by itself") != std::string::npos, said.c_str());
        adapter[kPeft + embedding + ".weight"] = trained;
        const Outcome both = merged("both", adapter);
        QVERIFY2(both.exitCode == 0, (both.out + both.err).c_str());
        QVERIFY(digests(at("both-out"))[embedding + ".weight"] == digests(at("merged"))["lm_head.weight"]);
        adapter.erase(kPeft + "lm_head.weight");
        QCOMPARE(merged("only-embedding", adapter).exitCode, 5);
        // Without a tie it is an embedding like another.
        writeModel(at("tied"), base, {{"tie_word_embeddings", false}});
        QCOMPARE(merged("untied", adapter).exitCode, 0);
    }

    // Bases and adapters of other containers, sharded, with prefixes; several processes; parts.
    void otherContainers_data() {
        QTest::addColumn<QStringList>("base");
        QTest::addColumn<QStringList>("adapter");
        QTest::addColumn<QStringList>("how");
        const QStringList plain{"--to", "torch"},
            columns{"--to", "dcp", "--mesh", "tp=2", "--shard", "*q_proj*:tp=1", "--shard", "*:tp=0"};
        const QStringList prefixed = columns + QStringList{"--rename", "^=model."};
        QTest::newRow("columns") << columns << columns << QStringList{"--to", "safetensors"};
        QTest::newRow("kept") << columns << plain << QStringList{};
        QTest::newRow("resharded") << prefixed << prefixed
                                   << QStringList{"--to", "dcp", "--mesh", "tp=3", "--shard", "*:tp=0"};
        QTest::newRow("flat") << QStringList{"--to", "torch-ranks", "--mesh", "fsdp=2"} << columns
                              << QStringList{"--to", "safetensors"};
        QTest::newRow("ZeRO") << plain << QStringList{"--to", "deepspeed"}
                              << QStringList{"--to", "safetensors"};
        QTest::newRow("processes") << plain << plain << QStringList{"--to", "dcp", "--on", "local:2"};
    }
    void otherContainers() {
        QFETCH(QStringList, base);
        QFETCH(QStringList, adapter);
        QFETCH(QStringList, how);
        const QString row = QTest::currentDataTag();
        for (const auto& [name, words] : {std::pair{"base", base}, std::pair{"adapter", adapter}}) {
            const Outcome moved = convert(name, row + name, words);
            QVERIFY2(moved.exitCode == 0, (moved.out + moved.err).c_str());
        }
        const QString config = at(row + "adapter") + "/adapter_config.json";
        if (QDir(at(row + "adapter")).exists()) {
            writeText(config, kHow.dump());
        } else {
            writeText(at("adapter_config.json"), kHow.dump());
        }
        const Outcome done =
            convert(row + "base", row + "out", QStringList{"--adapter", at(row + "adapter")} + how);
        QVERIFY2(done.exitCode == 0, (done.out + done.err).c_str());
        Json got;
        const Json all = digests(at(row + "out"));
        for (const auto& [name, digest] : all.items())
            got[name.substr(name.starts_with("model.model.") || name == "model.lm_head.weight" ? 6 : 0)] =
                digest;
        COMPARE_JSON(got, digests(at("merged")));
        if (row != "kept") return;
        // Chunks are where the source has them.
        COMPARE_JSON(runShardscope({"info", at(row + "out"), "--json"}).json()["chunks"],
                     runShardscope({"info", at(row + "base"), "--json"}).json()["chunks"]);
    }

    // A quantized base is computed first, as float32 where the adapter changes it: the sum is rounded once.
    void quantizedBases_data() {
        QTest::addColumn<QString>("name");
        for (const QString& name : kQuantized.entryList(QDir::Dirs | QDir::NoDotAndDotDot))
            if (name != "mxfp4")
                QTest::newRow(qPrintable(name)) << name;  // that one has stacked experts only, no matrix
    }
    void quantizedBases() {
        QFETCH(QString, name);
        const QString source = kQuantized.filePath(name), wide = at("wide-" + name), how = "adapter-" + name;
        const auto run = [](const QString& from, const QString& to, const QStringList& more) {
            return runShardscope(QStringList{"convert", from, to, "--to", "safetensors", "--json"} + more);
        };
        QCOMPARE(run(source, wide, {"--dequantize", "fp32"}).exitCode, 0);
        Model adapter;
        std::set<std::string> changed;
        std::ifstream answers(kQuantized.filePath(name + "/expected.json").toStdString());
        const Json expected = Json::parse(answers);
        for (const auto& [weight, answer] : expected.items()) {
            const auto shape = answer["shape"].get<std::vector<int>>();
            if (shape.size() != 2 || !weight.ends_with(".weight") || changed.size() > 1) continue;
            changed.insert(weight);
            const std::string stem = kPeft + weight.substr(0, weight.size() - 7);
            adapter[stem + ".lora_A.weight"] = f32({kRank, shape[1]}, numbers(kRank * shape[1], 3));
            adapter[stem + ".lora_B.weight"] = f32({shape[0], kRank}, numbers(shape[0] * kRank, 4));
        }
        QVERIFY(!changed.empty());
        writeAdapter(how, adapter, {{"peft_type", "LORA"}, {"r", kRank}, {"lora_alpha", 2}});
        QCOMPARE(run(wide, wide + "-merged", {"--adapter", at(how)}).exitCode, 0);
        for (const QString dtype : {"fp32", "bf16"}) {
            const QString out = at(dtype + "-" + name);
            const Outcome done = run(source, out, {"--dequantize", dtype, "--adapter", at(how)});
            QVERIFY2(done.exitCode == 0, (done.out + done.err).c_str());
            QCOMPARE(run(wide + "-merged", out + "-wanted", {"--dtype", "*=" + dtype}).exitCode, 0);
            const Json made = digests(out), merged = digests(out + "-wanted");
            for (const auto& [weight, answer] : expected.items())
                COMPARE_JSON(made[weight],
                             changed.contains(weight) ? merged[weight] : answer[dtype.toStdString()]);
        }
        const Outcome without = run(source, at("never"), {"--adapter", at(how)});
        QCOMPARE(without.exitCode, 5);
        const std::string said = without.out + without.err;
        QVERIFY2(said.find("is quantized (") != std::string::npos, said.c_str());
        QVERIFY2(said.find("--dequantize bf16 computes") != std::string::npos, said.c_str());
    }

    void partsAgreeOnTheAdapter() {
        const auto part = [&](const QString& to, const QString& which) {
            return convert("base", to,
                           {"--to", "dcp", "--adapter", at("agreed"), "--part", which, "--finish", "auto"});
        };
        writeAdapter("agreed", adapterModel(), kHow);
        QCOMPARE(part("parts", "0/2").exitCode, 0);
        QCOMPARE(part("parts", "1/2").exitCode, 0);
        COMPARE_JSON(digests(at("parts")), digests(at("merged")));
        QCOMPARE(part("others", "0/2").exitCode, 0);
        Json other = kHow;
        other["lora_alpha"] = 9;
        writeAdapter("agreed", adapterModel(), other);
        QVERIFY(part("others", "1/2").exitCode != 0);
        QVERIFY(!QDir(at("others")).exists());
    }

    // A weight of 16 bits that is wanted as float32 is rounded once.
    void wideResultsAreRoundedOnce() {
        QCOMPARE(convert("base", "narrow", {"--to", "safetensors", "--dtype", "*=bf16"}).exitCode, 0);
        for (const QString dtype : {"fp32", "bf16"})
            QCOMPARE(convert("narrow", "from-" + dtype,
                             {"--to", "safetensors", "--adapter", at("adapter"), "--dtype", "*=" + dtype})
                         .exitCode,
                     0);
        COMPARE_JSON(digests(at("from-fp32")), digests(at("merged")));
        QCOMPARE(convert("merged", "rounded", {"--to", "safetensors", "--dtype", "*=bf16"}).exitCode, 0);
        COMPARE_JSON(digests(at("from-bf16")), digests(at("rounded")));
    }

    // (W + scaling * B @ A) * (magnitude / norm of the row), of any row whatever the shards.
    void magnitudesOfDora() {
        Model adapter{{kPeft + kQ + ".lora_A.weight", adapterModel()[kPeft + kQ + ".lora_A.weight"]},
                      {kPeft + kQ + ".lora_B.weight", adapterModel()[kPeft + kQ + ".lora_B.weight"]}};
        const Matrix magnitudes = numbers(kRows, 13);
        adapter[kPeft + kQ + ".lora_magnitude_vector"] = f32({kRows}, magnitudes);
        Json how = kHow;
        how["use_dora"] = true;
        writeAdapter("dora", adapter, how);
        Matrix sum = product(numbers(kRows * kColumns, 1), numbers(kRows * kRank, 7),
                             numbers(kRank * kColumns, 6), kColumns, kRank, 2);
        for (size_t row = 0; row < kRows; ++row) {
            double squares = 0;
            float* const values = sum.data() + row * kColumns;
            for (int j = 0; j < kColumns; ++j)
                squares += static_cast<double>(values[j]) * values[j];
            const float factor = magnitudes[row] / static_cast<float>(std::sqrt(squares));
            for (int j = 0; j < kColumns; ++j)
                values[j] *= factor;
        }
        Model want = baseModel();
        want[kQ + ".weight"] = f32({kRows, kColumns}, sum);
        writeModel(at("dora-merged"), want, nullptr);
        const Outcome done = convert("base", "dora-out", {"--to", "safetensors", "--adapter", at("dora")});
        QVERIFY2(done.exitCode == 0, (done.out + done.err).c_str());
        COMPARE_JSON(digests(at("dora-out")), digests(at("dora-merged")));
        // Shards along the columns hold parts of each row.
        QCOMPARE(
            convert("base", "cut", {"--to", "dcp", "--mesh", "tp=2", "--shard", kWeightsByColumns}).exitCode,
            0);
        QCOMPARE(convert("cut", "dora-cut", {"--to", "dcp", "--adapter", at("dora")}).exitCode, 0);
        COMPARE_JSON(digests(at("dora-cut")), digests(at("dora-merged")));
    }

    // PEFT's target_parameters: experts in one tensor, or each by itself in the files, as a whole or in
    // shards.
    void singleParameters() {
        writeModel(at("experts"), ExpertWeights().together(), nullptr);
        writeModel(at("experts-merged"), ExpertWeights().merged().together(), nullptr);
        writeModel(at("apart"), ExpertWeights().apart(), nullptr);
        writeModel(at("apart-merged"), ExpertWeights().merged().apart(), nullptr);
        writeAdapter("of-files", ExpertWeights::adapter(".weight"), kHowExperts);
        writeAdapter("of-memory", ExpertWeights::adapter(".default.weight"), kHowExperts);
        const QStringList cut{"--to",    "dcp",         "--mesh",   "tp=2",
                              "--shard", "*_proj:tp=2", "--rename", "^=module."};
        QCOMPARE(convert("experts", "experts-cut", cut).exitCode, 0);
        struct Case {
            const char *base, *adapter, *wanted;
            QStringList words;
        };
        const Case cases[] = {
            {"experts", "of-files", "experts-merged", {}},
            {"experts-cut",
             "of-memory",
             "experts-merged",
             {"--to", "safetensors", "--rename", "^module[.]="}},
            {"apart", "of-files", "apart-merged", {"--to", "dcp", "--mesh", "ep=2", "--shard", "*:ep=0"}},
            {"apart", "of-memory", "apart-merged", {"--on", "local:2"}}};
        for (const auto& [base, adapter, wanted, words] : cases) {
            const QString out = QString(base) + adapter + words.join("").left(6);
            const Outcome done =
                convert(base, out, QStringList{"--adapter", at(adapter), "--strict"} + words);
            QVERIFY2(done.exitCode == 0, (done.out + done.err).c_str());
            COMPARE_JSON(digests(at(out)), digests(at(wanted)));
        }
    }

    void refusedParameters_data() {
        QTest::addColumn<QString>("what");
        QTest::addColumn<QString>("says");
        QTest::addColumn<int>("exitCode");
        const auto row = [](const char* what, const char* says, int code) {
            QTest::newRow(what) << what << says << code;
        };
        row("nothing says which", "no target_parameters", 5);
        row("another module", "no target_parameters", 5);
        row("one is missing", "another parameter", 5);
        row("more than the file has", "1 pair of matrices", 5);
        row("another rank", "do not make up", 5);
        row("square", "fit 'model.layers.0.mlp.experts.down_proj' [3, 12, 12] in 2 ways", 5);
        row("an expert is missing", "no target_parameters", 5);
        row("no texts", "target_parameters that are not", 3);
    }
    void refusedParameters() {
        QFETCH(QString, what);
        QFETCH(QString, says);
        QFETCH(int, exitCode);
        Model base = ExpertWeights().together(), model = ExpertWeights::adapter(".weight");
        const std::string outer = kPeft + kMlp + ".lora_";
        Json how = kHowExperts;
        if (what == "nothing says which") how.erase("target_parameters");
        if (what == "another module") how["target_parameters"] = {"other.gate_up_proj", "other.down_proj"};
        if (what == "one is missing" || what == "more than the file has") {
            const std::string stem = what == "one is missing" ? outer : kPeft + kMlp + ".base_layer.lora_";
            model.erase(stem + "A.weight");
            model.erase(stem + "B.weight");
        }
        if (what == "another rank") how["rank_pattern"]["experts.down_proj"] = 2;
        if (what == "square") {
            const int rows = kExperts * kRank;
            base = {
                {kMlp + ".down_proj", f32({kExperts, kRows, kRows}, numbers(kExperts * kRows * kRows, 1))}};
            model = {{outer + "A.weight", f32({rows, kRows}, numbers(rows * kRows, 2))},
                     {outer + "B.weight", f32({kRows, rows}, numbers(rows * kRows, 3))}};
        }
        if (what == "an expert is missing") {
            base = ExpertWeights().apart();
            base.erase("model.layers.0.block_sparse_moe.experts.1.w2.weight");
            base.erase("model.layers.0.block_sparse_moe.experts.1.w1.weight");
        }
        if (what == "no texts") how["target_parameters"] = "mlp.experts.gate_up_proj";
        const QString name = "parameters-" + QString(what).replace(' ', '-');
        writeModel(at(name + "-base"), base, nullptr);
        writeAdapter(name, model, how);
        const Outcome done = convert(name + "-base", "never", {"--adapter", at(name)});
        QVERIFY2(done.exitCode == exitCode, (done.out + done.err).c_str());
        QVERIFY2((done.out + done.err).find(says.toStdString()) != std::string::npos,
                 (done.out + done.err).c_str());
    }

    void refusals_data() {
        QTest::addColumn<QString>("what");
        QTest::addColumn<QString>("says");
        QTest::addColumn<int>("exitCode");
        const auto row = [](const char* what, const char* says, int code) {
            QTest::newRow(what) << what << says << code;
        };
        row("no configuration", "adapter_config.json", 2);
        row("unknown weight", "model.layers.7.q_proj", 5);
        row("half", "other matrix", 5);
        row("shape", "do not make up", 5);
        row("rank", "says 5", 5);
        row("DoRA", "use_dora", 5);
        row("magnitudes", "use_dora", 5);
        row("few magnitudes", "7 elements for 12 outputs", 5);
        row("DoRA of embeddings", "DoRA of embeddings", 3);
        row("PiSSA", "pissa", 3);
        row("other kind", "LOHA", 3);
        row("two adapters", "several adapters", 5);
        row("no LoRA", "name of LoRA", 3);
        row("patterns", "rank_pattern", 3);
    }
    void refusals() {
        QFETCH(QString, what);
        QFETCH(QString, says);
        QFETCH(int, exitCode);
        Model model = adapterModel();
        Json how = kHow;
        const std::string a = kPeft + kQ + ".lora_A.weight";
        const Stored down = model[a];
        if (what == "no configuration") how = nullptr;
        if (what == "unknown weight") model[kPeft + "model.layers.7.q_proj.lora_A.weight"] = down;
        if (what == "half") model.erase(a);
        if (what == "shape") model[a] = f32({kRank, kRows}, numbers(kRank * kRows, 1));
        if (what == "rank") how["rank_pattern"]["q_proj"] = 5;
        if (what == "DoRA") how["use_dora"] = true;
        if (what == "magnitudes")
            model[kPeft + kQ + ".lora_magnitude_vector"] = f32({kRows}, numbers(kRows, 1));
        if (what == "few magnitudes") {
            how["use_dora"] = true;
            model[kPeft + kQ + ".lora_magnitude_vector"] = f32({7}, numbers(7, 1));
            model[kPeft + kUp + ".lora_magnitude_vector"] = f32({kColumns}, numbers(kColumns, 1));
            model.erase(kPeft + kWordsName + ".lora_embedding_A");
            model.erase(kPeft + kWordsName + ".lora_embedding_B");
        }
        if (what == "DoRA of embeddings") {
            how["use_dora"] = true;
            model[kPeft + kWordsName + ".lora_magnitude_vector"] = f32({kColumns}, numbers(kColumns, 1));
        }
        if (what == "PiSSA") how["init_lora_weights"] = "pissa_niter_4";
        if (what == "other kind") how["peft_type"] = "LOHA";
        if (what == "two adapters") {
            model[kPeft + kQ + ".lora_A.one.weight"] = down;
            model[kPeft + kQ + ".lora_A.two.weight"] = down;
            model.erase(a);
        }
        if (what == "patterns") how["rank_pattern"] = Json::array({"q_proj", 1e300});
        if (what == "no LoRA") model = {{"lm_head.weight", model[kPeft + "lm_head.weight"]}};
        QDir().mkpath(at("refused"));
        const QString name = "refused/" + QString(what).replace(' ', '-');
        writeAdapter(name, model, how);
        const Outcome done = convert("base", "never", {"--to", "safetensors", "--adapter", at(name)});
        QVERIFY2(done.exitCode == exitCode, (done.out + done.err).c_str());
        QVERIFY2((done.out + done.err).find(says.toStdString()) != std::string::npos,
                 (done.out + done.err).c_str());
        QVERIFY(!QDir(at("never")).exists());
    }

    // Megatron has one rank and one scaling: zeros and powers of two make those of PEFT's adapter one.
    void oneRankAndScaling() {
        const std::string layer = "model.layers.0.self_attn.";
        const Model adapter{{kPeft + layer + "q_proj.lora_A.weight", f32({2, 4}, numbers(8, 1))},
                            {kPeft + layer + "q_proj.lora_B.weight", f32({3, 2}, numbers(6, 2))},
                            {kPeft + layer + "o_proj.lora_A.weight", f32({4, 3}, numbers(12, 3))},
                            {kPeft + layer + "o_proj.lora_B.weight", f32({4, 4}, numbers(16, 4))}};
        Json how = {{"peft_type", "LORA"}, {"r", 4}, {"lora_alpha", 8}, {"rank_pattern", {{"q_proj", 2}}}};
        writeAdapter("uneven", adapter, how);
        const QStringList words{"--to", "safetensors", "--map", "llama-megatron-from-peft"};
        const Outcome done = convert("uneven", "even", words);
        QVERIFY2(done.exitCode == 0, (done.out + done.err).c_str());
        QVERIFY2(done.out.find("16 for rank 4") != std::string::npos, done.out.c_str());
        Matrix down = numbers(8, 1), up;
        down.resize(16);
        for (size_t row = 0; row < 3; ++row)
            up.insert(up.end(), {numbers(6, 2)[2 * row], numbers(6, 2)[2 * row + 1], 0, 0});
        Matrix halved = numbers(16, 4);
        for (float& value : halved)
            value /= 2;
        const std::string to = "decoder.layers.0.self_attention.linear_";
        writeModel(at("even-wanted"),
                   {{to + "qkv.adapter.adapter_q.linear_in.weight", f32({4, 4}, down)},
                    {to + "qkv.adapter.adapter_q.linear_out.weight", f32({3, 4}, up)},
                    {to + "proj.adapter.linear_in.weight", f32({4, 3}, numbers(12, 3))},
                    {to + "proj.adapter.linear_out.weight", f32({4, 4}, halved)}},
                   nullptr);
        COMPARE_JSON(digests(at("even")), digests(at("even-wanted")));
        // 8 / 4 of one, 3 / 2 of the other
        how["alpha_pattern"] = {{"q_proj", 3}};
        writeAdapter("odd", adapter, how);
        const Outcome odd = convert("odd", "never", words);
        QCOMPARE(odd.exitCode, 5);
        QVERIFY2((odd.out + odd.err).find("Megatron has one scaling") != std::string::npos, odd.out.c_str());
    }

    // What Megatron keeps as one matrix must be one.
    void partsThatShareAMatrix() {
        const std::string layer = kPeft + "model.layers.0.mlp.";
        Model adapter{{layer + "gate_proj.lora_A.weight", f32({2, 4}, numbers(8, 1))},
                      {layer + "gate_proj.lora_B.weight", f32({3, 2}, numbers(6, 2))},
                      {layer + "up_proj.lora_A.weight", f32({2, 4}, numbers(8, 1))},
                      {layer + "up_proj.lora_B.weight", f32({3, 2}, numbers(6, 3))}};
        const QStringList words{"--to",  "safetensors", "--map", "llama-megatron-from-peft",
                                "--set", "fused=1",     "--set", "heads=4"};
        writeAdapter("one-matrix", adapter, {{"peft_type", "LORA"}, {"r", 2}, {"lora_alpha", 4}});
        QCOMPARE(convert("one-matrix", "fused", words).exitCode, 0);
        adapter[layer + "up_proj.lora_A.weight"] = f32({2, 4}, numbers(8, 7));
        writeAdapter("two-matrices", adapter, nullptr);
        const Outcome done = convert("two-matrices", "never", words);
        QCOMPARE(done.exitCode, 5);
        QVERIFY2((done.out + done.err).find("not those of the other parts") != std::string::npos,
                 done.out.c_str());
    }

    // It would belong to the weights as they were.
    void optimizerStateIsNotCarried() {
        Model model = baseModel();
        model["optim.state." + kQ + ".weight.exp_avg"] = model[kQ + ".weight"];
        writeModel(at("training"), model, nullptr);
        const QStringList words{"--to", "dcp", "--adapter", at("adapter")};
        const Outcome refused = convert("training", "trained", words);
        QCOMPARE(refused.exitCode, 5);
        QVERIFY2((refused.out + refused.err).find("--weights-only") != std::string::npos,
                 refused.err.c_str());
        QCOMPARE(convert("training", "trained", words + QStringList{"--weights-only"}).exitCode, 0);
        COMPARE_JSON(digests(at("trained")), digests(at("merged")));
    }
};

QTEST_GUILESS_MAIN(AdapterCliTest)
#include "adapter_cli_test.moc"
