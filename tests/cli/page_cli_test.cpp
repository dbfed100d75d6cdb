// The browser page, in Chromium without a window.
#include <QDir>
#include <QFile>
#include <QStandardPaths>
#include <QTemporaryDir>
#include <QTest>

#include "cli/browser.h"
#include "cli/served.h"
#include "cli/state_file.h"
#include "support/recorded_job.h"

using namespace shardscope;
using namespace shardscope::test;
using nlohmann::json;

class PageCliTest : public QObject {
    Q_OBJECT

  private slots:
    void initTestCase() {
        if (QStandardPaths::findExecutable("chromium").isEmpty())
            QSKIP("chromium is not installed (package chromium)");
    }
    // The picture of the mesh: by keys from rank to rank, whose groups light up, and from there to the map.
    void theMesh() {
        const Served server({genuine("t2.15.0-fsdp2-tp")});
        Browser browser;
        QVERIFY(browser.open(server.url));
        const auto count = [&](const char* what) {
            return browser.evaluate("String(document.querySelectorAll('#mesh " + std::string(what) +
                                    "').length)");
        };
        QTRY_COMPARE_WITH_TIMEOUT(count(".cell"), QString("4"), 20'000);
        const auto press = [&](const char* keys) {
            browser.evaluate("for (const key of '" + std::string(keys) +
                             "'.split(' ')) document.getElementById('mesh').dispatchEvent("
                             "new KeyboardEvent('keydown', { key }))");
        };
        press("ArrowRight ArrowRight ArrowDown");
        QVERIFY2(browser.text("mesh-line").startsWith("Rank 3 (fsdp1 tp1)"),
                 qPrintable(browser.text("mesh-line")));
        QCOMPARE(count(".lit"), QString("3"));  // itself, and the other of both groups
        press("Enter");
        QTRY_VERIFY_WITH_TIMEOUT(browser.text("map-cell").contains("on rank 3"), 20'000);
    }

    // As if on another mesh: what is wrong with it is said at the line; what is pointed at lights up with
    // what it reads from; a button leads to the conversion.
    void asIfOnAnotherMesh() {
        const Served server({genuine("t2.15.0-fsdp2-tp"), "--allow-jobs"});
        Browser browser;
        QVERIFY(browser.open(server.url));
        const auto ask = [&](const char* mesh) {
            browser.evaluate("document.getElementById('as-if-mesh').value = '" + std::string(mesh) +
                             "'; document.querySelector('.as-if-line').requestSubmit()");
        };
        QTRY_COMPARE_WITH_TIMEOUT(browser.evaluate("String(!!document.getElementById('as-if-mesh'))"),
                                  QString("true"), 20'000);
        ask("tp=zero");
        QTRY_VERIFY_WITH_TIMEOUT(browser.text("as-if-problem").contains("'zero' is not a positive number"),
                                 20'000);
        ask("tp=4");
        QTRY_VERIFY_WITH_TIMEOUT(browser.text("as-if-headline").startsWith("4 ranks read"), 20'000);
        const auto count = [&](const char* what) {
            return browser.evaluate("String(document.querySelectorAll('#as-if " + std::string(what) +
                                    "').length)");
        };
        QTRY_COMPARE_WITH_TIMEOUT(count(".after .cell"), QString("4"), 20'000);
        browser.evaluate(
            "document.getElementById('as-if-picture').dispatchEvent(new KeyboardEvent("
            "'keydown', { key: 'Home' }))");
        // The file of rank 0 is read by ranks 0 and 1.
        QCOMPARE(count(".before .lit"), QString("1"));
        QCOMPARE(count(".after .lit"), QString("2"));
        browser.evaluate("document.getElementById('as-if-reshard').click()");
        QTRY_COMPARE_WITH_TIMEOUT(browser.evaluate("document.getElementById('convert-mesh').value"),
                                  QString("tp=4"), 20'000);
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
        Browser browser;
        QVERIFY(browser.open(server.url));
        const auto shown = [&] { return browser.evaluate("document.getElementById('jobs').textContent"); };
        QTRY_VERIFY_WITH_TIMEOUT(shown().contains(RecordedJob::text), 60'000);
        QCOMPARE(browser.evaluate("String(document.querySelector('#jobs progress').value)"),
                 QString::number(RecordedJob::share));
    }

    // Names that want to be markup, scripts, addresses or another direction of writing stay text.
    void hostileNames() {
        QTemporaryDir directory;
        json header;
        int64_t at = 0;
        for (const char* name :
             {"<img src=x onerror=document.title=1>.weight", "</script><script>document.title=1</script>",
              "a&amp;b\"'`${document.title=1}.0.w", "javascript:document.title=1", "\u202Egnp.weight",
              "esc\x1b]0;x\x07.w", "__proto__", "constructor.0.w"}) {
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
        QCOMPARE(browser.evaluate("String(/[\\u001b\\u0007\\u202e]/.test(document.body.innerText))"),
                 QString("false"));
        QCOMPARE(browser.evaluate(
                     "String(document.querySelectorAll('main img, main script, main b b, h1 b').length)"),
                 QString("0"));
        QVERIFY2(browser.complaints.isEmpty(), browser.complaints.constData());
    }

    // The answer stands first, without a click, in the words of the command line and of the window.
    void resumeCard_data() {
        QTest::addColumn<QString>("path");
        QTest::addColumn<QString>("words");
        QTest::addColumn<QString>("link");  // a line's, and what the page shows then
        QTest::addColumn<QString>("shown");
        const QString trainer = SHARDSCOPE_TEST_DATA "/field/trainer-half-saved-step/";
        QTest::newRow("everything") << trainer + "optimizer-empty/checkpoint-10"
                                    << "Resume from here"
                                    << "saved"
                                    << "scheduler.pt";
        QTest::newRow("no optimizer") << trainer + "died-after-model/checkpoint-30"
                                      << "Do not resume"
                                      << "file.missing"
                                      << "its chunks are lost";
        QTest::newRow("weights only")
            << genuine("t2.15.0-stateful") << "Weights only: nothing to resume, fine to load" << QString()
            << QString();
    }
    void resumeCard() {
        QFETCH(QString, path);
        QFETCH(QString, words);
        QFETCH(QString, link);
        QFETCH(QString, shown);
        QTemporaryDir state;
        const Served server({path}, environmentIn(state.path()));
        for (const bool dark : {false, true}) {
            Browser browser(dark);
            QVERIFY(browser.open(server.url));
            QTRY_COMPARE_WITH_TIMEOUT(
                browser.evaluate("document.querySelector('#verdict b')?.textContent ?? ''"), words, 60'000);
            QCOMPARE(browser.evaluate("document.querySelector('#overview section').id"), QString("ready"));
            const json card = server.document("/api/ready");
            QCOMPARE(browser.evaluate("[...document.querySelectorAll('#ready li > span')].map((one) => "
                                      "one.textContent).join()"),
                     [&] {
                         QStringList titles;
                         for (const json& line : card["lines"])
                             titles += QString::fromStdString(line["title"]);
                         return titles.join(',');
                     }());
            browser.shoot(
                QStringLiteral("serve-card-%1-%2")
                    .arg(QString(QTest::currentDataTag()).replace(' ', '-'), dark ? "dark" : "light"));
            QVERIFY(browser.text("ready").contains(QString::fromStdString(card["lines"][9]["text"])));
            if (!link.isEmpty()) {
                browser.evaluate(
                    "[...document.querySelectorAll('#ready button')].find((one) => one.textContent === '" +
                    link.toStdString() + "').click()");
                QTRY_VERIFY2_WITH_TIMEOUT(
                    browser.evaluate("document.getElementById('pages').innerText").contains(shown),
                    qPrintable(shown), 30'000);
            }
            QVERIFY2(browser.complaints.isEmpty(), browser.complaints.constData());
        }
    }

    // What was found is named in the strip, and leads to the finding.
    void causesInTheStrip() {
        QTemporaryDir state;
        const Served server({genuine("t2.15.0-damaged-missing-file"), "--allow-jobs"},
                            environmentIn(state.path()));
        Browser browser;
        QVERIFY(browser.open(server.url));
        QTRY_VERIFY_WITH_TIMEOUT(browser.text("verdict").contains("Do not resume"), 60'000);
        QCOMPARE(browser.evaluate("document.querySelector('#verdict b').textContent"),
                 QString("Do not resume"));
        QCOMPARE(browser.evaluate("document.querySelector('#verdict p').textContent"),
                 QString("__1_0.distcp is missing (rank 1, 3 tensors)"));
        QVERIFY2(browser.text("figures").contains("9 chunks · 196 B"), qPrintable(browser.text("figures")));
        browser.shoot("serve-causes");
        browser.evaluate("document.querySelector('#verdict p button').click()");
        QTRY_VERIFY_WITH_TIMEOUT(browser.text("findings").contains("cannot be read because"), 30'000);
        // A deeper check leaves the answer there.
        browser.evaluate(
            "{ window.heads = []; new MutationObserver(() => heads.push(document.querySelector('#verdict "
            "b').textContent)).observe(document.getElementById('verdict'), {childList: true}); "
            "document.querySelector('#verdict select').value = 'values'; "
            "[...document.querySelectorAll('#verdict button')].find((one) => one.textContent === "
            "'Validate').click(); }");
        QTRY_VERIFY_WITH_TIMEOUT(browser.text("verdict", "textContent").contains("Every value read: 1 error"),
                                 60'000);
        QCOMPARE(browser.evaluate("[...new Set(heads)].join()"), QString("Do not resume"));
        QVERIFY2(browser.complaints.isEmpty(), browser.complaints.constData());
    }

    // The goals fill the form and plan, as those of the window do.
    void goals() {
        QTemporaryDir state;
        const std::string run = state.filePath("run").toStdString();
        State weights;
        for (const char* matrix : {"attention.wq", "attention.wk", "attention.wv", "attention.wo",
                                   "feed_forward.w1", "feed_forward.w2", "feed_forward.w3"})
            weights["model.layers.0." + std::string(matrix) + ".weight"] = numbers({8, 8}, 0);
        for (const char* norm : {"layers.0.attention_norm", "layers.0.ffn_norm", "norm"})
            weights["model." + std::string(norm) + ".weight"] = numbers({8}, 0);
        for (const char* ends : {"tok_embeddings", "output"})
            weights["model." + std::string(ends) + ".weight"] = numbers({12, 8}, 0);
        writeState(run + "/step-1/model.safetensors", weights);
        writeFile(run + "/config.json",
                  R"({"model_type": "llama", "num_attention_heads": 2, "num_hidden_layers": 1})");
        Served server({QString::fromStdString(run) + "/step-1", "--allow-jobs"}, environmentIn(state.path()));
        Browser browser;
        QVERIFY(browser.open(server.url));
        const auto click = [&](const char* id) {
            browser.evaluate("document.getElementById('" + std::string(id) + "').click()");
        };
        QTRY_VERIFY_WITH_TIMEOUT(browser.text("verdict").contains("Validate"), 60'000);
        click("tab-convert");
        QTRY_VERIFY_WITH_TIMEOUT(
            browser.text("intent-inference").contains("'llama-hf-from-torchtitan' fits the names"), 30'000);
        browser.shoot("serve-goals");
        click("intent-inference");
        QTRY_VERIFY2_WITH_TIMEOUT(browser.text("convert-plan").contains("This can run"),
                                  qPrintable(browser.text("convert")), 30'000);
        QVERIFY(!browser.text("convert-plan").contains("transformers will not"));
        QCOMPARE(browser.text("convert-map", "value"), QString("llama-hf-from-torchtitan"));
        QCOMPARE(browser.text("convert-rename", "value"), QString("^model[.]="));
        QCOMPARE(browser.text("convert-assets", "value"), QString::fromStdString(run));
        browser.shoot("serve-goals-plan");
        click("convert-start");
        QTRY_VERIFY_WITH_TIMEOUT(browser.text("jobs").contains("done"), 60'000);
        QVERIFY(readState(run + "/step-1-safetensors").contains("model.layers.0.self_attn.q_proj.weight"));
        QVERIFY2(browser.complaints.isEmpty(), browser.complaints.constData());
    }

    // A source that is damaged, on other ranks: what is left of it.
    void goalsOfDamaged() {
        QTemporaryDir state;
        Served server({genuine("t2.15.0-damaged-missing-file"), "--allow-jobs"}, environmentIn(state.path()));
        Browser browser(true);
        QVERIFY(browser.open(server.url));
        QTRY_VERIFY_WITH_TIMEOUT(browser.text("verdict").contains("Do not resume"), 60'000);
        browser.evaluate("document.getElementById('tab-convert').click()");
        QTRY_VERIFY_WITH_TIMEOUT(browser.text("intent-inference").contains("No recipe that is built in"),
                                 30'000);
        browser.evaluate("document.getElementById('intent-inference').click()");
        QTRY_VERIFY_WITH_TIMEOUT(browser.text("convert-failed").contains("There is no plan"), 30'000);
        browser.shoot("serve-goals-damaged");
        browser.evaluate("document.querySelector('#convert-failed button').click()");
        QTRY_VERIFY_WITH_TIMEOUT(browser.text("convert-failed").contains("no tensor would be converted"),
                                 30'000);
        QCOMPARE(browser.evaluate("String(document.getElementById('convert-skip_damaged').checked)"),
                 QString("true"));
    }

    // A verdict of a server that is gone is not shown as if it still held.
    void serverGoesAway() {
        QTemporaryDir state;
        const QString source = genuine("t2.15.0-no-dist");
        Served server({source, "--allow-jobs"}, environmentIn(state.path()));
        Browser browser;
        QVERIFY(browser.open(server.url));
        const auto strip = [&] { return browser.text("verdict"); };
        const auto tab = [&](const char* name) {
            browser.evaluate(std::string("document.getElementById('tab-") + name + "').click()");
        };
        QTRY_VERIFY_WITH_TIMEOUT(strip().contains("Validate"), 60'000);
        QTRY_VERIFY_WITH_TIMEOUT(browser.text("state").contains("Live"), 60'000);
        tab("convert");
        // The form stands there without waiting for what its fields offer.
        QVERIFY(browser.text("convert").contains("Destination"));
        QTRY_VERIFY_WITH_TIMEOUT(browser.text("convert-format").contains("safetensors"), 30'000);
        QCOMPARE(server.end(), 0);
        QTRY_VERIFY_WITH_TIMEOUT(strip().contains("has not answered since"), 60'000);
        QVERIFY2(strip().contains("shardscope serve " + source + " --allow-jobs"), qPrintable(strip()));
        QVERIFY2(strip().contains("Try again") && !strip().contains("Validate"), qPrintable(strip()));
        const auto asking = [&] {
            return browser.evaluate(
                "String(document.querySelectorAll('#pages section:not([hidden]) "
                "button:not(.link):enabled').length)");
        };
        QCOMPARE(asking(), QString("0"));
        browser.shoot("serve-gone");
        tab("tensors");
        QTRY_VERIFY_WITH_TIMEOUT(browser.text("tensors").contains("The server does not answer."), 30'000);
        QCOMPARE(asking(), QString("0"));
        QVERIFY(strip().contains("has not answered since"));
    }

    void addressWithoutItsToken() {
        QTemporaryDir state;
        const Served server({genuine("t2.15.0-no-dist")}, environmentIn(state.path()));
        Browser browser;
        QVERIFY(browser.open(server.url.substr(0, server.url.find('#'))));
        QTRY_VERIFY_WITH_TIMEOUT(browser.text("verdict").contains("Open the address that shardscope serve"),
                                 60'000);
        browser.shoot("serve-refused");
    }

    // A real browser takes the token out of the address, runs the script under the policy and shows what was
    // found.
    void everyTab() {
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
        QTRY_VERIFY_WITH_TIMEOUT(browser.text("verdict", "textContent").contains("accepted"), 30'000);
        QCOMPARE(browser.evaluate("String(document.querySelectorAll('#pages img').length)"), QString("0"));

        // Start belongs to the plan of exactly this request.
        click("#tab-convert");
        QTRY_VERIFY_WITH_TIMEOUT(text("convert").contains("Destination"), 30'000);
        const auto fill = [&](const std::string& field, const std::string& value) {
            browser.evaluate("{ const field = document.getElementById('convert-" + field +
                             "'); field.value = '" + value +
                             "'; field.dispatchEvent(new Event('input', {bubbles: true})); }");
        };
        // How frameworks shard is a word, over an axis of the mesh.
        for (const char* preset : {"tensor-parallel", "fsdp", "fsdp"})
            click(("#preset-" + std::string(preset)).c_str());
        QCOMPARE(browser.text("convert-shard", "value"), QString("tensor-parallel\nfsdp"));
        QCOMPARE(browser.text("convert-mesh", "value"), QString("tp=2,dp=2"));
        fill("shard", "");
        fill("mesh", "");
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
    void aRealModel_data() {
        QTest::addColumn<bool>("dark");
        QTest::newRow("light") << false;
        QTest::newRow("dark") << true;
    }
    void aRealModel() {
        QFETCH(bool, dark);
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

    // Pinned rows stand at the top however far one scrolls: the sum of a group, which stays in its place,
    // too, and a tensor's row. A second press lets them go.
    void pinnedRows() {
        QTemporaryDir state;
        const Served server({SHARDSCOPE_TEST_DATA "/index/llama3-8b.ssidx", "--level", "metadata"},
                            environmentIn(state.path()));
        Browser browser;
        QVERIFY(browser.open(server.url));
        const auto text = [&](const char* id) { return browser.text(id); };
        QTRY_VERIFY_WITH_TIMEOUT(text("verdict").contains("Do not resume"), 60'000);
        browser.evaluate("document.querySelector('#tab-placement').click()");
        QTRY_VERIFY_WITH_TIMEOUT(text("map-cell").contains("point at a cell"), 30'000);
        const auto press = [&](const char* name) {
            browser.evaluate(std::string("document.getElementById('map-scroll').dispatchEvent(new "
                                         "KeyboardEvent('keydown', {key: '") +
                             name + "'}))");
        };
        // What a click on the row at the top says, whichever that is, far down in the map. The map may still
        // be read anew.
        const auto atTheTop = [&] {
            browser.evaluate(
                "{ const map = document.getElementById('map-scroll'), box = map.getBoundingClientRect();"
                "map.scrollTop = 1e6; map.dispatchEvent(new MouseEvent('click', { clientX: box.left + "
                "box.width / 2, clientY: box.top + 62 })); }");
            return text("map-cell");
        };
        const auto pinner = [&] {
            return browser.evaluate("document.querySelectorAll('#map-line button')[1].innerText");
        };
        press("f");
        QTRY_VERIFY_WITH_TIMEOUT(text("map-cell").contains("rank 17"), 30'000);
        const QString chosen = text("map-cell").section(" on rank", 0, 0);
        QCOMPARE(pinner(), QString("Pin row"));
        press("p");
        QTRY_COMPARE_WITH_TIMEOUT(pinner(), QString("Unpin row"), 30'000);
        QTRY_VERIFY_WITH_TIMEOUT(text("map-cell").startsWith(chosen), 30'000);
        QTRY_VERIFY2_WITH_TIMEOUT(atTheTop().startsWith(chosen), qPrintable(text("map-cell")), 120'000);
        browser.shoot("serve-pinned");
        QCOMPARE(pinner(), QString("Unpin row"));
        press("p");
        QTRY_COMPARE_WITH_TIMEOUT(pinner(), QString("Pin row"), 30'000);
        QTRY_VERIFY2_WITH_TIMEOUT(!atTheTop().startsWith(chosen), qPrintable(text("map-cell")), 120'000);
        QVERIFY2(browser.complaints.isEmpty(), browser.complaints.constData());
    }

    // A slice of a 32nd is painted with 6 pixels, at its place and inside of the cell, and one that is large
    // enough with its own size; with the pixels of the screen.
    void slicesAreReadable() {
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
                "const block = packed([{ cells: slices.map((slice, c) => [c, 0, -1, 1, 0, slice]), ghosts: "
                "[] }], 0);"
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

    // A directory that holds several is a list to choose from; the only step of a run opens at once.
    void severalCheckpoints() {
        QTemporaryDir directory, state;
        for (const char* name : {"first", "second"})
            QCOMPARE(QProcess::execute("cp", {"-r", genuine("t2.15.0-no-dist"), directory.filePath(name)}),
                     0);
        QVERIFY(QDir(directory.path()).mkpath("run"));
        QCOMPARE(
            QProcess::execute("cp", {"-r", genuine("t2.15.0-no-dist"), directory.filePath("run/step-100")}),
            0);
        const Served server({directory.path()}, environmentIn(state.path()));
        const json list = server.document("/api/several")["checkpoints"];
        QCOMPARE(list.size(), size_t{3});
        COMPARE_JSON(list[0]["name"], json("first"));
        QVERIFY(list[0]["bytes"].get<int64_t>() > 0);
        for (const char* bad : {"..", "third", "first/..", "/etc"})
            QCOMPARE(server.get("/api/info?step=" + std::string(bad), server.withToken())->status, 404);
        Browser browser;
        QVERIFY(browser.open(server.url));
        QTRY_VERIFY_WITH_TIMEOUT(browser.text("several").contains("This directory holds 3 checkpoints"),
                                 60'000);
        QVERIFY2(browser.text("several").contains("PyTorch distributed checkpoint"),
                 qPrintable(browser.text("several")));
        browser.shoot("serve-several");
        browser.evaluate("document.querySelector('#several a').click()");
        QTRY_VERIFY_WITH_TIMEOUT(browser.text("verdict").contains("Resume from here") ||
                                     browser.text("verdict").contains("nothing to resume"),
                                 60'000);
        QVERIFY(browser.text("subtitle").contains("All checkpoints here"));
        QVERIFY2(browser.complaints.isEmpty(), browser.complaints.constData());

        const Served run({directory.filePath("run")}, environmentIn(state.path()));
        Browser other;
        QVERIFY(other.open(run.url));
        QTRY_VERIFY_WITH_TIMEOUT(other.text("figures").contains("tensors"), 60'000);
        other.evaluate("document.querySelector('#subtitle a').click()");
        QTRY_VERIFY_WITH_TIMEOUT(other.text("run").contains("1 step"), 60'000);
    }

    // The timeline, the step to resume from, and two steps that are compared with a click.
    void aRun() {
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
        validate.start(SHARDSCOPE_PROGRAM, {"validate", run.path(), "--level", "values"});
        QVERIFY(validate.waitForFinished(60'000));
        const Served server({run.path()}, environment);
        Browser browser;
        QVERIFY(browser.open(server.url));
        const auto text = [&](const char* id) { return browser.text(id); };
        QTRY_VERIFY_WITH_TIMEOUT(text("run").contains("newest whole step"), 60'000);
        QVERIFY2(text("run").contains("1, before 4"), qPrintable(text("run")));
        QVERIFY2(text("run").contains("2 h 0 min"), qPrintable(text("run")));
        QVERIFY2(text("run").contains("do not resume: __1_0.distcp is missing"), qPrintable(text("run")));
        QVERIFY(text("run").contains("✓ Resume from " + run.filePath("step-200")));
        QCOMPARE(browser.evaluate("String(document.querySelectorAll('#timeline rect').length)"),
                 QString("3"));
        QCOMPARE(browser.evaluate("String(document.querySelectorAll('#timeline rect.other').length)"),
                 QString("1"));
        // Norms of the steps whose every value was read.
        QTRY_VERIFY_WITH_TIMEOUT(text("norms").contains("Norms over steps"), 30'000);
        QVERIFY(browser.evaluate("String(document.querySelectorAll('#norms .chart').length)").toInt() > 0);
        QVERIFY(!text("norms").contains("[object"));
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
        QTRY_VERIFY_WITH_TIMEOUT(text("moves").contains("arrive on another rank"), 30'000);
        QVERIFY2(browser.complaints.isEmpty(), browser.complaints.constData());
    }
};

QTEST_GUILESS_MAIN(PageCliTest)
#include "page_cli_test.moc"
