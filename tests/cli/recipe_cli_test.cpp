// The steps of recipes, as a user runs them. What they make is compared with the same done element by
// element.
#include <QFile>
#include <QtTest>
#include <cmath>

#include "cli/recipe_runner.h"

using namespace shardscope;
using namespace shardscope::test;

class RecipeCliTest : public QObject, RecipeRunner {
    Q_OBJECT

  private slots:
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
        // Rows that are the same tensor are no ties.
        const State one{{"m", numbers({2, 3}, 0)}};
        const State each = mapped(one, recipe(R"json({"step": "reshape", "tensors": "m", "shape": [1, 2, 3]},
            {"step": "pad", "tensors": "m", "length": 3, "row": 0},
            {"step": "unstack", "from": "m", "to": "m.{i}"})json"));
        QCOMPARE(each.size(), size_t{3});
        QVERIFY(each.at("m.0") == one.at("m") && each.at("m.2") == one.at("m"));
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
            "step 1 (rope): 'a' [4, 6]: 4 rows cannot be 3 heads");
        row("pairs", R"({"step": "rope", "layout": "half", "tensors": "a", "heads": 4})",
            "4 rows cannot be heads of 1 row, in pairs");
        row("heads or size",
            R"({"step": "rope", "layout": "half", "tensors": "a", "heads": 1, "head_dim": 4})",
            "it needs either 'heads' or 'head_dim'");
        row("groups",
            R"({"step": "fused-qkv", "layout": "grouped", "from": "a", "into": ["q", "k", "v"], "heads": 3, "kv_heads": 2})",
            "3 query heads cannot share 2 key-value heads");
        row("slots",
            R"({"step": "fused-qkv", "layout": "grouped", "from": "a", "into": ["q", "k", "v"], "heads": 1})",
            "4 rows cannot be 1 query head and twice 1 key-value head of one size");
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
};

QTEST_GUILESS_MAIN(RecipeCliTest)
#include "recipe_cli_test.moc"
