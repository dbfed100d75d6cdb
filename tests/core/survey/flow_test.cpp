// Who reads what: every byte of the target counts once, for the file that has it and the rank that wants it.
#include "plan/flow.h"

#include <QTest>
#include <QXmlStreamReader>
#include <map>

#include "plan/request_text.h"
#include "plan/steps.h"
#include "survey/flow_picture.h"

using namespace shardscope;

namespace {

// A [8, 6] tensor of floats in rows on two ranks, and one of 12 elements in flat ranges on three.
Catalog source() {
    CatalogBuilder builder("dcp", "", "");
    for (uint32_t rank = 0; rank < 3; ++rank)
        builder.addFile({"__" + std::to_string(rank) + "_0.distcp", 1 << 20, FileInfo::State::present, false,
                         rank, true});
    const auto tensor = [&](const char* name, Dims shape) {
        TensorInfo info;
        info.name = name;
        info.path = {keyPart(name)};
        info.dtype = DType::float32;
        info.shape = std::move(shape);
        QVERIFY(builder.addTensor(info).ok());
    };
    const auto chunk = [&](uint32_t rank, DimSpan offsets, DimSpan lengths, std::optional<FlatRange> flat) {
        QVERIFY(builder.addChunk({rank, rank, 0, flat ? 16U : 96U, offsets, lengths, flat}).ok());
    };
    tensor("w", {8, 6});
    const Dims lengths{4, 6};
    for (uint32_t rank = 0; rank < 2; ++rank) {
        const Dims offsets{int64_t{rank} * 4, 0};
        chunk(rank, offsets, lengths, {});
        // A replica, which nobody reads.
        chunk(2, offsets, lengths, {});
    }
    tensor("flat", {3, 4});
    const Dims zero{0, 0}, all{3, 4};
    for (uint32_t rank = 0; rank < 3; ++rank)
        chunk(rank, zero, all, FlatRange{rank * 4, rank * 4 + 4});
    return std::move(builder).finish();
}

TargetSpec targetOf(const Catalog& source, const char* mesh, const std::vector<const char*>& rules) {
    TargetRequest request;
    request.mesh = parseMesh(mesh).value();
    for (const char* rule : rules)
        request.shard.push_back(parseShardRule(rule).value());
    TargetInput input;
    input.source = &source;
    input.format = "dcp";
    input.objectValue = [](ObjectId) -> Result<Value> { return makeIntegerValue(1); };
    return resolveTarget(input, request).value();
}

std::map<std::pair<uint32_t, uint32_t>, uint64_t> cells(const Flow& flow) {
    std::map<std::pair<uint32_t, uint32_t>, uint64_t> all;
    for (const Flow::Row& row : flow.rows)
        all[{row.file, row.rank}] = row.bytes;
    return all;
}

}  // namespace

class FlowTest : public QObject {
    Q_OBJECT

  private slots:
    void bytesByFileAndRank() {
        const Catalog from = source();
        const TargetSpec spec = targetOf(from, "tp=2", {"w:tp=1", "flat:tp=0"});
        const auto flow = flowOf(from, spec, {});
        QVERIFY(flow.ok());
        QVERIFY(flow->exact);
        // Each of the ranks takes three columns of every row, and of `flat` two rows, then one.
        const std::map<std::pair<uint32_t, uint32_t>, uint64_t> expected{
            {{0, 0}, 48 + 16}, {{1, 0}, 48 + 16}, {{0, 1}, 48}, {{1, 1}, 48}, {{2, 1}, 16}};
        QCOMPARE(cells(*flow), expected);
    }

    void everyByteOnce() {
        const Catalog from = source();
        for (const char* mesh : {"tp=1", "tp=3", "tp=5", "dp=2,tp=2"}) {
            const TargetSpec spec = targetOf(from, mesh, {"*:tp=0"});
            const auto flow = flowOf(from, spec, {});
            QVERIFY(flow.ok());
            uint64_t sum = 0, wanted = 0;
            for (const Flow::Row& row : flow->rows)
                sum += row.bytes;
            for (TensorId t = 0; t < spec.target.tensorCount(); ++t)
                wanted += spec.target.bytes(t);
            QCOMPARE(sum, wanted);
        }
    }

    void asAPicture() {
        const Catalog from = source();
        const TargetSpec spec = targetOf(from, "tp=2", {"w:tp=1", "flat:tp=0"});
        const auto flow = flowOf(from, spec, {});
        const FlowPicture picture(from, *flow, spec.target.rankCount());
        QCOMPARE(
            picture.headline(),
            std::string("2 ranks read 240 B from 3 files. Rank 0 reads most, 128 B from 2 files. Most is "
                        "read of __0_0.distcp, 112 B by 2 ranks."));
        QCOMPARE(picture.bytes(2, 1), uint64_t{16});
        QCOMPARE(picture.bytes(2, 0), uint64_t{0});
        const FlowPicture::Drawing drawing = picture.draw(600, 400, DrawnType());
        QCOMPARE(drawing.cells.size(), size_t{5});
        const FlowPicture::Cell& cell = drawing.cells[0];
        QCOMPARE(drawing.cellAt(cell.rect.x + 1, cell.rect.y + 1), 0);
        QCOMPARE(picture.cellText(cell),
                 std::string("Rank 0 reads 64 B of __0_0.distcp in 2 pieces\nRank 0 reads "
                             "128 B from 2 files\n__0_0.distcp: 112 B are read, by 2 ranks"));
        QXmlStreamReader reader(QByteArray::fromStdString(picture.svgOf(600, 400, true)));
        int groups = 0;
        while (!reader.atEnd())
            groups +=
                reader.readNext() == QXmlStreamReader::StartElement && reader.name() == QLatin1String("g");
        QVERIFY2(!reader.hasError(), qPrintable(reader.errorString()));
        QCOMPARE(groups, 5);
    }

    // Files and ranks that are too many share rows and columns; nothing is lost.
    void manyShareCells() {
        CatalogBuilder builder("dcp", "", "");
        for (uint32_t f = 0; f < 1000; ++f)
            builder.addFile({"f" + std::to_string(f), 1, FileInfo::State::present, false, f, true});
        const Catalog from = std::move(builder).finish();
        Flow flow;
        for (uint32_t f = 0; f < 1000; ++f)
            flow.rows.push_back({f, f % 700, 10, 1});
        const FlowPicture picture(from, flow, 700);
        const FlowPicture::Drawing drawing = picture.draw(500, 300, DrawnType());
        uint64_t sum = 0;
        for (const FlowPicture::Cell& cell : drawing.cells)
            sum += cell.bytes;
        QCOMPARE(sum, uint64_t{10000});
        QVERIFY(drawing.width <= 501 && drawing.height <= 301);
        QVERIFY(drawing.filesEach > 1 && drawing.ranksEach > 1);
    }
};

QTEST_GUILESS_MAIN(FlowTest)
#include "flow_test.moc"
