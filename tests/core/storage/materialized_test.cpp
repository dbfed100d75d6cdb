// The cache of unpacked entries: each is produced once, nobody waits for another entry, and it stays bounded.
#include "storage/materialized.h"

#include <QtTest>
#include <algorithm>
#include <atomic>
#include <future>
#include <latch>
#include <thread>

#include "support/memory_file_system.h"

using namespace shardscope;
using namespace shardscope::test;

namespace {

constexpr auto kPatience = std::chrono::seconds(60);  // a deadlock fails, it does not hang

std::vector<std::byte> bytesOf(size_t count, int value) {
    return std::vector<std::byte>(count, static_cast<std::byte>(value));
}

struct Fixture {
    std::shared_ptr<MemoryFileSystem> files = std::make_shared<MemoryFileSystem>();
    std::shared_ptr<const ReadFile> origin;
    Materialized cache{files, ""};

    Fixture() {
        files->put("/d/origin", bytesOf(4, 0));
        origin = files->openDirectory("/d").value()->openFile("origin").value();
    }
    Materialized::Entry entry(const std::string& key, uint64_t bytes, bool exact = true) const {
        return {key, origin, bytes, exact};
    }
    Result<std::shared_ptr<const ReadFile>> get(const std::string& key, uint64_t bytes, int value,
                                                std::atomic<int>* produced = nullptr) const {
        return cache.get(entry(key, bytes), [&, value](const Materialized::Sink& sink) {
            if (produced) ++*produced;
            return sink(bytesOf(bytes, value));
        });
    }
    size_t scratchFiles() const {
        const std::vector<OpRecord> records = files->records();
        return static_cast<size_t>(std::count_if(records.begin(), records.end(), [](const OpRecord& r) {
            return r.op == Op::allocate && r.path.starts_with("scratch:");
        }));
    }
};

}  // namespace

class MaterializedTest : public QObject {
    Q_OBJECT

  private slots:
    void sameEntryIsProducedOnce() {
        const Fixture place;
        std::atomic<int> produced = 0;
        std::latch producing(1), mayFinish(1), asked(4);
        std::vector<std::future<std::shared_ptr<const ReadFile>>> readers;
        for (int i = 0; i < 4; ++i) {
            readers.push_back(std::async(std::launch::async, [&] {
                asked.count_down();
                const auto file = place.cache.get(place.entry("a", 3), [&](const Materialized::Sink& sink) {
                    if (++produced == 1) producing.count_down();
                    mayFinish.wait();
                    return sink(bytesOf(3, 7));
                });
                return file.ok() ? *file : nullptr;
            }));
        }
        // The first produces, the others have asked: all of them get what it makes.
        producing.wait();
        asked.wait();
        mayFinish.count_down();
        std::set<const ReadFile*> files;
        for (auto& reader : readers) {
            QVERIFY(reader.wait_for(kPatience) == std::future_status::ready);
            files.insert(reader.get().get());
        }
        QCOMPARE(files.size(), 1U);
        QVERIFY(*files.begin() != nullptr);
        QCOMPARE(produced.load(), 1);
    }

    void otherEntriesAreNotBlocked() {
        const Fixture place;
        std::latch producing(1), mayFinish(1);
        auto slow = std::async(std::launch::async, [&] {
            return place.cache
                .get(place.entry("slow", 1),
                     [&](const Materialized::Sink& sink) {
                         producing.count_down();
                         mayFinish.wait();
                         return sink(bytesOf(1, 1));
                     })
                .ok();
        });
        producing.wait();
        // While it is being produced, others come and go.
        auto fast = std::async(std::launch::async, [&] {
            for (int i = 0; i < 20; ++i) {
                if (!place.get("fast" + std::to_string(i), 2, i).ok()) return false;
            }
            return true;
        });
        const bool finished = fast.wait_for(kPatience) == std::future_status::ready;
        QVERIFY(slow.wait_for(std::chrono::seconds(0)) == std::future_status::timeout);
        mayFinish.count_down();
        QVERIFY(finished);
        QVERIFY(fast.get());
        QVERIFY(slow.get());
    }

    void entryMayBeMadeOfOthers() {
        const Fixture place;
        const auto whole =
            place.cache.get(place.entry("whole", 4), [&](const Materialized::Sink& sink) -> Status {
                for (const char* part : {"first", "second"}) {
                    SHARDSCOPE_ASSIGN(const auto file, place.get(part, 2, part[0]));
                    std::vector<std::byte> bytes(2);
                    SHARDSCOPE_TRY(file->readAt(0, bytes));
                    SHARDSCOPE_TRY(sink(bytes));
                }
                return {};
            });
        QVERIFY(whole.ok());
        std::vector<std::byte> bytes(4);
        QVERIFY((*whole)->readAt(0, bytes).ok());
        QCOMPARE(bytes[0], static_cast<std::byte>('f'));
        QCOMPARE(bytes[3], static_cast<std::byte>('s'));
        QCOMPARE((*whole)->path(), place.origin->path());
        QVERIFY(!(*whole)->readAt(3, std::span(bytes).first(2)).ok());
    }

    void keepsFewEntries() {
        const Fixture place;
        std::atomic<int> produced = 0;
        const auto held = place.get("held", 5, 1, &produced);
        QVERIFY(held.ok());
        QVERIFY(place.get("let go", 5, 2, &produced).ok());
        for (int i = 0; i < 2000; ++i)
            QVERIFY(place.get(std::to_string(i), 1, 3).ok());
        QVERIFY(*place.get("held", 5, 1, &produced) == *held);
        QCOMPARE(produced.load(), 2);
        QVERIFY(place.get("let go", 5, 2, &produced).ok());
        QCOMPARE(produced.load(), 3);
        QVERIFY(place.get("let go", 5, 2, &produced).ok());  // used last: still there
        QCOMPARE(produced.load(), 3);
    }

    void memoryIsBounded() {
        const Fixture place;
        constexpr uint64_t kLarge = uint64_t{16} << 20;
        std::vector<std::shared_ptr<const ReadFile>> held;
        for (int i = 0; i < 4; ++i)
            held.push_back(place.get(std::to_string(i), kLarge, i).value());
        QCOMPARE(place.scratchFiles(), 0U);
        held.push_back(place.get("one more", kLarge, 5).value());  // 64 MiB are taken
        QCOMPARE(place.scratchFiles(), 1U);
        QVERIFY(place.get("too large for memory", kLarge + 1, 6).ok());
        QCOMPARE(place.scratchFiles(), 2U);
        std::vector<std::byte> byte(1);
        for (size_t i = 0; i < 4; ++i) {
            QVERIFY(held[i]->readAt(kLarge - 1, byte).ok());
            QCOMPARE(byte[0], static_cast<std::byte>(i));
        }
        QVERIFY(held[4]->readAt(kLarge - 1, byte).ok());
        QCOMPARE(byte[0], static_cast<std::byte>(5));
    }

    void sizesAreChecked() {
        const Fixture place;
        const auto produce = [&](uint64_t stated, bool exact, size_t given) {
            return place.cache.get(place.entry("x", stated, exact),
                                   [&](const Materialized::Sink& sink) { return sink(bytesOf(given, 1)); });
        };
        QCOMPARE(produce(3, true, 4).error().code, ErrorCode::limit);
        QCOMPARE(produce(3, false, 4).error().code, ErrorCode::limit);
        QCOMPARE(produce(3, true, 2).error().code, ErrorCode::internal);
        // A failure is not remembered.
        const auto shorter = produce(3, false, 2);
        QVERIFY(shorter.ok());
        QCOMPARE((*shorter)->size(), 2U);
    }
};

QTEST_GUILESS_MAIN(MaterializedTest)
#include "materialized_test.moc"
