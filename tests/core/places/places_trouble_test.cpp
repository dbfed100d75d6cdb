// What users of buckets, of the hub and of web servers run into: each is right, or one sentence that says
// what to do.
#include <QtTest>
#include <fstream>

#include "core/places/bucket_jobs.h"
#include "core/places/place_content.h"
#include "engine/engine.h"
#include "support/read_checks.h"

using namespace shardscope;
using namespace shardscope::test;

namespace {

const std::string kSample = SHARDSCOPE_TEST_DATA "/../../resources/sample/dcp-fsdp2-tp";

Result<ConvertReport> convert(const std::string& source, const std::string& destination,
                              const std::string& to = "dcp") {
    Progress progress;
    return runConversion(requestOf(source, destination, to), Alone{}, &progress, {});
}

// Of a bucket at this path that holds d/m.bin alone.
Answered answerOfAStore(const Asked& asked, const std::string& bucket) {
    if (asked.path == bucket)
        return {200,
                {},
                "<ListBucketResult><Contents><Key>d/m.bin</Key><Size>5</Size></Contents></ListBucketResult>"};
    return asked.path == bucket + "d/m.bin" ? rangeOf("12345", asked) : Answered{404};
}

}  // namespace

class PlacesTroubleTest : public QObject {
    Q_OBJECT

    std::unique_ptr<QTemporaryDir> home_;
    std::unique_ptr<FakeBucket> bucket_;

    std::string write(const char* name, const std::string& text) const {
        const std::string path = home_->filePath(name).toStdString();
        std::ofstream(path, std::ios::binary) << text;
        return path;
    }
    // Without the keys in the environment, but with these files.
    void useFiles(const std::string& credentials, const std::string& config = {}) const {
        qunsetenv("AWS_ACCESS_KEY_ID");
        qunsetenv("AWS_SECRET_ACCESS_KEY");
        qputenv("AWS_SHARED_CREDENTIALS_FILE", QByteArray::fromStdString(write("credentials", credentials)));
        qputenv("AWS_CONFIG_FILE", QByteArray::fromStdString(write("config", config)));
    }
    // The error at a path, and whether it names this.
    static QString errorAt(const std::string& path, ErrorCode code, const char* words) {
        const auto content = contentAt(path);
        if (content.ok()) return "it was read";
        const QString text = textOf(content.error());
        return content.error().code == code && text.contains(QLatin1String(words)) ? QString() : text;
    }

  private slots:
    void init() {
        home_ = std::make_unique<QTemporaryDir>();
        for (const char* name : {"AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION",
                                 "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE", "AWS_REQUEST_PAYER",
                                 "HF_TOKEN", "HF_ENDPOINT", "HTTP_PROXY", "http_proxy", "TMPDIR"})
            qunsetenv(name);
        qputenv("HOME", home_->path().toLocal8Bit());
        qputenv("HF_HOME", home_->path().toLocal8Bit());
        bucket_ = std::make_unique<FakeBucket>("b1");
        bucket_->use();
    }

    // A HEAD is refused without a word; what it lacks is found out, and mended where it can be.
    void refusedHeads_data() {
        QTest::addColumn<QByteArray>("code");
        QTest::addColumn<int>("status");
        QTest::addColumn<bool>("mended");
        QTest::newRow("clock") << QByteArray("RequestTimeTooSkewed") << 403 << true;
        QTest::newRow("token") << QByteArray("ExpiredToken") << 400 << true;
        QTest::newRow("rights") << QByteArray("AccessDenied") << 403 << false;
        QTest::newRow("key") << QByteArray("InvalidAccessKeyId") << 403 << false;
    }
    void refusedHeads() {
        QFETCH(QByteArray, code);
        QFETCH(int, status);
        QFETCH(bool, mended);
        bucket_->put("d/m.bin", "1");
        bucket_->put("d/empty.bin", "");
        std::atomic<bool> told{false};  // why, in an answer that has a body
        bucket_->before = [&](const Asked& asked) -> Answered {
            if (told && mended) return {0};
            told = told || asked.method == "GET";
            return {status, {{"Date", "Wed, 01 Jan 2031 00:00:00 GMT"}}, xmlError(code.toStdString())};
        };
        if (!mended) {
            QCOMPARE(
                errorAt("s3://b1/d/m.bin", status == 403 ? ErrorCode::permission : ErrorCode::remote, code),
                QString());
            return;
        }
        QCOMPARE(contentAt("s3://b1/d/m.bin").value(), std::string("1"));
        told = false;
        QCOMPARE(contentAt("s3://b1/d/empty.bin").value(), std::string());
    }

    // Whatever a key holds, it is the same one when it is listed, read, written and removed.
    void oddKeys() {
        bucket_->putTree(kSample, "a b+c%20d/ü ♥/step=1,x:y@(z)!'~");
        const std::string there = "s3://b1/a b+c%20d/ü ♥/step=1,x:y@(z)!'~";
        const auto here = openCheckpoint(kSample), opened = openCheckpoint(there);
        QVERIFY2(opened.ok(), opened.ok() ? "" : qPrintable(textOf(opened.error())));
        QCOMPARE(digests(*opened->reader), digests(*here->reader));
        const std::string made = "s3://b1/a b+c%20d/o & <u>t;#?";
        const auto report = convert(there, made);
        QVERIFY2(report.ok(), report.ok() ? "" : qPrintable(textOf(report.error())));
        QVERIFY(bucket_->objects.contains("a b+c%20d/o & <u>t;#?/.metadata"));
        QCOMPARE(digests(*openCheckpoint(made)->reader), digests(*here->reader));
    }

    void longKeys() {
        const std::string deep =
            std::string(200, 'a') + "/" + std::string(200, 'b') + "/" + std::string(200, 'c');
        bucket_->put(deep + "/f", "1");
        QCOMPARE(contentAt("s3://b1/" + deep + "/f").value(), std::string("1"));
        bucket_->before = [](const Asked& asked) -> Answered {
            return asked.path.size() > 1030 ? Answered{400, {}, xmlError("KeyTooLongError")} : Answered{0};
        };
        QCOMPARE(errorAt("s3://b1/" + std::string(1100, 'k') + ".bin", ErrorCode::remote, "KeyTooLongError"),
                 QString());
    }

    void emptyObjects() {
        bucket_->put("d/empty.safetensors", "");
        QCOMPARE(contentAt("s3://b1/d/empty.safetensors").value(), std::string());
        const auto opened = openCheckpoint("s3://b1/d/empty.safetensors");
        QVERIFY(!opened.ok());
        QVERIFY2(textOf(opened.error()).contains("empty"), qPrintable(textOf(opened.error())));
    }

    // What consoles and Hadoop's tools leave where directories are to be seen.
    void directoryMarkers() {
        bucket_->putTree(kSample, "run/step-1");
        for (const char* marker :
             {"run/", "run/step-1/", "run/step-2/", "run_$folder$", "run/step-1_$folder$"})
            bucket_->put(marker, "");
        const auto opened = openCheckpoint("s3://b1/run/step-1");
        QVERIFY2(opened.ok(), opened.ok() ? "" : qPrintable(textOf(opened.error())));
        QVERIFY(opened->notes.empty());
        QCOMPARE(namesIn("s3://b1/run").value(),
                 (std::vector<std::string>{"step-1/", "step-1_$folder$", "step-2/"}));
        const auto empty = openCheckpoint("s3://b1/run/step-2");
        QVERIFY(!empty.ok());
        QVERIFY2(textOf(empty.error()).contains("holds no files"), qPrintable(textOf(empty.error())));
    }

    void oneNameBeginsTheOther() {
        bucket_->putTree(kSample, "run/step-10");
        bucket_->put("run/step-1.txt", "x");
        QCOMPARE(openCheckpoint("s3://b1/run/step-1").error().code, ErrorCode::notFound);
        QVERIFY(openCheckpoint("s3://b1/run/step-10").ok());
        const auto report = convert(kSample, "s3://b1/run/step-1");
        QVERIFY2(report.ok(), report.ok() ? "" : qPrintable(textOf(report.error())));
        QVERIFY(openCheckpoint("s3://b1/run/step-1").ok());
    }

    void slashes() {
        bucket_->putTree(kSample, "run//step-1");
        QVERIFY(openCheckpoint("s3://b1/run//step-1//").ok());
        const auto above = openCheckpoint("s3://b1/run");
        QVERIFY(!above.ok());
        QVERIFY2(textOf(above.error()).contains("run//step-1"), qPrintable(textOf(above.error())));
        const auto report = convert(kSample, "s3://b1/out/");
        QVERIFY2(report.ok(), report.ok() ? "" : qPrintable(textOf(report.error())));
        QVERIFY(bucket_->objects.contains("out/.metadata"));
        // Some stores take two slashes for one.
        for (const char* name : {"s3://b1/run//step-2", "s3://b1/run/../step-2"})
            QCOMPARE(convert(kSample, name).error().code, ErrorCode::usage);
    }

    // Buckets whose readers pay for what they read.
    void requesterPays() {
        bucket_->put("d/f", "1");
        bucket_->before = [](const Asked& asked) -> Answered {
            const bool pays = asked.header("x-amz-request-payer") == "requester" &&
                              asked.header("authorization").find("x-amz-request-payer") != std::string::npos;
            return pays ? Answered{0} : Answered{403, {}, xmlError("AccessDenied")};
        };
        QCOMPARE(errorAt("s3://b1/d/f", ErrorCode::permission, "AccessDenied"), QString());
        qputenv("AWS_REQUEST_PAYER", "requester");
        QCOMPARE(contentAt("s3://b1/d/f").value(), std::string("1"));
    }

    // Stores of others have regions, too, and say so in the same way.
    void regions() {
        bucket_->put("d/f", "1");
        bucket_->before = [](const Asked& asked) -> Answered {
            if (asked.header("authorization").find("/eu-lab-1/s3/") != std::string::npos) return {0};
            return {400, {}, xmlError("AuthorizationHeaderMalformed", "<Region>eu-lab-1</Region>")};
        };
        QCOMPARE(contentAt("s3://b1/d/f").value(), std::string("1"));
        bucket_->put("d/m.bin", "2");
        QCOMPARE(contentAt("s3://b1/d/m.bin").value(), std::string("2"));
    }

    void redirectedEndpoint() {
        bucket_->before = [](const Asked&) -> Answered {
            return {301, {{"Location", "https://store.example/b1?X-Amz-Signature=hidden"}}};
        };
        const auto content = contentAt("s3://b1/d/f");
        QCOMPARE(content.error().code, ErrorCode::remote);
        QVERIFY(textOf(content.error()).contains("https://store.example/b1"));
        QVERIFY(textOf(content.error()).contains("AWS_ENDPOINT_URL"));
        QVERIFY(!textOf(content.error()).contains("hidden"));
    }

    // Web pages answer to everything with their own.
    void endpointOfAConsole() {
        HttpServer console([](const Asked&) -> Answered {
            return {200, {{"Content-Type", "text/html"}}, "<!doctype html><html><body>Console</body></html>"};
        });
        qputenv("AWS_ENDPOINT_URL", QByteArray::fromStdString(console.url()));
        QCOMPARE(errorAt("s3://b1/d/f", ErrorCode::remote, "not a store that speaks like S3"), QString());
        QCOMPARE(errorAt("s3://b1/d/m.bin", ErrorCode::remote, "not a store that speaks like S3"), QString());
    }

    void endpointOfSomethingElse() {
        HttpServer other([](const Asked&) -> Answered { return {404, {}, "404 page not found"}; });
        qputenv("AWS_ENDPOINT_URL", QByteArray::fromStdString(other.url()));
        QCOMPARE(errorAt("s3://b1/d/f", ErrorCode::remote, "not a store that speaks like S3"), QString());
    }

    void endpointWithAPath() {
        HttpServer gateway([](const Asked& asked) { return answerOfAStore(asked, "/team/b1/"); });
        for (const char* end : {"/team", "/team/", "/team\n"}) {
            qputenv("AWS_ENDPOINT_URL", QByteArray::fromStdString(gateway.url() + end));
            const auto content = contentAt("s3://b1/d/m.bin");
            QVERIFY2(content.ok(), content.ok() ? "" : qPrintable(textOf(content.error())));
            QCOMPARE(*content, std::string("12345"));
        }
    }

    // The bucket in the host's name, where the profile says so; one with dots in its name as well.
    void virtualHosts() {
        std::string host;
        HttpServer store([&](const Asked& asked) {
            return asked.header("host") == host ? answerOfAStore(asked, "/") : Answered{404};
        });
        const std::string port = std::to_string(store.port());
        useFiles("[default]\naws_access_key_id = AKTEST\naws_secret_access_key = S\n",
                 "[default]\ns3 =\n  addressing_style = virtual\n");
        qputenv("AWS_ENDPOINT_URL", QByteArray::fromStdString("http://localhost:" + port));
        for (const std::string bucket : {"b1", "my.bucket"}) {
            host = bucket + ".localhost:" + port;
            const auto content = contentAt("s3://" + bucket + "/d/m.bin");
            QVERIFY2(content.ok(), content.ok() ? "" : qPrintable(textOf(content.error())));
            QCOMPARE(*content, std::string("12345"));
        }
    }

    // As editors and other systems write these files.
    void credentialsFiles_data() {
        QTest::addColumn<QByteArray>("credentials");
        QTest::addColumn<QByteArray>("config");
        QTest::newRow("CRLF")
            << QByteArray("[default]\r\naws_access_key_id = AKTEST\r\naws_secret_access_key = S\r\n")
            << QByteArray();
        QTest::newRow("mark")
            << QByteArray("\xEF\xBB\xBF[default]\naws_access_key_id=AKTEST\naws_secret_access_key=S\n")
            << QByteArray();
        QTest::newRow("capitals") << QByteArray(
                                         "[default]\nAWS_ACCESS_KEY_ID = AKTEST\nAWS_SECRET_ACCESS_KEY = S\n")
                                  << QByteArray();
        QTest::newRow("colons") << QByteArray(
                                       "[default]\naws_access_key_id: AKTEST\naws_secret_access_key: S\n")
                                << QByteArray();
        QTest::newRow("quoted profile")
            << QByteArray()
            << QByteArray("[profile  \"my lab\"]\naws_access_key_id=AKTEST\naws_secret_access_key=S\n");
    }
    void credentialsFiles() {
        QFETCH(QByteArray, credentials);
        QFETCH(QByteArray, config);
        bucket_->put("d/f", "1");
        useFiles(credentials.toStdString(), config.toStdString());
        if (!config.isEmpty()) qputenv("AWS_PROFILE", "my lab");
        const auto content = contentAt("s3://b1/d/f");
        QVERIFY2(content.ok(), content.ok() ? "" : qPrintable(textOf(content.error())));
    }

    void missingProfile() {
        bucket_->put("d/f", "1");
        useFiles("[default]\naws_access_key_id=AKTEST\naws_secret_access_key=S\n");
        qputenv("AWS_PROFILE", "nobody");
        QCOMPARE(errorAt("s3://b1/d/f", ErrorCode::permission, "the profile 'nobody'"), QString());
    }

    // Secrets of clusters end with a line.
    void keysWithLines() {
        bucket_->put("d/f", "1");
        qputenv("AWS_ACCESS_KEY_ID", "AKTEST\n");
        qputenv("AWS_SECRET_ACCESS_KEY", "SKTESTSECRET\r\n");
        qputenv("AWS_SESSION_TOKEN", " TOKEN\n");
        QCOMPARE(contentAt("s3://b1/d/f").value(), std::string("1"));
        QCOMPARE(bucket_->server().asked().back().header("x-amz-security-token"), std::string("TOKEN"));
    }

    void archived() {
        bucket_->put("d/f", "1");
        bucket_->before = [](const Asked& asked) -> Answered {
            if (asked.header("range").empty()) return {0};
            return {403, {}, xmlError("InvalidObjectState")};
        };
        QCOMPARE(errorAt("s3://b1/d/f", ErrorCode::permission, "restore it"), QString());
    }

    // A repository that has a new name answers under the old one.
    void renamedRepository() {
        const std::string sha(40, 'a');
        HttpServer hub([&](const Asked& asked) -> Answered {
            const std::string rest =
                asked.path.substr(std::min(asked.path.find("/old/m"), asked.path.size()));
            if (!rest.empty() && asked.path.starts_with("/api/"))
                return {307,
                        {{"Location", "/api/models/new/m" + rest.substr(6) +
                                          (asked.query.empty() ? "" : "?" + asked.query)}}};
            if (!rest.empty()) return {307, {{"Location", "/new/m" + rest.substr(6)}}};
            if (asked.path == "/api/models/new/m/revision/main")
                return {200, {}, "{\"sha\":\"" + sha + "\"}"};
            if (asked.path == "/api/models/new/m/tree/" + sha)
                return {200, {}, R"([{"type":"file","path":"c.json","oid":"c","size":3}])"};
            if (asked.path == "/new/m/resolve/" + sha + "/c.json") {
                Answered answer = rangeOf("{ }", asked);
                answer.headers.emplace_back("ETag", "\"c\"");
                return answer;
            }
            return {404};
        });
        qputenv("HF_ENDPOINT", QByteArray::fromStdString(hub.url()));
        QCOMPARE(namesIn("hf://old/m").value(), std::vector<std::string>{"c.json"});
        QCOMPARE(contentAt("hf://old/m/c.json").value(), std::string("{ }"));
        // The addresses that browsers show.
        for (const char* path : {"/old/m/blob/main/c.json", "/new/m/resolve/main/c.json?download=true"})
            QCOMPARE(contentAt(hub.url() + path).value(), std::string("{ }"));
        for (const char* path : {"/new/m", "/new/m/", "/new/m/tree/main"})
            QCOMPARE(namesIn(hub.url() + path).value(), std::vector<std::string>{"c.json"});
        QCOMPARE(placeOf(hub.url() + "/datasets/o/d/tree/refs%2Fpr%2F1/a%20b").value().path,
                 std::string("hf://datasets/o/d@refs%2Fpr%2F1/a b"));
    }

    void gatedWithoutToken() {
        HttpServer hub([](const Asked& asked) -> Answered {
            if (asked.path.find("/private/") != std::string::npos) return {401, {}, "{}"};
            if (asked.path.find("/gated/") != std::string::npos)
                return {401, {{"X-Error-Code", "GatedRepo"}}, "{}"};
            return {404, {{"X-Error-Code", "RevisionNotFound"}}, "{}"};
        });
        qputenv("HF_ENDPOINT", QByteArray::fromStdString(hub.url()));
        QCOMPARE(errorAt("hf://o/gated/f", ErrorCode::permission, "HF_TOKEN"), QString());
        QCOMPARE(errorAt("hf://o/private/f", ErrorCode::notFound, "private"), QString());
        QCOMPARE(errorAt("hf://o/m@v9/f", ErrorCode::notFound, "no revision 'v9'"), QString());
    }

    // An index names its siblings as they are called; an address may be encoded already.
    void namesOnWebServers() {
        HttpServer web([](const Asked& asked) -> Answered {
            if (asked.path != "/a%20dir/m%231%20%C3%BC%25.bin") return {404};
            Answered answer = rangeOf("12345", asked);
            answer.headers.emplace_back("ETag", "\"1\"");
            return answer;
        });
        const auto at = [&](const std::string& directory, const std::string& name) {
            const Place place = placeOf(web.url() + directory).value();
            return place.files->openDirectory(place.path).value()->openFile(name);
        };
        for (const char* directory : {"/a%20dir", "/a dir"}) {
            const auto file = at(directory, "m#1 ü%.bin");
            QVERIFY2(file.ok(), file.ok() ? "" : qPrintable(textOf(file.error())));
        }
    }

    // A page that says how to download is not the file.
    void pagesAndPointers() {
        HttpServer web([](const Asked& asked) -> Answered {
            if (asked.path == "/model") return {301, {{"Location", "/model/"}}};
            const std::string page =
                asked.path.ends_with(".safetensors")
                    ? "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
                    : "<!DOCTYPE html><html><body>Index of /model</body></html>";
            return rangeOf(page, asked);
        });
        const auto pointer = openCheckpoint(web.url() + "/m.safetensors"),
                   page = openCheckpoint(web.url() + "/model/");
        QVERIFY(!pointer.ok() && !page.ok());
        QVERIFY2(textOf(pointer.error()).contains("git-lfs"), qPrintable(textOf(pointer.error())));
        QVERIFY2(textOf(page.error()).contains("HTML"), qPrintable(textOf(page.error())));
    }
};

QTEST_GUILESS_MAIN(PlacesTroubleTest)
#include "places_trouble_test.moc"
