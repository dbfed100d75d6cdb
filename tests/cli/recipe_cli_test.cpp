// Recipes as a user runs them. What the steps make is compared with the same done element by element, by the
// definition of each layout.
#include <QFile>
#include <QJsonArray>
#include <QJsonDocument>
#include <QJsonObject>
#include <QTemporaryDir>
#include <QtTest>
#include <cmath>
#include <functional>

#include "cli/run_shardscope.h"
#include "cli/state_file.h"
#include "engine/engine.h"
#include "engine/recipe.h"

using namespace shardscope;
using namespace shardscope::test;

namespace {

// Row r of the result is row of(r) of the argument.
Array rows(const Array& in, int64_t count, const std::function<int64_t(int64_t)>& of) {
    const int64_t width = static_cast<int64_t>(in.values.size()) / in.shape[0];
    Array out{in.shape, {}};
    out.shape[0] = count;
    for (int64_t r = 0; r < count; ++r) {
        const auto begin = in.values.begin() + static_cast<ptrdiff_t>(of(r) * width);
        out.values.insert(out.values.end(), begin, begin + static_cast<ptrdiff_t>(width));
    }
    return out;
}

Array transposed(const Array& in) {
    Array out{{in.shape[1], in.shape[0]}, {}};
    for (int64_t i = 0; i < in.shape[1]; ++i) {
        for (int64_t j = 0; j < in.shape[0]; ++j)
            out.values.push_back(in.values[static_cast<size_t>(j * in.shape[1] + i)]);
    }
    return out;
}

Array stacked(const std::vector<Array>& parts) {
    Array out = parts[0];
    for (size_t i = 1; i < parts.size(); ++i) {
        out.shape[0] += parts[i].shape[0];
        out.values.insert(out.values.end(), parts[i].values.begin(), parts[i].values.end());
    }
    return out;
}

std::string replaced(std::string text, const std::string& what, const std::string& with) {
    if (const size_t at = text.find(what); at != std::string::npos) text.replace(at, what.size(), with);
    return text;
}

// 8 query heads, 2 key-value heads of 4 rows.
constexpr int64_t kHeads = 8, kKvHeads = 2, kHeadDim = 4, kHidden = 6, kFfn = 10;

State hfLlama() {
    State state;
    for (int layer = 0; layer < 2; ++layer) {
        const std::string p = "model.layers." + std::to_string(layer) + ".";
        const float base = static_cast<float>(layer) * 10'000;
        state[p + "self_attn.q_proj.weight"] = numbers({kHeads * kHeadDim, kHidden}, base);
        state[p + "self_attn.k_proj.weight"] = numbers({kKvHeads * kHeadDim, kHidden}, base + 1000);
        state[p + "self_attn.v_proj.weight"] = numbers({kKvHeads * kHeadDim, kHidden}, base + 2000);
        state[p + "self_attn.o_proj.weight"] = numbers({kHidden, kHeads * kHeadDim}, base + 3000);
        state[p + "mlp.gate_proj.weight"] = numbers({kFfn, kHidden}, base + 4000);
        state[p + "mlp.up_proj.weight"] = numbers({kFfn, kHidden}, base + 5000);
        state[p + "mlp.down_proj.weight"] = numbers({kHidden, kFfn}, base + 6000);
        state[p + "input_layernorm.weight"] = numbers({kHidden}, base + 7000);
        state[p + "post_attention_layernorm.weight"] = numbers({kHidden}, base + 8000);
    }
    state["model.embed_tokens.weight"] = numbers({12, kHidden}, 50'000);
    state["model.norm.weight"] = numbers({kHidden}, 51'000);
    state["lm_head.weight"] = numbers({12, kHidden}, 52'000);
    return state;
}

constexpr const char* kConfig =
    R"({"num_attention_heads": 8, "num_key_value_heads": 2, "torch_dtype": "float32"})";

// The same with what makes it a model of transformers.
constexpr const char* kModel =
    R"({"model_type": "llama", "num_attention_heads": 8, "num_key_value_heads": 2, "num_hidden_layers": 2,
        "vocab_size": 12})";

State prefixed(const State& state, const std::string& prefix) {
    State out;
    for (const auto& [name, values] : state)
        out[prefix + name] = values;
    return out;
}

}  // namespace

class RecipeCliTest : public QObject {
    Q_OBJECT

    QTemporaryDir dir_;
    int next_ = 0;
    QString fresh() { return dir_.filePath(QString::number(next_++)); }

    // Runs a recipe over a state; the source is beside a config.json when `config` is given.
    State mapped(const State& state, const QString& map, const QStringList& more = {},
                 const char* config = nullptr) {
        const QString from = fresh(), to = fresh();
        writeState(from.toStdString() + "/model.safetensors", state);
        if (config) writeFile(from.toStdString() + "/config.json", config);
        const Outcome done =
            runShardscope(QStringList{"convert", from, to, "--to", "safetensors", "--map", map} + more);
        if (done.exitCode != 0) qWarning("%s", done.err.c_str());
        return done.exitCode == 0 ? readState(to.toStdString()) : State();
    }

    QString recipe(const std::string& steps, const std::string& more = {}) {
        const QString path = fresh() + ".json";
        writeFile(path.toStdString(), "{\"steps\": [" + steps + "]" + more + "}");
        return path;
    }

    // The message of a recipe that does not fit.
    std::string refused(const State& state, const QString& map, const QStringList& more = {}) {
        const QString from = fresh();
        writeState(from.toStdString() + "/model.safetensors", state);
        const Outcome done =
            runShardscope(QStringList{"plan", from, fresh(), "--to", "safetensors", "--map", map} + more);
        return done.exitCode == 2 ? done.err : "exit code " + std::to_string(done.exitCode) + ": " + done.err;
    }

  private slots:
    // Megatron keeps, for each key-value head, its query heads, its key head and its value head.
    void llamaMegatron() {
        const State hf = hfLlama();
        const State megatron = mapped(hf, "llama-megatron-from-hf", {}, kConfig);
        const Array& q = hf.at("model.layers.1.self_attn.q_proj.weight");
        const Array& k = hf.at("model.layers.1.self_attn.k_proj.weight");
        const Array& v = hf.at("model.layers.1.self_attn.v_proj.weight");
        std::vector<Array> parts;
        const int64_t group = kHeads / kKvHeads;
        for (int64_t g = 0; g < kKvHeads; ++g) {
            for (int64_t h = 0; h < group; ++h)
                parts.push_back(rows(q, kHeadDim, [&](int64_t r) { return (g * group + h) * kHeadDim + r; }));
            parts.push_back(rows(k, kHeadDim, [&](int64_t r) { return g * kHeadDim + r; }));
            parts.push_back(rows(v, kHeadDim, [&](int64_t r) { return g * kHeadDim + r; }));
        }
        QCOMPARE(megatron.size(), size_t{2 * 6 + 3});
        QVERIFY(megatron.at("decoder.layers.1.self_attention.linear_qkv.weight") == stacked(parts));
        QVERIFY(megatron.at("decoder.layers.0.mlp.linear_fc1.weight") ==
                stacked({hf.at("model.layers.0.mlp.gate_proj.weight"),
                         hf.at("model.layers.0.mlp.up_proj.weight")}));
        QVERIFY(megatron.at("decoder.layers.0.mlp.linear_fc1.layer_norm_weight") ==
                hf.at("model.layers.0.post_attention_layernorm.weight"));
        QVERIFY(megatron.at("output_layer.weight") == hf.at("lm_head.weight"));
        QVERIFY(mapped(megatron, "llama-hf-from-megatron", {"--set", "heads=8", "--set", "kv_heads=2"}) ==
                hf);
    }

    // Pairs (2j, 2j + 1) of a head against (j, j + half).
    void llamaMeta() {
        const State hf = hfLlama();
        const State meta = mapped(hf, "llama-meta-from-hf", {}, kConfig);
        const auto interleaved = [](int64_t r) {
            const int64_t head = r / kHeadDim, in = r % kHeadDim;
            return head * kHeadDim + in % 2 * (kHeadDim / 2) + in / 2;
        };
        QVERIFY(meta.at("layers.1.attention.wq.weight") ==
                rows(hf.at("model.layers.1.self_attn.q_proj.weight"), kHeads * kHeadDim, interleaved));
        QVERIFY(meta.at("layers.1.attention.wk.weight") ==
                rows(hf.at("model.layers.1.self_attn.k_proj.weight"), kKvHeads * kHeadDim, interleaved));
        QVERIFY(meta.at("layers.1.attention.wv.weight") == hf.at("model.layers.1.self_attn.v_proj.weight"));
        QVERIFY(meta.at("layers.0.feed_forward.w3.weight") == hf.at("model.layers.0.mlp.up_proj.weight"));
        QVERIFY(meta.contains("tok_embeddings.weight") && meta.contains("norm.weight") &&
                meta.contains("output.weight"));
        QVERIFY(mapped(meta, "llama-hf-from-meta", {}, kConfig) == hf);
    }

    void llamaPaddle() {
        const State hf = hfLlama();
        const State paddle = mapped(hf, "llama-paddle-from-hf");
        QVERIFY(paddle.at("llama.layers.0.mlp.down_proj.weight") ==
                transposed(hf.at("model.layers.0.mlp.down_proj.weight")));
        QVERIFY(paddle.at("lm_head.weight") == transposed(hf.at("lm_head.weight")));
        QVERIFY(paddle.at("llama.embed_tokens.weight") == hf.at("model.embed_tokens.weight"));
        QVERIFY(mapped(paddle, "llama-hf-from-paddle") == hf);
    }

    void gpt2Megatron() {
        State hf;
        for (int layer = 0; layer < 2; ++layer) {
            const std::string p = "transformer.h." + std::to_string(layer) + ".";
            const float base = static_cast<float>(layer) * 10'000;
            hf[p + "attn.c_attn.weight"] = numbers({8, 24}, base);
            hf[p + "attn.c_attn.bias"] = numbers({24}, base + 500);
            hf[p + "attn.c_proj.weight"] = numbers({8, 8}, base + 1000);
            hf[p + "attn.c_proj.bias"] = numbers({8}, base + 1500);
            hf[p + "mlp.c_fc.weight"] = numbers({8, 32}, base + 2000);
            hf[p + "mlp.c_fc.bias"] = numbers({32}, base + 2500);
            hf[p + "mlp.c_proj.weight"] = numbers({32, 8}, base + 3000);
            hf[p + "mlp.c_proj.bias"] = numbers({8}, base + 3500);
            for (const char* ln : {"ln_1.weight", "ln_1.bias", "ln_2.weight", "ln_2.bias"})
                hf[p + ln] = numbers({8}, base + 4000 + static_cast<float>(ln[3] * 7 + ln[5]));
        }
        hf["transformer.wte.weight"] = numbers({11, 8}, 40'000);
        hf["transformer.wpe.weight"] = numbers({5, 8}, 41'000);
        hf["transformer.ln_f.weight"] = numbers({8}, 42'000);
        hf["transformer.ln_f.bias"] = numbers({8}, 43'000);
        const State megatron = mapped(hf, "gpt2-megatron-from-hf", {"--set", "heads=2"});
        // Head by head: 4 rows of q, of k, of v; each 8 rows in c_attn.
        const auto order = [](int64_t r) { return r / 4 % 3 * 8 + r / 12 * 4 + r % 4; };
        const Array weight = transposed(hf.at("transformer.h.1.attn.c_attn.weight"));
        QVERIFY(megatron.at("decoder.layers.1.self_attention.linear_qkv.weight") == rows(weight, 24, order));
        QVERIFY(megatron.at("decoder.layers.1.self_attention.linear_qkv.bias") ==
                rows(hf.at("transformer.h.1.attn.c_attn.bias"), 24, order));
        QVERIFY(megatron.at("decoder.layers.0.mlp.linear_fc2.weight") ==
                transposed(hf.at("transformer.h.0.mlp.c_proj.weight")));
        QVERIFY(megatron.contains("decoder.final_layernorm.bias"));
        QVERIFY(megatron.contains("embedding.position_embeddings.weight"));
        QVERIFY(mapped(megatron, "gpt2-hf-from-megatron", {"--set", "heads=2"}) == hf);
    }

    // Weights and optimizer state of a checkpoint that OLMo wrote, there and back.
    void olmo() {
        const QString from = QStringLiteral(SHARDSCOPE_TEST_DATA "/genuine/olmo/unsharded_fp32_fqn/ckpt");
        const QString hf = fresh(), back = fresh();
        const QStringList heads{"--set", "heads=2"};
        Outcome done = runShardscope(QStringList{"convert", from, hf, "--to", "torch", "--map",
                                                 "olmo-hf-from-olmo", "--exclude", "train.*"} +
                                     heads);
        QVERIFY2(done.exitCode == 0, done.err.c_str());
        const State original = readState(from.toStdString()), state = readState(hf.toStdString());
        for (const std::string end : {"", ".exp_avg", ".exp_avg_sq"}) {
            const std::string p = end.empty() ? "" : "optim.state.";
            const Array& fused = original.at(p + "transformer.blocks.1.att_proj.weight" + end);
            for (int part = 0; part < 3; ++part) {
                const std::string name = p + "model.layers.1.self_attn." + "qkv"[part] + "_proj.weight" + end;
                QVERIFY2(state.at(name) == rows(fused, 8, [&](int64_t r) { return part * 8 + r; }),
                         name.c_str());
            }
            const Array& ff = original.at(p + "transformer.blocks.0.ff_proj.weight" + end);
            QVERIFY(state.at(p + "model.layers.0.mlp.gate_proj.weight" + end) ==
                    rows(ff, ff.shape[0] / 2, [&](int64_t r) { return ff.shape[0] / 2 + r; }));
        }
        // The step count of the fused tensor is that of each part, and of no other.
        QVERIFY(state.contains("optim.state.model.layers.1.self_attn.v_proj.weight.step"));
        done = runShardscope(QStringList{"convert", hf, back, "--to", "torch", "--map", "olmo-olmo-from-hf"} +
                             heads);
        QVERIFY2(done.exitCode == 0, done.err.c_str());
        QVERIFY(readState(back.toStdString()) == original);
        const Outcome plan = runShardscope(
            QStringList{"plan", hf, fresh(), "--to", "torch", "--map", "olmo-olmo-from-hf", "--json"} +
            heads);
        const auto json = plan.json();
        QVERIFY(json["made"].dump().find("concatenate (step 2) of 'model.layers.0.mlp.") !=
                std::string::npos);
        QVERIFY(json["excluded"].dump().find("has one value, that of") != std::string::npos);
    }

    // The projections that each rank of a real ColossalAI run fused by itself.
    void colossalaiFused() {
        const QString path = QStringLiteral(SHARDSCOPE_TEST_DATA "/genuine/colossalai/tp2_fused_qkv/");
        const QString to = fresh();
        const Outcome done = runShardscope(
            {"convert", path + "ckpt", to, "--to", "safetensors", "--map", "fused-qkv", "--set", "ranks=2"});
        QVERIFY2(done.exitCode == 0, done.err.c_str());
        const auto digests =
            runShardscope({"digest", to, "--algorithm", "sha256", "--json"}).json()["tensors"];
        std::ifstream in((path + "expected.json").toStdString());
        const auto expected = nlohmann::json::parse(in);
        QVERIFY(expected["tensors"].size() == 3);
        for (const auto& [name, tensor] : expected["tensors"].items())
            COMPARE_JSON(digests[name], tensor["sha256"]);
        // Without the number of ranks nothing is guessed.
        const Outcome open =
            runShardscope({"plan", path + "ckpt", fresh(), "--to", "safetensors", "--map", "fused-qkv"});
        QCOMPARE(open.exitCode, 2);
        QVERIFY2(open.err.find("'ranks' has no value: give --set ranks=N") != std::string::npos,
                 open.err.c_str());
    }

    void ranksOfUnequalParts() {
        // Two ranks of q (4 rows), k and v (2 rows): 8 q rows, 4 k rows, 4 v rows in all.
        const State state{{"w", numbers({16, 3}, 0)}};
        const QString map = recipe(
            R"({"step": "fused-qkv", "layout": "ranks", "tensors": "w", "ranks": 2, "parts": [8, "kv", "kv"]})",
            R"(, "parameters": {"kv": 4})");
        const int64_t order[] = {0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15};
        QVERIFY(mapped(state, map).at("w") == rows(state.at("w"), 16, [&](int64_t r) { return order[r]; }));
    }

    void stepsOfEveryKind() {
        State state{{"a", numbers({4, 6}, 0)}, {"b.x", numbers({2, 3, 4}, 100)}};
        const State out = mapped(
            state,
            recipe(
                R"json({"step": "split", "from": "a", "into": ["l", "m", "r"], "dim": 1, "sizes": [1, 2, "n"]},
            {"step": "concatenate", "from": ["r", "l"], "to": "joined", "dim": 1},
            {"step": "transpose", "tensors": "b[.](.)", "dims": [2, 0, 1], "to": "turned.$1"},
            {"step": "reshape", "tensors": "turned[.]x", "shape": [-1, "n"]},
            {"step": "rename", "from": "^m$", "to": "middle"},
            {"step": "transpose", "tensors": "nothing", "optional": true})json",
                R"(, "parameters": {"n": {"default": "6 / two"}, "two": 2}, "rename": [{"from": "joined", "to": "j"}],
            "cast": [{"tensors": "middle", "dtype": "bf16"}])"));
        QCOMPARE(out.size(), size_t{2});  // the bf16 one is not read back here
        Array joined{{4, 4}, {}};
        for (int64_t r = 0; r < 4; ++r) {
            for (const int64_t c : {3, 4, 5, 0})
                joined.values.push_back(static_cast<float>(r * 6 + c));
        }
        QVERIFY(out.at("j") == joined);
        Array turned{{8, 3}, {}};
        for (int64_t k = 0; k < 4; ++k) {
            for (int64_t i = 0; i < 6; ++i)
                turned.values.push_back(100 + static_cast<float>(i * 4 + k));
        }
        QVERIFY(out.at("turned.x") == turned);
    }

    // Layers and experts to and from one tensor each, along any dimension, with numbers from any start.
    void unstackAndStack() {
        const State state{
            {"l.w", numbers({3, 2, 4}, 0)}, {"l.b", numbers({3, 2}, 100)}, {"r", numbers({2, 3}, 200)}};
        const State apart =
            mapped(state, recipe(R"json({"step": "unstack", "from": "l[.](.)", "to": "l.{i}.$1", "start": 2},
            {"step": "unstack", "from": "l[.]([0-9])[.]w", "to": "l.$1.w.{i}"},
            {"step": "unstack", "from": "r", "to": "r{i}", "dim": -1})json"));
        QCOMPARE(apart.size(), size_t{3 * 2 + 3 + 3});
        QVERIFY(apart.at("l.4.w.1") == numbers({4}, 20));
        QVERIFY(apart.at("l.2.b") == numbers({2}, 100));
        QVERIFY((apart.at("r1") == Array{{2}, {201, 204}}));
        QVERIFY(mapped(apart,
                       recipe(R"json({"step": "stack", "from": "r([0-9])", "index": 1, "to": "r", "dim": -1},
            {"step": "stack", "from": "l[.]([0-9])[.]w[.]([0-9])", "index": 2, "to": "l.$1.w", "count": 2},
            {"step": "stack", "from": "l[.]([0-9])[.](.)", "index": 1, "to": "l.$2", "start": 2})json")) ==
                state);
    }

    // Every second layer in one tensor, and back.
    void strides() {
        State state;
        for (int i = 0; i < 5; ++i)
            state["l." + std::to_string(i)] = numbers({2}, static_cast<float>(10 * i));
        const char* together =
            R"json({"step": "stack", "from": "l[.]([0-9])", "index": 1, "to": "even", "stride": 2, "count": 2},
            {"step": "stack", "from": "l[.]([0-9])", "index": 1, "to": "odd", "start": 1, "stride": 2})json";
        const State out = mapped(state, recipe(together));
        QVERIFY((out.at("even") == Array{{2, 2}, {0, 1, 20, 21}}));
        QVERIFY((out.at("odd") == Array{{2, 2}, {10, 11, 30, 31}}));
        QVERIFY(out.contains("l.4"));
        QVERIFY(mapped(out, recipe(R"json({"step": "unstack", "from": "even", "to": "l.{i}", "stride": 2},
            {"step": "unstack", "from": "odd", "to": "l.{i}", "start": 1, "stride": "two"})json",
                                   R"json(, "parameters": {"two": 2})json")) == state);
    }

    // A weight once more beside each that asks for it; state and what has other groups stays alone.
    void copies() {
        const State state{{"e", numbers({2}, 0)},
                          {"x.e", numbers({2}, 5)},
                          {"l.3.p", numbers({2}, 10)},
                          {"l.4.p", numbers({2}, 20)},
                          {"optim.state.l.5.p.exp_avg", numbers({2}, 30)}};
        State wanted = state;
        wanted["l.3.e"] = wanted["l.4.e"] = state.at("e");
        QVERIFY(
            mapped(state,
                   recipe(R"json({"step": "copy", "from": "(|.*[.])e", "beside": "(|.*[.])l[.]([0-9]+)[.]p",
            "to": "$1l.$2.e"})json")) == wanted);
        QVERIFY(refused(state, recipe(R"({"step": "copy", "from": "e", "to": "f"})"))
                    .find("'beside' is missing") != std::string::npos);
    }

    // A layer that predicts further tokens, under the names of Megatron's checkpoints and of its modules.
    void predictionLayers() {
        State hf = hfLlama();
        for (const auto& [name, array] : hfLlama()) {
            const std::string behind = "model.layers.1.";
            if (name.starts_with(behind)) hf["model.mtp_layers.0." + name.substr(behind.size())] = array;
        }
        for (const char* name : {"token_layernorm", "hidden_layernorm", "final_layernorm"})
            hf[std::string("model.mtp_layers.0.") + name + ".weight"] =
                numbers({kHidden}, static_cast<float>(name[0]));
        hf["model.mtp_layers.0.input_proj.weight"] = numbers({kHidden, 2 * kHidden}, 70'000);
        const QStringList heads{"--set", "heads=8", "--set", "kv_heads=2"};
        for (const std::string layer : {"transformer_layer", "mtp_model_layer"}) {
            const State megatron = mapped(
                hf, "mimo-megatron-from-hf",
                {"--set", layer == "mtp_model_layer" ? "mtp_model_layer=1" : "mtp_model_layer=0"}, kConfig);
            const std::string p = "mtp.layers.0." + layer + ".";
            QCOMPARE(megatron.size(), size_t{2 * 6 + 3 + 6 + 4});
            QVERIFY(megatron.at(p + "mlp.linear_fc1.layer_norm_weight") ==
                    hf.at("model.mtp_layers.0.post_attention_layernorm.weight"));
            QVERIFY(megatron.at(p + "self_attention.linear_qkv.weight") ==
                    megatron.at("decoder.layers.1.self_attention.linear_qkv.weight"));
            // Megatron has the token first, MiMo the hidden state.
            const auto swapped = [](const Array& in) {
                return transposed(rows(transposed(in), 2 * kHidden,
                                       [](int64_t r) { return (r + kHidden) % (2 * kHidden); }));
            };
            QVERIFY(megatron.at("mtp.layers.0.eh_proj.weight") ==
                    swapped(hf.at("model.mtp_layers.0.input_proj.weight")));
            QVERIFY(mapped(megatron, "mimo-hf-from-megatron", heads) == hf);
        }
    }

    // Linear attention by key head at Hugging Face, all heads of each kind in turn in Megatron; queries with
    // their gates; a norm that is kept less one.
    void qwen3Next() {
        State hf = [] {
            State llama = hfLlama(), state;
            for (const char* name : {"model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"})
                state[name] = llama.at(name);
            for (const char* name : {"self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
                                     "input_layernorm", "post_attention_layernorm"})
                state[std::string("model.layers.1.") + name + ".weight"] =
                    llama.at(std::string("model.layers.1.") + name + ".weight");
            return state;
        }();
        hf["model.layers.1.self_attn.q_proj.weight"] = numbers({2 * kHeads * kHeadDim, kHidden}, 0);
        // 2 key heads of 3 rows, 4 value heads of 5.
        const std::string linear = "model.layers.0.linear_attn.";
        hf[linear + "in_proj_qkvz.weight"] = numbers({2 * (3 + 3 + 10 + 10), kHidden}, 1000);
        hf[linear + "in_proj_ba.weight"] = numbers({2 * (2 + 2), kHidden}, 2000);
        hf[linear + "conv1d.weight"] = numbers({6 + 6 + 20, 1, 4}, 3000);
        hf[linear + "A_log"] = numbers({4}, 1);
        hf[linear + "dt_bias"] = numbers({4}, 5);
        hf[linear + "norm.weight"] = numbers({5}, 1);
        hf[linear + "out_proj.weight"] = numbers({kHidden, 20}, 4000);
        hf["model.layers.0.input_layernorm.weight"] = numbers({kHidden}, 5000);
        hf["model.layers.0.post_attention_layernorm.weight"] = numbers({kHidden}, 6000);
        for (const std::string p : {"model.layers.0.mlp.", "model.layers.1.mlp."}) {
            for (const std::string module : {"experts.0.", "experts.1.", "shared_expert."}) {
                const auto base = static_cast<float>(100 * (module[8] + p[13]));
                hf[p + module + "gate_proj.weight"] = numbers({kFfn, kHidden}, base);
                hf[p + module + "up_proj.weight"] = numbers({kFfn, kHidden}, base + 60);
                hf[p + module + "down_proj.weight"] = numbers({kHidden, kFfn}, base + 120);
            }
            hf[p + "gate.weight"] = numbers({2, kHidden}, 7000);
            hf[p + "shared_expert_gate.weight"] = numbers({1, kHidden}, 8000);
        }
        const QStringList keys{"--set", "key_heads=2"};
        const State megatron = mapped(hf, "qwen3-next-megatron-from-hf", keys, kConfig);
        const Array& qkvz = hf.at(linear + "in_proj_qkvz.weight");
        const auto byHead = [&](const Array& in, int64_t before, int64_t each, int64_t head) {
            return rows(in, 2 * each, [&](int64_t r) { return r / each * head + before + r % each; });
        };
        const Array& ba = hf.at(linear + "in_proj_ba.weight");
        QVERIFY(megatron.at("decoder.layers.0.self_attention.in_proj.weight") ==
                stacked({byHead(qkvz, 0, 3, 26), byHead(qkvz, 3, 3, 26), byHead(qkvz, 6, 10, 26),
                         byHead(qkvz, 16, 10, 26), byHead(ba, 0, 2, 4), byHead(ba, 2, 2, 4)}));
        QVERIFY(megatron.at("decoder.layers.0.self_attention.out_norm.weight") == numbers({5}, 0));
        QVERIFY(megatron.contains("decoder.layers.0.self_attention.in_proj.layer_norm_weight"));
        // For each of 2 groups: 4 heads of queries, their gates, a key, a value.
        const int64_t group = (4 + 4 + 1 + 1) * kHeadDim;
        const Array& fused = megatron.at("decoder.layers.1.self_attention.linear_qkv.weight");
        QVERIFY(rows(hf.at("model.layers.1.self_attn.q_proj.weight"), 2 * kHeads * kHeadDim,
                     [&](int64_t r) { return r; }) == rows(fused, 2 * kHeads * kHeadDim, [&](int64_t r) {
                    const int64_t head = r / (2 * kHeadDim), gate = r / kHeadDim % 2;
                    return head / 4 * group + (gate * 4 + head % 4) * kHeadDim + r % kHeadDim;
                }));
        const State apart = mapped(hf, "qwen3-next-megatron-from-hf",
                                   QStringList{"--set", "apart_projections=1"} + keys, kConfig);
        QVERIFY(apart.at("decoder.layers.0.self_attention.in_proj.weight.z") == byHead(qkvz, 16, 10, 26));
        QVERIFY((apart.at("decoder.layers.0.self_attention.conv1d.weight.value").shape ==
                 std::vector<int64_t>{20, 1, 4}));
        for (const State& state : {megatron, apart})
            QVERIFY(mapped(state, "qwen3-next-hf-from-megatron", QStringList{"--set", "heads=8"} + keys) ==
                    hf);
        // How many key heads there are is not guessed.
        QVERIFY(refused(megatron, "qwen3-next-hf-from-megatron", {"--set", "heads=8"})
                    .find("give --set key_heads=N") != std::string::npos);
    }

    // Layers of Mamba, attention and experts; what torch_dist keeps in parts.
    void nemotronH() {
        State hf{{"backbone.embeddings.weight", numbers({12, kHidden}, 0)},
                 {"backbone.norm_f.weight", numbers({kHidden}, 100)},
                 {"lm_head.weight", numbers({12, kHidden}, 200)}};
        for (int layer = 0; layer < 4; ++layer)
            hf["backbone.layers." + std::to_string(layer) + ".norm.weight"] =
                numbers({kHidden}, static_cast<float>(300 + layer * 10));
        // 2 heads of 4 rows, 2 groups of a state of 3.
        const std::string mamba = "backbone.layers.0.mixer.";
        hf[mamba + "in_proj.weight"] = numbers({8 + 8 + 6 + 6 + 2, kHidden}, 1000);
        hf[mamba + "conv1d.weight"] = numbers({8 + 6 + 6, 1, 4}, 2000);
        hf[mamba + "conv1d.bias"] = numbers({8 + 6 + 6}, 3000);
        for (const char* name : {"A_log", "D", "dt_bias"})
            hf[mamba + name] = numbers({2}, static_cast<float>(name[0]));
        hf[mamba + "norm.weight"] = numbers({8}, 3100);
        hf[mamba + "out_proj.weight"] = numbers({kHidden, 8}, 3200);
        hf["backbone.layers.1.mixer.up_proj.weight"] = numbers({kFfn, kHidden}, 4000);
        hf["backbone.layers.1.mixer.down_proj.weight"] = numbers({kHidden, kFfn}, 4100);
        const State llama = hfLlama();
        for (const std::string name : {"q_proj.weight", "k_proj.weight", "v_proj.weight", "o_proj.weight"})
            hf["backbone.layers.2.mixer." + name] = llama.at("model.layers.0.self_attn." + name);
        const std::string experts = "backbone.layers.3.mixer.";
        for (const std::string module : {"experts.0.", "experts.1.", "shared_experts."}) {
            hf[experts + module + "up_proj.weight"] =
                numbers({kFfn, kHidden}, static_cast<float>(module[8] * 100));
            hf[experts + module + "down_proj.weight"] =
                numbers({kHidden, kFfn}, static_cast<float>(module[8] * 300));
        }
        hf[experts + "gate.weight"] = numbers({2, kHidden}, 9000);
        hf[experts + "gate.e_score_correction_bias"] = numbers({2}, 9100);

        const State megatron =
            mapped(hf, "nemotron-h-megatron-from-hf", {"--set", "apart_projections=1"}, kConfig);
        const auto part = [&](const char* name, int64_t from, int64_t count) {
            return rows(hf.at(mamba + name), count, [&](int64_t r) { return from + r; });
        };
        const std::string to = "decoder.layers.0.mixer.";
        QVERIFY(megatron.at(to + "in_proj.weight.z") == part("in_proj.weight", 0, 8));
        QVERIFY(megatron.at(to + "in_proj.weight.C") == part("in_proj.weight", 22, 6));
        QVERIFY(megatron.at(to + "in_proj.weight.dt") == part("in_proj.weight", 28, 2));
        QVERIFY(megatron.at(to + "conv1d.weight.B") == part("conv1d.weight", 8, 6));
        QVERIFY(megatron.at(to + "conv1d.bias.x") == part("conv1d.bias", 0, 8));
        const std::pair<const char*, int> norms[] = {{"0.mixer.in_proj.layer_norm_weight", 0},
                                                     {"1.mlp.linear_fc1.layer_norm_weight", 1},
                                                     {"2.self_attention.linear_qkv.layer_norm_weight", 2},
                                                     {"3.pre_mlp_layernorm.weight", 3}};
        for (const auto& [name, layer] : norms)
            QVERIFY2(megatron.at(std::string("decoder.layers.") + name) ==
                         hf.at("backbone.layers." + std::to_string(layer) + ".norm.weight"),
                     name);
        QVERIFY((megatron.at("decoder.layers.3.mlp.experts.experts.linear_fc1.weight").shape ==
                 std::vector<int64_t>{2, kFfn, kHidden}));
        QVERIFY(megatron.contains("decoder.layers.3.mlp.router.expert_bias") &&
                megatron.contains("decoder.layers.3.mlp.shared_experts.linear_fc2.weight") &&
                megatron.contains("decoder.final_norm.weight"));
        for (const char* apart : {"apart_projections=1", "apart_projections=0", "fused_norms=0"}) {
            const State there = mapped(hf, "nemotron-h-megatron-from-hf", {"--set", apart}, kConfig);
            QVERIFY2(mapped(there, "nemotron-h-hf-from-megatron", {"--set", "heads=8"}) == hf, apart);
        }
    }

    // Adapters of Megatron-Bridge, NeMo 1 and ms-swift become one of PEFT, and come back.
    void adapters() {
        State peft, bridge;
        for (int layer = 0; layer < 2; ++layer) {
            const std::string p = "base_model.model.model.layers." + std::to_string(layer) + ".";
            const float base = static_cast<float>(layer) * 10'000;
            const auto put = [&](const std::string& module, int64_t in, int64_t out, float a, float b) {
                peft[p + module + ".lora_A.weight"] = numbers({3, in}, base + a);
                peft[p + module + ".lora_B.weight"] = numbers({out, 3}, base + b);
            };
            put("self_attn.q_proj", kHidden, kHeads * kHeadDim, 0, 100);
            put("self_attn.k_proj", kHidden, kKvHeads * kHeadDim, 0, 300);
            put("self_attn.v_proj", kHidden, kKvHeads * kHeadDim, 0, 500);
            put("self_attn.o_proj", kHeads * kHeadDim, kHidden, 700, 900);
            put("mlp.gate_proj", kHidden, kFfn, 1000, 1100);
            put("mlp.up_proj", kHidden, kFfn, 1000, 1300);
            put("mlp.down_proj", kFfn, kHidden, 1500, 1700);
        }
        const QStringList heads{"--set", "heads=8", "--set", "kv_heads=2"};
        // By themselves, where the parts of a layer need not agree.
        const State canonical = mapped(peft, "llama-megatron-from-peft");
        QCOMPARE(canonical.size(), peft.size());
        QVERIFY(
            canonical.at("decoder.layers.1.self_attention.linear_qkv.adapter.adapter_k.linear_out.weight") ==
            peft.at("base_model.model.model.layers.1.self_attn.k_proj.lora_B.weight"));
        QVERIFY(mapped(canonical, "llama-peft-from-megatron", {"--set", "alpha=6"}) == peft);
        const State fused = mapped(peft, "llama-megatron-from-peft", QStringList{"--set", "fused=1"} + heads);
        QCOMPARE(fused.size(), size_t{2 * 4 * 2});
        QVERIFY(fused.at("decoder.layers.0.mlp.linear_fc1.adapter.linear_out.weight") ==
                stacked({peft.at("base_model.model.model.layers.0.mlp.gate_proj.lora_B.weight"),
                         peft.at("base_model.model.model.layers.0.mlp.up_proj.lora_B.weight")}));
        QVERIFY(fused.at("decoder.layers.0.self_attention.linear_qkv.adapter.linear_in.weight") ==
                peft.at("base_model.model.model.layers.0.self_attn.v_proj.lora_A.weight"));
        const State swift = mapped(peft, "llama-megatron-from-peft", QStringList{"--set", "swift=1"} + heads);
        State nemo;
        for (const auto& [name, array] : fused) {
            QVERIFY(swift.at(replaced(replaced(name, "adapter.linear_in", "lora_A.default"),
                                      "adapter.linear_out", "lora_B.default")) == array);
            nemo["model." + replaced(replaced(name, "linear_qkv.adapter", "adapter_layer.lora_kqv_adapter"),
                                     "linear_proj.adapter", "adapter_layer.lora_dense_attention_adapter")] =
                array;
        }
        for (const State& megatron : {fused, swift, nemo})
            QVERIFY(mapped(megatron, "llama-peft-from-megatron", {"--set", "alpha=6", "--set", "heads=8"}) ==
                    peft);

        // What PEFT needs beside the weights; numbers of the run, and none that nobody states.
        const QString from = fresh(), to = fresh();
        writeState(from.toStdString() + "/model.safetensors", fused);
        const QStringList words{
            "convert", from, to, "--to", "safetensors", "--map", "llama-peft-from-megatron"};
        const Outcome open = runShardscope(words + heads);
        QVERIFY2(open.err.find("'alpha' has no value: give --set alpha=N") != std::string::npos,
                 open.err.c_str());
        writeFile(from.toStdString() + "/run_config.yaml",
                  "model:\n  num_attention_heads: 8\npeft:\n  dim: 3\n  alpha: 6\ntrain:\n  alpha: 7\n");
        const Outcome done = runShardscope(words);
        QVERIFY2(done.exitCode == 0, done.err.c_str());
        QVERIFY2(done.err.find("transformers") == std::string::npos, done.err.c_str());
        QVERIFY(readState((to + "/adapter_model.safetensors").toStdString()) == peft);
        std::ifstream in((to + "/adapter_config.json").toStdString());
        const auto config = nlohmann::json::parse(in);
        COMPARE_JSON(config["peft_type"], nlohmann::json("LORA"));
        COMPARE_JSON(config["r"], nlohmann::json(3));
        COMPARE_JSON(config["lora_alpha"], nlohmann::json(6));
        QCOMPARE(config["target_modules"].size(), size_t{7});
    }

    // In float32, rounded after each step, also where the tensor is cut, turned and joined afterwards.
    void computes() {
        const State state{{"a", numbers({3, 2}, 1)}, {"b", numbers({2, 3}, 7)}, {"c", numbers({2}, 1)}};
        const QString map =
            recipe(R"json({"step": "compute", "tensors": "[ab]", "multiply": "n", "root": true},
            {"step": "compute", "tensors": "[ab]", "add": -1},
            {"step": "transpose", "tensors": "b"},
            {"step": "concatenate", "from": ["a", "b"], "to": "ab"},
            {"step": "compute", "tensors": "c", "divide": 5, "root": true, "rounded": "bfloat16"})json",
                   R"json(, "parameters": {"n": 3})json");
        const State out = mapped(state, map);
        const auto root = static_cast<float>(std::sqrt(3.0));
        Array wanted{{6, 2}, {}};
        for (const float value : {1.F, 2.F, 3.F, 4.F, 5.F, 6.F, 7.F, 10.F, 8.F, 11.F, 9.F, 12.F})
            wanted.values.push_back(value * root - 1);
        QVERIFY(out.at("ab") == wanted);
        QVERIFY((out.at("c") == Array{{2}, {1 / 2.234375F, 2 / 2.234375F}}));  // the bfloat16 next to 2.236
        // The plan says what is no mere reordering.
        const QString from = fresh();
        writeState(from.toStdString() + "/model.safetensors", state);
        const std::string notes =
            runShardscope({"plan", from, fresh(), "--to", "safetensors", "--json", "--map", map})
                .json()["notes"]
                .dump();
        QVERIFY2(notes.find("2 tensors: every element is multiplied by 1.73205078 and rounded") !=
                     std::string::npos,
                 notes.c_str());
        // Powers of two and back: the same bits.
        QVERIFY(mapped(state, recipe(R"json({"step": "compute", "tensors": ".", "multiply": 16, "root": true},
            {"step": "compute", "tensors": ".", "multiply": 16, "root": true, "inverse": true})json")) ==
                state);
    }

    // Rows that are cut or added; what has the wanted size stays as it is, under another name if so.
    void sliceSelectPad() {
        const State state{{"v", numbers({5, 3}, 0)}, {"u", numbers({4, 3}, 100)}};
        const State out =
            mapped(state, recipe(R"json({"step": "slice", "tensors": "[uv]", "length": "true_size"},
            {"step": "select", "tensors": "v", "dim": -1, "index": -1, "to": "column"},
            {"step": "pad", "tensors": "u", "length": 6, "row": -1, "to": "copies"},
            {"step": "slice", "tensors": "copies", "start": 1, "length": 5, "to": "tail"},
            {"step": "pad", "tensors": "tail", "dim": 1, "length": 4, "fill": -0.5})json",
                                 R"json(, "parameters": {"true_size": {"default": "2 * (3 - 1)"}})json"));
        QCOMPARE(out.size(), size_t{2});
        QVERIFY((out.at("column") == Array{{4}, {2, 5, 8, 11}}));
        QVERIFY(
            (out.at("tail") == Array{{5, 4}, {103, 104,   105, -0.5F, 106, 107,   108, -0.5F, 109, 110,
                                              111, -0.5F, 109, 110,   111, -0.5F, 109, 110,   111, -0.5F}}));
        // Nothing is made of a tensor that has the size already.
        const QString from = fresh();
        writeState(from.toStdString() + "/model.safetensors", state);
        const auto plan = runShardscope({"plan", from, fresh(), "--to", "safetensors", "--json", "--map",
                                         recipe(R"({"step": "slice", "tensors": "[uv]", "length": 4},
                {"step": "pad", "tensors": "[uv]", "length": "open", "if_known": true})",
                                                R"(, "parameters": {"open": {"config": "none"}})")})
                              .json();
        QCOMPARE(plan["made"].size(), size_t{1});
        QCOMPARE(plan["notes"].size(), size_t{2});
        QVERIFY(plan["notes"].dump().find("step 2 (pad): 'open' has no value") != std::string::npos);
    }

    // A name changes where another one is beside it.
    void renameBeside() {
        const State state{
            {"l.0.norm", numbers({2}, 0)}, {"l.0.dense.w", numbers({2}, 10)}, {"l.1.norm", numbers({2}, 20)}};
        const State out = mapped(state, recipe(R"json({"step": "rename", "from": "l[.]([0-9])[.](norm)",
            "to": "l.$1.dense.$2", "beside": "l[.]([0-9])[.]dense[.].*"})json"));
        QVERIFY(out.contains("l.0.dense.norm") && out.contains("l.1.norm") && out.size() == 3);
    }

    // Integers are filled with what they can hold.
    void padOfIntegers() {
        const QString from = fresh();
        const std::string header = R"({"i":{"dtype":"I16","shape":[1],"data_offsets":[0,2]}})";
        const uint64_t size = header.size();
        writeFile(from.toStdString() + "/i.safetensors",
                  std::string(reinterpret_cast<const char*>(&size), 8) + header + std::string("\1\0", 2));
        const auto plan = [&](const char* fill) {
            return runShardscope(
                {"plan", from, fresh(), "--to", "safetensors", "--map",
                 recipe(std::string(R"({"step": "pad", "tensors": "i", "length": 2, "fill": )") + fill +
                        "}")});
        };
        QCOMPARE(plan("-32768").exitCode, 0);
        const QString to = fresh();
        const Outcome made =
            runShardscope({"convert", from, to, "--to", "safetensors", "--map",
                           recipe(R"json({"step": "pad", "tensors": "i", "length": 3, "fill": -7})json")});
        QVERIFY2(made.exitCode == 0, made.err.c_str());
        QFile padded(to + "/model.safetensors");
        QVERIFY(padded.open(QIODevice::ReadOnly));
        QVERIFY(padded.readAll().endsWith(QByteArray("\1\0\xf9\xff\xf9\xff", 6)));
        for (const char* fill : {"32768", "0.5", "-32769"}) {
            const Outcome done = plan(fill);
            QVERIFY2(done.err.find("is not a number of dtype int16") != std::string::npos, done.err.c_str());
        }
    }

    // A number of the optimizer beside a stacked parameter goes to each of its parts.
    void stateOfStacks() {
        const State state{{"l.w", numbers({2, 3}, 0)},
                          {"optim.state.l.w.exp_avg", numbers({2, 3}, 10)},
                          {"optim.state.l.w.step", numbers({1}, 7)}};
        const State apart =
            mapped(state, recipe(R"json({"step": "unstack", "from": "l[.]w", "to": "l.{i}.w"})json"));
        QCOMPARE(apart.size(), size_t{6});
        QVERIFY(apart.at("optim.state.l.1.w.exp_avg") == numbers({3}, 13));
        QVERIFY(apart.at("optim.state.l.1.w.step") == numbers({1}, 7));
    }

    // 61 layers of 256 experts: each tensor is matched once by each step, and pieces stay few.
    void manyExperts() {
        State state;
        for (int layer = 0; layer < 61; ++layer) {
            const std::string p = "model.layers." + std::to_string(layer) + ".";
            for (const char* name : {"q", "k", "v", "o"})
                state[p + "self_attn." + name + "_proj.weight"] = numbers({2, 2}, static_cast<float>(layer));
            state[p + "mlp.gate.weight"] = numbers({256, 2}, 0);
            for (int expert = 0; expert < 256; ++expert) {
                for (const char* name : {"gate", "up", "down"})
                    state[p + "mlp.experts." + std::to_string(expert) + "." + name + "_proj.weight"] =
                        numbers({2, 2}, static_cast<float>(layer * 256 + expert));
            }
        }
        const QString from = fresh(), dcp = fresh(), back = fresh();
        writeState(from.toStdString() + "/model.safetensors", state);
        Outcome done =
            runShardscope({"convert", from, dcp, "--to", "dcp", "--map", "qwen3-moe-megatron-from-hf",
                           "--set", "stacked=1", "--set", "heads=1"});
        QVERIFY2(done.exitCode == 0, done.err.c_str());
        QCOMPARE(
            readState(dcp.toStdString()).at("decoder.layers.mlp.experts.experts.linear_fc1.weight").shape,
            (Dims{61, 256, 4, 2}));
        done = runShardscope({"convert", dcp, back, "--to", "safetensors", "--map",
                              "qwen3-moe-hf-from-megatron", "--set", "heads=1"});
        QVERIFY2(done.exitCode == 0, done.err.c_str());
        QVERIFY(readState(back.toStdString()) == state);
    }

    void wrongRecipes_data() {
        QTest::addColumn<QString>("steps");
        QTest::addColumn<QString>("says");
        const auto row = [](const char* name, const char* steps, const char* says) {
            QTest::newRow(name) << QString(steps) << QString(says);
        };
        row("kind", R"({"step": "turn"})", "step 1: 'turn' is not a kind of step");
        row("no object", "7", "step 1: it is not an object");
        row("field", R"({"step": "transpose", "tensors": "a", "dim": 1})",
            "step 1 (transpose): it has no field 'dim'");
        row("missing", R"({"step": "split", "into": ["x"]})",
            "step 1 (split): 'from' is missing or not text");
        row("expression", R"({"step": "transpose", "tensors": "*a"})",
            "step 1 (transpose): '*a' is not a regular expression");
        row("parameter", R"({"step": "rope", "layout": "half", "tensors": "a", "heads": "hedas"})",
            "'hedas' is not one of the recipe's parameters");
        row("arithmetic", R"({"step": "rope", "layout": "half", "tensors": "a", "heads": "2 ^ 2"})",
            "'2 ^ 2' is not integers and parameters");
        row("unstack without a place", R"json({"step": "unstack", "from": "a", "to": "x"})json",
            "'to' has no {i}");
        row("stack without an index", R"json({"step": "stack", "from": "(.)", "to": "x"})json",
            "it needs 'index', the number of the group");
        row("stack of no number", R"json({"step": "stack", "from": "([ab])", "index": 1, "to": "x"})json",
            "'a' of 'a' is not an index from 0 on");
        row("missing in a stack", R"json({"step": "stack", "from": "n([0-9]+)", "index": 1, "to": "x"})json",
            "step 1 (stack): 'n0' [2]: 'n1' is missing beside it");
        row("fewer than counted",
            R"json({"step": "stack", "from": "m([0-9]+)", "index": 1, "to": "x", "count": 3})json",
            "'m0' [2]: 'm2' is missing beside it");
        row("more than counted",
            R"json({"step": "stack", "from": "m([0-9]+)", "index": 1, "to": "x", "count": 1})json",
            "'m1' is one of 2 or more tensors, not of 1");
        row("stack of shapes", R"json({"step": "stack", "from": "k([0-9]+)", "index": 1, "to": "x"})json",
            "[2] and [3] cannot be stacked: their shapes differ");
        row("dimension of a stack",
            R"json({"step": "stack", "from": "m([0-9]+)", "index": 1, "to": "x", "dim": 2})json",
            "a stack of it has no dimension 2, it has 2");
        row("select outside", R"({"step": "select", "tensors": "a", "index": 4})",
            "dimension 0 has 4, there is no index 4");
        row("slice outside", R"({"step": "slice", "tensors": "a", "start": 2, "length": 3})",
            "dimension 0 has 4, which does not hold 3 from 2 on");
        row("slice without a number", R"({"step": "slice", "tensors": "a", "length": "open"})",
            "'open' is not one of the recipe's parameters");
        row("pad to less", R"({"step": "pad", "tensors": "a", "length": 3})",
            "dimension 0 has 4 already, more than 3");
        row("pad with no row", R"({"step": "pad", "tensors": "a", "length": 5, "row": 4})",
            "dimension 0 has 4, there is no row 4");
        row("pad with both", R"({"step": "pad", "tensors": "a", "length": 5, "row": 1, "fill": 0})",
            "it has both 'fill' and 'row'");
        row("stride of nothing",
            R"json({"step": "stack", "from": "m([0-9]+)", "index": 1, "to": "x", "stride": 0})json",
            "0 is not a stride");
        row("compute nothing", R"({"step": "compute", "tensors": "a"})",
            "it needs 'multiply', 'divide' or 'add'");
        row("compute twice", R"({"step": "compute", "tensors": "a", "add": 1, "divide": 2})",
            "it has more than one of");
        row("divide by nothing", R"({"step": "compute", "tensors": "a", "divide": 0})",
            "nothing can be divided by 0");
        row("root of less than nothing", R"({"step": "compute", "tensors": "a", "add": -1, "root": true})",
            "-1 has no square root");
        row("joined with others",
            R"json({"step": "compute", "tensors": "m0", "add": 1}, {"step": "stack", "from": "m([0-9]+)", "index": 1, "to": "x"})json",
            "the values of its parts are changed in different ways");
        row("include of a file", R"({"step": "include", "recipe": "/etc/passwd"})",
            "step 1 (include): '/etc/passwd' is not a recipe that is built in");
        row("include with more", R"({"step": "include", "recipe": "fused-qkv", "set": 1})",
            "it has no field 'set'");
        row("inside an include", R"({"step": "include", "recipe": "hf-experts-from-megatron"})",
            "step 1 of hf-experts-from-megatron (split): no tensor matches");
        row("nothing matches", R"({"step": "transpose", "tensors": "nothing"})",
            "step 1 (transpose): no tensor matches 'nothing'");
        row("order", R"({"step": "transpose", "tensors": "a", "dims": [0, 2]})",
            "step 1 (transpose): 'a' [4, 6]: [0, 2] is not an order");
        row("shape", R"({"step": "reshape", "tensors": "a", "shape": [5, -1]})",
            "step 1 (reshape): 'a' [4, 6]: [4, 6] cannot be reshaped");
        row("sizes", R"({"step": "split", "from": "a", "into": ["x", "y"], "sizes": [1, 2]})",
            "'a' [4, 6]: dimension 0 has 4, the sizes 1 + 2 make 3");
        row("equal parts", R"({"step": "split", "from": "a", "into": ["x", "y", "z"]})",
            "'a' [4, 6]: dimension 0 has 4, which is not 3 equal parts");
        row("dimension", R"({"step": "split", "from": "a", "into": ["x", "y"], "dim": 2})",
            "'a' [4, 6]: it has no dimension 2");
        row("do not fit", R"({"step": "concatenate", "from": ["a", "b"], "to": "x"})",
            "[4, 6] and [5, 7] do not fit together along dimension 0");
        row("part missing", R"({"step": "concatenate", "from": ["a", "none"], "to": "x"})",
            "'a' [4, 6]: nothing beside it matches 'none'");
        row("used twice", R"({"step": "concatenate", "from": ["a", "a"], "to": "x"})",
            "'a' would be used twice");
        row("two parts", R"({"step": "concatenate", "from": ["[ab]", "c"], "to": "x"})",
            "would both be part 1 of the same tensor");
        row("collision", R"({"step": "rename", "from": "^a$", "to": "b"})",
            "step 1 (rename): 'a' [4, 6] and 'b' would both be called 'b'");
        row("collision made", R"({"step": "split", "from": "a", "into": ["b", "y"]})",
            "would both be called 'b'");
        row("no name", R"({"step": "rename", "from": "^a$", "to": ""})", "would lose its name");
        row("heads", R"({"step": "rope", "layout": "half", "tensors": "a", "heads": 3})",
            "step 1 (rope): 'a' [4, 6]: 4 rows are not 3 heads");
        row("pairs", R"({"step": "rope", "layout": "half", "tensors": "a", "heads": 4})",
            "4 rows are not heads of 1 rows, in pairs");
        row("heads or size",
            R"({"step": "rope", "layout": "half", "tensors": "a", "heads": 1, "head_dim": 4})",
            "it needs either 'heads' or 'head_dim'");
        row("groups",
            R"({"step": "fused-qkv", "layout": "grouped", "from": "a", "into": ["q", "k", "v"], "heads": 3, "kv_heads": 2})",
            "3 query heads cannot share 2 key-value heads");
        row("slots",
            R"({"step": "fused-qkv", "layout": "grouped", "from": "a", "into": ["q", "k", "v"], "heads": 1})",
            "4 rows are not 1 query heads and twice 1 key-value heads");
        row("names",
            R"({"step": "fused-qkv", "layout": "blocks", "from": "a", "into": ["q", "k"], "heads": 2})",
            "it needs three names");
        row("ranks", R"({"step": "fused-qkv", "layout": "ranks", "tensors": "a", "parts": 2, "ranks": 3})",
            "a part of 2 rows does not divide among 3 ranks");
        row("dtypes", R"({"step": "concatenate", "from": ["a", "half"], "to": "x"})",
            "it is float16, but 'a' is float32");
    }
    void wrongRecipes() {
        QFETCH(QString, steps);
        QFETCH(QString, says);
        const QString from = fresh();
        writeState(from.toStdString() + "/a.safetensors", {{"a", numbers({4, 6}, 0)},
                                                           {"b", numbers({5, 7}, 0)},
                                                           {"c", numbers({4, 6}, 0)},
                                                           {"n0", numbers({2}, 0)},
                                                           {"n2", numbers({2}, 0)},
                                                           {"m0", numbers({2}, 0)},
                                                           {"m1", numbers({2}, 0)},
                                                           {"k0", numbers({2}, 0)},
                                                           {"k1", numbers({3}, 0)}});
        // A tensor of another dtype.
        const std::string header = R"({"half":{"dtype":"F16","shape":[4,6],"data_offsets":[0,48]}})";
        const uint64_t size = header.size();
        writeFile(from.toStdString() + "/b.safetensors",
                  std::string(reinterpret_cast<const char*>(&size), 8) + header + std::string(48, '\0'));
        const Outcome done = runShardscope(
            {"plan", from, fresh(), "--to", "safetensors", "--map", recipe(steps.toStdString())});
        QVERIFY2(done.exitCode == 2, done.err.c_str());
        QVERIFY2(done.err.find(says.toStdString()) != std::string::npos, done.err.c_str());
    }

    void parameters() {
        const State state{{"a", numbers({4, 6}, 0)}};
        const char* step = R"({"step": "rope", "layout": "half", "tensors": "a", "heads": "heads"})";
        const QString map = recipe(step, R"(, "parameters": {"heads": {"config": "num_heads"}})");
        QVERIFY(refused(state, map)
                    .find("'heads' has no value: give --set heads=N, or put a config.json with num_heads "
                          "beside the source") != std::string::npos);
        QVERIFY(refused(state, map, {"--set", "head=2"}).find("has no such parameter (it has: heads)") !=
                std::string::npos);
        QVERIFY(refused(state, map, {"--set", "heads=two"}).find("is not NAME=INTEGER") != std::string::npos);
        QVERIFY(
            refused(state, recipe(step, R"(, "parameters": {"heads": "heads"})")).find("depends on itself") !=
            std::string::npos);
        QVERIFY(refused(state, recipe(step, R"(, "parameters": {"heads": "7 / 2"})"))
                    .find("not a whole number") != std::string::npos);
        QVERIFY(refused(state, recipe(step, R"(, "parameters": {"heads": {"value": 1}})"))
                    .find("holds 'value'") != std::string::npos);
        // The command line wins over the file beside the source.
        const State one = mapped(state, map, {}, R"({"num_heads": 1})");
        const State two = mapped(state, map, {"--set", "heads=2"}, R"({"num_heads": 1})");
        QVERIFY(one.at("a") == rows(state.at("a"), 4, [](int64_t r) { return r % 2 * 2 + r / 2; }));
        QVERIFY(two.at("a") == state.at("a"));
        QCOMPARE(runShardscope({"plan", fresh(), fresh(), "--set", "a=1"}).exitCode != 0, true);
        // Entries inside of entries, truths, and shapes of the source; a step that a number turns off.
        const QString nested = recipe(R"json({"step": "slice", "tensors": "a", "length": "rows / cut"},
            {"step": "transpose", "tensors": "a", "when": "turn"},
            {"step": "transpose", "tensors": "nothing", "when": "1 - turn"})json",
                                      R"(, "parameters": {"cut": {"config": ["no.such", "text.cut"]},
            "turn": {"config": "text.turn"}, "rows": {"shape": {"tensors": "[a]", "dim": -2}}})");
        const State inner = mapped(state, nested, {}, R"({"text": {"cut": 2, "turn": true}})");
        QVERIFY(inner.at("a") == transposed(rows(state.at("a"), 2, [](int64_t r) { return r; })));
    }

    // State that is kept by number has no parameter to follow.
    void stateByNumber() {
        const QString from =
            QStringLiteral(SHARDSCOPE_TEST_DATA "/genuine/torch_save/t2.15.0-optimizer/ckpt");
        const QString map = recipe(R"({"step": "transpose", "tensors": "model[.]body[.]0[.]weight"})");
        const Outcome all = runShardscope({"plan", from, fresh(), "--to", "torch", "--map", map});
        QCOMPARE(all.exitCode, 2);
        QVERIFY2(all.err.find("kept by number") != std::string::npos, all.err.c_str());
        const Outcome weights =
            runShardscope({"convert", from, fresh(), "--to", "torch", "--map", map, "--weights-only"});
        QVERIFY2(weights.exitCode == 0, weights.err.c_str());
    }

    // A sharded source, a sharded destination, and state that follows.
    void shardedBothWays() {
        const State hf = hfLlama();
        const QString from = fresh(), dcp = fresh(), out = fresh();
        writeState(from.toStdString() + "/model.safetensors", hf);
        writeFile(from.toStdString() + "/config.json", kConfig);
        Outcome done = runShardscope({"convert", from, dcp, "--to", "dcp", "--map", "llama-megatron-from-hf",
                                      "--mesh", "tp=3", "--shard", "*.weight:tp=0"});
        QVERIFY2(done.exitCode == 0, done.err.c_str());
        done = runShardscope({"convert", dcp, out, "--to", "safetensors", "--map", "llama-hf-from-megatron",
                              "--set", "heads=8", "--set", "kv_heads=2", "--verify", "full"});
        QVERIFY2(done.exitCode == 0, done.err.c_str());
        QVERIFY(readState(out.toStdString()) == hf);
    }

    // Names say which recipe it takes to come back, whatever framework they are of.
    void automaticRecipe_data() {
        QTest::addColumn<QString>("there");
        for (const char* framework : {"megatron", "torchtitan", "meta", "maxtext", "paddle"})
            QTest::newRow(framework) << QStringLiteral("llama-%1-from-hf").arg(framework);
    }
    void automaticRecipe() {
        QFETCH(QString, there);
        const State hf = hfLlama();
        const State other = mapped(hf, there, {}, kConfig);
        QVERIFY(!other.empty());
        QVERIFY(mapped(other, "auto", {}, kModel) == hf);
        QVERIFY(mapped(prefixed(other, "model."), "auto", {}, kModel) == hf);
    }

    void automaticRecipeOfHuggingFace() {
        const State hf = hfLlama();
        QVERIFY(mapped(hf, "auto", {}, kModel) == hf);
        QVERIFY(mapped(prefixed(hf, "app.model."), "auto") == hf);
    }

    void automaticRecipeRefuses() {
        const std::string none = refused(State{{"a.weight", numbers({2, 2}, 0)}}, "auto");
        QVERIFY2(none.find("no recipe that is built in fits") != std::string::npos, none.c_str());
        // Without a configuration Llama's names in MaxText may be Qwen's, which order rows in another way.
        const std::string several = refused(mapped(hfLlama(), "llama-maxtext-from-hf", {}, kConfig), "auto");
        QVERIFY2(several.find("several recipes fit") != std::string::npos &&
                     several.find("llama-hf-from-maxtext") != std::string::npos &&
                     several.find("qwen3-hf-from-maxtext") != std::string::npos,
                 several.c_str());
        State more = mapped(hfLlama(), "llama-torchtitan-from-hf", {}, kConfig);
        more["vision.patch.weight"] = numbers({2, 2}, 0);
        const std::string left = refused(more, "auto");
        QVERIFY2(left.find("leaves 1 of 22 weights as they are, such as 'vision.patch.weight'") !=
                     std::string::npos,
                 left.c_str());
    }

    void recipesThatFit() {
        const QString from = fresh(), model = fresh();
        writeState(from.toStdString() + "/model.safetensors",
                   mapped(hfLlama(), "llama-torchtitan-from-hf", {}, kConfig));
        const auto fits = [&](const QStringList& more) {
            const Outcome done = runShardscope(QStringList{"recipes", "--for", from, "--json"} + more);
            return done.exitCode == 0 ? QJsonDocument::fromJson(QByteArray::fromStdString(done.out)).object()
                                      : QJsonObject();
        };
        const QJsonObject alone = fits({});
        const QJsonObject first = alone["recipes"].toArray()[0].toObject();
        QCOMPARE(first["name"].toString(), QString("llama-hf-from-torchtitan"));
        QVERIFY(first["fits"].toBool());
        QCOMPARE(first["missing"].toArray(), QJsonArray{"heads"});
        const QJsonObject choice = alone["choices"].toObject()["hf"].toObject();
        QCOMPARE(choice["recipe"].toString(), QString("llama-hf-from-torchtitan"));
        // A step that some names escape is no fit.
        for (const QJsonValue other : alone["recipes"].toArray()) {
            if (other["name"].toString() == "llama-hf-from-meta") QVERIFY(!other["fits"].toBool());
        }
        writeFile(model.toStdString() + "/config.json", kModel);
        const QJsonObject known = fits({"--assets", model})["recipes"].toArray()[0].toObject();
        QVERIFY(known["missing"].toArray().isEmpty());
        QVERIFY(known["values"].toObject()["heads"].toString().startsWith("8, from num_attention_heads"));
    }

    // What transformers will not load is said before anything is written.
    void unloadable() {
        const QString from = fresh(), model = fresh();
        State state = mapped(hfLlama(), "llama-torchtitan-from-hf", {}, kConfig);
        writeState(from.toStdString() + "/model.safetensors", state);
        writeFile(model.toStdString() + "/config.json", kModel);
        const auto why = [&](const QStringList& more) {
            const Outcome done =
                runShardscope(QStringList{"plan", from, fresh(), "--to", "safetensors", "--json"} + more);
            const QJsonObject said = QJsonDocument::fromJson(QByteArray::fromStdString(done.out))
                                         .object()["transformers"]
                                         .toObject();
            QString all;
            for (const QJsonValue reason : said["why"].toArray())
                all += reason.toString() + '\n';
            if (said["loads"].toBool() != all.isEmpty()) return QStringLiteral("loads is wrong");
            return all;
        };
        QCOMPARE(why({"--map", "auto", "--assets", model}), QString());
        QVERIFY2(why({}).contains("no config.json"), qPrintable(why({})));
        const QString named = why({"--assets", model});
        QVERIFY2(named.contains("of its names are not those of 'llama'"), qPrintable(named));
        const QString part = why({"--map", "auto", "--assets", model, "--exclude", "layers.1.*"});
        QVERIFY2(part.contains("layer"), qPrintable(part));
        state["optimizer.state.norm.weight.exp_avg"] = numbers({kHidden}, 0);
        writeState(from.toStdString() + "/model.safetensors", state);
        const QString carried = why({"--map", "auto", "--assets", model});
        QVERIFY2(carried.contains("1 of its 22 tensors are optimizer state"), qPrintable(carried));
        QCOMPARE(why({"--map", "auto", "--assets", model, "--weights-only"}), QString());
    }

    // "hf" is a model that loads, or an error.
    void modelForTransformers() {
        const State hf = hfLlama();
        const QString model = fresh();
        writeFile(model.toStdString() + "/config.json", kModel);
        const auto converted = [&](State state, const QStringList& more, std::string* error) {
            state["optimizer.state.norm.weight.exp_avg"] = numbers({kHidden}, 0);
            const QString from = fresh(), to = fresh();
            writeState(from.toStdString() + "/model.safetensors", state);
            const Outcome done = runShardscope(QStringList{"convert", from, to, "--to", "hf"} + more);
            *error = done.exitCode == 0 ? "" : done.err;
            return done.exitCode == 0 ? readState(to.toStdString()) : State();
        };
        std::string error;
        for (const State& state :
             {hf, prefixed(hf, "model."), mapped(hf, "llama-torchtitan-from-hf", {}, kConfig)}) {
            const State got = converted(state, {"--assets", model}, &error);
            QVERIFY2(error.empty(), error.c_str());
            QVERIFY(got == hf);
        }
        converted(hf, {}, &error);
        QVERIFY2(error.find("transformers will not load it: no config.json") != std::string::npos,
                 error.c_str());
        State other = hf;
        other["vision.patch.weight"] = numbers({2, 2}, 0);
        converted(other, {"--assets", model}, &error);
        QVERIFY2(error.find("1 of its names are not those of 'llama', such as 'vision.patch.weight'") !=
                     std::string::npos,
                 error.c_str());
        // A model whose recipe is another one's namesake says nothing of its names.
        writeFile(model.toStdString() + "/config.json",
                  R"({"model_type": "llama9", "num_attention_heads": 8, "num_hidden_layers": 2})");
        converted(other, {"--assets", model}, &error);
        QVERIFY2(error.empty(), error.c_str());
    }

    // What a recipe of a family does not know is listed, not renamed in part, and --strict stops.
    void unknownToTheRecipe() {
        State state = mapped(hfLlama(), "llama-megatron-from-hf", {}, kConfig);
        const std::vector<std::string> unknown{
            "decoder.layers.0.mlp.linear_fc2.input_quantizer._amax",
            "decoder.layers.0.self_attention.linear_proj.weight_quantizer._amax",
            "decoder.layers.1.input_layernorm._amax", "mtp.layers.0.enorm.weight", "vision.weight"};
        for (const std::string& name : unknown)
            state[name] = numbers({2}, 0);
        state["decoder.layers.0.mlp._extra_state"] = numbers({2}, 0);
        const QString from = fresh(), to = fresh();
        writeState(from.toStdString() + "/model.safetensors", state);
        const QStringList words{"--to",  "safetensors", "--map", "llama-hf-from-megatron",
                                "--set", "heads=8",     "--set", "kv_heads=2"};
        const auto plan = runShardscope(QStringList{"plan", from, to, "--json"} + words).json();
        QCOMPARE(plan["unknown"].size(), unknown.size());
        for (size_t i = 0; i < unknown.size(); ++i)
            COMPARE_JSON(plan["unknown"][i],
                         nlohmann::json({{"name", unknown[i]}, {"why", "it keeps its name"}}));
        const Outcome strict = runShardscope(QStringList{"convert", from, to, "--strict"} + words);
        QVERIFY(strict.exitCode != 0);
        QVERIFY2(strict.err.find("the recipe does not know it") != std::string::npos, strict.err.c_str());
        const Outcome done = runShardscope(QStringList{"convert", from, to} + words);
        QVERIFY2(done.exitCode == 0, done.err.c_str());
        QVERIFY(done.out.find("5 tensors are unknown to the recipe") != std::string::npos);
        // Five of one reason are one line.
        const size_t line = done.err.find("unknown to the recipe: ");
        const std::string said = done.err.substr(std::min(line, done.err.size()));
        for (size_t i = 0; i < 3; ++i)
            QVERIFY2(said.find(unknown[i]) < said.find(" and 2 more: it keeps its name\n"), done.err.c_str());
        const State out = readState(to.toStdString());
        for (const std::string& name : unknown)
            QVERIFY2(out.contains(name), name.c_str());
        // A name that the command line changes is not left by mistake.
        const auto renamed =
            runShardscope(
                QStringList{"plan", from, fresh(), "--json", "--rename", "^vision[.]=model.vision."} + words)
                .json();
        QCOMPARE(renamed["unknown"].size(), unknown.size() - 1);
    }

    // Only recipes that say what they leave are taken at their word; one that is part of a tensor says what
    // it is called.
    void recipesThatLeaveNames() {
        const State state{{"a", numbers({2, 2}, 0)}, {"b", numbers({2}, 10)}, {"c", numbers({2}, 20)}};
        const QString from = fresh();
        writeState(from.toStdString() + "/model.safetensors", state);
        const auto unknown = [&](const std::string& more) {
            const QString map =
                recipe(R"json({"step": "unstack", "arranges": true, "from": "a", "to": "a.{i}"})json", more);
            return runShardscope({"plan", from, fresh(), "--to", "safetensors", "--json", "--map", map})
                .json()["unknown"];
        };
        QVERIFY(unknown("").empty());
        COMPARE_JSON(unknown(R"(, "leaves": ["b"])"),
                     nlohmann::json({{{"name", "a"}, {"why", "it is called 'a.0'"}},
                                     {{"name", "c"}, {"why", "it keeps its name"}}}));
        const QString wrong = recipe("", R"(, "leaves": "b")");
        QVERIFY(refused(state, wrong).find("'leaves' is not a list of patterns") != std::string::npos);
    }

    void builtinRecipesList() {
        const auto json = runShardscope({"recipes", "--json"}).json();
        QCOMPARE(json["recipes"].size(), builtinRecipes().size());
        QVERIFY(builtinRecipes().size() >= 14);
        for (const auto& entry : json["recipes"]) {
            QVERIFY(!entry["description"].get<std::string>().empty());
            QVERIFY(entry["recipe"]["sources"].size() > 0);
            const auto name = entry["name"].get<std::string>();
            if (name.find("-from-") != std::string::npos)
                QVERIFY2(entry["recipe"].contains("leaves"), name.c_str());
        }
        const Outcome text = runShardscope({"recipes", "fused-qkv"});
        COMPARE_JSON(text.json()["schema"], nlohmann::json("shardscope.recipe/1"));
        const Outcome none =
            runShardscope({"plan", QStringLiteral(SHARDSCOPE_TEST_DATA "/genuine/safetensors/hf-single/ckpt"),
                           fresh(), "--map", "no-such"});
        QVERIFY(none.exitCode != 0);
        QVERIFY2(none.err.find("'shardscope recipes' lists") != std::string::npos, none.err.c_str());
    }

    // torch's names of moments to Paddle's and back.
    void stateNames() {
        const State torch{{"model.w", numbers({2, 2}, 0)},
                          {"optim.state.w.exp_avg", numbers({2, 2}, 10)},
                          {"optim.state.w.exp_avg_sq", numbers({2, 2}, 20)}};
        const State paddle = mapped(torch, "paddle-names");
        QCOMPARE(paddle.size(), size_t{3});
        QVERIFY(paddle.at("w.moment1") == torch.at("optim.state.w.exp_avg"));
        QVERIFY(paddle.at("w.moment2") == torch.at("optim.state.w.exp_avg_sq"));
        const State again = mapped(paddle, "torch-names");
        QVERIFY(again.at("optim.state.w.exp_avg") == torch.at("optim.state.w.exp_avg"));
        QVERIFY(again.contains("w"));
    }
};

QTEST_GUILESS_MAIN(RecipeCliTest)
#include "recipe_cli_test.moc"
