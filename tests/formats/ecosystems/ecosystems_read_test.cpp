// ColossalAI and OLMo: what is special to them, and damaged metadata.
#include <QtTest>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "engine/engine.h"
#include "support/genuine.h"
#include "support/read_checks.h"

using namespace shardscope;
using namespace shardscope::test;
using nlohmann::json;

namespace {

const Format& formatOf(const std::string& family) {
    return *findFormat(family);
}

}  // namespace

class EcosystemsReadTest : public QObject {
    Q_OBJECT

  private slots:
    // Rank fields are identities: ranks of the catalog are counted by the files.
    void oddRanks() {
        const auto opened = openCheckpoint(caseOf("colossalai", "tp2_odd_ranks").path);
        QVERIFY(opened.ok());
        QCOMPARE(opened->catalog().rankCount(), 2U);
        QCOMPARE(formatMesh(*opened->catalog().mesh()), std::string("pp=1,tp=2"));
    }

    // Stated to be q, k and v, the tensor is put together rightly.
    void fusedStated() {
        const GenuineCase c = caseOf("colossalai", "tp2_fused_qkv");
        for (const char* variant : {"fused-qkv=auto", "fused-qkv=*c_attn*"}) {
            CheckpointOptions options;
            options.open.variant = variant;
            const auto opened = openCheckpoint(c.path, options);
            QVERIFY2(opened.ok(), opened.ok() ? "" : describe(opened.error()).c_str());
            const auto bytes = digests(*opened->reader);
            for (const auto& [name, want] : c.expected["tensors"].items())
                QVERIFY2(bytes.at(name) == want["sha256"], name.c_str());
            const ValidationReport report = validated(*opened->reader, ValidateLevel::values);
            QVERIFY2(report.verdict == Verdict::safe, text(report).c_str());
        }
        CheckpointOptions options;
        options.open.variant = "other";
        QVERIFY(!openCheckpoint(c.path, options).ok());
    }

    // The index is written last. What the files hold is there, and that more may have been is an error.
    void shardsWithoutTheirIndex() {
        const GenuineCase c = caseOf("colossalai", "gathered_optim_sharded_bin");
        Copy copy(c.path);
        QCOMPARE(copy.files.erase("pytorch_optim.bin.index.json"), size_t{1});
        const auto opened = copy.open(formatOf("colossalai"));
        QVERIFY2(opened.ok(), opened.ok() ? "" : describe(opened.error()).c_str());
        const auto bytes = digests(**opened);
        for (const auto& [name, want] : c.expected["tensors"].items())
            QVERIFY2(bytes.at(name) == want["sha256"], name.c_str());
        const ValidationReport report = validated(**opened, ValidateLevel::metadata);
        QVERIFY2(std::ranges::any_of(report.findings,
                                     [](const Finding& f) {
                                         return f.rule == "file.missing" && f.severity == Severity::error;
                                     }),
                 text(report).c_str());
    }

    // A save over one with more stages and the same tp: what the lower stages hold already is left aside.
    void staleStages() {
        Copy copy(caseOf("colossalai", "tp2_pp1_bin").path);
        for (int id : {0, 1}) {
            const std::string from = "0000" + std::to_string(id), to = "0000" + std::to_string(id + 2);
            std::string meta = copy.files["pytorch_model-meta-dist-" + from + ".json"];
            const std::string was = "dist-" + from;
            for (size_t at = meta.find(was); at != std::string::npos; at = meta.find(was, at + 1))
                meta.replace(at, was.size(), "dist-" + to);
            copy.files["pytorch_model-meta-dist-" + to + ".json"] = meta;
            copy.files["pytorch_model-dist-" + to + "-shard-00000.bin"] =
                copy.files["pytorch_model-dist-" + from + "-shard-00000.bin"];
        }
        const auto opened = copy.open(formatOf("colossalai"));
        QVERIFY(opened.ok());
        QCOMPARE((*opened)->catalog().rankCount(), 2U);
        const ValidationReport report = validated(**opened, ValidateLevel::metadata);
        QVERIFY2(std::any_of(report.findings.begin(), report.findings.end(),
                             [](const Finding& f) { return f.rule == "file.stale"; }),
                 text(report).c_str());
    }

    // A model in one file beside its optimizer in one file.
    void modelAndOptimizer() {
        Copy copy(caseOf("colossalai", "gathered_optim_bin").path);
        Copy model(caseOf("colossalai", "tp1_pp1_bin").path);
        copy.files["pytorch_model.bin"] = model.files["pytorch_model-dist-00000-shard-00000.bin"];
        const auto opened = copy.open(formatOf("colossalai"));
        QVERIFY(opened.ok());
        QCOMPARE((*opened)->catalog().tensorCount(), size_t{13 + 6});
        QVERIFY(validated(**opened, ValidateLevel::values).verdict == Verdict::safe);
    }

    // A vocabulary that was padded on one rank: the rows behind the true size are left out.
    void paddedVocabulary() {
        Copy copy(caseOf("colossalai", "tp1_pp1_bin").path);
        std::string& meta = copy.files["pytorch_model-meta-dist-00000.json"];
        json document = json::parse(meta);
        document["metadata"]["lm_head.weight"]["global_shape"] = {13, 8};
        meta = document.dump(4);
        const auto opened = copy.open(formatOf("colossalai"));
        QVERIFY(opened.ok());
        const Catalog& catalog = (*opened)->catalog();
        const TensorId t = catalog.find("lm_head.weight");
        QCOMPARE(catalog.shape(t)[0], 13);
        const auto extent = (*opened)->locate(catalog.firstChunk(t));
        QVERIFY2(extent.ok(), extent.ok() ? "" : describe(extent.error()).c_str());
        QCOMPARE(extent->length, uint64_t{13 * 8 * 4});
        QVERIFY(validated(**opened, ValidateLevel::values).verdict == Verdict::safe);
    }

    // A parameter without dimensions, which ColossalAI's loader makes 0, and two dtypes, of which it makes
    // one.
    void scalarsAndMixedDTypes() {
        const GenuineCase c = caseOf("colossalai", "tp2_mixed_dtype");
        const auto opened = openCheckpoint(c.path);
        QVERIFY(opened.ok());
        const Catalog& catalog = opened->catalog();
        const TensorId scalar = catalog.find("count");
        QVERIFY(scalar != kNone && catalog.shape(scalar).empty());
        std::set<std::string> dtypes;
        for (TensorId t = 0; t < catalog.tensorCount(); ++t)
            dtypes.emplace(dtypeName(catalog.dtype(t)));
        QVERIFY((dtypes == std::set<std::string>{"bfloat16", "float32"}));
        const auto bytes = digests(*opened->reader);
        for (const auto& [name, want] : c.expected["tensors"].items())
            QVERIFY2(bytes.at(name) == want["sha256"], name.c_str());
    }

    // A path of another machine is followed by its last part only, and never out of the directory.
    void hostilePaths() {
        for (const char* path : {"/etc/passwd", "../x/../../secret", "..", "", "/", "a/b/", "x\\..\\y",
                                 "sub/../../pytorch_model-dist-00009.bin"}) {
            Copy copy(caseOf("colossalai", "tp2_pp1_bin").path);
            std::string& meta = copy.files["pytorch_model-meta-dist-00001.json"];
            json document = json::parse(meta);
            document["metadata"]["lm_head.weight"]["file"] = path;
            meta = document.dump(4);
            const auto opened = copy.open(formatOf("colossalai"));
            QVERIFY2(opened.ok(), path);
            exercise(**opened);
            const ValidationReport report = validated(**opened, ValidateLevel::values);
            QVERIFY2(std::any_of(report.findings.begin(), report.findings.end(),
                                 [](const Finding& f) {
                                     return f.rule == "security.path" && f.severity == Severity::error;
                                 }),
                     (path + text(report)).c_str());
        }
    }

    // Wherever a metadata or pickle file ends, there is an error or a report; and whatever a number says.
    void truncations_data() {
        QTest::addColumn<QString>("family");
        QTest::addColumn<QString>("name");
        for (const char* name :
             {"tp2_pp1_bin", "tp2_pp1_st", "gathered_optim_sharded_bin", "gathered_optim_async_st"})
            QTest::newRow(name) << "colossalai" << name;
        for (const char* name : {"local_w2", "torch_legacy_w2", "unsharded_bf16_ids"})
            QTest::newRow(name) << "olmo" << name;
    }
    void truncations() {
        QFETCH(QString, family);
        QFETCH(QString, name);
        const Format& format = formatOf(family.toStdString());
        const Copy whole(caseOf(family.toStdString(), name.toStdString()).path);
        for (const auto& [file, content] : whole.files) {
            const size_t step = file.ends_with(".json") ? 1 : std::max<size_t>(content.size() / 60, 1);
            for (size_t size = 0; size < content.size(); size += step) {
                Copy copy = whole;
                copy.files[file] = content.substr(0, size);
                const auto opened = copy.open(format);
                if (!opened.ok()) {
                    QVERIFY2(!opened.error().message.empty(), file.c_str());
                    QVERIFY2(opened.error().code != ErrorCode::internal, describe(opened.error()).c_str());
                    // The closing brace and what is left out of the metadata's own object are another matter.
                    if (file.starts_with("pytorch_model-meta"))
                        QVERIFY2(opened.error().location.file.ends_with(file),
                                 describe(opened.error()).c_str());
                    continue;
                }
                QVERIFY2(!file.starts_with("pytorch_model-meta"), file.c_str());
                if (size % (step * 8) == 0) exercise(**opened);
            }
        }
    }

    void inconsistentSizes() {
        for (const char* member : {"offsets", "lengths", "global_shape"}) {
            for (const char* value :
                 {"[0]", "[99999999999999, 8]", "[281474976710656, 281474976710656]", "[-1, 8]", "[1.5, 8]",
                  "[16, 7]", "[]", "[0, 0]", "\"x\"", "null", "{}"}) {
                Copy copy(caseOf("colossalai", "tp2_pp1_bin").path);
                std::string& meta = copy.files["pytorch_model-meta-dist-00001.json"];
                json document = json::parse(meta);
                document["metadata"]["lm_head.weight"][member] = json::parse(value);
                meta = document.dump(4);
                const auto opened = copy.open(formatOf("colossalai"));
                if (!opened.ok()) {
                    QVERIFY(opened.error().code == ErrorCode::damaged ||
                            opened.error().code == ErrorCode::limit);
                    continue;
                }
                exercise(**opened);
                const bool rightly = member == std::string("offsets") && value == std::string("[8, 0]");
                const ValidationReport report = validated(**opened, ValidateLevel::files);
                QVERIFY2((report.verdict == Verdict::unsafe) != rightly,
                         (std::string(member) + value + text(report)).c_str());
            }
        }
    }

    // The rank files of `local` state which stretches they hold.
    void missingRankOfLocal() {
        Copy copy(caseOf("olmo", "local_w2").path);
        copy.files.erase("model/rank1.pt");
        const auto opened = copy.open(formatOf("olmo"));
        QVERIFY(opened.ok());
        const ValidationReport report = validated(**opened, ValidateLevel::values);
        QVERIFY(report.verdict == Verdict::unsafe);
        std::set<std::string> rules;
        for (const Finding& f : report.findings)
            rules.insert(f.rule);
        QVERIFY2(rules.contains("file.missing") && rules.contains("coverage.gap"), text(report).c_str());
    }

    void staleHigherRankOfLocal() {
        Copy copy(caseOf("olmo", "local_w2").path);
        copy.files["model/rank2.pt"] = copy.files["model/rank1.pt"];
        const auto opened = copy.open(formatOf("olmo"));
        QVERIFY(opened.ok());
        QCOMPARE((*opened)->catalog().rankCount(), 2U);
        const ValidationReport report = validated(**opened, ValidateLevel::metadata);
        QVERIFY2(std::any_of(report.findings.begin(), report.findings.end(),
                             [](const Finding& f) { return f.rule == "file.stale"; }),
                 text(report).c_str());
    }

    // What the ranks of one save have in common: the trainer's counters, scalars of the optimizer.
    void filesOfOtherSavesOfOlmo_data() {
        QTest::addColumn<QString>("name");
        QTest::addColumn<QString>("file");
        QTest::addColumn<QString>("from");  // "" = the file is removed
        QTest::addColumn<QString>("rule");
        const auto row = [](const char* title, const char* name, const char* file, const char* from,
                            const char* rule) { QTest::newRow(title) << name << file << from << rule; };
        row("train lost", "local_w2", "train/rank1.pt", "", "file.missing");
        row("train of more ranks", "local_w2", "train/rank1.pt", "local_w4_root/train/rank1.pt",
            "save.mixed");
        row("stale train", "local_w2", "train/rank2.pt", "local_w4_root/train/rank2.pt", "file.stale");
        row("stale optimizer", "local_w2", "optim/rank2.pt", "local_w4_root/optim/rank2.pt", "file.stale");
        row("legacy of another rank", "torch_legacy_w2", "rank0.pt", "torch_legacy_w2/rank1.pt",
            "meta.inconsistent");
        row("legacy of fewer ranks", "torch_legacy_w2", "rank2.pt", "torch_legacy_w2/rank1.pt", "save.mixed");
    }
    void filesOfOtherSavesOfOlmo() {
        QFETCH(QString, name);
        QFETCH(QString, file);
        QFETCH(QString, from);
        QFETCH(QString, rule);
        Copy copy(caseOf("olmo", name.toStdString()).path);
        if (from.isEmpty()) {
            QCOMPARE(copy.files.erase(file.toStdString()), size_t{1});
        } else {
            const QString other = from.section('/', 0, 0);
            Copy there(caseOf("olmo", other.toStdString()).path);
            copy.files[file.toStdString()] = there.files.at(from.section('/', 1).toStdString());
        }
        const auto opened = copy.open(formatOf("olmo"));
        QVERIFY(opened.ok());
        const ValidationReport report = validated(**opened, ValidateLevel::files);
        QVERIFY2(std::ranges::any_of(report.findings,
                                     [&](const Finding& f) {
                                         return f.rule == rule.toStdString() && f.severity == Severity::error;
                                     }),
                 text(report).c_str());
    }

    // Keys and pickled values of the safetensors mapping.
    void nestedKeys() {
        const GenuineCase c = caseOf("olmo", "crazy_keys");
        const auto opened = openCheckpoint(c.path + "/state.safetensors");
        QVERIFY2(opened.ok(), opened.ok() ? "" : describe(opened.error()).c_str());
        QCOMPARE(opened->format->info().name, std::string("olmo"));
        const Catalog& catalog = opened->catalog();
        QCOMPARE(catalog.tensorCount(), c.expected["tensors_by_path"].size());
        const auto bytes = digests(*opened->reader);
        std::multiset<std::string> found, target;
        for (const auto& [name, digest] : bytes) {
            const TensorId t = catalog.find(name);
            found.insert(std::string(dtypeName(catalog.dtype(t))) + formatDims(catalog.shape(t)) + digest);
        }
        for (const auto& [path, want] : c.expected["tensors_by_path"].items()) {
            target.insert(want["dtype"].get<std::string>() + formatDims(want["shape"].get<Dims>()) +
                          want["sha256"].get<std::string>());
        }
        QVERIFY(found == target);
        for (const auto& [name, want] : c.expected["objects"].items()) {
            const auto it = std::find_if(catalog.objects().begin(), catalog.objects().end(),
                                         [&, key = name](const ObjectInfo& o) { return o.name == key; });
            QVERIFY2(it != catalog.objects().end(), name.c_str());
            if (!want.is_string()) QCOMPARE(json::parse(valueToJson(it->value)).dump(), want.dump());
        }
    }
};

QTEST_GUILESS_MAIN(EcosystemsReadTest)
#include "ecosystems_read_test.moc"
