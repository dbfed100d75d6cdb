#include <QAbstractItemModelTester>
#include <QApplication>
#include <QCheckBox>
#include <QClipboard>
#include <QComboBox>
#include <QDir>
#include <QFileDialog>
#include <QLabel>
#include <QLineEdit>
#include <QListWidget>
#include <QPushButton>
#include <QRadioButton>
#include <QRegularExpression>
#include <QSignalSpy>
#include <QSpinBox>
#include <QTabBar>
#include <QTabWidget>
#include <QTableWidget>
#include <QTreeView>
#include <QTreeWidget>
#include <atomic>

#include "plan/request_text.h"
#include "support/gui_test.h"
#include "ui/models/job_store.h"
#include "ui/models/model_config.h"
#include "ui/models/place_report.h"
#include "ui/models/plan_model.h"
#include "ui/models/suppressions.h"
#include "ui/pages/convert_wizard.h"
#include "ui/pages/wizard_parts.h"
#include "ui/pages/wizard_state.h"
#include "ui/widgets/banner.h"

using namespace shardscope;
using namespace shardscope::ui;

namespace {

constexpr int kPatience = 30'000;  // milliseconds
enum Pages { source, target, placement, names, workers, run, plan };

template <class T>
T* named(QWidget& widget, const char* name) {
    T* found = widget.findChild<T*>(QString::fromLatin1(name));
    if (!found) qFatal("there is no '%s'", name);
    return found;
}

QPushButton* buttonWith(QWidget& widget, const QString& text) {
    for (QPushButton* button : widget.findChildren<QPushButton*>()) {
        if (button->text() == text) return button;
    }
    qFatal("there is no button '%s'", qPrintable(text));
    return nullptr;
}

QString status(ConvertWizard& wizard) {
    return named<QLabel>(wizard, "wizardStatus")->text();
}

void waitUntilReady(ConvertWizard& wizard) {
    QTRY_VERIFY2_WITH_TIMEOUT(status(wizard).startsWith(QStringLiteral("✓")), qPrintable(status(wizard)),
                              kPatience);
}
void waitForPlan(ConvertWizard& wizard) {
    QTRY_VERIFY_WITH_TIMEOUT(!status(wizard).startsWith(QStringLiteral("…")), kPatience);
}

void type(QLineEdit* edit, const QString& text) {
    edit->setFocus();
    edit->selectAll();
    QTest::keyClicks(edit, text);
}

// Clicks on the tab that holds `inner`.
void showTabOf(ConvertWizard& wizard, QWidget* inner) {
    for (QTabWidget* tabs : wizard.findChildren<QTabWidget*>()) {
        for (int i = 0; i < tabs->count(); ++i) {
            if (tabs->widget(i)->isAncestorOf(inner))
                QTest::mouseClick(tabs->tabBar(), Qt::LeftButton, {}, tabs->tabBar()->tabRect(i).center());
        }
    }
    QTRY_VERIFY(inner->isVisible());
}

// Adds a rule the way a user does: Add, then the cells.
void addRule(QTableWidget* table, const QStringList& cells) {
    table->setFocus();
    QTest::keyClick(table, Qt::Key_Insert);
    const int row = table->rowCount() - 1;
    for (int c = 0; c < cells.size(); ++c) {
        table->setCurrentCell(row, c);
        if (!table->isPersistentEditorOpen(table->item(row, c)) &&
            table->indexWidget(table->currentIndex()) == nullptr)
            table->editItem(table->item(row, c));
        auto* editor = table->viewport()->findChild<QLineEdit*>();
        QVERIFY(editor);
        QTest::keyClicks(editor, cells[c]);
        QTest::keyClick(editor, Qt::Key_Return);
        QTRY_COMPARE(table->item(row, c)->text(), cells[c]);
    }
}

}  // namespace

class WizardTest : public QObject {
    Q_OBJECT

    QTemporaryDir directory_;
    int count_ = 0;

    QString fresh() {
        const QString path = directory_.filePath(QString::number(++count_));
        QDir().mkpath(path);
        return path;
    }
    // Shown at this page, with nothing chosen but where the result goes, and ready to start.
    void showReady(ConvertWizard& wizard, int page) {
        ConversionSpec spec;
        spec.destination = fresh() + "/out";
        wizard.setSpec(spec);
        wizard.show();
        wizard.showPage(page);
        waitUntilReady(wizard);
    }
    std::unique_ptr<JobStore> jobs() {
        auto store = std::make_unique<JobStore>(nullptr, fresh());
        store->setProgram(QStringLiteral(SHARDSCOPE_PROGRAM));
        return store;
    }

  private slots:
    void pagesLightAndDark() {
        auto session = openSession(sampleCheckpoint());
        auto store = jobs();
        ConvertWizard wizard(*session, *store);
        ConversionSpec spec;
        spec.destination = fresh() + "/sample-tp2";
        spec.mesh = QStringLiteral("dp=2,tp=3");
        spec.shard = {QStringLiteral("*.weight:tp=0"), QStringLiteral("*.bias:dp=1"),
                      QStringLiteral("nothing.*:tp=0")};
        spec.exclude = {QStringLiteral("*.exp_avg_sq")};
        spec.rename = {QStringLiteral("^model\\.=net.")};
        spec.cast = {QStringLiteral("*.weight=bf16")};
        wizard.setSpec(spec);
        wizard.show();
        waitUntilReady(wizard);
        for (int page = source; page <= plan; ++page) {
            wizard.showPage(page);
            QCoreApplication::processEvents();
            shoot(wizard, QStringLiteral("wizard-%1").arg(page + 1));
            applyTheme(ThemeChoice::dark);
            QCoreApplication::processEvents();
            shoot(wizard, QStringLiteral("wizard-%1-dark").arg(page + 1));
            applyTheme(ThemeChoice::light);
        }
        QVERIFY(wizard.spec() == [&] {
            ConversionSpec same = spec;
            same.source = session->path();
            return same;
        }());
        for (QWidget* widget : wizard.findChildren<QWidget*>()) {
            if (qobject_cast<QAbstractButton*>(widget) || qobject_cast<QComboBox*>(widget) ||
                qobject_cast<QTreeView*>(widget))
                QVERIFY2(!widget->accessibleName().isEmpty() ||
                             !widget->property("text").toString().isEmpty() ||
                             qobject_cast<QToolButton*>(widget) || !widget->isVisible() ||
                             widget->inherits("QTableCornerButton"),
                         widget->metaObject()->className());
        }
    }

    void averageIsPlannedAndShown() {
        auto session = openSession(sampleCheckpoint());
        auto store = jobs();
        ConvertWizard wizard(*session, *store);
        wizard.show();
        waitUntilReady(wizard);
        wizard.showPage(names);
        auto* inputs = named<QTableWidget>(wizard, "averageInputs");
        showTabOf(wizard, inputs);
        addRule(inputs, {sampleCheckpoint()});
        auto* weights = named<QComboBox>(wizard, "averageWeights");
        type(weights->lineEdit(), QStringLiteral("1,3"));
        QTRY_COMPARE(wizard.spec().weights, QStringLiteral("1,3"));
        waitUntilReady(wizard);
        shoot(wizard, QStringLiteral("wizard-average"));
        wizard.showPage(plan);
        auto* model = qobject_cast<PlanModel*>(named<QTreeView>(wizard, "planTree")->model());
        QTRY_VERIFY(model->groupIndex(PlanModel::Group::averaged).isValid());
        const QModelIndex group = model->groupIndex(PlanModel::Group::averaged);
        QCOMPARE(model->rowCount(group), 2);
        QCOMPARE(model->index(0, 1, group).data().toString(), QStringLiteral("0.25"));
        QVERIFY(model->groupIndex(PlanModel::Group::excluded).isValid());  // optimizer state
        QVERIFY2(wizard.spec().commandLine().startsWith("shardscope average "),
                 qPrintable(wizard.spec().commandLine()));
        shoot(wizard, QStringLiteral("wizard-average-plan"));
        type(weights->lineEdit(), QStringLiteral("1,2,3"));
        QTRY_VERIFY2_WITH_TIMEOUT(status(wizard).contains("3 weights for 2 checkpoints"),
                                  qPrintable(status(wizard)), kPatience);
    }

    void mastersAreChosen() {
        auto session = openSession(genuineCheckpoint(QStringLiteral("deepspeed/z3_bf16_w2")));
        auto store = jobs();
        ConvertWizard wizard(*session, *store);
        wizard.show();
        waitUntilReady(wizard);
        wizard.showPage(names);
        auto* masters = named<QComboBox>(wizard, "masterWeights");
        showTabOf(wizard, masters);
        masters->setFocus();
        QTest::keyClick(masters, Qt::Key_Down);
        QTRY_COMPARE(static_cast<int>(wizard.spec().masterWeights), static_cast<int>(MasterWeights::use));
        QVERIFY2(wizard.spec().commandLine().contains("--master-weights use"),
                 qPrintable(wizard.spec().commandLine()));
        waitUntilReady(wizard);
        wizard.showPage(plan);
        auto* model = qobject_cast<PlanModel*>(named<QTreeView>(wizard, "planTree")->model());
        QTRY_VERIFY(model->groupIndex(PlanModel::Group::fromMasters).isValid());
        QCOMPARE(model->rowCount(model->groupIndex(PlanModel::Group::fromMasters)), 4);
    }

    // From the source to a verified result, by the buttons alone.
    void wholeConversion() {
        auto session = openSession(sampleCheckpoint());
        auto store = jobs();
        ConvertWizard wizard(*session, *store);
        wizard.show();
        wizard.activateWindow();
        QVERIFY(QTest::qWaitForWindowActive(&wizard));
        QVERIFY(wizard.spec().destination.startsWith(QFileInfo(sampleCheckpoint()).absolutePath()));
        QPushButton* next = named<QPushButton>(wizard, "next");
        QPushButton* start = named<QPushButton>(wizard, "start");
        QCOMPARE(wizard.currentPage(), int(source));
        QTest::mouseClick(next, Qt::LeftButton);
        QCOMPARE(wizard.currentPage(), int(target));
        auto* format = named<QComboBox>(wizard, "format");
        format->setFocus();
        QTest::keyClicks(format, QStringLiteral("safe"));
        QTRY_COMPARE(wizard.spec().format, QStringLiteral("safetensors"));
        QVERIFY(wizard.spec().destination.endsWith(QStringLiteral("-safetensors")));
        const QString destination = fresh() + "/out";
        type(named<QLineEdit>(wizard, "destination"), destination);
        QCOMPARE(wizard.spec().destination, destination);
        // Changing the format does not move a destination that the user has written.
        QTest::keyClick(&wizard, Qt::Key_N, Qt::AltModifier);
        QTRY_COMPARE(wizard.currentPage(), int(placement));
        QTest::keyClick(&wizard, Qt::Key_B, Qt::AltModifier);
        QTRY_COMPARE(wizard.currentPage(), int(target));
        while (wizard.currentPage() < plan)
            QTest::keyClick(&wizard, Qt::Key_Return);
        QTRY_VERIFY_WITH_TIMEOUT(start->isEnabled(), kPatience);
        QVERIFY(start->isVisible() && !next->isVisible());
        QVERIFY(named<QLabel>(wizard, "planVerdict")->text().startsWith(QStringLiteral("✓")));
        QVERIFY(named<QLabel>(wizard, "planSummary")->text().contains(destination));
        QTest::mouseClick(buttonWith(wizard, QStringLiteral("Copy as command")), Qt::LeftButton);
        QCOMPARE(QApplication::clipboard()->text(), wizard.spec().commandLine());
        QTest::mouseClick(buttonWith(wizard, QStringLiteral("Copy command for parts")), Qt::LeftButton);
        QCOMPARE(QApplication::clipboard()->text(),
                 wizard.spec().commandLine() + QStringLiteral(" --part auto --finish auto"));

        QSignalSpy started(&wizard, &ConvertWizard::started);
        QTest::keyClick(&wizard, Qt::Key_Return);
        QTRY_COMPARE(started.size(), 1);
        QVERIFY(!wizard.isVisible());
        const QString id = started[0][0].toString();
        QTRY_VERIFY_WITH_TIMEOUT(store->find(id) && store->find(id)->state == JobState::done, kPatience);
        QVERIFY(store->find(id)->report->verified);

        auto result = openSession(destination);
        QCOMPARE(result->state(), Session::State::open);
        result->validate(ValidateLevel::values);
        QTRY_VERIFY_WITH_TIMEOUT(result->report(), kPatience);
        QCOMPARE(result->report()->verdict, Verdict::safe);
    }

    // What PaddleNLP's files do not say is stated in the wizard, and goes into the command and the recipe.
    void paddleSource() {
        auto session = openSession(genuineCheckpoint(QStringLiteral("paddle_hybrid/mp2_pp2")));
        QCOMPARE(session->state(), Session::State::open);
        auto store = jobs();
        ConvertWizard wizard(*session, *store);
        wizard.show();
        auto* tpDim = named<QLineEdit>(wizard, "--tp-dim");
        auto* masters = named<QComboBox>(wizard, "--master-weights");
        auto* apply = named<QPushButton>(wizard, "readSourceSo");
        QVERIFY(tpDim->isVisible() && !apply->isEnabled());
        type(tpDim, QStringLiteral("*.norm.weight=none \"other name=1\""));
        masters->setFocus();
        QTest::keyClick(masters, Qt::Key_End);
        QVERIFY(apply->isEnabled());
        QTest::mouseClick(apply, Qt::LeftButton);
        QTRY_VERIFY_WITH_TIMEOUT(session->state() == Session::State::open && session->hasFacts(), kPatience);
        QCOMPARE(session->options().valuesOf(QStringLiteral("--tp-dim")),
                 (QStringList{QStringLiteral("*.norm.weight=none"), QStringLiteral("other name=1")}));
        QCOMPARE(session->options().valuesOf(QStringLiteral("--master-weights")).value(0),
                 QStringLiteral("ignore"));
        QVERIFY(wizard.spec().commandLine().contains(
            QStringLiteral("--tp-dim '*.norm.weight=none' --tp-dim 'other name=1' --master-weights ignore")));
        waitForPlan(wizard);
        QCoreApplication::processEvents();
        shoot(wizard, QStringLiteral("wizard-paddle"));
        const QString recipe = fresh() + "/recipe.json";
        QVERIFY(wizard.spec().saveRecipe(recipe).ok());

        // The recipe, in a window that has opened the same source plainly.
        auto plain = openSession(session->path());
        ConvertWizard second(*plain, *store);
        auto loaded = ConversionSpec::loadRecipe(recipe);
        QVERIFY(loaded.ok());
        second.setSpec(*loaded);
        QTRY_COMPARE_WITH_TIMEOUT(plain->options().valuesOf(QStringLiteral("--master-weights")).value(0),
                                  QStringLiteral("ignore"), kPatience);
        QTRY_VERIFY_WITH_TIMEOUT(plain->state() == Session::State::open, kPatience);
        QCOMPARE(second.spec().options.valuesOf(QStringLiteral("--tp-dim")),
                 session->options().valuesOf(QStringLiteral("--tp-dim")));

        // What cannot be leaves the source as it was.
        type(tpDim, QStringLiteral("*.norm.weight=7"));
        QTest::mouseClick(apply, Qt::LeftButton);
        QTRY_VERIFY_WITH_TIMEOUT(session->state() == Session::State::open && session->checkpoint(),
                                 kPatience);
        QCOMPARE(session->options().valuesOf(QStringLiteral("--master-weights")).value(0),
                 QStringLiteral("ignore"));
        bool said = false;
        for (const QLabel* label : wizard.findChildren<QLabel*>())
            said = said || label->text().contains(QStringLiteral("dimension 7"));
        QVERIFY(said);
    }

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
        auto* fill = named<QComboBox>(wizard, "fillGaps");
        QVERIFY(fill->isVisible());
        fill->setFocus();
        QTest::keyClick(fill, Qt::Key_Down);
        QCOMPARE(wizard.spec().fillGaps, FillGaps::nan);
        QTRY_VERIFY_WITH_TIMEOUT(start->isEnabled(), kPatience);
    }

    void recipesThroughTheDialogs() {
        auto session = openSession(sampleCheckpoint());
        auto store = jobs();
        ConvertWizard wizard(*session, *store);
        ConversionSpec spec;
        spec.destination = fresh() + "/out";
        spec.rename = {QStringLiteral("^model\\.=")};
        spec.mesh = QStringLiteral("tp=4");
        spec.shard = {QStringLiteral("*:tp=0")};
        wizard.setSpec(spec);
        wizard.show();
        const QString file = fresh() + "/saved.json";
        const auto answer = [&](const char* button) {
            QTest::mouseClick(named<QPushButton>(wizard, button), Qt::LeftButton);
            auto* dialog = wizard.findChild<QFileDialog*>();
            QVERIFY(dialog);
            auto* name = dialog->findChild<QLineEdit*>(QStringLiteral("fileNameEdit"));
            QVERIFY(name);
            name->setText(file);
            QTest::keyClick(name, Qt::Key_Return);
            QTRY_VERIFY(!wizard.findChild<QFileDialog*>());
        };
        answer("saveRecipe");
        QVERIFY(QFile::exists(file));
        const ConversionSpec before = wizard.spec();
        wizard.setSpec({});
        QVERIFY(wizard.spec().mesh.isEmpty());
        answer("loadRecipe");
        QVERIFY(wizard.spec() == before);
        waitUntilReady(wizard);

        QFile broken(file);
        QVERIFY(broken.open(QIODevice::WriteOnly));
        broken.write("{\"selekt\":[]}");
        broken.close();
        answer("loadRecipe");
        QVERIFY(wizard.findChild<Banner*>()->text().contains(QStringLiteral("selekt")));
        QVERIFY(wizard.spec() == before);
    }

    void validatesOnTheWay() {
        auto session = openSession(sampleCheckpoint());
        auto store = jobs();
        ConvertWizard wizard(*session, *store);
        wizard.show();
        auto* validation = named<QLabel>(wizard, "sourceValidation");
        QVERIFY(validation->text().contains(QStringLiteral("Not validated")));
        QTest::mouseClick(buttonWith(wizard, QStringLiteral("Validate now")), Qt::LeftButton);
        QTRY_VERIFY_WITH_TIMEOUT(validation->text().startsWith(QStringLiteral("✓")), kPatience);
        shoot(wizard, QStringLiteral("wizard-validated"));
        // The bytes by rank, as a table.
        wizard.showPage(placement);
        waitUntilReady(wizard);
        for (QCheckBox* box : wizard.findChildren<QCheckBox*>()) {
            if (box->isVisible() && box->text() == QStringLiteral("Show as table"))
                QTest::mouseClick(box, Qt::LeftButton, {}, {8, box->height() / 2});
        }
        QCoreApplication::processEvents();
        shoot(wizard, QStringLiteral("wizard-rank-table"));
        bool shown = false;
        for (QTreeWidget* table : wizard.findChildren<QTreeWidget*>())
            shown = shown || (table->isVisible() && table->topLevelItemCount() == 4);
        QVERIFY(shown);
    }

    void whoWorks() {
        auto session = openSession(sampleCheckpoint());
        auto store = jobs();
        ConvertWizard wizard(*session, *store);
        wizard.show();
        ConversionSpec spec;
        spec.destination = fresh() + "/out";
        wizard.setSpec(spec);
        wizard.showPage(workers);
        auto* where = named<QComboBox>(wizard, "where");
        where->setFocus();
        QTest::keyClick(where, Qt::Key_Down);
        emit where->activated(where->currentIndex());
        QCOMPARE(wizard.spec().where, QStringLiteral("local:2"));
        auto* processes = named<QSpinBox>(wizard, "processes");
        QVERIFY(processes->isVisible());
        processes->setValue(4);
        QCOMPARE(wizard.spec().where, QStringLiteral("local:4"));
        QVERIFY(wizard.spec().commandLine().contains(QStringLiteral("--on local:4")));
        where->setCurrentIndex(where->findText(QStringLiteral("Other hosts, through your ssh")));
        emit where->activated(where->currentIndex());
        auto* hosts = named<QLineEdit>(wizard, "hosts");
        QVERIFY(hosts->isVisible());
        QVERIFY(!processes->isVisible());
        // No host yet: nothing starts with other workers than were asked for.
        QTRY_VERIFY_WITH_TIMEOUT(status(wizard).contains(QStringLiteral("place to work")), kPatience);
        hosts->setFocus();
        QTest::keyClicks(hosts, "node7, node8");
        QCOMPARE(wizard.spec().where, QStringLiteral("ssh:node7,node8"));
        QCOMPARE(hosts->text(), QStringLiteral("node7, node8"));
        shoot(wizard, QStringLiteral("wizard-hosts"));
        waitUntilReady(wizard);
        QTest::keyClicks(hosts, ", -oProxyCommand=x");
        QTRY_VERIFY_WITH_TIMEOUT(status(wizard).contains(QStringLiteral("host")), kPatience);
    }

    // Ranks: the words are those of `jobs run`, and the job is the program that does them.
    void ranksInStep() {
        auto session = openSession(sampleCheckpoint());
        auto store = jobs();
        ConvertWizard wizard(*session, *store);
        wizard.show();
        ConversionSpec spec;
        spec.destination = fresh() + "/out";
        spec.format = QStringLiteral("safetensors");
        wizard.setSpec(spec);
        wizard.showPage(workers);
        auto* where = named<QComboBox>(wizard, "where");
        where->setCurrentIndex(where->findText(QStringLiteral("Distributed ranks (Gloo) on this machine")));
        emit where->activated(where->currentIndex());
        auto* ranks = named<QSpinBox>(wizard, "processes");
        auto* mode = named<QComboBox>(wizard, "rankMode");
        QVERIFY(ranks->isVisible() && mode->isVisible());
        QCOMPARE(ranks->accessibleName(), QStringLiteral("Ranks"));
        ranks->setValue(4);
        QCOMPARE(wizard.spec().where, QStringLiteral("ranks:4"));
        mode->setFocus();
        QTest::keyClick(mode, Qt::Key_Down);
        QTest::keyClick(mode, Qt::Key_Down);
        emit mode->activated(mode->currentIndex());
        QCOMPARE(wizard.spec().where, QStringLiteral("ranks:4,broadcast"));
        QVERIFY(wizard.spec().commandLine().startsWith(
            QStringLiteral("shardscope jobs run --on ranks:4,broadcast convert ")));
        QCOMPARE(wizard.spec().arguments().front(), QStringLiteral("convert"));
        QCOMPARE(wizard.spec().arguments().mid(wizard.spec().arguments().indexOf(QStringLiteral("--on")), 2),
                 (QStringList{"--on", "ranks:4,broadcast"}));
        waitUntilReady(wizard);

        // The check says whether libtorch is there.
        const QTemporaryDir programs;
        const auto put = [&](const char* name, const QByteArray& text) {
            QFile file(programs.filePath(QString::fromLatin1(name)));
            QVERIFY(file.open(QIODevice::WriteOnly) && file.write(text) == text.size());
            file.close();
            file.setPermissions(QFile::ReadOwner | QFile::WriteOwner | QFile::ExeOwner);
        };
        put("shardscope", "#!/bin/sh\necho \"$@\" >'" + programs.filePath("said").toUtf8() + "'\nexit 1\n");
        store->setProgram(programs.filePath("shardscope"));
        auto* places = named<QTreeWidget>(wizard, "places");
        const auto found = [&] {
            QString text;
            for (QTreeWidgetItemIterator it(places); *it; ++it)
                text += (*it)->text(0) + ' ' + (*it)->text(1) + '\n';
            return text;
        };
        QPushButton* start = named<QPushButton>(wizard, "start");
        QVERIFY(!start->isVisible());
        qputenv("SHARDSCOPE_TORCH_LIBRARY", programs.path().toUtf8());
        QTest::mouseClick(named<QPushButton>(wizard, "checkPlaces"), Qt::LeftButton);
        QTRY_VERIFY2_WITH_TIMEOUT(found().contains("libtorch"), qPrintable(found()), kPatience);
        QVERIFY2(found().contains("was found") || found().contains("packaging/libtorch"),
                 qPrintable(found()));
        shoot(wizard, QStringLiteral("wizard-ranks-no-libtorch"));
        // A failed check is in the way of the start.
        QVERIFY(status(wizard).startsWith(QStringLiteral("✕")));
        QVERIFY2(status(wizard).contains(QStringLiteral("libtorch")), qPrintable(status(wizard)));
        wizard.showPage(plan);
        QVERIFY(!start->isEnabled());
        QVERIFY(store->jobs().empty());
        wizard.showPage(workers);

        // With it: the job has these words. Where this was built without it, ranks that read for themselves
        // do.
        const QString library = QFileInfo(QStringLiteral(SHARDSCOPE_PROGRAM)).path() + "/torch";
        const bool torch = QFileInfo::exists(library);
        qputenv("SHARDSCOPE_TORCH_LIBRARY", library.toUtf8());
        if (!torch) {
            ConversionSpec others = wizard.spec();
            others.where = QStringLiteral("ranks:4");
            wizard.setSpec(others);
            wizard.showPage(workers);
        }
        where->setCurrentIndex(where->currentIndex());
        emit where->activated(where->currentIndex());
        QTest::mouseClick(named<QPushButton>(wizard, "checkPlaces"), Qt::LeftButton);
        QTRY_VERIFY2_WITH_TIMEOUT(found().contains("✓ this machine Ready."), qPrintable(found()), kPatience);
        QCOMPARE(found().contains("✓ libtorch, which hands on what is read, is in"), torch);
        shoot(wizard, QStringLiteral("wizard-ranks"));
        ConversionSpec gpus = wizard.spec();
        wizard.showPage(plan);
        QVERIFY(start->isEnabled());
        QTest::mouseClick(start, Qt::LeftButton);
        QTRY_VERIFY_WITH_TIMEOUT(store->jobs().size() == 1 && !store->jobs().front()->active(), kPatience);
        QCOMPARE(store->jobs().front()->program, programs.filePath("shardscope"));
        QFile said(programs.filePath("said"));
        QVERIFY(said.open(QIODevice::ReadOnly));
        const QByteArray words = said.readAll();
        QVERIFY(words.startsWith("convert "));
        QVERIFY(words.contains(torch ? " --on ranks:4,broadcast " : " --on ranks:4 "));

        qunsetenv("SHARDSCOPE_TORCH_LIBRARY");

        // One on each GPU.
        gpus.where = QStringLiteral("local-gpus,exchange");
        wizard.setSpec(gpus);
        wizard.showPage(workers);
        wizard.show();
        QVERIFY(!ranks->isVisible() && mode->isVisible());
        QCOMPARE(mode->currentData().toString(), QStringLiteral("exchange"));
        QCOMPARE(where->currentText(), QStringLiteral("Ranks, one on each GPU here"));
        QVERIFY(wizard.spec().commandLine().startsWith(
            QStringLiteral("shardscope jobs run --on local-gpus,exchange convert ")));
        QVERIFY(wizard.spec().arguments().contains(QStringLiteral("local-gpus,exchange")));
        gpus.where = QStringLiteral("ranks:0");
        wizard.setSpec(gpus);
        QTRY_VERIFY2_WITH_TIMEOUT(status(wizard).contains("ranks:4"), qPrintable(status(wizard)), kPatience);

        // What only ranks take goes with them.
        gpus.where = QStringLiteral("ranks:4");
        gpus.ownDisks = true;
        gpus.compute = QStringLiteral("cpu");
        wizard.setSpec(gpus);
        QVERIFY(wizard.spec().arguments().contains(QStringLiteral("--own-disks")));
        QVERIFY(!wizard.spec().partsCommandLine().contains(QStringLiteral("--own-disks")));
        wizard.showPage(workers);
        where->setCurrentIndex(where->findText(QStringLiteral("One process on this machine")));
        emit where->activated(where->currentIndex());
        QVERIFY(!wizard.spec().ownDisks && wizard.spec().compute == QStringLiteral("auto"));
        gpus.where = QStringLiteral("ranks");
        wizard.setSpec(gpus);
        QTRY_VERIFY2_WITH_TIMEOUT(status(wizard).contains("starts its ranks itself"),
                                  qPrintable(status(wizard)), kPatience);

        RankNeeds needs{std::string("/x/torch/lib"), true, 0};
        PlaceFacts facts;
        facts.version = "1";
        facts.destination = PlaceFacts::Parent{true, false, uint64_t{1} << 30};
        PlaceReport report = rankReport("this machine", needs, facts, {"/a", "/b", 0, false});
        QCOMPARE(report.worst(), PlaceLine::Kind::bad);
        QVERIFY(report.lines[1].text.contains("shows no GPU"));
        needs.gpusHere = 8;
        report = rankReport("this machine", needs, facts, {"/a", "/b", 0, false});
        QVERIFY(report.lines[1].text.contains("8 GPUs") && report.worst() != PlaceLine::Kind::bad);
    }

    void whatStandsInTheWay() {
        auto session = openSession(sampleCheckpoint());
        auto store = jobs();
        ConvertWizard wizard(*session, *store);
        wizard.show();
        QPushButton* start = named<QPushButton>(wizard, "start");
        ConversionSpec spec;
        spec.destination = fresh();  // exists
        wizard.setSpec(spec);
        waitForPlan(wizard);
        QVERIFY(!start->isEnabled());
        QVERIFY(status(wizard).contains(QStringLiteral("exists")));
        wizard.showPage(run);
        shoot(wizard, QStringLiteral("wizard-exists"));
        auto* overwrite = named<QCheckBox>(wizard, "overwrite");
        overwrite->setFocus();
        QTest::keyClick(overwrite, Qt::Key_Space);
        QVERIFY(wizard.spec().overwrite);
        waitUntilReady(wizard);
        wizard.showPage(target);
        type(named<QLineEdit>(wizard, "destination"), fresh() + "/no/such/place");
        QTRY_VERIFY_WITH_TIMEOUT(status(wizard).contains(QStringLiteral("does not exist")), kPatience);
        type(named<QLineEdit>(wizard, "destination"), sampleCheckpoint());
        QTRY_VERIFY_WITH_TIMEOUT(status(wizard).contains(QStringLiteral("source")), kPatience);
        named<QLineEdit>(wizard, "destination")->setFocus();
        named<QLineEdit>(wizard, "destination")->selectAll();
        QTest::keyClick(named<QLineEdit>(wizard, "destination"), Qt::Key_Delete);
        QVERIFY(!start->isEnabled());
        // Strict, with objects that safetensors cannot hold.
        spec.destination = fresh() + "/out";
        spec.format = QStringLiteral("safetensors");
        spec.strict = true;
        wizard.setSpec(spec);
        QTRY_VERIFY_WITH_TIMEOUT(status(wizard).contains(QStringLiteral("strict")), kPatience);
        QVERIFY(!start->isEnabled());
        // A program that is not there is said when it is needed.
        spec.strict = false;
        wizard.setSpec(spec);
        waitUntilReady(wizard);
        store->setProgram(QStringLiteral("/nowhere/shardscope"));
        wizard.showPage(plan);
        QTest::mouseClick(start, Qt::LeftButton);
        QVERIFY(wizard.isVisible());
        shoot(wizard, QStringLiteral("wizard-no-program"));
    }

    // Text that is no size keeps the job from starting; the value of before does not run in its place.
    void malformedSizes() {
        auto session = openSession(sampleCheckpoint());
        auto store = jobs();
        ConvertWizard wizard(*session, *store);
        showReady(wizard, source);
        QPushButton* start = named<QPushButton>(wizard, "start");
        for (const char* name : {"memory", "largestFile"}) {
            auto* field = named<QLineEdit>(wizard, name);
            wizard.showPage(name == QStringLiteral("memory") ? run : target);
            const QString before = field->text();
            const ConversionSpec spec = wizard.spec();
            type(field, QStringLiteral("5 bananas"));
            QVERIFY(!start->isEnabled());
            QVERIFY2(status(wizard).contains(QStringLiteral("“5 bananas”")), qPrintable(status(wizard)));
            // A change elsewhere does not hide it.
            named<QCheckBox>(wizard, "strict")->toggle();
            QCOMPARE(field->text(), QStringLiteral("5 bananas"));
            QVERIFY(status(wizard).contains(QStringLiteral("bananas")));
            named<QCheckBox>(wizard, "strict")->toggle();
            type(field, QStringLiteral("1GiB"));
            waitUntilReady(wizard);
            QVERIFY(start->isEnabled());
            type(field, QStringLiteral("x"));
            QVERIFY(!start->isEnabled());
            // A recipe brings values of its own.
            wizard.setSpec(spec);
            QCOMPARE(field->text(), before);
            waitUntilReady(wizard);
        }
    }

    // A finding that the user has accepted does not count: the wizard says what the other views say.
    void acceptedFindings() {
        auto session = openSession(genuineCheckpoint(QStringLiteral("dcp/t2.15.0-damaged-gap")));
        const QTemporaryDir directory;
        Suppressions suppressions(directory.filePath("suppressions.json"));
        session->setSuppressions(&suppressions);
        auto store = jobs();
        ConvertWizard wizard(*session, *store);
        session->validate(ValidateLevel::metadata);
        QTRY_VERIFY_WITH_TIMEOUT(session->report() && !session->validating(), kPatience);
        auto* validation = named<QLabel>(wizard, "sourceValidation");
        QVERIFY2(validation->text().startsWith(QStringLiteral("✕")), qPrintable(validation->text()));
        for (const Finding& finding : session->report()->findings)
            suppressions.add(session->path(), finding, QStringLiteral("known"));
        QCOMPARE(session->verdict(), Verdict::safe);
        QVERIFY2(validation->text().startsWith(QStringLiteral("✓")), qPrintable(validation->text()));
        QVERIFY(!validation->text().contains(QStringLiteral("•")));
    }

    // A proposed destination goes with the format, also after a spec without one was set; a written one
    // stays.
    void destinationFollowsTheFormat() {
        auto session = openSession(sampleCheckpoint());
        auto store = jobs();
        ConvertWizard wizard(*session, *store);
        wizard.setSpec({});
        wizard.show();
        wizard.showPage(target);
        auto* format = named<QComboBox>(wizard, "format");
        const auto choose = [&](const char* key) {
            format->setFocus();
            QTest::keyClicks(format, QString::fromLatin1(key));
        };
        QVERIFY(wizard.spec().destination.endsWith(QStringLiteral("-dcp")));
        choose("safe");
        QTRY_VERIFY(wizard.spec().destination.endsWith(QStringLiteral("-safetensors")));
        QTest::qWait(QApplication::keyboardInputInterval() + 50);  // or the next letters add to these
        choose("torch");
        QTRY_VERIFY(wizard.spec().destination.endsWith(QStringLiteral("-torch.pt")));
        const QString written = fresh() + "/mine";
        type(named<QLineEdit>(wizard, "destination"), written);
        QTest::qWait(QApplication::keyboardInputInterval() + 50);
        choose("safe");
        QTRY_COMPARE(wizard.spec().format, QStringLiteral("safetensors"));
        QCOMPARE(wizard.spec().destination, written);
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
        QTest::mouseClick(buttonWith(wizard, QStringLiteral("TP on weights' dim 0")), Qt::LeftButton);
        QCOMPARE(wizard.spec().mesh, QStringLiteral("tp=8"));
        QCOMPARE(wizard.spec().shard, (QStringList{"*.weight:tp=0"}));
        auto* rules = named<QTableWidget>(wizard, "shardRules");
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
        QVERIFY(!state.obstacle().isEmpty());
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
        const auto effect = placementEffect(catalog, catalog, request, {});
        QVERIFY(effect.ok());
        QCOMPARE(effect->shards[0].tensors, uint64_t{12});
        QVERIFY2(effect->shards[0].notes[0].contains(
                     QStringLiteral("(5 rows) is smaller than tp=8: some ranks get nothing")),
                 qPrintable(effect->shards[0].notes[0]));
        QVERIFY2(effect->shards[1].notes[0].contains(
                     QStringLiteral("1,003 does not divide by tp=8: shards of 126, the last one 121.")),
                 qPrintable(effect->shards[1].notes[0]));
        QVERIFY(effect->shards[2].notes[0].contains(QStringLiteral("No dim 0 in 1 tensor")));
        QVERIFY(effect->shards[3].notes[0].contains(QStringLiteral("No tensor")));
        QCOMPARE(effect->whole, uint64_t{0});
        request.split = SplitRule::even;
        const auto even = placementEffect(catalog, catalog, request, {});
        QVERIFY2(even->shards[1].notes[0].contains(QStringLiteral("3 shards of 126, the others of 125.")),
                 qPrintable(even->shards[1].notes[0]));
        request.stage = {*parseStageRule("odd.*:tp=1")};
        const auto staged = placementEffect(catalog, catalog, request, {});
        QCOMPARE(staged->stages[0].tensors, uint64_t{1});
        QVERIFY(staged->shards[1].notes[0].contains(
            QStringLiteral("A stage rule puts 1 tensor on one place of tp")));
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

SHARDSCOPE_GUI_TEST_MAIN(WizardTest)
#include "wizard_test.moc"
