#include "encoding/pickle.h"

#include <QtTest>
#include <random>

#include "encoding/torch_tensor.h"

using namespace shardscope;

namespace {

Result<Pickle> decode(const std::string& bytes, const PickleLimits& limits = {}) {
    return decodePickle(std::as_bytes(std::span(bytes)), limits);
}

std::string text(const Result<Pickle>& pickle) {
    if (!pickle.ok()) return describe(pickle.error());
    return valueRepr(
        {std::shared_ptr<const ValueGraph>(std::shared_ptr<void>(), &pickle->graph), pickle->root}, 100'000);
}

std::string bytesOf(std::initializer_list<int> values) {
    std::string out;
    for (int v : values)
        out += static_cast<char>(v);
    return out;
}

// A random value of plain data.
NodeId randomValue(ValueGraph& graph, std::mt19937& random, int depth) {
    const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
    const auto scalar = [&]() -> NodeId {
        switch (pick(7)) {
            case 0:
                return graph.addNone();
            case 1:
                return graph.addBoolean(pick(2) == 1);
            case 2:
                return graph.addInteger(static_cast<int64_t>(random()) << pick(32));
            case 3:
                return graph.addInteger(-static_cast<int64_t>(random() % 70'000));
            case 4:
                return graph.addReal(static_cast<double>(random()) / 7.0);
            case 5:
                return graph.addText(ValueKind::text,
                                     std::string(static_cast<size_t>(pick(300)), 'a') + "\xc3\xa9");
            default:
                return graph.addText(ValueKind::bytes, std::string(static_cast<size_t>(pick(5)), '\xff'));
        }
    };
    if (depth == 0 || pick(3) == 0) return scalar();
    std::vector<NodeId> items;
    const int count = pick(40) == 0 ? 2500 : pick(6);
    for (int i = 0; i < count; ++i) {
        // Some of them twice: sharing must survive.
        items.push_back(!items.empty() && pick(5) == 0
                            ? items.back()
                            : randomValue(graph, random, count > 100 ? 0 : depth - 1));
    }
    switch (pick(4)) {
        case 0:
            return graph.addContainer(ValueKind::list, items);
        case 1:
            return graph.addContainer(ValueKind::tuple, items);
        case 2: {
            std::vector<NodeId> pairs;
            for (size_t i = 0; i < items.size(); ++i) {
                pairs.push_back(graph.addInteger(static_cast<int64_t>(i)));
                pairs.push_back(items[i]);
            }
            return graph.addContainer(ValueKind::dict, pairs);
        }
        default: {
            std::vector<NodeId> members;
            for (size_t i = 0; i < items.size(); ++i)
                members.push_back(graph.addInteger(static_cast<int64_t>(i * 1000)));
            return graph.addContainer(pick(2) ? ValueKind::set : ValueKind::frozenSet, members);
        }
    }
}

}  // namespace

class PickleTest : public QObject {
    Q_OBJECT

  private slots:
    // What torch 1.13 to 2.15 write for these tensors, byte for byte.
    void goldenTensors() {
        const auto hex = [](const std::string& s) { return QByteArray::fromStdString(s).toHex(); };
        QCOMPARE(
            hex(pickleOneTensor(DType::float32, Dims{2, 3})),
            QByteArray("800263746f7263682e5f7574696c730a5f72656275696c645f74656e736f725f76320a710028285807000"
                       "00073746f72616765710163746f72"
                       "63680a466c6f617453746f726167650a71025801000000307103580300000063707571044b06747105514"
                       "b004b024b038671064b034b018671"
                       "078963636f6c6c656374696f6e730a4f726465726564446963740a71082952710974710a52710b2e"));
        QCOMPARE(hex(pickleOneTensor(DType::float8E4M3FN, Dims{4})),
                 QByteArray("800263746f7263682e5f7574696c730a5f72656275696c645f74656e736f725f76330a7100282858"
                            "0700000073746f72616765710163746f72"
                            "63682e73746f726167650a556e747970656453746f726167650a7102580100000030710358030000"
                            "0063707571044b04747105514b004b0485"
                            "71064b018571078963636f6c6c656374696f6e730a4f726465726564446963740a71082952710963"
                            "746f7263680a666c6f6174385f65346d33"
                            "666e0a710a74710b52710c2e"));
    }

    void values_data() {
        QTest::addColumn<QByteArray>("bytes");
        QTest::addColumn<QByteArray>("shown");
        const auto row = [](const char* name, const std::string& bytes, const char* shown) {
            QTest::newRow(name) << QByteArray::fromStdString(bytes) << QByteArray(shown);
        };
        row("protocol 0", "(dp0\nVa\np1\nI01\nsVb\np2\n(lp3\nI-5\naL99999999999999999999L\naF0.5\nas.",
            "{'a': True, 'b': [-5, 99999999999999999999, 0.5]}");
        row("old strings",
            "(S'it\\'s\\x41'\nU\x03"
            "abcT\x02\x00\x00\x00zz"
            "t.",
            "");
        row("unicode escape", "V\\u00e9\xe8\n.", "'\xc3\xa9\xc3\xa8'");
        row("long1", bytesOf({0x80, 2, 0x8a, 0, '.'}), "0");
        row("long1 negative", bytesOf({0x80, 2, 0x8a, 1, 0xff, '.'}), "-1");
        row("long1 big", bytesOf({0x80, 2, 0x8a, 9, 0, 0, 0, 0, 0, 0, 0, 0, 1, '.'}), "18446744073709551616");
        row("binint signed", bytesOf({0x80, 2, 'J', 0xff, 0xff, 0xff, 0xff, '.'}), "-1");
        row("binint2 unsigned", bytesOf({0x80, 2, 'M', 0xff, 0xff, '.'}), "65535");
        row("frame", bytesOf({0x80, 4, 0x95, 4, 0, 0, 0, 0, 0, 0, 0, 0x8c, 1, 'x', '.'}), "'x'");
        row("unframed after frame", bytesOf({0x80, 4, 0x95, 1, 0, 0, 0, 0, 0, 0, 0, ']', 'K', 1, 'a', '.'}),
            "[1]");
        row("memoize counts puts",
            bytesOf({0x80, 4, ']', 'q', 0, 0x8c, 1, 'x', 0x94, 'a', 'h', 1, 0x86, '.'}), "");
        row("memo in any order",
            bytesOf({0x80, 2, 'K', 7, 'r', 0xff, 0xff, 0xff, 0xff, '0', 'j', 0xff, 0xff, 0xff, 0xff, '.'}),
            "7");
        row("python 2 set",
            "\x80\x02"
            "c__builtin__\nset\n](K\x01K\x02"
            "e\x85R.",
            "{1, 2}");
        row("bytes of protocol 2",
            std::string("\x80\x02"
                        "c_codecs\nencode\nX\x03\0\0\0a\xc3\xbfX\x06\0\0\0latin1\x86R.",
                        40),
            "b'a\\xff'");
        row("empty bytes",
            "\x80\x02"
            "c__builtin__\nbytes\n)R.",
            "b''");
        row("byte array", bytesOf({0x80, 5, 0x96, 2, 0, 0, 0, 0, 0, 0, 0, 'h', 'i', '.'}),
            "bytearray(b'hi')");
        row("instance", "(imylib\nThing\n(dVx\nI1\nsb.", "Thing(x=1)");
        row("pop and dup", "I1\nI2\n0(I3\n12\x86.", "(1, 1)");
        row("set items", bytesOf({0x80, 4, 0x8f, '(', 'K', 1, 0x90, '.'}), "{1}");
        row("self in list", bytesOf({0x80, 2, ']', 'q', 0, 'h', 0, 'a', '.'}), "");
    }
    void values() {
        QFETCH(QByteArray, bytes);
        QFETCH(QByteArray, shown);
        const auto pickle = decode(bytes.toStdString());
        if (shown.isEmpty()) {
            // Only that it is read or refused cleanly.
            (void)text(pickle);
            return;
        }
        QCOMPARE(QByteArray::fromStdString(text(pickle)), shown);
        QCOMPARE(pickle->length, static_cast<size_t>(bytes.size()));
    }

    void refused_data() {
        QTest::addColumn<QByteArray>("bytes");
        QTest::addColumn<int>("code");
        const auto row = [](const char* name, const std::string& bytes, ErrorCode code = ErrorCode::damaged) {
            QTest::newRow(name) << QByteArray::fromStdString(bytes) << static_cast<int>(code);
        };
        row("empty", "");
        row("only PROTO", bytesOf({0x80, 2}));
        row("random", "hello world");
        row("tuple without mark", bytesOf({0x80, 2, 'K', 1, 't', '.'}));
        row("setitem on empty", bytesOf({0x80, 2, 's', '.'}));
        row("two values", bytesOf({0x80, 2, 'K', 1, 'K', 2, '.'}));
        row("open mark", bytesOf({0x80, 2, '(', 'K', 2, '.'}));
        row("get of nothing", bytesOf({0x80, 2, 'h', 5, '.'}));
        row("memoize of nothing", bytesOf({0x80, 4, 0x94, '.'}));
        row("text of 2^63 bytes", bytesOf({0x80, 4, 0x8d, 0, 0, 0, 0, 0, 0, 0, 0x80, '.'}));
        row("frame beyond the end", bytesOf({0x80, 4, 0x95, 9, 0, 0, 0, 0, 0, 0, 0, 'N', '.'}));
        row("frame in frame",
            bytesOf({0x80, 4, 0x95, 11, 0, 0, 0, 0, 0, 0, 0, 0x95, 1, 0, 0, 0, 0, 0, 0, 0, 'N', '.'}));
        row("opcode straddles a frame",
            bytesOf({0x80, 4, 0x95, 2, 0, 0, 0, 0, 0, 0, 0, 'C', 3, 'c', 'o', 's', '.'}));
        row("ext", bytesOf({0x80, 2, 0x82, 1, '.'}), ErrorCode::unsupported);
        row("buffer", bytesOf({0x80, 5, 0x97, '.'}), ErrorCode::unsupported);
        row("protocol 6", bytesOf({0x80, 6, 'N', '.'}), ErrorCode::unsupported);
        row("PROTO twice", bytesOf({0x80, 2, 0x80, 2, 'N', '.'}));
        row("list as key", bytesOf({0x80, 2, '}', ']', 'N', 's', '.'}));
        row("not UTF-8", bytesOf({0x80, 4, 0x8c, 1, 0xff, '.'}));
        row("digits", "L" + std::string(50'000, '9') + "L\n.", ErrorCode::limit);
        row("call of an int", bytesOf({0x80, 2, 'K', 1, ')', 'R', '.'}));
        row("build on a list", bytesOf({0x80, 2, ']', '}', 'b', '.'}));
        row("name with zero", std::string("cos\nsys\0tem\n.", 13));
        row("deep tuples", std::string("\x80\x02)", 3) + std::string(1'000'000, '\x85') + ".",
            ErrorCode::limit);
        row("deep lists", "\x80\x02" + std::string(100'000, ']') + std::string(99'999, 'a') + ".",
            ErrorCode::limit);
    }
    void refused() {
        QFETCH(QByteArray, bytes);
        QFETCH(int, code);
        const auto pickle = decode(bytes.toStdString());
        QVERIFY(!pickle.ok());
        QCOMPARE(static_cast<int>(pickle.error().code), code);
        QVERIFY(!pickle.error().message.empty());
    }

    void globalsAreNamed() {
        // Called and thrown away, by GLOBAL, by STACK_GLOBAL, by INST, and put together at run time.
        const auto pickle = decode(
            "\x80\x04"
            "cos\nsystem\n(Vx\ntR0\x8c\x05posix\x8c\x06system\x93"
            "0(ivictim\nThing\n0cbuiltins\nchr\n)R\x8c\x01x\x93.");
        QVERIFY2(pickle.ok(), text(pickle).c_str());
        QCOMPARE(pickle->globals.size(), size_t{5});
        QCOMPARE(pickle->globals[0], std::string("os.system"));
        QCOMPARE(pickle->globals[1], std::string("posix.system"));
        QCOMPARE(pickle->globals[2], std::string("victim.Thing"));
        QCOMPARE(pickle->globals[4], std::string("<dynamic>.<dynamic>"));
    }

    void billionLaughs() {
        std::string bytes = "\x80\x02]q";
        bytes += '\0';
        for (int i = 1; i < 200; ++i) {
            bytes += "]q";
            bytes += static_cast<char>(i);
            for (int k = 0; k < 9; ++k) {
                bytes += 'h';
                bytes += static_cast<char>(i - 1);
                bytes += 'a';
            }
        }
        bytes += '.';
        // 200 lists remain on the stack but the last: take them into one tuple instead.
        bytes.insert(2, "(");
        bytes.insert(bytes.size() - 1, "t");
        const auto pickle = decode(bytes);
        QVERIFY2(pickle.ok(), text(pickle).c_str());
        QVERIFY(pickle->graph.size() < 1000);
        const Value value{std::shared_ptr<const ValueGraph>(std::shared_ptr<void>(), &pickle->graph),
                          pickle->root};
        QVERIFY(valueRepr(value, 1000).size() <= 1000);
        QVERIFY(valueToJson(value, 10'000).size() < 10'000'000);
        ValueGraph copy;
        QVERIFY(copyValue(value, copy) != kNoNode);
        QCOMPARE(copy.size(), size_t{201});
    }

    void cycles() {
        const std::string self = bytesOf({0x80, 2, ']', 'q', 0, 'h', 0, 'a', '.'});
        auto pickle = decode(self);
        QVERIFY(pickle.ok());
        const Value value = makeValue(std::move(pickle->graph), pickle->root);
        QVERIFY(!valueRepr(value).empty());
        QVERIFY(!valueToJson(value).empty());
        const auto again = encodePickle(value);
        QVERIFY(again.ok());
        QCOMPARE(QByteArray::fromStdString(*again), QByteArray::fromStdString(self));
    }

    void roundTrip() {
        std::mt19937 random(7);
        for (int i = 0; i < 300; ++i) {
            ValueGraph graph;
            const NodeId root = randomValue(graph, random, 5);
            const Value value = makeValue(std::move(graph), root);
            const auto bytes = encodePickle(value);
            QVERIFY2(bytes.ok(), bytes.ok() ? "" : describe(bytes.error()).c_str());
            auto pickle = decode(*bytes);
            QVERIFY2(pickle.ok(), text(pickle).c_str());
            const Value back = makeValue(std::move(pickle->graph), pickle->root);
            QCOMPARE(valueRepr(back, 1'000'000), valueRepr(value, 1'000'000));
            const auto again = encodePickle(back);
            QVERIFY(again.ok());
            QVERIFY(*again == *bytes);
        }
    }

    void truncationsAndFlips() {
        std::mt19937 random(11);
        ValueGraph graph;
        const NodeId root = randomValue(graph, random, 6);
        const std::string bytes = encodePickle(makeValue(std::move(graph), root)).value();
        const size_t step = bytes.size() / 3000 + 1;
        for (size_t size = 0; size < bytes.size(); size += step)
            QVERIFY(!decode(bytes.substr(0, size)).ok());
        for (size_t at = 0; at < bytes.size(); at += step) {
            std::string changed = bytes;
            changed[at] = static_cast<char>(random());
            (void)text(decode(changed));
        }
    }

    void pythonAgrees() {
        const QString python = QStandardPaths::findExecutable("python3");
        if (python.isEmpty()) QSKIP("python3 is not installed");
        QProcess process;
        process.start(
            python,
            {"-c",
             "import pickle,sys,collections\n"
             "o={'a':[1,2,(3,4,5,6)],'n':None,'f':-0.25,'b':b'\\x00\\xff','e':b'','s':{1},'big':1<<70,'i':1<<"
             "40,\n"
             " 'ba':bytearray(b'x'),'od':collections.OrderedDict([('x',1),('y',2)]),'m':list(range(2500)),'d'"
             ":dict.fromkeys(range(1000)),\n"
             " 'c':collections.Counter('aab'),'fs':frozenset([7]),'t':(),'one':[1],'k':{(1,2):True}}\n"
             "sys.stdout.buffer.write(pickle.dumps(o,2))"});
        QVERIFY(process.waitForFinished(60'000));
        const std::string bytes = process.readAllStandardOutput().toStdString();
        auto pickle = decode(bytes);
        QVERIFY2(pickle.ok(), text(pickle).c_str());
        // The same bytes again, Counter apart: its items are kept as pairs.
        const auto again = encodePickle(makeValue(std::move(pickle->graph), pickle->root));
        QVERIFY(again.ok());
        QProcess check;
        check.start(python, {"-c",
                             "import pickle,sys,collections\no=pickle.load(sys.stdin.buffer)\n"
                             "assert o['m']==list(range(2500)) and o['d']==dict.fromkeys(range(1000)) and "
                             "o['e']==b'' and o['big']==1<<70\n"
                             "assert o['od']==collections.OrderedDict([('x',1),('y',2)]) and o['s']=={1} and "
                             "o['fs']==frozenset([7])\n"
                             "assert o['k']=={(1,2):True} and o['b']==b'\\x00\\xff' and "
                             "o['ba']==bytearray(b'x') and o['c']['a']==2\nprint('same')"});
        check.write(again->data(), static_cast<qint64>(again->size()));
        check.closeWriteChannel();
        QVERIFY(check.waitForFinished(60'000));
        QCOMPARE(check.readAllStandardOutput().trimmed(), QByteArray("same"));
    }

    // Frames, MEMOIZE, batches and long values as pickle.dumps() writes them.
    void framedIsWhatPythonWrites() {
        const QString python = QStandardPaths::findExecutable("python3");
        if (python.isEmpty()) QSKIP("python3 is not installed");
        QProcess process;
        process.start(
            python,
            {"-c",
             "import pickle,sys,collections\n"
             "o={'a':[1,2,(3,4,5,6)],'n':None,'f':-0.25,'b':b'\\x00\\xff','e':b'','s':{1},'big':1<<70,'i':1<<"
             "40,'neg':-3,\n"
             " 'od':collections.OrderedDict([('x',1),('y',2)]),'m':list(range(2501)),'d':dict.fromkeys(range("
             "1000)),"
             "\n"
             " 'many':['text %d'%i for i in "
             "range(20000)],'long':'x'*70000,'bytes':bytes(70000),'set':set(range("
             "1001)),\n"
             " 't':(),'one':[1],'two':{1:2},'k':{(1,2):True},'r':range(3),'none':[],'nothing':set()}\n"
             "sys.stdout.buffer.write(pickle.dumps([o,o['a']],4))"});
        QVERIFY(process.waitForFinished(60'000));
        const std::string bytes = process.readAllStandardOutput().toStdString();
        auto pickle = decode(bytes);
        QVERIFY2(pickle.ok(), text(pickle).c_str());
        const auto again =
            encodePickle(makeValue(std::move(pickle->graph), pickle->root), PickleWriter::For::framed);
        QVERIFY(again.ok());
        QCOMPARE(again->size(), bytes.size());
        QVERIFY(*again == bytes);
    }
};

QTEST_GUILESS_MAIN(PickleTest)
#include "pickle_test.moc"
