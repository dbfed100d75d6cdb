// What Megatron-Core and Megatron-LM wrote, as one checkpoint: torch_dist, zarr and mp_rank_* directories;
// and what is said of saves that died, and of missing and truncated files.
#include <QDir>
#include <QTemporaryDir>
#include <QTest>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <set>

#include "cli/genuine_checks.h"

using namespace shardscope::test;
using nlohmann::json;

namespace {

GenuineCase megatronCase(const QString& name) {
    return genuineCase("megatron", name);
}

// The step of a run, or the directory itself.
QString stepOf(const GenuineCase& c) {
    const QDir place(QString::fromStdString(c.path));
    const QStringList steps = place.entryList({"iter_*"}, QDir::Dirs);
    return steps.isEmpty() ? place.path() : place.filePath(steps.first());
}
QString stepOf(const QString& name) {
    return stepOf(megatronCase(name));
}

json namedEntries(const QString& path, const QStringList& what, const char* list) {
    const json all = runShardscope(QStringList{"ls", path, "--json"} + what).json();
    json byName;
    for (const json& entry : all[list])
        byName[entry["name"].get<std::string>()] = entry;
    return byName;
}
json objectsOf(const QString& path) {
    return namedEntries(path, {"--objects"}, "objects");
}
json axesOf(const QString& path) {
    return runShardscope({"info", path, "--json"}).json()["mesh"]["axes"];
}

void removeFile(const QString& path) {
    if (!QFile::remove(path)) qFatal("cannot remove %s", qPrintable(path));
}
void cutFile(const QString& path, qint64 bytes) {
    QFile file(path);
    if (!file.resize(file.size() - bytes)) qFatal("cannot truncate %s", qPrintable(path));
}

}  // namespace

class MegatronCliTest : public QObject {
    Q_OBJECT

    QTemporaryDir place_;
    QString copyOf(const QString& name, const QString& as) {
        copyTree(stepOf(name), place_.filePath(as));
        return place_.filePath(as);
    }

  private slots:
    // Each tensor-parallel rank has scales of its own. What is not known of them is named, not read without
    // them.
    void transformerEngineWeights() {
        const QString data = QStringLiteral(SHARDSCOPE_TEST_DATA "/transformer_engine/");
        std::ifstream file((data + "expected.json").toStdString());
        const json expected = json::parse(file);
        QCOMPARE(expected.size(), size_t{2});
        for (const auto& [of, answers] : expected.items()) {
            const QString source = data + QString::fromStdString(of),
                          out = place_.filePath("fp8-" + source.right(8));
            size_t weights = 0;
            const json info = runShardscope({"info", source, "--json"}).json();
            for (const json& share : info["quantized"])
                weights += share["weights"].get<size_t>();
            QCOMPARE(weights, answers.size());
            const QStringList words{"convert",        source,         out,    "--to",  "safetensors",
                                    "--weights-only", "--dequantize", "fp32", "--json"};
            // Those that are not known are not dropped in silence.
            if (of != "ranks") QCOMPARE(runShardscope(words).exitCode, 3);
            const auto done = runShardscope(words + QStringList{"--skip-damaged"});
            QVERIFY2(done.exitCode == 0, (done.out + done.err).c_str());
            const json made =
                runShardscope({"digest", out, "--algorithm", "sha256", "--json"}).json()["tensors"];
            for (const auto& [name, answer] : answers.items()) {
                const std::string full = (of == "ranks" ? "model." : "") + name;
                COMPARE_JSON(made.value(full, "missing"), answer);
            }
        }
        const json said = runShardscope({"validate", data + "model.pt", "--json"}).json();
        for (const char* why : {"NVFP4Tensor of Transformer Engine", "in an order for its kernels"})
            QVERIFY2(said.dump().find(why) != std::string::npos, said.dump().c_str());
    }

    // With the recipe of its family, a checkpoint becomes the tensors of the Hugging Face model that it was
    // made from, without being told anything else.
    void huggingFace_data() {
        QTest::addColumn<QString>("name");
        for (const GenuineCase& c : genuineCases("megatron")) {
            if (!c.damaged() && c.expected.contains("hf") && !c.expected["hf"].empty())
                QTest::newRow(c.name.c_str()) << QString::fromStdString(c.name);
        }
    }
    void huggingFace() {
        QFETCH(QString, name);
        const GenuineCase c = megatronCase(name);
        const json& want = c.expected["hf"];
        const bool experts = c.expected["hf_config"]["num_local_experts"] != 0;
        const bool biases = want.contains("model.layers.0.self_attn.q_proj.bias");
        const QString family = experts ? "mixtral" : biases ? "qwen2" : "llama";
        const QString out = place_.filePath("hf-" + name);
        const Outcome done =
            runShardscope({"convert", QString::fromStdString(c.path), out, "--to", "safetensors",
                           "--weights-only", "--map", family + "-hf-from-megatron"});
        QVERIFY2(done.exitCode == 0, done.err.c_str());
        const json digests = digestsOf(out), tensors = namedEntries(out, {}, "tensors");
        for (const auto& [tensor, truth] : want.items()) {
            QVERIFY2(tensors.contains(tensor), tensor.c_str());
            COMPARE_JSON(tensors[tensor]["dtype"], truth["dtype"]);
            COMPARE_JSON(tensors[tensor]["shape"], truth["shape"]);
            std::string digest = truth["sha256"];
            // The halves of that case were not made of the Hugging Face model.
            const size_t mlp = tensor.find(".mlp.");
            if (name.contains("singleton") && mlp != std::string::npos &&
                !tensor.ends_with("down_proj.weight")) {
                const char* half = tensor.ends_with("gate_proj.weight") ? "w" : "v";
                digest = c.expected["tensors"]["decoder." + tensor.substr(6, mlp - 6) +
                                               ".mlp.linear_fc1.weight_" + half]["sha256"];
            }
            QVERIFY2(digests[tensor] == digest, tensor.c_str());
        }
        for (const auto& [tensor, entry] : tensors.items()) {
            QVERIFY2(want.contains(tensor) || tensor.ends_with("norm.bias") || !tensor.starts_with("model."),
                     tensor.c_str());
        }
    }

    // The optimizer's state follows its parameters, there and back.
    void optimizerThroughRecipes() {
        const QString source = stepOf("m0.12.3-optim-flat-tp2dp2");
        const QString hf = place_.filePath("optimizer.pt"), back = place_.filePath("back.pt");
        Outcome done = runShardscope({"convert", source, hf, "--to", "torch", "--map",
                                      "llama-hf-from-megatron", "--exclude", "common.*"});
        QVERIFY2(done.exitCode == 0, done.err.c_str());
        const json tensors = namedEntries(hf, {}, "tensors");
        COMPARE_JSON(tensors["optimizer.state.exp_avg.model.layers.1.self_attn.k_proj.weight"]["shape"],
                     json::parse("[8, 16]"));
        QVERIFY(tensors.contains("optimizer.state.fp32_param.model.layers.0.mlp.up_proj.weight"));
        done = runShardscope({"convert", hf, back, "--to", "torch", "--map", "llama-megatron-from-hf",
                              "--set", "stacked=1", "--set", "heads=4", "--set", "kv_heads=2"});
        QVERIFY2(done.exitCode == 0, done.err.c_str());
        const json before = digestsOf(source), after = digestsOf(back);
        int compared = 0;
        for (const auto& [tensor, digest] : after.items()) {
            QVERIFY2(before.contains(tensor) && before[tensor] == digest, tensor.c_str());
            compared += tensor.starts_with("optimizer.state.") ? 1 : 0;
        }
        QCOMPARE(compared, 3 * 12);
    }

    // Rows beyond the true size of the vocabulary go when the args state it; else they stay, and the plan
    // says so.
    void paddedVocabulary() {
        const QString tied = stepOf("m0.16.1-gpt2-tp2pp2-tied"), out = place_.filePath("gpt2");
        const Outcome done = runShardscope({"convert", tied, out, "--to", "safetensors", "--map",
                                            "gpt2-hf-from-megatron", "--weights-only"});
        QVERIFY2(done.exitCode == 0, done.err.c_str());
        COMPARE_JSON(namedEntries(out, {}, "tensors")["transformer.wte.weight"]["shape"],
                     json::parse("[27, 16]"));
        const QStringList plan{"plan",
                               stepOf("m0.16.1-gpt-tp2-llama"),
                               place_.filePath("unused"),
                               "--to",
                               "safetensors",
                               "--map",
                               "llama-hf-from-megatron",
                               "--json"};
        const std::string notes = runShardscope(plan).json()["notes"].dump();
        QVERIFY2(notes.find("'vocab_size' has no value") != std::string::npos, notes.c_str());
        QVERIFY2(notes.find("num_attention_heads of Megatron's args") != std::string::npos, notes.c_str());
    }

    void commonEntriesAreObjects() {
        const json objects = objectsOf(stepOf("m0.16.1-moe-ep2"));
        COMPARE_JSON(objects["common.iteration"]["value"], json(10));
        COMPARE_JSON(objects["common.content_metadata.distrib_optim_sharding_type"]["value"],
                     json("fully_reshardable"));
        QVERIFY(objects["common.args"].dump().find("tensor_model_parallel_size") != std::string::npos);
        // A list of one object on each rank is that object.
        const json grid = objectsOf(stepOf("m0.16.1-hand-grid"));
        COMPARE_JSON(grid["grid_obj/shard_1.0_2.2"]["value"], json::parse("[2, null, 1.5]"));
    }

    void meshIsStated_data() {
        QTest::addColumn<QString>("name");
        QTest::addColumn<QString>("axes");
        QTest::newRow("args") << "m0.16.1-gpt-tp2pp2-qwen"
                              << R"([{"name":"pp","size":2},{"name":"tp","size":2}])";
        QTest::newRow("legacy")
            << "m0.16.1-legacy-tp2pp2dp2"
            << R"([{"name":"pp","size":2},{"name":"dp","size":2},{"name":"tp","size":2}])";
        QTest::newRow("zarr") << "m0.8.0-zarr-tp2pp2"
                              << R"([{"name":"pp","size":2},{"name":"tp","size":2}])";
        // Its common.pt has no args.
        QTest::newRow("random states") << "m0.16.1-te-extra-state"
                                       << R"([{"name":"tp","size":2}])";
    }
    void meshIsStated() {
        QFETCH(QString, name);
        QFETCH(QString, axes);
        COMPARE_JSON(axesOf(stepOf(name)), json::parse(axes.toStdString()));
    }

    void optimizerStateIsSuch() {
        const json tensors = namedEntries(stepOf("m0.16.1-optim-dp-reshardable-tp2dp2"), {}, "tensors");
        for (const auto& [name, tensor] : tensors.items())
            QVERIFY2((tensor["role"] == "optimizer") == name.starts_with("optimizer."), name.c_str());
    }

    // Buckets do not say what they hold; the order of the model's parameters does.
    void bucketsHoldNamedParameters() {
        const GenuineCase c = megatronCase("m0.16.1-optim-dp-reshardable-tp2dp2");
        const QStringList named{"--buckets", "parameters"};
        const json digests = digestsOf(stepOf(c), named), tensors = namedEntries(stepOf(c), named, "tensors");
        for (const auto& [state, want] : c.expected["resolved"].items()) {
            QVERIFY2(digests.value(state, "") == want["sha256"], state.c_str());
            COMPARE_JSON(tensors[state]["shape"], want["shape"]);
        }
        for (const auto& [tensor, want] : c.expected["tensors"].items())
            QVERIFY2(tensors.contains(tensor) == (tensor.find("bucket_idx") == tensor.npos), tensor.c_str());
        COMPARE_JSON(runShardscope(QStringList{"validate", stepOf(c), "--level", "values", "--json"} + named)
                         .json()["verdict"],
                     json("safe"));
        QCOMPARE(runShardscope({"info", stepOf(c), "--buckets", "guess"}).exitCode, 2);
    }
    // Of what does not add up nothing is guessed.
    void bucketsStayWhereParametersAreUnknown() {
        const QString path = copyOf("m0.16.1-optim-dp-reshardable-tp2dp2", "no-args");
        removeFile(path + "/common.pt");
        const json info = runShardscope({"info", path, "--buckets", "parameters", "--json"}).json();
        QVERIFY2(info["notes"].dump().find("stays in buckets") != std::string::npos, info.dump().c_str());
        QVERIFY(namedEntries(path, {"--buckets", "parameters"}, "tensors")
                    .contains("optimizer.distributed.dp_group_idx_0.gbuf_idx_0.dtype_(torch.bfloat16, "
                              "torch.float32).bucket_idx_0.param"));
    }
    // Whether the optimizer is distributed or not: distrib_optim.pt, or numbered states and masters.
    void statesOfRankDirectoriesAreNamed_data() {
        QTest::addColumn<QString>("name");
        QTest::addColumn<QString>("master");
        QTest::newRow("numbered") << "m0.16.1-legacy-tp2"
                                  << "fp32_param";
        QTest::newRow("distributed") << "m0.16.1-legacy-tp2pp2dp2"
                                     << "param";
    }
    void statesOfRankDirectoriesAreNamed() {
        QFETCH(QString, name);
        QFETCH(QString, master);
        const GenuineCase c = megatronCase(name);
        const json tensors = namedEntries(stepOf(c), {}, "tensors");
        // The masters are what the weights were rounded from, but for a step of
        // 0.001.
        for (const auto& [tensor, want] : c.expected["tensors"].items()) {
            const std::string parameter = tensor.substr(std::string("model.").size());
            for (const std::string& kind :
                 {std::string("exp_avg"), std::string("exp_avg_sq"), master.toStdString()}) {
                const json& state =
                    tensors[std::string("optimizer.state.").append(parameter).append(".").append(kind)];
                QVERIFY2(!state.is_null(), tensor.c_str());
                COMPARE_JSON(state["shape"], want["shape"]);
                COMPARE_JSON(state["dtype"], json("float32"));
            }
        }
        QCOMPARE(validate(stepOf(c)).exitCode, 0);
        const auto bytesOf = [&](const QString& tensor) {
            QFile file(place_.filePath("one.raw"));
            const Outcome out = runShardscope({"extract", stepOf(c), tensor, file.fileName(), "--overwrite"});
            if (out.exitCode != 0 || !file.open(QIODevice::ReadOnly)) qFatal("%s", out.err.c_str());
            return file.readAll();
        };
        for (const char* parameter : {"decoder.layers.1.mlp.linear_fc1.weight", "output_layer.weight"}) {
            const QByteArray weights = bytesOf(QString("model.%1").arg(parameter));
            const QByteArray masters = bytesOf(QString("optimizer.state.%1.%2").arg(parameter, master));
            QCOMPARE(masters.size(), 2 * weights.size());
            for (qsizetype i = 0; i < weights.size() / 2; ++i) {
                // A bfloat16 is the upper half of a float.
                uint32_t bits = 0;
                float weight = 0, value = 0;
                memcpy(reinterpret_cast<char*>(&bits) + 2, weights.data() + 2 * i, 2);
                memcpy(&weight, &bits, sizeof weight);
                memcpy(&value, masters.data() + 4 * i, sizeof value);
                QVERIFY(std::abs(weight - value) < 0.006F);
            }
        }
    }

    // NeMo and verl put the checkpoint into a directory of its own, beside configuration.
    void directoriesOfOtherProgramsOpen() {
        const QString nemo = place_.filePath("nemo"), verl = place_.filePath("verl");
        copyTree(stepOf("m0.16.1-gpt-tp2-llama"), nemo + "/weights");
        copyTree(stepOf("m0.16.1-gpt-tp2-llama"), verl + "/dist_ckpt");
        for (const QString& other : {nemo + "/context", verl + "/huggingface"}) {
            QVERIFY(QDir().mkpath(other));
            QFile file(other + "/config.json");
            QVERIFY(file.open(QIODevice::WriteOnly));
            QCOMPARE(file.write("{}"), 2);
        }
        for (const QString& path : {nemo, verl}) {
            const Outcome info = runShardscope({"info", path, "--json"});
            QVERIFY2(info.exitCode == 0, info.out.c_str());
            COMPARE_JSON(info.json()["format"], json("megatron"));
        }
    }

    void missingCommitMarkIsAnError() {
        for (const char* name : {"m0.16.1-gpt-tp2-llama", "m0.8.0-zarr-tp2pp2"}) {
            const QString path = copyOf(name, QString("uncommitted-%1").arg(name));
            removeFile(path + "/metadata.json");
            const Outcome report = validate(path);
            QCOMPARE(report.exitCode, 1);
            COMPARE_JSON(findingOf(report.json(), "file.missing", "metadata.json")["severity"],
                         json("error"));
        }
    }
    void missingCommonFileIsAnError() {
        const QString path = copyOf("m0.16.1-gpt-tp2-llama", "no-common");
        removeFile(path + "/common.pt");
        const Outcome report = validate(path);
        COMPARE_JSON(findingOf(report.json(), "file.missing", "common.pt")["severity"], json("error"));
    }
    void uncommittedMetadataIsRefused() {
        const QString path = copyOf("m0.16.1-gpt-tp2-llama", "no-metadata");
        removeFile(path + "/.metadata");
        const Outcome info = runShardscope({"info", path, "--json"});
        QCOMPARE(info.exitCode, 3);
        QVERIFY2(info.json()["message"].get<std::string>().find("never committed") != std::string::npos,
                 info.out.c_str());
    }
    void wrongTrackerIsAFinding() {
        const QString path = place_.filePath("tracker");
        copyTree(QString::fromStdString(megatronCase("m0.16.1-gpt-tp2-llama").path), path);
        QFile tracker(path + "/latest_checkpointed_iteration.txt");
        QVERIFY(tracker.open(QIODevice::WriteOnly | QIODevice::Truncate));
        QCOMPARE(tracker.write("20"), 2);
        tracker.close();
        const Outcome report = validate(path, "metadata");
        QCOMPARE(report.exitCode, 1);
        QVERIFY2(!findingOf(report.json(), "file.missing", "20").is_null(), report.out.c_str());
    }

    void damagedDataFilesAreFound() {
        const QString cut = copyOf("m0.16.1-gpt-tp2-llama", "cut"),
                      gone = copyOf("m0.16.1-gpt-tp2-llama", "gone");
        cutFile(cut + "/__0_0.distcp", 300);
        removeFile(gone + "/__1_0.distcp");
        QVERIFY(!findingOf(validate(cut).json(), "file.truncated", "__0_0.distcp").is_null());
        QVERIFY(!findingOf(validate(gone).json(), "file.missing", "__1_0.distcp").is_null());
    }

    void missingRankLeavesGaps() {
        const QString path = copyOf("m0.16.1-legacy-tp2pp2dp2", "missing-rank");
        QVERIFY(QDir(path + "/mp_rank_01_001").removeRecursively());
        const json report = validate(path).json();
        QVERIFY(!findingOf(report, "file.missing", "mp_rank_01_001/model_optim_rng.pt").is_null());
        QVERIFY(!findingOf(report, "file.missing", "mp_rank_01_001/distrib_optim.pt").is_null());
        QVERIFY(!findingOf(report, "coverage.gap", "model.decoder.layers.3.mlp.linear_fc1.weight").is_null());
    }
    void truncatedRankFileIsFound() {
        const QString path = copyOf("m0.16.1-legacy-tp2", "truncated-rank");
        cutFile(path + "/mp_rank_01/model_optim_rng.pt", 2000);
        const Outcome report = validate(path);
        QCOMPARE(report.exitCode, 1);
        QVERIFY2(report.out.find("mp_rank_01/model_optim_rng.pt") != std::string::npos, report.out.c_str());
        QVERIFY(!findingOf(report.json(), "coverage.gap").is_null());
    }
    void cutDimensionCanBeStated() {
        const json shape = namedEntries(
            stepOf("m0.16.1-legacy-tp2"), {"--tp-dim", "*.layers.0.self_attention.linear_proj.weight=none"},
            "tensors")["model.decoder.layers.0.self_attention.linear_proj.weight"];
        COMPARE_JSON(shape["shape"], json::parse("[16, 8]"));
    }

    // Shards of a projection that is not known are shown, and not converted.
    void unknownProjectionsAreRefused() {
        const QString path = stepOf("m0.16.1-bad-legacy-unknown-tp2");
        QCOMPARE(runShardscope({"digest", path, "*linear_other*"}).exitCode, 3);
        const QString out = place_.filePath("unknown");
        QCOMPARE(runShardscope({"convert", path, out, "--to", "safetensors"}).exitCode, 5);
        QVERIFY(!QFile::exists(out));
        // Said to be one part along dimension 0, it is one.
        const QStringList stated{"convert", path, out, "--to", "safetensors", "--select", "*linear_other*"};
        QCOMPARE(runShardscope(stated).exitCode, 5);
        QCOMPARE(runShardscope(stated + QStringList{"--tp-dim", "*linear_other*=0"}).exitCode, 0);
    }

    void damagedZarrArraysAreFound() {
        const QString name = "decoder.layers.mlp.linear_fc1.weight";
        const QString cut = copyOf("m0.8.0-zarr-tp2pp2", "zarr-cut"),
                      gone = copyOf("m0.8.0-zarr-tp2pp2", "zarr-gone"),
                      bad = copyOf("m0.8.0-zarr-tp2pp2", "zarr-bad");
        cutFile(cut + "/" + name + "/1.0.0", 10);
        removeFile(gone + "/" + name + "/1.0.0");
        cutFile(bad + "/" + name + "/.zarray", 10);
        QVERIFY(!findingOf(validate(cut).json(), "file.truncated", name.toStdString()).is_null());
        const json lost = validate(gone).json();
        QVERIFY(!findingOf(lost, "coverage.gap", name.toStdString()).is_null());
        QVERIFY(!findingOf(lost, "file.missing", name.toStdString() + "/1.0.0").is_null());
        const QString object = "rng_state/shard_1.0_2.2.pt";
        removeFile(gone + "/" + object);
        removeFile(gone + "/extra.fp32/.zarray");
        const json more = validate(gone).json();
        QVERIFY(!findingOf(more, "file.missing", object.toStdString()).is_null());
        QVERIFY(!findingOf(more, "file.missing", "extra.fp32/.zarray").is_null());
        QVERIFY(!findingOf(validate(bad).json(), "meta.inconsistent", name.toStdString()).is_null());
    }

    // Ranks that write parts of one chunk leave empty files with the names of what they lock.
    void locksOfZarrArraysAreNoArrays() {
        const QString path = copyOf("m0.8.0-zarr-tp2pp2", "zarr-locks");
        const QString locks = path + "/decoder.layers.mlp.linear_fc1.weight.sync";
        QVERIFY(QDir().mkpath(locks));
        for (const char* name : {"/.zarray", "/0.0.0"})
            QVERIFY(QFile(locks + name).open(QIODevice::WriteOnly));
        const Outcome report = validate(path);
        COMPARE_JSON(report.json()["verdict"], json("safe"));
    }

    // What Megatron-Core loads today; megatron_peer.py loads it.
    void everyLayoutIsWrittenForOtherRanks_data() {
        QTest::addColumn<QString>("name");
        QTest::addColumn<QString>("mesh");
        QTest::addColumn<QString>("buckets");
        QTest::newRow("layers and halves") << "m0.16.1-gpt-tp2-llama"
                                           << "pp=2,dp=2,tp=1"
                                           << "keep";
        QTest::newRow("flat ranges") << "m0.12.3-optim-flat-tp2dp2"
                                     << "pp=2,dp=1,tp=1"
                                     << "keep";
        QTest::newRow("flat ranges of stages") << "m0.15.3-optim-flat-pp2dp2"
                                               << "dp=2,tp=2"
                                               << "keep";
        QTest::newRow("zarr") << "m0.8.0-zarr-tp2pp2"
                              << "tp=4"
                              << "keep";
        QTest::newRow("numbered states") << "m0.16.1-legacy-tp2"
                                         << "pp=2"
                                         << "keep";
        QTest::newRow("distrib_optim") << "m0.16.1-legacy-tp2pp2dp2"
                                       << "dp=3"
                                       << "keep";
        QTest::newRow("buckets") << "m0.16.1-optim-dp-reshardable-tp2dp2"
                                 << "dp=2"
                                 << "parameters";
        QTest::newRow("same buckets") << "m0.16.1-optim-dp-reshardable-tp2dp2"
                                      << "dp=4,tp=2"
                                      << "keep";
        QTest::newRow("experts") << "m0.16.1-moe-ep2"
                                 << "pp=2,ep=1"
                                 << "keep";
        QTest::newRow("tied") << "m0.16.1-gpt2-tp2pp2-tied"
                              << "tp=2"
                              << "keep";
        QTest::newRow("halves apart") << "m0.16.1-gpt-singleton-shards"
                                      << "pp=2"
                                      << "keep";
    }
    void everyLayoutIsWrittenForOtherRanks() {
        QFETCH(QString, name);
        QFETCH(QString, mesh);
        QFETCH(QString, buckets);
        const QStringList how{"--buckets", buckets};
        const QString out = place_.filePath("out"), back = place_.filePath("back");
        for (const QString& old : {out, back})
            QDir(old).removeRecursively();
        const Outcome convert = runShardscope(
            QStringList{"convert", stepOf(name), out, "--to", "megatron", "--mesh", mesh, "--json"} + how);
        QVERIFY2(convert.exitCode == 0, (convert.out + convert.err).c_str());
        const json before = digestsOf(stepOf(name), how), after = digestsOf(out);
        json names = json::object();
        const json plan = convert.json()["plan"];
        for (const json& entry : plan["renamed"])
            names[entry["name"].get<std::string>()] = entry["to"];
        std::set<std::string> left;
        for (const json& entry : plan["left_out"])
            left.insert(entry["name"]);
        for (const auto& [tensor, digest] : before.items()) {
            if (left.contains(tensor)) continue;
            QVERIFY2(after.value(names.value(tensor, tensor), json()) == digest, tensor.c_str());
        }
        const Outcome report = validate(out);
        QVERIFY2(report.exitCode == 0, report.out.c_str());
        COMPARE_JSON(report.json()["verdict"], json("safe"));
        // By way of another format it is the same again.
        QCOMPARE(runShardscope({"convert", out, back, "--to", "safetensors"}).exitCode, 0);
        const QString again = back + "-again";
        QDir(again).removeRecursively();
        const Outcome there = runShardscope({"convert", back, again, "--to", "megatron", "--mesh", mesh});
        QVERIFY2(there.exitCode == 0, there.err.c_str());
        const json same = digestsOf(again);
        for (const auto& [tensor, digest] : after.items())
            QVERIFY2(same.value(tensor, json()) == digest, tensor.c_str());
    }

    // Each layer is a chunk of its own, cut as tensor-parallel ranks cut it, on the stage that has it.
    void chunksAreThoseOfMegatronsRanks() {
        const QString out = place_.filePath("placed");
        QCOMPARE(runShardscope({"convert", stepOf("m0.16.1-gpt-tp2pp2-qwen"), out, "--to", "megatron",
                                "--mesh", "tp=2,pp=4"})
                     .exitCode,
                 0);
        std::map<std::string, std::set<std::string>> boxes;
        const json tensors = namedEntries(out, {"--chunks"}, "tensors");
        for (const auto& [tensor, entry] : tensors.items()) {
            for (const json& chunk : entry["chunks"])
                boxes[tensor].insert(boxOf(chunk));
        }
        QCOMPARE(boxes["decoder.layers.mlp.linear_fc2.weight"],
                 (std::set<std::string>{"[0,0,0][1,16,12]@0", "[0,0,12][1,16,12]@1", "[1,0,0][1,16,12]@2",
                                        "[1,0,12][1,16,12]@3", "[2,0,0][1,16,12]@4", "[2,0,12][1,16,12]@5",
                                        "[3,0,0][1,16,12]@6", "[3,0,12][1,16,12]@7"}));
        QVERIFY(boxes["decoder.layers.mlp.linear_fc1.weight"].contains("[3,36,0][1,12,16]@7"));
        QCOMPARE(boxes["output_layer.weight"], (std::set<std::string>{"[0,0][20,16]@6", "[20,0][20,16]@7"}));
        COMPARE_JSON(axesOf(out), json::parse(R"([{"name":"pp","size":4},{"name":"tp","size":2}])"));
        QCOMPARE(runShardscope({"convert", stepOf("m0.16.1-gpt-tp2pp2-qwen"), place_.filePath("no-such-axis"),
                                "--to", "megatron", "--mesh", "fsdp=2"})
                     .exitCode,
                 2);
    }

    // A run looks into common.pt before it builds what it loads.
    void commonStateIsThatOfTheNewRanks() {
        const QString out = place_.filePath("common-state");
        QCOMPARE(runShardscope({"convert", stepOf("m0.16.1-legacy-tp2pp2dp2"), out, "--to", "megatron",
                                "--mesh", "dp=2"})
                     .exitCode,
                 0);
        const json objects = objectsOf(out);
        COMPARE_JSON(objects["common.content_metadata.distrib_optim_sharding_type"]["value"],
                     json("fully_reshardable"));
        COMPARE_JSON(objects["common.content_metadata.non_homogeneous_layers"]["value"], json(true));
        COMPARE_JSON(objects["common.optimizer.param_state_sharding_type"]["value"],
                     json("fully_reshardable"));
        const std::string args = objects["common.args"].dump();
        for (const char* said : {"tensor_model_parallel_size=1", "pipeline_model_parallel_size=1",
                                 "world_size=2", "no_save_rng=True"})
            QVERIFY2(args.find(said) != std::string::npos, args.c_str());
        QVERIFY(args.find("no_save_optim=True") == std::string::npos);
    }

    // Buckets hold what one group of ranks has: on other ranks they would be loaded as something else.
    void bucketsStayOnTheirRanks() {
        const Outcome refused =
            runShardscope({"convert", stepOf("m0.16.1-optim-dp-reshardable-tp2dp2"),
                           place_.filePath("refused"), "--to", "megatron", "--mesh", "dp=2", "--json"});
        QVERIFY(refused.exitCode != 0);
        QVERIFY2(refused.out.find("--buckets parameters") != std::string::npos, refused.out.c_str());
    }

    // Names, masters in the place of weights, and settings of each parameter in that of groups.
    void fsdpDtensorBothWays() {
        const QString source = stepOf("m0.16.1-moe-ep2"), fsdp = place_.filePath("fsdp");
        const QString back = place_.filePath("fsdp-back");
        const QStringList names{"--to",         "megatron", "--variant",
                                "fsdp_dtensor", "--map",    "fsdp-dtensor-names"};
        Outcome done = runShardscope(QStringList{"convert", source, fsdp, "--master-weights", "use"} + names);
        QVERIFY2(done.exitCode == 0, done.err.c_str());
        COMPARE_JSON(validate(fsdp).json()["verdict"], json("safe"));
        const json tensors = namedEntries(fsdp, {}, "tensors"), settings = objectsOf(fsdp);
        COMPARE_JSON(tensors["model.module.decoder.layers.1.mlp.experts.linear_fc1.weight1_v"]["shape"],
                     json::parse("[16, 16]"));
        COMPARE_JSON(tensors["model.module.output_layer.weight"]["dtype"], json("float32"));
        for (const char* plain : {"args", "iteration", "checkpoint_version", "opt_param_scheduler.max_lr"})
            QVERIFY2(settings.contains(plain), plain);
        const auto setting = [&](const std::string& parameter, const std::string& field) {
            return settings["optimizer.param_to_group_meta.module.module.module." + parameter + "." + field]
                           ["value"];
        };
        const std::string expert = "decoder.layers.0.mlp.experts.linear_fc1.weight1";
        COMPARE_JSON(setting(expert, "is_expert_parallel"), json(true));
        COMPARE_JSON(setting("output_layer.weight", "wd_mult"), json(1.0));
        COMPARE_JSON(setting("decoder.final_layernorm.weight", "wd_mult"), json(0.0));
        COMPARE_JSON(setting("decoder.final_layernorm.weight", "step"), json(1.0));

        // As Megatron-FSDP saves it: without groups.
        done = runShardscope({"convert", fsdp, back, "--to", "megatron", "--mesh", "ep=2", "--map",
                              "torch-dist-names", "--set", "stacked=1", "--exclude", "*param_groups"});
        QVERIFY2(done.exitCode == 0, done.err.c_str());
        const json before = digestsOf(source), after = digestsOf(back);
        QCOMPARE(after.size(), before.size());
        for (const auto& [tensor, digest] : before.items()) {
            const bool state = tensor.starts_with("optimizer.");
            QVERIFY2(after.value(state ? tensor : "optimizer.state.param." + tensor, json()) ==
                         before[state ? tensor : "optimizer.state.param." + tensor],
                     tensor.c_str());
        }
        const json was = objectsOf(source), is = objectsOf(back);
        for (const std::string which : {"0", "1"}) {
            const std::string name = "common.optimizer." + which + ".optimizer.param_groups";
            std::set<std::string> wanted, made;
            for (const json& group : was[name]["value"])
                wanted.insert(group.dump());
            for (const json& group : is[name]["value"])
                made.insert(group.dump());
            QVERIFY2(made == wanted, is[name].dump().c_str());
        }

        const Outcome refused = runShardscope({"convert", source, place_.filePath("no-names"), "--to",
                                               "megatron", "--variant", "fsdp_dtensor"});
        QVERIFY(refused.exitCode != 0);
        QVERIFY2(refused.err.find("--map fsdp-dtensor-names") != std::string::npos, refused.err.c_str());
    }

    // What Megatron-FSDP saved: gate and up apart, one step for each parameter.
    void fsdpDtensorIsTaken() {
        const QString out = place_.filePath("of-fsdp");
        const Outcome done = runShardscope({"convert", stepOf("m0.16.1-fsdp-dtensor"), out, "--to",
                                            "megatron", "--map", "torch-dist-names", "--json"});
        QVERIFY2(done.exitCode == 0, done.err.c_str());
        const json tensors = namedEntries(out, {}, "tensors");
        for (const char* of : {"", "optimizer.state.param.", "optimizer.state.exp_avg."})
            COMPARE_JSON(tensors[of + std::string("decoder.layers.0.mlp.linear_fc1.weight")]["shape"],
                         json::parse("[12, 4]"));
        COMPARE_JSON(objectsOf(out)["common.optimizer.optimizer.param_groups"]["value"],
                     json::parse(R"([{"lr": 0.001}])"));
        const json report = done.json();
        int steps = 0;
        for (const json& left : report["plan"]["left_out"])
            steps += left["name"].get<std::string>().starts_with("optimizer.state.step.") ? 1 : 0;
        QCOMPARE(steps, 3);
    }

    void runDirectoryHasATracker() {
        const QString out = place_.filePath("run");
        const Outcome convert = runShardscope(
            {"convert", stepOf("m0.16.1-gpt-tp2-llama"), out, "--to", "megatron", "--variant", "run"});
        QVERIFY2(convert.exitCode == 0, convert.err.c_str());
        QFile tracker(out + "/latest_checkpointed_iteration.txt");
        QVERIFY(tracker.open(QIODevice::ReadOnly));
        QCOMPARE(tracker.readAll(), QByteArray("10"));
        QVERIFY(QFile::exists(out + "/iter_0000010/metadata.json"));
        QCOMPARE(validate(out).exitCode, 0);
    }

    // Without arguments of a run it is what Megatron calls a release.
    void weightsOfOthersAreARelease() {
        const QString weights = place_.filePath("weights"), out = place_.filePath("release");
        QCOMPARE(runShardscope({"convert", stepOf("m0.16.1-gpt-tp2-llama"), weights, "--to", "safetensors"})
                     .exitCode,
                 0);
        const Outcome convert =
            runShardscope({"convert", weights, out, "--to", "megatron", "--variant", "run", "--json"});
        QVERIFY2(convert.exitCode == 0, convert.out.c_str());
        QVERIFY(QFile::exists(out + "/release/common.pt"));
        const json objects = objectsOf(out);
        QVERIFY(objects.contains("decoder.layers.mlp.linear_fc1._extra_state/shard_1_2"));
        COMPARE_JSON(objects["common.checkpoint_version"]["value"], json(3.0));
    }
};

QTEST_GUILESS_MAIN(MegatronCliTest)
#include "megatron_cli_test.moc"
