// What is laid out as DCP is read back by the reader: names, paths, boxes, ranks, bytes, objects, aliases.
#include <QtTest>
#include <random>
#include <set>

#include "assemble.h"
#include "formats/dcp/dcp.h"
#include "support/genuine.h"
#include "support/memory_file_system.h"
#include "support/write_layout.h"

using namespace shardscope;
using namespace shardscope::test;

namespace {

constexpr uint64_t kPage = 4096;

// Bytes of a tensor's elements that depend on its name and the position in the whole tensor only.
std::byte patternByte(std::string_view name, uint64_t position) {
    return static_cast<std::byte>(std::hash<std::string_view>{}(name)*31 + position * 131 +
                                  (position >> 8) * 17);
}

std::vector<std::byte> pattern(const Catalog& target, TensorId t, const ChunkInfo& chunk) {
    const TensorId first = target.aliasOf(t) == kNone ? t : target.aliasOf(t);
    const size_t width = dtypeBytes(target.dtype(t));
    std::vector<std::byte> out(static_cast<size_t>(chunk.elements()) * width);
    for (int64_t i = 0; i < chunk.elements(); ++i) {
        const auto at =
            static_cast<uint64_t>(positionOf(i, target.shape(t), chunk.offsets, chunk.lengths)) * width;
        for (size_t b = 0; b < width; ++b)
            out[static_cast<size_t>(i) * width + b] = patternByte(target.name(first), at + b);
    }
    return out;
}

Source memorySource(const std::shared_ptr<MemoryFileSystem>& fs, const std::string& path) {
    Source source;
    source.fileSystem = fs;
    source.display = path;
    source.directory = fs->openDirectory(path).value();
    source.entries = source.directory->list().value();
    return source;
}

// Lays `wanted` out in memory and opens the result.
struct Written {
    std::shared_ptr<MemoryFileSystem> fs = std::make_shared<MemoryFileSystem>();
    std::unique_ptr<TargetLayout> layout;
    std::unique_ptr<Reader> reader;
    std::string error;
};
Written writeAndOpen(const Catalog& target,
                     const std::function<std::vector<std::byte>(TensorId, const ChunkInfo&)>& bytes) {
    Written w;
    auto layout = dcpFormat().layout(target, {});
    if (!layout.ok()) return w.error = describe(layout.error()), std::move(w);
    w.layout = std::move(layout).value();
    if (auto made = w.fs->makeDirectory("/out"); !made.ok())
        return w.error = describe(made.error()), std::move(w);
    auto directory = w.fs->openDirectory("/out").value();
    if (auto done = writeLayout(target, *w.layout, *directory, bytes); !done.ok())
        return w.error = describe(done.error()), std::move(w);
    const Source source = memorySource(w.fs, "/out");
    if (dcpFormat().probe(source).match != Probe::Match::certain)
        return w.error = "not recognized", std::move(w);
    auto reader = dcpFormat().open(source, {});
    if (!reader.ok()) return w.error = describe(reader.error()), std::move(w);
    w.reader = std::move(reader).value();
    return w;
}

// As the boxes of a mesh of `ranks` along one dimension.
void addSplit(CatalogBuilder& builder, const Dims& shape, size_t dim, uint32_t ranks) {
    for (uint32_t r = 0; r < ranks; ++r) {
        Dims offsets(shape.size(), 0);
        Dims lengths = shape;
        if (!shape.empty()) {
            const Span1 piece = splitPiece(shape[dim], ranks, r, SplitRule::torch);
            offsets[dim] = piece.offset;
            lengths[dim] = piece.length;
        }
        QVERIFY(builder.addChunk({r, kNone, 0, 0, offsets, lengths, std::nullopt}).ok());
        if (shape.empty()) break;
    }
}

}  // namespace

class DcpWriteTest : public QObject {
    Q_OBJECT

  private:
    // Everything that must survive.
    void compare(const Catalog& target, const Written& w) {
        QVERIFY2(w.reader, w.error.c_str());
        const Catalog& found = w.reader->catalog();
        QCOMPARE(found.tensorCount(), target.tensorCount());
        QCOMPARE(found.rankCount(), target.rankCount());
        for (TensorId t = 0; t < target.tensorCount(); ++t) {
            const TensorId f = found.find(target.name(t));
            QVERIFY2(f != kNone, std::string(target.name(t)).c_str());
            QCOMPARE(found.dtype(f), target.dtype(t));
            QCOMPARE(found.endChunk(f) - found.firstChunk(f), target.endChunk(t) - target.firstChunk(t));
            const TensorId alias = target.aliasOf(t);
            QCOMPARE(found.aliasOf(f) == kNone, alias == kNone);
            if (alias != kNone) QCOMPARE(found.name(found.aliasOf(f)), target.name(alias));
            for (ChunkId c = 0; c < target.endChunk(t) - target.firstChunk(t); ++c) {
                const ChunkInfo a = target.chunk(t, target.firstChunk(t) + c);
                const ChunkInfo b = found.chunk(f, found.firstChunk(f) + c);
                QVERIFY(std::equal(a.offsets.begin(), a.offsets.end(), b.offsets.begin(), b.offsets.end()));
                QVERIFY(std::equal(a.lengths.begin(), a.lengths.end(), b.lengths.begin(), b.lengths.end()));
                if (alias == kNone) QCOMPARE(b.rank, a.rank == kNone ? 0 : a.rank);
            }
        }
        for (const Note& note : found.notes())
            QVERIFY2(note.severity != Severity::error, note.message.c_str());
        for (const TargetFile& file : w.layout->files)
            QCOMPARE(w.fs->get("/out/" + file.path).size(), size_t{file.size});
    }

  private slots:
    void randomMeshes_data() {
        QTest::addColumn<int>("seed");
        for (int seed = 0; seed < 12; ++seed)
            QTest::addRow("%d", seed) << seed;
    }
    void randomMeshes() {
        QFETCH(int, seed);
        std::mt19937 random(static_cast<unsigned>(seed));
        const auto upTo = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n + 1)); };
        const DType dtypes[] = {DType::float32,   DType::bfloat16,     DType::int64,  DType::boolean,
                                DType::complex64, DType::float8E4M3FN, DType::uint16, DType::float64};
        const auto ranks = static_cast<uint32_t>(1 + upTo(5));
        CatalogBuilder builder("wanted", "", "");
        builder.setRankCount(ranks);
        const int count = 1 + upTo(12);
        for (int i = 0; i < count; ++i) {
            TensorInfo info;
            info.name = "layers." + std::to_string(i) + ".w";
            info.path = {keyPart("layers"), indexPart(i), keyPart("w")};
            info.dtype = dtypes[random() % std::size(dtypes)];
            const int rank = upTo(3);
            for (int d = 0; d < rank; ++d)
                info.shape.push_back(upTo(7) == 0 ? 0 : 1 + upTo(i == 0 ? 90 : 20));
            QVERIFY(builder.addTensor(info).ok());
            const size_t dim = info.shape.empty() ? 0 : random() % info.shape.size();
            addSplit(builder, info.shape, dim, ranks);
            if (upTo(3) == 0 && elementCount(info.shape) > 0) {
                TensorInfo tied = info;
                tied.name = "tied." + std::to_string(i);
                tied.path = {keyPart("tied"), keyPart(std::to_string(i))};
                tied.aliasOf = static_cast<TensorId>(builder.tensorCount() - 1);
                QVERIFY(builder.addTensor(tied).ok());
                addSplit(builder, tied.shape, dim, ranks);
            }
        }
        ObjectInfo object;
        object.name = "step";
        object.path = {keyPart("step")};
        object.value = makeIntegerValue(7);
        builder.addObject(object);
        object.name = "note";
        object.path = {keyPart("note")};
        object.value = makeTextValue("h\xc3\xa9llo");
        builder.addObject(object);
        const Catalog target = std::move(builder).finish();
        const Written w =
            writeAndOpen(target, [&](TensorId t, const ChunkInfo& c) { return pattern(target, t, c); });
        compare(target, w);
        if (QTest::currentTestFailed()) return;
        const Catalog& found = w.reader->catalog();
        for (TensorId t = 0; t < target.tensorCount(); ++t) {
            const TensorId f = found.find(target.name(t));
            QCOMPARE(found.path(f), target.path(t));
            for (ChunkId c = 0; c < target.endChunk(t) - target.firstChunk(t); ++c) {
                const auto bytes = chunkElements(*w.reader, found.firstChunk(f) + c);
                QVERIFY2(bytes.ok(), bytes.ok() ? "" : describe(bytes.error()).c_str());
                QVERIFY(*bytes == pattern(target, t, target.chunk(t, target.firstChunk(t) + c)));
            }
        }
        QCOMPARE(found.objects().size(), size_t{2});
        QCOMPARE(valueToJson(w.reader->objectValue(0).value()), std::string("7"));
        QCOMPARE(valueToJson(w.reader->objectValue(1).value()), std::string("\"h\xc3\xa9llo\""));
    }

    void largeChunksStartOnPages() {
        CatalogBuilder builder("wanted", "", "");
        for (int i = 0; i < 6; ++i) {
            TensorInfo info;
            info.name = "t" + std::to_string(i);
            info.dtype = DType::uint8;
            info.shape = {i % 2 ? 70'000 : 100};
            QVERIFY(builder.addTensor(info).ok());
            QVERIFY(builder.addWhole(0, kNone, 0, 0).ok());
        }
        const Catalog target = std::move(builder).finish();
        const Written w =
            writeAndOpen(target, [&](TensorId t, const ChunkInfo& c) { return pattern(target, t, c); });
        compare(target, w);
        if (QTest::currentTestFailed()) return;
        for (ChunkId c = 0; c < 6; ++c) {
            QCOMPARE(w.reader->locate(c)->offset, w.layout->chunkOffset[c]);
            if (c % 2)
                QCOMPARE(w.layout->chunkOffset[c] % kPage, uint64_t{0});
            else
                QVERIFY(w.reader->catalog().chunk(c).length < 1500);
        }
    }

    void idleRanksGetEmptyFiles() {
        CatalogBuilder builder("wanted", "", "");
        TensorInfo info;
        info.name = "w";
        info.shape = {4};
        QVERIFY(builder.addTensor(info).ok());
        QVERIFY(builder.addWhole(1, kNone, 0, 0).ok());
        builder.setRankCount(4);
        const Catalog target = std::move(builder).finish();
        const Written w =
            writeAndOpen(target, [&](TensorId t, const ChunkInfo& c) { return pattern(target, t, c); });
        compare(target, w);
        if (QTest::currentTestFailed()) return;
        QCOMPARE(w.layout->files.size(), size_t{5});
        QVERIFY(w.fs->exists("/out/__3_0.distcp"));
        QVERIFY(w.fs->get("/out/__3_0.distcp").empty());
    }

    // Genuine checkpoints, written again as they are.
    void genuineAgain_data() {
        QTest::addColumn<int>("index");
        const auto all = genuineCases("dcp");
        for (size_t i = 0; i < all.size(); ++i) {
            if (all[i].expected["format"] == "dcp" && !all[i].damaged())
                QTest::newRow(all[i].name.c_str()) << static_cast<int>(i);
        }
    }
    void genuineAgain() {
        QFETCH(int, index);
        const GenuineCase c = genuineCases("dcp")[static_cast<size_t>(index)];
        auto opened = dcpFormat().open(sourceOf(c.path), {});
        QVERIFY(opened.ok());
        const Reader& source = **opened;
        const Catalog& from = source.catalog();
        CatalogBuilder builder("wanted", "", "");
        builder.setRankCount(from.rankCount());
        std::vector<std::vector<std::byte>> wholes;
        for (TensorId t = 0; t < from.tensorCount(); ++t) {
            const DimSpan shape = from.shape(t);
            QVERIFY(builder
                        .addTensor({std::string(from.name(t)),
                                    from.path(t),
                                    from.dtype(t),
                                    {shape.begin(), shape.end()},
                                    from.role(t),
                                    from.aliasOf(t),
                                    kNone})
                        .ok());
            for (const ChunkId k : distinct(from, t)) {
                const ChunkInfo chunk = from.chunk(t, k);
                QVERIFY(
                    builder.addChunk({chunk.rank, kNone, 0, 0, chunk.offsets, chunk.lengths, std::nullopt})
                        .ok());
            }
            wholes.push_back(assemble(source, t).value());
        }
        for (ObjectId o = 0; o < from.objects().size(); ++o) {
            ObjectInfo object = from.objects()[o];
            object.value = source.objectValue(o).value();
            object.file = kNone;
            CatalogBuilder probe("wanted", "", "");
            probe.addObject(object);
            if (dcpFormat().cannotHold(std::move(probe).finish(), {}).empty()) builder.addObject(object);
        }
        const Catalog target = std::move(builder).finish();
        const Written w = writeAndOpen(target, [&](TensorId t, const ChunkInfo& chunk) {
            const size_t width = dtypeBytes(target.dtype(t));
            std::vector<std::byte> out(static_cast<size_t>(chunk.elements()) * width);
            for (int64_t i = 0; i < chunk.elements(); ++i) {
                const auto at =
                    static_cast<size_t>(positionOf(i, target.shape(t), chunk.offsets, chunk.lengths)) * width;
                std::copy_n(wholes[t].begin() + static_cast<std::ptrdiff_t>(at), width,
                            out.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(i) * width));
            }
            return out;
        });
        compare(target, w);
        if (QTest::currentTestFailed()) return;
        const Catalog& found = w.reader->catalog();
        for (TensorId t = 0; t < found.tensorCount(); ++t) {
            QVERIFY(assemble(*w.reader, t).value() == wholes[from.find(found.name(t))]);
        }
        for (ObjectId o = 0; o < found.objects().size(); ++o) {
            QCOMPARE(found.objects()[o].path, target.objects()[o].path);
            QCOMPARE(valueToJson(w.reader->objectValue(o).value()), valueToJson(target.objects()[o].value));
        }
        // For a look with the real frameworks: SHARDSCOPE_KEEP=<folder> keeps what was written.
        if (const QByteArray keep = qgetenv("SHARDSCOPE_KEEP"); !keep.isEmpty()) {
            const std::string folder = keep.toStdString() + "/" + c.name;
            QVERIFY(QDir().mkpath(QString::fromStdString(folder)));
            for (const auto& [name, bytes] : w.fs->tree("/out")) {
                QFile file(QString::fromStdString(folder + "/" + name));
                QVERIFY(file.open(QIODevice::WriteOnly));
                file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<qint64>(bytes.size()));
            }
        }
    }

    void whatItCannotHold() {
        CatalogBuilder builder("wanted", "", "");
        TensorInfo info;
        info.name = "six";
        info.dtype = DType::float6E2M3;
        info.shape = {4};
        QVERIFY(builder.addTensor(info).ok());
        QVERIFY(builder.addWhole(0, kNone, 0, 0).ok());
        ValueGraph graph;
        const NodeId id =
            graph.addContainer(ValueKind::persistent, {graph.addText(ValueKind::text, "storage")});
        const NodeId tuple = graph.addContainer(ValueKind::tuple, {id});
        ObjectInfo object;
        object.name = "inner";
        object.path = {keyPart("inner")};
        object.value = makeValue(std::move(graph), tuple);
        builder.addObject(object);
        const Catalog target = std::move(builder).finish();
        const auto left = dcpFormat().cannotHold(target, {});
        QCOMPARE(left.size(), size_t{2});
        QCOMPARE(left[0].name, std::string("six"));
        QCOMPARE(left[1].name, std::string("inner"));
        QVERIFY(!dcpFormat().layout(target, {}).ok());
    }

  private:
    // Without replicas, which a destination never has.
    static std::vector<ChunkId> distinct(const Catalog& catalog, TensorId t) {
        std::vector<ChunkId> out;
        std::set<std::pair<Dims, Dims>> seen;
        for (ChunkId k = catalog.firstChunk(t); k < catalog.endChunk(t); ++k) {
            const ChunkInfo chunk = catalog.chunk(t, k);
            if (seen.insert({{chunk.offsets.begin(), chunk.offsets.end()},
                             {chunk.lengths.begin(), chunk.lengths.end()}})
                    .second)
                out.push_back(k);
        }
        return out;
    }
};

QTEST_APPLESS_MAIN(DcpWriteTest)
#include "dcp_write_test.moc"
