// The server of the browser page: who gets an answer, and what the answers are.
#include <QDir>
#include <QFile>
#include <QFileInfo>
#include <QTemporaryDir>
#include <QTest>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cli/served.h"
#include "engine/suppressions.h"
#include "serve/page_server.h"
#include "support/http_server.h"
#include "support/recorded_job.h"

using namespace shardscope;
using namespace shardscope::test;
using nlohmann::json;

namespace {

int connectTo(int port) {
    const int made = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_port = htons(static_cast<uint16_t>(port));
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(made, reinterpret_cast<sockaddr*>(&where), sizeof where) == 0) return made;
    ::close(made);
    return -1;
}

}  // namespace

class ServeCliTest : public QObject {
    Q_OBJECT

  private slots:
    void hosts_data() {
        QTest::addColumn<QByteArray>("host");
        QTest::addColumn<bool>("own");
        for (const char* own :
             {"localhost", "127.0.0.1", "[::1]", "localhost:8080", "127.0.0.1:1", "[::1]:65535"})
            QTest::newRow(own) << QByteArray(own) << true;
        for (const char* other :
             {"", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80",
              "127.0.0.1:", "127.0.0.1:80x", "localhost:80:80", "[::1", "::1", "0.0.0.0", "LOCALHOST@x"})
            QTest::newRow(other) << QByteArray(other) << false;
    }
    void hosts() {
        QFETCH(QByteArray, host);
        QFETCH(bool, own);
        QCOMPARE(serve::isLoopbackHost(host.toStdString()), own);
    }

    void theStaticProgramServes() {
        const QString program =
            QFileInfo(SHARDSCOPE_PROGRAM).dir().filePath("../libexec/shardscope/shardscope-static");
        if (!QFile::exists(program)) QSKIP("no shardscope-static was built (cmake says why)");
        const Served server({genuine("t2.15.0-no-dist")}, QProcessEnvironment::systemEnvironment(), program);
        if (server.port == 0) QSKIP("shardscope-static has no server (cmake says why)");
        const auto info = server.get("/api/info", server.withToken());
        QVERIFY(info && info->status == 200 && json::parse(info->body)["schema"] == "shardscope.info/1");
        const auto page = server.get("/", {});
        QVERIFY(page && page->status == 200 && page->body.find("<html") != std::string::npos);
    }

    void onlyWithTheToken() {
        const Served server({genuine("t2.15.0-no-dist")});
        QVERIFY(server.port > 0);
        const auto status = [&](const std::string& path, httplib::Headers headers) {
            const auto answer = server.get(path, headers);
            return answer ? answer->status : 0;
        };
        QCOMPARE(status("/api/info", {}), 403);
        QCOMPARE(status("/api/info", {{"X-Shardscope-Token", std::string(48, '0')}}), 403);
        QCOMPARE(status("/api/info", {{"X-Shardscope-Token", ""}}), 403);
        QCOMPARE(status("/api/events", {}), 403);
        QCOMPARE(status("/nowhere", {}), 403);
        // An address is seen and logged; a cookie goes to all ports of the host.
        QVERIFY(server.url.find("/#token=") != std::string::npos);
        QCOMPARE(status("/api/info?token=" + server.token, {}), 403);
        for (const std::string& name : {std::string("token"), "shardscope-" + std::to_string(server.port)})
            QCOMPARE(status("/api/info", {{"Cookie", name + "=" + server.token}}), 403);

        // The page itself is not secret, and holds no secret.
        const auto page = server.get("/", {});
        QVERIFY(page);
        QCOMPARE(page->status, 200);
        QVERIFY(!page->has_header("Set-Cookie"));
        QVERIFY(page->body.find(server.token) == std::string::npos);
        const std::string policy = page->get_header_value("Content-Security-Policy");
        QVERIFY(policy.find("default-src 'none'") != std::string::npos &&
                policy.find("unsafe") == std::string::npos);
        QVERIFY(page->body.find("http://") == std::string::npos &&
                page->body.find("https://") == std::string::npos);
        QVERIFY(page->body.find("style=") == std::string::npos &&
                page->body.find("onclick") == std::string::npos);
        for (const char* file : {"/page.js", "/map.js", "/common.js", "/page.css"})
            QCOMPARE(status(file, {}), 200);
        QCOMPARE(status("/map.js", {{"Host", "evil.example"}}), 403);
        QCOMPARE(status("/../etc/passwd", server.withToken()), 404);

        // A page of another site, by a name that resolves here or from its own origin.
        httplib::Headers foreign = server.withToken();
        foreign.emplace("Host", "evil.example:" + std::to_string(server.port));
        QCOMPARE(status("/api/info", foreign), 403);
        httplib::Headers origin = server.withToken();
        origin.emplace("Origin", "http://evil.example");
        QCOMPARE(status("/api/info", origin), 403);
        httplib::Headers own = server.withToken();
        own.emplace("Origin", "http://127.0.0.1:" + std::to_string(server.port));
        own.emplace("Host", "127.0.0.1:" + std::to_string(server.port));
        QCOMPARE(status("/api/info", own), 200);
        // Through a tunnel the port is another one.
        httplib::Headers tunnel = server.withToken();
        tunnel.emplace("Host", "localhost:4711");
        QCOMPARE(status("/api/info", tunnel), 200);
        httplib::Client client("127.0.0.1", server.port);
        const auto posted = client.Post("/api/info", server.withToken(), "x", "text/plain");
        QVERIFY(posted);
        QCOMPARE(posted->status, 405);
        const auto deleted = client.Delete("/api/jobs", server.withToken());
        QVERIFY(deleted);
        QCOMPARE(deleted->status, 405);
    }

    void answersAreThoseOfTheVerbs() {
        const QString source = genuine("t2.15.0-damaged-gap");
        Served server({source});
        json overview = server.document("/api/info");
        COMPARE_JSON(overview, runShardscope({"info", source, "--json"}).json());
        const json ls = runShardscope({"ls", source, "--json"}).json()["tensors"];
        const json page = server.document("/api/tensors?first=0&count=100");
        COMPARE_JSON(page["total"], json(ls.size()));
        COMPARE_JSON(page["tensors"], ls);
        const std::string name = ls[0]["name"];
        const json shown = runShardscope({"show", source, QString::fromStdString(name), "--json"}).json();
        COMPARE_JSON(server.document("/api/tensor?count=1000&name=" + name), shown);
        COMPARE_JSON(server.document("/api/tensor?state=1&name=" + name)["state"], json("gap"));
        // What cannot be read is the same error.
        for (const json& tensor : ls) {
            const std::string of = tensor["name"];
            const json valued =
                runShardscope({"show", source, QString::fromStdString(of), "--values", "--json"}).json();
            const auto answer = server.get("/api/tensor?count=1000&values=1&name=" + of, server.withToken());
            COMPARE_JSON(json::parse(answer->body, nullptr, false), valued);
        }
        json placement = server.document("/api/placement?columns=1&slices=1");
        placement.erase("generation");
        COMPARE_JSON(placement["pins"], json::array());
        placement.erase("pins");
        COMPARE_JSON(placement, runShardscope({"map", source, "--json", "--slices"}).json());
        QCOMPARE(placement["columns"].size(), overview["totals"]["ranks"].get<size_t>());
        COMPARE_JSON(server.document("/api/placement?first=1&count=1&pattern=*weight*")["rows"].size() <= 1,
                     json(true));
        // A row that is pinned is the first, and says which line asked for it; a name that is not there asks
        // for nothing.
        const std::string last = placement["rows"].back()["tensor"];
        const json pinned =
            server.document("/api/placement?columns=1&pin=tnowhere%0At" + last + "%0A%0Ag&at=t" + last);
        COMPARE_JSON(pinned["pins"], json::array({json::array({"t" + last})}));
        COMPARE_JSON(pinned["rows"][0]["tensor"], json(last));
        COMPARE_JSON(pinned["at"], json(0));
        COMPARE_JSON(pinned["row_count"], placement["row_count"]);
        COMPARE_JSON(server.document("/api/mesh"), runShardscope({"map", source, "--mesh", "--json"}).json());
        const auto drawn = server.get("/api/mesh/svg?width=960&height=540", server.withToken());
        QCOMPARE(drawn->status, 200);
        QCOMPARE(drawn->get_header_value("Content-Type"), std::string("image/svg+xml"));
        const QTemporaryDir files;
        const QString file = files.filePath("mesh.svg");
        QCOMPARE(runShardscope({"map", source, "--mesh", "-o", file}).exitCode, 0);
        QFile written(file);
        QVERIFY(written.open(QIODevice::ReadOnly));
        QCOMPARE(QByteArray::fromStdString(drawn->body), written.readAll());
        // Written into the checkpoint, or over another file: never unasked.
        QCOMPARE(runShardscope({"map", source, "--mesh", "-o", file}).exitCode, 4);
        QCOMPARE(runShardscope({"map", source, "--mesh", "-o", file, "--overwrite"}).exitCode, 0);
        QVERIFY(runShardscope({"map", source, "--mesh", "-o", source + "/mesh.svg"}).exitCode != 0);
        const auto tile =
            server.get("/api/placement/tile?down=0&across=0&row=0&column=0", server.withToken());
        QCOMPARE(tile->status, 200);
        QCOMPARE(tile->body.size(), size_t{256 * 256});
        QVERIFY(tile->body.find_first_not_of('\0') != std::string::npos);
        // Whatever stands outside of the map is empty.
        const auto outside = server.get(
            "/api/placement/tile?down=31&across=31&row=4294967295&column=4294967295", server.withToken());
        QCOMPARE(outside->body, std::string(256 * 256, '\0'));
        for (const char* bad :
             {"placement?first=x", "placement?count=-1", "placement?first=99999999999999999999",
              "placement?pattern=re:%28", "mesh/svg?width=99999999", "placement/tile?down=32",
              "placement/tile?row=-1", "placement/cell?row=100000", "tensors?first=1e3",
              "tensors?count=9999999", "tensor?first=x&name=a"})
            QCOMPARE(server.get("/api/" + std::string(bad), server.withToken())->status,
                     std::string(bad) == "tensor?first=x&name=a" ? 404 : 400);
        const json missing = server.document("/api/placement/cell?row=0&column=0");
        QVERIFY(missing["text"].get<std::string>().find("rank 0") != std::string::npos);
        for (const QString& second : {source, genuine("t2.15.0-damage-base")})
            COMPARE_JSON(server.document("/api/diff?with=" + second.toStdString()),
                         runShardscope({"diff", source, second, "--json"}).json());
        QCOMPARE(server.get("/api/diff?with=/nowhere", server.withToken())->status, 404);
        // Reading every byte of two checkpoints is a job.
        QCOMPARE(server.get("/api/diff?values=1&with=" + source.toStdString(), server.withToken())->status,
                 403);
        COMPARE_JSON(server.document("/api/formats"), runShardscope({"formats", "--json"}).json());
        COMPARE_JSON(server.document("/api/recipes"), runShardscope({"recipes", "--json"}).json());
        QVERIFY(server.document("/api/rules")["rules"].contains("coverage.gap"));
        COMPARE_JSON(server.document("/api/run"), json());
        COMPARE_JSON(server.document("/api/page")["shows"], json("checkpoint"));
        QTRY_VERIFY_WITH_TIMEOUT(server.document("/api/findings").contains("verdict"), 20'000);
        COMPARE_JSON(server.document("/api/findings"), runShardscope({"validate", source, "--json"}).json());
        json card = server.document("/api/ready");
        for (json& line : card["lines"])
            line.erase("shows");
        COMPARE_JSON(card, runShardscope({"ready", source, "--json"}).json());
        COMPARE_JSON(server.document("/api/jobs"), json());
        QCOMPARE(server.end(), 0);
    }

    // Without --allow-jobs every request that would change something is refused.
    void onlyShows() {
        const Served server({genuine("t2.15.0-no-dist"), "--jobs"});
        for (const char* path :
             {"validate", "validate/cancel", "accept", "plan", "convert", "jobs/cancel", "jobs/resume"}) {
            QCOMPARE(server.change(std::string("/api/") + path, json::object()).first, 405);
            QCOMPARE(server.get(std::string("/api/") + path, server.withToken())->status, 404);
        }
    }

    void whoMayChangeSomething() {
        QTemporaryDir state;
        const QProcessEnvironment environment = environmentIn(state.path());
        const Served server({genuine("t2.15.0-no-dist"), "--allow-jobs"}, environment);
        const std::string path = "/api/validate", body = R"({"level":"metadata"})";
        const auto status = [&](const httplib::Headers& headers, const char* type = "application/json") {
            const auto answer = server.post(path, headers, body, type);
            return answer ? answer->status : 0;
        };
        httplib::Headers headers = server.own();
        headers.erase("X-Shardscope-Token");
        QCOMPARE(status(headers), 403);             // no token
        QCOMPARE(status(server.withToken()), 403);  // no origin
        headers = server.withToken();
        headers.emplace("Origin", "http://evil.example");
        QCOMPARE(status(headers), 403);
        headers = server.withToken();
        headers.emplace("Origin", "null");
        QCOMPARE(status(headers), 403);
        headers = server.own();
        headers.erase("Host");
        headers.emplace("Host", "evil.example:" + std::to_string(server.port));
        QCOMPARE(status(headers), 403);
        // What a form can send.
        QCOMPARE(status(server.own(), "text/plain"), 415);
        QCOMPARE(status(server.own(), "application/x-www-form-urlencoded"), 415);
        QTRY_VERIFY_WITH_TIMEOUT(server.document("/api/findings").contains("verdict"), 20'000);
        QCOMPARE(status(server.own()), 200);
        QTRY_COMPARE_WITH_TIMEOUT(server.document("/api/findings").value("level", ""),
                                  std::string("metadata"), 20'000);
        for (const char* bad :
             {"", "x", "[]", "{}", R"({"level":1})", R"({"level":"all"})", R"({"level":null})"})
            QCOMPARE(server.post(path, server.own(), bad)->status, 400);
        QVERIFY(server.post(path, server.own(), std::string(100'000, ' '))->status >= 400);
        QCOMPARE(server.post("/api/info", server.own(), "{}")->status, 404);
        QCOMPARE(server.change("/api/jobs/cancel", {{"id", "../../etc"}}).first, 404);
        QCOMPARE(server.change("/api/jobs/resume", {{"id", "20"}}).first, 404);
    }

    // What is accepted here is accepted in the window and by the command line, and the other way round.
    void accepting() {
        QTemporaryDir config;
        const QProcessEnvironment environment = environmentIn(config.path());
        const QString source = genuine("t2.15.0-damaged-gap");
        const Served server({source, "--allow-jobs"}, environment);
        QTRY_VERIFY_WITH_TIMEOUT(server.document("/api/findings").contains("verdict"), 20'000);
        COMPARE_JSON(server.document("/api/accepted")["verdict"], json("unsafe"));
        QVERIFY(server.document("/api/ready")["words"].get<std::string>().starts_with("do not resume: "));
        json entry{{"rule", "no.such"}, {"cause", ""}, {"reason", "x"}};
        QCOMPARE(server.change("/api/accept", entry).first, 400);
        const json report = server.document("/api/findings");
        QVERIFY(!report["findings"].empty());
        for (const json& finding : report["findings"]) {
            entry = {{"rule", finding["rule"]}, {"cause", finding["cause"]}, {"reason", ""}};
            QCOMPARE(server.change("/api/accept", entry).first, 400);  // without a reason
            entry["reason"] = "known <b>gap</b>";
            QCOMPARE(server.change("/api/accept", entry).first, 200);
        }
        const json accepted = server.document("/api/accepted");
        COMPARE_JSON(accepted["verdict"], json("safe"));
        COMPARE_JSON(server.document("/api/ready")["words"],
                     json("weights only: nothing to resume, fine to load"));
        const std::string file = config.filePath("shardscope/shardscope/suppressions.json").toStdString();
        const SuppressionStore store(file);
        QCOMPARE(store.of(source.toStdString()).size(), accepted["accepted"].size());
        QCOMPARE(store.of(source.toStdString())[0].reason, std::string("known <b>gap</b>"));
        entry.erase("reason");
        entry["withdraw"] = true;
        QCOMPARE(server.change("/api/accept", entry).first, 200);
        QCOMPARE(SuppressionStore(file).of(source.toStdString()).size(), accepted["accepted"].size() - 1);

        const auto validate = [&](const QStringList& more) {
            QProcess process;
            process.setProcessEnvironment(environment);
            process.start(SHARDSCOPE_PROGRAM, QStringList{"validate", source} + more);
            process.waitForFinished(60'000);
            return std::pair(process.exitCode(), process.readAllStandardOutput().toStdString());
        };
        const std::string rule = entry["rule"];
        QCOMPARE(validate({"--accept", QString::fromStdString(rule)}).first, 2);  // without a reason
        QCOMPARE(validate({"--accept", "no.such", "--because", "x"}).first, 2);
        auto [code, said] = validate(
            {"--json", "--accepted", "--accept", QString::fromStdString(rule), "--because", "known"});
        QCOMPARE(code, 0);
        json judged = json::parse(said);
        COMPARE_JSON(judged["verdict"], json("safe"));
        COMPARE_JSON(judged["verdict_strict"], json("unsafe"));
        for (const json& finding : judged["findings"])
            QVERIFY(finding["accepted"]["reason"] ==
                    (finding["rule"] == rule ? "known" : "known <b>gap</b>"));
        COMPARE_JSON(server.document("/api/findings"), judged);
        QVERIFY(validate({"--accepted"}).second.find("accepted; without that: unsafe") != std::string::npos);
        // Without the option a gate counts what is missing.
        QCOMPARE(validate({}).first, 1);
        std::tie(code, said) = validate({"--json", "--no-accepted"});
        QCOMPARE(code, 1);
        const json strict = json::parse(said);
        COMPARE_JSON(strict["verdict"], json("unsafe"));
        COMPARE_JSON(strict, report);
        QCOMPARE(validate({"--withdraw", QString::fromStdString(rule)}).first, 1);
    }

    // Files, objects and values are those of `ls` and `show`.
    void filesObjectsAndSlices() {
        const QString source = genuine("t2.6.0-fsdp2-adam");
        const Served server({source});
        const json ls = runShardscope({"ls", source, "--json"}).json();
        const json files = server.document("/api/files?count=512");
        QCOMPARE(files["files"].size(), ls["files"].size());
        COMPARE_JSON(files["wrong"], json(0));
        uint64_t chunks = 0;
        for (size_t i = 0; i < ls["files"].size(); ++i) {
            for (const auto& [key, value] : ls["files"][i].items())
                COMPARE_JSON(files["files"][i][key], value);
            const json held =
                server.document("/api/file?count=1000&name=" + ls["files"][i]["path"].get<std::string>());
            COMPARE_JSON(held["file"], files["files"][i]);
            QCOMPARE(held["chunks"].size(), held["chunk_count"].get<size_t>());
            chunks += held["chunk_count"].get<uint64_t>();
            for (size_t c = 1; c < held["chunks"].size(); ++c)
                QVERIFY(held["chunks"][c - 1]["offset"] <= held["chunks"][c]["offset"]);
        }
        COMPARE_JSON(json(chunks), server.document("/api/info")["totals"]["chunks"]);
        const json objects = server.document("/api/objects?count=100");
        QVERIFY(!ls["objects"].empty());
        COMPARE_JSON(objects["total"], json(ls["objects"].size()));
        for (const json& object : objects["objects"]) {
            const auto id = object["id"].get<size_t>();
            json whole = server.document("/api/object?id=" + std::to_string(id));
            whole.erase("schema");
            COMPARE_JSON(whole, ls["objects"][id]);
        }
        for (const json& tensor : ls["tensors"]) {
            const std::string name = tensor["name"];
            const json shown =
                runShardscope({"show", source, QString::fromStdString(name), "--values", "--json"})
                    .json()["values"];
            if (shown["elements"] == 0 || tensor["shape"].size() > 2) continue;
            const json slice = server.document("/api/slice?name=" + name);
            COMPARE_JSON(slice["schema"], json("shardscope.slice/1"));
            if (slice["row_step"] != 1 || slice["column_step"] != 1) continue;
            COMPARE_JSON(json(slice["values"].size()), shown["elements"]);
            COMPARE_JSON(*std::min_element(slice["values"].begin(), slice["values"].end()), shown["min"]);
            if (tensor["shape"].size() != 2) continue;
            // A part of it is the same part.
            const json part = server.document("/api/slice?top=1&left=2&height=2&width=3&name=" + name);
            const auto columns = slice["columns"].get<size_t>();
            for (size_t i = 0; i < part["values"].size(); ++i)
                COMPARE_JSON(part["values"][i],
                             slice["values"][(1 + i / part["columns"].get<size_t>()) * columns + 2 +
                                             i % part["columns"].get<size_t>()]);
        }
        const std::string any = ls["tensors"][0]["name"];
        for (const auto& [bad, status] : {std::pair("file?name=/etc/passwd", 404),
                                          {"file?name=..", 404},
                                          {"object?id=999999", 404},
                                          {"object?id=-1", 400},
                                          {"slice?name=no", 404},
                                          {"files?first=x", 400},
                                          {"files?pattern=re:%28", 400},
                                          {"objects?count=9999", 400}})
            QCOMPARE(server.get(std::string("/api/") + bad, server.withToken())->status, status);
        for (const char* bad : {"&down=0&across=0", "&across=99", "&rows=1000", "&top=x"})
            QCOMPARE(server.get("/api/slice?name=" + any + bad, server.withToken())->status, 400);
        // What is missing is said.
        const Served damaged({genuine("t2.15.0-damaged-missing-file")});
        const json wrong = damaged.document("/api/files?wrong=1");
        COMPARE_JSON(wrong["total"], json(1));
        COMPARE_JSON(wrong["files"][0]["words"], json("missing"));
    }

    // A plan first; what is started is exactly what was planned, once, and only without obstacles.
    void planThenConvert() {
        QTemporaryDir state;
        const QProcessEnvironment environment = environmentIn(state.path());
        const QString source = genuine("t2.15.0-no-dist");
        const Served server({source, "--allow-jobs"}, environment);
        QCOMPARE(server.change("/api/convert", {{"plan", "1"}}).first, 404);
        const std::string destination = state.filePath("out").toStdString();
        json request{
            {"schema", "shardscope.recipe/1"},
            {"job", {{"destination", destination}, {"format", "safetensors"}, {"weights_only", true}}}};
        auto [status, plan] = server.change("/api/plan", request);
        QCOMPARE(status, 200);
        COMPARE_JSON(plan["obstacles"], json::array());
        COMPARE_JSON(plan["request"]["job"]["source"], json(source.toStdString()));
        QVERIFY(!QFile::exists(state.filePath("out")));  // nothing is written before it is started
        const json command = runShardscope({"plan", source, state.filePath("out"), "--to", "safetensors",
                                            "--weights-only", "--json"})
                                 .json();
        for (const auto& [key, value] : command.items())
            COMPARE_JSON(plan[key], value);
        json flow = plan["flow"];
        QCOMPARE(flow["headline"].get<std::string>().substr(0, 12), std::string("1 rank reads"));
        flow.erase("headline");
        COMPARE_JSON(flow, runShardscope({"plan", source, state.filePath("out"), "--to", "safetensors",
                                          "--weights-only", "--flow", "--json"})
                               .json()["flow"]);
        const std::string drawn = "/api/plan/flow?plan=" + plan["id"].get<std::string>();
        QCOMPARE(server.get(drawn, server.withToken())->body.substr(0, 4), std::string("<svg"));
        auto [started, job] = server.change("/api/convert", {{"plan", plan["id"]}});
        QCOMPARE(started, 200);
        QCOMPARE(server.change("/api/convert", {{"plan", plan["id"]}}).first, 404);  // once
        QCOMPARE(server.get(drawn, server.withToken())->status, 404);
        const auto state0 = [&] {
            return server.document("/api/jobs")["jobs"][0]["state"].get<std::string>();
        };
        QTRY_COMPARE_WITH_TIMEOUT(state0(), std::string("done"), 60'000);
        COMPARE_JSON(server.document("/api/jobs")["jobs"][0]["id"], job["id"]);
        COMPARE_JSON(runShardscope({"diff", source, state.filePath("out"), "--json"}).json()["shape"],
                     json::array());
        QCOMPARE(server.change("/api/jobs/resume", {{"id", job["id"]}}).first, 409);  // it is done

        // The destination is there now: the same plan has an obstacle, and cannot be started.
        plan = server.change("/api/plan", request).second;
        QCOMPARE(plan["obstacles"].size(), size_t{1});
        QCOMPARE(server.change("/api/convert", {{"plan", plan["id"]}}).first, 409);
        request["job"]["overwrite"] = true;
        plan = server.change("/api/plan", request).second;
        COMPARE_JSON(plan["obstacles"], json::array());
        // Whatever the request says: the source is the checkpoint that is shown, and never written into.
        request["job"]["source"] = "/etc";
        COMPARE_JSON(server.change("/api/plan", request).second["source"]["path"],
                     json(source.toStdString()));
        for (const std::string& bad :
             {std::string(), std::string("relative"), source.toStdString() + "/inside"}) {
            request["job"]["destination"] = bad;
            QCOMPARE(server.change("/api/plan", request).first, 400);
        }
        for (const char* bad : {"", "{", "[1]", R"({"job":{"no such":1}})", R"({"job":[]})"})
            QCOMPARE(server.post("/api/plan", server.own(), bad)->status, 400);
    }

    // No request makes the server ask others, with credentials that are not those of who asks.
    void opensNoUrlThatARequestNames() {
        HttpServer others([](const Asked&) { return Answered{404}; });
        QTemporaryDir state;
        QProcessEnvironment environment = environmentIn(state.path());
        const QString there = QString::fromStdString(others.url());
        for (const char* name : {"AWS_ENDPOINT_URL", "HF_ENDPOINT", "STORAGE_EMULATOR_HOST", "http_proxy"})
            environment.insert(name, there);
        for (const char* name : {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "GOOGLE_OAUTH_ACCESS_TOKEN"})
            environment.insert(name, "hidden");
        environment.insert("SHARDSCOPE_SSH", "/bin/false");
        const Served server({genuine("t2.15.0-no-dist"), "--allow-jobs"}, environment);
        const std::string destination = state.filePath("out").toStdString();
        for (const std::string& url : {std::string("s3://b1/run"), std::string("gs://b1/run"),
                                       std::string("hf://org/model"), others.url() + "/m.safetensors",
                                       std::string("https://127.0.0.1:1/m"), std::string("ssh://h/run")}) {
            for (const char* route :
                 {"/api/diff?with=", "/api/diff/svg?with=", "/api/recipes/fitting?model="}) {
                const auto answer = server.get(route + url, server.withToken());
                QVERIFY2(answer && answer->status == 403, (route + url).c_str());
                QVERIFY(answer->body.find("opens no URL") != std::string::npos);
            }
            for (const char* field :
                 {"destination", "adapter", "like", "map", "expect", "assets", "objects"}) {
                json job{{"destination", destination}, {"format", "safetensors"}};
                job[field] = url;
                const auto [status, said] =
                    server.change("/api/plan", {{"schema", "shardscope.recipe/1"}, {"job", job}});
                QVERIFY2(status == 403, (field + (" " + url)).c_str());
            }
        }
        QVERIFY(others.asked().empty());
        QVERIFY(server.get("/api/diff?with=" + genuine("t2.15.0-no-dist").toStdString(), server.withToken())
                    ->status == 200);
    }

    // The directory of a run: its steps as `info` has them; one is opened by its name, and by nothing else.
    void aRun() {
        QTemporaryDir run;
        for (const char* step : {"step-100", "step-200"})
            QCOMPARE(
                QProcess::execute("cp", {"-r",
                                         genuine(step == std::string("step-100") ? "t2.15.0-no-dist"
                                                                                 : "t2.15.0-damaged-gap"),
                                         run.filePath(step)}),
                0);
        const QProcessEnvironment environment = environmentIn(run.filePath("state"));
        QVERIFY(QDir(run.path()).mkdir("state"));
        const Served server({run.path()}, environment);
        COMPARE_JSON(server.document("/api/page")["shows"], json("run"));
        QCOMPARE(server.document("/api/run")["steps"].size(), size_t{2});
        QCOMPARE(server.get("/api/info", server.withToken())->status, 404);
        for (const char* bad : {"..", "step-300", "/etc", "step-100/..", "state"})
            QCOMPARE(server.get("/api/info?step=" + std::string(bad), server.withToken())->status, 404);
        QVERIFY(server.document("/api/info?step=step-100")["path"].get<std::string>().ends_with("step-100"));
        QTRY_VERIFY_WITH_TIMEOUT(server.document("/api/findings?step=step-200").contains("verdict"), 20'000);
        COMPARE_JSON(server.document("/api/findings?step=step-200")["verdict"], json("unsafe"));
        // The run remembers what was found.
        const auto known = [&] {
            const json listed = server.document("/api/run");
            for (const json& step : listed["steps"]) {
                if (step["name"] == "step-200") return step["verdict"];
            }
            return json();
        };
        QTRY_COMPARE_WITH_TIMEOUT(known().dump(), std::string("\"unsafe\""), 20'000);
        QProcess info;
        info.setProcessEnvironment(environment);
        info.start(SHARDSCOPE_PROGRAM, {"info", run.path(), "--json"});
        QVERIFY(info.waitForFinished(60'000));
        COMPARE_JSON(server.document("/api/run"), json::parse(info.readAllStandardOutput().toStdString()));
    }

    void jobsAsTheyGoOn() {
        QTemporaryDir state;
        const QProcessEnvironment environment = environmentIn(state.path());
        const Served server({"--jobs"}, environment);
        COMPARE_JSON(server.document("/api/info"), json());
        COMPARE_JSON(server.document("/api/jobs")["jobs"], json::array());
        // The stream says it as soon as it happens.
        std::string streamed;
        std::thread reader([&] {
            httplib::Client client("127.0.0.1", server.port);
            client.set_read_timeout(30);
            client.Get("/api/events", server.withToken(), [&](const char* data, size_t size) {
                streamed.append(data, size);
                return streamed.find("\"state\":\"done\"") == std::string::npos;
            });
        });
        QProcess job;
        job.setProcessEnvironment(environment);
        job.start(SHARDSCOPE_PROGRAM, {"jobs", "run", "--wait", "convert", genuine("t2.15.0-no-dist"),
                                       state.filePath("out"), "--to", "safetensors", "--weights-only"});
        QVERIFY(job.waitForFinished(60'000));
        QCOMPARE(job.exitCode(), 0);
        reader.join();
        QVERIFY2(streamed.starts_with("event: jobs\ndata: {"), streamed.c_str());
        QVERIFY(streamed.find("\"state\":\"done\"") != std::string::npos);
        COMPARE_JSON(server.document("/api/jobs")["jobs"][0]["state"], json("done"));
    }

    // Without the token nobody makes the server grow, and nobody keeps others out.
    void whoNeverFinishesAsking() {
        Served server({genuine("t2.15.0-no-dist")});
        QVERIFY(server.document("/api/info").is_object());
        const auto memory = [&] {
            QFile status(QStringLiteral("/proc/%1/statm").arg(server.pid()));
            return status.open(QIODevice::ReadOnly) ? status.readAll().split(' ').value(1).toLongLong() * 4096
                                                    : 0;
        };
        const qint64 before = memory();
        std::vector<int> sockets;
        for (int i = 0; i < 300; ++i) {
            sockets.push_back(connectTo(server.port));
            const std::string begun = i % 2 ? "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " : "GET /";
            (void)::send(sockets.back(), begun.data(), begun.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        }
        const std::string more(1 << 20, 'A');
        for (int round = 0; round < 64; ++round) {
            for (size_t i = sockets.size() - 4; i < sockets.size(); ++i)
                (void)::send(sockets[i], more.data(), more.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
            if (round % 16 == 0) QVERIFY(server.document("/api/info").is_object());
        }
        QVERIFY2(memory() - before < (qint64{32} << 20), std::to_string(memory() - before).c_str());
        // Those that lack the token are told so, and a body that never comes keeps none of the threads.
        for (int i = 0; i < 40; ++i) {
            const std::string begun =
                "POST /api/plan HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 60000\r\n\r\n{";
            (void)::send(sockets[static_cast<size_t>(i)] = connectTo(server.port), begun.data(), begun.size(),
                         MSG_NOSIGNAL);
        }
        QVERIFY(server.document("/api/info").is_object());
        for (const int socket : sockets)
            ::close(socket);
        QCOMPARE(server.end(), 0);
    }

    // What is not HTTP, or too much of it, gets no further; the server continues.
    void garbage() {
        Served server({genuine("t2.15.0-no-dist")});
        const std::string good = "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n";
        for (const std::string& bytes :
             {std::string(100'000, '\0'), std::string(100'000, 'A'),
              "GET /" + std::string(1'000'000, 'a') + " HTTP/1.1\r\n\r\n",
              good + std::string(500'000, 'h') + ": x\r\n\r\n",
              good + "Content-Length: 99999999999999999999\r\n\r\n",
              good + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
              good + "Host: evil.example\r\n\r\n", std::string("\r\n\r\n\r\n"), std::string("GET")}) {
            const int raw = connectTo(server.port);
            QVERIFY(raw >= 0);
            (void)::send(raw, bytes.data(), bytes.size(), MSG_NOSIGNAL);
            ::close(raw);
            QVERIFY(server.document("/api/info").is_object());
        }
        QCOMPARE(server.end(), 0);
    }

    void usage() {
        QCOMPARE(runShardscope({"serve"}).exitCode, 2);
        QCOMPARE(runShardscope({"serve", "/nowhere"}).exitCode, 3);
        QCOMPARE(runShardscope({"serve", "--jobs", "--port", "65536"}).exitCode, 2);
        const Served server({"--jobs"});
        QCOMPARE(runShardscope({"serve", "--jobs", "--port", QString::number(server.port)}).exitCode, 4);
    }
};

QTEST_GUILESS_MAIN(ServeCliTest)
#include "serve_cli_test.moc"
