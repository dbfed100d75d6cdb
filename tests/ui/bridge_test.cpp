#include <QElapsedTimer>

#include "support/gui_test.h"
#include "support/http_server.h"
#include "ui/bridge/selection.h"
#include "ui/bridge/tasks.h"

using namespace shardscope;
using namespace shardscope::ui;

class BridgeTest : public QObject {
    Q_OBJECT
  private slots:
    void answersComeOnTheGuiThread() {
        Tasks tasks;
        int answer = 0;
        QThread* worked = nullptr;
        QThread* answered = nullptr;
        const Ticket ticket = tasks.run<int>(
            Work::query, "count",
            [&](const TaskContext&) -> Result<int> {
                worked = QThread::currentThread();
                return 42;
            },
            [&](Result<int> result) {
                answered = QThread::currentThread();
                answer = result.ok() ? *result : -1;
            });
        QVERIFY(ticket.running());
        QTRY_COMPARE(answer, 42);
        QCOMPARE(answered, QThread::currentThread());
        QVERIFY(worked != answered);
        QVERIFY(!ticket.running());
    }

    void droppedAnswersNeverArrive() {
        Gate gate;
        bool answered = false;
        {
            Tasks tasks;
            Ticket ticket = tasks.run<int>(
                Work::query, "wait",
                [&](const TaskContext& context) -> Result<int> {
                    SHARDSCOPE_TRY(gate.wait(context));
                    return 1;
                },
                [&](Result<int>) { answered = true; });
            ticket.drop();
            QVERIFY(!ticket.running());
            // So do those of a destroyed owner.
            tasks.run<int>(
                Work::query, "wait",
                [&](const TaskContext& context) -> Result<int> {
                    SHARDSCOPE_TRY(gate.wait(context));
                    return 1;
                },
                [&](Result<int>) { answered = true; });
        }
        gate.open();
        Tasks::waitForAll();
        QCoreApplication::processEvents();
        QVERIFY(!answered);
    }

    void cancelIsAnAnswer() {
        Gate gate;
        Tasks tasks;
        std::optional<ErrorCode> code;
        Ticket ticket = tasks.run<int>(
            Work::query, "wait",
            [&](const TaskContext& context) -> Result<int> {
                SHARDSCOPE_TRY(gate.wait(context));
                return 1;
            },
            [&](Result<int> result) { code = result.ok() ? ErrorCode::internal : result.error().code; });
        ticket.cancel();
        QTRY_VERIFY(code.has_value());
        QCOMPARE(*code, ErrorCode::cancelled);
    }

    void exceptionsAreErrors() {
        Tasks tasks;
        std::vector<ErrorCode> codes;
        const auto done = [&](Result<int> result) { codes.push_back(result.error().code); };
        tasks.run<int>(
            Work::query, "throw", [](const TaskContext&) -> Result<int> { throw std::runtime_error("no"); },
            done);
        QTRY_COMPARE(codes.size(), size_t{1});
        tasks.run<int>(
            Work::query, "throw", [](const TaskContext&) -> Result<int> { throw std::bad_alloc(); }, done);
        QTRY_COMPARE(codes.size(), size_t{2});
        QCOMPARE(codes, (std::vector<ErrorCode>{ErrorCode::internal, ErrorCode::limit}));
    }

    void progressAtMostTenTimesASecond() {
        Gate gate;
        Tasks tasks;
        QSignalSpy spy(&tasks, &Tasks::progressed);
        bool done = false;
        const Ticket ticket = tasks.run<int>(
            Work::query, "read",
            [&](const TaskContext& context) -> Result<int> {
                context.progress->begin(Progress::Phase::read, 1000);
                context.progress->add(250);
                SHARDSCOPE_TRY(gate.wait(context));
                return 1;
            },
            [&](Result<int>) { done = true; });
        QElapsedTimer clock;
        clock.start();
        QTRY_VERIFY_WITH_TIMEOUT(spy.size() >= 5, 120'000);
        QVERIFY2(spy.size() <= clock.elapsed() / 100 + 1, qPrintable(QString::number(clock.elapsed())));
        const TaskStatus status = ticket.status();
        QCOMPARE(status.total, uint64_t{1000});
        QCOMPARE(status.done, uint64_t{250});
        QVERIFY(status.rate > 0);
        QCOMPARE(tasks.running().size(), size_t{1});
        gate.open();
        QTRY_VERIFY(done);
        QCOMPARE(tasks.running().size(), size_t{0});
    }

    // Whatever reads for long, and however many looks hang with their file system.
    void queriesAnswerWhileOthersWait() {
        Gate gate;
        Tasks tasks;
        int ended = 0;
        const auto wait = [&](const TaskContext&) -> Result<int> {
            SHARDSCOPE_TRY(gate.wait({}));  // deaf to being stopped
            return 1;
        };
        const auto count = [&](const Result<int>&) { ++ended; };
        std::vector<Ticket> bulk;
        for (int i = 0; i < 20; ++i)
            bulk.push_back(tasks.run<int>(Work::bulk, "read", wait, count));
        for (int i = 0; i < 20; ++i)
            tasks.run<int>(Work::metadata, "look", wait, count);
        QVERIFY(bulk.back().status().waiting);
        QTRY_VERIFY(!bulk.front().status().waiting);
        int answer = 0, opened = 0;
        tasks.run<int>(
            Work::query, "filter", [](const TaskContext&) -> Result<int> { return 42; },
            [&](Result<int> result) { answer = *result; });
        tasks.run<int>(
            Work::metadata, "open", [](const TaskContext&) -> Result<int> { return 43; },
            [&](Result<int> result) { opened = *result; });
        QTRY_COMPARE(answer, 42);
        QTRY_COMPARE(opened, 43);
        QCOMPARE(ended, 0);
        // One that is dropped before it began is not begun any more.
        bulk.back().drop();
        QCOMPARE(tasks.running().size(), size_t{39});
        gate.open();
        QTRY_COMPARE(ended, 39);
    }

    void cancelStopsOneTask() {
        Gate gate;
        Tasks tasks;
        std::vector<QString> stopped;
        for (const char* title : {"first", "second"}) {
            tasks.run<int>(
                Work::bulk, title,
                [&](const TaskContext& context) -> Result<int> {
                    SHARDSCOPE_TRY(gate.wait(context));
                    return 1;
                },
                [&stopped, title](const Result<int>& result) {
                    if (!result.ok()) stopped.push_back(title);
                });
        }
        tasks.running().front().cancel();
        QTRY_COMPARE(stopped.size(), size_t{1});
        QCOMPARE(stopped[0], QStringLiteral("first"));
        QCOMPARE(tasks.running().size(), size_t{1});
        gate.open();
        QTRY_VERIFY(tasks.running().empty());
        QCOMPARE(stopped.size(), size_t{1});
    }

    void historyOfSelection() {
        Selection selection;
        QVERIFY(!selection.canGoBack());
        selection.selectTensor(3);
        selection.setPage(Page::tensor);
        selection.selectChunk(4, 17, 2, 1);
        selection.back();
        QCOMPARE(selection.current().tensor, 3U);
        QCOMPARE(selection.current().page, Page::tensor);
        selection.back();
        QCOMPARE(selection.current().page, Page::overview);
        selection.forward();
        selection.forward();
        QCOMPARE(selection.current().chunk, 17U);
        QVERIFY(!selection.canGoForward());
        selection.selectTensor(5);
        QCOMPARE(selection.current().chunk, kNone);
        // Typing is one step.
        selection.setFilter("a");
        selection.setFilter("ab");
        selection.setFilter("abc");
        selection.back();
        QCOMPARE(selection.current().filter, QString());
        selection.forward();
        QCOMPARE(selection.current().filter, QStringLiteral("abc"));
    }

    void lateOpenDoesNotReplaceANewerOne() {
        auto engine = std::make_shared<ScriptedEngine>();
        auto first = std::make_shared<Gate>();
        auto calls = std::make_shared<std::atomic<int>>(0);
        engine->before = [first, calls](const std::string& call, const TaskContext&) -> Status {
            if (call == "open" && calls->fetch_add(1) == 0) return first->wait({});  // deaf to being stopped
            return {};
        };
        Session session(engine);
        session.open(sampleCheckpoint());
        QTRY_COMPARE(calls->load(), 1);
        session.open(genuineCheckpoint("dcp/" + QDir(QStringLiteral(SHARDSCOPE_TEST_DATA "/genuine/dcp"))
                                                    .entryList(QDir::Dirs | QDir::NoDotAndDotDot)
                                                    .value(0)));
        QTRY_COMPARE(session.state(), Session::State::open);
        const CheckpointPtr shown = session.checkpoint();
        first->open();
        Tasks::waitForAll();
        QCoreApplication::processEvents();
        QCOMPARE(session.checkpoint(), shown);
    }

    void failuresAndCancel() {
        auto engine = std::make_shared<ScriptedEngine>();
        Session session(engine);
        session.open("/nowhere/at/all");
        QTRY_COMPARE(session.state(), Session::State::failed);
        QCOMPARE(session.error()->code, ErrorCode::notFound);
        QVERIFY(errorSentence(*session.error()).endsWith('.'));
        auto gate = std::make_shared<Gate>();
        engine->before = [gate](const std::string& call, const TaskContext& context) -> Status {
            return call == "open" ? gate->wait(context) : Status();
        };
        session.open(sampleCheckpoint());
        session.cancel();
        QTRY_COMPARE(session.state(), Session::State::empty);
        engine->before = nullptr;
        session.open(sampleCheckpoint());
        QTRY_COMPARE(session.state(), Session::State::open);
        // A failing validation is told, and what was open stays.
        engine->before = [](const std::string& call, const TaskContext&) -> Status {
            return call == "validate" ? Status(makeError(ErrorCode::io, "the disk is gone")) : Status();
        };
        session.validation().start(ValidateLevel::files);
        QTRY_VERIFY(session.validation().error().has_value());
        QCOMPARE(session.state(), Session::State::open);
        QVERIFY(!session.validation().report());
    }

    void changesOfFilesAreSeen() {
        const QString copy = copyCheckpoint(sampleCheckpoint());
        auto session = openSession(copy);
        QCOMPARE(session->state(), Session::State::open);
        session->checkForChanges();
        QTRY_COMPARE(session->tasks().running().size(), size_t{0});
        QVERIFY(session->changedFiles().isEmpty());
        QString data;
        for (const FileInfo& file : session->catalog().files()) {
            if (!file.metadata) data = copy + '/' + QString::fromStdString(file.path);
        }
        QVERIFY(QFile::resize(data, 10));
        QSignalSpy spy(session.get(), &Session::filesChanged);
        session->checkForChanges();
        QTRY_COMPARE(spy.size(), 1);
        QVERIFY(session->changedFiles().contains(QFileInfo(data).fileName()));
        // Reloading shows the damage, and keeps the place by name.
        const std::string name(session->catalog().name(1));
        session->selection().selectTensor(1);
        session->reload();
        QTRY_VERIFY(session->state() == Session::State::open && session->hasFacts());
        QVERIFY(session->facts()->damagedTensors > 0);
        QCOMPARE(std::string(session->catalog().name(session->selection().current().tensor)), name);
    }

    void changesInABucketAreSeen() {
        test::FakeBucket bucket("b1");
        bucket.use();
        bucket.putTree(sampleCheckpoint().toStdString(), "step-1");
        auto session = openSession(QStringLiteral("s3://b1/step-1"));
        QCOMPARE(session->state(), Session::State::open);
        session->checkForChanges();
        QTRY_COMPARE(session->tasks().running().size(), size_t{0});
        QVERIFY(session->changedFiles().isEmpty());
        bucket.put("step-1/__0_0.distcp", "short");
        QSignalSpy spy(session.get(), &Session::filesChanged);
        session->checkForChanges();
        QTRY_COMPARE(spy.size(), 1);
        QVERIFY(session->changedFiles().contains("__0_0.distcp"));
    }

    // Of a file whose values are known: element (r, c) is 100 r + c.
    void sliceOfValues() {
        constexpr int kRows = 24, kColumns = 40;
        QByteArray header = R"({"w":{"dtype":"F32","shape":[24,40],"data_offsets":[0,3840]}})", data;
        header.resize((header.size() + 7) / 8 * 8, ' ');
        for (int r = 0; r < kRows; ++r) {
            for (int c = 0; c < kColumns; ++c) {
                const auto value = static_cast<float>(100 * r + c);
                data.append(reinterpret_cast<const char*>(&value), sizeof value);
            }
        }
        const auto length = static_cast<quint64>(header.size());
        QTemporaryDir directory;
        QFile file(directory.filePath("w.safetensors"));
        QVERIFY(file.open(QIODevice::WriteOnly));
        file.write(reinterpret_cast<const char*>(&length), sizeof length);
        file.write(header + data);
        file.close();
        auto session = openSession(file.fileName());
        QCOMPARE(session->state(), Session::State::open);
        const auto engine = localEngine();
        const auto whole = engine->slice(session->checkpoint(), {0, 0, 1, {0, 0}, 64, 64}, {});
        QVERIFY2(whole.ok(), whole.ok() ? "" : describe(whole.error()).c_str());
        QCOMPARE(whole->rows, int64_t{kRows});
        QCOMPARE(whole->columns, int64_t{kColumns});
        // Across and down exchanged, and thinned.
        const auto thinned = engine->slice(session->checkpoint(), {0, 1, 0, {0, 0}, 8, 8}, {});
        QVERIFY2(thinned.ok(), thinned.ok() ? "" : describe(thinned.error()).c_str());
        QVERIFY(thinned->rows <= 8 && thinned->columns <= 8);
        QVERIFY(thinned->rowStep > 1 && thinned->columnStep > 1);
        const auto check = [](const SliceValues& slice, int perRow, int perColumn) {
            QCOMPARE(slice.values.size(), static_cast<size_t>(slice.rows * slice.columns));
            for (int64_t r = 0; r < slice.rows; ++r) {
                for (int64_t c = 0; c < slice.columns; ++c)
                    QCOMPARE(
                        slice.values[static_cast<size_t>(r * slice.columns + c)],
                        static_cast<double>(perRow * r * slice.rowStep + perColumn * c * slice.columnStep));
            }
        };
        check(*whole, 100, 1);
        check(*thinned, 1, 100);
    }
};

SHARDSCOPE_GUI_TEST_MAIN(BridgeTest)
#include "bridge_test.moc"
