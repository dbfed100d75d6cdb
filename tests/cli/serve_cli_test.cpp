// The browser page: who gets an answer, what the answers are, and the page itself in a real browser.
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
#include "serve/page_server.h"
#include "support/recorded_job.h"

using namespace shardscope;
using namespace shardscope::test;
using nlohmann::json;

namespace {

QString genuine(const char* name) {
    return QStringLiteral(SHARDSCOPE_TEST_DATA "/genuine/dcp/%1/ckpt").arg(name);
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
    Browser() {
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
        call("Log.enable", {});
        call("Runtime.enable", {});
        return call("Page.navigate", {{"url", url}}).contains("frameId");
    }
    QString evaluate(const std::string& expression) {
        const json answer = call("Runtime.evaluate", {{"expression", expression}, {"returnByValue", true}});
        const json value = answer.contains("result") ? answer["result"].value("value", json()) : json();
        return value.is_string() ? QString::fromStdString(value) : QString();
    }
    // Into SHARDSCOPE_SCREENSHOTS, when it is set.
    void shoot(const QString& name) {
        const QString directory = qEnvironmentVariable("SHARDSCOPE_SCREENSHOTS");
        if (directory.isEmpty()) return;
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
        QCOMPARE(status("/api/overview", {}), 403);
        QCOMPARE(status("/?token=" + std::string(48, '0'), {}), 403);
        QCOMPARE(status("/?token=", {}), 403);
        QCOMPARE(status("/", {{"Cookie", "shardscope-" + std::to_string(server.port) + "=x"}}), 403);
        QCOMPARE(status("/api/overview?token=" + server.token, {}), 403);  // only the first page takes it so
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
        for (const char* file : {"/page.js", "/page.css"})
            QCOMPARE(status(file, server.cookie()), 200);
        QCOMPARE(status("/../etc/passwd", server.cookie()), 404);

        // A page of another site, by a name that resolves here or from its own origin.
        httplib::Headers foreign = server.cookie();
        foreign.emplace("Host", "evil.example:" + std::to_string(server.port));
        QCOMPARE(status("/api/overview", foreign), 403);
        httplib::Headers origin = server.cookie();
        origin.emplace("Origin", "http://evil.example");
        QCOMPARE(status("/api/overview", origin), 403);
        httplib::Headers own = server.cookie();
        own.emplace("Origin", "http://127.0.0.1:" + std::to_string(server.port));
        own.emplace("Host", "127.0.0.1:" + std::to_string(server.port));
        QCOMPARE(status("/api/overview", own), 200);
        // Through a tunnel the port is another one.
        httplib::Headers tunnel = server.cookie();
        tunnel.emplace("Host", "localhost:4711");
        QCOMPARE(status("/api/overview", tunnel), 200);
        httplib::Client client("127.0.0.1", server.port);
        const auto posted = client.Post("/api/overview", server.cookie(), "x", "text/plain");
        QVERIFY(posted);
        QCOMPARE(posted->status, 405);
        const auto deleted = client.Delete("/api/jobs", server.cookie());
        QVERIFY(deleted);
        QCOMPARE(deleted->status, 405);
    }

    void answersAreThoseOfTheVerbs() {
        const QString source = genuine("t2.15.0-damaged-gap");
        Served server({source});
        json overview = server.document("/api/overview");
        COMPARE_JSON(overview, runShardscope({"info", source, "--json"}).json());
        const json rows = server.document("/api/map?first=0&count=256");
        const json ls = runShardscope({"ls", source, "--json"}).json()["tensors"];
        COMPARE_JSON(rows["total"], json(ls.size()));
        QCOMPARE(rows["rows"].size(), std::min<size_t>(256, ls.size()));
        for (size_t i = 0; i < rows["rows"].size(); ++i) {
            COMPARE_JSON(rows["rows"][i]["name"], ls[i]["name"]);
            QCOMPARE(rows["rows"][i]["cells"].get<std::string>().size(),
                     overview["totals"]["ranks"].get<size_t>());
        }
        const json some = server.document("/api/map?first=1&count=1&pattern=*weight*");
        QVERIFY(some["rows"].size() <= 1);
        for (const char* bad : {"first=x", "count=-1", "first=99999999999999999999", "pattern=re:%28"})
            QCOMPARE(server.get("/api/map?" + std::string(bad), server.cookie())->status, 400);
        QTRY_VERIFY_WITH_TIMEOUT(server.document("/api/findings").contains("verdict"), 20'000);
        COMPARE_JSON(server.document("/api/findings"), runShardscope({"validate", source, "--json"}).json());
        COMPARE_JSON(server.document("/api/jobs"), json());
        QCOMPARE(server.end(), 0);
    }

    void jobsAsTheyGoOn() {
        QTemporaryDir state;
        QProcessEnvironment environment = QProcessEnvironment::systemEnvironment();
        environment.insert("XDG_STATE_HOME", state.path());
        const Served server({"--jobs"}, environment);
        COMPARE_JSON(server.document("/api/overview"), json());
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
        QProcessEnvironment environment = QProcessEnvironment::systemEnvironment();
        environment.insert("XDG_STATE_HOME", state.path());
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
            QVERIFY(server.document("/api/overview").is_object());
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

    // A real browser takes the address, gets the cookie, runs the script under the policy and shows what was
    // found.
    void inABrowser() {
        if (QStandardPaths::findExecutable("chromium").isEmpty())
            QSKIP("chromium is not installed (package chromium)");
        const QString source = genuine("t2.15.0-damaged-gap");
        const Served server({source, "--jobs"});
        Browser browser;
        QVERIFY(browser.open(server.url));
        QTRY_VERIFY_WITH_TIMEOUT(
            browser.evaluate("document.body.innerText").contains("Live; this page only shows."), 60'000);
        QVERIFY(browser.evaluate("document.title").startsWith(source));
        QCOMPARE(browser.evaluate("location.href").contains("token"), false);
        browser.evaluate("document.getElementById('tab-findings').click()");
        QTRY_VERIFY_WITH_TIMEOUT(browser.evaluate("document.body.innerText").contains("Verdict: unsafe"),
                                 30'000);
        QVERIFY(browser.evaluate("document.body.innerText").contains("coverage.gap"));
        browser.shoot("serve-findings");
        browser.evaluate("document.getElementById('tab-placement').click()");
        QTRY_VERIFY_WITH_TIMEOUT(
            browser.evaluate("document.getElementById('map-cell').innerText").contains("tensors on"), 30'000);
        QVERIFY2(browser.complaints.isEmpty(), browser.complaints.constData());
        // The browser itself notes that such a pattern is refused.
        browser.evaluate(
            "document.getElementById('map-scroll').dispatchEvent(new KeyboardEvent('keydown', {key: "
            "'ArrowDown'}))");
        QVERIFY(browser.evaluate("document.getElementById('map-cell').innerText").contains("rank 0 holds"));
        browser.shoot("serve-placement");
        browser.evaluate(
            "document.getElementById('filter').value = 're:('; "
            "document.getElementById('filter').dispatchEvent(new Event('change'))");
        QTRY_VERIFY_WITH_TIMEOUT(
            browser.evaluate("document.getElementById('map-cell').innerText").contains("regular expression"),
            30'000);
        browser.evaluate("document.getElementById('tab-overview').click()");
        browser.shoot("serve-overview");
        browser.evaluate("document.getElementById('tab-jobs').click()");
        browser.shoot("serve-jobs");
        QVERIFY(!browser.complaints.contains("exception"));
    }
};

QTEST_GUILESS_MAIN(ServeCliTest)
#include "serve_cli_test.moc"
