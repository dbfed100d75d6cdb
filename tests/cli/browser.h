// The browser page in a real browser.
#pragma once

#include <QElapsedTimer>
#include <QFile>
#include <QProcess>
#include <QTemporaryDir>

#include <nlohmann/json.hpp>

namespace shardscope::test {

using nlohmann::json;

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

}  // namespace shardscope::test
