// How long the placement map takes to paint, and pictures of its page.
#include <QElapsedTimer>
#include <QPainter>
#include <QScrollBar>
#include <ctime>

#include "support/placement_fixture.h"
#include "ui/models/texts.h"

using namespace shardscope;
using namespace shardscope::ui;

namespace {

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

class PlacementFramesTest : public QObject {
    Q_OBJECT

  private slots:
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
            QTest::mouseClick(button(*page, "Groups"), Qt::LeftButton);
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

SHARDSCOPE_GUI_TEST_MAIN(PlacementFramesTest)
#include "placement_frames_test.moc"
