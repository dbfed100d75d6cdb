// Index files that are cut off, changed or made to do harm; what is said when data is asked for. That every
// genuine checkpoint comes back from one is in genuine_test.
#include "formats/index/index.h"

#include <QTemporaryDir>
#include <QtTest>
#include <filesystem>
#include <fstream>

#include "engine/engine.h"
#include "support/catalog_difference.h"
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
