// What the files of PaddleNLP's hybrid-parallel checkpoints do not say and the reader concludes: dimensions,
// names, partitions.
#include "nlp_support.h"

using namespace shardscope;
using namespace shardscope::test;
using namespace shardscope::test::nlp;
using namespace shardscope::paddle_nlp;

class PaddleNlpTrapsTest : public QObject {
    Q_OBJECT

  private slots:
    // ------------------------------------------------------------------ the tensor-parallel dimension

    static Copy strange(float second, const Dims& shape = {4, 4}) {
        return made({{"model_state.tp00.pdparams", stateDict({array("m.strange", shape)})},
                     {"model_state.tp01.pdparams", stateDict({array("m.strange", shape, second)})}});
    }

    void dimensionThatIsUnknown() {
        const auto opened = strange(100).open(format());
        QVERIFY(!opened.ok());
        QCOMPARE(exitCode(opened.error().code), 5);
        QVERIFY(opened.error().message.find("'m.strange' [4, 4]") != std::string::npos);
        QVERIFY(opened.error().hint.find("--tp-dim 'm.strange=0'") != std::string::npos);
        for (const auto& [rule, shape] : std::map<std::string, Dims>{
                 {"m.*=0", {8, 4}}, {"m.*=1", {4, 8}}, {"re:m\\..*=1", {4, 8}}, {"*=none", {4, 4}}}) {
            OpenOptions options;
            options.own = {{"--tp-dim", "other=0"}, {"--tp-dim", rule}};
            const auto stated = strange(100).open(format(), options);
            QVERIFY2(stated.ok(), stated.ok() ? "" : describe(stated.error()).c_str());
            const Catalog& catalog = (*stated)->catalog();
            QCOMPARE(Dims(catalog.shape(0).begin(), catalog.shape(0).end()), shape);
            if (shape == Dims{4, 8}) {
                const auto values = valuesOf(**stated, "m.strange");
                QCOMPARE(values[3], 3.0F);
                QCOMPARE(values[4], 100.0F);
                QCOMPARE(values[8], 4.0F);
            }
            // Evidence, and the rule that matched nothing.
            const auto& evidence = catalog.mesh()->evidence;
            QVERIFY(std::any_of(evidence.begin(), evidence.end(), [](const std::string& line) {
                return line.find("--tp-dim") != std::string::npos;
            }));
            QVERIFY(found(validated(**stated, ValidateLevel::metadata), "meta.inconsistent",
                          "matches no tensor"));
        }
        for (const char* bad :
             {"m.strange=2", "m.strange", "=1", "m.strange=", "m.strange=-1", "m.strange=x"}) {
            OpenOptions options;
            options.own = {{"--tp-dim", bad}};
            const auto wrong = strange(100).open(format(), options);
            QVERIFY2(!wrong.ok() && wrong.error().code == ErrorCode::usage, bad);
        }
    }

    // Equal on all ranks: whole on each. One dimension that differs: cut along it.
    void dimensionByContent() {
        const auto same = strange(0).open(format());
        QVERIFY(same.ok());
        QCOMPARE((*same)->catalog().shape(0)[0], 4);
        const auto differs = strange(50, {6}).open(format());
        QVERIFY(differs.ok());
        QCOMPARE((*differs)->catalog().shape(0)[0], 12);
        // All zeros on every rank say nothing.
        Copy zeros = made({{"model_state.tp00.pdparams", stateDict({array("m.strange", {4, 4}, 0, 0)})},
                           {"model_state.tp01.pdparams", stateDict({array("m.strange", {4, 4}, 0, 0)})}});
        QVERIFY(!zeros.open(format()).ok());
    }

    void dimensionByLayersAndConfig() {
        // Layer 1 is known by config.json, layer 0 is square.
        std::vector<TpQuestion> questions(2);
        questions[0].name = "m.0.w";
        questions[0].local = {8, 8};
        questions[0].content = TpQuestion::Content::differs;
        questions[1].name = "m.1.w";
        questions[1].local = {8, 8};
        questions[1].content = TpQuestion::Content::differs;
        ModelSizes config;
        config.hidden = 8;
        config.intermediate = 24;
        QVERIFY(!concludeTpAxes(questions, 2, config, {}).ok());
        questions[1].local = {8, 12};
        const auto known = concludeTpAxes(questions, 2, config, {});
        QVERIFY(known.ok());
        QCOMPARE((*known)[0].axis, 1);
        QCOMPARE((*known)[1].axis, 1);
        QVERIFY((*known)[0].why.find("m.1.w") != std::string::npos);
    }

    // The shape of a whole weight beside optimizer state of ranks (merge_tensor_parallel).
    void dimensionByWholeWeight() {
        Copy copy =
            made({{"model_state.pdparams", stateDict({array("m.strange", {4, 6}, 0)})},
                  {"optimizer.tp00.pdopt", stateDict({array("linear_0.w_0_moment1_0", {4, 3}, 0)})},
                  {"optimizer.tp01.pdopt", stateDict({array("linear_0.w_0_moment1_0", {4, 3}, 50)})}});
        const auto opened = copy.open(format());
        QVERIFY2(opened.ok(), opened.ok() ? "" : describe(opened.error()).c_str());
        const auto moment = valuesOf(**opened, "m.strange.moment1");
        QCOMPARE(moment.size(), size_t{24});
        QCOMPARE(moment[3], 50.0F);
        QCOMPARE(valuesOf(**opened, "m.strange")[3], 3.0F);
    }

    // A vocabulary that does not divide is not cut, and fewer key-value heads than ranks are on each.
    void usuallyCutButEqual() {
        std::map<std::string, std::string> files;
        for (int t = 0; t < 2; ++t)
            files["model_state.tp0" + std::to_string(t) + ".pdparams"] = stateDict(
                {array("llama.layers.0.self_attn.k_proj.weight", {4, 2}, 1),
                 array("llama.layers.0.self_attn.q_proj.weight", {4, 2}, static_cast<float>(t * 8))});
        const auto opened = made(files).open(format());
        QVERIFY(opened.ok());
        QCOMPARE(valuesOf(**opened, "llama.layers.0.self_attn.k_proj.weight").size(), size_t{8});
        QCOMPARE(valuesOf(**opened, "llama.layers.0.self_attn.q_proj.weight").size(), size_t{16});
    }

    void outputLayer() {
        ModelSizes none;
        const auto axis = [&](Dims local) {
            std::vector<TpQuestion> questions(2);
            questions[0].name = "llama.norm.weight";
            questions[0].local = {6};
            questions[1].name = "lm_head.weight";
            questions[1].local = std::move(local);
            questions[1].content = TpQuestion::Content::differs;
            return concludeTpAxes(questions, 2, none, {}).value()[1].axis;
        };
        QCOMPARE(axis({6, 5}), 1);
        QCOMPARE(axis({5, 6}), 0);  // tied: [vocabulary, hidden]
        QCOMPARE(axis({6, 6}), 1);
    }

    void familyRules() {
        const auto cut = [](std::string_view name) {
            const FamilyRule* rule = familyRuleOf(name);
            return rule ? static_cast<int>(rule->cut) : -1;
        };
        using Cut = FamilyRule::Cut;
        QCOMPARE(cut("llama.layers.3.self_attn.q_proj.weight"), static_cast<int>(Cut::last));
        QCOMPARE(cut("llama.layers.3.self_attn.o_proj.weight"), static_cast<int>(Cut::first));
        QCOMPARE(cut("llama.layers.3.post_attention_layernorm.weight"), static_cast<int>(Cut::none));
        QCOMPARE(cut("llama.embed_tokens.weight"), static_cast<int>(Cut::first));
        QCOMPARE(cut("gpt.decoder.layers.0.linear2.bias"), static_cast<int>(Cut::none));
        QCOMPARE(cut("gpt.decoder.norm.bias"), static_cast<int>(Cut::none));
        QCOMPARE(cut("llama.layers.0.self_attn.o_proj.lora_A"), static_cast<int>(Cut::first));
        QCOMPARE(cut("llama.layers.0.self_attn.q_proj.lora_A"), static_cast<int>(Cut::none));
        QCOMPARE(cut("llama.layers.0.self_attn.q_proj.lora_B"), static_cast<int>(Cut::last));
        QCOMPARE(cut("a.b"), -1);
        QCOMPARE(familyRuleOf("m.mlp.gate_up_fused_proj.weight")->parts, 2);
        QVERIFY(familyRuleOf("m.self_attn.qkv_proj.weight")->heads);
    }

    // ------------------------------------------------------------------ names

    void fileNames() {
        const auto name = parseRankFileName("optimizer.tp01_pp02_shard10.pdopt");
        QVERIFY(name && name->optimizer && name->tp == 1 && name->pp == 2 && name->shard == 10 &&
                name->moe == kNotNamed);
        QCOMPARE(formatRankFileName(*name), std::string("optimizer.tp01_pp02_shard10.pdopt"));
        QVERIFY(parseRankFileName("model_state.pdparams") &&
                !parseRankFileName("model_state.pdparams")->placed());
        QCOMPARE(parseRankFileName("model_state.tp00_moe03.pdparams")->moe, 3U);
        // The scaler and the scheduler are not weights.
        for (const char* other :
             {"scaler.pdparams", "scheduler.pdparams", "scalar.pdparams", "model_state.tpx.pdparams",
              "model_state.tp0_tp1.pdparams", "optimizer.pdparams", "optimizer.tp99999999.pdopt",
              "model_state.tp00.pdopt", "x.pdopt", ""})
            QVERIFY2(!parseRankFileName(other), other);
    }

    void stateNames() {
        StaticNames known;
        for (const char* name : {"x.w_1", "x.w_10", "linear_1.w_0", "linear_10.w_0"})
            known.add(name);
        known.finish();
        const auto parsed = [&](const char* key) {
            const auto s = parseStateName({keyPart(key)}, known);
            return s ? s->parameter + " " + s->state : std::string();
        };
        QCOMPARE(parsed("x.w_1_moment1_0"), std::string("x.w_1 moment1"));
        QCOMPARE(parsed("x.w_10_moment1_0"), std::string("x.w_10 moment1"));
        QCOMPARE(parsed("linear_10.w_0_fp32_master_0_beta1_pow_acc_0"),
                 std::string("linear_10.w_0 beta1_pow_acc"));
        // AMSGrad's is not a second moment; an optimizer may have a name; accumulators may be counted on.
        QCOMPARE(parsed("linear_1.w_0_moment2_max_0"), std::string("linear_1.w_0 moment2_max"));
        QCOMPARE(parsed("linear_1.w_0_opt_moment2_3"), std::string("linear_1.w_0 moment2"));
        QCOMPARE(parsed("linear_1.w_0_own_thing_0"), std::string("linear_1.w_0 own_thing"));
        QCOMPARE(parsed("other_3.w_0_fp32_master_0_moment2_0"), std::string("other_3.w_0 moment2"));
        QCOMPARE(parsed("nothing"), std::string());
        const auto master = parseStateName({keyPart("master_weights"), keyPart("slice@linear_1.w_0")}, known);
        QVERIFY(master && master->sliced && master->parameter == "linear_1.w_0" &&
                master->state == "master_weight");
    }

    void dtypeNumbers() {
        QCOMPARE(floatOfNumber(22), std::optional(DType::bfloat16));  // VarType
        QCOMPARE(floatOfNumber(16), std::optional(DType::bfloat16));  // phi
        QCOMPARE(floatOfNumber(5), std::optional(DType::float32));
        QCOMPARE(floatOfNumber(10), std::optional(DType::float32));
        QVERIFY(!floatOfNumber(3));
    }

    // ------------------------------------------------------------------ without model_meta.json

    // Three parameters of different shapes over two ranks, sorted and not: found by doing the partition
    // again.
    void replay() {
        const std::string weights =
            stateDict({array("m.a.weight", {4, 2}, 0), array("m.b.weight", {4, 5}, 100),
                       array("m.c.weight", {2, 5}, 200)});
        const auto optimizer = [](std::vector<std::pair<std::string, Dims>> list, float first) {
            std::vector<ArraySpec> arrays;
            for (auto& [name, shape] : list)
                arrays.push_back(array(name + "_moment1_0", shape, first));
            for (auto& [name, shape] : list)
                arrays.push_back(array(name + "_beta1_pow_acc_0", {1}, 0.5F));
            return stateDict(arrays);
        };
        // Sorted: b (20) to 0, c (10) to 1, a (8) to 1. Unsorted: a to 0, b to 1, c to 0.
        for (const bool sorted : {true, false}) {
            Copy copy =
                made({{"model_state.pdparams", weights},
                      {"optimizer.shard00.pdopt",
                       sorted ? optimizer({{"linear_1.w_0", {4, 5}}}, 1000)
                              : optimizer({{"linear_0.w_0", {4, 2}}, {"linear_2.w_0", {2, 5}}}, 1000)},
                      {"optimizer.shard01.pdopt",
                       sorted ? optimizer({{"linear_0.w_0", {4, 2}}, {"linear_2.w_0", {2, 5}}}, 2000)
                              : optimizer({{"linear_1.w_0", {4, 5}}}, 2000)}});
            const auto opened = copy.open(format());
            QVERIFY(opened.ok());
            QCOMPARE(valuesOf(**opened, "m.b.weight.moment1").at(0), sorted ? 1000.0F : 2000.0F);
            QCOMPARE(valuesOf(**opened, "m.a.weight.moment1").at(0), sorted ? 2000.0F : 1000.0F);
            QCOMPARE(valuesOf(**opened, "m.c.weight.beta1_pow_acc").at(0), 0.5F);
            QVERIFY(validated(**opened, ValidateLevel::values).verdict == Verdict::safe);
        }
    }

    // Every genuine case without model_meta.json, and without the table of names that paddle.save wrote.
    void withoutNameTable_data() {
        QTest::addColumn<QString>("name");
        for (const GenuineCase& c : genuineCases("paddle_hybrid")) {
            if (!c.expected["layout"]["model_meta"].get<bool>() && c.name.find("fused") == std::string::npos)
                QTest::newRow(c.name.c_str()) << QString::fromStdString(c.name);
        }
    }
    void withoutNameTable() {
        QFETCH(QString, name);
        const GenuineCase c = genuine(name.toStdString());
        Copy copy(c.path);
        for (auto& [file, content] : copy.files) {
            const size_t at = content.find("StructuredToParameterName@@");
            if (file.starts_with("model_state") && at != content.npos) content[at] = 'N';
        }
        const auto opened = copy.open(format());
        QVERIFY(opened.ok());
        const auto bytes = digests(**opened);
        for (const auto& [tensor, want] : c.expected["tensors"].items())
            QVERIFY2(bytes.contains(tensor) && bytes.at(tensor) == want["sha256"], tensor.c_str());
    }

    void replayThatIsAmbiguous() {
        // Unsorted: p0 and p2 to rank 0; sorted: p1 and p0. Both fit.
        Copy copy = made({{"model_state.pdparams",
                           stateDict({array("m.p0", {2}), array("m.p1", {4}), array("m.p2", {4})})},
                          {"optimizer.shard00.pdopt",
                           stateDict({array("a_0.w_0_moment1_0", {2}), array("b_0.w_0_moment1_0", {4})})},
                          {"optimizer.shard01.pdopt", stateDict({array("c_0.w_0_moment1_0", {4})})}});
        const auto opened = copy.open(format());
        QVERIFY(opened.ok());
        const ValidationReport report = validated(**opened, ValidateLevel::metadata);
        QVERIFY2(found(report, "meta.inconsistent", "'m.p1', 'm.p2'"), text(report).c_str());
        QVERIFY(lacks(**opened));
        QVERIFY(checkComplete((*opened)->catalog(), "/d", false).ok());  // the weights are whole
        QCOMPARE((*opened)->catalog().tensorCount(), size_t{3});
    }

    // Stage 3 keeps small parameters whole on every rank, whatever their dimensions, and slices others.
    void stage3WithWholeParameters() {
        const auto shard = [](int s) {
            return stateDict({array("linear_0.w_0_moment1_0", {64}, static_cast<float>(64 * s)),
                              array("linear_1.w_0_moment1_0", {3, 2}, 7),
                              array("norm_0.w_0_moment1_0", {70}, 9)});
        };
        std::vector<ArraySpec> weights{array("m.a", {10, 12}), array("m.b", {3, 2}), array("m.n", {70})};
        Copy copy = made({{"model_state.pdparams", stateDict(weights)},
                          {"optimizer.shard00.pdopt", shard(0)},
                          {"optimizer.shard01.pdopt", shard(1)}});
        // The last elements of the second slice are padding.
        std::string& second = copy.files["optimizer.shard01.pdopt"];
        const std::string tail = raw(8, 120);
        const size_t at = second.find(tail);
        QVERIFY(at != second.npos);
        second.replace(at, tail.size(), std::string(tail.size(), '\0'));
        const auto opened = copy.open(format());
        QVERIFY2(opened.ok(), opened.ok() ? "" : describe(opened.error()).c_str());
        const ValidationReport report = validated(**opened, ValidateLevel::values);
        QVERIFY2(report.verdict == Verdict::safe, text(report).c_str());
        QCOMPARE(valuesOf(**opened, "m.a.moment1").at(119), 119.0F);
        QCOMPARE(valuesOf(**opened, "m.b.moment1").at(5), 12.0F);
        QCOMPARE(valuesOf(**opened, "m.n.moment1").at(69), 78.0F);
    }

    // A constant learning rate leaves nothing in the optimizer's file; the schedule's own file is taken.
    void noSchedule() {
        Copy copy(genuine("mp2").path);
        for (int t = 0; t < 2; ++t)
            copy.files["optimizer.tp0" + std::to_string(t) + ".pdopt"] =
                stateDict({array("embedding_0.w_0_moment1_0", {5, 6}, static_cast<float>(t))});
        const auto opened = copy.open(format());
        QVERIFY(opened.ok());
        QCOMPARE((*opened)->catalog().objects().size(), size_t{1});
        QCOMPARE((*opened)->catalog().objects()[0].name, std::string("LR_Scheduler"));
        QVERIFY(json::parse(valueToJson((*opened)->catalog().objects()[0].value)).contains("last_lr"));
    }

    // A weight that two stages share is one tensor.
    void sharedByStages() {
        std::map<std::string, std::string> files;
        files["model_state.pp00.pdparams"] = stateDict({array("m.emb", {4, 3}, 5), array("m.0.w", {2}, 1)});
        files["model_state.pp01.pdparams"] = stateDict({array("m.emb", {4, 3}, 5), array("m.1.w", {2}, 2)});
        const auto opened = made(files).open(format());
        QVERIFY(opened.ok());
        const Catalog& catalog = (*opened)->catalog();
        QCOMPARE(catalog.tensorCount(), size_t{3});
        QCOMPARE(catalog.shape(catalog.find("m.emb"))[0], 4);
        QVERIFY(validated(**opened, ValidateLevel::values).verdict == Verdict::safe);
        files["model_state.pp01.pdparams"] = stateDict({array("m.emb", {4, 3}, 6), array("m.1.w", {2}, 2)});
        const auto other = made(files).open(format());
        QVERIFY(other.ok());
        QVERIFY(
            found(validated(**other, ValidateLevel::metadata), "meta.inconsistent", "two parameters claim"));
    }

    void expertsOfDataRanks() {
        std::map<std::string, std::string> files;
        for (int m = 0; m < 2; ++m)
            files["model_state.moe0" + std::to_string(m) + ".pdparams"] =
                stateDict({array("m.experts.0.w", {2}, static_cast<float>(10 * m)),
                           array("m.experts.1.w", {2}, static_cast<float>(10 * m + 5))});
        const auto opened = made(files).open(format());
        QVERIFY(opened.ok());
        QCOMPARE((*opened)->catalog().tensorCount(), size_t{4});
        QCOMPARE(valuesOf(**opened, "m.experts.3.w").at(0), 15.0F);
        QCOMPARE((*opened)->catalog().mesh()->axes[0].name, std::string("moe"));
    }

    // Experts over the tensor-parallel group: numbered through, each on one rank.
    void expertsOfTensorRanks() {
        std::map<std::string, std::string> files;
        for (int t = 0; t < 2; ++t) {
            const std::string expert = "m.experts." + std::to_string(t);
            files["model_state.tp0" + std::to_string(t) + ".pdparams"] =
                stateDict({array("m.norm.weight", {4}, 1),
                           array(expert + ".gate_proj.weight", {4, 6}, static_cast<float>(10 * t)),
                           array(expert + ".down_proj.weight", {6, 4}, static_cast<float>(10 * t + 5))});
        }
        const auto opened = made(files).open(format());
        QVERIFY2(opened.ok(), opened.ok() ? "" : describe(opened.error()).c_str());
        const Catalog& catalog = (*opened)->catalog();
        QCOMPARE(catalog.tensorCount(), size_t{5});
        const TensorId second = catalog.find("m.experts.1.gate_proj.weight");
        QVERIFY(second != kNone);
        QCOMPARE(Dims(catalog.shape(second).begin(), catalog.shape(second).end()), (Dims{4, 6}));
        QCOMPARE(valuesOf(**opened, "m.experts.1.down_proj.weight").at(0), 15.0F);
        QVERIFY(validated(**opened, ValidateLevel::values).verdict == Verdict::safe);
        QVERIFY(std::any_of(
            catalog.mesh()->evidence.begin(), catalog.mesh()->evidence.end(),
            [](const std::string& why) { return why.find("experts, each whole") != std::string::npos; }));
        // A rank without experts: one of its files may be of another run.
        files["model_state.tp01.pdparams"] = stateDict({array("m.norm.weight", {4}, 1)});
        const auto odd = made(files).open(format());
        QVERIFY(!odd.ok() || validated(**odd, ValidateLevel::metadata).verdict == Verdict::unsafe);
    }

    // The same names on all ranks: pieces of one expert, or experts of their own. Without sizes nobody knows.
    void expertsOfTheSameNames() {
        std::map<std::string, std::string> files;
        for (int t = 0; t < 2; ++t)
            files["model_state.tp0" + std::to_string(t) + ".pdparams"] =
                stateDict({array("m.norm.weight", {4}, 1),
                           array("m.experts.0.gate_proj.weight", {4, 6}, static_cast<float>(10 * t))});
        const auto open = made(files).open(format());
        QVERIFY(!open.ok());
        QCOMPARE(static_cast<int>(open.error().code), static_cast<int>(ErrorCode::impossible));
        QVERIFY(open.error().message.find("m.experts.0.gate_proj.weight") != std::string::npos);
        QVERIFY(open.error().message.find("others on each rank") != std::string::npos);
        // The whole is twice as wide, says the configuration: pieces.
        files["config.json"] = R"({"hidden_size": 4, "moe_intermediate_size": 12})";
        const auto pieces = made(files).open(format());
        QVERIFY2(pieces.ok(), pieces.ok() ? "" : describe(pieces.error()).c_str());
        const TensorId t = (*pieces)->catalog().find("m.experts.0.gate_proj.weight");
        QCOMPARE((*pieces)->catalog().shape(t)[1], int64_t{12});
        // What each holds is as wide as an expert is: not one tensor.
        files["config.json"] = R"({"hidden_size": 4, "moe_intermediate_size": 6})";
        QVERIFY(!made(files).open(format()).ok());
    }
};

QTEST_GUILESS_MAIN(PaddleNlpTrapsTest)
#include "paddle_nlp_traps_test.moc"
