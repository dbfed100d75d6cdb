#include "ui/pages/tensor_page.h"

#include <QApplication>
#include <QCheckBox>
#include <QComboBox>
#include <QLabel>
#include <QLineEdit>
#include <QProgressBar>
#include <QPushButton>
#include <QSignalSpy>
#include <QSlider>
#include <QSpinBox>
#include <QTabWidget>
#include <QTableView>
#include <atomic>

#include "support/genuine.h"
#include "support/gui_test.h"
#include "survey/box_scene.h"
#include "ui/pages/values_pane.h"
#include "ui/widgets/heatmap.h"
#include "ui/widgets/histogram.h"
#include "ui/widgets/tensor_box.h"

using namespace shardscope;
using namespace shardscope::ui;

namespace {

std::unique_ptr<TensorPage> showPage(Session& session, QSize size = {1000, 760}) {
    auto page = std::make_unique<TensorPage>(session);
    page->resize(size);
    page->show();
    [&] { QVERIFY(QTest::qWaitForWindowExposed(page.get())); }();
    return page;
}

void select(Session& session, TensorPage& page, TensorId tensor) {
    session.selection().selectTensor(tensor);
    QTRY_VERIFY_WITH_TIMEOUT(page.box().scene() && page.box().scene()->tensor == tensor, 10'000);
}

bool showsText(const QWidget& page, const QString& text) {
    for (const QLabel* label : page.findChildren<QLabel*>()) {
        if (label->isVisible() && label->text().contains(text)) return true;
    }
    return false;
}

template <class T>
T* named(const QWidget& page, const QString& name) {
    for (T* candidate : page.findChildren<T*>()) {
        if (candidate->accessibleName() == name) return candidate;
    }
    return nullptr;
}

QPushButton* readButton(const QWidget& page) {
    for (QPushButton* candidate : page.findChildren<QPushButton*>()) {
        if (candidate->text().contains("Read")) return candidate;
    }
    return nullptr;
}

TensorId firstWith(const Catalog& catalog, const std::function<bool(TensorId)>& test) {
    for (TensorId t = 0; t < catalog.tensorCount(); ++t) {
        if (test(t)) return t;
    }
    return kNone;
}

// A tensor [4, 6, 8] in chunks that are cut along its first two dimensions.
std::shared_ptr<const Catalog> threeDimensions() {
    CatalogBuilder builder("dcp", "", "synthetic");
    FileInfo file;
    file.path = "__0_0.distcp";
    file.size = 1 << 20;
    const FileId id = builder.addFile(file);
    TensorInfo info;
    info.name = "experts.w";
    info.shape = {4, 6, 8};
    if (!builder.addTensor(info).ok()) return nullptr;
    for (int64_t e = 0; e < 4; ++e) {
        for (int64_t r = 0; r < 2; ++r) {
            const Dims offsets{e, r * 3, 0}, lengths{1, 3, 8};
            if (!builder
                     .addChunk({static_cast<uint32_t>(e * 2 + r), id, 0, 96, offsets, lengths, std::nullopt})
                     .ok())
                return nullptr;
        }
    }
    builder.setRankCount(8);
    return std::make_shared<const Catalog>(std::move(builder).finish());
}

}  // namespace

class TensorPageTest : public QObject {
    Q_OBJECT

  private slots:
    void scenesOfThreeDimensions() {
        const auto session = openSynthetic(threeDimensions());
        BoxView view = defaultView(session->catalog().shape(0));
        QCOMPARE(view.down, 1);
        QCOMPARE(view.across, 2);
        auto scene = makeBoxScene(session->checkpoint(), session->facts(), 0, view);
        // Four experts one behind the other, in two places; not copies of one another.
        QCOMPARE(scene->shapes.size(), size_t{2});
        QCOMPARE(scene->shapes[0].count, 4U);
        QVERIFY(!scene->shapes[0].replicas);
        view.index[0] = 2;
        scene = makeBoxScene(session->checkpoint(), session->facts(), 0, view);
        QCOMPARE(scene->shapes.size(), size_t{2});
        QCOMPARE(scene->shapes[0].count, 1U);
        QCOMPARE(scene->shapes[0].rank, 4U);
        QCOMPARE(scene->hiddenChunks, 6U);
        view = {0, 1, {-1, -1, -1}};
        scene = makeBoxScene(session->checkpoint(), session->facts(), 0, view);
        QCOMPARE(scene->shapes.size(), size_t{8});
        QCOMPARE(scene->width, int64_t{6});
        QCOMPARE(scene->shapeOf(session->catalog().firstChunk(0) + 5), size_t{5});
        const auto ghosts = ghostShapes({{3, Box{{0, 0, 0}, {2, 6, 8}}}}, session->catalog().shape(0), view);
        QCOMPARE(ghosts.size(), size_t{1});
        QCOMPARE(ghosts[0].bottom, int64_t{2});
    }

    void gapsOverlapsAndFlatRangesAreShapes() {
        for (const auto& [id, kind] : {std::pair("dcp/t2.15.0-damaged-gap", BoxShape::Kind::gap),
                                       std::pair("dcp/t2.15.0-damaged-overlap", BoxShape::Kind::overlap)}) {
            const auto session = openSession(genuineCheckpoint(id));
            QVERIFY(session->hasFacts());
            const Health wanted = kind == BoxShape::Kind::gap ? Health::gap : Health::overlap;
            const TensorId tensor = firstWith(
                session->catalog(), [&](TensorId t) { return session->facts()->tensorHealth[t] == wanted; });
            QVERIFY(tensor != kNone);
            const auto scene = makeBoxScene(session->checkpoint(), session->facts(), tensor,
                                            defaultView(session->catalog().shape(tensor)));
            size_t found = 0;
            for (const BoxShape& shape : scene->shapes)
                found += shape.kind == kind;
            QVERIFY(found > 0);
        }
        const auto session = openSession(genuineCheckpoint("dcp/t2.15.0-fsdp1"));
        const TensorId flat = firstWith(session->catalog(), [&](TensorId t) {
            const ChunkId c = session->catalog().firstChunk(t);
            return c < session->catalog().endChunk(t) && session->catalog().chunk(t, c).flat.has_value();
        });
        if (flat == kNone) return;  // this writer cuts along dimensions
        const auto scene = makeBoxScene(session->checkpoint(), session->facts(), flat,
                                        defaultView(session->catalog().shape(flat)));
        QVERIFY(!scene->shapes.empty());
    }

    void boxAndTableFollowOneAnother() {
        const auto session = openSynthetic(syntheticModel({}));
        const auto page = showPage(*session);
        const TensorId tensor = session->catalog().find("model.layers.0.mlp.w0.weight");
        select(*session, *page, tensor);
        QVERIFY(showsText(*page, "model.layers.0.mlp.w0.weight"));
        QVERIFY(showsText(*page, "bfloat16 [4096, 4096]"));
        TensorBox& box = page->box();
        auto* table = named<QTableView>(*page, "Chunks of the tensor");
        QCOMPARE(table->model()->rowCount(), 8);
        QCOMPARE(box.scene()->shapes.size(), size_t{8});
        QVERIFY(std::abs(box.boxRect().width() - box.boxRect().height()) <= 1);

        const BoxShape& sixth = box.scene()->shapes[5];
        QTest::mouseClick(&box, Qt::LeftButton, {}, box.shapeRect(sixth).center().toPoint());
        const ChunkId chunk = box.scene()->members[sixth.first];
        QCOMPARE(session->selection().current().chunk, chunk);
        QCOMPARE(table->currentIndex().row(), 5);
        QCOMPARE(session->selection().current().ranks, std::vector<uint32_t>{sixth.rank});
        QTest::mouseClick(table->viewport(), Qt::LeftButton, {},
                          table->visualRect(table->model()->index(2, 1)).center());
        QCOMPARE(box.selectedChunk(), session->catalog().firstChunk(tensor) + 2);

        box.setFocus();
        QTest::keyClick(&box, Qt::Key_Down);
        QCOMPARE(box.selectedChunk(), session->catalog().firstChunk(tensor) + 6);
        QTest::keyClick(&box, Qt::Key_Left);
        QCOMPARE(box.selectedChunk(), session->catalog().firstChunk(tensor) + 5);
        QVERIFY(box.accessibleDescription().contains("rank 5"));
        QTest::keyClick(&box, Qt::Key_Home);
        QCOMPARE(box.selectedChunk(), session->catalog().firstChunk(tensor));

        // Sorted by rank downwards, the rows still lead to their chunks.
        table->sortByColumn(1, Qt::DescendingOrder);
        QTest::mouseClick(table->viewport(), Qt::LeftButton, {},
                          table->visualRect(table->model()->index(0, 1)).center());
        QCOMPARE(session->selection().current().ranks, std::vector<uint32_t>{7});
        // Another view's choice comes here as well.
        session->selection().selectChunk(tensor, session->catalog().firstChunk(tensor) + 3, 3, kNone);
        QCOMPARE(box.selectedChunk(), session->catalog().firstChunk(tensor) + 3);
        QCOMPARE(table->currentIndex().row(), 4);
    }

    void axesAndSliders() {
        const auto session = openSynthetic(threeDimensions());
        const auto page = showPage(*session);
        select(*session, *page, 0);
        auto* across = named<QComboBox>(*page, "Dimension across");
        auto* slider = named<QSlider>(*page, "Index along dim 0");
        QVERIFY(slider && slider->isVisible());
        QCOMPARE(page->box().scene()->shapes[0].count, 4U);
        slider->setFocus();
        QTest::keyClick(slider, Qt::Key_Right);
        QTest::keyClick(slider, Qt::Key_Right);
        QCOMPARE(page->box().scene()->view.index[0], int64_t{1});
        QCOMPARE(page->box().scene()->shapes[0].rank, 2U);
        QCOMPARE(named<QSpinBox>(*page, "Index along dim 0, as a number")->value(), 1);
        across->setCurrentIndex(1);  // dim 1, which is drawn down: they change places
        emit across->activated(1);
        QCOMPARE(page->box().scene()->view.across, 1);
        QCOMPARE(page->box().scene()->view.down, 2);
        shoot(*page, "tensor-3d");
    }

    void targetSharding() {
        const auto session = openSynthetic(syntheticModel({}));
        const auto page = showPage(*session);
        select(*session, *page, session->catalog().find("model.layers.0.mlp.w0.weight"));
        auto* mesh = named<QLineEdit>(*page, "Target mesh");
        auto* rule = named<QLineEdit>(*page, "Target sharding");
        QTest::keyClicks(mesh, "tp=8");
        QTest::keyClicks(rule, "tp=0");
        QVERIFY(showsText(*page, "Target: 8 shards"));
        shoot(*page, "tensor-ghost");
        rule->clear();
        QTest::keyClicks(rule, "dp=0");
        QVERIFY(showsText(*page, "Target: "));
        QVERIFY(!showsText(*page, "parts"));
        rule->clear();
        QTest::keyClicks(rule, "tp=5");
        QVERIFY(showsText(*page, "no dimension 5"));
        mesh->clear();
        QTest::keyClicks(mesh, "what");
        QVERIFY(showsText(*page, "Target: "));
    }

    void valuesOfTheSample() {
        const auto session = openSession(sampleCheckpoint());
        QVERIFY(session->hasFacts());
        const auto page = showPage(*session);
        const TensorId tensor = firstWith(session->catalog(), [&](TensorId t) {
            return session->catalog().shape(t).size() == 2 &&
                   session->catalog().endChunk(t) - session->catalog().firstChunk(t) > 1;
        });
        QVERIFY(tensor != kNone);
        select(*session, *page, tensor);
        page->findChild<QTabWidget*>()->setCurrentIndex(1);
        QVERIFY(showsText(*page, "Nothing has been read yet"));
        QTest::mouseClick(readButton(*page), Qt::LeftButton);
        QTRY_VERIFY(showsText(*page, "values read"));
        QTRY_VERIFY(!page->findChild<Heatmap*>()->values().values.empty());
        QVERIFY(showsText(*page, "Mean"));
        auto* heatmap = page->findChild<Heatmap*>();
        QVERIFY(heatmap->values().rows > 1 && heatmap->values().columns > 1);
        heatmap->setFocus();
        QTest::keyClick(heatmap, Qt::Key_Right);
        QTest::keyClick(heatmap, Qt::Key_Down);
        QCOMPARE(heatmap->current(), QPoint(0, 1));
        QVERIFY(heatmap->accessibleDescription().contains("dim 0: "));
        auto* histogram = page->findChild<Histogram*>();
        histogram->setFocus();
        QTest::keyClick(histogram, Qt::Key_End);
        QVERIFY(histogram->currentBin() > 0);
        QVERIFY(histogram->accessibleDescription().contains(" %)"));
        for (QCheckBox* box : page->findChildren<QCheckBox*>()) {
            if (box->text() == "Log counts" || box->text() == "Log scale")
                QTest::mouseClick(box, Qt::LeftButton, {}, {8, box->height() / 2});
        }
        shoot(*page, "tensor-values-log");
        // Another tensor: nothing is read of it unasked.
        select(*session, *page, tensor == 0 ? 1 : 0);
        QVERIFY(heatmap->values().values.empty());
        QVERIFY(showsText(*page, "Nothing has been read yet"));
    }

    void valuesThatAreNotFinite() {
        const auto session = openSession(genuineCheckpoint("dcp/t2.15.0-damaged-nan-block"));
        QVERIFY(session->hasFacts());
        const auto page = showPage(*session);
        page->findChild<QTabWidget*>()->setCurrentIndex(1);
        auto* heatmap = page->findChild<Heatmap*>();
        bool found = false;
        for (TensorId t = 0; t < session->catalog().tensorCount() && !found; ++t) {
            select(*session, *page, t);
            QTest::mouseClick(readButton(*page), Qt::LeftButton);
            QTRY_VERIFY(showsText(*page, "values read") && !heatmap->values().values.empty());
            found = std::any_of(heatmap->values().values.begin(), heatmap->values().values.end(),
                                [](double v) { return std::isnan(v); });
        }
        QVERIFY(found);
        QVERIFY(named<QLabel>(*page, "Statistics of the values")->accessibleDescription().contains("NaN\t8"));
        shoot(*page, "tensor-nan");
    }

    void readingIsCancelledAndDropped() {
        auto engine = std::make_shared<ScriptedEngine>();
        auto started = std::make_shared<std::atomic<int>>(0);
        engine->before = [started](const std::string& call, const TaskContext& context) -> Status {
            if (call != "statistics" && call != "slice") return {};
            ++*started;
            while (!context.stop.stopRequested())
                QThread::msleep(2);
            return context.stop.poll();
        };
        const auto session = openSession(sampleCheckpoint(), engine);
        const auto page = showPage(*session);
        select(*session, *page, 0);
        page->findChild<QTabWidget*>()->setCurrentIndex(1);
        QTest::mouseClick(readButton(*page), Qt::LeftButton);
        QTRY_VERIFY(*started > 0);
        auto* bar = named<QProgressBar>(*page, "Progress of reading values");
        QVERIFY(bar->isVisible());
        QVERIFY(!readButton(*page)->isEnabled());
        for (QPushButton* candidate : page->findChildren<QPushButton*>()) {
            if (candidate->text() == "Cancel") QTest::mouseClick(candidate, Qt::LeftButton);
        }
        QTRY_VERIFY(showsText(*page, "canceled"));
        QTRY_VERIFY(!bar->isVisible() && readButton(*page)->isEnabled());
        // A late answer of another tensor changes nothing.
        QTest::mouseClick(readButton(*page), Qt::LeftButton);
        QTRY_VERIFY(*started > 2);
        select(*session, *page, 1);
        QTRY_VERIFY(!bar->isVisible());
        Tasks::waitForAll();
        QCoreApplication::processEvents();
        QVERIFY(showsText(*page, "Nothing has been read yet"));
    }

    void failuresAreSaid() {
        auto engine = std::make_shared<ScriptedEngine>();
        engine->before = [](const std::string& call, const TaskContext&) -> Status {
            if (call == "statistics" || call == "slice")
                return makeError(ErrorCode::io, "the disk went away");
            return {};
        };
        const auto session = openSession(sampleCheckpoint(), engine);
        const auto page = showPage(*session);
        select(*session, *page, 0);
        page->findChild<QTabWidget*>()->setCurrentIndex(1);
        QTest::mouseClick(readButton(*page), Qt::LeftButton);
        QTRY_VERIFY(showsText(*page, "disk went away"));
    }

    void emptyStates() {
        const auto session = openSynthetic(syntheticModel({}));
        const auto page = showPage(*session);
        QTRY_VERIFY(showsText(*page, "No tensor is selected"));
        session->selection().selectModule("model.layers.3");
        QTRY_VERIFY(showsText(*page, "is a module of 8 tensors"));
        shoot(*page, "tensor-module");
        session->close();
        QTRY_VERIFY(showsText(*page, "No checkpoint is open"));
    }

    void genuineTensors_data() {
        QTest::addColumn<QString>("path");
        for (const test::GenuineCase& one : test::allGenuineCases()) {
            if (one.damaged() || one.shown.contains("refused") || !one.variant().empty()) continue;
            QTest::newRow(one.id().c_str()) << QString::fromStdString(one.openPath());
        }
    }
    // Every tensor of them can be shown, and each of its chunks is somewhere.
    void genuineTensors() {
        QFETCH(QString, path);
        const auto session = openSession(path);
        if (session->state() == Session::State::run) return;  // of steps, which are opened one by one
        QVERIFY2(session->hasFacts(), session->error() ? describe(*session->error()).c_str() : "");
        const auto page = showPage(*session);
        for (TensorId t = 0; t < std::min<size_t>(12, session->catalog().tensorCount()); ++t) {
            select(*session, *page, t);
            const BoxScene& scene = *page->box().scene();
            std::vector<bool> seen(session->catalog().endChunk(t) - session->catalog().firstChunk(t), false);
            for (const ChunkId c : scene.members)
                seen[c - session->catalog().firstChunk(t)] = true;
            QCOMPARE(static_cast<size_t>(std::count(seen.begin(), seen.end(), true)) + scene.emptyChunks,
                     seen.size());
            QVERIFY(!page->grab().isNull());
        }
    }

    void hundredThousandChunks() {
        const auto session = openSynthetic(syntheticGrid(1, 100'000));
        const auto page = showPage(*session);
        select(*session, *page, 0);
        QImage image(page->box().size(), QImage::Format_RGB32);
        const double start = threadMilliseconds();
        page->box().render(&image);
        const double first = threadMilliseconds();
        page->box().render(&image);
        const double next = threadMilliseconds();
        qInfo("100,000 chunks: first frame %.1f ms, next frame %.1f ms", first - start, next - first);
        QVERIFY(first - start < 2000 && next - first < 200);
        shoot(*page, "tensor-many");
    }

    void pictures_data() {
        QTest::addColumn<QString>("kind");
        QTest::addColumn<bool>("dark");
        for (const bool dark : {false, true}) {
            for (const char* kind : {"sample", "synthetic64", "gap", "overlap", "missing", "replicas",
                                     "vector", "values", "narrow"})
                QTest::addRow("%s-%s", kind, dark ? "dark" : "light") << QString(kind) << dark;
        }
    }
    void pictures() {
        QFETCH(QString, kind);
        QFETCH(bool, dark);
        applyTheme(dark ? ThemeChoice::dark : ThemeChoice::light);
        std::unique_ptr<Session> session;
        const auto genuine = [](const char* id) { return openSession(genuineCheckpoint(id)); };
        if (kind == "sample" || kind == "values") session = openSession(sampleCheckpoint());
        if (kind == "gap") session = genuine("dcp/t2.15.0-damaged-gap");
        if (kind == "overlap") session = genuine("dcp/t2.15.0-damaged-overlap");
        if (kind == "missing") session = genuine("dcp/t2.15.0-damaged-missing-file");
        SyntheticOptions options;
        options.dp = 4;
        if (kind == "replicas") {
            CatalogBuilder builder("torch", "", "synthetic");
            FileInfo file;
            file.path = "model.pt";
            file.size = 1 << 20;
            const FileId id = builder.addFile(file);
            TensorInfo info;
            info.name = "copied.weight";
            info.shape = {64, 96};
            QVERIFY(builder.addTensor(info).ok());
            for (uint32_t r = 0; r < 8; ++r) {
                const Dims offsets{int64_t{r % 2} * 32, 0}, lengths{32, 96};
                QVERIFY(builder.addChunk({r, id, 0, 64, offsets, lengths, std::nullopt}).ok());
            }
            builder.setMesh(Mesh{{{"dp", 4}, {"tp", 2}}, Mesh::Source::declared, {}});
            builder.setRankCount(8);
            session = openSynthetic(std::make_shared<const Catalog>(std::move(builder).finish()));
        }
        if (!session) session = openSynthetic(syntheticModel(options));
        QVERIFY(session->hasFacts());
        const auto page = showPage(*session, kind == "narrow" ? QSize(640, 440) : QSize(1000, 760));
        const Facts& facts = *session->facts();
        TensorId tensor = firstWith(session->catalog(),
                                    [&](TensorId t) { return facts.tensorHealth[t] > Health::nonFinite; });
        if (tensor == kNone || kind == "vector")
            tensor = firstWith(session->catalog(), [&](TensorId t) {
                return session->catalog().shape(t).size() == (kind == "vector" ? 1 : 2) &&
                       session->catalog().endChunk(t) - session->catalog().firstChunk(t) > 1;
            });
        QVERIFY(tensor != kNone);
        select(*session, *page, tensor);
        if (kind == "values") {
            page->findChild<QTabWidget*>()->setCurrentIndex(1);
            QTest::mouseClick(readButton(*page), Qt::LeftButton);
            QTRY_VERIFY(showsText(*page, "values read"));
            QTRY_VERIFY(!page->findChild<Heatmap*>()->values().values.empty());
        }
        if (kind == "narrow") QCOMPARE(page->size(), QSize(640, 440));
        page->box().setFocus();
        QTest::keyClick(&page->box(), Qt::Key_Right);
        settle();
        QVERIFY(!shoot(*page, QStringLiteral("tensor-%1-%2").arg(kind, dark ? "dark" : "light")).isNull());
        applyTheme(ThemeChoice::light);
    }
};

SHARDSCOPE_GUI_TEST_MAIN(TensorPageTest)
#include "tensor_page_test.moc"
