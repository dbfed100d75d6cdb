// A conversion by several workers: whoever reads, whoever writes, and wherever the files of the source are,
// the destination is byte for byte that of one process.
#include <QDirIterator>
#include <QTemporaryDir>
#include <QTest>
#include <csignal>
#include <fstream>
#include <random>
#include <thread>

#include <nlohmann/json.hpp>

#include "engine/engine.h"
#include "execute/journal.h"
#include "support/genuine.h"
#include "support/memory_file_system.h"
#include "support/thread_workers.h"

using namespace shardscope;
using namespace shardscope::test;

namespace {

constexpr uint64_t kMemory = uint64_t{256} << 20;

std::map<std::string, std::string> filesBelow(const QString& directory) {
    std::map<std::string, std::string> files;
    QDirIterator it(directory, QDir::Files | QDir::Hidden, QDirIterator::Subdirectories);
    while (it.hasNext()) {
        QFile file(it.next());
        if (!file.open(QIODevice::ReadOnly)) continue;
        files[QDir(directory).relativeFilePath(file.fileName()).toStdString()] = file.readAll().toStdString();
    }
    return files;
}

// The source's files, on the ranks that `has` says.
struct Spread {
    std::vector<std::shared_ptr<MemoryFileSystem>> disks;
    std::string path = "/source";
};
Spread spread(const std::string& from, int ranks, const std::function<bool(int rank, size_t file)>& has) {
    Spread result;
    for (int r = 0; r < ranks; ++r)
        result.disks.push_back(std::make_shared<MemoryFileSystem>());
    const QFileInfo info(QString::fromStdString(from));
    const std::map<std::string, std::string> files =
        filesBelow(info.isDir() ? info.filePath() : info.dir().path());
    if (!info.isDir()) result.path = "/source/" + info.fileName().toStdString();
    size_t index = 0;
    for (const auto& [name, bytes] : files) {
        for (int r = 0; r < ranks; ++r) {
            if (!has(r, index)) continue;
            const auto* begin = reinterpret_cast<const std::byte*>(bytes.data());
            result.disks[static_cast<size_t>(r)]->put("/source/" + name, {begin, begin + bytes.size()});
        }
        ++index;
    }
    return result;
}

struct Outcome {
    Status end;
    ConvertReport report;
    std::optional<GroupReport> group;
};

// `targets` are the disks that the destination is spread over, one for each worker; none = the machine's own.
Outcome convertTogether(const Spread& source, const std::string& destination, ConversionRequest settings,
                        ThreadWorkersOptions options,
                        const std::vector<std::shared_ptr<FileSystem>>& targets = {}) {
    std::vector<std::shared_ptr<FileSystem>> files;
    for (size_t i = 0; i < source.disks.size(); ++i)
        files.push_back(std::make_shared<RoutedFileSystem>(
            "/source", source.disks[i], targets.empty() ? systemFileSystem() : targets[i]));
    settings.source = source.path;
    settings.destination = destination;
    options.ownDisks = !targets.empty();
    Outcome outcome;
    auto report = convertByThreads(files, settings, options, &outcome.group);
    if (report.ok())
        outcome.report = std::move(report).value();
    else
        outcome.end = std::move(report).error();
    return outcome;
}

// The processor, as one that has memory of its own for tiles and cuts them.
class CuttingCompute final : public TileCompute {
  public:
    std::string_view name() const override { return "cutting"; }
    Result<TileBuffers> room(size_t readBytes, size_t castBytes) override {
        const auto memory = std::make_shared<std::vector<std::byte>>(readBytes + castBytes);
        TileBuffers room;
        room.read = std::span(*memory).first(readBytes);
        room.cast = std::span(*memory).subspan(readBytes);
        room.held = memory;
        return room;
    }
    bool cuts(const TileTask&) const override { return true; }
    Status run(const TileTask& task, TileFacts& facts) override {
        TileTask whole = task;
        std::vector<std::byte> cast;
        if (!task.cut.strips.empty()) {
            ++cutTiles;
            whole.cut = {};
            cast.resize(static_cast<size_t>(task.elements) * dtypeBytes(task.to));
            whole.cast = task.from == task.to ? std::span<std::byte>() : cast;
        }
        SHARDSCOPE_TRY(processorCompute().run(whole, facts));
        if (task.cut.strips.empty()) return {};
        const std::byte* bytes = task.from == task.to ? task.read.data() : cast.data();
        const size_t size = dtypeBytes(task.to);
        std::vector<size_t> at(task.cut.strips.size(), 0);
        for (int64_t e = 0; e < task.elements; ++e) {
            const auto s = static_cast<size_t>((task.cut.begin + e) % task.cut.columns / task.cut.strip);
            if (at[s] + size > task.cut.strips[s].size())
                return makeError(ErrorCode::internal, "a strip is too short");
            std::memcpy(task.cut.strips[s].data() + at[s], bytes + static_cast<size_t>(e) * size, size);
            at[s] += size;
        }
        for (size_t s = 0; s < at.size(); ++s)
            if (at[s] != task.cut.strips[s].size())
                return makeError(ErrorCode::internal, "a strip is too long");
        return {};
    }
    std::atomic<int> cutTiles{0};
};

std::string said(const Outcome& outcome) {
    return outcome.end.ok() ? "ok" : describe(outcome.end.error());
}

ConversionRequest settingsFor(const std::string& target) {
    ConversionRequest settings;
    settings.memory = kMemory;
    settings.threads = 1;
    settings.format = target;
    settings.fillGaps = FillGaps::zero;
    return settings;
}

}  // namespace

class WorkersTest : public QObject {
    Q_OBJECT
  private slots:
    void initTestCase() { std::signal(SIGPIPE, SIG_IGN); }
    void equalsOneProcess_data();
    void equalsOneProcess();
    void everyByteIsReadOnce();
    void partsOfDifferentCheckpointsAreRefused();
    void whatElseLiesThereIsLeftAlone();
    void missingFileIsTold();
    void stoppedOnAnyRank();
    void lostWorkerCostsItsParts();
    void lostWhileTheGroupForms();
    void ownDisksHoldTheirFiles_data() { equalsOneProcess_data(); }
    void ownDisksHoldTheirFiles();
    void ranksThatSeeOneDiskShareIt();
    void ownDisksLoseNothing();
    void ownDisksResume();
    void damageIsFound_data();
    void damageIsFound();
    void verificationReadsOwnDisks();
    void tilesCutElsewhere_data();
    void tilesCutElsewhere();
};

void WorkersTest::equalsOneProcess_data() {
    QTest::addColumn<QString>("path");
    QTest::addColumn<QString>("target");
    QTest::addColumn<int>("ranks");
    int n = 0;
    for (const GenuineCase& one : genuineSamples()) {
        if (one.damaged()) continue;
        const char* target = ++n % 3 == 0 ? "torch" : n % 3 == 1 ? "safetensors" : "dcp";
        QTest::newRow(one.id().c_str()) << QString::fromStdString(one.openPath()) << target << 2 + n % 3;
    }
}

void WorkersTest::equalsOneProcess() {
    QFETCH(QString, path);
    QFETCH(QString, target);
    QFETCH(int, ranks);
    ConversionRequest settings = settingsFor(target.toStdString());
    if (ranks == 3) settings.verify = Verify::full;
    if (target == "dcp") {
        settings.mesh = "dp=3";
        settings.shard = {"*:dp=0"};
    }
    QTemporaryDir alone, together;
    const auto open = openCheckpoint(path.toStdString());
    QVERIFY2(open.ok(), open.ok() ? "" : describe(open.error()).c_str());
    auto prepared = prepareConversion(*open, alone.filePath("out").toStdString(), settings);
    const Status runnable = prepared.ok() ? checkRunnable(*prepared) : Status(prepared.error());
    const bool runs = runnable.ok();
    const ErrorCode refusal = runs ? ErrorCode::internal : runnable.error().code;
    if (runs) {
        const auto report = runPrepared(*prepared, settings, nullptr);
        QVERIFY2(report.ok(), report.ok() ? "" : describe(report.error()).c_str());
    }
    std::mt19937 random(static_cast<unsigned>(qHash(path, 1)));
    std::map<size_t, int> place;
    const std::vector<std::pair<SourceMode, std::function<bool(int, size_t)>>> ways = {
        {ranks % 2 ? SourceMode::direct : SourceMode::automatic, [](int, size_t) { return true; }},
        {SourceMode::broadcast, [](int r, size_t) { return r == 0; }},
        {SourceMode::exchange, [&](int r, size_t f) { return static_cast<int>(f) % ranks == r; }},
        {SourceMode::exchange,
         [&](int r, size_t f) {
             const auto [it, first] =
                 place.try_emplace(f, static_cast<int>(random() % static_cast<unsigned>(ranks)));
             return it->second == r || (f + static_cast<size_t>(r)) % 4 == 0;
         }},
    };
    int n = 0;
    for (const auto& [mode, has] : ways) {
        const std::string destination = together.filePath(QString::number(++n)).toStdString() + "/out";
        QVERIFY(QDir().mkpath(together.filePath(QString::number(n))));
        ThreadGroups groups;
        const Outcome outcome = convertTogether(spread(path.toStdString(), ranks, has), destination, settings,
                                                {.mode = mode, .groups = &groups});
        QVERIFY2(outcome.end.ok() == runs,
                 (std::string(sourceModeName(mode)) + ": " + said(outcome)).c_str());
        if (!runs) QCOMPARE(outcome.end.error().code, refusal);
        if (runs && outcome.report.bytesRead > 0)
            QCOMPARE(groups.steps > 0, outcome.group->mode == SourceMode::broadcast);
        const auto expected = filesBelow(alone.path());
        const auto got = filesBelow(together.filePath(QString::number(n)));
        QCOMPARE(got.size(), expected.size());
        for (const auto& [name, bytes] : expected) {
            QVERIFY2(got.contains(name), name.c_str());
            QVERIFY2(got.at(name) == bytes, (std::string(sourceModeName(mode)) + " " + name).c_str());
        }
    }
}

// Files of tensors that are many tiles large; the last is cut in no way that files are.
void WorkersTest::everyByteIsReadOnce() {
    QTemporaryDir directory;
    QVERIFY(QDir(directory.path()).mkdir("source"));
    nlohmann::json weights = nlohmann::json::object();
    uint64_t needed = 0;
    std::mt19937_64 random(5);
    for (int f = 0; f < 4; ++f) {
        nlohmann::json header;
        const std::string name = "model-0000" + std::to_string(f + 1) + "-of-00004.safetensors";
        uint64_t at = 0;
        for (int t = 0; t < 2; ++t) {
            const uint64_t rows = 3000 + 17 * static_cast<uint64_t>(f), bytes = rows * 1024 * 4;
            const std::string tensor = "layer." + std::to_string(f) + "." + std::to_string(t);
            header[tensor] = {{"dtype", "F32"}, {"shape", {rows, 1024}}, {"data_offsets", {at, at + bytes}}};
            weights[tensor] = name;
            at += bytes;
        }
        needed += at;
        const std::string text = header.dump();
        const uint64_t length = text.size();
        std::string content(reinterpret_cast<const char*>(&length), sizeof length);
        content += text;
        const size_t begin = content.size();
        content.resize(begin + at);
        for (size_t i = begin; i + 8 <= content.size(); i += 8) {
            const uint64_t value = random() & 0x3f7fffff3f7fffffULL;
            std::memcpy(content.data() + i, &value, 8);
        }
        std::ofstream(directory.filePath("source/").toStdString() + name, std::ios::binary) << content;
    }
    std::ofstream(directory.filePath("source/model.safetensors.index.json").toStdString())
        << nlohmann::json{{"metadata", {{"total_size", needed}}}, {"weight_map", weights}};
    const std::string path = directory.filePath("source").toStdString();

    ConversionRequest settings = settingsFor("dcp");
    settings.mesh = "dp=2,tp=2";
    settings.shard = {"*:dp=0,tp=1"};
    const auto open = openCheckpoint(path);
    QVERIFY(open.ok());
    auto prepared = prepareConversion(*open, directory.filePath("alone").toStdString(), settings);
    QVERIFY(prepared.ok());
    QVERIFY(runPrepared(*prepared, settings, nullptr).ok());
    const auto expected = filesBelow(directory.filePath("alone"));

    for (const SourceMode mode : {SourceMode::broadcast, SourceMode::exchange, SourceMode::direct}) {
        const Spread source = spread(path, 4, [&](int r, size_t f) {
            if (mode == SourceMode::exchange) return f % 4 == static_cast<size_t>(r);
            return mode == SourceMode::direct || r == 0;
        });
        const QString destination = directory.filePath(QString::fromUtf8(sourceModeName(mode).data()));
        ThreadGroups groups;
        const Outcome outcome =
            convertTogether(source, destination.toStdString(), settings, {.mode = mode, .groups = &groups});
        QVERIFY2(outcome.end.ok(), said(outcome).c_str());
        QVERIFY(filesBelow(destination) == expected);
        const double times = static_cast<double>(outcome.report.bytesRead) / static_cast<double>(needed);
        const double moved = static_cast<double>(outcome.group->bytesMoved) / static_cast<double>(needed);
        qInfo("%s: read %.4f, moved %.4f of the source", sourceModeName(mode).data(), times, moved);
        QVERIFY(times >= 1.0 && times < 1.01);
        QVERIFY(moved < (mode == SourceMode::direct ? 0.01 : 1.01));
    }
}

void WorkersTest::partsOfDifferentCheckpointsAreRefused() {
    const std::string path = SHARDSCOPE_TEST_DATA "/genuine/dcp/t2.15.0-fsdp2-tp/ckpt";
    QTemporaryDir directory;
    Spread source = spread(path, 2, [](int, size_t) { return true; });
    source.disks[1]->put("/source/__0_0.distcp", std::vector<std::byte>(10));
    const Outcome outcome = convertTogether(source, directory.filePath("out").toStdString(),
                                            settingsFor("safetensors"), {.mode = SourceMode::exchange});
    QVERIFY(!outcome.end.ok());
    QCOMPARE(outcome.end.error().code, ErrorCode::changed);
    QVERIFY2(outcome.end.error().message.find("rank 2") != std::string::npos, said(outcome).c_str());
    QCOMPARE(outcome.end.error().location.file, std::string("/source/__0_0.distcp"));
    QVERIFY(filesBelow(directory.path()).empty());
}

void WorkersTest::missingFileIsTold() {
    const std::string path = SHARDSCOPE_TEST_DATA "/genuine/dcp/t2.15.0-fsdp2-tp/ckpt";
    QTemporaryDir directory;
    const Spread nobody = spread(path, 2, [](int, size_t) { return false; });
    ConversionRequest settings = settingsFor("safetensors");
    settings.fillGaps = FillGaps::refuse;
    Outcome outcome = convertTogether(nobody, directory.filePath("out").toStdString(), settings,
                                      {.mode = SourceMode::exchange});
    QVERIFY(!outcome.end.ok() && outcome.end.error().code == ErrorCode::notFound);
    const Spread partly =
        spread(path, 2, [](int r, size_t f) { return f != 2 && f % 2 == static_cast<size_t>(r); });
    outcome = convertTogether(partly, directory.filePath("out").toStdString(), settings,
                              {.mode = SourceMode::exchange});
    QVERIFY2(!outcome.end.ok() && outcome.end.error().code == ErrorCode::notFound, said(outcome).c_str());
    QVERIFY2(said(outcome).find("the file is missing") != std::string::npos, said(outcome).c_str());
    QVERIFY(filesBelow(directory.path()).empty());
    // Filled as asked, what nobody has is written down by all workers together.
    settings.fillGaps = FillGaps::zero;
    outcome = convertTogether(partly, directory.filePath("out").toStdString(), settings,
                              {.mode = SourceMode::exchange});
    QVERIFY2(outcome.end.ok(), said(outcome).c_str());
    QVERIFY(filesBelow(directory.filePath("out")).contains("shardscope.filled.json"));
}

void WorkersTest::stoppedOnAnyRank() {
    const std::string path = SHARDSCOPE_TEST_DATA "/genuine/dcp/t2.15.0-fsdp2-tp/ckpt";
    QTemporaryDir directory;
    StopSource stop;
    stop.requestStop();
    const Outcome outcome = convertTogether(
        spread(path, 3, [](int, size_t) { return true; }), directory.filePath("out").toStdString(),
        settingsFor("safetensors"), {.mode = SourceMode::direct, .stop = stop});
    QVERIFY(!outcome.end.ok());
    QCOMPARE(outcome.end.error().code, ErrorCode::cancelled);
    QVERIFY(!QFileInfo::exists(directory.filePath("out")));
}

namespace {

using Disks = std::vector<std::shared_ptr<MemoryFileSystem>>;

Disks emptyDisks(int count) {
    Disks disks;
    for (int i = 0; i < count; ++i) {
        disks.push_back(std::make_shared<MemoryFileSystem>());
        disks.back()->put("/place/other", {std::byte{1}});
    }
    return disks;
}

std::vector<std::shared_ptr<FileSystem>> asTargets(const Disks& disks) {
    return {disks.begin(), disks.end()};
}

// Of all disks; a file that two have is an error, named here.
std::map<std::string, std::string> filesOn(const Disks& disks, const std::string& directory,
                                           std::string& twice) {
    std::map<std::string, std::string> files;
    for (const auto& disk : disks) {
        for (const auto& [name, bytes] : disk->tree(directory)) {
            const auto* begin = reinterpret_cast<const char*>(bytes.data());
            if (!files.emplace(name, std::string(begin, begin + bytes.size())).second) twice = name;
        }
    }
    return files;
}

ConversionRequest cutSettings(uint32_t parts) {
    ConversionRequest settings = settingsFor("dcp");
    settings.mesh = "dp=" + std::to_string(parts);
    settings.shard = {"*:dp=0"};
    return settings;
}

// A safetensors file of one tensor.
std::string oneTensor(const QTemporaryDir& directory, uint64_t rows) {
    const std::string path = directory.filePath("one.safetensors").toStdString();
    const uint64_t bytes = rows * 1024 * 4;
    const std::string text =
        nlohmann::json{{"w", {{"dtype", "F32"}, {"shape", {rows, 1024}}, {"data_offsets", {0, bytes}}}}}
            .dump();
    const uint64_t length = text.size();
    std::string content(reinterpret_cast<const char*>(&length), sizeof length);
    content += text;
    content.resize(content.size() + bytes, 'x');
    std::ofstream(path, std::ios::binary) << content;
    return path;
}

}  // namespace

// A worker that goes costs its units, where others can do them.
void WorkersTest::lostWorkerCostsItsParts() {
    const QTemporaryDir directory;
    const std::string path = oneTensor(directory, 20000);
    QTemporaryDir alone;
    const ConversionRequest settings = cutSettings(3);
    const auto open = openCheckpoint(path);
    QVERIFY(open.ok());
    auto prepared = prepareConversion(*open, alone.filePath("out").toStdString(), settings);
    QVERIFY(prepared.ok() && runPrepared(*prepared, settings, nullptr).ok());
    const auto expected = filesBelow(alone.path());
    for (const uint64_t step : {1, 2, 3, 4, 6, 8, 11, 15}) {
        // Rank 0 reads for all; one of the others leaves the group, and with it for good.
        ThreadGroups groups;
        Channel* lost = nullptr;
        groups.onStep = [&](int rank) {
            if (rank == 2 && groups.steps >= step) lost->close();
        };
        QTemporaryDir target;
        const Outcome outcome = convertTogether(
            spread(path, 3, [](int r, size_t) { return r == 0; }), target.filePath("out").toStdString(),
            settings,
            {.mode = SourceMode::broadcast, .groups = &groups, .onStart = [&](int worker, Channel& channel) {
                 if (worker == 2) lost = &channel;
             }});
        QVERIFY2(outcome.end.ok(), (std::to_string(step) + ": " + said(outcome)).c_str());
        QVERIFY(filesBelow(target.path()) == expected);
    }
}

// A rank that stops while the group comes together: nobody waits for it longer than the coordinator does.
void WorkersTest::lostWhileTheGroupForms() {
    const QTemporaryDir directory;
    const std::string path = oneTensor(directory, 2000);
    QTemporaryDir target;
    ThreadGroups groups;
    groups.neverComes = true;
    Channel* lost = nullptr;
    groups.onForm = [&](int rank) {
        if (rank == 2) lost->close();
    };
    const Outcome outcome = convertTogether(
        spread(path, 3, [](int r, size_t) { return r == 0; }), target.filePath("out").toStdString(),
        cutSettings(3),
        {.mode = SourceMode::broadcast, .groups = &groups, .onStart = [&](int worker, Channel& channel) {
             if (worker == 2) lost = &channel;
         }});
    QVERIFY2(outcome.end.ok(), said(outcome).c_str());
    QVERIFY(outcome.report.verified);
}

void WorkersTest::ownDisksHoldTheirFiles() {
    QFETCH(QString, path);
    QFETCH(QString, target);
    QFETCH(int, ranks);
    // What is one file is on rank 0's disk as ever.
    ConversionRequest settings =
        target == "safetensors" ? settingsFor("safetensors") : cutSettings(static_cast<uint32_t>(ranks) + 1);
    if (ranks == 3) settings.verify = Verify::full;
    QTemporaryDir alone;
    const auto open = openCheckpoint(path.toStdString());
    QVERIFY2(open.ok(), open.ok() ? "" : describe(open.error()).c_str());
    auto prepared = prepareConversion(*open, alone.filePath("out").toStdString(), settings);
    if (!prepared.ok() || !checkRunnable(*prepared).ok()) return;  // equalsOneProcess() has it
    const auto report = runPrepared(*prepared, settings, nullptr);
    QVERIFY2(report.ok(), report.ok() ? "" : describe(report.error()).c_str());
    const auto expected = filesBelow(alone.path());

    const Spread source =
        spread(path.toStdString(), ranks, [&](int r, size_t f) { return static_cast<int>(f) % ranks == r; });
    const Disks disks = emptyDisks(ranks);
    const Outcome outcome =
        convertTogether(source, "/place/out", settings, {.mode = SourceMode::exchange}, asTargets(disks));
    QVERIFY2(outcome.end.ok(), said(outcome).c_str());
    QVERIFY(outcome.report.verified);
    std::string twice;
    std::map<std::string, std::string> got;
    for (const auto& disk : disks)
        QCOMPARE(disk->get("/place/other").size(), size_t{1});
    for (auto& [name, bytes] : filesOn(disks, "/place", twice)) {
        if (name != "other") got[name] = std::move(bytes);
    }
    QCOMPARE(got.size(), expected.size());
    for (const auto& [name, bytes] : expected)
        QVERIFY2(got.contains(name) && got.at(name) == bytes, name.c_str());
    twice.clear();
    (void)filesOn(disks, "/place/out", twice);
    QCOMPARE(twice, std::string());
    for (int r = 1; r < ranks; ++r)
        QVERIFY(!disks[static_cast<size_t>(r)]->exists("/place/out/.metadata"));
}

void WorkersTest::ranksThatSeeOneDiskShareIt() {
    const QTemporaryDir directory;
    const std::string path = oneTensor(directory, 8);
    const ConversionRequest settings = cutSettings(4);
    Disks disks = emptyDisks(4);
    disks[1] = disks[0];
    disks[3] = disks[2];
    const Spread source = spread(path, 4, [](int, size_t) { return true; });
    const Outcome outcome =
        convertTogether(source, "/place/out", settings, {.mode = SourceMode::direct}, asTargets(disks));
    QVERIFY2(outcome.end.ok(), said(outcome).c_str());
    QVERIFY(disks[0]->exists("/place/out/__0_0.distcp") && disks[0]->exists("/place/out/__1_0.distcp"));
    QVERIFY(disks[2]->exists("/place/out/__2_0.distcp") && disks[2]->exists("/place/out/__3_0.distcp"));
    QVERIFY(disks[0]->exists("/place/out/.metadata") && !disks[2]->exists("/place/out/.metadata"));
    QCOMPARE(disks[0]->paths().size() + disks[2]->paths().size(), size_t{5 + 2});
}

// Whatever fails on any disk: none has anything of the destination then, and none has lost what it had.
void WorkersTest::ownDisksLoseNothing() {
    const QTemporaryDir directory;
    const std::string path = oneTensor(directory, 8);
    const Spread source = spread(path, 3, [](int, size_t) { return true; });
    int failures = 0;
    for (const bool overwrite : {false, true}) {
        ConversionRequest settings = cutSettings(3);
        settings.overwrite = overwrite;
        for (int where = 0; where < 3; ++where) {
            for (const Op op : {Op::allocate, Op::write, Op::sync, Op::rename}) {
                const Disks disks = emptyDisks(3);
                if (overwrite) {
                    for (const auto& disk : disks)
                        disk->put("/place/out/old", {std::byte{7}});
                }
                auto targets = asTargets(disks);
                const auto failing = std::make_shared<FaultyFileSystem>(targets[static_cast<size_t>(where)]);
                failing->failAt(op, 1, ErrorCode::noSpace);
                targets[static_cast<size_t>(where)] = failing;
                const Outcome outcome =
                    convertTogether(source, "/place/out", settings, {.mode = SourceMode::direct}, targets);
                if (outcome.end.ok()) continue;
                ++failures;
                for (const auto& disk : disks) {
                    QVERIFY(!disk->exists("/place/out/__0_0.distcp") &&
                            !disk->exists("/place/out/__1_0.distcp") &&
                            !disk->exists("/place/out/__2_0.distcp"));
                    QCOMPARE(disk->get("/place/out/old").size(), size_t{overwrite});
                }
            }
        }
    }
    QVERIFY(failures >= 20);

    ConversionRequest settings = cutSettings(3);
    // One that is there on any disk is there.
    Disks disks = emptyDisks(3);
    disks[2]->put("/place/out/old", {std::byte{7}});
    Outcome outcome =
        convertTogether(source, "/place/out", settings, {.mode = SourceMode::direct}, asTargets(disks));
    QVERIFY(!outcome.end.ok() && outcome.end.error().code == ErrorCode::exists);
    QVERIFY(disks[2]->exists("/place/out/old"));
    // A disk on which the new checkpoint has no files loses the old ones, too.
    settings.overwrite = true;
    settings.mesh = "dp=1";
    outcome = convertTogether(source, "/place/out", settings, {.mode = SourceMode::direct}, asTargets(disks));
    QVERIFY2(outcome.end.ok(), said(outcome).c_str());
    QVERIFY(disks[2]->tree("/place/out").empty());
    QVERIFY(disks[0]->exists("/place/out/.metadata"));
}

// A log beside the source grows, differs from rank to rank, and is not everywhere.
void WorkersTest::whatElseLiesThereIsLeftAlone() {
    const QTemporaryDir directory;
    const std::string path = oneTensor(directory, 4000);
    for (const SourceMode mode : {SourceMode::automatic, SourceMode::direct, SourceMode::exchange}) {
        const Spread source = spread(path, 3, [](int, size_t) { return true; });
        source.disks[0]->put("/source/train.log", std::vector<std::byte>(10));
        source.disks[1]->put("/source/train.log", std::vector<std::byte>(11));
        std::atomic<size_t> size = 40;
        const auto grow = [&](int, Channel&) {
            source.disks[0]->put("/source/train.log", std::vector<std::byte>(++size));
        };
        QTemporaryDir target;
        const Outcome outcome = convertTogether(source, target.filePath("out").toStdString(),
                                                settingsFor("safetensors"), {.mode = mode, .onStart = grow});
        QVERIFY2(outcome.end.ok(), said(outcome).c_str());
        if (mode == SourceMode::automatic) QCOMPARE(outcome.group->mode, SourceMode::direct);
    }
}

void WorkersTest::damageIsFound_data() {
    QTest::addColumn<int>("where");
    for (int rank = 0; rank < 3; ++rank)
        QTest::addRow("on the disk of rank %d", rank) << rank;
    QTest::newRow("on a shared disk") << -1;
}

// What is not what was written, wherever it is stored, is found by the ranks that read it back.
void WorkersTest::damageIsFound() {
    QFETCH(int, where);
    const QTemporaryDir directory;
    const std::string path = oneTensor(directory, 8);
    const Spread source = spread(path, 3, [](int, size_t) { return true; });
    const Disks disks = emptyDisks(3);
    auto targets = asTargets(disks);
    if (where < 0) std::ranges::fill(targets, targets[0]);
    const auto disk = disks[static_cast<size_t>(std::max(where, 0))];
    const std::string file =
        "/place/.out.shardscope-partial/data/__" + std::to_string(std::max(where, 0)) + "_0.distcp";
    const auto damaging =
        std::make_shared<FaultyFileSystem>(targets[static_cast<size_t>(std::max(where, 0))]);
    std::atomic<bool> done = false;
    damaging->after = [&](Op op) {
        if (op != Op::sync || !disk->exists(file)) return;
        const auto bytes = disk->get(file);
        const auto at = std::ranges::find(bytes, std::byte{'x'});
        if (at == bytes.end() || done.exchange(true)) return;
        const std::byte other{'y'};
        const auto [folder, name] = splitPath(file);
        (void)(*(*disk->openDirectory(folder))->createFile(name, true))
            ->writeAt(static_cast<uint64_t>(at - bytes.begin()), std::span(&other, 1));
    };
    targets[static_cast<size_t>(std::max(where, 0))] = damaging;
    if (where < 0) std::ranges::fill(targets, damaging);
    const Outcome outcome =
        convertTogether(source, "/place/out", cutSettings(3), {.mode = SourceMode::direct}, targets);
    QVERIFY(done);
    QVERIFY(!outcome.end.ok());
    QVERIFY2(outcome.end.error().code == ErrorCode::verificationFailed, said(outcome).c_str());
    QVERIFY2(outcome.end.error().message.find("differs from what was written") != std::string::npos,
             said(outcome).c_str());
    for (const auto& each : disks)
        QVERIFY(!each->exists("/place/out/.metadata") && each->tree("/place/out").empty());
}

// With disks of their own, ranks send each other no more than what tiles have on two of them.
void WorkersTest::verificationReadsOwnDisks() {
    const QTemporaryDir directory;
    constexpr uint64_t kRows = 20000, kBytes = kRows * 4096;
    const std::string path = oneTensor(directory, kRows);
    const Spread source = spread(path, 3, [](int, size_t) { return true; });
    const auto movedWith = [&](bool verify) -> uint64_t {
        const Disks disks = emptyDisks(3);
        ConversionRequest settings = cutSettings(3);
        settings.verify = verify ? Verify::digest : Verify::none;
        const Outcome outcome =
            convertTogether(source, "/place/out", settings, {.mode = SourceMode::direct}, asTargets(disks));
        if (!QTest::qVerify(outcome.end.ok() && outcome.report.verified == verify, "ends",
                            said(outcome).c_str(), __FILE__, __LINE__))
            return UINT64_MAX / 2;
        return outcome.group->bytesMoved;
    };
    const uint64_t unverified = movedWith(false);
    // On a busy machine a rank may take over what a slower one would have read from its own disk.
    uint64_t more = UINT64_MAX;
    for (int attempt = 0; attempt < 10 && more >= kBytes / 4 && !QTest::currentTestFailed(); ++attempt) {
        const uint64_t verified = movedWith(true);
        more = verified - std::min(verified, unverified);
    }
    QVERIFY2(more < kBytes / 4, std::to_string(more).c_str());
}

namespace {

// Whether the journal of an unfinished conversion says that something is done.
bool journalClaims(FileSystem& disk) {
    const auto directory = disk.openDirectory("/place/.out.shardscope-partial");
    if (!directory.ok()) return false;
    const auto entries = (*directory)->list();
    for (const DirectoryEntry& entry : entries.ok() ? *entries : std::vector<DirectoryEntry>()) {
        if (!entry.name.ends_with(".journal")) continue;
        const auto file = (*directory)->openFile(entry.name);
        if (!file.ok()) continue;
        const auto content = readJournal(**file);
        if (content.ok() && *content && !(*content)->tiles.empty()) return true;
    }
    return false;
}

}  // namespace

void WorkersTest::ownDisksResume() {
    const QTemporaryDir directory;
    // Larger than a tile, so that there is something to take over.
    const std::string path = oneTensor(directory, 20000);
    ConversionRequest settings = cutSettings(3);
    settings.journalBytes = 1;
    const Spread source = spread(path, 3, [](int r, size_t) { return r == 0; });
    const Disks disks = emptyDisks(3);
    auto targets = asTargets(disks);
    const auto failing = std::make_shared<FaultyFileSystem>(targets[2]);
    failing->failAt(Op::write, 4, ErrorCode::noSpace, true);
    // The disk gets full once something is booked, however fast the ranks are.
    failing->beforeFailure = [&] {
        for (int i = 0; i < 3000 && !journalClaims(*disks[0]); ++i)
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
    };
    targets[2] = failing;
    Outcome outcome =
        convertTogether(source, "/place/out", settings, {.mode = SourceMode::broadcast}, targets);
    QVERIFY(!outcome.end.ok() && outcome.end.error().code == ErrorCode::noSpace);
    QVERIFY2(outcome.end.error().hint.find("--resume") != std::string::npos,
             describe(outcome.end.error()).c_str());
    settings.resume = true;
    outcome =
        convertTogether(source, "/place/out", settings, {.mode = SourceMode::broadcast}, asTargets(disks));
    QVERIFY2(outcome.end.ok(), said(outcome).c_str());
    QVERIFY(outcome.report.bytesReused > 0);
    QVERIFY(outcome.report.verified);
    for (const auto& disk : disks)
        QCOMPARE(disk->tree("/place").size(), disk == disks[0] ? size_t{3} : size_t{2});

    // A disk that has lost its part: everything is done again.
    const Disks fresh = emptyDisks(3);
    targets = asTargets(fresh);
    const auto fails = std::make_shared<FaultyFileSystem>(targets[2]);
    fails->failAt(Op::write, 4, ErrorCode::noSpace, true);
    targets[2] = fails;
    settings.resume = false;
    outcome = convertTogether(source, "/place/out", settings, {.mode = SourceMode::broadcast}, targets);
    QVERIFY(!outcome.end.ok());
    targets[1] = emptyDisks(1)[0];
    targets[2] = fresh[2];
    settings.resume = true;
    outcome = convertTogether(source, "/place/out", settings, {.mode = SourceMode::broadcast}, targets);
    QVERIFY2(outcome.end.ok(), said(outcome).c_str());
    QCOMPARE(outcome.report.bytesReused, uint64_t{0});
}

void WorkersTest::tilesCutElsewhere_data() {
    QTest::addColumn<QString>("shape");  // of the one tensor
    QTest::addColumn<int>("dimension");  // that is cut
    QTest::addColumn<QString>("target");
    QTest::addColumn<bool>("cast");
    QTest::addColumn<bool>("cut");
    QTest::newRow("columns") << "3000 1030" << 1 << "dcp" << false << true;
    QTest::newRow("columns, cast") << "3000 1030" << 1 << "dcp" << true << true;
    QTest::newRow("the middle of three") << "70 31 1100" << 1 << "dcp" << true << true;
    QTest::newRow("the last of three") << "70 310 110" << 2 << "dcp" << true << true;
    QTest::newRow("with checksums") << "3000 1030" << 1 << "paddle" << true << true;
    QTest::newRow("rows") << "3000 1030" << 0 << "dcp" << true << false;
    QTest::newRow("one long row") << "1 3000000" << 1 << "dcp" << true << false;
}

// Whoever does the tiles may cut them into strips of columns as well, and is only asked to where they are.
void WorkersTest::tilesCutElsewhere() {
    QFETCH(QString, shape);
    QFETCH(int, dimension);
    QFETCH(QString, target);
    QFETCH(bool, cast);
    QFETCH(bool, cut);
    QTemporaryDir directory;
    nlohmann::json dims = nlohmann::json::array();
    uint64_t elements = 1;
    for (const QString& each : shape.split(' ')) {
        dims.push_back(each.toInt());
        elements *= each.toULongLong();
    }
    const std::string text =
        nlohmann::json{{"w", {{"dtype", "F32"}, {"shape", dims}, {"data_offsets", {0, elements * 4}}}}}
            .dump();
    const uint64_t length = text.size();
    std::string content(reinterpret_cast<const char*>(&length), sizeof length);
    content += text;
    std::mt19937 random(9);
    for (uint64_t i = 0; i < elements; ++i) {
        const auto value = static_cast<uint32_t>(random());
        content.append(reinterpret_cast<const char*>(&value), 4);
    }
    const std::string path = directory.filePath("source.safetensors").toStdString();
    std::ofstream(path, std::ios::binary) << content;

    ConversionRequest settings = settingsFor(target.toStdString());
    settings.mesh = "tp=4";
    settings.shard = {"*:tp=" + std::to_string(dimension)};
    if (cast) settings.cast = {"*=bfloat16"};
    const auto open = openCheckpoint(path);
    QVERIFY(open.ok());
    auto prepared = prepareConversion(*open, directory.filePath("alone").toStdString(), settings);
    QVERIFY2(prepared.ok(), prepared.ok() ? "" : describe(prepared.error()).c_str());
    const auto alone = runPrepared(*prepared, settings, nullptr);
    QVERIFY2(alone.ok(), alone.ok() ? "" : describe(alone.error()).c_str());
    const auto expected = filesBelow(directory.filePath("alone"));
    for (const SourceMode mode : {SourceMode::direct, SourceMode::broadcast}) {
        CuttingCompute compute;
        const Spread source =
            spread(path, 2, [&](int r, size_t) { return mode == SourceMode::direct || r == 0; });
        const QString destination = directory.filePath(QString::fromUtf8(sourceModeName(mode).data()));
        ThreadGroups groups;
        const Outcome outcome = convertTogether(source, destination.toStdString(), settings,
                                                {.mode = mode, .groups = &groups, .compute = &compute});
        QVERIFY2(outcome.end.ok(), said(outcome).c_str());
        QVERIFY(filesBelow(destination) == expected);
        QCOMPARE(compute.cutTiles > 0, cut);
    }
}

QTEST_GUILESS_MAIN(WorkersTest)
#include "workers_test.moc"
