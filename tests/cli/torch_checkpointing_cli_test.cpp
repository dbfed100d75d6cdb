// torch_checkpointing's files of items and ranks as one checkpoint: objects, conversions, and what is said of
// missing, copied, truncated and contradicting files.
#include <QDir>
#include <QTemporaryDir>
#include <QTest>
#include <set>

#include "cli/genuine_checks.h"

using namespace shardscope::test;
using nlohmann::json;

namespace {

GenuineCase caseOf(const QString& name) {
    return genuineCase("torch_checkpointing", name);
}

QString pathOf(const QString& name) {
    return QString::fromStdString(caseOf(name).path);
}

void replaceIn(const QString& path, const QByteArray& from, const QByteArray& to) {
    QFile file(path);
    if (!file.open(QIODevice::ReadWrite)) qFatal("cannot open %s", qPrintable(path));
    QByteArray bytes = file.readAll();
    if (!bytes.contains(from)) qFatal("nothing to replace in %s", qPrintable(path));
    bytes.replace(from, to);
    file.seek(0);
    file.write(bytes);
    file.resize(bytes.size());
}

}  // namespace

class TorchCheckpointingCliTest : public QObject {
    Q_OBJECT

    QTemporaryDir place_;
    QString copyOf(const QString& name, const QString& as) {
        copyTree(pathOf(name), place_.filePath(as));
        return place_.filePath(as);
    }

  private slots:
    void whatItIs() {
        const json info = runShardscope({"info", pathOf("dp2tp2-torch"), "--json"}).json();
        COMPARE_JSON(info["format"], json("torch-checkpointing"));
        COMPARE_JSON(info["mesh"]["source"], json("declared"));
        COMPARE_JSON(info["mesh"]["axes"], json::parse(R"([{"name":"dp","size":2},{"name":"tp","size":2}])"));
        // The metadata file stands for its directory.
        const Outcome named = runShardscope({"info", pathOf("dp2tp2-torch") + "/metadata.pkl", "--json"});
        COMPARE_JSON(named.json()["format"], json("torch-checkpointing"));
    }

    void valuesOfPythonAreObjects() {
        const json all = runShardscope({"ls", pathOf("world1-mixed"), "--objects", "--json"}).json();
        std::set<std::string> names;
        for (const json& object : all["objects"])
            names.insert(object["name"].get<std::string>());
        for (const char* name : {"optimizer.param_groups", "rng", "extra.f", "meta.epoch"})
            QVERIFY2(names.contains(name), name);
        const json ranks = runShardscope({"ls", pathOf("no-resharder"), "--objects", "--json"}).json();
        names.clear();
        for (const json& object : ranks["objects"])
            names.insert(object["name"].get<std::string>());
        QVERIFY(names.contains("rng@0.seed") && names.contains("rng@1.seed"));
    }

    void writesItems() {
        const QString out = place_.filePath("items"), again = place_.filePath("again");
        const GenuineCase c = caseOf("dp2tp2-torch");
        const Outcome convert =
            runShardscope({"convert", pathOf("dp2tp2-torch"), out, "--to", "torch-checkpointing", "--mesh",
                           "dp=2,fsdp=3", "--verify", "full", "--json"});
        QVERIFY2(convert.exitCode == 0, (convert.err + convert.out).c_str());
        for (const char* file : {"metadata.pkl", "model_5.pt", "optimizer_0.pt", "step_3.pt"})
            QVERIFY2(QFile::exists(out + "/" + file), file);
        json digests = digestsOf(out);
        for (const auto& [name, want] : c.expected["tensors"].items())
            QVERIFY2(digests[name] == want["sha256"], name.c_str());
        Outcome report = validate(out);
        QVERIFY2(report.exitCode == 0, report.out.c_str());
        COMPARE_JSON(report.json()["verdict"], json("safe"));
        // As it is, on the ranks that it is on.
        const Outcome reshard = runShardscope({"reshard", out, again});
        QVERIFY2(reshard.exitCode == 0, reshard.err.c_str());
        digests = digestsOf(again);
        for (const auto& [name, want] : c.expected["tensors"].items())
            QVERIFY2(digests[name] == want["sha256"], name.c_str());
    }

    // ------------------------------------------------------------------ what is missing

    // Of an item without a resharder, which the metadata does not list.
    void missingFileOfAnUnlistedItemIsNamed() {
        const QString path = copyOf("dp2tp2-torch", "steps");
        QVERIFY(QFile::remove(path + "/step_1.pt"));
        const Outcome report = validate(path);
        COMPARE_JSON(findingOf(report.json(), "file.missing", "step_1.pt")["severity"], json("warning"));
        // One rank alone may save an item.
        for (const char* name : {"/step_2.pt", "/step_3.pt"})
            QVERIFY(QFile::remove(path + name));
        QVERIFY(findingOf(validate(path).json(), "file.missing").is_null());
    }
    void truncatedMetadataIsSaid() {
        const QString path = copyOf("dp2tp2-torch", "short");
        QFile file(path + "/metadata.pkl");
        QVERIFY(file.resize(file.size() - 100));
        const Outcome report = validate(path);
        QCOMPARE(report.exitCode, 1);
        QVERIFY(!findingOf(report.json(), "meta.inconsistent", "metadata.pkl").is_null());
        COMPARE_JSON(digestsOf(path)["model.l0.w"],
                     caseOf("dp2tp2-torch").expected["tensors"]["model.l0.w"]["sha256"]);
    }
    void truncatedFileIsNamed() {
        const QString path = copyOf("dp2tp2-torch", "cut");
        QFile file(path + "/model_2.pt");
        QVERIFY(file.resize(file.size() / 2));
        const Outcome cut = validate(path);
        QCOMPARE(cut.exitCode, 1);
        QVERIFY(!findingOf(cut.json(), "meta.inconsistent", "model_2.pt").is_null());
    }
    void unfinishedSaveIsSaid() {
        const QString path = copyOf("dp2tp2-torch", "tmp_step_5");
        COMPARE_JSON(findingOf(validate(path).json(), "file.stale", "not finished")["severity"],
                     json("warning"));
    }

    // ------------------------------------------------------------------ what contradicts

    void copiedFileIsNoticed() {
        const QString path = copyOf("dp2tp2-torch", "copied");
        QVERIFY(QFile::remove(path + "/model_3.pt"));
        QVERIFY(QFile::copy(path + "/model_0.pt", path + "/model_3.pt"));
        const Outcome report = validate(path);
        QCOMPARE(report.exitCode, 1);
        QVERIFY(!findingOf(report.json(), "meta.inconsistent", "model_3.pt").is_null());
        QVERIFY(!findingOf(report.json(), "coverage.gap").is_null());
    }
    void filesOfAnotherWorldAreLeftAside() {
        const QString path = copyOf("plain-differs", "stale");
        QVERIFY(QFile::copy(path + "/model_0.pt", path + "/model_2.pt"));
        COMPARE_JSON(findingOf(validate(path).json(), "file.stale", "model_2.pt")["severity"],
                     json("warning"));
    }
    void anotherDtypeIsAContradiction() {
        const QString path = copyOf("bad-missing-rank-file", "dtype");
        replaceIn(path + "/metadata.pkl", "torch.bfloat16", "torch.float16\n");
        const Outcome unknown = validate(path);
        QCOMPARE(unknown.exitCode, 1);
        QVERIFY(!findingOf(unknown.json(), "meta.inconsistent", "not known").is_null());
        const QString other = copyOf("bad-missing-rank-file", "dtype2");
        replaceIn(other + "/metadata.pkl", "torch.float32", "torch.float64");
        QVERIFY(!findingOf(validate(other).json(), "meta.inconsistent", "float64").is_null());
    }
    // They begin as archives do and end before the first name.
    void shortFilesAreRefused() {
        const QTemporaryDir directory;
        for (const char* name : {"model_0.pt", "extra_0.pt"}) {
            QFile file(directory.filePath(name));
            QVERIFY(file.open(QIODevice::WriteOnly) && file.write("PK\x03\x04 and no more", 17) == 17);
        }
        const Outcome outcome = runShardscope({"info", directory.path(), "--json"});
        QCOMPARE(outcome.exitCode, 3);
    }

    void pathsStayInTheDirectory_data() {
        QTest::addColumn<QByteArray>("path");
        QTest::newRow("absolute") << QByteArray("/tmp1_1.safetensors");
        QTest::newRow("parent") << QByteArray("../e1_1.safetensors");
    }
    void pathsStayInTheDirectory() {
        QFETCH(QByteArray, path);
        const QString copy = copyOf("bad-truncated-safetensors", "path" + QString::number(path.front()));
        replaceIn(copy + "/metadata.pkl", "model_1.safetensors", path);
        const Outcome info = runShardscope({"info", copy, "--json"});
        QCOMPARE(info.exitCode, 3);
        COMPARE_JSON(info.json()["code"], json("unsafe"));
    }
    void metadataNamesNoPythonObjects() {
        const QString copy = copyOf("plain-differs", "global");
        // A call in place of the version: GLOBAL "posix getcwd", EMPTY_TUPLE, REDUCE.
        QFile file(copy + "/metadata.pkl");
        QVERIFY(file.open(QIODevice::WriteOnly));
        file.write(QByteArrayLiteral("\x80\x02}(X\x08\x00\x00\x00metadatacposix\ngetcwd\n)Ru."));
        file.close();
        const Outcome info = runShardscope({"info", copy, "--json"});
        QCOMPARE(info.exitCode, 3);
        QVERIFY2(info.out.find("posix.getcwd") != std::string::npos, info.out.c_str());
    }
};

QTEST_GUILESS_MAIN(TorchCheckpointingCliTest)
#include "torch_checkpointing_cli_test.moc"
