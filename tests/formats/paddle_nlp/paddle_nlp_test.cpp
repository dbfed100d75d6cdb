// PaddleNLP's checkpoints as its own code wrote them, hybrid-parallel and unified.
#include "nlp_support.h"

using namespace shardscope;
using namespace shardscope::test;
using namespace shardscope::test::nlp;
using namespace shardscope::paddle_nlp;

class PaddleNlpTest : public QObject {
    Q_OBJECT

  private slots:
    // Roles and places, by what the framework says of the layout.
    void genuineCase_data() {
        QTest::addColumn<QString>("name");
        for (const GenuineCase& c : genuineCases("paddle_hybrid"))
            QTest::newRow(c.name.c_str()) << QString::fromStdString(c.name);
    }

    void genuineCase() {
        QFETCH(QString, name);
        const GenuineCase c = genuine(name.toStdString());
        CheckpointOptions options;
        options.open.variant = c.variant();
        const auto opened = openCheckpoint(c.path, options);
        QVERIFY2(opened.ok(), opened.ok() ? "" : describe(opened.error()).c_str());
        const Catalog& catalog = opened->catalog();
        for (TensorId t = 0; t < catalog.tensorCount(); ++t) {
            const std::string tensor(catalog.name(t));
            const bool weight = c.expected["layout"]["stage"].contains(tensor);
            QCOMPARE(catalog.role(t), weight ? Role::parameter : Role::optimizer);
            for (ChunkId k = catalog.firstChunk(t); k < catalog.endChunk(t); ++k)
                checkPlace(c, catalog, catalog.chunk(t, k),
                           weight ? tensor : tensor.substr(0, tensor.rfind('.')));
        }
        const json& layout = c.expected["layout"];
        QVERIFY(catalog.mesh().has_value());
        QCOMPARE(formatMesh(*catalog.mesh()), "pp=" + layout["pp"].dump() + ",sharding=" +
                                                  layout["sharding"].dump() + ",tp=" + layout["tp"].dump());
    }

    // Each rank has [gate_r | up_r]; laid one after the other that is not a projection, and is not converted
    // unasked.
    void fusedIsReported() {
        const auto opened = openCheckpoint(genuine("mp2_fused").path);
        QVERIFY(opened.ok());
        const ValidationReport report = validated(*opened->reader, ValidateLevel::metadata);
        QVERIFY2(found(report, "layout.fused", "gate_up_fused_proj"), text(report).c_str());
        ConversionRequest settings;
        settings.format = "safetensors";
        const auto prepared = prepareConversion(*opened, "/tmp/never-written", settings);
        QVERIFY(prepared.ok());
        QVERIFY(!prepared->plan.runnable());
        CheckpointOptions options;
        options.open.variant = "something";
        QVERIFY(!openCheckpoint(genuine("mp2_fused").path, options).ok());
    }

    // ------------------------------------------------------------------ master weights

    void masterWeights() {
        CheckpointOptions options;
        options.open.own = {{"--master-weights", "ignore"}};
        const GenuineCase v2 = genuine("stage1v2");
        auto opened = openCheckpoint(v2.path, options);
        QVERIFY(opened.ok());
        QCOMPARE(opened->catalog().find("lm_head.weight"), kNone);
        QVERIFY(opened->catalog().find("lm_head.weight.master_weight") != kNone);
        // As stored, and as cast from the masters: the same bits.
        options.open.own = {{"--master-weights", "use"}};
        const GenuineCase mp2 = genuine("mp2");
        opened = openCheckpoint(mp2.path, options);
        QVERIFY(opened.ok());
        const auto bytes = digests(*opened->reader);
        for (const auto& [name, want] : mp2.expected["tensors"].items())
            QVERIFY2(bytes.at(name) == want["sha256"], name.c_str());
        const Catalog& catalog = opened->catalog();
        const auto extent = opened->reader->locate(catalog.firstChunk(catalog.find("lm_head.weight")));
        QVERIFY(extent.ok());
        QCOMPARE(extent->storedAs, std::optional<DType>(DType::float32));
    }

    // Norms in fp32 have no master; they stay in the weights' files.
    void fp32HasNoMaster() {
        const auto opened = openCheckpoint(genuine("mp2_stage1v2_fp32norm").path);
        QVERIFY(opened.ok());
        const Catalog& catalog = opened->catalog();
        QCOMPARE(catalog.find("llama.norm.weight.master_weight"), kNone);
        QCOMPARE(catalog.dtype(catalog.find("llama.norm.weight")), DType::float32);
    }

    // ------------------------------------------------------------------ unified checkpoint

    static std::map<std::string, std::string> unified() {
        const std::string bf16("\x80\x3f\x00\x40\x40\x40\x80\x40", 8);  // 1 2 3 4
        std::map<std::string, std::string> files;
        files["model-00001-of-00001.safetensors"] = safetensorsFile(
            {{"__metadata__", {{"format", "np"}}}, {"m.q_proj.weight", entryOf("U16", {2, 2}, 0, 8)}}, bf16);
        files["model.safetensors.index.json"] =
            json{{"metadata", {{"total_size", 8}}},
                 {"weight_map", {{"m.q_proj.weight", "model-00001-of-00001.safetensors"}}}}
                .dump();
        files["optimizer-00001-of-00001.safetensors"] =
            safetensorsFile({{"m.q_proj.weight/moment1_0", entryOf("F32", {2, 2}, 0, 16)},
                             {"m.q_proj.weight/beta1_pow_acc_0", entryOf("F32", {1}, 16, 20)}},
                            raw(4, 10) + raw(1, 0.5F));
        files["optimizer.safetensors.index.json"] = json{
            {"metadata", {{"total_size", 20}}},
            {"weight_map",
             {{"m.q_proj.weight/moment1_0", "optimizer-00001-of-00001.safetensors"},
              {"m.q_proj.weight/beta1_pow_acc_0", "optimizer-00001-of-00001.safetensors"}}},
            {"master_weights", true}}.dump();
        files["master_weights-00001-of-00001.safetensors"] =
            safetensorsFile({{"m.q_proj.weight", entryOf("F32", {2, 2}, 0, 16)}}, raw(4, 1));
        files["master_weights.safetensors.index.json"] =
            json{{"metadata", {{"total_size", 16}}},
                 {"weight_map", {{"m.q_proj.weight", "master_weights-00001-of-00001.safetensors"}}}}
                .dump();
        return files;
    }

    void unifiedWhole() {
        for (const bool use : {false, true}) {
            OpenOptions options;
            if (use) options.own = {{"--master-weights", "use"}};
            const auto opened = made(unified()).open(format(), options);
            QVERIFY2(opened.ok(), opened.ok() ? "" : describe(opened.error()).c_str());
            const Catalog& catalog = (*opened)->catalog();
            QCOMPARE(catalog.variant(), std::string("unified"));
            QCOMPARE(catalog.tensorCount(), size_t{4});
            const TensorId w = catalog.find("m.q_proj.weight");
            QCOMPARE(catalog.dtype(w), DType::bfloat16);
            QCOMPARE(catalog.role(catalog.find("m.q_proj.weight.moment1")), Role::optimizer);
            const auto bytes = readRegion(**opened, w, {{0, 0}, {2, 2}}, 64, machine().resources);
            QVERIFY(bytes.ok());
            QVERIFY(std::memcmp(bytes->data(), "\x80\x3f\x00\x40\x40\x40\x80\x40", 8) == 0);
            QCOMPARE(valuesOf(**opened, "m.q_proj.weight.master_weight").at(3), 4.0F);
            QVERIFY(validated(**opened, ValidateLevel::values).verdict == Verdict::safe);
        }
    }

    void unifiedIsDetected() {
        Copy copy = made(unified());
        for (const char* gone : {"optimizer", "master_weights"})
            std::erase_if(copy.files, [&](const auto& f) { return f.first.starts_with(gone); });
        const auto fs = std::make_shared<MemoryFileSystem>();
        Source source;
        for (const auto& [name, content] : copy.files) {
            const auto bytes = std::as_bytes(std::span(content));
            fs->put("/d/" + name, {bytes.begin(), bytes.end()});
        }
        source.fileSystem = fs;
        source.directory = fs->openDirectory("/d").value();
        source.entries = source.directory->list().value();
        QVERIFY(format().probe(source).match == Probe::Match::certain);  // bfloat16 as U16
    }

    void unifiedQuantized() {
        auto files = unified();
        json index = json::parse(files["optimizer.safetensors.index.json"]);
        index["ckpt_quant_stage"] = "O1";
        files["optimizer.safetensors.index.json"] = index.dump();
        const auto opened = made(files).open(format());
        QVERIFY2(opened.ok(), opened.ok() ? "" : describe(opened.error()).c_str());
        const Catalog& catalog = (*opened)->catalog();
        for (TensorId t = 0; t < catalog.tensorCount(); ++t)
            QVERIFY(catalog.role(t) != Role::optimizer || catalog.name(t).ends_with(".master_weight"));
        QVERIFY(catalog.tensorCount() > 0);
        QVERIFY(lacks(**opened));
        const ValidationReport report = validated(**opened, ValidateLevel::files);
        QVERIFY2(report.verdict == Verdict::safe, text(report).c_str());
        QVERIFY(found(report, "state.missing", "ckpt_quant_stage O1"));
    }

    void unifiedMissing() {
        auto files = unified();
        files.erase("optimizer-00001-of-00001.safetensors");
        auto opened = made(files).open(format());
        QVERIFY(opened.ok());
        QVERIFY(found(validated(**opened, ValidateLevel::metadata), "file.missing", "optimizer-00001"));
        QVERIFY(lacks(**opened));
        files = unified();
        json index = json::parse(files["master_weights.safetensors.index.json"]);
        index["weight_map"]["m.other"] = "master_weights-00001-of-00001.safetensors";
        files["master_weights.safetensors.index.json"] = index.dump();
        opened = made(files).open(format());
        QVERIFY(opened.ok());
        QVERIFY(found(validated(**opened, ValidateLevel::metadata), "meta.inconsistent", "m.other"));
        for (const auto& [file, content] : unified()) {
            for (size_t size = 0; size < content.size(); size += 3) {
                auto cut = unified();
                cut[file] = content.substr(0, size);
                const auto damagedOne = made(cut).open(format());
                if (damagedOne.ok()) exercise(**damagedOne);
            }
        }
    }

    // ignore_merge_optimizer: optimizer state of ranks beside whole weights.
    void unifiedOfRanks() {
        auto files = unified();
        std::erase_if(files, [](const auto& f) {
            return f.first.starts_with("master") || f.first == "optimizer-00001-of-00001.safetensors";
        });
        files["optimizer.safetensors.index.json"] = R"({"metadata":{},"master_weights":false})";
        for (int t = 0; t < 2; ++t)
            files["optimizer.tp0" + std::to_string(t) + "_pp00_shard00.safetensors"] =
                safetensorsFile({{"m.q_proj.weight/moment1_0", entryOf("F32", {2, 1}, 0, 8)},
                                 {"m.q_proj.weight/beta1_pow_acc_0", entryOf("F32", {1}, 8, 12)}},
                                raw(2, static_cast<float>(10 * t)) + raw(1, 0.5F));
        const auto opened = made(files).open(format());
        QVERIFY2(opened.ok(), opened.ok() ? "" : describe(opened.error()).c_str());
        const std::vector<float> want{0, 10, 1, 11};
        QCOMPARE(valuesOf(**opened, "m.q_proj.weight.moment1"), want);
        QCOMPARE(formatMesh(*(*opened)->catalog().mesh()), std::string("pp=1,sharding=1,tp=2"));
        QVERIFY(validated(**opened, ValidateLevel::values).verdict == Verdict::safe);
    }

  private:
    // A chunk's rank is where its stage and tensor-parallel rank are in the mesh, and its box is that rank's.
    static void checkPlace(const GenuineCase& c, const Catalog& catalog, const ChunkInfo& chunk,
                           const std::string& parameter) {
        const json& layout = c.expected["layout"];
        const auto at = catalog.mesh()->coordinates(chunk.rank);
        QCOMPARE(at[0], layout["stage"][parameter].get<uint32_t>());
        const json& axis = layout["tp_axis"][parameter];
        if (!axis.is_number() || chunk.lengths.size() <= axis.get<size_t>() ||
            catalog.name(chunk.tensor).ends_with("_acc"))
            return;
        const auto d = axis.get<size_t>();
        QCOMPARE(chunk.offsets[d], static_cast<int64_t>(at[2]) * chunk.lengths[d]);
    }
};

QTEST_GUILESS_MAIN(PaddleNlpTest)
#include "paddle_nlp_test.moc"
