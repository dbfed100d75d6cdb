// Reads of a file that share requests, because they were planned.
#include <QtTest>
#include <fstream>
#include <numeric>
#include <random>
#include <thread>

#include "base/stop.h"
#include "core/places/bucket_jobs.h"
#include "engine/engine.h"
#include "execute/executor.h"
#include "places/places.h"
#include "storage/planned_reads.h"

using namespace shardscope;
using namespace shardscope::test;

namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

using File = std::shared_ptr<const ReadFile>;

std::string someBytes(size_t size) {
    std::minstd_rand random(7);
    std::string bytes(size, '\0');
    for (char& c : bytes)
        c = static_cast<char>(random());
    return bytes;
}

std::shared_ptr<void> planned(const File& file, std::vector<PlannedRange> ranges, uint64_t memory) {
    const auto* reads = dynamic_cast<const PlannedReads*>(file.get());
    return reads ? reads->plan(std::move(ranges), memory) : nullptr;
}

// The file, in ranges of this size.
std::vector<PlannedRange> cut(uint64_t size, uint64_t piece) {
    std::vector<PlannedRange> ranges;
    for (uint64_t at = 0; at < size; at += piece)
        ranges.push_back({at, std::min(size, at + piece), std::min(size, at + piece) - at});
    return ranges;
}

}  // namespace

class JoinedReadsTest : public QObject {
    Q_OBJECT

    std::unique_ptr<FakeBucket> bucket_;
    std::string bytes_;

    File open(const std::string& name = "f") const {
        const auto place = placeOf("s3://b1/d");
        if (!place.ok()) return nullptr;
        const auto directory = place->files->openDirectory(place->path);
        const auto file = directory.ok() ? (*directory)->openFile(name) : Result<File>(directory.error());
        return file.ok() ? *file : nullptr;
    }
    Status read(const File& file, const PlannedRange& range) const {
        std::string found(range.end - range.begin, '\0');
        SHARDSCOPE_TRY(file->readBulk(range.begin, std::as_writable_bytes(std::span(found))));
        if (found != bytes_.substr(range.begin, found.size()))
            return makeError(ErrorCode::damaged, "other bytes").at(range.begin);
        return {};
    }
    // Ranges of data that were asked for, [begin, end), in order; of all objects.
    std::vector<std::pair<uint64_t, uint64_t>> asked() const {
        std::vector<std::pair<uint64_t, uint64_t>> ranges;
        for (const Asked& one : bucket_->server().asked()) {
            const std::string range = one.header("range");
            if (range.empty()) continue;
            ranges.emplace_back(std::stoull(range.substr(6)),
                                std::stoull(range.substr(range.find('-') + 1)) + 1);
        }
        std::ranges::sort(ranges);
        return ranges;
    }
    static uint64_t sum(const std::vector<std::pair<uint64_t, uint64_t>>& ranges) {
        uint64_t bytes = 0;
        for (const auto& [begin, end] : ranges)
            bytes += end - begin;
        return bytes;
    }

  private slots:
    void init() {
        bucket_ = std::make_unique<FakeBucket>("b1");
        bucket_->use();
        bytes_ = someBytes(20 * kMiB + 123);
        bucket_->put("d/f", bytes_);
    }

    void eachByteOnce_data() {
        QTest::addColumn<qulonglong>("piece");
        QTest::addColumn<int>("threads");
        for (const int threads : {1, 8}) {
            QTest::addRow("small, %d threads", threads) << qulonglong(100'000) << threads;
            QTest::addRow("uneven, %d threads", threads) << qulonglong(3 * kMiB + 5) << threads;
            QTest::addRow("like requests, %d threads", threads) << qulonglong(8 * kMiB) << threads;
            QTest::addRow("larger, %d threads", threads) << qulonglong(13 * kMiB) << threads;
            QTest::addRow("whole, %d threads", threads) << qulonglong(100 * kMiB) << threads;
        }
    }
    void eachByteOnce() {
        QFETCH(qulonglong, piece);
        QFETCH(int, threads);
        const File file = open();
        QVERIFY(file);
        std::vector<PlannedRange> ranges = cut(bytes_.size(), piece);
        const auto plan = planned(file, ranges, 64 * kMiB);
        QVERIFY(plan);
        std::ranges::shuffle(ranges, std::minstd_rand(3));
        std::atomic<size_t> next{0}, failed{0};
        {
            std::vector<std::jthread> readers;
            for (int i = 0; i < threads; ++i)
                readers.emplace_back([&] {
                    for (size_t at; (at = next++) < ranges.size();)
                        failed += !read(file, ranges[at]).ok();
                });
        }
        QCOMPARE(failed.load(), size_t{0});
        const auto requests = asked();
        QCOMPARE(requests.size(), size_t{3});
        QCOMPARE(sum(requests), uint64_t{bytes_.size()});
    }

    // What does not find memory asks for its own bytes.
    void littleMemory() {
        for (const char* name : {"d/g", "d/h", "d/i"})
            bucket_->put(name, bytes_);
        std::vector<std::pair<File, PlannedRange>> reads;
        std::vector<std::shared_ptr<void>> plans;
        const auto place = placeOf("s3://b1/d");
        QVERIFY(place.ok());
        const auto directory = place->files->openDirectory(place->path);
        QVERIFY(directory.ok());
        for (const char* name : {"f", "g", "h", "i"}) {
            const auto file = (*directory)->openFile(name);
            QVERIFY(file.ok());
            for (const PlannedRange& range : cut(bytes_.size(), 3 * kMiB))
                reads.emplace_back(*file, range);
            plans.push_back(planned(*file, cut(bytes_.size(), 3 * kMiB), 16 * kMiB));
            QVERIFY(plans.back());
        }
        std::ranges::shuffle(reads, std::minstd_rand(5));
        for (const auto& [file, range] : reads) {
            const Status status = read(file, range);
            QVERIFY2(status.ok(), status.ok() ? "" : describe(status.error()).c_str());
        }
        // Nothing but what was brought for reads that came too late is asked for again.
        QVERIFY(sum(asked()) <= 4 * bytes_.size() + 4 * 8 * kMiB);
    }

    // Where little of a block is wanted, and outside of a plan, a read is a request of its own.
    void nothingElse() {
        const File file = open();
        {
            const auto plan = planned(file, {{0, kMiB, kMiB}, {7 * kMiB, 9 * kMiB, 2 * kMiB}}, 64 * kMiB);
            QVERIFY(read(file, {0, kMiB, kMiB}).ok());
            QVERIFY(read(file, {10 * kMiB, 11 * kMiB, kMiB}).ok());
        }
        QCOMPARE(sum(asked()), 2 * kMiB);
        QVERIFY(read(file, {7 * kMiB, 9 * kMiB, 2 * kMiB}).ok());
        QCOMPARE(sum(asked()), 4 * kMiB);
    }

    void failures() {
        const File file = open();
        const std::vector<PlannedRange> ranges = cut(bytes_.size(), 2 * kMiB);
        const auto plan = planned(file, ranges, 64 * kMiB);
        std::atomic<int> busy{2};
        bucket_->before = [&](const Asked& one) -> Answered {
            if (one.header("range").empty() || busy-- <= 0) return {0};
            return {503, {}, "<Error><Code>SlowDown</Code></Error>"};
        };
        QVERIFY(read(file, ranges[0]).ok());  // after some tries
        bucket_->before = [&](const Asked& one) -> Answered {
            if (!one.header("range").starts_with("bytes=8388608-")) return {0};
            return {403, {}, "<Error><Code>AccessDenied</Code></Error>"};
        };
        QVERIFY(read(file, ranges[1]).ok());
        QCOMPARE(read(file, ranges[4]).error().code, ErrorCode::permission);
        bucket_->before = {};
        for (const size_t i : {4, 5, 6, 7, 8})
            QVERIFY(read(file, ranges[i]).ok());
        // Bytes of one version only.
        bucket_->put("d/f", someBytes(20 * kMiB + 122));
        QVERIFY(read(file, ranges[9]).ok());  // its block was here
        QCOMPARE(read(file, {0, 9 * kMiB, 9 * kMiB}).error().code, ErrorCode::changed);
    }

    // Who waits for another's request can be stopped, and the other one goes on.
    void stopped() {
        const File file = open();
        const auto plan = planned(file, cut(bytes_.size(), 2 * kMiB), 64 * kMiB);
        std::atomic<bool> reached{false};
        bucket_->before = [&](const Asked& one) -> Answered {
            if (one.header("range").empty()) return {0};
            reached = true;
            return {.status = 200, .end = Answered::End::never};
        };
        StopSource first, second;
        const auto reading = [&](const StopSource& stop, Status& status, uint64_t at) {
            return std::jthread([&, at] {
                const StopScope scope(stop);
                status = read(file, {at, at + 2 * kMiB, 2 * kMiB});
            });
        };
        Status one, two;
        {
            const std::jthread a = reading(first, one, 0);
            QTRY_VERIFY(reached.load());
            {
                const std::jthread b = reading(second, two, 2 * kMiB);
                second.requestStop();
            }
            QVERIFY(!two.ok());
            QCOMPARE(two.error().code, ErrorCode::cancelled);
            first.requestStop();
        }
        QCOMPARE(one.error().code, ErrorCode::cancelled);
        bucket_->before = {};
        QVERIFY(read(file, {0, 2 * kMiB, 2 * kMiB}).ok());
    }

    // A job plans what it reads: neighboring tensors come in one request.
    void ofAJob() {
        QTemporaryDir here;
        const std::string local = here.filePath("m.safetensors").toStdString();
        writeLarge(local);
        std::ifstream in(local, std::ios::binary);
        bytes_ = std::string(std::istreambuf_iterator<char>(in), {});
        bucket_->put("d/m.safetensors", bytes_);
        const auto mine = openCheckpoint(local), theirs = openCheckpoint("s3://b1/d/m.safetensors");
        QVERIFY(mine.ok() && theirs.ok());
        std::vector<TensorId> tensors(mine->reader->catalog().tensorCount());
        std::iota(tensors.begin(), tensors.end(), TensorId{0});
        JobResources resources(4, kStandardMemory, nullptr, {});
        const auto expected = digestTensors(*mine->reader, tensors, {}, resources);
        bucket_->server().forget();
        const auto found = digestTensors(*theirs->reader, tensors, {}, resources);
        QVERIFY(expected.ok() && found.ok());
        for (size_t i = 0; i < tensors.size(); ++i)
            QCOMPARE((*found)[i].digest.hex(), (*expected)[i].digest.hex());
        const auto requests = asked();
        QCOMPARE(requests.size(), size_t{3});
        QVERIFY(sum(requests) <= bytes_.size());
    }
};

QTEST_GUILESS_MAIN(JoinedReadsTest)
#include "joined_reads_test.moc"
