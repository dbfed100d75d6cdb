// The window on checkpoints of another host, over a real sshd of this machine (tests/cluster/ssh-host):
// opening, looking at everything, losing the connection, and asking places whether a conversion can work
// there.
#include <QAction>
#include <QClipboard>
#include <QComboBox>
#include <QDir>
#include <QDropEvent>
#include <QElapsedTimer>
#include <QLabel>
#include <QLineEdit>
#include <QListWidget>
#include <QMimeData>
#include <QProcess>
#include <QSpinBox>
#include <QTabWidget>
#include <QTreeWidget>
#include <csignal>
#include <filesystem>

#include "support/window_fixture.h"
#include "ui/bridge/hosts.h"
#include "ui/models/host_report.h"
#include "ui/models/texts.h"
#include "ui/pages/compare_page.h"
#include "ui/pages/convert_wizard.h"
#include "ui/pages/start_page.h"
#include "ui/widgets/banner.h"
#include "ui/window/open_dialog.h"

using namespace shardscope;
using namespace shardscope::ui;

namespace {

constexpr int kPatience = 120'000;  // milliseconds

template <class T>
T* named(QWidget& widget, const char* name) {
    T* found = widget.findChild<T*>(QString::fromLatin1(name));
    if (!found) qFatal("there is no '%s'", name);
    return found;
}

QString treeText(const QTreeWidget& tree) {
    QString text;
    for (int i = 0; i < tree.topLevelItemCount(); ++i) {
        const QTreeWidgetItem* row = tree.topLevelItem(i);
        text += row->text(0) + ": " + row->text(1) + '\n';
        for (int c = 0; c < row->childCount(); ++c)
            text += "  " + row->child(c)->text(1) + '\n';
    }
    return text;
}

qint64 parentOf(const QString& pid) {
    QFile file("/proc/" + pid + "/stat");
    if (!file.open(QIODevice::ReadOnly)) return 0;
    const QByteArray stat = file.readAll();
    return stat.mid(stat.lastIndexOf(')') + 2).split(' ').value(1).toLongLong();
}

// Kills the processes whose program begins with `program` and whose first word is `word`.
void killThose(const QString& program, const QByteArray& word) {
    for (const QString& name : QDir(QStringLiteral("/proc")).entryList(QDir::Dirs)) {
        QFile file("/proc/" + name + "/cmdline");
        const pid_t pid = name.toInt();
        if (pid <= 0 || !file.open(QIODevice::ReadOnly)) continue;
        const QList<QByteArray> words = file.readAll().split('\0');
        // Of all that sleeps, only what this test has started.
        const bool own = program.startsWith('/') || parentOf(name) == QCoreApplication::applicationPid();
        if (own && words.value(0).startsWith(program.toUtf8()) && words.value(1) == word) kill(pid, SIGKILL);
    }
}

}  // namespace

class RemoteWindowTest : public QObject, protected WindowFixture {
    Q_OBJECT

    QTemporaryDir host_;
    QString missing_;  // why there is no host

    void useSsh(const QString& program) { qputenv("SHARDSCOPE_SSH", program.toLocal8Bit()); }
    // In ssh's place.
    void useScript(const QByteArray& script) {
        const QString path = host_.filePath("script");
        QFile file(path);
        QVERIFY(file.open(QIODevice::WriteOnly | QIODevice::Truncate));
        file.write("#!/bin/sh\n" + script);
        file.close();
        file.setPermissions(QFile::ReadOwner | QFile::WriteOwner | QFile::ExeOwner);
        useSsh(path);
    }
    static QString sampleThere(const QString& host = QStringLiteral("node1")) {
        return QStringLiteral("ssh://") + host +
               QString::fromStdString(std::filesystem::canonical(sampleCheckpoint().toStdString()).string());
    }
    // Ends every connection to the host, as a cut cable does.
    void killAgents() const { killThose(host_.path() + "/home/.cache/shardscope", "agent"); }
    // What a cancelled connection leaves behind ends with ssh's patience; here at once.
    static void killSleepers() { killThose(QStringLiteral("sleep"), "60"); }

  private slots:
    void initTestCase() {
        std::signal(SIGPIPE, SIG_IGN);  // as the window does
        QProcess process;
        process.start(QStringLiteral(SHARDSCOPE_SSH_HOST), {host_.path()});
        QVERIFY(process.waitForFinished(kPatience));
        if (process.exitCode() == 77)
            missing_ = QString::fromUtf8(process.readAllStandardOutput()).trimmed();
        else
            QVERIFY2(process.exitCode() == 0, process.readAllStandardError());
    }
    void cleanupTestCase() {
        QFile pid(host_.filePath("sshd.pid"));
        if (pid.open(QIODevice::ReadOnly))
            QProcess::execute(QStringLiteral("kill"), {QString::fromLatin1(pid.readAll().trimmed())});
    }
    void init() {
        start(localEngine(QStringLiteral(SHARDSCOPE_PROGRAM)));
        useSsh(host_.filePath("ssh"));
    }
    void cleanup() { end(); }

    void paths() {
        QCOMPARE(hostOf("ssh://me@node7:2222/data/x"), QStringLiteral("me@node7:2222"));
        QCOMPARE(hostOf("/data/x"), QString());
        QCOMPARE(pathThere("ssh://node7/data/x"), QStringLiteral("/data/x"));
        QCOMPARE(wholePath("ssh://node7/data/x//"), QStringLiteral("ssh://node7/data/x"));
        QCOMPARE(wholePath("ssh://node7/"), QStringLiteral("ssh://node7/"));
        QCOMPARE(titleOf("ssh://node7/data/x"), QStringLiteral("x on node7"));
        QCOMPARE(titleOf("/data/x"), QStringLiteral("x"));
        QCOMPARE(sshWords("ssh://me@node7:2222/x").join(' '), QStringLiteral("ssh -p 2222 me@node7"));
    }

    void openOnHost() {
        if (!missing_.isEmpty()) QSKIP(qPrintable(missing_));
        window_ = windows_->newWindow();
        window_->resize(1280, 720);
        window_->show();
        QVERIFY(QTest::qWaitForWindowExposed(window_));
        QVERIFY(actionOf(*window_, "Open on host…"));
        shoot(*window_, "start-host");
        click(window_->startPage(), "Open on host…");
        auto* dialog = window_->findChild<OpenDialog*>();
        QVERIFY(dialog && dialog->isVisible());
        QPushButton* open = shownButton(*dialog, "Open");
        QVERIFY(open && !open->isEnabled());
        const QString path = sampleThere();
        named<QComboBox>(*dialog, "host")->setFocus();
        QTest::keyClicks(named<QComboBox>(*dialog, "host"), "node1");
        QTest::keyClicks(named<QLineEdit>(*dialog, "pathThere"), "relative");
        QVERIFY(!open->isEnabled());
        QVERIFY(shownText(*dialog).contains("begins with '/'"));
        named<QLineEdit>(*dialog, "pathThere")->clear();
        QTest::keyClicks(named<QLineEdit>(*dialog, "pathThere"), pathThere(path));
        QVERIFY(open->isEnabled());
        picture(*dialog, "open-on-host");
        QTest::mouseClick(open, Qt::LeftButton);
        QVERIFY(window_->session().openingStage().contains("Connecting to node1") ||
                session().state() != Session::State::opening);
        waitUntilOpen();
        QVERIFY2(session().state() == Session::State::open,
                 session().error() ? describe(*session().error()).c_str() : "");
        QCOMPARE(session().path(), path);
        QVERIFY(window_->windowTitle().contains("on node1"));
        picture(*window_, "remote-overview");

        // The same as here.
        const auto here = openSession(sampleCheckpoint());
        QCOMPARE(session().catalog().tensorCount(), here->catalog().tensorCount());
        QCOMPARE(session().catalog().totalBytes(), here->catalog().totalBytes());
        QCOMPARE(session().filePath("x"), path + "/x");

        // It is in the list the next time, and its host is proposed.
        QCOMPARE(windows_->recents().list().front().path, path);
        auto* again = window_->openOnHost();
        QCOMPARE(named<QComboBox>(*again, "host")->findText("node1"), 0);
        QCOMPARE(again->path(), path);
        // A whole path goes into both fields.
        named<QLineEdit>(*again, "pathThere")->setText("ssh://me@node9:22/data/y");
        QCOMPARE(again->path(), QStringLiteral("ssh://me@node9:22/data/y"));
        again->close();

        // Commands repeat it; what the command line cannot do from here runs there.
        QCOMPARE(session().command("info"), "shardscope info " + path);
        QVERIFY(session().command("extract", {"a", "b.npy"}).startsWith("ssh node1 'shardscope extract /"));
        const QString python = pythonSnippet(session().path(), session().directory(), session().catalog(), 0);
        QVERIFY(python.startsWith("# on node1\n") && !python.contains("ssh://"));
    }

    void everyViewWorks() {
        if (!missing_.isEmpty()) QSKIP(qPrintable(missing_));
        open(sampleThere());
        QCOMPARE(session().state(), Session::State::open);
        for (const Page page : {Page::placement, Page::tensor, Page::files, Page::compare, Page::objects}) {
            session().selection().setPage(page);
            QCoreApplication::processEvents();
        }
        session().validation().start(ValidateLevel::values);
        QTRY_VERIFY_WITH_TIMEOUT(!session().validation().running() && session().validation().report(),
                                 kPatience);
        QCOMPARE(session().validation().report()->verdict, Verdict::safe);
        QVERIFY(session().changedFiles().isEmpty());

        session().selection().selectTensor(0);
        session().selection().setPage(Page::tensor);
        QWidget* tensorPage = window_->tabs().currentWidget();
        auto* parts = tensorPage->findChild<QTabWidget*>();
        parts->setCurrentIndex(parts->count() - 1);
        QTRY_VERIFY(shownButton(*tensorPage, "Read values"));
        click(*tensorPage, "Read values");
        QTRY_VERIFY_WITH_TIMEOUT(shownText(*tensorPage).contains("values read"), kPatience);
        picture(*window_, "remote-tensor");

        // Compared with what is here.
        auto* compare = window_->findChild<ComparePage*>();
        session().selection().setPage(Page::compare);
        compare->setOtherPath(sampleCheckpoint());
        click(*compare, "Compare");
        QTRY_VERIFY_WITH_TIMEOUT(compare->comparison(), kPatience);
        QVERIFY2(compare->summary().startsWith("Equal"), qPrintable(compare->summary()));

        QTemporaryDir out;
        window_->saveIndexAs(out.filePath("there.ssidx"));
        QTRY_VERIFY_WITH_TIMEOUT(banner().text().contains("Saved the index"), kPatience);

        // Dropped as text on an empty window.
        QPointer<MainWindow> other = windows_->newWindow();
        other->show();
        QMimeData mime;
        mime.setText(sampleThere("node2"));
        QDragEnterEvent enter(QPoint(10, 10), Qt::CopyAction, &mime, Qt::LeftButton, Qt::NoModifier);
        QCoreApplication::sendEvent(other, &enter);
        QDropEvent drop(QPointF(10, 10), Qt::CopyAction, &mime, Qt::LeftButton, Qt::NoModifier);
        QCoreApplication::sendEvent(other, &drop);
        QCOMPARE(other->session().path(), sampleThere("node2"));
        QTRY_VERIFY_WITH_TIMEOUT(other->session().hasFacts(), kPatience);
    }

    void aLostConnectionLeavesTheView() {
        if (!missing_.isEmpty()) QSKIP(qPrintable(missing_));
        open(sampleThere());
        const size_t tensors = session().catalog().tensorCount();
        QTRY_VERIFY_WITH_TIMEOUT(session().tasks().running().empty(), kPatience);
        killAgents();
        QTRY_VERIFY_WITH_TIMEOUT(session().connection().lost(), kPatience);
        QVERIFY2(banner().text().startsWith("The connection to node1 was lost."),
                 qPrintable(banner().text()));
        QCOMPARE(session().state(), Session::State::open);
        QCOMPARE(session().catalog().tensorCount(), tensors);
        QVERIFY(window_->tabs().isVisible());
        picture(*window_, "remote-lost");

        // While the host is away the attempt fails, with ssh's words.
        useScript("echo 'ssh: connect to host node1 port 22: No route to host' >&2; exit 255\n");
        QTRY_VERIFY(shownButton(banner(), "Reconnect"));
        click(banner(), "Reconnect");
        QTRY_VERIFY2_WITH_TIMEOUT(banner().text().contains("No route to host"), qPrintable(banner().text()),
                                  kPatience);
        // One that does not come back can be given up.
        useScript("exec sleep 60\n");
        QTRY_VERIFY(shownButton(banner(), "Reconnect"));
        click(banner(), "Reconnect");
        QTRY_VERIFY(banner().text().contains("Connecting to node1"));
        QElapsedTimer timer;
        timer.start();
        QTRY_VERIFY(shownButton(banner(), "Cancel"));
        click(banner(), "Cancel");
        QTRY_VERIFY(banner().text().contains("was lost"));
        QVERIFY(timer.elapsed() < 20'000);
        killSleepers();
        useSsh(host_.filePath("ssh"));
        QTRY_VERIFY(shownButton(banner(), "Reconnect"));
        click(banner(), "Reconnect");
        QTRY_VERIFY_WITH_TIMEOUT(!session().connection().lost() && !session().connection().reconnecting(),
                                 kPatience);
        QTRY_VERIFY(!banner().isVisible());
        // What was open is open again.
        session().validation().start(ValidateLevel::values);
        QTRY_VERIFY_WITH_TIMEOUT(!session().validation().running(), kPatience);
        QVERIFY(session().validation().report() && session().validation().report()->verdict == Verdict::safe);

        // Whatever asks for more connects again by itself.
        QTRY_VERIFY_WITH_TIMEOUT(session().tasks().running().empty(), kPatience);
        killAgents();
        QTRY_VERIFY_WITH_TIMEOUT(session().connection().lost(), kPatience);
        session().validation().start(ValidateLevel::files);
        QTRY_VERIFY_WITH_TIMEOUT(!session().validation().running() && !session().connection().lost(),
                                 kPatience);
        QVERIFY(session().validation().report()->verdict == Verdict::safe);
    }

    void whatSshSaysIsShown() {
        if (!missing_.isEmpty()) QSKIP(qPrintable(missing_));
        open(sampleThere("stranger"));
        QCOMPARE(session().state(), Session::State::failed);
        const QString text = shownText(window_->startPage());
        QVERIFY2(text.contains("Host key verification failed"), qPrintable(text));
        QVERIFY2(text.contains("ssh stranger"), qPrintable(text));
        picture(*window_, "remote-stranger");
        // What was tried stands in the dialog.
        click(window_->startPage(), "Open with options…");
        auto* dialog = window_->findChild<OpenDialog*>();
        QCOMPARE(named<QComboBox>(*dialog, "host")->currentText(), QStringLiteral("stranger"));
        dialog->close();
    }

    void whatIsNotThere() {
        if (!missing_.isEmpty()) QSKIP(qPrintable(missing_));
        open(QStringLiteral("ssh://node1/nowhere"));
        QVERIFY(shownText(window_->startPage()).contains("There is nothing at this path"));
        open(QStringLiteral("ssh://node1"));
        QVERIFY(shownText(window_->startPage()).contains("ssh://"));
        open(QStringLiteral("ssh://-oProxyCommand=touch/x"));
        QCOMPARE(session().state(), Session::State::failed);
        open(QStringLiteral("ssh://nowhere/x"));
        QVERIFY(shownText(window_->startPage()).contains("nowhere"));
    }

    void connectingCanBeCancelled() {
        useScript("exec sleep 60\n");
        window_ = windows_->open(QStringLiteral("ssh://node7/data/x"));
        QVERIFY(QTest::qWaitForWindowExposed(window_));
        QTRY_VERIFY(shownText(window_->startPage()).contains("Connecting to node7"));
        QElapsedTimer timer;
        timer.start();
        click(window_->startPage(), "Cancel");
        QTRY_COMPARE(session().state(), Session::State::empty);
        QVERIFY(timer.elapsed() < 20'000);
        killSleepers();
    }

    // A conversion of a checkpoint on another host.
    void convertThere() {
        if (!missing_.isEmpty()) QSKIP(qPrintable(missing_));
        QTemporaryDir out;
        open(sampleThere());
        ConvertWizard* wizard = window_->convert();
        QVERIFY(wizard);
        ConversionSpec spec = wizard->spec();
        QCOMPARE(spec.source, pathThere(sampleThere()));
        QCOMPARE(spec.host, QStringLiteral("node1"));
        spec.destination = out.filePath("made");
        spec.format = QStringLiteral("safetensors");
        wizard->setSpec(spec);
        const auto status = [&] { return named<QLabel>(*wizard, "wizardStatus")->text(); };
        QTRY_VERIFY2_WITH_TIMEOUT(status().startsWith("✓"), qPrintable(status()), kPatience);
        click(*wizard, "Copy as command");
        QCOMPARE(QGuiApplication::clipboard()->text(),
                 QStringLiteral("shardscope convert ssh://node1%1 ssh://node1%2 --to safetensors")
                     .arg(spec.source, spec.destination));
        // What that host does not have is said before the start.
        ConversionSpec odd = wizard->spec();
        odd.like = sampleCheckpoint();
        wizard->setSpec(odd);
        QTRY_VERIFY2_WITH_TIMEOUT(status().contains("which does not have"), qPrintable(status()), kPatience);
        odd.like.clear();
        odd.destination = QStringLiteral("made");
        wizard->setSpec(odd);
        QTRY_VERIFY2_WITH_TIMEOUT(status().contains("an absolute path there"), qPrintable(status()),
                                  kPatience);
        wizard->setSpec(spec);

        wizard->showPage(kWizardPageWhere);
        auto* places = named<QTreeWidget>(*wizard, "places");
        QTRY_VERIFY_WITH_TIMEOUT(shownButton(*wizard, "Check") && shownButton(*wizard, "Check")->isEnabled(),
                                 kPatience);
        click(*wizard, "Check");
        QTRY_VERIFY2_WITH_TIMEOUT(treeText(*places).startsWith("✓ node1: Ready."),
                                  qPrintable(treeText(*places)), kPatience);
        QVERIFY2(treeText(*places).contains("is seen there, with the same"), qPrintable(treeText(*places)));
        picture(*wizard, "wizard-where-there");

        // The work is done there, and what it says of itself comes here.
        QTRY_VERIFY2_WITH_TIMEOUT(status().startsWith("✓"), qPrintable(status()), kPatience);
        wizard->showPage(kWizardPagePlan);
        click(*wizard, "Start");
        QTRY_VERIFY_WITH_TIMEOUT(
            !windows_->jobs().jobs().empty() && windows_->jobs().jobs().front()->is(JobState::done),
            kPatience);
        {
            const auto job = windows_->jobs().jobs().front();
            QVERIFY(job->report && job->report->verified);
            QCOMPARE(job->destination(), QStringLiteral("ssh://node1") + spec.destination);
            QVERIFY(job->arguments().contains(job->destination()));
            QVERIFY(job->busy().compute > 0);
            QVERIFY(QFileInfo::exists(spec.destination));
        }
        wizard = window_->convert();
        spec.destination = out.filePath("made-again");
        wizard->setSpec(spec);
        wizard->showPage(kWizardPageWhere);
        places = named<QTreeWidget>(*wizard, "places");

        // This machine sees the same path, so it can plan the work of that host.
        auto* where = named<QComboBox>(*wizard, "where");
        where->setCurrentIndex(where->findText("Other hosts, through your ssh"));
        emit where->activated(where->currentIndex());
        QCOMPARE(wizard->spec().where, QStringLiteral("ssh:node1"));
        QCOMPARE(places->topLevelItemCount(), 0);
        QTRY_VERIFY2_WITH_TIMEOUT(status().startsWith("✓"), qPrintable(status()), kPatience);
        QVERIFY(wizard->spec().commandLine().startsWith("shardscope jobs run --on ssh:node1 convert /"));
        wizard->showPage(kWizardPagePlan);
        click(*wizard, "Start");
        QTRY_VERIFY_WITH_TIMEOUT(
            windows_->jobs().jobs().size() == 2 && windows_->jobs().jobs().front()->is(JobState::done),
            kPatience);
        QVERIFY(!windows_->jobs().jobs().front()->workers.empty());
        QVERIFY(QFileInfo::exists(spec.destination));
    }

    // A path that only the host has: nothing is started here that could not run.
    void aSourceThatIsNotSeenHere() {
        if (!missing_.isEmpty()) QSKIP(qPrintable(missing_));
        const QString copy = copyCheckpoint(sampleCheckpoint());
        open(QStringLiteral("ssh://node1") + copy);
        QCOMPARE(session().state(), Session::State::open);
        QTRY_VERIFY_WITH_TIMEOUT(session().tasks().running().empty(), kPatience);
        // The host is this machine, so what it alone had is gone for both.
        QVERIFY(QDir().rename(copy, copy + "-away"));
        ConvertWizard* wizard = window_->convert();
        wizard->showPage(kWizardPageWhere);
        auto* where = named<QComboBox>(*wizard, "where");
        where->setCurrentIndex(where->findText("One process on this machine"));
        emit where->activated(where->currentIndex());
        QVERIFY(wizard->spec().host.isEmpty());
        const auto status = [&] { return named<QLabel>(*wizard, "wizardStatus")->text(); };
        QTRY_VERIFY2_WITH_TIMEOUT(status().contains("This machine does not see what node1 has"),
                                  qPrintable(status()), kPatience);
        QVERIFY(!named<QPushButton>(*wizard, "start")->isEnabled());
        auto* places = named<QTreeWidget>(*wizard, "places");
        click(*wizard, "Check");
        QTRY_VERIFY2_WITH_TIMEOUT(treeText(*places).contains("is not seen there"),
                                  qPrintable(treeText(*places)), kPatience);
    }

    void placesAreChecked() {
        if (!missing_.isEmpty()) QSKIP(qPrintable(missing_));
        QTemporaryDir out;
        open(sampleCheckpoint());
        ConvertWizard* wizard = window_->convert();
        ConversionSpec spec = wizard->spec();
        spec.destination = out.filePath("made");
        spec.where = QStringLiteral("ssh:node1,stranger");
        wizard->setSpec(spec);
        wizard->showPage(kWizardPageWhere);
        auto* places = named<QTreeWidget>(*wizard, "places");
        QTRY_VERIFY_WITH_TIMEOUT(shownButton(*wizard, "Check") && shownButton(*wizard, "Check")->isEnabled(),
                                 kPatience);
        click(*wizard, "Check");
        QTRY_VERIFY2_WITH_TIMEOUT(!treeText(*places).contains("…"), qPrintable(treeText(*places)), kPatience);
        const QString text = treeText(*places);
        QCOMPARE(places->topLevelItemCount(), 3);
        QVERIFY2(text.contains("✓ this machine: Ready.") && text.contains("✓ node1: Ready."),
                 qPrintable(text));
        QVERIFY2(text.contains("✕ stranger: ") && text.contains("ssh stranger"), qPrintable(text));
        picture(*wizard, "wizard-where");

        // Other places have not been asked.
        ConversionSpec other = wizard->spec();
        other.where = QStringLiteral("ssh:node2");
        wizard->setSpec(other);
        QCOMPARE(places->topLevelItemCount(), 0);

        // A place that does not answer is not waited for.
        useScript("exec sleep 60\n");
        QTRY_VERIFY_WITH_TIMEOUT(shownButton(*wizard, "Check") && shownButton(*wizard, "Check")->isEnabled(),
                                 kPatience);
        click(*wizard, "Check");
        QTRY_VERIFY(treeText(*places).contains("… node2"));
        click(*wizard, "Cancel");
        QTRY_VERIFY2(treeText(*places).contains("– node2: Canceled."), qPrintable(treeText(*places)));
        QVERIFY(shownButton(*wizard, "Check"));
        killSleepers();

        // Slurm, where it is not installed, and what is to be said to it.
        other.where = QStringLiteral("slurm:nodes=2,partition=none-such");
        wizard->setSpec(other);
        QCOMPARE(named<QLineEdit>(*wizard, "slurm")->text(), QStringLiteral("nodes=2,partition=none-such"));
        QVERIFY(wizard->spec().commandLine().startsWith(
            "shardscope jobs run --on slurm:nodes=2,partition=none-such convert "));
        QTRY_VERIFY_WITH_TIMEOUT(shownButton(*wizard, "Check") && shownButton(*wizard, "Check")->isEnabled(),
                                 kPatience);
        click(*wizard, "Check");
        QTRY_VERIFY2_WITH_TIMEOUT(treeText(*places).startsWith("✕ Slurm: "), qPrintable(treeText(*places)),
                                  kPatience);
    }

    void sentencesAboutPlaces() {
        HostNeeds needs{"/data/x", "/data/out/y", uint64_t{3} << 30, false};
        HostFacts facts;
        facts.seconds = 0.4;
        facts.version = "1.2.3";
        facts.source = HostFacts::Source{8, 0, 0};
        facts.parent = "/data/out";
        facts.destination = HostFacts::Parent{true, false, uint64_t{4} << 30};
        HostReport report = hostReport("node7", facts, needs);
        QCOMPARE(report.worst(), HostLine::Kind::good);
        QCOMPARE(report.summary(), QStringLiteral("Ready."));
        QCOMPARE(report.lines.size(), size_t{4});
        const auto problem = [&] {
            const HostReport now = hostReport("node7", facts, needs);
            QStringList said;
            for (const HostLine& line : now.lines) {
                if (line.kind == HostLine::Kind::bad) said += line.text;
            }
            return said.join(' ');
        };
        needs.bytes = uint64_t{5} << 30;
        QVERIFY2(problem().contains("only 4"), qPrintable(problem()));
        needs.bytes = 0;
        QCOMPARE(hostReport("node7", facts, needs).worst(), HostLine::Kind::unknown);
        facts.destination = HostFacts::Parent{true, true, uint64_t{4} << 30};
        QVERIFY(problem().contains("exists already"));
        needs.overwrite = true;
        QVERIFY(problem().isEmpty());
        facts.destination = HostFacts::Parent{false, false, 0};
        QVERIFY(problem().contains("cannot be written"));
        facts.source = HostFacts::Source{8, 2, 1};
        QVERIFY2(problem().contains("of 8 files, 2 are missing and 1 have another size"),
                 qPrintable(problem()));
        facts.source = makeError(ErrorCode::notFound, "is not there").inFile("/data/x");
        QVERIFY(problem().contains("is not seen there"));
        const HostReport lost = hostReport(
            "node7", makeError(ErrorCode::remote, "node7: no route").withHint("look at it"), needs);
        QCOMPARE(lost.summary(), QStringLiteral("1 thing is in the way."));
        QCOMPARE(lost.lines[0].text, QStringLiteral("No route."));
        QCOMPARE(lost.lines[1].text, QStringLiteral("Next step: Look at it."));
    }
};

SHARDSCOPE_GUI_TEST_MAIN(RemoteWindowTest)
#include "remote_window_test.moc"
