// The schemas of docs/schemas: `schema` prints them, and what every verb prints is as they say.
// Outcome::json() looks at each document that any test reads; here each kind is asked for at least once.
#include <QDir>
#include <QProcess>
#include <QTemporaryDir>
#include <QTest>
#include <csignal>
#include <fstream>
#include <set>

#include "cli/genuine_checks.h"
#include "cli/schema_check.h"
#include "support/http_server.h"

using namespace shardscope;
using namespace shardscope::test;
using nlohmann::json;

class SchemaCliTest : public QObject {
    Q_OBJECT

    QTemporaryDir place_;
    std::set<std::string> seen_;
    QString at(const QString& name) const { return place_.filePath(name); }
    static QString dcp(const char* name) {
        return QStringLiteral(SHARDSCOPE_TEST_DATA "/genuine/dcp/%1/ckpt").arg(name);
    }
    // The document, which is as its schema says.
    json take(const json& document) {
        const std::string wrong = schemaViolation(document);
        if (!wrong.empty() || !document.is_object()) {
            QTest::qFail(wrong.empty() ? document.dump().c_str() : wrong.c_str(), __FILE__, __LINE__);
            return {};
        }
        std::string id = document.value("schema", std::string());
        id = id.substr(std::min(id.size(), std::string("shardscope.").size()));
        seen_.insert(id.substr(0, id.find('/')));
        return document;
    }
    json said(const QStringList& words) { return take(runShardscope(words + QStringList{"--json"}).json()); }
    // The first line of a program that goes on until it is ended.
    json firstLine(const QStringList& words) {
        QProcess program;
        program.start(SHARDSCOPE_PROGRAM, words);
        QByteArray out;
        while (!out.contains('\n') && program.waitForReadyRead(60'000))
            out += program.readAllStandardOutput();
        ::kill(static_cast<pid_t>(program.processId()), SIGTERM);
        program.waitForFinished(60'000);
        return take(json::parse(out.left(out.indexOf('\n')).toStdString(), nullptr, false));
    }

  private slots:
    void schemasAreWellFormed() {
        const json list = said({"schema"});
        QCOMPARE(static_cast<qsizetype>(list["schemas"].size()),
                 QDir(SHARDSCOPE_SCHEMAS).entryList({"*.json"}, QDir::Files).size());
        for (const json& each : list["schemas"]) {
            const std::string name = each["name"];
            std::ifstream file(SHARDSCOPE_SCHEMAS "/" + name + ".json");
            const json written = json::parse(file);
            QCOMPARE(unknownInSchema(written), std::string());
            QVERIFY(written["$schema"] == "https://json-schema.org/draft/2020-12/schema");
            QVERIFY(written["$id"] == "urn:shardscope:" + name + ":1");
            QVERIFY(written["title"] == "shardscope." + name + "/1" && written["title"] == each["title"]);
            QVERIFY(written["properties"]["schema"]["const"] == written["title"]);
            for (const std::string& asked : {name, name + "/1", "shardscope." + name + "/1"}) {
                const Outcome printed = runShardscope({"schema", QString::fromStdString(asked)});
                QCOMPARE(printed.exitCode, 0);
                json schema = json::parse(printed.out);
                QCOMPARE(unknownInSchema(schema), std::string());
                // It stands alone: what it refers to is in it.
                std::string text = schema.dump();
                for (size_t at = text.find("\"$ref\":\"urn:"); at != std::string::npos;
                     at = text.find("\"$ref\":\"urn:", at + 1)) {
                    const size_t begin = at + 8, end = text.find('"', begin);
                    QVERIFY(schema["$defs"].contains(text.substr(begin, end - begin)));
                }
                for (const auto& [key, value] : written.items())
                    if (key != "$defs") COMPARE_JSON(schema[key], value);
            }
        }
        const Outcome unknown = runShardscope({"schema", "dif"});
        QCOMPARE(unknown.exitCode, 3);
        QVERIFY(unknown.err.find("did you mean 'diff'?") != std::string::npos);
    }

    void theCheckFindsWhatDoesNotFit() {
        const json right{{"schema", "shardscope.serve/1"}, {"url", "http://x"}, {"port", 1}};
        QCOMPARE(schemaViolation(right), std::string());
        for (const auto& [field, value] : {std::pair("url", json(1)),
                                           {"port", json(-1)},
                                           {"port", json("1")},
                                           {"port", json()},
                                           {"more", json(1)}}) {
            json wrong = right;
            wrong[field] = value;
            QVERIFY2(!schemaViolation(wrong).empty(), wrong.dump().c_str());
        }
        json less = right;
        less.erase("url");
        QVERIFY(!schemaViolation(less).empty());
    }

    void documentsOfVerbs() {
        const QString standard = dcp("t2.15.0-standard"), adam = dcp("t2.15.0-fsdp2-adam"),
                      gap = dcp("t2.15.0-damaged-gap"), objects = dcp("t2.15.0-objects");
        for (const QString& path : {standard, adam, gap, objects, dcp("t2.15.0-pipeline")}) {
            said({"info", path, "--ranks"});
            said({"ls", path, "--chunks"});
            said({"ls", path, "--rank", "0"});
            said({"map", path});
            said({"map", path, "--slices"});
            said({"map", path, "--mesh"});
            said({"map", path, "--as-if", "tp=2"});
            said({"validate", path, "--level", "values"});
            said({"ready", path});
            said({"stats", path});
        }
        for (const auto& [format, name] : {std::pair("megatron", "m0.16.1-gpt-tp2-llama"),
                                           {"deepspeed", "z1_bf16_w2"},
                                           {"torch_save", "t2.15.0-state-dict"}}) {
            const GenuineCase genuine = genuineCase(format, name);
            const QString path = QString::fromStdString(genuine.openPath());
            said({"info", path, "--ranks"});
            said({"ls", path, "--chunks"});
            said({"ls", path, "--rank", "0"});
            said({"validate", path});
        }
        const json tensors = said({"ls", adam})["tensors"];
        const QString name = QString::fromStdString(tensors[0]["name"].get<std::string>());
        said({"show", adam, name, "--values"});
        said({"digest", adam});
        said({"index", adam, "-o", at("a.ssidx")});
        said({"info", at("a.ssidx")});
        said({"extract", adam, name, at("a.npy")});
        said({"plan", adam, at("x"), "--to", "safetensors"});
        said({"plan", adam, at("x"), "--to", "safetensors", "--flow"});
        said({"convert", adam, at("x"), "--to", "safetensors", "--weights-only"});
        said({"diff", adam, at("x"), "--values"});
        said({"diff", standard, dcp("t2.15.0-no-dist"), "--values", "--moves"});
        said({"average", at("x"), at("x"), at("y")});
        said({"plan", at("x"), at("z"), "--map", "auto", "--mesh", "dp=2", "--to", "dcp"});
        said({"convert", adam, at("parts"), "--to", "safetensors", "--weights-only", "--part", "0/2"});
        said({"formats"});
        said({"recipes"});
        said({"recipes", "--for", adam});
        said({"doctor", at("x")});
        said({"info", at("nothing")});
        QVERIFY(take(runShardscope({"report", gap, "--as", "json"}).json())["findings"].size() > 0);
    }

    void documentsOfRuns() {
        QVERIFY(QDir().mkpath(at("run")));
        for (const auto& [step, source] :
             {std::pair("step-10", "t2.15.0-standard"), {"step-20", "t2.15.0-damaged-gap"}})
            QVERIFY(QFile::link(dcp(source), at("run/") + step));
        const QString run = at("run");
        said({"info", run});
        said({"validate", run});
        said({"latest", run});
        said({"latest", run, "--good"});
        said({"ready", run});
        said({"stats", run, "--by", "layer"});
        firstLine({"watch", run, "--settle", "0", "--interval", "1", "--as", "json"});
    }

    void documentsOfBuckets() {
        FakeBucket bucket("b1");
        bucket.use();
        bucket.put("run/.step-2.shardscope-partial/claim", "x");
        bucket.before = [](const Asked& asked) -> Answered {
            if (asked.query.find("uploads=") == std::string::npos) return {0};
            return {200,
                    {},
                    "<ListMultipartUploadsResult><Upload><Key>run/a</Key><UploadId>u</UploadId></Upload>"
                    "</ListMultipartUploadsResult>"};
        };
        QCOMPARE(said({"cleanup", "s3://b1/run"})["leftovers"].size(), size_t(2));
    }

    void documentsOfServersAndJobs() {
        firstLine({"serve", dcp("t2.15.0-standard"), "--json"});
        QVERIFY(qputenv("XDG_STATE_HOME", at("state").toLocal8Bit()));
        const QStringList job{"convert", dcp("t2.15.0-standard"), at("job"),
                              "--to",    "safetensors",           "--weights-only"};
        const json done = take(runShardscope(QStringList{"jobs", "run", "--wait", "--json"} + job).json());
        QVERIFY(done["state"] == "done");
        const QString id = QString::fromStdString(done["id"].get<std::string>());
        said({"jobs", "show", id});
        said({"jobs", "list"});
    }

    // Last: each schema was met.
    void everySchemaWasMet() {
        for (const json& each : said({"schema"})["schemas"])
            QVERIFY2(seen_.contains(each["name"].get<std::string>()),
                     each["name"].get<std::string>().c_str());
    }
};

QTEST_GUILESS_MAIN(SchemaCliTest)
#include "schema_cli_test.moc"
