// The window: its pages, keys, selection and search.
#include <QLineF>
#include <QListWidget>
#include <QMimeData>
#include <QStatusBar>
#include <QTableView>
#include <QToolButton>
#include <QTreeWidget>
#include <algorithm>
#include <set>

#include "support/accessibility.h"
#include "support/recorded_job.h"
#include "support/window_fixture.h"
#include "ui/models/file_table_model.h"
#include "ui/models/texts.h"
#include "ui/pages/convert_wizard.h"
#include "ui/pages/details_panel.h"
#include "ui/pages/jobs_panel.h"
#include "ui/pages/objects_page.h"
#include "ui/pages/overview_rows.h"
#include "ui/pages/start_page.h"
#include "ui/pages/tree_panel.h"
#include "ui/pages/verdict_strip.h"
#include "ui/widgets/placement_map.h"
#include "ui/widgets/tensor_box.h"
#include "ui/window/breadcrumb.h"
#include "ui/window/locator.h"
#include "ui/window/shortcut_sheet.h"

using namespace shardscope;
using namespace shardscope::ui;
using shardscope::test::RecordedJob;

class WindowTest : public QObject, protected WindowFixture {
    Q_OBJECT

  private slots:
    void init() { start(); }

    void cleanup() { end(); }

    // What runs shows before anything is open, in the words of all who show jobs; Enter goes there.
    void runningJobsOnTheStartPage() {
        QVERIFY(RecordedJob::write(qEnvironmentVariable("XDG_STATE_HOME") + "/shardscope/jobs"));
        MainWindow* window = windows_->newWindow();
        window->resize(1280, 720);
        window->show();
        QVERIFY(QTest::qWaitForWindowExposed(window));
        auto* list = window->startPage().findChild<QListWidget*>("runningJobs");
        // The row is there before its record has been read.
        QTRY_VERIFY2(list->count() == 1 && list->item(0)->text().contains(RecordedJob::text),
                     list->count() == 1 ? qPrintable(list->item(0)->text()) : "no job");
        QVERIFY(list->isVisible());
        // Its count has the room that it needs at once.
        const auto buttons = window->statusBar()->findChildren<QToolButton*>();
        const auto count = std::ranges::find(buttons, QStringLiteral("Jobs: 1 running"), &QToolButton::text);
        QVERIFY(count != buttons.end());
        QVERIFY((*count)->width() >= (*count)->sizeHint().width());
        shoot(*window, "start-jobs");
        list->setFocus();
        list->setCurrentRow(0);
        QTest::keyClick(list, Qt::Key_Return);
        auto* panel = window->findChild<JobsPanel*>();
        QTRY_VERIFY(panel->isVisible());
        QTRY_COMPARE(panel->selectedJob(), QString::fromLatin1(RecordedJob::id));
    }

    void startPage() {
        MainWindow* window = windows_->newWindow();
        window->resize(1280, 720);
        window->show();
        QVERIFY(QTest::qWaitForWindowExposed(window));
        shoot(*window, "start-empty");
        QVERIFY(window->startPage().isVisible());
        QVERIFY(!actionOf(*window, "Convert or reshard…")->isEnabled());
        // A drop opens.
        QMimeData mime;
        mime.setUrls({QUrl::fromLocalFile(sampleCheckpoint())});
        QDragEnterEvent enter(QPoint(10, 10), Qt::CopyAction, &mime, Qt::LeftButton, Qt::NoModifier);
        QCoreApplication::sendEvent(window, &enter);
        QVERIFY(enter.isAccepted());
        QDropEvent drop(QPointF(10, 10), Qt::CopyAction, &mime, Qt::LeftButton, Qt::NoModifier);
        QCoreApplication::sendEvent(window, &drop);
        QTRY_VERIFY(window->session().hasFacts());
        QVERIFY(window->windowTitle().contains("dcp-fsdp2-tp"));
        QCOMPARE(windows_->recents().list().size(), size_t{1});
        window->session().close();
        QTRY_VERIFY(window->startPage().isVisible());
        QCOMPARE(window->startPage().recentList().count(), 1);
        settle();
        shoot(*window, "start-recent");
        // Enter on a recent one opens it again.
        window->startPage().recentList().setFocus();
        window->startPage().recentList().setCurrentRow(0);
        QTest::keyClick(&window->startPage().recentList(), Qt::Key_Return);
        QTRY_VERIFY(window->session().hasFacts());
    }

    void pagesAndKeys() {
        open(sampleCheckpoint());
        const char* names[] = {"overview", "placement", "tensor", "files", "compare"};
        for (const bool dark : {false, true}) {
            applyTheme(dark ? ThemeChoice::dark : ThemeChoice::light);
            for (int i = 0; i < 5; ++i) {
                QTest::keyClick(window_, static_cast<Qt::Key>(Qt::Key_1 + i), Qt::AltModifier);
                QCOMPARE(window_->tabs().currentIndex(), i);
                if (i == 2) {
                    TensorId largest = 0;
                    for (TensorId t = 0; t < window_->session().catalog().tensorCount(); ++t) {
                        if (window_->session().catalog().bytes(t) >
                            window_->session().catalog().bytes(largest))
                            largest = t;
                    }
                    window_->session().selection().selectTensor(largest);
                }
                settle();
                shoot(*window_, QStringLiteral("window-%1-%2").arg(names[i], dark ? "dark" : "light"));
            }
        }
        applyTheme(ThemeChoice::light);
        QTest::keyClick(window_, Qt::Key_Left, Qt::AltModifier);
        QCOMPARE(window_->tabs().currentIndex(), 3);
        QTest::keyClick(window_, Qt::Key_Right, Qt::AltModifier);
        QCOMPARE(window_->tabs().currentIndex(), 4);
    }

    void oneSelection() {
        open(sampleCheckpoint());
        const Catalog& catalog = window_->session().catalog();
        const TensorId t = catalog.tensorCount() > 3 ? 3 : 0;
        window_->session().selection().selectTensor(t);
        TreePanel& tree = window_->tree();
        QCOMPARE(tree.model().tensor(tree.view().currentIndex()), t);
        const auto* details = window_->findChild<DetailsPanel*>();
        QVERIFY(details->lines().contains("Dtype: " +
                                          QString::fromStdString(std::string(dtypeName(catalog.dtype(t))))));
        // What is stored is told without the zip that torch wraps each chunk in, which stands beside it.
        const QStringList stored = details->lines().filter("Stored: ");
        QVERIFY2(stored.size() == 1 && stored[0] == "Stored: " + sizeText(catalog.bytes(t)),
                 qPrintable(details->lines().join('\n')));
        QVERIFY(details->lines().filter("In files: ").join("").endsWith(" incl. zip overhead"));
        // What lies along each axis of the mesh.
        for (const MeshAxis& axis : window_->session().facts()->mesh->axes) {
            const QString begin = QStringLiteral("Along %1: ").arg(toQString(axis.name));
            QVERIFY2(!details->lines().filter(begin).isEmpty(), qPrintable(details->lines().join('\n')));
        }
        const auto* breadcrumb = window_->findChild<Breadcrumb*>();
        QVERIFY(breadcrumb->text().startsWith("dcp-fsdp2-tp"));
        // From the tree by keyboard.
        tree.view().setFocus();
        QTest::keyClick(&tree.view(), Qt::Key_Home);
        QVERIFY(window_->session().selection().current().tensor != t);
        QTest::keyClick(window_, Qt::Key_Left, Qt::AltModifier);
        QCOMPARE(window_->session().selection().current().tensor, t);
        // Copies.
        actionOf(*window_, "Copy name")->trigger();
        QCOMPARE(QApplication::clipboard()->text(), toQString(catalog.name(t)));
        actionOf(*window_, "Copy command that shows this")->trigger();
        QVERIFY(QApplication::clipboard()->text().startsWith("shardscope show "));
    }

    void contextParallelRanksHoldCopies() {
        Mesh mesh{{{"dp", 2}, {"cp", 4}, {"tp", 2}}, Mesh::Source::declared, {}};
        QVERIFY(contextParallelText(mesh).startsWith("cp = 4 shards sequences, not weights"));
        mesh.axes[1].size = 1;
        QVERIFY(contextParallelText(mesh).isEmpty());
        QVERIFY(contextParallelText(std::nullopt).isEmpty());
        CatalogBuilder builder("dcp", "", "synthetic");
        for (uint32_t rank = 0; rank < 4; ++rank) {
            FileInfo file;
            file.path = "rank" + std::to_string(rank);
            file.rank = rank;
            file.size = 32;
            builder.addFile(file);
        }
        TensorInfo info;
        info.name = "w";
        info.dtype = DType::float32;
        info.shape = {4, 4};
        QVERIFY(builder.addTensor(info).ok());
        for (uint32_t rank = 0; rank < 4; ++rank) {
            const Dims offsets{rank % 2 * 2, 0}, lengths{2, 4};
            QVERIFY(builder.addChunk({rank, rank, 0, 32, offsets, lengths, std::nullopt}).ok());
        }
        builder.setMesh(Mesh{{{"cp", 2}, {"tp", 2}}, Mesh::Source::declared, {}});
        builder.setRankCount(4);
        auto engine = std::make_shared<ScriptedEngine>();
        engine->catalog = std::make_shared<const Catalog>(std::move(builder).finish());
        windows_ = std::make_unique<Windows>(engine);
        open(QStringLiteral("context-parallel"));
        QVERIFY(shownText(window_->tabs()).contains("cp = 2 shards sequences"));
        picture(*window_, "context-overview");
        window_->session().selection().setPage(Page::placement);
        QVERIFY(shownText(window_->tabs()).contains("cp = 2 shards sequences"));
        settle();
        picture(*window_, "context-placement");
        window_->session().selection().selectTensor(0);
        const auto* details = window_->findChild<DetailsPanel*>();
        QVERIFY(details->lines().contains("Along cp: replicas"));
        QVERIFY(details->lines().contains("Along tp: shards dim 0"));
    }

    void filterWithoutHit() {
        open(sampleCheckpoint());
        QTest::keyClick(window_, Qt::Key_F, Qt::ControlModifier);
        QLineEdit& line = window_->tree().filterLine();
        QTRY_VERIFY(line.hasFocus());
        QTest::keyClicks(&line, "nothing-like-this");
        QTRY_COMPARE(window_->session().filtered().tensors().size(), size_t{0});
        QTRY_VERIFY(shownText(window_->tree()).contains("0 of"));
        shoot(*window_, "filter-no-hit");
        actionOf(*window_, "Clear the filter")->trigger();
        QTRY_COMPARE(window_->session().filtered().tensors().size(),
                     window_->session().catalog().tensorCount());
        QTest::keyClicks(&line, "dtype:nonsense");
        QTRY_VERIFY(shownText(window_->tree()).contains("is not a dtype"));
    }

    void locator() {
        open(sampleCheckpoint());
        const Catalog& catalog = window_->session().catalog();
        QTest::keyClick(window_, Qt::Key_K, Qt::ControlModifier);
        Locator& locator = window_->locator();
        QTRY_VERIFY(locator.isVisible());
        const QString name = toQString(catalog.name(2));
        QTest::keyClicks(&locator.line(), name);
        QTRY_VERIFY(locator.list().count() > 0 && locator.list().item(0)->text() == name);
        QCOMPARE(locator.list().item(0)->data(Qt::AccessibleTextRole).toString(),
                 QStringLiteral("%1: %2 %3, %4")
                     .arg(name, toQString(dtypeName(catalog.dtype(2))),
                          toQString(formatDims(catalog.shape(2))), sizeText(catalog.bytes(2))));
        shoot(locator, "locator");
        QTest::keyClick(&locator.line(), Qt::Key_Return);
        QVERIFY(!locator.isVisible());
        QCOMPARE(window_->session().selection().current().tensor, TensorId{2});
        QCOMPARE(window_->tabs().currentIndex(), 2);
        QTest::keyClick(window_, Qt::Key_K, Qt::ControlModifier);
        QTest::keyClicks(&locator.line(), "r 1");
        QTRY_VERIFY(locator.list().count() > 0 && locator.list().item(0)->text().startsWith("rank 1"));
        QTest::keyClick(&locator.line(), Qt::Key_Return);
        QCOMPARE(window_->session().selection().current().ranks, std::vector<uint32_t>{1});
        QTest::keyClick(window_, Qt::Key_K, Qt::ControlModifier);
        QTest::keyClicks(&locator.line(), ">perspective compare");
        QTRY_VERIFY(locator.list().count() > 0);
        QTest::keyClick(&locator.line(), Qt::Key_Return);
        QCOMPARE(window_->tabs().currentIndex(), 4);
        QTest::keyClick(window_, Qt::Key_K, Qt::ControlModifier);
        QTest::keyClicks(&locator.line(), "zzzzqqqq");
        QTRY_COMPARE(locator.list().count(), 0);
        QTest::keyClick(&locator.line(), Qt::Key_Escape);
        QVERIFY(!locator.isVisible());
    }

    void fuzzyOrder() {
        QVERIFY(fuzzyScore("w1", "layers.3.mlp.w1") > fuzzyScore("w1", "layers.3.mlp.w10.bias"));
        QVERIFY(fuzzyScore("l3w1", "layers.3.mlp.w1") > 0);
        QVERIFY(fuzzyScore("xyz", "layers.3.mlp.w1") < 0);
    }

    void shortcutSheet() {
        open(sampleCheckpoint());
        QTest::keyClick(window_, Qt::Key_F1);
        ShortcutSheet* sheet = window_->findChild<ShortcutSheet*>();
        QVERIFY(sheet);
        QTRY_VERIFY(sheet->isVisible());
        shoot(*sheet, "shortcuts");
        auto* list = sheet->findChild<QTreeWidget*>();
        QVERIFY(list->selectedItems().isEmpty());
        QTest::keyClicks(sheet->findChild<QLineEdit*>(), "pin the row");
        int shown = 0;
        for (int g = 0; g < list->topLevelItemCount(); ++g)
            for (int i = 0; i < list->topLevelItem(g)->childCount(); ++i)
                shown += !list->topLevelItem(g)->child(i)->isHidden();
        QCOMPARE(shown, 1);
        QTest::keyClick(sheet, Qt::Key_Escape);
    }

    // Open, look, convert, see the verified result: the whole way by keyboard.
    void convertByKeyboard() {
        QTemporaryDir out;
        open(sampleCheckpoint());
        QTest::keyClick(window_, Qt::Key_C, Qt::ControlModifier | Qt::ShiftModifier);
        ConvertWizard* wizard = window_->findChild<ConvertWizard*>();
        QVERIFY(wizard);
        QTRY_VERIFY(wizard->isVisible());
        wizard->activateWindow();
        // Not QTest::qWaitForWindowActive(), which takes an active parent for it.
        QApplication::setActiveWindow(wizard);
        QTRY_COMPARE(QApplication::activeWindow(), wizard);
        // Keys go to what has the focus, as those of a keyboard do.
        const auto press = [&](Qt::Key key, Qt::KeyboardModifiers modifiers = Qt::NoModifier) {
            QTest::keyClick(wizard->windowHandle(), key, modifiers);
        };
        const auto tabTo = [&](const char* name) {
            for (int i = 0; i < 60; ++i) {
                QWidget* focus = QApplication::focusWidget();
                if (focus && focus->objectName() == QLatin1String(name)) return true;
                press(Qt::Key_Tab);
            }
            return false;
        };
        const auto next = [&] {
            const int page = wizard->currentPage();
            press(Qt::Key_N, Qt::AltModifier);
            QTRY_COMPARE(wizard->currentPage(), page + 1);  // a mnemonic clicks after a moment
        };
        const QString destination = out.path() + "/model";
        press(Qt::Key_F, Qt::AltModifier);  // "For another framework"
        QTRY_COMPARE(wizard->currentPage(), kWizardPageTarget);
        QVERIFY(tabTo("format"));
        QTest::keyClicks(QApplication::focusWidget(), "safe");
        QVERIFY(tabTo("destination"));
        press(Qt::Key_A, Qt::ControlModifier);
        QTest::keyClicks(QApplication::focusWidget(), destination);
        next();
        next();
        press(Qt::Key_W, Qt::AltModifier);
        QCOMPARE(wizard->spec().format, QStringLiteral("safetensors"));
        QCOMPARE(wizard->spec().destination, destination);
        QTRY_VERIFY(wizard->spec().weightsOnly);
        while (wizard->currentPage() < kWizardPagePlan)
            next();
        QTRY_VERIFY_WITH_TIMEOUT(wizard->findChild<QPushButton*>("start")->isEnabled(), 120'000);
        QSignalSpy started(wizard, &ConvertWizard::started);
        // The wizard goes as soon as the job is under way.
        QVERIFY(tabTo("start"));
        press(Qt::Key_Space);
        QTRY_COMPARE(started.size(), 1);
        const QString id = started[0][0].toString();
        QTRY_VERIFY_WITH_TIMEOUT(windows_->jobs().find(id) != nullptr, 10'000);
        QTRY_COMPARE_WITH_TIMEOUT(windows_->jobs().find(id)->record.state, JobState::done, 60'000);
        QCoreApplication::processEvents();
        shoot(*window_, "job-done");
        window_->jobs().openRequested(out.path() + "/model");
        MainWindow* result = windows_->open(out.path() + "/model");
        QTRY_VERIFY(result->session().hasFacts());
        QCOMPARE(result->session().catalog().format(), std::string("safetensors"));
        result->session().validation().start(ValidateLevel::values);
        QTRY_VERIFY_WITH_TIMEOUT(
            result->session().validation().report() && !result->session().validation().running(), 120'000);
        QVERIFY(result->session().validation().report()->verdict != Verdict::unsafe);
    }

    // Back and forward bring the zoom of the map along; zooming is not a step of its own.
    void zoomGoesWithTheHistory() {
        open(sampleCheckpoint());
        Selection& selection = window_->session().selection();
        selection.setPage(Page::placement);
        auto* map = window_->findChild<PlacementMap*>();
        QVERIFY(map);
        QTRY_VERIFY(map->matrix());
        const double fitted = map->zoom();
        selection.selectTensor(1);
        for (int i = 0; i < 6; ++i)
            map->zoomIn();
        const double zoomed = map->zoom();
        const QRectF view = map->view();
        QVERIFY(zoomed > fitted);
        selection.selectTensor(2);
        map->fit();
        map->zoomBy(0, {});
        QVERIFY(map->zoom() < zoomed);
        selection.back();
        QCOMPARE(selection.current().tensor, TensorId{1});
        QCOMPARE(map->zoom(), zoomed);
        QVERIFY(QLineF(map->view().topLeft(), view.topLeft()).length() < 0.02);
        selection.forward();
        QVERIFY(map->zoom() < zoomed);
        // With another filter the map is another one first.
        selection.back();
        selection.setFilter(QStringLiteral("weight"));
        QTRY_VERIFY(window_->session().filtered().active());
        QTRY_VERIFY(window_->findChild<QToolButton*>(QStringLiteral("clearFilter")));
        QTRY_VERIFY(map->matrix()->rowCount() > 0 && map->zoom() < zoomed);
        selection.back();
        QTRY_VERIFY(!window_->session().filtered().active());
        QTRY_COMPARE(map->zoom(), zoomed);
    }

    void locatorFindsModulesAndObjects() {
        open(sampleCheckpoint());
        Locator& locator = window_->locator();
        const ModuleTree& tree = *window_->session().filtered().tree();
        const QString module = toQString(tree.fullName(1));
        QVERIFY(tree.tensor(1) == kNone);
        locator.open("m " + module);
        QTRY_VERIFY(locator.list().count() > 0);
        QTest::keyClick(&locator.line(), Qt::Key_Return);
        QTRY_VERIFY(!window_->session().selection().current().module.isEmpty());
        const auto& objects = window_->session().catalog().objects();
        QVERIFY(!objects.empty());
        const QString object = toQString(objects[0].name);
        locator.open("o " + object);
        QTRY_VERIFY(locator.list().count() > 0 && locator.list().item(0)->text().startsWith(object));
        QTest::keyClick(&locator.line(), Qt::Key_Return);
        QTRY_COMPARE(window_->session().selection().current().object, ObjectId{0});
        QCOMPARE(window_->session().selection().current().page, Page::objects);
        settle();
        shoot(*window_, "object-in-window");
    }

    void flatShardsAndMeshesOfManyAxes_data() {
        QTest::addColumn<QString>("id");
        QTest::addColumn<bool>("flat");
        QTest::addColumn<QString>("mesh");
        QTest::newRow("olmo-local") << "olmo/local_w4_root" << true << "fsdp=4";
        QTest::newRow("paddle-flat-tp") << "paddle_dist/v331_flat_tp2_w4" << true << "";
        QTest::newRow("colossalai-hybrid") << "colossalai/tp2_pp2_st" << false << "pp=2,tp=2";
        QTest::newRow("dcp-fsdp2-tp") << "dcp/t2.15.0-fsdp2-tp" << false << "fsdp=2,tp=2";
    }
    // Stretches of flattened parameters are shown where their elements lie, and ranks by the axes of their
    // mesh.
    void flatShardsAndMeshesOfManyAxes() {
        QFETCH(QString, id);
        QFETCH(bool, flat);
        QFETCH(QString, mesh);
        open(genuineCheckpoint(id));
        QVERIFY(window_->session().checkpoint());
        const Catalog& catalog = window_->session().catalog();
        const Facts& facts = *window_->session().facts();
        TensorId chosen = kNone;
        for (TensorId t = 0; t < catalog.tensorCount(); ++t) {
            for (ChunkId c = catalog.firstChunk(t); c < catalog.endChunk(t); ++c) {
                if (catalog.chunk(t, c).flat.has_value() == flat && catalog.shape(t).size() == 2 &&
                    catalog.endChunk(t) - catalog.firstChunk(t) > 1)
                    chosen = t;
            }
        }
        QVERIFY(chosen != kNone);
        QCOMPARE(facts.mesh ? QString::fromStdString(formatMesh(*facts.mesh)) : QString(), mesh);
        window_->session().selection().selectTensor(chosen);
        for (const Page page : {Page::overview, Page::placement, Page::tensor}) {
            window_->session().selection().setPage(page);
            settle();
            if (page == Page::placement) {
                const auto& matrix = window_->findChild<PlacementMap*>()->matrix();
                QVERIFY(matrix);
                QCOMPARE(matrix->columnCount(), catalog.rankCount());
                QCOMPARE(matrix->axes().size(), facts.mesh ? facts.mesh->axes.size() : size_t{0});
            }
            if (page == Page::tensor) {
                // Each chunk is drawn where its elements are; together they are all of the tensor.
                const BoxScene& scene = *window_->findChild<TensorBox*>()->scene();
                QCOMPARE(scene.tensor, chosen);
                std::set<ChunkId> drawn(scene.members.begin(), scene.members.end());
                QCOMPARE(drawn.size() + scene.emptyChunks,
                         size_t{catalog.endChunk(chosen) - catalog.firstChunk(chosen)});
                int64_t elements = 0;
                for (const BoxShape& shape : scene.shapes) {
                    QCOMPARE(shape.kind, BoxShape::Kind::chunk);
                    elements += (shape.right - shape.left) * (shape.bottom - shape.top);
                }
                QCOMPARE(elements, scene.width * scene.height);
            }
            shoot(*window_, QStringLiteral("hybrid-%1-%2")
                                .arg(QString::fromLatin1(QTest::currentDataTag()))
                                .arg(static_cast<int>(page)));
        }
    }

    void familiesOnEveryPage_data() {
        QTest::addColumn<QString>("id");
        for (const char* id :
             {"dcp/t2.15.0-fsdp2-tp", "dcp/t2.15.0-fsdp1", "dcp/t2.15.0-damaged-truncated-file",
              "dcp/t2.15.0-damaged-overlap", "dcp/t2.15.0-damaged-gap", "torch_save/t2.15.0-optimizer",
              "safetensors/hf-sharded", "paddle_dist/v300_w4_2d_nested", "paddle_dist/bad_missing_rank_file",
              "paddle_hybrid/mp2_pp2_stage1v2", "colossalai/tp2_pp2_st", "colossalai/bad_missing_rank",
              "olmo/local_w2", "olmo/unsharded_bf16_ids"})
            QTest::newRow(id) << QString::fromLatin1(id);
    }
    // On the smallest screen, in both themes: everything opens, shows what there is, and fits into its
    // window.
    void familiesOnEveryPage() {
        QFETCH(QString, id);
        QString path = genuineCheckpoint(id);
        const QStringList files = QDir(path).entryList(QDir::Files | QDir::Hidden);
        if (id.startsWith("torch_save") && files.size() == 1) path += '/' + files[0];
        open(path);
        QCOMPARE(window_->session().state(), Session::State::open);
        window_->resize(1280, 720);
        window_->session().validation().start(ValidateLevel::values);
        QTRY_VERIFY_WITH_TIMEOUT(
            window_->session().validation().report() && !window_->session().validation().running(), 30'000);
        const Catalog& catalog = window_->session().catalog();
        TensorId largest = 0;
        for (TensorId t = 0; t < catalog.tensorCount(); ++t) {
            if (catalog.bytes(t) > catalog.bytes(largest)) largest = t;
        }
        QCOMPARE(window_->session().validation().report()->verdict == Verdict::unsafe,
                 id.contains("damaged") || id.contains("bad_"));
        const auto rows = [&](const QAbstractItemView* view) {
            return static_cast<size_t>(view->model()->rowCount());
        };
        const auto shows = [&](Page page) {
            QWidget& tab = *window_->tabs().currentWidget();
            switch (page) {
                case Page::overview:
                    return !tab.findChild<VerdictStrip*>()->headline().isEmpty() &&
                           shownText(tab).contains(numberText(catalog.tensorCount()));
                case Page::placement: {
                    const auto& matrix = tab.findChild<PlacementMap*>()->matrix();
                    return matrix && matrix->rowCount() > 0 && matrix->facts() == window_->session().facts();
                }
                case Page::tensor: {
                    const auto& scene = tab.findChild<TensorBox*>()->scene();
                    return scene && scene->tensor == largest && !scene->shapes.empty();
                }
                case Page::files: {
                    for (const QTableView* view : tab.findChildren<QTableView*>()) {
                        if (qobject_cast<FileTableModel*>(view->model()))
                            return rows(view) == catalog.files().size();
                    }
                    return false;
                }
                case Page::compare:
                    return shownText(tab).contains("Nothing is compared yet");
                case Page::objects:
                    return catalog.objects().empty() ||
                           rows(&window_->findChild<ObjectsPage*>()->table()) == catalog.objects().size();
            }
            return false;
        };
        const auto brightness = [](const QImage& image) {
            return qGray(image.scaled(1, 1, Qt::IgnoreAspectRatio, Qt::SmoothTransformation).pixel(0, 0));
        };
        const char* names[] = {"overview", "placement", "tensor", "files", "compare", "objects"};
        QCOMPARE(window_->tabs().count(), 6);
        for (const bool dark : {false, true}) {
            applyTheme(dark ? ThemeChoice::dark : ThemeChoice::light);
            for (int page = 0; page < window_->tabs().count(); ++page) {
                window_->session().selection().setPage(static_cast<Page>(page));
                if (page == 2) window_->session().selection().selectTensor(largest);
                settle();
                QTRY_VERIFY2(shows(static_cast<Page>(page)), names[page]);
                const QImage image = shoot(
                    *window_, QStringLiteral("family-%1-%2-%3")
                                  .arg(QString(id).replace('/', '-'), names[page], dark ? "dark" : "light"));
                QCOMPARE(window_->size(), QSize(1280, 720));
                const QSize least = window_->minimumSizeHint();
                QVERIFY2(least.width() <= 1280 && least.height() <= 720, names[page]);
                const int gray = brightness(image);
                QVERIFY2(dark ? gray < 90 : gray > 160,
                         qPrintable(QStringLiteral("%1: %2").arg(names[page]).arg(gray)));
            }
        }
        applyTheme(ThemeChoice::light);
    }

    void everyControlHasAName() {
        open(sampleCheckpoint());
        QTRY_VERIFY(windows_->jobs().ready());
        QVERIFY(windows_->jobs().jobs().empty());
        // A page without a tensor has little on it.
        window_->session().selection().selectTensor(0);
        const QStringList panes{"findings", "jobs", "log", "findings", "log", "findings"};
        for (int i = 0; i < window_->tabs().count(); ++i) {
            window_->tabs().setCurrentIndex(i);
            showPane(panes[i]);
            settle();
            const QStringList nameless = namelessControls(*window_);
            const QStringList controls = accessibleControls(*window_);
            QVERIFY2(controls.size() > 20,
                     qPrintable(window_->tabs().tabText(i) + ":\n" + controls.join('\n')));
            QVERIFY2(nameless.isEmpty(), qPrintable(window_->tabs().tabText(i) + ": " + nameless.join(", ")));
        }
    }

    // Tab reaches tree, page and docks, and comes round.
    void focusGoesRound() {
        open(sampleCheckpoint());
        window_->activateWindow();
        window_->tree().filterLine().setFocus();
        QSet<QWidget*> seen;
        for (int i = 0; i < 200; ++i) {
            QTest::keyClick(QApplication::focusWidget() ? QApplication::focusWidget() : window_.data(),
                            Qt::Key_Tab);
            if (QApplication::focusWidget()) seen.insert(QApplication::focusWidget());
        }
        QVERIFY(seen.contains(&window_->tree().view()));
        QVERIFY(seen.size() > 5);
    }

    void largeCheckpoint() {
        auto engine = std::make_shared<ScriptedEngine>();
        SyntheticOptions options;
        options.pp = 8;
        options.dp = 16;
        options.tp = 8;
        options.layers = 96;
        options.optimizer = true;
        options.missingFileRank = 417;
        engine->catalog = syntheticModel(options);
        windows_ = std::make_unique<Windows>(engine);
        window_ = windows_->open("large");
        window_->resize(1600, 1000);
        QTRY_VERIFY_WITH_TIMEOUT(window_->session().state() == Session::State::open, 120'000);
        double worst = 0;
        // Processor time of the GUI thread for what a person waits for.
        const auto measured = [&](const char* what, auto&& work) {
            const double start = threadMilliseconds();
            work();
            const double took = threadMilliseconds() - start;
            worst = std::max(worst, took);
            qInfo("%s: %.0f ms", what, took);
        };
        measured("first paint", [&] { window_->grab(); });
        QTRY_VERIFY_WITH_TIMEOUT(window_->session().hasFacts(), 120'000);
        const Catalog& catalog = window_->session().catalog();
        QCOMPARE(catalog.rankCount(), 1024U);
        QVERIFY(window_->session().facts()->damagedTensors > 0);
        window_->session().selection().selectTensor(0);
        const char* names[] = {"overview", "placement", "tensor", "files"};
        for (int i = 0; i < 4; ++i) {
            measured(names[i], [&] {
                window_->tabs().setCurrentIndex(i);
                QCoreApplication::processEvents();
                window_->grab();
            });
            settle();
            measured(names[i], [&] { window_->grab(); });
            shoot(*window_, QStringLiteral("large-%1").arg(i));
        }
        QVERIFY2(worst < 2000, qPrintable(QString::number(worst)));
        window_->tabs().setCurrentIndex(0);
        QVERIFY(shownText(window_->tabs()).contains("rank 417 (missing)"));
        QTRY_VERIFY(window_->findChild<PlacementMap*>()->matrix());
        QCOMPARE(window_->findChild<PlacementMap*>()->matrix()->columnCount(), 1024U);
        QVERIFY(window_->findChild<TensorBox*>()->scene());
        QCOMPARE(window_->findChild<TensorBox*>()->scene()->tensor, TensorId{0});
    }
};

SHARDSCOPE_GUI_TEST_MAIN(WindowTest)
#include "window_test.moc"
