// Tensors stored in files: every way in which a chunk can be a part of one, entries that have to be unpacked.
#include "formats/tensor_files.h"

#include <QtTest>
#include <algorithm>
#include <future>
#include <latch>
#include <set>

#include "base/names.h"
#include "encoding/flat_yaml.h"
#include "encoding/safetensors_file.h"
#include "engine/engine.h"
#include "formats/entry_tree.h"
#include "formats/index/index.h"
#include "formats/paddle_dist/pickles.h"
#include "model/roles.h"
#include "support/genuine.h"
#include "support/memory_file_system.h"

using namespace shardscope;
using namespace shardscope::test;

namespace {

struct StoredAt {
    std::shared_ptr<MemoryFileSystem> files = std::make_shared<MemoryFileSystem>();
    Source source;

    void put(const std::string& name, const std::string& text) {
        const auto bytes = std::as_bytes(std::span(text));
        files->put("/d/" + name, {bytes.begin(), bytes.end()});
        source.fileSystem = files;
        source.directory = files->openDirectory("/d").value();
    }
    size_t scratchFiles() const {
        const std::vector<OpRecord> records = files->records();
        return static_cast<size_t>(std::count_if(records.begin(), records.end(), [](const OpRecord& r) {
            return r.op == Op::allocate && r.path.starts_with("scratch:");
        }));
    }
};

// A safetensors file with one tensor whose elements count from 0.
std::string counting(const Dims& shape) {
    const std::string raw = floats(static_cast<int>(elementCount(shape)));
    std::vector<safetensors::FileEntry> entries{{"w", DType::float32, shape, raw.size(), 0}};
    return safetensors::layOutFile(entries, {})->head + raw;
}

// The elements of an extent, in the row-major order of its box.
std::vector<float> elementsOf(const Extent& extent, const Dims& lengths) {
    const Dims strides = extent.strides.empty() ? rowMajorStrides(lengths) : extent.strides;
    std::vector<float> out;
    for (int64_t i = 0; i < elementCount(lengths); ++i) {
        int64_t rest = i, at = 0;
        for (size_t d = lengths.size(); d-- > 0;) {
            at += rest % lengths[d] * strides[d];
            rest /= lengths[d];
        }
        float value = -1;
        if (!extent.file
                 ->readAt(extent.offset + static_cast<uint64_t>(at) * 4,
                          std::as_writable_bytes(std::span(&value, 1)))
                 .ok())
            return {};
        out.push_back(value);
    }
    return out;
}

// A dict with a parameter of shape [rows, 2] that is split in two parts.
std::string splitParameter() {
    return stateDict({{"w@@.0", {4}, floats(4)}, {"w@@.1", {6}, floats(6, 4)}}, PickleWriter::For::python3,
                     [](PickleWriter& w) {
                         w.text("UnpackBigParamInfor@@");
                         w.emptyDict();
                         w.text("w");
                         w.emptyDict();
                         w.text("OriginShape");
                         putDims(w, {5, 2});
                         w.setItem();
                         w.text("slices");
                         w.emptyList();
                         w.text("w@@.0");
                         w.append();
                         w.text("w@@.1");
                         w.append();
                         w.setItem();
                         w.setItem();
                     });
}

}  // namespace

class TensorFilesTest : public QObject {
    Q_OBJECT

  private slots:
    void partsOfNames() {
        QVERIFY(isDigits("07") && !isDigits("") && !isDigits("7a"));
        const NumberedName name("model_12/rank-003.pt");
        QCOMPARE(name.text, std::string("model_#/rank-#.pt"));
        QVERIFY(name.numbers == (std::vector<uint64_t>{12, 3}));
        QCOMPARE(withoutNumbers("a1b22"), std::string("a#b#"));
    }

    void fieldsOfYaml() {
        std::string all;
        forYamlFields("a: 1\r\nb:\n  c: 2\nno field\nd:\tx y ",
                      [&](std::string_view key, std::string_view value) {
                          all += std::string(key) + "=" + std::string(value) + ";";
                      });
        QCOMPARE(all, std::string("a=1;b=;d=x y;"));
    }

    // The state of a data loader may list millions of indices.
    void manyPartsArePickled() {
        ValueGraph graph;
        std::vector<NodeId> items;
        for (int64_t i = 0; i <= 1'000'000; ++i)
            items.push_back(graph.addInteger(i));
        const NodeId list = graph.addContainer(ValueKind::list, items);
        QCOMPARE(whyNotPickled(makeValue(std::move(graph), list)), std::string());
    }

    // What is optimizer state or another state of the trainer, by its place and by the names beside it.
    void rolesByNames() {
        RoleFinder roles;
        const std::vector<std::pair<const char*, Role>> names{
            {"model.module.layers.0.weight", Role::parameter},
            {"model.module.layers.0.norm.running_mean", Role::buffer},
            {"optimizer.state.module.layers.0.weight.exp_avg", Role::optimizer},
            {"optimizer.state.exp_avg.module.layers.0.weight", Role::optimizer},
            {"optim.module.layers.0.weight.momentum", Role::optimizer},
            {"app.optimizer.state.0.exp_avg_sq_row", Role::optimizer},
            {"optimizer_states.0.state.3.step", Role::optimizer},
            {"state.0.exp_avg", Role::optimizer},
            {"exp_avg.model.module.layers.0.weight", Role::optimizer},
            {"model.module.layers.0.weight.momentum_buffer", Role::optimizer},
            {"rng_state.cpu", Role::other},
            {"extra_state.rank_0.rng.cpu", Role::other},
            {"lr_scheduler._last_lr.0", Role::other},
            {"scheduler.base_lrs.0", Role::other},
            {"scaler.scale", Role::other},
            {"scaler._growth_tracker", Role::other},
            {"model.module.layers.0.attention._extra_state", Role::other},
            // Of a model, though the words are those of a trainer.
            {"model.module.optimizer_head.weight", Role::parameter},
            {"model.module.state.0.weight", Role::parameter},
            {"noise_scheduler.alphas", Role::parameter},
            {"model.scaler_layer.scale", Role::parameter},
            {"model.module.exp_avg", Role::parameter},
        };
        for (const auto& [name, role] : names)
            roles.add(name);
        for (const auto& [name, role] : names)
            QVERIFY2(roles.role(name) == role, name);
    }

    // Either side of a chunk is a box or a flat range.
    void chunksAndParts_data() {
        QTest::addColumn<QList<qint64>>("shape");    // of the tensor
        QTest::addColumn<QList<qint64>>("offsets");  // of the chunk's box
        QTest::addColumn<QList<qint64>>("lengths");
        QTest::addColumn<QList<qint64>>("flat");  // of the chunk
        QTest::addColumn<int>("part");            // 0 whole, 1 range, 2 box, 3 strided
        QTest::addColumn<QList<qint64>>(
            "of");  // range: first, count; box: offsets and lengths; strided: first, strides
        QTest::addColumn<QList<int>>("elements");  // empty: refused
        using L = QList<qint64>;
        using E = QList<int>;
        // Stored: shape [4, 3], elements 0 to 11.
        QTest::newRow("box, whole") << L{8, 3} << L{4, 0} << L{4, 3} << L{} << 0 << L{}
                                    << E{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
        QTest::newRow("box, range") << L{4, 4} << L{2, 0} << L{1, 4} << L{} << 1 << L{5, 4} << E{5, 6, 7, 8};
        QTest::newRow("box, box") << L{9, 9} << L{2, 2} << L{2, 2} << L{} << 2 << L{1, 1, 2, 2}
                                  << E{4, 5, 7, 8};
        QTest::newRow("box, strided") << L{9} << L{2} << L{4} << L{} << 3 << L{1, 3} << E{1, 4, 7, 10};
        QTest::newRow("flat, whole") << L{30} << L{0} << L{30} << L{5, 17} << 0 << L{}
                                     << E{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
        QTest::newRow("flat, range") << L{5, 6} << L{0, 0} << L{5, 6} << L{7, 10} << 1 << L{2, 3}
                                     << E{2, 3, 4};
        QTest::newRow("flat, box in one piece")
            << L{30} << L{0} << L{30} << L{3, 9} << 2 << L{2, 0, 2, 3} << E{6, 7, 8, 9, 10, 11};
        QTest::newRow("flat, box apart") << L{30} << L{0} << L{30} << L{3, 7} << 2 << L{1, 1, 2, 2} << E{};
        QTest::newRow("box of other lengths apart")
            << L{9, 9} << L{0, 0} << L{1, 4} << L{} << 2 << L{1, 1, 2, 2} << E{};
        QTest::newRow("range outside") << L{4} << L{0} << L{4} << L{} << 1 << L{9, 4} << E{};
        QTest::newRow("box outside") << L{9, 9} << L{0, 0} << L{2, 2} << L{} << 2 << L{3, 1, 2, 2} << E{};
        QTest::newRow("strides outside") << L{9} << L{2} << L{4} << L{} << 3 << L{3, 3} << E{};
        QTest::newRow("another count") << L{9} << L{2} << L{4} << L{} << 1 << L{0, 3} << E{};
    }
    void chunksAndParts() {
        QFETCH(QList<qint64>, shape);
        QFETCH(QList<qint64>, offsets);
        QFETCH(QList<qint64>, lengths);
        QFETCH(QList<qint64>, flat);
        QFETCH(int, part);
        QFETCH(QList<qint64>, of);
        QFETCH(QList<int>, elements);
        const auto dims = [](const QList<qint64>& list) { return Dims(list.begin(), list.end()); };
        StoredAt place;
        place.put("a.safetensors", counting({4, 3}));
        CatalogBuilder builder("test", "", "");
        FileInfo info;
        info.path = "a.safetensors";
        info.size = counting({4, 3}).size();
        const FileId id = builder.addFile(info);
        auto files = std::make_unique<TensorFiles>(place.source, OpenOptions{});
        const auto file = files->add("a.safetensors", id);
        QVERIFY(file.ok());
        TensorInfo tensor;
        tensor.name = "w";
        tensor.shape = dims(shape);
        QVERIFY(builder.addTensor(tensor).ok());
        const Dims at = dims(offsets), size = dims(lengths);
        CatalogBuilder::Chunk chunk;
        chunk.rank = 0;
        chunk.file = id;
        chunk.offsets = at;
        chunk.lengths = size;
        if (!flat.isEmpty()) chunk.flat = FlatRange{flat[0], flat[1]};
        QVERIFY(builder.addChunk(chunk).ok());
        StoredPart stored = StoredPart::whole(*file, 0);
        if (part == 1) stored = StoredPart::range(*file, 0, of[0], of[1]);
        if (part == 2) stored = StoredPart::box(*file, 0, {of[0], of[1]}, {of[2], of[3]});
        if (part == 3) {
            stored.firstElement = of[0];
            stored.lengths = size;
            stored.strides = dims(of.mid(1));
        }
        StoredParts parts;
        parts.add(std::move(stored));
        const auto reader =
            makePartReader(place.source, std::move(builder).finish(), std::move(files), std::move(parts));
        const auto extent = reader->locate(0);
        QCOMPARE(extent.ok(), !elements.isEmpty());
        if (!extent.ok()) {
            QVERIFY(extent.error().code == ErrorCode::damaged ||
                    extent.error().code == ErrorCode::unsupported);
            QCOMPARE(extent.error().location.tensor, std::string("w"));
            return;
        }
        const auto found = elementsOf(*extent, flat.isEmpty() ? size : Dims{flat[1] - flat[0]});
        QCOMPARE(QList<int>(found.begin(), found.end()), elements);
    }

    void zerosAreLookedAt() {
        StoredAt place;
        place.put("a.safetensors", counting({12}));
        TensorFiles files(place.source, {});
        const auto file = files.add("a.safetensors");
        QVERIFY(file.ok());
        StoredPart part = StoredPart::range(*file, 0, 4, 4);
        part.zeros = {StoredPart::range(*file, 0, 0, 1)};
        QVERIFY(files.extent(part).ok());
        part.zeros = {StoredPart::range(*file, 0, 0, 3)};
        const auto wrong = files.extent(part);
        QVERIFY(!wrong.ok());
        QVERIFY(wrong.error().message.starts_with("element 1 of the 12 "));
        QVERIFY(wrong.error().location.offset.has_value());
    }

    void splitParameterIsJoinedOnce() {
        StoredAt place;
        place.put("m.pdparams", splitParameter());
        TensorFiles files(place.source, {}, TensorFiles::Writer::paddle);
        const auto file = files.add("m.pdparams");
        QVERIFY2(file.ok(), file.ok() ? "" : describe(file.error()).c_str());
        const uint32_t w = files[*file].find("w");
        QVERIFY(w != kNone);
        const auto whole = files.extent(StoredPart::whole(*file, w));
        QVERIFY2(whole.ok(), whole.ok() ? "" : describe(whole.error()).c_str());
        const std::vector<float> expected{0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
        QCOMPARE(elementsOf(*whole, {5, 2}), expected);
        const auto again = files.extent(StoredPart::whole(*file, w));
        QVERIFY(again->file == whole->file);
        // A box across the parts is one of the same file; a range inside of a part needs none.
        const auto box = files.extent(StoredPart::box(*file, w, {1, 1}, {2, 1}));
        QVERIFY(box->file == whole->file);
        QCOMPARE(elementsOf(*box, {2, 1}), (std::vector<float>{3, 5}));
        const auto inside = files.extent(StoredPart::range(*file, w, 5, 3));
        QVERIFY(inside->file != whole->file);
        QCOMPARE(elementsOf(*inside, {3}), (std::vector<float>{5, 6, 7}));
        const auto across = files.extent(StoredPart::range(*file, w, 3, 3));
        QVERIFY(across->file == whole->file);
        QCOMPARE(elementsOf(*across, {3}), (std::vector<float>{3, 4, 5}));
        QCOMPARE(place.scratchFiles(), 0U);  // small enough for memory
    }

    // Files that are read on demand are read once, and a failure is remembered.
    void filesAreReadOnce() {
        StoredAt place;
        place.put("a.safetensors", counting({2}));
        place.put("b.safetensors", "no header");
        TensorFiles files(place.source, {});
        std::latch together(4);
        std::vector<std::future<Result<uint32_t>>> added;
        for (int i = 0; i < 4; ++i) {
            added.push_back(std::async(std::launch::async, [&] {
                together.arrive_and_wait();
                return files.add("a.safetensors");
            }));
        }
        for (auto& one : added)
            QCOMPARE(one.get().value(), 0U);
        QCOMPARE(files.size(), 1U);
        const auto broken = files.add("b.safetensors");
        QVERIFY(!broken.ok());
        place.put("b.safetensors", counting({2}));
        QCOMPARE(files.add("b.safetensors").error().message, broken.error().message);
    }
};

QTEST_GUILESS_MAIN(TensorFilesTest)
#include "tensor_files_test.moc"
