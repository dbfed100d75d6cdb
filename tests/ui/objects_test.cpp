// Objects: their rows in the tree and on their page, the value as a tree, searching, copying, reading on
// demand.
#include <QAbstractItemModelTester>
#include <QClipboard>
#include <QLabel>
#include <QLineEdit>
#include <QTableView>
#include <QTreeView>

#include "support/accessibility.h"
#include "support/gui_test.h"
#include "ui/models/object_table_model.h"
#include "ui/models/tensor_tree_model.h"
#include "ui/models/value_tree_model.h"
#include "ui/pages/objects_page.h"
#include "ui/pages/tree_panel.h"

using namespace shardscope;
using namespace shardscope::ui;

namespace {

// {"step": 1200, "lr": [0.1, 0.01], "made": evil.module.Class(), "again": <the list>, "self": <this dict>}
Value trainingState() {
    ValueGraph graph;
    const NodeId rates = graph.addContainer(ValueKind::list, {graph.addReal(0.1), graph.addReal(0.01)});
    ValueObject call;
    call.callable = graph.addGlobal("evil.module", "Class");
    call.arguments = graph.addContainer(ValueKind::tuple);
    const NodeId made = graph.addObject(call);
    const NodeId top = graph.addContainer(ValueKind::dict);
    const auto put = [&](std::string_view key, NodeId value) {
        const NodeId name = graph.addText(ValueKind::text, key);
        graph.append(top, name);
        graph.append(top, value);
    };
    put("step", graph.addInteger(1200));
    put("lr", rates);
    put("made", made);
    put("again", rates);
    put("self", top);
    return makeValue(std::move(graph), top);
}

Value longList(int count) {
    ValueGraph graph;
    const NodeId top = graph.addContainer(ValueKind::list);
    std::vector<NodeId> items;
    for (int i = 0; i < count; ++i)
        items.push_back(graph.addInteger(i));
    graph.append(top, items);
    return makeValue(std::move(graph), top);
}

std::shared_ptr<const Catalog> withObjects() {
    CatalogBuilder builder("dcp", "", "synthetic");
    const FileId file = builder.addFile({"__0_0.distcp", 4096});
    TensorInfo tensor;
    tensor.name = "model.weight";
    tensor.shape = {4, 4};
    if (!builder.addTensor(tensor).ok() || !builder.addWhole(0, file, 0, 64).ok()) qFatal("no catalog");
    const auto add = [&](const char* name, Value value) {
        ObjectInfo object;
        object.name = name;
        object.file = file;
        object.rank = 0;
        object.offset = 100;
        object.length = 50;
        object.value = std::move(value);
        builder.addObject(std::move(object));
    };
    add("train.state", trainingState());
    add("train.seed", makeIntegerValue(42));
    add("rng", {});  // read when it is looked at
    return std::make_shared<const Catalog>(std::move(builder).finish());
}

QString cell(const QAbstractItemModel& model, const QModelIndex& index, int column) {
    return model.data(index.siblingAtColumn(column)).toString();
}

}  // namespace

class ObjectsTest : public QObject {
    Q_OBJECT

  private slots:
    void init() { applyTheme(ThemeChoice::light); }

    void valueAsTree() {
        ValueTreeModel model;
        const QAbstractItemModelTester tester(&model, QAbstractItemModelTester::FailureReportingMode::QtTest);
        QCOMPARE(model.rowCount(), 0);
        model.setValue("state", trainingState());
        const QModelIndex top = model.index(0, 0);
        QCOMPARE(top.data().toString(), QStringLiteral("state"));
        QCOMPARE(model.rowCount(top), 5);
        const QModelIndex step = model.index(0, 0, top), rates = model.index(1, 0, top);
        QCOMPARE(step.data().toString(), QStringLiteral("step"));
        QCOMPARE(cell(model, step, ValueTreeModel::typeColumn), QStringLiteral("int"));
        QCOMPARE(cell(model, step, ValueTreeModel::valueColumn), QStringLiteral("1200"));
        QVERIFY(!model.hasChildren(step));
        QCOMPARE(model.rowCount(rates), 2);
        QCOMPARE(cell(model, model.index(1, 0, rates), ValueTreeModel::valueColumn), QStringLiteral("0.01"));
        QCOMPARE(model.path(model.index(1, 0, rates)), (QStringList{"state", "lr", "1"}));
        // A class is a name, and nothing else.
        const QModelIndex made = model.index(2, 0, top);
        QCOMPARE(cell(model, made, ValueTreeModel::typeColumn), QStringLiteral("evil.module.Class"));
        QVERIFY(model.hasChildren(made));
        QVERIFY(
            cell(model, model.index(0, 0, made), ValueTreeModel::valueColumn).contains("evil.module.Class"));
        // What is shared stands in both places, what contains itself ends.
        QCOMPARE(model.rowCount(model.index(3, 0, top)), 2);
        QVERIFY(!model.hasChildren(model.index(4, 0, top)));
        QVERIFY(cell(model, model.index(4, 0, top), ValueTreeModel::valueColumn).contains("itself"));
        model.clear();
        QCOMPARE(model.rowCount(), 0);
    }

    void searching() {
        const Value value = trainingState();
        const auto places = ValueTreeModel::find(value, "0.01", 100, {});
        QVERIFY(places.ok());
        QCOMPARE(places->size(), size_t{2});  // the list stands in two places
        QCOMPARE(places->front(), (ValueTreeModel::RowPath{1, 1}));
        const auto keys = ValueTreeModel::find(value, "STEP", 100, {});
        QVERIFY(keys.ok() && keys->size() == 1);
        QCOMPARE(ValueTreeModel::find(value, "no such text", 100, {})->size(), size_t{0});
        QCOMPARE(ValueTreeModel::find(longList(5000), "1", 7, {})->size(), size_t{7});
        StopSource stop;
        stop.requestStop();
        QVERIFY(!ValueTreeModel::find(longList(5000), "1", 7, stop).ok());
    }

    void manyItemsOpenAtOnce() {
        ValueTreeModel model;
        model.setValue("list", longList(1'000'000));
        const double start = threadMilliseconds();
        const QModelIndex top = model.index(0, 0);
        QCOMPARE(model.rowCount(top), 1'000'000);
        QCOMPARE(cell(model, model.index(999'999, 0, top), ValueTreeModel::valueColumn),
                 QStringLiteral("999999"));
        const double took = threadMilliseconds() - start;
        QVERIFY2(took < 1000, qPrintable(QString::number(took)));
    }

    void objectsInTheTree() {
        auto session = openSynthetic(withObjects());
        TensorTreeModel model(*session);
        const QAbstractItemModelTester tester(&model, QAbstractItemModelTester::FailureReportingMode::QtTest);
        QCOMPARE(model.rowCount(), 2);
        const QModelIndex objects = model.index(1, 0);
        QVERIFY(model.holdsObjects(objects));
        QCOMPARE(model.rowCount(objects), 3);
        QCOMPARE(model.object(model.index(1, 0, objects)), ObjectId{1});
        QCOMPARE(model.fullName(model.index(1, 0, objects)), QStringLiteral("train.seed"));
        QCOMPARE(model.indexOfObject(2), model.index(2, 0, objects));
        // Words narrow them, tokens of tensors leave none.
        session->selection().setFilter("train");
        QTRY_VERIFY(session->filtered().active());
        QCOMPARE(model.rowCount(), 1);
        QCOMPARE(model.rowCount(model.index(0, 0)), 2);
        session->selection().setFilter("dtype:float32");
        QTRY_COMPARE(session->filtered().tensors().size(), size_t{1});
        QTRY_COMPARE(model.rowCount(), 1);
        QVERIFY(!model.holdsObjects(model.index(0, 0)));
    }

    void tableOfObjects() {
        auto session = openSynthetic(withObjects());
        ObjectTableModel model(*session);
        const QAbstractItemModelTester tester(&model, QAbstractItemModelTester::FailureReportingMode::QtTest);
        QCOMPARE(model.rowCount(), 3);
        QCOMPARE(cell(model, model.index(1, 0), ObjectTableModel::valueColumn), QStringLiteral("42"));
        QCOMPARE(cell(model, model.index(2, 0), ObjectTableModel::typeColumn),
                 QStringLiteral("not read yet"));
        model.setValue(2, makeTextValue("seen"));
        QVERIFY(cell(model, model.index(2, 0), ObjectTableModel::valueColumn).contains("seen"));
        model.setFilter("SEED");
        QCOMPARE(model.rowCount(), 1);
        QCOMPARE(model.rowOf(1), 0);
        QCOMPARE(model.rowOf(0), -1);
        session->close();
        QCOMPARE(model.rowCount(), 0);
    }

    void pageShowsAndSearches() {
        auto session = openSynthetic(withObjects());
        auto page = pageOf<ObjectsPage>(*session);
        picture(*page, "objects-nothing-chosen");
        QTest::mouseClick(page->table().viewport(), Qt::LeftButton, {},
                          page->table().visualRect(page->table().model()->index(0, 0)).center());
        QCOMPARE(session->selection().current().object, ObjectId{0});
        QVERIFY(page->values().isVisible());
        const auto& model = static_cast<const ValueTreeModel&>(*page->values().model());
        QCOMPARE(model.rowCount(model.index(0, 0)), 5);
        QVERIFY(page->values().isExpanded(model.index(0, 0)));
        page->valueSearch().setFocus();
        QTest::keyClicks(&page->valueSearch(), "0.01");
        QTest::keyClick(&page->valueSearch(), Qt::Key_Return);
        QTRY_COMPARE(model.path(page->values().currentIndex()), (QStringList{"state", "lr", "1"}));
        QTest::keyClick(&page->valueSearch(), Qt::Key_Return);
        QTRY_COMPARE(model.path(page->values().currentIndex()), (QStringList{"state", "again", "1"}));
        page->findNext(false);
        QCOMPARE(model.path(page->values().currentIndex()), (QStringList{"state", "lr", "1"}));
        picture(*page, "objects-found");
        page->values().setFocus();
        page->values().setCurrentIndex(model.index(0, 0, model.index(0, 0)));
        QTest::keyClick(&page->values(), Qt::Key_C, Qt::ControlModifier);
        QCOMPARE(QGuiApplication::clipboard()->text(), QStringLiteral("step\tint\t1200"));
        applyTheme(ThemeChoice::dark);
        picture(*page, "objects-dark");
        const QStringList nameless = namelessByKeyboard(*page);
        QVERIFY2(nameless.isEmpty(), qPrintable(nameless.join(", ")));
    }

    // Values of files of their own are read off the GUI thread, and late answers are for nobody.
    void readOnDemand() {
        auto engine = std::make_shared<ScriptedEngine>();
        engine->catalog = withObjects();
        std::atomic<int> reads{0};
        std::atomic<bool> failing{true};
        engine->before = [&](const std::string& call, const TaskContext&) -> Status {
            if (call != "object") return {};
            ++reads;
            if (failing) return damaged("the pickle ends early").inFile("/ckpt/rng.pt");
            return {};
        };
        auto session = openSession(QStringLiteral("synthetic"), engine);
        ObjectsPage page(*session);
        session->selection().selectObject(2);
        settle();
        QCOMPARE(reads.load(), 0);  // nobody looks
        page.resize(1280, 720);
        page.show();
        QTRY_COMPARE(reads.load(), 1);
        const auto message = [&] {
            QString text;
            for (const QLabel* label : page.findChildren<QLabel*>()) {
                if (label->isVisible()) text += label->text() + '\n';
            }
            return text;
        };
        QTRY_VERIFY(message().contains("the pickle ends early") ||
                    message().contains("The pickle ends early"));
        picture(page, "objects-unreadable");
        failing = false;
        session->selection().selectObject(1);
        session->selection().selectObject(2);
        QTRY_VERIFY(message().contains("no value"));
    }

    void treeLeadsToThePage() {
        auto session = openSynthetic(withObjects());
        TreePanel tree(*session);
        tree.resize(360, 500);
        tree.show();
        QVERIFY(QTest::qWaitForWindowExposed(&tree));
        const QModelIndex objects = tree.model().index(1, 0);
        tree.view().setFocus();
        tree.view().setCurrentIndex(objects);
        QCOMPARE(tree.view().currentIndex(), objects);
        QTest::keyClick(&tree.view(), Qt::Key_Right);
        QVERIFY(tree.view().isExpanded(objects));
        QTest::keyClick(&tree.view(), Qt::Key_Down);
        QCOMPARE(session->selection().current().object, ObjectId{0});
        QTest::keyClick(&tree.view(), Qt::Key_Return);
        QTRY_COMPARE(session->selection().current().page, Page::objects);
        session->selection().selectTensor(0);
        QCOMPARE(session->selection().current().object, kNone);
        session->selection().back();
        QCOMPARE(tree.model().object(tree.view().currentIndex()), ObjectId{0});
        tree.filterLine().setText("seed");
        QTRY_VERIFY(session->filtered().active());
        QTRY_VERIFY(tree.view().isVisible());
        QCOMPARE(tree.model().rowCount(), 1);
        picture(tree, "tree-objects");
    }

    void genuineObjects() {
        auto session = openSession(genuineCheckpoint("olmo/unsharded_fp32_fqn"));
        QVERIFY(session->checkpoint());
        QVERIFY(!session->catalog().objects().empty());
        auto page = pageOf<ObjectsPage>(*session);
        for (ObjectId o = 0; o < session->catalog().objects().size() && o < 20; ++o) {
            session->selection().selectObject(o);
            QTRY_VERIFY(page->values().isVisible());
        }
        session->selection().selectObject(0);
        QTRY_VERIFY(page->values().isVisible());
        picture(*page, "objects-genuine");
    }
};

SHARDSCOPE_GUI_TEST_MAIN(ObjectsTest)
#include "objects_test.moc"
