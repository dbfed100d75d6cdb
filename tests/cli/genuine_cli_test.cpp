// Every genuine checkpoint against `ls`, `digest --algorithm sha256` and `validate`: names, dtypes, shapes,
// chunks, objects, bytes, and for the damaged ones the fault that was made.
#include <QDir>
#include <QTest>
#include <algorithm>
#include <map>
#include <set>

#include "cli/run_shardscope.h"
#include "support/genuine.h"

using namespace shardscope;
using namespace shardscope::test;
using nlohmann::json;

namespace {

QString q(const std::string& s) {
    return QString::fromStdString(s);
}

// Rules that stand for each kind of damage in expected.json.
const std::map<std::string, std::set<std::string>> kRules{
    {"missing-file", {"file.missing"}},
    {"truncated", {"file.truncated"}},
    {"gap", {"coverage.gap"}},
    {"overlap", {"coverage.overlap"}},
    {"shape-mismatch", {"meta.inconsistent"}},
    {"crc-mismatch", {"integrity.crc"}},
    {"nan", {"value.nan"}},
    {"inf", {"value.inf"}},
    {"zeroed-file", {"meta.inconsistent", "value.zero", "file.truncated"}},
    {"shrunk", {"coverage.shrunk"}},
    {"missing-tensor", {"meta.inconsistent"}},
    {"extra-tensor", {"meta.inconsistent"}},
    {"stale-file", {"file.stale"}},
    {"lock-file", {"file.lock"}},
};

bool exactJson(const json& value) {
    if (value.is_object()) {
        if (value.contains("repr")) return false;
        if (value.contains("tensor")) return false;
    }
    if (value.is_structured()) return std::all_of(value.begin(), value.end(), exactJson);
    return true;
}

// Where a chunk is stored, as text; empty for a piece without elements.
std::string place(const json& chunk, bool boxOnly) {
    const json& box = chunk.contains("flat") ? chunk["flat"] : chunk;
    for (const json& l : box["lengths"]) {
        if (l == 0) return {};
    }
    std::string text = box["offsets"].dump() + box["lengths"].dump();
    if (boxOnly) return text;
    if (chunk.contains("flat_range")) text += chunk["flat_range"].dump();
    if (chunk.contains("flat")) text += json{box["start"], box["stop"]}.dump();
    return text;
}

// A file of paddle.save cannot say that bytes are float8.
std::string dtypeOf(const GenuineCase& c, const json& tensor) {
    const std::string dtype = tensor["dtype"];
    return c.expected["format"] == "paddle_save" && dtype.starts_with("float8") ? "int8" : dtype;
}

// What a user must state of a case: that fused projections are to be put in order.
QStringList stated(const GenuineCase& c) {
    if (c.expected["format"] == "paddle_hybrid" && c.name.find("fused") != std::string::npos)
        return {"--variant", "fused-qkv=auto"};
    return {};
}

// Damage that leaves the tensors as they were.
bool onlyCare(const GenuineCase& c) {
    return std::all_of(c.expected["findings"].begin(), c.expected["findings"].end(),
                       [](const json& f) { return f["kind"] == "stale-file" || f["kind"] == "lock-file"; });
}

// The files of a paddle.save case are checkpoints of their own; its names begin with the file's where there
// are several.
std::vector<GenuineCase> casesOf(const std::string& family) {
    std::vector<GenuineCase> all;
    for (GenuineCase& c : genuineCases(family)) {
        if (c.expected["format"] != "paddle_save") {
            all.push_back(std::move(c));
            continue;
        }
        const QStringList files = QDir(q(c.path)).entryList(QDir::Files, QDir::Name);
        for (const QString& file : files) {
            GenuineCase one = c;
            one.name += "/" + file.toStdString();
            one.expected["file"] = file.toStdString();
            const std::string prefix = files.size() > 1 ? file.toStdString() + ":" : "";
            for (const char* part : {"tensors", "objects"}) {
                json kept = json::object();
                for (const auto& [name, value] : c.expected[part].items()) {
                    if (name.starts_with(prefix)) kept[name.substr(prefix.size())] = value;
                }
                one.expected[part] = std::move(kept);
            }
            all.push_back(std::move(one));
        }
    }
    return all;
}

}  // namespace

class GenuineCliTest : public QObject {
    Q_OBJECT

  private slots:
    void everyCase_data() {
        QTest::addColumn<QString>("family");
        QTest::addColumn<int>("index");
        for (const char* family : {"dcp", "torch_save", "safetensors", "paddle_dist", "paddle_hybrid"}) {
            const auto cases = casesOf(family);
            for (size_t i = 0; i < cases.size(); ++i) {
                QTest::newRow((cases[i].family + "/" + cases[i].name).c_str())
                    << QString(family) << static_cast<int>(i);
            }
        }
    }

    void everyCase() {
        QFETCH(QString, family);
        QFETCH(int, index);
        const GenuineCase c = casesOf(family.toStdString())[static_cast<size_t>(index)];
        const QString path = q(c.openPath());

        if (c.name == "bad_lock_no_metadata") {
            const Outcome info = runShardscope({"info", path, "--json"});
            QCOMPARE(info.exitCode, 3);
            COMPARE_JSON(info.json()["rule"], json("file.missing"));
            QVERIFY(info.json()["file"].get<std::string>().ends_with("/0.metadata"));
            QVERIFY(info.json()["message"].get<std::string>().find("0.metadata.lock") != std::string::npos);
            return;
        }
        if (c.name.find("metadata-truncated") != std::string::npos || c.name == "bad_truncated_metadata") {
            const Outcome info = runShardscope({"info", path, "--json"});
            QCOMPARE(info.exitCode, 3);
            COMPARE_JSON(info.json()["schema"], json("shardscope.error/1"));
            QVERIFY(info.json()["offset"].is_number());
            QVERIFY(info.json()["file"].get<std::string>().ends_with(".metadata"));
            return;
        }
        checkListing(c, path);
        if (QTest::currentTestFailed()) return;
        checkValidation(c, path);
        if (QTest::currentTestFailed()) return;
        if (!c.damaged() || onlyCare(c) || c.name.ends_with("-inf") || c.name.ends_with("-nan-block"))
            checkDigests(c, path);
    }

  private:
    void checkListing(const GenuineCase& c, const QString& path) {
        const Outcome ls = runShardscope(QStringList{"ls", path, "--chunks", "--json"} + stated(c));
        QVERIFY2(ls.exitCode == 0, (ls.out + ls.err).c_str());
        const json listing = ls.json();
        COMPARE_JSON(listing["schema"], json("shardscope.ls/1"));
        std::map<std::string, json> tensors;
        if (c.name == "bad_metadata_of_other_save") return;  // what is listed is the other save
        for (const json& t : listing["tensors"])
            QVERIFY2(tensors.emplace(t["name"], t).second, t["name"].get<std::string>().c_str());

        size_t expectedCount = c.expected["tensors"].size();
        for (const auto& [name, want] : c.expected["tensors"].items()) {
            QVERIFY2(tensors.contains(name), ("missing: " + name).c_str());
            const json& got = tensors[name];
            if (c.name.find("shape-mismatch") == std::string::npos && c.name != "bad_row_dropped_v300")
                QCOMPARE(got["shape"].dump(), want["shape"].dump());
            QCOMPARE(got["dtype"].get<std::string>(), dtypeOf(c, want));
            // (A consolidated checkpoint lists the shards that it was made from.)
            if (want.contains("chunks") && !c.damaged() && c.expected["format"] != "safetensors") {
                // Expected chunks are every rank's, before replicas were dropped: the distinct boxes must be
                // the same.
                // Of a hybrid-parallel one, the boxes of tensor-parallel ranks, whose slices ours are.
                const bool boxOnly = c.expected["format"] == "paddle_hybrid";
                std::set<std::string> wanted, found;
                for (const json& chunk : want["chunks"])
                    wanted.insert(place(chunk, boxOnly));
                for (const json& chunk : got["chunks"])
                    found.insert(place(chunk, boxOnly));
                wanted.erase("");
                found.erase("");
                QVERIFY2(wanted == found, name.c_str());
            }
        }
        if (c.expected.contains("special")) {
            for (const auto& [name, special] : c.expected["special"].items()) {
                for (const auto& [part, want] : special["parts"].items()) {
                    const std::string full = name + "#" + part;
                    QVERIFY2(tensors.contains(full), ("missing part: " + full).c_str());
                    COMPARE_JSON(tensors[full]["dtype"], want["dtype"]);
                    COMPARE_JSON(tensors[full]["shape"], want["shape"]);
                }
            }
        } else {
            QCOMPARE(tensors.size(), expectedCount);
        }

        std::map<std::string, json> objects;
        for (const json& o : listing["objects"])
            objects.emplace(o["name"], o);
        for (const auto& [name, want] : c.expected["objects"].items()) {
            QVERIFY2(objects.contains(name), ("missing object: " + name).c_str());
            QVERIFY2(!objects[name].contains("error"), objects[name].dump().c_str());
            if (exactJson(want))
                QVERIFY2(objects[name]["value"] == want,
                         (name + ": " + objects[name]["value"].dump() + " is not " + want.dump()).c_str());
        }
        QCOMPARE(objects.size(), c.expected["objects"].size());
    }

    void checkDigests(const GenuineCase& c, const QString& path) {
        const Outcome digest =
            runShardscope(QStringList{"digest", path, "--algorithm", "sha256", "--json"} + stated(c));
        QVERIFY2(digest.exitCode == 0, (digest.out + digest.err).c_str());
        const json got = digest.json()["tensors"];
        for (const auto& [name, want] : c.expected["tensors"].items()) {
            QVERIFY2(got.contains(name), name.c_str());
            QVERIFY2(got[name] == want["sha256"], ("sha256 of " + name).c_str());
        }
        if (c.expected.contains("saves")) checkSaves(c, path);
        if (!c.expected.contains("special")) return;
        for (const auto& [name, special] : c.expected["special"].items()) {
            for (const auto& [part, want] : special["parts"].items()) {
                const std::string full = name + "#" + part;
                QVERIFY2(got[full] == want["sha256"], ("sha256 of " + full).c_str());
            }
        }
    }

    // Several saves in one directory: each by its id, where it was not overwritten.
    void checkSaves(const GenuineCase& c, const QString& path) {
        for (const json& save : c.expected["saves"]) {
            const int id = save["kw"].value("unique_id", save["save"].get<int>());
            if (!QFile::exists(path + QString("/%1.metadata").arg(id))) continue;
            if (c.name.find("same_id") != std::string::npos && id == 0) continue;
            const Outcome digest = runShardscope(
                {"digest", path, "--variant", QString("id=%1").arg(id), "--algorithm", "sha256", "--json"});
            QVERIFY2(digest.exitCode == 0, (digest.out + digest.err).c_str());
            const json got = digest.json()["tensors"];
            for (const auto& [name, want] : save["tensors"].items())
                QVERIFY2(got[name] == want["sha256"], name.c_str());
        }
    }

    void checkValidation(const GenuineCase& c, const QString& path) {
        const Outcome run =
            runShardscope(QStringList{"validate", path, "--level", "values", "--json"} + stated(c));
        const json report = run.json();
        COMPARE_JSON(report["schema"], json("shardscope.validate/1"));
        if (!c.damaged()) {
            for (const json& finding : report["findings"]) {
                const bool made = c.name.ends_with("nan_inf") &&
                                  (finding["rule"] == "value.nan" || finding["rule"] == "value.inf");
                QVERIFY2(finding["severity"] != "error" || finding["rule"] == "security.global" || made,
                         finding.dump().c_str());
            }
            if (c.name.find("stale") != std::string::npos) COMPARE_JSON(report["verdict"], json("care"));
            return;
        }
        QVERIFY2(run.exitCode == (onlyCare(c) ? 0 : 1), (run.out + run.err).c_str());
        COMPARE_JSON(report["verdict"], json(onlyCare(c) ? "care" : "unsafe"));
        for (const json& made : c.expected["findings"]) {
            const auto& rules = kRules.at(made["kind"]);
            const json* match = nullptr;
            for (const json& finding : report["findings"]) {
                if (!rules.contains(finding["rule"])) continue;
                // Of several findings of the rule, the one that speaks of this file or tensor.
                const std::string about = made.value("tensor", made.value("file", ""));
                if (!match || finding.dump().find(about) != std::string::npos) match = &finding;
            }
            QVERIFY2(match, ("not found: " + made.dump() + " in " + report.dump()).c_str());
            const std::string text = match->dump();
            if (made.contains("file"))
                QVERIFY2(text.find(made["file"].get<std::string>()) != std::string::npos, text.c_str());
            if (made.contains("tensor"))
                QVERIFY2(text.find(made["tensor"].get<std::string>()) != std::string::npos, text.c_str());
            if (made["kind"] == "gap") {
                bool exact = false;
                for (const json& e : (*match)["examples"]) {
                    exact = exact || (e["offsets"] == made["region"]["offsets"] &&
                                      e["lengths"] == made["region"]["lengths"]);
                }
                QVERIFY2(exact, text.c_str());
            }
        }
        // One cause, not one finding per tensor.
        if (c.name.find("missing-file") != std::string::npos) {
            for (const json& finding : report["findings"])
                QVERIFY2(finding["rule"] != "coverage.gap", finding.dump().c_str());
        }
    }
};

QTEST_GUILESS_MAIN(GenuineCliTest)
#include "genuine_cli_test.moc"
