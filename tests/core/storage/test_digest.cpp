#include <QTest>
#include <string>
#include <vector>

#include <xxhash.h>

#include "storage/digest.h"

using namespace shardscope;

class TestDigest : public QObject {
    Q_OBJECT

  private slots:
    void knownValues() {
        const std::string text = "abc";
        const std::span bytes = std::as_bytes(std::span(text));
        auto sha = makeSha256();
        sha->update(bytes.first(1));
        sha->update(bytes.subspan(1));
        QCOMPARE(sha->hex(), std::string("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"));
        auto crc = makeCrc32();
        crc->update(bytes);
        QCOMPARE(crc->hex(), std::string("352441c2"));
        QCOMPARE(crc32Of(bytes), 0x352441c2U);
        QCOMPARE(crc32Of({}), 0U);
        // XXH3-128 of the empty input, as its specification gives it.
        QCOMPARE(cellDigest({}).hex(), std::string("99aa06d3014798d86001c324468d497f"));
    }

    // Whichever instructions this processor has.
    void cellsAreAsTheLibraryHashes() {
        std::vector<std::byte> bytes((size_t{1} << 20) + 4096);
        uint64_t state = 1;
        for (std::byte& byte : bytes)
            byte =
                static_cast<std::byte>((state = state * 6364136223846793005U + 1442695040888963407U) >> 56);
        for (const size_t size : {1U, 16U, 17U, 128U, 129U, 240U, 241U, 1024U, 1025U, 65537U, 1U << 20}) {
            for (const size_t at : {0U, 1U, 31U}) {
                const auto cell = std::span(bytes).subspan(at, size);
                const XXH128_hash_t expected = XXH3_128bits(cell.data(), cell.size());
                const Digest128 found = cellDigest(cell);
                QCOMPARE(found.low, expected.low64);
                QCOMPARE(found.high, expected.high64);
            }
        }
    }

    void crcJoins() {
        std::vector<std::byte> data(100'000);
        for (size_t i = 0; i < data.size(); ++i)
            data[i] = static_cast<std::byte>(i * 37 >> 3);
        const std::span all(data);
        for (size_t cut : {size_t{0}, size_t{1}, size_t{4097}, data.size()}) {
            QCOMPARE(crc32Combine(crc32Of(all.first(cut)), crc32Of(all.subspan(cut)), data.size() - cut),
                     crc32Of(all));
        }
    }

    void cells() {
        QCOMPARE(digestCellElements(DType::bfloat16), int64_t{1} << 19);
        QCOMPARE(digestCellElements(DType::complex128), int64_t{1} << 16);
        QCOMPARE(digestCellElements(DType::float6E2M3) % 4, int64_t{0});
        const std::vector<Digest128> cells{{1, 2}, {3, 4}};
        const Dims shape{2, 3}, other{3, 2};
        const Digest128 one = tensorDigest(DType::float32, shape, cells);
        QCOMPARE(one, tensorDigest(DType::float32, shape, cells));
        QVERIFY(!(one == tensorDigest(DType::float32, other, cells)));
        QVERIFY(!(one == tensorDigest(DType::int32, shape, cells)));
        QVERIFY(!(one == tensorDigest(DType::float32, shape, std::span(cells).first(1))));
    }
};

QTEST_APPLESS_MAIN(TestDigest)
#include "test_digest.moc"
