// Conversions into a bucket: whole or not at all, continued, never over something else.
#include <QtTest>
#include <filesystem>

#include <fmt/format.h>
#include <unistd.h>

#include "base/rule.h"
#include "core/places/bucket_jobs.h"
#include "engine/engine.h"
#include "support/read_checks.h"

using namespace shardscope;
using namespace shardscope::test;

namespace {

const std::string kSample = SHARDSCOPE_TEST_DATA "/../../resources/sample/dcp-fsdp2-tp";

Result<ConvertReport> run(const ConversionRequest& request) {
    Progress progress;
    return runConversion(request, Alone{}, &progress, {});
}

Result<ConvertReport> convert(const std::string& destination, bool resume = false,
                              const std::string& to = "dcp") {
    ConversionRequest request = requestOf(kSample, destination, to);
    request.resume = resume;
    return run(request);
}

}  // namespace

class BucketsWrittenTest : public QObject {
    Q_OBJECT

    std::unique_ptr<QTemporaryDir> temporary_;

    size_t leftHere() const {
        size_t files = 0;
        for (const auto& entry :
             std::filesystem::recursive_directory_iterator(temporary_->path().toStdString()))
            files += entry.is_regular_file();
        return files;
    }

    // A file of several parts, into a bucket.
    ConversionRequest requestOfLarge() const {
        const std::string source = temporary_->filePath("large.safetensors").toStdString();
        writeLarge(source);
        return requestOf(source, "s3://b1/run/out");
    }

    ConversionRequest requestOfSingle() const {
        ConversionRequest request = requestOfLarge();
        request.destination = "s3://b1/run/m.safetensors";
        request.format = "safetensors";
        request.journalBytes = 1;
        return request;
    }

  private slots:
    void init() {
        qunsetenv("TMPDIR");  // the next one is not within the last one
        temporary_ = std::make_unique<QTemporaryDir>();
        qputenv("TMPDIR", temporary_->path().toLocal8Bit());
    }

    void wholeAndInOrder() {
        FakeBucket bucket("b1");
        bucket.use();
        const auto report = convert("s3://b1/run/out");
        QVERIFY2(report.ok(), report.ok() ? "" : describe(report.error()).c_str());
        QCOMPARE(keys(bucket).size(), size_t{5});
        std::string last;
        for (const Asked& asked : bucket.server().asked())
            if (asked.method == "PUT" && asked.path.starts_with("/b1/run/out/")) {
                last = asked.path;
                QCOMPARE(asked.header("if-none-match"), std::string(last.ends_with("/.metadata") ? "*" : ""));
            }
        QCOMPARE(last, std::string("/b1/run/out/.metadata"));
        QCOMPARE(leftHere(), size_t{0});
        const auto there = openCheckpoint("s3://b1/run/out"), here = openCheckpoint(kSample);
        QCOMPARE(digests(*there->reader), digests(*here->reader));
        const auto again = convert("s3://b1/run/out");
        QCOMPARE(again.error().code, ErrorCode::exists);
        QCOMPARE(keys(bucket).size(), size_t{5});
    }

    void singleFile() {
        FakeBucket bucket("b1");
        bucket.use();
        QVERIFY(convert("s3://b1/m.safetensors", false, "safetensors").ok());
        QCOMPARE(keys(bucket), (std::vector<std::string>{"m.safetensors"}));
    }

    // The server refuses the first write and all after it, then the second and all after it, and so on. What
    // is uploaded by then does not open as a checkpoint, and a resumed job completes it.
    void everyRequestFails() {
        size_t requests = 1;
        for (size_t failing = 0; failing < requests; ++failing) {
            init();
            FakeBucket bucket("b1");
            bucket.use();
            std::atomic<size_t> seen{0};
            std::atomic<bool> mended{false};
            bucket.before = [&](const Asked& asked) -> Answered {
                const bool writes = asked.method == "PUT" || asked.method == "POST";
                if (mended || !writes || seen++ < failing) return {0};
                return {403, {}, "<Error><Code>AccessDenied</Code></Error>"};
            };
            const auto first = convert("s3://b1/run/out");
            if (first.ok()) {
                QVERIFY(failing > 4);
                return;
            }
            requests = failing + 2;
            QVERIFY(!openCheckpoint("s3://b1/run/out").ok());
            mended = true;
            const size_t there = keys(bucket).size();
            bucket.server().forget();
            const auto second = convert("s3://b1/run/out", true);
            QVERIFY2(second.ok(), second.ok() ? "" : describe(second.error()).c_str());
            QCOMPARE(keys(bucket).size(), size_t{5});
            QVERIFY(there <= 6);
            const auto whole = openCheckpoint("s3://b1/run/out"), here = openCheckpoint(kSample);
            QCOMPARE(digests(*whole->reader), digests(*here->reader));
        }
    }

    // A large file is sent while it is written, and is read from the bucket.
    void streamed() {
        FakeBucket bucket("b1");
        bucket.use();
        ConversionRequest request = requestOfLarge();
        const std::string large = request.source;
        for (const Verify verify : {Verify::digest, Verify::checksums}) {
            request.verify = verify;
            const auto report = run(request);
            QVERIFY2(report.ok(), report.ok() ? "" : describe(report.error()).c_str());
            QVERIFY(report->verified);
            size_t read = 0;
            for (const Asked& asked : bucket.server().asked())
                read += asked.method == "GET" && asked.path.ends_with(".distcp");
            QCOMPARE(read > 1, verify == Verify::digest);
            QVERIFY(bucket.uploads.empty());
            const auto there = openCheckpoint("s3://b1/run/out"), here = openCheckpoint(large);
            QVERIFY(there.ok());
            QCOMPARE(digests(*there->reader), digests(*here->reader));
            bucket.objects.clear();
            bucket.server().forget();
        }
        request.destination = temporary_->filePath("here").toStdString();
        QCOMPARE(run(request).error().code, ErrorCode::usage);
        bucket.checksChecksums = false;
        request.destination = "s3://b1/run/out";
        QCOMPARE(run(request).error().code, ErrorCode::unsupported);
        QVERIFY(keys(bucket).empty());
    }

    // A single file is sent while it is written, too, and completed on condition that its key is new. Only
    // then can it be read back; if that cannot be done, a resumed job does it, and if it holds other bytes,
    // it goes.
    void streamedSingleFile() {
        FakeBucket bucket("b1");
        bucket.use();
        bucket.put("run/other.safetensors", "x");
        const ConversionRequest request = requestOfSingle();
        std::atomic<bool> refuses{true};
        std::atomic<int> damages{0};
        bucket.before = [&](const Asked& asked) -> Answered {
            if (asked.method == "POST" && !asked.argument("uploadId").empty() &&
                asked.header("if-none-match") != "*")
                return {400};
            if (asked.method != "GET" || asked.path != "/b1/run/m.safetensors") return {0};
            if (refuses) return {403, {}, "<Error><Code>AccessDenied</Code></Error>"};
            if (damages-- > 0) {
                const std::lock_guard lock(bucket.mutex);
                std::string& bytes = bucket.objects["run/m.safetensors"].bytes;
                bytes[bytes.size() / 2] ^= 1;
            }
            return {0};
        };
        QVERIFY(!run(request).ok());
        QCOMPARE(keys(bucket).size(), size_t{3});  // the claim, the file, and the other one
        QVERIFY(!run(request).ok());
        refuses = false;
        bucket.server().forget();
        ConversionRequest resumed = request;
        resumed.resume = true;
        const auto second = run(resumed);
        QVERIFY2(second.ok() && second->verified, second.ok() ? "" : describe(second.error()).c_str());
        QVERIFY(std::ranges::none_of(bucket.server().asked(), sendsPart));
        QCOMPARE(keys(bucket), (std::vector<std::string>{"run/m.safetensors", "run/other.safetensors"}));
        QCOMPARE(digests(*openCheckpoint(request.destination)->reader),
                 digests(*openCheckpoint(request.source)->reader));
        QCOMPARE(run(request).error().code, ErrorCode::exists);
        bucket.objects.erase("run/m.safetensors");

        damages = 1;
        QCOMPARE(run(request).error().code, ErrorCode::verificationFailed);
        QCOMPARE(keys(bucket), (std::vector<std::string>{"run/other.safetensors"}));
        QCOMPARE(leftHere(), size_t{1});
        bucket.checksChecksums = false;  // it is read before it is sent
        refuses = true;
        QVERIFY(!run(request).ok());
        bucket.before = {};
        QVERIFY(run(resumed).ok());
    }

    void streamedAndResumed_data() {
        QTest::addColumn<bool>("single");
        QTest::newRow("directory") << false;
        QTest::newRow("single file") << true;
    }
    // A resumed job sends no part again, whatever request failed.
    void streamedAndResumed() {
        QFETCH(bool, single);
        FakeBucket bucket("b1");
        bucket.use();
        ConversionRequest request = single ? requestOfSingle() : requestOfLarge();
        const std::string large = request.source;
        request.journalBytes = 1;
        bool whole = false;
        for (size_t failing = 0; !whole; ++failing) {
            std::atomic<size_t> seen{0};
            bucket.before = [&](const Asked& asked) -> Answered {
                const bool writes = asked.method == "PUT" || asked.method == "POST";
                if (!writes || seen++ < failing) return {0};
                return {403, {}, "<Error><Code>AccessDenied</Code></Error>"};
            };
            request.resume = false;
            bucket.server().forget();
            whole = run(request).ok();
            bucket.before = {};
            if (whole) break;
            QVERIFY(!openCheckpoint(request.destination).ok());
            size_t refused = 0, sent = 0;
            refused = seen - failing;
            request.resume = true;
            const auto second = run(request);
            QVERIFY2(second.ok(), second.ok() ? "" : describe(second.error()).c_str());
            for (const Asked& asked : bucket.server().asked())
                sent += sendsPart(asked);
            QVERIFY2(sent <= 3 + refused, fmt::format("{} at {}", sent, failing).c_str());
            const auto there = openCheckpoint(request.destination), here = openCheckpoint(large);
            QCOMPARE(digests(*there->reader), digests(*here->reader));
            bucket.objects.clear();
            QCOMPARE(leftHere(), size_t{1});
        }
        QVERIFY(whole);
        if (single) return;
        bucket.objects.clear();
        bucket.before = [&](const Asked& asked) -> Answered {
            if (!asked.path.ends_with(".metadata") || asked.method != "PUT") return {0};
            return {403, {}, "<Error><Code>AccessDenied</Code></Error>"};
        };
        QVERIFY(!run(request).ok());
        QCOMPARE(keys(bucket).size(), size_t{2});  // the data, and the claim
        bucket.before = {};
        request.weightsOnly = true;  // another plan finds the work of the first
        QVERIFY(!run(request).ok());
        std::filesystem::remove_all(
            temporary_->filePath(QString::fromStdString(fmt::format("shardscope-uploads-{}", getuid())))
                .toStdString());
    }

    // What an interrupted job has sent is gone when it goes on: it cannot, says so, and leaves nothing.
    void endedByOthers() {
        FakeBucket bucket("b1");
        bucket.use();
        ConversionRequest request = requestOfLarge();
        request.journalBytes = 1;
        std::atomic<int> seen{0};
        bucket.before = [&](const Asked& asked) -> Answered {
            if (!sendsPart(asked) || seen++ < 1) return {0};
            return {403, {}, "<Error><Code>AccessDenied</Code></Error>"};
        };
        QVERIFY(!run(request).ok());
        bucket.before = {};
        QCOMPARE(bucket.uploads.size(), size_t{1});
        bucket.uploads.clear();
        request.resume = true;
        const auto second = run(request);
        QVERIFY(!second.ok());
        QCOMPARE(second.error().code, ErrorCode::impossible);
        QVERIFY2(second.error().message.find("somebody has ended it") != std::string::npos,
                 describe(second.error()).c_str());
        QVERIFY(keys(bucket).empty());
        request.resume = false;
        const auto third = run(request);
        QVERIFY2(third.ok(), third.ok() ? "" : describe(third.error()).c_str());
    }

    // The answer to the last write is lost, and asked for again.
    void lostAnswer() {
        FakeBucket bucket("b1");
        bucket.use();
        std::atomic<bool> lost{false};
        bucket.before = [&](const Asked& asked) -> Answered {
            if (asked.method != "PUT" || !asked.path.ends_with("/.metadata") || lost.exchange(true))
                return {0};
            {
                const std::lock_guard lock(bucket.mutex);
                bucket.objects["run/out/.metadata"] = {asked.body, "\"m\"",
                                                       asked.header("x-amz-meta-shardscope")};
            }
            Answered answer{200};
            answer.end = Answered::End::reset;
            return answer;
        };
        const auto report = convert("s3://b1/run/out");
        QVERIFY2(report.ok(), report.ok() ? "" : describe(report.error()).c_str());
    }

    // No listing shows what was begun and never completed; a validation does.
    void unfinishedUploads() {
        FakeBucket bucket("b1");
        bucket.use();
        bucket.putTree(kSample, "step");
        bucket.before = [](const Asked& asked) -> Answered {
            if (asked.method != "GET") return {0};
            if (asked.query.starts_with("prefix=step%2F&uploads="))
                return {200,
                        {},
                        "<ListMultipartUploadsResult><Upload><Key>step/__9_0.distcp</Key><UploadId>u 1"
                        "</UploadId><Initiated>2026-01-02T03:04:05.000Z</Initiated></Upload>"
                        "</ListMultipartUploadsResult>"};
            if (asked.argument("uploadId") == "u 1")
                return {200, {}, "<ListPartsResult><Part><Size>8388608</Size></Part></ListPartsResult>"};
            return {0};
        };
        const auto opened = openCheckpoint("s3://b1/step");
        ThreadPool pool(1);
        MemoryBudget memory(kStandardMemory);
        ValidateOptions options;
        options.level = ValidateLevel::files;
        const auto report = validateCheckpoint(*opened, options, {&pool, &memory, nullptr, {}, {}});
        QVERIFY(report.ok());
        const auto found = std::ranges::find(report->findings, rule::fileUpload, &Finding::rule);
        QVERIFY(found != report->findings.end());
        QCOMPARE(found->severity, Severity::warning);
        QVERIFY2(found->message.find("8.00 MiB") != std::string::npos, found->message.c_str());
        QCOMPARE(found->cause, std::string("__9_0.distcp"));
    }

    void othersWork() {
        FakeBucket bucket("b1");
        bucket.use();
        bucket.put("run/.out.shardscope-partial/claim", "another");
        const auto claimed = convert("s3://b1/run/out");
        QCOMPARE(claimed.error().code, ErrorCode::exists);
        QVERIFY(QString::fromStdString(claimed.error().hint).contains("run/.out.shardscope-partial/claim"));
        QCOMPARE(keys(bucket).size(), size_t{1});
    }

    void storesWithoutConditions_data() {
        QTest::addColumn<bool>("refuses");
        QTest::newRow("ignores them") << false;
        QTest::newRow("refuses them") << true;
    }

    // Such a store is named, and written to only when asked; then with all that still can be done.
    void storesWithoutConditions() {
        QFETCH(bool, refuses);
        FakeBucket bucket("b1");
        bucket.use();
        bucket.knowsConditions = false;
        std::function<void(const Asked&)> meanwhile;
        bucket.before = [&](const Asked& asked) -> Answered {
            if (meanwhile) meanwhile(asked);
            if (!refuses || asked.header("if-none-match").empty()) return {0};
            return {501, {}, "<Error><Code>NotImplemented</Code></Error>"};
        };
        ConversionRequest directory = requestOfLarge(), single = requestOfSingle();
        for (ConversionRequest* request : {&directory, &single}) {
            const auto refused = run(*request);
            QCOMPARE(refused.error().code, ErrorCode::unsupported);
            QVERIFY(QString::fromStdString(refused.error().hint).contains("unguarded"));
            QVERIFY(keys(bucket).empty());

            request->unguarded = true;
            // Another job that has begun before.
            const std::string staging = stagingPath(request->destination).substr(bucket.url().size() + 1);
            bucket.put(staging + "/claim", "another");
            QCOMPARE(run(*request).error().code, ErrorCode::exists);
            QCOMPARE(keys(bucket), (std::vector<std::string>{staging + "/claim"}));
            bucket.objects.clear();

            // One that begins meanwhile, and does not look: seen before the last object is written.
            std::string own;
            meanwhile = [&](const Asked& asked) {
                if (!sendsPart(asked)) return;
                const std::lock_guard lock(bucket.mutex);
                std::string& mark = bucket.objects[staging + "/claim"].mark;
                if (own.empty()) own = mark;
                mark = "another";
            };
            QCOMPARE(run(*request).error().code, ErrorCode::exists);
            QVERIFY(!openCheckpoint(request->destination).ok());
            meanwhile = nullptr;
            bucket.objects[staging + "/claim"].mark = own;
            request->resume = true;

            bucket.server().forget();
            auto conversion = Conversion::prepare(*request, Alone{}, {});
            QVERIFY(conversion.ok());
            QVERIFY(std::ranges::any_of((*conversion)->prepared().plan.notes, [&](const PlanLeftOut& note) {
                return note.name == request->destination;
            }));
            Progress progress;
            const auto report = (*conversion)->run(&progress);
            QVERIFY2(report.ok() && report->verified, report.ok() ? "" : describe(report.error()).c_str());
            QVERIFY(report->unguarded);
            std::string last;
            for (const Asked& asked : bucket.server().asked())
                if (asked.method == "PUT" || asked.method == "POST") last = asked.path;
            QVERIFY(last.ends_with(request == &single ? "/m.safetensors" : "/.metadata"));
            QCOMPARE(digests(*openCheckpoint(request->destination)->reader),
                     digests(*openCheckpoint(request->source)->reader));
            QVERIFY(!bucket.objects.contains(staging + "/claim"));
            QCOMPARE(run(*request).error().code, ErrorCode::exists);
            bucket.objects.clear();
        }
    }

    void unguardedWhereItIsNot() {
        FakeBucket bucket("b1");
        bucket.use();
        ConversionRequest request = requestOf(kSample, "s3://b1/run/out");
        request.unguarded = true;
        const auto parts = runConversion(request, Parts{PartSpec{0, 2}}, nullptr, {});
        QCOMPARE(parts.error().code, ErrorCode::usage);
        QVERIFY(keys(bucket).empty());
        auto conversion = Conversion::prepare(request, Alone{}, {});
        Progress progress;
        const auto report = (*conversion)->run(&progress);
        QVERIFY(report.ok() && !report->unguarded);
        size_t conditions = 0;
        for (const Asked& asked : bucket.server().asked())
            conditions += asked.header("if-none-match") == "*";
        QVERIFY(conditions >= 2);  // of claim and last object
        request.destination = temporary_->filePath("here").toStdString();
        QCOMPARE(run(request).error().code, ErrorCode::usage);
    }

    void storesThatKnowLess() {
        FakeBucket bucket("b1");
        bucket.use();
        bucket.checksChecksums = false;  // what is written is read back
        QVERIFY(convert("s3://b1/run/b").ok());
        bucket.before = [&](const Asked& asked) -> Answered {
            if (asked.method != "PUT" || !asked.path.starts_with("/b1/run/c/__")) return {0};
            const std::lock_guard lock(bucket.mutex);
            bucket.objects[asked.path.substr(4)] = {std::string(asked.body.size(), 'z'), "\"z\"",
                                                    asked.header("x-amz-meta-shardscope")};
            return {200};
        };
        const auto damaged = convert("s3://b1/run/c");
        QCOMPARE(damaged.error().code, ErrorCode::verificationFailed);
        QVERIFY(!openCheckpoint("s3://b1/run/c").ok());
    }

    void refused() {
        FakeBucket bucket("b1");
        bucket.use();
        for (const char* place : {"hf://org/m/x", "https://host/x", "s3://b1"}) {
            const auto report = convert(place);
            QVERIFY2(!report.ok(), place);
            QVERIFY2(report.error().code == ErrorCode::impossible || report.error().code == ErrorCode::usage,
                     place);
        }
        QVERIFY(keys(bucket).empty());
        QCOMPARE(leftHere(), size_t{0});
    }
};

QTEST_GUILESS_MAIN(BucketsWrittenTest)
#include "buckets_written_test.moc"
