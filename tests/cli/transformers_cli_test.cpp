// `--to hf`: what transformers would not load is refused with the reason, and what wrappers do to names is
// undone. That the rest loads shows tests/peers/transformers_peer.py.
#include <QTemporaryDir>
#include <QTest>

#include "cli/run_shardscope.h"
#include "cli/written_model.h"

using namespace shardscope;
using namespace shardscope::test;
using Json = nlohmann::json;

namespace {

constexpr int kHidden = 8, kWidth = 12, kHeads = 4, kKeys = 2, kHead = 2, kWords = 10;
const Json kConfig = {{"architectures", {"LlamaForCausalLM"}},
                      {"model_type", "llama"},
                      {"hidden_size", kHidden},
                      {"intermediate_size", kWidth},
                      {"num_attention_heads", kHeads},
                      {"num_key_value_heads", kKeys},
                      {"num_hidden_layers", 2},
                      {"vocab_size", kWords},
                      {"tie_word_embeddings", false}};

Stored tensor(std::vector<int> shape, const std::string& dtype = "F32") {
    size_t bytes = dtype == "F32" ? sizeof(float) : 1;
    for (const int length : shape)
        bytes *= static_cast<size_t>(length);
    return {dtype, std::move(shape), std::string(bytes, '\0')};
}

Model llama() {
    Model model{{"model.embed_tokens.weight", tensor({kWords, kHidden})},
                {"lm_head.weight", tensor({kWords, kHidden})},
                {"model.norm.weight", tensor({kHidden})}};
    for (const char* layer : {"model.layers.0.", "model.layers.1."}) {
        const std::string at = layer;
        model[at + "self_attn.q_proj.weight"] = tensor({kHeads * kHead, kHidden});
        model[at + "self_attn.k_proj.weight"] = tensor({kKeys * kHead, kHidden});
        model[at + "self_attn.v_proj.weight"] = tensor({kKeys * kHead, kHidden});
        model[at + "self_attn.o_proj.weight"] = tensor({kHidden, kHeads * kHead});
        model[at + "mlp.gate_proj.weight"] = tensor({kWidth, kHidden});
        model[at + "mlp.up_proj.weight"] = tensor({kWidth, kHidden});
        model[at + "mlp.down_proj.weight"] = tensor({kHidden, kWidth});
        model[at + "input_layernorm.weight"] = tensor({kHidden});
        model[at + "post_attention_layernorm.weight"] = tensor({kHidden});
    }
    return model;
}

Model renamed(const Model& model, const std::string& from, const std::string& to) {
    Model out;
    for (const auto& [name, stored] : model) {
        std::string other = name;
        const size_t at = name.find(from);
        if (at != name.npos) other.replace(at, from.size(), to);
        out[other] = stored;
    }
    return out;
}

std::vector<std::string> namesIn(const Json& tensors) {
    std::vector<std::string> names;
    for (const auto& [name, digest] : tensors.items())
        names.push_back(name);
    return names;
}

}  // namespace

class TransformersCliTest : public QObject {
    Q_OBJECT

    QTemporaryDir place_;
    int count_ = 0;

    struct Result {
        int exitCode;
        std::string said;
        std::vector<std::string> names;
    };
    Result convert(const Model& model, const Json& config, const QStringList& more = {}) {
        const QString from = place_.filePath(QString::number(++count_)), to = from + "-out";
        writeModel(from, model, config);
        const Outcome done = runShardscope(QStringList{"convert", from, to, "--to", "hf"} + more);
        if (done.exitCode != 0) return {done.exitCode, done.out + done.err, {}};
        return {0, done.err, namesIn(runShardscope({"digest", to, "--json"}).json()["tensors"])};
    }

  private slots:
    void wrappersGo_data() {
        QTest::addColumn<QString>("before");
        QTest::addColumn<QString>("after");
        QTest::newRow("DDP") << ""
                             << "module.";
        QTest::newRow("compiled") << ""
                                  << "module._orig_mod.";
        QTest::newRow("compiled layers") << "layers.0."
                                         << "layers.0._orig_mod.";
        QTest::newRow("checkpointed") << "layers.1."
                                      << "layers.1._fsdp_wrapped_module._checkpoint_wrapped_module.";
        QTest::newRow("PEFT, merged") << ""
                                      << "base_model.model.";
    }
    void wrappersGo() {
        QFETCH(QString, before);
        QFETCH(QString, after);
        std::vector<std::string> wanted;
        for (const auto& [name, stored] : llama())
            wanted.push_back(name);
        const Result got = convert(renamed(llama(), before.toStdString(), after.toStdString()), kConfig);
        QVERIFY2(got.exitCode == 0, got.said.c_str());
        QVERIFY(got.names == wanted);
    }

    // Models of which nothing is known: the wrappers of training go all the same.
    void wrappersOfOtherModels() {
        Model model;
        for (const char* layer : {"gpt_neox.layers.0.", "gpt_neox.layers.1."})
            model[std::string("module.") + layer + "attention.dense.weight"] = tensor({4, 4});
        const Result got = convert(model, {{"model_type", "some_neox"}, {"num_hidden_layers", 2}});
        QVERIFY2(got.exitCode == 0, got.said.c_str());
        QVERIFY(got.names.front() == "gpt_neox.layers.0.attention.dense.weight");
        // Its output layer stands at the top.
        Model whole;
        for (const auto& [name, stored] : model)
            whole["state.model." + name.substr(7)] = stored;
        whole["state.model.embed_out.weight"] = tensor({4, 4});
        const Result below = convert(whole, {{"model_type", "some_neox"}, {"num_hidden_layers", 2}});
        QVERIFY2(below.exitCode == 0, below.said.c_str());
        QVERIFY(below.names.front() == "embed_out.weight");
    }

    void refused_data() {
        QTest::addColumn<QString>("what");
        QTest::addColumn<QString>("says");
        const auto row = [](const char* what, const char* says) { QTest::newRow(what) << what << says; };
        row("no output layer", "it has no output layer");
        row("no norm", "it lacks 'model.norm.weight', which a 'llama' has");
        row("no query", "it lacks 'model.layers.1.self_attn.q_proj.weight'");
        row("a layer more", "'config.json' has 2 layers");
        row("padded vocabulary", "its shape is [12, 8], 'config.json' has a vocabulary of 10");
        row("other width",
            "the shape of 'model.layers.0.mlp.down_proj.weight' is [8, 12], its config.json says [8, 16]");
        row("other heads", "k_proj.weight' is [4, 8], its config.json says [8, 8]");
        row("no biases", "it lacks 'model.layers.0.self_attn.k_proj.bias'");
        row("adapter", "it has 4 tensors of an adapter that is not merged");
        row("int8", "of quantized weights, such as");
        row("called quantized", "says that the weights are quantized (fp8), and they are plain");
        row("an average beside", "it holds two models, such as");
        row("actor and critic", "it holds two models, such as 'actor.");
        row("two below one name", "it holds two models, such as 'state.ema_model.");
        row("no embedding", "it lacks 'model.embed_tokens.weight'");
        row("a value head", "a 'mistral' has no 'v_head.summary.weight'");
        row("a value head of another family", "'v_head.summary.weight' is not of a 'LlamaForCausalLM'");
        row("no classifier", "it has no layer that classifies");
        row("half an MLP", "it has 'model.layers.0.mlp.up_proj.weight' and lacks");
        row("no attention output", "it has 'model.layers.0.self_attn.v_proj.weight' and lacks");
        row("other hidden size", "its config.json says a hidden size of 16");
        row("no last norm", "it has no norm behind its layers");
        row("another family", "it lacks 'model.layers.1.self_attn.q_proj.weight', which other layers have");
    }
    void refused() {
        QFETCH(QString, what);
        QFETCH(QString, says);
        Model model = llama();
        Json config = kConfig;
        const std::string query = "model.layers.1.self_attn.q_proj";
        if (what == "no output layer") model.erase("lm_head.weight");
        if (what == "no norm") model.erase("model.norm.weight");
        if (what == "no query" || what == "another family") model.erase(query + ".weight");
        if (what == "another family") config["model_type"] = "some_other";
        if (what == "a layer more")
            model["model.layers.2.mlp.up_proj.weight"] = model["model.layers.1.mlp.up_proj.weight"];
        if (what == "padded vocabulary") model["lm_head.weight"] = tensor({kWords + 2, kHidden});
        if (what == "other width") config["intermediate_size"] = 16;
        if (what == "other heads") config["num_key_value_heads"] = kHeads;
        if (what == "no biases") config["attention_bias"] = true;
        if (what == "an average beside")
            for (const auto& [name, stored] : llama())
                model["ema." + name] = stored;
        if (what == "actor and critic" || what == "two below one name") {
            const bool below = what == "two below one name";
            model = renamed(llama(), "", below ? "state.model." : "actor.");
            for (const auto& [name, stored] : renamed(llama(), "", below ? "state.ema_model." : "critic."))
                model[name] = stored;
        }
        if (what == "no embedding") model.erase("model.embed_tokens.weight");
        if (what.startsWith("a value head")) {
            model["v_head.summary.weight"] = tensor({1, kHidden});
            config["model_type"] = what == "a value head" ? "mistral" : "some_other";
        }
        if (what == "no classifier") config["architectures"] = {"LlamaForSequenceClassification"};
        if (what == "half an MLP" || what == "no last norm" || what == "other hidden size" ||
            what == "no attention output")
            config["model_type"] = "some_other";
        if (what == "no attention output")
            for (const char* layer : {"model.layers.0.", "model.layers.1."})
                model.erase(std::string(layer) + "self_attn.o_proj.weight");
        if (what == "half an MLP")
            for (const char* layer : {"model.layers.0.", "model.layers.1."})
                model.erase(std::string(layer) + "mlp.down_proj.weight");
        if (what == "no last norm") model.erase("model.norm.weight");
        if (what == "other hidden size") config["hidden_size"] = 16;
        if (what == "adapter") {
            for (const char* layer : {"model.layers.0.", "model.layers.1."}) {
                const std::string at = std::string(layer) + "self_attn.v_proj.lora_";
                model[at + "A.default.weight"] = tensor({2, kHidden});
                model[at + "B.default.weight"] = tensor({kKeys * kHead, 2});
            }
            config["model_type"] = "some_other";
        }
        if (what == "int8") {
            model[query + ".weight"] = tensor({kHeads * kHead, kHidden}, "I8");
            model[query + ".SCB"] = tensor({kHeads * kHead});
            config["model_type"] = "some_other";
        }
        if (what == "called quantized") config["quantization_config"] = {{"quant_method", "fp8"}};
        const Result got = convert(model, config);
        QCOMPARE(got.exitCode, 5);
        QVERIFY2(got.said.find("transformers will not load it") != std::string::npos, got.said.c_str());
        QVERIFY2(got.said.find(says.toStdString()) != std::string::npos, got.said.c_str());
    }

    // A model that classifies has a layer for it in place of the output layer.
    void classifiers() {
        Json config = kConfig;
        config["architectures"] = {"LlamaForSequenceClassification"};
        Model model = llama();
        model.erase("lm_head.weight");
        model["score.weight"] = tensor({1, kHidden});
        config["id2label"] = {{"0", "LABEL_0"}};
        const Result got = convert(model, config);
        QVERIFY2(got.exitCode == 0, got.said.c_str());
        QCOMPARE(got.names.size(), model.size());
        config.erase("id2label");
        const Result two = convert(model, config);
        QVERIFY2(two.said.find("'score.weight' is [1, 8], its config.json says [2, 8]") != std::string::npos,
                 two.said.c_str());
    }

    // The model without its output layer, as AutoModel saves it: nothing stands before its names.
    void withoutHead() {
        Json config = kConfig;
        config["architectures"] = {"LlamaModel"};
        Model model = renamed(llama(), "model.", "");
        model.erase("lm_head.weight");
        const Result got = convert(model, config);
        QVERIFY2(got.exitCode == 0, got.said.c_str());
        QCOMPARE(got.names.size(), model.size());
        for (const char* layer : {"layers.0.", "layers.1."})
            model.erase(std::string(layer) + "mlp.gate_proj.weight");
        const Result lacks = convert(model, config);
        QVERIFY2(lacks.said.find("it lacks 'layers.0.mlp.gate_proj.weight', which a 'llama' has") !=
                     std::string::npos,
                 lacks.said.c_str());
    }

    // A pipeline of diffusers: none of its models stands for all of them.
    void pipelineOfSeveralModels() {
        const QString pipeline = place_.filePath("pipeline");
        for (const char* part : {"unet", "text_encoder", "vae"})
            writeModel(pipeline + "/" + part, {{"mid.weight", tensor({2, 2})}}, nullptr);
        QFile index(pipeline + "/model_index.json");
        QVERIFY(index.open(QIODevice::WriteOnly));
        index.write("{\"_class_name\": \"StableDiffusionPipeline\"}");
        index.close();
        const Outcome info = runShardscope({"info", pipeline}),
                      one = runShardscope({"info", pipeline + "/vae"});
        QCOMPARE(one.exitCode, 0);
        QVERIFY(info.exitCode != 0);
        QVERIFY2(info.err.find("holds 3 checkpoints: text_encoder, unet, vae") != std::string::npos,
                 info.err.c_str());
    }

    // Of sentence-transformers: what follows the model is not left behind in silence.
    void modulesBeside() {
        const QString place = place_.filePath("sentences");
        writeModel(place, llama(), kConfig);
        writeModel(place + "/2_Dense", {{"linear.weight", tensor({2, 2})}}, nullptr);
        const Outcome alone = runShardscope({"convert", place, place + "-alone", "--to", "hf"});
        QVERIFY2(alone.exitCode == 0, alone.err.c_str());
        QFile modules(place + "/modules.json");
        QVERIFY(modules.open(QIODevice::WriteOnly) && modules.write("[]") == 2);
        modules.close();
        const Outcome lost = runShardscope({"convert", place, place + "-hf", "--to", "hf"});
        QVERIFY(lost.exitCode != 0);
        QVERIFY2(lost.err.find("such as '2_Dense'") != std::string::npos, lost.err.c_str());
    }

    // Where the table knows nothing, weights beside the configuration say which tensors a model has, whatever
    // it is.
    void comparedWithTheModel() {
        const Json config = {{"model_type", "some_other"}, {"num_hidden_layers", 2}};
        const QString whole = place_.filePath("model");
        writeModel(whole, llama(), config);
        const auto converted = [&](const Model& model) {
            const QString from = place_.filePath(QString::number(++count_));
            writeModel(from, model, nullptr);
            return runShardscope({"convert", from, from + "-out", "--to", "hf", "--assets", whole});
        };
        QCOMPARE(converted(llama()).exitCode, 0);
        Model less = llama(), more = llama();
        for (const char* layer : {"model.layers.0.", "model.layers.1."})
            less.erase(std::string(layer) + "input_layernorm.weight");
        more["extra.weight"] = tensor({2, 2});
        const Outcome lacks = converted(less), has = converted(more);
        QVERIFY2(lacks.err.find("it lacks 2 of the 21 tensors") != std::string::npos, lacks.err.c_str());
        QVERIFY2(has.err.find("does not have 1 of its tensors") != std::string::npos, has.err.c_str());
        more.erase("extra.weight");
        more["model.norm.weight"] = tensor({kHidden + 1});
        const Outcome shape = converted(more), prefix = converted(renamed(llama(), "", "a.b."));
        QVERIFY2(shape.err.find("the shape of 'model.norm.weight' is [9]") != std::string::npos,
                 shape.err.c_str());
        QVERIFY2(prefix.exitCode == 0, prefix.err.c_str());
        // Names that one tensor has in memory beside that of files.
        Model tied = llama();
        tied["model.decoder.embed_tokens.weight"] = tied["model.embed_tokens.weight"];
        const Outcome names = converted(tied);
        QVERIFY2(names.exitCode == 0, names.err.c_str());
        // Of a model in memory other names are those of files; they are not compared.
        QCOMPARE(converted(renamed(llama(), "model.", "model.language_model.")).exitCode, 0);
    }

    // Text and vision: recipes know the text model alone. Gate and up may be one tensor.
    void towersAndFusedLayers() {
        Json config = {{"architectures", {"Qwen2VLForConditionalGeneration"}},
                       {"model_type", "qwen2_vl"},
                       {"vision_config", {{"depth", 1}}}};
        Model model;
        for (const auto& [name, stored] : renamed(llama(), "model.", "model.language_model."))
            model["state." + name] = stored;
        model["state.model.visual.blocks.0.attn.proj.weight"] = tensor({4, 4});
        const Result both = convert(model, config);
        QVERIFY2(both.exitCode == 0, both.said.c_str());
        QVERIFY(both.names.front() == "lm_head.weight");
        model["state.v_head.summary.weight"] = tensor({1, kHidden});
        QCOMPARE(convert(model, config).exitCode, 5);
        Model fused = llama();
        for (const std::string layer : {"model.layers.0.mlp.", "model.layers.1.mlp."}) {
            for (const char* part : {"gate_proj.weight", "up_proj.weight"})
                fused.erase(layer + part);
            fused[layer + "gate_up_proj.weight"] = tensor({2 * kWidth, kHidden});
        }
        config = kConfig;
        config["model_type"] = "some_phi";
        const Result phi = convert(fused, config);
        QVERIFY2(phi.exitCode == 0, phi.said.c_str());
    }

    // One of two tied names, or both.
    void tiedNames() {
        Json config = kConfig;
        config["tie_word_embeddings"] = true;
        for (const char* without : {"", "lm_head.weight"}) {
            Model model = llama();
            model.erase(without);
            const Result got = convert(model, config);
            QVERIFY2(got.exitCode == 0, got.said.c_str());
            QCOMPARE(got.names.size(), model.size());
        }
    }
};

QTEST_GUILESS_MAIN(TransformersCliTest)
#include "transformers_cli_test.moc"
