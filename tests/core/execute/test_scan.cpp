#include <QTest>
#include <mutex>

#include "execute/fake_checkpoint.h"

using namespace shardscope;
using namespace shardscope::test;

namespace {

struct Room {
    explicit Room(uint64_t memoryBytes = uint64_t{32} << 20) : memory(memoryBytes) {}
    ThreadPool pool{3};
    MemoryBudget memory;
    Resources resources() {
        Resources r;
        r.pool = &pool;
        r.memory = &memory;
        return r;
    }
};

// Collects the tiles of one tensor into its bytes.
Result<Bytes> readWhole(const Reader& reader, TensorId tensor, const ScanOptions& options,
                        const Resources& resources) {
    Bytes out(reader.catalog().bytes(tensor));
    const size_t size = dtypeBytes(reader.catalog().dtype(tensor));
    std::mutex mutex;
    int64_t next = 0;
    bool inOrder = true;
    SHARDSCOPE_TRY(scanTensors(reader, {tensor}, options, resources, [&](const TileView& tile) -> Status {
        std::lock_guard lock(mutex);
        inOrder = inOrder && tile.firstElement == next;
        next = tile.firstElement + tile.elements;
        std::copy(tile.bytes.begin(), tile.bytes.end(),
                  out.begin() + static_cast<ptrdiff_t>(tile.firstElement * static_cast<int64_t>(size)));
        return {};
    }));
    if (options.ordered && !inOrder) return makeError(ErrorCode::internal, "out of order");
    return out;
}

// A source whose one chunk is stored with the given strides: element i of the storage has the value of its
// position.
struct Strided {
    FakeTensor tensor;
    FakeSource source;
    std::shared_ptr<MemoryFileSystem> system = std::make_shared<MemoryFileSystem>();
    uint64_t spanBytes = 0;

    Strided(Random& random, DType dtype, const Dims& lengths, const Dims& strides) {
        const size_t size = dtypeBytes(dtype);
        int64_t span = 1;
        for (size_t d = 0; d < lengths.size(); ++d)
            span += (lengths[d] - 1) * strides[d];
        const Bytes stored = randomBytes(random, static_cast<size_t>(span) * size);
        spanBytes = stored.size();
        tensor = {"v", dtype, lengths, Bytes(static_cast<size_t>(elementCount(lengths)) * size), kNone};
        Dims index(lengths.size(), 0);
        for (size_t i = 0; i * size < tensor.data.size(); ++i) {
            int64_t at = 0;
            for (size_t d = 0; d < index.size(); ++d)
                at += index[d] * strides[d];
            std::memcpy(tensor.data.data() + i * size, stored.data() + static_cast<size_t>(at) * size, size);
            for (size_t d = index.size(); d-- > 0;) {
                if (++index[d] < lengths[d]) break;
                index[d] = 0;
            }
        }
        Bytes file(133);
        file.insert(file.end(), stored.begin(), stored.end());
        source.tensors = {tensor};
        source.cuts = {{{Box{Dims(lengths.size(), 0), lengths}, std::nullopt}}};
        source.chunks = {{0, 133, stored.size(), strides, false, false, false}};
        source.files = {"v.bin"};
        system->put("/src/v.bin", file);
    }
};

}  // namespace

class TestScan : public QObject {
    Q_OBJECT

  private slots:
    void tilesGiveTheTensor() {
        for (unsigned seed = 0; seed < 30; ++seed) {
            Random random(seed);
            auto system = std::make_shared<MemoryFileSystem>();
            FakeSource source;
            source.add(random, randomTensor(random, "t", seed % 2 ? 2'000'000 : 2000,
                                            seed % 3 ? DType::bfloat16 : DType::float64));
            source.write(random, *system);
            auto reader = source.open(*system);
            ScanOptions options;
            options.ordered = seed % 4 == 0;
            options.tileBytes = seed % 5 == 0 ? 1 << 20 : 0;
            Room room;
            auto bytes = readWhole(*reader, 0, options, room.resources());
            QVERIFY2(bytes.ok(), bytes.ok() ? "" : describe(bytes.error()).c_str());
            QVERIFY(*bytes == source.tensors[0].data);
        }
    }

    void digestIsShardingInvariant() {
        Random random(1);
        const FakeTensor tensor = randomTensor(random, "t", 3'000'000, DType::float32);
        std::optional<Digest128> first;
        for (int i = 0; i < 8; ++i) {
            auto system = std::make_shared<MemoryFileSystem>();
            FakeSource source;
            source.add(random, tensor);
            source.write(random, *system);
            auto reader = source.open(*system);
            Room room(i % 2 ? uint64_t{32} << 20 : uint64_t{512} << 20);
            auto digests = digestTensors(*reader, {0}, {}, room.resources());
            QVERIFY(digests.ok());
            if (!first) first = (*digests)[0].digest;
            QCOMPARE((*digests)[0].digest, *first);
            QCOMPARE((*digests)[0].counts.elements, static_cast<uint64_t>(elementCount(tensor.shape)));
        }
    }

    void strides_data() {
        QTest::addColumn<QList<qint64>>("lengths");
        QTest::addColumn<QList<qint64>>("strides");
        const auto row = [](const char* name, QList<qint64> lengths, QList<qint64> strides) {
            QTest::newRow(name) << lengths << strides;
        };
        row("transpose", {700, 900}, {1, 700});
        row("slice", {300, 500}, {1000, 1});
        row("every second", {300, 500}, {1000, 2});
        row("sparse", {30, 50}, {10000, 200});
        row("expand rows", {400, 900}, {0, 1});
        row("expand columns", {400, 900}, {1, 0});
        row("expand scalar", {40, 90}, {0, 0});
        row("permuted", {20, 30, 40, 50}, {50, 40000, 1000, 1});
        row("reversed", {20, 30, 40, 50}, {1, 20, 600, 24000});
        row("transpose of a slice", {300, 200}, {3, 1000});
        row("overlapping", {500, 300}, {1, 1});
        row("length one", {1, 900, 1}, {7, 1, 3});
        row("middle expanded", {60, 8, 90}, {1, 0, 60});
    }
    void strides() {
        QFETCH(QList<qint64>, lengths);
        QFETCH(QList<qint64>, strides);
        Random random(3);
        for (DType dtype : {DType::uint8, DType::bfloat16, DType::float32, DType::complex128}) {
            const Dims l(lengths.begin(), lengths.end()), s(strides.begin(), strides.end());
            Strided strided(random, dtype, l, s);
            auto reader = strided.source.open(*strided.system);
            // Ample memory: held; little: through a scratch file (the executor's smallest budgets serve
            // here).
            for (uint64_t memory : {uint64_t{256} << 20, uint64_t{100} << 10}) {
                strided.system->clearRecords();
                Room room(memory);
                auto bytes = readWhole(*reader, 0, {}, room.resources());
                QVERIFY2(bytes.ok(), bytes.ok() ? "" : describe(bytes.error()).c_str());
                QVERIFY(*bytes == strided.tensor.data);
                uint64_t read = 0;
                for (const OpRecord& r : strided.system->records())
                    read += r.op == Op::read ? r.length : 0;
                if (s != Dims{1, 1}) QVERIFY2(read <= strided.spanBytes, std::to_string(read).c_str());
            }
            Room room;
            Box region;
            for (int64_t n : l) {
                region.offsets.push_back(n / 3);
                region.lengths.push_back(std::max<int64_t>(1, n / 4));
                if (region.offsets.back() + region.lengths.back() > n) region.offsets.back() = 0;
            }
            auto part = readRegion(*reader, 0, region, 1 << 30, room.resources());
            QVERIFY(part.ok());
            QVERIFY(*part == bytesOfPiece(strided.tensor, {region, std::nullopt}));
        }
    }

    void storedOtherwise() {
        Random random(4);
        const FakeTensor tensor{"c", DType::complex64, {100}, randomBytes(random, 800), kNone};
        Bytes stored = tensor.data;
        for (size_t i = 0; i < stored.size(); i += 4)
            std::reverse(stored.begin() + static_cast<ptrdiff_t>(i),
                         stored.begin() + static_cast<ptrdiff_t>(i + 4));
        auto system = std::make_shared<MemoryFileSystem>();
        system->put("/src/v.bin", stored);
        FakeSource source;
        source.tensors = {tensor};
        source.cuts = {{{Box{{0}, {100}}, std::nullopt}}};
        source.chunks = {{0, 0, 800, {}, true, true, true}};
        source.files = {"v.bin"};
        auto reader = source.open(*system);
        Room room;
        auto bytes = readWhole(*reader, 0, {}, room.resources());
        QVERIFY(bytes.ok());
        for (size_t i = 0; i < 100; ++i) {
            // conjugated and negated: the real part changes its sign, the imaginary part does so twice
            uint32_t want[2], got[2];
            std::memcpy(want, tensor.data.data() + i * 8, 8);
            std::memcpy(got, bytes->data() + i * 8, 8);
            QCOMPARE(got[0], want[0] ^ 0x80000000U);
            QCOMPARE(got[1], want[1]);
        }
    }

    void gaps() {
        Random random(5);
        auto system = std::make_shared<MemoryFileSystem>();
        FakeSource source;
        source.tensors = {{"f", DType::bfloat16, {4, 6}, randomBytes(random, 48), kNone},
                          {"i", DType::int32, {4, 6}, randomBytes(random, 96), kNone}};
        source.cuts.assign(2, {{Box{{0, 0}, {4, 2}}, std::nullopt}, {Box{{0, 4}, {4, 2}}, std::nullopt}});
        source.write(random, *system);
        auto reader = source.open(*system);
        Room room;
        ScanOptions options;
        auto refused = readWhole(*reader, 0, options, room.resources());
        QCOMPARE(refused.error().code, ErrorCode::damaged);
        QCOMPARE(refused.error().location.rule, std::string("coverage.gap"));
        options.fillGaps = FillGaps::nan;
        auto filled = readWhole(*reader, 0, options, room.resources());
        QVERIFY(filled.ok());
        for (size_t i = 0; i < 24; ++i) {
            uint16_t value, was;
            std::memcpy(&value, filled->data() + i * 2, 2);
            std::memcpy(&was, source.tensors[0].data.data() + i * 2, 2);
            const bool gap = i % 6 == 2 || i % 6 == 3;
            QCOMPARE(value, gap ? uint16_t{0x7fc0} : was);
        }
        QCOMPARE(readWhole(*reader, 1, options, room.resources()).error().code, ErrorCode::impossible);
        options.fillGaps = FillGaps::zero;
        QVERIFY(readWhole(*reader, 1, options, room.resources()).ok());
    }

    void counts() {
        Random random(6);
        for (DType dtype :
             {DType::bfloat16, DType::float16, DType::float32, DType::float64, DType::float8E5M2,
              DType::float8E4M3FN, DType::float8E5M2FNUZ, DType::int32, DType::complex64}) {
            FakeTensor tensor{"t", dtype, {5003}, {}, kNone};
            tensor.data = randomBytes(random, 5003 * dtypeBytes(dtype));
            const size_t size = dtypeBytes(dtype);
            uint64_t nan = 0, inf = 0, zero = 0;
            for (size_t i = 0; i < 5003; ++i) {
                if (random() % 3 == 0)
                    std::fill_n(tensor.data.begin() + static_cast<ptrdiff_t>(i * size), size, std::byte{0});
                double parts[2] = {0, 0};
                const size_t count = dtypeIsComplex(dtype) ? 2 : 1;
                for (size_t p = 0; p < count; ++p) {
                    const std::byte* at = tensor.data.data() + i * size + p * size / count;
                    if (dtype == DType::int32) {
                        int32_t v;
                        std::memcpy(&v, at, 4);
                        parts[p] = v;
                    } else if (dtype == DType::float64) {
                        std::memcpy(&parts[p], at, 8);
                    } else {
                        castElements(dtype == DType::complex64 ? DType::float32 : dtype, at, DType::float64,
                                     reinterpret_cast<std::byte*>(&parts[p]), 1);
                    }
                }
                const bool isNan = std::isnan(parts[0]) || std::isnan(parts[1]);
                nan += isNan;
                inf += !isNan && (std::isinf(parts[0]) || std::isinf(parts[1]));
                zero += parts[0] == 0 && parts[1] == 0;
            }
            auto system = std::make_shared<MemoryFileSystem>();
            FakeSource source;
            source.add(random, tensor);
            source.write(random, *system);
            Room room;
            auto digests = digestTensors(*source.open(*system), {0}, {}, room.resources());
            QVERIFY(digests.ok());
            const ValueCounts& got = (*digests)[0].counts;
            QCOMPARE(got.elements, uint64_t{5003});
            QCOMPARE(got.nan, nan);
            QCOMPARE(got.inf, inf);
            QCOMPARE(got.zero, zero);
        }
    }

    void regions() {
        for (unsigned seed = 0; seed < 60; ++seed) {
            Random random(seed);
            auto system = std::make_shared<MemoryFileSystem>();
            FakeSource source;
            source.add(random, randomTensor(random, "t", 20000, DType::float32));
            source.write(random, *system);
            auto reader = source.open(*system);
            Box region;
            for (int64_t n : source.tensors[0].shape) {
                region.offsets.push_back(pick(random, 0, n));
                region.lengths.push_back(pick(random, 0, n - region.offsets.back()));
            }
            Room room;
            auto bytes = readRegion(*reader, 0, region, 1 << 20, room.resources());
            QVERIFY(bytes.ok());
            QVERIFY(*bytes == bytesOfPiece(source.tensors[0], {region, std::nullopt}));
            if (!region.lengths.empty()) {
                region.lengths[0] = source.tensors[0].shape[0] + 1;
                QCOMPARE(readRegion(*reader, 0, region, 1 << 20, room.resources()).error().code,
                         ErrorCode::usage);
            }
        }
    }

    // A weight that is kept as its fp32 master: cast as it is read, in boxes, stretches, strides and either
    // byte order.
    void storedInAnotherDType() {
        Random random(11);
        const Dims shape{700, 300};
        const auto count = static_cast<size_t>(elementCount(shape));
        std::vector<float> values(count);
        for (float& value : values)
            value = static_cast<float>(static_cast<int32_t>(random())) / 1024;
        Bytes want(count * 2);
        castElements(DType::float32, reinterpret_cast<const std::byte*>(values.data()), DType::bfloat16,
                     want.data(), count);
        const auto half = static_cast<int64_t>(count / 2 + 17);
        for (const bool swapped : {false, true}) {
            Bytes plain(count * 4), turned(count * 4);
            for (size_t i = 0; i < count; ++i) {
                std::byte element[4];
                std::memcpy(element, &values[i], 4);
                if (swapped) std::reverse(element, element + 4);
                std::memcpy(plain.data() + i * 4, element, 4);
                const size_t across = (i % 300) * 700 + i / 300;
                std::memcpy(turned.data() + across * 4, element, 4);
            }
            const auto system = std::make_shared<MemoryFileSystem>();
            system->put("/src/a.bin", plain);
            system->put("/src/b.bin", turned);
            const Box whole{{0, 0}, shape}, left{{0, 0}, {700, 100}}, right{{0, 100}, {700, 200}};
            FakeSource source;
            const auto add = [&](const char* name, std::vector<Piece> pieces, std::vector<FakeChunk> chunks) {
                source.tensors.push_back({name, DType::bfloat16, shape, want, kNone});
                source.cuts.push_back(std::move(pieces));
                for (FakeChunk& chunk : chunks) {
                    chunk.swapBytes = swapped;
                    chunk.storedAs = DType::float32;
                    source.chunks.push_back(chunk);
                }
            };
            const uint64_t bytes = count * 4, middle = static_cast<uint64_t>(half) * 4;
            add("whole", {{whole, std::nullopt}}, {{0, 0, bytes, {}, false, false, false, {}}});
            add("stretches",
                {{whole, FlatRange{0, half}}, {whole, FlatRange{half, static_cast<int64_t>(count)}}},
                {{0, 0, middle, {}, false, false, false, {}},
                 {0, middle, bytes - middle, {}, false, false, false, {}}});
            add("strided", {{left, std::nullopt}, {right, std::nullopt}},
                {{1, 0, 700 * 100 * 4, {1, 700}, false, false, false, {}},
                 {1, 700 * 100 * 4, 700 * 200 * 4, {1, 700}, false, false, false, {}}});
            Room room;
            const auto reader = source.open(*system);
            for (TensorId t = 0; t < 3; ++t) {
                ScanOptions options;
                options.tileBytes = uint64_t{1} << 20;
                const auto read = readWhole(*reader, t, options, room.resources());
                QVERIFY2(read.ok(), read.ok() ? "" : describe(read.error()).c_str());
                QVERIFY2(*read == want, source.tensors[t].name.c_str());
            }
            const auto region = readRegion(*reader, 1, {{349, 290}, {1, 10}}, 64, room.resources());
            QVERIFY(region.ok());
            QVERIFY(std::equal(region->begin(), region->end(), want.begin() + (349 * 300 + 290) * 2));
        }
        // What is not cast is refused, and a length that is too short for what is stored is seen.
        const auto system = std::make_shared<MemoryFileSystem>();
        system->put("/src/a.bin", Bytes(64));
        FakeSource source;
        source.tensors = {{"t", DType::bfloat16, {8}, Bytes(16), kNone}};
        source.cuts = {{{Box{{0}, {8}}, std::nullopt}}};
        source.chunks = {{0, 0, 16, {}, false, false, false, DType::float32}};
        Room room;
        QCOMPARE(readWhole(*source.open(*system), 0, {}, room.resources()).error().code, ErrorCode::damaged);
        source.chunks[0].length = 32;
        QVERIFY(readWhole(*source.open(*system), 0, {}, room.resources()).ok());
        source.chunks[0].storedAs = DType::quint4x2;
        QCOMPARE(readWhole(*source.open(*system), 0, {}, room.resources()).error().code,
                 ErrorCode::unsupported);
    }

    void damagedExtents() {
        Random random(7);
        auto system = std::make_shared<MemoryFileSystem>();
        FakeSource source;
        source.tensors = {{"t", DType::float32, {20, 30}, randomBytes(random, 2400), kNone}};
        source.cuts = {{{Box{{0, 0}, {20, 30}}, std::nullopt}}};
        source.write(random, *system);
        source.chunks[0].offset = uint64_t{1} << 62;
        Room room;
        QCOMPARE(readWhole(*source.open(*system), 0, {}, room.resources()).error().code, ErrorCode::damaged);
        source.chunks[0].offset = 0;
        source.chunks[0].strides = Dims(source.cuts[0][0].box.lengths.size(), int64_t{1} << 60);
        QVERIFY(!readWhole(*source.open(*system), 0, {}, room.resources()).ok());
        source.chunks[0].strides = Dims(source.cuts[0][0].box.lengths.size() + 1, 1);
        QCOMPARE(readWhole(*source.open(*system), 0, {}, room.resources()).error().code, ErrorCode::damaged);
    }
};

QTEST_APPLESS_MAIN(TestScan)
#include "test_scan.moc"
