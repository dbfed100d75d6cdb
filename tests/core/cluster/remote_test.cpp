// The files of another host through an agent, over a pair of sockets: everything opens as it does here, and
// whatever an agent can say that is wrong ends in a clear error.
#include <QDir>
#include <QFile>
#include <QTemporaryDir>
#include <QTest>
#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <deque>
#include <filesystem>
#include <future>
#include <list>
#include <optional>
#include <thread>

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cluster/messages.h"
#include "engine/engine.h"
#include "engine/report.h"
#include "formats/index/index.h"
#include "hosts/file_service.h"
#include "hosts/remote_file_system.h"
#include "hosts/remote_run.h"
#include "support/genuine.h"

using namespace shardscope;
using namespace std::chrono_literals;

namespace {

using Json = nlohmann::json;
using Clock = Channel::Clock;

const std::string kHost = "ssh://there";
// Seconds in which an end is seen that nothing waits for: less than any patience (30 s and more), and much
// more than it takes, however busy the machine is.
constexpr double kSoon = 25;

struct Ends {
    int client = -1, agent = -1;
};
Ends makeEnds() {
    int ends[2] = {-1, -1};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return {};
    return {ends[0], ends[1]};
}

// Agents that run as threads of the test, one for each connection, each doing `serve` with its greeted
// channel.
class Agents {
  public:
    using Serve = std::function<void(Channel&)>;
    explicit Agents(Serve serve, std::string noise = {})
        : serve_(std::move(serve)), noise_(std::move(noise)) {}
    ~Agents() {
        for (auto& thread : threads_)
            thread.join();
    }

    Result<Launched> connect() {
        const Ends ends = makeEnds();
        if (!noise_.empty() && write(ends.agent, noise_.data(), noise_.size()) < 0)
            return damaged("no noise");
        threads_.emplace_back([this, fd = ends.agent] {
            Channel channel(fd, fd);
            if (channel.greet(Clock::now() + 10s).ok()) serve_(channel);
        });
        Launched launched;
        launched.channel = std::make_unique<Channel>(ends.client, ends.client);
        SHARDSCOPE_TRY(launched.channel->greet(Clock::now() + 10s));
        ++connections;
        return launched;
    }
    std::shared_ptr<RemoteHost> host() {
        return std::make_shared<RemoteHost>(kHost, "v", [this] { return connect(); });
    }

    std::atomic<int> connections{0};

  private:
    Serve serve_;
    std::string noise_;
    std::list<std::thread> threads_;
};

void sayHello(Channel& channel) {
    (void)channel.send(message({{"say", "hello"}, {"version", "v"}, {"protocol", kProtocol}}));
}
// The next request, or nothing when there is none for a while.
std::optional<Frame> heard(Channel& channel, std::chrono::milliseconds patience = 10s) {
    auto frame = channel.receive(Clock::now() + patience);
    return frame.ok() ? std::move(*frame) : std::nullopt;
}

void untilGone(Channel& channel) {
    while (channel.receive(Clock::now() + 10s).ok()) {
    }
}

void serveFiles(Channel& channel) {
    sayHello(channel);
    if (!heard(channel)) return;
    FileService service(channel, systemFileSystem());
    (void)service.serve();
}

CheckpointOptions onHost(const std::shared_ptr<RemoteHost>& host) {
    CheckpointOptions options;
    options.fileSystem = remoteFileSystem(host);
    return options;
}

std::string withoutHost(std::string text) {
    for (size_t at = 0; (at = text.find(kHost, at)) != std::string::npos;)
        text.erase(at, kHost.size());
    return text;
}

// What opening, validating every byte and the index make of it, as text.
std::string everythingOf(const std::string& path, const CheckpointOptions& options) {
    const auto checkpoint = openCheckpoint(path, options);
    if (!checkpoint.ok()) return "error " + withoutHost(describe(checkpoint.error()));
    ThreadPool pool(2);
    MemoryBudget memory(uint64_t{256} << 20);
    Resources resources;
    resources.pool = &pool;
    resources.memory = &memory;
    ValidateOptions how;
    how.level = ValidateLevel::values;
    const auto report = validateCheckpoint(*checkpoint, how, resources);
    std::string text = report.ok() ? validationJson(*report) : describe(report.error());
    std::vector<TensorId> ids;
    for (TensorId t = 0; t < checkpoint->catalog().tensorCount(); ++t)
        ids.push_back(t);
    const auto digests = digestTensors(*checkpoint->reader, ids, {}, resources);
    if (!digests.ok())
        text += "\ndigests: " + describe(digests.error());
    else
        for (const TensorDigest& d : *digests)
            text += "\n" + d.digest.hex();
    bool readable = true;
    for (ObjectId o = 0; o < checkpoint->catalog().objects().size(); ++o) {
        const auto value = checkpoint->reader->objectValue(o);
        text += "\n" + (value.ok() ? valueRepr(*value) : describe(value.error()));
        readable = readable && value.ok();
    }
    // All that the metadata says. Why an object cannot be read is kept in it with the path, which differs.
    const auto index = encodeIndex(*checkpoint->reader, IndexOrigin{});
    if (!index.ok())
        text += "\nindex: " + describe(index.error());
    else if (readable)
        text += "\n" + *index;
    return withoutHost(text);
}

std::string writeFile(const QTemporaryDir& directory, const QString& name, const QByteArray& bytes) {
    QFile file(directory.filePath(name));
    if (!file.open(QIODevice::WriteOnly)) return {};
    file.write(bytes);
    return file.fileName().toStdString();
}

double secondsSince(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
}

// An agent that says hello and then answers each request as `reply` says; nothing = it says nothing more.
using Reply = std::function<std::optional<Frame>(const Json& request, const std::string& body)>;
Agents::Serve scripted(Reply reply) {
    return [reply = std::move(reply)](Channel& channel) {
        sayHello(channel);
        while (const auto frame = heard(channel)) {
            const auto json = parseMessage(*frame);
            if (!json.ok() || (*json)["say"] == "close" || (*json)["say"] == "files") continue;
            if (const auto answer = reply(*json, frame->body)) (void)channel.send(*answer);
        }
    };
}

std::string entry(const std::string& name, uint8_t kind = 0, uint64_t size = 1) {
    std::string bytes(1, static_cast<char>(kind));
    bytes.append(reinterpret_cast<const char*>(&size), sizeof size);
    const int64_t modified = 0;
    bytes.append(reinterpret_cast<const char*>(&modified), sizeof modified);
    const auto length = static_cast<uint16_t>(name.size());
    bytes.append(reinterpret_cast<const char*>(&length), sizeof length);
    return bytes + name;
}
Frame page(const Json& request, const std::string& entries, bool more = false) {
    return message({{"say", "list"}, {"id", request["id"]}, {"more", more}, {"size", entries.size()}},
                   entries);
}
Frame openedFile(const Json& request, uint64_t size, uint64_t length = 0) {
    return message({{"say", "open"},
                    {"id", request["id"]},
                    {"file", 1},
                    {"size", size},
                    {"print", {1, 2, size, 4, 5}},
                    {"length", length}},
                   std::string(length, 'x'));
}

}  // namespace

class RemoteTest : public QObject {
    Q_OBJECT

    QTemporaryDir directory_;

  private slots:
    void initTestCase() { signal(SIGPIPE, SIG_IGN); }

    void placesAreParsed_data() {
        QTest::addColumn<QString>("text");
        QTest::addColumn<QString>("host");
        QTest::addColumn<int>("port");
        QTest::addColumn<QString>("path");
        const auto row = [](const char* text, const char* host, int port, const char* path) {
            QTest::newRow(text) << text << host << port << path;
        };
        row("ssh://node7/data/x", "node7", 0, "/data/x");
        row("ssh://me@node7:2222/x y", "me@node7", 2222, "/x y");
        row("ssh://[::1]:22/", "::1", 22, "/");
        row("ssh://[fe80::1%eth0]/a", "fe80::1%eth0", 0, "/a");
        for (const char* wrong :
             {"ssh://", "ssh:///x", "ssh://node7", "ssh://-oProxyCommand=x/y", "ssh://a@-b/y", "ssh://a b/x",
              "ssh://a:0/x", "ssh://a:65536/x", "ssh://a:/x", "ssh://a:1x/x", "ssh://$(x)/y", "ssh://@/y",
              "ssh://[::1/y", "ssh://a;b/y", "http://a/b"})
            row(wrong, "", 0, "");
    }
    void placesAreParsed() {
        QFETCH(QString, text);
        QFETCH(QString, host);
        QFETCH(int, port);
        QFETCH(QString, path);
        const auto parsed = parseSshPath(text.toStdString());
        QCOMPARE(parsed.ok(), !host.isEmpty());
        if (!parsed.ok()) {
            QCOMPARE(parsed.error().code, ErrorCode::usage);
            return;
        }
        QCOMPARE(QString::fromStdString(parsed->host.host), host);
        QCOMPARE(int{parsed->host.port}, port);
        QCOMPARE(QString::fromStdString(parsed->path), path);
        QCOMPARE(QString::fromStdString(hostText(parsed->host) + parsed->path), text);
    }

    void opensAsHere_data() {
        QTest::addColumn<QString>("openPath");
        for (const auto& c : test::allGenuineCases())
            QTest::newRow(c.id().c_str()) << QString::fromStdString(c.openPath());
    }
    void opensAsHere() {
        QFETCH(QString, openPath);
        const std::string path = std::filesystem::canonical(openPath.toStdString());
        Agents agents(serveFiles);
        const auto host = agents.host();
        const std::string here = everythingOf(path, {});
        const std::string there = everythingOf(kHost + path, onHost(host));
        QVERIFY(!here.empty());
        const auto [a, b] = std::mismatch(here.begin(), here.end(), there.begin(), there.end());
        const auto from = [](const std::string& text, std::string::const_iterator at) {
            const auto offset = static_cast<size_t>(at - text.begin());
            return text.substr(offset - std::min<size_t>(offset, 100), 300);
        };
        QVERIFY2(here == there, ("here: " + from(here, a) + "\nthere: " + from(there, b)).c_str());
        host->close();
    }

    // A set of 300 files with long headers and much data.
    void openingMovesLittleMoreThanTheMetadata() {
        QTemporaryDir set;
        uint64_t metadata = 0;
        QByteArray map;
        for (int f = 0; f < 300; ++f) {
            QByteArray header = "{";
            for (int t = 0; t < 60; ++t) {
                const QByteArray name = QByteArray("model.layers.") + QByteArray::number(f) + ".block." +
                                        QByteArray::number(t) + ".weight";
                header += QByteArray(t ? "," : "") + "\"" + name +
                          "\":{\"dtype\":\"F32\",\"shape\":[1000,1],\"data_offsets\":[" +
                          QByteArray::number(4000 * t) + "," + QByteArray::number(4000 * (t + 1)) + "]}";
                map += QByteArray(map.isEmpty() ? "" : ",") + "\"" + name + "\":\"model-" +
                       QByteArray::number(f) + ".safetensors\"";
            }
            header += "}";
            header += QByteArray((8 - header.size() % 8) % 8, ' ');
            uint64_t size = static_cast<uint64_t>(header.size());
            QByteArray bytes(reinterpret_cast<const char*>(&size), 8);
            bytes += header;
            metadata += static_cast<uint64_t>(bytes.size());
            const std::string path = writeFile(set, QString("model-%1.safetensors").arg(f), bytes);
            std::filesystem::resize_file(path, static_cast<uint64_t>(bytes.size()) + 60 * 4000);
        }
        const QByteArray index = "{\"metadata\":{\"total_size\":72000000},\"weight_map\":{" + map + "}}";
        writeFile(set, "model.safetensors.index.json", index);
        metadata += static_cast<uint64_t>(index.size());

        Agents agents(serveFiles);
        const auto host = agents.host();
        const auto checkpoint = openCheckpoint(kHost + set.path().toStdString(), onHost(host));
        QVERIFY2(checkpoint.ok(), checkpoint.ok() ? "" : describe(checkpoint.error()).c_str());
        QCOMPARE(checkpoint->catalog().tensorCount(), size_t{18000});
        const auto moved = host->traffic();
        qInfo("metadata %.1f KiB; %.1f KiB came and %.1f KiB went", static_cast<double>(metadata) / 1024,
              static_cast<double>(moved.received) / 1024, static_cast<double>(moved.sent) / 1024);
        QVERIFY(moved.received + moved.sent <= metadata + (uint64_t{1} << 20));
        host->close();
    }

    void filesAreReadByThreads() {
        QByteArray bytes(9'000'001, Qt::Uninitialized);
        for (int i = 0; i < bytes.size(); ++i)
            bytes[i] = static_cast<char>((i * 2654435761U) >> 13);
        const std::string path = writeFile(directory_, "big", bytes);
        Agents agents(serveFiles);
        const auto host = agents.host();
        const auto directory = remoteFileSystem(host)->openDirectory(directory_.path().toStdString());
        QVERIFY(directory.ok());
        const auto file = (*directory)->openFile("big");
        QVERIFY(file.ok());
        QCOMPARE((*file)->size(), uint64_t{9'000'001});
        QCOMPARE((*file)->path(), kHost + path);
        std::atomic<int> wrong{0};
        std::vector<std::thread> threads;
        for (unsigned seed = 1; seed <= 4; ++seed) {
            threads.emplace_back([&, seed] {
                uint64_t state = seed;
                std::vector<std::byte> buffer;
                uint64_t at = 0;
                for (int i = 0; i < 300; ++i) {
                    state = state * 6364136223846793005U + 1442695040888963407U;
                    const uint64_t length = i % 50 == 0 ? 3'000'000 : (state >> 33) % 5000;
                    if (i % 3 == 0) at = (state >> 20) % 6'000'000;
                    buffer.resize(length);
                    if (!(*file)->readAt(at, buffer).ok() ||
                        std::memcmp(buffer.data(), bytes.constData() + at, length) != 0)
                        ++wrong;
                    at += length;
                    if (at + 3'000'000 > 9'000'000) at = 0;
                }
            });
        }
        for (auto& thread : threads)
            thread.join();
        QCOMPARE(wrong.load(), 0);
        std::byte one{};
        QCOMPARE((*file)->readAt(9'000'001, {&one, 1}).error().code, ErrorCode::changed);
        QCOMPARE((*file)->readAt(UINT64_MAX, {&one, 1}).error().code, ErrorCode::changed);
        host->close();
    }

    void smallReadsThatFollowEachOtherAreReadAhead() {
        writeFile(directory_, "rows", QByteArray(2'000'000, 'r'));
        Agents agents(serveFiles);
        const auto host = agents.host();
        const auto directory = remoteFileSystem(host)->openDirectory(directory_.path().toStdString());
        const auto file = (*directory)->openFile("rows");
        QVERIFY(file.ok());
        const uint64_t before = host->traffic().sent;
        std::array<std::byte, 100> row;
        for (uint64_t at = 0; at + row.size() <= 1'000'000; at += row.size())
            QVERIFY((*file)->readAt(at, row).ok());
        // A request has some sixty bytes; without reading ahead these would be 10,000.
        const uint64_t sent = host->traffic().sent - before;
        QVERIFY2(sent < 40 * 100, std::to_string(sent).c_str());
        host->close();
    }

    void longListingsComeInPages() {
        QTemporaryDir many;
        for (int i = 0; i < 20'000; ++i)
            writeFile(many, QString("file-%1").arg(i), i % 7 ? QByteArray() : QByteArray(3, 'x'));
        QVERIFY(QDir(many.path()).mkdir("folder"));
        const std::string path = many.path().toStdString();
        auto here = (*systemFileSystem()->openDirectory(path))->list();
        std::sort(here->begin(), here->end(), [](const auto& a, const auto& b) { return a.name < b.name; });
        Agents agents(serveFiles);
        const auto host = agents.host();
        const auto directory = remoteFileSystem(host)->openDirectory(path);
        QVERIFY(directory.ok());
        for (int again = 0; again < 2; ++again) {
            const auto there = (*directory)->list();
            QVERIFY(there.ok());
            QCOMPARE(there->size(), here->size());
            for (size_t i = 0; i < here->size(); ++i) {
                QCOMPARE((*there)[i].name, (*here)[i].name);
                QVERIFY((*there)[i].kind == (*here)[i].kind && (*there)[i].size == (*here)[i].size);
            }
        }
        QVERIFY(host->traffic().received < 400'000);
        host->close();
    }

    void nothingIsWritten() {
        Agents agents(serveFiles);
        const auto host = agents.host();
        const auto files = remoteFileSystem(host);
        const std::string path = directory_.path().toStdString();
        const auto directory = files->openDirectory(path);
        QCOMPARE((*directory)->createFile("new").error().code, ErrorCode::impossible);
        QCOMPARE((*directory)->removeFile("new").error().code, ErrorCode::impossible);
        QCOMPARE((*directory)->sync().error().code, ErrorCode::impossible);
        QCOMPARE(files->makeDirectory(path + "/d").error().code, ErrorCode::impossible);
        QCOMPARE(files->rename(path, path + "2").error().code, ErrorCode::impossible);
        QCOMPARE(files->exchange(path, path + "2").error().code, ErrorCode::impossible);
        QCOMPARE(files->removeTree(path).error().code, ErrorCode::impossible);
        // Whoever is to write there can be told what to expect.
        const auto room = roomThere(*host, directory_.path().toStdString());
        QVERIFY(room.ok());
        QVERIFY(room->writable && room->freeBytes > 0);
        QVERIFY(files->freeBytes(kHost + directory_.path().toStdString()).ok());
        QCOMPARE(roomThere(*host, "/nowhere").error().code, ErrorCode::notFound);
        QCOMPARE(roomThere(*host, writeFile(directory_, "file", "x")).error().code, ErrorCode::notFound);
        QCOMPARE(QString::fromStdString(roomThere(*host, "/nowhere").error().location.file),
                 QString::fromStdString(kHost + "/nowhere"));
        QVERIFY(files->createScratch("").ok());
        // Names from metadata are checked here and there.
        QCOMPARE((*directory)->openFile("../x").error().code, ErrorCode::unsafe);
        QCOMPARE((*directory)->openFile("/etc/passwd").error().code, ErrorCode::unsafe);
        QVERIFY(QFile::link("/etc/passwd", directory_.filePath("link")));
        QCOMPARE((*directory)->openFile("link").error().code, ErrorCode::unsafe);
        QCOMPARE((*directory)->openFile("absent").error().code, ErrorCode::notFound);
        QCOMPARE((*directory)->openFile("absent").error().location.file, kHost + path + "/absent");
        QVERIFY(QFile::remove(directory_.filePath("link")));
        host->close();
    }

    void noiseBeforeTheMarkIsSkipped() {
        Agents agents(serveFiles, "Welcome!\r\n\x1b[31mno entry\n");
        const auto host = agents.host();
        QVERIFY(remoteFileSystem(host)->stat(directory_.path().toStdString()).ok());
        host->close();
    }

    // ------------------------------------------------------------------ agents that cannot be trusted

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

        size_t errors = 0, fine = 0;
        for (size_t frame = 0; frame < record.size(); ++frame) {
            for (size_t at = 0; at < record[frame].size(); ++at) {
                // 0 = the stream ends there.
                for (const int flip : {0, 0x01, 0xff}) {
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
                        timeval patience{0, 15'000};  // a whole request is on its way at once
                        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
                        while (going && next < record.size()) {
                            std::array<uint32_t, 2> sizes;
                            if (recv(fd, sizes.data(), sizeof sizes, MSG_WAITALL) != sizeof sizes) break;
                            std::string rest(sizes[0] + sizes[1], '\0');
                            if (recv(fd, rest.data(), rest.size(), MSG_WAITALL) !=
                                static_cast<ssize_t>(rest.size()))
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
                    auto host = std::make_shared<RemoteHost>(
                        kHost, "v", [&, once = false]() mutable -> Result<Launched> {
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
                    QVERIFY2(seconds < kSoon, std::to_string(seconds).c_str());
                    ++(status.ok() ? fine : errors);
                    if (!status.ok()) QVERIFY(!status.error().message.empty());
                    if (!flip) QVERIFY(!status.ok());
                }
            }
        }
        qInfo("%zu ended in an error, %zu did not matter", errors, fine);
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
        row("a kind that is none", entry("a", 9));
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
                                 "a body where none belongs", "a bomb", "an error that is none"})
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

    // ------------------------------------------------------------------ connections that end

    void aSilentAgentIsAnErrorInThreeHeartbeats() {
        Agents agents([](Channel& channel) {
            sayHello(channel);
            untilGone(channel);
        });
        const auto host = agents.host();
        const auto begin = Clock::now();
        const auto entry = remoteFileSystem(host)->stat("/x");
        const double seconds = secondsSince(begin);
        QVERIFY(!entry.ok());
        QCOMPARE(entry.error().code, ErrorCode::remote);
        QVERIFY(entry.error().message.find("silent") != std::string::npos);
        QVERIFY2(seconds > 2.5 && seconds < kSoon, std::to_string(seconds).c_str());
    }

    void heartbeatsAreAnswered() {
        // By a client to the agent, by which this knows that the link stands; the answer is not for asking
        // more.
        std::atomic<int> answered{0};
        Agents agents([&](Channel& channel) {
            sayHello(channel);
            (void)heard(channel);  // what it is for
            for (int i = 0; i < 3; ++i) {
                (void)channel.send(message({{"say", "beat"}}));
                const auto frame = heard(channel);
                if (frame && (*parseMessage(*frame))["say"] == "beat") ++answered;
            }
            untilGone(channel);
        });
        const auto host = agents.host();
        QVERIFY(host->connect().ok());
        QTRY_COMPARE(answered.load(), 3);
        host->close();
    }

    void aLostConnectionIsMadeAnew() {
        std::mutex mutex;
        Channel* current = nullptr;
        Agents agents([&](Channel& channel) {
            {
                std::lock_guard lock(mutex);
                current = &channel;
            }
            serveFiles(channel);
            std::lock_guard lock(mutex);
            if (current == &channel) current = nullptr;
        });
        const auto cut = [&] {
            std::lock_guard lock(mutex);
            if (current) current->close();
        };
        writeFile(directory_, "kept", QByteArray(100'000, 'k'));
        const auto host = agents.host();
        const auto directory = remoteFileSystem(host)->openDirectory(directory_.path().toStdString());
        const auto file = (*directory)->openFile("kept");
        QVERIFY(file.ok());
        std::vector<std::byte> bytes(100'000);
        QVERIFY((*file)->readAt(0, bytes).ok());
        cut();
        QTRY_VERIFY(!host->connected());
        // What is here needs no connection; what is asked connects again and finds the same file.
        QVERIFY((*file)->readAt(10'000, std::span(bytes).first(10)).ok());
        QCOMPARE(agents.connections.load(), 1);
        QVERIFY((*file)->fingerprint().ok());
        QCOMPARE(agents.connections.load(), 2);
        QVERIFY(host->connected());
        // A file that changed meanwhile is not read on.
        writeFile(directory_, "kept", QByteArray(100'001, 'l'));
        QVERIFY(host->reconnect().ok());
        QCOMPARE(agents.connections.load(), 3);
        QCOMPARE((*file)->fingerprint().error().code, ErrorCode::changed);
        QVERIFY((*directory)->openFile("kept").ok());
        host->close();
        QCOMPARE((*file)->fingerprint().error().code, ErrorCode::cancelled);
        QVERIFY(host->reconnect().ok());
        QVERIFY((*directory)->stat("kept").ok());
        host->close();
    }

    void closingCancels() {
        Agents agents([](Channel& channel) {
            sayHello(channel);
            for (int i = 0; i < 8 && channel.send(message({{"say", "beat"}})).ok(); ++i)
                std::this_thread::sleep_for(500ms);
        });
        const auto host = agents.host();
        QVERIFY(host->connect().ok());
        std::thread later([&] {
            std::this_thread::sleep_for(300ms);
            host->close();
        });
        const auto begin = Clock::now();
        const auto entry = remoteFileSystem(host)->stat("/x");
        later.join();
        QCOMPARE(entry.error().code, ErrorCode::cancelled);
        QVERIFY(secondsSince(begin) < kSoon);
    }

    void hostsThatDoNotAnswerAreNamed() {
        int tries = 0;
        const auto host = std::make_shared<RemoteHost>(kHost, "v", [&]() -> Result<Launched> {
            ++tries;
            return makeError(ErrorCode::remote, "there: no route to host");
        });
        const auto files = remoteFileSystem(host);
        for (int i = 0; i < 10; ++i)
            QCOMPARE(files->stat("/x").error().code, ErrorCode::remote);
        QCOMPARE(tries, 1);  // those who ask at once share an attempt
    }

    // Who reconnects is not told of an attempt that was under way and fails meanwhile.
    void reconnectingIsAnAttemptOfItsOwn() {
        Agents agents(serveFiles);
        std::promise<void> first, goesOn;
        std::atomic<int> tries{0};
        const auto host = std::make_shared<RemoteHost>(kHost, "v", [&]() -> Result<Launched> {
            if (++tries > 1) return agents.connect();
            first.set_value();
            goesOn.get_future().wait();
            return makeError(ErrorCode::remote, "there: given up");
        });
        std::thread givenUp([&] { (void)host->connect(); });
        first.get_future().wait();
        std::promise<void> begins;
        std::optional<Status> status;
        std::thread again([&] {
            begins.set_value();
            status = host->reconnect();
        });
        begins.get_future().wait();
        goesOn.set_value();
        givenUp.join();
        again.join();
        QVERIFY2(status->ok(), status->ok() ? "" : describe(status->error()).c_str());
        QCOMPARE(tries.load(), 2);
        host->close();
    }

    // ------------------------------------------------------------------ requests that cannot be trusted

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

    // ------------------------------------------------------------------ verbs that run there

    void whatAVerbSaysArrives() {
        // The service leads this process's own streams away; they come back afterwards.
        std::fflush(stdout);
        std::fflush(stderr);
        const int out = dup(STDOUT_FILENO), err = dup(STDERR_FILENO);
        StopSource verbStop;
        RunOrder got;
        Agents agents([&](Channel& channel) {
            sayHello(channel);
            const auto order = runOrderFrom(*heard(channel));
            got = *order;
            RunService service(channel, verbStop);
            (void)service.serve([&] {
                Progress progress;
                progress.begin(Progress::Phase::read, 100);
                progress.add(40);
                progress.setTensor("some.tensor");
                service.showProgress(progress, {});
                for (uint64_t i = 0; i <= 1000; ++i)  // of states that nobody looked at the last one counts
                    service.showProgress(progress, {{.name = "local 1",
                                                     .phase = WorkerState::Phase::lost,
                                                     .bytes = i,
                                                     .units = 3,
                                                     .busy = {1, 2, 3},
                                                     .why = std::string(1000, 'w')},
                                                    {.name = "node7 \xff", .slurmJob = "12"}});
                for (int i = 0; i < 10'000; ++i)
                    std::fprintf(stdout, "%0999d\n", i);
                std::fputs("trouble\n", stderr);
                return 7;
            });
        });
        RunOrder order;
        order.words = {"ls", "", "a b", "\xff"};
        order.place = kHost;
        order.color = true;
        std::string text, errors;
        size_t most = 0;
        Progress progress;
        RunSinks sinks;
        sinks.out = [&](std::string_view bytes) -> Status {
            if (text.empty()) std::this_thread::sleep_for(500ms);  // somebody reads slowly
            most = std::max(most, bytes.size());
            text += bytes;
            return {};
        };
        sinks.err = [&](std::string_view bytes) -> Status {
            errors += bytes;
            return {};
        };
        sinks.progress = &progress;
        std::vector<WorkerState> workers;
        sinks.workers = [&](std::vector<WorkerState> now) { workers = std::move(now); };
        const auto code = runThere([&] { return agents.connect(); }, "v", order, sinks, {});
        dup2(out, STDOUT_FILENO);
        dup2(err, STDERR_FILENO);
        close(out);
        close(err);
        QVERIFY2(code.ok(), code.ok() ? "" : describe(code.error()).c_str());
        QCOMPARE(*code, 7);
        QCOMPARE(got.words, order.words);
        QVERIFY(got.color);
        QCOMPARE(text.size(), size_t{10'000'000});
        QVERIFY(text.ends_with("09999\n"));
        QVERIFY(most <= RunService::kBlock);
        QCOMPARE(errors, std::string("trouble\n"));
        QCOMPARE(progress.bytesDone(), uint64_t{40});
        QCOMPARE(progress.tensor(), std::string("some.tensor"));
        QCOMPARE(workers.size(), size_t{2});
        QCOMPARE(workers[0].name, std::string("local 1"));
        QVERIFY(workers[0].phase == WorkerState::Phase::lost);
        QCOMPARE(workers[0].bytes, uint64_t{1000});
        QCOMPARE(workers[0].units, size_t{3});
        QVERIFY(workers[0].busy == (Progress::Busy{1, 2, 3}));
        QVERIFY(workers[0].why.size() >= 100 && workers[0].why.size() <= 310);
        QVERIFY(workers[1].name.starts_with("node7"));
        QCOMPARE(workers[1].slurmJob, std::string("12"));
    }

    void stoppingAVerbStopsItThere() {
        std::fflush(stdout);
        const int out = dup(STDOUT_FILENO), err = dup(STDERR_FILENO);
        StopSource verbStop, stop;
        Agents agents([&](Channel& channel) {
            sayHello(channel);
            (void)heard(channel);
            RunService service(channel, verbStop);
            (void)service.serve([&] {
                while (!verbStop.stopRequested())
                    std::this_thread::sleep_for(5ms);
                return 130;
            });
        });
        RunOrder order;
        order.words = {"validate"};
        order.place = kHost;
        std::thread later([&] {
            std::this_thread::sleep_for(200ms);
            stop.requestStop();
        });
        RunSinks sinks;
        sinks.out = sinks.err = [](std::string_view) { return Status(); };
        const auto code = runThere([&] { return agents.connect(); }, "v", order, sinks, stop);
        later.join();
        dup2(out, STDOUT_FILENO);
        dup2(err, STDERR_FILENO);
        close(out);
        close(err);
        QVERIFY(code.ok());
        QCOMPARE(*code, 130);
    }

    void hostileRuns_data() {
        QTest::addColumn<int>("kind");
        int kind = 0;
        for (const char* name :
             {"malformed exit code", "a block that is too long", "a bomb", "no end of output", "no JSON",
              "another message", "silence", "the end", "malformed worker list", "a worker of no phase"})
            QTest::newRow(name) << kind++;
    }
    void hostileRuns() {
        QFETCH(int, kind);
        Agents agents([kind](Channel& channel) {
            sayHello(channel);
            (void)heard(channel);
            switch (kind) {
                case 0:
                    (void)channel.send(message({{"say", "exit"}, {"code", 1000}}));
                    break;
                case 1:
                    (void)channel.send(
                        message({{"say", "out"}, {"size", 500'000}}, std::string(500'000, 'x')));
                    break;
                case 2: {
                    bool packed = false;
                    std::string body = pack(std::string(16'000'000, '\0'), packed);
                    (void)channel.send(
                        message({{"say", "out"}, {"size", 16'000'000}, {"packed", packed}}, body));
                    break;
                }
                case 3:
                    while (
                        channel.send(message({{"say", "out"}, {"size", 200'000}}, std::string(200'000, 'x')))
                            .ok()) {
                    }
                    return;
                case 4:
                    (void)channel.send({"{", ""});
                    break;
                case 5:
                    (void)channel.send(message({{"say", "unit"}}));
                    break;
                case 7:
                    return;
                case 8:
                    (void)channel.send(message({{"say", "workers"}}, std::string(100'000, '[')));
                    break;
                case 9:
                    (void)channel.send(
                        message({{"say", "workers"}},
                                R"([{"name":"a","phase":5,"bytes":0,"units":0,"busy":[0,0,0],"why":""}])"));
                    break;
                default:
                    break;
            }
            untilGone(channel);
        });
        RunSinks sinks;
        sinks.err = [](std::string_view) { return Status(); };
        sinks.out = [](std::string_view) {
            std::this_thread::sleep_for(100ms);
            return Status();
        };
        RunOrder order;
        order.words = {"info"};
        order.place = kHost;
        const auto begin = Clock::now();
        const auto code = runThere([&] { return agents.connect(); }, "v", order, sinks, {});
        QVERIFY(!code.ok());
        QCOMPARE(code.error().code, ErrorCode::remote);
        QVERIFY(code.error().message.find(kHost) != std::string::npos);
        QVERIFY2(secondsSince(begin) < kSoon, std::to_string(secondsSince(begin)).c_str());
    }
};

QTEST_GUILESS_MAIN(RemoteTest)
#include "remote_test.moc"
