// PaddleNLP's hybrid-parallel checkpoints with files that are missing, damaged, of another save, or that
// disagree.
#include "nlp_support.h"

using namespace shardscope;
using namespace shardscope::test;
using namespace shardscope::test::nlp;
using namespace shardscope::paddle_nlp;

class PaddleNlpDamageTest : public QObject {
    Q_OBJECT

  private slots:
    // ------------------------------------------------------------------ missing and damaged files

    void missingRank_data() {
        QTest::addColumn<QString>("name");
        QTest::addColumn<QString>("file");
        QTest::newRow("weights") << "mp2"
                                 << "model_state.tp01.pdparams";
        QTest::newRow("optimizer") << "mp2"
                                   << "optimizer.tp01.pdopt";
        QTest::newRow("stage") << "pp2"
                               << "model_state.pp01.pdparams";
        QTest::newRow("v1") << "mp2_stage1v1"
                            << "optimizer.tp01_shard00.pdopt";
        QTest::newRow("v1 alone") << "stage1v1"
                                  << "optimizer.shard01.pdopt";
        QTest::newRow("v1 meta") << "stage1v1_meta"
                                 << "optimizer.shard01.pdopt";
        QTest::newRow("v2 first") << "stage1v2_sh4_bigger"
                                  << "optimizer.shard00.pdopt";
        QTest::newRow("v2 inside") << "stage1v2_sh4_bigger"
                                   << "optimizer.shard02.pdopt";
        QTest::newRow("v2 last") << "stage1v2_sh4_bigger"
                                 << "optimizer.shard03.pdopt";
        QTest::newRow("main") << "mp2_pp2_stage1v2"
                              << "optimizer.tp01_pp01_shard00.pdopt";
        QTest::newRow("v1 last of three") << "stage1v1_sh3"
                                          << "optimizer.shard02.pdopt";
        QTest::newRow("stage3") << "stage3"
                                << "optimizer.shard01.pdopt";
    }
    void missingRank() {
        QFETCH(QString, name);
        QFETCH(QString, file);
        const GenuineCase c = genuine(name.toStdString());
        Copy copy(c.path);
        QVERIFY(copy.files.erase(file.toStdString()) == 1);
        const auto opened = copy.open(format());
        QVERIFY2(opened.ok(), opened.ok() ? "" : describe(opened.error()).c_str());
        exercise(**opened);
        const ValidationReport report = validated(**opened, ValidateLevel::values);
        QVERIFY2(found(report, "file.missing", file.toStdString()), text(report).c_str());
        QVERIFY(report.verdict == Verdict::unsafe);
        QVERIFY(lacks(**opened));
        QCOMPARE(exitCode(checkComplete((*opened)->catalog(), "/d", true).error().code), 3);
        // What is whole is right, and nothing else is handed out.
        const Catalog& catalog = (*opened)->catalog();
        for (TensorId t = 0; t < catalog.tensorCount(); ++t) {
            ScanOptions options;
            options.ordered = true;
            auto digest = makeSha256();
            const Status scanned =
                scanTensors(**opened, {t}, options, machine().resources, [&](const TileView& tile) -> Status {
                    digest->update(tile.bytes);
                    return {};
                });
            const std::string tensor(catalog.name(t));
            if (scanned.ok())
                QVERIFY2(digest->hex() == c.expected["tensors"][tensor]["sha256"], tensor.c_str());
        }
    }

    void paddingThatIsNotZero() {
        Copy copy(genuine("stage1v2").path);
        const auto whole = copy.open(format());
        QVERIFY(whole.ok());
        const std::string tensor = "llama.layers.0.mlp.up_proj.weight.moment1";
        const Catalog& catalog = (*whole)->catalog();
        const auto extent = (*whole)->locate(catalog.firstChunk(catalog.find(tensor)));
        QVERIFY(extent.ok());
        std::string bytes(64, '\0');
        QVERIFY(extent->file->readAt(extent->offset, std::as_writable_bytes(std::span(bytes))).ok());
        bool changed = false;
        for (auto& [name, content] : copy.files) {
            const size_t at = content.find(bytes);
            if (at == content.npos) continue;
            content[at + 255 * 4] = 1;
            changed = true;
        }
        QVERIFY(changed);
        const auto opened = copy.open(format());
        QVERIFY(opened.ok());
        const ValidationReport report = validated(**opened, ValidateLevel::files);
        QVERIFY2(found(report, "meta.inconsistent", "padding"), text(report).c_str());
        const auto damaged =
            (*opened)->locate((*opened)->catalog().firstChunk((*opened)->catalog().find(tensor)));
        QVERIFY(!damaged.ok());
        QCOMPARE(exitCode(damaged.error().code), 3);
        QVERIFY(damaged.error().message.find("element 255") != std::string::npos);
    }

    void ranksThatDisagree() {
        Copy copy(genuine("mp2_pp2_stage1v2").path);
        json meta = json::parse(copy.files["model_meta.json"]);
        meta["sharding_metas"]["tp01_pp00"]["param_meta"]["llama.layers.0.mlp.up_proj.weight"][0] = {6, 4};
        copy.files["model_meta.json"] = meta.dump();
        const auto opened = copy.open(format());
        QVERIFY2(opened.ok(), opened.ok() ? "" : describe(opened.error()).c_str());
        QVERIFY(found(validated(**opened, ValidateLevel::metadata), "meta.inconsistent",
                      "ranks disagree about its shape"));
        QVERIFY(lacks(**opened));
        exercise(**opened);
    }

    // The files of weights are empty where masters stand for them.
    void onlyEmptyWeightFiles() {
        Copy copy(genuine("stage1v2").path);
        std::erase_if(copy.files, [](const auto& file) { return file.first.starts_with("optimizer"); });
        const auto opened = copy.open(format());
        QVERIFY2(opened.ok(), opened.ok() ? "" : describe(opened.error()).c_str());
        const ValidationReport report = validated(**opened, ValidateLevel::metadata);
        QVERIFY2(report.verdict == Verdict::unsafe, text(report).c_str());
        QVERIFY(found(report, "file.missing", "no file here holds any"));
        QVERIFY(lacks(**opened));
    }

    void stateOfAnUnknownParameter() {
        Copy copy(genuine("stage1v2").path);
        std::string& text = copy.files["model_meta.json"];
        const size_t at = text.find("\"linear_3.w_0\"");
        QVERIFY(at != text.npos);
        text.replace(at, 14, "\"linear_33.w_0\"");
        const auto opened = copy.open(format());
        QVERIFY(opened.ok());
        const ValidationReport report = validated(**opened, ValidateLevel::metadata);
        QVERIFY(found(report, "meta.inconsistent", "linear_3.w_0"));
        QVERIFY(lacks(**opened));
    }

    void nameThatTwoParametersClaim() {
        Copy copy(genuine("mp2_pp2_stage1v2").path);
        json meta = json::parse(copy.files["model_meta.json"]);
        for (const char* group : {"tp00_pp01", "tp01_pp01"}) {
            for (const char* part : {"structure_name_mapping", "param_meta"}) {
                json& object = meta["sharding_metas"][group][part];
                object["llama.layers.0.self_attn.o_proj.weight"] =
                    object["llama.layers.1.self_attn.o_proj.weight"];
                object.erase("llama.layers.1.self_attn.o_proj.weight");
            }
        }
        copy.files["model_meta.json"] = meta.dump();
        const auto opened = copy.open(format());
        QVERIFY(opened.ok());
        QVERIFY(
            found(validated(**opened, ValidateLevel::metadata), "meta.inconsistent", "two parameters claim"));
        QVERIFY(lacks(**opened));
        // The same key twice in one object.
        std::string& text = copy.files["model_meta.json"];
        text =
            R"({"parallel_config":{},"sharding_metas":{"tp00_pp00":{"structure_name_mapping":{"a":"x","a":"y"}}}})";
        const auto twice = copy.open(format());
        QVERIFY(!twice.ok());
        QCOMPARE(twice.error().location.rule, std::string("meta.duplicate"));
    }

    void staleFiles_data() {
        QTest::addColumn<QString>("name");
        QTest::addColumn<QString>("from");
        QTest::addColumn<QString>("to");
        QTest::newRow("stated") << "stage1v2"
                                << "shard01"
                                << "shard02";
        QTest::newRow("stated tp") << "mp2_stage1v2_fp32norm"
                                   << "tp01"
                                   << "tp02";
        QTest::newRow("stages") << "pp2"
                                << "pp01"
                                << "pp02";
        QTest::newRow("sharding") << "stage1v1"
                                  << "shard01"
                                  << "shard02";
    }
    void staleFiles() {
        QFETCH(QString, name);
        QFETCH(QString, from);
        QFETCH(QString, to);
        const GenuineCase c = genuine(name.toStdString());
        Copy copy(c.path);
        for (const auto& [file, content] : Copy(c.path).files) {
            QString other = QString::fromStdString(file);
            if (other.replace(from, to).toStdString() != file) copy.files[other.toStdString()] = content;
        }
        const auto opened = copy.open(format());
        QVERIFY2(opened.ok(), opened.ok() ? "" : describe(opened.error()).c_str());
        const ValidationReport report = validated(**opened, ValidateLevel::metadata);
        QVERIFY2(found(report, "file.stale", to.toStdString()), text(report).c_str());
        QVERIFY2(report.verdict == Verdict::care, text(report).c_str());
        const auto bytes = digests(**opened);
        for (const auto& [tensor, want] : c.expected["tensors"].items())
            QVERIFY2(bytes.at(tensor) == want["sha256"], tensor.c_str());
    }

    // A save with tp=2 over one with tp=4: the higher ranks hold quarters.
    void staleFinerRanks() {
        std::map<std::string, std::string> files;
        for (int t = 0; t < 4; ++t) {
            const int64_t rows = t < 2 ? 4 : 2;
            files["model_state.tp0" + std::to_string(t) + ".pdparams"] =
                stateDict({array("llama.embed_tokens.weight", {rows, 3}, static_cast<float>(t * 12)),
                           array("llama.norm.weight", {3}, 1)});
        }
        const auto opened = made(files).open(format());
        QVERIFY2(opened.ok(), opened.ok() ? "" : describe(opened.error()).c_str());
        QCOMPARE((*opened)->catalog().rankCount(), 2U);
        QVERIFY(found(validated(**opened, ValidateLevel::metadata), "file.stale", "tp02"));
        QCOMPARE(valuesOf(**opened, "llama.embed_tokens.weight").size(), size_t{24});
    }

    void truncations_data() {
        QTest::addColumn<QString>("name");
        for (const char* name : {"stage1v2", "mp2_stage1v1", "dp", "stage3"})
            QTest::newRow(name) << name;
    }
    void truncations() {
        QFETCH(QString, name);
        const Copy whole(genuine(name.toStdString()).path);
        for (const auto& [file, content] : whole.files) {
            if (!file.ends_with(".pdopt") && !file.ends_with(".json") && !file.starts_with("model_state"))
                continue;
            const size_t step = std::max<size_t>(content.size() / (file == "model_meta.json" ? 400 : 60), 1);
            for (size_t size = 0; size < content.size(); size += step) {
                Copy copy = whole;
                copy.files[file] = content.substr(0, size);
                const auto opened = copy.open(format());
                if (file == "model_meta.json") {
                    QVERIFY2(!opened.ok(), std::to_string(size).c_str());
                    QVERIFY(opened.error().location.file.ends_with(file));
                    QVERIFY(opened.error().location.offset.has_value());
                    QCOMPARE(exitCode(opened.error().code), 3);
                }
                if (!opened.ok()) {
                    QVERIFY2(opened.error().code != ErrorCode::internal, describe(opened.error()).c_str());
                    continue;
                }
                if (file == "trainer_state.json") continue;
                QVERIFY2(lacks(**opened), (file + " " + std::to_string(size)).c_str());
                if (size % (step * 8) != 0) continue;
                exercise(**opened);
                QVERIFY(validated(**opened, ValidateLevel::files).verdict == Verdict::unsafe);
            }
        }
    }

    void lyingMeta() {
        for (const char* value : {"[[-1, 3], 16, true]", "[[281474976710657], 16, true]", "[\"x\", 16, true]",
                                  "[]", "7", "[[6], 16, 3]", "[[1.5], 16, true]", "null"}) {
            Copy copy(genuine("stage1v2").path);
            json meta = json::parse(copy.files["model_meta.json"]);
            meta["sharding_metas"]["tp00_pp00"]["param_meta"]["llama.norm.weight"] = json::parse(value);
            copy.files["model_meta.json"] = meta.dump();
            const auto opened = copy.open(format());
            QVERIFY2(!opened.ok(), value);
            QCOMPARE(exitCode(opened.error().code), 3);
            QCOMPARE(opened.error().location.tensor, std::string("llama.norm.weight"));
        }
        for (const char* degree : {"100000", "1048575", "4294967297", "-3", "0"}) {
            Copy copy(genuine("stage1v2").path);
            json meta = json::parse(copy.files["model_meta.json"]);
            meta["parallel_config"]["sharding_degree"] = json::parse(degree);
            copy.files["model_meta.json"] = meta.dump();
            const auto opened = copy.open(format());
            if (opened.ok()) exercise(**opened);
        }
    }
};

QTEST_GUILESS_MAIN(PaddleNlpDamageTest)
#include "paddle_nlp_damage_test.moc"
