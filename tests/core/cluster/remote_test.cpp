// The files of another host through an agent: everything opens as it does here, also after a connection was
// lost.
#include <QDir>
#include <QTest>
#include <array>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <future>

#include "remote_agents.h"
#include "support/genuine.h"

using namespace shardscope;
using namespace shardscope::test;

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
        for (const auto& c : allGenuineCases())
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
};

QTEST_GUILESS_MAIN(RemoteTest)
#include "remote_test.moc"
