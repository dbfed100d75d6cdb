// Parts of tensors into memory of the caller: what arrives is compared with the same done one element at a
// time, and what lies between stays as it was.
#include <QTest>

#include "execute/fake_checkpoint.h"
#include "execute/region_reading.h"

using namespace shardscope;
using namespace shardscope::test;

namespace {

constexpr auto kUntouched = std::byte{0xAA};

struct Room {
    ThreadPool pool{3};
    MemoryBudget memory{uint64_t{64} << 20};
    StopSource stop;
    Resources resources() {
        Resources resources;
        resources.pool = &pool;
        resources.memory = &memory;
        resources.stop = stop;
        return resources;
    }
};

// A reading of a region, the memory for it, and what that must be afterwards.
struct Request {
    RegionRead read;
    Bytes memory, wanted;
};

Request request(const FakeSource& source, RegionRead read) {
    const FakeTensor& tensor = source.tensors[read.tensor];
    const auto size = static_cast<int64_t>(dtypeBytes(tensor.dtype));
    int64_t last = 0;
    for (size_t d = 0; d < read.counts.size(); ++d)
        last += std::max<int64_t>(read.counts[d] - 1, 0) * read.toStrides[d];
    Request out{std::move(read), Bytes(static_cast<size_t>((last + 1) * size), kUntouched), {}};
    out.wanted = out.memory;
    out.read.to = out.memory.data();
    const Dims strides = rowMajorStrides(tensor.shape);
    Dims index(tensor.shape.size(), 0);
    for (int64_t i = elementCount(out.read.counts); i-- > 0;) {
        int64_t from = 0, to = 0;
        for (size_t d = 0; d < index.size(); ++d) {
            from += (out.read.starts[d] + index[d] * out.read.steps[d]) * strides[d];
            to += index[d] * out.read.toStrides[d];
        }
        std::memcpy(out.wanted.data() + to * size, tensor.data.data() + from * size,
                    static_cast<size_t>(size));
        for (size_t d = index.size(); d-- > 0;) {
            if (++index[d] < out.read.counts[d]) break;
            index[d] = 0;
        }
    }
    return out;
}

RegionRead whole(const FakeSource& source, TensorId t) {
    const Dims& shape = source.tensors[t].shape;
    return {t, Dims(shape.size(), 0), shape, Dims(shape.size(), 1), nullptr, rowMajorStrides(shape)};
}

// A region of any size, nothing included, to memory whose dimensions are in any order and may have gaps.
RegionRead randomRegion(Random& random, const FakeSource& source, TensorId t) {
    RegionRead read = whole(source, t);
    const Dims& shape = source.tensors[t].shape;
    if (random() % 4 != 0) {
        for (size_t d = 0; d < shape.size(); ++d) {
            if (random() % 3 == 0) continue;
            read.starts[d] = pick(random, 0, shape[d] - 1);
            read.steps[d] = random() % 2 ? 1 : pick(random, 1, 5);
            read.counts[d] =
                pick(random, random() % 20 ? 1 : 0, (shape[d] - 1 - read.starts[d]) / read.steps[d] + 1);
        }
    }
    std::vector<size_t> order(shape.size());
    std::iota(order.begin(), order.end(), size_t{0});
    if (random() % 2) std::shuffle(order.begin(), order.end(), random);
    int64_t stride = random() % 3 ? 1 : 2;
    for (size_t i = order.size(); i-- > 0;) {
        read.toStrides[order[i]] = stride;
        stride *= std::max<int64_t>(read.counts[order[i]], 1);
        if (random() % 4 == 0) stride += pick(random, 1, 3);
    }
    return read;
}

FakeSource oneTensor(Random& random, MemoryFileSystem& system, const Dims& shape,
                     std::vector<Piece> cuts = {}) {
    FakeSource source;
    FakeTensor tensor{"t", DType::float32, shape, {}, kNone};
    tensor.data = randomBytes(random, static_cast<size_t>(elementCount(shape)) * 4);
    if (cuts.empty()) cuts.push_back({Box{Dims(shape.size(), 0), shape}, std::nullopt});
    source.cuts.push_back(std::move(cuts));
    source.tensors.push_back(std::move(tensor));
    source.write(random, system);
    return source;
}

void readAndCompare(const FakeSource& source, FileSystem& system, std::vector<Request>& requests,
                    uint64_t* read = nullptr) {
    Room room;
    std::vector<RegionRead> reads;
    for (Request& r : requests) {
        r.read.to = r.memory.data();  // which copies of a request have for themselves
        reads.push_back(r.read);
    }
    const auto done = readRegions(*source.open(system), reads, FillGaps::refuse, room.resources());
    QVERIFY2(done.ok(), done.ok() ? "" : describe(done.error()).c_str());
    if (read) *read = *done;
    for (const Request& r : requests)
        QVERIFY(r.memory == r.wanted);
    room.memory.acquire(room.memory.limit());  // waits until nothing is held
}

}  // namespace

class TestRegions : public QObject {
    Q_OBJECT

  private slots:
    void randomRegions() {
        const DType dtypes[] = {DType::uint8, DType::bfloat16, DType::float32, DType::complex128};
        for (unsigned seed = 0; seed < 300; ++seed) {
            Random random(seed);
            const auto kept = std::make_shared<MemoryFileSystem>();
            MemoryFileSystem& system = *kept;
            FakeSource source;
            const int64_t most = seed % 30 == 0 ? 300'000 : 2000;
            for (int i = 0; i < 3; ++i)
                source.add(random, randomTensor(random, "t" + std::to_string(i), most, dtypes[random() % 4]));
            source.write(random, system);
            std::vector<Request> requests;
            for (int i = 0; i < 6; ++i)
                requests.push_back(
                    request(source, randomRegion(random, source, static_cast<TensorId>(random() % 3))));
            readAndCompare(source, system, requests);
            if (QTest::currentTestFailed()) qFatal("seed %u", seed);
        }
    }

    // Regions that are large enough to be spread over threads: as they lie, transposed, and every second
    // column.
    void largeRegions() {
        Random random(1);
        const auto kept = std::make_shared<MemoryFileSystem>();
        MemoryFileSystem& system = *kept;
        const Dims shape{1536, 2048};
        const FakeSource source = oneTensor(random, system, shape, cutGrid(random, shape));
        std::vector<Request> requests{request(source, whole(source, 0))};
        RegionRead turned = whole(source, 0);
        turned.toStrides = {1, shape[0]};
        requests.push_back(request(source, turned));
        RegionRead columns = whole(source, 0);
        columns.counts[1] = shape[1] / 2;
        columns.steps[1] = 2;
        columns.toStrides[0] = columns.counts[1];
        requests.push_back(request(source, columns));
        readAndCompare(source, system, requests);
    }

    // Strided storage, as views in torch.save files have it.
    void stridedChunk() {
        Random random(2);
        const auto kept = std::make_shared<MemoryFileSystem>();
        MemoryFileSystem& system = *kept;
        FakeSource source = oneTensor(random, system, {60, 70});
        FakeTensor& tensor = source.tensors[0];
        Bytes turned(tensor.data.size());
        for (size_t r = 0; r < 60; ++r)
            for (size_t c = 0; c < 70; ++c)
                std::memcpy(turned.data() + (c * 60 + r) * 4, tensor.data.data() + (r * 70 + c) * 4, 4);
        source.chunks[0].offset = 0;
        source.chunks[0].strides = {1, 60};
        system.put("/src/" + source.files[source.chunks[0].file], turned);
        std::vector<Request> requests;
        for (int i = 0; i < 20; ++i)
            requests.push_back(request(source, randomRegion(random, source, 0)));
        readAndCompare(source, system, requests);
    }

    // Rows that lie apart are read one by one; those with small gaps between them together.
    void readsLittleMore() {
        for (const int64_t columns : {1024, 4096}) {
            Random random(3);
            const auto kept = std::make_shared<MemoryFileSystem>();
            MemoryFileSystem& system = *kept;
            const FakeSource source = oneTensor(random, system, {512, columns});
            RegionRead read = whole(source, 0);
            read.starts = {100, 17};
            read.counts = {128, 128};
            read.toStrides = {128, 1};
            std::vector<Request> requests{request(source, read)};
            system.clearRecords();
            uint64_t bytes = 0;
            readAndCompare(source, system, requests, &bytes);
            uint64_t seen = 0;
            for (const OpRecord& record : system.records())
                seen += record.op == Op::read ? record.length : 0;
            QCOMPARE(seen, bytes);
            QCOMPARE(bytes, static_cast<uint64_t>(columns == 1024 ? (127 * 1024 + 128) * 4 : 128 * 128 * 4));
        }
    }

    void wrongRegions() {
        Random random(4);
        const auto kept = std::make_shared<MemoryFileSystem>();
        MemoryFileSystem& system = *kept;
        const FakeSource source = oneTensor(random, system, {6, 4});
        const auto reader = source.open(system);
        constexpr int64_t kMost = INT64_MAX;
        std::vector<RegionRead> wrong;
        const auto with = [&](auto change) {
            RegionRead read = whole(source, 0);
            change(read);
            wrong.push_back(read);
        };
        with([](RegionRead& r) { r.starts[0] = -1; });
        with([](RegionRead& r) { r.starts[0] = 6; });
        with([](RegionRead& r) { r.starts[1] = 1; });
        with([](RegionRead& r) { r.counts[0] = -1; });
        with([](RegionRead& r) { r.counts[0] = kMost; });
        with([](RegionRead& r) { r.steps[0] = 0; });
        with([](RegionRead& r) { r.steps[1] = 2; });
        with([](RegionRead& r) { r.steps[0] = kMost; });
        with([](RegionRead& r) { r.toStrides[0] = -4; });
        with([](RegionRead& r) { r.toStrides.pop_back(); });
        with([](RegionRead& r) { r.counts.push_back(1); });
        Room room;
        for (const RegionRead& read : wrong) {
            const auto done = readRegions(*reader, {read}, FillGaps::refuse, room.resources());
            QVERIFY(!done.ok());
            QCOMPARE(done.error().code, ErrorCode::usage);
            QCOMPARE(done.error().location.tensor, std::string("t"));
        }
        with([](RegionRead& r) { r.tensor = 1; });
        QCOMPARE(readRegions(*reader, {wrong.back()}, FillGaps::refuse, room.resources()).error().code,
                 ErrorCode::internal);
        // Nothing is inside everything.
        RegionRead nothing = whole(source, 0);
        nothing.starts = {6, 4};
        nothing.counts = {0, 0};
        QCOMPARE(readRegions(*reader, {nothing}, FillGaps::refuse, room.resources()).value(), uint64_t{0});
    }

    void gaps() {
        Random random(5);
        const auto kept = std::make_shared<MemoryFileSystem>();
        MemoryFileSystem& system = *kept;
        const FakeSource source =
            oneTensor(random, system, {8, 5},
                      {{Box{{0, 0}, {3, 5}}, std::nullopt}, {Box{{5, 0}, {3, 5}}, std::nullopt}});
        const auto reader = source.open(system);
        Room room;
        Request all = request(source, whole(source, 0));
        all.read.to = all.memory.data();
        const auto refused = readRegions(*reader, {all.read}, FillGaps::refuse, room.resources());
        QCOMPARE(refused.error().code, ErrorCode::damaged);
        QCOMPARE(refused.error().location.rule, std::string("coverage.gap"));
        std::fill(all.memory.begin(), all.memory.end(), kUntouched);
        QVERIFY(readRegions(*reader, {all.read}, FillGaps::zero, room.resources()).ok());
        std::fill(all.wanted.begin() + 3 * 5 * 4, all.wanted.begin() + 5 * 5 * 4, kUntouched);
        QVERIFY(all.memory == all.wanted);
        // Nor is a part given of a tensor that is not whole.
        RegionRead rows = whole(source, 0);
        rows.starts[0] = 5;
        rows.counts[0] = 3;
        Request there = request(source, rows);
        there.read.to = there.memory.data();
        QCOMPARE(readRegions(*reader, {there.read}, FillGaps::refuse, room.resources()).error().location.rule,
                 std::string("coverage.gap"));
        QVERIFY(readRegions(*reader, {there.read}, FillGaps::zero, room.resources()).ok());
        QVERIFY(there.memory == there.wanted);
    }

    // Elements that share bytes: the whole tensor, or an error.
    void packed() {
        Random random(6);
        const auto kept = std::make_shared<MemoryFileSystem>();
        MemoryFileSystem& system = *kept;
        FakeSource source;
        FakeTensor tensor{"t", DType::float6E2M3, {4, 8}, randomBytes(random, 24), kNone};
        source.tensors.push_back(tensor);
        source.cuts.push_back({{Box{{0, 0}, {4, 8}}, std::nullopt}});
        source.chunks.push_back({0, 0, 24, {}, false, false, false, std::nullopt});
        system.put("/src/a.bin", tensor.data);
        Room room;
        Bytes memory(24);
        RegionRead read = whole(source, 0);
        read.to = memory.data();
        QVERIFY(readRegions(*source.open(system), {read}, FillGaps::refuse, room.resources()).ok());
        QVERIFY(memory == tensor.data);
        read.counts[0] = 2;
        QCOMPARE(readRegions(*source.open(system), {read}, FillGaps::refuse, room.resources()).error().code,
                 ErrorCode::unsupported);
    }

    void stoppedAndTruncated() {
        Random random(7);
        const auto kept = std::make_shared<MemoryFileSystem>();
        MemoryFileSystem& system = *kept;
        const FakeSource source = oneTensor(random, system, {3000, 1000});
        const auto reader = source.open(system);
        Request all = request(source, whole(source, 0));
        Room stopped;
        stopped.stop.requestStop();
        QCOMPARE(readRegions(*reader, {all.read}, FillGaps::refuse, stopped.resources()).error().code,
                 ErrorCode::cancelled);
        const std::string file = "/src/" + source.files[source.chunks[0].file];
        Bytes less = system.get(file);
        less.resize(less.size() / 2);
        system.put(file, less);
        Room room;
        const auto done = readRegions(*source.open(system), {all.read}, FillGaps::refuse, room.resources());
        QVERIFY(!done.ok());
        QCOMPARE(done.error().location.tensor, std::string("t"));
        room.memory.acquire(room.memory.limit());  // waits until nothing is held
    }
};

QTEST_GUILESS_MAIN(TestRegions)
#include "test_regions.moc"
