#include <QElapsedTimer>
#include <QTemporaryDir>
#include <QTest>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "execute/fake_checkpoint.h"
#include "execute/parts.h"
#include "execute/tile_work.h"

using namespace shardscope;
using namespace shardscope::test;

namespace {

constexpr DType kDTypes[] = {DType::bfloat16, DType::float32,    DType::uint8,
                             DType::int64,    DType::complex128, DType::float16};

FakeSource makeSource(Random& random, MemoryFileSystem& system, int count, int64_t maxElements) {
    FakeSource source;
    for (int i = 0; i < count; ++i) {
        const DType dtype = kDTypes[random() % std::size(kDTypes)];
        source.add(random, randomTensor(random, "t" + std::to_string(i), maxElements, dtype));
    }
    FakeTensor empty{"empty", DType::float32, {0, 3}, {}, kNone};
    source.add(random, empty);
    source.write(random, system);
    return source;
}

std::shared_ptr<MemoryFileSystem> newSystem() {
    auto system = std::make_shared<MemoryFileSystem>();
    system->put("/out/other", {});
    return system;
}

struct Room {
    ThreadPool pool{3};
    MemoryBudget memory{uint64_t{32} << 20};
    Progress progress;
    StopSource stop;
    Resources resources() {
        Resources r;
        r.pool = &pool;
        r.memory = &memory;
        r.progress = &progress;
        r.stop = stop;
        return r;
    }
};

bool onlyDestination(const MemoryFileSystem& system) {
    return !system.exists(stagingPath("/out/dst"));
}

// A reader that finds the first chunk a byte further on.
class MovedReader final : public Reader {
  public:
    explicit MovedReader(std::unique_ptr<Reader> reader) : reader_(std::move(reader)) {}
    const Catalog& catalog() const override { return reader_->catalog(); }
    Result<Extent> locate(ChunkId chunk) const override {
        auto extent = reader_->locate(chunk);
        if (chunk == 0 && extent.ok()) ++extent.value().offset;
        return extent;
    }
    Result<Value> objectValue(ObjectId object) const override { return reader_->objectValue(object); }
    Result<std::shared_ptr<const ReadFile>> openFile(FileId file) const override {
        return reader_->openFile(file);
    }

  private:
    const std::unique_ptr<Reader> reader_;
};

// The value of an element as a double, which holds those of all averaged dtypes.
double valueAt(const FakeTensor& tensor, size_t i) {
    double value = 0;
    castElements(tensor.dtype, tensor.data.data() + i * dtypeBytes(tensor.dtype), DType::float64,
                 reinterpret_cast<std::byte*>(&value), 1);
    return value;
}

// One element at a time, each operation rounded to `Sum`.
template <class Sum>
Bytes averageOf(const std::vector<const FakeTensor*>& tensors, const std::vector<AverageInput>& inputs,
                DType to) {
    const auto count = static_cast<size_t>(elementCount(tensors[0]->shape));
    std::vector<Sum> sums(count);
    for (size_t i = 0; i < count; ++i) {
        volatile Sum sum = 0, product = 0;  // nothing in one rounding
        for (size_t k = 0; k < tensors.size(); ++k) {
            product = static_cast<Sum>(inputs[k].weight) * static_cast<Sum>(valueAt(*tensors[k], i));
            sum = k == 0 ? product : sum + product;
        }
        sums[i] = std::isnan(sum) ? std::numeric_limits<Sum>::quiet_NaN() : sum;
    }
    Bytes out(count * dtypeBytes(to));
    castElements(sizeof(Sum) == 8 ? DType::float64 : DType::float32,
                 reinterpret_cast<const std::byte*>(sums.data()), to, out.data(), count);
    return out;
}

}  // namespace

class TestConvert : public QObject {
    Q_OBJECT

  private slots:
    void anyCutToAnyCut() {
        for (unsigned seed = 0; seed < 30; ++seed) {
            Random random(seed);
            auto system = newSystem();
            const FakeSource source = makeSource(random, *system, 6, seed % 3 == 0 ? 1'500'000 : 3000);
            FakeJob job(random, source, system, source.tensors);
            job.job.options.verify = std::array{Verify::digest, Verify::full, Verify::none}[seed % 3];
            system->clearRecords();
            Room room;
            QElapsedTimer clock;
            clock.start();
            auto report = runConversion(job.job, room.resources());
            QVERIFY2(report.ok(), report.ok() ? "" : describe(report.error()).c_str());
            QVERIFY(onlyDestination(*system));
            QVERIFY2(system->tree("/out/dst") == job.expected(), std::to_string(seed).c_str());
            QVERIFY(room.memory.peak() <= room.memory.limit());
            // Time counts once, whatever is within what: threads cannot have spent more than there was.
            const Progress::Busy busy = room.progress.busy();
            const auto spent = [&](Progress::Work work) { return busy[static_cast<size_t>(work)]; };
            QVERIFY(spent(Progress::Work::read) > 0 && spent(Progress::Work::compute) > 0 &&
                    spent(Progress::Work::write) > 0);
            QVERIFY(static_cast<double>(busy[0] + busy[1] + busy[2]) <=
                    clock.nsecsElapsed() * (workerCount(room.resources()) + 1.0));

            // Each source byte once, each destination byte at most once.
            std::map<std::string, std::vector<uint8_t>> touched;
            uint64_t sourceBytes = 0;
            for (const OpRecord& record : system->records()) {
                const bool reads = record.op == Op::read && record.path.starts_with("/src/");
                const bool writes = record.op == Op::write && record.path.find("/data/") != std::string::npos;
                if (!reads && !writes) continue;
                auto& counts = touched[record.path];
                if (counts.size() < record.offset + record.length)
                    counts.resize(record.offset + record.length);
                for (uint64_t i = 0; i < record.length; ++i)
                    ++counts[record.offset + i];
                if (reads) sourceBytes += record.length;
            }
            const uint8_t often = job.job.options.verify == Verify::full ? 2 : 1;
            for (const auto& [path, counts] : touched) {
                const uint8_t most = path.starts_with("/src/") ? often : 1;
                QVERIFY(std::all_of(counts.begin(), counts.end(),
                                    [&](uint8_t n) { return n == 0 || n == most; }));
            }
            QCOMPARE(report->bytesRead, sourceBytes);
            uint64_t tensorBytes = 0;
            for (const FakeTensor& t : source.tensors)
                tensorBytes += t.data.size();
            QCOMPARE(sourceBytes, tensorBytes * often);

            // The digests are those of the source, however it is cut.
            std::vector<TensorId> all(source.tensors.size());
            std::iota(all.begin(), all.end(), 0U);
            auto digests = digestTensors(*job.reader, all, {}, room.resources());
            QVERIFY(digests.ok());
            for (size_t t = 0; t < all.size(); ++t)
                QCOMPARE(report->digests[t].second, (*digests)[t].digest);
        }
    }

    // Direct I/O, preallocation, locks and renames of the machine itself; stopped once and resumed.
    void onTheMachine() {
        for (unsigned seed = 0; seed < 4; ++seed) {
            QTemporaryDir temporary;
            const std::string root = temporary.path().toStdString();
            Random random(seed);
            MemoryFileSystem memory;
            FakeSource source = makeSource(random, memory, 4, 3'000'000);
            source.root = root;
            for (const std::string& file : source.files) {
                const Bytes bytes = memory.get("/src/" + file);
                std::ofstream(root + "/" + file, std::ios::binary)
                    .write(reinterpret_cast<const char*>(bytes.data()),
                           static_cast<std::streamsize>(bytes.size()));
            }
            auto faulty = std::make_shared<FaultyFileSystem>(
                systemFileSystem(seed == 3 ? IoMode::buffered : IoMode::direct));
            FakeJob job(random, source, faulty, source.tensors);
            job.job.destination = root + "/dst";
            job.job.options.journalBytes = 1;
            job.job.options.resume = true;
            {
                Room room;
                faulty->after = [&](Op op) {
                    if (op == Op::write && faulty->count(Op::write) >= 30) room.stop.requestStop();
                };
                (void)runConversion(job.job, room.resources());
            }
            faulty->after = {};
            job.job.options.overwrite = true;
            job.job.options.verify = Verify::full;
            Room room;
            auto report = runConversion(job.job, room.resources());
            QVERIFY2(report.ok(), report.ok() ? "" : describe(report.error()).c_str());
            for (const auto& [path, bytes] : job.expected()) {
                std::ifstream in(root + "/dst/" + path, std::ios::binary);
                std::string text(std::filesystem::file_size(root + "/dst/" + path), '\0');
                in.read(text.data(), static_cast<std::streamsize>(text.size()));
                QCOMPARE(text.size(), bytes.size());
                QVERIFY(std::memcmp(text.data(), bytes.data(), bytes.size()) == 0);
            }
            QVERIFY(!std::filesystem::exists(stagingPath(job.job.destination)));
        }
    }

    void aliasesAreWrittenOnce() {
        Random random(5);
        auto system = newSystem();
        FakeSource source;
        source.add(random, randomTensor(random, "a", 5000, DType::float32));
        FakeTensor tied = source.tensors[0];
        tied.name = "b";
        tied.aliasOf = 0;
        source.cuts.push_back(source.cuts[0]);
        source.tensors.push_back(tied);
        source.write(random, *system);
        FakeJob job(random, source, system, source.tensors);
        Room room;
        auto report = runConversion(job.job, room.resources());
        QVERIFY2(report.ok(), report.ok() ? "" : describe(report.error()).c_str());
        QVERIFY(system->tree("/out/dst") == job.expected());
        QCOMPARE(report->bytesRead, uint64_t{tied.data.size()});
    }

    // Of sources that are cut differently, in a tile more or less and with few or many threads.
    void averageIsThatOfEachElement() {
        constexpr DType kFloats[] = {DType::bfloat16, DType::float16, DType::float32, DType::float64};
        for (unsigned seed = 0; seed < 6; ++seed) {
            Random random(seed + 900);
            auto system = newSystem();
            std::vector<FakeSource> sources(3);
            for (size_t k = 0; k < sources.size(); ++k)
                sources[k].root = "/src" + std::to_string(k);
            for (int t = 0; t < 8; ++t) {
                const FakeTensor shape = randomTensor(random, "t" + std::to_string(t), 400'000,
                                                      kFloats[static_cast<size_t>(t) % std::size(kFloats)]);
                for (FakeSource& source : sources) {
                    FakeTensor values = shape;
                    values.data = randomBytes(random, shape.data.size());
                    source.add(random, values);
                }
            }
            const FakeTensor counter{"counter", DType::int64, {3}, randomBytes(random, 24), kNone};
            for (FakeSource& source : sources) {
                source.add(random, counter);
                source.write(random, *system);
            }
            std::vector<FakeTensor> wanted = sources.back().tensors;
            wanted[1].dtype = DType::bfloat16;  // from float16, rounded once
            Average average;
            average.accumulate = seed % 2 ? DType::float64 : DType::float32;
            average.rules.assign(wanted.size(), Average::Rule::mean);
            average.rules.back() = Average::Rule::same;
            FakeJob job(random, sources.back(), system, wanted);
            std::vector<std::unique_ptr<FakeReader>> readers;
            for (const FakeSource& source : sources) {
                readers.push_back(source.open(*system));
                average.inputs.push_back(
                    {readers.back().get(), job.spec.sources, 0.1 + static_cast<double>(random() % 100)});
            }
            job.job.average = &average;
            for (size_t t = 0; t + 1 < wanted.size(); ++t) {
                std::vector<const FakeTensor*> tensors;
                for (const FakeSource& source : sources)
                    tensors.push_back(&source.tensors[t]);
                const bool wide = average.accumulate == DType::float64 || tensors[0]->dtype == DType::float64;
                job.tensors[t].data = wide ? averageOf<double>(tensors, average.inputs, wanted[t].dtype)
                                           : averageOf<float>(tensors, average.inputs, wanted[t].dtype);
            }
            for (const uint64_t memory : {uint64_t{12} << 20, uint64_t{96} << 20}) {
                Room room;
                MemoryBudget budget(memory);
                Resources resources = room.resources();
                resources.memory = &budget;
                job.job.options.overwrite = true;
                job.job.options.verify = Verify::full;
                const auto report = runConversion(job.job, resources);
                QVERIFY2(report.ok(), report.ok() ? "" : describe(report.error()).c_str());
                QVERIFY2(system->tree("/out/dst") == job.expected(), std::to_string(seed).c_str());
                QVERIFY(budget.peak() <= budget.limit());
            }
        }
    }

    void whatIsNotAveragedMustBeTheSame() {
        Random random(31);
        auto system = newSystem();
        std::vector<FakeSource> sources(2);
        sources[0].root = "/src0";
        FakeTensor counter{"counter", DType::int64, {1000}, randomBytes(random, 8000), kNone};
        for (FakeSource& source : sources) {
            source.add(random, counter);
            source.write(random, *system);
            counter.data[8 * 777] ^= std::byte{1};
        }
        Average average;
        FakeJob job(random, sources[1], system, sources[1].tensors);
        const auto first = sources[0].open(*system);
        for (const Reader* reader : {static_cast<const Reader*>(first.get()), job.job.source})
            average.inputs.push_back({reader, job.spec.sources, 0.5});
        average.rules = {Average::Rule::same};
        job.job.average = &average;
        Room room;
        const auto report = runConversion(job.job, room.resources());
        QVERIFY(!report.ok());
        QCOMPARE(report.error().code, ErrorCode::impossible);
        QCOMPARE(report.error().location.tensor, "counter");
        QVERIFY2(report.error().message.find("element 777,") != std::string::npos,
                 report.error().message.c_str());

        average.rules = {Average::Rule::last};
        QVERIFY(runConversion(job.job, room.resources()).ok());
        QVERIFY(system->tree("/out/dst") == job.expected());
    }

    void casts() {
        Random random(6);
        auto system = newSystem();
        FakeSource source;
        FakeTensor tensor{"w", DType::float32, {1001, 777}, {}, kNone};
        for (int64_t i = 0; i < 1001 * 777; ++i) {
            const float value = static_cast<float>(i % 2003) * 0.37f - 300;
            const auto* bytes = reinterpret_cast<const std::byte*>(&value);
            tensor.data.insert(tensor.data.end(), bytes, bytes + 4);
        }
        source.add(random, tensor);
        source.write(random, *system);
        for (DType to : {DType::bfloat16, DType::float64, DType::float8E4M3FN}) {
            FakeTensor target = tensor;
            target.dtype = to;
            target.data.resize(1001 * 777 * dtypeBytes(to));
            castElements(DType::float32, tensor.data.data(), to, target.data.data(), 1001 * 777);
            FakeJob job(random, source, system, {target});
            job.job.options.verify = Verify::full;
            job.job.options.overwrite = true;
            Room room;
            auto report = runConversion(job.job, room.resources());
            QVERIFY2(report.ok(), report.ok() ? "" : describe(report.error()).c_str());
            QVERIFY(system->tree("/out/dst") == job.expected());
        }
        FakeTensor impossible = tensor;
        impossible.dtype = DType::int32;
        FakeJob job(random, source, system, {impossible});
        job.job.options.overwrite = true;
        Room room;
        QCOMPARE(runConversion(job.job, room.resources()).error().code, ErrorCode::impossible);
        QVERIFY(onlyDestination(*system));
    }

    void overwriteExchanges() {
        Random random(7);
        auto system = newSystem();
        const FakeSource source = makeSource(random, *system, 2, 1000);
        FakeJob job(random, source, system, source.tensors);
        system->put("/out/dst/old", Bytes(3));
        Room room;
        auto refused = runConversion(job.job, room.resources());
        QCOMPARE(refused.error().code, ErrorCode::exists);
        QVERIFY(system->exists("/out/dst/old"));
        job.job.options.overwrite = true;
        QVERIFY(runConversion(job.job, room.resources()).ok());
        QVERIFY(system->tree("/out/dst") == job.expected());
        QVERIFY(onlyDestination(*system));
    }

    void fullDisk() {
        Random random(8);
        auto system = newSystem();
        const FakeSource source = makeSource(random, *system, 2, 1000);
        FakeJob job(random, source, system, source.tensors);
        system->setFreeBytes(100);
        Room room;
        QCOMPARE(runConversion(job.job, room.resources()).error().code, ErrorCode::noSpace);
        QVERIFY(onlyDestination(*system));
        QVERIFY(!system->exists("/out/dst"));
    }

    // What is written is read back meanwhile, past what the writer holds.
    void verificationNoticesDamage_data() {
        QTest::addColumn<Verify>("verify");
        QTest::newRow("digest") << Verify::digest;
        QTest::newRow("full") << Verify::full;
    }
    void verificationNoticesDamage() {
        QFETCH(Verify, verify);
        Random random(9);
        auto system = newSystem();
        const FakeSource source = makeSource(random, *system, 3, 3000);
        auto faulty = std::make_shared<FaultyFileSystem>(system);
        FakeJob job(random, source, faulty, source.tensors);
        job.job.options.verify = verify;
        const std::string data = stagingPath("/out/dst") + "/data";
        const std::string name = job.layout->files[job.layout->chunkFile[0]].path;
        const uint64_t at = job.layout->chunkOffset[0];
        std::atomic<bool> damaged{false};
        // The first byte of a tensor, as soon as it is there.
        faulty->after = [&](Op op) {
            const Bytes bytes = op == Op::write ? system->get(data + "/" + name) : Bytes();
            if (at >= bytes.size() || bytes[at] == std::byte{0} || damaged.exchange(true)) return;
            const std::byte wrong = bytes[at] ^ std::byte{1};
            const auto file = system->openDirectory(data).value()->createFile(name, true).value();
            QVERIFY(file->writeAt(at, std::span(&wrong, 1)).ok());
        };
        Room room;
        auto report = runConversion(job.job, room.resources());
        QVERIFY(damaged);
        QVERIFY(!report.ok());
        QCOMPARE(report.error().code, ErrorCode::verificationFailed);
        QVERIFY(onlyDestination(*system));
        QVERIFY(!system->exists("/out/dst"));
    }

    // Where the finished output has a tensor at another place than the layout, it is read there.
    void verificationReadsWhatTheOutputSays() {
        Random random(9);
        auto system = newSystem();
        const FakeSource source = makeSource(random, *system, 3, 3000);
        FakeJob job(random, source, system, source.tensors);
        const auto reopen = job.job.reopen;
        job.job.reopen = [&](const std::string& path) -> Result<std::unique_ptr<Reader>> {
            auto opened = reopen(path);
            if (opened.ok()) opened.value() = std::make_unique<MovedReader>(std::move(opened).value());
            return opened;
        };
        Room room;
        auto report = runConversion(job.job, room.resources());
        QVERIFY(!report.ok());
        QCOMPARE(report.error().code, ErrorCode::verificationFailed);
        QVERIFY(!system->exists("/out/dst"));
    }

    // Each byte that is written is read back once.
    void readsBackOnce() {
        Random random(10);
        auto system = newSystem();
        const FakeSource source = makeSource(random, *system, 4, 3000);
        auto faulty = std::make_shared<FaultyFileSystem>(system);
        FakeJob job(random, source, faulty, source.tensors);
        Room room;
        system->clearRecords();
        QVERIFY(runConversion(job.job, room.resources()).ok());
        uint64_t read = 0, tensors = 0;
        for (const OpRecord& record : system->records())
            if (record.op == Op::read && record.path.find("shardscope-partial/data") != record.path.npos)
                read += record.length;
        for (ChunkId c = 0; c < job.spec.target.chunkCount(); ++c) {
            const TensorId t = job.spec.target.tensorOf(c);
            tensors += job.spec.target.chunk(t, c).elements() * dtypeBytes(job.spec.target.dtype(t));
        }
        QCOMPARE(read, tensors);
    }

    void sourceThatChanges() {
        Random random(10);
        auto system = newSystem();
        const FakeSource source = makeSource(random, *system, 3, 3000);
        auto faulty = std::make_shared<FaultyFileSystem>(system);
        FakeJob job(random, source, faulty, source.tensors);
        std::atomic<bool> once{false};
        faulty->after = [&](Op op) {
            if (op == Op::write && !once.exchange(true)) system->put("/src/a.bin", system->get("/src/a.bin"));
        };
        Room room;
        auto report = runConversion(job.job, room.resources());
        QVERIFY(!report.ok());
        QCOMPARE(report.error().code, ErrorCode::changed);
        QVERIFY(!system->exists("/out/dst"));
        QVERIFY(onlyDestination(*system));
    }

    // Every operation fails once in its turn; then the job is resumed.
    void faults() {
        for (Op op : {Op::open, Op::read, Op::write, Op::sync, Op::rename, Op::allocate, Op::remove}) {
            for (const bool overwrite : {false, true}) {
                for (uint64_t nth = 1;; ++nth) {
                    Random random(11);
                    auto system = newSystem();
                    const FakeSource source = makeSource(random, *system, 3, 400'000);
                    auto faulty = std::make_shared<FaultyFileSystem>(system);
                    FakeJob job(random, source, faulty, source.tensors);
                    if (overwrite) system->put("/out/dst/old", Bytes(3));
                    job.job.options.overwrite = overwrite;
                    job.job.options.journalBytes = 1;
                    job.job.options.resume = nth % 2;
                    const auto expected = job.expected();
                    const std::map<std::string, Bytes> before = system->tree("/out/dst");
                    faulty->failAt(op, nth, nth % 3 ? ErrorCode::io : ErrorCode::noSpace, nth % 4 == 0);
                    Room room;
                    auto report = runConversion(job.job, room.resources());
                    const bool failed = faulty->failures() > 0;
                    faulty->clear();
                    if (!report.ok()) {
                        const auto now = system->tree("/out/dst");
                        QVERIFY(now == before || now == expected);
                        if (now == expected) continue;
                        job.job.options.resume = true;
                        if (nth % 2) system->losePower();
                        auto again = runConversion(job.job, room.resources());
                        QVERIFY2(again.ok(), again.ok() ? "" : describe(again.error()).c_str());
                    }
                    QVERIFY(system->tree("/out/dst") == expected);
                    if (!failed) break;
                    QVERIFY(nth < 2000);
                    if (nth > 40) nth += 7;
                }
            }
        }
    }

    // Stopped at random moments again and again, with the power failing in between, until it is done.
    void interruptedAndResumed() {
        for (unsigned seed = 0; seed < 12; ++seed) {
            Random random(seed);
            auto system = newSystem();
            const FakeSource source = makeSource(random, *system, 5, 1'500'000);
            auto faulty = std::make_shared<FaultyFileSystem>(system);
            FakeJob job(random, source, faulty, source.tensors);
            job.job.options.journalBytes = 1 << 20;
            job.job.options.resume = true;
            const auto expected = job.expected();
            bool finished = false;
            uint64_t reused = 0;
            for (int attempt = 0; attempt < 200 && !finished; ++attempt) {
                Room room;
                std::atomic<int64_t> left{pick(random, 1, 10 + 10 * attempt)};
                faulty->after = [&](Op op) {
                    if (op == Op::write && --left == 0) room.stop.requestStop();
                };
                auto report = runConversion(job.job, room.resources());
                finished = report.ok();
                if (finished) {
                    reused = report->bytesReused;
                } else {
                    QCOMPARE(report.error().code, ErrorCode::cancelled);
                    QVERIFY(!system->exists("/out/dst"));
                    if (attempt % 2) system->losePower();
                }
            }
            QVERIFY(finished);
            QVERIFY(system->tree("/out/dst") == expected);
            QVERIFY(onlyDestination(*system));
            if (seed == 0) QVERIFY(reused > 0);
        }
    }

    // Another process may publish once a part has written its last tile, or before one that runs again
    // begins.
    void publishedBesideAPart() {
        for (const Op moment : {Op::sync, Op::makeDirectory}) {
            Random random(17);
            auto system = newSystem();
            const FakeSource source = makeSource(random, *system, 4, 300'000);
            auto faulty = std::make_shared<FaultyFileSystem>(system);
            FakeJob job(random, source, faulty, source.tensors);
            job.job.options.verify = Verify::none;
            ConvertJob others = job.job;
            others.fileSystem = system;
            Room room, publisher;
            const auto did = [&](uint32_t index) {
                return runPart(others, {index, 2, "test"}, publisher.resources()).ok();
            };
            QVERIFY(moment == Op::makeDirectory || did(1));
            bool published = false;
            faulty->after = [&](Op op) {
                if (op != moment || published) return;
                if (moment == Op::makeDirectory) QVERIFY(did(0) && did(1));
                published = finishParts(others, "test", publisher.resources()).ok();
            };
            const auto part = runPart(job.job, {0, 2, "test"}, room.resources());
            QVERIFY(published);
            // Here nothing stores whose destination it is.
            if (moment == Op::makeDirectory)
                QCOMPARE(part.ok() ? ErrorCode::internal : part.error().code, ErrorCode::exists);
            else
                QVERIFY2(part.ok(), part.ok() ? "" : describe(part.error()).c_str());
            QVERIFY(system->tree("/out/dst") == job.expected());
            QVERIFY(onlyDestination(*system));
        }
    }

    void staleStaging() {
        Random random(13);
        auto system = newSystem();
        const FakeSource source = makeSource(random, *system, 3, 800'000);
        auto faulty = std::make_shared<FaultyFileSystem>(system);
        FakeJob job(random, source, faulty, source.tensors);
        // Of a job that wrote nothing: simply replaced.
        system->put(stagingPath("/out/dst") + "/data/junk", Bytes(3));
        {
            Room room;
            faulty->after = [&](Op op) {
                if (op == Op::write && faulty->count(Op::write) >= 6) room.stop.requestStop();
            };
            auto report = runConversion(job.job, room.resources());
            QCOMPARE(report.error().code, ErrorCode::cancelled);
            QVERIFY(report.error().hint.find("--resume") != std::string::npos);
        }
        faulty->after = {};
        Room room;
        QCOMPARE(runConversion(job.job, room.resources()).error().code, ErrorCode::exists);
        // Another plan cannot continue it, and leaves it alone.
        job.job.options.resume = true;
        job.job.options.fillGaps = FillGaps::zero;
        QCOMPARE(runConversion(job.job, room.resources()).error().code, ErrorCode::changed);
        job.job.options.fillGaps = FillGaps::refuse;
        auto report = runConversion(job.job, room.resources());
        QVERIFY2(report.ok(), report.ok() ? "" : describe(report.error()).c_str());
        QVERIFY(report->bytesReused > 0);
        QVERIFY(system->tree("/out/dst") == job.expected());
    }

    // A file that the plan does not have: it is not published, and not removed.
    void aStrayFileIsNotPublished() {
        Random random(15);
        auto system = newSystem();
        const FakeSource source = makeSource(random, *system, 3, 800'000);
        auto faulty = std::make_shared<FaultyFileSystem>(system);
        FakeJob job(random, source, faulty, source.tensors);
        job.job.options.journalBytes = 1;
        const std::string stray = stagingPath("/out/dst") + "/data/model.safetensors";
        {
            Room room;
            faulty->after = [&](Op op) {
                if (op == Op::write && faulty->count(Op::write) >= 6) room.stop.requestStop();
            };
            QCOMPARE(runConversion(job.job, room.resources()).error().code, ErrorCode::cancelled);
        }
        Room room;
        job.job.options.resume = true;
        for (const bool early : {true, false}) {
            if (early) system->put(stray, Bytes(3));
            std::atomic<bool> put{false};
            faulty->after = [&](Op op) {
                if (!early && op == Op::write && !put.exchange(true)) system->put(stray, Bytes(3));
            };
            const auto refused = runConversion(job.job, room.resources());
            QCOMPARE(refused.error().code, ErrorCode::exists);
            QCOMPARE(refused.error().location.file, stray);
            QVERIFY(!system->exists("/out/dst") && system->exists(stray));
            QVERIFY(system->removeTree(stray).ok());
        }
        faulty->after = {};
        const auto report = runConversion(job.job, room.resources());
        QVERIFY2(report.ok(), report.ok() ? "" : describe(report.error()).c_str());
        QVERIFY(report->bytesReused > 0);
        QVERIFY(system->tree("/out/dst") == job.expected());
    }

    // A file system may keep names and content, and lose sizes that nobody brought to disk.
    void sizesAreOnDiskBeforeTheFirstClaim() {
        for (const bool parts : {false, true}) {
            Random random(16);
            auto system = newSystem();
            const FakeSource source = makeSource(random, *system, 4, 800'000);
            auto faulty = std::make_shared<FaultyFileSystem>(system);
            FakeJob job(random, source, faulty, source.tensors);
            job.job.options.journalBytes = 1;
            const auto run = [&](const Resources& resources) -> Result<uint64_t> {
                if (!parts) {
                    SHARDSCOPE_ASSIGN(const ConvertReport report, runConversion(job.job, resources));
                    return report.bytesReused;
                }
                SHARDSCOPE_ASSIGN(const PartReport report, runPart(job.job, {0, 1, "test"}, resources));
                SHARDSCOPE_TRY(finishParts(job.job, "test", resources));
                return report.bytesReused;
            };
            {
                Room room;
                faulty->after = [&](Op op) {
                    if (op == Op::write && faulty->count(Op::write) >= 8) room.stop.requestStop();
                };
                QCOMPARE(run(room.resources()).error().code, ErrorCode::cancelled);
            }
            faulty->after = {};
            system->losePower(true);
            job.job.options.resume = !parts;
            Room room;
            const auto reused = run(room.resources());
            QVERIFY2(reused.ok(), reused.ok() ? "" : describe(reused.error()).c_str());
            QVERIFY(*reused > 0);
            QVERIFY(system->tree("/out/dst") == job.expected());
        }
    }

    // Where replacing takes two steps, and the process ends between them.
    void aFormerDestinationIsPutBack() {
        for (const bool parts : {false, true}) {
            Random random(18);
            auto system = newSystem();
            const FakeSource source = makeSource(random, *system, 2, 2000);
            FakeJob job(random, source, system, source.tensors);
            const auto run = [&] {
                Room room;
                if (!parts) return runConversion(job.job, room.resources()).ok();
                return runPart(job.job, {0, 1, "test"}, room.resources()).ok() &&
                       finishParts(job.job, "test", room.resources()).ok();
            };
            system->put(asidePath("/out/dst") + "/old", Bytes(3));
            QVERIFY(!run());  // the destination exists: it is back
            QVERIFY(system->exists("/out/dst/old") && !system->exists(asidePath("/out/dst")));
            QVERIFY(system->rename("/out/dst", asidePath("/out/dst")).ok());
            job.job.options.overwrite = true;
            QVERIFY(run());
            QVERIFY(system->tree("/out/dst") == job.expected());
            QVERIFY(!system->exists(asidePath("/out/dst")));
        }
    }

    void twoJobsAtOnce() {
        Random random(14);
        auto system = newSystem();
        const FakeSource source = makeSource(random, *system, 2, 2000);
        auto faulty = std::make_shared<FaultyFileSystem>(system);
        FakeJob job(random, source, faulty, source.tensors);
        std::atomic<int> runs{0};
        Error second;
        faulty->after = [&](Op op) {
            if (op != Op::write || runs.exchange(1) != 0) return;
            Room room;
            auto other = runConversion(job.job, room.resources());
            if (!other.ok()) second = other.error();
        };
        Room room;
        QVERIFY(runConversion(job.job, room.resources()).ok());
        QCOMPARE(second.code, ErrorCode::exists);
        QVERIFY(system->tree("/out/dst") == job.expected());
    }
};

QTEST_APPLESS_MAIN(TestConvert)
#include "test_convert.moc"
