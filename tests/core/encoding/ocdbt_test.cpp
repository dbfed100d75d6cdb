// OCDBT databases that are made byte by byte: what is read of them, and what is refused.
#include "encoding/ocdbt.h"

#include <QtTest>

#include <zstd.h>

#include "base/rule.h"
#include "encoding/crc32c.h"
#include "support/memory_file_system.h"

using namespace shardscope;
using namespace shardscope::test;

namespace {

std::string number(uint64_t value, int bytes) {
    std::string out;
    for (int i = 0; i < bytes; ++i)
        out += static_cast<char>(value >> (8 * i));
    return out;
}

std::string varint(uint64_t value) {
    std::string out;
    for (; value >= 0x80; value >>= 7)
        out += static_cast<char>(value | 0x80);
    return out + static_cast<char>(value);
}

std::string varints(std::initializer_list<uint64_t> values) {
    std::string out;
    for (const uint64_t value : values)
        out += varint(value);
    return out;
}

std::string envelope(uint32_t magic, const std::string& body, bool compressed) {
    std::string packed = body;
    if (compressed) {
        // As a stream, without the size of the content.
        packed.resize(ZSTD_compressBound(body.size()));
        ZSTD_CCtx* context = ZSTD_createCCtx();
        ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, 0);
        packed.resize(ZSTD_compress2(context, packed.data(), packed.size(), body.data(), body.size()));
        ZSTD_freeCCtx(context);
    }
    std::string out;
    for (int shift = 24; shift >= 0; shift -= 8)
        out += static_cast<char>(magic >> shift);
    out += number(packed.size() + 18, 8) + varints({0, compressed ? 1u : 0u}) + packed;
    return out + number(crc32cOf(std::as_bytes(std::span(out))), 4);
}

std::string files(const std::vector<std::pair<std::string, uint64_t>>& names) {
    std::string out = varint(names.size());
    for (size_t i = 1; i < names.size(); ++i)
        out += varint(0);
    for (const auto& [name, base] : names)
        out += varint(name.size());
    for (const auto& [name, base] : names)
        out += varint(base);
    for (const auto& [name, base] : names)
        out += name;
    return out;
}

std::string node(const std::string& body, bool compressed = false) {
    return envelope(0x0cdb20de, body, compressed);
}

// With its newest version: the root's height, and its place in file 0 of `names`.
std::string manifest(const std::string& names, uint64_t height, uint64_t offset, uint64_t length,
                     bool compressed = false) {
    return envelope(0x0cdb3a2a,
                    std::string(16, 'u') + varints({0, 1024, 100'000'000}) + '\x04' + varint(1) +
                        number(0, 4) + names + varints({1, 7}) + static_cast<char>(height) +
                        varints({0, offset, length, 1, 10, 10}) + number(5, 8) + varint(0),
                    compressed);
}

// Keys "a/.zarray" (in the tree) and "a/0" (12 bytes from byte 3 of file 0).
std::string leaf(const std::string& names) {
    return std::string(1, '\0') + names + varints({2, 2, 9, 1}) + "a/.zarray" + "0" +
           varints({4, 12, 0, 1, 0, 3}) + "json";
}

class Database {
  public:
    Database() : fileSystem_(std::make_shared<MemoryFileSystem>()) { put("other", "x"); }
    void put(const std::string& name, const std::string& bytes) {
        const auto data = std::as_bytes(std::span(bytes));
        fileSystem_->put("/ckpt/" + name, {data.begin(), data.end()});
    }
    Result<OcdbtIndex> read(const OcdbtLimits& limits = {}) const {
        return readOcdbt(*fileSystem_->openDirectory("/ckpt").value(), {}, limits, {});
    }

  private:
    std::shared_ptr<MemoryFileSystem> fileSystem_;
};

}  // namespace

class OcdbtTest : public QObject {
    Q_OBJECT

  private slots:
    void checksumIsCastagnolis() {
        QCOMPARE(crc32cOf(std::as_bytes(std::span("123456789", 9))), uint32_t{0xe3069283});
        QCOMPARE(crc32cOf({}), uint32_t{0});
    }

    void readsLeaves_data() {
        QTest::addColumn<bool>("compressed");
        QTest::newRow("plain") << false;
        QTest::newRow("zstd without the content's size") << true;
    }
    void readsLeaves() {
        QFETCH(bool, compressed);
        Database database;
        const std::string root = node(leaf(files({{"d/values", 0}})), compressed);
        database.put("d/nodes", "..." + root);
        database.put("manifest.ocdbt", manifest(files({{"d/nodes", 0}}), 0, 3, root.size(), compressed));
        const auto index = database.read();
        QVERIFY2(index.ok(), index.ok() ? "" : describe(index.error()).c_str());
        QCOMPARE(index->size(), size_t{2});
        const OcdbtIndex::Entry text = (*index)[0], value = (*index)[1];
        QCOMPARE(text.key, std::string_view("a/.zarray"));
        QVERIFY(text.inTree && text.value.size() == 4 && index->files()[text.file] == "d/nodes");
        QCOMPARE(text.offset, uint64_t{3});
        QCOMPARE(value.key, std::string_view("a/0"));
        QVERIFY(!value.inTree && index->files()[value.file] == "d/values");
        QVERIFY(value.offset == 3 && value.length == 12);
    }

    // A version from before the first key has its root nowhere, in a file without a name.
    void passesOverEmptyVersions() {
        Database database;
        const std::string root = node(leaf(files({{"d/values", 0}})));
        database.put("d/nodes", root);
        database.put(
            "manifest.ocdbt",
            envelope(0x0cdb3a2a,
                     std::string(16, 'u') + varints({0, 1024, 100'000'000}) + '\x04' + varint(1) +
                         number(0, 4) + files({{"", 0}, {"d/nodes", 0}}) + varints({2, 6, 7}) +
                         std::string(2, '\0') +
                         varints({0, 1, UINT64_MAX, 0, UINT64_MAX, root.size(), 0, 1, 0, 10, 0, 10}) +
                         number(5, 8) + number(6, 8) + varint(0),
                     false));
        const auto index = database.read();
        QVERIFY2(index.ok(), index.ok() ? "" : describe(index.error()).c_str());
        QCOMPARE(index->size(), size_t{2});
        // Nothing can be in it.
        database.put("manifest.ocdbt", manifest(files({{"", 0}}), 0, 0, root.size()));
        QVERIFY(!database.read().ok());
        database.put("d/nodes", node(leaf(files({{"", 0}}))));
        database.put("manifest.ocdbt",
                     manifest(files({{"d/nodes", 0}}), 0, 0, node(leaf(files({{"", 0}}))).size()));
        QVERIFY(!database.read().ok());
    }

    // The base path of a child leads its own files into the database of another process.
    void followsBasePaths() {
        Database database;
        const std::string child = node(leaf(files({{"d/values", 0}})));
        database.put("p1/d/nodes", child);
        const std::string root = node(std::string(1, '\1') + files({{"p1/d/nodes", 3}}) + varints({1, 3, 2}) +
                                      "x/a" + varints({0, 0, child.size(), 2, 0, 0}));
        database.put("root", root);
        database.put("manifest.ocdbt", manifest(files({{"root", 0}}), 1, 0, root.size()));
        const auto index = database.read();
        QVERIFY2(index.ok(), index.ok() ? "" : describe(index.error()).c_str());
        // The child inherits the first two bytes of its key.
        QCOMPARE((*index)[1].key, std::string_view("x/a/0"));
        QCOMPARE(index->files()[(*index)[1].file], std::string("p1/d/values"));
    }

    void emptyDatabaseHasNoKeys() {
        Database database;
        database.put("manifest.ocdbt", manifest(files({{"root", 0}}), 0, UINT64_MAX, UINT64_MAX));
        const auto index = database.read();
        QVERIFY(index.ok() && index->size() == 0);
    }

    void takesTheHighestNumberedManifest() {
        Database database;
        const std::string root = node(leaf(files({{"d/values", 0}})));
        database.put("root", root);
        database.put("manifest.ocdbt",
                     envelope(0x0cdb3a2a,
                              std::string(16, 'u') + varints({1, 1024, 1000}) + '\x04' + varint(0), false));
        const std::string numbered = std::string(16, 'u') + varints({1, 1024, 1000}) + '\x04' + varint(0) +
                                     files({{"root", 0}}) + varints({1, 7}) + std::string(1, '\0') +
                                     varints({0, 0, root.size(), 1, 10, 10}) + number(5, 8) + varint(0);
        database.put("manifest.0000000000000001", "old");
        database.put("manifest.000000000000000a", envelope(0x0cdb3a2a, numbered, false));
        const auto index = database.read();
        QVERIFY2(index.ok(), index.ok() ? "" : describe(index.error()).c_str());
        QCOMPARE(index->size(), size_t{2});
    }

    void refuses_data() {
        QTest::addColumn<QByteArray>("root");
        QTest::addColumn<int>("height");
        QTest::addColumn<QByteArray>("rule");
        const auto row = [](const char* name, const std::string& body, int height, const char* rule) {
            QTest::newRow(name) << QByteArray::fromStdString(node(body)) << height << QByteArray(rule);
        };
        const std::string names = files({{"d/values", 0}});
        row("height", leaf(names), 1, rule::metaInconsistent);
        row("parent", leaf(files({{"../values", 0}})), 0, rule::securityPath);
        row("absolute", leaf(files({{"/values", 0}})), 0, rule::securityPath);
        row("base past its path", leaf(files({{"d/values", 9}})), 0, rule::metaInconsistent);
        row("no keys", std::string(1, '\0') + names + varint(0), 0, rule::metaInconsistent);
        row("keys that fall",
            std::string(1, '\0') + names + varints({2, 0, 1, 1}) + "ba" + varints({0, 0, 0, 0}), 0,
            rule::metaInconsistent);
        row("file that is not there",
            std::string(1, '\0') + names + varints({1, 1}) + "a" + varints({1, 1, 5, 0}), 0,
            rule::metaInconsistent);
        row("value past all",
            std::string(1, '\0') + names + varints({1, 1}) + "a" + varints({5, 1, 0, UINT64_MAX}), 0,
            rule::metaInconsistent);
        row("more keys than bytes", std::string(1, '\0') + names + varints({UINT64_MAX / 2}), 0,
            rule::metaInconsistent);
        row("bytes behind", leaf(names) + "x", 0, rule::metaInconsistent);
        // A node that is its own child: its height does not fall.
        row("cycle",
            std::string(1, '\1') + files({{"root", 0}}) + varints({1, 1, 0}) + "a" +
                varints({0, 0, 40, 1, 0, 0}),
            1, "");
    }
    void refuses() {
        QFETCH(QByteArray, root);
        QFETCH(int, height);
        QFETCH(QByteArray, rule);
        Database database;
        database.put("root", root.toStdString());
        database.put("manifest.ocdbt", manifest(files({{"root", 0}}), static_cast<uint64_t>(height), 0,
                                                static_cast<uint64_t>(root.size())));
        const auto index = database.read();
        QVERIFY(!index.ok());
        QVERIFY2(rule.isEmpty() || index.error().location.rule == rule.toStdString(),
                 describe(index.error()).c_str());
        QVERIFY2(!index.error().location.file.empty(), describe(index.error()).c_str());
    }

    void everyTruncationAndChangeIsAnError() {
        const std::string root = node(leaf(files({{"d/values", 0}})));
        const std::string whole = manifest(files({{"root", 0}}), 0, 0, root.size());
        for (const bool ofManifest : {true, false}) {
            const std::string& bytes = ofManifest ? whole : root;
            const auto fails = [&](const std::string& changed) {
                Database database;
                database.put("root", ofManifest ? root : changed);
                database.put("manifest.ocdbt", ofManifest ? changed : whole);
                const auto index = database.read();
                return !index.ok() && !index.error().location.file.empty();
            };
            for (size_t length = 0; length < bytes.size(); ++length)
                QVERIFY(fails(bytes.substr(0, length)));
            for (size_t i = 0; i < bytes.size(); ++i) {
                std::string changed = bytes;
                changed[i] = static_cast<char>(changed[i] ^ 0x10);
                QVERIFY(fails(changed));
            }
        }
    }

    void bombsAreLimits() {
        Database database;
        const std::string root = node(std::string(1 << 20, '\0'), true);
        database.put("root", root);
        database.put("manifest.ocdbt", manifest(files({{"root", 0}}), 0, 0, root.size()));
        OcdbtLimits limits;
        limits.nodeBytes = 1 << 16;
        const auto index = database.read(limits);
        QVERIFY(!index.ok());
        QVERIFY(index.error().code == ErrorCode::limit);
    }
};

QTEST_GUILESS_MAIN(OcdbtTest)
#include "ocdbt_test.moc"
