// Nothing is called safe because it was not understood: data that a format does not account for, metadata
// that changes what bytes mean, detection by file names, parts of other ranks. And healthy companions spoil
// no verdict.
#include <QDir>
#include <QFile>
#include <QTemporaryDir>
#include <QTest>

#include "cli/run_shardscope.h"

using namespace shardscope::test;
using nlohmann::json;

namespace {

QString genuine(const QString& path) {
    return QStringLiteral(SHARDSCOPE_TEST_DATA "/genuine/") + path;
}

json expectedOf(const QString& name) {
    QFile file(genuine(name + "/expected.json"));
    if (!file.open(QIODevice::ReadOnly)) qFatal("no expected.json of %s", qPrintable(name));
    return json::parse(file.readAll().toStdString());
}

json findingOf(const Outcome& validate, const std::string& rule) {
    const json document = validate.json();
    if (!document.is_object() || !document.contains("findings")) return {};
    for (const json& finding : document["findings"]) {
        if (finding["rule"] == rule) return finding;
    }
    return {};
}

void copyInto(const QString& from, const QString& to) {
    QVERIFY(QDir().mkpath(to));
    for (const QString& name : QDir(from).entryList(QDir::Files | QDir::Hidden))
        QVERIFY2(QFile::copy(from + "/" + name, to + "/" + name), qPrintable(name));
}

void write(const QString& path, const QByteArray& bytes) {
    QFile file(path);
    QVERIFY(file.open(QIODevice::WriteOnly));
    QCOMPARE(file.write(bytes), bytes.size());
}

Outcome validate(const QString& path, const QString& level = "files") {
    return runShardscope({"validate", path, "--level", level, "--json"});
}

const QString kSample = QStringLiteral(SHARDSCOPE_SAMPLE);

}  // namespace

class SafetyCliTest : public QObject {
    Q_OBJECT

    QTemporaryDir place_;
    QString sampleCopy(const QString& name) {
        const QString path = place_.filePath(name);
        copyInto(kSample, path);
        return path;
    }

  private slots:
    // Megatron-Core 0.6 to 0.15 stores flattened ranges under reformulated shapes; read as plain boxes,
    // tensors that are cut along another dimension than the first come out in a wrong order.
    void flattenedRangesAreReadAsSuch_data() {
        QTest::addColumn<QString>("name");
        QTest::newRow("tp2 dp2") << "megatron/m0.12.3-optim-flat-tp2dp2";
        QTest::newRow("pp2 dp2") << "megatron/m0.15.3-optim-flat-pp2dp2";
        QTest::newRow("by hand") << "megatron/m0.12.3-hand-flat";
        QTest::newRow("not flattened") << "megatron/m0.16.1-gpt-tp2-llama";
    }
    void flattenedRangesAreReadAsSuch() {
        QFETCH(QString, name);
        const json expected = expectedOf(name);
        QString path = genuine(name + "/ckpt");
        const QStringList steps = QDir(path).entryList({"iter_*"}, QDir::Dirs);
        if (!steps.isEmpty()) path += "/" + steps.first();
        const Outcome digest = runShardscope({"digest", path, "--algorithm", "sha256", "--json"});
        QVERIFY2(digest.exitCode == 0, (digest.out + digest.err).c_str());
        const json listing = runShardscope({"ls", path, "--json"}).json();
        std::map<std::string, json> shapes;
        for (const json& tensor : listing["tensors"])
            shapes[tensor["name"]] = tensor["shape"];
        for (const auto& [tensor, want] : expected["tensors"].items()) {
            QVERIFY2(digest.json()["tensors"].value(tensor, "") == want["sha256"], tensor.c_str());
            COMPARE_JSON(shapes[tensor], want["shape"]);
        }
        // The plans, enumerations and settings that Megatron keeps are data.
        const Outcome report = validate(path);
        QVERIFY2(report.exitCode == 0, report.out.c_str());
        COMPARE_JSON(report.json()["verdict"], json("safe"));
        COMPARE_JSON(findingOf(report, "security.global"), json());
    }
    void flattenedRangesConvert() {
        const QString path = genuine("megatron/m0.12.3-optim-flat-tp2dp2/ckpt/iter_0000010");
        for (const QString& format : {QStringLiteral("safetensors"), QStringLiteral("dcp")}) {
            const QString out = place_.filePath("flat-" + format);
            const Outcome convert = runShardscope({"convert", path, out, "--to", format});
            QVERIFY2(convert.exitCode == 0, (convert.out + convert.err).c_str());
            const json got = runShardscope({"digest", out, "--algorithm", "sha256", "--json"}).json();
            const json expected = expectedOf("megatron/m0.12.3-optim-flat-tp2dp2");
            QCOMPARE(expected["tensors"].size(), size_t{48});
            for (const auto& [tensor, want] : expected["tensors"].items())
                QVERIFY2(got["tensors"].value(tensor, "") == want["sha256"], tensor.c_str());
        }
    }

    // A shape that does not fit the stored one is an error, never a guess.
    void contradictoryShapesAreRefused() {
        const QString path = place_.filePath("contradictory");
        copyInto(genuine("megatron/m0.12.3-optim-flat-tp2dp2/ckpt/iter_0000010"), path);
        QFile file(path + "/.metadata");
        QVERIFY(file.open(QIODevice::ReadWrite));
        QByteArray bytes = file.readAll();
        const QByteArray word = "nd_reformulated_orig_global_shape";
        const qsizetype at = bytes.indexOf(word) + word.size();
        QVERIFY(at > word.size() && bytes[at + 1] == 'K');  // MEMOIZE, then BININT1
        bytes[at + 2] = static_cast<char>(bytes[at + 2] + 1);
        QVERIFY(file.seek(0));
        QCOMPARE(file.write(bytes), bytes.size());
        file.close();
        const Outcome info = runShardscope({"info", path, "--json"});
        QCOMPARE(info.exitCode, 3);
        COMPARE_JSON(info.json()["code"], json("damaged"));
        COMPARE_JSON(info.json()["rule"], json("meta.inconsistent"));
        QVERIFY(info.json()["tensor"].get<std::string>().starts_with("optimizer.state."));
    }

    // Arrays that are not a checkpoint of Megatron's.
    void zarrIsRefused() {
        const QString path = place_.filePath("zarr");
        const QString array = "/embedding.word_embeddings.weight";
        copyInto(genuine("megatron/m0.8.0-zarr-tp2pp2/ckpt" + array), path + array);
        const Outcome info = runShardscope({"info", path, "--json"});
        QCOMPARE(info.exitCode, 3);
        COMPARE_JSON(info.json()["code"], json("unsupported"));
        QVERIFY2(info.json()["message"].get<std::string>().find("zarr") != std::string::npos,
                 info.out.c_str());
    }

    // rank0.pt to rank3.pt of FSDP, not of OLMo.
    void rankFilesAreNotTakenForOlmo() {
        const QString path = genuine("torch_ranks/t2.15.0-fsdp2-w4-few-rows/ckpt");
        const Outcome info = runShardscope({"info", path, "--json"});
        QCOMPARE(info.exitCode, 0);
        COMPARE_JSON(info.json()["format"], json("torch-ranks"));
    }
    void oneRankFileLacksTheOtherRanks() {
        const Outcome report = validate(genuine("torch_ranks/t2.15.0-fsdp2-w4-few-rows/ckpt/rank0.pt"));
        QCOMPARE(report.exitCode, 1);
        COMPARE_JSON(report.json()["verdict"], json("unsafe"));
        COMPARE_JSON(findingOf(report, "rank.missing")["severity"], json("error"));
    }

    void healthyCompanionsAreSafe() {
        const QString path = sampleCopy("companions");
        const QString objects = genuine("torch_save/t2.15.0-nested/ckpt");
        const QString file = objects + "/" + QDir(objects).entryList(QDir::Files).first();
        for (const char* name :
             {"common.pt", "meta.pt", "scheduler.pt", "rng_state_0.pth", "training_args.bin"})
            QVERIFY2(QFile::copy(file, path + "/" + name), name);
        for (const char* name :
             {"metadata.json", "config.json", "tokenizer.json", "trainer_state.json", "README.md"})
            write(path + "/" + name, "{}");
        write(path + "/tokenizer.model", QByteArray(3 << 20, 't'));
        const Outcome report = validate(path);
        QVERIFY2(report.exitCode == 0, report.out.c_str());
        COMPARE_JSON(report.json()["verdict"], json("safe"));
    }
    void unknownDataIsNamed() {
        const QString path = sampleCopy("unknown");
        write(path + "/weights.part", QByteArray(2 << 20, 'x'));
        const Outcome report = validate(path, "metadata");
        QCOMPARE(report.exitCode, 1);  // the larger share
        const json finding = findingOf(report, "file.unreferenced");
        COMPARE_JSON(finding["severity"], json("error"));
        QVERIFY(finding["examples"][0]["file"] == "weights.part");
        // The same as a smaller share.
        write(path + "/weights.part", {});
        write(path + "/small.bin", "xxxxxxxx");
        const Outcome small = validate(path, "metadata");
        COMPARE_JSON(small.json()["verdict"], json("care"));
        COMPARE_JSON(findingOf(small, "file.unreferenced")["severity"], json("warning"));
    }
    // Hugging Face directories often hold the same model twice.
    void otherFormatsAreANote() {
        const QString path = sampleCopy("twice");
        const Outcome convert =
            runShardscope({"convert", kSample, path + "/model.safetensors", "--to", "safetensors"});
        QVERIFY2(convert.exitCode == 0, convert.err.c_str());
        const Outcome report = validate(path);
        COMPARE_JSON(report.json()["verdict"], json("safe"));
        COMPARE_JSON(findingOf(report, "file.unreferenced")["severity"], json("info"));
        const json info = runShardscope({"info", path, "--json"}).json();
        COMPARE_JSON(info["format"], json("dcp"));
        QVERIFY(info["notes"].dump().find("model.safetensors") != std::string::npos);
    }
    void modelsInFormatsThatAreNotReadAreANote() {
        const QString path = sampleCopy("onnx");
        write(path + "/model.onnx", QByteArray(2 << 20, 'x'));
        const Outcome report = validate(path);
        COMPARE_JSON(report.json()["verdict"], json("safe"));
        COMPARE_JSON(findingOf(report, "file.unreferenced")["severity"], json("info"));
    }
    // Whatever the reason why the bytes of a tensor cannot be read, and whatever it could be called
    // elsewhere.
    void elementsThatCannotBeReadAreAnError_data() {
        QTest::addColumn<int>("at");  // in the end record of a zip (APPNOTE.TXT, 4.3.16)
        QTest::newRow("split over several files") << 4;
        QTest::newRow("no directory") << 12;
        QTest::newRow("another place") << 17;
    }
    void elementsThatCannotBeReadAreAnError() {
        QFETCH(int, at);
        const QString copy = place_.filePath(QString::fromUtf8(QTest::currentDataTag()));
        copyInto(genuine("dcp/t2.15.0-no-dist/ckpt"), copy);
        QFile file(copy + "/__0_0.distcp");
        QVERIFY(file.open(QIODevice::ReadWrite));
        QByteArray bytes = file.readAll();
        int archives = 0;  // each entry has one of its own
        for (qsizetype end = 0; (end = bytes.indexOf("PK\5\6", end)) >= 0; end += 4, ++archives)
            bytes[end + at] = static_cast<char>(bytes[end + at] ^ 0x40);
        QVERIFY(archives > 0);
        QVERIFY(file.seek(0) && file.write(bytes) == bytes.size());
        file.close();
        QVERIFY(runShardscope({"digest", copy}).exitCode != 0);
        for (const char* level : {"files", "values"}) {
            const Outcome judged = validate(copy, level);
            QCOMPARE(judged.exitCode, 1);
            COMPARE_JSON(judged.json()["verdict"], json("unsafe"));
        }
    }

    void noTensorsAreNotSafe() {
        const QString path = place_.filePath("empty.safetensors");
        write(path, QByteArray("\x02\0\0\0\0\0\0\0{}", 10));
        const Outcome report = validate(path);
        COMPARE_JSON(report.json()["verdict"], json("care"));
        COMPARE_JSON(findingOf(report, "meta.empty")["severity"], json("warning"));
    }
};

QTEST_GUILESS_MAIN(SafetyCliTest)
#include "safety_cli_test.moc"
