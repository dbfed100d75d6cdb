// Orbax checkpoints as one catalog: names, dtypes, boxes on devices and bytes, objects and items, and what is
// said of missing, truncated and changed files.
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

// The path that a user gives: the step where there is a run of them, a single file.
QString pathOf(const GenuineCase& c) {
    const QString path = QString::fromStdString(c.path);
    if (c.expected.contains("items")) {
        const std::string item = c.expected["items"].begin().value()["dir"];
        const size_t slash = item.find('/');
        return slash == item.npos ? path : path + "/" + QString::fromStdString(item.substr(0, slash));
    }
    const QStringList inside = QDir(path).entryList(QDir::AllEntries | QDir::NoDotAndDotDot);
    return inside.size() == 1 ? path + "/" + inside[0] : path;
}

QString pathOf(const QString& name) {
    return pathOf(caseOf(name));
}

// Dtypes without one of their own here have the same bytes in another.
std::string shownDtype(const std::string& dtype) {
    if (dtype == "int4") return "int8";
    if (dtype == "float8_e4m3b11fnuz") return "bits8";
    return dtype;
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
    void wholeCases_data() {
        QTest::addColumn<QString>("name");
        for (const GenuineCase& c : genuineCases("orbax")) {
            if (!c.damaged()) QTest::newRow(c.name.c_str()) << QString::fromStdString(c.name);
        }
    }
    void wholeCases() {
        QFETCH(QString, name);
        const GenuineCase c = caseOf(name);
        const json digests = digestsOf(pathOf(c));
        QCOMPARE(digests.size(), c.expected["tensors"].size());
        for (const auto& [tensor, want] : c.expected["tensors"].items()) {
            QVERIFY2(digests.contains(tensor), tensor.c_str());
            QVERIFY2(digests[tensor] == want["sha256"], tensor.c_str());
        }
        const json listing = runShardscope({"ls", pathOf(c), "--chunks", "--json"}).json();
        for (const json& tensor : listing["tensors"]) {
            const json& want = c.expected["tensors"][tensor["name"].get<std::string>()];
            COMPARE_JSON(tensor["dtype"], json(shownDtype(want["dtype"])));
            COMPARE_JSON(tensor["shape"], want["shape"]);
            if (c.expected["format"] != "orbax" || !want.contains("chunks") || name.startsWith("o0.2.7"))
                continue;
            // What a rank shows is in the shard of its device. A rank is the place of the device in the mesh,
            // which in these cases is that in the order of their ids.
            std::map<int, json> shards;
            for (const json& shard : want["chunks"])
                shards[shard["device"].get<int>()] = shard;
            std::vector<json> ranks;
            for (const auto& [device, shard] : shards)
                ranks.push_back(shard);
            std::set<int> seen;
            for (const json& chunk : tensor["chunks"]) {
                if (chunk["rank"].is_null()) continue;
                const int rank = chunk["rank"];
                seen.insert(rank);
                QVERIFY2(rank < static_cast<int>(ranks.size()), tensor.dump().c_str());
                for (size_t d = 0; d < chunk["offsets"].size(); ++d) {
                    const int64_t begin = chunk["offsets"][d], length = chunk["lengths"][d];
                    const int64_t shardBegin = ranks[rank]["offsets"][d],
                                  shardLength = ranks[rank]["lengths"][d];
                    QVERIFY2(shardBegin <= begin && begin + length <= shardBegin + shardLength,
                             tensor.dump().c_str());
                }
            }
            QCOMPARE(seen.size(), ranks.size());
        }
        const Outcome report = validate(pathOf(c));
        QVERIFY2(report.exitCode == 0, report.out.c_str());
    }

    void damagedCases_data() {
        QTest::addColumn<QString>("name");
        QTest::addColumn<QString>("rule");  // of a finding that speaks of `file`; empty: refused
        QTest::addColumn<QString>("file");
        const auto row = [](const char* name, const char* rule, const char* file) {
            QTest::newRow(name) << QString("o0.12.8-bad-") + name << QString(rule) << QString(file);
        };
        row("flipped-btree", "", "d/bfa320cf6774c8d28836b8af62e14317");
        row("flipped-manifest", "", "manifest.ocdbt");
        row("missing-array-dir", "file.missing", "layer.bias/.zarray");
        row("missing-chunk", "file.missing", "layer.kernel/1.0");
        row("missing-data-file", "file.missing", "ocdbt.process_0/d/025354a4beea2a5a5b604e1a602ed3fd");
        row("missing-manifest", "file.missing", "manifest.ocdbt");
        row("missing-metadata", "file.missing", "_METADATA");
        row("missing-process-dir", "file.missing", "ocdbt.process_1/");
        row("truncated-chunk", "meta.inconsistent", "layer.kernel/c/0/0");
        row("truncated-data-file", "file.truncated", "ocdbt.process_0/d/8440f71a6380711440e35b19e6bb9fee");
        row("uncommitted-tmp", "file.stale", "orbax-checkpoint-tmp");
    }
    void damagedCases() {
        QFETCH(QString, name);
        QFETCH(QString, rule);
        QFETCH(QString, file);
        // Nothing of it needs the values.
        const Outcome report = validate(pathOf(name), "files");
        if (rule.isEmpty()) {
            QCOMPARE(report.exitCode, 3);
            COMPARE_JSON(report.json()["rule"], json("integrity.crc"));
            QVERIFY(report.json()["file"].get<std::string>().ends_with(file.toStdString()));
            return;
        }
        QVERIFY2(!findingOf(report.json(), rule.toStdString(), file.toStdString()).is_null(),
                 report.out.c_str());
        // Restoring into a given tree needs no _METADATA where a database lists the arrays.
        QCOMPARE(report.exitCode, rule == "file.stale" || file == "_METADATA" ? 0 : 1);
    }
    void whatIsLeftIsRead() {
        for (const char* name : {"o0.12.8-bad-missing-manifest", "o0.12.8-bad-missing-metadata"}) {
            const GenuineCase c = caseOf(name);
            const json digests = digestsOf(pathOf(c));
            for (const auto& [tensor, want] : c.expected["tensors"].items())
                QVERIFY2(digests[tensor] == want["sha256"], tensor.c_str());
        }
    }

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

    void leavesThatAreNoArraysAreObjects() {
        const json all = runShardscope({"ls", pathOf("o0.12.8-tree-kinds"), "--objects", "--json"}).json();
        std::map<std::string, json> objects;
        for (const json& object : all["objects"])
            objects[object["name"]] = object["value"];
        const GenuineCase c = caseOf("o0.12.8-tree-kinds");
        for (const auto& [name, want] : c.expected["objects"].items())
            QVERIFY2(objects.contains(name) && objects[name] == want,
                     (name + ": " + objects[name].dump()).c_str());
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

    void convertsToSafetensors() {
        const QString out = place_.filePath("converted");
        const GenuineCase c = caseOf("o0.12.8-ocdbt-zarr3-mesh4x2");
        const Outcome convert =
            runShardscope({"convert", pathOf(c), out, "--to", "safetensors", "--verify", "full"});
        QVERIFY2(convert.exitCode == 0, convert.err.c_str());
        const json digests = digestsOf(out);
        for (const auto& [name, want] : c.expected["tensors"].items())
            QVERIFY2(digests[name] == want["sha256"], name.c_str());
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
