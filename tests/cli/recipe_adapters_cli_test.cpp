// Adapters of Megatron and of PEFT: recipes there and back.
#include <QtTest>

#include "cli/recipe_runner.h"

using namespace shardscope;
using namespace shardscope::test;

namespace {

std::string replaced(std::string text, const std::string& what, const std::string& with) {
    if (const size_t at = text.find(what); at != std::string::npos) text.replace(at, what.size(), with);
    return text;
}

}  // namespace

class RecipeAdaptersCliTest : public QObject, RecipeRunner {
    Q_OBJECT

  private slots:
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

    // Experts with a matrix each, one for all of them, or one of both for all; under Mixtral's names as well.
    void experts_data() {
        QTest::addColumn<bool>("sharedOuter");
        QTest::addColumn<bool>("sharedInner");
        QTest::addColumn<bool>("mixtral");
        QTest::newRow("each") << false << false << false;
        QTest::newRow("Mixtral") << false << false << true;
        QTest::newRow("shared outside") << true << false << false;
        QTest::newRow("shared") << true << true << false;
    }
    void experts() {
        QFETCH(bool, sharedOuter);
        QFETCH(bool, sharedInner);
        QFETCH(bool, mixtral);
        constexpr int64_t kExperts = 3, kRank = 2;
        const std::string stem = "decoder.layers.1.mlp.experts.experts.linear_fc";
        const auto all = [&](Dims shape, bool shared, float first) {
            if (!shared) shape.insert(shape.begin(), kExperts);
            return numbers(shape, first);
        };
        const State bridge{
            {stem + "1.adapter.linear_in.weight", all({kRank, kHidden}, sharedOuter, 0)},
            {stem + "1.adapter.linear_out.weight", all({2 * kFfn, kRank}, sharedInner, 100)},
            {stem + "2.adapter.linear_in.weight", all({kRank, kFfn}, sharedInner, 300)},
            {stem + "2.adapter.linear_out.weight", all({kHidden, kRank}, sharedOuter, 500)},
            {"decoder.layers.1.mlp.router.adapter.linear_in.weight", numbers({kRank, kHidden}, 700)}};
        State wanted;
        const std::string layer = "base_model.model.model.layers.1.";
        const std::string moe = layer + (mixtral ? "block_sparse_moe." : "mlp.");
        for (int64_t e = 0; e < kExperts; ++e) {
            const auto of = [&](const std::string& name, int64_t first, int64_t count) {
                const Array& whole = bridge.at(stem + name + ".weight");
                const bool each = whole.shape.size() == 3;
                const int64_t width = whole.shape.back(), own = each ? e * whole.shape[1] * width : 0;
                Array part{{count, width}, {}};
                const auto begin = whole.values.begin() + static_cast<ptrdiff_t>(own + first * width);
                part.values.assign(begin, begin + static_cast<ptrdiff_t>(count * width));
                return part;
            };
            const std::string expert = moe + "experts." + std::to_string(e) + ".";
            const std::string gate = expert + (mixtral ? "w1" : "gate_proj"),
                              up = expert + (mixtral ? "w3" : "up_proj"),
                              down = expert + (mixtral ? "w2" : "down_proj");
            wanted[gate + ".lora_A.weight"] = wanted[up + ".lora_A.weight"] =
                of("1.adapter.linear_in", 0, kRank);
            wanted[gate + ".lora_B.weight"] = of("1.adapter.linear_out", 0, kFfn);
            wanted[up + ".lora_B.weight"] = of("1.adapter.linear_out", kFfn, kFfn);
            wanted[down + ".lora_A.weight"] = of("2.adapter.linear_in", 0, kRank);
            wanted[down + ".lora_B.weight"] = of("2.adapter.linear_out", 0, kHidden);
        }
        wanted[moe + "gate.lora_A.weight"] = numbers({kRank, kHidden}, 700);
        QStringList words{"--set", "alpha=6", "--set", mixtral ? "mixtral=1" : "mixtral=0", "--strict"};
        if (sharedInner)
            QVERIFY(refused(bridge, "llama-peft-from-megatron", words).find("give --set experts=N") !=
                    std::string::npos);
        if (sharedInner) words += {"--set", "experts=3"};
        const State peft = mapped(bridge, "llama-peft-from-megatron", words);
        QVERIFY(peft == wanted);
        // Back, each expert has its own.
        const State back = mapped(peft, "llama-megatron-from-peft", {"--strict"});
        QCOMPARE(back.size(), bridge.size());
        QCOMPARE(back.at(stem + "1.adapter.linear_out.weight").shape, (Dims{kExperts, 2 * kFfn, kRank}));
        QVERIFY(mapped(back, "llama-peft-from-megatron", words) == wanted);
        const State apart =
            mapped(peft, "llama-megatron-from-peft", {"--set", "sequential_experts=1", "--strict"});
        QCOMPARE(apart.size(), size_t{kExperts * 6 + 1});
        QVERIFY(apart.contains(
            "decoder.layers.1.mlp.experts.local_experts.2.linear_fc1.adapter.adapter_up.linear_in.weight"));
        QVERIFY(mapped(apart, "llama-peft-from-megatron", words) == wanted);
        // Gate and up of an expert have one matrix in Megatron.
        State other = peft;
        other.at(moe + "experts.1." + (mixtral ? "w3" : "up_proj") + ".lora_A.weight").values[0] += 1;
        const QString from = fresh();
        writeState(from.toStdString() + "/model.safetensors", other);
        const Outcome unequal = runShardscope(
            {"convert", from, fresh(), "--to", "safetensors", "--map", "llama-megatron-from-peft"});
        QVERIFY2(unequal.err.find("gate and up of an expert") != std::string::npos, unequal.err.c_str());
    }

    // DoRA is of whole layers in Megatron-Bridge. Magnitudes of gate and up are in the order of the ranks.
    void magnitudes() {
        const std::string p = "base_model.model.model.layers.0.";
        State peft;
        const auto put = [&](const std::string& module, int64_t in, int64_t out, float a, float b) {
            peft[p + module + ".lora_A.weight"] = numbers({2, in}, a);
            peft[p + module + ".lora_B.weight"] = numbers({out, 2}, b);
            peft[p + module + ".lora_magnitude_vector"] = numbers({out}, b + 50);
        };
        put("mlp.gate_proj", kHidden, kFfn, 0, 100);
        put("mlp.up_proj", kHidden, kFfn, 0, 300);
        put("mlp.down_proj", kFfn, kHidden, 500, 600);
        const QString from = fresh(), to = fresh();
        writeState(from.toStdString() + "/adapter_model.safetensors", peft);
        writeFile(from.toStdString() + "/adapter_config.json",
                  R"({"peft_type": "LORA", "r": 2, "lora_alpha": 4, "use_dora": true})");
        const auto made = [&](const QStringList& more) {
            return runShardscope(QStringList{"convert", from, fresh(), "--to", "safetensors", "--strict",
                                             "--map", "llama-megatron-from-peft"} +
                                 more);
        };
        const Outcome open = made({}), swift = made({"--set", "swift=1"});
        QVERIFY2(open.err.find("fused=1") != std::string::npos, open.err.c_str());
        QVERIFY2(swift.err.find("ms-swift has no DoRA") != std::string::npos, swift.err.c_str());
        const Outcome done =
            runShardscope({"convert", from, to, "--to", "safetensors", "--strict", "--map",
                           "llama-megatron-from-peft", "--set", "fused=1", "--set", "ranks=2"});
        QVERIFY2(done.exitCode == 0, done.err.c_str());
        const State bridge = readState(to.toStdString());
        QCOMPARE(bridge.size(), size_t{6});
        const Array& gate = peft.at(p + "mlp.gate_proj.lora_magnitude_vector");
        const Array& up = peft.at(p + "mlp.up_proj.lora_magnitude_vector");
        const auto half = [](const Array& in, int64_t which) {
            return rows(in, kFfn / 2, [&](int64_t r) { return which * (kFfn / 2) + r; });
        };
        QVERIFY(bridge.at("decoder.layers.0.mlp.linear_fc1.adapter.weight_magnitude") ==
                stacked({half(gate, 0), half(up, 0), half(gate, 1), half(up, 1)}));
        QVERIFY(bridge.at("decoder.layers.0.mlp.linear_fc2.adapter.weight_magnitude") ==
                peft.at(p + "mlp.down_proj.lora_magnitude_vector"));
        QVERIFY(mapped(bridge, "llama-peft-from-megatron",
                       {"--set", "alpha=4", "--set", "ranks=2", "--strict"}) == peft);
        // Megatron's own run says how many ranks there were.
        writeFile(to.toStdString() + "/run_config.yaml",
                  "model:\n  tensor_model_parallel_size: 2\n  num_attention_heads: 8\npeft:\n  alpha: 4\n");
        const QString back = fresh();
        const Outcome again = runShardscope(
            {"convert", to, back, "--to", "safetensors", "--strict", "--map", "llama-peft-from-megatron"});
        QVERIFY2(again.exitCode == 0, again.err.c_str());
        QVERIFY(readState((back + "/adapter_model.safetensors").toStdString()) == peft);
        // Merged under Megatron's names they would be those of other rows.
        const QString base = fresh();
        writeState(base.toStdString() + "/model.safetensors",
                   {{"decoder.layers.0.mlp.linear_fc1.weight", numbers({2 * kFfn, kHidden}, 1)},
                    {"decoder.layers.0.mlp.linear_fc2.weight", numbers({kHidden, kFfn}, 1)}});
        const Outcome merge = runShardscope({"convert", base, fresh(), "--adapter", to});
        QVERIFY2(
            merge.exitCode != 0 && merge.err.find("order of 2 tensor-parallel ranks") != std::string::npos,
            merge.err.c_str());
    }
};

QTEST_GUILESS_MAIN(RecipeAdaptersCliTest)
#include "recipe_adapters_cli_test.moc"
