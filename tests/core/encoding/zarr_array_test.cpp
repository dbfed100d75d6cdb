// What the description of a zarr array says, and what is refused.
#include "encoding/zarr_array.h"

#include <QtTest>
#include <algorithm>

#include <zstd.h>

#include "encoding/crc32c.h"
#include "support/bytes_file.h"

using namespace shardscope;
using shardscope::test::BytesFile;

namespace {

const std::string kDescription =
    R"({"chunks": [1, 8, 16], "compressor": null, "dtype": "bfloat16", "fill_value": null, "filters": null, )"
    R"("order": "C", "shape": [2, 30, 16], "zarr_format": 2})";

std::string with(std::string_view from, std::string_view to) {
    std::string text = kDescription;
    const size_t at = text.find(from);
    if (at == text.npos) qFatal("nothing to replace");
    return text.replace(at, from.size(), to);
}

std::string littleEndian(uint64_t value, int bytes) {
    std::string out;
    for (int i = 0; i < bytes; ++i)
        out += static_cast<char>(value >> (8 * i));
    return out;
}

std::string sharded(const std::string& location) {
    return R"({"zarr_format":3,"node_type":"array","shape":[5,4],"data_type":"uint16","fill_value":7,"chunk_grid":{"name":"regular",)"
           R"("configuration":{"chunk_shape":[4,4]}},"chunk_key_encoding":{"name":"default"},"codecs":[{"name":"sharding_indexed",)"
           R"("configuration":{"chunk_shape":[2,2],"codecs":[{"name":"bytes","configuration":{"endian":"little"}}],"index_codecs":[{"name":)"
           R"("bytes","configuration":{"endian":"little"}},{"name":"crc32c"}],"index_location":")" +
           location + R"("}}]})";
}

}  // namespace

class ZarrArrayTest : public QObject {
    Q_OBJECT

  private slots:
    void describesAnArray() {
        const auto array = parseZarray(kDescription);
        QVERIFY(array.ok());
        QVERIFY(array->dtype == DType::bfloat16 && !array->bigEndian && !array->fill);
        QVERIFY((array->shape == Dims{2, 30, 16} && array->chunk == Dims{1, 8, 16}));
        QVERIFY((array->grid() == Dims{2, 4, 1}));
        QCOMPARE(array->chunkBytes(), uint64_t{256});
    }

    void chunksHaveOneName() {
        const auto array = parseZarray(kDescription);
        QVERIFY(array.ok());
        const Dims last{1, 3, 0};
        QCOMPARE(array->chunkName(last), std::string("1.3.0"));
        QVERIFY(array->chunkPlace("1.3.0") == last);
        for (const char* other :
             {"1.3", "1.3.0.0", "1.4.0", "01.3.0", "1.3.0 ", "-1.3.0", "1/3/0", ".zarray", ""})
            QVERIFY2(!array->chunkPlace(other), other);
        const auto scalar = parseZarray(
            R"({"chunks": [], "compressor": null, "dtype": ">i8", "fill_value": 0, "order": "C", "shape": [], "zarr_format": 2})");
        QVERIFY(scalar.ok() && scalar->bigEndian && scalar->fill);
        QVERIFY(scalar->chunkPlace("0") == Dims{} && scalar->chunkName({}) == "0");
    }

    void refusesWhatItCannotRead_data() {
        QTest::addColumn<QString>("text");
        QTest::addColumn<bool>("isDamage");
        const auto row = [](const char* name, const std::string& text, bool isDamage) {
            QTest::newRow(name) << QString::fromStdString(text) << isDamage;
        };
        row("compressor", with("\"compressor\": null", R"("compressor": {"id": "blosc"})"), false);
        row("filters", with("\"filters\": null", R"("filters": [{"id": "delta"}])"), false);
        row("column-major", with("\"C\"", "\"F\""), false);
        row("dtype", with("bfloat16", "|V6"), false);
        row("version", with("\"zarr_format\": 2", "\"zarr_format\": 3"), false);
        row("directories", with("\"order\"", R"("dimension_separator": ":", "order")"), true);
        row("rank", with("[1, 8, 16]", "[8, 16]"), true);
        row("empty chunks", with("[1, 8, 16]", "[1, 0, 16]"), true);
        row("negative", with("[2, 30, 16]", "[2, -30, 16]"), true);
        row("fraction", with("[2, 30, 16]", "[2, 3.5, 16]"), true);
        row("overflow", with("[2, 30, 16]", "[281474976710656, 281474976710656, 281474976710656]"), true);
        row("beyond all", with("[2, 30, 16]", "[2, 18446744073709551615, 16]"), true);
    }
    void refusesWhatItCannotRead() {
        QFETCH(QString, text);
        QFETCH(bool, isDamage);
        const auto array = parseZarray(text.toStdString());
        QVERIFY(!array.ok());
        QCOMPARE(array.error().code == ErrorCode::damaged, isDamage);
    }

    void everyTruncationIsAnError() {
        for (size_t length = 0; length < kDescription.size(); ++length)
            QVERIFY(!parseZarray(std::string_view(kDescription).substr(0, length)).ok());
    }

    // ------------------------------------------------------------------ version 3 and codecs

    void describesVersion3() {
        const auto array = parseZarrJson(sharded("end"));
        QVERIFY2(array.ok(), array.ok() ? "" : describe(array.error()).c_str());
        QVERIFY((array->shape == Dims{5, 4} && array->chunk == Dims{4, 4} &&
                 array->sharding->inner == Dims{2, 2}));
        QVERIFY(array->dtype == DType::uint16 && array->fill && array->sharding->indexBytes == 4 * 16 + 4);
        QCOMPARE(array->chunkName(Dims{1, 0}), std::string("c/1/0"));
        QVERIFY((array->chunkPlace("c/1/0") == Dims{1, 0}));
        for (const char* other : {"c/1", "1/0", "c/2/0", "c/1/0/", "c.1.0"})
            QVERIFY2(!array->chunkPlace(other), other);
        const std::string text = sharded("end");
        for (size_t length = 0; length < text.size(); ++length)
            QVERIFY(!parseZarrJson(std::string_view(text).substr(0, length)).ok());
    }

    void readsShardsOfManyChunks_data() {
        QTest::addColumn<QString>("location");
        QTest::newRow("index at the end") << "end";
        QTest::newRow("index at the start") << "start";
    }
    void readsShardsOfManyChunks() {
        QFETCH(QString, location);
        const auto array = parseZarrJson(sharded(location.toStdString()));
        QVERIFY(array.ok());
        // Inner chunk i holds four times i; the third is not there: the fill value.
        const bool atStart = location == "start";
        std::string data, index;
        const uint64_t begin = atStart ? 4 * 16 + 4 : 0;
        for (uint64_t i = 0; i < 4; ++i) {
            const bool absent = i == 2;
            for (const uint64_t value :
                 {absent ? UINT64_MAX : begin + data.size(), absent ? UINT64_MAX : uint64_t{8}})
                index += littleEndian(value, 8);
            for (int e = 0; e < 4 && !absent; ++e)
                data += littleEndian(i, 2);
        }
        index += littleEndian(crc32cOf(std::as_bytes(std::span(index))), 4);
        const std::string shard = atStart ? index + data : data + index;
        const BytesFile file(shard);
        std::vector<std::byte> plain;
        const auto take = [&](std::span<const std::byte> piece) -> Status {
            plain.insert(plain.end(), piece.begin(), piece.end());
            return {};
        };
        QVERIFY(checkZarrChunk(*array, {file, 0, shard.size()}).ok());
        QVERIFY(unpackZarrChunk(*array, {file, 0, shard.size()}, {}, take).ok());
        std::string wanted;
        for (const int value : {0, 0, 1, 1, 0, 0, 1, 1, 7, 7, 3, 3, 7, 7, 3, 3})
            wanted += littleEndian(static_cast<uint64_t>(value), 2);
        QVERIFY(std::ranges::equal(plain, std::as_bytes(std::span(wanted))));
        // Every truncation, and every change of the index, is noticed before the data is read.
        for (size_t length = 0; length < shard.size(); ++length)
            QVERIFY(!checkZarrChunk(*array, {BytesFile(shard.substr(0, length)), 0, length}).ok());
        for (size_t i = atStart ? 0 : data.size(); i < (atStart ? index.size() : shard.size()); ++i) {
            std::string changed = shard;
            changed[i] = static_cast<char>(changed[i] ^ 1);
            QVERIFY(!checkZarrChunk(*array, {BytesFile(changed), 0, changed.size()}).ok());
        }
    }

    void zstdChunksHaveTheirSize() {
        const auto array =
            parseZarray(with("\"compressor\": null", R"("compressor": {"id": "zstd", "level": 1})"));
        QVERIFY(array.ok() && !array->raw());
        const auto unpack = [&](const std::string& plain) {
            std::string packed(ZSTD_compressBound(plain.size()), '\0');
            packed.resize(ZSTD_compress(packed.data(), packed.size(), plain.data(), plain.size(), 1));
            const BytesFile file(packed);
            uint64_t made = 0;
            const Status status = unpackZarrChunk(*array, {file, 0, packed.size()}, {},
                                                  [&](std::span<const std::byte> piece) -> Status {
                                                      made += piece.size();
                                                      return {};
                                                  });
            if (!status.ok()) return QString::fromStdString(status.error().location.rule);
            return QString::number(made);
        };
        QCOMPARE(unpack(std::string(256, 'x')), QString("256"));
        QCOMPARE(unpack(std::string(255, 'x')), QString("file.truncated"));
        QCOMPARE(unpack(std::string(1 << 20, 'x')), QString("meta.inconsistent"));
    }
    // By what frames of zstd and members of gzip say of their sizes.
    void cutChunksAreToldWithoutUnpacking() {
        std::string plain(256, '\0');
        for (size_t i = 0; i < plain.size(); ++i)
            plain[i] = static_cast<char>(i * i * 7);
        std::string zstd(ZSTD_compressBound(plain.size()), '\0');
        zstd.resize(ZSTD_compress(zstd.data(), zstd.size(), plain.data(), plain.size(), 1));
        // One stored block of deflate.
        const std::string gzip = std::string("\x1f\x8b\x08\0\0\0\0\0\0\x03\x01\0\x01\xff\xfe", 15) + plain +
                                 std::string("....\0\x01\0\0", 8);
        for (const auto& [codec, packed] : {std::pair("zstd", zstd), std::pair("gzip", gzip)}) {
            const auto array =
                parseZarray(with("\"compressor\": null",
                                 std::string("\"compressor\": {\"id\": \"") + codec + "\", \"level\": 1}"));
            QVERIFY(array.ok());
            for (size_t length = 0; length <= packed.size(); ++length) {
                const BytesFile file(packed.substr(0, length));
                QCOMPARE(checkZarrChunk(*array, {file, 0, length}).ok(), length == packed.size());
            }
        }
    }
};

QTEST_GUILESS_MAIN(ZarrArrayTest)
#include "zarr_array_test.moc"
