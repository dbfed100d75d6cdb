// Tar archives: the kinds of headers that writers use, what a directory of one lists, and hostile ones.
#include "encoding/tar.h"

#include <QtTest>

#include "base/rule.h"
#include "support/bytes_file.h"

using namespace shardscope;
using shardscope::test::BytesFile;

namespace {

// Sets what stands at a place of a header, and its checksum.
std::string header(const std::string& name, char type, const std::string& size) {
    std::string block(512, '\0');
    block.replace(0, name.size(), name);
    block.replace(124, size.size(), size);
    block[156] = type;
    block.replace(257, 8, std::string("ustar\0", 6) + "00");
    block.replace(148, 8, "        ");
    unsigned sum = 0;
    for (const char c : block)
        sum += static_cast<unsigned char>(c);
    block.replace(148, 7, QString::number(sum, 8).rightJustified(6, '0').toStdString() + '\0');
    return block;
}

std::string octal(size_t size) {
    return QString::number(size, 8).rightJustified(11, '0').toStdString();
}

std::string entry(const std::string& name, const std::string& data, char type = '0') {
    std::string out = header(name, type, octal(data.size())) + data;
    out.resize((out.size() + 511) / 512 * 512);
    return out;
}

const std::string kEnd(1024, '\0');

std::string names(const Directory& directory, const std::string& below = {}) {
    std::string out;
    const auto listed = directory.list(below);
    if (!listed.ok()) return "error";
    for (const DirectoryEntry& e : *listed)
        out += e.name + (e.kind == DirectoryEntry::Kind::directory ? "/ " : " ");
    return out;
}

std::string contents(const Directory& directory, const std::string& name) {
    const auto file = directory.openFile(name);
    if (!file.ok()) return file.error().location.rule;
    std::string text((*file)->size(), '\0');
    if (!(*file)->readAt(0, std::as_writable_bytes(std::span(text))).ok()) return "error";
    return text;
}

}  // namespace

class TarTest : public QObject {
    Q_OBJECT

  private slots:
    void filesAreInTheirDirectories() {
        const auto tar = openTar(std::make_shared<BytesFile>(
            entry("./", "", '5') + entry("./a/b.ckpt", "one") + entry("a-c", "two") +
            entry("a/d/e", "three") + entry("z", "", '2') + kEnd));
        QVERIFY(tar.ok());
        QCOMPARE(names(**tar), "a/ a-c z ");
        QCOMPARE(names(**tar, "a"), "b.ckpt d/ ");
        QCOMPARE(names(**tar, "a/d"), "e ");
        QCOMPARE(names(**tar, "a-c"), "error");
        QCOMPARE(contents(**tar, "a/b.ckpt"), "one");
        QCOMPARE(contents(**tar, "a/d/e"), "three");
        QCOMPARE(contents(**tar, "z"), rule::securityPath);
        QVERIFY(!(*tar)->openFile("../a.nemo").ok());
        QVERIFY(!(*tar)->createFile("new").ok());
    }

    void longNamesAndSizes() {
        const std::string name = std::string(120, 'x') + "/y";
        const std::string record = " path=" + name + "\n";
        const std::string pax = std::to_string(record.size() + 3) + record;
        const std::string binary = std::string("\x80\0\0\0\0\0\0\0\0\0\0\x03", 12);
        std::string big = header("big", '0', binary) + "abc";
        big.resize(1024);
        const auto tar = openTar(std::make_shared<BytesFile>(
            entry("pax", pax, 'x') + entry("short", "one") + entry("long", name + "z" + '\0', 'L') +
            entry("short", "two") + big + entry("short", "three") + kEnd));
        QVERIFY(tar.ok());
        QCOMPARE(contents(**tar, name), "one");
        QCOMPARE(contents(**tar, name + "z"), "two");
        QCOMPARE(contents(**tar, "big"), "abc");
        QCOMPARE(contents(**tar, "short"), "three");
    }

    void theLastOfOneNameCounts() {
        const auto tar = openTar(std::make_shared<BytesFile>(entry("a", "old") + entry("./a", "new") + kEnd));
        QCOMPARE(contents(**tar, "a"), "new");
    }

    void cutArchives() {
        const std::string all = entry("a", std::string(700, 'a')) + entry("b", std::string(700, 'b')) + kEnd;
        for (size_t size = 0; size < all.size(); ++size) {
            const auto tar = openTar(std::make_shared<BytesFile>(all.substr(0, size)));
            QVERIFY(tar.ok());
            if (size >= 512)
                QCOMPARE(contents(**tar, "a"),
                         size < 512 + 700 ? std::string(rule::fileTruncated) : std::string(700, 'a'));
        }
    }

    void hostileHeaders() {
        const auto error = [](const std::string& bytes) {
            const auto tar = openTar(std::make_shared<BytesFile>(bytes + kEnd));
            return tar.ok() ? std::string() : tar.error().location.rule;
        };
        QCOMPARE(error(entry("../a", "one")), rule::securityPath);
        QCOMPARE(error(entry("/a", "one")), rule::securityPath);
        std::string wrong = entry("a", "one");
        wrong[0] = 'b';
        QCOMPARE(error(wrong), rule::metaInconsistent);
        QCOMPARE(error(header("a", '0', std::string("\x80\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff", 12))),
                 rule::metaInconsistent);
        QCOMPARE(error(header("a", '0', "99999999999")), rule::metaInconsistent);
        QCOMPARE(error(entry("pax", "999 path=a\n", 'x')), rule::metaInconsistent);
        QVERIFY(isTarStart(entry("a", "one")));
        QVERIFY(!isTarStart(wrong));
        QVERIFY(!isTarStart(std::string(512, '\0')));
    }
};

QTEST_APPLESS_MAIN(TarTest)
#include "tar_test.moc"
