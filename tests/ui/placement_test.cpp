#include <QAbstractItemModelTester>
#include <QAccessible>
#include <QApplication>
#include <QComboBox>
#include <QElapsedTimer>
#include <QLabel>
#include <QPainter>
#include <QPushButton>
#include <QRegularExpression>
#include <QScrollBar>
#include <QSignalSpy>
#include <QTableView>
#include <QToolButton>
#include <ctime>

#include "support/gui_test.h"
#include "survey/layer_name.h"
#include "survey/placement_matrix.h"
#include "ui/models/box_scene.h"
#include "ui/models/texts.h"
#include "ui/pages/placement_page.h"
#include "ui/widgets/minimap.h"
#include "ui/widgets/placement_map.h"
#include "ui/widgets/tensor_box.h"

using namespace shardscope;
using namespace shardscope::ui;

namespace {

std::shared_ptr<const PlacementMatrix> matrixOf(Session& session, const MatrixOptions& options = {}) {
    return PlacementMatrix::build(session.checkpoint(), session.filtered().tree(), session.facts(), options);
}

TensorId tensorNamed(const Session& session, const char* name) {
    return session.catalog().find(name);
}

QToolButton* button(QWidget& page, const char* name) {
    for (QToolButton* candidate : page.findChildren<QToolButton*>()) {
        if (candidate->accessibleName() == QLatin1String(name)) return candidate;
    }
    return nullptr;
}

// Four layers with experts, which are spread over ep; dp holds copies of everything. Norms lie on the first
// place of ep alone.
std::shared_ptr<const Catalog> mixtureOfExperts(int experts = 8) {
    constexpr int64_t kSide = 1024;
    CatalogBuilder builder("dcp", "", "synthetic");
    std::vector<FileId> files;
    for (uint32_t r = 0; r < 8; ++r) {
        FileInfo info;
        info.path = "__" + std::to_string(r) + "_0.distcp";
        info.rank = r;
        info.size = uint64_t{1} << 40;
        files.push_back(builder.addFile(info));
    }
    const auto add = [&](const std::string& name, const std::vector<uint32_t>& ranks, bool cut) {
        TensorInfo info;
        info.name = name;
        info.dtype = DType::bfloat16;
        info.shape = {kSide, kSide};
        QVERIFY(builder.addTensor(info).ok());
        for (const uint32_t rank : ranks) {
            const int64_t rows = cut ? kSide / 4 : kSide;
            const Dims offsets{cut ? rank % 4 * rows : 0, 0}, lengths{rows, kSide};
            QVERIFY(builder.addChunk({rank, files[rank], 0, 1024, offsets, lengths, std::nullopt}).ok());
        }
    };
    for (int layer = 0; layer < 4; ++layer) {
        const std::string prefix = "model.layers." + std::to_string(layer) + '.';
        add(prefix + "attn.qkv.weight", {0, 1, 2, 3, 4, 5, 6, 7}, true);
        for (int e = 0; e < experts; ++e) {
            const auto place = static_cast<uint32_t>(e * 4 / experts);
            for (const char* part : {"w1", "w2", "w3"})
                add(prefix + "mlp.experts." + std::to_string(e) + '.' + part + ".weight", {place, place + 4},
                    false);
        }
        add(prefix + "norm.weight", {0, 4}, false);
    }
    builder.setMesh(Mesh{{{"dp", 2}, {"ep", 4}}, Mesh::Source::declared, {}});
    builder.setRankCount(8);
    return std::make_shared<const Catalog>(std::move(builder).finish());
}

// A page on the screen with its map built.
std::unique_ptr<PlacementPage> showPage(Session& session, QSize size = {1180, 720}) {
    auto page = std::make_unique<PlacementPage>(session);
    page->resize(size);
    page->show();
    [&] {
        QVERIFY(QTest::qWaitForWindowExposed(page.get()));
        QTRY_VERIFY_WITH_TIMEOUT(page->map().matrix() && page->map().matrix()->facts() == session.facts(),
                                 120'000);
    }();
    return page;
}

// Prints the processor time of a frame (other programs may run on the same machine) for which nothing is kept
// from the frame before; fails where it is out of all proportion.
void measureFrame(PlacementMap& map, const char* what) {
    constexpr int kFrames = 7;
    QImage image(map.viewport()->size(), QImage::Format_RGB32);
    QPainter painter(&image);
    double worst = 0, best = 1e9;
    for (int i = 0; i < kFrames; ++i) {
        map.verticalScrollBar()->setValue(map.verticalScrollBar()->value() + 37 * i);
        map.horizontalScrollBar()->setValue(map.horizontalScrollBar()->value() + 11 * i + 1);
        map.setMatrix(map.matrix());
        const std::clock_t start = std::clock();
        map.viewport()->render(&painter);
        const double took = 1000.0 * static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
        worst = std::max(worst, took);
        best = std::min(best, took);
    }
    qInfo("frame, %s (cells of %.2f x %.2f): %.1f to %.1f ms", what, map.cellSize().width(),
          map.cellSize().height(), best, worst);
    QVERIFY(worst < 200);
}

}  // namespace

class PlacementTest : public QObject {
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
            "holds NaN or infinities: 8 of [0-9,]+ elements are NaN \\((all|[0-9.]+ %)\\)");
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
            QVERIFY2(all.contains(QRegularExpression("nan/inf: 8 of [0-9,]+ elements are NaN")),
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

    void findingsOneAfterTheOther() {
        SyntheticOptions options;
        options.gapLayer = 5;
        const auto session = openSynthetic(syntheticModel(options));
        const auto matrix = matrixOf(*session);
        uint32_t row = 0, column = 0;
        QVERIFY(matrix->nextFinding(row, column, true));
        QCOMPARE(matrix->row(row).health, Health::gap);
        QCOMPARE(column, matrix->columnCount());
        const uint32_t found = row;
        QVERIFY(matrix->nextFinding(row, column, true));  // around to the only one
        QCOMPARE(row, found);
        QVERIFY(matrix->nextFinding(row, column, false));
        QCOMPARE(row, found);
        QVERIFY(toQString(matrix->cellText(row, column)).contains("no rank holds rows 2048–4095 of 4096"));

        const auto whole = openSynthetic(syntheticModel({}));
        QVERIFY(!matrixOf(*whole)->nextFinding(row, column, true));
    }

    void mouseTakesOpensZoomsAndMarks() {
        const auto session = openSynthetic(syntheticModel({}));
        const auto page = showPage(*session);
        PlacementMap& map = page->map();
        QVERIFY(map.showsTiles());
        QSignalSpy opened(&map, &PlacementMap::activated), marked(&map, &PlacementMap::regionChanged);
        const auto at = [&](uint32_t row, uint32_t column) {
            return map.cellRect({row, column}).center().toPoint();
        };
        QCOMPARE(map.cellAt(at(2, 5)), (PlacementMap::Cell{2, 5}));
        QTest::mouseClick(map.viewport(), Qt::LeftButton, {}, at(2, 5));
        QCOMPARE(map.current(), (PlacementMap::Cell{2, 5}));
        const Selected& now = session->selection().current();
        QCOMPARE(now.tensor, map.matrix()->row(2).tensor);
        QCOMPARE(now.ranks, std::vector<uint32_t>{5});
        QVERIFY(now.chunk != kNone);
        QVERIFY(map.accessibleDescription().contains("rank 5"));

        QTest::mouseDClick(map.viewport(), Qt::LeftButton, {}, at(4, 1));
        QCOMPARE(opened.count(), 1);
        QCOMPARE(session->selection().current().page, Page::tensor);

        // The cell under the cursor stays there.
        const QPoint cursor = at(4, 3);
        const double before = map.cellSize().width();
        QWheelEvent wheel(cursor, map.viewport()->mapToGlobal(cursor), {}, {0, 240}, Qt::NoButton, {},
                          Qt::NoScrollPhase, false);
        QCoreApplication::sendEvent(map.viewport(), &wheel);
        QVERIFY(map.cellSize().width() > before);
        QCOMPARE(map.cellAt(cursor), (PlacementMap::Cell{4, 3}));
        const QPoint far = map.gridRect().center();
        QTest::mousePress(map.viewport(), Qt::MiddleButton, {}, far);
        QTest::mouseMove(map.viewport(), far - QPoint(60, 30));
        QMouseEvent move(QEvent::MouseMove, far - QPoint(60, 30),
                         map.viewport()->mapToGlobal(far - QPoint(60, 30)), Qt::NoButton, Qt::MiddleButton,
                         {});
        QCoreApplication::sendEvent(map.viewport(), &move);
        QTest::mouseRelease(map.viewport(), Qt::MiddleButton, {}, far - QPoint(60, 30));
        QVERIFY(map.horizontalScrollBar()->value() > 0);
        map.fit();

        const QPoint from = at(1, 1), to = at(3, 4);
        QTest::mousePress(map.viewport(), Qt::LeftButton, {}, from);
        for (const QPoint& step : {(from + to) / 2, to}) {
            QMouseEvent drag(QEvent::MouseMove, step, map.viewport()->mapToGlobal(step), Qt::NoButton,
                             Qt::LeftButton, {});
            QCoreApplication::sendEvent(map.viewport(), &drag);
        }
        QTest::mouseRelease(map.viewport(), Qt::LeftButton, {}, to);
        QCOMPARE(map.region(), QRect(1, 1, 4, 3));
        QCOMPARE(marked.count(), 1);
        auto* table = page->findChild<QTableView*>();
        QTRY_VERIFY(table->isVisible() && table->model()->rowCount() > 0);
        const size_t expected = map.matrix()->chunksIn(1, 4, 1, 5).size();
        QTRY_COMPARE(static_cast<size_t>(table->model()->rowCount()), expected);
        QAbstractItemModelTester tester(table->model());
        shoot(*page, "placement-region");
        // A row of the table is the cell of the map.
        QTest::mouseClick(table->viewport(), Qt::LeftButton, {},
                          table->visualRect(table->model()->index(3, 1)).center());
        QVERIFY(session->selection().current().chunk != kNone);
        QCOMPARE(map.current().row, map.matrix()->rowOf(session->selection().current().tensor));
        QTest::keyClick(&map, Qt::Key_Escape);
        QVERIFY(map.region().isEmpty());
    }

    void keysReachEverything() {
        SyntheticOptions options;
        options.gapLayer = 5;
        options.missingFileRank = 9;
        const auto session = openSynthetic(syntheticModel(options));
        const auto page = showPage(*session);
        PlacementMap& map = page->map();
        map.setFocus();
        QTest::keyClick(&map, Qt::Key_Down);
        QCOMPARE(map.current(), (PlacementMap::Cell{0, 0}));
        QTest::keyClick(&map, Qt::Key_Down);
        QTest::keyClick(&map, Qt::Key_Right);
        QCOMPARE(map.current(), (PlacementMap::Cell{1, 1}));
        QTest::keyClick(&map, Qt::Key_End);
        QCOMPARE(map.current().column, map.matrix()->columnCount());  // elements without an owner
        QTest::keyClick(&map, Qt::Key_Home);
        QTest::keyClick(&map, Qt::Key_End, Qt::ControlModifier);
        QCOMPARE(map.current(), (PlacementMap::Cell{map.matrix()->rowCount() - 1, 0}));
        QTest::keyClick(&map, Qt::Key_Home, Qt::ControlModifier);
        QCOMPARE(map.current().row, 0U);
        QTest::keyClick(&map, Qt::Key_N);
        QVERIFY(map.matrix()->row(map.current().row).health != Health::ok);
        const PlacementMap::Cell first = map.current();
        QTest::keyClick(&map, Qt::Key_N);
        QVERIFY(map.current() != first);
        QTest::keyClick(&map, Qt::Key_N, Qt::ShiftModifier);
        QCOMPARE(map.current(), first);
        const double size = map.cellSize().height();
        QTest::keyClick(&map, Qt::Key_Plus);
        QVERIFY(map.cellSize().height() > size);
        QVERIFY(map.gridRect().contains(map.cellRect(map.current()).center().toPoint()));
        QTest::keyClick(&map, Qt::Key_Minus);
        QCOMPARE(qRound(map.cellSize().height()), qRound(size));
        QTest::keyClick(&map, Qt::Key_Plus);
        QTest::keyClick(&map, Qt::Key_F);
        QCOMPARE(map.zoom(), 0.0);
        QTest::keyClick(&map, Qt::Key_Home, Qt::ControlModifier);
        QTest::keyClick(&map, Qt::Key_Home);
        QTest::keyClick(&map, Qt::Key_Right, Qt::ShiftModifier);
        QTest::keyClick(&map, Qt::Key_Down, Qt::ShiftModifier);
        QTest::keyClick(&map, Qt::Key_Down, Qt::ShiftModifier);
        QCOMPARE(map.region(), QRect(0, 0, 2, 3));
        QSignalSpy opened(&map, &PlacementMap::activated), menu(&map, &PlacementMap::menuRequested);
        QTest::keyClick(&map, Qt::Key_Return);
        QCOMPARE(opened.count(), 1);
        QContextMenuEvent asked(QContextMenuEvent::Keyboard, {}, {});
        QCoreApplication::sendEvent(map.viewport(), &asked);
        QCOMPARE(menu.count(), 1);
        if (QWidget* popup = QApplication::activePopupWidget()) popup->close();
    }

    void pinnedRowsComeFirstAndStay() {
        SyntheticOptions options;
        options.layers = 96;
        const auto session = openSynthetic(syntheticModel(options));
        const TensorId pinned = tensorNamed(*session, "model.layers.90.mlp.w2.weight");
        const TensorId other = tensorNamed(*session, "model.layers.40.mlp.w2.weight");
        MatrixOptions flat;
        flat.foldRows = false;
        flat.pinned = {pinned, other};
        const auto matrix = matrixOf(*session, flat);
        QCOMPARE(matrix->pinnedCount(), 2U);
        QCOMPARE(matrix->rowOf(pinned), 0U);
        QCOMPARE(matrix->rowOf(other), 1U);
        QCOMPARE(matrix->rowCount(), static_cast<uint32_t>(session->catalog().tensorCount()));
        MatrixOptions folded;
        folded.pinned = {pinned};
        QCOMPARE(matrixOf(*session, folded)->pinnedCount(), 1U);
        QVERIFY(matrixOf(*session, folded)->row(0).count > 1);  // the row that its layer is folded into

        const auto page = showPage(*session);
        QTest::mouseClick(button(*page, "Fold layers"), Qt::LeftButton);
        QTRY_COMPARE(page->map().matrix()->rowCount(), matrix->rowCount());
        PlacementMap& map = page->map();
        session->selection().selectTensor(pinned);
        map.setFocus();
        QTest::keyClick(&map, Qt::Key_P);
        QTRY_COMPARE(map.matrix()->pinnedCount(), 1U);
        QCOMPARE(map.matrix()->rowOf(pinned), 0U);
        for (int i = 0; i < 6; ++i)
            map.zoomBy(4, map.gridRect().center());
        QVERIFY(map.verticalScrollBar()->maximum() > 0);
        map.verticalScrollBar()->setValue(map.verticalScrollBar()->maximum() / 2);
        // It is where it was, and takes clicks there; right below is a row from far away.
        const QPointF top(map.gridRect().center().x(), map.gridRect().top() + map.cellSize().height() / 2);
        QCOMPARE(map.cellAt(top).row, 0U);
        QVERIFY(map.cellAt(top + QPointF(0, map.cellSize().height() + 2)).row > 20);
        QTest::mouseClick(map.viewport(), Qt::LeftButton, {}, top.toPoint());
        QCOMPARE(session->selection().current().tensor, pinned);
        const int scrolled = map.verticalScrollBar()->value();
        QVERIFY(scrolled > 0);
        shoot(*page, "placement-pinned");
        // A row that is chosen elsewhere does not hide under it.
        session->selection().selectTensor(other);
        QVERIFY(map.cellRect(map.current()).top() >= map.cellRect({0, 0}).bottom() - 1);
        QTest::mouseClick(map.viewport(), Qt::LeftButton, {}, top.toPoint());
        QTest::keyClick(&map, Qt::Key_P);
        QTRY_COMPARE(map.matrix()->pinnedCount(), 0U);
    }

    void isATableForAssistiveTechnology() {
        const auto session = openSynthetic(syntheticModel({}));
        const auto page = showPage(*session);
        QAccessibleInterface* table = QAccessible::queryAccessibleInterface(&page->map());
        QVERIFY(table && table->tableInterface());
        QCOMPARE(table->role(), QAccessible::Table);
        QCOMPARE(table->tableInterface()->rowCount(), static_cast<int>(page->map().matrix()->rowCount()));
        QCOMPARE(table->childCount(), table->tableInterface()->rowCount() * 32);
        QVERIFY(!table->focusChild());
        page->map().setCurrent({2, 5});
        QAccessibleInterface* cell = table->focusChild();
        QVERIFY(cell);
        QCOMPARE(cell->role(), QAccessible::Cell);
        QVERIFY(cell->text(QAccessible::Name).contains("on rank 5"));
        QCOMPARE(table->indexOfChild(cell), 2 * 32 + 5);
        QCOMPARE(table->child(2 * 32 + 5), cell);
        QVERIFY(cell->state().focused);
        QCOMPARE(table->childAt(cell->rect().center().x(), cell->rect().center().y()), cell);
        QCOMPARE(table->tableInterface()->columnDescription(5), QStringLiteral("rank 5 (pp0 dp1 tp1)"));
        for (int i = 0; i < 600; ++i)
            QVERIFY(table->child(i)->isValid());
    }

    void followsTheSelection() {
        const auto session = openSynthetic(syntheticModel({}));
        const auto page = showPage(*session);
        PlacementMap& map = page->map();
        const TensorId tensor = tensorNamed(*session, "model.layers.9.mlp.w2.weight");
        session->selection().selectTensor(tensor);
        QCOMPARE(map.current().row, map.matrix()->rowOf(tensor));
        session->selection().selectChunk(
            tensor, session->catalog().firstChunk(tensor) + 2,
            session->catalog().chunk(session->catalog().firstChunk(tensor) + 2).rank, kNone);
        QCOMPARE(map.current().column, map.matrix()->columnOf(session->selection().current().ranks.front()));
        session->selection().selectModule("model.layers.15");
        QVERIFY(toQString(map.matrix()->rowLabel(map.current().row)).contains("15"));
        session->selection().selectRanks({4, 5, 6, 7});
        shoot(*page, "placement-ranks");
        // A header names a rank; Ctrl adds to it.
        const auto header = [&](uint32_t column) {
            return QPoint(map.cellRect({0, column}).center().toPoint().x(), map.headerHeight() - 8);
        };
        QTest::mouseClick(map.viewport(), Qt::LeftButton, {}, header(2));
        QCOMPARE(session->selection().current().ranks, std::vector<uint32_t>{2});
        QTest::mouseClick(map.viewport(), Qt::LeftButton, Qt::ControlModifier, header(6));
        QCOMPARE(session->selection().current().ranks, (std::vector<uint32_t>{2, 6}));
        // And by keys.
        map.setCurrent({0, 3});
        QTest::keyClick(&map, Qt::Key_R);
        QTest::keyClick(&map, Qt::Key_Right);
        session->selection().selectRanks({3});
        map.setCurrent({0, 4});
        QTest::keyClick(&map, Qt::Key_R, Qt::ShiftModifier);
        QCOMPARE(session->selection().current().ranks, (std::vector<uint32_t>{3, 4}));
    }

    void foldingAndOrderFromTheToolbar() {
        const auto session = openSynthetic(syntheticModel({}));
        const auto page = showPage(*session);
        const uint32_t folded = page->map().matrix()->rowCount();
        QTest::mouseClick(button(*page, "Fold layers"), Qt::LeftButton);
        QTRY_VERIFY(page->map().matrix()->rowCount() > folded);
        auto* axes = page->findChild<QComboBox*>();
        QCOMPARE(axes->count(), 6);
        QCOMPARE(axes->currentText(), QStringLiteral("pp › dp › tp"));
        axes->setFocus();
        QTest::keyClick(axes, Qt::Key_End);
        emit axes->activated(axes->currentIndex());
        QTRY_COMPARE(page->map().matrix()->axes().front().name, std::string("tp"));
        QTest::mouseClick(button(*page, "Show as table"), Qt::LeftButton);
        auto* table = page->findChild<QTableView*>();
        QTRY_COMPARE(static_cast<size_t>(table->model()->rowCount()), session->catalog().chunkCount());
    }

    void anotherCheckpointReplacesTheMap() {
        auto session = openSession(sampleCheckpoint());
        const auto page = showPage(*session);
        const auto first = session->checkpoint();
        page->map().nextFinding(true);
        session->open(genuineCheckpoint("dcp/t2.15.0-damaged-gap"));
        QTRY_VERIFY(session->checkpoint() != first);
        QVERIFY(!page->map().matrix() || page->map().matrix()->checkpoint() == session->checkpoint());
        QTRY_VERIFY(page->map().matrix() && page->map().matrix()->facts() && page->map().matrix()->hasGaps());
        session->close();
        QVERIFY(!page->map().matrix());
    }

    void expertsHaveLanes() {
        QCOMPARE(splitExpert("model.layers.3.mlp.experts.12.w1").number, int64_t{12});
        QCOMPARE(splitExpert("model.layers.3.mlp.experts.12.w1").group,
                 std::string_view("model.layers.3.mlp.experts."));
        QCOMPARE(splitExpert("decoder.mlp.local_experts.0.fc1").number, int64_t{0});
        for (const char* none : {"", "experts.", "model.shared_experts.w1", "myexperts.3.w", "experts.3x.w",
                                 "experts.99999999999999999999.w", "model.layers.3.w"})
            QCOMPARE(splitExpert(none).number, int64_t{-1});

        const auto session = openSynthetic(mixtureOfExperts());
        const auto folded = matrixOf(*session);
        QCOMPARE(folded->rowCount(), 1U + 8 * 3 + 1);
        QCOMPARE(folded->lanes().size(), size_t{8});
        for (size_t i = 0; i < 8; ++i) {
            const MatrixLane& lane = folded->lanes()[i];
            QCOMPARE(lane.expert, int64_t(i));
            QCOMPARE(lane.rowEnd - lane.rowBegin, 3U);
            QCOMPARE(lane.groupBegin, i == 0);
        }
        QCOMPARE(toQString(folded->laneText(2)), QString("expert 2 of model.layers.0.mlp.experts"));
        const auto all = matrixOf(*session, {{}, false, false});
        QCOMPARE(all->lanes().size(), size_t{4 * 8});
        QCOMPARE(std::count_if(all->lanes().begin(), all->lanes().end(),
                               [](const MatrixLane& lane) { return lane.groupBegin; }),
                 4);
        QVERIFY(matrixOf(*openSynthetic(syntheticModel({})))->lanes().empty());
        const auto page = showPage(*session);
        bool said = false;
        for (const QLabel* label : page->findChildren<QLabel*>())
            said = said || label->text().contains("8 lanes of experts");
        QVERIFY(said);
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
        QVERIFY(
            toQString(matrix->cellText(expert, row.cells[1].column)).contains("a copy of what rank 1 holds"));
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

    void emptyStates() {
        Session none(localEngine());
        PlacementPage page(none);
        page.resize(900, 500);
        page.show();
        QVERIFY(QTest::qWaitForWindowExposed(&page));
        const auto shows = [&](const QString& text) {
            for (const QLabel* label : page.findChildren<QLabel*>()) {
                if (label->isVisible() && label->text().contains(text)) return true;
            }
            return false;
        };
        QVERIFY(shows("No checkpoint is open"));

        const auto session = openSynthetic(syntheticModel({}));
        const auto filtered = showPage(*session);
        session->selection().setFilter("nothing-is-called-so");
        QTRY_VERIFY(session->filtered().active() && session->filtered().tensors().empty());
        QPushButton* clear = nullptr;
        for (QPushButton* candidate : filtered->findChildren<QPushButton*>())
            clear = candidate;
        QVERIFY(clear);
        QTRY_VERIFY(clear->isVisible());
        shoot(*filtered, "placement-no-hit");
        QTest::mouseClick(clear, Qt::LeftButton);
        QTRY_VERIFY(!session->filtered().active());
        QTRY_VERIFY(!clear->isVisible() && filtered->map().matrix());
    }

    void tenMillionCells() {
        QElapsedTimer clock;
        clock.start();
        const auto session = openSynthetic(syntheticGrid(9216, 1000));
        qInfo("catalog and facts: %lld ms", clock.restart());
        const auto matrix = matrixOf(*session, {{}, false, false});
        qInfo("matrix of %u x %u: %lld ms, %.1f MiB", matrix->rowCount(), matrix->columnCount(),
              clock.restart(), static_cast<double>(matrix->bytes()) / (1 << 20));
        PlacementMap map;
        map.resize(1600, 1000);
        map.setMatrix(matrix);
        map.show();
        QVERIFY(QTest::qWaitForWindowExposed(&map));
        measureFrame(map, "all in view");
        for (int i = 0; i < 4; ++i) {
            map.zoomBy(5, map.gridRect().center());
            measureFrame(map, "zoomed in");
        }
        while (!map.showsTiles())
            map.zoomBy(0.5, map.gridRect().center());
        measureFrame(map, "smallest tiles");
    }

    void manySmallTiles() {
        const auto session = openSynthetic(syntheticGrid(160, 240));
        PlacementMap map;
        map.resize(1600, 1000);
        map.setMatrix(matrixOf(*session, {{}, false, false}));
        map.show();
        QVERIFY(QTest::qWaitForWindowExposed(&map));
        while (!map.showsTiles())
            map.zoomBy(0.1, map.gridRect().center());
        measureFrame(map, "as many tiles as can be");
        // Everything is lost: every tile has its hatch and glyph.
        auto facts = std::make_shared<Facts>(*session->facts());
        std::fill(facts->chunkHealth.begin(), facts->chunkHealth.end(), Health::missing);
        std::fill(facts->tensorHealth.begin(), facts->tensorHealth.end(), Health::missing);
        const double width = map.cellSize().width();
        map.setMatrix(PlacementMatrix::build(session->checkpoint(), session->filtered().tree(), facts,
                                             {{}, false, false}));
        QCOMPARE(map.cellSize().width(), width);
        measureFrame(map, "all of them damaged");
        shoot(map, "placement-all-lost");
    }

    void pictures_data() {
        QTest::addColumn<QString>("kind");
        QTest::addColumn<bool>("dark");
        for (const bool dark : {false, true}) {
            for (const char* kind : {"sample", "synthetic64", "damaged", "gap", "large", "folded", "narrow",
                                     "pipeline", "hsdp", "whole", "experts", "experts-many"})
                QTest::addRow("%s-%s", kind, dark ? "dark" : "light") << QString(kind) << dark;
        }
    }
    void pictures() {
        QFETCH(QString, kind);
        QFETCH(bool, dark);
        applyTheme(dark ? ThemeChoice::dark : ThemeChoice::light);
        SyntheticOptions options;
        options.dp = 4;
        std::unique_ptr<Session> session;
        if (kind == "sample") session = openSession(sampleCheckpoint());
        if (kind == "damaged") session = openSession(genuineCheckpoint("dcp/t2.15.0-damaged-missing-file"));
        if (kind == "pipeline") session = openSession(genuineCheckpoint("dcp/t2.15.0-pipeline"));
        if (kind == "hsdp") session = openSession(genuineCheckpoint("dcp/t2.15.0-hsdp"));
        if (kind == "whole") session = openSession(genuineCheckpoint("safetensors/hf-sharded"));
        if (kind == "experts") session = openSynthetic(mixtureOfExperts());
        if (kind == "experts-many") session = openSynthetic(mixtureOfExperts(128));
        if (kind == "gap") session = openSession(genuineCheckpoint("dcp/t2.15.0-damaged-gap"));
        if (kind == "large") {
            options.pp = 8;
            options.dp = 8;
            options.tp = 8;
            options.layers = 96;
            options.gapLayer = 50;
            options.missingFileRank = 300;
            options.optimizer = true;
        } else {
            options.gapLayer = 5;
            options.missingFileRank = 17;
        }
        if (!session) session = openSynthetic(syntheticModel(options));
        const auto page = showPage(*session, kind == "narrow" ? QSize(640, 440) : QSize(1180, 720));
        if (kind == "large") {
            QTest::mouseClick(button(*page, "Fold layers"), Qt::LeftButton);
            QTRY_VERIFY(page->map().matrix()->rowCount() > 1000);
        }
        if (kind == "folded") {
            QTest::mouseClick(button(*page, "Fold ranks"), Qt::LeftButton);
            settle();
            page->map().zoomIn();
            page->map().zoomIn();
        }
        if (kind == "narrow") QCOMPARE(page->width(), 640);
        page->map().setFocus();
        page->map().nextFinding(true);
        const QImage image =
            shoot(*page, QStringLiteral("placement-%1-%2").arg(kind, dark ? "dark" : "light"));
        QVERIFY(!image.isNull());
        if (kind == "large") {
            page->map().zoomBy(6, page->map().cellRect(page->map().current()).center());
            picture(*page, QStringLiteral("placement-zoomed-%1").arg(dark ? "dark" : "light"));
        }
        applyTheme(ThemeChoice::light);
    }
};

SHARDSCOPE_GUI_TEST_MAIN(PlacementTest)
#include "placement_test.moc"
