#include <QElapsedTimer>
#include <QtTest>
#include <algorithm>

#include <nlohmann/json.hpp>

#include "files.h"
#include "model/coverage.h"

using namespace shardscope;
using namespace shardscope::test;

namespace {

QString text(const Error& error) {
    return QString::fromStdString(describe(error));
}

}  // namespace

class SafetensorsReadTest : public QObject {
    Q_OBJECT

  private slots:
    // ------------------------------------------------------------------ one header

    void refused_data() {
        QTest::addColumn<QByteArray>("header");
        QTest::addColumn<int>("data");
        QTest::addColumn<int>("code");
        const auto row = [](const char* name, const QByteArray& header, int data,
                            ErrorCode code = ErrorCode::damaged) {
            QTest::newRow(name) << header << data << static_cast<int>(code);
        };
        row("not json", "hello", 0);
        row("open brace", "{", 0);
        row("list", "[]", 0);
        row("number", "5", 0);
        row("only spaces", "   ", 0);
        row("trailing garbage", "{} x", 0);
        row("nul padding", QByteArray("{}\0\0", 4), 0);
        row("byte order mark", "\xEF\xBB\xBF{}", 0);
        row("not utf-8", "{\"\xFF\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1);
        row("lone surrogate", R"({"\ud800":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1);
        row("duplicate",
            R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
            4);
        row("escaped duplicate",
            R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"\u0061":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
            0);
        row("duplicate metadata", R"({"__metadata__":{},"__metadata__":{}})", 0);
        row("duplicate metadata key", R"({"__metadata__":{"a":"1","a":"2"}})", 0);
        row("duplicate member", R"({"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1);
        row("metadata number", R"({"__metadata__":{"a":1}})", 0);
        row("metadata null value", R"({"__metadata__":{"a":null}})", 0);
        row("metadata nested", R"({"__metadata__":{"a":{}}})", 0);
        row("metadata text", R"({"__metadata__":"x"})", 0);
        row("tensor null", R"({"a":null})", 0);
        row("no dtype", R"({"a":{"shape":[1],"data_offsets":[0,1]}})", 1);
        row("no shape", R"({"a":{"dtype":"U8","data_offsets":[0,1]}})", 1);
        row("no offsets", R"({"a":{"dtype":"U8","shape":[1]}})", 1);
        row("one offset", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}})", 1);
        row("three offsets", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,1]}})", 1);
        row("offset text", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":["0",1]}})", 1);
        row("offset exponent", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1e0]}})", 1);
        row("offset fraction", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1.0]}})", 1);
        row("offset leading zero", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,01]}})", 1);
        row("offset negative", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[-1,0]}})", 1);
        row("offset minus zero", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[-0,1]}})", 1);
        row("offset 2^64", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,18446744073709551616]}})", 1);
        row("offset 2^64-1", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,18446744073709551615]}})",
            1);
        row("end before begin", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[2,1]}})", 2);
        row("size differs", R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4);
        row("overflow to small",
            R"({"a":{"dtype":"F32","shape":[4194305,4194305,211106198978564],"data_offsets":[0,16]}})", 16);
        row("overflow to zero",
            R"({"a":{"dtype":"F32","shape":[9223372036854775807,2,0,4],"data_offsets":[0,0]}})", 0);
        row("size 2^63", R"({"a":{"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,1]}})", 1);
        row("half a byte", R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}})", 2);
        row("6 bits", R"({"a":{"dtype":"F6_E2M3","shape":[3],"data_offsets":[0,3]}})", 3);
        row("hole at the start", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", 2);
        row("hole",
            R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
            3);
        row("overlap",
            R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
            3);
        row("same range",
            R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
            2);
        row("trailing bytes", R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 3);
        row("no tensors, trailing bytes", "{}", 1);
        row("unknown dtype", R"({"a":{"dtype":"I2","shape":[1],"data_offsets":[0,1]}})", 1,
            ErrorCode::unsupported);
        row("odd F4", R"({"a":{"dtype":"F4","shape":[2,3],"data_offsets":[0,3]}})", 3,
            ErrorCode::unsupported);
        QByteArray dims = "1";
        for (int i = 0; i < 999; ++i)
            dims += ",1";
        row("rank 1000", "{\"a\":{\"dtype\":\"U8\",\"shape\":[" + dims + "],\"data_offsets\":[0,1]}}", 1,
            ErrorCode::limit);
        row("deep", "{\"a\":{\"x\":" + QByteArray(1'000'000, '['), 0, ErrorCode::limit);
    }
    void refused() {
        QFETCH(QByteArray, header);
        QFETCH(int, data);
        QFETCH(int, code);
        const auto opened = openText(fileText(header.toStdString(), static_cast<size_t>(data)));
        QVERIFY(!opened.ok());
        QVERIFY2(static_cast<int>(opened.error().code) == code, qPrintable(text(opened.error())));
        QCOMPARE(opened.error().location.file, std::string("/c/model.safetensors"));
        QVERIFY(!opened.error().message.empty());
    }

    void accepted_data() {
        QTest::addColumn<QByteArray>("header");
        QTest::addColumn<int>("data");
        QTest::addColumn<QString>("shape");
        const auto row = [](const char* name, const QByteArray& header, int data, const char* shape) {
            QTest::newRow(name) << header << data << QString(shape);
        };
        row("padded", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}  ", 1, "[1]");
        row("leading space", " \n{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "[1]");
        row("scalar", R"({"a":{"dtype":"F64","shape":[],"data_offsets":[0,8]}})", 8, "[]");
        row("empty before",
            R"({"e":{"dtype":"F32","shape":[0,3],"data_offsets":[0,0]},"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
            2, "[2]");
        row("reversed",
            R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]},"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
            3, "[2]");
        row("metadata null", R"({"__metadata__":null,"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
            1, "[1]");
        row("unknown member",
            R"({"a":{"x":[{"y":[1.5,null,-3]}],"dtype":"U8","shape":[1],"data_offsets":[0,1],"z":{}}})", 1,
            "[1]");
        row("F4", R"({"a":{"dtype":"F4","shape":[2,6],"data_offsets":[0,6]}})", 6, "[2, 3]");
        row("F6", R"({"a":{"dtype":"F6_E3M2","shape":[4],"data_offsets":[0,3]}})", 3, "[4]");
        row("unaligned",
            R"({"h":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]},"a":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})",
            6, "[1]");
    }
    void accepted() {
        QFETCH(QByteArray, header);
        QFETCH(int, data);
        QFETCH(QString, shape);
        const auto opened = openText(fileText(header.toStdString(), static_cast<size_t>(data)));
        QVERIFY2(opened.ok(), opened.ok() ? "" : qPrintable(text(opened.error())));
        const Catalog& catalog = (*opened)->catalog();
        const TensorId t = catalog.find("a");
        QVERIFY(t != kNone);
        QCOMPARE(QString::fromStdString(formatDims(catalog.shape(t))), shape);
        QVERIFY((*opened)->locate(catalog.firstChunk(t)).ok());
    }

    void lengths() {
        for (size_t n = 0; n < 8; ++n)
            QCOMPARE(openText(std::string(n, 'x')).error().code, ErrorCode::damaged);
        std::string huge = fileText("{}", 0);
        huge[7] = '\x80';
        QVERIFY(!openText(huge).ok());
        OpenOptions small;
        small.limits.safetensorsHeader = 10;
        QCOMPARE(openText(fileText("{}                ", 0), small).error().code, ErrorCode::limit);
        QVERIFY(openText(fileText("{}        ", 0), small).ok());
    }

    void otherKindsOfFile() {
        const auto message = [](std::string_view bytes) { return describe(openText(bytes).error()); };
        QVERIFY(message("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4\n")
                    .find("git lfs pull") != std::string::npos);
        QVERIFY(message("<!DOCTYPE html><html></html>").find("HTML") != std::string::npos);
        QVERIFY(message("\x1f\x8b\x08 and more bytes").find("gzip") != std::string::npos);
        QVERIFY(message(std::string(4096, '\0')).find("zero bytes") != std::string::npos);
    }

    void truncatedDataStillOpens() {
        const std::string whole = fileText(
            R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
            8);
        const auto opened = openText(std::string_view(whole).substr(0, whole.size() - 1));
        QVERIFY(opened.ok());
        const Catalog& catalog = (*opened)->catalog();
        QCOMPARE(rulesOf(catalog), (std::vector<std::string>{"file.truncated"}));
        QVERIFY((*opened)->locate(catalog.firstChunk(catalog.find("a"))).ok());
        const auto b = (*opened)->locate(catalog.firstChunk(catalog.find("b")));
        QVERIFY(!b.ok());
        QCOMPARE(b.error().location.rule, std::string("file.truncated"));
        QCOMPARE(b.error().location.tensor, std::string("b"));
        QVERIFY(b.error().location.offset.has_value());
    }

    void everyTruncation() {
        const std::string whole = fileText(
            R"({"__metadata__":{"k":"v"},"a\u00e9":{"dtype":"F16","shape":[2,2],"data_offsets":[0,8]}}   )",
            8);
        for (size_t n = 0; n < whole.size(); ++n) {
            const auto opened = openText(std::string_view(whole).substr(0, n));
            if (n + 8 < whole.size()) QVERIFY(!opened.ok());
            if (opened.ok()) QVERIFY(!(*opened)->locate(0).ok());
        }
        // A header that ends early by its own length.
        const std::string header = whole.substr(8, whole.size() - 16);
        for (size_t n = 0; n + 3 < header.size(); ++n)
            QVERIFY(!openText(fileText(header.substr(0, n), 8)).ok());
    }

    void metadataObject() {
        const auto opened = openText(fileText(R"({"__metadata__":{"format":"pt","step":"3"}})", 0));
        QVERIFY(opened.ok());
        QCOMPARE((*opened)->catalog().objects().size(), size_t{1});
        QVERIFY(nlohmann::json::parse(valueToJson((*opened)->objectValue(0).value())) ==
                nlohmann::json::parse(R"({"format":"pt","step":"3"})"));
    }

    // ------------------------------------------------------------------ sets

    void indexRules() {
        const std::string a = fileText(
            R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"x":{"dtype":"U8","shape":[1],"data_offsets":[4,5]}})",
            5);
        const std::string b = fileText(
            R"({"b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"a":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})",
            6);
        MemoryCheckpoint checkpoint;
        checkpoint.put("1.safetensors", a).put("2.safetensors", b).put("other.safetensors", b);
        checkpoint.put(
            "model.safetensors.index.json",
            R"({"metadata":{"total_size":7,"tied":"a","l":[1,{"x":null}]},"weight_map":{"a":"1.safetensors","b":"2.safetensors","gone":"3.safetensors","c":"2.safetensors"}})");
        const auto opened = checkpoint.open();
        QVERIFY2(opened.ok(), opened.ok() ? "" : qPrintable(text(opened.error())));
        const Catalog& catalog = (*opened)->catalog();
        QCOMPARE(catalog.tensorCount(), size_t{3});  // a, b, and x, which the index forgot
        QCOMPARE(catalog.files()[catalog.chunk(catalog.firstChunk(catalog.find("a"))).file].path,
                 std::string("1.safetensors"));
        auto rules = rulesOf(catalog);
        std::sort(rules.begin(), rules.end());
        QCOMPARE(rules, (std::vector<std::string>{"file.missing", "meta.alias", "meta.duplicate",
                                                  "meta.inconsistent", "meta.inconsistent"}));
        const auto& files = catalog.files();
        QVERIFY(std::any_of(files.begin(), files.end(), [](const FileInfo& f) {
            return f.path == "3.safetensors" && f.state == FileInfo::State::missing;
        }));
        QVERIFY(std::any_of(files.begin(), files.end(), [](const FileInfo& f) {
            return f.path == "other.safetensors" && !f.referenced;
        }));
        QVERIFY(checkpoint.open("model.safetensors.index.json").ok());
    }

    // All tensors are there, in files that the index of another save does not name.
    void indexOfAnotherSave() {
        const auto file = [](const std::string& name) {
            return fileText(R"({")" + name + R"(":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 4);
        };
        MemoryCheckpoint checkpoint;
        checkpoint.put("model-00001-of-00002.safetensors", file("a"));
        checkpoint.put("model-00002-of-00002.safetensors", file("b"));
        checkpoint.put(
            "model.safetensors.index.json",
            R"({"weight_map":{"a":"model-00001-of-00003.safetensors","b":"model-00003-of-00003.safetensors",)"
            R"("c":"model-00003-of-00003.safetensors"}})");
        const auto opened = checkpoint.open();
        QVERIFY(opened.ok());
        const auto& notes = (*opened)->catalog().notes();
        const auto said = std::ranges::find_if(
            notes, [](const Note& note) { return note.message.find("another save") != std::string::npos; });
        QVERIFY(said != notes.end());
        QVERIFY2(said->message.starts_with("it names 3 tensors, but not the files of 2: "),
                 said->message.c_str());
        QVERIFY(said->message.find("--weight-map ignore") != std::string::npos);
        QVERIFY(said->severity == Severity::error);
        OpenOptions ignored;
        ignored.own = {{"--weight-map", "ignore"}};
        for (const char* entry : {"", "model.safetensors.index.json"}) {
            const auto whole = checkpoint.open(entry, ignored);
            QVERIFY(whole.ok());
            QCOMPARE((*whole)->catalog().tensorCount(), size_t{2});
            for (const Note& note : (*whole)->catalog().notes())
                QVERIFY2(note.severity == Severity::info, note.message.c_str());
        }
    }

    // A name in two files is one tensor where both hold the same, else an error; never a second name.
    void equalNamesAreCopiesOrAnError() {
        const std::string one =
            fileText(R"({"w":{"dtype":"U8","shape":[40000],"data_offsets":[0,40000]}})", 40000);
        for (const size_t changed : {size_t{0}, size_t{1}, size_t{20000}, size_t{40000}}) {
            std::string other = one;
            if (changed > 0) other[other.size() - changed] ^= 1;
            for (const bool indexed : {false, true}) {
                MemoryCheckpoint checkpoint;
                checkpoint.put("a.safetensors", one).put("b.safetensors", other);
                if (indexed)
                    checkpoint.put("model.safetensors.index.json",
                                   R"({"weight_map":{"w":"a.safetensors","v":"b.safetensors"}})");
                const auto opened = checkpoint.open();
                QVERIFY(opened.ok());
                const Catalog& catalog = (*opened)->catalog();
                QCOMPARE(catalog.tensorCount(), size_t{1});
                QCOMPARE(catalog.chunkCount(), size_t{2});
                QCOMPARE(catalog.files()[catalog.chunk(0).file].path, std::string("a.safetensors"));
                const auto note =
                    std::ranges::find(catalog.notes(), std::string("meta.duplicate"), &Note::rule);
                QVERIFY(note != catalog.notes().end());
                QCOMPARE(note->severity == Severity::error, changed > 0);
                QCOMPARE(note->lacks == Note::Lacks::anything, changed > 0 && !indexed);
            }
        }
        MemoryCheckpoint shapes;
        shapes.put("a.safetensors", one)
            .put("b.safetensors", fileText(R"({"w":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})", 3));
        const auto opened = shapes.open();
        QVERIFY(opened.ok());
        QCOMPARE((*opened)->catalog().tensorCount(), size_t{1});
        QCOMPARE((*opened)->catalog().chunkCount(), size_t{1});
        QVERIFY((*opened)->catalog().notes()[0].severity == Severity::error);
    }

    void badIndexes_data() {
        QTest::addColumn<QByteArray>("json");
        QTest::addColumn<int>("code");
        const auto row = [](const char* name, const char* json, ErrorCode code) {
            QTest::newRow(name) << QByteArray(json) << static_cast<int>(code);
        };
        row("parent", R"({"weight_map":{"a":"../x.safetensors"}})", ErrorCode::unsafe);
        row("absolute", R"({"weight_map":{"a":"/etc/passwd"}})", ErrorCode::unsafe);
        row("inner parent", R"({"weight_map":{"a":"a/../../x"}})", ErrorCode::unsafe);
        row("backslash", R"({"weight_map":{"a":"C:\\x"}})", ErrorCode::unsafe);
        row("empty", R"({"weight_map":{"a":""}})", ErrorCode::unsafe);
        row("dots", R"({"weight_map":{"a":".."}})", ErrorCode::unsafe);
        row("twice", R"({"weight_map":{"a":"x.safetensors","a":"y.safetensors"}})", ErrorCode::damaged);
        row("no map", R"({"metadata":{}})", ErrorCode::damaged);
        row("map list", R"({"weight_map":[]})", ErrorCode::damaged);
        row("number", R"({"weight_map":{"a":1}})", ErrorCode::damaged);
        row("null", R"({"weight_map":{"a":null}})", ErrorCode::damaged);
        row("cut", "{\"weight_map\":{\"a\":\"x.safe", ErrorCode::damaged);
        row("list", "[]", ErrorCode::damaged);
        row("nothing", "", ErrorCode::damaged);
    }
    void badIndexes() {
        QFETCH(QByteArray, json);
        QFETCH(int, code);
        MemoryCheckpoint checkpoint;
        checkpoint.put("model.safetensors.index.json", json.toStdString());
        const auto opened = checkpoint.open();
        QVERIFY(!opened.ok());
        QVERIFY2(static_cast<int>(opened.error().code) == code, qPrintable(text(opened.error())));
    }

    void everyTruncationOfAnIndex() {
        const std::string json =
            R"({"metadata":{"total_size":4,"x":"a"},"weight_map":{"a":"1.safetensors"}})";
        for (size_t n = 0; n < json.size(); ++n) {
            MemoryCheckpoint checkpoint;
            checkpoint.put("1.safetensors",
                           fileText(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 4));
            checkpoint.put("model.safetensors.index.json", json.substr(0, n));
            QVERIFY(!checkpoint.open().ok());
        }
    }

    void missingOfANumberedSet() {
        MemoryCheckpoint checkpoint;
        checkpoint.put("model-00001-of-00003.safetensors",
                       fileText(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 4));
        checkpoint.put("model-00003-of-00003.safetensors",
                       fileText(R"({"c":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 4));
        const auto opened = checkpoint.open();
        QVERIFY(opened.ok());
        QCOMPARE((*opened)->catalog().variant(), std::string("several"));
        QCOMPARE(rulesOf((*opened)->catalog()), (std::vector<std::string>{"file.missing"}));
    }

    static std::string shard(int rows, int from, const std::string& more = {}) {
        return fileText("{\"__metadata__\":{\"DCP_SHARDING_INFO\":\"{\\\"w\\\": {\\\"saved_offsets\\\": [" +
                            std::to_string(from) + ", 0]" + more +
                            "}}\",\"DCP_VERSION\":\"1.0\"},\"w\":{\"dtype\":\"U8\",\"shape\":[" +
                            std::to_string(rows) + R"(,2],"data_offsets":[0,)" + std::to_string(rows * 2) +
                            "]}}",
                        static_cast<size_t>(rows) * 2);
    }

    void shardedTail() {
        // Four ranks wrote part 1, three of them have part 2: 12 rows in pieces of 4 are no cut over four
        // ranks.
        MemoryCheckpoint checkpoint;
        for (int r = 0; r < 4; ++r) {
            checkpoint.put("shard-0000" + std::to_string(r + 1) + "-model-00001-of-00002.safetensors",
                           fileText("{}", 0));
            if (r < 3)
                checkpoint.put("shard-0000" + std::to_string(r + 1) + "-model-00002-of-00002.safetensors",
                               shard(4, r * 4));
        }
        const auto opened = checkpoint.open();
        QVERIFY(opened.ok());
        const Catalog& catalog = (*opened)->catalog();
        QCOMPARE(catalog.variant(), std::string("dcp-sharded"));
        QCOMPARE(catalog.rankCount(), 4u);
        QCOMPARE(rulesOf(catalog), (std::vector<std::string>{"coverage.shrunk"}));

        // With the global shape it is an exact gap.
        MemoryCheckpoint declared;
        for (int r = 0; r < 3; ++r) {
            declared.put("shard-0000" + std::to_string(r + 1) + "-model-00001-of-00001.safetensors",
                         shard(4, r * 4, ", \\\"global_shape\\\": [16, 2]"));
        }
        const auto second = declared.open();
        QVERIFY(second.ok());
        const CoverageResult coverage = checkCoverage((*second)->catalog(), 0);
        QCOMPARE(coverage.gaps, (std::vector<Box>{{{12, 0}, {4, 2}}}));
    }

    void million() {
        // Nearly the longest header that is allowed, in an optimized build; the time is printed.
#ifdef NDEBUG
        const size_t size = 99'000'000;
#else
        const size_t size = 9'000'000;
#endif
        std::string header = "{";
        size_t at = 0;
        for (int i = 0; header.size() < size; ++i) {
            if (i) header += ',';
            header += "\"model.layers." + std::to_string(i % 97) + ".mlp.experts." + std::to_string(i) +
                      ".w\":{\"dtype\":\"U8\",\"shape\":[1,1],\"data_offsets\":[" + std::to_string(at) + "," +
                      std::to_string(at + 1) + "]}";
            ++at;
        }
        header += '}';
        const std::string file = fileText(header, at);
        MemoryCheckpoint checkpoint;
        checkpoint.put("model.safetensors", file);
        QElapsedTimer timer;
        timer.start();
        const auto opened = checkpoint.open("model.safetensors");
        qInfo("%zu tensors, %zu bytes of header: %lld ms", at, header.size(),
              static_cast<long long>(timer.elapsed()));
        QVERIFY(opened.ok());
        QCOMPARE((*opened)->catalog().tensorCount(), at);
    }
};

QTEST_APPLESS_MAIN(SafetensorsReadTest)
#include "safetensors_read_test.moc"
