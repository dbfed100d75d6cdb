// A checkpoint of real size in the window: Llama-3-8B with AdamW on FSDP 8 x TP 4 from its index
// (tests/data/scripts/make_llama_save.py), where the file of rank 17 is truncated. Also what README and guide
// show.
#include <QLineEdit>
#include <QPushButton>
#include <QSettings>
#include <QTabWidget>
#include <QTableView>

#include "support/window_fixture.h"
#include "ui/pages/findings_panel.h"
#include "ui/pages/overview_page.h"
#include "ui/pages/placement_page.h"
#include "ui/widgets/card.h"
#include "ui/widgets/placement_map.h"

using namespace shardscope;
using namespace shardscope::ui;

class RealModelTest : public QObject, WindowFixture {
    Q_OBJECT
  private slots:
    void init() {
        start();
        // For pictures it is where its path says nothing of this machine.
        open(qEnvironmentVariable("SHARDSCOPE_INDEX_COPY", SHARDSCOPE_TEST_DATA "/index/llama3-8b.ssidx"),
             {1600, 1000});
        QVERIFY(window_);
    }
    void cleanup() {
        applyTheme(ThemeChoice::light);
        end();
    }

    void parametersAreNotOptimizerState() {
        const Catalog& catalog = session().catalog();
        QCOMPARE(catalog.elementsOf(Role::parameter), uint64_t{8'030'261'248});
        QCOMPARE(catalog.elementsOf(Role::optimizer), uint64_t{2} * 8'030'261'248);
        const QString text = shownText(*window_).replace(QChar::Nbsp, ' ');
        QVERIFY2(text.contains("8.03 B parameters (+ 16.06 B in the optimizer)"), qPrintable(text));
        QCOMPARE(catalog.rankCount(), uint32_t{32});
        QCOMPARE(catalog.chunkCount(), size_t{23'256});
    }

    // From opening to the byte that is missing: a look at the map, one click on Validate, one finding.
    void truncatedRankIsFound() {
        for (uint32_t rank = 0; rank < 32; ++rank)
            QCOMPARE(session().facts()->ranks[rank].health >= Health::missing, rank == 17);
        session().validation().start(ValidateLevel::metadata);
        QTRY_VERIFY(session().validation().report() && !session().validation().running());
        QCOMPARE(*session().validation().verdict(), Verdict::unsafe);
        QCOMPARE(session().validation().report()->findings.size(), size_t{1});
        QCOMPARE(QString::fromStdString(session().validation().report()->findings[0].rule),
                 QStringLiteral("file.truncated"));
        QCOMPARE(session().validation().report()->findings[0].count, uint64_t{183});
        QTest::keyClick(window_, Qt::Key_F8);
        const TensorId found = session().selection().current().tensor;
        QVERIFY(found != kNone);
        // Details call the file's state as the table of files does.
        const FileId file = session().selection().current().file;
        QVERIFY(file != kNone);
        session().selection().selectFile(file);
        session().selection().setPage(Page::files);
        QTRY_VERIFY2(shownText(*window_).replace(QChar::Nbsp, ' ').contains("truncated by 798.0 MiB"),
                     qPrintable(shownText(*window_)));
        QVERIFY(session().facts()->tensorHealth[found] >= Health::missing);
    }

    // On a laptop's screen the page has most of it, and the answer stands there at once.
    void firstScreen_data() { pictures_data(); }
    void firstScreen() {
        QFETCH(bool, dark);
        applyTheme(dark ? ThemeChoice::dark : ThemeChoice::light);
        constexpr QSize kLaptop{1366, 768};
        window_->resize(kLaptop);
        QTRY_COMPARE(window_->size(), kLaptop);
        QVERIFY(!picture(*window_, dark ? "first-screen-dark" : "first-screen-light").isNull());
        const QSize page = window_->findChild<OverviewPage*>()->size();
        const double share =
            double(page.width()) * page.height() / (double(kLaptop.width()) * kLaptop.height());
        QVERIFY2(share >= 0.6, qPrintable(QString::number(share)));
    }

    // On a screen of 3840 x 2160 without scaling the first page has no empty half.
    void largeScreen_data() { pictures_data(); }
    void largeScreen() {
        QFETCH(bool, dark);
        applyTheme(dark ? ThemeChoice::dark : ThemeChoice::light);
        constexpr QSize kScreen{3840, 2080};  // without the desktop's bars
        window_->resize(kScreen);
        QTRY_COMPARE(window_->size(), kScreen);
        QVERIFY(!picture(*window_, dark ? "large-screen-dark" : "large-screen-light").isNull());
        const auto* page = window_->findChild<OverviewPage*>();
        int lowest = 0;
        for (const Panel* panel : page->findChildren<Panel*>())
            if (panel->isVisible())
                lowest = std::max(lowest, panel->mapTo(page, panel->rect().bottomLeft()).y());
        QVERIFY2(lowest > 0.75 * page->height(), qPrintable(QString::number(lowest)));
    }

    // Tables show the row of what was selected elsewhere, whichever page was there before.
    void whatIsSelectedIsInView() {
        window_->resize(1366, 768);
        const auto rowIsSeen = [this](const char* name) {
            for (const auto* table : window_->findChildren<QTableView*>()) {
                if (!table->isVisible() || table->accessibleName() != name) continue;
                const QRect at = table->visualRect(table->currentIndex()), seen = table->viewport()->rect();
                return table->currentIndex().row() > 0 && at.top() >= seen.top() &&
                       at.bottom() <= seen.bottom();
            }
            return false;
        };
        const TensorId t = session().catalog().find("model.layers.0.attention.wo.weight");
        const ChunkId last = session().catalog().endChunk(t) - 1;
        const ChunkInfo chunk = session().catalog().chunk(t, last);
        session().selection().selectChunk(t, last, chunk.rank, chunk.file);
        session().selection().setPage(Page::files);
        QTRY_VERIFY(rowIsSeen("Files"));
        session().selection().setPage(Page::tensor);
        QTRY_VERIFY(rowIsSeen("Chunks of the tensor"));
    }

    void pictures_data() {
        QTest::addColumn<bool>("dark");
        QTest::newRow("light") << false;
        QTest::newRow("dark") << true;
    }
    void pictures() {
        QFETCH(bool, dark);
        applyTheme(dark ? ThemeChoice::dark : ThemeChoice::light);
        const QString end = dark ? QStringLiteral("-dark") : QStringLiteral("-light");
        session().validation().start(ValidateLevel::metadata);
        QTRY_VERIFY(session().validation().report() && !session().validation().running());
        session().selection().setPage(Page::overview);
        QVERIFY(!picture(*window_, "real-overview" + end).isNull());
        auto* mesh = window_->findChild<QLineEdit*>(QStringLiteral("asIfMesh"));
        mesh->setText(QStringLiteral("fsdp=4,tp=8"));
        QTest::keyClick(mesh, Qt::Key_Return);
        QTRY_VERIFY(window_->findChild<QPushButton*>(QStringLiteral("asIfReshard"))->isVisible());
        QVERIFY(!picture(*window_, "real-as-if" + end).isNull());
        mesh->clear();
        session().selection().setPage(Page::placement);
        const PlacementMap& map = window_->findChild<PlacementPage*>()->map();
        QTRY_VERIFY(map.matrix() && map.matrix()->facts() == session().facts());
        QVERIFY2(map.showsTiles(), "slices can be read without a zoom");
        QTest::keyClick(window_, Qt::Key_F8);  // brings what is damaged into view
        session().selection().setPage(Page::placement);
        QVERIFY(map.current().valid() &&
                map.gridRect().contains(map.cellRect(map.current()).center().toPoint()));
        QVERIFY(!picture(*window_, "real-placement" + end).isNull());
        const auto whole = map.matrix();
        session().selection().setFilter(QStringLiteral("model.layers.0."));
        QTRY_VERIFY(map.matrix() && map.matrix() != whole);
        QVERIFY(!picture(*window_, "real-placement-layer" + end).isNull());
        session().selection().setFilter({});
        session().selection().selectTensor(session().catalog().find("model.layers.0.attention.wo.weight"));
        session().selection().setPage(Page::tensor);
        QVERIFY(!picture(*window_, "real-tensor" + end).isNull());
        session().selection().setPage(Page::files);
        QVERIFY(!picture(*window_, "real-files" + end).isNull());
    }
};

SHARDSCOPE_GUI_TEST_MAIN(RealModelTest)
#include "real_model_test.moc"
