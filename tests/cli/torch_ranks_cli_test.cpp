// Files of ranks that verl, Accelerate and FSDP scripts wrote, as one checkpoint: what is kept per rank, what
// is written, and what is said of missing, exchanged and mixed files.
#include <QDir>
#include <QTemporaryDir>
#include <QTest>
#include <map>
#include <set>

#include "cli/genuine_checks.h"

using namespace shardscope::test;
using nlohmann::json;

namespace {

GenuineCase caseOf(const QString& name) {
    return genuineCase("torch_ranks", name);
}

QString pathOf(const GenuineCase& c) {
    return QString::fromStdString(c.openPath());
}

}  // namespace

class TorchRanksCliTest : public QObject {
    Q_OBJECT

    QTemporaryDir place_;
    QString copyOf(const QString& name, const QString& as) {
        copyTree(pathOf(caseOf(name)), place_.filePath(as));
        return place_.filePath(as);
    }

  private slots:
    // Files of tensor-parallel ranks that cannot be put together are not converted.
    void damagedTensorParallelCases() {
        for (const GenuineCase& c : genuineCases("tensor_parallel")) {
            const QString out = place_.filePath("tp-" + QString::fromStdString(c.name));
            if (!c.damaged()) continue;
            QCOMPARE(runShardscope({"convert", pathOf(c), out, "--to", "safetensors"}).exitCode, 3);
            QVERIFY(!QFile::exists(out));
        }
    }
    void tensorParallelCutsCanBeStated() {
        const GenuineCase c = genuineCase("tensor_parallel", "bad-unknown-projection");
        const QString path = QString::fromStdString(c.path);
        QCOMPARE(runShardscope({"digest", path, "--tp-dim", "*.in_proj.weight=0"}).exitCode, 0);
        QCOMPARE(runShardscope({"digest", path, "--tp-dim", "in_proj.weight"}).exitCode, 2);
    }

    // FSDP1 with original parameters: the optimizer of each rank holds flat pieces without a place.
    void flatOptimizerStateIsJoined() {
        const GenuineCase c = caseOf("t2.15.0-verl-fsdp1-mesh-w2");
        const json digests = digestsOf(pathOf(c));
        const json listing = runShardscope({"ls", pathOf(c), "model.*", "--json"}).json();
        std::set<std::string> expected, found;
        for (const auto& [name, tensor] : c.expected["optim_full"].items())
            expected.insert(name.substr(name.rfind('.')) + tensor["sha256"].get<std::string>());
        for (const auto& [name, digest] : digests.items()) {
            if (name.starts_with("optim.state."))
                found.insert(name.substr(name.rfind('.')) + digest.get<std::string>());
        }
        for (const std::string& state : expected)
            QVERIFY2(found.contains(state), state.c_str());
    }

    // What ranks have under one name, and is not one tensor, is not converted.
    void expertsOfSeveralGroupsAreRefused_data() {
        QTest::addColumn<QString>("name");
        QTest::newRow("placed") << "t2.15.0-bad-expert-groups";
        QTest::newRow("plain") << "t2.15.0-bad-expert-groups-plain";
    }
    void expertsOfSeveralGroupsAreRefused() {
        QFETCH(QString, name);
        const QString path = pathOf(caseOf(name)), out = place_.filePath("out-" + name);
        QCOMPARE(runShardscope({"convert", path, out, "--to", "safetensors"}).exitCode, 3);
        QVERIFY(!QFile::exists(out));
    }

    void replicasAreSaidNotToBeCompared() {
        const QString path = pathOf(caseOf("t2.15.0-verl-hsdp-w4")), out = place_.filePath("hsdp");
        const QStringList words{path, out, "--to", "dcp", "--select", "model.*.weight"};
        const json listing = runShardscope({"ls", path, "model.*.weight", "--chunks", "--json"}).json();
        size_t replicas = 0;
        for (const json& tensor : listing["tensors"]) {
            std::set<std::string> boxes;
            for (const json& chunk : tensor["chunks"])
                boxes.insert(chunk["offsets"].dump() + chunk["lengths"].dump());
            replicas += tensor["chunks"].size() - boxes.size();
        }
        QVERIFY(replicas > 0);
        const std::string line = "replicas not compared: " + std::to_string(replicas) + " chunks";
        const Outcome plan = runShardscope(QStringList{"plan"} + words);
        QVERIFY2(plan.out.find(line) != std::string::npos, plan.out.c_str());
        COMPARE_JSON(runShardscope(QStringList{"plan"} + words + QStringList{"--json"})
                         .json()["replicas_not_compared"],
                     json(replicas));
        const Outcome done = runShardscope(QStringList{"convert"} + words);
        QVERIFY2(done.out.find(line) != std::string::npos, done.out.c_str());
        // What a DCP holds, it holds once.
        COMPARE_JSON(runShardscope({"plan", out, place_.filePath("once"), "--to", "safetensors", "--json"})
                         .json()["replicas_not_compared"],
                     json(0));
    }

    void copiedFlatPiecesAreNoticed() {
        const QString path = copyOf("t2.15.0-verl-fsdp1-mesh-w2", "pieces");
        const QString second = path + "/optim_world_size_2_rank_1.pt";
        QVERIFY(QFile::remove(second));
        QVERIFY(QFile::copy(path + "/optim_world_size_2_rank_0.pt", second));
        const Outcome report = validate(path);
        QCOMPARE(report.exitCode, 1);
        QVERIFY(!findingOf(report.json(), "meta.inconsistent", "optim.state.").is_null());
    }

    // Random states differ by rank, and are kept so.
    void statesOfRanksAreKept() {
        const GenuineCase c = caseOf("t2.15.0-verl-hsdp-w4");
        const json digests = digestsOf(pathOf(c));
        for (const auto& [file, tensors] : c.expected["per_rank"].items()) {
            const std::string rank = file.substr(file.rfind('_') + 1, 1);
            for (const auto& [name, want] : tensors.items())
                QVERIFY(digests["extra_state.rank_" + rank + "." + name] == want["sha256"]);
        }
    }

    void flatParametersSayWhyTheyHaveNoNames() {
        const json report = validate(pathOf(caseOf("t2.15.0-fsdp1-local-flat-w2"))).json();
        COMPARE_JSON(findingOf(report, "layout.fused")["severity"], json("info"));
    }

    void namesOfScripts_data() {
        QTest::addColumn<QString>("name");
        for (const char* name :
             {"rank%1.ckpt", "shard_%1_of_4.pt", "state.%1.bin", "%1.pt", "fsdp-0%1.pth", "rank_%1/model.pt"})
            QTest::newRow(name) << name;
    }
    void namesOfScripts() {
        QFETCH(QString, name);
        const QString whole = pathOf(caseOf("t2.15.0-fsdp2-w4-few-rows"));
        QTemporaryDir place;
        for (int rank = 0; rank < 4; ++rank) {
            const QString copy = place.filePath(name.arg(rank));
            QVERIFY(QDir().mkpath(QFileInfo(copy).path()));
            QVERIFY(QFile::copy(QString("%1/rank%2.pt").arg(whole).arg(rank), copy));
        }
        const json digests = digestsOf(place.path());
        QVERIFY(!digests.is_null());
        COMPARE_JSON(digests, digestsOf(whole));
    }

    // ------------------------------------------------------------------ writing

    void writesWhatEachRankHolds_data() {
        QTest::addColumn<QString>("name");
        QTest::addColumn<QString>("mesh");
        QTest::addColumn<QString>("variant");
        QTest::addColumn<QString>("file");
        QTest::newRow("uneven") << "t2.15.0-verl-fsdp2-tp-w4"
                                << "fsdp=3"
                                << "verl"
                                << "model_world_size_3_rank_2.pt";
        QTest::newRow("replicas") << "t2.15.0-verl-fsdp2-tp-w4"
                                  << "ddp=2,fsdp=2"
                                  << "verl"
                                  << "optim_world_size_4_rank_3.pt";
        QTest::newRow("accelerate") << "t2.15.0-accelerate-perrank-w2"
                                    << "fsdp=4"
                                    << "accelerate"
                                    << "pytorch_model_fsdp_0_rank3.bin";
        QTest::newRow("dtypes") << "t2.15.0-dtensor-kinds-w4"
                                << "fsdp=2"
                                << "verl-cpu"
                                << "model_world_size_2_rank_1.pt";
    }
    void writesWhatEachRankHolds() {
        QFETCH(QString, name);
        QFETCH(QString, mesh);
        QFETCH(QString, variant);
        QFETCH(QString, file);
        const QString out = place_.filePath("written" + mesh + variant + name);
        const Outcome convert =
            runShardscope({"convert", pathOf(caseOf(name)), out, "--to", "torch-ranks", "--mesh", mesh,
                           "--variant", variant, "--verify", "full", "--json"});
        QVERIFY2(convert.exitCode == 0, (convert.err + convert.out).c_str());
        QVERIFY(QFile::exists(out + "/" + file));
        QCOMPARE(QFile::exists(out + "/fsdp_config.json"), variant.startsWith("verl"));
        std::set<std::string> lost;
        const json written = convert.json();
        for (const json& left : written["left_out"])
            lost.insert(left["name"].get<std::string>());
        const json before = digestsOf(pathOf(caseOf(name))), after = digestsOf(out);
        QVERIFY(!after.empty());
        for (const auto& [tensor, digest] : before.items()) {
            if (!lost.contains(tensor)) QVERIFY2(after.value(tensor, json()) == digest, tensor.c_str());
        }
        const Outcome report = validate(out);
        QVERIFY2(report.exitCode == 0, report.out.c_str());
        // Each rank of an axis that cuts nothing has its own copy.
        const json info = runShardscope({"info", out, "--json"}).json();
        COMPARE_JSON(info["format"], json("torch-ranks"));
        const json listing = runShardscope({"ls", out, "--chunks", "--json"}).json();
        for (const json& tensor : listing["tensors"]) {
            std::set<std::string> places;
            for (const json& chunk : tensor["chunks"])
                places.insert(boxOf(chunk));
            QCOMPARE(places.size(), tensor["chunks"].size());
        }
    }
    // What all ranks of the source share goes to each new one; without it the loaders find their file, too.
    void extraStateIsThatOfAllRanks() {
        const QString source = copyOf("t2.15.0-verl-fsdp2-tp-w4", "extra"),
                      out = place_.filePath("extra-out");
        const QStringList to{"--to", "torch-ranks", "--mesh", "fsdp=2", "--variant"};
        const auto objectsOf = [&](const QString& from, const QString& variant) {
            QDir(out).removeRecursively();
            const Outcome done = runShardscope(QStringList{"convert", from, out} + to + QStringList{variant});
            if (done.exitCode != 0) qFatal("%s", done.err.c_str());
            std::map<std::string, json> found;
            const json listing = runShardscope({"ls", out, "--objects", "--json"}).json();
            for (const json& object : listing["objects"])
                found[object["name"].get<std::string>()] = object["value"];
            return found;
        };
        const QString file = "/extra_state_world_size_2_rank_1.pt";
        auto found = objectsOf(source, "verl-cpu");
        COMPARE_JSON(found["extra_state.rank_1.lr_scheduler.base_lrs"], json::parse("[0.001]"));
        COMPARE_JSON(found["extra_state.rank_0.lr_scheduler._step_count"], json(1));
        for (const auto& [name, value] : found)
            QVERIFY2(name.find(".rng") == std::string::npos, name.c_str());
        objectsOf(source, "accelerate-cpu");
        QVERIFY(!QFile::exists(out + file));
        for (int rank = 0; rank < 4; ++rank)
            QVERIFY(QFile::remove(source + QStringLiteral("/extra_state_world_size_4_rank_%1.pt").arg(rank)));
        found = objectsOf(source, "verl-cpu");
        QVERIFY(QFile::exists(out + file));
        QVERIFY(found.contains("extra_state.rank_1.lr_scheduler"));
        COMPARE_JSON(found["extra_state.rank_1.lr_scheduler"], json());
    }
    void stagesAreRefused() {
        const Outcome plan = runShardscope({"plan", pathOf(caseOf("t2.15.0-verl-fsdp2-tp-w4")),
                                            place_.filePath("stages"), "--to", "torch-ranks", "--mesh",
                                            "pp=2", "--stage", "*embed*:pp=0", "--shard", "*:pp=0"});
        QCOMPARE(plan.exitCode, 5);
    }

    // ------------------------------------------------------------------ damage

    void replicasMayBeMissing() {
        const QString path = copyOf("t2.15.0-verl-hsdp-w4", "hsdp");
        QVERIFY(QFile::remove(path + "/model_world_size_4_rank_3.pt"));
        const Outcome report = validate(path, "files");
        QVERIFY2(report.exitCode == 0, report.out.c_str());
        COMPARE_JSON(findingOf(report.json(), "file.missing", "rank_3")["severity"], json("warning"));
    }
    void swappedFilesAreNoticed() {
        const QString path = copyOf("t2.15.0-accelerate-perrank-w2", "swapped");
        const QString a = path + "/pytorch_model_fsdp_0_rank0.bin",
                      b = path + "/pytorch_model_fsdp_0_rank1.bin";
        QVERIFY(QFile::rename(a, a + ".x") && QFile::rename(b, a) && QFile::rename(a + ".x", b));
        const Outcome report = validate(path, "files");
        QCOMPARE(report.exitCode, 1);
        QVERIFY(!findingOf(report.json(), "meta.inconsistent", "rank0.bin").is_null());
        // The bytes are right all the same: the files say whose parts they hold.
        const GenuineCase c = caseOf("t2.15.0-accelerate-perrank-w2");
        COMPARE_JSON(digestsOf(path)["lm_head.weight"], c.expected["tensors"]["lm_head.weight"]["sha256"]);
    }
    void anotherWorldCanBeChosen() {
        const GenuineCase c = caseOf("t2.15.0-bad-verl-mixed-worlds");
        const json ofFour = runShardscope({"info", pathOf(c), "--variant", "world=4", "--json"}).json();
        COMPARE_JSON(ofFour["totals"]["ranks"], json(4));
    }
    void variantsAreChecked() {
        const QString path = pathOf(caseOf("t2.15.0-bad-verl-mixed-worlds"));
        QCOMPARE(runShardscope({"info", path, "--variant", "world=3"}).exitCode, 3);
        QCOMPARE(runShardscope({"info", path, "--variant", "worlds"}).exitCode, 2);
    }
};

QTEST_GUILESS_MAIN(TorchRanksCliTest)
#include "torch_ranks_cli_test.moc"
