// Whatever an agent can say that is wrong, and whatever one can be asked that is, ends in a clear error.
#include <QTest>
#include <array>
#include <csignal>

#include "remote_agents.h"

using namespace shardscope;
using namespace shardscope::test;

class RemoteHostileTest : public QObject {
    Q_OBJECT

    QTemporaryDir directory_;

  private slots:
    void initTestCase() { signal(SIGPIPE, SIG_IGN); }

    // The answers of a session are recorded, and played back with one byte changed, or cut off there.
    void everyGarbledOrMissingByteEnds() {
        QByteArray header = "{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}";
        header += QByteArray((8 - header.size() % 8) % 8, ' ');
        const auto length = static_cast<uint64_t>(header.size());
        QTemporaryDir one;
        const std::string path =
            writeFile(one, "m.safetensors",
                      QByteArray(reinterpret_cast<const char*>(&length), 8) + header + QByteArray(8, '\1'));

        // Frame by frame, so that each goes out when it is asked for.
        std::vector<std::string> record;
        const auto bytesOf = [](const Frame& frame) {
            std::string bytes;
            for (const size_t size : {frame.text.size(), frame.body.size()}) {
                const auto number = static_cast<uint32_t>(size);
                bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
            }
            return bytes + frame.text + frame.body;
        };
        const auto readAll = [&](const std::shared_ptr<RemoteHost>& host) -> Status {
            const auto checkpoint = openCheckpoint(kHost + path, onHost(host));
            if (!checkpoint.ok()) return checkpoint.error();
            SHARDSCOPE_ASSIGN(const Extent extent, checkpoint->reader->locate(0));
            std::array<std::byte, 8> data;
            return extent.file->readAt(extent.offset, data);
        };
        std::optional<Agents> recording;
        recording.emplace([&](Channel& channel) {
            const Ends ends = makeEnds();
            std::thread agent([fd = ends.agent] {
                Channel inner(fd, fd);
                if (inner.greet(Clock::now() + 10s).ok()) serveFiles(inner);
            });
            Channel inner(ends.client, ends.client);
            (void)inner.greet(Clock::now() + 10s);
            const auto hello = heard(inner);
            record.push_back(bytesOf(*hello));
            (void)channel.send(*hello);
            while (const auto request = heard(channel)) {
                (void)inner.send(*request);
                const Json asked = *parseMessage(*request);
                if (asked["say"] == "files" || asked["say"] == "close") continue;
                for (;;) {
                    const auto answer = heard(inner);
                    if (!answer || (*parseMessage(*answer))["say"] == "beat") continue;
                    record.push_back(bytesOf(*answer));
                    (void)channel.send(*answer);
                    break;
                }
            }
            inner.close();
            shutdown(ends.client, SHUT_RDWR);
            agent.join();
        });
        {
            const auto host = recording->host();
            const Status status = readAll(host);
            QVERIFY2(status.ok(), status.ok() ? "" : describe(status.error()).c_str());
            host->close();
        }
        recording.reset();
        size_t total = 0;
        for (const std::string& bytes : record)
            total += bytes.size();
        qInfo("%zu answers of %zu bytes", record.size(), total);
        QVERIFY(record.size() >= 5);

        // What is wrong with how a session ends whose answer `frame` is changed at a byte; empty = nothing.
        // A flip of 0: the stream ends there.
        std::atomic<size_t> errors{0}, fine{0};
        const auto play = [&](size_t frame, size_t at, int flip) -> std::string {
            std::string changed = record[frame];
            if (flip)
                changed[at] = static_cast<char>(changed[at] ^ flip);
            else
                changed.resize(at);
            const Ends ends = makeEnds();
            std::thread agent([&, fd = ends.agent] {
                // Below the channel, as what is sent is not a frame any more.
                const auto put = [&](std::string_view bytes) {
                    return send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
                };
                put("\xF5\xC9\xB1");
                std::array<char, 3> mark;
                (void)recv(fd, mark.data(), mark.size(), MSG_WAITALL);
                size_t next = 0;
                const auto answer = [&] {
                    put(next == frame ? changed : record[next]);
                    return next++ != frame || flip != 0;
                };
                bool going = answer();
                timeval patience{0, 40'000};  // a whole request is on its way at once
                setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
                while (going && next < record.size()) {
                    std::array<uint32_t, 2> sizes;
                    if (recv(fd, sizes.data(), sizeof sizes, MSG_WAITALL) != sizeof sizes) break;
                    std::string rest(sizes[0] + sizes[1], '\0');
                    if (recv(fd, rest.data(), rest.size(), MSG_WAITALL) != static_cast<ssize_t>(rest.size()))
                        break;
                    const Json asked = Json::parse(rest.substr(0, sizes[0]), nullptr, false);
                    if (asked["say"] == "files" || asked["say"] == "close") continue;
                    going = answer();
                }
                if (going) {  // let the last answer be used
                    std::array<char, 4096> rest;
                    while (recv(fd, rest.data(), rest.size(), 0) > 0) {
                    }
                }
                ::close(fd);
            });
            auto host =
                std::make_shared<RemoteHost>(kHost, "v", [&, once = false]() mutable -> Result<Launched> {
                    if (once) return makeError(ErrorCode::remote, "only once");
                    once = true;
                    Launched launched;
                    launched.channel = std::make_unique<Channel>(ends.client, ends.client);
                    SHARDSCOPE_TRY(launched.channel->greet(Clock::now() + 10s));
                    return launched;
                });
            const auto begin = Clock::now();
            const Status status = readAll(host);
            host->close();
            const double seconds = secondsSince(begin);
            agent.join();
            ++(status.ok() ? fine : errors);
            if (seconds >= kSoon) return std::to_string(seconds) + " s";
            if (!status.ok() && status.error().message.empty()) return "an error without words";
            return !flip && status.ok() ? "no error, though the stream ended early" : "";
        };

        struct Change {
            size_t frame, at;
            int flip;
            std::string wrong = {};
        };
        std::vector<Change> changes;
        for (size_t frame = 0; frame < record.size(); ++frame)
            for (size_t at = 0; at < record[frame].size(); ++at)
                for (const int flip : {0, 0x01, 0xff})
                    changes.push_back({frame, at, flip});
        // Most of a session is waiting, so there are several at a time.
        std::atomic<size_t> taken{0};
        std::vector<std::thread> threads;
        for (int t = 0; t < 16; ++t)
            threads.emplace_back([&] {
                for (size_t i; (i = taken++) < changes.size();)
                    changes[i].wrong = play(changes[i].frame, changes[i].at, changes[i].flip);
            });
        for (std::thread& thread : threads)
            thread.join();
        for (const Change& change : changes)
            QVERIFY2(change.wrong.empty(),
                     (change.wrong + ": answer " + std::to_string(change.frame) + ", byte " +
                      std::to_string(change.at) + ", flip " + std::to_string(change.flip))
                         .c_str());
        qInfo("%zu ended in an error, %zu did not matter", errors.load(), fine.load());
        QVERIFY(errors > fine);
    }

    void hostileListings_data() {
        QTest::addColumn<QByteArray>("entries");
        QTest::addColumn<bool>("more");
        const auto row = [](const char* name, const std::string& entries, bool more = false) {
            QTest::newRow(name) << QByteArray(entries.data(), static_cast<int>(entries.size())) << more;
        };
        row("dot dot", entry(".."));
        row("a path", entry("a/b"));
        row("absolute", entry("/etc"));
        row("nothing", entry(""));
        row("a zero byte", entry(std::string("a\0b", 3)));
        row("too long", entry(std::string(300, 'x')));
        row("twice", entry("a") + entry("a"));
        row("in disorder", entry("b") + entry("a"));
        row("an unknown kind", entry("a", 9));
        row("2^63 bytes", entry("a", 0, uint64_t{1} << 63));
        row("cut off", entry("abc").substr(0, 12));
        row("a cut length", entry("abc").substr(0, 18));
        row("an empty page and more", "", true);
        row("a short page and more", entry("a"), true);
    }
    void hostileListings() {
        QFETCH(QByteArray, entries);
        QFETCH(bool, more);
        Agents agents(scripted([&](const Json& request, const std::string&) {
            return page(request, entries.toStdString(), more);
        }));
        const auto host = agents.host();
        const auto directory = remoteFileSystem(host)->openDirectory("/x");
        QVERIFY(!directory.ok());
        QCOMPARE(directory.error().code, ErrorCode::remote);
        QCOMPARE(directory.error().location.file, kHost + "/x");
        host->close();
    }

    void endlessListingsEnd() {
        // Names in order for ever, in pages of the least size that is taken.
        std::atomic<uint64_t> next{0};
        Agents agents(scripted([&](const Json& request, const std::string&) {
            std::string entries;
            while (entries.size() < FileService::kPage) {
                char name[32];
                std::snprintf(name, sizeof name, "%020llu", static_cast<unsigned long long>(next++));
                entries += entry(name + std::string(200, 'n'));
            }
            return page(request, entries, true);
        }));
        const auto host = agents.host();
        const auto directory = remoteFileSystem(host)->openDirectory("/x");
        QVERIFY(!directory.ok());
        QCOMPARE(directory.error().code, ErrorCode::limit);
        host->close();
    }

    void hostileAnswers_data() {
        QTest::addColumn<int>("kind");
        int kind = 0;
        for (const char* name : {"a file of 2^63 bytes", "a negative size", "a handle that is text",
                                 "first bytes beyond the end", "more first bytes than said", "no fingerprint",
                                 "another id", "an id twice", "another answer", "no JSON", "a huge text",
                                 "an unexpected body", "a compression bomb", "an error that is a list"})
            QTest::newRow(name) << kind++;
    }
    void hostileAnswers() {
        QFETCH(int, kind);
        Agents agents([kind](Channel& channel) {
            sayHello(channel);
            while (const auto frame = heard(channel)) {
                const Json request = *parseMessage(*frame);
                if (request["say"] == "close" || request["say"] == "files") continue;
                if (request["say"] == "list") {
                    (void)channel.send(page(request, entry("f")));
                    continue;
                }
                Frame answer = openedFile(request, 100);
                Json json = Json::parse(answer.text);
                const auto change = [&](const char* key, const Json& value) {
                    json[key] = value;
                    answer.text = json.dump();
                };
                switch (kind) {
                    case 0:
                        change("size", uint64_t{1} << 63);
                        break;
                    case 1:
                        change("size", -5);
                        break;
                    case 2:
                        change("file", "1");
                        break;
                    case 3:
                        answer = openedFile(request, 10, 11);
                        break;
                    case 4:
                        answer = openedFile(request, 100, 10);
                        answer.body += "y";
                        break;
                    case 5:
                        change("print", {1, 2, "x", 4, 5});
                        break;
                    case 6:
                        change("id", 999);
                        break;
                    case 7:
                        (void)channel.send(answer);
                        break;
                    case 8:
                        change("say", "read");
                        break;
                    case 9:
                        answer.text = "{\"say\":";
                        break;
                    case 10:
                        change("pad", std::string(100'000, 'p'));
                        break;
                    case 11:
                        answer.body = std::string(1'000'000, 'b');
                        break;
                    case 12: {
                        bool packed = false;
                        answer.body = pack(std::string(16'000'000, '\0'), packed);
                        change("packed", packed);
                        change("length", 100);
                        break;
                    }
                    default:
                        change("say", "error");
                        change("error", {1, 2, 3});
                }
                (void)channel.send(answer);
            }
        });
        const auto host = agents.host();
        const auto directory = remoteFileSystem(host)->openDirectory("/x");
        QVERIFY(directory.ok());
        const auto begin = Clock::now();
        const auto file = (*directory)->openFile("f");
        // What comes twice is seen when something more is asked.
        std::array<std::byte, 50> bytes;
        const Status status = file.ok() ? (*file)->readAt(0, bytes) : Status(file.error());
        QVERIFY(!status.ok());
        QCOMPARE(status.error().code, ErrorCode::remote);
        QVERIFY(secondsSince(begin) < kSoon);
        host->close();
    }

    void wrongBlocks_data() {
        QTest::addColumn<int>("length");
        for (const int length : {0, 99, 101, 5000})
            QTest::addRow("%d", length) << length;
    }
    void wrongBlocks() {
        QFETCH(int, length);
        Agents agents(scripted([&](const Json& request, const std::string&) -> std::optional<Frame> {
            if (request["say"] == "list") return page(request, entry("f"));
            if (request["say"] == "open") return openedFile(request, 100);
            return message({{"say", "read"}, {"id", request["id"]}},
                           std::string(static_cast<size_t>(length), 'x'));
        }));
        const auto host = agents.host();
        const auto directory = remoteFileSystem(host)->openDirectory("/x");
        const auto file = (*directory)->openFile("f");
        QVERIFY(file.ok());
        std::array<std::byte, 100> bytes;
        QCOMPARE((*file)->readAt(0, bytes).error().code, ErrorCode::remote);
        host->close();
    }

    // A host says that the program is missing, and ends before anything is written to it.
    void whatWasSaidBeforeTheEndIsKept() {
        int said[2], heard[2];
        QVERIFY(pipe2(said, O_CLOEXEC) == 0 && pipe2(heard, O_CLOEXEC) == 0);
        QCOMPARE(write(said[1], "missing\n", 8), ssize_t{8});
        close(said[1]);
        close(heard[0]);
        Channel channel(said[0], heard[1]);
        const Status status = channel.greet(Clock::now() + 10s);
        QVERIFY(!status.ok());
        QCOMPARE(channel.noise(), std::string("missing\n"));
    }

    void otherAgentsAreNamed() {
        Agents older([](Channel& channel) {
            (void)channel.send(message({{"say", "hello"}, {"version", "0.0.1"}, {"protocol", 1}}));
            (void)heard(channel);
        });
        const auto host = older.host();
        const Status status = host->connect();
        QVERIFY(!status.ok());
        QCOMPARE(status.error().code, ErrorCode::remote);
        QVERIFY(status.error().message.find("0.0.1") != std::string::npos);
        QVERIFY(status.error().message.find(kHost) != std::string::npos);
        QVERIFY(!status.error().hint.empty());
    }

    void theServiceTakesNothingElse() {
        const std::string path = directory_.path().toStdString();
        const auto on = [&](const char* say, const std::string& name = {}) {
            Json json = Json::object();
            json["say"] = say;
            json["path"] = path.size();
            return std::pair(json, path + name);
        };
        const auto raw = [](const char* text, const std::string& body = {}) {
            return std::pair(Json::parse(text), body);
        };
        const std::vector<std::pair<Json, std::string>> requests{
            on("open", "../../etc/passwd"),
            on("open", "/etc/passwd"),
            on("list", ".."),
            on("remove", "x"),
            raw(R"({"say":"open","path":100})", "/x"),
            raw(R"({"say":"stat","path":1})", "x"),
            raw(R"({"say":"stat"})"),
            raw(R"({"say":"list","path":1,"after":50})", "/"),
            raw(R"({"say":"read","file":77,"offset":0,"length":1})"),
            raw(R"({"say":"read","file":-1})"),
            raw(R"({"say":"print"})"),
        };
        const Ends ends = makeEnds();
        std::thread agent([fd = ends.agent] {
            Channel channel(fd, fd);
            if (channel.greet(Clock::now() + 10s).ok()) serveFiles(channel);
        });
        {
            Channel channel(ends.client, ends.client);
            QVERIFY(channel.greet(Clock::now() + 10s).ok());
            QVERIFY(meetAgent(channel, "v").ok());
            (void)channel.send(message({{"say", "files"}}));
            const auto answerTo = [&](Json json, const std::string& body, uint64_t id) -> Json {
                json["id"] = id;
                (void)channel.send(message(json, body));
                for (;;) {
                    const auto frame = heard(channel);
                    if (!frame) return Json();
                    Json answer = *parseMessage(*frame);
                    if (answer["say"] != "beat") return answer;
                }
            };
            uint64_t id = 0;
            for (const auto& [json, body] : requests) {
                (void)channel.send(message({{"say", "beat"}}));  // asks for nothing
                const Json answer = answerTo(json, body, ++id);
                QVERIFY2(answer["say"] == "error" && answer["id"] == id, answer.dump().c_str());
            }
            // Reads beyond the end and of too much.
            writeFile(directory_, "small", QByteArray(10, 's'));
            auto [open, body] = on("open", "small");
            const Json opened = answerTo(open, body, ++id);
            QVERIFY2(opened["say"] == "open", opened.dump().c_str());
            for (const auto& [offset, length] : std::vector<std::pair<uint64_t, uint64_t>>{
                     {0, 11}, {11, 0}, {UINT64_MAX, 1}, {1, UINT64_MAX}, {0, FileService::kBlock + 1}}) {
                const Json answer = answerTo(
                    {{"say", "read"}, {"file", opened["file"]}, {"offset", offset}, {"length", length}}, "",
                    ++id);
                QVERIFY2(answer["say"] == "error", answer.dump().c_str());
            }
            const Json fine =
                answerTo({{"say", "read"}, {"file", opened["file"]}, {"offset", 2}, {"length", 8}}, "", ++id);
            QVERIFY(fine["say"] == "read");
            // What is not a request at all ends the session.
            (void)channel.send({"nonsense", ""});
            for (;;) {
                const auto frame = channel.receive(Clock::now() + 5s);
                if (!frame.ok()) break;
                QVERIFY(*frame);
            }
        }
        agent.join();
    }
};

QTEST_GUILESS_MAIN(RemoteHostileTest)
#include "remote_hostile_test.moc"
