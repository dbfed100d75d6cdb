#include <QAbstractItemModelTester>
#include <QAccessible>
#include <QComboBox>
#include <QLabel>
#include <QLineEdit>
#include <QMenu>
#include <QProcess>
#include <QPushButton>
#include <QScrollArea>
#include <QSignalSpy>
#include <QTableView>
#include <QTextDocumentFragment>

#include "support/accessibility.h"
#include "support/gui_test.h"
#include "ui/models/suppressions.h"
#include "ui/models/texts.h"
#include "ui/pages/as_if_panel.h"
#include "ui/pages/overview_page.h"
#include "ui/pages/ready_panel.h"
#include "ui/pages/verdict_strip.h"
#include "ui/widgets/card.h"
#include "ui/widgets/icicle.h"
#include "ui/widgets/mesh_view.h"
#include "ui/widgets/picture_view.h"
#include "ui/widgets/share_bar.h"

using namespace shardscope;
using namespace shardscope::ui;

namespace {

// "dcp · 18 tensors · ..."
QString figures(const OverviewPage& page) {
    for (const QLabel* label : page.findChildren<QLabel*>()) {
        if (label->accessibleName() == "Figures") return label->text().replace(QChar::Nbsp, ' ');
    }
    return {};
}

// The label of the resume card that says what is said of `id`.
QLabel* readyLabel(OverviewPage& page, const Session& session, const std::string& id) {
    for (const ReadyLine& line : session.validation().card()->lines) {
        for (QLabel* label : page.findChild<ReadyPanel*>()->findChildren<QLabel*>()) {
            if (line.id == id && label->accessibleName().startsWith(toQString(line.title) + ','))
                return label;
        }
    }
    return nullptr;
}

QString shownOf(const QLabel& label) {
    return QTextDocumentFragment::fromHtml(label.text()).toPlainText();
}

// A step of the Hugging Face Trainer.
QString trainerStep(const QString& name) {
    return QStringLiteral(SHARDSCOPE_TEST_DATA "/field/trainer-half-saved-step/") + name;
}

void truncate(const QString& path, qint64 size) {
    QFile file(path);
    QVERIFY(file.setPermissions(QFile::ReadOwner | QFile::WriteOwner));
    QVERIFY(file.resize(size));
}

}  // namespace

class OverviewTest : public QObject {
    Q_OBJECT

  private slots:
    void everyControlHasAName();
    void init() { applyTheme(ThemeChoice::light); }
    void saysWhatThereIs();
    void saysTheCauses();
    void namesThreeCauses();
    void validates();
    void saysWhetherToResume_data();
    void saysWhetherToResume();
    void linesLeadToWhatTheyAreAbout();
    void anAcceptedFindingChangesTheCard();
    void hostileNamesInTheCard();
    void aFailingValidationIsSaid();
    void claimedSizeIsHeldAgainstTheComputedOne();
    void dtypesFilter();
    void icicleByMouseAndKeys();
    void ranksByMouseAndKeys();
    void cardOfAWideWindow();
    void manyRanksStayReadable();
    void asIfOnAnotherMesh();
    void aMillionChunks();
    void stagesSayTheirLayers();
    void tablesSayTheSame();
    void models();
    void emptyAndFailed();
    void pictures_data();
    void pictures();
};

void OverviewTest::saysWhatThereIs() {
    auto session = openSession(sampleCheckpoint());
    auto page = pageOf<OverviewPage>(*session);
    auto* verdict = page->findChild<VerdictStrip*>();
    QCOMPARE(verdict->headline(), QStringLiteral("Not validated"));
    QVERIFY(verdict->causes().isEmpty());
    QCOMPARE(figures(*page),
             QString::fromUtf8("dcp · torch 2.15 or later · 153 parameters (+ 272 in the optimizer) · 18 "
                               "tensors · 48 chunks · 1.66 KiB · 5 files · 4 ranks · 12 objects"));
    // Wishes are passed on.
    QSignalSpy validate(page.get(), &OverviewPage::validateRequested);
    QSignalSpy convert(page.get(), &OverviewPage::convertRequested);
    for (QPushButton* button : verdict->findChildren<QPushButton*>()) {
        if (button->text().startsWith("Convert")) QTest::mouseClick(button, Qt::LeftButton);
        if (!button->text().startsWith("Validate")) continue;
        // Each level with what it costs.
        const QList<QAction*> levels = button->menu()->actions();
        QCOMPARE(levels.size(), 3);
        QCOMPARE(levels[0]->text(), QStringLiteral("Metadata only: opens no data file"));
        QVERIFY2(levels[2]->text().startsWith("Every value: reads "), qPrintable(levels[2]->text()));
        levels[1]->trigger();
    }
    QCOMPARE(validate.count(), 1);
    QCOMPARE(validate[0][0].value<ValidateLevel>(), ValidateLevel::files);
    QCOMPARE(convert.count(), 1);
}

void OverviewTest::saysTheCauses() {
    const QString copy = copyCheckpoint(sampleCheckpoint());
    truncate(copy + "/__2_0.distcp", 2000);
    auto session = openSession(copy);
    auto page = pageOf<OverviewPage>(*session);
    auto* verdict = page->findChild<VerdictStrip*>();
    session->validation().start(ValidateLevel::metadata);
    QTRY_COMPARE(verdict->headline(), QStringLiteral("Do not resume"));
    QCOMPARE(verdict->causes(), QStringLiteral("__2_0.distcp is truncated (rank 2, 12 tensors)"));
    // What was found stays while another check runs.
    session->validation().start(ValidateLevel::files);
    QTRY_COMPARE(verdict->headline(), QStringLiteral("Do not resume"));
    QVERIFY(verdict->causes().contains("is truncated"));
    QTRY_VERIFY(!session->validation().running());
    const auto mesh = page->findChild<MeshView*>()->picture();
    QVERIFY(mesh->rank(2).health == Health::missing);
    QVERIFY(mesh->rank(1).health == Health::ok);
    // The way to them.
    for (QPushButton* button : verdict->findChildren<QPushButton*>()) {
        if (button->text() == "Show damaged") QTest::mouseClick(button, Qt::LeftButton);
    }
    QCOMPARE(session->selection().current().filter, QStringLiteral("status:bad"));
    QCOMPARE(session->selection().current().page, Page::placement);
    QSignalSpy cause(page.get(), &OverviewPage::causeRequested);
    for (QLabel* label : verdict->findChildren<QLabel*>()) {
        if (label->text().contains("href")) emit label->linkActivated("0");
    }
    QCOMPARE(cause.count(), 1);
    QVERIFY(cause[0][0].toString().startsWith("file.truncated: "));
    picture(*page, "overview-damaged");
    applyTheme(ThemeChoice::dark);
    picture(*page, "overview-damaged-dark");
}

// At most three causes are named, a link leads to the others. Accepted and less severe findings are not
// causes.
void OverviewTest::namesThreeCauses() {
    auto engine = std::make_shared<ScriptedEngine>();
    engine->afterValidate = [](ValidationReport& report) {
        for (const char* cause : {"one", "two", "three", "four", "five"})
            report.findings.push_back({"file.missing", Severity::error, 1, cause, cause, {}});
        report.findings.push_back({"save.torn", Severity::warning, 1, "torn", "torn", {}});
        report.verdict = Verdict::unsafe;
    };
    auto session = openSession(sampleCheckpoint(), engine);
    QTemporaryDir kept;
    Suppressions suppressions(kept.filePath("accepted.json"));
    session->validation().setSuppressions(&suppressions);
    auto page = pageOf<OverviewPage>(*session);
    auto* verdict = page->findChild<VerdictStrip*>();
    session->validation().start(ValidateLevel::metadata);
    QTRY_COMPARE(verdict->causes(), QStringLiteral("one\ntwo\nthree\n2 more"));
    suppressions.add(session->path(), session->validation().report()->findings[0], QStringLiteral("known"));
    QTRY_COMPARE(verdict->causes(), QStringLiteral("two\nthree\nfour\n1 more"));
}

void OverviewTest::validates() {
    auto session = openSession(sampleCheckpoint());
    auto page = pageOf<OverviewPage>(*session);
    auto* verdict = page->findChild<VerdictStrip*>();
    session->validation().start(ValidateLevel::files);
    QCOMPARE(verdict->headline(), QStringLiteral("Validating…"));
    QTRY_VERIFY(session->validation().report());
    QTRY_COMPARE(verdict->headline(), QStringLiteral("Whole: no step to resume at is recorded"));
    QVERIFY2(verdict->details().startsWith("Files checked: no problems."), qPrintable(verdict->details()));
    QVERIFY2(verdict->details().contains("Not checked: values"), qPrintable(verdict->details()));
    QVERIFY(!verdict->details().contains("--"));
    picture(*page, "overview-safe");

    const QString copy = copyCheckpoint(sampleCheckpoint());
    truncate(copy + "/__2_0.distcp", 2000);
    auto bad = openSession(copy);
    auto badPage = pageOf<OverviewPage>(*bad);
    bad->validation().start(ValidateLevel::files);
    auto* badVerdict = badPage->findChild<VerdictStrip*>();
    QTRY_VERIFY(bad->hasFacts());
    QCOMPARE(rankStateText(bad->facts()->ranks[2]), std::string("truncated"));
    QTRY_COMPARE(badVerdict->headline(), QStringLiteral("Do not resume"));
    QVERIFY2(badVerdict->details().contains(" error"), qPrintable(badVerdict->details()));
    picture(*badPage, "overview-unsafe");
}

void OverviewTest::saysWhetherToResume_data() {
    QTest::addColumn<QString>("path");
    QTest::addColumn<QString>("words");
    QTest::newRow("everything") << trainerStep("optimizer-empty/checkpoint-10")
                                << QStringLiteral("Resume from here");
    QTest::newRow("no optimizer") << trainerStep("died-after-model/checkpoint-30")
                                  << QStringLiteral("Do not resume");
    QTest::newRow("weights only") << genuineCheckpoint("dcp/t2.15.0-stateful")
                                  << QStringLiteral("Weights only: nothing to resume, fine to load");
    QTest::newRow("many damaged") << QStringLiteral(SHARDSCOPE_TEST_DATA "/index/llama3-8b.ssidx")
                                  << QStringLiteral("Do not resume");
}

// Ten lines in the words of the command line, at any size and in both themes.
void OverviewTest::saysWhetherToResume() {
    QFETCH(QString, path);
    QFETCH(QString, words);
    auto session = openSession(path);
    auto page = pageOf<OverviewPage>(*session);
    auto* panel = page->findChild<ReadyPanel*>();
    QVERIFY(!panel->isVisible());
    // An index can be checked at level metadata only.
    const bool whole = session->dataElsewhere().isEmpty();
    session->validation().start(whole ? ValidateLevel::files : ValidateLevel::metadata);
    QTRY_VERIFY(panel->isVisible());
    settle();  // labels of a layout are shown by the event loop
    QCOMPARE(page->findChild<VerdictStrip*>()->headline(), words);
    QProcess process;
    process.start(SHARDSCOPE_PROGRAM, {"ready", path, "--level", whole ? "files" : "metadata"});
    QVERIFY(process.waitForFinished(60'000));
    QCOMPARE(panel->text(), QString::fromUtf8(process.readAllStandardOutput()));
    for (const ReadyLine& line : session->validation().card()->lines) {
        const QLabel* label = readyLabel(*page, *session, line.id);
        QVERIFY2(label && label->isVisible(), line.id.c_str());
        QVERIFY2(shownOf(*label).startsWith(toQString(line.text)), qPrintable(shownOf(*label)));
    }
    const QString name = QStringLiteral("overview-card-%1").arg(QTest::currentDataTag()).replace(' ', '-');
    picture(*page, name);
    page->resize(770, 700);
    picture(*page, name + "-narrow");
    // As high as its lines need in each width, or as the mesh beside it.
    QCOMPARE(panel->height(), panel->heightForWidth(panel->width()));
    applyTheme(ThemeChoice::dark);
    page->resize(1600, 1000);
    picture(*page, name + "-dark");
    QVERIFY(panel->height() >= panel->heightForWidth(panel->width()));
    session->close();
    QVERIFY(!panel->isVisible());
}

void OverviewTest::linesLeadToWhatTheyAreAbout() {
    auto session = openSession(genuineCheckpoint("dcp/t2.15.0-damaged-missing-file"));
    auto page = pageOf<OverviewPage>(*session);
    session->validation().start(ValidateLevel::files);
    QTRY_VERIFY(session->validation().card());
    const ReadyLine& line = session->validation().card()->lines[0];
    QLabel* weights = readyLabel(*page, *session, line.id);
    QVERIFY(weights);
    QSignalSpy findings(page.get(), &OverviewPage::findingRequested);
    // By keys: the file first, then what was found.
    settle();
    page->activateWindow();
    QVERIFY(QTest::qWaitForWindowActive(page.get()));
    weights->setFocus(Qt::TabFocusReason);
    QTRY_VERIFY(weights->hasFocus());
    QTest::keyClick(weights, Qt::Key_Tab);
    QTest::keyClick(weights, Qt::Key_Return);
    QCOMPARE(session->selection().current().page, Page::files);
    QCOMPARE(session->catalog().files()[session->selection().current().file].path, line.file);
    QTest::keyClick(weights, Qt::Key_Tab);
    QTest::keyClick(weights, Qt::Key_Return);
    QCOMPARE(findings.count(), 1);
    QCOMPARE(findings[0][0].toString(), toQString(line.evidence));
    // A line about nothing in particular is passed over.
    QCOMPARE(readyLabel(*page, *session, "fits_on")->focusPolicy(), Qt::NoFocus);

    auto whole = openSession(trainerStep("optimizer-empty/checkpoint-10"));
    auto wholePage = pageOf<OverviewPage>(*whole);
    whole->validation().start(ValidateLevel::metadata);
    QTRY_VERIFY(whole->validation().card());
    for (const char* id : {"scheduler", "random"}) {
        QVERIFY(readyLabel(*wholePage, *whole, id)
                    ->toolTip()
                    .contains(id[0] == 's' ? "scheduler.pt" : "rng_state"));
    }
}

void OverviewTest::anAcceptedFindingChangesTheCard() {
    QTemporaryDir kept;
    Suppressions suppressions(kept.filePath("accepted.json"));
    auto session = openSession(genuineCheckpoint("dcp/t2.15.0-fsdp2-adam"), [] {
        auto engine = std::make_shared<ScriptedEngine>();
        engine->afterValidate = [](ValidationReport& report) {
            report.findings.push_back(
                {"save.torn", Severity::warning, 1, "files of two saves", "two saves", {}});
            report.verdict = Verdict::care;
        };
        return engine;
    }());
    session->validation().setSuppressions(&suppressions);
    auto page = pageOf<OverviewPage>(*session);
    auto* verdict = page->findChild<VerdictStrip*>();
    session->validation().start(ValidateLevel::metadata);
    QTRY_COMPARE(verdict->causes(), QStringLiteral("two saves"));
    QTRY_COMPARE(verdict->headline(), QStringLiteral("Do not resume"));
    QVERIFY(shownOf(*readyLabel(*page, *session, "weights")).contains("save.torn: files of two saves"));
    const Finding finding = session->validation().report()->findings.back();
    suppressions.add(session->path(), finding, QStringLiteral("they are equal"));
    QTRY_COMPARE(verdict->headline(), QStringLiteral("Whole: no step to resume at is recorded"));
    QVERIFY(!shownOf(*readyLabel(*page, *session, "weights")).contains("save.torn"));
    QVERIFY2(verdict->details().contains("1 finding accepted"), qPrintable(verdict->details()));
    suppressions.remove(session->path(), finding);
    QTRY_COMPARE(verdict->causes(), QStringLiteral("two saves"));
    QTRY_COMPARE(verdict->headline(), QStringLiteral("Do not resume"));
}

// Names stay text, and none makes the page wider than its window.
void OverviewTest::hostileNamesInTheCard() {
    const QString name = QStringLiteral("<img src=x>&amp;") + QString(200, 'x') + QChar(0x202e);
    auto engine = std::make_shared<ScriptedEngine>();
    engine->afterValidate = [&](ValidationReport& report) {
        const std::string raw = name.toStdString();
        report.findings.insert(report.findings.begin(), {"file.missing",
                                                         Severity::error,
                                                         1,
                                                         "'" + raw + "' is not here",
                                                         raw,
                                                         {{.tensor = raw, .file = raw}}});
        report.verdict = Verdict::unsafe;
    };
    auto session = openSession(sampleCheckpoint(), engine);
    auto page = pageOf<OverviewPage>(*session, {700, 640});
    session->validation().start(ValidateLevel::metadata);
    QTRY_VERIFY(session->validation().card());
    settle();
    const QLabel* weights = readyLabel(*page, *session, "weights");
    QVERIFY2(shownOf(*weights).contains("file.missing: '<img src=x>&amp;"), qPrintable(shownOf(*weights)));
    QVERIFY(!weights->text().contains("<img") && !weights->text().contains(QChar(0x202e)));
    QVERIFY(!page->findChild<ReadyPanel*>()->text().contains(QChar(0x202e)));
    const QWidget* content = page->findChild<QScrollArea*>()->widget();
    QVERIFY2(content->width() <= 700, qPrintable(QString::number(content->width())));
    picture(*page, "overview-card-hostile");
}

void OverviewTest::aFailingValidationIsSaid() {
    auto engine = std::make_shared<ScriptedEngine>();
    engine->before = [](const std::string& call, const TaskContext&) -> Status {
        if (call == "validate") return makeError(ErrorCode::io, "the disk went away");
        return {};
    };
    auto session = openSession(sampleCheckpoint(), engine);
    auto page = pageOf<OverviewPage>(*session);
    auto* verdict = page->findChild<VerdictStrip*>();
    session->validation().start(ValidateLevel::files);
    QTRY_VERIFY2(verdict->details().contains("The disk went away"), qPrintable(verdict->details()));
    QCOMPARE(verdict->headline(), QStringLiteral("Not validated"));
}

void OverviewTest::claimedSizeIsHeldAgainstTheComputedOne() {
    const QString copy = copyCheckpoint(genuineCheckpoint("safetensors/hf-sharded"));
    QFile index(copy + "/model.safetensors.index.json");
    QVERIFY(index.setPermissions(QFile::ReadOwner | QFile::WriteOwner));
    QVERIFY(index.open(QIODevice::ReadWrite));
    QString text = QString::fromUtf8(index.readAll());
    text.replace(QRegularExpression("\"total_size\":\\s*\\d+"), "\"total_size\": 99999999");
    index.resize(0);
    index.seek(0);
    index.write(text.toUtf8());
    index.close();
    auto session = openSession(copy);
    QVERIFY(session->checkpoint());
    auto page = pageOf<OverviewPage>(*session);
    QVERIFY2(figures(*page).contains("▲ its index claims 95.4 MiB"), qPrintable(figures(*page)));
    picture(*page, "overview-claimed");
}

void OverviewTest::dtypesFilter() {
    SyntheticOptions options;
    options.optimizer = true;
    auto session = openSynthetic(syntheticModel(options));
    auto page = pageOf<OverviewPage>(*session);
    auto* bar = page->findChild<ShareBar*>();
    QCOMPARE(bar->shares().size(), size_t{2});
    QCOMPARE(bar->shares()[0].label, QStringLiteral("float32"));
    QTest::mouseClick(bar, Qt::LeftButton, {}, bar->shareRect(1).center().toPoint());
    QCOMPARE(session->selection().current().filter, QStringLiteral("dtype:bfloat16"));
    bar->setFocus();
    QTest::keyClick(bar, Qt::Key_Home);
    QTest::keyClick(bar, Qt::Key_Return);
    QCOMPARE(session->selection().current().filter, QStringLiteral("dtype:float32"));
}

void OverviewTest::icicleByMouseAndKeys() {
    auto session = openSynthetic(syntheticModel());
    auto page = pageOf<OverviewPage>(*session);
    auto* icicle = page->findChild<Icicle*>();
    const ModuleTree& tree = session->facts()->tree;
    const auto layer3 = tree.find("model.layers.3");
    QVERIFY(!icicle->nodeRect(layer3).isEmpty());
    // Layer order from left to right.
    QVERIFY(icicle->nodeRect(tree.find("model.layers.2")).left() <
            icicle->nodeRect(tree.find("model.layers.10")).left());
    page->findChild<QScrollArea*>()->ensureWidgetVisible(icicle);
    QTest::mouseClick(icicle, Qt::LeftButton, {}, icicle->nodeRect(layer3).center().toPoint());
    QCOMPARE(session->selection().current().module, QStringLiteral("model.layers.3"));
    QTest::mouseDClick(icicle, Qt::LeftButton, {}, icicle->nodeRect(layer3).center().toPoint());
    QCOMPARE(icicle->top(), layer3);
    picture(*icicle, "icicle-zoomed");
    QTest::keyClick(icicle, Qt::Key_Backspace);
    QCOMPARE(tree.fullName(icicle->top()), std::string_view("model.layers"));
    QTest::keyClick(icicle, Qt::Key_Escape);
    QTest::keyClick(icicle, Qt::Key_Escape);
    QCOMPARE(icicle->top(), ModuleTree::kRoot);
    QTest::keyClick(icicle, Qt::Key_Right);
    QCOMPARE(session->selection().current().module, QStringLiteral("model.layers.4"));
    QTest::keyClick(icicle, Qt::Key_Left);
    QTest::keyClick(icicle, Qt::Key_Down);
    QVERIFY(session->selection().current().module.startsWith("model.layers.3."));
    QTest::keyClick(icicle, Qt::Key_Up);
    QTest::keyClick(icicle, Qt::Key_Up);
    QCOMPARE(session->selection().current().module, QStringLiteral("model.layers"));
    QTest::keyClick(icicle, Qt::Key_Return);
    QCOMPARE(tree.fullName(icicle->top()), std::string_view("model.layers"));
    // What others select is marked here.
    session->selection().selectModule("model.layers.7");
    QCOMPARE(tree.fullName(icicle->current()), std::string_view("model.layers.7"));
}

void OverviewTest::ranksByMouseAndKeys() {
    auto session = openSynthetic(syntheticModel());
    auto page = pageOf<OverviewPage>(*session);
    auto* mesh = page->findChild<MeshView*>();
    page->findChild<QScrollArea*>()->ensureWidgetVisible(mesh);
    QCOMPARE(mesh->drawing().cells.size(), size_t{32});
    QTest::mouseClick(mesh, Qt::LeftButton, {}, mesh->centerOf(mesh->drawing().cellOf(5)).toPoint());
    QCOMPARE(session->selection().current().ranks, std::vector<uint32_t>{5});
    QTest::keyClick(mesh, Qt::Key_Right);
    QCOMPARE(session->selection().current().ranks, std::vector<uint32_t>{6});
    QTest::keyClick(mesh, Qt::Key_Up);
    QCOMPARE(session->selection().current().ranks, std::vector<uint32_t>{2});
    QTest::keyClick(mesh, Qt::Key_End);
    QCOMPARE(session->selection().current().ranks, std::vector<uint32_t>{31});
    QVERIFY2(mesh->accessibleDescription().contains("Rank 31 (pp3 dp1 tp3)"),
             qPrintable(mesh->accessibleDescription()));
    QVERIFY2(mesh->accessibleDescription().contains("tp: 28–31"), qPrintable(mesh->accessibleDescription()));
    QTest::mouseMove(mesh, mesh->centerOf(mesh->drawing().cellOf(13)).toPoint());
    picture(*page, "overview-groups");
}

void OverviewTest::asIfOnAnotherMesh() {
    auto session = openSession(genuineCheckpoint(QStringLiteral("dcp/t2.15.0-fsdp2-tp")));
    auto page = pageOf<OverviewPage>(*session);
    page->resize(1000, 700);
    page->show();
    auto* panel = page->findChild<AsIfPanel*>();
    auto* mesh = page->findChild<QLineEdit*>(QStringLiteral("asIfMesh"));
    auto* problem = page->findChild<QLabel*>(QStringLiteral("asIfProblem"));
    QVERIFY(mesh->isVisible() && !panel->isVisible());
    // What is no mesh is said where it was typed.
    QTest::keyClicks(mesh, QStringLiteral("tp=zero"));
    QTRY_VERIFY(problem->isVisible());
    QVERIFY2(problem->text().contains("'zero' is not a positive number of ranks"),
             qPrintable(problem->text()));
    mesh->selectAll();
    QTest::keyClicks(mesh, QStringLiteral("tp=4"));
    QTest::keyClick(mesh, Qt::Key_Return);
    QTRY_VERIFY(panel->isVisible());
    QVERIFY(!problem->isVisible());
    const QString headline = page->findChild<QLabel*>(QStringLiteral("asIfHeadline"))->text();
    QVERIFY2(headline.startsWith("4 ranks read 400 B to 440 B each") && headline.contains("now 536 B"),
             qPrintable(headline));
    auto* picture = panel->findChild<PictureView*>();
    QVERIFY(picture->svg().find("As if on tp 4") != std::string::npos);
    // By keys to the first rank as it is now.
    QTest::keyClick(picture, Qt::Key_Right);
    QVERIFY2(picture->accessibleDescription().startsWith("Rank 0 (fsdp0 tp0)"),
             qPrintable(picture->accessibleDescription()));
    QCOMPARE(panel->table()->model()->rowCount(), 4);
    QCOMPARE(panel->table()->model()->index(3, 3).data().toString(), QStringLiteral("432 B"));
    QSignalSpy reshard(page.get(), &OverviewPage::reshardRequested);
    panel->findChild<QPushButton*>(QStringLiteral("asIfReshard"))->click();
    QCOMPARE(reshard.takeFirst()[0].toString(), QStringLiteral("tp=4"));
    mesh->clear();
    QVERIFY(!panel->isVisible());
}

// Both halves of the card have room, also in a window that was wide before there was a card.
void OverviewTest::cardOfAWideWindow() {
    Session session(localEngine());
    const auto page = pageOf<OverviewPage>(session, {3800, 1200});
    session.open(sampleCheckpoint());
    QTRY_VERIFY_WITH_TIMEOUT(session.hasFacts(), 60'000);
    session.validation().start(ValidateLevel::metadata);
    auto* card = page->findChild<ReadyPanel*>();
    QTRY_VERIFY_WITH_TIMEOUT(card->isVisible(), 60'000);
    settle();
    int bodies = 0;
    for (const QLabel* label : card->findChildren<QLabel*>()) {
        if (!label->wordWrap() || !label->isVisible()) continue;
        ++bodies;
        QVERIFY2(label->width() >= card->width() / 4, qPrintable(label->text()));
    }
    QCOMPARE(bodies, 10);
}

void OverviewTest::manyRanksStayReadable() {
    SyntheticOptions options;
    options.pp = 8;
    options.dp = 16;
    options.tp = 8;
    options.layers = 32;
    options.gapLayer = 5;
    options.missingFileRank = 417;
    auto session = openSynthetic(syntheticModel(options));
    auto page = pageOf<OverviewPage>(*session);
    auto* mesh = page->findChild<MeshView*>();
    QCOMPARE(mesh->picture()->rankCount(), 1024U);
    const int cell = mesh->drawing().cellOf(417);
    QVERIFY(cell >= 0);
    QVERIFY(mesh->drawing().cells[static_cast<size_t>(cell)].health == Health::missing);
    bool named = false;
    for (QLabel* label : page->findChildren<QLabel*>())
        named |= label->text().contains("rank 417 (missing)");
    QVERIFY(named);
    picture(*page, "overview-1024");
    page->resize(1600, 1000);
    applyTheme(ThemeChoice::dark);
    picture(*page, "overview-1024-large-dark");
    page->resize(700, 640);
    picture(*page, "overview-1024-narrow-dark");
    page->findChild<QScrollArea*>()->ensureWidgetVisible(mesh);
    picture(*page, "overview-1024-narrow-lower-dark");
}

// What the GUI thread does for a large checkpoint stays far below what a person notices; the ceiling leaves
// room for slow machines and unoptimized builds.
void OverviewTest::aMillionChunks() {
    auto session = openSynthetic(syntheticGrid(9216, 109));
    QVERIFY(session->hasFacts());
    OverviewPage page(*session);
    page.resize(1280, 720);
    const double start = threadMilliseconds();
    emit session->factsChanged();
    const double facts = threadMilliseconds();
    page.grab();
    const double paint = threadMilliseconds();
    session->selection().selectTensor(4711);
    const double select = threadMilliseconds();
    qInfo("facts %.1f ms, first paint %.1f ms, selection %.1f ms", facts - start, paint - facts,
          select - paint);
    QVERIFY(facts - start < 250 && paint - facts < 1000 && select - paint < 250);
}

void OverviewTest::stagesSayTheirLayers() {
    auto session = openSynthetic(syntheticModel());
    auto page = pageOf<OverviewPage>(*session);
    const auto mesh = page->findChild<MeshView*>()->picture();
    QCOMPARE(mesh->stages().size(), size_t{4});
    QCOMPARE(mesh->stageTitle(1, false).substr(0, 15), std::string("pp1: layers 4–7").substr(0, 15));
}

void OverviewTest::tablesSayTheSame() {
    auto session = openSynthetic(syntheticModel());
    auto page = pageOf<OverviewPage>(*session);
    auto* mesh = page->findChild<QLineEdit*>(QStringLiteral("asIfMesh"));
    mesh->setText(QStringLiteral("tp=2"));
    QTest::keyClick(mesh, Qt::Key_Return);
    QTRY_VERIFY(!page->findChild<AsIfPanel*>()->isHidden());
    for (Panel* panel : page->findChildren<Panel*>()) {
        if (!panel->table()) continue;
        panel->showTable(true);
        QVERIFY(panel->showsTable());
        QVERIFY2(panel->table()->model()->rowCount() > 0, qPrintable(panel->accessibleName()));
    }
    page->resize(1280, 1000);
    picture(*page, "overview-tables");
}

void OverviewTest::models() {
    TextTableModel model({{{"Name"}, [](size_t row) { return QString(QChar('d' - static_cast<int>(row))); }},
                          countColumn("Figure", [](size_t row) { return row * 7 % 4; })});
    QAbstractItemModelTester tester(&model, QAbstractItemModelTester::FailureReportingMode::QtTest);
    model.setRows(4);
    const QPersistentModelIndex third = model.index(2, 0);
    model.sort(0, Qt::AscendingOrder);
    QCOMPARE(model.index(0, 0).data().toString(), QStringLiteral("a"));
    QCOMPARE(third.data().toString(), QStringLiteral("b"));
    model.sort(1, Qt::DescendingOrder);
    QCOMPARE(model.index(0, 1).data().toString(), QStringLiteral("3"));
    model.sort(-1, Qt::AscendingOrder);
    QCOMPARE(model.source(2), 2);
    model.setRows(0);
    QCOMPARE(model.rowCount(), 0);
}

void OverviewTest::emptyAndFailed() {
    Session session(localEngine());
    auto page = pageOf<OverviewPage>(session);
    auto* verdict = page->findChild<VerdictStrip*>();
    QCOMPARE(verdict->headline(), QStringLiteral("Nothing is open"));
    session.open("/nonexistent/checkpoint");
    QTRY_COMPARE(session.state(), Session::State::failed);
    QCOMPARE(verdict->headline(), QStringLiteral("Nothing is open"));
    session.open(sampleCheckpoint());
    QTRY_VERIFY(session.hasFacts());
    QVERIFY(figures(*page).startsWith("dcp"));
    session.close();
    QCOMPARE(verdict->headline(), QStringLiteral("Nothing is open"));
    picture(*page, "overview-nothing");
}

void OverviewTest::pictures_data() {
    QTest::addColumn<QString>("path");
    QTest::newRow("sample") << sampleCheckpoint();
    QTest::newRow("pipeline") << genuineCheckpoint("dcp/t2.15.0-pipeline");
    QTest::newRow("adam") << genuineCheckpoint("dcp/t2.15.0-fsdp2-adam");
    QTest::newRow("safetensors") << genuineCheckpoint("safetensors/hf-sharded");
    QTest::newRow("missing") << genuineCheckpoint("dcp/t2.15.0-damaged-missing-file");
}

void OverviewTest::pictures() {
    QFETCH(QString, path);
    auto session = openSession(path);
    QVERIFY(session->hasFacts());
    auto page = pageOf<OverviewPage>(*session);
    Tasks::waitForAll();
    QCoreApplication::processEvents();
    const QString name = QStringLiteral("overview-") + QTest::currentDataTag();
    QVERIFY(!picture(*page, name).isNull());
    applyTheme(ThemeChoice::dark);
    page->resize(1600, 1000);
    QVERIFY(!picture(*page, name + "-large-dark").isNull());
}

void OverviewTest::everyControlHasAName() {
    auto session = openSession(sampleCheckpoint());
    auto page = pageOf<OverviewPage>(*session);
    const QStringList nameless = namelessByKeyboard(*page);
    QVERIFY2(nameless.isEmpty(), qPrintable(nameless.join(", ")));
}

SHARDSCOPE_GUI_TEST_MAIN(OverviewTest)
#include "overview_test.moc"
