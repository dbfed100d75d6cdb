// Who reads what: every byte of the target counts once, for the file that has it and the rank that wants it.
#include "plan/flow.h"

#include <QTest>
#include <QXmlStreamReader>
#include <map>

#include "plan/request_text.h"
#include "plan/steps.h"
#include "survey/as_if.h"
#include "survey/flow_picture.h"
#include "survey/placement_change.h"

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

    // What stays on its rank, arrives and leaves, by hand.
    void movesBetweenRanks() {
        const Catalog from = source();
        const TargetSpec spec = targetOf(from, "tp=2", {"w:tp=1", "flat:tp=0"});
        const auto change = PlacementChange::of(from, spec.target, {}, {});
        QVERIFY(change.ok());
        const PlacementChange& moves = **change;
        QCOMPARE(moves.rows().size(), size_t{2});
        const auto triple = [](const PlacementChange::Bytes& b) {
            return std::array{b.stays, b.arrives, b.leaves};
        };
        using Triple = std::array<uint64_t, 3>;
        QCOMPARE(triple(moves.rows()[0].ranks[0]), (Triple{48, 48, 48}));
        QCOMPARE(triple(moves.rows()[0].ranks[1]), (Triple{48, 48, 48}));
        QCOMPARE(triple(moves.rows()[0].ranks[2]), (Triple{0, 0, 192}));
        QCOMPARE(triple(moves.rows()[1].ranks[0]), (Triple{16, 16, 0}));
        QCOMPARE(triple(moves.rows()[1].ranks[1]), (Triple{0, 16, 16}));
        QCOMPARE(triple(moves.sum()), (Triple{112, 128, 320}));
        QVERIFY2(moves.headline().ends_with(
                     ": 128 B of 240 B arrive on another rank, 320 B leave; left empty: rank "
                     "2."),
                 moves.headline().c_str());
        // What a comparison leaves out does not move; other values show.
        DiffReport report;
        report.leftOutA.push_back({"w", ""});
        report.values.push_back({});
        report.values[0].name = "flat";
        const auto less = PlacementChange::of(from, spec.target, report, {});
        QCOMPARE((*less)->rows().size(), size_t{1});
        QVERIFY((*less)->sum().differs);
        // Onto itself nothing moves.
        const auto none = PlacementChange::of(from, from, {}, {});
        QCOMPARE((*none)->sum().arrives + (*none)->sum().leaves, uint64_t{0});
        QVERIFY((*none)->headline().find("stay on their ranks") != std::string::npos);

        const PlacementChange::Drawing drawing = moves.draw(600, 300);
        QCOMPARE(drawing.cells.size(), size_t{6});
        const PlacementChange::Cell& cell = drawing.cells[0];
        QCOMPARE(drawing.cellAt(cell.rect.x + 1, cell.rect.y + 1), 0);
        QCOMPARE(moves.cellText(cell), std::string("w, rank 0\n48 B stay\n48 B arrive\n48 B leave"));
        const std::string svg = moves.svgOf(600, 300, false);
        QCOMPARE(QByteArray::fromStdString(svg).count("class=\"cell\""), 6);
        // More modules and ranks than pixels share bands.
        QVERIFY(moves.draw(30, 40).cells.size() >= 1);
    }

    void asAPicture() {
        const Catalog from = source();
        const TargetSpec spec = targetOf(from, "tp=2", {"w:tp=1", "flat:tp=0"});
        const auto flow = flowOf(from, spec, {});
        const FlowPicture picture(from, *flow, spec.target.rankCount());
        QCOMPARE(
            picture.headline(),
            std::string("2 ranks read 112 B to 128 B each, from 2 to 3 files; rank 0 reads most. Most is "
                        "read of __0_0.distcp, 112 B by 2 ranks."));
        QCOMPARE(picture.bytes(2, 1), uint64_t{16});
        QCOMPARE(picture.bytes(2, 0), uint64_t{0});
        const FlowPicture::Drawing drawing = picture.draw(600, 400, DrawnType());
        QCOMPARE(drawing.cells.size(), size_t{5});
        const FlowPicture::Cell& cell = drawing.cells[0];
        QCOMPARE(drawing.cellAt(cell.rect.x + 1, cell.rect.y + 1), 0);
        QCOMPARE(picture.cellText(cell),
                 std::string("Rank 0 reads 64 B of __0_0.distcp in 2 chunks\nRank 0 reads "
                             "128 B from 2 files\n__0_0.distcp: 112 B are read, by 2 ranks"));
        QXmlStreamReader reader(QByteArray::fromStdString(picture.svgOf(600, 400, true)));
        int groups = 0;
        while (!reader.atEnd())
            groups +=
                reader.readNext() == QXmlStreamReader::StartElement && reader.name() == QLatin1String("g");
        QVERIFY2(!reader.hasError(), qPrintable(reader.errorString()));
        QCOMPARE(groups, 5);
    }

    // The target beside the source; whatever is pointed at has what it reads from.
    void asIf() {
        const auto from = std::make_shared<const Catalog>(source());
        const auto spec =
            std::make_shared<const TargetSpec>(targetOf(*from, "tp=2", {"w:tp=1", "flat:tp=0"}));
        const auto flow = flowOf(*from, *spec, {});
        Plan plan;
        plan.placement = {{"tp=0", "2 tensors"}, {"cp", "cuts nothing"}};
        plan.impossible = {{"x", "its file is missing"}, {"y", ""}};
        const auto what =
            AsIf::of(*from, computeFacts(*from), {spec, &spec->target}, *flow, plan, {}).value();
        QVERIFY2(what->headline().ends_with(" The fullest rank holds 128 B, now 208 B."),
                 what->headline().c_str());
        QCOMPARE(what->notes(),
                 (std::vector<std::string>{"cp: cuts nothing",
                                           "1 tensor without an even share for each rank, such as 'flat'",
                                           "not possible: x: its file is missing (1 more)"}));
        const DrawnPicture drawn = AsIf::draw(what, 700, 500, false);
        QXmlStreamReader reader(QByteArray::fromStdString(drawn.svg));
        while (!reader.atEnd())
            reader.readNext();
        QVERIFY2(!reader.hasError(), qPrintable(reader.errorString()));
        // 3 and 2 ranks, 3 files, 2 columns, 5 cells.
        QCOMPARE(drawn.items.size(), size_t{15});
        const auto linked = [&](size_t item) {
            std::vector<size_t> found;
            for (const DrawnRect& at : drawn.linked(item))
                for (size_t i = 0; i < drawn.items.size(); ++i)
                    if (drawn.items[i].rect.x == at.x && drawn.items[i].rect.y == at.y) found.push_back(i);
            return found;
        };
        // File 2 is read by rank 1 alone, which reads all three.
        QCOMPARE(linked(2), (std::vector<size_t>{4, 7, 9}));
        QCOMPARE(linked(4), (std::vector<size_t>{0, 1, 2, 5, 6, 7, 9}));
        QCOMPARE(linked(14), (std::vector<size_t>{2, 4, 7, 9}));
        // Where there is little room the flow alone.
        QCOMPARE(AsIf::draw(what, 300, 200, true).items.size(), size_t{10});
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
