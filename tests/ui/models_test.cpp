#include <QAbstractItemModelTester>

#include "engine/request.h"
#include "support/gui_test.h"
#include "survey/filter.h"
#include "survey/placement_matrix.h"
#include "ui/models/chunk_table_model.h"
#include "ui/models/findings_model.h"
#include "ui/models/recents.h"
#include "ui/models/tensor_tree_model.h"
#include "ui/models/texts.h"

using namespace shardscope;
using namespace shardscope::ui;

namespace {

std::vector<std::string> namesOf(const Catalog& catalog, const std::vector<TensorId>& tensors) {
    std::vector<std::string> names;
    for (const TensorId t : tensors)
        names.emplace_back(catalog.name(t));
    return names;
}

size_t countOf(const Catalog& catalog, const char* text, const Facts* facts = nullptr) {
    const auto filter = Filter::parse(text);
    if (!filter.ok()) return SIZE_MAX;
    return filter->apply(catalog, facts).size();
}

}  // namespace

class ModelsTest : public QObject {
    Q_OBJECT
  private slots:
    void optionsAreNamedAsFields() {
        QCOMPARE(QString::fromStdString(titledOption("overwrite", {})), QStringLiteral("“Overwrite”"));
        QCOMPARE(QString::fromStdString(titledOption("tp-dim", "'*=0'")),
                 QStringLiteral("“Sharded dimensions” '*=0'"));
        QCOMPARE(QString::fromStdString(titledOption("torch-library", {})),
                 QStringLiteral("--torch-library"));
        QCOMPARE(
            messageText(
                "it is not known (--tp-dim 'GLOB=DIM' states it); --torch-library and a--overwrite stay"),
            QStringLiteral("it is not known (“Sharded dimensions” 'GLOB=DIM' states it); --torch-library and "
                           "a--overwrite stay"));
    }

    void naturalOrder() {
        QVERIFY(naturalLess("layers.2.w", "layers.10.w"));
        QVERIFY(naturalLess("a.b", "a.b.c"));
        QVERIFY(naturalLess("a.b", "a-b"));
        QVERIFY(!naturalLess("a", "a"));
        QVERIFY(naturalLess("x1", "x01"));
    }

    void treeOfModules() {
        CatalogBuilder builder("dcp", "", "");
        for (const char* name :
             {"m.layers.10.w", "m.layers.2.w", "m.layers.2.w.scale", "m.embed", "", "a..b"}) {
            TensorInfo info;
            info.name = name;
            info.shape = {4};
            QVERIFY(builder.addTensor(info).ok());
        }
        const Catalog catalog = std::move(builder).finish();
        const ModuleTree tree = ModuleTree::buildAll(catalog);
        QCOMPARE(tree.tensorCount(ModuleTree::kRoot), 6U);
        QCOMPARE(tree.bytes(ModuleTree::kRoot), uint64_t{6 * 16});
        std::vector<std::string> order = namesOf(catalog, tree.order());
        QCOMPARE(order, (std::vector<std::string>{"", "a..b", "m.embed", "m.layers.2.w", "m.layers.2.w.scale",
                                                  "m.layers.10.w"}));
        const ModuleTree::Node layers = tree.find("m.layers");
        QVERIFY(layers != ModuleTree::kRoot);
        QCOMPARE(tree.tensorCount(layers), 3U);
        QCOMPARE(tree.childCount(layers), 2U);
        QCOMPARE(std::string(tree.label(tree.child(layers, 1))), std::string("10"));
        QCOMPARE(namesOf(catalog, tree.tensorsBelow(tree.find("m.layers.2"))),
                 (std::vector<std::string>{"m.layers.2.w", "m.layers.2.w.scale"}));
        for (TensorId t = 0; t < catalog.tensorCount(); ++t)
            QCOMPARE(std::string(tree.fullName(tree.nodeOf(t))), std::string(catalog.name(t)));
        QVERIFY(tree.find("m.nothing") == ModuleTree::kRoot);
        QVERIFY(ModuleTree::build(catalog, {}).empty());
    }

    void filters() {
        SyntheticOptions options;
        options.missingFileRank = 5;
        options.gapLayer = 3;
        const auto catalog = syntheticModel(options);
        const auto facts = computeFacts(*catalog);
        QVERIFY(facts);
        const size_t all = catalog->tensorCount();
        QCOMPARE(countOf(*catalog, ""), all);
        QCOMPARE(countOf(*catalog, "NORM"), all / 2);
        QCOMPARE(countOf(*catalog, "layers.3. w0"), size_t{1});
        QCOMPARE(countOf(*catalog, "-norm"), all / 2);
        QCOMPARE(countOf(*catalog, "name:model.layers.3.*"), size_t{8});
        QCOMPARE(countOf(*catalog, "name:~layers\\.(1|2)\\."), size_t{16});
        QCOMPARE(countOf(*catalog, "dtype:bf16"), all);
        QCOMPARE(countOf(*catalog, "dtype:fp32,int8"), size_t{0});
        QCOMPARE(countOf(*catalog, "size>1MiB"), all / 2);
        QCOMPARE(countOf(*catalog, "size<1MiB"), all / 2);
        QCOMPARE(countOf(*catalog, "rank:0-7"), all / 4);
        QCOMPARE(countOf(*catalog, "rank:31"), size_t{16});
        QCOMPARE(countOf(*catalog, "file:__5_0"), size_t{16});
        QCOMPARE(countOf(*catalog, "status:gap", facts.get()), size_t{1});
        QCOMPARE(countOf(*catalog, "status:missing", facts.get()), size_t{15});
        QCOMPARE(countOf(*catalog, "status:bad", facts.get()), size_t{16});
        QCOMPARE(countOf(*catalog, "status:ok norm", facts.get()), all / 2);
        QCOMPARE(countOf(*catalog, "role:optimizer"), size_t{0});
        for (const char* wrong :
             {"name:~(", "dtype:float99", "rank:x", "status:fine", "size>much", "role:king", "dtype:"}) {
            const auto filter = Filter::parse(wrong);
            QVERIFY2(!filter.ok(), wrong);
            QVERIFY(filter.error().message.find(wrong) != std::string::npos);
        }
        // A colon in a word is part of a name.
        QVERIFY(Filter::parse("a::b").ok());
    }

    void facts() {
        SyntheticOptions options;
        options.missingFileRank = 5;
        options.gapLayer = 3;
        const auto catalog = syntheticModel(options);
        const auto facts = computeFacts(*catalog);
        QCOMPARE(facts->damagedTensors, size_t{16});
        QCOMPARE(facts->ranks.size(), size_t{32});
        QCOMPARE(facts->ranks[5].health, Health::missing);
        QCOMPARE(facts->ranks[4].health, Health::ok);
        const auto lost = std::ranges::find(facts->tensorHealth, Health::missing);
        QVERIFY(lost != facts->tensorHealth.end());
        const auto partly = static_cast<TensorId>(lost - facts->tensorHealth.begin());
        QCOMPARE(tensorStateText(*facts, *catalog, partly), std::string("7 of 8 shards"));
        QCOMPARE(rankStateText(facts->ranks[5]), std::string("missing"));
        const TensorId broken = catalog->find("model.layers.3.mlp.w0.weight");
        QCOMPARE(facts->tensorHealth[broken], Health::gap);
        QCOMPARE(facts->gaps[broken].size(), size_t{1});
        QCOMPARE(facts->gaps[broken][0], (Box{{2048, 3072}, {2048, 1024}}));
        QCOMPARE(facts->layers.size(), size_t{16});
        QCOMPARE(facts->layers[4].stages, (std::vector<uint32_t>{1}));
        QCOMPARE(facts->layers[10].number, int64_t{10});
        QCOMPARE(facts->files[5].health, Health::missing);
        QCOMPARE(facts->files[4].dead(catalog->files()[4].size), uint64_t{0});
        QVERIFY(facts->files[4].chunks > 0);
        QCOMPARE(facts->chunksOf(4).size(), size_t{facts->files[4].chunks});
        StopSource stop;
        stop.requestStop();
        QVERIFY(!computeFacts(*catalog, stop));
    }

    void findingsChangeFacts() {
        const auto catalog = syntheticModel();
        const auto facts = computeFacts(*catalog);
        ValidationReport report;
        Finding finding{"value.nan", Severity::error, 1, "NaN", "", {}};
        FindingExample example;
        example.tensor = "model.layers.0.mlp.w0.weight";
        example.rank = 2;
        example.detail = "3 of 4,096 elements are NaN (0.1 %)";
        finding.examples.push_back(example);
        report.findings.push_back(finding);
        const auto changed = withFindings(*facts, *catalog, report);
        const TensorId t = catalog->find(example.tensor);
        QCOMPARE(changed->tensorHealth[t], Health::nonFinite);
        size_t marked = 0;
        for (ChunkId c = catalog->firstChunk(t); c < catalog->endChunk(t); ++c)
            marked += changed->chunkHealth[c] == Health::nonFinite;
        QCOMPARE(marked, size_t{1});
        QCOMPARE(facts->tensorHealth[t], Health::ok);
        // Tooltips say how many.
        QCOMPARE(QString::fromStdString(changed->notesOf(*catalog, t)),
                 QStringLiteral("rank 2: 3 of 4,096 elements are NaN (0.1 %)"));
        // Copies that differ have a mark of their own, and count as damage.
        report.findings[0].rule = "replica.differs";
        report.findings[0].examples[0].detail = "differs from the replica of rank 0";
        const auto differing = withFindings(*facts, *catalog, report);
        QCOMPARE(differing->tensorHealth[t], Health::differs);
        QCOMPARE(differing->damagedTensors, facts->damagedTensors + 1);
        QCOMPARE(PlacementMatrix::healthOfByte(PlacementMatrix::cellByte(Health::differs, 0)),
                 Health::differs);
        const auto filter = Filter::parse("status:differs");
        QVERIFY(filter.ok());
        QCOMPARE(filter->apply(*catalog, differing.get(), {}), std::vector<TensorId>{t});
        for (const Health health :
             {Health::nonFinite, Health::differs, Health::overlap, Health::missing, Health::gap})
            QVERIFY(PlacementMatrix::healthOfByte(PlacementMatrix::cellByte(health, 0)) == health);
    }

    // What a file calls a name or a key is never a part of the code that is offered for copying.
    void pythonSnippetsHoldNoForeignCode() {
        CatalogBuilder builder("torch", "", "");
        TensorInfo info;
        info.name = "w\nimport os";
        info.path = {keyPart("w'] + evil()\n[")};
        QVERIFY(builder.addTensor(info).ok());
        info.name = "k";
        info.path = {{PathPart::Kind::otherKey, "0]; __import__('os').system('x')#", 0}};
        QVERIFY(builder.addTensor(info).ok());
        info.name = "t";
        info.path = {{PathPart::Kind::otherKey, "(1, 2.5)", 0}, {PathPart::Kind::index, {}, 3}};
        QVERIFY(builder.addTensor(info).ok());
        const Catalog torch = std::move(builder).finish();
        QVERIFY(pythonSnippet("/c", "/c", torch, 0).contains("['w\\'] + evil()"));
        QVERIFY(!pythonSnippet("/c", "/c", torch, 1).contains("__import__"));
        QVERIFY(pythonSnippet("/c", "/c", torch, 2).contains("[(1, 2.5)][3]"));

        CatalogBuilder other("olmo", "", "");
        info.name = "w\nimport os";
        info.path = {};
        QVERIFY(other.addTensor(info).ok());
        const Catalog olmo = std::move(other).finish();
        for (const QString& line : pythonSnippet("/c", "/c", olmo, 0).split('\n'))
            QVERIFY2(!line.startsWith("import os"), qPrintable(line));
    }

    void treeModel() {
        auto session = openSynthetic(syntheticModel());
        TensorTreeModel model(*session);
        const QAbstractItemModelTester tester(&model, QAbstractItemModelTester::FailureReportingMode::QtTest);
        QCOMPARE(model.rowCount(), 1);
        const TensorId t = session->catalog().find("model.layers.11.mlp.w1.weight");
        const QModelIndex index = model.indexOf(t);
        QVERIFY(index.isValid());
        QCOMPARE(model.tensor(index), t);
        QCOMPARE(model.fullName(index), QStringLiteral("model.layers.11.mlp.w1.weight"));
        // A module with nothing but this tensor shares its row.
        QCOMPARE(model.data(index).toString(), QStringLiteral("w1.weight"));
        QCOMPARE(model.parent(index).data().toString(), QStringLiteral("mlp"));
        QCOMPARE(model.indexOfModule("model.layers.11.mlp.w1"), index);
        QVERIFY(model.flags(index).testFlag(Qt::ItemNeverHasChildren));
        QCOMPARE(model.indexOfModule("model.layers.11").data().toString(), QStringLiteral("11"));
        session->selection().setFilter("layers.11. norm");
        QTRY_COMPARE(session->filtered().tensors().size(), size_t{4});
        QVERIFY(!model.indexOf(t).isValid());
        session->selection().setFilter("nothing like this");
        QTRY_COMPARE(session->filtered().tensors().size(), size_t{0});
        QCOMPARE(model.rowCount(), 0);
        session->selection().setFilter("dtype:float99");
        QTRY_VERIFY(!session->filtered().error().isEmpty());
        session->selection().setFilter({});
        QTRY_COMPARE(session->filtered().tensors().size(), session->catalog().tensorCount());
        session->close();
        QCOMPARE(model.rowCount(), 0);
    }

    void chunkModel() {
        auto session = openSynthetic(syntheticModel());
        ChunkTableModel model(*session);
        const QAbstractItemModelTester tester(&model, QAbstractItemModelTester::FailureReportingMode::QtTest);
        QCOMPARE(model.rowCount(), 0);
        model.setTensor(session->catalog().find("model.layers.0.mlp.w0.weight"));
        QCOMPARE(model.rowCount(), 8);
        QCOMPARE(model.text(3, ChunkTableModel::rank), QStringLiteral("3"));
        QCOMPARE(model.text(3, ChunkTableModel::coordinates), QStringLiteral("pp0 dp0 tp3"));
        const QPersistentModelIndex kept = model.index(0, 0);
        model.sort(ChunkTableModel::rank, Qt::DescendingOrder);
        QCOMPARE(model.text(0, ChunkTableModel::rank), QStringLiteral("7"));
        QCOMPARE(kept.row(), 7);
        model.setAll();
        QCOMPARE(static_cast<size_t>(model.rowCount()), session->catalog().chunkCount());
        session->close();
        QCOMPARE(model.rowCount(), 0);
    }

    // Fails by its time limit when indexes of a large tree pile up in a hash.
    void millionRows() {
        const auto catalog = syntheticGrid(1024, 1024);
        QVERIFY(catalog);
        auto session = openSynthetic(catalog);
        double start = threadMilliseconds();
        const auto lap = [&start] {
            const double begin = std::exchange(start, threadMilliseconds());
            return start - begin;
        };
        ChunkTableModel chunks(*session);
        chunks.setAll();
        QCOMPARE(chunks.rowCount(), 1024 * 1024);
        chunks.sort(ChunkTableModel::file, Qt::DescendingOrder);
        const double sorting = lap();
        QCOMPARE(chunks.text(0, ChunkTableModel::rank), QStringLiteral("1023"));
        // How often views ask a model tells whether they look at what is shown or at everything.
        struct Counting : QIdentityProxyModel {
            using QIdentityProxyModel::data;
            QVariant data(const QModelIndex& index, int role) const override {
                ++asked;
                return QIdentityProxyModel::data(index, role);
            }
            mutable int asked = 0;
        };
        TensorTreeModel tree(*session);
        Counting countedTree, countedChunks;
        countedTree.setSourceModel(&tree);
        QTreeView view;
        view.setUniformRowHeights(true);
        view.setModel(&countedTree);
        view.resize(800, 600);
        view.show();
        view.expandAll();
        view.grab();
        view.collapseAll();
        const double expanding = lap();
        QTableView table;
        countedChunks.setSourceModel(&chunks);
        table.setModel(&countedChunks);
        table.resize(1200, 700);
        table.show();
        table.scrollToBottom();
        table.grab();
        const double showing = lap();
        qInfo(
            "sorting 1,048,576 chunks %.0f ms, expanding the tree %.0f ms and %d questions, showing the last "
            "row "
            "%.0f ms and %d questions",
            sorting, expanding, countedTree.asked, showing, countedChunks.asked);
        QVERIFY(sorting < 10'000 && expanding < 2000 && showing < 2000);
        QVERIFY2(countedTree.asked < 20'000, qPrintable(QString::number(countedTree.asked)));
        QVERIFY2(countedChunks.asked > 0 && countedChunks.asked < 20'000,
                 qPrintable(QString::number(countedChunks.asked)));
    }

    void findingsAndSuppressions() {
        QTemporaryDir directory;
        const QString file = directory.filePath("suppressions.json");
        auto engine = std::make_shared<ScriptedEngine>();
        SyntheticOptions options;
        options.missingFileRank = 5;
        engine->catalog = syntheticModel(options);
        auto session = openSession("synthetic", engine);
        Suppressions suppressions(file);
        FindingsModel model(*session, suppressions);
        const QAbstractItemModelTester tester(&model, QAbstractItemModelTester::FailureReportingMode::QtTest);
        session->validation().start(ValidateLevel::metadata);
        QTRY_VERIFY(session->validation().report() && !session->validation().running());
        QVERIFY(model.rowCount() > 0);
        QVERIFY(model.errors() > 0);
        const int rows = model.rowCount();
        const Finding first = *model.finding(model.index(0, 0));
        QVERIFY(model.rowCount(model.index(0, 0)) > 0);
        QVERIFY(model.example(model.index(0, 0, model.index(0, 0))));
        suppressions.add(session->path(), first, "known");
        QCOMPARE(model.rowCount(), rows - 1);
        QCOMPARE(model.suppressed(), size_t{1});
        model.setShowSuppressed(true);
        QCOMPARE(model.rowCount(), rows);
        QCOMPARE(Suppressions(file).of(session->path()).size(), size_t{1});
        QCOMPARE(Suppressions(file).of("another").size(), size_t{0});
        suppressions.remove(session->path(), first);
        QCOMPARE(model.suppressed(), size_t{0});
    }

    void damagedSuppressionsAreKept() {
        QTemporaryDir directory;
        const QString path = directory.filePath("suppressions.json");
        QFile file(path);
        QVERIFY(file.open(QIODevice::WriteOnly));
        file.write("not json");
        file.close();
        Suppressions suppressions(path);
        suppressions.add("a", Finding{"value.nan", Severity::error, 1, "", "", {}}, "because");
        QVERIFY(QFile::exists(path + ".unreadable"));
        QCOMPARE(Suppressions(path).of("a").size(), size_t{1});
    }

    void recents() {
        Recents recents;
        recents.clear();
        for (int i = 0; i < Recents::kMost + 5; ++i)
            recents.opened(QStringLiteral("/c/%1").arg(i), "dcp");
        recents.validated("/c/24", "safe");
        const Recents again;
        QCOMPARE(again.list().size(), size_t{Recents::kMost});
        QCOMPARE(again.list()[0].path, QStringLiteral("/c/24"));
        QCOMPARE(again.list()[0].verdict, QStringLiteral("safe"));
        recents.opened("/c/20", "dcp");
        QCOMPARE(recents.list()[0].path, QStringLiteral("/c/20"));
        QCOMPARE(recents.list().size(), size_t{Recents::kMost});
    }

    void texts() {
        QCOMPARE(toQString("a\u202Eb\nc"), QStringLiteral("a\\u202eb\\nc"));
        QCOMPARE(shellLine({"shardscope", "show", "/a b", "it's", ""}),
                 QStringLiteral("shardscope show '/a b' 'it'\\''s' ''"));
        QCOMPARE(ratioText(0.125), QStringLiteral("13 %"));
        const auto catalog = syntheticModel();
        QVERIFY(pythonSnippet("/c", "/c", *catalog, 0)
                    .contains("torch.empty([4096, 4096], dtype=torch.bfloat16)"));
    }
};

SHARDSCOPE_GUI_TEST_MAIN(ModelsTest)
#include "models_test.moc"
