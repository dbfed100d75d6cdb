// Frames, lists of workers, and a scheduler whose workers misbehave in every way that a program can.
#include <QFile>
#include <QTemporaryDir>
#include <QTest>
#include <csignal>
#include <thread>

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cluster/coordinator.h"
#include "cluster/messages.h"
#include "cluster/peers.h"
#include "cluster/slurm.h"
#include "cluster/worker_list.h"
#include "hosts/channel.h"
#include "hosts/launch.h"

using namespace shardscope;
using namespace std::chrono_literals;

namespace {

constexpr std::string_view kMark = "\xF5\xC9\xB1";

struct Ends {
    int read = -1, write = -1;
};
Ends makePipe() {
    int ends[2] = {-1, -1};
    if (pipe2(ends, O_CLOEXEC) != 0) return {};
    return {ends[0], ends[1]};
}

// What a channel makes of these bytes, after which the stream ends.
struct Heard {
    bool greeted = false;
    std::vector<Frame> frames;
    Error error;
};
Heard hear(std::string_view bytes) {
    const Ends in = makePipe(), out = makePipe();
    Heard heard;
    auto channel = std::make_unique<Channel>(in.read, out.write);
    std::thread writer([&] {
        for (size_t at = 0; at < bytes.size();) {
            const ssize_t sent = write(in.write, bytes.data() + at, bytes.size() - at);
            if (sent <= 0) break;
            at += static_cast<size_t>(sent);
        }
        close(in.write);
    });
    Status greeted = channel->greet(Channel::Clock::now() + 10s);
    heard.greeted = greeted.ok();
    if (!greeted.ok()) heard.error = greeted.error();
    while (heard.greeted) {
        auto frame = channel->receive(Channel::Clock::now() + 10s);
        if (!frame.ok()) {
            heard.error = frame.error();
            break;
        }
        if (!*frame) break;
        heard.frames.push_back(std::move(**frame));
    }
    channel.reset();  // a writer with more to say ends now
    writer.join();
    close(out.read);
    return heard;
}

std::string framed(std::string_view text, std::string_view body) {
    std::string bytes;
    for (const size_t size : {text.size(), body.size()}) {
        const auto number = static_cast<uint32_t>(size);
        bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
    }
    return bytes + std::string(text) + std::string(body);
}

// A worker in shell: `body` runs after the mark and the introduction.
QString writeWorker(const QTemporaryDir& directory, const QString& name, const QByteArray& body,
                    bool introduces = true, bool beats = true) {
    const QString path = directory.filePath(name);
    QFile file(path);
    if (!file.open(QIODevice::WriteOnly)) return {};
    file.write(
        "#!/usr/bin/env python3\nimport sys, json, struct, time, os, threading\nlock = threading.Lock()\n"
        "out = sys.stdout.buffer\n"
        "inp = sys.stdin.buffer\n"
        "def say(o, body=b''):\n"
        "    t = json.dumps(o).encode()\n"
        "    with lock: out.write(struct.pack('<II', len(t), len(body)) + t + body); out.flush()\n"
        "def hear():\n"
        "    h = inp.read(8)\n"
        "    if len(h) < 8: sys.exit(0)\n"
        "    a, b = struct.unpack('<II', h)\n"
        "    t = json.loads(inp.read(a)); inp.read(b); return t\n");
    if (introduces) {
        file.write(
            "out.write(b'Welcome to this shell\\r\\n\\xf5\\xc9\\xb1'); out.flush()\n"
            "assert inp.read(3) == b'\\xf5\\xc9\\xb1'\n"
            "say({'say': 'hello', 'version': 'v', 'protocol': 10, 'host': 'h', 'pid': os.getpid()})\n"
            "start = hear()\n");
        if (beats)
            file.write(
                "def beat():\n    while True: say({'say': 'beat', 'bytes': 0}); time.sleep(0.5)\n"
                "threading.Thread(target=beat, daemon=True).start()\n");
    }
    file.write(body);
    file.close();
    file.setPermissions(QFile::ReadOwner | QFile::WriteOwner | QFile::ExeOwner);
    return path;
}

const QByteArray kWorks = R"(
say({'say': 'ready'})
done = 0
while True:
    u = hear()
    if u['say'] == 'end': break
    time.sleep(0.02)
    say({'say': 'beat', 'bytes': 5, 'busy': [done * 100 + 10, done * 10, done]})
    done += 1
    say({'say': 'done', 'id': u['id'], 'read': 100 + u['id'], 'busy': [done * 100, done * 10, done]})
)";

// In a row of runs of one scheduler, the last.
struct Outcome {
    Status status;
    std::map<size_t, uint64_t> results;  // what was read, by part
    std::vector<WorkerState> workers;
    double seconds = 0;
    uint64_t shown = 0;
    Progress::Busy busy{};
};

Outcome runWithWorkers(const std::vector<QString>& programs, uint32_t parts,
                       const std::vector<PartWork>& runs = {PartWork::convert}) {
    // Every worker runs the same program, which finds its part by taking the first that is left.
    QTemporaryDir claimed;
    QFile chooser(claimed.filePath("chooser"));
    if (!chooser.open(QIODevice::WriteOnly)) return {};
    chooser.write("#!/bin/sh\n");
    for (size_t i = 0; i < programs.size(); ++i) {
        chooser.write("if mkdir " + claimed.filePath(QString::number(i)).toUtf8() +
                      " 2>/dev/null; then exec " + programs[i].toUtf8() + "; fi\n");
    }
    chooser.close();
    chooser.setPermissions(QFile::ReadOwner | QFile::WriteOwner | QFile::ExeOwner);

    CoordinatorOptions options;
    options.workers.resize(programs.size());
    options.version = "v";
    options.directory = "/";
    options.request = "a request";
    options.program = chooser.fileName().toStdString();
    WorkerScheduler scheduler(options);
    const SharedJob shared{{}, {}, parts, "v", "id", "r1-"};
    Progress progress;
    Outcome outcome;
    const auto begin = Channel::Clock::now();
    for (const PartWork kind : runs) {
        std::vector<PartOrder> orders(parts);
        for (uint32_t part = 0; part < parts; ++part)
            orders[part] = {part, 10};
        progress.begin(Progress::Phase::write, uint64_t{10} * parts);
        outcome.results.clear();
        outcome.status = scheduler.run(shared, kind, orders,
                                       [&](size_t order, const PartDone& result) -> Status {
                                           if (!outcome.results.emplace(order, result.bytesRead).second)
                                               return damaged("twice");
                                           return {};
                                       },
                                       &progress, {});
        if (!outcome.status.ok()) break;
    }
    scheduler.end();
    outcome.seconds = std::chrono::duration<double>(Channel::Clock::now() - begin).count();
    outcome.workers = scheduler.workers();
    outcome.shown = progress.bytesDone();
    outcome.busy = progress.busy();
    return outcome;
}

void checkComplete(const Outcome& outcome, size_t parts) {
    QVERIFY2(outcome.status.ok(), outcome.status.ok() ? "" : describe(outcome.status.error()).c_str());
    QCOMPARE(outcome.results.size(), parts);
    for (const auto& [part, read] : outcome.results)
        QCOMPARE(read, 100 + part);
    QCOMPARE(outcome.shown, uint64_t{10} * parts);
}

}  // namespace

class ClusterTest : public QObject {
    Q_OBJECT

    QTemporaryDir directory_;
    QString good_;

  private slots:
    // Of a file, from within a page on, into memory of the one that receives.
    void pagesArriveWhereTheyBelong() {
        QTemporaryDir place;
        QFile file(place.filePath("bytes"));
        QVERIFY(file.open(QIODevice::ReadWrite));
        std::string bytes(size_t{3} << 20, '\0');
        for (size_t i = 0; i < bytes.size(); ++i)
            bytes[i] = static_cast<char>(i * 2654435761U >> 13);
        QVERIFY(file.write(bytes.data(), static_cast<qint64>(bytes.size())) > 0 && file.flush());
        int ends[2] = {-1, -1};
        QVERIFY(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
        Channel from(ends[0], ends[0]), to(ends[1], ends[1]);
        QVERIFY(from.passesPages());
        HeldPages pages;
        QVERIFY(!pages.take(file.handle(), bytes.size() - 10, 11));  // the file ends before that
        QCOMPARE(pages.size(), size_t{0});
        QVERIFY(!pages.take(-1, 0, 1));
        constexpr size_t kLength = size_t{1} << 20;
        if (!pages.take(file.handle(), 4000, kLength)) QSKIP("no pipe of 1 MiB here");
        for (const size_t at : {size_t{4000}, size_t{4096}, size_t{1}}) {
            if (at != 4000) QVERIFY(pages.take(file.handle(), at, kLength));
            QCOMPARE(pages.size(), kLength);
            std::thread sends([&] {
                (void)from.send("pages", pages);
                (void)from.send("after", "them");
            });
            std::string into(kLength, '\0');
            const auto deadline = Channel::Clock::now() + 60s;
            const auto frame = to.receive(deadline, [&](const std::string& text, size_t size) {
                return text == "pages" && size == into.size() ? std::span<char>(into) : std::span<char>();
            });
            const auto next = to.receive(deadline);
            sends.join();
            QVERIFY(frame.ok() && *frame && (*frame)->body.empty());
            QVERIFY(into == bytes.substr(at, kLength));
            QVERIFY(next.ok() && *next && (*next)->body == "them");
            QCOMPARE(pages.size(), size_t{0});
        }
    }

    void initTestCase() {
        signal(SIGPIPE, SIG_IGN);
        good_ = writeWorker(directory_, "good", kWorks);
        QVERIFY(!good_.isEmpty());
    }

    void framesArriveWhole() {
        std::string bytes = "motd\r\n\x1b[31mhello\n" + std::string(kMark);
        bytes += framed("{\"say\":\"a\"}", "") + framed("", std::string(300'000, 'x')) +
                 framed("{}", std::string("\0\1", 2));
        const Heard heard = hear(bytes);
        QVERIFY(heard.greeted);
        QCOMPARE(heard.frames.size(), size_t{3});
        QCOMPARE(heard.frames[0].text, std::string("{\"say\":\"a\"}"));
        QCOMPARE(heard.frames[1].body.size(), size_t{300'000});
        QCOMPARE(heard.frames[2].body, std::string("\0\1", 2));
        QCOMPARE(heard.error.code, ErrorCode::remote);
    }

    void everyTruncationEnds() {
        const std::string bytes = "noise" + std::string(kMark) + framed("{\"say\":\"a\"}", "body");
        for (size_t length = 0; length < bytes.size(); ++length) {
            const Heard heard = hear(std::string_view(bytes).substr(0, length));
            QCOMPARE(heard.greeted, length >= 8);
            QVERIFY(heard.frames.empty());
            QCOMPARE(heard.error.code, ErrorCode::remote);
        }
    }

    void everyGarbledByteEnds() {
        const std::string bytes = std::string(kMark) + framed("{\"say\":\"done\",\"id\":1}", "body");
        for (size_t at = 0; at < bytes.size(); ++at) {
            for (const int flip : {0x01, 0x80, 0xff}) {
                std::string other = bytes;
                other[at] = static_cast<char>(other[at] ^ flip);
                const Heard heard = hear(other);
                QVERIFY(heard.error.code == ErrorCode::remote || heard.error.code == ErrorCode::damaged);
                QVERIFY(heard.frames.size() <= 1);
                for (const Frame& frame : heard.frames)
                    (void)parseMessage(frame);
            }
        }
    }

    void tooMuchIsRefused() {
        std::string bytes(kMark);
        for (const uint32_t size : {0xffffffffU, 0xffffffffU})
            bytes.append(reinterpret_cast<const char*>(&size), sizeof size);
        QCOMPARE(hear(bytes + std::string(100, 'x')).error.code, ErrorCode::damaged);
        const Heard noise = hear(std::string(200'000, 'n'));
        QVERIFY(!noise.greeted);
        QVERIFY(noise.error.message.size() < 1000);
    }

    void workersAreChecked() {
        const auto count = [](std::string_view text) {
            const auto workers = parseWorkers(text);
            return workers.ok() ? workers->workers.size() : size_t{0};
        };
        QCOMPARE(count("local:4"), size_t{4});
        QCOMPARE(count("ssh:a,b@c.d"), size_t{2});
        QCOMPARE(count("local:1+ssh:a"), size_t{2});
        for (const char* wrong :
             {"", "local:", "local:0", "local:-1", "local:1000", "local:4x", "ssh:", "ssh:-oProxyCommand=x",
              "ssh:a,-b", "ssh:a b", "ssh:$(x)", "slurmx", "gpu:1", "+", "local:1++"})
            QCOMPARE(count(wrong), size_t{0});
        QVERIFY(!parseWorkers("ssh:a;b").ok());
        const auto ranks = [](std::string_view text) { return *parseWorkers(text)->ranks; };
        QCOMPARE(ranks("ranks:4,broadcast").count, 4U);
        QVERIFY(ranks("ranks:4,broadcast").mode == SourceMode::broadcast && !ranks("ranks:4").gpus);
        QVERIFY(ranks("local-gpus").gpus && ranks("local-gpus").mode == SourceMode::automatic);
        QVERIFY(ranks("ranks,direct").count == 0 && ranks("ranks,direct").mode == SourceMode::direct);
        for (const char* wrong : {"ranks:", "ranks:0", "ranks:2,sideways", "ranks,", "ranksx", "local-gpus:2",
                                  "ranks:2+local:1", "local:1+ranks:2"})
            QVERIFY2(!parseWorkers(wrong).ok(), wrong);
    }

    void workersOfSlurmAreChecked() {
        const auto workers = parseWorkers(
            "local:1+slurm:nodes=2,partition=p,nodelist=n[1,3-4],ntasks-per-node=2,time=1-00:10");
        QVERIFY(workers.ok());
        QCOMPARE(workers->workers.size(), size_t{5});
        QVERIFY(!workers->workers[0].slurm);
        const SlurmRequest& request = *workers->workers[4].slurm;
        QCOMPARE(workers->workers[4].task, size_t{3});
        QCOMPARE(request.nodes, 2U);
        QCOMPARE(request.words,
                 (std::vector<std::string>{"--partition=p", "--nodelist=n[1,3-4]", "--time=1-00:10"}));
        QCOMPARE(parseWorkers("slurm")->workers.size(), size_t{1});
        QCOMPARE(parseWorkers("slurm:gres=gpu:a100:2,mem=4G,constraint=a&b,scratch=/local/x")
                     ->workers.at(0)
                     .slurm->scratch,
                 std::string("/local/x"));
        for (const char* wrong :
             {"slurm:nodes", "slurm:nodes=", "slurm:nodes=0", "slurm:nodes=-1", "slurm:nodes=2x",
              "slurm:nodes=99999", "slurm:partition=-x", "slurm:partition=a b", "slurm:partition=$(x)",
              "slurm:partition=a;b", "slurm:scratch=x", "slurm:scratch=/a,b", "slurm:time=x", "slurm:mem=4X",
              "slurm:partition=a,partition=b", "slurm:job=5,time=1", "slurm:nodelist=n[1", "slurm:wrap=x",
              "slurm:nodes=500,ntasks-per-node=500"}) {
            const auto refused = parseWorkers(wrong);
            QVERIFY2(!refused.ok(), wrong);
            QCOMPARE(refused.error().code, ErrorCode::usage);
        }
        QVERIFY(parseWorkers("slurm:wrap=x").error().hint.find("ntasks-per-node, partition") !=
                std::string::npos);
    }

    void partsAreShared() {
        const Outcome outcome = runWithWorkers({good_, good_, good_}, 40);
        checkComplete(outcome, 40);
        size_t units = 0;
        for (const WorkerState& worker : outcome.workers)
            units += worker.units;
        QCOMPARE(units, size_t{40});
    }

    // The same workers do what comes after; one that is lost on the way is so for good.
    void oneRunFollowsAnother() {
        const QString verifies =
            writeWorker(directory_, "verifies",
                        "say({'say': 'ready'})\nkinds = []\nwhile True:\n"
                        "    u = hear()\n    if u['say'] == 'end': break\n    time.sleep(0.02)\n"
                        "    if not kinds or kinds[-1] != u['work']: kinds.append(u['work'])\n"
                        "    say({'say': 'done', 'id': u['id'], 'read': 100 + u['id'] if kinds == "
                        "['convert', 'verify'] else "
                        "0})\n");
        const std::vector<PartWork> both{PartWork::convert, PartWork::verify};
        Outcome outcome = runWithWorkers({verifies, verifies}, 10, both);
        QVERIFY2(outcome.status.ok(), outcome.status.ok() ? "" : describe(outcome.status.error()).c_str());
        QCOMPARE(outcome.results.size(), size_t{10});
        for (const auto& [part, read] : outcome.results)
            QCOMPARE(read, 100 + part);
        QCOMPARE(outcome.shown, uint64_t{100});
        size_t done = 0;
        for (const WorkerState& worker : outcome.workers) {
            QCOMPARE(worker.phase, WorkerState::Phase::ended);
            done += worker.units;
        }
        QCOMPARE(done, size_t{20});

        const QString dies = writeWorker(
            directory_, "dies between",
            "say({'say': 'ready'})\nwhile True:\n    u = hear()\n    if u['say'] == 'end': break\n"
            "    if u['work'] == 'verify': os._exit(9)\n"
            "    say({'say': 'done', 'id': u['id'], 'read': 100 + u['id']})\n");
        outcome = runWithWorkers({good_, "'" + dies + "'"}, 20, both);
        checkComplete(outcome, 20);
        outcome = runWithWorkers({"'" + dies + "'", "'" + dies + "'"}, 20, both);
        QVERIFY(!outcome.status.ok());
        QCOMPARE(outcome.status.error().code, ErrorCode::remote);
    }

    // What workers say of their time adds up; what cannot be is passed over.
    void busyTimeAccumulates() {
        const Outcome outcome = runWithWorkers({good_, good_}, 20);
        checkComplete(outcome, 20);
        QCOMPARE(outcome.busy, (Progress::Busy{2000, 200, 20}));
        Progress::Busy sum{};
        for (const WorkerState& worker : outcome.workers) {
            for (size_t i = 0; i < sum.size(); ++i)
                sum[i] += worker.busy[i];
        }
        QCOMPARE(sum, outcome.busy);
        const QString odd = writeWorker(
            directory_, "odd",
            "say({'say': 'ready'})\nsaid = iter([5, [1], [1, 2, 'x'], [-1, 0, 0], [7, 0, 0], [6, 0, 3]] + "
            "[[7, 0, 3]] * 99)\nwhile True:\n"
            "    u = hear()\n    if u['say'] == 'end': break\n"
            "    say({'say': 'done', 'id': u['id'], 'read': 100 + u['id'], 'busy': next(said)})\n");
        const Outcome strange = runWithWorkers({odd}, 8);
        checkComplete(strange, 8);
        QCOMPARE(strange.busy, (Progress::Busy{7, 0, 3}));
    }

    void aWorkerThatDiesLosesItsParts() {
        const QString dies =
            writeWorker(directory_, "dies",
                        "say({'say': 'ready'})\nhear()\nprint('aargh', file=sys.stderr)\nos._exit(9)\n");
        const Outcome outcome = runWithWorkers({good_, dies}, 20);
        checkComplete(outcome, 20);
        bool told = false;
        for (const WorkerState& worker : outcome.workers)
            told = told || (worker.phase == WorkerState::Phase::lost &&
                            worker.why.find("exit code 9") != std::string::npos &&
                            worker.why.find("aargh") != std::string::npos);
        QVERIFY(told);
    }

    void aSilentWorkerIsCutOff() {
        const QString silent = writeWorker(directory_, "silent",
                                           "say({'say': 'ready'})\nhear()\ntime.sleep(600)\n", true, false);
        // The good one takes its time, so that the silent one gets something.
        const QString slow =
            writeWorker(directory_, "slow",
                        "say({'say': 'ready'})\nwhile True:\n"
                        "    u = hear()\n    if u['say'] == 'end': break\n    time.sleep(0.05)\n"
                        "    say({'say': 'done', 'id': u['id'], 'read': 100 + u['id']})\n");
        const Outcome outcome = runWithWorkers({slow, silent}, 12);
        checkComplete(outcome, 12);
        QVERIFY2(outcome.seconds < 25, std::to_string(outcome.seconds).c_str());
    }

    void whatCannotBeRightIsNotTaken_data() {
        QTest::addColumn<QByteArray>("body");
        QTest::newRow("no JSON") << QByteArray(
            "out.write(struct.pack('<II', 3, 0) + b'abc'); out.flush(); time.sleep(600)");
        QTest::newRow("huge") << QByteArray("out.write(b'\\xff' * 64); out.flush(); time.sleep(600)");
        QTest::newRow("another part")
            << QByteArray("u = hear(); say({'say': 'done', 'id': 999, 'read': 0}); time.sleep(600)");
        QTest::newRow("twice") << QByteArray(
            "u = hear(); [say({'say': 'done', 'id': u['id'], 'read': 100 + u['id']}) for i in "
            "range(2)]; time.sleep(600)");
        QTest::newRow("negative") << QByteArray(
            "u = hear(); say({'say': 'done', 'id': -1, 'read': 0}); time.sleep(600)");
        QTest::newRow("text") << QByteArray(
            "u = hear(); say({'say': 'done', 'id': 'x', 'read': 0}); time.sleep(600)");
        QTest::newRow("nonsense") << QByteArray("u = hear(); say({'say': 'ready'}); time.sleep(600)");
    }
    void whatCannotBeRightIsNotTaken() {
        QFETCH(QByteArray, body);
        const QString bad = writeWorker(directory_, QString("bad") + QTest::currentDataTag(),
                                        "say({'say': 'ready'})\n" + body + "\n");
        const QString quoted = "'" + bad + "'";
        const Outcome outcome = runWithWorkers({good_, quoted}, 12);
        checkComplete(outcome, 12);
        QVERIFY(outcome.seconds < 25);
    }

    void aPoisonedPartEndsTheJob() {
        const QByteArray body =
            "say({'say': 'ready'})\nwhile True:\n    u = hear()\n    if u['say'] == 'end': break\n"
            "    if u['id'] == 3: say({'say': 'failed', 'id': 3, 'error': {'code': 'damaged', 'message': "
            "'bad\\u001b[2J bytes', 'file': 'x'}})\n"
            "    else: say({'say': 'done', 'id': u['id'], 'read': 100 + u['id']})\n";
        const QString poisoned = writeWorker(directory_, "poisoned", body);
        const Outcome outcome = runWithWorkers({poisoned, poisoned}, 12);
        QVERIFY(!outcome.status.ok());
        QCOMPARE(outcome.status.error().code, ErrorCode::damaged);
        QVERIFY(outcome.status.error().message.find("3 times") != std::string::npos);
        QVERIFY(outcome.status.error().message.find('\x1b') == std::string::npos);
    }

    void theLossOfAllEndsTheJob() {
        const QString dies = writeWorker(directory_, "dies2", "say({'say': 'ready'})\nhear()\nos._exit(3)\n");
        const Outcome outcome = runWithWorkers({dies, dies}, 12);
        QVERIFY(!outcome.status.ok());
        QCOMPARE(outcome.status.error().code, ErrorCode::remote);
        QCOMPARE(outcome.shown, uint64_t{0});
    }

    void whoCannotTakePartIsNamed_data() {
        QTest::addColumn<QByteArray>("body");
        QTest::addColumn<bool>("introduces");
        QTest::addColumn<QString>("says");
        QTest::newRow("refuses") << QByteArray(
                                        "say({'say': 'failed', 'error': {'code': 'notFound', 'message': 'no "
                                        "such source'}}); time.sleep(600)")
                                 << true << "no such source";
        QTest::newRow("another program")
            << QByteArray("out.write(b'usage: something else\\n'); out.flush(); sys.exit(2)") << false
            << "usage: something else";
        QTest::newRow("ends") << QByteArray("print('no library', file=sys.stderr); sys.exit(127)") << false
                              << "no library";
        QTest::newRow("an older protocol")
            << QByteArray(
                   "out.write(b'\\xf5\\xc9\\xb1'); out.flush(); inp.read(3); say({'say': 'hello', 'version': "
                   "'older', 'protocol': 1}); time.sleep(600)")
            << false << "is version older and talks in another way than this one, v";
        QTest::newRow("another version")
            << QByteArray(
                   "out.write(b'\\xf5\\xc9\\xb1'); out.flush(); inp.read(3); say({'say': 'hello', 'version': "
                   "'newer', 'protocol': 10}); time.sleep(600)")
            << false << "is version newer and this one v, which cannot share";
    }
    void whoCannotTakePartIsNamed() {
        QFETCH(QByteArray, body);
        QFETCH(bool, introduces);
        QFETCH(QString, says);
        const QString bad =
            writeWorker(directory_, QString("refuses") + QTest::currentDataTag(), body + "\n", introduces);
        const Outcome outcome = runWithWorkers({good_, "'" + bad + "'"}, 12);
        QVERIFY(!outcome.status.ok());
        QVERIFY2(QString::fromStdString(outcome.status.error().message).contains(says),
                 outcome.status.error().message.c_str());
        QVERIFY(outcome.results.empty());
        QVERIFY(outcome.seconds < 25);
    }

    // A peer that is gone is for the scheduler to find out; the others are measured without it.
    void linksAreTriedWithoutWhoIsGone() {
        std::vector<std::unique_ptr<PeerServer>> servers;
        std::vector<Peer> all{{"rank 0", "127.0.0.1", 0}};
        for (int i = 1; i < 3; ++i) {
            auto server = PeerServer::start("127.0.0.1", "token", "v", systemFileSystem(), {});
            QVERIFY(server.ok());
            all.push_back({"rank " + std::to_string(i), "127.0.0.1", (*server)->port()});
            servers.push_back(std::move(server).value());
        }
        const auto ratesOf = [&] {
            return Peers(all, 0, "token", "v", systemFileSystem()).tryLinks({}).value();
        };
        QVERIFY(ratesOf() > 0);
        servers.pop_back();
        QVERIFY(ratesOf() > 0);
        servers.clear();
        QCOMPARE(ratesOf(), 0.0);

        StopSource stopped;
        stopped.requestStop();
        auto alone = PeerServer::start("127.0.0.1", "token", "v", systemFileSystem(), {});
        QVERIFY(alone.ok());
        all = {{"rank 0", "127.0.0.1", 0}, {"rank 1", "127.0.0.1", (*alone)->port()}};
        const auto rate = Peers(all, 0, "token", "v", systemFileSystem()).tryLinks(stopped);
        QVERIFY(!rate.ok());
        QCOMPARE(rate.error().code, ErrorCode::cancelled);
    }
};

QTEST_GUILESS_MAIN(ClusterTest)
#include "cluster_test.moc"
