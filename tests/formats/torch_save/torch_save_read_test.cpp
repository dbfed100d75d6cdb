// Files of torch.save: aliases, roles, paths, byte orders and globals; then damaged ones.
#include <QtTest>
#include <set>

#include <nlohmann/json.hpp>

#include "encoding/pickle.h"
#include "encoding/pickle_globals.h"
#include "encoding/torch_tensor.h"
#include "encoding/zip.h"
#include "extent_bytes.h"
#include "formats/torch_save/torch_save.h"
#include "storage/digest.h"
#include "support/genuine.h"
#include "support/memory_file_system.h"

using namespace shardscope;
using namespace shardscope::test;
using nlohmann::json;

namespace {

std::string readFile(const std::string& path) {
    QFile file(QString::fromStdString(path));
    if (!file.open(QIODevice::ReadOnly)) qFatal("cannot open %s", path.c_str());
    return file.readAll().toStdString();
}

// A source over bytes in memory.
Source memorySource(const std::shared_ptr<MemoryFileSystem>& fs, const std::string& content) {
    const auto bytes = std::as_bytes(std::span(content));
    fs->put("/d/model.pt", {bytes.begin(), bytes.end()});
    Source source;
    source.fileSystem = fs;
    source.directory = fs->openDirectory("/d").value();
    source.entry = "model.pt";
    source.display = "/d/model.pt";
    return source;
}

Result<std::unique_ptr<Reader>> openBytes(const std::string& content) {
    const auto fs = std::make_shared<MemoryFileSystem>();
    return torchSaveFormat().open(memorySource(fs, content), {});
}

// data.pkl in a zip archive as torch lays it out.
std::string archiveOf(const std::string& pickle, const std::vector<std::string>& storages = {}) {
    ZipLayout zip("archive");
    std::vector<std::string> contents{pickle, "little"};
    zip.addRecord("data.pkl", pickle.size());
    zip.addRecord("byteorder", 6);
    for (size_t i = 0; i < storages.size(); ++i) {
        zip.addRecord("data/" + std::to_string(i), storages[i].size());
        contents.push_back(storages[i]);
    }
    zip.addRecord("version", 2);
    contents.push_back("3\n");
    std::string out;
    std::vector<uint32_t> crcs;
    for (size_t i = 0; i < contents.size(); ++i) {
        crcs.push_back(crc32Of(std::as_bytes(std::span(contents[i]))));
        out += zip.header(i) + contents[i] + zip.descriptor(i, crcs[i]);
    }
    return out + zip.directory(crcs);
}

bool hasNote(const Catalog& catalog, const std::string& rule, Severity severity, const std::string& part) {
    for (const Note& note : catalog.notes()) {
        if (note.rule == rule && note.severity == severity && note.message.find(part) != std::string::npos)
            return true;
    }
    return false;
}

}  // namespace

class TorchSaveReadTest : public QObject {
    Q_OBJECT

  private slots:
    void aliases() {
        const auto opened = torchSaveFormat().open(
            sourceOf(SHARDSCOPE_TEST_DATA "/genuine/torch_save/t2.15.0-tied/ckpt/model.pt"), {});
        QVERIFY(opened.ok());
        const Catalog& catalog = (*opened)->catalog();
        QCOMPARE(catalog.aliasOf(catalog.find("dec.w")), catalog.find("enc.w"));
        for (const char* other : {"enc.w", "rows", "col", "other"})
            QCOMPARE(catalog.aliasOf(catalog.find(other)), kNone);
    }

    void roles() {
        const auto opened = torchSaveFormat().open(
            sourceOf(SHARDSCOPE_TEST_DATA "/genuine/torch_save/t2.15.0-optimizer/ckpt/model.pt"), {});
        QVERIFY(opened.ok());
        const Catalog& catalog = (*opened)->catalog();
        std::vector<std::pair<std::string, Role>> target;
        for (const char* name : {"emb.weight", "body.0.weight", "body.0.bias", "body.2.weight", "body.2.bias",
                                 "bn.weight", "bn.bias", "head.weight"})
            target.emplace_back(std::string("model.") + name, Role::parameter);
        for (const char* name : {"running_mean", "running_var", "num_batches_tracked"})
            target.emplace_back(std::string("model.bn.") + name, Role::buffer);
        for (int parameter = 0; parameter < 8; ++parameter) {
            for (const char* part : {".step", ".exp_avg", ".exp_avg_sq"})
                target.emplace_back("optimizer.state." + std::to_string(parameter) + part, Role::optimizer);
        }
        QCOMPARE(catalog.tensorCount(), target.size());
        for (const auto& [name, role] : target) {
            const TensorId t = catalog.find(name);
            QVERIFY2(t != kNone, name.c_str());
            QVERIFY2(catalog.role(t) == role, name.c_str());
        }
    }

    void paths() {
        const auto opened = torchSaveFormat().open(
            sourceOf(SHARDSCOPE_TEST_DATA "/genuine/torch_save/t2.15.0-nested/ckpt/model.pt"), {});
        QVERIFY(opened.ok());
        const Catalog& catalog = (*opened)->catalog();
        using Kind = PathPart::Kind;
        const auto kinds = [&](const char* name) {
            std::vector<Kind> all;
            for (const PathPart& part : catalog.path(catalog.find(name)))
                all.push_back(part.kind);
            return all;
        };
        QVERIFY(kinds("list.1.k") == (std::vector{Kind::key, Kind::index, Kind::key}));
        QVERIFY(kinds("tup.0") == (std::vector{Kind::key, Kind::tupleIndex}));
        QVERIFY(kinds("0") == (std::vector{Kind::integerKey}));
        QVERIFY(kinds("(1, 2)") == (std::vector{Kind::otherKey}));
    }

    // A file that was cut off anywhere is an error, never a crash; a whole one is read.
    void truncations_data() {
        QTest::addColumn<QString>("path");
        for (const char* name : {"t2.15.0-nested/ckpt/model.pt", "t1.13.1-objects/ckpt/model.pt",
                                 "t2.6.0-legacy/ckpt/legacy.pth"}) {
            QTest::newRow(name) << QString(SHARDSCOPE_TEST_DATA "/genuine/torch_save/") + name;
        }
    }
    void truncations() {
        QFETCH(QString, path);
        const std::string whole = readFile(path.toStdString());
        QVERIFY(openBytes(whole).ok());
        for (size_t size = 0; size < whole.size(); ++size) {
            const auto opened = openBytes(whole.substr(0, size));
            QVERIFY2(!opened.ok(), std::to_string(size).c_str());
            QVERIFY(!opened.error().message.empty() && opened.error().location.file == "/d/model.pt");
            QCOMPARE(exitCode(opened.error().code), 3);
        }
    }

    // Any flipped bit: an error or a catalog, and then bytes or an error, which is one of damage, of a kind
    // that is not read, of a number too large or of a name that is not safe.
    void flippedBytes() {
        const std::set<ErrorCode> legal{ErrorCode::damaged, ErrorCode::unsupported, ErrorCode::limit,
                                        ErrorCode::unsafe};
        for (const char* name : {"t2.15.0-sparse/ckpt/model.pt", "t2.15.0-legacy/ckpt/legacy.pth",
                                 "t2.15.0-dtensor/ckpt/model.pt"}) {
            const std::string whole =
                readFile(std::string(SHARDSCOPE_TEST_DATA "/genuine/torch_save/") + name);
            for (size_t at = 0; at < whole.size(); ++at) {
                std::string changed = whole;
                changed[at] = static_cast<char>(changed[at] ^ (1 << (at % 8)));
                const auto opened = openBytes(changed);
                if (!opened.ok()) {
                    QVERIFY2(legal.contains(opened.error().code), describe(opened.error()).c_str());
                    continue;
                }
                const Catalog& catalog = (*opened)->catalog();
                for (TensorId t = 0; t < catalog.tensorCount(); ++t) {
                    if (catalog.bytes(t) > 1 << 20) continue;
                    const auto bytes = readChunk(**opened, t, catalog.firstChunk(t));
                    QVERIFY2(
                        bytes.ok() ? bytes->size() == catalog.bytes(t) : legal.contains(bytes.error().code),
                        bytes.ok() ? name : describe(bytes.error()).c_str());
                }
            }
        }
    }

    void bigEndian() {
        PickleWriter writer;
        TorchTensorPickler(writer).tensor(DType::int32, "0", 2, 0, Dims{2}, Dims{1});
        std::string bytes = archiveOf(writer.finish(), {std::string("\0\0\0\1\0\0\0\2", 8)});
        const size_t order = bytes.find("little");
        bytes.replace(order, 6, "big   ");
        QVERIFY(!openBytes(bytes).ok());  // neither little nor big, and another CRC
        PickleWriter again;
        TorchTensorPickler(again).tensor(DType::int32, "0", 2, 0, Dims{2}, Dims{1});
        ZipLayout zip("a");
        const std::vector<std::string> contents{again.finish(), "big", std::string("\0\0\0\1\0\0\0\2", 8),
                                                "3"};
        const std::vector<std::string> names{"data.pkl", "byteorder", "data/0", "version"};
        std::vector<uint32_t> crcs;
        bytes.clear();
        for (size_t i = 0; i < names.size(); ++i) {
            zip.addRecord(names[i], contents[i].size());
            crcs.push_back(crc32Of(std::as_bytes(std::span(contents[i]))));
            bytes += zip.header(i) + contents[i] + zip.descriptor(i, crcs[i]);
        }
        const auto opened = openBytes(bytes + zip.directory(crcs));
        QVERIFY(opened.ok());
        const auto data = readChunk(**opened, 0, 0).value();
        QCOMPARE(static_cast<int>(data[0]), 1);
        QCOMPARE(static_cast<int>(data[4]), 2);
    }

    void foreignGlobals() {
        PickleWriter writer;
        writer.emptyDict();
        writer.mark();
        writer.text("evil");
        writer.global("os", "system");
        writer.text("true");
        writer.tuple1();
        writer.reduce();
        writer.text("mine");
        writer.global("mylib", "Thing");
        writer.emptyTuple();
        writer.newObject();
        writer.text("w");
        TorchTensorPickler(writer).tensor(DType::uint8, "0", 3, 0, Dims{3}, Dims{1});
        writer.setItems();
        const auto opened = openBytes(archiveOf(writer.finish(), {"abc"}));
        QVERIFY(opened.ok());
        const Catalog& catalog = (*opened)->catalog();
        QVERIFY(catalog.find("w") != kNone);
        QVERIFY(hasNote(catalog, "security.global", Severity::error, "os.system"));
        QVERIFY(hasNote(catalog, "security.global", Severity::warning, "mylib.Thing"));
    }

    // torch's own records of how a tensor is cut are data; what looks like one is not.
    void recordsOfTorch() {
        for (const auto& [module, name] : {std::pair{"torch.distributed.fsdp.flat_param", "_ShardParamInfo"},
                                           {"torch.distributed._shard.metadata", "ShardMetadata"},
                                           {"torch.distributed.tensor", "DTensor"},
                                           {"torch.distributed.tensor._dtensor_spec", "DTensorSpec"},
                                           {"torch.distributed._tensor.placement_types", "_StridedShard"},
                                           {"torch.distributed.device_mesh", "DeviceMesh"}}) {
            QVERIFY2(classifyGlobal(module, name) == GlobalKind::data, module);
        }
        for (const char* name : {"int1", "uint4", "int7"})
            QVERIFY(classifyGlobal("torch", name) == GlobalKind::weights);
        for (const char* name : {"int9", "uint", "uint44", "fint4"})
            QVERIFY(classifyGlobal("torch", name) == GlobalKind::foreign);
        QVERIFY(classifyGlobal("torch.distributed.tensorx", "DTensor") == GlobalKind::foreign);
        QVERIFY(classifyGlobal("torch.distributed.tensor", "DTensor.from_local") == GlobalKind::foreign);
        QVERIFY(classifyGlobal("torch.distributed.tensor.api", "exec") == GlobalKind::foreign);
    }

    void refused_data() {
        QTest::addColumn<QByteArray>("bytes");
        QTest::addColumn<QByteArray>("says");
        const auto tensor = [](uint64_t elements, int64_t offset, const Dims& shape, const Dims& strides) {
            PickleWriter writer;
            TorchTensorPickler(writer).tensor(DType::float32, "0", elements, offset, shape, strides);
            return writer.finish();
        };
        const auto row = [](const char* name, const std::string& bytes, const char* says) {
            QTest::newRow(name) << QByteArray::fromStdString(bytes) << QByteArray(says);
        };
        const std::string four(16, 'x');
        row("beyond the storage by one", archiveOf(tensor(4, 1, {2, 2}, {2, 1}), {four}),
            "needs more than the 16 bytes");
        row("storage smaller than stated", archiveOf(tensor(5, 0, {4}, {1}), {four}),
            "has 16 bytes, its storage needs 20");
        row("no record", archiveOf(tensor(4, 0, {4}, {1})), "no record data/0");
        row("negative stride", archiveOf(tensor(4, 0, {4}, {-1}), {four}), "negative");
        row("negative size", archiveOf(tensor(4, 0, {-4}, {1}), {four}), "negative");
        row("negative offset", archiveOf(tensor(4, -1, {4}, {1}), {four}), "offset");
        row("product overflows", archiveOf(tensor(4, 0, {1LL << 40, 1LL << 40}, {0, 0}), {four}),
            "overflows");
        row("stride overflows", archiveOf(tensor(4, 0, {1LL << 40, 2}, {1LL << 40, 1}), {four}),
            "needs more");
        row("other zip", archiveOf("x").replace(0, 0, ""), "");
        row("pickle of nothing", archiveOf("\x80\x02."), "STOP");
        row("bytes after STOP", archiveOf("\x80\x02N.N"), "behind the end");
        row("empty", "", "empty");
        row("html", "<!DOCTYPE html><html></html>", "neither");
        row("lfs pointer", "version https://git-lfs.github.com/spec/v1\n", "neither");
        row("preview", "PYTORCH1" + four, "PYTORCH1");
        std::string tar = "sys_info";
        tar.resize(257);
        row("tar", tar + "ustar" + std::string(600, '\0'), "tar archive");
    }
    void refused() {
        QFETCH(QByteArray, bytes);
        QFETCH(QByteArray, says);
        const auto opened = openBytes(bytes.toStdString());
        QVERIFY(!opened.ok());
        QVERIFY2(opened.error().message.find(says.toStdString()) != std::string::npos,
                 describe(opened.error()).c_str());
        QCOMPARE(exitCode(opened.error().code), 3);
    }

    void repeatedPartsAreBounded() {
        // 40 levels of tuples that each hold the level below twice, with a tensor at the bottom: 2^40 names.
        PickleWriter writer;
        TorchTensorPickler(writer).tensor(DType::uint8, "0", 1, 0, Dims{1}, Dims{1});
        uint32_t below = writer.put();
        for (int i = 0; i < 40; ++i) {
            writer.get(below);
            writer.tuple2();
            below = writer.put();
        }
        const auto opened = openBytes(archiveOf(writer.finish(), {"x"}));
        QVERIFY(!opened.ok());
        QCOMPARE(static_cast<int>(opened.error().code), static_cast<int>(ErrorCode::limit));
    }
};

QTEST_GUILESS_MAIN(TorchSaveReadTest)
#include "torch_save_read_test.moc"
