// A conversion in parts into a bucket: each part on a machine of its own, that is, with a directory of its
// own for what it has not sent.
#include <QtTest>
#include <filesystem>

#include <unistd.h>

#include "core/places/bucket_jobs.h"
#include "engine/engine.h"
#include "support/read_checks.h"

using namespace shardscope;
using namespace shardscope::test;

namespace {

const std::string kThere = "s3://b1/run/out", kSingle = "s3://b1/run/m.safetensors";

struct Ran {
    Result<ConvertReport> report;
    std::optional<PartReport> part;
};

bool isShared(const std::string& key) {
    return key.starts_with("run/.out.shardscope-partial/");
}

}  // namespace

class BucketPartsTest : public QObject {
    Q_OBJECT

    std::unique_ptr<QTemporaryDir> temporary_;
    std::unique_ptr<FakeBucket> bucket_;

    std::string here(const std::string& name) const {
        return (temporary_->path() + "/").toStdString() + name;
    }

    // On a machine of this name.
    Ran run(const ConversionRequest& request, const Parts& parts, const std::string& machine) const {
        std::filesystem::create_directory(here(machine));
        qputenv("TMPDIR", QByteArray::fromStdString(here(machine)));
        Progress progress;
        auto conversion = Conversion::prepare(request, Execution(parts), {});
        if (!conversion.ok()) return {conversion.error(), {}};
        auto report = (*conversion)->run(&progress);
        return {std::move(report), (*conversion)->part()};
    }
    Ran part(const ConversionRequest& request, uint32_t index, uint32_t count, bool finish = false) const {
        Parts parts;
        parts.version = "1";
        parts.part = PartSpec{index, count, "1"};
        parts.finish = finish;
        return run(request, parts, "machine-" + std::to_string(index));
    }
    Ran finish(const ConversionRequest& request) const {
        Parts parts;
        parts.version = "1";
        parts.finish = true;
        return run(request, parts, "last");
    }

    // Files that are left on all machines.
    size_t leftHere() const {
        size_t files = 0;
        for (const auto& entry : std::filesystem::recursive_directory_iterator(here("")))
            files += entry.is_regular_file() &&
                     entry.path().string().find("shardscope-uploads") != std::string::npos;
        return files;
    }

    // Whether the bucket holds what a conversion in as many parts writes to a disk, byte for byte, and
    // nothing else.
    QString difference(ConversionRequest request, uint32_t count) const {
        const std::string expectedHere = here("expected"), there = request.destination;
        std::filesystem::remove_all(expectedHere);
        std::filesystem::create_directories(expectedHere);
        request.destination = expectedHere + there.substr(there.rfind('/'));
        for (uint32_t p = 0; p < count; ++p)
            if (const Ran ran = part(request, p, count, true); !ran.report.ok())
                return QString::fromStdString(describe(ran.report.error()));
        std::set<std::string> expected;
        for (const auto& entry : std::filesystem::recursive_directory_iterator(expectedHere)) {
            if (!entry.is_regular_file()) continue;
            const std::string key = "run/" + std::filesystem::relative(entry.path(), expectedHere).string();
            expected.insert(key);
            const std::lock_guard lock(bucket_->mutex);
            const auto object = bucket_->objects.find(key);
            if (object == bucket_->objects.end()) return QString::fromStdString("there is no " + key);
            QFile file(QString::fromStdString(entry.path().string()));
            if (!file.open(QIODevice::ReadOnly) ||
                file.readAll() != QByteArray::fromStdString(object->second.bytes))
                return QString::fromStdString("other bytes in " + key);
        }
        for (const std::string& key : keys(*bucket_))
            if (!expected.contains(key)) return QString::fromStdString("left: " + key);
        if (!bucket_->uploads.empty()) return "uploads are left";
        return leftHere() ? "files are left here" : "";
    }

    ConversionRequest large(const std::string& to) const {
        const std::string source = here("large.safetensors");
        if (!std::filesystem::exists(source)) writeLarge(source);
        return requestOf(source, to == "single" ? kSingle : kThere, to == "single" ? "safetensors" : to);
    }

  private slots:
    void init() {
        qunsetenv("TMPDIR");
        temporary_ = std::make_unique<QTemporaryDir>();
        bucket_ = std::make_unique<FakeBucket>("b1");
        bucket_->use();
    }

    void sameAsOnADisk_data() {
        QTest::addColumn<QString>("to");
        QTest::addColumn<int>("parts");
        QTest::addColumn<int>("columns");  // that the tensors are cut in
        QTest::addColumn<bool>("checks");  // the store, whether parts have their checksums
        for (const char* to : {"dcp", "safetensors", "paddle", "torch-ranks", "single"})
            for (const int parts : {1, 3})
                QTest::addRow("%s, %d parts", to, parts) << to << parts << 1 << true;
        QTest::newRow("by columns") << "dcp" << 4 << 2 << true;
        QTest::newRow("more parts than tiles") << "dcp" << 50 << 1 << true;
        for (const char* to : {"safetensors", "single"})
            QTest::addRow("%s, without checksums", to) << to << 2 << 1 << false;
    }
    void sameAsOnADisk() {
        QFETCH(QString, to);
        QFETCH(int, parts);
        QFETCH(int, columns);
        QFETCH(bool, checks);
        bucket_->checksChecksums = checks;
        ConversionRequest request = large(to.toStdString());
        if (columns > 1) {
            request.mesh = "tp=" + std::to_string(columns);
            request.shard = {"*:tp=1"};
        }
        const auto count = static_cast<uint32_t>(parts);
        for (uint32_t p = count; p-- > 0;) {
            const Ran ran = part(request, p, count);
            QVERIFY2(ran.report.ok(), ran.report.ok() ? "" : describe(ran.report.error()).c_str());
            QCOMPARE(ran.part->open.size(), size_t{p});
            QVERIFY(!ran.part->wasDone);
            QVERIFY(!openCheckpoint(request.destination).ok());
        }
        const Ran last = finish(request);
        QVERIFY2(last.report.ok(), last.report.ok() ? "" : describe(last.report.error()).c_str());
        QVERIFY(last.report->verified);
        QCOMPARE(difference(request, count), QString());
    }

    // What fills parts of an upload goes there at once, and nothing of it passes the one that finishes. Of
    // the last file this needs a store that checks what it gets, as that one can be read back only once it
    // can be seen.
    void mostGoesWhereItBelongs_data() {
        QTest::addColumn<QString>("to");
        QTest::addColumn<bool>("checks");
        for (const char* to : {"dcp", "safetensors", "single"})
            for (const bool checks : {true, false})
                QTest::addRow("%s, %s", to, checks ? "checks" : "does not check") << to << checks;
    }
    void mostGoesWhereItBelongs() {
        QFETCH(QString, to);
        QFETCH(bool, checks);
        bucket_->checksChecksums = checks;
        const ConversionRequest request = large(to.toStdString());
        for (uint32_t p = 0; p < 2; ++p)
            QVERIFY(part(request, p, 2).report.ok());
        size_t whole = 0, pieces = 0;
        for (const Asked& asked : bucket_->server().asked()) {
            whole += sendsPart(asked) ? asked.body.size() : 0;
            pieces +=
                asked.path.find("shardscope-partial/data/") != std::string::npos ? asked.body.size() : 0;
        }
        // A file of 24 MB. Of its first 8 MiB nobody but the one that finishes has all, and the two parts
        // meet in the next ones.
        QVERIFY(whole + pieces >= 24'000'000);  // and what torch's files have around the tensors
        QVERIFY2(checks || to == "dcp" ? whole >= 7'000'000 : whole == 0, qPrintable(QString::number(whole)));
        bucket_->server().forget();
        QVERIFY(finish(request).report.ok());
        // It is completed on condition that nobody else has written it, and last.
        if (checks && to == "single") {
            std::vector<Asked> completes;
            for (const Asked& asked : bucket_->server().asked())
                if (asked.method == "POST" && !asked.argument("uploadId").empty()) completes.push_back(asked);
            QCOMPARE(completes.size(), size_t{1});
            QCOMPARE(completes[0].header("if-none-match"), std::string("*"));
        }
        QCOMPARE(difference(request, 2), QString());
    }

    // Each request fails in turn, and all after it; the part runs again there or on another machine.
    void everyRequestFails_data() {
        QTest::addColumn<bool>("elsewhere");
        QTest::addColumn<QString>("to");
        for (const char* to : {"dcp", "single"}) {
            QTest::addRow("%s, continued where it stopped", to) << false << to;
            QTest::addRow("%s, on another machine", to) << true << to;
        }
    }
    void everyRequestFails() {
        QFETCH(bool, elsewhere);
        QFETCH(QString, to);
        ConversionRequest request = large(to.toStdString());
        request.journalBytes = 1;
        const auto failing = [&](size_t from, std::atomic<size_t>& seen) {
            bucket_->before = [&seen, from](const Asked& asked) -> Answered {
                const bool writes = asked.method == "PUT" || asked.method == "POST";
                if (!writes || seen++ < from) return {0};
                return {403, {}, "<Error><Code>AccessDenied</Code></Error>"};
            };
        };
        const auto again = [&](const std::function<Ran()>& work, const std::function<void()>& between) {
            for (size_t from = 0; from < 100; ++from) {
                std::atomic<size_t> seen{0};
                failing(from, seen);
                const Ran ran = work();
                bucket_->before = {};
                if (ran.report.ok()) return from;
                // A single file can be seen once it is complete, just before it is read back.
                if (to != "single" && openCheckpoint(kThere).ok()) return size_t{0};
                between();
            }
            return size_t{0};
        };
        const auto move = [&](const std::string& machine) {
            if (elsewhere) std::filesystem::remove_all(here(machine));
        };
        for (uint32_t p = 0; p < 2; ++p)
            QVERIFY(again([&] { return part(request, p, 2); },
                          [&] { move("machine-" + std::to_string(p)); }) > 1);
        // The claim says who finishes, so that another machine is told; the same one goes on.
        QVERIFY(again([&] { return finish(request); }, [] {}) > 1);
        QCOMPARE(difference(request, 2), QString());
    }

    // A part that runs again finds that it is done, and sends nothing.
    void doneTwice() {
        const ConversionRequest request = large("dcp");
        QVERIFY(part(request, 1, 2).report.ok());
        bucket_->server().forget();
        const Ran again = part(request, 1, 2);
        QVERIFY2(again.report.ok(), again.report.ok() ? "" : describe(again.report.error()).c_str());
        QVERIFY(again.part->wasDone);
        QCOMPARE(again.part->open, std::vector<uint32_t>{0});
        QCOMPARE(again.part->bytes, again.part->bytesReused);
        for (const Asked& asked : bucket_->server().asked())
            QVERIFY2(!sendsPart(asked) && asked.path.find("/data/") == std::string::npos, asked.path.c_str());
        const Ran early = finish(request);
        QVERIFY(!early.report.ok());
        QVERIFY2(describe(early.report.error()).find("1 of 2 parts not done") != std::string::npos,
                 describe(early.report.error()).c_str());
        // The last one finishes by itself.
        const Ran last = part(request, 0, 2, true);
        QVERIFY2(last.report.ok(), last.report.ok() ? "" : describe(last.report.error()).c_str());
        QVERIFY(last.report->verified);
        std::filesystem::remove_all(here("last"));
        QCOMPARE(difference(request, 2), QString());
        QCOMPARE(part(request, 0, 2).report.error().code, ErrorCode::exists);
        QCOMPARE(finish(request).report.error().code, ErrorCode::notFound);
    }

    // A process may be ended while it removes what it has here, in whatever order that goes.
    void endedWhileItCleansUp_data() {
        QTest::addColumn<QStringList>("gone");
        QTest::addColumn<bool>("done");  // on another machine
        for (const bool done : {true, false}) {
            const char* where = done ? "done elsewhere" : "not done";
            QTest::addRow("token, %s", where) << QStringList{"token"} << done;
            QTest::addRow("record, %s", where) << QStringList{"token", "sent"} << done;
            QTest::addRow("marker, %s", where) << QStringList{"token", "parts"} << done;
            QTest::addRow("marker alone, %s", where) << QStringList{"parts"} << done;
            QTest::addRow("journal, %s", where) << QStringList{"token", "parts", "part-1.journal"} << done;
            QTest::addRow("all but the data, %s", where)
                << QStringList{"token", "sent", "parts", "part-1.journal", "lock"} << done;
        }
    }
    void endedWhileItCleansUp() {
        QFETCH(QStringList, gone);
        QFETCH(bool, done);
        ConversionRequest request = large("dcp");
        request.journalBytes = 1;
        bucket_->before = [](const Asked& asked) -> Answered {
            if (asked.method != "PUT" || !asked.path.ends_with("part-1.journal")) return {0};
            return {403, {}, "<Error><Code>AccessDenied</Code></Error>"};
        };
        QVERIFY(!part(request, 1, 2).report.ok());
        bucket_->before = {};
        std::vector<std::filesystem::path> remove;
        for (const auto& entry : std::filesystem::recursive_directory_iterator(here("machine-1")))
            if (gone.contains(QString::fromStdString(entry.path().filename().string())))
                remove.push_back(entry.path());
        QCOMPARE(qsizetype(remove.size()), gone.size());
        if (done) {
            std::filesystem::rename(here("machine-1"), here("kept"));
            QVERIFY(part(request, 1, 2).report.ok());
            std::filesystem::remove_all(here("machine-1"));
            std::filesystem::rename(here("kept"), here("machine-1"));
        }
        for (const auto& path : remove)
            std::filesystem::remove(path);
        const Ran again = part(request, 1, 2);
        QVERIFY2(again.report.ok(), again.report.ok() ? "" : describe(again.report.error()).c_str());
        QCOMPARE(again.part->wasDone, done);
        QVERIFY(part(request, 0, 2).report.ok());
        QVERIFY(finish(request).report.ok());
        QCOMPARE(difference(request, 2), QString());
    }

    void otherJobs() {
        const ConversionRequest request = large("dcp");
        QCOMPARE(finish(request).report.error().code, ErrorCode::notFound);
        QVERIFY(part(request, 0, 2).report.ok());
        const std::vector<std::string> before = keys(*bucket_);
        QVERIFY(std::ranges::all_of(before, isShared));
        QCOMPARE(part(request, 0, 3).report.error().code, ErrorCode::changed);
        ConversionRequest other = request;
        other.cast = {"t1=bfloat16"};
        QCOMPARE(part(other, 1, 2).report.error().code, ErrorCode::changed);
        QCOMPARE(finish(other).report.error().code, ErrorCode::changed);
        Progress progress;
        const auto alone = runConversion(request, Alone{}, &progress, {});
        QCOMPARE(alone.error().code, ErrorCode::exists);
        QVERIFY2(describe(alone.error()).find("in parts") != std::string::npos,
                 describe(alone.error()).c_str());
        QCOMPARE(keys(*bucket_), before);
        QVERIFY(part(request, 1, 2).report.ok());
        // While another process finishes.
        bucket_->put("run/.out.shardscope-partial/claim", "other");
        QCOMPARE(finish(request).report.error().code, ErrorCode::exists);
        bucket_->objects.erase("run/.out.shardscope-partial/claim");
        QVERIFY(finish(request).report.ok());
        QCOMPARE(difference(request, 2), QString());
    }

    // Without a verification nobody reads what is missing; the process that finishes sees it, and the part
    // can run again.
    void lostBeforeTheFinish_data() {
        QTest::addColumn<QString>("lost");  // what the key of an object contains, or of the upload
        QTest::addColumn<bool>("verify");
        for (const char* lost : {"/data/", "/uploads/", ".sent", "one part", "all parts"})
            for (const bool verify : {false, true})
                QTest::addRow("%s, %s", lost, verify ? "digest" : "none") << lost << verify;
    }
    void lostBeforeTheFinish() {
        QFETCH(QString, lost);
        QFETCH(bool, verify);
        ConversionRequest request = large("dcp");
        request.verify = verify ? Verify::digest : Verify::none;
        for (uint32_t p = 0; p < 2; ++p)
            QVERIFY(part(request, p, 2).report.ok());
        QCOMPARE(bucket_->uploads.size(), size_t{1});
        auto& sent = bucket_->uploads.begin()->second;  // and under 0 the mark
        if (lost.endsWith("part")) sent.erase(std::prev(sent.end()));
        if (lost.endsWith("parts")) sent.erase(std::next(sent.begin()), sent.end());
        for (const std::string& key : keys(*bucket_)) {
            if (!QString::fromStdString(key).contains(lost)) continue;
            bucket_->objects.erase(key);
            break;
        }
        // As the errors say, until nothing is missing: it may be of both parts.
        Ran last = finish(request);
        QVERIFY(!last.report.ok());
        for (int tries = 0; tries < 2 && !last.report.ok(); ++tries) {
            const Error& error = last.report.error();
            QVERIFY2(error.code == ErrorCode::damaged, describe(error).c_str());
            QVERIFY(!openCheckpoint(kThere).ok());
            const size_t at = error.hint.find("run/.out.shardscope-partial/part-");
            QVERIFY2(at != std::string::npos, error.hint.c_str());
            const std::string journal = error.hint.substr(at, error.hint.find(' ', at) - at);
            QVERIFY2(bucket_->objects.erase(journal) == 1, journal.c_str());
            const Ran again = part(request, journal.ends_with("0.journal") ? 0 : 1, 2);
            QVERIFY2(again.report.ok(), again.report.ok() ? "" : describe(again.report.error()).c_str());
            last = finish(request);
        }
        QVERIFY2(last.report.ok(), last.report.ok() ? "" : describe(last.report.error()).c_str());
        if (lost == "/uploads/")
            bucket_->uploads.clear();  // one that nobody knows any more; cleanup finds it
        QCOMPARE(difference(request, 2), QString());
    }

    // A store that overwrites what is to be new cannot tell who was first.
    void storesThatKnowLess() {
        bucket_->knowsConditions = false;
        QCOMPARE(part(large("dcp"), 0, 2).report.error().code, ErrorCode::unsupported);
        QVERIFY(keys(*bucket_).empty());
    }

    // Names and numbers in the bucket are those of anybody who may write there.
    void hostileObjects() {
        const ConversionRequest request = large("dcp");
        for (uint32_t p = 0; p < 2; ++p)
            QVERIFY(part(request, p, 2).report.ok());
        const std::string data = "run/.out.shardscope-partial/data/";
        for (const std::string name : {"../../../x/0-4", "nofile/0-4", "__0_0.distcp/0-99999999999999",
                                       "__0_0.distcp/4-0", "__0_0.distcp/a", "__0_0.distcp/0-9"}) {
            bucket_->put(data + name, "1234");
            const Ran ran = finish(request);
            QVERIFY2(!ran.report.ok(), name.c_str());
            QVERIFY(!openCheckpoint(kThere).ok());
            const std::lock_guard lock(bucket_->mutex);
            bucket_->objects.erase(data + name);
        }
        // What is no journal of a part is none.
        const std::string beside = "run/.out.shardscope-partial/part-";
        for (const std::string name : {"0/sealed", "0/../lock", "7.journal/x", "sealed"})
            bucket_->put(beside + name, "1234");
        const Ran last = finish(request);
        QVERIFY2(last.report.ok(), last.report.ok() ? "" : describe(last.report.error()).c_str());
        QVERIFY(last.report->verified);
        QCOMPARE(difference(request, 2), QString());
    }
};

QTEST_GUILESS_MAIN(BucketPartsTest)
#include "bucket_parts_test.moc"
