#include "model/infer_mesh.h"

#include <QtTest>

#include "formats/dcp/dcp.h"
#include "support/genuine.h"

using namespace shardscope;
using namespace shardscope::test;

namespace {

struct Piece {
    uint32_t rank;
    Dims offsets, lengths;
};

void add(CatalogBuilder& builder, const std::string& name, const Dims& shape,
         const std::vector<Piece>& pieces) {
    TensorInfo info;
    info.name = name;
    info.shape = shape;
    if (!builder.addTensor(info)) qFatal("tensor refused");
    for (const Piece& p : pieces) {
        if (!builder.addChunk({p.rank, kNone, 0, 0, p.offsets, p.lengths, std::nullopt}))
            qFatal("chunk refused");
    }
}

QString meshText(const Catalog& catalog) {
    const auto mesh = inferMesh(catalog);
    return mesh ? QString::fromStdString(formatMesh(*mesh)) : QString("none");
}

}  // namespace

class InferMeshTest : public QObject {
    Q_OBJECT

  private slots:
    void genuine_data() {
        QTest::addColumn<QString>("mesh");
        QTest::newRow("t2.15.0-fsdp2-tp") << "fsdp=2,tp=2";
        QTest::newRow("t2.6.0-fsdp2-tp") << "fsdp=2,tp=2";
        QTest::newRow("t2.15.0-hsdp") << "dp=2,fsdp=2";
        QTest::newRow("t2.15.0-pipeline") << "pp=4";
        QTest::newRow("t2.15.0-fsdp2-adam") << "fsdp=2";
        QTest::newRow("t2.15.0-fsdp2-adam-flat") << "fsdp=4";
        QTest::newRow("t2.15.0-fsdp2-model") << "fsdp=4";
        QTest::newRow("t2.15.0-fsdp1") << "fsdp=4";
        QTest::newRow("t2.15.0-no-dist") << "none";
        QTest::newRow("t2.15.0-sharded-tensor") << "none";
    }
    void genuine() {
        QFETCH(QString, mesh);
        const std::string path =
            std::string(SHARDSCOPE_TEST_DATA "/genuine/dcp/") + QTest::currentDataTag() + "/ckpt";
        const auto opened = dcpFormat().open(sourceOf(path), {});
        QVERIFY(opened.ok());
        QCOMPARE(meshText((*opened)->catalog()), mesh);
        if (const auto found = inferMesh((*opened)->catalog())) {
            QCOMPARE(found->evidence.size(), found->axes.size());
            QCOMPARE(found->ranks(), (*opened)->catalog().rankCount());
            for (const std::string& sentence : found->evidence)
                qInfo("%s", sentence.c_str());
        }
    }

    void tensorParallel() {
        CatalogBuilder builder("test", "", "");
        add(builder, "layers.0.q", {8, 4}, {{0, {0, 0}, {4, 4}}, {1, {4, 0}, {4, 4}}});
        add(builder, "layers.0.o", {4, 8}, {{0, {0, 0}, {4, 4}}, {1, {0, 4}, {4, 4}}});
        add(builder, "layers.0.norm", {4}, {{0, {0}, {4}}});
        const Catalog catalog = std::move(builder).finish();
        QCOMPARE(meshText(catalog), QString("tp=2"));
        QCOMPARE(inferMesh(catalog)->evidence[0],
                 std::string("tp=2: 1 tensor sharded in 2 along dim 0, 1 tensor sharded in 2 along dim 1"));
        const TensorCut cut = tensorCut(catalog, 1);
        QCOMPARE(cut.parts, (Dims{1, 2}));
        QVERIFY(cut.regular);
        QCOMPARE(cut.ranks, 2u);
    }

    void pipelineOfTensorParallel() {
        CatalogBuilder builder("test", "", "");
        for (uint32_t layer = 0; layer < 4; ++layer) {
            const uint32_t first = layer / 2 * 2;
            const std::string name = "layers." + std::to_string(layer);
            add(builder, name + ".q", {8, 4}, {{first, {0, 0}, {4, 4}}, {first + 1, {4, 0}, {4, 4}}});
            add(builder, name + ".o", {4, 8}, {{first, {0, 0}, {4, 4}}, {first + 1, {0, 4}, {4, 4}}});
        }
        QCOMPARE(meshText(std::move(builder).finish()), QString("pp=2,tp=2"));
    }

    void scatteredReplicasAreNoPipeline() {
        CatalogBuilder builder("test", "", "");
        for (uint32_t i = 0; i < 8; ++i) {
            add(builder, "layers." + std::to_string(i / 2) + (i % 2 ? ".w" : ".b"), {4},
                {{i % 3 == 0 ? 0U : 1U, {0}, {4}}});
        }
        QCOMPARE(meshText(std::move(builder).finish()), QString("none"));
    }
};

QTEST_APPLESS_MAIN(InferMeshTest)
#include "infer_mesh_test.moc"
