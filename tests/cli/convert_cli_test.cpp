// Conversions as a user runs them: between all formats and shardings, compared by digest; refusals; resume
// and overwrite.
#include <QDir>
#include <QDirIterator>
#include <QFile>
#include <QTemporaryDir>
#include <QTest>
#include <set>

#include <sys/stat.h>
#include <unistd.h>

#include "cli/run_shardscope.h"
#include "support/genuine.h"

using namespace shardscope::test;
using nlohmann::json;

namespace {

QString genuine(const char* family, const char* name) {
    return QStringLiteral(SHARDSCOPE_TEST_DATA "/genuine/%1/%2/ckpt").arg(family, name);
}

json digests(const QString& path) {
    const Outcome digest = runShardscope({"digest", path, "--algorithm", "sha256", "--json"});
    if (digest.exitCode != 0) qWarning("%s%s", digest.out.c_str(), digest.err.c_str());
    return digest.json().value("tensors", json::object());
}

QString field(const char* name) {
    return QStringLiteral(SHARDSCOPE_TEST_DATA "/field/") + name;
}

json jsonIn(const QString& path) {
    QFile file(path);
    if (!file.open(QIODevice::ReadOnly)) qFatal("cannot read %s", qPrintable(path));
    return json::parse(file.readAll().toStdString());
}

// What a case of the field says of its tensors, by name.
json truthOf(const char* name) {
    json truth;
    const json all = jsonIn(field(name) + "/expected.json")["tensors"];
    for (const auto& [tensor, about] : all.items())
        truth[tensor] = about["sha256"];
    return truth;
}

// A copy of a torch.save file of which one byte of the first storage was altered.
void alterOneByte(const QString& from, const QString& to) {
    QFile file(from);
    if (!file.open(QIODevice::ReadOnly)) qFatal("cannot read %s", qPrintable(from));
    QByteArray bytes = file.readAll();
    const qsizetype name = bytes.indexOf("/data/0");
    const qsizetype header = bytes.lastIndexOf("PK\x03\x04", name);
    const auto number = [&](qsizetype at) {
        return static_cast<uint8_t>(bytes[at]) + 256 * static_cast<uint8_t>(bytes[at + 1]);
    };
    const qsizetype data = header + 30 + number(header + 26) + number(header + 28);
    bytes[data + 3] = static_cast<char>(bytes[data + 3] ^ 1);
    QFile copy(to);
    if (!copy.open(QIODevice::WriteOnly) || copy.write(bytes) != bytes.size())
        qFatal("cannot write %s", qPrintable(to));
}

QByteArray bytesOf(const QString& path) {
    QFile file(path);
    return file.open(QIODevice::ReadOnly) ? file.readAll() : QByteArray();
}

void put(const QString& path, const QByteArray& bytes) {
    QFile file(path);
    if (!file.open(QIODevice::WriteOnly) || file.write(bytes) != bytes.size())
        qFatal("cannot write %s", qPrintable(path));
}

}  // namespace

class ConvertCliTest : public QObject {
    Q_OBJECT

  private slots:
    // Entries that are unpacked have records at the same offsets, each with a checksum of its own.
    void recordsOfCompressedEntries() {
        QTemporaryDir directory;
        const Outcome run =
            runShardscope({"convert", genuine("dcp", "t2.15.0-zstd"), directory.filePath("out"), "--to",
                           "safetensors", "--threads", "1", "--json"});
        QVERIFY2(run.exitCode == 0, (run.out + run.err).c_str());
        COMPARE_JSON(run.json()["checksums"]["checked"], json(7));  // one for each chunk
    }

    void thereAndBack_data() {
        QTest::addColumn<QString>("source");
        QTest::addColumn<QString>("format");
        QTest::addColumn<QStringList>("options");
        struct Way {
            const char* name;
            const char* format;
            QStringList options;
        };
        const std::vector<Way> ways{
            {"safetensors", "safetensors", {}},
            {"safetensors in small files", "safetensors", {"--max-file-size", "1KiB"}},
            {"torch", "torch", {}},
            {"dcp", "dcp", {}},
            {"dcp tp=2,dp=3",
             "dcp",
             {"--mesh", "tp=2,dp=3", "--shard", "*weight:tp=0,dp=1", "--shard", "*:dp=0"}},
            {"dcp even", "dcp", {"--mesh", "x=4", "--shard", "*:x=-1", "--split", "even"}},
            {"paddle", "paddle", {}},
            {"paddle 3.0 tp=2,dp=3",
             "paddle",
             {"--variant", "3.0", "--mesh", "tp=2,dp=3", "--shard", "*weight:tp=0,dp=1", "--shard", "*:dp=0",
              "--split", "paddle"}},
        };
        for (const auto& [family, name] : {std::pair{"dcp", "t2.15.0-standard"},
                                           std::pair{"dcp", "t2.1.2-standard"},
                                           std::pair{"dcp", "t2.6.0-fsdp1"},
                                           std::pair{"dcp", "t2.15.0-zstd"},
                                           std::pair{"dcp", "t2.15.0-noncontig-shard"},
                                           std::pair{"dcp", "t2.15.0-no-dist"},
                                           std::pair{"dcp", "t2.15.0-no-collectives"},
                                           std::pair{"dcp", "t2.15.0-hf-sharded"},
                                           std::pair{"torch_save", "t2.15.0-views"},
                                           std::pair{"torch_save", "t2.15.0-dtypes"},
                                           std::pair{"torch_save", "t1.13.1-legacy"},
                                           std::pair{"torch_save", "t2.15.0-conj-neg"},
                                           std::pair{"torch_save", "t2.15.0-nested"},
                                           std::pair{"torch_save", "t2.15.0-optimizer"},
                                           std::pair{"torch_save", "t2.15.0-tied"},
                                           std::pair{"safetensors", "dtypes"},
                                           std::pair{"safetensors", "hf-sharded"},
                                           std::pair{"safetensors", "shapes"},
                                           std::pair{"paddle_dist", "v262_w2_1d"},
                                           std::pair{"paddle_dist", "v300_w4_2d_nested"},
                                           std::pair{"paddle_dist", "v322_safetensors"},
                                           std::pair{"paddle_dist", "v331_flat_tp2_w4"},
                                           std::pair{"paddle_dist", "v331_save_replicas"},
                                           std::pair{"paddle_dist", "v331_w1_dtypes"},
                                           std::pair{"paddle_dist", "save_v331_bigsplit_p2"},
                                           std::pair{"paddle_hybrid", "dp_fp32"},
                                           std::pair{"paddle_hybrid", "mp2_pp2_stage1v2"},
                                           std::pair{"paddle_hybrid", "stage3"}}) {
            for (const Way& way : ways) {
                QTest::newRow((std::string(family) + "/" + name + " to " + way.name).c_str())
                    << genuine(family, name) << QString(way.format) << way.options;
            }
        }
    }
    void thereAndBack() {
        QFETCH(QString, source);
        QFETCH(QString, format);
        QFETCH(QStringList, options);
        QTemporaryDir directory;
        const QString target = directory.filePath(format == "torch" ? "out.pt" : "out");
        const QStringList words = QStringList{source, target, "--to", format} + options;
        const Outcome plan = runShardscope(QStringList{"plan"} + words + QStringList{"--json"});
        QVERIFY2(plan.exitCode == 0, (plan.out + plan.err).c_str());
        QVERIFY(!QFile::exists(target));
        const Outcome run = runShardscope(QStringList{"convert"} + words + QStringList{"--json"});
        QVERIFY2(run.exitCode == 0, (run.out + run.err).c_str());
        const json report = run.json();
        COMPARE_JSON(report["schema"], json("shardscope.report/1"));
        COMPARE_JSON(report["plan"]["bytes_written"], plan.json()["bytes_written"]);
        COMPARE_JSON(report["verified"], json(true));
        QCOMPARE(
            QDir(directory.path()).entryList(QDir::AllEntries | QDir::Hidden | QDir::NoDotAndDotDot).size(),
            1);

        // Everything that the plan did not leave out is there, with the same bytes.
        json before = digests(source);
        const json after = digests(target);
        std::set<std::string> left;
        for (const json& entry : report["left_out"])
            left.insert(entry["name"].get<std::string>());
        std::set<std::string> aliases;
        for (const json& entry : report["plan"]["changed"])
            aliases.insert(entry["name"].get<std::string>());
        size_t compared = 0;
        for (const auto& [name, hex] : before.items()) {
            const std::string whole = name.substr(0, name.find('#'));
            if (left.contains(name) || (whole != name && left.contains(whole)) || aliases.contains(name))
                continue;
            QVERIFY2(after.contains(name), ("lost without a word: " + name).c_str());
            QVERIFY2(after[name] == hex, name.c_str());
            ++compared;
        }
        QVERIFY(compared > 0 || before.empty());
        const Outcome validation = runShardscope({"validate", target, "--level", "values", "--json"});
        const json verdict = validation.json();
        for (const json& finding : verdict["findings"]) {
            QVERIFY2(finding["severity"] != "error" || finding["rule"] == "value.nan" ||
                         finding["rule"] == "value.inf",
                     finding.dump().c_str());
        }
    }

    void existingDestinationIsKept() {
        QTemporaryDir directory;
        const QString target = directory.filePath("out");
        const QStringList words{"convert", genuine("dcp", "t2.15.0-fsdp2-adam"), target, "--to",
                                "safetensors"};
        QCOMPARE(runShardscope(words).exitCode, 0);
        const json before = digests(target);
        const Outcome again = runShardscope(words + QStringList{"--json"});
        QCOMPARE(again.exitCode, 4);
        COMPARE_JSON(again.json()["code"], json("exists"));
        COMPARE_JSON(digests(target), before);
        QCOMPARE(runShardscope(QStringList{"convert", genuine("dcp", "t2.6.0-fsdp2-model"), target, "--to",
                                           "safetensors", "--overwrite"})
                     .exitCode,
                 0);
        QVERIFY(digests(target) != before);
        QCOMPARE(
            QDir(directory.path()).entryList(QDir::AllEntries | QDir::Hidden | QDir::NoDotAndDotDot).size(),
            1);
    }

    // Found before the work, as it could not be put in place.
    void destinationsThatCannotBeReplaced() {
        QTemporaryDir directory;
        const QString source = genuine("dcp", "t2.15.0-no-dist"), link = directory.filePath("link");
        QVERIFY(QFile::link(directory.filePath("nowhere"), link));
        for (const QString& to : {directory.path() + "/.", directory.path() + "/a/..", QStringLiteral("/")})
            QCOMPARE(runShardscope({"convert", source, to, "--to", "dcp", "--overwrite"}).exitCode, 2);
        for (const QStringList& more : {QStringList(), QStringList{"--overwrite"}}) {
            const Outcome refused = runShardscope(QStringList{"convert", source, link, "--to", "dcp"} + more);
            QCOMPARE(refused.exitCode, 4);
            QVERIFY2(refused.err.find("leads nowhere") != std::string::npos, refused.err.c_str());
        }
        QCOMPARE(runShardscope({"plan", source, link, "--to", "dcp", "--map", "/dev/zero"}).exitCode, 3);
        QCOMPARE(QDir(directory.path())
                     .entryList(QDir::AllEntries | QDir::Hidden | QDir::System | QDir::NoDotAndDotDot),
                 QStringList{"link"});
    }

    // A report replaces nothing that nobody gave up, and never what it is about.
    void reportsAreBesideEverything() {
        QTemporaryDir directory;
        const auto at = [&](const char* name) { return directory.filePath(name); };
        const QString source = at("ck.safetensors"), out = at("out"), file = at("file.json");
        QCOMPARE(runShardscope({"convert", genuine("dcp", "t2.15.0-no-dist"), source, "--to", "safetensors"})
                     .exitCode,
                 0);
        const QByteArray before = bytesOf(source);
        const QStringList words{"convert", source, out, "--to", "dcp", "--report"};
        for (const QString& report : {out, out + "/.metadata", source})
            QVERIFY(runShardscope(words + QStringList{report}).exitCode != 0);
        put(file, "precious");
        QCOMPARE(runShardscope(words + QStringList{file}).exitCode, 4);
        QCOMPARE(runShardscope({"report", source, "-o", file}).exitCode, 4);
        QCOMPARE(bytesOf(file), QByteArray("precious"));
        QVERIFY(!QFile::exists(out));
        QCOMPARE(runShardscope(words + QStringList{at("report.json")}).exitCode, 0);
        for (const QString& report : {out, out + "/.metadata"})
            QCOMPARE(runShardscope(words + QStringList{report, "--overwrite"}).exitCode, 2);
        QCOMPARE(runShardscope(words + QStringList{file, "--overwrite"}).exitCode, 0);
        QCOMPARE(runShardscope({"report", source, "-o", file, "--overwrite"}).exitCode, 0);
        QVERIFY(bytesOf(file).contains("<html"));

        // Whatever stands at that name, links to the source among it.
        const QString link = at("link.html"), hard = at("hard.html");
        QVERIFY(QFile::link(source, link));
        QCOMPARE(::link(source.toUtf8().constData(), hard.toUtf8().constData()), 0);
        QVERIFY(runShardscope({"report", source, "-o", link, "--overwrite"}).exitCode != 0);
        QCOMPARE(runShardscope({"report", source, "-o", hard, "--overwrite"}).exitCode, 0);
        QCOMPARE(bytesOf(source), before);
        QCOMPARE(runShardscope({"report", source, "-o", "/dev/null"}).exitCode, 0);
    }

    // The destination does not appear without them; work that waits for them is done once.
    void objectsComeFirst() {
        QTemporaryDir directory;
        const QString out = directory.filePath("out"), objects = directory.filePath("o.pt");
        const QStringList words{
            "convert", genuine("dcp", "t2.15.0-objects"), out, "--to", "safetensors", "--objects", objects};
        QCOMPARE(runShardscope(words + QStringList{"--part", "0/1"}).exitCode, 0);
        put(objects, "precious");
        QCOMPARE(runShardscope(words + QStringList{"--finish"}).exitCode, 4);
        QVERIFY(!QFile::exists(out));
        QVERIFY(QFile::remove(objects));
        // As left by a process that was killed between the two.
        QStringList other = words;
        other[2] = directory.filePath("other");
        QCOMPARE(runShardscope(other).exitCode, 0);
        QCOMPARE(runShardscope(words + QStringList{"--finish"}).exitCode, 0);
        QVERIFY(QFile::exists(out));
        other[2] = out;
        other[6] = out + "/o.pt";
        QCOMPARE(runShardscope(other + QStringList{"--overwrite"}).exitCode, 2);
    }

    void neverIntoOrOverTheSource() {
        const QString source = genuine("dcp", "t2.15.0-fsdp2-adam");
        QCOMPARE(runShardscope({"convert", source, source, "--to", "dcp", "--overwrite"}).exitCode, 2);
        QCOMPARE(runShardscope({"convert", source, source + "/inner", "--to", "dcp"}).exitCode, 2);
    }

    void damagedSourcesAreRefused_data() {
        QTest::addColumn<QString>("name");
        QTest::addColumn<int>("exitCode");
        QTest::newRow("gap") << "t2.15.0-damaged-gap" << 5;
        QTest::newRow("overlap") << "t2.15.0-damaged-overlap" << 5;
        QTest::newRow("missing-file") << "t2.15.0-damaged-missing-file" << 3;
        QTest::newRow("truncated") << "t2.15.0-damaged-truncated-file" << 3;
        QTest::newRow("metadata") << "t2.15.0-damaged-metadata-truncated" << 3;
        QTest::newRow("zeroed") << "t2.15.0-damaged-zeroed-file" << 3;
        QTest::newRow("shape") << "t2.15.0-damaged-shape-mismatch" << 3;
    }
    void damagedSourcesAreRefused() {
        QFETCH(QString, name);
        QFETCH(int, exitCode);
        QTemporaryDir directory;
        const Outcome run = runShardscope({"convert", genuine("dcp", name.toUtf8()),
                                           directory.filePath("out"), "--to", "safetensors", "--json"});
        QVERIFY2(run.exitCode == exitCode, (run.out + run.err).c_str());
        QVERIFY(QDir(directory.path()).isEmpty(QDir::AllEntries | QDir::Hidden | QDir::NoDotAndDotDot));
    }

    // Tensors that an index names and no file holds.
    void whatIsLackingIsAnError_data() {
        QTest::addColumn<QString>("directory");
        QTest::addColumn<QString>("tensor");
        QTest::newRow("in another file") << "ckpt"
                                         << "lm_head.weight";
        QTest::newRow("nowhere") << "ckpt-nowhere"
                                 << "mtp.fc.weight";
    }
    void whatIsLackingIsAnError() {
        QFETCH(QString, directory);
        QFETCH(QString, tensor);
        const QString source = field("index-tensor-not-in-its-file") + "/" + directory;
        QTemporaryDir place;
        const QString out = place.filePath("out");
        for (const char* verb : {"convert", "plan", "reshard"}) {
            const Outcome run = runShardscope({verb, source, out, "--json"});
            QVERIFY2(run.exitCode == 3, (verb + run.out + run.err).c_str());
            COMPARE_JSON(run.json()["tensor"], json(tensor.toStdString()));
            QVERIFY(run.json()["hint"].get<std::string>().find("--skip-damaged") != std::string::npos);
            QVERIFY(!QFile::exists(out));
        }
        QCOMPARE(runShardscope({"plan", source, out, "--to", "dcp", "--exclude", tensor}).exitCode, 0);
        const Outcome rest = runShardscope(
            {"convert", source, out, "--to", "dcp", "--skip-damaged", "--report", place.filePath("r.json")});
        QVERIFY2(rest.exitCode == 0, rest.err.c_str());
        const json left = jsonIn(place.filePath("r.json"))["left_out"];
        QCOMPARE(left.size(), size_t{1});
        COMPARE_JSON(left[0]["name"], json(tensor.toStdString()));
        QCOMPARE(digests(out).size(), size_t{8});
        QCOMPARE(runShardscope({"plan", source, out, "--skip-damaged", "--strict", "--to", "dcp"}).exitCode,
                 5);
    }

    // A reshard that names a mesh and no rules cuts what the source cuts, and says so.
    void reshardedAsTheSource() {
        const QString source = QStringLiteral(SHARDSCOPE_TEST_DATA "/../../resources/sample/dcp-fsdp2-tp");
        QTemporaryDir place;
        const QString out = place.filePath("out"), same = place.filePath("same");
        const json plan =
            runShardscope({"reshard", source, out, "--mesh", "fsdp=1,tp=4", "--dry-run", "--json"}).json();
        QVERIFY2(plan["placement"].size() == 2, plan["placement"].dump().c_str());
        // What only fsdp cuts is whole then.
        QVERIFY(plan["whole_bytes"].get<uint64_t>() > 0);
        QVERIFY(plan["cut_bytes"].get<uint64_t>() > 0);
        QCOMPARE(runShardscope({"reshard", source, out, "--mesh", "fsdp=1,tp=4"}).exitCode, 0);
        COMPARE_JSON(digests(out), digests(source));
        const json tensor = runShardscope({"show", out, "model.fc2.weight", "--json"}).json();
        COMPARE_JSON(tensor["parts"], json::parse("[1, 4]"));
        // The same in words; other formats take them, too.
        QCOMPARE(runShardscope({"convert", source, same, "--to", "dcp", "--mesh", "tp=4", "--like", "source"})
                     .exitCode,
                 0);
        COMPARE_JSON(runShardscope({"show", same, "model.fc2.weight", "--json"}).json()["parts"],
                     tensor["parts"]);
        // Rules of one's own count; with too few of them much is whole, which is said.
        const Outcome few = runShardscope(
            {"plan", source, out + "2", "--to", "dcp", "--mesh", "tp=4", "--shard", "*.bias:tp=0"});
        QVERIFY2(few.out.find("warning") != std::string::npos &&
                     few.out.find("--like source") != std::string::npos,
                 few.out.c_str());
        QCOMPARE(runShardscope({"plan", source, out + "2", "--like", "source"}).exitCode, 2);
        QCOMPARE(runShardscope(
                     {"plan", source, out + "2", "--like", "source", "--mesh", "tp=4", "--rename", "a=b"})
                     .exitCode,
                 2);
    }

    // DTensors in one file: whole ones are tensors, a part of one is not.
    void distributedTensorsInOneFile() {
        const QString cases = field("dtensor-whole-in-one-file");
        QTemporaryDir place;
        for (const char* whole : {"one-rank", "replicated"}) {
            const QString out = place.filePath(whole);
            const Outcome run = runShardscope({"convert", cases + "/" + whole, out, "--to", "safetensors"});
            QVERIFY2(run.exitCode == 0, run.err.c_str());
            COMPARE_JSON(digests(out), truthOf("dtensor-whole-in-one-file"));
        }
        const QString out = place.filePath("half");
        for (const QStringList& more : {QStringList(), QStringList{"--skip-damaged"}}) {
            const Outcome run = runShardscope(
                QStringList{"convert", cases + "/half", out, "--to", "safetensors", "--json"} + more);
            QVERIFY2(run.exitCode == 3, (run.out + run.err).c_str());
            QVERIFY(run.json().dump().find("layers.0.w") != std::string::npos);
            QVERIFY(!QFile::exists(out));
        }
    }
    void whatIsNoPlainArrayIsAnError() {
        QTemporaryDir place;
        for (const char* name : {"t2.15.0-quantized", "t2.15.0-nested-tensor", "t2.15.0-sparse"}) {
            const Outcome run = runShardscope({"convert", genuine("torch_save", name), place.filePath(name),
                                               "--to", "safetensors", "--json"});
            QVERIFY2(run.exitCode == 3, (name + run.out + run.err).c_str());
        }
    }

    void storedChecksumsAreChecked() {
        QTemporaryDir place;
        const QString source = place.filePath("a.pt"), out = place.filePath("b.pt");
        const QDir whole(genuine("torch_save", "t2.1.2-state-dict"));
        alterOneByte(whole.filePath(whole.entryList(QDir::Files)[0]), source);
        const Outcome plan = runShardscope({"plan", source, out, "--to", "torch", "--json"});
        QVERIFY(plan.json()["checksums"].get<std::string>().find("checked") != std::string::npos);
        const QStringList convert{"convert", source, out, "--to", "torch", "--json"};
        for (const QStringList& more :
             {QStringList(), QStringList{"--resume"}, QStringList{"--dtype", "*.weight=float64"},
              QStringList{"--part", "0/2"}, QStringList{"--part", "0/2"}}) {
            const Outcome run = runShardscope(convert + more);
            QVERIFY2(run.exitCode == 3, (run.out + run.err).c_str());
            COMPARE_JSON(run.json()["rule"], json("integrity.crc"));
            QVERIFY(!QFile::exists(out));
        }
        QVERIFY(QDir(place.filePath(".b.pt.shardscope-partial")).removeRecursively());
        const Outcome listed =
            runShardscope(convert + QStringList{"--skip-damaged", "--report", place.filePath("r.json")});
        QVERIFY2(listed.exitCode == 0, (listed.out + listed.err).c_str());
        const json report = jsonIn(place.filePath("r.json"));
        QCOMPARE(report["findings"].size(), size_t{1});
        COMPARE_JSON(report["findings"][0]["rule"], json("integrity.crc"));
        COMPARE_JSON(report["checksums"]["unchecked"], json(0));
    }
    // Half of a record is read: nothing can be said of it.
    void checksumsThatWereNotCheckedAreCounted() {
        QTemporaryDir place;
        const QString source = genuine("torch_save", "t2.15.0-views");
        const Outcome run =
            runShardscope({"convert", source, place.filePath("out"), "--to", "safetensors", "--json"});
        QVERIFY2(run.exitCode == 0, (run.out + run.err).c_str());
        const json checksums = run.json()["checksums"];
        QVERIFY(checksums["unchecked"].get<int>() > 0);
        QVERIFY(checksums["text"].get<std::string>().starts_with("stored checksums were not checked"));
    }

    void resultsWithoutTensorsAreErrors() {
        QTemporaryDir place;
        const QString out = place.filePath("out"), source = genuine("dcp", "t2.15.0-no-dist");
        const Outcome run =
            runShardscope({"convert", source, out, "--to", "safetensors", "--exclude", "*", "--json"});
        QVERIFY2(run.exitCode == 3, (run.out + run.err).c_str());
        QVERIFY(run.out.find("left out are") != std::string::npos);
        QVERIFY(!QFile::exists(out));
    }

    void gapsAreFilledWhenAsked() {
        QTemporaryDir directory;
        const QString target = directory.filePath("out");
        const Outcome run = runShardscope({"convert", genuine("dcp", "t2.15.0-damaged-gap"), target, "--to",
                                           "safetensors", "--fill-gaps", "nan", "--json"});
        QVERIFY2(run.exitCode == 0, (run.out + run.err).c_str());
        const Outcome show = runShardscope({"show", target, "model.w", "--values", "--json"});
        COMPARE_JSON(show.json()["values"]["nan"], json(8));
    }

    // What was filled in is known from the record, in every format; a NaN of training beside it is none.
    void fillsAreToldByCoverage() {
        QTemporaryDir directory;
        const auto findings = [](const QStringList& words) {
            std::map<std::string, json> found;
            const json report =
                runShardscope(QStringList{"validate", "--level", "values", "--json"} + words).json();
            for (const json& finding : report["findings"])
                found[finding["rule"]] = finding;
            return found;
        };
        const QString source = genuine("dcp", "t2.15.0-damaged-gap");
        for (const char* format : {"dcp", "safetensors", "torch", "paddle", "olmo", "colossalai"}) {
            const QString target = directory.filePath(format);
            const Outcome run = runShardscope(
                {"convert", source, target, "--to", format, "--weights-only", "--fill-gaps", "nan"});
            QVERIFY2(run.exitCode == 0, (run.out + run.err).c_str());
            const auto found = findings({target});
            QVERIFY2(found.contains("value.fill") && !found.contains("value.nan") &&
                         !found.contains("file.unreferenced"),
                     format);
            const json& example = found.at("value.fill")["examples"][0];
            COMPARE_JSON(example["offsets"], (json{2, 0}));
            COMPARE_JSON(example["lengths"], (json{2, 4}));
        }
        // It goes along into the next conversion, under the new names.
        const QString next = directory.filePath("next"), last = directory.filePath("last.pt");
        for (const QStringList& words :
             {QStringList{directory.filePath("safetensors"), next, "--to", "dcp", "--rename", "^=moved."},
              {next, last, "--to", "torch"}}) {
            QCOMPARE(runShardscope(QStringList{"convert"} + words).exitCode, 0);
            const json fill = findings({words[1]}).at("value.fill");
            const json& example = fill["examples"][0];
            QVERIFY(example["tensor"].get<std::string>().starts_with("moved."));
            COMPARE_JSON(example["lengths"], (json{2, 4}));
        }
        QFile broken(next + "/shardscope.filled.json");
        QVERIFY(broken.open(QIODevice::WriteOnly) && broken.write("{") == 1);
        broken.close();
        QCOMPARE(runShardscope({"convert", next, directory.filePath("never"), "--to", "torch"}).exitCode, 3);
        // Without the record the checkpoint that it was made of tells the same.
        const QString dcp = directory.filePath("dcp");
        QVERIFY(QFile::remove(dcp + "/shardscope.filled.json"));
        const auto alone = findings({dcp});
        QVERIFY(alone.contains("value.nan") && !alone.contains("value.fill"));
        const auto beside = findings({dcp, "--expect", source});
        QVERIFY(beside.contains("value.fill") && !beside.contains("value.nan"));
        // A whole block of NaN that nobody filled in, on its own and against itself.
        const QString trained = genuine("dcp", "t2.15.0-damaged-nan-block");
        for (const QStringList& words : {QStringList{trained}, QStringList{trained, "--expect", trained}}) {
            const auto found = findings(words);
            QVERIFY(found.contains("value.nan") && !found.contains("value.fill"));
        }
        // Zeros are a warning; the record of a single file goes when the file is written anew without gaps.
        const QString file = directory.filePath("zero.safetensors");
        QCOMPARE(runShardscope({"convert", source, file, "--to", "safetensors", "--weights-only",
                                "--fill-gaps", "zero"})
                     .exitCode,
                 0);
        COMPARE_JSON(findings({file}).at("value.fill")["severity"], json("warning"));
        QCOMPARE(runShardscope({"convert", genuine("dcp", "t2.15.0-damage-base"), file, "--to", "safetensors",
                                "--weights-only", "--overwrite"})
                     .exitCode,
                 0);
        QVERIFY(!QFileInfo::exists(file + ".filled.json"));
        QVERIFY(!findings({file}).contains("value.fill"));
        // A record that is none is said to be unread.
        QFile record(file + ".filled.json");
        QVERIFY(record.open(QIODevice::WriteOnly) && record.write("{\"schema\":") > 0);
        record.close();
        const json report = runShardscope({"validate", file, "--level", "values", "--json"}).json();
        QVERIFY(report["not_checked"].dump().find("what a conversion filled in") != std::string::npos);
    }

    // A gap that a restore would leave is told by coverage, a NaN that was trained is a value like any other:
    // OLMo's own check sees no difference.
    void restoreGapsAndTrainedNaNs() {
        QTemporaryDir directory;
        const auto copyTo = [&](const QString& place) {
            const QString from = genuine("olmo", "local_w2");
            QDirIterator files(from, QDir::Files, QDirIterator::Subdirectories);
            while (files.hasNext()) {
                const QString to = place + files.next().mid(from.size());
                QDir().mkpath(QFileInfo(to).path());
                QVERIFY(QFile::copy(files.filePath(), to));
                QFile::setPermissions(to, QFileDevice::ReadOwner | QFileDevice::WriteOwner);
            }
        };
        const auto rulesOf = [](const QString& path) {
            std::set<std::string> rules;
            const json report = runShardscope({"validate", path, "--level", "values", "--json"}).json();
            for (const json& finding : report["findings"])
                rules.insert(finding["rule"]);
            return rules;
        };
        const QString whole = directory.filePath("whole"), gap = directory.filePath("gap"),
                      trained = directory.filePath("trained");
        for (const QString& place : {whole, gap, trained})
            copyTo(place);
        const auto sane = rulesOf(whole);
        QVERIFY(!sane.contains("coverage.gap") && !sane.contains("value.nan") &&
                !sane.contains("value.fill"));

        // Rank 1 is gone: a gap, and no NaN anywhere.
        QVERIFY(QFile::remove(gap + "/model/rank1.pt"));
        const auto gaps = rulesOf(gap);
        QVERIFY(gaps.contains("coverage.gap") && !gaps.contains("value.nan") && !gaps.contains("value.fill"));
        const QStringList words{"--to", "safetensors", "--weights-only", "--json"};
        const QString target = directory.filePath("filled");
        const Outcome refused = runShardscope(QStringList{"convert", gap, target} + words);
        QVERIFY2(refused.exitCode == 3 || refused.exitCode == 5, (refused.out + refused.err).c_str());
        QVERIFY(!QFileInfo::exists(target));

        // Some of the first rank's values are NaN: values, and no gap.
        const json tensors = runShardscope({"ls", trained, "--chunks", "--json"}).json()["tensors"];
        QFile file(trained + "/model/rank0.pt");
        QVERIFY(file.open(QIODevice::ReadWrite));
        const QByteArray bytes = file.readAll();
        qint64 at = -1;
        for (const json& tensor : tensors) {
            const json& chunk = tensor["chunks"][0];
            if (chunk["file"] == "model/rank0.pt" && tensor["dtype"] == "float32" && chunk["length"] > 16)
                at = chunk["offset"].get<qint64>();
        }
        QVERIFY(at >= 0);
        // Behind the header of the zip's record.
        const auto number = [&](qint64 place) {
            return static_cast<uint8_t>(bytes[place]) + 256 * static_cast<uint8_t>(bytes[place + 1]);
        };
        const qint64 data = at + 30 + number(at + 26) + number(at + 28);
        QVERIFY(file.seek(data + 4) && file.write(QByteArray::fromHex("0000c07f")) == 4);
        file.close();
        const auto nans = rulesOf(trained);
        QVERIFY(nans.contains("value.nan"));
        QVERIFY(!nans.contains("coverage.gap") && !nans.contains("value.fill"));
        const QString kept = directory.filePath("kept");
        // Its record has the checksum of what was there before.
        const Outcome done = runShardscope(QStringList{"convert", trained, kept, "--skip-damaged"} + words);
        QVERIFY2(done.exitCode == 0, (done.out + done.err).c_str());

        // Filled as asked, what no rank held is NaN, and known to be a fill.
        QVERIFY(QFile::remove(gap + "/metadata.yaml"));
        QFile one(gap + "/metadata.yaml");
        QVERIFY(one.open(QIODevice::WriteOnly) && one.write("world_size: 1\n") > 0);
        one.close();
        const Outcome filled =
            runShardscope(QStringList{"convert", gap, target, "--fill-gaps", "nan"} + words);
        QVERIFY2(filled.exitCode == 0, (filled.out + filled.err).c_str());
        const auto after = rulesOf(target);
        QVERIFY(after.contains("value.fill") && !after.contains("value.nan") &&
                !after.contains("coverage.gap"));
    }

    void selectionRenamingAndCasts() {
        QTemporaryDir directory;
        const QString target = directory.filePath("out");
        const QString source = genuine("dcp", "t2.15.0-fsdp2-adam");
        const Outcome run = runShardscope({"convert", source, target, "--to", "safetensors", "--weights-only",
                                           "--rename", "^model\\.=", "--dtype", "*weight=bf16", "--json"});
        QVERIFY2(run.exitCode == 0, (run.out + run.err).c_str());
        const json listing = runShardscope({"ls", target, "--json"}).json();
        QVERIFY(!listing["tensors"].empty());
        for (const json& t : listing["tensors"]) {
            const std::string name = t["name"];
            QVERIFY2(!name.starts_with("model.") && name.find("exp_avg") == std::string::npos, name.c_str());
            if (name.ends_with("weight")) COMPARE_JSON(t["dtype"], json("bfloat16"));
        }
    }

    // What is kept beside is not left out; what would stop that is said before the job.
    void objectsKeptBeside() {
        QTemporaryDir directory;
        const QString source = genuine("dcp", "t2.15.0-objects"), beside = directory.filePath("objects.pt");
        const QStringList words{"convert", source, directory.filePath("all"), "--to", "safetensors"};
        QCOMPARE(runShardscope(words + QStringList{"--strict", "--objects", beside}).exitCode, 5);
        const QStringList plain =
            words + QStringList{"--strict",  "--objects",     beside,      "--exclude", "obj.enum",
                                "--exclude", "obj.dataclass", "--exclude", "obj.np*",   "--exclude",
                                "obj.dt",    "--exclude",     "obj.td",    "--exclude", "obj.ns"};
        const Outcome done = runShardscope(plain + QStringList{"--json"});
        QVERIFY2(done.exitCode == 0, (done.out + done.err).c_str());
        const json left = done.json()["left_out"];
        QVERIFY(!left.empty());
        for (const json& entry : left)
            QVERIFY2(entry["why"].get<std::string>().ends_with("kept in " + beside.toStdString()),
                     entry.dump().c_str());
        const json there = runShardscope({"ls", beside, "--json"}).json();
        QVERIFY(there["objects"].size() > 5);

        QStringList again = words;
        again[2] = directory.filePath("again");
        QCOMPARE(runShardscope(again + QStringList{"--objects", beside}).exitCode, 4);
        QCOMPARE(runShardscope(again + QStringList{"--objects", "/proc/no/o.pt"}).exitCode, 4);
        QCOMPARE(runShardscope(again + QStringList{"--report", "/proc/no/r.json"}).exitCode, 4);
        QVERIFY(!QFile::exists(directory.filePath("again")));
        again[2] = "/proc/no/again";
        QCOMPARE(runShardscope(again).exitCode, 4);
    }

    void nothingSelected() {
        QTemporaryDir directory;
        const QString out = directory.filePath("out");
        const Outcome none = runShardscope({"convert", genuine("dcp", "t2.15.0-no-dist"), out, "--to",
                                            "torch", "--select", "nothing.like.that*"});
        QCOMPARE(none.exitCode, 5);
        QVERIFY2(none.err.find("--select") != std::string::npos, none.err.c_str());
        QVERIFY(!QFile::exists(out));
    }

    void likeTakesOverThePlacement() {
        QTemporaryDir directory;
        const QString whole = directory.filePath("whole.pt");
        const QString like = genuine("dcp", "t2.15.0-fsdp2-tp");
        QCOMPARE(runShardscope({"convert", like, whole, "--to", "torch"}).exitCode, 0);
        const Outcome run = runShardscope(
            {"convert", whole, directory.filePath("again"), "--to", "dcp", "--like", like, "--json"});
        QVERIFY2(run.exitCode == 0, (run.out + run.err).c_str());
        const json diff =
            runShardscope({"diff", like, directory.filePath("again"), "--values", "--json"}).json();
        COMPARE_JSON(diff["equal"], json(true));
        QVERIFY2(diff["placement"].empty(), diff.dump().c_str());
    }

    void extractsOneTensor() {
        QTemporaryDir directory;
        const QString source = genuine("dcp", "t2.15.0-fsdp2-tp");
        QCOMPARE(runShardscope({"extract", source, "model.fc1.weight", directory.filePath("w.npy")}).exitCode,
                 0);
        QFile npy(directory.filePath("w.npy"));
        QVERIFY(npy.open(QIODevice::ReadOnly));
        const QByteArray bytes = npy.readAll();
        QVERIFY(bytes.startsWith("\x93NUMPY"));
        QCOMPARE(bytes.size(), 128 + 48 * 4);
        QCOMPARE(runShardscope({"extract", source, "model.fc1.weight", directory.filePath("w.safetensors")})
                     .exitCode,
                 0);
        const json digest = digests(directory.filePath("w.safetensors"));
        COMPARE_JSON(digest["model.fc1.weight"], digests(source)["model.fc1.weight"]);
        QCOMPARE(runShardscope({"extract", source, "model.fc1.weight", directory.filePath("w.npy")}).exitCode,
                 4);
        const QString raw = directory.filePath("w.bin");
        put(raw, "old");
        QCOMPARE(runShardscope({"extract", source, "model.fc1.weight", raw, "--overwrite"}).exitCode, 0);
        QVERIFY(bytes.endsWith(bytesOf(raw)) && bytesOf(raw).size() == 48 * 4);
    }

    // Nothing that stands beside its name is touched or followed.
    void extractsBesideWhatIsThere() {
        QTemporaryDir directory;
        const QString source = directory.filePath("ck.safetensors"), file = directory.filePath("w.npy");
        QCOMPARE(runShardscope({"convert", genuine("dcp", "t2.15.0-fsdp2-tp"), source, "--to", "safetensors"})
                     .exitCode,
                 0);
        const QByteArray before = bytesOf(source);
        const QStringList words{"extract", source, "model.fc1.weight", file, "--overwrite"};
        const QString partial = file + ".partial";
        QVERIFY(QFile::link(source, partial));
        QCOMPARE(runShardscope(words).exitCode, 0);
        QVERIFY(QFile::remove(partial));
        QCOMPARE(::link(source.toUtf8().constData(), partial.toUtf8().constData()), 0);
        QCOMPARE(runShardscope(words).exitCode, 0);
        QVERIFY(QFile::remove(partial));
        QCOMPARE(::mkfifo(partial.toUtf8().constData(), 0600), 0);
        QCOMPARE(runShardscope(words).exitCode, 0);
        QCOMPARE(bytesOf(source), before);
        QCOMPARE(QDir(directory.path())
                     .entryList(QDir::AllEntries | QDir::Hidden | QDir::System | QDir::NoDotAndDotDot),
                 (QStringList{"ck.safetensors", "w.npy", "w.npy.partial"}));
    }
};

QTEST_GUILESS_MAIN(ConvertCliTest)
#include "convert_cli_test.moc"
