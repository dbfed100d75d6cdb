#include "base/text.h"

#include <QTest>

#include "base/numbers.h"
#include "base/regular_expression.h"
#include "base/units.h"

using namespace shardscope;

class TextTest : public QObject {
    Q_OBJECT

  private slots:
    void utf8_data() {
        QTest::addColumn<QByteArray>("text");
        QTest::addColumn<bool>("valid");
        QTest::newRow("empty") << QByteArray() << true;
        QTest::newRow("ascii") << QByteArray("model.layers.0.weight") << true;
        QTest::newRow("two, three, four bytes") << QByteArray("\xc3\xa9\xe6\x97\xa5\xf0\x9f\x98\x80") << true;
        QTest::newRow("stray continuation") << QByteArray("a\x80") << false;
        QTest::newRow("cut short") << QByteArray("12345678\xe6\x97") << false;
        QTest::newRow("overlong") << QByteArray("\xc0\xaf") << false;
        QTest::newRow("overlong, three bytes") << QByteArray("\xe0\x80\xaf") << false;
        QTest::newRow("above U+10FFFF") << QByteArray("\xf4\x90\x80\x80") << false;
    }
    void utf8() {
        QFETCH(QByteArray, text);
        QFETCH(bool, valid);
        QCOMPARE(isUtf8(text.toStdString()), valid);
        QCOMPARE(isUtf8(text.toStdString(), Surrogates::accept), valid);
    }
    void surrogatesAreAcceptedOnRequest() {
        const std::string lone = "\xed\xa0\x80";
        QVERIFY(!isUtf8(lone));
        QVERIFY(isUtf8(lone, Surrogates::accept));
        QCOMPARE(decodeUtf8(lone).value, 0xd800U);
        QCOMPARE(printable(lone), std::string("\\ud800"));
    }
    void printableIsHarmless_data() {
        QTest::addColumn<QByteArray>("text");
        QTest::addColumn<QByteArray>("shown");
        QTest::newRow("plain") << QByteArray("\xc3\xa9 w") << QByteArray("\xc3\xa9 w");
        QTest::newRow("escape sequence") << QByteArray("\x1b[2J\x07") << QByteArray("\\x1b[2J\\x07");
        QTest::newRow("lines") << QByteArray("a\nb\tc\rd") << QByteArray("a\\nb\\tc\\x0dd");
        QTest::newRow("bidirectional")
            << QByteArray("a\u202eb\u2066c\u200fd") << QByteArray("a\\u202eb\\u2066c\\u200fd");
        QTest::newRow("invisible") << QByteArray("a\u200bb\ufeff") << QByteArray("a\\u200bb\\ufeff");
        QTest::newRow("C1 control") << QByteArray("\xc2\x9b") << QByteArray("\\u009b");
        QTest::newRow("not UTF-8") << QByteArray("a\xff\xc3") << QByteArray("a\\xff\\xc3");
        QTest::newRow("NUL") << QByteArray("a\0b", 3) << QByteArray("a\\x00b");
    }
    void printableIsHarmless() {
        QFETCH(QByteArray, text);
        QFETCH(QByteArray, shown);
        QCOMPARE(QByteArray::fromStdString(printable(text.toStdString())), shown);
        QVERIFY(isUtf8(printable(text.toStdString())));
    }
    void printableIsCut() {
        const std::string text = printable(std::string(1'000'000, 'a'), kNameInMessage);
        QCOMPARE(text.size(), kNameInMessage + 3);
        QVERIFY(text.ends_with("..."));
        QCOMPARE(printable("abc", 3), std::string("abc"));
    }
    void oneLineCollapsesWhatIsNotText() {
        QCOMPARE(oneLine("\n  Welcome\r\n\x1b[1mto\xff node7 \n"), std::string("Welcome [1mto node7"));
        QCOMPARE(oneLine("abcdef", 3), std::string("abc..."));
    }

    void expressionsReplace_data() {
        QTest::addColumn<QString>("pattern");
        QTest::addColumn<QString>("to");
        QTest::addColumn<QString>("text");
        QTest::addColumn<QString>("result");
        QTest::newRow("groups") << "layers[.]([0-9]+)[.](q|k)"
                                << "h.$1.$2"
                                << "m.layers.12.k.w"
                                << "m.h.12.k.w";
        QTest::newRow("all matches") << "a"
                                     << "bb"
                                     << "banana"
                                     << "bbbnbbnbb";
        QTest::newRow("whole match") << "[0-9]+"
                                     << "<$&>"
                                     << "a1b22"
                                     << "a<1>b<22>";
        QTest::newRow("dollar") << "x"
                                << "$$1"
                                << "axb"
                                << "a$1b";
        QTest::newRow("no such group") << "(x)"
                                       << "[$2]"
                                       << "axb"
                                       << "a[]b";
        QTest::newRow("digit after a group") << "(x)"
                                             << "$12"
                                             << "axb"
                                             << "ax2b";
        QTest::newRow("ten groups") << "(a)(b)(c)(d)(e)(f)(g)(h)(i)(j)"
                                    << "$10$1"
                                    << "abcdefghij"
                                    << "ja";
        QTest::newRow("group without part") << "(a)|(b)"
                                            << "<$1$2>"
                                            << "ab"
                                            << "<a><b>";
        QTest::newRow("empty matches") << "q*"
                                       << "-"
                                       << "ab"
                                       << "-a-b-";
        QTest::newRow("start") << "^model[.]"
                               << ""
                               << "model.model.w"
                               << "model.w";
    }
    void expressionsReplace() {
        QFETCH(QString, pattern);
        QFETCH(QString, to);
        QFETCH(QString, text);
        QFETCH(QString, result);
        const auto expression = RegularExpression::parse(pattern.toStdString());
        QVERIFY(expression.ok());
        QCOMPARE(QString::fromStdString(expression->replaceAll(text.toStdString(), to.toStdString())),
                 result);
    }
    void expressionsThatAreNotSupportedSaySo() {
        for (const char* pattern : {"(", "(a)\\1", "a(?=b)", "[z-a]", "a{5000}"}) {
            const auto expression = RegularExpression::parse(pattern);
            QVERIFY2(!expression.ok(), pattern);
            QCOMPARE(expression.error().code, ErrorCode::usage);
            QVERIFY(expression.error().hint.find("look-ahead") != std::string::npos);
        }
    }
    // With std::regex, 30,000 characters took seconds and 300,000 ended the process.
    void expressionsTakeNamesOfAnyLength() {
        const std::string name(1'000'000, 'a');
        for (const char* pattern : {"(.*)z", "(a*)*z", "(a|aa)+z", "(.*)(.*)(.*)z"}) {
            const auto expression = RegularExpression::parse(pattern);
            QVERIFY(expression.ok());
            QVERIFY(!expression->matchesPart(name));
            QVERIFY(!expression->matchesWhole(name));
            QVERIFY(expression->matchesWhole(name + "z"));
        }
        QCOMPARE(RegularExpression::parse("(.*)").value().replaceAll(name, "x$1").size(), name.size() + 2);
    }
    void numbersAreWhole() {
        QCOMPARE(parseNumber<uint32_t>("4294967295"), std::optional<uint32_t>(4294967295));
        for (const char* text :
             {"", "-1", "+1", " 1", "1 ", "1x", "0x1", "4294967296", "99999999999999999999"})
            QVERIFY2(!parseNumber<uint32_t>(text), text);
        QCOMPARE(parseNumber<int64_t>("-7"), std::optional<int64_t>(-7));
        QVERIFY(!parseNumber<int64_t>("-7", 0));
        QVERIFY(!parseNumber<int>("8", 0, 7));
    }
    void numbersAreTakenFromTheBeginning() {
        std::string_view text = "00012_rest";
        QCOMPARE(takeNumber<uint32_t>(text), std::optional<uint32_t>(12));
        QVERIFY(text == "_rest");
        for (const std::string_view none : {"", "x1", "-1", "4294967296", "256"}) {
            std::string_view left = none;
            QVERIFY(!takeNumber<uint8_t>(left));
            QVERIFY(left == none);
        }
        text = "-1";
        QVERIFY(!takeNumber<int64_t>(text));
    }
    void countsAgreeWithTheirNouns() {
        QCOMPARE(counted(1, "file"), std::string("1 file"));
        QCOMPARE(counted(0, "damaged shard"), std::string("0 damaged shards"));
        QCOMPARE(counted(12345, "file"), std::string("12,345 files"));
        QCOMPARE(counted(2, "entry"), std::string("2 entries"));
        QCOMPARE(counted(2, "key"), std::string("2 keys"));
        QCOMPARE(counted(3, "axis"), std::string("3 axes"));
        QCOMPARE(counted(2, "index"), std::string("2 indexes"));
        QCOMPARE(counted(2, "branch"), std::string("2 branches"));
    }
    void noUnitReachesTheNext() {
        QCOMPARE(bytesText(1023), std::string("1023 B"));
        QCOMPARE(bytesText(1024), std::string("1.00 KiB"));
        QCOMPARE(bytesText((1 << 20) - 1), std::string("1.00 MiB"));
        QCOMPARE(durationText(0.9996), std::string("1.0 s"));
        QCOMPARE(durationText(59.96), std::string("1 min 0 s"));
        QCOMPARE(durationText(119.7), std::string("2 min 0 s"));
        QCOMPARE(durationText(3599.7), std::string("1 h 0 min"));
    }
    void namesNeedNotBeUtf8() {
        const auto expression = RegularExpression::parse("w.*x").value();
        QVERIFY(expression.matchesWhole("w\xff\xfe x"));
    }
};

QTEST_GUILESS_MAIN(TextTest)
#include "text_test.moc"
