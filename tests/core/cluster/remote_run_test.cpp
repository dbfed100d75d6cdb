// Verbs that an agent runs: what they say arrives, and whatever else it says ends in a clear error.
#include "hosts/remote_run.h"

#include <QTest>
#include <csignal>

#include "remote_agents.h"

using namespace shardscope;
using namespace shardscope::test;

class RemoteRunTest : public QObject {
    Q_OBJECT

  private slots:
    void initTestCase() { signal(SIGPIPE, SIG_IGN); }

    void whatAVerbSaysArrives() {
        // The service leads this process's own streams away; they come back afterwards.
        std::fflush(stdout);
        std::fflush(stderr);
        const int out = dup(STDOUT_FILENO), err = dup(STDERR_FILENO);
        StopSource verbStop;
        RunOrder got;
        Agents agents([&](Channel& channel) {
            sayHello(channel);
            const auto order = runOrderFrom(*heard(channel));
            got = *order;
            RunService service(channel, verbStop);
            (void)service.serve([&] {
                Progress progress;
                progress.begin(Progress::Phase::read, 100);
                progress.add(40);
                progress.setTensor("some.tensor");
                service.showProgress(progress, {});
                for (uint64_t i = 0; i <= 1000; ++i)  // of states that nobody looked at the last one counts
                    service.showProgress(progress, {{.name = "local 1",
                                                     .phase = WorkerState::Phase::lost,
                                                     .bytes = i,
                                                     .units = 3,
                                                     .busy = {1, 2, 3},
                                                     .why = std::string(1000, 'w')},
                                                    {.name = "node7 \xff", .slurmJob = "12"}});
                for (int i = 0; i < 10'000; ++i)
                    std::fprintf(stdout, "%0999d\n", i);
                std::fputs("trouble\n", stderr);
                return 7;
            });
        });
        RunOrder order;
        order.words = {"ls", "", "a b", "\xff"};
        order.host = kHost;
        order.color = true;
        std::string text, errors;
        size_t most = 0;
        Progress progress;
        RunSinks sinks;
        sinks.out = [&](std::string_view bytes) -> Status {
            if (text.empty()) std::this_thread::sleep_for(500ms);  // somebody reads slowly
            most = std::max(most, bytes.size());
            text += bytes;
            return {};
        };
        sinks.err = [&](std::string_view bytes) -> Status {
            errors += bytes;
            return {};
        };
        sinks.progress = &progress;
        std::vector<WorkerState> workers;
        sinks.workers = [&](std::vector<WorkerState> now) { workers = std::move(now); };
        const auto code = runThere([&] { return agents.connect(); }, "v", order, sinks, {});
        dup2(out, STDOUT_FILENO);
        dup2(err, STDERR_FILENO);
        close(out);
        close(err);
        QVERIFY2(code.ok(), code.ok() ? "" : describe(code.error()).c_str());
        QCOMPARE(*code, 7);
        QCOMPARE(got.words, order.words);
        QVERIFY(got.color);
        QCOMPARE(text.size(), size_t{10'000'000});
        QVERIFY(text.ends_with("09999\n"));
        QVERIFY(most <= RunService::kBlock);
        QCOMPARE(errors, std::string("trouble\n"));
        QCOMPARE(progress.bytesDone(), uint64_t{40});
        QCOMPARE(progress.tensor(), std::string("some.tensor"));
        QCOMPARE(workers.size(), size_t{2});
        QCOMPARE(workers[0].name, std::string("local 1"));
        QVERIFY(workers[0].phase == WorkerState::Phase::lost);
        QCOMPARE(workers[0].bytes, uint64_t{1000});
        QCOMPARE(workers[0].units, size_t{3});
        QVERIFY(workers[0].busy == (Progress::Busy{1, 2, 3}));
        QVERIFY(workers[0].why.size() >= 100 && workers[0].why.size() <= 310);
        QVERIFY(workers[1].name.starts_with("node7"));
        QCOMPARE(workers[1].slurmJob, std::string("12"));
    }

    void stoppingAVerbStopsItThere() {
        std::fflush(stdout);
        const int out = dup(STDOUT_FILENO), err = dup(STDERR_FILENO);
        StopSource verbStop, stop;
        Agents agents([&](Channel& channel) {
            sayHello(channel);
            (void)heard(channel);
            RunService service(channel, verbStop);
            (void)service.serve([&] {
                while (!verbStop.stopRequested())
                    std::this_thread::sleep_for(5ms);
                return 130;
            });
        });
        RunOrder order;
        order.words = {"validate"};
        order.host = kHost;
        std::thread later([&] {
            std::this_thread::sleep_for(200ms);
            stop.requestStop();
        });
        RunSinks sinks;
        sinks.out = sinks.err = [](std::string_view) { return Status(); };
        const auto code = runThere([&] { return agents.connect(); }, "v", order, sinks, stop);
        later.join();
        dup2(out, STDOUT_FILENO);
        dup2(err, STDERR_FILENO);
        close(out);
        close(err);
        QVERIFY(code.ok());
        QCOMPARE(*code, 130);
    }

    void hostileRuns_data() {
        QTest::addColumn<int>("kind");
        int kind = 0;
        for (const char* name :
             {"malformed exit code", "a block that is too long", "a bomb", "no end of output", "no JSON",
              "another message", "silence", "the end", "malformed worker list", "a worker of no phase"})
            QTest::newRow(name) << kind++;
    }
    void hostileRuns() {
        QFETCH(int, kind);
        Agents agents([kind](Channel& channel) {
            sayHello(channel);
            (void)heard(channel);
            switch (kind) {
                case 0:
                    (void)channel.send(message({{"say", "exit"}, {"code", 1000}}));
                    break;
                case 1:
                    (void)channel.send(
                        message({{"say", "out"}, {"size", 500'000}}, std::string(500'000, 'x')));
                    break;
                case 2: {
                    bool packed = false;
                    std::string body = pack(std::string(16'000'000, '\0'), packed);
                    (void)channel.send(
                        message({{"say", "out"}, {"size", 16'000'000}, {"packed", packed}}, body));
                    break;
                }
                case 3:
                    while (
                        channel.send(message({{"say", "out"}, {"size", 200'000}}, std::string(200'000, 'x')))
                            .ok()) {
                    }
                    return;
                case 4:
                    (void)channel.send({"{", ""});
                    break;
                case 5:
                    (void)channel.send(message({{"say", "unit"}}));
                    break;
                case 7:
                    return;
                case 8:
                    (void)channel.send(message({{"say", "workers"}}, std::string(100'000, '[')));
                    break;
                case 9:
                    (void)channel.send(
                        message({{"say", "workers"}},
                                R"([{"name":"a","phase":5,"bytes":0,"units":0,"busy":[0,0,0],"why":""}])"));
                    break;
                default:
                    break;
            }
            untilGone(channel);
        });
        RunSinks sinks;
        sinks.err = [](std::string_view) { return Status(); };
        sinks.out = [](std::string_view) {
            std::this_thread::sleep_for(100ms);
            return Status();
        };
        RunOrder order;
        order.words = {"info"};
        order.host = kHost;
        const auto begin = Clock::now();
        const auto code = runThere([&] { return agents.connect(); }, "v", order, sinks, {});
        QVERIFY(!code.ok());
        QCOMPARE(code.error().code, ErrorCode::remote);
        QVERIFY(code.error().message.find(kHost) != std::string::npos);
        QVERIFY2(secondsSince(begin) < kSoon, std::to_string(secondsSince(begin)).c_str());
    }
};

QTEST_GUILESS_MAIN(RemoteRunTest)
#include "remote_run_test.moc"
