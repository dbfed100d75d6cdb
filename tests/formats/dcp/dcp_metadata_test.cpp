// The decoder of .metadata: every truncation, every flipped byte, odd spellings of the same thing, hostile
// input.
#include <QtTest>
#include <fstream>
#include <random>

#include "formats/dcp/dcp.h"
#include "formats/dcp/metadata.h"
#include "support/genuine.h"
#include "support/memory_file_system.h"
#include "support/text_file.h"

using namespace shardscope;
using namespace shardscope::test;

namespace {

Result<dcp::Metadata> decode(std::string bytes) {
    const TextFile file(std::move(bytes), ".metadata");
    return dcp::decodeMetadata(file, {}, {});
}

std::string genuine(const std::string& name) {
    std::ifstream in(std::string(SHARDSCOPE_TEST_DATA) + "/genuine/dcp/" + name + "/ckpt/.metadata",
                     std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

// What a metadata says, as text, whatever its columns look like inside.
std::string dump(const dcp::Metadata& m) {
    std::string out;
    const dcp::StorageJoin join = dcp::joinStorage(m);
    for (size_t e = 0; e < m.entries.size(); ++e) {
        out += m.texts[m.entries[e].name];
        const auto row = [&](uint32_t r) {
            if (r == kNone) return std::string(" ?");
            return " " + std::string(m.texts[m.stored[r].path]) + "+" + std::to_string(m.stored[r].offset) +
                   "+" + std::to_string(m.stored[r].length);
        };
        if (m.entries[e].tensor == kNone) {
            out += row(join.objectRow[e]) + "\n";
            continue;
        }
        const dcp::MetaTensor& t = m.tensors[m.entries[e].tensor];
        out += " " + std::string(dtypeName(t.dtype)) + formatDims(m.dimsOf(t.shape));
        for (uint32_t c = t.firstChunk; c < t.endChunk; ++c) {
            const dcp::MetaChunk& chunk = m.chunks[c];
            out += " " + formatBox(m.dimsOf(chunk.offsets, chunk.rank), m.dimsOf(chunk.lengths, chunk.rank)) +
                   row(join.chunkRow[c]);
        }
        out += "\n";
    }
    return out + std::to_string(join.orphanCount);
}

std::string line(std::string_view module, std::string_view name) {
    return "c" + std::string(module) + "\n" + std::string(name) + "\n";
}
std::string word(std::string_view text) {
    return "\x8c" + std::string(1, static_cast<char>(text.size())) + std::string(text);
}
const std::string kMeta = "torch.distributed.checkpoint.metadata";

// A Metadata whose only attribute besides an empty state dict is `extra`.
std::string around(const std::string& extra) {
    return "\x80\x02" + line(kMeta, "Metadata") + ")\x81}(" + word("state_dict_metadata") + "}" +
           word("planner_data") + extra + "ub.";
}

std::string torchSize(char value) {
    return line("torch", "Size") + "K" + value + "\x85\x85R";
}
std::string chunkOf(const std::string& offsets, const std::string& sizes) {
    return line(kMeta, "ChunkStorageMetadata") + ")\x81}(" + word("offsets") + offsets + word("sizes") +
           sizes + "ub";
}
// One tensor of one chunk, whose storage key has `offset`; and planner data.
std::string oneChunk(const std::string& offset, const std::string& planner,
                     const char* writer = "torch.distributed.checkpoint.filesystem") {
    const std::string zero = std::string("K") + '\0';
    const std::string properties =
        line(kMeta, "TensorProperties") + ")\x81(" + line("torch", "float32") + "NNNNtb";
    const std::string tensor = line(kMeta, "TensorStorageMetadata") + ")\x81}(" + word("properties") +
                               properties + word("size") + torchSize(4) + word("chunks") + "](" +
                               chunkOf(torchSize(0), torchSize(4)) + "eub";
    const std::string key = line(kMeta, "MetadataIndex") + ")\x81}(" + word("fqn") + word("w") +
                            word("index") + zero + word("offset") + offset + "ub";
    const std::string info = line(writer, "_StorageInfo") + ")\x81}(" + word("relative_path") +
                             word("__0_0.distcp") + word("offset") + zero + word("length") + "K\x10ub";
    return "\x80\x04" + line(kMeta, "Metadata") + ")\x81}(" + word("state_dict_metadata") + "}(" + word("w") +
           tensor + "u" + word("storage_data") + "}(" + key + info + "u" + word("planner_data") + planner +
           "ub.";
}

}  // namespace

class DcpMetadataTest : public QObject {
    Q_OBJECT

  private slots:
    void everyTruncation_data() {
        QTest::addColumn<QString>("name");
        for (const char* name :
             {"t2.15.0-no-dist", "t2.1.2-sharded-tensor", "t2.15.0-zstd", "t2.6.0-objects"})
            QTest::newRow(name) << name;
    }
    void everyTruncation() {
        QFETCH(QString, name);
        const std::string whole = genuine(name.toStdString());
        QVERIFY(decode(whole).ok());
        for (size_t size = 0; size < whole.size(); ++size) {
            const auto result = decode(whole.substr(0, size));
            QVERIFY2(!result.ok(), std::to_string(size).c_str());
            QCOMPARE(result.error().code, ErrorCode::damaged);
            QVERIFY(result.error().location.offset.has_value());
            QVERIFY(*result.error().location.offset <= size);
            QCOMPARE(result.error().location.file, std::string(".metadata"));
        }
    }

    // Never a crash or a read beyond the end, whatever one byte says.
    void flippedBytes() {
        std::mt19937 random(5);
        for (const char* name :
             {"t2.15.0-no-dist", "t2.1.2-standard", "t2.15.0-zstd", "t2.15.0-fsdp2-adam"}) {
            const std::string whole = genuine(name);
            for (int i = 0; i < 4000; ++i) {
                std::string broken = whole;
                broken[random() % broken.size()] = static_cast<char>(random());
                if (i % 2) broken[random() % broken.size()] = static_cast<char>(random());
                const auto result = decode(std::move(broken));
                if (result.ok())
                    (void)dump(*result);
                else
                    QVERIFY2(result.error().code != ErrorCode::internal, describe(result.error()).c_str());
            }
        }
    }

    // The same metadata by every pickle protocol; made by the interpreter that also makes the genuine
    // checkpoints.
    void everyProtocol() {
        const QString python = QStandardPaths::findExecutable("python3");
        if (python.isEmpty()) QSKIP("needs python3");
        QTemporaryDir folder;
        const auto check = [&](int tensors, int chunks, const QList<int>& protocols) {
            std::string first;
            for (const int protocol : protocols) {
                for (const char* share : {"", "--share"}) {
                    const QString out = folder.filePath("m");
                    QStringList arguments{SHARDSCOPE_TEST_DATA "/../bench/make_metadata.py",
                                          out,
                                          "--tensors",
                                          QString::number(tensors),
                                          "--chunks",
                                          QString::number(chunks),
                                          "--protocol",
                                          QString::number(protocol)};
                    if (*share) arguments << share;
                    QCOMPARE(QProcess::execute(python, arguments), 0);
                    std::ifstream in(out.toStdString(), std::ios::binary);
                    const auto result = decode({std::istreambuf_iterator<char>(in), {}});
                    QVERIFY2(result.ok(), result.ok() ? "" : describe(result.error()).c_str());
                    QCOMPARE(result->protocol, protocol < 2 ? 0 : protocol);
                    QVERIFY2(result->foreign.empty(),
                             result->foreign.empty() ? "" : result->foreign[0].name.c_str());
                    const std::string said = dump(*result);
                    QVERIFY(said.ends_with("\n0"));
                    if (first.empty()) first = said;
                    QVERIFY(said == first);
                }
            }
        };
        check(5, 7, {0, 1, 2, 3, 4, 5});
        // More memo entries than one byte counts, many frames and SETITEMS, a first pass in stretches.
        check(9, 5000, {1, 2, 4});
    }

    // Text that looks like opcodes, where the first pass looks for a place to begin a second walk.
    void misleadingText() {
        std::string text;
        while (text.size() < (64 << 10))
            text += ")\x81\x94}\x94(";
        const auto size = static_cast<uint32_t>(text.size());
        std::string all = "](";
        for (int i = 0; i < 80; ++i)
            all += "B" + std::string(reinterpret_cast<const char*>(&size), 4) + text;
        const auto result = decode(around(all + "e"));
        QVERIFY2(result.ok(), result.ok() ? "" : describe(result.error()).c_str());
        QCOMPARE(result->protocol, 2);
        QVERIFY(result->entries.empty() && result->chunks.empty());
        const auto cut = decode(around(all + "\xff"));
        QVERIFY(!cut.ok());
        QVERIFY(cut.error().location.offset > all.size());
    }

    // The offsets of a key may belong to other objects as well.
    void offsetsMayBeShared() {
        const auto plain = decode(oneChunk(torchSize(0), "}"));
        QVERIFY2(plain.ok(), plain.ok() ? "" : describe(plain.error()).c_str());
        QVERIFY(dump(*plain).ends_with("__0_0.distcp+0+16\n0"));
        const std::string size = line("torch", "Size");
        const std::string once = size + torchSize(0) + "\x85q\x05R";
        const std::string again = size + "h\x05R";
        const auto shared = decode(oneChunk(once, "}(" + word("q") + chunkOf(again, again) + "u"));
        QVERIFY2(shared.ok(), shared.ok() ? "" : describe(shared.error()).c_str());
        QCOMPARE(dump(*shared), dump(*plain));
    }

    // OLMo-core's writer has its own class for where an entry is.
    void entriesOfOlmoCore() {
        const auto theirs =
            decode(oneChunk(torchSize(0), "}", "olmo_core.distributed.checkpoint.filesystem"));
        QVERIFY2(theirs.ok(), theirs.ok() ? "" : describe(theirs.error()).c_str());
        QVERIFY(theirs->foreign.empty());
        QCOMPARE(dump(*theirs), dump(*decode(oneChunk(torchSize(0), "}"))));
    }

    void foreignGlobalsAreNamedAndNeverRun() {
        const auto named = decode(around(line("mymodule", "Thing") + ")\x81"));
        QVERIFY2(named.ok(), named.ok() ? "" : describe(named.error()).c_str());
        QCOMPARE(named->foreign.size(), size_t{1});
        QCOMPARE(named->foreign[0].name, std::string("mymodule.Thing"));
        QVERIFY(!named->foreign[0].called);
        const auto called = decode(around(line("os", "system") + word("true") + "\x85R"));
        QVERIFY(called.ok());
        QCOMPARE(called->foreign.size(), size_t{1});
        QVERIFY(called->foreign[0].called);
        const auto getattr =
            decode(around(line("builtins", "getattr") + line("os", "path") + word("join") + "\x86R"));
        QVERIFY(getattr.ok());
        QVERIFY(std::any_of(
            getattr->foreign.begin(), getattr->foreign.end(),
            [](const dcp::ForeignGlobal& g) { return g.called && g.name == "builtins.getattr"; }));
        const auto plain = decode(around(line("builtins", "getattr") + line(kMeta, "_MEM_FORMAT_ENCODING") +
                                         word("TORCH_CONTIGUOUS_FORMAT") + "\x86R"));
        QVERIFY(plain.ok());
        QVERIFY(plain->foreign.empty());
        const auto path = decode(around(line("pathlib._local", "PosixPath") + word("/a/b") + "\x85R"));
        QVERIFY(path.ok());
        QVERIFY(path->foreign.empty());
    }

    void firstGenerationIsNamed() {
        const auto result =
            decode("\x80\x02" + line("torch.distributed._shard.checkpoint.metadata", "Metadata") + ")\x81.");
        QVERIFY(!result.ok());
        QCOMPARE(result.error().code, ErrorCode::unsupported);
        QVERIFY(result.error().message.find("1.12 or 1.13") != std::string::npos);
    }

    void hostile_data() {
        QTest::addColumn<QByteArray>("bytes");
        const auto row = [](const char* name, const std::string& bytes) {
            QTest::newRow(name) << QByteArray(bytes.data(), static_cast<qsizetype>(bytes.size()));
        };
        using namespace std::string_literals;
        row("empty", "");
        row("not a pickle", "hello world, this is text");
        row("stack underflow", "\x80\x04R.");
        row("no mark", "\x80\x04}u.");
        row("huge string", "\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7f.");
        row("huge bytes",
            "\x80\x04"
            "B\xff\xff\xff\xff.");
        row("huge memo index", "\x80\x04Nr\xff\xff\xff\xff.");
        row("unset memo", "\x80\x04j\x05\x00\x00\x00."s);
        row("memo of nothing", "\x80\x04\x94h\x00."s);
        row("extension", "\x80\x04\x82\x01.");
        row("protocol 9", "\x80\x09N.");
        row("only None", "\x80\x04N.");
        row("marks", "\x80\x04" + std::string(100'000, '(') + ".");
        row("self-containing dict", "\x80\x04}\x94(h\x00h\x00u."s);
        row("sizes that are text",
            "\x80\x02" + line(kMeta, "ChunkStorageMetadata") + ")\x81}(" + word("sizes") + word("x") + "ub.");
        row("negative length", "\x80\x02" + line("torch.distributed.checkpoint.filesystem", "_StorageInfo") +
                                   ")\x81}(" + word("length") + "J\xff\xff\xff\xffub.");
    }
    void hostile() {
        QFETCH(QByteArray, bytes);
        const auto result = decode(bytes.toStdString());
        QVERIFY(!result.ok());
        QVERIFY(result.error().code != ErrorCode::internal);
    }

    // A path that leaves the checkpoint is noted, and refused when it is followed.
    void pathsThatLeave() {
        std::string bytes = genuine("t2.15.0-no-dist");
        const std::string from = "__0_0.distcp";
        const size_t at = bytes.find(from);
        QVERIFY(at != std::string::npos);
        bytes.replace(at, from.size(), "../../../etc");
        auto fs = std::make_shared<MemoryFileSystem>();
        const auto* data = reinterpret_cast<const std::byte*>(bytes.data());
        fs->put("/c/.metadata", {data, data + bytes.size()});
        Source source;
        source.fileSystem = fs;
        source.directory = fs->openDirectory("/c").value();
        source.entries = source.directory->list().value();
        const auto reader = dcpFormat().open(source, {});
        QVERIFY2(reader.ok(), reader.ok() ? "" : describe(reader.error()).c_str());
        bool noted = false;
        for (const Note& note : (*reader)->catalog().notes())
            noted |= note.rule == "security.path" && note.severity == Severity::error;
        QVERIFY(noted);
        const auto extent = (*reader)->locate(0);
        QVERIFY(!extent.ok());
        QCOMPARE(extent.error().code, ErrorCode::unsafe);
    }
};

QTEST_APPLESS_MAIN(DcpMetadataTest)
#include "dcp_metadata_test.moc"
