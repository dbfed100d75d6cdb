#include <QTest>

#include "plan/plan.h"

using namespace shardscope;

class NamePatternTest : public QObject {
    Q_OBJECT

  private slots:
    void matches_data() {
        QTest::addColumn<QString>("pattern");
        QTest::addColumn<QString>("name");
        QTest::addColumn<bool>("expected");
        QTest::newRow("all") << "*"
                             << "a.b" << true;
        QTest::newRow("empty name") << "*"
                                    << "" << true;
        QTest::newRow("exact") << "a.b"
                               << "a.b" << true;
        QTest::newRow("dot is a dot") << "a.b"
                                      << "axb" << false;
        QTest::newRow("suffix") << "*.weight"
                                << "m.weight" << true;
        QTest::newRow("no part") << "weight"
                                 << "m.weight" << false;
        QTest::newRow("middle") << "m.*.w"
                                << "m.1.2.w" << true;
        QTest::newRow("backtrack") << "*ab*b"
                                   << "aababxb" << true;
        QTest::newRow("question") << "layer?"
                                  << "layer7" << true;
        QTest::newRow("question needs one") << "layer?"
                                            << "layer" << false;
        QTest::newRow("regex") << "re:layers\\.[0-3]\\..*"
                               << "layers.2.w" << true;
        QTest::newRow("regex is whole") << "re:layers"
                                        << "layers.2.w" << false;
    }
    void matches() {
        QFETCH(QString, pattern);
        QFETCH(QString, name);
        QFETCH(bool, expected);
        const auto p = NamePattern::parse(pattern.toStdString());
        QVERIFY(p.ok());
        QCOMPARE(p->matches(name.toStdString()), expected);
    }
    void longNames() {
        const std::string name(3'000'000, 'a');
        QVERIFY(NamePattern::parse("re:(a|b)*").value().matches(name));
        QVERIFY(NamePattern::parse("re:.*").value().matches(name));
        QVERIFY(!NamePattern::parse("re:.*b").value().matches(name));
        const auto rename = Renamer::make({{"(.*)", "x$1"}});
        QVERIFY(rename.value()(name).starts_with("xaaa"));
        QVERIFY(rename.value()("w").starts_with("xw"));
    }
    void badRegexIsUsage() {
        QVERIFY(NamePattern::parse("re:(").error().code == ErrorCode::usage);
        QVERIFY(NamePattern::parse("re:(a)\\1*").error().code == ErrorCode::usage);
        QVERIFY(Renamer::make({{"a(?=b)", "c"}}).error().message.starts_with("--rename 'a(?=b)'"));
    }
};

QTEST_GUILESS_MAIN(NamePatternTest)
#include "name_pattern_test.moc"
