// What the placement matrix holds: its bytes, rows and columns that are alike folded, and what cells say.
#include <QRegularExpression>

#include "support/placement_fixture.h"
#include "survey/box_scene.h"
#include "survey/matrix_parts.h"
#include "survey/max_pyramid.h"
#include "ui/models/texts.h"
#include "ui/widgets/tensor_box.h"

using namespace shardscope;
using namespace shardscope::ui;

class PlacementMatrixTest : public QObject {
    Q_OBJECT

  private slots:
    void pyramidKeepsTheWorst() {
        MaxPyramid pyramid(9216, 1000, size_t{16} << 20);
        pyramid.raise(7777, 613, 240);
        pyramid.raise(3, 0, 5);
        pyramid.finish();
        QCOMPARE(pyramid.worst(0, 9216, 0, 1000), uint8_t{240});
        QCOMPARE(pyramid.worst(0, 7777, 0, 1000), uint8_t{5});
        for (const int width : {1, 7, 160, 999, 1600}) {
            for (const int height : {1, 3, 100, 1000}) {
                std::vector<uint8_t> out(static_cast<size_t>(width * height));
                pyramid.sample(0, 1000.0 / width, width, 0, 9216.0 / height, height, out.data());
                QCOMPARE(*std::max_element(out.begin(), out.end()), uint8_t{240});
                const auto at = std::max_element(out.begin(), out.end()) - out.begin();
                QVERIFY(std::abs(static_cast<double>(at / width) / height - 7777.0 / 9216) <= 1.5 / height);
                QVERIFY(std::abs((static_cast<double>(at % width) + 0.5) / width - 613.5 / 1000) <=
                        1.0 / width);
            }
        }
    }

    void pyramidFitsItsBudget() {
        MaxPyramid pyramid(1'000'000, 4096, size_t{1} << 20);
        pyramid.raise(999'999, 4095, 200);
        pyramid.finish();
        QVERIFY(pyramid.bytes() < size_t{5} << 20);
        QCOMPARE(pyramid.worst(999'000, 1'000'000, 4000, 4096), uint8_t{200});
        std::vector<uint8_t> out(50 * 50);
        pyramid.sample(0, 4096 / 50.0, 50, 0, 1e6 / 50, 50, out.data());
        QCOMPARE(out.back(), uint8_t{200});
        MaxPyramid empty(0, 0, 100);
        empty.finish();
        empty.sample(0, 1, 50, 0, 1, 50, out.data());
        QCOMPARE(empty.worst(0, 10, 0, 10), uint8_t{0});
        QCOMPARE(out.back(), uint8_t{0});
    }

    void oneBadPixelSpreads() {
        std::vector<uint8_t> pixels(10 * 10, 50);
        pixels[45] = 240;
        pixels[99] = 200;
        spreadWorst(pixels, 10, 10, 165);
        QCOMPARE(std::count(pixels.begin(), pixels.end(), uint8_t{240}), 9);
        QCOMPARE(std::count(pixels.begin(), pixels.end(), uint8_t{200}), 4);
    }

    void bytesRankSeverity() {
        uint8_t before = 0;
        for (const double share : {0.0, 0.001, 0.125, 0.5, 1.0}) {
            const uint8_t value = PlacementMatrix::cellByte(Health::ok, share);
            QVERIFY(value > before);
            QCOMPARE(PlacementMatrix::healthOfByte(value), Health::ok);
            before = value;
        }
        for (int h = 1; h <= static_cast<int>(Health::gap); ++h) {
            const uint8_t value = PlacementMatrix::cellByte(static_cast<Health>(h), 1);
            QVERIFY(value > before);
            QCOMPARE(PlacementMatrix::healthOfByte(value), static_cast<Health>(h));
            before = value;
        }
    }

    void axesThatAreAskedForComeFirst() {
        QCOMPARE(orderAxes({2, 2, -1, 7}, 3), (std::vector<int>{2, 0, 1}));
        QCOMPARE(orderAxes({}, 2), (std::vector<int>{0, 1}));
        QVERIFY(orderAxes({0}, 0).empty());
    }

    void ranksThatHoldTheSameShareAColumn() {
        std::vector<RankToPlace> ranks{{4, {1}}, {5, {0}}, {6, {2}}, {7, {3}}};
        ranks[0].hold(1);
        ranks[0].hold(2);
        ranks[2].hold(2);
        ranks[2].hold(1);
        const auto [apart, each] = columnsOf(ranks, false);
        QCOMPARE(apart.size(), size_t{4});
        QCOMPARE(each, (std::vector<uint32_t>{1, 0, 2, 3}));  // by coordinates
        const auto [folded, columnOf] = columnsOf(ranks, true);
        QCOMPARE(columnOf, (std::vector<uint32_t>{1, 0, 1, 0}));
        QCOMPARE(folded[1].ranks, (std::vector<uint32_t>{4, 6}));
        QCOMPARE(folded[1].places[0], (std::pair<uint32_t, uint32_t>{1, 2}));
        // One whose file is not there is another.
        ranks[3].fileMissing = true;
        QCOMPARE(columnsOf(ranks, true).first.size(), size_t{3});
    }

    void rowsStandWherePinsAndLayersPutThem() {
        // Layers 0 and 2 are alike and layer 1 is not; another tensor lies between.
        const std::vector<TensorGroup> groups{{{0, 5}, 0, 2, 9}, {{1}, -1, -1, 0}, {{3}, 1, 1, 9}};
        QCOMPARE(orderRows(groups, pinsOf(groups, {})), (std::vector<uint32_t>{0, 2, 1}));
        const std::vector<uint32_t> pins = pinsOf(groups, {3, 5});
        QCOMPARE(pins, (std::vector<uint32_t>{1, kNone, 0}));
        QCOMPARE(orderRows(groups, pins), (std::vector<uint32_t>{2, 0, 1}));
    }

    void theDimensionsThatAreCutMostAreDrawn() {
        QCOMPARE(drawnDimensions({}), (std::pair{-1, -1}));
        QCOMPARE(drawnDimensions({5}), (std::pair{-1, 0}));
        QCOMPARE(drawnDimensions({1, 9, 4}), (std::pair{1, 2}));
        QCOMPARE(drawnDimensions({9, 0, 9}), (std::pair{0, 2}));
    }

    void layersFoldAndTheOddOneStandsAlone() {
        SyntheticOptions options;
        options.gapLayer = 5;
        options.missingFileRank = 3;
        const auto session = openSynthetic(syntheticModel(options));
        const auto folded = matrixOf(*session);
        // Four stages of four layers, eight tensors each, and the one with the gap.
        QCOMPARE(folded->rowCount(), 4U * 8 + 1);
        QCOMPARE(folded->columnCount(), 32U);
        const uint32_t odd = folded->rowOf(tensorNamed(*session, "model.layers.5.mlp.w0.weight"));
        QCOMPARE(folded->row(odd).count, 1U);
        QCOMPARE(folded->row(odd).health, Health::gap);
        QVERIFY(folded->hasGaps());
        // Right below the run that it interrupts.
        const uint32_t run = folded->rowOf(tensorNamed(*session, "model.layers.4.mlp.w0.weight"));
        QCOMPARE(odd, run + 1);
        QCOMPARE(folded->row(run).count, 3U);
        QCOMPARE(toQString(folded->rowLabel(run)), QStringLiteral("model.layers.4,6–7.mlp.w0.weight"));
        QCOMPARE(toQString(folded->rowLabel(odd)), QStringLiteral("model.layers.5.mlp.w0.weight"));
        QCOMPARE(folded->members(run).size(), size_t{3});
        // Every tensor is in exactly one row.
        size_t members = 0;
        for (uint32_t r = 0; r < folded->rowCount(); ++r)
            members += folded->row(r).count;
        QCOMPARE(members, session->catalog().tensorCount());

        const auto plain = matrixOf(*session, {{}, false, false});
        QCOMPARE(plain->rowCount(), 16U * 8);
        QCOMPARE(plain->rowOf(session->filtered().tree()->order()[17]), 17U);
    }

    void groupsSumUpTheirRows() {
        SyntheticOptions options;
        options.gapLayer = 5;
        options.missingFileRank = 3;
        const auto session = openSynthetic(syntheticModel(options));
        const auto plain = matrixOf(*session, {{}, false, false});
        MatrixOptions grouped;
        grouped.foldRows = false;
        grouped.groups = true;
        // Of many rows only the sums are there at first: one of each layer, with bytes and worst state.
        const auto closed = matrixOf(*session, grouped);
        QVERIFY(closed->hasGroups());
        QCOMPARE(closed->rowCount(), 16U);
        QVERIFY(closed->lanes().empty());
        const TensorId odd = tensorNamed(*session, "model.layers.5.mlp.w0.weight");
        const uint32_t layer = closed->rowOf(odd);
        QVERIFY(closed->row(layer).summary);
        QCOMPARE(closed->row(layer).count, 8U);
        QCOMPARE(closed->row(layer).health, Health::gap);
        QCOMPARE(toQString(closed->rowText(layer)), QStringLiteral("model.layers.5"));
        QVERIFY(toQString(closed->rowLabel(layer)).startsWith("model.layers.5 (8 tensors, "));
        QVERIFY(closed->hasGaps());
        for (uint32_t r = 0; r < closed->rowCount(); ++r) {
            std::vector<uint64_t> bytes(plain->columnCount());
            std::vector<Health> worst(plain->columnCount());
            for (const TensorId t : closed->members(r)) {
                for (const MatrixCell& cell : plain->detail(plain->rowOf(t)).cells) {
                    bytes[cell.column] += cell.bytes;
                    worst[cell.column] = std::max(worst[cell.column], cell.health);
                }
            }
            for (const MatrixCell& cell : closed->detail(r).cells) {
                QCOMPARE(cell.bytes, std::exchange(bytes[cell.column], 0));
                QCOMPARE(cell.health, worst[cell.column]);
                QCOMPARE(PlacementMatrix::healthOfByte(
                             closed->pyramid().worst(r, r + 1, cell.column, cell.column + 1)),
                         worst[cell.column]);
            }
            QCOMPARE(bytes, std::vector<uint64_t>(plain->columnCount()));
        }
        for (uint32_t c = 0; c < plain->columnCount(); ++c)
            QCOMPARE(closed->column(c).health, plain->column(c).health);
        QVERIFY(toQString(closed->cellText(0, 3)).contains("the worst, of model.layers.0."));
        uint32_t row = 0, column = 0;
        QVERIFY(closed->nextFinding(row, column, true));
        QCOMPARE(column, 3U);

        // One that is opened is followed by its rows, which say what its heading does not.
        const std::string key = closed->group(closed->row(layer).group).key;
        QCOMPARE(toQString(key), QStringLiteral("model.layers.5"));
        grouped.open = {{key, true}};
        const auto open = matrixOf(*session, grouped);
        QCOMPARE(open->rowCount(), 16U + 8);
        QVERIFY(open->row(layer).summary && open->rowOf(odd) > layer && open->rowOf(odd) <= layer + 8);
        QCOMPARE(toQString(open->rowText(open->rowOf(odd))), QStringLiteral("mlp.w0.weight"));
        QCOMPARE(toQString(open->rowLabel(open->rowOf(odd))), QStringLiteral("model.layers.5.mlp.w0.weight"));
        // A finding of it is at the row then, and a table of sum and rows has each chunk once.
        row = layer, column = 0;
        QVERIFY(open->nextFinding(row, column, true));
        QCOMPARE(row, open->rowOf(odd));
        QCOMPARE(open->chunksIn(0, open->rowCount(), 0, 32), plain->chunksIn(0, plain->rowCount(), 0, 32));

        // Pinned, a sum stands at the top and in its place; a pinned row leaves the group's rows, not its
        // sum.
        grouped.pinnedGroups = {key};
        grouped.pinned = {odd};
        const auto pinned = matrixOf(*session, grouped);
        QCOMPARE(pinned->pinnedCount(), 2U);
        QVERIFY(pinned->row(0).summary && !pinned->row(1).summary);
        QCOMPARE(pinned->rowOf(odd), 1U);
        QCOMPARE(toQString(pinned->rowText(1)), toQString(pinned->rowLabel(1)));
        QCOMPARE(pinned->row(layer + 2).count, 8U);
        QCOMPARE(pinned->rowCount(), open->rowCount() + 1);
    }

    void groupsOfFoldedLayersSayWhich() {
        SyntheticOptions options;
        options.gapLayer = 5;
        options.optimizer = true;
        const auto session = openSynthetic(syntheticModel(options));
        MatrixOptions grouped;
        grouped.groups = true;
        const auto matrix = matrixOf(*session, grouped);
        QVERIFY(matrix->hasGroups());
        const TensorId odd = tensorNamed(*session, "model.layers.5.mlp.w0.weight");
        const MatrixGroup& group = matrix->group(matrix->row(matrix->rowOf(odd)).group);
        QCOMPARE(toQString(group.key), QStringLiteral("model.layers.*"));
        QCOMPARE(toQString(group.name), QStringLiteral("model.layers.0–15"));
        grouped.open = {{group.key, true}};
        const auto open = matrixOf(*session, grouped);
        QCOMPARE(toQString(open->rowText(open->rowOf(odd))), QStringLiteral("5.mlp.w0.weight"));
        // Few rows need no groups.
        const auto few = openSynthetic(syntheticGrid(12, 5));
        QVERIFY(!matrixOf(*few, grouped)->hasGroups());
    }

    // How much of a cell is NaN stands with it once values were read, and not before.
    void shareOfValuesThatAreNaN() {
        const auto session = openSession(genuineCheckpoint("dcp/t2.15.0-damaged-nan-block"));
        QVERIFY(session->hasFacts());
        const auto texts = [&] {
            const auto matrix = matrixOf(*session, {{}, false, false});
            QString all;
            for (uint32_t r = 0; r < matrix->rowCount(); ++r) {
                for (uint32_t column = 0; column < matrix->columnCount(); ++column)
                    all += toQString(matrix->cellText(r, column)) + '\n';
            }
            return all;
        };
        QVERIFY(!texts().contains("NaN"));
        session->validation().start(ValidateLevel::values);
        QTRY_VERIFY(session->validation().report());
        const QRegularExpression share(
            "holds NaN or infinities: NaN in 8 of [0-9,]+ elements \\((all|[0-9.]+ %)\\)");
        QTRY_VERIFY2(texts().contains(share), qPrintable(texts()));
        // So does the tensor's box.
        for (TensorId t = 0; t < session->catalog().tensorCount(); ++t) {
            if (session->facts()->tensorHealth[t] != Health::nonFinite) continue;
            const auto scene = makeBoxScene(session->checkpoint(), session->facts(), t,
                                            defaultView(session->catalog().shape(t)));
            TensorBox box;
            box.setScene(scene);
            QString all;
            for (const BoxShape& shape : scene->shapes)
                all += box.shapeText(shape) + '\n';
            QVERIFY2(all.contains(QRegularExpression("nan/inf: NaN in 8 of [0-9,]+ elements")),
                     qPrintable(all));
            return;
        }
        QFAIL("no tensor is marked");
    }

    void missingFileMarksColumnAndCells() {
        SyntheticOptions options;
        options.missingFileRank = 3;
        const auto session = openSynthetic(syntheticModel(options));
        const auto matrix = matrixOf(*session);
        QVERIFY(matrix->column(3).fileMissing);
        QVERIFY(!matrix->column(2).fileMissing);
        QCOMPARE(matrix->column(3).health, Health::missing);
        const RowDetail detail = matrix->detail(0);
        const MatrixCell* cell = detail.at(3);
        QVERIFY(cell);
        QCOMPARE(cell->health, Health::missing);
        QVERIFY(toQString(matrix->cellText(0, 3)).contains("missing (there: "));
        QCOMPARE(PlacementMatrix::healthOfByte(matrix->pyramid().worst(0, 1, 3, 4)), Health::missing);
        QVERIFY(!matrix->hasGaps());
    }

    void cellsSayWhatTheyHold() {
        const auto session = openSynthetic(syntheticModel({}));
        const auto matrix = matrixOf(*session, {{}, false, false});
        const uint32_t row = matrix->rowOf(tensorNamed(*session, "model.layers.0.mlp.w0.weight"));
        // rank 7 = pp0 dp1 tp3 of [4096, 4096] cut in 2 x 4
        const RowDetail detail = matrix->detail(row);
        const MatrixCell* cell = detail.at(7);
        QVERIFY(cell);
        QCOMPARE(cell->chunks, 1U);
        QCOMPARE(cell->share, 0.125);
        QCOMPARE(cell->bytes, uint64_t{2048} * 1024 * 2);
        const RowDetail::Slice slice = detail.slices[cell->firstSlice];
        QCOMPARE(slice.left, 0.75F);
        QCOMPARE(slice.right, 1.F);
        QCOMPARE(slice.top, 0.5F);
        QCOMPARE(toQString(matrix->cellText(row, 7)),
                 QStringLiteral(
                     "model.layers.0.mlp.w0.weight on rank 7 (pp0 dp1 tp3): rows 2048–4095 of 4096, columns "
                     "3072–4095 of 4096, 4.00 MiB, __7_0.distcp"));
        QVERIFY(!detail.at(8));
        QVERIFY(toQString(matrix->cellText(row, 8)).endsWith("nothing"));
    }

    void axesOrderColumns() {
        const auto session = openSynthetic(syntheticModel({}));
        const auto matrix = matrixOf(*session, {{2, 0, 1}, true, false});
        QCOMPARE(matrix->axes()[0].name, std::string("tp"));
        // tp1 pp0 dp0 is rank 1, after the eight ranks of tp0.
        QCOMPARE(matrix->columnOf(1), 8U);
        QCOMPARE(toQString(matrix->placeText(0, 8)), QStringLiteral("tp1"));
        QCOMPARE(toQString(matrix->columnLabel(8)), QStringLiteral("rank 1 (tp1 pp0 dp0)"));
        QCOMPARE(matrix->column(8).rank, 1U);
    }

    void identicalRanksFold() {
        // Norms only: all but the first rank of a tp group hold nothing, and those are alike.
        CatalogBuilder builder("dcp", "", "synthetic");
        std::vector<FileId> files;
        for (uint32_t r = 0; r < 8; ++r) {
            FileInfo file;
            file.path = "__" + std::to_string(r) + "_0.distcp";
            file.rank = r;
            file.size = 1 << 20;
            files.push_back(builder.addFile(file));
        }
        TensorInfo info;
        info.name = "w";
        info.shape = {8, 4};
        QVERIFY(builder.addTensor(info).ok());
        for (uint32_t r = 0; r < 8; ++r) {
            const Dims offsets{int64_t{r % 2} * 4, 0}, lengths{4, 4};
            QVERIFY(builder.addChunk({r, files[r], 0, 64, offsets, lengths, std::nullopt}).ok());
        }
        builder.setMesh(Mesh{{{"dp", 4}, {"tp", 2}}, Mesh::Source::declared, {}});
        builder.setRankCount(8);
        const auto session = openSynthetic(std::make_shared<const Catalog>(std::move(builder).finish()));
        const auto matrix = matrixOf(*session, {{}, true, true});
        QCOMPARE(matrix->columnCount(), 2U);
        QCOMPARE(matrix->column(0).ranks, (std::vector<uint32_t>{0, 2, 4, 6}));
        QCOMPARE(matrix->columnOf(5), 1U);
        QCOMPARE(toQString(matrix->placeText(0, 0)), QStringLiteral("dp0–3"));
        QCOMPARE(toQString(matrix->placeText(1, 1)), QStringLiteral("tp1"));
        QVERIFY(toQString(matrix->columnLabel(0)).contains("3 alike"));
        // The chunks of a folded column are those of all its ranks.
        QCOMPARE(matrix->chunksIn(0, 1, 0, 1).size(), size_t{4});
        QCOMPARE(matrix->chunksIn(0, 1, 0, 2).size(), size_t{8});
    }

    void ranksWithoutAMesh() {
        const auto session = openSynthetic(syntheticGrid(12, 5));
        const auto matrix = matrixOf(*session);
        QCOMPARE(matrix->columnCount(), 5U);
        QCOMPARE(matrix->rowCount(), 12U);
        QVERIFY(toQString(matrix->rowLabel(0)).startsWith("model.layers.0.block.0"));
    }

    // Norms are stored by the ranks of tp0 alone; in the same stage the others hold the same.
    void replicasThatTheMeshImplies() {
        const auto session = openSynthetic(syntheticModel());
        const auto matrix = matrixOf(*session);
        const uint32_t norm = matrix->rowOf(tensorNamed(*session, "model.layers.0.norm0.weight"));
        const RowDetail row = matrix->detail(norm);
        QCOMPARE(row.cells.size(), size_t{2});
        std::vector<std::pair<uint32_t, uint32_t>> ghosts;
        for (const RowDetail::Ghost& ghost : row.ghosts)
            ghosts.emplace_back(ghost.column, ghost.of);
        QCOMPARE(ghosts, (std::vector<std::pair<uint32_t, uint32_t>>{
                             {1, 0}, {2, 0}, {3, 0}, {5, 4}, {6, 4}, {7, 4}}));
        QVERIFY(toQString(matrix->cellText(norm, 5))
                    .endsWith("not stored; the replica that rank 4 stores serves"));
        QVERIFY(toQString(matrix->cellText(norm, 9)).endsWith(": nothing"));
        // What every rank of the stage has a shard of has none.
        const uint32_t weight = matrix->rowOf(tensorNamed(*session, "model.layers.0.mlp.w0.weight"));
        QVERIFY(matrix->detail(weight).ghosts.empty());
    }

    // DCP stores each shard by another rank of those that replicate it.
    void replicasThatAreDealtOut() {
        const auto session = openSession(genuineCheckpoint("dcp/t2.15.0-hsdp"));
        const auto matrix = matrixOf(*session);
        const RowDetail row = matrix->detail(matrix->rowOf(tensorNamed(*session, "model.fc1.bias")));
        QCOMPARE(row.cells.size(), size_t{2});
        std::vector<std::pair<uint32_t, uint32_t>> ghosts;
        for (const RowDetail::Ghost& ghost : row.ghosts)
            ghosts.emplace_back(ghost.column, ghost.of);
        QCOMPARE(ghosts, (std::vector<std::pair<uint32_t, uint32_t>>{{0, 2}, {3, 1}}));
    }

    // Of ranks that hold the same slice, all but the first are outlined with dots.
    void copiesAreKnown() {
        const auto session = openSynthetic(mixtureOfExperts());
        const auto matrix = matrixOf(*session);
        const uint32_t expert =
            matrix->rowOf(tensorNamed(*session, "model.layers.1.mlp.experts.2.w1.weight"));
        const RowDetail row = matrix->detail(expert);
        QCOMPARE(row.cells.size(), size_t{2});
        QCOMPARE(row.cells[0].copyOf, kNone);
        QCOMPARE(row.cells[1].copyOf, row.cells[0].column);
        QVERIFY(toQString(matrix->cellText(expert, row.cells[1].column))
                    .contains("a replica of what rank 1 holds"));
        QVERIFY(!toQString(matrix->cellText(expert, row.cells[0].column)).contains("copy"));
        const uint32_t attention = matrix->rowOf(tensorNamed(*session, "model.layers.0.attn.qkv.weight"));
        for (const MatrixCell& cell : matrix->detail(attention).cells)
            QCOMPARE(cell.copyOf, cell.column < 4 ? kNone : cell.column - 4);
        // Folded, none is left.
        const auto folded = matrixOf(*session, {{}, true, true});
        for (uint32_t r = 0; r < folded->rowCount(); ++r) {
            for (const MatrixCell& cell : folded->detail(r).cells)
                QCOMPARE(cell.copyOf, kNone);
        }
    }
};

SHARDSCOPE_GUI_TEST_MAIN(PlacementMatrixTest)
#include "placement_matrix_test.moc"
