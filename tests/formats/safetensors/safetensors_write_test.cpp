#include <QtTest>

#include <nlohmann/json.hpp>

#include "files.h"
#include "model/coverage.h"

using namespace shardscope;
using namespace shardscope::test;

namespace {

struct Wanted {
    CatalogBuilder builder{"test", "", ""};
    Wanted& tensor(const std::string& name, DType dtype, const Dims& shape,
                   std::vector<std::pair<uint32_t, Box>> chunks = {}, TensorId aliasOf = kNone) {
        TensorInfo info;
        info.name = name;
        info.dtype = dtype;
        info.shape = shape;
        info.aliasOf = aliasOf;
        if (!builder.addTensor(info).ok()) qFatal("tensor refused");
        if (chunks.empty()) chunks.push_back({0, {Dims(shape.size(), 0), shape}});
        for (const auto& [rank, box] : chunks) {
            if (!builder.addChunk({rank, kNone, 0, 0, box.offsets, box.lengths, std::nullopt}).ok())
                qFatal("chunk refused");
        }
        return *this;
    }
    Wanted& metadata(const std::vector<std::pair<std::string, std::string>>& texts) {
        ValueGraph graph;
        std::vector<NodeId> items;
        for (const auto& [key, value] : texts) {
            items.push_back(graph.addText(ValueKind::text, key));
            items.push_back(graph.addText(ValueKind::text, value));
        }
        ObjectInfo object;
        object.name = "__metadata__";
        const NodeId dict = graph.addContainer(ValueKind::dict, std::move(items));
        object.value = makeValue(std::move(graph), dict);
        builder.addObject(std::move(object));
        return *this;
    }
    Catalog done() { return std::move(builder).finish(); }
};

// Writes the layout with byte (tensor number + element number) everywhere, and opens the result.
std::unique_ptr<Reader> materialize(const Catalog& target, const TargetLayout& layout,
                                    MemoryCheckpoint& checkpoint) {
    std::vector<std::string> files;
    for (const TargetFile& file : layout.files)
        files.emplace_back(file.size, '\xEE');
    for (TensorId t = 0; t < target.tensorCount(); ++t) {
        if (target.aliasOf(t) != kNone) continue;
        const size_t size = dtypeBytes(target.dtype(t));
        for (ChunkId c = target.firstChunk(t); c < target.endChunk(t); ++c) {
            const ChunkInfo chunk = target.chunk(t, c);
            forEachRun(0, chunk.elements(), target.shape(t), chunk.offsets, chunk.lengths,
                       [&](int64_t from, int64_t to, int64_t count) {
                           for (int64_t i = 0; i < count * static_cast<int64_t>(size); ++i) {
                               files[layout.chunkFile[c]].at(layout.chunkOffset[c] +
                                                             static_cast<size_t>(from) * size +
                                                             static_cast<size_t>(i)) =
                                   static_cast<char>(t * 7 + static_cast<size_t>(to) * size +
                                                     static_cast<size_t>(i));
                           }
                       });
        }
    }
    for (FileId f = 0; f < layout.files.size(); ++f) {
        const Status status = layout.fileLiterals(
            f, {}, [&](FileId file, uint64_t offset, std::span<const std::byte> bytes) -> Status {
                if (file != f || offset + bytes.size() > files[f].size()) qFatal("literal outside its file");
                std::memcpy(files[f].data() + offset, bytes.data(), bytes.size());
                return {};
            });
        if (!status.ok()) qFatal("%s", describe(status.error()).c_str());
        checkpoint.put(layout.files[f].path, files[f]);
    }
    auto opened = checkpoint.open();
    if (!opened.ok()) qFatal("%s", describe(opened.error()).c_str());
    return std::move(opened).value();
}

void compare(const Catalog& target, const Reader& reader) {
    const Catalog& catalog = reader.catalog();
    for (const Note& note : catalog.notes())
        QVERIFY2(note.severity == Severity::info, note.message.c_str());
    for (TensorId w = 0; w < target.tensorCount(); ++w) {
        const TensorId t = catalog.find(target.name(w));
        QCOMPARE(t == kNone, target.aliasOf(w) != kNone);
        if (t == kNone) continue;
        QCOMPARE(catalog.dtype(t), target.dtype(w));
        QCOMPARE(formatDims(catalog.shape(t)), formatDims(target.shape(w)));
        QVERIFY(checkCoverage(catalog, t).whole());
        const size_t size = dtypeBytes(target.dtype(w));
        for (ChunkId c : coveringChunks(catalog, t)) {
            const ChunkInfo chunk = catalog.chunk(t, c);
            const Extent extent = reader.locate(c).value();
            std::vector<std::byte> stored(extent.length);
            QVERIFY(extent.file->readAt(extent.offset, stored).ok());
            forEachRun(0, chunk.elements(), catalog.shape(t), chunk.offsets, chunk.lengths,
                       [&](int64_t from, int64_t to, int64_t count) {
                           for (int64_t i = 0; i < count * static_cast<int64_t>(size); ++i) {
                               const size_t at = static_cast<size_t>(from) * size + static_cast<size_t>(i);
                               QCOMPARE(static_cast<char>(stored[at]),
                                        static_cast<char>(w * 7 + static_cast<size_t>(to) * size +
                                                          static_cast<size_t>(i)));
                           }
                       });
        }
    }
}

std::string headerOf(const MemoryCheckpoint& checkpoint, const std::string& name) {
    const auto bytes = checkpoint.system->get("/c/" + name);
    uint64_t length = 0;
    for (size_t i = 8; i-- > 0;)
        length = length << 8 | static_cast<uint8_t>(bytes[i]);
    return std::string(reinterpret_cast<const char*>(bytes.data()) + 8, length);
}

}  // namespace

class SafetensorsWriteTest : public QObject {
    Q_OBJECT

  private slots:
    void single() {
        const Catalog target = Wanted()
                                   .tensor("odd", DType::uint8, {7})
                                   .tensor("small \"q\" ш", DType::bfloat16, {5})
                                   .tensor("page", DType::float32, {1024})
                                   .tensor("pages", DType::float32, {4, 1024})
                                   .tensor("scalar", DType::float64, {})
                                   .tensor("nothing", DType::int64, {0, 3})
                                   .tensor("fp4", DType::float4E2M1FNx2, {2, 3})
                                   .tensor("tied", DType::float32, {1024}, {}, 2)
                                   .metadata({{"step", "5"}, {"format", "pt"}})
                                   .done();
        QVERIFY(safetensorsFormat().cannotHold(target, {}).empty());
        const auto layout = safetensorsFormat().layout(target, {});
        QVERIFY(layout.ok());
        QCOMPARE((*layout)->files.size(), size_t{1});
        QCOMPARE((*layout)->files[0].path, std::string("model.safetensors"));
        QCOMPARE((*layout)->changed.size(), size_t{1});
        for (TensorId t : {TensorId{2}, TensorId{3}})
            QCOMPARE((*layout)->chunkOffset[target.firstChunk(t)] % 4096, uint64_t{0});
        for (TensorId t = 0; t < target.tensorCount(); ++t) {
            QCOMPARE((*layout)->chunkOffset[target.firstChunk(t)] % dtypeBytes(target.dtype(t)), uint64_t{0});
        }
        MemoryCheckpoint checkpoint;
        const auto reader = materialize(target, **layout, checkpoint);
        compare(target, *reader);
        const auto header = nlohmann::ordered_json::parse(headerOf(checkpoint, "model.safetensors"));
        QCOMPARE(header.begin().key(), std::string("__metadata__"));
        QCOMPARE(header["__metadata__"].dump(), std::string(R"({"format":"pt","step":"5","tied":"page"})"));
        QCOMPARE(header["fp4"]["shape"].dump(), std::string("[2,6]"));
        QCOMPARE(reader->catalog().objects().size(), size_t{1});
    }

    void severalFiles() {
        Wanted w;
        for (int i = 0; i < 10; ++i)
            w.tensor("t" + std::to_string(i), DType::float32, {100});
        w.tensor("alias", DType::float32, {100}, {}, 0);
        const Catalog target = w.done();
        WriteOptions options;
        options.maxFileSize = 1000;
        const auto layout = safetensorsFormat().layout(target, options);
        QVERIFY(layout.ok());
        QCOMPARE((*layout)->files.size(), size_t{6});
        QCOMPARE((*layout)->files[0].path, std::string("model-00001-of-00005.safetensors"));
        QVERIFY((*layout)->files[5].metadata);
        MemoryCheckpoint checkpoint;
        const auto reader = materialize(target, **layout, checkpoint);
        compare(target, *reader);
        const auto bytes = checkpoint.system->get("/c/model.safetensors.index.json");
        const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        QVERIFY(text.ends_with("}\n"));
        auto json = nlohmann::json::parse(text);  // members sorted, as the text must be
        QCOMPARE(json["metadata"]["total_size"].get<int>(), 4000);
        QCOMPARE(json["metadata"]["alias"].get<std::string>(), std::string("t0"));
        QCOMPARE(json.dump(2) + "\n", text);

        options.variant = "single";
        QCOMPARE((*safetensorsFormat().layout(target, options))->files.size(), size_t{1});
        options = {};
        options.variant = "sharded";
        QCOMPARE((*safetensorsFormat().layout(target, options))->files[0].path,
                 std::string("model-00001-of-00001.safetensors"));
    }

    void cutOverRanks() {
        const Catalog target =
            Wanted()
                .tensor("rows", DType::float32, {6, 4},
                        {{0, {{0, 0}, {2, 4}}},
                         {1, {{2, 0}, {2, 4}}},
                         {2, {{4, 0}, {2, 4}}},
                         {3, {{6, 0}, {0, 4}}}})
                .tensor("columns", DType::bfloat16, {4, 6}, {{0, {{0, 0}, {4, 3}}}, {1, {{0, 3}, {4, 3}}}})
                .tensor("twice", DType::uint8, {8},
                        {{0, {{0}, {2}}}, {1, {{2}, {2}}}, {0, {{4}, {2}}}, {1, {{6}, {2}}}})
                .tensor("whole", DType::int64, {3}, {{2, {{0}, {3}}}})
                .tensor("scalar", DType::float32, {}, {{1, {{}, {}}}})
                .done();
        const auto layout = safetensorsFormat().layout(target, {});
        QVERIFY(layout.ok());
        QCOMPARE((*layout)->files[0].path, std::string("shard-00001-model-00001-of-00002.safetensors"));
        MemoryCheckpoint checkpoint;
        const auto reader = materialize(target, **layout, checkpoint);
        compare(target, *reader);
        QCOMPARE(reader->catalog().variant(), std::string("dcp-sharded"));
        const Catalog& catalog = reader->catalog();
        QCOMPARE(size_t{catalog.endChunk(catalog.find("rows")) - catalog.firstChunk(catalog.find("rows"))},
                 size_t{3});
        const auto header =
            nlohmann::json::parse(headerOf(checkpoint, "shard-00002-model-00001-of-00002.safetensors"));
        const auto info =
            nlohmann::json::parse(header["__metadata__"]["DCP_SHARDING_INFO"].get<std::string>());
        QCOMPARE(info["rows"].dump(), std::string(R"({"global_shape":[6,4],"saved_offsets":[2,0]})"));

        WriteOptions single;
        single.variant = "single";
        QCOMPARE(safetensorsFormat().layout(target, single).error().code, ErrorCode::impossible);
    }

    void whatCannotBeHeld() {
        Wanted w;
        w.tensor("__metadata__", DType::uint8, {1})
            .tensor("c", DType::complex128, {1})
            .tensor("q", DType::qint8, {1});
        w.tensor("six", DType::float6E2M3, {3})
            .tensor("\xFF", DType::uint8, {1})
            .tensor("good", DType::complex64, {1});
        ObjectInfo object;
        object.name = "step";
        object.value = makeIntegerValue(3);
        w.builder.addObject(std::move(object));
        const Catalog target = w.done();
        const auto left = safetensorsFormat().cannotHold(target, {});
        QCOMPARE(left.size(), size_t{6});
        QCOMPARE(left[1].why, std::string("safetensors has no dtype complex128"));
        QCOMPARE(safetensorsFormat().layout(target, {}).error().code, ErrorCode::impossible);
    }

    void nothingAtAll() {
        const Catalog target = Wanted().done();
        const auto layout = safetensorsFormat().layout(target, {});
        QVERIFY(layout.ok());
        MemoryCheckpoint checkpoint;
        QCOMPARE(materialize(target, **layout, checkpoint)->catalog().tensorCount(), size_t{0});
    }
};

QTEST_APPLESS_MAIN(SafetensorsWriteTest)
#include "safetensors_write_test.moc"
