#include "base/error.h"

#include <QTest>
#include <cerrno>
#include <limits>

#include "base/checked.h"
#include "base/option_words.h"
#include "base/result.h"

using namespace shardscope;

class ErrorTest : public QObject {
    Q_OBJECT

  private slots:
    void exitCodesFollowTheContract() {
        QCOMPARE(exitCode(ErrorCode::usage), 2);
        QCOMPARE(exitCode(ErrorCode::damaged), 3);
        QCOMPARE(exitCode(ErrorCode::unsupported), 3);
        QCOMPARE(exitCode(ErrorCode::limit), 3);
        QCOMPARE(exitCode(ErrorCode::noSpace), 4);
        QCOMPARE(exitCode(ErrorCode::permission), 4);
        QCOMPARE(exitCode(ErrorCode::impossible), 5);
        QCOMPARE(exitCode(ErrorCode::cancelled), 130);
    }

    void innerKnowledgeIsKept() {
        const Error error =
            damaged("short", 12).inFile("a").inFile("b").at(99).ofTensor("w").withHint("do this");
        QCOMPARE(describe(error), std::string("a at byte 12: tensor 'w': short (do this)"));
    }

    void optionsAreWordedForTheirReader() {
        QCOMPARE(option("fill-gaps", "zero"), std::string("--fill-gaps zero"));
        wordOptions([](std::string_view name, std::string_view) { return "<" + std::string(name) + ">"; });
        QCOMPARE(option("overwrite"), std::string("<overwrite>"));
        QCOMPARE(commandOption("overwrite"), std::string("--overwrite"));
        wordOptions(commandOption);
    }

    void systemErrorsAreTold() {
        QVERIFY(systemError(ENOSPC, "write", "x").code == ErrorCode::noSpace);
        QVERIFY(systemError(EDQUOT, "write", "x").code == ErrorCode::noSpace);
        QVERIFY(systemError(EACCES, "open", "x").code == ErrorCode::permission);
        QVERIFY(systemError(ENOENT, "open", "x").code == ErrorCode::notFound);
        QVERIFY(systemError(EIO, "read", "x").code == ErrorCode::io);
    }

    void tryHandsUpTheError() {
        const auto inner = [](bool good) -> Result<int> {
            if (good) return 3;
            return unsupported("no");
        };
        const auto outer = [&](bool good) -> Result<int> {
            SHARDSCOPE_ASSIGN(const int value, inner(good));
            SHARDSCOPE_TRY(good ? Status() : Status(unsupported("never")));
            return value + 1;
        };
        QCOMPARE(*outer(true), 4);
        QCOMPARE(outer(false).error().message, std::string("no"));
    }

    void checkedArithmetic() {
        constexpr auto most = std::numeric_limits<uint64_t>::max();
        uint64_t out = 0;
        QVERIFY(!checkedAdd<uint64_t>(most, 1, out));
        QVERIFY(!checkedMul<uint64_t>(most / 2, 3, out));
        QVERIFY(!checkedAlignUp(most - 2, 4096, out));
        QVERIFY(checkedAlignUp(1, 4096, out) && out == 4096);
        QVERIFY(rangeFits(4, 4, 8) && !rangeFits(5, 4, 8) && !rangeFits(most, 2, 8) && rangeFits(8, 0, 8));
        int64_t product = 0;
        const int64_t wraps[] = {4194305, 4194305, 211106198978564};
        QVERIFY(!checkedProduct(wraps, product));
        const int64_t zeroFirst[] = {0, int64_t{1} << 62, int64_t{1} << 62};
        const int64_t zeroLast[] = {int64_t{1} << 62, int64_t{1} << 62, 0};
        QVERIFY(!checkedProduct(zeroFirst, product) && !checkedProduct(zeroLast, product));
        const int64_t fine[] = {3, 0, 5};
        QVERIFY(checkedProduct(fine, product) && product == 0);
    }
};

QTEST_GUILESS_MAIN(ErrorTest)
#include "error_test.moc"
