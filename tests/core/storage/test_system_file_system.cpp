#include <QTemporaryDir>
#include <QTest>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "storage/aligned_buffer.h"
#include "storage/beneath.h"
#include "storage/file_system.h"

using namespace shardscope;
namespace fs = std::filesystem;

namespace {

void put(const fs::path& path, std::string_view text) {
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
}

std::vector<std::byte> randomBytes(size_t size, unsigned seed) {
    std::mt19937_64 random(seed);
    std::vector<std::byte> bytes(size);
    for (std::byte& b : bytes)
        b = static_cast<std::byte>(random());
    return bytes;
}

std::string contents(const std::shared_ptr<const ReadFile>& file) {
    std::string text(file->size(), '\0');
    if (!file->readAt(0, std::as_writable_bytes(std::span(text))).ok()) return "unreadable";
    return text;
}

}  // namespace

class TestSystemFileSystem : public QObject {
    Q_OBJECT

    QTemporaryDir temporary_;
    std::string root_;
    int counter_ = 0;

    std::string fresh() {
        const std::string path = root_ + "/" + std::to_string(counter_++);
        fs::create_directories(path);
        return path;
    }
    static std::shared_ptr<Directory> openOf(const std::string& path, IoMode mode = IoMode::automatic) {
        return systemFileSystem(mode)->openDirectory(path).value();
    }

  private slots:
    void initTestCase() { root_ = temporary_.path().toStdString(); }

    void attributesStayWhenRenamed() {
        const auto system = systemFileSystem();
        const std::string path = fresh();
        const Status set = system->setAttribute(path, "job", "some text");
        if (!set.ok()) {
            // Not every file system stores them; then none is found either.
            QVERIFY(!system->attribute(path, "job").ok());
            return;
        }
        QCOMPARE(system->setAttribute(path, "job", "another").ok(), true);
        QVERIFY(system->rename(path, path + "-moved").ok());
        QCOMPARE(system->attribute(path + "-moved", "job").value(), std::string("another"));
        QCOMPARE(system->attribute(path + "-moved", "other").error().code, ErrorCode::notFound);
        QVERIFY(!system->attribute(path, "job").ok());
        QVERIFY(!system->setAttribute(path, "job", "text").ok());
    }

    void names() {
        for (const char* good : {"a", "a/b", ".metadata", "..a", "a..", "snapshots/x y"})
            QVERIFY(checkRelativeName(good).ok());
        for (const std::string& bad : {std::string(""), std::string("/a"), std::string("../a"),
                                       std::string("a/../b"), std::string("a//b"), std::string("a/"),
                                       std::string("./a"), std::string("a\0b", 3), std::string(256, 'x')}) {
            const Status status = checkRelativeName(bad);
            QVERIFY(!status.ok());
            QCOMPARE(status.error().code, ErrorCode::unsafe);
        }
        QCOMPARE(splitPath("/a/b/c"), (std::pair<std::string, std::string>("/a/b", "c")));
        QCOMPARE(splitPath("/a"), (std::pair<std::string, std::string>("/", "a")));
        QCOMPARE(splitPath("a"), (std::pair<std::string, std::string>(".", "a")));
        QCOMPARE(splitPath("a/b//"), (std::pair<std::string, std::string>("a", "b")));
    }

    void linksStayInside() {
        const std::string root = fresh();
        put(root + "/ckpt/data/x", "inside");
        put(root + "/secret", "outside");
        fs::create_symlink("data/x", root + "/ckpt/near");
        fs::create_symlink("../ckpt/data/x", root + "/ckpt/roundabout");
        fs::create_symlink("../secret", root + "/ckpt/far");
        fs::create_symlink(root + "/secret", root + "/ckpt/absolute");
        fs::create_symlink("..", root + "/ckpt/up");
        fs::create_symlink("loop", root + "/ckpt/loop");
        auto directory = openOf(root + "/ckpt");
        QCOMPARE(contents(directory->openFile("near").value()), std::string("inside"));
        for (const char* name : {"far", "absolute", "roundabout", "up/secret", "loop"}) {
            auto file = directory->openFile(name);
            QVERIFY2(!file.ok(), name);
            QCOMPARE(file.error().code, ErrorCode::unsafe);
        }
        QCOMPARE(directory->openFile("nothing").error().code, ErrorCode::notFound);

        const Descriptor at(::open((root + "/ckpt").c_str(), O_RDONLY | O_DIRECTORY));
        for (auto method : {BeneathMethod::automatic, BeneathMethod::stepwise}) {
            QVERIFY(openBeneath(at.get(), "near", O_RDONLY, 0, method).valid());
            QVERIFY(openBeneath(at.get(), "data/x", O_RDONLY, 0, method).valid());
            for (const char* name : {"far", "absolute", "roundabout", "up/secret", "loop"}) {
                QVERIFY2(!openBeneath(at.get(), name, O_RDONLY, 0, method).valid(), name);
                QVERIFY(errno == EXDEV || errno == ELOOP);
            }
        }
    }

    void huggingFaceCache() {
        const std::string root = fresh() + "/models--a--b";
        put(root + "/blobs/0123", "weights");
        put(root + "/refs/main", "r1");
        put(root + "/snapshots/r1/plain", "x");
        fs::create_directories(root + "/snapshots/r1/sub");
        fs::create_symlink("../../blobs/0123", root + "/snapshots/r1/model.safetensors");
        fs::create_symlink("../../../blobs/0123", root + "/snapshots/r1/sub/model.safetensors");
        fs::create_symlink("../../refs/main", root + "/snapshots/r1/ref");
        fs::create_symlink("../../../outside", root + "/snapshots/r1/out");
        put(root + "/../outside", "no");
        auto directory = openOf(root + "/snapshots/r1");
        QCOMPARE(contents(directory->openFile("model.safetensors").value()), std::string("weights"));
        QCOMPARE(contents(directory->openFile("sub/model.safetensors").value()), std::string("weights"));
        QCOMPARE(directory->stat("model.safetensors").value().size, uint64_t{7});
        QVERIFY(!directory->openFile("ref").ok());
        QVERIFY(!directory->openFile("out").ok());
        const auto entries = directory->list().value();
        const auto found = std::find_if(entries.begin(), entries.end(),
                                        [](auto& e) { return e.name == "model.safetensors"; });
        QVERIFY(found != entries.end());
        QCOMPARE(found->size, uint64_t{7});
    }

    void onlyRegularFiles() {
        const std::string root = fresh();
        fs::create_directories(root + "/folder");
        QCOMPARE(::mkfifo((root + "/pipe").c_str(), 0600), 0);
        const Descriptor socket(::socket(AF_UNIX, SOCK_STREAM, 0));
        struct sockaddr_un address {};
        address.sun_family = AF_UNIX;
        const std::string path = root + "/sock";
        if (path.size() < sizeof address.sun_path) {
            std::copy(path.begin(), path.end(), address.sun_path);
            QCOMPARE(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
        }
        auto directory = openOf(root);
        for (const char* name : {"folder", "pipe", "sock"}) {
            auto file = directory->openFile(name);
            QVERIFY2(!file.ok(), name);
            QCOMPARE(file.error().code, ErrorCode::unsafe);
        }
        QCOMPARE(directory->stat("folder").value().kind, DirectoryEntry::Kind::directory);
        QCOMPARE(directory->stat("pipe").value().kind, DirectoryEntry::Kind::other);
    }

    void bulkReads() {
        const std::string root = fresh();
        const std::vector<std::byte> data = randomBytes((size_t{5} << 20) + 1234, 1);
        put(root + "/f", {reinterpret_cast<const char*>(data.data()), data.size()});
        for (IoMode mode : {IoMode::automatic, IoMode::direct, IoMode::buffered}) {
            auto file = openOf(root, mode)->openFile("f").value();
            for (uint64_t offset : {0, 1, 511, 4096, 4097, 123457}) {
                for (size_t phase : {0, 1, 123457 % 4096}) {
                    const size_t length = data.size() - offset - (offset % 2 ? 0 : 77);
                    AlignedBuffer buffer(length + 4096);
                    QVERIFY(file->readBulk(offset, buffer.span(phase, length)).ok());
                    QVERIFY(std::equal(data.begin() + static_cast<ptrdiff_t>(offset),
                                       data.begin() + static_cast<ptrdiff_t>(offset + length),
                                       buffer.data() + phase));
                }
            }
            AlignedBuffer buffer(data.size() + 1);
            const Status past = file->readBulk(0, buffer.span());
            QCOMPARE(past.error().code, ErrorCode::damaged);
            fs::resize_file(root + "/f", data.size() - 5000);
            const Status shrunk = file->readBulk(0, buffer.span(0, data.size()));
            QVERIFY(!shrunk.ok());
            QCOMPARE(shrunk.error().code, ErrorCode::changed);
            fs::remove(root + "/f");
            put(root + "/f", {reinterpret_cast<const char*>(data.data()), data.size()});
        }
    }

    // Ranges that share pages are written at the same time, in any alignment of file and memory.
    void bulkWritesOfNeighbors() {
        const std::string root = fresh();
        for (IoMode mode : {IoMode::automatic, IoMode::buffered}) {
            for (unsigned seed = 0; seed < 6; ++seed) {
                std::mt19937 random(seed);
                const std::vector<std::byte> data = randomBytes((size_t{12} << 20) + 77 * seed, seed);
                std::vector<size_t> cuts = {0, data.size()};
                for (int i = 0; i < 12; ++i)
                    cuts.push_back(random() % data.size());
                std::sort(cuts.begin(), cuts.end());
                auto directory = openOf(root, mode);
                const std::string name =
                    "d/f" + std::to_string(seed) + std::to_string(static_cast<int>(mode));
                auto file = directory->createFile(name).value();
                QVERIFY(file->allocate(data.size()).ok());
                std::atomic<bool> good{true};
                std::vector<std::thread> threads;
                for (size_t worker = 0; worker < 4; ++worker) {
                    threads.emplace_back([&, worker] {
                        for (size_t i = worker; i + 1 < cuts.size(); i += 4) {
                            const size_t length = cuts[i + 1] - cuts[i];
                            const size_t phase = seed % 2 ? cuts[i] % kIoAlignment : seed;
                            AlignedBuffer buffer(length + kIoAlignment);
                            std::copy_n(data.data() + cuts[i], length, buffer.data() + phase);
                            if (!file->writeBulk(cuts[i], buffer.span(phase, length)).ok()) good = false;
                        }
                    });
                }
                for (std::thread& t : threads)
                    t.join();
                QVERIFY(good);
                QVERIFY(file->sync().ok());
                auto back = directory->openFile(name).value();
                QCOMPARE(back->size(), uint64_t{data.size()});
                std::vector<std::byte> read(data.size());
                QVERIFY(back->readBulk(0, read).ok());
                QVERIFY(read == data);
                QCOMPARE(directory->createFile(name).error().code, ErrorCode::exists);
                QVERIFY(directory->createFile(name, true).ok());
            }
        }
        QVERIFY(openOf(root)->sync().ok());
    }

    void wholePaths() {
        const std::string root = fresh();
        auto system = systemFileSystem();
        put(root + "/a/x", "A");
        put(root + "/b/y", "B");
        QCOMPARE(system->rename(root + "/a", root + "/b").error().code, ErrorCode::exists);
        QVERIFY(system->exchange(root + "/a", root + "/b").ok());
        QVERIFY(fs::exists(root + "/a/y") && fs::exists(root + "/b/x"));
        put(root + "/one", "1");
        put(root + "/two", "2");
        QVERIFY(system->exchange(root + "/one", root + "/two").ok());
        QVERIFY(!fs::exists(root + "/one") && fs::file_size(root + "/two") == 1);
        fs::remove(root + "/two");
        QVERIFY(system->rename(root + "/a", root + "/c").ok());
        QCOMPARE(system->makeDirectory(root + "/c").error().code, ErrorCode::exists);
        QVERIFY(system->makeDirectory(root + "/d").ok());
        QVERIFY(system->removeTree(root + "/c").ok());
        QVERIFY(!fs::exists(root + "/c"));
        QVERIFY(system->syncDirectory(root).ok());
        QVERIFY(system->freeBytes(root).value() > 0);
        QCOMPARE(system->stat(root + "/none").error().code, ErrorCode::notFound);
        // A name that leads nowhere is in the way all the same.
        fs::create_symlink(root + "/none", root + "/link");
        QCOMPARE(system->stat(root + "/link").value().kind, DirectoryEntry::Kind::other);
        fs::remove(root + "/link");
        QCOMPARE(asidePath("/a/b"), std::string("/a/.b.shardscope-old"));
        QCOMPARE(asidePath("b/"), std::string("./.b.shardscope-old"));
        QCOMPARE(system->openDirectory(root + "/b/x").error().code, ErrorCode::notFound);
        auto directory = openOf(root);
        QVERIFY(directory->removeFile("b/x").ok());
        QCOMPARE(directory->removeFile("b/x").error().code, ErrorCode::notFound);

        auto scratch = system->createScratch(root).value();
        const std::vector<std::byte> data = randomBytes(1 << 20, 9);
        QVERIFY(scratch->writeBulk(0, data).ok());
        auto back = system->reopen(scratch).value();
        scratch.reset();
        std::vector<std::byte> read(data.size());
        QVERIFY(back->readBulk(0, read).ok());
        QVERIFY(read == data);
        const auto entries = directory->list().value();
        QCOMPARE(entries.size(), size_t{2});  // b and d: the scratch file has no name
        QCOMPARE(directory->list("b").value().size(), size_t{0});
    }

    void fingerprints() {
        const std::string root = fresh();
        put(root + "/f", "one");
        auto file = openOf(root)->openFile("f").value();
        const Fingerprint before = file->fingerprint().value();
        QVERIFY(before == file->fingerprint().value());
        put(root + "/f", "longer");
        QVERIFY(!(before == file->fingerprint().value()));
    }
};

QTEST_APPLESS_MAIN(TestSystemFileSystem)
#include "test_system_file_system.moc"
