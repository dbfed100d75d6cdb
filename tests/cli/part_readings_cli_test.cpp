// Validations and digests in parts: what they report is what one process would have.
#include <QProcess>
#include <QTest>

#include "cli/parts_fixture.h"

using namespace shardscope;
using namespace shardscope::test;

class PartReadingsCliTest : public QObject, protected PartsFixture {
    Q_OBJECT

  private slots:
    void initTestCase() { makeSources(); }
    void init() { place_ = std::make_unique<QTemporaryDir>(); }

    void readingsSayWhatOneProcessSays_data() {
        QTest::addColumn<QString>("path");
        QTest::addColumn<QStringList>("what");
        const QStringList values{"validate", "--level", "values"};
        QTest::newRow("values") << findings_ << values;
        QTest::newRow("values, listed in part") << findings_ << values + QStringList{"--examples", "3"};
        QTest::newRow("digest") << source_ << QStringList{"digest"};
        QTest::newRow("sha256") << source_ << QStringList{"digest", "--algorithm", "sha256"};
        QTest::newRow("crc32 of some") << source_ << QStringList{"digest", "--algorithm", "crc32", "*.1*"};
        // Replicas, checksums, storages that tensors share, strides, damage of many kinds.
        for (const GenuineCase& c : genuineSamples())
            QTest::newRow(("values of " + c.id()).c_str()) << QString::fromStdString(c.openPath()) << values;
    }
    void readingsSayWhatOneProcessSays() {
        QFETCH(QString, path);
        QFETCH(QStringList, what);
        const Outcome one = reading(path, what, {});
        if (one.json().value("schema", "").find("run") != std::string::npos) {
            QCOMPARE(reading(path, what, {"--part", part(0)}).exitCode, 2);
            return;
        }
        const Outcome first = reading(path, what, {"--part", part(1, 2)});
        if (one.exitCode > 1) {  // it does not even open
            QCOMPARE(first.out, one.out);
            return;
        }
        QVERIFY2(first.exitCode == 0, (first.out + first.err).c_str());
        QCOMPARE(first.json()["schema"].get<std::string>(), std::string("shardscope.part/1"));
        const Outcome last = reading(path, what, {"--part", part(0, 2), "--finish", "auto"});
        QCOMPARE(last.out, one.out);
        QCOMPARE(last.exitCode, one.exitCode);
        QVERIFY(!QFile::exists(records()));
    }

    void recordsStayUntilTheAnswerHasArrived() {
        for (const QStringList& what :
             {QStringList{"digest"}, QStringList{"validate", "--level", "values"}}) {
            for (int index = 0; index < 2; ++index)
                QCOMPARE(reading(source_, what, {"--part", part(index, 2)}).exitCode, 0);
            const QStringList finish = readingWords(source_, what, {"--finish"});
            QStringList text = finish;
            text.removeOne("--json");
            QCOMPARE(runShardscopeInto("/dev/full", finish).exitCode, 4);
            QCOMPARE(runShardscopeInto("/dev/full", text).exitCode, 4);
            QCOMPARE(runShardscope(finish).out, reading(source_, what, {}).out);
            QVERIFY(!QFile::exists(records()));
        }
    }

    void aReadingIsSharedOut() {
        uint64_t bytes = 0, least = UINT64_MAX, most = 0;
        for (int index = 0; index < kParts; ++index) {
            const auto report = reading(source_, {"validate", "--level", "values"}, {"--part", part(index)});
            const uint64_t share = report.json()["bytes"];
            QCOMPARE(report.json()["bytes_read"].get<uint64_t>(), share);
            bytes += share;
            least = std::min(least, share);
            most = std::max(most, share);
        }
        const double even = static_cast<double>(bytes) / kParts;
        QVERIFY2(static_cast<double>(most - least) <= 0.05 * even + (1 << 20), "the shares differ");
    }

    void ofAReadingTheLastOneReports() {
        const QStringList what{"validate", "--level", "values"};
        std::vector<std::unique_ptr<QProcess>> processes;
        for (int index = 0; index < kParts; ++index) {
            auto& process = processes.emplace_back(std::make_unique<QProcess>());
            process->start(SHARDSCOPE_PROGRAM,
                           readingWords(findings_, what, {"--part", part(index), "--finish", "auto"}));
        }
        int finished = 0;
        for (const auto& process : processes) {
            QVERIFY(process->waitForFinished(120'000));
            const std::string out = process->readAllStandardOutput().toStdString();
            const auto report = nlohmann::json::parse(out, nullptr, false);
            if (report["schema"] == "shardscope.validate/1") {
                ++finished;
                const Outcome one = reading(findings_, what, {});
                QCOMPARE(out, one.out);
                QCOMPARE(process->exitCode(), one.exitCode);
                QCOMPARE(process->exitCode(), 1);
            } else {
                QVERIFY2(process->exitCode() == 0, process->readAllStandardError().constData());
            }
        }
        QCOMPARE(finished, 1);
        QVERIFY(!QFile::exists(records()));
    }

    void aReadingContinues() {
        const QStringList what{"digest"};
        QCOMPARE(reading(source_, what, {"--part", part(0)}).exitCode, 0);
        const Outcome again = reading(source_, what, {"--part", part(0)});
        QCOMPARE(again.exitCode, 0);
        QVERIFY(again.json()["was_done"].get<bool>());
        QCOMPARE(again.json()["bytes_read"].get<uint64_t>(), uint64_t{0});
        // As after a kill: what the record claims is kept, the rest is done again.
        QFile journal(records() + "/part-0.journal");
        QVERIFY(journal.resize(journal.size() - 5));
        const Outcome rest = reading(source_, what, {"--part", part(0)});
        QVERIFY(!rest.json()["was_done"].get<bool>());
        const uint64_t read = rest.json()["bytes_read"], share = rest.json()["bytes"];
        QVERIFY2(read > 0 && read < share, rest.out.c_str());
        // Nothing of it is left: it is done from the beginning.
        QVERIFY(journal.resize(3));
        QCOMPARE(reading(source_, what, {"--part", part(0)}).json()["bytes_read"].get<uint64_t>(), share);
        const Outcome open = reading(source_, what, {"--finish"});
        QCOMPARE(open.exitCode, 3);
        const std::string message = open.json()["message"];
        QVERIFY2(message.find("3 of 4 parts not done: 1, 2, 3") != std::string::npos, message.c_str());
        for (int index = 1; index < kParts; ++index)
            QCOMPARE(reading(source_, what, {"--part", part(index), "--finish", "auto"}).exitCode, 0);
        QVERIFY(!QFile::exists(records()));
    }

    // A record that is no record of this reading is an error, whatever is in it.
    void anAlteredRecordIsNotBelieved() {
        const QStringList what{"digest"};
        for (int index = 0; index < 2; ++index)
            QCOMPARE(reading(source_, what, {"--part", part(index, 2)}).exitCode, 0);
        QFile journal(records() + "/part-1.journal");
        QVERIFY(journal.open(QIODevice::ReadWrite));
        QVERIFY(journal.seek(journal.size() / 2));
        QVERIFY(journal.write("altered") == 7);
        journal.close();
        const Outcome finish = reading(source_, what, {"--finish"});
        QCOMPARE(finish.exitCode, 3);
        QVERIFY2(finish.json()["message"].get<std::string>().find("not done: 1") != std::string::npos,
                 finish.out.c_str());
    }

    void anotherReadingIsRefused_data() {
        QTest::addColumn<QStringList>("what");
        QTest::addColumn<QStringList>("more");
        const QStringList values{"validate", "--level", "values"};
        QTest::newRow("number of parts") << values << QStringList{"--part", part(1, 5)};
        QTest::newRow("options") << values + QStringList{"--examples", "7"} << QStringList{"--part", part(1)};
        QTest::newRow("another verb") << QStringList{"digest"} << QStringList{"--part", part(1)};
        QTest::newRow("finish with other options")
            << values + QStringList{"--examples", "7"} << QStringList{"--finish"};
    }
    void anotherReadingIsRefused() {
        QFETCH(QStringList, what);
        QFETCH(QStringList, more);
        QCOMPARE(reading(source_, {"validate", "--level", "values"}, {"--part", part(0)}).exitCode, 0);
        const auto before = bytesBelow(records());
        const Outcome refused = reading(source_, what, more);
        QCOMPARE(refused.exitCode, 3);
        QVERIFY2(refused.json()["message"].get<std::string>().find("other parts") != std::string::npos,
                 refused.out.c_str());
        QVERIFY2(bytesBelow(records()) == before, "it wrote something");
    }

    void aChangedSourceOfAReadingIsRefused() {
        const QString copy = place_->filePath("source.safetensors");
        QVERIFY(QFile::copy(source_, copy));
        QCOMPARE(reading(copy, {"digest"}, {"--part", part(0)}).exitCode, 0);
        QFile file(copy);
        QVERIFY(file.open(QIODevice::ReadWrite));
        QVERIFY(
            file.setFileTime(QDateTime::currentDateTime().addSecs(60), QFileDevice::FileModificationTime));
        file.close();
        for (const QStringList& more : {QStringList{"--part", part(1)}, QStringList{"--finish"}}) {
            const Outcome changed = reading(copy, {"digest"}, more);
            QCOMPARE(changed.exitCode, 3);
            QVERIFY2(changed.json()["message"].get<std::string>().find("source") != std::string::npos,
                     changed.out.c_str());
        }
    }

    void recordsNeedAPlaceOfTheirOwn() {
        const QStringList values{"validate", source_, "--level", "values", "--json"};
        QCOMPARE(runShardscope(values + QStringList{"--part", part(0)}).exitCode, 2);
        QCOMPARE(runShardscope(values + QStringList{"--records", records()}).exitCode, 2);
        QCOMPARE(reading(source_, {"validate", "--level", "files"}, {"--part", part(0)}).exitCode, 2);
        QCOMPARE(reading(source_, {"digest"}, {"--part", part(0), "--finish"}).exitCode, 2);
        QCOMPARE(reading(source_, {"digest"}, {"--finish"}).exitCode, 3);
        QVERIFY(!QFile::exists(records()));
        QCOMPARE(runShardscope(
                     values + QStringList{"--part", "0/1", "--finish", "auto", "--records", records() + "//"})
                     .exitCode,
                 0);
        // Not inside the checkpoint.
        QCOMPARE(runShardscope({"digest", sources_.path(), "--part", part(0), "--records",
                                sources_.filePath("records")})
                     .exitCode,
                 2);
        QVERIFY(QDir().mkpath(records()));
        QFile other(records() + "/mine.txt");
        QVERIFY(other.open(QIODevice::WriteOnly));
        other.close();
        const Outcome refused = reading(source_, {"digest"}, {"--part", part(0)});
        QVERIFY(refused.exitCode != 0);
        QCOMPARE(QDir(records()).entryList(QDir::Files | QDir::Hidden), QStringList{"mine.txt"});
    }
};

QTEST_GUILESS_MAIN(PartReadingsCliTest)
#include "part_readings_cli_test.moc"
