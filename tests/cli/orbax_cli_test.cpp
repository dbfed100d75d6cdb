// Orbax checkpoints as one catalog: items, conversions, and what is said of missing and truncated files.
#include <QDir>
#include <QTemporaryDir>
#include <QTest>
#include <set>

#include "cli/genuine_checks.h"
#include "cli/state_file.h"

using namespace shardscope::test;
using nlohmann::json;

namespace {

GenuineCase caseOf(const QString& name) {
    return genuineCase("orbax", name);
}

QString pathOf(const GenuineCase& c) {
    return QString::fromStdString(c.openPath());
}

QString pathOf(const QString& name) {
    return pathOf(caseOf(name));
}

void cutFile(const QString& path, qint64 bytes) {
    QFile file(path);
    if (!file.resize(file.size() - bytes)) qFatal("cannot cut %s", qPrintable(path));
}

}  // namespace

class OrbaxCliTest : public QObject {
    Q_OBJECT

    QTemporaryDir place_;
    QString copyOf(const QString& name, const QString& as) {
        copyTree(pathOf(name), place_.filePath(as));
        return place_.filePath(as);
    }

  private slots:
    void whatItIs() {
        const json info = runShardscope({"info", pathOf("o0.12.8-procs2"), "--json"}).json();
        COMPARE_JSON(info["format"], json("orbax"));
        COMPARE_JSON(info["mesh"]["source"], json("declared"));
        COMPARE_JSON(info["mesh"]["axes"],
                     json::parse(R"([{"name":"fsdp","size":2},{"name":"tp","size":2}])"));
        // A file of metadata stands for its directory.
        const Outcome named = runShardscope({"info", pathOf("o0.12.8-procs2") + "/manifest.ocdbt", "--json"});
        COMPARE_JSON(named.json()["format"], json("orbax"));
    }

    void itemsOfAStepAreOneCheckpoint() {
        const GenuineCase c = caseOf("o0.12.8-manager-items");
        const json all = runShardscope({"ls", pathOf(c), "--objects", "--json"}).json();
        for (const json& object : all["objects"]) {
            const json& item = c.expected["items"][object["name"].get<std::string>()];
            COMPARE_JSON(object["value"], item["value"]);
        }
        QCOMPARE(all["objects"].size(), size_t{2});
        // Without an item that the step names.
        const QString path = copyOf("o0.12.8-manager-items", "without-item");
        QVERIFY(QDir(path + "/opt").removeRecursively());
        const Outcome report = validate(path, "files");
        QCOMPARE(report.exitCode, 1);
        QVERIFY(!findingOf(report.json(), "file.missing", "opt").is_null());
    }

    void unfinishedSavesAreNoSteps() {
        const QString run = place_.filePath("run");
        copyTree(pathOf("o0.12.8-tree-kinds"), run + "/step_3");
        copyTree(pathOf("o0.12.8-bad-uncommitted-tmp"), run + "/step_7.orbax-checkpoint-tmp-12");
        const Outcome info = runShardscope({"info", run, "--json"});
        QVERIFY2(info.exitCode == 0, info.out.c_str());
        QVERIFY2(info.out.find("tmp-12") == std::string::npos, info.out.c_str());
    }

    // A rank that holds a replica shows it, and it is read once.
    void replicasAreReadOnce() {
        const Outcome report = validate(pathOf("o0.12.8-procs2"));
        QVERIFY(findingOf(report.json(), "replica.differs").is_null());
        COMPARE_JSON(report.json()["verdict"], json("safe"));
        std::string unchecked = report.json()["not_checked"].dump();
        QVERIFY2(unchecked.find("stored checksums") != std::string::npos, unchecked.c_str());
    }

    // What is unpacked counts as what was read for it, whatever reads it, and how often.
    void bytesThatAreReadAreThoseStored() {
        const QString path = pathOf("o0.12.8-ocdbt-zarr2-mesh4x2");
        uint64_t stored = 0, plain = 0;
        std::set<std::string> seen;
        const json listing = runShardscope({"ls", path, "--chunks", "--json"}).json();
        for (const json& tensor : listing["tensors"]) {
            plain += tensor["bytes"].get<uint64_t>();
            for (const json& chunk : tensor["chunks"]) {
                const std::string place = chunk["file"].get<std::string>() + ' ' + chunk["offset"].dump() +
                                          tensor["name"].dump() + chunk["offsets"].dump();
                if (seen.insert(place).second) stored += chunk["length"].get<uint64_t>();
            }
        }
        const Outcome convert =
            runShardscope({"convert", path, place_.filePath("counted"), "--to", "safetensors", "--json"});
        QVERIFY2(convert.exitCode == 0, convert.err.c_str());
        const uint64_t read = convert.json()["bytes_read"];
        QVERIFY2(read <= stored && read + 64 >= stored,
                 std::to_string(read).append(" of ").append(std::to_string(stored)).c_str());
        QVERIFY(plain != stored);
    }

    // Flax cuts arrays of 2^30 bytes and more into several.
    void chunkedArraysOfFlax() {
        const auto text = [](const std::string& value) {
            return static_cast<char>(0xa0 + value.size()) + value;
        };
        const auto array = [&](int rows, const std::vector<float>& values) {
            const std::string data(reinterpret_cast<const char*>(values.data()), values.size() * 4);
            std::string inner = std::string("\x93\x91") + static_cast<char>(rows) + text("float32") + '\xc4' +
                                static_cast<char>(data.size()) + data;
            return std::string("\xc7") + static_cast<char>(inner.size()) + '\x01' + inner;
        };
        const std::string chunks = '\x82' + text("0") + array(4, {1, 2, 3, 4}) + text("1") + array(2, {5, 6});
        const std::string shape = '\x82' + text("0") + '\x02' + text("1") + '\x03';
        const std::string file = '\x81' + text("w") + '\x83' + text("__msgpack_chunked_array__") + '\xc3' +
                                 text("shape") + shape + text("chunks") + chunks;
        const QString path = place_.filePath("checkpoint_5");
        QFile out(path);
        QVERIFY(out.open(QFile::WriteOnly));
        out.write(file.data(), static_cast<qint64>(file.size()));
        out.close();
        const json shown = runShardscope({"show", path, "w", "--values", "--json"}).json();
        COMPARE_JSON(shown["tensor"]["shape"], json::parse("[2, 3]"));
        const QString converted = place_.filePath("from-flax");
        QCOMPARE(runShardscope({"convert", path, converted, "--to", "safetensors"}).exitCode, 0);
        const State state = readState(converted.toStdString());
        QVERIFY((state.at("w") == Array{{2, 3}, {1, 2, 3, 4, 5, 6}}));
        // Fewer elements than the shape has.
        QFile shorter(path);
        QVERIFY(shorter.open(QFile::ReadWrite));
        QVERIFY(shorter.seek(static_cast<qint64>(file.find(shape) + shape.size() - 1)));
        shorter.write("\x04");
        shorter.close();
        QCOMPARE(runShardscope({"info", path}).exitCode, 3);
    }

    // ------------------------------------------------------------------ damage that we make

    void truncatedMetadataIsSaid_data() {
        QTest::addColumn<QString>("name");
        QTest::addColumn<QString>("file");
        QTest::addColumn<QString>("rule");
        const auto row = [](const char* name, const char* file, const char* rule) {
            QTest::newRow(file) << QString(name) << QString(file) << QString(rule);
        };
        row("o0.12.8-tree-kinds", "_METADATA", "meta.inconsistent");
        row("o0.12.8-tree-kinds", "_sharding", "meta.inconsistent");
        row("o0.12.8-tree-kinds", "_strings.json", "meta.inconsistent");
        row("o0.2.7-files-aggregate", "checkpoint", "file.truncated");
        row("o0.2.7-files-aggregate", "opt.0/.zarray", "meta.inconsistent");
        row("o0.12.8-procs2-files-zarr3", "w/zarr.json", "meta.inconsistent");
    }
    void truncatedMetadataIsSaid() {
        QFETCH(QString, name);
        QFETCH(QString, file);
        QFETCH(QString, rule);
        const QString path = copyOf(name, "cut-" + QString(file).replace('/', '-'));
        cutFile(path + "/" + file, 5);
        const Outcome report = validate(path, "files");
        // Restoring does not need to know where arrays were.
        QCOMPARE(report.exitCode, file == "_sharding" ? 0 : 1);
        QVERIFY2(!findingOf(report.json(), rule.toStdString(), file.toStdString()).is_null(),
                 report.out.c_str());
    }

    void missingProcessDatabaseIsNamed() {
        const QString path = copyOf("o0.12.8-procs2", "process");
        QVERIFY(QDir(path + "/ocdbt.process_1").removeRecursively());
        const Outcome report = validate(path, "files");
        QCOMPARE(report.exitCode, 1);
        QVERIFY(!findingOf(report.json(), "file.missing", "ocdbt.process_1/d/").is_null());
    }
};

QTEST_GUILESS_MAIN(OrbaxCliTest)
#include "orbax_cli_test.moc"
