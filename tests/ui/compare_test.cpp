#include <QAbstractItemModelTester>
#include <QAccessible>
#include <QCheckBox>
#include <QClipboard>
#include <QComboBox>
#include <QDragEnterEvent>
#include <QFileDialog>
#include <QLabel>
#include <QLineEdit>
#include <QMenu>
#include <QMimeData>
#include <QPlainTextEdit>
#include <QProcess>
#include <QPushButton>
#include <QSemaphore>
#include <QSettings>
#include <QStackedWidget>
#include <QTableView>
#include <QToolButton>

#include "support/accessibility.h"
#include "support/gui_test.h"
#include "ui/pages/compare_page.h"
#include "ui/pages/compare_setup.h"
#include "ui/widgets/box_sketch.h"

using namespace shardscope;
using namespace shardscope::ui;

namespace {

// What the command line makes of the sample, in a new directory.
QString made(const QStringList& how) {
    static QTemporaryDir directory;
    static int count = 0;
    const QString target = directory.filePath(QStringLiteral("made%1").arg(++count));
    QProcess program;
    program.start(SHARDSCOPE_PROGRAM, QStringList{how.first(), sampleCheckpoint(), target} + how.mid(1));
    if (!program.waitForFinished(60'000) || program.exitCode() != 0)
        qWarning("%s", program.readAll().constData());
    return target;
}

template <class Button>
Button* button(QWidget& in, const QString& text) {
    for (Button* b : in.findChildren<Button*>()) {
        if (b->text().startsWith(text)) return b;
    }
    return nullptr;
}

QTableView* table(ComparePage& page) {
    return page.findChild<QTableView*>();
}
QString messageOf(ComparePage& page) {
    return qobject_cast<QLabel*>(page.findChild<QStackedWidget*>()->widget(0))->text();
}

std::shared_ptr<const Catalog> oneTensor(const std::string& name, DType dtype, Dims shape) {
    CatalogBuilder builder("dcp", "", "synthetic");
    FileInfo file;
    file.path = "f";
    file.size = 1 << 20;
    builder.addFile(file);
    TensorInfo info;
    info.name = name;
    info.dtype = dtype;
    info.shape = std::move(shape);
    if (!builder.addTensor(info).ok() || !builder.addWhole(0, 0, 0, 64).ok()) return nullptr;
    return std::make_shared<const Catalog>(std::move(builder).finish());
}

// A comparison of two catalogs that hold nothing, with a report of any size.
std::shared_ptr<const Comparison> reported(DiffReport report) {
    const auto checkpoint = [](const std::string& name) {
        ScriptedEngine engine;
        engine.catalog = oneTensor(name, DType::float32, {2, 3});
        Progress progress;
        return engine.open("synthetic", {}, {StopToken(), &progress}).value();
    };
    return Comparison::make(checkpoint("model.a"), checkpoint("model.b"), std::move(report), {}, {}).value();
}

DiffReport mixedReport() {
    DiffReport report;
    report.onlyA = {"model.a", "x.only"};
    report.onlyB = {"model.b"};
    report.shape = {{"model.w", "[2, 3]", "[3, 2]"}};
    report.dtype = {{"model.v", "float32", "bfloat16"}};
    report.placement = {{"model.p", "one chunk", "2 chunks, cut [2, 1]"}};
    const auto values = [](const char* name, uint64_t different, double maxAbs, double maxRelative,
                           uint64_t maxUlp, double square) {
        ValueDiff diff;
        diff.name = name;
        diff.elements = 100;
        diff.different = different;
        diff.maxAbs = maxAbs;
        diff.maxRelative = maxRelative;
        diff.maxUlp = maxUlp;
        diff.squareA = diff.squareB = diff.product = 16;
        diff.squareDifference = square;
        return diff;
    };
    report.values = {values("model.q", 12, 0.5, 0.25, 7, 4), values("model.r", 3, 2.5, 0.01, 70, 1)};
    report.summary = DiffSummary{.equal = 3, .different = 2, .maxAbs = 2.5, .l2 = 0.5, .relativeL2 = 0.125};
    return report;
}

}  // namespace

class CompareTest : public QObject {
    Q_OBJECT

  private slots:
    void everyControlHasAName();
    void init() {
        applyTheme(ThemeChoice::light);
        QSettings().clear();
    }
    void model();
    void layersAreOneRow();
    void summaries();
    void aMillionRows();
    void equalButForPlacement();
    void differencesOfAConvertedCopy();
    void renameRules();
    void throughARecipe();
    void weightsOnlyLeavesStateOut();
    void malformedRulesAreSaid();
    void valuesOnDemand();
    void togglesAndFilter();
    void selectsTheTensor();
    void byKeyboardAlone();
    void dropping();
    void copyAsCommand();
    void browsing();
    void recentPathsStay();
    void failures();
    void cancelling();
    void lateAnswersAreHarmless();
    void anotherCheckpointForgets();
};

void CompareTest::model() {
    Tasks tasks;
    CompareModel model(tasks);
    QAbstractItemModelTester tester(&model, QAbstractItemModelTester::FailureReportingMode::QtTest);
    QCOMPARE(model.rowCount(), 0);
    model.setComparison(reported(mixedReport()));
    QCOMPARE(model.rowCount(), 8);
    QCOMPARE(model.index(0, CompareModel::sideA).data().toString(), QStringLiteral("float32 [2, 3]"));
    QCOMPARE(model.index(2, CompareModel::sideB).data().toString(), QStringLiteral("float32 [2, 3]"));
    QCOMPARE(model.index(5, CompareModel::sideB).data().toString(), QStringLiteral("2 chunks, cut [2, 1]"));
    QCOMPARE(model.index(6, CompareModel::different).data().toString(), QStringLiteral("12"));
    QCOMPARE(model.index(6, CompareModel::l2).data().toString(), QStringLiteral("2"));
    QCOMPARE(model.index(6, CompareModel::relativeL2).data().toString(), QStringLiteral("0.5"));
    model.sort(CompareModel::relativeL2, Qt::AscendingOrder);
    QCOMPARE(model.index(7, CompareModel::name).data().toString(), QStringLiteral("model.q"));
    model.sort(CompareModel::maxUlp, Qt::DescendingOrder);
    QCOMPARE(model.index(0, CompareModel::name).data().toString(), QStringLiteral("model.r"));
    model.sort(CompareModel::maxAbs, Qt::AscendingOrder);
    QCOMPARE(model.index(7, CompareModel::name).data().toString(), QStringLiteral("model.r"));
    for (int column = 0; column < CompareModel::columnCountValue; ++column)
        model.sort(column, Qt::DescendingOrder);
    model.setShown(DiffClass::onlyA, false);
    QCOMPARE(model.rowCount(), 6);
    model.setFilter("MODEL. w");
    QCOMPARE(model.rowCount(), 1);
    model.setShown(DiffClass::onlyA, true);
    model.setFilter({});
    QCOMPARE(model.rowCount(), 8);
    model.setComparison(nullptr);
    QCOMPARE(model.rowCount(), 0);
}

// Layers that differ in the same way, after the filter; never rows with values.
void CompareTest::layersAreOneRow() {
    DiffReport report;
    for (int i = 0; i < 6; ++i) {
        const std::string name = "model.layers." + std::to_string(i) + ".w";
        report.placement.push_back({name, "one chunk", i == 3 ? "4 chunks" : "2 chunks"});
        ValueDiff& values = report.values.emplace_back();
        values.name = name;
        values.different = 12;
    }
    report.placement.push_back({"model.norm", "one chunk", "2 chunks"});
    report.summary = DiffSummary();
    Tasks tasks;
    CompareModel model(tasks);
    QAbstractItemModelTester tester(&model, QAbstractItemModelTester::FailureReportingMode::QtTest);
    model.setComparison(reported(report));
    QCOMPARE(model.rowCount(), 13);
    model.setFolded(true);
    QCOMPARE(model.rowCount(), 9);
    const auto name = [&](int row) { return model.index(row, CompareModel::name).data().toString(); };
    QCOMPARE(name(0), QString::fromUtf8("model.layers.0–2, 4–5.w"));
    QCOMPARE(name(1), QStringLiteral("model.layers.3.w"));
    QCOMPARE(name(2), QStringLiteral("model.norm"));
    model.setFilter("layers.4");
    QCOMPARE(model.rowCount(), 2);
    QCOMPARE(name(0), QStringLiteral("model.layers.4.w"));
    model.setFilter({});
    model.sort(CompareModel::sideB, Qt::DescendingOrder);
    model.setShown(DiffClass::values, false);
    QCOMPARE(name(0), QStringLiteral("model.layers.3.w"));
}

void CompareTest::summaries() {
    DiffReport report;
    QVERIFY(reported(report)->summary().startsWith("Equal as far as metadata tells"));
    report.summary = DiffSummary();
    QVERIFY(reported(report)->summary().endsWith("placement and values."));
    report.placement = {{"model.a", "one chunk", "2 chunks"}};
    QCOMPARE(reported(report)->summary(),
             QStringLiteral(
                 "Equal but for placement, values included: 1 tensor is sharded or placed differently."));
    report.summary.reset();
    QVERIFY(reported(report)->summary().startsWith("Equal but for placement: 1 tensor"));
    QVERIFY(reported(report)->summary().endsWith("Values were not compared."));
    QCOMPARE(reported(mixedReport())->summary(),
             QStringLiteral(
                 "They differ: 2 tensors are only in A, 1 tensor is only in B, 1 tensor has another shape, "
                 "1 tensor has another dtype, 2 tensors have other values, 1 tensor is sharded or placed "
                 "differently. The L2 norm of the difference is 0.5, 0.125 of that of A."));
}

void CompareTest::aMillionRows() {
    DiffReport report;
    report.onlyA.reserve(500'000);
    report.onlyB.reserve(500'000);
    for (int i = 0; i < 500'000; ++i) {
        report.onlyA.push_back("model.layers." + std::to_string(499'999 - i) + ".weight");
        report.onlyB.push_back("other.layers." + std::to_string(i) + ".weight");
    }
    Tasks tasks;
    CompareModel model(tasks);
    const auto comparison = reported(std::move(report));
    double start = threadMilliseconds();
    const auto took = [&] { return threadMilliseconds() - start; };
    model.setComparison(comparison);
    QVERIFY2(took() < 50, qPrintable(QString::number(took())));
    QTRY_COMPARE_WITH_TIMEOUT(model.rowCount(), 1'000'000, 120'000);
    start = threadMilliseconds();
    model.sort(CompareModel::name, Qt::DescendingOrder);
    model.setFilter("layers.49999");
    QVERIFY2(took() < 50, qPrintable(QString::number(took())));
    QTRY_VERIFY_WITH_TIMEOUT(!model.busy(), 120'000);
    QTRY_COMPARE_WITH_TIMEOUT(model.rowCount(), 22, 120'000);
    QVERIFY(model.index(0, CompareModel::name).data().toString().startsWith("other."));
}

void CompareTest::equalButForPlacement() {
    auto session = openSession(sampleCheckpoint());
    auto page = pageOf<ComparePage>(*session);
    QVERIFY(messageOf(*page).contains("Nothing is compared yet"));
    picture(*page, "compare-nothing");
    page->setOtherPath(made({"reshard", "--mesh", "fsdp=2", "--shard", "*:fsdp=0"}));
    QTest::mouseClick(button<QPushButton>(*page, "Compare"), Qt::LeftButton);
    QVERIFY(page->running());
    QTRY_VERIFY(page->comparison());
    QVERIFY2(page->summary().startsWith("Equal but for placement: "), qPrintable(page->summary()));
    QVERIFY(table(*page)->model()->rowCount() > 0);
    QTest::mouseClick(table(*page)->viewport(), Qt::LeftButton, {},
                      table(*page)->visualRect(table(*page)->model()->index(3, 1)).center());
    picture(*page, "compare-placement");
    applyTheme(ThemeChoice::dark);
    page->resize(1600, 1000);
    picture(*page, "compare-placement-large-dark");
}

void CompareTest::differencesOfAConvertedCopy() {
    auto session = openSession(sampleCheckpoint());
    auto page = pageOf<ComparePage>(*session);
    const QString other = made({"reshard", "--weights-only", "--dtype", "*fc1*=bf16", "--exclude", "*tok*"});
    page->setOtherPath(other);
    page->compare();
    QTRY_VERIFY(page->comparison());
    const auto& counts = page->comparison()->counts;
    QVERIFY(counts[static_cast<size_t>(DiffClass::onlyA)] > 0);
    QCOMPARE(counts[static_cast<size_t>(DiffClass::onlyB)], size_t{0});
    QVERIFY(counts[static_cast<size_t>(DiffClass::dtype)] > 0);
    QVERIFY2(page->summary().startsWith("They differ: "), qPrintable(page->summary()));
    picture(*page, "compare-differences");
    // A format that is cut in another way altogether.
    page->setOtherPath(made({"convert", "--to", "safetensors", "--weights-only"}));
    page->compare();
    QTRY_VERIFY(page->comparison() && page->comparison()->b->format->info().name == "safetensors");
}

void CompareTest::renameRules() {
    auto session = openSession(sampleCheckpoint());
    auto page = pageOf<ComparePage>(*session);
    page->setOtherPath(made({"reshard", "--rename", "^model\\.=module."}));
    page->compare();
    QTRY_VERIFY(page->comparison());
    QVERIFY(page->comparison()->counts[static_cast<size_t>(DiffClass::onlyB)] > 0);
    QTest::mouseClick(button<QToolButton>(*page, "Recipe, rename rules"), Qt::LeftButton);
    auto* rules = page->findChild<QPlainTextEdit*>();
    QVERIFY(rules->isVisible());
    QTest::keyClicks(rules, "^model\\.=module.");
    QVERIFY(button<QToolButton>(*page, "Recipe, rename rules (1)"));
    const auto before = page->comparison();
    page->compare();
    QTRY_VERIFY(page->comparison() && page->comparison() != before);
    QVERIFY2(page->summary().startsWith("Equal"), qPrintable(page->summary()));
    picture(*page, "compare-rules");
}

void CompareTest::weightsOnlyLeavesStateOut() {
    auto session = openSession(sampleCheckpoint());
    auto page = pageOf<ComparePage>(*session);
    page->setOtherPath(made({"reshard", "--weights-only"}));
    page->compare();
    QTRY_VERIFY(page->comparison());
    const auto everything = page->comparison();
    QVERIFY(everything->counts[static_cast<size_t>(DiffClass::onlyA)] > 0);
    QTest::mouseClick(button<QCheckBox>(*page, "&Weights only"), Qt::LeftButton);
    page->compare();
    QTRY_VERIFY(page->comparison() && page->comparison() != everything);
    const auto weights = page->comparison();
    QVERIFY2(page->summary().startsWith("Equal") && page->summary().contains("Left out: "),
             qPrintable(page->summary()));
    QCOMPARE(weights->matched, everything->matched);
    QCOMPARE(weights->report.leftOutA.size(), everything->report.onlyA.size());
    page->compareValues();
    QTRY_VERIFY(page->comparison() != weights);
    QVERIFY(page->comparison()->report.equal() && page->comparison()->report.valuesCompared());
    QVERIFY(page->command().contains("--weights-only") && page->command().contains("--values"));
}

void CompareTest::throughARecipe() {
    QTemporaryDir dir;
    QFile file(dir.filePath("recipe.json"));
    QVERIFY(file.open(QIODevice::WriteOnly));
    file.write(R"({"schema": "shardscope.recipe/1", "parameters": {"parts": {"default": 1}},
        "steps": [{"step": "rename", "from": "^model[.]", "to": "module."}]})");
    file.close();
    auto session = openSession(sampleCheckpoint());
    auto page = pageOf<ComparePage>(*session);
    const QString other = made(
        {"convert", "--to", "safetensors", "--weights-only", "--map", file.fileName(), "--set", "parts=2"});
    page->setOtherPath(other);
    page->findChild<CompareSetup*>()->setRecipe(file.fileName(), {"parts=2"});
    page->compare();
    QTRY_VERIFY(page->comparison());
    const auto metadata = page->comparison();
    QVERIFY(metadata->report.mapped);
    QCOMPARE(metadata->counts[static_cast<size_t>(DiffClass::onlyB)], size_t{0});
    QVERIFY(metadata->matched > 0);
    // Rows show the tensors that the recipe makes.
    QTest::mouseClick(table(*page)->viewport(), Qt::LeftButton, {},
                      table(*page)->visualRect(table(*page)->model()->index(0, 1)).center());
    QTest::mouseClick(button<QPushButton>(*page, "Compare values"), Qt::LeftButton);
    QTRY_VERIFY(page->comparison() != metadata);
    QVERIFY(page->comparison()->report.valuesCompared());
    QVERIFY(page->comparison()->report.values.empty());
    QVERIFY(page->command().contains("--map " + file.fileName() + " --set parts=2 --values"));
    QTest::mouseClick(button<QToolButton>(*page, "Recipe ✓, rename rules"), Qt::LeftButton);
    picture(*page, "compare-recipe");
}

void CompareTest::malformedRulesAreSaid() {
    auto session = openSession(sampleCheckpoint());
    auto page = pageOf<ComparePage>(*session);
    page->setOtherPath(sampleCheckpoint());
    QTest::mouseClick(button<QToolButton>(*page, "Recipe, rename rules"), Qt::LeftButton);
    QTest::keyClicks(page->findChild<QPlainTextEdit*>(), "(unclosed=x");
    QVERIFY(!button<QPushButton>(*page, "Compare")->isEnabled());
    QVERIFY(button<QToolButton>(*page, "Recipe, rename rules ▲"));
    picture(*page, "compare-bad-rule");
}

void CompareTest::valuesOnDemand() {
    const QString copy = copyCheckpoint(sampleCheckpoint());
    auto session = openSession(sampleCheckpoint());
    // Some values of one file change.
    {
        const auto& files = session->catalog().files();
        FileId f = 0;
        while (files[f].path != "__1_0.distcp")
            ++f;
        ChunkId wanted = kNone;
        for (const ChunkId c : session->facts()->chunksOf(f)) {
            if (session->catalog().chunk(c).elements() >= 8) wanted = c;
        }
        QVERIFY(wanted != kNone);
        const Extent extent = session->checkpoint()->reader->locate(wanted).value();
        QFile file(copy + "/__1_0.distcp");
        QVERIFY(file.setPermissions(QFile::ReadOwner | QFile::WriteOwner));
        QVERIFY(file.open(QIODevice::ReadWrite));
        QVERIFY(file.seek(static_cast<qint64>(extent.offset)));
        file.write(QByteArray("\x00\x00\x80\x3f\x00\x00\x80\x3f", 8));
    }
    auto page = pageOf<ComparePage>(*session);
    page->setOtherPath(copy);
    page->compare();
    QTRY_VERIFY(page->comparison());
    QVERIFY2(page->summary().startsWith("Equal as far as metadata tells"), qPrintable(page->summary()));
    auto* values = button<QPushButton>(*page, "Compare values (reads ");
    QVERIFY(values && values->isEnabled());
    QVERIFY(page->comparison()->valueBytes == 2 * session->catalog().totalBytes());
    QTest::mouseClick(values, Qt::LeftButton);
    QTRY_VERIFY(page->comparison()->report.valuesCompared());
    QVERIFY2(page->summary().contains("1 tensor has other values"), qPrintable(page->summary()));
    QVERIFY(!table(*page)->isColumnHidden(CompareModel::maxAbs));
    QCOMPARE(table(*page)->model()->rowCount(), 1);
    const QString different = table(*page)->model()->index(0, CompareModel::different).data().toString();
    QVERIFY2(different == "2" || different == "1", qPrintable(different));
    bool measured = false;
    const double cosine =
        table(*page)->model()->index(0, CompareModel::cosine).data().toString().toDouble(&measured);
    QVERIFY(measured && cosine >= -1 && cosine <= 1);
    QVERIFY(!values->isEnabled());
    QVERIFY(page->command().endsWith("--values"));
    picture(*page, "compare-values");
    page->resize(720, 600);
    picture(*page, "compare-narrow");
}

void CompareTest::togglesAndFilter() {
    auto session = openSession(sampleCheckpoint());
    auto page = pageOf<ComparePage>(*session);
    page->setOtherPath(made({"reshard", "--weights-only", "--dtype", "*fc1*=bf16"}));
    page->compare();
    QTRY_VERIFY(page->comparison());
    const size_t only = page->comparison()->counts[0];
    const int rows = table(*page)->model()->rowCount();
    auto* toggle = button<QToolButton>(*page, QStringLiteral("only in A (%1)").arg(only));
    QVERIFY(toggle && toggle->isEnabled());
    QVERIFY(!button<QToolButton>(*page, "only in B (0)")->isEnabled());
    QVERIFY(button<QToolButton>(*page, "values (?)"));
    QTest::mouseClick(toggle, Qt::LeftButton);
    QCOMPARE(table(*page)->model()->rowCount(), rows - static_cast<int>(only));
    QTest::mouseClick(toggle, Qt::LeftButton);
    auto* filter = page->findChildren<QLineEdit*>().last();
    QTest::keyClicks(filter, "FC1 bias");
    QTRY_VERIFY(table(*page)->model()->rowCount() < rows);
    for (int r = 0; r < table(*page)->model()->rowCount(); ++r)
        QVERIFY(table(*page)->model()->index(r, CompareModel::name).data().toString().contains("fc1"));
    filter->setText("no such tensor");
    QTRY_COMPARE(table(*page)->model()->rowCount(), 0);
    bool said = false;
    for (QLabel* label : page->findChildren<QLabel*>())
        said |= label->isVisible() && label->text().contains("passes the filters");
    QVERIFY(said);
    picture(*page, "compare-filtered-empty");
}

void CompareTest::selectsTheTensor() {
    auto session = openSession(sampleCheckpoint());
    auto page = pageOf<ComparePage>(*session);
    page->setOtherPath(made({"reshard", "--weights-only"}));
    page->compare();
    QTRY_VERIFY(page->comparison());
    auto* view = table(*page);
    QTest::mouseClick(view->viewport(), Qt::LeftButton, {},
                      view->visualRect(view->model()->index(1, 1)).center());
    const QString name = view->model()->index(1, CompareModel::name).data().toString();
    QCOMPARE(session->selection().current().tensor, session->catalog().find(name.toStdString()));
    QTest::keyClick(view, Qt::Key_Down);
    QCOMPARE(session->selection().current().tensor,
             session->catalog().find(view->model()->index(2, 1).data().toString().toStdString()));
}

void CompareTest::byKeyboardAlone() {
    auto session = openSession(sampleCheckpoint());
    auto page = pageOf<ComparePage>(*session);
    auto* path = page->findChild<QComboBox*>()->lineEdit();
    path->setFocus();
    QTest::keyClicks(path, sampleCheckpoint());
    QTest::keyClick(path, Qt::Key_Return);
    QTRY_VERIFY(page->comparison());
    QVERIFY(page->summary().startsWith("Equal as far as metadata tells"));
    picture(*page, "compare-equal");
}

void CompareTest::dropping() {
    auto session = openSession(sampleCheckpoint());
    auto page = pageOf<ComparePage>(*session);
    QMimeData data;
    data.setUrls({QUrl::fromLocalFile(sampleCheckpoint())});
    QDragEnterEvent enter({10, 10}, Qt::CopyAction, &data, Qt::LeftButton, {});
    QApplication::sendEvent(page.get(), &enter);
    QVERIFY(enter.isAccepted());
    QDropEvent drop({10, 10}, Qt::CopyAction, &data, Qt::LeftButton, {});
    QApplication::sendEvent(page.get(), &drop);
    QTRY_VERIFY(page->comparison());
}

void CompareTest::copyAsCommand() {
    auto session = openSession(sampleCheckpoint());
    auto page = pageOf<ComparePage>(*session);
    page->findChild<CompareSetup*>()->setRules("^model\\.=my module.");
    page->setOtherPath(sampleCheckpoint());
    page->compare();
    QTRY_VERIFY(page->comparison());
    QTest::mouseClick(button<QPushButton>(*page, "Copy as command"), Qt::LeftButton);
    QCOMPARE(QApplication::clipboard()->text(),
             QStringLiteral("shardscope diff %1 %1 --rename '^model\\.=my module.'").arg(sampleCheckpoint()));
}

void CompareTest::browsing() {
    auto session = openSession(sampleCheckpoint());
    auto page = pageOf<ComparePage>(*session);
    QMenu* menu = button<QPushButton>(*page, "Browse")->menu();
    QCOMPARE(menu->actions().size(), 2);
    menu->actions().first()->trigger();
    auto* dialog = page->findChild<QFileDialog*>();
    QVERIFY(dialog);
    QCOMPARE(dialog->fileMode(), QFileDialog::Directory);
    emit dialog->fileSelected(sampleCheckpoint());
    dialog->close();
    QCOMPARE(page->findChild<CompareSetup*>()->otherPath(), sampleCheckpoint());
    QVERIFY(button<QPushButton>(*page, "Compare")->isEnabled());
}

void CompareTest::recentPathsStay() {
    auto session = openSession(sampleCheckpoint());
    {
        auto page = pageOf<ComparePage>(*session);
        page->setOtherPath(sampleCheckpoint());
        page->compare();
        QTRY_VERIFY(page->comparison());
    }
    auto page = pageOf<ComparePage>(*session);
    QCOMPARE(page->findChild<QComboBox*>()->itemText(0), sampleCheckpoint());
    QCOMPARE(page->findChild<CompareSetup*>()->otherPath(), QString());
}

void CompareTest::failures() {
    auto session = openSession(sampleCheckpoint());
    auto page = pageOf<ComparePage>(*session);
    page->setOtherPath("/nonexistent/checkpoint");
    page->compare();
    QTRY_VERIFY2(messageOf(*page).startsWith("The two could not be compared.\n"),
                 qPrintable(messageOf(*page)));
    QVERIFY(messageOf(*page).contains("/nonexistent/checkpoint"));
    QVERIFY(button<QPushButton>(*page, "Compare")->isVisible());
    picture(*page, "compare-failed");

    // Values that cannot be read leave what was found before.
    auto engine = std::make_shared<ScriptedEngine>();
    auto calls = std::make_shared<std::atomic<int>>(0);
    engine->before = [calls](const std::string& call, const TaskContext&) -> Status {
        if (call == "diff" && ++*calls == 2) return makeError(ErrorCode::io, "the disk went away");
        return {};
    };
    auto scripted = openSession(sampleCheckpoint(), engine);
    auto second = pageOf<ComparePage>(*scripted);
    second->setOtherPath(sampleCheckpoint());
    second->compare();
    QTRY_VERIFY(second->comparison());
    second->compareValues();
    QTRY_VERIFY2(second->summary().contains("The disk went away."), qPrintable(second->summary()));
    QVERIFY(second->comparison() && !second->comparison()->report.valuesCompared());
    QVERIFY(button<QPushButton>(*second, "Compare values")->isEnabled());
}

void CompareTest::cancelling() {
    auto engine = std::make_shared<ScriptedEngine>();
    engine->before = [](const std::string& call, const TaskContext& context) -> Status {
        while (call == "diff" && !context.stop.stopRequested())
            QThread::msleep(5);
        return call == "diff" ? Status(context.stop.poll()) : Status();
    };
    auto session = openSession(sampleCheckpoint(), engine);
    auto page = pageOf<ComparePage>(*session);
    page->setOtherPath(sampleCheckpoint());
    page->compare();
    QVERIFY(button<QPushButton>(*page, "Cancel")->isVisible());
    picture(*page, "compare-running");
    QTest::mouseClick(button<QPushButton>(*page, "Cancel"), Qt::LeftButton);
    QTRY_COMPARE(messageOf(*page), QStringLiteral("The comparison was canceled."));
    QVERIFY(!page->running());
}

void CompareTest::lateAnswersAreHarmless() {
    auto engine = std::make_shared<ScriptedEngine>();
    QSemaphore go;
    std::atomic<int> asked{0};
    engine->before = [&](const std::string& call, const TaskContext&) -> Status {
        if (call != "diff") return {};
        ++asked;
        go.acquire();
        return {};
    };
    auto session = openSession(sampleCheckpoint(), engine);
    auto page = pageOf<ComparePage>(*session);
    page->setOtherPath(sampleCheckpoint());
    page->compare();
    QTRY_COMPARE(asked.load(), 1);
    // The page is closed before the answer comes.
    page.reset();
    go.release(2);
    Tasks::waitForAll();
    QCoreApplication::processEvents();
    // A second question overtakes the first.
    page = pageOf<ComparePage>(*session);
    page->setOtherPath(sampleCheckpoint());
    page->compare();
    page->compare();
    go.release(4);
    QTRY_VERIFY(page->comparison());
    Tasks::waitForAll();
    QCoreApplication::processEvents();
    QVERIFY(page->comparison());
}

void CompareTest::anotherCheckpointForgets() {
    auto session = openSession(sampleCheckpoint());
    auto page = pageOf<ComparePage>(*session);
    page->setOtherPath(sampleCheckpoint());
    page->compare();
    QTRY_VERIFY(page->comparison());
    session->open(genuineCheckpoint("dcp/t2.15.0-pipeline"));
    QTRY_VERIFY(session->state() == Session::State::open);
    QVERIFY(!page->comparison());
    session->close();
    QVERIFY(messageOf(*page).contains("Open a checkpoint"));
    QVERIFY(!button<QPushButton>(*page, "Compare")->isEnabled());
}

void CompareTest::everyControlHasAName() {
    auto session = openSession(sampleCheckpoint());
    auto page = pageOf<ComparePage>(*session);
    const QStringList nameless = namelessByKeyboard(*page);
    QVERIFY2(nameless.isEmpty(), qPrintable(nameless.join(", ")));
}

SHARDSCOPE_GUI_TEST_MAIN(CompareTest)
#include "compare_test.moc"
