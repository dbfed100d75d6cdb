// MessagePack: every kind of value, and every truncation of it.
#include "encoding/msgpack.h"

#include <QtTest>

#include "support/bytes_file.h"

using namespace shardscope;
using shardscope::test::BytesFile;

namespace {

Result<MsgpackTree> read(const std::string& bytes, const MsgpackLimits& limits = {}) {
    return readMsgpack(BytesFile(bytes), 0, bytes.size(), limits, {});
}

using namespace std::string_literals;

// {"a": [nil, true, -1, 200, -32768, 2**40, 1.5 (float), 1.5 (double)], "b": bytes "xyz", "c": extension 1
// "pq", "text": "longer than 31 bytes ..."}
const std::string kAll =
    "\x84\xa1"
    "a\x98\xc0\xc3\xff\xcc\xc8\xd1\x80\x00\xcf\x00\x00\x01\x00\x00\x00\x00\x00\xca\x3f\xc0\x00\x00\xcb\x3f"
    "\xf8\x00\x00\x00\x00\x00\x00\xa1"
    "b\xc4\x03xyz\xa1"
    "c\xd5\x01pq\xa4text\xd9\x28"s +
    std::string(40, 't');

}  // namespace

class MsgpackTest : public QObject {
    Q_OBJECT

  private slots:
    void readsEveryKind() {
        const auto tree = read(kAll);
        QVERIFY2(tree.ok(), tree.ok() ? "" : describe(tree.error()).c_str());
        const auto items = tree->items(tree->root());
        QCOMPARE(items.size(), size_t{8});
        QVERIFY(tree->isText(items[0], "a"));
        const auto list = tree->items(items[1]);
        QVERIFY((*tree)[list[0]].kind == MsgpackKind::nil);
        QVERIFY((*tree)[list[1]].kind == MsgpackKind::boolean && (*tree)[list[1]].integer == 1);
        QCOMPARE((*tree)[list[2]].integer, int64_t{-1});
        QCOMPARE((*tree)[list[3]].integer, int64_t{200});
        QCOMPARE((*tree)[list[4]].integer, int64_t{-32768});
        QCOMPARE((*tree)[list[5]].integer, int64_t{1} << 40);
        QCOMPARE((*tree)[list[6]].real, 1.5);
        QCOMPARE((*tree)[list[7]].real, 1.5);
        // Payloads stay in the file.
        const MsgpackTree::Node& bytes = (*tree)[items[3]];
        QVERIFY(bytes.kind == MsgpackKind::bytes && kAll.substr(bytes.offset, bytes.length) == "xyz");
        const MsgpackTree::Node& extension = (*tree)[items[5]];
        QVERIFY(extension.kind == MsgpackKind::extension && extension.extension == 1);
        QCOMPARE(kAll.substr(extension.offset, extension.length), std::string("pq"));
        QCOMPARE(tree->text(items[7]), std::string_view(kAll).substr(kAll.size() - 40));
    }

    void everyTruncationIsAnError() {
        for (size_t length = 0; length < kAll.size(); ++length)
            QVERIFY(!read(kAll.substr(0, length)).ok());
        QVERIFY(!read(kAll + "x").ok());
    }

    void limitsHold() {
        const auto codeOf = [](const std::string& bytes, const MsgpackLimits& limits = {}) {
            const auto tree = read(bytes, limits);
            return tree.ok() ? ErrorCode::internal : tree.error().code;
        };
        QVERIFY(codeOf(std::string(100'000, '\x91')) == ErrorCode::limit);  // nesting
        QVERIFY(codeOf("\xdd\xff\xff\xff\xff"s) == ErrorCode::damaged);     // more items than bytes
        QVERIFY(codeOf("\xdb\xff\xff\xff\xff"s) == ErrorCode::damaged);
        QVERIFY(codeOf("\xc6\xff\xff\xff\xff"s) == ErrorCode::damaged);
        QVERIFY(codeOf("\xc1"s) == ErrorCode::damaged);  // no such value
        QVERIFY(codeOf("\x93\x01\x02\x03"s, {.nodes = 3}) == ErrorCode::limit);
    }
};

QTEST_GUILESS_MAIN(MsgpackTest)
#include "msgpack_test.moc"
