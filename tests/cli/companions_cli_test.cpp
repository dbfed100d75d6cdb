// What is beside the weights of a checkpoint: the state of optimizer, scheduler and random generators becomes
// part of it, and configuration and tokenizer go with weights that become safetensors.
#include <QDir>
#include <QTemporaryDir>
#include <QTest>
#include <set>

#include "cli/genuine_checks.h"

using namespace shardscope::test;
using nlohmann::json;

namespace {

GenuineCase rankCase(const QString& name) {
    return genuineCase("torch_ranks", name);
}

QByteArray contentsOf(const QString& path) {
    QFile file(path);
    return file.open(QIODevice::ReadOnly) ? file.readAll() : QByteArray();
}

json objectOf(const json& listing, const std::string& name) {
    for (const json& object : listing["objects"]) {
        if (object["name"] == name) return object;
    }
    return {};
}

}  // namespace

class CompanionsCliTest : public QObject {
    Q_OBJECT

    QTemporaryDir place_;
    QString trainer_ = QString::fromStdString(rankCase("t2.15.0-hf-trainer").path) + "/checkpoint-1";
    QString verl_ = QString::fromStdString(rankCase("t2.15.0-verl-hsdp-w4").openPath());

    QString copyOf(const QString& from, const QString& as) {
        copyTree(from, place_.filePath(as));
        return place_.filePath(as);
    }
    void write(const QString& path, const QByteArray& bytes) {
        QVERIFY(QDir().mkpath(QFileInfo(path).path()));
        QFile file(path);
        QVERIFY(file.open(QIODevice::WriteOnly) && file.write(bytes) == bytes.size());
    }

  private slots:
    void stateBesideTheWeightsIsPartOfTheCheckpoint() {
        const json listing = runShardscope({"ls", trainer_, "--json"}).json();
        std::set<std::string> roles;
        for (const json& tensor : listing["tensors"]) {
            if (tensor["name"].get<std::string>().starts_with("optimizer.pt:state."))
                roles.insert(tensor["role"].get<std::string>());
        }
        QVERIFY(roles == std::set<std::string>{"optimizer"});
        QVERIFY(!objectOf(listing, "scheduler.pt:last_epoch").is_null());
        const json state = objectOf(listing, "trainer_state.json");
        QVERIFY2(state.dump().find("global_step") != std::string::npos, state.dump().c_str());
        QCOMPARE(runShardscope({"validate", trainer_, "--json"}).json().value("verdict", ""),
                 std::string("safe"));
    }

    // A data class of transformers, with enumerations of its own: plain data, of which nothing is warned.
    // Readers that list what else is in their directory do not know of it.
    void itIsReferredTo() {
        const QString path =
            copyOf(QString::fromStdString(genuineCase("tensor_parallel", "vllm-tp2").path), "beside-ranks");
        QVERIFY(QFile::copy(trainer_ + "/optimizer.pt", path + "/optimizer.pt"));
        const json report = validate(path, "files").json();
        QVERIFY2(report.dump().find("file.unreferenced") == std::string::npos, report.dump().c_str());
    }
    void argumentsOfTheTrainerAreOneObject() {
        const json object = objectOf(runShardscope({"ls", trainer_, "--json"}).json(), "training_args.bin");
        QVERIFY2(object.dump().find("TrainingArguments") != std::string::npos, object.dump().c_str());
        QVERIFY(findingOf(validate(trainer_).json(), "security.global").is_null());
    }
    void randomStatesOfAccelerateAreObjects() {
        const QString path = QString::fromStdString(genuineCase("deepspeed", "accelerate_z2_bf16").path);
        const json listing = runShardscope({"ls", path, "--json"}).json();
        QVERIFY(!objectOf(listing, "random_states_0.pkl:random_state").is_null());
        COMPARE_JSON(validate(path).json()["verdict"], json("safe"));
    }
    // A run of verl: data.pt, the state of the data loader, is in the parent directory of the model.
    void aCompanionDoesNotStandForWhatIsBelow() {
        const QString run = place_.filePath("run");
        copyTree(verl_, run + "/global_step_10/actor");
        QVERIFY(QFile::copy(trainer_ + "/scheduler.pt", run + "/global_step_10/data.pt"));
        write(run + "/latest_checkpointed_iteration.txt", "10");
        COMPARE_JSON(digestsOf(run), digestsOf(verl_));
    }

    void weightsOnlyLeavesItBehind() {
        const QString to = place_.filePath("weights");
        QCOMPARE(runShardscope({"convert", trainer_, to, "--to", "dcp", "--weights-only"}).exitCode, 0);
        const json listing = runShardscope({"ls", to, "--json"}).json();
        for (const json& tensor : listing["tensors"])
            QVERIFY(!tensor["name"].get<std::string>().starts_with("optimizer.pt:"));
    }

    // Of every kind of state that is beside weights, or in the same files, nothing is a weight.
    void weightsOnlyIsParametersAndBuffers_data() {
        QTest::addColumn<QString>("name");
        QTest::addColumn<QString>("directory");
        for (const char* directory : {"trainer", "accelerate", "verl"})
            QTest::newRow(directory) << "weights-only-takes-state" << directory;
        QTest::newRow("without groups") << "optimizer-without-groups"
                                        << "ckpt";
    }
    void weightsOnlyIsParametersAndBuffers() {
        QFETCH(QString, name);
        QFETCH(QString, directory);
        const QString about = QStringLiteral(SHARDSCOPE_TEST_DATA "/field/") + name;
        const QString to = place_.filePath("only-" + directory);
        const Outcome run = runShardscope(
            {"convert", about + "/" + directory, to, "--to", "safetensors", "--weights-only", "--json"});
        QVERIFY2(run.exitCode == 0, (run.out + run.err).c_str());
        COMPARE_JSON(run.json()["left_out"], json::array());
        json truth;
        const json expected = json::parse(contentsOf(about + "/expected.json").toStdString());
        for (const auto& [tensor, facts] : expected["tensors"].items())
            if (!tensor.starts_with("optimizer.")) truth[tensor] = facts["sha256"];
        COMPARE_JSON(digestsOf(to), truth);
        const json totals = runShardscope({"info", about + "/" + directory, "--json"}).json()["totals"];
        const json weights = runShardscope({"info", to, "--json"}).json()["totals"];
        COMPARE_JSON(totals["parameters"], weights["parameters"]);
    }

    // State that cannot be read is lacking, but not of weights alone.
    void unreadableStateStopsAConversion() {
        const QString copy = copyOf(trainer_, "unreadable");
        QFile file(copy + "/optimizer.pt");
        QVERIFY(file.resize(file.size() / 2));
        const QString to = place_.filePath("of-unreadable");
        const Outcome refused = runShardscope({"convert", copy, to, "--to", "dcp", "--json"});
        QVERIFY2(refused.exitCode == 3, (refused.out + refused.err).c_str());
        QVERIFY(refused.out.find("optimizer.pt") != std::string::npos);
        QCOMPARE(runShardscope({"convert", copy, to, "--to", "dcp", "--weights-only"}).exitCode, 0);
    }

    void itIsConvertedBitForBit() {
        const QString to = place_.filePath("all");
        QCOMPARE(runShardscope({"convert", trainer_, to, "--to", "dcp"}).exitCode, 0);
        COMPARE_JSON(digestsOf(to), digestsOf(trainer_));
        const json listing = runShardscope({"ls", to, "--json"}).json();
        QVERIFY(!objectOf(listing, "scheduler.pt:last_epoch").is_null());
    }

    void aDamagedCompanionIsAFinding() {
        const QString copy = copyOf(trainer_, "damaged");
        QFile file(copy + "/optimizer.pt");
        QVERIFY(file.resize(file.size() / 2));
        const Outcome outcome = runShardscope({"validate", copy, "--json"});
        QCOMPARE(outcome.exitCode, 1);
        QVERIFY2(outcome.json()["findings"].dump().find("optimizer.pt") != std::string::npos,
                 outcome.out.c_str());
        write(copy + "/trainer_state.json", "{\"a\":");
        QVERIFY(runShardscope({"validate", copy, "--json"}).out.find("not valid JSON") != std::string::npos);
    }

    // Deeply nested JSON is cut, not followed.
    void jsonIsBounded() {
        const QString copy = copyOf(trainer_, "deep");
        write(copy + "/trainer_state.json", QByteArray(100'000, '[') + QByteArray(100'000, ']'));
        QCOMPARE(runShardscope({"info", copy}).exitCode, 0);
    }

    void modelAndOptimizerOfOneSaveAreOneCheckpoint() {
        const QString path = QString::fromStdString(rankCase("t2.15.0-accelerate-sharded-w2").path);
        const json info = runShardscope({"info", path, "--json"}).json();
        QVERIFY2(info.value("format", json()).dump().find("dcp") != std::string::npos, info.dump().c_str());
        const json listing = runShardscope({"ls", path, "--json"}).json();
        bool model = false, optimizer = false;
        for (const json& file : listing["files"]) {
            model = model || file["path"] == "pytorch_model_fsdp_0/__0_0.distcp";
            optimizer = optimizer || file["path"] == "optimizer_0/__1_0.distcp";
        }
        QVERIFY(model && optimizer);
        // A gap in one of them is found under its path.
        const QString copy = place_.filePath("pair");
        copyTree(path, copy);
        QVERIFY(QFile::remove(copy + "/optimizer_0/__1_0.distcp"));
        const std::string found = runShardscope({"validate", copy, "--json"}).out;
        QVERIFY2(found.find("optimizer_0/__1_0.distcp") != std::string::npos, found.c_str());
    }

    void assetsGoWithTheWeights_data() {
        QTest::addColumn<QStringList>("more");
        QTest::newRow("one process") << QStringList{};
        QTest::newRow("workers") << QStringList{"--on", "local:2"};
    }
    void assetsGoWithTheWeights() {
        QFETCH(QStringList, more);
        const QString source = copyOf(verl_, more.isEmpty() ? "verl" : "verl-workers");
        const QByteArray big(3'000'000, 'x');
        write(source + "/huggingface/config.json", "{\"model_type\": \"tiny\"}");
        write(source + "/huggingface/tokenizer.json", big);
        write(source + "/huggingface/modeling_evil.py", "print(1)");
        const QString to = source + "-out";
        const QStringList words{"convert", source, to, "--to", "safetensors", "--weights-only"};
        const json plan = runShardscope(words + QStringList{"--dry-run", "--json"}).json();
        COMPARE_JSON(plan["assets"]["files"], json({"config.json", "tokenizer.json"}));
        const Outcome done = runShardscope(words + more);
        QVERIFY2(done.exitCode == 0, done.err.c_str());
        QCOMPARE(contentsOf(to + "/config.json"), QByteArray("{\"model_type\": \"tiny\"}"));
        QVERIFY(contentsOf(to + "/tokenizer.json") == big);
        QVERIFY(!QFile::exists(to + "/modeling_evil.py"));
        QCOMPARE(runShardscope({"validate", to}).exitCode, 0);
    }

    void assetsAreChosen() {
        const QString source = copyOf(verl_, "chosen"), other = place_.filePath("other");
        write(source + "/huggingface/config.json", "{}");
        write(other + "/config.json", "{\"other\": 1}");
        const auto convert = [&](const QString& name, const QStringList& more) {
            return runShardscope(QStringList{"convert", source, place_.filePath(name), "--to", "safetensors",
                                             "--weights-only"} +
                                 more);
        };
        QCOMPARE(convert("none", {"--assets", "none"}).exitCode, 0);
        QVERIFY(!QFile::exists(place_.filePath("none/config.json")));
        QCOMPARE(convert("named", {"--assets", other}).exitCode, 0);
        QCOMPARE(contentsOf(place_.filePath("named/config.json")), QByteArray("{\"other\": 1}"));
        QCOMPARE(convert("absent", {"--assets", place_.filePath("nowhere")}).exitCode, 3);
        QCOMPARE(convert("empty", {"--assets", place_.path()}).exitCode, 2);
        QVERIFY(!QFile::exists(place_.filePath("empty")));
        QCOMPARE(runShardscope({"convert", source, place_.filePath("dcp"), "--to", "dcp", "--assets", other})
                     .exitCode,
                 2);
    }
};

QTEST_GUILESS_MAIN(CompanionsCliTest)
#include "companions_cli_test.moc"
