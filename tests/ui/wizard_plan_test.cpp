// Rules that a user states in the wizard, and the plan that it shows of them.
#include <QAbstractItemModelTester>
#include <QCheckBox>
#include <QComboBox>
#include <QRadioButton>
#include <QRegularExpression>
#include <QTreeView>
#include <atomic>

#include "model/name_pattern.h"
#include "plan/request_text.h"
#include "support/wizard_fixture.h"
#include "ui/models/model_config.h"
#include "ui/models/plan_model.h"
#include "ui/pages/convert_wizard.h"
#include "ui/pages/wizard_parts.h"
#include "ui/pages/wizard_state.h"

using namespace shardscope;
using namespace shardscope::ui;

class WizardPlanTest : public QObject, protected WizardFixture {
    Q_OBJECT

  private slots:
    // Tensors that steps put together stand in the plan with what they are made of.
    void planSaysWhatIsMadeOfWhat() {
        auto session = openSession(genuineCheckpoint(QStringLiteral("safetensors/hf-sharded")));
        QCOMPARE(session->state(), Session::State::open);
        TensorId matrix = 0;
        while (session->catalog().shape(matrix).size() < 2)
            ++matrix;
        const std::string name(session->catalog().name(matrix));
        const QString recipe = fresh() + "/recipe.json";
        QFile file(recipe);
        QVERIFY(file.open(QIODevice::WriteOnly));
        file.write(
            QByteArrayLiteral(R"({"schema":"shardscope.recipe/1","steps":[{"step":"reshape","tensors":")") +
            QRegularExpression::escape(QString::fromStdString(name)).replace('\\', "\\\\").toUtf8() +
            QByteArrayLiteral(R"(","shape":[-1]}]})"));
        file.close();
        auto store = jobs();
        ConvertWizard wizard(*session, *store);
        auto loaded = ConversionSpec::loadRecipe(recipe);
        QVERIFY2(loaded.ok(), loaded.ok() ? "" : describe(loaded.error()).c_str());
        loaded->destination = fresh() + "/out";
        wizard.setSpec(*loaded);
        wizard.show();
        waitUntilReady(wizard);
        wizard.showPage(plan);
        auto* tree = named<QTreeView>(wizard, "planTree");
        auto* model = qobject_cast<PlanModel*>(tree->model());
        const QModelIndex group = model->groupIndex(PlanModel::Group::made);
        QVERIFY(group.isValid());
        QCOMPARE(model->rowCount(group), 1);
        QCOMPARE(model->index(0, 0, group).data(PlanModel::NameRole).toString(),
                 QString::fromStdString(name));
        QVERIFY(model->index(0, 1, group).data().toString().contains(QString::fromStdString(name)));
        // What is read of each file of the source comes to what the plan reads in all.
        const QModelIndex reads = model->groupIndex(PlanModel::Group::reads);
        QVERIFY(reads.isValid());
        QVERIFY(model->rowCount(reads) > 1);
        QVERIFY(model->index(0, 0, reads).data().toString().endsWith(QStringLiteral(".safetensors")));
        tree->expand(group);
        QCoreApplication::processEvents();
        shoot(wizard, QStringLiteral("wizard-made"));
    }

    void impossiblePlanSaysWhy() {
        auto session = openSession(genuineCheckpoint(QStringLiteral("dcp/t2.15.0-damaged-gap")));
        QCOMPARE(session->state(), Session::State::open);
        auto store = jobs();
        ConvertWizard wizard(*session, *store);
        ConversionSpec spec;
        spec.destination = fresh() + "/out";
        wizard.setSpec(spec);
        wizard.show();
        waitForPlan(wizard);
        QPushButton* start = named<QPushButton>(wizard, "start");
        QVERIFY(!start->isEnabled());
        QVERIFY(status(wizard).startsWith(QStringLiteral("✕")));
        QVERIFY(!start->toolTip().isEmpty());
        QVERIFY(named<QLabel>(wizard, "sourceHealth")->text().contains(QStringLiteral("gaps")));
        shoot(wizard, QStringLiteral("wizard-damaged-source"));
        wizard.showPage(plan);
        QVERIFY(named<QTreeView>(wizard, "planTree")->model()->rowCount() > 0);
        shoot(wizard, QStringLiteral("wizard-impossible"));
        // Filling the gaps makes it possible.
        wizard.showPage(source);
        auto* fill = named<QComboBox>(wizard, "sourceFillGaps");
        QVERIFY(fill->isVisible());
        fill->setFocus();
        QTest::keyClick(fill, Qt::Key_Down);
        QCOMPARE(wizard.spec().fillGaps, FillGaps::nan);
        QTRY_VERIFY_WITH_TIMEOUT(start->isEnabled(), kPatience);
    }

    // So does filling what a lost file held.
    void lostFilesCanBeFilled() {
        auto session = openSession(genuineCheckpoint("dcp/t2.15.0-damaged-missing-file"));
        auto store = jobs();
        ConvertWizard wizard(*session, *store);
        ConversionSpec spec;
        spec.destination = fresh() + "/out";
        wizard.setSpec(spec);
        wizard.show();
        waitForPlan(wizard);
        QPushButton* start = named<QPushButton>(wizard, "start");
        QVERIFY(!start->isEnabled());
        wizard.showPage(source);
        auto* fill = named<QComboBox>(wizard, "sourceFillGaps");
        QVERIFY(fill->isVisible());
        fill->setFocus();
        QTest::keyClick(fill, Qt::Key_Down);
        QCOMPARE(wizard.spec().fillGaps, FillGaps::nan);
        QTRY_VERIFY_WITH_TIMEOUT(start->isEnabled(), kPatience);
    }

    void placementByHand() {
        auto session = openSession(sampleCheckpoint());
        auto store = jobs();
        ConvertWizard wizard(*session, *store);
        showReady(wizard, placement);
        QVERIFY(named<QLabel>(wizard, "legality")->text().contains(QStringLiteral("keeps its chunks")));
        for (QRadioButton* mode : wizard.findChildren<QRadioButton*>()) {
            if (mode->text().startsWith(QStringLiteral("Over a mesh")))
                QTest::mouseClick(mode, Qt::LeftButton, {}, {8, mode->height() / 2});
        }
        QVERIFY(!wizard.spec().mesh.isEmpty());
        type(named<QLineEdit>(wizard, "mesh"), QStringLiteral("tp=8"));
        auto* rules = named<QTableWidget>(wizard, "shardRules");
        addRule(rules, {QStringLiteral("*.weight"), QStringLiteral("tp=0")});
        addRule(rules, {QStringLiteral("*"), QStringLiteral("tp=0")});
        QCOMPARE(wizard.spec().shard, (QStringList{"*.weight:tp=0", "*:tp=0"}));
        waitUntilReady(wizard);
        QTRY_VERIFY(!rules->item(0, 2)->text().isEmpty());
        shoot(wizard, QStringLiteral("wizard-placement-tp8"));
        // The order counts: what matches everything, first, leaves nothing for the other.
        rules->setCurrentCell(1, 0);
        QTest::keyClick(rules, Qt::Key_Up, Qt::AltModifier);
        QCOMPARE(wizard.spec().shard, (QStringList{"*:tp=0", "*.weight:tp=0"}));
        QTRY_VERIFY_WITH_TIMEOUT(
            named<QLabel>(wizard, "legality")->text().contains(QStringLiteral("taken by a rule above")),
            kPatience);
        QTest::keyClick(rules, Qt::Key_Delete);
        QCOMPARE(wizard.spec().shard.size(), 1);
        type(named<QLineEdit>(wizard, "mesh"), QStringLiteral("tp="));
        QTRY_VERIFY_WITH_TIMEOUT(status(wizard).startsWith(QStringLiteral("✕")), kPatience);
    }

    // Presets shard as frameworks do: column and row parallel, norms whole, moments as their parameter.
    void presets() {
        auto session = openSession(QStringLiteral(SHARDSCOPE_TEST_DATA "/index/llama3-8b.ssidx"));
        auto store = jobs();
        ConvertWizard wizard(*session, *store);
        wizard.show();
        wizard.showPage(placement);
        const auto press = [&](const char* text) {
            QTest::mouseClick(buttonWith(wizard, QString(text)), Qt::LeftButton);
        };
        press("Tensor parallel");
        QCOMPARE(wizard.spec().mesh, QStringLiteral("tp=2"));
        QCOMPARE(wizard.spec().shard.size(), 2);
        const auto axisOf = [&](std::string_view name) {
            for (const QString& text : wizard.spec().shard) {
                const auto rule = parseShardRule(text.toStdString());
                if (rule.ok() && NamePattern::parse(rule->pattern)->matches(name)) return rule->axisDims;
            }
            return decltype(ShardRule().axisDims)();
        };
        using Dims = decltype(ShardRule().axisDims);
        for (const std::string& state :
             {std::string(), std::string(".exp_avg"), std::string(".exp_avg_sq")}) {
            const std::string of = state.empty() ? "model." : "optimizer.state.";
            QCOMPARE(axisOf(of + "layers.3.attention.wq.weight" + state), (Dims{{"tp", 0}}));
            QCOMPARE(axisOf(of + "layers.3.feed_forward.w1.weight" + state), (Dims{{"tp", 0}}));
            QCOMPARE(axisOf(of + "layers.3.attention.wo.weight" + state), (Dims{{"tp", 1}}));
            QCOMPARE(axisOf(of + "layers.3.feed_forward.w2.weight" + state), (Dims{{"tp", 1}}));
            QCOMPARE(axisOf(of + "output.weight" + state), (Dims{{"tp", 0}}));
            QCOMPARE(axisOf(of + "layers.3.attention_norm.weight" + state), Dims{});
        }
        press("FSDP");
        QCOMPARE(wizard.spec().mesh, QStringLiteral("tp=2,dp=2"));
        QCOMPARE(axisOf("model.layers.3.attention.wo.weight"), (Dims{{"tp", 1}, {"dp", 0}}));
        QCOMPARE(axisOf("model.norm.weight"), (Dims{{"dp", 0}}));
        // In the other order they come to the same.
        const QStringList both = wizard.spec().shard;
        ConversionSpec none = wizard.spec();
        none.shard.clear();
        wizard.setSpec(none);
        press("FSDP");
        press("Tensor parallel");
        QCOMPARE(wizard.spec().shard, both);
        press("Tensor parallel");
        QCOMPARE(wizard.spec().shard, both);
    }

    // A mesh on which attention heads cannot be shared out is legal for bytes, but not for a training run.
    void headsThatDoNotDivide() {
        const QString source = copyCheckpoint(sampleCheckpoint());
        const auto config = [&](const QByteArray& text) {
            QFile file(source + "/config.json");
            QVERIFY(file.open(QIODevice::WriteOnly));
            file.write(text);
        };
        config(R"({"num_attention_heads": 12, "num_key_value_heads": 4})");
        auto session = openSession(source);
        auto store = jobs();
        ConvertWizard wizard(*session, *store);
        ConversionSpec spec;
        spec.destination = fresh() + "/out";
        spec.mesh = QStringLiteral("tp=8");
        spec.shard = QStringList{QStringLiteral("*.weight:tp=0")};
        wizard.setSpec(spec);
        wizard.show();
        wizard.showPage(placement);
        waitUntilReady(wizard);
        auto* legality = named<QLabel>(wizard, "legality");
        QVERIFY2(
            legality->text().contains("12 attention heads (num_attention_heads in config.json) cannot be "
                                      "divided over tp=8"),
            qPrintable(legality->text()));
        QVERIFY2(legality->text().contains("4 key/value heads (num_key_value_heads in config.json) are fewer "
                                           "than tp=8"),
                 qPrintable(legality->text()));
        QVERIFY(legality->text().contains("2 ranks a copy of each"));
        picture(wizard, QStringLiteral("wizard-heads"));
        type(named<QLineEdit>(wizard, "mesh"), QStringLiteral("dp=3,tp=4"));
        QTRY_VERIFY_WITH_TIMEOUT(!legality->text().contains("heads"), kPatience);
        // A configuration that says nothing of use is not an obstacle.
        for (const char* text : {R"({"num_attention_heads": "many", "n_kv_heads": -3})", "[1, 2", "",
                                 R"({"num_attention_heads": 1e300, "num_key_value_heads": 0.5})"}) {
            config(text);
            QVERIFY(!headCounts(source.toStdString()));
        }
        config(R"({"text_config": {"n_head": 6, "num_kv_heads": 3}})");
        const auto counts = headCounts((source + "/.metadata").toStdString());
        QVERIFY(counts && counts->heads == 6 && counts->keyValueHeads == 3);
        const auto mesh = parseMesh("dp=4,mp=2");
        QVERIFY(mesh.ok());
        QCOMPARE(headNotes(*counts, *mesh).size(), 1);
        QVERIFY(headNotes(*counts, *mesh)[0].startsWith("3 key/value heads"));
    }

    // The rules of the source, over its own mesh, of which the sizes are then changed.
    void placementOfTheSource() {
        auto session = openSession(sampleCheckpoint());
        auto store = jobs();
        ConvertWizard wizard(*session, *store);
        showReady(wizard, placement);
        QTest::mouseClick(buttonWith(wizard, QStringLiteral("Sharded as the source is")), Qt::LeftButton);
        QCOMPARE(wizard.spec().mesh, QStringLiteral("fsdp=2,tp=2"));
        const QStringList rules = wizard.spec().shard;
        QVERIFY2(rules.size() > 1 && rules[0].contains("fc1"), qPrintable(rules.join('\n')));
        auto* legality = named<QLabel>(wizard, "legality");
        type(named<QLineEdit>(wizard, "mesh"), QStringLiteral("fsdp=2,tp=4"));
        QCOMPARE(wizard.spec().shard, rules);
        waitUntilReady(wizard);
        QTRY_VERIFY_WITH_TIMEOUT(legality->text().contains(QStringLiteral(" shards ")), kPatience);
        QVERIFY2(!legality->text().contains(QStringLiteral("are stored whole, each")),
                 qPrintable(legality->text()));
        shoot(wizard, QStringLiteral("wizard-as-source"));
        // Too few rules are said.
        ConversionSpec few = wizard.spec();
        few.shard = QStringList{rules.last()};
        wizard.setSpec(few);
        QTRY_VERIFY_WITH_TIMEOUT(legality->text().contains(QStringLiteral("are stored whole, each")),
                                 kPatience);
    }

    void wholeAndLike() {
        auto session = openSession(sampleCheckpoint());
        auto store = jobs();
        ConvertWizard wizard(*session, *store);
        showReady(wizard, placement);
        const auto choose = [&](const QString& text) {
            for (QRadioButton* mode : wizard.findChildren<QRadioButton*>()) {
                if (mode->text().startsWith(text))
                    QTest::mouseClick(mode, Qt::LeftButton, {}, {8, mode->height() / 2});
            }
        };
        auto* legality = named<QLabel>(wizard, "legality");
        choose(QStringLiteral("Every tensor whole"));
        QTRY_VERIFY_WITH_TIMEOUT(legality->text().contains(QStringLiteral("by one rank")), kPatience);
        waitUntilReady(wizard);
        QVERIFY2(
            named<QLabel>(wizard, "planSummary")->text().contains(QStringLiteral("18 tensors, 18 chunks")),
            qPrintable(named<QLabel>(wizard, "planSummary")->text()));
        choose(QStringLiteral("Like another"));
        QVERIFY(wizard.spec().mesh.isEmpty());
        auto* like = named<QLineEdit>(wizard, "like");
        QVERIFY(like->isVisible());
        type(like, fresh());
        QTRY_VERIFY_WITH_TIMEOUT(status(wizard).startsWith(QStringLiteral("✕")), kPatience);
        type(like, copyCheckpoint(sampleCheckpoint()));
        waitUntilReady(wizard);
        QVERIFY(legality->text().contains(QStringLiteral("placed as in the other checkpoint")));
        shoot(wizard, QStringLiteral("wizard-like"));
        choose(QStringLiteral("As in the source"));
        QVERIFY(wizard.spec().like.isEmpty());
        QTRY_VERIFY_WITH_TIMEOUT(legality->text().contains(QStringLiteral("keeps its chunks")), kPatience);
        // A target that holds whole tensors only leaves no choice.
        ConversionSpec spec;
        spec.format = QStringLiteral("torch");
        spec.destination = fresh() + "/out.pt";
        wizard.setSpec(spec);
        waitUntilReady(wizard);
        for (QRadioButton* mode : wizard.findChildren<QRadioButton*>())
            QCOMPARE(mode->isEnabled(), mode->text() == QStringLiteral("Every tensor whole"));
    }

    void namesByHand() {
        auto session = openSession(sampleCheckpoint());
        auto store = jobs();
        ConvertWizard wizard(*session, *store);
        showReady(wizard, names);
        auto* table = named<QTreeView>(wizard, "nameTable");
        const QAbstractItemModelTester tester(table->model(),
                                              QAbstractItemModelTester::FailureReportingMode::QtTest);
        QCOMPARE(size_t(table->model()->rowCount()), session->catalog().tensorCount());
        QTest::mouseClick(named<QCheckBox>(wizard, "onlyChanged"), Qt::LeftButton, {}, {8, 8});
        QCOMPARE(table->model()->rowCount(), 0);
        showTabOf(wizard, named<QTableWidget>(wizard, "castRules"));
        addRule(named<QTableWidget>(wizard, "castRules"),
                {QStringLiteral("*.weight"), QStringLiteral("bf16")});
        QCOMPARE(wizard.spec().cast, (QStringList{"*.weight=bf16"}));
        QTRY_VERIFY_WITH_TIMEOUT(table->model()->rowCount() > 0, kPatience);
        showTabOf(wizard, named<QTableWidget>(wizard, "renameRules"));
        addRule(named<QTableWidget>(wizard, "renameRules"), {QStringLiteral("weight$"), QStringLiteral("w")});
        QTRY_VERIFY_WITH_TIMEOUT(
            table->model()->index(0, NameChangeModel::after).data().toString().endsWith(QStringLiteral(".w")),
            kPatience);
        QCOMPARE(table->model()->index(0, NameChangeModel::dtypeAfter).data().toString(),
                 QStringLiteral("bfloat16"));
        // Two tensors that would get one name cannot be.
        addRule(named<QTableWidget>(wizard, "renameRules"), {QStringLiteral("^.*$"), QStringLiteral("same")});
        QTRY_VERIFY_WITH_TIMEOUT(status(wizard).startsWith(QStringLiteral("✕")), kPatience);
        QVERIFY(!named<QPushButton>(wizard, "start")->isEnabled());
    }

    void lateAnswersAreDropped() {
        auto engine = std::make_shared<ScriptedEngine>();
        std::atomic<int> calls{0}, waiting{0};
        std::atomic<bool> release{false};
        engine->before = [&](const std::string& call, const TaskContext&) -> Status {
            if (call != "preview") return {};
            if (calls.fetch_add(1) == 0) {
                ++waiting;
                // Deaf to being stopped, as a read from a slow disk is.
                while (!release)
                    QThread::msleep(5);
            }
            return {};
        };
        auto session = openSession(sampleCheckpoint(), engine);
        WizardState state(*session);
        ConversionSpec spec;
        spec.destination = fresh() + "/out";
        spec.exclude = {QStringLiteral("*.bias")};
        state.setSpec(spec);
        QTRY_COMPARE_WITH_TIMEOUT(waiting.load(), 1, kPatience);
        QVERIFY(state.working());
        QVERIFY(state.obstacle().any());
        state.edit([](ConversionSpec& s) { s.exclude.clear(); });
        QTRY_VERIFY_WITH_TIMEOUT(!state.working() && state.outlook(), kPatience);
        const auto shown = state.outlook();
        QVERIFY(shown->plan && shown->plan->excluded.empty());
        release = true;
        Tasks::waitForAll();
        QCoreApplication::processEvents();
        QCOMPARE(state.outlook(), shown);

        // A wizard that is closed while its plan is being worked out.
        calls = 0;
        release = false;
        {
            auto store = jobs();
            ConvertWizard wizard(*session, *store);
            wizard.show();
            QTRY_COMPARE_WITH_TIMEOUT(waiting.load(), 2, kPatience);
        }
        release = true;
        Tasks::waitForAll();
        QCoreApplication::processEvents();
    }

    void engineFailureIsShown() {
        auto engine = std::make_shared<ScriptedEngine>();
        engine->before = [](const std::string& call, const TaskContext&) -> Status {
            if (call != "preview") return {};
            return makeError(ErrorCode::io, "the disk does not answer").withHint("look at its cable");
        };
        auto session = openSession(sampleCheckpoint(), engine);
        auto store = jobs();
        ConvertWizard wizard(*session, *store);
        wizard.show();
        QTRY_VERIFY_WITH_TIMEOUT(status(wizard).contains(QStringLiteral("does not answer")), kPatience);
        QVERIFY(status(wizard).contains(QStringLiteral("cable")));
        for (int page = source; page <= plan; ++page)
            wizard.showPage(page);
        QVERIFY(!named<QPushButton>(wizard, "start")->isEnabled());
    }

    void sentencesAboutRules() {
        CatalogBuilder builder("dcp", "", "test");
        const auto add = [&](const std::string& name, Dims shape) {
            TensorInfo info;
            info.name = name;
            info.shape = std::move(shape);
            QVERIFY(builder.addTensor(info).ok());
            QVERIFY(builder.addWhole(0, kNone, 0, 0).ok());
        };
        for (int i = 0; i < 12; ++i)
            add("small." + std::to_string(i), {5, 4});
        add("odd.weight", {1003, 4});
        add("scale", {});
        builder.setRankCount(1);
        const Catalog catalog = std::move(builder).finish();
        TargetRequest request;
        request.mesh = *parseMesh("tp=8");
        request.shard = {*parseShardRule("small.*:tp=0"), *parseShardRule("odd.*:tp=0"),
                         *parseShardRule("scale:tp=0"), *parseShardRule("none:tp=0")};
        const auto note = [](const RuleEffect& rule) { return QString::fromStdString(rule.notes[0]); };
        const auto effect = placementEffect(catalog, catalog, request, {});
        QVERIFY(effect.ok());
        QCOMPARE(effect->shards[0].tensors, uint64_t{12});
        QVERIFY2(note(effect->shards[0])
                     .contains(QStringLiteral("(5 rows) is smaller than tp=8: some ranks get nothing")),
                 qPrintable(note(effect->shards[0])));
        QVERIFY2(
            note(effect->shards[1])
                .contains(QStringLiteral("1,003 does not divide by tp=8: shards of 126, the last one 121.")),
            qPrintable(note(effect->shards[1])));
        QVERIFY(note(effect->shards[2]).contains(QStringLiteral("No dim 0 in 1 tensor")));
        QVERIFY(note(effect->shards[3]).contains(QStringLiteral("No tensor")));
        QCOMPARE(effect->whole, uint64_t{0});
        request.split = SplitRule::even;
        const auto even = placementEffect(catalog, catalog, request, {});
        QVERIFY2(note(even->shards[1]).contains(QStringLiteral("3 shards of 126, the others of 125.")),
                 qPrintable(note(even->shards[1])));
        request.stage = {*parseStageRule("odd.*:tp=1")};
        const auto staged = placementEffect(catalog, catalog, request, {});
        QCOMPARE(staged->stages[0].tensors, uint64_t{1});
        QVERIFY(note(staged->shards[1])
                    .contains(QStringLiteral("A stage rule puts 1 tensor on one place of tp")));
        StopSource stop;
        stop.requestStop();
        QVERIFY(!placementEffect(catalog, catalog, request, stop).ok());
        request.shard[0].pattern = "re:(";
        QCOMPARE(placementEffect(catalog, catalog, request, {}).error().code, ErrorCode::usage);
    }

    void planModel() {
        PlanModel model;
        const QAbstractItemModelTester tester(&model, QAbstractItemModelTester::FailureReportingMode::QtTest);
        QCOMPARE(model.rowCount(), 0);
        auto plan = std::make_shared<Plan>();
        plan->files = {{"a", 10}, {"b", 20}};
        plan->impossible = {{"", "no"}};
        plan->renamed = {{"x\n", "y"}};
        model.setPlan(plan);
        QCOMPARE(model.rowCount(), 3);
        const QModelIndex files = model.groupIndex(PlanModel::Group::files);
        QCOMPARE(model.rowCount(files), 2);
        QCOMPARE(model.index(1, 1, files).data().toString(), QStringLiteral("20 B"));
        QVERIFY(!model.groupIndex(PlanModel::Group::leftOut).isValid());
        const QModelIndex renamed = model.index(0, 0, model.groupIndex(PlanModel::Group::renamed));
        QCOMPARE(renamed.data().toString(), QStringLiteral("x\\n"));
        QCOMPARE(renamed.data(PlanModel::NameRole).toString(), QStringLiteral("x\n"));
        model.setPlan(nullptr);
        QCOMPARE(model.rowCount(), 0);
    }

    void largePlans() {
        auto session = openSynthetic(syntheticGrid(2000, 64));
        auto store = jobs();
        ConvertWizard wizard(*session, *store);
        wizard.show();
        wizard.showPage(placement);
        ConversionSpec spec;
        spec.destination = fresh() + "/out";
        spec.mesh = QStringLiteral("dp=32,tp=16");
        spec.shard = {QStringLiteral("*:dp=0,tp=1")};
        wizard.setSpec(spec);
        // The GUI thread continues while the plan is worked out on another.
        QElapsedTimer clock;
        double longest = 0;
        for (clock.start(); clock.elapsed() < 120'000 && status(wizard).startsWith(QStringLiteral("…"));) {
            const double start = threadMilliseconds();
            QCoreApplication::processEvents(QEventLoop::AllEvents, 10);
            longest = std::max(longest, threadMilliseconds() - start);
        }
        QVERIFY2(status(wizard).startsWith(QStringLiteral("✓")), qPrintable(status(wizard)));
        const int pieces = 32 * 16 + 1;  // and the metadata
        QVERIFY2(status(wizard).contains(QStringLiteral("2,000 tensors")) &&
                     status(wizard).contains(QStringLiteral("%1 files").arg(pieces)),
                 qPrintable(status(wizard)));
        qInfo(
            "128,000 chunks cut into 1,024,000, planned in %lld ms; at most %.0f ms of the GUI thread at a "
            "time",
            clock.elapsed(), longest);
        QVERIFY2(longest < 1000, qPrintable(QString::number(longest)));
        shoot(wizard, QStringLiteral("wizard-large"));
    }
};

SHARDSCOPE_GUI_TEST_MAIN(WizardPlanTest)
#include "wizard_plan_test.moc"
