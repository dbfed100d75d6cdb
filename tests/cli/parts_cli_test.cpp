// Conversions in parts: each is a process of its own, in any order, at once or again; what they publish is
// what one process would have written.
#include <QDir>
#include <QFile>
#include <QProcess>
#include <QTemporaryDir>
#include <QTest>
#include <map>
#include <memory>

#include "cli/genuine_checks.h"
#include "cli/part_option.h"

using namespace shardscope;
using namespace shardscope::test;

namespace {

constexpr int kParts = 4;

// The bytes of all files below a directory, by name.
std::map<QString, QByteArray> bytesBelow(const QString& path) {
    std::map<QString, QByteArray> all;
    QDirIterator files(path, QDir::Files | QDir::Hidden, QDirIterator::Subdirectories);
    while (files.hasNext()) {
        QFile file(files.next());
        if (!file.open(QIODevice::ReadOnly)) qFatal("cannot open %s", qPrintable(file.fileName()));
        all[QDir(path).relativeFilePath(file.fileName())] = file.readAll();
    }
    return all;
}

// A safetensors file of some float32 tensors, of 40 MiB together.
void writeSource(const QString& path) {
    constexpr int kTensors = 24;
    nlohmann::ordered_json header;
    uint64_t at = 0;
    for (int i = 0; i < kTensors; ++i) {
        // One is larger than the share of a part, some are small.
        const uint64_t rows = i == 5 ? 6000 : 16 * static_cast<uint64_t>(i);
        const uint64_t bytes = rows * 1024 * 4;
        header["layers." + std::to_string(i) + ".weight"] = {
            {"dtype", "F32"}, {"shape", {rows, 1024}}, {"data_offsets", {at, at + bytes}}};
        at += bytes;
    }
    const std::string text = header.dump();
    const auto length = static_cast<uint64_t>(text.size());
    QFile file(path);
    if (!file.open(QIODevice::WriteOnly)) qFatal("cannot write %s", qPrintable(path));
    file.write(reinterpret_cast<const char*>(&length), sizeof length);
    file.write(text.data(), static_cast<qint64>(text.size()));
    std::vector<float> row(1024);
    for (uint64_t value = 0; value < at / 4; value += row.size()) {
        for (size_t i = 0; i < row.size(); ++i)
            row[i] = static_cast<float>((value + i) % 8191);
        file.write(reinterpret_cast<const char*>(row.data()), static_cast<qint64>(row.size() * 4));
    }
}

}  // namespace

class PartsCliTest : public QObject {
    Q_OBJECT

    QTemporaryDir sources_;
    QString source_;
    std::unique_ptr<QTemporaryDir> place_;

    QString target(const QString& name = "out") const { return place_->filePath(name); }
    QString staging() const { return place_->filePath(".out.shardscope-partial"); }
    QStringList words(const QStringList& more, const QString& name = "out") const {
        return QStringList{"convert", source_, target(name), "--to",   "dcp",
                           "--mesh",  "tp=3",  "--shard",    "*:tp=0", "--json"} +
               more;
    }
    static QString part(int index, int count = kParts) {
        return QStringLiteral("%1/%2").arg(index).arg(count);
    }
    Outcome run(const QStringList& more) const { return runShardscope(words(more)); }
    // What one process writes.
    std::map<QString, QByteArray> whole() const {
        const Outcome plain = runShardscope(words({}, "plain"));
        if (plain.exitCode != 0) qFatal("%s", plain.err.c_str());
        return bytesBelow(target("plain"));
    }

  private slots:
    void initTestCase() {
        source_ = sources_.filePath("source.safetensors");
        writeSource(source_);
    }
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
        QVERIFY2(message.find("3 of 4 parts are not done: 0, 1, 3") != std::string::npos, message.c_str());
        QVERIFY(!QFile::exists(target()));
    }

    void anotherConversionIsRefused_data() {
        QTest::addColumn<QStringList>("more");
        QTest::newRow("options") << QStringList{"--part", part(1), "--dtype", "*=bfloat16"};
        QTest::newRow("number of parts") << QStringList{"--part", part(1, 5)};
        QTest::newRow("without parts") << QStringList{};
        QTest::newRow("without parts, to be resumed") << QStringList{"--resume"};
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
        const auto found = cli::partFromEnvironment([&](const char* name) -> const char* {
            const auto it = set.find(name);
            return it == set.end() ? nullptr : it->second.c_str();
        });
        QCOMPARE(found.ok() ? QStringLiteral("%1/%2").arg(found->index).arg(found->count) : QString(), part);
        if (!found.ok()) QCOMPARE(found.error().code, ErrorCode::usage);
    }
};

QTEST_GUILESS_MAIN(PartsCliTest)
#include "parts_cli_test.moc"
