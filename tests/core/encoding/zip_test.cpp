#include "encoding/zip.h"

#include <QtTest>
#include <cstring>

#include <zlib.h>

#include "support/memory_file_system.h"

using namespace shardscope;
using namespace shardscope::test;

namespace {

uint32_t crcOf(const std::string& s) {
    return static_cast<uint32_t>(
        ::crc32(0, reinterpret_cast<const Bytef*>(s.data()), static_cast<uInt>(s.size())));
}

struct Entry {
    std::string name, content;
};

// As torch writes it.
std::string layOut(const std::vector<Entry>& entries, uint64_t alignment = 64) {
    ZipLayout zip("a", alignment);
    std::string out;
    std::vector<uint32_t> crcs;
    for (const Entry& e : entries) {
        const size_t r = zip.addRecord(e.name, e.content.size());
        crcs.push_back(crcOf(e.content));
        out += zip.header(r);
        if (out.size() != zip.dataOffset(r)) qFatal("header and offset disagree");
        out += e.content + zip.descriptor(r, crcs.back());
    }
    out += zip.directory(crcs);
    if (out.size() != zip.totalSize()) qFatal("size");
    return out;
}

std::shared_ptr<const ReadFile> fileOf(const std::string& content) {
    const auto fs = std::make_shared<MemoryFileSystem>();
    const auto bytes = std::as_bytes(std::span(content));
    fs->put("/d/x.zip", {bytes.begin(), bytes.end()});
    return fs->openDirectory("/d").value()->openFile("x.zip").value();
}

// All entries read, or the first error.
std::string readAll(const std::string& content) {
    const auto zip = openZip(fileOf(content), 0, content.size());
    if (!zip.ok()) return describe(zip.error());
    std::string all;
    for (const ZipEntry& entry : zip->entries) {
        const auto bytes = readZipEntry(*zip, entry, 1 << 20);
        if (!bytes.ok()) return describe(bytes.error());
        all += entry.name + "=" + *bytes + ";";
    }
    return all;
}

template <class T>
void poke(std::string& bytes, size_t at, T value) {
    std::memcpy(bytes.data() + at, &value, sizeof value);
}

const std::vector<Entry> kThree{{"x", "hello"}, {"empty", ""}, {"data/0", std::string(5000, 'z')}};

}  // namespace

class ZipTest : public QObject {
    Q_OBJECT

  private slots:
    void layout() {
        const std::string bytes = layOut(kThree);
        QCOMPARE(readAll(bytes), "a/x=hello;a/empty=;a/data/0=" + std::string(5000, 'z') + ";");
        // The first bytes of every file that torch writes.
        const std::string head = layOut({{"data.pkl", "."}});
        QCOMPARE(QByteArray::fromStdString(head.substr(0, 30)).toHex(),
                 QByteArray("504b03040000080800000000000000000000000000000000000"
                            "00a001800"));
        QCOMPARE(head.substr(30, 10), std::string("a/data.pkl"));
        QCOMPARE(head.substr(40, 2), std::string("FB"));
        QCOMPARE(head[64], '.');
        for (uint64_t alignment : {64U, 4096U}) {
            const std::string aligned = layOut(kThree, alignment);
            const auto zip = openZip(fileOf(aligned), 0, aligned.size());
            QVERIFY(zip.ok());
            for (const ZipEntry& e : zip->entries)
                QCOMPARE(zipDataOffset(*zip, e).value() % alignment, uint64_t{0});
        }
    }

    void insideSlice() {
        const std::string bytes = "junk before" + layOut(kThree) + "and after";
        const auto zip = openZip(fileOf(bytes), 11, bytes.size() - 20);
        QVERIFY2(zip.ok(), zip.ok() ? "" : describe(zip.error()).c_str());
        QCOMPARE(readZipEntry(*zip, *zip->find("a/x"), 100).value(), std::string("hello"));
        QVERIFY(!zip->find("a/y"));
    }

    void pythonReadsIt() {
        const QString python = QStandardPaths::findExecutable("python3");
        if (python.isEmpty()) QSKIP("python3 is not installed");
        QTemporaryDir dir;
        QFile file(dir.filePath("x.zip"));
        QVERIFY(file.open(QIODevice::WriteOnly));
        file.write(QByteArray::fromStdString(layOut(kThree)));
        file.close();
        QProcess process;
        process.start(python, {"-c",
                               "import zipfile,sys\nz=zipfile.ZipFile(sys.argv[1])\nassert z.testzip() is "
                               "None\nprint(z.namelist(), z.read('a/x'))",
                               file.fileName()});
        QVERIFY(process.waitForFinished(60'000));
        QCOMPARE(process.readAllStandardOutput().trimmed(),
                 QByteArray("['a/x', 'a/empty', 'a/data/0'] b'hello'"));
    }

    void deflatedByPython() {
        const QString python = QStandardPaths::findExecutable("python3");
        if (python.isEmpty()) QSKIP("python3 is not installed");
        QTemporaryDir dir;
        QProcess process;
        process.start(python, {"-c",
                               "import "
                               "zipfile,sys\nz=zipfile.ZipFile(sys.argv[1],'w',zipfile.ZIP_DEFLATED)\nz."
                               "writestr('a/x','hello'*1000)\nz.writestr('a/y','')\nz.close()",
                               dir.filePath("y.zip")});
        QVERIFY(process.waitForFinished(60'000));
        QFile file(dir.filePath("y.zip"));
        QVERIFY(file.open(QIODevice::ReadOnly));
        const std::string bytes = file.readAll().toStdString();
        std::string hello;
        for (int i = 0; i < 1000; ++i)
            hello += "hello";
        QCOMPARE(readAll(bytes), "a/x=" + hello + ";a/y=;");
        for (size_t size = 0; size < bytes.size(); ++size)
            QVERIFY(!openZip(fileOf(bytes.substr(0, size)), 0, size).ok());
    }

    // Sizes and offsets beyond 4 GiB, read back through a file that is mostly a hole.
    void beyond4GiB() {
        ZipLayout zip("archive");
        const uint64_t huge = (uint64_t{5} << 30) + 3;
        zip.addRecord("data/0", huge);
        zip.addRecord("small", 4);
        zip.addRecord("empty", 0);
        QVERIFY(zip.headerOffset(1) > UINT32_MAX && zip.dataOffset(1) % 64 == 0);
        QCOMPARE(zip.descriptor(0, 1).size(), size_t{24});
        QCOMPARE(zip.descriptor(1, 1).size(), size_t{24});
        QTemporaryDir dir;
        QFile file(dir.filePath("big.zip"));
        QVERIFY(file.open(QIODevice::ReadWrite));
        const auto write = [&](uint64_t at, const std::string& s) {
            QVERIFY(file.seek(static_cast<qint64>(at)));
            QCOMPARE(file.write(s.data(), static_cast<qint64>(s.size())), static_cast<qint64>(s.size()));
        };
        const std::vector<uint32_t> crcs{0, crcOf("four"), 0};
        write(0, zip.header(0));
        write(zip.dataOffset(0) + huge, zip.descriptor(0, 0) + zip.header(1) + "four" +
                                            zip.descriptor(1, crcs[1]) + zip.header(2) + zip.directory(crcs));
        QCOMPARE(static_cast<uint64_t>(file.size()), zip.totalSize());
        file.close();
        const auto system = systemFileSystem();
        const auto opened =
            openZip(system->openDirectory(dir.path().toStdString()).value()->openFile("big.zip").value(), 0,
                    zip.totalSize());
        QVERIFY2(opened.ok(), opened.ok() ? "" : describe(opened.error()).c_str());
        QCOMPARE(opened->find("archive/data/0")->size, huge);
        QCOMPARE(zipDataOffset(*opened, *opened->find("archive/data/0")).value(), zip.dataOffset(0));
        QCOMPARE(readZipEntry(*opened, *opened->find("archive/small"), 10).value(), std::string("four"));
        const QString python = QStandardPaths::findExecutable("python3");
        if (python.isEmpty()) return;
        QProcess process;
        process.start(python,
                      {"-c",
                       "import zipfile,sys\nz=zipfile.ZipFile(sys.argv[1])\nprint(z.read('archive/small'), "
                       "z.getinfo('archive/data/0').file_size)",
                       dir.filePath("big.zip")});
        QVERIFY(process.waitForFinished(60'000));
        QCOMPARE(process.readAllStandardOutput().trimmed(),
                 "b'four' " + QByteArray::number(static_cast<qulonglong>(huge)));
    }

    void hostile_data() {
        QTest::addColumn<QByteArray>("bytes");
        QTest::addColumn<QByteArray>("says");
        const std::string good = layOut(kThree);
        const size_t end = good.size() - 22;
        const size_t end64 = end - 20 - 56;
        const size_t directory = good.find("PK\1\2");
        const auto row = [](const char* name, const std::string& bytes, const char* says) {
            QTest::newRow(name) << QByteArray::fromStdString(bytes) << QByteArray(says);
        };
        const auto changed = [&](const std::function<void(std::string&)>& change) {
            std::string bytes = good;
            change(bytes);
            return bytes;
        };
        row("nothing", "", "too few");
        row("no end record", good.substr(0, good.size() - 1), "no end-of-directory");
        row("bytes behind", good + "x", "no end-of-directory");
        row("bytes in front", "x" + good, "");
        row("directory offset", changed([&](auto& b) { poke<uint64_t>(b, end64 + 48, 1); }), "contradict");
        row("directory beyond the end", changed([&](auto& b) {
                poke<uint64_t>(b, end64 + 48, uint64_t{1} << 63);
                poke<uint32_t>(b, end + 16, UINT32_MAX);
            }),
            "should have");
        row("count too large", changed([&](auto& b) {
                poke<uint64_t>(b, end64 + 24, 4);
                poke<uint64_t>(b, end64 + 32, 4);
                poke<uint16_t>(b, end + 8, UINT16_MAX);
                poke<uint16_t>(b, end + 10, UINT16_MAX);
            }),
            "");
        row("locator", changed([&](auto& b) { poke<uint64_t>(b, end - 20 + 8, uint64_t{1} << 62); }),
            "outside the archive");
        row("several disks", changed([&](auto& b) { poke<uint16_t>(b, end + 4, 1); }), "several files");
        row("encrypted", changed([&](auto& b) { b[directory + 8] |= 1; }), "encrypted");
        row("method", changed([&](auto& b) { b[directory + 10] = 12; }), "method 12");
        row("sizes differ", changed([&](auto& b) { poke<uint32_t>(b, directory + 24, 9); }), "stored, but");
        row("other local name", changed([&](auto& b) { b[30] = 'b'; }), "another name");
        row("local flags", changed([&](auto& b) { b[6] = 0; }), "flags");
        row("descriptor", changed([&](auto& b) { b[64 + 5 + 8] = 9; }), "directory contradicts");
        row("flipped data", changed([&](auto& b) { b[64] = 'J'; }), "checksum");
        row("overlap", changed([&](auto& b) {
                const size_t third = b.find("PK\1\2", b.find("PK\1\2", directory + 1) + 1);
                poke<uint32_t>(b, third + 42, 8);
            }),
            "overlaps");
        row("zip64 field missing", changed([&](auto& b) { poke<uint32_t>(b, directory + 42, UINT32_MAX); }),
            "Zip64 field");
        row("two names", layOut({{"x", "1"}, {"x", "2"}}), "two entries");
        for (const char* name : {"../x", "./x", "x//y", "x\\y", "x/", "\xff"})
            row(name, layOut({{name, "1"}}), "the entry name");
    }
    void hostile() {
        QFETCH(QByteArray, bytes);
        QFETCH(QByteArray, says);
        const std::string result = readAll(bytes.toStdString());
        QVERIFY2(result.find("=hello;") == std::string::npos, result.c_str());
        QVERIFY2(result.find(says.toStdString()) != std::string::npos, result.c_str());
    }

    void noChecksums() {
        ZipLayout zip("a");
        zip.addRecord("x", 5);
        const std::string bytes = zip.header(0) + "hello" + zip.descriptor(0, 0) + zip.directory({0});
        QCOMPARE(readAll(bytes), std::string("a/x=hello;"));
    }

    // One bit is another: what is read are the bytes that were written, or it is damaged, of a kind that is
    // not read, or has a name that is not safe.
    static bool ofDamage(const Error& error) {
        return error.code == ErrorCode::damaged || error.code == ErrorCode::unsupported ||
               error.code == ErrorCode::unsafe;
    }
    void flips() {
        const std::string good = layOut({{"x", "hello"}, {"y", "world"}});
        for (size_t at = 0; at < good.size(); ++at) {
            for (int bit = 0; bit < 8; ++bit) {
                std::string bytes = good;
                bytes[at] = static_cast<char>(bytes[at] ^ (1 << bit));
                const std::string where = std::to_string(at) + ", bit " + std::to_string(bit) + ": ";
                const auto zip = openZip(fileOf(bytes), 0, bytes.size());
                if (!zip.ok()) {
                    QVERIFY2(ofDamage(zip.error()), (where + describe(zip.error())).c_str());
                    continue;
                }
                for (const ZipEntry& entry : zip->entries) {
                    const auto read = readZipEntry(*zip, entry, 1 << 20);
                    QVERIFY2(read.ok() ? *read == "hello" || *read == "world" : ofDamage(read.error()),
                             (where + (read.ok() ? *read : describe(read.error()))).c_str());
                }
            }
        }
    }
};

QTEST_GUILESS_MAIN(ZipTest)
#include "zip_test.moc"
