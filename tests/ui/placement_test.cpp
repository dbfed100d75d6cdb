// The placement page under mouse and keys, for screen readers, and with the selection.
#include <QAbstractItemModelTester>
#include <QAccessible>
#include <QApplication>
#include <QComboBox>
#include <QLabel>
#include <QPushButton>
#include <QScrollBar>
#include <QSignalSpy>
#include <QTableView>

#include "support/placement_fixture.h"
#include "survey/layer_name.h"
#include "ui/models/texts.h"
#include "ui/widgets/minimap.h"

using namespace shardscope;
using namespace shardscope::ui;

class PlacementTest : public QObject {
    Q_OBJECT

  private slots:
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
        QTest::mouseClick(button(*page, "Groups"), Qt::LeftButton);
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

    // By keys, mouse and menu alike; who opens one stays at it.
    void groupsOpenCloseAndPin() {
        SyntheticOptions options;
        options.gapLayer = 5;
        const auto session = openSynthetic(syntheticModel(options));
        const auto page = showPage(*session);
        QTest::mouseClick(button(*page, "Fold layers"), Qt::LeftButton);
        PlacementMap& map = page->map();
        QTRY_COMPARE(map.matrix()->rowCount(), 16U);
        const TensorId odd = tensorNamed(*session, "model.layers.5.mlp.w0.weight");
        const uint32_t layer = map.matrix()->rowOf(odd);
        map.setFocus();
        map.setCurrent({layer, 5});
        QVERIFY2(map.accessibleDescription().contains("model.layers.5 (8 tensors)"),
                 qPrintable(map.accessibleDescription()));
        QTest::keyClick(&map, Qt::Key_Return);
        QTRY_COMPARE(map.matrix()->rowCount(), 16U + 8);
        QCOMPARE(map.current(), (PlacementMap::Cell{layer, 5}));
        picture(*page, "placement-groups");
        QTest::keyClick(&map, Qt::Key_P);
        QTRY_COMPARE(map.matrix()->pinnedCount(), 1U);
        QVERIFY(map.matrix()->row(0).summary);
        QCOMPARE(map.current().row, layer + 1);
        QTest::keyClick(&map, Qt::Key_P);
        QTRY_COMPARE(map.matrix()->pinnedCount(), 0U);
        // A click on its name closes it.
        QTest::mouseClick(map.viewport(), Qt::LeftButton, {},
                          QPoint(20, map.cellRect({layer, 0}).center().toPoint().y()));
        QTRY_COMPARE(map.matrix()->rowCount(), 16U);
        // A tensor that is chosen elsewhere is at the sum of its group.
        session->selection().selectTensor(odd);
        QCOMPARE(map.current().row, layer);
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
        QTest::mouseClick(button(*page, "Groups"), Qt::LeftButton);
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
};

SHARDSCOPE_GUI_TEST_MAIN(PlacementTest)
#include "placement_test.moc"
