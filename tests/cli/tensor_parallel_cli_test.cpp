// Models written in files of tensor-parallel ranks. That their loaders take them shows
// tests/peers/tensor_parallel_peer.py; here are the names, the way back and what is refused.
#include <QDir>
#include <QTemporaryDir>
#include <QTest>
#include <fstream>

#include "cli/run_shardscope.h"
#include "cli/written_model.h"

using namespace shardscope;
using namespace shardscope::test;
using Json = nlohmann::json;

namespace {

constexpr int kHidden = 8, kWidth = 12, kHeads = 4, kKeys = 2, kHead = kHidden / kHeads, kWords = 70;

Stored filled(std::vector<int> shape) {
    static float next = 1;
    int count = 1;
    for (const int size : shape)
        count *= size;
    std::vector<float> values;
    for (int i = 0; i < count; ++i)
        values.push_back(next++);
    return {"F32", std::move(shape), floats(values)};
}

Model llama() {
    Model model{{"model.embed_tokens.weight", filled({kWords, kHidden})},
                {"model.norm.weight", filled({kHidden})},
                {"lm_head.weight", filled({kWords, kHidden})}};
    for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
        model[layer + "self_attn.q_proj.weight"] = filled({kHidden, kHidden});
        model[layer + "self_attn.k_proj.weight"] = filled({kKeys * kHead, kHidden});
        model[layer + "self_attn.v_proj.weight"] = filled({kKeys * kHead, kHidden});
        model[layer + "self_attn.o_proj.weight"] = filled({kHidden, kHidden});
        model[layer + "mlp.gate_proj.weight"] = filled({kWidth, kHidden});
        model[layer + "mlp.up_proj.weight"] = filled({kWidth, kHidden});
        model[layer + "mlp.down_proj.weight"] = filled({kHidden, kWidth});
        model[layer + "input_layernorm.weight"] = filled({kHidden});
        model[layer + "post_attention_layernorm.weight"] = filled({kHidden});
    }
    return model;
}

Json config() {
    return {{"architectures", {"LlamaForCausalLM"}},
            {"model_type", "llama"},
            {"hidden_size", kHidden},
            {"intermediate_size", kWidth},
            {"num_hidden_layers", 2},
            {"num_attention_heads", kHeads},
            {"num_key_value_heads", kKeys},
            {"vocab_size", kWords},
            {"rms_norm_eps", 1e-5},
            {"rope_theta", 500000.0},
            {"tie_word_embeddings", false}};
}

// The header of a safetensors file.
Json headerOf(const QString& path) {
    std::ifstream file(path.toStdString(), std::ios::binary);
    uint64_t size = 0;
    file.read(reinterpret_cast<char*>(&size), sizeof(size));
    std::string text(file ? size : 0, ' ');
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    return Json::parse(text);
}

Json jsonIn(const QString& path) {
    std::ifstream file(path.toStdString());
    return Json::parse(file);
}

}  // namespace

class TensorParallelCliTest : public QObject {
    Q_OBJECT

    QTemporaryDir place_;
    QString at(const QString& name) const { return place_.filePath(name); }
    Outcome convert(const QString& from, const QString& to, const QStringList& more) const {
        return runShardscope(QStringList{"convert", at(from), at(to), "--json"} + more);
    }
    Json digests(const QString& path) const {
        return runShardscope({"digest", path, "--algorithm", "sha256", "--json"}).json()["tensors"];
    }

  private slots:
    void initTestCase() { writeModel(at("hf"), llama(), config()); }

    void vllmFilesHoldEachRanksParts() {
        const Outcome done = convert("hf", "vllm", {"--to", "vllm", "--mesh", "tp=4", "--strict"});
        QVERIFY2(done.exitCode == 0, (done.out + done.err).c_str());
        QCOMPARE(QDir(at("vllm")).entryList({"*.safetensors"}).size(), 4);
        const Json header = headerOf(at("vllm") + "/model-rank-3-part-0.safetensors");
        const std::string layer = "model.layers.1.";
        // One head of queries, and the head of keys and of values that two ranks share.
        COMPARE_JSON(header[layer + "self_attn.qkv_proj.weight"]["shape"], Json({3 * kHead, kHidden}));
        COMPARE_JSON(header[layer + "mlp.gate_up_proj.weight"]["shape"], Json({2 * kWidth / 4, kHidden}));
        COMPARE_JSON(header[layer + "mlp.down_proj.weight"]["shape"], Json({kHidden, kWidth / 4}));
        COMPARE_JSON(header[layer + "input_layernorm.weight"]["shape"], Json({kHidden}));
        COMPARE_JSON(header[layer + "self_attn.attn._prob_scale"]["shape"], Json::array());
        COMPARE_JSON(header["lm_head.weight"]["shape"], Json({32, kHidden}));  // of 128 rows
        COMPARE_JSON(jsonIn(at("vllm") + "/config.json"), config());
        const Outcome back = convert("vllm", "back", {"--to", "hf"});
        QVERIFY2(back.exitCode == 0, (back.out + back.err).c_str());
        COMPARE_JSON(digests(at("back")), digests(at("hf")));
    }

    void anotherNumberOfRanksAndSmallFiles() {
        QCOMPARE(convert("hf", "two", {"--to", "vllm", "--mesh", "tp=2"}).exitCode, 0);
        const Outcome done = convert(
            "two", "one",
            {"--to", "tensor-parallel", "--variant", "vllm", "--mesh", "tp=1", "--max-file-size", "1KB"});
        QVERIFY2(done.exitCode == 0, (done.out + done.err).c_str());
        QVERIFY(QFile::exists(at("one") + "/model-rank-0-part-3.safetensors"));
        COMPARE_JSON(digests(at("one")), digests(at("two")));
    }

    void withoutScalesForVllmThatDoesNotRegisterThem() {
        const Outcome done = convert(
            "hf", "older", {"--to", "vllm", "--map", "llama-vllm-from-hf", "--set", "attention_scales=0"});
        QVERIFY2(done.exitCode == 0, (done.out + done.err).c_str());
        const std::string names = headerOf(at("older") + "/model-rank-0-part-0.safetensors").dump();
        QVERIFY(names.find("_scale") == std::string::npos);
    }

    void tiedOutputIsTheNameThatVllmKeeps() {
        Model model = llama();
        Json how = config();
        model.erase("lm_head.weight");
        how["tie_word_embeddings"] = true;
        writeModel(at("tied"), model, how);
        const Outcome done = convert("tied", "tied-out", {"--to", "vllm", "--mesh", "tp=2"});
        QVERIFY2(done.exitCode == 0, (done.out + done.err).c_str());
        const Json header = headerOf(at("tied-out") + "/model-rank-0-part-0.safetensors");
        QVERIFY(header.contains("lm_head.weight") && !header.contains("model.embed_tokens.weight"));
        const Outcome back = convert("tied-out", "tied-back", {"--to", "hf"});
        QVERIFY2(back.exitCode == 0, (back.out + back.err).c_str());
        COMPARE_JSON(digests(at("tied-back")), digests(at("tied")));
        // Stored as well, as in the state dict of a module, the embedding counts.
        model["lm_head.weight"] = model["model.embed_tokens.weight"];
        writeModel(at("tied-both"), model, how);
        const Outcome both = convert("tied-both", "tied-both-out", {"--to", "vllm", "--mesh", "tp=2"});
        QVERIFY2(both.exitCode == 0, (both.out + both.err).c_str());
        COMPARE_JSON(digests(at("tied-both-out")), digests(at("tied-out")));
        // Meta's Llama has an output layer of its own.
        for (const QString from : {"tied", "tied-both"}) {
            const Outcome meta = convert(from, from + "-meta", {"--to", "meta", "--mesh", "tp=2"});
            QVERIFY2(meta.exitCode == 0, (meta.out + meta.err).c_str());
            const Json made = digests(at(from + "-meta"));
            COMPARE_JSON(made["output.weight"], made["tok_embeddings.weight"]);
        }
    }

    // Names of Megatron and torchtitan, and those of Hugging Face under a key: by two recipes, in one
    // command.
    void throughHuggingFacesNames_data() {
        QTest::addColumn<QStringList>("there");
        QTest::newRow("Megatron") << QStringList{"--to",  "megatron",  "--map", "llama-megatron-from-hf",
                                                 "--set", "stacked=1", "--set", "padded_vocab_size=192"};
        QTest::newRow("torchtitan") << QStringList{"--to", "dcp", "--map", "llama-torchtitan-from-hf"};
        QTest::newRow("under a key") << QStringList{"--to", "dcp", "--rename", "^=model."};
    }
    void throughHuggingFacesNames() {
        QFETCH(QStringList, there);
        const QString from = QString(QTest::currentDataTag()).replace(' ', '-');
        const Outcome made = convert("hf", from, there);
        QVERIFY2(made.exitCode == 0, (made.out + made.err).c_str());
        for (const QString to : {"vllm", "meta"}) {
            const QStringList words{"--to", to, "--mesh", "tp=2"};
            QCOMPARE(convert("hf", from + "-wanted-" + to, words).exitCode, 0);
            const Outcome done = convert(from, from + "-" + to, words + QStringList{"--assets", at("hf")});
            QVERIFY2(done.exitCode == 0, (done.out + done.err).c_str());
            COMPARE_JSON(digests(at(from + "-" + to)), digests(at(from + "-wanted-" + to)));
        }
    }

    void metaFilesAndParams_data() {
        QTest::addColumn<QString>("to");
        QTest::addColumn<int>("ranks");
        QTest::newRow("one rank") << "meta" << 1;
        QTest::newRow("two ranks") << "meta" << 2;
        QTest::newRow("two ranks, Llama 2") << "meta-llama2" << 2;
    }
    void metaFilesAndParams() {
        QFETCH(QString, to);
        QFETCH(int, ranks);
        const QString out = QStringLiteral("%1-%2").arg(to).arg(ranks);
        const Outcome done =
            convert("hf", out, {"--to", to, "--mesh", QStringLiteral("tp=%1").arg(ranks), "--strict"});
        QVERIFY2(done.exitCode == 0, (done.out + done.err).c_str());
        QCOMPARE(QDir(at(out)).entryList({"consolidated.0?.pth"}).size(), ranks);
        const Json params = jsonIn(at(out) + "/params.json");
        QCOMPARE(params["dim"].get<int>(), kHidden);
        QCOMPARE(params["n_layers"].get<int>(), 2);
        QCOMPARE(params["n_heads"].get<int>(), kHeads);
        QCOMPARE(params["n_kv_heads"].get<int>(), kKeys);
        QCOMPARE(params["vocab_size"].get<int>(), kWords);
        QCOMPARE(params["norm_eps"].get<double>(), 1e-5);
        QCOMPARE(params["rope_theta"].get<double>(), 500000.0);
        // As Meta's FeedForward computes it.
        const int multiple = params["multiple_of"].get<int>();
        const int hidden = static_cast<int>(params.value("ffn_dim_multiplier", 1.0) * (8 * kHidden / 3));
        QCOMPARE((hidden + multiple - 1) / multiple * multiple, kWidth);
        const Outcome back = convert(out, out + "-back", {"--to", "hf", "--assets", at("hf")});
        QVERIFY2(back.exitCode == 0, (back.out + back.err).c_str());
        COMPARE_JSON(digests(at(out + "-back")), digests(at("hf")));
    }

    void whatLoadersDoNotTakeIsRefused_data() {
        QTest::addColumn<QStringList>("words");
        QTest::addColumn<QString>("key");
        QTest::addColumn<QString>("value");
        QTest::addColumn<QString>("said");
        const QStringList vllm{"--to", "vllm", "--mesh", "tp=2"}, meta{"--to", "meta", "--mesh", "tp=2"};
        const auto refused = [](const char* name, const QStringList& words, const char* key,
                                const char* value,
                                const char* said) { QTest::newRow(name) << words << key << value << said; };
        refused("another model", vllm, "architectures", R"(["GemmaForCausalLM"])", "GemmaForCausalLM");
        refused("no architecture", vllm, "architectures", "[]", "architectures");
        refused("quantized", vllm, "quantization_config", "{}", "quantized");
        refused("other heads", vllm, "num_key_value_heads", "4", "does not load");
        refused("other vocabulary", vllm, "vocab_size", "200", "vocab_size");
        refused("a layer is missing", vllm, "num_hidden_layers", "3", "lacks it");
        refused("five ranks", {"--to", "vllm", "--mesh", "tp=5"}, "hidden_act", R"("silu")",
                "among 5 tensor-parallel ranks");
        refused("another mesh", {"--to", "vllm", "--mesh", "dp=2"}, "hidden_act", R"("silu")", "dp=2");
        refused("nobody's files", {"--to", "tensor-parallel"}, "hidden_act", R"("silu")", "whose files");
        refused("two variants", {"--to", "vllm", "--variant", "meta"}, "hidden_act", R"("silu")",
                "stands for");
        refused("more ranks than keys", {"--to", "meta", "--mesh", "tp=4"}, "hidden_act", R"("silu")",
                "heads");
        refused("not a Llama", meta, "model_type", R"("qwen2")", "qwen2");
        refused("biases", meta, "attention_bias", "true", "biases");
        refused("size of heads", meta, "head_dim", "4", "heads of");
        refused("rotary positions", meta, "rope_scaling", R"({"rope_type": "yarn", "factor": 2})", "yarn");
    }
    void whatLoadersDoNotTakeIsRefused() {
        QFETCH(QStringList, words);
        QFETCH(QString, key);
        QFETCH(QString, value);
        QFETCH(QString, said);
        Json how = config();
        how[key.toStdString()] = Json::parse(value.toStdString());
        writeModel(at("refused"), llama(), how);
        const Outcome done = convert("refused", "out", words);
        QVERIFY(done.exitCode > 0);
        QVERIFY2((done.out + done.err).find(said.toStdString()) != std::string::npos,
                 (done.out + done.err).c_str());
        QVERIFY(!QFile::exists(at("out")));
    }

    void whatAllRanksLackIsFound_data() {
        QTest::addColumn<QString>("part");
        QTest::addColumn<QString>("said");
        QTest::newRow("the last part") << "*"
                                       << "model.norm.weight";
        QTest::newRow("the first part") << "0"
                                        << "file.missing";
    }
    void whatAllRanksLackIsFound() {
        QFETCH(QString, part);
        QFETCH(QString, said);
        const QString out = QStringLiteral("lost-%1").arg(QString::fromLatin1(QTest::currentDataTag()));
        const Outcome done = convert("hf", out, {"--to", "vllm", "--mesh", "tp=2", "--max-file-size", "1KB"});
        QVERIFY2(done.exitCode == 0, (done.out + done.err).c_str());
        QCOMPARE(runShardscope({"validate", at(out)}).exitCode, 0);
        if (part == "*") {
            const auto parts =
                QDir(at(out)).entryList({"model-rank-0-part-?.safetensors"}, QDir::Files, QDir::Name);
            part = parts.back().section('-', -1).section('.', 0, 0);
        }
        for (const int rank : {0, 1})
            QVERIFY(QFile::remove(
                QStringLiteral("%1/model-rank-%2-part-%3.safetensors").arg(at(out)).arg(rank).arg(part)));
        const Outcome judged = runShardscope({"validate", at(out)});
        QVERIFY(judged.exitCode != 0);
        QVERIFY2(judged.out.find(said.toStdString()) != std::string::npos, judged.out.c_str());
    }

    // Of layers that the configuration does not count, the others show what the last one lacks.
    void theLastLayerHasWhatAllOthersHave() {
        for (const bool whole : {true, false}) {
            for (const char* rank : {"0", "1"}) {
                Model model;
                for (int layer = 0; layer < 5; ++layer) {
                    const std::string name = "h." + std::to_string(layer);
                    model[name + ".norm.weight"] = {"F32", {2}, floats({1, 2})};
                    if (layer < 4 || whole) model[name + ".o_proj.weight"] = filled({2, 2});
                }
                writeModel(at("layers"), model, {}, QStringLiteral("model-rank-%1-part-0").arg(rank));
            }
            const Outcome judged = runShardscope({"validate", at("layers")});
            QCOMPARE(judged.exitCode == 0, whole);
            QCOMPARE(judged.out.find("h.4.o_proj.weight") == std::string::npos, whole);
        }
    }

    void theNumberOfMissingFilesIsSaid() {
        writeModel(at("many"), {{"norm.weight", filled({4})}}, {}, "model-rank-1999-part-0");
        const Outcome judged = runShardscope({"validate", at("many")});
        QVERIFY2(judged.out.find("1,999 files are missing in all") != std::string::npos, judged.out.c_str());
    }

    void publishedModelsCountTheirFiles() {
        writeModel(at("grok"), {{"norm.weight", filled({4})}}, {}, "pytorch_model-00000-TP-common");
        for (const char* rank : {"0", "1"})
            writeModel(at("grok"), {{"model.layers.0.o_proj.weight", filled({4, 4})}}, {},
                       QStringLiteral("pytorch_model-00001-TP-00%1").arg(rank));
        QCOMPARE(runShardscope({"validate", at("grok")}).exitCode, 0);
        QVERIFY(QFile::remove(at("grok") + "/pytorch_model-00000-TP-common.safetensors"));
        const Outcome judged = runShardscope({"validate", at("grok")});
        QVERIFY(judged.exitCode != 0);
        QVERIFY2(judged.out.find("pytorch_model-00000-TP-") != std::string::npos, judged.out.c_str());
    }

    // As torch writes safetensors files of ranks: some rank has a file of each index.
    void filesOfRanksCountTheirSet() {
        writeModel(at("set"), {{"a.weight", filled({4, 4})}}, {}, "shard-00001-model-00001-of-00002");
        const Outcome lost = runShardscope({"validate", at("set")});
        QVERIFY(lost.exitCode != 0);
        QVERIFY2(lost.out.find("model-00002-of-00002") != std::string::npos, lost.out.c_str());
        writeModel(at("set"), {{"b.weight", filled({4, 4})}}, {}, "shard-00002-model-00002-of-00002");
        QCOMPARE(runShardscope({"validate", at("set")}).exitCode, 0);
    }

    void scaledRotaryPositionsOfLlama31() {
        Json how = config();
        how["rope_scaling"] = {{"rope_type", "llama3"},
                               {"factor", 8.0},
                               {"low_freq_factor", 1.0},
                               {"high_freq_factor", 4.0},
                               {"original_max_position_embeddings", 8192}};
        writeModel(at("llama31"), llama(), how);
        QCOMPARE(convert("llama31", "llama31-out", {"--to", "meta"}).exitCode, 0);
        QVERIFY(jsonIn(at("llama31-out") + "/params.json")["use_scaled_rope"].get<bool>());
    }
};

QTEST_GUILESS_MAIN(TensorParallelCliTest)
#include "tensor_parallel_cli_test.moc"
