// The page of a run, over listings that a test makes: what the model says of steps that are seen together,
// the timeline, and how timeline and table go together.
#include "ui/pages/run_page.h"

#include <QLabel>
#include <QPushButton>
#include <QTableView>

#include "support/window_fixture.h"
#include "ui/models/run_steps.h"
#include "ui/pages/start_page.h"
#include "ui/widgets/picture_view.h"
#include "ui/widgets/run_timeline.h"

using namespace shardscope;
using namespace shardscope::ui;

namespace {

constexpr const char* kRunPath = "/runs/llama-8b";  // nothing is read there
constexpr int64_t kStart = 1'730'500'000;           // seconds since 1970; all times are long past

// Steps are as the test says; those without a verdict never end their saves.
class RunEngine : public ScriptedEngine {
  public:
    Run run;
    std::vector<RunRow> rows;

    Result<std::variant<CheckpointPtr, RunPtr>> openAny(const std::string&, const CheckpointOptions&,
                                                        const TaskContext&) override {
        return std::variant<CheckpointPtr, RunPtr>(std::make_shared<const Run>(run));
    }
    Result<RunListingPtr> listRun(const std::string&, const CheckpointOptions&, const std::string&,
                                  ValidateLevel, const TaskContext&) override {
        return std::make_shared<const RunListing>(RunListing{run, rows});
    }
    // A norm that runs away and an expert that dies; of moments as of weights.
    Result<std::vector<TensorValues>> stepValues(const RunListingPtr& listing, size_t row,
                                                 const std::string&) override {
        const double step = static_cast<double>(listing->rows[row].step.step) / 250;
        std::vector<TensorValues> all;
        const auto add = [&](const std::string& name, Role role, double norm) {
            const uint64_t zero = norm == 0 ? 64 : 0;
            all.push_back({name, role, {64, 0, 0, zero}, {64, 0, norm * norm, norm}});
        };
        for (const char* part : {"self_attn.q_proj", "self_attn.o_proj", "mlp.gate"}) {
            const bool runs = part == std::string("mlp.gate") && step > 30;
            const std::string name = std::string("model.layers.0.") + part + ".weight";
            add(name, Role::parameter, 3 + step / 50 + (runs ? (step - 30) * (step - 30) * 4 : 0));
            add("optim.exp_avg_sq." + name, Role::optimizer, 1e-6 * (1 + step / 10));
        }
        for (int e = 0; e < 4; ++e)
            add("model.layers.0.mlp.experts." + std::to_string(e) + ".w1.weight", Role::parameter,
                e == 2 && step >= 20 ? 0 : 2 + 0.1 * e + step / 100);
        return all;
    }
};

RunRow rowOf(int step, int64_t minutes, uint64_t bytes, std::optional<Verdict> verdict, uint32_t ranks) {
    RunRow row;
    row.step = {"step-" + std::to_string(step), step, false};
    row.files = {ranks + 2, bytes, (kStart + minutes * 60) * 1'000'000'000, {}};
    row.format = "PyTorch distributed checkpoint (DCP)";
    if (!verdict) return row;
    row.verdict.emplace();
    row.verdict->format = row.format;
    row.verdict->report.verdict = *verdict;
    row.verdict->report.level = ValidateLevel::files;
    row.verdict->ranks = ranks;
    if (*verdict == Verdict::unsafe) {
        Finding finding;
        finding.rule = "file.truncated";
        finding.severity = Severity::error;
        finding.message = "__17_0.distcp ends 4.0 MiB before its last chunk does";
        finding.count = 1;
        row.verdict->report.findings.push_back(finding);
    }
    return row;
}

// 40 saves, newest first: a pause of a night, 63 ranks of 64 after it, one that is not whole, one that is
// smaller, the newest is being saved.
std::vector<RunRow> realisticRun() {
    std::vector<RunRow> rows;
    int64_t minutes = 0;
    for (int i = 1; i <= 40; ++i) {
        minutes += i == 22 ? 570 : i == 31 ? 95 : 28 + i * 7 % 9;
        const uint32_t ranks = i < 22 ? 64 : 63;
        const uint64_t bytes =
            (uint64_t{1} << 30) * (i == 35 ? 41 : 90) + static_cast<uint64_t>(i) * 1'000'000;
        const std::optional<Verdict> verdict = i == 40              ? std::nullopt
                                               : i == 35            ? std::optional(Verdict::unsafe)
                                               : i == 12 || i == 22 ? std::optional(Verdict::care)
                                                                    : std::optional(Verdict::safe);
        rows.insert(rows.begin(), rowOf(i * 250, minutes, i == 40 ? bytes / 3 : bytes, verdict, ranks));
    }
    return rows;
}

std::vector<RunMark> manyMarks(int count) {
    std::vector<RunMark> marks;
    for (int i = 0; i < count; ++i) {
        RunMark mark;
        mark.name = QStringLiteral("step-%1").arg(count - i);
        mark.step = count - i;
        mark.savedMs = (kStart + int64_t{count - i} * 600) * 1000;
        mark.bytes = (uint64_t{1} << 30) + static_cast<uint64_t>(i);
        mark.verdict = i % 97 == 5 ? Verdict::unsafe : Verdict::safe;
        mark.newestWhole = i == 0;
        mark.ranks = i < count / 2 ? 63 : 64;
        mark.ranksBefore = i == count / 2 - 1 ? 64 : 0;
        marks.push_back(std::move(mark));
    }
    return marks;
}

QString noText(int) {
    return {};
}

}  // namespace

class RunPageTest : public QObject, protected WindowFixture {
    Q_OBJECT

    QTemporaryDir dir_;
    std::shared_ptr<RunEngine> engine_;

    RunPage& page() { return window_->startPage().runPage(); }
    void openRunOf(std::vector<RunRow> rows) {
        engine_ = std::make_shared<RunEngine>();
        engine_->run = openRun(dir_.path().toStdString()).value().value();
        engine_->run.source.display = kRunPath;
        engine_->run.directory.steps.clear();
        for (const RunRow& row : rows)
            engine_->run.directory.steps.push_back(row.step);
        engine_->rows = std::move(rows);
        start(engine_);
        open(kRunPath, {1280, 800});
        QCOMPARE(session().state(), Session::State::run);
        page().steps().setTimes(std::chrono::hours(1), std::chrono::years(100));
        QTRY_COMPARE(page().table().model()->rowCount(), static_cast<int>(engine_->rows.size()));
    }
    QString cell(int row, int column) { return page().table().model()->index(row, column).data().toString(); }

  private slots:
    void initTestCase() { QVERIFY(QDir().mkpath(dir_.filePath("step-1"))); }
    void cleanup() {
        applyTheme(ThemeChoice::light);
        end();
    }

    void stepsAreSeenTogether() {
        openRunOf(realisticRun());
        const RunSteps& steps = page().steps();
        QCOMPARE(steps.newestWhole(), size_t{1});
        QCOMPARE(steps.advice(),
                 QString("✓ Resume from step-9750, the newest whole step. 1 newer step is not checked."));
        QVERIFY(shownText(page()).contains(steps.advice()));
        QCOMPARE(cell(1, 7), QString("✓ whole · newest whole step"));
        QCOMPARE(cell(0, 7), QString("being saved"));
        QCOMPARE(cell(18, 5), QString("63, before 64"));
        QCOMPARE(cell(18, 2), QString("9 h 30 min"));
        QCOMPARE(cell(39, 2), QString());
        QVERIFY2(steps.description(18).contains("Ranks lost: 63, before 64"),
                 qPrintable(steps.description(18)));
        QVERIFY(steps.description(1).contains("The newest whole step: resume from it"));
        click(page(), "Copy its path");
        QCOMPARE(QGuiApplication::clipboard()->text(), QString(kRunPath) + "/step-9750");
        for (const auto theme : {ThemeChoice::light, ThemeChoice::dark}) {
            applyTheme(theme);
            settle();
            picture(*window_, theme == ThemeChoice::dark ? "run-page-dark" : "run-page-light");
        }
    }

    void normsAreFollowed() {
        openRunOf(realisticRun());
        QVERIFY(!shownText(page()).contains("Norms over steps"));
        // Steps whose every value was checked have norms.
        for (RunRow& row : engine_->rows)
            if (row.verdict) row.verdict->report.level = ValidateLevel::values;
        page().steps().refresh();
        QTRY_VERIFY(page().steps().charts());
        const ValueCharts& charts = *page().steps().charts();
        QCOMPARE(charts.steps().size(), size_t{39});
        QCOMPARE(charts.charts()[0].name, std::string("model.layers.*.mlp.gate"));
        QVERIFY(
            shownText(page()).contains("▲ 1 expert of model.layers.0.mlp.experts dead at step-5000: 2 (all"));
        page().charts().setFocus();
        QTest::keyClick(&page().charts(), Qt::Key_Home);
        QVERIFY(
            page().charts().accessibleDescription().contains("The norm of model.layers.*.mlp.gate rises"));
        for (const auto theme : {ThemeChoice::light, ThemeChoice::dark}) {
            applyTheme(theme);
            settle();
            picture(*window_, theme == ThemeChoice::dark ? "run-norms-dark" : "run-norms-light");
        }
    }

    void noStepIsWhole() {
        openRunOf({rowOf(2, 60, 1 << 20, std::nullopt, 8), rowOf(1, 0, 1 << 20, Verdict::unsafe, 8)});
        QVERIFY(page().steps().advice().startsWith("✕ No step that was checked is whole"));
        QVERIFY(!shownButton(page(), "Copy its path"));
        QCOMPARE(page().steps().newestWhole(), kNoStep);
    }

    void timelineAndTableGoTogether() {
        openRunOf(realisticRun());
        RunTimeline& timeline = page().timeline();
        // The newest one is chosen first.
        QCOMPARE(timeline.current(), 0);
        timeline.setFocus();
        QTest::keyClick(&timeline, Qt::Key_Left);
        QCOMPARE(page().table().currentIndex().row(), 1);
        QVERIFY(timeline.accessibleDescription().contains("step-9750: ✓ whole"));
        QTest::keyClick(&timeline, Qt::Key_Home);
        QCOMPARE(page().table().currentIndex().row(), 39);
        QTest::keyClick(&timeline, Qt::Key_Right);
        QCOMPARE(page().table().currentIndex().row(), 38);
        page().table().setCurrentIndex(page().table().model()->index(5, 0));
        QCOMPARE(timeline.current(), 5);
        // Sorted the other way, rows of the table are others than those of the run.
        page().table().sortByColumn(0, Qt::AscendingOrder);
        QTest::keyClick(&timeline, Qt::Key_End);
        QCOMPARE(page().table().currentIndex().row(), 39);
        QVERIFY(shownText(page()).contains("file.truncated") == false);
        QString opened;
        connect(&page(), &RunPage::openRequested, this, [&](const QString& path) { opened = path; });
        QTest::keyClick(&timeline, Qt::Key_Left);
        QTest::keyClick(&timeline, Qt::Key_Return);
        QCOMPARE(opened, QString(kRunPath) + "/step-9750");
    }

    // The run goes on while two steps are selected.
    void aSelectionOutlivesANewListing() {
        std::vector<RunRow> rows = realisticRun();
        const RunRow newest = rows.front();
        rows.erase(rows.begin());
        openRunOf(rows);
        auto* selection = page().table().selectionModel();
        page().table().setCurrentIndex(page().table().model()->index(0, 0));
        selection->select(page().table().model()->index(3, 0),
                          QItemSelectionModel::Select | QItemSelectionModel::Rows);
        QVERIFY(shownButton(page(), "Compare")->isEnabled());
        int told = 0;
        connect(&page().steps(), &RunSteps::changed, this, [&] { ++told; });
        // A listing that says the same is not shown anew.
        page().steps().refresh();
        settle();
        QCOMPARE(told, 0);
        rows.insert(rows.begin(), newest);
        engine_->run.directory.steps.insert(engine_->run.directory.steps.begin(), newest.step);
        engine_->rows = rows;
        page().steps().refresh();
        QTRY_COMPARE(page().table().model()->rowCount(), 40);
        QCOMPARE(selection->selectedRows().size(), 2);
        QCOMPARE(page().table().currentIndex().row(), 1);
        QStringList asked;
        connect(&page(), &RunPage::compareRequested, this, [&](const QStringList& paths) { asked = paths; });
        click(page(), "Compare");
        QCOMPARE(asked.size(), 2);
        QVERIFY2(asked[0].endsWith("step-9000") && asked[1].endsWith("step-9750"),
                 qPrintable(asked.join(' ')));
    }

    void oneStep() {
        openRunOf({rowOf(1, 0, 1 << 20, Verdict::safe, 8)});
        RunTimeline& timeline = page().timeline();
        for (const int key : {Qt::Key_Left, Qt::Key_Right, Qt::Key_Home, Qt::Key_End})
            QTest::keyClick(&timeline, static_cast<Qt::Key>(key));
        QCOMPARE(timeline.current(), 0);
        QVERIFY(timeline.xOf(0) > 0 && timeline.xOf(0) < timeline.width());
        picture(*window_, "run-page-one-step");
    }

    void marksOfThousandsOfStepsKeepApart() {
        for (const int count : {0, 1, 2, 2000}) {
            RunTimeline timeline;
            timeline.resize(1200, 190);
            timeline.setMarks(manyMarks(count), noText);
            const double before = threadMilliseconds();
            timeline.grab();
            qInfo("%d steps: %.1f ms", count, threadMilliseconds() - before);
            picture(timeline, QStringLiteral("run-timeline-%1").arg(count));
            const std::vector<int> headed = timeline.headed();
            for (size_t i = 0; i < headed.size(); ++i) {
                for (size_t j = 0; j < i; ++j)
                    QVERIFY(std::abs(timeline.xOf(headed[i]) - timeline.xOf(headed[j])) >= 14);
            }
            for (int mark = 0; mark < count; ++mark) {
                const bool matters = mark == 0 || mark % 97 == 5;
                QVERIFY(!matters || std::ranges::find(headed, mark) != headed.end() || mark == 5);
            }
        }
    }

    void stepsWithoutTimesStandByTheirNumbers() {
        RunTimeline timeline;
        timeline.resize(1200, 190);
        std::vector<RunMark> marks = manyMarks(3);
        marks[1].savedMs = 0;
        marks[0].step = 10;
        timeline.setMarks(marks, noText);
        // 10, 2, 1.
        QVERIFY(timeline.xOf(0) - timeline.xOf(1) > 7 * (timeline.xOf(1) - timeline.xOf(2)));
        for (RunMark& mark : marks)
            mark.savedMs = 1;
        timeline.setMarks(marks, noText);
        QVERIFY(timeline.xOf(0) - timeline.xOf(1) > 7 * (timeline.xOf(1) - timeline.xOf(2)));
        marks[0].step = -1;
        timeline.setMarks(marks, noText);
        QCOMPARE(qRound(timeline.xOf(0) - timeline.xOf(1)), qRound(timeline.xOf(1) - timeline.xOf(2)));
    }
};

SHARDSCOPE_GUI_TEST_MAIN(RunPageTest)
#include "run_page_test.moc"
