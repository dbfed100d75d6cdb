// Index files: the catalog of every genuine checkpoint there and back; files that are cut off, changed or
// made to do harm; what is said when data is asked for.
#include "formats/index/index.h"

#include <QTemporaryDir>
#include <QtTest>
#include <filesystem>
#include <fstream>

#include "engine/engine.h"
#include "support/genuine.h"
#include "support/memory_file_system.h"

using namespace shardscope;
using namespace shardscope::test;

namespace {

const IndexOrigin kOrigin{"gpu07", "/checkpoints/step-1000", 1'790'000'000};

std::vector<std::byte> bytesOf(const std::string& text) {
    const auto bytes = std::as_bytes(std::span(text));
    return {bytes.begin(), bytes.end()};
}

Result<std::unique_ptr<Reader>> openBytes(const std::string& bytes) {
    const auto files = std::make_shared<MemoryFileSystem>();
    files->put("/x/a.ssidx", bytesOf(bytes));
    Source source;
    source.fileSystem = files;
    auto directory = files->openDirectory("/x");
    if (!directory.ok()) return std::move(directory).error();
    source.directory = std::move(directory).value();
    source.entry = "a.ssidx";
    source.display = "/x/a.ssidx";
    source.entries = {{"a.ssidx", DirectoryEntry::Kind::file, bytes.size()}};
    return indexFormat().open(source, {});
}

// What two catalogs differ in; empty when they say the same.
std::string difference(const Catalog& a, const Catalog& b) {
    if (a.format() != b.format() || a.variant() != b.variant() || a.writer() != b.writer()) return "identity";
    if (a.tensorCount() != b.tensorCount() || a.chunkCount() != b.chunkCount()) return "counts";
    for (TensorId t = 0; t < a.tensorCount(); ++t) {
        const std::string name(a.name(t));
        if (name != b.name(t) || a.path(t) != b.path(t)) return name + ": name";
        if (a.dtype(t) != b.dtype(t) || !std::ranges::equal(a.shape(t), b.shape(t))) return name + ": shape";
        if (a.role(t) != b.role(t) || a.aliasOf(t) != b.aliasOf(t) || a.special(t) != b.special(t))
            return name + ": role, alias or special";
        if (a.firstChunk(t) != b.firstChunk(t) || a.endChunk(t) != b.endChunk(t)) return name + ": chunks";
        for (ChunkId c = a.firstChunk(t); c < a.endChunk(t); ++c) {
            const ChunkInfo x = a.chunk(t, c), y = b.chunk(t, c);
            if (x.rank != y.rank || x.file != y.file || x.offset != y.offset || x.length != y.length ||
                x.flat != y.flat || !std::ranges::equal(x.offsets, y.offsets) ||
                !std::ranges::equal(x.lengths, y.lengths))
                return name + ": a chunk";
        }
    }
    if (a.specials().size() != b.specials().size()) return "specials";
    for (size_t i = 0; i < a.specials().size(); ++i) {
        const SpecialTensor &x = a.specials()[i], &y = b.specials()[i];
        if (x.name != y.name || x.path != y.path || x.kind != y.kind || x.dtype != y.dtype ||
            x.shape != y.shape || x.detail != y.detail)
            return "special " + x.name;
    }
    if (a.files().size() != b.files().size()) return "files";
    for (size_t i = 0; i < a.files().size(); ++i) {
        const FileInfo &x = a.files()[i], &y = b.files()[i];
        if (x.path != y.path || x.size != y.size || x.state != y.state || x.metadata != y.metadata ||
            x.rank != y.rank || x.referenced != y.referenced)
            return "file " + x.path;
    }
    if (a.objects().size() != b.objects().size()) return "objects";
    for (size_t i = 0; i < a.objects().size(); ++i) {
        const ObjectInfo &x = a.objects()[i], &y = b.objects()[i];
        if (x.name != y.name || x.path != y.path || x.rank != y.rank || x.file != y.file ||
            x.offset != y.offset || x.length != y.length)
            return "object " + x.name;
    }
    if (a.mesh().has_value() != b.mesh().has_value()) return "mesh";
    if (a.mesh() && (!(*a.mesh() == *b.mesh()) || a.mesh()->source != b.mesh()->source ||
                     a.mesh()->evidence != b.mesh()->evidence))
        return "mesh";
    if (a.notes().size() != b.notes().size()) return "notes";
    for (size_t i = 0; i < a.notes().size(); ++i) {
        const Note &x = a.notes()[i], &y = b.notes()[i];
        if (x.rule != y.rule || x.severity != y.severity || x.message != y.message || x.file != y.file ||
            x.tensor != y.tensor || x.offset != y.offset)
            return "note " + x.message;
    }
    if (a.rankCount() != b.rankCount() || a.totalBytes() != b.totalBytes() ||
        a.totalElements() != b.totalElements() ||
        a.elementsOf(Role::parameter) != b.elementsOf(Role::parameter))
        return "totals";
    return {};
}

QString sampleOf(const char* family, const char* name) {
    return QStringLiteral(SHARDSCOPE_TEST_DATA "/genuine/%1/%2/ckpt").arg(family, name);
}

std::string indexOf(const std::string& path) {
    const auto checkpoint = openCheckpoint(path);
    if (!checkpoint.ok()) qFatal("%s", describe(checkpoint.error()).c_str());
    const auto bytes = encodeIndex(*checkpoint->reader, kOrigin);
    if (!bytes.ok()) qFatal("%s", describe(bytes.error()).c_str());
    return *bytes;
}

}  // namespace

class IndexTest : public QObject {
    Q_OBJECT

  private slots:
    void everyGenuineCheckpointComesBack_data() {
        QTest::addColumn<QString>("path");
        QTest::addColumn<bool>("mayBeRefused");
        for (const char* family : {"dcp", "torch_save", "safetensors", "paddle_dist", "colossalai", "olmo"}) {
            for (const GenuineCase& one : genuineCases(family))
                QTest::newRow((one.family + "/" + one.name).c_str())
                    << QString::fromStdString(one.openPath()) << one.damaged();
        }
    }
    void everyGenuineCheckpointComesBack() {
        QFETCH(QString, path);
        const auto checkpoint = openCheckpoint(path.toStdString());
        if (!checkpoint.ok()) {
            QFETCH(bool, mayBeRefused);
            QVERIFY2(mayBeRefused, describe(checkpoint.error()).c_str());
            return;
        }
        const Reader& reader = *checkpoint->reader;
        const auto bytes = encodeIndex(reader, kOrigin);
        QVERIFY2(bytes.ok(), bytes.ok() ? "" : describe(bytes.error()).c_str());
        const auto back = openBytes(*bytes);
        QVERIFY2(back.ok(), back.ok() ? "" : describe(back.error()).c_str());
        QCOMPARE(QString::fromStdString(difference(reader.catalog(), (*back)->catalog())), QString());
        for (ObjectId o = 0; o < reader.catalog().objects().size(); ++o) {
            const ObjectInfo& object = reader.catalog().objects()[o];
            const auto here = object.value ? Result<Value>(object.value) : reader.objectValue(o);
            const auto there = (*back)->objectValue(o);
            QCOMPARE(there.ok(), here.ok());
            if (here.ok()) QCOMPARE(valueRepr(*there, 10'000), valueRepr(*here, 10'000));
        }
    }

    void dataIsSaidToBeElsewhere() {
        const auto back = openBytes(indexOf(sampleOf("dcp", "t2.15.0-fsdp2-tp").toStdString()));
        QVERIFY(back.ok());
        QCOMPARE((*back)->dataElsewhere(),
                 std::string("an index of gpu07:/checkpoints/step-1000, made 2026-09-21 14:13 UTC"));
        const auto extent = (*back)->locate(0);
        QVERIFY(!extent.ok());
        QCOMPARE(extent.error().code, ErrorCode::unsupported);
        QVERIFY(extent.error().message.find("the data is not here: this is an index of gpu07:") == 0);
        QVERIFY(!extent.error().hint.empty());
        QVERIFY(!(*back)->openFile(0).ok());
        // Deeper levels would blame the checkpoint for it.
        ThreadPool pool(1);
        MemoryBudget memory(1 << 20);
        Resources resources;
        resources.pool = &pool;
        resources.memory = &memory;
        ValidateOptions options;
        options.level = ValidateLevel::files;
        const auto refused = validateCheckpoint(**back, options, resources);
        QVERIFY(!refused.ok());
        QCOMPARE(refused.error().code, ErrorCode::unsupported);
        options.level = ValidateLevel::metadata;
        QVERIFY(validateCheckpoint(**back, options, resources).ok());
    }

    void everyTruncationIsAnError() {
        const std::string bytes = indexOf(sampleOf("dcp", "t2.15.0-fsdp2-tp").toStdString());
        for (size_t length = 0; length < bytes.size(); ++length) {
            const auto back = openBytes(bytes.substr(0, length));
            QVERIFY2(!back.ok(), qPrintable(QString::number(length)));
            QVERIFY(back.error().code == ErrorCode::damaged);
            QVERIFY(!back.error().location.file.empty());
        }
    }

    void everyChangedByteIsAnError() {
        const std::string bytes = indexOf(sampleOf("dcp", "t2.15.0-fsdp2-tp").toStdString());
        for (size_t i = 0; i < bytes.size(); ++i) {
            if (i >= 12 && i < 16) continue;  // reserved
            std::string changed = bytes;
            changed[i] = static_cast<char>(changed[i] ^ 0x41);
            const auto back = openBytes(changed);
            QVERIFY2(!back.ok(), qPrintable(QString::number(i)));
        }
    }

    // The digest fits whoever makes a file on purpose, so the contents are checked by themselves.
    void everyChangedPayloadIsReadOrRefused() {
        for (const char* name : {"t2.15.0-fsdp2-tp", "t2.15.0-no-dist"}) {
            const auto checkpoint = openCheckpoint(sampleOf("dcp", name).toStdString());
            QVERIFY(checkpoint.ok());
            const auto payload = encodeIndexPayload(*checkpoint->reader, kOrigin);
            QVERIFY(payload.ok());
            for (size_t length = 0; length < payload->size(); ++length)
                QVERIFY(!decodeIndexPayload(std::as_bytes(std::span(*payload)).first(length)).ok());
            std::string changed = *payload;
            for (size_t i = 0; i < changed.size(); ++i) {
                for (const char value : {'\0', '\x01', '\x7f', '\xff'}) {
                    const char before = std::exchange(changed[i], value);
                    const auto contents = decodeIndexPayload(std::as_bytes(std::span(changed)));
                    if (!contents.ok()) QVERIFY(!contents.error().message.empty());
                    changed[i] = before;
                }
            }
            const std::string longer = *payload + "x";
            QVERIFY(!decodeIndexPayload(std::as_bytes(std::span(longer))).ok());
        }
    }

    void aBombIsNotUnpacked() {
        std::string bytes = indexOf(sampleOf("dcp", "t2.15.0-no-dist").toStdString());
        for (size_t i = 16; i < 24; ++i)
            bytes[i] = i == 19 ? '\x70' : '\0';  // 1.9 GB out of some kilobytes
        const auto back = openBytes(bytes);
        QVERIFY(!back.ok());
        QCOMPARE(back.error().code, ErrorCode::limit);
    }

    void anotherVersionIsNamed() {
        std::string bytes = indexOf(sampleOf("dcp", "t2.15.0-no-dist").toStdString());
        bytes[8] = 2;
        const auto back = openBytes(bytes);
        QVERIFY(!back.ok());
        QCOMPARE(back.error().code, ErrorCode::unsupported);
        QVERIFY(back.error().message.find("version 2") != std::string::npos);
    }

    void filesAreWrittenWholeAndOutside() {
        QTemporaryDir directory;
        const std::string file = directory.filePath("a.ssidx").toStdString();
        const auto checkpoint = openCheckpoint(sampleOf("dcp", "t2.15.0-fsdp2-tp").toStdString());
        QVERIFY(checkpoint.ok());
        const auto size = writeIndex(*checkpoint, file, false);
        QVERIFY(size.ok());
        QCOMPARE(*size, std::filesystem::file_size(file));
        const auto again = writeIndex(*checkpoint, file, false);
        QVERIFY(!again.ok());
        QCOMPARE(again.error().code, ErrorCode::exists);
        QVERIFY(writeIndex(*checkpoint, file, true).ok());
        QCOMPARE(QDir(directory.path()).entryList(QDir::Files | QDir::Hidden), QStringList{"a.ssidx"});
        const auto inside = writeIndex(*checkpoint, checkpoint->path + "/a.ssidx", false);
        QVERIFY(!inside.ok());
        QCOMPARE(inside.error().code, ErrorCode::usage);

        // It stands for the checkpoint, also as what a plan starts from.
        const auto back = openCheckpoint(file);
        QVERIFY(back.ok());
        QCOMPARE(back->format, checkpoint->format);
        ConversionRequest settings;
        const std::string target = directory.filePath("target").toStdString();
        const auto one = prepareConversion(*checkpoint, target, settings);
        const auto other = prepareConversion(*back, target, settings);
        QVERIFY2(other.ok(), other.ok() ? "" : describe(other.error()).c_str());
        QCOMPARE(other->plan.bytesWritten, one->plan.bytesWritten);
        QCOMPARE(other->plan.files.size(), one->plan.files.size());
        const auto run = runPrepared(*other, settings, nullptr);
        QVERIFY(!run.ok());
        QCOMPARE(run.error().code, ErrorCode::unsupported);
        QVERIFY(!std::filesystem::exists(target));
        // An index of an index is the same again.
        const std::string second = directory.filePath("b.ssidx").toStdString();
        QVERIFY(writeIndex(*back, second, false).ok());
        const auto third = openCheckpoint(second);
        QVERIFY(third.ok());
        QCOMPARE(QString::fromStdString(difference(checkpoint->catalog(), third->catalog())), QString());
    }
};

QTEST_GUILESS_MAIN(IndexTest)
#include "index_test.moc"
