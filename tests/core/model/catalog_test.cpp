#include "model/catalog.h"

#include <QTest>

using namespace shardscope;

class CatalogTest : public QObject {
    Q_OBJECT

  private slots:
    void columnsGiveBackWhatWentIn() {
        CatalogBuilder builder("dcp", "v", "w");
        const FileId file = builder.addFile({"a.distcp", 100, FileInfo::State::present, false, 1, true});
        TensorInfo info;
        info.name = "b";
        info.shape = {4, 2};
        info.dtype = DType::bfloat16;
        QVERIFY(builder.addTensor(info).ok());
        const Dims zero{0, 0}, half{2, 2}, lower{2, 0};
        QVERIFY(builder.addChunk({0, file, 0, 8, zero, half, std::nullopt}).ok());
        QVERIFY(builder.addChunk({1, file, 8, 8, lower, half, std::nullopt}).ok());
        info.name = "a.x";
        info.path = {keyPart("a"), keyPart("x")};
        info.shape = {};
        info.role = Role::optimizer;
        QVERIFY(builder.addTensor(info).ok());
        info.name = "none";
        info.path = {};
        info.shape = {0, 3};
        QVERIFY(builder.addTensor(info).ok());
        QVERIFY(builder.addWhole(kNone, file, 16, 0).ok());
        const Catalog c = std::move(builder).finish();
        QCOMPARE(c.tensorCount(), size_t{3});
        QCOMPARE(c.find("a.x"), 1U);
        QCOMPARE(c.find("zz"), kNone);
        QCOMPARE(c.path(1).size(), size_t{2});
        QCOMPARE(c.path(0).size(), size_t{1});
        QCOMPARE(c.endChunk(0) - c.firstChunk(0), 2U);
        QCOMPARE(c.endChunk(1) - c.firstChunk(1), 0U);
        QCOMPARE(c.chunk(1).offsets[0], int64_t{2});
        QCOMPARE(c.tensorOf(1), 0U);
        QCOMPARE(c.tensorOf(2), 2U);
        QCOMPARE(c.rankCount(), 2U);
        QCOMPARE(c.totalBytes(), uint64_t{16 + 2});
        QVERIFY(c.notes().empty());
    }

    // Boxes that a reader holds in one column, with other numbers in between.
    void boxesAreTakenOver() {
        CatalogBuilder builder("dcp", "", "");
        const FileId file = builder.addFile({"a", 100, FileInfo::State::present, false, 3, true});
        std::vector<int64_t> column{9, 0, 0, 2, 2, 2, 0, 2, 2, 9, 5, 7};
        TensorInfo info;
        info.name = "scalar";
        QVERIFY(builder.addTensor(info).ok());
        QVERIFY(builder.addBoxes(column, 0, 1).ok());
        info.name = "matrix";
        info.shape = {4, 2};
        QVERIFY(builder.addTensor(info).ok());
        QVERIFY(builder.addBoxes(column, 1, 2).ok());
        info.name = "outside";
        info.shape = {6};
        QVERIFY(builder.addTensor(info).ok());
        QVERIFY(builder.addBoxes(column, 10, 1).ok());
        QVERIFY(!builder.addBoxes(column, 11, 1).ok());
        const CatalogBuilder::Columns columns = builder.columns();
        QCOMPARE(columns.files.size(), size_t{4});
        columns.files[2] = file;
        columns.ranks[2] = 3;
        columns.offsets[2] = 16;
        columns.lengths[2] = 32;
        builder.takeDims(std::move(column));
        const Catalog c = std::move(builder).finish();
        QCOMPARE(c.chunkCount(), size_t{4});
        QVERIFY(c.chunk(0).offsets.empty());
        const ChunkInfo second = c.chunk(2);
        QCOMPARE(second.tensor, 1U);
        QCOMPARE(second.file, file);
        QCOMPARE(second.rank, 3U);
        QCOMPARE(second.offset, uint64_t{16});
        QCOMPARE(second.length, uint64_t{32});
        QCOMPARE(second.offsets[0], int64_t{2});
        QCOMPARE(second.lengths[1], int64_t{2});
        QCOMPARE(c.chunk(1).file, kNone);
        QCOMPARE(c.notes().size(), size_t{1});
        QCOMPARE(c.notes()[0].rule, std::string("coverage.bounds"));
        QCOMPARE(c.notes()[0].tensor, std::string("outside"));
    }

    void impossibleShapesAreRefused() {
        CatalogBuilder builder("x", "", "");
        TensorInfo info;
        info.name = "t";
        info.shape = {-1};
        QVERIFY(!builder.addTensor(info).ok());
        info.shape = {int64_t{1} << 40, int64_t{1} << 40};
        QVERIFY(!builder.addTensor(info).ok());
        info.shape = Dims(65, 1);
        QVERIFY(!builder.addTensor(info).ok());
        info.shape = {int64_t{1} << 60};
        QVERIFY(!builder.addTensor(info).ok());
        info.shape = {4};
        QVERIFY(builder.addTensor(info).ok());
        const Dims one{0}, two{0, 0}, big{5}, negative{-1};
        QVERIFY(!builder.addChunk({0, 0, 0, 0, two, two, std::nullopt}).ok());
        QVERIFY(!builder.addChunk({0, 0, 0, 0, one, negative, std::nullopt}).ok());
        QVERIFY(!builder.addChunk({0, kNone, 0, 0, one, big, FlatRange{0, 6}}).ok());
        QVERIFY(builder.addChunk({0, kNone, 0, 0, one, big, std::nullopt}).ok());
        const Catalog c = std::move(builder).finish();
        QCOMPARE(c.notes().size(), size_t{1});
        QCOMPARE(c.notes()[0].rule, std::string("coverage.bounds"));
    }

    void duplicateNamesAreTold() {
        CatalogBuilder builder("x", "", "");
        TensorInfo info;
        info.shape = {};
        for (const char* name : {"same", "other", "same", "same"}) {
            info.name = name;
            QVERIFY(builder.addTensor(info).ok());
        }
        const Catalog c = std::move(builder).finish();
        QCOMPARE(c.name(2), std::string_view("same~2"));
        QCOMPARE(c.name(3), std::string_view("same~3"));
        QCOMPARE(c.find("same~3"), 3U);
        QCOMPARE(c.notes().size(), size_t{2});
    }

    // Files state the sizes of meshes; 65,536 x 65,536 is 0 in 32 bits.
    void impossibleMeshesAreLeftOut() {
        const auto of = [](std::vector<MeshAxis> axes) {
            CatalogBuilder builder("dcp", "", "");
            builder.setMesh(Mesh{std::move(axes), Mesh::Source::declared, {}});
            return std::move(builder).finish();
        };
        QVERIFY(of({{"dp", 1000}, {"tp", 1000}}).mesh());
        for (const auto& axes :
             {std::vector<MeshAxis>{{"dp", 65536}, {"tp", 65536}}, {{"dp", 0}}, {{"dp", 1'000'001}}}) {
            const Catalog c = of(axes);
            QVERIFY(!c.mesh());
            QCOMPARE(c.notes().size(), size_t{1});
        }
    }

    void aMillionChunksStaySmall() {
        CatalogBuilder builder("dcp", "", "");
        const FileId file = builder.addFile({});
        for (int t = 0; t < 1000; ++t) {
            TensorInfo info;
            info.name = "model.layers." + std::to_string(t) + ".weight";
            info.shape = {4096, 4096};
            QVERIFY(builder.addTensor(info).ok());
            for (int k = 0; k < 1000; ++k) {
                const Dims offsets{k, 0}, lengths{1, 4096};
                QVERIFY(builder.addChunk({0, file, 0, 8192, offsets, lengths, std::nullopt}).ok());
            }
        }
        const Catalog c = std::move(builder).finish();
        QCOMPARE(c.chunkCount(), size_t{1'000'000});
        QVERIFY2(c.memoryBytes() < 80'000'000, std::to_string(c.memoryBytes()).c_str());
    }
};

QTEST_GUILESS_MAIN(CatalogTest)
#include "catalog_test.moc"
