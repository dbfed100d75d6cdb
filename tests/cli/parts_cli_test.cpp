// Conversions in parts, in any order, at once or again: what they publish is what one process would have.
#include <QProcess>
#include <QTest>

#include "answers/part_request.h"
#include "cli/parts_fixture.h"
#include "storage/file_system.h"

using namespace shardscope;
using namespace shardscope::test;

class PartsCliTest : public QObject, protected PartsFixture {
    Q_OBJECT

  private slots:
    void initTestCase() { makeSources(); }
    void init() { place_ = std::make_unique<QTemporaryDir>(); }

    void anyOrderGivesWhatOneProcessWrites() {
        uint64_t bytes = 0, least = UINT64_MAX, most = 0;
        for (const int index : {2, 0, 3, 1}) {
            const Outcome done = run({"--part", part(index)});
            QCOMPARE(done.exitCode, 0);
            const auto report = done.json();
            QCOMPARE(report["part"].get<int>(), index);
            QVERIFY(!report["was_done"].get<bool>());
            const uint64_t share = report["bytes"];
            bytes += share;
            least = std::min(least, share);
            most = std::max(most, share);
            QVERIFY(!QFile::exists(target()));
        }
        const double even = static_cast<double>(bytes) / kParts;
        QVERIFY2(static_cast<double>(most - least) <= 0.05 * even + (1 << 20), "the shares differ");
        const Outcome finished = run({"--finish"});
        QCOMPARE(finished.exitCode, 0);
        QVERIFY(finished.json()["verified"].get<bool>());
        QCOMPARE(finished.json()["digests"].size(), size_t{24});
        QVERIFY(bytesBelow(target()) == whole());
        QVERIFY(!QFile::exists(staging()));
    }

    void atOnceTheLastOneFinishes() {
        std::vector<std::unique_ptr<QProcess>> processes;
        for (int index = 0; index < kParts; ++index) {
            auto& process = processes.emplace_back(std::make_unique<QProcess>());
            process->start(SHARDSCOPE_PROGRAM, words({"--part", part(index), "--finish", "auto"}));
        }
        int finished = 0;
        for (const auto& process : processes) {
            QVERIFY(process->waitForFinished(120'000));
            QVERIFY2(process->exitCode() == 0, process->readAllStandardError().constData());
            const auto report = nlohmann::json::parse(process->readAllStandardOutput().toStdString());
            if (report["schema"] == "shardscope.report/1") ++finished;
        }
        QCOMPARE(finished, 1);
        QVERIFY(bytesBelow(target()) == whole());
    }

    void oneFileIsWrittenByAllParts() {
        const auto convert = [&](const QStringList& more, const QString& name) {
            return runShardscope(QStringList{"convert", source_, target(name), "--to", "torch", "--json"} +
                                 more);
        };
        for (int index = 0; index < 3; ++index)
            QCOMPARE(convert({"--part", part(index, 3), "--finish", "auto"}, "out.pt").exitCode, 0);
        QCOMPARE(convert({}, "plain.pt").exitCode, 0);
        COMPARE_JSON(digestsOf(target("out.pt")), digestsOf(target("plain.pt")));
    }

    void aPartThatIsDoneSaysSo() {
        QCOMPARE(run({"--part", part(1)}).exitCode, 0);
        const Outcome again = run({"--part", part(1)});
        QCOMPARE(again.exitCode, 0);
        QVERIFY(again.json()["was_done"].get<bool>());
        QCOMPARE(again.json()["bytes_read"].get<uint64_t>(), uint64_t{0});
    }

    // A scheduler may run a task again whose end it did not see, also after the last part has published.
    void aPartThatRunsAfterThePublicationSaysSo() {
        const QStringList objects{"--objects", place_->filePath("objects.pt")};
        for (int index = 0; index < kParts; ++index)
            QCOMPARE(run(QStringList{"--part", part(index), "--finish", "auto"} + objects).exitCode, 0);
        const auto before = bytesBelow(target());
        const bool kept = systemFileSystem()->attribute(target().toStdString(), "job").ok();
        for (const QStringList& words : {QStringList{"--part", part(3), "--finish", "auto"} + objects,
                                         QStringList{"--part", part(0), "--finish", "seal"},
                                         QStringList{"--part", part(1)}, QStringList{"--finish"} + objects}) {
            const Outcome again = run(words);
            // Without extended attributes nobody knows whose destination it is.
            QCOMPARE(again.exitCode, kept ? 0 : words.contains("--part") ? 4 : 3);
            if (!kept) continue;
            const auto report = again.json();
            QVERIFY(report["was_done"].get<bool>());
            QVERIFY(report["published"].get<bool>());
            QVERIFY(report["bytes"].get<uint64_t>() > 0);
            QCOMPARE(report["bytes_read"].get<uint64_t>(), uint64_t{0});
            QVERIFY(report["open"].empty());
        }
        QVERIFY(!QFile::exists(staging()));
        QVERIFY(bytesBelow(target()) == before);

        // Another job does not pass for it.
        QStringList other = words({"--part", part(1)});
        other[other.indexOf("tp=3")] = "tp=2";
        const Outcome refused = runShardscope(other);
        QCOMPARE(refused.exitCode, 4);
        QCOMPARE(refused.json()["message"].get<std::string>(), std::string("the destination exists already"));
        other.replace(other.indexOf("--part"), "--finish");
        other.removeOne(part(1));
        QCOMPARE(runShardscope(other).exitCode, 3);
        // A copy has the same bytes, but nobody says that this job wrote it.
        QVERIFY(QDir().rename(target(), target("moved")));
        QVERIFY(QDir().mkdir(target()));
        QCOMPARE(run({"--part", part(1)}).exitCode, 4);
    }

    // A kill between the publication and the removal of the staging directory leaves all in it but the files.
    void whatThePublisherLeftIsRemoved() {
        const auto others = [&] {
            return run({"--part", part(0)}).exitCode == 0 && run({"--part", part(1)}).exitCode == 0 &&
                   run({"--part", part(2)}).exitCode == 0;
        };
        QVERIFY(others());
        std::map<QString, QByteArray> left;
        for (const char* name : {"lock", "parts", "part-0.journal", "part-1.journal"}) {
            QFile file(staging() + "/" + name);
            QVERIFY(file.open(QIODevice::ReadOnly));
            left[name] = file.readAll();
        }
        QCOMPARE(run({"--part", part(3), "--finish", "auto"}).exitCode, 0);
        const auto leave = [&] {
            QVERIFY(QDir().mkdir(staging()));
            for (const auto& [name, bytes] : left) {
                QFile file(staging() + "/" + name);
                QVERIFY(file.open(QIODevice::WriteOnly) && file.write(bytes) == bytes.size());
            }
        };
        leave();
        const bool kept = systemFileSystem()->attribute(target().toStdString(), "job").ok();
        QCOMPARE(run({"--part", part(3), "--finish", "auto"}).exitCode, kept ? 0 : 4);
        QVERIFY(!kept || !QFile::exists(staging()));
        if (!kept) QVERIFY(QDir(staging()).removeRecursively());
        const auto expected = bytesBelow(target());

        // Nor is it in the way of the next conversion, in parts or not.
        for (const bool inParts : {true, false}) {
            QVERIFY(QDir(target()).removeRecursively());
            leave();
            QVERIFY(!inParts || others());
            const QStringList last =
                inParts ? QStringList{"--part", part(3), "--finish", "auto"} : QStringList();
            QCOMPARE(run(last).exitCode, 0);
            QVERIFY(bytesBelow(target()) == expected);
            QVERIFY(!QFile::exists(staging()));
        }
    }

    // As after a kill: what the journal claims is kept, the rest is done again.
    void aHalfDonePartContinues() {
        QCOMPARE(run({"--part", part(0)}).exitCode, 0);
        const uint64_t share = run({"--part", part(0)}).json()["bytes"];
        QFile journal(staging() + "/part-0.journal");
        QVERIFY(journal.resize(journal.size() - 5));  // its last record is torn
        const Outcome again = run({"--part", part(0)});
        QCOMPARE(again.exitCode, 0);
        QVERIFY(!again.json()["was_done"].get<bool>());
        QVERIFY(again.json()["bytes_read"].get<uint64_t>() > 0);
        QCOMPARE(again.json()["bytes"].get<uint64_t>(), share);
        for (int index = 1; index < kParts; ++index)
            QCOMPARE(run({"--part", part(index), "--finish", "auto"}).exitCode, 0);
        QVERIFY(bytesBelow(target()) == whole());
    }

    void openPartsAreNamed() {
        QVERIFY(run({"--finish"}).exitCode != 0);
        QCOMPARE(run({"--part", part(2)}).exitCode, 0);
        const Outcome finish = run({"--finish"});
        QCOMPARE(finish.exitCode, 3);
        const std::string message = finish.json()["message"];
        QVERIFY2(message.find("3 of 4 parts not done: 0, 1, 3") != std::string::npos, message.c_str());
        QVERIFY(!QFile::exists(target()));
    }

    void anotherConversionIsRefused_data() {
        QTest::addColumn<QStringList>("more");
        QTest::newRow("options") << QStringList{"--part", part(1), "--dtype", "*=bfloat16"};
        QTest::newRow("number of parts") << QStringList{"--part", part(1, 5)};
        QTest::newRow("without parts") << QStringList{};
        QTest::newRow("by workers") << QStringList{"--on", "local:2"};
        QTest::newRow("finish with other options") << QStringList{"--finish", "--dtype", "*=bfloat16"};
    }
    void anotherConversionIsRefused() {
        QFETCH(QStringList, more);
        QCOMPARE(run({"--part", part(0)}).exitCode, 0);
        const auto before = bytesBelow(staging());
        const Outcome refused = run(more);
        QVERIFY2(refused.exitCode != 0, refused.out.c_str());
        QVERIFY2(bytesBelow(staging()) == before, "it wrote something");
    }

    // How a conversion was begun does not matter to who continues it.
    void anyWayContinuesParts_data() {
        QTest::addColumn<QStringList>("more");
        QTest::addColumn<bool>("sealed");
        const QStringList workers{"--on", "local:2"}, ranks{"--on", "ranks:2"};
        QTest::newRow("one process") << QStringList{} << false;
        QTest::newRow("workers") << workers << false;
        QTest::newRow("ranks") << ranks << false;
        QTest::newRow("one process, once sealed") << QStringList{} << true;
        QTest::newRow("workers, once sealed") << workers << true;
    }
    void anyWayContinuesParts() {
        QFETCH(QStringList, more);
        QFETCH(bool, sealed);
        if (sealed) {
            sealAll();
        } else {
            for (const int index : {2, 0})
                QCOMPARE(run({"--part", part(index)}).exitCode, 0);
        }
        QCOMPARE(run(more).exitCode, 4);
        const Outcome done = run(more + QStringList{"--resume"});
        QVERIFY2(done.exitCode == 0, done.out.c_str());
        const auto reused = done.json()["bytes_reused"].get<uint64_t>();
        QVERIFY2(sealed ? done.json()["bytes_read"].get<uint64_t>() == 0 : reused > 10'000'000,
                 done.out.c_str());
        QVERIFY(bytesBelow(target()) == whole());
        QVERIFY(!QFile::exists(staging()));
    }

    // What workers have done by a coordinator's word is done for parts, too.
    void partsContinueWorkers() {
        for (const int index : {2, 0}) {
            QCOMPARE(run({"--part", part(index)}).exitCode, 0);
            const QString journal = staging() + QStringLiteral("/part-%1.journal").arg(index);
            QVERIFY(QFile::rename(journal, staging() + QStringLiteral("/part-r1-w%1.journal").arg(index)));
        }
        const Outcome open = run({"--finish"});
        QVERIFY2(open.json()["message"].get<std::string>().find("2 of 4 parts not done: 1, 3") !=
                     std::string::npos,
                 open.out.c_str());
        const Outcome again = run({"--part", part(0)});
        QCOMPARE(again.exitCode, 0);
        QVERIFY2(again.json()["was_done"].get<bool>() && again.json()["bytes_read"] == 0, again.out.c_str());
        for (const int index : {1, 3})
            QCOMPARE(run({"--part", part(index), "--finish", "auto"}).exitCode, 0);
        QVERIFY(bytesBelow(target()) == whole());
    }

    // Parts that one launcher has started do not all end well where their hosts do not share the directory.
    void withoutASharedDirectory() {
        const Outcome alone = run({"--part", part(1)});
        QCOMPARE(alone.exitCode, 0);
        QVERIFY2(alone.json()["alone"].get<bool>(), alone.out.c_str());
        const std::string host = alone.json()["set_up_by"];
        QVERIFY2(host.starts_with(QSysInfo::machineHostName().toStdString()), alone.out.c_str());
        const Outcome finish = run({"--finish"});
        QCOMPARE(finish.exitCode, 3);
        QVERIFY2(finish.json()["message"].get<std::string>().find(host + " has set up") != std::string::npos,
                 finish.out.c_str());
        QVERIFY2(
            finish.json()["hint"].get<std::string>().find("do not share this directory") != std::string::npos,
            finish.out.c_str());
        qputenv("SLURM_PROCID", "1");
        qputenv("SLURM_STEP_NUM_TASKS", "4");
        const Outcome together = run({"--part", "auto", "--finish", "auto"});
        qunsetenv("SLURM_PROCID");
        qunsetenv("SLURM_STEP_NUM_TASKS");
        QCOMPARE(together.exitCode, 4);
        QVERIFY2(together.json()["message"].get<std::string>().find("part 0 was started with this one") == 0,
                 together.out.c_str());
        // What was done stays, for the next attempt.
        QVERIFY(run({"--part", part(1)}).json()["was_done"].get<bool>());
    }

    void aChangedSourceIsRefused() {
        const QString before = source_;
        const QString copy = place_->filePath("source.safetensors");
        QVERIFY(QFile::copy(source_, copy));
        source_ = copy;
        QCOMPARE(run({"--part", part(0)}).exitCode, 0);
        QFile file(copy);
        QVERIFY(file.open(QIODevice::ReadWrite));
        QVERIFY(
            file.setFileTime(QDateTime::currentDateTime().addSecs(60), QFileDevice::FileModificationTime));
        file.close();
        const Outcome changed = run({"--part", part(1)});
        source_ = before;
        QVERIFY(changed.exitCode != 0);
        QVERIFY2(changed.json()["message"].get<std::string>().find("source") != std::string::npos,
                 changed.out.c_str());
    }

    void anExistingDestinationIsReplacedOnlyWhenAsked() {
        QVERIFY(QDir().mkpath(target()));
        QVERIFY(run({"--part", part(0)}).exitCode != 0);
        for (int index = 0; index < kParts; ++index)
            QCOMPARE(run({"--part", part(index), "--finish", "auto", "--overwrite"}).exitCode, 0);
        QVERIFY(bytesBelow(target()) == whole());
        QVERIFY(!QFile::exists(staging()));
    }

    // As a kill leaves it after the exchange of an earlier conversion, or in the set-up of one with other
    // words.
    void whatIsUnmarkedIsNotPublished() {
        QVERIFY(QDir().mkpath(staging() + "/data/inner"));
        for (const char* name : {"/data/model.safetensors", "/data/inner/file", "/data/__0_0.distcp"}) {
            QFile file(staging() + name);
            QVERIFY(file.open(QIODevice::WriteOnly) && file.write("of another one") > 0);
        }
        for (int index = 0; index < kParts; ++index)
            QCOMPARE(run({"--part", part(index), "--finish", "auto"}).exitCode, 0);
        QVERIFY(bytesBelow(target()) == whole());
    }

    void aStrayFileIsNotPublished() {
        for (int index = 0; index < kParts; ++index)
            QCOMPARE(run({"--part", part(index)}).exitCode, 0);
        QFile stray(staging() + "/data/notes.txt");
        QVERIFY(stray.open(QIODevice::WriteOnly));
        const Outcome refused = run({"--finish"});
        QCOMPARE(refused.exitCode, 4);
        QVERIFY2(refused.json()["file"].get<std::string>().ends_with("/data/notes.txt"), refused.out.c_str());
        QVERIFY(!QFile::exists(target()) && stray.exists());
        QVERIFY(stray.remove());
        QCOMPARE(run({"--finish"}).exitCode, 0);
        QVERIFY(bytesBelow(target()) == whole());
    }

    void aDestinationThatIsNotWholeIsNotDone() {
        for (int index = 0; index < kParts; ++index)
            QCOMPARE(run({"--part", part(index), "--finish", "auto"}).exitCode, 0);
        if (!systemFileSystem()->attribute(target().toStdString(), "job").ok())
            QSKIP("this file system has no extended attributes");
        QCOMPARE(run({"--part", part(1)}).exitCode, 0);
        const QString name = target() + "/__1_0.distcp", other = place_->filePath("other");
        QVERIFY(QFile::copy(name, other));
        for (const bool removed : {false, true}) {
            QVERIFY(removed ? QFile::remove(name) : QFile::resize(name, 10));
            const Outcome refused = run({"--part", part(1)});
            QCOMPARE(refused.exitCode, 4);
            QVERIFY2(refused.json()["message"].get<std::string>().find("not whole") != std::string::npos,
                     refused.out.c_str());
            QVERIFY(run({"--finish"}).exitCode != 0);
        }
        QVERIFY(QFile::copy(other, name));
        QCOMPARE(run({"--part", part(1)}).exitCode, 0);
    }

    void sealedPartsVerifyTheirShare() {
        sealAll();
        uint64_t read = 0;
        for (const int index : {3, 0, 2}) {
            const Outcome back = run({"--part", part(index), "--finish", "auto"});
            QCOMPARE(back.exitCode, 0);
            QVERIFY(back.json()["read_back"].get<bool>());
            QVERIFY(!back.json()["was_done"].get<bool>());
            read += back.json()["bytes_read"].get<uint64_t>();
        }
        QVERIFY(run({"--part", part(2), "--finish", "auto"}).json()["was_done"].get<bool>());
        const Outcome early = run({"--finish"});
        QCOMPARE(early.exitCode, 3);
        QVERIFY2(
            early.json()["message"].get<std::string>().find("1 of 4 parts not done: 1") != std::string::npos,
            early.out.c_str());
        const Outcome finished = run({"--part", part(1), "--finish", "auto"});
        QCOMPARE(finished.exitCode, 0);
        QCOMPARE(finished.json()["schema"].get<std::string>(), std::string("shardscope.report/1"));
        QVERIFY(finished.json()["verified"].get<bool>());
        QVERIFY2(read > (uint64_t{25} << 20), "the parts did not read the destination");
        QVERIFY(bytesBelow(target()) == whole());
        QVERIFY(!QFile::exists(staging()));
    }

    void sealedPartsVerifyAtOnce() {
        for (const char* finish : {"seal", "auto"}) {
            std::vector<std::unique_ptr<QProcess>> processes;
            for (int index = 0; index < kParts; ++index) {
                auto& process = processes.emplace_back(std::make_unique<QProcess>());
                process->start(SHARDSCOPE_PROGRAM, words({"--part", part(index), "--finish", finish}));
            }
            for (const auto& process : processes) {
                QVERIFY(process->waitForFinished(120'000));
                QVERIFY2(process->exitCode() == 0, process->readAllStandardError().constData());
            }
        }
        QVERIFY(bytesBelow(target()) == whole());
        QVERIFY(!QFile::exists(staging()));
    }

    // Whichever part reads it, and whichever finishes.
    void damageAfterSealingIsFound() {
        sealAll();
        const QString path = staging() + "/data/__1_0.distcp";
        const QDateTime before = QFileInfo(path).lastModified();
        QFile file(path);
        QVERIFY(file.open(QIODevice::ReadWrite));
        QVERIFY(file.seek(file.size() / 2));
        char byte = 0;
        QVERIFY(file.getChar(&byte));
        QVERIFY(file.seek(file.size() / 2));
        QVERIFY(file.putChar(static_cast<char>(byte ^ 1)));
        QVERIFY(file.flush());
        QVERIFY(file.setFileTime(before, QFileDevice::FileModificationTime));
        file.close();
        for (int index = 0; index < kParts - 1; ++index)
            QCOMPARE(run({"--part", part(index), "--finish", "auto"}).exitCode, 0);
        const Outcome last = run({"--part", part(kParts - 1), "--finish", "auto"});
        QCOMPARE(last.exitCode, 1);
        QCOMPARE(last.json()["code"].get<std::string>(), std::string("verification-failed"));
        QVERIFY(!QFile::exists(target()));
    }

    void aHalfDoneVerificationContinues() {
        sealAll();
        QCOMPARE(run({"--part", part(0)}).exitCode, 0);
        QFile journal(staging() + "/verify/part-0.journal");
        QVERIFY(journal.resize(journal.size() - 5));
        const auto again = run({"--part", part(0)}).json();
        QVERIFY(!again["was_done"].get<bool>());
        QVERIFY(again["bytes_read"].get<uint64_t>() > 0);
        QVERIFY(again["bytes_read"].get<uint64_t>() < again["bytes"].get<uint64_t>());
        for (int index = 1; index < kParts; ++index)
            QCOMPARE(run({"--part", part(index)}).exitCode, 0);
        QCOMPARE(run({"--finish"}).exitCode, 0);
        QVERIFY(bytesBelow(target()) == whole());
    }

    // Of a file with checksums around the data, in place of an older one.
    void oneFileIsVerifiedByAllParts() {
        const auto convert = [&](const QStringList& more) {
            return runShardscope(
                QStringList{"convert", source_, target("out.pt"), "--to", "torch", "--overwrite", "--json"} +
                more);
        };
        QCOMPARE(convert({}).exitCode, 0);
        const auto plain = bytesBelow(place_->path());
        for (const char* finish : {"seal", "auto"}) {
            QVERIFY(bytesBelow(place_->path())["out.pt"] == plain.at("out.pt"));
            for (int index = 0; index < 3; ++index)
                QCOMPARE(convert({"--part", part(index, 3), "--finish", finish}).exitCode, 0);
        }
        QVERIFY(bytesBelow(place_->path()) == plain);
    }

    void sealingIsForPartsThatVerify() {
        QCOMPARE(run({"--finish", "seal"}).exitCode, 2);
        QCOMPARE(run({"--part", part(0), "--finish", "seal", "--verify", "none"}).exitCode, 2);
        QCOMPARE(reading(source_, {"digest"}, {"--part", part(0), "--finish", "seal"}).exitCode, 2);
    }

    void partsAreSaidRightly_data() {
        QTest::addColumn<QString>("text");
        for (const char* text : {"4/4", "-1/4", "1", "1/", "/4", "1/0", "a/b", "1/4x", "0/100001"})
            QTest::newRow(text) << QString(text);
    }
    void partsAreSaidRightly() {
        QFETCH(QString, text);
        QCOMPARE(run({"--part", text}).exitCode, 2);
    }

    void schedulersSayWhichPart_data() {
        QTest::addColumn<QString>("variables");
        QTest::addColumn<QString>("part");  // empty = an error
        const auto add = [](const char* name, const char* variables, const char* part) {
            QTest::newRow(name) << QString(variables) << QString(part);
        };
        add("nothing", "", "");
        add("own", "SHARDSCOPE_PART=2/5 RANK=1 WORLD_SIZE=3", "2/5");
        add("Slurm step", "SLURM_PROCID=3 SLURM_STEP_NUM_TASKS=8", "3/8");
        add("Slurm array",
            "SLURM_ARRAY_TASK_ID=14 SLURM_ARRAY_TASK_MIN=10 SLURM_ARRAY_TASK_STEP=2 SLURM_ARRAY_TASK_COUNT=4 "
            "SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1",
            "2/4");
        add("Slurm array outside its step", "SLURM_ARRAY_TASK_ID=9 SLURM_ARRAY_TASK_MIN=10", "");
        add("Open MPI under Slurm",
            "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2", "1/2");
        add("two that disagree",
            "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2", "");
        add("torchrun on each node of a step",
            "RANK=9 WORLD_SIZE=16 LOCAL_WORLD_SIZE=8 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2", "9/16");
        add("MPICH on each node of a step",
            "SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 PMI_RANK=9 PMI_SIZE=16 MPI_LOCALNRANKS=8", "9/16");
        add("several of mpirun in a step",
            "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=2 SLURM_PROCID=1 "
            "SLURM_STEP_NUM_TASKS=4",
            "");
        add("a batch job's script", "SLURM_PROCID=0 SLURM_NTASKS=8", "");
        add("ours before all", "SHARDSCOPE_RANK=1 SHARDSCOPE_WORLD_SIZE=3 RANK=0 WORLD_SIZE=2", "1/3");
        add("PMI", "PMI_RANK=0 PMI_SIZE=1", "0/1");
        add("torchrun", "RANK=6 WORLD_SIZE=7", "6/7");
        add("Kubernetes", "JOB_COMPLETION_INDEX=1 SHARDSCOPE_PARTS=3", "1/3");
        add("Kubernetes without the number", "JOB_COMPLETION_INDEX=1", "");
        add("SkyPilot", "SKYPILOT_NODE_RANK=1 SKYPILOT_NUM_NODES=2", "1/2");
        add("a rank outside its world", "RANK=7 WORLD_SIZE=7", "");
        add("no number", "RANK=x WORLD_SIZE=7", "");
    }
    void schedulersSayWhichPart() {
        QFETCH(QString, variables);
        QFETCH(QString, part);
        std::map<std::string, std::string> set;
        for (const QString& pair : variables.split(' ', Qt::SkipEmptyParts))
            set[pair.section('=', 0, 0).toStdString()] = pair.section('=', 1).toStdString();
        const auto found = partFromEnvironment([&](const char* name) -> std::optional<std::string> {
            const auto it = set.find(name);
            return it == set.end() ? std::nullopt : std::optional(it->second);
        });
        QCOMPARE(found.ok() ? QStringLiteral("%1/%2").arg(found->index).arg(found->count) : QString(), part);
        if (!found.ok()) QCOMPARE(found.error().code, ErrorCode::usage);
    }
};

QTEST_GUILESS_MAIN(PartsCliTest)
#include "parts_cli_test.moc"
