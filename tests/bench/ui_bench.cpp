// How fast the window is on a catalog of 9,216 tensors by 1,000 ranks (1,003,520 chunks): times in
// milliseconds, memory in MiB, one JSON line. Run offscreen: QT_QPA_PLATFORM=offscreen ui_bench
// [--ten-million] The option takes 10,240 tensors by 1,024 ranks, each chunk of all tensors: 10,485,760.
// ui_bench PATH opens a checkpoint of the disk instead, up to the first paint that shows the verdict: clock
// time since the window was asked for, processor time of the process since its start, all threads.
#include <QApplication>
#include <QElapsedTimer>
#include <QEventLoop>
#include <QJsonDocument>
#include <QJsonObject>
#include <QScrollBar>
#include <QTabWidget>
#include <QTest>
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <fstream>

#include <malloc.h>

#include "support/gui_test.h"
#include "ui/models/chunk_table_model.h"
#include "ui/pages/placement_page.h"
#include "ui/pages/verdict_strip.h"
#include "ui/widgets/placement_map.h"
#include "ui/window/main_window.h"
#include "ui/window/windows.h"

using namespace shardscope;
using namespace shardscope::ui;

namespace {

double residentMiB() {
    std::ifstream in("/proc/self/statm");
    uint64_t total = 0, resident = 0;
    in >> total >> resident;
    return static_cast<double>(resident) * 4096 / (1 << 20);
}

// Longest time that one event held the GUI thread.
class Watch : public QApplication {
  public:
    using QApplication::QApplication;
    bool notify(QObject* receiver, QEvent* event) override {
        if (depth_ > 0) return QApplication::notify(receiver, event);
        QElapsedTimer timer;
        timer.start();
        ++depth_;
        const bool handled = QApplication::notify(receiver, event);
        --depth_;
        const double ms = static_cast<double>(timer.nsecsElapsed()) / 1e6;
        if (ms > longest) {
            longest = ms;
            where = QString::fromLatin1(receiver->metaObject()->className()) +
                    QStringLiteral(" event %1").arg(event->type());
        }
        return handled;
    }
    double longest = 0;
    QString where;

  private:
    int depth_ = 0;
};

template <class Until>
double waitMs(Until&& until, double mostSeconds = 60) {
    QElapsedTimer timer;
    timer.start();
    while (!until() && static_cast<double>(timer.elapsed()) < mostSeconds * 1000)
        QCoreApplication::processEvents(QEventLoop::AllEvents, 1);
    return static_cast<double>(timer.nsecsElapsed()) / 1e6;
}

double processorMs() {
    timespec used{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return static_cast<double>(used.tv_sec) * 1e3 + static_cast<double>(used.tv_nsec) / 1e6;
}

int openOnly(const QString& path) {
    QJsonObject result;
    const double started = processorMs();
    QElapsedTimer timer;
    timer.start();
    Windows windows(localEngine());
    MainWindow* window = windows.open(path);
    window->resize(1600, 1000);
    window->show();
    Session& session = window->session();
    // Waits without polling, which would count.
    QEventLoop loop;
    QObject::connect(&session, &Session::reportChanged, &loop, [&] {
        if (session.validation().report()) loop.quit();
    });
    loop.exec();
    window->grab();
    result["verdict_painted_ms"] = static_cast<double>(timer.nsecsElapsed()) / 1e6;
    result["verdict_painted_processor_ms"] = processorMs();
    result["of_it_before_the_window_ms"] = started;
    if (const auto* strip = window->findChild<VerdictStrip*>()) result["verdict"] = strip->headline();
    result["chunks"] = session.hasFacts() ? static_cast<qint64>(session.catalog().chunkCount()) : 0;
    session.cancel();
    std::printf("%s\n", QJsonDocument(result).toJson(QJsonDocument::Indented).constData());
    Tasks::waitForAll();
    return 0;
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values.empty() ? 0 : values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
    prepareGuiTest(argc, argv);
    Watch application(argc, argv);
    applyTheme(ThemeChoice::light);
    if (argc > 1 && argv[1][0] != '-') return openOnly(QString::fromLocal8Bit(argv[1]));
    const std::shared_ptr<const Catalog> catalog =
        application.arguments().contains("--ten-million") ? syntheticGrid(10240, 1024) : syntheticLarge();
    if (!catalog) return 1;
    malloc_trim(0);
    const double before = residentMiB();

    auto engine = std::make_shared<ScriptedEngine>();
    engine->catalog = catalog;
    Windows windows(engine);
    QJsonObject result{{"tensors", static_cast<qint64>(catalog->tensorCount())},
                       {"chunks", static_cast<qint64>(catalog->chunkCount())},
                       {"ranks", static_cast<qint64>(catalog->rankCount())}};
    QElapsedTimer timer;
    timer.start();
    MainWindow* window = windows.open("large");
    window->resize(1600, 1000);
    window->show();
    Session& session = window->session();
    waitMs([&] { return session.state() == Session::State::open; });
    const double opened = static_cast<double>(timer.nsecsElapsed()) / 1e6;
    window->grab();
    result["first_paint_after_open_ms"] = static_cast<double>(timer.nsecsElapsed()) / 1e6 - opened;
    result["click_to_first_paint_ms"] = static_cast<double>(timer.nsecsElapsed()) / 1e6;
    waitMs([&] { return session.hasFacts(); });
    result["facts_ms"] = static_cast<double>(timer.nsecsElapsed()) / 1e6;
    waitMs([&] { return session.tasks().running().empty(); });
    QTest::qWait(300);
    result["overview_longest_handler_ms"] = application.longest;
    result["overview_longest_handler"] = application.where;
    application.longest = 0;

    // From the last key to the changed tree; the delay that waits for more keys is taken off.
    for (const char* text : {"mlp", "name:~layers\\.(1|2)\\.", "rank:417", "status:bad"}) {
        bool changed = false;
        const auto connection =
            QObject::connect(&session, &Session::visibleChanged, &session, [&] { changed = true; });
        session.selection().setFilter(text);
        const double ms = waitMs([&] { return changed; });
        QObject::disconnect(connection);
        QElapsedTimer paint;
        paint.start();
        window->grab();
        result[QStringLiteral("filter_%1_ms").arg(text)] = ms - 80;
    }
    session.selection().setFilter({});
    waitMs([&] { return session.filtered().tensors().size() == catalog->tensorCount(); });

    ChunkTableModel chunks(session);
    chunks.setAll();
    std::vector<double> sorts;
    for (const int column :
         {ChunkTableModel::rank, ChunkTableModel::bytes, ChunkTableModel::file, ChunkTableModel::range}) {
        timer.restart();
        chunks.sort(column, Qt::DescendingOrder);
        sorts.push_back(static_cast<double>(timer.nsecsElapsed()) / 1e6);
    }
    result["sort_million_chunks_ms"] = median(sorts);
    result["sort_million_chunks_worst_ms"] = *std::max_element(sorts.begin(), sorts.end());
    chunks.clear();

    application.longest = 0;
    session.selection().setPage(Page::placement);
    auto* page = window->findChild<PlacementPage*>();
    PlacementMap& map = page->map();
    timer.restart();
    waitMs([&] { return map.matrix() != nullptr && session.tasks().running().empty(); });
    result["map_built_ms"] = static_cast<double>(timer.nsecsElapsed()) / 1e6;
    std::vector<double> frames;
    const auto frame = [&] {
        QElapsedTimer paint;
        paint.start();
        map.viewport()->repaint();
        frames.push_back(static_cast<double>(paint.nsecsElapsed()) / 1e6);
    };
    const QPointF center = map.viewport()->rect().center();
    for (int i = 0; i < 40; ++i) {
        map.zoomBy(1, center);
        frame();
    }
    for (int i = 0; i < 40; ++i) {
        map.horizontalScrollBar()->setValue(map.horizontalScrollBar()->value() + 37);
        map.verticalScrollBar()->setValue(map.verticalScrollBar()->value() + 53);
        frame();
    }
    for (int i = 0; i < 40; ++i) {
        map.zoomBy(-1, center);
        frame();
    }
    map.fit();
    frame();
    result["map_frame_median_ms"] = median(frames);
    result["map_frame_worst_ms"] = *std::max_element(frames.begin(), frames.end());

    double worstSelection = 0;
    const std::pair<Page, const char*> pages[] = {{Page::overview, "overview"},
                                                  {Page::placement, "placement"},
                                                  {Page::tensor, "tensor"},
                                                  {Page::files, "files"}};
    for (const auto& [shown, name] : pages) {
        session.selection().setPage(shown);
        QTest::qWait(400);
        std::vector<double> selections;
        for (TensorId t = 100; t < 1000; t += 50) {
            timer.restart();
            session.selection().selectTensor(t);
            window->repaint();
            selections.push_back(static_cast<double>(timer.nsecsElapsed()) / 1e6);
            QTest::qWait(20);
        }
        result[QStringLiteral("selection_on_%1_median_ms").arg(name)] = median(selections);
        worstSelection = std::max(worstSelection, *std::max_element(selections.begin(), selections.end()));
    }
    result["selection_worst_ms"] = worstSelection;
    result["longest_handler_ms"] = application.longest;
    result["longest_handler"] = application.where;
    waitMs([&] { return session.tasks().running().empty(); });
    malloc_trim(0);
    result["memory_mib"] = residentMiB() - before;
    result["catalog_mib"] = static_cast<double>(catalog->memoryBytes()) / (1 << 20);

    // The same filters while a path hangs as on a file server that is gone, two windows validate and a
    // comparison runs, each of the latter begun again as soon as it ends.
    std::atomic<bool> loading{true};
    MainWindow* other = windows.open("other");
    other->show();
    waitMs([&] { return other->session().hasFacts(); });
    engine->before = [&](const std::string& call, const TaskContext&) -> Status {
        while (call == "open" && loading)
            QThread::msleep(5);
        // As busy as reading values is, which takes minutes and more.
        std::atomic<uint64_t> sum{0};
        while (call == "validate" && loading)
            ++sum;
        return {};
    };
    windows.open("hangs")->show();
    int validations = 0, comparisons = 0;
    const auto again = [&](Session& of) {
        const auto begin = [&of, &loading, &validations] {
            if (!loading || of.validation().running()) return;
            ++validations;
            of.validation().start(ValidateLevel::metadata);
        };
        QObject::connect(&of, &Session::reportChanged, &of, begin, Qt::QueuedConnection);
        begin();
    };
    again(session);
    again(other->session());
    const std::function<void()> compare = [&] {
        if (!loading) return;
        ++comparisons;
        session.tasks().run<DiffReport>(
            Work::bulk, "Comparing",
            [&](const TaskContext& context) {
                return engine->diff(session.checkpoint(), other->session().checkpoint(), {}, context);
            },
            [&](const Result<DiffReport>&) { compare(); });
    };
    compare();
    std::vector<double> loaded;
    application.longest = 0;
    for (int round = 0; round < 5; ++round) {
        for (const char* text : {"mlp", "name:~layers\\.(1|2)\\.", "rank:417", "status:bad"}) {
            bool changed = false;
            const auto connection =
                QObject::connect(&session, &Session::visibleChanged, &session, [&] { changed = true; });
            session.selection().setFilter(text);
            loaded.push_back(waitMs([&] { return changed; }) - 80);
            QObject::disconnect(connection);
        }
    }
    result["loaded_filter_median_ms"] = median(loaded);
    result["loaded_filter_worst_ms"] = *std::max_element(loaded.begin(), loaded.end());
    result["loaded_longest_handler_ms"] = application.longest;
    result["loaded_longest_handler"] = application.where;
    result["loaded_validations"] = validations;
    result["loaded_comparisons"] = comparisons;
    loading = false;
    std::printf("%s\n", QJsonDocument(result).toJson(QJsonDocument::Indented).constData());
    Tasks::waitForAll();
    return 0;
}
