// The wizard from its first page to a result.
#include <QApplication>
#include <QCheckBox>
#include <QComboBox>
#include <QFileDialog>
#include <QSignalSpy>
#include <QSpinBox>
#include <QTreeView>
#include <QTreeWidget>

#include "plan/request_text.h"
#include "support/wizard_fixture.h"
#include "ui/models/host_report.h"
#include "ui/models/plan_model.h"
#include "ui/models/suppressions.h"
#include "ui/pages/wizard_parts.h"
#include "ui/widgets/banner.h"
#include "ui/widgets/picture_view.h"

using namespace shardscope;
using namespace shardscope::ui;

class WizardTest : public QObject, protected WizardFixture {
    Q_OBJECT

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
        for (int page = intent; page <= plan; ++page) {
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

    void mnemonicsOfAllLabels() {
        auto session = openSession(sampleCheckpoint());
        auto store = jobs();
        ConvertWizard wizard(*session, *store);
        wizard.show();
        wizard.activateWindow();
        QVERIFY(QTest::qWaitForWindowActive(&wizard));
        waitUntilReady(wizard);
        int pressed = 0;
        for (int page = intent; page <= plan; ++page) {
            wizard.showPage(page);
            settle();
            for (const QLabel* label : wizard.findChildren<QLabel*>()) {
                const QKeySequence key = QKeySequence::mnemonic(label->text());
                if (!label->isVisible() || !label->buddy() || !label->buddy()->isEnabled() || key.isEmpty())
                    continue;
                QTest::keyClick(&wizard, static_cast<Qt::Key>(key[0].key()), Qt::AltModifier);
                const QWidget* now = wizard.focusWidget();
                QVERIFY2(now && (now == label->buddy() || label->buddy()->isAncestorOf(now)),
                         qPrintable(label->text()));
                ++pressed;
            }
        }
        QVERIFY2(pressed >= 10, qPrintable(QString::number(pressed)));
    }

    // A damaged source makes the plan fail. The Source page offers to skip what is damaged.
    void damagedSourceHasAWayOn() {
        auto session = openSession(genuineCheckpoint(QStringLiteral("dcp/t2.15.0-damaged-missing-file")));
        auto store = jobs();
        ConvertWizard wizard(*session, *store);
        wizard.show();
        QTRY_VERIFY2_WITH_TIMEOUT(status(wizard).startsWith(QStringLiteral("✕")), qPrintable(status(wizard)),
                                  kPatience);
        const auto* mend = named<QPushButton>(wizard, "mend");
        QVERIFY(mend->isVisible() && mend->text().contains("Plan"));
        QTest::mouseClick(const_cast<QPushButton*>(mend), Qt::LeftButton);
        QCOMPARE(wizard.currentPage(), int(plan));
        QVERIFY(!mend->isVisible());
        QVERIFY2(!status(wizard).contains("shardscope validate"), qPrintable(status(wizard)));
        QCOMPARE(wizard.findChild<PictureView*>()->accessibleDescription(),
                 QStringLiteral("The plan failed."));
        auto* skip = named<QCheckBox>(wizard, "planSkipDamaged");
        QVERIFY(skip->isVisible() && skip->text().contains("eave out the 3 tensors"));
        shoot(wizard, QStringLiteral("wizard-damaged"));
        skip->click();
        // Here that is all of them.
        QTRY_VERIFY2_WITH_TIMEOUT(status(wizard).contains("No tensor would be converted"),
                                  qPrintable(status(wizard)), kPatience);
        QVERIFY(named<QCheckBox>(wizard, "sourceSkipDamaged")->isChecked());
        QVERIFY(wizard.spec().skipDamaged);
        shoot(wizard, QStringLiteral("wizard-skip"));
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

    void quantizedWeightsAreComputed() {
        auto session = openSession(QStringLiteral(SHARDSCOPE_TEST_DATA "/quantized/mxfp4"));
        auto store = jobs();
        ConvertWizard wizard(*session, *store);
        wizard.show();
        waitUntilReady(wizard);
        wizard.showPage(names);
        auto* dtype = named<QComboBox>(wizard, "dequantize");
        showTabOf(wizard, dtype);
        dtype->setFocus();
        QTest::keyClick(dtype, Qt::Key_Down);
        QTRY_COMPARE(wizard.spec().dequantize, QStringLiteral("bf16"));
        QVERIFY2(wizard.spec().commandLine().contains("--dequantize bf16"),
                 qPrintable(wizard.spec().commandLine()));
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
        QCOMPARE(wizard.currentPage(), int(intent));
        QTest::mouseClick(next, Qt::LeftButton);
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
        QVERIFY(named<QLabel>(wizard, "planVerdict")->text().contains(QStringLiteral("This can run")));
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
        QTRY_VERIFY_WITH_TIMEOUT(store->find(id) && store->find(id)->record.state == JobState::done,
                                 kPatience);
        QVERIFY(store->find(id)->report->verified);

        auto result = openSession(destination);
        QCOMPARE(result->state(), Session::State::open);
        result->validation().start(ValidateLevel::values);
        QTRY_VERIFY_WITH_TIMEOUT(result->validation().report(), kPatience);
        QCOMPARE(result->validation().report()->verdict, Verdict::safe);
    }

    // What PaddleNLP's files do not say is stated in the wizard, and goes into the command and the recipe.
    void paddleSource() {
        auto session = openSession(genuineCheckpoint(QStringLiteral("paddle_hybrid/mp2_pp2")));
        QCOMPARE(session->state(), Session::State::open);
        auto store = jobs();
        ConvertWizard wizard(*session, *store);
        wizard.show();
        wizard.showPage(source);
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
        QCOMPARE(store->jobs().front()->record.program, programs.filePath("shardscope").toStdString());
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
        HostFacts facts;
        facts.version = "1";
        facts.destination = HostFacts::Parent{true, false, uint64_t{1} << 30};
        HostReport report = rankReport("this machine", needs, facts, {"/a", "/b", 0, false});
        QCOMPARE(report.worst(), HostLine::Kind::bad);
        QVERIFY(report.lines[1].text.contains("shows no GPU"));
        needs.gpusHere = 8;
        report = rankReport("this machine", needs, facts, {"/a", "/b", 0, false});
        QVERIFY(report.lines[1].text.contains("8 GPUs") && report.worst() != HostLine::Kind::bad);
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
        const QString file = fresh() + "/file";
        QVERIFY(QFile(file).open(QIODevice::WriteOnly));
        type(named<QLineEdit>(wizard, "destination"), file + "/place");
        QTRY_VERIFY_WITH_TIMEOUT(status(wizard).contains(QStringLiteral("not a directory")), kPatience);
        // Directories that are not there are made.
        type(named<QLineEdit>(wizard, "destination"), fresh() + "/no/such/place");
        waitUntilReady(wizard);
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
        session->validation().setSuppressions(&suppressions);
        auto store = jobs();
        ConvertWizard wizard(*session, *store);
        session->validation().start(ValidateLevel::metadata);
        QTRY_VERIFY_WITH_TIMEOUT(session->validation().report() && !session->validation().running(),
                                 kPatience);
        auto* validation = named<QLabel>(wizard, "sourceValidation");
        QVERIFY2(validation->text().startsWith(QStringLiteral("✕")), qPrintable(validation->text()));
        for (const Finding& finding : session->validation().report()->findings)
            suppressions.add(session->path(), finding, QStringLiteral("known"));
        QCOMPARE(session->validation().verdict(), Verdict::safe);
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
};

SHARDSCOPE_GUI_TEST_MAIN(WizardTest)
#include "wizard_test.moc"
