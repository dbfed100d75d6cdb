// torch.distributed.checkpoint: checksums, generations of the metadata, and how damage shows where a chunk is
// looked for.
#include <QTemporaryDir>
#include <QtTest>
#include <algorithm>
#include <filesystem>
#include <set>

#include <zlib.h>

#include "assemble.h"
#include "formats/dcp/dcp.h"
#include "support/genuine.h"

using namespace shardscope;
using namespace shardscope::test;

namespace {

std::vector<GenuineCase> cases(bool damaged) {
    std::vector<GenuineCase> out;
    for (GenuineCase& c : genuineCases("dcp")) {
        if (c.expected["format"] == "dcp" && c.damaged() == damaged) out.push_back(std::move(c));
    }
    return out;
}

GenuineCase caseNamed(const std::string& name) {
    for (GenuineCase& c : genuineCases("dcp")) {
        if (c.name == name) return c;
    }
    qFatal("no such case");
}

std::string text(const Error& error) {
    return describe(error);
}

bool hasNote(const Catalog& catalog, std::string_view rule) {
    for (const Note& note : catalog.notes()) {
        if (note.rule == rule) return true;
    }
    return false;
}

}  // namespace

class DcpReadTest : public QObject {
    Q_OBJECT

  private:
    std::unique_ptr<Reader> open(const GenuineCase& c) {
        const Source source = sourceOf(c.path);
        const Probe probe = dcpFormat().probe(source);
        if (probe.match != Probe::Match::certain) {
            QTest::qFail(qPrintable(QString::fromStdString("not recognized: " + c.name)), __FILE__, __LINE__);
            return nullptr;
        }
        auto reader = dcpFormat().open(source, {});
        if (!reader.ok()) {
            QTest::qFail(text(reader.error()).c_str(), __FILE__, __LINE__);
            return nullptr;
        }
        return std::move(reader).value();
    }
    ChunkId chunkAt(const Catalog& catalog, const std::string& tensor, const nlohmann::json& offsets) {
        const TensorId t = catalog.find(tensor);
        if (t == kNone) return kNone;
        for (ChunkId c = catalog.firstChunk(t); c < catalog.endChunk(t); ++c) {
            const DimSpan at = catalog.chunk(t, c).offsets;
            if (Dims(at.begin(), at.end()) == offsets.get<Dims>()) return c;
        }
        return kNone;
    }

  private slots:
    void genuine_data() {
        QTest::addColumn<int>("index");
        const auto all = cases(false);
        for (size_t i = 0; i < all.size(); ++i)
            QTest::newRow(all[i].name.c_str()) << static_cast<int>(i);
    }
    // Chunks are of ranks, and where the zip has the CRC of an entry, it is that of the bytes.
    void genuine() {
        QFETCH(int, index);
        const auto reader = open(cases(false)[static_cast<size_t>(index)]);
        QVERIFY(reader);
        for (ChunkId k = 0; k < reader->catalog().chunkCount(); ++k) {
            const ChunkInfo chunk = reader->catalog().chunk(k);
            QVERIFY(chunk.elements() == 0 || chunk.rank != kNone);
            const auto extent = reader->locate(k);
            QVERIFY(extent.ok());
            if (!extent->checksum) continue;
            std::vector<std::byte> all(extent->checksum->length);
            QVERIFY(extent->file->readAt(extent->checksum->offset, all).ok());
            QCOMPARE(
                static_cast<uint32_t>(::crc32_z(0, reinterpret_cast<const Bytef*>(all.data()), all.size())),
                extent->checksum->crc32);
        }
    }

    void metadataFileItself() {
        const GenuineCase c = caseNamed("t2.6.0-standard");
        const Source source = sourceOf(c.path + "/.metadata");
        QCOMPARE(dcpFormat().probe(source).match, Probe::Match::certain);
        const auto reader = dcpFormat().open(source, {});
        QVERIFY(reader.ok());
        QCOMPARE((*reader)->catalog().tensorCount(), c.expected["tensors"].size());
    }

    void pathsAreKept() {
        const GenuineCase c = caseNamed("t2.15.0-no-dist");
        const auto reader = open(c);
        QVERIFY(reader);
        const Catalog& catalog = reader->catalog();
        const Path path = catalog.path(catalog.find("lt.1.a"));
        QCOMPARE(path.size(), size_t{3});
        QVERIFY(path[1].kind == PathPart::Kind::index && path[1].index == 1);
        const Path key = catalog.path(catalog.find("state.0.x"));
        QVERIFY(key[1].kind == PathPart::Kind::key && key[1].text == "0");
    }

    void optimizerStateIsKnown() {
        for (const char* name : {"t2.15.0-fsdp2-adam", "t2.15.0-fsdp2-adam-flat", "t2.6.0-fsdp2-raw-optim"}) {
            const auto reader = open(caseNamed(name));
            QVERIFY(reader);
            const Catalog& catalog = reader->catalog();
            size_t optimizer = 0;
            for (TensorId t = 0; t < catalog.tensorCount(); ++t) {
                const bool state = std::string(catalog.name(t)).find("exp_avg") != std::string::npos;
                if (state) QCOMPARE(catalog.role(t), Role::optimizer);
                optimizer += catalog.role(t) == Role::optimizer;
            }
            QVERIFY2(optimizer > 0 && optimizer < catalog.tensorCount(), name);
        }
    }

    void generations_data() {
        QTest::addColumn<QString>("name");
        QTest::addColumn<QString>("writer");
        QTest::newRow("2.1") << "t2.1.2-standard"
                             << "torch 2.0 to 2.2";
        QTest::newRow("2.3") << "t2.3.1-standard"
                             << "torch 2.3";
        QTest::newRow("2.4") << "t2.4.1-standard"
                             << "torch 2.4 to 2.6";
        QTest::newRow("2.6") << "t2.6.0-standard"
                             << "torch 2.4 to 2.6";
        QTest::newRow("2.8") << "t2.8.0-standard"
                             << "torch 2.7 or 2.8";
        QTest::newRow("2.11") << "t2.11.0-standard"
                              << "torch 2.9 to 2.14";
        QTest::newRow("2.15") << "t2.15.0-standard"
                              << "torch 2.15 or later";
    }
    void generations() {
        QFETCH(QString, name);
        QFETCH(QString, writer);
        const auto reader = open(caseNamed(name.toStdString()));
        QVERIFY(reader);
        QCOMPARE(QString::fromStdString(reader->catalog().writer()), writer);
    }

    void staleFilesOfALargerWorld() {
        const auto reader = open(caseNamed("t2.15.0-stale-larger-world"));
        QVERIFY(reader);
        QVERIFY(hasNote(reader->catalog(), "file.stale"));
        const auto other = open(caseNamed("t2.15.0-idle-rank"));
        QVERIFY(other);
        QVERIFY(!hasNote(other->catalog(), "file.stale"));
        QCOMPARE(other->catalog().rankCount(),
                 caseNamed("t2.15.0-idle-rank").expected["world_size"].get<uint32_t>());
    }

    void neverCommitted() {
        const GenuineCase c = caseNamed("t2.6.0-standard");
        Source source = sourceOf(c.path);
        std::erase_if(source.entries, [](const DirectoryEntry& e) { return e.name == ".metadata"; });
        QCOMPARE(dcpFormat().probe(source).match, Probe::Match::possible);
        const auto reader = dcpFormat().open(source, {});
        QVERIFY(!reader.ok());
        QCOMPARE(reader.error().code, ErrorCode::notFound);
        QVERIFY(text(reader.error()).find("never committed") != std::string::npos);
        QVERIFY(!reader.error().hint.empty());
    }

    // Two hosts without a disk in common: each has the files of its ranks, the first one .metadata too.
    void severalHosts() {
        namespace fs = std::filesystem;
        const GenuineCase c = caseNamed("t2.15.0-fsdp2-tp");
        QTemporaryDir place;
        const fs::path one = place.filePath("gpu07").toStdString(),
                       two = place.filePath("gpu08").toStdString();
        fs::create_directory(one);
        fs::create_directory(two);
        for (const auto& file : fs::directory_iterator(c.path)) {
            const std::string name = file.path().filename();
            const bool second = name == "__2_0.distcp" || name == "__3_0.distcp";
            fs::copy_file(file.path(), (second ? two : one) / name);
        }
        // Alone they say where the rest is.
        const auto half = dcpFormat().open(sourceOf(one), {});
        QVERIFY(half.ok());
        const auto elsewhere = std::ranges::find_if((*half)->catalog().notes(), [](const Note& note) {
            return note.message.starts_with("the files of 2 of 4 ranks are here");
        });
        QVERIFY(elsewhere != (*half)->catalog().notes().end());
        const auto rest = dcpFormat().open(sourceOf(two), {});
        QVERIFY(!rest.ok());
        QVERIFY2(rest.error().hint.find("--also DIR") != std::string::npos, rest.error().hint.c_str());
        // Together they are whole, whichever comes first.
        for (const auto& [first, second] : {std::pair(one, two), std::pair(two, one)}) {
            OpenOptions options;
            options.own = {{"--also", second}};
            const auto whole = dcpFormat().open(sourceOf(first), options);
            QVERIFY2(whole.ok(), whole.ok() ? "" : text(whole.error()).c_str());
            const Catalog& catalog = (*whole)->catalog();
            QCOMPARE(catalog.tensorCount(), c.expected["tensors"].size());
            QVERIFY(!hasNote(catalog, "file.missing"));
            for (ChunkId k = 0; k < catalog.chunkCount(); ++k)
                QVERIFY((*whole)->locate(k).ok());
        }
        // The same file twice is of two saves, or a copy.
        OpenOptions twice;
        twice.own = {{"--also", two}, {"--also", two}};
        const auto refused = dcpFormat().open(sourceOf(one), twice);
        QVERIFY(!refused.ok());
        QCOMPARE(refused.error().code, ErrorCode::unsafe);
        twice.own = {{"--also", "s3://bucket/step"}};
        QCOMPARE(dcpFormat().open(sourceOf(one), twice).error().code, ErrorCode::unsupported);
    }

    void damaged_data() {
        QTest::addColumn<int>("index");
        const auto all = cases(true);
        for (size_t i = 0; i < all.size(); ++i)
            QTest::newRow(all[i].name.c_str()) << static_cast<int>(i);
    }
    void damaged() {
        QFETCH(int, index);
        const GenuineCase c = cases(true)[static_cast<size_t>(index)];
        const nlohmann::json finding = c.expected["findings"][0];
        const std::string kind = finding["kind"];
        if (kind == "truncated" && finding["file"] == ".metadata") {
            const auto reader = dcpFormat().open(sourceOf(c.path), {});
            QVERIFY(!reader.ok());
            QCOMPARE(reader.error().code, ErrorCode::damaged);
            QVERIFY(reader.error().location.offset.has_value());
            QVERIFY(reader.error().location.file.find(".metadata") != std::string::npos);
            return;
        }
        const auto reader = open(c);
        QVERIFY(reader);
        const Catalog& catalog = reader->catalog();
        if (kind == "missing-file" || kind == "truncated" || kind == "zeroed-file") {
            for (const auto& affected : finding["affects"]) {
                const ChunkId chunk = chunkAt(catalog, affected["name"], affected["offsets"]);
                QVERIFY(chunk != kNone);
                const auto extent = reader->locate(chunk);
                QVERIFY(!extent.ok());
                const Error& error = extent.error();
                QVERIFY(error.location.file.find(finding["file"].get<std::string>()) != std::string::npos);
                QCOMPARE(error.location.tensor, affected["name"].get<std::string>());
                QVERIFY(error.location.offset.has_value());
                if (kind == "missing-file") QCOMPARE(error.location.rule, std::string("file.missing"));
                if (kind == "truncated") QCOMPARE(error.location.rule, std::string("file.truncated"));
                if (kind == "zeroed-file")
                    QVERIFY(error.message.find("only zero bytes") != std::string::npos);
            }
            if (kind == "missing-file") {
                bool missing = false;
                for (const FileInfo& file : catalog.files())
                    missing |= file.path == finding["file"] && file.state == FileInfo::State::missing;
                QVERIFY(missing);
            }
        } else if (kind == "crc-mismatch") {
            const ChunkId chunk = chunkAt(catalog, finding["tensor"], finding["chunk"]["offsets"]);
            const auto extent = reader->locate(chunk);
            QVERIFY(extent.ok() && extent->checksum);
            std::vector<std::byte> all(extent->checksum->length);
            QVERIFY(extent->file->readAt(extent->checksum->offset, all).ok());
            QVERIFY(static_cast<uint32_t>(::crc32_z(0, reinterpret_cast<const Bytef*>(all.data()),
                                                    all.size())) != extent->checksum->crc32);
        } else if (kind == "shape-mismatch") {
            const TensorId t = catalog.find(finding["tensor"].get<std::string>());
            const DimSpan shape = catalog.shape(t);
            QCOMPARE(Dims(shape.begin(), shape.end()), finding["metadata"].get<Dims>());
            bool refused = false;
            for (ChunkId k = catalog.firstChunk(t); k < catalog.endChunk(t); ++k) {
                const auto extent = reader->locate(k);
                if (!extent.ok()) {
                    QCOMPARE(extent.error().location.rule, std::string("meta.inconsistent"));
                    refused = true;
                }
            }
            QVERIFY(refused ||
                    c.expected["tensors"][finding["tensor"].get<std::string>()]["shape"] == finding["data"]);
        } else if (kind == "gap") {
            QCOMPARE(chunkAt(catalog, finding["tensor"], finding["region"]["offsets"]), ChunkId{kNone});
        } else if (kind == "overlap") {
            const ChunkId chunk = chunkAt(catalog, finding["tensor"], finding["chunk"]["offsets"]);
            QVERIFY(chunk != kNone);
            const DimSpan lengths = catalog.chunk(chunk).lengths;
            QCOMPARE(Dims(lengths.begin(), lengths.end()), finding["chunk"]["lengths"].get<Dims>());
        } else {
            QVERIFY2(kind == "nan" || kind == "inf", kind.c_str());
            const TensorId t = catalog.find(finding["tensor"].get<std::string>());
            QVERIFY(assemble(*reader, t).ok());
        }
    }
};

QTEST_APPLESS_MAIN(DcpReadTest)
#include "dcp_read_test.moc"
