// The browser page: who gets an answer, what the answers are, and the page itself in a real browser.
#include <QDir>
#include <QElapsedTimer>
#include <QFile>
#include <QProcess>
#include <QStandardPaths>
#include <QTemporaryDir>
#include <QTest>
#include <csignal>
#include <thread>

#include <arpa/inet.h>
#include <httplib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cli/run_shardscope.h"
#include "engine/suppressions.h"
#include "serve/page_server.h"
#include "support/recorded_job.h"

using namespace shardscope;
using namespace shardscope::test;
using nlohmann::json;

namespace {

QString genuine(const char* name) {
    return QStringLiteral(SHARDSCOPE_TEST_DATA "/genuine/dcp/%1/ckpt").arg(name);
}

// With settings and jobs of its own, in a directory of the test.
QProcessEnvironment environmentIn(const QString& directory) {
    QProcessEnvironment environment = QProcessEnvironment::systemEnvironment();
    for (const char* home : {"XDG_STATE_HOME", "XDG_CONFIG_HOME"})
        environment.insert(home, directory);
    return environment;
}

// A server of its own, ended with it.
class Served {
  public:
    explicit Served(const QStringList& words,
                    const QProcessEnvironment& environment = QProcessEnvironment::systemEnvironment()) {
        process_.setProcessEnvironment(environment);
        process_.start(SHARDSCOPE_PROGRAM, QStringList{"serve", "--json"} + words);
        if (!process_.waitForStarted() || !process_.waitForReadyRead(30'000)) return;
        const json said = json::parse(process_.readLine().toStdString(), nullptr, false);
        if (!said.is_object()) return;
        url = said["url"];
        port = said["port"];
        token = url.substr(url.find('=') + 1);
    }
    ~Served() { end(); }
    int end() {
        if (process_.state() != QProcess::NotRunning) {
            ::kill(static_cast<pid_t>(process_.processId()), SIGTERM);
            if (!process_.waitForFinished(20'000)) return -1;
        }
        return process_.exitStatus() == QProcess::NormalExit ? process_.exitCode() : -1;
    }
    httplib::Headers cookie() const {
        return {{"Cookie", "other=1; shardscope-" + std::to_string(port) + "=" + token}};
    }
    httplib::Result get(const std::string& path, const httplib::Headers& headers) const {
        httplib::Client client("127.0.0.1", port);
        client.set_read_timeout(20);
        return client.Get(path.c_str(), headers);
    }
    // As the page itself asks: from its own address.
    httplib::Headers own() const {
        httplib::Headers headers = cookie();
        headers.emplace("Origin", "http://127.0.0.1:" + std::to_string(port));
        headers.emplace("Host", "127.0.0.1:" + std::to_string(port));
        return headers;
    }
    httplib::Result post(const std::string& path, const httplib::Headers& headers, const std::string& body,
                         const char* type = "application/json") const {
        httplib::Client client("127.0.0.1", port);
        client.set_read_timeout(60);
        return client.Post(path.c_str(), headers, body, type);
    }
    std::pair<int, json> change(const std::string& path, const json& body) const {
        const auto answer = post(path, own(), body.dump());
        return answer ? std::pair(answer->status, json::parse(answer->body, nullptr, false))
                      : std::pair(0, json());
    }
    json document(const std::string& path) const {
        const auto answer = get(path, cookie());
        return answer && answer->status == 200 ? json::parse(answer->body, nullptr, false) : json();
    }

    std::string url, token;
    int port = 0;

  private:
    QProcess process_;
};

// Chromium without a window, driven through its debugging pipe.
class Browser {
  public:
    explicit Browser(bool dark = false) : dark_(dark) {
        process_.start("bash", {"-c",
                                "exec chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage "
                                "--user-data-dir=\"$0\" "
                                "--window-size=1280,800 --remote-debugging-pipe 3<&0 4>&1 >/dev/null 2>&1",
                                profile_.path()});
        process_.waitForStarted();
    }
    ~Browser() {
        call("Browser.close", {});
        if (!process_.waitForFinished(10'000)) process_.kill();
        process_.waitForFinished();
    }

    bool open(const std::string& url) {
        const json target = call("Target.createTarget", {{"url", "about:blank"}});
        if (!target.contains("targetId")) return false;
        session_ = call("Target.attachToTarget", {{"targetId", target["targetId"]}, {"flatten", true}})
                       .value("sessionId", "");
        if (dark_)
            call("Emulation.setEmulatedMedia",
                 {{"features", json::array({{{"name", "prefers-color-scheme"}, {"value", "dark"}}})}});
        call("Log.enable", {});
        call("Runtime.enable", {});
        return call("Page.navigate", {{"url", url}}).contains("frameId");
    }
    QString evaluate(const std::string& expression) {
        const json answer =
            call("Runtime.evaluate",
                 {{"expression", expression}, {"returnByValue", true}, {"awaitPromise", true}});
        const json value = answer.contains("result") ? answer["result"].value("value", json()) : json();
        return value.is_string() ? QString::fromStdString(value) : QString();
    }
    // Of an element; empty when there is none.
    QString text(const std::string& id, const std::string& property = "innerText") {
        return evaluate("document.getElementById('" + id + "')?." + property + " ?? ''");
    }
    void setScreen(int width, int height, int scale) {
        call("Emulation.setDeviceMetricsOverride",
             {{"width", width}, {"height", height}, {"deviceScaleFactor", scale}, {"mobile", false}});
    }
    // As many as on a display with so many pixels for each point.
    void setPixels(int scale) { setScreen(1280, 800, scale); }
    // Into SHARDSCOPE_SCREENSHOTS, when it is set.
    void shoot(const QString& name) {
        const QString directory = qEnvironmentVariable("SHARDSCOPE_SCREENSHOTS");
        if (directory.isEmpty()) return;
        setPixels(qEnvironmentVariable("SHARDSCOPE_SCALE", "1").toInt());
        // What that changed is painted: the map whole, and with the pixels of the screen.
        evaluate(
            "new Promise((done) => { const frame = (then) => requestAnimationFrame(() => "
            "requestAnimationFrame(then)), box = document.getElementById('map-box'), look = () => "
            "!box?.clientWidth || (shardscopeFrames.whole && document.getElementById('map').width === "
            "Math.round(box.clientWidth * devicePixelRatio)) ? frame(() => done('')) : frame(look); "
            "frame(look); })");
        const json picture = call("Page.captureScreenshot", {{"format", "png"}});
        QFile file(directory + "/" + name + ".png");
        if (file.open(QIODevice::WriteOnly))
            file.write(QByteArray::fromBase64(QByteArray::fromStdString(picture.value("data", ""))));
    }

    QByteArray complaints;  // errors and warnings of the page, refused by its policy or thrown

  private:
    json call(const std::string& method, const json& parameters) {
        json message{{"id", ++last_},
                     {"method", method},
                     {"params", parameters.is_null() ? json::object() : parameters}};
        if (!session_.empty()) message["sessionId"] = session_;
        process_.write(QByteArray::fromStdString(message.dump()) + '\0');
        QElapsedTimer timer;
        timer.start();
        while (timer.elapsed() < 60'000) {
            for (qsizetype end; (end = received_.indexOf('\0')) >= 0;) {
                const json said = json::parse(received_.left(end).toStdString(), nullptr, false);
                received_.remove(0, end + 1);
                const std::string event = said.value("method", "");
                if (event == "Runtime.exceptionThrown" || event == "Log.entryAdded")
                    complaints += QByteArray::fromStdString(said.dump()) + "\n";
                if (said.value("id", 0) == last_) return said.value("result", json::object());
            }
            if (!process_.waitForReadyRead(1000) && process_.state() == QProcess::NotRunning) break;
            received_ += process_.readAllStandardOutput();
        }
        return json::object();
    }

    const bool dark_;
    QTemporaryDir profile_;
    QProcess process_;
    QByteArray received_;
    std::string session_;
    int last_ = 0;
};

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
        QCOMPARE(cli::isLoopbackHost(host.toStdString()), own);
    }

    void onlyWithTheToken() {
        const Served server({genuine("t2.15.0-no-dist")});
        QVERIFY(server.port > 0);
        const auto status = [&](const std::string& path, httplib::Headers headers) {
            const auto answer = server.get(path, headers);
            return answer ? answer->status : 0;
        };
        QCOMPARE(status("/", {}), 403);
        QCOMPARE(status("/api/info", {}), 403);
        QCOMPARE(status("/?token=" + std::string(48, '0'), {}), 403);
        QCOMPARE(status("/?token=", {}), 403);
        QCOMPARE(status("/", {{"Cookie", "shardscope-" + std::to_string(server.port) + "=x"}}), 403);
        QCOMPARE(status("/api/info?token=" + server.token, {}), 403);  // only the first page takes it so
        const auto first = server.get("/?token=" + server.token, {});
        QVERIFY(first);
        QCOMPARE(first->status, 303);
        const std::string cookie = first->get_header_value("Set-Cookie");
        QVERIFY(cookie.find("HttpOnly") != std::string::npos &&
                cookie.find("SameSite=Strict") != std::string::npos);
        QVERIFY(first->body.find(server.token) == std::string::npos);

        const auto page = server.get("/", server.cookie());
        QVERIFY(page);
        QCOMPARE(page->status, 200);
        const std::string policy = page->get_header_value("Content-Security-Policy");
        QVERIFY(policy.find("default-src 'none'") != std::string::npos &&
                policy.find("unsafe") == std::string::npos);
        QVERIFY(page->body.find("http://") == std::string::npos &&
                page->body.find("https://") == std::string::npos);
        QVERIFY(page->body.find("style=") == std::string::npos &&
                page->body.find("onclick") == std::string::npos);
        for (const char* file : {"/page.js", "/map.js", "/common.js", "/page.css"})
            QCOMPARE(status(file, server.cookie()), 200);
        QCOMPARE(status("/map.js", {}), 403);
        QCOMPARE(status("/../etc/passwd", server.cookie()), 404);

        // A page of another site, by a name that resolves here or from its own origin.
        httplib::Headers foreign = server.cookie();
        foreign.emplace("Host", "evil.example:" + std::to_string(server.port));
        QCOMPARE(status("/api/info", foreign), 403);
        httplib::Headers origin = server.cookie();
        origin.emplace("Origin", "http://evil.example");
        QCOMPARE(status("/api/info", origin), 403);
        httplib::Headers own = server.cookie();
        own.emplace("Origin", "http://127.0.0.1:" + std::to_string(server.port));
        own.emplace("Host", "127.0.0.1:" + std::to_string(server.port));
        QCOMPARE(status("/api/info", own), 200);
        // Through a tunnel the port is another one.
        httplib::Headers tunnel = server.cookie();
        tunnel.emplace("Host", "localhost:4711");
        QCOMPARE(status("/api/info", tunnel), 200);
        httplib::Client client("127.0.0.1", server.port);
        const auto posted = client.Post("/api/info", server.cookie(), "x", "text/plain");
        QVERIFY(posted);
        QCOMPARE(posted->status, 405);
        const auto deleted = client.Delete("/api/jobs", server.cookie());
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
        // What cannot be read is the same error.
        for (const json& tensor : ls) {
            const std::string of = tensor["name"];
            const json valued =
                runShardscope({"show", source, QString::fromStdString(of), "--values", "--json"}).json();
            const auto answer = server.get("/api/tensor?count=1000&values=1&name=" + of, server.cookie());
            COMPARE_JSON(json::parse(answer->body, nullptr, false), valued);
        }
        json placement = server.document("/api/placement?columns=1&slices=1");
        placement.erase("generation");
        COMPARE_JSON(placement, runShardscope({"map", source, "--json", "--slices"}).json());
        QCOMPARE(placement["columns"].size(), overview["totals"]["ranks"].get<size_t>());
        COMPARE_JSON(server.document("/api/placement?first=1&count=1&pattern=*weight*")["rows"].size() <= 1,
                     json(true));
        const auto tile = server.get("/api/placement/tile?down=0&across=0&row=0&column=0", server.cookie());
        QCOMPARE(tile->status, 200);
        QCOMPARE(tile->body.size(), size_t{256 * 256});
        QVERIFY(tile->body.find_first_not_of('\0') != std::string::npos);
        // Whatever stands outside of the map is empty.
        const auto outside = server.get(
            "/api/placement/tile?down=31&across=31&row=4294967295&column=4294967295", server.cookie());
        QCOMPARE(outside->body, std::string(256 * 256, '\0'));
        for (const char* bad :
             {"placement?first=x", "placement?count=-1", "placement?first=99999999999999999999",
              "placement?pattern=re:%28", "placement/tile?down=32", "placement/tile?row=-1",
              "placement/cell?row=100000", "tensors?first=1e3", "tensors?count=9999999",
              "tensor?first=x&name=a"})
            QCOMPARE(server.get("/api/" + std::string(bad), server.cookie())->status,
                     std::string(bad) == "tensor?first=x&name=a" ? 404 : 400);
        const json missing = server.document("/api/placement/cell?row=0&column=0");
        QVERIFY(missing["text"].get<std::string>().find("rank 0") != std::string::npos);
        for (const QString& second : {source, genuine("t2.15.0-damage-base")})
            COMPARE_JSON(server.document("/api/diff?with=" + second.toStdString()),
                         runShardscope({"diff", source, second, "--json"}).json());
        QCOMPARE(server.get("/api/diff?with=/nowhere", server.cookie())->status, 404);
        // Reading every byte of two checkpoints is a job.
        QCOMPARE(server.get("/api/diff?values=1&with=" + source.toStdString(), server.cookie())->status, 403);
        COMPARE_JSON(server.document("/api/formats"), runShardscope({"formats", "--json"}).json());
        COMPARE_JSON(server.document("/api/recipes"), runShardscope({"recipes", "--json"}).json());
        QVERIFY(server.document("/api/rules")["rules"].contains("coverage.gap"));
        COMPARE_JSON(server.document("/api/run"), json());
        COMPARE_JSON(server.document("/api/page")["shows"], json("checkpoint"));
        QTRY_VERIFY_WITH_TIMEOUT(server.document("/api/findings").contains("verdict"), 20'000);
        COMPARE_JSON(server.document("/api/findings"), runShardscope({"validate", source, "--json"}).json());
        COMPARE_JSON(server.document("/api/jobs"), json());
        QCOMPARE(server.end(), 0);
    }

    // Without --allow-jobs every request that would change something is refused.
    void onlyShows() {
        const Served server({genuine("t2.15.0-no-dist"), "--jobs"});
        for (const char* path :
             {"validate", "validate/cancel", "accept", "plan", "convert", "jobs/cancel", "jobs/resume"}) {
            QCOMPARE(server.change(std::string("/api/") + path, json::object()).first, 405);
            QCOMPARE(server.get(std::string("/api/") + path, server.cookie())->status, 404);
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
        headers.erase("Cookie");
        QCOMPARE(status(headers), 403);          // no token
        QCOMPARE(status(server.cookie()), 403);  // no origin
        headers = server.cookie();
        headers.emplace("Origin", "http://evil.example");
        QCOMPARE(status(headers), 403);
        headers = server.cookie();
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
        auto [code, said] =
            validate({"--json", "--accept", QString::fromStdString(rule), "--because", "known"});
        QCOMPARE(code, 0);
        json judged = json::parse(said);
        COMPARE_JSON(judged["verdict"], json("safe"));
        COMPARE_JSON(judged["verdict_strict"], json("unsafe"));
        for (const json& finding : judged["findings"])
            QVERIFY(finding["accepted"]["reason"] ==
                    (finding["rule"] == rule ? "known" : "known <b>gap</b>"));
        COMPARE_JSON(server.document("/api/findings"), judged);
        QVERIFY(validate({}).second.find("accepted; without that: unsafe") != std::string::npos);
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
            QCOMPARE(server.get(std::string("/api/") + bad, server.cookie())->status, status);
        for (const char* bad : {"&down=0&across=0", "&across=99", "&rows=1000", "&top=x"})
            QCOMPARE(server.get("/api/slice?name=" + any + bad, server.cookie())->status, 400);
        // What is missing is said.
        const Served damaged({genuine("t2.15.0-damaged-missing-file")});
        const json wrong = damaged.document("/api/files?wrong=1");
        COMPARE_JSON(wrong["total"], json(1));
        COMPARE_JSON(wrong["files"][0]["words"], json("missing"));
    }

    // Several steps of a run, by their names alone, planned before they are averaged.
    void averaging() {
        QTemporaryDir run;
        const QProcessEnvironment environment = environmentIn(run.filePath("state"));
        QVERIFY(QDir(run.path()).mkdir("state") && QDir(run.path()).mkdir("run"));
        for (const char* step : {"step-100", "step-200"})
            QCOMPARE(QProcess::execute("cp", {"-r", genuine("t2.15.0-no-dist"), run.filePath("run/") + step}),
                     0);
        const Served server({run.filePath("run"), "--allow-jobs"}, environment);
        const auto request = [&](const std::string& other) {
            return json{
                {"schema", "shardscope.recipe/1"},
                {"job", {{"destination", run.filePath("average").toStdString()}, {"average", {other}}}}};
        };
        for (const char* bad : {"/etc", "..", "step-300", "step-100/.."})
            QCOMPARE(server.change("/api/plan?step=step-200", request(bad)).first, 404);
        const auto [status, plan] = server.change("/api/plan?step=step-200", request("step-100"));
        QCOMPARE(status, 200);
        COMPARE_JSON(plan["obstacles"], json::array());
        QCOMPARE(plan["average"]["inputs"].size(), size_t{2});
        COMPARE_JSON(plan["average"]["inputs"][0]["path"], json(run.filePath("run/step-100").toStdString()));
        QVERIFY(!QFile::exists(run.filePath("average")));
        QCOMPARE(server.change("/api/convert", {{"plan", plan["id"]}}).first, 200);
        QTRY_COMPARE_WITH_TIMEOUT(server.document("/api/jobs")["jobs"][0]["state"].get<std::string>(),
                                  std::string("done"), 60'000);
        // The average of two that are equal.
        QVERIFY(runShardscope(
                    {"diff", run.filePath("average"), run.filePath("run/step-200"), "--values", "--json"})
                    .json()["values"]
                    .empty());
        // Where no run is served there are no steps.
        const Served alone({run.filePath("run/step-200"), "--allow-jobs"}, environment);
        QCOMPARE(alone.change("/api/plan", request("step-100")).first, 400);

        if (QStandardPaths::findExecutable("chromium").isEmpty())
            QSKIP("chromium is not installed (package chromium)");
        Browser browser;
        QVERIFY(browser.open(server.url));
        const auto text = [&](const char* id) { return browser.text(id, "textContent"); };
        QTRY_VERIFY_WITH_TIMEOUT(text("average").contains("step-100"), 60'000);
        browser.evaluate(
            "document.getElementById('average').open = true;"
            "for (const box of document.querySelectorAll('#average .checks input')) box.click();"
            "document.getElementById('average-destination').value = '" +
            run.filePath("other").toStdString() +
            "'; document.querySelector('#average button.main').click()");
        QTRY_VERIFY_WITH_TIMEOUT(text("average-plan").contains("This can run"), 30'000);
        QVERIFY(text("average-plan").contains("Averaged in fp32"));
        browser.shoot("serve-average");
        QVERIFY2(browser.complaints.isEmpty(), browser.complaints.constData());
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
        auto [started, job] = server.change("/api/convert", {{"plan", plan["id"]}});
        QCOMPARE(started, 200);
        QCOMPARE(server.change("/api/convert", {{"plan", plan["id"]}}).first, 404);  // once
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
        QCOMPARE(server.get("/api/info", server.cookie())->status, 404);
        for (const char* bad : {"..", "step-300", "/etc", "step-100/..", "state"})
            QCOMPARE(server.get("/api/info?step=" + std::string(bad), server.cookie())->status, 404);
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
            client.Get("/api/events", server.cookie(), [&](const char* data, size_t size) {
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

    // The command line and the page say the same of a job; jobs_test has the window.
    void progressOfJobs() {
        QTemporaryDir state;
        QVERIFY(RecordedJob::write(state.filePath("shardscope/jobs")));
        const QProcessEnvironment environment = environmentIn(state.path());
        const auto said = [&](const QStringList& words) {
            QProcess process;
            process.setProcessEnvironment(environment);
            process.start(SHARDSCOPE_PROGRAM, QStringList{"jobs"} + words);
            process.waitForFinished(60'000);
            return process.readAllStandardOutput();
        };
        QVERIFY(said({"list"}).contains(RecordedJob::text));
        QVERIFY(said({"show", RecordedJob::id}).contains(RecordedJob::text));
        const json overall = json::parse(said({"list", "--json"}).toStdString())["jobs"][0]["overall"];
        QCOMPARE(overall["share"].get<double>(), RecordedJob::share);
        QCOMPARE(overall["rate"].get<double>(), RecordedJob::rate);
        QCOMPARE(overall["seconds_left"].get<double>(), RecordedJob::secondsLeft);
        const Served server({"--jobs"}, environment);
        COMPARE_JSON(server.document("/api/jobs")["jobs"][0]["overall"], overall);
        if (QStandardPaths::findExecutable("chromium").isEmpty())
            QSKIP("chromium is not installed (package chromium)");
        Browser browser;
        QVERIFY(browser.open(server.url));
        const auto shown = [&] { return browser.evaluate("document.getElementById('jobs').textContent"); };
        QTRY_VERIFY_WITH_TIMEOUT(shown().contains(RecordedJob::text), 60'000);
        QCOMPARE(browser.evaluate("String(document.querySelector('#jobs progress').value)"),
                 QString::number(RecordedJob::share));
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
            const int raw = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
            sockaddr_in where{};
            where.sin_family = AF_INET;
            where.sin_port = htons(static_cast<uint16_t>(server.port));
            where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
            QCOMPARE(::connect(raw, reinterpret_cast<sockaddr*>(&where), sizeof where), 0);
            (void)::send(raw, bytes.data(), bytes.size(), MSG_NOSIGNAL);
            ::close(raw);
            QVERIFY(server.document("/api/info").is_object());
        }
        QCOMPARE(server.end(), 0);
    }

    // Names that want to be markup, scripts, addresses or another direction of writing stay text.
    void hostileNames() {
        if (QStandardPaths::findExecutable("chromium").isEmpty())
            QSKIP("chromium is not installed (package chromium)");
        QTemporaryDir directory;
        json header;
        int64_t at = 0;
        for (const char* name :
             {"<img src=x onerror=document.title=1>.weight", "</script><script>document.title=1</script>",
              "a&amp;b\"'`${document.title=1}.0.w", "javascript:document.title=1", "\u202Egnp.weight",
              "__proto__", "constructor.0.w"}) {
            header[name] = {{"dtype", "F32"}, {"shape", {1}}, {"data_offsets", {at, at + 4}}};
            at += 4;
        }
        const std::string text = header.dump();
        QFile file(directory.filePath("<b>model.safetensors"));
        QVERIFY(file.open(QIODevice::WriteOnly));
        QByteArray bytes;
        for (int i = 0; i < 8; ++i)
            bytes.append(static_cast<char>(text.size() >> (8 * i)));
        file.write(bytes + QByteArray::fromStdString(text) + QByteArray(at, '\0'));
        file.close();
        const Served server({file.fileName()});
        QVERIFY(server.port > 0);
        Browser browser;
        QVERIFY(browser.open(server.url));
        const auto said = [&] { return browser.evaluate("document.body.innerText"); };
        QTRY_VERIFY_WITH_TIMEOUT(said().contains("Live"), 60'000);
        for (const char* tab : {"findings", "placement", "tensors"}) {
            browser.evaluate(std::string("document.getElementById('tab-") + tab + "').click()");
            QTRY_VERIFY_WITH_TIMEOUT(
                browser.evaluate(std::string("document.getElementById('") + tab + "').innerText").size() > 20,
                30'000);
        }
        QTRY_VERIFY_WITH_TIMEOUT(said().contains("<img src=x onerror=document.title=1>.weight"), 30'000);
        browser.evaluate(
            "[...document.querySelectorAll('#tensors button.link')].find((one) => "
            "one.textContent.startsWith('<img')).click()");
        QTRY_VERIFY_WITH_TIMEOUT(said().contains("All tensors"), 30'000);
        QVERIFY(browser.evaluate("document.title").contains("<b>model.safetensors"));
        QCOMPARE(browser.evaluate(
                     "String(document.querySelectorAll('main img, main script, main b b, h1 b').length)"),
                 QString("0"));
        QVERIFY2(browser.complaints.isEmpty(), browser.complaints.constData());
    }

    void usage() {
        QCOMPARE(runShardscope({"serve"}).exitCode, 2);
        QCOMPARE(runShardscope({"serve", "/nowhere"}).exitCode, 3);
        QCOMPARE(runShardscope({"serve", "--jobs", "--port", "65536"}).exitCode, 2);
        const Served server({"--jobs"});
        QCOMPARE(runShardscope({"serve", "--jobs", "--port", QString::number(server.port)}).exitCode, 4);
    }

    // A real browser takes the address, gets the cookie, runs the script under the policy and shows what was
    // found.
    void inABrowser() {
        if (QStandardPaths::findExecutable("chromium").isEmpty())
            QSKIP("chromium is not installed (package chromium)");
        QTemporaryDir state;
        const QProcessEnvironment environment = environmentIn(state.path());
        const QString source = genuine("t2.15.0-damaged-gap");
        const Served server({source, "--allow-jobs"}, environment);
        Browser browser;
        QVERIFY(browser.open(server.url));
        const auto text = [&](const char* id) { return browser.text(id); };
        const auto click = [&](const char* what) {
            browser.evaluate(std::string("document.querySelector(\"") + what + "\").click()");
        };
        QTRY_VERIFY_WITH_TIMEOUT(text("state").contains("Live; validating"), 60'000);
        QVERIFY(browser.evaluate("document.title").startsWith(source));
        QCOMPARE(browser.evaluate("location.href").contains("token"), false);
        QTRY_VERIFY_WITH_TIMEOUT(text("verdict").contains("Do not resume"), 30'000);
        browser.shoot("serve-overview");
        click("#tab-findings");
        QTRY_VERIFY_WITH_TIMEOUT(text("findings").contains("coverage.gap"), 30'000);
        browser.shoot("serve-findings");

        click("#tab-placement");
        QTRY_VERIFY_WITH_TIMEOUT(text("map-cell").contains("point at a cell"), 30'000);
        const auto key = [&](const char* name) {
            browser.evaluate(std::string("document.getElementById('map-scroll').dispatchEvent(new "
                                         "KeyboardEvent('keydown', {key: '") +
                             name + "'}))");
        };
        key("ArrowDown");
        QTRY_VERIFY_WITH_TIMEOUT(text("map-cell").contains("rank 0"), 30'000);
        key("f");
        QTRY_VERIFY_WITH_TIMEOUT(text("map-cell").contains("no rank holds"), 30'000);
        for (const char* name : {"+", "-", "0", "PageDown", "Home", "End"})
            key(name);
        browser.shoot("serve-placement");
        QVERIFY2(browser.complaints.isEmpty(), browser.complaints.constData());
        key("Enter");
        QTRY_VERIFY_WITH_TIMEOUT(text("tensors").contains("Chunks"), 30'000);
        QVERIFY(text("tensors").contains("no rank holds"));
        // One that is whole.
        click("#tensors .list p button");
        QTRY_VERIFY_WITH_TIMEOUT(text("tensors").contains("model.v"), 30'000);
        browser.evaluate(
            "[...document.querySelectorAll('#tensors button.link')].find((one) => "
            "one.textContent === 'model.v').click()");
        QTRY_VERIFY_WITH_TIMEOUT(text("tensors").contains("Chunks"), 30'000);
        click("#tensors .list > .bar button");
        QTRY_VERIFY_WITH_TIMEOUT(text("tensors").contains("standard deviation"), 30'000);
        click("#tensors .slice > button");
        QTRY_VERIFY_WITH_TIMEOUT(text("tensors").contains("values that are shown"), 30'000);
        browser.shoot("serve-tensor");

        // A chunk leads to its file, the file to its tensors.
        browser.evaluate(
            "[...document.querySelectorAll('#tensors td button.link')].find((one) => "
            "one.textContent.endsWith('.distcp')).click()");
        QTRY_VERIFY_WITH_TIMEOUT(text("files").contains("by their place in the file"), 30'000);
        browser.shoot("serve-file");
        click("#files .list p button");
        QTRY_VERIFY_WITH_TIMEOUT(text("files").contains("All files are there"), 30'000);
        browser.shoot("serve-files");
        QVERIFY2(browser.complaints.isEmpty(), browser.complaints.constData());

        // Accepted with a reason, which is text and nothing else.
        click("#tab-findings");
        click("#findings .finding .head button");
        browser.evaluate("document.querySelector('.accepting input').value = '<img src=x onerror=alert(1)>'");
        click(".accepting button.main");
        QTRY_VERIFY_WITH_TIMEOUT(text("verdict").contains("accepted"), 30'000);
        QCOMPARE(browser.evaluate("String(document.querySelectorAll('#pages img').length)"), QString("0"));

        // Start belongs to the plan of exactly this request.
        click("#tab-convert");
        QTRY_VERIFY_WITH_TIMEOUT(text("convert").contains("Destination"), 30'000);
        const auto fill = [&](const std::string& field, const std::string& value) {
            browser.evaluate("{ const field = document.getElementById('convert-" + field +
                             "'); field.value = '" + value +
                             "'; field.dispatchEvent(new Event('input', {bubbles: true})); }");
        };
        fill("destination", state.filePath("out").toStdString());
        fill("format", "safetensors");
        click("#convert button.main");
        QTRY_VERIFY_WITH_TIMEOUT(text("convert-plan").contains("This cannot be started"), 30'000);  // gaps
        fill("fill_gaps", "zero");
        click("#convert form button.main");
        QTRY_VERIFY_WITH_TIMEOUT(text("convert-plan").contains("This can run"), 30'000);
        browser.shoot("serve-convert");
        fill("destination", state.filePath("other").toStdString());
        QCOMPARE(browser.evaluate("String(document.getElementById('convert-start').disabled)"),
                 QString("true"));
        fill("destination", state.filePath("out").toStdString());
        click("#convert form button.main");
        QTRY_VERIFY_WITH_TIMEOUT(text("convert-plan").contains("This can run"), 30'000);
        click("#convert-start");
        QTRY_VERIFY_WITH_TIMEOUT(text("jobs").contains("done"), 60'000);
        browser.shoot("serve-jobs");
        QVERIFY(QFile::exists(state.filePath("out")));
        QVERIFY2(browser.complaints.isEmpty(), browser.complaints.constData());

        // The browser itself notes that such a pattern is refused.
        click("#tab-placement");
        browser.evaluate("document.getElementById('map-filter').value = 're:('");
        click("#placement form button");
        QTRY_VERIFY_WITH_TIMEOUT(text("map-cell").contains("regular expression"), 30'000);
        QVERIFY(!browser.complaints.contains("exception"));
    }

    // Llama-3-8B with its optimizer on 32 ranks, of which the file of rank 17 is truncated; also for the
    // guide.
    void aRealModelInABrowser_data() {
        QTest::addColumn<bool>("dark");
        QTest::newRow("light") << false;
        QTest::newRow("dark") << true;
    }
    void aRealModelInABrowser() {
        QFETCH(bool, dark);
        if (QStandardPaths::findExecutable("chromium").isEmpty())
            QSKIP("chromium is not installed (package chromium)");
        QTemporaryDir state;
        const QProcessEnvironment environment = environmentIn(state.path());
        const QString index =
            qEnvironmentVariable("SHARDSCOPE_INDEX_COPY", SHARDSCOPE_TEST_DATA "/index/llama3-8b.ssidx");
        const Served server({index, "--level", "metadata"}, environment);
        Browser browser(dark);
        QVERIFY(browser.open(server.url));
        const auto text = [&](const char* id) { return browser.text(id); };
        QTRY_VERIFY_WITH_TIMEOUT(text("verdict").contains("Do not resume"), 60'000);
        browser.evaluate("document.querySelector('#tab-placement').click()");
        QTRY_VERIFY_WITH_TIMEOUT(text("map-cell").contains("point at a cell"), 30'000);
        browser.evaluate(
            "document.getElementById('map-scroll').dispatchEvent(new KeyboardEvent('keydown', {key: 'f'}))");
        QTRY_VERIFY_WITH_TIMEOUT(text("map-cell").contains("rank 17"), 30'000);
        // On another screen of the same size the map has that screen's pixels.
        const auto canvas = [&] {
            return browser.evaluate("String(document.querySelector('#placement canvas').width)").toInt();
        };
        const int before = canvas();
        browser.setPixels(2);
        QTRY_COMPARE_WITH_TIMEOUT(canvas(), 2 * before, 30'000);
        browser.setPixels(1);
        QTRY_COMPARE_WITH_TIMEOUT(canvas(), before, 30'000);
        QVERIFY2(browser.complaints.isEmpty(), browser.complaints.constData());
        browser.shoot(QStringLiteral("serve-real-placement-%1").arg(dark ? "dark" : "light"));
    }

    // A slice of a 32nd is painted with 6 pixels, at its place and inside of the cell, and one that is large
    // enough with its own size; with the pixels of the screen.
    void slicesAreReadable() {
        if (QStandardPaths::findExecutable("chromium").isEmpty())
            QSKIP("chromium is not installed (package chromium)");
        QTemporaryDir state;
        const Served server({genuine("t2.15.0-damage-base"), "--level", "metadata"},
                            environmentIn(state.path()));
        Browser browser;
        QVERIFY(browser.open(server.url));
        QTRY_VERIFY_WITH_TIMEOUT(browser.text("state").contains("Live"), 60'000);
        // Of each cell the first line that shows the slice, and how many do.
        const auto lines = [&](int ratio) {
            return browser.evaluate(
                "import('/cells.js').then(({ packed, paintCells }) => {"
                "const slices = [[0, 0, 1, 1 / 32], [0, 16 / 32, 1, 17 / 32], [0, 31 / 32, 1, 1], [0, 0, 1, "
                ".5]],"
                "colors = { packed: { surface: ~1, empty: ~2, held: ~0, quiet: ~3, text: ~4, edge: ~5 }, "
                "css: {} },"
                "picture = document.createElement('canvas'), ratio = " +
                std::to_string(ratio) +
                ";"
                "const block = packed([{ cells: slices.map((slice, c) => [c, 0, -1, 1, 0, slice]) }], 0);"
                "paintCells(picture, { block, rows: 1, columns: 4, top: 0, left: 0 },"
                "{ cellWidth: 24, cellHeight: 18, ratio, colors });"
                "return slices.map((_, c) => { const held = [];"
                "const { data } = picture.getContext('2d').getImageData((c * 24 + 12) * ratio, 0, 1, 18 * "
                "ratio);"
                "for (let y = 0; y < 18 * ratio; ++y) if (data[4 * y] === 255) held.push(y);"
                "return held[0] + '+' + held.length; }).join(); })");
        };
        QCOMPARE(lines(1), QString("2+6,6+6,10+6,2+7"));
        QCOMPARE(lines(2), QString("4+12,13+12,20+12,4+14"));
    }

    // A narrow screen shows the state of each file without being scrolled, and no page is wider than it;
    // every control has a name for screen readers, and Escape leaves what was opened.
    void onANarrowScreenByKeyboard() {
        if (QStandardPaths::findExecutable("chromium").isEmpty())
            QSKIP("chromium is not installed (package chromium)");
        QTemporaryDir state;
        const Served server({SHARDSCOPE_TEST_DATA "/index/llama3-8b.ssidx", "--level", "metadata"},
                            environmentIn(state.path()));
        Browser browser;
        QVERIFY(browser.open(server.url));
        browser.setScreen(360, 800, 1);
        const auto text = [&](const char* id) { return browser.text(id); };
        const auto key = [&](const char* name) {
            browser.evaluate(
                std::string("document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key: '") +
                name + "', bubbles: true, cancelable: true}))");
        };
        const auto active = [&] { return browser.evaluate("document.activeElement.id"); };
        QTRY_VERIFY_WITH_TIMEOUT(text("verdict").contains("Do not resume"), 60'000);
        const std::pair<const char*, const char*> tabs[] = {
            {"overview", "Biggest modules"}, {"placement", "point at a cell"}, {"tensors", "tok_embeddings"},
            {"files", "truncated by"},       {"objects", "not read"},          {"findings", "is truncated"},
            {"compare", "Name a checkpoint"}};
        browser.evaluate("document.getElementById('tab-overview').focus()");
        for (const auto& [tab, words] : tabs) {
            QCOMPARE(active(), QString("tab-") + tab);
            QTRY_VERIFY2_WITH_TIMEOUT(text(tab).contains(words), tab, 30'000);
            QVERIFY2(browser.evaluate("String(document.documentElement.scrollWidth <= 360)") == "true", tab);
            QCOMPARE(browser.evaluate("'nameless: ' + [...document.querySelectorAll('button, input, select, "
                                      "textarea, a[href], [tabindex]')]"
                                      ".filter((one) => one.checkVisibility() && !(one.innerText.trim() || "
                                      "one.getAttribute('aria-label') || one.labels?.length)).map((one) => "
                                      "one.outerHTML).join()"),
                     QString("nameless: "));
            key("ArrowRight");
        }
        QCOMPARE(active(), QString("tab-overview"));
        key("End");
        QCOMPARE(active(), QString("tab-compare"));

        browser.evaluate("document.getElementById('tab-files').click()");
        QCOMPARE(browser.evaluate("String([...document.querySelectorAll('#files td.lead')].every((one) => "
                                  "one.getBoundingClientRect().right <= 360 && one.checkVisibility()))"),
                 QString("true"));
        browser.evaluate("document.getElementById('tab-tensors').click()");
        browser.evaluate(
            "{ const one = document.querySelector('#tensors td button.link'); one.focus(); one.click(); }");
        QTRY_VERIFY_WITH_TIMEOUT(text("tensors").contains("All tensors"), 30'000);
        QTRY_COMPARE_WITH_TIMEOUT(browser.evaluate("document.activeElement.textContent"),
                                  QString("← All tensors"), 30'000);
        key("Escape");
        QTRY_VERIFY_WITH_TIMEOUT(!text("tensors").contains("All tensors"), 30'000);
        QVERIFY2(browser.complaints.isEmpty(), browser.complaints.constData());
    }

    // The timeline, the step to resume from, and two steps that are compared with a click.
    void aRunInABrowser() {
        if (QStandardPaths::findExecutable("chromium").isEmpty())
            QSKIP("chromium is not installed (package chromium)");
        QTemporaryDir run, state;
        const std::pair<const char*, const char*> steps[] = {{"step-100", "t2.15.0-damage-base"},
                                                             {"step-200", "t2.15.0-no-dist"},
                                                             {"step-300", "t2.15.0-damaged-missing-file"}};
        for (const auto& [step, from] : steps)
            QCOMPARE(QProcess::execute("cp", {"-r", genuine(from), run.filePath(step)}), 0);
        // An hour, then two.
        for (const auto& [step, hour] :
             {std::pair("step-100", 1), std::pair("step-200", 2), std::pair("step-300", 4)})
            QCOMPARE(QProcess::execute("find", {run.filePath(step), "-type", "f", "-exec", "touch", "-d",
                                                QString("2026-11-02 0%1:00 UTC").arg(hour), "{}", "+"}),
                     0);
        const QProcessEnvironment environment = environmentIn(state.path());
        QProcess validate;
        validate.setProcessEnvironment(environment);
        validate.start(SHARDSCOPE_PROGRAM, {"validate", run.path()});
        QVERIFY(validate.waitForFinished(60'000));
        const Served server({run.path()}, environment);
        Browser browser;
        QVERIFY(browser.open(server.url));
        const auto text = [&](const char* id) { return browser.text(id); };
        QTRY_VERIFY_WITH_TIMEOUT(text("run").contains("newest whole step"), 60'000);
        QVERIFY2(text("run").contains("1, before 4"), qPrintable(text("run")));
        QVERIFY2(text("run").contains("2.0 h"), qPrintable(text("run")));
        QVERIFY(text("run").contains("✓ Resume from " + run.filePath("step-200")));
        QCOMPARE(browser.evaluate("String(document.querySelectorAll('#timeline rect').length)"),
                 QString("3"));
        QCOMPARE(browser.evaluate("String(document.querySelectorAll('#timeline rect.other').length)"),
                 QString("1"));
        browser.shoot("serve-run");
        // Drawn anew in a window of another width.
        browser.setScreen(360, 800, 1);
        QTRY_COMPARE_WITH_TIMEOUT(
            browser.evaluate("document.getElementById('timeline').getAttribute('viewBox')"),
            QString("0 0 320 150"), 30'000);
        QVERIFY2(browser.complaints.isEmpty(), browser.complaints.constData());
        browser.evaluate(
            "[...document.querySelectorAll('#run input')].slice(1).forEach((one) => one.click())");
        browser.evaluate("document.querySelector('#run p button').click()");
        QTRY_VERIFY_WITH_TIMEOUT(text("compare").contains("They differ"), 60'000);
        QVERIFY(browser.evaluate("document.getElementById('compare-with').value").endsWith("step-200"));
    }
};

QTEST_GUILESS_MAIN(ServeCliTest)
#include "serve_cli_test.moc"
