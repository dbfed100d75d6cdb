// The picture of the mesh: stages with their layers, ranks with their groups, drawings of any number of them.
#include "survey/mesh_picture.h"

#include <QTest>
#include <QXmlStreamReader>

using namespace shardscope;

namespace {

using FactsPtr = std::shared_ptr<Facts>;

FactsPtr factsOf(const char* mesh, uint32_t layers) {
    auto facts = std::make_shared<Facts>();
    facts->mesh = parseMesh(mesh).value();
    facts->ranks.resize(facts->mesh->ranks());
    facts->medianRankBytes = 1000;
    facts->stageAxis = facts->mesh->axisIndex("pp");
    for (RankFacts& rank : facts->ranks) {
        rank.bytes = 1000;
        rank.chunks = 10;
    }
    const uint32_t stages =
        facts->stageAxis < 0 ? 1 : facts->mesh->axes[static_cast<size_t>(facts->stageAxis)].size;
    for (uint32_t i = 0; i < layers; ++i) {
        LayerFacts layer{"model.layers." + std::to_string(i), "model.layers", i, {}};
        if (facts->stageAxis >= 0) layer.stages = {i * stages / layers};
        facts->layers.push_back(layer);
    }
    return facts;
}

QByteArray drawn(const MeshPicture& picture, double width, double height) {
    return QByteArray::fromStdString(svgOf(picture, width, height, false));
}

// Each rank that the cells of a drawing name, and how often.
std::map<uint32_t, int> drawnRanks(const QByteArray& drawing) {
    std::map<uint32_t, int> ranks;
    QXmlStreamReader reader(drawing);
    while (!reader.atEnd()) {
        if (reader.readNext() != QXmlStreamReader::StartElement) continue;
        const QString data = reader.attributes().value("data-ranks").toString();
        for (const QString& span : data.split(' ', Qt::SkipEmptyParts)) {
            for (uint32_t r = span.section('-', 0, 0).toUInt(); r <= span.section('-', -1).toUInt(); ++r)
                ++ranks[r];
        }
    }
    return reader.hasError() ? std::map<uint32_t, int>() : ranks;
}

}  // namespace

class MeshPictureTest : public QObject {
    Q_OBJECT

  private slots:
    void stagesSayWhatTheyHold() {
        const FactsPtr facts = factsOf("pp=2,dp=2,tp=2", 8);
        facts->looseModules = {{"embed_tokens", {0}}, {"norm", {1}}, {"rotary", {0, 1}}};
        facts->layers[5].stages = {0, 1};
        facts->layers[6].stages = {};
        // Experts are no layers of their own.
        facts->layers.push_back({"model.layers.0.experts.3", "model.layers.0.experts", 3, {0}});
        const auto picture = MeshPicture::of(facts);
        QVERIFY(picture->hasStages());
        QCOMPARE(picture->title(), std::string("pp 2 × dp 2 × tp 2, declared"));
        QCOMPARE(picture->stageTitle(0), std::string("pp0: layers 0–3, 5, embed_tokens"));
        QCOMPARE(picture->stageTitle(1, true), std::string("pp1: 4–5, 7"));
        QCOMPARE(picture->remarks(),
                 std::string("model.layers.5 is in stages 0–1, model.layers.6 is on no stage."));
    }

    void ranksKnowTheirGroups() {
        const FactsPtr facts = factsOf("pp=2,dp=2,tp=2", 2);
        facts->ranks[6].sameAs = 4;
        facts->ranks[6].health = Health::missing;
        facts->ranks[6].cut = true;
        facts->ranks[6].experts = "0–7";
        const auto picture = MeshPicture::of(facts);
        QCOMPARE(picture->group(6, 0), (std::vector<uint32_t>{2, 6}));
        QCOMPARE(picture->group(6, 1), (std::vector<uint32_t>{4, 6}));
        QCOMPARE(picture->group(6, 2), (std::vector<uint32_t>{6, 7}));
        QCOMPARE(picture->rankText(6),
                 std::string("Rank 6 (pp1 dp1 tp0)\n1000 B, 10 chunks\nExperts 0–7\nA replica of rank 4\n"
                             "Worst state: truncated\nGroups: pp: 2, 6 · dp: 4, 6 · tp: 6–7"));
    }

    void outliersAndDamageAreRemarked() {
        std::vector<uint64_t> bytes(100, 1000);
        bytes[17] = 400;
        bytes[40] = 0;
        QCOMPARE(outlyingRanks(bytes, 1000), (std::vector<uint32_t>{40, 17}));
        QVERIFY(outlyingRanks(std::vector<uint64_t>(100, 1000), 1000).empty());
        const FactsPtr facts = factsOf("fsdp=8", 1);
        facts->ranks[3].bytes = 500;
        facts->ranks[5].health = Health::missing;
        const auto picture = MeshPicture::of(facts);
        QCOMPARE(picture->remarks(),
                 std::string("Damaged: rank 5 (missing). 1 rank out of line: rank 3 holds "
                             "500 B (50.0 % below the median)."));
    }

    void everyRankIsDrawnOnce_data() {
        QTest::addColumn<QString>("mesh");
        for (const char* mesh :
             {"fsdp=2", "fsdp=8,tp=4", "pp=4,dp=2,tp=4", "fsdp=48", "pp=3", "dp=4,ep=4,tp=2",
              "dp_replicate=2,fsdp=4", "pp=16,dp=128,tp=8", "dp=512,tp=8", "fsdp=16384", "a=3,b=5,c=7,d=2"})
            QTest::newRow(mesh) << QString::fromLatin1(mesh);
    }

    // However many there are, and however little room.
    void everyRankIsDrawnOnce() {
        QFETCH(QString, mesh);
        const auto picture = MeshPicture::of(factsOf(mesh.toLatin1().constData(), 32));
        for (const auto& [width, height] :
             {std::pair(960.0, 540.0), std::pair(380.0, 220.0), std::pair(1.0, 1.0)}) {
            const std::map<uint32_t, int> ranks = drawnRanks(drawn(*picture, width, height));
            QCOMPARE(ranks.size(), size_t{picture->rankCount()});
            for (const auto& [rank, count] : ranks)
                QCOMPARE(count, 1);
        }
        const MeshDrawing drawing = drawMesh(*picture, 700, 340, DrawnType());
        QVERIFY2(drawing.width <= 701 && drawing.height <= 345,
                 qPrintable(QStringLiteral("%1 x %2").arg(drawing.width).arg(drawing.height)));
        for (const MeshDrawing::Cell& cell : drawing.cells)
            QVERIFY(cell.rect.x >= 0 && cell.rect.x + cell.rect.width <= drawing.width + 0.01 &&
                    cell.rect.y + cell.rect.height <= drawing.height);
        // The keys reach all of them.
        QCOMPARE(drawing.neighbor(-1, 1, 0), 0);
        QVERIFY(drawing.cellOf(picture->rankCount() - 1) >= 0);
    }

    void namesCannotBreakTheDrawing() {
        const FactsPtr facts = factsOf("pp=2,tp=2", 2);
        facts->looseModules = {{"</svg><script>alert(1)</script>\x1b&\"", {1}}};
        facts->mesh->axes[1].name = "t<p";
        const QByteArray drawing = drawn(*MeshPicture::of(facts), 960, 540);
        QCOMPARE(drawnRanks(drawing).size(), size_t{4});
        QVERIFY(!drawing.contains("<script"));
    }

    void aMeshThatDoesNotFitIsNone() {
        const FactsPtr facts = factsOf("fsdp=4", 1);
        facts->mesh->axes = {{"fsdp", 65536}, {"tp", 65536}};
        const auto picture = MeshPicture::of(facts);
        QVERIFY(!picture->known());
        QCOMPARE(picture->title(), std::string("4 ranks, no mesh known"));
        facts->ranks.resize(1);
        QVERIFY(!MeshPicture::of(facts));
    }

    void forATerminal() {
        const FactsPtr facts = factsOf("pp=2,dp=2,tp=2", 4);
        facts->ranks[3].health = Health::missing;
        facts->ranks[5].bytes = 400;
        QCOMPARE(
            MeshPicture::of(facts)->text(true),
            std::string("pp 2 × dp 2 × tp 2, declared\n"
                        "pp0: layers 0–1\n"
                        "  dp0              ##\n"
                        "  dp1              #/\n"
                        "pp1: layers 2–3\n"
                        "  dp0              #2\n"
                        "  dp1              ##\n"
                        "a letter is a rank along tp; # holds 1000 B, . nothing\n"
                        "Damaged: rank 3 (missing). 1 rank out of line: rank 5 holds 400 B (60.0 % below "
                        "the median).\n"));
    }
};

QTEST_GUILESS_MAIN(MeshPictureTest)
#include "mesh_picture_test.moc"
