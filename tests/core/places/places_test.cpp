// Checkpoints in buckets, on the hub and on web servers, and servers that fail in every way that they do.
#include "places/places.h"

#include <QtTest>
#include <future>

#include "core/places/place_content.h"
#include "engine/engine.h"
#include "places/http.h"
#include "support/http_server.h"
#include "support/read_checks.h"

using namespace shardscope;
using namespace shardscope::test;

namespace {

const std::string kSample = SHARDSCOPE_TEST_DATA "/../../resources/sample/dcp-fsdp2-tp";

const std::string kLong(100'000, 'x');

}  // namespace

class PlacesTest : public QObject {
    Q_OBJECT

    QTemporaryDir home_;

  private slots:
    void initTestCase() {
        for (const char* name : {"AWS_PROFILE", "AWS_SESSION_TOKEN", "HF_TOKEN", "HTTP_PROXY", "http_proxy"})
            qunsetenv(name);
        qputenv("HOME", home_.path().toLocal8Bit());
        qputenv("HF_HOME", home_.path().toLocal8Bit());
    }

    void opensAndReadsTheSame() {
        FakeBucket bucket("b1");
        bucket.use();
        bucket.putTree(kSample, "run/step-1");
        const auto there = openCheckpoint("s3://b1/run/step-1/"), here = openCheckpoint(kSample);
        QVERIFY2(there.ok(), there.ok() ? "" : qPrintable(textOf(there.error())));
        QCOMPARE(there->path, std::string("s3://b1/run/step-1"));
        const size_t listings = 1, most = listings + 2;
        QVERIFY2(bucket.server().asked().size() <= most,
                 std::to_string(bucket.server().asked().size()).c_str());
        QCOMPARE(digests(*there->reader), digests(*here->reader));
        for (const Asked& asked : bucket.server().asked())
            if (!asked.header("range").empty()) QVERIFY(asked.header("if-match").starts_with('"'));
    }

    void listings() {
        FakeBucket bucket("b1");
        bucket.use();
        for (const char* key : {"run/a b/x", "run/a b/y=1", "run/z", "run/both", "run/both/c", "run/",
                                "run/dir/", "run//odd", "run/../up", "other/k"})
            bucket.put(key, "1");
        for (const size_t page : {size_t{1000}, size_t{3}, size_t{1}}) {
            bucket.mostKeys = page;
            const auto names = namesIn("s3://b1/run");
            QVERIFY2(names.ok(), names.ok() ? "" : qPrintable(textOf(names.error())));
            QCOMPARE(*names, (std::vector<std::string>{"a b/", "both", "dir/", "z"}));
            QCOMPARE(namesIn("s3://b1/run", "a b").value(), (std::vector<std::string>{"x", "y=1"}));
        }
        QCOMPARE(namesIn("s3://b1").value(), (std::vector<std::string>{"other/", "run/"}));
        QCOMPARE(namesIn("s3://b1/nothing").error().code, ErrorCode::notFound);
        QCOMPARE(contentAt("s3://b1/run/both").value(), std::string("1"));
    }

    // A listing that cannot be is an error, never a shorter one.
    void brokenListings_data() {
        QTest::addColumn<QByteArray>("second");
        QTest::addColumn<int>("status");
        const auto row = [](const char* name, const std::string& body, int status = 200) {
            QTest::newRow(name) << QByteArray::fromStdString(body) << status;
        };
        const std::string begin = "<ListBucketResult>", end = "</ListBucketResult>";
        const auto key = [](const std::string& k) {
            return "<Contents><Key>" + k + "</Key><Size>1</Size></Contents>";
        };
        row("refused", xmlError("AccessDenied"), 403);
        row("error with status 200", xmlError("AccessDenied"));
        row("the same page for ever",
            begin + key("run/c") +
                "<IsTruncated>true</IsTruncated><NextContinuationToken>run/b</NextContinuationToken>" + end);
        row("no token", begin + "<IsTruncated>true</IsTruncated>" + end);
        row("order", begin + key("run/a") + end);
        row("elsewhere", begin + key("else") + end);
        row("breaks off", begin + key("run/c"));
        row("size", begin + "<Contents><Key>run/c</Key><Size>-1</Size></Contents>" + end);
    }
    void brokenListings() {
        QFETCH(QByteArray, second);
        QFETCH(int, status);
        FakeBucket bucket("b1");
        bucket.use();
        for (const char* name : {"run/a", "run/b", "run/c", "run/d"})
            bucket.put(name, "1");
        bucket.mostKeys = 2;
        bucket.before = [&](const Asked& asked) {
            return asked.argument("continuation-token").empty() ? Answered{0}
                                                                : Answered{status, {}, second.toStdString()};
        };
        const auto names = namesIn("s3://b1/run");
        QVERIFY(!names.ok());
        QVERIFY(names.error().code != ErrorCode::notFound);
    }

    void changed() {
        FakeBucket bucket("b1");
        bucket.use();
        bucket.put("d/f", kLong);
        const Place place = placeOf("s3://b1/d").value();
        const auto file = place.files->openDirectory("s3://b1/d").value()->openFile("f").value();
        const Fingerprint before = file->fingerprint().value();
        QCOMPARE(file->fingerprint().value(), before);
        bucket.put("d/f", std::string(kLong.size(), 'y'));
        std::vector<std::byte> bytes(10);
        QCOMPARE(file->readAt(5, bytes).error().code, ErrorCode::changed);
        QVERIFY(!(file->fingerprint().value() == before));
        QCOMPARE(file->readAt(kLong.size(), bytes).error().code, ErrorCode::changed);
    }

    void faultsThatPass_data() {
        QTest::addColumn<int>("status");
        QTest::addColumn<int>("end");
        QTest::newRow("503") << 503 << int(Answered::End::whole);
        QTest::newRow("500") << 500 << int(Answered::End::whole);
        QTest::newRow("short") << 206 << int(Answered::End::cut);
        QTest::newRow("reset") << 206 << int(Answered::End::reset);
    }
    void faultsThatPass() {
        QFETCH(int, status);
        QFETCH(int, end);
        FakeBucket bucket("b1");
        bucket.use();
        bucket.put("d/f", kLong);
        std::atomic<int> faults{2};
        bucket.before = [&](const Asked& asked) -> Answered {
            if (asked.header("range").empty() || faults-- <= 0) return {0};
            Answered answer{status,
                            {{"Content-Range", "bytes 0-99999/100000"}},
                            status == 206 ? std::string(kLong.size(), 'n') : xmlError("SlowDown")};
            answer.end = static_cast<Answered::End>(end);
            return answer;
        };
        const uint64_t retries = Http::traffic().retries;
        const auto bytes = contentAt("s3://b1/d/f");
        QVERIFY2(bytes.ok(), bytes.ok() ? "" : qPrintable(textOf(bytes.error())));
        QCOMPARE(*bytes, kLong);
        // Where a kept connection ends, libcurl itself asks again.
        QVERIFY(Http::traffic().retries > retries);
        QCOMPARE(faults.load() <= 0, true);
    }

    // A read that stands still while others took milliseconds is asked for a second time, long before the
    // half minute that any transfer may stand still; the bytes that came before do no harm.
    void stalled_data() {
        QTest::addColumn<bool>("half");
        QTest::newRow("from the beginning") << false;
        QTest::newRow("in the middle") << true;
    }
    void stalled() {
        QFETCH(bool, half);
        FakeBucket bucket("b1");
        bucket.use();
        bucket.put("d/f", kLong);
        for (int i = 0; i < 10; ++i)
            QCOMPARE(contentAt("s3://b1/d/f").value(), kLong);
        std::atomic<int> faults{1};
        bucket.before = [&](const Asked& asked) -> Answered {
            if (asked.header("range").empty() || faults-- <= 0) return {0};
            Answered answer;
            answer.end = Answered::End::never;
            if (!half) return answer;
            answer = rangeOf(std::string(kLong.size(), 'z'), asked);
            answer.end = Answered::End::stall;
            return answer;
        };
        const size_t before = bucket.server().asked().size();
        QElapsedTimer timer;
        timer.start();
        QCOMPARE(contentAt("s3://b1/d/f").value(), kLong);
        QVERIFY(faults <= 0);
        // Only what stood still was asked for twice.
        std::map<std::string, int> ranges;
        const std::vector<Asked> asked = bucket.server().asked();
        for (size_t i = before; i < asked.size(); ++i)
            if (!asked[i].header("range").empty()) ++ranges[asked[i].header("range")];
        QCOMPARE(std::ranges::count_if(ranges, [](const auto& range) { return range.second == 2; }), 1);
        QVERIFY2(timer.elapsed() < 25'000, qPrintable(QString::number(timer.elapsed())));
    }

    // The first request is not given up by that: whichever is answered first counts, once.
    void askedTwice_data() {
        QTest::addColumn<QString>("second");
        for (const char* second : {"silent", "refused", "half"})
            QTest::newRow(second) << second;
    }
    void askedTwice() {
        QFETCH(QString, second);
        // The server's threads use these.
        std::promise<void> again, ended;
        const std::shared_future<void> askedAgain(again.get_future()), over(ended.get_future());
        std::atomic<int> reads{0};
        Http::Traffic before;
        FakeBucket bucket("b1");
        bucket.use();
        bucket.put("d/f", kLong);
        for (int i = 0; i < 10; ++i)
            QCOMPARE(contentAt("s3://b1/d/f").value(), kLong);
        before = Http::traffic();
        bucket.before = [&](const Asked& asked) -> Answered {
            if (asked.header("range").empty()) return {0};
            const int read = reads++;
            Answered answer = rangeOf(kLong, asked);
            if (read == 0) {
                answer.between = [&] {
                    askedAgain.wait();
                    while (second == "refused" && Http::traffic().throttled == before.throttled &&
                           over.wait_for(std::chrono::milliseconds(10)) == std::future_status::timeout) {
                    }
                };
                return answer;
            }
            if (read == 1) again.set_value();
            if (second == "refused") return {503, {}, xmlError("SlowDown")};
            if (second == "silent") answer.end = Answered::End::never;
            answer.between = [&] { over.wait(); };
            return answer;
        };
        const Result<std::string> content = contentAt("s3://b1/d/f");
        ended.set_value();
        QCOMPARE(content.value(), kLong);
        QCOMPARE(reads.load(), 2);
        const Http::Traffic after = Http::traffic();
        QCOMPARE(after.retries - before.retries, uint64_t{1});
        QCOMPARE(after.throttled - before.throttled, uint64_t{second == "refused"});
    }

    // However many reads stand still, few of them are asked for twice at a time.
    void fewAreAskedTwice() {
        FakeBucket bucket("b1");
        bucket.use();
        constexpr int kFiles = 12, kMost = 4;
        for (int i = 0; i < kFiles; ++i)
            bucket.put("d/" + std::to_string(i), kLong);
        for (int i = 0; i < kFiles; ++i)
            QCOMPARE(contentAt("s3://b1/d/" + std::to_string(i)).value(), kLong);
        std::mutex mutex;
        std::map<std::string, int> reads;
        int underWay = 0, most = 0, second = 0;
        std::promise<void> enough;
        const std::shared_future<void> goOn(enough.get_future());
        bucket.before = [&](const Asked& asked) -> Answered {
            if (asked.header("range").empty()) return {0};
            const std::lock_guard lock(mutex);
            Answered answer{206};
            if (++reads[asked.path] == 1) {
                answer.end = Answered::End::never;
                return answer;
            }
            most = std::max(most, ++underWay);
            if (++second == kMost) enough.set_value();
            answer = rangeOf(kLong, asked);
            answer.between = [&] {
                goOn.wait();
                const std::lock_guard again(mutex);
                --underWay;
            };
            return answer;
        };
        std::vector<std::future<Result<std::string>>> work;
        for (int i = 0; i < kFiles; ++i)
            work.push_back(
                std::async(std::launch::async, [i] { return contentAt("s3://b1/d/" + std::to_string(i)); }));
        for (auto& one : work)
            QCOMPARE(one.get().value(), kLong);
        QCOMPARE(second, kFiles);
        QCOMPARE(most, kMost);
    }

    // Sixteen transfers to a host at first, more while that brings more, never above 64; half as many each
    // time that the host says it is too much, down to two.
    void transfersAtATime() {
        std::mutex mutex;
        std::condition_variable changed;
        bool held = true, refuses = false;
        int underWay = 0, most = 0, arrived = 0, few = 0;  // few: that found one other at most, in a row
        HttpServer server([&](const Asked& asked) -> Answered {
            std::unique_lock lock(mutex);
            most = std::max(most, ++underWay);
            ++arrived;
            few = underWay <= 2 ? few + 1 : 0;
            changed.notify_all();
            changed.wait(lock, [&] { return !held; });
            const bool refused = refuses;
            lock.unlock();
            // So the more at a time, the more it serves.
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            lock.lock();
            --underWay;
            return refused ? Answered{503} : rangeOf(kLong, asked);
        });
        constexpr size_t kQueued = 200;
        std::vector<std::vector<std::byte>> buffers(kQueued, std::vector<std::byte>(1000));
        std::deque<Http::Ticket> tickets;
        size_t fed = 0;
        const auto feed = [&] {
            while (tickets.size() < kQueued) {
                HttpRequest request{"GET", server.url() + "/f"};
                request.into = buffers[fed++ % kQueued];
                tickets.push_back(Http::ofProcess().start(std::move(request)));
            }
        };
        // Asks and asks, in order, until that is so.
        const auto askUntil = [&](auto&& holds) {
            QElapsedTimer timer;
            timer.start();
            for (;;) {
                {
                    const std::lock_guard lock(mutex);
                    if (holds()) return true;
                }
                if (timer.elapsed() > 180'000) return false;
                feed();
                (void)Http::ofProcess().wait(tickets.front());
                tickets.pop_front();
            }
        };
        const auto leave = qScopeGuard([&] {
            {
                const std::lock_guard lock(mutex);
                held = false;
            }
            changed.notify_all();
            for (const Http::Ticket& ticket : tickets)
                Http::ofProcess().giveUp(ticket);
        });
        feed();
        {
            std::unique_lock lock(mutex);
            QVERIFY(changed.wait_for(lock, std::chrono::minutes(3), [&] { return underWay >= 16; }));
            QCOMPARE(most, 16);
            held = false;
        }
        changed.notify_all();
        QVERIFY(askUntil([&] { return most >= 64; }));
        QVERIFY(askUntil([&, until = arrived + 200] { return arrived >= until; }));
        QCOMPARE(most, 64);

        const auto setRefuses = [&](bool now) {
            const std::lock_guard lock(mutex);
            refuses = now;
        };
        const uint64_t throttled = Http::traffic().throttled;
        setRefuses(true);
        QVERIFY(askUntil([&] { return Http::traffic().throttled > throttled; }));
        setRefuses(false);
        QVERIFY(askUntil([&] { return underWay <= 32; }));
        {
            const std::lock_guard lock(mutex);
            most = 0;
            arrived = 0;
        }
        QVERIFY(askUntil([&] { return arrived >= 20; }));
        QVERIFY2(most > 2 && most < 60, qPrintable(QString::number(most)));

        setRefuses(true);
        QVERIFY(askUntil([&] { return few >= 20; }));
        setRefuses(false);
        {
            const std::lock_guard lock(mutex);
            most = 0;
        }
        QVERIFY(askUntil([&] { return most >= 6; }));
    }

    // What is no answer to the question is an error at once.
    void wrongAnswers_data() {
        QTest::addColumn<int>("status");
        QTest::addColumn<QByteArray>("header");
        QTest::addColumn<QByteArray>("value");
        QTest::newRow("another range")
            << 206 << QByteArray("Content-Range") << QByteArray("bytes 1-100000/100001");
        QTest::newRow("another size")
            << 206 << QByteArray("Content-Range") << QByteArray("bytes 0-99999/100001");
        QTest::newRow("no range") << 200 << QByteArray("X") << QByteArray("y");
        QTest::newRow("nonsense") << 206 << QByteArray("Content-Range") << QByteArray("bytes */5");
        QTest::newRow("compressed") << 206 << QByteArray("Content-Encoding") << QByteArray("gzip");
    }
    void wrongAnswers() {
        QFETCH(int, status);
        QFETCH(QByteArray, header);
        QFETCH(QByteArray, value);
        FakeBucket bucket("b1");
        bucket.use();
        bucket.put("d/f", kLong);
        bucket.before = [&](const Asked& asked) -> Answered {
            if (asked.header("range").empty()) return {0};
            return {status, {{header.toStdString(), value.toStdString()}}, kLong};
        };
        const auto bytes = contentAt("s3://b1/d/f");
        QVERIFY(!bytes.ok());
        QCOMPARE(bytes.error().code, ErrorCode::remote);
    }

    void mended_data() {
        QTest::addColumn<QByteArray>("code");
        QTest::newRow("clock") << QByteArray("RequestTimeTooSkewed");
        QTest::newRow("token") << QByteArray("ExpiredToken");
    }
    void mended() {
        QFETCH(QByteArray, code);
        FakeBucket bucket("b1");
        bucket.use();
        bucket.put("d/f", "1");
        std::atomic<int> faults{1};
        bucket.before = [&](const Asked&) -> Answered {
            if (faults-- <= 0) return {0};
            return {403, {{"Date", "Wed, 01 Jan 2031 00:00:00 GMT"}}, xmlError(code.toStdString())};
        };
        QCOMPARE(contentAt("s3://b1/d/f").value(), std::string("1"));
        if (code == "RequestTimeTooSkewed")
            QVERIFY(bucket.server().asked().back().header("x-amz-date").starts_with("20310101T"));
    }

    void refusals() {
        FakeBucket bucket("b1");
        bucket.put("d/f", "1");
        bucket.use("WRONGKEY", "hidden-secret");
        const auto refused = contentAt("s3://b1/d/f");
        QCOMPARE(refused.error().code, ErrorCode::permission);
        QVERIFY(!textOf(refused.error()).contains("hidden-secret"));
        QVERIFY(textOf(refused.error()).contains("the environment"));
        bucket.use();
        QCOMPARE(contentAt("s3://other/d/f").error().code, ErrorCode::notFound);
        QCOMPARE(placeOf("s3://").error().code, ErrorCode::usage);
        QCOMPARE(placeOf("hf://model").error().code, ErrorCode::usage);
        const auto user = placeOf("https://me:hidden-secret@host/x");
        QCOMPARE(user.error().code, ErrorCode::usage);
        QVERIFY(!textOf(user.error()).contains("hidden-secret"));
    }

    void cancelled() {
        FakeBucket bucket("b1");
        bucket.use();
        bucket.put("d/f", kLong);
        bucket.before = [](const Asked& asked) {
            Answered answer{asked.header("range").empty() ? 0 : 200};
            answer.end = Answered::End::never;
            return answer;
        };
        StopSource stop;
        const auto work = std::async(std::launch::async, [&] {
            const StopScope scope{StopToken(stop)};
            return contentAt("s3://b1/d/f");
        });
        bucket.server().waitFor(3);  // HEAD, listing, range
        stop.requestStop();
        QCOMPARE(const_cast<std::future<Result<std::string>>&>(work).get().error().code,
                 ErrorCode::cancelled);
    }

    void profiles() {
        QTemporaryDir files;
        const std::string place = files.path().toStdString();
        const auto write = [&](const char* name, const std::string& text) {
            std::ofstream(place + "/" + name) << text;
        };
        FakeBucket bucket("b1");
        bucket.put("d/f", "1");
        bucket.use();
        qunsetenv("AWS_ACCESS_KEY_ID");
        qunsetenv("AWS_SECRET_ACCESS_KEY");
        qputenv("AWS_SHARED_CREDENTIALS_FILE", QByteArray::fromStdString(place + "/credentials"));
        qputenv("AWS_CONFIG_FILE", QByteArray::fromStdString(place + "/config"));
        write("credentials",
              "[lab]\naws_access_key_id = AKTEST\naws_secret_access_key = S\naws_session_token = T\n");
        write("config",
              "[profile program]\ncredential_process = cat " + place +
                  "/said\n[profile sso]\nsso_session = x\n[profile broken]\ncredential_process = false\n");
        write(
            "said",
            R"({"Version":1,"AccessKeyId":"AKTEST","SecretAccessKey":"S","SessionToken":"U","Expiration":"2099-01-01T00:00:00Z"})");
        qputenv("AWS_PROFILE", "lab");
        QCOMPARE(contentAt("s3://b1/d/f").value(), std::string("1"));
        QCOMPARE(bucket.server().asked().back().header("x-amz-security-token"), std::string("T"));
        qputenv("AWS_PROFILE", "program");
        QCOMPARE(contentAt("s3://b1/d/f").value(), std::string("1"));
        QCOMPARE(bucket.server().asked().back().header("x-amz-security-token"), std::string("U"));
        for (const char* profile : {"sso", "broken"}) {
            qputenv("AWS_PROFILE", profile);
            const auto refused = contentAt("s3://b1/d/f");
            QCOMPARE(refused.error().code, ErrorCode::permission);
            QVERIFY(textOf(refused.error()).contains(profile));
        }
        for (const char* name : {"AWS_PROFILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"})
            qunsetenv(name);
    }

    void hub() {
        const std::string sha(40, 'a'), big(300'000, 'w');
        HttpServer store([&](const Asked& asked) -> Answered {
            if (!asked.header("authorization").empty()) return {400, {}, "the token must not come here"};
            const std::string range = asked.header("range");
            const size_t first = std::stoul(range.substr(6)),
                         last = std::stoul(range.substr(range.find('-') + 1));
            return {206,
                    {{"Content-Range",
                      "bytes " + std::to_string(first) + "-" + std::to_string(last) + "/300000"}},
                    big.substr(first, last - first + 1)};
        });
        std::string elsewhere;
        bool again = false;  // the second page is followed by the second page
        HttpServer* self = nullptr;
        HttpServer server([&](const Asked& asked) -> Answered {
            const std::string api = "/api/models/org/m";
            if (asked.path == "/api/models/org/gated/revision/main")
                return {403, {{"X-Error-Code", "GatedRepo"}}, "{}"};
            if (asked.path.starts_with("/api/models/org/no/"))
                return {404, {{"X-Error-Code", "RepoNotFound"}}, "{}"};
            if (asked.path == api + "/revision/main") return {200, {}, "{\"sha\":\"" + sha + "\"}"};
            if (asked.path.starts_with(api + "/revision/"))
                return {404, {{"X-Error-Code", "RevisionNotFound"}}, "{}"};
            if (asked.path == api + "/tree/" + sha && (again || asked.argument("cursor").empty()))
                return {
                    200,
                    {{"Link", "<" + (elsewhere.empty() ? self->url() : elsewhere) + api + "/tree/" + sha +
                                  "?cursor=2>; rel=\"next\""}},
                    R"([{"type":"file","path":"w.bin","oid":"p","size":134,"lfs":{"oid":"L","size":300000}}])"};
            if (asked.path == api + "/tree/" + sha)
                return {
                    200,
                    {},
                    R"([{"type":"file","path":"config.json","oid":"c","size":2},{"type":"directory","path":"sub"}])"};
            if (asked.path == "/org/m/resolve/" + sha + "/w.bin")
                return {307, {{"Location", "/org/renamed/" + sha}}};
            if (asked.path == "/org/renamed/" + sha)
                return {302,
                        {{"Location", store.url() + "/signed"},
                         {"X-Linked-Size", "300000"},
                         {"X-Linked-Etag", "\"L\""}}};
            return {404, {{"X-Error-Code", "EntryNotFound"}}, ""};
        });
        self = &server;
        qputenv("HF_ENDPOINT", QByteArray::fromStdString(server.url()));
        qputenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", "0");
        qputenv("HF_TOKEN", "hf_hidden\n");
        QCOMPARE(namesIn("hf://org/m").value(), (std::vector<std::string>{"config.json", "w.bin"}));
        QCOMPARE(contentAt("hf://org/m/w.bin").value(), big);
        QVERIFY(store.asked().size() >= 1);
        for (const Asked& asked : server.asked())
            QCOMPARE(asked.header("authorization"), std::string("Bearer hf_hidden"));
        // What was downloaded before is read from there; of another size it is something else.
        const QTemporaryDir cache;
        QDir at(cache.path());
        QVERIFY(at.mkpath("models--org--m/blobs") && at.mkpath("models--org--m/refs") &&
                at.mkpath("models--org--m/snapshots/" + QString::fromStdString(sha)));
        at.cd("models--org--m");
        const auto put = [&](const QString& name, const std::string& bytes) {
            QFile file(at.filePath(name));
            QVERIFY(file.open(QIODevice::WriteOnly) && file.write(QByteArray::fromStdString(bytes)) >= 0);
        };
        const std::string cached(300'000, 'c');
        put("refs/main", sha + "\n");
        put("blobs/L", cached);
        put("blobs/c", "longer than the hub says");
        const QString snapshot = at.filePath("snapshots/" + QString::fromStdString(sha));
        QVERIFY(QFile::link("../../blobs/L", snapshot + "/w.bin"));
        QVERIFY(QFile::link("../../blobs/c", snapshot + "/config.json"));
        qputenv("HF_HUB_CACHE", cache.path().toLocal8Bit());
        store.forget();
        QCOMPARE(contentAt("hf://org/m/w.bin").value(), cached);
        QVERIFY(store.asked().empty());
        QVERIFY(!contentAt("hf://org/m/config.json").ok());
        server.forget();
        qputenv("HF_HUB_OFFLINE", "1");
        QCOMPARE(contentAt("hf://org/m/w.bin").value(), cached);
        QCOMPARE(namesIn("hf://org/m").value(), (std::vector<std::string>{"config.json", "w.bin"}));
        QCOMPARE(namesIn("hf://org/m@other").error().code, ErrorCode::notFound);
        QVERIFY(server.asked().empty());
        qunsetenv("HF_HUB_OFFLINE");
        qputenv("HF_HUB_CACHE", "/nowhere");
        const auto gated = namesIn("hf://org/gated"), none = namesIn("hf://org/no"),
                   revision = namesIn("hf://org/m@x");
        QCOMPARE(gated.error().code, ErrorCode::permission);
        QVERIFY(textOf(gated.error()).contains("gated"));
        QCOMPARE(none.error().code, ErrorCode::notFound);
        QVERIFY(textOf(revision.error()).contains("'x'"));
        elsewhere = "http://elsewhere";
        QVERIFY(!namesIn("hf://org/m").ok());
        elsewhere.clear();
        again = true;
        const auto circle = namesIn("hf://org/m");
        QCOMPARE(circle.error().code, ErrorCode::damaged);
        for (const auto* error : {&gated.error(), &none.error(), &revision.error()})
            QVERIFY(!textOf(*error).contains("hf_hidden"));
        qputenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1");
        server.forget();
        QVERIFY(!namesIn("hf://org/gated").ok());
        QCOMPARE(server.asked().back().header("authorization"), std::string());
        qunsetenv("HF_HUB_DISABLE_IMPLICIT_TOKEN");
        qunsetenv("HF_TOKEN");
    }

    void web() {
        const std::string model(1000, 'm');
        std::string written = "Fri, 02 Jan 2026 03:04:05 GMT";
        HttpServer server([&](const Asked& asked) -> Answered {
            if (asked.path == "/moved.pt") return {302, {{"Location", "/m.pt?token=hidden"}}};
            if (asked.path == "/a/near.pt") return {302, {{"Location", "m.pt"}}};
            if (asked.path == "/a/m.pt") return {302, {{"Location", "/m.pt"}}};
            if (asked.path == "/circle.pt") return {302, {{"Location", "/circle.pt"}}};
            if (asked.path == "/whole.pt") return {200, {}, model};
            if (asked.path != "/m.pt") return {404};
            if (asked.method == "HEAD") return {405};
            const std::string since = asked.header("if-unmodified-since");
            if (!since.empty() && since != written) return {412};
            const std::string range = asked.header("range");
            const size_t first = std::stoul(range.substr(6)),
                         last = std::stoul(range.substr(range.find('-') + 1));
            return {
                206,
                {{"Content-Range", "bytes " + std::to_string(first) + "-" + std::to_string(last) + "/1000"},
                 {"ETag", "W/\"weak\""},
                 {"Last-Modified", written}},
                model.substr(first, last - first + 1)};
        });
        QCOMPARE(contentAt(server.url() + "/m.pt").value(), model);
        QCOMPARE(server.asked().back().header("if-unmodified-since"), written);
        QCOMPARE(contentAt(server.url() + "/moved.pt").value(), model);
        QCOMPARE(contentAt(server.url() + "/a/near.pt").value(), model);
        const auto file =
            placeOf(server.url()).value().files->openDirectory(server.url()).value()->openFile("m.pt");
        written = "Fri, 02 Jan 2026 03:04:06 GMT";
        std::vector<std::byte> some(10);
        QCOMPARE(file.value()->readAt(5, some).error().code, ErrorCode::changed);
        QCOMPARE(contentAt(server.url() + "/m.pt?signature=hidden").value(), model);
        QCOMPARE(server.asked().back().query, std::string("signature=hidden"));
        for (const char* bad :
             {"/none.pt?signature=hidden", "/circle.pt?signature=hidden", "/whole.pt?signature=hidden"}) {
            const auto bytes = contentAt(server.url() + bad);
            QVERIFY2(!bytes.ok(), bad);
            QVERIFY(!textOf(bytes.error()).contains("hidden"));
        }
        QCOMPARE(placeOf(server.url() + "/m.pt?signature=hidden").value().path, server.url() + "/m.pt");
    }
};

QTEST_GUILESS_MAIN(PlacesTest)
#include "places_test.moc"
