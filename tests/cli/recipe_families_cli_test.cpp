// Recipes of model families. What they make is compared with the same done element by element, by the
// definition of each layout.
#include <QtTest>

#include "cli/recipe_runner.h"

using namespace shardscope;
using namespace shardscope::test;

class RecipeFamiliesCliTest : public QObject, RecipeRunner {
    Q_OBJECT

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

    // Experts that transformers keeps in one tensor in memory, gate before up.
    void expertsInMemory() {
        const std::string layer = "model.layers.1.mlp.", mixtral = "model.layers.1.block_sparse_moe.";
        const State memory{{layer + "experts.gate_up_proj", numbers({2, 2 * kFfn, kHidden}, 0)},
                           {layer + "experts.down_proj", numbers({2, kHidden, kFfn}, 1000)},
                           {layer + "gate.weight", numbers({2, kHidden}, 2000)},
                           {"model.norm.weight", numbers({kHidden}, 3000)}};
        const State qwen = mapped(memory, "qwen3-moe-hf-from-transformers", {"--strict"});
        const State other = mapped(memory, "mixtral-hf-from-transformers", {"--strict"});
        QCOMPARE(qwen.size(), size_t{8});
        constexpr auto kPart = static_cast<float>(kFfn * kHidden);
        for (int e = 0; e < 2; ++e) {
            const std::string expert = layer + "experts." + std::to_string(e) + ".";
            const auto first = static_cast<float>(e);
            QVERIFY(qwen.at(expert + "gate_proj.weight") == numbers({kFfn, kHidden}, first * 2 * kPart));
            QVERIFY(qwen.at(expert + "up_proj.weight") == numbers({kFfn, kHidden}, (first * 2 + 1) * kPart));
            QVERIFY(qwen.at(expert + "down_proj.weight") == numbers({kHidden, kFfn}, 1000 + first * kPart));
            const std::string same = mixtral + "experts." + std::to_string(e) + ".";
            QVERIFY(other.at(same + "w3.weight") == qwen.at(expert + "up_proj.weight"));
            QVERIFY(other.at(same + "w2.weight") == qwen.at(expert + "down_proj.weight"));
        }
        QVERIFY(other.contains(mixtral + "gate.weight"));
        // GPT-OSS has the same names in its files, and another order: without its model nothing is taken.
        QVERIFY(refused(memory, "auto").find("no recipe") != std::string::npos);
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

QTEST_GUILESS_MAIN(RecipeFamiliesCliTest)
#include "recipe_families_cli_test.moc"
