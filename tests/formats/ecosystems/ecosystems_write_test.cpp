// What is written for ColossalAI and OLMo: read back equal, and byte for byte what the frameworks write where
// the content is the same.
#include <QTemporaryDir>
#include <QtTest>
#include <filesystem>
#include <fstream>

#include "engine/diff.h"
#include "engine/engine.h"
#include "support/genuine.h"

using namespace shardscope;
using namespace shardscope::test;

namespace {

std::string readFile(const std::filesystem::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

std::string genuinePath(const std::string& family, const std::string& name) {
    for (const GenuineCase& c : genuineCases(family)) {
        if (c.name == name) return c.path;
    }
    qFatal("no such case");
    return {};
}

struct Converted {
    bool ok = false;
    std::string error;
    std::vector<std::string> leftOut;
};

Converted convert(const std::string& from, const std::string& to, const ConversionRequest& request,
                  const std::string& sourceVariant = {}) {
    Converted out;
    CheckpointOptions options;
    options.open.variant = sourceVariant;
    const auto source = openCheckpoint(from, options);
    if (!source.ok()) return {false, describe(source.error()), {}};
    const auto prepared = prepareConversion(*source, to, request);
    if (!prepared.ok()) return {false, describe(prepared.error()), {}};
    for (const PlanLeftOut& entry : prepared->plan.leftOut)
        out.leftOut.push_back(entry.name);
    Progress progress;
    const auto report = runPrepared(*prepared, request, &progress);
    out.ok = report.ok();
    if (!report.ok()) out.error = describe(report.error());
    return out;
}

// Empty when both hold the same values under the same names; else what differs first.
std::string difference(const std::string& a, const std::string& b) {
    const auto one = openCheckpoint(a);
    const auto other = openCheckpoint(b);
    if (!one.ok()) return describe(one.error());
    if (!other.ok()) return describe(other.error());
    ThreadPool pool(2);
    MemoryBudget memory(uint64_t{64} << 20);
    Resources resources;
    resources.pool = &pool;
    resources.memory = &memory;
    DiffOptions options;
    options.values = true;
    const auto diff = diffCheckpoints(*one, *other, options, resources);
    if (!diff.ok()) return describe(diff.error());
    if (diff->equal()) return {};
    return "differs: " +
           (diff->onlyA.empty() ? diff->onlyB.empty() ? "values" : diff->onlyB[0] : diff->onlyA[0]);
}

ConversionRequest to(const std::string& format, const std::string& variant = {}) {
    ConversionRequest request;
    request.format = format;
    request.variant = variant;
    return request;
}

}  // namespace

class EcosystemsWriteTest : public QObject {
    Q_OBJECT

  private slots:
    // The rank that holds everything is written as the framework wrote it, file by file.
    void colossalaiAsWritten() {
        for (const auto& [name, variant] :
             {std::pair{"tp2_pp2_st", "distributed"}, {"tp1_pp1_bin", "distributed-bin"}}) {
            QTemporaryDir dir;
            const std::string from = genuinePath("colossalai", name),
                              place = dir.filePath("out").toStdString();
            const Converted done = convert(from, place, to("colossalai", variant));
            QVERIFY2(done.ok, done.error.c_str());
            QCOMPARE(difference(from, place), std::string());
            size_t same = 0;
            for (const auto& entry : std::filesystem::directory_iterator(from)) {
                const std::string file = entry.path().filename();
                QVERIFY2(std::filesystem::exists(place + "/" + file), file.c_str());
                if (!file.ends_with(".bin")) same += readFile(entry.path()) == readFile(place + "/" + file);
            }
            QVERIFY(same >= 1);
        }
    }

    void colossalaiTargets_data() {
        QTest::addColumn<QString>("source");
        QTest::addColumn<QString>("variant");
        QTest::addColumn<bool>("mesh");
        for (const char* source :
             {"tp4_pp1_bin", "tp2_pp2_st", "tp2_mixed_dtype", "gathered_model_sharded_st"}) {
            for (const char* variant : {"distributed", "distributed-bin", "gathered", "gathered-bin"}) {
                QTest::addRow("%s to %s", source, variant) << source << variant << false;
                if (QString(variant).startsWith("dist"))
                    QTest::addRow("%s to %s on a mesh", source, variant) << source << variant << true;
            }
        }
    }
    void colossalaiTargets() {
        QFETCH(QString, source);
        QFETCH(QString, variant);
        QFETCH(bool, mesh);
        QTemporaryDir dir;
        const std::string from = genuinePath("colossalai", source.toStdString());
        const std::string place = dir.filePath("out").toStdString();
        ConversionRequest request = to("colossalai", variant.toStdString());
        request.maxFileSize = 400;  // several files
        if (mesh) {
            request.mesh = "pp=2,tp=3";
            request.shard.emplace_back("*.weight:tp=0");
        }
        const Converted done = convert(from, place, request);
        QVERIFY2(done.ok, done.error.c_str());
        QVERIFY(done.leftOut.empty());
        QCOMPARE(difference(from, place), std::string());
        const auto opened = openCheckpoint(place);
        QCOMPARE(opened->format->info().name, std::string("colossalai"));
        for (const Note& note : opened->catalog().notes())
            QVERIFY2(note.severity != Severity::error, note.message.c_str());
    }

    void colossalaiOptimizer() {
        QTemporaryDir dir;
        const std::string from = genuinePath("colossalai", "gathered_optim_async_st");
        const std::string place = dir.filePath("out").toStdString();
        ConversionRequest request = to("colossalai", "gathered-bin");
        request.maxFileSize = 200;
        const Converted done = convert(from, place, request);
        QVERIFY2(done.ok, done.error.c_str());
        QVERIFY(done.leftOut.empty());
        QCOMPARE(difference(genuinePath("colossalai", "gathered_optim_sharded_bin"), place), std::string());
        const auto opened = openCheckpoint(place);
        QCOMPARE(opened->catalog().objects().size(), size_t{4});
        // The distributed layout has no place for it.
        const Converted none = convert(from, dir.filePath("none").toStdString(), to("colossalai"));
        QVERIFY(!none.ok);
    }

    // A tensor that is known to be fused is not put together wrongly.
    void fused() {
        QTemporaryDir dir;
        const std::string from = genuinePath("colossalai", "tp2_fused_qkv");
        const Converted refused = convert(from, dir.filePath("a").toStdString(), to("safetensors"));
        QVERIFY(!refused.ok);
        QVERIFY2(refused.error.find("q, k and v") != std::string::npos, refused.error.c_str());
        const Converted done =
            convert(from, dir.filePath("b").toStdString(), to("safetensors"), "fused-qkv=auto");
        QVERIFY2(done.ok, done.error.c_str());
    }

    // Also from the .pt files: what OLMo's converter makes of them.
    void olmoAsWritten() {
        for (const char* name : {"unsharded_bf16_ids", "unsharded_fp32_fqn"}) {
            QTemporaryDir dir;
            const std::string from = genuinePath("olmo", name), place = dir.filePath("out").toStdString();
            const Converted done = convert(from, place, to("olmo"));
            QVERIFY2(done.ok, done.error.c_str());
            for (const char* file : {"/model.safetensors", "/optim.safetensors"})
                QVERIFY2(readFile(from + file) == readFile(place + file), file);
        }
        QTemporaryDir dir;
        const std::string from = genuinePath("olmo", "crazy_keys"), place = dir.filePath("out").toStdString();
        const Converted done = convert(from + "/state.safetensors", place, to("olmo"));
        QVERIFY2(done.ok, done.error.c_str());
        QVERIFY(readFile(from + "/state.safetensors") == readFile(place + "/model.safetensors"));
    }

    // 0 and "0" are joined to one name: they stay two tensors, and with formats that keep keys, two places.
    void olmoKeysOfOneName() {
        QTemporaryDir dir;
        const std::string from = genuinePath("olmo", "crazy_keys");
        for (const char* format : {"olmo", "torch", "dcp", "paddle", "safetensors"}) {
            const std::string there = dir.filePath(format).toStdString();
            const Converted done = convert(from, there, to(format));
            QVERIFY2(done.ok, (format + done.error).c_str());
            std::vector<std::string> places{there};
            if (format == std::string("olmo") || format == std::string("torch")) {
                places.push_back(dir.filePath(QString("back-") + format).toStdString());
                const Converted back = convert(there, places.back(), to("olmo"));
                QVERIFY2(back.ok && back.leftOut.empty(), (format + back.error).c_str());
                QCOMPARE(difference(from, places.back()), std::string());
            }
            for (const std::string& place : places) {
                const auto opened = openCheckpoint(place);
                QVERIFY(opened.ok());
                const Catalog& catalog = opened->catalog();
                const TensorId number = catalog.find("b.0.x"), text = catalog.find("b.0.x~2");
                QVERIFY2(number != kNone && text != kNone, place.c_str());
                QCOMPARE(static_cast<int>(catalog.dtype(number)), static_cast<int>(DType::bfloat16));
                QCOMPARE(static_cast<int>(catalog.dtype(text)), static_cast<int>(DType::float64));
            }
        }
        // DCP writes every key as text. A target that nests them has room for one, and the other is named.
        const Converted nested =
            convert(dir.filePath("dcp").toStdString(), dir.filePath("nested").toStdString(), to("torch"));
        QVERIFY2(nested.ok, nested.error.c_str());
        QCOMPARE(nested.leftOut, std::vector<std::string>{"b.0.x~2"});
    }

    void olmoShardedToKeys() {
        for (const char* name : {"local_w2", "local_w4_root", "torch_legacy_w2"}) {
            QTemporaryDir dir;
            const std::string from = genuinePath("olmo", name), place = dir.filePath("out").toStdString();
            const Converted done = convert(from, place, to("olmo"));
            QVERIFY2(done.ok, done.error.c_str());
            QCOMPARE(QString::fromStdString(done.leftOut.empty() ? "" : done.leftOut[0]),
                     QString("metadata.world_size"));
            QCOMPARE(difference(from, place), std::string());
        }
    }
};

QTEST_GUILESS_MAIN(EcosystemsWriteTest)
#include "ecosystems_write_test.moc"
