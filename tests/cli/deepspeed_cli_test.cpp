// What DeepSpeed wrote, as one checkpoint: ZeRO 0 to 3, pipelines, tensor parallelism, experts, wrappers and
// universal checkpoints; and what is said of missing, mixed, exchanged and truncated files.
#include <QDir>
#include <QTemporaryDir>
#include <QTest>
#include <set>

#include "cli/genuine_checks.h"

using namespace shardscope::test;
using nlohmann::json;

namespace {

GenuineCase caseOf(const QString& name) {
    return genuineCase("deepspeed", name);
}

// The path that a user would give: HF Trainer puts the tree into checkpoint-N.
QString pathOf(const GenuineCase& c) {
    return QString::fromStdString(c.path + "/" + c.expected["layout"].value("root", ""));
}

json tensorsOf(const QString& path) {
    const json all = runShardscope({"ls", path, "--chunks", "--json"}).json();
    json byName;
    for (const json& tensor : all["tensors"])
        byName[tensor["name"].get<std::string>()] = tensor;
    return byName;
}

json objectOf(const QString& path, const std::string& name) {
    const json all = runShardscope({"ls", path, "--objects", "--json"}).json();
    for (const json& object : all["objects"]) {
        if (object["name"] == name) return object;
    }
    return {};
}

// Names that no file holds: the tie of a layer is not stored without ZeRO.
bool isStored(const GenuineCase& c, const std::string& tensor) {
    return !c.name.starts_with("pp2_z0_") || tensor.find("tied_modules.") == tensor.npos;
}

}  // namespace

class DeepspeedCliTest : public QObject {
    Q_OBJECT

    QTemporaryDir place_;
    QString copyOf(const QString& name, const QString& as) {
        copyTree(pathOf(caseOf(name)), place_.filePath(as));
        return place_.filePath(as);
    }
    static void exchange(const QString& a, const QString& b) {
        if (!QFile::rename(a, a + ".x") || !QFile::rename(b, a) || !QFile::rename(a + ".x", b))
            qFatal("cannot exchange %s", qPrintable(a));
    }

  private slots:
    void partitionsAreFlatRanges() {
        const json tensors = tensorsOf(pathOf(caseOf("z3_bf16_w2")));
        const json chunks = tensors["optimizer.state.head.fc1.weight.fp32"]["chunks"];
        QCOMPARE(chunks.size(), 2U);
        COMPARE_JSON(chunks[0]["flat"]["stop"], json(23));
        COMPARE_JSON(chunks[1]["flat"]["start"], json(23));
        // The weight itself is nowhere: it is what the master rounds to, on the same ranks.
        COMPARE_JSON(tensors["head.fc1.weight"]["chunks"][1]["flat"], chunks[1]["flat"]);
        COMPARE_JSON(tensors["head.fc1.weight"]["dtype"], json("bfloat16"));
    }

    void meshAndKindAreStated() {
        const json info = runShardscope({"info", pathOf(caseOf("tp2_z1_bf16")), "--json"}).json();
        COMPARE_JSON(info["format"], json("deepspeed"));
        COMPARE_JSON(info["mesh"]["axes"], json::parse(R"([{"name":"dp","size":2},{"name":"tp","size":2}])"));
        const json pipeline = runShardscope({"info", pathOf(caseOf("pp2_z1_bf16opt")), "--json"}).json();
        COMPARE_JSON(pipeline["mesh"]["axes"],
                     json::parse(R"([{"name":"pp","size":2},{"name":"dp","size":2}])"));
    }

    // Without patterns the dimension is concluded, and can be stated.
    void cutDimensionCanBeStated() {
        const QString path = pathOf(caseOf("tp2_z0_fp32"));
        const auto shape = [&](const QStringList& more) {
            const json all =
                runShardscope(QStringList{"ls", path, "layers.0.dense.weight", "--json"} + more).json();
            return all["tensors"][0]["shape"];
        };
        COMPARE_JSON(shape({}), json::parse("[4, 6]"));
        COMPARE_JSON(shape({"--tp-dim", "*.dense.weight=0"}), json::parse("[8, 3]"));
        COMPARE_JSON(shape({"--tp-dim", "*.dense.weight=none"}), json::parse("[4, 3]"));
        QCOMPARE(runShardscope({"ls", path, "--tp-dim", "x"}).exitCode, 2);
    }

    void tiedWeightsAreAliases() {
        const json digests = digestsOf(pathOf(caseOf("z3_bf16_w2_tied16")));
        QVERIFY(digests["lm_head.weight"] == digests["encoder.embed.weight"]);
        const json info = runShardscope({"info", pathOf(caseOf("z3_bf16_w2_tied16")), "--json"}).json();
        // 9 x 4 once in bf16: aliases add nothing.
        const int parameters = 36 + 20 + 5 + 9, optimizer = 3 * parameters + 4;
        COMPARE_JSON(info["totals"]["parameters"], json(parameters));
        COMPARE_JSON(info["totals"]["optimizer_elements"], json(optimizer));
        COMPARE_JSON(info["totals"]["elements"], json(parameters + optimizer));
        const auto text = runShardscope({"info", pathOf(caseOf("z3_bf16_w2_tied16"))});
        QVERIFY2(text.out.find("parameters  70 (+ 214 in the optimizer)") != std::string::npos,
                 text.out.c_str());
    }

    void otherEntriesAreObjects() {
        const QString plain = pathOf(caseOf("z0_fp32_w2")), zero = pathOf(caseOf("v0103_z2_fp16_w2"));
        COMPARE_JSON(objectOf(plain, "global_steps")["value"], json(3));
        COMPARE_JSON(objectOf(plain, "client_state.best")["value"], json(0.25));
        COMPARE_JSON(objectOf(plain, "lr_scheduler.last_epoch")["value"], json(3));
        QVERIFY(!objectOf(zero, "optimizer.param_groups").is_null());
        QVERIFY(!objectOf(zero, "optimizer.loss_scaler").is_null());
        COMPARE_JSON(objectOf(zero, "ds_config.zero_optimization.stage")["value"], json(2));
    }

    void tagAndRootAreTheSame() {
        const GenuineCase c = caseOf("z2_bf16_w2_tags");
        for (const auto& [tag, other] : c.expected["other_tags"].items()) {
            const json digests = digestsOf(pathOf(c) + "/" + QString::fromStdString(tag));
            for (const auto& [name, want] : other["tensors"].items())
                QVERIFY2(digests[name] == want["sha256"], name.c_str());
        }
        const QString root = pathOf(caseOf("z3_bf16_w2"));
        QVERIFY(digestsOf(root) == digestsOf(root + "/global_step3"));
        QVERIFY(!digestsOf(root).is_null());
    }

    // ------------------------------------------------------------------ written

    void universalRoundTrips_data() {
        QTest::addColumn<QString>("name");
        for (const GenuineCase& c : genuineCases("deepspeed")) {
            if (!c.damaged()) QTest::newRow(c.name.c_str()) << QString::fromStdString(c.name);
        }
    }
    void universalRoundTrips() {
        QFETCH(QString, name);
        const GenuineCase c = caseOf(name);
        const QString out = place_.filePath("universal-" + name);
        const Outcome convert = runShardscope({"convert", pathOf(c), out, "--to", "deepspeed", "--json"});
        QVERIFY2(convert.exitCode == 0, convert.err.c_str());
        const json digests = digestsOf(out), listed = tensorsOf(out);
        for (const auto& [tensor, want] : c.expected["tensors"].items()) {
            if (!isStored(c, tensor)) continue;
            QVERIFY2(digests.value(tensor, "") == want["sha256"], tensor.c_str());
            COMPARE_JSON(listed[tensor]["dtype"], want["dtype"]);
            COMPARE_JSON(listed[tensor]["shape"], want["shape"]);
        }
        const Outcome report = validate(out);
        QVERIFY2(report.exitCode == 0, report.out.c_str());
        COMPARE_JSON(report.json()["verdict"], json("safe"));
        // And once more: nothing changes.
        const QString again = place_.filePath("again-" + name);
        QVERIFY(runShardscope({"convert", out, again, "--to", "deepspeed"}).exitCode == 0);
        QVERIFY(digestsOf(again) == digests);
    }

    void universalHasWhatLoadersOpen() {
        const QString out = place_.filePath("for-loaders");
        QVERIFY(runShardscope({"convert", pathOf(caseOf("z2_fp16_w2_frozen")), out, "--to", "deepspeed",
                               "--variant", "universal"})
                    .exitCode == 0);
        QFile latest(out + "/latest_universal");
        QVERIFY(latest.open(QIODevice::ReadOnly));
        QCOMPARE(latest.readAll(), QByteArray("global_step3_universal"));
        const QString tag = out + "/global_step3_universal/";
        for (const char* file :
             {"mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_model_states.pt",
              "zero/optimizer_state.pt", "zero/head.fc1.weight/fp32.pt", "zero/head.fc1.weight/exp_avg.pt",
              "zero/head.fc1.weight/exp_avg_sq.pt", "zero/head.fc1.weight/step.pt", "zero/head.gate/fp32.pt"})
            QVERIFY2(QFile::exists(tag + file), file);
        // What is not trained has no states; integers stay what they are.
        QVERIFY(!QFile::exists(tag + "zero/backbone.conv.weight"));
        const json optimizer =
            runShardscope({"ls", tag + "zero/optimizer_state.pt", "--objects", "--json"}).json();
        std::set<std::string> keys;
        for (const json& object : optimizer["objects"])
            keys.insert(object["name"]);
        for (const char* key :
             {"param_groups", "ds_version", "loss_scaler", "overflow", "optimizer_state_dict.param_groups"})
            QVERIFY2(keys.contains(key), key);
        QCOMPARE(runShardscope({"convert", pathOf(caseOf("z3_bf16_w2")), out + "2", "--to", "deepspeed",
                                "--variant", "zero-3"})
                     .exitCode,
                 2);
    }

    // Weights that have no masters are their own; 16-bit ones get one.
    void mastersAreMadeOfWeights() {
        const GenuineCase c = caseOf("z3_bf16_w2");
        const QString out = place_.filePath("weights-only");
        const Outcome convert =
            runShardscope({"convert", pathOf(c), out, "--to", "deepspeed", "--weights-only", "--json"});
        QVERIFY2(convert.exitCode == 0, convert.err.c_str());
        const json listed = tensorsOf(out), digests = digestsOf(out);
        COMPARE_JSON(listed["optimizer.state.head.fc1.weight.fp32"]["dtype"], json("float32"));
        COMPARE_JSON(listed["head.fc1.weight"]["dtype"], json("bfloat16"));
        QVERIFY(digests["head.fc1.weight"] == c.expected["tensors"]["head.fc1.weight"]["sha256"]);

        const GenuineCase single = caseOf("z1_fp32_w3");
        const QString other = place_.filePath("no-masters");
        const Outcome moved = runShardscope({"convert", pathOf(single), other, "--to", "deepspeed",
                                             "--exclude", "optimizer.state.*.fp32", "--json"});
        QVERIFY2(moved.exitCode == 0, moved.err.c_str());
        QVERIFY2(moved.out.find("there is no fp32 master of it") != std::string::npos, moved.out.c_str());
        const json now = digestsOf(other);
        for (const auto& [tensor, want] : single.expected["tensors"].items())
            QVERIFY2(now.value(tensor, "") == want["sha256"], tensor.c_str());
    }

    // From a checkpoint of another kind, by way of names alone.
    void otherKindsBecomeUniversal() {
        const GenuineCase c = caseOf("z2_bf16_w2_align");
        for (const char* format : {"dcp", "torch", "safetensors"}) {
            const QString middle = place_.filePath(QString("middle-") + format),
                          out = place_.filePath(QString("universal-of-") + format);
            QVERIFY(runShardscope({"convert", pathOf(c), middle, "--to", format}).exitCode == 0);
            const Outcome convert = runShardscope({"convert", middle, out, "--to", "deepspeed"});
            QVERIFY2(convert.exitCode == 0, convert.err.c_str());
            const json digests = digestsOf(out);
            for (const auto& [tensor, want] : c.expected["tensors"].items())
                QVERIFY2(digests.value(tensor, "") == want["sha256"], tensor.c_str());
        }
    }

    // Each name is a directory, inside of the destination.
    void hostileNamesAreRefused_data() {
        QTest::addColumn<QString>("name");
        const auto row = [](const char* title, const QString& name) { QTest::newRow(title) << name; };
        row("slash", "a/b");
        row("root", "/tmp/x");
        row("above", "../../x");
        row("dots", "..");
        row("optimizer", "optimizer_state.pt");
        row("long", QString(256, 'n'));
    }
    void hostileNamesAreRefused() {
        QFETCH(QString, name);
        const QString out = place_.filePath("hostile-" + QString::number(qHash(name)));
        const Outcome convert = runShardscope({"convert", pathOf(caseOf("z2_bf16_w2_tags")), out, "--to",
                                               "deepspeed", "--rename", "net\\.0\\.weight=" + name});
        QVERIFY2(convert.exitCode != 0, convert.out.c_str());
        QVERIFY2(convert.err.find("directory") != std::string::npos ||
                     convert.out.find("directory") != std::string::npos,
                 (convert.out + convert.err).c_str());
        QVERIFY(!QFile::exists(out));
    }
    void renamedParametersKeepTheirStates() {
        const GenuineCase c = caseOf("z2_bf16_w2_tags");
        const QString out = place_.filePath("renamed");
        QVERIFY(
            runShardscope({"convert", pathOf(c), out, "--to", "deepspeed", "--rename", "net\\.0=body.first"})
                .exitCode == 0);
        QVERIFY(digestsOf(out)["optimizer.state.body.first.weight.exp_avg"] ==
                c.expected["tensors"]["optimizer.state.net.0.weight.exp_avg"]["sha256"]);
    }

    // What no loader would find is said before anything is written.
    void whatStaysOutIsSaid() {
        const QString out = place_.filePath("left-out");
        const Outcome numbered =
            runShardscope({"convert", pathOf(caseOf("tp2_z1_bf16")), out, "--to", "deepspeed", "--exclude",
                           "layers.0.ln.weight", "--exclude", "*ln.weight.fp32", "--dry-run", "--json"});
        QCOMPARE(numbered.exitCode, 0);
        QVERIFY2(numbered.out.find("there is no weight 'layers.0.ln.weight'") != std::string::npos,
                 numbered.out.c_str());
        QVERIFY2(numbered.out.find("what model-parallel ranks held is put together") != std::string::npos,
                 numbered.out.c_str());
        const Outcome frozen = runShardscope({"convert", pathOf(caseOf("z2_fp16_w2_frozen")), out, "--to",
                                              "deepspeed", "--dry-run", "--json"});
        QVERIFY2(frozen.out.find("load_universal leaves such tensors") != std::string::npos,
                 frozen.out.c_str());
    }

    // ------------------------------------------------------------------ damage

    // Parts of a fused parameter that each rank cuts by itself are put together; what does not fit is not.
    void fusedPartsAreJoinedOrRefused() {
        const GenuineCase c = caseOf("bad_fused_parts");
        const Outcome digest =
            runShardscope({"digest", pathOf(c), "fits.weight", "--algorithm", "sha256", "--json"});
        COMPARE_JSON(digest.json()["tensors"]["fits.weight"], c.expected["tensors"]["fits.weight"]["sha256"]);
        QTemporaryDir place;
        const Outcome refused =
            runShardscope({"convert", pathOf(c), place.filePath("out"), "--to", "safetensors"});
        QCOMPARE(refused.exitCode, 3);
        QVERIFY2(refused.err.find("cannot be put together") != std::string::npos, refused.err.c_str());
    }

    void latestThatNamesNothing() {
        const QString path = pathOf(caseOf("bad_latest"));
        const Outcome root = runShardscope({"ls", path});
        QCOMPARE(root.exitCode, 3);
        QVERIFY(root.err.find("global_step99") != std::string::npos);
        const Outcome tag = validate(path + "/global_step3");
        QCOMPARE(tag.exitCode, 0);
        COMPARE_JSON(findingOf(tag.json(), "file.missing", "global_step99")["severity"], json("warning"));
    }
    // In stages 1 and 2 each file lists its slices.
    void exchangedPartitionsAreNamed() {
        const QString path = copyOf("z2_fp16_w2_frozen", "exchanged");
        const QString tag = path + "/global_step3/";
        exchange(tag + "zero_pp_rank_0_mp_rank_00_optim_states.pt",
                 tag + "zero_pp_rank_1_mp_rank_00_optim_states.pt");
        const Outcome report = validate(path, "metadata");
        QCOMPARE(report.exitCode, 1);
        QVERIFY(!findingOf(report.json(), "meta.inconsistent", "are those of partition 1").is_null());
    }
    void missingModelStatesOfOneRank() {
        const QString path = copyOf("z3_bf16_w2", "no-model-states");
        QVERIFY(QFile::remove(path + "/global_step3/zero_pp_rank_1_mp_rank_00_model_states.pt"));
        const json report = validate(path).json();
        COMPARE_JSON(
            findingOf(report, "file.missing", "zero_pp_rank_1_mp_rank_00_model_states.pt")["severity"],
            json("error"));
        // Its part of what is frozen is lacking; what is trained is whole.
        QVERIFY(!findingOf(report, "coverage.gap", "backbone.conv.weight").is_null());
        QVERIFY(findingOf(report, "coverage.gap", "head.fc1.weight").is_null());
    }
    // Without a rank's optimizer states the weights are whole up to stage 2.
    void weightsConvertWithoutOptimizerStates() {
        const GenuineCase c = caseOf("bad_missing_rank");
        const QString out = place_.filePath("weights");
        QVERIFY(runShardscope({"convert", pathOf(c), out, "--to", "safetensors"}).exitCode != 0);
        const Outcome convert =
            runShardscope({"convert", pathOf(c), out, "--to", "safetensors", "--weights-only"});
        QVERIFY2(convert.exitCode == 0, convert.err.c_str());
        QVERIFY(digestsOf(out)["net.0.weight"] == c.expected["tensors"]["net.0.weight"]["sha256"]);
    }
    void missingLayerIsNamed() {
        const QString path = copyOf("pp2_z1_bf16opt", "no-layer");
        QVERIFY(QFile::remove(path + "/global_step3/layer_03-model_states.pt"));
        const Outcome report = validate(path, "metadata");
        QCOMPARE(report.exitCode, 1);
        QVERIFY(!findingOf(report.json(), "file.missing", "layer_03-model_states.pt").is_null());
    }
    // Without ZeRO no file lists the layers: only the optimizers' states tell that one is missing.
    void missingLayerWithoutZero_data() {
        QTest::addColumn<QString>("layer");
        for (const char* layer : {"00", "01", "02", "03", "04"})
            QTest::newRow(layer) << layer;
    }
    void missingLayerWithoutZero() {
        QFETCH(QString, layer);
        const QString path = copyOf("pp2_z0_fp32", "plain-without-" + layer);
        const QString file = "layer_" + layer + "-model_states.pt";
        QVERIFY(QFile::remove(path + "/global_step3/" + file));
        const Outcome report = validate(path, "metadata");
        QCOMPARE(report.exitCode, 1);
        const bool last = layer == "04";
        const json finding = findingOf(report.json(), last ? "meta.inconsistent" : "file.missing",
                                       last ? "it is the last one" : file.toStdString());
        COMPARE_JSON(finding["severity"], json("error"));
        const json tensors = tensorsOf(path);
        for (const auto& [name, about] : tensors.items())
            QVERIFY2(about["role"] != "optimizer", name.c_str());
        const QString out = place_.filePath("out-" + layer);
        const Outcome convert = runShardscope({"convert", path, out, "--to", "safetensors", "--json"});
        QVERIFY2(convert.exitCode == 3, (convert.out + convert.err).c_str());
        QCOMPARE(runShardscope({"latest", path, "--good"}).exitCode, 1);
    }
    // Muon keeps whole matrices on each rank that has a part of them, and other states than Adam beside it.
    void muonIsRead_data() {
        QTest::addColumn<QString>("zero");
        for (const char* zero : {"zero1", "zero2", "zero3"})
            QTest::newRow(zero) << zero;
    }
    void muonIsRead() {
        QFETCH(QString, zero);
        const QString about = QStringLiteral(SHARDSCOPE_TEST_DATA "/field/deepspeed-muon");
        const QString path = about + "/" + zero;
        QCOMPARE(validate(path).exitCode, 0);
        const json digests = digestsOf(path);
        QFile file(about + "/expected.json");
        QVERIFY(file.open(QIODevice::ReadOnly));
        const json expected = json::parse(file.readAll().toStdString());
        size_t compared = 0;
        for (const auto& [tensor, facts] : expected["tensors"].items()) {
            if (!tensor.starts_with(zero.toStdString() + ":")) continue;
            ++compared;
            COMPARE_JSON(digests[tensor.substr(6)], facts["sha256"]);
        }
        QVERIFY(compared >= 8);
        const QString universal = place_.filePath("universal-" + zero);
        QCOMPARE(runShardscope({"convert", path, universal, "--to", "deepspeed"}).exitCode, 0);
        const Outcome written = validate(universal);
        QVERIFY2(written.exitCode == 0, written.out.c_str());
        COMPARE_JSON(digestsOf(universal), digests);
        // What a group's parameters have, its others must have; what another group's have, not.
        const QString weight = universal + "/global_step3_universal/zero/l.0.weight/";
        const QString bias = universal + "/global_step3_universal/zero/l.0.bias/";
        QVERIFY(!QFile::exists(weight + "exp_avg.pt") && QFile::remove(bias + "exp_avg.pt"));
        const json report = validate(universal, "metadata").json();
        QVERIFY(!findingOf(report, "file.missing", "l.0.bias/exp_avg.pt").is_null());
        QVERIFY(findingOf(report, "file.missing", "l.0.weight").is_null());
    }
    // The values of masters, where more is asked for than the weights have.
    void mastersAreTheWeights() {
        const QString path = pathOf(caseOf("trainer_z3_bf16"));
        const json stored = digestsOf(path);
        const auto weightOf = [&](const char* name, const QStringList& words) {
            const QString out = place_.filePath(name);
            const Outcome run = runShardscope(
                QStringList{"convert", path, out, "--to", "safetensors", "--weights-only", "--json"} + words);
            if (run.exitCode != 0) qWarning("%s", run.out.c_str());
            return std::pair(digestsOf(out)["net.0.weight"], run.json()["plan"]["masters"]);
        };
        const json master = stored["optimizer.state.net.0.weight.fp32"];
        const auto plain = weightOf("as-stored", {});
        COMPARE_JSON(plain.first, stored["net.0.weight"]);
        COMPARE_JSON(plain.second["unused"], json(4));
        const auto wider = weightOf("wider", {"--dtype", "*=float32"});
        COMPARE_JSON(wider.first, master);
        QCOMPARE(wider.second["used"].size(), size_t{4});
        COMPARE_JSON(weightOf("used", {"--master-weights", "use"}).first, master);
        COMPARE_JSON(weightOf("rounded", {"--master-weights", "use", "--dtype", "*=bf16"}).first,
                     stored["net.0.weight"]);
        const auto ignored = weightOf("ignored", {"--dtype", "*=float32", "--master-weights", "ignore"});
        QVERIFY(ignored.first != master && ignored.second["used"].empty());
        const QString file = place_.filePath("w.safetensors");
        QCOMPARE(runShardscope({"extract", path, "net.0.weight", file, "--master-weights", "use"}).exitCode,
                 0);
        COMPARE_JSON(digestsOf(file)["net.0.weight"], master);
    }
    void missingExpertIsNamed() {
        const QString path = copyOf("moe_ep2_z2_bf16", "no-expert");
        QVERIFY(QFile::remove(path + "/global_step3/layer_1_expert_3_mp_rank_00_model_states.pt"));
        const Outcome report = validate(path, "files");
        QCOMPARE(report.exitCode, 1);
        QVERIFY(!findingOf(report.json(), "file.missing", "layer_1_expert_3").is_null());
    }
    void renamedExpertIsNoticed() {
        const QString path = copyOf("moe_ep2_z2_bf16", "renamed-expert");
        const QString tag = path + "/global_step3/";
        exchange(tag + "layer_0_expert_1_mp_rank_00_model_states.pt",
                 tag + "layer_0_expert_2_mp_rank_00_model_states.pt");
        QVERIFY(!findingOf(validate(path, "metadata").json(), "meta.inconsistent", "copied or renamed")
                     .is_null());
    }
    // ds_to_universal that was stopped, and a parameter of which a state is gone.
    void incompleteUniversalIsNoticed() {
        const QString path = copyOf("uni_z2_bf16_w3", "universal");
        QString zero;
        QDirIterator all(path, {"exp_avg.pt"}, QDir::Files, QDirIterator::Subdirectories);
        QVERIFY(all.hasNext());
        const QString gone = all.next();
        QVERIFY(QFile::remove(gone));
        const QString universal = gone.left(gone.indexOf("/zero/"));
        QVERIFY(QDir().mkpath(universal + "/tmp/x/0"));
        const json report = validate(universal, "files").json();
        COMPARE_JSON(findingOf(report, "file.missing", "exp_avg.pt")["severity"], json("error"));
        QVERIFY(!findingOf(report, "file.stale", "tmp").is_null());
    }
    // Any truncation of any file is a finding or a clear error.
    void truncatedFilesAreRefusedOrNamed() {
        for (const QString file :
             {"mp_rank_00_model_states.pt", "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"}) {
            const QString path = copyOf("z2_bf16_w2_align", "cut-" + file);
            const QString full = path + "/global_step3/" + file;
            const qint64 size = QFileInfo(full).size();
            for (qint64 length = size - 1; length >= 0; length -= size / 12) {
                QVERIFY(QFile::resize(full, length));
                const Outcome report = validate(path, "files");
                QVERIFY2(report.exitCode == 1 || report.exitCode == 3, qPrintable(QString::number(length)));
            }
        }
    }
};

QTEST_GUILESS_MAIN(DeepspeedCliTest)
#include "deepspeed_cli_test.moc"
