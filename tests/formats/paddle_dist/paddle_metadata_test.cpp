// Metadata of Paddle's distributed checkpoints: odd spellings of the same thing, contradictions, several
// saves in one directory, and hostile bytes.
#include <QtTest>
#include <fstream>
#include <random>

#include "formats/paddle_dist/metadata.h"
#include "formats/paddle_dist/paddle_dist.h"
#include "large_metadata.h"
#include "pickles.h"
#include "support/read_checks.h"
#include "support/text_file.h"

using namespace shardscope;
using namespace shardscope::test;

namespace {

using Files = std::map<std::string, std::string>;

Result<std::unique_ptr<Reader>> open(const Files& files, const std::string& variant = {}) {
    OpenOptions options;
    options.variant = variant;
    return paddleFormat().open(memorySource(files), options);
}

std::string genuineFile(const std::string& path) {
    std::ifstream in(std::string(SHARDSCOPE_TEST_DATA) + "/genuine/paddle_dist/" + path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

Result<paddle::Metadata> decode(const std::string& bytes) {
    return paddle::readMetadata(TextFile(bytes), {}, {});
}

// The same values as another pickler spells them: protocol 2, nothing memoized but what is shared. Empty
// where they cannot be written.
std::string respelled(const std::string& bytes) {
    auto pickle = decodePickle(std::as_bytes(std::span(bytes)));
    if (!pickle.ok()) return {};
    const auto written = encodePickle(makeValue(std::move(pickle->graph), pickle->root));
    return written.ok() ? *written : std::string();
}

// Two ranks with two rows each of a 4 x 2 tensor.
Files halves(const std::string& id = "0", float first = 0) {
    return {{id + ".metadata", metadataPickle({{{"w", {0, 0}, {2, 2}, "0_" + id + ".distcp", Dims{4, 2}},
                                                {"w", {2, 0}, {2, 2}, "1_" + id + ".distcp", Dims{4, 2}}}},
                                              true)},
            {"0_" + id + ".distcp", stateDict({{"w", {2, 2}, floats(4, first)}})},
            {"1_" + id + ".distcp", stateDict({{"w", {2, 2}, floats(4, first + 4)}})}};
}

// What a metadata says, as text.
std::string dump(const paddle::Metadata& m) {
    std::string out(paddle::generationName(m.generation));
    out += m.flexModule ? " flex\n" : "\n";
    const auto dims = [&](paddle::DimsAt where) {
        return where ? formatDims(m.dimsOf(where)) : std::string("-");
    };
    for (const auto& tensor : m.tensors) {
        out += tensor.key + "\n";
        for (const auto& row : m.rowsOf(tensor)) {
            out += "  " + dims(row.offset) + dims(row.shape) + dims(row.global) + dims(row.range) +
                   (row.file == kNone ? "-" : m.files[row.file]) + std::to_string(row.replica) +
                   (row.dtype == kNone ? "?" : m.dtypes[row.dtype]) + "\n";
        }
    }
    for (const auto& row : m.stored) {
        out += m.keyOf(row) + dims(row.offset) + dims(row.shape) + dims(row.range) +
               std::to_string(row.replica) + m.files[row.file] + "\n";
    }
    for (const auto& path : m.paths) {
        out += path.key + " =";
        for (const auto& part : path.parts)
            out += " " + part;
        out += "\n";
    }
    return out;
}

// Whatever opens has chunks inside their files.
void visit(const Result<std::unique_ptr<Reader>>& reader) {
    if (!reader.ok()) {
        QVERIFY(!reader.error().message.empty());
        return;
    }
    const Catalog& catalog = (*reader)->catalog();
    for (ChunkId c = 0; c < catalog.chunkCount(); ++c) {
        const auto extent = (*reader)->locate(c);
        if (!extent.ok() || !extent->file) continue;
        QVERIFY(extent->offset <= extent->file->size());
        QVERIFY(extent->length <= extent->file->size() - extent->offset);
    }
    (void)(*reader)->fileNotes();
}

}  // namespace

class PaddleMetadataTest : public QObject {
    Q_OBJECT

  private slots:
    void spellings() {
        // Lists for tuples, numpy integers, fields of the future, a slice for a range.
        for (int way = 0; way < 4; ++way) {
            std::vector<RowSpec> rows;
            for (int r = 0; r < 2; ++r) {
                RowSpec row{"w", {0, 0}, {4, 2}, std::to_string(r) + "_0.distcp", Dims{4, 2}};
                row.flat = r == 0 ? FlatRange{0, 3} : FlatRange{3, 8};
                row.lists = way == 1;
                row.scalars = way == 2;
                row.extra = row.slice = way == 3;
                rows.push_back(row);
            }
            const auto reader = open({{"0.metadata", metadataPickle({rows}, true)},
                                      {"0_0.distcp", stateDict({{"w", {3}, floats(3)}})},
                                      {"1_0.distcp", stateDict({{"w", {5}, floats(5, 3)}})}});
            QVERIFY2(reader.ok(), reader.ok() ? "" : describe(reader.error()).c_str());
            const Catalog& catalog = (*reader)->catalog();
            QCOMPARE(catalog.tensorCount(), 1U);
            QCOMPARE(catalog.chunkCount(), 2U);
            QVERIFY(catalog.chunk(1).flat == (FlatRange{3, 8}));
            QVERIFY(bytesOf(**reader, 0).value() + bytesOf(**reader, 1).value() == floats(8));
            QVERIFY(catalog.notes().empty());
        }
    }

    void emptyLastPieces() {
        // 5 over 4 by Paddle's rule: 2, 2, 2 (of which one is there), -1.
        std::vector<RowSpec> rows;
        Files files;
        for (int r = 0; r < 4; ++r)
            rows.push_back({"w", {2 * r}, {r == 3 ? -1 : 2}, std::to_string(r) + "_0.distcp"});
        files["0.metadata"] = metadataPickle({rows}, false);
        for (int r = 0; r < 3; ++r)
            files[std::to_string(r) + "_0.distcp"] =
                stateDict({{"w", {2}, floats(2, static_cast<float>(2 * r))}});
        files["3_0.distcp"] = stateDict({});
        const auto reader = open(files);
        QVERIFY2(reader.ok(), reader.ok() ? "" : describe(reader.error()).c_str());
        const Catalog& catalog = (*reader)->catalog();
        QCOMPARE(catalog.shape(0)[0], 5);
        QCOMPARE(catalog.chunkCount(), 3U);
        QCOMPARE(catalog.chunk(2).lengths[0], 1);
        // The array is longer than the piece that counts.
        const auto last = (*reader)->locate(2);
        QVERIFY2(last.ok(), last.ok() ? "" : describe(last.error()).c_str());
        QCOMPARE(last->length, 4U);
    }

    void contradictions() {
        Files files = halves();
        files["0.metadata"] = metadataPickle({{{"w", {0, 0}, {2, 2}, "0_0.distcp", Dims{4, 2}},
                                               {"w", {2, 0}, {2, 2}, "1_0.distcp", Dims{6, 2}}}},
                                             true);
        auto reader = open(files);
        QVERIFY(reader.ok());
        QVERIFY(hasNote((*reader)->catalog().notes(), "meta.inconsistent", "[4, 2], another [6, 2]"));

        files["0.metadata"] = metadataPickle(
            {{{"w", {0, 0}, {2, 2}, "0_0.distcp", Dims{4, 2}}, {"w", {2, 0}, {2, 2}, "", Dims{4, 2}}}}, true);
        reader = open(files);
        QVERIFY(reader.ok());
        QVERIFY(
            hasNote((*reader)->catalog().notes(), "meta.inconsistent", "no entry for the chunk at [2, 0]"));
        QVERIFY(!(*reader)->locate(1).ok());

        // Dtype and shape of what is stored.
        files = halves();
        files["1_0.distcp"] = stateDict({{"w", {2, 2}, std::string(8, '\1'), "f2"}});
        reader = open(files);
        QCOMPARE((*reader)->locate(1).error().location.rule, std::string("meta.inconsistent"));
        files["1_0.distcp"] = stateDict({{"w", {4, 1}, floats(4)}});
        reader = open(files);
        QVERIFY((*reader)->locate(1).error().message.find("[4, 1]") != std::string::npos);
        // A shape that the bytes do not fill.
        files["1_0.distcp"] = stateDict({{"w", {2, 2}, floats(3)}});
        reader = open(files);
        QVERIFY((*reader)->locate(1).error().message.find("needs 16 bytes, it has 12") != std::string::npos);
    }

    void unexpectedFileEntries() {
        Files files = halves();
        files["1_0.distcp"] = stateDict({{"w", {2, 2}, floats(4)}, {"other", {3}, floats(3)}});
        auto reader = open(files);
        QVERIFY(hasNote((*reader)->fileNotes().value(), "meta.inconsistent", "'other'"));
        // Without a global shape in the metadata a lost row shrinks the tensor.
        files["0.metadata"] =
            metadataPickle({{{"w", {0, 0}, {2, 2}, "0_0.distcp"}}, {{"x", {0}, {1}, "1_0.distcp"}}}, false);
        files["1_0.distcp"] = stateDict({{"w", {2, 2}, floats(4)}, {"x", {1}, floats(1)}});
        reader = open(files);
        QVERIFY(hasNote((*reader)->fileNotes().value(), "coverage.shrunk", "shape [2, 2] of 'w'"));
    }

    void severalSaves() {
        Files files = halves("2", 100);
        files.merge(halves("12", 200));
        auto reader = open(files);
        QVERIFY(bytesOf(**reader, 0).value() == floats(4, 200));
        QVERIFY(hasNote((*reader)->catalog().notes(), "file.unreferenced", "--variant id=2"));
        reader = open(files, "id=2");
        QVERIFY(bytesOf(**reader, 0).value() == floats(4, 100));
        QCOMPARE(open(files, "id=3").error().code, ErrorCode::notFound);
        QCOMPARE(open(files, "id=two").error().code, ErrorCode::usage);
        QCOMPARE(open(files, "id=99999999999999999999").error().code, ErrorCode::usage);
        // The highest save is not complete: the one before is taken, and it is said why.
        Files cut = files;
        cut.erase("1_12.distcp");
        reader = open(cut);
        QVERIFY(bytesOf(**reader, 0).value() == floats(4, 100));
        QVERIFY(
            hasNote((*reader)->catalog().notes(), "file.missing", "save 12 is not complete: '1_12.distcp'"));
        cut = files;
        cut["12.metadata"].resize(100);
        reader = open(cut);
        QVERIFY(bytesOf(**reader, 0).value() == floats(4, 100));
        QVERIFY(hasNote((*reader)->catalog().notes(), "meta.inconsistent", "save 12 cannot be opened"));
        cut = files;
        cut.erase("12.metadata");
        reader = open(cut);
        QVERIFY(hasNote((*reader)->catalog().notes(), "file.missing", "save 12 has data files"));
        // None is complete.
        cut = files;
        cut.erase("1_12.distcp");
        cut.erase("0_2.distcp");
        reader = open(cut);
        QVERIFY(reader.ok());
        QVERIFY(bytesOf(**reader, 0).value() == floats(4, 200));
    }

    void withoutMetadata() {
        Files files = halves();
        files.erase("0.metadata");
        const auto reader = open(files);
        QCOMPARE(reader.error().code, ErrorCode::notFound);
        QCOMPARE(reader.error().location.rule, std::string("file.missing"));
        QCOMPARE(static_cast<int>(paddleFormat().probe(memorySource(files)).match),
                 static_cast<int>(Probe::Match::possible));
    }

    void otherFormatsAreNotTaken() {
        // The names of torch's distributed checkpoints end alike.
        const Files torch{{".metadata", "\x80\x02."}, {"__0_0.distcp", "PK"}};
        QCOMPARE(static_cast<int>(paddleFormat().probe(memorySource(torch)).match),
                 static_cast<int>(Probe::Match::no));
        const Files plain{{"model.safetensors", "x"}, {"0_0.safetensors", "x"}};
        QCOMPARE(static_cast<int>(paddleFormat().probe(memorySource(plain)).match),
                 static_cast<int>(Probe::Match::no));
    }

    void hostileValues() {
        const auto rows = [](RowSpec row) { return metadataPickle({{std::move(row)}}, true); };
        for (const std::string file : {"../../etc/passwd", "/etc/passwd", "a/../../b"}) {
            const auto reader =
                open({{"0.metadata", rows({"w", {0}, {2}, file, Dims{2}})}, {"0_0.distcp", stateDict({})}});
            QVERIFY(reader.ok());
            QVERIFY(hasNote((*reader)->catalog().notes(), "security.path", file));
            QVERIFY(!(*reader)->locate(0).ok());
        }
        const int64_t huge = int64_t{1} << 62;
        for (const Dims& shape :
             {Dims{huge}, Dims{int64_t{1} << 40, int64_t{1} << 40}, Dims{-huge}, Dims(65, 1)}) {
            Dims offset(shape.size(), 0);
            visit(open({{"0.metadata", rows({"w", offset, shape, "0_0.distcp", shape})},
                        {"0_0.distcp", stateDict({{"w", {2}, floats(2)}})}}));
            visit(open({{"0.metadata", rows({"w", shape, offset, "0_0.distcp", shape})},
                        {"0_0.distcp", stateDict({{"w", {2}, floats(2)}})}}));
        }
        RowSpec flat{"w", {0}, {4}, "0_0.distcp", Dims{4}};
        for (const FlatRange range :
             {FlatRange{2, 9}, FlatRange{3, 1}, FlatRange{-1, 2}, FlatRange{0, huge}}) {
            flat.flat = range;
            const auto reader =
                open({{"0.metadata", rows(flat)}, {"0_0.distcp", stateDict({{"w", {4}, floats(4)}})}});
            QVERIFY(reader.ok());
            QVERIFY(hasNote((*reader)->catalog().notes(), "meta.inconsistent", "left out"));
        }
    }

    // Several saves in one directory: each by its id.
    void savesAreChosenById() {
        size_t chosen = 0;
        for (const GenuineCase& c : genuineCases("paddle_dist")) {
            for (const nlohmann::json& save : c.expected.value("saves", nlohmann::json::array())) {
                const int id = save["kw"].value("unique_id", save["save"].get<int>());
                const std::string metadata = c.path + "/" + std::to_string(id) + ".metadata";
                const bool overwritten = id == 0 && c.name.find("same_id") != std::string::npos;
                if (overwritten || !std::filesystem::exists(metadata)) continue;
                CheckpointOptions options;
                options.open.variant = "id=" + std::to_string(id);
                const auto checkpoint = openCheckpoint(c.path, options);
                QVERIFY2(checkpoint.ok(), checkpoint.ok() ? "" : describe(checkpoint.error()).c_str());
                const auto bytes = digests(*checkpoint->reader);
                for (const auto& [name, want] : save["tensors"].items())
                    QVERIFY2(bytes.at(name) == want["sha256"], name.c_str());
                ++chosen;
            }
        }
        QVERIFY(chosen >= 4);
    }

    // Whoever wrote the pickle, and in which protocol: the rows are the same. Nearly always also where
    // bytes are wrong, as long as there is a pickle at all.
    void spellingDoesNotMatter() {
        std::mt19937 random(3);
        size_t read = 0, damagedRead = 0, same = 0;
        for (const GenuineCase& c : genuineCases("paddle_dist")) {
            const std::string whole = genuineFile(c.name + "/ckpt/0.metadata");
            if (whole.empty()) continue;
            const auto metadata = decode(whole);
            const std::string other = respelled(whole);
            // A pickle that is cut off is not a pickle to the other decoder either.
            QVERIFY2(metadata.ok() != other.empty(), c.name.c_str());
            if (!metadata.ok()) continue;
            QVERIFY(other != whole);
            const auto again = decode(other);
            QVERIFY2(again.ok(), c.name.c_str());
            ++read;
            QCOMPARE(dump(*metadata), dump(*again));
            for (int round = 0; round < 1500; ++round) {
                std::string damaged = whole;
                for (int n = 0; n <= round % 3; ++n)
                    damaged[random() % damaged.size()] = static_cast<char>(random());
                const auto first = decode(damaged);
                if (!first.ok()) continue;
                const std::string rewritten = respelled(damaged);
                if (rewritten.empty()) continue;
                ++damagedRead;
                // Damage may let two objects share a state that changes after BUILD. The rows keep what it
                // was, as Python does; a graph says what it became.
                const auto second = decode(rewritten);
                same += second.ok() && dump(*first) == dump(*second);
            }
        }
        QVERIFY(read > 20);
        QVERIFY(damagedRead > 1000);
        QVERIFY2(1000 * same >= 999 * damagedRead, std::to_string(damagedRead - same).c_str());
    }

    // A piece and its entry are one row, across windows and frames, whatever the protocol.
    void manyPieces_data() {
        QTest::addColumn<int>("protocol");
        QTest::addColumn<int>("way");
        for (int protocol = 2; protocol <= 4; ++protocol) {
            for (int way = 0; way < 8; ++way)
                QTest::addRow("protocol %d way %d", protocol, way) << protocol << way;
        }
    }
    void manyPieces() {
        QFETCH(int, protocol);
        QFETCH(int, way);
        LargeMetadata spec;
        spec.protocol = protocol;
        spec.flex = (way & 1) == 0;
        spec.dtypes = way != 3;
        spec.shared = (way & 2) != 0;
        spec.replicas = (way & 4) != 0;
        if (way == 5) spec.ranks = 400;  // larger than the window
        const std::string whole = MetadataPickler(spec).run();
        const auto metadata = decode(whole);
        QVERIFY2(metadata.ok(), metadata.ok() ? "" : describe(metadata.error()).c_str());
        QCOMPARE(metadata->rows.size(), size_t{spec.ranks} * spec.tensors);
        for (const auto& row : metadata->rows)
            QVERIFY(row.file != kNone);
        QCOMPARE(dump(*metadata), dump(decode(respelled(whole)).value()));
        std::mt19937 random(static_cast<unsigned>(8 * protocol + way));
        size_t read = 0;
        for (int round = 0; round < 150; ++round) {
            std::string damaged = whole;
            if (round % 3 == 0)
                damaged.resize(random() % damaged.size());
            else
                damaged[random() % damaged.size()] = static_cast<char>(random());
            const auto first = decode(damaged);
            if (round % 3 == 0) QVERIFY(!first.ok());
            // Every fifth one, because the other decoder takes much longer.
            const std::string rewritten = first.ok() && read++ % 5 == 0 ? respelled(damaged) : std::string();
            if (rewritten.empty()) continue;
            const auto second = decode(rewritten);
            QVERIFY2(second.ok(), second.ok() ? "" : describe(second.error()).c_str());
            QCOMPARE(dump(*first), dump(*second));
        }
        QVERIFY(read > 0);
    }

    void everyTruncation_data() {
        QTest::addColumn<QString>("path");
        for (const char* path : {"v262_w4_2d", "v300_w2_1d", "v322_flat_w2", "v331_save_replicas"})
            QTest::newRow(path) << QString(path) + "/ckpt/0.metadata";
    }
    void everyTruncation() {
        QFETCH(QString, path);
        const std::string whole = genuineFile(path.toStdString());
        QVERIFY(decode(whole).ok());
        for (size_t length = 0; length < whole.size(); ++length) {
            const std::string cut = whole.substr(0, length);
            const auto metadata = decode(cut);
            QVERIFY(!metadata.ok());
            QVERIFY(metadata.error().code == ErrorCode::damaged || metadata.error().code == ErrorCode::limit);
        }
    }

    void everyTruncationOfDataFiles() {
        Files files = halves();
        const std::string whole = files["1_0.distcp"];
        for (size_t length = 0; length < whole.size(); ++length) {
            files["1_0.distcp"] = whole.substr(0, length);
            const auto reader = open(files);
            QVERIFY(reader.ok());
            QVERIFY((*reader)->locate(0).ok());
            const auto extent = (*reader)->locate(1);
            QVERIFY(!extent.ok());
            QCOMPARE(extent.error().location.rule, std::string("file.truncated"));
        }
    }

    void flippedBytes() {
        std::mt19937 random(5);
        for (const char* name : {"v262_w4_2d", "v331_flat_tp2_w4", "v331_w2_1d"}) {
            const std::string base = std::string(name) + "/ckpt/";
            Files files;
            for (const char* file : {"0.metadata", "0_0.distcp", "1_0.distcp", "2_0.distcp", "3_0.distcp"}) {
                if (std::string bytes = genuineFile(base + file); !bytes.empty())
                    files[file] = std::move(bytes);
            }
            for (int round = 0; round < 1500; ++round) {
                Files damaged = files;
                std::string& bytes = damaged[round % 3 == 0 ? "0_0.distcp" : "0.metadata"];
                for (int n = 0; n <= round % 3; ++n)
                    bytes[random() % bytes.size()] = static_cast<char>(random());
                visit(open(damaged));
            }
        }
    }
};

QTEST_GUILESS_MAIN(PaddleMetadataTest)
#include "paddle_metadata_test.moc"
