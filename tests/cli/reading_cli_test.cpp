// Validations of values and digests that workers share: what one process says, whatever happens to the
// workers.
#include <QDir>
#include <QFile>
#include <QFileInfo>
#include <QTemporaryDir>
#include <QTest>
#include <csignal>
#include <memory>

#include "cli/after_fault.h"
#include "cli/genuine_checks.h"
#include "cli/measured_process.h"

using namespace shardscope::test;
using nlohmann::json;
using Words = std::vector<std::string>;

namespace {

constexpr int kTensors = 60;

// Runs in ssh's place what ssh would run; a host whose name begins with "far" has another $HIDDEN.
constexpr const char* kHosts = R"(#!/bin/sh
host=
for word; do case $host,$word in ,--) host=next ;; next,*) host=$word ;; esac; command=$word; done
case $host in
far*) exec unshare -rm sh -c 'mount -t tmpfs none "$0" && exec sh -c "$1"' "$HIDDEN" "$command" ;;
*) exec sh -c "$command" ;;
esac
)";

}  // namespace

class ReadingCliTest : public QObject {
    Q_OBJECT

    QTemporaryDir sources_;
    QString source_;
    std::unique_ptr<QTemporaryDir> place_, temporary_;

    QString records() const { return place_->filePath("records"); }
    Words words(const Words& what, const Words& more, const QString& path = {}) const {
        Words all{what.front(), (path.isEmpty() ? source_ : path).toStdString(), "--json"};
        all.insert(all.end(), what.begin() + 1, what.end());
        all.insert(all.end(), more.begin(), more.end());
        return all;
    }
    Words withRecords(Words more) const {
        more.insert(more.end(), {"--records", records().toStdString()});
        return more;
    }
    // Whether a worker has left something of what it found.
    bool begun() const {
        for (const QFileInfo& journal : QDir(records()).entryInfoList({"part-r*.journal"}, QDir::Files))
            if (journal.size() > 0) return true;
        return false;
    }
    // Sends the signal to the first `count` of the workers (-1 = to the coordinator) once work is on disk.
    MeasuredOptions onTheWay(int signal, int count, std::vector<pid_t>* workers = nullptr) const {
        MeasuredOptions options;
        options.watch = [=, this](pid_t child, double) {
            if (!begun()) return true;
            const std::vector<pid_t> found = childrenOf(child);
            if (workers) *workers = found;
            if (count < 0) ::kill(child, signal);
            for (int i = 0; i < count && i < static_cast<int>(found.size()); ++i)
                ::kill(found[static_cast<size_t>(i)], signal);
            return false;
        };
        return options;
    }
    bool nothingTemporaryIsLeft() const {
        return QDir(temporary_->path()).isEmpty(QDir::AllEntries | QDir::Hidden | QDir::NoDotAndDotDot);
    }

    inline static const Words kValues{"validate", "--level", "values"};

  private slots:
    void initTestCase() {
        source_ = sources_.filePath("source.safetensors");
        QVERIFY(writeRandomSource(source_.toStdString(), kTensors, 1021, 1031, 7, "F32"));
        QFile script(sources_.filePath("ssh"));
        QVERIFY(script.open(QIODevice::WriteOnly));
        script.write(kHosts);
        script.close();
        script.setPermissions(QFile::ReadOwner | QFile::WriteOwner | QFile::ExeOwner);
        qputenv("SHARDSCOPE_SSH", script.fileName().toUtf8());
    }
    void init() {
        qunsetenv("TMPDIR");
        place_ = std::make_unique<QTemporaryDir>();
        temporary_ = std::make_unique<QTemporaryDir>();
        qputenv("TMPDIR", temporary_->path().toUtf8());
        qputenv("HIDDEN", place_->path().toUtf8());
    }

    void saysWhatOneProcessSays_data() {
        QTest::addColumn<QString>("path");
        QTest::addColumn<QStringList>("what");
        const QStringList values{"validate", "--level", "values"};
        QTest::newRow("values") << source_ << values;
        QTest::newRow("values, listed in part") << source_ << values + QStringList{"--examples", "3"};
        QTest::newRow("strict") << source_ << values + QStringList{"--fail-on", "warning"};
        QTest::newRow("digest") << source_ << QStringList{"digest"};
        QTest::newRow("sha256") << source_ << QStringList{"digest", "--algorithm", "sha256"};
        QTest::newRow("crc32 of some") << source_ << QStringList{"digest", "--algorithm", "crc32", "*.1*"};
        QTest::newRow("digest of none") << source_ << QStringList{"digest", "no.such"};
        QTest::newRow("absent") << source_ + "x" << QStringList{"digest"};
        for (const GenuineCase& c : genuineSamples())
            QTest::newRow(("values of " + c.id()).c_str()) << QString::fromStdString(c.openPath()) << values;
    }
    void saysWhatOneProcessSays() {
        QFETCH(QString, path);
        QFETCH(QStringList, what);
        Words asked;
        for (const QString& word : what)
            asked.push_back(word.toStdString());
        const Measured one = runMeasured(words(asked, {}, path));
        const Measured several = runMeasured(words(asked, {"--on", "local:2"}, path));
        if (one.json().value("schema", "") == "shardscope.run/1") {
            QCOMPARE(several.exitCode, 2);
            return;
        }
        QCOMPARE(several.out, one.out);
        QCOMPARE(several.exitCode, one.exitCode);
        QVERIFY(nothingTemporaryIsLeft());
    }

    void workersAreShown() {
        const Measured done =
            runMeasured(words(kValues, withRecords({"--on", "local:3", "--progress", "json"})));
        QVERIFY2(done.exitCode <= 1, done.describe().c_str());
        const size_t at = done.err.rfind("{\"event\":\"workers\"");
        QVERIFY2(at != std::string::npos, done.describe().c_str());
        const json last = json::parse(done.err.substr(at, done.err.find('\n', at) - at));
        QCOMPARE(last["workers"].size(), size_t{3});
        uint64_t bytes = 0;
        for (const json& worker : last["workers"])
            bytes += worker["bytes"].get<uint64_t>();
        QCOMPARE(bytes, uint64_t{kTensors} * 1021 * 1031 * 4);
        QVERIFY(!QFile::exists(records()));
    }

    void aKilledWorkerCostsItsPart_data() {
        QTest::addColumn<int>("signal");
        QTest::newRow("SIGKILL") << SIGKILL;
        QTest::newRow("SIGSTOP") << SIGSTOP;
    }
    void aKilledWorkerCostsItsPart() {
        QFETCH(int, signal);
        for (const Words& what : {kValues, Words{"digest"}}) {
            const Measured one = runMeasured(words(what, {}));
            std::vector<pid_t> workers;
            const Measured done =
                runMeasured(words(what, withRecords({"--on", "local:3"})), onTheWay(signal, 1, &workers));
            QVERIFY2(done.out == one.out && done.exitCode == one.exitCode, done.describe().c_str());
            QCOMPARE(workers.size(), size_t{3});
            for (const pid_t worker : workers)
                QTRY_VERIFY(gone(worker));
            QVERIFY(!QFile::exists(records()));
        }
    }

    // And the same words continue.
    void withoutWorkersItEnds() {
        const Measured one = runMeasured(words(kValues, {}));
        const Words again = words(kValues, withRecords({"--on", "local:2"}));
        const Measured lost = runMeasured(again, onTheWay(SIGKILL, 2));
        QCOMPARE(lost.exitCode, 4);
        QVERIFY2(lost.out.find("all workers are gone") != std::string::npos, lost.describe().c_str());
        QVERIFY2(lost.out.find(records().toStdString()) != std::string::npos, lost.describe().c_str());
        QVERIFY(QFile::exists(records() + "/parts"));
        const Measured done = runMeasured(again);
        QVERIFY2(done.out == one.out && done.exitCode == one.exitCode, done.describe().c_str());
        QVERIFY(!QFile::exists(records()));
    }

    void continuedHoweverTheyWereStarted() {
        const Measured one = runMeasured(words({"digest"}, {}));
        // Parts by hand, then workers.
        QCOMPARE(runMeasured(words({"digest"}, withRecords({"--part", "3/9"}))).exitCode, 0);
        QCOMPARE(runMeasured(words({"digest"}, withRecords({"--on", "local:2"}))).out, one.out);
        QVERIFY(!QFile::exists(records()));
        // Workers, whose coordinator is killed, then parts by hand.
        const Measured killed =
            runMeasured(words({"digest"}, withRecords({"--on", "local:2"})), onTheWay(SIGKILL, -1));
        QCOMPARE(killed.signal, SIGKILL);
        QFile marker(records() + "/parts");
        QVERIFY(marker.open(QIODevice::ReadOnly));
        const auto count = json::parse(marker.readAll().toStdString())["parts"].get<int>();
        QVERIFY(count >= 4);
        Measured last;
        for (int part = 0; part < count && last.exitCode <= 0; ++part) {
            const std::string which = std::to_string(part) + "/" + std::to_string(count);
            last = runMeasured(words({"digest"}, withRecords({"--part", which})));
            QVERIFY2(last.exitCode == 0, last.describe().c_str());
        }
        QCOMPARE(runMeasured(words({"digest"}, withRecords({"--finish"}))).out, one.out);
        QVERIFY(!QFile::exists(records()));
    }

    void interrupted() {
        std::vector<pid_t> workers;
        const Measured named =
            runMeasured(words(kValues, withRecords({"--on", "local:2"})), onTheWay(SIGINT, -1));
        QCOMPARE(named.exitCode, 130);
        QVERIFY(QFile::exists(records()));
        // Without a place of their own the records end with it.
        MeasuredOptions options;
        options.watch = [&](pid_t child, double) {
            workers = childrenOf(child);
            if (workers.size() < 2 || nothingTemporaryIsLeft()) return true;
            ::kill(child, SIGINT);
            return false;
        };
        const Measured unnamed = runMeasured(words(kValues, {"--on", "local:2"}), options);
        QCOMPARE(unnamed.exitCode, 130);
        QVERIFY(nothingTemporaryIsLeft());
        for (const pid_t worker : workers)
            QTRY_VERIFY(gone(worker));
    }

    void onOtherHosts() {
        const Measured one = runMeasured(words(kValues, {}));
        const Words on{"--on", "local:1+ssh:near,near", "--remote-program", SHARDSCOPE_PROGRAM};
        const Measured done = runMeasured(words(kValues, withRecords(on)));
        QVERIFY2(done.out == one.out && done.exitCode == one.exitCode, done.describe().c_str());
        QVERIFY(!QFile::exists(records()));
        const Measured unplaced = runMeasured(words(kValues, on));
        QCOMPARE(unplaced.exitCode, 2);
        QVERIFY2(unplaced.out.find("--records DIR") != std::string::npos, unplaced.describe().c_str());
        // One that sees another directory by that name says so before anything is read.
        const Words far{"--on", "local:1+ssh:far", "--remote-program", SHARDSCOPE_PROGRAM};
        const Measured apart = runMeasured(words(kValues, withRecords(far)));
        QCOMPARE(apart.exitCode, 4);
        QVERIFY2(apart.out.find("far cannot take part: the coordinator's records are not seen from here") !=
                     std::string::npos,
                 apart.describe().c_str());
        QVERIFY(!begun());
    }

    void namesThatAreNoText() {
        const QString place = place_->path();
        const std::string source = place.toStdString() + "/s\xff.safetensors";
        QVERIFY(writeRandomSource(source, 2, 10, 10, 3));
        const std::string records = place.toStdString() + "/r\xfe";
        const Measured one = runMeasured({"digest", source, "--json"});
        const Measured done =
            runMeasured({"digest", source, "--json", "--on", "local:2", "--records", records});
        QVERIFY2(done.exitCode == 0 && done.out == one.out, done.describe().c_str());
    }

    void anotherReadingIsRefused() {
        QCOMPARE(runMeasured(words({"digest"}, withRecords({"--part", "0/2"}))).exitCode, 0);
        const Measured other = runMeasured(words(kValues, withRecords({"--on", "local:2"})));
        QCOMPARE(other.exitCode, 3);
        QVERIFY2(other.out.find("the other parts") != std::string::npos, other.describe().c_str());
    }

    void wrongWords_data() {
        QTest::addColumn<QStringList>("words");
        QTest::addColumn<QString>("says");
        const auto add = [](const char* name, const QStringList& words, const char* says) {
            QTest::newRow(name) << words << says;
        };
        add("ranks", {"--level", "values", "--on", "ranks:2"}, "ranks are for conversions");
        add("those of a launcher", {"--level", "values", "--on", "ranks"}, "--part auto");
        add("nowhere", {"--level", "values", "--on", "there"}, "'there' is not a place to work");
        add("Slurm without records", {"--level", "values", "--on", "slurm:nodes=2"}, "--records DIR");
        add("a part beside it", {"--level", "values", "--on", "local:2", "--part", "0/2"},
            "a scheduler starts");
        add("another level", {"--on", "local:2"}, "--level values");
        add("records alone", {"--level", "values", "--records", "x"}, "--on");
    }
    void wrongWords() {
        QFETCH(QStringList, words);
        QFETCH(QString, says);
        Words what{"validate"};
        for (const QString& word : words)
            what.push_back(word.toStdString());
        const Measured refused = runMeasured(this->words(what, {}));
        QCOMPARE(refused.exitCode, 2);
        QVERIFY2(QString::fromStdString(refused.out).contains(says), refused.describe().c_str());
        QVERIFY(nothingTemporaryIsLeft());
    }

    void recordsAreNotInTheCheckpoint() {
        const Measured inside = runMeasured({"digest", sources_.path().toStdString(), "--on", "local:2",
                                             "--records", sources_.filePath("records").toStdString()});
        QCOMPARE(inside.exitCode, 2);
        QVERIFY(!QFile::exists(sources_.filePath("records")));
    }
};

QTEST_GUILESS_MAIN(ReadingCliTest)
#include "reading_cli_test.moc"
