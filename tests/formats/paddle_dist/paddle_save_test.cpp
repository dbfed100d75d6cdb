// Files of paddle.save: protocols, orders of elements, what is a tensor and what is not, split parameters,
// and what is refused.
#include <QtTest>
#include <random>

#include "formats/paddle_dist/paddle_dist.h"
#include "pickles.h"

using namespace shardscope;
using namespace shardscope::test;

namespace {

Result<std::unique_ptr<Reader>> open(const std::string& bytes, const std::string& name = "m.pdparams") {
    return paddleFormat().open(memorySource({{name, bytes}}, name), {});
}

using For = PickleWriter::For;

}  // namespace

class PaddleSaveTest : public QObject {
    Q_OBJECT

  private slots:
    void protocols() {
        // Long enough to stay in the file, in both spellings; and short.
        const std::string raw = floats(2000, -7);
        for (const For reader : {For::python, For::python3}) {
            const auto file =
                open(stateDict({{"w", {20, 100}, raw}, {"b", {3}, floats(3)}, {"e", {0, 2}, ""}}, reader));
            QVERIFY2(file.ok(), file.ok() ? "" : describe(file.error()).c_str());
            QCOMPARE((*file)->catalog().tensorCount(), 3U);
            QVERIFY(bytesOf(**file, 0).value() == raw);
            QVERIFY(bytesOf(**file, 1).value() == floats(3));
            QVERIFY((*file)->locate(2).ok());
            QVERIFY((*file)->catalog().notes().empty());
        }
    }

    void outOfBandSpelling() {
        // Protocol 5: _frombuffer(bytearray, dtype, shape, order).
        PickleWriter w(For::python3);
        std::string stream;
        w.emptyDict();
        w.mark();
        for (const char* order : {"C", "F"}) {
            w.text(order);
            w.global("numpy._core.numeric", "_frombuffer");
            w.mark();
            const std::string raw = floats(600);
            // BYTEARRAY8
            const uint64_t size = raw.size();
            std::string bytes = "\x96";
            bytes.append(reinterpret_cast<const char*>(&size), sizeof size);
            stream += w.take() + bytes + raw;
            putDType(w, {"", {}, "", "f4"});
            putDims(w, {20, 30});
            w.text(order);
            w.tuple();
            w.reduce();
        }
        w.setItems();
        stream += w.finish();
        stream[1] = '\5';
        const auto file = open(stream);
        QVERIFY2(file.ok(), file.ok() ? "" : describe(file.error()).c_str());
        QCOMPARE((*file)->catalog().tensorCount(), 2U);
        QVERIFY((*file)->locate(0)->strides.empty());
        QCOMPARE((*file)->locate(1)->strides, (Dims{1, 20}));
    }

    void orders() {
        ArraySpec columns{"c", {2, 3}, floats(6)};
        columns.columns = true;
        ArraySpec big{"b", {4}, std::string(16, '\1')};
        big.order = ">";
        const auto file = open(stateDict({columns, big}));
        QVERIFY(file.ok());
        QCOMPARE((*file)->locate(0)->strides, (Dims{1, 2}));
        QVERIFY((*file)->locate(1)->swapBytes);
    }

    void whatIsATensor() {
        // bfloat16 is stored as uint16; an array that the table of names does not have stays one.
        ArraySpec listed{"listed", {2}, "abcd", "u2"};
        ArraySpec plain{"plain", {2}, "abcd", "u2"};
        plain.named = false;
        const auto file = open(stateDict({listed, plain}));
        QVERIFY(file.ok());
        const Catalog& catalog = (*file)->catalog();
        QCOMPARE(catalog.dtype(catalog.find("listed")), DType::bfloat16);
        QCOMPARE(catalog.dtype(catalog.find("plain")), DType::uint16);
    }

    void splitParameters() {
        const auto info = [](bool missing, int64_t rows) {
            return [=](PickleWriter& w) {
                w.text("UnpackBigParamInfor@@");
                w.emptyDict();
                w.text("w");
                w.emptyDict();
                w.text("OriginShape");
                putDims(w, {rows, 2});
                w.setItem();
                w.text("slices");
                w.emptyList();
                w.text("w@@.0");
                w.append();
                w.text(missing ? "w@@.7" : "w@@.1");
                w.append();
                w.setItem();
                w.setItem();
            };
        };
        const std::vector<ArraySpec> parts{{"w@@.0", {4}, floats(4)}, {"w@@.1", {2}, floats(2, 4)}};
        for (const For reader : {For::python, For::python3}) {
            const auto file = open(stateDict(parts, reader, info(false, 3)));
            QVERIFY2(file.ok(), file.ok() ? "" : describe(file.error()).c_str());
            const Catalog& catalog = (*file)->catalog();
            QCOMPARE(catalog.tensorCount(), 1U);
            QCOMPARE(catalog.chunkCount(), 2U);
            QVERIFY(catalog.chunk(1).flat == (FlatRange{4, 6}));
            QVERIFY(bytesOf(**file, 0).value() + bytesOf(**file, 1).value() == floats(6));
        }
        const auto missing = open(stateDict(parts, For::python3, info(true, 3)));
        QVERIFY(missing.error().message.find("'w@@.7' of the split parameter is missing") !=
                std::string::npos);
        QCOMPARE(open(stateDict(parts, For::python3, info(false, 4))).error().location.rule,
                 std::string("meta.inconsistent"));
    }

    void evalInTheOneHarmlessShape() {
        const auto with = [](const char* code, const char* key) {
            return stateDict({}, For::python3, [=](PickleWriter& w) {
                w.text("w");
                w.global("builtins", "eval");
                w.text(code);
                w.emptyDict();
                w.text(key);
                putArray(w, {"", {2}, floats(2)});
                w.setItem();
                w.tuple2();
                w.reduce();
            });
        };
        const auto good = open(with("data", "data"));
        QVERIFY(good.ok());
        QVERIFY((*good)->catalog().find("w") != kNone);
        QVERIFY(!hasNote((*good)->catalog().notes(), "security.global", "eval"));
        const auto bad = open(with("__import__('os')", "data"));
        QVERIFY(bad.ok());
        QCOMPARE((*bad)->catalog().tensorCount(), 0U);
        QVERIFY(hasNote((*bad)->catalog().notes(), "security.global", "eval"));
    }

    void refused() {
        QCOMPARE(open(std::string("\0\0\0\0\0\0\0\0", 8)).error().code, ErrorCode::unsupported);
        QCOMPARE(open("").error().location.rule, std::string("file.truncated"));
        QCOMPARE(open("not a pickle").error().code, ErrorCode::damaged);
        // Out-of-band buffers and persistent ids are none of Paddle's.
        QVERIFY(!open("\x80\x05\x97.").ok());
        // Lengths that lie.
        std::string lie = "\x80\x04\x8e";
        lie += std::string(8, '\x7f');
        QCOMPARE(open(lie).error().location.rule, std::string("file.truncated"));
    }

    void everyTruncation() {
        for (const For reader : {For::python, For::python3}) {
            const std::string whole =
                stateDict({{"w", {20, 60}, floats(1200)}, {"b", {3}, floats(3)}}, reader);
            for (size_t length = 0; length < whole.size(); ++length)
                QVERIFY(!open(whole.substr(0, length)).ok());
        }
    }

    void flippedBytes() {
        std::mt19937 random(9);
        for (const For reader : {For::python, For::python3}) {
            const std::string whole =
                stateDict({{"w", {20, 60}, floats(1200)}, {"b", {3}, floats(3)}}, reader);
            for (int round = 0; round < 2000; ++round) {
                std::string damaged = whole;
                // The opcodes lie around the data.
                const size_t at = random() % 2 ? random() % 200 : damaged.size() - 1 - random() % 200;
                damaged[at] = static_cast<char>(random());
                const auto file = open(damaged);
                if (!file.ok()) continue;
                for (ChunkId c = 0; c < (*file)->catalog().chunkCount(); ++c) {
                    const auto extent = (*file)->locate(c);
                    if (extent.ok()) QVERIFY(extent->length <= extent->file->size() - extent->offset);
                }
            }
        }
    }
};

QTEST_GUILESS_MAIN(PaddleSaveTest)
#include "paddle_save_test.moc"
