// The states in which there is nothing, too little or something wrong to show: each with its text and with
// what can be done about it, reached as a user reaches it.
#include <QAbstractItemModelTester>
#include <QAction>
#include <QClipboard>
#include <QDir>
#include <QLabel>
#include <QListWidget>
#include <QProcess>
#include <QPushButton>
#include <QRegularExpression>
#include <QSettings>
#include <QTreeView>

#include <nlohmann/json.hpp>
#include <unistd.h>

#include "support/window_fixture.h"
#include "ui/models/tensor_tree_model.h"
#include "ui/models/texts.h"
#include "ui/pages/compare_page.h"
#include "ui/pages/convert_wizard.h"
#include "ui/pages/findings_panel.h"
#include "ui/pages/jobs_panel.h"
#include "ui/pages/placement_page.h"
#include "ui/pages/run_page.h"
#include "ui/pages/start_page.h"
#include "ui/pages/tree_panel.h"
#include "ui/pages/verdict_strip.h"
#include "ui/widgets/banner.h"
#include "ui/widgets/placement_map.h"

using namespace shardscope;
using namespace shardscope::ui;

namespace {

constexpr int kPatience = 120'000;  // milliseconds

void write(const QString& path, const QByteArray& bytes) {
    QFile file(path);
    QVERIFY(file.open(QIODevice::WriteOnly));
    QCOMPARE(file.write(bytes), bytes.size());
}

QByteArray contents(const QString& path) {
    QFile file(path);
    return file.open(QIODevice::ReadOnly) ? file.readAll() : QByteArray();
}

QStringList dataFiles(const QString& directory) {
    QStringList paths;
    for (const QString& name : QDir(directory).entryList({"*.distcp"}, QDir::Files))
        paths += directory + '/' + name;
    return paths;
}

// Says of each conversion that it needs more room than any disk has.
class HugeEngine : public ScriptedEngine {
  public:
    Result<Preview> preview(const CheckpointPtr& source, const std::string& destination,
                            const ConversionRequest& request, const TaskContext& context) override {
        auto preview = ScriptedEngine::preview(source, destination, request, context);
        if (preview.ok()) preview->plan.bytesWritten = uint64_t{1} << 60;
        return preview;
    }
};

}  // namespace

class StatesTest : public QObject, protected WindowFixture {
    Q_OBJECT

    void open(const QString& path) { WindowFixture::open(path, {1280, 720}); }

  private slots:
    void init() { start(); }
    void cleanup() { end(); }

    void nothingOpen() {
        window_ = windows_->newWindow();
        window_->resize(1280, 720);
        window_->show();
        QVERIFY(QTest::qWaitForWindowExposed(window_));
        QVERIFY(shownText(window_->startPage()).contains("Drop a directory or a file here"));
        QVERIFY(shownButton(window_->startPage(), "Open directory…"));
        click(window_->startPage(), "Open sample checkpoint");
        QTRY_VERIFY_WITH_TIMEOUT(session().hasFacts(), kPatience);
        // It is in the list the next time.
        session().close();
        QTRY_VERIFY(window_->startPage().isVisible());
        QCOMPARE(window_->startPage().findChild<QListWidget*>("recents")->count(), 1);
    }

    void notACheckpoint() {
        QTemporaryDir dir;
        write(dir.filePath("notes.txt"), "hello");
        write(dir.filePath("b.ckpt"), "no checkpoint either");
        open(dir.path());
        QCOMPARE(session().state(), Session::State::failed);
        const QString text = shownText(window_->startPage());
        QVERIFY2(text.contains("Unrecognized checkpoint"), qPrintable(text));
        QVERIFY2(text.contains("Looked for .metadata, *.index.json"), qPrintable(text));
        QVERIFY2(text.contains("1 .txt file") && text.contains("1 .ckpt file"), qPrintable(text));
        click(window_->startPage(), "Open “b.ckpt” alone");
        QTRY_VERIFY(session().path().endsWith("b.ckpt"));
        QTRY_COMPARE(session().state(), Session::State::failed);
        click(window_->startPage(), "Back to the start");
        QTRY_COMPARE(session().state(), Session::State::empty);
    }

    // Several checkpoints are a list to choose from, each with format and size; Enter opens one.
    void severalCheckpoints() {
        QTemporaryDir dir;
        for (const char* name : {"first", "second"})
            QCOMPARE(QProcess::execute("cp", {"-r", sampleCheckpoint(), dir.filePath(name)}), 0);
        QVERIFY(QDir().mkpath(dir.filePath("run/step-1")) && QDir().mkpath(dir.filePath("run/step-2")));
        QVERIFY(QDir().mkpath(dir.filePath("nothing")));
        open(dir.path());
        QVERIFY2(shownText(window_->startPage()).contains("This directory holds 3 checkpoints"),
                 qPrintable(shownText(window_->startPage())));
        auto* list = window_->startPage().findChild<QListWidget*>("several");
        QVERIFY2(list->item(0)->text().startsWith("first\nPyTorch distributed checkpoint (DCP) · "),
                 qPrintable(list->item(0)->text()));
        QCOMPARE(list->item(1)->text(), QStringLiteral("run\nrun, 2 steps"));
        picture(*window_, "state-several");
        list->setCurrentRow(2);
        QTest::keyClick(list, Qt::Key_Return);
        QTRY_VERIFY_WITH_TIMEOUT(session().hasFacts(), kPatience);
        QCOMPARE(session().path(), dir.filePath("second"));
    }

    // The only step of a run is what its directory means, tracker or not.
    void theOnlyStepOpens() {
        QTemporaryDir dir;
        QCOMPARE(QProcess::execute("cp", {"-r", sampleCheckpoint(), dir.filePath("iter_0000100")}), 0);
        write(dir.filePath("latest_checkpointed_iteration.txt"), "100");
        open(dir.path());
        QTRY_VERIFY_WITH_TIMEOUT(session().hasFacts(), kPatience);
        QCOMPARE(session().path(), dir.filePath("iter_0000100"));
    }

    void aRunIsListedAndJudged() {
        QTemporaryDir dir;
        for (const char* name : {"/step-1", "/step-2"}) {
            QVERIFY(QDir().mkpath(dir.path() + name));
            for (const QString& file : QDir(sampleCheckpoint()).entryList(QDir::Files | QDir::Hidden))
                QVERIFY(QFile::copy(sampleCheckpoint() + '/' + file, dir.path() + name + '/' + file));
        }
        QVERIFY(QFile::remove(dataFiles(dir.filePath("step-2"))[1]));
        open(dir.path());
        QCOMPARE(session().state(), Session::State::run);
        RunPage& page = window_->startPage().runPage();
        page.steps().setTimes(std::chrono::milliseconds(200), std::chrono::seconds(0));
        QTRY_COMPARE(page.table().model()->rowCount(), 2);
        // Verdicts fill in; the newest step is the first row.
        const auto cell = [&](int row, int column) {
            return page.table().model()->index(row, column).data().toString();
        };
        QTRY_COMPARE_WITH_TIMEOUT(cell(0, 7), QString("✕ do not resume: __1_0.distcp is missing"), kPatience);
        QTRY_COMPARE_WITH_TIMEOUT(cell(1, 7), QString("✓ whole · newest whole step"), kPatience);
        QCOMPARE(cell(0, 0), QString("step-2"));
        QTRY_VERIFY(shownText(page).contains("file.missing"));
        QVERIFY2(shownText(page).contains("1 not whole"), qPrintable(shownText(page)));
        picture(*window_, "state-run");
        // A step that is saved meanwhile appears and is judged; what is chosen stays.
        QVERIFY(QDir().mkpath(dir.filePath("fresh")));
        for (const QString& file : QDir(sampleCheckpoint()).entryList(QDir::Files | QDir::Hidden))
            QVERIFY(QFile::copy(sampleCheckpoint() + '/' + file, dir.filePath("fresh/") + file));
        QVERIFY(QDir().rename(dir.filePath("fresh"), dir.filePath("step-3")));
        QTRY_COMPARE_WITH_TIMEOUT(cell(0, 7), QString("✓ whole · newest whole step"), kPatience);
        QCOMPARE(page.table().currentIndex().row(), 1);
        // One click opens a step, in a window of its own.
        page.table().setCurrentIndex(page.table().model()->index(0, 0));
        click(page, "Open the step");
        MainWindow* step = windows_->open(dir.filePath("step-3"));
        QVERIFY(step != window_);
        QTRY_COMPARE_WITH_TIMEOUT(step->session().state(), Session::State::open, kPatience);
        // Two are compared: the older one opens, with the newer one as the other side.
        auto* selection = page.table().selectionModel();
        QVERIFY(!shownButton(page, "Compare")->isEnabled());
        selection->select(page.table().model()->index(2, 0),
                          QItemSelectionModel::Select | QItemSelectionModel::Rows);
        QCOMPARE(selection->selectedRows().size(), 2);
        click(page, "Compare");
        MainWindow* older = windows_->open(dir.filePath("step-1"));
        auto* compared = older->findChild<ComparePage*>();
        QTRY_VERIFY_WITH_TIMEOUT(compared->comparison(), kPatience);
        QCOMPARE(older->session().selection().current().page, Page::compare);
        QCOMPARE(QString::fromStdString(compared->comparison()->b->path), dir.filePath("step-3"));
        // Several are averaged: the last one is the source, those before it come first.
        page.table().selectAll();
        click(page, "Average…");
        MainWindow* last = windows_->open(dir.filePath("step-3"));
        QTRY_VERIFY_WITH_TIMEOUT(last->findChild<ConvertWizard*>(), kPatience);
        const ConversionSpec spec = last->findChild<ConvertWizard*>()->spec();
        QCOMPARE(spec.source, dir.filePath("step-3"));
        QCOMPARE(spec.average, (QStringList{dir.filePath("step-1"), dir.filePath("step-2")}));
        QVERIFY2(spec.destination.endsWith("step-3-average"), qPrintable(spec.destination));
        click(page, "Back to the start");
        QTRY_COMPARE(session().state(), Session::State::empty);
    }

    void aFileIsMissing() {
        const QString copy = copyCheckpoint(sampleCheckpoint());
        QVERIFY(QFile::remove(dataFiles(copy)[1]));
        open(copy);
        QCOMPARE(session().state(), Session::State::open);
        auto* strip = window_->findChild<VerdictStrip*>();
        QVERIFY2(strip->causes().contains("is missing"), qPrintable(strip->causes()));
        QVERIFY(!banner().isVisible());
        session().selection().setPage(Page::placement);
        auto* map = window_->findChild<PlacementMap*>();
        QTRY_VERIFY_WITH_TIMEOUT(map->matrix() && map->matrix()->facts() == session().facts(), kPatience);
        QCOMPARE(map->matrix()->columnCount(), 4U);
        QVERIFY(map->matrix()->column(1).fileMissing);
        picture(*window_, "state-missing-file");
        // A click on the cause leads to the file.
        session().selection().setPage(Page::overview);
        for (QLabel* label : strip->findChildren<QLabel*>()) {
            if (label->text().contains("href")) emit label->linkActivated("0");
        }
        QCOMPARE(session().selection().current().page, Page::files);
        QCOMPARE(session().catalog().files()[session().selection().current().file].state,
                 FileInfo::State::missing);
    }

    void metadataIsMissing() {
        const QString copy = copyCheckpoint(sampleCheckpoint());
        QVERIFY(QFile::rename(copy + "/.metadata", copy + "/.metadata.tmp"));
        open(copy);
        QCOMPARE(session().state(), Session::State::failed);
        const QString text = shownText(window_->startPage());
        QVERIFY2(text.contains("This checkpoint is not finished"), qPrintable(text));
        QVERIFY2(text.contains(".metadata.tmp"), qPrintable(text));
        picture(*window_, "state-not-finished");
        // The save ends.
        QVERIFY(QFile::rename(copy + "/.metadata.tmp", copy + "/.metadata"));
        click(window_->startPage(), "Look again");
        QTRY_VERIFY_WITH_TIMEOUT(session().hasFacts(), kPatience);
        QVERIFY(session().beingWritten().isEmpty());
    }

    void metadataIsUnreadable() {
        const QString copy = copyCheckpoint(sampleCheckpoint());
        QByteArray metadata = contents(copy + "/.metadata");
        // No pickle has this opcode.
        metadata[metadata.size() / 2] = static_cast<char>(0xff);
        for (qsizetype i = metadata.size() / 2; i < metadata.size() / 2 + 64; ++i)
            metadata[i] = static_cast<char>(0xff);
        write(copy + "/.metadata", metadata);
        open(copy);
        QCOMPARE(session().state(), Session::State::failed);
        const QString text = shownText(window_->startPage());
        QVERIFY2(text.contains("The metadata is damaged"), qPrintable(text));
        QVERIFY2(text.contains(".metadata"), qPrintable(text));
        QVERIFY2(text.contains(QRegularExpression("byte [0-9]+")), qPrintable(text));
        QVERIFY2(text.contains("byte 0xff is not a pickle opcode"), qPrintable(text));
        picture(*window_, "state-unreadable");
        click(window_->startPage(), "Copy the message");
        QVERIFY2(QApplication::clipboard()->text().contains("0xff", Qt::CaseInsensitive),
                 qPrintable(QApplication::clipboard()->text()));
    }

    void permissionDenied() {
        auto engine = std::make_shared<ScriptedEngine>();
        bool refused = true;
        engine->before = [&](const std::string& call, const TaskContext&) -> Status {
            if (call != "open" || !refused) return {};
            return systemError(EACCES, "open the file", "/secret/.metadata");
        };
        start(engine);
        const QString copy = copyCheckpoint(sampleCheckpoint());
        open(copy);
        const QString text = shownText(window_->startPage());
        QVERIFY2(text.contains("Access was refused") && text.contains("/secret/.metadata"), qPrintable(text));
        QVERIFY2(text.contains(QString("You are user %1, group %2").arg(::getuid()).arg(::getgid())),
                 qPrintable(text));
        QVERIFY2(text.contains("chmod -R a+rX"), qPrintable(text));
        refused = false;
        click(window_->startPage(), "Try again");
        QTRY_VERIFY_WITH_TIMEOUT(session().hasFacts(), kPatience);
    }

    // What has a dtype that nobody knows is named, and said not to have been checked.
    void unknownDtype() {
        const QString copy = copyCheckpoint(sampleCheckpoint());
        QByteArray metadata = contents(copy + "/.metadata");
        const qsizetype at = metadata.indexOf("float32");
        QVERIFY(at > 0);
        metadata.replace(at, 7, "float33");
        write(copy + "/.metadata", metadata);
        open(copy);
        QCOMPARE(session().state(), Session::State::open);
        const QString said = shownText(*window_->findChild<VerdictStrip*>());
        QVERIFY2(said.contains("could not be included"), qPrintable(said));
        // Its row stays.
        TensorTreeModel model(session());
        const QAbstractItemModelTester tester(&model, QAbstractItemModelTester::FailureReportingMode::QtTest);
        QModelIndex group;
        for (int row = 0; row < model.rowCount(); ++row) {
            const QModelIndex index = model.index(row, 0);
            if (model.notTaken(index)) group = index;
        }
        QVERIFY(group.isValid());
        QCOMPARE(group.data().toString(), QStringLiteral("Not included"));
        QVERIFY(model.rowCount(group) > 0);
        const QModelIndex first = model.index(0, TensorTreeModel::shape, group);
        QVERIFY2(first.data().toString().contains("'float33'") || first.data().toString().contains("float33"),
                 qPrintable(first.data().toString()));
        QCOMPARE(model.parent(first), group);
        QCOMPARE(model.tensor(first), kNone);
        auto* view = window_->tree().findChild<QTreeView*>();
        view->expandAll();
        const QModelIndex shown = view->model()->index(0, 0, view->model()->index(group.row(), 0));
        QVERIFY(shown.isValid());
        view->setCurrentIndex(shown);
        QCOMPARE(view->currentIndex(), shown);
        QVERIFY(session().selection().current().module.isEmpty());
        picture(*window_, "state-unknown-dtype");
        window_->findings().setLevel(ValidateLevel::values);
        window_->findings().validate();
        QTRY_VERIFY_WITH_TIMEOUT(session().validation().report() && !session().validation().running(),
                                 kPatience);
        const QString notChecked = notCheckedText(*session().validation().report());
        QVERIFY2(notChecked.contains("could not be included"), qPrintable(notChecked));
        QVERIFY(session().validation().report()->verdict != Verdict::safe);
        QVERIFY(shownText(*window_).contains("could not be included"));
    }

    void emptyFilter() {
        open(sampleCheckpoint());
        session().selection().setFilter("nothing-like-this");
        QTRY_COMPARE(session().filtered().tensors().size(), size_t{0});
        QTRY_VERIFY(shownText(window_->tree()).contains("0 of 18 tensors match “nothing-like-this”"));
        click(window_->tree(), "Clear the filter");
        QTRY_COMPARE(session().filtered().tensors().size(), size_t{18});
    }

    // A file chooses the names of its tensors. With std::regex a filter over 300,000 characters ended the
    // window.
    void filtersNamesOfAMegabyte() {
        const std::string longest(1'000'000, 'a'), longer(300'000, 'b');
        const nlohmann::json entry{{"dtype", "F32"}, {"shape", {1}}};
        nlohmann::json header;
        uint64_t at = 0;
        for (const std::string& name : {longest, longer, std::string("w")}) {
            header[name] = entry;
            header[name]["data_offsets"] = {at, at + 4};
            at += 4;
        }
        const std::string text = header.dump();
        QByteArray file;
        for (int i = 0; i < 8; ++i)
            file += static_cast<char>(text.size() >> (8 * i));
        file += QByteArray::fromStdString(text) + QByteArray(12, '\0');
        QTemporaryDir dir;
        write(dir.filePath("long.safetensors"), file);
        open(dir.filePath("long.safetensors"));
        QTRY_COMPARE(session().filtered().tensors().size(), size_t{3});
        for (const auto& [filter, hits] :
             {std::pair{"name:~(.*)z", size_t{0}}, std::pair{"name:~(a*)*b", size_t{1}},
              std::pair{"name:~^a+$", size_t{1}}, std::pair{"name:*b", size_t{1}}, std::pair{"w", size_t{1}},
              std::pair{"name:~^(a|aa)+$", size_t{1}}}) {
            session().selection().setFilter(filter);
            QTRY_COMPARE_WITH_TIMEOUT(session().filtered().tensors().size(), hits, kPatience);
        }
        session().selection().setFilter(QString());
        QTRY_COMPARE(session().filtered().tensors().size(), size_t{3});
        // Every page takes such a name.
        for (const Page page : {Page::overview, Page::placement, Page::tensor, Page::files}) {
            session().selection().selectTensor(0);
            session().selection().setPage(page);
            QVERIFY(!window_->grab().isNull());
        }
    }

    void changedUnderneath() {
        const QString copy = copyCheckpoint(sampleCheckpoint());
        open(copy);
        QVERIFY(QFile::resize(dataFiles(copy)[0], 5));
        session().checkForChanges();
        QTRY_VERIFY_WITH_TIMEOUT(
            banner().text().contains("The checkpoint changed. '__0_0.distcp' changed at"), kPatience);
        QVERIFY(session().beingWritten().isEmpty());
        click(banner(), "Reload");
        QTRY_VERIFY_WITH_TIMEOUT(session().hasFacts() && session().facts()->damagedTensors > 0, kPatience);
    }

    // Growing files: nothing is validated until they stand still.
    void beingWritten() {
        const QString copy = copyCheckpoint(sampleCheckpoint());
        const QString last = dataFiles(copy).last();
        const QByteArray whole = contents(last);
        QVERIFY(QFile::resize(last, whole.size() / 2));
        open(copy);
        showPane("findings");
        QVERIFY(session().beingWritten().isEmpty());
        write(last, whole.left(whole.size() * 3 / 4));
        session().checkForChanges();
        QTRY_VERIFY_WITH_TIMEOUT(banner().text().contains("still being written"), kPatience);
        QVERIFY2(banner().text().contains("'" + QFileInfo(last).fileName() + "' has grown to"),
                 qPrintable(banner().text()));
        auto* validate = shownButton(window_->findings(), "Validate");
        QVERIFY(validate && !validate->isEnabled());
        QVERIFY(shownText(window_->findings()).contains("Still being written"));
        QVERIFY(shownText(*window_->tabs().currentWidget()).contains("Still being written: not validated"));
        auto* strip = shownButton(*window_->tabs().currentWidget(), "Validate");
        QVERIFY(strip && !strip->isEnabled());
        window_->findings().validate();
        QVERIFY(!session().validation().running());
        picture(*window_, "state-being-written");
        // The save ends while one looks again: the banner goes by itself.
        write(last, whole);
        bool doubted = false;
        connect(&session(), &Session::stateChanged, window_, [&] {
            if (session().state() == Session::State::open) doubted = !session().beingWritten().isEmpty();
        });
        click(banner(), "Look again");
        QTRY_VERIFY_WITH_TIMEOUT(session().hasFacts() && session().facts()->damagedTensors == 0, kPatience);
        QVERIFY(doubted);
        session().checkForChanges();
        QTRY_VERIFY_WITH_TIMEOUT(session().beingWritten().isEmpty(), kPatience);
        QTRY_VERIFY(!banner().isVisible());
        // It is checked without being asked for, and may be checked again.
        QTRY_VERIFY_WITH_TIMEOUT(session().validation().report() && !session().validation().running(),
                                 kPatience);
        QCOMPARE(session().validation().report()->verdict, Verdict::safe);
        QVERIFY(validate->isEnabled());
        window_->findings().validate();
        QTRY_VERIFY_WITH_TIMEOUT(session().validation().report() && !session().validation().running(),
                                 kPatience);
        QCOMPARE(session().validation().report()->verdict, Verdict::safe);
    }

    // They stand still without anybody having looked again: what is shown is old.
    void writtenMeanwhile() {
        const QString copy = copyCheckpoint(sampleCheckpoint());
        const QString last = dataFiles(copy).last();
        const QByteArray whole = contents(last);
        QVERIFY(QFile::resize(last, 100));
        open(copy);
        write(last, whole);
        session().checkForChanges();
        QTRY_VERIFY_WITH_TIMEOUT(!session().beingWritten().isEmpty(), kPatience);
        QTRY_VERIFY_WITH_TIMEOUT((session().checkForChanges(), session().beingWritten().isEmpty()),
                                 kPatience);
        QTRY_VERIFY(banner().text().contains("The checkpoint changed"));
        QVERIFY(shownButton(banner(), "Reload"));
    }

    // Traces of a save: it may have died, which only the user can know.
    void tracesOfASave() {
        const QString copy = copyCheckpoint(sampleCheckpoint());
        write(copy + "/.metadata.tmp", "half of a pickle");
        open(copy);
        showPane("findings");
        QVERIFY2(banner().text().contains("still being written, or its save died. '.metadata.tmp'"),
                 qPrintable(banner().text()));
        QVERIFY(!shownButton(window_->findings(), "Validate")->isEnabled());
        click(banner(), "Mark as finished");
        QTRY_VERIFY(!banner().isVisible());
        // It is checked without being asked for.
        QTRY_VERIFY_WITH_TIMEOUT(session().validation().report() && !session().validation().running(),
                                 kPatience);
        QVERIFY(shownButton(window_->findings(), "Validate")->isEnabled());
        // The same from the dock; it does not outlast a reload.
        session().reload();
        QTRY_VERIFY_WITH_TIMEOUT(session().hasFacts() && !session().beingWritten().isEmpty(), kPatience);
        click(window_->findings(), "Mark as finished");
        QTRY_VERIFY(session().beingWritten().isEmpty());
        window_->findings().validate();
        QTRY_VERIFY_WITH_TIMEOUT(session().validation().report() && !session().validation().running(),
                                 kPatience);
    }

    void stagingOfAConversion() {
        QTemporaryDir dir;
        const QString staging = dir.filePath(".result.shardscope-partial");
        QVERIFY(QDir().mkpath(staging + "/data"));
        write(staging + "/lock", "");
        QCOMPARE(resultOfStaging(staging + "/data/"), dir.filePath("result"));
        QVERIFY(resultOfStaging(dir.path()).isEmpty());
        QVERIFY(resultOfStaging("/").isEmpty());
        QVERIFY(resultOfStaging("").isEmpty());
        QVERIFY(resultOfStaging(dir.filePath(".shardscope-partial")).isEmpty());
        open(staging);
        QCOMPARE(session().state(), Session::State::failed);
        QString text = shownText(window_->startPage());
        QVERIFY2(text.contains("A conversion is running here, or was interrupted"), qPrintable(text));
        QVERIFY2(text.contains("'" + dir.filePath("result") + "'"), qPrintable(text));
        QVERIFY(shownButton(window_->startPage(), "Look again"));
        // What it has written so far can be looked at.
        for (const QFileInfo& file : QDir(sampleCheckpoint()).entryInfoList(QDir::Files | QDir::Hidden))
            QVERIFY(QFile::copy(file.filePath(), staging + "/data/" + file.fileName()));
        open(staging + "/data");
        QCOMPARE(session().state(), Session::State::open);
        QVERIFY2(banner().text().contains("A conversion is writing '" + dir.filePath("result") + "' here"),
                 qPrintable(banner().text()));
        showPane("findings");
        QVERIFY(!shownButton(window_->findings(), "Validate")->isEnabled());
    }

    void outOfSpaceBeforeTheStart() {
        start(std::make_shared<HugeEngine>());
        open(sampleCheckpoint());
        ConvertWizard* wizard = window_->convert();
        QVERIFY(wizard);
        ConversionSpec spec;
        QTemporaryDir dir;
        spec.destination = dir.filePath("out");
        wizard->setSpec(spec);
        const auto said = [&] { return shownText(*wizard); };
        QTRY_VERIFY2_WITH_TIMEOUT(
            said().contains("The result needs 1.00 EiB, but only") && said().contains("are free there"),
            qPrintable(said()), kPatience);
        wizard->showPage(kWizardPagePlan);
        QVERIFY(shownButton(*wizard, "Start") && !shownButton(*wizard, "Start")->isEnabled());
        picture(*wizard, "state-no-space");
        wizard->close();
    }

    // The job says so and keeps what it has; with room again it continues.
    void outOfSpaceDuringAJob() {
        QTemporaryDir dir;
        const QString program = dir.filePath("fills-the-disk");
        write(program,
              "#!/bin/sh\n"
              "for word in \"$@\"; do [ \"$word\" = --resume ] && exec '" +
                  QByteArray(SHARDSCOPE_PROGRAM) +
                  "' \"$@\"; done\n"
                  "echo '{\"schema\":\"shardscope.error/1\",\"code\":\"no-space\",\"message\":\"there is no "
                  "space left on the disk\",\"file\":\"model.safetensors\",\"hint\":\"free some space and "
                  "resume\"}'\nexit 4\n");
        QVERIFY(QFile::setPermissions(program, QFile::ReadOwner | QFile::WriteOwner | QFile::ExeOwner));
        JobStore store(nullptr, dir.filePath("jobs"));
        store.setProgram(program);
        JobsPanel panel(store);
        panel.resize(1000, 360);
        panel.show();
        QVERIFY(QTest::qWaitForWindowExposed(&panel));
        ConversionSpec spec;
        spec.source = sampleCheckpoint();
        spec.destination = dir.filePath("out");
        spec.format = QStringLiteral("safetensors");
        const auto id = store.start(spec, QStringLiteral("sample to safetensors"));
        QVERIFY(id.ok());
        panel.selectJob(*id);
        QTRY_VERIFY_WITH_TIMEOUT(store.find(*id) && store.find(*id)->record.state == JobState::failed,
                                 kPatience);
        QTRY_VERIFY_WITH_TIMEOUT(shownText(panel).contains("no space left", Qt::CaseInsensitive), kPatience);
        QVERIFY2(shownText(panel).contains("free some space", Qt::CaseInsensitive),
                 qPrintable(shownText(panel)));
        picture(panel, "state-no-space-job");
        click(panel, "Resume");
        QTRY_COMPARE_WITH_TIMEOUT(store.find(*id)->record.state, JobState::done, kPatience);
        QVERIFY(QFileInfo::exists(spec.destination));
    }
};

SHARDSCOPE_GUI_TEST_MAIN(StatesTest)
#include "states_test.moc"
