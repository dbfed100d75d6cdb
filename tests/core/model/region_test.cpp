#include "model/region.h"

#include <QTest>
#include <random>

#include "model/dtype.h"
#include "model/mesh.h"
#include "model/path.h"

using namespace shardscope;

class RegionTest : public QObject {
    Q_OBJECT

  private slots:
    // Against the definition: list the box's elements in order of their position in the tensor.
    void rowMajorArithmetic() {
        std::mt19937 random(7);
        for (int round = 0; round < 300; ++round) {
            const int rank = static_cast<int>(random() % 5);
            Dims shape, offsets, lengths;
            for (int i = 0; i < rank; ++i) {
                shape.push_back(1 + static_cast<int64_t>(random() % 5));
                offsets.push_back(static_cast<int64_t>(random() % shape.back()));
                lengths.push_back(1 + static_cast<int64_t>(random() % (shape.back() - offsets.back())));
            }
            const int64_t total = elementCount(shape);
            std::vector<int64_t> positions;
            for (int64_t p = 0; p < total; ++p) {
                int64_t rest = p;
                bool inside = true;
                for (int i = rank; i-- > 0;) {
                    const int64_t digit = rest % shape[i];
                    rest /= shape[i];
                    inside = inside && digit >= offsets[i] && digit < offsets[i] + lengths[i];
                }
                if (inside) positions.push_back(p);
            }
            QCOMPARE(elementCount(lengths), static_cast<int64_t>(positions.size()));
            for (int64_t p = 0; p <= total; ++p) {
                const auto before =
                    std::lower_bound(positions.begin(), positions.end(), p) - positions.begin();
                QCOMPARE(elementsBefore(p, shape, offsets, lengths), static_cast<int64_t>(before));
            }
            for (size_t i = 0; i < positions.size(); ++i)
                QCOMPARE(positionOf(static_cast<int64_t>(i), shape, offsets, lengths), positions[i]);
            const auto n = static_cast<int64_t>(positions.size());
            const int64_t first = n ? static_cast<int64_t>(random() % n) : 0;
            std::vector<int64_t> visited;
            int64_t expectedStart = first;
            forEachRun(first, n, shape, offsets, lengths,
                       [&](int64_t start, int64_t position, int64_t count) {
                           QCOMPARE(start, expectedStart);
                           for (int64_t k = 0; k < count; ++k)
                               visited.push_back(position + k);
                           expectedStart = start + count;
                       });
            QVERIFY(std::equal(visited.begin(), visited.end(), positions.begin() + first, positions.end()));
        }
    }

    void splitRules() {
        const auto lengths = [](int64_t n, uint32_t parts, SplitRule rule) {
            std::vector<int64_t> out;
            int64_t end = 0;
            for (uint32_t i = 0; i < parts; ++i) {
                const Span1 piece = splitPiece(n, parts, i, rule);
                if (piece.offset != end) return std::vector<int64_t>{-1};
                end = piece.offset + piece.length;
                out.push_back(piece.length);
            }
            return end == n ? out : std::vector<int64_t>{-2};
        };
        QCOMPARE(lengths(6, 4, SplitRule::torch), (std::vector<int64_t>{2, 2, 2, 0}));
        QCOMPARE(lengths(5, 4, SplitRule::torch), (std::vector<int64_t>{2, 2, 1, 0}));
        QCOMPARE(lengths(1, 4, SplitRule::torch), (std::vector<int64_t>{1, 0, 0, 0}));
        QCOMPARE(lengths(6, 4, SplitRule::even), (std::vector<int64_t>{2, 2, 1, 1}));
        QCOMPARE(lengths(0, 3, SplitRule::even), (std::vector<int64_t>{0, 0, 0}));
    }

    void meshes() {
        const auto mesh = parseMesh("pp=2,dp=3,tp=4");
        QVERIFY(mesh.ok());
        QCOMPARE(mesh->ranks(), 24U);
        QCOMPARE(mesh->coordinates(23), (std::vector<uint32_t>{1, 2, 3}));
        for (uint32_t r = 0; r < 24; ++r)
            QCOMPARE(mesh->rankAt(mesh->coordinates(r)), r);
        for (const char* bad :
             {"", "tp", "tp=", "tp=0", "tp=x", "=3", "tp=2,tp=2", "a=1000,b=1000,c=1000", "tp=-1"})
            QVERIFY2(!parseMesh(bad).ok(), bad);
    }

    void pathsKeepTheirKinds() {
        const Path path{keyPart("optimizer"),
                        keyPart("state.layers.0.w"),
                        {PathPart::Kind::integerKey, "", -7},
                        indexPart(3),
                        {PathPart::Kind::otherKey, "(1, 2)", 0}};
        QCOMPARE(pathName(path), std::string("optimizer.state.layers.0.w.-7.3.(1, 2)"));
        QVERIFY(decodePath(encodePath(path)) == path);
        QVERIFY(decodePath("").empty());
    }

    void dtypeNames() {
        for (int i = 0; i < kDTypeCount; ++i) {
            const auto dtype = static_cast<DType>(i);
            QVERIFY(dtypeFromName(dtypeName(dtype)) == dtype);
        }
        QVERIFY(dtypeFromName("bf16") == DType::bfloat16);
        QVERIFY(dtypeFromName("torch.float32") == DType::float32);
        QVERIFY(dtypeFromName("F8_E4M3") == DType::float8E4M3FN);
        QVERIFY(!dtypeFromName("float7"));
        QVERIFY(!dtypeByteCount(DType::float6E2M3, 3));
        QVERIFY(dtypeByteCount(DType::float6E2M3, 4) == 3U);
        QVERIFY(!dtypeByteCount(DType::float64, uint64_t{1} << 62));
    }
};

QTEST_GUILESS_MAIN(RegionTest)
#include "region_test.moc"
