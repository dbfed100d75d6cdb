// Which recipe is taken, what is said of names that none knows, and when a directory is one that transformers
// loads.
#include <QJsonArray>
#include <QJsonDocument>
#include <QJsonObject>
#include <QtTest>

#include "cli/recipe_runner.h"

using namespace shardscope;
using namespace shardscope::test;

class RecipeChoiceCliTest : public QObject, RecipeRunner {
    Q_OBJECT

  private slots:
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
        // A recipe does not fit if one of its steps leaves some names out.
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
        QVERIFY2(named.contains("a 'llama' does not have 21 of its names"), qPrintable(named));
        const QString part = why({"--map", "auto", "--assets", model, "--exclude", "layers.1.*"});
        QVERIFY2(part.contains("layer"), qPrintable(part));
        state["optimizer.state.norm.weight.exp_avg"] = numbers({kHidden}, 0);
        writeState(from.toStdString() + "/model.safetensors", state);
        const QString carried = why({"--map", "auto", "--assets", model});
        QVERIFY2(carried.contains("it has optimizer state: 1 of 22 tensors"), qPrintable(carried));
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
        QVERIFY2(error.find("a 'llama' has no 'vision.patch.weight'") != std::string::npos, error.c_str());
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
        QVERIFY(done.out.find("the recipe does not know 5 tensors") != std::string::npos);
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
};

QTEST_GUILESS_MAIN(RecipeChoiceCliTest)
#include "recipe_choice_cli_test.moc"
