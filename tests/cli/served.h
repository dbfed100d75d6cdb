// A server of the browser page, as a client of its own sees it.
#pragma once

#include <QProcess>
#include <QProcessEnvironment>
#include <QString>
#include <csignal>

#include <httplib.h>

#include "cli/run_shardscope.h"

namespace shardscope::test {

using nlohmann::json;

inline QString genuine(const char* name) {
    return QStringLiteral(SHARDSCOPE_TEST_DATA "/genuine/dcp/%1/ckpt").arg(name);
}

// With settings and jobs of its own, in a directory of the test.
inline QProcessEnvironment environmentIn(const QString& directory) {
    QProcessEnvironment environment = QProcessEnvironment::systemEnvironment();
    for (const char* home : {"XDG_STATE_HOME", "XDG_CONFIG_HOME"})
        environment.insert(home, directory);
    return environment;
}

// A server of its own, ended with it.
class Served {
  public:
    explicit Served(const QStringList& words,
                    const QProcessEnvironment& environment = QProcessEnvironment::systemEnvironment(),
                    const QString& program = SHARDSCOPE_PROGRAM) {
        process_.setProcessEnvironment(environment);
        process_.start(program, QStringList{"serve", "--json"} + words);
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
    qint64 pid() const { return process_.processId(); }
    httplib::Headers withToken() const { return {{"X-Shardscope-Token", token}}; }
    httplib::Result get(const std::string& path, const httplib::Headers& headers) const {
        httplib::Client client("127.0.0.1", port);
        client.set_read_timeout(20);
        return client.Get(path.c_str(), headers);
    }
    // As the page itself asks: from its own address.
    httplib::Headers own() const {
        httplib::Headers headers = withToken();
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
        const auto answer = get(path, withToken());
        return answer && answer->status == 200 ? json::parse(answer->body, nullptr, false) : json();
    }

    std::string url, token;
    int port = 0;

  private:
    QProcess process_;
};

}  // namespace shardscope::test
